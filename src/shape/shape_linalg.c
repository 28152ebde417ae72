/* Shapes of matrix products, convolutions and attention. */
#include <string.h>
#include "shape/shape_table.h"

static DType product_dtype(Shape *s, const Value *a, const Value *b, bool *ok)
{
    *ok = a->dtype == b->dtype || fail(s->err, E_FORMAT, "operands are %s and %s, expected one dtype",
                                       dtype_name(a->dtype), dtype_name(b->dtype));
    return a->dtype;
}

bool shape_linear(Shape *s)
{
    Value *x, *w;
    bool ok;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &w));
    if (w->rank != 2 || x->rank < 1)
        return shape_fail(s, 1, "rank %d with an input of rank %d, expected 2 and at least 1", w->rank, x->rank);
    DType t = product_dtype(s, x, w, &ok);
    TRY(ok && shape_require_equal(s, x->dim[x->rank - 1], w->dim[1], "features of input and weight"));
    Value *b = shape_value(s, 2);
    if (b) {
        if (b->rank != 1) return shape_fail(s, 2, "rank %d, expected 1", b->rank);
        TRY(shape_require_equal(s, b->dim[0], w->dim[0], "features of bias and weight"));
    }
    for (int i = 0; i < x->rank - 1; i++) dim[i] = x->dim[i];
    dim[x->rank - 1] = w->dim[0];
    return shape_out(s, 0, t, x->rank, dim);
}

/* Lowering made both ranks at least 2. */
bool shape_matmul(Shape *s)
{
    Value *a, *b;
    bool ok;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &a) && shape_want_value(s, 1, &b));
    if (a->rank < 2 || b->rank < 2) return shape_fail(s, 0, "ranks %d and %d, expected at least 2", a->rank, b->rank);
    DType t = product_dtype(s, a, b, &ok);
    TRY(ok && shape_require_equal(s, a->dim[a->rank - 1], b->dim[b->rank - 2], "inner sizes of the product"));
    int rank = a->rank - 2;
    for (int i = 0; i < rank; i++) dim[i] = a->dim[i];
    TRY(shape_broadcast(s, &rank, dim, b->rank - 2, b->dim, "batch sizes of the product"));
    dim[rank++] = a->dim[a->rank - 2];
    dim[rank++] = b->dim[b->rank - 1];
    return shape_out(s, 0, t, rank, dim);
}

/* ------------------------------------------------------------------ factors of matrices */

/* Argument i: matrices (..., rows, cols) of float32 or float64, their sizes in dim. */
static bool matrices(Shape *s, int i, Expr **dim, Value **x)
{
    TRY(shape_want_value(s, i, x));
    if ((*x)->rank < 2 || ((*x)->dtype != DT_F32 && (*x)->dtype != DT_F64))
        return shape_fail(s, i, "%s of rank %d, expected f32 or f64 of rank 2 or more", dtype_name((*x)->dtype),
                          (*x)->rank);
    for (int d = 0; d < (*x)->rank; d++) dim[d] = (*x)->dim[d];
    return true;
}

static bool square(Shape *s, int i, Expr **dim, Value **x)
{
    return matrices(s, i, dim, x) &&
           shape_require_equal(s, dim[(*x)->rank - 2], dim[(*x)->rank - 1], "rows and columns of the matrix");
}

/* A result with the batch of x, then the sizes. */
static bool batched(Shape *s, int k, DType t, const Value *x, int n, Expr *first, Expr *second)
{
    Expr *dim[MAX_RANK];
    for (int d = 0; d < x->rank - 2; d++) dim[d] = x->dim[d];
    if (n > 0) dim[x->rank - 2] = first;
    if (n > 1) dim[x->rank - 1] = second;
    return shape_out(s, k, t, x->rank - 2 + n, dim);
}

static Expr *shorter(Shape *s, const Value *x) { return ex_min(s->ex, x->dim[x->rank - 2], x->dim[x->rank - 1]); }

bool shape_singular_values(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return matrices(s, 0, dim, &x) && batched(s, 0, x->dtype, x, 1, shorter(s, x), NULL);
}

bool shape_square(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return square(s, 0, dim, &x) && shape_out_like(s, 0, x, x->dtype);
}

bool shape_lu_factor(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return matrices(s, 0, dim, &x) && shape_out_like(s, 0, x, x->dtype) &&
           batched(s, 1, DT_I32, x, 1, shorter(s, x), NULL) && batched(s, 2, DT_I32, x, 0, NULL, NULL);
}

bool shape_lu_unpack(Shape *s)
{
    Value *x, *pivots;
    Expr *dim[MAX_RANK];
    TRY(matrices(s, 0, dim, &x) && shape_want_value(s, 1, &pivots));
    if (pivots->dtype != DT_I32) return shape_fail(s, 1, "%s, expected i32", dtype_name(pivots->dtype));
    if (pivots->rank != x->rank - 1)
        return shape_fail(s, 1, "rank %d, expected %d, one pivot for each step of each matrix", pivots->rank,
                          x->rank - 1);
    Expr *m = dim[x->rank - 2], *n = dim[x->rank - 1], *r = shorter(s, x);
    for (int d = 0; d < x->rank - 2; d++)
        TRY(shape_require_equal(s, pivots->dim[d], dim[d], "batches of matrices and pivots"));
    return shape_require_equal(s, pivots->dim[x->rank - 2], r, "pivots and the shorter side of the matrix") &&
           batched(s, 0, x->dtype, x, 2, m, m) && batched(s, 1, x->dtype, x, 2, m, r) &&
           batched(s, 2, x->dtype, x, 2, r, n);
}

