/* Attention and rotary embeddings, exactly, by their definition (kernel/sdpa.h has the formulas).
 *
 *     out[i] = sum_j exp(s_ij - max) v_j / sum_j exp(s_ij - max),  s_ij = cap(scale q_i k_j) + mask_ij
 */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "prove/impl.h"

/* An attention: q (B, H, N, D), k (B, Hkv, M, D), v (B, Hkv, M, E). Sequences of different lengths have B = 1, rows of
 * (T, H, D), and bounds of their own in `from`, `to`. */
typedef struct Attention {
    const ExactTensor *q, *k, *v, *mask;
    int64_t B, H, Hkv, N, M, D, E;
    Elem scale, cap;
    bool capped;
    int64_t lower, upper;
    int64_t ms[4];
    Elem *s, *t; /* a row's scores and, of a cap, their tanh */
} Attention;

enum { UNBOUNDED = 1 << 30 };

static Elem scale_of(const Node *n, int k, int64_t D)
{
    return n->arg[k].kind == ARG_EXPR ? elem_number(exact_number(n, k, 1)) : elem_number(1 / sqrt((double)D));
}

/* Arguments: q, k, v at first; the mask; is_causal; scale, and from there the others (softcap, lower, upper). */
static bool attention_of(Exact *x, const Node *n, int first, int mask, int causal, int scale, int softcap, Attention *a,
                         Err *err)
{
    *a = (Attention){.q = exact_arg(x, n, first), .k = exact_arg(x, n, first + 1), .v = exact_arg(x, n, first + 2)};
    a->mask = exact_arg(x, n, mask);
    a->B = a->q->shape[0], a->H = a->q->shape[1], a->N = a->q->shape[2], a->D = a->q->shape[3];
    a->Hkv = a->k->shape[1], a->M = a->k->shape[2], a->E = a->v->shape[3];
    a->scale = scale_of(n, scale, a->D);
    a->capped = exact_number(n, softcap, 0) > 0;
    a->cap = elem_number(exact_number(n, softcap, 0));
    a->lower = exact_int(n, softcap + 1, -UNBOUNDED);
    a->upper = exact_int(n, softcap + 2, UNBOUNDED);
    if (exact_int(n, causal, 0) && a->upper > 0) a->upper = 0;
    int64_t own[MAX_RANK];
    if (a->mask) exact_strides(a->mask->rank, a->mask->shape, own);
    for (int i = 0; a->mask && i < a->mask->rank; i++)
        a->ms[4 - a->mask->rank + i] = a->mask->shape[i] == 1 ? 0 : own[i];
    if (!exact_work(x, (double)(a->B * a->H * a->N) * (double)a->M * (double)(a->D + a->E + 20), err)) return false;
    a->s = mem_zeroed((size_t)a->M + 1, sizeof *a->s);
    a->t = mem_zeroed((size_t)a->M + 1, sizeof *a->t);
    if (a->s && a->t) return true;
    mem_free(a->s);
    mem_free(a->t);
    return oom(err);
}

static void attention_free(Attention *a)
{
    mem_free(a->s);
    mem_free(a->t);
}

static int64_t row(const ExactTensor *t, int64_t b, int64_t h, int64_t i)
{
    return ((b * t->shape[1] + h) * t->shape[2] + i) * t->shape[3];
}

static Elem dot(const ExactTensor *a, int64_t i, const ExactTensor *b, int64_t j, int64_t n)
{
    Dot d = {0};
    for (int64_t k = 0; k < n; k++) dot_add(&d, a->r[i + k], b->r[j + k], a->v[i + k], b->v[j + k]);
    return dot_end(&d);
}

