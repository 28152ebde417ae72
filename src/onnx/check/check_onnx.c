/* The records of an ONNX file: what onnx.checker looks at, and the rest of what a file can have wrong,
 * all of it listed.
 *
 *     node 'MatMul_3' (MatMul): it uses 'h', which a later node gives       Q109
 *     node 'y': declared FLOAT, the op gives FLOAT16                        Q201
 *
 * Graphs are walked in order with what is known of each value; types and sizes come from onnx_infer.c.
 * Bodies of local functions have no types, so their nodes are held against schemas alone. */
#include "onnx/check/check_onnx.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "onnx/check/check_onnx_impl.h"

enum { MAX_IMPORTS = 1000 };

static Slot *find(const Scope *s, const char *name)
{
    for (; s; s = s->outer) {
        Slot *v = map_get(&s->names, name);
        if (v) return v;
    }
    return NULL;
}

static Slot *declare(Records *r, Scope *s, const char *name)
{
    Slot *v = map_get(&s->names, name);
    if (v) return v;
    v = arena_new(r->c->arena, Slot);
    if (v && map_put(&s->names, name, v)) return v;
    r->c->failed = true;
    return NULL;
}

/* ------------------------------------------------------------------ declared types */

static OnnxSize size_of(Records *r, const OnnxDim *d)
{
    if (d->known)
        return d->value < 0 || d->value > ONNX_LARGEST ? (OnnxSize){SIZE_UNKNOWN, 0}
                                                       : (OnnxSize){SIZE_NUMBER, d->value};
    if (!*d->param) return (OnnxSize){SIZE_UNKNOWN, 0};
    if (!map_has(&r->symbols, d->param))
        r->c->failed |= !map_put(&r->symbols, d->param, (void *)(uintptr_t)(r->symbols.count + 1));
    return (OnnxSize){SIZE_SYMBOL, (int64_t)(uintptr_t)map_get(&r->symbols, d->param)};
}

static OnnxShape shape_of_type(Records *r, const OnnxTypeProto *t)
{
    OnnxShape s = onnx_shape_unknown();
    const OnnxTypeProto *in = t;
    while ((in->kind == ONNX_SEQUENCE || in->kind == ONNX_OPTIONAL) && in->inner) in = in->inner;
    s.kind = t->kind;
    s.elem = in->elem > 0 && in->elem < 64 ? in->elem : ONNX_UNDEFINED;
    if (t->kind != ONNX_TENSOR || !t->has_shape) return s;
    s.rank = t->rank;
    for (int i = 0; i < t->rank; i++) s.dim[i] = size_of(r, &t->dim[i]);
    return s;
}

static void check_type(Records *r, const OnnxValueInfo *v, const char *place, bool must)
{
    const OnnxTypeProto *t = &v->type;
    bool tensor = t->kind == ONNX_TENSOR || t->kind == ONNX_SPARSE;
    if (tensor && (t->elem < 0 || t->elem > 63)) check_add(r->c, Q(114), place, "element type %d", t->elem);
    if (!must) return;
    if (t->kind == ONNX_KIND_NONE) check_add(r->c, Q(114), place, "it declares no type");
    else if (tensor && t->elem == ONNX_UNDEFINED) check_add(r->c, Q(114), place, "it declares no element type");
    else if ((t->kind == ONNX_SEQUENCE || t->kind == ONNX_OPTIONAL) && !t->inner)
        check_add(r->c, Q(114), place, "it does not say of what");
    if (tensor && !t->has_shape) check_add(r->c, Q(114), place, "it declares no shape");
    for (int i = 0; tensor && i < t->rank; i++)
        if (t->dim[i].known && t->dim[i].value < 0)
            check_add(r->c, Q(206), place, "size %d is %lld", i, (long long)t->dim[i].value);
}

static void check_typed(Records *r, const char *name, const char *place)
{
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p <= ' ' || *p == 0x7f) {
            check_add(r->c, Q(127), place, "it has a blank or a control character");
            return;
        }
}

