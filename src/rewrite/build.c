/* Builders. Contract in build.h. */
#include "rewrite/build.h"
#include <math.h>
#include <string.h>
#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"

enum { MADE_PER_NODE = 16, MADE_BUILTIN = 64, MADE_FROM_ONE = 400 };

/* ------------------------------------------------------------------ arguments */

enum { MAX_NESTED = 16 };

/* ------------------------------------------------------------------ making nodes once */

static uint64_t mix(uint64_t h, uint64_t x) { return (h ^ x) * 0x9e3779b97f4a7c15u ^ (h >> 29); }

static uint64_t hash_node(const Op *op, const Arg *arg)
{
    uint64_t h = mix(17, (uint64_t)op->id);
    for (int i = 0; i < op->schema->nparams; i++) {
        const Arg *a = &arg[i];
        h = mix(h, (uint64_t)a->kind);
        switch (a->kind) {
        case ARG_VALUE: h = mix(h, (uint64_t)a->v->id); break;
        case ARG_EXPR: h = mix(h, a->e->id); break;
        case ARG_DTYPE: h = mix(h, (uint64_t)a->dtype); break;
        case ARG_STR: h = mix(h, hash_bytes(a->s, strlen(a->s))); break;
        case ARG_VALUES:
            for (int k = 0; k < a->n; k++) h = mix(h, a->vs[k] ? (uint64_t)a->vs[k]->id : 0);
            break;
        case ARG_EXPRS:
            for (int k = 0; k < a->n; k++) h = mix(h, a->es[k]->id);
            break;
        case ARG_GRAPH: h = mix(h, (uint64_t)(uintptr_t)a->g); break;
        case ARG_NONE: break;
        }
    }
    return h;
}

static bool rehash(Rewrite *rw)
{
    int n = rw->nbuckets ? rw->nbuckets * 2 : 1024;
    int *bucket = mem_zeroed((size_t)n, sizeof *bucket), *chain = mem_grow(rw->chain, (size_t)n * sizeof *chain);
    if (chain) rw->chain = chain;
    if (!bucket || !chain) {
        mem_free(bucket);
        return false;
    }
    mem_free(rw->bucket);
    rw->bucket = bucket;
    rw->nbuckets = n;
    for (int i = 0; i < rw->nghosts; i++) {
        uint64_t h = hash_node(rw->ghost[i]->op, rw->ghost[i]->arg) & (uint64_t)(n - 1);
        chain[i] = bucket[h];
        bucket[h] = i + 1;
    }
    return true;
}

Node *rewrite_made(Rewrite *rw, const Op *op, const Arg *arg)
{
    if (!rw->nbuckets) return NULL;
    for (int i = rw->bucket[hash_node(op, arg) & (uint64_t)(rw->nbuckets - 1)]; i; i = rw->chain[i - 1]) {
        const Node *n = rw->ghost[i - 1];
        bool same = n->op == op;
        for (int k = 0; same && k < op->schema->nparams; k++) same = arg_same(&n->arg[k], &arg[k]);
        if (same) return rw->ghost[i - 1];
    }
    return NULL;
}

static Value *out_of_memory(Rewrite *rw)
{
    oom(rw->err);
    rw->hard = true;
    return NULL;
}

typedef struct Holding {
    Rewrite *rw;
    Node *node;
    bool ok;
} Holding;

static void hold(void *user, Value **slot)
{
    Holding *h = user;
    Rewrite *rw = h->rw;
    Holder *grown = vec_grow(rw->holder, rw->nholders, sizeof *grown);
    if (!grown) {
        h->ok = false;
        return;
    }
    rw->holder = grown;
    Info *info = rewrite_info(rw, *slot);
    rw->holder[rw->nholders++] = (Holder){h->node, info->holders};
    info->holders = rw->nholders;
}

bool rewrite_remember(Rewrite *rw, Node *n)
{
    Node **grown = vec_grow(rw->ghost, rw->nghosts, sizeof *grown);
    if (!grown) return false;
    rw->ghost = grown;
    rw->ghost[rw->nghosts++] = n;
    Holding operands = {rw, n, true};
    node_each_operand(n, hold, &operands);
    if (!operands.ok) return false;
    if (rw->nghosts >= rw->nbuckets) return rehash(rw);
    uint64_t h = hash_node(n->op, n->arg) & (uint64_t)(rw->nbuckets - 1);
    rw->chain[rw->nghosts - 1] = rw->bucket[h];
    rw->bucket[h] = rw->nghosts;
    return true;
}

