/* Lowering of the fused ops that nn.MultiheadAttention and nn.TransformerEncoderLayer call where no gradient is wanted.
 *
 *     _masked_softmax(s, mask)            -> softmax(where(mask, -inf, s))
 *     _native_multi_head_attention(...)   -> linear, slices, attention, linear
 *     _transformer_encoder_layer_fwd(...) -> that, layer_norm, linear, relu or gelu, linear
 *
 * Source: aten/src/ATen/native/transformers/transformer.cpp, attention.cpp.
 */
#include <math.h>
#include "lower/lower_table.h"

/* True where nothing is attended, in a shape that broadcasts to the scores; any dtype, argument `at`. A mask of two
 * axes is one of queries and keys (type 0) or of a padded batch and its keys (type 1). Where a row hides every key the
 * softmax gives NaN, as PyTorch's does. */
static Value *hidden(Lower *L, Value *scores, int at, int type)
{
    Value *mask = lower_value(L, at);
    int64_t kind = 2;
    if (mask->rank == 2 && scores->rank == 4) {
        if (lower_is_none(L, type)) {
            lower_fail(L, type, "none for a mask of 2 axes, expected 0 (queries, keys) or 1 (batch, keys)");
            return NULL;
        }
        if (!lower_const_int(L, type, &kind)) return NULL;
    }
    mask = lower_cast(L, mask, DT_BOOL);
    if (kind != 1 || !mask) return mask;
    Expr *one = ex_int(L->ex, 1);
    return lower_reshape(L, mask, 4, (Expr *[]){mask->dim[0], one, one, mask->dim[1]});
}

static Value *masked_softmax(Lower *L, Value *scores, int at, int type, Arg dim)
{
    if (!scores || lower_is_none(L, at)) return AS(L, softmax_int, v(scores), dim, arg_none());
    Value *mask = hidden(L, scores, at, type);
    return AS(L, softmax_int, v(AS(L, masked_fill_Scalar, v(scores), v(mask), arg_float(L->g, -INFINITY))), dim,
              arg_none());
}

bool lower_masked_softmax(Lower *L)
{
    Value *x, *mask;
    TRY(lower_two(L, 0, 1, &x, &mask));
    if (mask->dtype != DT_BOOL) return lower_fail(L, 1, "dtype %s, expected bool", dtype_name(mask->dtype));
    return lower_return(L, masked_softmax(L, x, 1, 3, lower_is_none(L, 2) ? arg_int(L->g, -1) : L->arg[2]));
}

typedef struct Heads { /* one attention: places of its arguments in the schema, and its sizes */
    int weight, bias, out_weight, out_bias, mask, mask_type;
    int64_t width, heads;
    bool weights, average; /* are the probabilities wanted, and as their mean over heads? */
} Heads;

static Value *part(Lower *L, Value *x, int dim, int64_t from, int64_t n)
{
    return AS(L, slice_Tensor, v(x), arg_int(L->g, dim), arg_int(L->g, from), arg_int(L->g, from + n));
}

/* (B, T, width) as (B, heads, T, width / heads), and back */
static Value *split_heads(Lower *L, const Heads *h, Value *x)
{
    if (!x) return NULL;
    Expr *dim[4] = {x->dim[0], x->dim[1], ex_int(L->ex, h->heads), ex_int(L->ex, h->width / h->heads)};
    x = lower_reshape(L, x, 4, dim);
    return x ? lower_permute(L, x, (int[]){0, 2, 1, 3}) : NULL;
}

static Value *join_heads(Lower *L, const Heads *h, Value *x)
{
    if (x) x = lower_permute(L, x, (int[]){0, 2, 1, 3});
    return x ? lower_reshape(L, x, 3, (Expr *[]){x->dim[0], x->dim[1], ex_int(L->ex, h->width)}) : NULL;
}

/* Queries, keys and values of one product where they come from one tensor */
static bool project(Lower *L, const Heads *h, Value *const *from, Value **to)
{
    Value *w = lower_value(L, h->weight), *b = lower_value(L, h->bias), *all = NULL;
    bool one = from[0] == from[1] && from[1] == from[2];
    if (one) TRY(all = AS(L, linear, v(from[0]), v(w), v(b)));
    for (int i = 0; i < 3; i++) {
        int64_t at = i * h->width;
        to[i] = one ? part(L, all, 2, at, h->width)
                    : AS(L, linear, v(from[i]), v(part(L, w, 0, at, h->width)), v(part(L, b, 0, at, h->width)));
        TRY(to[i] = split_heads(L, h, to[i]));
    }
    return true;
}

