/* Reductions, products and normalisations, exactly.
 *
 *     exact_mean: the sum times the inverse of the count, which is exact in the ring
 */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "prove/impl.h"

/* ------------------------------------------------------------------ reductions over axes */

/* The lines of a tensor along the axes that are summed: line k has `length` elements, at first + offset. */
typedef struct Lines {
    const ExactTensor *t;
    int nkept, ngone;
    int64_t kept[MAX_RANK], gone[MAX_RANK], kept_stride[MAX_RANK], gone_stride[MAX_RANK];
    int64_t count, length;
} Lines;

static Lines lines_of(const ExactTensor *t, const bool *gone)
{
    Lines l = {.t = t};
    int64_t own[MAX_RANK];
    exact_strides(t->rank, t->shape, own);
    for (int i = 0; i < t->rank; i++) {
        int64_t *shape = gone[i] ? l.gone : l.kept, *stride = gone[i] ? l.gone_stride : l.kept_stride;
        int *n = gone[i] ? &l.ngone : &l.nkept;
        shape[*n] = t->shape[i];
        stride[(*n)++] = own[i];
    }
    l.count = exact_count(l.nkept, l.kept);
    l.length = exact_count(l.ngone, l.gone);
    return l;
}

static int64_t offset(int rank, const int64_t *shape, const int64_t *stride, int64_t k)
{
    int64_t j = 0;
    for (int i = rank - 1; i >= 0; k /= shape[i--]) j += k % shape[i] * stride[i];
    return j;
}

static int64_t place(const Lines *l, int64_t line, int64_t k)
{
    return offset(l->nkept, l->kept, l->kept_stride, line) + offset(l->ngone, l->gone, l->gone_stride, k);
}

static Elem line_at(const Lines *l, int64_t line, int64_t k, int part)
{
    return elem_get(l->t, place(l, line, k) * l->t->width + part);
}

typedef Elem FoldFn(Exact *x, const Lines *l, int64_t line, int part, double parameter);

static bool fold(Exact *x, const Node *n, const bool *gone, FoldFn *f, double parameter, Err *err)
{
    Lines l = lines_of(exact_arg(x, n, 0), gone);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !exact_work(x, 4 * (double)l.t->n, err)) return false;
    for (int64_t i = 0; i < out->n; i++)
        for (int part = 0; part < out->width; part++)
            elem_set(out, i * out->width + part, f(x, &l, i, part, parameter));
    return true;
}

static bool fold_axes(Exact *x, const Node *n, FoldFn *f, double parameter, Err *err)
{
    bool gone[MAX_RANK];
    exact_axes(n, 1, exact_arg(x, n, 0)->rank, gone);
    return fold(x, n, gone, f, parameter, err);
}

static Elem sum(Exact *x, const Lines *l, int64_t line, int part, double unused)
{
    (void)unused;
    Elem s = elem_int(0);
    for (int64_t k = 0; k < l->length; k++) s = elem_add(x, s, line_at(l, line, k, part));
    return s;
}

static Elem mean(Exact *x, const Lines *l, int64_t line, int part, double unused)
{
    return elem_div(x, sum(x, l, line, part, unused), elem_int(l->length));
}

static Elem product(Exact *x, const Lines *l, int64_t line, int part, double unused)
{
    (void)unused;
    Elem s = elem_int(1);
    for (int64_t k = 0; k < l->length; k++) s = elem_mul(x, s, line_at(l, line, k, part));
    return s;
}

/* The place of the extreme: the first of equal ones, or of NaNs. */
static int64_t extreme_place(const Lines *l, int64_t line, int wanted)
{
    int64_t best = 0;
    for (int64_t k = 1; k < l->length; k++) {
        Elem a = line_at(l, line, best, 0), b = line_at(l, line, k, 0);
        if (a.kind == FLOAT && isnan(a.v)) break;
        int c = elem_compare(b, a);
        if (c == wanted || c == 2) best = k;
    }
    return best;
}

