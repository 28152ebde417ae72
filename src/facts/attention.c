/* Finding attentions that are spelled out. Contract in attention.h. */
#include "facts/attention.h"
#include <string.h>
#include "base/mem.h"

static bool is_softmax(const Node *n) { return n->op->id == OP_softmax_int || n->op->id == OP_safe_softmax; }

/* Does n multiply two tensors of the model, which a layer's linear does not, whatever its weight is computed from? */
static bool product(const AttentionFinder *f, const Node *n)
{
    return n->op->id == OP_matmul || (n->op->id == OP_linear && !f->fixed[n->arg[1].v->id]);
}

/* Ops that scores pass through on their way. */
static bool carries_scores(const Node *n) { return n->op->flags & (OPF_IN_SCORES | OPF_VIEW) && !is_softmax(n); }

/* What probabilities pass through without becoming something else. */
static bool carries_probabilities(const Node *n) { return n->op->flags & (OPF_IN_PROBABILITIES | OPF_VIEW); }

/* From v back to a product; the way is written to a->path, nearest first. */
static bool back(AttentionFinder *f, const Value *v, AttentionParts *a)
{
    if (!v->def || f->seen[v->id] || a->n == ATTENTION_PATH) return false;
    f->seen[v->id] = 1;
    a->path[a->n++] = v->def;
    if (product(f, v->def)) return true;
    if (carries_scores(v->def))
        for (int i = 0; i < v->def->op->schema->nparams; i++) {
            const Arg *x = &v->def->arg[i];
            if (x->kind == ARG_VALUE && back(f, x->v, a)) return true;
            for (int k = 0; x->kind == ARG_VALUES && k < x->n; k++)
                if (x->vs[k] && back(f, x->vs[k], a)) return true;
        }
    a->n--;
    return false;
}

typedef struct Touch {
    const unsigned char *marked; /* by value id */
    bool any, all;
} Touch;

static void touch(void *user, Value **slot)
{
    Touch *t = user;
    t->any |= t->marked[(*slot)->id] != 0;
    t->all &= t->marked[(*slot)->id] != 0;
}

static Touch operands(const Node *n, const unsigned char *marked)
{
    Touch t = {marked, false, true};
    node_each_operand((Node *)(uintptr_t)n, touch, &t);
    return t;
}

bool attention_reaches(const AttentionFinder *f, const Node *n) { return operands(n, f->after).any; }

/* The product that the probabilities reach; every value on the way is marked. */
static const Node *forth(AttentionFinder *f, const Node *softmax)
{
    memset(f->after, 0, (size_t)f->g->next_id);
    f->after[softmax->out[0]->id] = 1;
    for (const Node *n = softmax->next; n; n = n->next) {
        if (!attention_reaches(f, n)) continue;
        if (product(f, n)) return n;
        for (int k = 0; carries_probabilities(n) && k < n->nout; k++) f->after[n->out[k]->id] = 1;
    }
    return NULL;
}

static bool attention_parts(AttentionFinder *f, const Node *softmax, AttentionParts *a)
{
    a->n = 0;
    memset(f->seen, 0, (size_t)f->g->next_id);
    if (softmax->arg[0].kind != ARG_VALUE || !back(f, softmax->arg[0].v, a)) return false;
    a->scores = a->path[a->n - 1];
    a->values = forth(f, softmax);
    return true;
}

static bool of_weight(const Node *product)
{
    return product->arg[0].v->kind == V_WEIGHT || product->arg[1].v->kind == V_WEIGHT;
}

bool attention_begins(AttentionFinder *f, const Node *n, AttentionParts *a)
{
    bool written_out = n->op->id == OP_exp || n->op->id == OP_exp2;
    return (written_out || is_softmax(n)) && attention_parts(f, n, a) && !of_weight(a->scores);
}

bool attention_finder(AttentionFinder *f, const Graph *g, Err *err)
{
    size_t n = (size_t)g->next_id + 1;
    *f = (AttentionFinder){g, mem_zeroed(n, 1), mem_zeroed(n, 1), mem_zeroed(n, 1)};
    if (!f->seen || !f->after || !f->fixed) {
        attention_finder_free(f);
        return oom(err);
    }
    for (int i = 0; i < g->nweight; i++) f->fixed[g->weight[i]->id] = 1;
    for (const Node *node = g->first; node; node = node->next) {
        bool fixed = operands(node, f->fixed).all;
        for (int k = 0; k < node->nout; k++) f->fixed[node->out[k]->id] = fixed;
    }
    return true;
}

void attention_finder_free(AttentionFinder *f)
{
    mem_free(f->seen);
    mem_free(f->after);
    mem_free(f->fixed);
    *f = (AttentionFinder){0};
}
