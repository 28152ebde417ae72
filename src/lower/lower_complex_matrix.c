/* Factors of complex matrices, and what is solved with them, by real matrices of twice the size. Contract in
 * lower/complex.h.
 *
 *     whole(A)          each element a + b i as the square [a -b; b a]: (..., n, m) complex -> (..., 2n, 2m) reals.
 *                       Sums and products of such matrices are such matrices
 *     columns(B)        each element as the column [a; b]: (..., n, k) -> (..., 2n, k); A B is whole(A) columns(B)
 *     cholesky(A)       the factor of whole(A), of which every second column is that of A
 *     svdvals, eigvalsh each number of A's stands twice among those of whole(A)
 *
 * Factors whose pivots, signs and phases are LAPACK's for complex numbers (LU, LDL, QR, eigenvectors, singular vectors)
 * are rows of their own on pairs, qkv.lu_factor_pairs and its kin.
 */
#include <string.h>
#include "lower/complex.h"
#include "lower/lower_table.h"
#include "lower/words.h"
#include "shape/shape.h"

static bool parts_of(Lower *L, Value *z, Parts *p)
{
    return complex_parts(L, z, p) && (p->im || (p->im = AS(L, zeros_like, v(p->re))));
}

static bool parts(Lower *L, Value *z, Parts *p)
{
    if (z->rank < 2) return fail(L->err, E_UNSUPPORTED, "%s of rank %d, expected 2 or more", L->op->name, z->rank);
    return parts_of(L, z, p);
}

static Value *pair(Lower *L, Value *a, Value *b, int axis)
{
    return a && b ? AS(L, stack, arg_values(L->g, 2, (Value *[]){a, b}), arg_int(L->g, axis)) : NULL;
}

/* x as (..., n, m), with the leading axes of like */
static Value *as_matrix(Lower *L, Value *x, const Value *like, Expr *n, Expr *m)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < like->rank - 2; i++) dim[i] = like->dim[i];
    dim[like->rank - 2] = n;
    dim[like->rank - 1] = m;
    return lower_reshape(L, x, like->rank, dim);
}

static Expr *twice(Lower *L, Expr *n) { return ex_mul(L->ex, n, ex_int(L->ex, 2)); }

Value *complex_whole(Lower *L, Value *z)
{
    Parts p;
    if (!z || !parts(L, z, &p)) return NULL;
    Value *upper = pair(L, p.re, AS(L, neg, v(p.im)), -1), *lower = pair(L, p.im, p.re, -1);
    return as_matrix(L, pair(L, upper, lower, z->rank - 1), z, twice(L, z->dim[z->rank - 2]),
                     twice(L, z->dim[z->rank - 1]));
}

Value *complex_columns(Lower *L, Value *z)
{
    Parts p;
    if (!z || !parts(L, z, &p)) return NULL;
    return as_matrix(L, pair(L, p.re, p.im, z->rank - 1), z, twice(L, z->dim[z->rank - 2]), z->dim[z->rank - 1]);
}

Value *complex_of_columns(Lower *L, Value *x)
{
    Expr *dim[MAX_RANK + 1];
    if (!x) return NULL;
    int n = x->rank;
    for (int i = 0; i < n; i++) dim[i] = x->dim[i];
    dim[n] = dim[n - 1];
    dim[n - 2] = ex_floordiv(L->ex, dim[n - 2], ex_int(L->ex, 2));
    dim[n - 1] = ex_int(L->ex, 2);
    x = lower_reshape(L, x, n + 1, dim);
    Arg axis = arg_int(L->g, n - 1);
    return x ? complex_joined(L, AS(L, select_int, v(x), axis, arg_int(L->g, 0)),
                              AS(L, select_int, v(x), axis, arg_int(L->g, 1)))
             : NULL;
}

/* Every second one along the last axis */
static Value *halved(Lower *L, Value *x)
{
    return x ? AS(L, slice_Tensor, v(x), arg_int(L->g, -1), arg_int(L->g, 0), arg_expr(x->dim[x->rank - 1]),
                  arg_int(L->g, 2))
             : NULL;
}

/* Of an order among twice as many: where a factor failed; 0: nowhere */
Value *complex_order(Lower *L, Value *info)
{
    info = info ? AS(L, add_Tensor, v(info), arg_int(L->g, 1)) : NULL;
    return info ? AS(L, floor_divide, v(info), arg_int(L->g, 2)) : NULL;
}

