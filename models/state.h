/* What delta nets remember of a sequence, and copies of earlier moments, so that a sequence can be
 * rewound: there is no way back from a state, only forward from an earlier one. A session owns one;
 * the pass changes it in place, layer by layer (delta_net.c). Private to models/.
 *
 * A moment is a number of tokens seen. Moment 0 (all zero) is always known. Copies are taken when a
 * pass of several new rows begins, so that drafts can be taken back, and when the newest one is
 * SL_STATE_STEP tokens old; when all places are taken, the copy goes whose loss leaves the smallest
 * gap. After a pass that failed some layers have moved on and some have not: the state is torn, and
 * is made again from a copy. */
#ifndef SL_STATE_H
#define SL_STATE_H

#include "arch.h"

enum { SL_MAX_SAVED = 16, SL_STATE_STEP = 256 };
#define SL_STATE_NONE UINT32_MAX

typedef struct sl_state {
    size_t n_floats; /* of one moment, all layers; 0: no layer remembers anything, nothing below
                        counts */
    uint64_t map_bytes;
    float *moment;   /* current; then n_saved copies */
    size_t *layer;   /* [n_layers] offset in a moment: inputs of the convolution [n_taps - 1]
                        [channels], then [n_v_heads][dim_k][dim_v] */
    int32_t *tokens; /* [n_ctx] what was evaluated */
    uint32_t length; /* of the current moment; SL_STATE_NONE: torn */
    uint32_t n_saved;
    uint32_t saved[SL_MAX_SAVED]; /* moments of the copies; 0: none */
    /* of the running pass */
    uint32_t keep_row, keep_slot; /* a copy is taken before this row; SL_STATE_NONE: none */
    uint32_t keep_length;
} sl_state;

uint64_t sl_state_bytes(const sl_arch *a, uint32_t n_ctx, uint32_t n_saved);
sl_status sl_state_open(sl_state *s, const sl_arch *a, uint32_t n_ctx, uint32_t n_saved,
                        sl_err *err);
void sl_state_close(sl_state *s);

/* Goes to the newest known moment up to length tokens. Returns how many tokens are missing from
 * there to length: the next pass begins with these, from s->tokens. */
uint32_t sl_state_catch_up(sl_state *s, uint32_t length);
/* Moments after length are not known any more. */
void sl_state_forget(sl_state *s, uint32_t length);
/* A pass of n rows begins at s->length, the first again of them only to catch up. */
void sl_state_pass_begin(sl_state *s, uint32_t n, uint32_t again);
/* length: of the current moment now, or SL_STATE_NONE: the pass failed. */
void sl_state_pass_end(sl_state *s, uint32_t length);

/* The layer in the current moment. */
float *sl_state_of(const sl_state *s, uint32_t layer);
/* Before row keep_row: copies the layer. */
void sl_state_keep(sl_state *s, uint32_t layer, const sl_delta_net *d);

#endif
