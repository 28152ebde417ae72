/* One pass over all steps. */
#ifndef QKV_REWRITE_GENERALIZE_BUILD_H
#define QKV_REWRITE_GENERALIZE_BUILD_H
#include "rewrite/generalize_impl.h"

/* Builds the steps 0 .. last_step with what is settled so far. True also when a step cannot be built (b->failed_step, b->failure);
 * false when memory runs out. b is freed by build_free in any case. */
bool build_graph(Build *b, Gen *gen, int last_step, Err *err);
void build_free(Build *b);
Expr *size_expr(Build *b, const Size *z); /* what the axes of z show */
#endif