/* whole() of a Hermitian matrix, whose diagonal is real whatever is there */
static Value *hermitian(Lower *L, Value *z)
{
    Parts p;
    if (!z || !parts(L, z, &p)) return NULL;
    Value *below = AS(L, tril, v(p.im), arg_int(L->g, -1)), *above = AS(L, triu, v(p.im), arg_int(L->g, 1));
    return complex_whole(L, complex_joined(L, p.re, AS(L, add_Tensor, v(below), v(above))));
}

/* (A, upper, check_errors) -> L, info */
bool complex_cholesky(Lower *L)
{
    Value *y = AS(L, linalg_cholesky_ex, v(hermitian(L, lower_value(L, 0))), L->arg[1], L->arg[2]);
    TRY(y);
    Value *info = complex_order(L, y->def->out[1]);
    y = complex_of_columns(L, halved(L, y));
    return y && info && lower_return_values(L, 2, (Value *[]){y, info});
}

bool complex_matrix_exp(Lower *L)
{
    Value *y = AS(L, matrix_exp, v(complex_whole(L, lower_value(L, 0))));
    return lower_return(L, complex_of_columns(L, halved(L, y)));
}

/* svdvals(A, driver), eigvalsh(A, UPLO) */
bool complex_values(Lower *L)
{
    Value *a = lower_value(L, 0);
    a = L->op->id == OP_linalg_svdvals ? complex_whole(L, a) : hermitian(L, a);
    return lower_return(L, halved(L, lower_as(L, L->op->id, 2, (Arg[]){v(a), L->arg[1]})));
}

/* ------------------------------------------------------------------ factors by rows of their own
 *
 * The row has a detached operand. What its results change by where the operand does is a linear function of e = A - A,
 * which is 0 and of which only the gradient counts; it is added to them. */

typedef struct Operand {
    Value *pairs, *e; /* e: complex; NULL: no gradient goes that way, or the row says that it has none */
} Operand;

static bool operand(Lower *L, bool differentiable, Operand *x)
{
    Value *pairs = complex_pairs(L, lower_value(L, 0)), *fixed = differentiable ? AS(L, detach, v(pairs)) : pairs;
    bool moves = fixed && fixed != pairs;
    *x = (Operand){fixed, moves ? complex_from_pairs(L, AS(L, sub_Tensor, v(pairs), v(fixed))) : NULL};
    return fixed && (!moves || x->e);
}

/* y + by, where by is a number */
static Value *moved(Lower *L, Value *y, Value *by)
{
    if (!y || !by) return NULL;
    Value *x = dtype_is_complex(by->dtype) ? complex_pairs(L, by) : by;
    x = AS(L, where_ScalarOther, v(AS(L, isfinite, v(x))), v(x), arg_float(L->g, 0));
    return AS(L, add_Tensor, v(y), v(dtype_is_complex(by->dtype) ? complex_from_pairs(L, x) : x));
}


/* X with a X = b, or X a = b, for a triangular a */
static Value *solved(Lower *L, Value *a, Value *b, bool upper, bool left, bool unit)
{
    return a && b ? AS(L, linalg_solve_triangular, v(a), v(b), arg_bool(L->g, upper), arg_bool(L->g, left),
                       arg_bool(L->g, unit))
                  : NULL;
}

/* from .. to of the last axis, or of that before it */
static Value *part(Lower *L, Value *x, int axis, Expr *from, Expr *to)
{
    return x ? AS(L, slice_Tensor, v(x), arg_int(L->g, axis), arg_expr(from), arg_expr(to)) : NULL;
}

/* Is a no larger than b? Sizes of which that is not known: false, and *known. */
static bool within_size(const Expr *a, const Expr *b, bool *known)
{
    *known = *known && (a == b || (ex_is_int(a) && ex_is_int(b)));
    return a == b || (ex_is_int(a) && ex_is_int(b) && a->i <= b->i);
}

/* With G = L^-1 P^T E U^-1 of the square part, dL = L tril(G, -1) and dU = triu(G) U; below it dL = (E - L dU) U^-1,
 * beside it dU = L^-1 (E - dL U). */
