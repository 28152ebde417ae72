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

/* a against the expected b, as include/qkv_tools.h says. E_USAGE when the shapes differ;
 * true otherwise, also when elements failed. */
bool compare_tensors(const Tensor *a, const Tensor *b, double atol, double rtol, Difference *d, Err *err);
#endif