/* What was inferred against what is declared; the two are joined. */
static void join(Records *r, const char *place, const char *name, OnnxShape *got, const OnnxValueInfo *info)
{
    if (!info || info->type.kind == ONNX_KIND_NONE) return;
    OnnxShape want = shape_of_type(r, &info->type);
    if (got->kind == ONNX_KIND_NONE) {
        *got = want;
        return;
    }
    if (want.kind != got->kind)
        check_add(r->c, Q(201), place, "'%.100s' is not the kind of value that is declared", name);
    else if (want.elem && got->elem && want.elem != got->elem)
        check_add(r->c, Q(201), place, "'%.100s' is declared %s, the op gives %s", name, onnx_type_name(want.elem),
                  onnx_type_name(got->elem));
    if (!got->elem) got->elem = want.elem;
    if (want.rank < 0) return;
    if (got->rank < 0) {
        got->rank = want.rank;
        memcpy(got->dim, want.dim, sizeof got->dim);
        return;
    }
    if (want.rank != got->rank) {
        check_add(r->c, Q(202), place, "'%.100s' is declared with %d axes, the op gives %d", name, want.rank,
                  got->rank);
        return;
    }
    for (int i = 0; i < want.rank; i++) {
        if (want.dim[i].kind == SIZE_NUMBER && got->dim[i].kind == SIZE_NUMBER && want.dim[i].v != got->dim[i].v)
            check_add(r->c, Q(203), place, "'%.100s': size %d is declared as %lld, the op gives %lld", name, i,
                      (long long)want.dim[i].v, (long long)got->dim[i].v);
        else if (got->dim[i].kind == SIZE_UNKNOWN ||
                 (got->dim[i].kind == SIZE_SYMBOL && want.dim[i].kind == SIZE_NUMBER))
            got->dim[i] = want.dim[i];
    }
}

/* ------------------------------------------------------------------ one node */

static void scan_graph(Records *r, Scope *s, const OnnxGraph *g, bool main);

static OnnxShape unkept(const OnnxShape *s)
{
    OnnxShape c = onnx_shape_unknown();
    c.kind = s->kind;
    c.elem = s->elem;
    c.rank = s->rank;
    for (int i = 0; i < s->rank; i++) c.dim[i] = s->dim[i];
    return c;
}

/* What the two branches of an If have in common. */
static void join_branches(Records *r, const char *place, int i, OnnxShape *out, const OnnxShape *other, bool first)
{
    if (first || !other || out->kind == ONNX_KIND_NONE) {
        *out = first && other ? unkept(other) : onnx_shape_unknown();
        return;
    }
    if (out->elem && other->elem && out->elem != other->elem)
        check_add(r->c, Q(204), place, "output %d is %s in one branch and %s in the other", i,
                  onnx_type_name(out->elem), onnx_type_name(other->elem));
    if (out->rank != other->rank) out->rank = -1;
    for (int k = 0; k < out->rank; k++)
        if (out->dim[k].kind != other->dim[k].kind || out->dim[k].v != other->dim[k].v)
            out->dim[k] = (OnnxSize){SIZE_UNKNOWN, 0};
}

/* out: of an If, what its branches give. */
static void scan_subgraphs(Records *r, Scope *s, const OnnxNode *n, const char *place, OnnxShape *out)
{
    bool first = true, branches = !strcmp(n->op, "If");
    for (int i = 0; i < n->nattr; i++)
        for (int k = 0; n->attr[i].g && k < n->attr[i].n; k++) {
            const OnnxGraph *g = &n->attr[i].g[k];
            Scope inner = {.outer = s,
                           .opset = s->opset,
                           .nopset = s->nopset,
                           .function = s->function,
                           .prefix = check_place(r->c, "%s: %.60s: ", place, n->attr[i].name)};
            scan_graph(r, &inner, g, false);
            if (branches && g->noutput != n->noutput)
                check_add(r->c, Q(107), place, "%d outputs, branch '%.60s' gives %d", n->noutput, n->attr[i].name,
                          g->noutput);
            for (int m = 0; branches && m < g->noutput && m < n->noutput; m++) {
                const Slot *v = map_get(&inner.names, g->output[m].name);
                join_branches(r, place, m, &out[m], v ? v->shape : NULL, first);
            }
            first = false;
            map_free(&inner.names);
            map_free(&inner.info);
        }
}

