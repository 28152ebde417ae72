/* Values of expressions under a binding, by Python's rules for // and %; every node is computed once a binding.
 * Contract in expr.h. */
#include <math.h>
#include <string.h>
#include "base/elementary.h"
#include "expr/expr.h"
#include "base/mem.h"

bool binding_init(Binding *b, const ExprPool *p, Err *err)
{
    *b = (Binding){.n = expr_symbol_count(p), .nmemo = expr_node_count(p), .round = 1};
    size_t n = (size_t)b->n + 1, m = (size_t)b->nmemo + 1;
    b->value = mem_zeroed(n, sizeof *b->value);
    b->bound = mem_zeroed(n, sizeof *b->bound);
    b->memo = mem_zeroed(m, sizeof *b->memo);
    b->known = mem_zeroed(m, sizeof *b->known);
    if (b->value && b->bound && b->memo && b->known) return true;
    binding_free(b);
    return oom(err);
}

bool binding_extend(Binding *b, const ExprPool *p, Err *err)
{
    uint32_t had = b->nmemo, n = expr_node_count(p);
    if (n <= had) return true;
    n += n / 2;
    Scalar *memo = mem_grow(b->memo, ((size_t)n + 1) * sizeof *memo);
    if (memo) b->memo = memo;
    uint32_t *known = memo ? mem_grow(b->known, ((size_t)n + 1) * sizeof *known) : NULL;
    if (!known) return oom(err);
    memset(known + had, 0, ((size_t)n + 1 - had) * sizeof *known);
    b->known = known;
    b->nmemo = n;
    return true;
}

void binding_free(Binding *b)
{
    mem_free(b->value);
    mem_free(b->bound);
    mem_free(b->memo);
    mem_free(b->known);
    *b = (Binding){0};
}

static void forget(Binding *b)
{
    if (++b->round) return;
    memset(b->known, 0, b->nmemo * sizeof *b->known);
    b->round = 1;
}

void binding_set(Binding *b, int symbol, int64_t value)
{
    if (b->bound[symbol]) binding_unset(b, symbol); /* nothing was computed of one that was not bound */
    b->value[symbol] = value;
    b->bound[symbol] = true;
}

void binding_unset(Binding *b, int symbol)
{
    b->bound[symbol] = false;
    forget(b);
}

void binding_set_float(Binding *b, int symbol, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    binding_set(b, symbol, bits);
}

void binding_clear(Binding *b)
{
    memset(b->bound, 0, (size_t)b->n * sizeof *b->bound);
    forget(b);
}

static Scalar of_int(int64_t v) { return (Scalar){.kind = SC_INT, .i = v}; }
static Scalar of_bool(bool v) { return (Scalar){.kind = SC_BOOL, .i = v}; }
static Scalar of_float(double v) { return (Scalar){.kind = SC_FLOAT, .f = v}; }
static Scalar of_bits(int64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return of_float(v);
}

static bool to_int(double v, Scalar *out, Err *err)
{
    if (!(v >= -0x1p62 && v <= 0x1p62)) return fail(err, E_USAGE, "a size evaluates to %g", v);
    *out = of_int((int64_t)v);
    return true;
}

static bool evaluate(const ExprPool *p, const Expr *e, const Binding *b, Scalar *out, Err *err);

static bool int_power(int64_t a, int64_t n, Scalar *out, Err *err)
{
    int64_t r = 1;
    for (int64_t k = 0; k < n; k++) {
        if (r == 0 || (r == 1 && a == 1)) break;
        if (k > 64 || !mul_i64(r, a, &r)) {
            if (a == -1 || a == 1 || a == 0) {
                r = a == 0 ? 0 : a == 1 || n % 2 == 0 ? 1 : -1;
                break;
            }
            return fail(err, E_USAGE, "%lld ** %lld is too large for a size", (long long)a, (long long)n);
        }
    }
    *out = of_int(r);
    return true;
}

