/* Building the common graph with symbolic sizes, once through all steps. Contract in generalize_impl.h; generalize.c
 * decides what is built again and with what settled.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "generalize/common.h"
#include "base/mem.h"
#include "base/vec.h"
#include "facts/axes.h"

/* ------------------------------------------------------------------ holes */

Hole *gen_hole(Gen *gen, int step, int arg, int elem)
{
    char key[48];
    snprintf(key, sizeof key, "%d.%d.%d", step, arg, elem);
    Hole *h = map_get(&gen->holes, key);
    if (h) return h;
    h = arena_new(gen->arena, Hole);
    char *copy = arena_strdup(gen->arena, key);
    if (!h || !copy || !map_put(&gen->holes, copy, h)) return NULL;
    *h = (Hole){.step = step, .arg = arg, .elem = elem};
    return h;
}

/* ------------------------------------------------------------------ what a number is in each file */

static Scalar scalar_of(const Expr *e)
{
    if (e->kind == EX_FLOAT) return (Scalar){.kind = SC_FLOAT, .f = e->f};
    return (Scalar){.kind = e->kind == EX_BOOL ? SC_BOOL : SC_INT, .i = e->i};
}

static const Expr *number_in(const Node *n, int arg, int elem)
{
    return n->arg[arg].kind == ARG_EXPR ? n->arg[arg].e : n->arg[arg].es[elem];
}

/* The number that leaves a value v of the file alone; out: what comes of it, v again but for axes of 1. */
static Scalar idle_number(const Node *base, const Value *v, const Value *out, int arg, int elem)
{
    Scalar s = scalar_of(number_in(base, arg, elem));
    switch (base->op->id) {
    case OP_slice_Tensor: {
        const Expr *e = number_in(base, 1, 0);
        if (arg == 2) s.i = 0;
        if (arg == 3) s.i = v->dim[e->i < 0 ? e->i + v->rank : e->i]->i;
        break;
    }
    case OP_expand:
    case OP_reshape:
        if (arg == 1) s.i = out->dim[elem]->i;
        break;
    default:
        if (arg == 1) s.i = 0; /* pads */
        break;
    }
    return s;
}

static bool number_at(const Build *b, const Step *s, int arg, int elem, Scalar *v)
{
    const Node *base = s->node[s->base];
    for (int f = 0; f < b->nfiles; f++) {
        if (!s->node[f]) {
            v[f] = idle_number(base, b->gen->al.value[s->operand[0]].in[f], b->gen->al.value[s->out].in[f], arg, elem);
            continue;
        }
        const Expr *e = number_in(s->node[f], arg, elem);
        if (!ex_is_const(e)) return false;
        v[f] = scalar_of(e);
    }
    return true;
}

static void ints(const Build *b, const Scalar *v, int64_t *out)
{
    for (int f = 0; f < b->nfiles; f++) out[f] = v[f].i;
}

/* ------------------------------------------------------------------ nodes */

typedef struct Place {
    Build *b;
    const Step *s;
    const Node *base;
    Arg *arg; /* being filled in: tensors are there */
    Value *local[8];
    int nlocal;
} Place;

static bool too_large(Err *err) { return fail(err, E_LIMIT, "out of memory, or a size expression is too large"); }

/* One number by what is known of its node; given may be NULL. */
static Expr *number(Place *p, int arg, int elem, const Cands *given, int how)
{
    Scalar v[GEN_FILES];
    Hole *h = gen_hole(p->b->gen, p->b->step, arg, elem);
    if (!h || !number_at(p->b, p->s, arg, elem, v)) {
        fail(p->b->err, E_UNSUPPORTED, "node '%s': a data-dependent size", p->base->name);
        return NULL;
    }
    Expr *e = solve_number(p->b, h, v, p->local, p->nlocal, given, how);
    if (!e && p->b->err->code == E_OK) too_large(p->b->err);
    return e;
}

static bool any_numbers(Place *p, int arg, int how)
{
    const Arg *a = &p->base->arg[arg];
    if (a->kind == ARG_EXPR) {
        p->arg[arg].e = number(p, arg, 0, NULL, how);
        return p->arg[arg].e != NULL;
    }
    if (a->kind != ARG_EXPRS) return true;
    Expr **list = arena_array(p->b->g->arena, Expr *, a->n + 1);
    for (int i = 0; list && i < a->n; i++) TRY(list[i] = number(p, arg, i, NULL, how));
    p->arg[arg].es = list;
    return list || too_large(p->b->err);
}

