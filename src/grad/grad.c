/* The engine: which values are between the loss and the gradients that are requested, and the walk back over them.
 * Contract in grad.h.
 *
 * A value's gradient is complete when all that use it have sent theirs: nodes are visited last to first, so at a node's
 * turn that is so. Parts of a value (from slices and selections) are collected first: three slices of a projection give
 * one cat, not three padded tensors and two sums.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/number.h"
#include "grad/grad_impl.h"
#include "ir/bodies.h"

static const struct {
    GradFn *fn;
    const char *text, *kind;
    OpId op;
} rows[OP_COUNT] = {
#define GRAD(f, text_) .fn = grad_##f, .text = text_, .kind = #f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

bool gradient_known(OpId op, const char **kind)
{
    const char *k = rows[op].kind;
    bool named = k && (!strcmp(k, "formula") || !strcmp(k, "follows") || !strcmp(k, "zero") || !strcmp(k, "never"));
    *kind = !k || named ? k : "code";
    return k != NULL;
}

/* ------------------------------------------------------------------ sending gradients */

static bool differentiable(DType t) { return dtype_is_float(t) || dtype_is_complex(t); }

/* Integers between a quantizer and its inverse stand for floats and carry their gradient: these nodes pass it on. */
static bool straight_through(const Node *n)
{
    bool view = n->op->flags & OPF_VIEW && n->arg[0].kind == ARG_VALUE && n->arg[0].v->dtype == n->out[0]->dtype;
    return view || n->op->id == OP_quantize_linear || n->op->id == OP_dequantize_linear || n->op->id == OP_clamp;
}

/* A gradient in v's dtype; that of an integer is the float's for which it stands. */
static Value *as_gradient(Grad *d, const Value *v, Value *grad)
{
    return differentiable(v->dtype) ? gd_cast(d, grad, v->dtype) : grad;
}

static bool marked(const Grad *d, const Value *v) { return v && v->id < d->nleaf && d->leaf[v->id].wanted; }

bool gd_wants(const Grad *d, const Value *v)
{
    return marked(d, v) && (differentiable(v->dtype) || !d->node || straight_through(d->node));
}

int gd_dim(const Grad *d, int i, int rank)
{
    const Arg *a = &d->node->arg[i];
    int64_t k = a->kind == ARG_EXPR ? a->e->i : 0;
    return (int)(k < 0 ? k + (rank ? rank : 1) : k);
}

bool gd_send(Grad *d, Value *v, Value *grad)
{
    if (!grad) return d->err->code == E_OK ? oom(d->err) : false;
    if (!gd_wants(d, v)) return true;
    Leaf *l = &d->leaf[v->id];
    grad = as_gradient(d, v, gd_sum_to(d, grad, v->rank, v->dim));
    if (!l->user) l->user = d->node;
    l->grad = l->grad ? gd_plus(d, l->grad, grad) : grad;
    return l->grad != NULL;
}

bool gd_send_part(Grad *d, Value *v, int axis, Expr *start, Expr *n, Value *grad)
{
    if (!grad) return d->err->code == E_OK ? oom(d->err) : false;
    if (!gd_wants(d, v)) return true;
    Leaf *l = &d->leaf[v->id];
    Part *p = arena_new(d->g->arena, Part);
    if (!p) return oom(d->err);
    *p = (Part){l->parts, axis, start, n, as_gradient(d, v, grad)};
    if (!l->user) l->user = d->node;
    l->parts = p;
    return p->grad != NULL;
}

/* Parts that cover an axis from end to end, one after the other, as one tensor; *left: the others.
 * NULL: they do not. */
static Value *joined(Grad *d, const Value *v, Part **parts)
{
    int axis = (*parts)->axis, n = 0, all = 0;
    for (Part *p = *parts; p; p = p->next) all++;
    Value **piece = arena_array(d->g->arena, Value *, all);
    if (!piece) return NULL;
    for (Expr *at = gd_int(d, 0); at != v->dim[axis];) {
        Part *next = *parts;
        while (next && (next->axis != axis || next->start != at || ex_equals_int(next->n, 0))) next = next->next;
        if (!next || n == all) return NULL;
        piece[n++] = next->grad;
        at = ex_add(d->ex, at, next->n);
    }
    if (n != all) return NULL; /* some overlap */
    *parts = NULL;
    return n == 1 ? piece[0] : GD(d, cat, arg_values(d->g, n, piece), arg_int(d->g, axis));
}

