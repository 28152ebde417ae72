/* A session's packed weights of integer layers (run_integer.c, run_blocks.c), made when a layer first runs. */
#ifndef QKV_RUN_INTEGER_POOL_H
#define QKV_RUN_INTEGER_POOL_H
#include "kernel/blocks.h"
#include "run/run.h"

typedef struct PackedWeight {
    const void *of; /* the plain bytes, which stay where they are */
    int64_t N, K;
    BlockForm form; /* of scales a block; block 0: a scale a column (kernel/integer.h) */
    void *data;
} PackedWeight;

typedef struct IntegerPool IntegerPool;
/* NULL: not packed yet. block: 0, or of the form. */
const PackedWeight *integer_pool_find(const RunEnv *e, const void *of, int64_t N, int64_t K, int64_t block);
/* Room of so many bytes, p->data, to be packed; the pool's. NULL: out of memory. */
const PackedWeight *integer_pool_add(RunEnv *e, PackedWeight p, size_t bytes, Err *err);
void integer_pool_free(IntegerPool *p); /* NULL is fine */
size_t integer_pool_bytes(const IntegerPool *p);
#endif