/* Numbers that may be sizes, by the op: of new tensors, of positions, of operands. */
static int how_solved(const Op *op, int arg)
{
    switch (op->id) {
    case OP_full:
    case OP_rand: return arg < 2 ? SOLVE_SIZE : 0;
    case OP_arange_start_step: return arg < 2 ? SOLVE_SIZE | SOLVE_SPACE : 0;
    case OP_col2im: return arg == 1 ? SOLVE_SIZE | SOLVE_SPACE : 0;
    case OP_adaptive_avg_pool2d: return arg == 1 ? SOLVE_SPACE : 0;
    default:
        return (op->flags & OPF_COMPARES ? SOLVE_NEAR : 0) |
               (op->schema->params[arg].type == PT_TENSOR ? SOLVE_SIZE | SOLVE_SPACE : 0);
    }
}

static bool reshape_numbers(Place *p)
{
    const Arg *a = &p->base->arg[1];
    Scalar v[MAX_RANK][GEN_FILES];
    Expr **list = arena_array(p->b->g->arena, Expr *, a->n + 1);
    if (!list || a->n > MAX_RANK) return too_large(p->b->err);
    for (int i = 0; i < a->n; i++)
        if (!number_at(p->b, p->s, 1, i, v[i]))
            return fail(p->b->err, E_UNSUPPORTED, "node '%s': a data-dependent size", p->base->name);
    p->arg[1].es = list;
    return solve_reshape(p->b, p->local[0], (const Scalar(*)[GEN_FILES])v, a->n, list);
}

/* An axis that is there already keeps its size. */
static bool expand_numbers(Place *p)
{
    const Arg *a = &p->base->arg[1];
    const Value *x = p->local[0];
    Expr **list = arena_array(p->b->g->arena, Expr *, a->n + 1);
    if (!list) return too_large(p->b->err);
    for (int i = 0; i < a->n; i++) {
        Scalar v[GEN_FILES];
        int64_t want[GEN_FILES];
        int d = i - (a->n - x->rank);
        Cands kept = {0};
        TRY(number_at(p->b, p->s, 1, i, v));
        ints(p->b, v, want);
        if (d >= 0 && !ex_is_const(x->dim[d])) cand_add(p->b, &kept, want, x->dim[d], 1);
        TRY(list[i] = number(p, 1, i, &kept, SOLVE_SIZE));
    }
    p->arg[1].es = list;
    return true;
}

enum { NEAR_SLICES = 12, SLICES_AHEAD = 64 };

/* Where the axis of a slice, or of a slice_scatter, stands among the arguments; start, end and step follow.
 * -1: another op. */
static int slice_axis(const Node *n)
{
    return n->op->id == OP_slice_Tensor ? 1 : n->op->id == OP_slice_scatter ? 2 : -1;
}

/* What was cut from such a tensor before and goes on here, or ends where this begins: x[:n], x[n:]. */
static void other_part(const Build *b, const Value *x, int64_t axis, const int64_t *start, const int64_t *end,
                       Cands *from, Cands *to)
{
    int k = 0;
    for (const Node *n = b->g->last; n && k < NEAR_SLICES; n = n->prev, k++) {
        int at = slice_axis(n);
        if (at < 0 || !same_dims(n->arg[0].v, x) || !ex_equals_int(n->arg[at].e, axis)) continue;
        if (!ex_is_const(n->arg[at + 1].e)) cand_add(b, to, end, n->arg[at + 1].e, 1);
        if (!ex_is_const(n->arg[at + 2].e)) cand_add(b, from, start, n->arg[at + 2].e, 1);
    }
}

/* Slices soon after this one go on where it ends, each of a fixed length, up to the end of the axis:
 * x[:-4], x[-4:-2], x[-2:]. */