static void use_inputs(Records *r, Scope *s, const OnnxNode *n, const char *place, const OnnxShape **in)
{
    for (int i = 0; i < n->ninput; i++) {
        if (!*n->input[i]) continue;
        Slot *v = find(s, n->input[i]);
        if (!v) check_add(r->c, Q(108), place, "it uses '%.200s', which is not defined", n->input[i]);
        else if (!v->now)
            check_add(r->c, Q(109), place, "it uses '%.200s', which %s gives", n->input[i],
                      "a later node, or it itself,");
        if (v) v->used = true;
        if (v && v->now) in[i] = v->shape;
    }
}

static void give_outputs(Records *r, Scope *s, const OnnxNode *n, const char *place, OnnxShape *out)
{
    for (int i = 0; i < n->noutput; i++) {
        const char *name = n->output[i];
        if (!*name) continue;
        Slot *v = map_get(&s->names, name), *outer = s->outer ? find(s->outer, name) : NULL;
        if ((v && v->now) || (outer && outer->now)) {
            check_add(r->c, Q(110), place, "'%.200s' is already defined", name);
            continue;
        }
        if (!v) continue;
        v->now = true;
        if (out) join(r, place, name, &out[i], map_get(&s->info, name));
        if (out && (out[i].kind != ONNX_KIND_NONE || out[i].rank >= 0)) v->shape = onnx_shape_keep(r->c, &out[i]);
    }
}

/* Types and sizes through a local function: its body with the caller's inputs.
 * Attributes that the caller gives are not put in: nodes that refer to them give nothing known. */
enum { MAX_CALLS = 64 };

static void infer_call(Records *r, const OnnxFunction *f, const OnnxShape **in, int nin, OnnxShape *out, int nout,
                       const char *place, int depth)
{
    Map values = {0};
    for (int i = 0; i < f->ninput && i < nin; i++)
        if (in[i]) r->c->failed |= !map_put(&values, f->input[i], (void *)(uintptr_t)in[i]);
    for (int i = 0; i < f->nnode && depth < MAX_CALLS && r->calls > 0; i++, r->calls--) {
        const OnnxNode *n = &f->node[i];
        const OnnxShape *arg[16] = {0};
        OnnxShape result[8];
        bool open = n->ninput > 16 || n->noutput > 8;
        int later;
        for (int k = 0; k < n->nattr; k++) open |= *n->attr[k].ref || n->attr[k].g;
        if (open) continue;
        for (int k = 0; k < n->ninput; k++) arg[k] = *n->input[k] ? map_get(&values, n->input[k]) : NULL;
        for (int k = 0; k < n->noutput; k++) result[k] = onnx_shape_unknown();
        const OnnxFunction *inner = records_function(r, n);
        int64_t opset = records_version(f->opset, f->nopset < MAX_IMPORTS ? f->nopset : MAX_IMPORTS, n->domain);
        const OnnxSchema *schema = inner ? NULL : onnx_schema(&r->schemas, n->domain, n->op, opset, &later);
        if (inner) infer_call(r, inner, arg, n->ninput, result, n->noutput, place, depth + 1);
        else if (schema && !schema->deprecated)
            onnx_infer(&(OnnxInfer){
                .c = r->c, .place = place, .node = n, .schema = schema, .in = arg, .out = result, .opset = opset});
        for (int k = 0; k < n->noutput; k++)
            if (*n->output[k] && (result[k].kind != ONNX_KIND_NONE || result[k].rank >= 0)) {
                OnnxShape *kept = onnx_shape_keep(r->c, &result[k]);
                if (kept) r->c->failed |= !map_put(&values, n->output[k], kept);
            }
    }
    for (int i = 0; i < f->noutput && i < nout; i++) {
        const OnnxShape *v = map_get(&values, f->output[i]);
        if (v) out[i] = unkept(v);
    }
    map_free(&values);
}

