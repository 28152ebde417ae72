/* Expressions as text: printing infix, and one recursive-descent parser for infix (Python's operators), sympy's srepr
 * and the guards that torch.export writes. ex_parse(p, "Add(Symbol('s0', integer=True), Integer(1))", ...) is
 * ex_parse(p, "s0 + 1", ...).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "expr/expr_impl.h"

/* ------------------------------------------------------------------ printing */

static const char *const infix[] = {
    [EX_ADD] = " + ",   [EX_MUL] = "*",       [EX_POW] = "**",      [EX_FLOORDIV] = "//", [EX_MOD] = " % ",
    [EX_TRUEDIV] = "/", [EX_LSHIFT] = " << ", [EX_RSHIFT] = " >> ", [EX_EQ] = " == ",     [EX_NE] = " != ",
    [EX_LT] = " < ",    [EX_LE] = " <= ",     [EX_AND] = " and ",   [EX_OR] = " or ",     [EX_WHERE] = NULL,
};
static const char *const call_names[] = {
    [EX_MAX] = "Max",          [EX_MIN] = "Min",          [EX_TOFLOAT] = "ToFloat",  [EX_CEIL] = "CeilToInt",
    [EX_FLOOR] = "FloorToInt", [EX_TRUNC] = "TruncToInt", [EX_ROUND] = "RoundToInt", [EX_SQRT] = "sqrt",
    [EX_ABS] = "Abs",          [EX_NOT] = "Not",          [EX_WHERE] = "Where",
};

static int strength(const Expr *e)
{
    switch (e->kind) {
    case EX_OR: return 1;
    case EX_AND: return 2;
    case EX_EQ:
    case EX_NE:
    case EX_LT:
    case EX_LE: return 3;
    case EX_LSHIFT:
    case EX_RSHIFT: return 4;
    case EX_ADD: return 5;
    case EX_MUL:
    case EX_FLOORDIV:
    case EX_MOD:
    case EX_TRUEDIV: return 6;
    case EX_POW: return 7;
    default: return e->kind == EX_INT && e->i < 0 ? 5 : e->kind == EX_FLOAT && signbit(e->f) ? 6 : 9;
    }
}

enum { PRINT_LENGTH = 1 << 16, SORTED_PARTS = 8 };

/* sorted: parts of sums and products by their texts, up to SORTED_PARTS, instead of as the pool came to know them */
typedef struct Printer {
    const ExprPool *p;
    bool sorted;
    int made; /* expressions */
    bool failed;
} Printer;
static void print(Printer *p, const Expr *e, Buf *out);

static const char *text_of(const Buf *b) { return b->data ? b->data : ""; }

static void order_parts(Printer *p, const Expr *e, int first, const Expr **part)
{
    bool sorts = p->sorted && e->nargs - first <= SORTED_PARTS;
    Buf text[SORTED_PARTS] = {0};
    for (int k = first, n = 0; k < e->nargs; k++, n++) {
        int at = n;
        Buf own = {0};
        if (sorts) print(p, e->args[k], &own);
        for (; sorts && at && strcmp(text_of(&own), text_of(&text[at - 1])) < 0; at--) {
            part[at] = part[at - 1];
            text[at] = text[at - 1];
        }
        part[at] = e->args[k];
        p->failed |= own.failed;
        if (sorts) text[at] = own;
    }
    for (int k = 0; k < SORTED_PARTS; k++) buf_free(&text[k]);
}

static void print_operand(Printer *p, const Expr *e, int outer, Buf *out)
{
    bool paren = strength(e) <= outer;
    if (paren) buf_puts(out, "(");
    print(p, e, out);
    if (paren) buf_puts(out, ")");
}

static void print_product(Printer *p, const Expr *e, int first, Buf *out)
{
    const Expr *part[MAX_TERMS];
    int number = e->args[0]->kind == EX_INT;
    part[0] = e->args[0];
    order_parts(p, e, number, part + number);
    for (int i = first; i < e->nargs; i++) {
        if (i > first) buf_puts(out, "*");
        print_operand(p, part[i], i ? 6 : 5, out);
    }
}

