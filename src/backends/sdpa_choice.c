/* The rules by which PyTorch 2.13 picks a kernel for scaled_dot_product_attention. Contract in sdpa_choice.h; every
 * function below names PyTorch's. */
#include "backends/sdpa_choice.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "facts/strides.h"

enum { MAX_CONDITIONS = SDPA_RULES + 8, FLASH_HEAD = 256, CUDNN_DIM = 65535, VECTOR_BYTES = 16, MAX_PRINTED = 16 };

const SdpaRuleText *sdpa_rule(SdpaRule r)
{
    static const SdpaRuleText text[SDPA_RULES + 1] = {
#define RULE(id, what, change, source) {#id, what, change, source},
#include "backends/sdpa_rules.def"
#undef RULE
        {"none", "", "", ""}};
    return &text[r < SDPA_RULES ? r : SDPA_RULES];
}

const char *sdpa_backend_name(SdpaBackend b)
{
    static const char *const names[] = {"math", "flash", "efficient", "cudnn"};
    return b < SDPA_BACKENDS ? names[b] : "?";
}

bool sdpa_device(const char *name, int cudnn, SdpaDevice *out, Err *err)
{
    const char *end;
    *out = (SdpaDevice){.cudnn = cudnn ? cudnn : SDPA_CUDNN_DEFAULT};
    if (!strcmp(name, "cpu")) return true;
    long sm = strncmp(name, "cuda-sm", 7) ? 0 : parse_int(name + 7, &end);
    if (sm < 50 || sm > 999 || *end)
        return fail(
            err, E_USAGE,
            "device '%.60s': expected cpu or cuda-smNN with a compute capability of at least 50, as cuda-sm80 "
            "or cuda-sm90",
            name);
    out->cuda = true;
    out->major = (int)sm / 10;
    out->minor = (int)sm % 10;
    return true;
}

/* ------------------------------------------------------------------ conditions */

typedef struct Ask {
    const SdpaDevice *d;
    const SdpaCall *c;
    ExprPool *p;
    int n;
    struct {
        SdpaRule rule;
        Expr *condition;
    } of[MAX_CONDITIONS];
    bool failed; /* out of memory */
} Ask;

static void ask(Ask *a, SdpaRule rule, Expr *condition)
{
    if (!condition || a->n == MAX_CONDITIONS) a->failed = true;
    else a->of[a->n].rule = rule, a->of[a->n++].condition = condition;
}

static void ask_bool(Ask *a, SdpaRule rule, bool holds) { ask(a, rule, ex_bool(a->p, holds)); }

static Expr *both(Ask *a, Expr *x, Expr *y) { return ex_make(a->p, EX_AND, x, y, NULL); }
static Expr *either(Ask *a, Expr *x, Expr *y) { return ex_make(a->p, EX_OR, x, y, NULL); }
static Expr *equal(Ask *a, Expr *x, Expr *y) { return ex_make(a->p, EX_EQ, x, y, NULL); }
static Expr *is(Ask *a, Expr *x, int64_t n) { return equal(a, x, ex_int(a->p, n)); }
static Expr *isnt(Ask *a, Expr *x, int64_t n) { return ex_make(a->p, EX_NE, x, ex_int(a->p, n), NULL); }
static Expr *at_most(Ask *a, Expr *x, int64_t n) { return ex_make(a->p, EX_LE, x, ex_int(a->p, n), NULL); }
static Expr *divides(Ask *a, Expr *n, Expr *x) { return is(a, ex_mod(a->p, x, n), 0); }
static Expr *last(const SdpaTensor *t) { return t->dim[t->rank - 1]; }

static bool four_axes(const SdpaCall *c) { return c->q.rank == 4 && c->k.rank == 4 && c->v.rank == 4; }

/* check_tensor_dtype */
static void ask_dtype(Ask *a, const DType *allowed, int n)
{
    DType t = a->c->q.dtype;
    bool found = false;
    for (int i = 0; i < n; i++) found |= allowed[i] == t;
    ask_bool(a, SDPA_RULE_dtype, found && a->c->k.dtype == t && a->c->v.dtype == t);
}

