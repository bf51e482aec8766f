/* Tree and writer, on cJSON: its nodes, its printing. Reading goes through our own reader instead
 * of cJSON_Parse, which rounds integers, knows no NaN, keeps silent about duplicate keys and cannot
 * say where in a line an error is. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* ---- building the tree ---- */

typedef struct builder {
    sl_json_reader *r;
    const char *name;
    uint32_t n_nodes;
} builder;

typedef struct member {
    cJSON *node;
    uint32_t at;
} member;

static cJSON *build(builder *b);

static cJSON *no_memory(builder *b)
{
    sl_json_reject(b->r, SL_ENOMEM, "out of memory for the document");
    return NULL;
}

/* A copy with a NUL at its end; NULL: failed. */
static char *keep_string(builder *b, sl_text t)
{
    if (memchr(t.data, 0, t.len)) {
        sl_json_reject(b->r, SL_EFORMAT, "a string with a NUL in it");
        return NULL;
    }
    char *s = malloc(t.len + 1);
    if (!s) {
        no_memory(b);
        return NULL;
    }
    memcpy(s, t.data, t.len);
    s[t.len] = 0;
    return s;
}

static int by_key(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = strcmp(x->node->string, y->node->string);
    return order ? order : x->at < y->at ? -1 : 1;
}

/* Of members with one key only the last stays. By sorting: a hostile object may have many. */
static bool drop_duplicates(builder *b, cJSON *object)
{
    uint32_t n = (uint32_t)cJSON_GetArraySize(object), i = 0;
    if (n < 2)
        return true;
    member *m = malloc(n * sizeof *m);
    if (!m)
        return no_memory(b);
    for (cJSON *j = object->child; j; j = j->next, i++)
        m[i] = (member){j, i};
    qsort(m, n, sizeof *m, by_key);
    for (i = 0; i + 1 < n; i++)
        if (strcmp(m[i].node->string, m[i + 1].node->string) == 0) {
            sl_log(SL_LOG_WARN, "%s: the key '%.100s' is there twice: the last one counts", b->name,
                   m[i].node->string);
            cJSON_Delete(cJSON_DetachItemViaPointer(object, m[i].node));
        }
    free(m);
    return true;
}

static bool build_members(builder *b, cJSON *object)
{
    sl_text key;
    for (bool any = sl_json_enter_object(b->r); any && sl_json_next_key(b->r, &key);) {
        char *name = keep_string(b, key);
        cJSON *value = name ? build(b) : NULL;
        if (value && !cJSON_AddItemToObject(object, name, value)) {
            cJSON_Delete(value);
            no_memory(b);
        }
        free(name);
    }
    return !sl_json_failed(b->r) && drop_duplicates(b, object);
}

static bool build_items(builder *b, cJSON *array)
{
    for (bool any = sl_json_enter_array(b->r); any && sl_json_next_item(b->r);) {
        cJSON *value = build(b);
        if (value && !cJSON_AddItemToArray(array, value)) {
            cJSON_Delete(value);
            no_memory(b);
        }
    }
    return !sl_json_failed(b->r);
}

static cJSON *build_container(builder *b, sl_json_type type)
{
    cJSON *node = type == SL_JSON_OBJECT ? cJSON_CreateObject() : cJSON_CreateArray();
    if (!node)
        return no_memory(b);
    if (type == SL_JSON_OBJECT ? build_members(b, node) : build_items(b, node))
        return node;
    cJSON_Delete(node);
    return NULL;
}

static cJSON *build_string(builder *b)
{
    sl_text t;
    char *s = sl_json_read_string(b->r, &t) ? keep_string(b, t) : NULL;
    cJSON *node = s ? cJSON_CreateString(s) : NULL;
    if (s && !node)
        no_memory(b);
    free(s);
    return node;
}

