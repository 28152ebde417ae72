/* Regions of pictures. Formulas: torchvision/csrc/ops/cpu/roi_align_kernel.cpp, roi_pool_kernel.cpp, nms_kernel.cpp. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "run/pointwise.h"
#include "run/run_table.h"
#include "run/whole.h"

/* A region of a picture, divided into bins of samples. */
typedef struct Roi {
    double x, y, high, wide; /* its corner, the size of a bin */
    int64_t rows, columns;   /* samples of a bin */
    double count;
} Roi;

/* box: image, x1, y1, x2, y2 */
static Roi roi_of(const double *box, double scale, double shift, int64_t ph, int64_t pw, int64_t ratio)
{
    double x0 = box[1] * scale - shift, y0 = box[2] * scale - shift, rw = box[3] * scale - shift - x0,
           rh = box[4] * scale - shift - y0;
    if (shift == 0) {
        if (rw < 1) rw = 1;
        if (rh < 1) rh = 1;
    }
    Roi r = {.x = x0, .y = y0, .high = rh / (double)ph, .wide = rw / (double)pw};
    r.rows = ratio > 0 ? ratio : whole(ceil(r.high));
    r.columns = ratio > 0 ? ratio : whole(ceil(r.wide));
    r.count = fmax((double)r.rows * (double)r.columns, 1);
    return r;
}

static double roi_y(const Roi *r, int64_t bin, int64_t i)
{
    return r->y + (double)bin * r->high + ((double)i + 0.5) * r->high / (double)r->rows;
}
static double roi_x(const Roi *r, int64_t bin, int64_t i)
{
    return r->x + (double)bin * r->wide + ((double)i + 0.5) * r->wide / (double)r->columns;
}

typedef struct Span {
    int64_t from, to;
} Span;

typedef double RoiPlace(const Roi *r, int64_t bin, int64_t i);

/* How many of a bin's samples are below `limit`; their places grow. */
static int64_t roi_below(RoiPlace *place, const Roi *r, int64_t bin, int64_t count, double limit)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t i = low + (high - low) / 2;
        if (place(r, bin, i) < limit) low = i + 1;
        else high = i;
    }
    return low;
}

/* The samples of a bin along an axis of n pixels that may count: a region can be far larger than its picture. */
static Span roi_span(RoiPlace *place, const Roi *r, int64_t bin, int64_t count, double size, int64_t n)
{
    if (!(size > 0)) return (Span){0, count};
    int64_t from = roi_below(place, r, bin, count, -1),
            to = roi_below(place, r, bin, count, nextafter((double)n, INFINITY));
    return (Span){from, to};
}

static Span roi_rows(const Roi *r, int64_t bin, int64_t h) { return roi_span(roi_y, r, bin, r->rows, r->high, h); }
static Span roi_columns(const Roi *r, int64_t bin, int64_t w)
{
    return roi_span(roi_x, r, bin, r->columns, r->wide, w);
}

/* Bilinear; 0 outside [-1, n]. */
static bool roi_inside(double y, double x, int64_t h, int64_t w)
{
    return y >= -1 && y <= (double)h && x >= -1 && x <= (double)w;
}

/* The two elements of an axis around a place inside; how far after the first it is. */
static double roi_between(double at, int64_t n, int64_t *low, int64_t *high)
{
    if (at <= 0) at = 0;
    *low = (int64_t)at;
    *high = *low + 1;
    if (*low < n - 1) return at - (double)*low;
    *low = *high = n - 1;
    return 0;
}

static double roi_pixel(const double *plane, double y, double x, int64_t h, int64_t w)
{
    if (!roi_inside(y, x, h, w)) return 0;
    int64_t x0, x1, y0, y1;
    double ly = roi_between(y, h, &y0, &y1), lx = roi_between(x, w, &x0, &x1);
    return (1 - ly) * ((1 - lx) * plane[y0 * w + x0] + lx * plane[y0 * w + x1]) +
           ly * ((1 - lx) * plane[y1 * w + x0] + lx * plane[y1 * w + x1]);
}

/* Adds the gradient g of roi_pixel's result. */
static void roi_pixel_backward(double *plane, double y, double x, int64_t h, int64_t w, double g)
{
    if (!roi_inside(y, x, h, w)) return;
    int64_t x0, x1, y0, y1;
    double ly = roi_between(y, h, &y0, &y1), lx = roi_between(x, w, &x0, &x1);
    plane[y0 * w + x0] += (1 - ly) * (1 - lx) * g;
    plane[y0 * w + x1] += (1 - ly) * lx * g;
    plane[y1 * w + x0] += ly * (1 - lx) * g;
    plane[y1 * w + x1] += ly * lx * g;
}

