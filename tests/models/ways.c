/* Ways to run a model. Contract in ways.h. */
#include "ways.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const Way ways[WAYS] = {{"one step a node", NULL, false, true, 1, QKV_NONE},
                        {"optimised", NULL, false, false, 1, QKV_NONE},
                        {"two threads", NULL, false, false, 2, QKV_NONE},
                        {"rewritten", NULL, true, false, 1, QKV_NONE},
                        {"rewritten, one step a node", NULL, true, true, 1, QKV_NONE},
                        {"saved", "saved.pt2", false, true, 1, QKV_NONE},
                        {"rewritten and saved", "saved.pt2", true, true, 1, QKV_NONE},
                        {"packed", "packed.qkv", false, false, 1, QKV_NONE},
                        {"ONNX", "saved.onnx", false, true, 1, QKV_NONE},
                        {"rewritten ONNX", "saved.onnx", true, false, 1, QKV_NONE},
                        {"bf16", NULL, false, false, 1, QKV_BF16}};

qkv_model *open_way(const Way *w, const char *folder, const char *source, qkv_error *e)
{
    char path[1024];
    qkv_load_options o = {.struct_size = sizeof o, .compute = w->compute};
    qkv_rewrite_options r = {.struct_size = sizeof r, .prove = 1, .exact_masked_rows = 1};
    qkv_model *m = qkv_model_load(source, &o, e), *next = m;
    if (m && w->rewritten) {
        next = qkv_model_rewrite(m, &r, NULL, e);
        qkv_model_free(m);
        m = next;
    }
    if (!m || !w->ending) return m;
    snprintf(path, sizeof path, "%s/%s", folder, w->ending);
    qkv_status s = strstr(path, ".pt2")   ? qkv_model_save(m, path, e)
                   : strstr(path, ".qkv") ? qkv_model_pack(m, path, NULL, e)
                                          : qkv_model_save_onnx(m, path, NULL, NULL, e);
    qkv_model_free(m);
    return s == QKV_OK ? qkv_model_load(path, NULL, e) : NULL;
}

Tensor tensor_of_output(qkv_session *s, int k)
{
    qkv_tensor q;
    if (qkv_session_output(s, k, &q, NULL) != QKV_OK) abort();
    Tensor t = tensor_of((DType)q.dtype, q.rank, q.shape, q.data);
    for (int d = 0; q.strides && d < q.rank; d++) t.stride[d] = q.strides[d];
    return t;
}

double difference(const Tensor *got, const Tensor *want)
{
    double peak = 0, most = 0;
    if (got->rank != want->rank || got->dtype != want->dtype) return -1;
    for (int d = 0; d < want->rank; d++)
        if (got->shape[d] != want->shape[d]) return -1;
    for (int64_t i = 0; i < tensor_numel(want); i++) {
        double a = tensor_get(got, i), b = tensor_get(want, i);
        if (isnan(a) != isnan(b) || isinf(a) != isinf(b)) return -1;
        if (!isfinite(a)) continue;
        peak = fmax(peak, fabs(b));
        most = fmax(most, fabs(a - b));
    }
    return most == 0 ? 0 : most / fmax(peak, 1e-2);
}
