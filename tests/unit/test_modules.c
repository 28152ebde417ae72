/* Modules of nodes by the names of their weights, and a run that tells them. */
#include "run/module_names.h"
#include "run/session.h"
#include "unit_graph.h"

static const Tensor *any_weight(void *user, const char *fqn)
{
    static float data[4] = {1, 0, 0, 1};
    static Tensor t;
    (void)user;
    (void)fqn;
    t = tensor_of(DT_F32, 2, (int64_t[]){2, 2}, data);
    return &t;
}

/* x times the transpose of each weight in turn, a relu after each. */
static Graph *chain(const char *const *name)
{
    Err err = {0};
    char text[2048] = "symbol b in [1, 8]\ninput %r0: f32[b, 2]\n";
    int n = 0;
    for (; name[n]; n++) sprintf(text + strlen(text), "weight %%w%d: f32[2, 2] = parameter \"%s\"\n", n + 1, name[n]);
    for (int i = 1; i <= n; i++)
        sprintf(text + strlen(text),
                "%%t%d: f32[2, 2] = aten.permute.default(%%w%d, [1, 0])\n"
                "%%m%d: f32[b, 2] = aten.matmul.default(%%r%d, %%t%d)\n%%r%d: f32[b, 2] = aten.relu.default(%%m%d)\n",
                i, i, i, i - 1, i, i, i);
    sprintf(text + strlen(text), "output output_0 = %%r%d\n", n);
    Graph *g = graph_parse(text, any_weight, NULL, &err);
    if (!g) STOP("%s\n%s", text, err.msg);
    unit_mark_inputs(g);
    return g;
}

static void expect(const char *const *name, const char *want)
{
    Graph *g = chain(name);
    char got[512] = "";
    const char **module = modules_of(g);
    assert_non_null(module);
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->id == OP_relu) { /* of the product before it, which finds its weight through a view */
            assert_string_equal(module[n->out[0]->id], module[n->arg[0].v->id]);
            strcat(got, module[n->out[0]->id]);
            strcat(got, "|");
        }
    assert_string_equal(got, want);
    free(module);
    graph_free(g);
}

static void test_names(void **state)
{
    (void)state;
    expect((const char *[]){"model.seer.layers.0.fc.weight", "model.seer.norm.weight", "model.reader.weight",
                            "model.head.0.weight", NULL},
           "seer|seer|reader|head|");
    expect((const char *[]){"m.layers.0.w", "m.layers.1.w", "m.layers.10.w", NULL}, "layers.0|layers.1|layers.10|");
    expect((const char *[]){"enc.w", "encoder.w", "free", "0.w", NULL}, "enc|encoder|encoder|0|");
    expect((const char *[]){"a.b.weight", "a.b.bias", NULL}, "b|b|");
    expect((const char *[]){"a.b.weight", "a.weight", NULL}, "b|a|");
    expect((const char *[]){"x", ".", "..", NULL}, "|||");
}

typedef struct Told {
    char text[256];
    double last;
} Told;

static void tell(void *user, const char *module, double done)
{
    Told *t = user;
    assert_true(done >= t->last && done < 1);
    t->last = done;
    strcat(t->text, module);
    strcat(t->text, "|");
}

static void test_told(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = chain((const char *[]){"m.a.w", "m.b.w", NULL});
    Session *s = session_create(g, NULL, 1, 0, &err);
    assert_non_null(s);
    float x[8] = {1, 2};
    Tensor in = tensor_of(DT_F32, 2, (int64_t[]){4, 2}, x);
    OK(session_set_input(s, 0, &in, &err));
    for (int run = 0; run < 3; run++) {
        Told t = {0};
        session_on_progress(s, run < 2 ? tell : NULL, &t);
        OK(session_run(s, &err));
        assert_string_equal(t.text, run < 2 ? "a|a|b|b|" : "");
        assert_true(run == 2 || t.last > 0.5);
    }
    session_free(s);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_told)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
