#include "sample.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct sl_sampler {
    sl_sample_options o;
    uint32_t n_vocab;
    uint64_t rng[4];
    int32_t last[SL_REPEAT_WINDOW]; /* a ring: entry n_seen % SL_REPEAT_WINDOW is the oldest */
    uint64_t n_seen;
    double *weight; /* [n_vocab] */
    candidate c[];  /* [n_vocab] */
};

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

/* xoshiro256**, the upper 53 bits as a double in [0, 1). */
static double next_uniform(uint64_t s[4])
{
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

uint64_t sl_sampler_bytes(uint32_t n_vocab)
{
    return sizeof(sl_sampler) + (uint64_t)n_vocab * (sizeof(candidate) + sizeof(double));
}

sl_sampler *sl_sampler_new(uint32_t n_vocab, const sl_sample_options *o)
{
    sl_sampler *s = calloc(1, sizeof *s + n_vocab * sizeof s->c[0]);
    if (!s)
        return NULL;
    s->weight = calloc(n_vocab ? n_vocab : 1, sizeof s->weight[0]);
    if (!s->weight) {
        free(s);
        return NULL;
    }
    s->o = *o;
    s->n_vocab = n_vocab;
    uint64_t seed = o->seed;
    for (int i = 0; i < 4; i++)
        s->rng[i] = splitmix(&seed);
    return s;
}

void sl_sampler_free(sl_sampler **s)
{
    if (!s || !*s)
        return;
    free((*s)->weight);
    free(*s);
    *s = NULL;
}

void sl_sampler_accept(sl_sampler *s, int32_t id)
{
    s->last[s->n_seen++ % SL_REPEAT_WINDOW] = id;
}

/* The order of everything below: greater logit first, then lower id. */
static bool before(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void penalise(sl_sampler *s)
{
    uint32_t n = s->n_seen < SL_REPEAT_WINDOW ? (uint32_t)s->n_seen : SL_REPEAT_WINDOW;
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = s->last[i];
        bool again = false; /* a token counts once, however often it came */
        for (uint32_t j = 0; j < i; j++)
            again |= s->last[j] == id;
        if (again || id < 0 || (uint32_t)id >= s->n_vocab)
            continue;
        double x = (double)s->c[id].logit;
        s->c[id].logit = (float)(x > 0 ? x / s->o.repeat_penalty : x * s->o.repeat_penalty);
    }
}

static int32_t best_of(const candidate *c, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (before(c[i], c[best]))
            best = i;
    return c[best].id;
}

static void sift_down(candidate *c, uint32_t n, uint32_t i)
{
    candidate x = c[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(c[child + 1], c[child]))
            child++;
        if (!before(c[child], x))
            break;
        c[i] = c[child];
    }
    c[i] = x;
}

/* Best first, lazily: a heap of the n_left candidates not yet taken lies at c[0]; taken ones go to
 * the end of the array, the best one last. So top-k costs n + k log n, and top-p only what it
 * keeps. */
static candidate take_best(candidate *c, uint32_t *n_left)
{
    candidate best = c[0];
    c[0] = c[--*n_left];
    c[*n_left] = best;
    sift_down(c, *n_left, 0);
    return best;
}

static void reverse(candidate *c, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        candidate x = c[i];
        c[i] = c[n - 1 - i];
        c[n - 1 - i] = x;
    }
}

/* Sum of exp(logit - best) over all candidates, in id order. */
static double total_of(const candidate *c, uint32_t n, float best)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)c[i].logit - (double)best);
    return sum;
}

/* Leaves the best by top-k and top-p in c[0 .. result), best first. total: the sum that top-p's
 * probabilities refer to when top-k keeps all. */
static uint32_t keep_best(sl_sampler *s)
{
    uint32_t n = s->n_vocab, kept = 0;
    uint32_t most = s->o.top_k && s->o.top_k < n ? (uint32_t)s->o.top_k : n;
    candidate *c = s->c;
    double total = 0, sum = 0;
    if (most == n && s->o.top_p < 1) {
        float best = c[0].logit;
        for (uint32_t i = 1; i < n; i++)
            best = c[i].logit > best ? c[i].logit : best;
        total = total_of(c, n, best);
    }
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(c, n, i);
    uint32_t left = n;
    float best = c[0].logit;
    while (kept < most && !(total > 0 && kept && sum >= s->o.top_p * total)) {
        candidate x = take_best(c, &left);
        sum += exp((double)x.logit - (double)best);
        kept++;
    }
    reverse(c, n); /* taken ones come first now, in the order they were taken */
    if (total > 0 || s->o.top_p >= 1)
        return kept;
    double part = 0; /* top-p within the top-k */
    for (uint32_t i = 0; i < kept; i++) {
        part += exp((double)c[i].logit - (double)best);
        if (part >= s->o.top_p * sum)
            return i + 1;
    }
    return kept;
}

/* One of c[0 .. n) with probability proportional to exp(logit / temp), those under min-p left out.
 */
static int32_t draw(sl_sampler *s, uint32_t n)
{
    const candidate *c = s->c;
    float best = c[0].logit;
    for (uint32_t i = 1; i < n; i++)
        best = c[i].logit > best ? c[i].logit : best;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)c[i].logit - (double)best;
        bool dropped = s->o.min_p > 0 && exp(x) < s->o.min_p;
        s->weight[i] = dropped ? 0 : exp(x / s->o.temp);
        sum += s->weight[i];
    }
    double at = next_uniform(s->rng) * sum;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->weight[i] <= 0)
            continue;
        last = i;
        at -= s->weight[i];
        if (at < 0)
            break;
    }
    return c[last].id;
}

int32_t sl_sampler_pick(sl_sampler *s, const float *logits)
{
    uint32_t n = s->n_vocab;
    for (uint32_t i = 0; i < n; i++)
        s->c[i] = (candidate){logits[i], (int32_t)i};
    if (s->o.repeat_penalty != 1)
        penalise(s);
    if (s->o.temp <= 0 || s->o.top_k == 1)
        return best_of(s->c, n);
    if ((s->o.top_k && s->o.top_k < n) || s->o.top_p < 1)
        n = keep_best(s);
    return draw(s, n);
}
