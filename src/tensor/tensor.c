/* Tensors as views. Contract in tensor.h. */
#include "tensor/tensor.h"
#include <math.h>
#include <stdio.h>
#include "base/arena.h"
#include "base/mem.h"

/* Sizes from a file may be absurd until shape_bytes has seen them: the product wraps instead of overflowing. */
void strides_contiguous(int rank, const int64_t *shape, int64_t *stride)
{
    uint64_t n = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = (int64_t)n;
        n *= (uint64_t)(shape[i] > 1 ? shape[i] : 1);
    }
}

void strides_with_room(Tensor *t, int axis, int64_t room)
{
    int64_t shape[MAX_RANK];
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[axis] = room;
    strides_contiguous(t->rank, shape, t->stride);
}

Tensor tensor_as_real(const Tensor *t)
{
    Tensor r = *t;
    if (!dtype_is_complex(t->dtype) || t->rank == MAX_RANK) return r;
    r.dtype = t->dtype == DT_C128 ? DT_F64 : t->dtype == DT_C64 ? DT_F32 : DT_F16;
    for (int i = 0; i < t->rank; i++) r.stride[i] *= 2;
    r.shape[t->rank] = 2;
    r.stride[t->rank] = 1;
    r.rank++;
    return r;
}

Tensor tensor_of(DType dtype, int rank, const int64_t *shape, void *data)
{
    Tensor t = {.dtype = dtype, .rank = rank, .data = data};
    for (int i = 0; i < rank; i++) t.shape[i] = shape[i];
    strides_contiguous(rank, t.shape, t.stride);
    return t;
}

int64_t tensor_numel(const Tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

size_t tensor_bytes(const Tensor *t) { return (size_t)tensor_numel(t) * dtype_size(t->dtype); }

bool tensor_repeats(const Tensor *t)
{
    bool repeats = false;
    for (int i = 0; i < t->rank; i++) repeats |= !t->stride[i] && t->shape[i] > 1;
    return repeats;
}

bool tensor_contiguous(const Tensor *t)
{
    int64_t n = 1;
    if (tensor_numel(t) == 0) return true;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->stride[i] != n) return false;
        n *= t->shape[i];
    }
    return true;
}

void strides_axis_last(int rank, const int64_t *shape, int axis, int64_t *stride)
{
    uint64_t n = (uint64_t)(shape[axis] > 1 ? shape[axis] : 1);
    for (int i = rank - 1; i >= 0; i--) {
        if (i == axis) continue;
        stride[i] = (int64_t)n;
        n *= (uint64_t)(shape[i] > 1 ? shape[i] : 1);
    }
    stride[axis] = 1;
}

void strides_channels_last(int rank, const int64_t *shape, int64_t *stride)
{
    strides_axis_last(rank, shape, 1, stride);
}

bool tensor_axis_last(const Tensor *t, int axis)
{
    int64_t want[MAX_RANK];
    strides_axis_last(t->rank, t->shape, axis, want);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] != 1 && t->stride[i] != want[i]) return false;
    return true;
}

bool tensor_channels_last(const Tensor *t) { return t->rank >= 3 && tensor_axis_last(t, 1); }

/* Zeros count as ones for the limit, so that strides of an empty tensor stay in range too. */
bool shape_bytes(DType dtype, int rank, const int64_t *shape, size_t *bytes, Err *err)
{
    size_t n = dtype_size(dtype);
    bool empty = false, ok = true;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) return fail(err, E_FORMAT, "size %d is %lld, expected 0 or more", i, (long long)shape[i]);
        empty |= shape[i] == 0;
        ok = ok && mul_size(n, (size_t)(shape[i] ? shape[i] : 1), &n);
    }
    if (!ok || n > (size_t)1 << 46) return fail(err, E_LIMIT, "a tensor of more than 2^46 bytes");
    *bytes = empty ? 0 : n;
    return true;
}

