/* Resampling. Formulas: aten/src/ATen/native/UpSample.h, GridSampler.cpp. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/kernel.h"
#include "run/pointwise.h"
#include "run/run_table.h"
#include "run/whole.h"

static DType work_type(DType t) { return t == DT_F64 ? DT_F64 : DT_F32; }

/* ------------------------------------------------------------------ resampling */

typedef struct Axis {
    int64_t in, out, taps;
    int64_t *at; /* out x taps */
    double *weight;
} Axis;

static double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
static double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

static double sinc(double x) { return x == 0 ? 1 : real_sin(M_PI * x) / (M_PI * x); }

/* Of antialiasing, by how many pixels it reaches to either side: linear 1, cubic 2, Lanczos 3. */
static double filter(double x, int reach)
{
    x = fabs(x);
    if (reach == 1) return x < 1 ? 1 - x : 0;
    if (reach == 3) return x < 3 ? sinc(x) * sinc(x / 3) : 0;
    return x < 1 ? cubic_near(x, -0.5) : x < 2 ? cubic_far(x, -0.5) : 0;
}

/* area_pixel_compute_scale */
static double axis_scale(int64_t in, int64_t out, bool align, double scale, bool f64)
{
    double s = align       ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0)
               : scale > 0 ? 1 / scale
                           : (double)in / (double)out;
    if (!f64 && align && out > 1) return (double)((float)(in - 1) / (float)(out - 1));
    if (!f64 && !align && !(scale > 0)) return (double)((float)in / (float)out);
    return f64 ? s : (double)(float)s;
}

