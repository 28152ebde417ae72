/* Functionaliser. Contract and example in functional.h. */
#include "pt2/read/functional.h"
#include "facts/views.h"

/* STALE: a version that no root has. Nodes are made for each view between a written one and its root: MADE for each
 * view and write of the file on the average, and SOME. */
enum { STALE = -1, DEEPEST = 1024, MADE = 16, SOME = 1024 };

Ref *ref_root(Graph *g, Value *v, const json_t *meta)
{
    Ref *r = arena_new(g->arena, Ref);
    if (r) *r = (Ref){.root = r, .value = v, .meta = meta};
    return r;
}

Ref *ref_view(Graph *g, Ref *parent, const Op *op, const Arg *arg, int which, Value *v, const json_t *meta)
{
    Ref *r = arena_new(g->arena, Ref);
    parent->root->views++;
    if (r)
        *r = (Ref){.parent = parent,
                   .root = parent->root,
                   .value = v,
                   .version = parent->root->version,
                   .depth = parent->depth + 1,
                   .op = op,
                   .arg = arg,
                   .which = which,
                   .meta = meta};
    return r;
}

static bool may_make(const Ref *r, Err *err)
{
    Ref *root = r->root;
    if (r->depth > DEEPEST)
        return fail(err, E_LIMIT, "a write through %d views of views; at most %d are followed", r->depth, DEEPEST);
    return ++root->made <= MADE * (root->views + root->version) + SOME ||
           fail(err, E_LIMIT, "writes through %lld views of '%s' that need more than %lld operations",
                (long long)root->views, root->value->name, (long long)root->made - 1);
}

Value *ref_value(Graph *g, Ref *r, Err *err)
{
    if (!r->parent || r->version == r->root->version) return r->value;
    if (!may_make(r, err)) return NULL;
    Value *base = ref_value(g, r->parent, err);
    Arg *arg = base ? arena_array(g->arena, Arg, r->op->schema->nparams + 1) : NULL;
    if (!arg) return NULL;
    for (int i = 0; i < r->op->schema->nparams; i++) arg[i] = r->arg[i];
    arg[0] = arg_value(base);
    Lower L = {.g = g,
               .ex = g->ex,
               .op = r->op,
               .arg = arg,
               .name = r->value->name,
               .nout_names = r->nnames,
               .err = err};
    if (!lower_op(&L)) return NULL;
    r->value = L.result.kind == ARG_VALUES ? L.result.vs[r->which] : L.result.v;
    r->version = r->root->version;
    return r->value;
}

/* Windows that do not overlap: what unfold took from x is written there. */
static Value *windows_put_back(Graph *g, const Node *n, Value *windows, Err *err)
{
    Value *x = n->arg[0].v, *at[MAX_RANK] = {0};
    Lower L = {.g = g, .ex = g->ex, .op = n->op, .arg = n->arg, .name = x->name, .err = err};
    int64_t size = n->arg[2].e->i, step = n->arg[3].e->i, axis = n->arg[1].e->i + (n->arg[1].e->i < 0 ? x->rank : 0);
    if (!x->rank || size > step) {
        fail(err, E_UNSUPPORTED, "a write through windows of size %lld, %lld apart: they overlap", (long long)size,
             (long long)step);
        return NULL;
    }
    Arg next = arg_int(g, axis + 1);
    Value *start = AS(&L, mul_Tensor, v(AS(&L, arange, arg_expr(windows->dim[axis]))), n->arg[3]);
    Value *places = AS(&L, add_Tensor, v(AS(&L, unsqueeze, v(start), arg_int(g, 1))), v(AS(&L, arange, n->arg[2])));
    at[axis] = AS(&L, ravel, v(places));
    Value *rows = AS(&L, movedim_int, v(windows), arg_int(g, -1), next);
    rows = rows ? AS(&L, flatten_using_ints, v(rows), arg_int(g, axis), next) : NULL;
    return rows && at[axis] ? AS(&L, index_put, v(x), arg_values(g, (int)axis + 1, at), v(rows)) : NULL;
}

/* Is a step of `stride` always beyond `reach`, the farthest that elements are from each other so far? */
static bool beyond(Graph *g, Expr *stride, Expr *reach)
{
    Expr *apart = ex_sub(g->ex, stride, reach);
    int64_t lo = 0, hi;
    if (apart) ex_range(g->ex, apart, &lo, &hi);
    return lo > 0;
}

