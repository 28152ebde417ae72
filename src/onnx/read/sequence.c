/* ONNX's sequences and optionals: lists of tensors whose length is known when the model is read. Contract in
 * onnx_impl.h.
 *
 *     SequenceInsert(SequenceConstruct(a, b), c, 0)        ->  the list (c, a, b); no nodes
 */
#include "onnx/read/read_impl.h"

static const char *out_name(const OnnxOp *o) { return o->node->noutput ? o->node->output[0] : ""; }

static bool list_of(OnnxOp *o, int i, Cell **out)
{
    *out = op_has(o, i) ? o->in[i] : NULL;
    if (!*out) return op_fail(o, i, "left out");
    return (*out)->is_list || op_fail(o, i, "is not a sequence");
}

static bool return_list(OnnxOp *o, int n, Cell *const *list)
{
    return op_return_cell(o, 0, cell_of_list(o->im, out_name(o), n, list));
}

static Cell **room(OnnxOp *o, int n)
{
    Cell **all = arena_array(o->g->arena, Cell *, n + 1);
    if (!all) oom(o->im->err);
    return all;
}

/* A position -n .. n - 1, or n where one past the end is allowed; the last when input i is left out */
static bool position(OnnxOp *o, int i, int n, bool past_end, int *out)
{
    int count;
    const int64_t *v;
    *out = past_end ? n : n - 1;
    if (!op_has(o, i)) return true;
    TRY(op_const_ints(o, i, &count, &v));
    if (count != 1 || v[0] < -n || v[0] >= n + past_end)
        return op_fail(o, i, "a position out of range for %d elements", n);
    *out = (int)(v[0] < 0 ? v[0] + n : v[0]);
    return true;
}

bool onnx_sequence_construct(OnnxOp *o) { return return_list(o, o->node->ninput, o->in); }

bool onnx_sequence_empty(OnnxOp *o) { return return_list(o, 0, NULL); }

bool onnx_sequence_insert(OnnxOp *o)
{
    Cell *s, **all;
    int at;
    TRY(list_of(o, 0, &s) && (all = room(o, s->nlist + 1)) && position(o, 2, s->nlist, true, &at));
    if (!op_has(o, 1)) return op_fail(o, 1, "left out");
    for (int i = 0; i <= s->nlist; i++) all[i] = i < at ? s->list[i] : i == at ? o->in[1] : s->list[i - 1];
    return return_list(o, s->nlist + 1, all);
}

bool onnx_sequence_erase(OnnxOp *o)
{
    Cell *s, **all;
    int at;
    TRY(list_of(o, 0, &s) && (all = room(o, s->nlist)) && position(o, 1, s->nlist, false, &at));
    if (!s->nlist) return op_fail(o, 0, "has no elements");
    for (int i = 0; i < s->nlist - 1; i++) all[i] = s->list[i < at ? i : i + 1];
    return return_list(o, s->nlist - 1, all);
}

bool onnx_sequence_at(OnnxOp *o)
{
    Cell *s;
    int at;
    TRY(list_of(o, 0, &s));
    if (!s->nlist) return op_fail(o, 0, "has no elements");
    if (!op_has(o, 1)) return op_fail(o, 1, "left out");
    return position(o, 1, s->nlist, false, &at) && op_return_cell(o, 0, s->list[at]);
}

bool onnx_sequence_length(OnnxOp *o)
{
    Cell *s;
    TRY(list_of(o, 0, &s));
    Expr *n = ex_int(o->ex, s->nlist);
    return op_return_sizes(o, 0, DT_I64, 0, NULL, 1, &n);
}

bool onnx_concat_from_sequence(OnnxOp *o)
{
    Cell *s;
    int64_t a, fresh;
    int axis;
    TRY(list_of(o, 0, &s) && op_attr_int(o, "axis", 0, &a) && op_attr_int(o, "new_axis", 0, &fresh));
    if (!s->nlist) return op_fail(o, 0, "has no elements to join");
    Value **all = arena_array(o->g->arena, Value *, s->nlist);
    if (!all) return oom(o->im->err);
    for (int i = 0; i < s->nlist; i++) TRY(all[i] = cell_value(o->im, s->list[i]));
    TRY(op_axis(o, "axis", a, all[0]->rank + (fresh != 0), &axis));
    Arg list = arg_values(o->g, s->nlist, all);
    return op_return(o, 0,
                     fresh ? AS(&o->L, stack, list, arg_int(o->g, axis)) : AS(&o->L, cat, list, arg_int(o->g, axis)));
}

/* Into parts of `split` (one size for all, or a list); without it one part an element,
 * whose axis goes unless keepdims. */
