/* Questions about values (src/facts), asked of small graphs. */
#include "unit_graph.h"
#include "facts/views.h"

static Value *named(const Graph *g, const char *name)
{
    for (int i = 0; i < g->ninput; i++)
        if (!strcmp(g->input[i]->name, name)) return g->input[i];
    for (const Node *n = g->first; n; n = n->next)
        if (!strcmp(n->out[0]->name, name)) return n->out[0];
    STOP("no value is called %s", name);
    return NULL;
}

static bool only_expand(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_expand;
}

static void test_views(void **state)
{
    (void)state;
    Graph *g = unit_graph("input %x: f16[4, 1, 6]\n"
                          "%c: f32[4, 1, 6] = aten._to_copy.default(%x, dtype=f32)\n"
                          "%p: f32[6, 1, 4] = aten.permute.default(%c, [2, 1, 0])\n"
                          "%e: f32[6, 2, 4] = aten.expand.default(%p, [6, 2, 4])\n"
                          "%n: f32[6, 2, 4] = aten.neg.default(%e)\n"
                          "%r: f32[12, 4] = aten.reshape.default(%n, [12, 4])\n"
                          "output e = %e\noutput r = %r\n");
    Value *x = named(g, "x"), *c = named(g, "c"), *p = named(g, "p"), *e = named(g, "e"), *n = named(g, "n"),
          *r = named(g, "r");
    assert_ptr_equal(through_views(e), c);
    assert_ptr_equal(through_casts(e), x);
    assert_ptr_equal(through_casts(r), n);
    assert_ptr_equal(through_views(x), x);
    assert_null(through_views(NULL));
    assert_ptr_equal(value_below(e, only_expand, NULL), p);
    assert_ptr_equal(value_below(p, only_expand, NULL), p);
    assert_true(is_view_of(e, c) && is_view_of(e, p) && is_view_of(e, e));
    assert_false(is_view_of(e, x) || is_view_of(r, e) || is_view_of(c, e));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_views)};
    return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
