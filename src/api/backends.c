/* qkv_sdpa_choice and qkv_model_backends: the rules of backends/sdpa_choice.h for numbers, and for a model's
 * attentions as its file has them. */
#include <string.h>
#include "api/api_impl.h"
#include "backends/sdpa_choice.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "facts/views.h"
#include "program/describe.h"
#include "shape/solve.h"
#include "facts/strides.h"

_Static_assert((int)QKV_SDPA_MATH == (int)SDPA_MATH && (int)QKV_SDPA_FLASH == (int)SDPA_FLASH &&
                   (int)QKV_SDPA_EFFICIENT == (int)SDPA_EFFICIENT && (int)QKV_SDPA_CUDNN == (int)SDPA_CUDNN,
               "backends agree");

/* ------------------------------------------------------------------ JSON */

static void put_condition(Buf *b, ExprPool *p, const Expr *c)
{
    Buf text = {0};
    if (c && expr_truth(p, c) < 0) sdpa_print_condition(p, c, &text);
    b->failed |= text.failed;
    jw_text(b, "when", text.data);
    buf_free(&text);
}

static void put_refusals(Buf *b, ExprPool *p, const SdpaChoice *c, bool conditions)
{
    jw_open(b, "refused", '[');
    for (int i = 0; i < c->nrefusals; i++) {
        const SdpaRuleText *r = sdpa_rule(c->refusal[i].rule);
        jw_put(b, "{'backend': %s, 'rule': %s, 'what': %s, 'change': %s, 'source': %s",
               sdpa_backend_name(c->refusal[i].backend), r->name, r->what, r->change, r->source);
        if (conditions) put_condition(b, p, c->refusal[i].condition);
        jw_close(b, "}");
    }
    jw_close(b, "]");
}

/* ------------------------------------------------------------------ one call, in numbers */

static bool number_tensor(Arena *arena, ExprPool *p, const qkv_tensor *t, const char *name, SdpaTensor *out, Err *err)
{
    if (t->rank < 0 || t->rank > MAX_RANK || (t->rank && !t->shape))
        return fail(err, E_USAGE, "%s: rank %d, expected 0 to %d, and sizes", name, t->rank, MAX_RANK);
    *out = (SdpaTensor){.dtype = (DType)t->dtype,
                        .rank = t->rank,
                        .dim = arena_array(arena, Expr *, t->rank + 1),
                        .stride = arena_array(arena, Expr *, t->rank + 1)};
    bool ok = out->dim && out->stride;
    for (int i = 0; ok && i < t->rank; i++) {
        if (t->shape[i] < 0) return fail(err, E_USAGE, "%s: size %d is %lld", name, i, (long long)t->shape[i]);
        ok = (out->dim[i] = ex_int(p, t->shape[i])) && (!t->strides || (out->stride[i] = ex_int(p, t->strides[i])));
    }
    ok = ok && (t->strides || expr_strides(p, t->rank, out->dim, out->stride));
    return ok || oom(err);
}

static bool choose_number(const qkv_sdpa_call *q, const SdpaDevice *d, Arena *arena, ExprPool *p, SdpaChoice *out,
                          Err *err)
{
    SdpaCall c = {.has_mask = q->mask != NULL,
                  .mask_grad = q->mask_requires_grad != 0,
                  .training = q->requires_grad != 0,
                  .causal = q->is_causal != 0,
                  .gqa = q->enable_gqa != 0,
                  .dropout = q->dropout_p};
    TRY(number_tensor(arena, p, &q->query, "query", &c.q, err) && number_tensor(arena, p, &q->key, "key", &c.k, err) &&
        number_tensor(arena, p, &q->value, "value", &c.v, err));
    TRY(!q->mask || number_tensor(arena, p, q->mask, "mask", &c.mask, err));
    SdpaTensor *const t[3] = {&c.q, &c.k, &c.v};
    for (int i = 0; i < 3; i++)
        if (!(t[i]->offset = ex_int(p, q->offset[i]))) return oom(err);
    return sdpa_choose(d, &c, p, out, err);
}

qkv_status qkv_sdpa_choice(const qkv_sdpa_call *call, const char *device, int cudnn, qkv_sdpa_backend *out,
                           char **report, qkv_error *err)
{
    Err e = api_begin();
    SdpaDevice d;
    SdpaChoice c;
    qkv_sdpa_call q = {0};
    if (report) *report = NULL;
    if (!GIVEN(call) || !VERSIONED_TAKE(qkv_sdpa_call, offset, &q, call, &e)) return api_give(&e, err);
    Arena *arena = arena_create(0);
    ExprPool *p = arena ? expr_pool(arena) : NULL;
    bool ok = p || oom(&e);
    ok = ok && sdpa_device(device ? device : "cpu", cudnn, &d, &e) && choose_number(&q, &d, arena, p, &c, &e);
    if (ok && out) *out = (qkv_sdpa_backend)c.when[0].backend;
    if (ok && report) {
        Buf b = {0};
        jw_report(&b);
        jw_text(&b, "backend", sdpa_backend_name(c.when[0].backend));
        put_refusals(&b, p, &c, false);
        jw_close(&b, "}");
        ok = !b.failed || oom(&e);
        if (ok) *report = b.data;
        else buf_free(&b);
    }
    if (p) expr_pool_free(p);
    if (arena) arena_destroy(arena);
    return ok ? QKV_OK : api_give(&e, err);
}

