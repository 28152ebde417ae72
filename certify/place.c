/* Lemmas about places: which element of its operands a view, a lookup, a write or a convolution has. */
#include <string.h>
#include "base/jsonw.h"
#include "certify/element.h"

/* Row-major: ((i0 d1 + i1) d2 + i2) ... */
static Expr *flat(Reader *r, const Value *v, Expr *const *idx)
{
    Expr *e = zero(r);
    for (int i = 0; i < v->rank; i++) e = ex_add(r->p, ex_mul(r->p, e, size_of(r, v, i)), idx[i]);
    return e;
}

/* The operand's index for the result's, `at`. False: not known. */
static bool view_map(Reader *r, const Value *x, Expr *const *at, Expr **map)
{
    const Arg *a = r->node->arg;
    OpId id = r->node->op->id;
    if (id == OP_reshape) {
        Expr *e = flat(r, r->v, at);
        for (int i = x->rank - 1; i >= 0; i--) {
            map[i] = i ? ix_mod(&r->t->x, e, size_of(r, x, i)) : e;
            e = ix_div(&r->t->x, e, size_of(r, x, i));
        }
        return flat(r, x, map) == flat(r, r->v, at); /* no element moves */
    }
    int d = id == OP_slice_Tensor || id == OP_select_int || id == OP_unfold ? axis_of(a[1].e, x->rank) : 0;
    for (int i = 0; i < x->rank && id != OP_permute; i++) {
        if (id == OP_expand) map[i] = ex_equals_int(x->dim[i], 1) ? zero(r) : at[r->v->rank - x->rank + i];
        else map[i] = at[i - (id == OP_select_int && i > d && i > 0)];
    }
    for (int i = 0; i < x->rank && id == OP_permute; i++) {
        int to = axis_of(a[1].es[i], x->rank);
        if (to < 0) return false;
        map[to] = at[i];
    }
    for (int i = 0; id == OP_flip && i < a[1].n; i++) {
        int turned = axis_of(a[1].es[i], x->rank);
        if (turned < 0) return false;
        map[turned] = ex_sub(r->p, ex_sub(r->p, size_of(r, x, turned), ex_int(r->p, 1)), at[turned]);
    }
    if (id == OP_permute || id == OP_expand || id == OP_flip) return true;
    if (id == OP_unfold) { /* window at[d], place in it at[rank] */
        if (d < 0 || d >= x->rank) return false;
        map[d] = ex_add(r->p, ex_mul(r->p, at[d], checker_expr(r->c, r->side, a[3].e)), at[x->rank]);
        return map[d] != NULL;
    }
    Expr *start = d < 0 ? NULL : a[2].kind == ARG_EXPR ? checker_expr(r->c, r->side, a[2].e) : zero(r);
    if (start && start->kind == EX_INT && start->i < 0) start = ex_add(r->p, start, size_of(r, x, d));
    if (start && id == OP_slice_Tensor)
        start = ex_add(r->p, start, ex_mul(r->p, checker_expr(r->c, r->side, a[4].e), at[d]));
    if (start) map[d] = start;
    return start != NULL;
}

/* An index expression as text, in at0, at1, ... of the result's axes. */
void element_put_index(Reader *r, Expr *e, Buf *out)
{
    Buf text = {0};
    for (int i = 0; i < r->v->rank; i++) {
        Expr *own = step_of(r)->at[i];
        const char name[] = {'a', 't', (char)('0' + i), 0};
        if (own->kind == EX_SYM) e = ix_subst(&r->t->x, e, own, ex_symbol(r->p, name));
    }
    if (e) ex_print_sorted(r->p, e, &text);
    jw_text(out, NULL, text.data);
    buf_free(&text);
}

