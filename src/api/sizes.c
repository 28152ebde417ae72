/* What the author's names are: of sizes, and of the modules that nodes belong to. Contracts in include/qkv_tools.h. */
#include "api/api_impl.h"
#include <string.h>
#include "base/buf.h"

/* "s43, s53"; cut where it gets long. */
static void size_names(const Graph *g, Buf *out)
{
    int n = 0;
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->source != SYM_FREE && s->source != SYM_GONE && n++ < 12)
            buf_printf(out, "%s%s", out->len ? ", " : "", s->name);
    }
    if (n > 12) buf_puts(out, ", ...");
}

static bool rename_size(Graph *g, const char *from, const char *to, Err *err)
{
    const Symbol *s = expr_find_symbol(g->ex, from);
    if (s && s->source != SYM_GONE && s->source != SYM_FREE) return graph_rename_size(g, from, to, err);
    Buf names = {0};
    size_names(g, &names);
    fail(err, E_USAGE, "no size is called '%.80s'; %s%s", from, names.len ? "there are " : "the model has none",
         names.len && !names.failed ? names.data : "");
    buf_free(&names);
    return false;
}

qkv_model *qkv_model_with_size_names(const qkv_model *m, const char *const *sizes, const char *const *names, int n,
                                     qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN_TEXTS(sizes, n) || !GIVEN_TEXTS(names, n)) return api_null(&e, err);
    qkv_model *made = api_model_copy(m, &e);
    bool ok = made != NULL;
    for (int i = 0; ok && i < n; i++) {
        for (int k = 0; ok && k < i; k++)
            if (!strcmp(sizes[k], sizes[i])) ok = fail(&e, E_USAGE, "size '%.80s' is given two names", sizes[i]);
        ok = ok && rename_size(made->program.graph, sizes[i], names[i], &e);
    }
    if (api_whole(ok && api_input_texts(made, &e), &e)) return made;
    qkv_model_free(made);
    return api_null(&e, err);
}

const char *qkv_model_node_module(const qkv_model *m, const char *node)
{
    Err e = api_begin();
    const Value *v = GIVEN(m) && GIVEN(node) ? graph_find_value(m->program.graph, node) : NULL;
    return v && v->def && v->def->module ? v->def->module->path : NULL;
}
