/* Matrix products and rotary embedding: operands brought into the form that the kernels take. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/gemm.h"
#include "kernel/kernel.h"
#include "run/pointwise.h"
#include "run/product.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ which way */

/* gemm.h multiplies f32 and bf16 on every ISA level but the reference. */
static bool gemm_takes(DType t) { return cpu_level() > CPU_REF && (t == DT_F32 || t == DT_BF16); }

/* The type that a product is computed in, where `taken` types have kernels. */
static DType compute_type(DType t, bool taken)
{
    if (taken || t == DT_F64) return t;
    return dtype_is_float(t) ? DT_F32 : DT_I64;
}

Tensor *product_scratch(Call *c, DType t, int rank, const int64_t *shape, Err *err)
{
    Tensor *x = call_scratch(c, sizeof *x, err);
    if (!x) return NULL;
    *x = tensor_of(t, rank, shape, NULL);
    x->data = call_scratch(c, tensor_bytes(x), err);
    return x->data ? x : NULL;
}

/* ------------------------------------------------------------------ portable product */

static void offsets(const Tensor *t, const Tensor *c, int64_t batch, int64_t *offset)
{
    *offset = 0;
    for (int i = c->rank - 3; i >= 0; i--) {
        int64_t at = batch % c->shape[i];
        batch /= c->shape[i];
        int d = i - (c->rank - t->rank);
        if (d >= 0 && t->shape[d] != 1) *offset += at * t->stride[d];
    }
}

static void portable_matmul(const Tensor *a, const Tensor *b, Tensor *c)
{
    int64_t M = c->shape[c->rank - 2], N = c->shape[c->rank - 1], K = a->shape[a->rank - 1],
            count = M * N > 0 ? tensor_numel(c) / (M * N) : 0;
    const LinalgKernels *k = &kernels()->linalg;
    int64_t ars = a->stride[a->rank - 2], acs = a->stride[a->rank - 1], brs = b->stride[b->rank - 2],
            bcs = b->stride[b->rank - 1], ao, bo;
    for (int64_t i = 0; i < count; i++) {
        offsets(a, c, i, &ao);
        offsets(b, c, i, &bo);
        if (c->dtype == DT_F32)
            k->matmul_f32((float *)c->data + i * M * N, (const float *)a->data + ao, (const float *)b->data + bo, M, N,
                          K, ars, acs, brs, bcs);
        else if (c->dtype == DT_F64)
            k->matmul_f64((double *)c->data + i * M * N, (const double *)a->data + ao, (const double *)b->data + bo, M,
                          N, K, ars, acs, brs, bcs);
        else
            k->matmul_i64((int64_t *)c->data + i * M * N, (const int64_t *)a->data + ao, (const int64_t *)b->data + bo,
                          M, N, K, ars, acs, brs, bcs);
    }
}

