/* Expressions: evaluation. The random part builds trees here, computes them with plain integers, and asks the
 * library for the same values; it also checks that the text reads back and that the interval holds. */
#include "unit_expr.h"
#include "expr/translate.h"

static void bind(ExprPool *p, Binding *b, const char *name, int64_t v)
{
    (void)p;
    binding_set(b, (int)ex_symbol(p, name)->i, v);
}

/* a = 7, b = -3, c = 4; results as Python (and torch/utils/_sympy/functions.py) gives them. */
static void test_evaluate(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    static const struct {
        const char *text;
        double want;
        char kind; /* i, f, b */
    } rows[] = {
        {"a//c", 1, 'i'},
        {"-a//c", -2, 'i'},
        {"a//b", -3, 'i'},
        {"-a//b", 2, 'i'},
        {"b//c", -1, 'i'},
        {"a % c", 3, 'i'},
        {"-a % c", 1, 'i'},
        {"a % b", -2, 'i'},
        {"-a % b", -1, 'i'},
        {"b % a", 4, 'i'},
        {"a/c", 1.75, 'f'},
        {"b/c", -0.75, 'f'},
        {"1.0*a % c", 3, 'f'},
        {"-1.0*a % c", 1, 'f'},
        {"1.0*a % b", -2, 'f'},
        {"CeilToInt(a/c)", 2, 'i'},
        {"CeilToInt(b/c)", 0, 'i'},
        {"CeilToInt(ToFloat(c)/2)", 2, 'i'},
        {"FloorToInt(a/c)", 1, 'i'},
        {"FloorToInt(b/c)", -1, 'i'},
        {"1.0*a//c", 1, 'i'},
        {"b//2.0", -2, 'i'},
        {"TruncToInt(a/c)", 1, 'i'},
        {"TruncToInt(b/2)", -1, 'i'},
        {"RoundToInt(a/2)", 4, 'i'},
        {"RoundToInt((a - 2)/2)", 2, 'i'},
        {"RoundToInt(b/2)", -2, 'i'},
        {"RoundToInt(a/c)", 2, 'i'},
        {"CeilDiv(a, c)", 2, 'i'},
        {"CeilDiv(b, c)", 0, 'i'},
        {"CeilDiv(c, 2)", 2, 'i'},
        {"ModularIndexing(a*a, c, 5)", 2, 'i'},
        {"Max(a, b, c)", 7, 'i'},
        {"Min(a, b, c)", -3, 'i'},
        {"Max(a, 7.5)", 7.5, 'f'},
        {"Min(a, 7.5)", 7, 'f'},
        {"a**c", 2401, 'i'},
        {"b**c", 81, 'i'},
        {"b**a", -2187, 'i'},
        {"0**a", 0, 'i'},
        {"a**0", 1, 'i'},
        {"(-1)**(a*1000000)", 1, 'i'},
        {"(-1)**(a*1000001)", -1, 'i'},
        {"1**(a*1000000000)", 1, 'i'},
        {"2**(a*c)", 268435456, 'i'},
        {"2**(9*a - 1)", 0x1p62, 'i'},
        {"(-2)**(9*a)", -0x1p63, 'i'},
        {"c**b", 0.015625, 'f'},
        {"c**0.5", 2, 'f'},
        {"sqrt(c)", 2, 'f'},
        {"Abs(b)", 3, 'i'},
        {"Abs(b/2)", 1.5, 'f'},
        {"ToFloat(a)", 7, 'f'},
        {"-(a/2)", -3.5, 'f'},
        {"LShift(a, c)", 112, 'i'},
        {"RShift(a, 1)", 3, 'i'},
        {"RShift(b, 1)", -2, 'i'},
        {"LShift(b, 3)", -24, 'i'},
        {"a < c", 0, 'b'},
        {"b < c", 1, 'b'},
        {"a >= 7", 1, 'b'},
        {"a > 7", 0, 'b'},
        {"a == 7.0", 1, 'b'},
        {"a != b", 1, 'b'},
        {"not (a < c)", 1, 'b'},
        {"b < c and c < a", 1, 'b'},
        {"b < c < a", 1, 'b'},
        {"b < a < c", 0, 'b'},
        {"a < b or a < c", 0, 'b'},
        {"a < b or c < a", 1, 'b'},
        {"(a < b) == (a < c)", 1, 'b'},
        {"a % 2 == 1 & b % 2 == 1", 1, 'b'},
        {"Where(a < c, a//0, c)", 4, 'i'},
        {"Where(a > c, a/2, c)", 3.5, 'f'},
        {"a - b*c + 2*(a + b)", 27, 'i'},
        {"2*-a", -14, 'i'},
        {"-b**2", -9, 'i'},
        {"a - -1", 8, 'i'},
        {"1e3", 1000, 'f'},
        {".5", 0.5, 'f'},
        {"9223372036854775807 - a + a", 9223372036854775807.0, 'i'},
        {"336*c//14 + a", 103, 'i'},
        {"((a + 2*c - 3)//2 + 1)*((b + 11)//2)", 28, 'i'},
    };
    size_t n = sizeof rows / sizeof *rows;
    for (int early = 0; early < 2;
         early++) { /* nodes made after the binding are not remembered by it, but count all the same */
        Binding b = {0};
        for (size_t i = 0; early == 0 && i < n; i++) parsed(p, rows[i].text);
        parsed(p, "a + b + c");
        OK(binding_init(&b, p, &err));
        bind(p, &b, "a", 7), bind(p, &b, "b", -3), bind(p, &b, "c", 4);
        for (size_t k = 0; k < 2 * n; k++) {
            size_t i = k % n;
            Scalar v;
            if (!ex_eval(p, parsed(p, rows[i].text), &b, &v, &err)) STOP("%s: %s", rows[i].text, err.msg);
            if ("ifb"[v.kind] != rows[i].kind || scalar_f64(v) != rows[i].want)
                STOP("%s: %c %.17g", rows[i].text, "ifb"[v.kind], scalar_f64(v));
        }
        int64_t c = 0;
        bind(p, &b, "c", 5); /* forgets what was computed with 4 */
        OK(ex_eval_i64(p, parsed(p, "a//c"), &b, &c, &err));
        assert_int_equal(c, 1);
        OK(ex_eval_i64(p, parsed(p, "336*c//14 + a"), &b, &c, &err));
        assert_int_equal(c, 127);
        binding_free(&b);
        tear_down(state);
        set_up(state);
        p = ((Fixture *)*state)->pool;
    }
}

