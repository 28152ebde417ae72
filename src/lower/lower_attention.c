/* Lowering of scaled_dot_product_attention, of the kernels that PyTorch chooses for it, and of their gradients.
 *
 *     sdpa of rank 2, 3, 5                       -> reshape to rank 4, sdpa, reshape
 *     _scaled_dot_product_flash_attention(...)   -> sdpa_lse, where its logarithms are read
 */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "lower/lower_table.h"

/* Any rank as (batch, heads, rows, size): missing dims are 1, dims before the heads are merged. */
static Value *rank4(Lower *L, Value *v)
{
    Expr *dim[4] = {ex_int(L->ex, 1), ex_int(L->ex, 1), v->dim[v->rank - 2], v->dim[v->rank - 1]};
    if (v->rank == 4) return v;
    for (int i = 0; i < v->rank - 3; i++) dim[0] = ex_mul(L->ex, dim[0], v->dim[i]);
    if (v->rank >= 3) dim[1] = v->dim[v->rank - 3];
    return lower_reshape(L, v, 4, dim);
}

static Value *leading_ones(Lower *L, Value *v, int rank)
{
    Expr *dim[MAX_RANK];
    int more = rank - v->rank;
    for (int i = 0; i < rank; i++) dim[i] = i < more ? ex_int(L->ex, 1) : v->dim[i - more];
    return more ? lower_reshape(L, v, rank, dim) : v;
}

/* Batch and head dims that broadcast are written out. */
static Value *spread(Lower *L, Value *v, Expr *batch, Expr *heads)
{
    if (v->dim[0] == batch && v->dim[1] == heads) return v;
    bool b = ex_equals_int(v->dim[0], 1) && v->dim[0] != batch, h = ex_equals_int(v->dim[1], 1) && v->dim[1] != heads;
    if (!b && !h) return v;
    Expr *dim[4] = {b ? batch : v->dim[0], h ? heads : v->dim[1], v->dim[2], v->dim[3]};
    return EMIT(L, expand, arg_value(v), arg_exprs(L->g, 4, dim));
}

/* Operands of rank 5 and more, whose dims before the rows broadcast one by one: these are written out. */
static bool together(Lower *L, int rank, Value **q, Value **k, Value **v)
{
    Value **all[3] = {q, k, v};
    Expr *most[MAX_RANK], *dim[MAX_RANK];
    for (int i = 0; i < rank - 2; i++) {
        most[i] = (*q)->dim[i];
        for (int n = 1; n < 3; n++)
            if (ex_equals_int(most[i], 1)) most[i] = (*all[n])->dim[i];
    }
    for (int n = 0; n < 3; n++) {
        bool same = true;
        for (int i = 0; i < rank; i++) {
            dim[i] = i < rank - 2 && ex_equals_int((*all[n])->dim[i], 1) ? most[i] : (*all[n])->dim[i];
            same = same && dim[i] == (*all[n])->dim[i];
        }
        if (!same) TRY(*all[n] = EMIT(L, expand, arg_value(*all[n]), arg_exprs(L->g, rank, dim)));
    }
    return true;
}

/* Each head as often as there are heads for it. */
static Value *every_head(Lower *L, Value *v, Expr *heads)
{
    Expr *times = ex_floordiv(L->ex, heads, v->dim[1]), *one = ex_int(L->ex, 1);
    Value *y = lower_reshape(L, v, 5, (Expr *[]){v->dim[0], v->dim[1], one, v->dim[2], v->dim[3]});
    Expr *wide[5] = {v->dim[0], v->dim[1], times, v->dim[2], v->dim[3]};
    y = y && times ? EMIT(L, expand, arg_value(y), arg_exprs(L->g, 5, wide)) : NULL;
    return y ? lower_reshape(L, y, 4, (Expr *[]){v->dim[0], heads, v->dim[2], v->dim[3]}) : NULL;
}

static bool known_to_differ(const Expr *a, const Expr *b) { return ex_is_int(a) && ex_is_int(b) && a != b; }

