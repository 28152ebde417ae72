/* Constant tensors that differ between the files, as nodes: an arange with its factors, a table taken by runs, a slice
 * of the largest. Contract in generalize_impl.h; what they are is found by baked.c.
 */
#include <stdio.h>
#include <string.h>
#include "generalize/baked.h"

/* A tensor being written down. */
typedef struct Make {
    Build *b;
    const Baked *baked;
    int merged, holes; /* numbers asked for so far */
    const char *name, *fqn;
    Value *local[8];
    int nlocal;
    Expr *size[MAX_PARTS]; /* of the parts */
    Value own;             /* has those sizes, for numbers that go with them */
} Make;

enum { HOLES_OF_TENSOR = 256 };

static Value *emit(Make *m, OpId op, int n, const Arg *args)
{
    for (int i = 0; i < n; i++)
        if ((args[i].kind == ARG_VALUE && !args[i].v) || (args[i].kind == ARG_EXPR && !args[i].e)) return NULL;
    Node *node = graph_add(m->b->g, op, n, args, m->name, m->b->err);
    return node ? node->out[0] : NULL;
}
#define EMIT(m, op, ...) emit((m), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})

static Arg v(Value *x) { return arg_value(x); }
static Graph *graph(const Make *m) { return m->b->g; }

/* A number of the description, solved like a number of a node. */
static Expr *solved(Make *m, const Scalar *value, const Cands *given, const char *what)
{
    Hole *h = gen_hole(m->b->gen, m->b->step, -1 - m->merged, m->holes++);
    if (!h) {
        oom(m->b->err);
        return NULL;
    }
    h->what = arena_printf(m->b->gen->arena, "constant '%s': %s", m->fqn, what);
    return solve_number(m->b, h, value, m->local, m->nlocal, given, m->baked->kind == BAKED_NUMBERS ? SOLVE_SPACE : 0);
}

static Expr *solved_int(Make *m, const int64_t *value, const Cands *given, const char *what)
{
    Scalar s[GEN_FILES];
    for (int f = 0; f < m->b->nfiles; f++) s[f] = (Scalar){.kind = SC_INT, .i = value[f]};
    return solved(m, s, given, what);
}

static bool varies(const Make *m, const int64_t *v)
{
    for (int f = 1; f < m->b->nfiles; f++)
        if (v[f] != v[0]) return true;
    return false;
}

static bool sizes(Make *m)
{
    char what[64];
    for (int k = 0; k < m->baked->nparts; k++) {
        const Part *p = &m->baked->part[k];
        bool split = (k && p[-1].axis == p->axis) || (k + 1 < m->baked->nparts && p[1].axis == p->axis);
        snprintf(what, sizeof what, split ? "a factor of axis %d" : "size of axis %d", p->axis);
        TRY(m->size[k] = solved_int(m, p->n, NULL, what));
        build_atom(m->b, m->size[k], false);
    }
    m->own = (Value){.name = m->name, .kind = V_NODE, .rank = m->baked->nparts, .dim = m->size};
    m->local[0] = &m->own;
    m->nlocal = 1;
    return true;
}

static Value *weight(Make *m, DType t, int rank, const int64_t *shape, void *data)
{
    Tensor *copy = arena_new(graph(m)->arena, Tensor);
    if (!copy) return NULL;
    *copy = tensor_of(t, rank, shape, data);
    size_t bytes = tensor_bytes(copy);
    copy->data = arena_alloc(graph(m)->arena, bytes + 1, 1);
    const char *fqn = arena_printf(graph(m)->arena, "%s_table%d", m->name, m->holes++);
    if (!copy->data || !fqn) return NULL;
    memcpy(copy->data, data, bytes);
    Value *w = graph_add_weight(graph(m), m->name, fqn, copy);
    if (w) w->weight = W_CONSTANT;
    return w;
}

/* 0, 1, .. along a part, shaped so that it broadcasts over all parts. */
static Value *position(Make *m, int part, DType t)
{
    Expr *dim[MAX_PARTS];
    for (int k = 0; k < m->baked->nparts; k++) dim[k] = k == part ? m->size[k] : ex_int(m->b->ex, 1);
    Value *x = EMIT(m, arange_start_step, arg_int(graph(m), 0), arg_expr(m->size[part]), arg_int(graph(m), 1),
                    arg_dtype(DT_I64));
    x = EMIT(m, reshape, v(x), arg_exprs(graph(m), m->baked->nparts, dim));
    return t == DT_I64 ? x : EMIT(m, to_copy, v(x), arg_dtype(t));
}

