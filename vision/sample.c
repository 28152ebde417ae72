/* Choosing the next token. Contract in include/qkv_vision.h. */
#include <math.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/splitmix.h"
#include "base/versioned.h"
#include "qkv_vision.h"
#include "vision/vision.h"

enum { NEVER = -60 }; /* e to this is less than a double's share of 1 */

typedef struct Choice {
    double p; /* the logit, then its share */
    int64_t id;
} Choice;

static int64_t largest(const float *logits, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best])) best = i;
    return best;
}

/* The most likely first; of equal ones the lower id. */
static int by_share(const void *x, const void *y)
{
    const Choice *a = x, *b = y;
    if (a->p != b->p) return a->p > b->p ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* Shares of the first `kept` of sorted logits, after top_k and top_p. */
static int64_t shares(Choice *c, int64_t n, const qkv_sample_options *o)
{
    int64_t kept = o->top_k > 0 && o->top_k < n ? o->top_k : n, last = 0;
    double sum = 0, reached = 0, highest = c[0].p;
    for (int64_t i = 0; i < kept; i++) sum += c[i].p = exp((c[i].p - highest) / o->temperature);
    if (!(o->top_p > 0 && o->top_p < 1)) return kept;
    while (last < kept && reached < o->top_p * sum) reached += c[last++].p;
    return last ? last : 1;
}

static int64_t draw(const Choice *c, int64_t n, uint64_t *state)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].p;
    double at = splitmix_uniform(state) * sum;
    for (int64_t i = 0; i < n; i++)
        if ((at -= c[i].p) < 0) return c[i].id;
    return c[n - 1].id;
}

int64_t qkv_sample(const float *logits, int64_t n, const qkv_sample_options *options, uint64_t *state, qkv_error *err)
{
    Err e = vision_begin();
    qkv_sample_options o = {0};
    bool ok = GIVEN(logits) && VERSIONED_TAKE(qkv_sample_options, top_p, &o, options, &e);
    int64_t best = ok ? largest(logits, n) : -1, count = 0;
    if (ok && best < 0) ok = fail(&e, E_USAGE, "none of the %lld logits is a number", (long long)n);
    if (ok && (!(o.temperature >= 0) || o.top_k < 0 || !(o.top_p >= 0)))
        ok = fail(&e, E_USAGE, "temperature, top_k and top_p must not be negative");
    Choice *c = NULL;
    if (ok && o.temperature > 0 && isfinite(logits[best])) {
        ok = state ? (c = mem_alloc((size_t)n * sizeof *c)) || oom(&e) : fail(&e, E_USAGE, "state is NULL");
        for (int64_t i = 0; ok && i < n; i++)
            if ((logits[i] - logits[best]) / o.temperature > NEVER) c[count++] = (Choice){(double)logits[i], i};
        if (ok) {
            qsort(c, (size_t)count, sizeof *c, by_share);
            best = draw(c, shares(c, count, &o), state);
        }
    }
    mem_free(c);
    if (ok) return best;
    vision_give(&e, err);
    return -1;
}
