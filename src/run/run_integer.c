/* Linear layers of integers (kernel/gemm_integer.h): operands brought into the form that the kernels take, weights
 * packed once for all plans of a session.
 *
 *     linear_integer(x: i8 (B, N, K), 0.02, none, w: i8 (M, K), scales: f32 (M), bias)   ->  f32 (B, N, M)
 *
 * The epilogue (Call.epilogue) may end in integers again.
 */
#include <math.h>
#include "base/mem.h"
#include "base/vec.h"
#include "kernel/gemm_integer.h"
#include "kernel/kernel.h"
#include "run/integer_pool.h"
#include "run/product.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ packed weights */

struct IntegerPool {
    PackedWeight *weight;
    int n;
    size_t bytes;
};

void integer_pool_free(IntegerPool *p)
{
    for (int i = 0; p && i < p->n; i++) mem_free(p->weight[i].data);
    if (p) mem_free(p->weight);
    mem_free(p);
}

size_t integer_pool_bytes(const IntegerPool *p) { return p ? p->bytes : 0; }

const PackedWeight *integer_pool_find(const RunEnv *e, const void *of, int64_t N, int64_t K, int64_t block)
{
    const IntegerPool *p = e->integers;
    for (int i = 0; p && i < p->n; i++) {
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
    if (!made.data) return oom(err), NULL;
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

/* ------------------------------------------------------------------ the layer */

static int number_at(const Tensor *zero) { return zero ? (int)tensor_get_i64(zero, 0) : 0; }

/* What the epilogue rounds to. */
static Rounding rounding_of(const Call *c, DType t)
{
    const struct Epilogue *e = &c->epilogue;
    return (Rounding){(float)tensor_get(e->scale, 0), number_at(e->zero), (int)dtype_lowest(t), (int)dtype_highest(t),
                      e->by_inverse};
}

/* By loops, at the reference's ISA level. x (M, K), w (N, K) contiguous. */
static void portable(Call *c, const Tensor *x, const Tensor *w, const Tensor *by, const Tensor *bias,
                     const Tensor *residual, const float *scale, int64_t step, const Tensor *zeros, int zero)
{
    Tensor *out = call_out(c, 0);
    int64_t K = w->shape[1], N = w->shape[0], M = K ? tensor_numel(x) / K : tensor_numel(out) / (N ? N : 1);
    for (int64_t i = 0; i < M * N; i++) {
        int64_t row = i / N, col = i % N, sum = 0;
        if (zeros) zero = (int)tensor_get_i64(zeros, row);
        for (int64_t k = 0; k < K; k++) sum += (tensor_get_i64(x, row * K + k) - zero) * tensor_get_i64(w, col * K + k);
        double y = (double)((float)sum * (scale[row * step] * (float)tensor_get(by, tensor_numel(by) == 1 ? 0 : col)));
        y = product_activation((int)c->epilogue.act, y + (bias ? tensor_get(bias, col) : 0));
        if (residual) y = c->epilogue.times ? y * tensor_get(residual, i) : y + tensor_get(residual, i);
        if (c->epilogue.scale) {
            Rounding r = rounding_of(c, out->dtype);
            y = rint((double)(float)(r.by_inverse ? y * (double)(float)(1 / (double)r.scale) : y / (double)r.scale)) +
                r.zero;
            store_i64(out->dtype, (char *)out->data + i, (int64_t)(y < r.low ? r.low : y > r.high ? r.high : y));
        } else store_f64(out->dtype, (char *)out->data + (size_t)i * dtype_size(out->dtype), y);
    }
}

static const Tensor *vector(Call *c, const Tensor *t, Err *err)
{
    return call_contiguous(c, t, t->dtype == DT_BF16 ? DT_NONE : DT_F32, err);
}

/* (input, scale, zero_point, weight, weight_scale, bias) */
bool run_linear_integer(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err), *w = call_in(c, 3);
    const Tensor *scale = x ? call_contiguous(c, call_in(c, 1), DT_F32, err) : NULL,
                 *by = scale ? call_contiguous(c, call_in(c, 4), DT_F32, err) : NULL, *bias = call_in(c, 5),
                 *residual = c->epilogue.residual;
    TRY(by && (!bias || (bias = vector(c, bias, err))) && (!residual || (residual = vector(c, residual, err))));
    if (tensor_numel(out) == 0) return true;
    int64_t K = w->shape[1], N = w->shape[0], M = tensor_numel(out) / N, step = tensor_numel(scale) == 1 ? 0 : 1;
    if (K > INTEGER_DEEPEST)
        return call_fail(c, E_UNSUPPORTED, err, "sums over %lld integers, at most %d are exact", (long long)K,
                         INTEGER_DEEPEST);
    const Tensor *zeros = call_in(c, 2);
    int zero = zeros && tensor_numel(zeros) == 1 ? number_at(zeros) : 0;
    if (zeros && tensor_numel(zeros) == 1) zeros = NULL;
    if (zeros) TRY(zeros = call_contiguous(c, zeros, DT_NONE, err));
    if (!kernels()->integer.mr) {
        TRY(w = call_contiguous(c, w, DT_NONE, err));
        portable(c, x, w, by, bias, residual, scale->data, step, zeros, zero);
        return true;
    }
    IntegerIn a = {x->data, x->dtype, zero, K, 1, zeros ? zeros->data : NULL},
              b = {w->data, w->dtype, 0, w->stride[1], w->stride[0], NULL};
    const void *packed;
    if (c->arg[3].constant) packed = packed_weight(c->env, &b, K, N, err);
    else {
        void *room = call_scratch(c, kernels()->integer.b_bytes(K, N), err);
        if (room) kernels()->integer.pack_b(room, &b, K, N);
        packed = room;
    }
    TRY(packed);
    IntegerMatmul m = {.M = M,
                       .N = N,
                       .K = K,
                       .a = a,
                       .b = packed,
                       .scale_a = scale->data,
                       .scale_b = by->data,
                       .step_a = step,
                       .step_b = tensor_numel(by) == 1 ? 0 : 1,
                       .out = {.c = out->data,
                               .c_type = out->dtype,
                               .c_step = N,
                               .bias = bias ? bias->data : NULL,
                               .bias_type = bias ? bias->dtype : DT_F32,
                               .residual = residual ? residual->data : NULL,
                               .residual_type = residual ? residual->dtype : DT_F32,
                               .residual_step = N,
                               .times = c->epilogue.times,
                               .act = (int)product_act((int)c->epilogue.act)}};
    if (c->epilogue.scale) {
        m.q = out->data;
        m.q_type = out->dtype;
        m.q_step = N;
        m.rounding = rounding_of(c, out->dtype);
    }
    void *scratch = call_scratch(c, integer_scratch(&m, c->env->threads), err);
    TRY(scratch);
    integer_matmul(&m, scratch, c->env->threads);
    return true;
}
