/* Norms of pictures: statistics of channels and their planes, then y = x * scale + shift for each channel. Planes are
 * contiguous, or, where a convolution has written them so (plan/layout.h), pixels are rows of channels. */
#include <math.h>
#include "base/elementary.h"
#include "kernel/kernel.h"
#include "run/pointwise.h"
#include "run/rows.h"
#include "run/run_table.h"

/* (N, C, plane) values, and a place for the result. */
typedef struct Planes {
    Rows x; /* contiguous: a row is a plane; channels-last: a pixel */
    int64_t N, C, plane;
    bool last;
    void *y;
} Planes;

static bool planes_of(Call *c, Planes *p, Err *err)
{
    const Tensor *in = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    DType t = row_type(in->dtype);
    *p = (Planes){.N = in->shape[0], .C = in->shape[1], .plane = 1};
    for (int i = 2; i < in->rank; i++) p->plane *= in->shape[i];
    p->last = in->dtype == DT_F32 && out->dtype == DT_F32 && tensor_channels_last(in) && tensor_channels_last(out);
    const Tensor *flat = p->last ? in : call_contiguous(c, in, t, err);
    TRY(flat);
    p->x = (Rows){t, p->N * (p->last ? p->plane : p->C), p->last ? p->C : p->plane, flat->data};
    p->y = out->dtype == t ? out->data : call_scratch(c, tensor_bytes(flat), err);
    return p->y != NULL;
}

static bool planes_back(Call *c, const Planes *p)
{
    Tensor *out = call_out(c, 0);
    if (p->y == out->data) return true;
    Tensor from = tensor_of(p->x.t, out->rank, out->shape, p->y);
    return run_copy_tensor(out, &from, c->env->threads);
}

/* y = x * scale[channel] + shift[channel] of a plane. */
static void affine_plane(const Planes *p, int64_t i, double scale, double shift)
{
    int64_t n = p->plane;
    if (p->x.t == DT_F32) {
        const float *in = row_at(&p->x, i);
        float *out = (float *)p->y + i * n, a = (float)scale, b = (float)shift;
        for (int64_t k = 0; k < n; k++) out[k] = in[k] * a + b;
    } else {
        const double *in = row_at(&p->x, i);
        double *out = (double *)p->y + i * n;
        for (int64_t k = 0; k < n; k++) out[k] = in[k] * scale + shift;
    }
}

/* Pixels that are computed as one row: short rows cost more than what is done with them. */
static int64_t pixels_of_row(int64_t C)
{
    enum { FLOATS = 512 };
    return 1 + FLOATS / C;
}

/* y = x * scale + shift of pixels whose channels lie side by side; scale, shift: of pixels_of_row(C) pixels. */
static void affine_pixels(float *y, const float *x, const float *scale, const float *shift, int64_t pixels, int64_t C)
{
    const PointwiseKernels *k = &kernels()->pointwise;
    for (int64_t i = 0, n; i < pixels; i += n) {
        n = pixels - i < pixels_of_row(C) ? pixels - i : pixels_of_row(C);
        k->binary_f32(PW_mul, y + i * C, x + i * C, scale, n * C);
        k->binary_f32(PW_add, y + i * C, y + i * C, shift, n * C);
    }
}

/* scale, shift: one for each channel, or, `each`, for each channel of each picture. */
static bool affine(Call *c, const Planes *p, const double *scale, const double *shift, bool each, Err *err)
{
    enum { FLOATS = 1 << 14 };
    int64_t sets = each ? p->N : 1, C = p->C, n = pixels_of_row(C) * C;
    bool many = p->x.rows * p->x.n > 1 << 15;
    if (!p->last) {
#pragma omp parallel for num_threads(c->env->threads) if (many)
        for (int64_t i = 0; i < p->N * C; i++) affine_plane(p, i, scale[i % (sets * C)], shift[i % (sets * C)]);
        return true;
    }
    float *by = call_scratch(c, (size_t)(sets * n) * sizeof *by, err),
          *plus = call_scratch(c, (size_t)(sets * n) * sizeof *plus, err);
    if (!by || !plus) return false;
    for (int64_t i = 0; i < sets * n; i++)
        by[i] = (float)scale[i / n * C + i % C], plus[i] = (float)shift[i / n * C + i % C];
    int64_t pixels = 1 + FLOATS / C, parts = (p->plane + pixels - 1) / pixels;
#pragma omp parallel for num_threads(c->env->threads) if (many)
    for (int64_t i = 0; i < p->N * parts; i++) {
        int64_t picture = i / parts, first = i % parts * pixels, left = p->plane - first, set = picture % sets * n,
                at = (picture * p->plane + first) * C;
        affine_pixels((float *)p->y + at, (const float *)p->x.data + at, by + set, plus + set,
                      left < pixels ? left : pixels, C);
    }
    return true;
}

/* aten::batch_norm in evaluation: (x - mean) / sqrt(var + eps) * weight + bias, per channel */
bool run_batch_norm(Call *c, Err *err)
{
    Planes p;
    if (tensor_numel(call_in(c, 0)) == 0) return true;
    TRY(planes_of(c, &p, err));
    double *scale = call_scratch(c, (size_t)p.C * sizeof *scale, err),
           *shift = call_scratch(c, (size_t)p.C * sizeof *shift, err);
    if (!scale || !shift) return false;
    for (int64_t k = 0; k < p.C; k++) {
        scale[k] = (call_in(c, 1) ? tensor_get(call_in(c, 1), k) : 1) /
                   sqrt(tensor_get(call_in(c, 4), k) + call_f64(c, 7));
        shift[k] = (call_in(c, 2) ? tensor_get(call_in(c, 2), k) : 0) - tensor_get(call_in(c, 3), k) * scale[k];
    }
    return affine(c, &p, scale, shift, false, err) && planes_back(c, &p);
}

