/* Sizes, masks and targets, on the graph after import. Contract in check_graph.h.
 *
 *     node 'view': reshape to (2, s0//2, 32), where its input's axis 0 is the variable size s0      Q402
 *     node 'softmax': the mask from input 'keep' fills in -inf                                     Q501
 */
#include "verify/check_graph.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "facts/views.h"

static const char *node_place(Check *c, const Node *n) { return check_place(c, "node '%.200s'", n->name); }

static bool varies(const Graph *g, const Expr *e)
{
    int64_t lo, hi;
    if (ex_is_const(e)) return false;
    ex_range(g->ex, e, &lo, &hi);
    return lo != hi;
}

static const char *expr_text(const Graph *g, const Expr *e, char *out, size_t n)
{
    Buf b = {0};
    ex_print(g->ex, e, &b);
    snprintf(out, n, "%.*s", (int)(b.len < n ? b.len : n - 1), b.data ? b.data : "");
    buf_free(&b);
    return out;
}

static const char *shape_text(const Graph *g, int rank, Expr *const *dim, char *out, size_t n)
{
    Buf b = {0};
    buf_puts(&b, "(");
    for (int i = 0; i < rank && b.len < n; i++) {
        buf_puts(&b, i ? ", " : "");
        ex_print(g->ex, dim[i], &b);
    }
    buf_puts(&b, rank == 1 ? ",)" : ")");
    snprintf(out, n, "%.*s", (int)(b.len < n ? b.len : n - 1), b.data ? b.data : "");
    buf_free(&b);
    return out;
}

/* ------------------------------------------------------------------ declared against inferred */

/* Do the two differ at some sizes in range? Both are evaluated with every symbol at a few values of its range. */
static bool differ(const Graph *g, const Expr *a, const Expr *b, char *where, size_t n)
{
    Binding bind;
    Err e;
    bool found = false;
    if (!binding_init(&bind, g->ex, &e)) return false;
    for (int round = 0; round < 4 && !found; round++) {
        for (int i = 0; i < expr_symbol_count(g->ex); i++) {
            const Symbol *s = expr_symbol(g->ex, i);
            int64_t lo = s->lo < 2 ? 2 : s->lo, v = s->hint;
            bool near = (round == 0 && s->has_hint) || add_i64(lo, (int64_t)round * (7 + 2 * i), &v);
            if (!near || v > s->hi) v = s->hi;
            binding_set(&bind, i, v);
        }
        int64_t x, y;
        if (!ex_eval_i64(g->ex, a, &bind, &x, &e) || !ex_eval_i64(g->ex, b, &bind, &y, &e) || x == y || x < 0) continue;
        snprintf(where, n, "%lld and %lld", (long long)x, (long long)y);
        found = true;
    }
    binding_free(&bind);
    return found;
}

void check_declared_type(Check *c, const Graph *g, const char *node, const Value *v, DType t, int rank,
                         Expr *const *dim)
{
    const char *place = check_place(c, "node '%.200s'", node);
    char a[200], b[200], where[64];
    if (t != v->dtype)
        check_add(c, Q(201), place, "declared as %s, the op gives %s", dtype_name(t), dtype_name(v->dtype));
    if (rank != v->rank) {
        check_add(c, Q(202), place, "declared as %s, the op gives %s", shape_text(g, rank, dim, a, sizeof a),
                  shape_text(g, v->rank, v->dim, b, sizeof b));
        return;
    }
    for (int i = 0; i < rank; i++) {
        if (dim[i] == v->dim[i]) continue;
        if (ex_is_int(dim[i]) && ex_is_int(v->dim[i])) {
            check_add(c, Q(203), place, "size %d is declared as %lld, the op gives %lld", i, (long long)dim[i]->i,
                      (long long)v->dim[i]->i);
        } else if (!ex_data_dependent(g->ex, dim[i]) && !ex_data_dependent(g->ex, v->dim[i]) &&
                   differ(g, dim[i], v->dim[i], where, sizeof where)) {
            check_add(c, Q(208), place, "size %d is declared as %s, the op gives %s: %s, for example", i,
                      expr_text(g, dim[i], a, sizeof a), expr_text(g, v->dim[i], b, sizeof b), where);
        }
    }
}

