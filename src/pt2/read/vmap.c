/* Regions of torch.vmap, as torch.export writes them before dispatch, become a map over their batch: a qkv.loop that
 * carries nothing, or, where all of its ops have a form with one more axis, those forms (batch.c).
 *
 *     _vmap_increment_nesting(n, 'error')
 *     a = _add_batch_dim(x, 0, 1)              a slice of x along axis 0, by turn
 *     c = matmul(a, w)                         the body
 *     y = _remove_batch_dim(c, 1, n, 0)        what the turns gave, stacked along axis 0
 *     _vmap_decrement_nesting()
 *
 * What reads no slice stays outside: nodes between the two calls that come before the map, and those that come after
 * it because they read what it gives. Of a region inside, what reads none of both is read before it, since torch uses
 * the results that it has wherever they were made, such as a size that is computed once; the rest is taken as a whole.
 */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "pt2/read/body.h"
#include "pt2/read/values.h"

static const char prefix[] = "torch._functorch.predispatch.";
static const char *const names[] = {"lazy_load_decompositions", "_vmap_increment_nesting", "_add_batch_dim",
                                    "_remove_batch_dim", "_vmap_decrement_nesting"};

VmapCall vmap_call(const char *target)
{
    if (strncmp(target, prefix, strlen(prefix))) return VMAP_NONE;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(target + strlen(prefix), names[i])) return (VmapCall)(VMAP_LOAD + i);
    return VMAP_NONE;
}

static VmapCall call_of(const NodeList *nodes, size_t i)
{
    const char *target = json_string_value(json_object_get(nodes->at[i], "target"));
    return target ? vmap_call(target) : VMAP_NONE;
}

/* Each call that begins a region stands on a stack until its end is found: `end` holds what is below it there. */
bool node_list(NodeList *out, const json_t *nodes, Err *err)
{
    size_t n = json_array_size(nodes), i, open = 0;
    const json_t *node;
    *out = (NodeList){.n = n, .at = mem_zeroed(n + 1, sizeof *out->at), .end = mem_zeroed(n + 1, sizeof *out->end)};
    if (!out->at || !out->end) return oom(err);
    json_array_foreach(nodes, i, node)
    {
        out->at[i] = node;
        VmapCall c = call_of(out, i);
        if (c == VMAP_BEGIN) {
            out->end[i] = open;
            open = i + 1;
        } else if (c == VMAP_END && open) {
            size_t begin = open - 1;
            open = out->end[begin];
            out->end[begin] = i + 1;
        }
    }
    while (open) {
        size_t begin = open - 1;
        open = out->end[begin];
        out->end[begin] = 0;
    }
    return true;
}

void node_list_free(NodeList *l)
{
    mem_free(l->at);
    mem_free(l->end);
}

/* The node after a region that begins at i; 0: it never ends. */
static size_t region_end(const NodeList *nodes, size_t i, size_t end)
{
    return nodes->end[i] <= end ? nodes->end[i] : 0;
}

static const json_t *argument(const json_t *node, size_t i)
{
    return json_object_get(json_array_get(json_object_get(node, "inputs"), i), "arg");
}

static const char *tensor_name(const json_t *arg)
{
    return json_string_value(json_object_get(json_object_get(arg, "as_tensor"), "name"));
}

static const char *result_name(const json_t *node)
{
    return tensor_name(json_array_get(json_object_get(node, "outputs"), 0));
}

/* ------------------------------------------------------------------ what reads slices */

typedef enum Place { BEFORE, INSIDE, AFTER } Place;

typedef struct Region {
    Import *im;
    Scope *s;
    const NodeList *nodes;
    size_t first, end; /* the nodes between the two calls */
    int64_t level;
    Expr *size;
    Map inside, after; /* names */
    Map read, root;    /* of what the body read so far; by name: of another value's memory */
    Place *place;      /* by node */
    bool failed;
} Region;

/* The node after i, which may begin a region inside; 0: that never ends. */
static size_t node_end(const Region *r, size_t i)
{
    return call_of(r->nodes, i) == VMAP_BEGIN ? region_end(r->nodes, i, r->end) : i + 1;
}

/* Calls f for every name in a JSON value: of tensors ("name") and numbers ("as_name"). */
static void each_name(const json_t *v, void (*f)(void *user, const char *name), void *user)
{
    const char *key;
    json_t *item;
    size_t i;
    json_array_foreach(v, i, item) each_name(item, f, user);
    if (!json_is_object(v)) return;
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        const char *text = json_string_value(item);
        if (!strcmp(key, "as_graph")) continue;
        if (text && (!strcmp(key, "name") || !strcmp(key, "as_name"))) f(user, text);
        else each_name(item, f, user);
    }
}

