/* Lowering of views, sizes and asserts: -1, negative dims, open ends and the many names of a reshape or a permutation
 * become explicit.
 *
 *     flatten(x, 1)            -> reshape(x, [s0, 3*s1])
 *     x.transpose(-1, -2)      -> permute(x, [0, 2, 1])
 *     x.chunk(2, -1)           -> slice(x, 2, 0, 8), slice(x, 2, 8, 16)
 */
#include <stdio.h>
#include "lower/lower_table.h"
#include "base/mem.h"
#include "facts/axes.h"
#include "facts/constant.h"

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

/* ------------------------------------------------------------------ detach */

enum {
    MOST_MAKERS = 4096
}; /* nodes that are looked at: a file may have many detaches after each other, and one too many does no harm */

typedef struct Makers {
    Value **todo;
    int n, nodes;
    bool *seen, trains;
} Makers;

static void look_at_maker(void *user, Value **slot)
{
    Makers *b = user;
    const Value *v = *slot;
    bool floats = dtype_is_float(v->dtype) || dtype_is_complex(v->dtype);
    if (b->seen[v->id]) return;
    b->seen[v->id] = true;
    b->trains |= floats && (v->kind == V_INPUT || (v->kind == V_WEIGHT && v->weight == W_PARAMETER && !v->frozen));
    if (v->kind == V_NODE && floats) b->todo[b->n++] = *slot;
}

Value *detached(Graph *g, Value *x, Err *err)
{
    size_t n = (size_t)g->next_id + 1;
    Makers b = {.todo = mem_zeroed(n, sizeof *b.todo), .seen = mem_zeroed(n, sizeof *b.seen)};
    bool ok = b.todo && b.seen;
    if (ok) look_at_maker(&b, &x);
    while (ok && b.n && !b.trains && b.nodes++ < MOST_MAKERS) node_each_operand(b.todo[--b.n]->def, look_at_maker, &b);
    mem_free(b.todo);
    mem_free(b.seen);
    if (!ok) oom(err);
    if (!ok || (!b.n && !b.trains)) return ok ? x : NULL;
    Node *made = graph_add(g, OP_detach, 1, (Arg[]){arg_value(x)}, x->name, err);
    return made ? made->out[0] : NULL;
}

bool lower_detach(Lower *L)
{
    Value *x;
    return want(L, &x) && lower_return(L, detached(L->g, x, L->err));
}

/* ------------------------------------------------------------------ reshape */

/* sizes with at most one -1, which becomes total / product of the others. */
static bool resolve_sizes(Lower *L, int i, Expr *total, int n, Expr *const *size, Expr **out)
{
    int open = -1;
    Expr *known = ex_int(L->ex, 1);
    for (int k = 0; k < n; k++) {
        out[k] = size[k];
        if (ex_equals_int(size[k], -1)) {
            if (open >= 0) return lower_fail(L, i, "-1 appears twice");
            open = k;
        } else {
            known = ex_mul(L->ex, known, size[k]);
        }
    }
    if (open < 0) return true;
    if (!known || ex_equals_int(known, 0)) return lower_fail(L, i, "-1 cannot be found beside a size of 0");
    out[open] = ex_floordiv(L->ex, total, known);
    return out[open] || fail(L->err, E_LIMIT, "a size expression is too large");
}

/* Where the file says a constant for a size that the expression here cannot determine, the constant goes on and the
 * equality is checked at run time: 4*s0//s1 queries of a mask are 1, for batches that are known to be equal to the file
 * alone. */
static bool take_declared(Lower *L, int n, Expr **dim)
{
    for (int k = 0; k < n && L->declared && L->declared_rank == n; k++) {
        if (ex_is_int(dim[k]) || !ex_is_int(L->declared[k])) continue;
        TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, dim[k], L->declared[k], NULL), L->err,
                          "node '%s': size %d as the file has it", L->name, k));
        dim[k] = L->declared[k];
    }
    return true;
}

