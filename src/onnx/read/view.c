/* ONNX's views, parts and constants. Contract in onnx_impl.h. */
#include <string.h>
#include "onnx/read/read_impl.h"

static Expr *whole(OnnxOp *o, int64_t n) { return ex_int(o->ex, n); }

bool onnx_sizes_only(OnnxOp *o) { return op_fail(o, 0, "has no shape that is known"); }

/* One of the attributes value, value_float(s), value_int(s). */
bool onnx_constant(OnnxOp *o)
{
    const OnnxAttr *a = NULL;
    static const char *const names[] = {"value", "value_float", "value_floats", "value_int", "value_ints"};
    for (int i = 0; i < 5 && !a; i++) a = op_attr(o, names[i]);
    const char *name = o->node->noutput ? o->node->output[0] : "";
    if (!a) return op_unsupported(o, "a constant without a numeric value");
    if (a->type == ONNX_ATTR_TENSOR && a->t) return op_return_cell(o, 0, cell_of_tensor(o->im, name, a->t, false));
    int64_t n = a->type == ONNX_ATTR_FLOATS || a->type == ONNX_ATTR_INTS ? a->n : 1;
    bool is_float = a->type == ONNX_ATTR_FLOAT || a->type == ONNX_ATTR_FLOATS;
    if (!is_float && a->type != ONNX_ATTR_INT && a->type != ONNX_ATTR_INTS)
        return op_unsupported(o, "a constant of attribute '%s'", a->name);
    OnnxTensor *t = arena_new(o->g->arena, OnnxTensor);
    void *bytes = arena_alloc(o->g->arena, (size_t)n + 1, 8);
    if (!t || !bytes) return oom(o->im->err);
    t->t = tensor_of(is_float ? DT_F32 : DT_I64, a->type == ONNX_ATTR_FLOATS || a->type == ONNX_ATTR_INTS, &n, bytes);
    for (int64_t i = 0; i < n; i++) {
        if (is_float) ((float *)bytes)[i] = a->type == ONNX_ATTR_FLOAT ? a->f : a->floats[i];
        else ((int64_t *)bytes)[i] = a->type == ONNX_ATTR_INT ? a->i : a->ints[i];
    }
    t->type = is_float ? ONNX_FLOAT : ONNX_INT64;
    t->name = name;
    return op_return_cell(o, 0, cell_of_tensor(o->im, name, t, false));
}

bool onnx_constant_of_shape(OnnxOp *o)
{
    int n;
    Expr **e, *fill = ex_float(o->ex, 0);
    DType t = DT_F32;
    const OnnxAttr *a = op_attr(o, "value");
    TRY(op_sizes(o, 0, &n, &e));
    if (a) {
        if (a->type != ONNX_ATTR_TENSOR || tensor_numel(&a->t->t) != 1)
            return fail(o->im->err, E_FORMAT, "attribute 'value' must be a tensor of one element");
        t = a->t->t.dtype;
        fill = dtype_is_float(t) ? ex_float(o->ex, tensor_get(&a->t->t, 0))
               : t == DT_BOOL    ? ex_bool(o->ex, tensor_get_i64(&a->t->t, 0) != 0)
                                 : ex_int(o->ex, tensor_get_i64(&a->t->t, 0));
    }
    return op_return(o, 0, AS(&o->L, full, arg_exprs(o->g, n, e), arg_expr(fill), arg_dtype(t)));
}

/* Data-dependent sizes may be 0 and -1, too: which they are is only known when running. Our own writer computes sizes
 * alone; what is left over is -1 as a constant there. */
static bool computed_sizes(OnnxOp *o, const Value *x, int n, Expr **dim, bool keep_zero)
{
    Expr *one = whole(o, 1), *all = one, *rest = one, *none[MAX_RANK] = {NULL};
    for (int i = 0; i < x->rank; i++) all = ex_mul(o->ex, all, x->dim[i]);
    for (int i = 0; i < n; i++) {
        if (ex_equals_int(dim[i], -1)) return true; /* the only -1: what is left goes there */
        if (!ex_data_dependent(o->ex, dim[i])) {
            rest = ex_mul(o->ex, rest, dim[i]);
            continue;
        }
        if (!keep_zero && i < x->rank)
            dim[i] = ex_make(o->ex, EX_WHERE, ex_make(o->ex, EX_EQ, dim[i], whole(o, 0), NULL), x->dim[i], dim[i]);
        none[i] = ex_make(o->ex, EX_EQ, dim[i], whole(o, -1), NULL);
        rest = ex_mul(o->ex, rest, ex_make(o->ex, EX_WHERE, none[i], one, dim[i]));
    }
    for (int i = 0; i < n; i++) {
        if (!none[i]) continue;
        dim[i] = ex_make(o->ex, EX_WHERE, none[i], ex_floordiv(o->ex, all, ex_max(o->ex, rest, one)), dim[i]);
        if (!dim[i]) return fail(o->im->err, E_LIMIT, "a size expression is too large");
    }
    return true;
}