/* Are the elements that as_strided takes provably at places of their own? Axes in the order of their strides, or
 * from the last where that is not known, must each step over all that those before them reach. */
static bool places_differ(Graph *g, const Arg *size, const Arg *stride)
{
    Expr *reach = ex_int(g->ex, 0);
    uint32_t left = (1u << size->n) - 1;
    for (int i = 0; i < size->n; i++) {
        if (ex_equals_int(size->es[i], 0)) return true;
        if (ex_equals_int(size->es[i], 1)) left &= ~(1u << i);
    }
    while (left && reach) {
        int least = -1;
        for (int i = size->n - 1; i >= 0; i--)
            if (left >> i & 1 && (least < 0 || beyond(g, stride->es[least], stride->es[i]))) least = i;
        if (!beyond(g, stride->es[least], reach)) return false;
        left &= ~(1u << least);
        reach = ex_add(g->ex, reach,
                       ex_mul(g->ex, ex_sub(g->ex, size->es[least], ex_int(g->ex, 1)), stride->es[least]));
    }
    return reach != NULL;
}

/* The operand of the plain view node that made `view`, with `v` in place of the view. */
static Value *put_back(Graph *g, const Value *view, Value *v, Err *err)
{
    const Node *n = view->def;
    Value *whole = n->arg[0].v;
    Arg arg[6] = {arg_value(whole), arg_value(v), n->arg[1], n->arg[2], arg_none(), arg_none()};
    OpId op;
    int nargs;
    int64_t inverse[MAX_RANK];
    switch (n->op->id) {
    case OP_reshape:
        op = OP_reshape;
        arg[0] = arg_value(v);
        arg[1] = arg_exprs(g, whole->rank, whole->dim);
        nargs = 2;
        break;
    case OP_permute:
        for (int i = 0; i < whole->rank; i++)
            inverse[n->arg[1].es[i]->i < 0 ? n->arg[1].es[i]->i + whole->rank : n->arg[1].es[i]->i] = i;
        op = OP_permute;
        arg[0] = arg_value(v);
        arg[1] = arg_ints(g, whole->rank, inverse);
        nargs = 2;
        break;
    case OP_select_int:
        op = OP_select_scatter;
        nargs = 4;
        break;
    case OP_slice_Tensor:
        op = OP_slice_scatter;
        arg[4] = n->arg[3];
        arg[5] = n->arg[4];
        nargs = 6;
        break;
    case OP_diagonal:
        op = OP_diagonal_scatter;
        arg[4] = n->arg[3];
        nargs = 5;
        break;
    case OP_as_strided:
        if (!places_differ(g, &n->arg[1], &n->arg[2])) {
            fail(err, E_UNSUPPORTED, "a write through as_strided, whose elements share places in memory, or may");
            return NULL;
        }
        op = OP_as_strided_scatter;
        arg[4] = n->arg[3];
        nargs = 5;
        break;
    case OP_unfold: return windows_put_back(g, n, v, err);
    case OP_detach: return v;
    default: fail(err, E_UNSUPPORTED, "a write through a view made by %s", n->op->name); return NULL;
    }
    Node *made = graph_add(g, op, nargs, arg, whole->name, err);
    return made ? made->out[0] : NULL;
}

/* Views of complex tensors are views of their pairs. */
static Value *shown(Graph *g, Value *v, Err *err) { return v ? lower_shown(g, v, err) : NULL; }

bool ref_write(Graph *g, Ref *r, Value *v, Err *err)
{
    if (!r->parent) {
        r->value = v;
        r->version++;
        return true;
    }
    Value *view = shown(g, ref_value(g, r, err), err), *base = ref_value(g, r->parent, err),
          *below = shown(g, base, err), *changed = shown(g, v, err);
    if (!view || !below || !changed) return false;
    if (!is_view_of(view, below)) {
        /* after an earlier write r holds what was written: the views that lead there are made again */
        r->version = STALE;
        if (!(view = shown(g, ref_value(g, r, err), err))) return false;
    }
    for (const Value *at = view; at != below; at = at->def->arg[0].v)
        if (!may_make(r, err) || !(changed = put_back(g, at, changed, err))) return false;
    if (dtype_is_complex(base->dtype) && !(changed = lower_hidden(g, changed, err))) return false;
    TRY(ref_write(g, r->parent, changed, err));
    r->value = v;
    r->version = r->root->version;
    return true;
}
