/* Attention with quantized probabilities, of floats and of integers.
 *
 *     s = softcap * tanh(scale q k^T / softcap) + mask        (of integers: exact sums times scale_q scale_k)
 *     p = round(softmax(s) / scale_p) + zero_p                in few bits, or in float8 beside floats
 *     out = scale_p (p - zero_p) v                            (of integers: exact sums times scale_p scale_v)
 *
 * A row without an allowed key gives 0. A task is a head; its keys and values are packed once, then tiles of queries
 * pass over them. Rows do not depend on the tile they are in: bits do not depend on the number of threads.
 */
#include <math.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/gemm_integer.h"
#include "kernel/kernel.h"
#include "run/run_table.h"

enum {
    Q,
    K,
    V,
    MASK,
    SCALE_P,
    ZERO_P,
    SCALE = 7,
    SOFTCAP,
    LOWER,
    UPPER,
    SCALE_Q,
    SCALE_K = 13,
    SCALE_V = 15,
    BY_INVERSE = 17
};

typedef struct Quantized {
    const IntegerKernels *k8; /* mr 0: products in plain C */
    const Tensor *q, *k, *v, *mask, *out;
    int64_t H, N, M, D, E, group; /* group: heads of q that share one of k */
    double scale, softcap;        /* scale: of whole scores, scales of q and k included */
    float by;                     /* of whole results */
    int64_t lower, upper, ms[4];
    DType p_type;
    Rounding p;
    int zero_q, zero_k, zero_v;
    bool integers;
} Quantized;

/* What a task works in. */
typedef struct Room {
    char *k, *v, *a;
    int32_t *acc;
    float *s;
    uint8_t *p;
} Room;

static double at_or(const Call *c, int i, double otherwise)
{
    return call_in(c, i) ? tensor_get(call_in(c, i), 0) : otherwise;
}
static int zero_at(const Call *c, int i) { return call_in(c, i) ? (int)tensor_get(call_in(c, i), 0) : 0; }

static int64_t nr(const Quantized *x) { return x->k8->mr ? x->k8->nr : 1; }
static int tile_rows(const Quantized *x) { return x->k8->mr ? x->k8->mr : 1; }
static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static const char *plane(const Tensor *t, int64_t b, int64_t h)
{
    return (const char *)t->data + (b * t->stride[0] + h * t->stride[1]) * (int64_t)dtype_size(t->dtype);
}

/* ------------------------------------------------------------------ products */

/* s (rows, M), step `wide`, from (b, h, row) on. */
static void score_rows(const Quantized *x, const Room *r, int64_t b, int64_t h, int64_t row, int rows, int64_t wide)
{
    const IntegerKernels *k = x->k8;
    float by = (float)x->scale;
    if (x->integers && k->mr) {
        IntegerIn q = {plane(x->q, b, h), x->q->dtype, x->zero_q, x->q->stride[2], 1, NULL};
        IntegerIn key = {NULL, x->k->dtype, x->zero_k, 0, 0, NULL};
        k->pack_a(r->a, &q, row, rows, x->D);
        if (k->begin) k->begin();
        for (int64_t col = 0; col < x->M; col += k->nr) {
            k->tile(&(IntegerTile){.acc = r->acc,
                                   .a = r->a,
                                   .b = r->k,
                                   .panel = col / k->nr,
                                   .K = x->D,
                                   .rows = rows,
                                   .cols = k->nr,
                                   .zero_b = integer_zero(&key)});
            k->scores(r->s + col, wide, r->acc, rows, by);
        }
        if (k->end) k->end();
        return;
    }
    const char *q = plane(x->q, b, h), *key = plane(x->k, b, h / x->group);
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < x->M; j++) {
            int64_t qi = (row + i) * x->q->stride[2], kj = j * x->k->stride[2];
            double sum = 0;
            for (int64_t d = 0; d < x->D; d++)
                sum += x->integers ? (double)((load_i64(x->q->dtype, q + qi + d) - x->zero_q) *
                                              (load_i64(x->k->dtype, key + kj + d) - x->zero_k))
                                   : (double)((const float *)(const void *)q)[qi + d] *
                                         (double)((const float *)(const void *)key)[kj + d];
            r->s[i * wide + j] = (float)sum * by;
        }
}