static Elem extreme(Exact *x, const Lines *l, int64_t line, int part, double wanted)
{
    (void)x, (void)part;
    return l->length ? line_at(l, line, extreme_place(l, line, (int)wanted), 0) : elem_int(0);
}

static Elem truth(Exact *x, const Lines *l, int64_t line, int part, double all)
{
    (void)x, (void)part;
    bool y = all != 0;
    for (int64_t k = 0; k < l->length; k++) {
        bool t = elem_compare(line_at(l, line, k, 0), elem_int(0)) != 0;
        y = all != 0 ? y && t : y || t;
    }
    return elem_int(y);
}

static Elem variance(Exact *x, const Lines *l, int64_t line, int part, double correction)
{
    Elem m = mean(x, l, line, part, 0), s = elem_int(0);
    for (int64_t k = 0; k < l->length; k++) {
        Elem d = elem_sub(x, line_at(l, line, k, part), m);
        s = elem_add(x, s, elem_mul(x, d, d));
    }
    return elem_div(x, s, elem_number(fmax(0, (double)l->length - correction)));
}

/* A number that is taken from all before exponentials: the largest, or 0 where that is infinite. */
static Elem shift_of(const Lines *l, int64_t line)
{
    Elem m = l->length ? line_at(l, line, extreme_place(l, line, 1), 0) : elem_int(0);
    return m.kind == FLOAT && !isfinite(m.v) && !isnan(m.v) && m.v < 0 ? elem_int(0) : m;
}

static Elem log_of_sum(Exact *x, const Lines *l, int64_t line, int part, double unused)
{
    (void)part, (void)unused;
    Elem m = shift_of(l, line), s = elem_int(0);
    if (m.kind == FLOAT && isinf(m.v)) return m;
    for (int64_t k = 0; k < l->length; k++) s = elem_add(x, s, elem_exp(x, elem_sub(x, line_at(l, line, k, 0), m)));
    return elem_add(x, elem_log(x, s), m);
}

static Elem norm(Exact *x, const Lines *l, int64_t line, int part, double ord)
{
    (void)part;
    Elem s = elem_int(0);
    for (int64_t k = 0; k < l->length; k++) {
        Elem e = line_at(l, line, k, 0);
        if (ord == 2) {
            s = elem_add(x, s, elem_mul(x, e, e));
            continue;
        }
        Elem size = elem_compare(e, elem_int(0)) == -1 ? elem_sub(x, elem_int(0), e) : e;
        if (isinf(ord)) s = elem_compare(size, s) == (ord > 0 || !k ? 1 : -1) || !k ? size : s;
        else if (ord == 0) s = elem_add(x, s, elem_int(elem_compare(e, elem_int(0)) != 0));
        else
            s = elem_add(x, s, ord == 1 ? size : elem_op(x, OP_pow_Tensor_Tensor, 2, (Elem[]){size, elem_number(ord)}));
    }
    if (ord == 2) return elem_sqrt(x, s);
    return isinf(ord) || ord == 0 || ord == 1 ? s
                                              : elem_op(x, OP_pow_Tensor_Tensor, 2, (Elem[]){s, elem_number(1 / ord)});
}

bool exact_sum(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, sum, 0, err); }
bool exact_mean(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, mean, 0, err); }
bool exact_prod(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, product, 0, err); }
bool exact_amax(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, extreme, 1, err); }
bool exact_amin(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, extreme, -1, err); }
bool exact_any(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, truth, 0, err); }
bool exact_all(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, truth, 1, err); }
bool exact_logsumexp(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, log_of_sum, 0, err); }
bool exact_var(Exact *x, const Node *n, Err *err) { return fold_axes(x, n, variance, exact_number(n, 2, 1), err); }

bool exact_vector_norm(Exact *x, const Node *n, Err *err)
{
    bool gone[MAX_RANK];
    exact_axes(n, 2, exact_arg(x, n, 0)->rank, gone);
    return fold(x, n, gone, norm, exact_number(n, 1, 2), err);
}

