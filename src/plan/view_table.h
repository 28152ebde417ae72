/* Prototypes of every view_NAME that ops.def mentions. */
#ifndef QKV_PLAN_VIEW_TABLE_H
#define QKV_PLAN_VIEW_TABLE_H
#include "plan/call.h"
#define OP(id, name, schema, lower, shape, view, run, flags) bool view_##view(const Call *c, Tensor *out);
#include "ir/ops.def"
#undef OP
#endif
