/* Arguments of a graph node as ONNX wants them, and the small words that many ops are made of. */
#include <math.h>
#include <stdlib.h>
#include "onnx/write/write_impl.h"

bool given(const Node *n, int i) { return i < n->op->schema->nparams && n->arg[i].kind != ARG_NONE; }
Value *arg_v(const Node *n, int i) { return n->arg[i].kind == ARG_VALUE ? n->arg[i].v : NULL; }
Expr *arg_e(const Node *n, int i) { return n->arg[i].kind == ARG_EXPR ? n->arg[i].e : NULL; }
const char *arg_s(const Node *n, int i, const char *otherwise)
{
    return n->arg[i].kind == ARG_STR ? n->arg[i].s : otherwise;
}
bool arg_b(const Node *n, int i) { return n->arg[i].kind == ARG_EXPR && n->arg[i].e->i != 0; }

Ref arg_ref(Onnx *o, const Node *n, int i)
{
    Value *v = arg_v(n, i);
    return v ? ref(o, v) : none();
}

Ref operand(Onnx *o, const Node *n, int i, DType t)
{
    if (n->arg[i].kind == ARG_VALUE) return cast(o, ref(o, n->arg[i].v), t);
    if (n->arg[i].kind != ARG_EXPR) return none();
    Expr *x = n->arg[i].e;
    if (!ex_is_const(x)) return size_scalar(o, x, t);
    if (t == DT_I64 && x->kind != EX_FLOAT) return integer(o, x->i);
    return number(o, t, ex_number(x));
}

int64_t arg_i(Onnx *o, const Node *n, int i, int64_t otherwise)
{
    Expr *x = arg_e(n, i);
    if (!x) return otherwise;
    if (!ex_is_const(x)) {
        refuse(o, "argument '%s' must be a constant", n->op->schema->params[i].name);
        return otherwise;
    }
    return x->kind == EX_FLOAT ? (int64_t)x->f : x->i;
}

double arg_f(Onnx *o, const Node *n, int i, double otherwise)
{
    Expr *x = arg_e(n, i);
    if (!x) return otherwise;
    if (ex_is_const(x)) return ex_number(x);
    refuse(o, "argument '%s' must be a constant", n->op->schema->params[i].name);
    return otherwise;
}

int arg_axis(Onnx *o, const Node *n, int i, int rank)
{
    int64_t a = arg_i(o, n, i, 0);
    return (int)(a < 0 ? a + (rank ? rank : 1) : a);
}

int arg_axes(Onnx *o, const Node *n, int i, int rank, int64_t *axis)
{
    bool set[MAX_RANK] = {false};
    int count = 0, listed = n->arg[i].kind == ARG_EXPRS ? n->arg[i].n : n->arg[i].kind == ARG_EXPR ? 1 : 0;
    for (int k = 0; k < listed; k++) {
        const Expr *x = n->arg[i].kind == ARG_EXPR ? n->arg[i].e : n->arg[i].es[k];
        int64_t a = x->i < 0 ? x->i + (rank ? rank : 1) : x->i;
        if (!ex_is_const(x)) refuse(o, "argument '%s' must be a constant", n->op->schema->params[i].name);
        else if (a >= 0 && a < rank) set[a] = true;
    }
    for (int k = 0; k < rank; k++)
        if (!listed || set[k]) axis[count++] = k;
    return count;
}

int arg_ints_of(Onnx *o, const Node *n, int i, int64_t *v)
{
    int count = n->arg[i].kind == ARG_EXPRS ? n->arg[i].n : 0;
    for (int k = 0; k < count && k < 2 * MAX_RANK; k++) {
        if (!ex_is_const(n->arg[i].es[k])) refuse(o, "argument '%s' must be a constant", n->op->schema->params[i].name);
        v[k] = n->arg[i].es[k]->i;
    }
    return count;
}

/* ------------------------------------------------------------------ words */

Ref transpose(Onnx *o, Ref x, int rank, const int64_t *perm)
{
    bool same = true;
    for (int i = 0; i < rank; i++) same &= perm[i] == i;
    if (same) return x;
    attr_ints(o, "perm", rank, perm);
    return NODE(o, "Transpose", x.t, x);
}

Ref squeeze(Onnx *o, Ref x, int64_t axis) { return NODE(o, "Squeeze", x.t, x, INTS(o, axis)); }
Ref unsqueeze(Onnx *o, Ref x, int64_t axis) { return NODE(o, "Unsqueeze", x.t, x, INTS(o, axis)); }

