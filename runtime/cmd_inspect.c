/* sluice inspect: what a model file says about itself, and what a pass over it reads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../models/model.h"
#include "command.h"
#include "report.h"
#include "term.h"

typedef struct inspect {
    const sl_options *o;
    sl_checkpoint *own; /* when no family runs this file */
    const sl_checkpoint *c;
    sl_model *model; /* NULL: unsupported says why */
    sl_err unsupported;
} inspect;

static sl_status open_model(inspect *v, sl_err *err)
{
    sl_model_options mo = sl_model_defaults();
    sl_status st = sl_model_open(v->o->operand, &mo, &v->model, &v->unsupported);
    if (st == SL_OK) {
        v->c = sl_model_checkpoint(v->model);
        return SL_OK;
    }
    if (st == SL_ENOMEM)
        return sl_fail(err, st, "%s", v->unsupported.text);
    /* A file that no family takes can still be looked at. */
    st = sl_checkpoint_open(v->o->operand, &v->own, err);
    v->c = v->own;
    return st;
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Bytes of a text that may hold anything, cut and made visible. */
static void print_text(sl_text t)
{
    enum { MOST = 60 };
    uint64_t n = t.len < MOST ? t.len : MOST;
    while (n > 0 && n < t.len && ((unsigned char)t.data[n] & 0xc0) == 0x80)
        n--; /* not through the middle of a character */
    sl_out("\"", 1);
    for (uint64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)t.data[i];
        if (c < 0x20 || c == 0x7f)
            sl_outf("\\x%02x", c);
        else
            sl_out(&t.data[i], 1);
    }
    sl_outf("\"%s", n < t.len ? "..." : "");
    if (n < t.len)
        sl_outf(" (%" PRIu64 " bytes)", t.len);
}

static void print_number(const sl_meta *m)
{
    if (m->type == SL_META_BOOL)
        sl_outf("%s", m->v.u ? "true" : "false");
    else if (m->type == SL_META_F32 || m->type == SL_META_F64)
        sl_outf("%.9g", m->v.f);
    else if (m->type == SL_META_I8 || m->type == SL_META_I16 || m->type == SL_META_I32 ||
             m->type == SL_META_I64)
        sl_outf("%" PRId64, m->v.i);
    else
        sl_outf("%" PRIu64, m->v.u);
}

static void print_array(const sl_meta *m)
{
    enum { FIRST = 4 };
    sl_outf("%" PRIu64 " x %s", m->v.a.n, sl_meta_type_name(m->v.a.type));
    for (uint64_t i = 0; i < m->v.a.n && i < FIRST; i++) {
        double x;
        if (m->v.a.type == SL_META_STRING && !m->v.a.text)
            return; /* let go */
        sl_outf("%s", i ? ", " : ": ");
        if (m->v.a.text)
            print_text(m->v.a.text[i]);
        else if (sl_meta_array_number(m, i, &x))
            sl_outf("%.9g", x);
        else
            sl_outf("?");
    }
    sl_outf("%s", m->v.a.n > FIRST ? ", ..." : "");
}

static void print_meta(const inspect *v)
{
    uint32_t n = sl_checkpoint_meta_count(v->c);
    if (n)
        sl_outf("\nmetadata\n");
    for (uint32_t i = 0; i < n; i++) {
        const sl_meta *m = sl_checkpoint_meta(v->c, i);
        sl_outf("  %s = ", m->key);
        if (m->type == SL_META_STRING)
            print_text(m->v.s);
        else if (m->type == SL_META_ARRAY)
            print_array(m);
        else
            print_number(m);
        sl_out("\n", 1);
    }
}

static void print_files(const inspect *v)
{
    char bytes[SL_SHORT];
    uint32_t n = sl_checkpoint_file_count(v->c);
    sl_outf("%s, %" PRIu32 " file%s\n",
            sl_checkpoint_format(v->c) == SL_FORMAT_GGUF ? "GGUF" : "safetensors", n,
            n == 1 ? "" : "s");
    for (uint32_t i = 0; i < n; i++) {
        const sl_file *f = sl_checkpoint_file(v->c, i);
        sl_outf("  %s  %s\n", f->path, sl_show_bytes(bytes, f->size));
    }
}

