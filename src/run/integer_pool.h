/* A session's packed weights of integer layers (run_integer.c), made when a layer first runs. */
#ifndef QKV_RUN_INTEGER_POOL_H
#define QKV_RUN_INTEGER_POOL_H
#include "run/run.h"

typedef struct IntegerPool IntegerPool;
void integer_pool_free(IntegerPool *p); /* NULL is fine */
size_t integer_pool_bytes(const IntegerPool *p);
#endif
