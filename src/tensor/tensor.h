/* Tensor: a view. It owns nothing: dtype, rank, shape, strides (in elements, may be 0 or negative), first element.
 *
 *     Tensor t = tensor_of(DT_F32, 2, (int64_t[]){3, 4}, data);    contiguous
 */
#ifndef QKV_TENSOR_TENSOR_H
#define QKV_TENSOR_TENSOR_H
#include "base/digest.h"
#include "base/err.h"
#include "tensor/dtype.h"

enum { MAX_RANK = 16 };

typedef struct Tensor {
    DType dtype;
    int rank;
    int64_t shape[MAX_RANK];
    int64_t stride[MAX_RANK];
    void *data;
} Tensor;

/* A complex tensor as reals with a last axis of 2 (rank below MAX_RANK); others as they are. */
Tensor tensor_as_real(const Tensor *t);
Tensor tensor_of(DType dtype, int rank, const int64_t *shape, void *data); /* contiguous strides */
int64_t tensor_numel(const Tensor *t);
size_t tensor_bytes(const Tensor *t);    /* numel * element size: what a contiguous copy takes */
bool tensor_repeats(const Tensor *t);    /* has elements that an axis of stride 0 shows more than once */
bool tensor_contiguous(const Tensor *t); /* sizes of 1 may have any stride; an empty tensor is contiguous */
void strides_contiguous(int rank, const int64_t *shape, int64_t *stride);
/* Those of a tensor that is the beginning of one with `room` sizes along the axis. */
void strides_with_room(Tensor *t, int axis, int64_t room);
/* The axis is innermost, the others are as they come. */
void strides_axis_last(int rank, const int64_t *shape, int axis, int64_t *stride);
bool tensor_axis_last(const Tensor *t, int axis); /* sizes of 1 may have any stride */
/* Axis 1 (channels) is: (N, C, H, W) in memory as a contiguous (N, H, W, C). Rank 3 or more. */
void strides_channels_last(int rank, const int64_t *shape, int64_t *stride);
bool tensor_channels_last(const Tensor *t);
/* numel as a checked product: false on a negative size, on overflow or above 2^46 bytes. */
bool shape_bytes(DType dtype, int rank, const int64_t *shape, size_t *bytes, Err *err);
/* True when every element of the view is in [0, storage_bytes); offset in elements. */
bool view_in_storage(const Tensor *t, int64_t offset, uint64_t storage_bytes);
/* Copies with strides and dtype conversion as PyTorch's copy_ (float -> int truncates, bool is != 0). Same shape. */
void tensor_copy(Tensor *dst, const Tensor *src);
/* Adds dtype, sizes and elements, whatever the strides. */
bool tensor_digest(const Tensor *t, Digest *d, Err *err);
/* Element at a linear index in row-major order, as double / as int64. */
double tensor_get(const Tensor *t, int64_t index);
int64_t tensor_get_i64(const Tensor *t, int64_t index);
/* One element of a dtype <-> double / int64. Beyond the range: 8-bit floats become NaN or infinity, as in PyTorch;
 * integers of 4 and 2 bits saturate from a double and keep their low bits from an integer, f4e2m1 saturates (ONNX's
 * Cast). */
double load_f64(DType t, const void *p);
int64_t load_i64(DType t, const void *p);
void store_f64(DType t, void *p, double v);
void store_i64(DType t, void *p, int64_t v);
double round_to(DType t, double v); /* as an element of a dtype of at most 8 bytes holds it */
/* n elements from start to end, each as an element of t, with ATen's bits: from the start in the first half, from the
 * end in the second; float, double and integers (in double, cut) round product and sum at once, half types each. */
void linspace_into(DType t, void *p, double start, double end, int64_t n);
/* "f32[2, 3]" into out. */
const char *tensor_describe(const Tensor *t, char *out, size_t n);
#endif