bool shape_geqrf(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return matrices(s, 0, dim, &x) && shape_out_like(s, 0, x, x->dtype) &&
           batched(s, 1, x->dtype, x, 1, shorter(s, x), NULL);
}

bool shape_ldl_factor(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return square(s, 0, dim, &x) && shape_out_like(s, 0, x, x->dtype) &&
           batched(s, 1, DT_I32, x, 1, dim[x->rank - 1], NULL) && batched(s, 2, DT_I32, x, 0, NULL, NULL);
}

bool shape_ldl_solve(Shape *s)
{
    Value *a, *pivots, *b;
    Expr *dim[MAX_RANK], *of_b[MAX_RANK];
    TRY(square(s, 0, dim, &a) && shape_want_value(s, 1, &pivots) && matrices(s, 2, of_b, &b));
    if (pivots->dtype != DT_I32 || pivots->rank != a->rank - 1 || b->rank != a->rank || b->dtype != a->dtype)
        return shape_fail(s, 1, "%s of rank %d, expected i32 of rank %d, and LD and B alike", dtype_name(pivots->dtype),
                          pivots->rank, a->rank - 1);
    for (int i = 0; i < a->rank - 1; i++)
        TRY(shape_require_equal(s, dim[i], pivots->dim[i], "sizes of the pivots and of LD") &&
            shape_require_equal(s, dim[i], of_b[i], "rows of LD and of B"));
    return shape_out_like(s, 0, b, b->dtype);
}

bool shape_cholesky(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return square(s, 0, dim, &x) && shape_out_like(s, 0, x, x->dtype) && batched(s, 1, DT_I32, x, 0, NULL, NULL);
}

bool shape_slogdet(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return square(s, 0, dim, &x) && batched(s, 0, x->dtype, x, 0, NULL, NULL) &&
           batched(s, 1, x->dtype, x, 0, NULL, NULL);
}

bool shape_qr(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    TRY(matrices(s, 0, dim, &x));
    const char *mode = shape_arg(s, 1)->s;
    Expr *m = dim[x->rank - 2], *wide = *mode == 'c' ? m : shorter(s, x), *none = ex_int(s->ex, 0);
    bool q = strcmp(mode, "r") ? batched(s, 0, x->dtype, x, 2, m, wide) : shape_out(s, 0, x->dtype, 1, &none);
    return q && batched(s, 1, x->dtype, x, 2, wide, dim[x->rank - 1]);
}

bool shape_eigh(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return square(s, 0, dim, &x) && batched(s, 0, x->dtype, x, 1, dim[x->rank - 1], NULL) &&
           shape_out_like(s, 1, x, x->dtype);
}

/* -> (..., n, 2), (..., n, n, 2) */
bool shape_eig(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK + 1];
    TRY(square(s, 0, dim, &x));
    if (x->rank == MAX_RANK) return shape_fail(s, 0, "rank %d: at most %d is supported", x->rank, MAX_RANK - 1);
    dim[x->rank] = ex_int(s->ex, 2);
    TRY(shape_out(s, 1, x->dtype, x->rank + 1, dim));
    dim[x->rank - 1] = dim[x->rank];
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_svd(Shape *s)
{
    Value *x;
    bool full;
    Expr *dim[MAX_RANK];
    TRY(matrices(s, 0, dim, &x) && shape_const_bool(s, 1, &full));
    Expr *m = dim[x->rank - 2], *n = dim[x->rank - 1], *r = shorter(s, x);
    return batched(s, 0, x->dtype, x, 2, m, full ? m : r) && batched(s, 1, x->dtype, x, 1, r, NULL) &&
           batched(s, 2, x->dtype, x, 2, full ? n : r, n);
}

/* Lowering made left true, and the batches of both operands alike. */
bool shape_solve(Shape *s)
{
    Value *a, *b;
    bool ok;
    Expr *dim[MAX_RANK];
    TRY(square(s, 0, dim, &a) && matrices(s, 1, dim, &b));
    if (a->rank != b->rank) return shape_fail(s, 1, "rank %d, expected %d", b->rank, a->rank);
    product_dtype(s, a, b, &ok);
    for (int d = 0; ok && d < a->rank - 1; d++) ok = shape_require_equal(s, a->dim[d], b->dim[d], "rows of A and B");
    return ok && shape_out_like(s, 0, b, b->dtype) && (s->node->nout == 1 || batched(s, 1, DT_I32, a, 0, NULL, NULL));
}

/* ------------------------------------------------------------------ the same of pairs */

/* Argument i: complex matrices (..., rows, cols, 2) */
static bool pairs(Shape *s, int i, Value **x)
{
    TRY(shape_want_value(s, i, x));
    const Value *v = *x;
    if (v->rank < 3 || (v->dtype != DT_F32 && v->dtype != DT_F64) || !ex_equals_int(v->dim[v->rank - 1], 2))
        return shape_fail(s, i, "%s of rank %d, expected pairs of f32 or f64 of rank 3 or more", dtype_name(v->dtype),
                          v->rank);
    return true;
}

static Expr *rows_of(const Value *x) { return x->dim[x->rank - 3]; }
static Expr *cols_of(const Value *x) { return x->dim[x->rank - 2]; }
static Expr *short_side(Shape *s, const Value *x) { return ex_min(s->ex, rows_of(x), cols_of(x)); }

static bool square_pairs(Shape *s, int i, Value **x)
{
    return pairs(s, i, x) && shape_require_equal(s, rows_of(*x), cols_of(*x), "rows and columns of the matrix");
}

