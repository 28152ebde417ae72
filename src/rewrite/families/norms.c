/* The norm rules' graft functions. Contract in norms.h.
 *
 * Formulas: Ba et al. 2016 (LayerNorm), Zhang and Sennrich 2019 (RMSNorm), as torch.nn has them.
 */
#include "rewrite/families/norms.h"
#include <string.h>

/* The axes that dims names, as a set; no dims name all of them. */
static bool axes_of(const Arg *dims, const Value *x, bool *set)
{
    for (int i = 0; i < x->rank; i++) set[i] = dims->kind == ARG_NONE || (dims->kind == ARG_EXPRS && !dims->n);
    if (dims->kind != ARG_EXPRS) return dims->kind == ARG_NONE;
    for (int i = 0; i < dims->n; i++) {
        if (!ex_is_int(dims->es[i])) return false;
        int64_t d = dims->es[i]->i < 0 ? dims->es[i]->i + x->rank : dims->es[i]->i;
        if (d < 0 || d >= x->rank) return false;
        set[d] = true;
    }
    return true;
}

typedef struct Norm {
    Value *x;  /* with the normalised axes at the end */
    int first; /* the first of them */
    bool permuted;
    int back[MAX_RANK]; /* the permutation that undoes it */
} Norm;

/* x with the axes of `set` at the end; axes of 1 may be anywhere. */
static bool normalise(Rewrite *rw, Value *x, const bool *set, Norm *n)
{
    int perm[MAX_RANK], k = 0;
    *n = (Norm){.x = x, .first = x->rank};
    while (n->first > 0 && (set[n->first - 1] || is_one(x->dim[n->first - 1]))) n->first--;
    while (n->first < x->rank && !set[n->first]) n->first++; /* axes of 1 in front are none of them */
    bool last = true, any = false;
    for (int i = 0; i < x->rank; i++) {
        any |= set[i];
        last &= i >= n->first || !set[i] || is_one(x->dim[i]);
    }
    if (!any) return rewrite_refuse(rw, "no axis is normalised");
    if (last && n->first < x->rank) return true;
    for (int part = 0; part < 2; part++) {
        if (part) n->first = k;
        for (int i = 0; i < x->rank; i++)
            if (set[i] == (part == 1)) perm[k++] = i;
    }
    for (int i = 0; i < x->rank; i++) n->back[perm[i]] = i;
    n->permuted = true;
    return (n->x = rw_permute(rw, x, perm)) != NULL;
}

static bool same_axes(Rewrite *rw, const Value *x, const bool *a, const bool *b)
{
    for (int i = 0; i < x->rank; i++)
        if (a[i] != b[i] && !is_one(x->dim[i]))
            return rewrite_refuse(rw, "mean and variance are taken over different axes");
    return true;
}

/* w, which broadcasts to a value of rank `rank`, as a tensor of the axes from `first` on; `perm` says where they
 * stand in that value. NULL when it varies along others. */
static Value *along(Rewrite *rw, Value *w, const Norm *n, const Arg *perm)
{
    int rank = n->x->rank, back[MAX_RANK], at;
    if (w->rank > rank || w->dtype != n->x->dtype) {
        rewrite_refuse(rw, "'%s' has other axes or another dtype than what is normalised", w->name);
        return NULL;
    }
    Value *full = rw_pad_rank(rw, w, rank);
    TRY_NULL(full);
    if (perm->kind == ARG_EXPRS) {
        for (int i = 0; i < rank; i++) {
            at = (int)(perm->es[i]->i < 0 ? perm->es[i]->i + rank : perm->es[i]->i);
            back[at] = i;
        }
        full = rw_permute(rw, full, back);
        TRY_NULL(full);
    }
    for (int i = 0; i < rank; i++) {
        if (i < n->first ? is_one(full->dim[i]) : full->dim[i] == n->x->dim[i]) continue;
        rewrite_refuse(rw, "'%s' does not have exactly the axes that are normalised", w->name);
        return NULL;
    }
    return rw_reshape(rw, full, rank - n->first, n->x->dim + n->first);
}

