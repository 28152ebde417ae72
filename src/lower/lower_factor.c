/* Lowering of what is solved and factored: everything on a few rows (linalg_solve_ex, linalg_svd ...).
 *
 *     solve(a, b, left=False)  -> transpose(solve_ex(transpose(a), transpose(b)))
 *     inv(a)                   -> solve_ex(a, eye)
 *     det(a)                   -> sign * exp(logabsdet)
 *     pinv(a)                  -> v * where(s > tolerance, 1 / s, 0) @ u^T
 */
#include <float.h>
#include <math.h>
#include <string.h>
#include "facts/axes.h"
#include "lower/complex.h"
#include "lower/lower_table.h"
#include "lower/words.h"
#include "shape/shape.h"

static Value *result(Value *x, int k) { return x ? x->def->out[k] : NULL; }
static Value *turned(Lower *L, Value *x)
{
    return x ? AS(L, transpose_int, v(x), arg_int(L->g, -2), arg_int(L->g, -1)) : NULL;
}

static bool matrices(Lower *L, int n)
{
    for (int i = 0; i < n; i++)
        if (!lower_value(L, i) || !lower_value(L, i)->rank || (!i && lower_value(L, 0)->rank < 2))
            return lower_fail(L, i, "expected matrices");
    return true;
}

static Value *unit(Lower *L, const Value *like, Expr *n) { return AS(L, eye, arg_expr(n), arg_dtype(like->dtype)); }

/* Both over the batches of both. */
static bool same_batch(Lower *L, Value **a, Value **b)
{
    int ra = (*a)->rank - 2, rb = (*b)->rank - 2, n = ra > rb ? ra : rb;
    Expr *da[MAX_RANK], *db[MAX_RANK];
    if (ra < 0 || rb < 0) return fail(L->err, E_FORMAT, "rank %d, expected matrices", ra < rb ? ra + 2 : rb + 2);
    for (int i = 0; i < n; i++) {
        Expr *x = i < n - ra ? NULL : (*a)->dim[i - (n - ra)], *y = i < n - rb ? NULL : (*b)->dim[i - (n - rb)];
        da[i] = db[i] = !x || (y && ex_equals_int(x, 1)) ? y : x;
    }
    for (int i = 0; i < 2; i++) {
        da[n + i] = (*a)->dim[ra + i];
        db[n + i] = (*b)->dim[rb + i];
    }
    *a = EMIT(L, expand, v(*a), arg_exprs(L->g, n + 2, da));
    *b = *a ? EMIT(L, expand, v(*b), arg_exprs(L->g, n + 2, db)) : NULL;
    return *b != NULL;
}

/* ------------------------------------------------------------------ solving */

static bool complex_ones(Lower *L, Value **a, Value **b)
{
    DType t = dtype_promote((*a)->dtype, (*b)->dtype);
    if (!dtype_is_complex(t)) return false;
    *a = lower_cast(L, *a, t);
    *b = lower_cast(L, *b, t);
    return true;
}

/* X with A X = B; check: a singular A is an error. info may be NULL. */
static Value *solve(Lower *L, Value *a, Value *b, bool check, Value **info)
{
    TRY_NULL(a && b);
    bool twice = complex_ones(L, &a, &b);
    if (twice) {
        a = complex_whole(L, a);
        b = complex_columns(L, b);
    }
    TRY_NULL(a && b && same_batch(L, &a, &b));
    Value *x = EMIT(L, linalg_solve_ex, v(a), v(b), arg_bool(L->g, true), arg_bool(L->g, check));
    if (x && info) *info = twice ? complex_order(L, result(x, 1)) : result(x, 1);
    return twice ? complex_of_columns(L, x) : x;
}