/* Results of If and Loop have the types of their bodies' outputs. */
static void infer_bodies(OnnxInfer *f)
{
    bool loop = !strcmp(f->node->op, "Loop");
    const OnnxAttr *body = loop                         ? onnx_attr(f->node, "body")
                           : !strcmp(f->node->op, "If") ? onnx_attr(f->node, "then_branch")
                                                        : NULL;
    int skip = loop ? 1 : 0; /* the condition */
    if (!body || !body->g) return;
    for (int i = 0; i < f->node->noutput && i + skip < body->g->noutput; i++) {
        const OnnxTypeProto *t = &body->g->output[i + skip].type;
        if (f->out[i].kind == ONNX_KIND_NONE && t->kind == ONNX_TENSOR && t->elem > 0 && t->elem < 64) {
            f->out[i].kind = ONNX_TENSOR;
            f->out[i].elem = t->elem;
        }
    }
}

static void check_node(Records *r, Scope *s, const OnnxNode *n, const char *place)
{
    const OnnxShape *in_room[16] = {0}, **in = n->ninput <= 16 ? in_room : mem_zeroed((size_t)n->ninput, sizeof *in);
    OnnxShape out_room[8], *out = n->noutput <= 8 ? out_room : mem_zeroed((size_t)n->noutput, sizeof *out);
    int64_t opset = 0;
    if (!in || !out) {
        r->c->failed = true;
    } else {
        for (int i = 0; i < n->noutput; i++) out[i] = onnx_shape_unknown();
        use_inputs(r, s, n, place, in);
        if (!*n->op) check_add(r->c, Q(112), place, "it has no op_type");
        if (!n->ninput && !n->noutput) check_add(r->c, Q(107), place, "neither inputs nor outputs");
        records_attr_names(r, s, n, place);
        const OnnxFunction *f = records_function(r, n);
        if (f && records_version(s->opset, s->nopset, n->domain) < 0)
            check_add(r->c, Q(121), place, "opset_import has no version for domain '%.100s'", n->domain);
        const OnnxSchema *schema = f || !*n->op ? NULL : records_op(r, s, n, place, &opset);
        if (f) records_call(r, n, f, place);
        if (schema) records_schema(r, n, schema, place);
        scan_subgraphs(r, s, n, place, out);
        if (f && !check_is_wrong(r->c, place)) infer_call(r, f, in, n->ninput, out, n->noutput, place, 0);
        if (schema && !check_is_wrong(r->c, place)) {
            OnnxInfer infer = {
                .c = r->c, .place = place, .node = n, .schema = schema, .in = in, .out = out, .opset = opset};
            onnx_infer(&infer);
            infer_bodies(&infer);
            if (!infer.bad) check_onnx_targets(r->c, &infer);
        }
        give_outputs(r, s, n, place, out);
    }
    if (in != in_room) mem_free(in);
    if (out != out_room) mem_free(out);
}

/* ------------------------------------------------------------------ graphs */

static void check_hidden(Records *r, const Scope *s, const char *name, const char *place)
{
    const Slot *outer = s->outer ? find(s->outer, name) : NULL;
    if (outer && outer->now) check_add(r->c, Q(129), place, "a value outside has the same name");
}

