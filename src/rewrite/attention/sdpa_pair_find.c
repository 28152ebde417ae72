/* Finding the gradients of an attention that is spelled out: from the gradient of its scores and from the probabilities
 * through views, numbers and masks to the products that read them. */
#include "rewrite/attention/sdpa_pair_impl.h"
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "facts/truth.h"
#include "rewrite/attention/scores.h"

enum { MAX_FOLLOWED = 32, MAX_ALIKE = 8 };

/* P or dS, seen through the views that were followed: the value is the form, its last two axes swapped if transposed,
 * times factor. */
typedef struct Seen {
    Value *v;
    Value *views; /* P, seen through them alone */
    Arg p, dp;    /* forms qkv.scores of the probabilities and of their gradient, with the same views */
    bool grad, transposed;
    double factor;
} Seen;

/* ------------------------------------------------------------------ readers */

static void add_reader(void *user, Value **slot)
{
    Readers *r = user;
    int id = (*slot)->id;
    if (r->first[id] && r->reader[r->first[id] - 1].node == r->node) return; /* reads it twice */
    Reader *grown = vec_grow(r->reader, r->n, sizeof *grown);
    if (!grown) {
        r->ok = false;
        return;
    }
    r->reader = grown;
    r->reader[r->n++] = (Reader){r->node, r->first[id]};
    r->first[id] = r->n;
}

void free_readers(Readers *r)
{
    mem_free(r->first);
    mem_free(r->reader);
    *r = (Readers){0};
}

bool find_readers(Rewrite *rw, Readers *r)
{
    free_readers(r);
    *r = (Readers){
        .first = mem_zeroed((size_t)rw->g->next_id + 1, sizeof *r->first), .nvalues = rw->g->next_id, .ok = true};
    for (Node *n = rw->g->first; r->first && r->ok && n; n = n->next) {
        r->node = n;
        node_each_operand(n, add_reader, r);
    }
    return (r->first && r->ok) || oom(rw->err);
}

/* Readers of v: for (int i = first_reader(r, v); i; i = r->reader[i - 1].next). */
static int first_reader(const Readers *r, const Value *v) { return v->id < r->nvalues ? r->first[v->id] : 0; }

static bool is_output(const Graph *g, const Value *v)
{
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].value == v) return true;
    return false;
}