static void each_operand(const json_t *node, void (*f)(void *user, const char *name), void *user)
{
    json_t *input;
    size_t i;
    json_array_foreach(json_object_get(node, "inputs"), i, input) each_name(json_object_get(input, "arg"), f, user);
}

typedef struct Reading {
    Region *r;
    bool inside, after;
} Reading;

static void look_up(void *user, const char *name)
{
    Reading *x = user;
    x->inside |= map_has(&x->r->inside, name);
    x->after |= map_has(&x->r->after, name);
}

typedef struct Marking {
    Region *r;
    Map *map;
} Marking;

static void mark(void *user, const char *name)
{
    Marking *m = user;
    if (!map_put(m->map, name, m->r)) m->r->failed = true;
}

static void mark_results(Region *r, size_t i, Map *map)
{
    Marking m = {r, map};
    each_name(json_object_get(r->nodes->at[i], "outputs"), mark, &m);
}

static bool mine(const Region *r, size_t i, VmapCall call)
{
    const json_t *level = argument(r->nodes->at[i], call == VMAP_ADD ? 2 : 1);
    return call_of(r->nodes, i) == call && json_integer_value(json_object_get(level, "as_int")) == r->level;
}

/* A node of a region inside, by what is known when the nodes before it are marked. */
static bool reads_neither(Region *r, size_t i)
{
    Reading x = {.r = r};
    each_operand(r->nodes->at[i], look_up, &x);
    return !x.inside && !x.after && call_of(r->nodes, i) == VMAP_NONE;
}

/* What the memory of a value is known by: the value that it is a view of. */
static const char *root_of(const Region *r, const char *name)
{
    const char *root = map_get(&r->root, name);
    const Slot *outer = root ? NULL : scope_find(r->s, name);
    return root ? root : outer && outer->kind == SLOT_TENSOR ? outer->ref->root->value->name : name;
}

static void mark_read(void *user, const char *name)
{
    Region *r = user;
    if (!map_put(&r->read, root_of(r, name), r)) r->failed = true;
}

/* The body runs after what stands before it, so that nothing there may write to what the body read in the file. */
static bool follow_writes(Region *r, size_t i)
{
    const json_t *node = r->nodes->at[i];
    const char *target = json_string_value(json_object_get(node, "target")), *made = result_name(node),
               *from = tensor_name(argument(node, 0));
    const Op *op = target ? op_find(target) : NULL;
    bool shares = op && op->schema->nparams && op->schema->params[0].aliased && from;
    if (r->place[i - r->first] == INSIDE) each_operand(node, mark_read, r);
    else if (shares && made && !map_put(&r->root, made, (void *)(uintptr_t)root_of(r, from))) r->failed = true;
    bool late = shares && r->place[i - r->first] == BEFORE && op->schema->params[0].written;
    return !late || !map_has(&r->read, root_of(r, from)) ||
           fail(r->im->err, E_UNSUPPORTED, "'%s' is written to after it was read", from);
}

/* Places every node; a region inside as one, but for what is read before it. */
static bool place_nodes(Region *r)
{
    for (size_t i = r->first, next; i < r->end; i = next) {
        next = node_end(r, i);
        if (!next) return fail(r->im->err, E_FORMAT, "a vmap inside it never ends");
        Reading x = {.r = r};
        for (size_t k = i; k < next; k++) each_operand(r->nodes->at[k], look_up, &x);
        if (mine(r, i, VMAP_ADD)) x.inside = true;
        Place place = x.inside ? INSIDE : x.after ? AFTER : BEFORE;
        if (x.inside && x.after) return fail(r->im->err, E_UNSUPPORTED, "a node reads its slices and its results");
        bool removes = mine(r, i, VMAP_REMOVE);
        for (size_t k = i; k < next; k++) {
            r->place[k - r->first] = place;
            if (next > i + 1 && place != BEFORE && reads_neither(r, k)) r->place[k - r->first] = BEFORE;
            else if (removes || place != BEFORE)
                mark_results(r, k, removes || place == AFTER ? &r->after : &r->inside);
            TRY(follow_writes(r, k));
        }
    }
    return !r->failed || oom(r->im->err);
}

/* ------------------------------------------------------------------ the body */

typedef struct Capture {
    Region *r;
    Body *b;
    Scope *inner;
    bool numbers, ok;
} Capture;

/* Tensors first: a number that is a size of one of them is known in the body by that. */
static void capture(void *user, const char *name)
{
    Capture *c = user;
    Slot *outer, inner;
    if (!c->ok || scope_find(c->inner, name) || map_has(&c->r->inside, name)) return;
    if (!(outer = scope_find(c->r->s, name))) return; /* the reader of the node says so */
    if ((outer->kind == SLOT_NUMBER) != c->numbers) return;
    c->ok = body_operand(c->b, CAPTURED, name, outer, NULL, &inner) && scope_put(&c->b->im, c->inner, name, inner);
}