static void value_rows(const Quantized *x, const Room *r, int64_t b, int64_t h, int64_t row, int rows, int64_t wide)
{
    const IntegerKernels *k = x->k8;
    float *out = (float *)(uintptr_t)plane(x->out, b, h);
    IntegerIn p = {r->p, x->p_type, x->p.zero, wide, 1, NULL};
    if (x->integers && k->mr) {
        IntegerIn value = {NULL, x->v->dtype, x->zero_v, 0, 0, NULL};
        IntegerMatmul m = {.scale_a = &x->by,
                           .scale_b = &(float){1},
                           .out = {.c = out, .c_type = DT_F32, .c_step = x->out->stride[2]}};
        k->pack_a(r->a, &p, 0, rows, x->M);
        if (k->begin) k->begin();
        for (int64_t col = 0; col < x->E; col += k->nr) {
            int cols = (int)(x->E - col < k->nr ? x->E - col : k->nr);
            k->tile(&(IntegerTile){.acc = r->acc,
                                   .a = r->a,
                                   .b = r->v,
                                   .panel = col / k->nr,
                                   .K = x->M,
                                   .rows = rows,
                                   .cols = cols,
                                   .zero_b = integer_zero(&value)});
            k->finish(&m, r->acc, row, col, rows, cols);
        }
        if (k->end) k->end();
        return;
    }
    const char *v = plane(x->v, b, h / x->group);
    for (int i = 0; i < rows; i++)
        for (int64_t e = 0; e < x->E; e++) {
            double sum = 0;
            for (int64_t j = 0; j < x->M; j++) {
                int64_t at = j * x->v->stride[2] + e;
                double w = load_f64(x->p_type, r->p + i * wide + j) - x->p.zero;
                sum += w * (x->integers ? (double)(load_i64(x->v->dtype, v + at) - x->zero_v)
                                        : (double)((const float *)(const void *)v)[at]);
            }
            out[(row + i) * x->out->stride[2] + e] = (float)sum * x->by;
        }
}

/* ------------------------------------------------------------------ softmax */

/* p (n) by the nearest number of float8; probabilities are within its range. */
static void round_float8(uint8_t *p, const float *s, int64_t n, const Quantized *x)
{
    for (int64_t j = 0; j < n; j++)
        store_f64(x->p_type, p + j, (double)(x->p.by_inverse ? s[j] * (1 / x->p.scale) : s[j] / x->p.scale));
}

/* What hides keys from query `at`, but for a mask that can be added in one go, which is returned. */
static const float *mask_row(const Quantized *x, float *s, int64_t b, int64_t h, int64_t at)
{
    int64_t first = b * x->ms[0] + h * x->ms[1] + at * x->ms[2], step = x->ms[3], M = x->M;
    int64_t from = at + x->lower > 0 ? at + x->lower : 0, to = at + x->upper < M - 1 ? at + x->upper + 1 : M;
    const float *more = x->mask && x->mask->dtype != DT_BOOL ? (const float *)x->mask->data + first : NULL;
    if (x->softcap > 0)
        for (int64_t j = 0; j < M; j++) s[j] = (float)(x->softcap * real_tanh((double)s[j] / x->softcap));
    if (x->mask && !more) {
        const uint8_t *kept = (const uint8_t *)x->mask->data + first;
        for (int64_t j = 0; j < M; j++) s[j] = kept[j * step] ? s[j] : -INFINITY;
    }
    for (int64_t j = 0; more && step != 1 && j < M; j++) s[j] += more[j * step];
    for (int64_t j = 0; j < from && j < M; j++) s[j] = -INFINITY;
    for (int64_t j = to > 0 ? to : 0; j < M; j++) s[j] = -INFINITY;
    return step == 1 ? more : NULL;
}

static void probabilities(const Quantized *x, const Room *r, int64_t b, int64_t h, int64_t row, int rows, int64_t wide)
{
    const IntegerKernels *k = x->k8->mr ? x->k8 : &kernels_at(CPU_GEN)->integer;
    const bool floats = x->p_type == DT_F8E4M3;
    for (int i = 0; i < rows; i++) {
        float *s = r->s + i * wide;
        const float *mask = mask_row(x, s, b, h, row + i);
        k->softmax(&(IntegerSoftmax){s, floats ? NULL : r->p + i * wide, x->M, mask, x->p});
        if (floats) round_float8(r->p + i * wide, s, x->M, x);
    }
}

/* ------------------------------------------------------------------ */

static void one_head(const Quantized *x, const Room *r, int64_t b, int64_t h, int64_t wide)
{
    const IntegerKernels *k = x->k8;
    if (x->integers && k->mr) {
        IntegerIn key = {plane(x->k, b, h / x->group), x->k->dtype, x->zero_k, 1, x->k->stride[2], NULL},
                  value = {plane(x->v, b, h / x->group), x->v->dtype, x->zero_v, x->v->stride[2], 1, NULL};
        k->pack_b(r->k, &key, x->D, x->M);
        k->pack_b(r->v, &value, x->M, x->E);
    }
    for (int64_t row = 0; row < x->N; row += tile_rows(x)) {
        int rows = (int)(x->N - row < tile_rows(x) ? x->N - row : tile_rows(x));
        score_rows(x, r, b, h, row, rows, wide);
        probabilities(x, r, b, h, row, rows, wide);
        value_rows(x, r, b, h, row, rows, wide);
    }
}

