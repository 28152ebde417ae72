/* How results are laid out in memory, where they need not be contiguous.
 *
 * Convolutions are fastest channels-last, (N, C, H, W) as rows of C values, pixel after pixel; pooling, resizing, norms
 * of pictures and pointwise ops take such tensors as they come, and the way to tokens (flatten, permute) is a view of
 * them. So a convolution writes them, and what follows keeps them. Attention writes its (B, H, N, E) query after query,
 * with the heads of a query side by side: the row that the output projection reads is a view. Everything else reads
 * results by their strides. Results that leave the graph are contiguous.
 */
#ifndef QKV_PLAN_LAYOUT_H
#define QKV_PLAN_LAYOUT_H
#include "plan/call.h"

/* Sets the strides of t, which is result 0 of c, contiguous, and need not be. */
void layout_choose(const Call *c, Tensor *t);
#endif