/* The slices that _add_batch_dim takes. */
static bool add_slices(Region *r, Body *b, Scope *inner)
{
    Import *im = r->im;
    for (size_t i = r->first; i < r->end; i++) {
        const json_t *node = r->nodes->at[i];
        Slot slot, made;
        Arg x, axis;
        Ref *ref;
        if (!mine(r, i, VMAP_ADD)) continue;
        TRY(read_arg(im, r->s, argument(node, 0), &x, &ref) && read_arg(im, r->s, argument(node, 1), &axis, &ref));
        const char *name = result_name(node);
        if (x.kind != ARG_VALUE || axis.kind != ARG_EXPR || !ex_is_int(axis.e) || !name)
            return fail(im->err, E_FORMAT, "expected a tensor and an axis");
        Lower L = {.g = im->g, .ex = im->g->ex, .op = op_get(OP_movedim_int), .name = name, .err = im->err};
        Value *v = axis.e->i ? AS(&L, movedim_int, arg_value(x.v), axis, arg_int(im->g, 0)) : x.v;
        slot = (Slot){.kind = SLOT_TENSOR, .ref = v ? ref_root(im->g, v, NULL) : NULL};
        if (!slot.ref) return im->err->code == E_OK ? oom(im->err) : false;
        TRY(body_operand(b, SLICED, name, &slot, NULL, &made) && scope_put(&b->im, inner, name, made));
    }
    return true;
}

static bool fill_region(Region *r, Body *b)
{
    Scope inner = *r->s;
    inner.names = (Map){0};
    inner.outer = r->s;
    inner.depth++;
    Capture c = {r, b, &inner, false, true};
    bool ok = inner.depth <= MAX_SUBGRAPH_DEPTH || fail(r->im->err, E_LIMIT, "vmap nested too deep");
    ok = ok && body_count_inputs(b) && add_slices(r, b, &inner);
    for (int numbers = 0; numbers < 2; numbers++) {
        c.numbers = numbers;
        for (size_t i = r->first; ok && i < r->end; i++)
            if (r->place[i - r->first] == INSIDE && !mine(r, i, VMAP_ADD))
                each_operand(r->nodes->at[i], capture, &c);
    }
    ok = ok && c.ok && graph_add_output(b->im.g, "output_0", b->im.g->input[1], r->im->err);
    for (size_t i = r->first, next; ok && i < r->end; i = next) {
        next = node_end(r, i);
        if (r->place[i - r->first] != INSIDE || mine(r, i, VMAP_ADD)) continue;
        if (!mine(r, i, VMAP_REMOVE)) ok = import_range(&b->im, &inner, r->nodes, i, next);
        else {
            const char *name = tensor_name(argument(r->nodes->at[i], 0));
            Slot *slot = name ? scope_want(&b->im, &inner, name) : NULL;
            ok = slot && body_result(b, slot);
        }
    }
    map_free(&inner.names);
    return ok;
}

static bool put_result(Region *r, const json_t *node, Value *stacked)
{
    Import *im = r->im;
    const char *name = result_name(node);
    Arg axis;
    Ref *ref;
    TRY(read_arg(im, r->s, argument(node, 3), &axis, &ref));
    if (axis.kind != ARG_EXPR || !ex_is_int(axis.e) || !name) return fail(im->err, E_FORMAT, "expected an axis");
    Lower L = {.g = im->g, .ex = im->g->ex, .op = op_get(OP_movedim_int), .name = name, .err = im->err};
    Value *v = axis.e->i ? AS(&L, movedim_int, arg_value(stacked), arg_int(im->g, 0), axis) : stacked;
    ref = v ? ref_root(im->g, v, json_object_get(r->s->tensor_values, name)) : NULL;
    if (!ref) return im->err->code == E_OK ? oom(im->err) : false;
    return scope_put(im, r->s, name, (Slot){.kind = SLOT_TENSOR, .ref = ref});
}

/* A result that no slice went into: the same for each of the batch. */
static bool put_same(Region *r, const json_t *node)
{
    Import *im = r->im;
    Arg x;
    Ref *ref;
    TRY(read_arg(im, r->s, argument(node, 0), &x, &ref));
    if (x.kind != ARG_VALUE) return fail(im->err, E_FORMAT, "expected a tensor");
    Expr *dim[MAX_RANK + 1] = {r->size};
    for (int i = 0; i < x.v->rank; i++) dim[1 + i] = x.v->dim[i];
    Lower L = {.g = im->g, .ex = im->g->ex, .op = op_get(OP_expand), .name = x.v->name, .err = im->err};
    Value *v = AS(&L, expand, arg_value(x.v), arg_exprs(im->g, x.v->rank + 1, dim));
    return v && put_result(r, node, v);
}

