/* What an element of each op's result is, by lemmas.def. Contract of element: certify.h.
 *
 *     element(c, SOURCE, v, idx)      v is exp(x): exp of x's element at idx
 *
 * lemma.c reads lemmas, function.c and place.c know the ops that no formula says. */
#include <math.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/vec.h"
#include "certify/element.h"

enum { MAX_WORK = 4000, NO_LEMMA = -1 };

static const struct {
    OpId op;
    int out;
    const char *name, *element;
} lemmas[] = {
#define LEMMA(op, out, name, element) {OP_##op, out, name, element},
#include "certify/lemmas.def"
#undef LEMMA
};
enum { FUNCTION = sizeof lemmas / sizeof *lemmas };

static int lemma_of(const Op *op, int out)
{
    for (int i = 0; i < FUNCTION; i++)
        if (lemmas[i].op == op->id && lemmas[i].out == out) return i;
    return !out && (op->flags & (OPF_POINTWISE | OPF_RANDOM)) == OPF_POINTWISE ? FUNCTION : NO_LEMMA;
}

bool element_is_known(const Value *v) { return !v->def || lemma_of(v->def->op, v->out) != NO_LEMMA; }

/* ------------------------------------------------------------------ lemmas about dtypes */

/* An integer as the result's dtype holds it: those of 8 and 16 bits may wrap. */
static Term *wraps(Reader *r, Term *e)
{
    DType to = r->v->dtype;
    bool narrow = e && dtype_is_int(to) && dtype_size(to) < 4;
    if (!narrow || term_is_truth(e) || ix_within(&r->t->x, term_integer(r->t, e), ex_int(r->p, 128))) return e;
    return term_call(r->t, OP_to_copy * 256 + (int)to, false, 1, &e);
}

Term *element_cast(Reader *r)
{
    const Value *x = r->node->arg[0].v;
    DType from = x->dtype, to = r->v->dtype;
    if (dtype_is_complex(from) || dtype_is_complex(to)) return wrong(r);
    Term *e = element(r->c, r->side, x, r->idx);
    if (!e || from == to || dtype_is_float(to)) return e;
    if (to == DT_BOOL)
        return term_add(r->t, term_number(r->t, 1, 1),
                        term_scale(r->t, term_same(r->t, e, term_number(r->t, 0, 1)), -1, 1));
    if (dtype_is_float(from)) return term_call(r->t, OP_to_copy * 256 + (int)to, false, 1, &e);
    return from == DT_BOOL ? e : wraps(r, e);
}

/* Beside integers of 8 and 16 bits a number becomes one of them. Is it one? */
static bool numbers_fit(Reader *r)
{
    const Node *n = r->node;
    DType to = DT_NONE;
    for (int k = 0; k < n->op->schema->nparams; k++) {
        const Value *v = n->arg[k].kind == ARG_VALUE ? n->arg[k].v : NULL;
        if (v && dtype_is_int(v->dtype) && dtype_size(v->dtype) < 4) to = v->dtype;
    }
    for (int k = 0; to != DT_NONE && k < n->op->schema->nparams; k++) {
        const Arg *a = &n->arg[k];
        if (a->kind != ARG_EXPR || a->e->is_float || a->e->is_bool) continue;
        Expr *least = ex_int(r->p, (int64_t)dtype_lowest(to)), *most = ex_int(r->p, (int64_t)dtype_highest(to) + 1);
        Expr *over = ex_sub(r->p, checker_expr(r->c, r->side, a->e), least);
        if (!ix_within(&r->t->x, over, ex_sub(r->p, most, least))) return false;
    }
    return true;
}

/* Does an op compute numbers, which its dtype may not hold, rather than pass on those of its operands? */
static bool computes(const Reader *r, int id)
{
    static const char *const passes[] = {"cast", "cat", "pad", "write", "where", "triangle"};
    bool does = id != NO_LEMMA && !(r->node->op->flags & (OPF_VIEW | OPF_PICKS));
    for (size_t i = 0; does && id != FUNCTION && i < sizeof passes / sizeof *passes; i++)
        does = strcmp(lemmas[id].name, passes[i]) != 0;
    return does;
}

