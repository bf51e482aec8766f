/* sluice tokenize: text to token ids and back, for a model or a tokenizer.json alone. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "ids.h"
#include "report.h"
#include "term.h"

typedef struct tokenize {
    const sl_options *o;
    sl_tokenizer *t;
    sl_ids ids;
} tokenize;

static sl_status from_json(const char *path, sl_tokenizer **out, sl_err *err)
{
    sl_file *f = NULL;
    sl_status st = sl_file_open(path, &f, err);
    if (!st)
        st = sl_tokenizer_from_file(f, NULL, out, err);
    sl_file_close(&f);
    return st;
}

static sl_status from_gguf(const char *path, sl_tokenizer **out, sl_err *err)
{
    sl_checkpoint *c = NULL;
    sl_status st = sl_checkpoint_open(path, &c, err);
    if (!st && sl_checkpoint_format(c) != SL_FORMAT_GGUF)
        st = sl_fail(err, SL_EINVAL,
                     "%s: the tokenizer of a safetensors model is its folder's tokenizer.json",
                     path);
    if (!st)
        st = sl_tokenizer_from_gguf(c, NULL, out, err);
    sl_checkpoint_close(&c);
    return st;
}

/* A folder, a .json file, or a GGUF file. The model's family does not matter, nor its weights. */
static sl_status open_tokenizer(const char *path, sl_tokenizer **out, sl_err *err)
{
    struct stat st;
    size_t len = strlen(path);
    if (stat(path, &st) < 0)
        return sl_fail_errno(err, errno, "%s: cannot open", path);
    if (len > 5 && !strcmp(path + len - 5, ".json"))
        return from_json(path, out, err);
    if (!S_ISDIR(st.st_mode))
        return from_gguf(path, out, err);
    char *inside = NULL;
    if (asprintf(&inside, "%s/tokenizer.json", path) < 0)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    sl_status status = from_json(inside, out, err);
    free(inside);
    return status;
}

static sl_status encode(tokenize *k, const char *text, uint64_t len, sl_err *err)
{
    sl_special special = k->o->special < 0 ? SL_SPECIAL_PARSE : (sl_special)k->o->special;
    sl_status st = sl_tokenizer_encode(k->t, text, len, special, &k->ids, err);
    if (!st && k->o->add_special)
        st = sl_tokenizer_wrap(k->t, &k->ids, err);
    return st;
}

static sl_status print_encoded(tokenize *k, const char *text, uint64_t len, sl_err *err)
{
    sl_status st = encode(k, text, len, err);
    if (st)
        return st;
    for (uint64_t i = 0; i < k->ids.n; i++)
        sl_outf("%s%" PRId32, i ? " " : "", k->ids.id[i]);
    sl_out("\n", 1);
    return SL_OK;
}

static sl_status print_decoded(tokenize *k, const char *text, uint64_t len, const char *name,
                               sl_err *err)
{
    char *out = NULL;
    uint64_t n = 0;
    sl_status st = sl_ids_parse(text, len, name, &k->ids, err);
    if (!st)
        st = sl_tokenizer_decode(k->t, k->ids.id, k->ids.n, false, &out, &n, err);
    if (!st)
        sl_out(out, n);
    if (!st && isatty(STDOUT_FILENO) && n && out[n - 1] != '\n')
        sl_out("\n", 1);
    free(out);
    return st;
}

static sl_status whole(tokenize *k, sl_err *err)
{
    const sl_options *o = k->o;
    const char *path = o->file ? o->file : "-";
    const char *name = o->prompt ? "--prompt" : strcmp(path, "-") ? path : "standard input";
    char *text = NULL;
    uint64_t len = 0;
    sl_status st = SL_OK;
    if (!o->prompt)
        st = sl_read_input(path, &text, &len, err);
    else if (!(text = strdup(o->prompt)))
        st = sl_fail(err, SL_ENOMEM, "out of memory");
    else
        len = strlen(text);
    if (!st)
        st = o->decode ? print_decoded(k, text, len, name, err) : print_encoded(k, text, len, err);
    free(text);
    return st;
}

/* ---- lines of JSON --------------------------------------------------------------------------- */
typedef struct line {
    sl_json_type id_type; /* NONE: there was none */
    char *id_text;
    uint64_t id_len;
    int64_t id_int;
    bool some; /* "text" or "ids" was there */
    char *text;
    uint64_t text_len;
} line;

static bool keep_text(sl_json_reader *r, char **out, uint64_t *len)
{
    sl_text t;
    if (!sl_json_read_string(r, &t))
        return false;
    free(*out);
    *out = malloc(t.len + 1);
    if (!*out)
        return sl_json_reject(r, SL_ENOMEM, "out of memory");
    memcpy(*out, t.data, t.len);
    (*out)[t.len] = 0;
    *len = t.len;
    return true;
}

static void read_id(sl_json_reader *r, line *l)
{
    l->id_type = sl_json_peek(r);
    if (l->id_type == SL_JSON_STRING)
        keep_text(r, &l->id_text, &l->id_len);
    else if (l->id_type == SL_JSON_NUMBER)
        sl_json_read_int(r, &l->id_int);
    else
        sl_json_reject(r, SL_EFORMAT, "\"id\" must be a string or a whole number");
}

