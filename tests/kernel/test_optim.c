/* Optimizers: every rung against the formulas written out in long double,
 * the same values wherever a parameter is cut. */
#include "kernel_test.h"

enum { N = 1003, STEPS = 5 };

typedef struct Numbers {
    long double w, m, v;
} Numbers;

static void model(Numbers *x, double gradient, const OptimStep *s, bool adam, bool momentum)
{
    long double g = gradient * (long double)s->scale, d;
    if (adam) {
        if (s->decoupled) x->w *= 1 - (long double)s->lr * s->decay;
        else g += s->decay * x->w;
        x->m = s->beta1 * x->m + (1 - (long double)s->beta1) * g;
        x->v = s->beta2 * x->v + (1 - (long double)s->beta2) * g * g;
        x->w -= s->lr / s->correction1 * x->m / (sqrtl(x->v) / s->correction2 + s->eps);
        return;
    }
    g += s->decay * x->w;
    x->m = s->first ? g : s->momentum * x->m + (1 - (long double)s->dampening) * g;
    d = !momentum ? g : s->nesterov ? g + s->momentum * x->m : x->m;
    x->w -= s->lr * d;
}

static OptimStep step_of(int kind, int t)
{
    OptimStep s = {.lr = 0.01,
                   .decay = kind == 2 ? 0 : 0.1,
                   .scale = t == 2 ? 0.25 : 1,
                   .beta1 = 0.9,
                   .beta2 = 0.99,
                   .eps = 1e-8,
                   .correction1 = 1 - pow(0.9, t + 1),
                   .correction2 = sqrt(1 - pow(0.99, t + 1)),
                   .decoupled = kind == 0,
                   .momentum = 0.9,
                   .dampening = kind == 3 ? 0.2 : 0,
                   .first = t == 0,
                   .nesterov = kind == 4};
    return s;
}

/* kind: 0 adamw, 1 adam, 2 sgd, 3 momentum, 4 nesterov; in pieces of `piece` elements */
static void try(const OptimKernels *k, bool wide, int kind, int64_t piece)
{
    size_t e = wide ? 8 : 4;
    char *w = room(0, N * (int64_t)e), *m = room(1, N * (int64_t)e), *v = room(2, N * (int64_t)e),
         *g = room(3, N * (int64_t)e);
    static Numbers x[N];
    uint64_t state = 7;
    memset(m, 0, N * e);
    memset(v, 0, N * e);
    for (int i = 0; i < N; i++) {
        double start = unit_random(&state) % 2000 * 1e-3 - 1;
        if (wide) ((double *)(void *)w)[i] = start;
        else ((float *)(void *)w)[i] = (float)start;
        x[i] = (Numbers){wide ? start : (float)start, 0, 0};
    }
    for (int t = 0; t < STEPS; t++) {
        OptimStep s = step_of(kind, t);
        for (int i = 0; i < N; i++) {
            double d = (unit_random(&state) % 2000 + 500) * 1e-3 * (i % 2 ? 1 : -1);
            if (wide) ((double *)(void *)g)[i] = d;
            else ((float *)(void *)g)[i] = (float)d;
            model(&x[i], wide ? d : (float)d, &s, kind<2, kind> 2);
        }
        for (int64_t at = 0; at < N; at += piece) {
            int64_t n = N - at < piece ? N - at : piece;
            size_t o = (size_t)at * e;
            if (wide && kind < 2)
                k->adam_f64((double *)(void *)(w + o), (double *)(void *)(m + o), (double *)(void *)(v + o),
                            (double *)(void *)(g + o), n, &s);
            else if (wide)
                k->sgd_f64((double *)(void *)(w + o), kind > 2 ? (double *)(void *)(m + o) : NULL,
                           (double *)(void *)(g + o), n, &s);
            else if (kind < 2)
                k->adam_f32((float *)(void *)(w + o), (float *)(void *)(m + o), (float *)(void *)(v + o),
                            (float *)(void *)(g + o), n, &s);
            else
                k->sgd_f32((float *)(void *)(w + o), kind > 2 ? (float *)(void *)(m + o) : NULL,
                           (float *)(void *)(g + o), n, &s);
        }
    }
    for (int i = 0; i < N; i++) {
        double got = wide ? ((double *)(void *)w)[i] : (double)((float *)(void *)w)[i];
        if (!(fabs(got - (double)x[i].w) <= (wide ? 1e-15 : 1e-6)))
            print_error("kind %d, element %d: %.17g, expected %.17g\n", kind, i, got, (double)x[i].w);
        assert_true(fabs(got - (double)x[i].w) <= (wide ? 1e-15 : 1e-6));
    }
}

static void test_steps(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(optim, l))
        for (int kind = 0; kind < 5; kind++) {
            try(&kernels_at(l)->optim, false, kind, N);
            try(&kernels_at(l)->optim, false, kind, 37);
            try(&kernels_at(l)->optim, true, kind, N);
        }
}

static void test_squares(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(optim, l))
        for (int64_t n = 0; n < 70; n++) {
            float *x = room(0, n * 4);
            double *y = room(1, n * 8);
            long double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                x[i] = (float)((double)i * 0.37 - 5);
                y[i] = x[i];
                sum += (long double)x[i] * x[i];
            }
            assert_true(fabs(kernels_at(l)->optim.squares_f32(x, n) - (double)sum) <= 1e-14 * (double)sum);
            assert_true(fabs(kernels_at(l)->optim.squares_f64(y, n) - (double)sum) <= 1e-14 * (double)sum);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_squares)};
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