/* The map, checked; once for each view. */
static bool know_map(Reader *r, const Value *x, Step *s)
{
    Expr **map = arena_array(r->c->arena, Expr *, x->rank + 1), **at = arena_array(r->c->arena, Expr *, r->v->rank + 1);
    if (!map || !at) return term_refuse(r->t, "out of memory");
    for (int i = 0; i < r->v->rank; i++)
        if (!(at[i] = ix_var(&r->t->x, "at", i, size_of(r, r->v, i)))) return false;
    if (!view_map(r, x, at, map)) return term_refuse(r->t, "'%s': the map is not known", r->node->name);
    for (int i = 0; i < x->rank; i++)
        if (!ix_within(&r->t->x, map[i], size_of(r, x, i)))
            return term_refuse(r->t, "'%s': index %d is not provably within its size", r->node->name, i);
    s->map = map;
    s->at = at;
    return true;
}

Term *element_view(Reader *r)
{
    const Value *x = r->node->arg[0].v;
    Step *s = step_of(r);
    Expr *at[MAX_RANK];
    if (!s->map && !know_map(r, x, s)) return NULL;
    for (int i = 0; i < x->rank; i++) {
        at[i] = s->map[i];
        for (int k = 0; k < r->rank; k++) at[i] = ix_subst(&r->t->x, at[i], s->at[k], r->idx[k]);
    }
    return element(r->c, r->side, x, at);
}

static Term *nonneg(Reader *r, Expr *e) { return term_nonneg(r->t, term_index(r->t, e)); }

Term *element_cat(Reader *r)
{
    const Arg *a = r->node->arg;
    int d = axis_of(a[1].e, r->rank);
    Expr *at[MAX_RANK], *from = zero(r);
    Term *e = NULL;
    if (d < 0) return wrong(r);
    memcpy(at, r->idx, sizeof at);
    for (int i = 0; i < a->n; i++) {
        if (!a->vs[i] || a->vs[i]->rank != r->rank) return wrong(r);
        Expr *in = ex_sub(r->p, r->idx[d], from), *size = size_of(r, a->vs[i], d);
        if (!in || !size) return NULL;
        if (ix_nonneg(&r->t->x, ex_sub(r->p, ex_int(r->p, -1), in))) break; /* before this part */
        from = ex_add(r->p, from, size);
        if (ix_nonneg(&r->t->x, ex_sub(r->p, r->idx[d], from))) continue; /* after it */
        at[d] = ex_equals_int(size, 1) ? zero(r) : in;
        Term *part = element(r->c, r->side, a->vs[i], at);
        e = e ? term_where(r->t, nonneg(r, in), part, e) : part;
        if (!e) return NULL;
    }
    return e;
}

/* Of x[i, j, :]: how many axes tensors of indices have together, broadcast, of which there are n; they take the place
 * of the first of them, or the front where others stand between them. */
static bool places_of(const Arg *a, int *first, int *broad, int *n)
{
    int last = -1;
    *first = -1;
    *broad = *n = 0;
    for (int i = 0; i < a[1].n; i++) {
        const Value *v = a[1].vs[i];
        if (v && (!dtype_is_int(v->dtype) || i >= a->v->rank)) return false;
        if (v && v->rank > *broad) *broad = v->rank;
        if (v && *first < 0) *first = i;
        if (v) last = i, ++*n;
    }
    if (last - *first + 1 != *n) *first = 0;
    return true;
}

/* The index that v, one of these tensors, has at `at` of the axes that they have together. */
static Term *place_in(Reader *r, const Value *v, Expr *const *at, int broad)
{
    Expr *idx[MAX_RANK];
    for (int k = 0; k < v->rank; k++) idx[k] = ex_equals_int(v->dim[k], 1) ? zero(r) : at[broad - v->rank + k];
    return element(r->c, r->side, v, idx);
}

Term *element_indexed(Reader *r)
{
    const Arg *a = r->node->arg;
    Term *at[MAX_RANK];
    int first, broad, n, rest = 0;
    if (!places_of(a, &first, &broad, &n)) return wrong(r);
    for (int i = 0; i < a->v->rank; i++) {
        const Value *v = i < a[1].n ? a[1].vs[i] : NULL;
        if (v) at[i] = element_from_end(r, place_in(r, v, r->idx + first, broad), size_of(r, a->v, i));
        else at[i] = term_index(r->t, r->idx[rest < first ? rest : rest + broad]), rest++;
    }
    return element_at(r, a->v, at);
}