/* softmax(q k^T / sqrt(size)) and its product with x[2] */
static Value *attend(Lower *L, const Heads *h, Value *const *x, Value **weights)
{
    Arg scale = arg_float(L->g, 1 / sqrt((double)(h->width / h->heads)));
    if (!h->weights && lower_is_none(L, h->mask)) return AS(L, scaled_dot_product_attention, v(x[0]), v(x[1]), v(x[2]));
    Value *keys = lower_permute(L, x[1], (int[]){0, 1, 3, 2});
    Value *scores = AS(L, matmul, v(AS(L, mul_Tensor, v(x[0]), scale)), v(keys));
    *weights = masked_softmax(L, scores, h->mask, h->mask_type, arg_int(L->g, -1));
    return AS(L, matmul, v(*weights), v(x[2]));
}

static Value *multi_head(Lower *L, const Heads *h, Value *const *from, Value **weights)
{
    Value *x[3];
    for (int i = 0; i < 3; i++)
        if (!from[i] || from[i]->rank != 3) return lower_fail(L, i, "expected a tensor of rank 3"), NULL;
    if (h->heads < 1 || h->width < 1 || h->width % h->heads)
        return lower_fail(L, h->weight, "%lld heads of a width of %lld, expected a divisor", (long long)h->heads,
                          (long long)h->width),
               NULL;
    if (!project(L, h, from, x)) return NULL;
    Value *y = join_heads(L, h, attend(L, h, x, weights));
    return AS(L, linear, v(y), L->arg[h->out_weight], L->arg[h->out_bias]);
}

bool lower_native_multi_head(Lower *L)
{
    Heads h = {.weight = 5, .bias = 6, .out_weight = 7, .out_bias = 8, .mask = 9, .mask_type = 12};
    Value *from[3] = {lower_value(L, 0), lower_value(L, 1), lower_value(L, 2)}, *weights = NULL;
    TRY(lower_const_int(L, 3, &h.width) && lower_const_int(L, 4, &h.heads) && lower_const_bool(L, 10, &h.weights) &&
        lower_const_bool(L, 11, &h.average));
    Value *y = multi_head(L, &h, from, &weights);
    TRY(y);
    if (h.weights && h.average)
        TRY(weights = AS(L, mean_dim, v(weights), arg_ints(L->g, 1, (int64_t[]){1}), arg_bool(L->g, false)));
    return lower_return_values(L, 2, (Value *[]){y, h.weights ? weights : NULL});
}

/* The layer's norm 1 or 2 */
static Value *norm(Lower *L, Value *x, int which)
{
    int at = which == 1 ? 10 : 12;
    return AS(L, layer_norm, v(x), arg_exprs(L->g, 1, L->arg[1].kind == ARG_EXPR ? &L->arg[1].e : NULL), L->arg[at],
              L->arg[at + 1], L->arg[9]);
}

static Value *feed(Lower *L, Value *x, bool gelu)
{
    x = AS(L, linear, v(x), L->arg[14], L->arg[15]);
    x = gelu ? AS(L, gelu, v(x)) : AS(L, relu, v(x));
    return AS(L, linear, v(x), L->arg[16], L->arg[17]);
}

bool lower_encoder_layer(Lower *L)
{
    Heads h = {.weight = 3, .bias = 4, .out_weight = 5, .out_bias = 6, .mask = 18, .mask_type = 19};
    Value *x = lower_value(L, 0), *weights;
    bool gelu, norm_first;
    TRY(lower_const_int(L, 1, &h.width) && lower_const_int(L, 2, &h.heads) && lower_const_bool(L, 7, &gelu) &&
        lower_const_bool(L, 8, &norm_first));
    Value *in = norm_first ? norm(L, x, 1) : x;
    Value *y = AS(L, add_Tensor, v(x), v(multi_head(L, &h, (Value *[]){in, in, in}, &weights)));
    if (!norm_first) y = norm(L, y, 1);
    Value *fed = feed(L, norm_first ? norm(L, y, 2) : y, gelu);
    y = AS(L, add_Tensor, v(y), v(fed));
    return lower_return(L, norm_first ? y : norm(L, y, 2));
}
