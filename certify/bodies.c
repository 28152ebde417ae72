/* Loops and branches of both graphs: what their bodies are given and give. Contract in certify.h.
 *
 * Two loops are the same where they begin with the same and a turn of theirs makes the same of the same: by induction
 * over turns. Of a body nothing else is known than that its inputs are what another one's are.
 */
#include <string.h>
#include "certify/certify.h"
#include "ir/bodies.h"

enum { CONDITION, CARRIED, CAPTURED, BODY, LIMIT, SURE, SEQUENCES, YES = 2 }; /* arguments of a loop, of a branch */

static bool is_loop(const Twins *r) { return r->a->op->id == OP_loop; }

static int given(const Arg *a) { return a->kind == ARG_VALUES ? a->n : 0; }

/* Which of the values that the source's loop carries is the i-th of the result's; -1: its condition. */
static int carried_of(const Twins *r, int i) { return r->carried ? r->carried[i] : i; }

static bool same_value(const Checker *c, const Value *a, const Value *b)
{
    int class = b ? checker_class(c, RESULT, b) : -1;
    return a && class >= 0 && checker_class(c, SOURCE, a) == class;
}

static bool differ(const Twins *r, const char *what, Err *err)
{
    return fail(err, E_MISMATCH, "'%s' and '%s': %s is not provably the same", r->a->name, r->b->name, what);
}

static bool same_expr(Checker *c, const Arg *a, const Arg *b)
{
    if (a->kind != ARG_EXPR || b->kind != ARG_EXPR) return a->kind == b->kind;
    const Expr *e = checker_expr(c, SOURCE, a->e);
    return e && e == checker_expr(c, RESULT, b->e);
}

/* Do they draw at the same place among the nodes that do, if at all? */
static bool same_draws(const Checker *c, const Twins *r)
{
    int a = r->a->nout ? c->side[SOURCE].drawn[r->a->out[0]->id] : 0;
    int b = r->b->nout ? c->side[RESULT].drawn[r->b->out[0]->id] : 0;
    return a == b && !(a && c->t.single);
}

static bool same_loop(Checker *c, const Twins *r, Err *err)
{
    const Arg *a = r->a->arg, *b = r->b->arg;
    const Value *own = a[CONDITION].kind == ARG_VALUE ? a[CONDITION].v : NULL,
                *other = b[CONDITION].kind == ARG_VALUE ? b[CONDITION].v : NULL;
    if ((own || other) && !same_value(c, own, other)) return differ(r, "the condition", err);
    if (!same_expr(c, &a[LIMIT], &b[LIMIT]) || !same_expr(c, &a[SURE], &b[SURE]))
        return differ(r, "the number of turns", err);
    for (int i = 0; i < given(&b[CARRIED]); i++) {
        int k = carried_of(r, i);
        bool condition = k == -1 && own && !a[SURE].e->i; /* in each turn that runs it is true */
        if (k < -1 || k >= given(&a[CARRIED]) || (k < 0 && !condition) ||
            !same_value(c, k < 0 ? own : a[CARRIED].vs[k], b[CARRIED].vs[i]))
            return differ(r, "what the first turn is given", err);
    }
    bool same = given(&a[SEQUENCES]) == given(&b[SEQUENCES]) &&
                r->a->nout - given(&a[CARRIED]) == r->b->nout - given(&b[CARRIED]);
    for (int i = 0; same && i < given(&a[SEQUENCES]); i++)
        same = same_value(c, a[SEQUENCES].vs[i], b[SEQUENCES].vs[i]);
    return same || differ(r, "a sequence", err);
}

/* The source's result that the k-th of the result is; -1: its condition. */
static int result_of(const Twins *r, int k)
{
    if (!is_loop(r)) return k;
    int own = given(&r->a->arg[CARRIED]), other = given(&r->b->arg[CARRIED]);
    return k < other ? carried_of(r, k) : k - other + own;
}

bool checker_same_operands(Checker *c, const Twins *r, Err *err)
{
    bool branch = r->b->op->id == OP_branch;
    if (r->a->op != r->b->op || !(branch || is_loop(r))) return differ(r, "the op", err);
    if (!same_draws(c, r)) return differ(r, "the order of what draws random numbers", err);
    if (branch && !same_value(c, r->a->arg[CONDITION].v, r->b->arg[CONDITION].v))
        return differ(r, "the condition", err);
    if (branch && r->a->nout != r->b->nout) return differ(r, "the number of results", err);
    TRY(branch || same_loop(c, r, err));
    for (int k = 0; k < r->b->nout; k++) {
        int of = result_of(r, k);
        if (of >= 0 && !checker_same_sizes(c, r->a->out[of], r->b->out[k])) return differ(r, "a result's size", err);
    }
    return true;
}

