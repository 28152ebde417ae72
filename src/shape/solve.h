/* From input sizes to symbol values, and the checks that a size binding must pass. */
#ifndef QKV_SHAPE_SOLVE_H
#define QKV_SHAPE_SOLVE_H
#include "ir/graph.h"

/* Binds every symbol that input sizes determine: s0 from an axis s0, h from an axis 14*h; then checks every axis,
 * every range and every requirement that does not wait for data. input[i] gives the sizes of g->input[i]; scalar[i]
 * the value of a dynamic scalar input (or NULL). b was made by binding_init. Errors: E_USAGE, naming input, axis,
 * value and what is allowed. */
bool solve_sizes(const Graph *g, const Tensor *const *input, const int64_t *scalar, Binding *b, Err *err);
/* One requirement, all of whose symbols are bound. */
bool check_require(const Graph *g, int i, const Binding *b, Err *err);
/* The requirements that mention data-dependent symbols; called when those are bound. */
bool check_requires(const Graph *g, const Binding *b, bool data_dependent, Err *err);
/* Values for all input symbols: the given ones (by symbol name, "input.axis", or the customary batch, seq, height,
 * width), the others the smallest that satisfy ranges and requirements. E_USAGE names what can be given. */
bool choose_sizes(const Graph *g, const char *const *name, const int64_t *value, int n, Binding *b, Err *err);
/* The same, where the others are those of the file's example, if these fit. Makes b; the caller frees it. */
bool choose_example_sizes(const Graph *g, const char *const *name, const int64_t *value, int n, Binding *b, Err *err);
/* The given ones alone; and an expression with the bound symbols as their values (NULL when out of memory or too
 * large). */
bool bind_named(const Graph *g, const char *const *name, const int64_t *value, int n, Binding *b, Err *err);
Expr *expr_bound(ExprPool *p, Expr *e, const Binding *b);
/* Is e = a*s + c, with a and c free of s? */
bool expr_linear_in(const Expr *e, const Expr *s);
/* size = *factor * s + *rest, both free of s: false where s stands in more than one term, or inside another op. */
bool expr_split(ExprPool *p, Expr *size, const Expr *s, Expr **factor, Expr **rest);
#endif