static bool tail_follows(const Build *b, const Step *s, int64_t axis, const int64_t *end, const int64_t *size)
{
    const Aligned *a = &b->gen->al;
    const Value *x = node_operand(s->node[s->base], 0);
    int64_t now[GEN_FILES];
    memcpy(now, end, sizeof now);
    for (int i = b->step + 1; i < a->nstep && i < b->step + SLICES_AHEAD; i++) {
        const Step *t = &a->step[i];
        const Node *n = t->node[t->base];
        int at = slice_axis(n);
        Scalar from[GEN_FILES], to[GEN_FILES];
        if (at < 0 || !ex_equals_int(n->arg[at].e, axis) || t->base != s->base) continue;
        bool next = number_at(b, t, at + 1, 0, from) && number_at(b, t, at + 2, 0, to), last = true;
        for (int d = 0; next && d < x->rank; d++)
            next = n->arg[0].v->rank == x->rank && (d != axis || n->arg[0].v->dim[d] == x->dim[d]);
        for (int f = 0; next && f < b->nfiles; f++) {
            next = from[f].i == now[f] && to[f].i - from[f].i == to[0].i - from[0].i && to[f].i > from[f].i;
            last = last && to[f].i == size[f];
        }
        if (next && last) return true;
        for (int f = 0; next && f < b->nfiles; f++) now[f] = to[f].i;
    }
    return false;
}

/* Sizes that have to do with this one, from `rank` on; those that only happen to be as large come after what is
 * merely known. */
static void cand_kin(const Build *b, Cands *c, const int64_t *v, const Expr *dim, int rank)
{
    Cands known = {0};
    cand_known(b, &known, v, 0);
    for (int i = 0; i < known.n; i++) {
        bool kin = known.c[i].e->symbols & dim->symbols || ex_is_const(dim);
        cand_add(b, c, v, known.c[i].e, known.c[i].rank + (kin ? rank : R_KNOWN + 6));
    }
}

/* The middle of an axis that is fixed, as long as sizes say: table[64 - s:63 + s]. */
static void middle_part(const Build *b, int64_t all, const int64_t *start, const int64_t *end, Cands *from)
{
    for (int f = 0; f < b->nfiles; f++)
        if (start[f] + end[f] != all) return;
    for (int i = 0; i < b->natom; i++) {
        const Atom *a = &b->atom[i];
        int64_t c = start[0] + a->v[0];
        if (!a->number && 2 * c >= all - 2 && 2 * c <= all + 2)
            cand_add(b, from, start, ex_sub(b->ex, ex_int(b->ex, c), a->e), R_KNOWN + (a->size > 7));
    }
}

