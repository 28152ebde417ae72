/* Quantizers that fake it, which import takes apart, as the op that they were: PyTorch reads a file with it as it is,
 * and one with the ops of PT2E only where these are registered.
 *
 *     dequantize_linear(clamp(quantize_linear(x, s, z)), s, z)     ->  aten.fake_quantize_per_channel_affine(x, s, z)
 *
 * Those of PT2E, whose inverse says no dtype, stay as they are.
 */
#include "pt2/write/write_impl.h"

static Arg integer(const Emit *e, int64_t v) { return arg_expr(ex_int(e->g->ex, v)); }

static const Node *clamp_of(const Node *n)
{
    bool is = n && n->op->id == OP_clamp && n->arg[0].v->def && n->arg[1].kind == ARG_EXPR &&
              n->arg[2].kind == ARG_EXPR && ex_is_int(n->arg[1].e) && ex_is_int(n->arg[2].e);
    return is ? n : NULL;
}

static bool same_value(const Arg *a, const Arg *b)
{
    return a->kind == ARG_VALUE && b->kind == ARG_VALUE && a->v == b->v;
}

/* The quantizer that `back` is the inverse of, both together a fake one that nothing else reads; NULL: it is not. */
static const Node *faked(const Node *back, const int *uses)
{
    const Node *n = back->arg[0].v->def, *clamp = clamp_of(n), *q = clamp ? clamp->arg[0].v->def : n;
    if (!q || q->op->id != OP_quantize_linear || back->arg[5].kind != ARG_DTYPE || !q->arg[8].e->i || !q->arg[9].e->i)
        return NULL;
    const Value *x = q->arg[0].v;
    bool cast = x->def && x->def->op->id == OP_to_copy && x->def->arg[0].v->dtype == back->out[0]->dtype;
    bool is = q->arg[7].kind == ARG_NONE && same_value(&q->arg[1], &back->arg[1]) &&
              same_value(&q->arg[2], &back->arg[2]) && q->arg[1].v->dtype == DT_F32 &&
              q->arg[4].e == back->arg[3].e && ex_equals_int(q->arg[5].e, 0) &&
              ex_equals_int(back->arg[4].e, 0) && (x->dtype == back->out[0]->dtype || cast);
    return is && uses[q->out[0]->id] == 1 && uses[back->arg[0].v->id] == 1 ? q : NULL;
}

void absorb_fake_quantizer(Emit *e, const Node *back, const int *uses)
{
    const Node *q = faked(back, uses);
    if (!q || e->g->core) return;
    e->absorbed[q->out[0]->id] = true;
    e->absorbed[back->arg[0].v->id] = true;
}

static bool is_number(const Value *v) { return v->def && v->def->op->id == OP_full && v->rank == 0; }

bool spell_fake_quantizer(Emit *e, const Node *back)
{
    const Node *n = back->arg[0].v->def, *clamp = clamp_of(n), *q = clamp ? clamp->arg[0].v->def : n;
    Value *x = q->arg[0].v, *scale = q->arg[1].v, *zero = q->arg[2].v;
    DType t = q->out[0]->dtype;
    Arg low = clamp ? clamp->arg[1] : integer(e, (int64_t)dtype_lowest(t));
    Arg high = clamp ? clamp->arg[2] : integer(e, (int64_t)dtype_highest(t));
    if (x->dtype != back->out[0]->dtype) x = x->def->arg[0].v;
    if (is_number(scale) && is_number(zero)) {
        Arg args[] = {arg_value(x), scale->def->arg[1], zero->def->arg[1], low, high};
        return write_node(e, op_get(OP_fake_quantize_per_tensor_affine), args, 1, back->out);
    }
    bool one = scale->rank == 0 || (scale->rank == 1 && ex_equals_int(scale->dim[0], 1));
    zero = PUT(e, to_copy, "zeros", DT_I32, zero->rank, zero->dim, arg_value(zero), arg_dtype(DT_I32));
    if (!zero) return false;
    if (one) {
        Arg args[] = {arg_value(x), arg_value(scale), arg_value(zero), low, high};
        return write_node(e, op_get(OP_fake_quantize_per_tensor_affine_tensor_qparams), args, 1, back->out);
    }
    Arg args[] = {arg_value(x), arg_value(scale), arg_value(zero), q->arg[4], low, high};
    return write_node(e, op_get(OP_fake_quantize_per_channel_affine), args, 1, back->out);
}
