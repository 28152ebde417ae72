/* Loops and branches as ONNX's Loop and If. The rows: src/op/control.def.
 *
 * A body is written as a graph inside the node. What it captures it names as the graph around it does: ONNX's bodies
 * see those names. Its constants stand among the model's initializers.
 */
#include "onnx/write/write_impl.h"

/* The writer of a body: what belongs to one graph is its own, names and constants are the file's. */
static bool open_body(Onnx *o, const Graph *g, Ref *value, bool *written, Onnx *in)
{
    int n = g->next_id + 1;
    *in = *o;
    in->g = g;
    in->p = g->ex;
    in->node = NULL;
    in->nnode = in->scope_from = 0;
    in->info = NULL;
    in->ninfo = in->info_cap = 0;
    in->attr = NULL;
    in->nattr = 0;
    in->shapes = (Map){0};
    in->size = NULL;
    in->size_asked = NULL;
    in->nsizes = 0;
    in->solved = NULL;
    in->slices = NULL;
    in->ninput = 0;
    in->value = value;
    in->written = written;
    in->asked = arena_array(o->a, bool, n);
    in->wish = arena_array(o->a, const char *, n);
    in->input = arena_array(o->a, OnnxValueInfo, g->ninput + 1);
    in->by_memory = (Lookup){0};
    in->tied = arena_array(o->a, Ref, g->nweight + 1);
    return in->asked && in->wish && in->input && in->tied && graph_weights_by_memory(g, &in->by_memory);
}

static void close_body(Onnx *o, Onnx *in)
{
    map_free(&in->shapes);
    lookup_free(&in->by_memory);
    o->broken = in->broken;
    o->init = in->init;
    o->ninit = in->ninit;
    o->taken = in->taken;
    o->constants = in->constants;
    o->missing = in->missing;
    o->nmissing = in->nmissing;
    o->warnings = in->warnings;
    o->nwarnings = in->nwarnings;
    o->notes = in->notes;
    o->attention_ops = in->attention_ops;
    o->attention_written_out = in->attention_written_out;
}

/* Values whose sizes only the body knows: a dtype, no shape; but for numbers, of rank 0. */
static OnnxValueInfo bare(const char *name, DType t, bool number)
{
    return (OnnxValueInfo){.name = name, .type = {.kind = ONNX_TENSOR, .elem = dtype_to_onnx(t), .has_shape = number}};
}

/* The rank, too, and sizes that are constants: ONNX Runtime's Scan asks for them, and finds none in a loop. */
static OnnxValueInfo ranked(Onnx *o, const char *name, DType t, const Value *v)
{
    OnnxValueInfo info = bare(name, t, true);
    info.type.rank = v->rank;
    info.type.dim = arena_array(o->a, OnnxDim, v->rank + 1);
    if (!info.type.dim) {
        out_of_memory(o);
        return bare(name, t, false);
    }
    for (int i = 0; i < v->rank; i++)
        info.type.dim[i] = (OnnxDim){.known = ex_is_int(v->dim[i]),
                                     .value = ex_is_int(v->dim[i]) ? v->dim[i]->i : 0,
                                     .param = ""};
    return info;
}

/* Weights that the graph around the body has, too, stand once. */
static void share_weights(Onnx *o, const Graph *g, Ref *value, bool *written)
{
    for (int i = 0; i < g->nweight; i++) {
        Value *w = g->weight[i];
        int k = graph_weight_that_shows(o->g, &o->by_memory, w->data);
        if (k < 0) continue;
        value[w->id] = ref(o, o->g->weight[k]);
        written[w->id] = true;
    }
}

/* Which inputs and results of a body are ONNX's. */
typedef struct Ends {
    int first, own;                           /* inputs [first, own) are the body's own */
    int slices;                               /* those after them are slices, by turn, of `sequence` */
    Value *const *sequence, *const *captured; /* all others are these values outside */
    int result;                               /* its first result */
    bool ranked;                              /* results have ranks */
} Ends;

/* g as a graph inside node n; NULL when it cannot be written. */
static OnnxGraph *body_of(Onnx *o, const Node *n, const Graph *g, Ends ends)
{
    Onnx in;
    OnnxGraph *out = arena_new(o->a, OnnxGraph);
    OnnxValueInfo *output = arena_array(o->a, OnnxValueInfo, g->noutput + 1);
    Ref *value = arena_array(o->a, Ref, g->next_id + 1);
    bool *written = arena_array(o->a, bool, g->next_id + 1), ok = out && output && value && written;
    int captured = ends.own + ends.slices;
    for (int i = captured; ok && i < g->ninput; i++) value[g->input[i]->id] = ref(o, ends.captured[i - captured]);
    for (int i = ends.own; ok && i < captured; i++) value[g->input[i]->id] = ref(o, ends.sequence[i - ends.own]);
    if (ok) share_weights(o, g, value, written);
    if (!ok || !open_body(o, g, value, written, &in)) { /* in begins with what was written up to here */
        out_of_memory(o);
        return NULL;
    }
    for (int i = 0; i < g->ninput; i++) {
        Value *v = g->input[i];
        bool own = i >= ends.first && i < ends.own;
        if (own) in.input[in.ninput] = bare(fresh(&in, v->name), v->dtype, !v->rank);
        if (own) value[v->id] = (Ref){in.input[in.ninput++].name, v->dtype};
        written[v->id] = true;
    }
    for (int i = ends.own; i < captured; i++) {
        in.scope = n->name;
        in.scope_from = in.nnode;
        Ref *slice = &value[g->input[i]->id];
        *slice = NODE(&in, "Gather", slice->t, *slice, value[g->input[0]->id]);
    }
    write_nodes(&in);
    for (int i = ends.result; i < g->noutput && !in.broken; i++) {
        in.scope = n->name;
        in.scope_from = in.nnode;
        Ref y = ref(&in, g->output[i].value);
        y = NODE(&in, "Identity", y.t, y); /* a result is the body's own, and no two are one */
        const Value *v = g->output[i].value;
        output[i - ends.result] = ends.ranked ? ranked(o, y.name, y.t, v) : bare(y.name, y.t, !v->rank);
    }
    *out = (OnnxGraph){.name = n->name,
                       .doc = "",
                       .node = in.node,
                       .nnode = in.nnode,
                       .input = in.input,
                       .ninput = in.ninput,
                       .output = output,
                       .noutput = g->noutput - ends.result};
    bool refused = in.refused;
    close_body(o, &in);
    if (refused) refuse(o, "%s", in.why);
    return o->broken ? NULL : out;
}