static Value *triangular(Lower *L, Value *a, Value *b, bool upper, bool unitriangular)
{
    TRY_NULL(a && b);
    bool twice = complex_ones(L, &a, &b);
    if (twice) { /* with ones on the diagonal (rows over their elements of it) a square [1 0; 0 1] is triangular, too */
        Arg last = arg_int(L->g, -1);
        Value *d = AS(L, diagonal, v(a), arg_int(L->g, 0), arg_int(L->g, -2), last);
        TRY_NULL(d);
        if (unitriangular) a = AS(L, sub_Tensor, v(a), v(AS(L, diag_embed, v(d))));
        else {
            d = AS(L, unsqueeze, v(d), last);
            TRY_NULL(d && (a = AS(L, div_Tensor, v(a), v(d))) && (b = AS(L, div_Tensor, v(b), v(d))));
        }
        a = complex_whole(L, a);
        b = complex_columns(L, b);
    }
    TRY_NULL(a && b && same_batch(L, &a, &b));
    Value *x = EMIT(L, linalg_solve_triangular, v(a), v(b), arg_bool(L->g, upper), arg_bool(L->g, true),
                    arg_bool(L->g, unitriangular || twice));
    return twice ? complex_of_columns(L, x) : x;
}

static bool truth(Lower *L, const char *name, bool otherwise, bool *yes)
{
    int at = op_param(L->op, name);
    *yes = otherwise;
    return at < 0 || lower_const_bool(L, at, yes);
}

/* solve_ex and solve: B of matrices, or of vectors where it has an axis less */
bool lower_solve(Lower *L)
{
    bool left, check;
    TRY(matrices(L, 2) && truth(L, "left", true, &left) && truth(L, "check_errors", true, &check));
    Value *a = lower_value(L, 0), *b = lower_value(L, 1);
    bool vector = b->rank == 1 || b->rank + 1 == a->rank;
    for (int i = 0; vector && b->rank > 1 && i < b->rank; i++) vector = b->dim[i] == a->dim[i];
    if (vector) b = AS(L, unsqueeze, v(b), arg_int(L->g, -1));
    Value *info, *x = left ? solve(L, a, b, check, &info) : solve(L, turned(L, a), turned(L, b), check, &info);
    if (!left) x = turned(L, x);
    if (x && vector) x = AS(L, squeeze_dim, v(x), arg_int(L->g, -1));
    int n = L->op->schema->nreturns;
    if (n == 1 || !x) return lower_return(L, x);
    return lower_return_values(L, n, n == 2 ? (Value *[]){x, info} : (Value *[]){x, NULL, NULL, info});
}

/* What run_decompositions() makes of a check: the factorization that gave info is told to check. */
bool lower_check_errors(Lower *L)
{
    Value *info = lower_value(L, 0);
    while (info && info->def && op_param(info->def->op, "check_errors") < 0)
        info = info->def->op->schema->nparams && info->def->arg[0].kind == ARG_VALUE ? info->def->arg[0].v : NULL;
    if (!info || !info->def) return lower_fail(L, 0, "expected the info of a factorization");
    info->def->arg[op_param(info->def->op, "check_errors")] = arg_bool(L->g, true);
    return lower_ignore(L);
}

bool lower_inverse(Lower *L)
{
    bool check;
    TRY(matrices(L, 1) && truth(L, "check_errors", true, &check));
    Value *a = lower_value(L, 0), *info, *x = solve(L, a, unit(L, a, a->dim[a->rank - 1]), check, &info);
    return L->op->schema->nreturns > 1 ? x && lower_return_values(L, 2, (Value *[]){x, info})
                                       : lower_return(L, x);
}

bool lower_solve_triangular(Lower *L)
{
    bool upper, left, one;
    TRY(matrices(L, 2) && truth(L, "upper", true, &upper) && truth(L, "left", true, &left) &&
        truth(L, "unitriangular", false, &one));
    Value *a = lower_value(L, 0), *b = lower_value(L, 1);
    return lower_return(L, left ? triangular(L, a, b, upper, one)
                                : turned(L, triangular(L, turned(L, a), turned(L, b), !upper, one)));
}

