/* Attentions that are still spelled out, and how far recognition came: for every softmax (or exponential) between two
 * matrix products, the node at which the equal forms end and what the rule there said.
 *
 *     left: softmax 'softmax_2', recognised 'q' x 'k' times 0.125, stopped at 'masked_fill',
 *         rule 'scores_masked_fill': masked scores become 0 ...
 */
#include "rewrite/attention/whynot.h"
#include <string.h>
#include "base/vec.h"
#include "facts/attention.h"
#include "facts/views.h"
#include "rewrite/build.h"
#include "rewrite/attention/sdpa_pair.h"

static const char sum_rule[] = "attention_sum"; /* looks through sums itself, from the product with the values */

/* ------------------------------------------------------------------ saying it */

/* The scores that v is equal to, itself or through a view; NULL when it is not known to be any. */
static Value *known_scores(Rewrite *rw, Value *v)
{
    static const OpId views[] = {OP_permute, OP_reshape};
    Value *form = rewrite_form(rw, v, OP_scores);
    for (int i = 0; i < 2 && !form; i++) {
        Value *x = rewrite_form(rw, v, views[i]);
        if (x) form = rewrite_form(rw, x->def->arg[0].v, OP_scores);
    }
    return form;
}

static bool made_view(const Node *n, const void *rw)
{
    return n->op->flags & OPF_VIEW && rewrite_info((Rewrite *)(uintptr_t)rw, n->out[0])->ghost;
}

/* The name of a value, or of what a view that was made on the way shows. */
static const char *name_of(Rewrite *rw, const Value *v) { return value_below(v, made_view, rw)->name; }

static const char *describe(Rewrite *rw, RewriteLog *log, Value *v)
{
    Value *form = known_scores(rw, v);
    if (!form) return NULL;
    const Arg *a = form->def->arg;
    Buf b = {0};
    buf_printf(&b, "%squeries '%s' times keys '%s'", a[5].e->i ? "softmax of " : "", name_of(rw, a[0].v),
               name_of(rw, a[1].v));
    if (ex_is_const(a[3].e) && ex_number(a[3].e) != 1) buf_printf(&b, " times %g", ex_number(a[3].e));
    if (ex_is_const(a[4].e) && ex_number(a[4].e) != 0) buf_printf(&b, ", softcap %g", ex_number(a[4].e));
    if (a[2].kind == ARG_VALUE) buf_printf(&b, ", mask '%s'", name_of(rw, a[2].v));
    const char *text = b.data ? arena_strdup(log->arena, b.data) : NULL;
    buf_free(&b);
    return text;
}

static const char *advice(const char *why)
{
    static const struct {
        const char *part, *advice;
    } table[] = {
        {"runs over axis", "take the softmax over the keys: dim=-1 of (..., queries, keys)"},
        {"masked scores become", "mask with -inf or torch.finfo(dtype).min"},
        {"key by key, after the softmax", "only a factor for whole rows can be taken out of a sum of probabilities"},
        {"have other masks", "mask both softmaxes in the same way"},
        {"comes after the softmax", "mask or scale the scores before the softmax"},
        {"is not a known number", "write it as a Python number or a constant tensor"},
        {"does not follow from the sizes",
         "declare these sizes as the same Dim, or as derived from each other, when exporting"},
        {"not provably", "declare these sizes as the same Dim, or as derived from each other, when exporting"},
        {"another average", "without exact_masked_rows this is fused, and only such rows differ"},
        {"exact_masked_rows",
         "without exact_masked_rows such rows give 0, as PyTorch's scaled_dot_product_attention does"},
        {"varies along queries and keys", "a factor per query and key is not a scale; only a mask is added"},
        {"rounded to", "keep the scores in the dtype of queries and keys"},
        {"not surely below", "mask with -inf or torch.finfo(dtype).min, after scaling"},
        {"changes the axis of keys", "reshape queries, keys and values before the product, not the scores"},
        {"regroups queries", "reshape queries, keys and values before the product, not the scores"},
    };
    for (size_t i = 0; why && i < sizeof table / sizeof *table; i++)
        if (strstr(why, table[i].part)) return table[i].advice;
    return NULL;
}

