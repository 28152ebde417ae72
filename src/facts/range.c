/* How large and how small elements can get. Contract in range.h. */
#include "facts/range.h"
#include <float.h>
#include <math.h>
#include "base/mem.h"
#include "facts/constant.h"

enum { UNKNOWN = 100, MAX_SEARCHED = 500, MAX_ELEMENTS = 1 << 20 };

typedef struct Range {
    double lo, hi;
} Range;

static Range range_of(const Graph *g, const Arg *a, int *budget);

static Range either(Range a, Range b) { return (Range){fmin(a.lo, b.lo), fmax(a.hi, b.hi)}; }

static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

static Range product(Range a, Range b)
{
    Range x = {times(a.lo, b.lo), times(a.lo, b.hi)}, y = {times(a.hi, b.lo), times(a.hi, b.hi)};
    return (Range){fmin(fmin(x.lo, x.hi), fmin(y.lo, y.hi)), fmax(fmax(x.lo, x.hi), fmax(y.lo, y.hi))};
}

/* Factors that models scale by huge numbers are masks, of 0 and 1 in integers, from -1 to 1 in floats. */
static Range of_leaf(const Graph *g, const Value *v)
{
    if (v->dtype == DT_BOOL) return (Range){0, 1};
    if (v->kind == V_INPUT) return dtype_is_float(v->dtype) ? (Range){-1, 1} : (Range){0, 1};
    const Tensor *t = constant_tensor(g, v);
    int64_t n = t ? tensor_numel(t) : 0;
    if (n == 0 || n > MAX_ELEMENTS) return (Range){-UNKNOWN, UNKNOWN};
    Range r = {INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++) r = either(r, (Range){tensor_get(t, i), tensor_get(t, i)});
    return r;
}

static Range of_node(const Graph *g, const Node *n, int *budget)
{
    const Arg *a = n->arg;
    Range x, y;
    double c;
    if (n->op->flags & OPF_PICKS) return range_of(g, &a[0], budget);
    switch (n->op->id) {
    case OP_tril:
    case OP_triu: return either(range_of(g, &a[0], budget), (Range){0, 0});
    case OP_neg: x = range_of(g, &a[0], budget); return (Range){-x.hi, -x.lo};
    case OP_abs: x = range_of(g, &a[0], budget); return (Range){0, fmax(fabs(x.lo), fabs(x.hi))};
    case OP_add_Tensor:
    case OP_sub_Tensor:
        x = range_of(g, &a[0], budget);
        y = product(range_of(g, &a[1], budget), range_of(g, &a[2], budget));
        return n->op->id == OP_add_Tensor ? (Range){x.lo + y.lo, x.hi + y.hi} : (Range){x.lo - y.hi, x.hi - y.lo};
    case OP_mul_Tensor: return product(range_of(g, &a[0], budget), range_of(g, &a[1], budget));
    case OP_div_Tensor:
        if (!constant_of(g, &a[1], &c) || c == 0) break;
        return product(range_of(g, &a[0], budget), (Range){1 / c, 1 / c});
    case OP_where_self: return either(range_of(g, &a[1], budget), range_of(g, &a[2], budget));
    case OP_cat:
        x = (Range){INFINITY, -INFINITY};
        for (int i = 0; i < a[0].n; i++) x = either(x, range_of(g, &(Arg){.kind = ARG_VALUE, .v = a[0].vs[i]}, budget));
        return x;
    default: break;
    }
    return (Range){-UNKNOWN, UNKNOWN};
}

static Range range_of(const Graph *g, const Arg *a, int *budget)
{
    double c;
    if (--*budget < 0) return (Range){-INFINITY, INFINITY};
    if (constant_of(g, a, &c)) return (Range){c, c};
    if (a->kind != ARG_VALUE) return (Range){-UNKNOWN, UNKNOWN};
    return a->v->def && a->v->dtype != DT_BOOL ? of_node(g, a->v->def, budget) : of_leaf(g, a->v);
}

double largest_of(const Graph *g, Value *v)
{
    return range_of(g, &(Arg){.kind = ARG_VALUE, .v = v}, &(int){MAX_SEARCHED}).hi;
}

/* low: how many numbers are at half of the least one or further; two of them may add up to -inf. */
static bool may_sink(const Graph *g, const Value *v, int *low, int *budget)
{
    double least = v->dtype == DT_F64 ? -DBL_MAX : v->dtype == DT_F16 ? -65504 : -FLT_MAX;
    if (--*budget < 0) return true;
    if (v->kind == V_INPUT) return dtype_is_float(v->dtype);
    if (v->kind == V_WEIGHT) {
        int64_t n = v->data && v->data->data && dtype_is_float(v->dtype) ? tensor_numel(v->data) : 0;
        if (n > 1 << 20 || graph_writes(g, v)) return true;
        bool any = false;
        for (int64_t i = 0; i < n; i++) {
            double x = tensor_get(v->data, i);
            if (isinf(x)) return true;
            any |= x < least / 2;
        }
        *low += any;
        return false;
    }
    const Node *n = v->def;
    if (!dtype_is_float(v->dtype)) return false;
    if (n->op->id == OP_log) return true;
    if (n->op->id == OP_scaled_dot_product_attention || n->op->id == OP_matmul || n->op->id == OP_linear) return false;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_EXPR && a->e->kind == EX_FLOAT && isinf(a->e->f)) return true;
        *low += a->kind == ARG_EXPR && a->e->kind == EX_FLOAT && a->e->f < least / 2;
        if (a->kind == ARG_VALUE && may_sink(g, a->v, low, budget)) return true;
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++)
            if (a->vs[k] && may_sink(g, a->vs[k], low, budget)) return true;
    }
    return *low > 1 && n->op->flags & OPF_ARITHMETIC;
}

