/* The formulas of ops.def as trees: what a pointwise row computes (FORMULA), and its gradients (GRAD).
 *
 *     "self * sigmoid(self)"
 *
 * Numbers, names, + - * /, unary -, parentheses, and calls of rows of the op table: cos(x) is aten.cos.default,
 * lt(x, 0) aten.lt.Tensor, where(c, a, b) aten.where.self. What a name stands for, and which calls mean more than a
 * row, the reader's caller knows. Operands come before what is made of them, from left to right; what is written twice
 * is one node. Parts may be named before the whole: "t = tan(y), t * t + 1".
 */
#ifndef QKV_OP_FORMULA_H
#define QKV_OP_FORMULA_H
#include "op/op.h"

enum { FORMULA_NODES = 96, FORMULA_ARGS = 4, FORMULA_NAMED = 6 };

typedef struct FormulaNode {
    char kind; /* '0' a number, 'x' a name, '(' a call, + - * / (n: 1 for unary -, else 2) */
    int n, arg[FORMULA_ARGS];
    double number;
    char name[32];
} FormulaNode;

typedef struct Formula {
    FormulaNode node[FORMULA_NODES];
    int n, root;
    struct {
        char name[32];
        int node;
    } named[FORMULA_NAMED];
    int nnamed;
    const char *wrong, *at; /* where reading ended: at ';' or the end, unless something is wrong */
} Formula;

bool formula_read(Formula *f, const char *text);
/* The row that a call means, and the same if it is a plain one; NULL when there is none. */
const Op *formula_row(const FormulaNode *call);
const Op *formula_op(const FormulaNode *call);
#endif