bool onnx_split_to_sequence(OnnxOp *o)
{
    Value *x;
    int64_t a, keep, start = 0;
    const int64_t *sizes = NULL;
    int axis, n = 0;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", 0, &a) && op_axis(o, "axis", a, x->rank, &axis) &&
        op_attr_int(o, "keepdims", 1, &keep));
    if (op_has(o, 1)) TRY(op_const_ints(o, 1, &n, &sizes));
    if (!x->rank) return op_fail(o, 0, "a number, expected a tensor to split");
    if (!ex_is_int(x->dim[axis]))
        return op_unsupported(o, "axis %d varies, and with it the number of parts; only a fixed number is supported",
                              axis);
    int64_t size = x->dim[axis]->i, each = sizes && cell_rank(o->in[1]) == 0 ? sizes[0] : 0;
    if (sizes && each < 1 && cell_rank(o->in[1]) == 0) return op_fail(o, 1, "parts of %lld elements", (long long)each);
    int64_t parts = !sizes ? size : each ? size / each + (size % each != 0) : n;
    if (parts < 0 || parts > 1 << 16) return op_unsupported(o, "%lld parts", (long long)parts);
    Cell **all = room(o, (int)parts);
    TRY(all);
    for (int i = 0; i < parts; i++) {
        int64_t left = size - start, len = !sizes ? 1 : each ? (each > left ? left : each) : sizes[i];
        if (len < 0 || len > left)
            return op_fail(o, 1, "part %d has %lld elements, %lld are left", i, (long long)len, (long long)left);
        Value *part = !sizes && !keep ? AS(&o->L, select_int, arg_value(x), arg_int(o->g, axis), arg_int(o->g, start))
                                      : AS(&o->L, slice_Tensor, arg_value(x), arg_int(o->g, axis), arg_int(o->g, start),
                                           arg_int(o->g, start + len), arg_int(o->g, 1));
        TRY(part && (all[i] = cell_of_value(o->im, "", part)) && onnx_fits(o->im));
        start += len;
    }
    if (start != size) return op_fail(o, 1, "sizes that make %lld of %lld", (long long)start, (long long)size);
    return return_list(o, (int)parts, all);
}

bool onnx_optional(OnnxOp *o)
{
    if (op_has(o, 0)) return op_return_cell(o, 0, o->in[0]);
    Cell *none = cell_of_list(o->im, out_name(o), 0, NULL);
    if (none) none->is_none = true;
    return op_return_cell(o, 0, none);
}

bool onnx_optional_get_element(OnnxOp *o)
{
    if (!op_has(o, 0) || o->in[0]->is_none) return op_fail(o, 0, "holds nothing");
    return op_return_cell(o, 0, o->in[0]);
}

bool onnx_optional_has_element(OnnxOp *o)
{
    Expr *has = ex_bool(o->ex, op_has(o, 0) && !o->in[0]->is_none);
    return op_return_sizes(o, 0, DT_BOOL, 0, NULL, 1, &has);
}

/* The body once for each element of the first sequence; other sequences go along, tensors stay as they are. */
bool onnx_sequence_map(OnnxOp *o)
{
    const OnnxAttr *a = op_attr(o, "body");
    Cell *s, **in = room(o, o->node->ninput), **out = room(o, o->node->noutput), **all[16];
    TRY(list_of(o, 0, &s) && in && out);
    if (!a || a->type != ONNX_ATTR_GRAPH || !a->g)
        return fail(o->im->err, E_FORMAT, "attribute 'body' is missing or not a graph");
    if (o->node->noutput > 16) return op_unsupported(o, "%d results", o->node->noutput);
    for (int k = 0; k < o->node->noutput; k++) TRY(all[k] = room(o, s->nlist));
    for (int i = 0; i < s->nlist; i++) {
        for (int k = 0; k < o->node->ninput; k++) {
            in[k] = o->in[k];
            if (!in[k] || !in[k]->is_list) continue;
            if (in[k]->nlist != s->nlist)
                return op_fail(o, k, "%d elements, but input 0 has %d", in[k]->nlist, s->nlist);
            in[k] = in[k]->list[i];
        }
        TRY(onnx_branch(o, a->g, o->node->ninput, in, o->node->noutput, out) || within(o->im->err, "element %d", i));
        for (int k = 0; k < o->node->noutput; k++) all[k][i] = out[k];
    }
    for (int k = 0; k < o->node->noutput; k++)
        TRY(op_return_cell(o, k, cell_of_list(o->im, o->node->output[k], s->nlist, all[k])));
    return true;
}
