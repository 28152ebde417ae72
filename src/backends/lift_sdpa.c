/* Attention lifted into the form of PyTorch's fast kernels. Contract in lift_sdpa.h. */
#include "backends/lift_sdpa.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "facts/strides.h"

enum { MASK = 3, DROPOUT, CAUSAL, SCALE, GQA, SOFTCAP, LOWER, UPPER, PARAMS }; /* of scaled_dot_product_attention */
enum { LIFT_MASK = 1, LIFT_HEAD = 2, LIFT_QUERY = 4, LIFT_KEY = 8, LIFT_VALUE = 16, LIFT_ALL = 31 };

static bool log_lift(RewriteLog *log, const char *rule, const Value *result, const Node *gone, const char *note,
                     const Proof *proof, Err *err)
{
    if (!log->arena && !(log->arena = arena_create(0))) return oom(err);
    Firing *x = rewrite_new_firing(log);
    if (!x) return oom(err);
    *x = (Firing){.rule = rule,
                  .phase = "lift",
                  .result = arena_strdup(log->arena, result->name),
                  .op = op_get(OP_scaled_dot_product_attention)->name,
                  .nnodes = 1,
                  .node = arena_array(log->arena, const char *, 1),
                  .note = arena_strdup(log->arena, note),
                  .proof = *proof};
    if (x->result && x->node && x->note && (x->node[0] = arena_strdup(log->arena, gone->name))) return true;
    log->nfirings--; /* a report of what failed reads the others */
    return oom(err);
}

static bool prove(const Prover *prover, const Graph *g, const char *rule, Value *from, Value *to, Proof *p, Err *err)
{
    if (!prover) return true;
    Claim c = {g, rule, 1, (Value *const[]){from}, (Value *const[]){to}, WAIVE_NOTHING, .rounded = false};
    return prover->claim((void *)(uintptr_t)prover, &c, p, err) || within(err, "rule '%s' at '%s'", rule, from->name);
}

/* ------------------------------------------------------------------ axes of the file
 * written out, to be held against what import made */

typedef struct Out {
    Graph *g;
    Err *err;
} Out;

static Value *add(Out *o, OpId op, int n, const Arg *args)
{
    for (int i = 0; i < n; i++)
        if (args[i].kind == ARG_VALUE && !args[i].v) return NULL;
    Node *x = graph_add(o->g, op, n, args, "lift", o->err);
    return x ? x->out[0] : NULL;
}
#define ADD(o, op, ...) add((o), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})

static Value *written_out(Out *o, const LiftSource *s)
{
    Graph *g = o->g;
    int r = s->q->rank;
    int64_t perm[MAX_RANK];
    Expr *size = s->q->dim[r - 1], *scale = s->scale ? s->scale : ex_float(g->ex, 1 / sqrt((double)size->i));
    for (int i = 0; i < r; i++) perm[i] = i < r - 2 ? i : 2 * r - 3 - i;
    Value *q = ADD(o, mul_Tensor, arg_value(s->q), arg_expr(scale)),
          *k = ADD(o, permute, arg_value(s->k), arg_ints(g, r, perm));
    Value *x = ADD(o, matmul, arg_value(q), arg_value(k)), *mask = s->mask;
    if (x && s->causal) {
        Value *ones = ADD(o, full, arg_exprs(g, 2, &x->dim[r - 2]), arg_bool(g, true), arg_dtype(DT_BOOL));
        if (!(mask = ADD(o, tril, arg_value(ones), arg_int(g, 0)))) return NULL;
    }
    if (x && mask && mask->dtype == DT_BOOL) {
        Value *never = ADD(o, full, arg_exprs(g, 0, NULL), arg_float(g, -INFINITY), arg_dtype(x->dtype));
        x = ADD(o, where_self, arg_value(mask), arg_value(x), arg_value(never));
    } else if (x && mask) {
        x = ADD(o, add_Tensor, arg_value(x), arg_value(mask));
    }
    x = ADD(o, safe_softmax, arg_value(x), arg_int(g, -1), arg_none());
    return ADD(o, matmul, arg_value(x), arg_value(s->v));
}