static int64_t clampi(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* Where output j of "nearest" is in the input: nearest_idx and nearest_exact_idx of ATen, float32 in every dtype.
 * Without "exact", an axis of a line or a picture (`flat`: not of a volume) that keeps its size or doubles it
 * disregards the scale. */
static int64_t nearest_at(const Axis *a, int64_t j, float scale, bool exact, bool flat)
{
    if (!exact && flat && a->out == a->in) return j;
    if (!exact && flat && a->out == 2 * a->in) return j / 2;
    float p = exact ? ((float)j + 0.5f) * scale : (float)j * scale;
    return clampi(whole(floor((double)p)), a->in);
}

static bool make_axis(Call *c, Axis *a, const char *mode, bool align, double given, bool f64, Err *err)
{
    bool cubic = !strncmp(mode, "cubic", 5), linear = !strncmp(mode, "linear", 6), aa = strstr(mode, "-aa") != NULL,
         exact = !strcmp(mode, "nearest-exact");
    int reach = cubic ? 2 : linear ? 1 : 3;
    double scale = axis_scale(a->in, a->out, align && (cubic || linear || aa), given, f64);
    double support = aa ? (scale >= 1 ? reach * scale : reach) : 0;
    size_t count, bytes;
    if (!(support < 0x1p31))
        return call_fail(c, E_LIMIT, err, "a scale of %g, which averages %g pixels", 1 / scale, support);
    a->taps = aa ? (int64_t)ceil(support) * 2 + 1 : cubic ? 4 : linear ? 2 : 1;
    if (aa && a->taps > a->in) a->taps = a->in; /* what it averages is inside */
    if (!mul_size((size_t)a->out, (size_t)a->taps, &count) || !mul_size(count, sizeof *a->weight, &bytes))
        return call_fail(c, E_LIMIT, err, "%lld weights for each of %lld pixels", (long long)a->taps,
                         (long long)a->out);
    a->at = call_scratch(c, bytes, err);
    a->weight = call_scratch(c, bytes, err);
    if (!a->at || !a->weight) return false;
    for (int64_t j = 0; j < a->out; j++) {
        int64_t *at = a->at + j * a->taps;
        double *w = a->weight + j * a->taps, x = align ? (double)j * scale : ((double)j + 0.5) * scale - 0.5;
        if (!f64) x = align ? (double)((float)j * (float)scale) : (double)(((float)j + 0.5f) * (float)scale - 0.5f);
        if (aa) {
            double centre = scale * ((double)j + 0.5), sum = 0, shrink = scale >= 1 ? 1 / scale : 1;
            int64_t first = whole(centre - support + 0.5), last = whole(centre + support + 0.5);
            if (first < 0) first = 0;
            if (last > a->in) last = a->in;
            for (int64_t k = 0; k < a->taps; k++) {
                bool inside = first + k < last;
                at[k] = clampi(first + k, a->in);
                w[k] = inside ? filter(((double)(k + first) - centre + 0.5) * shrink, reach) : 0;
                sum += w[k];
            }
            for (int64_t k = 0; k < a->taps; k++) w[k] /= sum != 0 ? sum : 1;
        } else if (cubic) {
            int64_t i = whole(floor(x));
            double t = x - floor(x);
            w[0] = cubic_far(t + 1, -0.75);
            w[1] = cubic_near(t, -0.75);
            w[2] = cubic_near(1 - t, -0.75);
            w[3] = cubic_far(2 - t, -0.75);
            for (int64_t k = 0; k < 4; k++) at[k] = clampi(i - 1 + k, a->in);
        } else if (linear) {
            if (x < 0) x = 0;
            int64_t i = clampi(whole(x), a->in);
            at[0] = i;
            at[1] = i < a->in - 1 && a->out != a->in ? i + 1 : i; /* of equal sizes a copy, in PyTorch as well */
            w[1] = x - (double)i > 1 ? 1 : x - (double)i;
            w[0] = 1 - w[1];
        } else {
            at[0] = nearest_at(a, j, (float)scale, exact, call_in(c, 0)->rank < 5);
            w[0] = 1;
        }
    }
    return true;
}

/* t's axes in memory: as they are, or, channels-last, with the channels after the others. Gives the first axis of a
 * picture. */
static int axes_in_memory(const Tensor *t, bool last, int64_t *shape)
{
    for (int i = 0; i < t->rank; i++) shape[i] = t->shape[!last || i == 0 ? i : i + 1 < t->rank ? i + 1 : 1];
    return last ? 1 : 2;
}

/* x is laid out as out is. */
static bool resample(Call *c, const Tensor *x, Tensor *out, Axis *axis, int n, Err *err)
{
    DType t = work_type(x->dtype);
    const void *from = x->data;
    int64_t shape[MAX_RANK];
    bool channels_last = !tensor_contiguous(out);
    int first = axes_in_memory(x, channels_last, shape);
    for (int d = n - 1; d >= 0; d--) { /* the innermost axis first, as many passes as axes */
        int64_t outer = 1, inner = 1;
        for (int i = 0; i < first + d; i++) outer *= shape[i];
        for (int i = first + d + 1; i < x->rank; i++) inner *= shape[i];
        shape[first + d] = axis[d].out;
        bool last = d == 0 && out->dtype == t;
        void *to = last ? out->data : call_scratch(c, (size_t)(outer * axis[d].out * inner) * dtype_size(t), err);
        TRY(to || outer * axis[d].out * inner == 0);
        if (t == DT_F32)
            kernels()->image.resample_f32(to, from, outer, axis[d].in, axis[d].out, inner, axis[d].taps, axis[d].at,
                                          axis[d].weight, c->env->threads);
        else
            kernels()->image.resample_f64(to, from, outer, axis[d].in, axis[d].out, inner, axis[d].taps, axis[d].at,
                                          axis[d].weight, c->env->threads);
        from = to;
    }
    if (from == out->data) return true;
    Tensor made = tensor_of(t, out->rank, out->shape, (void *)(uintptr_t)from);
    memcpy(made.stride, out->stride, sizeof made.stride);
    for (int64_t i = 0; out->dtype == DT_U8 && i < tensor_numel(out);
         i++) { /* bytes along a line or in space, which PyTorch does not resample, are rounded, not cut */
        float *p = (float *)made.data + i;
        *p = *p < 0 ? 0 : *p > 255 ? 255 : nearbyintf(*p);
    }
    return run_copy_tensor(out, &made, c->env->threads);
}

/* The weights of an axis as whole numbers of 2^-result each, as fine as the largest fits 16 bits; of a place that
 * several taps read, their sum. */
static int fixed_weights(const Axis *a, int16_t *fixed)
{
    double largest = 0;
    int bits = 0;
    for (int64_t i = 0; i < a->out * a->taps; i += a->taps) {
        double *w = a->weight + i;
        for (int64_t k = 1; k < a->taps; k++) {
            if (a->at[i + k] != a->at[i + k - 1]) continue;
            w[k] += w[k - 1];
            w[k - 1] = 0;
        }
        for (int64_t k = 0; k < a->taps; k++) largest = fmax(largest, w[k]);
    }
    while (bits < 22 && largest * (double)(2 << bits) + 0.5 < 0x1p15) bits++;
    for (int64_t i = 0; i < a->out * a->taps; i++)
        fixed[i] = (int16_t)(a->weight[i] * (double)(1 << bits) + (a->weight[i] < 0 ? -0.5 : 0.5));
    return bits;
}

/* (outer, axis->in, inner) to (outer, axis->out, inner): a sum of products, rounded to a byte */
static void resample_bytes(uint8_t *out, const uint8_t *in, int64_t outer, int64_t inner, const Axis *axis,
                           const int16_t *weight, int bits)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < axis->out; j++)
            for (int64_t i = 0; i < inner; i++) {
                const int64_t *at = axis->at + j * axis->taps;
                int32_t sum = bits ? 1 << (bits - 1) : 0;
                for (int64_t k = 0; k < axis->taps; k++)
                    sum += weight[j * axis->taps + k] * in[(o * axis->in + at[k]) * inner + i];
                sum >>= bits;
                out[(o * axis->out + j) * inner + i] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
            }
}

