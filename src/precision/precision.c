/* Lowering the precision of products. Contract in precision.h.
 *
 * First every product gets casts around it. Then casts to float32 go down over views and concatenations, so that those
 * move narrow elements, and casts to the narrow type go up over them; a cast up and then down is nothing. What is left
 * stands at the ops that compute in float32, where the planner lets it vanish into them (src/plan/fuse.c). After
 * convolutions, whose results are large, activations, sums and maxima of windows are narrow as well, as autocast has
 * them: they are an epilogue, or a pass over half as many bytes.
 */
#include "precision/precision.h"
#include <string.h>
#include "base/mem.h"
#include "facts/views.h"

enum { MAX_ARGS = 32, FEW = 4 };

/* By id of a value: another one. */
typedef struct Table {
    Value **of;
    int n;
} Table;

typedef struct Lowering {
    Graph *g;
    DType t;
    bool file;     /* for a file: bias, masks and tables are narrow, too, as ATen and runtimes want them */
    Table narrow;  /* the same in the narrow type */
    Table becomes; /* what takes its place; who uses it has it until it is visited, or until the pass has ended */
    int *uses; /* by value id, of the graph as it was when they were counted */
    int nuses;
    Err *err;
} Lowering;

static bool is_cast(const Node *n, DType from, DType to)
{
    return n && n->op->id == OP_to_copy && n->arg[0].v->dtype == from && n->out[0]->dtype == to;
}

/* The narrow value that v was widened from, or NULL. */
static Value *widened_from(const Lowering *s, const Value *v)
{
    return is_cast(v->def, s->t, DT_F32) ? v->def->arg[0].v : NULL;
}

static Value **entry(Lowering *s, Table *t, const Value *v)
{
    if (v->id >= t->n) {
        int cap = v->id * 2 + 64;
        Value **p = mem_grow(t->of, (size_t)cap * sizeof(Value *));
        if (!p) {
            oom(s->err);
            return NULL;
        }
        memset(p + t->n, 0, (size_t)(cap - t->n) * sizeof *p);
        *t = (Table){p, cap};
    }
    return &t->of[v->id];
}

static bool take_place(Lowering *s, const Value *old, Value *v)
{
    Value **e = entry(s, &s->becomes, old);
    if (e) *e = v;
    return e != NULL;
}

static void settle(void *user, Value **slot)
{
    const Table *t = &((Lowering *)user)->becomes;
    Value *last = *slot;
    while (last && last->id < t->n && t->of[last->id]) last = t->of[last->id];
    for (Value *v = *slot, *next; v != last; v = next) {
        next = t->of[v->id];
        t->of[v->id] = last;
    }
    *slot = last;
}

static void settle_all(Lowering *s)
{
    if (s->becomes.n) graph_each_operand(s->g, settle, s);
    mem_free(s->becomes.of);
    s->becomes = (Table){0};
}

static Value *cast_before(Lowering *s, Node *at, Value *v, DType t)
{
    Node *n = graph_add_before(s->g, at, OP_to_copy, 2, (Arg[]){arg_value(v), arg_dtype(t)}, v->name, s->err);
    return n ? n->out[0] : NULL;
}

/* v in the narrow type, made before `at` at the latest; nodes are visited in order,
 * so what was made before is above. */
static Value *narrow(Lowering *s, Value *v, Node *at)
{
    Value *from = widened_from(s, v);
    if (from) return from;
    Value **e = entry(s, &s->narrow, v);
    if (e && !*e) *e = cast_before(s, at, v, s->t);
    return e ? *e : NULL;
}

/* ------------------------------------------------------------------ products */

/* A product over a few values (positions, corners of boxes) has nothing to gain, and 8 bits of a position are too
 * few. */
static bool few(const Node *n)
{
    const Value *x = n->arg[0].v;
    const Expr *k = x->rank ? x->dim[x->rank - 1] : NULL;
    return n->op->id != OP_convolution && k && k->kind == EX_INT && k->i <= FEW;
}

static bool is_f32(const Node *n, int i) { return n->arg[i].kind == ARG_VALUE && n->arg[i].v->dtype == DT_F32; }

/* How many leading arguments are computed with; 0: not an op for narrow floats.
 * Bias and mask are added in float32 in a run, and logsumexp is float32 as it is made. */
static int operands(const Lowering *s, const Node *n)
{
    switch (n->op->id) {
    case OP_linear:
    case OP_convolution: return s->file && is_f32(n, 2) ? 3 : 2;
    case OP_matmul: return 2;
    case OP_embedding: return s->file;
    case OP_scaled_dot_product_attention: return s->file && is_f32(n, 3) ? 4 : 3;
    case OP_sdpa_lse:
    case OP_sdpa_varlen: return 3;
    case OP_sdpa_backward: return 5;
    default: return 0;
    }
}

/* Does v show elements of an input, perhaps beside others? */
static bool shows_input(const Value *v)
{
    v = through_views(v);
    if (!v->def || v->def->op->id != OP_cat) return v->kind == V_INPUT;
    for (int i = 0; i < v->def->arg[0].n; i++)
        if (through_views(v->def->arg[0].vs[i])->kind == V_INPUT) return true;
    return false;
}

