/* Proves: aligned reads and places in the slot are right for any extents; the memory is split so
 * that it never exceeds the budget, the floor works, and streamed bytes are spread over the pass.
 */
#include "lib_stream.h"

enum { MAX_PARTS = 600 };

static sl_file fake[2];

static sl_plan *plan_new(void)
{
    static char paths[2][8] = {"a.gguf", "b.gguf"};
    sl_file *files[2] = {&fake[0], &fake[1]};
    for (uint32_t i = 0; i < 2; i++)
        fake[i] = (sl_file){.path = paths[i], .fd = -1, .size = (uint64_t)1 << 40};
    return sl_plan_new_files(files, 2);
}

/* ---- layout ---- */

static bool inside(const sl_part *part, const sl_place *at)
{
    for (uint32_t i = 0; i < part->n_spans; i++) {
        const sl_span *s = &part->spans[i];
        if (s->file == at->extent.file && s->offset <= at->extent.offset &&
            at->extent.offset + at->extent.len <= s->offset + s->need &&
            at->at - s->at == at->extent.offset - s->offset)
            return true;
    }
    return at->extent.len == 0;
}

static void layout_check(const sl_plan *p, const sl_part *part)
{
    uint64_t end = 0, bytes = 0;
    for (uint32_t i = 0; i < part->n_spans; i++) {
        const sl_span *s = &part->spans[i], *next = s + 1;
        CHECK(s->offset % p->align == 0 && s->len % p->align == 0 && s->at % p->align == 0);
        CHECK(s->need <= s->len && s->len - s->need < p->align && s->need > 0);
        CHECK(s->at == end);
        end += s->len;
        if (i + 1 < part->n_spans && s->file == next->file)
            CHECK(s->offset + s->need + SL_SPAN_GAP - p->align < next->offset + p->align,
                  "near extents are one span");
    }
    CHECK(part->slot_bytes == end);
    for (uint32_t i = 0; i < part->n_places; i++) {
        CHECK(inside(part, &part->places[i]), "extent %u", i);
        bytes += part->places[i].extent.len;
    }
    CHECK(part->len_bytes == bytes);
}

static void layouts(void)
{
    uint64_t seed = 3;
    for (uint32_t run = 0; run < 500; run++) {
        test_case("layout %u", run);
        sl_plan *p = plan_new();
        uint32_t part = sl_plan_part(p, sl_plan_unit(p, "u"), SL_PART_ALWAYS);
        for (uint64_t n = test_random(&seed) % 12; n > 0; n--) {
            sl_extent e = {test_random(&seed) % 2, test_random(&seed) % 1000000,
                           test_random(&seed) % 5 ? test_random(&seed) % 100000 : 0};
            sl_plan_extent(p, part, e);
            layout_check(p, &p->parts[part]);
        }
        CHECK(p->err.code == SL_OK);
        sl_plan_free(&p);
    }
}

static void merging(void)
{
    test_case("merging");
    sl_plan *p = plan_new();
    uint32_t part = sl_plan_part(p, sl_plan_unit(p, "u"), SL_PART_ALWAYS);
    sl_plan_extent(p, part, (sl_extent){0, 1 << 20, 1000});
    sl_plan_extent(p, part, (sl_extent){0, (1 << 20) + 1000 + SL_SPAN_GAP - 1, 1000});
    CHECK(p->parts[part].n_spans == 1, "a gap of 64 KiB less one byte");
    sl_plan_extent(p, part, (sl_extent){0, (1 << 20) + 2000 + 2 * SL_SPAN_GAP, 1000});
    CHECK(p->parts[part].n_spans == 2, "a gap of 64 KiB");
    sl_plan_extent(p, part, (sl_extent){1, (1 << 20) + 500, 1000});
    CHECK(p->parts[part].n_spans == 3, "another file");
    sl_part_view v = sl_plan_part_view(p, part);
    CHECK(v.n_extents == 4 && v.len_bytes == 4000 && v.kind == SL_PART_ALWAYS);
    CHECK(sl_plan_memory_bytes(p) >= sizeof *p);
    sl_plan_free(&p);
    CHECK(p == NULL);
}

static void order(void)
{
    test_case("execution order");
    uint32_t order[4], first[4];
    sl_plan *p = plan_new();
    for (uint32_t u = 0; u < 3; u++)
        sl_plan_unit(p, "u");
    sl_plan_part(p, 2, SL_PART_ALWAYS);
    sl_plan_part(p, 0, SL_PART_ALWAYS);
    sl_plan_part(p, 2, SL_PART_ON_DEMAND);
    sl_plan_part(p, 2, SL_PART_ALWAYS);
    sl_plan_part(p, 0, SL_PART_ALWAYS);
    sl_plan_order(p, order, first);
    CHECK(sl_plan_always_count(p) == 4 && sl_plan_part_count(p) == 5 && sl_plan_unit_count(p) == 3);
    CHECK(order[0] == 1 && order[1] == 4 && order[2] == 0 && order[3] == 3);
    CHECK(first[0] == 0 && first[1] == 2 && first[2] == 2 && first[3] == 4);
    sl_plan_free(&p);
}

