/* What a model is, as one JSON object: the text of `qkv inspect --json`. Keys in include/qkv.h. */
#ifndef QKV_DESCRIBE_H
#define QKV_DESCRIBE_H
#include "import/pt2.h"

void describe_model(const char *path, const Pt2 *p, Buf *out);
#endif