/* All parts at their sizes, then as the axes were. */
static Value *full_shape(Make *m, Value *x)
{
    const Baked *t = m->baked;
    Expr *dim[MAX_PARTS], *axis[MAX_RANK];
    if (!x) return NULL;
    bool wide = true;
    for (int k = 0; k < t->nparts; k++) {
        dim[k] = m->size[k];
        wide = wide && x->dim[k] == dim[k];
    }
    if (!wide) x = EMIT(m, expand, v(x), arg_exprs(graph(m), t->nparts, dim));
    if (t->nparts == t->rank) return x;
    for (int a = 0; a < t->rank; a++) axis[a] = ex_int(m->b->ex, 1);
    for (int k = 0; k < t->nparts; k++) axis[t->part[k].axis] = ex_mul(m->b->ex, axis[t->part[k].axis], dim[k]);
    return EMIT(m, reshape, v(x), arg_exprs(graph(m), t->rank, axis));
}

/* ------------------------------------------------------------------ affine */

/* A factor or the start: a number, an expression, or a table over the parts that do not vary. */
static bool coefficient(Make *m, const Coef *c, DType t, const Cands *given, const char *what, Arg *out)
{
    if (!c->table) {
        Scalar s[GEN_FILES];
        for (int f = 0; f < m->b->nfiles; f++)
            s[f] = c->integral ? (Scalar){.kind = SC_INT, .i = (int64_t)c->v[f]}
                               : (Scalar){.kind = SC_FLOAT, .f = c->v[f]};
        Cands mine = {0};
        int64_t number[GEN_FILES];
        if (given) mine = *given;
        for (int f = 0; f < m->b->nfiles; f++) number[f] = (int64_t)c->v[f];
        if (c->integral && varies(m, number)) cand_of(m->b, &mine, number, &m->own);
        Expr *e = solved(m, s, &mine, what);
        *out = arg_expr(e);
        return e != NULL;
    }
    int64_t shape[MAX_RANK], n = 1;
    if (m->baked->nparts > MAX_RANK) return fail(m->b->err, E_UNSUPPORTED, "constant '%s': rank is too large", m->fqn);
    for (int k = 0; k < m->baked->nparts; k++) {
        shape[k] = m->baked->part[k].varies ? 1 : m->baked->part[k].n[0];
        n *= shape[k];
    }
    char *bytes = arena_alloc(graph(m)->arena, (size_t)n, dtype_size(t));
    if (!bytes) return oom(m->b->err);
    for (int64_t i = 0; i < n; i++)
        if (dtype_is_float(t)) store_f64(t, bytes + (size_t)i * dtype_size(t), c->at[i]);
        else store_i64(t, bytes + (size_t)i * dtype_size(t), (int64_t)c->at[i]);
    Value *w = weight(m, t, m->baked->nparts, shape, bytes);
    *out = v(w);
    return w || oom(m->b->err);
}

static bool is_number(const Coef *c, int nfiles, double x)
{
    for (int f = 0; f < nfiles; f++)
        if (c->table || c->v[f] != x) return false;
    return true;
}

static Value *make_affine(Make *m)
{
    const Baked *t = m->baked;
    bool integral = t->start.integral && !t->start.table;
    for (int k = 0; k < t->nparts; k++)
        if (t->part[k].varies) integral = integral && t->step[k].integral && !t->step[k].table;
    DType in = integral ? DT_I64 : t->dtype == DT_F64 ? DT_F64 : dtype_is_float(t->dtype) ? DT_F32 : DT_I64;
    Value *sum = NULL;
    Arg c;
    Expr *most = ex_int(m->b->ex, 0); /* what makes the least element 0: an index */
    for (int k = 0; k < t->nparts; k++) {
        if (!t->part[k].varies || is_number(&t->step[k], m->b->nfiles, 0)) continue;
        Value *x = position(m, k, in);
        bool falls = !t->step[k].table && t->step[k].integral;
        for (int f = 0; f < m->b->nfiles; f++) falls = falls && t->step[k].v[f] < 0;
        c = arg_int(graph(m), 1);
        if (!is_number(&t->step[k], m->b->nfiles, 1)) {
            TRY_NULL(x && coefficient(m, &t->step[k], in, NULL, "step", &c));
            x = EMIT(m, mul_Tensor, v(x), c);
        }
        if (falls && c.kind == ARG_EXPR)
            most = ex_sub(m->b->ex, most, ex_mul(m->b->ex, c.e, ex_sub(m->b->ex, m->size[k], ex_int(m->b->ex, 1))));
        sum = sum ? EMIT(m, add_Tensor, v(sum), v(x)) : x;
        TRY_NULL(sum);
    }
    Cands given = {0};
    int64_t start[GEN_FILES], least[GEN_FILES];
    bool constant = t->start.integral && !t->start.table && most && !ex_is_const(most) && eval_at(m->b, most, least);
    for (int f = 0; constant && f < m->b->nfiles; f++) {
        start[f] = (int64_t)t->start.v[f];
        constant = start[f] - least[f] == start[0] - least[0];
    }
    if (constant) cand_add(m->b, &given, start, ex_add(m->b->ex, most, ex_int(m->b->ex, start[0] - least[0])), 2);
    TRY_NULL(coefficient(m, &t->start, in, &given, "start", &c));
    if (!sum && c.kind == ARG_EXPR) {
        Expr *one[MAX_PARTS];
        for (int k = 0; k < t->nparts; k++) one[k] = ex_int(m->b->ex, 1);
        sum = EMIT(m, full, arg_exprs(graph(m), t->nparts, one), c, arg_dtype(in));
    } else if (!sum) sum = c.v;
    else if (!is_number(&t->start, m->b->nfiles, 0)) sum = EMIT(m, add_Tensor, v(sum), c);
    if (in != t->dtype) sum = EMIT(m, to_copy, v(sum), arg_dtype(t->dtype));
    return full_shape(m, sum);
}