/* ------------------------------------------------------------------ sizes */

static bool polynomial(const Expr *e)
{
    if (e->kind == EX_INT || e->kind == EX_SYM) return true;
    if (e->kind != EX_ADD && e->kind != EX_MUL) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!polynomial(e->args[i])) return false;
    return true;
}

/* A requirement that sizes of inputs equal a number: s0 == 2, s0*s1 == 10. */
static void check_pinned(Check *c, const Graph *g)
{
    char text[200];
    for (int i = 0; i < g->nrequire; i++) {
        const Expr *e = g->require[i].cond;
        const char *where = g->require[i].where;
        if (e->kind != EX_EQ || !strncmp(where, "guard", 5) || !strncmp(where, "range", 5) ||
            ex_data_dependent(g->ex, e))
            continue;
        bool number = ex_is_int(e->args[0]) || ex_is_int(e->args[1]);
        const Expr *sizes = ex_is_int(e->args[0]) ? e->args[1] : e->args[0];
        if (number && polynomial(sizes) && varies(g, sizes))
            check_add(c, Q(401), check_place(c, "%.200s", where), "it works only where %s",
                      expr_text(g, e, text, sizeof text));
    }
}

static void check_reshape(Check *c, const Graph *g, const Node *n)
{
    const Value *in = n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL, *out = n->out[0];
    char a[200], b[200];
    if (!in || in->rank < 2 || out->rank < 2 || !ex_is_int(out->dim[0]) || !varies(g, in->dim[0]) ||
        in->dim[0]->kind != EX_SYM)
        return;
    bool taken_up = false;
    for (int i = 1; i < out->rank; i++) taken_up |= ex_mentions(out->dim[i], in->dim[0]);
    bool folded = out->dim[0]->i > 1 || (in->rank > 2 && varies(g, in->dim[1]) && out->rank > 2 &&
                                         out->dim[1] == ex_mul(g->ex, in->dim[0], in->dim[1]));
    if (taken_up && folded)
        check_add(c, Q(402), node_place(c, n), "%s becomes %s: axis 0 is %lld where the input has the variable size %s",
                  shape_text(g, in->rank, in->dim, a, sizeof a), shape_text(g, out->rank, out->dim, b, sizeof b),
                  (long long)out->dim[0]->i, expr_symbol(g->ex, (int)in->dim[0]->i)->name);
}

static void check_inputs(Check *c, const Graph *g, int ninput)
{
    bool any = false, batch = false;
    for (int i = 0; i < ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++) {
            bool v = varies(g, g->input[i]->dim[d]);
            any |= v;
            batch |= v && d == 0;
        }
    if (!any) {
        if (ninput) check_add(c, Q(404), "model", "every size of the inputs is fixed");
        return;
    }
    for (int i = 0; i < ninput; i++) {
        const Value *v = g->input[i];
        char text[200];
        bool own = false;
        for (int d = 1; d < v->rank; d++) own |= varies(g, v->dim[d]);
        if (v->rank < 2 || varies(g, v->dim[0]) || !(own || batch)) continue;
        check_add(c, Q(403), check_place(c, "input '%.200s'", v->name), "its axis 0 is always %lld: %s",
                  (long long)v->dim[0]->i, shape_text(g, v->rank, v->dim, text, sizeof text));
    }
}

/* Token ids as long as a table of positions: the length was fixed by the model, or by the example that filled it. */
static void check_lengths(Check *c, const Graph *g, int ninput)
{
    for (int i = 0; i < ninput; i++) {
        const Value *v = g->input[i];
        if (v->rank != 2 || !dtype_is_int(v->dtype) || !varies(g, v->dim[0]) || !ex_is_int(v->dim[1]) ||
            v->dim[1]->i < 2)
            continue;
        for (int k = 0; k < g->nweight; k++) {
            const Tensor *t = g->weight[k]->data;
            bool table = t->rank >= 2 && (t->shape[0] == v->dim[1]->i ||
                                          (t->rank == 3 && t->shape[0] == 1 && t->shape[1] == v->dim[1]->i));
            if (!table) continue;
            check_add(c, Q(403), check_place(c, "input '%.200s'", v->name),
                      "its axis 1 is always %lld, the length of '%.200s'", (long long)v->dim[1]->i,
                      g->weight[k]->fqn ? g->weight[k]->fqn : g->weight[k]->name);
            break;
        }
    }
}

