/* Matrix products of integers of 8 bits that end in floats, or in integers of 8 bits again.
 *
 *     y = act(scale_a scale_b (a - zero_a) (b - zero_b) + bias) + residual          (ProductOut's epilogue)
 *     c = y, or round(y / scale) + zero in few bits
 *
 * Sums over K are exact, so that bits depend on no order, block or thread (kernel/integer.h); K is at most
 * INTEGER_DEEPEST. b is packed before: a weight once for all.
 */
#ifndef QKV_KERNEL_GEMM_INTEGER_H
#define QKV_KERNEL_GEMM_INTEGER_H
#include "kernel/integer.h"
#include "kernel/product.h"

typedef struct IntegerMatmul { /* named in kernel/integer.h */
    int64_t M, N, K;
    IntegerIn a;
    const void *b; /* IntegerKernels.pack_b's */
    int zero_b;    /* integer_zero */
    const float *scale_a, *scale_b;
    int64_t step_a, step_b; /* 1: a scale a row of a, a column of b; 0: one */
    ProductOut out;         /* c is not read where q is given */
    void *q;                /* NULL, or the result in few bits, rows of q_step */
    DType q_type;
    int64_t q_step;
    Rounding rounding;
} IntegerMatmul;

size_t integer_scratch(const IntegerMatmul *m, int threads);
void integer_matmul(const IntegerMatmul *m, void *scratch, int threads);
#endif
