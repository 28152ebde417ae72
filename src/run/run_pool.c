/* Pooling over windows of one to three axes, and col2im. Formulas: aten/src/ATen/native/Pool.h,
 * AdaptiveAveragePooling.cpp, im2col.h.
 *
 * Everything has three axes here; the missing ones in front have size 1. Values in f32 and bf16 are pooled row by row
 * by kernels (kernel/image.h), contiguous or channels-last, as are the largest of bytes channels-last; other dtypes and
 * indices cell by cell.
 */
#include <math.h>
#include <string.h>
#include "kernel/kernel.h"
#include "kernel/meeting.h"
#include "run/run_table.h"
#include "team/team.h"

enum { AXES = 3, LINE = 64 };

typedef struct Window {
    int64_t k[AXES], s[AXES], p[AXES], d[AXES], in[AXES], out[AXES], area, cells, planes;
} Window;

/* How many axes a call has: the fixed length of its sizes. */
static int axes_of(const Call *c) { return c->node->op->schema->params[1].fixed_len; }

/* Argument i as one number per axis; an empty list is `like`, a missing axis `otherwise`. */
static void numbers(const Call *c, int i, int64_t *to, int64_t otherwise, const int64_t *like)
{
    int64_t v[AXES];
    int axes = axes_of(c), n = call_ints(c, i, v, AXES), lead = AXES - axes;
    for (int k = 0; k < AXES; k++)
        to[k] = k < lead ? otherwise : n == 0 ? (like ? like[k] : otherwise) : v[n == 1 ? 0 : k - lead];
}

/* Sizes before and after, of the last axes. */
static void planes_of(const Call *c, Window *w)
{
    const Tensor *x = call_in(c, 0), *y = call_out(c, 0);
    int lead = AXES - axes_of(c);
    w->area = w->cells = 1;
    for (int i = 0; i < AXES; i++) {
        w->in[i] = i < lead ? 1 : x->shape[x->rank - AXES + i];
        w->out[i] = i < lead ? 1 : y->shape[y->rank - AXES + i];
        w->area *= w->in[i];
        w->cells *= w->out[i];
    }
    w->planes = w->cells > 0 ? tensor_numel(y) / w->cells : 0;
}

static void window_of(const Call *c, Window *w, int dilation)
{
    *w = (Window){.d = {1, 1, 1}};
    numbers(c, 1, w->k, 1, NULL);
    numbers(c, 2, w->s, 1, w->k);
    numbers(c, 3, w->p, 0, NULL);
    if (dilation) numbers(c, dilation, w->d, 1, NULL);
    planes_of(c, w);
}

static void place_of(const Window *w, int64_t cell, int64_t *at)
{
    at[0] = cell / (w->out[1] * w->out[2]);
    at[1] = cell / w->out[2] % w->out[1];
    at[2] = cell % w->out[2];
}

/* The largest of the elements from lo to hi by step, those outside left out:
 * where it is in the plane, -1 when there is none. NaN wins. */
static int64_t largest(const Window *w, DType t, const char *plane, const int64_t *from, const int64_t *to,
                       const int64_t *step)
{
    int64_t best = -1, besti = 0, lo[AXES], hi[AXES];
    double bestf = 0;
    size_t size = dtype_size(t);
    bool is_float = dtype_is_float(t);
    for (int d = 0; d < AXES; d++) {
        lo[d] = from[d] < 0 ? from[d] + (step[d] - 1 - from[d]) / step[d] * step[d] : from[d];
        hi[d] = to[d] < w->in[d] ? to[d] : w->in[d];
    }
    for (int64_t z = lo[0]; z < hi[0]; z += step[0])
        for (int64_t y = lo[1]; y < hi[1]; y += step[1]) {
            int64_t row = (z * w->in[1] + y) * w->in[2];
            const float *f32 = t == DT_F32 ? (const float *)(const void *)plane + row : NULL;
            for (int64_t x = lo[2]; f32 && x < hi[2]; x += step[2]) {
                if (best >= 0 && !((double)f32[x] > bestf || f32[x] != f32[x])) continue;
                best = row + x;
                bestf = (double)f32[x];
            }
            for (int64_t x = lo[2]; !f32 && x < hi[2]; x += step[2]) {
                int64_t at = row + x;
                double f = is_float ? load_f64(t, plane + (size_t)at * size) : 0;
                int64_t i = is_float ? 0 : load_i64(t, plane + (size_t)at * size);
                if (best >= 0 && !(f > bestf || f != f || i > besti)) continue;
                best = at;
                bestf = f;
                besti = i;
            }
        }
    return best;
}

