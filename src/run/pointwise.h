/* Pointwise work that other run files need. */
#ifndef QKV_RUN_POINTWISE_H
#define QKV_RUN_POINTWISE_H
#include "tensor/tensor.h"

/* out = in, same shape, any strides of in, any dtypes that convert; out is contiguous.
 * False: the dtypes do not convert. */
bool run_copy_tensor(Tensor *out, const Tensor *in, int threads);
#endif
