/* Proves: on-demand parts and their pool. Slots by class and share; who gives up a slot, by policy;
 * all misses go out at once; a need overtakes hints and takes them up; hints never evict what is
 * needed, expire, and give way; a part in use keeps its slot; the first stage comes first; a failed
 * read ends only its own pass; then random schedules with every invariant checked after each step.
 */
#include <errno.h>
#include <math.h>

#include "lib_sched.h"

enum { KB = 1 << 10, EXPERT = 64 * KB };

/* A unit with a dense part and n on-demand parts of len bytes each: two extents, the second one the
 * second stage. Returns the first on-demand part. */
static uint32_t expert_unit(sim *m, uint64_t at, uint32_t n, uint64_t len)
{
    uint32_t first = 0, u = sl_plan_unit(m->plan, "u");
    sl_plan_extent(m->plan, sl_plan_part(m->plan, u, SL_PART_ALWAYS), (sl_extent){0, at, 16 * KB});
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = sl_plan_part(m->plan, u, SL_PART_ON_DEMAND);
        first = i ? first : part;
        sl_plan_extent(m->plan, part, (sl_extent){0, at + (1 << 20) + i * len, len / 2});
        sl_plan_part_stage(m->plan, part);
        sl_plan_extent(m->plan, part, (sl_extent){0, at + (8 << 20) + i * len, len / 2});
    }
    return first;
}

/* Two units of eight experts each; room for n of them, and the dense parts. */
static void two_units(sim *m, uint32_t n, uint32_t first[2])
{
    sim_new(m);
    m->o.piece_bytes = 16 * KB;
    first[0] = expert_unit(m, 0, 8, EXPERT);
    first[1] = expert_unit(m, 32 << 20, 8, EXPERT);
    sim_open(m, 32 * KB + (n - 2) * (uint64_t)EXPERT + 16 * KB);
    CHECK(m->split.pool_slots == n && m->split.ring_bytes == 0, "%u slots", m->split.pool_slots);
}

static sl_resident *of(sim *m, uint32_t part)
{
    return &m->s.resident[m->s.position[part]];
}

static void need(sim *m, uint32_t unit, uint32_t first, const uint32_t *experts, uint32_t n)
{
    uint32_t parts[64], rows[64];
    for (uint32_t i = 0; i < n; i++) {
        parts[i] = first + experts[i];
        rows[i] = 1;
    }
    sl_sched_need(&m->s, unit, parts, rows, n);
}

static void hint(sim *m, uint32_t first, const uint32_t *experts, uint32_t n)
{
    uint32_t parts[64];
    for (uint32_t i = 0; i < n; i++)
        parts[i] = first + experts[i];
    sl_sched_hint(&m->s, parts, n);
}

/* Gets every needed part, one at a time, and counts them. */
static uint32_t get_all(sim *m)
{
    uint32_t part, n, got = 0;
    sl_err err = {0};
    for (;;) {
        sl_status st = sl_sched_parts(&m->s, &part, 1, &n, &err);
        if (st == SL_EAGAIN) {
            issue(m);
            if (!CHECK(m->n_out, "nothing in flight and nothing to read"))
                return got;
            complete(m, oldest(m), INT32_MAX);
            continue;
        }
        if (!CHECK(st == SL_OK, "%s", err.text) || n == 0)
            return got;
        got++;
        while (sl_sched_part_rest(&m->s, part, NULL) == SL_EAGAIN) {
            issue(m);
            complete(m, oldest(m), INT32_MAX);
        }
        CHECK(part_right(m, of(m, part)), "part %u", part);
        if (!holds(m))
            return got;
    }
}

static void whole_unit(sim *m, uint32_t unit, uint32_t first, const uint32_t *experts, uint32_t n)
{
    CHECK(enter_driven(m, unit, NULL) == SL_OK);
    need(m, unit, first, experts, n);
    CHECK(get_all(m) == n);
    sl_sched_leave(&m->s, unit);
}

/* ---- arithmetic ---- */

static void shares(void)
{
    test_case("slots: the same share of every class, two at least");
    sim m;
    sl_pool_plan p;
    sim_new(&m);
    expert_unit(&m, 0, 8, 256 * KB);
    expert_unit(&m, 32 << 20, 16, 248 * KB); /* of the same class */
    expert_unit(&m, 64 << 20, 4, 512 * KB);
    expert_unit(&m, 96 << 20, 1, 64 * KB);
    sl_pool_choose(m.plan, 0, &p);
    CHECK(p.n == 29 && p.n_classes == 3 && p.n_slots == 5 && p.bytes == p.least_bytes);
    CHECK(p.least_bytes == 2 * 512 * KB + 2 * 256 * KB + 64 * KB);
    CHECK(p.part_bytes == 4 * 512 * KB + 24 * 256 * KB + 64 * KB);
    sl_pool_choose(m.plan, p.part_bytes / 2, &p);
    CHECK(p.class[0].n_slots == 2 && p.class[1].n_slots >= 11 && p.class[2].n_slots == 1);
    CHECK(p.bytes <= p.part_bytes / 2);
    sl_pool_choose(m.plan, p.part_bytes, &p);
    CHECK(p.n_slots == p.n && p.bytes == p.part_bytes);
    for (uint64_t bytes = p.least_bytes; bytes < p.part_bytes; bytes += 4 * KB) {
        sl_pool_choose(m.plan, bytes, &p);
        CHECK(p.bytes <= bytes && p.n_slots < p.n);
    }
    sl_plan_free(&m.plan);
}