static const char *refusal(Rewrite *rw, const Node *n, const char **rule)
{
    const Info *info = rewrite_info(rw, n->out[0]);
    *rule = info->rule;
    return info->why;
}

static bool keep_left(RewriteLog *log, Left left, Err *err)
{
    Left *grown = vec_room(log->arena, log->left, log->nleft, sizeof *grown);
    if (!grown) return oom(err);
    log->left = grown;
    log->left[log->nleft++] = left;
    return true;
}

static bool add_left(Rewrite *rw, RewriteLog *log, const Node *softmax, const Node *at, Value *known,
                     const char *otherwise, Err *err)
{
    const char *rule, *why = refusal(rw, at, &rule);
    if (!why) rule = NULL;
    return keep_left(
        log,
        (Left){.node = arena_strdup(log->arena, softmax->name),
               .at = arena_strdup(log->arena, at->name),
               .rule = rule ? arena_strdup(log->arena, rule) : NULL,
               .matched = known ? describe(rw, log, known) : NULL,
               .reason = why ? arena_strdup(log->arena, why) : arena_printf(log->arena, otherwise, at->op->name),
               .advice = advice(why)},
        err);
}

static bool explain(Rewrite *rw, RewriteLog *log, const AttentionFinder *f, const Node *softmax,
                    const AttentionParts *a, Err *err)
{
    if (known_scores(rw, softmax->out[0])) { /* lost between the softmax and the values */
        const char *rule;
        if (refusal(rw, a->values, &rule) && !strcmp(rule, sum_rule))
            return add_left(rw, log, softmax, a->values, softmax->out[0], "", err);
        for (const Node *x = softmax->next; x; x = x->next)
            if (x == a->values || (x->nout && f->after[x->out[0]->id] && !known_scores(rw, x->out[0])))
                return add_left(rw, log, softmax, x, softmax->out[0], "no rule carries probabilities through %s", err);
        return true;
    }
    /* from the softmax back to the product: the first that has a form stands below where it is lost */
    for (int i = 0; i < a->n; i++) {
        Value *v = a->path[i]->out[0];
        if (!known_scores(rw, v)) continue;
        return add_left(rw, log, softmax, i ? a->path[i - 1] : softmax, v, "no rule carries scores through %s", err);
    }
    return add_left(rw, log, softmax, a->scores, NULL, "the product was not recognised (%s)", err);
}

bool attention_leftovers(Rewrite *rw, RewriteLog *log, Err *err)
{
    AttentionFinder f;
    TRY(attention_finder(&f, rw->g, err));
    bool ok = true;
    for (const Node *n = rw->g->first; ok && n; n = n->next) {
        AttentionParts a;
        if (!attention_begins(&f, n, &a)) continue;
        if (rewrite_info(rw, n->out[0])->rule == sdpa_backward_rule)
            ok = add_left(rw, log, n, n, n->out[0], "", err); /* its forward pass is fused, its backward pass is not */
        else if (a.values) ok = explain(rw, log, &f, n, &a, err);
    }
    attention_finder_free(&f);
    return ok;
}

bool attention_left(const Graph *g, RewriteLog *log, Err *err)
{
    const Left *before = log->left;
    int nbefore = log->nleft;
    AttentionFinder f;
    TRY(attention_finder(&f, g, err));
    log->left = NULL;
    log->nleft = 0;
    bool ok = true;
    for (const Node *n = g->first; ok && n; n = n->next) {
        AttentionParts a;
        if (!attention_begins(&f, n, &a)) continue;
        const Left *said = left_named(before, nbefore, n->name);
        if (said && (a.values || (said->rule && !strcmp(said->rule, sdpa_backward_rule))))
            ok = keep_left(log, *said, err);
        else if (a.values)
            ok = keep_left(log,
                           (Left){.node = arena_strdup(log->arena, n->name),
                                  .at = arena_strdup(log->arena, a.scores->name),
                                  .reason = "the rules that recognise attention (phase recompose) did not see it"},
                           err);
    }
    attention_finder_free(&f);
    return ok;
}
