/* Lengths, factors and roots of unity of Fourier transforms. Contract in kernel/fft.h.
 *
 *     fft_plan(&p, 1000, false, DT_F32);       m 1000, factors 4 2 5 5 5
 *     fft_plan(&p, 37, false, DT_F32);         m 80, a convolution with a chirp
 */
#include "kernel/fft.h"
#include <math.h>
#include "base/arena.h"
#include "base/elementary.h"
#include "kernel/kernel.h"

enum { ALIGN = 64, CACHED = 1 << 16 /* reals of one part that a thread works on at once */ };

/* ------------------------------------------------------------------ sizes */

static int64_t largest_prime(int64_t n)
{
    int64_t most = 1;
    for (int64_t p = 2; p * p <= n; p++)
        for (; n % p == 0; n /= p) most = p;
    return n > 1 ? n : most;
}

/* The least from n on that is a power of 2 times 1, 3, 5, 9 or 15. */
static int64_t smooth(int64_t n)
{
    static const int64_t odd[] = {1, 3, 5, 9, 15};
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        int64_t m = odd[i];
        while (m < n) m *= 2;
        if (m < best) best = m;
    }
    return best;
}

static void factorise(FftPlan *p)
{
    int64_t left = p->m;
    for (; left % 4 == 0; left /= 4) p->factor[p->nfactor++] = 4;
    for (int r = 2; r <= FFT_LARGEST_RADIX; r++)
        for (; left % r == 0; left /= r) p->factor[p->nfactor++] = r;
}

/* Pairs that a stage reads. */
static int64_t stage_roots(int r, int64_t l) { return (r - 1) * (l / r) + (r > FFT_WRITTEN_OUT ? r : 0); }

static int64_t all_roots(const FftPlan *p)
{
    int64_t n = 0, l = p->m;
    for (int i = 0; i < p->nfactor; l /= p->factor[i++]) n += stage_roots(p->factor[i], l);
    return n;
}

/* Bytes of n pairs, up to the next line of the cache. */
static size_t pairs_bytes(DType t, int64_t n) { return ((size_t)n * 2 * dtype_size(t) + ALIGN - 1) / ALIGN * ALIGN; }

bool fft_plan(FftPlan *p, int64_t n, bool real, DType t)
{
    if (n < 1 || n > INT64_MAX / 4096) return false;
    bool halved = real && n % 2 == 0;
    *p = (FftPlan){.n = n, .half = halved ? n / 2 : n, .halved = halved, .t = t};
    p->chirped = largest_prime(p->half) > FFT_LARGEST_RADIX;
    p->m = p->chirped ? smooth(2 * p->half - 1) : p->half;
    factorise(p);
    p->bytes = pairs_bytes(t, all_roots(p));
    if (p->chirped) p->bytes += pairs_bytes(t, p->half) + 3 * pairs_bytes(t, p->m);
    if (halved) p->bytes += pairs_bytes(t, p->half + 1);
    if (!p->bytes) p->bytes = ALIGN;
    return true;
}

int64_t fft_line_count(const Fft *f)
{
    int64_t n = 1;
    for (int i = 0; i < f->rank; i++) n *= f->shape[i];
    return n;
}

void fft_line_at(const Fft *f, int64_t line, int64_t *in, int64_t *out)
{
    *in = *out = 0;
    for (int i = f->rank - 1; i >= 0; line /= f->shape[i--]) {
        *in += line % f->shape[i] * f->in_stride[i];
        *out += line % f->shape[i] * f->out_stride[i];
    }
}

int64_t fft_lanes(const Fft *f)
{
    int64_t lanes = FFT_LANES, lines = fft_line_count(f);
    while (lanes > 4 && lanes * f->plan->m > CACHED) lanes /= 2;
    return lanes < lines ? lanes : lines > 0 ? lines : 1;
}

bool fft_work(const Fft *f, int threads, size_t *bytes)
{
    size_t each;
    TRY(mul_size((size_t)fft_lanes(f) * 4 * sizeof(double), (size_t)f->plan->n + (size_t)f->plan->m + 1, &each));
    return mul_size(each, (size_t)(threads > 0 ? threads : 1), bytes);
}

/* ------------------------------------------------------------------ roots */

typedef struct Root {
    double c, s;
} Root;

/* exp(-2 pi i k / n): the angle is brought to an eighth of a turn */
static Root root_of(int64_t k, int64_t n)
{
    k %= n;
    bool back = 2 * k > n;
    int64_t a = 2 * (back ? n - k : k); /* the angle is pi a / n, at most pi */
    bool left = 2 * a > n;
    if (left) a = n - a;
    bool turned = 4 * a > n;
    double x = 3.14159265358979323846 * (double)(turned ? n - 2 * a : 2 * a) / (double)(2 * n);
    Root r = turned ? (Root){real_sin(x), real_cos(x)} : (Root){real_cos(x), real_sin(x)};
    if (left) r.c = -r.c;
    if (!back) r.s = -r.s;
    return r;
}

static void put(const FftPlan *p, void *at, int64_t i, double c, double s)
{
    if (p->t == DT_F64) ((double *)at)[2 * i] = c, ((double *)at)[2 * i + 1] = s;
    else ((float *)at)[2 * i] = (float)c, ((float *)at)[2 * i + 1] = (float)s;
}

static void put_root(const FftPlan *p, void *at, int64_t i, int64_t k, int64_t n)
{
    Root r = root_of(k, n);
    put(p, at, i, r.c, r.s);
}

static void fill_stages(FftPlan *p)
{
    int64_t at = 0, l = p->m;
    for (int i = 0; i < p->nfactor; l /= p->factor[i++]) {
        int r = p->factor[i];
        for (int64_t j = 0; j < l / r; j++)
            for (int k = 1; k < r; k++) put_root(p, p->root, at++, j * k, l);
        for (int k = 0; r > FFT_WRITTEN_OUT && k < r; k++) put_root(p, p->root, at++, k, r);
    }
}

/* exp(-pi i k^2 / n): k^2 goes modulo 2 n, step by step */
static void fill_chirp(FftPlan *p)
{
    int64_t n = p->half, square = 0;
    for (int64_t k = 0; k < n; k++) {
        put_root(p, p->chirp, k, square, 2 * n);
        square = (square + 2 * k + 1) % (2 * n);
    }
}

void fft_plan_fill(FftPlan *p, void *memory)
{
    char *at = memory;
    p->root = at;
    at += pairs_bytes(p->t, all_roots(p));
    fill_stages(p);
    if (p->halved) {
        p->split = at;
        at += pairs_bytes(p->t, p->half + 1);
        for (int64_t k = 0; k <= p->half; k++) put_root(p, p->split, k, k, p->n);
    }
    if (!p->chirped) return;
    p->chirp = at;
    p->spectrum = at + pairs_bytes(p->t, p->half);
    fill_chirp(p);
    const FftKernels *k = &kernels_at(CPU_GEN)->fft;
    void *room = (char *)p->spectrum + pairs_bytes(p->t, p->m);
    if (p->t == DT_F64) k->spectrum_f64(p, room);
    else k->spectrum_f32(p, room);
}
