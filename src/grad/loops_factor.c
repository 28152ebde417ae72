/* Factors of matrices as loops over their columns, for ONNX. Contract in loops.h.
 *
 *     cholesky(x)  ->  s, columns = loop([x], s - c c^T, c), c = s[:, turn] / sqrt(s[turn, turn]) from the diagonal on
 *
 * Matrices are taken as one batch (b, rows, columns). Rows and columns of a turn are read by index_select, and written
 * by where with positions that are compared with the turn.
 */
#include <string.h>
#include "grad/loops.h"

enum { SWEEPS = 12 }; /* of Jacobi */

/* ------------------------------------------------------------------ small words */

static Expr *rows_of(const Value *x) { return x->dim[x->rank - 2]; }
static Expr *columns_of(const Value *x) { return x->dim[x->rank - 1]; }

/* (.., rows, columns) as (b, rows, columns) */
static Value *batch(Grad *d, Value *x)
{
    Expr *b = gd_product(d, x->rank - 2, x->dim);
    return gd_reshape(d, x, 3, (Expr *[]){b, rows_of(x), columns_of(x)});
}

/* Result k of the node is y (b, ..), with the batch of x. */
static bool result(Grad *d, int k, Value *y, const Value *x)
{
    Expr *dim[MAX_RANK];
    int lead = x->rank - 2;
    if (!y) return d->err->code == E_OK ? oom(d->err) : false;
    memcpy(dim, x->dim, (size_t)lead * sizeof *dim);
    memcpy(dim + lead, y->dim + 1, (size_t)(y->rank - 1) * sizeof *dim);
    return loops_give(d, k, gd_reshape(d, y, lead + y->rank - 1, dim));
}

static Value *total(Grad *d, Value *x, int axis, bool keep) { return gd_sum(d, x, 1, &axis, keep); }

/* 0 .. n - 1 as a column or a row */
static Value *down(Grad *d, Expr *n) { return gd_reshape(d, gd_arange(d, n), 2, (Expr *[]){n, gd_int(d, 1)}); }
static Value *across(Grad *d, Expr *n) { return gd_reshape(d, gd_arange(d, n), 2, (Expr *[]){gd_int(d, 1), n}); }

/* x (b, n, 1) or (b, 1, n) as (b, n) */
static Value *line(Grad *d, Value *x, int axis)
{
    return x ? gd_reshape(d, x, 2, (Expr *[]){x->dim[0], x->dim[axis]}) : NULL;
}
static Value *column(Grad *d, Value *x)
{
    return x ? gd_reshape(d, x, 3, (Expr *[]){x->dim[0], x->dim[1], gd_int(d, 1)}) : NULL;
}
static Value *row(Grad *d, Value *x)
{
    return x ? gd_reshape(d, x, 3, (Expr *[]){x->dim[0], gd_int(d, 1), x->dim[1]}) : NULL;
}

static Value *flipped(Grad *d, Value *x, int n, const int64_t *axes)
{
    return x ? GD(d, flip, V(x), arg_ints(d->g, n, axes)) : NULL;
}

/* Of x (b, m, n) with m >= n where it is not square */
static Value *diagonal(Grad *d, Value *x)
{
    Value *on = x ? equal(d, down(d, rows_of(x)), across(d, columns_of(x))) : NULL;
    return total(d, gd_where(d, on, x, 0), 1, false);
}

static Value *triangle(Grad *d, Value *x, bool upper, int from)
{
    if (!x) return NULL;
    return upper ? GD(d, triu, V(x), arg_int(d->g, from)) : GD(d, tril, V(x), arg_int(d->g, from));
}

static Value *identity(Grad *d, Expr *n, Expr *m, DType t)
{
    return GD(d, eye_m, arg_expr(n), arg_expr(m), arg_dtype(t));
}

static Value *identities(Grad *d, Expr *b, Expr *n, Expr *m, DType t)
{
    return gd_expand(d, identity(d, n, m, t), 3, (Expr *[]){b, n, m});
}