/* A result with the batch of x, then n sizes */
static bool beside(Shape *s, int k, DType t, const Value *x, int n, Expr *const *size)
{
    Expr *dim[MAX_RANK];
    for (int d = 0; d < x->rank - 3; d++) dim[d] = x->dim[d];
    for (int d = 0; d < n; d++) dim[x->rank - 3 + d] = size[d];
    return shape_out(s, k, t, x->rank - 3 + n, dim);
}

static bool pairs_beside(Shape *s, int k, const Value *x, Expr *rows, Expr *cols)
{
    return beside(s, k, x->dtype, x, 3, (Expr *[]){rows, cols, ex_int(s->ex, 2)});
}

bool shape_lu_factor_pairs(Shape *s)
{
    Value *x;
    TRY(pairs(s, 0, &x));
    Expr *r = short_side(s, x);
    return shape_out_like(s, 0, x, x->dtype) && beside(s, 1, DT_I32, x, 1, &r) && beside(s, 2, DT_I32, x, 0, NULL);
}

bool shape_qr_pairs(Shape *s)
{
    Value *x;
    TRY(pairs(s, 0, &x));
    const char *mode = shape_arg(s, 1)->s;
    Expr *wide = *mode == 'c' ? rows_of(x) : short_side(s, x), *none[] = {ex_int(s->ex, 0), ex_int(s->ex, 2)};
    bool q = strcmp(mode, "r") ? pairs_beside(s, 0, x, rows_of(x), wide) : shape_out(s, 0, x->dtype, 2, none);
    return q && pairs_beside(s, 1, x, wide, cols_of(x));
}

bool shape_geqrf_pairs(Shape *s)
{
    Value *x;
    TRY(pairs(s, 0, &x));
    return shape_out_like(s, 0, x, x->dtype) &&
           beside(s, 1, x->dtype, x, 2, (Expr *[]){short_side(s, x), ex_int(s->ex, 2)});
}

bool shape_ldl_factor_pairs(Shape *s)
{
    Value *x;
    TRY(square_pairs(s, 0, &x));
    Expr *n = rows_of(x);
    return shape_out_like(s, 0, x, x->dtype) && beside(s, 1, DT_I32, x, 1, &n) && beside(s, 2, DT_I32, x, 0, NULL);
}

bool shape_ldl_solve_pairs(Shape *s)
{
    Value *a, *pivots, *b;
    TRY(square_pairs(s, 0, &a) && shape_want_value(s, 1, &pivots) && pairs(s, 2, &b));
    if (pivots->dtype != DT_I32 || pivots->rank != a->rank - 2 || b->rank != a->rank || b->dtype != a->dtype)
        return shape_fail(s, 1, "%s of rank %d, expected i32 of rank %d, and LD and B alike", dtype_name(pivots->dtype),
                          pivots->rank, a->rank - 2);
    for (int i = 0; i < a->rank - 2; i++)
        TRY(shape_require_equal(s, a->dim[i], pivots->dim[i], "sizes of the pivots and of LD") &&
            shape_require_equal(s, a->dim[i], b->dim[i], "rows of LD and of B"));
    return shape_out_like(s, 0, b, b->dtype);
}

bool shape_eigh_pairs(Shape *s)
{
    Value *x;
    TRY(square_pairs(s, 0, &x));
    Expr *n = rows_of(x);
    return beside(s, 0, x->dtype, x, 1, &n) && shape_out_like(s, 1, x, x->dtype);
}

bool shape_eig_pairs(Shape *s)
{
    Value *x;
    TRY(square_pairs(s, 0, &x));
    return beside(s, 0, x->dtype, x, 2, (Expr *[]){rows_of(x), ex_int(s->ex, 2)}) && shape_out_like(s, 1, x, x->dtype);
}

bool shape_svd_pairs(Shape *s)
{
    Value *x;
    bool full;
    TRY(pairs(s, 0, &x) && shape_const_bool(s, 1, &full));
    Expr *m = rows_of(x), *n = cols_of(x), *r = short_side(s, x);
    return pairs_beside(s, 0, x, m, full ? m : r) && beside(s, 1, x->dtype, x, 1, &r) &&
           pairs_beside(s, 2, x, full ? n : r, n);
}

/* self (S, K), mat2 (G, K, N), offs (G) -> (S, N) */
/* Rows (S, K) with matrices (G, K, N), group by group of rows; or columns (M, S) with rows (S, N):
 * a matrix (M, N) a group, the gradient of the former. */
bool shape_grouped_mm(Shape *s)
{
    Value *a, *b, *offs;
    bool ok;
    TRY(shape_want_value(s, 0, &a) && shape_want_value(s, 1, &b) && shape_want_value(s, 2, &offs));
    if (a->rank != 2 || (b->rank != 3 && b->rank != 2) || offs->rank != 1)
        return shape_fail(s, 0, "ranks %d, %d, %d, expected 2, 3, 1 or 2, 2, 1", a->rank, b->rank, offs->rank);
    DType t = product_dtype(s, a, b, &ok);
    TRY(ok && shape_require_equal(s, a->dim[1], b->dim[b->rank - 2], "inner sizes of the product"));
    if (b->rank == 2) return shape_out(s, 0, t, 3, (Expr *[]){offs->dim[0], a->dim[0], b->dim[1]});
    TRY(shape_require_equal(s, offs->dim[0], b->dim[0], "number of groups"));
    return shape_out(s, 0, t, 2, (Expr *[]){a->dim[0], b->dim[2]});
}