/* triangular_solve(B, A) is the same with its operands the other way round */
bool lower_triangular_solve(Lower *L)
{
    bool upper, transposed, one;
    TRY(matrices(L, 2) && truth(L, "upper", true, &upper) && truth(L, "transpose", false, &transposed) &&
        truth(L, "unitriangular", false, &one));
    Value *a = lower_value(L, 1), *x = transposed ? triangular(L, turned(L, a), lower_value(L, 0), !upper, one)
                                                  : triangular(L, a, lower_value(L, 0), upper, one);
    return x && lower_return_values(L, 2, (Value *[]){x, a});
}

/* (B, L): X with L L^T X = B; cholesky_inverse: of the identity */
bool lower_cholesky_solve(Lower *L)
{
    bool upper, inverse = L->op->id == OP_cholesky_inverse;
    TRY(matrices(L, inverse ? 1 : 2) && truth(L, "upper", false, &upper));
    Value *l = lower_value(L, inverse ? 0 : 1);
    Value *b = inverse ? unit(L, l, l->dim[l->rank - 1]) : lower_value(L, 0);
    if (upper) l = AS(L, mH, v(l));
    if (inverse) {
        Value *own = AS(L, diagonal, v(l), arg_int(L->g, 0), arg_int(L->g, -2), arg_int(L->g, -1));
        TRY(own && (l = lower_only_if(L, AS(L, ne_Tensor, v(own), arg_int(L->g, 0)), l)));
    }
    return lower_return(L, triangular(L, AS(L, mH, v(l)), triangular(L, l, b, false, false), true, false));
}

/* (LU, pivots, B), and lu_solve's (B, LU, pivots): P L U X = B, or of the transpose */
bool lower_lu_solve(Lower *L)
{
    bool left, adjoined, old = L->op->id == OP_lu_solve;
    TRY(matrices(L, 3) && truth(L, "left", true, &left) && truth(L, "adjoint", false, &adjoined));
    Value *b = lower_value(L, old ? 0 : 2), *lu = lower_value(L, old ? 1 : 0);
    Value *const *plu = ALL(L, lu_unpack, v(lu), L->arg[old ? 2 : 1]);
    TRY(plu);
    Value *p = plu[0], *l = plu[1], *u = plu[2];
    if (!left) b = adjoint(L, b); /* X A = B: A^H X^H = B^H */
    Value *x;
    if (adjoined == !left) {
        x = triangular(L, l, product(L, turned(L, p), b), false, true);
        x = triangular(L, u, x, true, false);
    } else x = product(L, p, triangular(L, adjoint(L, l), triangular(L, adjoint(L, u), b, false, false), true, true));
    return lower_return(L, left ? x : adjoint(L, x));
}

/* ------------------------------------------------------------------ factors */

/* The same without info, and with an error where it cannot be done. */
bool lower_factor(Lower *L)
{
    int n = L->op->schema->nreturns;
    bool ldl = L->op->id == OP_linalg_ldl_factor, lu = n > 1;
    Arg refuse = arg_bool(L->g, L->op->id == OP_linalg_lu_factor); /* others factor singular matrices, too */
    TRY(matrices(L, 1));
    Value *const *y = ldl  ? ALL(L, linalg_ldl_factor_ex, L->arg[0], L->arg[1], arg_bool(L->g, true))
                      : lu ? ALL(L, linalg_lu_factor_ex, L->arg[0], L->arg[1], refuse)
                           : ALL(L, linalg_cholesky_ex, L->arg[0], L->arg[1], arg_bool(L->g, true));
    if (!y || !lu) return y && lower_return(L, y[0]);
    if (L->op->id == OP_linalg_lu) y = ALL(L, lu_unpack, v(y[0]), v(y[1]));
    return y && lower_return_values(L, n, y);
}

/* Q and R of qr(A, some) */
bool lower_qr(Lower *L)
{
    bool some;
    TRY(matrices(L, 1) && truth(L, "some", true, &some));
    Value *const *q = ALL(L, linalg_qr, L->arg[0], arg_str(L->g, some ? "reduced" : "complete"));
    return q && lower_return_values(L, 2, q);
}

