/* What matrix products (run_linalg.c) and convolutions (run_conv.c) share: what the planner's activations are. */
#ifndef QKV_RUN_PRODUCT_H
#define QKV_RUN_PRODUCT_H
#include "kernel/gemm.h"
#include "run/run.h"

GemmAct product_act(int act);                 /* of Call.epilogue, for gemm.h */
double product_activation(int act, double x); /* and by itself */
/* A contiguous tensor in the node's scratch. */
Tensor *product_scratch(Call *c, DType t, int rank, const int64_t *shape, Err *err);
#endif
