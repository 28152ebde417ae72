/* qkv graph MODEL: the graph as text (docs/IR.md), as it is after import or after further passes; a part of it; a
 * picture of it as DOT or SVG. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct GraphOptions {
    Common common;
    ModelOptions model;
    const char *after, *module, *op, *around, *output;
    bool as_run;
} GraphOptions;

/* What --after PASS means as a list, also for a pass that sessions run only when asked to. The library refuses unknown
 * ones. */
static int passes_before(const GraphOptions *o, char *list, size_t size)
{
    if (passes_upto(&o->model, o->after, list, size)) return 0;
    if (o->model.passes)
        return problem(QKV_USAGE, "option '--after': '%s' is not one of --passes %s", o->after, o->model.passes);
    size_t at = strlen(list);
    snprintf(list + at, size - at, ",%s", o->after);
    return 0;
}

/* ------------------------------------------------------------------ did you mean */

typedef struct Candidates { /* what a graph's text calls its nodes, ops and modules */
    const char **name;
    int n, room;
} Candidates;

static void add(Candidates *c, const char *from, size_t n)
{
    if (c->n == c->room) {
        c->room = 2 * c->room + 64;
        c->name = must(realloc(c->name, (size_t)c->room * sizeof *c->name));
    }
    c->name[c->n++] = must(strndup(from, n));
}

/* Of "%add: f32[s0] = aten.add.Tensor(%x, 1) in layers.0.mlp": add; add; layers, layers.0, layers.0.mlp */
static void take_line(char kind, const char *line, size_t n, Candidates *c)
{
    char *text = must(strndup(line, n)), *call = strstr(text, " = "), *in = NULL;
    for (char *s = call ? strstr(call, ") in ") : NULL; s; s = strstr(s + 1, ") in ")) in = s + 5;
    if (kind == 'n') add(c, text + 1, strcspn(text + 1, ":"));
    char *dot = call ? strchr(call, '.') : NULL;
    if (kind == 'o' && dot) add(c, dot + 1, strcspn(dot + 1, "."));
    for (char *end = in; kind == 'm' && end;) {
        end = strchr(end, '.');
        add(c, in, end ? (size_t)(end - in) : strlen(in));
        if (end) end++;
    }
    free(text);
}

/* The name in the graph that is nearest to what the user gave and the library did not find; the caller's to free. */
static char *suggestion(const qkv_model *m, const qkv_graph_options *o, char kind, const char *given)
{
    const qkv_graph_options whole = {.struct_size = sizeof whole, .passes = o->passes, .as_run = o->as_run};
    Candidates c = {0};
    char *text = qkv_model_graph_view(m, &whole, NULL);
    for (const char *s = text; s && *s; s += strcspn(s, "\n") + (s[strcspn(s, "\n")] != 0))
        if (*s == '%') take_line(kind, s, strcspn(s, "\n"), &c);
    const char *best = nearest(given, c.name, c.n);
    char *found = best ? must(strdup(best)) : NULL;
    for (int i = 0; i < c.n; i++) free((char *)c.name[i]);
    free(c.name);
    qkv_free(text);
    return found;
}

static int not_found(const qkv_model *m, const qkv_graph_options *o, const qkv_error *e)
{
    char kind = strstr(e->message, "belongs to a module") ? 'm' : strstr(e->message, "is called") ? 'n' : 'o';
    const char *given = kind == 'm' ? o->module : kind == 'n' ? o->around : o->op;
    char *close = e->code == QKV_USAGE && given ? suggestion(m, o, kind, given) : NULL;
    int code = close && strcmp(close, given) ? problem((int)e->code, "%s; did you mean '%s'?", e->message, close)
                                             : problem_of(e);
    free(close);
    return code;
}

/* ------------------------------------------------------------------ what is shown */

/* NODE or NODE:N; a name may hold a colon itself. */
static int around(const char *given, char **name, int *hops)
{
    char *end;
    const char *colon = given ? strrchr(given, ':') : NULL;
    *name = given ? must(strdup(given)) : NULL;
    *hops = 1;
    if (!colon || !isdigit((unsigned char)colon[1])) return 0;
    long n = strtol(colon + 1, &end, 10);
    if (*end) return 0;
    if (n > 1000) return problem(QKV_USAGE, "option '--around': found '%s', expected at most 1000 edges", given);
    (*name)[colon - given] = '\0';
    *hops = (int)n;
    return 0;
}

