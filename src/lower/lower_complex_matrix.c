/* Factors of complex matrices, and what is solved with them, by real matrices of twice the size. Contract in
 * lower/complex.h.
 *
 *     whole(A)          each element a + b i as the square [a -b; b a]: (..., n, m) complex -> (..., 2n, 2m) reals.
 *                       Sums and products of such matrices are such matrices
 *     columns(B)        each element as the column [a; b]: (..., n, k) -> (..., 2n, k); A B is whole(A) columns(B)
 *     cholesky(A)       the factor of whole(A), of which every second column is that of A
 *     svdvals, eigvalsh each number of A's stands twice among those of whole(A)
 */
#include "lower/complex.h"
#include "lower/lower_table.h"
#include "shape/shape.h"

static Arg v(Value *x) { return arg_value(x); }

static bool parts(Lower *L, Value *z, Parts *p)
{
    TRY(complex_parts(L, z, p));
    if (z->rank < 2) return fail(L->err, E_UNSUPPORTED, "%s of rank %d, expected 2 or more", L->op->name, z->rank);
    return p->im || (p->im = AS(L, zeros_like, v(p->re)));
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
