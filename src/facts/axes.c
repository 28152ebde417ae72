/* Axes and their sizes. Contract in axes.h. */
#include "facts/axes.h"
#include <string.h>

bool is_one(const Expr *e) { return ex_equals_int(e, 1); }
bool exprs_same(int n, Expr *const *a, Expr *const *b) { return !n || !memcmp(a, b, (size_t)n * sizeof *a); }
bool has_dims(const Value *v, int rank, Expr *const *dim) { return v->rank == rank && exprs_same(rank, v->dim, dim); }
bool same_dims(const Value *x, const Value *y) { return has_dims(x, y->rank, y->dim); }

int wide_axes(const Value *v, int *axis)
{
    int n = 0;
    for (int i = 0; i < v->rank; i++)
        if (!is_one(v->dim[i])) axis[n++] = i;
    return n;
}

bool same_but_ones(const Value *x, const Value *y)
{
    int a[MAX_RANK], b[MAX_RANK], n = wide_axes(x, a), m = wide_axes(y, b);
    bool same = n == m;
    for (int i = 0; same && i < m; i++) same = x->dim[a[i]] == y->dim[b[i]];
    return same;
}

Expr *product_of(ExprPool *p, int n, Expr *const *dim)
{
    Expr *e = ex_int(p, 1);
    for (int i = 0; i < n; i++) e = ex_mul(p, e, dim[i]);
    return e;
}

bool permutation_of(const Node *n, int *perm)
{
    if (n->op->id != OP_permute) return false;
    for (int i = 0; i < n->arg[1].n; i++)
        perm[i] = (int)(n->arg[1].es[i]->i < 0 ? n->arg[1].es[i]->i + n->arg[1].n : n->arg[1].es[i]->i);
    return true;
}

int axis_groups(ExprPool *p, int nfrom, Expr *const *from, int nto, Expr *const *to, int *f, int *t)
{
    int groups = 0, i = 0, j = 0;
    f[0] = t[0] = 0;
    while (i < nfrom || j < nto) {
        Expr *a = ex_int(p, 1);
        bool found = false;
        for (int k = i; k <= nfrom && !found; k++) {
            if (k > i) a = ex_mul(p, a, from[k - 1]);
            Expr *b = ex_int(p, 1);
            for (int l = j; l <= nto && !found; l++) {
                if (l > j) b = ex_mul(p, b, to[l - 1]);
                if (a != b || (k == i && l == j)) continue;
                if (k == i && !(i == nfrom || is_one(to[j]))) continue;
                i = k;
                j = l;
                found = true;
            }
        }
        if (!found) return -1;
        f[++groups] = i;
        t[groups] = j;
    }
    return groups;
}
