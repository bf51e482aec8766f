/* Pages that are touched ahead of reads: all that is pinned, of the pool a little more than is used
 * and as much again; nothing after a stop; what reads have written stays. */
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../stream/pages.h"
#include "lib_test.h"

enum {
    MIB = 1 << 20,
    PIECE = SL_SLAB_PIECE,
    PINNED = 6 * MIB + 12288, /* zones begin where they will */
    SLOT = 3 * MIB,
    SLOTS = 40,
    AHEAD = 8 * MIB,
    WAIT_MS = 60000 /* the thread runs when nobody else does */
};

typedef struct rig {
    sl_slab slab;
    sl_pool pool;
    sl_pages pages;
} rig;

static bool touched(const rig *r, uint64_t at)
{
    unsigned char in = 0;
    return mincore(r->slab.memory + sl_round_down(at, SL_SLAB_PAGE), SL_SLAB_PAGE, &in) == 0 &&
           in & 1;
}

static bool all_touched(const rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += SL_SLAB_PAGE)
        if (!touched(r, at))
            return false;
    return true;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static bool comes(const rig *r, uint64_t from, uint64_t to)
{
    for (int ms = 0; ms < WAIT_MS; ms += 5, nap_ms(5))
        if (all_touched(r, from, to))
            return true;
    return false;
}

static uint64_t slot_at(uint32_t slot)
{
    return PINNED + (uint64_t)slot * SLOT;
}

static void use(rig *r, uint32_t slots)
{
    r->pool.class[0].n_touched = slots;
    sl_pages_used(&r->pages, &r->pool);
}

static bool rig_open(rig *r, bool small_pages)
{
    sl_err err = {0};
    *r = (rig){.pool = {.n_classes = 1}};
    r->pool.class[0] = (sl_pool_class){.slot_bytes = SLOT, .n_most = SLOTS, .n_slots = SLOTS};
    if (!CHECK(sl_slab_open(&r->slab, slot_at(SLOTS), small_pages, &err) == SL_OK, "%s", err.text))
        return false;
    sl_pages_open(&r->pages, &r->slab, &r->pool, PINNED, AHEAD);
    return true;
}

static void rig_close(rig *r)
{
    sl_pages_close(&r->pages);
    sl_slab_close(&r->slab);
}

/* A piece beyond what may be touched. */
static uint64_t beyond(uint64_t at)
{
    return sl_round_up(at, PIECE) + PIECE;
}

static void ahead_of_use(bool small_pages)
{
    rig r;
    test_case("ahead of use, %s pages", small_pages ? "small" : "huge");
    if (!rig_open(&r, small_pages))
        return;
    CHECK(comes(&r, 0, PINNED + AHEAD), "what is pinned, and a little of the pool");
    nap_ms(20);
    CHECK(!touched(&r, beyond(PINNED + AHEAD)), "no more than that");
    memset(r.slab.memory + slot_at(9), 0x5a, SLOT); /* a read that was faster */
    use(&r, 10);
    CHECK(comes(&r, slot_at(10), slot_at(20)), "as much again as is used");
    nap_ms(20);
    CHECK(!touched(&r, beyond(slot_at(20))));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < SLOT; i++)
        wrong += r.slab.memory[slot_at(9) + i] != 0x5a;
    CHECK(wrong == 0, "%llu bytes of a read spoilt", (unsigned long long)wrong);
    sl_pages_stop(&r.pages);
    use(&r, 30);
    nap_ms(20);
    CHECK(!touched(&r, beyond(slot_at(30))), "touched after the stop");
    rig_close(&r);
}

static void to_the_end(void)
{
    rig r;
    test_case("to the end");
    if (!rig_open(&r, false))
        return;
    use(&r, SLOTS / 2 + 1);
    CHECK(comes(&r, slot_at(SLOTS / 2 + 1), slot_at(SLOTS)));
    use(&r, SLOTS);
    rig_close(&r);
}

static void at_once(void)
{
    for (int i = 0; i < 50; i++) {
        rig r;
        test_case("opened and closed, %d", i);
        if (!rig_open(&r, false))
            return;
        use(&r, (uint32_t)i % SLOTS);
        rig_close(&r);
    }
}

static bool kernel_can(void)
{
    void *p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool can = p != MAP_FAILED && madvise(p, PIECE, 23 /* MADV_POPULATE_WRITE */) == 0;
    munmap(p, PIECE);
    return can;
}

int main(void)
{
    if (!kernel_can())
        test_skip("the kernel cannot touch pages ahead (before 5.14)");
    ahead_of_use(false);
    ahead_of_use(true);
    to_the_end();
    at_once();
    return test_end();
}