/* The product of the reflections I - tau v v^H of the columns of a (..., m, n) in compact form (Schreiber and Van Loan
 * 1989): I - V T V^H, V unit lower triangular, T = (I + D S)^-1 D, D = diag(tau), S = V^H V above its diagonal.
 * -> (..., m, m), or its first n columns */
static Value *reflections(Lower *L, Value *a, Value *tau, bool whole)
{
    if (tau->rank != a->rank - 1) return lower_fail(L, 1, "rank %d, expected %d", tau->rank, a->rank - 1), NULL;
    Expr *m = a->dim[a->rank - 2], *n = a->dim[a->rank - 1], *k = tau->dim[tau->rank - 1];
    Arg last = arg_int(L->g, -1), from = arg_int(L->g, 0), type = arg_dtype(a->dtype);
    Value *x = AS(L, tril, v(AS(L, slice_Tensor, v(a), last, from, arg_expr(k))), last);
    x = AS(L, add_Tensor, v(x), v(AS(L, eye_m, arg_expr(m), arg_expr(k), type)));
    Value *d = AS(L, diag_embed, v(tau)), *right = AS(L, mH, v(x));
    Value *s = AS(L, triu, v(product(L, right, x)), arg_int(L->g, 1));
    Value *t = triangular(L, product(L, d, s), d, true, true);
    if (!whole) right = AS(L, slice_Tensor, v(right), last, from, arg_expr(n));
    Value *q = product(L, x, product(L, t, right));
    return AS(L, sub_Tensor, v(AS(L, eye_m, arg_expr(m), arg_expr(whole ? m : n), type)), v(q));
}

bool lower_householder_product(Lower *L)
{
    TRY(matrices(L, 2));
    return lower_return(L, reflections(L, lower_value(L, 0), lower_value(L, 1), false));
}

/* Q C, Q^T C, C Q or C Q^T for the reflections of input and tau: (input, tau, other, left, transpose) */
bool lower_ormqr(Lower *L)
{
    bool left, transposed;
    TRY(matrices(L, 3) && truth(L, "left", true, &left) && truth(L, "transpose", false, &transposed));
    Value *q = reflections(L, lower_value(L, 0), lower_value(L, 1), true), *c = lower_value(L, 2);
    if (transposed) q = AS(L, mH, v(q));
    return lower_return(L, left ? product(L, q, c) : product(L, c, q));
}

/* The batches of LD, pivots and B alike */
bool lower_ldl_solve(Lower *L)
{
    TRY(matrices(L, 3));
    Value *ld = lower_value(L, 0), *pivots = lower_value(L, 1), *b = lower_value(L, 2);
    TRY(same_batch(L, &ld, &b));
    if (pivots->rank + 1 > ld->rank) return lower_fail(L, 1, "rank %d, expected %d", pivots->rank, ld->rank - 1);
    pivots = EMIT(L, expand, v(pivots), arg_exprs(L->g, ld->rank - 1, ld->dim));
    return lower_return(L, EMIT(L, linalg_ldl_solve, v(ld), v(pivots), v(b), L->arg[3]));
}

/* U, S, V of svd(A, some, compute_uv) */
bool lower_svd(Lower *L)
{
    bool some;
    TRY(matrices(L, 1) && truth(L, "some", true, &some));
    Value *const *u = ALL(L, linalg_svd, L->arg[0], arg_bool(L->g, !some));
    Value *vectors = u ? adjoint(L, u[2]) : NULL;
    return vectors && lower_return_values(L, 3, (Value *[]){u[0], u[1], vectors});
}

/* As svd; without vectors U and V are not given. */
bool lower_svd_parts(Lower *L)
{
    bool all, vectors;
    TRY(matrices(L, 1) && truth(L, "full_matrices", false, &all) && truth(L, "compute_uv", true, &vectors));
    if (vectors) {
        Value *const *u = ALL(L, linalg_svd, L->arg[0], arg_bool(L->g, all));
        return u && lower_return_values(L, 3, u);
    }
    Value *s = AS(L, linalg_svdvals, L->arg[0]);
    return s && lower_return_values(L, 3, (Value *[3]){NULL, s});
}

