/* Prototypes of every run_NAME that ops.def mentions. */
#ifndef QKV_RUN_RUN_TABLE_H
#define QKV_RUN_RUN_TABLE_H
#include "run/run.h"
#define RUN(f) bool run_##f(Call *c, Err *err);
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
#endif