static void add_input(Records *r, Scope *s, const OnnxValueInfo *v, bool main)
{
    const char *place = check_place(r->c, "%sinput '%.200s'", s->prefix, v->name);
    Slot *old = map_get(&s->names, v->name);
    if (!*v->name) check_add(r->c, Q(112), place, "an input has no name");
    if (old && old->now) check_add(r->c, Q(110), place, "two inputs have this name");
    check_type(r, v, place, main);
    check_hidden(r, s, v->name, place);
    if (main) check_typed(r, v->name, place);
    Slot *slot = declare(r, s, v->name);
    if (!slot) return;
    slot->now = true;
    OnnxShape shape = shape_of_type(r, &v->type);
    if (shape.kind != ONNX_KIND_NONE) slot->shape = onnx_shape_keep(r->c, &shape);
}

static void add_initializer(Records *r, Scope *s, const OnnxTensor *t, Map *seen)
{
    const char *place = check_place(r->c, "%sweight '%.200s'", s->prefix, t->name);
    OnnxShape shape = onnx_shape_of_tensor(r->c, t);
    Slot *v = map_get(&s->names, t->name);
    if (!*t->name) check_add(r->c, Q(112), place, "an initializer has no name");
    if (map_has(seen, t->name)) check_add(r->c, Q(110), place, "two initializers have this name");
    else r->c->failed |= !map_put(seen, t->name, r);
    bool listed = v && v->now;
    if (!listed) check_hidden(r, s, t->name, place);
    if (r->m->ir_version <= 3 && !listed && !s->outer)
        check_add(r->c, Q(114), place, "IR version %lld wants initializers among the inputs",
                  (long long)r->m->ir_version);
    if (listed && v->shape && v->shape->kind == ONNX_TENSOR) {
        bool same = !v->shape->elem || v->shape->elem == shape.elem;
        if (v->shape->rank >= 0) same = same && v->shape->rank == shape.rank;
        for (int i = 0; same && v->shape->rank >= 0 && i < shape.rank; i++)
            same = v->shape->dim[i].kind != SIZE_NUMBER || v->shape->dim[i].v == shape.dim[i].v;
        if (!same) check_add(r->c, Q(303), place, "the input of that name is declared otherwise");
    }
    v = declare(r, s, t->name);
    if (!v) return;
    v->now = true;
    const OnnxValueInfo *info = map_get(&s->info, t->name);
    if (info) join(r, place, t->name, &shape, info);
    v->shape = onnx_shape_keep(r->c, &shape);
}

typedef struct Place {
    char text[600];
} Place;

static const char *place_of(const Scope *s, const OnnxNode *n, int i, Place *out)
{
    const char *first = n->noutput ? n->output[0] : "";
    if (*n->name) snprintf(out->text, sizeof out->text, "%.300snode '%.150s' (%.60s)", s->prefix, n->name, n->op);
    else if (*first) snprintf(out->text, sizeof out->text, "%.300snode of '%.150s' (%.60s)", s->prefix, first, n->op);
    else snprintf(out->text, sizeof out->text, "%.300snode #%d (%.60s)", s->prefix, i, n->op);
    return out->text;
}

static void check_unused(Records *r, Scope *s, const OnnxGraph *g, const Map *weights, bool main)
{
    static const char *const effects[] = {"Loop", "If", "Scan"};
    for (int i = 0; main && i < g->ninput; i++) {
        const Slot *v = map_get(&s->names, g->input[i].name);
        if (v && !v->used && !map_has(weights, g->input[i].name))
            check_add(r->c, Q(116), check_place(r->c, "input '%.200s'", g->input[i].name), "no node uses it");
    }
    for (int i = 0; i < g->ninit; i++) {
        const Slot *v = map_get(&s->names, g->init[i].name);
        if (v && !v->used)
            check_add(r->c, Q(307), check_place(r->c, "%sweight '%.200s'", s->prefix, g->init[i].name),
                      "no node uses it");
    }
    for (int i = 0; i < g->nnode; i++) {
        bool used = false;
        for (int k = 0; k < g->node[i].noutput; k++) {
            const Slot *v = map_get(&s->names, g->node[i].output[k]);
            used |= v && v->used;
        }
        for (size_t k = 0; k < sizeof effects / sizeof *effects; k++) used |= !strcmp(g->node[i].op, effects[k]);
        if (!used && g->node[i].noutput)
            check_add(r->c, Q(115), place_of(s, &g->node[i], i, &(Place){0}), "its results are not used");
    }
}

