/* Attention's backward pass, spelled out, with its forward pass as one pair. Contract in sdpa_pair.h. */
#include "rewrite/attention/sdpa_pair.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "facts/views.h"
#include "rewrite/attention/mask.h"
#include "rewrite/attention/scores.h"

const char sdpa_backward_rule[] = "sdpa_backward";

enum { MAX_VIEWS = 16, MAX_INNER = 16, MAX_FOLLOWED = 32, MAX_ALIKE = 8 };
enum {
    Q,
    K,
    V,
    MASK,
    DROPOUT,
    CAUSAL,
    SCALE,
    GQA,
    SOFTCAP,
    LOWER,
    UPPER
};                                                    /* parameters of scaled_dot_product_attention */
static const double ROUNDING = 1e-6;                  /* of two scales that a source multiplies with each other */
enum { GRAD_QUERY, GRAD_KEY, GRAD_VALUE, GRAD_MASK }; /* results of sdpa_backward */

/* Who reads what: a list of nodes for each value. */
typedef struct Reader {
    Node *node;
    int next; /* 1 + index */
} Reader;

typedef struct Readers {
    int *first, nvalues, n, cap; /* first: 1 + index, by value id */
    Reader *reader;
    Node *node; /* being listed */
    bool ok;
} Readers;

/* A product that is one of the gradients: from = factor * (that gradient, transposed or not, seen through these views). */
typedef struct Root {
    Value *from;
    int which;
    bool transposed;
    double factor;
    Value *product; /* before the views */
    Expr *over;     /* what it sums: rows of queries, or keys */
    int nviews;
    const Node *view[MAX_VIEWS];
    const Node *sum;      /* of the heads of a group, where it follows; NULL */
    int summed;           /* views before it */
    double summed_factor; /* of what it sums */
    Value *unsummed;
} Root;

/* P or dS, seen through the views that were followed: the value is the form, its last two axes swapped if transposed, times factor. */
typedef struct Seen {
    Value *v;
    Value *views; /* P, seen through them alone */
    Arg p, dp;    /* forms qkv.scores of the probabilities and of their gradient, with the same views */
    bool grad, transposed;
    double factor;
} Seen;

typedef struct Pair {
    Rewrite *rw;
    const Readers *readers;
    Value *p, *base; /* as dS reads the probabilities; before views */
    Value *ds, *dp;
    Node *inner[MAX_INNER]; /* what computes dS from P and dP */
    int ninner, depth;
    Arg form, grad_form; /* of base: qkv.scores */
    Root root[MAX_FORK];
    int nroots;
    Value *dout;       /* what comes back, as the gradient of the values reads it; NULL */
    bool masked_again; /* dS is set to 0 where the mask hides keys */
} Pair;

/* ------------------------------------------------------------------ readers */

static void add_reader(void *user, Value **slot)
{
    Readers *r = user;
    int id = (*slot)->id;
    if (r->first[id] && r->reader[r->first[id] - 1].node == r->node) return; /* reads it twice */
    if (r->n == r->cap) {
        int cap = r->cap ? r->cap * 2 : 1024;
        Reader *grown = mem_grow(r->reader, (size_t)cap * sizeof *grown);
        if (!grown) {
            r->ok = false;
            return;
        }
        r->reader = grown;
        r->cap = cap;
    }
    r->reader[r->n++] = (Reader){r->node, r->first[id]};
    r->first[id] = r->n;
}

static void free_readers(Readers *r)
{
    mem_free(r->first);
    mem_free(r->reader);
    *r = (Readers){0};
}

static bool find_readers(Rewrite *rw, Readers *r)
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

/* The same value, or the same ops on the same values: what was made while forms were derived need not be what the graph has. */
static bool alike(const Value *a, const Value *b, int depth)
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

