/* Matching patterns against the graph, with backtracking: every alternative, both orders of ops that commute, and the
 * equal forms that derive rules have found. The first match whose guards hold and whose graft can be built wins.
 *
 * Goals are a linked list on the C stack: solve() takes the first, tries its ways, and calls itself with the rest.
 */
#include <math.h>
#include <string.h>
#include "ir/text.h"
#include "rewrite/build.h"
#include "rewrite/rewrite.h"

/* Steps: of one rule at one node, far above what sane rules need. Goals: those that wait at once; they grow with the
 * length of a run. */
enum { MAX_STEPS = 20000, MAX_GOALS = 8192 };

typedef struct Goal {
    const Pat *p;
    const Arg *a;
    Arg own; /* what a is, of an element of a list */
    bool shared, root;
    const Value *axes_of; /* a dim argument: negative ones count from the end of this tensor */
    const struct Goal *next;
} Goal;

typedef struct Matching {
    Rewrite *rw;
    const Rule *rule;
    FireFn *fire;
    Node *root[MAX_FORK];
    int nroots, steps, ngoals;
    Arg bound[MAX_VARS];
    bool has[MAX_VARS];
} Matching;

static bool solve(Matching *m, const Goal *goal);

static int64_t from_front(int64_t d, const Value *of) { return d < 0 ? d + (of->rank ? of->rank : 1) : d; }

static bool number_matches(Matching *m, const Goal *goal)
{
    Expr *e = number_of(m->rw->g, goal->a);
    if (!e || !ex_is_const(e)) return false;
    if (goal->axes_of && e->kind == EX_INT && fabs(goal->p->number) < MAX_RANK)
        return from_front(e->i, goal->axes_of) == from_front((int64_t)goal->p->number, goal->axes_of);
    return ex_number(e) == goal->p->number;
}

static bool bind(Matching *m, int slot, const Arg *a, const Goal *rest)
{
    if (m->has[slot]) return arg_same(&m->bound[slot], a) && solve(m, rest);
    m->has[slot] = true;
    m->bound[slot] = *a;
    if (solve(m, rest)) return true;
    m->has[slot] = false;
    return false;
}

static bool is_default(Matching *m, const Param *p, const Arg *a)
{
    Arg def;
    Err e;
    if (a->kind == ARG_NONE) return true;
    if (!p->def || !strcmp(p->def, "None")) return false;
    if (text_parse_default(m->rw->g, p, &def, &e)) return arg_same(&def, a);
    if (e.code == E_LIMIT) { /* out of memory: no pattern may be passed over for that */
        *m->rw->err = e;
        m->rw->hard = true;
    }
    return false;
}

/* Is it a parameter that names axes of the node's first operand? That operand, else NULL. */
static const Value *axes_of(const Node *n, const Param *p)
{
    const Arg *a = &n->arg[0];
    if ((p->type != PT_INT && p->type != PT_INTS) || (strncmp(p->name, "dim", 3) && strcmp(p->name, "axis")))
        return NULL;
    return a->kind == ARG_VALUE ? a->v : a->kind == ARG_VALUES && a->n ? a->vs[0] : NULL;
}

/* Room for n goals, as a stack: solve_chain gives it back. NULL: too deep. */
static Goal *goals(Matching *m, int n)
{
    Rewrite *rw = m->rw;
    if (!rw->goals && !(rw->goals = arena_alloc(rw->scratch, MAX_GOALS, sizeof(Goal)))) {
        rw->hard = !oom(rw->err);
        return NULL;
    }
    if (m->ngoals + n > MAX_GOALS) {
        rewrite_refuse(rw, "a run of nodes that is too long: it was followed through %d of their arguments", MAX_GOALS);
        return NULL;
    }
    m->ngoals += n;
    return (Goal *)rw->goals + m->ngoals - n;
}

/* The first k of n goals that goals() gave, one after the other, then `rest`. */
static bool solve_chain(Matching *m, Goal *chain, int k, int n, const Goal *rest)
{
    for (int i = 0; i < k; i++) chain[i].next = i + 1 < k ? &chain[i + 1] : rest;
    bool ok = solve(m, k ? chain : rest);
    m->ngoals -= n;
    return ok;
}

