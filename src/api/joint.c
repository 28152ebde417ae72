/* qkv_model_joint: a model and its gradients as one model. */
#include <string.h>
#include "api/api_impl.h"
#include "backends/pair_kernels.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "grad/grad.h"
#include "ir/copy.h"
#include "program/describe.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "plan/plan.h"
#include "shape/solve.h"

/* ------------------------------------------------------------------ what a step takes */

typedef struct Cost {
    bool known;
    double memory;       /* bytes of results alive at once, as the planner lays them out */
    double flops, bytes; /* of all steps (plan/work.h) */
} Cost;

/* Sizes for which costs are told: the given ones, the file's examples, the smallest there are. */
static bool example_sizes(const Graph *g, const qkv_joint_options *o, Binding *b, Err *err)
{
    return choose_example_sizes(g, o->dim_names, o->dims, o->n_dims, b, err);
}

/* Of the graph as a session would run it; unknown where sizes are data-dependent. */
static bool cost_of(const Program *p, const qkv_joint_options *o, Cost *c, Err *err)
{
    const Graph *g;
    const Fusion *fusion;
    Binding b;
    Err ignored = {0};
    TRY(program_for_runs(p, PASSES_RUN, &g, &fusion, err) && example_sizes(g, o, &b, err));
    const Tensor **given = mem_zeroed((size_t)g->next_id + 1, sizeof *given);
    unsigned char *stable = mem_zeroed((size_t)g->next_id + 1, 1);
    for (int i = 0; given && stable && i < g->nweight; i++) {
        given[g->weight[i]->id] = g->weight[i]->data;
        stable[g->weight[i]->id] = !graph_writes(g, g->weight[i]);
    }
    PlanInput in = {.graph = g, .fusion = fusion, .given = given, .stable = stable};
    Plan *plan = given && stable ? plan_build(&in, &b, &ignored) : NULL;
    *c = (Cost){.known = plan != NULL, .memory = plan ? (double)plan->arena_bytes : 0};
    for (int i = 0; plan && i < plan->nsteps; i++) {
        Work w = work_of(&plan->step[i].call);
        c->flops += w.flops;
        c->bytes += w.bytes;
    }
    if (plan) plan_free(plan);
    mem_free(given);
    mem_free(stable);
    binding_free(&b);
    return true;
}

static void put_cost(const char *key, const Cost *c, Buf *out)
{
    jw_key(out, key);
    if (c->known) jw_put(out, "{'memory': %.0f, 'flops': %.0f, 'bytes': %.0f}", c->memory, c->flops, c->bytes);
    else jw_raw(out, NULL, "null");
}

/* But for the brace at the end. */
static void put_report(const Graph *g, int before, bool inputs_only, Buf *out)
{
    jw_report(out);
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].loss) jw_text(out, "loss", g->output[i].name);
    jw_put(out, "'nodes_before': %d, 'nodes_after': %d, 'gradients': [", before, g->nnodes);
    for (int i = 0; i < g->noutput; i++) {
        const Value *v = g->output[i].value, *of = g->output[i].gradient_of;
        if (!of) continue;
        jw_put(out, "{'output': %s", g->output[i].name);
        if (of->kind == V_INPUT) jw_text(out, "input", value_label(of));
        else jw_text(out, "parameter", of->fqn ? of->fqn : of->name);
        jw_text(out, "dtype", dtype_name(v->dtype));
        describe_sizes(g, "shape", v->rank, v->dim, out);
        jw_close(out, "}");
    }
    jw_put(out, "], 'without': [");
    bool *has = mem_zeroed((size_t)g->next_id + 1, sizeof *has); /* by value id: a gradient */
    for (int i = 0; has && i < g->noutput; i++)
        if (g->output[i].gradient_of) has[g->output[i].gradient_of->id] = true;
    out->failed |= !has;
    for (int i = 0; has && i < g->nweight && !inputs_only; i++) {
        const Value *w = g->weight[i];
        if (w->weight != W_PARAMETER || w->frozen || has[w->id]) continue;
        jw_text(out, NULL, w->fqn ? w->fqn : w->name);
    }
    mem_free(has);
    jw_close(out, "]");
}

/* ------------------------------------------------------------------ kernels of a device */

static void put_kernel(Buf *out, ExprPool *ex, const PairKernel *k)
{
    Buf text = {0};
    if (k->assumes) sdpa_print_condition(ex, k->assumes, &text);
    jw_put(out, "{'node': %s, 'backend': %s", k->node, sdpa_backend_name(k->backend));
    jw_text(out, "assumes", text.data);
    jw_text(out, "better", k->rule ? sdpa_backend_name(k->better) : NULL);
    jw_text(out, "rule", k->rule ? k->rule->name : NULL);
    jw_text(out, "what", k->rule ? k->rule->what : NULL);
    jw_close(out, "}");
    out->failed |= text.failed;
    buf_free(&text);
}

