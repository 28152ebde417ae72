/* Sizes in a .pt2: expressions as sympy's srepr, and the nodes that compute them (aten.sym_size.int, _operator.mul,
 * ...), each once, in front of its first use.
 *
 *     2*s0 + 1   ->  sym_size_int = aten.sym_size.int(x, 0); mul = _operator.mul(2, sym_size_int); add =
 *                    _operator.add(mul, 1)
 */
#include <math.h>
#include <string.h>
#include "base/vec.h"
#include "expr/translate.h"
#include "pt2/write/write_impl.h"
#include "shape/solve.h"

/* The Python function on sizes, the name of its node, and sympy's name. */
static const struct {
    const char *target, *name, *srepr;
} kinds[] = {
    [EX_ADD] = {"_operator.add", "add", "Add"},
    [EX_MUL] = {"_operator.mul", "mul", "Mul"},
    [EX_POW] = {"_operator.pow", "pow", "PowByNatural"},
    [EX_FLOORDIV] = {"_operator.floordiv", "floordiv", "FloorDiv"},
    [EX_MOD] = {"_operator.mod", "mod", "PythonMod"},
    [EX_MAX] = {"torch.sym_max", "sym_max", "Max"},
    [EX_MIN] = {"torch.sym_min", "sym_min", "Min"},
    [EX_TRUEDIV] = {"_operator.truediv", "truediv", "FloatTrueDiv"},
    [EX_TOFLOAT] = {"torch.sym_float", "sym_float", "ToFloat"},
    [EX_CEIL] = {"math.ceil", "ceil", "CeilToInt"},
    [EX_FLOOR] = {"math.floor", "floor", "FloorToInt"},
    [EX_TRUNC] = {"math.trunc", "trunc", "TruncToInt"},
    [EX_ROUND] = {NULL, "round", "RoundToInt"},
    [EX_SQRT] = {"torch._sym_sqrt", "sym_sqrt", "FloatPow"},
    [EX_ABS] = {"_operator.abs", "abs", "Abs"},
    [EX_LSHIFT] = {"_operator.lshift", "lshift", "LShift"},
    [EX_RSHIFT] = {"_operator.rshift", "rshift", "RShift"},
    [EX_EQ] = {"_operator.eq", "eq", "Equality"},
    [EX_NE] = {"_operator.ne", "ne", "Unequality"},
    [EX_LT] = {"_operator.lt", "lt", "StrictLessThan"},
    [EX_LE] = {"_operator.le", "le", "LessThan"},
    [EX_AND] = {"_operator.and_", "and_", "And"},
    [EX_OR] = {"_operator.or_", "or_", "Or"},
    [EX_NOT] = {"torch.sym_not", "sym_not", "Not"},
    [EX_WHERE] = {"torch.sym_ite", "sym_ite", "Where"},
};

static Symbol *symbol_of(const Emit *e, const Expr *x) { return expr_symbol(e->g->ex, (int)x->i); }

/* ------------------------------------------------------------------ names */

/* u0, u1, ..., zuf0, ... */
static bool is_unbacked(const char *name)
{
    if (expr_names_float(name)) return true;
    size_t digits = name[0] == 'u' ? strspn(name + 1, "0123456789") : 0;
    return digits && !name[1 + digits];
}

static bool taken_symbol(const Emit *e, const Map *given, const char *name)
{
    const Symbol *s = expr_find_symbol(e->g->ex, name);
    return (s && s->source != SYM_GONE) || map_get(given, name);
}

/* By value id: 1 + the last of the symbols that are its sizes and have a name as PyTorch's; the one before it, by
 * symbol. */
typedef struct Named {
    int *latest, *before;
} Named;

static bool find_named(const Emit *e, Named *named)
{
    int n = expr_symbol_count(e->g->ex);
    named->latest = arena_array(e->arena, int, e->g->next_id + 1);
    named->before = arena_array(e->arena, int, n + 1);
    if (!named->latest || !named->before) return oom(e->err);
    for (int i = n - 1; i >= 0; i--) {
        const Symbol *s = expr_symbol(e->g->ex, i);
        if (s->source != SYM_SIZE || !s->value || !is_unbacked(s->name)) continue;
        named->before[i] = named->latest[s->value->id];
        named->latest[s->value->id] = i + 1;
    }
    return true;
}

