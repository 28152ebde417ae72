/* Linear layers and convolutions of integers (kernel/gemm_integer.h): operands brought into the form that the kernels
 * take, weights packed once for all plans of a session.
 *
 *     linear_integer(x: i8 (B, N, K), 0.02, none, w: i8 (M, K), scales: f32 (M), bias)   ->  f32 (B, N, M)
 *     convolution_integer(x: i8 (B, C, H, W), 0.02, none, w: i8 (M, 9 C), scales, bias, [3, 3], ...)   channels last
 *
 * The epilogue (Call.epilogue) may end in integers again.
 */
#include <math.h>
#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"
#include "kernel/gemm_impl.h"
#include "kernel/gemm_integer.h"
#include "run/integer_pool.h"
#include "run/pointwise.h"
#include "run/product.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ packed weights */

struct IntegerPool {
    PackedWeight *weight;
    int n;
    Lookup by_place;
    size_t bytes;
};

void integer_pool_free(IntegerPool *p)
{
    for (int i = 0; p && i < p->n; i++) mem_free(p->weight[i].data);
    if (p) {
        lookup_free(&p->by_place);
        mem_free(p->weight);
    }
    mem_free(p);
}

size_t integer_pool_bytes(const IntegerPool *p) { return p ? p->bytes : 0; }

static uint64_t hash_of(const void *of, int64_t N, int64_t K, int64_t block)
{
    return hash_keyed((int64_t[]){(int64_t)(uintptr_t)of, N, K, block}, 4 * sizeof(int64_t));
}

const PackedWeight *integer_pool_find(const RunEnv *e, const void *of, int64_t N, int64_t K, int64_t block)
{
    const IntegerPool *p = e->integers;
    size_t tried = 0;
    int64_t i;
    while (p && (i = lookup_next(&p->by_place, hash_of(of, N, K, block), &tried)) >= 0) {
        const PackedWeight *w = &p->weight[i];
        if (w->of == of && w->N == N && w->K == K && w->form.block == block) return w;
    }
    return NULL;
}

const PackedWeight *integer_pool_add(RunEnv *e, PackedWeight made, size_t bytes, Err *err)
{
    IntegerPool *p = e->integers;
    if (!p && !(p = e->integers = mem_zeroed(1, sizeof *p))) return oom(err), NULL;
    PackedWeight *grown = vec_grow(p->weight, p->n, sizeof *grown);
    if (grown) p->weight = grown;
    made.data = grown ? mem_aligned(64, bytes ? bytes : 64) : NULL;
    if (!made.data || !lookup_add(&p->by_place, hash_of(made.of, made.N, made.K, made.form.block), (size_t)p->n)) {
        mem_free(made.data);
        return oom(err), NULL;
    }
    p->weight[p->n++] = made;
    p->bytes += bytes;
    return &p->weight[p->n - 1];
}

static const void *packed_weight(RunEnv *e, const IntegerIn *b, int64_t K, int64_t N, Err *err)
{
    const PackedWeight *p = integer_pool_find(e, b->data, N, K, 0);
    if (p) return p->data;
    p = integer_pool_add(e, (PackedWeight){.of = b->data, .N = N, .K = K}, kernels()->integer.b_bytes(K, N), err);
    if (p) kernels()->integer.pack_b(p->data, b, K, N);
    return p ? p->data : NULL;
}

/* ------------------------------------------------------------------ products */

static int number_at(const Tensor *zero) { return zero ? (int)tensor_get_i64(zero, 0) : 0; }

/* A bound of what is rounded, as it is rounded. */
static int bound(const Rounding *r, float x)
{
    const float q = r->by_inverse ? x * (float)(1 / (double)r->scale) : x / r->scale, low = (float)(r->low - r->zero),
                high = (float)(r->high - r->zero);
    return (int)rintf(q < low ? low : q > high ? high : q) + r->zero;
}

/* What the epilogue rounds to. Rounding keeps the order: what is clamped and then rounded is rounded and then clamped
 * to the rounded bounds. */