static bool in_graph(const Graph *g, const Value *v)
{
    for (const Node *n = g->first; n; n = n->next)
        if (n == v->def) return true;
    return false;
}

static void remove_after(Graph *g, Node *last)
{
    while (g->last != last) graph_remove(g, g->last);
}

bool lift_rank(Graph *g, const LiftSource *s, const Prover *prover, RewriteLog *log, Err *err)
{
    char note[96];
    Proof proof = {0};
    Node *last = g->last;
    Err why = {0};
    if (s->out->kind != V_NODE || !in_graph(g, s->out)) return true;
    if (s->q->rank == 4) snprintf(note, sizeof note, "batch and heads that broadcast are written out");
    else snprintf(note, sizeof note, "%d axes became (batch, heads, length, size)", s->q->rank);
    if (prover) {
        bool plain = !s->gqa && (s->scale || ex_is_int(s->q->dim[s->q->rank - 1]));
        Value *from = plain ? written_out(&(Out){g, &why}, s) : NULL;
        if (from) {
            bool ok = prove(prover, g, "lift_rank", from, s->out, &proof, err);
            remove_after(g, last);
            TRY(ok);
        } else {
            remove_after(g, last);
            proof.skipped = true;
            snprintf(proof.why, sizeof proof.why, "%.200s",
                     plain ? why.msg : "grouped heads, or a head size that varies, are not written out");
        }
    }
    return log_lift(log, "lift_rank", s->out, s->out->def, note, &proof, err);
}

/* ------------------------------------------------------------------ what would help */

typedef struct Lift {
    Graph *g;
    const SdpaDevice *d;
    Node *n;
    Expr *dim[4][MAX_RANK], *stride[4][MAX_RANK], *mask_dim[MAX_RANK], *mask_stride[MAX_RANK];
    SdpaCall call;
    int64_t query, value; /* head sizes after padding */
    Err *err;
} Lift;

static Value *operand(const Node *n, int i) { return n->arg[i].kind == ARG_VALUE ? n->arg[i].v : NULL; }
static Expr *expr_at(const Node *n, int i) { return n->arg[i].kind == ARG_EXPR ? n->arg[i].e : NULL; }

static bool tensor(Lift *l, int i, SdpaTensor *out)
{
    Value *v = operand(l->n, i);
    *out = (SdpaTensor){.dtype = v->dtype, .rank = v->rank, .dim = l->dim[i], .stride = l->stride[i]};
    for (int k = 0; k < v->rank; k++) l->dim[i][k] = v->dim[k];
    return value_strides(l->g->ex, v, l->stride[i]);
}

static bool call_of(Lift *l)
{
    const Expr *causal = expr_at(l->n, CAUSAL), *gqa = expr_at(l->n, GQA), *p = expr_at(l->n, DROPOUT);
    l->call = (SdpaCall){.has_mask = operand(l->n, MASK) != NULL,
                         .causal = causal && causal->i,
                         .gqa = gqa && gqa->i,
                         .dropout = !p ? 0 : ex_number(p)};
    bool ok = tensor(l, 0, &l->call.q) && tensor(l, 1, &l->call.k) && tensor(l, 2, &l->call.v) &&
              (!l->call.has_mask || tensor(l, MASK, &l->call.mask));
    return ok &&
           sdpa_bounds(l->g->ex, expr_at(l->n, LOWER), expr_at(l->n, UPPER), l->mask_dim, l->mask_stride, &l->call);
}

static int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* Head sizes after padding; false where they vary, or need none. */
static bool head_sizes(Lift *l)
{
    const Expr *q = l->call.q.dim[3], *v = l->call.v.dim[3];
    if (!ex_is_int(q) || !ex_is_int(v) || q->i < 1 || v->i < 1 || l->call.k.dim[3] != q) return false;
    int64_t n = l->d->cuda ? sdpa_alignment(l->d, l->call.q.dtype) : 1;
    l->query = up_to(l->d->cuda ? q->i : q->i > v->i ? q->i : v->i, n);
    l->value = l->d->cuda ? up_to(v->i, n) : l->query;
    return l->query != q->i || l->value != v->i;
}

