/* Higher-order ops that choose among their graphs or run them again and again: cond, while_loop, scan, map and
 * associative_scan become qkv.branch and qkv.loop (src/op/control.def). Contract in read_impl.h.
 *
 *     cond(gt, yes, no, (x, w))                    qkv.branch(gt, [x, w, x, w], yes, no)
 *     while_loop(test, step, (i, x), (w,))         qkv.loop(test(i, x, w), [i, x], [w], step and then test)
 *     scan(step, (h,), (xs,), (w,))                qkv.loop([h], [w], step, limit=len(xs), sure, sequences=[xs])
 *     map_impl(f, (xs,), (w,))                     the same, with nothing carried
 *     associative_scan(f, (xs,), (w,))             a scan that begins with the first slice
 *
 * A body is a graph with values and symbols of its own. Sizes that are symbols around it keep their names inside, and
 * what is computed from them stays computed; any other size of an operand is a symbol that only the body has. A number
 * among the operands is an expression of those symbols, or a tensor of rank 0 from which the body reads it.
 */
#include <stdio.h>
#include <string.h>
#include "base/vec.h"
#include "expr/translate.h"
#include "pt2/read/body.h"
#include "pt2/read/values.h"

enum { MAX_ROUNDS = 8, MAX_READ = 1 << 12, MAX_CARRIED = 256 };

typedef struct Slots {
    Slot *at;
    int n;
} Slots;

/* ------------------------------------------------------------------ operands */

/* A node's argument as a list: tensors and numbers by name, and constants. */
static bool read_operands(Import *im, Scope *s, const json_t *inputs, size_t at, Slots *out)
{
    const char *tag;
    json_t *list, *item;
    const json_t *arg = json_object_get(json_array_get(inputs, at), "arg");
    size_t i;
    *out = (Slots){0};
    if (!arg) return fail(im->err, E_FORMAT, "argument %zu is missing", at);
    TRY(json_want_union(arg, &tag, &list, im->err) || within(im->err, "argument %zu", at));
    if (!json_is_array(list)) return fail(im->err, E_FORMAT, "argument %zu: found '%s', expected a list", at, tag);
    out->at = arena_array(im->g->arena, Slot, json_array_size(list) + 1);
    if (!out->at) return oom(im->err);
    json_array_foreach(list, i, item)
    {
        const json_t *named = json_object_get(item, "as_tensor");
        const char *name = json_string_value(json_object_get(named ? named : item, "name"));
        if (!name) name = json_string_value(json_object_get(item, "as_name"));
        Slot *slot = name ? scope_want(im, s, name) : NULL;
        if (name && !slot) return within(im->err, "argument %zu", at);
        if (slot) out->at[out->n] = *slot;
        else {
            out->at[out->n].kind = SLOT_NUMBER;
            TRY((json_is_object(item) ? read_sym(im, item, &out->at[out->n].e)
                                      : read_number(im, item, &out->at[out->n].e)) ||
                within(im->err, "argument %zu: element %zu", at, i));
        }
        if (out->at[out->n++].kind == SLOT_OTHER)
            return fail(im->err, E_UNSUPPORTED, "'%s' is a result that is not computed here", name);
    }
    return true;
}

static const json_t *graph_argument(Import *im, const json_t *inputs, size_t at)
{
    const json_t *holder = json_object_get(json_object_get(json_array_get(inputs, at), "arg"), "as_graph");
    if (!json_is_object(json_object_get(holder, "graph"))) {
        fail(im->err, E_FORMAT, "argument %zu is not a graph", at);
        return NULL;
    }
    return holder;
}

static Lower lowering(Import *im, OpId op, const char *name)
{
    return (Lower){.g = im->g, .ex = im->g->ex, .op = op_get(op), .name = name, .err = im->err};
}

/* A number as a tensor of rank 0. */
static Value *number_tensor(Import *im, Expr *e)
{
    Lower L = lowering(im, OP_full, "number");
    DType t = e->is_bool ? DT_BOOL : e->is_float ? DT_F64 : DT_I64;
    return AS(&L, full, arg_exprs(im->g, 0, NULL), arg_expr(e), arg_dtype(t));
}