static void test_not_evaluated(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    Binding b;
    Scalar v;
    static const char *const rows[][2] = {
        {"z + 1", "'z' is not known"},
        {"Max(a, z)", "'z' is not known"},
        {"0*a + z//2", "'z' is not known"},
        {"a//zero", "by zero"},
        {"a % zero", "by zero"},
        {"a/zero", "by zero"},
        {"1//0", "by zero"},
        {"1 % 0", "by zero"},
        {"1/0", "by zero"},
        {"0//0", "by zero"},
        {"a*big", "64 bits"},
        {"big + big", "64 bits"},
        {"a**big", "too large"},
        {"3**(a*c)", "too large"},
        {"LShift(big, 2)", "64 bits"},
        {"LShift(a, 63)", "shift"},
        {"LShift(a, -c)", "shift"},
        {"RShift(a, 64)", "shift"},
        {"CeilToInt(a/0.0)", "by zero"},
        {"FloorToInt(big*1e9)", "evaluates to"},
        {"RoundToInt(inf*a)", "evaluates to"},
        {"TruncToInt(sqrt(-a))", "evaluates to"},
        {"(-big - 2)//(-1*a + 6)", "64 bits"},
        {"Abs(-big - 2)", "64 bits"},
        {"a + 1e300", "evaluates to"},
    };
    parsed(p, "a + b + c + z + zero + big");
    OK(binding_init(&b, p, &err));
    bind(p, &b, "a", 7), bind(p, &b, "c", 6), bind(p, &b, "zero", 0), bind(p, &b, "big", INT64_MAX - 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n;
        err = (Err){0};
        Expr *e = parsed(p, rows[i][0]);
        bool to_integer = !strcmp(rows[i][0], "a + 1e300");
        if (to_integer ? ex_eval_i64(p, e, &b, &n, &err) : ex_eval(p, e, &b, &v, &err))
            STOP("%s: %.17g", rows[i][0], scalar_f64(v));
        if (err.code != E_USAGE || !strstr(err.msg, rows[i][1]))
            STOP("%s: code %d: %s", rows[i][0], (int)err.code, err.msg);
    }
    binding_free(&b);
}

/* ------------------------------------------------------------------ random trees */

enum { SYMBOLS = 4 };

typedef struct Tree {
    char op; /* + - * / % M m < = n (a number) s (a symbol) */
    int64_t n;
    struct Tree *a, *b;
} Tree;

