/* Nodes in the words of ATen's core, for graphs that ask for it (qkv joint --decompose core). What has no core form is
 * an error that names the node.
 *
 *     aten.reshape(x, [6])          ->  aten.view(x, [6]), of a contiguous clone where x may not be contiguous in
 *                                       PyTorch
 *     aten.matmul of (B, H, N, D)   ->  aten.bmm of (B*H, N, D)
 *     aten.where.ScalarOther(c, x, 0.0)  ->  aten.where.self(c, x, aten.full([], 0.0))
 */
#include <stdlib.h>
#include <string.h>
#include "facts/axes.h"
#include "pt2/write/write_impl.h"

bool core_open(Emit *e)
{
    e->dense = arena_array(e->arena, signed char, e->g->next_id + 1);
    return e->dense || oom(e->err);
}

static Arg truth(const Emit *e, bool v) { return arg_expr(ex_bool(e->g->ex, v)); }
static Arg sizes(int n, Expr *const *dim) { return (Arg){.kind = ARG_EXPRS, .n = n, .es = (Expr **)(uintptr_t)dim}; }

/* ------------------------------------------------------------------ memory */

typedef struct Operands {
    Emit *e;
    bool dense;
} Operands;

static bool contiguous(Emit *e, const Value *v);

static void look(void *user, Value **slot)
{
    Operands *o = user;
    o->dense = o->dense && contiguous(o->e, *slot);
}

/* Is v contiguous in PyTorch? Views are not but for reshape, which is a view of what is or of a clone; products
 * always are; what else there is follows its operands: it is if they all are. Nodes are asked for in order, so that
 * their operands have been asked for. */
static bool contiguous(Emit *e, const Value *v)
{
    if (v->kind == V_INPUT || v->id >= e->g->next_id || !v->rank) return true;
    if (v->kind == V_WEIGHT) {
        int64_t step = 1;
        bool dense = v->data != NULL;
        for (int i = v->rank - 1; i >= 0 && dense; i--) {
            dense = v->data->shape[i] == 1 || v->data->stride[i] == step;
            step *= v->data->shape[i];
        }
        return dense;
    }
    if (e->dense[v->id]) return e->dense[v->id] > 0;
    Operands o = {e, true};
    const Op *op = v->def->op;
    if (op->id != OP_reshape && op->id != OP_matmul) {
        o.dense = !(op->flags & OPF_VIEW);
        if (o.dense) node_each_operand(v->def, look, &o);
    }
    e->dense[v->id] = o.dense ? 1 : -1;
    return o.dense;
}

static Value *clone(Emit *e, Value *x)
{
    Value *v = emit_value(e, x) ? new_value(e, x->name, x->dtype, x->rank, x->dim) : NULL;
    if (!v) return NULL;
    Buf inputs = {0}, output = {0};
    jw_put(&inputs, "{'name': 'self', 'arg': {'as_tensor': {'name': %s}}, 'kind': 1}", e->name[x->id]);
    jw_put(&inputs, "{'name': 'memory_format', 'arg': {'as_memory_format': 1}, 'kind': 2}");
    put_tensor(&output, e->name[v->id]);
    put_node(e, "torch.ops.aten.clone.default", &inputs, &output, e->name[v->id]);
    e->written[v->id] = true;
    return put_meta(e, v) ? v : NULL;
}

static Value *dense(Emit *e, Value *x) { return !x || contiguous(e, x) ? x : clone(e, x); }

/* x of other sizes, as a value that only the file has. */
static Value *viewed(Emit *e, Value *x, int rank, Expr *const *dim)
{
    if (!x || has_dims(x, rank, dim)) return x;
    x = dense(e, x);
    return x ? PUT(e, view, "view", x->dtype, rank, dim, arg_value(x), sizes(rank, dim)) : NULL;
}

static Value *expanded(Emit *e, Value *x, int rank, Expr *const *dim)
{
    return !x || has_dims(x, rank, dim) ? x
                                        : PUT(e, expand, "expand", x->dtype, rank, dim, arg_value(x), sizes(rank, dim));
}

/* The sizes of n's result, of v or of a clone. */
static bool finish_view(Emit *e, const Node *n, Value *v)
{
    const Value *out = n->out[0];
    v = v && !contiguous(e, v) ? clone(e, v) : v;
    return v && write_node(e, op_get(OP_view), (Arg[2]){arg_value(v), sizes(out->rank, out->dim)}, 1, n->out);
}

