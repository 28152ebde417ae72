/* Sizes: from input shapes to symbols, what is refused and in which words, and sizes chosen for the caller. */
#include "unit_graph.h"
#include <unistd.h>
#include "shape/solve.h"

/* shapes: "2,3 4" are the sizes of two inputs; an input of rank 0 is "-". */
static bool solve(const Graph *g, const char *shapes, Binding *b, Err *err)
{
    Tensor t[8] = {{0}};
    const Tensor *input[8];
    int n = 0;
    for (const char *s = shapes; *s; n++) {
        t[n].dtype = DT_F32;
        while (*s && *s != ' ') {
            char *end;
            if (*s == '-' && (s[1] == ' ' || !s[1])) {
                s++;
                break;
            }
            t[n].shape[t[n].rank++] = strtoll(s, &end, 10);
            s = *end == ',' ? end + 1 : end;
        }
        while (*s == ' ') s++;
        assert_int_equal(t[n].rank, g->input[n]->rank);
        input[n] = &t[n];
    }
    assert_int_equal(n, g->ninput);
    assert_true(binding_init(b, g->ex, err));
    return solve_sizes(g, input, NULL, b, err);
}

/* "s0=2 s1=3" */
static const char *bound(const Graph *g, const Binding *b)
{
    static char text[256];
    *text = 0;
    for (int i = 0; i < expr_symbol_count(g->ex); i++)
        if (b->bound[i])
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%lld", *text ? " " : "",
                     expr_symbol(g->ex, i)->name, (long long)b->value[i]);
    return text;
}

static void expect(const char *graph, const char *shapes, const char *want)
{
    Err err = {0};
    Binding b;
    Graph *g = unit_graph(graph);
    if (!solve(g, shapes, &b, &err)) STOP("%s at %s: %s", graph, shapes, err.msg);
    if (strcmp(bound(g, &b), want)) STOP("%s at %s: %s, expected %s", graph, shapes, bound(g, &b), want);
    binding_free(&b);
    graph_free(g);
}

static void refuse(const char *graph, const char *shapes, const char *message)
{
    Err err = {0};
    Binding b;
    Graph *g = unit_graph(graph);
    if (solve(g, shapes, &b, &err)) STOP("%s at %s: accepted with %s", graph, shapes, bound(g, &b));
    if (err.code != E_USAGE || !strstr(err.msg, message))
        STOP("%s at %s: code %d: %s", graph, shapes, (int)err.code, err.msg);
    binding_free(&b);
    graph_free(g);
}

static void test_solve(void **state)
{
    (void)state;
    expect("input %x: f32[3, 4]", "3,4", "");
    expect("input %x: f32[]\ninput %y: f32[s0]", "- 5", "s0=5");
    expect("input %x: f32[s0, 3]\ninput %y: f32[s0, s1]", "2,3 2,7", "s0=2 s1=7");
    expect("input %x: f32[s0]", "0", "s0=0");
    expect("input %x: f32[1, 3, 14*h, 14*w]", "1,3,224,196", "h=16 w=14");
    expect("input %x: f32[336*h]", "672", "h=2");
    expect("input %x: f32[336*h]", "0", "h=0");
    expect("input %x: f32[2*s0 + 1]", "9", "s0=4");
    expect("input %x: f32[10 - 3*s0]", "4", "s0=2");
    expect("input %x: f32[s0 - 5]", "0", "s0=5");
    expect("input %x: f32[s0 + s1, s0]", "7,3", "s0=3 s1=4"); /* two unknowns: later */
    expect("input %x: f32[s0*s1]\ninput %y: f32[2*s1]", "12 6", "s0=4 s1=3");
    expect("input %x: f32[s0 + s1 + s2, s1 + s2, s2]", "9,5,2", "s0=4 s1=3 s2=2");
    expect("input %x: f32[s0*s0]", "49", "s0=7");
    expect("input %x: f32[s0*s0 + s0]", "132", "s0=11");
    expect("input %x: f32[(s0 + 1)//2]", "4", "s0=7");
    expect("symbol s0 in [8, 100]\ninput %x: f32[(s0 + 1)//2]", "4", "s0=8");
    expect("input %x: f32[Max(s0, 4)]", "9", "s0=9");
    expect("input %x: f32[s0*(s0//2)]", "0", "s0=0");
    /* an axis that determines its symbol comes before one that leaves a choice, wherever they stand */
    expect("input %x: f32[s0//2, s0]", "4,9", "s0=9");
    expect("input %x: f32[s0//2, 2*s0 + 1]", "4,19", "s0=9");
    expect("input %x: f32[Max(s0, 4)]\ninput %y: f32[s0]", "4 2", "s0=2");
    expect("input %x: f32[s0//2, s1//2, s0 + s1]", "2,3,11", "s0=4 s1=7");
    expect("input %x: f32[s0*s0 - 4*s0, s0]", "0,4", "s0=4");
    expect("input %x: f32[s1, s0*s1, s0]", "0,0,5", "s1=0 s0=5");
    expect("symbol s0 in [2, 8]\ninput %x: f32[s0]", "2", "s0=2");
    expect("symbol s0 in [2, 8]\ninput %x: f32[s0]", "8", "s0=8");
    expect("input %x: f32[s0]\nrequire s0 % 2 == 0 \"guard\"", "4", "s0=4");
}