static void mistakes(void)
{
    static const struct {
        sl_extent e;
        const char *says;
    } bad[] = {{{2, 0, 1}, "no such file"},
               {{0, (uint64_t)1 << 40, 1}, "a.gguf: bytes 1099511627776+1 lie outside"},
               {{1, UINT64_MAX, 2}, "b.gguf"}};
    sl_stream_options o = sl_stream_defaults();
    sl_split split;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_case("mistake %zu", i);
        sl_err err = {0};
        sl_plan *p = plan_new();
        sl_plan_extent(p, sl_plan_part(p, sl_plan_unit(p, "u"), SL_PART_ALWAYS), bad[i].e);
        CHECK(sl_stream_split(p, &o, &split, &err) == SL_EINVAL && strstr(err.text, bad[i].says),
              "%s", err.text);
        sl_plan_free(&p);
    }
    test_case("mistakes");
    sl_plan *p = plan_new();
    sl_plan_part(p, 0, SL_PART_ALWAYS);
    CHECK(p->err.code == SL_EINVAL && strstr(p->err.text, "unit 0"), "%s", p->err.text);
    sl_plan_free(&p);
    p = plan_new();
    sl_plan_row_table(p, "embd", (sl_extent){0, 0, 100}, 30);
    CHECK(p->err.code == SL_EINVAL && strstr(p->err.text, "embd"), "%s", p->err.text);
    sl_stream *s;
    sl_err err = {0};
    CHECK(sl_stream_open(p, &o, &s, &err) == SL_EINVAL && s == NULL, "%s", err.text);
    sl_plan_free(&p);
    sl_io io;
    CHECK(sl_io_parse("mapped", &io) && io == SL_IO_MAPPED && !sl_io_parse("mmap", &io) &&
          !sl_io_parse("", &io) && strcmp(sl_io_name(SL_IO_PREAD), "pread") == 0);
}

/* ---- split ---- */

static uint64_t total_of(const sl_plan *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        sum += p->parts[i].kind == SL_PART_ALWAYS ? p->parts[i].slot_bytes : 0;
    return sum;
}

static uint64_t largest_streamed_unit(const sl_plan *p, const uint8_t *pinned)
{
    uint64_t bytes[MAX_PARTS] = {0}, most = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].kind == SL_PART_ALWAYS && !pinned[i])
            bytes[p->parts[i].unit] += p->parts[i].slot_bytes;
    for (uint32_t u = 0; u < p->n_units; u++)
        most = bytes[u] > most ? bytes[u] : most;
    return most;
}

static sl_split split_check(const sl_plan *p, const sl_stream_options *o, uint8_t *pinned)
{
    sl_split s;
    sl_err err = {0};
    sl_status st = sl_split_choose(p, o, &s, pinned, NULL, &err);
    if (o->memory_bytes < s.floor_bytes) {
        CHECK(st == SL_EBUDGET && err.code == SL_EBUDGET && strstr(err.text, "at least"), "%s",
              err.text);
        return s;
    }
    CHECK(st == SL_OK, "%s", err.text);
    CHECK(s.io_bytes + s.rows_bytes + s.ring_bytes + s.pinned_bytes <= o->memory_bytes,
          "%llu bytes", (unsigned long long)o->memory_bytes);
    uint64_t pinned_bytes = 0, streamed = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        if (p->parts[i].kind != SL_PART_ALWAYS)
            continue;
        pinned_bytes += pinned[i] ? p->parts[i].slot_bytes : 0;
        streamed += pinned[i] ? 0 : p->parts[i].len_bytes;
        n += pinned[i];
    }
    CHECK(s.pinned_bytes == pinned_bytes && s.streamed_bytes == streamed && s.pinned_parts == n);
    CHECK(s.pinned_parts + s.streamed_parts == sl_plan_always_count(p));
    CHECK(s.weights_bytes == sl_plan_always_bytes(p));
    CHECK(s.ring_bytes >= 2 * largest_streamed_unit(p, pinned));
    CHECK((s.streamed_parts == 0) == (s.ring_bytes == 0));
    CHECK(s.streamed_parts == 0 || total_of(p) - s.pinned_bytes > s.ring_bytes,
          "a ring that could hold all that streams is a mistake");
    return s;
}

static sl_plan *random_plan(uint64_t *seed)
{
    sl_plan *p = plan_new();
    uint64_t at = 1000, scale = (uint64_t)1 << (10 + test_random(seed) % 15);
    for (uint64_t n = test_random(seed) % 60 + 1; n > 0; n--) {
        uint32_t u = sl_plan_unit(p, "u");
        for (uint64_t k = test_random(seed) % 4; k > 0; k--) {
            uint64_t len = test_random(seed) % scale * (test_random(seed) % 30 ? 1 : 20);
            sl_plan_extent(
                p, sl_plan_part(p, u, test_random(seed) % 9 ? SL_PART_ALWAYS : SL_PART_ON_DEMAND),
                (sl_extent){0, at, len});
            at += len + 13;
        }
    }
    if (test_random(seed) % 2)
        sl_plan_row_table(p, "rows", (sl_extent){1, 3, 777 * 1000}, 777);
    return p;
}

