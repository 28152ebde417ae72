/* Running graphs over the exact algebra. Contract in exact.h; ops in the other files. */
#include "prove/exact.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "prove/impl.h"

static const struct {
    ExactFn *fn;
    OpId op;
} whole_node[OP_COUNT] = {
#define EXACT(f) .fn = exact_##f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* ------------------------------------------------------------------ tensors */

int64_t exact_count(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
}

void exact_strides(int rank, const int64_t *shape, int64_t *stride)
{
    int64_t n = 1;
    for (int i = rank - 1; i >= 0; n *= shape[i--]) stride[i] = n;
}

void exact_next(int rank, const int64_t *shape, int64_t *at)
{
    for (int i = rank - 1; i >= 0 && ++at[i] >= shape[i]; i--) at[i] = 0;
}

static void tensor_drop(ExactTensor *t)
{
    if (!t) return;
    mem_free(t->r);
    mem_free(t->v);
    mem_free(t->i);
    mem_free(t);
}

static ExactTensor *tensor_make(DType dtype, int rank, const int64_t *shape, Err *err)
{
    size_t bytes;
    if (!shape_bytes(DT_F64, rank, shape, &bytes, err)) return NULL;
    ExactTensor *t = mem_zeroed(1, sizeof *t);
    if (!t) return oom(err), NULL;
    *t = (ExactTensor){
        .dtype = dtype, .rank = rank, .n = exact_count(rank, shape), .width = dtype_is_complex(dtype) ? 2 : 1};
    for (int i = 0; i < rank; i++) t->shape[i] = shape[i];
    size_t n = (size_t)(t->n * t->width) + 1;
    if (dtype_is_float(dtype) || t->width == 2) {
        t->r = mem_zeroed(n, sizeof *t->r);
        t->v = mem_zeroed(n, sizeof *t->v);
    } else {
        t->i = mem_zeroed(n, sizeof *t->i);
    }
    if (t->i || (t->r && t->v)) return t;
    tensor_drop(t);
    oom(err);
    return NULL;
}

ExactTensor *exact_scratch(Exact *x, DType t, int rank, const int64_t *shape, Err *err)
{
    ExactTensor *s = x->nscratch < 16 ? tensor_make(t, rank, shape, err) : NULL;
    if (s) x->scratch[x->nscratch++] = s;
    else if (x->nscratch == 16) fail(err, E_LIMIT, "too many intermediate tensors");
    return s;
}

void exact_scratch_drop(Exact *x, int left)
{
    while (x->nscratch > left) tensor_drop(x->scratch[--x->nscratch]);
}

static bool sizes_of(const Value *v, int64_t *shape, Err *err)
{
    for (int i = 0; i < v->rank; i++) {
        if (v->dim[i]->kind != EX_INT) return fail(err, E_UNSUPPORTED, "'%s': a size that depends on data", v->name);
        shape[i] = v->dim[i]->i;
    }
    return true;
}

ExactTensor *exact_out(Exact *x, const Node *n, int k, Err *err)
{
    int64_t shape[MAX_RANK];
    const Value *v = n->out[k];
    if (x->value[v->id]) return x->value[v->id];
    return sizes_of(v, shape, err) ? x->value[v->id] = tensor_make(v->dtype, v->rank, shape, err) : NULL;
}

const ExactTensor *exact_in(Exact *x, const Value *v) { return x->value[v->id]; }

const ExactTensor *exact_arg(Exact *x, const Node *n, int k)
{
    return n->arg[k].kind == ARG_VALUE ? x->value[n->arg[k].v->id] : NULL;
}

/* ------------------------------------------------------------------ arguments */

bool exact_unsupported(const Node *n, const char *what, Err *err)
{
    return fail(err, E_UNSUPPORTED, "%s: %s", n->op->name, what);
}

int64_t exact_int(const Node *n, int k, int64_t missing)
{
    const Arg *a = &n->arg[k];
    if (a->kind != ARG_EXPR) return missing;
    return a->e->kind == EX_FLOAT ? (int64_t)a->e->f : a->e->i;
}

double exact_number(const Node *n, int k, double missing)
{
    const Arg *a = &n->arg[k];
    if (a->kind != ARG_EXPR) return missing;
    return a->e->kind == EX_FLOAT ? a->e->f : (double)a->e->i;
}

int exact_ints(const Node *n, int k, int64_t *list)
{
    const Arg *a = &n->arg[k];
    if (a->kind == ARG_EXPR) {
        list[0] = a->e->i;
        return 1;
    }
    int count = a->kind == ARG_EXPRS ? a->n : 0;
    for (int i = 0; i < count && i < MAX_RANK; i++) list[i] = a->es[i]->i;
    return count < MAX_RANK ? count : MAX_RANK;
}

int exact_dim(int64_t d, int rank) { return (int)(d < 0 ? d + (rank ? rank : 1) : d); }

void exact_axes(const Node *n, int k, int rank, bool *on)
{
    int64_t list[MAX_RANK];
    int count = exact_ints(n, k, list);
    for (int i = 0; i < rank; i++) on[i] = !count;
    for (int i = 0; i < count; i++)
        if (rank) on[exact_dim(list[i], rank)] = true;
}

bool exact_work(Exact *x, double operations, Err *err)
{
    x->work += operations;
    return x->work <= x->most || fail(err, E_LIMIT, "too large to be computed exactly");
}

/* ------------------------------------------------------------------ inputs and weights */

static bool all_alike(const Tensor *t, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (tensor_get(t, i) != tensor_get(t, 0)) return false;
    return true;
}

/* A weight is its numbers: a single number, or the same everywhere, is taken for what it stands for (res_number). */
static void fill_weight(ExactTensor *to, const Tensor *from)
{
    int64_t n = to->n * to->width;
    Tensor real = tensor_as_real(from);
    bool alike = to->r && n && all_alike(&real, n);
    Elem same = alike ? elem_number(tensor_get(&real, 0)) : elem_int(0);
    for (int64_t i = 0; i < n; i++) {
        if (!to->r) {
            to->i[i] = tensor_get_i64(&real, i);
            continue;
        }
        double v = tensor_get(&real, i);
        elem_set(to, i, alike ? same : elem_float(isfinite(v) && v != 0 ? res_dyadic(v) : 0, v));
    }
}

/* A square, or its negative for values below 0, which has no root: so sqrt(x x) is |x| for products of inputs, too. */
static Elem drawn(Res root, double v)
{
    Res r = res_mul(root, root);
    return elem_float(v < 0 ? res_neg(r) : r, v);
}

static void fill_input(ExactTensor *to, const Tensor *from, uint64_t seed, bool given)
{
    Tensor real = tensor_as_real(from);
    for (int64_t i = 0; i < to->n * to->width; i++) {
        if (!to->r) {
            to->i[i] = tensor_get_i64(&real, i);
            continue;
        }
        double v = tensor_get(&real, i);
        if (given) elem_set(to, i, elem_float(isfinite(v) && v != 0 ? res_dyadic(v) : 0, v));
        else elem_set(to, i, fabs(v) < 1000 ? drawn(res_hash(seed, (uint64_t)i), v) : elem_number(v));
    }
}

static bool given(Exact *x, const Value *v, const Tensor *t, uint64_t seed, Err *err)
{
    if (!t) return fail(err, E_UNSUPPORTED, "'%s': its data is missing", v->name);
    enum { DRAWN = 24 }; /* operations for an element that is drawn */
    TRY(exact_work(x, (v->kind == V_WEIGHT ? 1 : DRAWN) * (double)tensor_numel(t), err));
    ExactTensor *to = tensor_make(v->dtype, t->rank, t->shape, err);
    if (!to) return false;
    x->value[v->id] = to;
    if (v->kind == V_WEIGHT) fill_weight(to, t);
    else fill_input(to, t, seed, x->seed == EXACT_AS_GIVEN);
    return true;
}

/* ------------------------------------------------------------------ ops that are not written here */

static Res digest_arg(Exact *x, const Arg *a, Res h)
{
    h = res_hash(h, (uint64_t)a->kind);
    for (int i = 0; a->kind == ARG_EXPRS && i < a->n; i++) h = res_hash(h, (uint64_t)a->es[i]->i);
    if (a->kind == ARG_EXPR) h = res_hash(h, a->e->kind == EX_FLOAT ? res_number(a->e->f) : (uint64_t)a->e->i);
    for (const char *s = a->kind == ARG_STR ? a->s : ""; *s; s++) h = res_hash(h, (uint64_t)*s);
    if (a->kind == ARG_DTYPE) h = res_hash(h, (uint64_t)a->dtype);
    int n = a->kind == ARG_VALUES ? a->n : a->kind == ARG_VALUE;
    for (int i = 0; i < n; i++) {
        const Value *v = a->kind == ARG_VALUE ? a->v : a->vs[i];
        const ExactTensor *t = v ? exact_in(x, v) : NULL;
        for (int64_t k = 0; t && k < t->n * t->width; k++)
            h = res_hash(h, t->r ? t->r[k] ^ (uint64_t)isnan(t->v[k]) : (uint64_t)t->i[k]);
    }
    return h;
}

/* Its results depend on all of its arguments, and on nothing else: more is not known of it. */
static bool boxed(Exact *x, const Node *n, Err *err)
{
    for (int k = 0; k < n->nout; k++)
        if (x->uses[n->out[k]->id] && !dtype_is_float(n->out[k]->dtype))
            return exact_unsupported(n, "not written in exact arithmetic", err);
    Res h = (Res)n->op->id;
    for (int k = 0; k < n->op->schema->nparams; k++) {
        if (n->arg[k].kind == ARG_GRAPH) return exact_unsupported(n, "not written in exact arithmetic", err);
        h = digest_arg(x, &n->arg[k], h);
    }
    x->boxed = n->op->name;
    for (int k = 0; k < n->nout; k++) {
        if (!x->uses[n->out[k]->id]) continue;
        ExactTensor *out = exact_out(x, n, k, err);
        for (int64_t i = 0; out && i < out->n; i++) {
            Res r = res_hash(res_hash(h, (uint64_t)k), (uint64_t)i);
            elem_set(out, i, elem_float(r, (double)(r % 4096) / 2048 - 1));
        }
        if (!out) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ runs */

Exact *exact_create(uint64_t seed, double work)
{
    Exact *x = mem_zeroed(1, sizeof *x);
    if (!x) return NULL;
    x->seed = seed;
    x->most = work;
    return x;
}

static void forget(Exact *x)
{
    for (int i = 0; x->value && i < x->g->next_id; i++) tensor_drop(x->value[i]);
    mem_free(x->value);
    mem_free(x->uses);
    mem_free(x->tag);
    x->value = NULL;
    x->uses = NULL;
    x->tag = NULL;
    x->ntags = x->room = 0;
    x->boxed = NULL;
    x->work = 0;
    x->failed = x->no_inverse = false;
}

void exact_free(Exact *x)
{
    if (!x) return;
    forget(x);
    exact_rows_free(x);
    mem_free(x);
}

static void used(void *user, Value **slot)
{
    Exact *x = user;
    if (--x->uses[(*slot)->id]) return;
    tensor_drop(x->value[(*slot)->id]);
    x->value[(*slot)->id] = NULL;
}

static bool run_node(Exact *x, Node *n, Err *err)
{
    ExactFn *f = whole_node[n->op->id].fn;
    if (!f && n->op->flags & OPF_POINTWISE) f = exact_pointwise;
    if (n->op->flags & OPF_RANDOM) return exact_unsupported(n, "random", err);
    bool ok = f ? f(x, n, err) : boxed(x, n, err);
    exact_scratch_drop(x, 0);
    if (ok) node_each_operand(n, used, x);
    for (int k = 0; ok && k < n->nout; k++)
        if (!x->uses[n->out[k]->id]) {
            tensor_drop(x->value[n->out[k]->id]);
            x->value[n->out[k]->id] = NULL;
        }
    return ok && (!x->failed || oom(err));
}

static bool run_graph(Exact *x, const Graph *g, const Tensor *const *in, const int *place, Err *err)
{
    for (int i = 0; i < g->ninput; i++) {
        uint64_t at = (uint64_t)(place ? place[i] : i);
        TRY(given(x, g->input[i], in[i], res_hash(res_hash(x->seed, 11), at), err));
    }
    for (int i = 0; i < g->nweight; i++)
        if (x->uses[g->weight[i]->id]) TRY(given(x, g->weight[i], g->weight[i]->data, 0, err));
    for (Node *n = g->first; n; n = n->next) TRY(run_node(x, n, err));
    return !x->no_inverse || fail(err, E_UNSUPPORTED, "a divisor without an inverse");
}

/* Elements alone, which each node makes: what is too much for the whole run is not begun. */
static bool fits(Exact *x, const Graph *g, Err *err)
{
    enum { EACH = 8 }; /* steps that an element takes at least: it is made, filled and given back */
    double elements = 0;
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++) {
            double count = 1;
            for (int d = 0; d < n->out[k]->rank; d++)
                count *= ex_is_int(n->out[k]->dim[d]) ? (double)n->out[k]->dim[d]->i : 1;
            elements += count;
        }
    return EACH * elements <= x->most || exact_work(x, x->most + 1, err);
}

bool exact_run(Exact *x, const Graph *g, const Tensor *const *in, const int *place, Err *err)
{
    if (x->g) forget(x);
    x->g = g;
    x->value = mem_zeroed((size_t)g->next_id + 1, sizeof *x->value);
    x->uses = mem_zeroed((size_t)g->next_id + 1, sizeof *x->uses);
    if (!x->value || !x->uses) return oom(err);
    graph_count_uses(g, x->uses);
    return fits(x, g, err) && run_graph(x, g, in, place, err);
}

double exact_worked(const Exact *x) { return x->work; }
bool exact_unlucky(const Exact *x) { return x->no_inverse; }
const ExactTensor *exact_output(const Exact *x, int k) { return x->value[x->g->output[k].value->id]; }
const char *exact_boxed(const Exact *x) { return x->boxed; }

/* ------------------------------------------------------------------ comparing */

static bool element_same(const ExactTensor *a, const ExactTensor *b, int64_t k)
{
    if (!a->r) return a->i[k] == b->i[k];
    if (isnan(a->v[k]) || isnan(b->v[k])) return isnan(a->v[k]) && isnan(b->v[k]);
    return isinf(a->v[k]) || isinf(b->v[k]) ? a->v[k] == b->v[k] : a->r[k] == b->r[k];
}

static bool seen(const ExactTensor *a, const ExactTensor *b, int64_t k, double least)
{
    if (!a->r || !isfinite(a->v[k])) return true;
    return elem_near(a->v[k], b->v[k], least) && (a->r[k] || fabs(a->v[k]) <= least);
}

/* The largest value. */
static double peak_of(const ExactTensor *t)
{
    double peak = 0;
    for (int64_t k = 0; k < t->n * t->width; k++) {
        double v = t->r ? t->v[k] : (double)t->i[k];
        if (isfinite(v)) peak = fmax(peak, fabs(v));
    }
    return peak;
}

bool exact_same(const ExactTensor *a, const ExactTensor *b, bool zeros, ExactDifference *d)
{
    *d = (ExactDifference){.first = -1};
    bool shaped = a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
    if (!shaped || a->width != b->width || !a->r != !b->r) {
        *d = (ExactDifference){.count = 1, .kinds = true};
        return false;
    }
    double peak = peak_of(a);
    for (int64_t k = 0; k < a->n * a->width; k++) {
        double va = a->r ? a->v[k] : (double)a->i[k], vb = b->r ? b->v[k] : (double)b->i[k];
        if (zeros && vb == 0) continue;
        if (element_same(a, b, k)) {
            d->unseen += !seen(a, b, k, 1e-12 * peak);
            continue;
        }
        if (!d->count++) d->first = k;
        if (isfinite(va) && isfinite(vb)) d->max_abs = fmax(d->max_abs, fabs(va - vb));
        else d->kinds = true;
    }
    d->max_rel = peak > 0 ? d->max_abs / peak : d->max_abs;
    return !d->count && !d->unseen;
}

int64_t exact_see(const ExactTensor *a, const ExactTensor *b, unsigned char *unseen)
{
    int64_t left = 0;
    double least = 1e-12 * peak_of(a);
    for (int64_t k = 0; k < a->n * a->width; k++) left += unseen[k] = unseen[k] && !seen(a, b, k, least);
    return left;
}

void exact_unseen(int64_t unseen, int64_t of, char *why, size_t size)
{
    snprintf(why, size, "%lld of %lld elements vanish in exact arithmetic, as products of four sines or tangents do",
             (long long)unseen, (long long)of);
}
