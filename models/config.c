/* Settings of both formats behind one set of getters. GGUF keys are "<architecture>.<key>";
 * config.json keys are members, one dot deep at most ("rope_scaling.factor"). A member that is null
 * counts as absent. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/json.h"

enum { CONFIG_BYTES = 4 << 20, KEY_BYTES = 160, ARCH_BYTES = 64 };

struct sl_config {
    const sl_checkpoint *ckpt;
    sl_format format;
    sl_json *json;       /* config.json; NULL for GGUF */
    const sl_json *text; /* where the language model's settings are: the root, or its text_config */
    sl_json *generation; /* generation_config.json or NULL */
    char arch[ARCH_BYTES];
};

static sl_status read_json(const sl_checkpoint *c, const char *name, sl_json **out, sl_err *err)
{
    char *text = NULL;
    uint64_t len = 0;
    sl_status st = sl_checkpoint_read_text(c, name, CONFIG_BYTES, &text, &len, err);
    if (st == SL_OK)
        st = sl_json_parse(text, len, name, out, err);
    free(text);
    if (st == SL_OK && sl_json_type_of(*out) != SL_JSON_OBJECT) {
        st = sl_fail(err, SL_EFORMAT, "%s: expected an object, found %s", name,
                     sl_json_type_name(sl_json_type_of(*out)));
        sl_json_free(out);
    }
    return st;
}

static sl_status open_gguf(sl_config *cfg, sl_err *err)
{
    const sl_meta *m = sl_checkpoint_meta_find(cfg->ckpt, "general.architecture");
    const char *path = sl_checkpoint_path(cfg->ckpt);
    if (!m)
        return sl_fail(err, SL_EFORMAT, "%s: no general.architecture in the metadata", path);
    if (m->type != SL_META_STRING)
        return sl_fail(err, SL_EFORMAT, "%s: general.architecture is %s, expected string", path,
                       sl_meta_type_name(m->type));
    snprintf(cfg->arch, sizeof cfg->arch, "%.*s",
             (int)(m->v.s.len < sizeof cfg->arch ? m->v.s.len : sizeof cfg->arch - 1), m->v.s.data);
    return SL_OK;
}

static sl_status open_json(sl_config *cfg, sl_err *err)
{
    sl_status st = read_json(cfg->ckpt, "config.json", &cfg->json, err);
    if (st != SL_OK)
        return st;
    const sl_json *text = sl_json_get(cfg->json, "text_config");
    cfg->text = sl_json_type_of(text) == SL_JSON_OBJECT ? text : cfg->json;
    sl_err ignored = {0};
    sl_status gen = read_json(cfg->ckpt, "generation_config.json", &cfg->generation, &ignored);
    if (gen == SL_EFORMAT)
        sl_log(SL_LOG_WARN, "%s (ignored)", ignored.text);
    return SL_OK;
}

sl_status sl_config_open(const sl_checkpoint *c, sl_config **out, sl_err *err)
{
    *out = NULL;
    sl_config *cfg = calloc(1, sizeof *cfg);
    if (!cfg)
        return sl_fail(err, SL_ENOMEM, "out of memory for the model's settings");
    cfg->ckpt = c;
    cfg->format = sl_checkpoint_format(c);
    sl_status st = cfg->format == SL_FORMAT_GGUF ? open_gguf(cfg, err) : open_json(cfg, err);
    if (st != SL_OK) {
        sl_config_close(&cfg);
        return st;
    }
    *out = cfg;
    return SL_OK;
}

void sl_config_close(sl_config **cfg)
{
    if (!cfg || !*cfg)
        return;
    sl_json_free(&(*cfg)->json);
    sl_json_free(&(*cfg)->generation);
    free(*cfg);
    *cfg = NULL;
}

sl_format sl_config_format(const sl_config *cfg)
{
    return cfg->format;
}

const sl_checkpoint *sl_config_checkpoint(const sl_config *cfg)
{
    return cfg->ckpt;
}

sl_status sl_config_family(const sl_config *cfg, const char **name, sl_err *err)
{
    if (cfg->format == SL_FORMAT_GGUF) {
        *name = cfg->arch;
        return SL_OK;
    }
    const sl_json *type = sl_json_get(cfg->json, "model_type");
    *name = sl_json_text(type);
    if (*name)
        return SL_OK;
    return sl_fail(err, SL_EFORMAT,
                   "config.json: model_type is %s, expected the name of an architecture",
                   sl_json_type_name(sl_json_type_of(type)));
}

void sl_config_key_name(const sl_config *cfg, sl_key key, char *out, size_t cap)
{
    if (cfg->format != SL_FORMAT_GGUF)
        snprintf(out, cap, "%s", key.hf ? key.hf : "?");
    else if (key.gguf &&
             strchr(key.gguf, ':')) /* "tokenizer:ggml.x" is not under the architecture's name */
        snprintf(out, cap, "%.*s.%s", (int)(strchr(key.gguf, ':') - key.gguf), key.gguf,
                 strchr(key.gguf, ':') + 1);
    else
        snprintf(out, cap, "%s.%s", cfg->arch, key.gguf ? key.gguf : "?");
}