static Value *lu_moves(Lower *L, Value *lu, Value *pivots, Value *e)
{
    Expr *m = lu->dim[lu->rank - 2], *n = lu->dim[lu->rank - 1], *zero = ex_int(L->ex, 0);
    bool known = true, wide = within_size(m, n, &known);
    Expr *r = wide ? m : n;
    Value *const *plu = ALL(L, lu_unpack, v(lu), v(pivots));
    if (!plu) return NULL;
    e = product(L, adjoint(L, plu[0]), e);
    Value *l = part(L, plu[1], -2, zero, r), *u = part(L, plu[2], -1, zero, r);
    Value *g = part(L, part(L, e, -2, zero, r), -1, zero, r);
    g = solved(L, u, solved(L, l, g, false, true, true), true, false, false);
    Value *dl = product(L, l, AS(L, tril, v(g), arg_int(L->g, -1))), *du = product(L, AS(L, triu, v(g)), u);
    Value *y = plus(L, dl, du), *rest;
    if (m == n || !y) return y;
    if (wide) {
        rest = minus(L, part(L, e, -1, r, n), product(L, dl, part(L, plu[2], -1, r, n)));
        rest = solved(L, l, rest, false, true, true);
    } else {
        rest = minus(L, part(L, e, -2, r, m), product(L, part(L, plu[1], -2, r, m), du));
        rest = solved(L, u, rest, true, false, false);
    }
    return rest ? AS(L, cat, arg_values(L->g, 2, (Value *[]){y, rest}), arg_int(L->g, wide ? -1 : -2)) : NULL;
}

/* (A, pivot, check_errors) -> LU, pivots, info */
bool complex_lu_factor(Lower *L)
{
    Operand x;
    const Value *a = lower_value(L, 0);
    bool known = a->rank > 1;
    if (known) within_size(a->dim[a->rank - 2], a->dim[a->rank - 1], &known);
    TRY(operand(L, known, &x));
    Node *n = lower_emit_node(L, OP_lu_factor_pairs, 3, (Arg[]){v(x.pairs), L->arg[1], L->arg[2]});
    Value *lu = n ? complex_from_pairs(L, n->out[0]) : NULL;
    if (lu && x.e) lu = moved(L, lu, lu_moves(L, lu, n->out[1], x.e));
    return lu && lower_return_values(L, 3, (Value *[]){lu, n->out[1], n->out[2]});
}

/* (LU, pivots, ...) -> P, L, U: of the real part, and the imaginary parts below and above */
bool complex_lu_unpack(Lower *L)
{
    Value *lu = lower_value(L, 0);
    Parts p;
    TRY(parts(L, lu, &p));
    Expr *r = ex_min(L->ex, lu->dim[lu->rank - 2], lu->dim[lu->rank - 1]), *zero = ex_int(L->ex, 0);
    Value *const *y = ALL(L, lu_unpack, v(p.re), L->arg[1], L->arg[2], L->arg[3]);
    TRY(y);
    Value *l = AS(L, tril, v(part(L, p.im, -1, zero, r)), arg_int(L->g, -1));
    Value *u = AS(L, triu, v(part(L, p.im, -2, zero, r)));
    l = complex_joined(L, y[1], l);
    u = complex_joined(L, y[2], u);
    Value *order = lower_cast(L, y[0], lu->dtype);
    return l && u && order && lower_return_values(L, 3, (Value *[]){order, l, u});
}

/* A -> a number of the unit circle and the logarithm of the absolute determinant: of the diagonal of U, and the other
 * sign for each row that was exchanged */
bool complex_slogdet(Lower *L)
{
    Value *const *lu = ALL(L, linalg_lu_factor_ex, L->arg[0], arg_bool(L->g, true), arg_bool(L->g, false));
    TRY(lu);
    Arg last = arg_int(L->g, -1), axes = arg_ints(L->g, 1, (int64_t[]){-1});
    Value *d = AS(L, diagonal, v(lu[0]), arg_int(L->g, 0), arg_int(L->g, -2), last), *pivots = lu[1];
    Expr *end = ex_add(L->ex, pivots->dim[pivots->rank - 1], ex_int(L->ex, 1));
    Value *stayed = AS(L, arange_start, arg_int(L->g, 1), arg_expr(end), arg_dtype(DT_I32));
    Value *odd = AS(L, sum_dim_IntList, v(AS(L, ne_Tensor, v(pivots), v(stayed))), axes);
    odd = AS(L, bitwise_and_Scalar, v(odd), arg_int(L->g, 1));
    Value *sign = AS(L, prod_dim_int, v(AS(L, sign, v(d))), last);
    sign = AS(L, where_self, v(AS(L, ne_Scalar, v(odd), arg_int(L->g, 0))), v(AS(L, neg, v(sign))), v(sign));
    Value *log = AS(L, sum_dim_IntList, v(AS(L, log, v(AS(L, abs, v(d))))), axes);
    return sign && log && lower_return_values(L, 2, (Value *[]){sign, log});
}

