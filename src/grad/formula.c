/* Gradients of pointwise rows as formulas: "grad * cos(self)", one an operand, with semicolons between.
 *
 *     GRAD(formula, "grad * other; grad * self")       aten.mul.Tensor
 *
 * Names: grad, result, the parameters of the row's schema. Numbers, + - * /, unary -, parentheses, and calls of rows of
 * the op table: cos(x) is aten.cos.default, lt(x, 0) aten.lt.Tensor, where(c, a, b) aten.where.self. keep(c, x) is x
 * where c holds, 0 elsewhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "grad/grad_impl.h"

typedef struct Term { /* a tensor, or a number */
    Value *v;
    Expr *e;
} Term;

typedef struct Formula {
    Grad *d;
    const char *at;
} Formula;

static Term sum(Formula *f);

static Arg arg_of(Formula *f, Term t)
{
    Grad *d = f->d;
    return t.e ? arg_expr(t.e) : V(t.v);
}

static bool next(Formula *f, char c)
{
    while (*f->at == ' ') f->at++;
    if (*f->at != c) return false;
    f->at++;
    return true;
}

static Term wrong(Formula *f, const char *what)
{
    if (f->d->err->code == E_OK) fail(f->d->err, E_UNSUPPORTED, "formula '%s': %s at '%s'", f->d->text, what, f->at);
    return (Term){0};
}

static Term operate(Formula *f, char op, Term a, Term b)
{
    Grad *d = f->d;
    if (d->err->code != E_OK) return (Term){0};
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
    return (Term){.v = gd_add_node(d, id, 2, (Arg[]){arg_of(f, a), arg_of(f, b)})};
}

static Term call(Formula *f, const char *name)
{
    static const char *const overload[] = {"self", "default", "Tensor", "Tensor_Tensor"};
    Arg arg[8];
    Term last = {0};
    int n = 0;
    do {
        last = sum(f);
        arg[n++] = arg_of(f, last);
    } while (n < 8 && next(f, ','));
    if (!next(f, ')')) return wrong(f, "expected )");
    if (f->d->err->code != E_OK) return last;
    if (!strcmp(name, "keep")) {
        arg[n++] = arg_float(f->d->g, 0);
        name = "where";
    }
    for (size_t i = 0; i < sizeof overload / sizeof *overload; i++) {
        char full[80];
        snprintf(full, sizeof full, "aten.%s.%s", name, overload[i]);
        const Op *op = op_find(full);
        if (op && op->plain) return (Term){.v = gd_add_node(f->d, op->id, n, arg)};
    }
    return wrong(f, "no such op");
}

static Term named(Formula *f, const char *name)
{
    const Grad *d = f->d;
    if (!strcmp(name, "grad")) return (Term){.v = d->grad};
    if (!strcmp(name, "result")) return (Term){.v = d->node->out[0]};
    int i = op_param(d->node->op, name);
    const Arg *a = i >= 0 ? &d->node->arg[i] : NULL;
    if (a && a->kind == ARG_VALUE) return (Term){.v = a->v};
    if (a && a->kind == ARG_EXPR) return (Term){.e = a->e};
    return wrong(f, "no such name");
}

static Term atom(Formula *f)
{
    while (*f->at == ' ') f->at++;
    if (next(f, '-')) {
        Term t = atom(f);
        if (t.e)
            return (Term){.e = ex_make(f->d->ex, EX_NEGF, ex_make(f->d->ex, EX_TOFLOAT, t.e, NULL, NULL), NULL, NULL)};
        return (Term){.v = gd_add_node(f->d, OP_neg, 1, (Arg[]){arg_of(f, t)})};
    }
    if (next(f, '(')) {
        Term t = sum(f);
        return next(f, ')') ? t : wrong(f, "expected )");
    }
    if (is_digit(*f->at)) {
        const char *end;
        double x = parse_double(f->at, &end);
        f->at = end;
        return (Term){.e = gd_float(f->d, x)};
    }
    char name[40];
    size_t n = 0;
    while (n + 1 < sizeof name && (is_alnum(*f->at) || *f->at == '_')) name[n++] = *f->at++;
    name[n] = 0;
    return next(f, '(') ? call(f, name) : named(f, name);
}

static Term product(Formula *f)
{
    Term t = atom(f);
    for (;;) {
        if (next(f, '*')) t = operate(f, '*', t, atom(f));
        else if (next(f, '/')) t = operate(f, '/', t, atom(f));
        else return t;
    }
}

static Term sum(Formula *f)
{
    Term t = product(f);
    for (;;) {
        if (next(f, '+')) t = operate(f, '+', t, product(f));
        else if (next(f, '-')) t = operate(f, '-', t, product(f));
        else return t;
    }
}

Value *gd_formula(Grad *d, const char *text)
{
    Formula f = {d, text};
    d->text = text;
    return sum(&f).v;
}

/* The k-th formula belongs to the k-th operand of tensors. */
bool grad_formula(Grad *d)
{
    Formula f = {d, d->text};
    for (int i = 0; i < d->node->op->schema->nparams && *f.at; i++) {
        if (d->node->op->schema->params[i].type != PT_TENSOR) continue;
        Value *v = gd_value(d, i);
        if (gd_wants(d, v)) TRY(gd_send(d, v, sum(&f).v));
        while (*f.at && *f.at != ';') f.at++;
        f.at += *f.at == ';';
    }
    return true;
}