/* Largest element of an index that counts along a size: arange(end), plus numbers, through views and casts. NULL when
 * it is something else. */
static const Expr *largest_index(const Graph *g, const Value *v, int depth)
{
    v = through_casts(v);
    if (!v || v->kind != V_NODE || depth > 12) return NULL;
    const Node *n = v->def;
    const Arg *a = n->arg;
    if (n->op->id == OP_arange_start_step && a[0].kind == ARG_EXPR && a[1].kind == ARG_EXPR && ex_equals_int(a[2].e, 1))
        return ex_sub(g->ex, a[1].e, ex_int(g->ex, 1));
    if (n->op->id == OP_add_Tensor && a[0].kind == ARG_VALUE && a[1].kind == ARG_EXPR && a[1].e->kind == EX_INT) {
        const Expr *e = largest_index(g, a[0].v, depth + 1);
        return e ? ex_add(g->ex, (Expr *)(uintptr_t)e, a[1].e) : NULL;
    }
    return NULL;
}

static void check_table(Check *c, const Graph *g, const Node *n)
{
    const Value *table = n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL,
                *index = n->arg[1].kind == ARG_VALUE ? n->arg[1].v : NULL;
    const Expr *last = table && table->kind == V_WEIGHT && index ? largest_index(g, index, 0) : NULL;
    int64_t lo, hi;
    char text[200];
    if (!last || ex_is_int(last) || ex_data_dependent(g->ex, last)) return;
    ex_range(g->ex, last, &lo, &hi);
    if (hi < table->data->shape[0]) return;
    char most[32] = "without a limit";
    if (hi != INT64_MAX) snprintf(most, sizeof most, "up to %lld", (long long)hi);
    check_add(c, Q(405), node_place(c, n), "the index goes to %s, %s; table '%.200s' has %lld rows",
              expr_text(g, last, text, sizeof text), most, table->fqn ? table->fqn : table->name,
              (long long)table->data->shape[0]);
}

/* ------------------------------------------------------------------ masks */

enum { MAX_WALK = 4000 };

typedef struct Walk {
    const Graph *g;
    unsigned char *seen; /* by value id */
    int left;
    const Value *input; /* an input whose elements are read */
    bool minus_inf, finite, product;
} Walk;

static void see_number(Walk *w, const Arg *a)
{
    if (a->kind != ARG_EXPR || a->e->kind != EX_FLOAT) return;
    w->minus_inf |= isinf(a->e->f) && a->e->f < 0;
    w->finite |= !isinf(a->e->f) && a->e->f <= -1e3;
}

/* A constant tensor of few elements, as lifted from code. */
static void see_weight(Walk *w, const Value *v)
{
    int64_t n = v->data ? tensor_numel(v->data) : 0;
    if (!v->data || !v->data->data || !dtype_is_float(v->dtype) || n > 1 << 20) return;
    for (int64_t i = 0; i < n && !(w->minus_inf && w->finite); i++) {
        double x = tensor_get(v->data, i);
        w->minus_inf |= isinf(x) && x < 0;
        w->finite |= !isinf(x) && x <= -1e3;
    }
}

/* What a value is made of: the inputs whose elements (not sizes) it reads, the numbers that it fills in,
 * whether a product is below. */
