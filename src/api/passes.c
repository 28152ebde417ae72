/* The passes that graphs go through, and graphs after any of them. */
#include "api/api_impl.h"
#include "base/buf.h"
#include "program/passes.h"
#include "program/prepare.h"

const char *qkv_pass_name(int i, int *in_sessions)
{
    bool ordinary = false;
    const char *name = i >= 0 ? pass_listed(i, &ordinary) : NULL;
    if (in_sessions) *in_sessions = ordinary;
    return name;
}

char *qkv_model_graph_text_after(const qkv_model *m, const char *passes, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    unsigned list;
    Prepared r;
    if (!GIVEN(m) || !passes_named(passes, &list, &e) || !program_prepare(&m->program, list, &r, &e))
        return api_null(&e, err);
    graph_print(r.graph ? r.graph : m->program.graph, &b);
    prepared_free(&r);
    if (!b.failed && !mem_ran_out()) return b.data ? b.data : mem_strdup(""); /* a graph of nothing */
    buf_free(&b);
    oom(&e);
    return api_null(&e, err);
}