/* where(j < 0, j + n, j), as indices of ONNX are read: an index that counts from the end. NULL: it is another. */
static Term *wrapped(Reader *r)
{
    const Arg *a = r->node->arg;
    const Node *below = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    const Node *plus = a[1].kind == ARG_VALUE ? a[1].v->def : NULL;
    const Value *j = a[2].kind == ARG_VALUE && dtype_is_int(r->v->dtype) ? a[2].v : NULL;
    bool so = j && below && plus && below->op->id == OP_lt_Tensor && plus->op->id == OP_add_Tensor &&
              below->arg[0].kind == ARG_VALUE && below->arg[0].v == j && plus->arg[0].kind == ARG_VALUE &&
              plus->arg[0].v == j && plus->arg[2].kind == ARG_EXPR && ex_equals_int(plus->arg[2].e, 1);
    r->at = "";
    const Term *zero = so ? element_operand(r, &below->arg[1]) : NULL;
    Term *i = zero && zero->n == 0 ? element_operand(r, &a[2]) : NULL;
    return i && !term_integer(r->t, i) ? term_wrapped(r->t, i, element_operand(r, &plus->arg[1])) : NULL;
}

/* ------------------------------------------------------------------ elements */

/* Of a buffer of a causal mask: w[.., i, j] is one number where j <= i + diagonal, and another elsewhere. */
static void look_for_triangle(const Tensor *w, Step *s)
{
    enum { MOST = 1 << 24 };
    s->triangle.known = true;
    int64_t rows = w->rank < 2 ? 0 : w->shape[w->rank - 2], cols = w->rank < 2 ? 0 : w->shape[w->rank - 1], d = 0;
    if (rows < 2 || cols < 2 || tensor_numel(w) != rows * cols || rows * cols > MOST || dtype_is_complex(w->dtype))
        return;
    double below = tensor_get(w, (rows - 1) * cols), above = tensor_get(w, cols - 1);
    if (fmax(fabs(below), fabs(above)) >= 0x1p53 && dtype_is_int(w->dtype)) return; /* integers that no double is */
    if (tensor_get(w, 0) == below)
        while (d + 1 < cols && tensor_get(w, d + 1) == below) d++;
    else
        while (-d < rows && tensor_get(w, -d * cols) != below) d--;
    bool is = below != above;
    for (int64_t k = 0; is && k < rows * cols; k++)
        is = tensor_get(w, k) == (k % cols <= k / cols + d ? below : above);
    s->triangle.is = is;
    s->triangle.diagonal = d;
    s->triangle.below = below;
    s->triangle.above = above;
}

static Term *triangle(Checker *c, int side, const Value *v, Expr *const *idx)
{
    Step *s = &c->side[side].step[v->id];
    ExprPool *p = c->t.x.p;
    if (v->kind != V_WEIGHT || !v->data || graph_writes(c->side[side].g, v)) return NULL;
    if (!s->triangle.known) look_for_triangle(v->data, s);
    if (!s->triangle.is) return NULL;
    Expr *over = ex_sub(p, ex_add(p, idx[v->rank - 2], ex_int(p, s->triangle.diagonal)), idx[v->rank - 1]);
    return term_where(&c->t, term_nonneg(&c->t, term_index(&c->t, over)), term_double(&c->t, s->triangle.below),
                      term_double(&c->t, s->triangle.above));
}

/* Is a weight one number everywhere, as the scale of a norm that has none? What a run writes has a counterpart. */
static bool uniform(const Value *v)
{
    if (!v->data || !dtype_is_float(v->dtype)) return false;
    for (int64_t i = tensor_numel(v->data) - 1; i > 0; i--)
        if (tensor_get(v->data, i) != tensor_get(v->data, 0)) return false;
    return tensor_numel(v->data) > 0;
}

