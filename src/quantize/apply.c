/* Putting quantizers where place.c chose them. Contract in place.h.
 *
 *     linear(x, w)      ->  linear(dequantize(view(quantize(x))), dequantize(w8, scales, axis 0))
 *     sdpa(q, k, v)     ->  sdpa_quantized(dequantize(...) of each, scale_p 1/127)
 */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "quantize/place.h"
#include "quantize/smooth.h"
#include "quantize/weights.h"

enum { MAX_ARGS = 32 };

typedef struct Made { /* a value made for another one */
    const Value *of;
    Value *v;
    int point;
} Made;

typedef struct MadeList {
    Made *made;
    int n;
} MadeList;

typedef struct Apply {
    Placement *p;
    Graph *g;
    Value *zero[3];         /* of i8, u8 and f8e4m3fn without an offset */
    MadeList weights, ints; /* weights as floats again; values as integers */
    MadeList floats;        /* values as floats again */
    MadeList scales;        /* by point: of = its value */
    Err *err;
} Apply;

static Value *find(const MadeList *l, const Value *of, int point)
{
    for (int i = 0; i < l->n; i++)
        if (l->made[i].of == of && l->made[i].point == point) return l->made[i].v;
    return NULL;
}

static Value *keep(Apply *a, MadeList *l, const Value *of, int point, Value *v)
{
    Made *grown = v ? vec_room(a->p->arena, l->made, l->n, sizeof *grown) : NULL;
    if (!grown) return v ? (oom(a->err), NULL) : NULL;
    l->made = grown;
    l->made[l->n++] = (Made){of, v, point};
    return v;
}

/* ------------------------------------------------------------------ new weights */

static bool taken(const Graph *g, const char *fqn)
{
    for (int i = 0; i < g->nweight; i++)
        if (g->weight[i]->fqn && !strcmp(g->weight[i]->fqn, fqn)) return true;
    return false;
}

Value *quantize_buffer(Graph *g, const char *name, DType t, int rank, const int64_t *shape, Err *err)
{
    Tensor *x = arena_new(g->arena, Tensor);
    size_t bytes;
    if (!x || !shape_bytes(t, rank, shape, &bytes, err)) return x ? NULL : (oom(err), NULL);
    void *data = arena_alloc(g->arena, bytes + 64, 1);
    const char *fqn = name ? arena_strdup(g->arena, name) : NULL;
    for (int k = 1; fqn && taken(g, fqn); k++) fqn = arena_printf(g->arena, "%s_%d", name, k);
    char *plain = fqn && data ? arena_printf(g->arena, "b_%s", fqn) : NULL;
    if (!plain) return oom(err), NULL;
    for (char *c = plain; *c; c++)
        if (*c == '.') *c = '_';
    *x = tensor_of(t, rank, shape, data);
    memset(data, 0, bytes);
    Value *v = graph_add_weight(g, plain, fqn, x);
    if (!v) return oom(err), NULL;
    v->weight = W_BUFFER;
    v->persistent = true;
    return v;
}

static Value *buffer(Apply *a, const char *name, DType t, int rank, const int64_t *shape)
{
    return quantize_buffer(a->g, name, t, rank, shape, a->err);
}

static void *elements(const Value *v) { return v->data->data; }

static Value *scalar(Apply *a, const char *name, double x)
{
    Value *v = buffer(a, name, DT_F32, 0, NULL);
    if (v) *(float *)elements(v) = (float)x;
    return v;
}

static Value *zero_point(Apply *a, const char *name, DType t, int zero)
{
    Value **shared = &a->zero[t == DT_U8 ? 1 : t == DT_I8 ? 0 : 2];
    if (!zero) {
        if (!*shared) *shared = buffer(a, arena_printf(a->g->arena, "zero_%s", dtype_name(t)), t, 0, NULL);
        return *shared;
    }
    Value *v = buffer(a, name, t, 0, NULL);
    if (v) store_i64(t, elements(v), zero);
    return v;
}

/* ------------------------------------------------------------------ weights */