static Value *padded(Grad *d, const Value *v, const Part *p)
{
    Expr *pad[2 * MAX_RANK], *after = ex_sub(d->ex, ex_sub(d->ex, v->dim[p->axis], p->start), p->n);
    int k = v->rank - 1 - p->axis;
    for (int i = 0; i < 2 * k; i++) pad[i] = gd_int(d, 0);
    pad[2 * k] = p->start;
    pad[2 * k + 1] = after;
    return GD(d, constant_pad_nd, V(p->grad), arg_exprs(d->g, 2 * k + 2, pad), arg_float(d->g, 0));
}

/* The gradient of v, now that all that use it have sent theirs; NULL with no error: none. */
static Value *complete(Grad *d, Value *v)
{
    Leaf *l = &d->leaf[v->id];
    if (l->parts) {
        Value *all = joined(d, v, &l->parts);
        for (; l->parts && d->err->code == E_OK; l->parts = l->parts->next) {
            Value *one = padded(d, v, l->parts);
            all = all ? gd_plus(d, all, one) : one;
        }
        l->parts = NULL;
        l->grad = l->grad && all ? gd_plus(d, l->grad, all) : all;
    }
    return l->grad;
}

/* ------------------------------------------------------------------ errors */

/* "histc, mul_1, sum_2": from this node to the loss */
static void path_to_loss(const Grad *d, Buf *out)
{
    const Node *n = d->node;
    for (int k = 0; n && k < 12; k++) {
        buf_printf(out, "%s%s", k ? " -> " : "", n->name);
        const Node *next = NULL;
        for (int i = 0; i < n->nout && !next; i++) next = d->leaf[n->out[i]->id].user;
        n = next;
    }
    buf_puts(out, n ? " -> ..." : " -> the loss");
}

bool gd_refuse(Grad *d, const char *fmt, ...)
{
    char why[400];
    Buf path = {0};
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    path_to_loss(d, &path);
    fail(d->err, E_UNSUPPORTED, "node '%s' (%s) has no gradient: %s; its path to the loss is %s", d->node->name,
         d->node->op->name, why, path.data ? path.data : "?");
    buf_free(&path);
    return false;
}

bool grad_never(Grad *d) { return gd_refuse(d, "%s", d->text); }
bool grad_zero(Grad *d)
{
    (void)d;
    return true;
}

bool grad_follows(Grad *d) { return gd_send(d, d->beside[d->node->out[0]->id], d->grad); }

/* ------------------------------------------------------------------ what is between */

typedef struct Wants {
    Grad *d;
    bool any, integers; /* integers count, too */
} Wants;

static void look(void *user, Value **slot)
{
    Wants *w = user;
    w->any |= marked(w->d, *slot) && (w->integers || differentiable((*slot)->dtype));
}

static bool reaches(Grad *d, const Node *n)
{
    Wants w = {d, false, straight_through(n)};
    node_each_operand((Node *)n, look, &w);
    return w.any;
}

/* Wanted are floats that depend on a wanted leaf, and integers that stand for such floats; rows whose derivative is
 * zero everywhere stop it. */
void gd_spread(Grad *d)
{
    for (const Node *n = d->g->first; n; n = n->next) {
        if (rows[n->op->id].fn == grad_zero || !reaches(d, n)) continue;
        for (int i = 0; i < n->nout; i++)
            d->leaf[n->out[i]->id].wanted = differentiable(n->out[i]->dtype) || straight_through(n);
    }
}

static Value *find_input(const Graph *g, const char *name)
{
    for (int i = 0; i < g->ninput; i++)
        if (!strcmp(value_label(g->input[i]), name) || !strcmp(g->input[i]->name, name)) return g->input[i];
    return NULL;
}