/* a term of a sum: "- 3*s0" instead of "+ -3*s0"; the constant, which leads the canonical order, is printed last */
static void print_sum(Printer *p, const Expr *e, Buf *out)
{
    const Expr *part[MAX_TERMS];
    int shift = e->args[0]->kind == EX_INT;
    order_parts(p, e, shift, part);
    if (shift) part[e->nargs - 1] = e->args[0];
    for (int k = 0; k < e->nargs; k++) {
        const Expr *t = part[k];
        bool scaled = t->kind == EX_MUL && t->args[0]->kind == EX_INT;
        int64_t c = scaled ? t->args[0]->i : t->kind == EX_INT ? t->i : 1;
        bool minus = c < 0 && c != INT64_MIN && (scaled || t->kind == EX_INT) && k > 0;
        if (k) buf_puts(out, minus ? " - " : " + ");
        if (!minus) {
            print_operand(p, t, k && strength(t) == 5 && t->kind != EX_INT ? 5 : 4, out);
        } else if (t->kind == EX_INT) {
            buf_printf(out, "%lld", (long long)-c);
        } else {
            if (c != -1) buf_printf(out, "%lld*", (long long)-c);
            print_product(p, t, 1, out);
        }
    }
}

static void print(Printer *p, const Expr *e, Buf *out)
{
    if (out->len > PRINT_LENGTH || p->made++ > PRINT_LENGTH) return; /* shared parts are printed each time */
    switch (e->kind) {
    case EX_INT: buf_printf(out, "%lld", (long long)e->i); return;
    case EX_BOOL: buf_puts(out, e->i ? "True" : "False"); return;
    case EX_FLOAT: {
        char s[DOUBLE_TEXT];
        print_double(s, e->f);
        buf_puts(out, s);
        if (isfinite(e->f) && !strpbrk(s, ".e")) buf_puts(out, ".0");
        return;
    }
    case EX_SYM: buf_puts(out, expr_symbol(p->p, (int)e->i)->name); return;
    case EX_ADD:
        if (!e->is_float) {
            print_sum(p, e, out);
            return;
        }
        break;
    case EX_MUL: print_product(p, e, 0, out); return;
    default: break;
    }
    const char *op = e->kind < EX_WHERE ? infix[e->kind] : NULL;
    if (op) {
        bool chains = e->kind == EX_POW || (e->kind >= EX_EQ && e->kind <= EX_LE); /* a < b < c is not (a < b) < c */
        for (int i = 0; i < e->nargs; i++) {
            if (i) buf_puts(out, op);
            print_operand(p, e->args[i], i || chains ? strength(e) : strength(e) - 1, out);
        }
        return;
    }
    const Expr *part[MAX_TERMS];
    bool either = e->kind == EX_MAX || e->kind == EX_MIN;
    if (either) order_parts(p, e, 0, part);
    buf_printf(out, "%s(", call_names[e->kind]);
    for (int i = 0; i < e->nargs; i++) {
        if (i) buf_puts(out, ", ");
        print(p, either ? part[i] : e->args[i], out);
    }
    buf_puts(out, ")");
}

static void print_as(Printer p, const Expr *e, Buf *out)
{
    Buf text = {0};
    print(&p, e, &text);
    if (text.len > PRINT_LENGTH || p.made > PRINT_LENGTH) buf_puts(&text, "...");
    if (text.failed || p.failed) out->failed = true;
    else buf_add(out, text.data, text.len);
    buf_free(&text);
}

void ex_print(const ExprPool *p, const Expr *e, Buf *out) { print_as((Printer){.p = p}, e, out); }

void ex_print_sorted(const ExprPool *p, const Expr *e, Buf *out)
{
    print_as((Printer){.p = p, .sorted = true}, e, out);
}

