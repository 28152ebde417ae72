/* Kernels of the attentions of a joint graph. Contract in pair_kernels.h. */
#include "backends/pair_kernels.h"
#include <string.h>
#include "base/vec.h"
#include "facts/strides.h"
#include "shape/solve.h"

typedef struct Picker {
    Graph *g;
    const SdpaDevice *device;
    const Binding *bound; /* NULL: sizes stay symbols */
    Arena *arena;
    Err *err;
} Picker;

static bool operand(const Picker *p, const Value *v, SdpaTensor *t)
{
    ExprPool *ex = p->g->ex;
    *t = (SdpaTensor){.dtype = v->dtype,
                      .rank = v->rank,
                      .dim = arena_array(p->arena, Expr *, v->rank + 1),
                      .stride = arena_array(p->arena, Expr *, v->rank + 1)};
    if (!t->dim || !t->stride || !value_strides(ex, v, t->stride)) return oom(p->err);
    for (int i = 0; i < v->rank; i++) {
        t->dim[i] = p->bound ? expr_bound(ex, v->dim[i], p->bound) : v->dim[i];
        if (p->bound) t->stride[i] = expr_bound(ex, t->stride[i], p->bound);
        if (!t->dim[i] || !t->stride[i])
            return fail(p->err, E_LIMIT, "axis %d of '%s': its size is too large", i, v->name);
    }
    /* the writer makes a last axis of another stride contiguous */
    if (v->rank && !ex_equals_int(t->stride[v->rank - 1], 1)) return expr_strides(ex, v->rank, t->dim, t->stride);
    return true;
}

static const Expr *argument(const Node *n, const char *name)
{
    const Arg *a = &n->arg[op_param(n->op, name)];
    return a->kind == ARG_EXPR ? a->e : NULL;
}

static bool call_of(const Picker *p, const Node *n, bool mask_grad, SdpaCall *c)
{
    const Arg *mask = &n->arg[op_param(n->op, "attn_mask")];
    const Expr *causal = argument(n, "is_causal");
    *c = (SdpaCall){
        .has_mask = mask->kind == ARG_VALUE, .mask_grad = mask_grad, .training = true, .causal = causal && causal->i};
    TRY(operand(p, n->arg[0].v, &c->q) && operand(p, n->arg[1].v, &c->k) && operand(p, n->arg[2].v, &c->v) &&
        (!c->has_mask || operand(p, mask->v, &c->mask)));
    c->gqa = n->arg[0].v->dim[1] != n->arg[1].v->dim[1];
    Expr **dim = arena_array(p->arena, Expr *, MAX_RANK), **stride = arena_array(p->arena, Expr *, MAX_RANK);
    return (dim && stride && sdpa_bounds(p->g->ex, argument(n, "lower"), argument(n, "upper"), dim, stride, c)) ||
           oom(p->err);
}

/* The backward pass that reads the node's logarithms, and nothing else does; NULL: another reader, or none. */
static Node *backward_of(const Graph *g, const Node *forward)
{
    const Value *lse = forward->out[1];
    Node *found = NULL;
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].value == lse) return NULL;
    for (Node *n = forward->next; n; n = n->next)
        for (int i = 0; i < n->op->schema->nparams; i++) {
            if (n->arg[i].kind != ARG_VALUE || n->arg[i].v != lse) continue;
            if (n->op->id != OP_sdpa_backward || found) return NULL;
            found = n;
        }
    return found;
}

/* The first kernel that all sizes allow. */
static const SdpaWhen *settled(const ExprPool *ex, const SdpaChoice *c)
{
    int i = 0;
    while (i + 1 < c->nwhen && c->when[i].condition && expr_truth(ex, c->when[i].condition) != 1) i++;
    return &c->when[i];
}

/* A head whose size is not known cannot be padded to the flash kernel's multiple of 8. */
static bool writable(const Node *n, SdpaBackend b)
{
    const Expr *cap = argument(n, "softcap");
    if (cap && ex_number(cap) > 0) return false;
    return b != SDPA_FLASH || ex_is_int(n->arg[0].v->dim[3]);
}

static bool pick(const Picker *p, Node *n, const Node *back, PairKernel *out)
{
    Picker at = *p, open = *p;
    SdpaCall c;
    SdpaChoice all, here;
    bool mask_grad = argument(back, "grad_mask")->i != 0;
    open.bound = NULL;
    TRY(call_of(&open, n, mask_grad, &c) && sdpa_choose(p->device, &c, p->g->ex, &all, p->err));
    TRY(call_of(&at, n, mask_grad, &c) && sdpa_choose(p->device, &c, p->g->ex, &here, p->err));
    const SdpaWhen *when = settled(p->g->ex, &here);
    *out = (PairKernel){.node = n->name, .backend = writable(n, when->backend) ? when->backend : SDPA_MATH};
    if (here.nrefusals) {
        out->rule = sdpa_rule(here.refusal[0].rule);
        out->better = here.refusal[0].backend;
    }
    for (int i = 0; i < all.nwhen && settled(p->g->ex, &all)->backend != out->backend; i++)
        if (all.when[i].backend == out->backend) out->assumes = all.when[i].condition;
    return !out->assumes || graph_require(p->g, (Expr *)(uintptr_t)out->assumes, p->err, "kernel %s of node '%s'",
                                          sdpa_backend_name(out->backend), n->name);
}

static bool mark(Graph *g, const Node *n, SdpaBackend b)
{
    Arg *kernel = &n->arg[op_param(n->op, "kernel")];
    *kernel = arg_str(g, sdpa_backend_name(b));
    return kernel->s != NULL;
}

bool pair_kernels(Graph *g, const SdpaDevice *d, const Binding *bound, Arena *arena, PairKernel **list, int *n,
                  Err *err)
{
    Picker p = {g, d, bound, arena, err};
    *n = 0;
    *list = NULL;
    for (Node *x = g->first; x; x = x->next) {
        PairKernel *grown = x->op->id == OP_sdpa_lse ? vec_room(arena, *list, *n, sizeof *grown) : NULL;
        const Node *back = grown ? backward_of(g, x) : NULL;
        if (x->op->id != OP_sdpa_lse) continue;
        if (!grown) return oom(err);
        *list = grown;
        grown[*n] = (PairKernel){.node = x->name, .backend = SDPA_MATH};
        if (back) TRY(pick(&p, x, back, &grown[*n]) || within(err, "node '%s'", x->name));
        if (d->cuda && !(mark(g, x, grown[*n].backend) && (!back || mark(g, back, grown[*n].backend)))) return oom(err);
        ++*n;
    }
    return true;
}
