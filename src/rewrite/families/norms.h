/* Graft functions of the norm rules (rules/norms.rules).
 *
 *     x - mean(x, dims) over sqrt(var(x, dims) + eps), times w      layer_norm(x, sizes of dims, w, none, eps)
 *
 * Axes that are not the last ones are brought there and back by permutes.
 */
#ifndef QKV_REWRITE_FAMILIES_NORMS_H
#define QKV_REWRITE_FAMILIES_NORMS_H
#include "rewrite/build.h"

GraftFn make_layer_norm;  /* x, dims of the mean, dims of the variance, eps or none, weight or none */
GraftFn make_rms_norm;    /* x, dims, eps or none, weight or none */
GraftFn make_norm_weight; /* a norm without weight, what it is multiplied by, dims of a permute in between or none */
GraftFn make_norm_bias;   /* a norm without bias, what is added, dims of a permute in between or none */
GraftFn make_in_half;     /* a norm or an activation of a value that was cast up, the dtype it is cast down to */
#endif
