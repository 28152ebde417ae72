/* Ops that ONNX lacks, by the word FORMULA of their rows: expressions of ops that it has. Half types are worked on in
 * float32, as PyTorch's kernels do.
 *
 *     "self * sigmoid(self)"   ->  Mul(x, Sigmoid(x))
 *
 * The grammar is that of src/grad/formula.c. A call that stands in a formula twice is made once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "onnx/write/write_impl.h"

enum { MAX_CALLS = 16, MAX_NAME = 64 };

static const struct {
    const char *formula, *text;
    OnnxFn *fn;
    OpId op;
} rows[OP_COUNT] = {
#define FORMULA(text_) .formula = text_,
#define ONNX(f, text_) .fn = out_##f, .text = text_,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

typedef struct Term { /* a tensor, or a number */
    Ref r;
    double number;
    bool is_number;
} Term;

typedef struct Formula {
    Onnx *o;
    const Node *node;
    const char *at;
    Ref like; /* numbers take its dtype */
    int ncalls;
    struct {
        const char *text;
        size_t length;
        Term term;
    } call[MAX_CALLS];
} Formula;

static Term sum(Formula *f);

static bool next(Formula *f, char c)
{
    while (*f->at == ' ') f->at++;
    if (*f->at != c) return false;
    f->at++;
    return true;
}

static Term numeral(double x) { return (Term){.number = x, .is_number = true}; }
static Term tensor(Ref r) { return (Term){.r = r}; }
static Ref ref_of(Formula *f, Term t) { return t.is_number ? like(f->o, f->like, t.number) : t.r; }

static Term wrong(Formula *f, const char *what)
{
    refuse(f->o, "formula of %s: %s at '%s'", f->node->op->name, what, f->at);
    return (Term){0};
}

static Term operate(Formula *f, const char *op, Term a, Term b)
{
    Ref x = ref_of(f, a), y = ref_of(f, b);
    return tensor(NODE(f->o, op, x.t, x, y));
}

/* A call of a row that has an ONNX op, or is written by a function. */
static Term apply(Formula *f, const Op *op, int n, const Term *arg)
{
    Onnx *o = f->o;
    Ref x = ref_of(f, arg[0]), y = n > 1 ? ref_of(f, arg[1]) : x;
    OnnxFn *fn = rows[op->id].fn;
    if (fn == out_unary && n == 1) return tensor(NODE(o, rows[op->id].text, x.t, x));
    if (fn == out_binary && n == 2) return tensor(NODE(o, rows[op->id].text, x.t, x, y));
    if (fn == out_compare && n == 2) return tensor(NODE(o, rows[op->id].text, DT_BOOL, x, y));
    if (fn == out_where && n == 3) return tensor(where(o, x, y, ref_of(f, arg[2])));
    if (fn == out_log1p && n == 1) return tensor(log1p_of(o, x));
    if (fn == out_trunc && n == 1) return tensor(truncated(o, x));
    if (fn == out_clamp && n == 3) {
        x = NODE(o, "Max", x.t, x, y);
        return tensor(NODE(o, "Min", x.t, x, ref_of(f, arg[2])));
    }
    if (op->id == OP_isnan) return tensor(is_nan(o, x));
    if (op->id == OP_softplus && n == 1) return tensor(softplus_of(o, x));
    return wrong(f, "an op that formulas do not call in ONNX");
}

static Term call(Formula *f, const char *start, size_t length)
{
    char name[MAX_NAME];
    Term arg[3];
    int n = 0;
    const Op *op = NULL;
    static const char *const overloads[] = {"default", "Tensor", "Tensor_Tensor", "self"};
    for (int i = 0; i < 4 && (!op || !op->plain); i++) {
        snprintf(name, sizeof name, "aten.%.*s.%s", (int)length, start, overloads[i]);
        op = op_find(name);
    }
    for (int i = 0; i < f->ncalls; i++)
        if (!strncmp(f->call[i].text, start, f->call[i].length)) {
            f->at = start + f->call[i].length;
            return f->call[i].term;
        }
    do {
        if (n == 3) return wrong(f, "more than three operands");
        arg[n++] = sum(f);
    } while (next(f, ','));
    if (!next(f, ')')) return wrong(f, "expected ')'");
    if (!op || !op->plain) return wrong(f, "an op that is not in the table");
    Term t = apply(f, op, n, arg);
    if (f->ncalls < MAX_CALLS) {
        f->call[f->ncalls].text = start;
        f->call[f->ncalls].length = (size_t)(f->at - start);
        f->call[f->ncalls++].term = t;
    }
    return t;
}

static Term factor(Formula *f)
{
    if (next(f, '-')) {
        Term t = factor(f);
        return t.is_number ? numeral(-t.number) : tensor(NODE(f->o, "Neg", t.r.t, t.r));
    }
    if (next(f, '(')) {
        Term t = sum(f);
        return next(f, ')') ? t : wrong(f, "expected ')'");
    }
    const char *start = f->at;
    if (is_digit(*start)) {
        const char *end;
        double x = parse_double(start, &end);
        f->at = end;
        return numeral(x);
    }
    while (is_alnum(*f->at) || *f->at == '_') f->at++;
    size_t length = (size_t)(f->at - start);
    if (next(f, '(')) return call(f, start, length);
    const Schema *s = f->node->op->schema;
    for (int i = 0; i < s->nparams; i++) {
        if (strlen(s->params[i].name) != length || strncmp(s->params[i].name, start, length)) continue;
        if (s->params[i].type != PT_TENSOR) return numeral(arg_f(f->o, f->node, i, 0));
        return tensor(widened(f->o, operand(f->o, f->node, i, f->node->out[0]->dtype)));
    }
    return wrong(f, "expected a name or a number");
}

static Term product(Formula *f)
{
    Term t = factor(f);
    for (;;) {
        if (next(f, '*')) t = operate(f, "Mul", t, factor(f));
        else if (next(f, '/')) t = operate(f, "Div", t, factor(f));
        else return t;
    }
}

static Term sum(Formula *f)
{
    Term t = product(f);
    for (;;) {
        if (next(f, '+')) t = operate(f, "Add", t, product(f));
        else if (next(f, '-')) t = operate(f, "Sub", t, product(f));
        else return t;
    }
}

void out_formula(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Formula f = {.o = o, .node = n, .at = rows[n->op->id].formula};
    f.like.t = n->out[0]->dtype == DT_F64 ? DT_F64 : DT_F32;
    Term t = sum(&f);
    if (*f.at) t = wrong(&f, "expected an operator");
    give(o, n, 0, t.r);
}
