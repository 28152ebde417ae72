/* The whole pipeline as one table of passes: the book's table of contents. Between any two the graph is checked. */
#include "program/program.h"
#include <string.h>
#include "base/file.h"
#include "packed/read.h"
#include "program/prepare.h"
#include "program/pack.h"

typedef struct Passes {
    Program *program;
    const char *path;
    const OpenOptions *options;
} Passes;

typedef enum Kind { PT2, ONNX, PACKED } Kind;

/* What kind of file is it? Its first bytes tell; an empty or unreadable file is left to the reader of its name's ending. */
static Kind kind_of(const char *path)
{
    size_t n = strlen(path);
    MappedFile f;
    Err ignored;
    bool named = n > 5 && !strcmp(path + n - 5, ".onnx");
    if (!file_map(&f, path, &ignored)) return named ? ONNX : PT2;
    bool zip = f.size > 1 && f.data[0] == 'P' && f.data[1] == 'K', packed = packed_looks_like(f.data, f.size);
    bool onnx = !zip && (named || onnx_looks_like(f.data, f.size < 64 ? f.size : 64));
    file_unmap(&f);
    return packed ? PACKED : onnx ? ONNX : PT2;
}

static Source *open_packed(const char *path, Err *err)
{
    Source *s = packed_open(path, err);
    if (!s || program_packed_fits(s, err)) return s;
    source_close(s);
    within(err, "%s", path);
    return NULL;
}

/* The file becomes a plain graph: pure ops, sizes as expressions, asserts and guards beside the nodes. */
static bool pass_import(Passes *s, Err *err)
{
    Kind kind = kind_of(s->path);
    bool onnx = kind == ONNX;
    if (!onnx && s->options->fixed.n)
        return fail(err, E_USAGE, "%s: only inputs of ONNX models can be fixed when loading", s->path);
    bool autocast = s->options->no_fuse && s->options->compute != DT_NONE;
    if (onnx && autocast) return fail(err, E_UNSUPPORTED, "%s: autocast node by node is for .pt2 files only", s->path);
    if (!autocast) s->program->compute = s->options->compute;
    if (kind == PACKED && s->options->compute != DT_NONE)
        return fail(err, E_UNSUPPORTED, "%s: another compute dtype is chosen when a model is packed", s->path);
    s->program->source = kind == PACKED ? open_packed(s->path, err)
                         : onnx         ? onnx_import(s->path, &s->options->fixed, err)
                                        : pt2_open(s->path, autocast ? s->options->compute : DT_NONE, err);
    TRY(s->program->source);
    s->program->graph = s->program->source->graph;
    return true;
}

/* Which activations and residuals vanish into the matrix products before them. */
static bool pass_fuse(Passes *s, Err *err)
{
    if (s->options->no_fuse) return true;
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

bool program_open(Program *p, const char *path, const OpenOptions *options, Err *err)
{
    *p = (Program){.lock = PTHREAD_MUTEX_INITIALIZER};
    Passes s = {p, path, options};
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

bool program_of_graph(Program *p, Graph *g, const Source *like, Err *err)
{
    *p = (Program){.lock = PTHREAD_MUTEX_INITIALIZER};
    p->source = source_new(err);
    if (!p->source) {
        graph_free(g);
        return false;
    }
    p->source->graph = g;
    p->source->torch_version = arena_strdup(g->arena, like->torch_version);
    p->source->producer = arena_strdup(g->arena, like->producer);
    p->source->schema_major = like->schema_major;
    p->source->schema_minor = like->schema_minor;
    p->source->opset = like->opset;
    p->graph = g;
    p->fused = p->source->torch_version && p->source->producer && graph_check(g, err) && fuse_graph(g, &p->fusion, err);
    return p->fused;
}

void program_close(Program *p)
{
    program_forget_runs(p);
    if (p->fused) fusion_free(&p->fusion);
    source_close(p->source);
    *p = (Program){0};
}