/* 0 keeps the input's size unless allowzero, -1 is what is left. */
bool onnx_reshape(OnnxOp *o)
{
    Value *x;
    int n;
    Expr **e, *dim[MAX_RANK];
    int64_t allowzero;
    bool computed = false;
    TRY(op_tensor(o, 0, &x) && op_sizes(o, 1, &n, &e) && op_attr_int(o, "allowzero", 0, &allowzero));
    if (n > MAX_RANK) return op_fail(o, 1, "rank %d: at most %d is supported", n, MAX_RANK);
    for (int i = 0; i < n; i++) {
        dim[i] = e[i];
        bool zero = !allowzero && ex_equals_int(e[i], 0);
        if (zero && i >= x->rank)
            return op_fail(o, 1, "element %d is 0 (the input's size), but the input has rank %d", i, x->rank);
        if (zero) dim[i] = x->dim[i];
        computed = computed || ex_data_dependent(o->ex, dim[i]);
    }
    bool own = o->opset >= 14 && !strcmp(o->im->file->model.producer, "qkv");
    if (computed && !own) TRY(computed_sizes(o, x, n, dim, allowzero != 0));
    return op_return(o, 0, AS(&o->L, reshape, v(x), arg_exprs(o->g, n, dim)));
}

static Expr *product(OnnxOp *o, const Value *x, int from, int to)
{
    Expr *all = whole(o, 1);
    for (int i = from; i < to; i++) all = ex_mul(o->ex, all, x->dim[i]);
    return all;
}

bool onnx_flatten(OnnxOp *o)
{
    Value *x;
    int64_t axis;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", 1, &axis));
    if (axis < -x->rank || axis > x->rank)
        return fail(o->im->err, E_FORMAT, "axis %lld is out of range for rank %d", (long long)axis, x->rank);
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    Expr *dim[] = {product(o, x, 0, at), product(o, x, at, x->rank)};
    return op_return(o, 0, lower_reshape(&o->L, x, 2, dim));
}

bool onnx_transpose(OnnxOp *o)
{
    Value *x;
    const int64_t *p;
    int n, perm[MAX_RANK];
    bool seen[MAX_RANK] = {false};
    TRY(op_tensor(o, 0, &x) && op_attr_ints(o, "perm", &p, &n));
    if (p && n != x->rank)
        return fail(o->im->err, E_FORMAT, "attribute 'perm' has %d elements for rank %d", n, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int64_t k = p ? p[i] : x->rank - 1 - i;
        if (k < 0 || k >= x->rank || seen[k])
            return fail(o->im->err, E_FORMAT, "attribute 'perm' is not a permutation: element %d is %lld", i,
                        (long long)k);
        seen[k] = true;
        perm[i] = (int)k;
    }
    return op_return(o, 0, lower_permute(&o->L, x, perm));
}

bool onnx_squeeze(OnnxOp *o)
{
    Value *x;
    int n, axis[MAX_RANK], rank = 0;
    bool gone[MAX_RANK] = {false};
    Expr *dim[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_axes(o, 13, 1, x->rank, &n, axis));
    for (int i = 0; i < n; i++) {
        gone[axis[i]] = true;
        TRY(graph_require(o->g, ex_make(o->ex, EX_EQ, x->dim[axis[i]], whole(o, 1), NULL), o->im->err,
                          "node '%s': axis %d is squeezed", o->L.name, axis[i]));
    }
    for (int i = 0; n < 0 && i < x->rank; i++) gone[i] = ex_equals_int(x->dim[i], 1);
    for (int i = 0; i < x->rank; i++)
        if (!gone[i]) dim[rank++] = x->dim[i];
    return op_return(o, 0, lower_reshape(&o->L, x, rank, dim));
}