static bool want_inputs(Grad *d)
{
    const Graph *g = d->g;
    for (int i = 0; i < g->ninput; i++)
        d->leaf[g->input[i]->id].wanted = g->input[i]->trains && differentiable(g->input[i]->dtype);
    for (int k = 0; k < d->o->ninputs; k++) {
        const char *name = d->o->inputs[k];
        Value *v = find_input(g, name);
        if (v && !differentiable(v->dtype))
            return fail(d->err, E_USAGE, "input '%s' is %s: only floats have gradients", name, dtype_name(v->dtype));
        if (!v && strcmp(name, "*")) return fail(d->err, E_USAGE, "the model has no input '%s'", name);
        for (int i = 0; i < g->ninput; i++)
            if (g->input[i] == v || (!v && differentiable(g->input[i]->dtype))) d->leaf[g->input[i]->id].wanted = true;
    }
    return true;
}

static bool want_parameters(Grad *d)
{
    const Graph *g = d->g;
    for (int i = 0; i < g->nweight && !d->o->inputs_only; i++) {
        const Value *v = g->weight[i];
        if (v->weight != W_PARAMETER || v->frozen) continue;
        if (!differentiable(v->dtype))
            return fail(d->err, E_USAGE,
                        "parameter '%s' is %s: only floats have gradients; export it with requires_grad_(False), or as "
                        "a buffer",
                        v->fqn ? v->fqn : v->name, dtype_name(v->dtype));
        d->leaf[v->id].wanted = true;
    }
    return true;
}

/* A parameter with several names is used under the first of them alone: its gradient is one sum. */
static bool join_names(Grad *d)
{
    Graph *g = d->g;
    Value **first = arena_array(g->arena, Value *, g->nweight + 1);
    d->first = arena_array(g->arena, Value *, g->next_id + 1);
    if (!first || !d->first || !graph_first_names(g, first)) return oom(d->err);
    for (int i = 0; i < g->nweight; i++) d->first[g->weight[i]->id] = first[i];
    graph_replace_all(g, d->first);
    return true;
}

static Output *find_loss(Grad *d)
{
    const Graph *g = d->g;
    Buf names = {0};
    int tensors = 0, last = 0;
    for (int i = 0; i < g->noutput; i++)
        if (!g->output[i].number) tensors += 1, last = i;
    if (!d->o->loss && tensors == 1) return &g->output[last];
    for (int i = 0; i < g->noutput && d->o->loss; i++)
        if (!strcmp(g->output[i].name, d->o->loss) || !strcmp(output_label(&g->output[i]), d->o->loss) ||
            (g->output[i].value_name && !strcmp(g->output[i].value_name, d->o->loss)))
            return &g->output[i];
    for (int i = 0; i < g->noutput && i < 12; i++) buf_printf(&names, "%s%s", i ? ", " : "", g->output[i].name);
    if (!d->o->loss)
        fail(d->err, E_USAGE, "which output is the loss? The model has %s", names.data ? names.data : "none");
    else
        fail(d->err, E_USAGE, "the model has no output '%s' to take as the loss; it has %s", d->o->loss,
             names.data ? names.data : "none");
    buf_free(&names);
    return NULL;
}

static bool check_loss(Grad *d, const Output *o)
{
    const Value *v = o->value;
    Buf dims = {0};
    bool one = true;
    for (int i = 0; i < v->rank; i++) {
        if (i) buf_puts(&dims, ", ");
        ex_print(d->ex, v->dim[i], &dims);
        one = one && ex_equals_int(v->dim[i], 1);
    }
    if (!one)
        fail(d->err, E_USAGE,
             "output '%s' is not a loss: its shape is (%s), expected a scalar; let the model end with a mean or a sum",
             o->name, dims.data ? dims.data : "");
    else if (!dtype_is_float(v->dtype))
        fail(d->err, E_USAGE, "output '%s' is not a loss: it is %s, expected a float", o->name, dtype_name(v->dtype));
    else if (!d->leaf[v->id].wanted) {
        one = false;
        fail(d->err, E_USAGE, "the loss '%s' does not depend on any %s", o->name,
             d->o->ninputs ? "parameter or input whose gradient is requested" : "parameter that requires a gradient");
    }
    buf_free(&dims);
    return one && dtype_is_float(v->dtype);
}

/* ------------------------------------------------------------------ the walk */

