#include "safetensors_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY = 160 }; /* bytes of one tensor's line in the header, at most */

/* The header's text, padded with blanks so that the data starts at a multiple of 8. */
static char *make_header(const sl_matrix_out *m, uint32_t n, uint64_t *len)
{
    uint64_t cap = (uint64_t)n * ENTRY + 16, used = 0, at = 0;
    char *text = malloc(cap);
    if (!text)
        return NULL;
    text[used++] = '{';
    for (uint32_t i = 0; i < n; i++) {
        uint64_t end = at + m[i].rows * m[i].cols * 4;
        used += (uint64_t)snprintf(text + used, cap - used,
                                   "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64 ",%" PRIu64
                                   "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                                   i ? "," : "", m[i].name, m[i].rows, m[i].cols, at, end);
        at = end;
    }
    text[used++] = '}';
    while (used % 8)
        text[used++] = ' ';
    *len = used;
    return text;
}

static sl_status sizes_fit(const char *path, const sl_matrix_out *m, uint32_t n, sl_err *err)
{
    uint64_t total = 0, size;
    for (uint32_t i = 0; i < n; i++)
        if (!sl_mul_size(m[i].rows, m[i].cols, &size) || !sl_mul_size(size, 4, &size) ||
            !sl_add_size(total, size, &total) || total > INT64_MAX / 2)
            return sl_fail(err, SL_EINVAL, "%s: the tensors would be too large", path);
    return SL_OK;
}

sl_status sl_safetensors_out_open(sl_safetensors_out *s, const char *path, sl_matrix_out *m,
                                  uint32_t n, sl_err *err)
{
    uint64_t len = 0;
    unsigned char prefix[8];
    *s = (sl_safetensors_out){.matrix = m, .n = n, .file.fd = -1};
    sl_status st = sizes_fit(path, m, n, err);
    if (st || (st = sl_outfile_open(&s->file, path, err)))
        return st;
    char *header = make_header(m, n, &len);
    if (!header)
        st = sl_fail(err, SL_ENOMEM, "%s: out of memory for the header", path);
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)(len >> (8 * i));
    for (uint64_t i = 0, at = 8 + len; i < n; i++) {
        m[i].at = at;
        at += m[i].rows * m[i].cols * 4;
    }
    if (!st && !(st = sl_outfile_write_at(&s->file, 0, prefix, 8, err)))
        st = sl_outfile_write_at(&s->file, 8, header, len, err);
    free(header);
    if (st)
        sl_outfile_abort(&s->file);
    return st;
}

sl_status sl_safetensors_out_rows(sl_safetensors_out *s, uint32_t i, uint64_t first,
                                  uint64_t n_rows, const float *data, sl_err *err)
{
    const sl_matrix_out *m = &s->matrix[i];
    if (first > m->rows || n_rows > m->rows - first)
        return sl_fail(err, SL_EINVAL, "%s: rows outside the tensor %s", s->file.path, m->name);
    return sl_outfile_write_at(&s->file, m->at + first * m->cols * 4, data, n_rows * m->cols * 4,
                               err);
}

sl_status sl_safetensors_out_commit(sl_safetensors_out *s, sl_err *err)
{
    return sl_outfile_commit(&s->file, err);
}

void sl_safetensors_out_abort(sl_safetensors_out *s)
{
    sl_outfile_abort(&s->file);
}
