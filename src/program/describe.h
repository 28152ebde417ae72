/* What a model is, as one JSON object: the text of `qkv inspect --json`. Keys in include/qkv_tools.h. */
#ifndef QKV_PROGRAM_DESCRIBE_H
#define QKV_PROGRAM_DESCRIBE_H
#include "model/source.h"

void describe_model(const char *path, const Source *p, Buf *out);
/* "shape": [2, "s0", "2*s0"] */
void describe_sizes(const Graph *g, const char *key, int rank, Expr *const *dim, Buf *out);
#endif
