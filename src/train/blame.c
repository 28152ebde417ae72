/* Which node made the first NaN or infinity of a step. Contract in trainer.h. */
#include <math.h>
#include <string.h>
#include "train/trainer.h"
#include "base/mem.h"

enum { FINE, INFINITE, NOT_A_NUMBER };

typedef struct Blame {
    unsigned char *state;  /* by value id: the worst of its values */
    const Node *nan, *inf; /* the first that made one of operands without */
} Blame;

static int worst(const Tensor *t)
{
    int found = FINE;
    if (!t || !dtype_is_float(t->dtype)) return FINE;
    for (int64_t i = 0, n = tensor_numel(t); i < n; i++) {
        double x = tensor_get(t, i);
        if (isnan(x)) return NOT_A_NUMBER;
        if (isinf(x)) found = INFINITE;
    }
    return found;
}

typedef struct Operands {
    const unsigned char *state;
    int worst;
} Operands;

static void look(void *user, Value **slot)
{
    Operands *o = user;
    if (o->state[(*slot)->id] > o->worst) o->worst = o->state[(*slot)->id];
}

/* Infinities that the graph writes down (masks) are meant; they are in an argument. */
static bool has_infinite_argument(const Node *n)
{
    for (int i = 0; i < n->op->schema->nparams; i++)
        if (n->arg[i].kind == ARG_EXPR && n->arg[i].e->kind == EX_FLOAT && isinf(n->arg[i].e->f)) return true;
    return false;
}

static bool watch(void *user, const Node *n, Tensor *const *out)
{
    Blame *b = user;
    Operands in = {b->state, FINE};
    node_each_operand((Node *)(uintptr_t)n, look, &in);
    for (int k = 0; k < n->nout && k < 64; k++) {
        int w = worst(out[k]);
        b->state[n->out[k]->id] = (unsigned char)w;
        if (w == NOT_A_NUMBER && in.worst < NOT_A_NUMBER && !b->nan) b->nan = n;
        if (w == INFINITE && in.worst == FINE && !b->inf && !has_infinite_argument(n)) b->inf = n;
    }
    return true;
}

static bool blame_given(Session *s, Blame *b, const char *what, int64_t step, Err *err)
{
    const Graph *g = session_graph(s);
    for (int i = 0; i < g->ninput; i++) {
        int w = worst(session_input(s, i));
        b->state[g->input[i]->id] = (unsigned char)w;
        if (w)
            return fail(err, E_MISMATCH, "step %lld: %s is not finite: the data of input '%s' hold %s", (long long)step,
                        what, value_label(g->input[i]), w == INFINITE ? "an infinity" : "a NaN");
    }
    for (int i = 0; i < g->nweight; i++) {
        const Tensor *now = session_weight(s, g->weight[i]->name);
        int w = worst(now ? now : g->weight[i]->data);
        b->state[g->weight[i]->id] = (unsigned char)w;
        if (w == NOT_A_NUMBER)
            return fail(err, E_MISMATCH, "step %lld: %s is not finite: '%s' holds a NaN", (long long)step, what,
                        g->weight[i]->fqn ? g->weight[i]->fqn : g->weight[i]->name);
    }
    return true;
}

bool train_blame(Session *s, const Rng *before, const char *what, int64_t step, Err *err)
{
    Blame b = {.state = mem_zeroed((size_t)session_graph(s)->next_id + 1, 1)};
    if (!b.state) return oom(err);
    *session_generator(s) = *before;
    bool ok = blame_given(s, &b, what, step, err);
    if (ok) {
        session_on_node(s, watch, &b);
        ok = session_run(s, err);
        session_on_node(s, NULL, NULL);
    }
    *session_generator(s) = *before;
    mem_free(b.state);
    TRY(ok);
    const Node *n = b.nan ? b.nan : b.inf;
    if (!n)
        return fail(err, E_MISMATCH, "step %lld: %s is not finite: its magnitude is beyond its dtype", (long long)step,
                    what);
    return fail(err, E_MISMATCH,
                "step %lld: %s is not finite: node '%s' (%s) made the first %s; the parameters are as before this step",
                (long long)step, what, n->name, n->op->name, n == b.nan ? "NaN" : "infinity");
}