/* check_batch_size_and_num_heads_dense, check_grouped_query_attention; one_kv: key and value have the same heads,
 * too */
static void ask_batch_heads(Ask *a, bool one_kv)
{
    const SdpaCall *c = a->c;
    Expr *hq = c->q.dim[1], *hk = c->k.dim[1], *hv = c->v.dim[1];
    ask(a, SDPA_RULE_batch, both(a, equal(a, c->q.dim[0], c->k.dim[0]), equal(a, c->q.dim[0], c->v.dim[0])));
    if (!c->gqa) ask(a, SDPA_RULE_heads, both(a, equal(a, hq, hk), equal(a, hq, hv)));
    else ask(a, SDPA_RULE_heads, both(a, divides(a, hk, hq), one_kv ? equal(a, hk, hv) : divides(a, hv, hq)));
}

/* check_attn_mask_shape */
static void ask_mask_shape(Ask *a)
{
    const SdpaCall *c = a->c;
    const SdpaTensor *m = &c->mask;
    if (!c->has_mask) return;
    ask_bool(a, SDPA_RULE_mask_grad, !c->mask_grad);
    if (m->rank != 2 && m->rank != 4) {
        ask_bool(a, SDPA_RULE_mask_shape, false);
        return;
    }
    Expr *full[4] = {c->q.dim[0], c->q.dim[1], c->q.dim[2], c->k.dim[2]}, *fits = ex_bool(a->p, true);
    for (int i = 1; i <= m->rank; i++)
        fits = both(a, fits, either(a, equal(a, m->dim[m->rank - i], full[4 - i]), is(a, m->dim[m->rank - i], 1)));
    ask(a, SDPA_RULE_mask_shape, fits);
}

/* check_nonzero_sequence_lengths_dense */
static void ask_lengths(Ask *a)
{
    ask(a, SDPA_RULE_empty, both(a, isnt(a, a->c->q.dim[2], 0), isnt(a, a->c->k.dim[2], 0)));
}

/* check_last_dim_stride_equals_1_dense<ignore_singleton_dim> */
static void ask_strides(Ask *a, bool one_is_any)
{
    const SdpaCall *c = a->c;
    const SdpaTensor *t[3] = {&c->q, &c->k, &c->v};
    Expr *fits = ex_bool(a->p, true);
    for (int i = 0; i < 3; i++) fits = both(a, fits, is(a, t[i]->stride[t[i]->rank - 1], 1));
    if (one_is_any) fits = either(a, fits, is(a, last(&c->q), 1));
    ask(a, SDPA_RULE_last_stride, fits);
    if (a->d->cuda && c->has_mask && c->mask.rank)
        ask(a, SDPA_RULE_mask_stride, is(a, c->mask.stride[c->mask.rank - 1], 1));
}

static Expr *one_head_size(Ask *a)
{
    return both(a, equal(a, last(&a->c->q), last(&a->c->k)), equal(a, last(&a->c->q), last(&a->c->v)));
}

static bool within_sm(const SdpaDevice *d, int low, int high)
{
    int sm = d->major * 10 + d->minor;
    return sm >= low && sm <= high;
}

/* check_dtypes_low_precision */
static void ask_half(Ask *a) { ask_dtype(a, (DType[]){DT_F16, DT_BF16}, a->d->major >= 8 ? 2 : 1); }

/* ------------------------------------------------------------------ the kernels */

/* use_flash_attention_cpp */
static void ask_cpu_flash(Ask *a)
{
    ask_bool(a, SDPA_RULE_dropout, !(a->c->dropout > 0));
    ask_bool(a, SDPA_RULE_rank, four_axes(a->c));
    if (four_axes(a->c)) {
        ask_batch_heads(a, true);
        ask_mask_shape(a);
        ask(a, SDPA_RULE_head_same, one_head_size(a));
        ask_lengths(a);
        ask_strides(a, false);
    }
    ask_dtype(a, (DType[]){DT_F32, DT_F64, DT_BF16, DT_F16}, 4);
}

