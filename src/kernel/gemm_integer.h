/* Matrix products of integers of 8 bits that end in floats, or in integers of 8 bits again.
 *
 *     y = act(scale_a scale_b (a - zero_a) (b - zero_b) + bias) + residual          (ProductOut's epilogue)
 *     c = y, or round(y / scale) + zero in few bits
 *
 * The residual may be in few bits, too: (residual - zero) * scale is added.
 *
 * Sums over K are exact, so that bits depend on no order, block or thread (kernel/integer.h); K is at most
 * INTEGER_DEEPEST. b is packed before: a weight once for all.
 */
#ifndef QKV_KERNEL_GEMM_INTEGER_H
#define QKV_KERNEL_GEMM_INTEGER_H
#include "kernel/integer.h"
#include "kernel/product.h"

/* Windows of a picture (B, in[0], in[1], in[2], C): row (b, o0, o1, o2) of the product is what the window at o sees,
 * K = size[0] size[1] size[2] C elements. Around the picture is its zero point. */
typedef struct IntegerWindows {
    int64_t C, in[3], out[3], size[3], stride[3], padding[3], dilation[3];
    bool depthwise; /* each column has a channel of its own: K is the window's cells (gemm_depthwise.c) */
} IntegerWindows;

typedef struct IntegerMatmul { /* named in kernel/integer.h */
    int64_t M, N, K;
    IntegerIn a;
    const IntegerWindows *windows; /* NULL, or how rows come from a.data, the picture; a.rs is not read then */
    const void *b; /* IntegerKernels.pack_b's */
    int zero_b;    /* integer_zero */
    const float *scale_a, *scale_b;
    int64_t step_a, step_b; /* 1: a scale a row of a, a column of b; 0: one */
    ProductOut out;         /* c is not written where q is given; a residual of i8 or u8 is by residual_scale */
    float residual_scale;
    int residual_zero;
    void *q;                /* NULL, or the result in few bits, rows of q_step */
    DType q_type;
    int64_t q_step;
    Rounding rounding;
} IntegerMatmul;

/* Rows [row, row + rows) of the product's a, K bytes each; `none` around the picture. */
void integer_see(const IntegerWindows *w, uint8_t *to, const uint8_t *picture, int64_t row, int rows, int none);
size_t integer_scratch(const IntegerMatmul *m, int threads);
void integer_matmul(const IntegerMatmul *m, void *scratch, int threads);
#endif