/* How many windows of `size` axis `axis` of a picture has; arguments from `first` on: stride, padding, dilation. */
static bool windows_of(Shape *s, int first, int axis, Expr *in, Expr *size, Expr **out)
{
    ExprPool *p = s->ex;
    Expr *stride = shape_arg(s, first)->es[axis - 2], *pad = shape_arg(s, first + 1)->es[axis - 2],
         *dilation = shape_arg(s, first + 2)->es[axis - 2], *one = ex_int(p, 1);
    TRY(shape_window(s, first, stride, 1) && shape_window(s, first + 1, pad, 0) &&
        shape_window(s, first + 2, dilation, 1));
    Expr *span = ex_mul(p, dilation, ex_sub(p, size, one)), *twice = ex_mul(p, pad, ex_int(p, 2)),
         *room = ex_sub(p, ex_sub(p, ex_add(p, in, twice), span), one);
    TRY(graph_require(s->g, ex_make(p, EX_LE, ex_int(p, 0), room, NULL), s->err,
                      "node '%s': kernel no larger than padded axis %d", s->node->name, axis));
    *out = ex_add(p, ex_floordiv(p, room, stride), one);
    return true;
}

/* convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) */
bool shape_convolution(Shape *s)
{
    Value *x, *w, *bias = shape_value(s, 2);
    bool transposed, ok;
    int64_t groups;
    ExprPool *p = s->ex;
    Expr *dim[MAX_RANK], *one = ex_int(p, 1);
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &w) && shape_const_bool(s, 6, &transposed) &&
        shape_const_int(s, 8, &groups));
    int n = x->rank - 2;
    if (n < 1 || n > 3 || w->rank != x->rank)
        return shape_fail(s, 1, "rank %d with an input of rank %d, expected equal ranks of 3 to 5", w->rank, x->rank);
    if (groups < 1) return shape_fail(s, 8, "found %lld, expected at least 1", (long long)groups);
    for (int k = 3; k <= 7; k++)
        if (k != 6 && shape_arg(s, k)->n != n)
            return shape_fail(s, k, "found %d values, expected %d", shape_arg(s, k)->n, n);
    DType t = product_dtype(s, x, w, &ok);
    TRY(ok);
    Expr *g = ex_int(p, groups);
    TRY(shape_require_equal(s, x->dim[1], transposed ? w->dim[0] : ex_mul(p, w->dim[1], g),
                            "channels of input and weight"));
    dim[0] = x->dim[0];
    dim[1] = transposed ? ex_mul(p, w->dim[1], g) : w->dim[0];
    if (groups > 1 && !ex_is_int(dim[1])) return shape_fail(s, 1, "the channels of several groups must be constant");
    if ((ex_is_int(dim[1]) && dim[1]->i % groups) || (ex_is_int(x->dim[1]) && x->dim[1]->i % groups))
        return shape_fail(s, 8, "channels do not divide by %lld groups", (long long)groups);
    if (bias && bias->rank != 1) return shape_fail(s, 2, "rank %d, expected 1", bias->rank);
    if (bias) TRY(shape_require_equal(s, bias->dim[0], dim[1], "channels of bias and weight"));
    for (int i = 0; i < n; i++) {
        Expr *stride = shape_arg(s, 3)->es[i], *pad = shape_arg(s, 4)->es[i], *dilation = shape_arg(s, 5)->es[i],
             *extra = shape_arg(s, 7)->es[i];
        if (!transposed) TRY(windows_of(s, 3, 2 + i, x->dim[2 + i], w->dim[2 + i], &dim[2 + i]));
        TRY(shape_window(s, 7, extra, 0));
        if (!transposed) continue;
        TRY(shape_window(s, 3, stride, 1) && shape_window(s, 4, pad, 0) && shape_window(s, 5, dilation, 1));
        Expr *span = ex_mul(p, dilation, ex_sub(p, w->dim[2 + i], one)), *twice = ex_mul(p, pad, ex_int(p, 2));
        Expr *e = ex_mul(p, ex_sub(p, x->dim[2 + i], one), stride);
        dim[2 + i] = ex_add(p, ex_add(p, ex_sub(p, e, twice), ex_add(p, span, extra)), one);
    }
    return shape_out(s, 0, t, x->rank, dim);
}

/* q (B, H, N, D), k (B, Hkv, M, D), v (B, Hkv, M, E) -> (B, H, N, E) */
/* q (B, H, N, D), k (B, Hkv, M, D), v (B, Hkv, M, E) from argument `first` on,
 * a mask at argument `at` that broadcasts to (B, H, N, M). */
static bool attention_operands(Shape *s, int first, int at, bool grouped, Value **q, Value **k, Value **v, DType *t)
{
    Value *mask = shape_value(s, at);
    bool ok;
    TRY(shape_want_value(s, first, q) && shape_want_value(s, first + 1, k) && shape_want_value(s, first + 2, v));
    Value *x = *q, *y = *k, *z = *v;
    if (x->rank != 4 || y->rank != 4 || z->rank != 4)
        return shape_fail(s, first, "ranks %d, %d, %d, expected 4", x->rank, y->rank, z->rank);
    *t = product_dtype(s, x, y, &ok);
    TRY(ok);
    product_dtype(s, x, z, &ok);
    TRY(ok && shape_require_equal(s, x->dim[3], y->dim[3], "head sizes of query and key") &&
        shape_require_equal(s, y->dim[2], z->dim[2], "lengths of key and value"));
    TRY(shape_require_equal(s, y->dim[1], z->dim[1], "heads of key and value") &&
        shape_require_equal(s, x->dim[0], y->dim[0], "batches of query and key"));
    TRY(shape_require_equal(s, y->dim[0], z->dim[0], "batches of key and value"));
    if (!grouped) TRY(shape_require_equal(s, x->dim[1], y->dim[1], "heads of query and key"));
    else
        TRY(graph_require(s->g, ex_make(s->ex, EX_EQ, ex_mod(s->ex, x->dim[1], y->dim[1]), ex_int(s->ex, 0), NULL),
                          s->err, "node '%s': heads of the key divide those of the query", s->node->name));
    if (!mask) return true;
    int rank = 4;
    Expr *dim[MAX_RANK] = {x->dim[0], x->dim[1], x->dim[2], y->dim[2]};
    if (mask->rank > 4) return shape_fail(s, at, "rank %d, expected at most 4", mask->rank);
    if (mask->dtype != DT_BOOL && !dtype_is_float(mask->dtype))
        return shape_fail(s, at, "dtype %s, expected bool or a float", dtype_name(mask->dtype));
    TRY(shape_broadcast(s, &rank, dim, mask->rank, mask->dim, "mask to (batch, heads, queries, keys)"));
    for (int i = 0; i < 4; i++) /* a size of 1 does not grow with the mask */
        if (ex_equals_int(i < 3 ? x->dim[i] : y->dim[2], 1) && !ex_equals_int(dim[i], 1))
            return shape_fail(s, at, "its size is not 1 in dim %d of (batch, heads, queries, keys)", i);
    return true;
}

