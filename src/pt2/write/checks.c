/* What must hold for the sizes of a .pt2: guards_code says what is known from the inputs, aten._assert_scalar what
 * depends on data, there where its sizes are known.
 *
 *     require s0 == s1 "guard ..."   ->  "L['x'].size()[0] == L['y'].size()[0]"
 *     symbol u0 = item %n in [2, 9]  ->  item = aten.item(n); ge = _operator.ge(item, 2);
 *                                        aten._assert_scalar(ge, "...")
 */
#include <string.h>
#include "pt2/write/write_impl.h"
#include "base/mem.h"

static bool mentions_data(const Emit *e, const Expr *x)
{
    for (int i = 0; i < expr_symbol_count(e->g->ex); i++)
        if (symbol_out_of_data(expr_symbol(e->g->ex, i)) && ex_mentions(x, expr_symbol(e->g->ex, i)->expr)) return true;
    return false;
}

/* guards_code speaks of sizes of tensors, and a condition with != in it says nothing there (pt2/read/guards.c). */
static bool guardable(Emit *e, const Expr *x, int *budget)
{
    Axis axis;
    Solution s;
    if (--*budget < 0) return false;
    if (ex_is_const(x) || find_axis(e, x, &axis)) return true;
    if (x->kind == EX_NE || x->kind == EX_NOT || size_input(e, x)) return false;
    if (x->kind == EX_SYM)
        return !symbol_out_of_data(expr_symbol(e->g->ex, (int)x->i)) && find_solution(e, x, &s) &&
               guardable(e, s.rest, budget) && guardable(e, s.factor, budget);
    for (int i = 0; i < x->nargs; i++)
        if (!guardable(e, x->args[i], budget)) return false;
    return true;
}

static void put_guard(Emit *e, const Expr *x, Buf *out)
{
    static const char *const infix[] = {
        [EX_ADD] = " + ",     [EX_MUL] = "*",       [EX_POW] = "**",      [EX_FLOORDIV] = " // ", [EX_MOD] = " % ",
        [EX_TRUEDIV] = " / ", [EX_LSHIFT] = " << ", [EX_RSHIFT] = " >> ", [EX_EQ] = " == ",       [EX_LT] = " < ",
        [EX_LE] = " <= ",     [EX_AND] = " and ",   [EX_OR] = " or ",     [EX_WHERE] = NULL};
    Axis axis;
    Solution s;
    if (ex_is_const(x)) {
        ex_print(e->g->ex, x, out);
    } else if (find_axis(e, x, &axis)) {
        buf_printf(out, "L['%s'].size()[%d]", e->name[axis.v->id], axis.at);
    } else if (x->kind == EX_SYM) {
        if (!find_solution(e, x, &s)) return;
        buf_printf(out, "((L['%s'].size()[%d] - (", e->name[s.axis.v->id], s.axis.at);
        put_guard(e, s.rest, out);
        buf_puts(out, ")) // (");
        put_guard(e, s.factor, out);
        buf_puts(out, "))");
    } else {
        const char *op = infix[x->kind], *name = x->kind == EX_MAX ? "max" : x->kind == EX_MIN ? "min" : sympy_name(x);
        buf_printf(out, "%s(", op ? "" : name);
        for (int i = 0; i < x->nargs; i++) {
            if (i) buf_puts(out, op ? op : ", ");
            put_guard(e, x->args[i], out);
        }
        buf_puts(out, ")");
    }
}

static bool starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* The text of a guard that was read is kept, unless it was cut. */
static void guard_text(Emit *e, const Require *r, Buf *out)
{
    enum { CUT = 200 };
    bool kept = starts(r->where, "guard ") && strlen(r->where + 6) < CUT && strstr(r->where, "L[");
    if (kept) buf_puts(out, r->where + 6);
    else put_guard(e, r->cond, out);
}

/* aten._assert_scalar of a truth value that has a name. */
static bool assert_named(Emit *e, const char *truth, const char *message)
{
    Buf inputs = {0};
    const char *name = fresh_name(e, "_assert_scalar");
    TRY(name);
    jw_put(&inputs, "{'name': 'self', 'arg': {'as_sym_bool': {'as_name': %s}}, 'kind': 1}", truth);
    jw_put(&inputs, "{'name': 'assert_msg', 'arg': {'as_string': %s}, 'kind': 1}", message);
    put_node(e, "torch.ops.aten._assert_scalar.default", &inputs, &(Buf){0}, name);
    return true;
}

