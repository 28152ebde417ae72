/* Aligning static graphs of one model: one list of steps, each with its node in every file. Contract in
 * generalize_impl.h.
 *
 * Import leaves out what changes nothing: an expand from 1 to 1, a slice of all, a pad by 0. A node that one file lacks
 * is therefore taken for such a one there, if its op can be one:
 *
 *     a: pad(x, [0, 2]), reshape      b: reshape           ->  step pad: a's node; in b the result is x
 */
#include <stdio.h>
#include <string.h>
#include "generalize/generalize_impl.h"
#include "base/mem.h"

enum { LOOK_AHEAD = 8 };

Value *node_operand(const Node *n, int i)
{
    for (int k = 0; k < n->op->schema->nparams; k++) {
        const Arg *a = &n->arg[k];
        if (a->kind == ARG_VALUE && i-- == 0) return a->v;
        for (int m = 0; a->kind == ARG_VALUES && m < a->n; m++)
            if (a->vs[m] && i-- == 0) return a->vs[m];
    }
    return NULL;
}

/* ------------------------------------------------------------------ lists */

static int new_merged(Aligned *a)
{
    if (a->nvalue == a->value_cap) {
        int cap = a->value_cap ? a->value_cap * 2 : 256;
        Merged *grown = mem_grow(a->value, (size_t)cap * sizeof *grown);
        if (!grown) return -1;
        a->value = grown;
        a->value_cap = cap;
    }
    Merged *m = &a->value[a->nvalue];
    *m = (Merged){.weight = false};
    for (int f = 0; f < GEN_FILES; f++) m->prev[f] = -1;
    return a->nvalue++;
}

static void bind_value(Aligned *a, int merged, int f, Value *v)
{
    a->value[merged].in[f] = v;
    a->value[merged].prev[f] = a->of[f][v->id];
    a->of[f][v->id] = merged;
}

static void unbind_value(Aligned *a, int merged, int f)
{
    Merged *m = &a->value[merged];
    a->of[f][m->in[f]->id] = m->prev[f];
    m->in[f] = NULL;
    m->prev[f] = -1;
}

static const Value *weight_called(const Graph *g, const char *fqn)
{
    for (int i = 0; i < g->nweight; i++)
        if (!strcmp(g->weight[i]->fqn, fqn)) return g->weight[i];
    return NULL;
}

/* ------------------------------------------------------------------ operands */

/* The merged value that is v[f] in each of the files 0 .. n-1 (NULL: any); a weight is entered when first used.
 * -1: none, -2: memory. */
static int merged_of(Aligned *a, int n, Value *const *v)
{
    int from = 0;
    while (from < n && !v[from]) from++;
    if (from == n) return -1;
    for (int m = a->of[from][v[from]->id]; m >= 0; m = a->value[m].prev[from]) {
        bool same = true;
        for (int f = from + 1; same && f < n; f++) {
            if (v[f] && !a->value[m].in[f] && a->value[m].weight && v[f]->kind == V_WEIGHT)
                continue; /* entered below */
            same = !v[f] || a->value[m].in[f] == v[f];
        }
        if (!same) continue;
        for (int f = from + 1; f < n; f++)
            if (v[f] && !a->value[m].in[f]) bind_value(a, m, f, v[f]);
        return m;
    }
    for (int f = from; f < n; f++)
        if (v[f] && v[f]->kind != V_WEIGHT) return -1;
    int m = new_merged(a);
    if (m < 0) return -2;
    a->value[m].weight = true;
    for (int f = 0; f < n; f++) {
        Value *w = v[f] ? v[f] : (Value *)(uintptr_t)weight_called(a->file[f], v[from]->fqn);
        if (w) bind_value(a, m, f, w);
    }
    return m;
}