static void check_outputs(Records *r, Scope *s, const OnnxGraph *g, bool main)
{
    for (int i = 0; i < g->noutput; i++) {
        const OnnxValueInfo *o = &g->output[i];
        const char *place = check_place(r->c, "%soutput '%.200s'", s->prefix, o->name);
        Slot *v = map_get(&s->names, o->name);
        if (!*o->name) check_add(r->c, Q(112), place, "an output has no name");
        else if (!v || !v->now) check_add(r->c, Q(111), place, "no node gives it");
        if (v) v->used = true;
        check_type(r, o, place, main);
        if (main) check_typed(r, o->name, place);
        if (v && v->shape && !v->made) { /* an input or weight as output: nodes' results were held against it before */
            OnnxShape shape = unkept(v->shape);
            join(r, place, o->name, &shape, o);
        }
    }
}

static void check_info(Records *r, const Scope *s, const OnnxGraph *g)
{
    int unknown = 0;
    const char *first = "";
    for (int i = 0; i < g->ninfo; i++)
        if (!map_has(&s->names, g->info[i].name)) {
            if (!unknown++) first = g->info[i].name;
        }
    if (unknown)
        check_add(r->c, Q(119), *s->prefix ? s->prefix : "model",
                  "value_info describes %d values that no node gives, '%.100s' the first", unknown, first);
}

static void scan_nodes(Records *r, Scope *s, const OnnxNode *node, int n)
{
    Map names = {0};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < node[i].noutput; k++)
            if (*node[i].output[k]) {
                Slot *v = declare(r, s, node[i].output[k]);
                if (v) v->made |= !v->now;
            }
    for (int i = 0; i < n; i++) {
        Place room;
        const char *place = place_of(s, &node[i], i, &room);
        if (*node[i].name && map_has(&names, node[i].name))
            check_add(r->c, Q(113), place, "another node has the same name");
        else if (*node[i].name) r->c->failed |= !map_put(&names, node[i].name, s);
        check_node(r, s, &node[i], place);
    }
    map_free(&names);
}

static void scan_graph(Records *r, Scope *s, const OnnxGraph *g, bool main)
{
    Map seen = {0};
    if (!*g->name) check_add(r->c, Q(112), *s->prefix ? s->prefix : "graph", "the graph has no name");
    for (int i = 0; i < g->ninfo; i++) r->c->failed |= !map_put(&s->info, g->info[i].name, &g->info[i]);
    for (int i = 0; i < g->noutput; i++) r->c->failed |= !map_put(&s->info, g->output[i].name, &g->output[i]);
    for (int i = 0; i < g->ninput; i++) add_input(r, s, &g->input[i], main);
    for (int i = 0; i < g->ninit; i++) add_initializer(r, s, &g->init[i], &seen);
    for (int i = 0; i < g->nsparse; i++) {
        OnnxTensor dense = {.name = g->sparse[i].values.name,
                            .type = g->sparse[i].values.type,
                            .t = {.dtype = DT_NONE, .rank = g->sparse[i].rank}};
        for (int k = 0; k < dense.t.rank; k++) dense.t.shape[k] = g->sparse[i].dim[k];
        add_initializer(r, s, &dense, &seen);
    }
    scan_nodes(r, s, g->node, g->nnode);
    check_outputs(r, s, g, main);
    check_info(r, s, g);
    check_unused(r, s, g, &seen, main);
    map_free(&seen);
}

/* ------------------------------------------------------------------ functions */

