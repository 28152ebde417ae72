/* Opsets 13 to 16, for TensorRT 8 and old runtimes: what the standard did not have yet. From opset 17 on, functions of
 * ops know themselves what they may use.
 *
 *     check_opset(o, "GridSample", n, in)       refuses the graph node: "ONNX has GridSample from opset 16 on"
 *     onnx_least_opset(g, profile)              21: a quantizer of g has a scale a block
 */
#include <string.h>
#include "onnx/check/schema.h"
#include "onnx/write/write_impl.h"
#include "base/mem.h"

enum { CHECKED_BELOW = 17 };

bool opset_open(Onnx *o)
{
    if (o->opt.opset >= CHECKED_BELOW) return true;
    o->schemas = mem_zeroed(1, sizeof *o->schemas);
    return (o->schemas && onnx_schemas(o->schemas)) || oom(o->err);
}

void opset_close(Onnx *o)
{
    if (o->schemas) onnx_schemas_free(o->schemas);
    mem_free(o->schemas);
    o->schemas = NULL;
}

/* Is t among the types of the i-th input of this version of the op? */
static bool takes(const OnnxSchema *s, int i, DType t)
{
    OnnxParam p;
    const OnnxTypes *types = onnx_param(s->in, i, &p) ? onnx_types(s, p.type) : NULL;
    return !types || types->tensor >> dtype_to_onnx(t) & 1;
}

bool opset_takes(const Onnx *o, const TypeRule *r, DType t)
{
    int later, i = 0;
    const char *op = r->op;
    const OnnxSchema *s = o->schemas ? onnx_schema(o->schemas, "", op, o->opt.opset, &later) : NULL;
    while (i < 31 && !(r->inputs >> i & 1)) i++;
    return !s || takes(s, i, t);
}

/* The first opset whose version of the op has the attribute, and takes t as input i (below 0: any). */
static int first_with(const Onnx *o, const char *op, const char *attr, int i, DType t)
{
    int later;
    for (int opset = o->opt.opset + 1; opset <= ONNX_OPSET_MAX; opset++) {
        bool required;
        const OnnxSchema *s = onnx_schema(o->schemas, "", op, opset, &later);
        if (s && (!attr || onnx_schema_attr(s, attr, &required)) && (i < 0 || takes(s, i, t))) return opset;
    }
    return 0;
}

static void say_later(Onnx *o, const char *what, const char *op, int opset)
{
    if (opset) refuse(o, "ONNX has %s%s from opset %d on", what, op, opset);
    else refuse(o, "ONNX has no %s%s at opset %d", what, op, o->opt.opset);
}

void check_opset(Onnx *o, const char *op, int n, const Ref *in)
{
    int later;
    bool required;
    char what[96];
    const OnnxSchema *s = o->schemas ? onnx_schema(o->schemas, "", op, o->opt.opset, &later) : NULL;
    if (!o->schemas) return;
    if (!s) {
        say_later(o, "", op, later);
        return;
    }
    if (n > s->max_in) refuse(o, "ONNX's %s takes at most %d inputs at opset %d", op, s->max_in, o->opt.opset);
    for (int i = 0; i < o->nattr; i++) {
        if (onnx_schema_attr(s, o->attr[i].name, &required)) continue;
        snprintf(what, sizeof what, "'%.40s' of ", o->attr[i].name);
        say_later(o, what, op, first_with(o, op, o->attr[i].name, -1, DT_NONE));
    }
    for (int i = 0; i < n; i++) {
        if (!*in[i].name || in[i].t == DT_NONE || dtype_is_complex(in[i].t) || takes(s, i, in[i].t)) continue;
        snprintf(what, sizeof what, "%s in ", dtype_name(in[i].t));
        say_later(o, what, op, first_with(o, op, NULL, i, in[i].t));
    }
}

/* ------------------------------------------------------------------ the least */

typedef struct Least {
    OnnxProfile profile;
    int opset;
} Least;

static void at_least(Least *l, int opset) { l->opset = opset > l->opset ? opset : l->opset; }

static void look_at(void *user, Value **slot)
{
    Least *l = user;
    at_least(l, dtype_since(l->profile, (*slot)->dtype));
}

static void look_at_nodes(const Graph *g, Least *l)
{
    for (const Node *n = g->first; n; n = n->next) {
        if (n->op->id == OP_quantize_linear || n->op->id == OP_dequantize_linear)
            at_least(l, quantizer_since(l->profile, n));
        if (n->op->id == OP_grid_sampler && arg_v(n, 0)->rank != 4) at_least(l, SAMPLES_VOLUMES);
        node_each_operand((Node *)(uintptr_t)n, look_at, l);
        for (int i = 0; i < n->op->schema->nparams; i++) {
            if (n->arg[i].kind == ARG_DTYPE) at_least(l, dtype_since(l->profile, n->arg[i].dtype));
            if (n->arg[i].kind == ARG_GRAPH) look_at_nodes(n->arg[i].g, l);
        }
    }
}

int onnx_least_opset(const Graph *g, OnnxProfile p)
{
    Least l = {p, ONNX_OPSET_MIN};
    look_at_nodes(g, &l);
    return l.opset;
}