double product_activation(int act, double x)
{
    switch (act) {
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_GELU_ERF: return 0.5 * x * (1 + real_erf(x * 0.70710678118654752440));
    case ACT_GELU_TANH: return 0.5 * x * (1 + real_tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case ACT_SILU: return x / (1 + real_exp(-x));
    case ACT_QUICK_GELU: return x / (1 + real_exp(-1.702 * x));
    default: return x;
    }
}

/* c = act(c + bias along dim `at`) + residual (or times it), after a portable product. */
static void finish(Tensor *c, const Tensor *bias, int at, const struct Epilogue *e, const Tensor *residual)
{
    int64_t n = tensor_numel(c), inner = 1;
    size_t size = dtype_size(c->dtype);
    for (int i = at + 1; i < c->rank; i++) inner *= c->shape[i];
    bool ints = !dtype_is_float(c->dtype);
    for (int64_t i = 0; i < n && (bias || e->act || residual); i++) {
        char *p = (char *)c->data + (size_t)i * size;
        if (ints) {
            store_i64(c->dtype, p, load_i64(c->dtype, p) + (bias ? tensor_get_i64(bias, i / inner % c->shape[at]) : 0));
            continue;
        }
        double v = load_f64(c->dtype, p) + (bias ? tensor_get(bias, i / inner % c->shape[at]) : 0);
        double y = product_activation((int)e->act, v), more = residual ? tensor_get(residual, i) : 0;
        store_f64(c->dtype, p, residual && e->times ? y * more : y + more);
    }
}

/* ------------------------------------------------------------------ matmul and linear */

static void free_gemm(void *g) { gemm_free(g); }

GemmAct product_act(int act)
{
    static const GemmAct table[] = {GEMM_NONE, GEMM_RELU, GEMM_GELU_ERF, GEMM_GELU_TANH, GEMM_SILU, GEMM_QUICK_GELU};
    return table[act];
}

/* As the product wants it: any strides, f32 or bf16 (which `exact` does not allow:
 * the portable kernels have one type). */
static const Tensor *operand(Call *c, const Tensor *t, DType want, bool exact, Err *err)
{
    return t->dtype == want || (!exact && gemm_takes(t->dtype)) ? t : call_contiguous(c, t, want, err);
}

/* A vector or a residual: contiguous, f32 or bf16. */
static const Tensor *added(Call *c, const Tensor *t, Err *err)
{
    return call_contiguous(c, t, gemm_takes(t->dtype) ? DT_NONE : DT_F32, err);
}

/* The copy of windows that the planner left out, shaped as the operand. */
static const Tensor *unfolded(Call *c, const Tensor *b, Err *err)
{
    const Tensor *copy = call_contiguous(c, c->windows, DT_NONE, err);
    Tensor *t = copy ? call_scratch(c, sizeof *t, err) : NULL;
    if (t) *t = tensor_of(b->dtype, b->rank, b->shape, copy->data);
    return t;
}

/* c = act(a @ b + bias) + residual; a, b, c of equal rank >= 2, dims broadcast; c contiguous. */
static bool multiply(Call *c, const Tensor *a, const Tensor *b, bool b_constant, const Tensor *bias, Tensor *out,
                     const Tensor *residual, Err *err)
{
    DType t = compute_type(out->dtype, gemm_takes(out->dtype));
    int64_t K = a->shape[a->rank - 1];
    bool same = t == out->dtype, portable = !gemm_takes(t) || K == 0;
    const Tensor *windows = portable || !gemm_takes(b->dtype) ? NULL : c->windows;
    if (tensor_numel(out) == 0) return true;
    if (c->windows && !windows) TRY(b = unfolded(c, b, err));
    bool rounded = a->dtype == DT_BF16 &&
                   b->dtype == DT_F32; /* a weight that the planner left to be rounded here (src/plan/fuse.h) */
    if (rounded && portable) TRY(b = call_contiguous(c, b, DT_BF16, err));
    const Tensor *x = operand(c, a, t, portable, err), *w = operand(c, b, t, portable, err);
    if (!x || !w) return false;
    Tensor *y = same ? out : product_scratch(c, t, out->rank, out->shape, err);
    TRY(y);
    if (portable) {
        if (K == 0) memset(y->data, 0, tensor_bytes(y));
        else portable_matmul(x, w, y);
        finish(y, bias, y->rank - 1, &c->epilogue, residual);
        return same || run_copy_tensor(out, y, c->env->threads);
    }
    const Tensor *add = bias ? added(c, bias, err) : NULL, *more = residual ? added(c, residual, err) : NULL;
    TRY((add || !bias) && (more || !residual));
    if (!c->state) {
        Tensor shape = *y; /* a residual of another rank has as many elements in the same order */
        if (more) shape.dtype = more->dtype;
        GemmMatmul d = {.a = x,
                        .b = w,
                        .c = y,
                        .bias = add,
                        .residual = more ? &shape : NULL,
                        .windows = windows,
                        .along = c->along,
                        .b_constant = b_constant && w == b,
                        .rounded = rounded,
                        .times = c->epilogue.times,
                        .act = product_act((int)c->epilogue.act),
                        .least_rows = c->least_rows};
        c->state = gemm_matmul(c->env->gemm, &d, err);
        TRY(c->state);
        c->state_free = free_gemm;
    }
    void *scratch = call_scratch(c, gemm_scratch(c->state), err);
    GemmBuffers m = {x->data, w->data, add ? add->data : NULL, more ? more->data : NULL, y->data};
    TRY(scratch && gemm_run(c->state, &m, scratch, err));
    return same || run_copy_tensor(out, y, c->env->threads);
}

static Tensor with_rank(const Tensor *t, int rank)
{
    Tensor u = *t;
    int lead = rank - t->rank;
    for (int i = rank - 1; i >= 0; i--) {
        u.shape[i] = i < lead ? 1 : t->shape[i - lead];
        u.stride[i] = i < lead ? 0 : t->stride[i - lead];
    }
    u.rank = rank;
    return u;
}

/* (..., K) as (M, K): the leading dims merged where they are evenly spaced. */
static bool flatten_rows(const Tensor *t, Tensor *flat)
{
    int64_t rows = 1, step = 0;
    bool empty = !tensor_numel(t); /* then strides are any, and nothing is stepped over */
    for (int i = t->rank - 2; i >= 0; i--) {
        if (t->shape[i] == 1) continue;
        if (rows == 1) step = t->stride[i];
        else if (!empty && t->stride[i] != step * rows) return false;
        rows *= t->shape[i];
    }
    *flat = tensor_of(t->dtype, 2, (int64_t[]){rows, t->shape[t->rank - 1]}, t->data);
    flat->stride[0] = rows == 1 ? t->shape[t->rank - 1] : step;
    flat->stride[1] = t->stride[t->rank - 1];
    return true;
}

static bool as_rows(Call *c, const Tensor *t, Tensor *flat, Err *err)
{
    if (t->rank >= 1 && flatten_rows(t, flat)) return true;
    const Tensor *copy = call_contiguous(c, t, DT_NONE, err);
    return copy && flatten_rows(copy, flat);
}

bool run_matmul(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0), a = *call_in(c, 0), b = *call_in(c, 1), y = *out;
    bool constant = c->arg[1].constant;
    if (b.rank == 2 && a.rank > 2) { /* one matrix for all rows */
        Tensor rows;
        TRY(as_rows(c, &a, &rows, err));
        Tensor flat = tensor_of(y.dtype, 2, (int64_t[]){rows.shape[0], b.shape[1]}, y.data);
        return multiply(c, &rows, &b, constant, NULL, &flat, c->epilogue.residual, err);
    }
    a = with_rank(&a, out->rank);
    b = with_rank(&b, out->rank);
    return multiply(c, &a, &b, constant && b.rank == 2, NULL, &y, c->epilogue.residual, err);
}