/* A picture of bytes: columns, then rows, each rounded to bytes; an axis that keeps its size is not touched. */
static bool resample_picture(Call *c, const Tensor *x, Tensor *out, const Axis *axis, Err *err)
{
    const uint8_t *from = x->data;
    int64_t shape[MAX_RANK];
    int first = axes_in_memory(x, !tensor_contiguous(out), shape);
    for (int d = 1; d >= 0; d--) {
        const Axis *a = &axis[d];
        int64_t outer = 1, inner = 1;
        for (int i = 0; i < first + d; i++) outer *= shape[i];
        for (int i = first + d + 1; i < x->rank; i++) inner *= shape[i];
        shape[first + d] = a->out;
        if (a->in == a->out) continue;
        int16_t *weight = call_scratch(c, (size_t)(a->out * a->taps) * sizeof *weight, err);
        uint8_t *to = call_scratch(c, (size_t)(outer * a->out * inner), err);
        TRY(weight && to);
        resample_bytes(to, from, outer, inner, a, weight, fixed_weights(a, weight));
        from = to;
    }
    memcpy(out->data, from, tensor_bytes(out));
    return true;
}

/* x as t, channels-last. */
static const Tensor *with_channels_last(Call *c, const Tensor *x, DType t, Err *err)
{
    if (tensor_channels_last(x) && x->dtype == t) return x;
    Tensor *copy = call_scratch(c, sizeof *copy, err);
    if (!copy) return NULL;
    *copy = tensor_of(t, x->rank, x->shape, NULL);
    strides_channels_last(copy->rank, copy->shape, copy->stride);
    copy->data = call_scratch(c, tensor_bytes(copy), err);
    return copy->data && run_copy_tensor(copy, x, c->env->threads) ? copy : NULL;
}

/* The nearest pixels: no arithmetic but a map of indices, any dtype. Axes go in the order of the result's memory. */
static bool repeat_pixels(Call *c, const Axis *axis, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    const int64_t *map[MAX_RANK];
    int64_t shape[MAX_RANK], stride[MAX_RANK];
    for (int i = 0; i < out->rank; i++) {
        int d = tensor_contiguous(out) || !i ? i : i + 1 < out->rank ? i + 1 : 1;
        int64_t *all = call_scratch(c, (size_t)out->shape[d] * sizeof *all, err);
        TRY(all);
        for (int64_t k = 0; k < out->shape[d]; k++) all[k] = d < 2 ? k : axis[d - 2].at[k];
        map[i] = all, shape[i] = out->shape[d], stride[i] = x->stride[d];
    }
    kernels()->index.map(out->data, x->data, out->rank, shape, stride, map, NULL, dtype_size(x->dtype),
                         c->env->threads);
    return true;
}