/* 1 + the first of n steps where bad (n, b) holds, or 0: info (b) */
static Value *first_bad(Grad *d, Value *bad)
{
    if (!bad) return NULL;
    Expr *n = bad->dim[0];
    Value *left = GD(d, sub_Tensor, arg_expr(n), V(down(d, n))); /* n .. 1: the first step has the most */
    Value *most = left ? GD(d, where_self, V(bad), V(left), arg_int(d->g, 0)) : NULL;
    most = most ? GD(d, amax, V(most), arg_ints(d->g, 1, (int64_t[]){0})) : NULL;
    Value *at = most ? GD(d, sub_Tensor, arg_expr(ex_add(d->ex, n, gd_int(d, 1))), V(most)) : NULL;
    Value *any = most ? GD(d, gt_Tensor, V(most), arg_int(d->g, 0)) : NULL;
    return at && any ? GD(d, where_self, V(any), V(at), arg_int(d->g, 0)) : NULL;
}

/* ------------------------------------------------------------------ Cholesky */

bool loops_cholesky(Grad *d)
{
    const Value *x = gd_value(d, 0);
    bool upper = gd_truth(d, 1);
    Loop l;
    Value *s = batch(d, gd_value(d, 0));
    TRY(open_loop(d, &l));
    Value *a = loop_carry(&l, upper ? gd_swap(d, s, 1, 2) : s);
    Grad *b = &l.in;
    Value *at = loop_turn(&l), *col = picked(b, a, 2, at), *pivot = picked(b, col, 1, at);
    Value *from = a ? not_below(b, down(b, rows_of(a)), l.turn) : NULL;
    Value *c = gd_where(b, from, quotient(b, col, root(b, pivot)), 0);
    Value *next = gd_minus(b, a, gd_mul(b, c, gd_swap(b, c, 1, 2)));
    Value *one = pivot ? gd_reshape(b, pivot, 1, pivot->dim) : NULL;
    Node *loop = close_loop(&l, columns_of(x), NULL, NULL, &next, 2, (Value *[]){line(b, c, 1), one});
    TRY(loop);
    Value *good = GD(d, gt_Tensor, V(loop->out[2]), arg_float(d->g, 0));
    Value *y = gd_permute(d, loop->out[1], upper ? (int[]){1, 0, 2} : (int[]){1, 2, 0});
    return result(d, 0, y, x) && result(d, 1, first_bad(d, good ? GD(d, logical_not, V(good)) : NULL), x);
}

/* ------------------------------------------------------------------ LU */

typedef struct Lu {
    Value *whole;       /* U on and above the diagonal, L below */
    Value *row, *pivot; /* (steps, b): the row that was exchanged, and the pivot that it had */
} Lu;

/* Of x (b, m, n), `steps` columns of it. */
static bool lu_of(Grad *d, Value *x, Expr *steps, Lu *y)
{
    Loop l;
    TRY(open_loop(d, &l));
    Grad *b = &l.in;
    Value *a = loop_carry(&l, x), *at = loop_turn(&l);
    if (!a) return close_loop(&l, steps, NULL, NULL, &a, 0, NULL);
    Value *i = down(b, rows_of(a)), *j = across(b, columns_of(a));
    Value *here = equal(b, i, l.turn), *below = above(b, i, l.turn);
    Value *lengths = gd_where(b, not_below(b, i, l.turn), size(b, picked(b, a, 2, at)), -1);
    Value *p = lengths ? GD(b, argmax, V(lengths), arg_int(b->g, 1), arg_bool(b->g, true)) : NULL;
    Value *spread = gd_expand(b, p, 3, (Expr *[]){a->dim[0], gd_int(b, 1), columns_of(a)});
    Value *best = spread ? GD(b, gather, V(a), arg_int(b->g, 1), V(spread)) : NULL;
    Value *w = chosen(b, here, best, chosen(b, equal(b, i, p), picked(b, a, 1, at), a));
    Value *pivot = picked(b, best, 2, at), *by = but(b, nought(b, pivot), 1, pivot);
    Value *f = gd_where(b, below, quotient(b, picked(b, w, 2, at), by), 0);
    Value *next = gd_minus(b, w, gd_mul(b, f, gd_where(b, above(b, j, l.turn), best, 0)));
    next = chosen(b, both(b, below, equal(b, j, l.turn)), f, next);
    Value *stack[] = {p ? gd_reshape(b, p, 1, p->dim) : NULL, pivot ? gd_reshape(b, pivot, 1, pivot->dim) : NULL};
    Node *loop = close_loop(&l, steps, NULL, NULL, &next, 2, stack);
    if (loop) *y = (Lu){loop->out[0], loop->out[1], loop->out[2]};
    return loop;
}

