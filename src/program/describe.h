/* What a model is, as one JSON object: the text of `qkv inspect --json`. Keys in include/qkv_tools.h. */
#ifndef QKV_PROGRAM_DESCRIBE_H
#define QKV_PROGRAM_DESCRIBE_H
#include "model/source.h"

void describe_model(const char *path, const Source *p, Buf *out);
#endif