bool lower_view(Lower *L)
{
    Value *x;
    Expr *dim[MAX_RANK];
    const Arg *a = &L->arg[1];
    TRY(want(L, &x));
    if (a->n > MAX_RANK) return lower_fail(L, 1, "rank %d: at most %d is supported", a->n, MAX_RANK);
    TRY(resolve_sizes(L, 1, product_of(L->ex, x->rank, x->dim), a->n, a->es, dim) && take_declared(L, a->n, dim));
    return lower_return(L, lower_reshape(L, x, a->n, dim));
}

bool lower_reshape_as(Lower *L)
{
    Value *x, *like = lower_value(L, 1);
    TRY(want(L, &x));
    if (!like) return lower_fail(L, 1, "expected a tensor");
    return lower_return(L, lower_reshape(L, x, like->rank, like->dim));
}

bool lower_flatten(Lower *L)
{
    Value *x;
    int from, to, n = 0;
    Expr *dim[MAX_RANK], *run = ex_int(L->ex, 1);
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &from));
    TRY(lower_dim(L, 2, x->rank, &to));
    if (from > to) return lower_fail(L, 1, "start_dim %d is after end_dim %d", from, to);
    if (x->rank == 0) return lower_return(L, lower_reshape(L, x, 1, &run));
    for (int i = 0; i < x->rank; i++) {
        if (i < from || i > to) dim[n++] = x->dim[i];
        else run = ex_mul(L->ex, run, x->dim[i]);
        if (i == to) dim[n++] = run;
    }
    return lower_return(L, lower_reshape(L, x, n, dim));
}

bool lower_ravel(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    Expr *all = product_of(L->ex, x->rank, x->dim);
    return lower_return(L, lower_reshape(L, x, 1, &all));
}

bool lower_unflatten(Lower *L)
{
    Value *x;
    int d, n = 0;
    Expr *part[MAX_RANK], *dim[2 * MAX_RANK];
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &d));
    const Arg *a = &L->arg[2];
    if (a->n + x->rank - 1 > MAX_RANK) return lower_fail(L, 2, "rank of the result is above %d", MAX_RANK);
    TRY(resolve_sizes(L, 2, x->dim[d], a->n, a->es, part));
    for (int i = 0; i < x->rank; i++) {
        if (i != d) dim[n++] = x->dim[i];
        else
            for (int k = 0; k < a->n; k++) dim[n++] = part[k];
    }
    return lower_return(L, lower_reshape(L, x, n, dim));
}

/* Removes the marked dims where they are 1; a symbolic one goes if the file's rank says that it went. */
static bool squeeze(Lower *L, Value *x, const bool *set)
{
    int n = 0, sure = 0;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) sure += set[i] && ex_equals_int(x->dim[i], 1);
    int symbolic_go = L->declared ? x->rank - sure - L->declared_rank : 0;
    for (int i = 0; i < x->rank; i++) {
        bool gone = set[i] && ex_equals_int(x->dim[i], 1);
        if (set[i] && !gone && symbolic_go > 0 && !ex_is_int(x->dim[i])) {
            TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, x->dim[i], ex_int(L->ex, 1), NULL), L->err,
                              "node '%s': squeezed size", L->name));
            gone = true;
            symbolic_go--;
        }
        if (!gone) dim[n++] = x->dim[i];
    }
    return lower_return(L, lower_reshape(L, x, n, dim));
}

bool lower_squeeze(Lower *L)
{
    Value *x;
    bool set[MAX_RANK];
    TRY(want(L, &x));
    for (int i = 0; i < x->rank; i++) set[i] = true;
    return squeeze(L, x, set);
}

bool lower_squeeze_dim(Lower *L)
{
    Value *x;
    bool set[MAX_RANK] = {false};
    TRY(want(L, &x));
    const Arg *a = &L->arg[1];
    for (int k = 0; k < (a->kind == ARG_EXPRS ? a->n : 1); k++) {
        const Expr *e = a->kind == ARG_EXPRS ? a->es[k] : a->e;
        int n = x->rank ? x->rank : 1;
        if (!e || !ex_is_int(e) || e->i < -n || e->i >= n)
            return lower_fail(L, 1, "dim out of range for rank %d", x->rank);
        set[e->i < 0 ? e->i + n : e->i] = true;
    }
    return squeeze(L, x, set);
}

