/* Gradients of pointwise rows as formulas (op/formula.h): "grad * cos(self)", one an operand, with semicolons between.
 *
 *     GRAD(formula, "grad * other; grad * self")       aten.mul.Tensor
 *
 * Names: grad, result, the parameters of the row's schema. keep(c, x) is x where c holds, 0 elsewhere.
 */
#include <string.h>
#include "grad/grad_impl.h"
#include "op/formula.h"

typedef struct Term { /* a tensor, or a number */
    Value *v;
    Expr *e;
} Term;

static Arg arg_of(Grad *d, Term t) { return t.e ? arg_expr(t.e) : V(t.v); }

static Term wrong(Grad *d, const char *what, const char *at)
{
    if (d->err->code == E_OK) fail(d->err, E_UNSUPPORTED, "formula '%s': %s at '%s'", d->text, what, at);
    return (Term){0};
}

static Term operate(Grad *d, char op, Term a, Term b)
{
    if (a.e && b.e) {
        ExprPool *p = d->ex;
        Expr *x = ex_make(p, EX_TOFLOAT, a.e, NULL, NULL), *y = ex_make(p, EX_TOFLOAT, b.e, NULL, NULL);
        return (Term){.e = op == '+'   ? ex_add(p, x, y)
                           : op == '-' ? ex_sub(p, x, y)
                           : op == '*' ? ex_mul(p, x, y)
                                       : ex_make(p, EX_TRUEDIV, x, y, NULL)};
    }
    if (op == '*' && a.v && b.v) return (Term){.v = gd_mul(d, a.v, b.v)};
    OpId id = op == '+' ? OP_add_Tensor : op == '-' ? OP_sub_Tensor : op == '*' ? OP_mul_Tensor : OP_div_Tensor;
    return (Term){.v = gd_add_node(d, id, 2, (Arg[]){arg_of(d, a), arg_of(d, b)})};
}

static Term call(Grad *d, const FormulaNode *x, const Term *term)
{
    Arg arg[FORMULA_ARGS + 1];
    for (int i = 0; i < x->n; i++) arg[i] = arg_of(d, term[i]);
    bool keep = !strcmp(x->name, "keep");
    if (keep) arg[x->n] = arg_float(d->g, 0);
    const Op *op = keep ? op_get(OP_where_self) : formula_op(x);
    return op ? (Term){.v = gd_add_node(d, op->id, x->n + keep, arg)} : wrong(d, "no such op", x->name);
}

static Term negated(Grad *d, Term t)
{
    if (t.e) return (Term){.e = ex_make(d->ex, EX_NEGF, ex_make(d->ex, EX_TOFLOAT, t.e, NULL, NULL), NULL, NULL)};
    return (Term){.v = gd_add_node(d, OP_neg, 1, (Arg[]){arg_of(d, t)})};
}

static Term named(Grad *d, const FormulaNode *x)
{
    if (!strcmp(x->name, "grad")) return (Term){.v = d->grad};
    if (!strcmp(x->name, "result")) return (Term){.v = d->node->out[0]};
    int i = op_param(d->node->op, x->name);
    const Arg *a = i >= 0 ? &d->node->arg[i] : NULL;
    if (a && a->kind == ARG_VALUE) return (Term){.v = a->v};
    if (a && a->kind == ARG_EXPR) return (Term){.e = a->e};
    return wrong(d, "no such name", x->name);
}

/* Nodes are made as often as they are written. */
static Term made(Grad *d, const Formula *f, int at)
{
    const FormulaNode *x = &f->node[at];
    Term term[FORMULA_ARGS] = {0};
    for (int i = 0; i < x->n; i++) term[i] = made(d, f, x->arg[i]);
    if (d->err->code != E_OK) return (Term){0};
    if (x->kind == '0') return (Term){.e = gd_float(d, x->number)};
    if (x->kind == 'x') return named(d, x);
    if (x->kind == '(') return call(d, x, term);
    return x->n == 1 ? negated(d, term[0]) : operate(d, x->kind, term[0], term[1]);
}

static Value *value_of(Grad *d, const char *text, const char **end)
{
    Formula f;
    Term t = formula_read(&f, text) ? made(d, &f, f.root) : wrong(d, f.wrong, f.at);
    *end = f.at;
    return t.v;
}

Value *gd_formula(Grad *d, const char *text)
{
    d->text = text;
    return value_of(d, text, &text);
}

/* The k-th formula belongs to the k-th operand of tensors. */
bool grad_formula(Grad *d)
{
    const char *at = d->text;
    for (int i = 0; i < d->node->op->schema->nparams && *at; i++) {
        if (d->node->op->schema->params[i].type != PT_TENSOR) continue;
        Value *v = gd_value(d, i);
        if (gd_wants(d, v)) TRY(gd_send(d, v, value_of(d, at, &at)));
        while (*at && *at != ';') at++;
        at += *at == ';';
    }
    return true;
}
