/* The table of graft functions: (@name ...) in a rule. */
#include <string.h>
#include "rewrite/attention/attention.h"
#include "rewrite/families/folding.h"
#include "rewrite/families/projections.h"
#include "rewrite/families/norms.h"
#include "rewrite/attention/mask.h"
#include "rewrite/rewrite.h"
#include "rewrite/attention/rotary.h"
#include "rewrite/attention/sdpa_pair.h"

static const Maker makers[] = {
    {"scores", make_scores, "tt"},
    {"scores_mul", make_scores_mul, "tx"},
    {"scores_div", make_scores_div, "tx"},
    {"scores_sum", make_scores_sum, "ttt"},
    {"scores_tanh", make_scores_tanh, "t"},
    {"scores_pad", make_scores_pad, "taX"},
    {"scores_cat", make_scores_cat, "ttb"},
    {"scores_add", make_scores_add, "tx"},
    {"scores_sub", make_scores_sub, "tx"},
    {"scores_where", make_scores_where, "ttxb"},
    {"scores_zero_one", make_scores_zero_one, "ttx"},
    {"scores_floor", make_scores_floor, "tx"},
    {"scores_cast", make_scores_cast, "td"},
    {"scores_reshape", make_scores_reshape, "ta"},
    {"scores_permute", make_scores_permute, "tp"},
    {"scores_softmax", make_scores_softmax, "teb"},
    {"softmax_backward", make_softmax_backward, "tt"},
    {"through_permute", make_through_permute, "ttp"},
    {"through_reshape", make_through_reshape, "tt"},
    {"view", make_view, "t"},
    {"rows", make_rows, "ttt"},
    {"attention", make_attention, "tt"},
    {"attention_transposed", make_attention_transposed, "ttp"},
    {"attention_slice", make_attention_slice, "tEEt"},
    {"product_sum", make_product_sum, "ttat"},
    {"flat_product", make_flat_product, "ttt"},
    {"keepdim", make_keepdim, "at"},
    {"grouped", make_grouped, "o"},
    {"banded", make_banded, "o"},
    {"softmax", make_softmax, "t*"},
    {"softmax_sink", make_softmax_sink, "t*xb"},
    {"layer_norm", make_layer_norm, "tAAXX"},
    {"rms_norm", make_rms_norm, "tAXX"},
    {"norm_weight", make_norm_weight, "txP"},
    {"norm_bias", make_norm_bias, "txP"},
    {"in_half", make_in_half, "td"},
    {"views", make_views, "t"},
    {"linear_first", make_linear_first, "l"},
    {"packed", make_packed, "illL"},
    {"attention_scale", make_attention_scale, "o"},
    {"rotary_halves", make_rotary_halves, "ttteEb"},
    {"rotary_pairs", make_rotary_pairs, "ttt**tb"},
    {"reshaped", make_reshaped, "tt"},
    {"folded_norm", make_folded_norm, "tXXXXx"},
    {"folded_scale", make_folded_scale, "txb"},
    {"folded_shift", make_folded_shift, "txb"},
};

const Maker *maker_find(const char *name)
{
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (!strcmp(makers[i].name, name)) return &makers[i];
    return NULL;
}
