/* Prototypes of every view_NAME that ops.def mentions. */
#ifndef QKV_PLAN_VIEW_TABLE_H
#define QKV_PLAN_VIEW_TABLE_H
#include "plan/call.h"
#define VIEW(f) bool view_##f(const Call *c, Tensor *out);
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
#endif