static void swap_last(int rank, Expr **dim)
{
    Expr *e = dim[rank - 1];
    dim[rank - 1] = dim[rank - 2];
    dim[rank - 2] = e;
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

/* The sizes of the parts that both axes of x and those of `dim` are made of; how many, -1 where they do not divide each other. */
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

/* reshape(permute(x)) as a permute and a merge of the parts of x's axes, as far as that is possible: it has many spellings otherwise. */
static Value *folded_reshape(Rewrite *rw, Value *x, int rank, Expr *const *dim)
{
    Expr *part[MAX_RANK];
    int n = x && x->def && x->def->op->id == OP_permute ? parts_of(rw->ex, x, rank, dim, part) : -1;
    if (n > 0) x = rw_reshape(rw, x, n, part);
    return rw_reshape(rw, x, rank, dim);
}

/* v with its views folded: a permute that undoes another is nothing, and so on. */
static Value *folded(Rewrite *rw, Value *v, int depth)
{
    int perm[MAX_RANK];
    const Node *n = v ? v->def : NULL;
    if (!n || depth > MAX_VIEWS || (!is_view(n) && n->op->id != OP_expand)) return v;
    Value *x = folded(rw, n->arg[0].v, depth + 1);
    if (permutation_of(n, perm)) return rw_permute(rw, x, perm);
    return n->op->id == OP_reshape ? folded_reshape(rw, x, v->rank, v->dim) : rw_expand(rw, x, v->rank, v->dim);
}

/* Operand x of a product, brought to the axes of `like` and its last two, as a number times something: both are comparable then. */
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

/* Does an operator that reads its result broadcast it as it would its operand? */
static bool broadcasts(const Node *n)
{
    const Value *x = n->arg[0].v, *y = n->out[0];
    int more = y->rank - x->rank;
    if (n->op->id == OP_expand) return true;
    if (n->op->id != OP_reshape || more < 0 || !exprs_same(x->rank, x->dim, y->dim + more)) return false;
    for (int i = 0; i < more; i++)
        if (!is_one(y->dim[i])) return false;
    return true;
}

/* Is what `keep` hides hidden by the mask, too? Both are broadcast to the scores. */
static bool hidden_by(const Value *mask, const Value *keep, int depth)
{
    const Node *m = mask ? mask->def : NULL;
    if (mask == keep) return true;
    if (!m || depth > 6) return false;
    switch (m->op->id) {
    case OP_where_self:
        return m->arg[0].kind == ARG_VALUE &&
               (m->arg[0].v == keep || (m->arg[1].kind == ARG_VALUE && hidden_by(m->arg[1].v, keep, depth + 1)));
    case OP_logical_and:
    case OP_bitwise_and_Tensor:
        return (m->arg[0].kind == ARG_VALUE && hidden_by(m->arg[0].v, keep, depth + 1)) ||
               (m->arg[1].kind == ARG_VALUE && hidden_by(m->arg[1].v, keep, depth + 1));
    case OP_reshape:
    case OP_permute:
    case OP_expand:
        if (broadcasts(m) && hidden_by(m->arg[0].v, keep, depth + 1)) return true;
        return keep->def && keep->def->op == m->op && arg_same(&m->arg[1], &keep->def->arg[1]) &&
               hidden_by(m->arg[0].v, keep->def->arg[0].v, depth + 1);
    default: return false;
    }
}

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
    return c && hidden_by(mask, c, 0);
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

static bool find_pair(Pair *p, Value *form)
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

/* ------------------------------------------------------------------ building */

static Value *spread(Rewrite *rw, const Node *n, int i)
{
    const Value *q = n->arg[Q].v, *k = n->arg[K].v;
    Value *x = n->arg[i].kind == ARG_VALUE ? n->arg[i].v : NULL;
    return x ? rw_expand(rw, rw_pad_rank(rw, x, 4), 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], k->dim[2]}) : NULL;
}

/* What scores are multiplied with; 0 when that is not known. */
static double scale_of(const Node *n)
{
    const Expr *size = n->arg[Q].v->dim[3];
    if (n->arg[SCALE].kind == ARG_EXPR) return ex_is_const(n->arg[SCALE].e) ? ex_number(n->arg[SCALE].e) : 0;
    return ex_is_int(size) && size->i > 0 ? 1 / sqrt((double)size->i) : 0;
}

/* Has x the heads of each group of n as rows of one matrix, queries (batch, heads of keys, group * rows, size)? */
static bool merges_groups(Rewrite *rw, const Node *x, const Node *n)
{
    const Value *q = x->arg[Q].v, *of = n->arg[Q].v, *k = n->arg[K].v;
    if (q->rank != 4 || of->rank != 4 || of->dim[1] == k->dim[1] || q->dim[1] != k->dim[1] || x->arg[CAUSAL].e->i ||
        x->arg[LOWER].kind != ARG_NONE || x->arg[UPPER].kind != ARG_NONE)
        return false;
    return q->dim[2] == ex_mul(rw->ex, ex_floordiv(rw->ex, of->dim[1], k->dim[1]), of->dim[2]);
}

