/* Channels of norms smoothed. Contract in smooth.h. */
#include "quantize/smooth.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "kernel/gemm.h"
#include "quantize/massive.h"
#include "quantize/place.h"
#include "quantize/weights.h"

enum { MAX_ARGS = 32, ALPHAS = 10, SAMPLED = 256 };

/* ------------------------------------------------------------------ channels */

Channels channels_of(Arena *a, Value *v, int64_t K)
{
    Channels c = {.value = v, .K = K};
    size_t n = K > 0 ? (size_t)K : 1;
    c.sum = arena_alloc(a, n * sizeof *c.sum, sizeof *c.sum);
    c.most = c.sum ? arena_alloc(a, n * sizeof *c.most, sizeof *c.most) : NULL;
    if (c.sum) memset(c.sum, 0, n * sizeof *c.sum);
    if (c.most) memset(c.most, 0, n * sizeof *c.most);
    return c;
}

bool channels_gram(Arena *a, Channels *c, Err *err)
{
    size_t n = (size_t)(c->K * c->K) + 1;
    if (!(c->gram = arena_alloc(a, n * sizeof *c->gram, sizeof *c->gram))) return oom(err);
    memset(c->gram, 0, n * sizeof *c->gram);
    return true;
}

/* x^T x of some rows in float32, added to the sums in double. */
static bool add_products(Channels *c, const float *x, int64_t rows, Err *err)
{
    const int64_t K = c->K;
    Tensor b = tensor_of(DT_F32, 2, (int64_t[]){rows, K}, (void *)(uintptr_t)x), a = b,
           y = tensor_of(DT_F32, 2, (int64_t[]){K, K}, NULL);
    a.shape[0] = a.stride[1] = K;
    a.shape[1] = rows;
    a.stride[0] = 1;
    GemmMatmul d = {.a = &a, .b = &b, .c = &y};
    GemmPool *pool = gemm_pool_create(err);
    Gemm *g = pool ? gemm_matmul(pool, &d, err) : NULL;
    size_t room = g ? gemm_scratch(g) + 64 : 64;
    float *to = g ? mem_aligned(64, (size_t)(K * K) * sizeof *to + 64) : NULL;
    void *scratch = to ? mem_aligned(64, room) : NULL;
    bool ok = g && (scratch || oom(err)) && gemm_run(g, &(GemmBuffers){.a = x, .b = x, .c = to}, scratch, err);
    for (int64_t i = 0; ok && i < K; i++)
        for (int64_t k = i; k < K; k++) c->gram[i * K + k] += (double)to[i * K + k];
    mem_free(scratch);
    mem_free(to);
    gemm_free(g);
    gemm_pool_free(pool);
    return ok;
}

bool channels_observe(Channels *c, const float *x, int64_t rows, Err *err)
{
    for (int64_t i = 0; i < rows * c->K; i++)
        if (!isfinite(x[i]))
            return fail(err, E_USAGE, "value '%s', element %lld, is %s in the calibration data", c->value->name,
                        (long long)i, isnan(x[i]) ? "NaN" : "infinite");
    if (c->gram && rows) TRY(add_products(c, x, rows, err));
    if (c->massive) TRY(massive_observe(c->massive, x, rows, c->K, err));
    for (int64_t i = 0; i < rows; i++, x += c->K)
        for (int64_t k = 0; k < c->K; k++) {
            float v = fabsf(x[k]);
            c->most[k] = v > c->most[k] ? v : c->most[k];
            c->sum[k] += (double)x[k];
        }
    c->rows += rows;
    return true;
}

/* ------------------------------------------------------------------ finding */

static bool is_norm(const Node *n) { return n && (n->op->id == OP_layer_norm || n->op->id == OP_rms_norm); }

/* A vector of K floats that is a weight. */
static bool vector_weight(const Arg *a, int64_t K)
{
    return a->kind == ARG_VALUE && a->v->kind == V_WEIGHT && a->v->data && a->v->dtype == DT_F32 && a->v->rank == 1 &&
           a->v->data->shape[0] == K;
}

