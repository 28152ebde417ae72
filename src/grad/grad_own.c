/* The gradient of a registered op (op/own.h) is another: it takes the gradient of each result, then the op's own
 * arguments, and gives the gradient of each parameter that is a tensor.
 */
#include "grad/grad_impl.h"
#include "op/own.h"

enum { MOST = 64 };

static const Op *gradient_op(Grad *d, int wanted)
{
    const Op *op = d->node->op;
    const char *name = op_own(op)->gradient;
    if (!name) return gd_refuse(d, "it was registered without a gradient"), NULL;
    const Op *back = op_find_own(name);
    if (!back) return gd_refuse(d, "its gradient '%s' is not registered", name), NULL;
    if (back->schema->nparams != d->node->nout + op->schema->nparams || back->schema->nreturns != wanted)
        return gd_refuse(d, "its gradient '%s' has %d parameters and %d results: expected %d (the gradient of each "
                            "result, then its own) and %d (one for each tensor)",
                         name, back->schema->nparams, back->schema->nreturns, d->node->nout + op->schema->nparams,
                         wanted),
               NULL;
    return back;
}

bool grad_own(Grad *d)
{
    const Node *n = d->node;
    const Schema *schema = n->op->schema;
    int tensors = 0, given = 0;
    Arg arg[MOST];
    for (int i = 0; i < schema->nparams; i++) {
        if (schema->params[i].type == PT_TENSORS) return gd_refuse(d, "a list of tensors has none here");
        tensors += schema->params[i].type == PT_TENSOR;
    }
    const Op *back = gradient_op(d, tensors);
    if (!back) return false;
    for (int k = 0; k < n->nout; k++) {
        Value *grad = d->grads[k] ? d->grads[k] : gd_zeros(d, n->out[k]->dtype, n->out[k]->rank, n->out[k]->dim);
        if (!grad) return false;
        arg[given++] = arg_value(grad);
    }
    for (int i = 0; i < schema->nparams; i++) arg[given++] = n->arg[i];
    Value *first = gd_add_node(d, back->id, given, arg);
    if (!first) return false;
    for (int i = 0, k = 0; i < schema->nparams; i++)
        if (schema->params[i].type == PT_TENSOR) {
            Value *v = gd_value(d, i), *grad = first->def->out[k++];
            if (v && dtype_is_float(v->dtype)) TRY(gd_send(d, v, grad));
        }
    return true;
}