static void check_function(Records *r, const OnnxFunction *f)
{
    int nopset = f->nopset < MAX_IMPORTS ? f->nopset : MAX_IMPORTS;
    Scope s = {.opset = f->opset,
               .nopset = nopset,
               .function = f,
               .prefix = check_place(r->c, "function '%.100s': ", f->name)};
    const char *place = check_place(r->c, "function '%.100s'", f->name);
    if (!*f->name) check_add(r->c, Q(112), place, "a function has no name");
    for (int i = 0; i < f->ninput; i++) {
        Slot *v = map_get(&s.names, f->input[i]);
        if (v) check_add(r->c, Q(110), place, "two inputs '%.100s'", f->input[i]);
        v = declare(r, &s, f->input[i]);
        if (v) v->now = true;
    }
    for (int i = 0; i < f->nattr; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(f->attr[i], f->attr[k])) check_add(r->c, Q(110), place, "two attributes '%.100s'", f->attr[i]);
    for (int i = 0; i < f->nnode; i++) {
        const OnnxNode *n = &f->node[i];
        int64_t own = records_version(f->opset, nopset, n->domain),
                outer = records_version(r->m->opset, r->m->nopset < MAX_IMPORTS ? r->m->nopset : MAX_IMPORTS,
                                        n->domain);
        int a, b;
        if (own < 0 || outer < 0 || own == outer) continue;
        if (onnx_schema(&r->schemas, n->domain, n->op, own, &a) !=
            onnx_schema(&r->schemas, n->domain, n->op, outer, &b))
            check_add(r->c, Q(128), place_of(&s, n, i, &(Place){0}),
                      "the function imports version %lld, the model %lld", (long long)own, (long long)outer);
    }
    scan_nodes(r, &s, f->node, f->nnode);
    for (int i = 0; i < f->noutput; i++) {
        const Slot *v = map_get(&s.names, f->output[i]);
        for (int k = 0; k < i; k++)
            if (!strcmp(f->output[i], f->output[k]))
                check_add(r->c, Q(110), place, "two outputs '%.100s'", f->output[i]);
        if (!v || !v->now) check_add(r->c, Q(111), place, "output '%.100s' is never computed", f->output[i]);
    }
    map_free(&s.names);
}

/* Does f, at this depth, lead back to itself? Each function is entered once a chain; state: 1 on the chain, 2 done. */
static void follow_calls(Records *r, const OnnxFunction *f, unsigned char *state, int depth);

static void follow_nodes(Records *r, const OnnxNode *node, int n, unsigned char *state, int depth,
                         const OnnxFunction *from)
{
    for (int i = 0; i < n; i++) {
        const OnnxFunction *to = records_function(r, &node[i]);
        size_t at = to ? (size_t)(to - r->m->function) : 0;
        if (to && state[at] == 1)
            check_add(r->c, Q(118), check_place(r->c, "function '%.100s'", from->name),
                      "it calls '%.100s', which leads back to it", to->name);
        else if (to && !state[at]) follow_calls(r, to, state, depth + 1);
        for (int k = 0; k < node[i].nattr; k++)
            for (int m = 0; node[i].attr[k].g && m < node[i].attr[k].n; m++)
                follow_nodes(r, node[i].attr[k].g[m].node, node[i].attr[k].g[m].nnode, state, depth, from);
    }
}

static void follow_calls(Records *r, const OnnxFunction *f, unsigned char *state, int depth)
{
    size_t at = (size_t)(f - r->m->function);
    if (depth > MAX_CALLS) {
        check_add(r->c, Q(118), check_place(r->c, "function '%.100s'", f->name), "calls are nested more than %d deep",
                  MAX_CALLS);
        state[at] = 2;
        return;
    }
    state[at] = 1;
    follow_nodes(r, f->node, f->nnode, state, depth, f);
    state[at] = 2;
}

