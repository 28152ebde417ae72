/* Reading formulas. Contract in formula.h. */
#include "op/formula.h"
#include <stdio.h>
#include <string.h>
#include "base/number.h"

static int sum(Formula *f);

static int wrong(Formula *f, const char *what)
{
    if (!f->wrong) f->wrong = what;
    return 0;
}

static bool next(Formula *f, char c)
{
    while (*f->at == ' ') f->at++;
    if (*f->at != c || !c) return false;
    f->at++;
    return true;
}

static bool same(const FormulaNode *a, const FormulaNode *b)
{
    return a->kind == b->kind && a->n == b->n && a->number == b->number && !strcmp(a->name, b->name) &&
           !memcmp(a->arg, b->arg, sizeof a->arg);
}

static int made(Formula *f, FormulaNode x)
{
    for (int i = 0; i < f->n; i++)
        if (same(&f->node[i], &x)) return i;
    if (f->n == FORMULA_NODES) return wrong(f, "too many terms");
    f->node[f->n] = x;
    return f->n++;
}

static int call(Formula *f, FormulaNode x)
{
    x.kind = '(';
    do {
        if (x.n == FORMULA_ARGS) return wrong(f, "too many operands");
        x.arg[x.n++] = sum(f);
    } while (next(f, ','));
    return next(f, ')') ? made(f, x) : wrong(f, "expected )");
}

static int atom(Formula *f)
{
    if (next(f, '-')) return made(f, (FormulaNode){.kind = '-', .n = 1, .arg = {atom(f)}});
    if (next(f, '(')) {
        int whole = sum(f);
        return next(f, ')') ? whole : wrong(f, "expected )");
    }
    if (is_digit(*f->at)) return made(f, (FormulaNode){.kind = '0', .number = parse_double(f->at, &f->at)});
    FormulaNode x = {.kind = 'x'};
    size_t n = 0;
    while (n + 1 < sizeof x.name && (is_alnum(*f->at) || *f->at == '_')) x.name[n++] = *f->at++;
    if (!n) return wrong(f, "expected a name or a number");
    if (next(f, '(')) return call(f, x);
    for (int i = 0; i < f->nnamed; i++)
        if (!strcmp(f->named[i].name, x.name)) return f->named[i].node;
    return made(f, x);
}

static int product(Formula *f)
{
    int a = atom(f);
    for (char c; next(f, c = '*') || next(f, c = '/');)
        a = made(f, (FormulaNode){.kind = c, .n = 2, .arg = {a, atom(f)}});
    return a;
}

static int sum(Formula *f)
{
    int a = product(f);
    for (char c; next(f, c = '+') || next(f, c = '-');)
        a = made(f, (FormulaNode){.kind = c, .n = 2, .arg = {a, product(f)}});
    return a;
}

bool formula_read(Formula *f, const char *text)
{
    f->n = f->nnamed = 0;
    f->wrong = NULL;
    f->at = text;
    while (!f->wrong) {
        int before = f->n, i = f->nnamed;
        f->root = sum(f);
        if (!next(f, '=')) break;
        if (f->root != before || f->node[before].kind != 'x' || i == FORMULA_NAMED)
            return wrong(f, "expected a new name before =");
        f->n = before;
        memcpy(f->named[i].name, f->node[before].name, sizeof f->named[i].name);
        f->named[i].node = sum(f);
        f->nnamed++;
        if (!next(f, ',')) wrong(f, "expected ,");
    }
    if (*f->at && *f->at != ';') wrong(f, "expected an operator");
    return !f->wrong;
}

static const Op *row(const FormulaNode *call, bool plain)
{
    static const char *const overload[] = {"self", "default", "Tensor", "Tensor_Tensor"};
    for (int i = 0; i < 4; i++) {
        char full[80];
        snprintf(full, sizeof full, "aten.%s.%s", call->name, overload[i]);
        const Op *op = op_find(full);
        if (op && (op->plain || !plain)) return op;
    }
    return NULL;
}

const Op *formula_row(const FormulaNode *call) { return row(call, false); }
const Op *formula_op(const FormulaNode *call) { return row(call, true); }
