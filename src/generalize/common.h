/* One pass over all steps. */
#ifndef QKV_GENERALIZE_COMMON_H
#define QKV_GENERALIZE_COMMON_H
#include "generalize/generalize_impl.h"

/* Builds the steps 0 .. last_step with what is settled so far. True also when a step cannot be built (b->failed_step,
 * b->failure); false when memory runs out. b is freed by build_free in any case. */
bool build_graph(Build *b, Gen *gen, int last_step, Err *err);
void build_free(Build *b);
Expr *size_expr(Build *b, const Size *z); /* what the axes of z show */

/* varying.c: which axes vary, from the options and the files. E_USAGE. */
bool find_sizes(Gen *gen, const GeneralizeOptions *o, Err *err);
const char *axis_text(Gen *gen, int input, int axis); /* "x.0" */
/* The coefficient of symbol s in a sum; 0 when it is not there by itself,
 * or `product` is not set and it is in a product. */
int64_t coefficient(const Expr *e, const Expr *s, bool product);

/* report.c: fills r from the last build, and gives its graph ranges. */
bool report_all(Gen *gen, Build *b, Generalized *r, Err *err);
bool report_note(Generalized *r, const char *text, Err *err);
#endif