bool view_in_storage(const Tensor *t, int64_t offset, uint64_t storage_bytes)
{
    int64_t lo = offset, hi = offset, span, size = (int64_t)dtype_size(t->dtype), end;
    bool empty = false;
    if (offset < 0 || size == 0) return false;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0) return false;
        empty |= t->shape[i] == 0;
    }
    if (empty) return (uint64_t)offset <= storage_bytes / (uint64_t)size;
    for (int i = 0; i < t->rank; i++) {
        if (!mul_i64(t->shape[i] - 1, t->stride[i], &span)) return false;
        if (!add_i64(span < 0 ? lo : hi, span, span < 0 ? &lo : &hi)) return false;
    }
    return lo >= 0 && add_i64(hi, 1, &hi) && mul_i64(hi, size, &end) && (uint64_t)end <= storage_bytes;
}

/* ------------------------------------------------------------------ 8-bit floats */

/* Exponent bits, bias, and what the codes at the top mean. E8M0 has no sign and no fraction: 2^(code - 127). */
typedef struct Float8 {
    int fraction, bias;
    uint8_t nan, largest; /* without the sign bit; above largest is inf (E5M2) or NaN */
    bool fnuz;            /* one zero, and NaN is 0x80 */
} Float8;

static bool float8_of(DType t, Float8 *f)
{
    switch (t) {
    case DT_F8E4M3: *f = (Float8){3, 7, 0x7f, 0x7e, false}; return true;
    case DT_F8E5M2: *f = (Float8){2, 15, 0x7f, 0x7b, false}; return true;
    case DT_F8E4M3FNUZ: *f = (Float8){3, 8, 0x80, 0x7f, true}; return true;
    case DT_F8E5M2FNUZ: *f = (Float8){2, 16, 0x80, 0x7f, true}; return true;
    default: return false;
    }
}

/* Value of a code without sign, 0 to largest + 1. */
static double float8_value(const Float8 *f, int code)
{
    int exponent = code >> f->fraction, fraction = code & ((1 << f->fraction) - 1);
    double unit = ldexp(1, (exponent ? exponent : 1) - f->bias - f->fraction);
    return unit * (fraction + (exponent ? 1 << f->fraction : 0));
}

static double load_float8(DType t, uint8_t code)
{
    Float8 f;
    if (!float8_of(t, &f)) return code == 0xff ? NAN : ldexp(1, code - 127); /* E8M0 */
    if (f.fnuz && code == 0x80) return NAN;
    int plain = code & 0x7f;
    double v = plain > f.largest ? (t == DT_F8E5M2 && plain == 0x7c ? INFINITY : NAN) : float8_value(&f, plain);
    return code & 0x80 ? -v : v;
}

/* Nearest code, ties to even; beyond the largest as c10's conversions have it:
 * E4M3 stays at the largest, E5M2 is infinite, the others are NaN. */
static uint8_t store_float8(DType t, double v)
{
    Float8 f;
    if (!float8_of(t, &f)) { /* E8M0: the nearest power of two, ties upward */
        int exponent;
        if (!(v > 0) || isinf(v)) return v == 0 ? 0 : 0xff;
        double m = frexp(v, &exponent);
        int code = exponent - 1 + 127 + (m >= 0.75);
        return (uint8_t)(code < 0 ? 0 : code > 254 ? 0xff : code);
    }
    uint8_t sign = signbit(v) ? 0x80 : 0;
    double a = fabs(v);
    if (isnan(v)) return f.fnuz ? 0x80 : (uint8_t)(sign | f.nan);
    int lo = 0, hi = f.largest + 1;
    while (hi - lo > 1) {
        int middle = (lo + hi) / 2;
        if (float8_value(&f, middle) <= a) lo = middle;
        else hi = middle;
    }
    double below = a - float8_value(&f, lo), above = float8_value(&f, lo + 1) - a;
    int code = below < above || (below == above && lo % 2 == 0) ? lo : lo + 1;
    if (code > f.largest && t == DT_F8E4M3) return (uint8_t)(sign | f.largest);
    if (code > f.largest) return t == DT_F8E5M2 ? (uint8_t)(sign | 0x7c) : f.fnuz ? 0x80 : (uint8_t)(sign | f.nan);
    return f.fnuz && code == 0 ? 0 : (uint8_t)(sign | code);
}

