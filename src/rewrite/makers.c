/* The table of graft functions: (@name ...) in a rule. */
#include <string.h>
#include "rewrite/attention.h"
#include "rewrite/folding.h"
#include "rewrite/modules.h"
#include "rewrite/norms.h"
#include "rewrite/mask.h"
#include "rewrite/rewrite.h"

static const Maker makers[] = {
    {"scores", make_scores, 2, 2},
    {"scores_mul", make_scores_mul, 2, 2},
    {"scores_div", make_scores_div, 2, 2},
    {"scores_sum", make_scores_sum, 3, 3},
    {"scores_tanh", make_scores_tanh, 1, 1},
    {"scores_pad", make_scores_pad, 3, 3},
    {"scores_cat", make_scores_cat, 3, 3},
    {"scores_add", make_scores_add, 2, 2},
    {"scores_sub", make_scores_sub, 2, 2},
    {"scores_where", make_scores_where, 4, 4},
    {"scores_zero_one", make_scores_zero_one, 3, 3},
    {"scores_floor", make_scores_floor, 2, 2},
    {"scores_cast", make_scores_cast, 2, 2},
    {"scores_reshape", make_scores_reshape, 2, 2},
    {"scores_permute", make_scores_permute, 2, 2},
    {"scores_softmax", make_scores_softmax, 3, 3},
    {"through_permute", make_through_permute, 3, 3},
    {"through_reshape", make_through_reshape, 2, 2},
    {"view", make_view, 1, 1},
    {"rows", make_rows, 3, 3},
    {"attention", make_attention, 2, 2},
    {"attention_transposed", make_attention_transposed, 3, 3},
    {"attention_slice", make_attention_slice, 4, 4},
    {"product_sum", make_product_sum, 4, 4},
    {"keepdim", make_keepdim, 2, 2},
    {"grouped", make_grouped, 1, 1},
    {"banded", make_banded, 1, 1},
    {"softmax", make_softmax, 2, 2},
    {"layer_norm", make_layer_norm, 5, 5},
    {"rms_norm", make_rms_norm, 4, 4},
    {"norm_weight", make_norm_weight, 3, 3},
    {"norm_bias", make_norm_bias, 3, 3},
    {"in_half", make_in_half, 2, 2},
    {"views", make_views, 1, 1},
    {"linear_first", make_linear_first, 1, 1},
    {"packed", make_packed, 3, 4},
    {"attention_scale", make_attention_scale, 1, 1},
    {"folded_norm", make_folded_norm, 6, 6},
    {"folded_scale", make_folded_scale, 3, 3},
    {"folded_shift", make_folded_shift, 3, 3},
};

const Maker *maker_find(const char *name)
{
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (!strcmp(makers[i].name, name)) return &makers[i];
    return NULL;
}