/* How good the kernel is, 0 the best, after these changes; -1: out of memory. */
static int rank_after(const Lift *l, int changes)
{
    SdpaBackend order[SDPA_BACKENDS];
    SdpaChoice choice;
    SdpaCall c = l->call;
    ExprPool *p = l->g->ex;
    SdpaTensor *const t[3] = {&c.q, &c.k, &c.v};
    Expr *dim[3][4], *stride[3][4], *mask_dim[4], *mask_stride[4];
    int n = sdpa_order(l->d, order);
    for (int i = 0; i < 3; i++) {
        memcpy(dim[i], t[i]->dim, sizeof dim[i]);
        memcpy(stride[i], t[i]->stride, sizeof stride[i]);
        if (changes & LIFT_HEAD) dim[i][3] = ex_int(p, i < 2 ? l->query : l->value);
        if (!dim[i][3] || ((changes & (LIFT_HEAD | LIFT_QUERY << i)) && !expr_strides(p, 4, dim[i], stride[i])))
            return -1;
        t[i]->dim = dim[i];
        t[i]->stride = stride[i];
    }
    if (changes & LIFT_MASK) {
        for (int i = 0; i < 4; i++) {
            int from = i - (4 - c.mask.rank);
            mask_dim[i] = from < 0 ? ex_int(p, 1) : c.mask.dim[from];
            mask_stride[i] = from < 0 ? ex_int(p, 1) : c.mask.stride[from];
            if (!mask_dim[i] || !mask_stride[i]) return -1;
        }
        c.mask.rank = 4;
        c.mask.dim = mask_dim;
        c.mask.stride = mask_stride;
    }
    Err ignored = {0};
    if (!sdpa_choose(l->d, &c, p, &choice, &ignored)) return -1;
    for (int i = 0; i < n; i++)
        if (order[i] == choice.when[0].backend) return i;
    return n;
}

/* The least changes that bring the best kernel; 0: none does. */
static bool find_changes(Lift *l, int *out)
{
    const SdpaCall *c = &l->call;
    const SdpaTensor *const t[3] = {&c->q, &c->k, &c->v};
    int all = 0;
    if (c->has_mask && c->mask.rank != 2 && c->mask.rank < 4) all |= LIFT_MASK;
    if (head_sizes(l)) all |= LIFT_HEAD;
    for (int i = 0; i < 3; i++)
        if (!ex_equals_int(t[i]->stride[3], 1)) all |= LIFT_QUERY << i;
    *out = 0;
    int before = rank_after(l, 0), after = all ? rank_after(l, all) : before;
    if (before < 0 || after < 0) return oom(l->err);
    if (after >= before) return true;
    *out = all;
    for (int bit = 1; bit < LIFT_ALL; bit <<= 1)
        if ((*out & bit) && rank_after(l, *out & ~bit) == after) *out &= ~bit;
    return true;
}

/* ------------------------------------------------------------------ making it */

static Value *before(Lift *l, OpId op, int n, const Arg *args)
{
    Node *x = graph_add_before(l->g, l->n, op, n, args, "lift", l->err);
    return x ? x->out[0] : NULL;
}
#define PUT(l, op, ...) before((l), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})

