/* The op table; graphs built, changed, printed, read back, and refused when broken. */
#include "unit_graph.h"
#include <math.h>
#include "ir/text.h"

/* ------------------------------------------------------------------ the op table */

static void test_table(void **state)
{
    (void)state;
    for (int id = OP_NONE + 1; id < OP_COUNT; id++) {
        const Op *op = op_get((OpId)id);
        if (op->flags & OPF_OWN) continue; /* found once the program has registered one */
        char full[256];
        snprintf(full, sizeof full, "torch.ops.%s", op->name);
        assert_ptr_equal(op_find(op->name), op);
        assert_ptr_equal(op_find(full), op);
        assert_int_equal(op->id, id);
        assert_true(op->schema->nparams >= 0 && op->schema->nparams < 64 && op->schema->nreturns <= 16);
        bool kwonly = false;
        Graph *g = graph_create();
        for (int i = 0; i < op->schema->nparams; i++) {
            const Param *p = &op->schema->params[i];
            Arg a;
            Err err = {0};
            assert_int_equal(op_param(op, p->name), i);
            if (kwonly && !p->kwonly) STOP("%s: '%s' after the keywords", op->name, p->name);
            kwonly = p->kwonly;
            if (p->def && p->type != PT_IGNORED && !text_parse_default(g, p, &a, &err))
                STOP("%s: default of '%s': %s", op->name, p->name, err.msg);
        }
        graph_free(g);
    }
    assert_null(op_find("aten.add"));
    assert_null(op_find(""));
    assert_int_equal(op_param(op_find("aten.add.Tensor"), "beta"), -1);
}

static void test_schema(void **state)
{
    (void)state;
    const Schema *s = op_find("aten.add.Tensor")->schema;
    assert_true(s->nparams == 3 && s->nreturns == 1 && !s->returns_list);
    assert_true(s->params[0].type == PT_TENSOR && !s->params[0].def && !s->params[0].optional && !s->params[1].kwonly);
    assert_true(s->params[2].type == PT_SCALAR && s->params[2].kwonly);
    assert_string_equal(s->params[2].def, "1");
    s = op_find("aten.max_pool2d_with_indices.default")->schema;
    assert_true(s->nparams == 6 && s->nreturns == 2 && s->params[1].type == PT_INTS && s->params[1].fixed_len == 2 &&
                s->params[5].type == PT_BOOL);
    assert_string_equal(s->params[2].def, "[]");
    s = op_find("aten.gelu.default")->schema;
    assert_true(s->params[1].type == PT_STR && !strcmp(s->params[1].def, "\"none\""));
    s = op_find("aten.index.Tensor")->schema;
    assert_true(s->params[1].type == PT_TENSORS && !s->params[1].optional);
    s = op_find("aten.reshape.default")->schema;
    assert_true(s->params[0].aliased && !s->params[0].written && s->params[1].type == PT_INTS &&
                s->params[1].fixed_len == 0);
    s = op_find("aten.masked_fill_.Scalar")->schema;
    assert_true(s->params[0].written && s->nreturns == 1);
    s = op_find("aten.broadcast_tensors.default")->schema;
    assert_true(s->returns_list && s->params[0].type == PT_TENSORS);
    s = op_find("aten._to_copy.default")->schema;
    assert_true(s->params[1].type == PT_DTYPE && s->params[1].optional && s->params[2].type == PT_IGNORED &&
                s->params[5].type == PT_BOOL);
}

/* ------------------------------------------------------------------ arguments */

