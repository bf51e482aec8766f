#include "expect.h"

#include <math.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double above(double a, double b)
{
    return a > b ? a - b : 0;
}

static double experts_used(const sl_expect *x, const sl_split *s)
{
    const sl_expect_experts *e = &x->experts;
    return e->n_experts ? (double)s->on_demand_bytes / e->n_experts * e->n_used : 0;
}

static double compute_of(const sl_expect *x, double read_bytes)
{
    return x->token_s + (x->cores_shared ? read_bytes * x->disk.cpu_s_per_byte : 0);
}

/* Dense: the ring reads ahead across the token's end, so that reading and computing overlap
 * throughout, and the slower of the two decides. */
static void decode_dense(const sl_expect *x, const sl_split *s, sl_expectation *out)
{
    out->read_s = (double)s->streamed_bytes / x->disk.bytes_per_s;
    out->compute_s = compute_of(x, (double)s->streamed_bytes);
    out->wait_s = above(out->read_s, out->compute_s);
}

/* ---- experts --------------------------------------------------------------------------------- */
/* What a layer waits. Missing experts that were guessed went out a layer before, the others when
 * the router has spoken; either way the first bytes take the disk's latency, and experts that are
 * there are computed meanwhile. */
typedef struct layer {
    double compute_s; /* from one router to the next */
    double experts_s; /* of that, on the experts */
    double first_s;   /* for an expert that is asked for alone */
    double expert_s;  /* for one more that is asked for with it: its bytes */
    uint32_t n_used;
} layer;

static double burst(const layer *l, double n)
{
    return n > 0 ? l->first_s + above(n, 1) * l->expert_s : 0;
}

static double layer_wait(const layer *l, uint32_t guessed, uint32_t demanded, double wasted)
{
    const double late = above(burst(l, guessed * (1 + wasted)), l->compute_s);
    const double wait = late + burst(l, demanded);
    /* What is there is computed meanwhile. */
    const double other = 1 - (double)(guessed + demanded) / l->n_used;
    return above(wait, other * l->experts_s);
}

/* Chance of i of n with probability p each. */
static double binomial(uint32_t n, uint32_t i, double p)
{
    if (p <= 0 || p >= 1)
        return i == (p <= 0 ? 0 : n);
    return exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) + i * log(p) +
               (n - i) * log(1 - p));
}

static double expected_wait(const layer *l, const sl_expect_experts *e)
{
    const double miss = 1 - e->hit_rate;
    double sum = 0;
    for (uint32_t missing = 1; missing <= e->n_used; missing++) {
        const double chance = binomial(e->n_used, missing, miss);
        for (uint32_t guessed = 0; guessed <= missing && chance > 1e-9; guessed++)
            sum += chance * binomial(missing, guessed, e->recall) *
                   layer_wait(l, guessed, missing - guessed, e->wasted);
    }
    return sum;
}

/* An expert is read in pieces that are on their way together: the first as long as one alone. */
static double alone(const sl_disk_speed *d, double bytes)
{
    const double piece = (double)sl_stream_defaults().piece_bytes;
    return bytes < piece ? sl_disk_alone(d, bytes)
                         : sl_disk_alone(d, piece) + (bytes - piece) / d->scattered_bytes_per_s;
}

static void decode_experts(const sl_expect *x, const sl_split *s, sl_expectation *out)
{
    const sl_expect_experts *e = &x->experts;
    const double used = experts_used(x, s), missing = used * (1 - e->hit_rate);
    const double read = missing * (1 + e->recall * e->wasted);
    out->read_bytes += (uint64_t)read;
    out->read_s =
        (double)s->streamed_bytes / x->disk.bytes_per_s + read / x->disk.scattered_bytes_per_s;
    out->compute_s = compute_of(x, (double)out->read_bytes);
    const double each = out->compute_s / e->n_layers;
    const double expert = (double)s->on_demand_bytes / s->on_demand_parts;
    const layer l = {.compute_s = each,
                     .experts_s = each * used / (double)out->used_bytes,
                     .first_s = alone(&x->disk, expert),
                     .expert_s = expert / x->disk.scattered_bytes_per_s,
                     .n_used = e->n_used};
    out->wait_s = e->n_layers * expected_wait(&l, e);
    /* What streams beside the experts takes turns with them: no more overlap than this. */
    out->wait_s = larger(out->wait_s, above(out->read_s, out->compute_s));
}

/* ---- prompts --------------------------------------------------------------------------------- */
/* Bytes that a prefill pass of so many rows reads: what streams, and of the experts that some row
 * uses those that have no place. */
static double pass_bytes(const sl_expect *x, const sl_split *s, double rows)
{
    const sl_expect_experts *e = &x->experts;
    if (!e->n_layers)
        return (double)s->streamed_bytes;
    const double wanted = 1 - pow(1 - (double)e->n_used / e->n_experts, rows);
    const double there = (double)s->pool_slots / s->on_demand_parts;
    return (double)s->streamed_bytes + (double)s->on_demand_bytes * above(wanted, there);
}

static void prompt(const sl_expect *x, const sl_split *s, sl_expectation *out)
{
    const double rate = x->disk.bytes_per_s;
    double total = 0, left = x->prompt;
    while (left > 0) {
        const double rows = left < x->chunk ? left : x->chunk;
        total += larger(pass_bytes(x, s, rows) / rate, rows * x->row_s);
        left -= rows;
    }
    const double rows = x->prompt < x->chunk ? x->prompt : x->chunk;
    const double again = pass_bytes(x, s, rows);
    const double all =
        (double)s->weights_bytes +
        (x->experts.n_layers ? again - (double)s->streamed_bytes + (double)s->pool_bytes : 0);
    out->prompt_row_s = total / x->prompt;
    out->first_prompt_s =
        total - larger(again / rate, rows * x->row_s) + larger(all / rate, rows * x->row_s);
}

sl_expectation sl_expect_of(const sl_expect *x, const sl_split *s)
{
    sl_expectation out = {.read_bytes = s->streamed_bytes};
    const double used = experts_used(x, s);
    out.used_bytes = s->weights_bytes + (uint64_t)used;
    if (x->disk.bytes_per_s <= 0 || x->token_s <= 0)
        return out;
    if (x->experts.n_layers)
        decode_experts(x, s, &out);
    else
        decode_dense(x, s, &out);
    out.token_s = out.compute_s + out.wait_s;
    const double missing = (double)s->streamed_bytes + used * (1 - x->experts.hit_rate);
    out.bound_s =
        larger(missing / x->disk.bytes_per_s,
               x->memory_bytes_per_s > 0 ? (double)out.used_bytes / x->memory_bytes_per_s : 0);
    if (x->row_s > 0 && x->prompt && x->chunk)
        prompt(x, s, &out);
    return out;
}