/* ------------------------------------------------------------------ the attentions of a model */

typedef struct Model {
    Graph *g;
    const SdpaDevice *device;
    Arena *arena;
    const Binding *bound;
    bool train;
    bool *learns; /* by value: depends on a parameter that is trained */
    Err *err;
} Model;

static bool trained(const Value *v)
{
    bool floats = dtype_is_float(v->dtype) || dtype_is_complex(v->dtype);
    return floats && (v->kind == V_INPUT ? v->trains : v->kind == V_WEIGHT && v->weight == W_PARAMETER && !v->frozen);
}

static bool attached_view(const Node *n, const void *user)
{
    (void)user;
    return n->op->flags & OPF_VIEW && n->op->id != OP_detach;
}

/* A parameter and its views ask for a gradient even under torch.no_grad(). */
static bool shows_trained(const Value *v) { return trained(value_below(v, attached_view, NULL)); }

typedef struct Any {
    const Model *m;
    bool learns;
} Any;

static void operand_learns(void *user, Value **slot)
{
    Any *a = user;
    a->learns |= a->m->learns[(*slot)->id];
}

static void mark_learning(Model *m)
{
    for (int i = 0; i < m->g->ninput; i++) m->learns[m->g->input[i]->id] = trained(m->g->input[i]);
    for (int i = 0; i < m->g->nweight; i++) m->learns[m->g->weight[i]->id] = trained(m->g->weight[i]);
    for (Node *n = m->g->first; n; n = n->next) {
        Any any = {m, false};
        if (n->op->id != OP_detach) node_each_operand(n, operand_learns, &any);
        for (int i = 0; i < n->nout; i++)
            m->learns[n->out[i]->id] = any.learns &&
                                       (dtype_is_float(n->out[i]->dtype) || dtype_is_complex(n->out[i]->dtype));
    }
}

static bool operand(const Model *m, const FileTensor *f, SdpaTensor *out)
{
    const Value *v = f->value;
    ExprPool *p = m->g->ex;
    *out = (SdpaTensor){.dtype = v->dtype,
                        .rank = v->rank,
                        .dim = arena_array(m->arena, Expr *, v->rank + 1),
                        .stride = arena_array(m->arena, Expr *, v->rank + 1),
                        .offset = f->offset};
    if (!out->dim || !out->stride || (!f->stride && !value_strides(p, v, out->stride))) return oom(m->err);
    for (int i = 0; i < v->rank; i++) {
        out->dim[i] = expr_bound(p, v->dim[i], m->bound);
        out->stride[i] = expr_bound(p, f->stride ? f->stride[i] : out->stride[i], m->bound);
        if (!out->dim[i] || !out->stride[i])
            return fail(m->err, E_LIMIT, "axis %d of an operand: its size is too large", i);
    }
    if (out->offset) out->offset = expr_bound(p, out->offset, m->bound);
    return true;
}

static const Expr *argument(const FileAttention *a, const char *name)
{
    int i = op_param(a->op, name);
    return i >= 0 && a->arg[i].kind == ARG_EXPR ? a->arg[i].e : NULL;
}

static bool flag(const FileAttention *a, const char *name)
{
    const Expr *e = argument(a, name);
    return e && ex_is_const(e) && e->i;
}

static bool call_of(const Model *m, const FileAttention *a, SdpaCall *c)
{
    const Expr *p = argument(a, "dropout_p");
    *c = (SdpaCall){.has_mask = a->mask.value != NULL,
                    .causal = flag(a, "is_causal"),
                    .gqa = flag(a, "enable_gqa"),
                    .dropout = !p ? 0 : ex_number(p)};
    TRY(operand(m, &a->q, &c->q) && operand(m, &a->k, &c->k) && operand(m, &a->v, &c->v) &&
        (!c->has_mask || operand(m, &a->mask, &c->mask)));
    const Value *const v[3] = {a->q.value, a->k.value, a->v.value};
    for (int i = 0; i < 3; i++) c->training |= m->train && m->learns[v[i]->id];
    c->mask_grad = c->has_mask && (m->train ? m->learns[a->mask.value->id] : shows_trained(a->mask.value));
    Expr **dim = arena_array(m->arena, Expr *, MAX_RANK), **stride = arena_array(m->arena, Expr *, MAX_RANK);
    return (dim && stride && sdpa_bounds(m->g->ex, argument(a, "lower"), argument(a, "upper"), dim, stride, c)) ||
           oom(m->err);
}

/* What the op itself says; a softcap is written out. */
static const char *fixed_backend(const FileAttention *a)
{
    static const char *const names[] = {"flash", "efficient", "cudnn", "math"};
    const Expr *cap = argument(a, "softcap");
    if (cap && (cap->kind == EX_FLOAT ? cap->f > 0 : cap->i > 0)) return "math";
    for (size_t i = 0; a->op->id != OP_scaled_dot_product_attention && i < sizeof names / sizeof *names; i++)
        if (strstr(a->op->name, names[i])) return names[i];
    return NULL;
}

