/* qkv graph MODEL: the graph as text (docs/IR.md), as it is after import or after further passes. */
#include <stdio.h>
#include <string.h>
#include "cli.h"

/* What --after PASS means as a list: also for a pass that sessions run only when asked to. An unknown one is left to the library. */
static int passes_before(const Options *o, char *list, size_t size)
{
    if (passes_upto(o, o->after, list, size)) return 0;
    if (o->passes) return problem(QKV_USAGE, "option '--after': '%s' is not one of --passes %s", o->after, o->passes);
    size_t at = strlen(list);
    snprintf(list + at, size - at, ",%s", o->after);
    return 0;
}

int cmd_graph(const Options *o)
{
    qkv_error e;
    qkv_model *m;
    bool bf16;
    char list[256];
    int code = model_bf16(o, &bf16);
    if (!code && o->as_run && (o->after || o->passes))
        return problem(QKV_USAGE, "--as-run stands for all passes of a session: give no --after or --passes with it");
    if (!code && o->after) code = passes_before(o, list, sizeof list);
    if (!code) code = model_load(o, o->arg[0], bf16, false, &m);
    if (code) return code;
    const char *passes = o->after ? list : o->passes;
    char *text = o->as_run || passes ? qkv_model_graph_text_after(m, passes, &e) : qkv_model_graph_text(m, &e);
    if (!text) code = problem_of(&e);
    if (text) fputs(text, stdout);
    qkv_free(text);
    qkv_model_free(m);
    return code;
}