static void test_refused(void **state)
{
    (void)state;
    refuse("input %x: f32[3, 4]", "3,5", "input 'x': axis 1 is 5, expected 4 (fixed when the model was exported)");
    refuse("input %x: f32[s0]\ninput %y: f32[s0]", "2 3",
           "input 'y': axis 0 is 3, expected s0 = 2 from the other sizes");
    refuse("input %x: f32[s0, 2*s0 + 1]", "2,6", "input 'x': axis 1 is 6, expected 2*s0 + 1 = 5 from the other sizes");
    refuse("input %x: f32[336*h]", "670", "input 'x': axis 0 is 670, expected a multiple of 336");
    refuse("input %x: f32[2*s0 + 1]", "6", "input 'x': axis 0 is 6, expected 2*s0 + 1");
    refuse("input %x: f32[s0*s0]", "50", "input 'x': axis 0 is 50, expected s0*s0");
    refuse("symbol s0 in [2, 8]\ninput %x: f32[3, s0]", "3,9", "input 'x': axis 1 is 9, allowed is s0 from 2 to 8");
    refuse("symbol s0 in [2, 8]\ninput %x: f32[3, s0]", "3,1", "input 'x': axis 1 is 1, allowed is s0 from 2 to 8");
    refuse("symbol s0 in [2, inf]\ninput %x: f32[s0]", "1", "input 'x': axis 0 is 1, allowed is s0 at least 2");
    refuse("symbol h in [1, 8]\ninput %x: f32[336*h]", "3024",
           "input 'x': axis 0 is 3024, allowed is 336*h from 336 to 2688");
    refuse("symbol h in [-inf, 8]\ninput %x: f32[336*h]", "3024", "input 'x': axis 0 is 3024, allowed is");
    refuse("symbol s0 in [1, 8]\ninput %x: f32[s0 - 5]", "4", "allowed is s0 from 1 to 8");
    refuse("input %x: f32[s0]\nrequire s0 % 2 == 0 \"guard of the file\"", "5",
           "guard of the file: expected s0 % 2 == 0 (with s0 = 5)");
    refuse("input %x: f32[s0, s1]\nrequire s0 < s1 \"order\"", "5,5", "order: expected s0 < s1 (with s0 = 5, s1 = 5)");
    refuse("input %x: f32[s0]\nrequire 12 % s0 == 0 \"divides\"", "0", "divides: division by zero");
    refuse("input %x: f32[s0 + s1]", "5", "is not known");
    refuse("input %x: f32[s0]\nrequire s1 > 0 \"lonely\"", "5", "lonely: size 's1' is not known");
}

/* Expressions and ranges at the ends of 64 bits come from hostile files: an error, no undefined arithmetic. */
static void test_extremes(void **state)
{
    (void)state;
    refuse("input %x: f32[-s0 - 9223372036854775803]", "5", "input 'x': axis 0 is 5");
    refuse("input %x: f32[-s0 - 9223372036854775807 - 1]", "0", "input 'x': axis 0");
    refuse("input %x: f32[9223372036854775807*s0 - 2]", "5", "input 'x': axis 0 is 5");
    refuse("symbol s0 in [9223372036854775800, inf]\ninput %x: f32[s0*s0]", "5", "input 'x': axis 0 is 5");
    refuse("symbol s0 in [9223372036854775800, 9223372036854775806]\ninput %x: f32[s0//2]", "5",
           "input 'x': axis 0 is 5");
    refuse("symbol s0 in [-9223372036854775807, 2]\ninput %x: f32[16*s0]", "160", "input 'x': axis 0 is 160");
    refuse("input %x: f32[1000//s0]", "2000", "input 'x': axis 0 is 2000");
    expect("input %x: f32[1000//s0]", "10", "s0=91");
}