/* Every thread's room, in one block of scratch. */
static Room *rooms(Call *c, const Quantized *x, int64_t wide, int threads, Err *err)
{
    const IntegerKernels *k = x->k8;
    int64_t deep = x->D > x->M ? x->D : x->M;
    size_t keys = k->mr ? k->b_bytes(x->D, x->M) : 0, values = k->mr ? k->b_bytes(x->M, x->E) : 0,
           a = k->mr ? k->a_bytes(deep) : 0;
    Room *r = call_scratch(c, (size_t)threads * sizeof *r, err);
    for (int t = 0; r && t < threads; t++) {
        r[t] = (Room){.k = call_scratch(c, keys, err),
                      .v = call_scratch(c, values, err),
                      .a = call_scratch(c, a, err),
                      .acc = call_scratch(c, (size_t)tile_rows(x) * (size_t)nr(x) * sizeof(int32_t), err),
                      .s = call_scratch(c, (size_t)tile_rows(x) * (size_t)wide * sizeof(float), err),
                      .p = call_scratch(c, (size_t)tile_rows(x) * (size_t)wide, err)};
        if (!r[t].k || !r[t].v || !r[t].a || !r[t].acc || !r[t].s || !r[t].p) return NULL;
    }
    return r;
}

/* Rows of the last axis contiguous, integers as they are and all else float32. NULL: an error. */
static const Tensor *operand(Call *c, int i, bool integers, Err *err)
{
    const Tensor *t = call_in(c, i);
    bool fine = (integers || t->dtype == DT_F32) && (t->stride[3] == 1 || t->shape[3] == 1);
    return fine ? t : call_contiguous(c, t, integers ? DT_NONE : DT_F32, err);
}

static bool read_call(Call *c, Quantized *x, Err *err)
{
    DType t = call_in(c, Q)->dtype;
    *x = (Quantized){.k8 = &kernels()->integer,
                     .integers = t == DT_I8 || t == DT_U8,
                     .out = call_out(c, 0),
                     .mask = call_in(c, MASK)};
    TRY((x->q = operand(c, Q, x->integers, err)) && (x->k = operand(c, K, x->integers, err)) &&
        (x->v = operand(c, V, x->integers, err)));
    x->H = x->q->shape[1];
    x->N = x->q->shape[2];
    x->M = x->k->shape[2];
    x->D = x->q->shape[3];
    x->E = x->v->shape[3];
    x->group = x->k->shape[1] ? x->H / x->k->shape[1] : 1;
    x->scale = (call_given(c, SCALE) ? call_f64(c, SCALE) : 1 / sqrt((double)x->D)) * at_or(c, SCALE_Q, 1) *
               at_or(c, SCALE_K, 1);
    x->softcap = call_f64(c, SOFTCAP);
    x->lower = call_given(c, LOWER) ? call_i64(c, LOWER) : -((int64_t)1 << 40);
    x->upper = call_given(c, UPPER) ? call_i64(c, UPPER) : (int64_t)1 << 40;
    x->zero_q = zero_at(c, SCALE_Q + 1);
    x->zero_k = zero_at(c, SCALE_K + 1);
    x->zero_v = zero_at(c, SCALE_V + 1);
    x->p_type = c->arg[6].dtype;
    x->p = (Rounding){(float)tensor_get(call_in(c, SCALE_P), 0), zero_at(c, ZERO_P), (int)dtype_lowest(x->p_type),
                      (int)dtype_highest(x->p_type), call_bool(c, BY_INVERSE), 0};
    x->by = (float)((double)x->p.scale * at_or(c, SCALE_V, 1));
    if (!x->mask) return true;
    if (x->mask->dtype != DT_BOOL) TRY(x->mask = call_contiguous(c, x->mask, DT_F32, err));
    int64_t shape[4] = {x->q->shape[0], x->H, x->N, x->M};
    for (int i = 3, from = x->mask->rank - 1; i >= 0; i--, from--)
        x->ms[i] = from < 0 || (x->mask->shape[from] == 1 && shape[i] != 1) ? 0 : x->mask->stride[from];
    return true;
}

bool run_sdpa_quantized(Call *c, Err *err)
{
    Quantized x;
    if (tensor_numel(call_out(c, 0)) == 0) return true;
    TRY(read_call(c, &x, err));
    int64_t heads = x.q->shape[0] * x.H, wide = up(up(x.M, nr(&x)), 64);
    int threads = c->env->threads < heads ? c->env->threads : (int)heads;
    Room *r = rooms(c, &x, wide, threads, err);
    TRY(r);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++)
        for (int64_t i = t; i < heads; i += threads) one_head(&x, &r[t], i / x.H, i % x.H, wide);
    return true;
}