bool lower_unsqueeze(Lower *L)
{
    Value *x;
    int d, n = 0;
    Expr *dim[MAX_RANK + 1];
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank + 1, &d));
    if (x->rank == MAX_RANK) return lower_fail(L, 0, "rank of the result is above %d", MAX_RANK);
    for (int i = 0; i <= x->rank; i++) {
        if (i == d) dim[n++] = ex_int(L->ex, 1);
        if (i < x->rank) dim[n++] = x->dim[i];
    }
    return lower_return(L, lower_reshape(L, x, n, dim));
}

static Value *atleast(Lower *L, Value *x, int n)
{
    Expr *one = ex_int(L->ex, 1), *dim[3] = {one, one, one};
    if (x->rank >= n) return x;
    if (x->rank == 1) dim[1] = x->dim[0]; /* (n) -> (1, n) -> (1, n, 1) */
    if (x->rank == 2) {
        dim[0] = x->dim[0];
        dim[1] = x->dim[1];
    }
    return lower_reshape(L, x, n, dim);
}

/* one tensor, or each of a list */
bool lower_atleast(Lower *L)
{
    int n = L->op->name[sizeof "aten.atleast_" - 1] - '0';
    const Arg *a = &L->arg[0];
    if (a->kind == ARG_VALUE) return lower_return(L, atleast(L, a->v, n));
    Arg list = {.kind = ARG_VALUES, .n = a->n, .vs = arena_array(L->g->arena, Value *, a->n + 1)};
    if (!list.vs) return oom(L->err);
    for (int i = 0; i < a->n; i++) TRY(list.vs[i] = atleast(L, a->vs[i], n));
    L->result = list;
    return true;
}

/* ------------------------------------------------------------------ permute */

bool lower_transpose(Lower *L)
{
    Value *x;
    int a, b, perm[MAX_RANK];
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &a));
    TRY(lower_dim(L, 2, x->rank, &b));
    for (int i = 0; i < x->rank; i++) perm[i] = i == a ? b : i == b ? a : i;
    return lower_return(L, lower_permute(L, x, perm));
}

bool lower_permute_copy(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    return lower_return(L, EMIT(L, permute, arg_value(x), L->arg[1]));
}

bool lower_reverse(Lower *L)
{
    Value *x;
    int perm[MAX_RANK];
    TRY(want(L, &x));
    for (int i = 0; i < x->rank; i++) perm[i] = x->rank - 1 - i;
    return lower_return(L, lower_permute(L, x, perm));
}

bool lower_last_two(Lower *L)
{
    Value *x;
    int perm[MAX_RANK];
    TRY(want(L, &x));
    if (x->rank < 2) return lower_fail(L, 0, "rank %d: expected at least 2", x->rank);
    for (int i = 0; i < x->rank; i++) perm[i] = i < x->rank - 2 ? i : 2 * x->rank - 3 - i;
    return lower_return(L, lower_permute(L, x, perm));
}

static bool move_dims(Lower *L, Value *x, int n, const int *from, const int *to)
{
    int perm[MAX_RANK], next = 0;
    bool taken[MAX_RANK] = {false}, placed[MAX_RANK] = {false};
    for (int k = 0; k < n; k++) {
        perm[to[k]] = from[k];
        taken[from[k]] = placed[to[k]] = true;
    }
    for (int i = 0; i < x->rank; i++) {
        if (placed[i]) continue;
        while (taken[next]) next++;
        perm[i] = next++;
    }
    return lower_return(L, lower_permute(L, x, perm));
}

bool lower_movedim_int(Lower *L)
{
    Value *x;
    int from, to;
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &from));
    TRY(lower_dim(L, 2, x->rank, &to));
    return x->rank ? move_dims(L, x, 1, &from, &to) : lower_return(L, x);
}