/* Which axes, not how many elements: the same in both. */
static bool same_axes(const Arg *p, const Arg *q)
{
    if (p->kind == ARG_EXPR) return !ex_is_int(p->e) || ex_equals_int(q->e, p->e->i);
    for (int k = 0; p->kind == ARG_EXPRS && k < p->n; k++)
        if (ex_is_int(p->es[k]) && !ex_equals_int(q->es[k], p->es[k]->i)) return false;
    return true;
}

static bool same_args(const Node *x, const Node *y)
{
    if (x->op != y->op || x->nout != y->nout) return false;
    for (int i = 0; i < x->op->schema->nparams; i++) {
        const Arg *p = &x->arg[i], *q = &y->arg[i];
        if (p->kind != q->kind) return false;
        if ((p->kind == ARG_VALUES || p->kind == ARG_EXPRS) && p->n != q->n) return false;
        if (!strncmp(x->op->schema->params[i].name, "dim", 3) && !same_axes(p, q)) return false;
        for (int k = 0; p->kind == ARG_VALUES && k < p->n; k++)
            if (!p->vs[k] != !q->vs[k]) return false;
        if (p->kind == ARG_STR && strcmp(p->s, q->s)) return false;
        if (p->kind == ARG_DTYPE && p->dtype != q->dtype) return false;
        if (p->kind == ARG_GRAPH) return false; /* loops are not looked into */
    }
    return true;
}

/* Operands of node n of file f (NULL: not there) beside the step's nodes of the files before;
 * false when they are not the same values. */