static void test_data_dependent(void **state)
{
    (void)state;
    Err err = {0};
    Binding b;
    Graph *g = unit_graph("symbol u0 = item %n in [0, 10]\n"
                          "input %x: f32[s0]\n"
                          "input %n: i64[]\n"
                          "output o = %x\n"
                          "require u0 <= s0 \"assert\"\n"
                          "require s0 < 9 \"guard\"");
    OK(solve(g, "4 -", &b, &err)); /* the assert waits */
    assert_true(check_requires(g, &b, false, &err));
    REFUSED(check_requires(g, &b, true, &err), E_USAGE); /* u0 is not known */
    binding_set(&b, (int)ex_symbol(g->ex, "u0")->i, 4);
    OK(check_requires(g, &b, true, &err));
    binding_set(&b, (int)ex_symbol(g->ex, "u0")->i, 5);
    REFUSED(check_requires(g, &b, true, &err), E_USAGE);
    assert_non_null(strstr(err.msg, "assert: expected u0 <= s0 (with u0 = 5, s0 = 4)"));
    binding_free(&b);
    REFUSED(solve(g, "9 -", &b, &err), E_USAGE);
    assert_non_null(strstr(err.msg, "guard"));
    binding_free(&b);
    graph_free(g);
}

static void test_scalar(void **state)
{
    (void)state;
    Err err = {0};
    Binding b;
    Graph *g = unit_graph("input %x: f32[s0 + n]\nrequire n < 4 \"n\"");
    g->scalar_input = (ScalarInput[]){{"k", arg_int(g, 3), 0}, {"n", arg_expr(ex_symbol(g->ex, "n")), 2}};
    g->nscalar_input = 2;
    Tensor t = tensor_of(DT_F32, 1, (int64_t[]){10}, NULL);
    OK(binding_init(&b, g->ex, &err));
    OK(solve_sizes(g, (const Tensor *[]){&t}, (int64_t[]){7, 3}, &b, &err));
    assert_string_equal(bound(g, &b), "s0=7 n=3");
    binding_free(&b);
    OK(binding_init(&b, g->ex, &err));
    REFUSED(solve_sizes(g, (const Tensor *[]){&t}, (int64_t[]){7, 4}, &b, &err), E_USAGE);
    binding_free(&b);
    graph_free(g);
}

/* ------------------------------------------------------------------ against trying every value */

enum { SYMBOLS = 3, MOST = 6 };

/* An expression that gives its symbol away, or (last ones) leaves a choice; these appear beside a plain axis only. */
static void random_axis(Buf *out, int symbol, uint64_t *r)
{
    int a = 1 + (int)(unit_random(r) % 9), c = (int)(unit_random(r) % 20);
    switch (unit_random(r) % 5) {
    case 0:
    case 1: buf_printf(out, "s%d", symbol); break;
    case 2: buf_printf(out, "%d*s%d", a, symbol); break;
    case 3: buf_printf(out, "%d*s%d + %d", a, symbol, c); break;
    default: buf_printf(out, "%d - %d*s%d", c + MOST * a, a, symbol); break;
    }
}