/* The norm of x over the axes of `set`, times w (if any). */
static bool give(Rewrite *rw, Value *x, const bool *set, const Arg *eps, const Arg *w, bool rms, Arg *out)
{
    Norm n;
    double e = 0;
    if (eps->kind != ARG_NONE && !constant_of(rw->g, eps, &e))
        return rewrite_refuse(rw, "the epsilon is not a known number");
    if (!(e >= 0)) return rewrite_refuse(rw, "the epsilon is %g", e);
    TRY(normalise(rw, x, set, &n));
    Arg shape = arg_exprs(rw->g, n.x->rank - n.first, n.x->dim + n.first), epsilon = arg_float(rw->g, e),
        none = arg_none();
    Arg perm = none;
    if (n.permuted) {
        int64_t dims[MAX_RANK];
        for (int i = 0; i < x->rank; i++) dims[i] = n.back[i];
        perm = arg_ints(rw->g, x->rank, dims);
    }
    Value *weight = w->kind == ARG_VALUE ? along(rw, w->v, &n, &perm) : NULL;
    Value *y = rms ? RW(rw, rms_norm, arg_value(n.x), shape, weight ? arg_value(weight) : none, epsilon)
                   : RW(rw, layer_norm, arg_value(n.x), shape, weight ? arg_value(weight) : none, none, epsilon);
    if (n.permuted) y = rw_permute(rw, y, n.back);
    if (w->kind != ARG_NONE && !weight) y = rw_binary(rw, OP_mul_Tensor, y, *w);
    *out = arg_value(y);
    return y != NULL;
}

bool make_layer_norm(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    bool mean[MAX_RANK], var[MAX_RANK];
    (void)n;
    if (a[0].kind != ARG_VALUE || !axes_of(&a[1], a[0].v, mean) || !axes_of(&a[2], a[0].v, var))
        return rewrite_refuse(rw, "not a norm");
    return same_axes(rw, a[0].v, mean, var) && give(rw, a[0].v, mean, &a[3], &a[4], false, out);
}

bool make_rms_norm(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    bool set[MAX_RANK];
    (void)n;
    if (a[0].kind != ARG_VALUE || !axes_of(&a[1], a[0].v, set)) return rewrite_refuse(rw, "not a norm");
    return give(rw, a[0].v, set, &a[2], &a[3], true, out);
}

/* The norm node with `v` as its weight or bias, permuted as what it replaces is. */
static bool affine(Rewrite *rw, const Arg *a, bool bias, Arg *out)
{
    const Node *node = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    Arg arg[8];
    int perm[MAX_RANK];
    if (!node || (node->op->id != OP_layer_norm && node->op->id != OP_rms_norm))
        return rewrite_refuse(rw, "not a norm");
    if (a[1].kind != ARG_VALUE) return rewrite_refuse(rw, "a number, not a tensor along the normalised axes");
    Norm n = {.x = a[0].v, .first = a[0].v->rank - node->arg[1].n};
    Value *v = along(rw, a[1].v, &n, &a[2]);
    TRY(v);
    memcpy(arg, node->arg, (size_t)node->op->schema->nparams * sizeof *arg);
    arg[bias ? 3 : 2] = arg_value(v);
    Value *y = rw_add(rw, node->op->id, node->op->schema->nparams, arg);
    if (a[2].kind == ARG_EXPRS) {
        for (int i = 0; i < a[2].n; i++) perm[i] = (int)(a[2].es[i]->i < 0 ? a[2].es[i]->i + a[2].n : a[2].es[i]->i);
        y = rw_permute(rw, y, perm);
    }
    *out = arg_value(y);
    return y != NULL;
}

bool make_norm_weight(Rewrite *rw, int n, const Arg *a, Arg *out) { return n == 3 && affine(rw, a, false, out); }
bool make_norm_bias(Rewrite *rw, int n, const Arg *a, Arg *out) { return n == 3 && affine(rw, a, true, out); }

/* The value of dtype t that v is an upcast of; NULL when it is none. */
static Value *before_cast(const Value *v, DType t)
{
    return v->def && v->def->op->id == OP_to_copy && v->def->arg[0].v->dtype == t ? v->def->arg[0].v : NULL;
}

bool make_in_half(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    const Node *node = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    Arg arg[8];
    (void)n;
    if (!node || a[1].kind != ARG_DTYPE || node->op->schema->nparams > 8) return false;
    DType t = a[1].dtype;
    if (a[0].v->dtype != DT_F32 || dtype_size(t) != 2 || !dtype_is_float(t))
        return rewrite_refuse(rw, "not computed in float32 for a half type");
    memcpy(arg, node->arg, (size_t)node->op->schema->nparams * sizeof *arg);
    for (int i = 0; i < node->op->schema->nparams; i++) {
        if (arg[i].kind != ARG_VALUE) continue;
        Value *low = before_cast(arg[i].v, t);
        if (!low) return rewrite_refuse(rw, "'%s' has more than %s", arg[i].v->name, dtype_name(t));
        arg[i] = arg_value(low);
    }
    Value *y = rw_add(rw, node->op->id, node->op->schema->nparams, arg);
    *out = arg_value(y);
    return y != NULL;
}
