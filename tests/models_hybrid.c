/* Proves, for configs of models with gated delta nets: what the model is (kinds of layers, sizes);
 * that tensors of vision and drafts are left out with one note; that a config which says something
 * we do not run, or that does not fit the tensors, is refused with one line that names it. The
 * configs are made here, beside the weights of tests/data/models/qwen3_5_vl and qwen3_5_moe. */
#include "lib_model.h"

#include <limits.h>
#include <unistd.h>

#include "../models/model_impl.h"

static sl_err err;
static char dir[] = "/tmp/sluice-hybrid-XXXXXX", notes[1024];
static uint32_t n_notes;

static void take_note(void *ctx, sl_log_level level, const char *text)
{
    (void)ctx;
    n_notes++;
    snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%s%s;",
             level == SL_LOG_WARN ? "warning: " : "", text);
}

static void write_file(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(text, 1, len, f) == len && fclose(f) == 0, "%s", path);
}

/* A folder with model's weights and its config, in which every `from` (NULL: none) is `to`. */
static const char *folder_of(const char *model, const char *from, const char *to)
{
    static char path[sizeof dir + 64];
    char data[PATH_MAX], name[256], out[8192];
    size_t len = 0, n = 0;
    uint32_t found = 0;
    snprintf(name, sizeof name, "models/%s/model.safetensors", model);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    CHECK(realpath(test_data(name), data) && symlink(data, path) == 0, "%s", name);
    snprintf(name, sizeof name, "models/%s/config.json", model);
    char *text = test_read(test_data(name), &len);
    for (const char *at = text; at && *at;) {
        const bool here = from && !strncmp(at, from, strlen(from));
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s", here ? (int)strlen(to) : 1,
                              here ? to : at);
        at += here ? strlen(from) : 1;
        found += here;
    }
    CHECK(!from || found, "%s has no %s", name, from);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_file(path, out, n);
    free(text);
    return dir;
}

static sl_model *open_model(const char *path)
{
    sl_model *m = NULL;
    const sl_model_options o = sl_model_defaults();
    n_notes = 0;
    notes[0] = 0;
    err = (sl_err){0};
    return sl_model_open(path, &o, &m, &err) == SL_OK ? m : NULL;
}

static void check_kinds(const char *path, const char *kinds, const char *want_notes)
{
    test_case("%s", path);
    sl_model *m = open_model(path);
    if (!CHECK(m != NULL, "%s", err.text))
        return;
    const sl_model_info about = sl_model_about(m);
    uint32_t n_delta = 0;
    CHECK(about.n_layers == strlen(kinds), "%u layers", about.n_layers);
    for (uint32_t i = 0; i < about.n_layers && kinds[i]; i++) {
        const sl_layer *l = &m->arch.layer[i];
        n_delta += kinds[i] == 'd';
        CHECK((l->mixer == SL_MIXER_DELTA_NET) == (kinds[i] == 'd'), "layer %u", i);
        CHECK(l->mixer == SL_MIXER_DELTA_NET || l->attn_gate);
    }
    CHECK(about.n_delta_layers == n_delta && about.n_heads == 4 && about.head_dim == 64);
    CHECK(m->arch.rope.n_rot == 16, "%u dimensions turn", m->arch.rope.n_rot);
    CHECK(!strcmp(notes, want_notes), "notes: %s", notes);
    sl_model_close(&m);
}

static void refused(const char *model, const char *from, const char *to, const char *want)
{
    test_case("%s: %s", model, to);
    sl_model *m = open_model(folder_of(model, from, to));
    CHECK(!m && strstr(err.text, want) && !strchr(err.text, '\n'), "%s", m ? "opened" : err.text);
    sl_model_close(&m);
}

/* What a config may leave out, or says elsewhere. */
static void same(const char *model, const char *from, const char *to)
{
    test_case("%s: %s", model, to);
    sl_model *m = open_model(folder_of(model, from, to));
    CHECK(m && m->arch.layer[3].mixer == SL_MIXER_ATTENTION && m->arch.rope.n_rot == 16, "%s",
          err.text);
    sl_model_close(&m);
}

int main(void)
{
    const char *const vl = "qwen3_5_vl", *const moe = "qwen3_5_moe";
    if (!CHECK(mkdtemp(dir) != NULL))
        return test_end();
    sl_log_set(take_note, NULL);
    check_kinds(test_data("models/qwen3_5"), "dddaddda", "");
    check_kinds(test_data("models/qwen3_5-Q4_K_M.gguf"), "dddaddda", "");
    check_kinds(test_data("models/qwen3_5_vl"), "ddda",
                "not run: multi-token prediction (15 tensors), vision (21 tensors);");
    check_kinds(test_data("models/qwen3_5_moe"), "da",
                "not run: multi-token prediction (19 tensors), vision (21 tensors);");
    check_kinds(test_data("models/qwen3_5_moe-Q4_K_M.gguf"), "da",
                "not run: multi-token prediction (20 tensors);");

    same(vl, "\"layer_types\"", "\"not_layer_types\""); /* the interval says the same */
    same(vl, "\"attn_output_gate\": true,", "");

    refused(vl, "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 3",
            "4 value heads are not a multiple of 3 key heads");
    refused(vl, "\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 8",
            "linear_attn.in_proj_qkv.weight has shape [512, 256], the config asks for [768, 256]");
    refused(vl, "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3",
            "linear_attn.conv1d.weight has shape [512, 1, 4], the config asks for [512, 3]");
    refused(vl, "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 99",
            "linear_conv_kernel_dim is 99, expected 1 to 16");
    refused(vl, "\"linear_key_head_dim\": 64,", "", "no linear_key_head_dim");
    refused(vl, "\"linear_attention\"", "\"sliding_attention\"",
            "layer_types: sliding_attention is not supported");
    refused(vl, "\"full_attention\"", "\"linear_attention\"",
            "tensor model.language_model.layers.3.linear_attn.in_proj_qkv.weight is missing");
    refused(vl, "\"attn_output_gate\": true", "\"attn_output_gate\": false",
            "self_attn.q_proj.weight has shape [512, 256], the config asks for [256, 256]");
    refused(vl, "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.02",
            "partial_rotary_factor: rotary dimensions is 1, expected an even number");
    refused(vl, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5",
            "layer_types has 4 entries for 5 layers");
    refused(vl, "\"video_token_id\": 3", "\"quantization_config\": {\"quant_method\": \"awq\"}",
            "quantization_config.quant_method awq is not supported");
    refused(moe, "\"num_experts\": 8", "\"num_experts\": 4", "mlp.gate.weight has shape");
    char path[sizeof dir + 64];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
    return test_end();
}