static Tree *grow(Tree *room, int *used, int depth, uint64_t *r)
{
    Tree *t = &room[(*used)++];
    if (depth == 0 || unit_random(r) % 8 == 0) {
        bool number = unit_random(r) % 3 == 0;
        *t = (Tree){.op = number ? 'n' : 's',
                    .n = number ? (int64_t)(unit_random(r) % 31) - 10 : (int64_t)(unit_random(r) % SYMBOLS)};
        return t;
    }
    t->op = "+-*/%Mm++-**//"[unit_random(r) % 14];
    t->a = grow(room, used, depth - 1, r);
    t->b = grow(room, used, depth - 1, r);
    return t;
}

/* The number that Python gives; false on a division by zero or an overflow. */
static bool compute(const Tree *t, const int64_t *s, int64_t *out)
{
    int64_t a, b;
    if (t->op == 'n' || t->op == 's') {
        *out = t->op == 'n' ? t->n : s[t->n];
        return true;
    }
    if (!compute(t->a, s, &a) || !compute(t->b, s, &b)) return false;
    switch (t->op) {
    case '+': return !__builtin_add_overflow(a, b, out);
    case '-': return !__builtin_sub_overflow(a, b, out);
    case '*': return !__builtin_mul_overflow(a, b, out);
    case 'M': *out = a > b ? a : b; return true;
    case 'm': *out = a < b ? a : b; return true;
    default: break;
    }
    if (b == 0) return false;
    int64_t q = a / b, m = a % b;
    if (m != 0 && (m < 0) != (b < 0)) q--, m += b;
    *out = t->op == '/' ? q : m;
    return true;
}

static Expr *build(ExprPool *p, Expr *const *s, const Tree *t)
{
    if (t->op == 'n') return ex_int(p, t->n);
    if (t->op == 's') return s[t->n];
    Expr *a = build(p, s, t->a), *b = build(p, s, t->b);
    switch (t->op) {
    case '+': return ex_add(p, a, b);
    case '-': return ex_sub(p, a, b);
    case '*': return ex_mul(p, a, b);
    case '/': return ex_floordiv(p, a, b);
    case '%': return ex_mod(p, a, b);
    case 'M': return ex_max(p, a, b);
    default: return ex_min(p, a, b);
    }
}

static void write_python(const Tree *t, Buf *out)
{
    if (t->op == 'n') buf_printf(out, "(%lld)", (long long)t->n);
    else if (t->op == 's') buf_printf(out, "s%d", (int)t->n);
    else {
        buf_puts(out, t->op == 'M' ? "Max(" : t->op == 'm' ? "Min(" : "(");
        write_python(t->a, out);
        buf_puts(out, t->op == 'M' || t->op == 'm' ? ", " : t->op == '/' ? "//" : (char[]){t->op, 0});
        write_python(t->b, out);
        buf_puts(out, ")");
    }
}

static void test_random(void **state)
{
    (void)state;
    uint64_t r = 1;
    static const int64_t range[SYMBOLS][2] = {{1, 40}, {0, INT64_MAX}, {2, 9}, {INT64_MIN, INT64_MAX}};
    int evaluated = 0, folded = 0;
    for (int round = 0; round < 4000; round++) {
        Fixture *f;
        set_up((void **)&f);
        Tree room[128];
        int used = 0;
        Expr *s[SYMBOLS];
        for (int i = 0; i < SYMBOLS; i++) {
            s[i] = ex_symbol(f->pool, (const char *[]){"s0", "s1", "s2", "s3"}[i]);
            expr_set_range(f->pool, i, range[i][0], range[i][1]);
        }
        Tree *t = grow(room, &used, 1 + (int)(unit_random(&r) % 4), &r);
        Expr *e = build(f->pool, s, t);
        Buf python = {0};
        write_python(t, &python);
        assert_non_null(e);
        assert_ptr_equal(parsed(f->pool, python.data), e);
        if (parsed(f->pool, printed(f->pool, e)) != e) STOP("%s: %s", python.data, printed(f->pool, e));
        folded += ex_is_int(e);
        int64_t lo, hi;
        ex_range(f->pool, e, &lo, &hi);
        for (int k = 0; k < 12; k++) {
            Err err = {0};
            Binding b;
            int64_t v[SYMBOLS], want, have;
            OK(binding_init(&b, f->pool, &err));
            for (int i = 0; i < SYMBOLS; i++) {
                int64_t from = range[i][0] == INT64_MIN ? -50 : range[i][0],
                        to = range[i][1] == INT64_MAX ? 50 : range[i][1];
                v[i] = k == 0 ? from : k == 1 ? to : from + (int64_t)(unit_random(&r) % (uint32_t)(to - from + 1));
                binding_set(&b, i, v[i]);
            }
            if (compute(t, v, &want)) {
                evaluated++;
                if (!ex_eval_i64(f->pool, e, &b, &have, &err) || have != want || want < lo || want > hi)
                    STOP("%s = %s at %d %d %d %d: %lld, expected %lld (from %lld to %lld) %s", python.data,
                         printed(f->pool, e), (int)v[0], (int)v[1], (int)v[2], (int)v[3], (long long)have,
                         (long long)want, (long long)lo, (long long)hi, err.msg);
            }
            binding_free(&b);
        }
        buf_free(&python);
        tear_down((void **)&f);
    }
    assert_true(evaluated > 30000 && folded > 100);
}

