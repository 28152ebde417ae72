/* Attention: operands and mask brought into the form that the kernel takes (kernel/sdpa.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernel/kernel.h"
#include "run/run_table.h"

/* Rows of the last dim must be contiguous. NULL: an error. */
static const Tensor *rows_of(Call *c, const Tensor *x, DType t, Err *err)
{
    bool fine = x->dtype == t && (x->stride[x->rank - 1] == 1 || x->shape[x->rank - 1] == 1);
    return fine ? x : call_contiguous(c, x, t, err);
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

/* What every form of attention takes; arguments by where the form has them. */
typedef struct Attention {
    const Tensor *q, *k, *v, *mask;
    double scale, softcap;
    int64_t lower, upper;
} Attention;

static Attention read_attention(const Call *c, int query, int mask, int causal, int scale, int softcap)
{
    Attention a = {call_in(c, query), call_in(c, query + 1), call_in(c, query + 2), call_in(c, mask),
                   .softcap = call_f64(c, softcap)};
    a.scale = call_given(c, scale) ? call_f64(c, scale) : 1 / sqrt((double)a.q->shape[3]);
    a.lower = call_given(c, softcap + 1) ? bound(call_i64(c, softcap + 1)) : -SDPA_ANY;
    a.upper = call_given(c, softcap + 2) ? bound(call_i64(c, softcap + 2)) : SDPA_ANY;
    if (call_bool(c, causal) && a.upper > 0) a.upper = 0;
    return a;
}

static void copy_strides(int64_t *to, const Tensor *x) { memcpy(to, x->stride, 3 * sizeof *to); }

/* Operands and mask as the kernel takes them, of type t. lse: NULL for none. */
static bool kernel_operands(Call *c, const Attention *in, DType t, const Tensor *out, const Tensor *lse, Sdpa *a,
                            Err *err)
{
    const Tensor *q = rows_of(c, in->q, t, err), *k = rows_of(c, in->k, t, err), *v = rows_of(c, in->v, t, err),
                 *m = in->mask;
    TRY(q && k && v);
    DType wide = t == DT_F64 ? DT_F64 : DT_F32;
    if (m && m->dtype != DT_BOOL && m->dtype != wide) TRY(m = call_contiguous(c, m, wide, err));
    *a = (Sdpa){.t = t,
                .B = q->shape[0],
                .H = q->shape[1],
                .Hkv = k->shape[1],
                .N = q->shape[2],
                .M = k->shape[2],
                .D = q->shape[3],
                .E = v->shape[3],
                .q = q->data,
                .k = k->data,
                .v = v->data,
                .out = out->data,
                .scale = in->scale,
                .softcap = in->softcap,
                .lower = in->lower,
                .upper = in->upper};
    copy_strides(a->qs, q);
    copy_strides(a->ks, k);
    copy_strides(a->vs, v);
    copy_strides(a->os, out);
    if (lse) {
        a->lse = lse->data;
        copy_strides(a->ls, lse);
    }
    if (!m) return true;
    if (m->dtype == DT_BOOL) a->truth = m->data;
    else if (t == DT_F64) a->mask_f64 = m->data;
    else a->mask = m->data;
    Tensor spread = spread_mask(m, q, k);
    memcpy(a->ms, spread.stride, sizeof a->ms);
    return true;
}

static const SdpaKernels *kernels_for(DType t) { return t == DT_F64 ? &kernels_at(CPU_REF)->sdpa : &kernels()->sdpa; }

static bool attend(Call *c, const Attention *in, Tensor *lse, Err *err)
{
    Tensor *out = call_out(c, 0);
    Sdpa a;
    if (tensor_numel(out) == 0 && (!lse || tensor_numel(lse) == 0)) return true;
    TRY(kernel_operands(c, in, out->dtype, out, lse, &a, err));
    const SdpaKernels *kernel = kernels_for(a.t);
    void *space = call_scratch(c, kernel->workspace(&a, c->env->threads), err);
    TRY(space);
    kernel->run(&a, space, c->env->threads);
    return true;
}

/* Out may have any strides that leave its last dim contiguous. Ranks other than 4 have their leading dims as batch:
 * lowering made them 4 (lower/lower_linalg.c). */
bool run_scaled_dot_product_attention(Call *c, Err *err)
{
    Attention a = read_attention(c, 0, 3, 5, 6, 8);
    return attend(c, &a, NULL, err);
}

bool run_sdpa_lse(Call *c, Err *err)
{
    Attention a = read_attention(c, 0, 3, 4, 5, 6);
    return attend(c, &a, c->unused & 2 ? NULL : call_out(c, 1), err);
}

/* ------------------------------------------------------------------ gradient */

static void want(const Call *c, int k, void **data, int64_t *stride)
{
    if (c->unused >> k & 1) return;
    *data = call_out(c, k)->data;
    copy_strides(stride, call_out(c, k));
}

/* The kernel sums up the mask's gradient in float (double); what else it is to be is cast. */
static bool want_mask(Call *c, const Attention *in, SdpaBackward *g, Tensor *wide, Err *err)
{
    Tensor *out = call_out(c, 3), spread;
    *wide = *out;
    wide->dtype = g->f.t == DT_F64 ? DT_F64 : DT_F32;
    if (!call_bool(c, 12) || c->unused & 8 || tensor_numel(out) == 0) return true;
    if (out->dtype != wide->dtype) {
        strides_contiguous(wide->rank, wide->shape, wide->stride);
        TRY(wide->data = call_scratch(c, (size_t)tensor_numel(out) * dtype_size(wide->dtype), err));
    }
    g->dmask = wide->data;
    spread = spread_mask(wide, in->q, in->k);
    memcpy(g->dms, spread.stride, sizeof g->dms);
    return true;
}

bool run_sdpa_backward(Call *c, Err *err)
{
    Attention in = read_attention(c, 1, 6, 7, 8, 9);
    DType t = call_out(c, 0)->dtype;
    const Tensor *dout = rows_of(c, call_in(c, 0), t, err), *out = rows_of(c, call_in(c, 4), t, err);
    SdpaBackward g = {.dout = NULL};
    Tensor mask;
    TRY(dout && out && kernel_operands(c, &in, t, out, call_in(c, 5), &g.f, err));
    g.dout = dout->data;
    copy_strides(g.dos, dout);
    want(c, 0, &g.dq, g.dqs);
    want(c, 1, &g.dk, g.dks);
    want(c, 2, &g.dv, g.dvs);
    TRY(want_mask(c, &in, &g, &mask, err));
    const SdpaKernels *kernel = kernels_for(t);
    void *space = call_scratch(c, kernel->backward_workspace(&g, c->env->threads), err);
    TRY(space);
    kernel->backward(&g, space, c->env->threads);
    if (g.dmask && mask.data != call_out(c, 3)->data) tensor_copy(call_out(c, 3), &mask);
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
        if (at[b] < 0 || n < 0 || at[b + 1] > rows)
            return fail(err, E_USAGE, "sequence %lld is rows %lld to %lld of %lld", (long long)b, (long long)at[b],
                        (long long)at[b + 1], (long long)rows);
        if (n > *most) *most = n;
    }
    return true;
}

