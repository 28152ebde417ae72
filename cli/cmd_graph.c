/* qkv graph MODEL: the graph as text, as it is after import (docs/IR.md). */
#include <stdio.h>
#include "cli.h"

typedef struct GraphOptions {
    Common common;
    ModelOptions model;
} GraphOptions;

static int cmd_graph(const void *options)
{
    const GraphOptions *o = options;
    qkv_error e;
    qkv_model *m;
    int code = model_load(&o->model, o->common.arg[0], false, false, &m);
    if (code) return code;
    char *text = qkv_model_graph_text(m, &e);
    if (!text) code = problem_of(&e);
    if (text) fputs(text, stdout);
    qkv_free(text);
    qkv_model_free(m);
    return code;
}

const Command command_graph = {
    .name = "graph",
    .args = "MODEL",
    .summary = "Print the graph as text",
    .text = "Prints the graph as it is after import: pure ops in order, every value with its dtype and sizes, and the "
            "conditions on sizes.",
    .examples = "qkv graph vit.pt2 | less\tall nodes",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(GraphOptions),
    .options = {{fix_option, offsetof(GraphOptions, model)},
                {skip_padding_option, offsetof(GraphOptions, model)},
                {common_options}},
    .run = cmd_graph,
};
