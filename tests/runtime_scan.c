/* What this proves: verify's scan finds a value that is not finite in every type and every place
 * where one can be, names the right block, and agrees with what the kernels make of random blocks.
 * The writers of files leave either a whole file or none. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kernels/kernels.h"
#include "../runtime/safetensors_out.h"
#include "../runtime/scan.h"
#include "lib_test.h"

enum { BLOCKS = 7, LARGEST = 300 };

/* Where a block holds what; from ggml-common.h, not from scan.c. */
static const struct {
    sl_dtype type;
    unsigned at;
    unsigned len;
    unsigned char bad[8];
} places[] = {
    {SL_F32, 0, 4, {0, 0, 0xc0, 0x7f}},
    {SL_F32, 0, 4, {0, 0, 0x80, 0xff}},
    {SL_F64, 0, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}},
    {SL_F16, 0, 2, {0, 0x7c}},
    {SL_F16, 0, 2, {1, 0xfc}},
    {SL_BF16, 0, 2, {0x80, 0x7f}},
    {SL_Q4_0, 0, 2, {0, 0x7c}},
    {SL_Q4_1, 0, 2, {0, 0x7c}},
    {SL_Q4_1, 2, 2, {0, 0x7e}},
    {SL_Q5_0, 0, 2, {0, 0x7c}},
    {SL_Q5_1, 2, 2, {0, 0xfc}},
    {SL_Q8_0, 0, 2, {0, 0x7e}},
    {SL_Q2_K, 80, 2, {0, 0x7c}},
    {SL_Q2_K, 82, 2, {0, 0x7c}},
    {SL_Q3_K, 108, 2, {0, 0x7c}},
    {SL_Q4_K, 0, 2, {0, 0x7c}},
    {SL_Q4_K, 2, 2, {0, 0x7c}},
    {SL_Q5_K, 0, 2, {0, 0x7c}},
    {SL_Q5_K, 2, 2, {0, 0x7c}},
    {SL_Q6_K, 208, 2, {0, 0x7c}},
    {SL_Q8_K, 0, 4, {0, 0, 0x80, 0x7f}},
    {SL_IQ1_S, 0, 2, {0, 0x7c}},
    {SL_IQ1_M, 48, 8, {0, 0, 0, 0, 0, 0xc0, 0, 0x70}},
    {SL_IQ2_XXS, 0, 2, {0, 0x7c}},
    {SL_IQ2_XS, 0, 2, {0, 0x7c}},
    {SL_IQ2_S, 0, 2, {0, 0x7c}},
    {SL_IQ3_XXS, 0, 2, {0, 0x7c}},
    {SL_IQ3_S, 0, 2, {0, 0x7c}},
    {SL_IQ4_NL, 0, 2, {0, 0x7c}},
    {SL_IQ4_XS, 0, 2, {0, 0x7c}},
    {SL_TQ1_0, 52, 2, {0, 0x7c}},
    {SL_TQ2_0, 64, 2, {0, 0x7c}},
    {SL_MXFP4, 0, 1, {0xff}},
    {SL_NVFP4, 3, 1, {0x7f}},
    {SL_F8_E4M3, 0, 1, {0x7f}},
    {SL_F8_E4M3, 0, 1, {0xff}},
    {SL_F8_E5M2, 0, 1, {0x7c}},
    {SL_F8_E8M0, 0, 1, {0xff}},
    {SL_C64, 4, 4, {0, 0, 0x80, 0x7f}},
};

static void each_place(void)
{
    static unsigned char data[BLOCKS * LARGEST];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const sl_dtype_info *about = sl_dtype_about(places[i].type);
        test_case("%s at %u", about->name, places[i].at);
        if (!CHECK(about->block_bytes <= LARGEST, "%u bytes", about->block_bytes))
            continue;
        memset(data, 0, sizeof data);
        CHECK(sl_scan_blocks(places[i].type, data, BLOCKS) == BLOCKS, "zeros");
        for (uint64_t block = 0; block < BLOCKS; block++) {
            unsigned char *at = data + block * about->block_bytes + places[i].at;
            memcpy(at, places[i].bad, places[i].len);
            uint64_t found = sl_scan_blocks(places[i].type, data, BLOCKS);
            CHECK(found == block, "found in %d, is in %d", (int)found, (int)block);
            memset(at, 0, places[i].len);
        }
    }
}