static Expr *shorter(Grad *d, const Value *x) { return ex_min(d->ex, rows_of(x), columns_of(x)); }

bool loops_lu_factor(Grad *d)
{
    const Value *x = gd_value(d, 0);
    Lu y;
    if (!gd_truth(d, 1)) return true;
    TRY(lu_of(d, batch(d, gd_value(d, 0)), shorter(d, x), &y));
    Value *pivots = GD(d, add_Tensor, V(gd_swap(d, y.row, 0, 1)), arg_int(d->g, 1));
    return result(d, 0, y.whole, x) && result(d, 1, pivots, x) && result(d, 2, first_bad(d, nought(d, y.pivot)), x);
}

/* The rows of P L U in order, from what was exchanged (b, steps), counted from 1: (b, m) */
static Value *order_of(Grad *d, Value *pivots, Expr *m)
{
    Loop l;
    if (!pivots || !open_loop(d, &l)) return NULL;
    Grad *b = &l.in;
    Value *all = gd_expand(d, gd_arange(d, m), 2, (Expr *[]){pivots->dim[0], m});
    Value *from_0 = GD(d, sub_Tensor, V(gd_cast(d, pivots, DT_I64)), arg_int(d->g, 1));
    Value *a = loop_carry(&l, all), *at = loop_turn(&l), *p = picked(b, loop_capture(&l, from_0), 1, at);
    Value *i = a ? gd_arange(b, a->dim[1]) : NULL, *other = p ? GD(b, gather, V(a), arg_int(b->g, 1), V(p)) : NULL;
    Value *next = chosen(b, equal(b, i, l.turn), other, chosen(b, equal(b, i, p), picked(b, a, 1, at), a));
    Node *loop = close_loop(&l, pivots->dim[1], NULL, NULL, &next, 0, NULL);
    return loop ? loop->out[0] : NULL;
}

bool loops_lu_unpack(Grad *d)
{
    const Value *x = gd_value(d, 0);
    Value *y = batch(d, gd_value(d, 0)), *pivots = gd_value(d, 1);
    Expr *m = rows_of(x), *r = shorter(d, x), *zero = gd_int(d, 0);
    TRY(y);
    pivots = gd_reshape(d, pivots, 2, (Expr *[]){y->dim[0], pivots->dim[pivots->rank - 1]});
    Value *p = equal(d, down(d, m), row(d, order_of(d, pivots, m)));
    Value *lower = triangle(d, gd_slice(d, y, 2, zero, r), false, -1);
    return result(d, 0, p, x) && result(d, 1, gd_plus(d, lower, identity(d, m, r, x->dtype)), x) &&
           result(d, 2, triangle(d, gd_slice(d, y, 1, zero, r), true, 0), x);
}

bool loops_slogdet(Grad *d)
{
    const Value *x = gd_value(d, 0);
    Lu y;
    TRY(lu_of(d, batch(d, gd_value(d, 0)), columns_of(x), &y));
    Value *sign = GD(d, sign, V(y.pivot)), *stays = equal(d, y.row, down(d, columns_of(x)));
    sign = chosen(d, stays, sign, negative(d, sign));
    Value *log = GD(d, log, V(size(d, y.pivot)));
    sign = sign ? GD(d, prod_dim_int, V(sign), arg_int(d->g, 0)) : NULL;
    return result(d, 0, sign, x) && result(d, 1, total(d, log, 0, false), x);
}

/* ------------------------------------------------------------------ solving */