/* Values and places, or places alone: out is the result that takes places. */
static bool extreme_index(Exact *x, const Node *n, int out, int wanted, Err *err)
{
    bool gone[MAX_RANK];
    exact_axes(n, 1, exact_arg(x, n, 0)->rank, gone);
    Lines l = lines_of(exact_arg(x, n, 0), gone);
    ExactTensor *values = exact_out(x, n, 0, err), *places = values ? exact_out(x, n, out, err) : NULL;
    for (int64_t i = 0; places && i < places->n; i++) {
        int64_t k = extreme_place(&l, i, wanted);
        if (out) elem_set(values, i, line_at(&l, i, k, 0));
        places->i[i] = k;
    }
    return places != NULL;
}

bool exact_max_dim(Exact *x, const Node *n, Err *err) { return extreme_index(x, n, 1, 1, err); }
bool exact_min_dim(Exact *x, const Node *n, Err *err) { return extreme_index(x, n, 1, -1, err); }
bool exact_argmax(Exact *x, const Node *n, Err *err) { return extreme_index(x, n, 0, 1, err); }
bool exact_argmin(Exact *x, const Node *n, Err *err) { return extreme_index(x, n, 0, -1, err); }

/* ------------------------------------------------------------------ along one axis */

static Lines along(Exact *x, const Node *n, int k)
{
    const ExactTensor *t = exact_arg(x, n, 0);
    bool gone[MAX_RANK] = {0};
    if (t->rank) gone[exact_dim(exact_int(n, k, -1), t->rank)] = true;
    return lines_of(t, gone);
}

bool exact_cumsum(Exact *x, const Node *n, Err *err)
{
    Lines l = along(x, n, 1);
    ExactTensor *out = exact_out(x, n, 0, err);
    for (int64_t i = 0; out && i < l.count; i++) {
        Elem s = elem_int(0);
        for (int64_t k = 0; k < l.length; k++) {
            s = elem_add(x, s, line_at(&l, i, k, 0));
            elem_set(out, place(&l, i, k), s);
        }
    }
    return out != NULL;
}

/* safe: a line of -inf gives 0 */
static bool softmax(Exact *x, const Node *n, bool safe, Err *err)
{
    Lines l = along(x, n, 1);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !exact_work(x, 20 * (double)out->n, err)) return false;
    for (int64_t i = 0; i < l.count; i++) {
        Elem m = shift_of(&l, i), s = elem_int(0);
        for (int64_t k = 0; k < l.length; k++) {
            Elem e = elem_exp(x, elem_sub(x, line_at(&l, i, k, 0), m));
            elem_set(out, place(&l, i, k), e);
            s = elem_add(x, s, e);
        }
        bool none = s.kind == INTEGER || (s.r == 0 && s.v == 0);
        Elem over = none ? elem_float(0, safe ? 0 : NAN) : elem_div(x, elem_int(1), s);
        for (int64_t k = 0; k < l.length; k++) {
            int64_t j = place(&l, i, k);
            elem_set(out, j, elem_mul(x, elem_get(out, j), over));
        }
    }
    return true;
}

bool exact_softmax(Exact *x, const Node *n, Err *err) { return softmax(x, n, false, err); }
bool exact_safe_softmax(Exact *x, const Node *n, Err *err) { return softmax(x, n, true, err); }

bool exact_log_softmax(Exact *x, const Node *n, Err *err)
{
    Lines l = along(x, n, 1);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !exact_work(x, 20 * (double)out->n, err)) return false;
    for (int64_t i = 0; i < l.count; i++) {
        Elem whole = log_of_sum(x, &l, i, 0, 0);
        if (whole.v == INFINITY) whole = elem_float(0, NAN);
        for (int64_t k = 0; k < l.length; k++) elem_set(out, place(&l, i, k), elem_sub(x, line_at(&l, i, k, 0), whole));
    }
    return true;
}