static bool slice_numbers(Place *p)
{
    Build *b = p->b;
    const Value *x = p->local[0];
    int at = slice_axis(p->base);
    Scalar v[GEN_FILES];
    int64_t start[GEN_FILES], end[GEN_FILES], size[GEN_FILES];
    TRY(any_numbers(p, at, 0) && any_numbers(p, at + 3, 0));
    int64_t d = p->arg[at].e->kind == EX_INT ? p->arg[at].e->i : -1;
    if (d < 0) d += x->rank;
    if (d < 0 || d >= x->rank) return fail(b->err, E_FORMAT, "node '%s': axis %lld", p->base->name, (long long)d);
    Expr *dim = x->dim[d];
    Cands from = {0}, to = {0};
    TRY(number_at(b, p->s, at + 1, 0, v));
    ints(b, v, start);
    TRY(number_at(b, p->s, at + 2, 0, v));
    ints(b, v, end);
    if (!ex_is_const(dim) && eval_at(b, dim, size)) {
        bool fixed_start = true, fixed_end = true, same_start = true, same_end = true;
        for (int f = 1; f < b->nfiles; f++) {
            same_start = same_start && start[f] == start[0];
            same_end = same_end && end[f] == end[0];
            fixed_start = fixed_start && size[f] - start[f] == size[0] - start[0];
            fixed_end = fixed_end && size[f] - end[f] == size[0] - end[0];
        }
        bool to_end = !memcmp(end, size, (size_t)b->nfiles * sizeof *end),
             tail = fixed_end && tail_follows(b, p->s, d, end, size);
        cand_add(b, &to, end, dim, 1);
        fixed_start = fixed_start && !same_start; /* what is the same in every file is a constant */
        fixed_end = fixed_end && !same_end;
        /* the last few: x[-2:]. All but the last few is as often a size that was padded. */
        if (fixed_start)
            cand_add(b, &from, start, ex_sub(b->ex, dim, ex_int(b->ex, size[0] - start[0])), to_end ? 2 : R_KNOWN + 3);
        if (fixed_end)
            cand_add(b, &to, end, ex_sub(b->ex, dim, ex_int(b->ex, size[0] - end[0])), tail ? 2 : R_KNOWN + 3);
        /* equal starts and ends of an axis that only happens to be as long: counted from the nearer side */
        bool level = true;
        for (int f = 1; f < b->nfiles; f++) level = level && size[f] == size[0];
        if (level && same_start && size[0] - start[0] < start[0])
            cand_add(b, &from, start, ex_sub(b->ex, dim, ex_int(b->ex, size[0] - start[0])), 3);
        if (level && same_end && size[0] - end[0] < end[0])
            cand_add(b, &to, end, ex_sub(b->ex, dim, ex_int(b->ex, size[0] - end[0])), 3);
        Cands unused = {0};
        other_part(b, x, d, start, end, same_start ? &unused : &from, same_end ? &unused : &to);
        if (!same_start) cand_kin(b, &from, start, dim, R_KNOWN);
        if (!same_end) cand_kin(b, &to, end, dim, R_KNOWN);
    }
    if (ex_is_int(dim)) middle_part(b, dim->i, start, end, &from);
    TRY(p->arg[at + 1].e = number(p, at + 1, 0, &from, 0));
    if (from.n && ex_is_int(dim)) cand_add(b, &to, end, ex_sub(b->ex, dim, p->arg[at + 1].e), R_KNOWN);
    bool fixed_length = !ex_is_const(p->arg[at + 1].e);
    for (int f = 1; fixed_length && f < b->nfiles; f++) fixed_length = end[f] - start[f] == end[0] - start[0];
    if (fixed_length)
        cand_add(b, &to, end, ex_add(b->ex, p->arg[at + 1].e, ex_int(b->ex, end[0] - start[0])), R_KNOWN - 1);
    TRY(p->arg[at + 2].e = number(p, at + 2, 0, &to, 0));
    ExprPool *ex = b->ex; /* reading past the end must not happen at other sizes */
    Expr *s = p->arg[at + 1].e, *e = p->arg[at + 2].e, *step = p->arg[at + 3].e;
    if (at == 2) { /* what is written is as long as the place for it; the shape of the result does not say so */
        const Value *written = p->local[1];
        Expr *n = ex_floordiv(ex, ex_sub(ex, ex_add(ex, ex_sub(ex, e, s), step), ex_int(ex, 1)), step);
        TRY(graph_require(b->g, ex_make(ex, EX_EQ, written->dim[d], n, NULL), b->err,
                          "node '%s': length of what is written", p->base->name));
    }
    return graph_require(b->g, ex_make(ex, EX_LE, ex_int(ex, 0), s, NULL), b->err, "node '%s': start of the slice",
                         p->base->name) &&
           graph_require(b->g, ex_make(ex, EX_LE, s, e, NULL), b->err, "node '%s': start and end of the slice",
                         p->base->name) &&
           graph_require(b->g, ex_make(ex, EX_LE, e, dim, NULL), b->err, "node '%s': slice within dim %lld",
                         p->base->name, (long long)d);
}

static bool pad_numbers(Place *p)
{
    Build *b = p->b;
    const Arg *a = &p->base->arg[1];
    const Value *x = p->local[0];
    Expr **list = arena_array(b->g->arena, Expr *, a->n + 1);
    if (!list) return too_large(b->err);
    for (int i = 0; i + 1 < a->n; i += 2) {
        Scalar v[GEN_FILES];
        int64_t before[GEN_FILES], after[GEN_FILES];
        Cands first = {0}, last = {0};
        TRY(number_at(b, p->s, 1, i, v));
        ints(b, v, before);
        TRY(number_at(b, p->s, 1, i + 1, v));
        ints(b, v, after);
        Expr *dim = x->dim[x->rank - 1 - i / 2];
        cand_pad(b, dim, before, after, &first, &last);
        cand_own(b, &first, before, dim);
        cand_own(b, &last, after, dim);
        TRY(list[i] = number(p, 1, i, &first, 0));
        TRY(list[i + 1] = number(p, 1, i + 1, &last, 0));
    }
    p->arg[1].es = list;
    return true;
}

/* A scale that is not a plain number goes with the size that it leads to: F.interpolate(x, scale_factor=(h +
 * 0.1)/16). */