bool run_upsample(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    Axis axis[3];
    int n = x->rank - 2;
    if (tensor_numel(out) == 0) return true;
    if (tensor_numel(x) == 0) return call_fail(c, E_USAGE, err, "an empty image cannot be resampled");
    bool nearest = !strncmp(c->arg[2].str, "nearest", 7), picture = !nearest && x->dtype == DT_U8 && n == 2,
         f64 = x->dtype == DT_F64 || picture;
    for (int i = 0; i < n; i++) {
        axis[i] = (Axis){.in = x->shape[2 + i], .out = out->shape[2 + i]};
        double scale = c->arg[4].kind == ARG_EXPRS ? scalar_f64(c->arg[4].ss[i]) : 0;
        TRY(make_axis(c, &axis[i], c->arg[2].str, call_bool(c, 3), scale, f64 && !nearest, err));
    }
    if (nearest) return repeat_pixels(c, axis, err);
    DType t = picture ? x->dtype : work_type(x->dtype);
    x = tensor_contiguous(out) ? call_contiguous(c, x, t, err) : with_channels_last(c, x, t, err);
    return x && (picture ? resample_picture(c, x, out, axis, err) : resample(c, x, out, axis, n, err));
}

/* ------------------------------------------------------------------ grid_sampler */

/* How points become places in a picture: padding 0 zeros, 1 border, 2 reflection;
 * PyTorch rounds each step to the picture's type. */
typedef struct Placing {
    int64_t padding;
    bool align;
    DType type;
} Placing;

static double rounded(DType t, double x)
{
    switch (t) {
    case DT_F16: return (double)f16_to_f32(f32_to_f16((float)x));
    case DT_BF16: return (double)bf16_to_f32(f32_to_bf16((float)x));
    case DT_F32: return (double)(float)x;
    default: return x;
    }
}

static double unnormalize(double x, int64_t n, const Placing *p)
{
    DType t = p->type;
    x = rounded(t, x + 1);
    return p->align ? rounded(t, x / 2 * (double)(n - 1)) : rounded(t, rounded(t, x * (double)n) - 1) / 2;
}

static double reflect(double x, int64_t n, const Placing *p)
{
    DType t = p->type;
    double low = p->align ? 0 : -0.5, span = (double)(p->align ? n - 1 : n);
    if (span == 0) return 0;
    x = fabs(rounded(t, x - low));
    double extra = rounded(t, fmod(x, span)), flips = floor(x / span);
    return rounded(t, (fmod(flips, 2) == 0 ? extra : rounded(t, span - extra)) + low);
}

static double grid_place(double x, int64_t n, const Placing *p)
{
    x = unnormalize(x, n, p);
    if (p->padding == 2) x = reflect(x, n, p);
    if (p->padding != 0) x = x < 0 || x != x ? 0 : x > (double)(n - 1) ? (double)(n - 1) : x;
    return x;
}

static double pixel(const double *plane, int64_t y, int64_t x, int64_t h, int64_t w)
{
    return y < 0 || x < 0 || y >= h || x >= w ? 0 : plane[y * w + x];
}

static double step(DType t, double a, double x, double b) { return rounded(t, rounded(t, a * x) + b); }

/* cubic_far and cubic_near of the distances x + 1, x, 1 - x, 2 - x, rounded as PyTorch does for half types */
static void cubic_weights(DType t, double x, double w[4])
{
    const double a = -0.75, distance[4] = {x + 1, x, 1 - x, 2 - x};
    for (int i = 0; i < 4; i++) {
        double d = rounded(t, distance[i]);
        if (i == 0 || i == 3) w[i] = step(t, step(t, step(t, a, d, -5 * a), d, 8 * a), d, -4 * a);
        else w[i] = step(t, rounded(t, step(t, a + 2, d, -(a + 3)) * d), d, 1);
    }
}

/* Cubic: the four elements of an axis around a place and their weights. Each is placed by itself, so that it is padded
 * as the mode says; at is -1 outside. */
typedef struct Taps {
    int64_t at[4];
    double weight[4];
} Taps;

static Taps taps_of(double g, int64_t n, const Placing *p)
{
    Taps t;
    double x = unnormalize(g, n, p), low = floor(x);
    cubic_weights(dtype_size(p->type) == 2 ? p->type : DT_F64, x - low, t.weight);
    for (int i = 0; i < 4; i++) {
        double at = low - 1 + i;
        if (p->padding == 2) at = reflect(at, n, p);
        if (p->padding != 0) at = at<0 ? 0 : at>(double)(n - 1) ? (double)(n - 1) : at;
        int64_t k = whole(at);
        t.at[i] = k < 0 || k >= n ? -1 : k;
    }
    return t;
}

