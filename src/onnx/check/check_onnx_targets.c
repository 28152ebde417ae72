/* What targets refuse of an ONNX node. ONNX Runtime's CPU kernels stand in ort_kernels.def by op,
 * versions and types (tools/onnx_schemas.py).
 *
 *     node 'm' (MatMul): inputs are BFLOAT16; its kernels take FLOAT, DOUBLE, INT32 ...      Q602
 *
 * A kernel that is open at its end is for the version it begins with; an op without kernel that the standard defines
 * by others is spelled out; float16 runs through casts where only float32 has a kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "onnx/check/check_onnx.h"
#include "onnx/check/infer.h"

typedef struct Kernel {
    const char *op;
    int from, to;
    const char *types;
} Kernel;

static const Kernel kernels[] = {
#define ORT_KERNEL(op, from, to, types) {op, from, to, types},
#include "onnx/check/ort_kernels.def"
#undef ORT_KERNEL
};

static const char *const functions[] = {
#define ONNX_FUNCTION(op) op,
#include "onnx/check/ort_kernels.def"
#undef ONNX_FUNCTION
};
enum { KERNELS = sizeof kernels / sizeof *kernels, FUNCTIONS = sizeof functions / sizeof *functions };

static int by_op(const void *key, const void *item) { return strcmp(key, ((const Kernel *)item)->op); }
static int by_name(const void *key, const void *item) { return strcmp(key, *(const char *const *)item); }

/* The element type that the node's inputs and outputs give to a type's name; 0 when none does. */
static int bound_to(const OnnxInfer *f, const char *type, size_t n)
{
    OnnxParam p;
    for (int i = 0; i < f->node->ninput; i++)
        if (f->in[i] && f->in[i]->kind == ONNX_TENSOR && onnx_param(f->schema->in, i, &p) && strlen(p.type) == n &&
            !memcmp(p.type, type, n))
            return f->in[i]->elem;
    for (int i = 0; i < f->node->noutput; i++)
        if (f->out[i].kind == ONNX_TENSOR && onnx_param(f->schema->out, i, &p) && strlen(p.type) == n &&
            !memcmp(p.type, type, n))
            return f->out[i].elem;
    return 0;
}

/* Does the kernel take these types? half: float16 counts as float32. *odd: the type that it does not take. */
static bool takes(const Kernel *k, const OnnxInfer *f, int *odd)
{
    for (const char *p = k->types; *p;) {
        const char *colon = strchr(p, ':'), *end = strchr(p, ' ');
        if (!colon) return true;
        uint64_t mask = strtoull(colon + 1, NULL, 16);
        int elem = bound_to(f, p, (size_t)(colon - p));
        bool ok = !elem || elem > 63 || mask >> elem & 1 || (elem == ONNX_FLOAT16 && mask >> ONNX_FLOAT & 1);
        if (!ok) {
            *odd = elem;
            return false;
        }
        if (!end) return true;
        p = end + 1;
    }
    return true;
}

static void check_ort(Check *c, const OnnxInfer *f)
{
    char op[160];
    int odd = 0, since = f->schema->since;
    bool any = false;
    snprintf(op, sizeof op, "%s:%s", f->node->domain, f->node->op);
    if (!strncmp(f->node->domain, "ai.onnx.preview", 15)) {
        check_add(c, Q(601), f->place, "ONNX Runtime has no domain %s", f->node->domain);
        return;
    }
    if (!strcmp(op, ":Attention") &&
        (onnx_attr(f->node, "left_window_size") || onnx_attr(f->node, "right_window_size"))) {
        check_add(c, Q(601), f->place, "ONNX Runtime has no Attention with a window");
        return;
    }
    const Kernel *k = bsearch(op, kernels, KERNELS, sizeof *kernels, by_op);
    char body[180];
    snprintf(body, sizeof body, "%s@%d", op, since);
    bool function = bsearch(body, functions, FUNCTIONS, sizeof *functions, by_name) != NULL;
    while (k && k > kernels && !strcmp(k[-1].op, op)) k--;
    for (; k && k < kernels + KERNELS && !strcmp(k->op, op); k++) {
        if (k->from != since && (k->to == INT32_MAX || k->from > since || k->to < since)) continue;
        any = true;
        if (takes(k, f, &odd)) return;
    }
    if (!*f->node->domain && !strcmp(f->node->op, "Constant")) return; /* they become initializers */
    if (function && odd != ONNX_BFLOAT16) return; /* what it is spelled in has no kernels for bfloat16 either */
    if (any) check_add(c, Q(602), f->place, "no CPU kernel of ONNX Runtime takes %s here", onnx_type_name(odd));
    else check_add(c, Q(601), f->place, "ONNX Runtime's CPU provider has no %.60s of version %d", f->node->op, since);
}

