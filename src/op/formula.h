/* The formulas of ops.def as trees: what a pointwise row computes (FORMULA), and its gradients (GRAD).
 *
 *     "self * sigmoid(self)"
 *
 * Numbers, names, + - * /, unary -, parentheses, and calls of rows of the op table: cos(x) is aten.cos.default,
 * lt(x, 0) aten.lt.Tensor, where(c, a, b) aten.where.self. What a name stands for, and which calls mean more than a
 * row, the reader's caller knows. Operands come before what is made of them, from left to right; what is written twice
 * is one node.
 */
#ifndef QKV_OP_FORMULA_H
#define QKV_OP_FORMULA_H
#include "op/op.h"

enum { FORMULA_NODES = 96, FORMULA_ARGS = 4 };

typedef struct FormulaNode {
    char kind; /* '0' a number, 'x' a name, '(' a call, + - * / (n: 1 for unary -, else 2) */
    int n, arg[FORMULA_ARGS];
    double number;
    char name[32];
} FormulaNode;

typedef struct Formula {
    FormulaNode node[FORMULA_NODES];
    int n, root;
    const char *wrong, *at; /* where reading ended: at ';' or the end, unless something is wrong */
} Formula;

bool formula_read(Formula *f, const char *text);
/* The plain row that a call means; NULL when there is none. */
const Op *formula_op(const FormulaNode *call);
#endif
