/* Scales and shifts per channel become part of the product before them: (W x + b) * s + t = (s W) x + (s b + t). New
 * weights are computed in double from the old ones. Contract in folding.h.
 */
#include "rewrite/families/folding.h"
#include <math.h>
#include <string.h>
#include "rewrite/families/weights.h"

enum { MAX_CHANNELS = 1 << 20 };

typedef struct Product {
    const Node *node;
    const Value *y;
    Value *w, *b;     /* b: NULL when there is none */
    int axis;         /* of the channels in y */
    int64_t n;        /* channels */
    double *s, *t;    /* scale and shift of the channels, in scratch memory */
    Arg scale, shift; /* the same as values or numbers, of one axis or none; none: 1 and 0 */
    const char *bias; /* how a new bias is made of weights: products that share theirs may add different numbers */
} Product;

static bool product_of_value(Rewrite *rw, const Arg *a, Product *p)
{
    const Node *node = a->kind == ARG_VALUE ? a->v->def : NULL;
    if (!node || (node->op->id != OP_linear && node->op->id != OP_convolution))
        return rewrite_refuse(rw, "no product with weights");
    bool conv = node->op->id == OP_convolution;
    *p = (Product){.node = node,
                   .y = a->v,
                   .w = node->arg[1].v,
                   .b = node->arg[2].kind == ARG_VALUE ? node->arg[2].v : NULL,
                   .axis = conv ? 1 : a->v->rank - 1,
                   .bias = "folded bias"};
    if (p->y->dtype != DT_F32 && p->y->dtype != DT_F64)
        return rewrite_refuse(rw, "%s weights would be rounded once more", dtype_name(p->y->dtype));
    if (p->y->rank < (conv ? 3 : 1) || p->w->rank < 2 || !ex_is_int(p->y->dim[p->axis]))
        return rewrite_refuse(rw, "the channels have no known number");
    p->n = p->y->dim[p->axis]->i;
    if (p->n < 1 || p->n > MAX_CHANNELS) return rewrite_refuse(rw, "%lld channels", (long long)p->n);
    p->s = arena_array(rw->scratch, double, p->n);
    p->t = arena_array(rw->scratch, double, p->n);
    if (!p->s || !p->t) {
        rw->hard = true;
        return oom(rw->err);
    }
    for (int64_t c = 0; c < p->n; c++) p->s[c] = 1;
    return true;
}

/* v per channel of y: it broadcasts to y and varies along the channels only. */
static bool per_channel(Rewrite *rw, const Product *p, const Value *v, double *out)
{
    if (v->rank > p->y->rank || v->dtype != p->y->dtype)
        return rewrite_refuse(rw, "'%s' is not constant along the channels", v->name);
    for (int i = 0; i < v->rank; i++)
        if (i + p->y->rank - v->rank != p->axis && !is_one(v->dim[i]))
            return rewrite_refuse(rw, "'%s' varies along other axes than the channels", v->name);
    return weight_numbers(rw, v, p->n, out);
}

/* The output channel of each element of a convolution's weight: axis 0, or group and axis 1 of a transposed one. */
static void scale_weight(const Product *p, Tensor *w)
{
    bool transposed = p->node->op->id == OP_convolution && p->node->arg[6].e->i != 0;
    int64_t inner = 1, outer = w->shape[0], channels = w->shape[1], groups = 1;
    for (int i = 2; i < w->rank; i++) inner *= w->shape[i];
    if (transposed) groups = p->node->arg[8].e->i;
    size_t size = dtype_size(w->dtype);
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < channels; k++) {
            double s = p->s[transposed ? i / (outer / groups) * channels + k : i];
            for (int64_t j = 0; j < inner; j++) {
                char *at = (char *)w->data + (size_t)((i * channels + k) * inner + j) * size;
                store_f64(w->dtype, at, load_f64(w->dtype, at) * s);
            }
        }
}

/* A value that varies along the channels at most, as one axis. */
static Value *one_axis(Rewrite *rw, Value *v)
{
    int64_t n = 1;
    for (int i = 0; v && i < v->rank; i++) n *= v->dim[i]->i;
    return v && v->rank == 1 ? v : rw_reshape(rw, v, 1, (Expr *[]){ex_int(rw->ex, n)});
}

static Arg as_vector(Rewrite *rw, Arg a)
{
    if (a.kind == ARG_VALUE) a.v = one_axis(rw, a.v);
    return a.kind == ARG_VALUE && !a.v ? arg_none() : a;
}

