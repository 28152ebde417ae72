/* Autocast: the casts that torch.autocast makes and the file does not show.
 *
 * Under an autocast region (or an autocast around the whole export) a node is recorded with its operands as they were,
 * and only the declared dtype of its result shows that it ran in bfloat16 or float16 (or was put back to float32). The
 * rule per op is PyTorch's (aten/src/ATen/autocast_mode.h); the declared dtype says whether it was applied.
 */
#ifndef QKV_LOWER_AUTOCAST_H
#define QKV_LOWER_AUTOCAST_H
#include "lower/lower.h"

/* Casts the tensor arguments of a call in place. declared: the dtype the file declares for the first result (DT_NONE:
 * unknown). compute: DT_BF16 or DT_F16 to run the whole graph under autocast, DT_NONE to follow the file. */
bool autocast_args(Graph *g, const Op *op, Arg *arg, DType declared, DType compute, Err *err);
#endif