/* Do two attentions give the same values in the same order? Their masks may be expanded to different sizes. */
static bool same_attention(Rewrite *rw, const Node *x, const Node *n)
{
    double scale = scale_of(n);
    bool same = x->op == n->op && scale != 0 && fabs(scale_of(x) / scale - 1) <= ROUNDING &&
                x->arg[MASK].kind == n->arg[MASK].kind,
         merged = same && merges_groups(rw, x, n);
    for (int i = DROPOUT; same && i < n->op->schema->nparams; i++)
        same = i == SCALE || (merged && i == GQA) || arg_same(&x->arg[i], &n->arg[i]);
    Value *q = !same ? NULL : merged ? rw_reshape(rw, x->arg[Q].v, 4, n->arg[Q].v->dim) : x->arg[Q].v;
    same = q && alike(folded(rw, q, 0), folded(rw, n->arg[Q].v, 0), 0);
    for (int i = K; same && i <= V; i++) same = alike(folded(rw, x->arg[i].v, 0), folded(rw, n->arg[i].v, 0), 0);
    if (!same || n->arg[MASK].kind == ARG_NONE) return same;
    Value *a = spread(rw, x, MASK), *b = spread(rw, n, MASK);
    if (a && b && merged) a = rw_reshape(rw, a, 4, b->dim);
    return a && b && alike(folded(rw, a, 0), folded(rw, b, 0), 0);
}

/* The attention of the graph that gives the same as n, which was made, or as n with bounds in the place of its mask. NULL: none. */
static const Node *in_graph(Rewrite *rw, const Node *n)
{
    Arg y;
    if (!rewrite_info(rw, n->out[0])->ghost) return n;
    const Node *bounded = n->arg[MASK].kind == ARG_VALUE && make_banded(rw, 1, (Arg[]){arg_value(n->out[0])}, &y)
                              ? y.v->def
                              : n;
    for (const Node *x = rw->g->first; x && !rw->hard; x = x->next)
        if (x->op == n->op && (same_attention(rw, x, n) || (bounded != n && same_attention(rw, x, bounded)))) return x;
    return NULL;
}

static bool reshapes(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_reshape;
}

/* The attention of P and the values as scaled_dot_product_attention. */
static const Node *attention_of(Pair *p)
{
    Rewrite *rw = p->rw;
    Arg y;
    TRY(make_attention(rw, 2, (Arg[]){arg_value(p->base), p->grad_form.v->def->arg[1]}, &y));
    const Value *v = value_below(y.v, reshapes, NULL);
    if (!v->def || v->def->op->id != OP_scaled_dot_product_attention || v->dtype != p->base->dtype) {
        rewrite_refuse(rw, "the gradient would be rounded in another way");
        return NULL;
    }
    return v->def;
}

static Value *replay(Rewrite *rw, const Root *r, Value *v, int from, int to)
{
    int perm[MAX_RANK];
    for (int i = from; v && i < to; i++) {
        const Value *y = r->view[i]->out[0];
        v = permutation_of(r->view[i], perm) ? rw_permute(rw, v, perm) : rw_reshape(rw, v, y->rank, y->dim);
    }
    return v;
}

/* Does the source sum the heads of each group, axis 2 of (batch, heads of keys, group, rows, size), and nothing else? */
static bool sums_group(Rewrite *rw, const Root *r, const Value *grad, Expr *group)
{
    ExprPool *p = rw->ex;
    Expr *dim[5] = {grad->dim[0], grad->dim[1], group, grad->dim[2], grad->dim[3]};
    const Value *x = r->sum->arg[0].v;
    int axis = ex_is_int(r->sum->arg[1].es[0]) ? (int)r->sum->arg[1].es[0]->i : MAX_RANK;
    if (axis < 0) axis += x->rank;
    if (axis >= x->rank || x->dim[axis] != group || product_of(p, axis, x->dim) != product_of(p, 2, dim) ||
        product_of(p, x->rank - axis - 1, x->dim + axis + 1) != product_of(p, 2, dim + 3))
        return false;
    Value *plain = r->transposed ? rw_swap_last(rw, r->product) : r->product;
    const Value *a = rw_reshape(rw, replay(rw, r, r->product, 0, r->summed), 5, dim),
                *b = rw_reshape(rw, plain, 5, dim);
    return a && b && alike(a, b, 0);
}