static cJSON *build_scalar(builder *b, sl_json_type type)
{
    double v;
    bool yes;
    cJSON *node;
    if (type == SL_JSON_NUMBER) {
        if (!sl_json_read_double(b->r, &v))
            return NULL;
        node = cJSON_CreateNumber(v);
    } else if (type == SL_JSON_BOOL) {
        if (!sl_json_read_bool(b->r, &yes))
            return NULL;
        node = cJSON_CreateBool(yes);
    } else {
        if (!sl_json_read_null(b->r))
            return NULL;
        node = cJSON_CreateNull();
    }
    return node ? node : no_memory(b);
}

/* Recursive; the reader bounds the depth. */
static cJSON *build(builder *b)
{
    sl_json_type type = sl_json_peek(b->r);
    if (type == SL_JSON_NONE)
        return NULL;
    if (++b->n_nodes > SL_JSON_TREE_NODES) {
        sl_json_reject(b->r, SL_EFORMAT, "more than %d values", SL_JSON_TREE_NODES);
        return NULL;
    }
    if (type == SL_JSON_OBJECT || type == SL_JSON_ARRAY)
        return build_container(b, type);
    return type == SL_JSON_STRING ? build_string(b) : build_scalar(b, type);
}

sl_status sl_json_parse(const char *text, uint64_t len, const char *name, sl_json **out,
                        sl_err *err)
{
    builder b = {.name = name};
    *out = NULL;
    if (len > SL_JSON_TREE_BYTES)
        return sl_fail(err, SL_EFORMAT, "%s has %llu bytes, at most %d are read", name,
                       (unsigned long long)len, SL_JSON_TREE_BYTES);
    sl_status status = sl_json_reader_of_text(text, len, name, &b.r, err);
    if (status != SL_OK)
        return status;
    cJSON *root = build(&b);
    status = sl_json_read_end(b.r);
    if (status != SL_OK) {
        cJSON_Delete(root);
        root = NULL;
    }
    sl_json_reader_close(&b.r);
    *out = root;
    return status;
}

void sl_json_free(sl_json **j)
{
    if (!j || !*j)
        return;
    cJSON_Delete(*j);
    *j = NULL;
}

/* ---- asking ---- */

sl_json_type sl_json_type_of(const sl_json *j)
{
    if (!j)
        return SL_JSON_NONE;
    switch (j->type & 0xFF) {
    case cJSON_NULL:
        return SL_JSON_NULL;
    case cJSON_True:
    case cJSON_False:
        return SL_JSON_BOOL;
    case cJSON_Number:
        return SL_JSON_NUMBER;
    case cJSON_String:
        return SL_JSON_STRING;
    case cJSON_Array:
        return SL_JSON_ARRAY;
    case cJSON_Object:
        return SL_JSON_OBJECT;
    default:
        return SL_JSON_NONE;
    }
}

const sl_json *sl_json_get(const sl_json *object, const char *key)
{
    return sl_json_type_of(object) == SL_JSON_OBJECT ? cJSON_GetObjectItemCaseSensitive(object, key)
                                                     : NULL;
}

uint32_t sl_json_count(const sl_json *j)
{
    return sl_json_type_of(j) >= SL_JSON_ARRAY ? (uint32_t)cJSON_GetArraySize(j) : 0;
}

const sl_json *sl_json_first(const sl_json *j)
{
    return sl_json_type_of(j) >= SL_JSON_ARRAY ? j->child : NULL;
}

const sl_json *sl_json_next(const sl_json *j)
{
    return j ? j->next : NULL;
}

const char *sl_json_key(const sl_json *j)
{
    return j ? j->string : NULL;
}

bool sl_json_number(const sl_json *j, double *out)
{
    if (sl_json_type_of(j) != SL_JSON_NUMBER)
        return false;
    *out = j->valuedouble;
    return true;
}

bool sl_json_int(const sl_json *j, int64_t *out)
{
    double v;
    if (!sl_json_number(j, &v) || !(fabs(v) < 0x1p53) || v != trunc(v))
        return false;
    *out = (int64_t)v;
    return true;
}

bool sl_json_bool(const sl_json *j, bool *out)
{
    if (sl_json_type_of(j) != SL_JSON_BOOL)
        return false;
    *out = cJSON_IsTrue(j);
    return true;
}