/* Numbers at the ends of 64 bits: refused, unknown or right, never wrong (and nothing for UBSan). */
static Expr *itself(void *user, const Expr *symbol)
{
    (void)user;
    return (Expr *)(uintptr_t)symbol;
}

/* Two parts that are each made of the two before: 2^n of them stand in the last one. */
static void test_translated_parts(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Expr *a = ex_symbol(p, "s0"), *b = ex_symbol(p, "s1");
    for (int i = 0; i < 20; i++) {
        Expr *most = ex_max(p, a, b), *least = ex_min(p, a, b);
        a = ex_floordiv(p, most, ex_int(p, 3)), b = ex_floordiv(p, least, ex_int(p, 5));
        if (i == 2) assert_true(expr_translate(p, a, itself, NULL) == a);
    }
    assert_true(a && expr_translate(p, a, itself, NULL) == NULL);
}

static void test_extremes(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    static const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, INT64_MIN + 2, -3, -1, 0, 1, 2,
                                   3,         INT64_MAX - 1, INT64_MAX};
    enum { N = sizeof ends / sizeof *ends };
    Expr *s = ex_symbol(p, "s0");
    for (int i = 0; i < N * N * N; i++) {
        int64_t a = ends[i % N], c = ends[i / N % N], v = ends[i / N / N];
        Expr *x = ex_add(p, ex_mul(p, ex_int(p, a), s), ex_int(p, c)), *made[16];
        int n = 0;
        if (!x) continue;
        made[n++] = x;
        made[n++] = ex_sub(p, ex_int(p, c), ex_mul(p, s, ex_int(p, a)));
        made[n++] = ex_neg(p, x);
        made[n++] = ex_floordiv(p, x, ex_int(p, c));
        made[n++] = ex_floordiv(p, x, s);
        made[n++] = ex_floordiv(p, x, x);
        made[n++] = ex_mod(p, x, ex_int(p, c));
        made[n++] = ex_mul(p, x, x);
        made[n++] = ex_max(p, x, s);
        made[n++] = ex_make(p, EX_ABS, x, NULL, NULL);
        made[n++] = ex_make(p, EX_LT, x, s, NULL);
        made[n++] = ex_make(p, EX_LT, ex_int(p, c), s, NULL);
        made[n++] = ex_make(p, EX_LSHIFT, x, ex_int(p, 3), NULL);
        made[n++] = ex_make(p, EX_TOFLOAT, x, NULL, NULL);
        Binding b;
        OK(binding_init(&b, p, &err));
        binding_set(&b, 0, v);
        int64_t inner = 0, product, out, lo, hi;
        bool exact = mul_i64(a, v, &product) && add_i64(product, c, &inner);
        for (int k = 0; k < n; k++) {
            if (!made[k]) continue;
            ex_range(p, made[k], &lo, &hi);
            bool ok = ex_eval_i64(p, made[k], &b, &out, &err);
            if (ok && k == 0 && (!exact || out != inner))
                STOP("%lld*%lld + %lld = %lld", (long long)a, (long long)v, (long long)c, (long long)out);
            if (ok && k != 10 && (out < lo || out > hi))
                STOP("%s is %lld, range %lld to %lld", printed(p, made[k]), (long long)out, (long long)lo,
                     (long long)hi);
            if (ok && k == 10 && exact && out != (inner < v))
                STOP("%lld*%lld + %lld < %lld: %lld", (long long)a, (long long)v, (long long)c, (long long)v,
                     (long long)out);
        }
        binding_free(&b);
    }
}