/* Which kernels the file names; out: the report's list. */
static bool choose_kernels(Graph *g, const qkv_joint_options *o, Buf *out, Err *err)
{
    SdpaDevice d;
    Binding bound = {0};
    PairKernel *list;
    int n;
    TRY(sdpa_device(o->device, o->cudnn, &d, err));
    Arena *arena = arena_create(0);
    bool ok = (arena || oom(err)) && binding_init(&bound, g->ex, err) &&
              bind_named(g, o->dim_names, o->dims, o->n_dims, &bound, err) &&
              pair_kernels(g, &d, &bound, arena, &list, &n, err);
    if (ok) {
        jw_open(out, NULL, '[');
        for (int i = 0; i < n; i++) put_kernel(out, g->ex, &list[i]);
        jw_close(out, "]");
    }
    binding_free(&bound);
    if (arena) arena_destroy(arena);
    return ok;
}

/* The joint graph of m as a model; NULL on error. */
static qkv_model *joint_of(const qkv_model *m, const JointOptions *options, const qkv_joint_options *o, Err *e)
{
    JointOptions joint = *options;
    Binding sizes = {0};
    Graph *g = graph_copy(m->program.graph, e);
    if (!g) return NULL;
    bool weighs = joint.recompute != RECOMPUTE_NONE, ok = !weighs || example_sizes(g, o, &sizes, e);
    joint.sizes = weighs && ok ? &sizes : NULL;
    ok = ok && passes_run(&(Pipeline){.graph = g, .joint = &joint, .differentiate = graph_joint}, PASSES_JOINT, e);
    if (joint.sizes) binding_free(&sizes);
    if (ok) return api_model_of(g, m->path, m, e);
    graph_free(g);
    return NULL;
}

/* What recomputing saves and costs: `made` beside the same graph without it. */
static bool put_recompute(const qkv_model *m, qkv_model *made, const JointOptions *options, const qkv_joint_options *o,
                          Buf *out, Err *e)
{
    JointOptions without = *options;
    Cost cost[2];
    without.recompute = RECOMPUTE_NONE;
    qkv_model *plain = joint_of(m, &without, o, e);
    bool ok = plain && cost_of(&plain->program, o, &cost[0], e) && cost_of(&made->program, o, &cost[1], e);
    Binding b;
    if (ok && example_sizes(made->program.graph, o, &b, e)) {
        jw_put(out, "'recompute': {'how': %s, 'sizes': {", qkv_recompute_name(o->recompute));
        for (int i = 0; i < expr_symbol_count(made->program.graph->ex); i++) {
            const Symbol *s = expr_symbol(made->program.graph->ex, i);
            if (s->source == SYM_INPUT && i < b.n && b.bound[i]) jw_int(out, s->name, b.value[i]);
        }
        jw_close(out, "}");
        put_cost("without", &cost[0], out);
        put_cost("with", &cost[1], out);
        jw_close(out, "}");
        binding_free(&b);
    } else {
        ok = false;
    }
    qkv_model_free(plain);
    return ok;
}

qkv_model *qkv_model_joint(const qkv_model *m, const qkv_joint_options *options, char **report, qkv_error *err)
{
    qkv_joint_options o = {0};
    Err e = api_begin();
    if (report) *report = NULL;
    if (!GIVEN(m) || !VERSIONED_TAKE(qkv_joint_options, n_dims, &o, options, &e) ||
        !GIVEN_TEXTS(o.inputs, o.n_inputs) || !GIVEN_TEXTS(o.dim_names, o.n_dims) || !GIVEN_LIST(o.dims, o.n_dims))
        return api_null(&e, err);
    JointOptions joint = {.loss = o.loss,
                          .decompose = (Decompose)o.decompose,
                          .recompute = (Recompute)o.recompute,
                          .inputs = o.inputs,
                          .ninputs = o.n_inputs,
                          .inputs_only = o.inputs_only != 0};
    if (!api_known(qkv_decompose_name(o.decompose), "qkv_decompose", (int)o.decompose, &e) ||
        !api_known(qkv_recompute_name(o.recompute), "qkv_recompute", (int)o.recompute, &e))
        return api_null(&e, err);
    const Graph *from = m->program.graph;
    if (m->program.source->prepared) {
        fail(&e, E_UNSUPPORTED, "a packed model has no joint graph: take the model that was packed");
        return api_null(&e, err);
    }
    qkv_model *made = joint_of(m, &joint, &o, &e);
    Buf text = {0}, kernels = {0};
    if (made && o.device && !choose_kernels(made->program.graph, &o, &kernels, &e)) {
        buf_free(&kernels);
        qkv_model_free(made);
        return api_null(&e, err);
    }
    if (made && report) {
        put_report(made->program.graph, from->nnodes, joint.inputs_only, &text);
        if (o.device) jw_text(&text, "device", o.device);
        if (o.device) jw_raw(&text, "attentions", kernels.data);
        if (joint.recompute != RECOMPUTE_NONE && !text.failed && !put_recompute(m, made, &joint, &o, &text, &e)) {
            buf_free(&text);
            buf_free(&kernels);
            qkv_model_free(made);
            return api_null(&e, err);
        }
        buf_puts(&text, "}");
        *report = text.failed ? NULL : text.data;
    }
    buf_free(&kernels);
    if (made && report && !*report) oom(&e);
    if (api_whole(made && e.code == E_OK, &e)) return made;
    buf_free(&text);
    if (report) *report = NULL;
    qkv_model_free(made);
    return api_null(&e, err);
}