/* Import may have two names for one axis: its own, and the file's, which is the one that PyTorch knows. */
static const char *other_name(const Emit *e, const Named *named, const Symbol *s)
{
    for (int k = s->value ? named->latest[s->value->id] : 0; k; k = named->before[k - 1]) {
        const Symbol *t = expr_symbol(e->g->ex, k - 1);
        if (t != s && t->dim == s->dim) return t->name;
    }
    return NULL;
}

/* Room for what is kept by symbol, and which of them are read from which value. */
static bool list_symbols(Emit *e)
{
    const Graph *g = e->g;
    int n = expr_symbol_count(g->ex);
    e->symbol = arena_array(e->arena, const char *, n + 1);
    e->bound = arena_array(e->arena, bool, n + 1);
    e->solved = arena_array(e->arena, Solution *, n + 1);
    e->first_of = arena_array(e->arena, int, g->next_id + 1);
    e->next_of = arena_array(e->arena, int, n + 1);
    if (!e->symbol || !e->bound || !e->solved || !e->first_of || !e->next_of) return oom(e->err);
    for (int i = n - 1; i >= 0; i--) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (!symbol_out_of_data(s) || !s->value || s->value->id >= g->next_id) continue;
        e->next_of[i] = e->first_of[s->value->id];
        e->first_of[s->value->id] = i + 1;
    }
    return true;
}

/* PyTorch tells by the name where a symbol comes from: u0, u1, ... are data-dependent, and no other begins with u or
 * zuf. */
static bool name_symbols(Emit *e)
{
    int n = expr_symbol_count(e->g->ex), next[2] = {0};
    Map given = {0};
    Named named;
    bool ok = list_symbols(e) && find_named(e, &named);
    for (int i = 0; ok && i < n; i++) {
        const Symbol *s = expr_symbol(e->g->ex, i);
        bool data = symbol_out_of_data(s),
             good = data ? is_unbacked(s->name) : s->name[0] != 'u' && strncmp(s->name, "zuf", 3);
        const char *other = good || s->source != SYM_SIZE ? NULL : other_name(e, &named, s);
        e->symbol[i] = other ? other : s->name;
        bool taken = !good && !other && s->source != SYM_GONE;
        while (ok && taken) {
            ok = (e->symbol[i] = arena_printf(e->arena, "%c%d", data ? 'u' : 's', next[data]++)) || oom(e->err);
            taken = ok && taken_symbol(e, &given, e->symbol[i]);
        }
        ok = ok && (map_put(&given, e->symbol[i], (void *)(uintptr_t)s) || oom(e->err));
    }
    map_free(&given);
    return ok;
}

/* Example sizes: the file's; others such that nothing is 1 where more is allowed, if what must hold lets them. */
static bool find_hints(Emit *e)
{
    ExprPool *p = e->g->ex;
    int n = expr_symbol_count(p), given = 0;
    const char **name = arena_array(e->arena, const char *, n + 1);
    int64_t *value = arena_array(e->arena, int64_t, n + 1);
    TRY((name && value) || oom(e->err));
    for (int all = 0; all < 2; all++)
        for (int i = 0; i < n; i++) {
            const Symbol *s = expr_symbol(p, i);
            if (s->source != SYM_INPUT || s->has_hint == all) continue;
            name[given] = s->name;
            value[given++] = s->has_hint ? s->hint : s->lo > 2 ? s->lo : s->hi < 2 ? s->hi : 2;
        }
    int hinted = 0;
    while (hinted < given && expr_find_symbol(p, name[hinted])->has_hint) hinted++;
    for (int tries = 0; tries < 3; tries++) {
        Err ignored = {0};
        TRY(binding_init(&e->hint, p, e->err));
        if (choose_sizes(e->g, name, value, tries == 0 ? given : tries == 1 ? hinted : 0, &e->hint, &ignored))
            return true;
        binding_free(&e->hint);
    }
    return binding_init(&e->hint, p, e->err);
}

static Expr *asserted_root(const Emit *e, Expr *x)
{
    while (e->asserted && e->asserted[x->i]) x = e->asserted[x->i];
    return x;
}

