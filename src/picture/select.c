/* Which nodes a picture shows, and what is beside them. Contract in picture.h. */
#include <stdio.h>
#include <string.h>
#include "base/hidden.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"
#include "picture/picture_impl.h"

void picture_plain(const char *s, const char *kept, Buf *out)
{
    for (int n; *s; s += n ? n : 1) {
        n = utf8_length(s);
        unsigned c = hidden_at(s, n);
        if (!c || strchr(kept, *s)) buf_add(out, s, n ? (size_t)n : 1);
        else buf_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
}

/* ------------------------------------------------------------------ which nodes */

const char *picture_op(const Node *n, char *buf, size_t size)
{
    const char *dot = strchr(n->op->name, '.'), *name = dot ? dot + 1 : n->op->name;
    snprintf(buf, size, "%.*s", (int)strcspn(name, "."), name);
    return buf;
}

static bool is_op(const Node *n, const char *op)
{
    char word[128];
    size_t k = strlen(op);
    if (!strcmp(picture_op(n, word, sizeof word), op)) return true;
    return !strncmp(n->op->name, op, k) && (!n->op->name[k] || n->op->name[k] == '.');
}

static bool is_in(const Node *n, const char *module)
{
    size_t k = strlen(module);
    if (!n->module) return false;
    return !k || (!strncmp(n->module->path, module, k) && (!n->module->path[k] || n->module->path[k] == '.'));
}

typedef struct Spread {
    unsigned char *near; /* by value id */
    bool touched;
} Spread;

static void touch(void *user, Value **slot)
{
    Spread *s = user;
    s->touched |= s->near[(*slot)->id] & 1;
}

static void spread_up(void *user, Value **slot)
{
    Spread *s = user;
    if ((*slot)->def) s->near[(*slot)->def->out[0]->id] |= 2;
}

/* Marks what is one edge further away. */
static void spread(const Graph *g, unsigned char *near)
{
    for (Node *n = g->first; n; n = n->next) {
        Spread s = {near, false};
        if (!n->nout) continue;
        for (int k = 1; k < n->nout; k++) near[n->out[k]->id] = near[n->out[0]->id] & 1;
        node_each_operand(n, touch, &s);
        if (near[n->out[0]->id] & 1) node_each_operand(n, spread_up, &s);
        else if (s.touched) near[n->out[0]->id] |= 4;
    }
    for (int i = 0; i < g->next_id; i++) near[i] = near[i] != 0;
}

static const Node *node_called(const Graph *g, const char *name)
{
    const Value *v = graph_find_value(g, name);
    if (v && v->def) return v->def;
    for (const Node *n = g->first; n; n = n->next)
        if (n->nout && !strcmp(n->name, name)) return n;
    return NULL;
}

/* The marks of `near` that are not yet those of this round are 2 (above) and 4 (below): a round looks at bit 0 only. */
static bool neighbourhood(const Graph *g, const PictureOptions *o, unsigned char *near, Err *err)
{
    const Node *n = node_called(g, o->around);
    if (!n) return fail(err, E_USAGE, "no node of the graph is called '%.120s'", o->around);
    near[n->out[0]->id] = 1;
    for (int i = 0; i < o->hops && i < g->nnodes; i++) spread(g, near);
    return true;
}

bool picture_shown(const Graph *g, const PictureOptions *o, unsigned char *shown, Err *err)
{
    bool module = !o->module, op = !o->op, any = false;
    if (o->around) TRY(neighbourhood(g, o, shown, err));
    for (const Node *n = g->first; n; n = n->next) {
        bool in = !o->module || is_in(n, o->module), is = !o->op || is_op(n, o->op);
        module |= in;
        op |= is;
        if (!n->nout) continue;
        unsigned char *s = &shown[n->out[0]->id];
        *s = (!o->around || *s) && in && is;
        any |= *s;
    }
    if (!module) return fail(err, E_USAGE, "no node belongs to a module '%.200s'", o->module);
    if (!op) return fail(err, E_USAGE, "no node of the graph is '%.120s'", o->op);
    return any || !g->first || fail(err, E_USAGE, "no node meets all of the conditions");
}

/* ------------------------------------------------------------------ boxes and edges */

typedef struct Maker {
    Picture *p;
    unsigned char *shown; /* by id of the first result: 1, or 2 for a neighbour of those */
    int *box;             /* by value id: + 1 */
    const Node *node;
    bool ok;
} Maker;

static void note_above(void *user, Value **slot)
{
    Maker *m = user;
    const Node *from = (*slot)->def;
    if (m->shown[m->node->out[0]->id] == 1 && from && !m->shown[from->out[0]->id]) m->shown[from->out[0]->id] = 2;
    if (m->shown[m->node->out[0]->id] == 1 && (*slot)->kind == V_INPUT) m->shown[(*slot)->id] = 2;
    if (!m->shown[m->node->out[0]->id] && from && m->shown[from->out[0]->id] == 1) m->shown[m->node->out[0]->id] = 2;
}

static int add_box(Maker *m, Box b)
{
    Box *all = vec_room(m->p->a, m->p->box, m->p->nbox, sizeof *all);
    if (!all) return m->ok = oom(m->p->err), -1;
    m->p->box = all;
    all[m->p->nbox] = b;
    return m->p->nbox++;
}

static void add_edge(Maker *m, int from, int to, const Value *v)
{
    Picture *p = m->p;
    for (int i = p->nedge - 1; i >= 0 && p->edge[i].to == to; i--)
        if (p->edge[i].from == from) return;
    Edge *all = vec_room(p->a, p->edge, p->nedge, sizeof *all);
    if (!all) {
        m->ok = oom(p->err);
        return;
    }
    p->edge = all;
    all[p->nedge++] = (Edge){from, to, v};
}

/* Between two boxes, at least one of which was asked for. */
static void link_operand(void *user, Value **slot)
{
    Maker *m = user;
    const Value *from = *slot;
    int a = m->box[from->id] - 1, b = m->box[m->node->out[0]->id] - 1;
    if (!m->ok || a < 0 || b < 0) return;
    if (m->p->box[a].kind == BOX_OUTSIDE && m->p->box[b].kind == BOX_OUTSIDE) return;
    if (m->p->box[a].kind == BOX_INPUT && m->p->box[b].kind == BOX_OUTSIDE) return;
    add_edge(m, a, b, from);
}

static void make_boxes(Maker *m)
{
    const Graph *g = m->p->g;
    for (int i = 0; i < g->ninput && m->ok; i++)
        if (m->shown[g->input[i]->id])
            m->box[g->input[i]->id] = add_box(m, (Box){BOX_INPUT, NULL, g->input[i], value_label(g->input[i])}) + 1;
    for (Node *n = g->first; n && m->ok; n = n->next) {
        if (!n->nout || !m->shown[n->out[0]->id]) continue;
        BoxKind kind = m->shown[n->out[0]->id] == 1 ? BOX_NODE : BOX_OUTSIDE;
        int at = add_box(m, (Box){kind, n, n->out[0], n->name}) + 1;
        for (int k = 0; k < n->nout; k++) m->box[n->out[k]->id] = at;
        m->node = n;
        node_each_operand(n, link_operand, m);
    }
    for (int i = 0; i < g->noutput && m->ok; i++) {
        int from = m->box[g->output[i].value->id] - 1;
        if (from < 0 || m->p->box[from].kind == BOX_OUTSIDE) continue;
        int to = add_box(m, (Box){BOX_OUTPUT, NULL, g->output[i].value, output_label(&g->output[i])});
        if (m->ok) add_edge(m, from, to, g->output[i].value);
    }
}

bool picture_open(Picture *p, const Graph *g, const PictureOptions *o, Err *err)
{
    *p = (Picture){.g = g, .a = arena_create(0), .err = err};
    if (!p->a) return oom(err);
    Maker m = {.p = p,
               .shown = arena_array(p->a, unsigned char, g->next_id + 1),
               .box = arena_array(p->a, int, g->next_id + 1),
               .ok = true};
    if (!m.shown || !m.box) return oom(err);
    TRY(picture_shown(g, o, m.shown, err));
    for (Node *n = g->first; n; n = n->next) {
        m.node = n;
        if (n->nout) node_each_operand(n, note_above, &m);
    }
    make_boxes(&m);
    return m.ok;
}

void picture_close(Picture *p) { arena_destroy(p->a); }

/* ------------------------------------------------------------------ text */

void picture_type(const Graph *g, const Value *v, Buf *out)
{
    buf_printf(out, "%s[", dtype_name(v->dtype));
    for (int i = 0; i < v->rank; i++) {
        if (i) buf_puts(out, ", ");
        ex_print(g->ex, v->dim[i], out);
    }
    buf_puts(out, "]");
}

bool picture_text(const Graph *g, const PictureOptions *o, Buf *out, Err *err)
{
    unsigned char *shown = mem_zeroed((size_t)g->next_id + 1, 1);
    bool ok = shown ? picture_shown(g, o, shown, err) : oom(err);
    for (const Node *n = g->first; ok && n; n = n->next)
        if (n->nout && shown[n->out[0]->id]) graph_print_node(g, n, out);
    mem_free(shown);
    return ok && (!out->failed || oom(err));
}