bool onnx_unsqueeze(OnnxOp *o)
{
    Value *x;
    int n, axis[MAX_RANK];
    bool fresh[MAX_RANK] = {false};
    Expr *dim[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_new_axes(o, x->rank, &n, axis));
    for (int i = 0; i < n; i++) fresh[axis[i]] = true;
    for (int i = 0, k = 0; i < x->rank + n; i++) dim[i] = fresh[i] ? whole(o, 1) : x->dim[k++];
    return op_return(o, 0, lower_reshape(&o->L, x, x->rank + n, dim));
}

/* Broadcasts both ways: an axis of the input may be larger than what is asked for. */
bool onnx_expand(OnnxOp *o)
{
    Value *x;
    int n;
    Expr **e, *dim[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_sizes(o, 1, &n, &e));
    if (n > MAX_RANK) return op_fail(o, 1, "rank %d: at most %d is supported", n, MAX_RANK);
    int rank = n > x->rank ? n : x->rank;
    for (int i = 0; i < rank; i++) {
        Expr *want = i - rank + n >= 0 ? e[i - rank + n] : whole(o, 1),
             *have = i - rank + x->rank >= 0 ? x->dim[i - rank + x->rank] : whole(o, 1);
        dim[i] = ex_equals_int(want, 1) ? have : want;
        if (!ex_data_dependent(o->ex, want) || ex_equals_int(have, 1)) continue;
        Expr *keeps = ex_make(o->ex, EX_EQ, want, whole(o, 1), NULL);
        dim[i] = ex_is_int(have) ? have : ex_make(o->ex, EX_WHERE, keeps, have, want);
        TRY(graph_require(o->g, ex_make(o->ex, EX_OR, keeps, ex_make(o->ex, EX_EQ, want, dim[i], NULL), NULL),
                          o->im->err, "node '%s': size that axis %d is expanded to", o->L.name, i));
    }
    return op_return(o, 0, AS(&o->L, expand, v(x), arg_exprs(o->g, rank, dim)));
}

bool onnx_concat(OnnxOp *o)
{
    int64_t axis;
    int at = 0;
    Value **all = arena_array(o->g->arena, Value *, o->node->ninput + 1);
    if (!all) return oom(o->im->err);
    if (!o->node->ninput) return op_fail(o, 0, "left out");
    if (!op_attr(o, "axis")) return fail(o->im->err, E_FORMAT, "attribute 'axis' is missing");
    for (int i = 0; i < o->node->ninput; i++) {
        TRY(op_tensor(o, i, &all[i]));
        if (all[i]->dtype != all[0]->dtype)
            return op_fail(o, i, "%s, but input 0 is %s", dtype_name(all[i]->dtype), dtype_name(all[0]->dtype));
        if (all[i]->rank != all[0]->rank || !all[i]->rank)
            return op_fail(o, i, "rank %d, but input 0 has rank %d", all[i]->rank, all[0]->rank);
    }
    TRY(op_attr_int(o, "axis", 0, &axis) && op_axis(o, "axis", axis, all[0]->rank, &at));
    return op_return(o, 0, AS(&o->L, cat, arg_values(o->g, o->node->ninput, all), arg_int(o->g, at)));
}

/* Into given sizes, or into as many equal parts as there are outputs (from opset 18 on the last may be smaller). */
static bool computed_parts(OnnxOp *o, int n, Expr *const *e)
{
    for (int i = 0; i < n; i++)
        if (ex_data_dependent(o->ex, e[i])) return true;
    return false;
}

/* Sizes that are read from a tensor are those of the parts, none is clamped into the axis: a concatenation of what
 * comes of the parts then has the axis' size again. */
static bool split_by_data(OnnxOp *o, Value *x, int axis, int n, Expr *const *e)
{
    Expr *start = whole(o, 0), *size = x->dim[axis];
    for (int i = 0; i < n; i++) {
        int64_t lo, hi;
        ex_range(o->ex, e[i], &lo, &hi);
        if (e[i]->kind == EX_SYM) expr_set_range(o->ex, (int)e[i]->i, lo > 0 ? lo : 0, hi);
    }
    for (int i = 0; i < n; i++) {
        Expr *length = i == n - 1 ? ex_sub(o->ex, size, start) : e[i], *end = ex_add(o->ex, start, e[i]);
        if (op_wants(o, i))
            TRY(op_return(o, i,
                          AS(&o->L, narrow, v(x), arg_int(o->g, axis), arg_expr(start), arg_expr(length))));
        start = end;
    }
    return graph_require(o->g, ex_make(o->ex, EX_EQ, start, size, NULL), o->im->err,
                         "node '%s': the sizes of the split", o->L.name);
}