/* i times the imaginary parts of the diagonal of x, over s unless that is NULL, as a matrix */
static Value *phases(Lower *L, Value *x, Value *s)
{
    Parts p;
    Value *d = x ? AS(L, diagonal, v(x), arg_int(L->g, 0), arg_int(L->g, -2), arg_int(L->g, -1)) : NULL;
    TRY(d && parts_of(L, d, &p));
    if (s) p.im = AS(L, div_Tensor, v(p.im), v(s));
    d = complex_joined(L, AS(L, zeros_like, v(p.im)), p.im);
    return d ? AS(L, diag_embed, v(d)) : NULL;
}

/* With X = Q^H E R^-1 and W = tril(X, -1) - tril(X, -1)^H + i Im diag(X): dQ = Q W + E R^-1 - Q X, dR = Q^H E - W R;
 * R^-1 of its square part. */
static bool qr_moves(Lower *L, Value **q, Value **r, Value *e, Expr *k)
{
    Expr *zero = ex_int(L->ex, 0);
    Value *over = solved(L, part(L, *r, -1, zero, k), part(L, e, -1, zero, k), true, false, false);
    Value *x = product(L, adjoint(L, *q), over), *low = x ? AS(L, tril, v(x), arg_int(L->g, -1)) : NULL;
    Value *w = plus(L, minus(L, low, adjoint(L, low)), phases(L, x, NULL));
    Value *dq = plus(L, product(L, *q, w), minus(L, over, product(L, *q, x)));
    Value *dr = minus(L, product(L, adjoint(L, *q), e), product(L, w, *r));
    *q = moved(L, *q, dq);
    *r = moved(L, *r, dr);
    return *q && *r;
}

/* (A, mode) -> Q, R */
bool complex_qr(Lower *L)
{
    Operand x;
    const Value *a = lower_value(L, 0);
    if (a->rank < 2) return lower_fail(L, 0, "expected matrices");
    Expr *rows = a->dim[a->rank - 2], *cols = a->dim[a->rank - 1];
    bool known = true, wide = within_size(rows, cols, &known);
    const char *mode = L->arg[1].s;
    bool differentiable = known && strcmp(mode, "r") && (wide || *mode != 'c'); /* as in PyTorch */
    TRY(operand(L, differentiable, &x));
    Node *n = lower_emit_node(L, OP_qr_pairs, 2, (Arg[]){v(x.pairs), L->arg[1]});
    Value *q = n ? complex_from_pairs(L, n->out[0]) : NULL, *r = q ? complex_from_pairs(L, n->out[1]) : NULL;
    if (r && x.e) TRY(qr_moves(L, &q, &r, x.e, wide ? rows : cols));
    return r && lower_return_values(L, 2, (Value *[]){q, r});
}

/* A -> R and the reflections' vectors, and their factors */
bool complex_geqrf(Lower *L)
{
    Node *n = lower_emit_node(L, OP_geqrf_pairs, 1, (Arg[]){v(complex_pairs(L, lower_value(L, 0)))});
    Value *a = n ? complex_from_pairs(L, n->out[0]) : NULL, *tau = a ? complex_from_pairs(L, n->out[1]) : NULL;
    return tau && lower_return_values(L, 2, (Value *[]){a, tau});
}

/* (A, hermitian, check_errors) -> LD, pivots, info */
bool complex_ldl_factor(Lower *L)
{
    Value *pairs = complex_pairs(L, lower_value(L, 0));
    Node *n = pairs ? lower_emit_node(L, OP_ldl_factor_pairs, 3, (Arg[]){v(pairs), L->arg[1], L->arg[2]}) : NULL;
    Value *ld = n ? complex_from_pairs(L, n->out[0]) : NULL;
    return ld && lower_return_values(L, 3, (Value *[]){ld, n->out[1], n->out[2]});
}

/* (LD, pivots, B, hermitian), the batches alike */
bool complex_ldl_solve(Lower *L)
{
    Value *ld = complex_pairs(L, lower_value(L, 0)), *b = complex_pairs(L, lower_value(L, 2));
    return ld && b &&
           lower_return(L, complex_from_pairs(L, EMIT(L, ldl_solve_pairs, v(ld), L->arg[1], v(b), L->arg[3])));
}