/* A block is bad exactly when a value that the kernels make of it is not finite. */
static void against_kernels(void)
{
    static const struct {
        sl_dtype stored;
        sl_weight kernel;
    } type[] = {
        {SL_F32, SL_W_F32},     {SL_F16, SL_W_F16},       {SL_BF16, SL_W_BF16},
        {SL_Q8_0, SL_W_Q8_0},   {SL_Q4_0, SL_W_Q4_0},     {SL_Q4_1, SL_W_Q4_1},
        {SL_Q5_0, SL_W_Q5_0},   {SL_Q5_1, SL_W_Q5_1},     {SL_Q4_K, SL_W_Q4_K},
        {SL_Q5_K, SL_W_Q5_K},   {SL_Q6_K, SL_W_Q6_K},     {SL_Q2_K, SL_W_Q2_K},
        {SL_Q3_K, SL_W_Q3_K},   {SL_IQ4_NL, SL_W_IQ4_NL}, {SL_IQ4_XS, SL_W_IQ4_XS},
        {SL_TQ1_0, SL_W_TQ1_0}, {SL_TQ2_0, SL_W_TQ2_0},   {SL_Q1_0, SL_W_Q1_0},
        {SL_Q2_0, SL_W_Q2_0},
    };
    sl_kernels k;
    unsigned char data[LARGEST];
    float y[256];
    uint64_t state = 5;
    sl_kernels_init(&k, SL_CPU_SCALAR);
    for (size_t t = 0; t < sizeof type / sizeof type[0]; t++) {
        const sl_dtype_info *about = sl_dtype_about(type[t].stored);
        unsigned n_bad = 0;
        test_case("random %s", about->name);
        for (int round = 0; round < 4000; round++) {
            for (uint32_t i = 0; i < about->block_bytes; i++)
                data[i] = (unsigned char)(test_random(&state) >> 40);
            k.dequantize[type[t].kernel](data, y, about->block_values, NULL);
            bool bad = false;
            for (uint32_t i = 0; i < about->block_values; i++)
                bad |= !isfinite(y[i]);
            n_bad += bad;
            CHECK((sl_scan_blocks(type[t].stored, data, 1) == 0) == bad, "round %d", round);
        }
        CHECK(n_bad > 0, "no bad block in 4000");
    }
}

static void files(void)
{
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char path[512], name[512];
    sl_matrix_out m[2] = {{"logits", 2, 3, 0}, {"hidden.0", 1, 1, 0}};
    float rows[6] = {1, 2, 3, 4, 5, 6};
    sl_safetensors_out s;
    sl_err err = {0};
    struct stat st;
    size_t len = 0;
    test_case("files");
    snprintf(path, sizeof path, "%s/runtime_scan-%d", folder, (int)getpid());
    CHECK(!sl_safetensors_out_open(&s, path, m, 2, &err), "%s", err.text);
    snprintf(name, sizeof name, "%s", s.file.temporary);
    CHECK(stat(path, &st) < 0 && errno == ENOENT, "there before it is whole");
    CHECK(!sl_safetensors_out_rows(&s, 0, 1, 1, rows + 3, &err), "%s", err.text);
    CHECK(!sl_safetensors_out_rows(&s, 1, 0, 1, rows, &err), "%s", err.text);
    CHECK(!sl_safetensors_out_rows(&s, 0, 0, 1, rows, &err), "%s", err.text);
    CHECK(sl_safetensors_out_rows(&s, 0, 1, 2, rows, NULL) == SL_EINVAL, "rows outside");
    CHECK(!sl_safetensors_out_commit(&s, &err), "%s", err.text);
    char *text = test_read(path, &len);
    size_t header = text ? (unsigned char)text[0] : 0;
    CHECK(text && len == 8 + header + 28 && header % 8 == 0, "%d bytes", (int)len);
    if (text && len == 8 + header + 28)
        CHECK(!memcmp(text + 8 + header, rows, 24) && !memcmp(text + 8 + header + 24, rows, 4),
              "%s", text + 8);
    free(text);
    CHECK(stat(name, &st) < 0, "%s is left", name);
    CHECK(!sl_safetensors_out_open(&s, path, m, 1, &err), "%s", err.text);
    snprintf(name, sizeof name, "%s", s.file.temporary);
    sl_safetensors_out_abort(&s);
    CHECK(stat(name, &st) < 0, "%s is left", name);
    CHECK(stat(path, &st) == 0 && (size_t)st.st_size == len, "the old file went");
    unlink(path);
}

int main(void)
{
    each_place();
    against_kernels();
    files();
    return test_end();
}
