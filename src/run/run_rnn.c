/* One layer of a recurrent network in one direction. The inputs' share of the gates comes in, made for all steps at
 * once by a linear (src/lower/lower_rnn.c); what is left per step is the product with the state and a few rows of
 * pointwise work.
 *
 *     lstm   i, f, g, o = gates + h W^T + b;  c' = s(f) c + s(i) tanh(g);  h' = s(o) tanh(c'),
 *            times a projection if there is one
 *     gru    r, z, n;  n = tanh(gates_n + r (h W_n^T + b_n));  h' = n + z (h - n)
 *     tanh, relu   h' = f(gates + h W^T + b)
 *
 * float32 and float64; other types were cast by lowering.
 */
#include <string.h>
#include "kernel/gemm.h"
#include "base/mem.h"
#include "kernel/kernel.h"
#include "run/pointwise.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ y (B, N) = a (B, K) w^T + bias, once a step */

enum { PRODUCTS = 2 };

typedef struct Primitives {
    Gemm *gemm[PRODUCTS];
} Primitives;

typedef struct Product {
    DType t;
    int64_t B, N, K;
    const Tensor *w, *bias;
    Gemm *gemm; /* NULL: the portable kernel */
    void *scratch;
} Product;

static void free_primitives(void *p)
{
    for (int i = 0; i < PRODUCTS; i++) gemm_free(((Primitives *)p)->gemm[i]);
    mem_free(p);
}

static bool prepare(Call *c, int which, int w_arg, const Tensor *bias, int64_t B, DType t, Product *p, Err *err)
{
    const Tensor *w = call_contiguous(c, call_in(c, w_arg), t, err);
    TRY(w);
    bias = bias ? call_contiguous(c, bias, t, err) : NULL;
    *p = (Product){.t = t, .B = B, .N = w->shape[0], .K = w->shape[1], .w = w, .bias = bias};
    if (cpu_level() == CPU_REF || t != DT_F32) return true;
    if (!c->state) {
        c->state = mem_zeroed(1, sizeof(Primitives));
        if (!c->state) return oom(err);
        c->state_free = free_primitives;
    }
    Gemm **g = &((Primitives *)c->state)->gemm[which];
    if (!*g) {
        Tensor a = tensor_of(t, 2, (int64_t[]){B, p->K}, NULL), y = tensor_of(t, 2, (int64_t[]){B, p->N}, NULL),
               wt = tensor_of(t, 2, (int64_t[]){p->K, p->N}, w->data);
        wt.stride[0] = 1;
        wt.stride[1] = p->K;
        GemmMatmul d = {.a = &a,
                        .b = &wt,
                        .c = &y,
                        .bias = p->bias,
                        .b_constant = c->arg[w_arg].constant && w == call_in(c, w_arg)};
        TRY(*g = gemm_matmul(c->env->gemm, &d, err));
    }
    p->gemm = *g;
    return (p->scratch = call_scratch(c, gemm_scratch(*g), err)) != NULL;
}

static bool multiply(const Product *p, const void *a, void *y, Err *err)
{
    if (p->gemm) {
        GemmBuffers m = {.a = a, .b = p->w->data, .bias = p->bias ? p->bias->data : NULL, .c = y};
        return gemm_run(p->gemm, &m, p->scratch, err);
    }
    const LinalgKernels *k = &kernels()->linalg;
    if (p->t == DT_F32) k->matmul_f32(y, a, p->w->data, p->B, p->N, p->K, p->K, 1, 1, p->K);
    else k->matmul_f64(y, a, p->w->data, p->B, p->N, p->K, p->K, 1, 1, p->K);
    for (int64_t i = 0; p->bias && i < p->B * p->N; i++) {
        if (p->t == DT_F32) ((float *)y)[i] += ((const float *)p->bias->data)[i % p->N];
        else ((double *)y)[i] += ((const double *)p->bias->data)[i % p->N];
    }
    return true;
}

/* ------------------------------------------------------------------ rows */

static void unary(DType t, PointwiseOp op, void *x, int64_t n)
{
    const PointwiseKernels *k = &kernels()->pointwise;
    if (t == DT_F32) k->unary_f32(op, x, x, n, NULL);
    else k->unary_f64(op, x, x, n, NULL);
}

static void binary(DType t, PointwiseOp op, void *out, const void *a, const void *b, int64_t n)
{
    const PointwiseKernels *k = &kernels()->pointwise;
    if (t == DT_F32) k->binary_f32(op, out, a, b, n);
    else k->binary_f64(op, out, a, b, n);
}

static void *element(const void *base, int64_t i, DType t)
{
    return (char *)(uintptr_t)base + i * (int64_t)dtype_size(t);
}

/* g (4 H): the product, then the gates; c, h (H): in place, out */
static void lstm_row(DType t, void *g, const void *x, void *c, void *h, int64_t H)
{
    void *forget = element(g, H, t), *cell = element(g, 2 * H, t), *output = element(g, 3 * H, t);
    binary(t, PW_add, g, g, x, 4 * H);
    unary(t, PW_sigmoid, g, 2 * H);
    unary(t, PW_tanh, cell, H);
    unary(t, PW_sigmoid, output, H);
    binary(t, PW_mul, c, c, forget, H);
    binary(t, PW_mul, g, g, cell, H);
    binary(t, PW_add, c, c, g, H);
    memcpy(cell, c, (size_t)H * dtype_size(t));
    unary(t, PW_tanh, cell, H);
    binary(t, PW_mul, h, output, cell, H);
}