static Rounding rounding_of(const Call *c, DType t)
{
    const struct Epilogue *e = &c->epilogue;
    Rounding r = {(float)tensor_get(e->scale, 0), number_at(e->zero), (int)dtype_lowest(t), (int)dtype_highest(t),
                  e->by_inverse, e->nan_lowest ? (int)dtype_lowest(t) : 0};
    if (!e->clamps) return r;
    const int low = bound(&r, e->low), high = bound(&r, e->high);
    r.low = low;
    r.high = high;
    return r;
}

static float residual_scale(const Call *c)
{
    return c->epilogue.residual_scale ? (float)tensor_get(c->epilogue.residual_scale, 0) : 1;
}

/* Element i of the residual, whose rows are the result's. */
static double residual_at(const Call *c, const Tensor *residual, int64_t i)
{
    const char *at = (const char *)residual->data + (size_t)i * dtype_size(residual->dtype);
    if (!c->epilogue.residual_scale) return load_f64(residual->dtype, at);
    return (double)((float)(load_i64(residual->dtype, at) - number_at(c->epilogue.residual_zero)) * residual_scale(c));
}

/* Elements of what windows see at a row. */
static int64_t seen_of(const IntegerMatmul *m)
{
    return m->windows && m->windows->depthwise ? m->K * m->windows->C : m->K;
}

/* By loops, at the reference's ISA level. m->b is the weight itself, (N, K) of i8; line: room for what windows see. */
static void portable(const Call *c, const IntegerMatmul *m, const Tensor *bias, const Tensor *residual, Tensor *y,
                     uint8_t *line)
{
    const struct Epilogue *e = &c->epilogue;
    const bool depthwise = m->windows && m->windows->depthwise;
    const int64_t step = depthwise ? m->windows->C : 1;
    for (int64_t i = 0; i < m->M * m->N; i++) {
        const int64_t row = i / m->N, col = i % m->N;
        const int8_t *w = (const int8_t *)m->b + col * m->K;
        const uint8_t *x = line;
        const int zero = integer_zero_of(&m->a, row);
        int64_t sum = 0;
        if (!m->windows) x = (const uint8_t *)m->a.data + row * m->a.rs;
        else if (!col) integer_see(m->windows, line, m->a.data, row, 1, zero);
        if (depthwise) x += col;
        for (int64_t k = 0; k < m->K; k++)
            sum += ((m->a.t == DT_U8 ? x[k * step] : (int8_t)x[k * step]) - zero) * (int64_t)w[k];
        double v = (double)((float)sum * (m->scale_a[row * m->step_a] * m->scale_b[col * m->step_b])),
               more = residual ? residual_at(c, residual, i) : 0;
        v += bias ? tensor_get(bias, col) : 0;
        if (residual && e->act_last) v = product_activation((int)e->act, v + more);
        else v = product_activation((int)e->act, v);
        if (residual && !e->act_last) v = e->times ? v * more : v + more;
        if (e->scale) {
            Rounding r = m->rounding;
            v = v != v ? r.none
                       : rint((double)(float)(r.by_inverse ? v * (double)(float)(1 / (double)r.scale)
                                                           : v / (double)r.scale)) +
                             r.zero;
            store_i64(y->dtype, (char *)y->data + i, (int64_t)(v < r.low ? r.low : v > r.high ? r.high : v));
        } else store_f64(y->dtype, (char *)y->data + (size_t)i * dtype_size(y->dtype), v);
    }
}

static const Tensor *vector(Call *c, const Tensor *t, Err *err)
{
    return call_contiguous(c, t, t->dtype == DT_BF16 ? DT_NONE : DT_F32, err);
}

static void free_depthwise(void *g) { depthwise_free(g); }