/* ------------------------------------------------------------------ runs */

/* Which run an index (or a difference of two) is in: 0, 1, .. */
static Value *run_index(Make *m, const RunAxis *a)
{
    Value *x = position(m, a->part, DT_I64), *sum = NULL;
    if (a->minus >= 0) x = EMIT(m, sub_Tensor, v(x), v(position(m, a->minus, DT_I64)));
    for (int r = 1; x && r < a->nruns; r++) {
        Cands given = {0};
        const int64_t *at = a->start[r - 1], *n = m->baked->part[a->part].n;
        bool from_end = varies(m, at);
        for (int f = 1; f < m->b->nfiles; f++) from_end = from_end && n[f] - at[f] == n[0] - at[0];
        if (varies(m, at)) cand_of(m->b, &given, at, &m->own);
        if (from_end) cand_add(m->b, &given, at, ex_sub(m->b->ex, m->size[a->part], ex_int(m->b->ex, n[0] - at[0])), 2);
        Expr *from = solved_int(m, at, &given, "where a run begins");
        Value *in = EMIT(m, ge_Tensor, v(x), arg_expr(from));
        in = EMIT(m, to_copy, v(in), arg_dtype(DT_I64));
        sum = sum ? EMIT(m, add_Tensor, v(sum), v(in)) : in;
        TRY_NULL(sum);
    }
    return sum;
}

static Value *make_runs(Make *m)
{
    const Baked *t = m->baked;
    ExprPool *ex = m->b->ex;
    int64_t stride = 1, flat_shape[MAX_RANK], nfixed = 0;
    Value *at = NULL, *w;
    Expr *dim[MAX_PARTS], *count = ex_int(ex, 1);
    int perm_from[MAX_PARTS], n = 0;
    for (int i = t->nruns_axes - 1; i >= 0; i--) {
        const RunAxis *a = &t->runs[i];
        if (a->nruns > 1) {
            Value *x = run_index(m, a);
            if (stride > 1) x = EMIT(m, mul_Tensor, v(x), arg_int(graph(m), stride));
            at = at ? EMIT(m, add_Tensor, v(at), v(x)) : x;
            TRY_NULL(at);
        }
        stride *= a->nruns;
    }
    /* the table: (all runs, what does not vary), as its own shape or as one row a combination of runs */
    flat_shape[nfixed++] = stride;
    for (int k = 0; k < t->nparts; k++)
        if (!t->part[k].varies) flat_shape[nfixed++] = t->part[k].n[0];
    TRY_NULL(nfixed <= MAX_RANK && (w = weight(m, t->dtype, (int)nfixed, flat_shape, t->table.data)));
    if (!at) {
        for (int k = 0; k < t->nparts; k++) dim[k] = t->part[k].varies ? ex_int(ex, 1) : m->size[k];
        return full_shape(m, EMIT(m, reshape, v(w), arg_exprs(graph(m), t->nparts, dim)));
    }
    /* rows by number, over all parts that vary, then the parts in their order */
    for (int k = 0; k < t->nparts; k++) dim[k] = t->part[k].varies ? m->size[k] : ex_int(ex, 1);
    at = EMIT(m, expand, v(at), arg_exprs(graph(m), t->nparts, dim));
    for (int k = 0; k < t->nparts; k++) count = ex_mul(ex, count, dim[k]);
    at = EMIT(m, reshape, v(at), arg_exprs(graph(m), 1, &count));
    Value *x = EMIT(m, index_select, v(w), arg_int(graph(m), 0), v(at));
    Expr *split[MAX_PARTS];
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < t->nparts; k++) {
            if (t->part[k].varies == (side == 1)) continue;
            perm_from[k] = n;
            split[n++] = m->size[k];
        }
    x = EMIT(m, reshape, v(x), arg_exprs(graph(m), n, split));
    int64_t perm[MAX_PARTS];
    bool ordered = true;
    for (int k = 0; k < n; k++) {
        perm[k] = perm_from[k];
        ordered = ordered && perm[k] == k;
    }
    if (!ordered) x = EMIT(m, permute, v(x), arg_ints(graph(m), n, perm));
    return full_shape(m, x);
}