static bool note_asserted(Emit *e, const Expr *a, Expr *b)
{
    const Symbol *s = expr_symbol(e->g->ex, (int)a->i), *t = expr_symbol(e->g->ex, (int)b->i);
    bool first = t->source == SYM_INPUT || (symbol_out_of_data(t) && t->value->id < s->value->id);
    if (!symbol_out_of_data(s) || !first) return true;
    if (!e->asserted) e->asserted = arena_array(e->arena, Expr *, expr_symbol_count(e->g->ex) + 1);
    if (!e->asserted) return oom(e->err);
    e->asserted[a->i] = b;
    return true;
}

/* u0 == s1, or u1 == u0 that is read earlier, in an assert. All that are equal by several asserts have one name: the
 * input's, or else the first one's. */
static bool find_asserted(Emit *e)
{
    Expr *a, *b;
    for (int i = 0; i < e->g->nrequire; i++) {
        const Require *r = &e->g->require[i];
        if (strncmp(r->where, "assert: ", 8) || !expr_same_symbols(e->g->ex, r->cond, &a, &b)) continue;
        a = asserted_root(e, a), b = asserted_root(e, b);
        if (a != b) TRY(note_asserted(e, a, b) && (asserted_root(e, a) != a || note_asserted(e, b, a)));
    }
    for (int i = 0; e->asserted && i < expr_symbol_count(e->g->ex); i++)
        if (e->asserted[i]) e->asserted[i] = asserted_root(e, e->asserted[i]);
    return true;
}

bool sizes_open(Emit *e)
{
    e->checked = arena_array(e->arena, bool, e->g->nrequire + 1);
    return (e->checked || oom(e->err)) && find_asserted(e) && name_symbols(e) && find_hints(e);
}

static const char *body_symbol(Emit *root, char kind, const Symbol *s, Err *err)
{
    enum { FIRST = 10000 }; /* beyond the names of files */
    BodySymbol *all = vec_room(root->arena, root->body_symbol, root->nbody_symbols, sizeof *all);
    const char *name = arena_printf(root->arena, "%c%d", kind, FIRST + root->nbody_symbols);
    if (!all || !name) return oom(err), NULL;
    all[root->nbody_symbols++] = (BodySymbol){name, s->lo, s->hi};
    root->body_symbol = all;
    return name;
}

/* A size of an input that is a symbol outside, too, has its name and example. */
static void take_name(Emit *e, const Emit *outer, const Expr *inner, const Expr *x)
{
    Err ignored = {0};
    int64_t hint;
    if (inner->kind != EX_SYM || e->symbol[inner->i]) return;
    if (x->kind == EX_SYM) e->symbol[inner->i] = outer->symbol[x->i];
    if (ex_eval_i64(outer->g->ex, x, &outer->hint, &hint, &ignored)) binding_set(&e->hint, (int)inner->i, hint);
}

bool sizes_open_body(Emit *e, Emit *outer, Value *const *outside, const bool *sliced)
{
    const Graph *g = e->g;
    int n = expr_symbol_count(g->ex);
    e->checked = arena_array(e->arena, bool, g->nrequire + 1);
    if (!e->checked) return oom(e->err);
    TRY(list_symbols(e) && binding_init(&e->hint, g->ex, e->err));
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; outside[i] && d < g->input[i]->rank; d++)
            take_name(e, outer, g->input[i]->dim[d], outside[i]->dim[d + sliced[i]]);
    for (int i = 0; i < n; i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (!e->symbol[i]) TRY(e->symbol[i] = body_symbol(e->root, symbol_out_of_data(s) ? 'u' : 's', s, e->err));
    }
    return true;
}

/* Room for what is kept by Expr id: sizes are made while writing, too. */
static bool room(Emit *e, const Expr *x)
{
    if (!x) return fail(e->err, E_LIMIT, "a size expression is too large");
    if (x->id < e->nsizes) return true;
    uint32_t n = x->id + x->id / 2 + 64;
    const char **size = arena_array(e->arena, const char *, n);
    bool *asked = arena_array(e->arena, bool, n), *known = arena_array(e->arena, bool, n);
    if (!size || !asked || !known) return oom(e->err);
    if (e->nsizes) {
        memcpy(size, e->size, e->nsizes * sizeof *size);
        memcpy(asked, e->asked, e->nsizes * sizeof *asked);
        memcpy(known, e->known, e->nsizes * sizeof *known);
    }
    e->size = size;
    e->asked = asked;
    e->known = known;
    e->nsizes = n;
    return true;
}