static int format_of(const char *path, qkv_graph_format *f)
{
    *f = !path || ends_in(path, ".txt") ? QKV_GRAPH_TEXT : ends_in(path, ".svg") ? QKV_GRAPH_SVG : QKV_GRAPH_DOT;
    if (!path || ends_in(path, ".txt") || ends_in(path, ".svg") || ends_in(path, ".dot")) return 0;
    return problem(QKV_USAGE, "option '-o': found '%s', expected a file that ends in .svg, .dot or .txt", path);
}

static int show_graph(const GraphOptions *o, const qkv_model *m, const qkv_graph_options *view)
{
    qkv_error e;
    if (o->output) return qkv_model_save_graph(m, o->output, view, &e) == QKV_OK ? 0 : not_found(m, view, &e);
    char *text = qkv_model_graph_view(m, view, &e);
    if (!text) return not_found(m, view, &e);
    show("%s", text);
    qkv_free(text);
    return 0;
}

static int cmd_graph(const void *options)
{
    const GraphOptions *o = options;
    qkv_graph_options view = {.struct_size = sizeof view, .as_run = o->as_run, .module = o->module, .op = o->op};
    qkv_model *m;
    bool bf16;
    char list[256], *node;
    int code = model_bf16(&o->model, &bf16);
    if (!code && o->as_run && (o->after || o->model.passes))
        return problem(QKV_USAGE, "--as-run stands for all passes of a session: give no --after or --passes with it");
    if (!code && o->after) code = passes_before(o, list, sizeof list);
    if (!code) code = format_of(o->output, &view.format);
    if (code || (code = around(o->around, &node, &view.hops))) return code;
    view.around = node;
    view.passes = o->after ? list : o->model.passes;
    code = model_load(&o->model, o->common.arg[0], bf16, false, &m);
    if (!code) {
        code = show_graph(o, m, &view);
        qkv_model_free(m);
    }
    free(node);
    return code;
}

#define AT(field) offsetof(GraphOptions, field)
static const Option own[] = {
    {"module", TEXT, AT(module), .arg = "PATH",
     .help = "Only nodes of this module and of the modules in it, such as encoder.layers.0."},
    {"op", TEXT, AT(op), .arg = "NAME", .help = "Only nodes of this op: linear, or aten.linear.default."},
    {"around", TEXT, AT(around), .arg = "NODE[:N]",
     .help = "Only this node and those at most N edges away (default 1). With several of these options, nodes that "
             "meet all of them."},
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Write the graph into FILE instead: FILE.svg is a picture (of at most 4000 nodes), FILE.dot is for "
             "graphviz, FILE.txt is the text. The file is written completely or not at all."},
    {"after", TEXT, AT(after), .arg = "PASS",
     .help = "Print the graph as it is after PASS and all passes before it, of those of --passes."},
    {"as-run", FLAG, AT(as_run), .help = "Print the graph that a session runs: as it is after all of its passes."},
    {0},
};

const Command command_graph = {
    .name = "graph",
    .args = "MODEL",
    .summary = "Print the graph as text, or draw it",
    .text = "Prints the graph as it is after import: pure ops in order, every value with its dtype and sizes, the "
            "module that each node belongs to where the file says so, and the conditions on sizes. With --after, "
            "--passes or --as-run, it goes through passes first. --module, --op and --around choose a part of it. "
            "Pictures show a part with what it reads and what reads it, and no weights.",
    .examples = "qkv graph vit.pt2 | less\tall nodes\n"
                "qkv graph vit.pt2 --after rewrite\twhat the rules make of it\n"
                "qkv graph vit.pt2 --module blocks.0.attn -o attention.svg\ta picture of one attention\n"
                "qkv graph vit.pt2 --around softmax_3:2\twhat is near a node\n"
                "qkv graph vit.pt2 --as-run --dtype bf16\twhat a session runs",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(GraphOptions),
    .options = {{own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {passes_option, AT(model)},
                {common_options}},
    .run = cmd_graph,
};
