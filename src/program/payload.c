/* What to draw. Contract in payload.h. */
#include "program/payload.h"
#include <math.h>
#include "base/splitmix.h"
#include "facts/constant.h"
#include "facts/views.h"

enum {
    FARTHEST = 20,
    HIDES = 1000 /* what masks multiply by it hides keys */
};

/* A number from 0 to 1, as truths are compared with. */
static bool between(const Graph *g, const Arg *a)
{
    double x;
    return constant_of(g, a, &x) && x >= 0 && x <= 1;
}

static bool shown(const Arg *a, const Value *input) { return a->kind == ARG_VALUE && through_casts(a->v) == input; }

static int use_in(const Graph *g, const Node *n, const Value *input)
{
    const Arg *a = n->arg;
    int flags = n->op->flags;
    bool first = shown(&a[0], input), second = n->op->schema->nparams > 1 && shown(&a[1], input);
    if (!first && !second) return 0;
    if (n->out[0]->dtype == DT_BOOL && (!(flags & OPF_COMPARES) || between(g, &a[first]))) return INTEGER_TRUTH;
    if (n->op->id == OP_sub_Tensor && second && between(g, &a[0])) return INTEGER_TRUTH;
    if (first && flags & (OPF_REDUCES | OPF_ALONG_DIM)) return INTEGER_AMOUNT;
    double x;
    if (n->op->id != OP_mul_Tensor || (first && second)) return 0;
    if (!constant_of(g, &a[first], &x)) return INTEGER_AMOUNT;
    return fabs(x) >= HIDES ? INTEGER_TRUTH : 0;
}

IntegerUse integer_use(const Graph *g, const Value *input)
{
    int use = 0;
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->schema->nparams && n->nout) use |= use_in(g, n, input);
    return (IntegerUse)use;
}

int integers_compared(const Graph *g, const Value *input, int64_t *number, int n)
{
    int found = 0;
    for (const Node *i = g->first; i && found < n; i = i->next) {
        if (!(i->op->flags & OPF_COMPARES) || !i->nout) continue;
        double x;
        for (int k = 0; k < 2; k++)
            if (shown(&i->arg[k], input) && constant_of(g, &i->arg[!k], &x) && fabs(x) < 1e15 && found < n)
                number[found++] = (int64_t)x;
    }
    return found;
}

void plant_integers(const Tensor *t, const int64_t *number, int n, uint64_t seed)
{
    int64_t row = t->rank ? t->shape[t->rank - 1] : 1;
    uint64_t state = seed ^ 0x706c616e74;
    for (int64_t i = 0, of = tensor_numel(t); i < of; i++) {
        uint64_t x = splitmix_next(&state);
        if (row && i % row && x % 4 == 0)
            store_i64(t->dtype, (char *)t->data + (size_t)i * dtype_size(t->dtype), number[x / 4 % (uint64_t)n]);
    }
}

void draw_integers(const Tensor *t, int least, uint64_t seed)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    size_t size = dtype_size(t->dtype);
    uint64_t state = seed ^ 0x696e7465676572;
    bool below = least < 0 && dtype_lowest(t->dtype) < 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t v = (int64_t)(splitmix_next(&state) % (2 * FARTHEST + 1)) - FARTHEST;
        if (!below) v = v < 0 ? -v : v;
        if (!below && row && i % row == 0 && !v) v = 1;
        store_i64(t->dtype, (char *)t->data + (size_t)i * size, v);
    }
}

static double bound(const Graph *g, const Arg *a)
{
    double x;
    return constant_of(g, a, &x) && fabs(x) >= 2 && fabs(x) <= 10 ? fabs(x) : 0;
}

double farthest_bound(const Graph *g)
{
    double most = 0;
    for (const Node *n = g->first; n; n = n->next) {
        OpId op = n->op->id;
        if (op == OP_hardswish || op == OP_hardsigmoid) most = fmax(most, 3);
        if (!(n->op->flags & OPF_POINTWISE) || n->op->flags & OPF_ARITHMETIC) continue;
        bool floats = n->op->schema->nparams && n->arg[0].kind == ARG_VALUE && dtype_is_float(n->arg[0].v->dtype);
        for (int k = 0; floats && k < n->op->schema->nparams; k++) most = fmax(most, bound(g, &n->arg[k]));
    }
    return most;
}
