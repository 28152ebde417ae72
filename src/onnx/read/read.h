/* Reading an ONNX model: opset 13 and later (older ones as far as an op's meaning did not change), local functions,
 * subgraphs.
 *
 *     Source *s = onnx_import("model.onnx", NULL, err);
 *     ... s->graph ...                weights point into the mapped file and its external data
 *     source_close(s);
 *
 * The graph is in plain form (docs/IR.md): ONNX ops become ATen's. Sizes that ONNX computes with nodes (Shape, Gather,
 * Concat ...) become expressions over symbols, which carry the names of dim_param. Initializers become parameters
 * (floats) or buffers, also where they are listed among the inputs. If with a condition that is known is replaced by
 * its branch, Loop and Scan with a known count by their turns. Errors: E_FORMAT, E_IO, E_LIMIT; E_UNSUPPORTED names
 * every op that is missing, its first node and how often.
 */
#ifndef QKV_ONNX_READ_READ_H
#define QKV_ONNX_READ_READ_H
#include "model/source.h"

/* Inputs whose values are known when the model is loaded: they become constants, so that shapes,
 * axes and counts may come from them. */
typedef struct Fixed {
    const char *const *name;
    const Tensor *value; /* copied */
    int n;
} Fixed;

Source *onnx_import(const char *path, const Fixed *fixed, Err *err);
#endif
