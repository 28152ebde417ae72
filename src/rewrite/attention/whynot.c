/* Attentions that are still spelled out, and how far recognition came: for every softmax (or exponential) between two matrix products, the
 * node at which the equal forms end and what the rule there said.
 *
 *     left: softmax 'softmax_2', recognised 'q' x 'k' times 0.125, stopped at 'masked_fill', rule 'scores_masked_fill': masked scores become 0 ...
 */
#include "rewrite/attention/whynot.h"
#include <string.h>
#include "base/mem.h"
#include "facts/views.h"
#include "rewrite/build.h"
#include "rewrite/attention/sdpa_pair.h"

enum { MAX_CHAIN = 64 };

typedef struct Chain {
    Rewrite *rw;
    unsigned char *after; /* by value id: 1 + how it hangs on the softmax at hand */
} Chain;

/* Ops that scores and probabilities pass through on their way. */
static bool passes(const Node *n)
{
    switch (n->op->id) {
    case OP_add_Tensor:
    case OP_sub_Tensor:
    case OP_mul_Tensor:
    case OP_div_Tensor:
    case OP_where_self:
    case OP_tanh:
    case OP_to_copy:
    case OP_maximum:
    case OP_clamp:
    case OP_neg:
    case OP_cat:
    case OP_index_put:
    case OP_exp:
    case OP_exp2:
    case OP_nan_to_num:
    case OP_softmax_int:
    case OP_safe_softmax:
    case OP_minimum: return true;
    default: return (n->op->flags & OPF_VIEW) != 0;
    }
}

static bool varies(const Value *v) { return v->kind != V_WEIGHT; }

/* A product of two tensors of the model (not of a tensor and a weight). */
static bool product(const Node *n)
{
    return (n->op->id == OP_matmul && n->arg[0].kind == ARG_VALUE && n->arg[1].kind == ARG_VALUE &&
            varies(n->arg[0].v) && varies(n->arg[1].v)) ||
           (n->op->id == OP_linear && varies(n->arg[1].v));
}

/* The operand of n on the way back to a product of queries and keys; the way is written to path, nearest first. */
static bool back(const Value *v, const Node **path, int *n, int depth)
{
    if (!v->def || depth > MAX_CHAIN || *n == MAX_CHAIN) return false;
    path[(*n)++] = v->def;
    if (product(v->def)) return true;
    if (passes(v->def) && v->def->op->id != OP_softmax_int && v->def->op->id != OP_safe_softmax)
        for (int i = 0; i < v->def->op->schema->nparams; i++) {
            const Arg *a = &v->def->arg[i];
            if (a->kind == ARG_VALUE && back(a->v, path, n, depth + 1)) return true;
            for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++)
                if (a->vs[k] && back(a->vs[k], path, n, depth + 1)) return true;
        }
    (*n)--;
    return false;
}

typedef struct Touch {
    const Chain *c;
    bool any;
} Touch;

static void touch(void *user, Value **slot)
{
    Touch *t = user;
    t->any |= t->c->after[(*slot)->id] != 0;
}

/* What probabilities pass through without becoming something else. */
static bool passes_after(const Node *n)
{
    OpId id = n->op->id;
    return (n->op->flags & OPF_VIEW) || id == OP_mul_Tensor || id == OP_div_Tensor || id == OP_where_self ||
           id == OP_to_copy || id == OP_nan_to_num;
}

/* The product with values that the softmax's result reaches, NULL when it reaches none; every value on the way is marked. */
static Node *forth(Chain *c, const Node *softmax)
{
    memset(c->after, 0, (size_t)c->rw->g->next_id);
    c->after[softmax->out[0]->id] = 1;
    for (Node *n = softmax->next; n; n = n->next) {
        Touch t = {c, false};
        node_each_operand(n, touch, &t);
        if (!t.any) continue;
        if (n->op->id == OP_matmul) return n;
        if (!passes_after(n)) continue;
        for (int k = 0; k < n->nout; k++) c->after[n->out[k]->id] = 1;
    }
    return NULL;
}

/* ------------------------------------------------------------------ saying it */