bool may_be_minus_inf(const Graph *g, const Value *v) { return may_sink(g, v, &(int){0}, &(int){MAX_SEARCHED}); }

/* Is each element above 0 and a divisor that its kind of number has a reciprocal of? */
static bool divides(const Graph *g, const Arg *a)
{
    double c;
    const Node *n = a->kind == ARG_VALUE ? a->v->def : NULL;
    while (n && n->op->flags & (OPF_VIEW | OPF_REARRANGES) && n->arg[0].kind == ARG_VALUE) {
        a = &n->arg[0];
        n = a->v->def;
    }
    if (constant_of(g, a, &c)) return fabs(c) >= FLT_MIN && isfinite(c);
    if (!n) return a->kind == ARG_EXPR; /* a size */
    return n->op->id == OP_clamp && constant_of(g, &n->arg[1], &c) && c >= FLT_MIN;
}

static bool infinite_argument(const Node *n)
{
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_EXPR && a->e->kind == EX_FLOAT && !isfinite(a->e->f)) return true;
    }
    return false;
}

typedef enum Answer { NO, YES, OPERANDS } Answer; /* OPERANDS: if one of them does */

static Answer takes_infinity(const Graph *g, const Value *v)
{
    const Node *n = v->def;
    double c;
    if (constant_value(g, v, &c)) return isfinite(c) ? NO : YES;
    if (!n || !(n->op->flags & (OPF_PICKS | OPF_REARRANGES | OPF_ARITHMETIC) || n->op->id == OP_where_self ||
                n->op->id == OP_cat))
        return NO;
    return infinite_argument(n) ? YES : OPERANDS;
}

/* Does what v is made by, if its operands hold numbers, or v itself where it is given? */
static Answer diverges(const Graph *g, const Value *v)
{
    const Tensor *t = v->kind == V_WEIGHT ? v->data : NULL;
    int64_t elements = t && t->data ? tensor_numel(t) : 0;
    if (elements > MAX_ELEMENTS) elements = 0;
    for (int64_t i = 0; i < elements; i++)
        if (!isfinite(tensor_get(t, i))) return YES;
    if (!v->def) return NO;
    const Node *n = v->def;
    int known = OPF_FINITE | OPF_VIEW | OPF_REARRANGES | OPF_PICKS | OPF_PRODUCT | OPF_ARITHMETIC, eps;
    if (!(n->op->flags & known) || (n->op->id == OP_div_Tensor && !divides(g, &n->arg[1]))) return YES;
    eps = op_param(n->op, "eps");
    if (eps >= 0 && n->arg[eps].kind == ARG_EXPR && ex_is_const(n->arg[eps].e) && !(ex_number(n->arg[eps].e) > 0))
        return YES;
    return infinite_argument(n) ? YES : OPERANDS;
}

/* Values that are to be looked at, each once. */
typedef struct Todo {
    unsigned char *seen;
    const Value **v;
    int n;
} Todo;

static void look_at(Todo *todo, const Value *v)
{
    if (!v || !dtype_is_float(v->dtype) || v->kind == V_INPUT || todo->seen[v->id]) return;
    todo->seen[v->id] = 1;
    todo->v[todo->n++] = v;
}

static void look_at_operands(Todo *todo, const Node *n)
{
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_VALUE) look_at(todo, a->v);
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++) look_at(todo, a->vs[k]);
    }
}

/* Is the answer of v, or of a float that it is computed from, yes? */
static bool asked_of_makers(const Graph *g, const Value *v, Answer (*ask)(const Graph *, const Value *), bool *memory)
{
    Todo todo = {.seen = mem_zeroed((size_t)g->next_id, 1), .v = mem_alloc((size_t)g->next_id * sizeof *todo.v)};
    bool yes = false;
    if (!todo.seen || !todo.v) *memory = false;
    else look_at(&todo, v);
    while (!yes && todo.n) {
        const Value *next = todo.v[--todo.n];
        Answer answer = ask(g, next);
        yes = answer == YES;
        if (answer == OPERANDS) look_at_operands(&todo, next->def);
    }
    mem_free(todo.seen);
    mem_free((void *)(uintptr_t)todo.v);
    return yes;
}

bool holds_infinity(const Graph *g, const Value *v, bool *memory)
{
    return asked_of_makers(g, v, takes_infinity, memory);
}

bool may_diverge(const Graph *g, const Value *v, bool *memory) { return asked_of_makers(g, v, diverges, memory); }
