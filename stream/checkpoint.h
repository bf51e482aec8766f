/* Checkpoints in place: name -> type, shape, extent; metadata. GGUF (one file or shards) and
 * safetensors folders. Everything is checked here before anyone uses it: sizes, offsets, overlaps,
 * counts, the files' real lengths. Not here: what a tensor is for (models/), how its bytes arrive
 * (stream.h). After open a checkpoint is read-only: any thread. */
#ifndef SL_CHECKPOINT_H
#define SL_CHECKPOINT_H

#include "base.h"
#include "bytes.h"
#include "file.h"

/* Every type that a GGUF or safetensors file can name. The numbers are ours. */
typedef enum sl_dtype {
    SL_F64,
    SL_F32,
    SL_F16,
    SL_BF16,
    SL_Q4_0,
    SL_Q4_1,
    SL_Q5_0,
    SL_Q5_1,
    SL_Q8_0,
    SL_Q8_1,
    SL_Q2_K,
    SL_Q3_K,
    SL_Q4_K,
    SL_Q5_K,
    SL_Q6_K,
    SL_Q8_K,
    SL_IQ1_S,
    SL_IQ1_M,
    SL_IQ2_XXS,
    SL_IQ2_XS,
    SL_IQ2_S,
    SL_IQ3_XXS,
    SL_IQ3_S,
    SL_IQ4_NL,
    SL_IQ4_XS,
    SL_TQ1_0,
    SL_TQ2_0,
    SL_MXFP4,
    SL_NVFP4,
    SL_Q1_0,
    SL_Q2_0,
    SL_I8,
    SL_I16,
    SL_I32,
    SL_I64,
    SL_U8,
    SL_U16,
    SL_U32,
    SL_U64,
    SL_BOOL,
    SL_F8_E4M3,
    SL_F8_E5M2,
    SL_F8_E8M0,
    SL_F4,
    SL_C64,
    SL_DTYPE_COUNT
} sl_dtype;

typedef struct sl_dtype_info {
    const char *name;      /* as the format's own tools print it: "Q4_K", "BF16" */
    uint32_t block_values; /* values per block */
    uint32_t block_bytes;
} sl_dtype_info;

const sl_dtype_info *sl_dtype_about(sl_dtype type); /* never NULL for a valid type */

/* A byte range of one file. */
typedef struct sl_extent {
    uint32_t file; /* index into sl_checkpoint_file() */
    uint64_t offset;
    uint64_t len;
} sl_extent;

enum { SL_MAX_DIMS = 8 };

typedef struct sl_tensor {
    const char *name;
    sl_dtype type;
    uint32_t n_dims;            /* 0: a scalar */
    uint64_t dims[SL_MAX_DIMS]; /* outermost first (row-major, as safetensors; GGUF's order is
                                   reversed at reading): [rows, cols] */
    uint64_t n_values;
    sl_extent extent; /* absolute offset in its file */
} sl_tensor;

typedef enum sl_format { SL_FORMAT_GGUF, SL_FORMAT_SAFETENSORS } sl_format;

typedef struct sl_checkpoint sl_checkpoint;

/* path: a .gguf file (any shard, or a link to one), a safetensors folder, a .safetensors file
 * inside it, or its index. Warnings (trailing bytes and such) go through sl_log. On error *out is
 * NULL. */
sl_status sl_checkpoint_open(const char *path, sl_checkpoint **out, sl_err *err);
void sl_checkpoint_close(sl_checkpoint **c);

sl_format sl_checkpoint_format(const sl_checkpoint *c);
const char *sl_checkpoint_path(const sl_checkpoint *c); /* folder or first file, as resolved */
uint32_t sl_checkpoint_file_count(const sl_checkpoint *c);
sl_file *sl_checkpoint_file(const sl_checkpoint *c, uint32_t i); /* owned by the checkpoint */
uint32_t sl_checkpoint_tensor_count(const sl_checkpoint *c);
const sl_tensor *sl_checkpoint_tensor(const sl_checkpoint *c,
                                      uint32_t i); /* file order: by file, then offset */
const sl_tensor *sl_checkpoint_find(const sl_checkpoint *c,
                                    const char *name);       /* hashed; NULL: absent */
uint64_t sl_checkpoint_memory_bytes(const sl_checkpoint *c); /* heap held by tables and metadata */

/* ---- GGUF metadata (also config values that a caller wants by key) ---- */
typedef enum sl_meta_type {
    SL_META_U8,
    SL_META_I8,
    SL_META_U16,
    SL_META_I16,
    SL_META_U32,
    SL_META_I32,
    SL_META_F32,
    SL_META_BOOL,
    SL_META_STRING,
    SL_META_ARRAY,
    SL_META_U64,
    SL_META_I64,
    SL_META_F64
} sl_meta_type; /* the format's own numbers */

typedef struct sl_meta {
    const char *key;
    sl_meta_type type;
    union {
        uint64_t u; /* U8 U16 U32 U64 BOOL */
        int64_t i;  /* I8 I16 I32 I64 */
        double f;   /* F32 (exactly) F64 */
        sl_text s;
        struct {
            sl_meta_type type; /* of the elements */
            uint64_t n;
            const void *data; /* packed elements as in the file (unaligned, little-endian); strings
                                 and nested arrays: see below */
            uint64_t len;     /* bytes at data */
            const sl_text *text; /* element type STRING: n entries; otherwise NULL */
            const struct sl_meta
                *items; /* element type ARRAY: n entries (key NULL); otherwise NULL */
        } a;
    } v;
} sl_meta;

uint32_t sl_checkpoint_meta_count(const sl_checkpoint *c);
const sl_meta *sl_checkpoint_meta(const sl_checkpoint *c,
                                  uint32_t i); /* file order, shard 1 only */
const sl_meta *sl_checkpoint_meta_find(const sl_checkpoint *c, const char *key); /* NULL: absent */
/* Any integer type of whatever width, also an integral bool; false when another type or out of
 * int64. */
bool sl_meta_int(const sl_meta *m, int64_t *out);
bool sl_meta_number(const sl_meta *m, double *out); /* integer or float */
bool sl_meta_array_int(const sl_meta *m, uint64_t i,
                       int64_t *out); /* element i of an integer or bool array */
bool sl_meta_array_number(const sl_meta *m, uint64_t i, double *out);
const char *sl_meta_type_name(sl_meta_type t); /* "u32", "string", ... for messages */
/* Lets go of the metadata arrays longer than keep elements (token lists, merges) once a tokenizer
 * has taken them. */
void sl_checkpoint_trim(sl_checkpoint *c, uint64_t keep);

/* ---- files beside a safetensors folder's weights ---- */
/* Reads folder/name whole (at most max_bytes) into malloc'ed memory, NUL appended, that the caller
 * frees. GGUF: SL_EINVAL. */
sl_status sl_checkpoint_read_text(const sl_checkpoint *c, const char *name, uint64_t max_bytes,
                                  char **out, uint64_t *len, sl_err *err);

/* Reads a whole tensor (small: norms, biases) synchronously into buf of tensor->extent.len bytes
 * and lets go of its page cache.
 */
sl_status sl_checkpoint_read(const sl_checkpoint *c, const sl_tensor *t, void *buf, sl_err *err);

#endif