/* n of an axis from `start`. */
static Tensor cut(const Tensor *t, int axis, int64_t start, int64_t n)
{
    Tensor part = *t;
    part.shape[axis] = n;
    part.data = (char *)t->data + t->stride[axis] * start * (int64_t)dtype_size(t->dtype);
    return part;
}

/* Matrix g of a (G, rows, columns). */
static Tensor matrix_at(const Tensor *t, int64_t g)
{
    Tensor m = tensor_of(t->dtype, 2, &t->shape[1], (char *)t->data + t->stride[0] * g * (int64_t)dtype_size(t->dtype));
    m.stride[0] = t->stride[1];
    m.stride[1] = t->stride[2];
    return m;
}

/* One product a group: of its rows with its matrix, rows after the last group are zero; or of its columns with its
 * rows, a matrix each. Sizes of groups are data, so no primitive is kept. */
bool run_grouped_mm(Call *c, Err *err)
{
    const Tensor *a = call_in(c, 0), *b = call_in(c, 1), *offs = call_in(c, 2);
    Tensor *out = call_out(c, 0);
    bool inner = b->rank == 2; /* groups are along the axis that is summed */
    int64_t S = a->shape[inner ? 1 : 0], start = 0;
    for (int64_t g = 0; g < offs->shape[0]; g++) {
        int64_t end = tensor_get_i64(offs, g);
        if (end < start || end > S)
            return call_fail(c, E_USAGE, err, "group %lld ends at row %lld, expected %lld to %lld", (long long)g,
                             (long long)end, (long long)start, (long long)S);
        Tensor x = cut(a, inner ? 1 : 0, start, end - start),
               w = inner ? cut(b, 0, start, end - start) : matrix_at(b, g);
        Tensor y = inner ? matrix_at(out, g) : cut(out, 0, start, end - start);
        if (end == start) {
            if (inner) memset(y.data, 0, tensor_bytes(&y));
            continue;
        }
        bool ok = multiply(c, &x, &w, false, NULL, &y, NULL, err);
        gemm_free(c->state);
        c->state = NULL;
        TRY(ok);
        start = end;
    }
    if (inner || start == S) return true;
    Tensor rest = cut(out, 0, start, S - start);
    memset(rest.data, 0, tensor_bytes(&rest));
    return true;
}

