/* Rule files that are wrong: what is said, with the line. And what replaces what. */
#include "unit.h"
#include "rewrite/families/all.h"
#include "rewrite/sexpr.h"

static void expect(const char *text, const char *want)
{
    Err err = {0};
    RuleSet *s = rules_create(families_all);
    bool ok = rules_parse(s, text, &err);
    if (ok && want) STOP("%s\naccepted, expected: %s", text, want);
    if (!ok && !want) STOP("%s\n%s", text, err.msg);
    if (want) {
        assert_string_equal(err.msg, want);
        assert_int_equal(err.code, E_FORMAT);
    }
    rules_free(s);
}

static void test_lists(void **state)
{
    (void)state;
    expect("", NULL);
    expect("; nothing but a comment", NULL);
    expect("(rule a (neg ?x) ?x)", NULL);
    expect("\n\n(rule a (neg ?x) ?x", "line 3: the list that opens here is never closed");
    expect("(rule a\n (neg [?x\n) ?x)", "line 3: ')' closes nothing");
    expect("(phase fuse))", "line 1: ')' closes nothing");
    expect("\n]", "line 2: ']' closes nothing");
    expect("(rule a (gelu ?x \"tanh) ?x)\n", "line 1: a text without its closing quote");
    expect("(rule a (mul ?x 1e999) ?x)", "line 1: the number 1e999 is too large");
    expect("(rule a (mul ?x\n 99999999999999999999) ?x)", "line 2: the number 99999999999999999999 is too large");
    expect("(rule a (mul ?x inf) (mul ?x -inf))", NULL);
    expect("(rule a (mul ?x 9007199254740992) ?x)", NULL);
    expect("(rule caf\xc3\xa9 (neg ?x) ?x) ; \xe9", NULL);
    expect("(rule a (neg ?x) ?x)\n(rule caf\xe9 (neg ?x) ?x)", "line 2: byte 0xe9 begins no character of UTF-8");
    expect("(rule a (gelu ?x \"\xc3\") ?x)", "line 1: byte 0xc3 begins no character of UTF-8");
    const char *forms = "line 1: expected (rule ...), (derive ...), (reorder ...) or (phase ...)";
    expect("hello", forms);
    expect("(\"rule\" a ?x ?x)", forms);
    expect("()", forms);
}

static void test_depth(void **state)
{
    (void)state;
    Buf b = {0};
    buf_puts(&b, "(rule a ");
    for (int i = 0; i < 100; i++) buf_puts(&b, "(neg ");
    expect(b.data, "line 1: lists nested deeper than 64");
    b.len = 0;
    for (int i = 0; i < 100000; i++) buf_puts(&b, "(");
    expect(b.data, "line 1: lists nested deeper than 64");
    b.len = 0;
    buf_puts(&b, "(rule a (cat [");
    for (int i = 0; i < 499; i++) buf_puts(&b, "?x ");
    buf_puts(&b, "]) ?x)");
    expect(b.data, "line 1: rule 'a': patterns of more than 500 parts");
    b.len = 0;
    buf_puts(&b, "(rule a (cat [");
    for (int i = 0; i < 49; i++) buf_printf(&b, "?x%d ", i);
    buf_puts(&b, "]) ?x0)");
    expect(b.data, "line 1: rule 'a': more than 48 captures");
    buf_free(&b);
}

static void test_rules(void **state)
{
    (void)state;
    expect("(rule a (neg ?x))", "line 1: expected (rule NAME PATTERN GRAFT GUARD ...)");
    expect("(derive 5 (neg ?x) ?x)", "line 1: expected (derive NAME PATTERN GRAFT GUARD ...)");
    expect("(phase)", "line 1: expected (phase NAME)");
    expect("(phase early)", "line 1: phase 'early': expected recompose, convert or fuse");
    expect("(rule a ?x ?x)", "line 1: rule 'a': the root of a pattern is an op");
    expect("(rule a (opt (neg ?x)) ?x)", "line 1: rule 'a': the root of a pattern is an op");
    expect("(rule a (any (out 0 (topk ?x 1 ...)) (out 1 (topk ?x 1 ...))) ?x)",
           "line 1: rule 'a': the alternatives of a root are different results of their ops");
    expect("(rule a (fork) (fork))", "line 1: rule 'a': (fork ...) takes 1 to 8 patterns");
    expect("(rule a (fork (neg ?a) (neg ?b) (neg ?c) (neg ?d) (neg ?e) (neg ?f) (neg ?g) (neg ?h) (neg ?i)) ?a)",
           "line 1: rule 'a': (fork ...) takes 1 to 8 patterns");
    expect("(rule a (fork (neg ?x) (abs ?x)) ?x)", "line 1: rule 'a': expected (fork ...) with 2 grafts");
    expect("(derive a (fork (neg ?x) (abs ?x)) (fork ?x ?x))", "line 1: rule 'a': a derive rule has one root");
    expect("(rule a (neg (fork ?x ?x)) ?x)",
           "line 1: rule 'a': no op of the plain form is called 'fork' (docs/IR.md says how ops are written)");
}