/* ------------------------------------------------------------------ 4 and 2 bits */

/* s1e2m1, no infinity, no NaN: a NaN becomes -0, as ml_dtypes has it. */
static const double float4_values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static double load_float4(uint8_t code)
{
    double v = float4_values[code & 7];
    return code & 8 ? -v : v;
}

static uint8_t store_float4(double v)
{
    double a = fabs(v);
    int code = 0;
    if (isnan(v)) return 8;
    while (code < 7 && a >= float4_values[code + 1]) code++;
    if (code < 7) {
        double below = a - float4_values[code], above = float4_values[code + 1] - a;
        if (above < below || (above == below && code % 2)) code++;
    }
    return (uint8_t)(code | (signbit(v) ? 8 : 0));
}

static void small_range(DType t, int *low, int *high)
{
    bool sign = t == DT_I4 || t == DT_I2;
    int n = 1 << dtype_bits(t);
    *low = sign ? -n / 2 : 0;
    *high = sign ? n / 2 - 1 : n - 1;
}

/* ------------------------------------------------------------------ elements */

double load_f64(DType t, const void *p)
{
    switch (t) {
    case DT_F32: {
        float v;
        memcpy(&v, p, 4);
        return v;
    }
    case DT_F64: {
        double v;
        memcpy(&v, p, 8);
        return v;
    }
    case DT_F16: {
        uint16_t v;
        memcpy(&v, p, 2);
        return f16_to_f32(v);
    }
    case DT_BF16: {
        uint16_t v;
        memcpy(&v, p, 2);
        return bf16_to_f32(v);
    }
    case DT_U64: {
        uint64_t v;
        memcpy(&v, p, 8);
        return (double)v;
    }
    case DT_C32: {
        uint16_t v;
        memcpy(&v, p, 2);
        return f16_to_f32(v);
    } /* the real part */
    case DT_C64: {
        float v;
        memcpy(&v, p, 4);
        return v;
    }
    case DT_C128: {
        double v;
        memcpy(&v, p, 8);
        return v;
    }
    case DT_F8E4M3:
    case DT_F8E5M2:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2FNUZ:
    case DT_F8E8M0: return load_float8(t, *(const uint8_t *)p);
    case DT_F4E2M1: return load_float4(*(const uint8_t *)p);
    default: return (double)load_i64(t, p);
    }
}

int64_t load_i64(DType t, const void *p)
{
    switch (t) {
    case DT_I64: {
        int64_t v;
        memcpy(&v, p, 8);
        return v;
    }
    case DT_I32: {
        int32_t v;
        memcpy(&v, p, 4);
        return v;
    }
    case DT_I16: {
        int16_t v;
        memcpy(&v, p, 2);
        return v;
    }
    case DT_I8:
    case DT_I4:
    case DT_I2: return *(const int8_t *)p;
    case DT_U8:
    case DT_U4:
    case DT_U2: return *(const uint8_t *)p;
    case DT_BOOL: return *(const uint8_t *)p != 0;
    case DT_U16: {
        uint16_t v;
        memcpy(&v, p, 2);
        return v;
    }
    case DT_U32: {
        uint32_t v;
        memcpy(&v, p, 4);
        return v;
    }
    case DT_U64: {
        uint64_t v;
        memcpy(&v, p, 8);
        return (int64_t)v;
    }
    case DT_NONE:
    case DT_COUNT: return 0;
    default: {
        double v = load_f64(t, p);
        return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
    }
    }
}