/* x with one value at all places of x[i, j, :] that an index names; a negative one counts from the end. */
Term *element_put(Reader *r)
{
    const Arg *a = r->node->arg;
    const Value *x = a[0].v, *value = a[2].v;
    Expr *at[MAX_RANK], *var[MAX_RANK], *extent[MAX_RANK];
    int first, broad, n, depth = r->c->depth, rest = 0;
    if (!places_of(a, &first, &broad, &n) || !n || (a[3].kind == ARG_EXPR && a[3].e->i)) return wrong(r);
    int rank = x->rank - n + broad; /* of what is written */
    for (int k = 0; k < broad; k++) {
        extent[k] = ex_int(r->p, 1);
        for (int i = 0; i < a[1].n; i++) {
            const Value *v = a[1].vs[i];
            int d = v ? k - broad + v->rank : -1;
            if (d >= 0 && !ex_equals_int(v->dim[d], 1)) extent[k] = size_of(r, v, d);
        }
        var[k] = fresh(r, extent[k]);
        int d = first + k - rank + value->rank;
        if (d >= 0 && !ex_equals_int(value->dim[d], 1)) return wrong(r); /* which one is written last */
    }
    Term *here = term_number(r->t, 1, 1);
    for (int i = 0; i < x->rank; i++) {
        const Value *v = i < a[1].n ? a[1].vs[i] : NULL;
        if (!v) {
            int to = rest < first ? rest : rest + broad, d = to - rank + value->rank;
            if (d >= 0) at[d] = ex_equals_int(value->dim[d], 1) ? zero(r) : r->idx[i];
            rest++;
            continue;
        }
        Term *e = element_from_end(r, place_in(r, v, var, broad), size_of(r, x, i));
        here = term_mul(r->t, here, term_same(r->t, e, term_index(r->t, r->idx[i])));
    }
    for (int k = 0; k < broad; k++)
        if (first + k - rank + value->rank >= 0) at[first + k - rank + value->rank] = zero(r);
    r->c->depth = depth;
    for (int k = broad - 1; k >= 0; k--) here = term_over(r->t, T_ANY, var[k], extent[k], here);
    return term_where(r->t, here, element(r->c, r->side, value, at), element(r->c, r->side, x, r->idx));
}

/* What a dtype holds as it is: of integers and truth values, only what needs no rounding. */
Term *element_whole(Reader *r, Term *v)
{
    const Expr *e = dtype_is_float(r->v->dtype) ? NULL : term_integer(r->t, v);
    bool fits = dtype_is_float(r->v->dtype) || (e && (r->v->dtype != DT_BOOL || (e->kind == EX_INT && e->i >> 1 == 0)));
    return fits ? v : term_refuse(r->t, "'%s': a number that its dtype rounds", r->node->name);
}

/* 1 where 0 <= e < n */
static Term *inside(Reader *r, Expr *e, Expr *n)
{
    return term_mul(r->t, nonneg(r, e), nonneg(r, ex_sub(r->p, ex_sub(r->p, n, ex_int(r->p, 1)), e)));
}

/* x where no slice, row or diagonal of it was written; `at`: the place in what was written there. */
static Term *written_diagonal(Reader *r, Expr **at)
{
    const Arg *a = r->node->arg;
    int first = axis_of(a[3].e, r->rank), second = axis_of(a[4].e, r->rank), k = 0;
    if (first < 0 || second < 0 || !ex_is_int(a[2].e)) return wrong(r);
    for (int i = 0; i < r->rank; i++)
        if (i != first && i != second) at[k++] = r->idx[i];
    at[k] = r->idx[a[2].e->i < 0 ? second : first];
    Expr *column = ex_sub(r->p, r->idx[second], checker_expr(r->c, r->side, a[2].e));
    return term_same(r->t, term_index(r->t, column), term_index(r->t, r->idx[first]));
}

