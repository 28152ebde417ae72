/* Gradients of loops and branches: a loop or branch over bodies that compute a turn's results again and then go back
 * over them.
 *
 *     y = branch(c, [x, w], yes, no)        dx, dw = branch(c, [x, w, dy], yes', no')
 *     h, ys = loop([h0], [w], step, [xs])   h, ys, hs = the same loop, which also stacks what each turn began with
 *                                           dh0, dw, dxs = loop([dh, 0], [w], step', flipped [hs, xs, dys])
 *
 * A body's gradient, a "pullback" here, has the body's inputs and gradients of its results, and gives gradients of
 * inputs. The loop back runs from the last turn to the first; gradients of what all turns capture are sums that it
 * carries.
 */
#include <string.h>
#include "grad/grad_impl.h"
#include "ir/bodies.h"
#include "ir/copy.h"

typedef struct Pullback {
    Grad d;       /* of the body's copy */
    Value **seed; /* by result of the body: the input that is its gradient; NULL: it has none */
} Pullback;

static bool floats(DType t) { return dtype_is_float(t) || dtype_is_complex(t); }

static bool draws(const Graph *g)
{
    for (const Node *n = g->first; n; n = n->next) {
        if (n->op->flags & OPF_RANDOM) return true;
        for (int i = 0; body_at(n, i); i++)
            if (draws(body_at(n, i))) return true;
    }
    return false;
}

Value *gd_bind_sizes(Graph *g, Value *v)
{
    for (int i = 0; v && i < v->rank; i++) {
        Symbol *s = v->dim[i]->kind == EX_SYM ? expr_symbol(g->ex, (int)v->dim[i]->i) : NULL;
        if (!s || s->source != SYM_FREE) continue;
        s->source = SYM_INPUT;
        s->value = v;
        s->dim = i;
    }
    return v;
}

Value *gd_body_input(Graph *g, const char *name, DType t, int rank, Expr *const *dim, bool known)
{
    Expr *own[MAX_RANK] = {NULL};
    for (int i = 0; i < rank; i++) {
        own[i] = ex_is_int(dim[i]) ? ex_int(g->ex, dim[i]->i) : dim[i];
        if (ex_is_int(dim[i]) || (known && !ex_data_dependent(g->ex, dim[i]))) continue;
        const char *symbol = arena_printf(g->arena, "g%d", expr_symbol_count(g->ex));
        own[i] = symbol ? ex_symbol(g->ex, symbol) : NULL;
        if (!own[i]) return NULL;
        expr_set_range(g->ex, (int)own[i]->i, 0, INT64_MAX);
    }
    return gd_bind_sizes(g, graph_add_input(g, name, t, rank, own));
}

/* A copy of the body, which the graph around owns, with an input for the gradient of each result that has one. */
static bool open_pullback(Grad *d, const Graph *body, const bool *has, Pullback *p)
{
    Graph *g = graph_copy(body, d->err);
    TRY(g);
    if (arg_graph(d->g, g).kind != ARG_GRAPH) return oom(d->err);
    *p = (Pullback){.d = {.g = g, .ex = g->ex, .err = d->err, .o = d->o}};
    p->seed = arena_array(g->arena, Value *, g->noutput + 1);
    if (!p->seed) return oom(d->err);
    for (int k = 0; k < g->noutput; k++) {
        const Value *v = g->output[k].value;
        if (!has[k]) continue;
        p->seed[k] = gd_body_input(g, "gradient", v->dtype, v->rank, v->dim, true);
        if (!p->seed[k]) return oom(d->err);
    }
    return gd_begin(&p->d);
}

static bool walk(Pullback *p, Value *const *want, int n)
{
    Grad *d = &p->d;
    for (int i = 0; i < n; i++) d->leaf[want[i]->id].wanted = true;
    gd_spread(d);
    for (int k = 0; k < d->g->noutput; k++) {
        const Value *v = d->g->output[k].value;
        if (!p->seed[k] || !d->leaf[v->id].wanted) continue;
        Leaf *l = &d->leaf[v->id];
        l->grad = l->grad ? gd_plus(d, l->grad, p->seed[k]) : p->seed[k];
        TRY(l->grad);
    }
    TRY(gd_walk_back(d));
    d->node = NULL;
    d->g->noutput = 0;
    return true;
}