/* ------------------------------------------------------------------ srepr */

const char *sympy_name(const Expr *x)
{
    if (x->kind == EX_POW && x->is_float) return "FloatPow";
    if (x->kind == EX_POW && ex_is_int(x->args[1]) && x->args[1]->i >= 0) return "Pow";
    if (x->kind == EX_TRUEDIV && !x->args[0]->is_float && !x->args[1]->is_float) return "IntTrueDiv";
    return kinds[x->kind].srepr;
}

enum { SREPR_LENGTH = 1 << 16 }; /* shared parts are written each time: it could grow without end */

void put_srepr(Emit *e, const Expr *x, Buf *out)
{
    const Symbol *s;
    if (out->len > SREPR_LENGTH) {
        e->too_long = true;
        return;
    }
    switch (x->kind) {
    case EX_INT: buf_printf(out, "Integer(%lld)", (long long)x->i); return;
    case EX_BOOL: buf_puts(out, x->i ? "true" : "false"); return;
    case EX_FLOAT:
        buf_puts(out, "Float('");
        ex_print(e->g->ex, x, out);
        buf_puts(out, "', precision=53)");
        return;
    case EX_SYM:
        s = symbol_of(e, x);
        if (x->is_float) buf_printf(out, "Symbol('%s')", e->symbol[x->i]);
        else
            buf_printf(out, "Symbol('%s', %sinteger=True)", e->symbol[x->i],
                       !symbol_out_of_data(s) && s->lo >= 0 ? "positive=True, " : "");
        return;
    default: break;
    }
    buf_printf(out, "%s(", sympy_name(x));
    for (int i = 0; i < x->nargs; i++) {
        if (i) buf_puts(out, ", ");
        put_srepr(e, x->args[i], out);
    }
    buf_puts(out, x->kind == EX_SQRT ? ", Float('0.5', precision=53))"
                                     : ")"); /* PyTorch does not read its own name of a root */
}

