/* Ops that ONNX lacks, by the word FORMULA of their rows: expressions of ops that it has. Half types are worked on in
 * float32, as PyTorch's kernels do.
 *
 *     "self * sigmoid(self)"   ->  Mul(x, Sigmoid(x))
 *
 * A call that stands in a formula (op/formula.h) twice is made once.
 */
#include "onnx/write/write_impl.h"
#include "op/formula.h"

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

typedef struct Writing {
    Onnx *o;
    const Node *node;
    Formula f;
    Ref like; /* numbers take its dtype */
    bool known[FORMULA_NODES];
    Term term[FORMULA_NODES]; /* of calls that are known */
} Writing;

static Term numeral(double x) { return (Term){.number = x, .is_number = true}; }
static Term tensor(Ref r) { return (Term){.r = r}; }
static Ref ref_of(Writing *f, Term t) { return t.is_number ? like(f->o, f->like, t.number) : t.r; }

static Term wrong(Writing *f, const char *what, const char *at)
{
    refuse(f->o, "formula of %s: %s at '%s'", f->node->op->name, what, at);
    return (Term){0};
}

static Term operate(Writing *f, const char *op, Term a, Term b)
{
    Ref x = ref_of(f, a), y = ref_of(f, b);
    return tensor(NODE(f->o, op, x.t, x, y));
}

/* A call of a row that has an ONNX op, or is written by a function. */
static Term apply(Writing *f, const Op *op, int n, const Term *arg)
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
    return wrong(f, "an op that formulas do not call in ONNX", op->name);
}

static Term named(Writing *f, const FormulaNode *x)
{
    const Op *op = f->node->op;
    int i = op_param(op, x->name);
    if (i < 0) return wrong(f, "no such name", x->name);
    if (op->schema->params[i].type != PT_TENSOR) return numeral(arg_f(f->o, f->node, i, 0));
    return tensor(widened(f->o, operand(f->o, f->node, i, f->node->out[0]->dtype)));
}

static Term made(Writing *f, int at)
{
    const FormulaNode *x = &f->f.node[at];
    if (f->known[at]) return f->term[at];
    Term t[FORMULA_ARGS] = {0};
    for (int i = 0; i < x->n; i++) t[i] = made(f, x->arg[i]);
    switch (x->kind) {
    case '0': return numeral(x->number);
    case 'x': return named(f, x);
    case '+': return operate(f, "Add", t[0], t[1]);
    case '*': return operate(f, "Mul", t[0], t[1]);
    case '/': return operate(f, "Div", t[0], t[1]);
    case '-':
        if (x->n == 2) return operate(f, "Sub", t[0], t[1]);
        return t[0].is_number ? numeral(-t[0].number) : tensor(NODE(f->o, "Neg", t[0].r.t, t[0].r));
    default: break;
    }
    const Op *op = formula_op(x);
    f->known[at] = true;
    return f->term[at] = op ? apply(f, op, x->n, t) : wrong(f, "an op that is not in the table", x->name);
}

void out_formula(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Writing f = {.o = o, .node = n};
    f.like.t = n->out[0]->dtype == DT_F64 ? DT_F64 : DT_F32;
    Term t = formula_read(&f.f, rows[n->op->id].formula) ? made(&f, f.f.root) : wrong(&f, f.f.wrong, f.f.at);
    give(o, n, 0, t.r);
}