bool onnx_split(OnnxOp *o)
{
    Value *x;
    int64_t axis, parts;
    int at, n = 0, count = o->node->noutput;
    Expr **e = NULL;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", 0, &axis) && op_axis(o, "axis", axis, x->rank, &at) &&
        op_attr_int(o, "num_outputs", count, &parts));
    if (!x->rank) return op_fail(o, 0, "a number, expected a tensor to split");
    if (parts != count || !count)
        return fail(o->im->err, E_FORMAT, "num_outputs is %lld, but %d outputs are named", (long long)parts, count);
    if (o->opset >= 13) {
        if (op_has(o, 1)) TRY(op_sizes(o, 1, &n, &e));
    } else {
        const int64_t *given;
        TRY(op_attr_ints(o, "split", &given, &n));
        if (given) e = arg_ints(o->g, n, given).es;
        if (given && !e) return oom(o->im->err);
    }
    if (e && n != count) return op_fail(o, 1, "%d sizes for %d outputs", n, count);
    Expr *start = whole(o, 0), *size = x->dim[at], *part = NULL;
    if (!e) part = ex_floordiv(o->ex, ex_add(o->ex, size, whole(o, o->opset >= 18 ? count - 1 : 0)), whole(o, count));
    if (!e && o->opset < 18)
        TRY(graph_require(o->g, ex_make(o->ex, EX_EQ, ex_mul(o->ex, part, whole(o, count)), size, NULL), o->im->err,
                          "node '%s': %d equal parts of axis %d", o->L.name, count, at));
    if (computed_parts(o, n, e)) return split_by_data(o, x, at, n, e);
    for (int i = 0; i < count; i++) {
        Expr *end = e ? ex_add(o->ex, start, e[i]) : i == count - 1 ? size : ex_add(o->ex, start, part);
        if (op_wants(o, i))
            TRY(op_return(
                o, i,
                AS(&o->L, slice_Tensor, v(x), arg_int(o->g, at), arg_expr(start), arg_expr(end), arg_int(o->g, 1))));
        start = end;
    }
    return !e || graph_require(o->g, ex_make(o->ex, EX_EQ, start, size, NULL), o->im->err,
                               "node '%s': the sizes of the split", o->L.name);
}

/* One axis of a slice, constant step: a negative one reads backwards from start (ONNX clamps start into the axis,
 * end to one before it). */
static Value *slice_axis(OnnxOp *o, Value *x, int axis, Expr *start, Expr *end, int64_t step)
{
    Expr *n = x->dim[axis];
    if (step > 0)
        return AS(&o->L, slice_Tensor, v(x), arg_int(o->g, axis), arg_expr(start), arg_expr(end), arg_int(o->g, step));
    Expr *zero = whole(o, 0), *one = whole(o, 1);
    Expr *from = ex_is_int(start) ? (start->i < 0 ? ex_add(o->ex, start, n) : start)
                                  : ex_make(o->ex, EX_WHERE, ex_make(o->ex, EX_LT, start, zero, NULL),
                                            ex_add(o->ex, start, n), start);
    Expr *to = ex_is_int(end)
                   ? (end->i < -(1LL << 40) ? whole(o, -1)
                      : end->i < 0          ? ex_add(o->ex, end, n)
                                            : end)
                   : ex_make(o->ex, EX_WHERE, ex_make(o->ex, EX_LT, end, zero, NULL), ex_add(o->ex, end, n), end);
    from = ex_min(o->ex, ex_max(o->ex, from, zero), ex_sub(o->ex, n, one));
    to = ex_max(o->ex, ex_min(o->ex, to, ex_sub(o->ex, n, one)), whole(o, -1));
    /* x[from : to : -k] is flip(x)[n - 1 - from : n - 1 - to : k] */
    Value *y = AS(&o->L, flip, v(x), arg_ints(o->g, 1, (int64_t[]){axis}));
    if (step == -1 && ex_equals_int(start, -1) && ex_is_int(end) && end->i < -(1LL << 40)) return y; /* all of it */
    Expr *first = ex_sub(o->ex, ex_sub(o->ex, n, one), from), *last = ex_sub(o->ex, ex_sub(o->ex, n, one), to);
    return AS(&o->L, slice_Tensor, v(y), arg_int(o->g, axis), arg_expr(first), arg_expr(last), arg_int(o->g, -step));
}