/* Ranges of derived sizes are read from range_constraints again, and what shape inference asks for is asked again. */
static bool is_range(const Require *r) { return starts(r->where, RANGE_OF); }
static bool inferred(const Require *r) { return starts(r->where, "node '"); }

static bool as_assert(Emit *e, const Require *r)
{
    if (is_range(r)) return false;
    if (starts(r->where, "assert: ")) return true;
    int budget = 2000; /* parts of the condition: longer ones are not readable */
    return mentions_data(e, r->cond) ? !inferred(r) : !guardable(e, r->cond, &budget);
}

/* The asserts whose sizes are all known by now. */
static bool put_asserts(Emit *e)
{
    for (int i = 0; i < e->g->nrequire; i++) {
        const Require *r = &e->g->require[i];
        if (e->checked[i] || !as_assert(e, r) || !size_known(e, r->cond)) continue;
        e->checked[i] = true;
        const char *truth;
        TRY(size_name(e, r->cond, &truth) &&
            assert_named(e, truth, starts(r->where, "assert: ") ? r->where + 8 : r->where));
    }
    return true;
}

bool put_guards(Emit *e)
{
    TRY(put_asserts(e));
    for (int i = 0; i < e->g->nrequire; i++) {
        const Require *r = &e->g->require[i];
        bool bound = r->cond->kind == EX_LT ||
                     r->cond->kind == EX_LE; /* a reader draws on bounds in guards before it meets the node */
        if (is_range(r) || as_assert(e, r) || mentions_data(e, r->cond) || (bound && inferred(r))) continue;
        Buf text = {0};
        guard_text(e, r, &text);
        if (!text.len) buf_puts(&text, "True");
        jw_take(&e->guards, NULL, &text);
    }
    return true;
}

/* PyTorch checks the range of a data-dependent size by asserts. The pool folds what the range says, so the comparison
 * is written as it stands. */
static bool assert_range(Emit *e, const Symbol *s, const char *symbol)
{
    ExprPool *p = e->g->ex;
    bool above = s->lo > (s->source == SYM_SIZE ? 0 : INT64_MIN), below = s->hi < INT64_MAX;
    const char *size = NULL;
    TRY((!above && !below) || size_name(e, s->expr, &size));
    for (int k = !above; k < 1 + below; k++) {
        int64_t bound = k ? s->hi : s->lo;
        Expr *part[2] = {s->expr, ex_int(p, bound)}, *known = (Expr *)(uintptr_t)as_asserted(e, s->expr);
        Expr *known_part[2] = {k ? known : part[1], k ? part[1] : known};
        Expr compared = {.kind = EX_LE, .nargs = 2, .args = known_part, .is_bool = true};
        const Expr *cond = s->lo == s->hi ? ex_bool(p, true) : &compared;
        const char *name = fresh_name(e, k ? "le" : "ge"), *names[2] = {size, NULL};
        const char *message = arena_printf(e->arena, "Runtime assertion failed for expression %s %s %lld", symbol,
                                           k ? "<=" : ">=", (long long)bound);
        TRY((part[1] && known && message) || oom(e->err));
        TRY(name && write_size_node(e, k ? "_operator.le" : "_operator.ge", name, cond, 2, part, names) &&
            assert_named(e, name, message));
    }
    return true;
}

/* The item of a bool tensor that may only be true, or only false. */
static bool assert_truth(Emit *e, const Symbol *s, const char *symbol)
{
    if (s->lo != s->hi) return true;
    Expr *truth = is_true(e, s->expr);
    if (s->lo == 0) truth = ex_make(e->g->ex, EX_NOT, truth, NULL, NULL);
    const char *name, *message = arena_printf(e->arena, "Runtime assertion failed for expression Eq(%s, %lld)", symbol,
                                              (long long)s->lo);
    TRY((truth && message) || oom(e->err));
    return size_name(e, truth, &name) && assert_named(e, name, message);
}

bool note_value(Emit *e, const Value *v)
{
    bool any = false;
    for (int k = v->id < e->g->next_id ? e->first_of[v->id] : 0; k; k = e->next_of[k - 1]) {
        int i = k - 1;
        Symbol *s = expr_symbol(e->g->ex, i);
        if (s->value != v || e->bound[i]) continue;
        if (s->source == SYM_ITEM) TRY(put_item(e, s->value, s->expr));
        e->bound[i] = any = true;
        TRY(v->dtype == DT_BOOL ? assert_truth(e, s, e->symbol[i]) : assert_range(e, s, e->symbol[i]));
    }
    return !any || put_asserts(e);
}
