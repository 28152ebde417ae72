/* Convolutions: f32 and bf16 through gemm.h, contiguous or channels-last; the rest by plain loops.
 *
 *     conv -> relu        conv -> add(residual) -> relu        one step, the residual already where the result goes
 */
#include <string.h>
#include "kernel/kernel.h"
#include "kernel/meeting.h"
#include "run/pointwise.h"
#include "run/product.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ plain loops */

typedef struct ConvSizes {
    int64_t stride[3], padding[3], padding_end[3], dilation[3], output_padding[3];
    int64_t groups;
    bool transposed;
    int spatial;
} ConvSizes;

/* The same with three axes. */
typedef struct Loops {
    int64_t x[3], y[3], k[3], stride[3], padding[3], dilation[3];
    bool transposed;
} Loops;

static Loops loops_of(const Tensor *x, const Tensor *w, const Tensor *y, const ConvSizes *s)
{
    Loops l = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, s->transposed};
    for (int i = 0, lead = 3 - s->spatial; i < s->spatial; i++) {
        l.x[lead + i] = x->shape[2 + i];
        l.y[lead + i] = y->shape[2 + i];
        l.k[lead + i] = w->shape[2 + i];
        l.stride[lead + i] = s->stride[i];
        l.padding[lead + i] = s->padding[i];
        l.dilation[lead + i] = s->dilation[i];
    }
    return l;
}

/* The pixel that tap k[] of output at[] meets; -1: none, between two pixels. */
static int64_t pixel_met(const Loops *l, const int64_t *at, const int64_t *k)
{
    int64_t pixel = 0;
    for (int d = 0; d < 3; d++) {
        int64_t z = l->transposed ? at[d] + l->padding[d] - k[d] * l->dilation[d]
                                  : at[d] * l->stride[d] - l->padding[d] + k[d] * l->dilation[d];
        if (l->transposed && z % l->stride[d]) return -1;
        pixel = pixel * l->x[d] + (l->transposed ? z / l->stride[d] : z);
    }
    return pixel;
}

/* Plain loops over every output element, double (or 64-bit integer) accumulator. */
static void portable_conv(const Tensor *x, const Tensor *w, Tensor *y, const ConvSizes *s)
{
    const Loops l = loops_of(x, w, y, s);
    int64_t C = x->shape[1], O = y->shape[1], cg = C / s->groups, og = O / s->groups, taps = l.k[0] * l.k[1] * l.k[2];
    int64_t xn = l.x[0] * l.x[1] * l.x[2], yn = l.y[0] * l.y[1] * l.y[2];
    bool ints = !dtype_is_float(y->dtype);
    size_t size = dtype_size(y->dtype);
    for (int64_t i = 0; i < tensor_numel(y); i++) {
        int64_t p = i % yn, o = i / yn % O, n = i / yn / O, g = o / og, k[3],
                at[3] = {p / l.y[2] / l.y[1], p / l.y[2] % l.y[1], p % l.y[2]};
        double sum = 0;
        int64_t isum = 0;
        Meeting m[3];
        for (int d = 0; d < 3; d++)
            m[d] = taps_meeting(at[d], l.x[d], l.k[d], l.stride[d], l.padding[d], l.dilation[d], l.transposed);
        for (k[0] = m[0].first; k[0] < m[0].end; k[0]++)
            for (k[1] = m[1].first; k[1] < m[1].end; k[1]++)
                for (k[2] = m[2].first; k[2] < m[2].end; k[2]++) {
                    int64_t pixel = pixel_met(&l, at, k), t = (k[0] * l.k[1] + k[1]) * l.k[2] + k[2];
                    for (int64_t c = 0; pixel >= 0 && c < cg; c++) {
                        int64_t xi = (n * C + g * cg + c) * xn + pixel,
                                wi = (l.transposed ? (g * cg + c) * og + o % og : o * cg + c) * taps + t;
                        if (ints) isum += tensor_get_i64(x, xi) * tensor_get_i64(w, wi);
                        else sum += tensor_get(x, xi) * tensor_get(w, wi);
                    }
                }
        if (ints) store_i64(y->dtype, (char *)y->data + (size_t)i * size, isum);
        else store_f64(y->dtype, (char *)y->data + (size_t)i * size, sum);
    }
}

/* y = act(y + bias) + residual, or act(y + bias + residual); y contiguous, (N, O, spatial...). */
static void finish(Tensor *y, const Tensor *bias, const struct Epilogue *e)
{
    int64_t inner = 1;
    for (int i = 2; i < y->rank; i++) inner *= y->shape[i];
    for (int64_t i = 0; i < tensor_numel(y); i++) {
        char *p = (char *)y->data + (size_t)i * dtype_size(y->dtype);
        int64_t o = i / inner % y->shape[1];
        if (!dtype_is_float(y->dtype)) {
            store_i64(y->dtype, p, load_i64(y->dtype, p) + (bias ? tensor_get_i64(bias, o) : 0));
            continue;
        }
        double v = load_f64(y->dtype, p) + (bias ? tensor_get(bias, o) : 0),
               more = e->residual ? tensor_get(e->residual, i) : 0;
        store_f64(y->dtype, p,
                  e->act_last ? product_activation((int)e->act, v + more) : product_activation((int)e->act, v) + more);
    }
}