/* 1 / (s_j - s_i), and 0 where they are equal, for numbers s (..., k), real or complex */
static Value *reciprocals(Lower *L, Value *s)
{
    Value *d = s ? minus(L, AS(L, unsqueeze, v(s), arg_int(L->g, -2)), AS(L, unsqueeze, v(s), arg_int(L->g, -1)))
                 : NULL;
    if (!d) return NULL;
    return AS(L, where_ScalarSelf, v(AS(L, eq_Scalar, v(d), arg_int(L->g, 0))), arg_float(L->g, 0),
              v(AS(L, reciprocal, v(d))));
}

static Value *real_diagonal(Lower *L, Value *x)
{
    Parts p;
    Value *d = x ? AS(L, diagonal, v(x), arg_int(L->g, 0), arg_int(L->g, -2), arg_int(L->g, -1)) : NULL;
    return d && parts_of(L, d, &p) ? p.re : NULL;
}

/* (A, UPLO) -> w, V: with M = V^H E V dw = Re diag(M), dV = V (M / (w_j - w_i)) */
bool complex_eigh(Lower *L)
{
    Operand x;
    TRY(operand(L, true, &x));
    Node *n = lower_emit_node(L, OP_eigh_pairs, 2, (Arg[]){v(x.pairs), L->arg[1]});
    Value *w = n ? n->out[0] : NULL, *vectors = n ? complex_from_pairs(L, n->out[1]) : NULL;
    TRY(vectors);
    if (x.e) {
        Value *m = product(L, product(L, adjoint(L, vectors), x.e), vectors);
        Value *by = product(L, vectors, times(L, m, reciprocals(L, w)));
        w = moved(L, w, real_diagonal(L, m));
        vectors = moved(L, vectors, by);
    }
    return w && vectors && lower_return_values(L, 2, (Value *[]){w, vectors});
}

/* With P = V^-1 E V: dw = diag(P), dX = V (P / (w_j - w_i)), and dV = dX - V Re diag(V^H dX), as vectors stay of
 * length 1 */
static bool eig_moves(Lower *L, Value **w, Value **vectors, Value *e)
{
    Value *const *x = ALL(L, linalg_solve_ex, v(*vectors), v(product(L, e, *vectors)));
    Value *p = x ? x[0] : NULL, *dx = product(L, *vectors, times(L, p, reciprocals(L, *w)));
    Value *along = times(L, adjoint(L, *vectors), dx ? AS(L, mT, v(dx)) : NULL); /* its rows sum to diag(V^H dX) */
    Parts sum;
    TRY(along && complex_parts(L, AS(L, sum_dim_IntList, v(along), arg_ints(L->g, 1, (int64_t[]){-1})), &sum));
    Value *turned = AS(L, unsqueeze, v(sum.re), arg_int(L->g, -2));
    *w = moved(L, *w, AS(L, diagonal, v(p), arg_int(L->g, 0), arg_int(L->g, -2), arg_int(L->g, -1)));
    *vectors = moved(L, *vectors, minus(L, dx, times(L, *vectors, turned)));
    return *w && *vectors;
}

/* A -> w, V, of a real matrix and of a complex one */
bool lower_eig(Lower *L)
{
    Value *a = lower_value(L, 0), *fixed;
    if (!a || a->rank < 2) return lower_fail(L, 0, "expected matrices");
    bool paired = dtype_is_complex(a->dtype);
    Operand x;
    if (paired) {
        TRY(operand(L, true, &x));
    } else {
        TRY(fixed = AS(L, detach, v(a)));
        x = (Operand){fixed, fixed == a ? NULL : complex_joined(L, AS(L, sub_Tensor, v(a), v(fixed)), NULL)};
    }
    Node *n = lower_emit_node(L, paired ? OP_eig_pairs : OP_eig_of_reals, 1, (Arg[]){v(x.pairs)});
    Value *w = n ? complex_from_pairs(L, n->out[0]) : NULL, *vectors = w ? complex_from_pairs(L, n->out[1]) : NULL;
    if (vectors && x.e) TRY(eig_moves(L, &w, &vectors, x.e));
    return vectors && lower_return_values(L, 2, (Value *[]){w, vectors});
}

bool lower_eigvals(Lower *L)
{
    Value *const *y = ALL(L, linalg_eig, L->arg[0]);
    return y && lower_return(L, y[0]);
}