enum { MAX_RESULTS = 16 };

static bool few(Onnx *o, const Node *n)
{
    if (n->nout > MAX_RESULTS) refuse(o, "%d results: at most %d are written", n->nout, MAX_RESULTS);
    return n->nout <= MAX_RESULTS;
}

static void give_all(Onnx *o, const Node *n, const char *op, int nin, const Ref *in)
{
    DType t[MAX_RESULTS];
    Ref out[MAX_RESULTS];
    for (int k = 0; k < n->nout; k++) t[k] = n->out[k]->dtype;
    nodes_of(o, op, n->nout, t, out, nin, in);
    for (int k = 0; k < n->nout; k++) give(o, n, k, out[k]);
}

static void mark_read(void *user, Value **slot) { ((bool *)user)[(*slot)->id] = true; }

/* A body that asks neither which turn it is nor whether there is another one. */
static bool asks_nothing(Onnx *o, const Graph *g)
{
    bool *read = arena_array(o->a, bool, g->next_id + 1);
    if (!read) return false;
    for (Node *n = g->first; n; n = n->next) node_each_operand(n, mark_read, read);
    for (int i = 1; i < g->noutput; i++) read[g->output[i].value->id] = true;
    return !read[g->input[0]->id] && !read[g->input[1]->id];
}

/* Scan(carried ..., sequences ...) */
static void write_scan(Onnx *o, const Node *n)
{
    const Arg *carried = &n->arg[1], *sequences = &n->arg[6];
    Ref in[2 * MAX_RESULTS];
    int count = carried->n + sequences->n;
    if (count > 2 * MAX_RESULTS) {
        refuse(o, "%d carried values and sequences: at most %d are written", count, 2 * MAX_RESULTS);
        return;
    }
    for (int i = 0; i < count; i++) in[i] = ref(o, i < carried->n ? carried->vs[i] : sequences->vs[i - carried->n]);
    OnnxGraph *body = body_of(o, n, n->arg[3].g,
                              (Ends){.first = 2, .own = 2 + count, .captured = n->arg[2].vs, .result = 1,
                                     .ranked = true});
    if (!body || o->refused) return;
    attr_graph(o, "body", body);
    attr_int(o, "num_scan_inputs", sequences->n);
    give_all(o, n, "Scan", count, in);
}

/* Loop(limit, condition, carried ...) */
void out_loop(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Arg *carried = &n->arg[1], *sequences = &n->arg[6];
    Ref in[2 + MAX_RESULTS] = {{"", DT_I64}, {"", DT_BOOL}};
    if (!few(o, n)) return;
    if (sequences->n && n->arg[5].e->i && n->arg[0].kind == ARG_NONE && asks_nothing(o, n->arg[3].g)) {
        write_scan(o, n);
        return;
    }
    if (n->arg[4].kind == ARG_EXPR) in[0] = size_scalar(o, n->arg[4].e, DT_I64);
    if (n->arg[0].kind == ARG_VALUE) in[1] = ref(o, n->arg[0].v);
    for (int i = 0; i < carried->n; i++) in[2 + i] = ref(o, carried->vs[i]);
    OnnxGraph *body = body_of(
        o, n, n->arg[3].g,
        (Ends){.own = 2 + carried->n, .slices = sequences->n, .sequence = sequences->vs, .captured = n->arg[2].vs});
    if (!body || o->refused) return;
    attr_graph(o, "body", body);
    give_all(o, n, "Loop", 2 + carried->n, in);
}

/* If(condition) */
void out_branch(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    if (!few(o, n)) return;
    Ref cond = ref(o, n->arg[0].v);
    OnnxGraph *yes = body_of(o, n, n->arg[2].g, (Ends){.captured = n->arg[1].vs}),
              *no = yes ? body_of(o, n, n->arg[3].g, (Ends){.captured = n->arg[1].vs + n->arg[2].g->ninput}) : NULL;
    if (!no || o->refused) return;
    attr_graph(o, "then_branch", yes);
    attr_graph(o, "else_branch", no);
    give_all(o, n, "If", 1, &cond);
}
