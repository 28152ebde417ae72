/* Attention: operands and mask brought into the form that the kernel takes (kernel/sdpa.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernel/kernel.h"
#include "run/run_table.h"

/* Rows of the last dim must be contiguous. */
static const Tensor *rows_of(Call *c, const Tensor *x, DType t, Err *err)
{
    bool fine = x->dtype == t && (x->stride[x->rank - 1] == 1 || x->shape[x->rank - 1] == 1);
    return fine ? x : call_contiguous(c, x, t, err);
}

/* In double: the reference's order of operations, for f64 inputs. p: as many numbers as there are keys. */
static void attend_f64(double *p, const Tensor *q, const Tensor *k, const Tensor *v, const Tensor *mask, Tensor *out, double scale, double softcap, int64_t lower, int64_t upper)
{
    int64_t B = q->shape[0], H = q->shape[1], N = q->shape[2], D = q->shape[3], M = k->shape[2], E = v->shape[3], per = H / k->shape[1];
    for (int64_t row = 0; row < B * H * N; row++) {
        int64_t n = row % N, h = row / N % H, b = row / N / H;
        double *o = (double *)out->data + b * out->stride[0] + h * out->stride[1] + n * out->stride[2];
        const double *x = (const double *)q->data + b * q->stride[0] + h * q->stride[1] + n * q->stride[2];
        double top = -INFINITY, sum = 0;
        for (int64_t m = 0; m < M; m++) {
            const double *y = (const double *)k->data + b * k->stride[0] + h / per * k->stride[1] + m * k->stride[2];
            double s = 0;
            for (int64_t d = 0; d < D; d++) s += x[d * q->stride[3]] * y[d * k->stride[3]];
            s *= scale;
            if (softcap > 0) s = softcap * tanh(s / softcap);
            if (mask) {
                const char *at = (const char *)mask->data +
                                 (b * mask->stride[0] + h * mask->stride[1] + n * mask->stride[2] + m * mask->stride[3]) * (int64_t)dtype_size(mask->dtype);
                if (mask->dtype == DT_BOOL) s = *(const uint8_t *)at ? s : -INFINITY;
                else s += load_f64(mask->dtype, at);
            }
            if (m < n + lower || m > n + upper) s = -INFINITY;
            p[m] = s;
            if (s > top || s != s) top = s;
        }
        for (int64_t m = 0; m < M; m++) sum += p[m] = top == -INFINITY ? 0 : exp(p[m] - top);
        for (int64_t e = 0; e < E; e++) {
            double s = 0;
            for (int64_t m = 0; m < M; m++)
                s += p[m] * ((const double *)v->data)[b * v->stride[0] + h / per * v->stride[1] + m * v->stride[2] + e * v->stride[3]];
            o[e * out->stride[3]] = sum == 0 ? 0 : s / sum;
        }
    }
}

/* The mask as (B, H, N, M) with 0 strides where it broadcasts. */
static Tensor spread_mask(const Tensor *m, const Tensor *q, const Tensor *k)
{
    Tensor u = *m;
    int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]};
    for (int i = 3, from = m->rank - 1; i >= 0; i--, from--) {
        u.stride[i] = from < 0 || m->shape[from] == 1 ? 0 : m->stride[from];
        u.shape[i] = shape[i];
    }
    u.rank = 4;
    return u;
}

static int64_t bound(int64_t x) { return x < -SDPA_ANY ? -SDPA_ANY : x > SDPA_ANY ? SDPA_ANY : x; }