/* X with A X = B for a lower triangular A (b, n, n), B (b, n, k) */
static Value *below_diagonal(Grad *d, Value *a, Value *y)
{
    Loop l;
    if (!a || !y || !open_loop(d, &l)) return NULL;
    Grad *b = &l.in;
    Value *left = loop_carry(&l, y), *m = loop_capture(&l, a), *at = loop_turn(&l), *col = picked(b, m, 2, at);
    Value *x = quotient(b, picked(b, left, 1, at), picked(b, col, 1, at));
    Value *next = gd_minus(b, left, gd_mul(b, col, x)), *out = line(b, x, 2);
    Node *loop = close_loop(&l, rows_of(a), NULL, NULL, &next, 1, &out);
    return loop ? gd_permute(d, loop->out[1], (int[]){1, 0, 2}) : NULL;
}

static Value *above_diagonal(Grad *d, Value *a, Value *y)
{
    Value *x = below_diagonal(d, flipped(d, a, 2, (int64_t[]){1, 2}), flipped(d, y, 1, (int64_t[]){1}));
    return flipped(d, x, 1, (int64_t[]){1});
}

bool loops_solve_triangular(Grad *d)
{
    Value *a = batch(d, gd_value(d, 0)), *y = batch(d, gd_value(d, 1));
    const Value *x = gd_value(d, 1);
    bool upper = gd_truth(d, 2);
    if (a && gd_truth(d, 4)) {
        Value *on = equal(d, down(d, rows_of(a)), across(d, rows_of(a)));
        a = but(d, on, 1, a);
    }
    return result(d, 0, upper ? above_diagonal(d, a, y) : below_diagonal(d, a, y), x);
}

/* U and L^-1 P B are what elimination leaves of A beside B. */
bool loops_solve(Grad *d)
{
    Value *a = batch(d, gd_value(d, 0)), *y = batch(d, gd_value(d, 1)), *beside[] = {a, y};
    const Value *x = gd_value(d, 1);
    Expr *n = rows_of(x), *zero = gd_int(d, 0);
    Lu z;
    TRY(a && y && lu_of(d, GD(d, cat, arg_values(d->g, 2, beside), arg_int(d->g, 2)), n, &z));
    Value *u = gd_slice(d, z.whole, 2, zero, n), *right = gd_slice(d, z.whole, 2, n, columns_of(z.whole));
    return result(d, 0, above_diagonal(d, u, right), x) &&
           (d->node->nout == 1 || result(d, 1, first_bad(d, nought(d, z.pivot)), x));
}

/* ------------------------------------------------------------------ QR */

typedef struct Reflections {
    Value *whole;  /* R on and above the diagonal, below it the vectors without their first elements, which are 1 */
    Value *v, *by; /* (steps, b, m), (steps, b): I - by v v^T */
} Reflections;

/* Householder's, with LAPACK's signs */
static bool reflections_of(Grad *d, Value *x, Reflections *y)
{
    Loop l;
    TRY(open_loop(d, &l));
    Grad *b = &l.in;
    Value *a = loop_carry(&l, x), *at = loop_turn(&l);
    if (!a) return close_loop(&l, NULL, NULL, NULL, &a, 0, NULL);
    Value *i = down(b, rows_of(a)), *j = across(b, columns_of(a)), *here = equal(b, i, l.turn);
    Value *col = picked(b, a, 2, at), *first = picked(b, col, 1, at);
    Value *tail = gd_where(b, above(b, i, l.turn), col, 0), *rest = total(b, square(b, tail), 1, true);
    Value *none = nought(b, rest), *length = root(b, gd_plus(b, square(b, first), rest));
    Value *up = first ? GD(b, ge_Tensor, V(first), arg_float(b->g, 0)) : NULL;
    Value *beta = chosen(b, none, first, chosen(b, up, negative(b, length), length));
    Value *by = but(b, none, 0, quotient(b, gd_minus(b, beta, first), but(b, none, 1, beta)));
    Value *v = quotient(b, tail, but(b, none, 1, gd_minus(b, first, beta)));
    v = but(b, here, 1, v);
    Value *w = gd_where(b, above(b, j, l.turn), gd_matmul(b, gd_swap(b, v, 1, 2), a), 0);
    Value *next = gd_minus(b, a, gd_mul(b, gd_mul(b, v, by), w));
    Value *kept = chosen(b, here, beta, chosen(b, above(b, i, l.turn), v, col));
    next = chosen(b, equal(b, j, l.turn), kept, next);
    Value *stack[] = {line(b, v, 1), by ? gd_reshape(b, by, 1, by->dim) : NULL};
    Node *loop = close_loop(&l, shorter(d, x), NULL, NULL, &next, 2, stack);
    if (loop) *y = (Reflections){loop->out[0], loop->out[1], loop->out[2]};
    return loop;
}