bool lower_movedim(Lower *L)
{
    Value *x;
    int d[2][MAX_RANK];
    bool seen[2][MAX_RANK] = {{false}};
    TRY(want(L, &x));
    if (L->arg[1].n != L->arg[2].n) return lower_fail(L, 2, "found %d dims, expected %d", L->arg[2].n, L->arg[1].n);
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < L->arg[1 + side].n; k++) {
            const Expr *e = L->arg[1 + side].es[k];
            if (!ex_is_int(e) || e->i < -x->rank || e->i >= x->rank)
                return lower_fail(L, 1 + side, "dim out of range for rank %d", x->rank);
            int v = (int)(e->i < 0 ? e->i + x->rank : e->i);
            if (seen[side][v]) return lower_fail(L, 1 + side, "dim %d appears twice", v);
            seen[side][v] = true;
            d[side][k] = v;
        }
    return move_dims(L, x, L->arg[1].n, d[0], d[1]);
}

/* ------------------------------------------------------------------ expand */

static bool expand_to(Lower *L, Value *x, int n, Expr *const *size)
{
    Expr *dim[MAX_RANK];
    int lead = n - x->rank;
    if (lead < 0 || n > MAX_RANK) return lower_fail(L, 1, "found %d sizes for a tensor of rank %d", n, x->rank);
    bool same = lead == 0;
    for (int i = 0; i < n; i++) {
        dim[i] = size[i];
        if (ex_equals_int(size[i], -1)) {
            if (i < lead) return lower_fail(L, 1, "-1 stands for a dim that does not exist");
            dim[i] = x->dim[i - lead];
        }
        same = same && dim[i] == x->dim[i];
    }
    return lower_return(L, same ? x : EMIT(L, expand, arg_value(x), arg_exprs(L->g, n, dim)));
}

bool lower_expand(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    return expand_to(L, x, L->arg[1].n, L->arg[1].es);
}

bool lower_expand_as(Lower *L)
{
    Value *x, *like = lower_value(L, 1);
    TRY(want(L, &x));
    if (!like) return lower_fail(L, 1, "expected a tensor");
    return expand_to(L, x, like->rank, like->dim);
}

/* ------------------------------------------------------------------ parts */

/* An index or bound that may be negative, counted from the end then. */
static Expr *from_end(Lower *L, Expr *e, Expr *size)
{
    int64_t lo, hi;
    ex_range(L->ex, e, &lo, &hi);
    if (lo >= 0) return e;
    Expr *back = ex_add(L->ex, e, size);
    if (hi < 0) return back;
    return ex_make(L->ex, EX_WHERE, ex_make(L->ex, EX_LT, e, ex_int(L->ex, 0), NULL), back, e);
}

static Value *emit_slice(Lower *L, Value *x, int dim, Expr *start, Expr *end, Expr *step)
{
    if (ex_equals_int(start, 0) && end == x->dim[dim] && ex_equals_int(step, 1)) return x;
    return EMIT(L, slice_Tensor, arg_value(x), arg_int(L->g, dim), arg_expr(start), arg_expr(end), arg_expr(step));
}

bool lower_slice(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    if (x->rank == 0) return lower_fail(L, 0, "a tensor of rank 0 cannot be sliced");
    TRY(lower_dim(L, 1, x->rank, &d));
    Expr *size = x->dim[d], *zero = ex_int(L->ex, 0), *start = lower_expr(L, 2), *end = lower_expr(L, 3);
    bool last = start && ex_is_int(start) && start->i < 0; /* max(0, size - k) is no more than the size */
    start = last    ? ex_max(L->ex, zero, from_end(L, start, size))
            : start ? ex_min(L->ex, ex_max(L->ex, zero, from_end(L, start, size)), size)
                    : zero;
    if (!end || (ex_is_int(end) && end->i == INT64_MAX)) end = size;
    else end = ex_max(L->ex, start, ex_min(L->ex, from_end(L, end, size), size));
    if (!start || !end) return fail(L->err, E_LIMIT, "a size expression is too large");
    return lower_return(L, emit_slice(L, x, d, start, end, lower_expr(L, 4)));
}