/* ReduceSum takes its axes as an input; the others do from opset 18 on. */
Ref reduce(Onnx *o, const char *op, Ref x, int n, const int64_t *axis, bool keep)
{
    if (!n) return x;
    attr_int(o, "keepdims", keep);
    if (o->opt.opset >= 18 || !strcmp(op, "ReduceSum")) return NODE(o, op, x.t, x, ints(o, n, axis));
    attr_ints(o, "axes", n, axis);
    return NODE(o, op, x.t, x);
}

Ref slice(Onnx *o, Ref x, int64_t axis, Ref from, Ref to, int64_t step)
{
    return NODE(o, "Slice", x.t, x, from, to, INTS(o, axis), INTS(o, step));
}

void split(Onnx *o, Ref x, int64_t axis, Ref lengths, int n, Ref *out)
{
    DType *t = arena_array(o->a, DType, n);
    if (!t) {
        out_of_memory(o);
        for (int i = 0; i < n; i++) out[i] = none();
        return;
    }
    for (int i = 0; i < n; i++) t[i] = x.t;
    attr_int(o, "axis", axis);
    nodes_of(o, "Split", n, t, out, 2, (Ref[]){x, lengths});
}

Ref where(Onnx *o, Ref cond, Ref a, Ref b) { return NODE(o, "Where", a.t, cond, a, b); }
Ref negated(Onnx *o, Ref truth) { return NODE(o, "Not", DT_BOOL, truth); }
Ref flat(Onnx *o, Ref x) { return NODE(o, "Reshape", x.t, x, INTS(o, -1)); }

Ref positions(Onnx *o, Ref count)
{
    return NODE(o, "Range", DT_I64, integer(o, 0), NODE(o, "Reshape", DT_I64, count, ints(o, 0, NULL)), integer(o, 1));
}

Ref any_of(Onnx *o, Ref truth, int64_t axis, const Expr *size)
{
    const char *op = may_be_empty(o, size) ? "ReduceSum" : "ReduceMax";
    return cast(o, reduce(o, op, cast(o, truth, DT_I32), 1, &axis, true), DT_BOOL);
}

/* OpenVINO's largest of a row of -inf is the lowest finite number: there, truth values are reduced. */
Ref all_minus_infinity(Onnx *o, Ref x, int64_t axis, const Expr *size)
{
    bool empty = may_be_empty(o, size);
    if (o->opt.profile != ONNX_FOR_OPENVINO && !empty)
        return NODE(o, "Equal", DT_BOOL, reduce(o, "ReduceMax", x, 1, &axis, true), like(o, x, -INFINITY));
    Ref each = NODE(o, "Equal", DT_BOOL, x, like(o, x, -INFINITY));
    if (empty) return negated(o, any_of(o, negated(o, each), axis, size));
    return cast(o, reduce(o, "ReduceMin", cast(o, each, DT_I32), 1, &axis, true), DT_BOOL);
}

static bool is_zero(const Arg *a)
{
    if (a->kind == ARG_EXPR) return ex_equals_int(a->e, 0);
    const Node *n = a->kind == ARG_VALUE && a->v->kind == V_NODE && a->v->def->op->id == OP_full ? a->v->def : NULL;
    return n && n->arg[1].kind == ARG_EXPR && ex_equals_int(n->arg[1].e, 0);
}

/* where(i < 0, i + size, i), as import spells indices that may be negative, is i. */
const Value *plain_index(const Value *i)
{
    const Node *n = i->kind == V_NODE && i->def->op->id == OP_where_self ? i->def : NULL;
    const Value *plain = n ? arg_v(n, 2) : NULL, *low = n ? arg_v(n, 0) : NULL, *moved = n ? arg_v(n, 1) : NULL;
    const Node *lt = low && low->kind == V_NODE && low->def->op->id == OP_lt_Tensor ? low->def : NULL;
    const Node *add = moved && moved->kind == V_NODE && moved->def->op->id == OP_add_Tensor ? moved->def : NULL;
    bool same = plain && lt && add && arg_v(lt, 0) == plain && arg_v(add, 0) == plain && add->arg[1].kind == ARG_EXPR &&
                is_zero(&lt->arg[1]);
    return same ? plain : i;
}

Ref index_of(Onnx *o, const Value *i)
{
    Ref x = ref(o, (Value *)(uintptr_t)plain_index(i));
    return x.t == DT_I32 || x.t == DT_I64 ? x : cast(o, x, DT_I64);
}