/* The product of the reflections, its first `wide` columns */
static Value *product_of_reflections(Grad *d, const Reflections *r, Expr *wide)
{
    Loop l;
    if (!open_loop(d, &l)) return NULL;
    Grad *b = &l.in;
    Expr *n = r->whole->dim[0], *m = rows_of(r->whole);
    Value *q = loop_carry(&l, identities(d, n, m, wide, r->whole->dtype));
    Value *v = loop_capture(&l, gd_swap(d, flipped(d, r->v, 1, (int64_t[]){0}), 0, 1)), *at = loop_turn(&l);
    Value *by = loop_capture(&l, gd_swap(d, flipped(d, r->by, 1, (int64_t[]){0}), 0, 1));
    v = gd_swap(b, picked(b, v, 1, at), 1, 2);
    by = column(b, picked(b, by, 1, at));
    Value *w = gd_matmul(b, gd_swap(b, v, 1, 2), q), *next = gd_minus(b, q, gd_mul(b, gd_mul(b, v, by), w));
    Node *loop = close_loop(&l, r->by->dim[0], NULL, NULL, &next, 0, NULL);
    return loop ? loop->out[0] : NULL;
}

bool loops_geqrf(Grad *d)
{
    const Value *x = gd_value(d, 0);
    Reflections r;
    return reflections_of(d, batch(d, gd_value(d, 0)), &r) && result(d, 0, r.whole, x) &&
           result(d, 1, gd_swap(d, r.by, 0, 1), x);
}

bool loops_qr(Grad *d)
{
    const Value *x = gd_value(d, 0);
    const char *mode = d->node->arg[1].s;
    Expr *wide = *mode == 'c' ? rows_of(x) : shorter(d, x);
    Reflections r;
    TRY(reflections_of(d, batch(d, gd_value(d, 0)), &r));
    Value *up = triangle(d, gd_slice(d, r.whole, 1, gd_int(d, 0), wide), true, 0);
    TRY(result(d, 1, up, x));
    if (strcmp(mode, "r")) return result(d, 0, product_of_reflections(d, &r, wide), x);
    Value *none = gd_zeros(d, x->dtype, 1, (Expr *[]){gd_int(d, 0)});
    if (none) graph_replace_uses(d->g, d->node->out[0], none);
    return none;
}

/* ------------------------------------------------------------------ Jacobi */

/* Rotations J that make the elements of pairs of a symmetric matrix zero: turn t has the pairs whose sum is t modulo n,
 * so that n turns have all. Row i of J has a cosine on the diagonal and a sine at its partner. */
static Value *rotations(Loop *l, Value *a)
{
    Grad *d = &l->in;
    if (!a) return NULL;
    Expr *n = columns_of(a);
    Value *g = gd_plus(d, a, gd_swap(d, a, 1, 2)), *i = gd_arange(d, n);
    g = g ? GD(d, mul_Tensor, V(g), arg_float(d->g, 0.5)) : NULL; /* exactly symmetric: both halves agree on a pair */
    Value *partner = GD(d, remainder_Tensor, V(gd_minus(d, l->turn, i)), arg_expr(ex_max(d->ex, n, gd_int(d, 1))));
    Value *one = equal(d, partner ? gd_reshape(d, partner, 2, (Expr *[]){n, gd_int(d, 1)}) : NULL, i);
    Value *on = equal(d, down(d, n), i);
    Value *pq = total(d, gd_where(d, one, g, 0), 2, false), *pp = total(d, gd_where(d, on, g, 0), 2, false);
    Value *idle = either(d, equal(d, partner, i), nought(d, pq)), *gap = gd_minus(d, picked(d, pp, 1, partner), pp);
    Value *twice = but(d, idle, 1, gd_plus(d, pq, pq)), *z = quotient(d, gap, twice);
    Value *up = z ? either(d, GD(d, gt_Tensor, V(z), arg_float(d->g, 0)), both(d, nought(d, z), above(d, partner, i)))
                  : NULL;
    Value *t = gd_plus(d, size(d, z), root(d, plus(d, square(d, z), 1)));
    t = t ? GD(d, reciprocal, V(t)) : NULL;
    t = chosen(d, up, t, negative(d, t));
    Value *c = t ? GD(d, rsqrt, V(plus(d, square(d, t), 1))) : NULL, *s = gd_mul(d, c, t);
    Value *sine = gd_where(d, one, column(d, but(d, idle, 0, s)), 0);
    return chosen(d, on, column(d, but(d, idle, 1, c)), sine);
}

