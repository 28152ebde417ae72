/* Text of one call, as graph_print writes it and golden cases are written:
 *
 *     aten.add.Tensor(%x, %y, alpha=2)
 *     aten.cat.default([%x, %y], 1)        aten.sum.dim_IntList(%x, [-1], true, dtype=f64)
 *
 * Arguments: %name a value; integers, floats (inf, -inf, nan), true, false, none; [..] lists; "strings" with \" and \\;
 * dtypes (f32 ...); s0 or (3*s0 + 1) expressions; name=value for any parameter. Missing arguments take the schema's
 * defaults.
 */
#ifndef QKV_IR_TEXT_H
#define QKV_IR_TEXT_H
#include "ir/graph.h"

/* Parses a call; %name is looked up among g's values. *args has op->schema->nparams elements, in the graph's arena. */
bool text_parse_call(Graph *g, const char *text, const Op **op, Arg **args, Err *err);
/* A parameter's default value, from its schema text. */
bool text_parse_default(Graph *g, const Param *p, Arg *out, Err *err);
#endif