/* Out may have any strides that leave its last dim contiguous. Ranks other than 4 have their leading dims as batch: lowering made them 4 (import/lower_linalg.c). */
bool run_scaled_dot_product_attention(Call *c, Err *err)
{
    const Tensor *q = call_in(c, 0), *k = call_in(c, 1), *v = call_in(c, 2), *mask = call_in(c, 3);
    Tensor *out = call_out(c, 0);
    int64_t D = q->shape[3];
    double scale = call_given(c, 6) ? call_f64(c, 6) : 1 / sqrt((double)D);
    double softcap = call_f64(c, 8);
    int64_t lower = call_given(c, 9) ? bound(call_i64(c, 9)) : -SDPA_ANY, upper = call_given(c, 10) ? bound(call_i64(c, 10)) : SDPA_ANY;
    if (call_bool(c, 5) && upper > 0) upper = 0;
    if (tensor_numel(out) == 0) return true;
    Tensor spread;
    if (out->dtype == DT_F64) {
        if (mask) spread = spread_mask(mask, q, k);
        double *p = call_scratch(c, (size_t)k->shape[2] * sizeof *p, err);
        TRY(p);
        attend_f64(p, q, k, v, mask ? &spread : NULL, out, scale, softcap, lower, upper);
        return true;
    }
    const Tensor *m = mask;
    DType t = out->dtype;
    if (mask && mask->dtype != DT_BOOL && mask->dtype != DT_F32) TRY(m = call_contiguous(c, mask, DT_F32, err));
    q = rows_of(c, q, t, err);
    k = rows_of(c, k, t, err);
    v = rows_of(c, v, t, err);
    if (!q || !k || !v) return false;
    Sdpa a = {.t = t, .B = q->shape[0], .H = q->shape[1], .Hkv = k->shape[1], .N = q->shape[2], .M = k->shape[2], .D = D, .E = v->shape[3], .q = q->data,
              .k = k->data, .v = v->data, .out = out->data, .scale = (float)scale, .softcap = (float)softcap, .lower = lower, .upper = upper};
    for (int i = 0; i < 3; i++) {
        a.qs[i] = q->stride[i];
        a.ks[i] = k->stride[i];
        a.vs[i] = v->stride[i];
        a.os[i] = out->stride[i];
    }
    if (m) {
        spread = spread_mask(m, q, k);
        if (m->dtype == DT_BOOL) a.truth = m->data;
        else a.mask = m->data;
        for (int i = 0; i < 4; i++) a.ms[i] = spread.stride[i];
    }
    const SdpaKernels *kernel = &kernels()->sdpa;
    void *space = call_scratch(c, kernel->workspace(&a, c->env->threads), err);
    TRY(space);
    kernel->run(&a, space, c->env->threads);
    return true;
}

/* ------------------------------------------------------------------ sequences one after the other */

/* 0 <= offsets[0] <= offsets[1] ... <= rows; *most: rows of the longest sequence. */
static bool check_offsets(const Tensor *t, int64_t rows, int64_t *most, Err *err)
{
    const int64_t *at = t->data;
    *most = 0;
    for (int64_t b = 0; b + 1 < t->shape[0]; b++) {
        int64_t n = at[b + 1] - at[b];
        if (at[b] < 0 || n < 0 || at[b + 1] > rows) return fail(err, E_USAGE, "sequence %lld is rows %lld to %lld of %lld", (long long)b, (long long)at[b], (long long)at[b + 1], (long long)rows);
        if (n > *most) *most = n;
    }
    return true;
}

/* Rows from .. to of x (rows, H, D) as (1, H, to - from, D). */
static Tensor sequence_of(const Tensor *x, int64_t from, int64_t to)
{
    Tensor y = *x;
    y.rank = 4;
    y.data = (char *)x->data + from * x->stride[0] * (int64_t)dtype_size(x->dtype);
    memcpy(y.shape, (int64_t[]){1, x->shape[1], to - from, x->shape[2]}, 4 * sizeof *y.shape);
    memcpy(y.stride, (int64_t[]){0, x->stride[1], x->stride[0], x->stride[2]}, 4 * sizeof *y.stride);
    return y;
}

