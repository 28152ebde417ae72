/* Pointwise ops, exactly: each element of the result from those of the operands at its place, by the row's ELEMENT, or
 * by its FORMULA or LAW, which calls other rows.
 *
 *     silu: FORMULA("self * sigmoid(self)"), sigmoid: LAW("1 / (1 + exp(-self))")
 */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "op/formula.h"
#include "prove/impl.h"

enum { MAX_PARAMS = 12 };

static const struct Row {
    ElementFn *element;
    const char *formula;
    OpId op;
} rows[OP_COUNT] = {
#define ELEMENT(f) .element = element_##f,
#define FORMULA(text) .formula = text,
#define LAW(text) .formula = text,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* A row's formula with its calls and names looked up. */
typedef struct Read {
    Formula f;
    OpId call[FORMULA_NODES];
    int param[FORMULA_NODES];
    Elem number[FORMULA_NODES]; /* also of the parameters' defaults */
} Read;

struct Formulas {
    Read *of[OP_COUNT];
};

static Read *read_formula(OpId op)
{
    Read *r = mem_zeroed(1, sizeof *r);
    if (!r || !formula_read(&r->f, rows[op].formula)) {
        mem_free(r);
        return NULL;
    }
    const Schema *s = op_get(op)->schema;
    for (int i = 0; i < r->f.n; i++) {
        const FormulaNode *t = &r->f.node[i];
        const Op *called = t->kind == '(' ? formula_op(t) : NULL;
        if (called) r->call[i] = called->id;
        if (t->kind == '0')
            r->number[i] = t->number == floor(t->number) && t->number < 1e9 ? elem_int((int64_t)t->number)
                                                                            : elem_number(t->number);
        if (t->kind != 'x') continue;
        r->param[i] = op_param(op_get(op), t->name);
        const char *text = r->param[i] >= 0 ? s->params[r->param[i]].def : NULL, *end;
        if (text) r->number[i] = elem_number(parse_double(text, &end));
    }
    return r;
}

static Read *formula_of(Exact *x, OpId op)
{
    if (!x->formulas) x->formulas = mem_zeroed(1, sizeof *x->formulas);
    if (!x->formulas) return NULL;
    if (!x->formulas->of[op]) x->formulas->of[op] = read_formula(op);
    return x->formulas->of[op];
}

void exact_rows_free(Exact *x)
{
    for (int i = 0; x->formulas && i < OP_COUNT; i++) mem_free(x->formulas->of[i]);
    mem_free(x->formulas);
}

static Elem element(Exact *x, OpId op, const Elem *a, const char *text);

static Elem by_formula(Exact *x, OpId op, const Elem *a)
{
    Read *r = formula_of(x, op);
    Elem y[FORMULA_NODES];
    if (!r) {
        x->failed = true;
        return elem_int(0);
    }
    for (int i = 0; i < r->f.n; i++) {
        const FormulaNode *t = &r->f.node[i];
        Elem arg[MAX_PARAMS] = {0};
        for (int k = 0; k < t->n; k++) arg[k] = y[t->arg[k]];
        if (t->kind == '0') y[i] = r->number[i];
        else if (t->kind == 'x') y[i] = a[r->param[i]].kind ? a[r->param[i]] : r->number[i];
        else if (t->kind == '(') y[i] = element(x, r->call[i], arg, NULL);
        else if (t->n == 1) y[i] = element_neg(x, arg, NULL);
        else
            y[i] = t->kind == '+'   ? elem_add(x, arg[0], arg[1])
                   : t->kind == '-' ? elem_sub(x, arg[0], arg[1])
                   : t->kind == '*' ? elem_mul(x, arg[0], arg[1])
                                    : elem_div(x, arg[0], arg[1]);
    }
    return y[r->f.root];
}

/* A function without laws and without a value of its own. */
static Elem unknown(Exact *x, OpId op, const Elem *a)
{
    Res h = (Res)op;
    for (int k = 0; k < MAX_PARAMS; k++)
        if (a[k].kind) h = res_hash(h, a[k].kind == FLOAT ? a[k].r : (uint64_t)a[k].i);
    x->boxed = op_get(op)->name;
    return elem_float(h, (double)(h % 4096) / 2048 - 1);
}

static Elem element(Exact *x, OpId op, const Elem *a, const char *text)
{
    if (rows[op].element) return rows[op].element(x, a, text);
    return rows[op].formula ? by_formula(x, op, a) : unknown(x, op, a);
}

Elem elem_op(Exact *x, OpId op, int n, const Elem *a)
{
    Elem all[MAX_PARAMS] = {0};
    memcpy(all, a, (size_t)n * sizeof *a);
    return element(x, op, all, NULL);
}

/* ------------------------------------------------------------------ nodes */

static Elem scalar(const Expr *e)
{
    if (e->kind == EX_FLOAT) return elem_number(e->f);
    return elem_int(e->i);
}

typedef struct Operand {
    const ExactTensor *t; /* NULL: a number, the same for all */
    int64_t stride[MAX_RANK];
} Operand;

static Operand operand(const ExactTensor *t, const ExactTensor *out)
{
    Operand o = {.t = t};
    int64_t own[MAX_RANK];
    exact_strides(t->rank, t->shape, own);
    for (int i = 0; i < t->rank; i++) o.stride[out->rank - t->rank + i] = t->shape[i] == 1 ? 0 : own[i];
    return o;
}

/* Import writes ops on complex numbers in reals. */
static bool all_real(const ExactTensor *out, const Operand *o, int np)
{
    for (int k = 0; k < np; k++)
        if (o[k].t && o[k].t->width == 2) return false;
    return out->width == 1;
}

bool exact_pointwise(Exact *x, const Node *n, Err *err)
{
    int np = n->op->schema->nparams;
    if (np > MAX_PARAMS) return exact_unsupported(n, "its many arguments", err);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    Operand o[MAX_PARAMS] = {0};
    Elem a[MAX_PARAMS] = {0};
    const char *text = NULL;
    for (int k = 0; k < np; k++) {
        const Arg *arg = &n->arg[k];
        if (arg->kind == ARG_VALUE) o[k] = operand(exact_in(x, arg->v), out);
        if (arg->kind == ARG_EXPR) a[k] = scalar(arg->e);
        if (arg->kind == ARG_STR) text = arg->s;
    }
    if (!all_real(out, o, np)) return exact_unsupported(n, "complex numbers", err);
    if (!exact_floats(out) && !rows[n->op->id].element && !rows[n->op->id].formula)
        return exact_unsupported(n, "its integers", err);
    if (!exact_work(x, (double)out->n * (rows[n->op->id].formula ? 50 : 10), err)) return false;
    int64_t at[MAX_RANK] = {0};
    x->dtype = out->dtype;
    for (int64_t i = 0; i < out->n; i++, exact_next(out->rank, out->shape, at)) {
        for (int k = 0; k < np; k++) {
            if (!o[k].t) continue;
            int64_t j = 0;
            for (int d = 0; d < out->rank; d++) j += at[d] * o[k].stride[d];
            a[k] = elem_get(o[k].t, j);
        }
        elem_set(out, i, element(x, n->op->id, a, text));
    }
    return true;
}
