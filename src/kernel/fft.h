/* Discrete Fourier transforms of lines, of any length n:
 *
 *     X[k] = scale * sum over j of x[j] exp(-+ 2 pi i j k / n)        - forward, + inverse
 *
 * Stockham's transform (no bit reversal) of radix 4, 2, 3, 5 and any prime to 31; a length with a larger prime is a
 * convolution with a chirp (Bluestein 1970). A line of even length that is real takes a transform of half its length.
 * Several lines go through a transform side by side, one in each lane of a vector, and a line's bits depend neither on
 * its lane nor on the number of lines. Roots of unity are computed in double; f32 computes in float, f64 in double.
 * The reference adds in double, n^2 terms a line.
 *
 *     FftPlan p;
 *     fft_plan(&p, 400, true, DT_F32);
 *     fft_plan_fill(&p, aligned memory of p.bytes);
 *     kernels()->fft.lines_f32(&(Fft){.plan = &p, .kind = FFT_TO_COMPLEX, ...}, threads);
 */
#ifndef QKV_KERNEL_FFT_H
#define QKV_KERNEL_FFT_H
#include "tensor/tensor.h"

enum {
    FFT_FACTORS = 64,
    FFT_LARGEST_RADIX = 31,
    FFT_WRITTEN_OUT = 5, /* stages of larger radix read the roots of their radix, too */
    FFT_LANES = 16
};

/* What transforms of length n have in common. Pairs are a real and an imaginary part, of type t. */
typedef struct FftPlan {
    int64_t n;    /* of the line */
    int64_t half; /* of the complex transform: n, or n / 2 of a real line of even length */
    int64_t m;    /* what goes through the stages: half, or at least 2 half - 1 for the convolution with a chirp */
    bool halved, chirped;
    int nfactor, factor[FFT_FACTORS]; /* of m, in the order of the stages */
    DType t;
    size_t bytes;
    /* Stage by stage exp(-2 pi i j k / l) for j < l / r and 1 <= k < r, where l goes from m down by the radix r; then,
     * for r > FFT_WRITTEN_OUT, exp(-2 pi i k / r) for k < r */
    void *root;
    void *chirp;    /* chirped: half pairs exp(-pi i k^2 / half) */
    void *spectrum; /* chirped: m pairs, the transform of the chirp's conjugate at k and -k, divided by m */
    void *split;    /* halved: half + 1 pairs exp(-2 pi i k / n) */
} FftPlan;

/* Sizes, for n >= 1; false: too large. real: lines are real on one side. */
bool fft_plan(FftPlan *p, int64_t n, bool real, DType t);
/* Roots into memory of p->bytes, aligned to 64, which stays the caller's. */
void fft_plan_fill(FftPlan *p, void *memory);

typedef enum FftKind {
    FFT_COMPLEX,    /* n pairs -> n pairs */
    FFT_TO_COMPLEX, /* n reals -> n / 2 + 1 pairs, or all n; forward only */
    FFT_TO_REAL     /* n / 2 + 1 pairs, the rest being their conjugates -> n reals; inverse only */
} FftKind;

/* Strides and steps in reals. in and out may be the same lines of the same strides. */
typedef struct Fft {
    const FftPlan *plan;
    FftKind kind;
    bool inverse, whole; /* whole: TO_COMPLEX gives all n pairs */
    double scale;
    int rank; /* of the axes that number the lines */
    int64_t shape[MAX_RANK], in_stride[MAX_RANK], out_stride[MAX_RANK];
    int64_t in_step, in_imag; /* from an element to the next; from a real part to its imaginary part */
    int64_t out_step, out_imag;
    const void *in;
    void *out, *work; /* fft_work bytes, aligned to 64 */
} Fft;

int64_t fft_line_count(const Fft *f);
/* Where a line begins. */
void fft_line_at(const Fft *f, int64_t line, int64_t *in, int64_t *out);
/* How many lines go together. */
int64_t fft_lanes(const Fft *f);
/* Bytes of f->work; false: too large. */
bool fft_work(const Fft *f, int threads, size_t *bytes);

typedef struct FftKernels {
    void (*lines_f32)(const Fft *f, int threads);
    void (*lines_f64)(const Fft *f, int threads);
    /* Fills p->spectrum from p->chirp; room for 4 m. The reference has none */
    void (*spectrum_f32)(const FftPlan *p, float *room);
    void (*spectrum_f64)(const FftPlan *p, double *room);
} FftKernels;
#endif
