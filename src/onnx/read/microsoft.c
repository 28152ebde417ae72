/* The com.microsoft ops that ONNX Runtime's optimizer writes for transformers, but for attention
 * (onnx_microsoft_attention.c). Contract in onnx_impl.h; meaning: onnxruntime/docs/ContribOperators.md and the CPU
 * kernels, against which they are tested.
 *
 *     SkipLayerNormalization(x, skip, gamma, beta, bias)  ->  layer_norm(x + skip + bias)
 */
#include <string.h>
#include "onnx/read/read_impl.h"

static Value *add(OnnxOp *o, Value *a, Value *b) { return AS(&o->L, add_Tensor, v(a), v(b)); }
static Value *mul(OnnxOp *o, Value *a, Value *b) { return AS(&o->L, mul_Tensor, v(a), v(b)); }

/* ------------------------------------------------------------------ activations */

/* gelu(x + bias); com.microsoft Gelu and FastGelu without one, too */
bool onnx_bias_gelu(OnnxOp *o)
{
    Value *x, *bias;
    TRY(op_tensor(o, 0, &x) && op_optional(o, 1, &bias));
    if (bias) TRY(x = add(o, x, bias));
    return op_return(o, 0, AS(&o->L, gelu, v(x), arg_str(o->g, strcmp(o->node->op, "FastGelu") ? "none" : "tanh")));
}

/* x sigmoid(alpha x) */
bool onnx_quick_gelu(OnnxOp *o)
{
    Value *x;
    double alpha;
    TRY(op_tensor(o, 0, &x) && op_attr_float(o, "alpha", 1.702, &alpha));
    return op_return(o, 0, mul(o, x, AS(&o->L, sigmoid, v(AS(&o->L, mul_Tensor, v(x), arg_float(o->g, alpha))))));
}

/* ------------------------------------------------------------------ norms of sums */

static Value *normalised(OnnxOp *o, Value *x, Value *gamma, Value *beta, double eps, bool simplified)
{
    TRY_NULL(x && x->rank);
    Arg last = arg_exprs(o->g, 1, &x->dim[x->rank - 1]);
    if (simplified) return AS(&o->L, rms_norm, v(x), last, v(gamma), arg_float(o->g, eps));
    return AS(&o->L, layer_norm, v(x), last, v(gamma), beta ? v(beta) : arg_none(), arg_float(o->g, eps));
}

/* mean (of x; NULL: not wanted) and 1 / deviation over the last axis, in float32 */
static bool statistics(OnnxOp *o, Value *x, double eps, bool simplified, int k)
{
    Arg last = arg_ints(o->g, 1, (int64_t[]){-1}), keep = arg_bool(o->g, true);
    Value *wide = lower_cast(&o->L, x, DT_F32), *mean = AS(&o->L, mean_dim, v(wide), last, keep);
    if (op_wants(o, k)) TRY(op_return(o, k, mean));
    if (!op_wants(o, k + 1)) return true;
    Value *centred = simplified ? wide : AS(&o->L, sub_Tensor, v(wide), v(mean));
    Value *variance = AS(&o->L, mean_dim, v(mul(o, centred, centred)), last, keep);
    return op_return(
        o, k + 1,
        AS(&o->L, reciprocal, v(AS(&o->L, sqrt, v(AS(&o->L, add_Tensor, v(variance), arg_float(o->g, eps)))))));
}

/* (input, skip, gamma, [beta,] bias) -> output, mean, 1 / deviation, sum */
bool onnx_skip_layer_norm(OnnxOp *o)
{
    Value *x, *skip, *gamma, *beta = NULL, *bias;
    double eps;
    bool simplified = o->row.aten == OP_rms_norm;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &skip) && op_tensor(o, 2, &gamma) &&
        op_attr_float(o, "epsilon", 1e-12, &eps));
    if (!simplified) TRY(op_optional(o, 3, &beta));
    TRY(op_optional(o, simplified ? 3 : 4, &bias));
    Value *sum = add(o, x, skip);
    if (bias) sum = add(o, sum, bias);
    TRY(sum && op_return(o, 0, normalised(o, sum, gamma, beta, eps, simplified)));
    if (op_wants(o, 3)) TRY(op_return(o, 3, sum));
    return (!op_wants(o, 1) && !op_wants(o, 2)) || statistics(o, sum, eps, simplified, 1);
}

/* x / sqrt(mean(x^2) + eps) * scale, over the last axes from `axis` on; ONNX Runtime writes it in domain ai.onnx. */
bool onnx_simplified_layer_norm(OnnxOp *o)
{
    Value *x, *scale;
    double eps;
    int64_t a;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &scale) && op_attr_float(o, "epsilon", 1e-5, &eps) &&
        op_attr_int(o, "axis", -1, &a) && op_axis(o, "axis", a, x->rank, &axis));
    if (op_wants(o, 1) && axis != x->rank - 1)
        return op_unsupported(o, "the second result, for more than the last axis");
    TRY(op_return(
        o, 0,
        AS(&o->L, rms_norm, v(x), arg_exprs(o->g, x->rank - axis, x->dim + axis), v(scale), arg_float(o->g, eps))));
    if (!op_wants(o, 1)) return true;
    Arg last = arg_ints(o->g, 1, (int64_t[]){-1});
    Value *wide = lower_cast(&o->L, x, DT_F32),
          *mean = AS(&o->L, mean_dim, v(mul(o, wide, wide)), last, arg_bool(o->g, true));
    return op_return(
        o, 1, AS(&o->L, reciprocal, v(AS(&o->L, sqrt, v(AS(&o->L, add_Tensor, v(mean), arg_float(o->g, eps)))))));
}