bool shape_sdpa(Shape *s)
{
    Value *q, *k, *v;
    DType t;
    bool gqa;
    TRY(shape_const_bool(s, 7, &gqa) && attention_operands(s, 0, 3, gqa, &q, &k, &v, &t));
    return shape_out(s, 0, t, 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], v->dim[3]});
}

bool shape_sdpa_lse(Shape *s)
{
    Value *q, *k, *v;
    DType t;
    TRY(attention_operands(s, 0, 3, true, &q, &k, &v, &t));
    return shape_out(s, 0, t, 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], v->dim[3]}) &&
           shape_out(s, 1, t == DT_F64 ? t : DT_F32, 3, q->dim);
}

bool shape_sdpa_backward(Shape *s)
{
    Value *q, *k, *v, *grad, *out, *lse, *mask = shape_value(s, 6);
    DType t;
    bool wanted;
    TRY(shape_const_bool(s, 12, &wanted) && attention_operands(s, 1, 6, true, &q, &k, &v, &t));
    TRY(shape_want_value(s, 0, &grad) && shape_want_value(s, 4, &out) && shape_want_value(s, 5, &lse));
    Expr *dim[4] = {q->dim[0], q->dim[1], q->dim[2], v->dim[3]};
    if (grad->rank != 4 || out->rank != 4 || lse->rank != 3)
        return shape_fail(s, 0, "grad_out, output and logsumexp of ranks %d, %d, %d, expected 4, 4, 3", grad->rank,
                          out->rank, lse->rank);
    if (grad->dtype != t || out->dtype != t || lse->dtype != (t == DT_F64 ? t : DT_F32))
        return shape_fail(s, 0, "grad_out, output and logsumexp are %s, %s, %s of operands that are %s",
                          dtype_name(grad->dtype), dtype_name(out->dtype), dtype_name(lse->dtype), dtype_name(t));
    for (int i = 0; i < 4; i++)
        TRY(shape_require_equal(s, grad->dim[i], dim[i], "sizes of grad_out and the output") &&
            shape_require_equal(s, out->dim[i], dim[i], "sizes of the output"));
    for (int i = 0; i < 3; i++) TRY(shape_require_equal(s, lse->dim[i], dim[i], "sizes of logsumexp and the output"));
    if (wanted && (!mask || !dtype_is_float(mask->dtype)))
        return shape_fail(s, 12, "grad_mask without a mask of floats");
    TRY(shape_out_like(s, 0, q, t) && shape_out_like(s, 1, k, t) && shape_out_like(s, 2, v, t));
    return wanted ? shape_out_like(s, 3, mask, mask->dtype) : shape_out(s, 3, t, 1, (Expr *[]){ex_int(s->ex, 0)});
}

/* q (T, H, D), k (U, Hkv, D), v (U, Hkv, E), offsets (B + 1) each, bias (U) -> (T, H, E) */
bool shape_sdpa_varlen(Shape *s)
{
    Value *q, *k, *v, *bias = shape_value(s, 5), *at[2];
    bool ok;
    TRY(shape_want_value(s, 0, &q) && shape_want_value(s, 1, &k) && shape_want_value(s, 2, &v) &&
        shape_want_value(s, 3, &at[0]) && shape_want_value(s, 4, &at[1]));
    if (q->rank != 3 || k->rank != 3 || v->rank != 3)
        return shape_fail(s, 0, "ranks %d, %d, %d, expected 3", q->rank, k->rank, v->rank);
    for (int i = 0; i < 2; i++)
        if (at[i]->rank != 1 || at[i]->dtype != DT_I64)
            return shape_fail(s, 3 + i, "%s of rank %d, expected i64 of rank 1", dtype_name(at[i]->dtype), at[i]->rank);
    if (bias && (bias->rank != 1 || !dtype_is_float(bias->dtype)))
        return shape_fail(s, 5, "%s of rank %d, expected floats of rank 1", dtype_name(bias->dtype), bias->rank);
    DType t = product_dtype(s, q, k, &ok);
    TRY(ok);
    product_dtype(s, q, v, &ok);
    TRY(ok && shape_require_equal(s, q->dim[2], k->dim[2], "head sizes of query and key") &&
        shape_require_equal(s, k->dim[0], v->dim[0], "rows of key and value"));
    TRY(shape_require_equal(s, k->dim[1], v->dim[1], "heads of key and value") &&
        shape_require_equal(s, at[0]->dim[0], at[1]->dim[0], "sequences of query and key"));
    if (bias) TRY(shape_require_equal(s, bias->dim[0], k->dim[0], "rows of key and bias"));
    TRY(graph_require(s->g, ex_make(s->ex, EX_EQ, ex_mod(s->ex, q->dim[1], k->dim[1]), ex_int(s->ex, 0), NULL), s->err,
                      "node '%s': heads of the key divide those of the query", s->node->name));
    return shape_out(s, 0, t, 3, (Expr *[]){q->dim[0], q->dim[1], v->dim[2]});
}