/* The scale of channel c along `axis`: the largest element is `top`. All zeros: 1. */
static double channel_scale(const Tensor *w, int axis, int64_t c, double top)
{
    int64_t inner = 1, n = w->shape[axis], outer = 1;
    double most = 0;
    for (int i = 0; i < axis; i++) outer *= w->shape[i];
    for (int i = axis + 1; i < w->rank; i++) inner *= w->shape[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double x = fabs(tensor_get(w, (o * n + c) * inner + i));
            most = x > most ? x : most;
        }
    return most > 0 ? (double)(float)(most / top) : 1;
}

static bool finite_weight(const Tensor *w, const char *name, Err *err)
{
    int64_t n = tensor_numel(w);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(tensor_get(w, i)))
            return fail(err, E_UNSUPPORTED, "weight '%s': element %lld is not finite, and cannot be quantized", name,
                        (long long)i);
    return true;
}

int site_bits(const Placement *p, const Site *s) { return s->eight ? 8 : p->options.weight_bits; }

/* The node in front of which what reads v may stand. */
static Node *after(const Graph *g, const Value *v) { return v->def ? v->def->next : g->first; }

typedef struct Weight {
    Value *read; /* by the product: the file's weight, or that transposed */
    Tensor as;
    const char *name;
} Weight;

static Weight weight_of(const Graph *g, const Node *n)
{
    Weight w = {.read = n->arg[1].v};
    const Value *file = quantize_weight(g, n, &w.as);
    w.name = file->fqn ? file->fqn : file->name;
    return w;
}

/* A weight's integers, or, trainable (ints is NULL), the quantizer of its floats; and as floats again. block: elements
 * of axis that share a scale, 0: an index of axis has one. */
static Value *weight_back(Apply *a, Value *w, Value *ints, Value *scales, Arg zeros, int axis, int64_t block, int bits)
{
    Graph *g = a->g;
    if (!ints) {
        Node *q = graph_add_before(g, after(g, w), OP_quantize_linear, 9,
                                   (Arg[]){arg_value(w), arg_value(scales), zeros, arg_dtype(DT_I8), arg_int(g, axis),
                                           arg_int(g, block), arg_bool(g, true), arg_none(), arg_bool(g, true)},
                                   w->name, a->err);
        if (q && bits == 4)
            q = graph_add_before(g, q->next, OP_clamp, 3, (Arg[]){arg_value(q->out[0]), arg_int(g, -8), arg_int(g, 7)},
                                 w->name, a->err);
        if (!q) return NULL;
        ints = q->out[0];
    }
    Node *back = graph_add_before(
        g, ints->def ? ints->def->next : g->first, OP_dequantize_linear, 5,
        (Arg[]){arg_value(ints), arg_value(scales), zeros, arg_int(g, axis), arg_int(g, block)}, w->name, a->err);
    a->p->weights++;
    return back ? keep(a, &a->weights, w, axis, back->out[0]) : NULL;
}

/* A weight as integers of a scale a channel along `axis`, and as floats again. One for all that read it so. */
static Value *weight_through(Apply *a, const Weight *w, int axis)
{
    Value *made = find(&a->weights, w->read, axis);
    if (made) return made;
    const char *name = w->name;
    const Tensor *from = &w->as;
    int64_t n = from->shape[axis], inner = 1, count = tensor_numel(from);
    if (!finite_weight(from, name, a->err)) return NULL;
    for (int i = axis + 1; i < from->rank; i++) inner *= from->shape[i];
    const bool whole = !a->p->options.trainable, float8 = a->p->options.target->float8;
    const DType t = float8 ? DT_F8E4M3 : DT_I8;
    const double top = dtype_highest(t);
    Value *scales = buffer(a, arena_printf(a->g->arena, "%s_scale", name), DT_F32, 1, &n),
          *zeros = scales ? buffer(a, arena_printf(a->g->arena, "%s_zero", name), t, 1, &n) : NULL,
          *ints = zeros && whole ? buffer(a, arena_printf(a->g->arena, float8 ? "%s_f8" : "%s_int8", name), t,
                                          from->rank, from->shape)
                                 : NULL;
    if (!zeros || (whole && !ints)) return NULL;
    float *s = elements(scales);
    char *y = whole ? elements(ints) : NULL;
    for (int64_t c = 0; c < n; c++) s[c] = (float)channel_scale(from, axis, c, top);
    for (int64_t i = 0; whole && i < count; i++) {
        double q = tensor_get(from, i) / (double)s[i / inner % n];
        q = float8 ? (double)(float)q : rint(q);
        store_f64(t, y + i, q > top ? top : q < -top ? -top : q);
    }
    return weight_back(a, w->read, ints, scales, arg_value(zeros), axis, 0, 8);
}