/* A value of either format; both NULL: absent. */
typedef struct value {
    const sl_meta *meta;
    const sl_json *json;
    char key[KEY_BYTES];
} value;

static const sl_json *member(const sl_json *root, const char *path)
{
    char first[KEY_BYTES];
    const char *dot = strchr(path, '.');
    if (!dot)
        return sl_json_get(root, path);
    snprintf(first, sizeof first, "%.*s", (int)(dot - path), path);
    return sl_json_get(sl_json_get(root, first), dot + 1);
}

static const sl_json *present(const sl_json *j)
{
    return j && sl_json_type_of(j) != SL_JSON_NULL ? j : NULL;
}

static bool look_up(const sl_config *cfg, sl_key key, value *v)
{
    *v = (value){0};
    sl_config_key_name(cfg, key, v->key, sizeof v->key);
    if (cfg->format == SL_FORMAT_GGUF)
        v->meta = key.gguf ? sl_checkpoint_meta_find(cfg->ckpt, v->key) : NULL;
    else if (key.hf)
        v->json = present(member(cfg->text, key.hf));
    if (!v->json && cfg->text != cfg->json && key.hf) /* settings of the whole: quantization, ... */
        v->json = present(member(cfg->json, key.hf));
    return v->meta || v->json;
}

static const char *value_type(const value *v)
{
    return v->meta ? sl_meta_type_name(v->meta->type) : sl_json_type_name(sl_json_type_of(v->json));
}

static sl_status missing(const sl_config *cfg, const value *v, sl_err *err)
{
    return sl_fail(err, SL_EFORMAT, "%s: no %s",
                   cfg->format == SL_FORMAT_GGUF ? sl_checkpoint_path(cfg->ckpt) : "config.json",
                   v->key);
}

static sl_status wrong_type(const sl_config *cfg, const value *v, const char *expected, sl_err *err)
{
    return sl_fail(err, SL_EFORMAT, "%s: %s is %s, expected %s",
                   cfg->format == SL_FORMAT_GGUF ? sl_checkpoint_path(cfg->ckpt) : "config.json",
                   v->key, value_type(v), expected);
}

bool sl_config_has(const sl_config *cfg, sl_key key)
{
    value v;
    return look_up(cfg, key, &v);
}

sl_status sl_config_int(const sl_config *cfg, sl_key key, bool optional, int64_t min, int64_t max,
                        int64_t *out, sl_err *err)
{
    value v;
    int64_t n;
    if (!look_up(cfg, key, &v))
        return optional ? SL_OK : missing(cfg, &v, err);
    if (!(v.meta ? sl_meta_int(v.meta, &n) : sl_json_int(v.json, &n)))
        return wrong_type(cfg, &v, "an integer", err);
    if (n < min || n > max)
        return sl_fail(err, SL_EFORMAT, "%s is %lld, expected %lld to %lld", v.key, (long long)n,
                       (long long)min, (long long)max);
    *out = n;
    return SL_OK;
}

sl_status sl_config_number(const sl_config *cfg, sl_key key, bool optional, double min, double max,
                           double *out, sl_err *err)
{
    value v;
    double n;
    if (!look_up(cfg, key, &v))
        return optional ? SL_OK : missing(cfg, &v, err);
    if (!(v.meta ? sl_meta_number(v.meta, &n) : sl_json_number(v.json, &n)))
        return wrong_type(cfg, &v, "a number", err);
    if (!(n > min && n <= max)) /* also refuses NaN */
        return sl_fail(err, SL_EFORMAT, "%s is %g, expected more than %g and at most %g", v.key, n,
                       min, max);
    *out = n;
    return SL_OK;
}

sl_status sl_config_bool(const sl_config *cfg, sl_key key, bool *out, sl_err *err)
{
    value v;
    int64_t n;
    if (!look_up(cfg, key, &v))
        return SL_OK;
    if (v.meta ? v.meta->type == SL_META_BOOL && sl_meta_int(v.meta, &n)
               : sl_json_bool(v.json, out)) {
        if (v.meta)
            *out = n != 0;
        return SL_OK;
    }
    return wrong_type(cfg, &v, "true or false", err);
}

sl_status sl_config_string(const sl_config *cfg, sl_key key, const char **out, sl_err *err)
{
    value v;
    *out = NULL;
    if (!look_up(cfg, key, &v))
        return SL_OK;
    if (v.meta && v.meta->type == SL_META_STRING)
        *out = v.meta->v.s.data; /* NUL-terminated copy of the file's text */
    else
        *out = v.json ? sl_json_text(v.json) : NULL;
    return *out ? SL_OK : wrong_type(cfg, &v, "text", err);
}