/* can_use_flash_attention */
static void ask_flash(Ask *a)
{
    const SdpaCall *c = a->c;
    ask_bool(a, SDPA_RULE_rank, four_axes(c));
    ask_bool(a, SDPA_RULE_no_mask, !c->has_mask);
    ask(a, SDPA_RULE_head_same, one_head_size(a));
    ask(a, SDPA_RULE_head_max, at_most(a, last(&c->q), FLASH_HEAD));
    ask_bool(a, SDPA_RULE_hardware, within_sm(a->d, 80, 121));
    if (c->training && (within_sm(a->d, 86, 89) || within_sm(a->d, 120, 121))) {
        Expr *small = at_most(a, last(&c->q), 192), *large = ex_make(a->p, EX_LT, ex_int(a->p, 224), last(&c->q), NULL);
        ask(a, SDPA_RULE_head_training, c->dropout > 0 ? small : either(a, small, large));
    }
    if (c->causal && c->q.rank >= 2 && c->k.rank >= 2)
        ask(a, SDPA_RULE_causal_square, equal(a, c->q.dim[c->q.rank - 2], c->k.dim[c->k.rank - 2]));
    ask_half(a);
    if (!four_axes(c)) return;
    ask_batch_heads(a, true);
    ask_lengths(a);
    ask_strides(a, true);
}

/* minimum_gemm_alignment */
int sdpa_alignment(const SdpaDevice *d, DType t)
{
    bool half = t == DT_F16 || t == DT_BF16;
    if (d->major >= 8) return half ? 8 : 4;
    return d->major >= 7 && half ? 8 : 1;
}

/* can_use_mem_efficient_attention */
static void ask_efficient(Ask *a)
{
    const SdpaCall *c = a->c;
    const SdpaTensor *t[3] = {&c->q, &c->k, &c->v};
    Expr *n = ex_int(a->p, sdpa_alignment(a->d, c->q.dtype));
    ask_bool(a, SDPA_RULE_hardware, within_sm(a->d, 50, 121));
    ask_bool(a, SDPA_RULE_rank, four_axes(c));
    ask(a, SDPA_RULE_head_query_key, equal(a, last(&c->q), last(&c->k)));
    ask(a, SDPA_RULE_head_multiple,
        both(a, both(a, divides(a, n, last(&c->q)), isnt(a, last(&c->q), 0)),
             both(a, divides(a, n, last(&c->v)), isnt(a, last(&c->v), 0))));
    for (int i = 0; i < 3 && a->d->major >= 8; i++)
        if (t[i]->offset && dtype_size(t[i]->dtype))
            ask(a, SDPA_RULE_alignment,
                divides(a, ex_int(a->p, VECTOR_BYTES / (int)dtype_size(t[i]->dtype)), t[i]->offset));
    if (four_axes(c)) {
        ask_lengths(a);
        ask_strides(a, false);
        ask_batch_heads(a, true);
    }
    ask_dtype(a, (DType[]){DT_F16, DT_F32, DT_BF16}, a->d->major >= 8 ? 3 : 2);
}

