/* qkv graph MODEL: the graph as text, as it is after import (docs/IR.md). */
#include <stdio.h>
#include "cli.h"

int cmd_graph(const Options *o)
{
    qkv_error e;
    qkv_load_options load = {.struct_size = sizeof load};
    qkv_model *m = qkv_model_load(o->arg[0], &load, &e);
    if (!m) return problem_of(&e);
    char *text = qkv_model_graph_text(m, &e);
    int code = text ? 0 : problem_of(&e);
    if (text) fputs(text, stdout);
    qkv_free(text);
    qkv_model_free(m);
    return code;
}
