/* Tensors as views. Contract in tensor.h. */
#include "tensor/tensor.h"
#include <math.h>
#include <stdio.h>
#include "base/arena.h"

void strides_contiguous(int rank, const int64_t *shape, int64_t *stride)
{
    int64_t n = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= shape[i] > 1 ? shape[i] : 1;
    }
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

bool shape_bytes(DType dtype, int rank, const int64_t *shape, size_t *bytes, Err *err)
{
    size_t n = dtype_size(dtype);
    bool empty = false, ok = true;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) return fail(err, E_FORMAT, "size %d is %lld", i, (long long)shape[i]);
        empty |= shape[i] == 0;
        ok = ok && mul_size(n, (size_t)(shape[i] ? shape[i] : 1), &n);
    }
    if (empty) n = 0;
    else if (!ok || n > (size_t)1 << 46) return fail(err, E_LIMIT, "a tensor of more than 2^46 bytes");
    *bytes = n;
    return true;
}

bool view_in_storage(const Tensor *t, int64_t offset, uint64_t storage_bytes)
{
    int64_t lo = offset, hi = offset, span, size = (int64_t)dtype_size(t->dtype), end;
    if (offset < 0) return false;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0) return false;
        if (t->shape[i] == 0) return (uint64_t)offset <= storage_bytes / (uint64_t)size;
        if (!mul_i64(t->shape[i] - 1, t->stride[i], &span)) return false;
        if (!add_i64(span < 0 ? lo : hi, span, span < 0 ? &lo : &hi)) return false;
    }
    return lo >= 0 && add_i64(hi, 1, &hi) && mul_i64(hi, size, &end) && (uint64_t)end <= storage_bytes;
}

double load_f64(DType t, const void *p)
{
    switch (t) {
    case DT_F32: { float v; memcpy(&v, p, 4); return v; }
    case DT_F64: { double v; memcpy(&v, p, 8); return v; }
    case DT_F16: { uint16_t v; memcpy(&v, p, 2); return f16_to_f32(v); }
    case DT_BF16: { uint16_t v; memcpy(&v, p, 2); return bf16_to_f32(v); }
    case DT_U64: { uint64_t v; memcpy(&v, p, 8); return (double)v; }
    default: return (double)load_i64(t, p);
    }
}

int64_t load_i64(DType t, const void *p)
{
    switch (t) {
    case DT_I64: { int64_t v; memcpy(&v, p, 8); return v; }
    case DT_I32: { int32_t v; memcpy(&v, p, 4); return v; }
    case DT_I16: { int16_t v; memcpy(&v, p, 2); return v; }
    case DT_I8: return *(const int8_t *)p;
    case DT_U8: return *(const uint8_t *)p;
    case DT_BOOL: return *(const uint8_t *)p != 0;
    case DT_U16: { uint16_t v; memcpy(&v, p, 2); return v; }
    case DT_U32: { uint32_t v; memcpy(&v, p, 4); return v; }
    case DT_U64: { uint64_t v; memcpy(&v, p, 8); return (int64_t)v; }
    case DT_F32: case DT_F64: case DT_F16: case DT_BF16: {
        double v = load_f64(t, p);
        return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
    }
    default: return 0;
    }
}

void store_f64(DType t, void *p, double v)
{
    switch (t) {
    case DT_F32: { float f = (float)v; memcpy(p, &f, 4); break; }
    case DT_F64: memcpy(p, &v, 8); break;
    case DT_F16: { uint16_t h = f32_to_f16((float)v); memcpy(p, &h, 2); break; }
    case DT_BF16: { uint16_t h = f32_to_bf16((float)v); memcpy(p, &h, 2); break; }
    case DT_BOOL: *(uint8_t *)p = v != 0; break;
    case DT_U64: { uint64_t u = v >= 0 && v < 0x1p64 ? (uint64_t)v : 0; memcpy(p, &u, 8); break; }
    default: store_i64(t, p, v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN); break;
    }
}

void store_i64(DType t, void *p, int64_t v)
{
    switch (t) {
    case DT_I64: case DT_U64: memcpy(p, &v, 8); break;
    case DT_I32: case DT_U32: { uint32_t x = (uint32_t)v; memcpy(p, &x, 4); break; }
    case DT_I16: case DT_U16: { uint16_t x = (uint16_t)v; memcpy(p, &x, 2); break; }
    case DT_I8: case DT_U8: *(uint8_t *)p = (uint8_t)v; break;
    case DT_BOOL: *(uint8_t *)p = v != 0; break;
    case DT_F32: case DT_F64: case DT_F16: case DT_BF16: store_f64(t, p, (double)v); break;
    default: break;
    }
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

void tensor_copy(Tensor *dst, const Tensor *src)
{
    int64_t n = tensor_numel(dst);
    size_t size = dtype_size(dst->dtype);
    if (n == 0) return;
    if (dst->dtype == src->dtype && tensor_contiguous(dst) && tensor_contiguous(src)) {
        memcpy(dst->data, src->data, (size_t)n * size);
        return;
    }
    bool ints = !dtype_is_float(src->dtype) && !dtype_is_float(dst->dtype);
    for (int64_t i = 0; i < n; i++) {
        const char *from = at_index(src, i);
        char *to = (char *)(uintptr_t)at_index(dst, i);
        if (dst->dtype == src->dtype) memcpy(to, from, size);
        else if (ints) store_i64(dst->dtype, to, load_i64(src->dtype, from));
        else store_f64(dst->dtype, to, load_f64(src->dtype, from));
    }
}

const char *tensor_describe(const Tensor *t, char *out, size_t n)
{
    int used = snprintf(out, n, "%s[", dtype_name(t->dtype));
    for (int i = 0; i < t->rank && used >= 0 && (size_t)used < n; i++)
        used += snprintf(out + used, n - (size_t)used, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    if (used >= 0 && (size_t)used < n) snprintf(out + used, n - (size_t)used, "]");
    return out;
}
