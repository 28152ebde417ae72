/* What a model file and its graph are kept in. Contract in source.h. */
#include "model/source.h"
#include <stddef.h>
#include <string.h>
#include "base/mem.h"

Source *source_new(Err *err)
{
    Source *s = mem_zeroed(1, sizeof *s);
    if (!s) {
        oom(err);
        return NULL;
    }
    s->torch_version = s->producer = s->cpu = "";
    atomic_init(&s->users, 1);
    return s;
}

static void set_origin(Source *s, Source *from)
{
    s->origin = from;
    atomic_fetch_add(&from->users, 1);
}

void source_close(Source *s)
{
    if (!s || atomic_fetch_sub(&s->users, 1) > 1) return;
    graph_free(s->graph);
    if (s->origin) {
        source_close(s->origin);
    } else {
        map_free(&s->lines);
        onnx_close(s->onnx);
        zip_close(s->zip);
        arena_destroy(s->arena);
        file_unmap(&s->file);
    }
    mem_free(s);
}

const char *source_line(const Source *s, const char *node)
{
    while (s->origin) s = s->origin;
    return map_get(&s->lines, node);
}

/* ------------------------------------------------------------------ other graphs of the same file */

/* A value that is not in the graph any more keeps its dtype and sizes. */
static bool copy_value(Graph *g, const GraphCopy *map, Value **v)
{
    Value *old = *v;
    if (!old || (*v = map->value[old->id])) return true;
    Value *mine = arena_new(g->arena, Value);
    Expr **dim = arena_array(g->arena, Expr *, old->rank + 1);
    if (!mine || !dim) return false;
    *mine = *old;
    mine->dim = dim;
    mine->def = NULL;
    mine->id = g->next_id++;
    for (int i = 0; i < old->rank; i++) dim[i] = &map->expr[old->dim[i]->id];
    *v = mine;
    return true;
}

static bool copy_tensor(Graph *g, const GraphCopy *map, FileTensor *t)
{
    if (!copy_value(g, map, &t->value)) return false;
    if (t->offset) t->offset = &map->expr[t->offset->id];
    if (!t->stride) return true;
    Expr **stride = arena_array(g->arena, Expr *, t->value->rank + 1);
    for (int i = 0; stride && i < t->value->rank; i++) stride[i] = &map->expr[t->stride[i]->id];
    t->stride = stride;
    return stride != NULL;
}

static bool copy_attention(Graph *g, const GraphCopy *map, FileAttention *a)
{
    Arg *arg = arena_array(g->arena, Arg, a->op->schema->nparams + 1);
    for (int i = 0; arg && i < a->op->schema->nparams; i++)
        if (!graph_copy_arg(g, map, &a->arg[i], &arg[i])) return false;
    a->arg = arg;
    return arg && copy_value(g, map, &a->out) && copy_tensor(g, map, &a->q) && copy_tensor(g, map, &a->k) &&
           copy_tensor(g, map, &a->v) && copy_tensor(g, map, &a->mask);
}

Source *source_copy(Source *from, Err *err)
{
    GraphCopy map;
    Source *s = source_new(err);
    TRY_NULL(s);
    memcpy(s, from, offsetof(Source, users)); /* which other threads may be counting */
    set_origin(s, from);
    s->attention = NULL;
    s->graph = graph_copy_with(from->graph, &map, err);
    bool ok = s->graph != NULL;
    if (ok) {
        s->attention = arena_array(s->graph->arena, FileAttention, s->nattention + 1);
        ok = s->attention || oom(err);
    }
    for (int i = 0; ok && i < s->nattention; i++) {
        s->attention[i] = from->attention[i];
        ok = copy_attention(s->graph, &map, &s->attention[i]) || oom(err);
    }
    if (ok) return s;
    source_close(s);
    return NULL;
}

Source *source_of_graph(Graph *g, Source *from, Err *err)
{
    Source *s = source_new(err);
    if (!s) {
        graph_free(g);
        return NULL;
    }
    set_origin(s, from);
    s->graph = g;
    s->torch_version = from->torch_version;
    s->producer = from->producer;
    s->schema_major = from->schema_major;
    s->schema_minor = from->schema_minor;
    s->opset = from->opset;
    return s;
}

/* ------------------------------------------------------------------ extra files */

/* The archive's own directory is not touched: a deflated file would be inflated into it,
 * and the source is read by several threads. */
bool extras_open(Extras *x, const Source *s, Err *err)
{
    while (s->carries) s = s->origin;
    *x = (Extras){.file = s->extra, .n = s->nextra};
    const OnnxModel *m = s->onnx ? &s->onnx->model : NULL;
    if (m && !(x->file = x->own = mem_zeroed((size_t)m->nmetadata + 1, sizeof *x->own))) return oom(err);
    for (int i = 0; m && i < m->nmetadata; i++) {
        const char *key = m->metadata[i].key, *end = strrchr(key, '.');
        if (end && !strcmp(end, ".json")) /* what is named as a file is one */
            x->own[x->n++] = (NamedBytes){key, m->metadata[i].value, strlen(m->metadata[i].value)};
    }
    if (!s->zip) return true;
    TRY(x->zip = zip_open(s->file.data, s->file.size, err));
    x->file = x->own = mem_zeroed(zip_count(x->zip) + 1, sizeof *x->own);
    if (!x->own) return oom(err);
    for (size_t i = 0; i < zip_count(x->zip); i++) {
        const ZipEntry *e = zip_entry(x->zip, i);
        const char *inner = strchr(e->name, '/');
        if (!inner || strncmp(inner, "/extra/", 7) || !inner[7]) continue;
        NamedBytes *f = &x->own[x->n++];
        f->name = inner + 7;
        TRY(zip_data(x->zip, e, true, &f->bytes, &f->size, err));
    }
    return true;
}

void extras_close(Extras *x)
{
    mem_free(x->own);
    zip_close(x->zip);
    *x = (Extras){0};
}
