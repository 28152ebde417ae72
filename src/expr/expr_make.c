/* Powers, comparisons and whatever else has no file of its own; constants are folded. */
#include "expr/expr_impl.h"

enum { SEARCHED = 1 << 14 };

static Expr *power(ExprPool *p, Expr *a, Expr *b)
{
    if (!a->is_float && b->kind == EX_INT && b->i >= 0 && b->i <= 8) {
        Expr *e = ex_int(p, 1);
        for (int64_t k = 0; k < b->i; k++) e = ex_mul(p, e, a);
        return e;
    }
    bool is_float = a->is_float || b->is_float || (b->kind == EX_INT && b->i < 0);
    return expr_intern(p, &(Expr){.kind = EX_POW, .nargs = 2, .args = (Expr *[]){a, b}, .is_float = is_float});
}

static Expr *comparison(ExprPool *p, ExprKind kind, Expr *a, Expr *b)
{
    if (a == b) return ex_bool(p, kind == EX_EQ || kind == EX_LE);
    if (!a->is_float && !b->is_float && !a->is_bool && !b->is_bool) {
        Expr *d = ex_sub(p, a, b);
        if (!d) return NULL;
        int64_t lo, hi;
        ex_range(p, d, &lo, &hi);
        bool apart = lo > 0 || hi < 0;
        if (kind == EX_EQ && apart) return ex_bool(p, false);
        if (kind == EX_NE && apart) return ex_bool(p, true);
        if (kind == EX_LT && (hi < 0 || lo >= 0)) return ex_bool(p, hi < 0);
        if (kind == EX_LE && (hi <= 0 || lo > 0)) return ex_bool(p, hi <= 0);
        if (kind == EX_LE && expr_at_most(p, a, b, 2)) return ex_bool(p, true);
    }
    return expr_intern(p, &(Expr){.kind = kind, .nargs = 2, .args = (Expr *[]){a, b}, .is_bool = true});
}

Expr *ex_make(ExprPool *p, ExprKind kind, Expr *a, Expr *b, Expr *c)
{
    int n = kind == EX_WHERE ? 3 : kind == EX_TOFLOAT || (kind >= EX_CEIL && kind <= EX_ABS) || kind == EX_NOT ? 1 : 2;
    if (!a || (n > 1 && !b) || (n > 2 && !c)) return NULL;
    switch (kind) {
    case EX_ADD: return ex_add(p, a, b);
    case EX_MUL: return ex_mul(p, a, b);
    case EX_FLOORDIV: return ex_floordiv(p, a, b);
    case EX_MOD: return ex_mod(p, a, b);
    case EX_MAX:
    case EX_MIN: return kind == EX_MAX ? ex_max(p, a, b) : ex_min(p, a, b);
    case EX_POW: return power(p, a, b);
    case EX_EQ:
    case EX_NE:
    case EX_LT:
    case EX_LE: return comparison(p, kind, a, b);
    case EX_NEGF: return ex_neg(p, a);
    case EX_CEIL:
    case EX_FLOOR:
    case EX_TRUNC:
    case EX_ROUND:
        if (!a->is_float) return a;
        break;
    case EX_TOFLOAT:
        if (a->is_float) return a;
        break;
    case EX_AND:
    case EX_OR:
        if (a->kind == EX_BOOL) return (kind == EX_AND) == (a->i != 0) ? b : a;
        if (b->kind == EX_BOOL) return (kind == EX_AND) == (b->i != 0) ? a : b;
        break;
    case EX_WHERE:
        if (a->kind == EX_BOOL) return a->i ? b : c;
        if (b == c) return b;
        break;
    default: break;
    }
    Expr *args[3] = {a, b, c};
    Expr want = {.kind = kind, .nargs = n, .args = args};
    want.is_bool = kind == EX_AND || kind == EX_OR || kind == EX_NOT;
    want.is_float = kind == EX_TRUEDIV || kind == EX_TOFLOAT || kind == EX_SQRT || (kind == EX_ABS && a->is_float) ||
                    (kind == EX_WHERE && (b->is_float || c->is_float));
    bool constant = ex_is_const(a) && (n < 2 || ex_is_const(b)) && (n < 3 || ex_is_const(c));
    Expr *e = expr_intern(p, &want);
    if (!e || !constant) return e;
    Scalar v;
    Err ignored;
    if (!ex_eval(p, e, &(Binding){0}, &v, &ignored)) return e; /* e.g. a division by zero: reported when evaluated */
    return v.kind == SC_FLOAT ? ex_float(p, v.f) : v.kind == SC_BOOL ? ex_bool(p, v.i != 0) : ex_int(p, v.i);
}

/* ------------------------------------------------------------------ what is in it */

/* budget: how many nodes are looked at. Shared parts are met each time; when it is used up the answer is yes. */
static bool any_symbol(const ExprPool *p, const Expr *e, const Expr *wanted, int *budget)
{
    if (wanted && !(e->symbols & wanted->symbols)) return false;
    if (e->kind == EX_SYM) {
        if (wanted) return e == wanted;
        return symbol_out_of_data(p->symbols[e->i]);
    }
    if (!e->symbols) return false;
    for (int i = 0; i < e->nargs; i++)
        if (--*budget <= 0 || any_symbol(p, e->args[i], wanted, budget)) return true;
    return false;
}

bool ex_data_dependent(const ExprPool *p, const Expr *e) { return any_symbol(p, e, NULL, &(int){SEARCHED}); }
bool ex_mentions(const Expr *e, const Expr *symbol) { return any_symbol(NULL, e, symbol, &(int){SEARCHED}); }