bool lower_narrow(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &d));
    Expr *start = lower_expr(L, 2), *length = lower_expr(L, 3);
    if (!start || !length || !x->rank) return lower_fail(L, 2, "expected an integer");
    start = from_end(L, start, x->dim[d]);
    Expr *end = ex_add(L->ex, start, length);
    TRY(graph_require(L->g, ex_make(L->ex, EX_LE, ex_int(L->ex, 0), length, NULL), L->err,
                      "node '%s': a length of at least 0", L->name));
    TRY(graph_require(L->g, ex_make(L->ex, EX_LE, end, x->dim[d], NULL), L->err,
                      "node '%s': start + length within dim %d", L->name, d));
    return lower_return(L, emit_slice(L, x, d, start, end, ex_int(L->ex, 1)));
}

bool lower_select(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    if (x->rank == 0) return lower_fail(L, 0, "a tensor of rank 0 has nothing to select from");
    TRY(lower_dim(L, 1, x->rank, &d));
    Expr *index = lower_expr(L, 2);
    if (!index) return lower_fail(L, 2, "expected an integer");
    index = from_end(L, index, x->dim[d]);
    if (ex_equals_int(x->dim[d], 1) && ex_equals_int(index, 0)) { /* the only one */
        Expr *dim[MAX_RANK];
        for (int i = 0, k = 0; i < x->rank; i++)
            if (i != d) dim[k++] = x->dim[i];
        return lower_return(L, lower_reshape(L, x, x->rank - 1, dim));
    }
    return lower_return(L, EMIT(L, select_int, arg_value(x), arg_int(L->g, d), arg_expr(index)));
}

bool lower_as_strided_copy(Lower *L) { return lower_return(L, lower_emit(L, OP_as_strided, 4, L->arg)); }

bool lower_diagonal_copy(Lower *L) { return lower_return(L, lower_emit(L, OP_diagonal, 4, L->arg)); }

/* m pieces that end at end[0], end[1], ... along dim d. */
static bool pieces(Lower *L, Value *x, int d, int m, Expr *const *end)
{
    if (L->nout_names && m != L->nout_names)
        return fail(L->err, E_FORMAT, "%d pieces, the file names %d", m, L->nout_names);
    Arg list = {.kind = ARG_VALUES, .n = m, .vs = arena_array(L->g->arena, Value *, m + 1)};
    if (!list.vs) return oom(L->err);
    Expr *start = ex_int(L->ex, 0), *one = ex_int(L->ex, 1);
    for (int k = 0; k < m; k++) {
        if (!end[k]) return fail(L->err, E_LIMIT, "a size expression is too large");
        TRY(list.vs[k] = emit_slice(L, x, d, start, end[k], one));
        start = end[k];
    }
    L->result = list;
    return true;
}

enum { MAX_PIECES = 1 << 13 };

static bool even_pieces(Lower *L, Value *x, int d, Expr *size)
{
    Expr *n = x->dim[d], *count = ex_floordiv(L->ex, ex_sub(L->ex, ex_add(L->ex, n, size), ex_int(L->ex, 1)), size);
    int64_t m = L->nout_names;
    if (count && ex_is_int(count)) m = count->i > 1 ? count->i : 1;
    if (m < 1 || m > MAX_PIECES) return lower_fail(L, 1, "the number of pieces is not known or out of range");
    Expr **end = arena_array(L->g->arena, Expr *, m);
    if (!end) return oom(L->err);
    for (int64_t k = 0; k < m; k++) end[k] = k == m - 1 ? n : ex_mul(L->ex, size, ex_int(L->ex, k + 1));
    if (!(count && ex_is_int(count)))
        TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, count, ex_int(L->ex, m), NULL), L->err,
                          "node '%s': number of pieces", L->name));
    return pieces(L, x, d, (int)m, end);
}

bool lower_split(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 2, x->rank, &d));
    Expr *size = lower_expr(L, 1);
    int64_t lo, hi;
    if (!size || !x->rank) return lower_fail(L, 1, "expected an integer and a tensor of rank 1 or more");
    ex_range(L->ex, size, &lo, &hi);
    if (hi < 1) return lower_fail(L, 1, "must be at least 1");
    return even_pieces(L, x, d, size);
}