/* x (..., D); cos, sin broadcast to x, their last axis is D, or D / 2 for one angle of each pair */
bool shape_rotary(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    if (!x->rank || !dtype_is_float(x->dtype))
        return shape_fail(s, 0, "%s of rank %d, expected floats with an axis to rotate", dtype_name(x->dtype), x->rank);
    Expr *D = x->dim[x->rank - 1], *half = ex_floordiv(s->ex, D, ex_int(s->ex, 2));
    TRY(graph_require(s->g, ex_make(s->ex, EX_EQ, ex_mod(s->ex, D, ex_int(s->ex, 2)), ex_int(s->ex, 0), NULL), s->err,
                      "node '%s': an even number of elements is rotated", s->node->name));
    for (int k = 1; k < 3; k++) {
        Value *v;
        TRY(shape_want_value(s, k, &v));
        if (v->dtype != x->dtype || !v->rank || v->rank > x->rank)
            return shape_fail(s, k, "%s of rank %d, expected %s of rank 1 to %d", dtype_name(v->dtype), v->rank,
                              dtype_name(x->dtype), x->rank);
        for (int i = 1; i <= v->rank; i++) {
            Expr *have = v->dim[v->rank - i];
            if (have == x->dim[x->rank - i] || (i == 1 ? have == half : ex_equals_int(have, 1))) continue;
            return shape_fail(s, k, "axis -%d is not that of x", i);
        }
    }
    return shape_out_like(s, 0, x, x->dtype);
}

/* q (..., N, D), k (..., M, D), leading axes broadcast -> (..., N, M); the mask broadcasts to that */
bool shape_scores(Shape *s)
{
    Value *q, *k, *mask = shape_value(s, 2);
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &q) && shape_want_value(s, 1, &k));
    int rank = q->rank;
    if (rank < 2 || k->rank != rank) return shape_fail(s, 1, "rank %d, expected that of the query, %d", k->rank, rank);
    TRY(shape_require_equal(s, q->dim[rank - 1], k->dim[rank - 1], "head sizes of query and key"));
    int lead = rank - 2;
    memcpy(dim, q->dim, (size_t)lead * sizeof *dim);
    TRY(shape_broadcast(s, &lead, dim, rank - 2, k->dim, "leading axes of query and key"));
    dim[rank - 2] = q->dim[rank - 2];
    dim[rank - 1] = k->dim[rank - 2];
    if (mask) {
        int wide = rank;
        Expr *all[MAX_RANK];
        memcpy(all, dim, sizeof all);
        if (mask->rank > rank) return shape_fail(s, 2, "rank %d, expected at most %d", mask->rank, rank);
        TRY(shape_broadcast(s, &wide, all, mask->rank, mask->dim, "mask to (..., queries, keys)"));
        for (int i = 0; i < rank; i++)
            if (all[i] != dim[i] && ex_equals_int(dim[i], 1)) /* others were required to be equal */
                return shape_fail(s, 2, "the mask is wider than the scores in axis %d", i);
    }
    return shape_out(s, 0, shape_dtype(s, 7, q->dtype), rank, dim);
}

/* gates (T, B, factor * H), weight (factor * H, P), bias (factor * H), h (B, P) */
static bool recurrent(Shape *s, int64_t factor, Expr **H, Expr **P)
{
    Value *gates, *w, *h, *bias = shape_value(s, 2);
    TRY(shape_want_value(s, 0, &gates) && shape_want_value(s, 1, &w) && shape_want_value(s, 3, &h));
    if (gates->rank != 3 || w->rank != 2 || h->rank != 2 || (bias && bias->rank != 1))
        return shape_fail(s, 0, "ranks of gates, weight and state are not 3, 2, 2");
    if (gates->dtype != w->dtype || gates->dtype != h->dtype || (gates->dtype != DT_F32 && gates->dtype != DT_F64))
        return shape_fail(s, 0, "dtypes %s, %s, %s, expected one of f32 and f64", dtype_name(gates->dtype),
                          dtype_name(w->dtype), dtype_name(h->dtype));
    *P = w->dim[1];
    *H = ex_floordiv(s->ex, w->dim[0], ex_int(s->ex, factor));
    TRY(shape_require_equal(s, w->dim[0], ex_mul(s->ex, *H, ex_int(s->ex, factor)), "rows of the weight") &&
        shape_require_equal(s, gates->dim[2], w->dim[0], "gates and rows of the weight"));
    if (bias) TRY(shape_require_equal(s, bias->dim[0], w->dim[0], "gates and bias"));
    return shape_require_equal(s, h->dim[0], gates->dim[1], "batches of input and state") &&
           shape_require_equal(s, h->dim[1], *P, "size of the state");
}