Value *rw_add(Rewrite *rw, OpId id, int nargs, const Arg *args)
{
    const Op *op = op_get(id);
    Arg fit[64];
    Err e = {0};
    for (int i = 0; i < nargs; i++) { /* an operand that could not be built, a required one above all */
        if ((args[i].kind == ARG_VALUE && !args[i].v) || (args[i].kind == ARG_EXPR && !args[i].e)) return NULL;
        if (args[i].kind == ARG_NONE && !op->schema->params[i].optional && !op->schema->params[i].def) return NULL;
    }
    if (!op_fit_args(rw->g, op, nargs, args, fit, &e)) {
        rewrite_refuse(rw, "%s: %s", op->name, e.msg);
        return NULL;
    }
    Node *n = rewrite_made(rw, op, fit);
    if (n) return n->out[0];
    if (rw->rule && rw->rule->builtin &&
        (rw->nghosts - rw->made_before > MADE_FROM_ONE || rw->nghosts > MADE_BUILTIN * (rw->log->nodes_before + 256))) {
        rewrite_refuse(rw, "it can be written in too many ways: views of equal sizes or of sizes of 1");
        return NULL;
    }
    if (rw->nghosts > MADE_PER_NODE * (rw->log->nodes_before + 256) && !(rw->rule && rw->rule->builtin)) {
        fail(rw->err, E_LIMIT, "rule '%s': %d nodes were made for a graph of %d; do derive rules go on without end?",
             rw->rule ? rw->rule->name : "", rw->nghosts, rw->log->nodes_before);
        rw->hard = true;
        return NULL;
    }
    int nrequire = rw->g->nrequire;
    n = graph_add(rw->g, id, nargs, args, NULL, &e);
    if (!n && e.code == E_LIMIT) {
        *rw->err = e;
        rw->hard = true;
        return NULL;
    }
    if (!n || rw->g->nrequire > nrequire) {
        if (n) {
            Buf b = {0};
            ex_print(rw->g->ex, rw->g->require[nrequire].cond, &b);
            rewrite_refuse(rw, "it would have to hold that %s, which does not follow from the sizes",
                           b.data ? b.data : "?");
            buf_free(&b);
            graph_remove(rw->g, n);
        } else {
            rewrite_refuse(rw, "%s", e.msg);
        }
        rw->g->nrequire = nrequire;
        return NULL;
    }
    graph_remove(rw->g, n);
    if (!rewrite_remember(rw, n)) return out_of_memory(rw);
    for (int k = 0; k < n->nout; k++) {
        Info *info = rewrite_info(rw, n->out[k]);
        if (!info) return out_of_memory(rw);
        info->ghost = true;
    }
    return n->out[0];
}

/* ------------------------------------------------------------------ views */

/* reshape(permute(x)) that splits axes, or merges those that are neighbours in x, is permute(reshape(x)). */
static Value *reshape_below(Rewrite *rw, Value *v, int rank, Expr *const *dim)
{
    int perm[MAX_RANK], f[MAX_RANK * 2 + 2], t[MAX_RANK * 2 + 2], at[MAX_RANK * 2 + 2], outer[MAX_RANK], k = 0;
    Expr *inner[MAX_RANK];
    if (!v->def || !permutation_of(v->def, perm)) return NULL;
    int groups = axis_groups(rw->ex, v->rank, v->dim, rank, dim, f, t);
    for (int g = 0; g < groups; g++) {
        if (f[g + 1] == f[g] || t[g + 1] == t[g]) return NULL;
        for (int i = f[g] + 1; i < f[g + 1]; i++)
            if (perm[i] != perm[i - 1] + 1) return NULL;
    }
    if (groups < 1) return NULL;
    for (int a = 0; a < v->rank; a++) /* groups in the order of x's axes */
        for (int g = 0; g < groups; g++)
            if (perm[f[g]] == a) {
                at[g] = k;
                for (int j = t[g]; j < t[g + 1]; j++) inner[k++] = dim[j];
            }
    for (int g = 0; g < groups; g++)
        for (int j = t[g]; j < t[g + 1]; j++) outer[j] = at[g] + j - t[g];
    return rw_permute(rw, rw_reshape(rw, v->def->arg[0].v, rank, inner), outer);
}

