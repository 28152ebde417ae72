/* Names of the choices that are enums. Contracts in include/qkv.h. */
#include <string.h>
#include "api/api_impl.h"
#include "backends/sdpa_choice.h"
#include "grad/grad.h"
#include "quantize/observe.h"
#include "rewrite/rewrite.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "verify/check.h"

static const char *const statuses[] = {"ok", "mismatch", "usage", "unreadable", "unsupported", "limit"};
static const OnnxProfile profiles[] = {[QKV_ONNX_ORT] = ONNX_FOR_ORT,
                                       [QKV_ONNX_SPEC] = ONNX_FOR_SPEC,
                                       [QKV_ONNX_OPENVINO] = ONNX_FOR_OPENVINO,
                                       [QKV_ONNX_TENSORRT] = ONNX_FOR_TENSORRT};
static const char *const kinds[] = {
    [QKV_PARAMETER] = "parameter", [QKV_BUFFER] = "buffer", [QKV_CONSTANT] = "constant"};
static const char *const graph_formats[] = {
    [QKV_GRAPH_TEXT] = "text", [QKV_GRAPH_DOT] = "dot", [QKV_GRAPH_SVG] = "svg"};
static const char *const optimizers[] = {
    [OPTIMIZER_ADAMW] = "adamw", [OPTIMIZER_ADAM] = "adam", [OPTIMIZER_SGD] = "sgd"};
static const char *const schedules[] = {[SCHEDULE_CONSTANT] = "constant",
                                        [SCHEDULE_LINEAR] = "linear",
                                        [SCHEDULE_COSINE] = "cosine",
                                        [SCHEDULE_STEP] = "step"};
static const char *const decompositions[] = {
    [DECOMPOSE_NONE] = "none", [DECOMPOSE_CORE] = "core", [DECOMPOSE_MATH] = "math"};
static const char *const recomputations[] = {
    [RECOMPUTE_NONE] = "none", [RECOMPUTE_CHEAP] = "cheap", [RECOMPUTE_BLOCKS] = "blocks"};

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "values agree")
SAME(QKV_OPTIMIZER_ADAM, OPTIMIZER_ADAM);
SAME(QKV_OPTIMIZER_SGD, OPTIMIZER_SGD);
SAME(QKV_SCHEDULE_LINEAR, SCHEDULE_LINEAR);
SAME(QKV_SCHEDULE_COSINE, SCHEDULE_COSINE);
SAME(QKV_SCHEDULE_STEP, SCHEDULE_STEP);
SAME(QKV_DECOMPOSE_CORE, DECOMPOSE_CORE);
SAME(QKV_DECOMPOSE_MATH, DECOMPOSE_MATH);
SAME(QKV_RECOMPUTE_CHEAP, RECOMPUTE_CHEAP);
SAME(QKV_RECOMPUTE_BLOCKS, RECOMPUTE_BLOCKS);
SAME(QKV_RECOMPOSE, 1 << PHASE_RECOMPOSE);
SAME(QKV_CONVERT, 1 << PHASE_CONVERT);
SAME(QKV_FUSE, 1 << PHASE_FUSE);
SAME(QKV_TARGET_QKV, TARGET_QKV);
SAME(QKV_TARGET_ORT, TARGET_ORT);
SAME(QKV_TARGET_OPENVINO, TARGET_OPENVINO);
SAME(QKV_TARGET_TENSORRT, TARGET_TENSORRT);

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

const char *qkv_graph_format_name(qkv_graph_format f) { return NAME_AT(graph_formats, f); }
const char *qkv_optimizer_name(qkv_optimizer o) { return NAME_AT(optimizers, o); }
const char *qkv_schedule_name(qkv_schedule s) { return NAME_AT(schedules, s); }
const char *qkv_decompose_name(qkv_decompose d) { return NAME_AT(decompositions, d); }
const char *qkv_recompute_name(qkv_recompute r) { return NAME_AT(recomputations, r); }

const char *qkv_calibration_name(qkv_calibration c)
{
    return (unsigned)c < CALIBRATIONS ? calibration_name((Calibration)c) : NULL;
}

/* Sums of these are made: the values are bits. */
const char *qkv_phase_name(qkv_phase p)
{
    int i = 0;
    while (i < PHASES && (int)p != 1 << i) i++;
    return i < PHASES ? phase_name((Phase)i) : NULL;
}

const char *qkv_target_name(qkv_target t) { return target_name((unsigned)t); }

/* From the names: next(value) is the value after it. */
#define ONE_MORE(value) ((value) + 1)
#define NEXT_BIT(value) ((value) << 1)
#define FROM_NAME(choice, first, next)                                                                                 \
    int qkv_##choice##_from_name(const char *name, qkv_##choice *out)                                                  \
    {                                                                                                                  \
        const char *known;                                                                                             \
        for (int i = (first); name && (known = qkv_##choice##_name((qkv_##choice)i)); i = next(i))                     \
            if (!strcmp(name, known)) {                                                                                \
                if (out) *out = (qkv_##choice)i;                                                                       \
                return 1;                                                                                              \
            }                                                                                                          \
        return 0;                                                                                                      \
    }

FROM_NAME(onnx_profile, 0, ONE_MORE)
FROM_NAME(graph_format, 0, ONE_MORE)
FROM_NAME(optimizer, 0, ONE_MORE)
FROM_NAME(schedule, 0, ONE_MORE)
FROM_NAME(decompose, 0, ONE_MORE)
FROM_NAME(recompute, 0, ONE_MORE)
FROM_NAME(calibration, 0, ONE_MORE)
FROM_NAME(phase, 1, NEXT_BIT)
FROM_NAME(target, 1, NEXT_BIT)

bool api_known(const char *name, const char *choice, int value, Err *err)
{
    return name || fail(err, E_USAGE, "%d is not a value of %s", value, choice);
}