/* Scores of query i into a->s: -inf where it sees no key. */
static void scores(Exact *x, Attention *a, int64_t b, int64_t h, int64_t i)
{
    int64_t kv = h / (a->H / a->Hkv);
    for (int64_t j = 0; j < a->M; j++) {
        int64_t m = b * a->ms[0] + h * a->ms[1] + i * a->ms[2] + j * a->ms[3];
        bool hidden = j < i + a->lower || j > i + a->upper || (a->mask && a->mask->i && !a->mask->i[m]);
        a->s[j] = elem_float(0, -INFINITY);
        if (hidden) continue;
        Elem s = elem_mul(x, dot(a->q, row(a->q, b, h, i), a->k, row(a->k, b, kv, j), a->D), a->scale);
        if (a->capped) {
            a->t[j] = elem_tanh(x, elem_div(x, s, a->cap));
            s = elem_mul(x, a->t[j], a->cap);
        }
        a->s[j] = a->mask && a->mask->r ? elem_add(x, s, elem_get(a->mask, m)) : s;
    }
}

/* a->s becomes exp(s - max); their sum, and the max. False: no key is seen. */
static bool exponentials(Exact *x, Attention *a, Elem *sum, Elem *top)
{
    *top = elem_float(0, -INFINITY);
    *sum = elem_int(0);
    for (int64_t j = 0; j < a->M; j++) {
        int c = elem_compare(a->s[j], *top);
        if (c == 1 || c == 2) *top = a->s[j];
        if (c == 2) break;
    }
    if (top->v == -INFINITY) return false;
    for (int64_t j = 0; j < a->M; j++) {
        a->s[j] = elem_exp(x, elem_sub(x, a->s[j], *top));
        *sum = elem_add(x, *sum, a->s[j]);
    }
    return true;
}

/* out[i] = sum_j s_j v_j */
static void weighted(Exact *x, const Attention *a, int64_t b, int64_t h, int64_t to, Elem over, ExactTensor *out)
{
    int64_t kv = h / (a->H / a->Hkv);
    for (int64_t e = 0; e < a->E; e++) {
        Dot d = {0};
        for (int64_t j = 0; j < a->M; j++) {
            int64_t v = row(a->v, b, kv, j) + e;
            dot_add(&d, a->s[j].r, a->v->r[v], a->s[j].v, a->v->v[v]);
        }
        elem_set(out, to + e, elem_mul(x, dot_end(&d), over));
    }
}

static void attend(Exact *x, Attention *a, ExactTensor *out, ExactTensor *lse)
{
    Elem sum, top;
    for (int64_t i = 0; i < a->B * a->H * a->N; i++) {
        int64_t b = i / (a->H * a->N), h = i / a->N % a->H, n = i % a->N;
        scores(x, a, b, h, n);
        bool any = exponentials(x, a, &sum, &top);
        if (any) weighted(x, a, b, h, i * a->E, elem_div(x, elem_int(1), sum), out);
        if (lse) elem_set(lse, i, any ? elem_add(x, elem_log(x, sum), top) : elem_float(0, -INFINITY));
    }
}

bool exact_scaled_dot_product_attention(Exact *x, const Node *n, Err *err)
{
    Attention a;
    if (exact_number(n, 4, 0) > 0) return exact_unsupported(n, "dropout", err);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !attention_of(x, n, 0, 3, 5, 6, 8, &a, err)) return false;
    attend(x, &a, out, NULL);
    attention_free(&a);
    return true;
}

bool exact_sdpa_lse(Exact *x, const Node *n, Err *err)
{
    Attention a;
    ExactTensor *out = exact_out(x, n, 0, err), *lse = out ? exact_out(x, n, 1, err) : NULL;
    if (!lse || !attention_of(x, n, 0, 3, 4, 5, 6, &a, err)) return false;
    attend(x, &a, out, lse);
    attention_free(&a);
    return true;
}

/* to[j + e] += s from[i + e] */
static void add_row(Exact *x, ExactTensor *to, int64_t j, Elem s, const ExactTensor *from, int64_t i, int64_t count)
{
    for (int64_t e = 0; e < count; e++)
        elem_set(to, j + e, elem_add(x, elem_get(to, j + e), elem_mul(x, s, elem_get(from, i + e))));
}

