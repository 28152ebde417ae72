/* Masks in proofs: what rules claim of an attention is tried where its mask hides much, down to whole rows. */
#include "rewrite/attention/draw.h"
#include <math.h>
#include "base/splitmix.h"

const Value *attention_drawn(const Node *n)
{
    OpId id = n->op->id;
    int mask = id == OP_scaled_dot_product_attention || id == OP_sdpa_lse ? 3 : id == OP_sdpa_backward ? 6 : -1;
    return mask >= 0 && n->arg[mask].kind == ARG_VALUE ? n->arg[mask].v : NULL;
}

const Value *softmax_rows_drawn(const Node *n)
{
    return n->op->id == OP_safe_softmax && n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL;
}

/* Seed 0: plain numbers; others: much is -inf, down to whole rows. */
void softmax_rows_draw(Tensor *t, int seed, Waiver waiver, uint64_t *random)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    bool all = false;
    (void)waiver;
    for (int64_t i = 0; i < n; i++) {
        if (i % row == 0) all = seed > 0 && splitmix_uniform(random) < 0.4;
        char *at = (char *)t->data + (size_t)i * dtype_size(t->dtype);
        bool hidden = all || (seed > 0 && splitmix_uniform(random) < 0.3);
        if (dtype_is_float(t->dtype)) store_f64(t->dtype, at, hidden ? -INFINITY : splitmix_normal(random));
        else store_i64(t->dtype, at, (int64_t)(splitmix_next(random) & 1));
    }
}

/* Seed 0: everything visible; 1: much is hidden, down to whole rows; of bools, true and false hide in turn. */
void attention_draw(Tensor *t, int seed, Waiver waiver, uint64_t *random)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    bool shown = waiver == WAIVE_INPUTS; /* every row shows a key, whichever of true and false hides */
    double hide = 0, low = waiver == WAIVE_ZEROS ? -INFINITY : t->dtype == DT_F16 ? -6e4 : -1e30;
    bool all = false;
    for (int64_t i = 0; i < n; i++) {
        if (i % row == 0) {
            all = seed > 0 && splitmix_uniform(random) < 0.3 && !shown;
            hide = splitmix_uniform(random);
        }
        char *at = (char *)t->data + (size_t)i * dtype_size(t->dtype);
        bool hidden = (seed > 0 || shown) && (all || splitmix_uniform(random) < hide);
        if (shown && i % row < 2) hidden = t->dtype == DT_BOOL && i % row == 1;
        if (t->dtype == DT_BOOL) *at = (char)(seed % 3 == 2 ? hidden : !hidden);
        else if (dtype_is_float(t->dtype)) store_f64(t->dtype, at, hidden ? low : splitmix_normal(random));
        else store_i64(t->dtype, at, (int64_t)(splitmix_next(random) & 1));
    }
}