static void test_arguments(void **state)
{
    (void)state;
    Err err = {0};
    Arg out[64];
    Graph *g = unit_graph("input %x: f32[2, 3]");
    Value *x = g->input[0];
    const Op *add = op_find("aten.add.Tensor"), *pool = op_find("aten.max_pool2d_with_indices.default"),
             *cat = op_find("aten.cat.default"), *to = op_find("aten._to_copy.default"),
             *sum = op_find("aten.sum.dim_IntList");
    OK(op_fit_args(g, add, 2, (Arg[]){arg_value(x), arg_int(g, 3)}, out, &err)); /* a number may stand for a tensor */
    assert_true(out[1].kind == ARG_EXPR && ex_equals_int(out[2].e, 1));
    OK(op_fit_args(g, pool, 2, (Arg[]){arg_value(x), arg_int(g, 3)}, out, &err)); /* int[2]: repeated */
    assert_true(out[1].kind == ARG_EXPRS && out[1].n == 2 && ex_equals_int(out[1].es[1], 3) && out[2].n == 0 &&
                out[3].n == 2);
    assert_true(out[5].e->kind == EX_BOOL && !out[5].e->i);
    OK(op_fit_args(g, cat, 1, (Arg[]){arg_ints(g, 0, NULL)}, out, &err)); /* an empty list has no type of its own */
    assert_true(out[0].kind == ARG_VALUES && out[0].n == 0);
    OK(op_fit_args(g, to, 3, (Arg[]){arg_value(x), arg_dtype(DT_F16), arg_str(g, "strided")}, out, &err));
    assert_true(out[1].dtype == DT_F16 && out[2].kind == ARG_NONE); /* layouts mean nothing here */
    OK(op_fit_args(g, sum, 2, (Arg[]){arg_value(x), arg_int(g, 1)}, out, &err));
    assert_true(out[1].kind == ARG_EXPRS && out[1].n == 1);
    static const struct {
        const char *op, *message;
        int n;
        char arg[6]; /* v a tensor, V tensors, i, f, I ints, F floats, s a string, d a dtype, - none */
    } rows[] = {
        {"aten.add.Tensor", "takes 3 arguments, found 4", 4, "vvii"},
        {"aten.add.Tensor", "argument 'other': missing", 1, "v"},
        {"aten.add.Tensor", "argument 'self': found a list of tensors, expected a tensor", 2, "Vv"},
        {"aten.add.Tensor", "argument 'alpha': found a string, expected a number", 3, "vvs"},
        {"aten.cat.default", "argument 'tensors': found a tensor, expected a list of tensors", 1, "v"},
        {"aten.cat.default", "argument 'dim': found a number, expected an integer", 2, "Vf"},
        {"aten.reshape.default", "argument 'shape': found a number, expected a list of integers", 2, "vi"},
        {"aten.reshape.default", "argument 'shape': found a list of numbers, expected a list of integers", 2, "vF"},
        {"aten.gelu.default", "argument 'approximate': found a number, expected a string", 2, "vi"},
        {"aten._to_copy.default", "argument 'dtype': found a number, expected a dtype", 2, "vi"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arg in[6];
        for (int k = 0; k < rows[i].n; k++) switch (rows[i].arg[k]) {
            case 'v': in[k] = arg_value(x); break;
            case 'V': in[k] = arg_values(g, 1, &x); break;
            case 'i': in[k] = arg_int(g, 2); break;
            case 'f': in[k] = arg_float(g, 2.5); break;
            case 'I': in[k] = arg_ints(g, 2, (int64_t[]){2, 3}); break;
            case 'F': in[k] = arg_exprs(g, 1, (Expr *[]){ex_float(g->ex, 2.5)}); break;
            case 's': in[k] = arg_str(g, "text"); break;
            case 'd': in[k] = arg_dtype(DT_F32); break;
            default: in[k] = arg_none(); break;
            }
        REFUSED(op_fit_args(g, op_find(rows[i].op), rows[i].n, in, out, &err), E_FORMAT);
        if (!strstr(err.msg, rows[i].message)) STOP("%s: %s", rows[i].op, err.msg);
    }
    graph_free(g);
}

/* What is one of a few things is one of them, in every row that has such an argument. */
static void test_choices(void **state)
{
    (void)state;
    Graph *g = graph_create();
    Err err = {0};
    Arg in[64], out[64];
    static const int64_t outside[] = {-1, 3, 7, 1 << 20, 1ll << 40, INT64_MIN, INT64_MAX};
    int numbers = 0, words = 0;
    for (int id = OP_NONE + 1; id < OP_COUNT; id++) {
        const Op *op = op_get((OpId)id);
        for (int i = 0; i < op->schema->nparams; i++) {
            const Param *p = &op->schema->params[i];
            if (!p->choices) continue;
            numbers += p->type == PT_INT;
            words += p->type == PT_STR;
            for (int k = 0; k < 64; k++) in[k] = arg_none();
            for (int k = 0; k < op->schema->nparams; k++) { /* all others fit */
                ParamType t = op->schema->params[k].type;
                if (t == PT_TENSOR || t == PT_INT || t == PT_BOOL || t == PT_FLOAT || t == PT_SCALAR)
                    in[k] = arg_int(g, 0);
                else if (t == PT_INTS || t == PT_FLOATS || t == PT_BOOLS) in[k] = arg_ints(g, 1, (int64_t[]){1});
                else if (t == PT_TENSORS) in[k] = arg_values(g, 0, NULL);
                else if (t == PT_STR)
                    in[k] = arg_str(g, op->schema->params[k].choices ? op->schema->params[k].choices[0] : "");
                else if (t == PT_DTYPE) in[k] = arg_dtype(DT_F32);
            }
            for (int k = 0; p->choices[k]; k++) {
                in[i] = p->type == PT_INT ? arg_int(g, k) : arg_str(g, p->choices[k]);
                OK(op_fit_args(g, op, op->schema->nparams, in, out, &err));
            }
            for (size_t k = 0; k < sizeof outside / sizeof *outside; k++) {
                in[i] = p->type == PT_INT ? arg_int(g, outside[k]) : arg_str(g, k ? "no such word" : "");
                REFUSED(op_fit_args(g, op, op->schema->nparams, in, out, &err), E_FORMAT);
                if (!strstr(err.msg, p->name) || !strstr(err.msg, p->choices[0])) STOP("%s: %s", op->name, err.msg);
            }
            if (p->type == PT_INT) {
                in[i] = arg_expr(ex_symbol(g->ex, "s7"));
                REFUSED(op_fit_args(g, op, op->schema->nparams, in, out, &err), E_FORMAT);
            }
        }
    }
    assert_true(numbers > 20 && words > 20);
    assert_string_equal(op_get(OP_grid_sampler)->schema->params[3].choices[2], "reflection");
    graph_free(g);
}

/* ------------------------------------------------------------------ building and changing */

static void expect_graph(const Graph *g, const char *want)
{
    char *text = unit_text(g);
    assert_string_equal(text, want);
    free(text);
    Err err = {0};
    OK(graph_check(g, &err));
}

static void test_build(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = graph_create();
    Expr *s0 = ex_symbol(g->ex, "s0");
    expr_set_range(g->ex, 0, 1, 8);
    Value *x = graph_add_input(g, "x", DT_F32, 2, (Expr *[]){s0, ex_int(g->ex, 3)});
    Value *w = graph_add_weight(g, "w", "f32[4, 3]", unit_weight(NULL, "f32[4, 3]"));
    Node *linear = graph_add(g, OP_linear, 2, (Arg[]){arg_value(x), arg_value(w)}, NULL, &err);
    OK(linear);
    Node *again = graph_add(g, OP_linear, 2, (Arg[]){arg_value(x), arg_value(w)}, "linear", &err), *top;
    OK(again);
    top = graph_add(g, OP_topk, 2, (Arg[]){arg_value(again->out[0]), arg_int(g, 2)}, "top", &err);
    OK(top);
    Node *cat = graph_add_before(g, again, OP_cat, 2,
                                 (Arg[]){arg_values(g, 2, (Value *[]){linear->out[0], x}), arg_int(g, 1)}, NULL, &err);
    OK(cat);
    OK(graph_require(g, ex_make(g->ex, EX_LT, s0, ex_int(g->ex, 7), NULL), &err, "guard %d", 1));
    OK(graph_require(g, ex_make(g->ex, EX_LT, s0, ex_int(g->ex, 7), NULL), &err, "the same again"));
    OK(graph_require(g, ex_make(g->ex, EX_LT, s0, ex_int(g->ex, 70), NULL), &err, "always true"));
    OK(graph_add_output(g, "output_0", top->out[1], &err) && graph_add_output(g, "output_1", cat->out[0], &err));
    expect_graph(g, "symbol s0 in [1, 8]\n"
                    "input %x: f32[s0, 3]\n"
                    "weight %w: f32[4, 3] = parameter \"f32[4, 3]\"\n"
                    "%linear: f32[s0, 4] = aten.linear.default(%x, %w)\n"
                    "%cat: f32[s0, 7] = aten.cat.default([%linear, %x], 1)\n"
                    "%linear__3: f32[s0, 4] = aten.linear.default(%x, %w)\n"
                    "%top: f32[s0, 2], %top_out1: i64[s0, 2] = aten.topk.default(%linear__3, 2)\n"
                    "require s0 < 7 \"guard 1\"\n"
                    "output output_0 = %top_out1\n"
                    "output output_1 = %cat\n");
    REFUSED(graph_require(g, ex_make(g->ex, EX_LT, s0, ex_int(g->ex, 1), NULL), &err, "small"), E_FORMAT);
    assert_string_equal(err.msg, "small: can never hold");
    REFUSED(graph_require(g, NULL, &err, "large"), E_LIMIT);
    REFUSED(graph_add(g, OP_linear, 2, (Arg[]){arg_value(w), arg_value(linear->out[0])}, "odd", &err), E_FORMAT);
    assert_memory_equal(err.msg, "node 'odd' (aten.linear.default): ", 34);
    assert_int_equal(g->nnodes, 4);
    graph_free(g);
    graph_free(NULL);
}

static void test_change(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("symbol u0 = item %c in [0, 9]\n"
                          "input %x: f32[2, 3]\n"
                          "%a: f32[2, 3] = aten.relu.default(%x)\n"
                          "%b: f32[2, 3] = aten.add.Tensor(%a, %a)\n"
                          "%dead: f32[2, 3] = aten.relu.default(%b)\n"
                          "%deader: f32[2, 3] = aten.add.Tensor(%dead, %b)\n"
                          "%c: f32[] = aten.amax.default(%b, [0, 1])\n"
                          "%d: f32[2, 6] = aten.cat.default([%a, %b], 1)\n"
                          "mutate %x = %a\n"
                          "output o = %d\n");
    Value *a = graph_find_value(g, "a"), *b = graph_find_value(g, "b"), *c = graph_find_value(g, "c"),
          *x = graph_find_value(g, "x");
    int *uses = calloc((size_t)g->next_id, sizeof *uses);
    graph_count_uses(g, uses);
    assert_true(uses[x->id] == 1 && uses[a->id] == 4 && uses[b->id] == 4 && uses[c->id] == 1 &&
                uses[graph_find_value(g, "deader")->id] == 0);
    free(uses);
    assert_int_equal(graph_dce(g), 2); /* c stays: a size is read from it */
    assert_int_equal(graph_dce(g), 0);
    assert_int_equal(g->nnodes, 4);
    Node *silu = graph_add_before(g, b->def, OP_silu, 1, (Arg[]){arg_value(a)}, "s", &err);
    OK(silu);
    graph_replace_uses(g, a, silu->out[0]);
    silu->arg[0] = arg_value(a);
    OK(graph_rename(g, silu->out[0], "a", &err)); /* the two change names */
    OK(graph_rename(g, b, "sum", &err));
    assert_ptr_equal(graph_find_value(g, "a"), silu->out[0]);
    expect_graph(g, "symbol u0 = item %c in [0, 9]\n"
                    "input %x: f32[2, 3]\n"
                    "%s: f32[2, 3] = aten.relu.default(%x)\n"
                    "%a: f32[2, 3] = aten.silu.default(%s)\n"
                    "%sum: f32[2, 3] = aten.add.Tensor(%a, %a)\n"
                    "%c: f32[] = aten.amax.default(%sum, [0, 1])\n"
                    "%d: f32[2, 6] = aten.cat.default([%a, %sum], 1)\n"
                    "mutate %x = %a\n"
                    "output o = %d\n");
    graph_free(g);
}

/* ------------------------------------------------------------------ checks */

static const char *const six = "input %x: f32[2, 3]\n"
                               "weight %w: f32[3] = buffer \"f32[3]\"\n"
                               "%a: f32[2, 3] = aten.relu.default(%x)\n"
                               "%b: f32[2, 3] = aten.add.Tensor(%a, %w)\n"
                               "%v: f32[2, 1], %i: i64[2, 1] = aten.topk.default(%b, 1)\n"
                               "mutate %w = %w\n"
                               "output o = %v\n";

static void expect_broken(Graph *g, const char *message)
{
    Err err;
    REFUSED(graph_check(g, &err), E_FORMAT);
    if (!strstr(err.msg, message)) STOP("expected '%s': %s", message, err.msg);
    graph_free(g);
}

static void test_check(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph(six), *other = unit_graph("input %x: f32[2]\n%far: f32[2] = aten.relu.default(%x)\n");
    OK(graph_check(g, &err));
    Value *far = graph_find_value(other, "far");
    far->id = 1000;
    g->first->next->arg[1].v = far; /* another graph's value */
    expect_broken(g, "node 'b' uses 'far' before it is defined");
    g = unit_graph(six);
    g->first->arg[0].v = graph_find_value(g, "b");
    expect_broken(g, "node 'a' uses 'b' before it is defined");
    g = unit_graph(six);
    g->first->next->arg[1].v = g->first->next->out[0];
    expect_broken(g, "node 'b' uses 'b' before it is defined");
    g = unit_graph(six);
    g->first->next->prev = g->last;
    expect_broken(g, "broken list");
    g = unit_graph(six);
    g->last = g->first;
    expect_broken(g, "broken list");
    g = unit_graph(six);
    g->nnodes++;
    expect_broken(g, "3 nodes are linked, 4 are counted");
    g = unit_graph(six);
    g->last->out[1] = g->last->out[0];
    expect_broken(g, "result 1 belongs to another node");
    g = unit_graph(six);
    g->first->next->out[0]->id = g->first->out[0]->id;
    expect_broken(g, "value 'b' is defined twice");
    g = unit_graph(six);
    g->first->next->out[0]->name = "a";
    expect_broken(g, "two values are called 'a'");
    g = unit_graph(six);
    graph_remove(g, g->last);
    expect_broken(g, "output 'o' is never computed");
    g = unit_graph(six);
    g->mutation[0].value = graph_find_value(g, "i");
    graph_remove(g, g->last);
    g->output[0].value = g->input[0];
    expect_broken(g, "the new value of 'w' is never computed");
    g = unit_graph(six);
    g->mutation[0].value = graph_find_value(g, "b");
    expect_broken(g, "'w' is not a buffer of the sizes of 'b'");
    g = unit_graph(six);
    g->mutation[0] = (Mutation){graph_find_value(g, "a"), graph_find_value(g, "b")};
    expect_broken(g, "'a' is not a buffer of the sizes of 'b'");
    g = unit_graph(six);
    g->first->arg[0] = arg_none();
    expect_broken(g, "node 'a': argument 'self': missing");
    g = unit_graph(six);
    g->first->next->arg[2] = arg_str(g, "two");
    expect_broken(g, "node 'b': argument 'alpha': found a string, expected a number");
    g = unit_graph(six);
    g->last->nout = 1;
    expect_broken(g, "node 'v' has 1 results, aten.topk.default gives 2");
    graph_free(other);
}

/* A file may name one value as a hundred thousand outputs: lists double where they grow. */
static void test_growth(void **state)
{
    (void)state;
    enum { MANY = 30000 };
    Err err = {0};
    Graph *g = graph_create();
    Value *x = graph_add_input(g, "x", DT_F32, 0, NULL);
    for (int i = 0; i < MANY; i++) OK(graph_add_output(g, "output", x, &err));
    for (int i = 0; i < MANY; i++) OK(graph_add_mutation(g, x, x, &err));
    assert_int_equal(g->noutput, MANY);
    assert_ptr_equal(g->output[MANY - 1].value, x);
    assert_ptr_equal(g->input_mutation[MANY - 1].target, x);
    if (arena_used(g->arena) > (size_t)MANY * 400)
        STOP("%zu bytes for %d outputs and mutations", arena_used(g->arena), MANY);
    graph_free(g);
}

/* Sizes that are required to be equal are one; of what is read from data it must still be checked. */
static void test_unified(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("symbol s0 in [1, 9]\n"
                          "symbol s1 in [2, 64]\n"
                          "symbol s2 in [1, 32]\n"
                          "symbol u0 = item %n in [0, 40]\n"
                          "symbol u1 = item %m in [0, 50]\n"
                          "symbol u2 = size %at 0 in [0, inf]\n"
                          "input %x: f32[s0, s1]\n"
                          "input %y: f32[s0, 2*s2]\n"
                          "input %n: i64[]\n"
                          "input %m: i64[]\n"
                          "%at: i64[u2, 2] = aten.nonzero.default(%x)\n"
                          "%a: f32[2, s0*s2] = aten.reshape.default(%y, [2, s0*s2])\n"
                          "%b: f32[u0, s0] = aten.reshape.default(%x, [u0, s0])\n"
                          "%c: f32[u1, s0] = aten.reshape.default(%x, [u1, s0])\n"
                          "require 2*s2 <= 60 \"range of 2*s2\"\n"
                          "require s2 + s0 == s0 + s1 \"node 'z': sizes\"\n"
                          "require u0 == s2 and u1 <= 7 \"assert: u0\"\n"
                          "require u1 == u0 \"assert: u1\"\n"
                          "require u1 == s1 \"assert: again\"\n"
                          "require u1 <= 8 \"assert: 8\"\n"
                          "require u2 == s1 \"assert: u2\"\n"
                          "output a = %a\n"
                          "output b = %b\n"
                          "output c = %c\n");
    OK(graph_unify_sizes(g, NULL, &(int){0}, &err));
    expect_graph(g, "symbol s0 in [1, 9]\n"
                    "symbol s1 in [2, 32]\n"
                    "symbol u0 = item %n in [0, 40]\n"
                    "symbol u1 = item %m in [0, 50]\n"
                    "symbol u2 = size %at 0 in [0, inf]\n"
                    "input %x: f32[s0, s1]\n"
                    "input %y: f32[s0, 2*s1]\n"
                    "input %n: i64[]\n"
                    "input %m: i64[]\n"
                    "%at: i64[u2, 2] = aten.nonzero.default(%x)\n"
                    "%a: f32[2, s0*s1] = aten.reshape.default(%y, [2, (s0*s1)])\n"
                    "%b: f32[s1, s0] = aten.reshape.default(%x, [s1, s0])\n"
                    "%c: f32[s1, s0] = aten.reshape.default(%x, [s1, s0])\n"
                    "require 2*s1 <= 60 \"range of 2*s1\"\n"
                    "require u0 == s1 and u1 <= 7 \"assert: u0\"\n"
                    "require u1 == u0 \"assert: u1\"\n"
                    "require s1 <= 8 \"assert: 8\"\n"
                    "require u2 == s1 \"assert: u2\"\n"
                    "output a = %a\n"
                    "output b = %b\n"
                    "output c = %c\n");
    assert_ptr_equal(expr_find_symbol(g->ex, "s2"), expr_find_symbol(g->ex, "s1"));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),   cmocka_unit_test(test_schema), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_choices), cmocka_unit_test(test_build),  cmocka_unit_test(test_change),
        cmocka_unit_test(test_check),   cmocka_unit_test(test_growth),
        cmocka_unit_test(test_unified),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