static Term *leaf(Checker *c, int side, const Value *v, Expr *const *idx)
{
    int class = checker_class(c, side, v);
    Expr *at[MAX_RANK];
    bool number = v->kind == V_WEIGHT && v->data && !dtype_is_complex(v->dtype) && !graph_writes(c->side[side].g, v);
    int64_t place = 0;
    for (int i = 0; number && i < v->rank; i++) {
        number = idx[i] && idx[i]->kind == EX_INT && idx[i]->i >= 0 && idx[i]->i < v->data->shape[i];
        place = number ? place * v->data->shape[i] + idx[i]->i : 0;
    }
    if (v->kind == V_WEIGHT && checker_zero(c, side, v)) return term_number(&c->t, 0, 1);
    Term *numbers = c->triangles ? triangle(c, side, v, idx) : NULL;
    if (numbers) return numbers;
    bool itself = class >= 0 && (v->weight != W_CONSTANT || v->rank > 0); /* it may stand for itself */
    if (number && (c->numbers || (tensor_numel(v->data) == 1 && !itself)))
        return dtype_is_float(v->dtype) ? term_double(&c->t, tensor_get(v->data, place))
                                        : term_number(&c->t, tensor_get_i64(v->data, place), 1);
    if (class >= 0 && class < c->nclasses) {
        c->cut[class] = true;
        return term_leaf(&c->t, class, v->dtype == DT_BOOL, v->rank, idx);
    }
    for (int i = 0; i < c->npieces; i++) {
        const Piece *p = &c->piece[i];
        if (p->weight != v) continue;
        memcpy(at, idx, (size_t)v->rank * sizeof *at);
        at[0] = ex_sub(c->t.x.p, idx[0], ex_int(c->t.x.p, p->from));
        if (!ix_within(&c->t.x, at[0], ex_int(c->t.x.p, p->count))) continue;
        if (!p->of) return term_number(&c->t, 0, 1);
        if (p->turned) at[0] = idx[1], at[1] = idx[0];
        Expr *flat = ex_int(c->t.x.p, 0);
        for (int k = 0; p->reshaped && k < v->rank; k++)
            flat = ex_add(c->t.x.p, ex_mul(c->t.x.p, flat, ex_int(c->t.x.p, v->data->shape[k])), idx[k]);
        for (int k = p->of->rank - 1; p->reshaped && k >= 0; k--) {
            Expr *n = ex_int(c->t.x.p, p->of->data->shape[k]);
            at[k] = k ? ix_mod(&c->t.x, flat, n) : flat;
            flat = ix_div(&c->t.x, flat, n);
        }
        c->cut[checker_class(c, SOURCE, p->of)] = true;
        return term_leaf(&c->t, checker_class(c, SOURCE, p->of), false, p->of->rank, at);
    }
    if (uniform(v)) return term_double(&c->t, tensor_get(v->data, 0));
    return term_refuse(&c->t, "'%s' has no counterpart in the source", v->name);
}

/* Of a reduction that drops its axes: the place among the first operand's axes. */
static void spread(Reader *r, const Value *x)
{
    Reader of = {.rank = x->rank};
    int dim = op_param(r->node->op, "dim");
    if (r->rank == x->rank || dim < 0 || op_param(r->node->op, "keepdim") < 0) return;
    for (int i = 0, k = 0; i < x->rank; i++)
        of.idx[i] = element_over_axis(&of, &r->node->arg[dim], "", 0, i) ? zero(r) : r->idx[k++];
    memcpy(r->idx, of.idx, sizeof of.idx);
    r->rank = x->rank;
}

/* What nan_to_num puts in the place of minus infinity */
static Term *least_of(Reader *r)
{
    const Arg *a = &r->node->arg[3];
    return a->kind == ARG_EXPR ? element_number(r, a->e) : term_double(r->t, dtype_lowest(r->v->dtype));
}

/* The step of a node: ["view_2", "reshape", "at0", "8*at1 + at2"]. */
static void put_step(Reader *r, int id)
{
    Step *s = step_of(r);
    if (!s->text) {
        Buf out = {0};
        jw_open(&out, NULL, '[');
        jw_text(&out, NULL, r->v->name);
        jw_text(&out, NULL, id == FUNCTION || id == NO_LEMMA ? "function" : lemmas[id].name);
        for (int i = 0; s->map && i < r->node->arg[0].v->rank; i++) element_put_index(r, s->map[i], &out);
        jw_close(&out, "]");
        s->text = out.failed ? NULL : arena_strdup(r->c->arena, out.data);
        buf_free(&out);
    }
    if (s->seen == r->c->claim) return;
    Side *own = &r->c->side[r->side];
    jw_raw(&own->steps, NULL, s->text ? s->text : "[]");
    s->seen = r->c->claim;
    if (r->node->op->flags & OPF_VIEW && !(r->node->op->flags & OPF_AS_STORED)) return;
    own->computes = r->v;
    own->ncomputes++;
}