/* own: softcap, lower, upper, which a packed model has; NULL: none. lse: the logarithms of the sums are wanted, too;
 * NULL: they are not. */
static bool attention(Lower *L, Value *q, Value *k, Value *v, Value *mask, Arg causal, Arg scale, Arg gqa,
                      const Arg *own, Value **lse)
{
    if (q->rank < 2 || k->rank < 2 || v->rank < 2)
        return lower_fail(L, 0, "ranks %d, %d, %d, expected 2 or more", q->rank, k->rank, v->rank);
    int rank = q->rank > k->rank ? q->rank : k->rank;
    if (v->rank > rank) rank = v->rank;
    TRY((q = leading_ones(L, q, rank)) && (k = leading_ones(L, k, rank)) && (v = leading_ones(L, v, rank)));
    bool grouped = gqa.kind == ARG_EXPR && ex_is_const(gqa.e) && gqa.e->i;
    if (rank > 4 && !grouped) TRY(together(L, rank, &q, &k, &v));
    Expr *dim[MAX_RANK];
    for (int i = 0; i < rank - 1; i++) dim[i] = i < rank - 2 && ex_equals_int(q->dim[i], 1) ? k->dim[i] : q->dim[i];
    dim[rank - 1] = v->dim[rank - 1];
    Value *q4 = rank4(L, q), *k4 = rank4(L, k), *v4 = rank4(L, v);
    if (!q4 || !k4 || !v4) return false;
    Expr *batch = ex_equals_int(q4->dim[0], 1) ? k4->dim[0] : q4->dim[0],
         *heads = ex_equals_int(q4->dim[1], 1) ? k4->dim[1] : q4->dim[1];
    if (grouped && known_to_differ(k4->dim[1], v4->dim[1]) && k4->dim[1]->i > 0 && v4->dim[1]->i > 0) {
        TRY((k4 = every_head(L, k4, q4->dim[1])) && (v4 = every_head(L, v4, q4->dim[1])));
    }
    if (!grouped) {
        q4 = spread(L, q4, batch, heads);
        k4 = spread(L, k4, batch, heads);
        v4 = spread(L, v4, batch, heads);
        if (!q4 || !k4 || !v4) return false;
    }
    if (mask && !dtype_is_float(mask->dtype) && mask->dtype != DT_BOOL)
        return lower_fail(L, 3, "dtype %s, expected bool or a float", dtype_name(mask->dtype));
    if (mask && mask->rank > 4) TRY(mask = rank4(L, mask));
    if (lse) {
        const Node *n = lower_emit_node(
            L, OP_sdpa_lse, 6, (Arg[]){arg_value(q4), arg_value(k4), arg_value(v4), arg_value(mask), causal, scale});
        TRY(n);
        *lse = n->out[1];
        return lower_return(L, n->out[0]);
    }
    Value *y = EMIT(L, scaled_dot_product_attention, arg_value(q4), arg_value(k4), arg_value(v4), arg_value(mask),
                    arg_float(L->g, 0), causal, scale, gqa, own ? own[0] : arg_float(L->g, 0),
                    own ? own[1] : arg_none(), own ? own[2] : arg_none());
    return y && lower_return(L, rank == 4 ? y : lower_reshape(L, y, rank, dim));
}