static bool upsample_numbers(Place *p)
{
    Build *b = p->b;
    const Arg *a = &p->base->arg[1];
    const Value *x = p->local[0];
    Expr **list = arena_array(b->g->arena, Expr *, a->n + 1);
    if (!list) return too_large(b->err);
    for (int i = 0; i < a->n;
         i++) { /* a size that is not known is made of that of the same axis: filled up to a multiple, doubled */
        Scalar v[GEN_FILES];
        int64_t want[GEN_FILES];
        Cands own = {0}, given = {0};
        Value axis = {.rank = 1, .dim = &x->dim[x->rank - a->n + i]};
        TRY(number_at(b, p->s, 1, i, v));
        ints(b, v, want);
        if (!ex_is_const(axis.dim[0])) {
            cand_kin(b, &given, want, axis.dim[0], R_LOCAL);
            cand_of(b, &own, want, &axis);
        }
        for (int k = 0; k < own.n; k++) { /* one more than a size is what a multiple of 2 looks like */
            bool sum = own.c[k].e->kind == EX_ADD;
            cand_add(b, &given, want, own.c[k].e, R_LOCAL + 1 + own.c[k].rank + (sum ? 3 : 0));
        }
        TRY(list[i] = number(p, 1, i, &given, SOLVE_SIZE | SOLVE_SPACE));
    }
    p->arg[1].es = list;
    a = &p->base->arg[4];
    if (a->kind != ARG_EXPRS) return true;
    list = arena_array(b->g->arena, Expr *, a->n + 1);
    if (!list) return too_large(b->err);
    for (int i = 0; i < a->n; i++) {
        Scalar v[GEN_FILES];
        double want[GEN_FILES];
        Cands of_size = {0};
        TRY(number_at(b, p->s, 4, i, v));
        bool varies = false;
        for (int f = 0; f < b->nfiles; f++) {
            want[f] = scalar_f64(v[f]);
            varies |= want[f] != want[0];
        }
        if (varies && i < p->arg[1].n) cand_float_of(b, &of_size, want, p->arg[1].es[i]);
        TRY(list[i] = number(p, 4, i, &of_size, 0));
    }
    p->arg[4].es = list;
    return true;
}

/* The ends of a linspace go with its length: linspace(0.5, h - 0.5, h). */
static bool linspace_numbers(Place *p)
{
    TRY(any_numbers(p, 2, SOLVE_SIZE | SOLVE_SPACE));
    build_atom(p->b, p->arg[2].e, false);
    for (int i = 0; i < 2; i++) {
        Scalar v[GEN_FILES];
        double want[GEN_FILES];
        Cands of_steps = {0};
        bool varies = false, integral = true;
        if (p->base->arg[i].kind != ARG_EXPR) continue;
        TRY(number_at(p->b, p->s, i, 0, v));
        for (int f = 0; f < p->b->nfiles; f++) {
            want[f] = scalar_f64(v[f]);
            varies |= want[f] != want[0];
            integral = integral && want[f] == nearbyint(want[f]);
        }
        if (varies && !integral) cand_float_of(p->b, &of_steps, want, p->arg[2].e);
        TRY(p->arg[i].e = number(p, i, 0, &of_steps, 0));
    }
    return true;
}

static bool numbers(Place *p)
{
    unsigned done = 1u << 1; /* arguments that are */
    switch (p->base->op->id) {
    case OP_reshape: TRY(reshape_numbers(p)); break;
    case OP_expand: TRY(expand_numbers(p)); break;
    case OP_slice_Tensor:
    case OP_slice_scatter:
        TRY(slice_numbers(p));
        done = 15u << slice_axis(p->base);
        break;
    case OP_constant_pad_nd: TRY(pad_numbers(p)); break;
    case OP_linspace:
        TRY(linspace_numbers(p));
        done = 7u;
        break;
    case OP_upsample:
        TRY(upsample_numbers(p));
        done |= 1u << 4;
        break;
    default: done = 0; break;
    }
    for (int i = 0; i < p->base->op->schema->nparams; i++)
        if (!(done & 1u << i)) TRY(any_numbers(p, i, how_solved(p->base->op, i)));
    return true;
}