/* The order of x (b, n), and its columns (b, m, n) in that order */
static Node *order(Grad *d, Value *x, bool falling)
{
    Value *y = x ? GD(d, topk, V(x), arg_expr(x->dim[1]), arg_int(d->g, -1), arg_bool(d->g, falling)) : NULL;
    return y ? y->def : NULL;
}

static Value *in_order(Grad *d, Value *columns, const Node *n)
{
    Value *at = columns && n ? gd_expand(d, row(d, n->out[1]), 3, columns->dim) : NULL;
    return at ? GD(d, gather, V(columns), arg_int(d->g, 2), V(at)) : NULL;
}

static Expr *sweeps(Grad *d, Expr *n) { return ex_mul(d->ex, n, gd_int(d, SWEEPS)); }

bool loops_eigh(Grad *d)
{
    const Value *x = gd_value(d, 0);
    Value *y = batch(d, gd_value(d, 0));
    bool upper = *d->node->arg[1].s == 'U';
    Value *half = triangle(d, y, upper, upper ? 1 : -1);
    Loop l;
    TRY(y && open_loop(d, &l));
    Grad *b = &l.in;
    Value *a = loop_carry(&l, gd_plus(d, triangle(d, y, upper, 0), gd_swap(d, half, 1, 2)));
    Value *v = loop_carry(&l, identities(d, y->dim[0], rows_of(y), rows_of(y), x->dtype));
    Value *j = rotations(&l, a);
    Value *next[] = {gd_matmul(b, gd_matmul(b, gd_swap(b, j, 1, 2), a), j), gd_matmul(b, v, j)};
    Node *loop = close_loop(&l, sweeps(d, columns_of(x)), NULL, NULL, next, 0, NULL);
    TRY(loop);
    Node *by = order(d, diagonal(d, loop->out[0]), false);
    return by && result(d, 0, by->out[0], x) && result(d, 1, in_order(d, loop->out[1], by), x);
}

/* Of y (b, m, n), of r = min(m, n) singular values: *s (b, r) falling, *us = U diag(s) (b, m, r), *v (b, n, n) with
 * y = *us *v^T; of more columns than rows, those that become 0 are last. */
static bool turned_orthogonal(Grad *d, Value *y, Value **s, Value **us, Value **v)
{
    Loop l;
    TRY(y && open_loop(d, &l));
    Grad *b = &l.in;
    Value *a = loop_carry(&l, y);
    Value *w = loop_carry(&l, identities(d, y->dim[0], columns_of(y), columns_of(y), y->dtype));
    Value *j = rotations(&l, gd_matmul(b, gd_swap(b, a, 1, 2), a)), *next[] = {gd_matmul(b, a, j), gd_matmul(b, w, j)};
    Node *loop = close_loop(&l, sweeps(d, columns_of(y)), NULL, NULL, next, 0, NULL);
    Node *by = loop ? order(d, root(d, total(d, square(d, loop->out[0]), 1, false)), true) : NULL;
    if (!by) return false;
    Expr *zero = gd_int(d, 0), *r = shorter(d, y);
    *s = gd_slice(d, by->out[0], 1, zero, r);
    *us = gd_slice(d, in_order(d, loop->out[0], by), 2, zero, r);
    *v = in_order(d, loop->out[1], by);
    return *s && *us && *v;
}

/* The shorter side as columns, where it is known which one that is: turns cost what columns are. */
static Value *standing(Grad *d, Value *x, bool *turned)
{
    const Expr *wide = ex_make(d->ex, EX_LT, rows_of(x), columns_of(x), NULL);
    *turned = wide && wide->kind == EX_BOOL && wide->i;
    x = batch(d, x);
    return *turned ? gd_swap(d, x, 1, 2) : x;
}

