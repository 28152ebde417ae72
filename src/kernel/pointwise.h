/* Pointwise kernels: rows of contiguous values of one type. Strides, broadcasting and dtypes are the caller's
 * (src/run/run_pointwise.c), which loads rows of any dtype into float, double or int64_t, applies one operation and
 * stores them. f16 and bf16 compute in float, integers and bools in int64_t, as ATen's kernels do
 * (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp, UnaryOpsKernel.cpp).
 *
 * out and inputs may be the same row, never overlap otherwise. n >= 0.
 */
#ifndef QKV_KERNEL_POINTWISE_H
#define QKV_KERNEL_POINTWISE_H
#include "tensor/tensor.h"

/* Words of the op table; each is an operation. */
typedef enum PointwiseOp {
    PW_NONE,
#define UNARY(name, e) PW_##name,
#define FLOAT_UNARY(name, e) PW_##name,
#define INT_UNARY(name, e) PW_##name,
#define BINARY(name, e) PW_##name,
#define FLOAT_BINARY(name, e) PW_##name,
#define INT_BINARY(name, e) PW_##name,
#define COMPARE(name, e) PW_##name,
#define TEST(name, e) PW_##name,
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
    PW_COUNT,
} PointwiseOp;

typedef struct PointwiseKernels {
    /* p: parameters of the operation (clamp: low, high; elu: alpha, scale, input_scale; ...).
     * False: no such operation for the type. */
    bool (*unary_f32)(PointwiseOp op, float *out, const float *x, int64_t n, const double *p);
    bool (*unary_f64)(PointwiseOp op, double *out, const double *x, int64_t n, const double *p);
    bool (*unary_i64)(PointwiseOp op, int64_t *out, const int64_t *x, int64_t n, const double *p);
    bool (*binary_f32)(PointwiseOp op, float *out, const float *a, const float *b, int64_t n);
    bool (*binary_f64)(PointwiseOp op, double *out, const double *a, const double *b, int64_t n);
    bool (*binary_i64)(PointwiseOp op, int64_t *out, const int64_t *a, const int64_t *b, int64_t n);
    bool (*compare_f32)(PointwiseOp op, uint8_t *out, const float *a, const float *b, int64_t n);
    bool (*compare_f64)(PointwiseOp op, uint8_t *out, const double *a, const double *b, int64_t n);
    bool (*compare_i64)(PointwiseOp op, uint8_t *out, const int64_t *a, const int64_t *b, int64_t n);
    bool (*test_f32)(PointwiseOp op, uint8_t *out, const float *x, int64_t n);
    bool (*test_f64)(PointwiseOp op, uint8_t *out, const double *x, int64_t n);
    bool (*test_i64)(PointwiseOp op, uint8_t *out, const int64_t *x, int64_t n);
    /* out = c ? a : b */
    void (*where_f32)(float *out, const uint8_t *c, const float *a, const float *b, int64_t n);
    void (*where_f64)(double *out, const uint8_t *c, const double *a, const double *b, int64_t n);
    void (*where_i64)(int64_t *out, const uint8_t *c, const int64_t *a, const int64_t *b, int64_t n);
    /* n elements of a dtype, `stride` bytes apart, from or to contiguous values; false: the dtype cannot be
     * converted */
    bool (*load_f32)(float *out, DType t, const void *in, int64_t stride, int64_t n);
    bool (*load_f64)(double *out, DType t, const void *in, int64_t stride, int64_t n);
    bool (*load_i64)(int64_t *out, DType t, const void *in, int64_t stride, int64_t n);
    bool (*store_f32)(DType t, void *out, const float *in, int64_t n);
    bool (*store_f64)(DType t, void *out, const double *in, int64_t n);
    bool (*store_i64)(DType t, void *out, const int64_t *in, int64_t n);
    /* rows x cols elements of size 1, 2, 4, 8 or 16 bytes: out[r * cols + c] = in[r * rs + c * cs] (strides in
     * elements), in tiles */
    bool (*copy_2d)(void *out, const void *in, int64_t rows, int64_t cols, int64_t rs, int64_t cs, size_t size);
} PointwiseKernels;
#endif