/* The operand that body i of a node has as its input k; NULL: none, a turn's number or condition. */
static const Value *operand_of(const Node *n, int i, int k)
{
    const Arg *a = n->arg;
    if (n->op->id == OP_branch) return a[CARRIED].vs[k + (i ? body_at(n, 0)->ninput : 0)];
    int at = k - 2, nc = given(&a[CARRIED]), ns = given(&a[SEQUENCES]);
    if (at < 0) return NULL;
    return at < nc ? a[CARRIED].vs[at] : at < nc + ns ? a[SEQUENCES].vs[at - nc] : a[CAPTURED].vs[at - nc - ns];
}

/* How many inputs a body has before those that it captures. */
static int before_captured(const Node *n)
{
    return n->op->id == OP_branch ? 0 : 2 + given(&n->arg[CARRIED]) + given(&n->arg[SEQUENCES]);
}

/* By input of the result's body i: the source's; -1: none. What is captured stands in any order, and once or more. */
static bool pair_inputs(Checker *c, const Twins *r, int i, int *inputs)
{
    const Graph *a = body_at(r->a, i), *b = body_at(r->b, i);
    int nc = given(&r->b->arg[CARRIED]), own = given(&r->a->arg[CARRIED]);
    int first = before_captured(r->a), from = before_captured(r->b);
    if (!c->captured && !(c->captured = arena_array(c->arena, int, c->nclasses + 1))) return false;
    for (int k = 0; k < from; k++) {
        inputs[k] = k < 2 ? k : k < 2 + nc ? 2 + carried_of(r, k - 2) : k - nc + own;
        if (inputs[k] < 2 && k >= 2) inputs[k] = 1; /* the condition */
    }
    for (int k = a->ninput - 1; k >= first; k--) c->captured[checker_class(c, SOURCE, operand_of(r->a, i, k))] = 1 + k;
    for (int k = from; k < b->ninput; k++) {
        int class = checker_class(c, RESULT, operand_of(r->b, i, k)), same = k - from + first;
        bool here = same < a->ninput && class == checker_class(c, SOURCE, operand_of(r->a, i, same));
        inputs[k] = class < 0 ? -1 : here ? same : c->captured[class] - 1;
    }
    for (int k = first; k < a->ninput; k++) c->captured[checker_class(c, SOURCE, operand_of(r->a, i, k))] = 0;
    return true;
}

typedef struct Asked {
    const Checker *c;
    int side;
    bool claimed, infinite;
} Asked;

static void ask_operand(void *user, Value **slot)
{
    Asked *x = user;
    int class = checker_class(x->c, x->side, *slot);
    if (class < 0) return;
    x->claimed |= x->c->claimed[class];
    x->infinite |= x->c->t.infinite[class];
}

bool checker_rests(const Checker *c, const Twins *r)
{
    Asked x = {.c = c, .side = RESULT};
    node_each_operand((Node *)(uintptr_t)r->b, ask_operand, &x);
    return x.claimed;
}

bool checker_enter(Checker *body, Checker *c, const Twins *r, int i, bool claimed, Err *err)
{
    const Graph *a = body_at(r->a, i), *b = body_at(r->b, i);
    int *inputs = arena_array(c->arena, int, b->ninput + 1), *outputs = arena_array(c->arena, int, b->noutput + 1);
    Inside *in = arena_new(c->arena, Inside);
    *body = (Checker){0};
    if (!in || !inputs || !outputs || !pair_inputs(c, r, i, inputs)) return oom(err);
    for (int k = 0; k < b->noutput; k++) /* a loop's condition stands first */
        outputs[k] = !is_loop(r) ? k : k ? 1 + result_of(r, k - 1) : 0;
    Asked x = {.c = c, .side = SOURCE};
    node_each_operand((Node *)(uintptr_t)r->a, ask_operand, &x);
    for (int k = 0; k < r->a->nout; k++) x.infinite |= c->t.infinite[checker_class(c, SOURCE, r->a->out[k])];
    *in = (Inside){inputs, outputs, claimed, x.infinite};
    return checker_open_body(body, a, b, c->t.single, in, err);
}

void checker_leave(Checker *c, Checker *body)
{
    c->laws |= body->laws;
    c->nclaims += body->nclaims;
    checker_close(body);
}

void checker_ran(Checker *c, const Twins *r, bool claimed)
{
    for (int k = 0; k < r->b->nout; k++)
        if (result_of(r, k) >= 0) c->claimed[checker_same(c, r->a->out[result_of(r, k)], r->b->out[k])] |= claimed;
}
