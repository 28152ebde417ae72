/* Choosing sites and points. Contract in place.h. */
#include "quantize/place.h"
#include <string.h>
#include "base/vec.h"
#include "facts/constant.h"
#include "facts/views.h"
#include "kernel/integer.h"
#include "quantize/integers.h"

static const QuantizeTarget targets[] = {
#define TARGET(text, ...) {.name = text, __VA_ARGS__},
#include "quantize/targets.def"
#undef TARGET
};

const QuantizeTarget *quantize_target(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i].name, name) || (targets[i].newest && !strcmp(targets[i].newest, name)))
            return &targets[i];
    return NULL;
}

const char *quantize_target_listed(int i)
{
    return (size_t)i < sizeof targets / sizeof *targets ? targets[i].name : NULL;
}

DType quantize_type(const QuantizeTarget *t, bool asymmetric)
{
    return t->float8 ? DT_F8E4M3 : asymmetric ? DT_U8 : DT_I8;
}

/* ------------------------------------------------------------------ points */

/* The point of what v shows, times factor; -1: out of memory. Float8 is not moved: ONNX has no transpose of it. */
static int point_of(Placement *p, Value *v, double factor)
{
    Value *base = p->options.target->float8 ? v : value_below(v, quantize_moves, NULL);
    for (int i = 0; i < p->npoints; i++)
        if (p->point[i].value == base && p->point[i].factor == factor) return i;
    Point *grown = vec_room(p->arena, p->point, p->npoints, sizeof *grown);
    if (!grown) return -1;
    p->point = grown;
    p->point[p->npoints] = (Point){.value = base, .factor = factor};
    return p->npoints++;
}

static bool is_float_tensor(const Arg *a) { return a->kind == ARG_VALUE && a->v->dtype == DT_F32; }

static bool matches(const char *pattern, const char *name)
{
    for (; *pattern && *pattern != '*'; pattern++, name++)
        if (!*name || (*pattern != '?' && *pattern != *name)) return false;
    if (!*pattern) return !*name;
    do
        if (matches(pattern + 1, name)) return true;
    while (*name++);
    return false;
}

/* Of an op with its namespace alone, so that *linear* stays a name. */
static bool names_op(const char *pattern, const char *op)
{
    const size_t space = strcspn(op, ".") + 1;
    return !strncmp(pattern, op, space) && matches(pattern, op);
}

static bool names_site(const char *pattern, const Site *s)
{
    return matches(pattern, s->name) || (s->weight && matches(pattern, s->weight)) ||
           names_op(pattern, s->node->op->name);
}

static bool skipped(const Placement *p, const Site *s)
{
    for (int i = 0; i < p->options.nskip; i++)
        if (names_site(p->options.skip[i], s)) return true;
    return false;
}

/* ------------------------------------------------------------------ sites */

/* permute(w, [1, 0]) of a matrix */
static bool turns(const Node *n)
{
    return n->op->id == OP_permute && n->out[0]->rank == 2 && ex_equals_int(n->arg[1].es[0], 1);
}

const Value *quantize_weight(const Graph *g, const Node *n, Tensor *as)
{
    Err why = {0};
    if (n->arg[1].kind != ARG_VALUE) return NULL;
    const Value *w = n->arg[1].v;
    bool turned = false;
    for (; w->def && turns(w->def); turned = !turned) w = w->def->arg[0].v;
    if (w->kind != V_WEIGHT || !w->data || !constant_weight(g, w, &why)) return NULL;
    *as = *w->data;
    for (int i = 0; turned && i < 2; i++) {
        as->shape[i] = w->data->shape[1 - i];
        as->stride[i] = w->data->stride[1 - i];
    }
    return w;
}

