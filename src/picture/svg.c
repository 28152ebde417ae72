/* A graph as SVG: a box for each node with its name, op, type and module; its whole line shows where the mouse rests.
 * Contract in picture.h. */
#include <stdio.h>
#include <string.h>
#include "picture/picture_impl.h"

enum { LETTER = 6, SMALL_LETTER = 5, PADDING = 16, LONGEST = 64 };

static void escaped(const char *s, Buf *out)
{
    for (; *s; s++) {
        if (*s == '<') buf_puts(out, "&lt;");
        else if (*s == '>') buf_puts(out, "&gt;");
        else if (*s == '&') buf_puts(out, "&amp;");
        else buf_add(out, s, 1);
    }
}

/* The three lines of a box. */
typedef struct Caption {
    char name[LONGEST + 1], type[LONGEST + 1], module[LONGEST + 1];
} Caption;

/* No half of a UTF-8 character is left where a text is cut. */
static void keep_begin(char *to, const char *s)
{
    size_t n = strlen(s) > LONGEST ? LONGEST : strlen(s);
    while (n < strlen(s) && n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;
    snprintf(to, LONGEST + 1, "%.*s", (int)n, s);
}

/* The end of a path says more than its beginning. */
static void keep_end(char *to, const char *s)
{
    size_t n = strlen(s);
    s += n > LONGEST ? n - LONGEST : 0;
    while (((unsigned char)*s & 0xc0) == 0x80) s++;
    snprintf(to, LONGEST + 1, "%s", s);
}

static bool caption_of(const Picture *p, const Box *b, Caption *c)
{
    Buf type = {0}, name = {0}, module = {0};
    char op[128] = "";
    if (b->node) picture_op(b->node, op, sizeof op);
    if (b->node) buf_printf(&type, "%s: ", op);
    picture_type(p->g, b->value, &type);
    picture_plain(b->name, "", &name);
    picture_plain(b->node && b->node->module ? b->node->module->path : "", "", &module);
    keep_begin(c->name, name.data ? name.data : "");
    keep_begin(c->type, type.data ? type.data : "");
    keep_end(c->module, module.data ? module.data : "");
    bool ok = !type.failed && !name.failed && !module.failed;
    buf_free(&type);
    buf_free(&name);
    buf_free(&module);
    return ok || oom(p->err);
}

static int width_of(const Caption *c)
{
    size_t name = strlen(c->name) * (LETTER + 1), type = strlen(c->type) * LETTER,
           module = strlen(c->module) * SMALL_LETTER, most = name > type ? name : type;
    return (int)(most > module ? most : module) + PADDING;
}

static void reads_weight(void *user, Value **slot) { *(bool *)user |= (*slot)->kind == V_WEIGHT; }

static const char *class_of(const Box *b)
{
    bool weights = false;
    if (b->kind == BOX_INPUT || b->kind == BOX_OUTPUT) return "end";
    if (b->kind == BOX_OUTSIDE) return "outside";
    node_each_operand((Node *)(uintptr_t)b->node, reads_weight, &weights);
    return weights ? "weights" : b->node->op->flags & OPF_VIEW ? "view" : "node";
}

static void put_line(const char *class, int x, int y, const char *text, Buf *out)
{
    if (!*text) return;
    buf_printf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    escaped(text, out);
    buf_puts(out, "</text>");
}

static void put_box(const Picture *p, int i, const Caption *c, const Placed *at, Buf *out)
{
    const Box *b = &p->box[i];
    bool end = b->kind == BOX_INPUT || b->kind == BOX_OUTPUT;
    Buf whole = {0}, plain = {0};
    buf_puts(out, "<g>");
    if (b->node) {
        graph_print_node(p->g, b->node, &whole);
        picture_plain(whole.data ? whole.data : "", "\n", &plain);
        buf_puts(out, "<title>");
        escaped(plain.data ? plain.data : "", out);
        buf_puts(out, "</title>");
        out->failed |= whole.failed || plain.failed;
        buf_free(&whole);
        buf_free(&plain);
    }
    buf_printf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>", class_of(b),
               at->x - at->w / 2, at->y - BOX_HEIGHT / 2, at->w, BOX_HEIGHT, end ? BOX_HEIGHT / 2 : 4);
    put_line("name", at->x, at->y - 8, c->name, out);
    put_line("type", at->x, at->y + 5, c->type, out);
    put_line("module", at->x, at->y + 17, c->module, out);
    buf_puts(out, "</g>\n");
}

/* Through the points of the layers that it passes, bending half way between two of them. */
static void put_edge(const Layout *l, const Edge *e, const Route *r, Buf *out)
{
    int x = l->box[e->from].x, y = l->box[e->from].y + BOX_HEIGHT / 2;
    buf_printf(out, "<path d=\"M%d %d", x, y);
    for (int i = 0; i <= r->n; i++) {
        const Placed *to = i < r->n ? &l->point[r->first + i] : &l->box[e->to];
        int top = to->y - BOX_HEIGHT / 2, middle = (y + top) / 2;
        buf_printf(out, " C%d %d %d %d %d %d", x, middle, to->x, middle, to->x, top);
        x = to->x;
        y = top;
        if (i == r->n) break;
        y += BOX_HEIGHT;
        buf_printf(out, " V%d", y);
    }
    buf_puts(out, "\"/>\n");
}

static const char *const style =
    "<style>text{font-family:sans-serif;text-anchor:middle;fill:#222}.name{font-size:12px;font-weight:bold}"
    ".type{font-size:11px}.module{font-size:9px;fill:#777}rect{stroke:#888;fill:#fff}.weights{fill:#dcebff}"
    ".view{fill:#f3f3f3}.end{fill:#e6f4e2}.outside{fill:#fff;stroke-dasharray:4 3}"
    "path{fill:none;stroke:#999;marker-end:url(#end)}</style>\n"
    "<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
    "orient=\"auto\"><path style=\"fill:#999;stroke:none;marker-end:none\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    "<rect width=\"100%\" height=\"100%\" style=\"stroke:none\"/>\n";

static bool draw(Picture *p, Buf *out)
{
    if (p->nbox > PICTURE_MOST)
        return fail(p->err, E_LIMIT, "%d boxes, more than %d: choose a part of the graph, or write DOT", p->nbox,
                    PICTURE_MOST);
    Layout l;
    Caption *c = arena_array(p->a, Caption, p->nbox + 1);
    int *width = arena_array(p->a, int, p->nbox + 1);
    if (!c || !width) return oom(p->err);
    for (int i = 0; i < p->nbox; i++) {
        TRY(caption_of(p, &p->box[i], &c[i]));
        width[i] = width_of(&c[i]);
    }
    TRY(picture_layout(p, width, &l));
    buf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
               l.width, l.height, l.width, l.height);
    buf_puts(out, style);
    for (int i = 0; i < p->nedge; i++) put_edge(&l, &p->edge[i], &l.route[i], out);
    for (int i = 0; i < p->nbox; i++) put_box(p, i, &c[i], &l.box[i], out);
    buf_puts(out, "</svg>\n");
    return true;
}

bool picture_svg(const Graph *g, const PictureOptions *o, Buf *out, Err *err)
{
    Picture p;
    bool ok = picture_open(&p, g, o, err) && draw(&p, out);
    picture_close(&p);
    return ok && (!out->failed || oom(err));
}