/* A pool over everything that is there, written with the sizes of the export, is a mean. */
static OpId plain_op(Place *p, int *nargs)
{
    *nargs = p->base->op->schema->nparams;
    if (p->base->op->id != OP_avg_pool2d) return p->base->op->id;
    const Arg *k = &p->arg[1], *pad = &p->arg[3];
    const Value *x = p->local[0];
    if (k->kind != ARG_EXPRS || k->n != 2 || x->rank < 3 || (ex_is_const(k->es[0]) && ex_is_const(k->es[1])))
        return p->base->op->id;
    for (int i = 0; i < 2; i++) {
        int64_t want[GEN_FILES], have[GEN_FILES];
        if (!eval_at(p->b, k->es[i], want) || !eval_at(p->b, x->dim[x->rank - 2 + i], have)) return p->base->op->id;
        if (memcmp(want, have, (size_t)p->b->nfiles * sizeof *want) ||
            (pad->kind == ARG_EXPRS && pad->n > i && !ex_equals_int(pad->es[i], 0)))
            return p->base->op->id;
    }
    p->arg[1] = arg_ints(p->b->g, 2, (int64_t[]){x->rank - 2, x->rank - 1});
    p->arg[2] = arg_bool(p->b->g, true);
    *nargs = 3;
    return OP_mean_dim;
}

static Value *operand_value(Build *b, const Step *s, int merged)
{
    if (!b->val[merged] && b->gen->al.value[merged].weight) b->val[merged] = build_weight(b, merged, s);
    return b->val[merged];
}

/* The base's arguments with the tensors of the new graph. */
static bool tensors(Place *p)
{
    int k = 0;
    const Node *n = p->base;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        p->arg[i] = *a;
        if (a->kind == ARG_STR) p->arg[i] = arg_str(p->b->g, a->s);
        if (a->kind == ARG_VALUE) TRY(p->arg[i].v = operand_value(p->b, p->s, p->s->operand[k++]));
        if (a->kind == ARG_VALUES) {
            Value **list = arena_array(p->b->g->arena, Value *, a->n + 1);
            if (!list) return too_large(p->b->err);
            for (int m = 0; m < a->n; m++)
                if (a->vs[m]) TRY(list[m] = operand_value(p->b, p->s, p->s->operand[k++]));
            p->arg[i].vs = list;
        }
    }
    for (int i = 0; i < p->s->noperand && p->nlocal < 8; i++) p->local[p->nlocal++] = p->b->val[p->s->operand[i]];
    return true;
}

static bool keep_residual(Build *b, Expr *cond)
{
    Residual *grown = vec_grow(b->residual, b->nresidual, sizeof *grown);
    if (!grown) return oom(b->err);
    b->residual = grown;
    b->residual[b->nresidual++] = (Residual){b->step, cond};
    return true;
}

/* What inference required of this step: an equation settles an open number, or stays. */
static bool equations(Build *b, int from)
{
    for (int i = from; i < b->g->nrequire; i++) {
        Expr *cond = b->g->require[i].cond;
        if (cond->kind != EX_EQ) continue;
        bool open = false;
        for (int k = 0; k < b->nunknown; k++) {
            if (!ex_mentions(cond, b->unknown[k].e)) continue;
            open = true;
            Expr *e = equation_for(b, cond, b->unknown[k].e);
            if (!e) e = factor_for(b, cond, b->unknown[k].e);
            for (int m = 0; e && m < b->nunknown; m++)
                if (ex_mentions(e, b->unknown[m].e)) e = NULL;
            if (!e || b->unknown[k].h->forced) continue;
            b->unknown[k].h->forced = expr_text(b, e);
            b->solved++;
        }
        if (!open) TRY(keep_residual(b, cond));
    }
    return true;
}

/* An arange of Max(0, n) elements has n of them, and n must not be negative. */
static bool plain_length(Build *b, Node *n)
{
    const Expr *e = n->out[0]->dim[0];
    int at = ex_equals_int(e->args[0], 0) ? 1 : ex_equals_int(e->args[1], 0) ? 0 : -1;
    if (at < 0) return true;
    n->out[0]->dim[0] = e->args[at];
    return graph_require(b->g, ex_make(b->ex, EX_LE, ex_int(b->ex, 0), e->args[at], NULL), b->err,
                         "node '%s': length not negative", n->name);
}