bool lower_eigh_parts(Lower *L)
{
    bool vectors;
    TRY(matrices(L, 1) && truth(L, "compute_v", true, &vectors));
    Value *const *y = ALL(L, linalg_eigh, L->arg[0], L->arg[1]);
    return y && lower_return_values(L, 2, (Value *[2]){y[0], vectors ? y[1] : NULL});
}

bool lower_eigvalsh(Lower *L)
{
    TRY(matrices(L, 1));
    return lower_return(L, EMIT(L, linalg_eigh, L->arg[0], L->arg[1]));
}

/* ------------------------------------------------------------------ determinants */

bool lower_det(Lower *L)
{
    TRY(matrices(L, 1));
    Value *const *y = ALL(L, linalg_slogdet, L->arg[0]);
    TRY(y);
    Value *sign = y[0], *log = y[1];
    Value *det = L->op->id == OP_logdet ? NULL : AS(L, mul_Tensor, v(sign), v(AS(L, exp, v(log))));
    if (L->op->id == OP__linalg_det) return det && lower_return_values(L, 3, (Value *[3]){det});
    if (L->op->id != OP_logdet) return lower_return(L, det);
    if (dtype_is_complex(sign->dtype)) return lower_return(L, AS(L, add_Tensor, v(AS(L, log, v(sign))), v(log)));
    Value *negative = AS(L, lt_Scalar, v(sign), arg_int(L->g, 0));
    return lower_return(L, AS(L, where_ScalarSelf, v(negative), arg_float(L->g, NAN), v(log)));
}

bool lower_slogdet_parts(Lower *L)
{
    TRY(matrices(L, 1));
    Value *const *y = ALL(L, linalg_slogdet, L->arg[0]);
    return y && lower_return_values(L, 4, (Value *[4]){y[0], y[1]});
}

/* ------------------------------------------------------------------ of singular values */

/* A number or a tensor of an optional argument, as one that broadcasts to singular values; none: NULL. */
static Value *given(Lower *L, const char *name, const Value *s)
{
    int at = op_param(L->op, name);
    if (at < 0 || L->arg[at].kind == ARG_NONE) return NULL;
    if (L->arg[at].kind == ARG_VALUE)
        return AS(L, unsqueeze, v(lower_cast(L, L->arg[at].v, s->dtype)), arg_int(L->g, -1));
    return AS(L, full, arg_ints(L->g, 0, NULL), L->arg[at], arg_dtype(s->dtype));
}

/* Which singular values (..., k) of matrices like a count: those above atol and above rtol times the largest */
static Value *large(Lower *L, const Value *a, Value *s)
{
    if (!s) return NULL;
    if (ex_equals_int(s->dim[s->rank - 1], 0)) return AS(L, gt_Tensor, v(s), v(s));
    Value *atol = given(L, "atol", s), *rtol = given(L, "rtol", s);
    if (!atol) atol = given(L, "tol", s), rtol = atol ? AS(L, zeros_like, v(atol)) : rtol;
    if (!rtol) rtol = given(L, "rcond", s);
    if (!rtol) {
        Expr *n = ex_max(L->ex, a->dim[a->rank - 2], a->dim[a->rank - 1]);
        Arg eps = arg_expr(ex_mul(L->ex, n, ex_float(L->ex, s->dtype == DT_F64 ? DBL_EPSILON : (double)FLT_EPSILON)));
        rtol = AS(L, full, arg_ints(L->g, 0, NULL), eps, arg_dtype(s->dtype));
        if (atol)
            rtol = AS(L, where_ScalarSelf, v(AS(L, gt_Scalar, v(atol), arg_int(L->g, 0))), arg_float(L->g, 0), v(rtol));
    }
    Value *largest = AS(L, amax, v(s), arg_ints(L->g, 1, (int64_t[]){-1}), arg_bool(L->g, true));
    Value *bound = AS(L, mul_Tensor, v(rtol), v(largest));
    if (atol) bound = AS(L, maximum, v(bound), v(atol));
    return AS(L, gt_Tensor, v(s), v(bound));
}