/* Word, position and segment embeddings, summed and normalised; the mask becomes key lengths (B). */
bool onnx_embed_layer_norm(OnnxOp *o)
{
    Value *ids, *segments, *word, *position, *segment, *gamma, *beta, *mask, *positions;
    double eps;
    TRY(op_tensor(o, 0, &ids) && op_optional(o, 1, &segments) && op_tensor(o, 2, &word) && op_tensor(o, 3, &position) &&
        op_optional(o, 4, &segment) && op_tensor(o, 5, &gamma) && op_tensor(o, 6, &beta) && op_optional(o, 7, &mask) &&
        op_optional(o, 8, &positions) && op_attr_float(o, "epsilon", 1e-12, &eps));
    if (ids->rank != 2) return op_fail(o, 0, "rank %d, expected 2", ids->rank);
    if (!segments != !segment)
        return op_fail(o, segments ? 4 : 1, "left out; segment ids and their embedding belong together");
    Value *where = positions ? lower_cast(&o->L, positions, DT_I64)
                             : AS(&o->L, arange, arg_expr(ids->dim[1]), arg_dtype(DT_I64));
    Value *sum = add(o, AS(&o->L, embedding, v(word), v(lower_cast(&o->L, ids, DT_I64))),
                     AS(&o->L, embedding, v(position), v(where)));
    if (segment) sum = add(o, sum, AS(&o->L, embedding, v(segment), v(lower_cast(&o->L, segments, DT_I64))));
    TRY(sum && op_return(o, 0, normalised(o, sum, gamma, beta, eps, false)));
    if (op_wants(o, 1)) {
        Value *lengths = mask ? AS(&o->L, sum_dim_IntList,
                                   v(AS(&o->L, eq_Tensor, v(mask), v(op_number(o, mask->dtype, 1)))),
                                   arg_ints(o->g, 1, (int64_t[]){1}), arg_bool(o->g, false), arg_dtype(DT_I64))
                              : AS(&o->L, full, arg_exprs(o->g, 1, ids->dim), arg_int(o->g, 0), arg_dtype(DT_I64));
        TRY(op_return(o, 1, lower_cast(&o->L, lengths, DT_I32)));
    }
    return !op_wants(o, 2) || op_return(o, 2, sum);
}

/* ------------------------------------------------------------------ products */

static Value *turned(OnnxOp *o, Value *x, bool turn)
{
    int perm[MAX_RANK];
    if (!turn || x->rank < 2) return x;
    for (int i = 0; i < x->rank; i++) perm[i] = i < x->rank - 2 ? i : 2 * x->rank - 3 - i;
    return lower_permute(&o->L, x, perm);
}

/* alpha A B, the last two axes of each turned on request */
bool onnx_fused_matmul(OnnxOp *o)
{
    Value *a, *b;
    int64_t ta, tb, ba, bb;
    double alpha;
    TRY(op_tensor(o, 0, &a) && op_tensor(o, 1, &b) && op_attr_int(o, "transA", 0, &ta) &&
        op_attr_int(o, "transB", 0, &tb) && op_attr_int(o, "transBatchA", 0, &ba) &&
        op_attr_int(o, "transBatchB", 0, &bb) && op_attr_float(o, "alpha", 1, &alpha));
    if (ba || bb) return op_unsupported(o, "transBatchA and transBatchB");
    Value *y = AS(&o->L, matmul, v(turned(o, a, ta != 0)), v(turned(o, b, tb != 0)));
    return op_return(o, 0, alpha == 1 ? y : AS(&o->L, mul_Tensor, v(y), arg_float(o->g, alpha)));
}

/* Values of 4 bits, two a byte (..., n) -> (..., 2 n), the low half first. */
static Value *halves(OnnxOp *o, Value *bytes)
{
    Expr *dim[MAX_RANK];
    Value *wide = lower_cast(&o->L, bytes, DT_I32);
    Value *low = AS(&o->L, bitwise_and_Tensor, v(wide), v(op_number(o, DT_I32, 15))),
          *high = AS(&o->L, bitwise_right_shift_Tensor, v(wide), v(op_number(o, DT_I32, 4)));
    TRY_NULL(low && high);
    Value *both = AS(&o->L, stack, arg_values(o->g, 2, (Value *[]){low, high}), arg_int(o->g, -1));
    for (int i = 0; i < bytes->rank; i++) dim[i] = bytes->dim[i];
    dim[bytes->rank - 1] = ex_mul(o->ex, dim[bytes->rank - 1], ex_int(o->ex, 2));
    return lower_reshape(&o->L, both, bytes->rank, dim);
}