/* ------------------------------------------------------------------ row by row */

typedef struct Rows {
    const Window *w;
    DType t;
    const Tensor *x;
    Tensor *out;
    bool last, mean, adaptive; /* last: channels-last, a row is the channels of a pixel */
    bool count_pad;            /* mean: what it is divided by, fixed where that is not 0 */
    int64_t fixed, channels;
} Rows;

/* Cell i of `out` spreads over these elements of `in`. */
static int64_t first_of(int64_t i, int64_t in, int64_t out) { return i * in / out; }
static int64_t end_of(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

/* Offsets of the window of the cell at[], in elements; how many. */
static int64_t taps_of(const Rows *r, const int64_t *at, int64_t *tap, double *divisor)
{
    const Window *w = r->w;
    int64_t lo[AXES], hi[AXES], whole = 1, inside = 1, n = 0, step = r->last ? r->channels : 1;
    for (int d = 0; d < AXES; d++) {
        lo[d] = r->adaptive ? first_of(at[d], w->in[d], w->out[d]) : at[d] * w->s[d] - w->p[d];
        hi[d] = r->adaptive ? end_of(at[d], w->in[d], w->out[d]) : lo[d] + (w->k[d] - 1) * w->d[d] + 1;
        if (hi[d] > w->in[d] + w->p[d]) hi[d] = w->in[d] + w->p[d];
        whole *= hi[d] - lo[d];
        if (lo[d] < 0) lo[d] += (w->d[d] - 1 - lo[d]) / w->d[d] * w->d[d];
        if (hi[d] > w->in[d]) hi[d] = w->in[d];
        inside *= hi[d] > lo[d] ? hi[d] - lo[d] : 0;
    }
    for (int64_t z = lo[0]; z < hi[0]; z += w->d[0])
        for (int64_t y = lo[1]; y < hi[1]; y += w->d[1])
            for (int64_t x = lo[2]; x < hi[2]; x += w->d[2]) tap[n++] = ((z * w->in[1] + y) * w->in[2] + x) * step;
    *divisor = (double)(r->fixed ? r->fixed : r->count_pad ? whole : inside);
    return n;
}

/* n values of the result from element `to` on, with the window of the cell at[]. */
static void pool_row(const Rows *r, int64_t to, int64_t from, const int64_t *at, int64_t n, int64_t step, int64_t *tap)
{
    const ImageKernels *k = &kernels()->image;
    double divisor;
    int64_t taps = taps_of(r, at, tap, &divisor);
    if (!r->mean && taps == 0)
        for (int64_t i = 0; i < n; i++)
            store_f64(r->t, (char *)r->out->data + (size_t)(to + i) * dtype_size(r->t), -INFINITY);
    else if (r->t == DT_I8) k->largest_i8((int8_t *)r->out->data + to, (const int8_t *)r->x->data + from, tap, taps, n);
    else if (r->t == DT_U8)
        k->largest_u8((uint8_t *)r->out->data + to, (const uint8_t *)r->x->data + from, tap, taps, n);
    else if (r->t == DT_F32 && r->mean)
        k->mean_f32((float *)r->out->data + to, (const float *)r->x->data + from, tap, taps, n, step, divisor);
    else if (r->t == DT_F32)
        k->largest_f32((float *)r->out->data + to, (const float *)r->x->data + from, tap, taps, n, step);
    else if (r->mean)
        k->mean_bf16((uint16_t *)r->out->data + to, (const uint16_t *)r->x->data + from, tap, taps, n, step, divisor);
    else k->largest_bf16((uint16_t *)r->out->data + to, (const uint16_t *)r->x->data + from, tap, taps, n, step);
}

/* Row i of the result: the cells along the last axis, of one plane or (channels-last) of all channels. */
static void pool_cells(const Rows *r, int64_t i, int64_t *tap)
{
    const Window *w = r->w;
    int64_t rows = w->out[0] * w->out[1], item = i / rows, each = r->last ? r->channels : 1,
            from = item * w->area * each, to = i * w->out[2] * each;
    int64_t at[AXES] = {i % rows / w->out[1], i % w->out[1], 0};
    if (r->last || r->adaptive) {
        for (; at[2] < w->out[2]; at[2]++) pool_row(r, to + at[2] * each, from, at, each, 1, tap);
        return;
    }
    int64_t room = w->in[2] - (w->k[2] - 1) * w->d[2] - 1 + w->p[2]; /* the last place where a window ends inside */
    int64_t first = (w->p[2] + w->s[2] - 1) / w->s[2], end = room < 0 ? 0 : room / w->s[2] + 1;
    if (end > w->out[2]) end = w->out[2];
    while (at[2] < w->out[2]) {
        bool inner = at[2] >= first && at[2] < end;
        int64_t n = inner ? end - at[2] : 1;
        pool_row(r, to + at[2], from, at, n, inner ? w->s[2] : 1, tap);
        at[2] += n;
    }
}

/* A result of one cell is laid out either way: as the picture is. */
static bool one_cell_of_pixels(const Call *c, const Tensor *x, const Tensor *out)
{
    return x->rank == axes_of(c) + 2 && tensor_channels_last(out) && tensor_channels_last(x) && !tensor_contiguous(x);
}

/* Pools x where there are kernels for it and for its layout. False: cell by cell, please. Errors are in `failed`. */
static bool by_rows(Call *c, Rows *r, bool *failed, Err *err)
{
    const Tensor *x = call_in(c, 0);
    const Window *w = r->w;
    Tensor *out = call_out(c, 0);
    *failed = false;
    r->t = x->dtype;
    r->out = out;
    r->last = !tensor_contiguous(out) || one_cell_of_pixels(c, x, out);
    r->channels = r->last ? x->shape[1] : 1;
    const bool few = (r->t == DT_I8 || r->t == DT_U8) && r->last && !r->mean;
    if (r->t != out->dtype || (r->t != DT_F32 && r->t != DT_BF16 && !few) || (r->adaptive && !r->last)) return false;
    r->x = r->last && tensor_channels_last(x) ? x : call_contiguous(c, x, DT_NONE, err);
    int64_t rows = w->planes / r->channels * w->out[0] * w->out[1], most = 1;
    for (int d = 0; d < AXES; d++) most *= r->adaptive ? (w->in[d] + w->out[d] - 1) / w->out[d] + 1 : w->k[d];
    size_t bytes = (size_t)(most < w->area ? most : w->area) * sizeof(int64_t);
    bytes = (bytes + LINE - 1) / LINE * LINE; /* threads write them for each cell: none of one line with another's */
    char *taps = r->x ? call_scratch(c, bytes * (size_t)c->env->threads, err) : NULL;
    *failed = !taps;
    if (!taps) return true;
#pragma omp parallel for num_threads(c->env->threads) if (w->planes * w->cells > 1 << 14)
    for (int64_t i = 0; i < rows; i++) pool_cells(r, i, (int64_t *)(void *)(taps + bytes * (size_t)team_part()));
    return true;
}

/* ------------------------------------------------------------------ cell by cell */

static void put_largest(const Call *c, const Tensor *x, int64_t cell, const char *plane, int64_t best)
{
    size_t size = dtype_size(x->dtype);
    char *to = (char *)call_out(c, 0)->data + (size_t)cell * size;
    if (best < 0) store_f64(x->dtype, to, -INFINITY);
    else memcpy(to, plane + (size_t)best * size, size);
    if (call_out(c, 1)->data) ((int64_t *)call_out(c, 1)->data)[cell] = best;
}

bool run_max_pool(Call *c, Err *err)
{
    Window w;
    bool failed;
    window_of(c, &w, 4);
    if ((c->unused & 2) && by_rows(c, &(Rows){.w = &w}, &failed, err)) return !failed;
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    TRY(x);
#pragma omp parallel for num_threads(c->env->threads) if (w.planes * w.cells > 1 << 12)
    for (int64_t i = 0; i < w.planes * w.cells; i++) {
        int64_t at[AXES], lo[AXES], hi[AXES];
        const char *plane = (const char *)x->data + (size_t)(i / w.cells * w.area) * dtype_size(x->dtype);
        place_of(&w, i % w.cells, at);
        for (int d = 0; d < AXES; d++) {
            lo[d] = at[d] * w.s[d] - w.p[d];
            hi[d] = lo[d] + (w.k[d] - 1) * w.d[d] + 1;
        }
        put_largest(c, x, i, plane, largest(&w, x->dtype, plane, lo, hi, w.d));
    }
    return true;
}

bool run_adaptive_max(Call *c, Err *err)
{
    Window w = {.k = {0}};
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    TRY(x);
    planes_of(c, &w);
#pragma omp parallel for num_threads(c->env->threads) if (w.planes * w.area > 1 << 14)
    for (int64_t i = 0; i < w.planes * w.cells; i++) {
        int64_t at[AXES], lo[AXES], hi[AXES], one[AXES] = {1, 1, 1};
        const char *plane = (const char *)x->data + (size_t)(i / w.cells * w.area) * dtype_size(x->dtype);
        place_of(&w, i % w.cells, at);
        for (int d = 0; d < AXES; d++) {
            lo[d] = first_of(at[d], w.in[d], w.out[d]);
            hi[d] = end_of(at[d], w.in[d], w.out[d]);
        }
        put_largest(c, x, i, plane, largest(&w, x->dtype, plane, lo, hi, one));
    }
    return true;
}

static double total(const Window *w, const Tensor *x, int64_t plane, const int64_t *lo, const int64_t *hi)
{
    double s = 0;
    for (int64_t z = lo[0]; z < hi[0]; z++)
        for (int64_t y = lo[1]; y < hi[1]; y++) {
            int64_t row = plane * w->area + (z * w->in[1] + y) * w->in[2];
            if (x->dtype == DT_F32)
                for (int64_t i = lo[2]; i < hi[2]; i++) s += (double)((const float *)x->data)[row + i];
            else
                for (int64_t i = lo[2]; i < hi[2]; i++) s += ((const double *)x->data)[row + i];
        }
    return s;
}

static const Tensor *floats(Call *c, Err *err)
{
    return call_contiguous(c, call_in(c, 0), call_in(c, 0)->dtype == DT_F64 ? DT_F64 : DT_F32, err);
}

static void put_float(Tensor *out, int64_t i, double v)
{
    store_f64(out->dtype, (char *)out->data + (size_t)i * dtype_size(out->dtype), v);
}

bool run_avg_pool(Call *c, Err *err)
{
    Window w;
    Tensor *out = call_out(c, 0);
    window_of(c, &w, 0);
    bool count_pad = call_bool(c, 5), failed;
    int64_t fixed = call_i64_or(c, 6, 0);
    if (by_rows(c, &(Rows){.w = &w, .mean = true, .count_pad = count_pad, .fixed = fixed}, &failed, err))
        return !failed;
    const Tensor *x = floats(c, err);
    TRY(x);
#pragma omp parallel for num_threads(c->env->threads) if (w.planes * w.cells > 1 << 12)
    for (int64_t i = 0; i < w.planes * w.cells; i++) {
        int64_t at[AXES], lo[AXES], hi[AXES], whole = 1, inside = 1;
        place_of(&w, i % w.cells, at);
        for (int d = 0; d < AXES; d++) {
            lo[d] = at[d] * w.s[d] - w.p[d];
            hi[d] = lo[d] + w.k[d] < w.in[d] + w.p[d] ? lo[d] + w.k[d] : w.in[d] + w.p[d];
            whole *= hi[d] - lo[d];
            if (lo[d] < 0) lo[d] = 0;
            if (hi[d] > w.in[d]) hi[d] = w.in[d];
            inside *= hi[d] > lo[d] ? hi[d] - lo[d] : 0;
        }
        put_float(out, i, total(&w, x, i / w.cells, lo, hi) / (double)(fixed ? fixed : count_pad ? whole : inside));
    }
    return true;
}

bool run_adaptive_avg(Call *c, Err *err)
{
    Window w = {.k = {0}, .d = {1, 1, 1}};
    bool failed;
    Tensor *out = call_out(c, 0);
    planes_of(c, &w);
    if (by_rows(c, &(Rows){.w = &w, .mean = true, .adaptive = true}, &failed, err)) return !failed;
    const Tensor *x = floats(c, err);
    TRY(x);
#pragma omp parallel for num_threads(c->env->threads) if (w.planes * w.area > 1 << 14)
    for (int64_t i = 0; i < w.planes * w.cells; i++) {
        int64_t at[AXES], lo[AXES], hi[AXES], count = 1;
        place_of(&w, i % w.cells, at);
        for (int d = 0; d < AXES; d++) {
            lo[d] = first_of(at[d], w.in[d], w.out[d]);
            hi[d] = end_of(at[d], w.in[d], w.out[d]);
            count *= hi[d] - lo[d];
        }
        put_float(out, i, total(&w, x, i / w.cells, lo, hi) / (double)count);
    }
    return true;
}

/* ------------------------------------------------------------------ col2im */

/* nn.Fold: x (N, C kh kw, L) -> (N, C, H, W); every pixel is the sum of the windows over it. */
bool run_col2im(Call *c, Err *err)
{
    const Tensor *x = floats(c, err);
    Tensor *out = call_out(c, 0);
    int64_t k[2], d[2], p[2], s[2], n[2], *arg[] = {k, d, p, s}, H = out->shape[out->rank - 2],
                                          W = out->shape[out->rank - 1];
    TRY(x);
    for (int i = 0; i < 4; i++)
        if (call_ints(c, 2 + i, arg[i], 2) == 1) arg[i][1] = arg[i][0];
    for (int i = 0; i < 8; i++) {
        int64_t v = arg[i / 2][i % 2], least = i / 2 != 2; /* padding may be 0 */
        if (v < least || v > 1 << 20)
            return call_fail(c, E_USAGE, err, "found %lld, allowed is %lld to 2^20", (long long)v, (long long)least);
    }
    for (int i = 0; i < 2; i++) {
        int64_t room = (i ? W : H) + 2 * p[i] - d[i] * (k[i] - 1) - 1;
        if (room < 0)
            return call_fail(c, E_USAGE, err, "a window of %lld with stride %lld does not fit", (long long)k[i],
                             (long long)s[i]);
        n[i] = room / s[i] + 1;
    }
    int64_t L = x->shape[x->rank - 1];
    if (L != n[0] * n[1])
        return call_fail(c, E_USAGE, err, "%lld windows, expected %lld x %lld", (long long)L, (long long)n[0],
                         (long long)n[1]);
#pragma omp parallel for num_threads(c->env->threads) if (tensor_numel(x) > 1 << 14)
    for (int64_t i = 0; i < tensor_numel(out); i++) {
        int64_t y = i / W % H, xx = i % W, plane = i / (H * W) * k[0] * k[1];
        double sum = 0;
        Meeting my = taps_meeting(y, n[0], k[0], s[0], p[0], d[0], true),
                mx = taps_meeting(xx, n[1], k[1], s[1], p[1], d[1], true);
        for (int64_t ky = my.first; ky < my.end; ky++) {
            int64_t oy = y + p[0] - ky * d[0];
            for (int64_t kx = mx.first; oy % s[0] == 0 && kx < mx.end; kx++) {
                int64_t ox = xx + p[1] - kx * d[1];
                if (ox % s[1]) continue;
                int64_t at = (plane + ky * k[1] + kx) * L + oy / s[0] * n[1] + ox / s[1];
                sum += x->dtype == DT_F32 ? (double)((const float *)x->data)[at] : ((const double *)x->data)[at];
            }
        }
        put_float(out, i, sum);
    }
    return true;
}