static Value *slot_tensor(Import *im, const Slot *s)
{
    return s->kind == SLOT_TENSOR ? ref_value(im->g, s->ref, im->err) : number_tensor(im, s->e);
}

/* What item reads from v; `declared`: what the file says that it is, NULL where it says nothing. */
static bool read_item(Import *im, Value *v, Expr *declared, Expr **out)
{
    Arg arg[] = {arg_value(v)};
    Lower L = lowering(im, OP_item, v->name);
    L.arg = arg;
    L.declared_number = declared;
    TRY(lower_op(&L));
    *out = L.result.e;
    return true;
}

/* ------------------------------------------------------------------ the body's inputs */

static Expr *inner_symbol(void *user, const Expr *outer)
{
    Body *b = user;
    const Symbol *s = expr_symbol(b->outer->g->ex, (int)outer->i), *mine = expr_find_symbol(b->im.g->ex, s->name);
    return mine && mine->source == SYM_INPUT ? mine->expr : NULL;
}

static Expr *own_symbol(Body *b)
{
    char name[32];
    int k = expr_symbol_count(b->im.g->ex);
    do snprintf(name, sizeof name, "d%d", k++);
    while (expr_find_symbol(b->im.g->ex, name));
    return ex_symbol(b->im.g->ex, name);
}

static Expr *inner_size(Body *b, const Expr *outer)
{
    Expr *e = expr_translate(b->im.g->ex, outer, inner_symbol, b);
    if (e) return e;
    char *key = arena_printf(b->im.g->arena, "%u", outer->id);
    if (!key) return NULL;
    e = map_get(&b->sizes, key);
    if (e) return e;
    e = own_symbol(b);
    return e && map_put(&b->sizes, key, e) ? e : NULL;
}

/* The symbol is one of the body, too, which some input will have as a size. */
static bool keep_symbol(Body *b, const Expr *outer)
{
    const Symbol *s = expr_symbol(b->outer->g->ex, (int)outer->i);
    Expr *mine = ex_symbol(b->im.g->ex, s->name);
    if (!mine) return oom(b->outer->err);
    expr_symbol(b->im.g->ex, (int)mine->i)->source = SYM_INPUT;
    expr_set_range(b->im.g->ex, (int)mine->i, s->lo < 0 ? 0 : s->lo, s->hi);
    return true;
}

/* Symbols that are sizes of operands as they are keep their names. */
static bool keep_symbols(Body *b, const Slots *group, How how, bool (*varies)[MAX_RANK])
{
    for (int i = 0; i < group->n; i++) {
        if (group->at[i].kind != SLOT_TENSOR) continue;
        const Value *v = ref_value(b->outer->g, group->at[i].ref, b->outer->err);
        TRY(v);
        for (int d = how == SLICED; d < v->rank; d++) {
            if (v->dim[d]->kind != EX_SYM || (varies && varies[i][d])) continue;
            TRY(keep_symbol(b, v->dim[d]));
        }
    }
    return true;
}

static Value *body_input(Body *b, How how, const char *name, Value *outer, const bool *varies)
{
    Expr *dim[MAX_RANK];
    Graph *g = b->im.g;
    int off = how == SLICED;
    if (outer->rank < off) {
        fail(b->outer->err, E_FORMAT, "'%s' has rank 0: there is nothing to take slices of", outer->name);
        return NULL;
    }
    for (int i = off; i < outer->rank; i++) {
        bool own = varies && varies[i];
        if (!own && outer->dim[i]->kind == EX_SYM && !keep_symbol(b, outer->dim[i])) return NULL;
        dim[i - off] = own ? own_symbol(b) : inner_size(b, outer->dim[i]);
        if (!dim[i - off]) goto no_memory;
    }
    Value **all = vec_room(b->outer->g->arena, b->given[how], b->ngiven[how], sizeof(Value *));
    Value *v = graph_add_input(g, name, outer->dtype, outer->rank - off, dim);
    if (!all || !v) goto no_memory;
    all[b->ngiven[how]++] = outer;
    b->given[how] = all;
    for (int i = 0; i < v->rank; i++) {
        if (dim[i]->kind != EX_SYM) continue;
        Symbol *s = expr_symbol(g->ex, (int)dim[i]->i);
        if (s->source == SYM_FREE) expr_set_range(g->ex, (int)dim[i]->i, 0, INT64_MAX);
        if (!s->value) {
            s->source = SYM_INPUT;
            s->value = v;
            s->dim = i;
        }
    }
    return v;
no_memory:
    oom(b->outer->err);
    return NULL;
}