/* ------------------------------------------------------------------ prefix, numbers */

static Value *borrowed(Make *m, const Value *from)
{
    Value *w = graph_add_weight(graph(m), from->name, arena_strdup(graph(m)->arena, from->fqn), from->data);
    if (!w) return NULL;
    w->weight = from->weight;
    w->persistent = from->persistent;
    w->frozen = from->frozen;
    return w;
}

static Value *make_prefix(Make *m, const Value *largest)
{
    Value *x = borrowed(m, largest);
    ExprPool *ex = m->b->ex;
    for (int k = 0; x && k < m->baked->rank; k++) {
        if (!m->baked->part[k].varies) continue;
        if (!graph_require(graph(m), ex_make(ex, EX_LE, m->size[k], x->dim[k], NULL), m->b->err,
                           "constant '%s': no file has more of axis %d", m->fqn, k))
            return NULL;
        x = EMIT(m, slice_Tensor, v(x), arg_int(graph(m), k), arg_int(graph(m), 0), arg_expr(m->size[k]),
                 arg_int(graph(m), 1));
    }
    return x;
}

static Value *make_numbers(Make *m)
{
    const Baked *t = m->baked;
    int64_t n = 1, one = 1;
    Expr *dim[MAX_RANK];
    Value *list[MAX_NUMBERS];
    for (int k = 0; k < t->rank; k++) {
        n *= t->shape[k][0];
        dim[k] = ex_int(m->b->ex, t->shape[k][0]);
    }
    for (int64_t i = 0; i < n; i++) {
        Scalar s[GEN_FILES];
        char what[48];
        for (int f = 0; f < m->b->nfiles; f++)
            s[f] = dtype_is_float(t->dtype) ? (Scalar){.kind = SC_FLOAT, .f = t->number[i][f]}
                                            : (Scalar){.kind = SC_INT, .i = (int64_t)t->number[i][f]};
        snprintf(what, sizeof what, "element %lld", (long long)i);
        Expr *e = solved(m, s, NULL, what);
        TRY_NULL(e && (list[i] = EMIT(m, full, arg_ints(graph(m), 1, &one), arg_expr(e), arg_dtype(t->dtype))));
    }
    Value *x = n == 1 ? list[0] : EMIT(m, cat, arg_values(graph(m), (int)n, list), arg_int(graph(m), 0));
    return t->rank == 1 ? x : EMIT(m, reshape, v(x), arg_exprs(graph(m), t->rank, dim));
}

/* ------------------------------------------------------------------ all */

static const Atom *size_at(const Build *b, int i) { return i < b->natom ? &b->atom[i] : &b->level[i - b->natom]; }

/* Pairs of known sizes whose product is some axis of t. */
static int known_splits(const Build *b, const Tensor *const *t, Split *out, int room)
{
    int n = 0, all = b->natom + b->nlevel;
    for (int i = 0; i < all; i++)
        for (int k = 0; k < all && n < room; k++) {
            Split s = {{0}, {0}};
            bool fits = false, there = false;
            for (int f = 0; f < b->nfiles; f++) {
                s.left[f] = size_at(b, i)->v[f];
                s.right[f] = size_at(b, k)->v[f];
            }
            for (int d = 0; !fits && d < t[0]->rank; d++) {
                fits = true;
                for (int f = 0; fits && f < b->nfiles; f++)
                    fits = t[f]->rank == t[0]->rank && s.left[f] * s.right[f] == t[f]->shape[d];
            }
            for (int m = 0; fits && !there && m < n; m++) there = !memcmp(&out[m], &s, sizeof s);
            if (fits && !there) out[n++] = s;
        }
    return n;
}

