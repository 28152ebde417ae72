/* Random inputs of a session: for benchmarks and for comparing two models. Same seed, same bytes. */
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/splitmix.h"
#include "run/session.h"
#include "facts/views.h"
#include "run/session_impl.h"

/* Sum of four uniforms, scaled to variance 1: close to normal, the same on every machine. */
static double normalish(uint64_t *state)
{
    double s = splitmix_uniform(state) + splitmix_uniform(state) + splitmix_uniform(state) + splitmix_uniform(state) -
               2;
    return s * 1.7320508075688772;
}

/* Values of an integer input, both ends inclusive. share: a float's are from 0 to 1. */
typedef struct Range {
    int64_t lo, hi;
    bool share;
} Range;

/* Integers that index something are below its size: the smallest table that they look into. Integers that are read as a
 * size are the least one allowed, so that sizes multiplied from them stay small.
 * r: by value id, {0, 1} for all others. */
static void integer_ranges(const Graph *g, const Binding *binding, Range *r)
{
    Err ignored;
    for (int i = 0; i <= g->next_id; i++) r[i] = (Range){0, 1, false};
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        const Value *v = s->source == SYM_ITEM ? through_casts(s->value) : NULL;
        if (v && s->lo > r[v->id].lo) r[v->id] = (Range){s->lo, s->lo, false};
    }
    for (int again = 0; again < 2; again++) /* a table goes before a size: found, then made smaller */
        for (const Node *n = g->first; n; n = n->next) {
            const Value *table = n->arg && n->op->schema->nparams && n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL;
            int dim = 0, at = -1;
            int64_t rows;
            if (n->op->id == OP_embedding) at = 1;
            else if (n->op->id == OP_gather || n->op->id == OP_index_select) {
                dim = (int)(n->arg[1].e->i < 0 && table ? n->arg[1].e->i + table->rank : n->arg[1].e->i);
                at = 2;
            }
            if (at < 0 || !table || table->rank <= dim || dim < 0 || n->arg[at].kind != ARG_VALUE ||
                !ex_eval_i64(g->ex, table->dim[dim], binding, &rows, &ignored))
                continue;
            Range *of = &r[through_casts(n->arg[at].v)->id];
            rows = rows > 0 ? rows - 1 : 0;
            if (!again) *of = (Range){0, INT64_MAX, false};
            else if (rows < of->hi) of->hi = rows;
        }
}

/* Floats that an op refuses below 0 or above 1. */
static void shares(const Graph *g, Range *r)
{
    for (const Node *n = g->first; n; n = n->next) {
        int operands = n->op->id == OP_binary_cross_entropy ? 2 : n->op->id == OP_poisson;
        for (int i = 0; i < operands; i++) r[through_casts(n->arg[i].v)->id].share = true;
    }
}

static void fill(Tensor *t, Range r, uint64_t *state)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    size_t size = dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        void *p = (char *)t->data + (size_t)i * size;
        if (dtype_is_float(t->dtype)) store_f64(t->dtype, p, r.share ? splitmix_uniform(state) : normalish(state));
        else if (t->dtype == DT_BOOL)
            store_i64(t->dtype, p, row && i % row == 0 ? 1 : (int64_t)(splitmix_next(state) >> 63));
        else store_i64(t->dtype, p, r.lo + (int64_t)(splitmix_next(state) % (uint64_t)(r.hi - r.lo + 1)));
    }
}

/* Input i, without memory for its elements. */
static bool shape_of(const Graph *g, const Binding *b, int i, Tensor *t, size_t *bytes, Err *err)
{
    const Value *v = g->input[i];
    int64_t shape[MAX_RANK];
    for (int d = 0; d < v->rank; d++)
        TRY(ex_eval_i64(g->ex, v->dim[d], b, &shape[d], err) || within(err, "input '%s': axis %d", v->name, d));
    TRY(shape_bytes(v->dtype, v->rank, shape, bytes, err) || within(err, "input '%s'", v->name));
    *t = tensor_of(v->dtype, v->rank, shape, NULL);
    return true;
}

static bool mentions(const Value *v, const Symbol *s)
{
    for (int d = 0; d < v->rank; d++)
        if (ex_mentions(v->dim[d], s->expr)) return true;
    return false;
}

/* Of which sizes less is allowed. */
static bool too_large(const Graph *g, const Binding *b, const Value *v, size_t bytes, const char *why, Err *err)
{
    enum { SOME = 3 };
    Buf how = {0};
    int n = 0;
    for (int i = 0; i < expr_symbol_count(g->ex) && n < SOME; i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        int64_t least = s->lo > 0 ? s->lo : 0;
        if (s->source != SYM_INPUT || b->value[i] <= least || !mentions(v, s)) continue;
        buf_printf(&how, "%s -D %s=N (now %lld, at least %lld)", n++ ? "," : "; smaller with", s->name,
                   (long long)b->value[i], (long long)least);
    }
    fail(err, E_LIMIT, "input '%s': out of memory: %zu bytes of random numbers%s%s", v->name, bytes, why,
         n && how.data ? how.data : "; the model allows no smaller sizes");
    buf_free(&how);
    return false;
}

/* All that is filled is written to, so that a promise of memory is not enough. */
static bool room_for_all(const Session *s, const Binding *b, Err *err)
{
    enum { LOOK = 64 << 20 };
    const Graph *g = session_graph(s);
    size_t bytes, most = 0;
    double more = 0;
    const Value *largest = NULL;
    char why[64];
    for (int i = 0; i < g->ninput; i++) {
        Tensor t;
        TRY(shape_of(g, b, i, &t, &bytes, err));
        if (bytes > s->own_input[i].size) more += (double)(bytes - s->own_input[i].size);
        if (bytes < most) continue;
        most = bytes;
        largest = g->input[i];
    }
    double left = more > LOOK ? mem_left() : INFINITY;
    if (more <= left) return true;
    text_printf(why, sizeof why, ", and %.0f are left", left);
    return too_large(g, b, largest, most, why, err);
}

static bool fill_inputs(Session *s, const Binding *b, const Range *r, uint64_t state, Err *err)
{
    const Graph *g = session_graph(s);
    TRY(room_for_all(s, b, err));
    for (int i = 0; i < g->ninput; i++) {
        const Value *v = g->input[i];
        size_t bytes;
        Tensor t;
        TRY(shape_of(g, b, i, &t, &bytes, err));
        t.data = session_own_input(s, i, bytes, err);
        if (!t.data) return s->env.memory_limit ? false : too_large(g, b, v, bytes, "", err);
        fill(&t, r[v->id], &state);
        TRY(session_set_input(s, i, &t, err));
    }
    return true;
}

bool session_random_inputs(Session *s, const Binding *b, uint64_t seed, Err *err)
{
    const Graph *g = session_graph(s);
    for (int i = 0; i < g->nscalar_input; i++) {
        const Arg *a = &g->scalar_input[i].value;
        if (a->kind == ARG_EXPR && a->e->kind == EX_SYM) session_set_scalar(s, i, b->value[a->e->i]);
    }
    Range *r = mem_zeroed((size_t)g->next_id + 1, sizeof *r);
    if (!r) return oom(err);
    integer_ranges(g, b, r);
    shares(g, r);
    bool ok = fill_inputs(s, b, r, seed, err);
    mem_free(r);
    return ok;
}
