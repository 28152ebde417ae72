/* A graph for graphviz: modules are clusters. Contract in picture.h.
 *
 *     digraph "qkv" {
 *       subgraph "cluster_layers.0" { label = "layers.0"; n3 [label = "linear\nf32[s0, 4]", tooltip = "..."]; }
 *       n3 -> n4;
 */
#include <string.h>
#include "picture/picture_impl.h"

/* For whoever prints the file, too. */
static void put_text(const char *s, Buf *out)
{
    Buf plain = {0};
    picture_plain(s, "\n", &plain);
    buf_quoted(out, plain.data ? plain.data : "");
    out->failed |= plain.failed;
    buf_free(&plain);
}

static void put_box(const Picture *p, int i, Buf *out)
{
    static const char *const style[] = {[BOX_NODE] = "",
                                        [BOX_OUTSIDE] = ", style = dashed",
                                        [BOX_INPUT] = ", shape = ellipse",
                                        [BOX_OUTPUT] = ", shape = ellipse"};
    const Box *b = &p->box[i];
    Buf label = {0}, whole = {0};
    char op[128];
    buf_printf(&label, "%s\n", b->name);
    if (b->node && strcmp(picture_op(b->node, op, sizeof op), b->name)) buf_printf(&label, "%s\n", op);
    picture_type(p->g, b->value, &label);
    if (b->node) graph_print_node(p->g, b->node, &whole);
    buf_printf(out, "n%d [label = ", i);
    put_text(label.data ? label.data : "", out);
    buf_puts(out, style[b->kind]);
    if (whole.data) {
        buf_puts(out, ", tooltip = ");
        put_text(whole.data, out);
    }
    buf_puts(out, "];\n");
    out->failed |= label.failed || whole.failed;
    buf_free(&label);
    buf_free(&whole);
}

static const char *path_of(const Box *b) { return b->node && b->node->module ? b->node->module->path : ""; }

/* Bytes of the components that two paths share, "layers.0" of "layers.0.fc" and "layers.0.norm"; the dot after them
 * is not one. */
static size_t shared(const char *a, const char *b)
{
    size_t whole = 0, k = 0;
    for (; a[k] && a[k] == b[k]; k++)
        if (a[k] == '.') whole = k;
    return (!a[k] || a[k] == '.') && (!b[k] || b[k] == '.') ? k : whole;
}

static void indent(int depth, Buf *out)
{
    for (int i = 0; i < depth; i++) buf_puts(out, "  ");
}

static int depth_of(const char *path, size_t n)
{
    int depth = n > 0;
    for (size_t i = 0; i < n; i++) depth += path[i] == '.';
    return depth;
}

/* From cluster `at` to that of `path`: closes what it is not in, opens what it is in. graphviz takes a cluster that is
 * opened again for the same one. */
static void go_to(const char *at, const char *path, Buf *out)
{
    size_t same = shared(at, path), n = strlen(path);
    for (int d = depth_of(at, strlen(at)); d > depth_of(path, same); d--) {
        indent(d, out);
        buf_puts(out, "}\n");
    }
    while (same < n) {
        const char *dot = strchr(path + same + (path[same] == '.'), '.');
        same = dot ? (size_t)(dot - path) : n;
        int d = depth_of(path, same);
        char name[512];
        size_t k = same < sizeof name - 9 ? same : sizeof name - 9;
        memcpy(name, "cluster_", 8);
        memcpy(name + 8, path, k);
        name[8 + k] = '\0';
        indent(d, out);
        buf_puts(out, "subgraph ");
        put_text(name, out);
        buf_puts(out, " { label = ");
        put_text(name + 8, out);
        buf_puts(out, ";\n");
    }
}

bool picture_dot(const Graph *g, const PictureOptions *o, Buf *out, Err *err)
{
    Picture p;
    bool ok = picture_open(&p, g, o, err);
    const char *at = "";
    buf_puts(out, "digraph \"qkv\" {\n  node [shape = box, fontname = \"sans-serif\", fontsize = 10];\n");
    for (int i = 0; ok && i < p.nbox; i++) {
        go_to(at, path_of(&p.box[i]), out);
        at = path_of(&p.box[i]);
        indent(depth_of(at, strlen(at)) + 1, out);
        put_box(&p, i, out);
    }
    if (ok) go_to(at, "", out);
    for (int i = 0; ok && i < p.nedge; i++) buf_printf(out, "  n%d -> n%d;\n", p.edge[i].from, p.edge[i].to);
    buf_puts(out, "}\n");
    picture_close(&p);
    return ok && (!out->failed || oom(err));
}
