/* Proves, for a model with recurrent layers: the state after a prompt is the reference's; after a
 * rewind to any position the answer is, bit for bit, that of a session that never went on, with any
 * number of saved moments and any chunk, also when positions are taken back again and again as for
 * drafts; a pass that is stopped or whose reads fail costs nothing but time; repeated rows are not
 * reported; the price holds what is used. */
#include "lib_model.h"

#include <errno.h>

#include "../models/model_impl.h"

enum { T = 48, V = 512, LONG = 700 };
static const char *const folder = "models/qwen3_5_vl";
static sl_err err;

static int32_t ids[LONG];
static float want[LONG * V], logits[LONG * V];

/* ---- the reference ---- */

static void check_reference(void)
{
    sl_checkpoint *gold = NULL;
    loaded l;
    char path[256];
    int32_t prompt[T];
    uint64_t n = 0;
    test_case("state after the prompt");
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    setting s = setting_default();
    if (!CHECK(sl_checkpoint_open(test_data(path), &gold, &err) == SL_OK, "%s", err.text) ||
        !CHECK(load(test_data(folder), &s, &l, &err) == SL_OK, "%s", err.text))
        return;
    CHECK(golden_ids(gold, "tokens", prompt, T) == T);
    CHECK(eval(&l, prompt, T, false, logits, &err) == SL_OK, "%s", err.text);
    const sl_delta_net *d = &l.model->arch.layer[0].delta;
    const size_t C = sl_delta_channels(d), taps = d->n_taps;
    const float *conv = sl_state_of(&l.session->state, 0), *state = conv + (taps - 1) * C;
    float *gold_conv = golden(gold, "state.0.conv", &n); /* [C][taps], the oldest not needed */
    double worst = n == C * taps ? 0 : 1;
    for (size_t c = 0; c < C && n == C * taps; c++)
        for (size_t j = 0; j + 1 < taps; j++)
            worst =
                fmax(worst, fabs((double)conv[j * C + c] - (double)gold_conv[c * taps + j + 1]));
    CHECK(worst <= 1e-4, "convolution: %g", worst);
    float *gold_state = golden(gold, "state.0.recurrent", &n);
    CHECK(n == (uint64_t)d->n_v_heads * d->dim_k * d->dim_v);
    worst = max_difference(state, gold_state, (size_t)n, NULL);
    CHECK(worst <= 1e-4, "recurrent: %g", worst);
    free(gold_conv);
    free(gold_state);
    unload(&l);
    sl_checkpoint_close(&gold);
}

/* ---- rewinds ---- */

static bool open_long(loaded *l, uint32_t chunk, uint32_t saved)
{
    setting s = setting_default();
    s.n_ctx = LONG;
    s.chunk = chunk;
    s.saved_states = saved;
    return CHECK(load(test_data(folder), &s, l, &err) == SL_OK, "%s", err.text);
}

/* Evaluates ids[from .. to), wrong ones if so, in calls of n. Right ones must give the logits of
 * `want`. */
static void go(loaded *l, uint32_t from, uint32_t to, uint32_t n, bool wrong)
{
    int32_t some[LONG];
    for (uint32_t i = from; i < to; i += n) {
        const uint32_t rows = to - i < n ? to - i : n;
        for (uint32_t j = 0; j < rows; j++)
            some[j] = wrong ? (ids[i + j] + 7) % V : ids[i + j];
        if (!CHECK(eval(l, some, rows, true, logits, &err) == SL_OK, "%s", err.text))
            return;
        CHECK(wrong || !memcmp(logits, want + (size_t)i * V, (size_t)rows * V * sizeof *logits),
              "rows %u to %u differ", i, i + rows - 1);
    }
    CHECK(sl_session_length(l->session) == to);
}

/* Rows of which only the first `good` are right, in one pass; the others are taken back. */
static void draft(loaded *l, uint32_t at, uint32_t good, uint32_t bad)
{
    int32_t some[32];
    for (uint32_t j = 0; j < good + bad; j++)
        some[j] = j < good ? ids[at + j] : (ids[at + j] + 7) % V;
    CHECK(eval(l, some, good + bad, true, logits, &err) == SL_OK, "%s", err.text);
    CHECK(!memcmp(logits, want + (size_t)at * V, (size_t)good * V * sizeof *logits),
          "rows %u to %u differ", at, at + good - 1);
    CHECK(sl_session_rewind(l->session, at + good, &err) == SL_OK, "%s", err.text);
}

static void back(loaded *l, uint32_t length)
{
    CHECK(sl_session_rewind(l->session, length, &err) == SL_OK, "%s", err.text);
    CHECK(sl_session_length(l->session) == length);
}

static void check_rewinds(uint32_t chunk, uint32_t saved)
{
    loaded l;
    test_case("chunk %u, %u saved", chunk, saved);
    if (!open_long(&l, chunk, saved))
        return;
    go(&l, 0, 200, 200, false);
    go(&l, 200, 230, 10, true); /* moments are kept of a text that is then taken back */
    back(&l, 200);
    go(&l, 200, 240, 40, false);
    back(&l, 225);
    go(&l, 225, 230, 1, false);
    back(&l, 120);
    go(&l, 120, 140, 20, false);
    back(&l, 0);
    go(&l, 0, 60, 60, false);
    /* drafts: a few rows are checked at once, some of them are taken back */
    for (uint32_t at = 60, i = 0; at + 6 < 140; i++) {
        const uint32_t good = 1 + i % 4;
        draft(&l, at, good, 3);
        at += good;
    }
    back(&l, 60);
    back(&l, 60);
    go(&l, 60, LONG, 64, false);
    back(&l, LONG - 1);
    go(&l, LONG - 1, LONG, 1, false);
    unload(&l);
}