static Baked *look_at(Build *b, Merged *w)
{
    enum { MOST = 64 };
    const Tensor *t[GEN_FILES];
    Arena *arena = b->gen->arena;
    for (int f = 0; f < b->nfiles; f++) {
        if (w->in[f]) t[f] = w->in[f]->data;
        else {
            Baked *none = arena_new(arena, Baked);
            if (!none) return NULL;
            *none = (Baked){.kind = BAKED_UNKNOWN,
                            .why = arena_printf(arena, "%s has no such weight", b->gen->al.file_name[f])};
            return none;
        }
    }
    const char *const *name = b->gen->al.file_name;
    bool parameter = w->in[0]->weight == W_PARAMETER;
    Baked *found = baked_find(arena, t, b->nfiles, name, parameter, NULL, 0);
    if (!found || found->kind == BAKED_SAME || found->kind == BAKED_NUMBERS || found->kind == BAKED_AFFINE)
        return found;
    Split *split = arena_array(arena, Split, MOST); /* an axis may be the product of two sizes */
    if (!split) return NULL;
    int n = known_splits(b, t, split, MOST);
    return n ? baked_find(arena, t, b->nfiles, name, parameter, split, n) : found;
}

/* Reported; the graph goes on with values that are not the model's, so that all other questions are found, too. */
static Value *unsolved(Make *m, const Value *from)
{
    const Merged *w = &m->b->gen->al.value[m->merged];
    Hole *h = gen_hole(m->b->gen, m->b->step, -1 - m->merged, HOLES_OF_TENSOR);
    if (!h) {
        oom(m->b->err);
        return NULL;
    }
    h->what = arena_printf(m->b->gen->arena, "constant '%s'", from->fqn);
    h->why = m->baked->why;
    h->unsolved = true;
    h->build = m->b->number;
    bool shape = false;
    for (int f = 0; f < m->b->nfiles; f++) {
        char text[200];
        h->shown[f] = w->in[f] ? arena_strdup(m->b->gen->arena, tensor_describe(w->in[f]->data, text, sizeof text))
                               : "nothing";
        shape |= w->in[f] && memcmp(w->in[f]->data->shape, from->data->shape, (size_t)from->rank * sizeof(int64_t));
    }
    if (!shape || !m->baked->nparts) return borrowed(m, from);
    TRY_NULL(sizes(m));
    return EMIT(m, full, arg_exprs(graph(m), m->baked->rank, m->size), arg_int(graph(m), 0),
                arg_dtype(m->baked->dtype));
}

/* Another description has other values. */
static void ask_again(const Build *b, int merged)
{
    for (size_t i = 0; i < b->gen->holes.count; i++) {
        Hole *h = b->gen->holes.entries[i].value;
        if (h->arg == -1 - merged) *h = (Hole){.step = h->step, .arg = h->arg, .elem = h->elem};
    }
}

Value *build_weight(Build *b, int merged, const Step *consumer)
{
    Merged *w = &b->gen->al.value[merged];
    bool settled = w->baked && (w->baked->kind == BAKED_SAME || w->baked->kind == BAKED_NUMBERS);
    if (!w->baked ||
        (!settled && b->nunknown < w->baked_open)) { /* more sizes are known that an axis may be the product of */
        const Baked *before = w->baked;
        w->baked = look_at(b, w);
        w->baked_open = b->nunknown;
        if (!w->baked) {
            oom(b->err);
            return NULL;
        }
        const Baked *now = w->baked;
        if (before &&
            (before->kind != now->kind || before->nparts != now->nparts || before->nruns_axes != now->nruns_axes))
            ask_again(b, merged);
    }
    const Value *from = w->in[0] ? w->in[0] : w->in[1];
    Make m = {.b = b, .baked = w->baked, .merged = merged, .name = from->name, .fqn = from->fqn};
    for (int i = 0; consumer && i < consumer->noperand && m.nlocal < 8; i++)
        if (b->val[consumer->operand[i]]) m.local[m.nlocal++] = b->val[consumer->operand[i]];
    if (w->baked->kind == BAKED_SAME) return borrowed(&m, from);
    if (w->baked->kind == BAKED_UNKNOWN) return unsolved(&m, from);
    if (w->baked->kind == BAKED_NUMBERS) return make_numbers(&m);
    TRY_NULL(sizes(&m));
    switch (w->baked->kind) {
    case BAKED_AFFINE: return make_affine(&m);
    case BAKED_RUNS: return make_runs(&m);
    default: return make_prefix(&m, w->in[w->baked->file]);
    }
}
