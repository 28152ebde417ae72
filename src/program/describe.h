/* What a model is, as one JSON object: the text of `qkv inspect --json`. Keys in include/qkv_tools.h. */
#ifndef QKV_PROGRAM_DESCRIBE_H
#define QKV_PROGRAM_DESCRIBE_H
#include "model/source.h"

void describe_model(const char *path, const Source *p, Buf *out);
/* "shape": [2, "s0", "2*s0"] */
void describe_sizes(const Graph *g, const char *key, int rank, Expr *const *dim, Buf *out);
/* Elements of a list: path, type, nodes, parameters, attentions of each module, parents before what is in them. */
void describe_modules(const Graph *g, Buf *out);
/* An argument that is not a list: sizes of a tensor, a number, a text, null. */
void describe_arg(const Graph *g, const char *key, const Arg *a, Buf *out);
#endif