bool alike(const Value *a, const Value *b, int depth)
{
    if (a == b) return true;
    if (!a->def || !b->def || depth > MAX_ALIKE || a->def->op != b->def->op || a->out != b->out ||
        (a->def->op->flags & (OPF_RANDOM | OPF_EFFECT)))
        return false;
    for (int i = 0; i < a->def->op->schema->nparams; i++) {
        const Arg *x = &a->def->arg[i], *y = &b->def->arg[i];
        bool same = x->kind == ARG_VALUE && y->kind == ARG_VALUE ? alike(x->v, y->v, depth + 1) : arg_same(x, y);
        if (!same) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ forms under views */

static bool is_view(const Node *n) { return n && (n->op->id == OP_reshape || n->op->id == OP_permute); }

static bool form_reshape(Rewrite *rw, Arg *form, int rank, Expr *const *dim)
{
    Arg a[2] = {*form, arg_exprs(rw->g, rank, dim)};
    return make_scores_reshape(rw, 2, a, form) && form->v->def->op->id == OP_scores;
}

static bool form_permute(Rewrite *rw, Arg *form, int rank, const int *perm)
{
    int64_t dims[MAX_RANK];
    bool same = true;
    for (int i = 0; i < rank; i++) dims[i] = perm[i], same &= perm[i] == i;
    if (same) return true;
    Arg a[2] = {*form, arg_ints(rw->g, rank, dims)};
    return make_scores_permute(rw, 2, a, form) && form->v->def->op->id == OP_scores;
}

/* The form of a view's result as that of its operand. */
static bool form_before(Rewrite *rw, const Node *view, Arg *form)
{
    int perm[MAX_RANK], back[MAX_RANK];
    const Value *x = view->arg[0].v;
    if (view->op->id == OP_reshape) return form_reshape(rw, form, x->rank, x->dim);
    permutation_of(view, perm);
    for (int i = 0; i < x->rank; i++) back[perm[i]] = i;
    return form_permute(rw, form, x->rank, back);
}

/* What was seen, through one more view. */
static bool see_view(Rewrite *rw, Seen *s, const Node *view)
{
    Value *y = view->out[0];
    int r = y->rank, perm[MAX_RANK];
    const Value *x = s->v;
    if (r < 2) return false;
    if (view->op->id == OP_reshape) {
        Expr *dim[MAX_RANK];
        memcpy(dim, y->dim, (size_t)r * sizeof *dim);
        if (s->transposed) {
            if (!exprs_same(2, &y->dim[r - 2], &x->dim[x->rank - 2])) return false;
            swap_last(r, dim);
        }
        if (!form_reshape(rw, &s->p, r, dim) || !form_reshape(rw, &s->dp, r, dim) ||
            !(s->views = rw_reshape(rw, s->views, r, dim)))
            return false;
    } else {
        permutation_of(view, perm);
        if (s->transposed)
            for (int i = 0; i < r; i++) perm[i] = perm[i] == r - 1 ? r - 2 : perm[i] == r - 2 ? r - 1 : perm[i];
        s->transposed = perm[r - 1] == r - 2 && perm[r - 2] == r - 1;
        if (s->transposed) perm[r - 1] = r - 1, perm[r - 2] = r - 2;
        if (!form_permute(rw, &s->p, r, perm) || !form_permute(rw, &s->dp, r, perm) ||
            !(s->views = rw_permute(rw, s->views, perm)))
            return false;
    }
    s->v = y;
    return true;
}

/* ------------------------------------------------------------------ products */

/* The sizes of the parts that both axes of x and those of `dim` are made of;
 * how many, -1 where they do not divide each other. */
static int parts_of(ExprPool *p, const Value *x, int rank, Expr *const *dim, Expr **part)
{
    Expr *a = NULL, *b = NULL, *c;
    for (int n = 0, i = 0, j = 0;;) {
        if (!a && i < x->rank) a = x->dim[i++];
        if (!b && j < rank) b = dim[j++];
        if (!a && !b) return n;
        if (!a || !b || n == MAX_RANK) return -1;
        if (a == b) part[n++] = a, a = b = NULL;
        else if ((c = ex_floordiv(p, a, b)) && ex_mul(p, b, c) == a) part[n++] = b, a = c, b = NULL;
        else if ((c = ex_floordiv(p, b, a)) && ex_mul(p, a, c) == b) part[n++] = a, b = c, a = NULL;
        else return -1;
    }
}

/* reshape(permute(x)) as a permute and a merge of the parts of x's axes, as far as that is possible:
 * it has many spellings otherwise. */
static Value *folded_reshape(Rewrite *rw, Value *x, int rank, Expr *const *dim)
{
    Expr *part[MAX_RANK];
    int n = x && x->def && x->def->op->id == OP_permute ? parts_of(rw->ex, x, rank, dim, part) : -1;
    if (n > 0) x = rw_reshape(rw, x, n, part);
    return rw_reshape(rw, x, rank, dim);
}

Value *folded(Rewrite *rw, Value *v, int depth)
{
    int perm[MAX_RANK];
    const Node *n = v ? v->def : NULL;
    if (!n || depth > MAX_VIEWS || (!is_view(n) && n->op->id != OP_expand)) return v;
    Value *x = folded(rw, n->arg[0].v, depth + 1);
    if (permutation_of(n, perm)) return rw_permute(rw, x, perm);
    return n->op->id == OP_reshape ? folded_reshape(rw, x, v->rank, v->dim) : rw_expand(rw, x, v->rank, v->dim);
}

/* Operand x of a product, brought to the axes of `like` and its last two, as a number times something:
 * both are comparable then. */
static Value *comparable(Rewrite *rw, Value *x, const Value *like, double *scale)
{
    Expr *dim[MAX_RANK];
    int r = like->rank;
    Arg c = arg_float(rw->g, 1);
    if (!x || x->rank > r || !(x = without_scale(rw, rw_pad_rank(rw, x, r), &c, 0)) || !ex_is_const(c.e)) return NULL;
    *scale = ex_number(c.e);
    memcpy(dim, like->dim, (size_t)(r - 2) * sizeof *dim);
    memcpy(dim + r - 2, x->dim + r - 2, 2 * sizeof *dim);
    return folded(rw, rw_expand(rw, x, r, dim), 0);
}

/* Is operand y, turned over if asked, a number times `what`? */
static bool is_times(Rewrite *rw, Value *y, bool turned, Value *what, const Value *like, double *scale)
{
    double one, c;
    if (turned) y = y->rank < 2 ? NULL : rw_swap_last(rw, y);
    Value *a = comparable(rw, y, like, &c), *b = a ? comparable(rw, what, like, &one) : NULL;
    if (!b || !alike(a, b, 0)) return false;
    *scale = c / one;
    return true;
}

/* Goes on over views and numbers that alone read the product. */
static void extend(Pair *p, Root *r)
{
    Rewrite *rw = p->rw;
    bool keys = r->which == GRAD_KEY || r->which == GRAD_VALUE;
    while (rewrite_info(rw, r->from)->uses == 1 && !is_output(rw->g, r->from) && r->nviews < MAX_VIEWS) {
        int i = first_reader(p->readers, r->from);
        const Node *n = i ? p->readers->reader[i - 1].node : NULL;
        double c;
        if (is_view(n)) {
            r->view[r->nviews++] = n;
        } else if (keys && !r->sum && n && n->op->id == OP_sum_dim_IntList && n->arg[1].kind == ARG_EXPRS &&
                   n->arg[1].n == 1 && n->out[0]->dtype == r->from->dtype) {
            r->sum = n;
            r->summed = r->nviews;
            r->summed_factor = r->factor;
            r->unsummed = r->from;
        } else {
            bool mul = n && n->op->id == OP_mul_Tensor,
                 div = n && n->op->id == OP_div_Tensor && n->arg[0].kind == ARG_VALUE && n->arg[0].v == r->from;
            int side = mul && n->arg[0].kind == ARG_VALUE && n->arg[0].v == r->from ? 1 : mul ? 0 : 1;
            const Value *y = n ? n->out[0] : NULL;
            if ((!mul && !div) || !constant_of(rw->g, &n->arg[side], &c) || c == 0 || y->dtype != r->from->dtype ||
                y->rank != r->from->rank || !exprs_same(y->rank, y->dim, r->from->dim))
                return;
            r->factor = div ? r->factor / c : r->factor * c;
        }
        r->from = n->out[0];
    }
}

static bool add_root(Pair *p, const Seen *s, Node *product, int which, bool transposed, double factor)
{
    if (p->nroots == MAX_FORK) return rewrite_refuse(p->rw, "more than %d gradients", MAX_FORK);
    Root *r = &p->root[p->nroots++];
    *r = (Root){.from = product->out[0],
                .product = product->out[0],
                .over = s->p.v->dim[s->p.v->rank - (which == GRAD_QUERY ? 1 : 2)],
                .which = which,
                .transposed = transposed,
                .factor = factor};
    extend(p, r);
    return true;
}

/* A product that reads P or dS must be one of the gradients. */
static bool product_root(Pair *p, const Seen *s, Node *n)
{
    Rewrite *rw = p->rw;
    bool left = n->arg[0].kind == ARG_VALUE && n->arg[0].v == s->v;
    Value *other = n->arg[left ? 1 : 0].v;
    const Arg *f = s->p.v->def->arg, *d = s->dp.v->def->arg;
    Value *q = f[0].v, *k = f[1].v, *dout = d[0].v;
    double c;
    if (other == s->v || other->dtype != s->v->dtype)
        return rewrite_refuse(rw, "'%s' multiplies it with something else", n->name);
    Value *straight = folded(rw, rw_reshape(rw, s->views, p->base->rank, p->base->dim), 0);
    if (!straight || !alike(straight, folded(rw, p->base, 0), 0))
        return rewrite_refuse(rw, "'%s' has batch and heads in another order than the probabilities", n->name);
    if (!s->grad) {
        if (s->transposed != left || !is_times(rw, other, !left, dout, s->v, &c))
            return rewrite_refuse(
                rw,
                s->transposed == left
                    ? "'%s' multiplies the probabilities with something else than the gradient of the result"
                    : "'%s' still reads the probabilities",
                n->name);
        if (left && !p->dout) p->dout = other;
        return add_root(p, s, n, GRAD_VALUE, !left, c);
    }
    bool keys = left != s->transposed; /* dS k, or (dS k)^T = k^T dS^T */
    if (!is_times(rw, other, !left, keys ? k : q, s->v, &c))
        return rewrite_refuse(rw, "'%s' multiplies the gradient of the scores with something else than %s", n->name,
                              keys ? "keys" : "queries");
    return add_root(p, s, n, keys ? GRAD_QUERY : GRAD_KEY, !left, c * s->factor);
}

/* ------------------------------------------------------------------ following */

/* dS set to 0 where a condition of the mask hides keys, as the gradient of masked_fill does. */
static bool masked_again(Pair *p, const Seen *s, const Node *n)
{
    double zero;
    int kept = n->arg[1].kind == ARG_VALUE && n->arg[1].v == s->v ? 1 : 2;
    const Arg *f = s->p.v->def->arg;
    Value *c = n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL, *mask = f[2].kind == ARG_VALUE ? f[2].v : NULL;
    if (!c || !mask || !constant_of(p->rw->g, &n->arg[3 - kept], &zero) || zero != 0 || s->transposed) return false;
    if (kept == 2) {
        bool negated = c->def && (c->def->op->id == OP_logical_not || c->def->op->id == OP_bitwise_not);
        c = negated ? c->def->arg[0].v : RW(p->rw, logical_not, arg_value(c));
    }
    return c && truth_within(mask, c);
}

static bool is_inner(const Pair *p, const Node *n)
{
    for (int i = 0; i < p->ninner; i++)
        if (p->inner[i] == n) return true;
    return false;
}

static bool follow(Pair *p, Seen s);

static bool reader(Pair *p, const Seen *s, Node *n)
{
    Rewrite *rw = p->rw;
    Seen y = *s;
    double c;
    if (is_inner(p, n)) return true;
    if (is_view(n))
        return (see_view(rw, &y, n) ||
                rewrite_refuse(rw, "'%s' regroups %s in a way that queries and keys do not follow", n->name,
                               s->grad ? "the gradient of the scores" : "probabilities")) &&
               follow(p, y);
    if (n->op->id == OP_matmul) return product_root(p, s, n);
    y.v = n->nout ? n->out[0] : NULL;
    if (s->grad && (n->op->id == OP_mul_Tensor || n->op->id == OP_div_Tensor) && y.v->rank == s->v->rank) {
        bool first = n->arg[0].kind == ARG_VALUE && n->arg[0].v == s->v;
        if ((first || n->op->id == OP_mul_Tensor) && constant_of(rw->g, &n->arg[first ? 1 : 0], &c) && c != 0) {
            y.factor = n->op->id == OP_mul_Tensor ? y.factor * c : y.factor / c;
            return follow(p, y);
        }
    }
    if (s->grad && n->op->id == OP_where_self && masked_again(p, s, n)) {
        p->masked_again = true;
        return follow(p, y);
    }
    const Value *mask = s->p.v->def->arg[2].kind == ARG_VALUE ? s->p.v->def->arg[2].v : NULL;
    if (s->grad && !s->transposed && s->v == p->ds && mask &&
        dtype_is_float(mask->dtype)) { /* the gradient of an additive mask */
        if (p->nroots == MAX_FORK) return rewrite_refuse(rw, "more than %d gradients", MAX_FORK);
        bool sum = n->op->id == OP_sum_dim_IntList;
        p->root[p->nroots++] = (Root){.from = sum ? n->out[0] : s->v, .which = GRAD_MASK, .factor = 1};
        return true;
    }
    return rewrite_refuse(rw, "'%s' reads %s, too", n->name,
                          s->grad ? "the gradient of the scores" : "the probabilities");
}

static bool follow(Pair *p, Seen s)
{
    if (is_output(p->rw->g, s.v))
        return rewrite_refuse(p->rw, "%s '%s' %s an output",
                              s.grad ? "the gradient of the scores" : "the probabilities", s.v->name, "is");
    if (++p->depth > MAX_FOLLOWED) return rewrite_refuse(p->rw, "it is read in too many ways");
    for (int i = first_reader(p->readers, s.v); i; i = p->readers->reader[i - 1].next)
        if (!reader(p, &s, p->readers->reader[i - 1].node)) return false;
    return true;
}

/* ------------------------------------------------------------------ finding */

bool make_softmax_backward(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores p = {0}, dp = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &p) && scores_of(rw, &a[1], &dp));
    if (!p.normalized || dp.normalized || dp.mask || scores_capped(&dp))
        return rewrite_refuse(rw, "no gradient of probabilities");
    Value *v = RW(rw, softmax_backward, a[0], a[1]);
    *out = arg_value(v);
    return v != NULL;
}

