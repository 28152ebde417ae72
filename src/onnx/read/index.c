/* ONNX's looking up and writing by index. Contract in onnx_impl.h. Indices may be negative: they count from the end. */
#include <string.h>
#include "onnx/read/read_impl.h"

/* Indices as ATen's kernels take them: int64, and counted from the start.
 * Constants are known to be so, or are changed here. */
static Value *from_start(OnnxOp *o, Value *index, Expr *size)
{
    index = lower_cast(&o->L, index, DT_I64);
    TRY_NULL(index);
    bool negative = true;
    if (index->kind == V_WEIGHT) {
        negative = false;
        for (int64_t i = 0, n = tensor_numel(index->data); i < n && !negative; i++)
            negative = tensor_get_i64(index->data, i) < 0;
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
    if (dtype_is_float(index->dtype) || index->dtype == DT_BOOL)
        return op_fail(o, 1, "%s, expected int32 or int64", dtype_name(index->dtype));
    if (x->rank == 2 && axis == 0 && index->rank)
        return op_return(o, 0, AS(&o->L, embedding, v(x), v(from_start(o, index, x->dim[0]))));
    int rank = x->rank - 1 + index->rank;
    if (rank > MAX_RANK) return fail(o->im->err, E_UNSUPPORTED, "rank %d: at most %d is supported", rank, MAX_RANK);
    for (int i = 0; i < rank; i++)
        dim[i] = i < axis ? x->dim[i] : i < axis + index->rank ? index->dim[i - axis] : x->dim[i - index->rank + 1];
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
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &index) && op_attr_int(o, "axis", 0, &a) &&
        op_axis(o, "axis", a, x->rank, &axis));
    if (!x->rank || index->rank != x->rank)
        return op_fail(o, 1, "rank %d, but input 0 has rank %d", index->rank, x->rank);
    return op_return(o, 0, AS(&o->L, gather, v(x), arg_int(o->g, axis), v(from_start(o, index, x->dim[axis]))));
}

/* ------------------------------------------------------------------ by several indices */

static bool index_columns(OnnxOp *o, Value *index, const Value *x, int first, int *k, Value **part)
{
    int last = index->rank - 1;
    if (index->rank < 1 || !ex_is_int(index->dim[last]))
        return op_fail(o, 1, "the last axis of the indices must be constant");
    *k = (int)index->dim[last]->i;
    if (*k < 1 || *k > x->rank - first) return op_fail(o, 1, "%d indices into rank %d", *k, x->rank - first);
    for (int i = 0; i < *k; i++) {
        Value *column = AS(&o->L, select_int, v(index), arg_int(o->g, last), arg_int(o->g, i));
        TRY(column && (part[first + i] = from_start(o, column, x->dim[first + i])));
    }
    return true;
}

/* data (b ..., n ..., rest), indices (b ..., i ..., k) -> (b ..., i ..., rest) */
bool onnx_gather_nd(OnnxOp *o)
{
    Value *x, *index, *part[MAX_RANK] = {NULL};
    int64_t batch;
    int k;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &index) && op_attr_int(o, "batch_dims", 0, &batch));
    if (batch < 0 || batch >= index->rank || batch >= x->rank)
        return fail(o->im->err, E_FORMAT, "batch_dims %lld for ranks %d and %d", (long long)batch, x->rank,
                    index->rank);
    TRY(index_columns(o, index, x, (int)batch, &k, part));
    for (int b = 0; b < batch; b++) {
        Expr *dim[MAX_RANK];
        for (int i = 0; i < index->rank - 1; i++) dim[i] = i == b ? x->dim[b] : ex_int(o->ex, 1);
        Value *each = AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(x->dim[b]), arg_int(o->g, 1),
                         arg_dtype(DT_I64));
        TRY(each && (part[b] = lower_reshape(&o->L, each, index->rank - 1, dim)));
    }
    return op_return(o, 0, AS(&o->L, index_Tensor, v(x), arg_values(o->g, (int)batch + k, part)));
}

/* none, add, mul, max, min as scatter_reduce names them; "" is none */
static bool reduction(OnnxOp *o, const char **out)
{
    static const char *const names[][2] = {
        {"none", ""}, {"add", "sum"}, {"mul", "prod"}, {"max", "amax"}, {"min", "amin"}};
    const char *given;
    TRY(op_attr_string(o, "reduction", "none", &given));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(given, names[i][0])) {
            *out = names[i][1];
            return true;
        }
    return fail(o->im->err, E_FORMAT, "attribute 'reduction' is '%.40s'", given);
}