/* Windows of an axis as strides over a contiguous operand. */
static bool spell_unfold(Emit *e, const Node *n)
{
    ExprPool *p = e->g->ex;
    Value *x = dense(e, n->arg[0].v);
    TRY(x);
    Expr *stride[MAX_RANK + 1], *step = ex_int(p, 1);
    int axis = (int)n->arg[1].e->i;
    axis += axis < 0 ? x->rank : 0;
    for (int i = x->rank - 1; i >= 0; i--) {
        stride[i] = i == axis ? ex_mul(p, step, n->arg[3].e) : step;
        if (i == axis) stride[x->rank] = step;
        step = ex_mul(p, step, x->dim[i]);
        if (!step || !stride[i]) return fail(e->err, E_LIMIT, "a size expression is too large");
    }
    return write_node(e, op_get(OP_as_strided),
                      (Arg[4]){arg_value(x), sizes(n->out[0]->rank, n->out[0]->dim), sizes(n->out[0]->rank, stride)}, 1,
                      n->out);
}

/* ------------------------------------------------------------------ products */

/* x as (batch axes of the result..., rows, columns), its batch axes as one; a vector is a row or a column. */
static Value *as_matrices(Emit *e, Value *x, bool column, int nbatch, Expr *const *batch, Expr *all)
{
    Expr *one = ex_int(e->g->ex, 1), *dim[MAX_RANK + 2], *three[3];
    Expr *rows = x->rank > 1 ? x->dim[x->rank - 2]
                 : column    ? x->dim[0]
                             : one,
         *columns = x->rank > 1 ? x->dim[x->rank - 1]
                    : column    ? one
                                : x->dim[0];
    for (int i = 0; i < nbatch; i++) dim[i] = batch[i];
    dim[nbatch] = rows;
    dim[nbatch + 1] = columns;
    if (x->rank == 1) x = viewed(e, x, 2, (Expr *[]){rows, columns});
    if (!nbatch) return x;
    x = expanded(e, x, nbatch + 2, dim);
    three[0] = all;
    three[1] = rows;
    three[2] = columns;
    return viewed(e, x, 3, three);
}

static bool spell_matmul(Emit *e, const Node *n)
{
    ExprPool *p = e->g->ex;
    Value *a = n->arg[0].v, *b = n->arg[1].v, *out = n->out[0], *y;
    Expr *all = ex_int(p, 1), *dim[3];
    int nbatch = (a->rank > b->rank ? a->rank : b->rank) - 2;
    TRY(emit_value(e, a) && emit_value(e, b));
    if (a->rank > 2 && b->rank <= 2) { /* rows of all batches are rows of one matrix */
        for (int i = 0; i < a->rank - 1; i++)
            TRY((all = ex_mul(p, all, a->dim[i])) || fail(e->err, E_LIMIT, "a size expression is too large"));
        a = viewed(e, a, 2, (Expr *[]){all, a->dim[a->rank - 1]});
        nbatch = 0;
    }
    if (nbatch < 0) nbatch = 0;
    for (int i = 0; i < nbatch; i++)
        TRY((all = ex_mul(p, all, out->dim[i])) || fail(e->err, E_LIMIT, "a size expression is too large"));
    a = a ? as_matrices(e, a, false, nbatch, out->dim, all) : NULL;
    b = as_matrices(e, b, true, nbatch, out->dim, all);
    TRY(a && b);
    OpId op = nbatch ? OP_bmm : OP_mm;
    int rank = nbatch ? 3 : 2;
    dim[0] = all;
    dim[rank - 2] = a->dim[rank - 2];
    dim[rank - 1] = b->dim[rank - 1];
    if (has_dims(out, rank, dim)) return write_node(e, op_get(op), (Arg[2]){arg_value(a), arg_value(b)}, 1, n->out);
    return (y = put(e, op, 2, (Arg[2]){arg_value(a), arg_value(b)}, "product", out->dtype, rank, dim)) &&
           finish_view(e, n, y);
}

/* ------------------------------------------------------------------ norms, softmax */

/* A row whose core op gives two statistics beside its result. */
static bool write_norm(Emit *e, const Node *n, OpId op, const Arg *args, DType t, int rank, Expr *const *dim)
{
    Value *y = n->out[0], *all[3] = {y};
    all[1] = new_value(e, "mean", t, rank, dim);
    all[2] = new_value(e, "rstd", t, rank, dim);
    return all[1] && all[2] && write_node(e, op_get(op), args, 3, all);
}

static DType statistics(DType t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }

static bool spell_layer_norm(Emit *e, const Node *n)
{
    Expr *dim[MAX_RANK];
    const Value *x = n->arg[0].v;
    for (int i = 0; i < x->rank; i++) dim[i] = i < x->rank - n->arg[1].n ? x->dim[i] : ex_int(e->g->ex, 1);
    return write_norm(e, n, OP_native_layer_norm, (Arg[5]){n->arg[0], n->arg[1], n->arg[2], n->arg[3], n->arg[4]},
                      statistics(x->dtype), x->rank, dim);
}

static bool spell_group_norm(Emit *e, const Node *n)
{
    const Value *x = n->arg[0].v;
    Expr *rest = ex_int(e->g->ex, 1);
    for (int i = 2; i < x->rank; i++)
        TRY((rest = ex_mul(e->g->ex, rest, x->dim[i])) || fail(e->err, E_LIMIT, "a size expression is too large"));
    Arg args[8] = {n->arg[0],           n->arg[2],      n->arg[3], arg_expr(x->dim[0]),
                   arg_expr(x->dim[1]), arg_expr(rest), n->arg[1], n->arg[4]};
    return write_norm(e, n, OP_native_group_norm, args, statistics(x->dtype), 2, (Expr *[]){x->dim[0], n->arg[1].e});
}

