/* Types and sizes of ONNX nodes, node by node, as far as they follow: an inference of the checker's own, beside the
 * importer's.
 *
 * A size is a number, a symbol (equal symbols are equal sizes), or unknown; elements of small integer tensors (shapes,
 * axes) are followed the same way. What contradicts the op's rules is a finding (Q204, Q205); what does not follow
 * stays unknown.
 */
#ifndef QKV_ONNX_CHECK_INFER_H
#define QKV_ONNX_CHECK_INFER_H
#include "onnx/wire/onnx.h"
#include "verify/check.h"
#include "onnx/check/schema.h"

typedef struct OnnxSize {
    enum { SIZE_UNKNOWN, SIZE_NUMBER, SIZE_SYMBOL } kind;
    int64_t v; /* the number, or which symbol */
} OnnxSize;

typedef struct OnnxShape {
    OnnxKind kind; /* ONNX_KIND_NONE: nothing is known */
    int elem;      /* OnnxType; ONNX_UNDEFINED: unknown */
    int rank;      /* -1: unknown */
    int n;         /* elements that are followed; -1: they are not */
    OnnxSize *data;
    OnnxSize dim[MAX_RANK]; /* last: values that are kept have room for their rank alone */
} OnnxShape;
enum { ONNX_FOLLOWED = 64 };
#define ONNX_LARGEST (1LL << 40) /* sizes that are reckoned with */

typedef struct OnnxInfer {
    Check *c;
    const char *place;
    const OnnxNode *node;
    const OnnxSchema *schema;
    const OnnxShape **in; /* node->ninput; NULL: left out, or nothing is known */
    OnnxShape *out;       /* node->noutput; unknown to begin with */
    int64_t opset;
    bool bad; /* a finding was made */
} OnnxInfer;

OnnxShape onnx_shape_unknown(void);
OnnxShape *onnx_shape_keep(Check *c, const OnnxShape *s); /* in the arena */
void onnx_infer(OnnxInfer *f);
/* A constant's type, and its elements if they are few integers. */
OnnxShape onnx_shape_of_tensor(Check *c, const OnnxTensor *t);
#endif
