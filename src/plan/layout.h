/* Which results lie channels-last: (N, C, H, W) as rows of C numbers, pixel after pixel.
 *
 * Convolutions are fastest on such tensors, pooling and pointwise ops take them as they come, and the way to tokens (flatten, permute) is
 * a view of them. So a convolution writes them, and what follows keeps them; everything else reads them by their strides. Results
 * that leave the graph are contiguous.
 */
#ifndef QKV_PLAN_LAYOUT_H
#define QKV_PLAN_LAYOUT_H
#include "plan/call.h"

/* Should result 0 of c, which is of t's shape and dtype, lie channels-last? */
bool layout_channels_last(const Call *c, const Tensor *t);
#endif
