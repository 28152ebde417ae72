/* Writing a graph as an ONNX file, as ../../docs/ONNX.md describes it.
 *
 *     OnnxOptions o = {.opset = 18, .profile = ONNX_FOR_ORT};
 *     Buf report = {0};
 *     if (!onnx_save(g, "out.onnx", &o, &report, err)) ...      the file is there whole, or not at all
 *
 * The same graph gives the same bytes. Weights go from where they are to the file. The report is a JSON object, written
 * also when ops are missing. Errors: E_IO, E_LIMIT, E_USAGE (opset), E_UNSUPPORTED: names every node that ONNX, or the
 * runtime of the profile, cannot express. Sizes that only the file needs are made in g's pool: the graph means the same
 * before and after.
 */
#ifndef QKV_ONNX_WRITE_WRITE_H
#define QKV_ONNX_WRITE_WRITE_H
#include "base/buf.h"
#include "ir/graph.h"

/* For whom the file is: the standard, or what a runtime takes and runs right. */
typedef enum OnnxProfile {
    ONNX_FOR_SPEC,
    ONNX_FOR_ORT,
    ONNX_FOR_OPENVINO,
    ONNX_FOR_TENSORRT,
    ONNX_PROFILES
} OnnxProfile;

enum { ONNX_OPSET_MIN = 13, ONNX_OPSET_MAX = 25, ONNX_OPSET_DEFAULT = 18 };

typedef struct OnnxOptions {
    int opset; /* 0: the first from ONNX_OPSET_DEFAULT on that has what the graph needs */
    OnnxProfile profile;
    const char *torch_version; /* of the file that the graph came from; NULL or "": unknown */
    const char *certificate;   /* NULL, or text for the file's metadata (certify/certify.h) */
    const char *certificate_name;
    int external;              /* as OnnxWriteOptions (onnx/wire/onnx.h): 0 outside above 2 GiB, 1 always, -1 never */
} OnnxOptions;

const char *onnx_profile_name(OnnxProfile p);
/* Report keys: opset, profile, nodes, weights, attentions {op, decomposed}, missing [{node, op, reason}],
 * warnings [{node, op, rule, reason}], notes [..], dropped [..]. */
bool onnx_save(const Graph *g, const char *path, const OnnxOptions *options, Buf *report, Err *err);
/* The first opset that has g's quantizers, few bits and what else came late: below it they are refused, or spelled out
 * by other ops. */
int onnx_least_opset(const Graph *g, OnnxProfile p);
/* How a row goes out, for tests: false = not at all, *why then says why, NULL = no reason was given. */
bool onnx_emits(OpId op, const char **why);
#endif
