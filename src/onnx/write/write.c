/* The ONNX file as a whole: inputs, weights, nodes in order, outputs, report.
 * Contract in onnx.h; ops are in onnx_*.c by family. */
#include <string.h>
#include "onnx/write/write_impl.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/version.h"
#include "format/json.h"

static const struct {
    OnnxFn *fn;
    const char *text;
    OpId op;
} rows[OP_COUNT] = {
#define ONNX(f, text_) .fn = out_##f, .text = text_,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* Rows that ONNX cannot express; text is the reason. */
void out_never(Onnx *o, const Node *n, const char *text)
{
    (void)n;
    refuse(o, "%s", text);
}

/* Rows with the word LOOPS, which are loops by now; text: why not, where that depends. */
void out_as_loops(Onnx *o, const Node *n, const char *text)
{
    (void)n;
    refuse(o, "%s", *text ? text : "it is written as loops, which were not made");
}

bool onnx_emits(OpId op, const char **why)
{
    *why = rows[op].fn ? rows[op].text : NULL;
    return rows[op].fn && rows[op].fn != out_never;
}

static const char *const profiles[ONNX_PROFILES] = {"spec", "ort", "openvino", "tensorrt"};
const char *onnx_profile_name(OnnxProfile p) { return (unsigned)p < ONNX_PROFILES ? profiles[p] : "?"; }

/* ------------------------------------------------------------------ report */

static void put_sentence(Onnx *o, Buf *list, const char *fmt, va_list ap) QKV_PRINTF(3, 0);
static void put_sentence(Onnx *o, Buf *list, const char *fmt, va_list ap)
{
    Buf text = {0};
    buf_vprintf(&text, fmt, ap);
    if (text.failed) out_of_memory(o);
    jw_take(list, NULL, &text);
}

void onnx_note(Onnx *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_sentence(o, &o->notes, fmt, ap);
    va_end(ap);
}

static void put_about(Buf *list, const Node *n, const char *rule, const char *reason)
{
    jw_put(list, "{'node': %s, 'op': %s", n->name, n->op->name);
    if (rule) jw_text(list, "rule", rule);
    jw_text(list, "reason", reason);
    jw_close(list, "}");
}

void onnx_warn(Onnx *o, const Node *n, const char *rule, const char *fmt, ...)
{
    Buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    put_about(&o->warnings, n, rule, text.data ? text.data : "");
    o->nwarnings++;
    if (text.failed) out_of_memory(o);
    buf_free(&text);
}

/* written: there will be a file. */
static void put_report(const Onnx *o, bool written, Buf *out)
{
    jw_report(out);
    jw_put(out, "'opset': %d, 'profile': %s, 'nodes': %d, 'weights': %d, 'attentions': {", o->opt.opset,
           onnx_profile_name(o->opt.profile), o->nnode, o->ninit);
    jw_put(out, "'op': %d, 'decomposed': %d}", o->attention_ops, o->attention_written_out);
    jw_list(out, "missing", '[', &o->missing);
    jw_list(out, "warnings", '[', &o->warnings);
    jw_list(out, "notes", '[', &o->notes);
    jw_list(out, "dropped", '[', &o->dropped);
    if (written && o->opt.profile == ONNX_FOR_TENSORRT && !put_profiles(o, out)) out->failed = true;
    jw_close(out, "}");
}

/* ------------------------------------------------------------------ inputs and weights */

static void note_pairs(Onnx *o, const char *what, const char *name)
{
    onnx_note(o, "%s '%s' is complex: here it is reals with a last axis of 2, real and imaginary part", what, name);
}

static void add_inputs(Onnx *o)
{
    for (int i = 0; i < o->g->ninput; i++) {
        Value *v = o->g->input[i];
        const char *name = fresh(o, value_label(v));
        if (dtype_is_complex(v->dtype)) note_pairs(o, "input", name);
        else if (dtype_to_onnx(v->dtype) == ONNX_UNDEFINED && !o->broken)
            o->broken = !fail(o->err, E_UNSUPPORTED, "input '%s': runtimes of ONNX take no tensors of %s", v->name,
                              dtype_name(v->dtype));
        o->input[o->ninput++] = (OnnxValueInfo){.name = name, .type = type_of_value(o, v->dtype, v->rank, v->dim)};
        o->value[v->id] = (Ref){name, v->dtype};
        o->written[v->id] = true;
    }
    for (int i = 0; i < o->g->nscalar_input; i++) {
        const ScalarInput *s = &o->g->scalar_input[i];
        if (s->value.kind != ARG_EXPR || ex_is_const(s->value.e))
            onnx_note(o, "input '%s' is fixed to what it was at export", s->name);
    }
}

/* A weight is written at its first use, tied ones once, under the name in the state dict. */
static Ref weight(Onnx *o, Value *v)
{
    bool changes = graph_writes(o->g, v);
    int tied = changes ? -1 : graph_weight_that_shows(o->g, &o->by_memory, v->data);
    if (tied >= 0 && o->tied[tied].name) return o->tied[tied];
    const char *made = v->fqn && !changes && v->weight != W_PARAMETER ? v->fqn : "";
    Ref r = none();
    if (!strncmp(made, "const.", 6) || !strncmp(made, "list.", 5)) r = constant_like(o, v->data);
    if (!*r.name) r = tensor_const(o, v->data, v->fqn && *v->fqn ? v->fqn : v->name);
    if (tied >= 0) o->tied[tied] = r;
    return r;
}

/* Buffers that a run changes: inputs that default to what the file holds, and outputs. */
static void add_state(Onnx *o)
{
    const Graph *g = o->g;
    for (int i = 0; i < g->nmutation; i++) {
        Value *v = g->mutation[i].target;
        if (v->kind != V_WEIGHT || o->written[v->id]) continue;
        bool held = o->opt.profile != ONNX_FOR_OPENVINO; /* which takes inputs with a default for constants */
        o->value[v->id] = held ? weight(o, v) : (Ref){fresh(o, v->fqn && *v->fqn ? v->fqn : v->name), v->dtype};
        o->written[v->id] = true;
        const char *name = o->value[v->id].name;
        o->input[o->ninput++] = (OnnxValueInfo){.name = name, .type = type_of_value(o, v->dtype, v->rank, v->dim)};
        onnx_note(o, "buffer '%s' changes: it is an input%s and the output '%s_out'", name,
                  held ? " that may be left out (the file holds its first value)" : "", name);
    }
    for (int i = 0; i < g->ninput_mutation; i++)
        onnx_note(o, "input '%s' is changed in place in Python; in ONNX it stays as it is",
                  g->input_mutation[i].target->name);
}

/* ------------------------------------------------------------------ nodes */

static void put_missing(Onnx *o, const Node *n)
{
    put_about(&o->missing, n, NULL, o->why);
    o->nmissing++;
    o->refused = false;
    for (int k = 0; k < n->nout; k++) { /* so that the others are looked at, too */
        o->value[n->out[k]->id] = (Ref){n->out[k]->name, n->out[k]->dtype};
        o->written[n->out[k]->id] = true;
    }
}

/* "/layers.0/attn/linear_3" for linear_3 of layers.0.attn: viewers show what stands between slashes as a tree. */
static void name_by_module(Onnx *o, const char *path, int from)
{
    char *slashed = arena_strdup(o->a, path);
    for (char *c = slashed; c && *c; c++)
        if (*c == '.' && !is_digit(c[1])) *c = '/';
    for (int i = from; slashed && *path && i < o->nnode; i++) {
        const char *name = o->node[i].name;
        if (*name != '/') o->node[i].name = arena_printf(o->a, "/%s/%s", slashed, name);
        if (!o->node[i].name) slashed = NULL;
    }
    if (!slashed) out_of_memory(o);
}

static void write_node(Onnx *o, const Node *n)
{
    const char *scope = o->scope;
    int nkept = o->nattr, from = o->scope_from, begin = o->nnode;
    OnnxAttr *kept = o->attr;
    bool refused = o->refused;
    o->attr = NULL;
    o->nattr = 0;
    o->refused = false;
    o->scope = n->name;
    o->scope_from = o->nnode;
    for (int k = 0; k < n->nout; k++) o->asked[n->out[k]->id] = true;
    if (rows[n->op->id].fn) rows[n->op->id].fn(o, n, rows[n->op->id].text);
    else refuse(o, "not written for ONNX yet");
    if (o->refused) put_missing(o, n);
    o->scope = scope;
    if (n->module) name_by_module(o, n->module->path, begin);
    lend_nodes(o, begin);
    o->scope_from = from;
    o->attr = kept;
    o->nattr = nkept;
    o->refused = refused;
}

Ref ref(Onnx *o, Value *v)
{
    if (o->written[v->id] || o->broken) return o->value[v->id].name ? o->value[v->id] : (Ref){"", v->dtype};
    if (v->kind == V_WEIGHT) {
        o->value[v->id] = weight(o, v);
        o->written[v->id] = true;
    } else if (v->def && !o->asked[v->id] && o->depth < 1000) { /* a data-dependent size is used before it */
        o->depth++;
        write_node(o, v->def);
        o->depth--;
    }
    if (!o->written[v->id]) refuse(o, "'%s' is used before it is computed", v->name);
    return o->written[v->id] ? o->value[v->id] : (Ref){"", v->dtype};
}

static void add_info(Onnx *o, const Value *v, Map *seen)
{
    const char *name = o->value[v->id].name;
    if (!o->written[v->id] || dtype_is_complex(v->dtype) || map_has(seen, name) || o->ninfo == o->info_cap) return;
    if (!map_put(seen, name, o)) out_of_memory(o);
    o->info[o->ninfo++] = (OnnxValueInfo){.name = name, .type = type_of_value(o, v->dtype, v->rank, v->dim)};
}

void write_nodes(Onnx *o)
{
    for (const Node *n = o->g->first; n && !o->broken; n = n->next)
        if (!(n->op->flags & OPF_EFFECT) && n->nout && !o->asked[n->out[0]->id]) write_node(o, n);
}

static void add_nodes(Onnx *o)
{
    Map seen = {0};
    for (int i = 0; i < o->ninput; i++) map_put(&seen, o->input[i].name, o);
    for (int i = 0; i < o->g->noutput; i++) map_put(&seen, o->g->output[i].name, o);
    write_nodes(o);
    for (const Node *n = o->g->first; n && !o->broken; n = n->next)
        for (int k = 0; !(n->op->flags & OPF_EFFECT) && k < n->nout && !o->nmissing; k++) add_info(o, n->out[k], &seen);
    map_free(&seen);
}

/* ------------------------------------------------------------------ outputs */

static bool put_output(Onnx *o, const char *name, Value *v, OnnxValueInfo *out)
{
    Ref x = ref(o, v);
    if (dtype_is_complex(v->dtype)) note_pairs(o, "output", name);
    *out = (OnnxValueInfo){.name = name, .type = type_of_value(o, v->dtype, v->rank, v->dim)};
    if (strcmp(x.name, name)) {
        o->scope = name;
        Ref y = NODE(o, "Identity", x.t, x);
        if (o->broken) return false;
        o->node[o->nnode - 1].output[0] = name;
        (void)y;
    }
    return !o->broken;
}

static bool any_used(const Map *used, const OnnxNode *n)
{
    for (int k = 0; k < n->noutput; k++)
        if (*n->output[k] && map_has(used, n->output[k])) return true;
    return false;
}

bool put_uses(Map *used, const OnnxNode *n, Onnx *o)
{
    for (int k = 0; k < n->ninput; k++) TRY(map_put(used, n->input[k], o));
    for (int i = 0; i < n->nattr; i++) {
        const OnnxGraph *body = n->attr[i].type == ONNX_ATTR_GRAPH ? n->attr[i].g : NULL;
        for (int k = 0; body && k < body->nnode; k++) TRY(put_uses(used, &body->node[k], o));
    }
    return true;
}

/* Takes out what no output needs: results of nodes that were not asked for, sizes, constants. */
static void drop_unused(Onnx *o, const OnnxValueInfo *output, int noutput)
{
    Map used = {0};
    bool *keep = arena_array(o->a, bool, o->nnode + 1);
    bool ok = keep != NULL;
    int n = 0;
    for (int i = 0; ok && i < noutput; i++) ok = map_put(&used, output[i].name, o);
    for (int i = 0; ok && i < o->ninput; i++) ok = map_put(&used, o->input[i].name, o); /* their defaults stay */
    for (int i = o->nnode - 1; ok && i >= 0; i--) {
        keep[i] = any_used(&used, &o->node[i]);
        if (keep[i]) ok = ok && put_uses(&used, &o->node[i], o);
    }
    if (!ok) {
        out_of_memory(o);
    } else {
        for (int i = 0; i < o->nnode; i++) {
            OnnxNode *x = &o->node[i];
            if (!strcmp(x->op, "MaxPool") && x->noutput == 2 && !map_has(&used, x->output[1]))
                x->noutput = 1; /* places cost a slower kernel */
            if (keep[i]) o->node[n++] = *x;
        }
        o->nnode = n;
        n = 0;
        for (int i = 0; i < o->ninit; i++)
            if (map_has(&used, o->init[i].name)) o->init[n++] = o->init[i];
        o->ninit = n;
        n = 0;
        for (int i = 0; i < o->ninfo; i++)
            if (map_has(&used, o->info[i].name)) o->info[n++] = o->info[i];
        o->ninfo = n;
    }
    map_free(&used);
}

static void add_guards(Onnx *o)
{
    for (int i = 0; i < o->g->nrequire; i++) {
        Buf b = {0};
        ex_print(o->p, o->g->require[i].cond, &b);
        jw_take(&o->dropped, NULL, &b);
    }
}

static int ir_version(int opset)
{
    return opset <= 14   ? 7
           : opset <= 18 ? 8
           : opset <= 20 ? 9
           : opset <= 22 ? 10
           : opset <= 23 ? 11
           : opset <= 24 ? 12
                         : 13;
}

/* What ONNX has no field for: for whom the file is, what exported the model, which outputs are the buffers that a run
 * changes, and the ranges of sizes; our own reader keeps these two. */
static OnnxPair *metadata(Onnx *o, const OnnxValueInfo *output, int *n)
{
    const Graph *g = o->g;
    OnnxPair *pairs = arena_array(o->a, OnnxPair, expr_symbol_count(o->p) + g->nmutation + 3);
    bool ok = pairs != NULL;
    if (ok) pairs[(*n)++] = (OnnxPair){"qkv.profile", onnx_profile_name(o->opt.profile)};
    if (ok && o->opt.torch_version && *o->opt.torch_version) pairs[(*n)++] = (OnnxPair){"torch", o->opt.torch_version};
    if (ok && o->opt.certificate) pairs[(*n)++] = (OnnxPair){o->opt.certificate_name, o->opt.certificate};
    for (int i = 0; ok && i < g->nmutation; i++) {
        OnnxPair p = {arena_printf(o->a, ONNX_STATE_KEY "%s", output[g->noutput + i].name),
                      o->value[g->mutation[i].target->id].name};
        ok = p.key != NULL;
        pairs[(*n)++] = p;
    }
    for (int i = 0; ok && i < expr_symbol_count(o->p); i++) {
        const Symbol *s = expr_symbol(o->p, i);
        int64_t lo = s->lo > 0 ? s->lo : 0;
        if (s->source != SYM_INPUT || (lo == 0 && s->hi == INT64_MAX)) continue;
        OnnxPair p = {arena_printf(o->a, ONNX_RANGE_KEY "%s", s->name),
                      s->hi == INT64_MAX ? arena_printf(o->a, "%lld..", (long long)lo)
                                         : arena_printf(o->a, "%lld..%lld", (long long)lo, (long long)s->hi)};
        ok = p.key && p.value;
        pairs[(*n)++] = p;
    }
    return ok ? pairs : NULL;
}

static bool write_model(Onnx *o, OnnxValueInfo *output, int noutput, const char *path)
{
    OnnxGraph graph = {.name = "main_graph",
                       .doc = "",
                       .node = o->node,
                       .nnode = o->nnode,
                       .init = o->init,
                       .ninit = o->ninit,
                       .input = o->input,
                       .ninput = o->ninput,
                       .output = output,
                       .noutput = noutput,
                       .info = o->info,
                       .ninfo = o->ninfo};
    OnnxOpset opsets[] = {{"", o->opt.opset}, {"com.microsoft", 1}};
    bool contrib = false;
    for (int i = 0; i < o->nnode; i++) contrib = contrib || *o->node[i].domain;
    int npairs = 0;
    OnnxPair *pairs = metadata(o, output, &npairs);
    if (!pairs) return oom(o->err);
    OnnxModel model = {.ir_version = ir_version(o->opt.opset),
                       .producer = "qkv",
                       .producer_version = QKV_VERSION,
                       .domain = "",
                       .doc = "",
                       .opset = opsets,
                       .nopset = contrib ? 2 : 1,
                       .graph = &graph,
                       .metadata = pairs,
                       .nmetadata = npairs};
    OnnxWriteOptions options = {.external = o->opt.external};
    return onnx_write(&model, path, &options, o->err);
}

static bool say_missing(Onnx *o)
{
    json_t *list = NULL;
    Buf text = {0}, all = {0};
    buf_printf(&text, "[%s]", o->missing.data ? o->missing.data : "");
    list = text.failed ? NULL : json_read(text.data, text.len, "missing ops", o->err);
    size_t i;
    json_t *m;
    json_array_foreach(list, i, m)
        buf_printf(&all, "%s'%s' (%s): %s", i ? "; " : "", json_string_value(json_object_get(m, "node")),
                   json_string_value(json_object_get(m, "op")), json_string_value(json_object_get(m, "reason")));
    fail(o->err, E_UNSUPPORTED, "%d node%s cannot be written as ONNX (opset %d, profile %s): %s", o->nmissing,
         o->nmissing == 1 ? "" : "s", o->opt.opset, onnx_profile_name(o->opt.profile), all.data ? all.data : "");
    json_free(list);
    buf_free(&text);
    buf_free(&all);
    return false;
}

static bool make_file(Onnx *o, const char *path, Buf *report)
{
    const Graph *g = o->g;
    OnnxValueInfo *output = arena_array(o->a, OnnxValueInfo, g->noutput + g->nmutation + 1);
    int noutput = 0;
    if (!output) return oom(o->err);
    for (int i = 0; i < g->noutput; i++) {
        Value *v = g->output[i].value;
        fresh(o, g->output[i].name);
        if (v->kind == V_NODE && !o->wish[v->id]) o->wish[v->id] = g->output[i].name;
    }
    add_inputs(o);
    add_state(o);
    add_nodes(o);
    if (o->broken) return false;
    for (int i = 0; i < g->noutput && !o->broken && !o->nmissing; i++)
        TRY(put_output(o, g->output[i].name, g->output[i].value, &output[noutput++]));
    for (int i = 0; i < g->nmutation && !o->broken && !o->nmissing; i++) {
        const Mutation *m = &g->mutation[i];
        char *base = arena_printf(o->a, "%s_out", o->value[m->target->id].name);
        if (!base) return oom(o->err);
        TRY(put_output(o, fresh(o, base), m->value, &output[noutput++]));
    }
    if (!o->nmissing) {
        drop_unused(o, output, noutput);
        store_transposed(o, output, noutput);
        drop_unused(o, output, noutput);
    }
    add_guards(o);
    if (o->empty_wrong)
        onnx_note(o, "at opset %d a size of 0 is not right: what Reshape needs for it came with opset 14",
                  o->opt.opset);
    if (o->broken) return false;
    if (o->nmissing) return say_missing(o);
    if (report) put_report(o, true, report); /* before there is a file: it may not fit */
    if (mem_ran_out() || (report && report->failed)) return oom(o->err);
    return write_model(o, output, noutput, path);
}

bool onnx_save(const Graph *g, const char *path, const OnnxOptions *options, Buf *report, Err *err)
{
    Onnx o = {.g = g, .p = g->ex, .opt = *options, .err = err, .scope = "", .a = arena_create(0)};
    const int least = o.opt.opset ? 0 : onnx_least_opset(g, o.opt.profile);
    if (!o.opt.opset) o.opt.opset = least > ONNX_OPSET_DEFAULT ? least : ONNX_OPSET_DEFAULT;
    if (o.opt.opset < ONNX_OPSET_MIN || o.opt.opset > ONNX_OPSET_MAX) {
        arena_destroy(o.a);
        return fail(err, E_USAGE, "opset %d: %d to %d can be written", o.opt.opset, ONNX_OPSET_MIN, ONNX_OPSET_MAX);
    }
    int n = g->next_id + 1;
    bool ok = o.a && (o.value = arena_array(o.a, Ref, n)) && (o.written = arena_array(o.a, bool, n)) &&
              (o.asked = arena_array(o.a, bool, n)) && (o.wish = arena_array(o.a, const char *, n)) &&
              (o.info = arena_array(o.a, OnnxValueInfo, n)) && (o.tied = arena_array(o.a, Ref, g->nweight + 1)) &&
              (o.input = arena_array(o.a, OnnxValueInfo, g->ninput + g->nscalar_input + g->nmutation + 1)) &&
              graph_weights_by_memory(g, &o.by_memory);
    o.info_cap = n;
    ok = ok || oom(err);
    ok = ok && opset_open(&o) && make_file(&o, path, report);
    if (report && o.a && !ok) {
        buf_free(report);
        put_report(&o, false, report);
    }
    Buf *lists[] = {&o.missing, &o.warnings, &o.notes, &o.dropped};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) buf_free(lists[i]);
    map_free(&o.taken);
    map_free(&o.constants);
    map_free(&o.shapes);
    lookup_free(&o.by_memory);
    opset_close(&o);
    arena_destroy(o.a);
    return ok;
}