/* Places of a line in order: stable, NaNs are the largest. */
static void order_line(const Lines *l, int64_t line, bool descending, int64_t *at)
{
    for (int64_t k = 0; k < l->length; k++) {
        int64_t j = k;
        Elem e = line_at(l, line, k, 0);
        for (; j > 0; j--) {
            Elem before = line_at(l, line, at[j - 1], 0);
            int c = elem_compare(e, before);
            if (c == 2) c = before.v != before.v ? (e.v != e.v ? 0 : -1) : 1;
            if (descending ? c <= 0 : c >= 0) break;
            at[j] = at[j - 1];
        }
        at[j] = k;
    }
}

static bool ordered(Exact *x, const Node *n, int dim, bool descending, Err *err)
{
    Lines l = along(x, n, dim);
    ExactTensor *values = exact_out(x, n, 0, err), *places = values ? exact_out(x, n, 1, err) : NULL;
    if (!places || !exact_work(x, (double)l.count * (double)l.length * (double)l.length, err)) return false;
    int64_t *at = mem_zeroed((size_t)l.length + 1, sizeof *at);
    if (!at) return oom(err);
    bool gone[MAX_RANK] = {0};
    if (values->rank) gone[exact_dim(exact_int(n, dim, -1), values->rank)] = true;
    Lines to = lines_of(values, gone);
    for (int64_t i = 0; i < l.count; i++) {
        order_line(&l, i, descending, at);
        for (int64_t k = 0; k < to.length; k++) {
            elem_set(values, place(&to, i, k), line_at(&l, i, at[k], 0));
            places->i[place(&to, i, k)] = at[k];
        }
    }
    mem_free(at);
    return true;
}

bool exact_sort(Exact *x, const Node *n, Err *err) { return ordered(x, n, 1, exact_int(n, 2, 0) != 0, err); }
bool exact_topk(Exact *x, const Node *n, Err *err) { return ordered(x, n, 2, exact_int(n, 3, 1) != 0, err); }

/* ------------------------------------------------------------------ products */

/* sum over k of a[i + k is] b[j + k js] */
static Elem dot(Exact *x, const ExactTensor *a, int64_t i, int64_t is, const ExactTensor *b, int64_t j, int64_t js,
                int64_t count)
{
    if (!a->r) {
        Elem s = elem_int(0);
        for (int64_t k = 0; k < count; k++)
            s = elem_add(x, s, elem_mul(x, elem_get(a, i + k * is), elem_get(b, j + k * js)));
        return s;
    }
    Dot d = {0};
    for (int64_t k = 0; k < count; k++)
        dot_add(&d, a->r[i + k * is], b->r[j + k * js], a->v[i + k * is], b->v[j + k * js]);
    return dot_end(&d);
}

/* Strides over out's leading axes. */
static void leading(const ExactTensor *t, int rank, int64_t *stride)
{
    int64_t own[MAX_RANK];
    exact_strides(t->rank, t->shape, own);
    for (int i = 0; i < rank; i++) {
        int k = i - (rank - (t->rank - 2));
        stride[i] = k < 0 || t->shape[k] == 1 ? 0 : own[k];
    }
}

bool exact_matmul(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *a = exact_arg(x, n, 0), *b = exact_arg(x, n, 1);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    if (a->width != 1 || b->width != 1) return exact_unsupported(n, "complex numbers", err);
    int64_t K = a->shape[a->rank - 1], N = b->shape[b->rank - 1], as[MAX_RANK], bs[MAX_RANK], at[MAX_RANK] = {0};
    if (!exact_work(x, (double)out->n * (double)(K + 8), err)) return false;
    leading(a, out->rank - 2, as);
    leading(b, out->rank - 2, bs);
    for (int64_t i = 0; i < out->n; i++, exact_next(out->rank, out->shape, at)) {
        int64_t p = at[out->rank - 2] * K, q = at[out->rank - 1];
        for (int d = 0; d < out->rank - 2; d++) {
            p += at[d] * as[d];
            q += at[d] * bs[d];
        }
        elem_set(out, i, dot(x, a, p, 1, b, q, N, K));
    }
    return true;
}

