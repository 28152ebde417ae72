/* Values that constants alone decide. Contract in constant.h. */
#include "facts/constant.h"
#include <math.h>
#include "base/elementary.h"
#include "facts/axes.h"

/* Values that a question looks at; shared ones are met each time. Beyond it the answer is no. */
enum { MAX_NUMBER = 100, MAX_ALONG = 500, MAX_ZERO_ONE = 2000 };
static const double EXACT = 9e15; /* a double has all integers below it */

const Tensor *constant_tensor(const Graph *g, const Value *v)
{
    bool has = v->kind == V_WEIGHT && v->data && v->data->data && !dtype_is_complex(v->dtype) && !graph_writes(g, v);
    return has ? v->data : NULL;
}

bool constant_weight(const Graph *g, const Value *v, Err *why)
{
    if (v->kind != V_WEIGHT || !v->data || !v->data->data)
        return fail(why, E_UNSUPPORTED, "'%s' is not a weight", v->name);
    if (graph_writes(g, v)) return fail(why, E_UNSUPPORTED, "a run changes '%s'", v->name);
    return true;
}

/* ------------------------------------------------------------------ one number */

/* The number as dtype t holds it. */
static Expr *number_as(ExprPool *p, Expr *e, DType t)
{
    if (!e || dtype_is_complex(t)) return NULL;
    if (!ex_is_const(e))
        return e->is_bool == (t == DT_BOOL) && (e->is_float ? t == DT_F32 || t == DT_F64 : t != DT_F16 && t != DT_BF16)
                   ? e
                   : NULL;
    double x = ex_number(e);
    double held;
    if (t == DT_BOOL) return ex_int(p, x != 0);
    bool holds = fabs(x) < EXACT && x >= dtype_lowest(t) && x <= dtype_highest(t);
    if (!dtype_is_float(t)) return holds ? ex_int(p, e->is_float ? (int64_t)x : e->i) : NULL;
    store_f64(t, &held, x);
    return ex_float(p, load_f64(t, &held));
}

bool op_of_number(OpId op, double x, double *y)
{
    switch (op) {
    case OP_neg: *y = -x; return true;
    case OP_square: *y = x * x; return true;
    case OP_sqrt: *y = sqrt(x); return true;
    case OP_rsqrt: *y = 1 / sqrt(x); return true;
    case OP_reciprocal: *y = 1 / x; return true;
    case OP_exp: *y = real_exp(x); return true;
    case OP_log: *y = real_log(x); return true;
    case OP_ceil: *y = ceil(x); return true;
    case OP_floor: *y = floor(x); return true;
    default: return false;
    }
}

bool op_of_numbers(OpId op, double a, double b, double *y)
{
    switch (op) {
    case OP_add_Tensor: *y = a + b; return true;
    case OP_sub_Tensor: *y = a - b; return true;
    case OP_mul_Tensor: *y = a * b; return true;
    case OP_div_Tensor: *y = a / b; return true;
    case OP_pow_Tensor_Tensor: *y = real_pow(a, b); return true;
    default: return false;
    }
}

/* budget: how many values are looked at. held: each is what its dtype holds, as a run computes it. */
static Expr *number_in(const Graph *g, const Arg *a, bool held, int *budget)
{
    if (a->kind == ARG_EXPR) return a->e;
    if (a->kind != ARG_VALUE || --*budget < 0) return NULL;
    const Value *v = a->v;
    if (v->kind == V_WEIGHT) {
        for (int i = 0; i < v->rank; i++)
            if (!is_one(v->dim[i])) return NULL;
        const Tensor *t = constant_tensor(g, v);
        if (!t) return NULL;
        double x = tensor_get(t, 0);
        return dtype_is_float(v->dtype) ? ex_float(g->ex, x) : ex_int(g->ex, tensor_get_i64(t, 0));
    }
    if (!v->def) return NULL;
    const Node *n = v->def;
    switch (n->op->id) {
    case OP_full: return number_as(g->ex, n->arg[1].e, v->dtype);
    case OP_to_copy: return number_as(g->ex, number_in(g, &n->arg[0], held, budget), v->dtype);
    case OP_reshape:
    case OP_expand:
    case OP_permute: return number_in(g, &n->arg[0], held, budget);
    default: break;
    }
    double p = 0, q = 0, alpha = 1, y;
    bool two = n->op->id == OP_pow_Tensor_Tensor || n->op->flags & OPF_ARITHMETIC;
    if (!two && !op_of_number(n->op->id, 1, &y)) return NULL;
    for (int i = 0; i < (two ? 2 : 1); i++) {
        Expr *x = number_in(g, &n->arg[i], held, budget);
        if (!x || !ex_is_const(x) || (held && fabs(ex_number(x)) >= EXACT)) return NULL;
        *(i ? &q : &p) = ex_number(x);
    }
    if (two && n->op->schema->nparams > 2) {
        if (!ex_is_const(n->arg[2].e)) return NULL;
        alpha = ex_number(n->arg[2].e);
    }
    bool known = two ? op_of_numbers(n->op->id, p, alpha * q, &y) : op_of_number(n->op->id, p, &y);
    if (!known || (held && !isfinite(y))) return NULL;
    return held ? number_as(g->ex, ex_float(g->ex, y), v->dtype) : ex_float(g->ex, y);
}