/* The pseudoinverse p of a, with the derivative that it has where singular values are equal or 0, too (Golub and
 * Pereyra 1973): p - p e p + p p^H e^H (1 - a p) + (1 - p a) e^H p^H p, where e = a - a is 0 and only its gradient
 * counts */
static Value *following(Lower *L, Value *a, Value *p)
{
    Value *fixed = AS(L, detach, v(a)), *pt, *et, *rows, *columns;
    if (!fixed || fixed == a || !(p = AS(L, detach, v(p)))) return fixed ? p : NULL;
    et = adjoint(L, AS(L, sub_Tensor, v(a), v(fixed)));
    pt = adjoint(L, p);
    rows = AS(L, sub_Tensor, v(unit(L, a, a->dim[a->rank - 2])), v(product(L, fixed, p)));
    columns = AS(L, sub_Tensor, v(unit(L, a, a->dim[a->rank - 1])), v(product(L, p, fixed)));
    Value *y = AS(L, sub_Tensor, v(p), v(product(L, product(L, p, adjoint(L, et)), p)));
    y = AS(L, add_Tensor, v(y), v(product(L, product(L, product(L, p, pt), et), rows)));
    return AS(L, add_Tensor, v(y), v(product(L, columns, product(L, et, product(L, pt, p)))));
}

/* Of a hermitian matrix the lower triangle is read; the eigenvalues' absolute values are the singular values. */
bool lower_pinv(Lower *L)
{
    bool hermitian;
    TRY(matrices(L, 1) && truth(L, "hermitian", false, &hermitian));
    Value *a = lower_value(L, 0), *s, *left, *right, *by;
    Value *const *f = hermitian ? ALL(L, linalg_eigh, v(a)) : ALL(L, linalg_svd, v(a), arg_bool(L->g, false));
    TRY(f);
    if (hermitian) {
        by = f[0];
        left = f[1];
        right = adjoint(L, left);
        s = AS(L, abs, v(by));
    } else {
        s = by = f[1];
        left = adjoint(L, f[2]);
        right = adjoint(L, f[0]);
    }
    Value *inverse = AS(L, where_ScalarOther, v(large(L, a, s)), v(AS(L, reciprocal, v(by))), arg_float(L->g, 0));
    inverse = AS(L, unsqueeze, v(inverse), arg_int(L->g, -2));
    return lower_return(L, following(L, a, product(L, AS(L, mul_Tensor, v(left), v(inverse)), right)));
}

bool lower_matrix_rank(Lower *L)
{
    bool hermitian;
    TRY(matrices(L, 1) && truth(L, "hermitian", false, &hermitian));
    Value *a = lower_value(L, 0);
    Value *s = hermitian ? AS(L, abs, v(AS(L, linalg_eigvalsh, v(a)))) : EMIT(L, linalg_svdvals, v(a));
    return lower_return(L, AS(L, sum_dim_IntList, v(large(L, a, s)), arg_ints(L->g, 1, (int64_t[]){-1})));
}

