/* What a model file and its graph are kept in. Contract in source.h. */
#include "import/source.h"
#include <stdlib.h>

Source *source_new(Err *err)
{
    Source *s = calloc(1, sizeof *s);
    if (!s) {
        fail(err, E_LIMIT, "out of memory");
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
    free(s);
}