bool onnx_slice(OnnxOp *o)
{
    Value *x;
    Expr **start, **end;
    const int64_t *axes = NULL, *steps = NULL;
    int n, m, na = 0, ns = 0;
    TRY(op_tensor(o, 0, &x));
    if (o->opset >= 10) {
        TRY(op_sizes(o, 1, &n, &start) && op_sizes(o, 2, &m, &end));
        if (op_has(o, 3)) TRY(op_const_ints(o, 3, &na, &axes));
        if (op_has(o, 4)) TRY(op_const_ints(o, 4, &ns, &steps));
    } else {
        const int64_t *s, *e;
        TRY(op_attr_ints(o, "starts", &s, &n) && op_attr_ints(o, "ends", &e, &m) &&
            op_attr_ints(o, "axes", &axes, &na));
        start = arg_ints(o->g, n, s).es;
        end = arg_ints(o->g, m, e).es;
        if (!start || !end) return oom(o->im->err);
    }
    if (m != n || (axes && na != n) || (steps && ns != n))
        return fail(o->im->err, E_FORMAT, "%d starts, %d ends, %d axes, %d steps: expected as many of each", n, m, na,
                    ns);
    for (int i = 0; i < n; i++) {
        int axis;
        int64_t step = steps ? steps[i] : 1;
        TRY(op_axis(o, "axis", axes ? axes[i] : i, x->rank, &axis));
        if (step == 0 || step == INT64_MIN) return fail(o->im->err, E_FORMAT, "step %d is %lld", i, (long long)step);
        TRY(x = slice_axis(o, x, axis, start[i], end[i], step));
    }
    return op_return(o, 0, x);
}

bool onnx_tile(OnnxOp *o)
{
    Value *x;
    Expr **e;
    int n;
    TRY(op_tensor(o, 0, &x) && op_sizes(o, 1, &n, &e));
    if (n != x->rank) return op_fail(o, 1, "%d elements for rank %d", n, x->rank);
    return op_return(o, 0, AS(&o->L, tile, v(x), arg_exprs(o->g, n, e)));
}

/* Floats that are computed: start + i delta, as many as fit before limit. */
static Value *float_range(OnnxOp *o, DType t)
{
    Value *x[3], *wide[3];
    Expr *n;
    for (int i = 0; i < 3; i++) {
        if (!op_tensor(o, i, &x[i])) return NULL;
        if (x[i]->rank) TRY_NULL(x[i] = lower_reshape(&o->L, x[i], 0, NULL));
        wide[i] = lower_cast(&o->L, x[i], DT_F64);
    }
    Value *count = AS(&o->L, ceil,
                      v(AS(&o->L, div_Tensor, v(AS(&o->L, sub_Tensor, v(wide[1]), v(wide[0]))), v(wide[2]))));
    count = lower_cast(&o->L, AS(&o->L, clamp, v(count), arg_int(o->g, 0)), DT_I64);
    if (!count || !op_item(o, count, 0, &n)) return NULL;
    Value *at = lower_cast(
        &o->L, AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(n), arg_int(o->g, 1), arg_dtype(DT_I64)), t);
    return AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(at), v(x[2]))), v(x[0]));
}

/* start, limit, delta: integers may be sizes */
bool onnx_range(OnnxOp *o)
{
    Expr **e[3];
    DType t = op_has(o, 0) ? cell_dtype(o->in[0]) : DT_NONE;
    if (dtype_is_float(t) && (!op_known(o, 0) || !op_known(o, 1) || !op_known(o, 2)))
        return op_return(o, 0, float_range(o, t));
    for (int i = 0; i < 3; i++) {
        int n;
        TRY(op_sizes(o, i, &n, &e[i]));
        if (n != 1) return op_fail(o, i, "%d elements, expected one value", n);
    }
    return op_return(
        o, 0, AS(&o->L, arange_start_step, arg_expr(e[0][0]), arg_expr(e[1][0]), arg_expr(e[2][0]), arg_dtype(t)));
}

