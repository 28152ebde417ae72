/* qkv graph MODEL: the graph as text (docs/IR.md), as it is after import or after further passes. */
#include <stdio.h>
#include <string.h>
#include "cli.h"

typedef struct GraphOptions {
    Common common;
    ModelOptions model;
    const char *after;
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

static int cmd_graph(const void *options)
{
    const GraphOptions *o = options;
    qkv_error e;
    qkv_model *m;
    bool bf16;
    char list[256];
    int code = model_bf16(&o->model, &bf16);
    if (!code && o->as_run && (o->after || o->model.passes))
        return problem(QKV_USAGE, "--as-run stands for all passes of a session: give no --after or --passes with it");
    if (!code && o->after) code = passes_before(o, list, sizeof list);
    if (!code) code = model_load(&o->model, o->common.arg[0], bf16, false, &m);
    if (code) return code;
    const char *passes = o->after ? list : o->model.passes;
    char *text = o->as_run || passes ? qkv_model_graph_text_after(m, passes, &e) : qkv_model_graph_text(m, &e);
    if (!text) code = problem_of(&e);
    if (text) show("%s", text);
    qkv_free(text);
    qkv_model_free(m);
    return code;
}

#define AT(field) offsetof(GraphOptions, field)
static const Option own[] = {
    {"after", TEXT, AT(after), .arg = "PASS",
     .help = "Print the graph as it is after PASS and all passes before it, of those of --passes."},
    {"as-run", FLAG, AT(as_run), .help = "Print the graph that a session runs: as it is after all of its passes."},
    {0},
};

const Command command_graph = {
    .name = "graph",
    .args = "MODEL",
    .summary = "Print the graph as text",
    .text = "Prints the graph as it is after import: pure ops in order, every value with its dtype and sizes, and the "
            "conditions on sizes. With --after, --passes or --as-run, it goes through passes first.",
    .examples = "qkv graph vit.pt2 | less\tall nodes\n"
                "qkv graph vit.pt2 --after rewrite\twhat the rules make of it\n"
                "qkv graph vit.pt2 --as-run --dtype bf16\twhat a session runs",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(GraphOptions),
    .options = {{own},
                {fix_option, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {passes_option, AT(model)},
                {common_options}},
    .run = cmd_graph,
};