/* Dropout between softmax and the second product, as aten::_scaled_dot_product_attention_math does it. */
static bool attention_dropout(Lower *L, Value *q, Value *k, Value *v, Value *mask, bool causal, Arg scale, double p)
{
    int r = q->rank, rank = k->rank;
    double size;
    if (scale.kind == ARG_NONE && !(ex_is_const(q->dim[r - 1]) && (size = (double)q->dim[r - 1]->i) > 0))
        return fail(L->err, E_UNSUPPORTED, "attention with dropout and a head size that is not a constant");
    Arg factor = scale.kind == ARG_NONE ? arg_float(L->g, 1 / sqrt(size)) : scale;
    int perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    Value *s = EMIT(L, mul_Tensor, arg_value(q), factor);
    s = s ? EMIT(L, matmul, arg_value(s), arg_value(lower_permute(L, k, perm))) : NULL;
    if (s && causal) {
        Value *ones = EMIT(L, full, arg_exprs(L->g, 2, &s->dim[s->rank - 2]), arg_bool(L->g, true), arg_dtype(DT_BOOL));
        mask = ones ? EMIT(L, tril, arg_value(ones), arg_int(L->g, 0)) : NULL;
    }
    if (s && mask && mask->dtype == DT_BOOL) {
        Value *never = EMIT(L, full, arg_exprs(L->g, 0, NULL), arg_float(L->g, -INFINITY), arg_dtype(s->dtype));
        s = never ? EMIT(L, where_self, arg_value(mask), arg_value(s), arg_value(never)) : NULL;
    } else if (s && mask) {
        s = EMIT(L, add_Tensor, arg_value(s), arg_value(mask));
    }
    s = s ? EMIT(L, safe_softmax, arg_value(s), arg_int(L->g, -1), arg_none()) : NULL;
    Value *noise = s ? EMIT(L, bernoulli_p, arg_value(s), arg_float(L->g, 1 - p), arg_none()) : NULL;
    noise = noise ? EMIT(L, div_Tensor, arg_value(noise), arg_float(L->g, 1 - p)) : NULL;
    return noise && lower_return(L, EMIT(L, matmul, arg_value(EMIT(L, mul_Tensor, arg_value(s), arg_value(noise))),
                                         arg_value(v)));
}

static bool no_dropout(Lower *L, int i)
{
    return lower_is_number(&L->arg[i], 0) ||
           fail(L->err, E_UNSUPPORTED, "%s with dropout in training mode", L->op->name);
}

bool lower_sdpa(Lower *L)
{
    Value *q, *k, *v = lower_value(L, 2);
    TRY(lower_two(L, 0, 1, &q, &k));
    if (!v) return lower_fail(L, 2, "expected a tensor");
    if (!lower_is_number(&L->arg[4], 0)) {
        bool causal, grouped;
        TRY(lower_const_bool(L, 5, &causal) && lower_const_bool(L, 7, &grouped));
        const Expr *p = L->arg[4].e;
        if (grouped || p->kind != EX_FLOAT || !(p->f > 0 && p->f < 1)) return no_dropout(L, 4);
        return attention_dropout(L, q, k, v, lower_value(L, 3), causal, L->arg[6], p->f);
    }
    return attention(L, q, k, v, lower_value(L, 3), L->arg[5], L->arg[6], L->arg[7], &L->arg[8], NULL);
}

/* Logarithms (B, H, N) in the form of the op's kernel: (B, H, N, 1) of cuDNN, N as a multiple of 32 of the efficient
 * one. */
static Value *as_kernel_gives(Lower *L, Value *lse)
{
    Expr *N = lse->dim[2], *wide = ex_int(L->g->ex, 32);
    if (L->op->id == OP_scaled_dot_product_cudnn_attention)
        return lower_reshape(L, lse, 4, (Expr *[]){lse->dim[0], lse->dim[1], N, ex_int(L->g->ex, 1)});
    if (L->op->id != OP_scaled_dot_product_efficient_attention) return lse;
    wide = ex_mul(L->g->ex, ex_floordiv(L->g->ex, ex_add(L->g->ex, N, ex_int(L->g->ex, 31)), wide), wide);
    Expr *more[2] = {ex_int(L->g->ex, 0), ex_sub(L->g->ex, wide, N)};
    return wide == N ? lse : EMIT(L, constant_pad_nd, arg_value(lse), arg_exprs(L->g, 2, more), arg_float(L->g, 0));
}

/* The backends' own ops: the result and, of ranks that a gradient takes, the logarithms of its sums; where they are not
 * read import makes it scaled_dot_product_attention (sdpa_lse_unread). Random state is for dropout and stays undefined
 * (using it fails). */
