/* Attention: operands and mask brought into the form that the kernel takes (kernel/sdpa.h). */
#include <math.h>
#include <stdlib.h>
#include "kernel/kernel.h"
#include "run/run_table.h"

/* Rows of the last dim must be contiguous. */
static const Tensor *rows_of(Call *c, const Tensor *x, DType t, Err *err)
{
    bool fine = x->dtype == t && (x->stride[x->rank - 1] == 1 || x->shape[x->rank - 1] == 1);
    return fine ? x : call_contiguous(c, x, t, err);
}

/* In double: the reference's order of operations, for f64 inputs. */
static void attend_f64(const Tensor *q, const Tensor *k, const Tensor *v, const Tensor *mask, Tensor *out, double scale, double softcap, int64_t lower, int64_t upper)
{
    int64_t B = q->shape[0], H = q->shape[1], N = q->shape[2], D = q->shape[3], M = k->shape[2], E = v->shape[3], per = H / k->shape[1];
    double *p = malloc(((size_t)M + 1) * sizeof *p);
    for (int64_t row = 0; p && row < B * H * N; row++) {
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
    free(p);
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
        attend_f64(q, k, v, mask ? &spread : NULL, out, scale, softcap, lower, upper);
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
