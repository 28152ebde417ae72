/* Gradients of matrix products.
 *
 *     y = a b:   da = dy b^T,  db = a^T dy
 */
#include "grad/grad_impl.h"

/* x (..., n) as (rows, n) */
static Value *as_rows(Grad *d, Value *x)
{
    return gd_reshape(d, x, 2, (Expr *[]){gd_product(d, x->rank - 1, x->dim), x->dim[x->rank - 1]});
}

bool grad_linear(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 1), *b = gd_value(d, 2), *g = as_rows(d, d->grad);
    if (!g) return false;
    if (gd_wants(d, x))
        TRY(gd_send(d, x, d->grad->rank > 1 ? gd_matmul(d, d->grad, w) : gd_reshape(d, gd_matmul(d, g, w), 1, x->dim)));
    if (gd_wants(d, w)) TRY(gd_send(d, w, gd_matmul(d, gd_swap(d, g, 0, 1), as_rows(d, x))));
    return !gd_wants(d, b) || gd_send(d, b, gd_sum(d, g, 1, (int[]){0}, false));
}

/* Batches that one of them lacks are summed: by the product itself for a single matrix on the right. */
bool grad_matmul(Grad *d)
{
    Value *a = gd_value(d, 0), *b = gd_value(d, 1), *g = d->grad;
    if (gd_wants(d, a)) TRY(gd_send(d, a, gd_matmul(d, g, gd_swap(d, b, -1, -2))));
    if (!gd_wants(d, b)) return true;
    if (b->rank == 2 && a->rank > 2) return gd_send(d, b, gd_matmul(d, gd_swap(d, as_rows(d, a), 0, 1), as_rows(d, g)));
    return gd_send(d, b, gd_matmul(d, gd_swap(d, a, -1, -2), g));
}

/* Groups of rows with a matrix each: the same rows with transposed matrices,
 * and a matrix a group of columns with rows. */
bool grad_grouped_mm(Grad *d)
{
    Value *a = gd_value(d, 0), *b = gd_value(d, 1), *offs = gd_value(d, 2), *g = d->grad;
    if (b->rank == 2) return gd_refuse(d, "it is a gradient itself");
    if (gd_wants(d, a)) TRY(gd_send(d, a, GD(d, grouped_mm, V(g), V(gd_swap(d, b, 1, 2)), V(offs))));
    return !gd_wants(d, b) || gd_send(d, b, GD(d, grouped_mm, V(gd_swap(d, a, 0, 1)), V(g), V(offs)));
}