/* can_use_cudnn_attention */
static void ask_cudnn(Ask *a)
{
    const SdpaCall *c = a->c;
    const SdpaDevice *d = a->d;
    bool sm90 = within_sm(d, 90, 90) || d->major == 10,
         large = sm90 && d->cudnn > 92200 && !(within_sm(d, 107, 107) && d->cudnn <= 92500);
    ask_bool(a, SDPA_RULE_dropout, !(c->dropout > 0 && d->cudnn > 91100 && d->cudnn < 91400));
    ask_bool(a, SDPA_RULE_rank, four_axes(c));
    ask_half(a);
    if (four_axes(c)) ask_mask_shape(a);
    ask_bool(a, SDPA_RULE_hardware, within_sm(d, 80, 121));
    ask_bool(a, SDPA_RULE_dropout_16, c->dropout * 16 == floor(c->dropout * 16));
    if (!four_axes(c)) return;
    ask_lengths(a);
    ask_strides(a, true);
    ask_batch_heads(a, false);
    ask(a, SDPA_RULE_many, both(a, at_most(a, c->q.dim[0], CUDNN_DIM), at_most(a, c->q.dim[1], CUDNN_DIM)));
    Expr *dq = last(&c->q), *dv = last(&c->v),
         *fits = both(a, at_most(a, dq, large ? 256 : 128), at_most(a, dv, large ? 256 : 128));
    Expr *deep = both(a, is(a, dq, 192), is(a, dv, 128)); /* DeepSeek's */
    ask(a, SDPA_RULE_head_max, sm90 && !large && d->cudnn >= 91100 ? either(a, fits, deep) : fits);
    ask(a, SDPA_RULE_head_multiple, both(a, divides(a, ex_int(a->p, 8), dq), divides(a, ex_int(a->p, 8), dv)));
    ask(a, SDPA_RULE_one_key, isnt(a, c->k.dim[2], 1));
    if (c->dropout > 0) ask(a, SDPA_RULE_dropout_row, isnt(a, c->q.dim[2], 1));
    if (c->training && large) {
        Expr *small = both(a, at_most(a, dq, 128), at_most(a, dv, 128)),
             *whole = both(a, is(a, dq, 256), is(a, dv, 256));
        ask(a, SDPA_RULE_head_training, either(a, either(a, small, deep), whole));
    }
}

/* priority_order_cpp; priority_order, check_prefer_cudnn_attention */
int sdpa_order(const SdpaDevice *d, SdpaBackend *order)
{
    int n = 0;
    if (d->cuda && d->cudnn > 91500 && (d->major == 9 || d->major == 10)) order[n++] = SDPA_CUDNN;
    order[n++] = SDPA_FLASH;
    if (d->cuda) order[n++] = SDPA_EFFICIENT;
    order[n++] = SDPA_MATH;
    return n;
}

int expr_truth(const ExprPool *p, const Expr *e)
{
    (void)p; /* comparisons fold by ranges as they are built */
    return e->kind == EX_BOOL ? e->i != 0 : -1;
}

bool sdpa_choose(const SdpaDevice *d, const SdpaCall *call, ExprPool *p, SdpaChoice *out, Err *err)
{
    static void (*const asks[SDPA_BACKENDS])(Ask *) = {
        [SDPA_FLASH] = ask_flash, [SDPA_EFFICIENT] = ask_efficient, [SDPA_CUDNN] = ask_cudnn};
    SdpaBackend order[SDPA_BACKENDS];
    int n = sdpa_order(d, order);
    *out = (SdpaChoice){0};
    if (call->q.rank < 1 || call->k.rank < 1 || call->v.rank < 1)
        return fail(err, E_USAGE, "attention of ranks %d, %d, %d: expected at least 1", call->q.rank, call->k.rank,
                    call->v.rank);
    for (int i = 0; i < n; i++) {
        Ask a = {.d = d, .c = call, .p = p};
        SdpaWhen when = {.backend = order[i], .rule = SDPA_RULES};
        bool never = false;
        if (order[i] != SDPA_MATH) (d->cuda ? asks[order[i]] : ask_cpu_flash)(&a);
        for (int k = 0; k < a.n; k++) {
            Expr *c = a.of[k].condition;
            int truth = expr_truth(p, c);
            if (truth == 1) continue;
            out->refusal[out->nrefusals++] = (SdpaRefusal){order[i], a.of[k].rule, c};
            never |= truth == 0;
            if (when.condition) c = ex_make(p, EX_AND, when.condition, c, NULL);
            else when.rule = a.of[k].rule;
            when.condition = c;
            a.failed |= !c;
        }
        if (a.failed) return oom(err);
        if (never) continue;
        out->when[out->nwhen++] = when;
        if (!when.condition) return true;
    }
    return true;
}