static bool plain_loops(Call *c, const ConvSizes *s, DType t, Err *err)
{
    Tensor *out = call_out(c, 0), *y = t == out->dtype && tensor_contiguous(out) && !c->epilogue.residual
                                           ? out
                                           : product_scratch(c, t, out->rank, out->shape, err);
    const Tensor *x = call_contiguous(c, call_in(c, 0), t, err),
                 *w = x ? call_contiguous(c, call_in(c, 1), t, err) : NULL;
    TRY(y && w);
    portable_conv(x, w, y, s);
    finish(y, call_in(c, 2), &c->epilogue);
    return y == out || run_copy_tensor(out, y, c->env->threads);
}

/* ------------------------------------------------------------------ through gemm.h */

static void free_gemm(void *g) { gemm_free(g); }

/* Convolutions through gemm.h are of f32 or bf16. */
static DType gemm_type(DType t)
{
    if (cpu_level() == CPU_REF || (t != DT_F32 && t != DT_BF16 && t != DT_F16)) return DT_NONE;
    return t == DT_BF16 ? DT_BF16 : DT_F32;
}

/* Where the result is made: out, or what is copied there after, as the kernels give it: channels-last. */
static Tensor *result(Call *c, DType t, Err *err)
{
    Tensor *out = call_out(c, 0);
    if (t == out->dtype && tensor_channels_last(out)) return out;
    Tensor *y = product_scratch(c, t, out->rank, out->shape, err);
    if (y) strides_channels_last(y->rank, y->shape, y->stride);
    return y;
}

/* Contiguous or channels-last, of type t. */
static const Tensor *activations(Call *c, const Tensor *x, DType t, Err *err)
{
    return x->dtype == t && tensor_channels_last(x) ? x : call_contiguous(c, x, t, err);
}

/* What is needed after the input so that the output has its size. */
static void pad_end(const Tensor *x, const Tensor *w, const Tensor *y, ConvSizes *s)
{
    for (int i = 0; i < s->spatial; i++) {
        int64_t span = (w->shape[2 + i] - 1) * s->dilation[i] + 1, in = x->shape[2 + i], out = y->shape[2 + i];
        s->padding_end[i] = s->transposed ? (in - 1) * s->stride[i] + span - s->padding[i] - out
                                          : (out - 1) * s->stride[i] + span - s->padding[i] - in;
    }
}

static bool make(Call *c, const ConvSizes *s, const Tensor *x, const Tensor *w, const Tensor *bias, const Tensor *y,
                 Err *err)
{
    const struct Epilogue *e = &c->epilogue;
    GemmConv d = {.x = x,
                  .w = w,
                  .bias = bias,
                  .y = y,
                  .spatial = s->spatial,
                  .stride = s->stride,
                  .padding = s->padding,
                  .padding_end = s->padding_end,
                  .dilation = s->dilation,
                  .groups = s->groups,
                  .transposed = s->transposed,
                  .w_constant = c->arg[1].constant && w == call_in(c, 1),
                  .act = product_act((int)e->act),
                  .sum = e->residual != NULL};
    c->state = gemm_conv(c->env->gemm, &d, err);
    c->state_free = free_gemm;
    return c->state != NULL;
}

bool run_convolution(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    const Tensor *w0 = call_in(c, 1), *bias = call_in(c, 2), *residual = c->epilogue.residual;
    ConvSizes s = {.spatial = out->rank - 2, .transposed = call_bool(c, 6), .groups = call_i64(c, 8)};
    call_ints(c, 3, s.stride, 3);
    call_ints(c, 4, s.padding, 3);
    call_ints(c, 5, s.dilation, 3);
    call_ints(c, 7, s.output_padding, 3);
    DType t = gemm_type(out->dtype);
    if (tensor_numel(out) == 0) return true;
    if (t == DT_NONE)
        return plain_loops(c, &s, out->dtype == DT_F64 ? DT_F64 : dtype_is_float(out->dtype) ? DT_F32 : DT_I64, err);
    const Tensor *x = activations(c, call_in(c, 0), t, err),
                 *w = w0->dtype == t && c->arg[1].constant ? w0 : call_contiguous(c, w0, t, err);
    const Tensor *add = bias ? call_contiguous(c, bias, bias->dtype == t ? DT_NONE : DT_F32, err) : NULL;
    TRY(x && w && (add || !bias));
    Tensor *y = result(c, t, err);
    TRY(y && (!residual || residual->data == y->data || run_copy_tensor(y, residual, c->env->threads)));
    pad_end(x, w, y, &s);
    TRY(c->state || make(c, &s, x, w, add, y, err));
    void *scratch = call_scratch(c, gemm_scratch(c->state), err);
    GemmBuffers m = {x->data, w->data, add ? add->data : NULL, residual ? y->data : NULL, y->data};
    TRY(scratch && gemm_run(c->state, &m, scratch, err));
    return y == out || run_copy_tensor(out, y, c->env->threads);
}
