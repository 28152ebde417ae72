/* The whole pipeline as one table of passes: the book's table of contents. Between any two the graph is checked. */
#include "compile.h"
#include <stdlib.h>
#include "shape/shape.h"

typedef struct Passes {
    Program *program;
    const char *path;
    DType compute;
    bool fuse;
} Passes;

/* The archive becomes a plain graph: pure ops, sizes as expressions, asserts and guards beside the nodes. */
static bool pass_import(Passes *s, Err *err)
{
    s->program->pt2 = pt2_open(s->path, s->compute, err);
    TRY(s->program->pt2);
    s->program->graph = s->program->pt2->graph;
    return true;
}

/* Which activations and residuals vanish into the matrix products before them. */
static bool pass_fuse(Passes *s, Err *err)
{
    if (!s->fuse) return true;
    s->program->fused = fuse_graph(s->program->graph, &s->program->fusion, err);
    return s->program->fused;
}

static const struct {
    const char *name;
    bool (*run)(Passes *s, Err *err);
} passes[] = {
    {"import", pass_import},
    {"fuse", pass_fuse},
};

bool program_open(Program *p, const char *path, DType compute, bool fuse, Err *err)
{
    *p = (Program){0};
    shape_install();
    Passes s = {p, path, compute, fuse};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        bool ok = passes[i].run(&s, err);
        if (ok && !graph_check(p->graph, err)) ok = within(err, "after pass '%s'", passes[i].name);
        if (!ok) {
            program_close(p);
            return false;
        }
    }
    return true;
}

bool program_of_graph(Program *p, Graph *g, const Pt2 *like, Err *err)
{
    *p = (Program){0};
    p->pt2 = calloc(1, sizeof *p->pt2);
    if (!p->pt2) {
        graph_free(g);
        return fail(err, E_LIMIT, "out of memory");
    }
    *p->pt2 = (Pt2){.graph = g, .torch_version = arena_strdup(g->arena, like->torch_version), .schema_major = like->schema_major,
                    .schema_minor = like->schema_minor};
    p->graph = g;
    p->fused = p->pt2->torch_version && graph_check(g, err) && fuse_graph(g, &p->fusion, err);
    return p->fused;
}

void program_close(Program *p)
{
    if (p->fused) fusion_free(&p->fusion);
    pt2_close(p->pt2);
    *p = (Program){0};
}