static bool same_operands(Aligned *a, const Step *s, int f, const Node *n, int *operand, bool *memory)
{
    const Node *base = s->node[s->base];
    for (int i = 0; node_operand(base, i); i++) {
        Value *v[GEN_FILES] = {NULL};
        for (int k = 0; k < f; k++)
            if (s->node[k]) v[k] = node_operand(s->node[k], i);
        v[f] = n ? node_operand(n, i) : NULL;
        operand[i] = merged_of(a, f + 1, v);
        if (operand[i] == -2) *memory = true;
        if (operand[i] < 0) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ steps that a file lacks */

/* Can the step's op be one that changes nothing, on a value v of file f? */
static bool may_vanish(const Node *base, const Value *v)
{
    switch (base->op->id) {
    case OP_slice_Tensor: return base->out[0]->rank == v->rank && ex_equals_int(base->arg[4].e, 1);
    case OP_constant_pad_nd: return base->out[0]->rank == v->rank;
    case OP_expand:
    case OP_reshape: return base->out[0]->rank == v->rank;
    default: return false;
    }
}

typedef struct Walk {
    Aligned *a;
    int f;
    Step *out; /* the new list */
    int nout, cap;
    const Step *old; /* the steps of the files before */
    int nold;
    bool memory;
} Walk;

static bool push_step(Walk *w, const Step *s)
{
    if (w->nout == w->cap) {
        int cap = w->cap ? w->cap * 2 : 256;
        Step *grown = mem_grow(w->out, (size_t)cap * sizeof *grown);
        if (!grown) return !(w->memory = true);
        w->out = grown;
        w->cap = cap;
    }
    w->out[w->nout++] = *s;
    return true;
}

static int *operand_list(Aligned *a, const Node *n, int *count)
{
    *count = 0;
    while (node_operand(n, *count)) (*count)++;
    return arena_array(a->arena, int, *count + 1);
}

/* old[i] and node n are one step. */
static bool match(Walk *w, int i, const Node *n)
{
    Aligned *a = w->a;
    Step s = w->old[i];
    if (!same_args(s.node[s.base], n)) return false;
    int *operand = operand_list(a, n, &s.noperand);
    if (!operand) return !(w->memory = true);
    if (!same_operands(a, &s, w->f, n, operand, &w->memory)) return false;
    s.node[w->f] = n;
    s.operand = operand;
    for (int k = 0; k < n->nout; k++) bind_value(a, s.out + k, w->f, n->out[k]);
    return push_step(w, &s);
}

/* old[i] changes nothing in file f. */
static bool skip_old(Walk *w, int i)
{
    Aligned *a = w->a;
    Step s = w->old[i];
    int *operand = operand_list(a, s.node[s.base], &s.noperand);
    if (!operand) return !(w->memory = true);
    if (!same_operands(a, &s, w->f, NULL, operand, &w->memory)) return false;
    Value *v = a->value[operand[0]].in[w->f];
    if (!v && a->value[operand[0]].weight) {
        v = (Value *)(uintptr_t)weight_called(a->file[w->f], a->value[operand[0]].in[s.base]->fqn);
        if (v) bind_value(a, operand[0], w->f, v);
    }
    if (!v || !may_vanish(s.node[s.base], v)) return false;
    s.operand = operand;
    bind_value(a, s.out, w->f, v);
    return push_step(w, &s);
}

/* Node n changes nothing in the files before f. */
static bool skip_new(Walk *w, const Node *n)
{
    Aligned *a = w->a;
    Step s = {.base = w->f};
    s.node[w->f] = n;
    int *operand = operand_list(a, n, &s.noperand);
    if (!operand) return !(w->memory = true);
    if (!same_operands(a, &s, w->f, n, operand, &w->memory)) return false;
    for (int f = 0; f < w->f; f++)
        if (!a->value[operand[0]].in[f] || !may_vanish(n, a->value[operand[0]].in[f])) return false;
    s.operand = operand;
    s.out = new_merged(a);
    if (s.out < 0) return !(w->memory = true);
    for (int f = 0; f <= w->f; f++) bind_value(a, s.out, f, f < w->f ? a->value[operand[0]].in[f] : n->out[0]);
    return push_step(w, &s);
}

static void undo_skip(Walk *w, bool inserted)
{
    const Step *s = &w->out[--w->nout];
    for (int f = inserted ? 0 : w->f; f <= w->f; f++) unbind_value(w->a, s->out, f);
}

/* ------------------------------------------------------------------ repeats */

/* repeat and repeat_interleave are a reshape that adds axes of 1, an expand of those, and a reshape; by 1 they are
 * nothing. What stands between has no node in the file f that lacks them; it gets a value of its shape there. */

static bool is_repeat(const Node *a, const Node *b, const Node *c)
{
    if (!a || !b || !c || a->op->id != OP_reshape || b->op->id != OP_expand || c->op->id != OP_reshape) return false;
    return b->arg[0].v == a->out[0] && c->arg[0].v == b->out[0] && a->out[0]->rank == b->out[0]->rank &&
           c->out[0]->rank == a->arg[0].v->rank;
}

/* x of file f with the axes of 1 that the reshape adds; NULL when it does something else. */
static Value *with_ones(Aligned *a, int f, const Node *reshape, const Value *x)
{
    const Value *from = reshape->arg[0].v, *to = reshape->out[0];
    Value *v = arena_new(a->arena, Value);
    Expr **dim = arena_array(a->arena, Expr *, to->rank + 1);
    int at = 0;
    if (!v || !dim) return NULL;
    for (int d = 0; d < to->rank; d++) {
        bool added = at == from->rank || (ex_equals_int(to->dim[d], 1) && !ex_equals_int(from->dim[at], 1));
        if (!added && to->dim[d]->i != from->dim[at]->i) return NULL;
        dim[d] = added ? ex_int(a->file[f]->ex, 1) : x->dim[at++];
        if (added && !ex_equals_int(to->dim[d], 1)) return NULL;
    }
    if (at != from->rank) return NULL;
    *v = (Value){.name = to->name, .kind = V_NODE, .dtype = x->dtype, .rank = to->rank, .dim = dim};
    return v;
}

/* old[i .. i + 2] are a repeat by 1 in file f. */
static bool skip_repeat(Walk *w, int i)
{
    Aligned *a = w->a;
    if (i + 3 > w->nold) return false;
    const Step *old = &w->old[i];
    if (!is_repeat(old[0].node[old[0].base], old[1].node[old[0].base], old[2].node[old[0].base])) return false;
    int n, *operand = operand_list(a, old[0].node[old[0].base], &n);
    if (!operand) return !(w->memory = true);
    if (!same_operands(a, &old[0], w->f, NULL, operand, &w->memory)) return false;
    Value *x = a->value[operand[0]].in[w->f], *between = x && x->rank == old[0].node[old[0].base]->arg[0].v->rank
                                                             ? with_ones(a, w->f, old[0].node[old[0].base], x)
                                                             : NULL;
    if (!between) return false;
    for (int k = 0; k < 3; k++) {
        Step s = old[k];
        int *mine = arena_array(a->arena, int, 2);
        if (!mine) return !(w->memory = true);
        mine[0] = k ? old[k - 1].out : operand[0];
        s.operand = mine;
        if (k < 2) a->value[s.out].in[w->f] = between;
        else bind_value(a, s.out, w->f, x);
        if (!push_step(w, &s)) return false;
    }
    return true;
}

/* Nodes n, n->next and the next are a repeat by 1 in the files before f. */
static bool skip_new_repeat(Walk *w, const Node *n)
{
    Aligned *a = w->a;
    const Node *node[3] = {n, n->next, n->next ? n->next->next : NULL};
    if (!is_repeat(node[0], node[1], node[2])) return false;
    Step s = {.base = w->f};
    s.node[w->f] = n;
    int *operand = operand_list(a, n, &s.noperand);
    if (!operand) return !(w->memory = true);
    if (!same_operands(a, &s, w->f, n, operand, &w->memory)) return false;
    Value *between[GEN_FILES] = {NULL};
    for (int f = 0; f < w->f; f++) {
        Value *x = a->value[operand[0]].in[f];
        if (!x || x->rank != n->arg[0].v->rank || !(between[f] = with_ones(a, f, n, x))) return false;
    }
    for (int k = 0; k < 3; k++) {
        Step t = {.base = w->f, .noperand = 1, .operand = arena_array(a->arena, int, 2), .out = new_merged(a)};
        if (!t.operand || t.out < 0) return !(w->memory = true);
        t.node[w->f] = node[k];
        t.operand[0] = k ? t.out - 1 : operand[0];
        bind_value(a, t.out, w->f, node[k]->out[0]);
        for (int f = 0; f < w->f; f++) {
            if (k < 2) a->value[t.out].in[f] = between[f];
            else bind_value(a, t.out, f, a->value[operand[0]].in[f]);
        }
        if (!push_step(w, &t)) return false;
    }
    return true;
}

static void undo_repeat(Walk *w, bool inserted)
{
    for (int k = 2; k >= 0; k--) {
        const Step *s = &w->out[--w->nout];
        if (inserted) unbind_value(w->a, s->out, w->f);
        for (int f = inserted ? 0 : w->f; f < w->f + !inserted; f++) {
            if (k == 2) unbind_value(w->a, s->out, f);
            else w->a->value[s->out].in[f] = NULL;
        }
    }
}

/* The next pair from old[*i] and *n on, with at most `depth` steps before it that only one side has. */
static bool next_pair(Walk *w, int *i, const Node **n, int depth)
{
    if (*i == w->nold && !*n) return true;
    if (*i < w->nold && *n && match(w, *i, *n)) {
        (*i)++;
        *n = (*n)->next;
        return true;
    }
    if (!depth || w->memory) return false;
    if (*i < w->nold && skip_repeat(w, *i)) {
        *i += 3;
        if (next_pair(w, i, n, depth - 1)) return true;
        *i -= 3;
        undo_repeat(w, false);
    }
    if (*n && !w->memory && skip_new_repeat(w, *n)) {
        const Node *at = *n;
        *n = at->next->next->next;
        if (next_pair(w, i, n, depth - 1)) return true;
        *n = at;
        undo_repeat(w, true);
    }
    if (*i < w->nold && skip_old(w, *i)) {
        (*i)++;
        if (next_pair(w, i, n, depth - 1)) return true;
        (*i)--;
        undo_skip(w, false);
    }
    if (*n && !w->memory && skip_new(w, *n)) {
        const Node *at = *n;
        *n = at->next;
        if (next_pair(w, i, n, depth - 1)) return true;
        *n = at;
        undo_skip(w, true);
    }
    return false;
}

/* ------------------------------------------------------------------ what differs */

static bool has_size_one(const Graph *g)
{
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++)
            if (ex_equals_int(g->input[i]->dim[d], 1)) return true;
    return false;
}

static const char *advice(const Aligned *a, int f)
{
    if (has_size_one(a->file[0]) || has_size_one(a->file[f]))
        return "export with sizes of 2 or more: a size of 1 takes paths of its own";
    int x = a->file[0]->nnodes, y = a->file[f]->nnodes;
    if (x > y + y / 4 || y > x + x / 4)
        return "the number of nodes depends on the size: a Python loop or branch over it; write it with tensor ops";
    return "a Python branch on a size went two ways (export at sizes on one side of it), or these are different models";
}

static void node_text(const Node *n, char *out, size_t size)
{
    if (n) snprintf(out, size, "node '%s' (%s)", n->name, n->op->name);
    else snprintf(out, size, "no further node");
}

static bool say_difference(Walk *w, int i, const Node *n, Err *err)
{
    Aligned *a = w->a;
    char x[320], y[320];
    if (w->memory) return oom(err);
    node_text(i < w->nold ? w->old[i].node[w->old[i].base] : NULL, x, sizeof x);
    node_text(n, y, sizeof y);
    a->differs = arena_printf(a->arena, "structure differs: %s has %s where %s has %s: %s", a->file_name[0], x,
                              a->file_name[w->f], y, advice(a, w->f));
    return a->differs || oom(err);
}

static bool say(Aligned *a, Err *err, const char *text)
{
    a->differs = text ? arena_strdup(a->arena, text) : NULL;
    return a->differs || oom(err);
}

/* Inputs by name, dtype and rank; outputs and written buffers by number. */
static bool same_signature(Aligned *a, int f, Err *err)
{
    const Graph *g = a->file[0], *h = a->file[f];
    const char *first = a->file_name[0], *other = a->file_name[f];
    if (g->ninput != h->ninput || g->nscalar_input != h->nscalar_input)
        return say(a, err,
                   arena_printf(a->arena, "structure differs: %s has %d inputs, %s has %d", first,
                                g->ninput + g->nscalar_input, other, h->ninput + h->nscalar_input));
    for (int i = 0; i < g->ninput; i++) {
        const Value *x = g->input[i], *y = h->input[i];
        if (strcmp(x->name, y->name) || x->dtype != y->dtype || x->rank != y->rank)
            return say(
                a, err,
                arena_printf(a->arena,
                             "structure differs: input %d is '%s', %s of rank %d, in %s and '%s', %s of rank %d, in %s",
                             i, x->name, dtype_name(x->dtype), x->rank, first, y->name, dtype_name(y->dtype), y->rank,
                             other));
    }
    if (g->noutput != h->noutput || g->nscalar_output != h->nscalar_output || g->nmutation != h->nmutation ||
        g->ninput_mutation != h->ninput_mutation)
        return say(a, err,
                   arena_printf(
                       a->arena,
                       "structure differs: %s has %d outputs and writes %d buffers and inputs, %s has %d and writes %d",
                       first, g->noutput, graph_mutations(g), other, h->noutput, graph_mutations(h)));
    return true;
}

/* ------------------------------------------------------------------ files */

static bool first_file(Aligned *a, Err *err)
{
    const Graph *g = a->file[0];
    Walk w = {.a = a};
    for (int i = 0; i < g->ninput; i++) {
        int m = new_merged(a);
        if (m < 0) return oom(err);
        bind_value(a, m, 0, g->input[i]);
    }
    bool ok = true;
    for (const Node *n = g->first; ok && n; n = n->next) {
        Step s = {.node = {n}};
        s.operand = operand_list(a, n, &s.noperand);
        ok = s.operand && same_operands(a, &s, 0, n, s.operand, &w.memory);
        s.out = a->nvalue;
        for (int k = 0; ok && k < n->nout; k++) {
            int m = new_merged(a);
            ok = m >= 0;
            if (ok) bind_value(a, m, 0, n->out[k]);
        }
        ok = ok && push_step(&w, &s);
    }
    a->step = w.out;
    a->nstep = w.nout;
    return ok || oom(err);
}

static bool further_file(Aligned *a, int f, Err *err)
{
    const Graph *g = a->file[f];
    if (!same_signature(a, f, err)) return false;
    if (a->differs) return true;
    for (int i = 0; i < g->ninput; i++) bind_value(a, i, f, g->input[i]);
    Walk w = {.a = a, .f = f, .old = a->step, .nold = a->nstep};
    int i = 0;
    const Node *n = g->first;
    bool ok = true;
    while (ok && (i < w.nold || n)) {
        ok = false;
        for (int depth = 0; !ok && depth <= LOOK_AHEAD && !w.memory; depth++) ok = next_pair(&w, &i, &n, depth);
    }
    bool told = ok || say_difference(&w, i, n, err);
    mem_free(a->step);
    a->step = w.out;
    a->nstep = w.nout;
    return told;
}

/* Outputs and the new values of buffers, over all files. */
static bool ends(Aligned *a, Err *err)
{
    const Graph *g = a->file[0];
    a->output = arena_array(a->arena, int, g->noutput + 1);
    a->mutation = arena_array(a->arena, int, 2 * graph_mutations(g) + 1);
    if (!a->output || !a->mutation) return oom(err);
    for (int i = 0; i < g->noutput; i++) {
        Value *v[GEN_FILES] = {NULL};
        for (int f = 0; f < a->nfiles; f++) v[f] = a->file[f]->output[i].value;
        a->output[i] = merged_of(a, a->nfiles, v);
        if (a->output[i] < 0)
            return say(a, err,
                       arena_printf(a->arena, "structure differs: '%s' comes from different nodes", g->output[i].name));
    }
    for (int i = 0; i < graph_mutations(g); i++)
        for (int side = 0; side < 2; side++) {
            Value *v[GEN_FILES] = {NULL};
            for (int f = 0; f < a->nfiles; f++)
                v[f] = side ? graph_mutation(a->file[f], i)->value : graph_mutation(a->file[f], i)->target;
            a->mutation[2 * i + side] = merged_of(a, a->nfiles, v);
            if (a->mutation[2 * i + side] < 0)
                return say(a, err,
                           arena_printf(a->arena, "structure differs: '%s' is written from different nodes",
                                        graph_mutation(g, i)->target->name));
        }
    return true;
}

bool align_graphs(Aligned *a, Err *err)
{
    for (int f = 0; f < a->nfiles; f++) {
        a->of[f] = mem_alloc(((size_t)a->file[f]->next_id + 1) * sizeof *a->of[f]);
        if (!a->of[f]) return oom(err);
        for (int i = 0; i <= a->file[f]->next_id; i++) a->of[f][i] = -1;
    }
    TRY(first_file(a, err));
    for (int f = 1; f < a->nfiles && !a->differs; f++) TRY(further_file(a, f, err));
    return a->differs || ends(a, err);
}

void align_free(Aligned *a)
{
    for (int f = 0; f < GEN_FILES; f++) mem_free(a->of[f]);
    mem_free(a->step);
    mem_free(a->value);
}