static void test_patterns(void **state)
{
    (void)state;
    expect("(rule a\n (neg (frob ?x))\n ?x)",
           "line 2: rule 'a': no op of the plain form is called 'frob' (docs/IR.md says how ops are written)");
    expect("(rule a (flatten ?x 1) ?x)",
           "line 1: rule 'a': no op of the plain form is called 'flatten' (docs/IR.md says how ops are written)");
    expect("(rule a (neg x) ?x)",
           "line 1: rule 'a': 'x' is not a pattern: captures begin with '?', ops stand in (...)");
    expect("(rule a (neg ?) ?x)",
           "line 1: rule 'a': '?' is not a pattern: captures begin with '?', ops stand in (...)");
    expect("(rule a (neg (5 ?x)) ?x)", "line 1: rule 'a': expected (op ...)");
    expect("(rule a (neg ()) ?x)", "line 1: rule 'a': expected (op ...)");
    expect("(rule a (neg ?x ?y) ?x)",
           "line 1: rule 'a': aten.neg.default takes 1 arguments by position: (Tensor self) -> Tensor");
    expect("(rule a (softmax ?x) ?x)",
           "line 1: rule 'a': parameter 'dim' of aten.softmax.int has no default: match it, or write :dim _");
    expect("(rule a (softmax ?x :dim _) ?x)", NULL);
    expect("(rule a (softmax ?x ...) ?x)", NULL);
    expect("(rule a (add ?x ?y :beta 2) ?x)", "line 1: rule 'a': aten.add.Tensor has no parameter 'beta': (Tensor "
                                              "self, Tensor other, *, Scalar alpha=1) -> Tensor");
    expect("(rule a (add ?x ?y :alpha) ?x)", "line 1: rule 'a': :alpha without a value");
    expect("(rule a (add ?x ?y :other 1) ?x)", "line 1: rule 'a': parameter 'other' of aten.add.Tensor twice");
    expect("(rule a (neg (= x ?x)) ?x)", "line 1: rule 'a': expected (= ?name pattern)");
    expect("(rule a (neg (any)) ?x)", "line 1: rule 'a': expected (any pattern ...)");
    expect("(rule a (neg (shared ?x ?y)) ?x)", "line 1: rule 'a': expected (shared pattern)");
    expect("(rule a (neg (opt ?x)) ?x)", "line 1: rule 'a': expected (opt (op pattern ...))");
    expect("(rule a (neg (opt (full ...))) 1)", NULL);
    expect("(rule a (neg (out ?k (topk ?x 1 ...))) ?x)", "line 1: rule 'a': expected (out K (op ...))");
    expect("(rule a (neg (out -1 (topk ?x 1 ...))) ?x)", "line 1: rule 'a': expected (out K (op ...))");
    expect("(rule a (neg (out 1e9 (topk ?x 1 ...))) ?x)", "line 1: rule 'a': expected (out K (op ...))");
}