/* An operand as the body knows it. Numbers that are carried, or that the body cannot compute, are tensors of rank 0. */
bool body_operand(Body *b, How how, const char *name, const Slot *outer, const bool *varies, Slot *inner)
{
    *inner = (Slot){.kind = outer->kind};
    if (outer->kind == SLOT_NUMBER && how == CAPTURED &&
        (inner->e = expr_translate(b->im.g->ex, outer->e, inner_symbol, b)))
        return true;
    Value *given = slot_tensor(b->outer, outer), *v = given ? body_input(b, how, name, given, varies) : NULL;
    TRY(v);
    if (outer->kind == SLOT_TENSOR) {
        inner->ref = ref_root(b->im.g, v, outer->ref->meta);
        return inner->ref || oom(b->outer->err);
    }
    TRY(read_item(&b->im, v, NULL, &inner->e));
    int64_t lo, hi;
    if (inner->e->kind != EX_SYM) return true;
    ex_range(b->outer->g->ex, outer->e, &lo, &hi);
    if (how == CAPTURED) expr_set_range(b->im.g->ex, (int)inner->e->i, lo, hi);
    return true;
}

static bool add_operands(Body *b, How how, const Slots *group, const json_t *placeholders, int first,
                         bool (*varies)[MAX_RANK], Slot *inner)
{
    for (int i = 0; i < group->n; i++) {
        const char *tag, *name;
        json_t *v, *p = json_array_get(placeholders, (size_t)(first + i));
        if (!p) return fail(b->outer->err, E_FORMAT, "its graph takes %d operands, more are given", first + i);
        TRY(json_want_union(p, &tag, &v, b->outer->err));
        name = json_string_value(json_object_get(v, "name"));
        if (!name) name = json_string_value(json_object_get(v, "as_name"));
        TRY(body_operand(b, how, name ? name : "operand", &group->at[i], varies ? varies[i] : NULL, &inner[first + i]));
    }
    return true;
}

/* ------------------------------------------------------------------ a graph's nodes */

static bool take_slot(Import *im, Scope *s, const json_t *result, Slot *out)
{
    const char *tag;
    json_t *v;
    Ref *ref;
    Arg a;
    TRY(json_want_union(result, &tag, &v, im->err));
    const char *name = json_string_value(json_object_get(v, strcmp(tag, "as_tensor") ? "as_name" : "name"));
    Slot *slot = name ? scope_want(im, s, name) : NULL;
    if (name && !slot) return false;
    if (slot) *out = *slot;
    else {
        TRY(read_arg(im, s, result, &a, &ref));
        if (a.kind != ARG_EXPR) return fail(im->err, E_UNSUPPORTED, "a result of kind '%s'", tag);
        *out = (Slot){.kind = SLOT_NUMBER, .e = a.e};
    }
    return out->kind != SLOT_OTHER || fail(im->err, E_UNSUPPORTED, "result '%s' is not computed here", name);
}