static bool roi_images(Call *c, const Tensor *rois, int64_t images, Err *err)
{
    const double *r = rois->data;
    for (int64_t i = 0; i < rois->shape[0]; i++)
        if (!(r[i * 5] >= 0 && r[i * 5] < (double)images))
            return call_fail(c, E_USAGE, err, "region %lld belongs to image %g, there are %lld", (long long)i, r[i * 5],
                             (long long)images);
    return true;
}

bool run_roi_align(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_F64, err),
                 *rois = x ? call_contiguous(c, call_in(c, 1), DT_F64, err) : NULL;
    Tensor *out = call_out(c, 0);
    if (!x || !rois) return false;
    double scale = call_f64(c, 2), shift = call_bool(c, 6) ? 0.5 : 0;
    int64_t ratio = call_i64(c, 5), C = x->shape[1], h = x->shape[2], w = x->shape[3], ph = out->shape[2],
            pw = out->shape[3], n = out->shape[0];
    const double *r = rois->data;
    TRY(roi_images(c, rois, x->shape[0], err));
#pragma omp parallel for num_threads(c->env->threads) if (n * C > 64)
    for (int64_t k = 0; k < n * C; k++) {
        const double *box = r + k / C * 5, *plane = (const double *)x->data + ((int64_t)box[0] * C + k % C) * h * w;
        Roi roi = roi_of(box, scale, shift, ph, pw, ratio);
        for (int64_t p = 0; p < ph * pw; p++) {
            double s = 0;
            Span rows = roi_rows(&roi, p / pw, h), columns = roi_columns(&roi, p % pw, w);
            for (int64_t iy = rows.from; iy < rows.to; iy++)
                for (int64_t ix = columns.from; ix < columns.to; ix++)
                    s += roi_pixel(plane, roi_y(&roi, p / pw, iy), roi_x(&roi, p % pw, ix), h, w);
            store_f64(out->dtype, (char *)out->data + (size_t)(k * ph * pw + p) * dtype_size(out->dtype),
                      s / roi.count);
        }
    }
    return true;
}

/* out (N, C, h, w): every sample of a region gives its bin's share of grad (regions, C, ph, pw) to the pixels around
 * it. A plane belongs to one thread and takes its regions in order, summed in double: the same bits for any number of
 * threads. */
bool run_roi_align_backward(Call *c, Err *err)
{
    const Tensor *grad = call_contiguous(c, call_in(c, 0), DT_F64, err),
                 *rois = grad ? call_contiguous(c, call_in(c, 1), DT_F64, err) : NULL;
    Tensor *out = call_out(c, 0);
    if (!grad || !rois) return false;
    double scale = call_f64(c, 2), shift = call_bool(c, 10) ? 0.5 : 0;
    int64_t ratio = call_i64(c, 9), C = out->shape[1], h = out->shape[2], w = out->shape[3], ph = grad->shape[2],
            pw = grad->shape[3], planes = out->shape[0] * C;
    const double *r = rois->data;
    TRY(roi_images(c, rois, out->shape[0], err));
    Tensor sum = tensor_of(DT_F64, 4, out->shape, NULL);
    TRY(sum.data = call_scratch(c, tensor_bytes(&sum), err));
#pragma omp parallel for num_threads(c->env->threads) if (planes * rois->shape[0] > 64)
    for (int64_t k = 0; k < planes; k++) {
        double *plane = (double *)sum.data + k * h * w;
        for (int64_t i = 0; i < h * w; i++) plane[i] = 0;
        for (int64_t i = 0; i < rois->shape[0]; i++) {
            if ((int64_t)r[i * 5] != k / C) continue;
            Roi roi = roi_of(r + i * 5, scale, shift, ph, pw, ratio);
            const double *g = (const double *)grad->data + (i * C + k % C) * ph * pw;
            for (int64_t p = 0; p < ph * pw; p++) {
                Span rows = roi_rows(&roi, p / pw, h), columns = roi_columns(&roi, p % pw, w);
                for (int64_t iy = rows.from; iy < rows.to; iy++)
                    for (int64_t ix = columns.from; ix < columns.to; ix++)
                        roi_pixel_backward(plane, roi_y(&roi, p / pw, iy), roi_x(&roi, p % pw, ix), h, w,
                                           g[p] / roi.count);
            }
        }
    }
    return run_copy_tensor(out, &sum, c->env->threads);
}

