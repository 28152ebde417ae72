/* The tables of the attention family. */
#include "rewrite/attention/family.h"
#include "rewrite/attention/makers.h"
#include "rewrite/attention/draw.h"
#include "rewrite/attention/mask.h"
#include "rewrite/attention/rotary.h"
#include "rewrite/attention/sdpa_pair.h"
#include "rewrite/attention/whynot.h"

extern const char *const attention_rules[]; /* the .rules files of this folder (tools/embed.py) */

/* All elements are 0 or 1. */
static bool guard_zero_one(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    return (a[0].kind == ARG_VALUE && zero_or_one(rw->g, a[0].v)) ||
           rewrite_refuse(rw, "'%s' is not known to hold zeros and ones only",
                          a[0].kind == ARG_VALUE ? a[0].v->name : "?");
}

static const Guard guards[] = {{"zero_one", guard_zero_one, 1, 1}, {0}};

static const Maker makers[] = {
    {"scores", make_scores, "tt"},
    {"scores_mul", make_scores_mul, "tx"},
    {"scores_div", make_scores_div, "tx"},
    {"scores_sum", make_scores_sum, "ttt"},
    {"scores_tanh", make_scores_tanh, "t"},
    {"scores_pad", make_scores_pad, "taX"},
    {"scores_cat", make_scores_cat, "ttb"},
    {"scores_join", make_scores_join, "tt"},
    {"scores_add", make_scores_add, "tx"},
    {"scores_sub", make_scores_sub, "tx"},
    {"scores_where", make_scores_where, "ttxb"},
    {"scores_zero_one", make_scores_zero_one, "ttx"},
    {"scores_index_put", make_scores_index_put, "t*x"},
    {"scores_diagonal", make_scores_diagonal, "ttx"},
    {"scores_floor", make_scores_floor, "tx"},
    {"scores_nan_to_num", make_scores_nan_to_num, "tt"},
    {"scores_cast", make_scores_cast, "td"},
    {"scores_reshape", make_scores_reshape, "ta"},
    {"scores_permute", make_scores_permute, "tp"},
    {"scores_pick", make_scores_pick, "tt"},
    {"scores_softmax", make_scores_softmax, "teb"},
    {"softmax_backward", make_softmax_backward, "tt"},
    {"through_permute", make_through_permute, "ttp"},
    {"through_reshape", make_through_reshape, "tt"},
    {"view", make_view, "t"},
    {"rows", make_rows, "ttt"},
    {"attention", make_attention, "tt"},
    {"attention_quantized", make_attention_quantized, "tttTdbXX"},
    {"attention_transposed", make_attention_transposed, "ttp"},
    {"attention_slice", make_attention_slice, "tEEt"},
    {"attention_sum", make_attention_sum, "tt"},
    {"attention_parts", make_attention_parts, "tt"},
    {"attention_of_sum", make_attention_of_sum, "tt"},
    {"product_sum", make_product_sum, "ttat"},
    {"flat_product", make_flat_product, "ttt"},
    {"keepdim", make_keepdim, "at"},
    {"grouped", make_grouped, "t"},
    {"banded", make_banded, "t"},
    {"softmax", make_softmax, "t*"},
    {"softmax_sink", make_softmax_sink, "t*xb"},
    {"tril_of", make_tril_of, "te"},
    {"attention_scale", make_attention_scale, "t"},
    {"rotary_halves", make_rotary_halves, "ttteEb"},
    {"rotary_pairs", make_rotary_pairs, "ttt**tb"},
    {"reshaped", make_reshaped, "tt"},
    {0},
};

static int cost(const Node *n)
{
    if (n->op->id != OP_scaled_dot_product_attention && n->op->id != OP_sdpa_quantized) return 0;
    /* a mask along queries costs more than one of the keys alone, that more than none */
    const Value *mask = n->arg[3].kind == ARG_VALUE ? n->arg[3].v : NULL;
    return n->op->cost + (!mask ? 0 : mask->rank >= 2 && !is_one(mask->dim[mask->rank - 2]) ? 100 : 50);
}

static bool settled(Rewrite *rw, Phase phase, bool *changed)
{
    return phase != PHASE_RECOMPOSE || sdpa_pairs(rw, changed);
}

static bool leftovers(Rewrite *rw, Phase phase, RewriteLog *log, Err *err)
{
    return phase != PHASE_RECOMPOSE || attention_leftovers(rw, log, err);
}

static int fused(const Graph *g)
{
    int n = 0;
    for (const Node *p = g->first; p; p = p->next)
        n += p->op->id == OP_scaled_dot_product_attention || p->op->id == OP_sdpa_lse || p->op->id == OP_sdpa_quantized;
    return n;
}

const Family attention_family = {.name = "attention",
                                 .rules = attention_rules,
                                 .guards = guards,
                                 .makers = makers,
                                 .cost = cost,
                                 .settled = settled,
                                 .leftovers = leftovers,
                                 .left = attention_left,
                                 .fused = fused,
                                 .drawn = attention_drawn,
                                 .draw = attention_draw};

const Family safe_softmax_family = {.name = "safe softmax", .drawn = softmax_rows_drawn, .draw = softmax_rows_draw};