static void gru_row(DType t, void *g, const void *x, const void *before, void *h, int64_t H)
{
    void *z = element(g, H, t), *n = element(g, 2 * H, t);
    binary(t, PW_add, g, g, x, 2 * H);
    unary(t, PW_sigmoid, g, 2 * H);
    binary(t, PW_mul, n, n, g, H);
    binary(t, PW_add, n, n, element(x, 2 * H, t), H);
    unary(t, PW_tanh, n, H);
    binary(t, PW_sub, h, before, n, H);
    binary(t, PW_mul, h, h, z, H);
    binary(t, PW_add, h, h, n, H);
}

/* ------------------------------------------------------------------ layers */

/* Gates (T, B, G) with contiguous rows, and how the steps run. */
typedef struct Steps {
    DType t;
    int64_t T, B, G;
    const Tensor *gates;
    bool reverse;
    const void *first; /* the state before the first step */
    void *product;     /* (B, G) */
} Steps;

static bool steps_of(Call *c, bool reverse, Steps *s, Err *err)
{
    const Tensor *x = call_in(c, 0), *h = call_contiguous(c, call_in(c, 3), DT_NONE, err);
    TRY(h);
    if (x->stride[2] != 1) TRY(x = call_contiguous(c, x, DT_NONE, err));
    *s = (Steps){.t = x->dtype,
                 .T = x->shape[0],
                 .B = x->shape[1],
                 .G = x->shape[2],
                 .gates = x,
                 .reverse = reverse,
                 .first = h->data};
    return (s->product = call_scratch(c, (size_t)(s->B * s->G) * dtype_size(s->t), err)) != NULL;
}

/* The state before step i of the run, and where step i stands in `out` (T, B, P). */
static int64_t place(const Steps *s, int64_t i) { return s->reverse ? s->T - 1 - i : i; }
static const void *before(const Steps *s, const Tensor *out, int64_t i)
{
    return i == 0 ? s->first : element(out->data, place(s, i - 1) * out->stride[0], s->t);
}
static const void *gates_at(const Steps *s, int64_t i, int64_t b)
{
    return element(s->gates->data, place(s, i) * s->gates->stride[0] + b * s->gates->stride[1], s->t);
}

bool run_lstm_layer(Call *c, Err *err)
{
    Steps s;
    Product state, projection = {0};
    Tensor *out = call_out(c, 0), *cell = call_out(c, 1);
    if (tensor_numel(out) == 0) return true;
    TRY(steps_of(c, call_bool(c, 6), &s, err) && prepare(c, 0, 1, call_in(c, 2), s.B, s.t, &state, err));
    bool projected = call_in(c, 5) != NULL;
    int64_t H = s.G / 4, work = s.B * H;
    void *hidden = projected ? call_scratch(c, (size_t)work * dtype_size(s.t), err) : NULL;
    if (projected) TRY(hidden && prepare(c, 1, 5, NULL, s.B, s.t, &projection, err));
    TRY(run_copy_tensor(cell, call_in(c, 4), c->env->threads));
    for (int64_t i = 0; i < s.T; i++) {
        void *now = element(out->data, place(&s, i) * out->stride[0], s.t), *h = projected ? hidden : now;
        TRY(multiply(&state, before(&s, out, i), s.product, err));
#pragma omp parallel for num_threads(c->env->threads) if (work > 1 << 13)
        for (int64_t b = 0; b < s.B; b++)
            lstm_row(s.t, element(s.product, b * s.G, s.t), gates_at(&s, i, b), element(cell->data, b * H, s.t),
                     element(h, b * H, s.t), H);
        if (projected) TRY(multiply(&projection, hidden, now, err));
    }
    return true;
}

bool run_rnn_layer(Call *c, Err *err)
{
    Steps s;
    Product state;
    Tensor *out = call_out(c, 0);
    if (tensor_numel(out) == 0) return true;
    TRY(steps_of(c, call_bool(c, 5), &s, err) && prepare(c, 0, 1, call_in(c, 2), s.B, s.t, &state, err));
    bool gru = !strcmp(c->arg[4].str, "gru");
    PointwiseOp act = !strcmp(c->arg[4].str, "tanh") ? PW_tanh : PW_relu;
    int64_t H = out->shape[2];
    for (int64_t i = 0; i < s.T; i++) {
        const void *last = before(&s, out, i);
        void *now = element(out->data, place(&s, i) * out->stride[0], s.t);
        TRY(multiply(&state, last, s.product, err));
#pragma omp parallel for num_threads(c->env->threads) if (s.B * H > 1 << 13)
        for (int64_t b = 0; b < s.B; b++) {
            void *g = element(s.product, b * s.G, s.t), *h = element(now, b * H, s.t);
            if (gru) {
                gru_row(s.t, g, gates_at(&s, i, b), element(last, b * H, s.t), h, H);
                continue;
            }
            binary(s.t, PW_add, h, g, gates_at(&s, i, b), H);
            unary(s.t, act, h, H);
        }
    }
    return true;
}