void store_f64(DType t, void *p, double v)
{
    switch (t) {
    case DT_F32: {
        float f = (float)v;
        memcpy(p, &f, 4);
        break;
    }
    case DT_F64: memcpy(p, &v, 8); break;
    case DT_F16: {
        uint16_t h = f32_to_f16((float)v);
        memcpy(p, &h, 2);
        break;
    }
    case DT_BF16: {
        uint16_t h = f32_to_bf16((float)v);
        memcpy(p, &h, 2);
        break;
    }
    case DT_BOOL: *(uint8_t *)p = v != 0; break;
    case DT_C32: {
        uint16_t h[2] = {f32_to_f16((float)v), 0};
        memcpy(p, h, 4);
        break;
    }
    case DT_C64: {
        float c[2] = {(float)v, 0};
        memcpy(p, c, 8);
        break;
    }
    case DT_C128: {
        double c[2] = {v, 0};
        memcpy(p, c, 16);
        break;
    }
    case DT_F8E4M3:
    case DT_F8E5M2:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2FNUZ:
    case DT_F8E8M0: *(uint8_t *)p = store_float8(t, v); break;
    case DT_F4E2M1: *(uint8_t *)p = store_float4(v); break;
    case DT_I4:
    case DT_U4:
    case DT_I2:
    case DT_U2: {
        int low, high;
        small_range(t, &low, &high);
        *(int8_t *)p = (int8_t)(isnan(v) ? 0 : v <= low ? low : v >= high ? high : (int)v);
        break;
    }
    case DT_U64: {
        uint64_t u = v >= 0 && v < 0x1p64 ? (uint64_t)v : 0;
        memcpy(p, &u, 8);
        break;
    }
    default: store_i64(t, p, v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN); break;
    }
}

void store_i64(DType t, void *p, int64_t v)
{
    switch (t) {
    case DT_I64:
    case DT_U64: memcpy(p, &v, 8); break;
    case DT_I32:
    case DT_U32: {
        uint32_t x = (uint32_t)v;
        memcpy(p, &x, 4);
        break;
    }
    case DT_I16:
    case DT_U16: {
        uint16_t x = (uint16_t)v;
        memcpy(p, &x, 2);
        break;
    }
    case DT_I8:
    case DT_U8: *(uint8_t *)p = (uint8_t)v; break;
    case DT_BOOL: *(uint8_t *)p = v != 0; break;
    case DT_I4:
    case DT_U4:
    case DT_I2:
    case DT_U2: {
        int low, high;
        small_range(t, &low, &high);
        uint64_t u = (uint64_t)v & (uint64_t)(high - low);
        *(int8_t *)p = (int8_t)(u > (uint64_t)high ? (int)u - (high - low) - 1 : (int)u);
        break;
    }
    case DT_NONE:
    case DT_COUNT: break;
    default: store_f64(t, p, (double)v); break;
    }
}

double round_to(DType t, double v)
{
    unsigned char element[8];
    store_f64(t, element, v);
    return load_f64(t, element);
}

/* end + step * k */
static double beside_end(DType t, double end, double step, int64_t k)
{
    if (t == DT_F32) return (double)fmaf((float)step, (float)k, (float)end);
    if (t == DT_F16 || t == DT_BF16) return end + round_to(t, step * round_to(t, (double)k));
    return fma(step, (double)k, end);
}

void linspace_into(DType t, void *p, double start, double end, int64_t n)
{
    DType wide = dtype_is_float(t) ? t : DT_F64;
    start = round_to(t, start);
    end = round_to(t, end);
    double step = n > 1 ? round_to(wide, round_to(wide, end - start) / round_to(wide, (double)(n - 1))) : 0;
    for (int64_t i = 0; i < n; i++)
        store_f64(t, (char *)p + (size_t)i * dtype_size(t),
                  i < n / 2 || n == 1 ? beside_end(t, start, step, i) : beside_end(t, end, -step, n - 1 - i));
}