static bool spell_batch_norm(Emit *e, const Node *n)
{
    Expr *none = ex_int(e->g->ex, 0);
    return write_norm(e, n, OP_native_batch_norm_legit_no_training,
                      (Arg[7]){n->arg[0], n->arg[1], n->arg[2], n->arg[3], n->arg[4], n->arg[6], n->arg[7]},
                      n->out[0]->dtype, 1, &none);
}

static bool spell_softmax(Emit *e, const Node *n, OpId op)
{
    return write_node(e, op_get(op), (Arg[3]){n->arg[0], n->arg[1], truth(e, false)}, 1, n->out);
}

/* ------------------------------------------------------------------ pictures, random numbers */

/* The two resamplings of pictures that core has take sizes or scales. */
static bool spell_upsample(Emit *e, const Node *n)
{
    bool linear = !strcmp(n->arg[2].s, "linear"), scaled = n->arg[4].kind == ARG_EXPRS && n->arg[4].n == 2;
    if (n->arg[0].v->rank != 4 || (!linear && strcmp(n->arg[2].s, "nearest")))
        return fail(e->err, E_UNSUPPORTED, "ATen's core has bilinear and nearest resampling of images only");
    for (int i = 0; i < 2 && scaled; i++) scaled = n->arg[4].es[i]->f != 0;
    Arg size = scaled ? arg_none() : n->arg[1], scales = scaled ? n->arg[4] : arg_none();
    if (linear)
        return write_node(e, op_get(OP_upsample_bilinear2d_vec), (Arg[4]){n->arg[0], size, n->arg[3], scales}, 1,
                          n->out);
    return write_node(e, op_get(OP_upsample_nearest2d_vec), (Arg[3]){n->arg[0], size, scales}, 1, n->out);
}

/* The mask that dropout draws: the same values of the same generator. */
static bool spell_bernoulli(Emit *e, const Node *n)
{
    Value *x = n->arg[0].v, *all[2] = {new_value(e, "dropped", x->dtype, x->rank, x->dim),
                                       new_value(e, "kept", DT_BOOL, x->rank, x->dim)};
    Expr *drop = ex_sub(e->g->ex, ex_float(e->g->ex, 1), n->arg[1].e);
    TRY(all[0] && all[1] && drop &&
        write_node(e, op_get(OP_native_dropout), (Arg[3]){n->arg[0], arg_expr(drop), truth(e, true)}, 2, all));
    return write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(all[1]), arg_dtype(n->out[0]->dtype)}, 1, n->out);
}

/* ------------------------------------------------------------------ all of them */

bool core_overload(Emit *e, const Node *n, Arg *args)
{
    for (int i = 0; i < n->op->schema->nparams && i < 8; i++) {
        args[i] = n->arg[i];
        if (n->op->schema->params[i].type != PT_TENSOR || n->arg[i].kind != ARG_EXPR) continue;
        Value *number = PUT(e, full, "number", n->out[0]->dtype, 0, NULL, sizes(0, NULL), n->arg[i],
                            arg_dtype(n->out[0]->dtype));
        TRY(number);
        args[i] = arg_value(number);
    }
    return true;
}

bool core_spell(Emit *e, const Node *n, bool *done)
{
    *done = true;
    if (n->nout) contiguous(e, n->out[0]);
    switch (n->op->id) {
    case OP_reshape: return finish_view(e, n, n->arg[0].v);
    case OP_unfold: return spell_unfold(e, n);
    case OP_as_strided: {
        Value *x = clone(e, n->arg[0].v);
        return x && write_node(e, n->op, (Arg[4]){arg_value(x), n->arg[1], n->arg[2], n->arg[3]}, 1, n->out);
    }
    case OP_slice_Tensor: return write_node(e, n->op, n->arg, 1, n->out);
    case OP_matmul: return spell_matmul(e, n);
    case OP_softmax_int: return spell_softmax(e, n, OP__softmax);
    case OP_log_softmax_int: return spell_softmax(e, n, OP__log_softmax);
    case OP_layer_norm: return spell_layer_norm(e, n);
    case OP_group_norm: return spell_group_norm(e, n);
    case OP_batch_norm: return spell_batch_norm(e, n);
    case OP_grid_sampler:
        return write_node(e, op_get(n->arg[0].v->rank == 4 ? OP_grid_sampler_2d : OP_grid_sampler_3d), n->arg, 1,
                          n->out);
    case OP_upsample: return spell_upsample(e, n);
    case OP_bernoulli_p: return spell_bernoulli(e, n);
    default: break;
    }
    *done = false;
    return true;
}