/* The parameters of n as goals in front of `rest`; operands 0 and 1 exchanged when `swap`. */
static bool match_params(Matching *m, const Pat *p, const Node *n, bool swap, const Goal *rest)
{
    int k = 0, most = n->op->schema->nparams;
    Goal *chain = goals(m, most);
    if (!chain) return false;
    for (int i = 0; i < most; i++) {
        const Arg *a = &n->arg[swap && i < 2 ? 1 - i : i];
        const Param *param = &n->op->schema->params[i];
        if (!p->param[i]) {
            if (is_default(m, param, a)) continue;
            m->ngoals -= most;
            return false;
        } else if (p->param[i]->kind != P_WILD) {
            chain[k++] = (Goal){.p = p->param[i], .a = a, .axes_of = axes_of(n, param)};
        }
    }
    return solve_chain(m, chain, k, most, rest);
}

/* A node as an instance of an op pattern. */
static bool match_node(Matching *m, const Pat *p, const Node *n, const Goal *rest)
{
    if (match_params(m, p, n, false, rest)) return true;
    return (n->op->flags & OPF_COMMUTES) && match_params(m, p, n, true, rest);
}

static bool match_op(Matching *m, const Goal *goal)
{
    const Pat *p = goal->p;
    if (goal->a->kind != ARG_VALUE) return false;
    Value *v = goal->a->v;
    const Info *info = rewrite_info(m->rw, v);
    if (v->def && v->def->op == p->op && v->out == p->out) {
        bool sole = goal->root || goal->shared || m->rule->derive || info->ghost || info->uses == 1;
        if (!sole) rewrite_refuse(m->rw, "'%s' has %d uses; the rule wants it used once", v->name, info->uses);
        else if (match_node(m, p, v->def, goal->next)) return true;
    }
    if (goal->root) return false;
    for (int i = 0; i < info->nalt; i++) {
        const Value *alt = rewrite_info(m->rw, v)->alt[i];
        if (alt->def && alt->def->op == p->op && alt->out == p->out && match_node(m, p, alt->def, goal->next))
            return true;
    }
    return false;
}

static bool match_list(Matching *m, const Goal *goal)
{
    const Arg *a = goal->a;
    int n = goal->p->n;
    if ((a->kind != ARG_VALUES && a->kind != ARG_EXPRS) || a->n != n) return false;
    Goal *chain = goals(m, n);
    if (!chain) return false;
    for (int i = 0; i < n; i++)
        chain[i] = (Goal){.p = goal->p->sub[i],
                          .a = &chain[i].own,
                          .own = a->kind == ARG_VALUES ? arg_value(a->vs[i]) : arg_expr(a->es[i]),
                          .axes_of = goal->axes_of};
    return solve_chain(m, chain, n, n, goal->next);
}

/* All roots are matched: guards, then the graft. */
static bool finish(Matching *m)
{
    Rewrite *rw = m->rw;
    for (int i = 0; i < m->rule->nwhere; i++) {
        const Where *w = &m->rule->where[i];
        Arg a[16];
        for (int k = 0; k < w->n && k < 16; k++)
            if (!rewrite_graft(rw, w->arg[k], m->bound, m->has, &a[k])) return false;
        rw->called = w->guard->name;
        if (!w->guard->f(rw, w->n, a)) return false;
    }
    return m->fire(rw, m->rule, m->root, m->bound, m->has);
}

typedef struct Users {
    const Value *of;
    int left;
} Users;

static void see_use(void *user, Value **slot)
{
    Users *u = user;
    u->left -= *slot == u->of;
}

/* A value that every root of pattern p must use, as it is captured already; and how many of its uses come after node
 * `at`. False: none is. */