static void print_config(const inspect *v)
{
    if (!v->model) {
        sl_outf("\nconfig\n  cannot be run: %s\n", v->unsupported.text);
        return;
    }
    sl_model_info m = sl_model_about(v->model);
    sl_outf("\nconfig\n  family       %s\n", m.family);
    if (*m.name)
        sl_outf("  name         %s\n", m.name);
    sl_outf("  parameters   %.3g million\n", (double)m.n_params / 1e6);
    sl_outf("  layers       %" PRIu32 "\n  width        %" PRIu32 "\n", m.n_layers, m.n_embd);
    if (m.n_delta_layers)
        sl_outf("  mixers       %" PRIu32 " gated delta nets, %" PRIu32 " attention\n",
                m.n_delta_layers, m.n_layers - m.n_delta_layers);
    sl_outf("  heads        %" PRIu32 " of %" PRIu32 ", %" PRIu32 " for keys and values\n",
            m.n_heads, m.head_dim, m.n_kv_heads);
    if (m.n_experts)
        sl_outf("  experts      %" PRIu32 " of %" PRIu32 " wide, %" PRIu32 " used per token%s\n",
                m.n_experts, m.n_ff_expert, m.n_used, m.n_ff_shared ? ", one more shared" : "");
    else
        sl_outf("  feed-forward %" PRIu32 "\n", m.n_ff);
    sl_outf("  vocabulary   %" PRIu32 "%s\n", m.n_vocab,
            m.tied ? ", head tied to the embedding" : "");
    sl_outf("  context      %" PRIu32 "\n  rope base    %g\n", m.n_ctx_max, m.rope_base);
    sl_outf("  bos, eos     %" PRId32 ", %" PRId32 "\n", m.bos, m.eos);
}

static void print_tensors(const inspect *v)
{
    char bytes[SL_SHORT], shape[SL_MAX_DIMS * 24];
    uint32_t n = sl_checkpoint_tensor_count(v->c);
    int widest = 4;
    for (uint32_t i = 0; i < n; i++) {
        int len = (int)strlen(sl_checkpoint_tensor(v->c, i)->name);
        widest = len > widest ? len : widest;
    }
    widest = widest > 60 ? 60 : widest;
    sl_outf("\n%" PRIu32 " tensors\n", n);
    for (uint32_t i = 0; i < n; i++) {
        const sl_tensor *t = sl_checkpoint_tensor(v->c, i);
        size_t used = 0;
        shape[0] = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64,
                                     d ? " x " : "", t->dims[d]);
        sl_outf("  %-*s  %-7s  %-18s  %10s  at %" PRIu64, widest, t->name,
                sl_dtype_about(t->type)->name, shape, sl_show_bytes(bytes, t->extent.len),
                t->extent.offset);
        if (sl_checkpoint_file_count(v->c) > 1)
            sl_outf(" of file %" PRIu32, t->extent.file + 1);
        sl_out("\n", 1);
    }
}

