/* PyTorch's quantizers: those of PT2E (quantized_decomposed) and those that fake it in float (aten.fake_quantize).
 *
 *     quantize_per_tensor(x, 0.02, 3, -127, 127, int8)     ->  clamp(qkv.quantize_linear(x, 0.02, 3, by_inverse), -127)
 *     dequantize_per_channel(y, scales, zeros, 1, ...)     ->  qkv.dequantize_linear(y, scales, int8(zeros), 1)
 *     fake_quantize_per_tensor_affine(x, 0.02, 3, 0, 255)  ->  both, with uint8 in between
 *     quantize_per_token(x, scales, zeros, -127, 127, int8) -> blocks of the whole last axis, one a token
 */
#include "lower/lower_table.h"

typedef struct Quantizer {
    Value *x, *scale, *zero;
    DType to; /* few bits */
    int axis; /* of per-channel scales */
    int64_t low, high, block; /* elements along axis that share a scale; 0: no blocks */
} Quantizer;

/* A number or a tensor of them, as a tensor of dtype t. */
static Value *numbers(Lower *L, int i, DType t)
{
    if (L->arg[i].kind == ARG_VALUE) return lower_cast(L, L->arg[i].v, t);
    return AS(L, full, arg_ints(L->g, 0, NULL), L->arg[i], arg_dtype(t));
}

/* scale, zero_point, [axis,] quant_min, quant_max from argument 1 on. to: DT_NONE for the narrowest that has the
 * range. */
static bool quantizer(Lower *L, bool per_channel, DType to, Quantizer *q)
{
    *q = (Quantizer){.x = lower_value(L, 0), .to = to};
    int bounds = per_channel ? 4 : 3;
    if (!q->x) return lower_fail(L, 0, "expected a tensor");
    if (per_channel) TRY(lower_dim(L, 3, q->x->rank, &q->axis));
    TRY(lower_const_int(L, bounds, &q->low) && lower_const_int(L, bounds + 1, &q->high));
    if (to == DT_NONE) q->to = q->low >= 0 ? DT_U8 : DT_I8;
    if (!dtype_is_int(q->to) || dtype_bits(q->to) > 16 || q->low > q->high ||
        (to == DT_NONE && ((double)q->low < dtype_lowest(q->to) || (double)q->high > dtype_highest(q->to))))
        return fail(L->err, E_UNSUPPORTED, "%s: %lld to %lld as %s; quantizers of 8 and 16 bits are read", L->op->name,
                    (long long)q->low, (long long)q->high, dtype_name(q->to));
    TRY(q->scale = numbers(L, 1, DT_F32));
    return lower_is_none(L, 2) || (q->zero = numbers(L, 2, q->to));
}

static Arg zero_of(const Quantizer *q) { return q->zero ? arg_value(q->zero) : arg_none(); }

/* fake: NaN becomes the lowest integer, as in PyTorch's kernels of those; else 0, as in PT2E's. */
static Value *quantized(Lower *L, const Quantizer *q, bool fake)
{
    Value *x = lower_cast(L, q->x, DT_F32);
    TRY_NULL(x);
    Arg yes = arg_bool(L->g, true);
    Value *y = AS(L, quantize_linear, arg_value(x), arg_value(q->scale), zero_of(q), arg_dtype(q->to),
                  arg_int(L->g, q->axis), arg_int(L->g, q->block), yes, arg_none(), yes, arg_bool(L->g, fake));
    bool narrow = (double)q->low > dtype_lowest(q->to) || (double)q->high < dtype_highest(q->to);
    return y && narrow ? AS(L, clamp, arg_value(y), arg_int(L->g, q->low), arg_int(L->g, q->high)) : y;
}

static Value *dequantized(Lower *L, const Quantizer *q, Value *y, Arg dtype)
{
    return y ? AS(L, dequantize_linear, arg_value(y), arg_value(q->scale), zero_of(q), arg_int(L->g, q->axis),
                  arg_int(L->g, q->block), dtype)
             : NULL;
}

static bool by_channel(const Lower *L)
{
    return L->op->id == OP_quantize_per_channel || L->op->id == OP_dequantize_per_channel ||
           L->op->id == OP_fake_quantize_per_channel_affine;
}

bool lower_quantize(Lower *L)
{
    Quantizer q;
    bool per_channel = by_channel(L);
    return quantizer(L, per_channel, L->arg[per_channel ? 6 : 5].dtype, &q) && lower_return(L, quantized(L, &q, false));
}

bool lower_dequantize(Lower *L)
{
    Quantizer q;
    bool per_channel = by_channel(L);
    return quantizer(L, per_channel, L->arg[per_channel ? 6 : 5].dtype, &q) &&
           lower_return(L, dequantized(L, &q, q.x, L->arg[per_channel ? 7 : 6]));
}

bool lower_fake_quantize(Lower *L)
{
    Quantizer q;
    TRY(quantizer(L, by_channel(L), DT_NONE, &q));
    return lower_return(L, dequantized(L, &q, quantized(L, &q, true), arg_dtype(q.x->dtype)));
}

/* Scales of (..., K / block), as many axes as x has. */
static bool beside_blocks(Lower *L, Quantizer *q, Value **scale)
{
    Expr *dim[MAX_RANK];
    Expr *K = q->x->dim[q->axis];
    if (!*scale) return true;
    for (int i = 0; i < q->axis; i++) dim[i] = q->x->dim[i];
    dim[q->axis] = ex_int(L->ex, K->i / q->block);
    return (*scale = lower_reshape(L, *scale, q->x->rank, dim)) != NULL;
}

/* PyTorch's op has a zero point in any case. */
static bool is_zeros(const Arg *a)
{
    const Node *n = a->kind == ARG_VALUE ? a->v->def : NULL;
    return n && n->op->id == OP_full && n->arg[1].kind == ARG_EXPR && ex_is_const(n->arg[1].e) &&
           ex_number(n->arg[1].e) == 0;
}

/* input, scales, zero_points, quant_min, quant_max, dtype [, group_size]: one scale a token, or a group of a row. */
static bool block_quantizer(Lower *L, Quantizer *q)
{
    bool groups = L->op->id == OP_quantize_per_channel_group || L->op->id == OP_dequantize_per_channel_group;
    TRY(quantizer(L, false, L->arg[5].dtype, q));
    q->axis = q->x->rank - 1;
    if (q->axis < 0 || !ex_is_int(q->x->dim[q->axis]) || q->x->dim[q->axis]->i <= 0)
        return lower_fail(L, 0, "the size of its last axis has to be known");
    int64_t K = q->x->dim[q->axis]->i;
    q->block = K;
    if (groups) TRY(lower_const_int(L, 6, &q->block));
    if (is_zeros(&L->arg[2])) q->zero = NULL;
    if (q->block > K) q->block = K;
    if (q->block < 1 || K % q->block)
        return lower_fail(L, 6, "groups of %lld do not divide a last axis of %lld", (long long)q->block, (long long)K);
    return beside_blocks(L, q, &q->scale) && beside_blocks(L, q, &q->zero);
}

bool lower_quantize_blocks(Lower *L)
{
    Quantizer q;
    return block_quantizer(L, &q) && lower_return(L, quantized(L, &q, false));
}

bool lower_dequantize_blocks(Lower *L)
{
    Quantizer q;
    return block_quantizer(L, &q) &&
           lower_return(L, dequantized(L, &q, q.x, L->arg[op_param(L->op, "output_dtype")]));
}
