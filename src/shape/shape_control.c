/* Shapes of loops and branches, from the graphs that they run. Contract in shape.h; the ops: src/op/control.def.
 *
 * A body has symbols of its own. A size that its results share with its inputs is the operand's size outside; any other
 * becomes a new symbol, known when the op has run.
 */
#include "expr/translate.h"
#include "shape/shape_table.h"

/* An operand outside, and what it is called inside. */
typedef struct Pair {
    const Value *outer, *inner;
    const Value *next; /* of a carried value: what the body gives for the next turn; NULL otherwise */
    int sliced;        /* 1: the body gets slices of it along its first axis */
} Pair;

static bool stays(const Pair *p, int d) { return !p->next || p->next->dim[d] == p->inner->dim[d]; }

static bool fits(Shape *s, const Pair *p, const char *what, int at)
{
    const Value *v = p->outer, *w = p->inner;
    if (!v || v->dtype != w->dtype || v->rank != w->rank + p->sliced)
        return fail(s->err, E_FORMAT, "%s %d: found %s of rank %d, the body takes %s of rank %d", what, at,
                    v ? dtype_name(v->dtype) : "nothing", v ? v->rank : 0, dtype_name(w->dtype), w->rank + p->sliced);
    for (int i = 0; i < w->rank; i++)
        if (ex_is_int(w->dim[i])) /* an expression of the body's pool */
            TRY(shape_require_equal(s, v->dim[i + p->sliced], ex_int(s->ex, w->dim[i]->i), "what the body takes"));
    return true;
}

typedef struct Sight {
    const Pair *pair;
    int n;
} Sight;

/* What a size of the body is called outside: the size of an operand that does not change from turn to turn. */
static Expr *seen_outside(void *user, const Expr *inner)
{
    const Sight *v = user;
    for (int i = 0; i < v->n; i++)
        for (int d = 0; v->pair[i].outer && d < v->pair[i].inner->rank; d++)
            if (v->pair[i].inner->dim[d] == inner && stays(&v->pair[i], d))
                return v->pair[i].outer->dim[d + v->pair[i].sliced];
    return NULL;
}

/* A size of a result of the body, outside; NULL where operands do not determine it. */
static Expr *outside(Shape *s, const Pair *pair, int n, const Expr *inner)
{
    Sight all = {pair, n};
    Expr *whole = seen_outside(&all, inner);
    return whole ? whole : expr_translate(s->ex, inner, seen_outside, &all);
}

/* Declares result k; dims that are NULL are new symbols. */
static bool declare(Shape *s, int k, DType t, int rank, Expr **dim)
{
    bool fresh[MAX_RANK];
    for (int i = 0; i < rank; i++) {
        fresh[i] = !dim[i];
        if (fresh[i]) dim[i] = shape_fresh_symbol(s);
        if (!dim[i]) return oom(s->err);
    }
    TRY(shape_out(s, k, t, rank, dim));
    for (int i = 0; i < rank; i++)
        if (fresh[i]) TRY(shape_size_of(s, dim[i], k, i));
    return true;
}

static bool truth_value(Shape *s, const Value *v, const char *what)
{
    return (v && v->dtype == DT_BOOL && v->rank == 0) || fail(s->err, E_FORMAT, "%s must be a bool of rank 0", what);
}

