/* Expressions: normal form, what ranges prove, text both ways, limits. Evaluation is in test_expr_eval.c. */
#include "unit_expr.h"

static void expect_text(ExprPool *p, const char *text, const char *want)
{
    Expr *e = parsed(p, text);
    assert_string_equal(printed(p, e), want);
    assert_ptr_equal(parsed(p, want), e);
}

/* ------------------------------------------------------------------ normal form */

/* Equal means the same pointer. */
static void test_equal(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const same[][2] = {
        {"a + b", "b + a"},
        {"a*b", "b*a"},
        {"(a + b)*c", "a*c + b*c"},
        {"(a + b)*(a - b)", "a**2 - b**2"},
        {"(a + b)**3", "a**3 + 3*a**2*b + 3*a*b**2 + b**3"},
        {"a - a", "0"},
        {"2*a + 3*a", "5*a"},
        {"0*a", "0"},
        {"a + 1 + 2 - 3", "a"},
        {"28*h//14", "2*h"},
        {"(28*h + 14)//14", "2*h + 1"},
        {"(28*h + 15)//14", "2*h + 1"},
        {"(28*h - 1)//14", "2*h - 1"},
        {"(14*h)*(14*w)//196", "h*w"},
        {"a*b//a", "b"},
        {"(a*b + a)//a", "b + 1"},
        {"(a**2 - b**2)//(a + b)", "a - b"},
        {"a//6", "a//2//3"},
        {"2*a//4", "a//2"},
        {"(6*a + 9*b + 5)//12", "(2*a + 3*b + 1)//4"},
        {"3*a*b//192 - a*b//64", "0"},
        {"((a + 1)//2 + 1)//2", "(a + 3)//4"},
        {"((a - 1)//2 - 5)//3", "(a - 11)//6"},
        {"(3*a + (b//4 - 2)//5)//1", "3*a + (b - 8)//20"},
        {"(7*h + a)//7", "h + a//7"},
        {"(128*a*h + 128*a*w)//(512*a)", "(h + w)//4"},
        {"14*h % 14", "0"},
        {"(14*h + 3) % 14", "3"},
        {"(14*h - 3) % 14", "11"},
        {"(14*h + a) % 14", "a % 14"},
        {"(3*(a % 12) + b) % 4", "(3*a + b) % 4"},
        {"(a + (4 - a % 4) % 4) % 4", "0"},
        {"a*b % a", "0"},
        {"a % 1", "0"},
        {"a//1", "a"},
        {"Max(a, b)", "Max(b, a)"},
        {"Max(a, a)", "a"},
        {"Max(a, a + 1)", "a + 1"},
        {"Min(a, a + 1)", "a"},
        {"Min(a, Min(a, b))", "Min(a, b)"},
        {"Max(Min(a, b), b)", "b"},
        {"Min(Max(0, a - 1), Max(a, 0))", "Max(0, a - 1)"},
        {"Max(3, 4, 2)", "4"},
        {"a < a + 1", "True"},
        {"a <= a", "True"},
        {"a != a", "False"},
        {"a + 1 > b", "b < a + 1"},
        {"a >= b", "b <= a"},
        {"Where(1 < 2, a, b)", "a"},
        {"Where(a < b, c, c)", "c"},
        {"(1 < 2) and (a < b)", "a < b"},
        {"(1 < 2) or (a < b)", "True"},
        {"Identity(a + 1)", "1 + a"},
        {"CeilDiv(a, 4)", "-((-a)//4)"},
        {"ModularIndexing(a, 4, 3)", "(a//4) % 3"},
        {"PowByNatural(a, 2)", "a*a"},
        {"a - True", "a - 1"},
        {"1 - True", "0"},
        {"2*True*a", "2*a"},
        {"False*a", "0"},
        {"a//True", "a"},
        {"a % True", "0"},
        {"2**8", "256"},
        {"CeilToInt(a)", "a"},
        {"a<=b<=c", "(a <= b) and (b <= c)"},
        {"math.sqrt(4)", "2.0"},
        {"-a**2", "-(a**2)"},
        {"Lt(a, b)", "a < b"},
        {"Le(a, b)", "a <= b"},
        {"Gt(a, b)", "b < a"},
        {"Ge(a, b)", "b <= a"},
        {"Eq(a, b)", "a == b"},
        {"Ne(a, b)", "a != b"},
        {"min(a, b)", "Min(a, b)"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        Expr *x = parsed(p, same[i][0]), *y = parsed(p, same[i][1]);
        if (x != y) STOP("%s is %s, %s is %s", same[i][0], printed(p, x), same[i][1], printed(p, y));
    }
    static const char *const differ[][2] = {
        {"a//2*2", "a"},  {"(a + 1)//2", "a//2"},   {"a % 14", "a"}, {"Max(a, b)", "Min(a, b)"}, {"a - b", "b - a"},
        {"(a % 6 + b) % 4", "(a + b) % 4"},
        {"a//b", "b//a"}, {"a < b", "a <= b"},      {"1", "1.0"},    {"-a//2", "-(a//2)"},       {"a % 2", "a % (-2)"},
        {"0//0", "0"},    {"a//b//c", "a//(b//c)"}, {"(a//2 + 1)//2", "(a + 1)//4"}, {"True", "1"},
    };
    for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
        Expr *x = parsed(p, differ[i][0]), *y = parsed(p, differ[i][1]);
        if (x == y) STOP("%s and %s are both %s", differ[i][0], differ[i][1], printed(p, x));
    }
}

