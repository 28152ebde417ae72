/* Rows of the plain form that ATen says otherwise.
 *
 *     qkv.upsample(x, [h, w], "linear", scales=[2, 2])  ->  aten.upsample_bilinear2d(x, [h, w], False, 2.0, 2.0)
 *     aten.view.dtype(x, f32)                           ->  aten.view.dtype(aten.contiguous(x), f32): PyTorch looks at strides
 */
#include <string.h>
#include "emit/pt2_impl.h"

/* ------------------------------------------------------------------ resampling */

static const struct {
    const char *mode, *op[3]; /* by number of axes, 1 to 3 */
} upsamples[] = {
    {"nearest", {"aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default"}},
    {"nearest-exact", {"aten._upsample_nearest_exact1d.default", "aten._upsample_nearest_exact2d.default", "aten._upsample_nearest_exact3d.default"}},
    {"linear", {"aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default", "aten.upsample_trilinear3d.default"}},
    {"cubic", {NULL, "aten.upsample_bicubic2d.default", NULL}},
    {"linear-aa", {NULL, "aten._upsample_bilinear2d_aa.default", NULL}},
    {"cubic-aa", {NULL, "aten._upsample_bicubic2d_aa.default", NULL}},
};

/* (input, size, mode, align_corners, scales) -> (self, output_size, [align_corners,] scale of each axis) */
static bool spell_upsample(Emit *e, const Node *n)
{
    const Value *x = n->arg[0].v;
    const Op *op = NULL;
    for (size_t i = 0; i < sizeof upsamples / sizeof *upsamples; i++)
        if (!strcmp(upsamples[i].mode, n->arg[2].s) && x->rank >= 3 && x->rank <= 5 && upsamples[i].op[x->rank - 3]) op = op_find(upsamples[i].op[x->rank - 3]);
    if (!op) return fail(e->err, E_UNSUPPORTED, "ATen has no resampling '%s' of rank %d", n->arg[2].s, x->rank);
    Arg args[8] = {n->arg[0], n->arg[1]};
    int corners = op_param(op, "align_corners"), at = corners < 0 ? 2 : corners + 1;
    if (corners >= 0) args[corners] = n->arg[3];
    const Arg *scales = &n->arg[4];
    for (int i = 0; scales->kind == ARG_EXPRS && i < scales->n; i++) {
        const Expr *s = scales->es[i];
        bool none = ex_is_const(s) && s->f == 0 && s->i == 0;
        if (!none) args[at + i] = arg_expr(scales->es[i]);
    }
    return write_node(e, op, args, 1, n->out);
}

/* ------------------------------------------------------------------ strides */

/* PyTorch reads these through the strides of their operand; here an operand is contiguous. */
static bool spell_contiguous(Emit *e, const Node *n)
{
    Arg args[8] = {{0}};
    Value *x = n->arg[0].v, *whole = new_value(e, x->name, x->dtype, x->rank, x->dim);
    TRY(whole && write_node(e, op_get(OP_contiguous), (Arg[2]){arg_value(x)}, 1, &whole));
    for (int i = 0; i < n->op->schema->nparams; i++) args[i] = n->arg[i];
    args[0] = arg_value(whole);
    return write_node(e, n->op, args, n->nout, n->out);
}

bool spell_node(Emit *e, const Node *n, bool *done)
{
    *done = true;
    switch (n->op->id) {
    case OP_upsample: return spell_upsample(e, n);
    case OP_view_dtype: case OP_as_strided: case OP_as_strided_scatter: return spell_contiguous(e, n);
    default: break;
    }
    *done = false;
    return true;
}
