/* Pooling over windows of one to three axes, and col2im. Formulas: aten/src/ATen/native/Pool.h, AdaptiveAveragePooling.cpp, im2col.h.
 *
 * Everything has three axes here; the missing ones in front have size 1.
 */
#include <math.h>
#include <string.h>
#include "run/run_table.h"

enum { AXES = 3 };

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
    for (int k = 0; k < AXES; k++) to[k] = k < lead ? otherwise : n == 0 ? (like ? like[k] : otherwise) : v[n == 1 ? 0 : k - lead];
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

/* The largest of the elements from lo to hi by step, those outside left out: where it is in the plane, -1 when there is none. NaN wins. */
static int64_t largest(const Window *w, DType t, const char *plane, const int64_t *from, const int64_t *to, const int64_t *step)
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

static void put_largest(const Call *c, const Tensor *x, int64_t cell, const char *plane, int64_t best)
{
    size_t size = dtype_size(x->dtype);
    char *to = (char *)call_out(c, 0)->data + (size_t)cell * size;
    if (best < 0) store_f64(x->dtype, to, -INFINITY);
    else memcpy(to, plane + (size_t)best * size, size);
    ((int64_t *)call_out(c, 1)->data)[cell] = best;
}

bool run_max_pool(Call *c, Err *err)
{
    Window w;
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    TRY(x);
    window_of(c, &w, 4);
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

/* Cell i of `out` spreads over these elements of `in`. */
static int64_t first_of(int64_t i, int64_t in, int64_t out) { return i * in / out; }
static int64_t end_of(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

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

static const Tensor *floats(Call *c, Err *err) { return call_contiguous(c, call_in(c, 0), call_in(c, 0)->dtype == DT_F64 ? DT_F64 : DT_F32, err); }

static void put_float(Tensor *out, int64_t i, double v) { store_f64(out->dtype, (char *)out->data + (size_t)i * dtype_size(out->dtype), v); }

bool run_avg_pool(Call *c, Err *err)
{
    Window w;
    const Tensor *x = floats(c, err);
    Tensor *out = call_out(c, 0);
    TRY(x);
    window_of(c, &w, 0);
    bool count_pad = call_bool(c, 5);
    int64_t fixed = call_i64_or(c, 6, 0);
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
    Window w = {.k = {0}};
    const Tensor *x = floats(c, err);
    Tensor *out = call_out(c, 0);
    TRY(x);
    planes_of(c, &w);
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
    int64_t k[2], d[2], p[2], s[2], n[2], *arg[] = {k, d, p, s}, H = out->shape[out->rank - 2], W = out->shape[out->rank - 1];
    TRY(x);
    for (int i = 0; i < 4; i++)
        if (call_ints(c, 2 + i, arg[i], 2) == 1) arg[i][1] = arg[i][0];
    for (int i = 0; i < 8; i++) {
        int64_t v = arg[i / 2][i % 2], least = i / 2 != 2; /* padding may be 0 */
        if (v < least || v > 1 << 20) return call_fail(c, E_USAGE, err, "found %lld, allowed is %lld to 2^20", (long long)v, (long long)least);
    }
    for (int i = 0; i < 2; i++) {
        int64_t room = (i ? W : H) + 2 * p[i] - d[i] * (k[i] - 1) - 1;
        if (room < 0) return call_fail(c, E_USAGE, err, "a window of %lld with stride %lld does not fit", (long long)k[i], (long long)s[i]);
        n[i] = room / s[i] + 1;
    }
    int64_t L = x->shape[x->rank - 1];
    if (L != n[0] * n[1]) return call_fail(c, E_USAGE, err, "%lld windows, expected %lld x %lld", (long long)L, (long long)n[0], (long long)n[1]);
#pragma omp parallel for num_threads(c->env->threads) if (tensor_numel(x) > 1 << 14)
    for (int64_t i = 0; i < tensor_numel(out); i++) {
        int64_t y = i / W % H, xx = i % W, plane = i / (H * W) * k[0] * k[1];
        double sum = 0;
        for (int64_t a = 0; a < k[0] * k[1]; a++) {
            int64_t oy = y + p[0] - a / k[1] * d[0], ox = xx + p[1] - a % k[1] * d[1];
            if (oy < 0 || ox < 0 || oy % s[0] || ox % s[1] || oy / s[0] >= n[0] || ox / s[1] >= n[1]) continue;
            int64_t at = (plane + a) * L + oy / s[0] * n[1] + ox / s[1];
            sum += x->dtype == DT_F32 ? (double)((const float *)x->data)[at] : ((const double *)x->data)[at];
        }
        put_float(out, i, sum);
    }
    return true;
}