bool shape_lstm_layer(Shape *s)
{
    Value *c, *projection = shape_value(s, 5);
    Expr *H = NULL, *P = NULL;
    TRY(shape_want_value(s, 4, &c) && recurrent(s, 4, &H, &P));
    const Value *gates = shape_value(s, 0);
    if (c->rank != 2 || c->dtype != gates->dtype || (projection && projection->rank != 2))
        return shape_fail(s, 4, "rank %d, expected 2", c->rank);
    TRY(shape_require_equal(s, c->dim[0], gates->dim[1], "batches of input and cell state") &&
        shape_require_equal(s, c->dim[1], H, "size of the cell state"));
    if (projection)
        TRY(shape_require_equal(s, projection->dim[0], P, "rows of the projection") &&
            shape_require_equal(s, projection->dim[1], H, "columns of the projection"));
    else TRY(shape_require_equal(s, P, H, "size of the state"));
    return shape_out(s, 0, gates->dtype, 3, (Expr *[]){gates->dim[0], gates->dim[1], P}) &&
           shape_out(s, 1, gates->dtype, 2, (Expr *[]){gates->dim[1], H});
}

bool shape_rnn_layer(Shape *s)
{
    Expr *H = NULL, *P = NULL;
    TRY(recurrent(s, !strcmp(shape_arg(s, 4)->s, "gru") ? 3 : 1, &H, &P) &&
        shape_require_equal(s, P, H, "size of the state"));
    const Value *gates = shape_value(s, 0);
    return shape_out(s, 0, gates->dtype, 3, (Expr *[]){gates->dim[0], gates->dim[1], P});
}

static bool few_bits(const Value *v) { return v->dtype == DT_I8 || v->dtype == DT_U8; }

/* A scale and its zero point, at arguments i and i + 1, of a value of dtype t. one: of one element */
static bool quantizer_at(Shape *s, int i, DType t, bool one)
{
    const Value *scale = shape_value(s, i), *zero = shape_value(s, i + 1);
    if (!scale || scale->dtype != DT_F32) return shape_fail(s, i, "expected a scale of float32");
    if (one) TRY(shape_require_equal(s, shape_numel(s, scale), ex_int(s->ex, 1), "scales of one tensor"));
    if (!zero) return true;
    if (zero->dtype != t) return shape_fail(s, i + 1, "%s, expected %s", dtype_name(zero->dtype), dtype_name(t));
    return shape_require_equal(s, shape_numel(s, zero), shape_numel(s, scale), "zero points and scales");
}

/* One scale, or one a row of x. */
static bool scales_of_rows(Shape *s, int i, const Value *x)
{
    const Value *scale = shape_value(s, i);
    if (scale->dtype != DT_F32) return shape_fail(s, i, "expected a scale of float32");
    if (ex_equals_int(shape_numel(s, scale), 1)) return true;
    if (scale->rank != x->rank) return shape_fail(s, i, "rank %d, expected the input's %d", scale->rank, x->rank);
    for (int k = 0; k < x->rank; k++)
        TRY(shape_require_equal(s, scale->dim[k], k < x->rank - 1 ? x->dim[k] : ex_int(s->ex, 1), "scales of rows"));
    return true;
}

/* A matrix of i8 (N, K), its scales (one or a row) and bias, at arguments 3 to 5. */
static bool weight_of_integers(Shape *s, Value **w)
{
    Value *by, *bias = shape_value(s, 5);
    TRY(shape_want_value(s, 3, w) && shape_want_value(s, 4, &by));
    if ((*w)->rank != 2 || (*w)->dtype != DT_I8)
        return shape_fail(s, 3, "%s of rank %d, expected i8 of rank 2", dtype_name((*w)->dtype), (*w)->rank);
    if (by->dtype != DT_F32) return shape_fail(s, 4, "%s, expected f32", dtype_name(by->dtype));
    if (!ex_equals_int(shape_numel(s, by), 1)) {
        if (by->rank != 1) return shape_fail(s, 4, "rank %d, expected 1", by->rank);
        TRY(shape_require_equal(s, by->dim[0], (*w)->dim[0], "scales and features of the weight"));
    }
    if (!bias) return true;
    if (bias->rank != 1 || !dtype_is_float(bias->dtype)) return shape_fail(s, 5, "expected a vector of floats");
    return shape_require_equal(s, bias->dim[0], (*w)->dim[0], "features of bias and weight");
}

/* (input, scale, zero_point, weight, weight_scale, bias) */
bool shape_linear_integer(Shape *s)
{
    Value *x, *w;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &(Value *){NULL}) && weight_of_integers(s, &w));
    if (x->rank < 1 || !few_bits(x))
        return shape_fail(s, 0, "%s of rank %d, expected i8 or u8", dtype_name(x->dtype), x->rank);
    TRY(quantizer_at(s, 1, x->dtype, false));
    TRY(shape_require_equal(s, x->dim[x->rank - 1], w->dim[1], "features of input and weight"));
    TRY(scales_of_rows(s, 1, x));
    memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
    dim[x->rank - 1] = w->dim[0];
    return shape_out(s, 0, DT_F32, x->rank, dim);
}