static const char *refuse_product(const Placement *p, const Value *w, int64_t K, int64_t N)
{
    const QuantizeTarget *t = p->options.target;
    if (w->dtype != DT_F32) return arena_printf(p->arena, "its weight is %s", dtype_name(w->dtype));
    if (K < t->inner)
        return arena_printf(p->arena, "it sums %lld products, %s takes %lld and more", (long long)K, t->name,
                            (long long)t->inner);
    if (N < t->outer)
        return arena_printf(p->arena, "it has %lld results, %s takes %lld and more", (long long)N, t->name,
                            (long long)t->outer);
    if (t->deepest && K > t->deepest)
        return arena_printf(p->arena, "it sums %lld products, %s takes at most %lld", (long long)K, t->name,
                            (long long)t->deepest);
    return NULL;
}

/* A linear layer, or a product with a matrix that is a weight. */
static void look_at_linear(Placement *p, Site *s, const Value *w, const Tensor *as)
{
    const Node *n = s->node;
    bool linear = n->op->id == OP_linear;
    s->kind = SITE_LINEAR;
    s->weight = w->fqn;
    s->why = !is_float_tensor(&n->arg[0]) ? "its input is not float32"
             : !linear && p->options.trainable && p->options.weight_bits
                 ? "its weight is not that of a linear layer: PyTorch has no quantizer by blocks for it"
                 : refuse_product(p, w, as->shape[linear], as->shape[!linear]);
}

static void look_at_convolution(Placement *p, Site *s, const Value *w)
{
    const Node *n = s->node;
    int64_t channels = w->data->shape[1], groups = ex_is_int(n->arg[8].e) ? n->arg[8].e->i : 0;
    const QuantizeTarget *t = p->options.target;
    const int64_t results = w->data->shape[0], sums = tensor_numel(w->data) / (results ? results : 1);
    const bool depthwise = groups > 1 && groups == results && channels == 1;
    s->kind = SITE_CONVOLUTION;
    s->weight = w->fqn;
    if (!t->channels) s->why = arena_printf(p->arena, "%s has no integer convolution", t->name);
    else if (n->arg[6].e->i) s->why = "it is transposed";
    else if (!is_float_tensor(&n->arg[0]) || w->dtype != DT_F32) s->why = "its input or weight is not float32";
    else if (results < t->results)
        s->why = arena_printf(p->arena, "it has %lld results, %s takes %lld and more", (long long)results, t->name,
                              (long long)t->results);
    else if (t->ungrouped && groups != 1 && !depthwise)
        s->why = arena_printf(p->arena, "it has groups of several channels, %s takes none", t->name);
    else if (!depthwise && sums < t->window)
        s->why = arena_printf(p->arena, "it sums %lld products, %s takes %lld and more", (long long)sums, t->name,
                              (long long)t->window);
    else if (depthwise && t->ungrouped && sums > DEPTHWISE_DEEPEST)
        s->why = arena_printf(p->arena, "it sums more than %d products", DEPTHWISE_DEEPEST);
    else if (t->deepest && sums > t->deepest)
        s->why = arena_printf(p->arena, "it sums more than %lld products", (long long)t->deepest);
    else if (channels < t->channels || (groups != 1 && t->channels > 1 && channels % 4))
        s->why = arena_printf(p->arena, "it has %lld channels a group, %s takes %lld and more", (long long)channels,
                              t->name, (long long)t->channels);
}

static const char *refuse_length(const Placement *p, const Expr *n, const char *what)
{
    const QuantizeTarget *t = p->options.target;
    int64_t low, high;
    ex_range(p->g->ex, n, &low, &high);
    if (!t->sequence || high <= t->sequence) return NULL;
    if (low > t->sequence)
        return arena_printf(p->arena, "%lld %s, %s fuses at most %lld", (long long)low, what, t->name,
                            (long long)t->sequence);
    return arena_printf(p->arena, "up to %lld %s, %s fuses at most %lld: export with a smaller maximum",
                        (long long)high, what, t->name, (long long)t->sequence);
}