static bool binary(const Expr *e, Scalar x, Scalar y, Scalar *out, Err *err)
{
    bool f = x.kind == SC_FLOAT || y.kind == SC_FLOAT;
    double a = scalar_f64(x), c = scalar_f64(y);
    bool ok = true;
    int64_t r = 0;
    switch (e->kind) {
    case EX_ADD:
        if (f) *out = of_float(a + c);
        else ok = add_i64(x.i, y.i, &r), *out = of_int(r);
        break;
    case EX_MUL:
        if (f) *out = of_float(a * c);
        else ok = mul_i64(x.i, y.i, &r), *out = of_int(r);
        break;
    case EX_POW:
        if (f || y.i < 0) *out = of_float(real_pow(a, c));
        else return int_power(x.i, y.i, out, err);
        break;
    case EX_FLOORDIV:
        if (y.i == 0) return fail(err, E_USAGE, "division by zero in a size");
        if (y.i == -1 && x.i == INT64_MIN) return fail(err, E_USAGE, "a size is too large for 64 bits");
        *out = of_int(floor_div_i64(x.i, y.i));
        break;
    case EX_MOD:
        if (f) {
            double m = fmod(a, c);
            *out = of_float(m != 0 && (m < 0) != (c < 0) ? m + c : m);
            break;
        }
        if (y.i == 0) return fail(err, E_USAGE, "division by zero in a size");
        r = y.i == -1 ? 0 : x.i % y.i;
        *out = of_int(r != 0 && (r < 0) != (y.i < 0) ? r + y.i : r);
        break;
    case EX_TRUEDIV:
        if (c == 0) return fail(err, E_USAGE, "division by zero in a size");
        *out = of_float(a / c);
        break;
    case EX_MAX: *out = f ? of_float(a > c ? a : c) : of_int(x.i > y.i ? x.i : y.i); break;
    case EX_MIN: *out = f ? of_float(a < c ? a : c) : of_int(x.i < y.i ? x.i : y.i); break;
    case EX_LSHIFT:
    case EX_RSHIFT:
        if (y.i < 0 || y.i > 62) return fail(err, E_USAGE, "shift by %lld in a size", (long long)y.i);
        if (e->kind == EX_RSHIFT) *out = of_int(x.i >> y.i);
        else ok = mul_i64(x.i, (int64_t)1 << y.i, &r), *out = of_int(r);
        break;
    case EX_EQ: *out = of_bool(f ? a == c : x.i == y.i); break;
    case EX_NE: *out = of_bool(f ? a != c : x.i != y.i); break;
    case EX_LT: *out = of_bool(f ? a < c : x.i < y.i); break;
    case EX_LE: *out = of_bool(f ? a <= c : x.i <= y.i); break;
    case EX_AND: *out = of_bool(x.i && y.i); break;
    case EX_OR: *out = of_bool(x.i || y.i); break;
    default: return fail(err, E_FORMAT, "not a size expression");
    }
    return ok || fail(err, E_USAGE, "a size is too large for 64 bits");
}

static bool unary(const Expr *e, Scalar x, Scalar *out, Err *err)
{
    double a = scalar_f64(x);
    switch (e->kind) {
    case EX_TOFLOAT: *out = of_float(a); return true;
    case EX_CEIL: return to_int(ceil(a), out, err);
    case EX_FLOOR: return to_int(floor(a), out, err);
    case EX_TRUNC: return to_int(trunc(a), out, err);
    case EX_ROUND: return to_int(nearbyint(a), out, err);
    case EX_SQRT: *out = of_float(sqrt(a)); return true;
    case EX_ABS:
        if (x.kind != SC_FLOAT && x.i == INT64_MIN) return fail(err, E_USAGE, "a size is too large for 64 bits");
        *out = x.kind == SC_FLOAT ? of_float(fabs(a)) : of_int(x.i < 0 ? -x.i : x.i);
        return true;
    case EX_NOT: *out = of_bool(!x.i); return true;
    default: return fail(err, E_FORMAT, "not a size expression");
    }
}

static bool evaluate_node(const ExprPool *p, const Expr *e, const Binding *b, Scalar *out, Err *err)
{
    Scalar x, y;
    switch (e->kind) {
    case EX_INT: *out = of_int(e->i); return true;
    case EX_FLOAT: *out = of_float(e->f); return true;
    case EX_BOOL: *out = of_bool(e->i != 0); return true;
    case EX_SYM:
        if (e->i >= b->n || !b->bound[e->i])
            return fail(err, E_USAGE, "size '%s' is not known", expr_symbol(p, (int)e->i)->name);
        *out = e->is_float ? of_bits(b->value[e->i]) : of_int(b->value[e->i]);
        return true;
    case EX_WHERE: TRY(evaluate(p, e->args[0], b, &x, err)); return evaluate(p, e->args[x.i ? 1 : 2], b, out, err);
    default: break;
    }
    TRY(evaluate(p, e->args[0], b, &x, err));
    if (e->nargs == 1) return unary(e, x, out, err);
    for (int i = 1; i < e->nargs; i++) {
        TRY(evaluate(p, e->args[i], b, &y, err));
        TRY(binary(e, x, y, out, err));
        x = *out;
    }
    return true;
}

static bool evaluate(const ExprPool *p, const Expr *e, const Binding *b, Scalar *out, Err *err)
{
    if (e->nargs && e->id < b->nmemo && b->known[e->id] == b->round) {
        *out = b->memo[e->id];
        return true;
    }
    TRY(evaluate_node(p, e, b, out, err));
    if (e->nargs && e->id < b->nmemo) {
        b->memo[e->id] = *out;
        b->known[e->id] = b->round;
    }
    return true;
}

bool ex_eval(const ExprPool *p, const Expr *e, const Binding *b, Scalar *out, Err *err)
{
    if (!e) return fail(err, E_LIMIT, "a size expression is too large");
    return evaluate(p, e, b, out, err);
}

bool ex_eval_i64(const ExprPool *p, const Expr *e, const Binding *b, int64_t *out, Err *err)
{
    Scalar s;
    TRY(ex_eval(p, e, b, &s, err));
    if (s.kind == SC_FLOAT) TRY(to_int(s.f, &s, err));
    *out = s.i;
    return true;
}