/* zuf0, as torch.export names floats */
static void test_floats(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    Expr *n = ex_symbol(p, "zufa"), *x = ex_symbol(p, "zuf0");
    Expr *y = ex_parse(p, "2*zuf0 + 1 < 0.5", NULL, NULL, &err);
    assert_true(x->is_float && !n->is_float && y && y->is_bool && y->args[0]->is_float);
    Binding b;
    Scalar v;
    OK(binding_init(&b, p, &err));
    binding_set_float(&b, (int)x->i, -0.75);
    OK(ex_eval(p, x, &b, &v, &err) && v.kind == SC_FLOAT && v.f == -0.75);
    OK(ex_eval(p, y, &b, &v, &err) && v.i == 1);
    binding_set_float(&b, (int)x->i, 0.25);
    OK(ex_eval(p, y, &b, &v, &err) && v.i == 0);
    binding_free(&b);
    assert_false(expr_rename_symbol(p, "zufa", "zuf1", &err));
    assert_false(expr_rename_symbol(p, "zuf0", "n", &err));
    OK(expr_rename_symbol(p, "zuf0", "zuf7", &err));
}

/* Conditions that hold for some sizes are assumed: at these sizes nothing that is made afterwards has another value. */
static void test_random_assumed(void **state)
{
    (void)state;
    uint64_t r = 2;
    int changed = 0;
    for (int round = 0; round < 6000; round++) {
        Fixture *f;
        set_up((void **)&f);
        Tree room[1024];
        int used = 0;
        int64_t v[SYMBOLS], want, have;
        Err err = {0};
        Expr *s[SYMBOLS];
        for (int i = 0; i < SYMBOLS; i++) {
            v[i] = (int64_t)(unit_random(&r) % 40) - (i == 3 ? 20 : 0);
            s[i] = ex_symbol(f->pool, (const char *[]){"s0", "s1", "s2", "s3"}[i]);
            expr_set_range(f->pool, i, i == 3 ? -20 : v[i] > 0, 40);
        }
        for (int k = round % 16; k < 19; k++) {
            Tree *a = grow(room, &used, 1 + (int)(unit_random(&r) % 3), &r);
            if (!compute(a, v, &want)) continue;
            Expr *e = build(f->pool, s, a), *is = ex_int(f->pool, want);
            ExprKind how = EX_EQ;
            if (unit_random(&r) % 3 == 0 && want) {
                e = ex_mod(f->pool, e, is);
                is = ex_int(f->pool, 0);
            } else if (unit_random(&r) % 4 == 0) { /* of any number */
                e = ex_mod(f->pool, e, ex_int(f->pool, -2 - (int64_t)(unit_random(&r) % 4)));
                is = ex_int(f->pool, 0);
                how = EX_LE;
            } else if (unit_random(&r) % 2) { /* the same of two that vary */
                int64_t more;
                Tree *b = grow(room, &used, 1 + (int)(unit_random(&r) % 2), &r);
                if (compute(b, v, &more)) is = ex_add(f->pool, build(f->pool, s, b), ex_int(f->pool, want - more));
            }
            expr_assume(f->pool, ex_make(f->pool, how, e, is, NULL));
        }
        Binding b;
        OK(binding_init(&b, f->pool, &err));
        for (int i = 0; i < SYMBOLS; i++) binding_set(&b, i, v[i]);
        for (int k = 0; k < 8; k++) {
            used = 0;
            Tree *t = grow(room, &used, 1 + (int)(unit_random(&r) % 4), &r);
            if (!compute(t, v, &want)) continue;
            Expr *e = build(f->pool, s, t);
            int64_t lo, hi;
            ex_range(f->pool, e, &lo, &hi);
            OK(binding_extend(&b, f->pool, &err));
            changed += ex_is_int(e);
            if (!ex_eval_i64(f->pool, e, &b, &have, &err) || have != want || want < lo || want > hi)
                STOP("round %d: %s at %d %d %d %d: %lld, expected %lld (from %lld to %lld) %s", round,
                     printed(f->pool, e), (int)v[0], (int)v[1], (int)v[2], (int)v[3], (long long)have,
                     (long long)want, (long long)lo, (long long)hi, err.msg);
        }
        binding_free(&b);
        tear_down((void **)&f);
    }
    assert_true(changed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_floats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_evaluate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_evaluated, set_up, tear_down),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_assumed),
        cmocka_unit_test_setup_teardown(test_translated_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_extremes, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