/* (N, K) floats of a weight whose rows, or columns (axis 1), are channels. */
static void channels_first(float *to, const Tensor *w, int axis)
{
    int64_t N = w->shape[axis], K = w->shape[1 - axis];
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) to[n * K + k] = (float)tensor_get(w, axis ? k * N + n : n * K + k);
}

/* What channels_first makes of integers or scales (N, K), turned back. */
static void as_it_was(void *to, const void *from, size_t size, int64_t N, int64_t K, int axis)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            memcpy((char *)to + (size_t)(axis ? k * N + n : n * K + k) * size,
                   (const char *)from + (size_t)(n * K + k) * size, size);
}

typedef struct Rounded {
    float *w, *scale;
    int8_t *q;
} Rounded;

/* The weight of site s rounded by blocks, in its own layout: its integers (NULL: not wanted) and their scales. */
static bool store_blocks(Apply *a, const Site *s, const Tensor *from, int axis, int64_t block, const Rounded *r,
                         Value *ints, Value *scales)
{
    int64_t N = from->shape[axis], K = from->shape[1 - axis];
    channels_first(r->w, from, axis);
    TRY(weights_round(&(WeightRounding){r->w, N, K, block, site_bits(a->p, s),
                                        a->p->options.method & WEIGHTS_GPTQ && s->input ? s->input->gram : NULL, r->q,
                                        r->scale},
                      a->err));
    if (ints) as_it_was(elements(ints), r->q, 1, N, K, axis);
    as_it_was(elements(scales), r->scale, sizeof *r->scale, N, (K + block - 1) / block, axis);
    return true;
}

/* A weight in 4 or 8 bits with a scale a block of its channels along `axis`, and as floats again. */
static Value *weight_in_blocks(Apply *a, const Site *s, const Weight *w, int axis)
{
    Value *made = find(&a->weights, w->read, axis);
    if (made) return made;
    const char *name = w->name;
    const Tensor *from = &w->as;
    const int64_t N = from->shape[axis], K = from->shape[1 - axis], block = weights_block(a->p->options.group, K),
                  blocks = (K + block - 1) / block, shape[2] = {axis ? blocks : N, axis ? N : blocks};
    const bool four = site_bits(a->p, s) == 4, whole = !a->p->options.trainable;
    if (!finite_weight(from, name, a->err)) return NULL;
    Value *scales = buffer(a, arena_printf(a->g->arena, "%s_scale", name), DT_F32, blocks == 1 ? 1 : 2,
                           blocks == 1 ? &N : shape),
          *ints = scales && whole ? buffer(a, arena_printf(a->g->arena, four ? "%s_int4" : "%s_int8", name),
                                           four ? DT_I4 : DT_I8, 2, from->shape)
                                  : NULL;
    Rounded r = {mem_zeroed((size_t)(N * K) + 1, sizeof *r.w), mem_zeroed((size_t)(N * blocks) + 1, sizeof *r.scale),
                 mem_zeroed((size_t)(N * K) + 1, 1)};
    bool ok = scales && (ints || !whole) && ((r.w && r.scale && r.q) || oom(a->err)) &&
              store_blocks(a, s, from, axis, block, &r, ints, scales);
    mem_free(r.w);
    mem_free(r.scale);
    mem_free(r.q);
    if (!ok) return NULL;
    return weight_back(a, w->read, ints, scales, arg_none(), blocks == 1 ? axis : 1 - axis, blocks == 1 ? 0 : block,
                       site_bits(a->p, s));
}

/* ------------------------------------------------------------------ values */

