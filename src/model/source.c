/* What a model file and its graph are kept in. Contract in source.h. */
#include "model/source.h"
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
    return s;
}

void source_close(Source *s)
{
    if (!s) return;
    graph_free(s->graph);
    onnx_close(s->onnx);
    zip_close(s->zip);
    arena_destroy(s->arena);
    file_unmap(&s->file);
    mem_free(s);
}

/* The archive's own directory is not touched: a deflated file would be inflated into it,
 * and the source is read by several threads. */
bool extras_open(Extras *x, const Source *s, Err *err)
{
    *x = (Extras){.file = s->extra, .n = s->nextra};
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