static Value *times(Rewrite *rw, Value *v, double factor)
{
    return v && fabs(factor - 1) > ROUNDING ? rw_binary(rw, OP_mul_Tensor, v, arg_float(rw->g, factor)) : v;
}

/* The gradient as the source has it: grad (batch, heads, rows, size), of keys with fewer heads than queries already summed: by a sum, or by a product over the rows of a group. */
static Value *as_source(Pair *p, Root *r, Value *grad, const Value *o, double factor)
{
    Rewrite *rw = p->rw;
    const Value *x = r->product;
    Expr *dim[MAX_RANK];
    Value *v;
    Expr *group = ex_floordiv(rw->ex, o->dim[1], grad->dim[1]);
    if (grad->dim[1] != o->dim[1] && r->over != ex_mul(rw->ex, group, o->dim[2])) {
        if (!r->sum || !sums_group(rw, r, grad, group))
            return rewrite_refuse(rw, "the gradient of '%s' is not summed over the heads that share keys", x->name),
                   NULL;
        v = replay(rw, r, rw_reshape(rw, grad, r->sum->out[0]->rank, r->sum->out[0]->dim), r->summed, r->nviews);
    } else {
        memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
        if (r->transposed) swap_last(x->rank, dim);
        v = rw_reshape(rw, grad, x->rank, dim);
        if (r->transposed && v) v = rw_swap_last(rw, v);
        v = replay(rw, r, v, 0, r->sum ? r->summed : r->nviews);
        if (r->sum) {
            r->from = r->unsummed;
            factor *= r->summed_factor / r->factor;
        }
    }
    return times(rw, v, factor);
}

typedef struct Made {
    const Node *forward; /* in the graph */
    Node *lse, *backward;
    Value *result; /* of the forward attention, from lse */
    double scale;  /* of what comes back, as the form has it */
} Made;

/* What comes back, as (batch, heads, queries, size): *scale times the form's. The source's own value where the gradient of the values reads it. */
static Value *incoming(Pair *p, const Value *o, double *scale)
{
    Rewrite *rw = p->rw;
    Value *x = p->grad_form.v->def->arg[0].v;
    Expr *dim[MAX_RANK];
    Arg c = arg_float(rw->g, 1);
    int r = p->base->rank;
    *scale = 1;
    memcpy(dim, p->base->dim, (size_t)(r - 2) * sizeof *dim);
    dim[r - 2] = o->dim[2], dim[r - 1] = o->dim[3];
    x = rw_reshape(rw, rw_expand(rw, rw_pad_rank(rw, x, r), r, dim), 4, o->dim);
    Value *own = p->dout ? rw_reshape(rw, p->dout, 4, o->dim) : NULL,
          *bare = own ? without_scale(rw, own, &c, 0) : NULL;
    if (!x || !bare || !ex_is_const(c.e) || !alike(bare, x, 0)) return x;
    *scale = ex_number(c.e);
    return own;
}

/* arg: queries, keys and values of the forward pass; the mask as P has it, or bounds in its place as far as it follows from positions. whole: the gradient of the mask is
 * wanted, as large as the scores. */
static bool choose_mask(Pair *p, const Node *attention, bool grad, bool whole, Arg *arg)
{
    Rewrite *rw = p->rw;
    Arg y;
    for (int i = MASK; i <= UPPER; i++) arg[i] = attention->arg[i];
    if (whole) arg[MASK] = arg_value(spread(rw, attention, MASK));
    if (arg[MASK].kind != ARG_VALUE || grad) return true;
    Value *same = rw_add(rw, OP_scaled_dot_product_attention, UPPER + 1, arg);
    if (same && make_banded(rw, 1, (Arg[]){arg_value(same)}, &y)) memcpy(arg, y.v->def->arg, (UPPER + 1) * sizeof *arg);
    return same && !rw->hard;
}

