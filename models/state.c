/* The recurrent state of a session: memory, copies, the way back. */
#include "state.h"

#include <string.h>
#include <sys/mman.h>

#include "model_impl.h"

static size_t layer_floats(const sl_delta_net *d)
{
    return (d->n_taps - 1) * sl_delta_channels(d) + (size_t)d->n_v_heads * d->dim_k * d->dim_v;
}

static size_t moment_floats(const sl_arch *a)
{
    size_t n = 0;
    for (uint32_t i = 0; i < a->n_layers; i++)
        if (a->layer[i].mixer == SL_MIXER_DELTA_NET)
            n += (size_t)sl_round_up(layer_floats(&a->layer[i].delta), 16);
    return n;
}

uint64_t sl_state_bytes(const sl_arch *a, uint32_t n_ctx, uint32_t n_saved)
{
    const uint64_t floats = moment_floats(a);
    if (!floats)
        return 0;
    return sl_round_up((1 + (uint64_t)n_saved) * floats * sizeof(float) +
                           a->n_layers * sizeof(size_t) + n_ctx * sizeof(int32_t),
                       4096);
}

sl_status sl_state_open(sl_state *s, const sl_arch *a, uint32_t n_ctx, uint32_t n_saved,
                        sl_err *err)
{
    memset(s, 0, sizeof *s);
    s->keep_row = SL_STATE_NONE;
    s->map_bytes = sl_state_bytes(a, n_ctx, n_saved);
    if (!s->map_bytes)
        return SL_OK;
    s->moment = sl_pages_map(s->map_bytes);
    if (!s->moment)
        return sl_fail(err, SL_ENOMEM, "out of memory for the state of a sequence");
    s->n_floats = moment_floats(a);
    s->n_saved = n_saved;
    s->layer = (size_t *)(void *)(s->moment + (1 + (size_t)n_saved) * s->n_floats);
    s->tokens = (int32_t *)(void *)(s->layer + a->n_layers);
    size_t at = 0;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        s->layer[i] = at;
        if (a->layer[i].mixer == SL_MIXER_DELTA_NET)
            at += (size_t)sl_round_up(layer_floats(&a->layer[i].delta), 16);
    }
    return SL_OK;
}

void sl_state_close(sl_state *s)
{
    if (s->moment)
        munmap(s->moment, s->map_bytes);
    memset(s, 0, sizeof *s);
}

float *sl_state_of(const sl_state *s, uint32_t layer)
{
    return s->moment + s->layer[layer];
}

static float *copy_of(const sl_state *s, uint32_t slot)
{
    return s->moment + (1 + (size_t)slot) * s->n_floats;
}

void sl_state_keep(sl_state *s, uint32_t layer, const sl_delta_net *d)
{
    memcpy(copy_of(s, s->keep_slot) + s->layer[layer], sl_state_of(s, layer),
           layer_floats(d) * sizeof(float));
}

uint32_t sl_state_catch_up(sl_state *s, uint32_t length)
{
    if (!s->n_floats)
        return 0;
    if (s->length != SL_STATE_NONE && s->length <= length)
        return length - s->length;
    uint32_t best = 0, slot = 0;
    for (uint32_t i = 0; i < s->n_saved; i++) {
        if (s->saved[i] > best && s->saved[i] <= length) {
            best = s->saved[i];
            slot = i;
        }
    }
    if (best)
        memcpy(s->moment, copy_of(s, slot), s->n_floats * sizeof(float));
    else
        memset(s->moment, 0, s->n_floats * sizeof(float));
    s->length = best;
    return length - best;
}

void sl_state_forget(sl_state *s, uint32_t length)
{
    for (uint32_t i = 0; i < s->n_saved; i++)
        if (s->saved[i] > length)
            s->saved[i] = 0;
}

/* Where a copy of a moment later than all saved ones goes. */
static uint32_t choose_slot(const sl_state *s, uint32_t length)
{
    uint32_t best = 0, least = UINT32_MAX;
    for (uint32_t i = 0; i < s->n_saved; i++) {
        uint32_t before = 0, after = length;
        if (!s->saved[i])
            return i;
        for (uint32_t j = 0; j < s->n_saved; j++) {
            if (s->saved[j] < s->saved[i] && s->saved[j] > before)
                before = s->saved[j];
            if (s->saved[j] > s->saved[i] && s->saved[j] < after)
                after = s->saved[j];
        }
        if (after - before < least) {
            least = after - before;
            best = i;
        }
    }
    return best;
}

void sl_state_pass_begin(sl_state *s, uint32_t n, uint32_t again)
{
    s->keep_row = SL_STATE_NONE;
    if (!s->n_floats)
        return;
    const uint32_t row = again < n ? again : 0, length = s->length + row;
    uint32_t newest = 0;
    for (uint32_t i = 0; i < s->n_saved; i++)
        newest = s->saved[i] > newest ? s->saved[i] : newest;
    const uint32_t current = s->length;
    s->length = SL_STATE_NONE;
    if (!s->n_saved || length <= newest || (n - again <= 1 && length - newest < SL_STATE_STEP))
        return;
    const uint32_t slot = choose_slot(s, length);
    if (length == current) { /* whole at once, so that a pass that fails costs nothing */
        memcpy(copy_of(s, slot), s->moment, s->n_floats * sizeof(float));
        s->saved[slot] = length;
        return;
    }
    s->keep_row = row;
    s->keep_slot = slot;
    s->keep_length = length;
    s->saved[slot] = 0; /* until it is whole */
}

void sl_state_pass_end(sl_state *s, uint32_t length)
{
    if (!s->n_floats)
        return;
    s->length = length;
    if (length != SL_STATE_NONE && s->keep_row != SL_STATE_NONE)
        s->saved[s->keep_slot] = s->keep_length;
}
