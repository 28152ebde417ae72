/* The tables of norms and modules, and the list of all families. */
#include "rewrite/families/all.h"
#include "rewrite/attention/family.h"
#include "rewrite/families/folding.h"
#include "rewrite/families/norms.h"
#include "rewrite/families/projections.h"

extern const char *const norms_rules[], *const modules_rules[]; /* the .rules files of this folder (tools/embed.py) */

static const Maker norm_makers[] = {
    {"layer_norm", make_layer_norm, "tAAXX"}, {"rms_norm", make_rms_norm, "tAXX"},
    {"norm_weight", make_norm_weight, "txP"}, {"norm_bias", make_norm_bias, "txP"},
    {"in_half", make_in_half, "td"},          {0},
};

static const Maker module_makers[] = {
    {"views", make_views, "t"},
    {"linear_first", make_linear_first, "l"},
    {"packed", make_packed, "illL"},
    {"folded_norm", make_folded_norm, "tXXXXx"},
    {"folded_scale", make_folded_scale, "txb"},
    {"folded_shift", make_folded_shift, "txb"},
    {0},
};

static const Family norms = {.name = "norms", .rules = norms_rules, .makers = norm_makers},
                    modules = {.name = "modules", .rules = modules_rules, .makers = module_makers};

const Family *const families_all[] = {&norms, &attention_family, &safe_softmax_family, &modules, NULL};