static Value *scatter(OnnxOp *o, Value *x, int axis, Value *index, Value *updates, const char *how)
{
    if (!*how) return AS(&o->L, scatter_src, v(x), arg_int(o->g, axis), v(index), v(updates));
    if (x->dtype == DT_BOOL) { /* Or is the largest, And the smallest */
        how = !strcmp(how, "sum") || !strcmp(how, "amax") ? "amax" : "amin";
        Value *y = AS(&o->L, scatter_reduce_two, v(lower_cast(&o->L, x, DT_U8)), arg_int(o->g, axis), v(index),
                      v(lower_cast(&o->L, updates, DT_U8)), arg_str(o->g, how), arg_bool(o->g, true));
        return lower_cast(&o->L, y, DT_BOOL);
    }
    return AS(&o->L, scatter_reduce_two, v(x), arg_int(o->g, axis), v(index), v(updates), arg_str(o->g, how),
              arg_bool(o->g, true));
}

bool onnx_scatter_elements(OnnxOp *o)
{
    Value *x, *index, *updates;
    int64_t a;
    int axis;
    const char *how = "";
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &index) && op_tensor(o, 2, &updates) && op_attr_int(o, "axis", 0, &a) &&
        op_axis(o, "axis", a, x->rank, &axis) && reduction(o, &how));
    if (!x->rank || index->rank != x->rank || updates->rank != x->rank)
        return op_fail(o, 1, "ranks %d, %d and %d, expected the same", x->rank, index->rank, updates->rank);
    TRY(index = from_start(o, index, x->dim[axis]));
    return op_return(o, 0, scatter(o, x, axis, index, updates, how));
}

/* Along the first k axes as one: indices as positions in it, repeated over what comes after them. */
static Value *scatter_rows(OnnxOp *o, Value *x, int k, Value *const *part, Value *updates, const char *how)
{
    Expr *rows = ex_int(o->ex, 1), *width = ex_int(o->ex, 1), *n = ex_int(o->ex, 1);
    Value *at = NULL;
    for (int i = 0; i < k; i++) {
        rows = ex_mul(o->ex, rows, x->dim[i]);
        at = at ? AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(at), arg_expr(x->dim[i]))), v(part[i])) : part[i];
        TRY_NULL(at);
    }
    for (int i = k; i < x->rank; i++) width = ex_mul(o->ex, width, x->dim[i]);
    for (int i = 0; i < at->rank; i++) n = ex_mul(o->ex, n, at->dim[i]);
    Expr *flat[] = {rows, width}, *many[] = {n, width};
    at = lower_reshape(&o->L, at, 2, (Expr *[]){n, ex_int(o->ex, 1)});
    at = at ? AS(&o->L, expand, v(at), arg_exprs(o->g, 2, many)) : NULL;
    Value *y = at ? scatter(o, lower_reshape(&o->L, x, 2, flat), 0, at, lower_reshape(&o->L, updates, 2, many), how)
                  : NULL;
    return y ? lower_reshape(&o->L, y, x->rank, x->dim) : NULL;
}

/* data[indices[i ...]] = updates[i ...], or combined with what is there */
bool onnx_scatter_nd(OnnxOp *o)
{
    Value *x, *index, *updates, *part[MAX_RANK];
    int k;
    const char *how = "";
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &index) && op_tensor(o, 2, &updates) && reduction(o, &how) &&
        index_columns(o, index, x, 0, &k, part));
    bool sum = !strcmp(how, "sum");
    if ((*how && !sum) || x->dtype == DT_BOOL) return op_return(o, 0, scatter_rows(o, x, k, part, updates, how));
    return op_return(o, 0, AS(&o->L, index_put, v(x), arg_values(o->g, k, part), v(updates), arg_bool(o->g, sum)));
}