/* The scale where the weight has its channels: axis 0, or groups of axis 1 of a transposed convolution. */
static Value *scale_of_weight(Rewrite *rw, const Product *p)
{
    bool transposed = p->node->op->id == OP_convolution && p->node->arg[6].e->i != 0;
    Expr *one = ex_int(rw->ex, 1), *dim[MAX_RANK];
    Value *s = p->scale.v;
    for (int i = 0; i < p->w->rank; i++) dim[i] = one;
    if (!transposed || is_one(s->dim[0])) {
        dim[0] = s->dim[0];
        return rw_reshape(rw, s, p->w->rank, dim);
    }
    int64_t groups = p->node->arg[8].e->i, inputs = p->w->dim[0]->i, channels = p->w->dim[1]->i;
    Expr *each[3] = {ex_int(rw->ex, groups), one, ex_int(rw->ex, channels)};
    s = rw_reshape(rw, s, 3, each);
    each[1] = ex_int(rw->ex, inputs / groups);
    s = rw_expand(rw, s, 3, each);
    dim[0] = ex_int(rw->ex, inputs);
    dim[1] = each[2];
    return rw_reshape(rw, s, p->w->rank, dim);
}

static Value *weight_meaning(Rewrite *rw, const Product *p)
{
    if (p->scale.kind == ARG_NONE) return NULL;
    return rw_binary(rw, OP_mul_Tensor, p->w,
                     p->scale.kind == ARG_VALUE ? arg_value(scale_of_weight(rw, p)) : p->scale);
}

static Value *bias_meaning(Rewrite *rw, const Product *p)
{
    Value *b = p->b;
    if (b && p->scale.kind != ARG_NONE) b = rw_binary(rw, OP_mul_Tensor, b, p->scale);
    if (p->shift.kind == ARG_NONE) return b;
    if (b) return rw_binary(rw, OP_add_Tensor, b, p->shift);
    Expr *n = ex_int(rw->ex, p->n);
    if (p->shift.kind == ARG_VALUE) return rw_expand(rw, p->shift.v, 1, &n);
    return RW(rw, full, arg_exprs(rw->g, 1, &n), p->shift, arg_dtype(p->y->dtype));
}

static Value *new_weight(Rewrite *rw, const Product *p, int n, Value *const *from)
{
    Value *v = weight_made(rw, "folded weight", n, from);
    if (v) return v;
    TRY_NULL(weight_own(rw, p->w));
    Tensor *t = weight_room(rw, p->w->dtype, p->w->rank, p->w->data->shape);
    TRY_NULL(t);
    tensor_copy(t, p->w->data);
    scale_weight(p, t);
    v = weight_add(rw, "folded weight", n, from, weight_sibling(rw, p->w, "folded_weight"), t);
    if (v) weight_means(rw, v, weight_meaning(rw, p));
    return v;
}

static Value *new_bias(Rewrite *rw, const Product *p, int n, Value *const *from)
{
    Value *v = weight_made(rw, p->bias, n, from);
    double *b = arena_array(rw->scratch, double, p->n);
    if (v) return v;
    if (p->b) TRY_NULL(weight_own(rw, p->b) && weight_numbers(rw, p->b, p->n, b));
    Tensor *t = weight_room(rw, p->y->dtype, 1, &p->n);
    TRY_NULL(t);
    for (int64_t c = 0; c < p->n; c++)
        store_f64(t->dtype, (char *)t->data + (size_t)c * dtype_size(t->dtype), b[c] * p->s[c] + p->t[c]);
    v = weight_add(rw, p->bias, n, from, weight_sibling(rw, p->w, "folded_bias"), t);
    if (v) weight_means(rw, v, bias_meaning(rw, p));
    return v;
}

/* The product with its scale and shift inside; from[]: what they are made of, the product's own weights first. */
static bool fold(Rewrite *rw, const Product *p, bool scale, bool shift, int n, Value *const *from, Arg *out)
{
    Arg arg[16];
    memcpy(arg, p->node->arg, (size_t)p->node->op->schema->nparams * sizeof *arg);
    Value *w = scale ? new_weight(rw, p, n, from) : NULL, *b = NULL;
    if (scale) TRY(w);
    if (shift || (scale && p->b)) TRY(b = new_bias(rw, p, n, from));
    if (w) arg[1] = arg_value(w);
    if (b) arg[2] = arg_value(b);
    Value *y = rw_add(rw, p->node->op->id, p->node->op->schema->nparams, arg);
    *out = arg_value(y);
    return y != NULL;
}

/* scale = weight / sqrt(var + eps), shift = bias - mean scale */
static void norm_meaning(Rewrite *rw, Product *p, const Arg *a)
{
    Value *root = RW(rw, sqrt, arg_value(rw_binary(rw, OP_add_Tensor, a[4].v, a[5])));
    Value *scale = !root                    ? NULL
                   : a[1].kind == ARG_VALUE ? rw_binary(rw, OP_div_Tensor, a[1].v, arg_value(root))
                                            : RW(rw, reciprocal, arg_value(root));
    Value *shift = scale ? rw_binary(rw, OP_mul_Tensor, a[3].v, arg_value(scale)) : NULL;
    if (shift)
        shift = a[2].kind == ARG_VALUE ? rw_binary(rw, OP_sub_Tensor, a[2].v, arg_value(shift))
                                       : RW(rw, neg, arg_value(shift));
    if (!shift) return;
    p->scale = arg_value(scale);
    p->shift = arg_value(shift);
}

