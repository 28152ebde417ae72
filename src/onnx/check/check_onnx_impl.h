/* What the files that check ONNX records share. */
#ifndef QKV_ONNX_CHECK_CHECK_ONNX_IMPL_H
#define QKV_ONNX_CHECK_CHECK_ONNX_IMPL_H
#include "onnx/check/check_onnx.h"
#include "onnx/check/infer.h"

typedef struct Slot {     /* a name of one graph */
    OnnxShape *shape;     /* NULL: nothing is known */
    bool now, used, made; /* made: by a node */
} Slot;

typedef struct Scope {
    struct Scope *outer;
    Map names; /* -> Slot */
    Map info;  /* -> OnnxValueInfo: what the graph declares */
    const OnnxOpset *opset;
    int nopset;
    const OnnxFunction *function;
    const char *prefix; /* of places */
} Scope;

typedef struct Records {
    Check *c;
    const OnnxModel *m;
    OnnxSchemas schemas;
    Map symbols;   /* dim_param -> its number */
    Map functions; /* "domain:name:overload" -> OnnxFunction */
    int calls;     /* nodes of functions that are still followed: their number may grow exponentially */
} Records;

/* check_onnx_node.c */
int64_t records_version(const OnnxOpset *o, int n, const char *domain); /* -1: not imported */
const char *records_function_key(Records *r, const char *domain, const char *name, const char *overload);
const OnnxFunction *records_function(Records *r, const OnnxNode *n); /* that it calls; NULL */
void records_attr_names(Records *r, const Scope *s, const OnnxNode *n, const char *place);
const OnnxSchema *records_op(Records *r, const Scope *s, const OnnxNode *n, const char *place,
                             int64_t *opset); /* NULL: the reason was reported */
void records_schema(Records *r, const OnnxNode *n, const OnnxSchema *schema, const char *place);
void records_call(Records *r, const OnnxNode *n, const OnnxFunction *f, const char *place);
#endif
