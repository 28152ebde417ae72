/* qkv_model_joint: a model and its gradients as one model. */
#include <stdlib.h>
#include <string.h>
#include "api_impl.h"
#include "base/buf.h"
#include "format/json.h"
#include "grad/grad.h"
#include "optimise.h"

static void put_dims(const Graph *g, const Value *v, Buf *out)
{
    buf_puts(out, "[");
    for (int i = 0; i < v->rank; i++) {
        Buf one = {0};
        ex_print(g->ex, v->dim[i], &one);
        if (i) buf_puts(out, ", ");
        if (ex_is_int(v->dim[i])) buf_puts(out, one.data);
        else json_put_string(out, one.data ? one.data : "");
        buf_free(&one);
    }
    buf_puts(out, "]");
}

static bool has_gradient(const Graph *g, const Value *v)
{
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].gradient_of == v) return true;
    return false;
}

static void put_report(const Graph *g, int before, bool inputs_only, Buf *out)
{
    const char *comma = "";
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].loss) {
            buf_puts(out, "{\"loss\": ");
            json_put_string(out, g->output[i].name);
        }
    buf_printf(out, ", \"nodes_before\": %d, \"nodes_after\": %d, \"gradients\": [", before, g->nnodes);
    for (int i = 0; i < g->noutput; i++) {
        const Value *v = g->output[i].value, *of = g->output[i].gradient_of;
        if (!of) continue;
        buf_printf(out, "%s{\"output\": ", comma);
        json_put_string(out, g->output[i].name);
        buf_printf(out, ", \"%s\": ", of->kind == V_INPUT ? "input" : "parameter");
        json_put_string(out, of->kind == V_INPUT ? value_label(of) : of->fqn ? of->fqn : of->name);
        buf_printf(out, ", \"dtype\": \"%s\", \"shape\": ", dtype_name(v->dtype));
        put_dims(g, v, out);
        buf_puts(out, "}");
        comma = ", ";
    }
    buf_puts(out, "], \"without\": [");
    comma = "";
    for (int i = 0; i < g->nweight && !inputs_only; i++) {
        const Value *w = g->weight[i];
        if (w->weight != W_PARAMETER || w->frozen || has_gradient(g, w)) continue;
        buf_puts(out, comma);
        json_put_string(out, w->fqn ? w->fqn : w->name);
        comma = ", ";
    }
    buf_puts(out, "]}");
}

static bool read_decompose(const char *name, Decompose *out, Err *err)
{
    static const char *const names[] = {[DECOMPOSE_NONE] = "none", [DECOMPOSE_CORE] = "core", [DECOMPOSE_MATH] = "math"};
    *out = DECOMPOSE_NONE;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *out = (Decompose)i;
            return true;
        }
    return !name || fail(err, E_USAGE, "decompose: found '%s', expected none, core or math", name);
}

qkv_model *qkv_model_joint(const qkv_model *m, const qkv_joint_options *options, char **report, qkv_error *err)
{
    qkv_joint_options o = {0};
    if (options) memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
    if (report) *report = NULL;
    Err e = {0};
    JointOptions joint = {.loss = o.loss, .inputs = o.inputs, .ninputs = o.n_inputs, .inputs_only = o.inputs_only != 0};
    if (!read_decompose(o.decompose, &joint.decompose, &e)) return api_null(&e, err);
    const Graph *from = m->program.graph;
    if (from->bodies || m->program.source->prepared) {
        fail(&e, E_UNSUPPORTED, from->bodies ? "a model with loops or branches that depend on data has no joint graph" : "a packed model has no joint graph: take the model that was packed");
        return api_null(&e, err);
    }
    Graph *g = graph_copy(from, &e);
    if (!g) return api_null(&e, err);
    if (!graph_joint(g, &joint, &e)) {
        graph_free(g);
        return api_null(&e, err);
    }
    qkv_model *made = api_model_of(g, m->path, m, &e);
    Buf text = {0};
    if (made && report) {
        put_report(g, from->nnodes, joint.inputs_only, &text);
        *report = text.failed ? NULL : text.data;
    }
    if (made && report && !*report) {
        buf_free(&text);
        qkv_model_free(made);
        made = NULL;
        fail(&e, E_LIMIT, "out of memory");
    }
    return made ? made : api_null(&e, err);
}
