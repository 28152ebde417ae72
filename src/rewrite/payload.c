/* What to draw. Contract in payload.h. */
#include "rewrite/payload.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/splitmix.h"
#include "facts/constant.h"
#include "facts/views.h"

enum {
    INTEGER_TRUTH = 1,  /* read as true or false, so that hardly two spellings agree on more than 0 and 1 */
    INTEGER_AMOUNT = 2, /* counted or weighed, so that negative ones make little sense */
};

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

/* Of all uses of an integer input, through views and casts: the sum of what holds. */
static int integer_use(const Graph *g, const Value *input)
{
    int use = 0;
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->schema->nparams && n->nout) use |= use_in(g, n, input);
    return use;
}

static void add_compared(IntegerDraw *d, const Graph *g, const Value *input, int most)
{
    for (const Node *n = g->first; n && d->numbers < most; n = n->next) {
        if (!(n->op->flags & OPF_COMPARES) || !n->nout) continue;
        double x;
        for (int k = 0; k < 2; k++)
            if (shown(&n->arg[k], input) && constant_of(g, &n->arg[!k], &x) && fabs(x) < 1e15 && d->numbers < most)
                d->number[d->numbers++] = (int64_t)x;
    }
}

/* Where integers of 8 and 16 bits wrap around: their limits, and what a cast to them cannot hold. */
static void add_limits(IntegerDraw *d, const Graph *g, const Value *input, int most)
{
    if (dtype_size(input->dtype) <= 2 && dtype_is_int(input->dtype) && d->numbers + 2 <= most) {
        d->number[d->numbers++] = (int64_t)dtype_lowest(input->dtype);
        d->number[d->numbers++] = (int64_t)dtype_highest(input->dtype);
    }
    for (const Node *n = g->first; n && d->numbers < most; n = n->next) {
        if (n->op->id != OP_to_copy || !shown(&n->arg[0], input)) continue;
        DType to = n->out[0]->dtype;
        if (dtype_is_int(to) && dtype_size(to) <= 2 && dtype_size(to) < dtype_size(input->dtype))
            d->number[d->numbers++] = (int64_t)dtype_highest(to) + 1;
    }
}

IntegerDraw integer_draw(const Graph *const *g, const Value *const *input, int n)
{
    enum { ROOM = sizeof ((IntegerDraw *)NULL)->number / sizeof(int64_t) };
    IntegerDraw d = {.least = 0};
    int all = 0;
    for (int k = 0; k < n; k++) {
        int use = input[k] ? integer_use(g[k], input[k]) : 0;
        if (!use) d.least = -1;
        all |= use;
        if (input[k]) add_compared(&d, g[k], input[k], ROOM * (k + 1) / n);
        if (input[k] && !use) add_limits(&d, g[k], input[k], ROOM * (k + 1) / n);
    }
    d.truths = d.least == 0 && all & INTEGER_TRUTH;
    return d;
}

bool holds_truths(const Tensor *t)
{
    for (int64_t i = 0, n = tensor_numel(t); dtype_is_int(t->dtype) && i < n; i++)
        if (tensor_get_i64(t, i) < 0 || tensor_get_i64(t, i) > 1) return false;
    return dtype_is_int(t->dtype);
}

static void plant_integers(const Tensor *t, const IntegerDraw *d, uint64_t seed)
{
    int64_t row = t->rank ? t->shape[t->rank - 1] : 1;
    size_t size = dtype_size(t->dtype);
    uint64_t state = seed ^ 0x706c616e74;
    for (int64_t i = 0, of = tensor_numel(t); i < of; i++) {
        uint64_t x = splitmix_next(&state);
        if (row && i % row && x % 4 == 0)
            store_i64(t->dtype, (char *)t->data + (size_t)i * size, d->number[x / 4 % (uint64_t)d->numbers]);
    }
}

static void draw_integers(const Tensor *t, int least, uint64_t seed)
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

/* Plants numbers, or draws all: keeps what was there where `runs` refuses. */
static bool redraw(const Tensor *t, const IntegerDraw *plant, int least, uint64_t seed, RunsFn *runs, void *user,
                   bool *ran, Err *err)
{
    Err cannot = {0};
    size_t bytes = (size_t)tensor_numel(t) * dtype_size(t->dtype);
    void *before = mem_alloc(bytes);
    if (!before) return oom(err);
    memcpy(before, t->data, bytes);
    if (plant) plant_integers(t, plant, seed);
    else draw_integers(t, least, seed);
    *ran = runs(user, &cannot);
    if (!*ran) memcpy(t->data, before, bytes);
    mem_free(before);
    return !mem_ran_out() || oom(err);
}

bool tell_more(const Tensor *t, const IntegerDraw *d, uint64_t seed, RunsFn *runs, void *user, Err *err)
{
    bool ran = !holds_truths(t);
    if (!ran && d->truths) return true;
    for (int least = d->least; !ran && least <= 0; least++) TRY(redraw(t, NULL, least, seed, runs, user, &ran, err));
    return !d->numbers || redraw(t, d, 0, seed, runs, user, &ran, err);
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