/* The elements of all axes, times their weights; the last axis innermost. */
static double cubic_sum(const double *data, const int64_t *n, const Taps *taps, int axes, DType t)
{
    int64_t stride = 1;
    double s = 0;
    for (int i = 1; i < axes; i++) stride *= n[i];
    for (int j = 0; j < 4; j++) {
        int64_t k = taps->at[j];
        double x = k < 0 ? 0 : axes > 1 ? cubic_sum(data + k * stride, n + 1, taps + 1, axes - 1, t) : data[k];
        s = step(t, taps->weight[j], x, s);
    }
    return s;
}

/* One point of a picture or a volume; g: x, y[, z] */
static double sample_cubic(const double *data, const double *g, const int64_t *n, int axes, const Placing *p)
{
    Taps taps[3];
    for (int i = 0; i < axes; i++) taps[i] = taps_of(g[axes - 1 - i], n[i], p);
    return cubic_sum(data, n, taps, axes, dtype_size(p->type) == 2 ? p->type : DT_F64);
}

static double sample_nearest(const double *plane, const double *g, const int64_t *n, const Placing *p)
{
    double x = grid_place(g[0], n[1], p), y = grid_place(g[1], n[0], p);
    if (!(fabs(x) < 1e15) || !(fabs(y) < 1e15)) return 0;
    return pixel(plane, (int64_t)nearbyint(y), (int64_t)nearbyint(x), n[0], n[1]);
}

/* Bilinear: the four elements of a plane around a point and their weights; at is -1 outside. */
typedef struct Corners {
    int64_t at[4];
    double weight[4];
} Corners;

static Corners corners_of(double gy, double gx, int64_t h, int64_t w, const Placing *p)
{
    Corners c = {{-1, -1, -1, -1}, {0}};
    double x = grid_place(gx, w, p), y = grid_place(gy, h, p);
    if (!(fabs(x) < 1e15) || !(fabs(y) < 1e15)) return c;
    int64_t x0 = (int64_t)floor(x), y0 = (int64_t)floor(y);
    double tx = x - (double)x0, ty = y - (double)y0;
    for (int k = 0; k < 4; k++) {
        int64_t xk = x0 + k % 2, yk = y0 + k / 2;
        if (xk >= 0 && yk >= 0 && xk < w && yk < h) c.at[k] = yk * w + xk;
        c.weight[k] = (k % 2 ? tx : 1 - tx) * (k / 2 ? ty : 1 - ty);
    }
    return c;
}

/* Of the plane that begins at an element of one of the two, whichever is given. */
static inline double mean_of(const float *narrow, const double *wide, int64_t plane, const Corners *c)
{
    double s = 0;
    for (int k = 0; k < 4; k++)
        if (c->at[k] >= 0) s += c->weight[k] * (narrow ? (double)narrow[plane + c->at[k]] : wide[plane + c->at[k]]);
    return s;
}

/* x (N, C, h, w) in f32 or f64, grid (N, points, 2): the corners of a block of points serve all channels. */
static void sample_bilinear(const Tensor *x, const double *grid, Tensor *out, int64_t points, const Placing *how,
                            int threads)
{
    enum { BLOCK = 64 };
    int64_t C = x->shape[1], h = x->shape[2], w = x->shape[3], blocks = (points + BLOCK - 1) / BLOCK;
    const float *narrow = x->dtype == DT_F32 ? x->data : NULL;
    const double *wide = x->data;
    float *floats = out->dtype == DT_F32 ? out->data : NULL;
#pragma omp parallel for num_threads(threads) if (x->shape[0] * C * points > 1 << 12)
    for (int64_t b = 0; b < x->shape[0] * blocks; b++) {
        Corners corner[BLOCK];
        int64_t image = b / blocks, from = b % blocks * BLOCK, n = points - from < BLOCK ? points - from : BLOCK;
        for (int64_t i = 0; i < n; i++) {
            const double *g = grid + (image * points + from + i) * 2;
            corner[i] = corners_of(g[1], g[0], h, w, how);
        }
        for (int64_t p = image * C; p < (image + 1) * C; p++)
            for (int64_t i = 0; i < n; i++) {
                int64_t to = p * points + from + i;
                double s = mean_of(narrow, wide, p * h * w, &corner[i]);
                if (floats) floats[to] = (float)s;
                else store_f64(out->dtype, (char *)out->data + (size_t)to * dtype_size(out->dtype), s);
            }
    }
}

static double voxel(const double *volume, const int64_t *at, const int64_t *n)
{
    for (int i = 0; i < 3; i++)
        if (at[i] < 0 || at[i] >= n[i]) return 0;
    return volume[(at[0] * n[1] + at[1]) * n[2] + at[2]];
}