/* ONNX's cache update: past (B, ..., cap, ...) with update (B, ..., n, ...) written from write_indices (B) on */
bool onnx_tensor_scatter(OnnxOp *o)
{
    Value *past, *update, *start;
    int64_t a;
    int axis;
    const char *mode;
    Expr *dim[MAX_RANK];
    TRY(op_tensor(o, 0, &past) && op_tensor(o, 1, &update) && op_optional(o, 2, &start) &&
        op_attr_int(o, "axis", -2, &a) && op_axis(o, "axis", a, past->rank, &axis) &&
        op_attr_string(o, "mode", "linear", &mode));
    if (update->rank != past->rank || !axis)
        return op_fail(o, 1, "rank %d for a cache of rank %d, written along axis %d", update->rank, past->rank, axis);
    for (int i = 0; i < past->rank; i++) dim[i] = ex_int(o->ex, 1);
    dim[axis] = update->dim[axis];
    Value *at = AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(update->dim[axis]), arg_int(o->g, 1),
                   arg_dtype(DT_I64));
    TRY(at && (at = lower_reshape(&o->L, at, past->rank, dim)));
    dim[axis] = ex_int(o->ex, 1);
    if (start) {
        dim[0] = start->dim[0];
        TRY(at = AS(&o->L, add_Tensor, v(at), v(lower_reshape(&o->L, start, past->rank, dim))));
    }
    if (!strcmp(mode, "circular")) at = AS(&o->L, remainder_Scalar, v(at), arg_expr(past->dim[axis]));
    at = AS(&o->L, expand, v(at), arg_exprs(o->g, past->rank, update->dim));
    return op_return(o, 0, AS(&o->L, scatter_src, v(past), arg_int(o->g, axis), v(at), v(update)));
}

/* ------------------------------------------------------------------ one-hot, order, selection */

static Value *positions_of(OnnxOp *o, Expr *n)
{
    return AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(n), arg_int(o->g, 1), arg_dtype(DT_I64));
}

/* index == arange(n) along a new axis */
static Value *hot(OnnxOp *o, Value *index, int axis, Expr *n)
{
    Expr *dim[MAX_RANK], *line[MAX_RANK];
    for (int i = 0; i <= index->rank; i++) {
        dim[i] = i < axis ? index->dim[i] : i == axis ? ex_int(o->ex, 1) : index->dim[i - 1];
        line[i] = i == axis ? n : ex_int(o->ex, 1);
    }
    Value *wide = lower_reshape(&o->L, index, index->rank + 1, dim),
          *at = lower_reshape(&o->L, positions_of(o, n), index->rank + 1, line);
    return wide && at ? AS(&o->L, eq_Tensor, v(wide), v(at)) : NULL;
}

/* A size that may be given in a float, and may be computed */
static bool one_size(OnnxOp *o, int i, Expr **size)
{
    int n = 1;
    Expr **e = NULL;
    Value *x;
    bool is_float = op_has(o, i) && dtype_is_float(cell_dtype(o->in[i]));
    if (!is_float || op_known(o, i)) TRY(op_sizes(o, i, &n, &e));
    if (n != 1) return op_fail(o, i, "%d elements, expected one value", n);
    if (!e) return op_tensor(o, i, &x) && (x = lower_cast(&o->L, x, DT_I64)) && op_item(o, x, 0, size);
    *size = !is_float           ? e[0]
            : ex_is_const(e[0]) ? ex_int(o->ex, (int64_t)e[0]->f)
                                : ex_make(o->ex, EX_TRUNC, e[0], NULL, NULL);
    return true;
}

/* values [off, on]; an index out of -depth .. depth - 1 gives a row of off */
bool onnx_one_hot(OnnxOp *o)
{
    Value *index, *values;
    Expr *size;
    int64_t a;
    int axis;
    TRY(op_tensor(o, 0, &index) && one_size(o, 1, &size) && op_tensor(o, 2, &values) &&
        op_attr_int(o, "axis", -1, &a) && op_axis(o, "axis", a, index->rank + 1, &axis));
    if (values->rank != 1) return op_fail(o, 2, "rank %d, expected a vector of two values", values->rank);
    TRY(index = from_start(o, index, size));
    Value *on = AS(&o->L, select_int, v(values), arg_int(o->g, 0), arg_int(o->g, 1)),
          *off = AS(&o->L, select_int, v(values), arg_int(o->g, 0), arg_int(o->g, 0));
    return op_return(o, 0, AS(&o->L, where_self, v(hot(o, index, axis, size)), v(on), v(off)));
}