static void check_functions(Records *r)
{
    const OnnxModel *m = r->m;
    unsigned char *state = mem_zeroed((size_t)m->nfunction + 1, 1);
    for (int i = 0; state && i < m->nfunction; i++)
        if (!state[i]) follow_calls(r, &m->function[i], state, 0);
    r->c->failed |= !state;
    mem_free(state);
    for (int i = 0; i < m->nfunction; i++) check_function(r, &m->function[i]);
}

/* ------------------------------------------------------------------ the model */

/* So many imports as are looked at; there are a handful in files that anybody means. */
static int imports(Records *r, const char *place, int n)
{
    if (n > MAX_IMPORTS) check_add(r->c, Q(199), place, "%d domains are imported, %d are looked at", n, MAX_IMPORTS);
    return n > MAX_IMPORTS ? MAX_IMPORTS : n;
}

static void check_versions(Records *r, int nopset)
{
    const OnnxModel *m = r->m;
    if (m->ir_version < 1 || m->ir_version > onnx_latest_ir)
        check_add(r->c, Q(123), "model", "IR version %lld; 1 to %d are known", (long long)m->ir_version,
                  onnx_latest_ir);
    if (m->ir_version >= 3 && !m->nopset) check_add(r->c, Q(121), "model", "opset_import is empty");
    if (m->ir_version < 3 && m->nopset)
        check_add(r->c, Q(123), "model", "IR version %lld has no opset_import yet", (long long)m->ir_version);
    for (int i = 0; i < nopset; i++) {
        const OnnxOpset *o = &m->opset[i];
        if (o->version < 1 || (!*o->domain && o->version > onnx_latest_opset))
            check_add(r->c, Q(122), "model", "opset %lld of '%.100s'", (long long)o->version,
                      *o->domain ? o->domain : "ai.onnx");
        if (!*o->domain && o->version > 26 && r->c->targets & TARGET_ORT)
            check_add(r->c, Q(606), "model", "ONNX Runtime 1.31 knows opsets up to 26, the file imports %lld",
                      (long long)o->version);
        for (int k = 0; k < i; k++)
            if (!strcmp(m->opset[k].domain, o->domain)) {
                check_add(r->c, Q(126), "model", "opset_import has '%.100s' twice, versions %lld and %lld",
                          *o->domain ? o->domain : "ai.onnx", (long long)m->opset[k].version, (long long)o->version);
                break;
            }
    }
    Map keys = {0};
    for (int i = 0; i < m->nmetadata; i++) {
        if (map_has(&keys, m->metadata[i].key))
            check_add(r->c, Q(126), "model", "metadata has the key '%.100s' twice", m->metadata[i].key);
        r->c->failed |= !map_put(&keys, m->metadata[i].key, r);
    }
    map_free(&keys);
}

void check_onnx(Check *c, const OnnxModel *m)
{
    Records r = {.c = c, .m = m, .calls = 20000};
    if (!onnx_schemas(&r.schemas)) c->failed = true;
    int nopset = imports(&r, "model", m->nopset);
    check_versions(&r, nopset);
    for (int i = 0; i < m->nfunction; i++) {
        const char *key = records_function_key(&r, m->function[i].domain, m->function[i].name, m->function[i].overload);
        if (map_has(&r.functions, key))
            check_add(c, Q(110), check_place(c, "function '%.100s'", m->function[i].name),
                      "two functions have this name");
        else c->failed |= !map_put(&r.functions, key, &m->function[i]);
    }
    static const OnnxOpset first = {"", 1};
    Scope s = {.opset = m->nopset || m->ir_version >= 3 ? m->opset : &first,
               .nopset = m->nopset || m->ir_version >= 3 ? nopset : 1,
               .prefix = ""};
    if (m->graph) scan_graph(&r, &s, m->graph, true);
    check_functions(&r);
    map_free(&s.names);
    map_free(&s.info);
    map_free(&r.symbols);
    map_free(&r.functions);
    onnx_schemas_free(&r.schemas);
}
