/* The records of an ONNX file, checked without the importer. */
#ifndef QKV_VERIFY_CHECK_ONNX_H
#define QKV_VERIFY_CHECK_ONNX_H
#include "format/onnx.h"
#include "verify/check.h"

void check_onnx(Check *c, const OnnxModel *m);
/* check_onnx_wire.c: what the records no longer show, from the bytes: attributes without a type; where external data would be read. folder: of the model. */
void check_onnx_wire(Check *c, const void *bytes, uint64_t size, const char *folder);
/* check_ort.c: which of ONNX Runtime's CPU kernels would take the node; bit: of each type variable, the element type that was found. */
struct OnnxInfer;
void check_ort(Check *c, const struct OnnxInfer *f);
#endif