/* The scores that v is equal to, itself or through a view; NULL when it is not known to be any. */
static Value *scores_behind(Rewrite *rw, Value *v)
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
    Value *form = scores_behind(rw, v);
    if (!form) return NULL;
    const Arg *a = form->def->arg;
    Buf b = {0};
    buf_printf(&b, "%squeries '%s' times keys '%s'", a[5].e->i ? "softmax of " : "", name_of(rw, a[0].v),
               name_of(rw, a[1].v));
    if (ex_is_const(a[3].e) && number_value(a[3].e) != 1) buf_printf(&b, " times %g", number_value(a[3].e));
    if (ex_is_const(a[4].e) && number_value(a[4].e) != 0) buf_printf(&b, ", softcap %g", number_value(a[4].e));
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
        {"comes after the softmax", "mask or scale the scores before the softmax"},
        {"is no known number", "write it as a Python number or a constant tensor"},
        {"does not follow from the sizes",
         "declare these sizes as the same Dim, or as derived from each other, when exporting"},
        {"not provably", "declare these sizes as the same Dim, or as derived from each other, when exporting"},
        {"another average", "without --exact-masked-rows this is fused, and only such rows differ"},
        {"--exact-masked-rows",
         "without --exact-masked-rows such rows give 0, as PyTorch's scaled_dot_product_attention does"},
        {"varies along queries and keys", "a factor per query and key is no scale; only a mask is added"},
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

static bool add_left(Rewrite *rw, RewriteLog *log, const Node *softmax, const Node *at, Value *known,
                     const char *otherwise, Err *err)
{
    if ((log->nleft & (log->nleft - 1)) == 0) {
        Left *grown = arena_array(log->arena, Left, log->nleft ? log->nleft * 2 : 1);
        if (!grown) return oom(err);
        if (log->nleft) memcpy(grown, log->left, (size_t)log->nleft * sizeof *grown);
        log->left = grown;
    }
    const char *rule, *why = refusal(rw, at, &rule);
    if (!why) rule = NULL;
    log->left[log->nleft++] = (Left){.node = arena_strdup(log->arena, softmax->name),
                                     .at = arena_strdup(log->arena, at->name),
                                     .rule = rule ? arena_strdup(log->arena, rule) : NULL,
                                     .matched = known ? describe(rw, log, known) : NULL,
                                     .reason = why ? arena_strdup(log->arena, why)
                                                   : arena_printf(log->arena, otherwise, at->op->name),
                                     .advice = advice(why)};
    return true;
}

static bool explain(Chain *c, RewriteLog *log, Node *softmax, const Node **path, int n, const Node *values, Err *err)
{
    Rewrite *rw = c->rw;
    if (scores_behind(rw, softmax->out[0])) { /* lost between the softmax and the values */
        for (const Node *x = softmax->next; x; x = x->next) {
            Touch t = {c, false};
            node_each_operand((Node *)(uintptr_t)x, touch, &t);
            if (x == values || (t.any && x->nout && c->after[x->out[0]->id] && !scores_behind(rw, x->out[0])))
                return add_left(rw, log, softmax, x, softmax->out[0], "no rule carries probabilities through %s", err);
        }
        return true;
    }
    for (int i = 0; i < n;
         i++) { /* from the softmax back to the product: the first that has a form stands below where it is lost */
        Value *v = path[i]->out[0];
        if (!scores_behind(rw, v)) continue;
        return add_left(rw, log, softmax, i ? path[i - 1] : softmax, v, "no rule carries scores through %s", err);
    }
    return add_left(rw, log, softmax, path[n - 1], NULL, "the product was not recognised (%s)", err);
}

bool attention_leftovers(Rewrite *rw, RewriteLog *log, Err *err)
{
    Chain c = {rw, mem_zeroed((size_t)rw->g->next_id + 1, 1)};
    bool ok = c.after != NULL;
    if (!ok) oom(err);
    for (Node *n = rw->g->first; ok && n; n = n->next) {
        const Node *path[MAX_CHAIN];
        int length = 0;
        bool by_hand = n->op->id == OP_exp || n->op->id == OP_exp2;
        if (!by_hand && n->op->id != OP_softmax_int && n->op->id != OP_safe_softmax) continue;
        if (n->arg[0].kind != ARG_VALUE || !back(n->arg[0].v, path, &length, 0)) continue;
        const Node *values = forth(&c, n);
        if (rewrite_info(rw, n->out[0])->rule == sdpa_backward_rule)
            ok = add_left(rw, log, n, n, n->out[0], "", err); /* its forward pass is fused, its backward pass is not */
        else if (values) ok = explain(&c, log, n, path, length, values, err);
    }
    mem_free(c.after);
    return ok;
}