sl_status sl_config_array_len(const sl_config *cfg, sl_key key, uint64_t *n, sl_err *err)
{
    value v;
    *n = 0;
    if (!look_up(cfg, key, &v))
        return SL_OK;
    if (v.meta ? v.meta->type != SL_META_ARRAY : sl_json_type_of(v.json) != SL_JSON_ARRAY)
        return wrong_type(cfg, &v, "an array", err);
    *n = v.meta ? v.meta->v.a.n : sl_json_count(v.json);
    return SL_OK;
}

bool sl_config_is_object(const sl_config *cfg, sl_key key)
{
    value v;
    return look_up(cfg, key, &v) && v.json && sl_json_type_of(v.json) == SL_JSON_OBJECT;
}

static sl_status past_the_end(const value *v, uint64_t i, sl_err *err)
{
    return sl_fail(err, SL_EFORMAT, "%s has no element %llu", v->key, (unsigned long long)i);
}

static const sl_json *json_element(const sl_json *array, uint64_t i)
{
    const sl_json *j = sl_json_first(array);
    while (j && i--)
        j = sl_json_next(j);
    return j;
}

sl_status sl_config_int_at(const sl_config *cfg, sl_key key, uint64_t i, int64_t *out, sl_err *err)
{
    value v;
    bool on;
    if (!look_up(cfg, key, &v))
        return missing(cfg, &v, err);
    if (v.meta)
        return sl_meta_array_int(v.meta, i, out) ? SL_OK : past_the_end(&v, i, err);
    const sl_json *j = json_element(v.json, i);
    if (!j)
        return past_the_end(&v, i, err);
    if (sl_json_int(j, out))
        return SL_OK;
    if (!sl_json_bool(j, &on))
        return wrong_type(cfg, &v, "integers or booleans", err);
    *out = on;
    return SL_OK;
}

sl_status sl_config_string_at(const sl_config *cfg, sl_key key, uint64_t i, const char **out,
                              sl_err *err)
{
    value v;
    *out = NULL;
    if (!look_up(cfg, key, &v))
        return missing(cfg, &v, err);
    const sl_json *j = v.json ? json_element(v.json, i) : NULL;
    *out = j ? sl_json_text(j) : NULL;
    return *out ? SL_OK : j ? wrong_type(cfg, &v, "texts", err) : past_the_end(&v, i, err);
}

static sl_status add_end(const char *key, int64_t id, uint32_t n_vocab, int32_t *list, uint32_t cap,
                         uint32_t *n, sl_err *err)
{
    if (id < 0 || id >= n_vocab)
        return sl_fail(err, SL_EFORMAT, "%s is %lld, the vocabulary has 0 to %u", key,
                       (long long)id, n_vocab - 1);
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == id)
            return SL_OK;
    if (*n < cap)
        list[(*n)++] = (int32_t)id;
    return SL_OK;
}

static sl_status add_json_ends(const sl_json *root, uint32_t n_vocab, int32_t *list, uint32_t cap,
                               uint32_t *n, sl_err *err)
{
    const sl_json *eos = sl_json_get(root, "eos_token_id");
    bool many = sl_json_type_of(eos) == SL_JSON_ARRAY;
    if (!eos || sl_json_type_of(eos) == SL_JSON_NULL)
        return SL_OK;
    for (const sl_json *j = many ? sl_json_first(eos) : eos; j; j = many ? sl_json_next(j) : NULL) {
        int64_t id;
        if (!sl_json_int(j, &id))
            return sl_fail(err, SL_EFORMAT,
                           "config.json: eos_token_id is %s, expected an integer or a list of them",
                           sl_json_type_name(sl_json_type_of(j)));
        sl_status st = add_end("eos_token_id", id, n_vocab, list, cap, n, err);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}

sl_status sl_config_ends(const sl_config *cfg, uint32_t n_vocab, int32_t *id, uint32_t cap,
                         uint32_t *n, sl_err *err)
{
    *n = 0;
    if (cfg->format != SL_FORMAT_GGUF) {
        sl_status st = add_json_ends(cfg->text, n_vocab, id, cap, n, err);
        if (st == SL_OK && cfg->text != cfg->json)
            st = add_json_ends(cfg->json, n_vocab, id, cap, n, err);
        return st == SL_OK && cfg->generation
                   ? add_json_ends(cfg->generation, n_vocab, id, cap, n, err)
                   : st;
    }
    static const char *const keys[] = {"tokenizer:ggml.eos_token_id", "tokenizer:ggml.eot_token_id",
                                       "tokenizer:ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t end = -1;
        sl_status st = sl_config_int(cfg, (sl_key){keys[i], NULL}, true, 0, n_vocab - 1, &end, err);
        if (st == SL_OK && end >= 0)
            st = add_end(keys[i], end, n_vocab, id, cap, n, err);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}
