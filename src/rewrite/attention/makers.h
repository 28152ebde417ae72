/* Graft functions of the attention rules (rules/attention.rules).
 *
 * What they pass around is an equal form of a value: qkv.scores(q, k, mask, scale, softcap, normalized ...), that is
 *     softcap * tanh(scale * q k^T / softcap) + mask        (without softcap: scale * q k^T + mask; a bool mask: -inf
 * where false) and its softmax over the last axis when `normalized`. q is (..., N, D), k (..., M, D), the leading axes
 * broadcast, the mask broadcasts to
 * (..., N, M). masked_rows says what the source gives in rows without an allowed key: 0 what sdpa gives, 1 NaN, 2 an
 * average of values that sdpa does not give, 3 NaN if the additive mask is -inf throughout the row, 4 the average of
 * all values, which sdpa gives, too, as the mask is finite there.
 */
#ifndef QKV_REWRITE_ATTENTION_MAKERS_H
#define QKV_REWRITE_ATTENTION_MAKERS_H
#include "rewrite/build.h"

/* v as another value times a number, seen through views: "scale on q".
 * v itself when there is none, else *scale takes up the number. */
Value *without_scale(Rewrite *rw, Value *v, Arg *scale, int depth);

GraftFn make_scores;     /* q, k^T of a matmul */
GraftFn make_scores_mul; /* scores, factor: a number, or a tensor that is constant along keys or along queries */
GraftFn make_scores_div;
GraftFn make_scores_sum;  /* two factors, the sum of their product over its last axis */
GraftFn make_scores_tanh; /* scores inside tanh */
GraftFn make_scores_pad;  /* scores, padding, number */
GraftFn make_scores_cat;  /* scores, what they are joined with along the keys, true when the scores come first */
GraftFn make_scores_join; /* scores, scores of the same queries that follow along the keys */
GraftFn make_scores_add;  /* scores, number or additive mask */
GraftFn make_scores_sub;
GraftFn make_scores_where;    /* scores, condition, fill, true when the condition keeps the scores */
GraftFn make_scores_zero_one; /* scores, factor of zeros and ones, what scores become where it is 0 */
GraftFn make_scores_index_put; /* scores, indices as index_put's, what the scores become there */
GraftFn make_scores_diagonal;  /* scores, a diagonal_scatter of them, what they become there */
GraftFn make_scores_nan_to_num; /* scores or probabilities, nan_to_num of them */
GraftFn make_scores_floor;    /* scores, number: maximum with a number below all scores */
GraftFn make_scores_cast;     /* scores, dtype */
GraftFn make_scores_reshape;  /* scores, sizes */
GraftFn make_scores_permute;  /* scores, dims */
GraftFn make_scores_pick;     /* scores, a select or slice of them along another axis than the keys' */
GraftFn make_scores_softmax;  /* scores, dim, true when rows without an allowed key give 0 */
GraftFn make_through_permute; /* a node, the scores below the permute that is its operand, that permute's dims: the
                                 permute comes after it */
GraftFn make_through_reshape; /* a node, the scores below the reshape that is its operand: the reshape comes after it */
GraftFn make_product_sum;     /* two factors, dims of the sum, the sum */
GraftFn make_keepdim;         /* sizes, a reduction that drops or keeps the axis that they have or have not */
GraftFn make_view;            /* a permute or reshape */
GraftFn make_rows;            /* values times probabilities that a row-wise op changed: that op on the product */
GraftFn make_attention;       /* probabilities, values */
GraftFn make_attention_quantized; /* probabilities, values; scale, zero point, dtype, by_inverse of their quantizer;
                                     least and largest integer, or none */
GraftFn make_attention_slice; /* probabilities, slice start and end of their keys, values */
GraftFn make_attention_of_sum; /* two attentions that differ in their values alone: their sum */
GraftFn make_attention_parts;  /* probabilities joined along the keys, values joined along them, too */
GraftFn make_attention_sum;   /* a sum of probabilities, with factors for whole rows; values */
GraftFn make_attention_transposed; /* values^T, probabilities, dims of the permute that transposes them */
GraftFn make_flat_product;         /* a reshaped product, its factors */
GraftFn make_grouped;              /* a scaled_dot_product_attention */
/* a scaled_dot_product_attention: numbers that its queries or keys are multiplied by become part of its scale */
GraftFn make_attention_scale;
/* v before an upcast from `t`, through views; v itself when it is of dtype t, NULL when it is neither. */
Value *before_upcast(Rewrite *rw, Value *v, DType t);

GraftFn make_softmax;      /* x, dims of one axis */
GraftFn make_tril_of;      /* x, diagonal: true where a triangle of x keeps its elements */
GraftFn make_softmax_sink; /* x, dims of its last axis, s; true when a number s joins the sum as it is, not as exp(s) */
#endif