static void random_splits(void)
{
    uint64_t seed = 11;
    uint8_t pinned[MAX_PARTS];
    for (uint32_t run = 0; run < 300; run++) {
        test_case("split %u", run);
        sl_plan *p = random_plan(&seed);
        sl_stream_options o = sl_stream_defaults();
        o.io = (sl_io)(test_random(&seed) % 5);
        sl_split s = split_check(p, &o, pinned);
        uint64_t floor = s.floor_bytes, total = total_of(p);
        o.memory_bytes = floor - 1;
        split_check(p, &o, pinned);
        for (uint32_t k = 0; k < 10; k++) {
            o.memory_bytes = floor + (k ? test_random(&seed) % (total + 1) : 0);
            o.ring_bytes = test_random(&seed) % 2 ? 0 : test_random(&seed) % (total + 1);
            s = split_check(p, &o, pinned);
            CHECK(s.floor_bytes == floor || o.io == SL_IO_AUTO);
        }
        o.ring_bytes = 0;
        o.memory_bytes = floor + total + total / 200 + (1 << 20);
        s = split_check(p, &o, pinned);
        CHECK(s.streamed_parts == 0);
        CHECK(o.io != SL_IO_AUTO || s.io == SL_IO_MAPPED);
        sl_plan_free(&p);
    }
}

/* Up to every point of the pass, about the same share of the bytes is streamed. */
static void spread(void)
{
    uint8_t pinned[MAX_PARTS];
    const uint64_t mib = 1 << 20;
    for (uint64_t percent = 10; percent < 100; percent += 10) {
        test_case("%llu %% of the memory", (unsigned long long)percent);
        sl_plan *p = plan_new();
        uint64_t at = 0, largest = 0, seed = 5;
        for (uint32_t i = 0; i < 400; i++) {
            uint64_t len = (test_random(&seed) % 30 + 2) * mib;
            largest = len > largest ? len : largest;
            uint32_t u = sl_plan_unit(p, "u");
            sl_plan_extent(p, sl_plan_part(p, u, SL_PART_ALWAYS), (sl_extent){0, at, len});
            at += len;
        }
        sl_stream_options o = sl_stream_defaults();
        o.memory_bytes = at * percent / 100;
        sl_split s = split_check(p, &o, pinned);
        CHECK(s.io == SL_IO_DIRECT);
        /* a sixteenth, 4 to 64 MiB; or twice the largest streamed unit (31 MiB at most here) */
        const uint64_t sixteenth = o.memory_bytes / 17 < 63 * mib ? o.memory_bytes / 17 : 63 * mib;
        CHECK(s.ring_bytes >= sixteenth && s.ring_bytes <= 64 * mib, "ring %llu",
              (unsigned long long)s.ring_bytes);
        CHECK(s.pinned_bytes + s.ring_bytes + 8 * mib + o.memory_bytes / 300 >= o.memory_bytes,
              "nothing is left over");
        double share = (double)s.streamed_bytes / (double)s.weights_bytes, seen = 0, streamed = 0;
        double off = 0;
        for (uint32_t i = 0; i < 400; i++) {
            seen += (double)p->parts[i].len_bytes;
            streamed += pinned[i] ? 0 : (double)p->parts[i].len_bytes;
            double d = streamed - share * seen;
            off = d > off ? d : -d > off ? -d : off;
        }
        CHECK(off <= 3 * (double)largest, "off by %.0f MiB", off / (double)mib);
        sl_plan_free(&p);
    }
}

static void giant(void)
{
    test_case("a giant unit is pinned rather than doubled");
    uint8_t pinned[MAX_PARTS];
    const uint64_t mib = 1 << 20;
    sl_plan *p = plan_new();
    uint64_t at = 0;
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t len = i == 99 ? 600 * mib : 16 * mib;
        uint32_t u = sl_plan_unit(p, "u");
        sl_plan_extent(p, sl_plan_part(p, u, SL_PART_ALWAYS), (sl_extent){0, at, len});
        at += len;
    }
    sl_stream_options o = sl_stream_defaults();
    o.memory_bytes = 1500 * mib;
    sl_split s = split_check(p, &o, pinned);
    CHECK(pinned[99] && s.ring_bytes < 100 * mib, "ring of %llu", (unsigned long long)s.ring_bytes);
    CHECK(s.floor_bytes < 640 * mib, "floor of %llu", (unsigned long long)s.floor_bytes);
    sl_plan_free(&p);
}

int main(void)
{
    layouts();
    merging();
    order();
    mistakes();
    random_splits();
    spread();
    giant();
    return test_end();
}