static bool run_map(Region *r)
{
    Body b;
    Import *im = r->im;
    TRY(body_open(&b, im, r->s));
    if (!body_close(&b, fill_region(r, &b))) return false;
    Arg arg[] = {arg_none(),
                 arg_values(im->g, 0, NULL),
                 arg_values(im->g, b.ngiven[CAPTURED], b.given[CAPTURED]),
                 arg_graph(im->g, b.im.g),
                 arg_expr(r->size),
                 arg_bool(im->g, true),
                 arg_values(im->g, b.ngiven[SLICED], b.given[SLICED])};
    if (arg[3].kind != ARG_GRAPH) return oom(im->err);
    for (size_t i = 1; i < sizeof arg / sizeof *arg; i++)
        if (!arg_built(&arg[i])) return oom(im->err);
    int n = b.im.g->noutput - 1, k = 0;
    if (!n) return true;
    Value **out = arena_array(im->g->arena, Value *, n + 1);
    bool batched = false;
    TRY((out || oom(im->err)) && map_batched(im->g, b.im.g, arg, out, &batched, im->err));
    if (!batched) {
        Lower L = {.g = im->g, .ex = im->g->ex, .op = op_get(OP_loop), .name = "vmap", .err = im->err};
        Node *made = lower_emit_node(&L, OP_loop, 7, arg);
        TRY(made);
        for (int i = 0; i < n; i++) out[i] = made->out[i];
    }
    for (size_t i = r->first; i < r->end; i++)
        if (r->place[i - r->first] == INSIDE && mine(r, i, VMAP_REMOVE))
            TRY(put_result(r, r->nodes->at[i], out[k++]));
    return true;
}

static bool import_region(Region *r, size_t i, size_t next)
{
    return mine(r, i, VMAP_REMOVE) ? put_same(r, r->nodes->at[i]) : import_range(r->im, r->s, r->nodes, i, next);
}

/* In their order; nodes of a region inside that come before it are not read there again. */
static bool import_before(Region *r)
{
    for (size_t i = r->first, next; i < r->end; i = next) {
        next = node_end(r, i);
        bool whole = r->place[i - r->first] == BEFORE;
        if (whole) TRY(import_region(r, i, next));
        for (size_t k = i + 1; k < next && !whole; k++) {
            if (r->place[k - r->first] != BEFORE) continue;
            TRY(import_range(r->im, r->s, r->nodes, k, k + 1));
            r->nodes->at[k] = NULL;
        }
    }
    return true;
}

static bool import_after(Region *r)
{
    for (size_t i = r->first, next; i < r->end; i = next) {
        next = node_end(r, i);
        if (r->place[i - r->first] == AFTER) TRY(import_region(r, i, next));
    }
    return true;
}

/* The level of a region: of the first call in it that names one and stands in no region inside. */
static bool find_level(Region *r)
{
    for (size_t i = r->first, next; i < r->end; i = next) {
        VmapCall c = call_of(r->nodes, i);
        next = node_end(r, i);
        if (!next) return fail(r->im->err, E_FORMAT, "a vmap inside it never ends");
        if (c != VMAP_ADD && c != VMAP_REMOVE) continue;
        const json_t *level = argument(r->nodes->at[i], c == VMAP_ADD ? 2 : 1);
        r->level = json_integer_value(json_object_get(level, "as_int"));
        return true;
    }
    return true;
}

bool vmap_region(Import *im, Scope *s, const NodeList *nodes, size_t at, size_t end, size_t *next)
{
    Arg size;
    Ref *ref;
    Region r = {.im = im, .s = s, .nodes = nodes, .first = at + 1};
    *next = region_end(nodes, at, end);
    if (!*next) return fail(im->err, E_FORMAT, "a vmap never ends");
    r.end = *next - 1;
    TRY(read_arg(im, s, argument(nodes->at[at], 0), &size, &ref));
    if (size.kind != ARG_EXPR) return fail(im->err, E_FORMAT, "argument 0: expected the size of the batch");
    r.size = size.e;
    r.place = mem_zeroed(r.end - r.first + 1, sizeof *r.place);
    bool ok = (r.place || oom(im->err)) && find_level(&r) && place_nodes(&r) && import_before(&r) && run_map(&r) &&
              import_after(&r);
    map_free(&r.inside);
    map_free(&r.after);
    map_free(&r.read);
    map_free(&r.root);
    mem_free(r.place);
    return ok;
}