Expr *number_of(const Graph *g, const Arg *a) { return number_in(g, a, false, &(int){MAX_NUMBER}); }

bool constant_of(const Graph *g, const Arg *a, double *v)
{
    Expr *e = number_of(g, a);
    if (!e || !ex_is_const(e)) return false;
    *v = ex_number(e);
    return true;
}

bool constant_integer(const Graph *g, const Value *v, int64_t *x)
{
    Arg a = {.kind = ARG_VALUE, .v = (Value *)(uintptr_t)v};
    const Expr *e = dtype_is_int(v->dtype) ? number_in(g, &a, true, &(int){MAX_NUMBER}) : NULL;
    if (e && e->kind == EX_INT) *x = e->i;
    return e && e->kind == EX_INT;
}

bool constant_value(const Graph *g, const Value *v, double *x)
{
    return constant_of(g, &(Arg){.kind = ARG_VALUE, .v = (Value *)(uintptr_t)v}, x);
}

/* ------------------------------------------------------------------ numbers along one axis */

/* Element c of v; every value on the way varies along one axis at most,
 * so the elements that meet in an op are those of the same index. */
static bool number_at(const Graph *g, const Value *v, int64_t n, int64_t c, int *budget, double *out, Err *why)
{
    bool one = true;
    for (int i = 0; i < v->rank; i++) {
        if (is_one(v->dim[i])) continue;
        if (!one || !ex_equals_int(v->dim[i], n))
            return fail(why, E_UNSUPPORTED, "'%s' varies along other axes than the channels", v->name);
        one = false;
    }
    if (--*budget < 0 || !dtype_is_float(v->dtype))
        return fail(why, E_UNSUPPORTED, "'%s' is not a constant along the channels", v->name);
    if (v->kind == V_WEIGHT) {
        TRY(constant_weight(g, v, why));
        *out = tensor_get(v->data, one ? 0 : c);
        return true;
    }
    const Node *node = v->def;
    double x = 0, y = 0, alpha = 1;
    for (int i = 0; node && i < 2 && i < node->op->schema->nparams; i++) {
        const Arg *a = &node->arg[i];
        double *to = i ? &y : &x;
        if (a->kind == ARG_VALUE) TRY(number_at(g, a->v, n, c, budget, to, why));
        if (a->kind == ARG_EXPR && !constant_of(g, a, to))
            return fail(why, E_UNSUPPORTED, "'%s' depends on sizes", v->name);
    }
    if (!node) return fail(why, E_UNSUPPORTED, "'%s' is not a constant", v->name);
    if (node->op->id == OP_full) return constant_of(g, &node->arg[1], out);
    *out = x;
    if (node->op->flags & OPF_REARRANGES || node->op->id == OP_to_copy) return true;
    if ((node->op->id == OP_add_Tensor || node->op->id == OP_sub_Tensor) && !constant_of(g, &node->arg[2], &alpha))
        return false;
    return op_of_number(node->op->id, x, out) || op_of_numbers(node->op->id, x, alpha * y, out) ||
           fail(why, E_UNSUPPORTED, "'%s' is not a constant", v->name);
}

bool constant_numbers(const Graph *g, const Value *v, int64_t n, double *out, Err *why)
{
    for (int64_t c = 0; c < n; c++) {
        TRY(number_at(g, v, n, c, &(int){MAX_ALONG}, &out[c], why));
        if (!isfinite(out[c])) return fail(why, E_UNSUPPORTED, "'%s' is not finite", v->name);
    }
    return true;
}

/* ------------------------------------------------------------------ 0 and 1 */

static bool zero_one(const Graph *g, const Value *v, int *budget)
{
    if (v->dtype == DT_BOOL) return true;
    if (--*budget < 0) return false;
    if (v->kind == V_WEIGHT) {
        const Tensor *t = constant_tensor(g, v);
        for (int64_t i = 0; t && i < tensor_numel(t); i++) {
            double x = tensor_get(t, i);
            if (x != 0 && x != 1) return false;
        }
        return t;
    }
    if (!v->def) return false;
    const Arg *a = v->def->arg;
    if (v->def->op->flags & OPF_PICKS) return zero_one(g, a[0].v, budget);
    switch (v->def->op->id) {
    case OP_full: return ex_is_const(a[1].e) && (ex_number(a[1].e) == 0 || ex_number(a[1].e) == 1);
    case OP_tril:
    case OP_triu: return zero_one(g, a[0].v, budget);
    case OP_mul_Tensor:
        return a[0].kind == ARG_VALUE && a[1].kind == ARG_VALUE && zero_one(g, a[0].v, budget) &&
               zero_one(g, a[1].v, budget);
    default: return false;
    }
}

bool zero_or_one(const Graph *g, const Value *v) { return zero_one(g, v, &(int){MAX_ZERO_ONE}); }
