/* Prototypes of every lower_NAME that ops.def mentions. */
#ifndef QKV_LOWER_LOWER_TABLE_H
#define QKV_LOWER_LOWER_TABLE_H
#include "lower/lower.h"
#define OP(id, name, schema, lower, shape, view, run, flags) bool lower_##lower(Lower *L);
#include "ir/ops.def"
#undef OP
#endif