static void put_sizes(const Model *m, Buf *b, const char *name, const SdpaTensor *t)
{
    if (t) describe_sizes(m->g, name, t->rank, t->dim, b);
    else jw_text(b, name, NULL);
}

static bool put_attention(const Model *m, const FileAttention *a, Buf *b)
{
    SdpaCall c;
    SdpaChoice choice = {0};
    const char *fixed = fixed_backend(a);
    TRY(call_of(m, a, &c));
    if (!fixed) TRY(sdpa_choose(m->device, &c, m->g->ex, &choice, m->err) || within(m->err, "node '%s'", a->node));
    jw_line(b);
    jw_put(b, "{'node': %s, 'path': %s, 'op': %s", a->node, a->path, a->op->name);
    put_sizes(m, b, "query", &c.q);
    put_sizes(m, b, "key", &c.k);
    put_sizes(m, b, "value", &c.v);
    put_sizes(m, b, "mask", c.has_mask ? &c.mask : NULL);
    jw_text(b, "dtype", dtype_name(c.q.dtype));
    jw_bool(b, "causal", c.causal);
    jw_bool(b, "gqa", c.gqa);
    jw_put(b, "'dropout': %g, 'fixed': %s, 'choice': [", c.dropout, fixed);
    for (int i = 0; i < choice.nwhen; i++) {
        jw_put(b, "{'backend': %s", sdpa_backend_name(choice.when[i].backend));
        put_condition(b, m->g->ex, choice.when[i].condition);
        jw_text(b, "rule", choice.when[i].rule < SDPA_RULES ? sdpa_rule(choice.when[i].rule)->name : NULL);
        jw_close(b, "}");
    }
    jw_close(b, "]");
    put_refusals(b, m->g->ex, &choice, true);
    jw_close(b, "}");
    return true;
}

/* In a graph that has no record of its file: rewritten, cut, from ONNX. */
static bool put_nodes(const Model *m, Buf *b)
{
    for (const Node *n = m->g->first; n; n = n->next) {
        if (n->op->id != OP_scaled_dot_product_attention) continue;
        FileAttention a = {.node = n->name,
                           .op = n->op,
                           .arg = n->arg,
                           .q.value = n->arg[0].v,
                           .k.value = n->arg[1].v,
                           .v.value = n->arg[2].v,
                           .mask.value = n->arg[3].kind == ARG_VALUE ? n->arg[3].v : NULL,
                           .out = n->out[0]};
        TRY(put_attention(m, &a, b));
    }
    return true;
}

static bool describe(const Source *s, Model *m, Buf *b)
{
    mark_learning(m);
    jw_open(b, "attentions", '[');
    if (!s->nattention) TRY(put_nodes(m, b));
    for (int i = 0; i < s->nattention; i++) TRY(put_attention(m, &s->attention[i], b));
    jw_close(b, "]}");
    return !b->failed || oom(m->err);
}

char *qkv_model_backends(const qkv_model *m, const qkv_backends_options *options, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    Binding bound = {0};
    SdpaDevice d;
    qkv_backends_options o = {0};
    if (!GIVEN(m) || !VERSIONED_TAKE(qkv_backends_options, n_dims, &o, options, &e) ||
        !GIVEN_TEXTS(o.dim_names, o.n_dims) || !GIVEN_LIST(o.dims, o.n_dims))
        return api_null(&e, err);
    Program own; /* conditions are expressions of its graph */
    if (!program_copy(&own, &m->program, &e)) return api_null(&e, err);
    Graph *g = own.graph;
    const char *device = o.device ? o.device : "cpu";
    Model state = {.g = g,
                   .device = &d,
                   .arena = arena_create(0),
                   .bound = &bound,
                   .train = o.train != 0,
                   .learns = mem_zeroed((size_t)g->next_id + 1, 1),
                   .err = &e};
    bool ok = (state.arena && state.learns) || oom(&e);
    ok = ok && sdpa_device(device, o.cudnn, &d, &e) && binding_init(&bound, g->ex, &e) &&
         bind_named(g, o.dim_names, o.dims, o.n_dims, &bound, &e);
    if (ok) {
        Buf cudnn = {0};
        if (d.cuda) buf_printf(&cudnn, "%d.%d.%d", d.cudnn / 10000, d.cudnn / 100 % 100, d.cudnn % 100);
        jw_report(&b);
        jw_put(&b, "'device': %s, 'pytorch': '2.13'", device);
        b.failed |= cudnn.failed;
        jw_text(&b, "cudnn", cudnn.data);
        buf_free(&cudnn);
        jw_bool(&b, "train", state.train);
        ok = describe(own.source, &state, &b);
    }
    binding_free(&bound);
    mem_free(state.learns);
    if (state.arena) arena_destroy(state.arena);
    program_close(&own);
    if (ok) return b.data;
    buf_free(&b);
    return api_null(&e, err);
}
