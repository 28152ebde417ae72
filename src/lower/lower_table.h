/* Prototypes of every lower_NAME that ops.def mentions. */
#ifndef QKV_LOWER_LOWER_TABLE_H
#define QKV_LOWER_LOWER_TABLE_H
#include "lower/lower.h"
#define LOWER(f) bool lower_##f(Lower *L);
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
#endif