static bool fits(const Graph *g, const Tensor *t, const int64_t *v, const int64_t range[][2])
{
    Err err;
    Binding b;
    bool ok = binding_init(&b, g->ex, &err);
    for (int i = 0; i < SYMBOLS; i++) {
        ok = ok && v[i] >= range[i][0] && v[i] <= range[i][1];
        binding_set(&b, (int)ex_symbol(g->ex, (const char *[]){"s0", "s1", "s2"}[i])->i, v[i]);
    }
    int64_t n;
    for (int d = 0; ok && d < g->input[0]->rank; d++)
        ok = ex_eval_i64(g->ex, g->input[0]->dim[d], &b, &n, &err) && n == t->shape[d];
    for (int k = 0; ok && k < g->nrequire; k++) ok = ex_eval_i64(g->ex, g->require[k].cond, &b, &n, &err) && n;
    binding_free(&b);
    return ok;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t r = 7;
    int solved = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        Buf text = {0};
        int64_t range[SYMBOLS][2], v[SYMBOLS], found[SYMBOLS];
        for (int i = 0; i < SYMBOLS; i++) {
            range[i][0] = (int64_t)(unit_random(&r) % 4);
            range[i][1] = range[i][0] + (int64_t)(unit_random(&r) % 3);
            v[i] = range[i][0] + (int64_t)(unit_random(&r) % (uint32_t)(range[i][1] - range[i][0] + 1));
            buf_printf(&text, "symbol s%d in [%d, %d]\n", i, (int)range[i][0], (int)range[i][1]);
        }
        buf_puts(&text, "input %x: f32[");
        int choice = (int)(unit_random(&r) % 4);
        if (choice == 0) buf_puts(&text, "s1//2, ");
        if (choice == 1) buf_puts(&text, "Max(s0, 2), ");
        if (choice == 2) buf_puts(&text, "s0*s2 + s1, s1*s1, ");
        for (int i = 0; i < SYMBOLS; i++) {
            if (i) buf_puts(&text, ", ");
            random_axis(&text, (i + round) % SYMBOLS, &r);
        }
        buf_puts(&text, "]\n");
        if (unit_random(&r) % 2)
            buf_printf(&text, "require s%d <= s%d \"order\"\n", (int)(unit_random(&r) % 3), (int)(unit_random(&r) % 3));
        Err err = {0};
        Graph *g = graph_parse(text.data, NULL, NULL, &err);
        if (!g) { /* a requirement that no sizes in range can meet is refused at once */
            if (!strstr(err.msg, "can never hold")) STOP("%s: %s", text.data, err.msg);
            buf_free(&text);
            continue;
        }
        Binding b;
        Tensor t = {.dtype = DT_F32, .rank = g->input[0]->rank};
        OK(binding_init(&b, g->ex, &err));
        for (int i = 0; i < SYMBOLS; i++) binding_set(&b, i, v[i]);
        for (int d = 0; d < t.rank; d++) OK(ex_eval_i64(g->ex, g->input[0]->dim[d], &b, &t.shape[d], &err));
        binding_free(&b);
        if (unit_random(&r) % 3 == 0) t.shape[unit_random(&r) % (uint32_t)t.rank] += (int64_t)(unit_random(&r) % 5) - 2;
        OK(binding_init(&b, g->ex, &err));
        bool ok = solve_sizes(g, (const Tensor *[]){&t}, NULL, &b, &err), any = false;
        for (int k = 0; k < MOST * MOST * MOST; k++) {
            int64_t u[SYMBOLS] = {k % MOST, k / MOST % MOST, k / MOST / MOST};
            if (!fits(g, &t, u, (const int64_t(*)[2])range)) continue;
            any = true;
            memcpy(found, u, sizeof u);
        }
        if (ok != any)
            STOP("%s: %s, by trying: %s", text.data, ok ? "accepted" : err.msg, any ? "accepted" : "refused");
        for (int i = 0; ok && i < SYMBOLS; i++) assert_int_equal(b.value[i], found[i]);
        solved += ok;
        refused += !ok;
        binding_free(&b);
        graph_free(g);
        buf_free(&text);
    }
    assert_true(solved > 500 && refused > 500);
}

/* ------------------------------------------------------------------ choosing */

static void choose(const char *graph, const char *names, const char *want)
{
    Err err = {0};
    Binding b;
    Graph *g = unit_graph(graph);
    const char *name[8];
    int64_t value[8];
    char copy[256], *rest;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *s = strtok_r(copy, " ", &rest); s; s = strtok_r(NULL, " ", &rest), n++) {
        char *eq = strchr(s, '=');
        *eq = 0;
        name[n] = s;
        value[n] = strtoll(eq + 1, NULL, 10);
    }
    OK(binding_init(&b, g->ex, &err));
    bool ok = choose_sizes(g, name, value, n, &b, &err);
    if (*want == '!') {
        if (ok) STOP("%s with %s: accepted: %s", graph, names, bound(g, &b));
        if (err.code != E_USAGE || !strstr(err.msg, want + 1))
            STOP("%s with %s: code %d: %s", graph, names, (int)err.code, err.msg);
    } else {
        if (!ok) STOP("%s with %s: %s", graph, names, err.msg);
        if (strcmp(bound(g, &b), want)) STOP("%s with %s: %s, expected %s", graph, names, bound(g, &b), want);
    }
    binding_free(&b);
    graph_free(g);
}