bool exact_linear(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *a = exact_arg(x, n, 0), *w = exact_arg(x, n, 1), *bias = exact_arg(x, n, 2);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    int64_t K = a->shape[a->rank - 1], N = w->rank > 1 ? w->shape[0] : 1;
    if (a->width != 1 || !exact_work(x, (double)out->n * (double)(K + 8), err))
        return a->width == 1 ? false : exact_unsupported(n, "complex numbers", err);
    for (int64_t i = 0; i < out->n; i++) {
        Elem y = dot(x, a, i / N * K, 1, w, i % N * K, 1, K);
        elem_set(out, i, bias ? elem_add(x, y, elem_get(bias, i % N)) : y);
    }
    return true;
}

/* One convolution, of up to three axes; missing ones have size 1. */
typedef struct Conv {
    const ExactTensor *in, *w;
    int64_t size[3], kernel[3], result[3], stride[3], pad[3], dilation[3];
    int64_t channels, out_channels, groups;
    bool transposed;
} Conv;

static void conv_axis(const Node *n, int k, int axes, int64_t missing, int64_t *to)
{
    int64_t list[MAX_RANK];
    int count = exact_ints(n, k, list);
    for (int i = 0; i < 3; i++) to[i] = missing;
    for (int i = 0; i < axes; i++) to[3 - axes + i] = count == 1 ? list[0] : list[i];
}

/* Where tap k of the result's place o reads along axis d: -1: nowhere */
static int64_t conv_reads(const Conv *c, int d, int64_t o, int64_t k)
{
    if (!c->transposed) {
        int64_t i = o * c->stride[d] - c->pad[d] + k * c->dilation[d];
        return i >= 0 && i < c->size[d] ? i : -1;
    }
    int64_t i = o + c->pad[d] - k * c->dilation[d];
    return i >= 0 && i % c->stride[d] == 0 && i / c->stride[d] < c->size[d] ? i / c->stride[d] : -1;
}

static Elem conv_at(const Conv *c, int64_t b, int64_t o, const int64_t *at)
{
    Dot d = {0};
    int64_t per = c->channels / c->groups, outs = c->out_channels / c->groups, group = o / outs;
    int64_t plane = c->size[0] * c->size[1] * c->size[2], taps = c->kernel[0] * c->kernel[1] * c->kernel[2];
    for (int64_t t = 0; t < taps; t++) {
        int64_t k[3] = {t / (c->kernel[1] * c->kernel[2]), t / c->kernel[2] % c->kernel[1], t % c->kernel[2]}, i[3];
        bool inside = true;
        for (int a = 0; a < 3; a++) inside = (i[a] = conv_reads(c, a, at[a], k[a])) >= 0 && inside;
        if (!inside) continue;
        int64_t pixel = (i[0] * c->size[1] + i[1]) * c->size[2] + i[2];
        for (int64_t p = 0; p < per; p++) {
            int64_t channel = group * per + p, x = (b * c->channels + channel) * plane + pixel;
            int64_t w = (c->transposed ? channel * outs + o % outs : o * per + p) * taps + t;
            dot_add(&d, c->in->r[x], c->w->r[w], c->in->v[x], c->w->v[w]);
        }
    }
    return dot_end(&d);
}