static void look_at_attention(Placement *p, Site *s)
{
    const Node *n = s->node;
    const QuantizeTarget *t = p->options.target;
    const Expr *D = n->arg[0].v->dim[3], *E = n->arg[2].v->dim[3];
    bool masked = n->arg[3].kind == ARG_VALUE || n->arg[5].e->i || n->arg[9].kind == ARG_EXPR ||
                  n->arg[10].kind == ARG_EXPR,
         head = !*t->heads;
    s->kind = SITE_ATTENTION;
    for (int i = 0; i < TARGET_HEADS; i++) head |= t->heads[i] && ex_equals_int(D, t->heads[i]);
    if (!t->attention) s->why = arena_printf(p->arena, "%s multiplies attention in floats", t->name);
    else if (!is_float_tensor(&n->arg[0]) || !is_float_tensor(&n->arg[1]) || !is_float_tensor(&n->arg[2]))
        s->why = "queries, keys and values are not float32";
    else if (ex_number(n->arg[4].e) > 0) s->why = "it has dropout";
    else if (masked && !t->masks) s->why = arena_printf(p->arena, "it has a mask, %s fuses none", t->name);
    else if (!ex_is_int(D) || !ex_is_int(E)) s->why = "the head size varies";
    else if (!head || (*t->heads && D != E))
        s->why = arena_printf(p->arena, "head sizes %lld and %lld, %s fuses equal ones of 16, 32 and 64",
                              (long long)D->i, (long long)E->i, t->name);
    else if (t->head_most && (D->i < t->head_least || D->i > t->head_most))
        s->why = arena_printf(p->arena, "its head size is %lld, %s fuses %lld to %lld", (long long)D->i, t->name,
                              (long long)t->head_least, (long long)t->head_most);
    else if (t->scale_first && n->arg[6].kind == ARG_EXPR && !ex_is_const(n->arg[6].e)) s->why = "its scale varies";
    else if (!(s->why = refuse_length(p, n->arg[0].v->dim[2], "queries")))
        s->why = refuse_length(p, n->arg[1].v->dim[2], "keys");
}

/* The convolution that makes v and is quantized; NULL: there is none. */
static const Node *convolution_of(const Placement *p, const Value *v)
{
    for (int i = 0; i < p->nsites; i++)
        if (p->site[i].kind == SITE_CONVOLUTION && !p->site[i].why && p->site[i].node == v->def) return v->def;
    return NULL;
}

static bool has_point(const Placement *p, const Value *v)
{
    bool has = false;
    for (int i = 0; i < p->npoints; i++) has |= p->point[i].value == v;
    return has;
}

/* a + b of one shape: the operand that is quantized on its own, of which a product makes the other; -1: none. */
static int residual_operand(const Placement *p, const Node *n)
{
    if (!is_float_tensor(&n->arg[0]) || !is_float_tensor(&n->arg[1])) return -1;
    const Value *a = n->arg[0].v, *b = n->arg[1].v;
    if (a->rank != b->rank || a == b) return -1;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return -1;
    if (p->options.target->pictures) {
        bool ca = convolution_of(p, a), cb = convolution_of(p, b);
        return ca && (cb || has_point(p, b)) ? 1 : cb && has_point(p, a) ? 0 : -1;
    }
    bool pa = a->def && a->def->op->flags & OPF_PRODUCT, pb = b->def && b->def->op->flags & OPF_PRODUCT;
    return pa == pb ? -1 : pa ? 1 : 0;
}

static bool look_at(Placement *p, Node *n, Site *s)
{
    *s = (Site){.node = n, .name = n->nout ? n->out[0]->name : n->name, .point = {-1, -1, -1}};
    bool is = false, still = !p->options.dynamic && !p->options.weight_bits;
    const bool product = n->op->id == OP_linear || (n->op->id == OP_matmul && n->arg[1].v->rank == 2);
    Tensor as;
    const Value *w = product || (still && n->op->id == OP_convolution) ? quantize_weight(p->g, n, &as) : NULL;
    if (w && product) {
        look_at_linear(p, s, w, &as);
        is = true;
    } else if (w) {
        look_at_convolution(p, s, w);
        is = true;
    } else if (still && n->op->id == OP_scaled_dot_product_attention) {
        look_at_attention(p, s);
        is = true;
    } else if (still && (p->options.target->residuals || p->options.target->pictures) && n->op->id == OP_add_Tensor &&
               residual_operand(p, n) >= 0) {
        s->kind = SITE_RESIDUAL;
        is = true;
    }
    if (is && skipped(p, s)) s->why = "it was asked to be left";
    return is;
}