bool run_sdpa_varlen(Call *c, Err *err)
{
    const Tensor *q = call_in(c, 0), *k = call_in(c, 1), *v = call_in(c, 2), *qo = call_in(c, 3), *ko = call_in(c, 4),
                 *bias = call_in(c, 5);
    Tensor *out = call_out(c, 0);
    int64_t B = qo->shape[0] - 1, N, M;
    double scale = call_given(c, 6) ? call_f64(c, 6) : 1 / sqrt((double)q->shape[2]), softcap = call_f64(c, 7);
    int64_t lower = call_given(c, 8) ? bound(call_i64(c, 8)) : -SDPA_ANY,
            upper = call_given(c, 9) ? bound(call_i64(c, 9)) : SDPA_ANY;
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
    TRY((q = rows_of(c, q, t, err)) && (k = rows_of(c, k, t, err)) && (v = rows_of(c, v, t, err)));
    Sdpa a = {.t = t,
              .B = B,
              .H = q->shape[1],
              .Hkv = k->shape[1],
              .N = N,
              .M = M,
              .D = q->shape[2],
              .E = v->shape[2],
              .q = q->data,
              .k = k->data,
              .v = v->data,
              .out = out->data,
              .qs = {0, q->stride[1], q->stride[0]},
              .ks = {0, k->stride[1], k->stride[0]},
              .vs = {0, v->stride[1], v->stride[0]},
              .os = {0, out->stride[1], out->stride[0]},
              .scale = scale,
              .softcap = softcap,
              .lower = lower,
              .upper = upper,
              .q_rows = qr,
              .k_rows = kr};
    const SdpaKernels *kernel = kernels_for(t);
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
        if (t == DT_F64) a.mask_f64 = (const double *)bias->data + kr[b];
        else a.mask = (const float *)bias->data + kr[b];
        kernel->run(&a, space, c->env->threads);
    }
    return true;
}