static bool sections(Lower *L, Value *x, int d, int64_t m)
{
    if (m < 1 || m > MAX_PIECES || !x->rank) return lower_fail(L, 1, "found %lld, expected at least 1", (long long)m);
    Expr *n = x->dim[d], *count = ex_int(L->ex, m), *each = ex_floordiv(L->ex, n, count),
         *extra = ex_mod(L->ex, n, count);
    Expr **end = arena_array(L->g->arena, Expr *, m);
    if (!end) return oom(L->err);
    for (int64_t k = 1; k <= m; k++) {
        Expr *e = ex_int(L->ex, k);
        end[k - 1] = k == m ? n : ex_add(L->ex, ex_mul(L->ex, each, e), ex_min(L->ex, extra, e));
    }
    return pieces(L, x, d, (int)m, end);
}

bool lower_chunk(Lower *L)
{
    Value *x;
    int d;
    int64_t chunks;
    TRY(want(L, &x));
    TRY(lower_dim(L, 2, x->rank, &d));
    TRY(lower_const_int(L, 1, &chunks));
    if (chunks < 1 || !x->rank) return lower_fail(L, 1, "found %lld, expected at least 1", (long long)chunks);
    if (ex_equals_int(x->dim[d], 0)) return sections(L, x, d, chunks); /* as many as asked for, all of them empty */
    Expr *c = ex_int(L->ex, chunks);
    Expr *size = ex_floordiv(L->ex, ex_sub(L->ex, ex_add(L->ex, x->dim[d], c), ex_int(L->ex, 1)), c);
    return even_pieces(L, x, d, ex_max(L->ex, size, ex_int(L->ex, 1)));
}

bool lower_split_sizes(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 2, x->rank, &d));
    const Arg *a = &L->arg[1];
    Expr **end = arena_array(L->g->arena, Expr *, a->n + 1), *at = ex_int(L->ex, 0);
    if (!end || !x->rank) return lower_fail(L, 0, "expected a tensor of rank 1 or more");
    for (int k = 0; k < a->n; k++) end[k] = at = ex_add(L->ex, at, a->es[k]);
    if (!at) return fail(L->err, E_LIMIT, "a size expression is too large");
    TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, at, x->dim[d], NULL), L->err, "node '%s': sum of split sizes",
                      L->name));
    return pieces(L, x, d, a->n, end);
}

bool lower_tensor_split(Lower *L)
{
    Value *x;
    int d;
    int64_t m;
    TRY(want(L, &x));
    TRY(lower_dim(L, 2, x->rank, &d));
    TRY(lower_const_int(L, 1, &m));
    return sections(L, x, d, m);
}

/* The dim of hsplit, vsplit and dsplit: 1 (0 of a vector), 0, 2. */
static int split_dim(const Lower *L, const Value *x)
{
    char how = L->op->name[sizeof "aten." - 1];
    return how == 'd' ? 2 : how == 'h' && x->rank > 1 ? 1 : 0;
}

bool lower_hsplit(Lower *L)
{
    Value *x;
    int64_t m;
    TRY(want(L, &x));
    TRY(lower_const_int(L, 1, &m));
    int d = split_dim(L, x);
    return d < x->rank ? sections(L, x, d, m) : lower_fail(L, 0, "rank %d", x->rank);
}

static bool split_at(Lower *L, Value *x, int d, int n, Expr *const *index)
{
    Arg list = {.kind = ARG_VALUES, .n = n + 1, .vs = arena_array(L->g->arena, Value *, n + 2)};
    if (!list.vs || !x->rank) return lower_fail(L, 0, "expected a tensor of rank 1 or more");
    Expr *size = x->dim[d], *start = ex_int(L->ex, 0), *one = ex_int(L->ex, 1), *zero = start;
    for (int k = 0; k <= n; k++) {
        Expr *at = k < n ? ex_min(L->ex, ex_max(L->ex, zero, from_end(L, index[k], size)), size) : size;
        TRY(list.vs[k] = emit_slice(L, x, d, start, ex_max(L->ex, start, at), one));
        start = at;
    }
    L->result = list;
    return true;
}

bool lower_tensor_split_indices(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 2, x->rank, &d));
    return split_at(L, x, d, L->arg[1].n, L->arg[1].es);
}