/* What a symbol's range proves. */
static void test_ranges(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    expr_set_range(p, (int)ex_symbol(p, "s0")->i, 2, 8);
    expr_set_range(p, (int)ex_symbol(p, "s1")->i, 1, INT64_MAX);
    expr_set_range(p, (int)ex_symbol(p, "u0")->i, INT64_MIN, 5);
    expr_set_range(p, (int)ex_symbol(p, "u1")->i, 0, INT64_MAX);
    static const struct {
        const char *text;
        int64_t lo, hi;
    } rows[] = {
        {"s0", 2, 8},
        {"3*s0 - 1", 5, 23},
        {"-s0", -8, -2},
        {"s0 + s1", 3, INT64_MAX},
        {"s0 - s1", INT64_MIN, 7},
        {"s0*s1", 2, INT64_MAX},
        {"s0*u0", INT64_MIN, 40},
        {"s0//3", 0, 2},
        {"(-s0)//3", -3, -1},
        {"s1//s0", 0, INT64_MAX},
        {"s0//s1", 0, 8},
        {"s0//u1", 0, 8}, /* u1 is not 0 there */
        {"u0//s0", INT64_MIN, 2},
        {"(u0 + s1) % 7", 0, 6},
        {"Max(s0, s1)", 2, INT64_MAX},
        {"Min(s0, s1)", 1, 8},
        {"Max(s0, u0)", 2, 8},
        {"Min(s0, 4)", 2, 4},
        {"Where(a == 0, s0, s1)", 1, INT64_MAX},
        {"Where(a == 0, u0, 7)", INT64_MIN, 7},
        {"a", INT64_MIN, INT64_MAX},
        {"-7", -7, -7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t lo, hi;
        ex_range(p, parsed(p, rows[i].text), &lo, &hi);
        if (lo != rows[i].lo || hi != rows[i].hi)
            STOP("%s: from %lld to %lld", rows[i].text, (long long)lo, (long long)hi);
    }
    static const char *const same[][2] = {
        {"s0 >= 2", "True"},       {"s0 > 8", "False"},          {"s0 == 9", "False"}, {"s0 != 1", "True"},
        {"Max(1, s0)", "s0"},      {"Min(s0, 8)", "s0"},         {"s0//9", "0"},       {"s0 % 9", "s0"},
        {"(9*s1 + s0) % 9", "s0"}, {"(9*s1 + s0)//9", "s1"},     {"s1 >= 1", "True"},  {"s0*s1 >= 2", "True"},
        {"s0 + s1 != 0", "True"},  {"Max(0, s0 - 2)", "s0 - 2"}, {"Min(s1, s1//2)", "s1//2"},
        {"Max(s1, (s1 + 1)//2)", "s1"}, {"Min(s1, s1//2 + s1 % 2)", "s1//2 + s1 % 2"},
        {"Max(0, 2*s1 - 2*(s1//3) - s1 % 3)", "2*s1 - 2*(s1//3) - s1 % 3"}, {"Max(s1 - s1//3*3, 2)", "2"},
        {"Min(s1//2, s1//4)", "s1//4"}, {"Min(s1//6, (s1//3)//2)", "s1//6"}, {"Max(s1//3, s1//12)", "s1//3"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (parsed(p, same[i][0]) != parsed(p, same[i][1]))
            STOP("%s is %s", same[i][0], printed(p, parsed(p, same[i][0])));
    int64_t lo, hi; /* a range that changes is not remembered */
    expr_set_range(p, (int)ex_symbol(p, "s0")->i, 5, 6);
    ex_range(p, parsed(p, "3*s0 - 1"), &lo, &hi);
    assert_true(lo == 14 && hi == 17);
    ex_range(p, NULL, &lo, &hi);
    assert_true(lo == INT64_MIN && hi == INT64_MAX);
}

/* Bounds that are checked before anything runs. */
static void test_assumed(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    expr_set_range(p, (int)ex_symbol(p, "n")->i, 1, 64);
    expr_set_range(p, (int)ex_symbol(p, "m")->i, 1, 64);
    Expr *cond = parsed(p, "m - n >= 0 and m - n <= 10"), *open = parsed(p, "Max(0, m - n)");
    assert_int_equal(open->kind, EX_MAX);
    static const char *const ends[] = {"m - n >= -9223372036854775807", "2*m >= 9223372036854775807"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) expr_assume(p, parsed(p, ends[i]));
    expr_assume(p, parsed(p, "u*n < 1.5"));
    expr_assume(p, cond);
    static const char *const same[][2] = {
        {"Max(0, m - n)", "m - n"},  {"Min(0, n - m)", "n - m"}, {"m - n + 5 >= 5", "True"},
        {"n <= m", "True"},          {"n > m", "False"},         {"m - n == 11", "False"},
        {"Min(m - n, 10)", "m - n"}, {"Max(n, m)", "m"},         {"Max(n, m + 1)", "m + 1"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (parsed(p, same[i][0]) != parsed(p, same[i][1]))
            STOP("%s is %s", same[i][0], printed(p, parsed(p, same[i][0])));
    static const char *const neither[] = {"m - n >= 1", "m + n >= 3", "2*m - n >= 2", "m - 2*n >= 0"};
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++)
        if (ex_is_const(parsed(p, neither[i]))) STOP("%s does not follow", neither[i]);
    assert_int_equal(cond->kind, EX_AND); /* what was made before stays as it is */
}

/* A number that divides a size for certain. */
static void test_divisible(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    expr_set_range(p, (int)ex_symbol(p, "n")->i, 5, 64);
    Expr *cond = parsed(p, "n % 4 == 0 and 0 == m % 6"), *before = parsed(p, "n//(n//4)");
    assert_int_equal(before->kind, EX_FLOORDIV);
    expr_assume(p, cond);
    static const char *const same[][2] = {
        {"n % 4", "0"},        {"n//(n//4)", "4"},         {"(b*n)//(n//4)", "4*b"},
        {"n % (n//4)", "0"},   {"(2*n)//(2*(n//4))", "4"}, {"(n**2 - n)//(n//4)", "4*n - 4"},
        {"m//(m//6)", "6"},    {"n//4 >= 2", "True"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (parsed(p, same[i][0]) != parsed(p, same[i][1]))
            STOP("%s is %s", same[i][0], printed(p, parsed(p, same[i][0])));
    static const char *const neither[] = {"n//(n//2)", "m//(m//4)", "n//(n//8)", "m % 4",
                                          "(n + b)//(n//4)", "n//4 >= 3", "n//2 >= 3"};
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++)
        if (ex_is_const(parsed(p, neither[i]))) STOP("%s does not follow", neither[i]);
    assert_int_equal(cond->kind, EX_AND);
}

/* Equalities that are checked before anything runs. */
static void test_assumed_equal(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const sizes[] = {"h", "w", "c", "n"};
    for (int i = 0; i < 4; i++) expr_set_range(p, (int)ex_symbol(p, sizes[i])->i, 1, 1000);
    static const char *const assumed[] = {
        "h//4*(w//4) - h//4 >= 0", "h//4*(w//4) == 16", "7 == (n + 3)//8", "(c//2 + 1)*(c//3 + 1) == 49",
        "(c + 3)//4 == (c + 1)//4", "(w + 1)//2 % 6 == 0", "-((h + 1)//2) % 5 <= 0",
    };
    Expr *cond[7];
    for (int i = 0; i < 7; i++) cond[i] = parsed(p, assumed[i]);
    for (int i = 0; i < 7; i++) expr_assume(p, cond[i]);
    static const char *const same[][2] = {
        {"c*(h//4)*(w//4)", "16*c"}, {"(h//4*c)*(w//4*n)", "16*n*c"}, {"32*c//(h//4)", "2*c*(w//4)"},
        {"h//4 <= 16", "True"}, {"16*c//(c*(h//4))", "w//4"}, {"(n + 3)//8*c", "7*c"}, {"(n + 3)//16", "3"},
        {"n >= 53 + 0*c and n <= 60", "n >= 53 and n <= 60"}, {"n + 3 >= 56", "True"}, {"n + 3 <= 63", "True"},
        {"(c//2 + 1)*(n + c//3*n)", "49*n"}, {"49*n//(c//2 + 1)", "n + c//3*n"}, {"((c + 1)//4 + 1)//2", "(c + 7)//8"},
        {"(w + 1)//2", "6*((w + 1)//12)"}, {"(w + 1)//2 // ((w + 1)//12)", "6"}, {"((h + 1)//2 + 1)//2", "(h + 3)//4"},
        {"(h + 1)//2 % 5", "0"}, {"Min(c*(n + 1), c)", "c"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (parsed(p, same[i][0]) != parsed(p, same[i][1]))
            STOP("%s is %s", same[i][0], printed(p, parsed(p, same[i][0])));
    static const char *const neither[] = {"h//4", "h*w", "h//2*(w//2)", "18*c//(h//4)", "16*c//(h//2)"};
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++)
        if (strcmp(printed(p, parsed(p, neither[i])), neither[i]))
            STOP("%s is %s", neither[i], printed(p, parsed(p, neither[i])));
    for (int i = 0; i < 7; i++) assert_true(cond[i]->kind != EX_BOOL); /* what was made before stays as it is */
}

/* Sizes that are cut into four, as equalities and remainders say it. */
static void test_assumed_parts(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const assumed[] = {"b//(b//4) == 4", "b == b//4*(b//(b//4))", "324*f % 1296 == 0"};
    for (int i = 0; i < 2; i++) expr_set_range(p, (int)ex_symbol(p, i ? "f" : "b")->i, 4, 1000);
    Expr *cond[3];
    for (int i = 0; i < 3; i++) cond[i] = parsed(p, assumed[i]);
    for (int i = 0; i < 3; i++) expr_assume(p, cond[i]);
    static const char *const same[][2] = {{"12*(b//4)", "3*b"}, {"b % 4", "0"}, {"b//(b//4)", "4"},
                                          {"1296*(f//4)", "324*f"}, {"f % 4", "0"}, {"4*(f//4)*(b//4)", "f*(b//4)"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (parsed(p, same[i][0]) != parsed(p, same[i][1]))
            STOP("%s is %s", same[i][0], printed(p, parsed(p, same[i][0])));
    static const char *const neither[] = {"6*(b//4)", "f//4", "8*(f//8)", "f % 8"};
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++)
        assert_string_equal(printed(p, parsed(p, neither[i])), neither[i]);
}

/* An equality about a symbol alone, about floats, or that holds anyway changes nothing; nor does it that a remainder by
 * a negative number is not more than 0. */
static void test_not_equal(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const assumed[] = {"h == 4", "h*1.5 == w*2.5", "2*(h//2) == 3*(w//2)", "h == h",
                                          "h*w % (-4) <= 0"};
    for (int i = 0; i < 5; i++) expr_assume(p, parsed(p, assumed[i]));
    static const char *const stay[] = {"h", "2*(h//2)", "w//2", "h*w", "h*w//4"};
    for (int i = 0; i < 5; i++) assert_string_equal(printed(p, parsed(p, stay[i])), stay[i]);
}

/* Equalities that lead back to themselves, that contradict each other, or make a sum larger than there is room. */
static void test_equal_without_end(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const assumed[] = {
        "n//2 == n - 1",    "2*(a*a) == 3*(b*b) + a*b", "2*(b*b) == 5*(a*b)", "h*w == 16", "h*w == 20",
        "c*d == a + b + e + f + g + i", "(k//3)*m == 6*((k//3)//2)",
    };
    for (size_t i = 0; i < sizeof assumed / sizeof *assumed; i++) expr_assume(p, parsed(p, assumed[i]));
    assert_non_null(parsed(p, "n//3"));
    assert_non_null(parsed(p, "(k//3)*m//7"));
    assert_non_null(parsed(p, "a**5 * b**5 + a**3*b*b"));
    assert_string_equal(printed(p, parsed(p, "h*w")), "16");
    assert_string_equal(printed(p, parsed(p, "c*d")), "a + b + e + f + g + i");
    assert_string_equal(printed(p, parsed(p, "c**6*d**6")), "c*c*c*c*c*c*d*d*d*d*d*d");
}

/* Which equalities say that two symbols are one. */
static void test_same_symbols(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const sizes[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) expr_set_range(p, (int)ex_symbol(p, sizes[i])->i, 1, 64);
    Expr *x, *y, *a = ex_symbol(p, "a"), *b = ex_symbol(p, "b");
    static const char *const same[] = {"a == b", "b == a", "a + c == c + b", "2*a == 2*b", "c*a == b*c",
                                       "-3*a*c*c == -3*c*b*c", "a + 2*c - 1 == b - 1 + 2*c"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (!expr_same_symbols(p, parsed(p, same[i]), &x, &y)) STOP("%s makes two symbols one", same[i]);
        assert_true((x == a && y == b) || (x == b && y == a));
    }
    /* u and w may be 0 */
    static const char *const not[] = {"a == 2*b", "a + b == 9",     "a*u == u*b", "a == b + 1", "a*a == b*b", "a <= b",
                                      "a == c*b", "2*a == 3*b",     "a//2 == b//2", "u*a == w", "a == b + c",
                                      "Ne(a, b)", "a == 2.0*ToFloat(b)"};
    for (size_t i = 0; i < sizeof not / sizeof *not; i++)
        if (expr_same_symbols(p, parsed(p, not[i]), &x, &y)) STOP("%s does not make two symbols one", not[i]);
    expr_set_range(p, (int)b->i, 5, 99);
    expr_merge_symbol(p, b, a);
    assert_ptr_equal(parsed(p, "b + 1"), parsed(p, "a + 1"));
    assert_int_equal(expr_symbol(p, (int)b->i)->source, SYM_GONE);
    assert_true(expr_symbol(p, (int)a->i)->lo == 5 && expr_symbol(p, (int)a->i)->hi == 64);
}

/* What was assumed of a symbol that is gone is forgotten: of x//y == s//y and s//y*y == s nothing leads back to it. */
static void test_gone(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Expr *x = ex_symbol(p, "x"), *s = ex_symbol(p, "s"), *y = ex_symbol(p, "y");
    static const char *const assumed[] = {"x//(y//4) == s//(y//4)", "(y//4)*(s//(y//4)) == s", "h*w == 16"};
    for (int i = 0; i < 3; i++) expr_assume(p, parsed(p, assumed[i]));
    Expr *whole = ex_mul(p, ex_floordiv(p, y, ex_int(p, 4)), ex_floordiv(p, x, ex_floordiv(p, y, ex_int(p, 4))));
    assert_ptr_equal(whole, s);
    expr_merge_symbol(p, s, x);
    whole = ex_mul(p, ex_floordiv(p, y, ex_int(p, 4)), ex_floordiv(p, x, ex_floordiv(p, y, ex_int(p, 4))));
    assert_false(ex_mentions(whole, s));
    assert_string_equal(printed(p, parsed(p, "h*w")), "16");
}

/* ------------------------------------------------------------------ text */

static void test_print(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    parsed(p, "s0 + s1 + s2");
    static const char *const rows[][2] = {
        {"1 + 3*s0", "3*s0 + 1"},
        {"s0 - 1", "s0 - 1"},
        {"s1 - s0*2", "(-2)*s0 + s1"},
        {"s0 - 2*s1 - s2", "s0 - 2*s1 - s2"},
        {"s0*s0*s1", "s0*s0*s1"},
        {"(s0 + 1)//2", "(s0 + 1)//2"},
        {"2*(s0//2)", "2*(s0//2)"},
        {"s0//2*s1", "s1*(s0//2)"},
        {"(s0 % 3) % s1", "s0 % 3 % s1"},
        {"s0 % (s1 % 3)", "s0 % (s1 % 3)"},
        {"Max(1, s0, s1 - 1)", "Max(Max(s0, 1), s1 - 1)"},
        {"(s0 % 2 == 0) and (s0 < 9)", "s0 % 2 == 0 and s0 < 9"},
        {"(s0 < 1 or s1 < 1) and s2 < 1", "(s0 < 1 or s1 < 1) and s2 < 1"},
        {"not (s0 < 1)", "Not(s0 < 1)"},
        {"ToFloat(s0)*0.5 + 1.0", "ToFloat(s0)*0.5 + 1.0"},
        {"s0/2", "s0/2"},
        {"CeilToInt(s0/14)", "CeilToInt(s0/14)"},
        {"s0**s1**s2", "s0**(s1**s2)"},
        {"(s0**s1)**s2", "(s0**s1)**s2"},
        {"(-2)**s0", "(-2)**s0"},
        {"0.1", "0.1"},
        {"1e300*1e300", "inf"},
        {"-inf", "-inf"},
        {"100000000000000000000.0", "1e+20"},
        {"3.0", "3.0"},
        {"Where(s0 < 2, s1, s2)", "Where(s0 < 2, s1, s2)"},
        {"sqrt(s0)", "sqrt(s0)"},
        {"abs(s0 - 3)", "Abs(s0 - 3)"},
        {"(s0 < 1) == (s1 < 1)", "(s0 < 1) == (s1 < 1)"},
        {"LShift(s0, 2)", "s0 << 2"},
        {"s0 >> 1 < s1", "s0 >> 1 < s1"},
        {"(s0 << 1) + 1", "(s0 << 1) + 1"},
        {"(-1.5)**(s0/2)", "(-1.5)**(s0/2)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_text(p, rows[i][0], rows[i][1]);
    expect_text(p, "Integer(9223372036854775807)", "9223372036854775807");
}

/* Sorted, an expression has one text, whatever its pool made before. */
static void test_print_sorted(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    static const char *const whole = "3 + Max(s1*s0, s0//32) + s1*(s0//2) - 16*(s0//32)*s2";
    char text[2][256];
    for (int turn = 0; turn < 2; turn++) {
        ExprPool *q = turn ? expr_pool(((Fixture *)*state)->arena) : p;
        static const char *const first[] = {"s0//2", "s0//32", "s1*s0", "s2"};
        for (int k = 0; k < 4; k++) parsed(q, first[turn ? 3 - k : k]);
        Buf b = {0};
        ex_print_sorted(q, parsed(q, whole), &b);
        snprintf(text[turn], sizeof text[0], "%s", b.data);
        buf_free(&b);
        if (turn) assert_string_not_equal(printed(q, parsed(q, whole)), printed(p, parsed(p, whole)));
        if (turn) expr_pool_free(q);
    }
    assert_string_equal(text[0], text[1]);
    assert_string_equal(text[0], "(-16)*(s0//32)*s2 + Max(s0*s1, s0//32) + s0//2*s1 + 3");
}

/* sympy's srepr, as export writes it beside the infix text. */
static void test_srepr(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    parsed(p, "s0 + s1 + s10");
    static const char *const rows[][2] = {
        {"Mul(Integer(16), Symbol('s10', positive=True, integer=True))", "16*s10"},
        {"Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-3))", "2*s0 - 3"},
        {"FloorDiv(Symbol('s0', positive=True, integer=True), Integer(2))", "s0//2"},
        {"PythonMod(Symbol('s0', integer=True), Integer(7))", "s0 % 7"},
        {"CeilToInt(IntTrueDiv(Symbol('s0', positive=True, integer=True), Integer(14)))", "CeilToInt(s0/14)"},
        {"FloatTrueDiv(ToFloat(Symbol('s0', integer=True)), Float('2.5', precision=53))", "ToFloat(s0)/2.5"},
        {"Mul(Integer(1), Integer(2), Symbol(\"s0\"), Symbol('s1'))", "2*s0*s1"},
        {"Pow(Symbol('s0', positive=True, integer=True), Integer(2))", "s0*s0"},
        {"And(Equality(Mod(Symbol('s0'), Integer(2)), Integer(0)), StrictGreaterThan(Symbol('s1'), Integer(2)))",
         "s0 % 2 == 0 and 2 < s1"},
        {"GreaterThan(Symbol('s0'), Symbol('s1'))", "s1 <= s0"},
        {"Max(Integer(1), Symbol('s0', positive=True, integer=True))", "Max(s0, 1)"},
        {"Rational(1, 2)", "0.5"},
        {"Add(Symbol('s0'))", "s0"},
        {"torch.sym_max(s0, s1)", "Max(s0, s1)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_text(p, rows[i][0], rows[i][1]);
    assert_null(expr_find_symbol(p, "fresh"));
    Expr *e = parsed(p, "Symbol('fresh')");
    assert_ptr_equal(e, expr_find_symbol(p, "fresh")->expr);
}

static void test_refused(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    static const char *const rows[] = {
        "",
        " ",
        "(",
        ")",
        "s0 +",
        "s0 s1",
        "* s0",
        "s0 // ",
        "(s0",
        "s0)",
        "Max()",
        "Max(s0",
        "FloorDiv(s0)",
        "FloorDiv(s0, 1, 2)",
        "Where(s0, 1)",
        "Nonsense(s0)",
        "s0.size",
        "Integer(x)",
        "Integer()",
        "Integer(99999999999999999999)",
        "Float('x')",
        "Symbol('')",
        "Symbol('s0)",
        "99999999999999999999",
        "s0 & ",
        "a b",
        "not",
        "a <",
        "[1]",
        "s0!",
        "a = b",
        "'s0'",
        ".",
        "9223372036854775807 + 1",
        "9223372036854775807*2",
        "s0\t;",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err = (Err){0};
        if (ex_parse(p, rows[i], NULL, NULL, &err)) STOP("'%s': accepted", rows[i]);
        if (err.code != E_FORMAT || !strstr(err.msg, "byte "))
            STOP("'%s': code %d: %s", rows[i], (int)err.code, err.msg);
    }
    REFUSED(ex_parse(p, "s0 + s1 * Nonsense(3)", NULL, NULL, &err), E_FORMAT);
    assert_non_null(strstr(err.msg, "byte 19: unknown function"));
}

/* Parentheses, signs and calls, each `n` deep. */
static Expr *nested(ExprPool *p, const char *open, const char *close, int n, Err *err)
{
    Buf b = {0};
    for (int i = 0; i < n; i++) buf_puts(&b, open);
    buf_puts(&b, "s0");
    for (int i = 0; i < n; i++) buf_puts(&b, close);
    Expr *e = ex_parse(p, b.data, NULL, NULL, err);
    buf_free(&b);
    return e;
}

static void test_limits(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    Expr *s0 = ex_symbol(p, "s0");
    static const char *const open[] = {"(", "Abs(", "Add(", "-", "not (", "1 + (", "FloorDiv("}, *const close[] = {
                                                                                                     ")",   ")", ")",
                                                                                                     "",    ")", ")",
                                                                                                     ", 2)"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        for (int n = 1; n <= 60; n++)
            if (!nested(p, open[i], close[i], n, &err)) STOP("%s %d deep: %s", open[i], n, err.msg);
        REFUSED(nested(p, open[i], close[i], 300, &err), E_FORMAT);
        REFUSED(nested(p, open[i], close[i], 50000, &err), E_FORMAT);
    }
    assert_ptr_equal(nested(p, "(", ")", 60, &err), s0);
    Buf b = {0};
    buf_puts(&b, "0");
    while (b.len <= 1 << 20) buf_puts(&b, " + 1");
    REFUSED(ex_parse(p, b.data, NULL, NULL, &err), E_LIMIT);
    b.data[1 << 19] = 0; /* 131,072 terms */
    REFUSED(ex_parse(p, b.data, NULL, NULL, &err), E_LIMIT);
    assert_non_null(strstr(err.msg, "more than 16384 terms"));
    b.data[(1 << 14) + 1] = 0;
    assert_true(ex_is_int(parsed(p, b.data)));
    buf_free(&b);
    Expr *sum = ex_int(p, 0), *product = ex_int(p, 1),
         *deep = s0; /* too many terms, factors or levels: refused, not cut */
    char name[16];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "t%d", i);
        sum = ex_add(p, sum, ex_symbol(p, name));
        product = ex_mul(p, product, ex_symbol(p, name));
        deep = ex_make(p, EX_ABS, ex_add(p, deep, ex_int(p, 1)), NULL, NULL);
        if (i == 20) assert_true(sum && product && deep && sum->nargs == 21 && product->nargs == 21);
    }
    assert_true(!sum && !product && !deep);
    assert_null(ex_floordiv(p, sum, s0));
    assert_null(ex_make(p, EX_WHERE, s0, NULL, NULL));
    int64_t out;
    REFUSED(ex_eval_i64(p, NULL, &(Binding){0}, &out, &err), E_LIMIT);
}

/* What the grammar does not know is asked of the caller. */
static Expr *size_atom(void *user, const char *text, size_t *used)
{
    int axis, n = 0;
    if (sscanf(text, "L['x'].size()[%d]%n", &axis, &n) != 1 || n == 0 || axis > 3) return NULL;
    *used = (size_t)n;
    return ex_symbol(user, (const char *[]){"x0", "x1", "x2", "x3"}[axis]);
}

static void test_atom(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    Err err = {0};
    Expr *e = ex_parse(p, "2 <= L['x'].size()[0] and L['x'].size()[1]*2 % 4 == 0", size_atom, p, &err);
    OK(e);
    assert_ptr_equal(e, parsed(p, "(2 <= x0) and (2*x1 % 4 == 0)"));
    REFUSED(ex_parse(p, "L['x'].size()[9]", size_atom, p, &err), E_FORMAT);
    REFUSED(ex_parse(p, "L['y'].size()[0]", size_atom, p, &err), E_FORMAT);
}

static void test_symbols(void **state)
{
    ExprPool *p = ((Fixture *)*state)->pool;
    char name[16];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "s%d", i);
        Expr *e = ex_symbol(p, name);
        assert_ptr_equal(ex_symbol(p, name), e);
        assert_int_equal(e->i, i);
    }
    assert_int_equal(expr_symbol_count(p), 200);
    assert_string_equal(expr_symbol(p, 150)->name, "s150");
    assert_null(expr_find_symbol(p, "s200"));
    Expr *e = parsed(p, "s3*s70//Max(s4, 2)");
    for (int i = 0; i < 200; i++)
        assert_int_equal(ex_mentions(e, expr_symbol(p, i)->expr), i == 3 || i == 70 || i == 4);
    assert_false(ex_data_dependent(p, e));
    expr_symbol(p, 134)->source = SYM_ITEM; /* the same bit of the mask as 70 */
    assert_false(ex_data_dependent(p, e));
    expr_symbol(p, 70)->source = SYM_SIZE;
    assert_true(ex_data_dependent(p, e));
    expr_symbol(p, 70)->source = SYM_INPUT;
    assert_false(ex_data_dependent(p, e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_assumed_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ranges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_assumed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_equal_without_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_divisible, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_assumed_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_symbols, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_print, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_print_sorted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_srepr, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_atom, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_symbols, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