static Term *written_slice(Reader *r, Expr **at)
{
    const Arg *a = r->node->arg;
    bool row = r->node->op->id == OP_select_scatter;
    int d = axis_of(a[2].e, r->rank);
    Expr *start = a[3].kind == ARG_EXPR ? checker_expr(r->c, r->side, a[3].e) : zero(r);
    if (d < 0) return wrong(r);
    if (start && start->kind == EX_INT && start->i < 0) start = ex_add(r->p, start, size_of(r, a[0].v, d));
    if (!ix_nonneg(&r->t->x, start)) return wrong(r); /* it may count from the end */
    Expr *from = ex_sub(r->p, r->idx[d], start), *step = row ? NULL : checker_expr(r->c, r->side, a[5].e);
    for (int i = 0; i < r->rank; i++) at[i - (row && i > d)] = r->idx[i];
    if (row) return term_same(r->t, term_index(r->t, from), term_number(r->t, 0, 1));
    at[d] = ix_div(&r->t->x, from, step);
    Term *here = term_same(r->t, term_index(r->t, from), term_index(r->t, ex_mul(r->p, at[d], step)));
    return term_mul(r->t, here, inside(r, at[d], size_of(r, a[1].v, d)));
}

Term *element_written(Reader *r)
{
    const Value *x = r->node->arg[0].v, *src = r->node->arg[1].v;
    Expr *at[MAX_RANK];
    Term *here = r->node->op->id == OP_diagonal_scatter ? written_diagonal(r, at) : written_slice(r, at);
    for (int i = 0; i < src->rank; i++)
        if (ex_equals_int(src->dim[i], 1)) at[i] = zero(r);
    return term_where(r->t, here, element(r->c, r->side, src, at), element(r->c, r->side, x, r->idx));
}

Term *element_padded(Reader *r)
{
    const Arg *a = r->node->arg;
    Expr *at[MAX_RANK];
    Term *in = term_number(r->t, 1, 1);
    memcpy(at, r->idx, sizeof at);
    for (int i = 0; i < a[1].n / 2; i++) {
        int d = r->rank - 1 - i;
        at[d] = ex_sub(r->p, r->idx[d], checker_expr(r->c, r->side, a[1].es[2 * i]));
        in = term_mul(r->t, in, inside(r, at[d], size_of(r, a->v, d)));
    }
    return term_where(r->t, in, element(r->c, r->side, a->v, at), element_whole(r, element_number(r, a[2].e)));
}

/* sum_c sum_i sum_k x[n, g C + c, i] w[g C + c, o, k] where the result's place is stride i + dilation k - padding */
static Term *transposed(Reader *r)
{
    const Arg *a = r->node->arg;
    const Value *x = a[0].v, *w = a[1].v;
    Expr *at[MAX_RANK], *wt[MAX_RANK], *var[2 * MAX_RANK], *n[2 * MAX_RANK], *per = size_of(r, w, 1);
    int depth = r->c->depth, count = 1;
    Term *here = term_number(r->t, 1, 1);
    var[0] = fresh(r, n[0] = ix_div(&r->t->x, size_of(r, x, 1), checker_expr(r->c, r->side, a[8].e)));
    at[0] = r->idx[0];
    wt[0] = at[1] = ex_add(r->p, ex_mul(r->p, ix_div(&r->t->x, r->idx[1], per), n[0]), var[0]);
    wt[1] = ix_mod(&r->t->x, r->idx[1], per);
    for (int i = 2; i < r->rank; i++) {
        at[i] = var[count] = fresh(r, n[count] = size_of(r, x, i));
        wt[i] = var[count + 1] = fresh(r, n[count + 1] = size_of(r, w, i));
        count += 2;
        Expr *to = ex_add(r->p, ex_mul(r->p, checker_expr(r->c, r->side, a[3].es[i - 2]), at[i]),
                          ex_mul(r->p, checker_expr(r->c, r->side, a[5].es[i - 2]), wt[i]));
        to = ex_sub(r->p, to, checker_expr(r->c, r->side, a[4].es[i - 2]));
        here = term_mul(r->t, here, term_same(r->t, term_index(r->t, r->idx[i]), term_index(r->t, to)));
    }
    Term *e = term_mul(r->t, here, element_times(r, element(r->c, r->side, x, at), element(r->c, r->side, w, wt)));
    r->c->depth = depth;
    while (count--) e = term_over(r->t, T_SUM, var[count], n[count], e);
    return e;
}