/* 1 at the first of the largest elements along axis (before opset 13: of everything from axis on) */
bool onnx_hardmax(OnnxOp *o)
{
    Value *x, *flat;
    int64_t a;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", o->opset >= 13 ? -1 : 1, &a) &&
        op_axis(o, "axis", a, x->rank, &axis));
    flat = x;
    if (o->opset < 13) {
        Expr *rows = ex_int(o->ex, 1), *columns = ex_int(o->ex, 1);
        for (int i = 0; i < x->rank; i++)
            *(i < axis ? &rows : &columns) = ex_mul(o->ex, i < axis ? rows : columns, x->dim[i]);
        TRY(flat = lower_reshape(&o->L, x, 2, (Expr *[]){rows, columns}));
        axis = 1;
    }
    Value *at = AS(&o->L, argmax, v(flat), arg_int(o->g, axis));
    TRY(at);
    Value *y = lower_cast(&o->L, hot(o, at, axis, flat->dim[axis]), x->dtype);
    return op_return(o, 0, y ? lower_reshape(&o->L, y, x->rank, x->dim) : NULL);
}

bool onnx_nonzero(OnnxOp *o)
{
    Value *x;
    TRY(op_tensor(o, 0, &x));
    if (!x->rank) TRY(x = lower_reshape(&o->L, x, 1, (Expr *[]){ex_int(o->ex, 1)}));
    Value *y = AS(&o->L, nonzero, v(x));
    return op_return(o, 0, y ? lower_permute(&o->L, y, (int[]){1, 0}) : NULL);
}

/* Of equal elements the one with the lower index comes first, which aten.topk leaves open and a sort gives. */
bool onnx_topk(OnnxOp *o)
{
    Value *x;
    Expr **k = NULL;
    int64_t a, largest, attr_k = 0;
    int n = 1, axis;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", -1, &a) && op_axis(o, "axis", a, x->rank, &axis) &&
        op_attr_int(o, "largest", 1, &largest));
    if (o->opset >= 10) TRY(op_sizes(o, 1, &n, &k));
    else TRY(op_attr_int(o, "k", 0, &attr_k));
    if (n != 1) return op_fail(o, 1, "%d elements, expected one value", n);
    if (!x->rank) return op_fail(o, 0, "a number, expected a tensor");
    Expr *count = k ? k[0] : ex_int(o->ex, attr_k);
    TRY(graph_require(o->g, ex_make(o->ex, EX_LE, count, x->dim[axis], NULL), o->im->err,
                      "assert: node '%s': k no larger than dim %d", o->L.name, axis));
    Lower L = o->L;
    Arg arg[] = {v(x), arg_int(o->g, axis), arg_bool(o->g, largest != 0), arg_bool(o->g, true)};
    L.op = op_get(OP_sort);
    L.arg = arg;
    TRY(lower_op(&L));
    for (int i = 0; i < 2; i++)
        if (op_wants(o, i))
            TRY(op_return(
                o, i, AS(&o->L, narrow, v(L.result.vs[i]), arg_int(o->g, axis), arg_int(o->g, 0), arg_expr(count))));
    return true;
}

/* The first place of each different element: the least of those that `inverse`, a vector, sends there. */
static Value *first_places(OnnxOp *o, Value *inverse, Expr *count)
{
    Value *at = AS(&o->L, arange, arg_expr(inverse->dim[0]));
    Value *none = AS(&o->L, full, arg_exprs(o->g, 1, &count), arg_int(o->g, INT64_MAX), arg_dtype(DT_I64));
    return at && none ? AS(&o->L, scatter_reduce_two, v(none), arg_int(o->g, 0), v(inverse), v(at),
                           arg_str(o->g, "amin"), arg_bool(o->g, true))
                      : NULL;
}