static bool make_pair(Pair *p, const Node *attention, Made *m)
{
    Rewrite *rw = p->rw;
    const Value *mask = attention->arg[MASK].kind == ARG_VALUE ? attention->arg[MASK].v : NULL;
    bool grad = false, whole = false;
    Arg a[UPPER + 1];
    for (int i = 0; i < p->nroots; i++) {
        if (p->root[i].which != GRAD_MASK) continue;
        grad = true;
        whole |= !mask || !same_but_ones(p->root[i].from, mask);
    }
    for (int i = 0; whole && i < p->nroots; i++)
        if (p->root[i].which == GRAD_MASK) p->root[i].from = p->ds;
    memcpy(a, (merges_groups(rw, m->forward, attention) ? attention : m->forward)->arg, sizeof a);
    TRY(choose_mask(p, attention, grad, whole, a));
    Value *o = RW(rw, sdpa_lse, a[Q], a[K], a[V], a[MASK], a[CAUSAL], a[SCALE], a[SOFTCAP], a[LOWER], a[UPPER]),
          *dout = o ? incoming(p, o, &m->scale) : NULL;
    if (!dout) return false;
    m->lse = o->def;
    m->result = rw_reshape(rw, o, m->forward->out[0]->rank, m->forward->out[0]->dim);
    Value *g = RW(rw, sdpa_backward, arg_value(dout), a[Q], a[K], a[V], arg_value(o), arg_value(m->lse->out[1]),
                  a[MASK], a[CAUSAL], a[SCALE], a[SOFTCAP], a[LOWER], a[UPPER], arg_bool(rw->g, grad));
    m->backward = g ? g->def : NULL;
    return g != NULL && m->result;
}

/* The pair, and what takes the place of each root. */
static bool build_pair(Pair *p, Made *m, Value **to)
{
    Rewrite *rw = p->rw;
    const Node *attention = attention_of(p);
    if (!attention) return false;
    m->forward = in_graph(rw, attention);
    if (!m->forward)
        return rewrite_refuse(rw,
                              "there is no attention of the same queries, keys, values and mask in the forward pass");
    TRY(make_pair(p, attention, m));
    double come = ex_number(p->grad_form.v->def->arg[3].e) / m->scale, by = ex_number(p->form.v->def->arg[3].e);
    for (int i = 0; i < p->nroots; i++) {
        Root *r = &p->root[i];
        Value *grad = m->backward->out[r->which];
        if (r->which == GRAD_MASK) to[i] = times(rw, rw_reshape(rw, grad, r->from->rank, r->from->dim), come);
        else
            to[i] = as_source(p, r, grad, m->lse->out[0],
                              r->which == GRAD_VALUE ? r->factor / m->scale : r->factor * come / by);
        if (!to[i]) return false;
    }
    return true;
}

/* Roots that became one: the whole gradient of the scores, read several times. */
static int merge_roots(Pair *p, Value **to)
{
    int n = 0;
    for (int i = 0; i < p->nroots; i++) {
        bool again = false;
        for (int k = 0; k < n; k++) again |= p->root[k].from == p->root[i].from;
        if (again) continue;
        to[n] = to[i];
        p->root[n++] = p->root[i];
    }
    return n;
}

/* Bounds that show every query the first key, and no mask. */
static bool shows_a_key(const Node *lse)
{
    const Arg *a = lse->arg; /* mask, is_causal, scale, softcap, lower, upper from the fourth on */
    return a[3].kind == ARG_NONE && a[7].kind == ARG_NONE &&
           (a[8].kind == ARG_NONE || (ex_is_int(a[8].e) && a[8].e->i >= 0));
}

/* An additive mask that may hide a whole row by finite numbers: so low that the logarithm of the row's sum is lost beside them. */
static bool may_swallow(Rewrite *rw, const Node *lse)
{
    const Value *m = lse->arg[3].kind == ARG_VALUE ? through_views(lse->arg[3].v) : NULL;
    const Node *n;
    double shown, hidden;
    if (!m || m->dtype == DT_BOOL) return false;
    n = m->def;
    return !n || n->op->id != OP_where_self || !constant_of(rw->g, &n->arg[1], &shown) ||
           !constant_of(rw->g, &n->arg[2], &hidden) || shown != 0 || !isinf(hidden);
}

static void note_rows(Pair *p, const Node *lse)
{
    Rewrite *rw = p->rw;
    int rows = (int)p->form.v->def->arg[6].e->i;
    bool zero = rw->waiver == WAIVE_ZEROS,
         other = rw->waiver == WAIVE_INPUTS || (p->masked_again && rows == 4) || may_swallow(rw, lse);
    rw->note = NULL;
    rw->waiver = (zero || other) && !shows_a_key(lse) ? WAIVE_INPUTS : WAIVE_NOTHING;
    if (!rw->waiver) return;
    rw->note =
        zero
            ? "gradients of a row without an allowed key are 0; the source gives NaN there, and in all keys and values that the row meets"
            : "gradients of a row whose keys are all hidden may be others than the source's";
}