/* sum_c sum_k x[n, g C + c, stride o + dilation k - padding] w[o, c, k], where that is within x */
Term *element_convolution(Reader *r)
{
    const Arg *a = r->node->arg;
    const Value *x = a[0].v, *w = a[1].v;
    Expr *at[MAX_RANK], *wt[MAX_RANK], *n[MAX_RANK];
    int depth = r->c->depth;
    if (x->rank != r->rank || w->rank != r->rank) return wrong(r);
    if (a[6].e->i) return transposed(r);
    Expr *per = ix_div(&r->t->x, size_of(r, w, 0), checker_expr(r->c, r->side, a[8].e));
    Term *in = term_number(r->t, 1, 1);
    at[0] = r->idx[0];
    wt[0] = r->idx[1];
    for (int i = 1; i < r->rank; i++) {
        wt[i] = fresh(r, n[i] = size_of(r, w, i));
        Expr *first = i == 1 ? ex_mul(r->p, ix_div(&r->t->x, r->idx[1], per), n[1])
                             : ex_sub(r->p, ex_mul(r->p, checker_expr(r->c, r->side, a[3].es[i - 2]), r->idx[i]),
                                      checker_expr(r->c, r->side, a[4].es[i - 2]));
        at[i] = ex_add(r->p, first, i == 1 ? wt[1] : ex_mul(r->p, checker_expr(r->c, r->side, a[5].es[i - 2]), wt[i]));
        if (i > 1) in = term_mul(r->t, in, inside(r, at[i], size_of(r, x, i)));
    }
    Term *e = term_mul(r->t, in, element_times(r, element(r->c, r->side, x, at), element(r->c, r->side, w, wt)));
    r->c->depth = depth;
    for (int i = r->rank - 1; i > 0; i--) e = term_over(r->t, T_SUM, wt[i], n[i], e);
    return e;
}

/* The angle of a rotation at a place: of D numbers, or of D / 2, one for each pair. */
static Term *angle(Reader *r, const Value *v, Expr *place, Expr *pair, Expr *size)
{
    Expr *at[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        at[i] = ex_equals_int(v->dim[i], 1) ? zero(r) : r->idx[r->rank - v->rank + i];
    at[v->rank - 1] = size_of(r, v, v->rank - 1) == size ? place : pair;
    return element(r->c, r->side, v, at);
}

/* x cos + turned x sin: pairs are neighbours, or halves of the last axis; turned: the second with another sign, then
 * the first. */
Term *element_rotary(Reader *r)
{
    const Arg *a = r->node->arg;
    Expr *place = r->idx[r->rank - 1], *size = size_of(r, a->v, r->rank - 1), *two = ex_int(r->p, 2), *at[MAX_RANK];
    Expr *half = ix_div(&r->t->x, size, two), *pair = ix_div(&r->t->x, place, two);
    bool beside = a[3].kind == ARG_EXPR && a[3].e->i;
    if (!half || ex_mul(r->p, half, two) != size) return wrong(r);
    Expr *by = beside ? ex_int(r->p, 1) : half, *up = ex_add(r->p, place, by), *down = ex_sub(r->p, place, by);
    Term *second = nonneg(r, beside ? ex_sub(r->p, down, ex_mul(r->p, pair, two)) : down), *e = NULL;
    memcpy(at, r->idx, sizeof at);
    for (int k = 0; k < 2; k++) { /* of the first of a pair, of the second */
        Term *cosine = angle(r, a[1].v, place, beside ? pair : k ? down : place, size);
        Term *sine = angle(r, a[2].v, place, beside ? pair : k ? down : place, size);
        at[r->rank - 1] = k ? down : up;
        Term *other = term_scale(r->t, element(r->c, r->side, a->v, at), k ? 1 : -1, 1);
        Term *own = element_times(r, element(r->c, r->side, a->v, r->idx), cosine);
        own = term_add(r->t, own, element_times(r, other, sine));
        e = k ? term_where(r->t, second, own, e) : own;
    }
    return e;
}