/* ------------------------------------------------------------------ parsing */

/* 64 levels, each counted by parse_or, parse_not (again below a "not") and parse_unary */
enum { PARSE_DEPTH = 4 * 64, PARSE_LENGTH = 1 << 20, PARSE_TERMS = 1 << 14 };

typedef struct Parser {
    ExprPool *pool;
    const char *text, *at;
    ExprAtom *atom;
    void *user;
    int depth, terms;
    Err *err;
} Parser;

static Expr *stop(Parser *s, ErrCode code, const char *what)
{
    fail(s->err, code, "size expression '%.60s': byte %zu: %s", s->text, (size_t)(s->at - s->text), what);
    return NULL;
}

static Expr *refuse(Parser *s, const char *what) { return stop(s, E_FORMAT, what); }

static void skip(Parser *s)
{
    while (is_space(*s->at)) s->at++;
}

static bool take(Parser *s, const char *token)
{
    skip(s);
    size_t n = strlen(token);
    if (strncmp(s->at, token, n)) return false;
    if (is_alpha(token[0]) && (is_alnum(s->at[n]) || s->at[n] == '_')) return false;
    s->at += n;
    return true;
}

static Expr *parse_or(Parser *s);

static Expr *made(Parser *s, Expr *e)
{
    if (++s->terms > PARSE_TERMS) return stop(s, E_LIMIT, "more than 16384 terms and operations");
    return e ? e : refuse(s, "too large, or arithmetic overflow");
}

/* Functions by the names of sympy's srepr and torch's _sympy/functions.py; n-ary ones fold from the left. */
static const struct {
    const char *name;
    ExprKind kind;
    int min, max;
    bool swap;
} functions[] = {
    {"Add", EX_ADD, 1, 1000, false},
    {"Mul", EX_MUL, 1, 1000, false},
    {"Pow", EX_POW, 2, 2, false},
    {"PowByNatural", EX_POW, 2, 2, false},
    {"FloatPow", EX_POW, 2, 2, false},
    {"FloorDiv", EX_FLOORDIV, 2, 2, false},
    {"CleanDiv", EX_FLOORDIV, 2, 2, false},
    {"Mod", EX_MOD, 2, 2, false},
    {"PythonMod", EX_MOD, 2, 2, false},
    {"Max", EX_MAX, 1, 1000, false},
    {"Min", EX_MIN, 1, 1000, false},
    {"FloatTrueDiv", EX_TRUEDIV, 2, 2, false},
    {"IntTrueDiv", EX_TRUEDIV, 2, 2, false},
    {"Rational", EX_TRUEDIV, 2, 2, false},
    {"ToFloat", EX_TOFLOAT, 1, 1, false},
    {"CeilToInt", EX_CEIL, 1, 1, false},
    {"FloorToInt", EX_FLOOR, 1, 1, false},
    {"TruncToInt", EX_TRUNC, 1, 1, false},
    {"RoundToInt", EX_ROUND, 1, 1, false},
    {"OpaqueUnaryFn_sqrt", EX_SQRT, 1, 1, false},
    {"sqrt", EX_SQRT, 1, 1, false},
    {"Abs", EX_ABS, 1, 1, false},
    {"abs", EX_ABS, 1, 1, false},
    {"LShift", EX_LSHIFT, 2, 2, false},
    {"RShift", EX_RSHIFT, 2, 2, false},
    {"Equality", EX_EQ, 2, 2, false},
    {"Eq", EX_EQ, 2, 2, false},
    {"Unequality", EX_NE, 2, 2, false},
    {"Ne", EX_NE, 2, 2, false},
    {"StrictLessThan", EX_LT, 2, 2, false},
    {"Lt", EX_LT, 2, 2, false},
    {"LessThan", EX_LE, 2, 2, false},
    {"Le", EX_LE, 2, 2, false},
    {"StrictGreaterThan", EX_LT, 2, 2, true},
    {"Gt", EX_LT, 2, 2, true},
    {"GreaterThan", EX_LE, 2, 2, true},
    {"Ge", EX_LE, 2, 2, true},
    {"And", EX_AND, 1, 1000, false},
    {"Or", EX_OR, 1, 1000, false},
    {"Not", EX_NOT, 1, 1, false},
    {"Where", EX_WHERE, 3, 3, false},
    {"max", EX_MAX, 1, 1000, false},
    {"min", EX_MIN, 1, 1000, false},
};