static bool add_output(Graph *g, Value *v, Err *err)
{
    char *name = v ? arena_printf(g->arena, "output_%d", g->noutput) : NULL;
    if (!name) return err->code == E_OK ? oom(err) : false;
    return graph_add_output(g, name, v, err);
}

/* The finished body as an argument of d's graph. */
static bool close_pullback(Grad *d, Pullback *p, Arg *out)
{
    Graph *g = p->d.g;
    graph_drop_detach(g);
    graph_dce(g);
    *out = (Arg){.kind = ARG_GRAPH, .g = g};
    return graph_check(g, d->err);
}

static bool add_to(Grad *d, Value ***list, int *n, Value *v)
{
    Value **all = arena_array(d->g->arena, Value *, *n + 1);
    if (!all) return oom(d->err);
    if (*n) memcpy(all, *list, (size_t)*n * sizeof *all);
    all[(*n)++] = v;
    *list = all;
    return true;
}

static bool no_draws(Grad *d)
{
    for (int i = 0; body_at(d->node, i); i++)
        if (draws(body_at(d->node, i)))
            return gd_refuse(d, "its graphs draw random numbers, which going back would draw again");
    return true;
}

/* ------------------------------------------------------------------ branches */

/* One half: gives a gradient for each of `want`, values outside; zeros where this half does not read one. */
static bool pull_half(Grad *d, int half, int nwant, Value *const *want, Value ***captured, int *n, Arg *out)
{
    const Node *node = d->node;
    const Graph *body = node->arg[2 + half].g;
    int first = half ? node->arg[2].g->ninput : 0;
    bool *has = arena_array(d->g->arena, bool, node->nout + 1);
    Pullback p;
    if (!has) return oom(d->err);
    for (int k = 0; k < node->nout; k++) has[k] = d->grads[k] != NULL;
    TRY(open_pullback(d, body, has, &p));
    Graph *g = p.d.g;
    Value **inner = arena_array(g->arena, Value *, body->ninput + 1);
    int ninner = 0;
    if (!inner) return oom(d->err);
    for (int i = 0; i < body->ninput; i++) {
        Value *outer = node->arg[1].vs[first + i];
        TRY(add_to(d, captured, n, outer));
        if (gd_wants(d, outer)) inner[ninner++] = g->input[i];
    }
    for (int k = 0; k < node->nout; k++)
        if (has[k]) TRY(add_to(d, captured, n, d->grads[k]));
    TRY(walk(&p, inner, ninner));
    for (int w = 0; w < nwant; w++) {
        Value *sum = NULL;
        for (int i = 0; i < body->ninput; i++) {
            if (node->arg[1].vs[first + i] != want[w]) continue;
            Value *one = gd_gradient_of(&p.d, g->input[i]);
            TRY(one && (sum = sum ? gd_plus(&p.d, sum, one) : one));
        }
        if (!sum) { /* only the other half reads it */
            Value *like = gd_body_input(g, "unread", want[w]->dtype, want[w]->rank, want[w]->dim, false);
            if (!like) return oom(d->err);
            TRY(add_to(d, captured, n, want[w]) && (sum = gd_zeros(&p.d, like->dtype, like->rank, like->dim)));
        }
        TRY(add_output(g, sum, d->err));
    }
    return close_pullback(d, &p, out);
}

bool grad_branch(Grad *d)
{
    const Node *node = d->node;
    const Arg *given = &node->arg[1];
    Value **want = arena_array(d->g->arena, Value *, given->n + 1), **captured = NULL;
    int nwant = 0, n = 0;
    Arg yes, no;
    if (!want) return oom(d->err);
    TRY(no_draws(d));
    for (int i = 0; i < given->n; i++) {
        bool seen = !gd_wants(d, given->vs[i]);
        for (int k = 0; k < nwant && !seen; k++) seen = want[k] == given->vs[i];
        if (!seen) want[nwant++] = given->vs[i];
    }
    TRY(pull_half(d, 0, nwant, want, &captured, &n, &yes) && pull_half(d, 1, nwant, want, &captured, &n, &no));
    Arg arg[] = {node->arg[0], arg_values(d->g, n, captured), yes, no};
    Node *back = graph_add_before(d->g, d->at, OP_branch, 4, arg, arena_printf(d->g->arena, "%s_grad", node->name),
                                  d->err);
    TRY(back);
    for (int i = 0; i < nwant; i++) TRY(gd_send(d, want[i], back->out[i]));
    return true;
}

