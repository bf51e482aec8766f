/* Writes a safetensors file of F32 matrices whose shapes are known beforehand, row by row in any
 * order. */
#ifndef SL_SAFETENSORS_OUT_H
#define SL_SAFETENSORS_OUT_H

#include "../stream/outfile.h"

typedef struct sl_matrix_out {
    char name[24];
    uint64_t rows, cols;
    uint64_t at; /* offset in the file, set at open */
} sl_matrix_out;

typedef struct sl_safetensors_out {
    sl_outfile file;
    sl_matrix_out *matrix; /* borrowed */
    uint32_t n;
} sl_safetensors_out;

/* Names are plain words (no quotes). Writes the header. */
sl_status sl_safetensors_out_open(sl_safetensors_out *s, const char *path, sl_matrix_out *matrix,
                                  uint32_t n, sl_err *err);
/* data: n_rows * cols floats for rows [first, first + n_rows) of matrix i. */
sl_status sl_safetensors_out_rows(sl_safetensors_out *s, uint32_t i, uint64_t first,
                                  uint64_t n_rows, const float *data, sl_err *err);
sl_status sl_safetensors_out_commit(sl_safetensors_out *s, sl_err *err);
void sl_safetensors_out_abort(sl_safetensors_out *s);

#endif