/* The nodes of a graph, in im's graph; what it gives. */
static bool run_graph(Import *im, Scope *around, const json_t *holder, const Slot *operand, int n, Slots *out)
{
    json_t *placeholders, *results, *v;
    const char *tag, *name;
    size_t i;
    Scope inner;
    TRY(scope_open(im, around, holder, &inner, &placeholders, &results));
    if (json_array_size(placeholders) != (size_t)n)
        return fail(im->err, E_FORMAT, "the graph takes %zu operands, %d are given", json_array_size(placeholders), n);
    bool ok = true;
    json_t *p, *r;
    json_array_foreach(placeholders, i, p)
    {
        ok = ok && json_want_union(p, &tag, &v, im->err);
        name = ok ? json_string_value(json_object_get(v, strcmp(tag, "as_tensor") ? "as_name" : "name")) : NULL;
        if (name) ok = scope_put(im, &inner, name, operand[i]);
    }
    *out = (Slots){.at = arena_array(im->g->arena, Slot, json_array_size(results) + 1)};
    ok = ok && (out->at || oom(im->err)) && import_nodes(im, &inner);
    json_array_foreach(results, i, r)
    {
        ok = ok && (take_slot(im, &inner, r, &out->at[out->n++]) || within(im->err, "result %zu", i));
    }
    map_free(&inner.names);
    return ok;
}

/* ------------------------------------------------------------------ bodies */

bool body_open(Body *b, Import *outer, Scope *around)
{
    *b = (Body){.im = *outer, .outer = outer, .around = around};
    b->im.g = graph_create();
    b->im.watch = NULL;
    b->im.in_body = true;
    b->im.nguard = 0;
    return b->im.g || oom(outer->err);
}

bool body_close(Body *b, bool ok)
{
    map_free(&b->sizes);
    if (ok) graph_dce(b->im.g);
    if (ok && sdpa_lse_unread(b->im.g, b->im.err) && graph_check(b->im.g, b->im.err)) return true;
    graph_free(b->im.g);
    b->im.g = NULL;
    return false;
}

bool body_result(Body *b, const Slot *s)
{
    char name[32];
    snprintf(name, sizeof name, "output_%d", b->im.g->noutput);
    Value *v = slot_tensor(&b->im, s);
    return v && graph_add_output(b->im.g, name, v, b->im.err);
}

/* Operands are values, not memory: a graph that writes to one would change it for others, too. */
static bool reads_only(Body *b, const Slot *operand, int n, Value *const *before)
{
    for (int i = 0; i < n; i++)
        if (operand[i].kind == SLOT_TENSOR && operand[i].ref->value != before[i])
            return fail(b->im.err, E_UNSUPPORTED, "it writes to its operand '%s' in place", before[i]->name);
    return true;
}

/* The graph with its operands; what it gives. slot: room for all operands. */
static bool fill_body(Body *b, const json_t *holder, const Slots group[HOWS], bool (*varies)[MAX_RANK], Slot *slot,
                      Slots *out)
{
    const json_t *placeholders = json_object_get(json_object_get(holder, "graph"), "inputs");
    int n = 0;
    for (How how = CARRIED; how < HOWS; how++) TRY(keep_symbols(b, &group[how], how, how == CARRIED ? varies : NULL));
    for (How how = CARRIED; how < HOWS; n += group[how++].n)
        TRY(add_operands(b, how, &group[how], placeholders, n, how == CARRIED ? varies : NULL, slot));
    Value **before = arena_array(b->im.g->arena, Value *, n + 1);
    if (!before) return oom(b->im.err);
    for (int i = 0; i < n; i++) before[i] = slot[i].kind == SLOT_TENSOR ? slot[i].ref->value : NULL;
    return run_graph(&b->im, b->around, holder, slot, n, out) && reads_only(b, slot, n, before);
}

static bool in_graph(Import *im, const json_t *holder)
{
    const char *name = json_string_value(json_object_get(holder, "name"));
    return within(im->err, "graph '%s'", name ? name : "?");
}

/* ------------------------------------------------------------------ results */

static bool give_one(Import *im, Scope *s, const json_t *out, Value *v, int mark)
{
    const char *name = json_string_value(json_object_get(json_object_get(out, "as_tensor"), "name"));
    if (!name) name = json_string_value(json_object_get(out, "name"));
    const char *number = name ? NULL : number_in(out);
    if (number) {
        Slot slot = {.kind = SLOT_NUMBER};
        Expr *declared;
        return declared_number(im, s, number, &declared) && read_item(im, v, declared, &slot.e) &&
               scope_put(im, s, number, slot);
    }
    if (!name) return true; /* a constant */
    NodeCall c = {.op = op_get(OP_branch), .mark = mark};
    if (json_object_get(s->tensor_values, name)) return take_result(im, s, &c, name, v, 0);
    Ref *r = ref_root(im->g, v, NULL); /* one that nothing reads */
    return r ? scope_put(im, s, name, (Slot){.kind = SLOT_TENSOR, .ref = r}) : oom(im->err);
}