static void put_float(double v, Buf *out)
{
    if (isfinite(v)) jw_put(out, "{'as_float': %g}", v);
    else jw_put(out, "{'as_float': %s}", isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
}

const Expr *as_asserted(Emit *e, const Expr *x)
{
    if (!e->asserted || !x->symbols) return x;
    if (x->id >= e->nreplaced) {
        uint32_t n = 2 * expr_node_count(e->g->ex) + 1;
        Expr **grown = arena_array(e->arena, Expr *, n);
        if (!grown) return NULL;
        if (e->nreplaced) memcpy(grown, e->replaced, e->nreplaced * sizeof *grown);
        e->replaced = grown;
        e->nreplaced = n;
    }
    return expr_replace(e->g->ex, (Expr *)(uintptr_t)x, e->asserted, e->replaced);
}

static void put_expr(Emit *e, const Expr *x, Buf *out)
{
    Buf text = {0};
    Scalar hint;
    Err unknown = {0};
    put_srepr(e, x, &text);
    jw_put(out, "{'as_expr': {");
    jw_take(out, "expr_str", &text);
    bool known = !x->is_bool && ex_eval(e->g->ex, x, &e->hint, &hint, &unknown);
    jw_key(out, "hint");
    if (known && x->is_float) put_float(scalar_f64(hint), out);
    else if (known) put_int(out, scalar_i64(hint));
    else buf_puts(out, "null");
    jw_close(out, "}}");
}

void put_size(Emit *e, const Expr *x, Buf *out)
{
    x = x ? as_asserted(e, x) : NULL;
    if (!x) out->failed = true; /* no memory to build it */
    else if (ex_is_int(x)) put_int(out, x->i);
    else put_expr(e, x, out);
}

/* ------------------------------------------------------------------ where a size is found */

/* The first axis of an input that is just this size; a data-dependent symbol has one of its own. */
bool find_axis(const Emit *e, const Expr *x, Axis *out)
{
    const Symbol *s = x->kind == EX_SYM ? symbol_of(e, x) : NULL;
    if (s && s->source == SYM_SIZE && e->bound[x->i]) {
        *out = (Axis){s->value, s->dim};
        return true;
    }
    for (int i = 0; i < e->g->ninput; i++)
        for (int k = 0; k < e->g->input[i]->rank; k++)
            if (e->g->input[i]->dim[k] == x) {
                *out = (Axis){e->g->input[i], k};
                return true;
            }
    return false;
}

const char *size_input(const Emit *e, const Expr *x)
{
    for (int i = 0; i < e->g->nscalar_input; i++)
        if (e->g->scalar_input[i].value.kind == ARG_EXPR && e->g->scalar_input[i].value.e == x)
            return e->g->scalar_input[i].name;
    return NULL;
}

static bool solve_axis(Emit *e, const Expr *s, Expr *size, Solution *out)
{
    return expr_split(e->g->ex, size, s, &out->factor, &out->rest) && size_known(e, out->factor) &&
           size_known(e, out->rest);
}

bool find_solution(Emit *e, const Expr *s, Solution *out)
{
    if (e->solved[s->i]) {
        *out = *e->solved[s->i];
        return true;
    }
    if (!room(e, s) || e->asked[s->id]) return false;
    e->asked[s->id] = true;
    bool found = false;
    for (int i = 0; i < e->g->ninput && !found; i++)
        for (int k = 0; k < e->g->input[i]->rank && !found; k++) {
            Expr *size = e->g->input[i]->dim[k];
            out->axis = (Axis){e->g->input[i], k};
            found = ex_mentions(size, s) && solve_axis(e, s, size, out);
        }
    e->asked[s->id] = false;
    Solution *keep = found ? arena_new(e->arena, Solution) : NULL;
    if (keep) *keep = *out;
    e->solved[s->i] = keep;
    return keep || (found && oom(e->err));
}

/* Can x be computed here? */
bool size_known(Emit *e, const Expr *x)
{
    Axis axis;
    Solution solution;
    if (ex_is_const(x) || find_axis(e, x, &axis) || size_input(e, x)) return true;
    if (!room(e, x)) return false;
    if (e->known[x->id]) return true; /* once known, always */
    bool yes = x->kind != EX_SYM ||
               (symbol_out_of_data(symbol_of(e, x)) ? e->bound[x->i] : find_solution(e, x, &solution));
    for (int i = 0; i < x->nargs && yes; i++) yes = size_known(e, x->args[i]);
    return e->known[x->id] = yes;
}

/* ------------------------------------------------------------------ nodes */

static bool operand_name(Emit *e, const Expr *x, const char **name)
{
    *name = NULL;
    return !x || ex_is_const(x) || size_name(e, x, name);
}

static bool operate(Emit *e, ExprKind kind, const Expr *value, int n, Expr *const *x, const char *const *names,
                    const char **name)
{
    *name = fresh_name(e, kinds[kind].name);
    return *name && write_size_node(e, kinds[kind].target, *name, value, n, x, names);
}

static bool binary(Emit *e, ExprKind kind, Expr *a, const char *a_name, Expr *b, const Expr *value, const char **name)
{
    const char *names[2] = {a_name, NULL};
    TRY(operand_name(e, b, &names[1]));
    return operate(e, kind, value, 2, (Expr *[]){a, b}, names, name);
}

/* PyTorch has a symbol of one value as that value, and the item of a bool as true or false. */
static const Expr *only_value(const Emit *e, const Expr *x)
{
    if (x->kind != EX_SYM && !x->is_bool) return x; /* the size of an axis */
    const Symbol *s = symbol_of(e, x->is_bool ? x->args[0] : x);
    if (s->lo != s->hi) return x;
    return x->is_bool ? ex_bool(e->g->ex, s->lo == 1) : ex_int(e->g->ex, s->lo);
}

/* A node that reads a number or truth value from a tensor: aten.sym_size.int or aten.item.default. */
static bool reading_node(Emit *e, const char *target, const char *base, const Value *v, int at, const Expr *x,
                         const char **name)
{
    *name = fresh_name(e, base);
    TRY(*name);
    Buf inputs = {0}, output = {0}, *table = x->is_bool ? &e->bools : x->is_float ? &e->floats : &e->ints;
    jw_put(&inputs, "{'name': 'self', 'arg': {'as_tensor': {'name': %s}}, 'kind': 1}", e->name[v->id]);
    if (at >= 0) jw_put(&inputs, "{'name': 'dim', 'arg': {'as_int': %d}, 'kind': 1}", at);
    put_symbol(&output, x, *name);
    put_node(e, target, &inputs, &output, *name);
    jw_key(table, *name);
    put_size(e, only_value(e, x), table);
    return true;
}

static bool axis_node(Emit *e, const Expr *x, Axis a, const char **name)
{
    return emit_value(e, a.v) && reading_node(e, "torch.ops.aten.sym_size.int", "sym_size_int", a.v, a.at, x, name);
}

static bool solution_node(Emit *e, const Expr *x, Solution s, const char **name)
{
    ExprPool *p = e->g->ex;
    Expr *size = s.axis.v->dim[s.axis.at];
    TRY(size_name(e, size, name));
    if (!ex_equals_int(s.rest, 0)) {
        Expr *left = ex_sub(p, size, s.rest);
        const char *names[2] = {*name, NULL};
        TRY(left && operand_name(e, s.rest, &names[1]));
        *name = fresh_name(e, "sub");
        TRY(*name && write_size_node(e, "_operator.sub", *name, left, 2, (Expr *[]){size, s.rest}, names));
        size = left;
    }
    return ex_equals_int(s.factor, 1) || binary(e, EX_FLOORDIV, size, *name, s.factor, x, name);
}

/* Half to even, of functions that a file may name: up = floor(x + 1/2) and down = ceil(x - 1/2) differ where x is
 * halfway. */
static Expr *rounded(ExprPool *p, Expr *x)
{
    Expr *half = ex_float(p, 0.5), *up = ex_make(p, EX_FLOOR, ex_add(p, x, half), NULL, NULL),
         *down = ex_make(p, EX_CEIL, ex_sub(p, x, half), NULL, NULL);
    return ex_sub(p, up, ex_mul(p, ex_sub(p, up, down), ex_mod(p, up, ex_int(p, 2))));
}

/* a + b + c and a * b * c, from the left; what is subtracted is. */
static bool fold(Emit *e, const Expr *x, const char **name)
{
    ExprPool *p = e->g->ex;
    Expr *sum = x->args[0];
    TRY(operand_name(e, sum, name));
    for (int i = 1; i < x->nargs; i++) {
        Expr *t = x->args[i], *whole = x->kind == EX_ADD ? ex_add(p, sum, t) : ex_mul(p, sum, t);
        bool minus = x->kind == EX_ADD && !x->is_float && t->kind == EX_MUL && t->args[0]->kind == EX_INT &&
                     t->args[0]->i < 0;
        const char *names[2] = {*name, NULL};
        if (minus) t = ex_neg(p, t);
        TRY((t && whole) || fail(e->err, E_LIMIT, "a size expression is too large"));
        TRY(operand_name(e, t, &names[1]));
        *name = fresh_name(e, minus ? "sub" : kinds[x->kind].name);
        TRY(*name && write_size_node(e, minus ? "_operator.sub" : kinds[x->kind].target, *name, whole, 2,
                                     (Expr *[]){sum, t}, names));
        sum = whole;
    }
    return true;
}

static bool unknown_size(Emit *e, const Expr *x)
{
    Buf b = {0};
    ex_print(e->g->ex, x, &b);
    fail(e->err, E_UNSUPPORTED, "size '%s' cannot be found from the sizes of the inputs", b.data ? b.data : "?");
    buf_free(&b);
    return false;
}

/* What PyTorch calls the item of a bool tensor: whether its symbol is 1. */
Expr *is_true(const Emit *e, const Expr *symbol)
{
    return ex_make(e->g->ex, EX_EQ, symbol_of(e, symbol)->expr, ex_int(e->g->ex, 1), NULL);
}

/* The symbol of a bool as a number. */
static bool truth_as_number(Emit *e, const Expr *x, const char **name)
{
    Expr *args[] = {is_true(e, x), ex_int(e->g->ex, 1), ex_int(e->g->ex, 0)};
    const char *names[3] = {NULL};
    TRY(args[0] && size_name(e, args[0], &names[0]));
    return operate(e, EX_WHERE, x, 3, args, names, name);
}

static bool make_size(Emit *e, const Expr *x, const char **name)
{
    Axis axis;
    Solution solution;
    const char *names[3];
    if (find_axis(e, x, &axis)) return axis_node(e, x, axis, name);
    if ((*name = size_input(e, x))) return true;
    if (x->kind == EX_SYM && symbol_of(e, x)->source == SYM_ITEM && symbol_of(e, x)->value->dtype == DT_BOOL &&
        e->bound[x->i])
        return truth_as_number(e, x, name);
    if (x->kind == EX_SYM && symbol_out_of_data(symbol_of(e, x))) { /* its tensor comes later: now, then */
        if (e->asked[x->id] || e->bound[x->i]) return unknown_size(e, x);
        e->asked[x->id] = true;
        bool ok = emit_value(e, symbol_of(e, x)->value);
        e->asked[x->id] = false;
        return ok && size_name(e, x, name);
    }
    if (x->kind == EX_SYM)
        return find_solution(e, x, &solution) ? solution_node(e, x, solution, name) : unknown_size(e, x);
    if (x->kind == EX_ADD || x->kind == EX_MUL) return fold(e, x, name);
    if (x->kind == EX_ROUND) return size_name(e, rounded(e->g->ex, x->args[0]), name);
    for (int i = 0; i < x->nargs && i < 3; i++) TRY(operand_name(e, x->args[i], &names[i]));
    if (x->nargs <= 3 && (x->nargs < 3 || x->kind == EX_WHERE))
        return operate(e, x->kind, x, x->nargs, x->args, names, name);
    Expr *part = x->args[0];
    *name = names[0];
    for (int i = 1; i < x->nargs; i++) {
        Expr *whole = ex_make(e->g->ex, x->kind, part, x->args[i], NULL);
        TRY(whole && binary(e, x->kind, part, *name, x->args[i], whole, name));
        part = whole;
    }
    return true;
}

bool size_name(Emit *e, const Expr *x, const char **name)
{
    TRY(room(e, x));
    if ((*name = e->size[x->id])) return true;
    TRY(make_size(e, x, name));
    e->size[x->id] = *name;
    return true;
}

bool write_size_node(Emit *e, const char *target, const char *name, const Expr *value, int n, Expr *const *args,
                     const char *const *names)
{
    static const char *const letters[] = {"a", "b", "c"};
    Buf inputs = {0}, output = {0}, *table = value->is_bool ? &e->bools : value->is_float ? &e->floats : &e->ints;
    for (int i = 0; i < n; i++) {
        jw_put(&inputs, "{'name': %s, 'arg': ", letters[i]);
        if (names[i]) put_symbol(&inputs, args[i], names[i]);
        else put_number(e, args[i], PT_SCALAR, &inputs);
        jw_put(&inputs, "'kind': 1}");
    }
    put_symbol(&output, value, name);
    put_node(e, target, &inputs, &output, name);
    jw_key(table, name);
    value = as_asserted(e, value);
    TRY(value || oom(e->err));
    if (value->kind == EX_INT || value->kind == EX_BOOL) put_number(e, value, PT_SCALAR, table);
    else put_expr(e, value, table);
    return true;
}

bool put_number(Emit *e, const Expr *x, ParamType as, Buf *out)
{
    const char *name;
    bool to_float = as == PT_FLOAT || as == PT_FLOATS, to_bool = as == PT_BOOL || as == PT_BOOLS,
         to_int = as == PT_INT || as == PT_INTS;
    if (!ex_is_const(x)) {
        TRY(size_name(e, x, &name));
        put_symbol(out, x, name);
    } else if (to_float || x->kind == EX_FLOAT) {
        put_float(ex_number(x), out);
    } else if (to_bool || (x->kind == EX_BOOL && !to_int)) {
        jw_put(out, x->i ? "{'as_bool': true}" : "{'as_bool': false}");
    } else {
        put_int(out, x->i);
    }
    return true;
}

bool put_item(Emit *e, Value *v, const Expr *x)
{
    if (v->dtype == DT_BOOL) x = is_true(e, x);
    return room(e, x) &&
           reading_node(e, e->g->core ? "torch.ops.aten._local_scalar_dense.default" : "torch.ops.aten.item.default",
                        "item", v, -1, x, &e->size[x->id]);
}
