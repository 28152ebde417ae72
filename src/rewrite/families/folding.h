/* Graft functions of the folding rules (rules/modules.rules): constants per channel after a linear or a convolution
 * go into its weights. */
#ifndef QKV_REWRITE_FAMILIES_FOLDING_H
#define QKV_REWRITE_FAMILIES_FOLDING_H
#include "rewrite/build.h"

GraftFn make_folded_norm;  /* product, weight or none, bias or none, mean, variance, eps of a batch norm after it */
GraftFn make_folded_scale; /* product, what it is multiplied by, true when it is divided by it */
GraftFn make_folded_shift; /* product, what is added, true when it is subtracted */
#endif