bool exact_sdpa_backward(Exact *x, const Node *n, Err *err)
{
    Attention a;
    const ExactTensor *grad = exact_arg(x, n, 0), *out = exact_arg(x, n, 4), *lse = exact_arg(x, n, 5);
    ExactTensor *to[4];
    for (int k = 0; k < 4; k++)
        if (!(to[k] = exact_out(x, n, k, err))) return false;
    if (!attention_of(x, n, 1, 6, 7, 8, 9, &a, err)) return false;
    bool mask = exact_int(n, 12, 0) != 0;
    for (int64_t i = 0; i < a.B * a.H * a.N; i++) {
        int64_t b = i / (a.H * a.N), h = i / a.N % a.H, row_n = i % a.N, kv = h / (a.H / a.Hkv);
        Elem l = elem_get(lse, i), delta = dot(grad, i * a.E, out, i * a.E, a.E);
        if (l.v == -INFINITY) continue;
        scores(x, &a, b, h, row_n);
        for (int64_t j = 0; j < a.M; j++) {
            if (a.s[j].v == -INFINITY) continue;
            Elem p = elem_exp(x, elem_sub(x, a.s[j], l));
            add_row(x, to[2], row(a.v, b, kv, j), p, grad, i * a.E, a.E);
            Elem ds = elem_sub(x, dot(grad, i * a.E, a.v, row(a.v, b, kv, j), a.E), delta);
            ds = elem_mul(x, p, ds);
            int64_t m = b * a.ms[0] + h * a.ms[1] + row_n * a.ms[2] + j * a.ms[3];
            if (mask) elem_set(to[3], m, elem_add(x, elem_get(to[3], m), ds));
            if (a.capped) ds = elem_mul(x, ds, elem_sub(x, elem_int(1), elem_mul(x, a.t[j], a.t[j])));
            ds = elem_mul(x, ds, a.scale);
            add_row(x, to[0], row(a.q, b, h, row_n), ds, a.k, row(a.k, b, kv, j), a.D);
            add_row(x, to[1], row(a.k, b, kv, j), ds, a.q, row(a.q, b, h, row_n), a.D);
        }
    }
    attention_free(&a);
    return true;
}

/* ------------------------------------------------------------------ sequences of different lengths */

/* Sequence b's rows as a tensor (1, heads, rows, size). */
static ExactTensor *sequence(Exact *x, const ExactTensor *t, int64_t from, int64_t to, Err *err)
{
    int64_t shape[4] = {1, t->shape[1], to - from, t->shape[2]};
    ExactTensor *s = exact_scratch(x, t->dtype, 4, shape, err);
    for (int64_t i = 0; s && i < s->n; i++) {
        int64_t e = i % shape[3], n = i / shape[3] % shape[2], h = i / shape[3] / shape[2];
        elem_move(s, i, t, ((from + n) * shape[1] + h) * shape[3] + e);
    }
    return s;
}

