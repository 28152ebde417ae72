/* Which nodes vanish into an epilogue. Contract in fuse.h.
 *
 * A linear, matmul with a 2-D second operand, or convolution takes an activation that alone uses its result; a linear or matmul also takes
 * the addition of a tensor of the same shape and dtype (a residual) that alone uses that.
 */
#include "plan/fuse.h"
#include <stdlib.h>
#include <string.h>

typedef struct Fuser {
    const Graph *g;
    Fusion *f;
    int *uses;         /* by value id */
    Node **user;       /* by value id: the last node that uses it */
} Fuser;

typedef struct Noting {
    Fuser *s;
    Node *n;
} Noting;

static void note_user(void *user, Value **slot)
{
    Noting *t = user;
    t->s->user[(*slot)->id] = t->n;
}

static Node *only_user(const Fuser *s, const Value *v) { return s->uses[v->id] == 1 ? s->user[v->id] : NULL; }

static int activation_of(const Node *n)
{
    switch (n->op->id) {
    case OP_relu: return ACT_RELU;
    case OP_silu: return ACT_SILU;
    case OP_gelu: return strcmp(n->arg[1].s, "tanh") ? ACT_GELU_ERF : ACT_GELU_TANH;
    default: return ACT_NONE;
    }
}

static bool same_type(const Value *a, const Value *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* The residual of add(v, r) or add(r, v). */
static Value *residual_of(const Node *n, const Value *v)
{
    if (n->op->id != OP_add_Tensor || n->arg[0].kind != ARG_VALUE || n->arg[1].kind != ARG_VALUE) return NULL;
    Value *other = n->arg[0].v == v ? n->arg[1].v : n->arg[0].v;
    return other != v && same_type(other, v) && same_type(n->out[0], v) ? other : NULL;
}

static FusedNode *entry(Fuser *s, const Node *n) { return &s->f->node[n->out[0]->id]; }

/* The one user of v, unless another product has taken it already: linear(x) + linear(y) is fused once. */
static Node *free_user(Fuser *s, const Value *v)
{
    Node *n = only_user(s, v);
    return n && !(n->nout && entry(s, n)->absorbed) ? n : NULL;
}

static void fuse_one(Fuser *s, Node *n)
{
    bool conv = n->op->id == OP_convolution;
    bool product = n->op->id == OP_linear || (n->op->id == OP_matmul && n->arg[1].v->rank == 2);
    DType t = n->nout ? n->out[0]->dtype : DT_NONE;
    if ((!conv && !product) || (t != DT_F32 && t != DT_BF16)) return;
    FusedNode *p = entry(s, n);
    Value *at = n->out[0];
    Node *last = NULL, *next = free_user(s, at);
    if (next && activation_of(next)) {
        p->act = activation_of(next);
        entry(s, next)->absorbed = true;
        at = next->out[0];
        last = next;
        next = free_user(s, at);
    }
    Value *residual = product && next ? residual_of(next, at) : NULL;
    if (residual) {
        p->residual = residual;
        entry(s, next)->absorbed = true;
        at = next->out[0];
        last = next;
    }
    if (!last) return;
    p->result = at;
    entry(s, last)->producer = n;
}

bool fuse_graph(const Graph *g, Fusion *f, Err *err)
{
    size_t n = (size_t)g->next_id + 1;
    *f = (Fusion){.node = calloc(n, sizeof *f->node), .n = g->next_id};
    Fuser s = {.g = g, .f = f, .uses = calloc(n, sizeof *s.uses), .user = calloc(n, sizeof *s.user)};
    bool ok = f->node && s.uses && s.user;
    if (ok) {
        graph_count_uses(g, s.uses);
        for (Node *node = g->first; node; node = node->next) {
            Noting t = {&s, node};
            node_each_operand(node, note_user, &t);
        }
        for (Node *node = g->first; node; node = node->next) fuse_one(&s, node);
    } else {
        fusion_free(f);
        fail(err, E_LIMIT, "out of memory");
    }
    free(s.uses);
    free(s.user);
    return ok;
}

void fusion_free(Fusion *f)
{
    free(f->node);
    *f = (Fusion){0};
}