/* ------------------------------------------------------------------ attention, and other targets */

static void check_ort_attention(Check *c, const OnnxInfer *f)
{
    const OnnxShape *q = f->in[0], *mask = f->node->ninput > 3 ? f->in[3] : NULL;
    if (!mask || mask->rank < 2 || !q || q->rank < 3) return;
    OnnxSize rows = mask->dim[mask->rank - 2], queries = q->rank == 4 ? q->dim[2] : q->dim[1];
    if (rows.kind == SIZE_NUMBER && rows.v == 1 && !(queries.kind == SIZE_NUMBER && queries.v == 1))
        check_add(c, Q(603), f->place, "attn_mask has one row for all queries");
}

static void check_trt_attention(Check *c, const OnnxInfer *f)
{
    const OnnxShape *q = f->in[0];
    const OnnxAttr *heads = onnx_attr(f->node, "q_num_heads");
    if (!q || q->rank < 3 || q->dim[q->rank - 1].kind != SIZE_NUMBER) return;
    int64_t d = q->dim[q->rank - 1].v;
    if (q->rank == 3 && heads && heads->i > 0) d /= heads->i;
    if (d < 16 || d > 256 || d % 8)
        check_add(c, Q(604), f->place, "head size %lld; TensorRT fuses multiples of 8 from 16 to 256", (long long)d);
    if (q->elem == ONNX_FLOAT) check_add(c, Q(604), f->place, "float32; TensorRT fuses float16, bfloat16 and int8");
}

/* Scales of blocks. Sizes that the checker lost sight of may be known to OpenVINO. */
static void check_openvino_blocks(Check *c, const OnnxInfer *f)
{
    const OnnxAttr *block = onnx_attr(f->node, "block_size");
    const OnnxShape *x = f->in[0];
    if (!block || block->i <= 0 || !x) return;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i].kind != SIZE_SYMBOL) continue;
        check_add(c, Q(608), f->place, "axis %d of its input varies; OpenVINO reads blocks of known sizes", i);
        return;
    }
    const bool zero = f->node->ninput > 2 && *f->node->input[2];
    if (!strcmp(f->node->op, "QuantizeLinear") && !zero)
        check_add(c, Q(608), f->place, "blocks without a zero point, which OpenVINO needs here");
}

static bool target_has(unsigned target, int elem)
{
    uint64_t none = 1ull << ONNX_COMPLEX64 | 1ull << ONNX_COMPLEX128;
    if (target == TARGET_TENSORRT)
        none |= 1ull << ONNX_STRING | 1ull << ONNX_INT16 | 1ull << ONNX_UINT16 | 1ull << ONNX_UINT32 |
                1ull << ONNX_UINT64;
    return elem < 0 || elem > 63 || !(none >> elem & 1);
}

void check_onnx_targets(Check *c, const OnnxInfer *f)
{
    bool attention = !strcmp(f->node->op, "Attention") && !*f->node->domain && f->node->ninput >= 3;
    if (c->targets & TARGET_ORT) {
        check_ort(c, f);
        if (attention) check_ort_attention(c, f);
    }
    if (c->targets & TARGET_TENSORRT && attention) check_trt_attention(c, f);
    if (c->targets & (TARGET_TENSORRT | TARGET_OPENVINO) && !strcmp(f->node->domain, "com.microsoft"))
        check_add(c, Q(601), f->place, "com.microsoft::%.60s is ONNX Runtime's own", f->node->op);
    if (c->targets & TARGET_OPENVINO && f->node->ninput) check_openvino_blocks(c, f);
    for (int i = 0; c->targets & TARGET_TENSORRT && i < f->node->ninput; i++)
        if (f->in[i] && f->in[i]->elem == ONNX_DOUBLE) {
            check_add(c, Q(607), f->place, "input %d is DOUBLE, which TensorRT takes as FLOAT", i);
            break;
        }
    for (unsigned t = TARGET_OPENVINO; t <= TARGET_TENSORRT; t <<= 1)
        for (int i = 0; c->targets & t && i < f->node->ninput; i++)
            if (f->in[i] && !target_has(t, f->in[i]->elem)) {
                check_add(c, Q(602), f->place, "input %d is %s, which %s does not have", i,
                          onnx_type_name(f->in[i]->elem), t == TARGET_OPENVINO ? "OpenVINO" : "TensorRT");
                break;
            }
}
