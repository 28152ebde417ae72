/* What the tests of graphs share: a graph from its text, with weights made up from their names ("f32[4, 3]" is the name of a weight of
 * that type), and symbols of inputs marked as import marks them. */
#ifndef QKV_TESTS_UNIT_GRAPH_H
#define QKV_TESTS_UNIT_GRAPH_H
#include "unit.h"
#include "ir/graph.h"
#include "shape/shape.h"

/* The weight called "f32[4, 3]": its numbers are 1, 2, 3 ... Lives until the end of the program. */
__attribute__((unused)) static const Tensor *unit_weight(void *user, const char *fqn)
{
    static struct Made {
        struct Made *next;
        Tensor t;
        double room[64];
    } *all;
    (void)user;
    char dtype[16];
    int at = 0;
    if (sscanf(fqn, "%15[a-z0-9][%n", dtype, &at) != 1 || !at || dtype_from_name(dtype) == DT_NONE) return NULL;
    int64_t shape[MAX_RANK];
    int rank = 0;
    for (const char *s = fqn + at; *s && *s != ']';) {
        char *end;
        if (rank == 4) return NULL;
        shape[rank] = strtoll(s, &end, 10);
        if (end == s || shape[rank] < 0 || shape[rank] > 1000) return NULL;
        rank++;
        s = *end == ',' ? end + 1 : end;
    }
    struct Made *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->next = all;
    all = m; /* reachable, so that nothing is called a leak */
    m->t = tensor_of(dtype_from_name(dtype), rank, shape, m->room);
    if (tensor_bytes(&m->t) > sizeof m->room) m->t.data = calloc(1, tensor_bytes(&m->t));
    if (!m->t.data) return NULL;
    for (int64_t i = 0; i < tensor_numel(&m->t); i++) store_f64(m->t.dtype, (char *)m->t.data + i * (int64_t)dtype_size(m->t.dtype), (double)(i + 1));
    return &m->t;
}

__attribute__((unused)) static void unit_mark_inputs(Graph *g)
{
    for (int k = 0; k < g->ninput; k++)
        for (int d = 0; d < g->input[k]->rank; d++)
            for (int i = 0; i < expr_symbol_count(g->ex); i++) {
                Symbol *s = expr_symbol(g->ex, i);
                if (s->source != SYM_FREE || !ex_mentions(g->input[k]->dim[d], s->expr)) continue;
                s->source = SYM_INPUT;
                s->value = g->input[k];
                s->dim = d;
            }
}

__attribute__((unused)) static Graph *unit_graph(const char *text)
{
    Err err = {0};
    shape_install();
    Graph *g = graph_parse(text, unit_weight, NULL, &err);
    if (!g) STOP("%s\n%s", text, err.msg);
    unit_mark_inputs(g);
    return g;
}

/* Must be freed. */
__attribute__((unused)) static char *unit_text(const Graph *g)
{
    Buf b = {0};
    graph_print(g, &b);
    assert_false(b.failed);
    return b.data ? b.data : strdup("");
}
#endif
