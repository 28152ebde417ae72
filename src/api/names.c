/* Names of the choices that are enums. Contracts in include/qkv.h. */
#include <string.h>
#include "api/api_impl.h"
#include "backends/sdpa_choice.h"

static const char *const statuses[] = {"ok", "mismatch", "usage", "unreadable", "unsupported", "limit"};
static const char *const profiles[] = {
    [QKV_ONNX_ORT] = "ort", [QKV_ONNX_SPEC] = "spec", [QKV_ONNX_OPENVINO] = "openvino", [QKV_ONNX_TENSORRT] = "tensorrt"};
static const char *const kinds[] = {
    [QKV_PARAMETER] = "parameter", [QKV_BUFFER] = "buffer", [QKV_CONSTANT] = "constant"};

static const char *name_at(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n ? names[i] : NULL;
}

#define NAME_AT(names, i) name_at((names), sizeof(names) / sizeof *(names), (int)(i))

const char *qkv_status_name(qkv_status s) { return NAME_AT(statuses, s); }
const char *qkv_onnx_profile_name(qkv_onnx_profile p) { return NAME_AT(profiles, p); }
const char *qkv_weight_kind_name(qkv_weight_kind k) { return NAME_AT(kinds, k); }

const char *qkv_sdpa_backend_name(qkv_sdpa_backend b)
{
    return (int)b >= 0 && (int)b < SDPA_BACKENDS ? sdpa_backend_name((SdpaBackend)b) : NULL;
}

int qkv_onnx_profile_from_name(const char *name, qkv_onnx_profile *out)
{
    for (int i = 0; name && NAME_AT(profiles, i); i++)
        if (!strcmp(name, profiles[i])) {
            if (out) *out = (qkv_onnx_profile)i;
            return 1;
        }
    return 0;
}