/* Values so far: how many, their mean, and the sum of squares about it. */
typedef struct Moments {
    double n, mean, squares;
} Moments;

/* Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance". */
static void add_moments(Moments *a, const Moments *b)
{
    double n = a->n + b->n, apart = b->mean - a->mean;
    a->mean += apart * (b->n / n);
    a->squares += b->squares + apart * apart * (a->n * b->n / n);
    a->n = n;
}

/* Pixels whose channels stay in L2 while they are read twice. */
static int64_t pixels_of_part(int64_t C)
{
    enum { FLOATS = 1 << 16, LEAST = 64 };
    int64_t n = FLOATS / C;
    return n > LEAST ? n : LEAST;
}

/* The G groups of channels of `pixels` rows of x; sum, mean: room for C values. */
static void moments_of_pixels(Moments *m, const float *x, int64_t pixels, int64_t C, int64_t G, double *sum,
                              float *mean)
{
    const ReduceKernels *k = &kernels()->reduce;
    int64_t D = C / G;
    k->columns_f32(sum, x, NULL, pixels, C, C);
    for (int64_t g = 0; g < G; g++) {
        m[g] = (Moments){.n = (double)(pixels * D)};
        for (int64_t i = 0; i < D; i++) m[g].mean += sum[g * D + i];
        m[g].mean /= m[g].n;
        for (int64_t i = 0; i < D; i++) mean[g * D + i] = (float)m[g].mean;
    }
    k->columns_f32(sum, x, mean, pixels, C, C);
    for (int64_t c = 0; c < C; c++) m[c / D].squares += sum[c];
}

/* Of each group of each picture, channels-last; parts of a picture do not depend on the number of threads. */
static bool moments_of_groups(Call *c, const Planes *p, int64_t G, Moments **groups, Err *err)
{
    int64_t C = p->C, each = pixels_of_part(C), parts = (p->plane + each - 1) / each, all = p->N * parts;
    Moments *m = call_scratch(c, (size_t)(all * G) * sizeof *m, err);
    double *sums = call_scratch(c, (size_t)(all * C) * sizeof *sums, err);
    float *means = call_scratch(c, (size_t)(all * C) * sizeof *means, err);
    TRY(m && sums && means);
#pragma omp parallel for num_threads(c->env->threads) if (all * each * C > 1 << 15)
    for (int64_t i = 0; i < all; i++) {
        int64_t first = i % parts * each, left = p->plane - first;
        const float *x = (const float *)p->x.data + (i / parts * p->plane + first) * C;
        moments_of_pixels(m + i * G, x, left < each ? left : each, C, G, sums + i * C, means + i * C);
    }
    for (int64_t n = 0; n < p->N; n++)
        for (int64_t k = 0; k < parts; k++)
            for (int64_t g = 0; g < G; g++) {
                const Moments *part = &m[(n * parts + k) * G + g];
                if (k) add_moments(&m[n * G + g], part);
                else m[n * G + g] = *part;
            }
    *groups = m;
    return true;
}

/* Of each group of each picture, whose planes follow each other. */
static bool moments_of_planes(Call *c, const Planes *p, int64_t G, Moments **groups, Err *err)
{
    const ReduceKernels *k = &kernels()->reduce;
    Rows group = {.t = p->x.t, .rows = p->N * G, .n = p->C / G * p->plane, .data = p->x.data};
    Moments *m = *groups = call_scratch(c, (size_t)group.rows * sizeof *m, err);
    TRY(m);
#pragma omp parallel for num_threads(c->env->threads) if (group.rows * group.n > 1 << 15)
    for (int64_t g = 0; g < group.rows; g++) {
        const void *row = row_at(&group, g);
        double n = (double)group.n, sum = group.t == DT_F32 ? k->sum_f32(row, group.n) : k->sum_f64(row, group.n);
        m[g] = (Moments){n, sum / n, rows_squares(&group, row, sum / n)};
    }
    return true;
}

/* aten::group_norm: statistics over a group's channels and plane, then weight and bias per channel */
bool run_group_norm(Call *c, Err *err)
{
    Planes p;
    Moments *m;
    int64_t G = call_i64(c, 1);
    if (tensor_numel(call_in(c, 0)) == 0) return true;
    TRY(planes_of(c, &p, err));
    TRY(p.last ? moments_of_groups(c, &p, G, &m, err) : moments_of_planes(c, &p, G, &m, err));
    double *scale = call_scratch(c, (size_t)(p.N * p.C) * sizeof *scale, err),
           *shift = call_scratch(c, (size_t)(p.N * p.C) * sizeof *shift, err);
    if (!scale || !shift) return false;
    for (int64_t i = 0; i < p.N * p.C; i++) {
        const Moments *g = &m[i / (p.C / G)];
        int64_t channel = i % p.C;
        double rstd = 1 / sqrt(g->squares / g->n + call_f64(c, 4));
        scale[i] = rstd * (call_in(c, 2) ? tensor_get(call_in(c, 2), channel) : 1);
        shift[i] = (call_in(c, 3) ? tensor_get(call_in(c, 3), channel) : 0) - g->mean * scale[i];
    }
    return affine(c, &p, scale, shift, true, err) && planes_back(c, &p);
}