static bool scale_of_point(Apply *a, int point, Value **scale, Value **zero)
{
    const Point *p = &a->p->point[point];
    const char *name = p->value->name;
    *scale = find(&a->scales, p->value, point);
    if (!*scale) {
        *scale = scalar(a, arena_printf(a->g->arena, "%s_scale", name), p->scale.scale);
        TRY(keep(a, &a->scales, p->value, point, *scale));
        TRY(keep(a, &a->scales, p->value, -1 - point,
                 zero_point(a, arena_printf(a->g->arena, "%s_zero", name), p->scale.t, p->scale.zero)));
    }
    *zero = find(&a->scales, p->value, -1 - point);
    return true;
}

/* v as integers: its point's quantizer, under the views that lie above. */
static Value *as_integers(Apply *a, Value *v, int point)
{
    const Point *p = &a->p->point[point];
    Value *made = find(&a->ints, v, point), *scale, *zero;
    if (made) return made;
    if (v == p->value) {
        Value *x = v;
        if (p->factor != 1) {
            Node *m = graph_add_before(a->g, after(a->g, v), OP_mul_Tensor, 2,
                                       (Arg[]){arg_value(v), arg_float(a->g, p->factor)}, v->name, a->err);
            if (!m) return NULL;
            x = m->out[0];
        }
        if (!scale_of_point(a, point, &scale, &zero)) return NULL;
        Node *q = graph_add_before(a->g, after(a->g, x), OP_quantize_linear, 9,
                                   (Arg[]){arg_value(x), arg_value(scale), arg_value(zero), arg_dtype(p->scale.t),
                                           arg_int(a->g, 1), arg_int(a->g, 0), arg_bool(a->g, true), arg_none(),
                                           arg_bool(a->g, p->scale.t != DT_F8E4M3)},
                                   v->name, a->err);
        return q ? keep(a, &a->ints, v, point, q->out[0]) : NULL;
    }
    Arg arg[MAX_ARGS];
    int n = v->def->op->schema->nparams;
    memcpy(arg, v->def->arg, (size_t)n * sizeof *arg);
    if (!(arg[0].v = as_integers(a, v->def->arg[0].v, point))) return NULL;
    Node *view = graph_add_before(a->g, v->def->next, v->def->op->id, n, arg, v->name, a->err);
    return view ? keep(a, &a->ints, v, point, view->out[0]) : NULL;
}

static Value *through(Apply *a, Value *v, int point)
{
    Value *made = find(&a->floats, v, point), *scale, *zero;
    if (made) return made;
    Value *q = as_integers(a, v, point);
    if (!q || !scale_of_point(a, point, &scale, &zero)) return NULL;
    Node *back = graph_add_before(a->g, after(a->g, q), OP_dequantize_linear, 4,
                                  (Arg[]){arg_value(q), arg_value(scale), arg_value(zero), arg_int(a->g, 1)}, v->name,
                                  a->err);
    return back ? keep(a, &a->floats, v, point, back->out[0]) : NULL;
}

/* The same by a scale a token, found in the run: the largest absolute value along the last axis is 127, or, asymmetric,
 * the range is 0 to 255. */
