/* Prototypes of every shape_NAME that ops.def mentions. */
#ifndef QKV_SHAPE_SHAPE_TABLE_H
#define QKV_SHAPE_SHAPE_TABLE_H
#include "shape/shape.h"
#define OP(id, name, schema, lower, shape, view, run, flags) bool shape_##shape(Shape *s);
#include "ir/ops.def"
#undef OP
#endif
