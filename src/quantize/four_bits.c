/* Weights of 4 bits. Contract in four_bits.h. */
#include "quantize/four_bits.h"
#include "base/mem.h"
#include "facts/constant.h"
#include "facts/views.h"
#include "quantize/integers.h"

typedef struct Readers {
    const Value *v;
    int n, layers; /* operands; those that are the weight of a product whose other factor are floats */
} Readers;

static void count(void *user, Value **slot)
{
    Readers *r = user;
    r->n += *slot == r->v;
}

static bool in_floats(const Value *x)
{
    const Node *n = value_below(x, quantize_moves, NULL)->def;
    return !n || n->op->id != OP_dequantize_linear;
}

/* Is v, directly or transposed, only ever the weight of layers that read floats? */
static bool weight_alone(const Graph *g, const Value *v)
{
    Readers r = {.v = v};
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].value == v) return false;
    for (const Node *n = v->def->next; n; n = n->next) {
        node_each_operand((Node *)(uintptr_t)n, count, &r);
        if ((n->op->id == OP_linear || n->op->id == OP_matmul) && n->arg[1].v == v) r.layers += in_floats(n->arg[0].v);
        else if (n->op->id == OP_permute && n->arg[0].v == v) r.layers += weight_alone(g, n->out[0]);
    }
    return r.n && r.n == r.layers;
}

static bool takes_four(const Graph *g, const Node *d)
{
    Err why = {0};
    const Value *w = d->arg[0].v;
    if (d->op->id != OP_dequantize_linear || w->kind != V_WEIGHT || w->dtype != DT_I8 || w->rank != 2 ||
        !constant_weight(g, w, &why) || !quantize_within_4_bits(g, w) || !quantize_all_zero(g, &d->arg[2]))
        return false;
    return d->arg[4].e->i || (d->arg[1].v->rank == 1 && weight_alone(g, d->out[0]));
}

bool weights_in_four_bits(Graph *g, Err *err)
{
    int *uses = mem_zeroed((size_t)g->next_id + 1, sizeof *uses), *taken = NULL;
    bool ok = uses && (taken = mem_zeroed((size_t)g->next_id + 1, sizeof *taken));
    if (ok) graph_count_uses(g, uses);
    for (Node *n = g->first; ok && n; n = n->next)
        if (takes_four(g, n)) taken[n->arg[0].v->id]++;
    for (Node *n = g->first; ok && n; n = n->next) {
        Value *w = n->op->id == OP_dequantize_linear ? n->arg[0].v : NULL;
        if (!w || !taken[w->id] || taken[w->id] != uses[w->id]) continue;
        n->arg[2] = arg_none();
        if (w->dtype == DT_I4) continue;
        Tensor *t = arena_new(g->arena, Tensor);
        if (!(ok = t != NULL)) break;
        *t = *w->data;
        t->dtype = w->dtype = DT_I4;
        w->data = t;
    }
    mem_free(uses);
    mem_free(taken);
    return ok || oom(err);
}
