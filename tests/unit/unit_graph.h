/* What the tests of graphs share: a graph from its text, with weights made up from their names ("f32[4,
 * 3]" is the name of a weight of that type), and symbols of inputs marked as import marks them. */
#ifndef QKV_TESTS_UNIT_GRAPH_H
#define QKV_TESTS_UNIT_GRAPH_H
#include "unit.h"
#include "ir/graph.h"

/* The weight called "f32[4, 3]": its numbers are 1, 2, 3 ... Lives until the end of the program. */
__attribute__((unused)) static const Tensor *unit_weight(void *user, const char *fqn)
{
    static struct Made {
        struct Made *next;
        Tensor t;
        double room[64];
    } * all;
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
    for (int64_t i = 0; i < tensor_numel(&m->t); i++)
        store_f64(m->t.dtype, (char *)m->t.data + i * (int64_t)dtype_size(m->t.dtype), (double)(i + 1));
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

/* What the session gives: weights, and what depends on weights alone where other nodes use it. */
typedef struct UnitGiven {
    const Tensor **given;
    unsigned char *stable, *fold;
    Tensor *made;
    bool all;
} UnitGiven;

static void all_folded(void *user, Value **slot)
{
    UnitGiven *s = user;
    s->all &= s->fold[(*slot)->id] != 0;
}

static void give(void *user, Value **slot)
{
    UnitGiven *s = user;
    const Value *v = *slot;
    if (!s->fold[v->id] || s->given[v->id]) return;
    Tensor *t = &s->made[v->id];
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = v->dim[i]->i;
    *t = tensor_of(v->dtype, v->rank, shape, NULL);
    t->data = calloc(1, tensor_bytes(t));
    s->given[v->id] = t;
    s->stable[v->id] = 1;
}

__attribute__((unused)) static void make_given(const Graph *g, bool folded, UnitGiven *s)
{
    size_t n = (size_t)g->next_id + 1;
    *s = (UnitGiven){calloc(n, sizeof *s->given), calloc(n, 1), calloc(n, 1), calloc(n, sizeof *s->made), false};
    for (int i = 0; i < g->nweight; i++) {
        s->given[g->weight[i]->id] = g->weight[i]->data;
        s->stable[g->weight[i]->id] = s->fold[g->weight[i]->id] = 1;
    }
    for (Node *node = g->first; folded && node; node = node->next) {
        s->all = true;
        node_each_operand(node, all_folded, s);
        if (s->all) s->fold[node->out[0]->id] = 1;
        else node_each_operand(node, give, s);
    }
}

__attribute__((unused)) static void free_given(const Graph *g, UnitGiven *s)
{
    for (int i = 0; i < g->next_id; i++) free(s->made[i].data);
    free(s->given);
    free(s->stable);
    free(s->fold);
    free(s->made);
}
#endif
