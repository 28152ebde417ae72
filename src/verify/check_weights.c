/* The values of weights: NaN, infinities, tensors that are stored twice. Contract in check.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "verify/check.h"
#include "base/mem.h"

typedef struct Odd {
    int64_t nan, inf, zero, minus, n;
} Odd;

static void count_one(Odd *o, double v)
{
    o->nan += isnan(v) != 0;
    o->inf += isinf(v) != 0;
    o->minus += isinf(v) && v < 0;
    o->zero += v == 0;
}

/* A 16-bit or 32-bit float is odd when its exponent is all ones: that is all that a block of good values costs. */
static bool block_is_finite(DType t, const void *p, int64_t n)
{
    if (t == DT_F32) {
        const uint32_t *u = p;
        uint32_t odd = 0;
        for (int64_t i = 0; i < n; i++) odd |= (u[i] & 0x7f800000u) == 0x7f800000u;
        return !odd;
    }
    const uint16_t *u = p, mask = t == DT_BF16 ? 0x7f80 : 0x7c00;
    unsigned odd = 0;
    for (int64_t i = 0; i < n; i++) odd |= (u[i] & mask) == mask;
    return !odd;
}

static Odd count_odd(const Tensor *t)
{
    Odd o = {.n = tensor_numel(t)};
    if (!o.n || !t->data) return o;
    if (tensor_contiguous(t) && (t->dtype == DT_F32 || t->dtype == DT_F16 || t->dtype == DT_BF16) &&
        block_is_finite(t->dtype, t->data, o.n))
        return o;
    for (int64_t i = 0; i < o.n; i++) count_one(&o, tensor_get(t, i));
    return o;
}

static void check_numbers(Check *c, const NamedTensor *w)
{
    if (!dtype_is_float(w->t->dtype)) return;
    Odd o = count_odd(w->t);
    const char *place = check_place(c, "weight '%.200s'", w->name);
    if (o.nan && !(w->chosen && o.nan == o.n))
        check_add(c, Q(304), place, "%lld of its %lld values are NaN", (long long)o.nan, (long long)o.n);
    bool mask = o.inf == o.minus && o.inf + o.zero == o.n;
    if (o.inf && !mask)
        check_add(c, Q(305), place, "%lld of its %lld values are infinite", (long long)o.inf, (long long)o.n);
}

typedef struct Sum {
    uint64_t hash;
    const NamedTensor *w;
    size_t bytes;
} Sum;

static uint64_t hash_words(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h ^ hash_bytes(p, n);
}

static int by_hash(const void *a, const void *b)
{
    const Sum *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->w < y->w ? -1 : x->w > y->w;
}

static int by_bytes(const void *a, const void *b)
{
    const Sum *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->w < y->w ? -1 : x->w > y->w;
}

static bool one_value(const void *bytes, size_t n)
{
    const char *p = bytes;
    return n > 8 && !memcmp(p, p + 8, n - 8);
}

static bool same_type(const Tensor *a, const Tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

/* Weights of 1 KiB and more with the same bytes. Those that are one value throughout (fresh biases and norms) are
 * equal by chance. */
static void check_copies(Check *c, const NamedTensor *w, int n)
{
    Sum *s = mem_zeroed((size_t)n + 1, sizeof *s);
    int m = 0;
    if (!s) {
        c->failed = true;
        return;
    }
    for (int i = 0; i < n; i++) {
        size_t bytes = tensor_bytes(w[i].t);
        if (bytes >= 1024 && w[i].t->data && tensor_contiguous(w[i].t)) s[m++] = (Sum){0, &w[i], bytes};
    }
    qsort(s, (size_t)m, sizeof *s, by_bytes);
    for (int i = 0; i < m; i++) { /* only those that share their size are read */
        bool alone = (i == 0 || s[i - 1].bytes != s[i].bytes) && (i + 1 == m || s[i + 1].bytes != s[i].bytes);
        s[i].hash = alone ? (uint64_t)i : hash_words(s[i].w->t->data, s[i].bytes);
    }
    qsort(s, (size_t)m, sizeof *s, by_hash);
    for (int i = 1; i < m; i++) {
        const Tensor *a = s[i - 1].w->t, *b = s[i].w->t;
        if (s[i - 1].hash != s[i].hash || a->data == b->data || !same_type(a, b) ||
            memcmp(a->data, b->data, s[i].bytes) || one_value(a->data, s[i].bytes))
            continue;
        check_add(c, Q(306), check_place(c, "weight '%.200s'", s[i].w->name), "its %zu bytes are those of '%.200s'",
                  s[i].bytes, s[i - 1].w->name);
    }
    mem_free(s);
}

void check_weights(Check *c, const NamedTensor *t, int n)
{
    for (int i = 0; i < n; i++) {
        bool seen = i && t[i].t->data == t[i - 1].t->data && same_type(t[i].t, t[i - 1].t);
        if (!seen) check_numbers(c, &t[i]);
    }
    check_copies(c, t, n);
}
