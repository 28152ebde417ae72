/* The session's pool of matrix-product primitives and packed weights. */
#ifndef QKV_RUN_GEMM_CACHE_H
#define QKV_RUN_GEMM_CACHE_H
#include "run/run.h"

bool gemm_cache_create(RunEnv *e, Err *err);
void gemm_cache_free(RunEnv *e);
size_t gemm_cache_bytes(const RunEnv *e);
#endif
