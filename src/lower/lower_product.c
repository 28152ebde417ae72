/* Lowering of products other than matmul's own names: inner, Kronecker and cross products, chains, powers, _trilinear.
 *
 *     kron(a, b)              -> reshape(mul(a (m, 1, n, 1), b (1, p, 1, q)))
 *     multi_dot([a, b, c])    -> matmul(matmul(a, b), c)
 *     cross(a, b)             -> roll(a, -1) roll(b, -2) - roll(a, -2) roll(b, -1)
 *     _int_mm(a, b)           -> matmul(int32(a), int32(b))
 */
#include "lower/lower_table.h"

/* Sums over the last dims; a number scales. */
bool lower_inner(Lower *L)
{
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
    if (!a->rank || !b->rank) return lower_return(L, AS(L, mul_Tensor, v(a), v(b)));
    Arg last = arg_ints(L->g, 1, (int64_t[]){-1});
    return lower_return(L, AS(L, tensordot, v(a), v(b), last, last));
}

bool lower_kron(Lower *L)
{
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
    int n = a->rank > b->rank ? a->rank : b->rank;
    Expr *one = ex_int(L->ex, 1), *da[MAX_RANK], *db[MAX_RANK], *dim[MAX_RANK];
    if (2 * n > MAX_RANK) return lower_fail(L, 0, "rank %d, at most %d is supported", n, MAX_RANK / 2);
    for (int i = 0; i < n; i++) {
        int ka = i - (n - a->rank), kb = i - (n - b->rank);
        da[2 * i] = ka < 0 ? one : a->dim[ka];
        db[2 * i + 1] = kb < 0 ? one : b->dim[kb];
        da[2 * i + 1] = db[2 * i] = one;
        dim[i] = ex_mul(L->ex, da[2 * i], db[2 * i + 1]);
    }
    Value *y = AS(L, mul_Tensor, v(lower_reshape(L, a, 2 * n, da)), v(lower_reshape(L, b, 2 * n, db)));
    return y && lower_return(L, lower_reshape(L, y, n, dim));
}

/* beta self + alpha a b^T */
bool lower_addr(Lower *L)
{
    Value *x = lower_value(L, 0), *p = AS(L, outer, L->arg[1], L->arg[2]);
    TRY(x && p);
    bool truth = x->dtype == DT_BOOL && p->dtype == DT_BOOL; /* numbers that are not 0 are true */
    p = AS(L, mul_Tensor, v(p), L->arg[4]);
    if (truth) p = lower_cast(L, p, DT_BOOL);
    if (lower_is_number(&L->arg[3], 0)) /* NaN in self included */
        return lower_return(L, p);
    x = AS(L, mul_Tensor, v(x), L->arg[3]);
    if (truth) x = lower_cast(L, x, DT_BOOL);
    return lower_return(L, AS(L, add_Tensor, v(x), v(p)));
}

/* multi_dot, chain_matmul: from left to right */
bool lower_multi_dot(Lower *L)
{
    const Arg *a = &L->arg[0];
    if (a->kind != ARG_VALUES || a->n < 1) return lower_fail(L, 0, "expected a list of tensors");
    Value *y = a->vs[0];
    for (int i = 1; i < a->n; i++) y = AS(L, matmul, v(y), v(a->vs[i]));
    return lower_return(L, y);
}

/* Without dim, cross takes the first of size 3. */
bool lower_cross(Lower *L)
{
    Value *a, *b, *part[2][2];
    int d = 0;
    TRY(lower_two(L, 0, 1, &a, &b));
    if (a->rank != b->rank) return lower_fail(L, 1, "rank %d, expected %d", b->rank, a->rank);
    if (!lower_is_none(L, 2)) TRY(lower_dim(L, 2, a->rank, &d));
    else
        while (d < a->rank && !ex_equals_int(a->dim[d], 3)) d++;
    if (d >= a->rank) return lower_fail(L, 0, "no dim of size 3");
    for (int i = 0; i < 2; i++) {
        Value *x = i ? b : a;
        TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, x->dim[d], ex_int(L->ex, 3), NULL), L->err,
                          "node '%s': size of dim %d", L->name, d));
        for (int k = 0; k < 2; k++)
            part[i][k] = AS(L, roll, v(x), arg_ints(L->g, 1, (int64_t[]){-1 - k}), arg_ints(L->g, 1, (int64_t[]){d}));
    }
    Value *p = AS(L, mul_Tensor, v(part[0][0]), v(part[1][1])), *q = AS(L, mul_Tensor, v(part[0][1]), v(part[1][0]));
    return lower_return(L, AS(L, sub_Tensor, v(p), v(q)));
}