static void test_choose(void **state)
{
    (void)state;
    static const char image[] =
        "symbol s0 in [1, 8]\nsymbol h in [2, 64]\nsymbol w in [1, inf]\ninput %x: f32[s0, 3, 14*h, 14*w]";
    choose("input %x: f32[3]", "", "");
    choose(image, "", "s0=1 h=2 w=1");
    choose(image, "s0=4", "s0=4 h=2 w=1");
    choose(image, "x.0=4 x.2=56", "s0=4 h=4 w=1");
    choose(image, "batch=3 height=28 width=42", "s0=3 h=2 w=3"); /* h is a symbol: its own name, not the axis */
    choose(image, "h=3", "s0=1 h=3 w=1");
    choose("input %x: i64[s0, s1]", "b=2 seq=5", "s0=2 s1=5");
    choose("input %x: i64[7, s1]\ninput %y: i64[s0, s1]", "batch=2 length=5",
           "s1=5 s0=2"); /* the first axis that is a variable size */
    choose("input %x: f32[s0]\nrequire s0 % 3 == 0 \"\"\nrequire 4 < s0 \"\"", "", "s0=6");
    choose("input %x: f32[s0, s1]\nrequire 2*s0 == s1 \"\"\nrequire 4 < s1 \"\"", "", "s0=3 s1=6");
    choose("input %x: f32[s0, s1]\nrequire 2*s0 == s1 \"\"", "s1=8", "s0=4 s1=8");
    choose("symbol s0 in [5, inf]\nsymbol s1 in [1, inf]\nsymbol s2 in [1, 2]\nsymbol s3 in [1, inf]\n"
           "input %x: f32[s0, s1, s2, s3]\nrequire s0 <= s3 \"\"\nrequire s3 <= s0 \"\"",
           "", "s0=5 s1=5 s2=2 s3=5");
    choose("input %x: f32[s0 - 4]", "", "s0=4");
    choose(image, "x.2=15", "!x.2 = 15: expected a multiple of 14");
    choose(image, "x.2=14", "!x.2 = 14: allowed is h from 2 to 64");
    choose(image, "s0=9", "!s0 = 9: allowed is s0 from 1 to 8");
    choose(image, "x.1=3", "!no size is called 'x.1'; this model has s0 (x.0), h (x.2), w (x.3)");
    choose(image, "x.y=3", "!no size is called 'x.y'");
    choose(image, "x.=3", "!no size is called 'x.'");
    choose(image, "depth=3", "!no size is called 'depth'");
    choose("input %x: f32[3]", "batch=3", "!no variable sizes");
    choose(image, "s0=2 x.0=3", "!s0");
    choose(image, "s0=2 x.0=2", "s0=2 h=2 w=1");
    choose("input %x: f32[s0]\nrequire s0 % 2 == 0 \"even\"", "s0=3", "!even");
    choose("input %x: f32[s0]\nrequire s0*s0 == 2 \"root\"", "", "!root");
    choose("symbol s0 in [9223372036854775800, inf]\ninput %x: f32[s0]\nrequire s0 % 50000 == 1 \"far\"", "", "!far");
}

/* A product of 30 sums of 7 terms is 15 levels, each of which has the one below 7 times. */
static void test_bound(void **state)
{
    (void)state;
    Err err = {0};
    Arena *a = arena_create(0);
    ExprPool *p = expr_pool(a);
    Expr *sum = ex_int(p, 0), *product = ex_int(p, 1);
    for (int i = 0; i < 7; i++)
        sum = ex_add(p, sum, ex_symbol(p, (const char *[]){"a", "b", "c", "d", "e", "f", "g"}[i]));
    for (int i = 0; i < 30; i++) product = ex_mul(p, product, sum);
    assert_non_null(product);
    Binding b;
    OK(binding_init(&b, p, &err));
    alarm(60); /* milliseconds; without sharing, 7 to the 15th steps */
    assert_non_null(expr_bound(p, product, &b));
    for (int i = 0; i < 7; i++) binding_set(&b, i, i == 0 ? 3 : 0);
    assert_ptr_equal(expr_bound(p, product, &b), ex_int(p, 205891132094649)); /* 3 to the 30th */
    binding_set(&b, 1, 7);
    assert_null(expr_bound(p, product, &b)); /* 10 to the 30th */
    alarm(0);
    binding_free(&b);
    expr_pool_free(p);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solve),          cmocka_unit_test(test_refused), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_data_dependent), cmocka_unit_test(test_scalar),  cmocka_unit_test(test_random),
        cmocka_unit_test(test_choose),         cmocka_unit_test(test_bound),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
