/* Values in few bits and a scale, as ONNX's QuantizeLinear and DequantizeLinear have them.
 *
 *     quantize      y = clamp(round_half_even(x / scale) + zero_point), into the range of y's dtype; float types of 8
 *                   and 4 bits: the nearest number
 *     dequantize    y = (x - zero_point) * scale
 *
 * scale and zero_point are one number, one for each index of `axis`, or one for each block of block_size along it (then
 * they have x's rank).
 */
#include <math.h>
#include <string.h>
#include "kernel/kernel.h"
#include "run/run_table.h"

/* x (outer, n, inner); element (o, i, k) has scale number o * at_outer + (i / block) * at_n + k * at_inner. */
typedef struct Layout {
    int64_t outer, n, inner, block, at_outer, at_n, at_inner;
} Layout;

static Layout layout_of(const Call *c, int axis_arg, int block_arg)
{
    const Tensor *x = call_in(c, 0), *scale = call_in(c, 1);
    Layout l = {.outer = 1, .n = 1, .inner = 1, .block = 1};
    if (tensor_numel(scale) == 1) {
        l.inner = tensor_numel(x);
        return l;
    }
    int axis = call_dim(c, axis_arg, x->rank);
    for (int i = 0; i < axis; i++) l.outer *= x->shape[i];
    l.n = x->shape[axis];
    for (int i = axis + 1; i < x->rank; i++) l.inner *= x->shape[i];
    l.at_n = 1;
    if (scale->rank == x->rank && call_i64(c, block_arg) > 0) {
        l.block = call_i64(c, block_arg);
        l.at_n = l.inner;
        l.at_inner = 1;
        l.at_outer = (l.n + l.block - 1) / l.block * l.inner;
    }
    return l;
}

typedef struct Range {
    double low, high;
    bool is_float;
} Range;

static Range range_of(DType t)
{
    bool narrow = dtype_bits(t) <= 8 && t != DT_F8E8M0; /* wider floats have infinities for what is too large */
    if (dtype_is_float(t) && !narrow) return (Range){-INFINITY, INFINITY, true};
    return (Range){dtype_lowest(t), dtype_highest(t), dtype_is_float(t)};
}

static double as_type(DType t, double v)
{
    unsigned char b[8];
    if (t == DT_F32) return (double)(float)v;
    if (t == DT_F64) return v;
    store_f64(t, b, v);
    return load_f64(t, b);
}

/* One scale for the tensor, or one a row of its last axis, from float32 to 8 bits: by kernels. */
static bool by_rows(const Call *c, const Layout *l)
{
    DType t = call_out(c, 0)->dtype;
    bool whole = tensor_numel(call_in(c, 1)) == 1, rows = l->inner == 1 && l->block == l->n && l->at_outer == 1;
    return (whole || rows) && (t == DT_I8 || t == DT_U8) && call_in(c, 0)->dtype == DT_F32 &&
           call_in(c, 1)->dtype == DT_F32 && (!call_given(c, 7) || c->arg[7].dtype == DT_F32);
}

static void quantize_rows(const Call *c, const Tensor *x, const Tensor *scale, const Tensor *zero, const Layout *l)
{
    enum { PIECE = 1 << 14 };
    const IntegerKernels *k = kernels()->integer.mr ? &kernels()->integer : &kernels_at(CPU_GEN)->integer;
    Tensor *out = call_out(c, 0);
    bool whole = tensor_numel(scale) == 1;
    int64_t all = tensor_numel(x), row = whole ? PIECE : l->n, rows = row ? (all + row - 1) / row : 0;
#pragma omp parallel for num_threads(c->env->threads) if (all > PIECE)
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = i * row, n = all - at < row ? all - at : row;
        Rounding r = {(float)tensor_get(scale, whole ? 0 : i), zero ? (int)tensor_get_i64(zero, whole ? 0 : i) : 0,
                      (int)dtype_lowest(out->dtype), (int)dtype_highest(out->dtype), call_bool(c, 8),
                      call_bool(c, 9) ? (int)dtype_lowest(out->dtype) : 0};
        if (out->dtype == DT_I8) k->round_i8((int8_t *)out->data + at, (const float *)x->data + at, n, &r);
        else k->round_u8((uint8_t *)out->data + at, (const float *)x->data + at, n, &r);
    }
}

/* The operand in the order of the result's elements, which is its own where pictures lie channels last. */
static const Tensor *in_order(Call *c, Err *err)
{
    return tensor_contiguous(call_out(c, 0)) ? call_contiguous(c, call_in(c, 0), DT_NONE, err) : call_in(c, 0);
}

/* (x, scale, zero_point, dtype, axis, block_size, saturate, precision, by_inverse, nan_lowest); the quotient is rounded
 * to `precision`. by_inverse: x * (1 / scale), as PyTorch's quantizers have it. NaN: 0, or the lowest
 * integer */
