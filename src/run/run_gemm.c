/* The session's GemmPool. */
#include "run/gemm_cache.h"
#include "kernel/gemm.h"
#include "run/integer_pool.h"

bool gemm_cache_create(RunEnv *e, Err *err) { return (e->gemm = gemm_pool_create(err)) != NULL; }

void gemm_cache_free(RunEnv *e)
{
    gemm_pool_free(e->gemm);
    integer_pool_free(e->integers);
}

size_t gemm_cache_bytes(const RunEnv *e) { return gemm_pool_bytes(e->gemm) + integer_pool_bytes(e->integers); }