/* The norm of A times that of its inverse; with p None, 2 or -2 a quotient of singular values */
bool lower_cond(Lower *L)
{
    double p = 2;
    TRY(matrices(L, 1));
    if (L->arg[1].kind == ARG_EXPR && ex_is_const(L->arg[1].e))
        p = L->arg[1].e->kind == EX_FLOAT ? L->arg[1].e->f : (double)L->arg[1].e->i;
    if (L->arg[1].kind != ARG_STR && fabs(p) == 2) {
        Value *s = EMIT(L, linalg_svdvals, L->arg[0]);
        TRY(s);
        Arg last = arg_int(L->g, -1);
        Value *high = AS(L, select_int, v(s), last, arg_int(L->g, 0)), *low = AS(L, select_int, v(s), last, last);
        return lower_return(L, p > 0 ? AS(L, div_Tensor, v(high), v(low)) : AS(L, div_Tensor, v(low), v(high)));
    }
    Value *a = lower_value(L, 0), *norm[2] = {NULL, NULL};
    Value *b = solve(L, a, unit(L, a, a->dim[a->rank - 1]), false, NULL);
    Arg axes = arg_ints(L->g, 2, (int64_t[]){-2, -1});
    for (int i = 0; b && i < 2; i++)
        norm[i] = L->arg[1].kind == ARG_STR ? AS(L, linalg_norm_ord_str, v(i ? b : a), L->arg[1], axes)
                                            : AS(L, linalg_norm, v(i ? b : a), L->arg[1], axes);
    return lower_return(L, AS(L, mul_Tensor, v(norm[0]), v(norm[1])));
}

/* ------------------------------------------------------------------ roots */

/* X with H X + X H = E, of H = V diag(s) V^T; 0 where two of s are 0 */
static Value *sylvester(Lower *L, Value *vectors, Value *s, Value *e)
{
    Value *sum = AS(L, add_Tensor, v(AS(L, unsqueeze, v(s), arg_int(L->g, -1))),
                    v(AS(L, unsqueeze, v(s), arg_int(L->g, -2))));
    sum = AS(L, where_ScalarOther, v(AS(L, gt_Scalar, v(sum), arg_int(L->g, 0))), v(sum), arg_float(L->g, INFINITY));
    Value *x = product(L, product(L, turned(L, vectors), e), vectors);
    return product(L, product(L, vectors, AS(L, div_Tensor, v(x), v(sum))), turned(L, vectors));
}

/* V diag(s) V^T */
static Value *composed(Lower *L, Value *vectors, Value *s)
{
    Value *scaled = AS(L, mul_Tensor, v(vectors), v(AS(L, unsqueeze, v(s), arg_int(L->g, -2))));
    return product(L, scaled, turned(L, vectors));
}

/* X with X X = A, of the lower triangle, negative eigenvalues as 0; its derivative solves X dX + dX X = dA, also where
 * eigenvalues are equal: A - A is 0 and only its gradient counts. */
bool lower_matrix_sqrth(Lower *L)
{
    TRY(matrices(L, 1));
    Value *a = lower_value(L, 0), *w = EMIT(L, linalg_eigh, v(a)), *fixed = w ? AS(L, detach, v(a)) : NULL;
    TRY(fixed);
    Value *vectors = AS(L, detach, v(result(w, 1)));
    Value *s = AS(L, sqrt, v(AS(L, clamp_min, v(AS(L, detach, v(w))), arg_int(L->g, 0))));
    Value *x = composed(L, vectors, s);
    if (fixed == a) return lower_return(L, x);
    Value *e = AS(L, sub_Tensor, v(a), v(fixed));
    e = AS(L, mul_Tensor, v(AS(L, add_Tensor, v(e), v(turned(L, e)))), arg_float(L->g, 0.5));
    return lower_return(L, AS(L, add_Tensor, v(x), v(sylvester(L, vectors, s, e))));
}

/* A = W S V^T = U H with U = W V^T, H = V S V^T. With R = U^T dA and O of H O + O H = R - R^T:
 * dU = U O + (1 - U U^T) dA H^-1, dH = R - O H (Higham, Functions of Matrices, 8), dA as above. */