/* A few queries of keys and values that come in from outside, a cache or what an encoder gave: attention reads each of
 * those once, and a cast would read as much, write, and have it read again. */
static bool reads_once(const Node *n)
{
    if (n->op->id != OP_scaled_dot_product_attention) return false;
    const Value *q = n->arg[0].v;
    const Expr *queries = q->rank > 1 ? q->dim[q->rank - 2] : NULL;
    return queries && queries->kind == EX_INT && queries->i <= FEW && shows_input(n->arg[1].v) &&
           shows_input(n->arg[2].v);
}

static bool lowers(const Lowering *s, const Node *n)
{
    int k = operands(s, n);
    if (!k || few(n) || (!s->file && reads_once(n))) return false;
    for (int i = 0; i < k; i++)
        if (!is_f32(n, i)) return false;
    return true;
}

/* An additive mask in the narrow type: what stands for minus infinity there must not become it, or a row without an
 * allowed key would be NaN. */
static Value *narrow_mask(Lowering *s, Value *mask, Node *at)
{
    const double least = s->t == DT_F16 ? -65504.0 : -3.3895313892515355e38;
    Value **e = entry(s, &s->narrow, mask);
    if (!e || *e) return e ? *e : NULL;
    Arg arg[] = {arg_value(mask), arg_float(s->g, least), arg_none()};
    Node *n = graph_add_before(s->g, at, OP_clamp, 3, arg, mask->name, s->err);
    Value *made = n ? narrow(s, n->out[0], at) : NULL;
    if (made) s->narrow.of[mask->id] = made;
    return made;
}

/* A node like n with other arguments, before it, which takes over its name; NULL on error. */
static Node *like(Lowering *s, Node *n, Arg *arg)
{
    Node *made = graph_add_before(s->g, n, n->op->id, n->op->schema->nparams, arg, n->out[0]->name, s->err);
    return made && graph_rename(s->g, made->out[0], n->out[0]->name, s->err) ? made : NULL;
}

/* A node like n with other arguments, and casts to float32 of those of its results that became narrow,
 * take its place. */
static bool replace(Lowering *s, Node *n, Arg *arg)
{
    Node *made = like(s, n, arg);
    TRY(made);
    for (int k = 0; k < n->nout; k++) {
        Value *v = made->out[k];
        if (k > 0) TRY(graph_rename(s->g, v, n->out[k]->name, s->err));
        if (v->dtype != n->out[k]->dtype) TRY(v = cast_before(s, n, v, DT_F32));
        TRY(take_place(s, n->out[k], v));
    }
    graph_remove(s->g, n);
    return true;
}

static bool lower_products(Lowering *s)
{
    for (Node *n = s->g->first, *next; n; n = next) {
        Arg arg[MAX_ARGS];
        next = n->next;
        node_each_operand(n, settle, s);
        if (!lowers(s, n) || n->op->schema->nparams > MAX_ARGS) continue;
        memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
        for (int i = 0; i < operands(s, n); i++) {
            arg[i].v = i == 3 && s->file ? narrow_mask(s, arg[i].v, n) : narrow(s, arg[i].v, n);
            TRY(arg[i].v);
        }
        TRY(replace(s, n, arg));
    }
    settle_all(s);
    return true;
}

/* ------------------------------------------------------------------ casts over views */

/* Moves elements and computes nothing: a view, a concatenation. */
static bool moves(const Node *n)
{
    bool only = n->nout == 1 && n->op->schema->nparams <= MAX_ARGS && n->out[0]->dtype == DT_F32;
    if (n->op->id == OP_cat) return only;
    if (!only || !(n->op->flags & OPF_VIEW) || n->op->id == OP_to_copy || n->op->id == OP_view_dtype ||
        n->arg[0].kind != ARG_VALUE)
        return false;
    for (int i = 1; i < n->op->schema->nparams; i++)
        if (n->arg[i].kind == ARG_VALUE || n->arg[i].kind == ARG_VALUES) return false;
    return true;
}

/* n's arguments with its tensors replaced by what they were widened from; false: not all of them were. */
static bool before_widening(Lowering *s, const Node *n, Arg *arg)
{
    memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
    if (n->op->id != OP_cat) {
        Value *from = widened_from(s, n->arg[0].v);
        if (from) arg[0].v = from;
        return from != NULL;
    }
    arg[0] = arg_values(s->g, n->arg[0].n, n->arg[0].vs);
    for (int k = 0; arg[0].vs && k < arg[0].n; k++)
        if (!(arg[0].vs[k] = widened_from(s, n->arg[0].vs[k]))) return false;
    return arg[0].vs && arg[0].n > 0;
}

/* Autocast leaves it in the dtype of what convolutions give it, and an epilogue computes it before its one rounding. */
static bool stays(const Node *n) { return n->op->flags & OPF_AFTER_CONV; }

/* Are all of n's tensors results of convolutions, or made of them by such ops? Then n's arguments in the
 * narrow type. */