static void read_ids(sl_json_reader *r, sl_ids *ids)
{
    for (bool any = sl_json_enter_array(r); any && sl_json_next_item(r);) {
        int64_t id;
        if (!sl_json_read_int(r, &id))
            return;
        if (id < 0 || id > INT32_MAX)
            sl_json_reject(r, SL_EFORMAT, "%" PRId64 " is not a token id", id);
        else if (sl_ids_push(ids, (int32_t)id, NULL))
            sl_json_reject(r, SL_ENOMEM, "out of memory");
    }
}

static sl_status read_line(tokenize *k, sl_json_reader *r, line *l)
{
    sl_text key;
    const char *wanted = k->o->decode ? "ids" : "text";
    for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);) {
        if (sl_text_is(key, "id")) {
            read_id(r, l);
        } else if (!sl_text_is(key, wanted)) {
            sl_json_skip(r);
        } else {
            l->some = true;
            if (k->o->decode)
                read_ids(r, &k->ids);
            else
                keep_text(r, &l->text, &l->text_len);
        }
    }
    if (!sl_json_failed(r) && !l->some)
        sl_json_reject(r, SL_EFORMAT, "there is no \"%s\"", wanted);
    return sl_json_read_end(r);
}

static sl_status write_line(tokenize *k, const line *l, const char *text, uint64_t len, sl_err *err)
{
    char *out = NULL;
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    sl_json_write_object(w, NULL);
    if (l->id_type == SL_JSON_STRING)
        sl_json_write_text(w, "id", (sl_text){l->id_text, l->id_len});
    else if (l->id_type == SL_JSON_NUMBER)
        sl_json_write_int(w, "id", l->id_int);
    if (k->o->decode) {
        sl_json_write_text(w, "text", (sl_text){text, len});
    } else {
        sl_json_write_array(w, "ids");
        for (uint64_t i = 0; i < k->ids.n; i++)
            sl_json_write_int(w, NULL, k->ids.id[i]);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
    sl_status st = sl_json_write_end(w, false, &out, err);
    if (!st)
        sl_outf("%s\n", out);
    free(out);
    sl_json_writer_free(&w);
    return st;
}

static sl_status one_line(tokenize *k, const char *text, uint64_t len, const char *name,
                          sl_err *err)
{
    line l = {0};
    char *decoded = NULL;
    uint64_t n = 0;
    sl_json_reader *r = NULL;
    k->ids.n = 0;
    sl_status st = sl_json_reader_of_text(text, len, name, &r, err);
    if (!st)
        st = read_line(k, r, &l);
    if (!st && k->o->decode)
        st = sl_tokenizer_decode(k->t, k->ids.id, k->ids.n, false, &decoded, &n, err);
    else if (!st)
        st = encode(k, l.text, l.text_len, err);
    if (!st)
        st = write_line(k, &l, decoded, n, err);
    sl_json_reader_close(&r);
    free(decoded);
    free(l.text);
    free(l.id_text);
    return st;
}

static sl_status lines(tokenize *k, sl_err *err)
{
    const char *path = k->o->file && strcmp(k->o->file, "-") ? k->o->file : NULL;
    FILE *in = path ? fopen(path, "rbe") : stdin;
    char *text = NULL, name[300];
    size_t cap = 0;
    ssize_t len;
    sl_status st = SL_OK;
    if (!in)
        return sl_fail_errno(err, errno, "%s: cannot open", path);
    for (uint64_t n = 1; !st && (len = getline(&text, &cap, in)) > 0; n++) {
        snprintf(name, sizeof name, "%.200s, line %" PRIu64, path ? path : "standard input", n);
        if (len > 0 && strspn(text, " \t\r\n") == (size_t)len)
            continue;
        st = one_line(k, text, (uint64_t)len, name, err);
        if (sl_out_failed())
            break;
    }
    if (!st && ferror(in))
        st = sl_fail_errno(err, errno, "%s: cannot read", path ? path : "standard input");
    free(text);
    if (path)
        fclose(in);
    return st;
}

static sl_status check_options(const sl_options *o, sl_err *err)
{
    if (o->prompt && o->file)
        return sl_fail(err, SL_EINVAL, "tokenize: give only one of --prompt and --file");
    if (o->prompt && o->jsonl)
        return sl_fail(err, SL_EINVAL, "tokenize: --jsonl reads a file or standard input");
    if (o->decode && (o->add_special || o->special >= 0))
        return sl_fail(err, SL_EINVAL,
                       "tokenize: --special and --add-special are about encoding; "
                       "they have no use with --decode");
    if (!o->prompt && !o->file && isatty(STDIN_FILENO))
        return sl_fail(err, SL_EINVAL,
                       "tokenize: no text: give --prompt TEXT or --file FILE, or pipe it in");
    return SL_OK;
}

int sl_cmd_tokenize(const sl_options *o)
{
    tokenize k = {.o = o};
    sl_err err = {0};
    if (check_options(o, &err))
        return sl_usage_error("%s", err.text);
    sl_status st = open_tokenizer(o->operand, &k.t, &err);
    if (!st)
        st = o->jsonl ? lines(&k, &err) : whole(&k, &err);
    if (st)
        sl_complain("%s", err.text);
    sl_tokenizer_close(&k.t);
    sl_ids_free(&k.ids);
    return st ? SL_EXIT_FAILED : SL_EXIT_OK;
}