static Expr *parse_call(Parser *s, const char *name, size_t n)
{
    if (n == 8 && !strncmp(name, "Identity", 8)) {
        Expr *e = parse_or(s);
        return e && !take(s, ")") ? refuse(s, "expected ')'") : e;
    }
    bool ceil_div = n == 7 && !strncmp(name, "CeilDiv", 7), modular = n == 15 && !strncmp(name, "ModularIndexing", 15);
    size_t f = 0, count = sizeof functions / sizeof *functions;
    while (f < count && (strlen(functions[f].name) != n || strncmp(functions[f].name, name, n))) f++;
    if (f == count && !ceil_div && !modular) return refuse(s, "unknown function");
    Expr *arg[3] = {0}, *folded = NULL;
    int have = 0;
    do {
        Expr *e = parse_or(s);
        if (!e) return NULL;
        bool fold = f < count && functions[f].max > 3;
        if (have < 3) arg[have] = e;
        if (fold) folded = have ? made(s, ex_make(s->pool, functions[f].kind, folded, e, NULL)) : e;
        if (fold && !folded) return NULL;
        have++;
    } while (take(s, ","));
    if (!take(s, ")")) return refuse(s, "expected ')'");
    if (ceil_div || modular) {
        if (have != (ceil_div ? 2 : 3)) return refuse(s, "wrong number of arguments");
        if (ceil_div) return made(s, ex_neg(s->pool, ex_floordiv(s->pool, ex_neg(s->pool, arg[0]), arg[1])));
        return made(s, ex_mod(s->pool, ex_floordiv(s->pool, arg[0], arg[1]), arg[2]));
    }
    if (have < functions[f].min || have > functions[f].max) return refuse(s, "wrong number of arguments");
    if (folded) return folded;
    if (functions[f].swap) return made(s, ex_make(s->pool, functions[f].kind, arg[1], arg[0], NULL));
    return made(s, ex_make(s->pool, functions[f].kind, arg[0], arg[1], arg[2]));
}

bool expr_is_name(const char *name)
{
    const char *s = name;
    static const char *const reserved[] = {"and", "or", "not", "True", "true", "False", "false", "inf", "nan"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(s, reserved[i])) return false;
    bool plain = is_alpha(*s) || *s == '_';
    for (; *s; s++) plain = plain && (is_alnum(*s) || *s == '_');
    return plain && s - name <= EXPR_NAME_MOST;
}

/* Symbol('s0', positive=True), Integer(3), Float('0.5', precision=53): a literal and keywords that add nothing new. */
static Expr *parse_literal_call(Parser *s, char kind)
{
    skip(s);
    char quote = *s->at == '\'' || *s->at == '"' ? *s->at++ : 0;
    const char *from = s->at;
    while (*s->at && (quote ? *s->at != quote : *s->at != ',' && *s->at != ')')) s->at++;
    size_t n = (size_t)(s->at - from);
    char word[256];
    if (n == 0 || n >= sizeof word || (quote && *s->at != quote)) return refuse(s, "expected a name or a number");
    memcpy(word, from, n);
    word[n] = 0;
    if (quote) s->at++;
    while (take(s, ",")) {
        skip(s);
        while (is_alnum(*s->at) || *s->at == '_' || *s->at == '=') s->at++;
    }
    if (!take(s, ")")) return refuse(s, "expected ')'");
    const char *end;
    if (kind == 'S')
        return expr_is_name(word) ? made(s, ex_symbol(s->pool, word))
                             : refuse(s, "a symbol's name must be letters, digits and '_'");
    if (kind == 'F') {
        double v = parse_double(word, &end);
        return *end ? refuse(s, "not a number") : made(s, ex_float(s->pool, v));
    }
    errno = 0;
    long long v = parse_int(word, &end);
    if (*end || errno == ERANGE) return refuse(s, "not a 64-bit integer");
    return made(s, ex_int(s->pool, v));
}