/* ------------------------------------------------------------------ loops */

typedef struct LoopBack {
    const Node *node; /* the loop, which stacks what its turns begin with */
    const Arg *carried, *captured, *sequences;
    int nc, ns, stacked;
    Expr *turns;
} LoopBack;

/* The loop with a stack of each carried value as further results; it takes the place of the old one. */
static bool keep_turns(Grad *d, LoopBack *b)
{
    const Node *old = d->node;
    Graph *body = graph_copy(old->arg[3].g, d->err);
    TRY(body);
    for (int i = 0; i < b->nc; i++)
        if (!add_output(body, body->input[2 + i], d->err)) {
            graph_free(body);
            return false;
        }
    Arg arg[7];
    memcpy(arg, old->arg, sizeof arg);
    arg[3] = arg_graph(d->g, body);
    if (arg[3].kind != ARG_GRAPH) return oom(d->err);
    b->node = graph_add_before(d->g, (Node *)(uintptr_t)old, OP_loop, 7, arg, old->name, d->err);
    TRY(b->node);
    for (int k = 0; k < old->nout; k++) graph_replace_uses(d->g, old->out[k], b->node->out[k]);
    b->stacked = old->nout - b->nc;
    bool counted = old->arg[0].kind == ARG_NONE && old->arg[5].e->i && old->arg[4].kind == ARG_EXPR;
    b->turns = counted ? old->arg[4].e : b->node->out[old->nout]->dim[0];
    return true;
}

static Value *flipped(Grad *d, Value *v) { return v ? GD(d, flip, V(v), arg_ints(d->g, 1, (int64_t[]){0})) : NULL; }

static bool takes_part(Grad *d, Value *v) { return floats(v->dtype) && gd_wants(d, v); }

