/* Which ONNX Runtime CPU kernel would take a node: ort_kernels.def lists them by op, versions and types (tools/onnx_schemas.py).
 *
 *     node 'm' (MatMul): inputs are BFLOAT16; its kernels take FLOAT, DOUBLE, INT32 ...      Q602
 *
 * A kernel that is open at its end is for the version it begins with; an op without kernel that the standard defines by others is spelled out;
 * float16 runs through casts where only float32 has a kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "verify/check_onnx.h"
#include "verify/onnx_infer.h"

typedef struct Kernel {
    const char *op;
    int from, to;
    const char *types;
} Kernel;

static const Kernel kernels[] = {
#define ORT_KERNEL(op, from, to, types) {op, from, to, types},
#include "verify/ort_kernels.def"
#undef ORT_KERNEL
};

static const char *const functions[] = {
#define ONNX_FUNCTION(op) op,
#include "verify/ort_kernels.def"
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
        if (f->in[i] && f->in[i]->kind == ONNX_TENSOR && onnx_param(f->schema->in, i, &p) && strlen(p.type) == n && !memcmp(p.type, type, n)) return f->in[i]->elem;
    for (int i = 0; i < f->node->noutput; i++)
        if (f->out[i].kind == ONNX_TENSOR && onnx_param(f->schema->out, i, &p) && strlen(p.type) == n && !memcmp(p.type, type, n)) return f->out[i].elem;
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

void check_ort(Check *c, const OnnxInfer *f)
{
    char op[160];
    int odd = 0, since = f->schema->since;
    bool any = false;
    snprintf(op, sizeof op, "%s:%s", f->node->domain, f->node->op);
    if (!strncmp(f->node->domain, "ai.onnx.preview", 15)) {
        check_add(c, Q(601), f->place, "ONNX Runtime has no domain %s", f->node->domain);
        return;
    }
    if (!strcmp(op, ":Attention") && (onnx_attr(f->node, "left_window_size") || onnx_attr(f->node, "right_window_size"))) {
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
