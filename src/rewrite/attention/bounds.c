/* How large the elements of a tensor can get, as far as constants, masks and arithmetic say. Contract in attention.h.
 *
 *     (1 - m) * -10000      m of bool: [-10000, 0]        b * 5000     b an input: [-5000, 5000]
 */
#include <math.h>
#include "rewrite/attention/attention.h"

enum { UNKNOWN = 100, MAX_SEARCHED = 500, MAX_ELEMENTS = 1 << 20 };

typedef struct Range {
    double lo, hi;
} Range;

static Range range_of(Rewrite *rw, const Arg *a);

static Range either(Range a, Range b) { return (Range){fmin(a.lo, b.lo), fmax(a.hi, b.hi)}; }

static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

static Range product(Range a, Range b)
{
    Range x = {times(a.lo, b.lo), times(a.lo, b.hi)}, y = {times(a.hi, b.lo), times(a.hi, b.hi)};
    return (Range){fmin(fmin(x.lo, x.hi), fmin(y.lo, y.hi)), fmax(fmax(x.lo, x.hi), fmax(y.lo, y.hi))};
}

/* Factors that models scale by huge numbers are masks, of 0 and 1 in integers, from -1 to 1 in floats. */
static Range of_leaf(Rewrite *rw, const Value *v)
{
    if (v->dtype == DT_BOOL) return (Range){0, 1};
    if (v->kind == V_INPUT) return dtype_is_float(v->dtype) ? (Range){-1, 1} : (Range){0, 1};
    int64_t n = v->kind == V_WEIGHT && v->data && v->data->data && !dtype_is_complex(v->dtype) ? tensor_numel(v->data)
                                                                                               : 0;
    if (n == 0 || n > MAX_ELEMENTS || graph_writes(rw->g, v)) return (Range){-UNKNOWN, UNKNOWN};
    Range r = {INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++) r = either(r, (Range){tensor_get(v->data, i), tensor_get(v->data, i)});
    return r;
}

static Range of_node(Rewrite *rw, const Node *n)
{
    const Arg *a = n->arg;
    Range x, y;
    double c;
    if (n->op->flags & OPF_PICKS) return range_of(rw, &a[0]);
    switch (n->op->id) {
    case OP_tril:
    case OP_triu: return either(range_of(rw, &a[0]), (Range){0, 0});
    case OP_neg: x = range_of(rw, &a[0]); return (Range){-x.hi, -x.lo};
    case OP_abs: x = range_of(rw, &a[0]); return (Range){0, fmax(fabs(x.lo), fabs(x.hi))};
    case OP_add_Tensor:
    case OP_sub_Tensor:
        x = range_of(rw, &a[0]);
        y = product(range_of(rw, &a[1]), range_of(rw, &a[2]));
        return n->op->id == OP_add_Tensor ? (Range){x.lo + y.lo, x.hi + y.hi} : (Range){x.lo - y.hi, x.hi - y.lo};
    case OP_mul_Tensor: return product(range_of(rw, &a[0]), range_of(rw, &a[1]));
    case OP_div_Tensor:
        if (!constant_of(rw->g, &a[1], &c) || c == 0) break;
        return product(range_of(rw, &a[0]), (Range){1 / c, 1 / c});
    case OP_where_self: return either(range_of(rw, &a[1]), range_of(rw, &a[2]));
    case OP_cat:
        x = (Range){INFINITY, -INFINITY};
        for (int i = 0; i < a[0].n; i++) x = either(x, range_of(rw, &(Arg){.kind = ARG_VALUE, .v = a[0].vs[i]}));
        return x;
    default: break;
    }
    return (Range){-UNKNOWN, UNKNOWN};
}

static Range range_of(Rewrite *rw, const Arg *a)
{
    double c;
    if (--rw->budget < 0) return (Range){-INFINITY, INFINITY};
    if (constant_of(rw->g, a, &c)) return (Range){c, c};
    if (a->kind != ARG_VALUE) return (Range){-UNKNOWN, UNKNOWN};
    return a->v->def && a->v->dtype != DT_BOOL ? of_node(rw, a->v->def) : of_leaf(rw, a->v);
}

double largest_of(Rewrite *rw, Value *v)
{
    rw->budget = MAX_SEARCHED;
    return range_of(rw, &(Arg){.kind = ARG_VALUE, .v = v}).hi;
}
