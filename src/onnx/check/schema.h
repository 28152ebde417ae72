/* What the ONNX standard says about its ops, every version of each, from onnx_schemas.def (tools/onnx_schemas.py).
 *
 *     OnnxSchemas all;
 *     onnx_schemas(&all);
 *     const OnnxSchema *s = onnx_schema(&all, "", "Softmax", 17);     the version of opset 17: since 13
 *     OnnxParam p;
 *     onnx_param(s->in, 0, &p);                                       p.type "T", p.option ' '
 */
#ifndef QKV_ONNX_CHECK_SCHEMA_H
#define QKV_ONNX_CHECK_SCHEMA_H
#include <stdbool.h>
#include <stdint.h>
#include "base/map.h"

typedef struct OnnxSchema {
    const char *domain, *name;
    int since;
    bool deprecated;
    int min_in, max_in, min_out, max_out;
    const char *in, *out, *attrs, *types;
} OnnxSchema;

typedef struct OnnxTypes { /* a set; bits are TensorProto.DataType */
    uint64_t tensor, sequence, optional, optional_sequence;
    bool other;
} OnnxTypes;

typedef struct OnnxParam {
    char option;   /* ' ' required, '?' optional, '*' variadic, '~' variadic of different types */
    char type[16]; /* name of its type */
} OnnxParam;

typedef struct OnnxSchemas {
    Map first; /* "domain:name" -> its oldest row; the others follow it */
} OnnxSchemas;

bool onnx_schemas(OnnxSchemas *s); /* false: out of memory */
void onnx_schemas_free(OnnxSchemas *s);
/* The version that an opset has; NULL when it has none. *later: the first version that has it (0: no version). */
const OnnxSchema *onnx_schema(const OnnxSchemas *s, const char *domain, const char *name, int64_t opset, int *later);
bool onnx_param(const char *list, int i, OnnxParam *out);           /* false: there is no i-th */
const OnnxTypes *onnx_types(const OnnxSchema *s, const char *type); /* NULL for an unknown name */
/* Kind of an attribute ('i', 'I' ...), 0 when the op has none of that name. */
char onnx_schema_attr(const OnnxSchema *s, const char *name, bool *required);
/* The i-th attribute's name into out (at least 64 bytes); false after the last. */
bool onnx_schema_attr_at(const OnnxSchema *s, int i, char *out, char *kind, bool *required);
extern const int onnx_latest_opset, onnx_latest_ir;
#endif