/* An edge of a region, rounded; at most 2^60 away, so that what is counted from it stays in range. */
static int64_t edge_pixel(double x)
{
    const double far = 0x1p60;
    return whole(x < -far ? -far : x > far ? far : round(x));
}

/* Pixels of bin i of n along an axis: `from` to `to` in float32, as torchvision counts. */
static Span pool_bin(const double *edge, double scale, bool f64, int64_t i, int64_t n, int64_t size)
{
    double at[2];
    for (int k = 0; k < 2; k++) at[k] = f64 ? edge[2 * k] * scale : (double)((float)edge[2 * k] * (float)scale);
    int64_t start = edge_pixel(at[0]), end = edge_pixel(at[1]), length = end - start + 1;
    double wide = (double)(length > 1 ? length : 1), each = f64 ? wide / (double)n : (double)((float)wide / (float)n);
    double low = (double)i * each, high = (double)(i + 1) * each;
    int64_t from = start + whole(floor(f64 ? low : (double)(float)low)),
            to = start + whole(ceil(f64 ? high : (double)(float)high));
    return (Span){from < 0 ? 0 : from > size ? size : from, to < 0 ? 0 : to > size ? size : to};
}

bool run_roi_pool(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_F64, err),
                 *rois = x ? call_contiguous(c, call_in(c, 1), DT_F64, err) : NULL;
    Tensor *out = call_out(c, 0), *place = call_out(c, 1);
    if (!x || !rois) return false;
    double scale = call_f64(c, 2), lowest = dtype_lowest(out->dtype);
    bool f64 = out->dtype == DT_F64;
    int64_t C = x->shape[1], h = x->shape[2], w = x->shape[3], ph = out->shape[2], pw = out->shape[3],
            n = out->shape[0];
    const double *r = rois->data;
    TRY(roi_images(c, rois, x->shape[0], err));
#pragma omp parallel for num_threads(c->env->threads) if (n * C > 64)
    for (int64_t k = 0; k < n * C; k++) {
        const double *box = r + k / C * 5, *plane = (const double *)x->data + ((int64_t)box[0] * C + k % C) * h * w;
        for (int64_t p = 0; p < ph * pw; p++) {
            Span rows = pool_bin(box + 2, scale, f64, p / pw, ph, h);
            Span columns = pool_bin(box + 1, scale, f64, p % pw, pw, w);
            double most = rows.to <= rows.from || columns.to <= columns.from ? 0 : lowest;
            int32_t at = -1;
            for (int64_t y = rows.from; y < rows.to; y++)
                for (int64_t i = columns.from; i < columns.to; i++)
                    if (plane[y * w + i] > most) most = plane[y * w + i], at = (int32_t)(y * w + i);
            store_f64(out->dtype, (char *)out->data + (size_t)(k * ph * pw + p) * dtype_size(out->dtype), most);
            if (place) ((int32_t *)place->data)[k * ph * pw + p] = at;
        }
    }
    return true;
}

typedef struct Scored {
    double score;
    int64_t at;
} Scored;

static int by_score(const void *a, const void *b)
{
    const Scored *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1) : x->at < y->at ? -1 : 1;
}

/* Without memory for its result it counts only, as run_nonzero does. */
bool run_nms(Call *c, Err *err)
{
    const Tensor *boxes = call_contiguous(c, call_in(c, 0), DT_F64, err),
                 *scores = boxes ? call_contiguous(c, call_in(c, 1), DT_F64, err) : NULL;
    Tensor *out = call_out(c, 0);
    if (!boxes || !scores) return false;
    int64_t n = boxes->shape[0], kept = 0;
    const double *b = boxes->data, *s = scores->data;
    Scored *order = call_scratch(c, (size_t)n * sizeof *order, err);
    unsigned char *gone = call_scratch(c, (size_t)n, err);
    if (!order || !gone) return false;
    memset(gone, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++) order[i] = (Scored){s[i], i};
    qsort(order, (size_t)n, sizeof *order, by_score);
    for (int64_t i = 0; i < n; i++) {
        const double *p = b + order[i].at * 4;
        if (gone[i]) continue;
        if (out->data && kept < out->shape[0]) ((int64_t *)out->data)[kept] = order[i].at;
        kept++;
        for (int64_t k = i + 1; k < n; k++) {
            const double *q = b + order[k].at * 4;
            double w = fmin(p[2], q[2]) - fmax(p[0], q[0]), h = fmin(p[3], q[3]) - fmax(p[1], q[1]),
                   in = w > 0 && h > 0 ? w * h : 0;
            double both = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - in;
            if (in / both > call_f64(c, 2)) gone[k] = 1;
        }
    }
    return call_counted(c, kept, err);
}