static bool give_results(Import *im, Scope *s, const json_t *node, int n, Value *const *v, int mark)
{
    const json_t *outputs = json_object_get(node, "outputs"),
                 *list = json_object_get(json_array_get(outputs, 0), "as_tensors");
    json_t *out;
    size_t i;
    if (list) outputs = list;
    if (json_array_size(outputs) > (size_t)n)
        return fail(im->err, E_FORMAT, "the file names %zu results, its graphs give %d", json_array_size(outputs), n);
    json_array_foreach(outputs, i, out) TRY(give_one(im, s, out, v[i], mark));
    return true;
}

static const char *first_name(const json_t *node)
{
    const char *name = NULL;
    result_names(json_object_get(node, "outputs"), &name, 1);
    return name;
}

/* ------------------------------------------------------------------ cond */

/* A bool of rank 0 as a tensor; of a bool that was read from a tensor, that tensor. */
static bool read_condition(Import *im, Scope *s, const json_t *inputs, Value **out)
{
    Arg a;
    Ref *ref;
    TRY(read_arg(im, s, json_object_get(json_array_get(inputs, 0), "arg"), &a, &ref) || within(im->err, "argument 0"));
    if (a.kind == ARG_EXPR) {
        Expr *e = a.e;
        const Expr *read = e->kind == EX_EQ && ex_equals_int(e->args[1], 1) ? e->args[0] : NULL;
        const Symbol *item = read && read->kind == EX_SYM ? expr_symbol(im->g->ex, (int)read->i) : NULL;
        if (item && item->source == SYM_ITEM && item->value->dtype == DT_BOOL) *out = item->value;
        else if (!e->is_bool && e->kind != EX_INT)
            return fail(im->err, E_FORMAT, "argument 0: the condition is a number, expected a truth value");
        else *out = number_tensor(im, e->is_bool ? e : ex_bool(im->g->ex, e->i != 0));
    } else if (a.kind == ARG_VALUE) *out = a.v;
    else return fail(im->err, E_FORMAT, "argument 0: expected a tensor or a truth value as the condition");
    TRY(*out);
    if ((*out)->dtype != DT_BOOL)
        return fail(im->err, E_FORMAT, "argument 0: the condition is %s, expected bool", dtype_name((*out)->dtype));
    Lower L = lowering(im, OP_reshape, "condition");
    if ((*out)->rank) *out = lower_reshape(&L, *out, 0, NULL);
    return *out != NULL;
}

static bool read_half(Import *im, Scope *s, const json_t *holder, const Slots *operands, Body *b)
{
    const Slots group[HOWS] = {[CAPTURED] = *operands};
    Slots out = {0};
    TRY(body_open(b, im, s));
    Slot *slot = arena_array(b->im.g->arena, Slot, operands->n + 1);
    bool ok = (slot || oom(im->err)) && fill_body(b, holder, group, NULL, slot, &out);
    for (int i = 0; ok && i < out.n; i++) ok = body_result(b, &out.at[i]);
    return body_close(b, ok);
}

