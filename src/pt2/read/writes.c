/* Ops that write: x.op_(...) and op(..., out=x) as pure ops, whose results are written to x. */
#include <stdio.h>
#include <string.h>
#include "facts/axes.h"
#include "facts/views.h"
#include "pt2/read/values.h"

/* The pure form of an in-place op: aten.add_.Tensor -> aten.add.Tensor. NULL when the table has none. */
const Op *pure_form(const Op *op)
{
    char name[256];
    const char *overload = strrchr(op->name, '.');
    size_t n = (size_t)(overload - op->name);
    if (n < 2 || op->name[n - 1] != '_' || n + strlen(overload) + 8 >= sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s.Tensor_%s", (int)n - 1, op->name, overload + 1);
    const Op *pure = op_find(name); /* pow_.Scalar: pow.Scalar has a number as its base */
    snprintf(name, sizeof name, "%.*s%s", (int)n - 1, op->name, overload);
    if (!pure) pure = op_find(name);
    if (pure) return pure;
    if (!strncmp(op->name, "aten.__i", 8)) { /* __ior__ writes what __or__ gives */
        snprintf(name, sizeof name, "aten.__%s", op->name + 8);
        return op_find(name);
    }
    if (!strcmp(op->name, "aten.transpose_.default")) return op_get(OP_transpose_int);
    if (!strcmp(op->name, "aten.normal_.default")) return op_get(OP_normal_functional);
    if (!strcmp(op->name, "aten.fill_diagonal_.default")) return op_get(OP_fill_diagonal);
    if (!strcmp(op->name, "aten.bernoulli_.float")) return op_get(OP_bernoulli_p);
    if (!strcmp(op->name, "aten.ldexp_.default")) return op_get(OP_ldexp_Tensor);
    snprintf(name, sizeof name, "%.*s.default", (int)n - 1,
             op->name); /* floor_divide_.Tensor writes what floor_divide.default gives */
    return op_find(name);
}

/* ------------------------------------------------------------------ out= */

static const json_t *named_tensor(const json_t *arg)
{
    const json_t *optional = json_object_get(arg, "as_optional_tensor");
    return json_object_get(optional ? optional : arg, "as_tensor");
}

/* Are these the arguments of op, and a tensor for each of its results? */
static bool takes(const Op *op, const json_t *inputs)
{
    size_t i;
    json_t *input;
    int outs = 0, given = 0, needed = 0;
    for (int k = 0; k < op->schema->nparams; k++)
        needed += !op->schema->params[k].def && !op->schema->params[k].optional;
    json_array_foreach(inputs, i, input)
    {
        const char *name = json_string_value(json_object_get(input, "name"));
        const json_t *arg = json_object_get(input, "arg");
        int at = name ? op_param(op, name) : -1;
        if (at < 0 && !named_tensor(arg)) return false;
        if (at < 0) {
            outs++;
            continue;
        }
        const Param *param = &op->schema->params[at];
        if ((param->type == PT_TENSOR) != (named_tensor(arg) != NULL) && !json_object_get(arg, "as_none")) return false;
        given += !param->def && !param->optional;
    }
    return outs == op->schema->nreturns && given == needed;
}

/* aten.sum.IntList_out writes what aten.sum.dim_IntList gives: the row of the same name that takes its arguments. */
const Op *out_form(const char *target, const json_t *inputs)
{
    if (!strncmp(target, "torch.ops.", 10)) target += 10;
    const char *overload = strrchr(target, '.');
    size_t n = overload ? (size_t)(overload - target) + 1 : 0, end = strlen(target);
    const Op *found = NULL;
    if (!n || strncmp(target, "aten.", 5) || op_find(target)) return NULL;
    for (int id = OP_NONE + 1; id < OP_COUNT; id++) {
        const Op *op = op_get((OpId)id);
        if (strncmp(op->name, target, n) || op->flags & OPF_INPLACE || !op->schema->nreturns) continue;
        bool alike = end > 4 && !strcmp(target + end - 4, "_out") && strlen(op->name) == end - 4 &&
                     !strncmp(op->name, target, end - 4);
        if (inputs ? !takes(op, inputs) : strncmp(overload + 1, "out", 3) && !alike) continue;
        if (!found || alike) found = op;
    }
    return found;
}

/* Another tensor in the place of one that is resized: a buffer that was made for it. */
static bool replace(Import *im, Ref *r, Value *v)
{
    if (r->parent) return fail(im->err, E_UNSUPPORTED, "out= is a view, which would be resized");
    r->value = v;
    r->version++;
    return true;
}

bool write_results(Import *im, Scope *s, const NodeCall *c, Lower *L, const char *const *names, int n)
{
    for (int k = 0; k < c->nout; k++) {
        Value *v = L->result.kind == ARG_VALUES ? k < L->result.n ? L->result.vs[k] : NULL
                   : L->result.kind == ARG_VALUE && !k ? L->result.v
                                                       : NULL;
        Value *out = ref_value(im->g, c->out[k], im->err);
        if (!v) return fail(im->err, E_FORMAT, "%s gives no result %d to write", c->op->name, k);
        TRY(out && (v = lower_cast(L, v, out->dtype)));
        TRY(same_dims(v, out) ? ref_write(im->g, c->out[k], v, im->err) : replace(im, c->out[k], v));
        if (k >= n || !names[k]) continue;
        TRY(name_result(im, v, names[k], c->mark));
        TRY(scope_put(im, s, names[k], (Slot){.kind = SLOT_TENSOR, .ref = c->out[k]}));
    }
    return true;
}

/* ------------------------------------------------------------------ in place */

/* x.op_(...): the pure result, in x's dtype and shape, is written to x. */
bool in_place(Import *im, Scope *s, const NodeCall *c, Lower *L, const char *name)
{
    Value *self = c->arg[0].v;
    const Op *pure = pure_form(c->op);
    if (!c->self)
        return fail(im->err, E_FORMAT, "argument '%s': expected a tensor to write to", c->op->schema->params[0].name);
    if (!pure) return fail(im->err, E_UNSUPPORTED, "%s has no pure form", c->op->name);
    Arg arg[64] = {{0}};
    for (int i = 0; i < c->op->schema->nparams; i++) {
        int at = op_param(pure, c->op->schema->params[i].name);
        if (i == 0 && at < 0) at = 0; /* the tensor written to has two names in a few ops */
        if (at >= 0) arg[at] = c->arg[i];
        else if (c->arg[i].kind != ARG_NONE)
            return fail(im->err, E_FORMAT, "%s has no argument '%s'", pure->name, c->op->schema->params[i].name);
    }
    L->op = pure;
    Arg *fitted = arena_array(im->g->arena, Arg, pure->schema->nparams + 1);
    if (!fitted) return oom(im->err);
    TRY(op_fit_args(im->g, pure, pure->schema->nparams, arg, fitted, im->err));
    L->arg = fitted;
    TRY(lower_op(L));
    Value *v = L->result.kind == ARG_VALUE                   ? L->result.v
               : L->result.kind == ARG_VALUES && L->result.n ? L->result.vs[0]
                                                             : NULL;
    if (!v) return fail(im->err, E_FORMAT, "%s gives no tensor", pure->name);
    bool reshapes = pure->schema->params[0].aliased && is_view_of(v, self) && v != self;
    if (!reshapes) {
        if (!same_dims(v, self)) TRY(v = EMIT(L, expand, arg_value(v), arg_exprs(im->g, self->rank, self->dim)));
        TRY(v = lower_cast(L, v, self->dtype));
        TRY(ref_write(im->g, c->self, v, im->err));
    }
    if (!name) return true;
    TRY(name_result(im, v, name, c->mark));
    Slot slot = {.kind = SLOT_TENSOR, .ref = c->self};
    if (reshapes) slot.ref = ref_view(im->g, c->self, pure, fitted, 0, v, json_object_get(s->tensor_values, name));
    return slot.ref ? scope_put(im, s, name, slot) : oom(im->err);
}
