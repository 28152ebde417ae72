/* Prototypes of every shape_NAME that ops.def mentions. */
#ifndef QKV_SHAPE_SHAPE_TABLE_H
#define QKV_SHAPE_SHAPE_TABLE_H
#include "shape/shape.h"
#define SHAPE(f) bool shape_##f(Shape *s);
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
#endif