static bool visit(Grad *d, const Node *n)
{
    Value **grads = arena_array(d->g->arena, Value *, n->nout + 1);
    if (!grads) return oom(d->err);
    d->node = n;
    d->grad = NULL;
    d->grads = grads;
    for (int i = 0; i < n->nout; i++) {
        grads[i] = n->out[i]->id < d->nleaf ? complete(d, n->out[i]) : NULL;
        if (!d->grad) d->grad = grads[i];
    }
    if (d->err->code != E_OK) return false;
    if (!d->grad || !reaches(d, n)) return true;
    d->text = rows[n->op->id].text;
    if (!rows[n->op->id].fn) return gd_refuse(d, "there is no rule for it");
    if (rows[n->op->id].fn(d)) return true;
    return d->err->code != E_UNSUPPORTED &&
           within(d->err, "the gradient of node '%s'", n->name); /* gd_refuse has named it */
}

bool gd_begin(Grad *d)
{
    TRY(d->o->decompose == DECOMPOSE_NONE || decompose_attention(d));
    TRY(recurrent_loops(d) && formulas_beside(d));
    d->nleaf = d->g->next_id;
    d->leaf = arena_array(d->g->arena, Leaf, d->nleaf + 1);
    return d->leaf || oom(d->err);
}

bool gd_walk_back(Grad *d)
{
    for (const Node *n = d->g->last, *before; n; n = before) {
        before = n->prev;
        if (n->nout && n->out[0]->id < d->nleaf) TRY(visit(d, n));
    }
    return true;
}

Value *gd_gradient_of(Grad *d, Value *v)
{
    Value *grad = complete(d, v);
    return grad || d->err->code != E_OK ? grad : gd_zeros(d, v->dtype, v->rank, v->dim);
}

/* of: what has the gradient, or the first name of it. */
static bool add_gradient(Grad *d, Value *of, const char *name)
{
    d->node = NULL;
    Value *grad = complete(d, of->kind == V_WEIGHT ? d->first[of->id] : of);
    if (!grad) return d->err->code == E_OK;
    char *output = arena_printf(d->g->arena, "grad.%s", name);
    while (output && map_has(&d->outputs, output))
        output = arena_printf(d->g->arena, "%s_%d", output, d->g->noutput);
    if (!output || !map_put(&d->outputs, output, of)) return oom(d->err);
    TRY(graph_add_output(d->g, output, grad, d->err));
    d->g->output[d->g->noutput - 1].gradient_of = of;
    return true;
}

static bool differentiate(Grad *d)
{
    Graph *g = d->g;
    Output *loss = join_names(d) ? find_loss(d) : NULL;
    TRY(loss && want_parameters(d) && want_inputs(d));
    gd_spread(d);
    TRY(check_loss(d, loss));
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].gradient_of || g->output[i].loss)
            return fail(d->err, E_USAGE, "the model has gradients already: output '%s'", g->output[i].name);
    loss->loss = true;
    Value *v = loss->value;
    d->leaf[v->id].grad = gd_full(d, 1, v->dtype, v->rank, v->dim);
    TRY(gd_walk_back(d));
    for (int i = 0; i < g->noutput; i++)
        if (!map_put(&d->outputs, g->output[i].name, g->output[i].value)) return oom(d->err);
    for (int i = 0; i < g->nweight; i++)
        if (d->leaf[g->weight[i]->id].wanted)
            TRY(add_gradient(d, g->weight[i], g->weight[i]->fqn ? g->weight[i]->fqn : g->weight[i]->name));
    for (int i = 0; i < g->ninput; i++)
        if (d->leaf[g->input[i]->id].wanted) TRY(add_gradient(d, g->input[i], value_label(g->input[i])));
    graph_drop_detach(g);
    g->out_spec = NULL; /* of the model's own results: now they are a tuple of tensors */
    graph_dce(g);
    return true;
}

bool graph_joint(Graph *g, const JointOptions *o, Err *err)
{
    Err own = {0};
    Grad d = {.g = g, .ex = g->ex, .err = &own, .o = o};
    bool ok = bodies_lift(g, true, &own) && gd_begin(&d) && differentiate(&d);
    map_free(&d.outputs);
    const Node *border = g->last;
    while (border && border->nout && border->out[0]->id >= d.nleaf) border = border->prev;
    if (ok && border) ok = graph_recompute(g, border, o->recompute, o->sizes, &own);
    if (ok && o->decompose == DECOMPOSE_CORE) ok = decompose_core(&d);
    if (!ok) *err = own;
    return ok;
}