bool exact_convolution(Exact *x, const Node *n, Err *err)
{
    Conv c = {.in = exact_arg(x, n, 0), .w = exact_arg(x, n, 1)};
    const ExactTensor *bias = exact_arg(x, n, 2);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    int axes = c.w->rank - 2, batch = c.in->rank - axes - 2;
    if (axes < 1 || axes > 3 || !out->r || out->width != 1 || batch < -1)
        return exact_unsupported(n, "axes other than 1 to 3 of floats", err);
    for (int i = 0; i < 3; i++) c.size[i] = c.kernel[i] = c.result[i] = 1;
    for (int i = 0; i < axes; i++) {
        c.size[3 - axes + i] = c.in->shape[c.in->rank - axes + i];
        c.kernel[3 - axes + i] = c.w->shape[2 + i];
        c.result[3 - axes + i] = out->shape[out->rank - axes + i];
    }
    conv_axis(n, 3, axes, 1, c.stride);
    conv_axis(n, 4, axes, 0, c.pad);
    conv_axis(n, 5, axes, 1, c.dilation);
    c.transposed = exact_int(n, 6, 0) != 0;
    c.groups = exact_int(n, 8, 1);
    c.channels = c.in->shape[c.in->rank - axes - 1];
    c.out_channels = out->shape[out->rank - axes - 1];
    double taps = (double)(c.kernel[0] * c.kernel[1] * c.kernel[2]);
    if (!exact_work(x, (double)out->n * taps * (double)(c.channels / c.groups), err)) return false;
    int64_t at[3] = {0}, plane = exact_count(3, c.result);
    for (int64_t i = 0; i < out->n; i++, exact_next(3, c.result, at)) {
        int64_t o = i / plane % c.out_channels;
        Elem y = conv_at(&c, i / plane / c.out_channels, o, at);
        elem_set(out, i, bias ? elem_add(x, y, elem_get(bias, o)) : y);
    }
    return true;
}

/* ------------------------------------------------------------------ normalisations */

typedef struct Row {
    Elem mean, rstd;
} Row;

/* 1 / sqrt(mean of squares + eps), less the mean or not */
static Row row_of(Exact *x, const ExactTensor *t, int64_t first, int64_t length, Elem eps, bool centred)
{
    Row r = {.mean = elem_int(0)};
    Elem s = elem_int(0);
    for (int64_t k = 0; centred && k < length; k++) r.mean = elem_add(x, r.mean, elem_get(t, first + k));
    r.mean = elem_div(x, r.mean, elem_int(length));
    for (int64_t k = 0; k < length; k++) {
        Elem d = elem_sub(x, elem_get(t, first + k), r.mean);
        s = elem_add(x, s, elem_mul(x, d, d));
    }
    s = elem_add(x, elem_div(x, s, elem_int(length)), eps);
    r.rstd = elem_div(x, elem_int(1), elem_sqrt(x, s));
    return r;
}

static Elem normalised(Exact *x, Elem e, Row r) { return elem_mul(x, elem_sub(x, e, r.mean), r.rstd); }

static Elem scaled(Exact *x, Elem e, const ExactTensor *w, const ExactTensor *b, int64_t k)
{
    if (w) e = elem_mul(x, e, elem_get(w, k));
    return b ? elem_add(x, e, elem_get(b, k)) : e;
}

static Elem eps_of(const Node *n, int k, DType t) { return elem_number(exact_number(n, k, dtype_epsilon(t))); }

static bool rows_norm(Exact *x, const Node *n, int bias, int eps, bool centred, Err *err)
{
    const ExactTensor *in = exact_arg(x, n, 0), *w = exact_arg(x, n, 2), *b = bias ? exact_arg(x, n, bias) : NULL;
    ExactTensor *out = exact_out(x, n, 0, err);
    int64_t dims[MAX_RANK], length = exact_count(exact_ints(n, 1, dims), dims);
    if (!out || !exact_work(x, 20 * (double)out->n, err)) return false;
    for (int64_t i = 0; length && i < in->n; i += length) {
        Row r = row_of(x, in, i, length, eps_of(n, eps, in->dtype), centred);
        for (int64_t k = 0; k < length; k++)
            elem_set(out, i + k, scaled(x, normalised(x, elem_get(in, i + k), r), w, b, k));
    }
    return true;
}