/* As pt2/write/attention.c writes it. */
bool sdpa_bounds(ExprPool *p, const Expr *lower, const Expr *upper, Expr **dim, Expr **stride, SdpaCall *c)
{
    if (!lower && !upper) return true;
    if (!lower && !c->has_mask && ex_equals_int(upper, 0)) {
        c->causal = true;
        return true;
    }
    int rank = c->has_mask && c->mask.rank > 2 ? c->mask.rank : 2;
    for (int i = 0; i < rank; i++)
        dim[i] = i == rank - 2 ? c->q.dim[c->q.rank - 2] : i == rank - 1 ? c->k.dim[c->k.rank - 2] : c->mask.dim[i];
    c->mask = (SdpaTensor){.dtype = c->has_mask ? c->mask.dtype : DT_BOOL, .rank = rank, .dim = dim, .stride = stride};
    c->has_mask = true;
    c->causal = false;
    return expr_strides(p, rank, dim, stride);
}

/* ------------------------------------------------------------------ words */

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* symbol * c + rest; false where e is not that. */
static bool linear(const Expr *e, const Expr **symbol, int64_t *c, int64_t *rest)
{
    *symbol = NULL;
    *c = *rest = 0;
    int n = e->kind == EX_ADD ? e->nargs : 1;
    for (int i = 0; i < n; i++) {
        const Expr *t = e->kind == EX_ADD ? e->args[i] : e;
        bool product = t->kind == EX_MUL && t->nargs == 2 && t->args[0]->kind == EX_INT && t->args[1]->kind == EX_SYM;
        if (t->kind == EX_INT) *rest += t->i;
        else if (*symbol || (t->kind != EX_SYM && !product)) return false;
        else *symbol = product ? t->args[1] : t, *c = product ? t->args[0]->i : 1;
    }
    return *symbol && *c;
}

static bool print_solved(ExprPool *p, const Expr *e, Buf *out)
{
    const Expr *s;
    int64_t c, rest;
    bool ordered = e->kind == EX_LE || e->kind == EX_LT;
    if (!ordered && e->kind != EX_EQ && e->kind != EX_NE) return false;
    Expr *d = e->args[0]->is_float || e->args[1]->is_float || e->args[0]->is_bool ? NULL
                                                                                  : ex_sub(p, e->args[0], e->args[1]);
    if (!d || !linear(d, &s, &c, &rest)) return false;
    if (e->kind == EX_LT) rest += 1; /* c*s + rest <= 0 */
    if (!ordered && rest % c) return false;
    int64_t bound = !ordered ? -rest / c
                    : c > 0  ? floor_div(-rest, c)
                             : -floor_div(-rest, -c); /* c < 0: s >= ceil(rest / -c) */
    ex_print(p, s, out);
    buf_printf(out, " %s %lld", !ordered ? (e->kind == EX_EQ ? "==" : "!=") : c < 0 ? ">=" : "<=", (long long)bound);
    return true;
}

static void list_parts(const Expr *e, const Expr **part, int *n)
{
    if (e->kind == EX_AND) {
        for (int i = 0; i < e->nargs; i++) list_parts(e->args[i], part, n);
        return;
    }
    for (int i = 0; i < *n; i++)
        if (part[i] == e) return;
    if (*n < MAX_PRINTED) part[(*n)++] = e;
}

void sdpa_print_condition(ExprPool *p, const Expr *condition, Buf *out)
{
    const Expr *part[MAX_PRINTED];
    int n = 0;
    list_parts(condition, part, &n);
    for (int i = 0; i < n; i++) {
        if (i) buf_puts(out, " and ");
        if (!print_solved(p, part[i], out)) ex_print(p, part[i], out);
    }
}