const char *sl_json_text(const sl_json *j)
{
    return sl_json_type_of(j) == SL_JSON_STRING ? j->valuestring : NULL;
}

/* ---- writer ---- */

struct sl_json_writer {
    cJSON *root;
    cJSON *open[SL_JSON_DEPTH];
    uint32_t depth;
    bool failed;
};

sl_json_writer *sl_json_writer_new(void)
{
    return calloc(1, sizeof(sl_json_writer));
}

void sl_json_writer_free(sl_json_writer **w)
{
    if (!w || !*w)
        return;
    cJSON_Delete((*w)->root);
    free(*w);
    *w = NULL;
}

/* Takes the item in any case. Returns whether it found its place. */
static bool add(sl_json_writer *w, const char *key, cJSON *item)
{
    bool ok = false;
    cJSON *parent = w->depth ? w->open[w->depth - 1] : NULL;
    if (!item || w->failed)
        ok = false;
    else if (!parent && !w->root)
        ok = (w->root = item) != NULL;
    else if (parent && cJSON_IsArray(parent))
        ok = cJSON_AddItemToArray(parent, item);
    else if (parent && key)
        ok = cJSON_AddItemToObject(parent, key, item);
    if (!ok) {
        cJSON_Delete(item);
        w->failed = true;
    }
    return ok;
}

static void open_container(sl_json_writer *w, const char *key, cJSON *item)
{
    if (w->depth == SL_JSON_DEPTH)
        w->failed = true;
    if (add(w, key, item))
        w->open[w->depth++] = item;
}

void sl_json_write_object(sl_json_writer *w, const char *key)
{
    open_container(w, key, cJSON_CreateObject());
}

void sl_json_write_array(sl_json_writer *w, const char *key)
{
    open_container(w, key, cJSON_CreateArray());
}

void sl_json_write_close(sl_json_writer *w)
{
    if (w->depth)
        w->depth--;
    else
        w->failed = true;
}

void sl_json_write_string(sl_json_writer *w, const char *key, const char *text)
{
    if (text)
        sl_json_write_text(w, key, (sl_text){text, strlen(text)});
    else
        add(w, key, cJSON_CreateNull());
}

void sl_json_write_text(sl_json_writer *w, const char *key, sl_text t)
{
    uint64_t at = 0, size;
    /* Three bytes for each at most: U+FFFD in the place of a bad one. */
    char *copy = sl_mul_size(t.len, 3, &size) ? malloc(size + 1) : NULL, *to = copy;
    while (copy && at < t.len) {
        uint32_t n = t.data[at] ? sl_utf8_len(t.data + at, t.len - at) : 0;
        memcpy(to, n ? t.data + at : "\xEF\xBF\xBD", n ? n : 3);
        to += n ? n : 3;
        at += n ? n : 1;
    }
    if (copy)
        *to = 0;
    add(w, key, copy ? cJSON_CreateString(copy) : NULL);
    free(copy);
}

/* Numbers go in as text: cJSON would print them through a double of 15 digits. */
static void write_raw(sl_json_writer *w, const char *key, const char *text)
{
    add(w, key, cJSON_CreateRaw(text));
}

void sl_json_write_int(sl_json_writer *w, const char *key, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    write_raw(w, key, text);
}

void sl_json_write_uint(sl_json_writer *w, const char *key, uint64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    write_raw(w, key, text);
}

void sl_json_write_double(sl_json_writer *w, const char *key, double v)
{
    char text[40] = "null";
    for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    write_raw(w, key, text);
}

void sl_json_write_bool(sl_json_writer *w, const char *key, bool v)
{
    add(w, key, cJSON_CreateBool(v));
}

sl_status sl_json_write_end(sl_json_writer *w, bool pretty, char **out, sl_err *err)
{
    w->depth = 0;
    *out = w->failed || !w->root ? NULL
           : pretty              ? cJSON_Print(w->root)
                                 : cJSON_PrintUnformatted(w->root);
    return *out ? SL_OK : sl_fail(err, SL_ENOMEM, "out of memory for a JSON document");
}