static Value *lifted(Lift *l, int changes)
{
    Graph *g = l->g;
    Node *n = l->n;
    Value *x[4] = {operand(n, 0), operand(n, 1), operand(n, 2), operand(n, MASK)};
    Arg arg[PARAMS];
    int64_t size = ex_is_int(x[0]->dim[3]) ? x[0]->dim[3]->i : 0, kept = ex_is_int(x[2]->dim[3]) ? x[2]->dim[3]->i : 0;
    memcpy(arg, n->arg, sizeof arg);
    for (int i = 0; i < 3; i++) {
        if ((changes & LIFT_QUERY << i) && !(x[i] = PUT(l, contiguous, arg_value(x[i])))) return NULL;
        int64_t pad[2] = {0, (i < 2 ? l->query : l->value) - (i < 2 ? size : kept)};
        if ((changes & LIFT_HEAD) && pad[1] &&
            !(x[i] = PUT(l, constant_pad_nd, arg_value(x[i]), arg_ints(g, 2, pad), arg_int(g, 0))))
            return NULL;
        arg[i] = arg_value(x[i]);
    }
    if (changes & LIFT_MASK) {
        Expr *dim[4];
        for (int i = 0; i < 4; i++)
            if (!(dim[i] = i < 4 - x[3]->rank ? ex_int(g->ex, 1) : x[3]->dim[i - (4 - x[3]->rank)])) return NULL;
        if (!(x[3] = PUT(l, reshape, arg_value(x[3]), arg_exprs(g, 4, dim)))) return NULL;
        arg[MASK] = arg_value(x[3]);
    }
    if ((changes & LIFT_HEAD) && arg[SCALE].kind == ARG_NONE) arg[SCALE] = arg_float(g, 1 / sqrt((double)size));
    Value *y = before(l, OP_scaled_dot_product_attention, PARAMS, arg);
    if (!y || !(changes & LIFT_HEAD) || l->value == kept) return y;
    return PUT(l, slice_Tensor, arg_value(y), arg_int(g, -1), arg_int(g, 0), arg_int(g, kept), arg_int(g, 1));
}

static void describe(const Lift *l, int changes, char *note, size_t room)
{
    static const char *const names[] = {"query", "key", "value"};
    int used = 0;
    if (changes & LIFT_MASK) used += snprintf(note, room, "the mask has 4 axes");
    if (changes & LIFT_HEAD)
        used += snprintf(note + used, room - (size_t)used, "%shead sizes %lld, %lld padded to %lld, %lld",
                         used ? "; " : "", (long long)operand(l->n, 0)->dim[3]->i,
                         (long long)operand(l->n, 2)->dim[3]->i, (long long)l->query, (long long)l->value);
    for (int i = 0; i < 3; i++)
        if (changes & LIFT_QUERY << i)
            used += snprintf(note + used, room - (size_t)used, "%s%s contiguous", used ? "; " : "", names[i]);
}

static bool lift_one(Lift *l, const Prover *prover, RewriteLog *log)
{
    char note[256] = "";
    Proof proof = {0};
    const Expr *cap = expr_at(l->n, SOFTCAP);
    int changes;
    if (cap && (cap->kind == EX_FLOAT ? cap->f > 0 : cap->i > 0)) return true; /* written out in a file */
    if (!call_of(l)) return oom(l->err);
    TRY(find_changes(l, &changes));
    if (!changes) return true;
    describe(l, changes, note, sizeof note);
    Value *old = l->n->out[0], *y = lifted(l, changes);
    TRY(y && prove(prover, l->g, "lift_sdpa", old, y, &proof, l->err));
    TRY(log_lift(log, "lift_sdpa", old, l->n, note, &proof, l->err));
    graph_replace_uses(l->g, old, y);
    graph_remove(l->g, l->n);
    return graph_rename(l->g, y, old->name, l->err);
}

bool lift_sdpa(Graph *g, const SdpaDevice *d, const Prover *prover, RewriteLog *log, Err *err)
{
    for (Node *n = g->first, *next; n; n = next) {
        Lift l = {.g = g, .d = d, .n = n, .err = err};
        next = n->next;
        if (n->op->id == OP_scaled_dot_product_attention && n->op->schema->nparams == PARAMS)
            TRY(lift_one(&l, prover, log));
    }
    graph_dce(g);
    return graph_check(g, err) || within(err, "after lifting attention");
}