bool lower_split_array(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    int d = split_dim(L, x);
    return d < x->rank ? split_at(L, x, d, L->arg[1].n, L->arg[1].es) : lower_fail(L, 0, "rank %d", x->rank);
}

bool lower_unbind(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &d));
    if (!x->rank) return lower_fail(L, 0, "a tensor of rank 0 cannot be unbound");
    int64_t m = ex_is_int(x->dim[d]) ? x->dim[d]->i : L->nout_names ? L->nout_names : -1;
    if (m < 0 || m > MAX_PIECES)
        return lower_fail(L, 0, "size of dim %d must be a constant of at most %d", d, MAX_PIECES);
    Arg list = {.kind = ARG_VALUES, .n = (int)m, .vs = arena_array(L->g->arena, Value *, m + 1)};
    if (!list.vs) return oom(L->err);
    for (int64_t k = 0; k < m; k++)
        TRY(list.vs[k] = EMIT(L, select_int, arg_value(x), arg_int(L->g, d), arg_int(L->g, k)));
    L->result = list;
    return true;
}

/* ------------------------------------------------------------------ sizes */

static bool number(Lower *L, Expr *e)
{
    if (!e) return fail(L->err, E_LIMIT, "a size expression is too large");
    L->result = arg_expr(e);
    return true;
}

bool lower_size(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &d));
    if (!x->rank) return lower_fail(L, 0, "a tensor of rank 0 has no sizes");
    return number(L, x->dim[d]);
}

bool lower_numel(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    return number(L, product_of(L->ex, x->rank, x->dim));
}

bool lower_stride(Lower *L)
{
    Value *x;
    int d;
    TRY(want(L, &x));
    TRY(lower_dim(L, 1, x->rank, &d));
    Expr *e = ex_int(L->ex, 1);
    for (int i = d + 1; i < x->rank; i++) e = ex_mul(L->ex, e, x->dim[i]);
    return number(L, e);
}

bool lower_zero(Lower *L) { return number(L, ex_int(L->ex, 0)); }

/* The symbol that the file declares for the number: u0, or that of a bool, Eq(u0, 1). */
static Expr *declared_symbol(const Lower *L, DType t)
{
    Expr *e = L->declared_number;
    if (e && t == DT_BOOL && e->kind == EX_EQ) e = e->args[e->args[0]->kind != EX_SYM];
    bool mine = e && e->kind == EX_SYM && expr_symbol(L->ex, (int)e->i)->source == SYM_FREE;
    return mine && e->is_float == dtype_is_float(t) ? e : NULL;
}

/* A symbol that a run reads from x, a tensor of one element. */
static Expr *read_symbol(Lower *L, Value *x, Expr *declared)
{
    char name[32];
    snprintf(name, sizeof name, dtype_is_float(x->dtype) ? "zuf%d" : "i%d", expr_symbol_count(L->ex));
    Expr *e = declared ? declared : ex_symbol(L->ex, name);
    if (!e) {
        oom(L->err);
        return NULL;
    }
    Symbol *s = expr_symbol(L->ex, (int)e->i);
    s->source = SYM_ITEM;
    s->value = x;
    return e;
}

/* A tensor's only element becomes a symbol, bound at run time; that of a weight is read now.
 * A bool is whether its symbol is 1. */
bool lower_item(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    for (int i = 0; i < x->rank; i++)
        TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, x->dim[i], ex_int(L->ex, 1), NULL), L->err,
                          "node '%s': one element", L->name));
    if (x->kind == V_WEIGHT) {
        if (dtype_is_float(x->dtype)) return number(L, ex_float(L->ex, tensor_get(x->data, 0)));
        if (x->dtype == DT_BOOL) return number(L, ex_bool(L->ex, tensor_get_i64(x->data, 0) != 0));
        return number(L, ex_int(L->ex, tensor_get_i64(x->data, 0)));
    }
    if (dtype_is_complex(x->dtype))
        return fail(L->err, E_UNSUPPORTED, "a %s number read out of a tensor", dtype_name(x->dtype));
    Expr *e = read_symbol(L, x, declared_symbol(L, x->dtype));
    TRY(e);
    Symbol *s = expr_symbol(L->ex, (int)e->i);
    if (x->dtype == DT_BOOL) {
        s->lo = 0;
        s->hi = 1;
    }
    Expr *known = L->declared_number; /* torch._check(n.item() == 12): the file goes on with 12 */
    if (known && (known->kind == EX_INT || known->kind == EX_BOOL)) {
        s->lo = s->hi = known->i;
        return number(L, known);
    }
    int64_t held; /* computed from constants alone: the paddings of a codec's convolutions */
    if (L->integers_stay && constant_integer(L->g, x, &held)) {
        s->lo = s->hi = held;
        return number(L, ex_int(L->ex, held));
    }
    if (x->dtype != DT_BOOL) return number(L, e);
    return number(L, ex_make(L->ex, EX_EQ, e, ex_int(L->ex, 1), NULL));
}