static bool build_step(Build *b, const Step *s)
{
    Place p = {.b = b, .s = s, .base = s->node[s->base]};
    int from = b->g->nrequire, nargs;
    p.arg = arena_array(b->g->arena, Arg, p.base->op->schema->nparams + 1);
    if (!p.arg) return too_large(b->err);
    TRY(tensors(&p) && numbers(&p));
    OpId op = plain_op(&p, &nargs);
    const Module *of = p.base->module;
    b->g->module = of ? graph_module(b->g, of->path, of->stack) : NULL;
    Node *n = graph_add(b->g, op, nargs, p.arg, p.base->name, b->err);
    TRY(n);
    if (op == OP_arange_start_step && n->out[0]->dim[0]->kind == EX_MAX) TRY(plain_length(b, n));
    for (int k = 0; k < n->nout; k++) {
        b->val[s->out + k] = n->out[k];
        for (int d = 0; d < n->out[k]->rank; d++) build_atom(b, n->out[k]->dim[d], false);
    }
    for (int i = 0; i < nargs; i++) { /* numbers are known expressions, too: the ends of slices */
        if (p.arg[i].kind == ARG_EXPR) build_atom(b, p.arg[i].e, true);
        for (int k = 0; p.arg[i].kind == ARG_EXPRS && k < p.arg[i].n; k++) build_atom(b, p.arg[i].es[k], true);
    }
    return equations(b, from);
}

/* ------------------------------------------------------------------ sizes and inputs */

enum { MAX_SYMBOLS = 1 << 14 };

static bool make_bindings(Build *b)
{
    for (int f = 0; f < b->nfiles; f++) {
        b->bind[f] = (Binding){.n = MAX_SYMBOLS,
                               .value = mem_zeroed(MAX_SYMBOLS, sizeof(int64_t)),
                               .bound = mem_zeroed(MAX_SYMBOLS, sizeof(bool))};
        if (!b->bind[f].value || !b->bind[f].bound) return oom(b->err);
    }
    return true;
}

/* Only first axes of inputs that have others, too. */
static bool is_batch(const Gen *gen, const Size *z)
{
    for (int k = 0; k < z->naxes; k++)
        if (z->at[k].input < 0 || z->at[k].axis || gen->al.file[0]->input[z->at[k].input]->rank < 2) return false;
    return true;
}

/* A symbol for every size, with its value in each file. */
static bool symbols(Build *b)
{
    const Gen *gen = b->gen;
    bool others = false;
    for (int i = 0; i < gen->nsize; i++) {
        const Size *z = &gen->size[i];
        if (z->relation) continue;
        others |= !is_batch(gen, z);
        Expr *e = ex_symbol(b->ex, z->symbol);
        if (!e) return too_large(b->err);
        expr_set_range(b->ex, (int)e->i, 1, INT64_MAX);
        if (is_batch(gen, z)) b->batch |= e->symbols;
        for (int f = 0; f < b->nfiles; f++) binding_set(&b->bind[f], (int)e->i, z->v[f] / z->factor);
    }
    if (!others) b->batch = 0; /* the only size of all: a length without a batch */
    return true;
}

Expr *size_expr(Build *b, const Size *z)
{
    if (z->relation) return ex_parse(b->ex, z->relation, NULL, NULL, b->err);
    return ex_mul(b->ex, ex_int(b->ex, z->factor), ex_symbol(b->ex, z->symbol));
}

static const Size *size_of_axis(const Gen *gen, int input, int axis)
{
    for (int i = 0; i < gen->nsize; i++)
        for (int k = 0; k < gen->size[i].naxes; k++)
            if (gen->size[i].at[k].input == input && gen->size[i].at[k].axis == axis) return &gen->size[i];
    return NULL;
}

static bool inputs(Build *b)
{
    const Graph *from = b->gen->al.file[0];
    for (int i = 0; i < from->ninput; i++) {
        const Value *v = from->input[i];
        Expr *dim[MAX_RANK];
        for (int d = 0; d < v->rank; d++) {
            const Size *z = size_of_axis(b->gen, i, d);
            dim[d] = z ? size_expr(b, z) : ex_int(b->ex, v->dim[d]->i);
            if (!dim[d]) return too_large(b->err);
        }
        Value *in = graph_add_input(b->g, v->name, v->dtype, v->rank, dim);
        if (!in) return too_large(b->err);
        b->val[i] = in;
        for (int d = 0; d < v->rank; d++) {
            build_atom(b, dim[d], false);
            for (int k = 0; k < expr_symbol_count(b->ex); k++) {
                Symbol *sym = expr_symbol(b->ex, k);
                if (sym->source != SYM_FREE || !ex_mentions(dim[d], sym->expr) || size_of_axis(b->gen, i, d)->relation)
                    continue;
                sym->source = SYM_INPUT;
                sym->value = in;
                sym->dim = d;
            }
        }
    }
    ScalarInput *all = arena_array(b->g->arena, ScalarInput, from->nscalar_input + 1);
    if (!all) return too_large(b->err);
    for (int i = 0; i < from->nscalar_input; i++) {
        const ScalarInput *s = &from->scalar_input[i];
        const Size *z = size_of_axis(b->gen, -1, i);
        all[i] = (ScalarInput){arena_strdup(b->g->arena, s->name), s->value, s->at};
        if (s->value.kind == ARG_EXPR) {
            const Expr *e = s->value.e;
            Expr *fixed = e->kind == EX_FLOAT  ? ex_float(b->ex, e->f)
                          : e->kind == EX_BOOL ? ex_bool(b->ex, e->i != 0)
                                               : ex_int(b->ex, e->i);
            all[i].value = arg_expr(z ? size_expr(b, z) : fixed);
            build_atom(b, all[i].value.e, false);
            if (z && all[i].value.e && all[i].value.e->kind == EX_SYM)
                expr_symbol(b->ex, (int)all[i].value.e->i)->source = SYM_INPUT;
        } else if (s->value.kind == ARG_STR) all[i].value = arg_str(b->g, s->value.s);
    }
    b->g->scalar_input = all;
    b->g->nscalar_input = from->nscalar_input;
    return true;
}