static Expr *parse_number(Parser *s)
{
    const char *end;
    errno = 0;
    long long v = parse_int(s->at, &end);
    if (*end == '.' || *end == 'e' || *end == 'E') {
        double f = parse_double(s->at, &end);
        s->at = end;
        return made(s, ex_float(s->pool, f));
    }
    if (errno == ERANGE) return refuse(s, "integer does not fit in 64 bits");
    s->at = end;
    return made(s, ex_int(s->pool, v));
}

static Expr *parse_atom(Parser *s)
{
    skip(s);
    if (s->atom) {
        size_t used = 0;
        Expr *e = s->atom(s->user, s->at, &used);
        if (e) {
            s->at += used;
            return e;
        }
    }
    if (is_digit(*s->at) || *s->at == '.') return parse_number(s);
    if (take(s, "(")) {
        Expr *e = parse_or(s);
        return e && !take(s, ")") ? refuse(s, "expected ')'") : e;
    }
    const char *name = s->at;
    while (is_alnum(*s->at) || *s->at == '_' || *s->at == '.') s->at++;
    size_t n = (size_t)(s->at - name);
    if (!n) return refuse(s, "expected a size");
    if (!strncmp(name, "math.", 5)) name += 5, n -= 5;
    if (!strncmp(name, "torch.sym_", 10)) name += 10, n -= 10;
    if (take(s, "(")) {
        if (n == 6 && !strncmp(name, "Symbol", 6)) return parse_literal_call(s, 'S');
        if (n == 7 && !strncmp(name, "Integer", 7)) return parse_literal_call(s, 'I');
        if (n == 5 && !strncmp(name, "Float", 5)) return parse_literal_call(s, 'F');
        return parse_call(s, name, n);
    }
    char word[EXPR_NAME_MOST + 1];
    if (n >= sizeof word) return refuse(s, "name too long");
    memcpy(word, name, n);
    word[n] = 0;
    if (!strcmp(word, "True") || !strcmp(word, "true")) return made(s, ex_bool(s->pool, true));
    if (!strcmp(word, "False") || !strcmp(word, "false")) return made(s, ex_bool(s->pool, false));
    if (!strcmp(word, "inf") || !strcmp(word, "nan"))
        return made(s, ex_float(s->pool, word[0] == 'i' ? INFINITY : NAN));
    if (!expr_is_name(word)) return refuse(s, "unknown name");
    return made(s, ex_symbol(s->pool, word));
}

static Expr *parse_unary(Parser *s);

static Expr *parse_power(Parser *s)
{
    Expr *a = parse_atom(s);
    if (a && take(s, "**")) {
        Expr *b = parse_unary(s);
        return b ? made(s, ex_make(s->pool, EX_POW, a, b, NULL)) : NULL;
    }
    return a;
}

static Expr *parse_unary(Parser *s)
{
    if (++s->depth > PARSE_DEPTH) return refuse(s, "nested too deeply");
    Expr *e;
    if (take(s, "-")) {
        e = parse_unary(s);
        if (e) e = made(s, ex_neg(s->pool, e));
    } else {
        (void)take(s, "+");
        e = parse_power(s);
    }
    s->depth--;
    return e;
}