bool run_linear(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0), *w = call_in(c, 1);
    Tensor *out = call_out(c, 0), rows, wt = *w;
    TRY(as_rows(c, x, &rows, err));
    Tensor y = tensor_of(out->dtype, 2, (int64_t[]){rows.shape[0], w->shape[0]}, out->data);
    wt.shape[0] = w->shape[1];
    wt.shape[1] = w->shape[0];
    wt.stride[0] = w->stride[1];
    wt.stride[1] = w->stride[0];
    return multiply(c, &rows, &wt, c->arg[1].constant, call_in(c, 2), &y, c->epilogue.residual, err);
}

/* ------------------------------------------------------------------ rotary embedding */

/* v with a contiguous last axis in dtype t, its leading strides as those of x's axes. */
static bool rotary_operand(Call *c, const Tensor *v, DType t, int rank, const void **data, int64_t *stride, Err *err)
{
    if (v->dtype != t || (v->stride[v->rank - 1] != 1 && v->shape[v->rank - 1] != 1))
        TRY(v = call_contiguous(c, v, t, err));
    for (int i = 0; i < rank; i++) {
        int k = i - (rank + 1 - v->rank);
        stride[i] = k < 0 || v->shape[k] == 1 ? 0 : v->stride[k];
    }
    *data = v->data;
    return true;
}

/* Rows in the order in which x lies in memory: heads of a token, whose angles are the same, before the next token. */
static void rows_in_order(Rotary *r)
{
    Rotary as = *r;
    int order[MAX_RANK];
    for (int i = 0; i < r->rank; i++) {
        int k = i;
        for (; k > 0 && as.xs[order[k - 1]] < as.xs[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < r->rank; i++) {
        int k = order[i];
        r->shape[i] = as.shape[k], r->ys[i] = as.ys[k];
        r->xs[i] = as.xs[k], r->cs[i] = as.cs[k], r->ss[i] = as.ss[k];
    }
}

bool run_rotary(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0), *cosine = call_in(c, 1), *sine = call_in(c, 2);
    Tensor *out = call_out(c, 0);
    DType t = x->dtype == DT_F64 ? DT_F64 : DT_F32;
    bool narrow = x->shape[x->rank - 1] <= ROTARY_WIDEST; /* rows of bf16 are read and written as they are */
    DType from = narrow && x->dtype == DT_BF16 ? DT_BF16 : t, to = narrow && out->dtype == DT_BF16 ? DT_BF16 : t;
    Rotary r = {.t = t,
                .x_t = from,
                .out_t = to,
                .rank = x->rank - 1,
                .D = x->shape[x->rank - 1],
                .interleaved = call_bool(c, 3)};
    if (tensor_numel(x) == 0) return true;
    memcpy(r.shape, x->shape, sizeof r.shape);
    r.one_cos = cosine->shape[cosine->rank - 1] != r.D;
    r.one_sin = sine->shape[sine->rank - 1] != r.D;
    TRY(rotary_operand(c, x, from, r.rank, &r.x, r.xs, err) && rotary_operand(c, cosine, t, r.rank, &r.cos, r.cs, err));
    TRY(rotary_operand(c, sine, t, r.rank, &r.sin, r.ss, err));
    Tensor *y = out->dtype == to ? out : product_scratch(c, to, out->rank, out->shape, err);
    TRY(y);
    r.out = y->data;
    memcpy(r.ys, y->stride, sizeof r.ys);
    rows_in_order(&r);
    if (t == DT_F32) kernels()->linalg.rotary_f32(&r, c->env->threads);
    else kernels()->linalg.rotary_f64(&r, c->env->threads);
    return y == out || run_copy_tensor(out, y, c->env->threads);
}