/* Of slices along an axis, or of all elements, one of those that are equal: in their order, or as they come first. */
bool onnx_unique(OnnxOp *o)
{
    Value *x;
    int64_t a, sorted;
    int axis = 0;
    bool along = op_attr(o, "axis") != NULL;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", 0, &a) && op_attr_int(o, "sorted", 1, &sorted));
    if (along) TRY(op_axis(o, "axis", a, x->rank, &axis));
    Arg yes = arg_bool(o->g, true), flat = arg_ints(o->g, 1, (int64_t[]){-1}), first = arg_int(o->g, 0);
    Value *const *made = along ? ALL(&o->L, unique_dim, v(x), arg_int(o->g, axis), yes, yes, yes)
                               : ALL(&o->L, unique2, v(x), yes, yes, yes);
    TRY(made);
    Value *y = made[0], *inverse = AS(&o->L, reshape, v(made[1]), flat), *count = made[2];
    Value *at = inverse ? first_places(o, inverse, y->dim[axis]) : NULL;
    TRY(at);
    if (!sorted) {
        Value *order = AS(&o->L, argsort, v(at)), *rank = AS(&o->L, argsort, v(order));
        TRY(order && rank && (inverse = AS(&o->L, index_select, v(rank), first, v(inverse))));
        TRY(y = AS(&o->L, index_select, v(y), arg_int(o->g, axis), v(order)));
        TRY(at = AS(&o->L, index_select, v(at), first, v(order)));
        TRY(count = AS(&o->L, index_select, v(count), first, v(order)));
    }
    Value *const out[4] = {y, at, inverse, count};
    for (int i = 0; i < 4; i++)
        if (op_wants(o, i)) TRY(op_return(o, i, out[i]));
    return true;
}

/* Along an axis, or of all elements, those whose condition is true; a short condition takes none past its end. */
bool onnx_compress(OnnxOp *o)
{
    Value *x, *condition;
    int64_t a;
    int axis = 0;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &condition) && op_attr_int(o, "axis", 0, &a));
    if (condition->rank != 1 || condition->dtype != DT_BOOL)
        return op_fail(o, 1, "%s of rank %d, expected a vector of bools", dtype_name(condition->dtype),
                       condition->rank);
    if (op_attr(o, "axis")) TRY(op_axis(o, "axis", a, x->rank, &axis));
    else TRY(x = AS(&o->L, reshape, v(x), arg_ints(o->g, 1, (int64_t[]){-1})));
    Value *at = AS(&o->L, nonzero, v(condition));
    at = at ? AS(&o->L, select_int, v(at), arg_int(o->g, 1), arg_int(o->g, 0)) : NULL;
    return op_return(o, 0, at ? AS(&o->L, index_select, v(x), arg_int(o->g, axis), v(at)) : NULL);
}

/* Ones on diagonal k of a matrix of the input's size */
bool onnx_eye_like(OnnxOp *o)
{
    Value *x;
    int64_t k;
    DType t;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "k", 0, &k) && op_attr_dtype(o, "dtype", x->dtype, &t));
    if (x->rank != 2) return op_fail(o, 0, "rank %d, expected a matrix", x->rank);
    Value *row = AS(&o->L, add_Tensor, v(positions_of(o, x->dim[0])), arg_int(o->g, k));
    return op_return(o, 0, lower_cast(&o->L, row ? hot(o, row, 1, x->dim[1]) : NULL, t));
}

/* Of each batch entry the first sequence_lens elements along time, backwards */
bool onnx_reverse_sequence(OnnxOp *o)
{
    Value *x, *lens;
    int64_t b, t;
    int batch, time;
    Expr *dim[MAX_RANK], *line[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &lens) && op_attr_int(o, "batch_axis", 1, &b) &&
        op_attr_int(o, "time_axis", 0, &t) && op_axis(o, "batch_axis", b, x->rank, &batch) &&
        op_axis(o, "time_axis", t, x->rank, &time));
    if (lens->rank != 1 || batch == time)
        return op_fail(o, 1, "rank %d, expected a vector; batch_axis %d, time_axis %d", lens->rank, batch, time);
    for (int i = 0; i < x->rank; i++) {
        dim[i] = i == batch ? lens->dim[0] : ex_int(o->ex, 1);
        line[i] = i == time ? x->dim[time] : ex_int(o->ex, 1);
    }
    TRY(lens = lower_reshape(&o->L, lower_cast(&o->L, lens, DT_I64), x->rank, dim));
    Value *at = lower_reshape(&o->L, positions_of(o, x->dim[time]), x->rank, line);
    Value *back = AS(&o->L, sub_Tensor, v(AS(&o->L, sub_Tensor, v(lens), arg_int(o->g, 1))), v(at));
    Value *from = AS(&o->L, where_self, v(AS(&o->L, lt_Tensor, v(at), v(lens))), v(back), v(at));
    from = AS(&o->L, expand, v(from), arg_exprs(o->g, x->rank, x->dim));
    return op_return(o, 0, AS(&o->L, gather, v(x), arg_int(o->g, time), v(from)));
}