/* With room for half of the ALWAYS parts: what the pool is promised comes out of what they get. */
static void promised(void)
{
    test_case("a pool that is promised memory");
    sim m;
    sl_split s;
    uint64_t last = 0, floor;
    sim_new(&m);
    for (uint32_t i = 0; i < 32; i++)
        sim_unit(&m, i << 20, 64 * KB);
    expert_unit(&m, 64 << 20, 8, 128 * KB);
    sl_split_choose(m.plan, &m.o, &s, NULL, NULL, NULL);
    floor = s.floor_bytes;
    m.o.memory_bytes = floor + 1024 * KB;
    for (m.o.pool_bytes = 0; m.o.pool_bytes <= 1536 * KB; m.o.pool_bytes += 32 * KB) {
        const sl_status st = sl_split_choose(m.plan, &m.o, &s, m.pinned, &m.pool, NULL);
        const uint64_t wish = m.o.pool_bytes < 1024 * KB ? m.o.pool_bytes : 1024 * KB;
        CHECK(!st && s.floor_bytes == floor && s.pool_bytes >= last, "%d", st);
        CHECK(s.pool_bytes == (wish < 256 * KB ? 256 * KB : sl_round_down(wish, 128 * KB)),
              "%u KiB promised: %u KiB", (unsigned)(m.o.pool_bytes / KB),
              (unsigned)(s.pool_bytes / KB));
        CHECK(s.ring_bytes >= 128 * KB &&
              s.ring_bytes + s.pinned_bytes + s.pool_bytes + s.io_bytes + s.rows_bytes <=
                  m.o.memory_bytes);
        last = s.pool_bytes;
    }
    CHECK(s.pool_slots == 8, "all of it");
    m.o.memory_bytes = floor; /* a promise never lifts the floor */
    CHECK(sl_split_choose(m.plan, &m.o, &s, m.pinned, &m.pool, NULL) == SL_OK && s.pool_slots == 2);
    sl_plan_free(&m.plan);
}

/* LRFU's keys against the sum that they stand for. */
static void keys(void)
{
    test_case("LRFU keys are the logarithm of the decayed sum of uses");
    sim m;
    uint32_t first[2];
    two_units(&m, 4, first);
    sl_pool *p = &m.s.pool;
    double sum = 0;
    uint64_t seed = 5;
    for (uint32_t pass = 0; pass < 200; pass++) {
        const uint32_t pass_rows = pass % 7 ? 1 : 1 + (uint32_t)(test_random(&seed) % 600);
        const uint32_t rows = (uint32_t)(test_random(&seed) % (pass_rows + 1));
        if (rows)
            sl_pool_use(p, 3, rows, pass_rows);
        for (uint32_t r = 0; r < pass_rows; r++) /* decay by a row, then a row's use */
            sum = sum * exp2(-1.0 / 16) + (double)rows / pass_rows;
        sl_pool_tick(p, pass_rows);
        const double now = p->now / 16, key = log2(sum) + now - 1.0 / 16;
        CHECK(sum == 0 ? p->entry[3].key == -INFINITY : fabs(p->entry[3].key - key) < 1e-6,
              "pass %u: %g, expected %g", pass, p->entry[3].key, key);
    }
    sim_close(&m);
}

/* ---- one promise at a time ---- */

static void hits_and_misses(void)
{
    test_case("all misses go out at once; the second time they are there");
    sim m;
    uint32_t first[2];
    two_units(&m, 8, first);
    const uint32_t experts[4] = {1, 3, 4, 7};
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK);
    complete_all(&m);
    need(&m, 0, first[0], experts, 4);
    CHECK(issue(&m) == 16, "four parts of four pieces");
    for (uint32_t i = 0; i < 16; i++)
        CHECK(m.out[i]->offset == (1u << 20) * (i % 4 / 2 ? 8 : 1) +
                                      experts[i / 4] * (uint64_t)EXPERT + (i % 2) * 16 * KB,
              "read %u", i);
    CHECK(get_all(&m) == 4);
    sl_sched_leave(&m.s, 0);
    whole_unit(&m, 1, first[1], experts, 2);
    sl_sched_pass_end(&m.s);
    const uint64_t reads = m.s.stats.reads;
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    whole_unit(&m, 0, first[0], experts, 4);
    CHECK(m.s.stats.reads == reads);
    CHECK(m.s.unit_stats[0].needs == 8 && m.s.unit_stats[0].hits == 4 &&
          m.s.unit_stats[0].miss_bytes == 4 * EXPERT && m.s.stats.evictions == 0);
    sim_close(&m);
}