/* n normalises over its last axis, of size K, which its weights scale. */
static bool scales_channels(const Node *n, int64_t K)
{
    return is_norm(n) && n->out[0]->dtype == DT_F32 && n->arg[1].n == 1 && vector_weight(&n->arg[2], K) &&
           (n->op->id != OP_layer_norm || n->arg[3].kind == ARG_NONE || vector_weight(&n->arg[3], K));
}

static SmoothGroup *group_of(Smoothing *s, Value *v, int64_t K)
{
    for (int i = 0; i < s->ngroups; i++)
        if (s->group[i].seen.value == v) return &s->group[i];
    SmoothGroup *grown = vec_room(s->arena, s->group, s->ngroups, sizeof *grown);
    Channels seen = channels_of(s->arena, v, K);
    if (!grown || !seen.most) return NULL;
    s->group = grown;
    s->group[s->ngroups] = (SmoothGroup){.seen = seen};
    return &s->group[s->ngroups++];
}

bool smooth_find(Graph *g, Smoothing *s, Err *err)
{
    *s = (Smoothing){.g = g, .arena = arena_create(0)};
    if (!s->arena) return oom(err);
    for (Node *n = g->first; n; n = n->next) {
        Tensor as;
        if (n->op->id != OP_linear || !quantize_weight(g, n, &as) || as.dtype != DT_F32) continue;
        int64_t K = as.shape[1];
        if (!scales_channels(n->arg[0].v->def, K)) continue;
        SmoothGroup *group = group_of(s, n->arg[0].v, K);
        Node **grown = group ? vec_room(s->arena, group->linear, group->nlinear, sizeof *grown) : NULL;
        if (!grown) return oom(err);
        group->linear = grown;
        group->linear[group->nlinear++] = n;
    }
    return true;
}

/* ------------------------------------------------------------------ applying */

/* s of every channel; their geometric mean is 1. A channel without values or weights keeps 1. */
static double *factors(Smoothing *s, const SmoothGroup *group, double alpha)
{
    double *f = arena_alloc(s->arena, (size_t)group->seen.K * sizeof *f, sizeof *f), sum = 0;
    int64_t known = 0;
    for (int64_t k = 0; f && k < group->seen.K; k++) {
        double w = 0;
        for (int i = 0; i < group->nlinear; i++) {
            Tensor t;
            quantize_weight(s->g, group->linear[i], &t);
            for (int64_t row = 0; row < t.shape[0]; row++) w = fmax(w, fabs(tensor_get(&t, row * group->seen.K + k)));
        }
        double most = (double)group->seen.most[k], by = pow(most, alpha) / pow(w, 1 - alpha);
        bool is = most > 0 && w > 0 && isfinite(by) && by > 0;
        f[k] = is ? log(by) : NAN;
        sum += is ? f[k] : 0;
        known += is;
    }
    for (int64_t k = 0; f && k < group->seen.K; k++) f[k] = f[k] == f[k] ? exp(f[k] - sum / (double)known) : 1;
    return f;
}

/* A weight of its own: w (..., K) times each channel's factor, or divided by it. */
static Value *scaled(Smoothing *s, const Value *w, const Tensor *from, const double *f, int64_t K, bool divide,
                     Err *err)
{
    const char *name = w->fqn ? w->fqn : w->name;
    Value *v = quantize_buffer(s->g, arena_printf(s->arena, "%s_smooth", name), DT_F32, from->rank, from->shape, err);
    int64_t n = tensor_numel(from);
    float *to = v ? v->data->data : NULL;
    for (int64_t i = 0; v && i < n; i++) {
        double x = tensor_get(from, i), by = f[i % K];
        to[i] = (float)(divide ? x / by : x * by);
    }
    return v;
}