bool make_folded_norm(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Product p;
    double eps;
    double *numbers[4]; /* weight, bias, mean, variance */
    TRY(n == 6 && product_of_value(rw, &a[0], &p));
    if (p.axis != 1) return rewrite_refuse(rw, "the norm is over another axis than the channels of the product");
    if (!constant_of(rw->g, &a[5], &eps)) return rewrite_refuse(rw, "the epsilon is not a known number");
    Value *from[6] = {p.w, p.b};
    for (int i = 0; i < 4; i++) {
        if (!(numbers[i] = arena_array(rw->scratch, double, p.n))) return false;
        from[2 + i] = a[1 + i].kind == ARG_VALUE ? a[1 + i].v : NULL;
        if (from[2 + i]) TRY(weight_numbers(rw, from[2 + i], p.n, numbers[i]));
    }
    for (int64_t c = 0; c < p.n; c++) {
        p.s[c] = (from[2] ? numbers[0][c] : 1) / sqrt(numbers[3][c] + eps);
        p.t[c] = (from[3] ? numbers[1][c] : 0) - numbers[2][c] * p.s[c];
        if (!isfinite(p.s[c]) || !isfinite(p.t[c])) return rewrite_refuse(rw, "the variance is not positive");
    }
    norm_meaning(rw, &p, a);
    return fold(rw, &p, true, true, 6, from, out);
}

/* A number stands for all channels. */
static bool numbers_of(Rewrite *rw, const Product *p, const Arg *a, double *out)
{
    double x;
    if (a->kind == ARG_VALUE) return per_channel(rw, p, a->v, out);
    if (!constant_of(rw->g, a, &x) || !isfinite(x)) return rewrite_refuse(rw, "not a known number");
    for (int64_t c = 0; c < p->n; c++) out[c] = x;
    return true;
}

bool make_folded_scale(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Product p;
    TRY(n == 3 && product_of_value(rw, &a[0], &p) && numbers_of(rw, &p, &a[1], p.s));
    for (int64_t c = 0; c < p.n && a[2].e->i; c++) p.s[c] = 1 / p.s[c];
    for (int64_t c = 0; c < p.n; c++)
        if (!isfinite(p.s[c])) return rewrite_refuse(rw, "a channel is divided by 0");
    p.scale = as_vector(rw, a[1]);
    if (a[2].e->i && p.scale.kind == ARG_VALUE) p.scale.v = RW(rw, reciprocal, p.scale);
    if (a[2].e->i && p.scale.kind == ARG_EXPR) p.scale = arg_float(rw->g, p.s[0]);
    if (p.scale.kind == ARG_VALUE && !p.scale.v) p.scale = arg_none();
    return fold(rw, &p, true, false, 3, (Value *[]){p.w, p.b, a[1].kind == ARG_VALUE ? a[1].v : NULL}, out);
}

bool make_folded_shift(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Product p;
    TRY(n == 3 && product_of_value(rw, &a[0], &p));
    const Value *v = a[1].kind == ARG_VALUE ? a[1].v : NULL;
    bool subtract = a[2].e->i != 0;
    if (!p.b && !subtract && v && v->kind == V_WEIGHT && v->dtype == p.y->dtype && v->rank == 1 &&
        p.axis == p.y->rank - 1 && v->dim[0] == p.y->dim[p.axis]) {
        Value *y = RW(rw, linear, p.node->arg[0], p.node->arg[1], a[1]); /* the bias that it is */
        *out = arg_value(y);
        return y != NULL;
    }
    TRY(numbers_of(rw, &p, &a[1], p.t));
    for (int64_t c = 0; c < p.n && subtract; c++) p.t[c] = -p.t[c];
    if (!v) p.bias = arena_printf(rw->g->arena, "folded bias of %a", p.t[0]);
    else if (subtract) p.bias = "folded bias less";
    if (!p.bias) return rw->hard = true, oom(rw->err);
    p.shift = as_vector(rw, a[1]);
    if (subtract && p.shift.kind == ARG_VALUE) p.shift.v = RW(rw, neg, p.shift);
    if (p.shift.kind == ARG_EXPR) p.shift = arg_float(rw->g, p.t[0]);
    if (p.shift.kind == ARG_VALUE && !p.shift.v) p.shift = arg_none();
    return fold(rw, &p, false, true, 3, (Value *[]){p.w, p.b, a[1].kind == ARG_VALUE ? a[1].v : NULL}, out);
}
