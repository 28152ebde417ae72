/* Proofs of skipped padding. Contract in skip_prove.h. */
#include "padding/skip_prove.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/splitmix.h"
#include "extract/extract.h"
#include "shape/solve.h"
#include "tensor/tolerance.h"

enum Kind { ALL_REAL, AFTER, BEFORE, HOLES, ONE_EMPTY, KINDS };

/* Which of (B, S) tokens are real. */
static void draw_mask(int kind, int64_t B, int64_t S, bool *real, uint64_t *x)
{
    for (int64_t b = 0; b < B; b++) {
        int64_t n = 1 + (int64_t)(splitmix_uniform(x) * (double)S);
        if (n > S) n = S;
        for (int64_t i = 0; i < S; i++) {
            bool r = true;
            if (kind == AFTER) r = i < n;
            if (kind == BEFORE) r = i >= S - n;
            if (kind == HOLES) r = splitmix_uniform(x) < 0.6;
            if (kind == ONE_EMPTY) r = b != B / 2 && i < n;
            real[b * S + i] = r;
        }
    }
}

static bool fill(const SkipClaim *s, Tensor *t, const bool *real, int64_t tokens, uint64_t *x, Err *err)
{
    size_t bytes, size = dtype_size(t->dtype);
    TRY(shape_bytes(t->dtype, t->rank, t->shape, &bytes, err));
    mem_free(t->data);
    t->data = mem_zeroed(bytes + 64, 1);
    if (!t->data) return oom(err);
    if (dtype_is_complex(t->dtype)) return fail(err, E_UNSUPPORTED, "complex tensors");
    strides_contiguous(t->rank, t->shape, t->stride);
    int64_t n = tensor_numel(t);
    bool mask = real && n == tokens;
    int sign = s->sign;
    for (int64_t i = 0; i < n; i++) {
        char *at = (char *)t->data + (size_t)i * size;
        bool on = mask && (sign == 2 ? !real[i] : real[i]);
        if (mask && sign == 0 && dtype_is_float(t->dtype))
            store_f64(t->dtype, at,
                      real[i]              ? -splitmix_uniform(x)
                      : t->dtype == DT_F16 ? -6e4
                                           : -1e30); /* added to scores */
        else if (dtype_is_float(t->dtype)) store_f64(t->dtype, at, mask ? on : splitmix_uniform(x) * 4 - 2);
        else if (t->dtype == DT_BOOL) *at = mask ? on : (char)(splitmix_next(x) & 1);
        else store_i64(t->dtype, at, mask ? on : (int64_t)(splitmix_next(x) & 1));
    }
    return true;
}

/* dense and padded agree at real tokens; padded is 0 elsewhere. */
static bool agree(Tag in, const Tensor *dense, const Tensor *padded, const bool *real, int64_t S, Proof *p)
{
    int64_t n = tensor_numel(dense);
    double peak = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, at[MAX_RANK];
        for (int a = dense->rank - 1; a >= 0; a--) {
            at[a] = left % dense->shape[a];
            left /= dense->shape[a];
        }
        double x = tensor_get(dense, i), y = tensor_get(padded, i);
        if (!real[in.b == in.s ? at[(int)in.b] : at[(int)in.b] * S + at[(int)in.s]]) {
            if (y != 0) return false;
            continue;
        }
        if (x != x && y != y) continue;
        double d = x > y ? x - y : y - x;
        if (d != d) return false;
        if (d > worst) worst = d;
        if (x > peak) peak = x;
        if (-x > peak) peak = -x;
    }
    if (worst > p->max_abs) p->max_abs = worst;
    if (peak > 0 && worst / peak > p->max_rel) p->max_rel = worst / peak;
    return worst <= tolerance_of(TOLERANCE_PADDING, dense->dtype) * peak;
}

static bool symbol_sizes(const Graph *g, int k, Binding *b)
{
    static const int64_t wish[] = {3, 5, 4, 7, 2, 11, 6, 13};
    const char *name[64];
    int64_t value[64];
    int n = 0;
    Err ignored = {0};
    for (int i = 0; i < expr_symbol_count(g->ex) && n < 64; i++) {
        const Symbol *y = expr_symbol(g->ex, i);
        if (y->source != SYM_INPUT) continue;
        int64_t v = wish[(n + 3 * k) % 8];
        name[n] = y->name;
        value[n++] = v < y->lo ? y->lo + v : v > y->hi ? y->hi : v;
    }
    for (; n >= 0; n--)
        if (choose_sizes(g, name, value, n, b, &ignored)) return true;
    return false;
}

/* Which tokens are real, as the packed graph has it. */
static bool read_real(const Tensor *t, int64_t tokens, bool *real, Err *err)
{
    if (tensor_numel(t) != tokens)
        return fail(err, E_USAGE, "the mask has %lld tokens, not %lld", (long long)tensor_numel(t), (long long)tokens);
    for (int64_t i = 0; i < tokens; i++) real[i] = tensor_get(t, i) != 0;
    return true;
}