/* A rewind into the last pass repeats no more than that pass. */
typedef struct spy {
    uint32_t rows, first;
} spy;

static void see_hidden(void *ctx, uint32_t index, uint32_t first, uint32_t n, const float *rows)
{
    spy *s = ctx;
    (void)rows;
    if (index)
        return;
    s->first = s->rows ? s->first : first;
    s->rows += n;
}

static void check_repeats(void)
{
    loaded l;
    test_case("what is repeated");
    if (!open_long(&l, 32, 1))
        return;
    go(&l, 0, 100, 100, false);
    go(&l, 100, 108, 8, false);
    back(&l, 103);
    CHECK(sl_state_catch_up(&l.session->state, 103) == 3);
    spy s = {0};
    sl_eval e = {.ids = ids + 103, .n = 50, .hidden = see_hidden, .ctx = &s};
    CHECK(sl_session_eval(l.session, &e, &err) == SL_OK, "%s", err.text);
    CHECK(s.first == 103 && s.rows == 50, "hidden states of %u rows from %u on", s.rows, s.first);
    go(&l, 153, 155, 2, false);
    unload(&l);
}

/* ---- passes that do not end ---- */

static bool stop_after(void *ctx)
{
    return --*(int *)ctx < 0;
}

static void check_stops(uint32_t saved)
{
    loaded l;
    test_case("stopped at every unit, %u saved", saved);
    if (!open_long(&l, 64, saved))
        return;
    go(&l, 0, 70, 70, false);
    int units = 0, left = 0;
    uint32_t at = 70;
    do { /* each time one unit further, until it gets through */
        left = units++;
        sl_eval e = {.ids = ids + at, .n = 2, .cancel = stop_after, .ctx = &left};
        const sl_status st = sl_session_eval(l.session, &e, &err);
        CHECK(st == SL_OK || st == SL_ECANCELLED, "%s", err.text);
        at += st == SL_OK ? 2 : 0;
        CHECK(sl_session_length(l.session) == at);
        if (st != SL_OK && units % 3 == 0) {
            go(&l, at, at + 1, 1, false);
            at++;
        }
    } while (left < 0);
    CHECK(units > 10);
    go(&l, at, at + 30, 30, false);
    unload(&l);
}

static void check_failed_read(void)
{
    test_case("a read fails");
    uint32_t failed = 0;
    for (uint64_t n = 1; n < 400; n += 13) {
        loaded l;
        setting s = setting_default();
        s.memory = 0;
        s.part_bytes = 64 << 10;
        s.stream = sl_stream_defaults();
        s.stream.fail_read = n;
        s.stream.fail_errno = EIO;
        if (!CHECK(load(test_data(folder), &s, &l, &err) == SL_OK, "%s", err.text))
            return;
        for (uint32_t at = 0; at < 20;) {
            const sl_status st = eval(&l, ids + at, 5, true, logits, &err);
            failed += st != SL_OK;
            CHECK(st == SL_OK || st == SL_EIO, "%s", err.text);
            CHECK(st != SL_OK ||
                  !memcmp(logits, want + (size_t)at * V, (size_t)5 * V * sizeof *logits));
            at += st == SL_OK ? 5 : 0;
            CHECK(sl_session_length(l.session) == at);
        }
        unload(&l);
    }
    CHECK(failed > 5, "only %u reads failed", failed);
}

static void check_price(void)
{
    sl_model *m = NULL;
    test_case("price");
    const sl_model_options mo = sl_model_defaults();
    if (!CHECK(sl_model_open(test_data(folder), &mo, &m, &err) == SL_OK, "%s", err.text))
        return;
    sl_session_options o = sl_session_defaults(m);
    o.saved_states = 0;
    const sl_session_price none = sl_session_cost(m, &o, 2);
    o.saved_states = 2;
    const sl_session_price two = sl_session_cost(m, &o, 2);
    const uint64_t moment = 3 * (4 * 64 * 64 + 3 * 512) * sizeof(float); /* 3 such layers */
    CHECK(none.state_bytes >= moment && none.state_bytes < moment + (64 << 10));
    CHECK(two.state_bytes == none.state_bytes + 2 * moment);
    CHECK(two.kv_bytes == none.kv_bytes);
    CHECK(none.kv_bytes == 2 * 2 * 64 * sizeof(uint16_t) * (uint64_t)o.n_ctx, "one layer's");
    sl_model_close(&m);
}

int main(void)
{
    uint64_t seed = 11;
    loaded l;
    for (int i = 0; i < LONG; i++)
        ids[i] = (int32_t)(test_random(&seed) % V);
    check_reference();
    test_case("baseline");
    if (!open_long(&l, 512, 0) ||
        !CHECK(eval(&l, ids, LONG, true, want, &err) == SL_OK, "%s", err.text))
        return test_end();
    unload(&l);
    for (uint32_t saved = 0; saved < 4; saved++)
        check_rewinds(saved % 2 ? 64 : 16, saved);
    check_repeats();
    for (uint32_t saved = 0; saved < 3; saved++)
        check_stops(saved);
    check_failed_read();
    check_price();
    return test_end();
}
