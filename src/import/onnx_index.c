/* ONNX's looking up and writing by index. Contract in onnx_impl.h. Indices may be negative: they count from the end. */
#include "import/onnx_impl.h"

static Arg v(Value *x) { return arg_value(x); }

/* Indices as ATen's kernels take them: int64, and counted from the start. Constants are known to be so, or are changed here. */
static Value *from_start(OnnxOp *o, Value *index, Expr *size)
{
    index = lower_cast(&o->L, index, DT_I64);
    TRY_NULL(index);
    bool negative = true;
    if (index->kind == V_WEIGHT) {
        negative = false;
        for (int64_t i = 0, n = tensor_numel(index->data); i < n && !negative; i++) negative = tensor_get_i64(index->data, i) < 0;
    }
    if (!negative) return index;
    Value *below = AS(&o->L, lt_Tensor, v(index), v(op_number(o, DT_I64, 0)));
    Value *moved = AS(&o->L, add_Tensor, v(index), arg_expr(size));
    return AS(&o->L, where_self, v(below), v(moved), v(index));
}

/* data (.., n, ..) at indices of any shape: its axis is replaced by theirs */
bool onnx_gather(OnnxOp *o)
{
    Value *x, *index;
    int64_t a;
    int axis;
    Expr *dim[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", 0, &a) && op_axis(o, "axis", a, x->rank, &axis));
    if (!x->rank) return op_fail(o, 0, "a number, expected a tensor");
    const Cell *known = op_known(o, 1);
    if (known && known->rank == 0 && !known->e[0]->is_float)
        return op_return(o, 0, AS(&o->L, select_int, v(x), arg_int(o->g, axis), arg_expr(known->e[0])));
    TRY(op_tensor(o, 1, &index));
    if (dtype_is_float(index->dtype) || index->dtype == DT_BOOL) return op_fail(o, 1, "%s, expected int32 or int64", dtype_name(index->dtype));
    if (x->rank == 2 && axis == 0 && index->rank) return op_return(o, 0, AS(&o->L, embedding, v(x), v(from_start(o, index, x->dim[0]))));
    int rank = x->rank - 1 + index->rank;
    if (rank > MAX_RANK) return fail(o->im->err, E_UNSUPPORTED, "rank %d: at most %d is supported", rank, MAX_RANK);
    for (int i = 0; i < rank; i++) dim[i] = i < axis ? x->dim[i] : i < axis + index->rank ? index->dim[i - axis] : x->dim[i - index->rank + 1];
    TRY(index = from_start(o, index, x->dim[axis]));
    Expr *all = ex_int(o->ex, 1);
    for (int i = 0; i < index->rank; i++) all = ex_mul(o->ex, all, index->dim[i]);
    Value *y = AS(&o->L, index_select, v(x), arg_int(o->g, axis), v(lower_reshape(&o->L, index, 1, &all)));
    return op_return(o, 0, lower_reshape(&o->L, y, rank, dim));
}

bool onnx_gather_elements(OnnxOp *o)
{
    Value *x, *index;
    int64_t a;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &index) && op_attr_int(o, "axis", 0, &a) && op_axis(o, "axis", a, x->rank, &axis));
    if (!x->rank || index->rank != x->rank) return op_fail(o, 1, "rank %d, but input 0 has rank %d", index->rank, x->rank);
    return op_return(o, 0, AS(&o->L, gather, v(x), arg_int(o->g, axis), v(from_start(o, index, x->dim[axis]))));
}
