/* Nodes of domains that the program registered ops for (op/own.h): inputs are the schema's tensors, attributes its
 * other parameters, by name.
 */
#include <string.h>
#include "onnx/read/read_impl.h"

static bool floats(OnnxOp *o, const Param *p, Arg *out)
{
    const OnnxAttr *a = op_attr(o, p->name);
    if (a->type != ONNX_ATTR_FLOATS)
        return fail(o->im->err, E_FORMAT, "attribute '%s': expected a list of floats", p->name);
    Expr **all = arena_array(o->g->arena, Expr *, a->n + 1);
    if (!all) return oom(o->im->err);
    for (int i = 0; i < a->n; i++) all[i] = ex_float(o->g->ex, (double)a->floats[i]);
    *out = arg_exprs(o->g, a->n, all);
    return true;
}

static bool attribute(OnnxOp *o, const Param *p, Arg *out)
{
    int64_t i = 0;
    double f = 0;
    const int64_t *list;
    const char *text;
    int n;
    *out = arg_none(); /* its default */
    if (!op_attr(o, p->name)) return true;
    switch (p->type) {
    case PT_INT:
    case PT_BOOL:
        TRY(op_attr_int(o, p->name, 0, &i));
        *out = p->type == PT_INT ? arg_int(o->g, i) : arg_bool(o->g, i != 0);
        return true;
    case PT_FLOAT:
    case PT_SCALAR:
        TRY(op_attr_float(o, p->name, 0, &f));
        *out = arg_float(o->g, f);
        return true;
    case PT_INTS:
        TRY(op_attr_ints(o, p->name, &list, &n));
        *out = arg_ints(o->g, n, list);
        return true;
    case PT_STR:
        TRY(op_attr_string(o, p->name, "", &text));
        *out = arg_str(o->g, text);
        return true;
    default: return floats(o, p, out);
    }
}

static bool inputs(OnnxOp *o, const Param *p, int *at, Arg *out)
{
    Value *v;
    if (p->type == PT_TENSOR) {
        TRY(op_optional(o, *at, &v));
        ++*at;
        *out = v ? arg_value(v) : arg_none();
        return v || p->optional || fail(o->im->err, E_FORMAT, "input '%s' is missing", p->name);
    }
    int n = op_ninputs(o) - *at; /* a list takes all that follow */
    Value **all = arena_array(o->g->arena, Value *, n + 1);
    if (!all) return oom(o->im->err);
    for (int i = 0; i < n; i++) TRY(op_tensor(o, *at + i, &all[i]));
    *at += n;
    *out = arg_values(o->g, n, all);
    return true;
}

/* The program knows nothing of an attribute that its schema has not. */
static bool only_known(OnnxOp *o, const Schema *s, const char *op)
{
    for (int k = 0; k < o->node->nattr; k++) {
        const char *name = o->node->attr[k].name;
        int i = 0;
        while (i < s->nparams && strcmp(s->params[i].name, name)) i++;
        if (i == s->nparams || s->params[i].type == PT_TENSOR || s->params[i].type == PT_TENSORS)
            return fail(o->im->err, E_FORMAT, "%s was registered without a parameter for the attribute '%.100s'", op,
                        name);
    }
    return true;
}

bool onnx_own(OnnxOp *o)
{
    const Op *op = o->L.op;
    int at = 0;
    TRY(only_known(o, op->schema, op->name));
    Arg *arg = arena_array(o->g->arena, Arg, op->schema->nparams + 1),
        *fitted = arena_array(o->g->arena, Arg, op->schema->nparams + 1);
    if (!arg || !fitted) return oom(o->im->err);
    for (int i = 0; i < op->schema->nparams; i++) {
        const Param *p = &op->schema->params[i];
        bool tensor = p->type == PT_TENSOR || p->type == PT_TENSORS;
        TRY(tensor ? inputs(o, p, &at, &arg[i]) : attribute(o, p, &arg[i]));
    }
    if (op_ninputs(o) > at)
        return fail(o->im->err, E_FORMAT, "%d inputs are given, %s takes %d", op_ninputs(o), op->name, at);
    TRY(op_fit_args(o->g, op, op->schema->nparams, arg, fitted, o->im->err));
    Node *n = lower_emit_node(&o->L, op->id, op->schema->nparams, fitted);
    if (!n) return false;
    for (int k = 0; k < n->nout && k < o->node->noutput; k++)
        if (op_wants(o, k)) TRY(op_return(o, k, n->out[k]));
    return true;
}