static bool users_after(const Matching *m, const Pat *p, const Node *at, Users *u)
{
    for (int i = 0; p->kind == P_OP && i < p->op->schema->nparams; i++) {
        const Pat *q = p->param[i];
        const Arg *a = q && q->kind == P_CAPTURE && m->has[q->slot] ? &m->bound[q->slot] : NULL;
        if (!a || a->kind != ARG_VALUE || !a->v->def || rewrite_info(m->rw, a->v)->ghost) continue;
        *u = (Users){a->v, rewrite_info(m->rw, a->v)->uses};
        for (Node *n = a->v->def->next; n; n = n->next) {
            node_each_operand(n, see_use, u);
            if (n == at) return true;
        }
    }
    return false;
}

/* The next root of a fork: a later node, so that no set of roots is found twice. */
static bool next_root(Matching *m)
{
    if (m->nroots == m->rule->nroots) return finish(m);
    const Pat *p = m->rule->root[m->nroots], *q = p;
    while (q->kind == P_NAMED || q->kind == P_SHARED) q = q->sub[0];
    const Op *op = q->kind == P_OP ? q->op : NULL;
    Users u = {0};
    bool few = users_after(m, q, m->root[m->nroots - 1], &u);
    for (Node *n = m->root[m->nroots - 1]->next; n && !(few && u.left <= 0); n = n->next) {
        if (few) node_each_operand(n, see_use, &u);
        if (m->rule->out[m->nroots] >= n->nout || (op && op != n->op)) continue;
        Arg a = arg_value(n->out[m->rule->out[m->nroots]]);
        m->root[m->nroots++] = n;
        if (solve(m, &(Goal){.p = p, .a = &a, .root = true})) return true;
        m->nroots--;
        if (m->steps > MAX_STEPS) return false;
    }
    return false;
}

static bool solve(Matching *m, const Goal *goal)
{
    if (!goal) return next_root(m);
    if (m->rw->hard || ++m->steps > MAX_STEPS) return false;
    const Pat *p = goal->p;
    Goal inner = *goal;
    switch (p->kind) {
    case P_WILD: return solve(m, goal->next);
    case P_CAPTURE: return bind(m, p->slot, goal->a, goal->next);
    case P_NUMBER: return number_matches(m, goal) && solve(m, goal->next);
    case P_BOOL:
        return goal->a->kind == ARG_EXPR && goal->a->e->kind == EX_BOOL && (goal->a->e->i != 0) == (p->number != 0) &&
               solve(m, goal->next);
    case P_NONE: return goal->a->kind == ARG_NONE && solve(m, goal->next);
    case P_DTYPE: return goal->a->kind == ARG_DTYPE && goal->a->dtype == p->dtype && solve(m, goal->next);
    case P_TEXT: return goal->a->kind == ARG_STR && !strcmp(goal->a->s, p->text) && solve(m, goal->next);
    case P_LIST: return match_list(m, goal);
    case P_OP: return match_op(m, goal);
    case P_OPT: /* with the op, then without it */
        inner.p = p->sub[0];
        if (solve(m, &inner)) return true;
        inner.p = p->sub[0]->param[0];
        return solve(m, &inner);
    case P_ANY:
        for (int i = 0; i < p->n; i++) {
            inner.p = p->sub[i];
            if (solve(m, &inner)) return true;
        }
        return false;
    case P_SHARED:
        inner.p = p->sub[0];
        inner.shared = true;
        return solve(m, &inner);
    case P_NAMED: {
        /* the name is bound first, so that the inner pattern may mention it */
        inner.p = p->sub[0];
        return bind(m, p->slot, goal->a, &inner);
    }
    }
    return false;
}

bool rewrite_match(Rewrite *rw, const Rule *rule, Node *n, const Node *form, FireFn *fire)
{
    Matching m = {.rw = rw, .rule = rule, .fire = fire, .root = {n}, .nroots = 1};
    if (rule->out[0] >= n->nout || rule->out[0] >= form->nout) return false;
    Arg a = arg_value(form->out[rule->out[0]]);
    return solve(&m, &(Goal){.p = rule->root[0], .a = &a, .root = true});
}