static void first_stage(void)
{
    test_case("a part is given when its first stage is there");
    sim m;
    uint32_t first[2], part, n, expert = 2;
    two_units(&m, 4, first);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK);
    complete_all(&m);
    need(&m, 0, first[0], &expert, 1);
    CHECK(issue(&m) == 4);
    CHECK(sl_sched_parts(&m.s, &part, 1, &n, NULL) == SL_EAGAIN);
    CHECK(!complete(&m, oldest(&m), INT32_MAX));
    CHECK(complete(&m, oldest(&m), INT32_MAX), "the pass is told");
    CHECK(sl_sched_parts(&m.s, &part, 1, &n, NULL) == SL_OK && n == 1 && part == first[0] + 2);
    CHECK(sl_sched_part_rest(&m.s, part, NULL) == SL_EAGAIN);
    complete_all(&m);
    CHECK(sl_sched_part_rest(&m.s, part, NULL) == SL_OK && part_right(&m, of(&m, part)));

    test_case("a second stage that nobody waits for is released when it comes");
    expert = 5;
    sl_sched_leave(&m.s, 0);
    CHECK(enter_driven(&m, 1, NULL) == SL_OK);
    complete_all(&m);
    need(&m, 1, first[1], &expert, 1);
    issue(&m);
    complete(&m, oldest(&m), INT32_MAX);
    complete(&m, oldest(&m), INT32_MAX);
    CHECK(sl_sched_parts(&m.s, &part, 1, &n, NULL) == SL_OK && n == 1);
    CHECK(sl_sched_parts(&m.s, &part, 1, &n, NULL) == SL_OK && n == 0 && holds(&m));
    complete_all(&m);
    CHECK(of(&m, first[1] + 5)->state == SL_PART_READY && holds(&m));
    sim_close(&m);
}

static void small_pool(void)
{
    test_case("a pool of two slots serves any number of needs");
    sim m;
    uint32_t first[2];
    two_units(&m, 2, first);
    const uint32_t experts[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t pass = 0; pass < 3; pass++) {
        sl_sched_pass_begin(&m.s, pass ? SL_PASS_DECODE : SL_PASS_PREFILL, 9, 2);
        hint(&m, first[1], experts, 8); /* hold what they can, and give way */
        issue(&m);
        whole_unit(&m, 0, first[0], experts, 8);
        hint(&m, first[1], experts, 8);
        complete_all(&m);
        whole_unit(&m, 1, first[1], experts, 8);
        sl_sched_pass_end(&m.s);
    }
    sim_close(&m);
}

static void who_goes(void)
{
    test_case("the least used part gives up its slot, never one in use");
    static const struct {
        sl_policy policy;
        uint32_t gone;
    } cases[] = {
        {SL_POLICY_LRFU, 1}, {SL_POLICY_LRU, 0}, {SL_POLICY_LFU, 1}, {SL_POLICY_S3FIFO, 1}};
    for (uint32_t c = 0; c < 4; c++) {
        sim m;
        uint32_t first[2];
        sim_new(&m);
        m.o.policy = cases[c].policy;
        m.o.piece_bytes = 16 * KB;
        first[0] = expert_unit(&m, 0, 8, EXPERT);
        sim_open(&m, 16 * KB + EXPERT + 16 * KB);
        CHECK(m.split.pool_slots == 3);
        /* Expert 0 often, then 1 and 2 once, 0 not lately: LRU takes 0, the others 1. */
        static const uint32_t order[] = {0, 0, 0, 0, 1, 2};
        for (uint32_t i = 0; i < 7; i++) {
            const uint32_t expert = i < 6 ? order[i] : 5;
            sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 1);
            whole_unit(&m, 0, first[0], &expert, 1);
            sl_sched_pass_end(&m.s);
        }
        for (uint32_t e = 0; e < 3; e++)
            CHECK((of(&m, first[0] + e)->state == SL_PART_ABSENT) == (e == cases[c].gone),
                  "policy %u, expert %u", c, e);
        sim_close(&m);
    }
}

