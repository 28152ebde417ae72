/* Building plans. Contract in plan.h. */
#include "plan/plan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "plan/layout.h"
#include "plan/memory.h"
#include "plan/plan_impl.h"
#include "plan/view_table.h"

enum { VIEWS_BYTES = 1 << 16 }; /* of arguments of views, before they are freed */

static const struct {
    ViewFn *fn;
    OpId op;
} view_table[OP_COUNT] = {
#define VIEW(f) .fn = view_##f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* ------------------------------------------------------------------ calls */

static bool call_arg(Arena *a, const Graph *g, const Arg *from, Tensor *const *value, const Binding *b, CallArg *to,
                     Err *err)
{
    *to = (CallArg){.kind = from->kind, .n = from->n};
    switch (from->kind) {
    case ARG_VALUE: to->t = value[from->v->id]; break;
    case ARG_EXPR: return ex_eval(g->ex, from->e, b, &to->s, err);
    case ARG_STR: to->str = from->s; break;
    case ARG_DTYPE: to->dtype = from->dtype; break;
    case ARG_VALUES:
        to->ts = arena_array(a, Tensor *, from->n + 1);
        if (!to->ts) return oom(err);
        for (int i = 0; i < from->n; i++) to->ts[i] = from->vs[i] ? value[from->vs[i]->id] : NULL;
        break;
    case ARG_EXPRS:
        to->ss = arena_array(a, Scalar, from->n + 1);
        if (!to->ss) return oom(err);
        for (int i = 0; i < from->n; i++) TRY(ex_eval(g->ex, from->es[i], b, &to->ss[i], err));
        break;
    default: break;
    }
    return true;
}

bool plan_call(Arena *a, const Graph *g, const Node *n, Tensor *const *value, const Binding *b, Call *c, Err *err)
{
    int np = n->op->schema->nparams;
    *c = (Call){.node = n,
                .arg = arena_array(a, CallArg, np),
                .nout = n->nout,
                .out = arena_array(a, Tensor *, n->nout + 1)};
    if (!c->arg || !c->out) return oom(err);
    for (int i = 0; i < np; i++)
        TRY(call_arg(a, g, &n->arg[i], value, b, &c->arg[i], err) ||
            within(err, "argument '%s'", n->op->schema->params[i].name));
    return true;
}

/* ------------------------------------------------------------------ building */

static void mark_need(void *user, Value **slot) { ((unsigned char *)user)[(*slot)->id] = 1; }

/* What is wanted and what that is computed from; and every draw before the last that is, or in a run of the whole graph
 * every draw, whoever reads it: the generator gives its numbers in the order of the nodes. How many nodes the plan will
 * have at most. */
static size_t find_needed(Builder *s)
{
    bool draws = !s->in->wanted;
    size_t count = 0;
    if (s->in->wanted) memcpy(s->need, s->in->wanted, (size_t)s->g->next_id);
    else {
        for (int i = 0; i < s->g->noutput; i++) s->need[s->g->output[i].value->id] = 1;
        for (int i = 0; i < s->g->nmutation; i++) s->need[s->g->mutation[i].value->id] = 1;
    }
    for (Node *n = s->g->last; n; n = n->prev) {
        bool used = false, random = n->op->flags & OPF_RANDOM;
        if (random && draws) s->need[n->out[0]->id] = 1;
        for (int k = 0; k < n->nout; k++) used |= s->need[n->out[k]->id] && !s->in->given[n->out[k]->id];
        if (used) node_each_operand(n, mark_need, s->need);
        draws |= used && random;
        count += used || !n->nout;
    }
    return count;
}

typedef struct AllOf {
    const unsigned char *set;
    bool all;
} AllOf;

static void check_all(void *user, Value **slot)
{
    AllOf *a = user;
    a->all &= a->set[(*slot)->id] != 0;
}

static bool all_operands(const Node *n, const unsigned char *set)
{
    AllOf a = {set, true};
    node_each_operand((Node *)(uintptr_t)n, check_all, &a);
    return a.all;
}

static Tensor *tensor_for(Builder *s, const Value *v)
{
    Tensor *t = s->growing && v->def ? growing_tensor(s, v) : arena_new(s->p->arena, Tensor);
    if (!t) oom(s->err);
    return t;
}

static Tensor *new_tensor(Builder *s, const Value *v)
{
    Tensor *t = tensor_for(s, v);
    if (!t) return NULL;
    t->dtype = v->dtype;
    t->rank = v->rank;
    for (int i = 0; i < v->rank; i++) {
        if (!ex_eval_i64(s->g->ex, v->dim[i], s->b, &t->shape[i], s->err)) {
            within(s->err, "size %d of '%s'", i, v->name);
            return NULL;
        }
        if (t->shape[i] < 0) {
            fail(s->err, E_USAGE, "size %d of '%s' evaluates to %lld", i, v->name, (long long)t->shape[i]);
            return NULL;
        }
    }
    strides_contiguous(t->rank, t->shape, t->stride);
    return t;
}

/* Number of the input that v is grown from; -1: v is not grown. */
static int grown_from(const Builder *s, const Value *v)
{
    for (int i = 0; s->in->grown && i < s->g->ninput; i++)
        if (s->in->grown[i].result == v) return i;
    return -1;
}

static bool add_given(Builder *s, Value *v)
{
    const Tensor *t = s->in->given[v->id];
    if (!t || s->p->value[v->id]) return true;
    Tensor *copy = arena_new(s->p->arena, Tensor);
    if (!copy) return oom(s->err);
    *copy = *t;
    s->p->value[v->id] = copy;
    int slot = s->in->slot ? s->in->slot[v->id] : 0;
    s->p->place[v->id] = slot ? (Place){HOME_INPUT, s->g->ninput + slot - 1, 0} : (Place){HOME_GIVEN, 0, 0};
    s->stable[v->id] = s->constant[v->id] = s->in->stable[v->id];
    return true;
}

static bool add_inputs(Builder *s)
{
    for (int i = 0; i < s->g->ninput; i++) {
        Value *v = s->g->input[i];
        if (!s->need[v->id] || s->in->given[v->id])
            continue; /* sizes of inputs may not be bound yet when constants are folded */
        Tensor *t = new_tensor(s, v);
        TRY(t);
        if (s->in->grown && s->in->grown[i].result) strides_with_room(t, s->in->grown[i].axis, s->in->grown[i].room);
        if (s->growing) t->data = s->address[i];
        s->p->value[v->id] = t;
        s->p->place[v->id] = (Place){HOME_INPUT, i, 0};
    }
    return true;
}

/* Memory that the plan owns, beside the arena: its number, or -1. */
int builder_owned(Builder *s, size_t bytes, bool kept)
{
    Plan *p = s->p;
    size_t *sizes = vec_grow(p->const_size, p->nconst, sizeof *sizes);
    if (sizes) p->const_size = sizes;
    bool *list = sizes ? vec_grow(p->const_kept, p->nconst, sizeof *list) : NULL;
    if (!list) {
        oom(s->err);
        return -1;
    }
    p->const_kept = list;
    p->const_size[p->nconst] = bytes;
    p->const_kept[p->nconst] = kept;
    return p->nconst++;
}

/* Room for a result: a block of its own. */
static bool add_storage(Builder *s, const Value *v, Tensor *t, bool constant)
{
    size_t bytes;
    TRY(shape_bytes(t->dtype, t->rank, t->shape, &bytes, s->err) || within(s->err, "'%s'", v->name));
    if (s->growing) return growing_storage(s, v, t, bytes);
    if (constant) {
        int at = builder_owned(s, bytes, false);
        s->p->place[v->id] = (Place){HOME_CONST, at, 0};
        return at >= 0;
    }
    Block *block = vec_grow(s->p->block, s->p->nblock, sizeof *block);
    if (!block) return oom(s->err);
    s->p->block = block;
    block[s->p->nblock] = (Block){.size = bytes, .first = s->p->nsteps, .last = s->p->nsteps};
    s->p->place[v->id] = (Place){HOME_ARENA, s->p->nblock++, 0};
    return true;
}

/* Makes n a view if it can be one. Its first element is kept relative to its parent's storage;
 * tensors carry a fake base while the plan is built. */
static bool try_view(Builder *s, const Node *n, Call *c, bool *made)
{
    ViewFn *f = view_table[n->op->id].fn;
    *made = false;
    if (!f || c->arg[0].kind != ARG_VALUE) return true;
    Value *from = n->arg[0].v, *to = n->out[0];
    Tensor probe = *c->arg[0].t, seen = {0};
    void *real = probe.data;
    probe.data = (void *)(uintptr_t)0x100000000000u; /* any non-null base: only the difference counts */
    CallArg first = c->arg[0];
    c->arg[0].t = &probe;
    bool ok = f(c, &seen);
    c->arg[0] = first;
    if (!ok) return true;
    size_t bytes;
    TRY(shape_bytes(seen.dtype, seen.rank, seen.shape, &bytes, s->err));
    ptrdiff_t shift = bytes ? (ptrdiff_t)((uintptr_t)seen.data - (uintptr_t)probe.data) : 0;
    if (!view_within(&probe, &seen, shift))
        return fail(s->err, E_USAGE, "with these sizes it reaches beyond its tensor");
    seen.data = real ? (char *)real + shift : NULL;
    Tensor *t = tensor_for(s, to);
    TRY(t);
    *t = seen;
    Place place = s->p->place[from->id];
    place.offset += (size_t)shift;
    s->p->value[to->id] = t;
    s->p->place[to->id] = place;
    s->stable[to->id] = s->stable[from->id];
    if (s->growing) growing_view(s, to);
    return *made = true;
}

/* How many axes of x after the first are K together, if its first is G, and the others are N; 0: none. */
static int axes_along(const Tensor *x, const Tensor *b)
{
    int64_t K = 1, N = 1;
    int along = 0;
    if (x->shape[0] != b->shape[0]) return 0;
    while (along + 2 < x->rank && K < b->shape[1]) K *= x->shape[++along];
    for (int i = along + 1; i < x->rank; i++) N *= x->shape[i];
    return K == b->shape[1] && N == b->shape[2] ? along : 0;
}

/* Leaves the copy out that n, of windows, would be. */
static bool try_windows(Builder *s, const Node *n, const Call *c, bool *made)
{
    Value *from = n->arg[0].v, *to = n->out[0];
    const Tensor *x = c->arg[0].t;
    Tensor *t = new_tensor(s, to);
    TRY(t);
    bool wanted = s->leaves[to->id] || (s->in->wanted && s->in->wanted[to->id]);
    if (wanted || tensor_numel(t) == 0 || !axes_along(x, t)) return true;
    t->stride[0] = x->stride[0], t->stride[1] = t->stride[2] = 0;
    t->data = x->data;
    s->windows[to->id] = x;
    s->p->value[to->id] = t;
    s->p->place[to->id] = s->p->place[from->id];
    s->stable[to->id] = s->stable[from->id];
    return *made = true;
}

/* Plans keep no arguments of a view. */
static bool as_view(Builder *s, const Node *n, bool windows, bool *made)
{
    Call c;
    if (s->views && arena_used(s->views) > VIEWS_BYTES) {
        arena_destroy(s->views);
        s->views = NULL;
    }
    if (!s->views && !(s->views = arena_create(0))) return oom(s->err);
    TRY(plan_call(s->views, s->g, n, s->p->value, s->b, &c, s->err));
    TRY(try_view(s, n, &c, made));
    return *made || !windows || try_windows(s, n, &c, made);
}

static void touch(Builder *s, const Value *v, int step)
{
    Place pl = s->p->place[v->id];
    if (pl.home == HOME_ARENA && s->p->block[pl.index].last < step) s->p->block[pl.index].last = step;
}

typedef struct Toucher {
    Builder *s;
    int step;
    bool constant;
} Toucher;

static void touch_operand(void *user, Value **slot)
{
    Toucher *t = user;
    touch(t->s, *slot, t->step);
    Place pl = t->s->p->place[(*slot)->id];
    if (pl.home == HOME_CONST && !t->constant) t->s->p->const_kept[pl.index] = true;
}

typedef struct InBlock {
    const Plan *p;
    int block;
    bool any;
} InBlock;

static void look_in_block(void *user, Value **slot)
{
    InBlock *b = user;
    Place pl = b->p->place[(*slot)->id];
    b->any |= pl.home == HOME_ARENA && pl.index == b->block;
}

/* The block of a convolution's residual if the result may take its place: it is laid out the same way, and the
 * convolution reads nothing else there. */
static int taken_place(const Builder *s, const Node *n, const FusedNode *fused, const Call *c)
{
    const Tensor *r = c->epilogue.residual, *t = call_out(c, 0);
    if (!r || n->op->id != OP_convolution || r->dtype != t->dtype ||
        memcmp(r->stride, t->stride, (size_t)t->rank * sizeof *t->stride))
        return -1;
    Place pl = s->p->place[fused->residual->id];
    if (pl.home != HOME_ARENA || pl.offset) return -1;
    InBlock b = {s->p, pl.index, false};
    node_each_operand((Node *)(uintptr_t)n, look_in_block, &b);
    return b.any || s->p->block[pl.index].size != tensor_bytes(t) ? -1 : pl.index;
}

/* Results that take the place of a residual which is not needed any more. */
static bool take_places(Builder *s)
{
    Plan *p = s->p;
    int *moved = mem_zeroed((size_t)p->nblock + 1, sizeof *moved); /* by block: 1 + the block that took it up */
    if (!moved) return oom(s->err);
    for (int i = 0; i < p->nsteps; i++) {
        if (p->step[i].takes < 0) continue;
        int from = p->place[p->step[i].node->out[0]->id].index, to = p->step[i].takes;
        while (moved[to]) to = moved[to] - 1;
        if (p->block[to].last != i || p->block[from].size != p->block[to].size) continue;
        p->block[to].last = p->block[from].last;
        p->block[from].size = 0;
        moved[from] = to + 1;
    }
    for (int i = 0; i < p->nvalues; i++)
        while (p->place[i].home == HOME_ARENA && moved[p->place[i].index])
            p->place[i].index = moved[p->place[i].index] - 1;
    mem_free(moved);
    return true;
}

/* One that the integers of a residual are the inverse of may be there as floats (input caching). */
static void add_residual(Builder *s, const FusedNode *fused, Call *c, Toucher *t)
{
    const Node *inverse = fused->inverse;
    Value *r = fused->residual, *by[2] = {NULL, NULL};
    if (inverse && s->in->given[inverse->out[0]->id]) r = inverse->out[0];
    else if (inverse) {
        for (int i = 0; i < 2; i++) by[i] = inverse->arg[1 + i].kind == ARG_VALUE ? inverse->arg[1 + i].v : NULL;
        c->epilogue.residual_scale = s->p->value[by[0]->id];
        c->epilogue.residual_zero = by[1] ? s->p->value[by[1]->id] : NULL;
    }
    c->epilogue.residual = s->p->value[r->id];
    touch_operand(t, &r);
    for (int i = 0; i < 2; i++)
        if (by[i]) touch_operand(t, &by[i]);
}

static bool make_step(Builder *s, const Node *last, const Node *n, const FusedNode *fused, Call *c)
{
    Plan *p = s->p;
    const Value *result = fused && fused->result ? fused->result : NULL;
    bool constant = s->constant[(result ? result : n->out[0])->id] != 0;
    for (int k = 0; k < n->nout && k < 32 && s->in->fusion; k++)
        if (!s->need[n->out[k]->id] && !(k == 0 && result)) c->unused |= 1u << k;
    for (int k = 0; k < n->nout; k++) {
        const Value *v = k == 0 && result ? result : n->out[k];
        Tensor *t = new_tensor(s, v);
        TRY(t);
        bool free_layout = (k == 0 || (k < 3 && n->op->id == OP_sdpa_backward)) && s->in->fusion &&
                           (!s->in->wanted || s->in->apart) && !constant && !s->leaves[v->id];
        if (free_layout) layout_choose(c, t);
        int input = grown_from(s, v);
        if (input >= 0) {
            strides_with_room(t, s->in->grown[input].axis, s->in->grown[input].room);
            p->place[v->id] = (Place){HOME_INPUT, input, 0};
            if (s->growing) t->data = s->address[input];
        } else if (!(c->unused >> k & 1) || !(n->op->unread >> k & 1)) TRY(add_storage(s, v, t, constant));
        p->value[v->id] = c->out[k] = t;
    }
    for (int i = 0; i < n->op->schema->nparams; i++)
        if (n->arg[i].kind == ARG_VALUE) c->arg[i].constant = s->stable[n->arg[i].v->id];
    Toucher t = {s, p->nsteps, constant};
    node_each_operand((Node *)(uintptr_t)n, touch_operand, &t);
    c->least_rows = fused ? fused->least_rows : 0;
    c->windows = n->op->id == OP_matmul ? s->windows[n->arg[1].v->id] : NULL;
    if (c->windows) c->along = axes_along(c->windows, c->arg[1].t);
    if (fused && result) {
        c->epilogue.act = (unsigned)fused->act;
        c->epilogue.act_last = fused->act_last;
        c->epilogue.times = fused->times;
        if (fused->residual) add_residual(s, fused, c, &t);
        if (fused->rounds) {
            c->epilogue.scale = p->value[fused->rounds->arg[1].v->id];
            c->epilogue.zero = fused->rounds->arg[2].kind == ARG_VALUE ? p->value[fused->rounds->arg[2].v->id] : NULL;
            c->epilogue.by_inverse = fused->rounds->arg[8].e->i != 0;
            c->epilogue.nan_lowest = fused->rounds->arg[9].e->i != 0;
            if (fused->clamps) {
                const Arg *low = &fused->clamps->arg[1], *high = &fused->clamps->arg[2];
                c->epilogue.clamps = true;
                c->epilogue.low = low->kind == ARG_NONE ? -INFINITY : (float)ex_number(low->e);
                c->epilogue.high = high->kind == ARG_NONE ? INFINITY : (float)ex_number(high->e);
            }
            for (int i = 1; i < 3; i++) {
                Value *by = fused->rounds->arg[i].kind == ARG_VALUE ? fused->rounds->arg[i].v : NULL;
                if (by) touch_operand(&t, &by);
            }
        }
    }
    Step *step = &p->step[p->nsteps++];
    *step = (Step){.call = *c,
                   .node = last,
                   .constant = constant,
                   .takes = constant || !result ? -1 : taken_place(s, n, fused, c)};
    return true;
}

/* Is a value between the product and the last node of a fusion there already? It is when it depends on weights alone:
 * then the product is not made again, and its operands need not be there. */
static bool made_before(const Builder *s, const Node *product, const Node *last)
{
    const FusedNode *f = &s->in->fusion->node[product->out[0]->id];
    bool made = s->in->given[product->out[0]->id] != NULL;
    for (int i = 0; i < last->op->schema->nparams; i++)
        made |= last->arg[i].kind == ARG_VALUE && last->arg[i].v != f->residual &&
                !(f->inverse && last->arg[i].v == f->inverse->out[0]) && !(i && f->rounds == last) &&
                s->in->given[last->arg[i].v->id];
    return made;
}

static bool add_node(Builder *s, const Node *n)
{
    Plan *p = s->p;
    const FusedNode *f = s->in->fusion && n->nout ? &s->in->fusion->node[n->out[0]->id] : NULL;
    bool wanted = n->nout == 0;
    for (int k = 0; k < n->nout; k++) {
        const Value *v = n->out[k];
        wanted |= s->need[v->id] && !s->in->given[v->id];
        TRY(add_given(s, n->out[k]));
    }
    if (!wanted) return true;
    if (!s->growing && all_operands(n, s->constant) && !(n->op->flags & (OPF_RANDOM | OPF_EFFECT)))
        for (int k = 0; k < n->nout; k++) s->constant[n->out[k]->id] = 1;
    const Node *made_by = n;
    if (f && f->transparent && !s->in->given[n->arg[0].v->id]) {
        int from = n->arg[0].v->id, to = n->out[0]->id;
        p->value[to] = p->value[from];
        p->place[to] = p->place[from];
        s->stable[to] = s->stable[from];
        p->node[p->nnodes].node = n;
        p->node[p->nnodes++].step = -1;
        return true;
    }
    if (f && f->absorbed) {
        if (!f->producer) return true; /* an inner node of a fusion */
        bool alone = made_before(s, f->producer, n);
        if (!alone) made_by = f->producer;
        f = alone ? NULL : &s->in->fusion->node[made_by->out[0]->id];
    } else if (f && f->result) {
        return true; /* its step stands at the last absorbed node */
    }
    bool view = false, windows = f && f->windows;
    p->node[p->nnodes].node = n;
    if (made_by == n && (windows || view_table[n->op->id].fn)) TRY(as_view(s, n, windows, &view));
    if (view) {
        p->node[p->nnodes++].step = -1;
        Value *from = n->arg[0].v;
        s->constant[n->out[0]->id] = s->constant[from->id];
        return true;
    }
    Call c;
    TRY(plan_call(s->calls ? s->calls : p->arena, s->g, made_by, p->value, s->b, &c, s->err));
    p->node[p->nnodes++].step = p->nsteps;
    return make_step(s, n, made_by, f, &c);
}

bool builder_add(Builder *s, const Node *n)
{
    return add_node(s, n) || within(s->err, "node '%s' (%s)", n->name, n->op->name);
}

/* Storage that a result is in lives to the end; a view keeps its storage alive because operands are touched by
 * place. */
static void keep_result(Builder *s, const Value *v)
{
    if (!s->p->value[v->id]) return;
    Place pl = s->p->place[v->id];
    if (pl.home == HOME_ARENA) s->p->block[pl.index].last = s->p->nsteps;
    if (pl.home == HOME_CONST) s->p->const_kept[pl.index] = true;
}

static void keep_results(Builder *s)
{
    const Graph *g = s->g;
    if (!s->in->wanted) {
        for (int i = 0; i < g->noutput; i++) keep_result(s, g->output[i].value);
        for (int i = 0; i < g->nmutation; i++) keep_result(s, g->mutation[i].value);
        return;
    }
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++)
            if (s->in->wanted[n->out[k]->id]) keep_result(s, n->out[k]);
}

