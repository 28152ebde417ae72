/* Optimizers: one step on a run of n elements of a parameter, in place. Contiguous, element by element, so that a
 * parameter may be cut anywhere; nothing overlaps. The formulas are PyTorch's (torch/optim/adam.py and sgd.py, single
 * tensor, not capturable); g is the gradient times s->scale first.
 *
 *     adam   decoupled: w *= 1 - lr decay (Loshchilov and Hutter 2019), else g += decay w; m += (1 - beta1) (g - m);
 *            v = beta2 v + (1 - beta2) g g;
 *            w -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)         (Kingma and Ba 2015)
 *     sgd    g += decay w; with momentum: m = g in the first step, later momentum m + (1 - dampening) g;
 *            d = nesterov ? g + momentum m : m; w -= lr d
 *
 * float computes in float (the reference in double, rounded once a result), double in double.
 * squares: the sum of g's squares in double, in a fixed order. */
#ifndef QKV_KERNEL_OPTIM_H
#define QKV_KERNEL_OPTIM_H
#include <stdbool.h>
#include <stdint.h>

/* One step's values, the same for all parameters. */
typedef struct OptimStep {
    double lr, decay, scale;
    double beta1, beta2, eps, correction1, correction2; /* adam: 1 - beta1^t, sqrt(1 - beta2^t) */
    bool decoupled;
    double momentum, dampening; /* sgd */
    bool first, nesterov;
} OptimStep;

typedef struct OptimKernels {
    void (*adam_f32)(float *w, float *m, float *v, const float *g, int64_t n, const OptimStep *s);
    void (*adam_f64)(double *w, double *m, double *v, const double *g, int64_t n, const OptimStep *s);
    /* m: NULL without momentum */
    void (*sgd_f32)(float *w, float *m, const float *g, int64_t n, const OptimStep *s);
    void (*sgd_f64)(double *w, double *m, const double *g, int64_t n, const OptimStep *s);
    double (*squares_f32)(const float *g, int64_t n);
    double (*squares_f64)(const double *g, int64_t n);
} OptimKernels;
#endif