static bool apply(Smoothing *s, const SmoothGroup *group, const double *f, Err *err)
{
    Node *norm = group->seen.value->def;
    Arg arg[MAX_ARGS];
    int n = norm->op->schema->nparams;
    if (!f) return oom(err);
    memcpy(arg, norm->arg, (size_t)n * sizeof *arg);
    for (int i = 2; i < (norm->op->id == OP_layer_norm ? 4 : 3); i++)
        if (arg[i].kind == ARG_VALUE) TRY(arg[i].v = scaled(s, arg[i].v, arg[i].v->data, f, group->seen.K, true, err));
    Node *made = graph_add_before(s->g, norm->next, norm->op->id, n, arg, group->seen.value->name, err);
    TRY(made);
    for (int i = 0; i < group->nlinear; i++) {
        Node *l = group->linear[i];
        Tensor as;
        const Value *from = quantize_weight(s->g, l, &as);
        Value *w = scaled(s, from, &as, f, group->seen.K, false, err);
        TRY(w);
        l->arg[0] = arg_value(made->out[0]);
        l->arg[1] = arg_value(w);
    }
    return true;
}

bool smooth_apply(Smoothing *s, double alpha, Err *err)
{
    for (int i = 0; i < s->ngroups; i++) TRY(apply(s, &s->group[i], factors(s, &s->group[i], alpha), err));
    graph_dce(s->g);
    return true;
}

/* ------------------------------------------------------------------ searching */

/* e^T G e, of G's upper triangle. */
static double squared(const double *e, const double *gram, int64_t K)
{
    double all = 0;
    for (int64_t i = 0; i < K; i++) {
        const double *row = gram + i * K;
        double sum = 0;
        for (int64_t k = i + 1; k < K; k++) sum += row[k] * e[k];
        all += e[i] * (row[i] * e[i] + 2 * sum);
    }
    return all;
}

/* What rows of the group's weights, times f and rounded, lose of their results. */
static double lost_by(const Graph *g, const SmoothGroup *group, const double *f, int bits, int64_t block, float *w,
                      double *e)
{
    const int64_t K = group->seen.K;
    double lost = 0;
    for (int i = 0; i < group->nlinear; i++) {
        Tensor t;
        quantize_weight(g, group->linear[i], &t);
        const int64_t N = t.shape[0], step = N > SAMPLED ? N / SAMPLED : 1;
        for (int64_t n = 0; n < N; n += step) {
            for (int64_t k = 0; k < K; k++) w[k] = (float)(tensor_get(&t, n * K + k) * f[k]);
            weights_nearest(w, w, K, block, bits);
            for (int64_t k = 0; k < K; k++) e[k] = tensor_get(&t, n * K + k) - (double)w[k] / f[k];
            lost += squared(e, group->seen.gram, K);
        }
    }
    return lost;
}

static bool search(Smoothing *s, const SmoothGroup *group, int bits, int64_t size, Err *err)
{
    const int64_t K = group->seen.K, block = weights_block(size, K);
    double *f = arena_array(s->arena, double, K), *best = arena_array(s->arena, double, K),
           *e = arena_array(s->arena, double, K), least = INFINITY;
    float *w = arena_array(s->arena, float, K);
    if (!f || !best || !e || !w) return oom(err);
    for (int a = 0; a < ALPHAS; a++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++) {
            double rms = sqrt(group->seen.gram[k * K + k]);
            f[k] = rms > 0 ? (double)a / ALPHAS * log(rms) : 0;
            sum += f[k];
        }
        for (int64_t k = 0; k < K; k++) f[k] = exp(f[k] - sum / (double)K);
        double lost = lost_by(s->g, group, f, bits, block, w, e);
        if (!(lost < least)) continue;
        least = lost;
        memcpy(best, f, (size_t)K * sizeof *best);
    }
    return least == INFINITY || apply(s, group, best, err);
}

bool smooth_search(Smoothing *s, int bits, int64_t group, Err *err)
{
    for (int i = 0; i < s->ngroups; i++) TRY(search(s, &s->group[i], bits, group, err));
    graph_dce(s->g);
    return true;
}

void smooth_free(Smoothing *s)
{
    arena_destroy(s->arena);
    *s = (Smoothing){0};
}