static Value *first_columns(OnnxOp *o, Value *x, Expr *n)
{
    TRY_NULL(x);
    return AS(&o->L, slice_Tensor, v(x), arg_int(o->g, x->rank - 1), arg_int(o->g, 0), arg_expr(n), arg_int(o->g, 1));
}

/* The product as one with a weight (N, K) of dtype t whose rows have a scale and a zero point (N, blocks; NULL: 0) a
 * block, as DequantizeLinear has them from opset 21 on. w: (N, blocks, block) */
static bool by_blocks(OnnxOp *o, Value *x, Value *w, DType t, Value *scales, Value *zero, Value *bias, int64_t K,
                      int64_t block)
{
    TRY(w);
    Expr *n = w->dim[0], *nb = w->dim[1];
    w = lower_reshape(&o->L, w, 2, (Expr *[]){n, ex_mul(o->ex, nb, ex_int(o->ex, block))});
    if (w && !ex_equals_int(w->dim[1], K)) w = first_columns(o, w, ex_int(o->ex, K));
    w = w ? lower_cast(&o->L, w, t) : NULL;
    scales = w ? lower_cast(&o->L, lower_reshape(&o->L, scales, 2, (Expr *[]){n, nb}), DT_F32) : NULL;
    TRY(scales);
    w = AS(&o->L, dequantize_linear, v(w), v(scales), zero ? v(zero) : arg_none(), arg_int(o->g, 1),
           arg_int(o->g, block));
    return op_return(o, 0, AS(&o->L, linear, v(x), v(lower_cast(&o->L, w, x->dtype)), bias ? v(bias) : arg_none()));
}

/* MatMulNBits: weights (N, blocks, bytes) of 4 or 8 bits, a scale and a zero point per block of
 * `block_size` columns. */
bool onnx_matmul_nbits(OnnxOp *o)
{
    Value *x, *b, *scales, *zeros, *bias = NULL, *order = NULL;
    int64_t K, N, bits, block;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &b) && op_tensor(o, 2, &scales) && op_optional(o, 3, &zeros) &&
        op_optional(o, 4, &order) && op_optional(o, 5, &bias) && op_attr_int(o, "K", 0, &K) &&
        op_attr_int(o, "N", 0, &N) && op_attr_int(o, "bits", 4, &bits) && op_attr_int(o, "block_size", 0, &block));
    if (bits != 4 && bits != 8) return op_unsupported(o, "%lld bits; 4 and 8 are supported", (long long)bits);
    if (order) return op_unsupported(o, "g_idx (an order of groups)");
    if (K < 1 || N < 1 || block < 1 || K > (1LL << 40) || N > (1LL << 40) || block > (1LL << 40))
        return fail(o->im->err, E_FORMAT, "K %lld, N %lld, block_size %lld: expected sizes", (long long)K, (long long)N,
                    (long long)block);
    int64_t blocks = (K + block - 1) / block;
    Expr *n = ex_int(o->ex, N), *nb = ex_int(o->ex, blocks), *size = ex_int(o->ex, block), *one = ex_int(o->ex, 1);
    Expr *packed = ex_int(o->ex, bits == 4 ? (block + 1) / 2 : block);
    Value *w = lower_reshape(&o->L, b, 3, (Expr *[]){n, nb, packed});
    w = bits == 4 && w ? first_columns(o, halves(o, w), size) : w;
    if (!zeros) { /* the middle: signed integers without one */
        w = w ? lower_cast(&o->L, w, DT_I32) : NULL;
        w = AS(&o->L, sub_Tensor, v(w), v(op_number(o, DT_I32, bits == 4 ? 8 : 128)));
        return by_blocks(o, x, w, bits == 4 ? DT_I4 : DT_I8, scales, NULL, bias, K, block);
    }
    if (!dtype_is_float(zeros->dtype)) {
        const DType t = bits == 4 ? DT_U4 : DT_U8;
        Value *z = lower_reshape(&o->L, zeros, 2, (Expr *[]){n, ex_int(o->ex, bits == 4 ? (blocks + 1) / 2 : blocks)});
        if (bits == 4 && z) z = first_columns(o, halves(o, z), nb);
        return z && by_blocks(o, x, w, t, scales, lower_cast(&o->L, z, t), bias, K, block);
    }
    w = lower_cast(&o->L, w, DT_F32);
    Value *zero = lower_cast(&o->L, lower_reshape(&o->L, zeros, 3, (Expr *[]){n, nb, one}), DT_F32);
    w = AS(&o->L, sub_Tensor, v(w), v(zero));
    w = AS(&o->L, mul_Tensor, v(w),
           v(lower_cast(&o->L, lower_reshape(&o->L, scales, 3, (Expr *[]){n, nb, one}), DT_F32)));
    w = lower_reshape(&o->L, w, 2, (Expr *[]){n, ex_mul(o->ex, nb, size)});
    if (K != blocks * block) w = first_columns(o, w, ex_int(o->ex, K));
    return op_return(o, 0, AS(&o->L, linear, v(x), v(lower_cast(&o->L, w, x->dtype)), bias ? v(bias) : arg_none()));
}