/* Element k of a vector, as a size. */
static Expr *element(Lower *L, Value *x, int64_t k)
{
    const Tensor *known = constant_tensor(L->g, x);
    if (known) return ex_int(L->ex, tensor_get_i64(known, k));
    Value *one = AS(L, select_int, arg_value(x), arg_int(L->g, 0), arg_int(L->g, k));
    return one ? read_symbol(L, one, NULL) : NULL;
}

/* A tensor says where: a number how many sections there are, a vector where they begin. */
bool lower_tensor_split_where(Lower *L)
{
    Value *x, *at = lower_value(L, 1);
    int d;
    TRY(want(L, &x) && lower_dim(L, 2, x->rank, &d));
    if (!at || at->rank > 1 || at->dtype != DT_I64)
        return lower_fail(L, 1, "expected a number or a vector of integers (i64)");
    const Tensor *known = constant_tensor(L->g, at);
    int64_t n = known ? tensor_numel(known) : at->rank && ex_is_int(at->dim[0]) ? at->dim[0]->i : L->nout_names - 1;
    if (!at->rank) return sections(L, x, d, known ? tensor_get_i64(known, 0) : L->nout_names);
    Expr **es = n >= 0 && n <= MAX_PIECES ? arena_array(L->g->arena, Expr *, n + 1) : NULL;
    if (!es) return lower_fail(L, 1, "%lld indices, at most %d are supported", (long long)n, MAX_PIECES);
    for (int64_t k = 0; k < n; k++) TRY(es[k] = element(L, at, k));
    return split_at(L, x, d, (int)n, es);
}

bool lower_assert_scalar(Lower *L)
{
    Expr *cond = lower_expr(L, 0);
    L->result = arg_none();
    if (!cond) return lower_fail(L, 0, "expected a truth value");
    if (cond->kind == EX_INT) cond = ex_bool(L->ex, cond->i != 0);
    return graph_require(L->g, cond, L->err, "assert: %.200s", L->arg[1].kind == ARG_STR ? L->arg[1].s : "");
}

/* The first elements of self in another shape. More of them than it has are what memory held: there are none. */
bool lower_resize(Lower *L)
{
    Value *x = lower_value(L, 0), *like = lower_value(L, 1);
    const Arg *size = &L->arg[1];
    if (!x || (!like && size->kind != ARG_EXPRS)) return lower_fail(L, 0, "expected a tensor and sizes");
    int rank = like ? like->rank : size->n;
    Expr *const *dim = like ? like->dim : size->es, *have = ex_int(L->ex, 1), *want = have;
    for (int i = 0; i < x->rank; i++) have = ex_mul(L->ex, have, x->dim[i]);
    for (int i = 0; i < rank; i++) want = ex_mul(L->ex, want, dim[i]);
    if (have != want) {
        if (ex_is_int(have) && ex_is_int(want) && want->i > have->i)
            return lower_fail(L, 1, "%lld elements of a tensor that has %lld: what PyTorch gives for the others is not "
                              "defined", (long long)want->i, (long long)have->i);
        x = lower_reshape(L, x, 1, &have);
        x = AS(L, slice_Tensor, arg_value(x), arg_int(L->g, 0), arg_int(L->g, 0), arg_expr(want));
    }
    return lower_return(L, lower_reshape(L, x, rank, dim));
}