static bool loop_back(Grad *d, LoopBack *b)
{
    const Graph *body = b->node->arg[3].g;
    Graph *out = d->g;
    bool *has = arena_array(out->arena, bool, body->noutput + 1);
    Value **carried = NULL, **sequences = NULL, **inner = NULL, **slices = NULL, **want = NULL;
    int nc = 0, ns = 0, ni = 0, nsl = 0, nwant = 0;
    Pullback p;
    if (!has) return oom(d->err);
    for (int i = 0; i < b->nc; i++) has[1 + i] = floats(b->carried->vs[i]->dtype);
    for (int k = 0; k < b->stacked; k++) has[1 + b->nc + k] = d->grads[b->nc + k] != NULL;
    TRY(open_pullback(d, body, has, &p));
    Graph *g = p.d.g;
    Value *turn = g->input[0], *counter = graph_add_input(g, "turn_back", DT_I64, 0, NULL);
    if (!counter) return oom(d->err);
    for (int i = 0; i < b->nc + b->sequences->n; i++) {
        bool slice = i >= b->nc;
        if (!slice ? has[1 + i] : takes_part(d, b->sequences->vs[i - b->nc]))
            TRY(add_to(d, &want, &nwant, g->input[2 + i]));
    }
    for (int i = 0; i < b->captured->n; i++)
        if (takes_part(d, b->captured->vs[i])) TRY(add_to(d, &want, &nwant, g->input[2 + b->nc + b->ns + i]));
    TRY(walk(&p, want, nwant) && graph_add_output(g, "output_0", g->input[1], d->err));
    /* carried back: gradients of carried values, then sums */
    for (int i = 0; i < b->nc; i++) {
        if (!has[1 + i]) continue;
        Value *init = d->grads[i]
                          ? d->grads[i]
                          : gd_zeros(d, b->carried->vs[i]->dtype, b->carried->vs[i]->rank, b->carried->vs[i]->dim);
        TRY(init && add_to(d, &carried, &nc, init) && add_to(d, &inner, &ni, p.seed[1 + i]) &&
            add_output(g, gd_gradient_of(&p.d, g->input[2 + i]), d->err));
    }
    for (int i = 0; i < b->captured->n; i++) {
        Value *outer = b->captured->vs[i], *v = g->input[2 + b->nc + b->ns + i];
        if (!takes_part(d, outer)) continue;
        Value *sum = graph_add_input(g, "sum", v->dtype, v->rank, v->dim);
        if (!sum) return oom(d->err);
        TRY(add_to(d, &carried, &nc, gd_zeros(d, outer->dtype, outer->rank, outer->dim)) && carried[nc - 1] &&
            add_to(d, &inner, &ni, sum) && add_output(g, gd_plus(&p.d, sum, gd_gradient_of(&p.d, v)), d->err));
    }
    /* slices, from the last turn to the first */
    for (int i = 0; i < b->nc; i++)
        TRY(add_to(d, &sequences, &ns, flipped(d, b->node->out[b->nc + b->stacked + i])) &&
            add_to(d, &slices, &nsl, g->input[2 + i]));
    for (int i = 0; i < b->ns; i++)
        TRY(add_to(d, &sequences, &ns, flipped(d, b->sequences->vs[i])) &&
            add_to(d, &slices, &nsl, g->input[2 + b->nc + i]));
    for (int k = 0; k < b->stacked; k++)
        if (has[1 + b->nc + k])
            TRY(add_to(d, &sequences, &ns, flipped(d, d->grads[b->nc + k])) &&
                add_to(d, &slices, &nsl, p.seed[1 + b->nc + k]));
    TRY(add_to(d, &sequences, &ns, flipped(d, gd_arange(d, b->turns))) && add_to(d, &slices, &nsl, turn));
    for (int i = 0; i < ns; i++) TRY(sequences[i]);
    for (int i = 0; i < b->ns; i++)
        if (takes_part(d, b->sequences->vs[i]))
            TRY(add_output(g, gd_gradient_of(&p.d, g->input[2 + b->nc + i]), d->err));
    /* the inputs in a loop's order; each stands there once */
    Value **all = arena_array(g->arena, Value *, ni + nsl + b->captured->n + 3);
    if (!all) return oom(d->err);
    int n = 0;
    all[n++] = counter;
    all[n++] = g->input[1];
    for (int i = 0; i < ni; i++) all[n++] = inner[i];
    for (int i = 0; i < nsl; i++) all[n++] = slices[i];
    for (int i = 0; i < b->captured->n; i++) all[n++] = g->input[2 + b->nc + b->ns + i];
    memcpy(g->input, all, (size_t)n * sizeof *all);
    g->ninput = n;
    Arg back;
    TRY(close_pullback(d, &p, &back));
    Arg arg[] = {arg_none(),
                 arg_values(out, nc, carried),
                 arg_values(out, b->captured->n, b->captured->vs),
                 back,
                 arg_expr(b->turns),
                 arg_bool(out, true),
                 arg_values(out, ns, sequences)};
    Node *made = graph_add_before(out, d->at, OP_loop, 7, arg, arena_printf(out->arena, "%s_grad", d->node->name),
                                  d->err);
    TRY(made);
    int k = 0;
    for (int i = 0; i < b->nc; i++)
        if (has[1 + i]) TRY(gd_send(d, b->carried->vs[i], made->out[k++]));
    for (int i = 0; i < b->captured->n; i++)
        if (takes_part(d, b->captured->vs[i])) TRY(gd_send(d, b->captured->vs[i], made->out[k++]));
    for (int i = 0; i < b->ns; i++)
        if (takes_part(d, b->sequences->vs[i])) TRY(gd_send(d, b->sequences->vs[i], flipped(d, made->out[k++])));
    return true;
}

bool grad_loop(Grad *d)
{
    const Node *n = d->node;
    const Graph *body = n->arg[3].g;
    LoopBack b = {
        .carried = &n->arg[1], .captured = &n->arg[2], .sequences = &n->arg[6], .nc = n->arg[1].n, .ns = n->arg[6].n};
    TRY(no_draws(d));
    for (int i = 0; i < b.nc; i++)
        if (!exprs_same(body->input[2 + i]->rank, body->input[2 + i]->dim, body->output[1 + i].value->dim))
            return gd_refuse(d, "carried value %d changes its sizes from turn to turn", i);
    return keep_turns(d, &b) && loop_back(d, &b);
}