static bool one_sequence(Exact *x, const Node *n, int64_t b, Attention *a, ExactTensor *out, Err *err)
{
    const ExactTensor *q = exact_arg(x, n, 0), *qo = exact_arg(x, n, 3), *ko = exact_arg(x, n, 4);
    int64_t first = qo->i[b], last = qo->i[b + 1], k0 = ko->i[b], k1 = ko->i[b + 1], H = q->shape[1];
    if (first < 0 || last < first || last > q->shape[0] || k0 < 0 || k1 < k0 || k1 > exact_arg(x, n, 1)->shape[0])
        return exact_unsupported(n, "offsets outside of its rows", err);
    int taken = x->nscratch;
    a->q = sequence(x, q, first, last, err);
    a->k = a->q ? sequence(x, exact_arg(x, n, 1), k0, k1, err) : NULL;
    a->v = a->k ? sequence(x, exact_arg(x, n, 2), k0, k1, err) : NULL;
    if (!a->v) return false;
    a->B = 1, a->H = H, a->N = last - first, a->D = a->q->shape[3];
    a->Hkv = a->k->shape[1], a->M = k1 - k0, a->E = a->v->shape[3];
    const ExactTensor *bias = exact_arg(x, n, 5);
    ExactTensor *made = exact_scratch(x, out->dtype, 4, (int64_t[]){1, H, a->N, a->E}, err);
    ExactTensor *mask = made && bias ? exact_scratch(x, bias->dtype, 4, (int64_t[]){1, 1, 1, a->M}, err) : NULL;
    a->s = mem_zeroed((size_t)a->M + 1, sizeof *a->s);
    a->t = mem_zeroed((size_t)a->M + 1, sizeof *a->t);
    bool ok = made && (mask || !bias) && a->s && a->t;
    for (int64_t j = 0; ok && mask && j < a->M; j++) elem_move(mask, j, bias, k0 + j);
    a->mask = mask;
    a->ms[3] = 1;
    if (ok) attend(x, a, made, NULL);
    for (int64_t i = 0; ok && i < made->n; i++) {
        int64_t e = i % a->E, r = i / a->E % a->N, h = i / a->E / a->N;
        elem_move(out, ((first + r) * H + h) * a->E + e, made, i);
    }
    attention_free(a);
    exact_scratch_drop(x, taken);
    return ok || (err->code ? false : oom(err));
}

bool exact_sdpa_varlen(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *q = exact_arg(x, n, 0), *offsets = exact_arg(x, n, 3);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !exact_work(x, (double)out->n * (double)exact_arg(x, n, 1)->shape[0] * 2, err)) return false;
    for (int64_t b = 0; b + 1 < offsets->n; b++) {
        Attention a = {.scale = scale_of(n, 6, q->shape[2]), .cap = elem_number(exact_number(n, 7, 0))};
        a.capped = a.cap.v > 0;
        a.lower = exact_int(n, 8, -UNBOUNDED);
        a.upper = exact_int(n, 9, UNBOUNDED);
        if (!one_sequence(x, n, b, &a, out, err)) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ rotary embeddings */

/* x cos + turned(x) sin; pairs are halves of the last axis, or neighbours. An angle for each pair serves both. */
bool exact_rotary(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *in = exact_arg(x, n, 0), *angle[2] = {exact_arg(x, n, 1), exact_arg(x, n, 2)};
    ExactTensor *out = exact_out(x, n, 0, err);
    bool pairs = exact_int(n, 3, 0) != 0;
    int64_t at[MAX_RANK] = {0}, D = in->shape[in->rank - 1];
    if (!out || !exact_work(x, 10 * (double)out->n, err)) return false;
    for (int64_t i = 0; i < out->n; i++, exact_next(out->rank, out->shape, at)) {
        int64_t d = at[out->rank - 1];
        bool first = pairs ? d % 2 == 0 : d < D / 2;
        int64_t other = i + (first ? 1 : -1) * (pairs ? 1 : D / 2);
        Elem a[2];
        for (int k = 0; k < 2; k++) {
            const ExactTensor *t = angle[k];
            int64_t own[MAX_RANK], j = 0, last = t->shape[t->rank - 1];
            exact_strides(t->rank, t->shape, own);
            for (int r = 0; r + 1 < t->rank; r++)
                if (t->shape[r] != 1) j += at[out->rank - t->rank + r] * own[r];
            a[k] = elem_get(t, j + (last == D ? d : pairs ? d / 2 : d % (D / 2)));
        }
        Elem turned = elem_mul(x, elem_get(in, other), a[1]);
        Elem y = elem_mul(x, elem_get(in, i), a[0]);
        elem_set(out, i, first ? elem_sub(x, y, turned) : elem_add(x, y, turned));
    }
    return true;
}
