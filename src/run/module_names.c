/* Modules of nodes. Contract in modules.h. */
#include "run/module_names.h"
#include <string.h>
#include "base/mem.h"

/* Bytes of the module path in the name of a weight of the state dict; 0: there is none. */
static size_t path_length(const Value *w)
{
    const char *dot = w->fqn && w->weight != W_CONSTANT ? strrchr(w->fqn, '.') : NULL;
    return dot ? (size_t)(dot - w->fqn) : 0;
}

/* Bytes that all paths begin with, whole components: "model" of "model.a" and "model.ab.c". */
static size_t common_length(const Graph *g)
{
    const char *first = NULL;
    size_t same = 0;
    for (int i = 0; i < g->nweight; i++) {
        const char *path = g->weight[i]->fqn;
        size_t n = path_length(g->weight[i]), k = 0, whole = 0;
        if (!n) continue;
        if (!first) {
            first = path;
            same = n;
            continue;
        }
        for (; k < n && k < same && path[k] == first[k]; k++)
            if (path[k] == '.') whole = k;
        bool ends = (k == n || path[k] == '.') && (k == same || first[k] == '.');
        same = ends ? k : whole;
    }
    return same;
}

/* The component of path[0 .. n) that begins at or after `common`; the last one where nothing follows. */
static size_t label(const char *path, size_t n, size_t common, char *out)
{
    size_t from = common && common < n ? common + 1 : common < n ? 0 : n, to = from;
    if (from == n)
        while (from > 0 && path[from - 1] != '.') from--;
    while (to < n && path[to] != '.') to++;
    if (from > 1 && strspn(path + from, "0123456789") >= to - from)
        for (from--; from > 0 && path[from - 1] != '.';) from--;
    memcpy(out, path + from, to - from);
    out[to - from] = '\0';
    return to - from + 1;
}

typedef struct Finder {
    const char **module;
    unsigned char *fixed; /* by value id: a weight, or what depends on weights alone */
    const char *found;    /* of the first such operand that has one */
    bool all;
} Finder;

static void look(void *user, Value **slot)
{
    Finder *f = user;
    int id = (*slot)->id;
    f->all &= f->fixed[id];
    if (!f->found && f->fixed[id]) f->found = f->module[id];
}

const char **modules_of(const Graph *g)
{
    size_t values = (size_t)g->next_id + 1, bytes = 0, common = common_length(g);
    for (int i = 0; i < g->nweight; i++) bytes += path_length(g->weight[i]) + 1;
    const char **module = mem_zeroed(1, values * sizeof *module + bytes);
    Finder f = {.module = module, .fixed = mem_zeroed(values, 1)};
    if (!module || !f.fixed) {
        mem_free(f.fixed);
        mem_free(module);
        return NULL;
    }
    char *text = (char *)(module + values);
    for (int i = 0; i < g->nweight; i++) {
        const Value *w = g->weight[i];
        f.fixed[w->id] = 1;
        if (!path_length(w)) continue;
        module[w->id] = text;
        text += label(w->fqn, path_length(w), common, text);
    }
    const char *last = "";
    for (Node *n = g->first; n; n = n->next) {
        f.found = NULL;
        f.all = true;
        node_each_operand(n, look, &f);
        if (f.found && !f.all) last = f.found;
        for (int k = 0; k < n->nout; k++) {
            f.fixed[n->out[k]->id] = f.all;
            module[n->out[k]->id] = f.all ? f.found : last;
        }
    }
    for (int i = 0; i < g->next_id; i++)
        if (!module[i]) module[i] = "";
    mem_free(f.fixed);
    return module;
}
