/* Size expressions as text: what is read prints as text that reads back as an expression of the same values. */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "expr/expr.h"

static const char *const tokens[] = {"s0",
                                     "s1",
                                     "+",
                                     "-",
                                     "*",
                                     "**",
                                     "//",
                                     "/",
                                     "%",
                                     "<<",
                                     ">>",
                                     "==",
                                     "<=",
                                     "(",
                                     ")",
                                     ",",
                                     " and ",
                                     " or ",
                                     "not ",
                                     "Max(",
                                     "Min(",
                                     "Mod(",
                                     "FloorDiv(",
                                     "CleanDiv(",
                                     "Pow(",
                                     "PowByNatural(",
                                     "Symbol('s0', positive=True)",
                                     "Integer(2)",
                                     "Float('0.5', precision=53)",
                                     "Rational(1,2)",
                                     "IntTrueDiv(",
                                     "ToFloat(",
                                     "CeilToInt(",
                                     "RoundToInt(",
                                     "sqrt(",
                                     "Abs(",
                                     "Where(",
                                     "Eq(",
                                     "Ne(",
                                     "LShift(",
                                     "RShift(",
                                     "Identity(",
                                     "CeilDiv(",
                                     "ModularIndexing(",
                                     "True",
                                     "inf",
                                     "nan",
                                     "1e300",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "0",
                                     "-1",
                                     NULL};

static void seeds(FuzzAdd *add)
{
    static const char *const texts[] = {
        "s0", "3*s0 + 1", "s0//14", "Max(1, s0)", "(s0 % 2 == 0) and (s0 < 9)",
        "Mul(Integer(16), Symbol('s10', positive=True, integer=True))", "-s0*s1 + 2*s1**2 - 7",
        "FloorDiv(s0 + 13, 14)*(s1 - 1)", "Where(s0 < s1, s0, s1) % 5", "CeilToInt(IntTrueDiv(s0, 3))",
        "1 <= s0 <= 8 != s1", "not (s0 == 2 or s1 >= 3)", "Min(s0, s1, 7) << 2 >> 1", "sqrt(ToFloat(s0))*0.5",
        "(s0 + s1)*(s0 - s1)*(s0 + 1)", "ModularIndexing(s0, 3, 4) - CeilDiv(s1, 2)",
        "Add(Mul(Integer(-1), Mod(Symbol('s0'), Integer(4))), Float('1e-3', precision=53))",
        /* past findings */
        "Mul(Integer(16), Symbol('s-64', positive=True))", "1 +not", "sqrt(ToFloat(-4))",
        "Max(Max(Max(Max(Max(Max(s0, s1)**8, s1)**8, s1)**8, s1)**8, s1)**8, s1)**8"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) add(texts[i], strlen(texts[i]));
}

/* Both for some values of the symbols; an overflow on the way, or in what order floats are rounded,
 * may be one's alone. */
static void check_values(ExprPool *p, Expr *a, Expr *b, const char *text)
{
    static const int64_t values[] = {1, 2, 7, 1000, INT64_MAX, 0, -3};
    Err err = {0};
    Binding binding;
    if (!binding_init(&binding, p, &err)) return;
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        Scalar v, w;
        for (int i = 0; i < expr_symbol_count(p); i++) binding_set(&binding, i, values[k] - (k < 4) * (i & 1));
        err = (Err){0};
        bool have = ex_eval(p, a, &binding, &v, &err);
        if (!have) fuzz_said(&err);
        else if (ex_eval(p, b, &binding, &w, &err))
            fuzz_check(v.kind == w.kind && (v.kind == SC_FLOAT || v.i == w.i), text);
    }
    binding_free(&binding);
}

static void read_text(ExprPool *p, const char *text)
{
    Err err = {0};
    Buf printed = {0};
    int64_t lo, hi;
    Expr *e = ex_parse(p, text, NULL, NULL, &err);
    if (!e) {
        fuzz_said(&err);
        return;
    }
    if (!e->is_float && !e->is_bool) ex_range(p, e, &lo, &hi);
    ex_print(p, e, &printed);
    Expr *again = printed.failed ? NULL : ex_parse(p, printed.data, NULL, NULL, &err);
    if (again) check_values(p, e, again, printed.data);
    buf_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    Arena *a = arena_create(0);
    ExprPool *p = a ? expr_pool(a) : NULL;
    if (text && p) {
        memcpy(text, data, size);
        text[size] = 0;
        read_text(p, text);
    }
    expr_pool_free(p);
    arena_destroy(a);
    free(text);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "expr", .tokens = tokens, .seeds = seeds, .memory_ratio = 4096};