bool loops_singular_values(Grad *d)
{
    Value *s, *us, *v;
    bool turned;
    return turned_orthogonal(d, standing(d, gd_value(d, 0), &turned), &s, &us, &v) && result(d, 0, s, gd_value(d, 0));
}

/* U is Q of the orthogonal columns, whose R is diagonal, with the signs of that diagonal: it is orthogonal where
 * singular values are 0, too. */
bool loops_svd(Grad *d)
{
    const Value *x = gd_value(d, 0);
    Value *s, *us, *v;
    bool turned, full = gd_truth(d, 1);
    Reflections f;
    TRY(turned_orthogonal(d, standing(d, gd_value(d, 0), &turned), &s, &us, &v) && reflections_of(d, us, &f));
    Expr *m = rows_of(us), *r = columns_of(us), *b = us->dim[0];
    Value *q = product_of_reflections(d, &f, full ? m : r), *on = diagonal(d, f.whole);
    TRY(q && on);
    Value *sign = but(d, GD(d, lt_Tensor, V(on), arg_float(d->g, 0)), -1, gd_full(d, 1, x->dtype, 2, on->dim));
    Value *rest = full ? gd_full(d, 1, x->dtype, 2, (Expr *[]){b, ex_sub(d->ex, m, r)}) : NULL, *all[] = {sign, rest};
    if (full) sign = sign && rest ? GD(d, cat, arg_values(d->g, 2, all), arg_int(d->g, 1)) : NULL;
    Value *u = gd_mul(d, q, row(d, sign));
    if (!full) v = gd_slice(d, v, 2, gd_int(d, 0), r);
    return result(d, 0, turned ? v : u, x) && result(d, 1, s, x) && result(d, 2, gd_swap(d, turned ? u : v, 1, 2), x);
}

/* ------------------------------------------------------------------ exponential */

/* exp(x / 2^s) by Taylor's series, squared s times; each matrix of the batch its own s */
bool loops_matrix_exp(Grad *d)
{
    enum { TERMS = 16 };
    const Value *x = gd_value(d, 0);
    Value *y = batch(d, gd_value(d, 0)), *length = total(d, size(d, y), 2, false);
    Arg axis = arg_ints(d->g, 1, (int64_t[]){1});
    length = length ? GD(d, amax, V(length), axis) : NULL;
    Value *s = length ? GD(d, ceil, V(plus(d, GD(d, log2, V(length)), 1))) : NULL;
    s = s ? GD(d, clamp, V(s), arg_int(d->g, 0), arg_int(d->g, 1000)) : NULL;
    Value *by = s ? gd_reshape(d, GD(d, exp2, V(negative(d, s))), 3, (Expr *[]){s->dim[0], gd_int(d, 1), gd_int(d, 1)})
                  : NULL;
    Value *part = gd_mul(d, y, by), *one = y ? identity(d, rows_of(y), rows_of(y), x->dtype) : NULL;
    Value *sum = one;
    for (int k = TERMS; k; k--)
        sum = gd_plus(d, one, gd_scale(d, k == TERMS ? part : gd_matmul(d, part, sum), gd_float(d, 1.0 / k)));
    Value *most = s ? GD(d, amax, V(s), arg_ints(d->g, 1, (int64_t[]){0})) : NULL;
    Loop l;
    TRY(sum && most && open_loop(d, &l));
    Grad *b = &l.in;
    Value *a = loop_carry(&l, sum), *times = loop_capture(&l, s), *last = loop_capture(&l, most);
    Value *open = times ? above(b, column(b, gd_insert_axis(b, times, 1)), l.turn) : NULL;
    Value *next = chosen(b, open, gd_matmul(b, a, a), a);
    Value *turns = GD(b, add_Tensor, V(l.turn), arg_int(b->g, 1));
    Node *loop = close_loop(&l, NULL, GD(d, gt_Tensor, V(most), arg_int(d->g, 0)), above(b, last, turns), &next, 0,
                            NULL);
    return loop && result(d, 0, loop->out[0], x);
}