/* Results that are neither tensors nor numbers. */
static bool scalar_outputs(Build *b)
{
    const Graph *from = b->gen->al.file[0];
    ScalarOutput *all = arena_array(b->g->arena, ScalarOutput, from->nscalar_output + 1);
    if (!all) return too_large(b->err);
    for (int i = 0; i < from->nscalar_output; i++) {
        const Arg *value = &from->scalar_output[i].value;
        all[i] = from->scalar_output[i];
        if (value->kind == ARG_STR) all[i].value = arg_str(b->g, value->s);
    }
    b->g->scalar_output = all;
    b->g->nscalar_output = from->nscalar_output;
    return true;
}

static const char *kept(Build *b, const char *text) { return text ? arena_strdup(b->g->arena, text) : NULL; }

static bool ends(Build *b)
{
    const Aligned *a = &b->gen->al;
    const Graph *from = a->file[0];
    for (int i = 0; i < from->noutput; i++) {
        Value *v = operand_value(b, NULL, a->output[i]);
        TRY(v && graph_add_output(b->g, from->output[i].name, v, b->err));
        b->g->output[i].number = from->output[i].number;
        b->g->output[i].value_name = arena_strdup(b->g->arena, from->output[i].value_name);
        b->g->output[i].label = kept(b, from->output[i].label);
    }
    for (int i = 0; i < graph_mutations(from); i++) {
        Value *to = operand_value(b, NULL, a->mutation[2 * i]), *v = operand_value(b, NULL, a->mutation[2 * i + 1]);
        TRY(to && v && graph_add_mutation(b->g, to, v, b->err));
    }
    b->g->in_spec = kept(b, from->in_spec);
    b->g->out_spec = kept(b, from->out_spec);
    b->g->forward_args = kept(b, from->forward_args);
    b->g->namedtuples = kept(b, from->namedtuples);
    return scalar_outputs(b);
}

bool build_graph(Build *b, Gen *gen, int last_step, Err *err)
{
    *b = (Build){.gen = gen, .nfiles = gen->al.nfiles, .failed_step = -1, .err = &b->failure};
    b->number = ++gen->builds;
    b->g = graph_create();
    b->val = mem_zeroed((size_t)gen->al.nvalue + 1, sizeof *b->val);
    if (!b->g || !b->val) return oom(err);
    b->ex = b->g->ex;
    bool ok = make_bindings(b) && symbols(b) && inputs(b);
    for (b->step = 0; ok && b->step < gen->al.nstep && b->step <= last_step; b->step++) {
        ok = build_step(b, &gen->al.step[b->step]);
        if (!ok) b->failed_step = b->step;
    }
    if (ok && last_step >= gen->al.nstep - 1) ok = ends(b);
    if (ok) return true;
    if (b->failure.code == E_LIMIT || b->failed_step < 0) {
        *err = b->failure;
        return false;
    }
    return true;
}

void build_free(Build *b)
{
    graph_free(b->g);
    for (int f = 0; f < GEN_FILES; f++) {
        mem_free(b->bind[f].value);
        mem_free(b->bind[f].bound);
    }
    mem_free(b->val);
    mem_free(b->atom);
    mem_free(b->level);
    mem_free(b->unknown);
    mem_free(b->residual);
}