/* w (C, cells of the window) of i8; y as m->out has it. */
static bool depthwise(Call *c, const IntegerMatmul *m, const Tensor *w, const Tensor *y, Err *err)
{
    const Tensor *x = call_in(c, 0);
    const IntegerWindows *s = m->windows;
    const int n = y->rank - 2;
    const size_t lead = (size_t)(3 - n);
    const GemmBuffers buffers = {.a = m->a.data, .b = w->data};
    if (!c->state) {
        Tensor picture = *x, weight = {.dtype = DT_I8, .rank = y->rank, .data = w->data, .shape = {s->C, 1}};
        strides_channels_last(picture.rank, picture.shape, picture.stride);
        for (int i = 0; i < n; i++) weight.shape[2 + i] = s->size[lead + (size_t)i];
        strides_contiguous(weight.rank, weight.shape, weight.stride);
        const GemmConv d = {.x = &picture,
                            .w = &weight,
                            .y = y,
                            .spatial = n,
                            .stride = s->stride + lead,
                            .padding = s->padding + lead,
                            .dilation = s->dilation + lead,
                            .groups = s->C,
                            .w_constant = c->arg[3].constant};
        c->state = depthwise_conv(kernels(), &d, err);
        c->state_free = free_depthwise;
    }
    void *scratch = c->state ? call_scratch(c, depthwise_scratch(c->state), err) : NULL;
    return scratch && depthwise_run(c->state, &buffers, m, scratch, err);
}

/* m has its sizes, a and windows; the rest comes from arguments 1 to 5 (scale, zero_point, weight, weight_scale, bias)
 * and the epilogue. Rows of y and of the residual follow each other. */
static bool multiply(Call *c, IntegerMatmul *m, Tensor *y, const Tensor *residual, Err *err)
{
    const Tensor *w = call_in(c, 3), *scale = call_contiguous(c, call_in(c, 1), DT_F32, err),
                 *by = scale ? call_contiguous(c, call_in(c, 4), DT_F32, err) : NULL, *bias = call_in(c, 5),
                 *zeros = call_in(c, 2);
    TRY(by && (!bias || (bias = vector(c, bias, err))));
    if (m->K > INTEGER_DEEPEST)
        return call_fail(c, E_UNSUPPORTED, err, "sums over %lld integers, at most %d are exact", (long long)m->K,
                         INTEGER_DEEPEST);
    m->a.cs = 1;
    m->a.zero = zeros && tensor_numel(zeros) == 1 ? number_at(zeros) : 0;
    if (zeros && tensor_numel(zeros) != 1) {
        TRY(zeros = call_contiguous(c, zeros, DT_NONE, err));
        m->a.zeros = zeros->data;
    }
    m->scale_a = scale->data;
    m->scale_b = by->data;
    m->step_a = tensor_numel(scale) != 1;
    m->step_b = tensor_numel(by) != 1;
    m->out = (ProductOut){.c = y->data,
                          .c_type = y->dtype,
                          .c_step = m->N,
                          .bias = bias ? bias->data : NULL,
                          .bias_type = bias ? bias->dtype : DT_F32,
                          .residual = residual ? residual->data : NULL,
                          .residual_type = residual ? residual->dtype : DT_F32,
                          .residual_step = m->N,
                          .times = c->epilogue.times,
                          .act_last = c->epilogue.act_last,
                          .act = (int)product_act((int)c->epilogue.act)};
    m->residual_scale = residual_scale(c);
    m->residual_zero = number_at(c->epilogue.residual_zero);
    if (c->epilogue.scale) {
        m->q = y->data;
        m->q_type = y->dtype;
        m->q_step = m->N;
        m->rounding = rounding_of(c, y->dtype);
    }
    if (!kernels()->integer.mr) {
        uint8_t *line = call_scratch(c, (size_t)seen_of(m), err);
        TRY(line && (w = call_contiguous(c, w, DT_NONE, err)));
        m->b = w->data;
        portable(c, m, bias, residual, y, line);
        return true;
    }
    if (m->windows && m->windows->depthwise)
        return (w = call_contiguous(c, w, DT_NONE, err)) && depthwise(c, m, w, y, err);
    const IntegerIn b = {w->data, w->dtype, 0, w->stride[1], w->stride[0], NULL};
    if (c->arg[3].constant) m->b = packed_weight(c->env, &b, m->K, m->N, err);
    else {
        void *room = call_scratch(c, kernels()->integer.b_bytes(m->K, m->N), err);
        if (room) kernels()->integer.pack_b(room, &b, m->K, m->N);
        m->b = room;
    }
    void *scratch = m->b ? call_scratch(c, integer_scratch(m, c->env->threads), err) : NULL;
    TRY(scratch);
    integer_matmul(m, scratch, c->env->threads);
    return true;
}