static bool read_cond(Import *im, Scope *s, const json_t *node, const json_t *inputs)
{
    const json_t *yes = graph_argument(im, inputs, 1), *no = yes ? graph_argument(im, inputs, 2) : NULL;
    Value *cond = NULL;
    Slots operands;
    Body half[2];
    Arg arg[4];
    TRY(no && read_condition(im, s, inputs, &cond) && read_operands(im, s, inputs, 3, &operands));
    for (int i = 0; i < 2; i++) {
        if (!read_half(im, s, i ? no : yes, &operands, &half[i])) return in_graph(im, i ? no : yes);
        arg[2 + i] = arg_graph(im->g, half[i].im.g);
        if (arg[2 + i].kind != ARG_GRAPH) return oom(im->err);
    }
    int n = half[0].ngiven[CAPTURED], m = half[1].ngiven[CAPTURED], mark = im->g->next_id;
    Value **all = arena_array(im->g->arena, Value *, n + m + 1);
    if (!all) return oom(im->err);
    for (int i = 0; i < n + m; i++) all[i] = i < n ? half[0].given[CAPTURED][i] : half[1].given[CAPTURED][i - n];
    arg[0] = arg_value(cond);
    arg[1] = arg_values(im->g, n + m, all);
    Lower L = lowering(im, OP_branch, first_name(node));
    Node *made = lower_emit_node(&L, OP_branch, 4, arg);
    return made && give_results(im, s, node, made->nout, made->out, mark);
}

/* ------------------------------------------------------------------ loops */

typedef struct Loop {
    const json_t *step, *test; /* graphs; test: NULL where the count is known */
    Slots group[HOWS];
    Value *condition; /* before the first turn; NULL: true */
    Expr *limit;
    bool stacks; /* what is carried is stacked, too */
} Loop;

bool body_count_inputs(Body *b)
{
    Graph *g = b->im.g;
    return (graph_add_input(g, "turn", DT_I64, 0, NULL) && graph_add_input(g, "condition", DT_BOOL, 0, NULL)) ||
           oom(b->im.err);
}

/* Turn's results, after whether there is another turn. */
static bool end_turn(Body *b, const Loop *l, const Slot *operand, Slots *out)
{
    int nc = l->group[CARRIED].n, n = nc + l->group[CAPTURED].n;
    Slots go;
    if (out->n < nc) return fail(b->im.err, E_FORMAT, "the graph gives %d results for %d carried values", out->n, nc);
    if (!l->test) TRY(graph_add_output(b->im.g, "output_0", b->im.g->input[1], b->im.err));
    else {
        Slot *next = arena_array(b->im.g->arena, Slot, n + 1);
        if (!next) return oom(b->im.err);
        for (int i = 0; i < n; i++) next[i] = i < nc ? out->at[i] : operand[i];
        TRY(run_graph(&b->im, b->around, l->test, next, n, &go) || in_graph(b->outer, l->test));
        if (go.n != 1) return fail(b->im.err, E_FORMAT, "the condition's graph gives %d results, expected 1", go.n);
        Value *v = slot_tensor(&b->im, &go.at[0]);
        Lower L = lowering(&b->im, OP_reshape, "condition");
        if (v && v->rank) v = lower_reshape(&L, v, 0, NULL);
        TRY(v && graph_add_output(b->im.g, "output_0", v, b->im.err));
    }
    for (int i = 0; i < out->n; i++) TRY(body_result(b, &out->at[i]));
    for (int i = 0; l->stacks && i < nc; i++) TRY(body_result(b, &out->at[i]));
    return true;
}

static bool read_turn(Import *im, Scope *s, const Loop *l, bool (*varies)[MAX_RANK], Body *b)
{
    Slots out = {0};
    TRY(body_open(b, im, s));
    Slot *slot = arena_array(b->im.g->arena, Slot, l->group[0].n + l->group[1].n + l->group[2].n + 1);
    bool ok = (slot || oom(im->err)) && body_count_inputs(b) && fill_body(b, l->step, l->group, varies, slot, &out) &&
              end_turn(b, l, slot, &out);
    return body_close(b, ok);
}

/* Marks sizes that a turn changes; false when there are none that were not marked. */
static bool changed(const Graph *g, int n, bool (*varies)[MAX_RANK])
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        const Value *in = g->input[2 + i], *out = g->output[1 + i].value;
        for (int d = 0; d < in->rank && in->rank == out->rank; d++)
            if (in->dim[d] != out->dim[d] && !varies[i][d]) any = varies[i][d] = true;
    }
    return any;
}