static void walk(Walk *w, const Value *v)
{
    if (!v || w->seen[v->id] || w->left-- <= 0) return;
    w->seen[v->id] = 1;
    if (v->kind == V_INPUT && !w->input) w->input = v;
    if (v->kind == V_WEIGHT) see_weight(w, v);
    if (v->kind != V_NODE) return;
    const Node *n = v->def;
    w->product |= n->op->id == OP_matmul || n->op->id == OP_linear || n->op->id == OP_convolution;
    if (w->product) return;
    bool shape_only = n->op->id == OP_full_like || n->op->id == OP_zeros_like || n->op->id == OP_ones_like;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        see_number(w, &n->arg[i]);
        if (n->arg[i].kind == ARG_VALUE && !(shape_only && i == 0)) walk(w, n->arg[i].v);
        for (int k = 0; n->arg[i].kind == ARG_VALUES && k < n->arg[i].n; k++) walk(w, n->arg[i].vs[k]);
    }
}

static Walk made_of(Check *c, const Graph *g, const Value *v)
{
    Walk w = {.g = g, .left = MAX_WALK, .seen = mem_zeroed((size_t)g->next_id + 1, 1)};
    if (w.seen) walk(&w, v);
    else c->failed = true;
    mem_free(w.seen);
    w.seen = NULL;
    return w;
}

static void report_mask(Check *c, const Node *softmax, const Walk *mask, bool as_given)
{
    const char *place = node_place(c, softmax);
    if (mask->minus_inf)
        check_add(c, Q(501), place, "the mask from input '%.200s' fills in -inf before the softmax", mask->input->name);
    else if (mask->finite)
        check_add(c, Q(502), place, "the mask from input '%.200s' fills in a large finite number before the softmax",
                  mask->input->name);
    else if (as_given)
        check_add(c, Q(501), place,
                  "input '%.200s' is added to the scores as it is given: a row of -inf in it becomes NaN",
                  mask->input->name);
}

/* Scores under a softmax: each mask that is added or filled in. */
static void check_scores(Check *c, const Graph *g, const Node *softmax, const Value *v, int depth)
{
    v = through_casts(v);
    if (!v || v->kind != V_NODE || depth > 8) return;
    const Node *n = v->def;
    if (n->op->id == OP_where_self) {
        Walk cond = made_of(c, g, n->arg[0].v);
        for (int k = 1; k <= 2; k++) {
            if (n->arg[k].kind != ARG_VALUE) {
                see_number(&cond, &n->arg[k]);
                continue;
            }
            Walk side = made_of(c, g, n->arg[k].v);
            if (side.product) check_scores(c, g, softmax, n->arg[k].v, depth + 1);
            else {
                cond.minus_inf |= side.minus_inf;
                cond.finite |= side.finite;
            }
        }
        if (cond.input && !cond.product) report_mask(c, softmax, &cond, false);
        return;
    }
    if (n->op->id == OP_mul_Tensor || n->op->id == OP_div_Tensor) {
        for (int k = 0; k < 2; k++)
            if (n->arg[k].kind == ARG_VALUE) check_scores(c, g, softmax, n->arg[k].v, depth + 1);
        return;
    }
    if (n->op->id != OP_add_Tensor && n->op->id != OP_sub_Tensor) return;
    for (int k = 0; k < 2; k++) {
        if (n->arg[k].kind != ARG_VALUE) continue;
        Walk side = made_of(c, g, n->arg[k].v);
        const Value *root = through_casts(n->arg[k].v);
        if (side.product) check_scores(c, g, softmax, n->arg[k].v, depth + 1);
        else if (side.input)
            report_mask(c, softmax, &side, root && root->kind == V_INPUT && dtype_is_float(root->dtype));
    }
}

/* Does something after the softmax put 0 where a row allowed nothing: where(all masked, 0, softmax)? */
static bool guarded(const Graph *g, const Node *softmax)
{
    for (const Node *n = softmax->next; n; n = n->next) {
        if (n->op->id != OP_where_self && n->op->id != OP_nan_to_num) continue;
        for (int k = 0; k < n->op->schema->nparams; k++)
            if (n->arg[k].kind == ARG_VALUE && through_casts(n->arg[k].v) == softmax->out[0]) return true;
    }
    (void)g;
    return false;
}

static void check_softmax(Check *c, const Graph *g, const Node *n)
{
    Walk below = made_of(c, g, n->arg[0].v);
    if (below.product && !guarded(g, n)) check_scores(c, g, n, n->arg[0].v, 0);
}