/* (input, scale, zero_point, weight, weight_scale, bias) */
bool run_linear_integer(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err), *w = call_in(c, 3),
                 *residual = c->epilogue.residual;
    TRY(x);
    if (residual && c->epilogue.residual_scale) residual = call_contiguous(c, residual, DT_NONE, err);
    else if (residual) residual = vector(c, residual, err);
    TRY(residual || !c->epilogue.residual);
    if (tensor_numel(out) == 0) return true;
    IntegerMatmul m = {.N = w->shape[0], .K = w->shape[1], .a = {.data = x->data, .t = x->dtype, .rs = w->shape[1]}};
    m.M = tensor_numel(out) / m.N;
    return multiply(c, &m, out, residual, err);
}

/* ------------------------------------------------------------------ convolutions */

/* Room for t's elements with the channels last, of type `to`. */
static Tensor *rows_of_pixels(Call *c, const Tensor *t, DType to, Err *err)
{
    Tensor *y = product_scratch(c, to, t->rank, t->shape, err);
    if (y) strides_channels_last(y->rank, y->shape, y->stride);
    return y;
}

static const Tensor *by_pixels(Call *c, const Tensor *t, Err *err)
{
    const DType to = t->dtype == DT_F16 ? DT_F32 : t->dtype;
    if (t->dtype == to && tensor_channels_last(t)) return t;
    Tensor *y = rows_of_pixels(c, t, to, err);
    if (y) run_copy_tensor(y, t, c->env->threads);
    return y;
}

/* The windows of c; is each of them a pixel, one after the other, of all channels? */
static bool convolution_windows(const Call *c, const Tensor *x, const Tensor *out, IntegerWindows *w)
{
    const int n = x->rank - 2, lead = 3 - n;
    int64_t *const list[] = {w->size, w->stride, w->padding, w->dilation};
    bool pixels = true;
    *w = (IntegerWindows){.C = x->shape[1], .in = {1, 1, 1}, .out = {1, 1, 1}, .size = {1, 1, 1}, .stride = {1, 1, 1},
                          .dilation = {1, 1, 1}};
    for (int k = 0; k < 4; k++) call_ints(c, 6 + k, list[k] + lead, n);
    for (int i = 0; i < n; i++) {
        w->in[lead + i] = x->shape[2 + i];
        w->out[lead + i] = out->shape[2 + i];
        pixels &= w->size[lead + i] == 1 && w->stride[lead + i] == 1 && !w->padding[lead + i];
    }
    w->depthwise = call_i64(c, 10) > 1;
    return pixels && !w->depthwise;
}

/* (input, scale, zero_point, weight, weight_scale, bias, kernel, stride, padding, dilation, groups) */
bool run_convolution_integer(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0), *y = tensor_channels_last(out) ? out : rows_of_pixels(c, out, out->dtype, err);
    const Tensor *x = y ? by_pixels(c, call_in(c, 0), err) : NULL, *w = call_in(c, 3),
                 *residual = c->epilogue.residual;
    IntegerWindows windows;
    TRY(x && (!residual || (residual = by_pixels(c, residual, err))));
    if (tensor_numel(out) == 0) return true;
    IntegerMatmul m = {.N = w->shape[0], .K = w->shape[1], .a = {.data = x->data, .t = x->dtype, .rs = w->shape[1]}};
    m.M = tensor_numel(out) / m.N;
    if (!convolution_windows(c, x, out, &windows)) m.windows = &windows;
    return multiply(c, &m, y, residual, err) && (y == out || run_copy_tensor(out, y, c->env->threads));
}