bool lower_sdpa_other(Lower *L)
{
    Value *q, *k, *v = lower_value(L, 2), *lse = NULL;
    int mask = op_param(L->op, "attn_mask"), bias = op_param(L->op, "attn_bias"), scale = op_param(L->op, "scale"),
        gqa = op_param(L->op, "enable_gqa");
    TRY(lower_two(L, 0, 1, &q, &k) && no_dropout(L, op_param(L->op, "dropout_p")));
    if (!v) return lower_fail(L, 2, "expected a tensor");
    Value *m = mask >= 0 ? lower_value(L, mask) : bias >= 0 ? lower_value(L, bias) : NULL;
    bool trains = L->op->id != OP_scaled_dot_product_attention_math && q->rank == 4 && k->rank == 4 && v->rank == 4;
    Arg grouped = gqa >= 0 ? L->arg[gqa] : arg_bool(L->g, trains && q->dim[1] != k->dim[1]);
    TRY(attention(L, q, k, v, m, L->arg[op_param(L->op, "is_causal")], scale >= 0 ? L->arg[scale] : arg_none(), grouped,
                  NULL, trains ? &lse : NULL));
    if (lse && !(lse = as_kernel_gives(L, lse))) return false;
    return lower_return_values(L, L->op->schema->nreturns, (Value *[16]){L->result.v, lse});
}

/* The logarithms as sdpa_backward takes them, (B, H, N): cuDNN has one axis more, the efficient kernel pads N.
 * Weights in their place, (B, H, N, M), are what PyTorch's decomposition of the forward op alone leaves there: they
 * are computed again then. */
static Value *logarithms(Lower *L, Value *lse, Value *const *x, Arg mask, Arg causal, Arg scale)
{
    Value *q = x[1], *k = x[2];
    if (lse->rank == 4 && lse->dim[3] == k->dim[2] && !ex_equals_int(lse->dim[3], 1)) {
        const Node *n = lower_emit_node(L, OP_sdpa_lse, 6,
                                        (Arg[]){arg_value(q), arg_value(k), arg_value(x[3]), mask, causal, scale});
        return n ? n->out[1] : NULL;
    }
    if (lse->rank == 4 && ex_equals_int(lse->dim[3], 1))
        lse = lower_reshape(L, lse, 3, (Expr *[]){lse->dim[0], lse->dim[1], lse->dim[2]});
    if (lse && lse->rank == 3 && lse->dim[2] != q->dim[2])
        lse = EMIT(L, slice_Tensor, arg_value(lse), arg_int(L->g, 2), arg_int(L->g, 0), arg_expr(q->dim[2]),
                   arg_int(L->g, 1));
    return lse;
}

bool lower_sdpa_other_backward(Lower *L)
{
    Value *x[6];
    int mask = op_param(L->op, "attn_mask"), bias = op_param(L->op, "attn_bias"),
        wanted = op_param(L->op, "grad_input_mask");
    const int at[6] = {0, 1, 2, 3, op_param(L->op, "out"), op_param(L->op, "logsumexp")};
    TRY(no_dropout(L, op_param(L->op, "dropout_p")));
    for (int i = 0; i < 6; i++) {
        if (!(x[i] = lower_value(L, at[i]))) return lower_fail(L, at[i], "expected a tensor");
        if (i < 5 && x[i]->rank != 4) return lower_fail(L, at[i], "rank %d, expected 4", x[i]->rank);
    }
    Value *m = mask >= 0 ? lower_value(L, mask) : bias >= 0 ? lower_value(L, bias) : NULL;
    Arg causal = L->arg[op_param(L->op, "is_causal")], scale = L->arg[op_param(L->op, "scale")];
    const Arg *want = wanted >= 0 ? &L->arg[wanted] : NULL;
    bool grad_mask = want && m && dtype_is_float(m->dtype) && want->kind == ARG_EXPRS && want->n == 4 && want->es[3]->i;
    Value *lse = logarithms(L, x[5], x, arg_value(m), causal, scale);
    TRY(lse);
    const Node *n = lower_emit_node(L, OP_sdpa_backward, 13,
                                    (Arg[]){arg_value(x[0]), arg_value(x[1]), arg_value(x[2]), arg_value(x[3]),
                                            arg_value(x[4]), arg_value(lse), arg_value(m), causal, scale,
                                            arg_float(L->g, 0), arg_none(), arg_none(), arg_bool(L->g, grad_mask)});
    return n && lower_return_values(L, L->op->schema->nreturns, n->out);
}