/* (input, scale, zero_point, weight, weight_scale, bias, kernel, stride, padding, dilation, groups) */
bool shape_convolution_integer(Shape *s)
{
    Value *x, *w;
    ExprPool *p = s->ex;
    Expr *dim[MAX_RANK], *cells = ex_int(p, 1);
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &(Value *){NULL}) && weight_of_integers(s, &w));
    const int n = x->rank - 2;
    if (n < 1 || n > 3 || !few_bits(x))
        return shape_fail(s, 0, "%s of rank %d, expected i8 or u8 of rank 3 to 5", dtype_name(x->dtype), x->rank);
    TRY(quantizer_at(s, 1, x->dtype, true));
    for (int k = 6; k < 10; k++)
        if (shape_arg(s, k)->n != n) return shape_fail(s, k, "found %d values, expected %d", shape_arg(s, k)->n, n);
    dim[0] = x->dim[0];
    dim[1] = w->dim[0];
    for (int i = 0; i < n; i++) {
        Expr *size = shape_arg(s, 6)->es[i];
        TRY(shape_window(s, 6, size, 1) && windows_of(s, 7, 2 + i, x->dim[2 + i], size, &dim[2 + i]));
        cells = ex_mul(p, cells, size);
    }
    int64_t groups;
    TRY(shape_const_int(s, 10, &groups));
    if (groups < 1) return shape_fail(s, 10, "%lld groups", (long long)groups);
    Expr *channels = groups > 1 ? ex_int(p, 1) : x->dim[1];
    if (groups > 1) /* a channel of its own for each result */
        TRY(shape_require_equal(s, x->dim[1], ex_int(p, groups), "channels and groups") &&
            shape_require_equal(s, w->dim[0], ex_int(p, groups), "results and groups"));
    TRY(shape_require_equal(s, ex_mul(p, cells, channels), w->dim[1], "elements of a window and of the weight"));
    return shape_out(s, 0, DT_F32, x->rank, dim);
}

/* A scale or zero point for every block of a row of w. */
static bool beside_blocks(Shape *s, int i, const Value *w, int64_t block)
{
    const Value *v = shape_value(s, i);
    if (v->rank != 2) return shape_fail(s, i, "rank %d, expected 2", v->rank);
    Expr *blocks = ex_floordiv(s->ex, ex_add(s->ex, w->dim[1], ex_int(s->ex, block - 1)), ex_int(s->ex, block));
    return shape_require_equal(s, v->dim[0], w->dim[0], "rows of scales and of the weight") &&
           shape_require_equal(s, v->dim[1], blocks, "scales and blocks of a row");
}

/* (input, scale, weight, weight_scale, weight_zero, block, bits, bias) */
bool shape_linear_blocks(Shape *s)
{
    Value *x, *w, *by, *scale = shape_value(s, 1), *zero = shape_value(s, 4), *bias = shape_value(s, 7);
    Expr *dim[MAX_RANK];
    int64_t block, bits;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 2, &w) && shape_want_value(s, 3, &by) &&
        shape_const_int(s, 5, &block) && shape_const_int(s, 6, &bits));
    bool known = w->dtype == DT_I4 || w->dtype == DT_U4 || few_bits(w);
    if (w->rank != 2 || x->rank < 1 || !known || (bits != 4 && bits != 8) || (bits == 4 && w->dtype == DT_U8))
        return shape_fail(s, 2, "%s of rank %d in %lld bits, expected i4, u4, i8 or u8 of rank 2 in 4 or 8",
                          dtype_name(w->dtype), w->rank, (long long)bits);
    if (block < 1) return shape_fail(s, 5, "blocks of %lld", (long long)block);
    if (scale ? x->dtype != DT_I8 : x->dtype != DT_F32)
        return shape_fail(s, 0, "%s, expected f32, or i8 with a scale", dtype_name(x->dtype));
    if (scale) TRY(scales_of_rows(s, 1, x));
    if (by->dtype != DT_F32 || (zero && zero->dtype != w->dtype))
        return shape_fail(s, 3, "%s, expected scales of f32 and zero points of the weight's type",
                          dtype_name(by->dtype));
    TRY(shape_require_equal(s, x->dim[x->rank - 1], w->dim[1], "features of input and weight"));
    TRY(beside_blocks(s, 3, w, block) && (!zero || beside_blocks(s, 4, w, block)));
    if (bias) {
        if (bias->rank != 1 || !dtype_is_float(bias->dtype)) return shape_fail(s, 7, "expected a vector of floats");
        TRY(shape_require_equal(s, bias->dim[0], w->dim[0], "features of bias and weight"));
    }
    memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
    dim[x->rank - 1] = w->dim[0];
    return shape_out(s, 0, DT_F32, x->rank, dim);
}

/* (input, dtype, least) */
bool shape_quantize_rows(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    DType t = shape_dtype(s, 1, DT_NONE);
    TRY(shape_want_value(s, 0, &x));
    if (x->dtype != DT_F32 || x->rank < 1) return shape_fail(s, 0, "expected rows of f32");
    if (t != DT_I8 && t != DT_U8) return shape_fail(s, 1, "%s, expected i8 or u8", dtype_name(t));
    memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
    dim[x->rank - 1] = ex_int(s->ex, 1);
    return shape_out_like(s, 0, x, t) && shape_out(s, 1, DT_F32, x->rank, dim) && shape_out(s, 2, t, x->rank, dim);
}

/* (query, key, value, attn_mask, scale_p, zero_p, dtype_p, scale, softcap, lower, upper, scale_q, zero_q, ...) */
bool shape_sdpa_quantized(Shape *s)
{
    Value *q, *k, *v;
    DType t, p = shape_dtype(s, 6, DT_NONE);
    TRY(attention_operands(s, 0, 3, true, &q, &k, &v, &t));
    const bool float8 = p == DT_F8E4M3 && t == DT_F32;
    if (p != DT_I8 && p != DT_U8 && !float8)
        return shape_fail(s, 6, "%s, expected i8 or u8, or f8e4m3fn beside f32", dtype_name(p));
    TRY(quantizer_at(s, 4, p, true));
    if (few_bits(q))
        return quantizer_at(s, 11, t, true) && quantizer_at(s, 13, t, true) && quantizer_at(s, 15, t, true) &&
               shape_out(s, 0, DT_F32, 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], v->dim[3]});
    if (t != DT_F32) return shape_fail(s, 0, "%s, expected f32, i8 or u8", dtype_name(t));
    return shape_out(s, 0, t, 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], v->dim[3]});
}
