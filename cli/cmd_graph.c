/* qkv graph MODEL: the graph as text, as it is after import (docs/IR.md). */
#include <stdio.h>
#include "cli.h"

int cmd_graph(const Options *o)
{
    qkv_error e;
    qkv_model *m;
    int code = model_load(o, o->arg[0], false, false, &m);
    if (code) return code;
    char *text = qkv_model_graph_text(m, &e);
    if (!text) code = problem_of(&e);
    if (text) fputs(text, stdout);
    qkv_free(text);
    qkv_model_free(m);
    return code;
}