/* An operand or result of the kernels beneath, (batch, rows, heads, size), as (batch, heads, rows, size), and back. */
static Value *heads_first(Lower *L, Value *v) { return lower_permute(L, v, (int[]){0, 2, 1, 3}); }

static bool kernel_operand(Lower *L, int i, Value **x)
{
    Value *v = lower_value(L, i);
    if (!v || v->rank != 4) return lower_fail(L, i, "expected a tensor of 4 axes: batch, rows, heads, size");
    return (*x = heads_first(L, v)) != NULL;
}

/* No dropout, no window of the efficient kernel, and one sequence a batch:
 * nothing that says where others begin or end. */
static bool plain_kernel(Lower *L)
{
    static const char *const refused[] = {"cu_seqlens_q", "cu_seqlens_k", "cum_seq_q",    "cum_seq_k",
                                          "seqlen_k",     "seqused_k",    "alibi_slopes", "block_table"};
    TRY(no_dropout(L, op_param(L->op, "dropout_p")));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int at = op_param(L->op, refused[i]);
        if (at >= 0 && !lower_is_none(L, at))
            return fail(L->err, E_UNSUPPORTED,
                        "%s with '%s'; expected none: sequences of one length, without slopes or pages", L->op->name,
                        refused[i]);
    }
    int window = op_param(L->op, "window_size");
    if (window < 0 || lower_is_none(L, window) || lower_is_number(&L->arg[window], 0)) return true;
    return fail(L->err, E_UNSUPPORTED, "%s with a window_size; expected none: give the window as a bias", L->op->name);
}

/* One side of a window: how many keys beyond the diagonal; NULL for none or a negative number. */
static Expr *window_side(Lower *L, const char *name)
{
    int at = op_param(L->op, name);
    Expr *e = at < 0 ? NULL : lower_expr(L, at);
    return e && ex_is_const(e) && e->i < 0 ? NULL : e;
}

/* Which keys j a query i sees, i + lower <= j <= i + upper. The kernels align the last query with the last key, but
 * custom_mask_type 1 the first ones. bound: is_causal, lower, upper. Sources:
 * aten/src/ATen/native/transformers/cuda/attention.cu, flash_attn/src/mask.h, mem_eff_attention/kernel_forward.h
 * (CustomMaskType). */
static bool kernel_bounds(Lower *L, const Value *q, const Value *k, Arg *bound)
{
    int type = op_param(L->op, "custom_mask_type");
    int64_t mask = 0;
    bool causal = false;
    if (type >= 0) {
        TRY(lower_const_int(L, type, &mask));
    } else {
        TRY(lower_const_bool(L, op_param(L->op, "is_causal"), &causal));
    }
    Expr *shift = ex_sub(L->ex, k->dim[2], q->dim[2]), *left = window_side(L, "window_size_left"),
         *right = causal || mask == 2 ? ex_int(L->ex, 0) : window_side(L, "window_size_right");
    Expr *lower = left ? ex_sub(L->ex, shift, left) : NULL, *upper = right ? ex_add(L->ex, shift, right) : NULL;
    if (!shift || (left && !lower) || ((right || causal || mask == 2) && !upper))
        return oom(L->err); /* a bound that could not be built is not one that is left out */
    bool top = mask == 1 || (upper && ex_equals_int(upper, 0));
    bound[0] = arg_bool(L->g, top);
    bound[1] = lower ? arg_expr(lower) : arg_none();
    bound[2] = upper && !top ? arg_expr(upper) : arg_none();
    return true;
}