bool run_quantize_linear(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    const Tensor *x = in_order(c, err), *scale = x ? call_contiguous(c, call_in(c, 1), DT_F64, err) : NULL;
    TRY(scale);
    const Tensor *zero = call_in(c, 2) ? call_contiguous(c, call_in(c, 2), DT_NONE, err) : NULL;
    TRY(zero || !call_in(c, 2));
    const Layout l = layout_of(c, 4, 5);
    if (by_rows(c, &l)) {
        quantize_rows(c, x, scale, zero, &l);
        return true;
    }
    const Range range = range_of(out->dtype);
    DType from = call_in(c, 0)->dtype, by = call_in(c, 1)->dtype,
          precise = call_given(c, 7)       ? c->arg[7].dtype
                    : dtype_is_float(from) ? dtype_promote(from, by)
                                           : by;
    bool saturate = call_bool(c, 6) || !range.is_float, by_inverse = call_bool(c, 8);
    const double none = call_bool(c, 9) ? range.low : 0;
    size_t size = dtype_size(out->dtype), width = dtype_size(from), zero_size = zero ? dtype_size(zero->dtype) : 0;
    const double *s = scale->data;
#pragma omp parallel for num_threads(c->env->threads) if (l.outer * l.n > 1 && l.outer * l.n * l.inner > 1 << 14)
    for (int64_t row = 0; row < l.outer * l.n; row++) {
        int64_t first = row / l.n * l.at_outer + row % l.n / l.block * l.at_n;
        for (int64_t k = 0; k < l.inner; k++) {
            int64_t at = row * l.inner + k, which = first + k * l.at_inner;
            double v = from == DT_F32 ? (double)((const float *)x->data)[at]
                                      : load_f64(from, (const char *)x->data + (size_t)at * width);
            double z = zero ? load_f64(zero->dtype, (const char *)zero->data + (size_t)which * zero_size) : 0;
            v = as_type(precise, by_inverse ? v * as_type(precise, 1 / s[which]) : v / s[which]);
            if (!range.is_float) v = isnan(v) ? none : rint(v) + z;
            else v += z;
            if (!saturate && out->dtype == DT_F8E4M3 && fabs(v) > 464)
                v = NAN; /* halfway to the code after the largest */
            if (saturate) v = v < range.low ? range.low : v > range.high ? range.high : v;
            char *to = (char *)out->data + (size_t)at * size;
            if (range.is_float) store_f64(out->dtype, to, v);
            else store_i64(out->dtype, to, (int64_t)v);
        }
    }
    return true;
}

/* (x, dtype, least) -> rows of integers, a scale a row, a zero point a row. Rows do not depend on each other. */
bool run_quantize_rows(Call *c, Err *err)
{
    const IntegerKernels *k = kernels()->integer.mr ? &kernels()->integer : &kernels_at(CPU_GEN)->integer;
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    TRY(x);
    Tensor *q = call_out(c, 0), *scale = call_out(c, 1), *zero = call_out(c, 2);
    const int64_t rows = tensor_numel(scale), n = rows ? tensor_numel(x) / rows : 0;
    const float least = (float)call_f64(c, 2);
    const bool unread = c->unused & 4;
    if (q->dtype == DT_I8 && !unread) memset(zero->data, 0, (size_t)rows);
#pragma omp parallel for num_threads(c->env->threads) if (rows > 1 && rows * n > 1 << 14)
    for (int64_t i = 0; i < rows; i++) {
        const float *from = (const float *)x->data + i * n;
        float *by = (float *)scale->data + i;
        uint8_t none, *at = unread ? &none : (uint8_t *)zero->data + i;
        if (q->dtype == DT_I8) k->row_i8((int8_t *)q->data + i * n, from, n, least, by);
        else k->row_u8((uint8_t *)q->data + i * n, from, n, least, by, at);
    }
    return true;
}

/* (x, scale, zero_point, axis, block_size, dtype), in float32 */
bool run_dequantize_linear(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    const Tensor *x = in_order(c, err), *scale = x ? call_contiguous(c, call_in(c, 1), DT_F32, err) : NULL;
    TRY(scale);
    const Tensor *zero = call_in(c, 2) ? call_contiguous(c, call_in(c, 2), DT_F32, err) : NULL;
    TRY(zero || !call_in(c, 2));
    const Layout l = layout_of(c, 3, 4);
    DType from = x->dtype, to = out->dtype;
    const float *s = scale->data, *z = zero ? zero->data : NULL;
#pragma omp parallel for num_threads(c->env->threads) if (l.outer * l.n > 1 && l.outer * l.n * l.inner > 1 << 14)
    for (int64_t row = 0; row < l.outer * l.n; row++) {
        int64_t first = row / l.n * l.at_outer + row % l.n / l.block * l.at_n;
        for (int64_t k = 0; k < l.inner; k++) {
            int64_t at = row * l.inner + k, which = first + k * l.at_inner;
            float v = from == DT_U8   ? ((const uint8_t *)x->data)[at]
                      : from == DT_I8 ? ((const int8_t *)x->data)[at]
                                      : (float)load_f64(from, (const char *)x->data + (size_t)at * dtype_size(from));
            v = (v - (z ? z[which] : 0)) * s[which];
            if (to == DT_F32) ((float *)out->data)[at] = v;
            else store_f64(to, (char *)out->data + (size_t)at * dtype_size(to), (double)v);
        }
    }
    return true;
}