static void probation(void)
{
    test_case("S3-FIFO: new parts are on probation; used twice there, or back soon, they stay");
    sim m;
    uint32_t first[1];
    sim_new(&m);
    m.o.policy = SL_POLICY_S3FIFO;
    m.o.piece_bytes = 16 * KB;
    first[0] = expert_unit(&m, 0, 12, EXPERT);
    sim_open(&m, 16 * KB + EXPERT + 16 * KB);
    const sl_pool *p = &m.s.pool;
    CHECK(p->class[0].n_slots == 3);
    /* 0 and 2 are used once more than that they came; 1 twice more. 3: 0 goes, a single use does
     * not save it. 4: 1 has earned its place, 2 goes. 0 is back from the ghosts, in the main queue;
     * 5, 6 and 7 go through the one slot of probation that is left. By then 2 is forgotten. */
    static const uint32_t order[] = {0, 1, 2, 0, 1, 2, 1, 3, 4, 0, 5, 6, 7, 2};
    static const uint32_t there[][3] = {{1, 2, 3}, {1, 3, 4}, {1, 4, 0}, {1, 0, 5},
                                        {1, 0, 6}, {1, 0, 7}, {1, 0, 2}};
    for (uint32_t i = 0; i < 14; i++) {
        sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 1);
        whole_unit(&m, 0, first[0], &order[i], 1);
        sl_sched_pass_end(&m.s);
        for (uint32_t k = 0; i >= 7 && k < 3; k++)
            CHECK(of(&m, first[0] + there[i - 7][k])->state == SL_PART_READY, "use %u: %u", i,
                  there[i - 7][k]);
        CHECK(holds(&m));
    }
    CHECK(p->entry[0].queue == SL_POOL_MAIN && p->entry[1].queue == SL_POOL_MAIN &&
          p->entry[2].queue == SL_POOL_SMALL);
    sim_close(&m);
}

static void hints(void)
{
    test_case("a need overtakes hints; a hinted part that is needed is taken up");
    sim m;
    uint32_t first[2];
    two_units(&m, 6, first);
    m.s.o.in_flight_bytes = m.o.in_flight_bytes = 64 * KB;
    m.s.o.hint_bytes = 32 * KB;
    const uint32_t guess[2] = {1, 2}, need0[2] = {5, 6}, need1[2] = {1, 4};
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK);
    complete_all(&m);
    hint(&m, first[1], guess, 2);
    CHECK(issue(&m) == 2 && m.s.starved, "no more guesses than hint_bytes in flight");
    need(&m, 0, first[0], need0, 2);
    CHECK(issue(&m) == 2 && m.out[2]->offset == (1 << 20) + 5 * (uint64_t)EXPERT, "the need");
    CHECK(get_all(&m) == 2);
    sl_sched_leave(&m.s, 0);
    CHECK(holds(&m) && of(&m, first[1] + 1)->want == SL_WANT_HINTED);
    while (of(&m, first[1] + 1)->state != SL_PART_READY) {
        issue(&m);
        complete(&m, oldest(&m), INT32_MAX);
    }
    issue(&m); /* the second guess is on its way */
    CHECK(of(&m, first[1] + 2)->state == SL_PART_READING);
    CHECK(enter_driven(&m, 1, NULL) == SL_OK);
    need(&m, 1, first[1], need1, 2);
    CHECK(holds(&m) && of(&m, first[1] + 2)->want == SL_WANT_NOTHING, "it has expired");
    CHECK(get_all(&m) == 2);
    complete_all(&m);
    const sl_need_stats *u = &m.s.unit_stats[1];
    CHECK(u->guesses == 2 && u->guesses_right == 1 && u->hints == 2 && u->hints_useful == 1 &&
          u->hints_late == 0 && u->hits == 1 && u->miss_bytes == EXPERT);
    CHECK(u->wasted_bytes > 0 && u->wasted_bytes < EXPERT, "only what had gone out");

    test_case("hints take no slot that is wanted, and nothing that is held for them goes");
    sl_sched_leave(&m.s, 1);
    sl_sched_pass_end(&m.s);
    const uint32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK);
    need(&m, 0, first[0], all, 6);
    complete_all(&m); /* all six slots are needed */
    hint(&m, first[1], all, 3);
    CHECK(issue(&m) == 0 && holds(&m), "no slot for a guess");
    CHECK(get_all(&m) == 6);
    sim_close(&m);
}