bool lower_polar_factors(Lower *L)
{
    TRY(matrices(L, 1));
    Value *a = lower_value(L, 0), *w = EMIT(L, linalg_svd, v(a), arg_bool(L->g, false)),
          *fixed = w ? AS(L, detach, v(a)) : NULL;
    TRY(fixed);
    Value *s = AS(L, detach, v(result(w, 1))), *vectors = AS(L, detach, v(turned(L, result(w, 2))));
    Value *u = product(L, AS(L, detach, v(w)), turned(L, vectors)), *h = composed(L, vectors, s);
    if (fixed == a) return u && h && lower_return_values(L, 2, (Value *[]){u, h});
    Value *e = AS(L, sub_Tensor, v(a), v(fixed)), *r = product(L, turned(L, u), e);
    Value *o = sylvester(L, vectors, s, AS(L, sub_Tensor, v(r), v(turned(L, r))));
    Value *du = product(L, u, o), *dh = AS(L, sub_Tensor, v(r), v(product(L, o, h)));
    if (a->dim[a->rank - 2] != a->dim[a->rank - 1]) {
        Value *rest = AS(L, sub_Tensor, v(e), v(product(L, u, r)));
        Value *inverse = composed(L, vectors, AS(L, reciprocal, v(s)));
        du = AS(L, add_Tensor, v(du), v(product(L, rest, inverse)));
    }
    u = AS(L, add_Tensor, v(u), v(du));
    h = AS(L, add_Tensor, v(h), v(dh));
    return u && h && lower_return_values(L, 2, (Value *[]){u, h});
}

/* ------------------------------------------------------------------ tensors as matrices */

/* (first ind axes, rest) as a matrix, inverted, the two groups exchanged */
bool lower_tensorinv(Lower *L)
{
    int64_t ind;
    Expr *dim[MAX_RANK];
    TRY(lower_value(L, 0) && lower_const_int(L, 1, &ind));
    Value *x = lower_value(L, 0);
    if (ind <= 0 || ind >= x->rank)
        return lower_fail(L, 1, "found %lld, expected 1 to %d", (long long)ind, x->rank - 1);
    Expr *n = product_of(L->ex, (int)ind, x->dim);
    Value *m = lower_reshape(L, x, 2, (Expr *[]){n, product_of(L->ex, x->rank - (int)ind, x->dim + ind)});
    m = m ? solve(L, m, unit(L, x, n), true, NULL) : NULL;
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[(i + ind) % x->rank];
    return m && lower_return(L, lower_reshape(L, m, x->rank, dim));
}

/* X with tensordot(A, X, X.ndim) = B; dims are moved to the end first */
bool lower_tensorsolve(Lower *L)
{
    Value *a = lower_value(L, 0), *b = lower_value(L, 1);
    const Arg *dims = &L->arg[2];
    int perm[MAX_RANK], n = 0;
    if (!a || !b) return lower_fail(L, 0, "expected tensors");
    bool last[MAX_RANK] = {false};
    for (int i = 0; dims->kind == ARG_EXPRS && i < dims->n; i++) {
        int64_t d = dims->es[i]->i < 0 ? dims->es[i]->i + a->rank : dims->es[i]->i;
        if (!ex_is_int(dims->es[i]) || d < 0 || d >= a->rank) return lower_fail(L, 2, "dim out of range");
        if (last[d]) return lower_fail(L, 2, "dim %lld appears twice", (long long)d);
        last[d] = true;
    }
    for (int i = 0; i < a->rank; i++)
        if (!last[i]) perm[n++] = i;
    for (int i = 0; dims->kind == ARG_EXPRS && i < dims->n; i++)
        perm[n++] = (int)(dims->es[i]->i < 0 ? dims->es[i]->i + a->rank : dims->es[i]->i);
    TRY(a = lower_permute(L, a, perm));
    Expr *rows = product_of(L->ex, b->rank, b->dim), *one = ex_int(L->ex, 1);
    int rest = a->rank - b->rank;
    if (rest < 0) return lower_fail(L, 1, "rank %d, expected at most %d", b->rank, a->rank);
    Value *m = lower_reshape(L, a, 2, (Expr *[]){rows, product_of(L->ex, a->rank - b->rank, a->dim + b->rank)});
    Value *x = m ? solve(L, m, lower_reshape(L, b, 2, (Expr *[]){rows, one}), true, NULL) : NULL;
    return x && lower_return(L, lower_reshape(L, x, rest, a->dim + b->rank));
}