static bool fire_pair(Pair *p, const Rule *backward, const Rule *forward)
{
    Rewrite *rw = p->rw;
    Value *from[MAX_FORK], *to[MAX_FORK];
    Node *root[MAX_FORK];
    Made m = {0};
    rw->rule = backward;
    rw->note = NULL;
    rw->waiver = WAIVE_NOTHING;
    rw->made_before = rw->nghosts;
    TRY(build_pair(p, &m, to));
    note_rows(p, m.lse);
    if (rw->waiver && rw->o->exact)
        return rewrite_refuse(rw, "gradients of rows without an allowed key would be others (exact_masked_rows)");
    int n = merge_roots(p, to);
    for (int i = 0; i < n; i++) {
        from[i] = p->root[i].from;
        root[i] = from[i]->def;
    }
    TRY(rewrite_fire(rw, backward, n, root, from, to, p->base));
    Waiver waiver = rw->waiver;
    rw->rule = forward;
    rw->note = NULL;
    rw->waiver = waiver;
    Node *old = (Node *)(uintptr_t)m.forward;
    rewrite_fire(rw, forward, 1, &old, old->out, &m.result, NULL);
    return true;
}

/* A forward pass that was decomposed beside a gradient that was not (PyTorch's core decompositions do that): it gives what the gradient's sdpa_lse gives, too. */
static void join_forward(Rewrite *rw, const Rule *rule, Node *lse, bool *changed)
{
    const Arg *a = lse->arg;
    Arg y;
    rw->rule = rule;
    rw->made_before = rw->nghosts;
    Value *plain = RW(rw, scaled_dot_product_attention, a[0], a[1], a[2], a[3], arg_float(rw->g, 0), a[4], a[5],
                      arg_bool(rw->g, a[0].v->dim[1] != a[1].v->dim[1]), a[6], a[7], a[8]);
    for (Node *x = rw->g->first; plain && x && !rw->hard; x = x->next) {
        if (x->op->id != OP_scaled_dot_product_attention) continue;
        bool same = same_attention(rw, x, plain->def);
        if (!same && x->arg[MASK].kind == ARG_VALUE && make_banded(rw, 1, (Arg[]){arg_value(x->out[0])}, &y))
            same = same_attention(rw, y.v->def, plain->def);
        rw->note = NULL;
        rw->waiver = WAIVE_NOTHING;
        Value *result = same ? rw_reshape(rw, lse->out[0], x->out[0]->rank, x->out[0]->dim) : NULL;
        if (!result || !rewrite_fire(rw, rule, 1, &x, x->out, &result, NULL)) continue;
        *changed = true;
        return;
    }
}

bool sdpa_pairs(Rewrite *rw, bool *changed)
{
    Readers readers = {0};
    Rule backward = {.name = sdpa_backward_rule, .phase = "recompose", .index = rw->o->rules->n, .builtin = true},
         forward = backward;
    forward.name = "sdpa_lse";
    bool fresh = false;
    for (Node *n = rw->g->first, *next; n && !rw->hard; n = next) {
        next = n->next;
        Value *form = n->nout == 1 ? rewrite_form(rw, n->out[0], OP_softmax_backward) : NULL;
        if (!form) continue;
        if (!fresh && !find_readers(rw, &readers)) {
            rw->hard = true;
            break;
        }
        fresh = true;
        Pair p = {.rw = rw, .readers = &readers, .ds = n->out[0]};
        rw->why[0] = 0;
        if (find_pair(&p, form) && fire_pair(&p, &backward, &forward)) {
            *changed = true;
            fresh = false;
            next = rw->g->first;
        } else if (rw->why[0] && p.base) {
            Info *info = rewrite_info(rw, p.base);
            info->rule = sdpa_backward_rule;
            info->why = arena_strdup(rw->scratch, rw->why);
        }
    }
    free_readers(&readers);
    for (Node *n = rw->g->first, *next; n && !rw->hard; n = next) {
        next = n->next;
        if (n->op->id == OP_sdpa_lse) join_forward(rw, &forward, n, changed);
    }
    return !rw->hard;
}
