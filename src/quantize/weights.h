/* Weights alone in 4 or 8 bits, a scale for every block of a row: to the nearest, or with what rounding one column
 * loses made good by the columns after it (GPTQ; Frantar et al. 2022).
 *
 *     block = weights_block(32, K);
 *     weights_round(&(WeightRounding){w, N, K, block, 4, gram, q, scale}, err);      w ~ q * scale
 *
 * Scales are numbers that bf16 holds, so that kernels keep them in two bytes (kernel/blocks.h). One of a block is the
 * one of some near the largest element's that has the least squared error.
 */
#ifndef QKV_QUANTIZE_WEIGHTS_H
#define QKV_QUANTIZE_WEIGHTS_H
#include <stdint.h>
#include "base/err.h"

typedef enum WeightMethod { WEIGHTS_RTN, WEIGHTS_GPTQ = 1, WEIGHTS_AWQ = 2 } WeightMethod; /* a sum of them */

/* Of a name: "rtn", "gptq", "awq", "awq+gptq"; NULL is "rtn". */
bool weight_method(const char *name, WeightMethod *out, Err *err);

/* `group`, halved until it divides a row of K; K where it is longer, or nothing of 8 and more does. */
int64_t weights_block(int64_t group, int64_t K);

typedef struct WeightRounding {
    float *w; /* (N, K); GPTQ changes it */
    int64_t N, K, block;
    int bits;
    const double *gram; /* (K, K): the sums of products of the channels that w reads; NULL: to the nearest */
    int8_t *q;          /* (N, K) */
    float *scale;       /* (N, blocks) */
} WeightRounding;

/* false: out of memory */
bool weights_round(const WeightRounding *r, Err *err);
/* One row to the nearest, as floats again. to may be w. */
void weights_nearest(float *to, const float *w, int64_t K, int64_t block, int bits);
#endif