bool run_sdpa_varlen(Call *c, Err *err)
{
    const Tensor *q = call_in(c, 0), *k = call_in(c, 1), *v = call_in(c, 2), *qo = call_in(c, 3), *ko = call_in(c, 4), *bias = call_in(c, 5);
    Tensor *out = call_out(c, 0);
    int64_t B = qo->shape[0] - 1, N, M;
    double scale = call_given(c, 6) ? call_f64(c, 6) : 1 / sqrt((double)q->shape[2]), softcap = call_f64(c, 7);
    int64_t lower = call_given(c, 8) ? bound(call_i64(c, 8)) : -SDPA_ANY, upper = call_given(c, 9) ? bound(call_i64(c, 9)) : SDPA_ANY;
    DType t = out->dtype;
    TRY((qo = call_contiguous(c, qo, DT_I64, err)) && (ko = call_contiguous(c, ko, DT_I64, err)));
    TRY(check_offsets(qo, q->shape[0], &N, err) || within(err, "argument 'q_offsets'"));
    TRY(check_offsets(ko, k->shape[0], &M, err) || within(err, "argument 'k_offsets'"));
    if (tensor_numel(out) == 0) return true;
    const int64_t *qr = qo->data, *kr = ko->data;
    int64_t first = B > 0 ? qr[0] : out->shape[0], last = B > 0 ? qr[B] : out->shape[0];
    size_t row = (size_t)out->stride[0] * dtype_size(t);
    memset(out->data, 0, (size_t)first * row); /* rows of no sequence */
    memset((char *)out->data + (size_t)last * row, 0, (size_t)(out->shape[0] - last) * row);
    if (bias) TRY(bias = call_contiguous(c, bias, t == DT_F64 ? DT_F64 : DT_F32, err));
    if (t == DT_F64) {
        double *p = call_scratch(c, (size_t)M * sizeof *p, err);
        TRY(p);
        for (int64_t b = 0; b < B; b++) {
            Tensor y = sequence_of(out, qr[b], qr[b + 1]), x[3] = {sequence_of(q, qr[b], qr[b + 1]), sequence_of(k, kr[b], kr[b + 1]), sequence_of(v, kr[b], kr[b + 1])}, mask;
            if (bias) mask = (Tensor){.dtype = DT_F64, .rank = 4, .data = (double *)bias->data + kr[b], .stride = {0, 0, 0, 1}};
            attend_f64(p, &x[0], &x[1], &x[2], bias ? &mask : NULL, &y, scale, softcap, lower, upper);
        }
        return true;
    }
    TRY((q = rows_of(c, q, t, err)) && (k = rows_of(c, k, t, err)) && (v = rows_of(c, v, t, err)));
    Sdpa a = {.t = t, .B = B, .H = q->shape[1], .Hkv = k->shape[1], .N = N, .M = M, .D = q->shape[2], .E = v->shape[2], .q = q->data, .k = k->data, .v = v->data,
              .out = out->data, .qs = {0, q->stride[1], q->stride[0]}, .ks = {0, k->stride[1], k->stride[0]}, .vs = {0, v->stride[1], v->stride[0]},
              .os = {0, out->stride[1], out->stride[0]}, .scale = (float)scale, .softcap = (float)softcap, .lower = lower, .upper = upper, .q_rows = qr, .k_rows = kr};
    const SdpaKernels *kernel = &kernels()->sdpa;
    if (!bias) {
        void *space = call_scratch(c, kernel->workspace(&a, c->env->threads), err);
        TRY(space);
        kernel->run(&a, space, c->env->threads);
        return true;
    }
    a.B = 1;
    a.ms[3] = 1;
    void *space = call_scratch(c, kernel->workspace(&a, c->env->threads), err);
    TRY(space);
    for (int64_t b = 0; b < B; b++) { /* the bias of a sequence begins at its first row */
        a.q_rows = qr + b;
        a.k_rows = kr + b;
        a.mask = (const float *)bias->data + kr[b];
        kernel->run(&a, space, c->env->threads);
    }
    return true;
}