static Node *make_loop(Import *im, Scope *s, const Loop *l, const char *name)
{
    int nc = l->group[CARRIED].n;
    bool(*varies)[MAX_RANK] = nc <= MAX_CARRIED ? arena_alloc(im->g->arena, (size_t)nc + 1, sizeof *varies) : NULL;
    Body b = {.im = {.g = NULL}};
    if (!varies) {
        fail(im->err, E_LIMIT, "%d carried values", nc);
        return NULL;
    }
    for (int round = 0; round < MAX_ROUNDS; round++) {
        graph_free(b.im.g);
        if (im->pt2->nloops++ >= MAX_READ) {
            fail(im->err, E_LIMIT, "loops inside loops, read more than %d times to find sizes that change", MAX_READ);
            return NULL;
        }
        if (!read_turn(im, s, l, varies, &b)) {
            in_graph(im, l->step);
            return NULL;
        }
        if (!changed(b.im.g, nc, varies)) break;
    }
    Arg body = arg_graph(im->g, b.im.g);
    if (body.kind != ARG_GRAPH) {
        oom(im->err);
        return NULL;
    }
    Arg arg[] = {arg_value(l->condition),
                 arg_values(im->g, b.ngiven[CARRIED], b.given[CARRIED]),
                 arg_values(im->g, b.ngiven[CAPTURED], b.given[CAPTURED]),
                 body,
                 l->limit ? arg_expr(l->limit) : arg_none(),
                 arg_bool(im->g, !l->test),
                 arg_values(im->g, b.ngiven[SLICED], b.given[SLICED])};
    Lower L = lowering(im, OP_loop, name);
    return lower_emit_node(&L, OP_loop, 7, arg);
}

/* while_loop(condition graph, body graph, carried, captured) */
static bool read_while(Import *im, Scope *s, const json_t *node, const json_t *inputs)
{
    Loop l = {.test = graph_argument(im, inputs, 0), .step = graph_argument(im, inputs, 1)};
    Slots go;
    TRY(l.test && l.step && read_operands(im, s, inputs, 2, &l.group[CARRIED]) &&
        read_operands(im, s, inputs, 3, &l.group[CAPTURED]));
    int n = l.group[CARRIED].n, all = n + l.group[CAPTURED].n, mark = im->g->next_id;
    Slot *first = arena_array(im->g->arena, Slot, all + 1);
    if (!first) return oom(im->err);
    for (int i = 0; i < all; i++) first[i] = i < n ? l.group[CARRIED].at[i] : l.group[CAPTURED].at[i - n];
    TRY(run_graph(im, s, l.test, first, all, &go) || in_graph(im, l.test));
    if (go.n != 1) return fail(im->err, E_FORMAT, "the condition's graph gives %d results, expected 1", go.n);
    TRY(l.condition = slot_tensor(im, &go.at[0]));
    Lower L = lowering(im, OP_reshape, "condition");
    if (l.condition->rank) TRY(l.condition = lower_reshape(&L, l.condition, 0, NULL));
    Node *made = make_loop(im, s, &l, first_name(node));
    return made && give_results(im, s, node, made->nout, made->out, mark);
}

/* How many slices the sequences have. */
static bool length_of(Import *im, const Slots *sequences, Expr **out)
{
    for (int i = 0; i < sequences->n; i++) {
        const Slot *s = &sequences->at[i];
        Value *v = s->kind == SLOT_TENSOR ? ref_value(im->g, s->ref, im->err) : NULL;
        if (im->err->code != E_OK) return false;
        if (!v || !v->rank) return fail(im->err, E_FORMAT, "sequence %d is a number", i);
        if (!i) *out = v->dim[0];
    }
    return sequences->n || fail(im->err, E_FORMAT, "there is no sequence to go over");
}