static Term **memo_of(Checker *c, int side, const Value *v, Expr *const *idx)
{
    Term *key = term_leaf(&c->t, -1 - (2 * v->id + side), false, v->rank, idx);
    if (!key) return NULL;
    while (c->nmemo <= key->id) {
        Term **all = vec_room(c->t.arena, c->memo, c->nmemo, sizeof *all);
        if (!all) return NULL;
        all[c->nmemo++] = NULL;
        c->memo = all;
    }
    return &c->memo[key->id];
}

static Term *element_here(Checker *c, int side, const Value *v, Expr *const *idx)
{
    int class = checker_class(c, side, v);
    bool known = class >= 0 && class < c->nclasses;
    if (!v->def && known && !c->leaf[class] && c->of_class[class]->def)
        return element(c, SOURCE, c->of_class[class], idx); /* numbers that nodes of the source compute */
    if (!v->def || (known && c->leaf[class])) return leaf(c, side, v, idx);
    Term **memo = memo_of(c, side, v, idx);
    if (!memo || *memo) return memo ? *memo : NULL;
    if (++c->work > MAX_WORK) return term_refuse(&c->t, "more than %d elements are followed", MAX_WORK);
    OpId op = v->def->op->id;
    const Arg *a = v->def->arg;
    bool nan = op == OP_isnan || ((op == OP_eq_Tensor || op == OP_ne_Tensor) && a->v == a[1].v); /* of one value */
    int id = nan && !c->t.single ? FUNCTION : lemma_of(v->def->op, v->out); /* in .pt2 files a rule may rest on it */
    int said = id; /* whatever the operand turns out to be in a claim */
    ptrdiff_t key = memo - c->memo;
    Reader r = {.c = c, .t = &c->t, .p = c->t.x.p, .side = side, .rank = v->rank, .node = v->def, .v = v, .at = ""};
    memcpy(r.idx, idx, (size_t)v->rank * sizeof *idx);
    bool given = id != NO_LEMMA && v->def->op->schema->nparams && v->def->arg[0].kind == ARG_VALUE;
    if (given) spread(&r, v->def->arg[0].v);
    if (v->def->op->flags & OPF_POINTWISE && !numbers_fit(&r)) return wrong(&r);
    Term *x = op == OP_nan_to_num ? element_operand(&r, a) : NULL, *e = op == OP_where_self ? wrapped(&r) : NULL;
    if (op == OP_nan_to_num && !x) return wrong(&r);
    if (x && (term_is_real(x) || !dtype_is_float(v->dtype))) e = x;
    else if (x && !c->t.single) { /* of NaN, too, which no value of an ONNX file is */
        Term *rest, *shown = term_shown(&c->t, x, &rest);
        if (shown) e = term_where(&c->t, shown, rest, least_of(&r));
        else id = FUNCTION;
    }
    if (!e)
        e = id == NO_LEMMA   ? element_of_tensors(&r)
            : id == FUNCTION ? element_function(&r)
                             : element_lemma(&r, lemmas[id].element);
    if (computes(&r, id)) e = wraps(&r, e);
    if (!e) return wrong(&r);
    put_step(&r, said);
    return c->memo[key] = e;
}

Term *element(Checker *c, int side, const Value *v, Expr *const *idx)
{
    bool before = c->t.narrow, wide = c->t.wide;
    c->t.wide = v->dtype == DT_F64;
    c->t.narrow = c->narrow && !wide && dtype_is_float(v->dtype) && dtype_size(v->dtype) <= 4; /* doubles see more */
    Term *e = element_here(c, side, v, idx);
    c->t.narrow = before;
    c->t.wide = wide;
    return e;
}
