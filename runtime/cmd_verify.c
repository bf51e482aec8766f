/* sluice verify: reads every byte of every tensor; names the first value that is not finite. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../models/model.h"
#include "command.h"
#include "report.h"
#include "scan.h"
#include "term.h"

typedef struct verify {
    const sl_options *o;
    sl_checkpoint *own;     /* when no family runs this file */
    const sl_checkpoint *c; /* of the model, or own */
    sl_model *model;
    sl_err cannot_run, no_text; /* SL_EUNSUPPORTED: the family; the tokenizer */
    unsigned char *buffer;
    uint64_t done, total;
    sl_progress progress;
} verify;

static const uint64_t BUFFER = 4 << 20;

/* A file of tensors that nothing beside it makes a model: there are only the tensors to check. */
static bool is_bare_file(const char *path)
{
    static const char ending[] = ".safetensors";
    struct stat st;
    size_t len = strlen(path), folder = len;
    char *config = NULL;
    if (len < sizeof ending || strcmp(path + len - (sizeof ending - 1), ending))
        return false;
    while (folder && path[folder - 1] != '/')
        folder--;
    if (stat(path, &st) || !S_ISREG(st.st_mode) ||
        asprintf(&config, "%.*sconfig.json", (int)folder, path) < 0)
        return false;
    bool bare = access(config, F_OK) != 0;
    free(config);
    return bare;
}

/* A family that cannot be run is read all the same, and said at the end. A sound tokenizer of a
 * kind that this build has not is no fault of the file: it runs on ids. Anything else ends it here.
 */
static sl_status open_model(verify *v, sl_err *err)
{
    sl_model_options mo = sl_model_defaults();
    const sl_tokenizer *t;
    if (!is_bare_file(v->o->operand)) {
        sl_status st = sl_model_open(v->o->operand, &mo, &v->model, &v->cannot_run);
        if (st == SL_OK) {
            v->c = sl_model_checkpoint(v->model);
            st = sl_model_tokenizer(v->model, &t, &v->no_text);
            return st == SL_OK || st == SL_EUNSUPPORTED ? SL_OK
                                                        : sl_fail(err, st, "%s", v->no_text.text);
        }
        if (st != SL_EUNSUPPORTED)
            return sl_fail(err, st, "%s", v->cannot_run.text);
    }
    sl_status st = sl_checkpoint_open(v->o->operand, &v->own, err);
    v->c = v->own;
    return st;
}

static sl_status bad_block(const verify *v, const sl_tensor *t, uint64_t block, sl_err *err)
{
    const sl_dtype_info *type = sl_dtype_about(t->type);
    char where[64] = "";
    uint64_t cols = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    if (t->n_dims > 1 && cols)
        snprintf(where, sizeof where, " (row %" PRIu64 ", column %" PRIu64 ")",
                 block * type->block_values / cols, block * type->block_values % cols);
    return sl_fail(err, SL_EFORMAT,
                   "%s: tensor %s, block %" PRIu64 "%s at offset %" PRIu64 ": its %s is not finite",
                   sl_checkpoint_file(v->c, t->extent.file)->path, t->name, block, where,
                   t->extent.offset + block * type->block_bytes,
                   type->block_values == 1 ? "value" : "scale");
}

static sl_status check_tensor(verify *v, const sl_tensor *t, sl_err *err)
{
    const sl_file *f = sl_checkpoint_file(v->c, t->extent.file);
    uint32_t block = sl_dtype_about(t->type)->block_bytes;
    uint64_t step = BUFFER / block * block;
    for (uint64_t at = 0; at < t->extent.len; at += step) {
        uint64_t len = t->extent.len - at < step ? t->extent.len - at : step;
        sl_status st = sl_file_read(f, t->extent.offset + at, v->buffer, len, err);
        if (st)
            return st;
        sl_file_forget(f, t->extent.offset + at, len);
        uint64_t n = len / block, bad = sl_scan_blocks(t->type, v->buffer, n);
        if (bad < n)
            return bad_block(v, t, at / block + bad, err);
        v->done += len;
        sl_progress_update(&v->progress, v->done);
        if (sl_interrupted())
            return sl_fail(err, SL_ECANCELLED, "interrupted");
    }
    return SL_OK;
}

static sl_status check_all(verify *v, sl_err *err)
{
    uint32_t n = sl_checkpoint_tensor_count(v->c);
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < n; i++)
        v->total += sl_checkpoint_tensor(v->c, i)->extent.len;
    v->buffer = malloc(BUFFER);
    if (!v->buffer)
        return sl_fail(err, SL_ENOMEM, "out of memory for the read buffer");
    sl_interrupt_catch();
    sl_progress_begin(&v->progress, "verifying", v->total, true);
    for (uint32_t i = 0; !st && i < n; i++)
        st = check_tensor(v, sl_checkpoint_tensor(v->c, i), err);
    sl_progress_end(&v->progress);
    return st;
}

static sl_status print_json(const verify *v, sl_status found, const sl_err *why, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_bool(w, "ok", found == SL_OK);
    sl_json_write_string(w, "error", found ? why->text : NULL);
    sl_json_write_uint(w, "tensors", v->c ? sl_checkpoint_tensor_count(v->c) : 0);
    sl_json_write_uint(w, "bytes", v->done);
    sl_json_write_string(w, "no_text", v->no_text.code ? v->no_text.text : NULL);
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

static void print_text(const verify *v)
{
    char bytes[SL_SHORT];
    sl_outf("%s: ok: %" PRIu32 " tensors, %s, every value finite\n", v->o->operand,
            sl_checkpoint_tensor_count(v->c), sl_show_bytes(bytes, v->done));
    if (v->no_text.code)
        sl_outf("runs on token ids only: %s\n", v->no_text.text);
}

int sl_cmd_verify(const sl_options *o)
{
    verify v = {.o = o};
    sl_err err = {0}, print_err = {0};
    sl_status st = open_model(&v, &err);
    if (!st)
        st = check_all(&v, &err);
    if (!st && v.cannot_run.code)
        st = sl_fail(&err, v.cannot_run.code, "%s", v.cannot_run.text);
    if (o->json && st != SL_ECANCELLED && print_json(&v, st, &err, &print_err))
        sl_complain("%s", print_err.text);
    if (st)
        sl_complain("%s", err.text);
    else if (!o->json)
        print_text(&v);
    free(v.buffer);
    sl_model_close(&v.model);
    sl_checkpoint_close(&v.own);
    return !st ? SL_EXIT_OK : sl_interrupted() ? sl_interrupt_exit() : SL_EXIT_FAILED;
}