static Value *through_tokens(Apply *a, Value *v)
{
    enum { TOKENS = -1 };
    Graph *g = a->g;
    Value *made = find(&a->floats, v, TOKENS);
    if (made) return made;
    Node *at = after(g, v), *n;
    int64_t last = -1, K = v->dim[v->rank - 1]->i;
    Arg zero = arg_none();
    DType t = a->p->options.asymmetric ? DT_U8 : DT_I8;
    Value *scale;
#define ADD(op, ...)                                                                                                   \
    ((n = graph_add_before(g, at, OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__},    \
                           v->name, a->err)) != NULL)
    if (t == DT_I8) {
        if (!ADD(abs, arg_value(v)) || !ADD(amax, arg_value(n->out[0]), arg_ints(g, 1, &last), arg_bool(g, true)) ||
            !ADD(clamp, arg_value(n->out[0]), arg_float(g, 1e-5)) ||
            !ADD(div_Tensor, arg_value(n->out[0]), arg_float(g, 127)))
            return NULL;
        scale = n->out[0];
    } else {
        if (!ADD(amin, arg_value(v), arg_ints(g, 1, &last), arg_bool(g, true)) ||
            !ADD(clamp, arg_value(n->out[0]), arg_none(), arg_float(g, 0)))
            return NULL;
        Value *low = n->out[0];
        if (!ADD(amax, arg_value(v), arg_ints(g, 1, &last), arg_bool(g, true)) ||
            !ADD(clamp, arg_value(n->out[0]), arg_float(g, 0)) ||
            !ADD(sub_Tensor, arg_value(n->out[0]), arg_value(low)) ||
            !ADD(div_Tensor, arg_value(n->out[0]), arg_float(g, 255)) ||
            !ADD(clamp, arg_value(n->out[0]), arg_float(g, 1e-7)))
            return NULL;
        scale = n->out[0];
        if (!ADD(neg, arg_value(low)) || !ADD(div_Tensor, arg_value(n->out[0]), arg_value(scale)) ||
            !ADD(round, arg_value(n->out[0])) ||
            !ADD(clamp, arg_value(n->out[0]), arg_float(g, 0), arg_float(g, 255)) ||
            !ADD(to_copy, arg_value(n->out[0]), arg_dtype(DT_U8)))
            return NULL;
        zero = arg_value(n->out[0]);
    }
    if (!ADD(quantize_linear, arg_value(v), arg_value(scale), zero, arg_dtype(t), arg_int(g, v->rank - 1),
             arg_int(g, K), arg_bool(g, true), arg_none(), arg_bool(g, true)) ||
        !ADD(dequantize_linear, arg_value(n->out[0]), arg_value(scale), zero, arg_int(g, v->rank - 1), arg_int(g, K)))
        return NULL;
#undef ADD
    return keep(a, &a->floats, v, TOKENS, n->out[0]);
}

/* ------------------------------------------------------------------ sites */

/* One quantizer for the probabilities of all attentions: 1 is the largest number of type t. */
static bool probabilities(Apply *a, DType t, Arg *scale, Arg *zero)
{
    static const Value all;
    Value *s = find(&a->scales, &all, 0);
    if (!s) TRY(s = keep(a, &a->scales, &all, 0, scalar(a, "probability_scale", 1 / dtype_highest(t))));
    Value *z = zero_point(a, "", t, 0);
    *scale = arg_value(s);
    *zero = arg_value(z);
    return z != NULL;
}

static bool apply_attention(Apply *a, Site *s)
{
    Node *n = s->node;
    Graph *g = a->g;
    const DType t = quantize_type(a->p->options.target, a->p->options.asymmetric);
    Value *in[3];
    for (int i = 0; i < 3; i++) TRY(in[i] = s->point[i] < 0 ? n->arg[i].v : through(a, n->arg[i].v, s->point[i]));
    Arg scale = s->factor != 0 ? arg_float(g, 1) : n->arg[6];
    if (!a->p->options.target->probabilities) {
        for (int i = 0; i < 3; i++) n->arg[i] = arg_value(in[i]);
        n->arg[6] = scale;
        return true;
    }
    Arg by, zero, upper = n->arg[10], none = arg_none();
    TRY(probabilities(a, t, &by, &zero));
    if (n->arg[5].e->i) {
        Expr *first = ex_int(g->ex, 0);
        upper = arg_expr(upper.kind == ARG_EXPR ? ex_min(g->ex, upper.e, first) : first);
    }
    Arg args[18] = {arg_value(in[0]),
                    arg_value(in[1]),
                    arg_value(in[2]),
                    n->arg[3],
                    by,
                    zero,
                    arg_dtype(t),
                    scale,
                    n->arg[8],
                    n->arg[9],
                    upper,
                    none,
                    none,
                    none,
                    none,
                    none,
                    none,
                    arg_bool(g, t != DT_F8E4M3)};
    Node *made = graph_add_before(g, n, OP_sdpa_quantized, 18, args, s->name, a->err);
    TRY(made);
    graph_replace_uses(g, n->out[0], made->out[0]);
    TRY(graph_rename(g, made->out[0], n->out[0]->name, a->err));
    /* values that points and views name are those of the graph as it was */
    for (int i = 0; i < a->p->npoints; i++)
        if (a->p->point[i].value == n->out[0]) a->p->point[i].value = made->out[0];
    graph_remove(g, n);
    s->node = made;
    return true;
}