static void far_hints(void)
{
    test_case("hints of several units: the nearest is read first, and a later one corrects an "
              "earlier of the same unit");
    sim m;
    uint32_t first[3];
    sim_new(&m);
    m.o.piece_bytes = 16 * KB;
    m.o.hint_bytes = 16 * KB;
    for (uint32_t u = 0; u < 3; u++)
        first[u] = expert_unit(&m, (uint64_t)u << 25, 8, EXPERT);
    sim_open(&m, 64 * KB + 10 * (uint64_t)EXPERT);
    const uint32_t near[1] = {1}, far[2] = {5, 6}, corrected[2] = {6, 7}, one[1] = {6};
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 3);
    whole_unit(&m, 0, first[0], near, 1);
    complete_all(&m);
    hint(&m, first[2], far, 2);
    hint(&m, first[1], near, 1);
    CHECK(issue(&m) == 1 && of(&m, first[1] + 1)->state == SL_PART_READING, "the nearest");
    while (of(&m, first[2] + 5)->state < SL_PART_READING) {
        complete(&m, oldest(&m), INT32_MAX);
        issue(&m);
    }
    CHECK(of(&m, first[1] + 1)->state == SL_PART_READY && holds(&m));
    whole_unit(&m, 1, first[1], near, 1);
    CHECK(of(&m, first[2] + 5)->want == SL_WANT_HINTED && of(&m, first[2] + 5)->guessed == 2);
    hint(&m, first[2], corrected, 2);
    CHECK(of(&m, first[2] + 5)->want == SL_WANT_NOTHING && holds(&m), "the farther guess is over");
    CHECK(of(&m, first[2] + 6)->want == SL_WANT_HINTED &&
          of(&m, first[2] + 7)->want == SL_WANT_HINTED);
    complete_all(&m);
    whole_unit(&m, 2, first[2], one, 1);
    const sl_need_stats *u = &m.s.unit_stats[2];
    CHECK(u->guesses == 3 && u->guesses_right == 1 && u->hints_useful == 1 && u->hits == 1,
          "a part that is guessed twice counts once");
    CHECK(u->wasted_bytes > 0 && m.s.unit_stats[1].hints_useful == 1);

    test_case("what was guessed from afar pays or does not by itself");
    sl_sched_pass_end(&m.s);
    for (uint32_t pass = 0; pass < 100; pass++) {
        const uint32_t right[1] = {pass % 7}, wrong[1] = {(pass + 3) % 7};
        sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 3);
        whole_unit(&m, 0, first[0], one, 1);
        hint(&m, first[2], wrong, 1);
        complete_all(&m);
        whole_unit(&m, 1, first[1], one, 1);
        hint(&m, first[2], right, 1);
        complete_all(&m);
        whole_unit(&m, 2, first[2], right, 1);
        sl_sched_pass_end(&m.s);
    }
    const sl_predict *near_by = &m.s.predict[2 * SL_HINT_UNITS], *from_afar = near_by + 1;
    CHECK(near_by->useful > near_by->wasted && from_afar->wasted > from_afar->useful);
    sim_close(&m);
}

static void rule(void)
{
    test_case(
        "a hint for the next unit pays while it is right as often as wrong, one for later ones "
        "while it is so twice as often");
    static const struct {
        uint32_t useful, wasted;
        bool near, far;
    } cases[] = {{0, 0, true, true},
                 {2, 2, true, false},
                 {4, 2, true, true},
                 {3, 2, true, false},
                 {2, 3, false, false}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_predict near = {0}, far = {0};
        sl_predict_learn(&near, cases[i].useful * KB, cases[i].wasted * KB);
        sl_predict_learn(&far, cases[i].useful * KB, cases[i].wasted * KB);
        CHECK(sl_predict_pays(&near, false) == cases[i].near, "case %u", i);
        CHECK(sl_predict_pays(&far, true) == cases[i].far, "case %u", i);
        uint32_t tries = 0;
        for (uint32_t pass = 0; pass < 2 * SL_PREDICT_RETRY; pass++)
            tries += sl_predict_pays(&far, true);
        CHECK(tries == (cases[i].far ? 2 * SL_PREDICT_RETRY : 2), "case %u: %u tries", i, tries);
    }
}

static void wrong_hints(void)
{
    test_case("a unit whose hints are always wrong stops reading for them, but for a try");
    sim m;
    uint32_t first[2];
    two_units(&m, 8, first);
    uint64_t late = 0;
    for (uint32_t pass = 0; pass < 200; pass++) {
        const uint32_t right[1] = {pass % 3}, wrong[2] = {3 + pass % 2, 5 + pass % 3};
        sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
        whole_unit(&m, 0, first[0], right, 1);
        hint(&m, first[1], wrong, 2);
        complete_all(&m);
        whole_unit(&m, 1, first[1], right, 1);
        sl_sched_pass_end(&m.s);
        if (pass == 99)
            late = m.s.unit_stats[1].guesses;
    }
    const uint64_t guesses = m.s.unit_stats[1].guesses;
    CHECK(guesses > late && guesses - late <= 2 * (100 / SL_PREDICT_RETRY + 1));

    test_case("and takes them again when they come true");
    for (uint32_t pass = 0; pass < 2000; pass++) {
        const uint32_t right[2] = {pass % 8, (pass + 3) % 8}, other = (pass * 5) % 8;
        sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
        whole_unit(&m, 0, first[0], &other, 1);
        hint(&m, first[1], right, 2);
        complete_all(&m);
        whole_unit(&m, 1, first[1], right, 2);
        sl_sched_pass_end(&m.s);
        if (pass == 1899)
            late = m.s.unit_stats[1].guesses;
    }
    CHECK(m.s.unit_stats[1].guesses - late == 200);
    sim_close(&m);
}