/* A permute that keeps the order of all axes but those of 1. */
static bool moves_ones(const Value *v)
{
    int perm[MAX_RANK], last = -1;
    if (!v->def || !permutation_of(v->def, perm)) return false;
    for (int i = 0; i < v->rank; i++) {
        if (is_one(v->dim[i])) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

/* permute(reshape(x)) where the reshape puts in or takes out axes of 1 only is reshape(permute(x)). NULL otherwise. */
static Value *permute_below(Rewrite *rw, const Value *v, const int *perm)
{
    int a[MAX_RANK], b[MAX_RANK], where[MAX_RANK], all[MAX_RANK], n = 0;
    Expr *dim[MAX_RANK];
    if (!v->def || v->def->op->id != OP_reshape) return NULL;
    Value *x = v->def->arg[0].v;
    if (!same_but_ones(v, x)) return NULL;
    wide_axes(v, a);
    int wide = wide_axes(x, b);
    for (int i = 0; i < wide; i++) where[a[i]] = b[i];
    for (int i = 0; i < x->rank; i++)
        if (is_one(x->dim[i])) all[n++] = i; /* x's own axes of 1 in front */
    for (int i = 0; i < v->rank; i++) {
        dim[i] = v->dim[perm[i]];
        if (!is_one(dim[i])) all[n++] = where[perm[i]];
    }
    bool sorted = true; /* the axes of 1 may be anywhere: leave them when the others keep their order */
    for (int i = n - wide + 1; i < n; i++) sorted &= all[i] > all[i - 1];
    return rw_reshape(rw, sorted ? x : rw_permute(rw, x, all), v->rank, dim);
}

/* permute(reshape(permute(x))) where the reshape merges axes only is reshape(permute(x)). NULL otherwise. */
static Value *permute_merged(Rewrite *rw, const Value *v, const int *perm)
{
    int f[MAX_RANK * 2 + 2], t[MAX_RANK * 2 + 2], all[MAX_RANK], n = 0;
    Expr *dim[MAX_RANK];
    Value *x = v->def && v->def->op->id == OP_reshape ? v->def->arg[0].v : NULL;
    if (!x || !x->def || x->def->op->id != OP_permute ||
        axis_groups(rw->ex, x->rank, x->dim, v->rank, v->dim, f, t) != v->rank)
        return NULL;
    for (int i = 0; i < v->rank; i++)
        if (t[i + 1] != t[i] + 1) return NULL;
    for (int i = 0; i < v->rank; i++) {
        dim[i] = v->dim[perm[i]];
        for (int k = f[perm[i]]; k < f[perm[i] + 1]; k++) all[n++] = k;
    }
    return rw_reshape(rw, rw_permute(rw, x, all), v->rank, dim);
}

/* reshape(permute(x)) where x has axes of 1 that a reshape of others put in: the same of x without them. NULL where
 * that is not so. */
static Value *reshape_squeezed(Rewrite *rw, const Value *v, int rank, Expr *const *dim)
{
    int perm[MAX_RANK], axis[MAX_RANK], order[MAX_RANK], n, k = 0;
    Expr *inner[MAX_RANK];
    if (!v->def || !permutation_of(v->def, perm)) return NULL;
    Value *x = v->def->arg[0].v;
    n = wide_axes(x, axis);
    if (n == x->rank) return NULL;
    for (int i = 0; i < n; i++) inner[i] = x->dim[axis[i]];
    for (int i = 0; i < v->rank; i++)
        for (int j = 0; j < n; j++)
            if (axis[j] == perm[i]) order[k++] = j;
    Value *y = rw_reshape(rw, x, n, inner);
    if (!y) return NULL;
    if (y->def && y->def->op->id == OP_reshape && same_but_ones(y, y->def->arg[0].v))
        return NULL; /* permute_below would put them in again */
    Value *s = rw_permute(rw, y, order);
    return s ? reshape_below(rw, s, rank, dim) : NULL;
}

Value *rw_reshape(Rewrite *rw, Value *v, int rank, Expr *const *dim)
{
    if (!v) return NULL;
    if (v->rank == rank && exprs_same(rank, v->dim, dim)) return v;
    while (v->def && (v->def->op->id == OP_reshape || moves_ones(v))) {
        v = v->def->arg[0].v;
        if (v->rank == rank && exprs_same(rank, v->dim, dim)) return v;
    }
    Value *below = NULL;
    if (rw->nested++ < MAX_NESTED) {
        below = reshape_below(rw, v, rank, dim);
        if (!below) below = reshape_squeezed(rw, v, rank, dim);
    }
    rw->nested--;
    return below ? below : RW(rw, reshape, arg_value(v), arg_exprs(rw->g, rank, dim));
}

Value *rw_permute(Rewrite *rw, Value *v, const int *perm)
{
    int inner[MAX_RANK], all[MAX_RANK];
    int64_t dims[MAX_RANK];
    if (!v) return NULL;
    memcpy(all, perm, (size_t)v->rank * sizeof *all);
    while (v->def && permutation_of(v->def, inner)) {
        for (int i = 0; i < v->rank; i++) all[i] = inner[all[i]];
        v = v->def->arg[0].v;
    }
    bool same = true;
    for (int i = 0; i < v->rank; i++) {
        same &= all[i] == i;
        dims[i] = all[i];
    }
    if (same) return v;
    Value *below = NULL;
    if (rw->nested++ < MAX_NESTED) {
        below = permute_below(rw, v, all);
        if (!below) below = permute_merged(rw, v, all);
    }
    rw->nested--;
    return below ? below : RW(rw, permute, arg_value(v), arg_ints(rw->g, v->rank, dims));
}

Value *rw_swap_last(Rewrite *rw, Value *v)
{
    int perm[MAX_RANK];
    if (!v) return NULL;
    for (int i = 0; i < v->rank; i++) perm[i] = i < v->rank - 2 ? i : 2 * v->rank - 3 - i;
    return rw_permute(rw, v, perm);
}

Value *rw_expand(Rewrite *rw, Value *v, int rank, Expr *const *dim)
{
    if (!v) return NULL;
    if (v->rank == rank && exprs_same(rank, v->dim, dim)) return v;
    if (v->def && v->def->op->id == OP_expand) v = v->def->arg[0].v;
    return RW(rw, expand, arg_value(v), arg_exprs(rw->g, rank, dim));
}

Value *rw_pad_rank(Rewrite *rw, Value *v, int rank)
{
    Expr *dim[MAX_RANK];
    if (!v || v->rank >= rank) return v;
    for (int i = 0; i < rank; i++) dim[i] = i < rank - v->rank ? ex_int(rw->ex, 1) : v->dim[i - (rank - v->rank)];
    return rw_reshape(rw, v, rank, dim);
}

Value *rw_regroup(Rewrite *rw, Value *x, int nfrom, Expr *const *from, int nto, Expr *const *to, int tail)
{
    int f[MAX_RANK * 2 + 2], t[MAX_RANK * 2 + 2];
    Expr *wide[MAX_RANK], *dim[MAX_RANK];
    if (!x) return NULL;
    if (x->rank > nfrom + tail) {
        rewrite_refuse(rw, "'%s' has %d axes, expected at most %d", x->name, x->rank, nfrom + tail);
        return NULL;
    }
    int groups = axis_groups(rw->ex, nfrom, from, nto, to, f, t);
    if (groups < 0 || nto + tail > MAX_RANK) {
        rewrite_refuse(rw, "leading axes cannot be regrouped: the sizes do not follow from each other");
        return NULL;
    }
    x = rw_pad_rank(rw, x, nfrom + tail);
    TRY_NULL(x);
    for (int i = 0; i < tail; i++) wide[nfrom + i] = dim[nto + i] = x->dim[nfrom + i];
    for (int g = 0; g < groups; g++) {
        bool ones = true, full = true, same = f[g + 1] - f[g] == t[g + 1] - t[g];
        for (int i = f[g]; i < f[g + 1]; i++) {
            ones &= is_one(x->dim[i]);
            full &= x->dim[i] == from[i];
        }
        for (int i = 0; same && i < f[g + 1] - f[g]; i++) same = from[f[g] + i] == to[t[g] + i];
        for (int i = f[g]; i < f[g + 1]; i++) wide[i] = ones || full || same ? x->dim[i] : from[i];
        for (int j = t[g]; j < t[g + 1]; j++)
            dim[j] = same ? x->dim[f[g] + j - t[g]] : ones ? ex_int(rw->ex, 1) : to[j];
    }
    return rw_reshape(rw, rw_expand(rw, x, nfrom + tail, wide), nto + tail, dim);
}

/* ------------------------------------------------------------------ numbers */

Value *rw_view_again(Rewrite *rw, const Node *node, Value *v)
{
    const Value *to = node->out[0];
    int perm[MAX_RANK];
    TRY_NULL(v);
    if (node->op->id == OP_reshape) return rw_reshape(rw, v, to->rank, to->dim);
    if (node->op->id == OP_expand) return rw_expand(rw, v, to->rank, to->dim);
    return permutation_of(node, perm) ? rw_permute(rw, v, perm) : NULL;
}

Value *rw_cast(Rewrite *rw, Value *v, DType t)
{
    if (!v || v->dtype == t) return v;
    return RW(rw, to_copy, arg_value(v), arg_dtype(t));
}

Value *rw_binary(Rewrite *rw, OpId op, Value *v, Arg other)
{
    if (!v || (other.kind == ARG_VALUE && !other.v)) return NULL;
    return rw_add(rw, op, 2, (Arg[]){arg_value(v), other});
}