static Expr *parse_product(Parser *s)
{
    Expr *a = parse_unary(s);
    while (a) {
        skip(s);
        ExprKind k;
        if (s->at[0] == '*' && s->at[1] == '*') break;
        if (take(s, "*")) k = EX_MUL;
        else if (take(s, "//")) k = EX_FLOORDIV;
        else if (take(s, "/")) k = EX_TRUEDIV;
        else if (take(s, "%")) k = EX_MOD;
        else break;
        Expr *b = parse_unary(s);
        a = b ? made(s, ex_make(s->pool, k, a, b, NULL)) : NULL;
    }
    return a;
}

static Expr *parse_sum(Parser *s)
{
    Expr *a = parse_product(s);
    while (a) {
        bool plus = take(s, "+");
        if (!plus && !take(s, "-")) break;
        Expr *b = parse_product(s);
        a = b ? made(s, plus ? ex_add(s->pool, a, b) : ex_sub(s->pool, a, b)) : NULL;
    }
    return a;
}

static Expr *parse_shift(Parser *s)
{
    Expr *a = parse_sum(s);
    while (a) {
        bool left = take(s, "<<");
        if (!left && !take(s, ">>")) break;
        Expr *b = parse_sum(s);
        a = b ? made(s, ex_make(s->pool, left ? EX_LSHIFT : EX_RSHIFT, a, b, NULL)) : NULL;
    }
    return a;
}

/* a < b, and chains: a <= b <= c is (a <= b) and (b <= c). */
static Expr *parse_comparison(Parser *s)
{
    Expr *a = parse_shift(s), *all = NULL;
    while (a) {
        ExprKind k;
        bool swap = false;
        if (take(s, "==")) k = EX_EQ;
        else if (take(s, "!=")) k = EX_NE;
        else if (take(s, "<=")) k = EX_LE;
        else if (take(s, ">=")) k = EX_LE, swap = true;
        else if (take(s, "<")) k = EX_LT;
        else if (take(s, ">")) k = EX_LT, swap = true;
        else break;
        Expr *b = parse_shift(s);
        if (!b) return NULL;
        Expr *c = made(s, swap ? ex_make(s->pool, k, b, a, NULL) : ex_make(s->pool, k, a, b, NULL));
        if (!c) return NULL;
        all = all ? made(s, ex_make(s->pool, EX_AND, all, c, NULL)) : c;
        if (!all) return NULL;
        a = b;
    }
    return all ? all : a;
}

static Expr *parse_not(Parser *s)
{
    if (++s->depth > PARSE_DEPTH) return refuse(s, "nested too deeply");
    Expr *e;
    if (take(s, "not")) {
        e = parse_not(s);
        if (e) e = made(s, ex_make(s->pool, EX_NOT, e, NULL, NULL));
    } else {
        e = parse_comparison(s);
    }
    s->depth--;
    return e;
}

static Expr *parse_or(Parser *s)
{
    if (++s->depth > PARSE_DEPTH) return refuse(s, "nested too deeply");
    Expr *any = NULL;
    do {
        Expr *all = NULL;
        do {
            Expr *e = parse_not(s);
            if (!e) return NULL;
            all = all ? made(s, ex_make(s->pool, EX_AND, all, e, NULL)) : e;
            if (!all) return NULL;
        } while (take(s, "and") || take(s, "&"));
        any = any ? made(s, ex_make(s->pool, EX_OR, any, all, NULL)) : all;
        if (!any) return NULL;
    } while (take(s, "or") || take(s, "|"));
    s->depth--;
    return any;
}

Expr *ex_parse(ExprPool *p, const char *text, ExprAtom *atom, void *user, Err *err)
{
    Parser s = {.pool = p, .text = text, .at = text, .atom = atom, .user = user, .err = err};
    if (strlen(text) > PARSE_LENGTH) return stop(&s, E_LIMIT, "longer than 1 MiB");
    Expr *e = parse_or(&s);
    if (!e) return NULL;
    skip(&s);
    return *s.at ? refuse(&s, "unexpected text") : e;
}