static void failing(void)
{
    test_case("a read that fails ends its pass; the next one reads again");
    sim m;
    uint32_t first[2], part, n;
    sl_err err = {0};
    two_units(&m, 4, first);
    const uint32_t experts[3] = {0, 1, 2};
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK);
    complete_all(&m);
    need(&m, 0, first[0], experts, 3);
    issue(&m);
    complete(&m, oldest(&m), -EIO);
    complete_all(&m);
    CHECK(sl_sched_parts(&m.s, &part, 1, &n, &err) == SL_EIO, "%s", err.text);
    CHECK(strstr(err.text, "fake.gguf") && strstr(err.text, "1048576"), "%s", err.text);
    sl_sched_pass_end(&m.s);
    CHECK(holds(&m));
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 2);
    whole_unit(&m, 0, first[0], experts, 3);
    CHECK(m.s.unit_stats[0].hits == 2);

    test_case("a guess that fails is nobody's business");
    hint(&m, first[1], experts, 1);
    issue(&m);
    complete(&m, oldest(&m), -EIO);
    complete_all(&m);
    CHECK(of(&m, first[1])->state == SL_PART_FAILED && holds(&m));
    whole_unit(&m, 1, first[1], experts, 1);
    sim_close(&m);
}

/* ---- random schedules ---- */

typedef struct walker {
    bool in_pass, asked, failing;
    uint32_t unit, first[4], n[4]; /* on-demand parts of each unit */
    uint32_t given[8], n_given, pass;
    const uint8_t *given_at[8];
    bool moving, fewer; /* a part is being copied; slots are being given up */
    sl_move move;
} walker;

static void random_plan(sim *m, walker *w, uint64_t *seed)
{
    sim_new(m);
    m->o.piece_bytes = 8 * KB << test_random(seed) % 3;
    m->o.in_flight_bytes = 16 * KB << test_random(seed) % 4;
    m->o.hint_bytes = 8 * KB << test_random(seed) % 4;
    m->o.policy = (sl_policy)(test_random(seed) % SL_POLICIES);
    m->o.pool_bytes = test_random(seed) % 3 * 64 * KB;
    uint64_t experts = 0;
    for (uint32_t u = 0; u < 4; u++) {
        w->n[u] = (uint32_t)(test_random(seed) % 9);
        uint64_t len = (8 + 4 * (test_random(seed) % 8)) * KB;
        w->first[u] = expert_unit(m, (uint64_t)u << 25, w->n[u], len);
        experts += w->n[u] * len;
    }
    sim_open(m, test_random(seed) % (experts + 128 * KB));
}

static bool given_right(sim *m, const walker *w)
{
    for (uint32_t i = 0; i < w->n_given; i++) {
        const sl_resident *r = of(m, w->given[i]);
        if (!CHECK(r->want == SL_WANT_GIVEN && r->data && r->data == w->given_at[i],
                   "a part in use was taken away"))
            return false;
        if (r->state == SL_PART_READY && !CHECK(part_right(m, r)))
            return false;
    }
    return true;
}

static void random_hint(sim *m, walker *w, uint64_t *seed)
{
    const uint32_t u = w->unit + (w->asked ? 1 : 0) + (uint32_t)(test_random(seed) % 3);
    uint32_t guess[8], n = 0;
    if (u >= 4)
        return;
    for (uint32_t e = 0; e < w->n[u]; e++)
        if (test_random(seed) % 2)
            guess[n++] = e;
    if (n)
        hint(m, w->first[u], guess, n);
}

static void random_need(sim *m, walker *w, uint64_t *seed)
{
    uint32_t experts[8], n = 0;
    for (uint32_t e = 0; e < w->n[w->unit]; e++)
        if (test_random(seed) % 3 == 0)
            experts[n++] = e;
    need(m, w->unit, w->first[w->unit], experts, n);
    w->asked = true;
    w->n_given = 0;
}

static void leave(sim *m, walker *w)
{
    w->n_given = 0;
    sl_sched_leave(&m->s, w->unit);
    w->asked = false;
    if (++w->unit == 4) {
        sl_sched_pass_end(&m->s);
        w->in_pass = false;
    }
}

