/* Prototypes of every run_NAME that ops.def mentions. */
#ifndef QKV_RUN_RUN_TABLE_H
#define QKV_RUN_RUN_TABLE_H
#include "run/run.h"
#define OP(id, name, schema, lower, shape, view, run, flags) bool run_##run(Call *c, Err *err);
#include "ir/ops.def"
#undef OP
#endif
