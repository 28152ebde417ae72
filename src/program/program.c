/* Opening and closing programs. What happens to a graph in between is the table in passes.c. */
#include "program/program.h"
#include <string.h>
#include "base/file.h"
#include "base/mem.h"
#include "ir/bodies.h"
#include "packed/read.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "program/pack.h"

typedef enum Kind { PT2, ONNX, PACKED } Kind;

/* What kind of file is it? Its first bytes tell; an empty or unreadable file is left to the reader of its name's
 * ending. */
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

bool (*program_tangents)(Graph *g, Err *err);

static bool derive(Graph *g, Err *err)
{
    if (!graph_asks_derivatives(g)) return true;
    if (program_tangents) return program_tangents(g, err);
    return fail(err, E_UNSUPPORTED, "a forward derivative, which libqkv.a leaves out: link libqkv.so");
}

bool program_import(Program *p, const char *path, const OpenOptions *options, Err *err)
{
    Kind kind = kind_of(path);
    bool onnx = kind == ONNX;
    if (!onnx && options->fixed.n)
        return fail(err, E_USAGE, "%s: only inputs of ONNX models can be fixed when loading", path);
    bool autocast = options->no_fuse && options->compute != DT_NONE;
    if (onnx && autocast) return fail(err, E_UNSUPPORTED, "%s: autocast node by node is for .pt2 files only", path);
    if (!autocast) p->compute = options->compute;
    if (kind == PACKED && options->compute != DT_NONE)
        return fail(err, E_UNSUPPORTED, "%s: another compute dtype is chosen when a model is packed", path);
    p->source = kind == PACKED ? open_packed(path, err)
                : onnx         ? onnx_import(path, &options->fixed, err)
                               : pt2_open(path, autocast ? options->compute : DT_NONE, err);
    TRY(p->source);
    p->graph = p->source->graph;
    return derive(p->graph, err) || within(err, "%s", path);
}

static bool program_init(Program *p, Err *err)
{
    *p = (Program){.runs = mem_zeroed(1, sizeof *p->runs)};
    if (!p->runs) return oom(err);
    fork_lock_init(&p->runs->lock);
    return true;
}

bool program_open(Program *p, const char *path, const OpenOptions *options, Err *err)
{
    TRY(program_init(p, err));
    Pipeline s = {.program = p, .path = path, .open = options};
    p->no_fuse = options->no_fuse;
    Buf report = {0};
    bool before = file_copies(options->copy), ok = passes_run(&s, PASSES_LOAD, err);
    file_copies(before);
    ok = ok && (!options->skip_padding || program_rewrite(p, &(OptimiseOptions){.skip_padding = true}, &report, err));
    buf_free(&report);
    if (ok) return true;
    program_close(p);
    return false;
}

bool program_of_graph(Program *p, Graph *g, const Program *like, Err *err)
{
    if (!program_init(p, err)) {
        graph_free(g);
        return false;
    }
    p->source = source_of_graph(g, like->source, err);
    TRY(p->source);
    p->graph = g;
    return graph_check(g, err);
}

bool program_copy(Program *p, const Program *from, Err *err)
{
    if (!program_init(p, err) || !(p->source = source_copy(from->source, err))) {
        program_close(p);
        return false;
    }
    p->graph = p->source->graph;
    p->no_fuse = from->no_fuse;
    p->compute = from->compute;
    return true;
}

void program_close(Program *p)
{
    program_forget_runs(p);
    mem_free(p->runs);
    source_close(p->source);
    *p = (Program){0};
}