/* The kernels that PyTorch's forward ops call, as inductor and hand-written models do. */
bool lower_sdpa_kernel(Lower *L)
{
    Value *x[3];
    Arg bound[3];
    TRY(plain_kernel(L));
    for (int i = 0; i < 3; i++) TRY(kernel_operand(L, i, &x[i]));
    TRY(kernel_bounds(L, x[0], x[1], bound));
    int bias = op_param(L->op, "bias");
    const Node *n = lower_emit_node(L, OP_sdpa_lse, 9,
                                    (Arg[]){arg_value(x[0]), arg_value(x[1]), arg_value(x[2]),
                                            arg_value(bias < 0 ? NULL : lower_value(L, bias)), bound[0],
                                            L->arg[op_param(L->op, "scale")], arg_float(L->g, 0), bound[1], bound[2]});
    Value *y = n ? heads_first(L, n->out[0]) : NULL;
    return y && lower_return_values(L, L->op->schema->nreturns, (Value *[8]){y, n->out[1]});
}

bool lower_sdpa_kernel_backward(Lower *L)
{
    Value *x[5], *result[4];
    Arg bound[3];
    int at = op_param(L->op, "logsumexp"), bias = op_param(L->op, "bias"),
        wanted = op_param(L->op, "bias_requires_grad");
    bool grad_mask = false;
    TRY(plain_kernel(L));
    for (int i = 0; i < 5; i++) TRY(kernel_operand(L, i < 4 ? i : op_param(L->op, "out"), &x[i]));
    TRY(kernel_bounds(L, x[1], x[2], bound));
    if (wanted >= 0) TRY(lower_const_bool(L, wanted, &grad_mask));
    Value *lse = lower_value(L, at), *mask = bias < 0 ? NULL : lower_value(L, bias);
    Arg scale = L->arg[op_param(L->op, "scale")];
    if (!lse || lse->rank != 3) return lower_fail(L, at, "expected a tensor of 3 axes: batch, heads, rows");
    TRY(lse = logarithms(L, lse, x, arg_value(mask), bound[0], scale));
    const Node *n = lower_emit_node(L, OP_sdpa_backward, 13,
                                    (Arg[]){arg_value(x[0]), arg_value(x[1]), arg_value(x[2]), arg_value(x[3]),
                                            arg_value(x[4]), arg_value(lse), arg_value(mask), bound[0], scale,
                                            arg_float(L->g, 0), bound[1], bound[2], arg_bool(L->g, grad_mask && mask)});
    TRY(n);
    for (int i = 0; i < 3; i++) TRY(result[i] = heads_first(L, n->out[i]));
    result[3] = n->out[3];
    return lower_return_values(L, L->op->schema->nreturns, result);
}

bool sdpa_lse_unread(Graph *g, Err *err)
{
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].loss) return true; /* a joint graph stays the pairs that it was written as */
    int *uses = mem_alloc(((size_t)g->next_id + 1) * sizeof *uses);
    bool ok = uses || oom(err);
    if (ok) graph_count_uses(g, uses);
    for (Node *n = g->first, *next; ok && n; n = next) {
        next = n->next;
        if (n->op->id != OP_sdpa_lse || n->out[1]->id >= g->next_id || uses[n->out[1]->id]) continue;
        const Arg *a = n->arg;
        bool grouped = a[0].v->dim[1] != a[1].v->dim[1];
        Node *y = graph_add_before(
            g, n, OP_scaled_dot_product_attention, 11,
            (Arg[]){a[0], a[1], a[2], a[3], arg_float(g, 0), a[4], a[5], arg_bool(g, grouped), a[6], a[7], a[8]},
            "attention", err);
        const char *name = n->out[0]->name;
        if (!(ok = y != NULL)) break;
        graph_replace_uses(g, n->out[0], y->out[0]);
        graph_remove(g, n);
        ok = graph_rename(g, y->out[0], name, err);
    }
    mem_free(uses);
    return ok;
}

/* ------------------------------------------------------------------ sequences of different lengths */