/* What lies between dS and its two operands. */
static bool find_inner(Pair *p, Value *v)
{
    if (v == p->p || v == p->dp || !v->def) return true;
    if (is_inner(p, v->def)) return true;
    if (p->ninner == MAX_INNER) return false;
    p->inner[p->ninner++] = v->def;
    for (int i = 0; i < v->def->op->schema->nparams; i++)
        if (v->def->arg[i].kind == ARG_VALUE && v->def->arg[i].v->rank && !find_inner(p, v->def->arg[i].v))
            return false;
    return true;
}

bool find_pair(Pair *p, Value *form)
{
    Rewrite *rw = p->rw;
    p->p = p->base = form->def->arg[0].v;
    p->dp = form->def->arg[1].v;
    Value *f = rewrite_form(rw, p->p, OP_scores), *d = rewrite_form(rw, p->dp, OP_scores);
    if (!f || !d || !find_inner(p, p->ds)) return false;
    p->form = arg_value(f);
    p->grad_form = arg_value(d);
    Seen s = {.v = p->ds, .views = p->p, .p = p->form, .dp = p->grad_form, .grad = true, .factor = 1};
    const Arg *arg = f->def->arg;
    if (scores_capped(&(Scores){.softcap = arg[4]})) return rewrite_refuse(rw, "the scores have a softcap");
    if (!ex_is_const(arg[3].e) || ex_number(arg[3].e) == 0 || !ex_is_const(d->def->arg[3].e))
        return rewrite_refuse(rw, "the scale is not a known number");
    while (is_view(p->base->def) &&
           rewrite_form(rw, p->base->def->arg[0].v, OP_scores)) { /* to what the softmax gave */
        if (!form_before(rw, p->base->def, &p->grad_form)) return false;
        p->base = p->base->def->arg[0].v;
        p->form = arg_value(rewrite_form(rw, p->base, OP_scores));
    }
    if (!p->base->def) return false;
    TRY(follow(p, s));
    s = (Seen){.v = p->base, .views = p->base, .p = p->form, .dp = p->grad_form, .factor = 1};
    return follow(p, s) && (p->nroots || rewrite_refuse(rw, "its gradients are not read"));
}