bool onnx_trilu(OnnxOp *o)
{
    Value *x;
    int64_t upper;
    int n = 1;
    Expr *zero = whole(o, 0), **k = &zero;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "upper", 1, &upper));
    if (op_has(o, 1)) TRY(op_sizes(o, 1, &n, &k));
    if (n != 1) return op_fail(o, 1, "%d elements, expected one value", n);
    return op_return(o, 0, upper ? AS(&o->L, triu, v(x), arg_expr(*k)) : AS(&o->L, tril, v(x), arg_expr(*k)));
}

/* Hann, Hamming and Blackman windows: sums of cosines over a size */
bool onnx_window(OnnxOp *o)
{
    Expr **size;
    int n;
    int64_t periodic;
    DType t;
    TRY(op_sizes(o, 0, &n, &size) && op_attr_int(o, "periodic", 1, &periodic) &&
        op_attr_dtype(o, "output_datatype", DT_F32, &t));
    if (n != 1) return op_fail(o, 0, "%d elements, expected one size", n);
    double a[3] = {0.5, 0.5, 0};
    if (o->row.aten == OP_hamming_window) a[0] = 25.0 / 46, a[1] = 21.0 / 46;
    if (o->row.aten == OP_blackman_window) a[0] = 0.42, a[2] = 0.08;
    Value *i = AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(size[0]), arg_int(o->g, 1), arg_dtype(DT_F64));
    Value *steps = AS(&o->L, full, arg_ints(o->g, 0, NULL),
                      arg_expr(periodic ? size[0] : ex_sub(o->ex, size[0], whole(o, 1))), arg_dtype(DT_F64));
    Value *angle = AS(&o->L, div_Tensor,
                      v(AS(&o->L, mul_Tensor, v(i), arg_float(o->g, 6.283185307179586476925286766559))), v(steps));
    Value *y = AS(&o->L, mul_Tensor, v(AS(&o->L, cos, v(angle))), arg_float(o->g, -a[1]));
    Value *second = AS(&o->L, mul_Tensor, v(AS(&o->L, cos, v(AS(&o->L, mul_Tensor, v(angle), arg_float(o->g, 2))))),
                       arg_float(o->g, a[2]));
    y = AS(&o->L, add_Tensor, v(AS(&o->L, add_Tensor, v(y), v(second))), arg_float(o->g, a[0]));
    return op_return(o, 0, lower_cast(&o->L, y, t));
}

/* The middle of axes cut or padded with 0 to sizes */
bool onnx_center_crop_pad(OnnxOp *o)
{
    Value *x;
    Expr **size, *two = whole(o, 2), *zero = whole(o, 0);
    const int64_t *axes;
    int n, given;
    TRY(op_tensor(o, 0, &x) && op_sizes(o, 1, &n, &size) && op_attr_ints(o, "axes", &axes, &given));
    if (n != (axes ? given : x->rank)) return op_fail(o, 1, "%d sizes for %d axes", n, axes ? given : x->rank);
    for (int i = 0; i < n; i++) {
        int axis;
        Expr *pad[2 * MAX_RANK];
        TRY(op_axis(o, "axis", axes ? axes[i] : i, x->rank, &axis));
        Expr *more = ex_max(o->ex, ex_sub(o->ex, size[i], x->dim[axis]), zero),
             *less = ex_max(o->ex, ex_sub(o->ex, x->dim[axis], size[i]), zero);
        Expr *start = ex_sub(o->ex, ex_floordiv(o->ex, more, two), ex_floordiv(o->ex, less, two)),
             *all = ex_sub(o->ex, size[i], x->dim[axis]);
        int last = 2 * (x->rank - 1 - axis);
        for (int k = 0; k < last; k++) pad[k] = zero;
        pad[last] = start;
        pad[last + 1] = ex_sub(o->ex, all, start);
        TRY(x = AS(&o->L, constant_pad_nd, v(x), arg_exprs(o->g, last + 2, pad),
                   dtype_is_float(x->dtype) ? arg_float(o->g, 0) : arg_int(o->g, 0)));
    }
    return op_return(o, 0, x);
}