static bool of_convolutions(Lowering *s, const Node *n, Arg *arg)
{
    int tensors = n->op->id == OP_add_Tensor ? 2 : 1;
    if (n->op->schema->nparams > MAX_ARGS) return false;
    memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
    for (int i = 0; i < tensors; i++) {
        Value *from = arg[i].kind == ARG_VALUE ? widened_from(s, arg[i].v) : NULL;
        if (!from || !from->def || (from->def->op->id != OP_convolution && !stays(from->def))) return false;
        arg[i].v = from;
    }
    return true;
}

/* n, which moves elements, moves narrow ones, and a cast to float32 follows it. */
static bool move_narrow(Lowering *s, Node *n, const Arg *arg)
{
    Value *old = n->out[0];
    memcpy(n->arg, arg, (size_t)n->op->schema->nparams * sizeof *arg);
    TRY(node_new_result(s->g, n, NULL, s->t, old->rank, old->dim, s->err));
    Value *v = cast_before(s, n->next, n->out[0], DT_F32);
    TRY(v);
    v->def->module = n->module;
    return take_place(s, old, v);
}

static bool widen_later(Lowering *s)
{
    for (Node *n = s->g->first, *next; n; n = next) {
        Arg arg[MAX_ARGS];
        next = n->next;
        node_each_operand(n, settle, s);
        if (moves(n) && n->op->id != OP_expand && before_widening(s, n, arg)) TRY(move_narrow(s, n, arg));
        else if (stays(n) && n->out[0]->dtype == DT_F32 && of_convolutions(s, n, arg)) TRY(replace(s, n, arg));
    }
    settle_all(s);
    return true;
}

static bool single(const Lowering *s, const Value *v) { return v->id < s->nuses && s->uses[v->id] == 1; }

/* The cast d of what n views becomes a cast of n's operand, before n. Gives n; NULL on error. */
static Node *narrow_view(Lowering *s, Node *d, Node *n)
{
    Value *x = n->arg[0].v, *old = d->out[0], *whole = n->out[0];
    graph_remove(s->g, d);
    d->arg[0].v = x;
    d->module = n->module;
    graph_link_before(s->g, d, n);
    bool ok = node_new_result(s->g, d, x->name, s->t, x->rank, x->dim, s->err);
    n->arg[0].v = d->out[0];
    ok = ok && node_new_result(s->g, n, NULL, s->t, whole->rank, whole->dim, s->err);
    return ok && take_place(s, old, n->out[0]) ? n : NULL;
}

/* The same of a concatenation, all of whose operands are cast. Gives the node in n's place; NULL on error. */
static Node *narrow_cat(Lowering *s, Node *d, Node *n)
{
    Arg arg[MAX_ARGS];
    memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
    arg[0] = arg_values(s->g, n->arg[0].n, n->arg[0].vs);
    for (int k = 0; k < arg[0].n; k++) {
        Value *from = widened_from(s, arg[0].vs[k]);
        if (!(arg[0].vs[k] = from ? from : cast_before(s, n, arg[0].vs[k], s->t))) return NULL;
    }
    Node *made = like(s, n, arg);
    if (!made || !take_place(s, d->out[0], made->out[0])) return NULL;
    graph_remove(s->g, d);
    graph_remove(s->g, n);
    return made;
}

/* Casts go up, until something else reads what they cast. */
static bool narrow_earlier(Lowering *s, bool *changed)
{
    *changed = false;
    mem_free(s->uses);
    s->nuses = s->g->next_id;
    s->uses = mem_zeroed((size_t)s->nuses + 1, sizeof *s->uses);
    if (!s->uses) return oom(s->err);
    graph_count_uses(s->g, s->uses);
    for (Node *d = s->g->last, *before; d; d = before) {
        before = d->prev;
        if (!is_cast(d, DT_F32, s->t)) continue;
        Value *from = widened_from(s, d->arg[0].v);
        Node *n = d->arg[0].v->def;
        if (from) {
            TRY(take_place(s, d->out[0], from));
            graph_remove(s->g, d);
        } else if (n && single(s, d->arg[0].v) && moves(n) && n->op->id != OP_slice_Tensor &&
                   n->op->id != OP_select_int) {
            Node *at = n->op->id == OP_cat ? narrow_cat(s, d, n) : narrow_view(s, d, n);
            TRY(at);
            if (before == n) before = at->prev;
        } else {
            continue;
        }
        *changed = true;
    }
    settle_all(s);
    return true;
}

bool lower_products_of(Graph *g, DType t, bool file, Err *err)
{
    Lowering s = {.g = g, .t = t, .file = file, .err = err};
    bool ok = lower_products(&s) && widen_later(&s), more = ok;
    while (ok && more) ok = narrow_earlier(&s, &more);
    mem_free(s.narrow.of);
    mem_free(s.becomes.of);
    mem_free(s.uses);
    if (ok) graph_dce(g);
    return ok;
}

bool lower_precision(Graph *g, DType t, Err *err) { return lower_products_of(g, t, false, err); }