static void test_runs(void **state)
{
    (void)state;
    const char *step = "line 1: rule 'a': a step of (* ...) is (op ...) with a ~ where the run goes on";
    expect("(rule a (neg (* (neg ~) ?x)) ?x)", NULL);
    expect("(rule a (+ (neg ~) (shared (mul ?c ~)) (any (abs ~) (= ?y (relu ~))) ?x) ?x)", NULL);
    expect("(reorder a (neg (* (mul ~ (+ (neg ~) ?z)) ?x)) ?x)", NULL);
    expect("(rule a (neg (* ?x)) ?x)", "line 1: rule 'a': expected (* step ... pattern)");
    expect("(rule a (+) ?x)", "line 1: rule 'a': expected (+ step ... pattern)");
    expect("(rule a (neg (* (neg ?y) ?x)) ?x)", step);
    expect("(rule a (neg (* ~ ?x)) ?x)", step);
    expect("(rule a (neg (* (opt (neg ~)) ?x)) ?x)", step);
    expect("(rule a (neg (* (any ~ (neg ~)) ?x)) ?x)", step);
    const char *lost = "line 1: rule 'a': '~' stands in a step of (* step ... pattern) or (+ step ... pattern)";
    expect("(rule a (neg ~) ?x)", lost);
    expect("(rule a (neg (* (neg ~) (abs ~))) ?x)", lost);
    expect("(rule a (neg ?x) (again ?x ?x))", "line 1: rule 'a': expected (again ?y ?x graft)");
    expect("(rule a (neg ?x) (again (neg ?x) ?x ?x))", "line 1: rule 'a': expected (again ?y ?x graft)");
    expect("(rule a (neg ?x) (expand ?x [(size ?x 0) (size \"s0 + 1\")]))", NULL);
    expect("(rule a (neg ?x) (expand ?x [(size ?x 0.5)]))",
           "line 1: rule 'a': expected (size ?x axis) or (size \"expression\")");
}

static void test_grafts(void **state)
{
    (void)state;
    expect("(rule a (neg ?x)\n ?y)", "line 2: rule 'a': ?y is not captured by the pattern");
    expect("(rule a (neg ?x) x)", "line 1: rule 'a': 'x' is not a graft: captures begin with '?', ops stand in (...)");
    expect("(rule a (neg ?x) (frob ?x))",
           "line 1: rule 'a': no op of the plain form is called 'frob' (docs/IR.md says how ops are written)");
    expect("(rule a (neg ?x) ([?x]))", "line 1: rule 'a': expected (op ...)");
    expect("(rule a (neg ?x) (softmax ?x))", "line 1: rule 'a': parameter 'dim' of aten.softmax.int is missing");
    expect("(rule a (neg ?x) (softmax ?x 1 ...))", "line 1: rule 'a': '...' stands in patterns only: parameters that a "
                                                   "graft does not mention have their defaults");
    expect("(rule a (neg ?x) (add ?x ?x :alpha 2 :alpha 3))",
           "line 1: rule 'a': parameter 'alpha' of aten.add.Tensor twice");
    expect("(rule a (neg ?x) (@frob ?x))", "line 1: rule 'a': no graft function is called 'frob'");
    expect("(rule a (neg ?x) (@scores ?x))", "line 1: rule 'a': @scores takes 2 arguments, found 1");
    expect("(rule a (neg ?x) (@packed 1 ?x))", "line 1: rule 'a': @packed takes 3 to 4 arguments, found 2");
    expect("(rule a (neg ?x) (or 1 ?x))", "line 1: rule 'a': expected (or ?x graft)");
    expect("(rule a (neg ?x) (mul ?x (+ 1 2 3)))", "line 1: rule 'a': wrong number of arguments of +");
    expect("(rule a (neg ?x) (mul ?x (sqrt)))", "line 1: rule 'a': wrong number of arguments of sqrt");
}

static void test_guards(void **state)
{
    (void)state;
    expect("(rule a (neg ?x) ?x\n (float ?x)\n odd)", "line 3: rule 'a': expected a guard (name ...)");
    expect("(rule a (neg ?x) ?x (odd ?x))", "line 1: rule 'a': no guard is called 'odd'");
    expect("(rule a (neg ?x) ?x (float))", "line 1: rule 'a': guard float takes 1 argument, found 0");
    expect("(rule a (neg ?x) ?x (close ?x))", "line 1: rule 'a': guard close takes 2 to 3 arguments, found 1");
    expect("(rule a (neg ?x) ?x (float ?z))", "line 1: rule 'a': ?z is not captured by the pattern");
}