static void check_attention(Check *c, const Graph *g, const Node *n)
{
    const Value *q = n->arg[0].v;
    if (n->arg[3].kind == ARG_VALUE && n->arg[3].v) {
        Walk mask = made_of(c, g, n->arg[3].v);
        if (mask.input && !mask.product)
            check_add(c, Q(503), node_place(c, n), "its mask comes from input '%.200s'", mask.input->name);
        const Value *m = n->arg[3].v;
        bool one = m->rank >= 2 && ex_equals_int(m->dim[m->rank - 2], 1) && !ex_equals_int(q->dim[q->rank - 2], 1);
        if (one && c->targets & TARGET_ORT)
            check_add(c, Q(605), node_place(c, n), "its mask has one row for all queries");
    }
    if (!(c->targets & TARGET_TENSORRT) || q->rank < 2) return;
    const Expr *d = q->dim[q->rank - 1];
    if (ex_is_int(d) && (d->i < 16 || d->i > 256 || d->i % 8))
        check_add(c, Q(604), node_place(c, n), "head size %lld; TensorRT fuses multiples of 8 from 16 to 256",
                  (long long)d->i);
    if (q->dtype == DT_F32)
        check_add(c, Q(604), node_place(c, n), "float32; TensorRT fuses float16, bfloat16 and int8");
}

/* ------------------------------------------------------------------ targets */

static bool has_dtype(unsigned target, DType t)
{
    if (dtype_is_complex(t)) return false;
    if (target == TARGET_ORT) return t != DT_BF16;
    if (target != TARGET_TENSORRT) return true;
    return t == DT_F32 || t == DT_F64 || t == DT_F16 || t == DT_BF16 || t == DT_I32 || t == DT_I64 || t == DT_I8 ||
           t == DT_U8 || t == DT_BOOL || t == DT_F8E4M3;
}

static void check_dtypes(Check *c, const Node *n)
{
    if (c->targets & TARGET_TENSORRT && n->nout && n->out[0]->dtype == DT_F64)
        check_add(c, Q(607), node_place(c, n), "%s gives f64, which TensorRT takes as f32", n->op->name);
    if (n->op->flags & OPF_VIEW || n->op->id == OP_to_copy)
        return; /* moves and casts know more types than arithmetic */
    for (unsigned t = TARGET_ORT; t <= TARGET_TENSORRT; t <<= 1)
        for (int k = 0; c->targets & t && k < n->nout; k++)
            if (!has_dtype(t, n->out[k]->dtype)) {
                check_add(c, Q(602), node_place(c, n), "%s gives %s, which %s %s not compute", n->op->name,
                          dtype_name(n->out[k]->dtype),
                          t == TARGET_ORT        ? "ONNX Runtime's CPU provider"
                          : t == TARGET_OPENVINO ? "OpenVINO"
                                                 : "TensorRT",
                          "does");
                break;
            }
}

static void check_fill(Check *c, const Node *n)
{
    for (int k = 0; n->nout && n->out[0]->dtype == DT_F16 && k < n->op->schema->nparams; k++) {
        const Arg *a = &n->arg[k];
        if (a->kind == ARG_EXPR && a->e->kind == EX_FLOAT && isfinite(a->e->f) && fabs(a->e->f) > 65504)
            check_add(c, Q(504), node_place(c, n), "%g is infinite in f16", a->e->f);
    }
}

void check_graph(Check *c, Graph *g, int ninput)
{
    check_inputs(c, g, ninput);
    check_lengths(c, g, ninput);
    check_pinned(c, g);
    for (const Node *n = g->first; n; n = n->next) {
        if (n->op->id == OP_reshape) check_reshape(c, g, n);
        if (n->op->id == OP_embedding) check_table(c, g, n);
        if (n->op->id == OP_softmax_int || n->op->id == OP_exp) check_softmax(c, g, n); /* exp: a decomposed softmax */
        if (n->op->id == OP_scaled_dot_product_attention) check_attention(c, g, n);
        check_fill(c, n);
        check_dtypes(c, n);
    }
}