/* With P = U^H E V: dS = Re diag(P), dU = U (F (P S + S P^H) + i Im diag(P) / S) + (E V - U P) / S and
 * dV = V F (S P + P^H S) + (E^H U - V P^H) / S, where F is 1 / (s_j^2 - s_i^2). */
static bool svd_moves(Lower *L, Value **u, Value **s, Value **vh, Value *e)
{
    Value *vectors = adjoint(L, *vh), *ev = product(L, e, vectors), *p = product(L, adjoint(L, *u), ev);
    Value *ph = adjoint(L, p), *f = reciprocals(L, times(L, *s, *s));
    Value *across = AS(L, unsqueeze, v(*s), arg_int(L->g, -2)), *down = AS(L, unsqueeze, v(*s), arg_int(L->g, -1));
    Value *du = times(L, f, plus(L, times(L, p, across), times(L, ph, down)));
    du = product(L, *u, plus(L, du, phases(L, p, *s)));
    Value *beyond = minus(L, ev, product(L, *u, p));
    du = plus(L, du, beyond ? AS(L, div_Tensor, v(beyond), v(across)) : NULL);
    Value *dv = product(L, vectors, times(L, f, plus(L, times(L, p, down), times(L, ph, across))));
    beyond = minus(L, product(L, adjoint(L, e), *u), product(L, vectors, ph));
    dv = plus(L, dv, beyond ? AS(L, div_Tensor, v(beyond), v(across)) : NULL);
    *u = moved(L, *u, du);
    *s = moved(L, *s, real_diagonal(L, p));
    *vh = moved(L, *vh, adjoint(L, dv));
    return *u && *s && *vh;
}

/* (A, full_matrices, driver) -> U, S, Vh */
bool complex_svd(Lower *L)
{
    Operand x;
    const Value *a = lower_value(L, 0);
    bool full;
    TRY(lower_const_bool(L, 1, &full));
    if (a->rank < 2) return lower_fail(L, 0, "expected matrices");
    bool differentiable = !full || a->dim[a->rank - 2] == a->dim[a->rank - 1]; /* as in PyTorch */
    TRY(operand(L, differentiable, &x));
    Node *n = lower_emit_node(L, OP_svd_pairs, 2, (Arg[]){v(x.pairs), L->arg[1]});
    Value *u = n ? complex_from_pairs(L, n->out[0]) : NULL, *s = u ? n->out[1] : NULL;
    Value *vh = u ? complex_from_pairs(L, n->out[2]) : NULL;
    if (vh && x.e) TRY(svd_moves(L, &u, &s, &vh, x.e));
    return vh && lower_return_values(L, 3, (Value *[]){u, s, vh});
}

/* With e: dy_i = sum over j <= i of exp(x_j - y_i) e_j, of differences, so that no exponential leaves the range */
static Value *scan_moves(Lower *L, Value *x, Value *y, Value *e, int axis)
{
    Arg d = arg_int(L->g, axis), last = arg_int(L->g, -1), before = arg_int(L->g, -2);
    if (!x || !y || !x->rank) return e;
    Value *rows = AS(L, transpose_int, v(x), d, last), *sums = AS(L, transpose_int, v(y), d, last);
    Value *w = minus(L, rows ? AS(L, unsqueeze, v(rows), before) : NULL, sums ? AS(L, unsqueeze, v(sums), last) : NULL);
    if (!w || !(w = AS(L, tril, v(AS(L, exp, v(w)))))) return NULL;
    w = times(L, w, AS(L, unsqueeze, v(AS(L, transpose_int, v(e), d, last)), before));
    w = w ? AS(L, sum_dim_IntList, v(w), arg_ints(L->g, 1, (int64_t[]){-1})) : NULL;
    return w ? AS(L, transpose_int, v(w), d, last) : NULL;
}

/* (z, dim) */
bool complex_logcumsumexp(Lower *L)
{
    Operand x;
    int d;
    TRY(lower_dim(L, 1, lower_value(L, 0)->rank, &d) && operand(L, true, &x));
    Value *y = complex_from_pairs(L, EMIT(L, logcumsumexp_pairs, v(x.pairs), arg_int(L->g, d)));
    if (y && x.e) y = moved(L, y, scan_moves(L, complex_from_pairs(L, x.pairs), y, x.e, d));
    return lower_return(L, y);
}