static void walk(sim *m, walker *w, uint64_t *seed)
{
    if (!w->in_pass) {
        sl_sched_pass_begin(&m->s, w->pass++ % 4 ? SL_PASS_DECODE : SL_PASS_PREFILL, 9, 4);
        *w = (walker){.in_pass = true,
                      .pass = w->pass,
                      .failing = w->failing,
                      .moving = w->moving,
                      .fewer = w->fewer,
                      .move = w->move};
        for (uint32_t i = 0, u = 0; i < m->plan->n_parts; i++) {
            u = m->plan->parts[i].unit;
            if (m->plan->parts[i].kind == SL_PART_ON_DEMAND && !w->n[u]++)
                w->first[u] = i;
        }
        return;
    }
    sl_status st = SL_OK;
    if (!w->asked) {
        st = sl_sched_enter(&m->s, w->unit, NULL);
        if (st == SL_OK)
            random_need(m, w, seed);
    } else if (w->n_given && test_random(seed) % 2) {
        st = sl_sched_part_rest(&m->s, w->given[0], NULL);
    } else {
        st = sl_sched_parts(&m->s, w->given, 1 + (uint32_t)(test_random(seed) % 4), &w->n_given,
                            NULL);
        for (uint32_t i = 0; i < w->n_given; i++)
            w->given_at[i] = of(m, w->given[i])->data;
        if (st == SL_OK && (!w->n_given || test_random(seed) % 50 == 0))
            leave(m, w);
    }
    if (st == SL_OK || st == SL_EAGAIN)
        return;
    CHECK(w->failing, "no read has failed");
    sl_sched_pass_end(&m->s);
    w->in_pass = false;
    w->n_given = 0;
}

/* Half of the copy when it begins, the rest when it ends: the bytes must stay all the while. */
static void copy_half(const sl_move *move, bool second)
{
    const uint64_t half = move->bytes / 2;
    memcpy(move->to + (second ? half : 0), move->from + (second ? half : 0),
           second ? move->bytes - half : half);
}

static void end_move(sim *m, walker *w)
{
    const uint32_t i = m->s.pool.moving;
    copy_half(&w->move, true);
    sl_sched_move_end(&m->s);
    w->moving = false;
    CHECK(part_right(m, &m->s.resident[m->s.n_order + i]), "a part was spoilt on its way");
}

static void drain(sim *m, walker *w, bool keep)
{
    const sl_drain d = sl_sched_drain(&m->s, keep, &w->move);
    w->fewer = d != SL_DRAIN_DONE;
    w->moving = d == SL_DRAIN_MOVE;
    if (w->moving)
        copy_half(&w->move, false);
    for (uint32_t c = 0; c < m->s.pool.n_classes && d == SL_DRAIN_DONE; c++)
        for (uint32_t k = m->s.pool.class[c].n_slots; k < m->s.pool.class[c].n_most; k++)
            CHECK(m->s.pool.class[c].owner[k] == UINT32_MAX, "a slot that was given up is used");
}

static void random_resize(sim *m, walker *w, uint64_t *seed)
{
    sl_pool_plan slots;
    if (w->moving) {
        end_move(m, w);
    } else if (w->fewer) {
        drain(m, w, test_random(seed) % 4);
    } else {
        sl_pool_choose(m->plan, test_random(seed) % (m->split.pool_bytes + 1), &slots);
        sl_sched_pool_limit(&m->s, &slots);
        w->fewer = true;
    }
}

static bool step(sim *m, walker *w, uint64_t *seed)
{
    switch (test_random(seed) % 10) {
    case 8:
    case 9:
        random_resize(m, w, seed);
        break;
    case 0:
    case 1:
        issue(m);
        break;
    case 2:
        if (w->in_pass)
            random_hint(m, w, seed);
        break;
    case 3:
    case 4:
        walk(m, w, seed);
        break;
    default:
        if (m->n_out) {
            const bool fails = test_random(seed) % 100 == 0;
            w->failing |= fails;
            complete(m, (uint32_t)(test_random(seed) % m->n_out), fails ? -EIO : INT32_MAX);
        }
    }
    return holds(m) && given_right(m, w);
}

/* From any state a pass comes to its end. */
static void finish(sim *m, walker *w, uint64_t *seed)
{
    for (uint32_t i = 0; i < 2000; i++) {
        issue(m);
        if (m->n_out)
            complete(m, (uint32_t)(test_random(seed) % m->n_out), INT32_MAX);
        if (w->moving || w->fewer)
            random_resize(m, w, seed);
        const bool was = w->in_pass;
        walk(m, w, seed);
        if (was && !w->in_pass && i > 1000)
            return;
    }
    CHECK(false, "stuck");
}

static void random_schedules(uint64_t n)
{
    for (uint64_t run = 1; run <= n; run++) {
        uint64_t seed = run * 0x9e3779b97f4a7c15u;
        sim m;
        walker w = {0};
        test_case("schedule %llu", (unsigned long long)run);
        random_plan(&m, &w, &seed);
        bool ok = m.open;
        for (uint32_t i = 0; i < 125 && ok; i++)
            ok = step(&m, &w, &seed);
        if (ok && run % 16 == 0)
            finish(&m, &w, &seed);
        sim_close(&m);
    }
}

/* ---- with threads and engines ---- */