static const Rule *find(const RuleSet *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->rule[i]->name, name)) return s->rule[i];
    return NULL;
}

/* A later rule of the same name takes the place of the earlier, in its order, in whatever phase it says. */
static void test_replaced(void **state)
{
    (void)state;
    Err err = {0};
    RuleSet *s = rules_create(families_all);
    OK(rules_parse(s, "(rule a (neg ?x) ?x) (rule b (abs ?x) ?x)", &err));
    OK(rules_parse(s, "(phase fuse) (derive a (exp ?x) ?x) (rule c (log ?x) ?x)", &err));
    assert_int_equal(s->n, 3);
    assert_string_equal(s->rule[0]->name, "a");
    assert_string_equal(s->rule[0]->phase, "fuse");
    assert_true(s->rule[0]->derive);
    assert_string_equal(find(s, "b")->phase, "recompose"); /* a file begins there */
    for (int i = 0; i < s->n; i++) assert_int_equal(s->rule[i]->index, i);
    /* what went wrong leaves what was read before */
    REFUSED(rules_parse(s, "(rule d (neg ?x) ?x) (rule e)", &err), E_FORMAT);
    assert_non_null(find(s, "d"));
    rules_free(s);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(rule_op("matmul")->name, "aten.matmul.default");
    assert_string_equal(rule_op("add")->name, "aten.add.Tensor");
    assert_string_equal(rule_op("add.Tensor")->name, "aten.add.Tensor");
    assert_string_equal(rule_op("aten.softmax.int")->name, "aten.softmax.int");
    assert_string_equal(rule_op("scores")->name, "qkv.scores.default");
    assert_string_equal(rule_op("max.dim")->name, "aten.max.dim");
    assert_string_equal(rule_op("view")->name, "aten.view.dtype"); /* the only plain row of that name */
    assert_null(rule_op("aten.view.default"));
    assert_null(rule_op(""));
    assert_null(rule_op("no such op"));
}

static void test_many(void **state)
{
    (void)state;
    Err err = {0};
    Buf b = {0};
    RuleSet *s = rules_create(families_all);
    for (int i = 0; i <= MAX_RULES; i++) buf_printf(&b, "(rule r%d (neg ?x) ?x)\n", i);
    REFUSED(rules_parse(s, b.data, &err), E_LIMIT);
    assert_string_equal(err.msg, "more than 10000 rules");
    buf_free(&b);
    rules_free(s);
}

/* The engine has guards that every rule may use; graft functions and further guards come with families. */
static void test_families(void **state)
{
    (void)state;
    Err err = {0};
    RuleSet *s = rules_create((const Family *const[]){NULL});
    OK(rules_parse(s, "(rule a (matmul ?a ?b) ?a (float ?a))", &err));
    REFUSED(rules_parse(s, "(rule b (matmul ?a ?b) (@scores ?a ?b))", &err), E_FORMAT);
    assert_non_null(strstr(err.msg, "no graft function is called 'scores'"));
    REFUSED(rules_parse(s, "(rule c (mul ?a ?b) ?a (zero_one ?b))", &err), E_FORMAT);
    assert_non_null(strstr(err.msg, "no guard is called 'zero_one'"));
    OK(rules_builtin(s, &err));
    assert_int_equal(s->n, 1);
    rules_free(s);
    const Family own = {.name = "own", .rules = (const char *const[]){"(rule d (neg (neg ?x)) ?x)", NULL}};
    s = rules_create((const Family *const[]){&own, NULL});
    OK(rules_builtin(s, &err));
    assert_int_equal(s->n, 1);
    assert_true(find(s, "d")->builtin);
    rules_free(s);
}

static void test_builtin(void **state)
{
    (void)state;
    Err err = {0};
    RuleSet *s = rules_create(families_all);
    OK(rules_builtin(s, &err));
    assert_true(s->n > 50);
    assert_non_null(find(s, "attention"));
    rules_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_depth),    cmocka_unit_test(test_rules),
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_runs),     cmocka_unit_test(test_grafts),
        cmocka_unit_test(test_guards),   cmocka_unit_test(test_replaced), cmocka_unit_test(test_names),
        cmocka_unit_test(test_many),     cmocka_unit_test(test_families), cmocka_unit_test(test_builtin),
    };
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