/* The factor of scores, as a number. */
static double score_factor(const Node *n)
{
    return n->arg[6].kind == ARG_EXPR ? ex_number(n->arg[6].e) : 1 / __builtin_sqrt((double)n->arg[0].v->dim[3]->i);
}

static bool points_of(Placement *p, Site *s, Err *err)
{
    bool all = true;
    if (s->why || p->options.dynamic || p->options.weight_bits) return true;
    if (s->kind == SITE_RESIDUAL) {
        int k = residual_operand(p, s->node);
        return (s->point[k] = point_of(p, s->node->arg[k].v, 1)) >= 0 || oom(err);
    }
    int n = s->kind != SITE_ATTENTION ? 1 : p->options.target->probabilities ? 3 : 2;
    if (s->kind == SITE_ATTENTION && p->options.target->scale_first) s->factor = score_factor(s->node);
    for (int i = 0; i < n && all; i++)
        all = (s->point[i] = point_of(p, s->node->arg[i].v, !i && s->factor != 0 ? s->factor : 1)) >= 0;
    return all || oom(err);
}

static bool whole(const Graph *g, Err *err)
{
    if (g->bodies) return fail(err, E_UNSUPPORTED, "a model with loops or branches is not quantized");
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->id == OP_quantize_linear || n->op->id == OP_dequantize_linear ||
            n->op->flags & OPF_INTEGERS)
            return fail(err, E_UNSUPPORTED, "the model is quantized already: node '%s' is %s; give the one of floats",
                        n->name, n->op->name);
    return true;
}

/* Names that are wrong would leave in silence a model that is not what was asked for. */
static bool all_named(const Placement *p, Err *err)
{
    for (int i = 0; i < p->options.nskip; i++) {
        bool any = false;
        for (int k = 0; k < p->nsites && !any; k++) any = names_site(p->options.skip[i], &p->site[k]);
        if (!any)
            return fail(err, E_USAGE,
                        "skip: none of the %d layers that could be quantized, and no weight or op of theirs, is called "
                        "'%.200s'",
                        p->nsites, p->options.skip[i]);
    }
    return true;
}

bool quantize_any(const Placement *p, Err *err)
{
    const Site *first = p->nsites ? &p->site[0] : NULL;
    for (int i = 0; i < p->nsites; i++) {
        if (!p->site[i].why && p->site[i].kind != SITE_RESIDUAL) return true;
        if (first->kind != SITE_LINEAR && p->site[i].kind == SITE_LINEAR) first = &p->site[i];
    }
    if (first)
        return fail(err, E_UNSUPPORTED, "nothing to quantize: %s: %s", first->name,
                    first->why ? first->why : "a sum alone");
    const bool still = !p->options.dynamic && !p->options.weight_bits;
    for (const Node *n = p->g->first; n && p->options.dynamic; n = n->next)
        if (n->op->id == OP_convolution)
            return fail(err, E_UNSUPPORTED, "nothing to quantize: the model has no linear layers; its convolutions "
                        "need scales from calibration, not ones that each run finds");
    return fail(err, E_UNSUPPORTED, "nothing to quantize: the model has no linear layers%s",
                still ? " and no attention" : "");
}

bool quantize_place(Graph *g, const QuantizeOptions *o, Placement *p, Err *err)
{
    *p = (Placement){.g = g, .options = *o};
    TRY(whole(g, err));
    if (!(p->arena = arena_create(0))) return oom(err);
    for (Node *n = g->first; n; n = n->next) {
        Site s;
        if (!look_at(p, n, &s)) continue;
        Site *grown = vec_room(p->arena, p->site, p->nsites, sizeof *grown);
        if (!grown) return oom(err);
        p->site = grown;
        TRY(points_of(p, &s, err));
        p->site[p->nsites++] = s;
    }
    TRY(!p->nsites || all_named(p, err));
    return quantize_any(p, err);
}

void placement_free(Placement *p)
{
    arena_destroy(p->arena);
    *p = (Placement){0};
}