static void print_units(const inspect *v)
{
    char bytes[SL_SHORT];
    if (!v->model)
        return;
    const sl_plan *p = sl_model_plan(v->model);
    uint32_t n = sl_plan_part_count(p);
    sl_outf("\n%" PRIu32 " units, %" PRIu32 " parts, %s of weights per token\n",
            sl_plan_unit_count(p), n, sl_show_bytes(bytes, sl_plan_always_bytes(p)));
    for (uint32_t i = 0; i < n; i++) {
        sl_part_view part = sl_plan_part_view(p, i);
        sl_outf("  unit %-4" PRIu32 " %-20s  part %-5" PRIu32 " %3" PRIu32 " extent%s  %10s%s\n",
                part.unit, part.unit_name, i, part.n_extents, part.n_extents == 1 ? " " : "s",
                sl_show_bytes(bytes, part.len_bytes),
                part.kind == SL_PART_ON_DEMAND ? "  on demand" : "");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */
static void write_meta_array(sl_json_writer *w, const sl_meta *m)
{
    enum { LONGEST = 64 };
    if (m->v.a.n > LONGEST || m->v.a.items || (m->v.a.type == SL_META_STRING && !m->v.a.text)) {
        sl_json_write_object(w, m->key);
        sl_json_write_string(w, "array_of", sl_meta_type_name(m->v.a.type));
        sl_json_write_uint(w, "length", m->v.a.n);
        sl_json_write_close(w);
        return;
    }
    sl_json_write_array(w, m->key);
    for (uint64_t i = 0; i < m->v.a.n; i++) {
        int64_t integer;
        double x;
        if (m->v.a.text)
            sl_json_write_text(w, NULL, m->v.a.text[i]);
        else if (sl_meta_array_int(m, i, &integer))
            sl_json_write_int(w, NULL, integer);
        else if (sl_meta_array_number(m, i, &x))
            sl_json_write_double(w, NULL, x);
    }
    sl_json_write_close(w);
}

static void write_meta(sl_json_writer *w, const inspect *v)
{
    sl_json_write_object(w, "metadata");
    for (uint32_t i = 0; i < sl_checkpoint_meta_count(v->c); i++) {
        const sl_meta *m = sl_checkpoint_meta(v->c, i);
        if (m->type == SL_META_STRING)
            sl_json_write_text(w, m->key, m->v.s);
        else if (m->type == SL_META_ARRAY)
            write_meta_array(w, m);
        else if (m->type == SL_META_BOOL)
            sl_json_write_bool(w, m->key, m->v.u != 0);
        else if (m->type == SL_META_F32 || m->type == SL_META_F64)
            sl_json_write_double(w, m->key, m->v.f);
        else if (m->type == SL_META_I8 || m->type == SL_META_I16 || m->type == SL_META_I32 ||
                 m->type == SL_META_I64)
            sl_json_write_int(w, m->key, m->v.i);
        else
            sl_json_write_uint(w, m->key, m->v.u);
    }
    sl_json_write_close(w);
}

static void write_config(sl_json_writer *w, const inspect *v)
{
    if (!v->model) {
        sl_json_write_string(w, "unsupported", v->unsupported.text);
        return;
    }
    sl_model_info m = sl_model_about(v->model);
    sl_json_write_object(w, "config");
    sl_json_write_string(w, "family", m.family);
    sl_json_write_string(w, "name", m.name);
    sl_json_write_uint(w, "parameters", m.n_params);
    sl_json_write_uint(w, "layers", m.n_layers);
    sl_json_write_uint(w, "delta_layers", m.n_delta_layers);
    sl_json_write_uint(w, "width", m.n_embd);
    sl_json_write_uint(w, "heads", m.n_heads);
    sl_json_write_uint(w, "kv_heads", m.n_kv_heads);
    sl_json_write_uint(w, "head_dim", m.head_dim);
    sl_json_write_uint(w, "feed_forward", m.n_ff);
    sl_json_write_uint(w, "experts", m.n_experts);
    sl_json_write_uint(w, "experts_used", m.n_used);
    sl_json_write_uint(w, "expert_feed_forward", m.n_ff_expert);
    sl_json_write_uint(w, "shared_feed_forward", m.n_ff_shared);
    sl_json_write_uint(w, "vocabulary", m.n_vocab);
    sl_json_write_bool(w, "tied", m.tied);
    sl_json_write_uint(w, "context", m.n_ctx_max);
    sl_json_write_double(w, "rope_base", m.rope_base);
    sl_json_write_int(w, "bos", m.bos);
    sl_json_write_int(w, "eos", m.eos);
    sl_json_write_close(w);
}

static void write_tensors(sl_json_writer *w, const inspect *v)
{
    sl_json_write_array(w, "tensors");
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(v->c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(v->c, i);
        sl_json_write_object(w, NULL);
        sl_json_write_string(w, "name", t->name);
        sl_json_write_string(w, "type", sl_dtype_about(t->type)->name);
        sl_json_write_array(w, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++)
            sl_json_write_uint(w, NULL, t->dims[d]);
        sl_json_write_close(w);
        sl_json_write_uint(w, "file", t->extent.file);
        sl_json_write_uint(w, "offset", t->extent.offset);
        sl_json_write_uint(w, "bytes", t->extent.len);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

static void write_parts(sl_json_writer *w, const inspect *v)
{
    if (!v->model)
        return;
    const sl_plan *p = sl_model_plan(v->model);
    sl_json_write_uint(w, "units", sl_plan_unit_count(p));
    sl_json_write_uint(w, "weight_bytes_per_token", sl_plan_always_bytes(p));
    sl_json_write_array(w, "parts");
    for (uint32_t i = 0; i < sl_plan_part_count(p); i++) {
        sl_part_view part = sl_plan_part_view(p, i);
        sl_json_write_object(w, NULL);
        sl_json_write_uint(w, "unit", part.unit);
        sl_json_write_string(w, "unit_name", part.unit_name);
        sl_json_write_string(w, "kind", part.kind == SL_PART_ALWAYS ? "always" : "on demand");
        sl_json_write_uint(w, "extents", part.n_extents);
        sl_json_write_uint(w, "bytes", part.len_bytes);
        sl_json_write_uint(w, "slot_bytes", part.slot_bytes);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

static sl_status print_json(const inspect *v, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "format",
                         sl_checkpoint_format(v->c) == SL_FORMAT_GGUF ? "gguf" : "safetensors");
    sl_json_write_array(w, "files");
    for (uint32_t i = 0; i < sl_checkpoint_file_count(v->c); i++) {
        sl_json_write_object(w, NULL);
        sl_json_write_string(w, "path", sl_checkpoint_file(v->c, i)->path);
        sl_json_write_uint(w, "bytes", sl_checkpoint_file(v->c, i)->size);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
    write_config(w, v);
    write_meta(w, v);
    write_tensors(w, v);
    write_parts(w, v);
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

int sl_cmd_inspect(const sl_options *o)
{
    inspect v = {.o = o};
    sl_err err = {0};
    sl_status st = open_model(&v, &err);
    if (!st && o->json) {
        st = print_json(&v, &err);
    } else if (!st) {
        print_files(&v);
        print_config(&v);
        print_meta(&v);
        print_tensors(&v);
        print_units(&v);
    }
    if (st)
        sl_complain("%s", err.text);
    sl_model_close(&v.model);
    sl_checkpoint_close(&v.own);
    return st ? SL_EXIT_FAILED : SL_EXIT_OK;
}
