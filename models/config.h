/* One way to ask for a model's settings, whichever format they come from: GGUF metadata
 * ("llama.block_count") or config.json
 * ("num_hidden_layers"). Every getter checks presence, type and range, and names the key as the
 * file does. Private to models/. */
#ifndef SL_CONFIG_H
#define SL_CONFIG_H

#include "../stream/checkpoint.h"

typedef struct sl_config sl_config;

/* Reads config.json (and generation_config.json, if there) of a safetensors folder, or wraps GGUF
 * metadata. Borrows c. */
sl_status sl_config_open(const sl_checkpoint *c, sl_config **out, sl_err *err);
void sl_config_close(sl_config **cfg);
sl_format sl_config_format(const sl_config *cfg);
const sl_checkpoint *sl_config_checkpoint(const sl_config *cfg);

/* general.architecture, or model_type: NUL-terminated, owned by cfg. */
sl_status sl_config_family(const sl_config *cfg, const char **name, sl_err *err);

/* A key in both formats. gguf without the architecture's prefix ("block_count" is looked up as
 * "llama.block_count"; "tokenizer:ggml.x" names another prefix); a key that one format does not
 * have is NULL there (then it is absent). hf may name a member of an object: "rope_scaling.factor".
 * It is looked for in text_config first, where there is one, then in the whole. */
typedef struct sl_key {
    const char *gguf, *hf;
} sl_key;

bool sl_config_has(const sl_config *cfg, sl_key key); /* present and not null */
/* absent: *out keeps its value if optional, else an error. */
sl_status sl_config_int(const sl_config *cfg, sl_key key, bool optional, int64_t min, int64_t max,
                        int64_t *out, sl_err *err);
/* min < value (exclusive) and value <= max, finite. */
sl_status sl_config_number(const sl_config *cfg, sl_key key, bool optional, double min, double max,
                           double *out, sl_err *err);
sl_status sl_config_bool(const sl_config *cfg, sl_key key, bool *out,
                         sl_err *err); /* always optional */
/* *out is owned by cfg; NULL when absent. */
sl_status sl_config_string(const sl_config *cfg, sl_key key, const char **out, sl_err *err);
bool sl_config_is_object(const sl_config *cfg, sl_key key); /* config.json only */
/* Elements of an array, 0 when absent; an error when it is not an array. */
sl_status sl_config_array_len(const sl_config *cfg, sl_key key, uint64_t *n, sl_err *err);
/* Element i of an array: an integer (a boolean counts as 0 or 1), or text (config.json only; owned
 * by cfg). Absent or too short: an error. */
sl_status sl_config_int_at(const sl_config *cfg, sl_key key, uint64_t i, int64_t *out, sl_err *err);
sl_status sl_config_string_at(const sl_config *cfg, sl_key key, uint64_t i, const char **out,
                              sl_err *err);
/* The key as this file spells it, for messages. */
void sl_config_key_name(const sl_config *cfg, sl_key key, char *out, size_t cap);

/* Ids that end a text: eos_token_id of config.json and generation_config.json (one or a list), or
 * of the metadata. Each must be below n_vocab. At most cap, without duplicates. */
sl_status sl_config_ends(const sl_config *cfg, uint32_t n_vocab, int32_t *id, uint32_t cap,
                         uint32_t *n, sl_err *err);

#endif
