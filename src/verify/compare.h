/* Comparing two tensors element by element, in double. */
#ifndef QKV_VERIFY_COMPARE_H
#define QKV_VERIFY_COMPARE_H
#include "tensor/tensor.h"

typedef struct Difference {
    double max_abs, max_rel, max_abs_over_peak, cosine;
    int64_t index; /* row-major, of max_abs; -1 when nothing differs */
    double a, b;   /* there */
    int64_t nonfinite, failed;
} Difference;

/* Two tensors that both repeat their elements take no memory and may look as large as 64 TiB: more than 2^31 elements
 * of such are not compared. E_LIMIT. */
bool compare_ends(const Tensor *a, const Tensor *b, Err *err);

/* a against the expected b, as include/qkv_tools.h says. E_USAGE when the shapes differ, E_LIMIT as above;
 * true otherwise, also when elements failed. */
bool compare_tensors(const Tensor *a, const Tensor *b, double atol, double rtol, Difference *d, Err *err);
#endif
