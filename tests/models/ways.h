/* Ways to run a model, and how far a result is from what is expected: for tests that compare them (run_random.c,
 * run_calls.c). */
#ifndef QKV_TESTS_WAYS_H
#define QKV_TESTS_WAYS_H
#include "qkv.h"
#include "qkv_tools.h"
#include "tensor/tensor.h"

typedef struct Way {
    const char *name;
    const char *ending; /* saved so and read again; NULL: as it is */
    bool rewritten, plain;
    int threads;
    qkv_dtype compute;
} Way;

enum { WAYS = 11 };
extern const Way ways[WAYS];

/* The model of the file `source` in this way; files go into `folder`. NULL with e->code QKV_UNSUPPORTED: this way has
 * no place for the model. */
qkv_model *open_way(const Way *w, const char *folder, const char *source, qkv_error *e);

/* What the session gave for output k; its memory stays the session's. */
Tensor tensor_of_output(qkv_session *s, int k);

/* got against want; the largest difference, relative to the largest value. -1: another shape or dtype, or NaN or
 * infinity in other places. */
double difference(const Tensor *got, const Tensor *want);
#endif
