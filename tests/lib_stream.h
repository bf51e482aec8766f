/* Files with known bytes, and a plan over them, for the tests of stream/. All static: a test of
 * another layer does not link that layer. */
#ifndef SL_LIB_STREAM_H
#define SL_LIB_STREAM_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib_test.h"
#include "../stream/plan.h"
#include "../stream/sched.h"

enum { FIXTURE_FILES = 2, FIXTURE_ROWS = 600, FIXTURE_ROW_BYTES = 1234 };

typedef struct fixture {
    char path[FIXTURE_FILES][256];
    sl_file *file[FIXTURE_FILES];
    sl_plan *plan;
    uint32_t table;
} fixture;

/* Eight bytes of a file, as they lie there on a little-endian machine. */
static inline uint64_t fixture_word(uint32_t file, uint64_t offset)
{
    uint64_t x = (offset / 8 + ((uint64_t)file << 40) + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return x * 0xbf58476d1ce4e5b9u;
}

static inline uint8_t fixture_byte(uint32_t file, uint64_t offset)
{
    return (uint8_t)(fixture_word(file, offset) >> (8 * (offset % 8)));
}

/* Bytes of a file that are not what they should be. */
static inline uint64_t fixture_wrong(uint32_t file, uint64_t offset, const uint8_t *data,
                                     uint64_t len)
{
    uint64_t wrong = 0, word;
    for (uint64_t i = 0; i < len;) {
        if ((offset + i) % 8 == 0 && len - i >= 8) {
            memcpy(&word, data + i, 8);
            wrong += word == fixture_word(file, offset + i) ? 0 : 8;
            i += 8;
        } else {
            wrong += data[i] != fixture_byte(file, offset + i);
            i++;
        }
    }
    return wrong;
}

static inline const char *fixture_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && folder[0] ? folder : "/tmp";
}

static inline sl_file *fixture_file(char *path, size_t cap, uint32_t file, uint64_t size)
{
    snprintf(path, cap, "%s/sluice-test-XXXXXX", fixture_folder());
    int fd = mkstemp(path);
    uint8_t *bytes = malloc(size + 1);
    sl_file *f = NULL;
    sl_err err = {0};
    for (uint64_t i = 0; bytes && i < size; i++)
        bytes[i] = fixture_byte(file, i);
    bool ok = fd >= 0 && bytes && write(fd, bytes, size) == (ssize_t)size;
    free(bytes);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    CHECK(ok && sl_file_open(path, &f, &err) == SL_OK, "%s", err.text);
    return f;
}

/* n_units units of one to three parts over both files, in odd places and of odd lengths up to
 * largest; the last extent ends with the file. */
static inline void fixture_plan(fixture *x, uint32_t n_units, uint64_t largest, uint64_t *seed)
{
    uint64_t at[FIXTURE_FILES] = {24, (uint64_t)FIXTURE_ROWS * FIXTURE_ROW_BYTES + 77};
    x->plan = sl_plan_new_files(x->file, FIXTURE_FILES);
    for (uint32_t u = 0; u < n_units; u++) {
        char name[16];
        snprintf(name, sizeof name, "unit %u", u);
        uint32_t unit = sl_plan_unit(x->plan, name);
        for (uint64_t p = test_random(seed) % 3 + 1; p > 0; p--) {
            uint32_t part = sl_plan_part(x->plan, unit, SL_PART_ALWAYS);
            for (uint64_t e = test_random(seed) % 3 + 1; e > 0; e--) {
                uint32_t f = test_random(seed) % FIXTURE_FILES;
                uint64_t len = test_random(seed) % largest + 1;
                uint64_t gap = test_random(seed) % 3 ? test_random(seed) % 100 : 70000;
                if (at[f] + gap + len > x->file[f]->size) {
                    at[f] = 24;
                    gap = 0;
                }
                sl_plan_extent(x->plan, part, (sl_extent){f, at[f] + gap, len});
                at[f] += gap + len;
            }
        }
    }
    uint32_t last = sl_plan_part(x->plan, n_units - 1, SL_PART_ALWAYS);
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        sl_plan_extent(x->plan, last, (sl_extent){f, x->file[f]->size - 1001, 1001});
    x->table = sl_plan_row_table(x->plan, "rows",
                                 (sl_extent){1, 77, (uint64_t)FIXTURE_ROWS * FIXTURE_ROW_BYTES},
                                 FIXTURE_ROW_BYTES);
    CHECK(x->plan->err.code == SL_OK, "%s", x->plan->err.text);
}

static inline void fixture_open(fixture *x, uint64_t file_bytes, uint32_t n_units, uint64_t largest)
{
    uint64_t seed = 42;
    *x = (fixture){0};
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        x->file[f] = fixture_file(x->path[f], sizeof x->path[f], f, file_bytes + 311 * f + 5);
    if (!x->file[0] || !x->file[1])
        exit(test_end());
    fixture_plan(x, n_units, largest, &seed);
}

static inline void fixture_close(fixture *x)
{
    sl_plan_free(&x->plan);
    for (uint32_t f = 0; f < FIXTURE_FILES; f++) {
        sl_file_close(&x->file[f]);
        unlink(x->path[f]);
    }
}

/* The least memory that works, and the least that holds everything. */
static inline uint64_t fixture_floor(const fixture *x, const sl_stream_options *o)
{
    sl_split split;
    sl_stream_options none = *o;
    none.memory_bytes = 0;
    sl_stream_split(x->plan, &none, &split, NULL);
    return split.floor_bytes;
}

static inline uint64_t fixture_all(const fixture *x)
{
    uint64_t sum = 4 << 20;
    for (uint32_t i = 0; i < sl_plan_part_count(x->plan); i++)
        sum += sl_plan_part_view(x->plan, i).slot_bytes;
    return sum + sum / 128;
}

/* Checks every byte of the entered unit. */
static inline bool fixture_unit_right(const fixture *x, const sl_stream *s, uint32_t unit)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < x->plan->n_parts; i++) {
        const sl_part *part = &x->plan->parts[i];
        for (uint32_t e = 0; part->unit == unit && e < part->n_places; e++) {
            sl_extent at = part->places[e].extent;
            wrong += fixture_wrong(at.file, at.offset, sl_part_data(s, i, e), at.len);
        }
    }
    return wrong == 0;
}

#endif