bool shape_loop(Shape *s)
{
    const Arg *carried = shape_arg(s, 1), *captured = shape_arg(s, 2), *limit = shape_arg(s, 4),
              *sequences = shape_arg(s, 6);
    const Graph *body = shape_arg(s, 3)->g;
    Value *cond = shape_value(s, 0);
    if (limit->kind == ARG_EXPR && ex_is_int(limit->e) && limit->e->i > LOOP_MAX_TURNS && !cond &&
        shape_arg(s, 5)->e->i)
        return fail(s->err, E_LIMIT, "a loop of %lld iterations: at most %d are run", (long long)limit->e->i,
                    LOOP_MAX_TURNS);
    int nc = carried->n, ns = nc + sequences->n, n = ns + captured->n, stacked = body->noutput - 1 - nc;
    bool sure;
    Pair *pair = arena_array(s->g->arena, Pair, n + 1);
    if (!pair) return oom(s->err);
    if (body->ninput != n + 2 || stacked < 0)
        return fail(s->err, E_FORMAT, "the body has %d inputs and %d results, expected %d and at least %d",
                    body->ninput, body->noutput, n + 2, nc + 1);
    if (body->input[0]->dtype != DT_I64 || body->input[0]->rank)
        return fail(s->err, E_FORMAT, "the body's first input must be an i64 of rank 0");
    TRY(shape_const_bool(s, 5, &sure) && truth_value(s, body->input[1], "the body's second input") &&
        truth_value(s, body->output[0].value, "the body's first result"));
    if (cond) TRY(truth_value(s, cond, "condition"));
    if (sure && limit->kind != ARG_EXPR)
        return fail(s->err, E_FORMAT, "the loop never ends: it has no limit, and its condition is always true");
    for (int i = 0; i < n; i++) {
        bool carries = i < nc, slices = !carries && i < ns;
        int at = carries ? i : slices ? i - nc : i - ns;
        pair[i] = (Pair){carries  ? carried->vs[at]
                         : slices ? sequences->vs[at]
                                  : captured->vs[at],
                         body->input[2 + i], carries ? body->output[1 + i].value : NULL, slices};
        TRY(fits(s, &pair[i], carries ? "carried value" : slices ? "sequence" : "captured value", at));
        if (slices && limit->kind != ARG_EXPR) return fail(s->err, E_FORMAT, "a loop over sequences without a limit");
        if (slices) TRY(shape_require_equal(s, pair[i].outer->dim[0], limit->e, "the length of a sequence"));
        const Value *next = pair[i].next;
        if (next && (next->dtype != pair[i].inner->dtype || next->rank != pair[i].inner->rank))
            return fail(s->err, E_FORMAT, "carried value %d is %s of rank %d, the body gives %s of rank %d", i,
                        dtype_name(pair[i].inner->dtype), pair[i].inner->rank, dtype_name(next->dtype), next->rank);
    }
    TRY(graph_set_nout(s->g, s->node, nc + stacked, s->err));
    for (int i = 0; i < nc; i++) {
        Expr *dim[MAX_RANK];
        for (int d = 0; d < pair[i].outer->rank; d++) dim[d] = stays(&pair[i], d) ? pair[i].outer->dim[d] : NULL;
        TRY(declare(s, i, pair[i].outer->dtype, pair[i].outer->rank, dim));
    }
    bool counted = sure && limit->kind == ARG_EXPR && !cond;
    for (int i = 0; i < stacked; i++) {
        const Value *v = body->output[1 + nc + i].value;
        Expr *dim[MAX_RANK];
        if (v->rank >= MAX_RANK) return fail(s->err, E_FORMAT, "stacked value %d has rank %d", i, v->rank);
        dim[0] = counted ? ex_max(s->ex, limit->e, ex_int(s->ex, 0)) : NULL;
        for (int d = 0; d < v->rank; d++) dim[1 + d] = outside(s, pair, n, v->dim[d]);
        TRY(declare(s, nc + i, v->dtype, v->rank + 1, dim));
    }
    return true;
}

bool shape_branch(Shape *s)
{
    const Arg *captured = shape_arg(s, 1);
    const Graph *body[] = {shape_arg(s, 2)->g, shape_arg(s, 3)->g};
    Value *cond;
    int n = body[0]->ninput, m = body[1]->ninput;
    TRY(shape_want_value(s, 0, &cond) && truth_value(s, cond, "condition"));
    if (n + m != captured->n)
        return fail(s->err, E_FORMAT, "%d captured values, the branches take %d and %d", captured->n, n, m);
    if (body[0]->noutput != body[1]->noutput)
        return fail(s->err, E_FORMAT, "the branches give %d and %d results", body[0]->noutput, body[1]->noutput);
    Pair *pair = arena_array(s->g->arena, Pair, n + m + 1);
    if (!pair) return oom(s->err);
    for (int i = 0; i < n + m; i++) {
        pair[i] = (Pair){captured->vs[i], i < n ? body[0]->input[i] : body[1]->input[i - n], NULL, 0};
        TRY(fits(s, &pair[i], "captured value", i));
    }
    TRY(graph_set_nout(s->g, s->node, body[0]->noutput, s->err));
    for (int k = 0; k < body[0]->noutput; k++) {
        const Value *a = body[0]->output[k].value, *b = body[1]->output[k].value;
        Expr *dim[MAX_RANK];
        if (a->dtype != b->dtype || a->rank != b->rank)
            return fail(s->err, E_UNSUPPORTED, "result %d is %s of rank %d in one branch, %s of rank %d in the other",
                        k, dtype_name(a->dtype), a->rank, dtype_name(b->dtype), b->rank);
        for (int d = 0; d < a->rank; d++) {
            Expr *p = outside(s, pair, n, a->dim[d]), *q = outside(s, pair + n, m, b->dim[d]);
            dim[d] = p && p == q ? p : NULL;
        }
        TRY(declare(s, k, a->dtype, a->rank, dim));
    }
    return true;
}