bool lower_matrix_power(Lower *L)
{
    Value *x = lower_value(L, 0), *y = NULL;
    int64_t n;
    TRY(lower_const_int(L, 1, &n));
    if (!x || x->rank < 2) return lower_fail(L, 0, "expected a tensor of rank 2 or more");
    if (n < 0) TRY(x = AS(L, linalg_inv, v(x)));
    n = n < 0 ? -n : n;
    if (n == 0) {
        y = AS(L, eye_m, arg_expr(x->dim[x->rank - 1]), arg_expr(x->dim[x->rank - 1]), arg_dtype(x->dtype));
        return lower_return(L, AS(L, expand, v(y), arg_exprs(L->g, x->rank, x->dim)));
    }
    for (Value *square = x; n; n >>= 1) {
        if (n & 1) TRY(y = y ? AS(L, matmul, v(y), v(square)) : square);
        if (n > 1) TRY(square = AS(L, matmul, v(square), v(square)));
    }
    return lower_return(L, y);
}

/* (a b c) summed over sumdim, each first given dims of size 1 at its expand:
 * an einsum over the dims that each really has. */
bool lower_trilinear(Lower *L)
{
    bool made[3][MAX_RANK] = {{false}}, summed[MAX_RANK] = {false};
    Value *x[3];
    int rank = 0, n = 0;
    for (int i = 0; i < 4; i++) { /* the expands of three operands, then sumdim */
        const Arg *a = &L->arg[3 + i];
        if (i < 3 && !(x[i] = lower_value(L, i))) return lower_fail(L, i, "expected a tensor");
        if (i < 3 && x[i]->rank + a->n > rank) rank = x[i]->rank + a->n;
        for (int k = 0; k < a->n; k++) {
            if (!ex_is_int(a->es[k]) || a->es[k]->i < 0 || a->es[k]->i >= MAX_RANK)
                return lower_fail(L, 3 + i, "dim out of range");
            *(i < 3 ? &made[i][a->es[k]->i] : &summed[a->es[k]->i]) = true;
        }
    }
    if (rank > MAX_RANK) return lower_fail(L, 0, "rank %d, at most %d is supported", rank, MAX_RANK);
    Expr *dim[3][MAX_RANK];
    for (int i = 0; i < 3; i++)
        for (int d = 0, k = 0; d < rank; d++) {
            if (!made[i][d] && k >= x[i]->rank)
                return lower_fail(L, i, "rank %d, expected %d with its expanded dims", x[i]->rank, rank);
            dim[i][d] = made[i][d] ? ex_int(L->ex, 1) : x[i]->dim[k++];
        }
    char text[4 * MAX_RANK + 8];
    for (int i = 0; i < 3; i++) {
        Expr *own[MAX_RANK];
        int m = 0;
        for (int d = 0; d < rank; d++) {
            bool wide = false; /* somebody else gives this dim its size */
            for (int j = 0; j < 3; j++) wide |= !ex_equals_int(dim[j][d], 1) || j < i;
            if (ex_equals_int(dim[i][d], 1) && wide) continue;
            text[n++] = (char)('a' + d);
            own[m++] = dim[i][d];
        }
        TRY(x[i] = lower_reshape(L, x[i], m, own));
        if (i < 2) text[n++] = ',';
    }
    text[n++] = '-';
    text[n++] = '>';
    for (int d = 0; d < rank; d++)
        if (!summed[d]) text[n++] = (char)('a' + d);
    text[n] = '\0';
    return lower_return(L, AS(L, einsum, arg_str(L->g, text), arg_values(L->g, 3, x)));
}

/* Two matrices of int8, summed in int32. */
bool lower_int_mm(Lower *L)
{
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
    if (a->rank != 2 || b->rank != 2 || a->dtype != DT_I8 || b->dtype != DT_I8)
        return lower_fail(L, 0, "%s of rank %d and %s of rank %d, expected two matrices of i8", dtype_name(a->dtype),
                          a->rank, dtype_name(b->dtype), b->rank);
    TRY((a = lower_cast(L, a, DT_I32)) && (b = lower_cast(L, b, DT_I32)));
    return lower_return(L, AS(L, matmul, v(a), v(b)));
}

/* x (M, K) times weights (N, K) of int8 with a scale a row; sums and scales are float32, whatever x is. */
bool lower_weight_int8pack_mm(Lower *L)
{
    Value *x, *w, *scales = lower_value(L, 2);
    TRY(lower_two(L, 0, 1, &x, &w));
    if (!scales) return lower_fail(L, 2, "expected a tensor");
    DType t = x->dtype;
    TRY((x = lower_cast(L, x, DT_F32)) && (w = lower_cast(L, w, DT_F32)) && (scales = lower_cast(L, scales, DT_F32)));
    Value *y = AS(L, linear, v(x), v(w), arg_none());
    TRY(y && (y = AS(L, mul_Tensor, v(y), v(scales))));
    return lower_return(L, lower_cast(L, y, t));
}