static const char *at_index(const Tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        offset += index % t->shape[i] * t->stride[i];
        index /= t->shape[i];
    }
    return (const char *)t->data + offset * (int64_t)dtype_size(t->dtype);
}

double tensor_get(const Tensor *t, int64_t index) { return load_f64(t->dtype, at_index(t, index)); }
int64_t tensor_get_i64(const Tensor *t, int64_t index) { return load_i64(t->dtype, at_index(t, index)); }

static void copy_element(DType to, char *dst, DType from, const char *src, size_t size)
{
    if (to == from) {
        memcpy(dst, src, size);
    } else if (dtype_is_complex(to) && dtype_is_complex(from)) {
        size_t half = size / 2, width = dtype_size(from) / 2;
        DType part_to = half == 2   ? DT_F16
                        : half == 4 ? DT_F32
                                    : DT_F64,
              part_from = width == 2   ? DT_F16
                          : width == 4 ? DT_F32
                                       : DT_F64;
        store_f64(part_to, dst, load_f64(part_from, src));
        store_f64(part_to, dst + half, load_f64(part_from, src + width));
    } else if (dtype_is_float(to) || dtype_is_float(from) || dtype_is_complex(to) || dtype_is_complex(from)) {
        store_f64(to, dst, load_f64(from, src));
    } else {
        store_i64(to, dst, load_i64(from, src));
    }
}

void tensor_copy(Tensor *dst, const Tensor *src)
{
    int64_t n = tensor_numel(dst), at[MAX_RANK] = {0};
    size_t size = dtype_size(dst->dtype), width = dtype_size(src->dtype);
    if (n == 0) return;
    if (dst->dtype == src->dtype && tensor_contiguous(dst) && tensor_contiguous(src)) {
        memcpy(dst->data, src->data, (size_t)n * size);
        return;
    }
    int last = dst->rank - 1;
    int64_t inner = dst->rank ? dst->shape[last] : 1;
    int64_t to_step = dst->rank ? dst->stride[last] * (int64_t)size : 0,
            from_step = dst->rank ? src->stride[last] * (int64_t)width : 0;
    for (int64_t row = 0; row < n / inner; row++) {
        int64_t to = 0, from = 0;
        for (int i = 0; i < last; i++) {
            to += at[i] * dst->stride[i] * (int64_t)size;
            from += at[i] * src->stride[i] * (int64_t)width;
        }
        if (dst->dtype == src->dtype && to_step == (int64_t)size && from_step == to_step) {
            memcpy((char *)dst->data + to, (const char *)src->data + from, (size_t)inner * size);
        } else
            for (int64_t k = 0; k < inner; k++)
                copy_element(dst->dtype, (char *)dst->data + to + k * to_step, src->dtype,
                             (const char *)src->data + from + k * from_step, size);
        for (int i = last - 1; i >= 0 && ++at[i] == dst->shape[i]; i--) at[i] = 0;
    }
}

bool tensor_digest(const Tensor *t, Digest *d, Err *err)
{
    Tensor whole = *t;
    if (!tensor_contiguous(t)) {
        whole = tensor_of(t->dtype, t->rank, t->shape, mem_alloc(tensor_bytes(t) + 1));
        if (!whole.data) return oom(err);
        tensor_copy(&whole, t);
    }
    digest_text(d, dtype_name(t->dtype));
    digest_add(d, t->shape, (size_t)t->rank * sizeof *t->shape);
    digest_add(d, whole.data, tensor_bytes(t));
    if (whole.data != t->data) mem_free(whole.data);
    return true;
}

const char *tensor_describe(const Tensor *t, char *out, size_t n)
{
    int used = snprintf(out, n, "%s[", dtype_name(t->dtype));
    for (int i = 0; i < t->rank && used >= 0 && (size_t)used < n; i++)
        used += snprintf(out + used, n - (size_t)used, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    if (used >= 0 && (size_t)used < n) snprintf(out + used, n - (size_t)used, "]");
    return out;
}
