/* Reference Fourier transforms: sums of n terms in double. Contract in kernel/fft.h. */
#include "kernel/fft.h"
#include <math.h>
#include "base/elementary.h"

typedef struct Line { /* of pairs, and the roots exp(2 pi i k / n) */
    int64_t n;
    double *x, *root;
} Line;

static double element(const Fft *f, int64_t at)
{
    return f->plan->t == DT_F64 ? ((const double *)f->in)[at] : (double)((const float *)f->in)[at];
}

static void put(const Fft *f, int64_t at, double x)
{
    if (f->plan->t == DT_F64) ((double *)f->out)[at] = x * f->scale;
    else ((float *)f->out)[at] = (float)(x * f->scale);
}

/* What the kind leaves out is put in: imaginary parts of 0, conjugates. */
static void load(const Fft *f, int64_t at, const Line *l)
{
    int64_t n = l->n, given = f->kind == FFT_TO_REAL ? n / 2 + 1 : n;
    for (int64_t j = 0; j < given; j++) {
        l->x[2 * j] = element(f, at + j * f->in_step);
        l->x[2 * j + 1] = f->kind == FFT_TO_COMPLEX ? 0 : element(f, at + j * f->in_step + f->in_imag);
    }
    if (f->kind != FFT_TO_REAL) return;
    l->x[1] = 0;
    if (n % 2 == 0) l->x[n + 1] = 0;
    for (int64_t j = given; j < n; j++) {
        l->x[2 * j] = l->x[2 * (n - j)];
        l->x[2 * j + 1] = -l->x[2 * (n - j) + 1];
    }
}

static void transform(const Fft *f, int64_t at, const Line *l)
{
    int64_t n = l->n, bins = f->kind == FFT_TO_COMPLEX && !f->whole ? n / 2 + 1 : n;
    for (int64_t k = 0; k < bins; k++) {
        double re = 0, im = 0;
        for (int64_t j = 0, turn = 0; j < n; j++, turn = (turn + k) % n) {
            double c = l->root[2 * turn], s = f->inverse ? l->root[2 * turn + 1] : -l->root[2 * turn + 1];
            re += l->x[2 * j] * c - l->x[2 * j + 1] * s;
            im += l->x[2 * j] * s + l->x[2 * j + 1] * c;
        }
        put(f, at + k * f->out_step, re);
        if (f->kind != FFT_TO_REAL) put(f, at + k * f->out_step + f->out_imag, im);
    }
}

static void lines(const Fft *f, int threads)
{
    (void)threads;
    double *room = f->work;
    Line l = {f->plan->n, room, room + 2 * f->plan->n};
    for (int64_t k = 0; k < l.n; k++) {
        double x = 6.28318530717958647693 * (double)k / (double)l.n;
        l.root[2 * k] = real_cos(x);
        l.root[2 * k + 1] = real_sin(x);
    }
    for (int64_t i = 0, in, out; i < fft_line_count(f); i++) {
        fft_line_at(f, i, &in, &out);
        load(f, in, &l);
        transform(f, out, &l);
    }
}

void fft_fill_ref(FftKernels *k);

void fft_fill_ref(FftKernels *k) { *k = (FftKernels){.lines_f32 = lines, .lines_f64 = lines}; }