enum { UNITS = 5, PER_UNIT = 12, LEN = 40000 };

static void file_plan(fixture *x, uint32_t first[UNITS])
{
    *x = (fixture){0};
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        x->file[f] = fixture_file(x->path[f], sizeof x->path[f], f, 3 << 20);
    x->plan = sl_plan_new_files(x->file, FIXTURE_FILES);
    for (uint32_t u = 0; u < UNITS; u++) {
        uint32_t unit = sl_plan_unit(x->plan, "u");
        for (uint32_t e = 0; e < PER_UNIT; e++) {
            const uint64_t at = (uint64_t)(u * PER_UNIT + e) * LEN + 77;
            uint32_t part = sl_plan_part(x->plan, unit, SL_PART_ON_DEMAND);
            first[u] = e ? first[u] : part;
            sl_plan_extent(x->plan, part, (sl_extent){0, at, LEN});
            sl_plan_part_stage(x->plan, part);
            sl_plan_extent(x->plan, part, (sl_extent){1, at + 5, LEN / 2});
        }
    }
}

/* A unit with random needs; true: all came, with the right bytes. */
static bool unit_of(const fixture *x, sl_stream *s, uint32_t unit, uint32_t first, uint64_t *seed,
                    sl_err *err)
{
    uint32_t parts[PER_UNIT], rows[PER_UNIT], got[4], n = 0, n_got, total = 0;
    uint64_t wrong = 0;
    for (uint32_t e = 0; e < PER_UNIT; e++)
        if (test_random(seed) % 3 == 0) {
            parts[n] = first + e;
            rows[n++] = 1;
        }
    if (sl_unit_enter(s, unit, err) || sl_parts_need(s, parts, rows, n, err))
        return false;
    do {
        if (sl_parts_next(s, got, 4, &n_got, err))
            return false;
        for (uint32_t i = 0; i < n_got; i++, total++) {
            const sl_place *p = x->plan->parts[got[i]].places;
            for (uint32_t e = 0; e < 2; e++) {
                const sl_extent at = p[e].extent;
                if (e && sl_part_rest(s, got[i], err))
                    return false;
                wrong += fixture_wrong(at.file, at.offset, sl_part_data(s, got[i], e), at.len);
            }
        }
    } while (n_got);
    sl_unit_leave(s, unit);
    return CHECK(total == n && wrong == 0, "%u of %u parts, %llu wrong bytes", total, n,
                 (unsigned long long)wrong);
}

static void engines(void)
{
    static const sl_io io[] = {SL_IO_DIRECT, SL_IO_PREAD, SL_IO_MAPPED, SL_IO_AUTO};
    fixture x;
    uint32_t first[UNITS], guess[PER_UNIT];
    file_plan(&x, first);
    for (uint32_t run = 0; run < 12; run++) {
        sl_stream_options o = sl_stream_defaults();
        sl_err err = {0};
        uint64_t seed = run + 1;
        sl_stream *s = NULL;
        test_case("needs and hints with threads, run %u", run);
        o.io = io[run % 4];
        o.memory_bytes = fixture_floor(&x, &o) + run / 4 * 2500000;
        if (run == 9)
            o.fail_read = 40, o.fail_errno = EIO;
        if (!CHECK(sl_stream_open(x.plan, &o, &s, &err) == SL_OK, "%s", err.text))
            break;
        CHECK(sl_split_all_stay(sl_stream_split_of(s)) == (run >= 8));
        uint32_t failed = 0;
        for (uint32_t pass = 0; pass < 40; pass++) {
            sl_pass_begin(s, pass % 5 ? SL_PASS_DECODE : SL_PASS_PREFILL, 3, UNITS, NULL);
            bool ok = true;
            for (uint32_t u = 0; ok && u < UNITS; u++) {
                for (uint32_t e = 0; e < PER_UNIT && u + 1 < UNITS; e++)
                    guess[e] = first[u + 1] + e;
                if (u + 1 < UNITS)
                    sl_parts_hint(s, guess, (uint32_t)(test_random(&seed) % PER_UNIT));
                ok = unit_of(&x, s, u, first[u], &seed, &err);
            }
            failed += !ok;
            CHECK(ok || (run == 9 && err.code == SL_EIO), "%s", err.text);
            sl_pass_end(s);
        }
        CHECK(failed <= (run == 9), "one pass at most");
        sl_stream_close(&s);
    }
    fixture_close(&x);
}

/* With an argument: so many random schedules, 100000 in `make test-all`. */
int main(int argc, char **argv)
{
    shares();
    promised();
    keys();
    hits_and_misses();
    first_stage();
    small_pool();
    who_goes();
    probation();
    hints();
    far_hints();
    rule();
    wrong_hints();
    failing();
    engines();
    random_schedules(argc > 1 ? strtoull(argv[1], NULL, 10) : 10000);
    return test_end();
}
