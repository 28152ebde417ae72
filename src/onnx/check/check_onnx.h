/* The records of an ONNX file, checked without the importer. */
#ifndef QKV_ONNX_CHECK_CHECK_ONNX_H
#define QKV_ONNX_CHECK_CHECK_ONNX_H
#include "onnx/wire/onnx.h"
#include "verify/check.h"

void check_onnx(Check *c, const OnnxModel *m);
/* check_onnx_wire.c: what the records no longer show, from the bytes: attributes without a type;
 * where external data would be read. folder: of the model. */
void check_onnx_wire(Check *c, const void *bytes, uint64_t size, const char *folder);
/* check_onnx_targets.c: what c->targets refuse of a node whose types were inferred. */
struct OnnxInfer;
void check_onnx_targets(Check *c, const struct OnnxInfer *f);
#endif