static size_t end_of(const Block *b) { return b->offset + b->size; }

static int higher(const void *a, const void *b, void *user)
{
    const Block *block = user;
    size_t x = end_of(&block[*(const int *)a]), y = end_of(&block[*(const int *)b]);
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The first step from k on that has no top yet. */
static int without_top(int *next, int k)
{
    while (next[k] != k) k = next[k] = next[next[k]];
    return k;
}

/* What is live in the arena while a step runs; its scratch comes after the highest of it. Constants' steps run before,
 * when nothing does. Each block may live in all steps: the highest one tells the top of its own, the next one of those
 * that are left. Nothing changes where memory runs out. */
static bool fill_steps(Plan *p, const Block *block, Err *err)
{
    int n = p->nsteps, count = 0;
    size_t *change = mem_zeroed((size_t)n + 1, sizeof *change), alive = 0;
    int *next = mem_zeroed((size_t)n + 1, sizeof *next);
    int *order = mem_zeroed((size_t)p->nblock + 1, sizeof *order);
    bool ok = change && next && order;
    for (int k = 0; ok && k <= n; k++) next[k] = k;
    for (int i = 0; ok && i < p->nblock; i++) {
        const Block *b = &block[i];
        if (!b->size || b->first >= n) continue;
        order[count++] = i;
        change[b->first] += b->size;
        change[b->last < n ? b->last + 1 : n] -= b->size;
    }
    for (int k = 0; ok && k < n; k++) {
        alive += change[k];
        p->step[k].alive = p->step[k].constant ? 0 : alive;
        p->step[k].top = 0;
        p->step[k].room = SIZE_MAX;
    }
    if (ok) qsort_r(order, (size_t)count, sizeof *order, higher, (void *)(uintptr_t)block);
    for (int i = 0; ok && i < count; i++) {
        const Block *b = &block[order[i]];
        for (int k = without_top(next, b->first); k <= b->last && k < n; k = without_top(next, k)) {
            if (!p->step[k].constant) p->step[k].top = end_of(b);
            next[k] = k + 1;
        }
    }
    mem_free(change);
    mem_free(next);
    mem_free(order);
    return ok || oom(err);
}

static size_t whole(const Plan *p)
{
    size_t most = p->arena_bytes;
    for (int i = 0; i < p->nsteps; i++)
        if (!p->step[i].constant && p->step[i].top + p->step[i].scratch > most)
            most = p->step[i].top + p->step[i].scratch;
    return most;
}

bool plan_settle(Plan *p, Err *err)
{
    size_t now, total, bound, arena = 0;
    bool fits = p->settled;
    for (int i = 0; i < p->nsteps; i++) fits &= p->step[i].scratch <= p->step[i].room;
    if (fits) return true;
    TRY(fill_steps(p, p->block, err));
    p->settled = true;
    if ((now = whole(p)) <= p->arena_bytes) return true;
    int n = p->nblock;
    Block *b = mem_zeroed((size_t)(n + p->nsteps) + 1, sizeof *b);
    if (!b) return oom(err);
    memcpy(b, p->block, (size_t)n * sizeof *b);
    for (int i = 0; i < p->nsteps; i++)
        if (!p->step[i].constant) b[n++] = (Block){.size = p->step[i].scratch, .first = i, .last = i};
    bool ok = memory_plan(b, n, p->nsteps + 1, &total, &bound, err);
    bool smaller = ok && total < now;
    if (smaller) ok = fill_steps(p, b, err);
    if (smaller && ok) {
        memcpy(p->block, b, (size_t)p->nblock * sizeof *b);
        for (int i = 0, k = p->nblock; i < p->nsteps; i++) {
            if (p->step[i].constant) continue;
            p->step[i].top = b[k].offset; /* it may be between results */
            p->step[i].room = b[k++].size;
        }
        for (int i = 0; i < p->nblock; i++)
            if (p->block[i].offset + p->block[i].size > arena) arena = p->block[i].offset + p->block[i].size;
        p->arena_bytes = arena;
        p->base = NULL;
    }
    mem_free(b);
    return ok;
}

/* Results that are wanted move out of the arena. They are those that live to the end. */
static bool set_apart(Builder *s)
{
    Plan *p = s->p;
    int *at = mem_zeroed((size_t)p->nblock + 1, sizeof *at);
    bool ok = at != NULL || oom(s->err);
    for (int i = 0; ok && i < p->nblock; i++) {
        at[i] = -1;
        if (!p->block[i].size || p->block[i].last < p->nsteps) continue;
        ok = (at[i] = builder_owned(s, p->block[i].size, true)) >= 0;
        p->block[i].size = 0;
    }
    for (int i = 0; ok && i < p->nvalues; i++)
        if (p->place[i].home == HOME_ARENA && at[p->place[i].index] >= 0)
            p->place[i] = (Place){HOME_CONST, at[p->place[i].index], p->place[i].offset};
    mem_free(at);
    return ok;
}

/* Blocks that an output fills move out of the arena, to memory that plan_place receives. */
static bool set_outputs(Builder *s)
{
    Plan *p = s->p;
    int *at = mem_zeroed((size_t)p->nblock + 1, sizeof *at);
    if (!at) return oom(s->err);
    for (int i = 0; i < s->g->noutput; i++) {
        const Value *v = s->g->output[i].value;
        const Tensor *t = p->value[v->id];
        Place pl = p->place[v->id];
        if (s->in->elsewhere && !s->in->elsewhere[i]) continue;
        if (!t || pl.home != HOME_ARENA || pl.offset || !p->block[pl.index].size) continue;
        if (!tensor_contiguous(t) || tensor_bytes(t) != p->block[pl.index].size) continue;
        at[pl.index] = s->in->outputs + i; /* 1 + its place */
        p->block[pl.index].size = 0;
    }
    for (int i = 0; i < p->nvalues; i++)
        if (p->place[i].home == HOME_ARENA && at[p->place[i].index])
            p->place[i] = (Place){HOME_INPUT, at[p->place[i].index] - 1, p->place[i].offset};
    mem_free(at);
    return true;
}

/* An output that repeats its elements takes nothing here, but is written and compared as large as it looks. */
static bool outputs_fit(const Builder *s)
{
    for (int i = 0; s->in->memory_limit && !s->in->wanted && i < s->g->noutput; i++) {
        const Tensor *t = s->p->value[s->g->output[i].value->id];
        if (t && tensor_repeats(t) && tensor_bytes(t) > s->in->memory_limit)
            return fail(s->err, E_LIMIT, "output '%s' has %zu bytes, the limit is %zu", s->g->output[i].name,
                        tensor_bytes(t), s->in->memory_limit);
    }
    return true;
}

static bool place_blocks(Builder *s)
{
    Plan *p = s->p;
    TRY(take_places(s));
    TRY(!s->in->apart || set_apart(s));
    TRY(!s->in->outputs || set_outputs(s));
    TRY(memory_plan(s->p->block, s->p->nblock, p->nsteps + 1, &p->arena_bytes, &p->bound_bytes, s->err));
    size_t bytes = p->arena_bytes;
    for (int i = 0; i < p->nconst; i++)
        if (!add_size(bytes, p->const_size[i], &bytes)) bytes = SIZE_MAX;
    if (s->in->memory_limit && (bytes > s->in->memory_limit || s->in->held > s->in->memory_limit - bytes))
        return fail(s->err, E_LIMIT, "these sizes need %zu bytes of activations%s, the limit is %zu", bytes,
                    s->in->held ? " beside the inputs" : "", s->in->memory_limit);
    TRY(outputs_fit(s));
    p->const_data = mem_zeroed((size_t)p->nconst + 1, sizeof *p->const_data);
    if (!p->const_data) return oom(s->err);
    return fill_steps(p, p->block, s->err);
}

/* What the plan was made for, without what was evaluated. */
static bool keep_sizes(Plan *p, const Binding *b)
{
    p->binding = (Binding){
        .n = b->n, .value = arena_array(p->arena, int64_t, b->n + 1), .bound = arena_array(p->arena, bool, b->n + 1)};
    if (!p->binding.value || !p->binding.bound) return false;
    memcpy(p->binding.value, b->value, (size_t)b->n * sizeof *b->value);
    memcpy(p->binding.bound, b->bound, (size_t)b->n * sizeof *b->bound);
    return true;
}

static bool begin(Builder *s)
{
    Plan *p = s->p = mem_zeroed(1, sizeof *p);
    const Graph *g = s->g;
    size_t n = (size_t)g->next_id + 1;
    if (!p || !(p->arena = arena_create(0)) || !keep_sizes(p, s->b)) return oom(s->err);
    p->nvalues = g->next_id;
    p->value = arena_array(p->arena, Tensor *, n);
    p->place = arena_array(p->arena, Place, n);
    s->need = mem_zeroed(n, 1);
    s->constant = mem_zeroed(n, 1);
    s->stable = mem_zeroed(n, 1);
    s->leaves = mem_zeroed(n, 1);
    s->windows = mem_zeroed(n, sizeof *s->windows);
    if (!p->value || !p->place || !s->need || !s->constant || !s->stable || !s->leaves || !s->windows)
        return oom(s->err);
    for (int i = 0; i < g->noutput; i++) s->leaves[g->output[i].value->id] = 1;
    for (int i = 0; i < g->nmutation; i++) s->leaves[g->mutation[i].value->id] = 1;
    size_t count = find_needed(s), most = (s->most ? (size_t)s->most : count) + 1;
    p->step = mem_zeroed(most, sizeof *p->step);
    p->node = mem_zeroed(most, sizeof *p->node);
    if (!p->step || !p->node) return oom(s->err);
    for (int i = 0; i < g->nweight; i++) TRY(add_given(s, g->weight[i]));
    return add_inputs(s);
}

bool builder_begin(Builder *s)
{
    if (begin(s)) return true;
    builder_free(s);
    plan_free(s->p);
    s->p = NULL;
    return false;
}

void builder_free(Builder *s)
{
    mem_free(s->need);
    mem_free(s->constant);
    mem_free(s->stable);
    mem_free(s->leaves);
    mem_free((void *)(uintptr_t)s->windows);
    arena_destroy(s->views);
    arena_destroy(s->calls);
}

static bool build(Builder *s)
{
    for (Node *node = s->g->first; node; node = node->next) TRY(builder_add(s, node));
    keep_results(s);
    return place_blocks(s);
}

Plan *plan_build(const PlanInput *in, const Binding *b, Err *err)
{
    Builder s = {.in = in, .g = in->graph, .b = b, .err = err};
    if (!builder_begin(&s)) return NULL;
    bool ok = build(&s);
    builder_free(&s);
    if (ok) return s.p;
    plan_free(s.p);
    return NULL;
}

void plan_free(Plan *p)
{
    if (!p) return;
    for (int i = 0; p->step && i < p->nsteps; i++)
        if (p->step[i].call.state_free) p->step[i].call.state_free(p->step[i].call.state);
    for (int i = 0; p->const_data && i < p->nconst; i++) mem_free(p->const_data[i]);
    mem_free(p->const_data);
    mem_free(p->const_size);
    mem_free(p->const_kept);
    mem_free(p->block);
    mem_free(p->step);
    mem_free(p->node);
    arena_destroy(p->arena);
    mem_free(p);
}

void plan_place(Plan *p, unsigned char *base, void *const *input)
{
    p->base = base;
    for (int i = 0; i < p->nvalues; i++) {
        Tensor *t = p->value[i];
        if (!t) continue;
        Place pl = p->place[i];
        char *storage = NULL;
        switch (pl.home) {
        case HOME_INPUT: storage = input[pl.index]; break;
        case HOME_CONST: storage = p->const_data[pl.index]; break;
        case HOME_ARENA: storage = (char *)base + p->block[pl.index].offset; break;
        default: continue;
        }
        t->data = storage ? storage + pl.offset : NULL;
    }
}
