/* What gguf.c and safetensors.c build a checkpoint with. Private to stream/: everyone else sees
 * checkpoint.h. One thread. */
#ifndef SL_CHECKPOINT_BUILD_H
#define SL_CHECKPOINT_BUILD_H

#include "checkpoint.h"

/* Name -> number, open addressing. The seed differs from run to run, so that the names in a file
 * cannot be chosen to collide. Names are borrowed. */
typedef struct sl_names {
    struct sl_names_entry {
        const char *name; /* NULL: free */
        uint32_t value;
    } * entry;
    uint32_t cap, n; /* cap: 0 or a power of two; at most half full */
    uint64_t seed;
} sl_names;
enum { SL_NAMES_ABSENT = UINT32_MAX };
uint32_t sl_names_find(const sl_names *t, const char *name); /* SL_NAMES_ABSENT */
/* The name must be absent. False: out of memory. */
bool sl_names_add(sl_names *t, const char *name, uint32_t value);
void sl_names_free(sl_names *t);

/* A malloc'ed block that a long metadata array owns; sl_checkpoint_trim() frees it. */
typedef struct sl_meta_block {
    void *data;
    uint64_t len;
} sl_meta_block;

struct sl_checkpoint {
    sl_format format;
    const char *path;   /* in the arena */
    const char *folder; /* of the first file, in the arena; with a final slash */
    sl_arena *arena;    /* names, metadata, short arrays */
    sl_file **file;
    uint32_t n_files, cap_files;
    sl_tensor *tensor;
    uint32_t n_tensors, cap_tensors;
    sl_names tensor_names;
    sl_meta *meta;
    uint32_t n_meta, cap_meta;
    sl_names meta_names;
    sl_meta_block *block;
    uint32_t n_blocks, cap_blocks;
    uint64_t nested_items; /* of arrays of arrays, so far */
};

/* All return SL_OK or write err. */
sl_status sl_checkpoint_add_file(sl_checkpoint *c, sl_file *f, sl_err *err); /* takes f in any case
                                                                              */
/* The name must live in the arena. A name that is there already is an error that names both files.
 */
sl_status sl_checkpoint_add_tensor(sl_checkpoint *c, const sl_tensor *t, sl_err *err);
sl_status sl_checkpoint_add_meta(sl_checkpoint *c, const sl_meta *m, sl_err *err); /* key too */
sl_status sl_checkpoint_add_block(sl_checkpoint *c, void *data, uint64_t len, sl_err *err);
/* Sorts the tensors by file and offset, and refuses overlaps. Call once, last. */
sl_status sl_checkpoint_seal(sl_checkpoint *c, sl_err *err);
/* Grows *items so that one more fits. False: out of memory. */
bool sl_grow(void **items, uint32_t n, uint32_t *cap, size_t item_size);

/* The values of dims times the type's block size into t->n_values and t->extent.len; false: they do
 * not fit 63 bits, or a row is no whole number of blocks. */
bool sl_tensor_measure(sl_tensor *t);
/* "[300, 32]" */
const char *sl_tensor_shape(const sl_tensor *t, char *text, size_t cap);

/* Bytes of one element in an array; 0: a string, an array, no type. */
uint32_t sl_meta_size(sl_meta_type t);
/* Reads the value of m->type, a type with a size, at the cursor. False: too few bytes, or a bool
 * that is neither 0 nor 1. */
bool sl_meta_scalar(sl_bytes *b, sl_meta *m);

/* Recognises what is often found in the place of a weight file from its first bytes: a git-lfs
 * pointer, a web page, zeros. NULL: none of these. */
const char *sl_impostor(const uint8_t *head, uint64_t len);

/* Each opens a whole checkpoint of its format into the empty c. */
sl_status sl_gguf_open(sl_checkpoint *c, const char *path, sl_err *err);
sl_status sl_safetensors_open_file(sl_checkpoint *c, const char *path, sl_err *err);
sl_status sl_safetensors_open_index(sl_checkpoint *c, const char *path, sl_err *err);
/* GGUF's "-00001-of-00003.gguf" and the like: the stem's length, number and count of a shard's
 * name; false when the name (before ext) is of another form. */
bool sl_shard_parse(const char *path, const char *ext, uint64_t *stem, uint32_t *no,
                    uint32_t *count);

#endif