/* g: x, y, z; n: depth, height, width. Mode 0 trilinear, 1 nearest. */
static double sample_volume(const double *volume, const double *g, const int64_t *n, int64_t mode, const Placing *p)
{
    int64_t low[3];
    double t[3], s = 0;
    for (int i = 0; i < 3; i++) {
        double x = grid_place(g[2 - i], n[i], p);
        if (!(fabs(x) < 1e15)) return 0;
        low[i] = (int64_t)(mode == 1 ? nearbyint(x) : floor(x));
        t[i] = x - (double)low[i];
    }
    if (mode == 1) return voxel(volume, low, n);
    for (int corner = 0; corner < 8; corner++) {
        int64_t at[3];
        double w = 1;
        for (int i = 0; i < 3; i++) {
            int up = corner >> (2 - i) & 1;
            at[i] = low[i] + up;
            w *= up ? t[i] : 1 - t[i];
        }
        s += w * voxel(volume, at, n);
    }
    return s;
}

bool run_grid_sampler(Call *c, Err *err)
{
    int64_t mode = call_i64(c, 2);
    int n = call_in(c, 0)->rank - 2;
    const Placing how = {.padding = call_i64(c, 3),
                         .align = call_bool(c, 4), /* cubic places of volumes are floats also in half types */
                         .type = n == 3 && mode == 2 ? DT_F64 : call_in(c, 0)->dtype};
    DType t = n == 2 && mode == 0 ? work_type(call_in(c, 0)->dtype) : DT_F64;
    const Tensor *x = call_contiguous(c, call_in(c, 0), t, err),
                 *g = x ? call_contiguous(c, call_in(c, 1), DT_F64, err) : NULL;
    Tensor *out = call_out(c, 0);
    if (!x || !g) return false;
    const int64_t *size = x->shape + 2;
    int64_t C = x->shape[1], total = out->shape[0] * C, points = total ? tensor_numel(out) / total : 0,
            area = size[0] * size[1] * (n == 3 ? size[2] : 1);
    if (n == 2 && mode == 0) {
        sample_bilinear(x, g->data, out, points, &how, c->env->threads);
        return true;
    }
#pragma omp parallel for num_threads(c->env->threads) if (total * points > 1 << 12)
    for (int64_t p = 0; p < total; p++) {
        const double *plane = (const double *)x->data + p * area, *grid = (const double *)g->data + p / C * points * n;
        for (int64_t i = 0; i < points; i++, grid += n)
            store_f64(out->dtype, (char *)out->data + (size_t)(p * points + i) * dtype_size(out->dtype),
                      mode == 2 ? sample_cubic(plane, grid, size, n, &how)
                      : n == 3  ? sample_volume(plane, grid, size, mode, &how)
                                : sample_nearest(plane, grid, size, &how));
    }
    return true;
}

/* From -1 to 1; without align_corners the middles of n cells. */
static double grid_coordinate(int64_t i, int64_t n, bool align)
{
    if (n == 1) return 0;
    return align ? -1 + 2 * (double)i / (double)(n - 1) : (2 * (double)i + 1) / (double)n - 1;
}

/* out (N, spatial..., n) = theta (N, n, n + 1) (x, y[, z], 1) */
bool run_affine_grid(Call *c, Err *err)
{
    const Tensor *theta = call_contiguous(c, call_in(c, 0), DT_F64, err);
    Tensor *out = call_out(c, 0);
    TRY(theta);
    int n = out->rank - 2;
    bool align = call_bool(c, 2);
    int64_t points = 1;
    for (int i = 1; i <= n; i++) points *= out->shape[i];
    for (int64_t p = 0; p < out->shape[0] * points; p++) {
        const double *t = (const double *)theta->data + p / points * n * (n + 1);
        double at[4];
        int64_t rest = p % points;
        for (int i = 0; i < n; i++) {
            int64_t size = out->shape[n - i];
            at[i] = grid_coordinate(rest % size, size, align);
            rest /= size;
        }
        at[n] = 1;
        for (int i = 0; i < n; i++) {
            double s = 0;
            for (int k = 0; k <= n; k++) s += t[i * (n + 1) + k] * at[k];
            store_f64(out->dtype, (char *)out->data + (size_t)(p * n + i) * dtype_size(out->dtype), s);
        }
    }
    return true;
}