/* Of each of n rows of sequences that begin at the offsets: its sequence, and its place from that one's end */
static bool places(Lower *L, Value *offsets, Expr *n, Value **sequence, Value **place)
{
    Arg first = arg_int(L->g, 0), no = arg_bool(L->g, false), yes = arg_bool(L->g, true);
    Value *at = AS(L, arange, arg_expr(n));
    TRY(at && (offsets = lower_cast(L, offsets, DT_I64)));
    Value *next = AS(L, searchsorted_Tensor, arg_value(offsets), arg_value(at), no, yes);
    Expr *most = ex_sub(L->ex, offsets->dim[0], ex_int(L->ex, 1));
    Value *last = AS(L, clamp, arg_value(next), first, arg_expr(most)); /* rows after the last sequence */
    Value *end = AS(L, index_select, arg_value(offsets), first, arg_value(last));
    *sequence = next;
    *place = AS(L, sub_Tensor, arg_value(at), arg_value(end));
    return *sequence && *place;
}

/* The window's bound i on both sides; -1: there is none. */
static bool side(Lower *L, int i, int64_t *out)
{
    const Arg *window = &L->arg[9];
    *out = -1;
    if (window->kind == ARG_NONE) return true;
    if (window->kind != ARG_EXPRS || window->n != 2 || !ex_is_int(window->es[i]))
        return lower_fail(L, 9, "expected two constant integers");
    *out = window->es[i]->i;
    return true;
}

/* As one attention under a mask: a query sees the keys of its own sequence, from `left` before to `right` after its
 * place, both sequences aligned at their ends. */
bool lower_varlen_attn(Lower *L)
{
    Value *q = lower_value(L, 0), *k = lower_value(L, 1), *x = lower_value(L, 2), *of_q, *of_k, *at_q, *at_k;
    Value *starts_q = lower_value(L, 3), *starts_k = lower_value(L, 4);
    bool causal;
    int64_t left, right;
    TRY(lower_const_bool(L, 7, &causal) && side(L, 0, &left) && side(L, 1, &right));
    if (!starts_k || !lower_is_none(L, 11) || !lower_is_none(L, 12))
        return fail(L->err, E_UNSUPPORTED, "attention over pages of a cache (block_table, seqused_k)");
    if (!q || !k || !x || q->rank != 3 || k->rank != 3 || x->rank != 3 || !starts_q || starts_q->rank != 1 ||
        starts_k->rank != 1)
        return lower_fail(L, 0, "expected three tensors of rank 3 and offsets of rank 1");
    TRY(places(L, starts_q, q->dim[0], &of_q, &at_q) && places(L, starts_k, k->dim[0], &of_k, &at_k));
    if (causal) right = 0;
    Arg column = arg_int(L->g, 1);
    Value *mask = AS(L, eq_Tensor, arg_value(AS(L, unsqueeze, arg_value(of_q), column)), arg_value(of_k));
    Value *ahead = AS(L, sub_Tensor, arg_value(at_k), arg_value(AS(L, unsqueeze, arg_value(at_q), column)));
    if (right >= 0)
        mask = AS(L, logical_and, arg_value(mask), arg_value(AS(L, le_Scalar, arg_value(ahead), arg_int(L->g, right))));
    if (left >= 0)
        mask = AS(L, logical_and, arg_value(mask), arg_value(AS(L, ge_Scalar, arg_value(ahead), arg_int(L->g, -left))));
    Value *part[3] = {q, k, x};
    for (int i = 0; i < 3; i++) {
        part[i] = lower_permute(L, part[i], (int[]){1, 0, 2});
        TRY(part[i] = AS(L, unsqueeze, arg_value(part[i]), arg_int(L->g, 0)));
    }
    Value *y = AS(L, scaled_dot_product_attention, arg_value(part[0]), arg_value(part[1]), arg_value(part[2]),
                  arg_value(mask), arg_float(L->g, 0), arg_bool(L->g, false), L->arg[8],
                  arg_bool(L->g, q->dim[1] != k->dim[1]));
    y = AS(L, squeeze_dim, arg_value(y), arg_int(L->g, 0));
    y = y ? lower_permute(L, y, (int[]){1, 0, 2}) : NULL;
    return y && lower_return_values(L, 3, (Value *[3]){y});
}