/* The bias of a layer whose weight `from` became w8: what the rounding takes from the mean result is added (Nagel et
 * al. 2019, equation 17). */
static Value *corrected(Apply *a, const Site *s, const Tensor *from, const Value *back)
{
    const Node *n = s->node;
    const Tensor *ints = back->def->arg[0].v->data, *by = back->def->arg[1].v->data;
    const Value *bias = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    int64_t N = from->shape[0], K = from->shape[1], blocks = tensor_numel(by) / N, block = (K + blocks - 1) / blocks;
    Value *v = buffer(a, arena_printf(a->g->arena, "%s_corrected", bias && bias->fqn ? bias->fqn : s->name), DT_F32, 1,
                      &N);
    float *to = v ? elements(v) : NULL;
    for (int64_t j = 0; v && j < N; j++) {
        double lost = 0;
        for (int64_t k = 0; k < K; k++)
            lost += (tensor_get(from, j * K + k) -
                     tensor_get(by, j * blocks + k / block) * tensor_get(ints, j * K + k)) *
                    s->input->sum[k];
        to[j] = (float)((bias ? tensor_get(bias->data, j) : 0) + lost / (double)s->input->rows);
    }
    return v;
}

static bool can_correct(const Site *s)
{
    const Arg *bias = &s->node->arg[2];
    if (!s->correct || !s->input || !s->input->rows || s->node->op->id != OP_linear) return false;
    return bias->kind == ARG_NONE || (bias->v->kind == V_WEIGHT && bias->v->data && bias->v->dtype == DT_F32);
}

static bool apply_site(Apply *a, Site *s)
{
    Node *n = s->node;
    if (s->why) return true;
    if (s->kind == SITE_ATTENTION) return apply_attention(a, s);
    if (s->kind == SITE_RESIDUAL) {
        int k = s->point[0] >= 0 ? 0 : 1;
        Value *x = through(a, n->arg[k].v, s->point[k]);
        n->arg[k] = arg_value(x);
        return x != NULL;
    }
    const bool blocks = a->p->options.weight_bits, columns = n->op->id == OP_matmul;
    Value *x = a->p->options.dynamic ? through_tokens(a, n->arg[0].v)
               : blocks              ? n->arg[0].v
                                     : through(a, n->arg[0].v, s->point[0]);
    TRY(x);
    const Weight file = weight_of(a->g, n);
    Value *w = blocks && s->kind == SITE_LINEAR ? weight_in_blocks(a, s, &file, columns)
                                                : weight_through(a, &file, columns);
    TRY(w);
    if (can_correct(s)) {
        Value *bias = corrected(a, s, &file.as, w);
        TRY(bias);
        n->arg[2] = arg_value(bias);
    }
    n->arg[0] = arg_value(x);
    n->arg[1] = arg_value(w);
    return true;
}

void leave_unfit(Placement *p)
{
    for (int i = 0; i < p->nsites; i++)
        for (int k = 0; k < 3 && !p->site[i].why; k++) {
            if (p->site[i].point[k] < 0) continue;
            const Point *at = &p->point[p->site[i].point[k]];
            p->site[i].why = at->seen ? at->massive : "one of its operands does not depend on the inputs";
        }
    for (int i = 0; i < p->nsites; i++)
        for (int k = 0; k < 3 && !p->site[i].why; k++)
            if (p->site[i].point[k] >= 0) p->point[p->site[i].point[k]].used = true;
}

bool quantize_apply(Placement *p, Err *err)
{
    Apply a = {.p = p, .g = p->g, .err = err};
    leave_unfit(p);
    for (int i = 0; i < p->nsites; i++) TRY(apply_site(&a, &p->site[i]) || within(err, "%s", p->site[i].name));
    graph_dce(p->g);
    return true;
}