static bool evaluate(const Prover *prover, const SkipClaim *s, const Graph *g, const Value *source, const Binding *b,
                     const Binding *whole, int kind, Tensor *in, const Tensor **view, const Tensor **out, Proof *p,
                     Err *e)
{
    uint64_t seed = 0xabcdef + (uint64_t)kind * 7919;
    int64_t B, S;
    TRY(ex_eval_i64(s->g->ex, s->B, whole, &B, e) && ex_eval_i64(s->g->ex, s->S, whole, &S, e));
    bool *real = mem_zeroed((size_t)(B * S) + 1, 1), ok = real || oom(e);
    if (ok) draw_mask(kind, B, S, real, &seed);
    for (int i = 0; ok && i < g->ninput; i++) {
        const Value *v = g->input[i];
        in[i].dtype = v->dtype;
        in[i].rank = v->rank;
        for (int k = 0; ok && k < v->rank; k++) ok = ex_eval_i64(g->ex, v->dim[k], b, &in[i].shape[k], e);
        ok = ok && fill(s, &in[i], v == source ? real : NULL, B * S, &seed, e);
        view[i] = &in[i];
    }
    ok = ok && prover->eval(prover->user, g, view, out, e);
    ok = ok && read_real(out[2 * s->n], B * S, real, e);
    if (ok) p->runs++;
    for (int i = 0; ok && i < s->n; i++)
        if (!agree(s->border[i].tag, out[2 * i], out[2 * i + 1], real, S, p)) {
            Err saved = {0};
            ok = fail(
                e, E_MISMATCH,
                "skipping padding changes '%s' at real tokens by %g (%g of the largest value), or it is not 0 at "
                "padding",
                s->border[i].dense->name, p->max_abs, p->max_rel);
            if (prover->save &&
                !prover->save(prover->user, "skip-padding", g, view, out[2 * i], out[2 * i + 1], &saved))
                *e = saved;
        }
    mem_free(real);
    return ok;
}

/* Names in extraction's terms: the mask's source, and the inputs where that is none itself. */
static Graph *both(const SkipClaim *s, Err *err)
{
    int n = 0, nfrom = 0;
    const char **to = mem_zeroed((size_t)s->n * 2 + 2, sizeof *to),
               **from = mem_zeroed((size_t)s->g->ninput + 1, sizeof *from);
    Graph *g = NULL;
    for (int i = 0; to && i < s->n; i++) {
        to[n++] = s->border[i].dense->name;
        to[n++] = s->border[i].padded->name;
    }
    if (to) to[n++] = s->real->name;
    if (from && s->source->kind != V_INPUT) {
        from[nfrom++] = s->source->name;
        for (int i = 0; i < s->g->ninput; i++) from[nfrom++] = s->g->input[i]->name;
    }
    if (to && from) g = graph_extract(s->g, from, nfrom, to, n, err);
    else oom(err);
    mem_free(to);
    mem_free(from);
    return g;
}

/* Everything that the region gives, dense and packed, on random inputs. */
bool skip_prove(const Prover *prover, const SkipClaim *s, Proof *p, Err *err)
{
    Err e = {0};
    Graph *g = both(s, &e);
    bool ok = true, symbols = false;
    Tensor *in = g ? mem_zeroed((size_t)g->ninput + 1, sizeof *in) : NULL;
    const Tensor **view = g ? mem_zeroed((size_t)g->ninput + 1, sizeof *view) : NULL,
                 **out = mem_zeroed((size_t)s->n * 2 + 2, sizeof *out);
    const Value *source = g ? graph_find_value(g, s->source->name) : NULL;
    for (int i = 0; g && i < expr_symbol_count(g->ex); i++) symbols |= expr_symbol(g->ex, i)->source == SYM_INPUT;
    for (int k = 0; in && view && out && ok && k < (symbols ? 3 : 1); k++) {
        Binding b, mine;
        bool bound = binding_init(&b, g->ex, &e), same = bound && binding_init(&mine, s->g->ex, &e);
        if (same && symbol_sizes(g, k, &b)) {
            for (int i = 0; i < expr_symbol_count(s->g->ex); i++) { /* the same symbols by name in the whole graph */
                const Symbol *y = expr_find_symbol(g->ex, expr_symbol(s->g->ex, i)->name);
                if (y && b.bound[y->expr->i]) binding_set(&mine, i, b.value[y->expr->i]);
            }
            for (int kind = 0; ok && kind < KINDS; kind++) {
                Err one = {0};
                ok = evaluate(prover, s, g, source, &b, &mine, kind, in, view, out, p, &one);
                if (!ok && one.code == E_MISMATCH) *err = one;
                else if (!ok) e = one;
            }
        }
        if (same) binding_free(&mine);
        if (bound) binding_free(&b);
        if (!ok && err->code != E_MISMATCH) break;
    }
    if (prover->release) prover->release(prover->user);
    for (int i = 0; in && i < g->ninput; i++) mem_free(in[i].data);
    mem_free(in);
    mem_free(view);
    mem_free(out);
    graph_free(g);
    p->skipped = p->runs == 0;
    if (p->skipped) snprintf(p->why, sizeof p->why, "%.250s", e.msg);
    return err->code != E_MISMATCH;
}
