/* Rows as loops of plainer rows. Contract in loops.h, and of the whole in grad.h; which rows: the word LOOPS. */
#include "grad/loops.h"
#include "ir/bodies.h"

static const struct {
    LoopsFn *fn;
    OpId op;
} rows[OP_COUNT] = {
#define LOOPS(f) .fn = loops_##f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* ------------------------------------------------------------------ a loop and its body */

/* What a size outside is called in the body. */
static Expr *size_in(Loop *l, Expr *e)
{
    ExprPool *p = l->in.ex;
    if (ex_is_int(e)) return ex_int(p, e->i);
    for (int i = 0; i < l->nsizes; i++)
        if (l->outer[i] == e) return l->inner[i];
    const char *name = arena_printf(l->in.g->arena, "n%d", l->nsizes);
    Expr *symbol = name && l->nsizes < 2 * LOOP_PARTS ? ex_symbol(p, name) : NULL;
    if (!symbol) return NULL;
    expr_set_range(p, (int)symbol->i, 0, INT64_MAX);
    l->outer[l->nsizes] = e;
    return l->inner[l->nsizes++] = symbol;
}

static Value *input(Loop *l, Value *v)
{
    Expr *dim[MAX_RANK];
    if (!v || l->n == LOOP_PARTS) return NULL;
    for (int i = 0; i < v->rank; i++)
        if (!(dim[i] = size_in(l, v->dim[i]))) return NULL;
    l->outside[l->n++] = v;
    return gd_bind_sizes(l->in.g, graph_add_input(l->in.g, "x", v->dtype, v->rank, dim));
}

Value *loop_carry(Loop *l, Value *v)
{
    l->ncarried++;
    return input(l, v);
}
Value *loop_capture(Loop *l, Value *v) { return input(l, v); }

bool open_loop(Grad *d, Loop *l)
{
    *l = (Loop){.around = d, .in = {.g = graph_create(), .err = d->err}};
    if (!l->in.g) return oom(d->err);
    l->in.ex = l->in.g->ex;
    l->turn = graph_add_input(l->in.g, "turn", DT_I64, 0, NULL);
    l->go = graph_add_input(l->in.g, "go", DT_BOOL, 0, NULL);
    return true;
}

Value *loop_turn(Loop *l)
{
    Grad *b = &l->in;
    return gd_reshape(b, l->turn, 1, (Expr *[]){gd_int(b, 1)});
}

static bool outputs(Loop *l, int n, Value *const *v)
{
    Graph *g = l->in.g;
    for (int i = 0; i < n; i++) {
        char *name = arena_printf(g->arena, "output_%d", g->noutput);
        if (!v[i] || !name) return l->in.err->code == E_OK ? oom(l->in.err) : false;
        TRY(graph_add_output(g, name, v[i], l->in.err));
    }
    return true;
}

Node *close_loop(Loop *l, Expr *limit, Value *first, Value *more, Value *const *next, int nstack, Value *const *stack)
{
    Grad *d = l->around;
    Graph *g = l->in.g;
    bool ok = d->err->code == E_OK && outputs(l, 1, more ? &more : &l->go) && outputs(l, l->ncarried, next) &&
              outputs(l, nstack, stack);
    if (ok) graph_dce(g);
    ok = ok && graph_check(g, d->err);
    if (!ok) {
        graph_free(g);
        if (d->err->code == E_OK) oom(d->err);
        return NULL;
    }
    Arg body = arg_graph(d->g, g);
    if (body.kind != ARG_GRAPH) return oom(d->err), NULL;
    Value **v = l->outside;
    int nc = l->ncarried;
    Arg arg[] = {first ? arg_value(first) : arg_none(), arg_values(d->g, nc, v),
                 arg_values(d->g, l->n - nc, v + nc),   body,
                 limit ? arg_expr(limit) : arg_none(),  arg_bool(d->g, !more)};
    return graph_add_before(d->g, d->at, OP_loop, 6, arg, NULL, d->err);
}

/* ------------------------------------------------------------------ small words */

bool loops_give(Grad *d, int k, Value *y)
{
    y = gd_cast(d, y, d->node->out[k]->dtype);
    if (!y) return d->err->code == E_OK ? oom(d->err) : false;
    graph_replace_uses(d->g, d->node->out[k], y);
    return true;
}

/* ------------------------------------------------------------------ a graph */

bool written_as_loops(Graph *g, Err *err)
{
    Grad d = {.g = g, .ex = g->ex, .err = err, .nleaf = g->next_id};
    bool any = false;
    for (Node *n = g->first; n; n = n->next) {
        for (int i = 0; body_at(n, i); i++) TRY(written_as_loops(body_at(n, i), err));
        if (!rows[n->op->id].fn) continue;
        d.node = d.at = n;
        if (!rows[n->op->id].fn(&d)) return err->code == E_OK ? oom(err) : within(err, "node '%s' as loops", n->name);
        any = true;
    }
    if (any) graph_dce(g);
    return true;
}
