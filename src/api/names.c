/* Names of the choices that are enums. Contracts in include/qkv.h. */
#include <string.h>
#include "api/api_impl.h"
#include "backends/sdpa_choice.h"

static const char *const statuses[] = {"ok", "mismatch", "usage", "unreadable", "unsupported", "limit"};
static const OnnxProfile profiles[] = {[QKV_ONNX_ORT] = ONNX_FOR_ORT,
                                       [QKV_ONNX_SPEC] = ONNX_FOR_SPEC,
                                       [QKV_ONNX_OPENVINO] = ONNX_FOR_OPENVINO,
                                       [QKV_ONNX_TENSORRT] = ONNX_FOR_TENSORRT};
static const char *const kinds[] = {
    [QKV_PARAMETER] = "parameter", [QKV_BUFFER] = "buffer", [QKV_CONSTANT] = "constant"};

static const char *name_at(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n ? names[i] : NULL;
}

#define NAME_AT(names, i) name_at((names), sizeof(names) / sizeof *(names), (int)(i))

const char *qkv_status_name(qkv_status s) { return NAME_AT(statuses, s); }
const char *qkv_weight_kind_name(qkv_weight_kind k) { return NAME_AT(kinds, k); }

const char *qkv_sdpa_backend_name(qkv_sdpa_backend b)
{
    return (int)b >= 0 && (int)b < SDPA_BACKENDS ? sdpa_backend_name((SdpaBackend)b) : NULL;
}

const OnnxProfile *api_onnx_profile(qkv_onnx_profile p)
{
    return (unsigned)p < sizeof profiles / sizeof *profiles ? &profiles[p] : NULL;
}

const char *qkv_onnx_profile_name(qkv_onnx_profile p)
{
    const OnnxProfile *own = api_onnx_profile(p);
    return own ? onnx_profile_name(*own) : NULL;
}

int qkv_onnx_profile_from_name(const char *name, qkv_onnx_profile *out)
{
    const char *known;
    for (qkv_onnx_profile i = 0; name && (known = qkv_onnx_profile_name(i)); i++)
        if (!strcmp(name, known)) {
            if (out) *out = i;
            return 1;
        }
    return 0;
}