bool exact_layer_norm(Exact *x, const Node *n, Err *err) { return rows_norm(x, n, 3, 4, true, err); }
bool exact_rms_norm(Exact *x, const Node *n, Err *err) { return rows_norm(x, n, 0, 3, false, err); }

bool exact_group_norm(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *in = exact_arg(x, n, 0), *w = exact_arg(x, n, 2), *b = exact_arg(x, n, 3);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !exact_work(x, 20 * (double)out->n, err)) return false;
    int64_t channels = in->shape[1], groups = exact_int(n, 1, 1), plane = exact_count(in->rank - 2, in->shape + 2);
    int64_t length = channels / groups * plane;
    for (int64_t i = 0; length && i < in->n; i += length) {
        Row r = row_of(x, in, i, length, eps_of(n, 4, in->dtype), true);
        for (int64_t k = 0; k < length; k++)
            elem_set(out, i + k, scaled(x, normalised(x, elem_get(in, i + k), r), w, b, (i + k) / plane % channels));
    }
    return true;
}

bool exact_batch_norm(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *in = exact_arg(x, n, 0), *mean = exact_arg(x, n, 3), *var = exact_arg(x, n, 4);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    if (exact_int(n, 5, 0) || !mean || !var) return exact_unsupported(n, "statistics of the batch", err);
    int64_t channels = in->shape[1], plane = exact_count(in->rank - 2, in->shape + 2);
    for (int64_t c = 0; c < channels; c++) {
        Elem s = elem_add(x, elem_get(var, c), eps_of(n, 7, in->dtype));
        Row r = {elem_get(mean, c), elem_div(x, elem_int(1), elem_sqrt(x, s))};
        for (int64_t i = c * plane; i < in->n; i += channels * plane)
            for (int64_t k = i; k < i + plane; k++)
                elem_set(out, k,
                         scaled(x, normalised(x, elem_get(in, k), r), exact_arg(x, n, 1), exact_arg(x, n, 2), c));
    }
    return true;
}

/* With g = grad weight and h the normalised x: dx = rstd (g - mean(g) - h mean(g h)), without mean(g) for rms;
 * dw = sum over rows of grad h, db = sum of grad. */
bool exact_norm_backward(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *grad = exact_arg(x, n, 0), *in = exact_arg(x, n, 1), *w = exact_arg(x, n, 3);
    ExactTensor *out[3];
    int64_t dims[MAX_RANK], length = exact_count(exact_ints(n, 2, dims), dims);
    bool rms = exact_int(n, 5, 0) != 0;
    for (int k = 0; k < 3; k++)
        if (!(out[k] = exact_out(x, n, k, err))) return false;
    for (int64_t i = 0; length && i < in->n; i += length) {
        Row r = row_of(x, in, i, length, eps_of(n, 4, in->dtype), !rms);
        Elem g = elem_int(0), gh = elem_int(0), count = elem_int(length);
        for (int64_t k = 0; k < length; k++) {
            Elem e = elem_get(grad, i + k), h = normalised(x, elem_get(in, i + k), r),
                 p = elem_mul(x, e, elem_get(w, k));
            g = elem_add(x, g, p);
            gh = elem_add(x, gh, elem_mul(x, p, h));
            if (out[1]->n == length) elem_set(out[1], k, elem_add(x, elem_get(out[1], k), elem_mul(x, e, h)));
            if (out[2]->n == length) elem_set(out[2], k, elem_add(x, elem_get(out[2], k), e));
        }
        g = rms ? elem_int(0) : elem_div(x, g, count);
        gh = elem_div(x, gh, count);
        for (int64_t k = 0; k < length; k++) {
            Elem h = normalised(x, elem_get(in, i + k), r), p = elem_mul(x, elem_get(grad, i + k), elem_get(w, k));
            p = elem_sub(x, elem_sub(x, p, g), elem_mul(x, h, gh));
            elem_set(out[0], i + k, elem_mul(x, p, r.rstd));
        }
    }
    return true;
}