/* scan(graph, init, sequences, captured); map_impl(graph, sequences, captured): what is carried is left out */
static bool read_scan_from(Import *im, Scope *s, const json_t *node, const json_t *inputs, bool carries)
{
    Loop l = {.step = graph_argument(im, inputs, 0)};
    TRY(l.step && (!carries || read_operands(im, s, inputs, 1, &l.group[CARRIED])) &&
        read_operands(im, s, inputs, carries + 1, &l.group[SLICED]) &&
        read_operands(im, s, inputs, carries + 2, &l.group[CAPTURED]) && length_of(im, &l.group[SLICED], &l.limit));
    int mark = im->g->next_id;
    Node *made = make_loop(im, s, &l, first_name(node));
    return made && give_results(im, s, node, made->nout, made->out, mark);
}

static bool read_scan(Import *im, Scope *s, const json_t *node, const json_t *inputs)
{
    return read_scan_from(im, s, node, inputs, true);
}

static bool read_map(Import *im, Scope *s, const json_t *node, const json_t *inputs)
{
    return read_scan_from(im, s, node, inputs, false);
}

/* associative_scan(graph, sequences, captured): a scan over all slices but the first, which is what it begins with */
static bool read_associative(Import *im, Scope *s, const json_t *node, const json_t *inputs)
{
    Slots xs;
    Loop l = {.step = graph_argument(im, inputs, 0)};
    Graph *g = im->g;
    TRY(l.step && read_operands(im, s, inputs, 1, &xs) && read_operands(im, s, inputs, 2, &l.group[CAPTURED]) &&
        length_of(im, &xs, &l.limit));
    int mark = g->next_id;
    l.limit = ex_sub(g->ex, l.limit, ex_int(g->ex, 1));
    l.group[CARRIED] = (Slots){arena_array(g->arena, Slot, xs.n + 1), xs.n};
    l.group[SLICED] = (Slots){arena_array(g->arena, Slot, xs.n + 1), xs.n};
    Value **whole = arena_array(g->arena, Value *, xs.n + 1);
    if (!l.limit || !l.group[CARRIED].at || !l.group[SLICED].at || !whole) return oom(im->err);
    Arg zero = arg_int(g, 0), one = arg_int(g, 1);
    for (int i = 0; i < xs.n; i++) {
        Lower L = lowering(im, OP_select_int, "first");
        Value *x = ref_value(g, xs.at[i].ref, im->err), *first = AS(&L, select_int, arg_value(x), zero, zero),
              *rest = AS(&L, slice_Tensor, arg_value(x), zero, one);
        Ref *a = first ? ref_root(g, first, NULL) : NULL, *b = rest ? ref_root(g, rest, NULL) : NULL;
        if (!a || !b) return im->err->code == E_OK ? oom(im->err) : false;
        l.group[CARRIED].at[i] = (Slot){.kind = SLOT_TENSOR, .ref = a};
        l.group[SLICED].at[i] = (Slot){.kind = SLOT_TENSOR, .ref = b};
    }
    l.stacks = true;
    Node *made = make_loop(im, s, &l, first_name(node));
    for (int i = 0; made && i < xs.n; i++) {
        Lower L = lowering(im, OP_cat, first_name(node));
        Value *head = AS(&L, slice_Tensor, arg_value(ref_value(g, xs.at[i].ref, im->err)), zero, zero, one),
              *part[] = {head, made->out[xs.n + i]};
        TRY(head && (whole[i] = AS(&L, cat, arg_values(g, 2, part), zero)));
    }
    return made && give_results(im, s, node, xs.n, whole, mark);
}

/* ------------------------------------------------------------------ which op is one */

static const struct {
    const char *target;
    bool (*read)(Import *im, Scope *s, const json_t *node, const json_t *inputs);
} rows[] = {
    {"torch.ops.higher_order.cond", read_cond},
    {"torch.ops.higher_order.while_loop", read_while},
    {"torch.ops.higher_order.scan", read_scan},
    {"torch.ops.higher_order.map_impl", read_map},
    {"torch.ops.higher_order.associative_scan", read_associative},
};

int control_find(const char *target)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].target, target)) return (int)i;
    return -1;
}

bool control_node(Import *im, Scope *s, const json_t *node, int which)
{
    json_t *inputs;
    return json_want_array(node, "inputs", &inputs, im->err) && rows[which].read(im, s, node, inputs);
}
