/* The order in which a file is checked. Contract in check.h.
 *
 *     container (verify/check_zip)  ->  records (verify/check_pt2, check_onnx)  ->  import, node by node
 *         ->  graph and weights (verify/check_graph, check_weights)
 *
 * The first three go on after a finding; what cannot be read at all ends the check. */
#include "program/check_file.h"
#include <string.h>
#include "base/file.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "onnx/write/write.h"
#include "onnx/read/read.h"
#include "pt2/read/read.h"
#include "verify/check_graph.h"
#include "onnx/check/check_onnx.h"
#include "pt2/check/check_pt2.h"

typedef struct Run {
    Check c;
    const char *format;
    int nodes, weights;
    Map told; /* nodes whose problem was told */
} Run;

/* ------------------------------------------------------------------ after import */

static void on_problem(void *user, const char *node, const Err *why)
{
    Run *r = user;
    const char *place = check_place(&r->c, "node '%.200s'", node);
    if (check_is_wrong(&r->c, place) || map_has(&r->told, place)) return;
    r->c.failed |= !map_put(&r->told, place, r);
    if (why->code == E_UNSUPPORTED) check_add(&r->c, Q(199), place, "%s", why->msg);
    else check_add(&r->c, Q(204), place, "%s", why->msg);
}

static void on_declared(void *user, const Graph *g, const char *node, const Value *v, DType t, int rank,
                        Expr *const *dim)
{
    check_declared_type(&((Run *)user)->c, g, node, v, t, rank, dim);
}

/* The runtimes read ONNX: what has no words there, they cannot be given. */
static void check_words(Run *r, const Graph *g)
{
    if (!(r->c.targets & (TARGET_ORT | TARGET_OPENVINO | TARGET_TENSORRT))) return;
    for (const Node *n = g->first; n; n = n->next) {
        const char *why = NULL;
        if (!onnx_emits(n->op->id, &why))
            check_add(&r->c, Q(601), check_place(&r->c, "node '%.200s'", n->name),
                      "qkv convert cannot write %s as ONNX%s%s", n->op->name, why ? ": " : "", why ? why : "");
    }
}

static void check_imported(Run *r, Graph *g, int ninput)
{
    NamedTensor *w = mem_zeroed((size_t)g->nweight + 1, sizeof *w);
    const size_t values = (size_t)g->next_id + 1;
    int *uses = mem_zeroed(values, sizeof *uses), *chosen = mem_zeroed(values, sizeof *chosen);
    r->nodes = g->nnodes;
    r->weights = g->nweight;
    r->c.failed |= !w || !uses || !chosen;
    if (w && uses && chosen) {
        graph_count_uses(g, uses);
        for (const Node *n = g->first; n; n = n->next)
            for (int k = 1; n->op->id == OP_where_self && k < 3; k++) chosen[n->arg[k].v->id]++;
        for (int i = 0; i < g->nweight; i++) {
            const Value *v = g->weight[i];
            w[i] = (NamedTensor){v->fqn ? v->fqn : v->name, v->data,
                                 chosen[v->id] && chosen[v->id] == uses[v->id]};
        }
        check_weights(&r->c, w, g->nweight);
        check_graph(&r->c, g, ninput);
        check_words(r, g);
    }
    mem_free(chosen);
    mem_free(uses);
    mem_free(w);
}

/* whole: the importer knows all that the file may say, so that what it finds wrong is wrong. False: the file, which
 * could be read a moment ago, cannot be now. */
static bool not_imported(Run *r, const char *path, const Err *e, bool whole, Err *err)
{
    size_t n = strlen(path);
    const char *text = !strncmp(e->msg, path, n) && !strncmp(e->msg + n, ": ", 2) ? e->msg + n + 2 : e->msg;
    if (e->code == E_IO) return fail(err, E_IO, "%s", text);
    if (e->code == E_UNSUPPORTED && r->c.targets & TARGET_QKV) check_add(&r->c, Q(601), "model", "%s", text);
    else if (whole && e->code == E_FORMAT && !r->c.count[SEVERITY_ERROR]) check_add(&r->c, Q(204), "model", "%s", text);
    else check_add(&r->c, Q(199), "model", "its sizes were not checked: %s", text);
    return true;
}

/* ------------------------------------------------------------------ formats */

static bool check_archive(Run *r, const char *path, const MappedFile *f, Err *err)
{
    r->format = "pt2";
    if (r->c.security) check_zip(&r->c, f->data, f->size);
    Zip *z = zip_open(f->data, f->size, err);
    TRY(z);
    bool ok = check_pt2(&r->c, z, err);
    zip_close(z);
    TRY(ok);
    Err e = {0};
    SourceWatch watch = {r, on_problem, on_declared};
    Source *p = pt2_open_watched(path, &watch, &e);
    if (p) check_imported(r, p->graph, p->ninputs);
    else ok = not_imported(r, path, &e, true, err);
    source_close(p);
    return ok;
}

/* The folder of a path; "." when it names none. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : mem_strdup(".");
}

/* The values that Where reads as what it chooses, less those that another node reads. */
static bool chosen_values(const OnnxGraph *g, Map *chosen)
{
    bool ok = true;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->nnode; i++) {
            const OnnxNode *n = &g->node[i];
            for (int k = 0; k < n->ninput; k++) {
                const bool chooses = k && !strcmp(n->op, "Where");
                if (chooses != !pass || (pass && !map_has(chosen, n->input[k]))) continue;
                ok &= map_put(chosen, n->input[k], pass ? NULL : (void *)(uintptr_t)n);
            }
        }
    return ok;
}

static bool check_onnx_file(Run *r, const char *path, const MappedFile *f, Err *err)
{
    r->format = "onnx";
    char *folder = folder_of(path);
    if (!folder) return oom(err);
    check_onnx_wire(&r->c, f->data, f->size, folder);
    OnnxFile *file = onnx_open_bytes(f->data, f->size, folder, err);
    mem_free(folder);
    TRY(file);
    check_onnx(&r->c, &file->model);
    const OnnxGraph *g = file->model.graph;
    NamedTensor *w = mem_zeroed((size_t)g->ninit + 1, sizeof *w);
    Map chosen = {0};
    r->c.failed |= !w || !chosen_values(g, &chosen);
    int n = 0;
    for (int i = 0; w && i < g->ninit; i++)
        if (g->init[i].t.dtype != DT_NONE)
            w[n++] = (NamedTensor){g->init[i].name, &g->init[i].t, map_get(&chosen, g->init[i].name) != NULL};
    check_weights(&r->c, w, w ? n : 0);
    map_free(&chosen);
    mem_free(w);
    r->nodes = g->nnode;
    r->weights = g->ninit;
    int64_t opset = 0;
    for (int i = 0; i < file->model.nopset; i++)
        if (!*file->model.opset[i].domain) opset = file->model.opset[i].version;
    onnx_close(file);
    int refused = 0; /* by targets: nothing that the importer minds */
    for (int i = 0; i < r->c.n; i++)
        refused += r->c.finding[i].what->severity == SEVERITY_ERROR && r->c.finding[i].what->id / 100 == 6;
    if (r->c.count[SEVERITY_ERROR] > refused) return true; /* the importer would say the first of them again */
    Err e = {0};
    Source *s = onnx_import(path, NULL, &e);
    unsigned targets = r->c.targets;
    r->c.targets &= TARGET_QKV; /* what the others refuse was told node by node, by the ops that the file has */
    bool ok = true;
    if (s) check_graph(&r->c, s->graph, s->graph->ninput);
    else ok = not_imported(r, path, &e, opset >= 13, err);
    r->c.targets = targets;
    source_close(s);
    return ok;
}

static bool check_file(Run *r, const char *path, Err *err)
{
    MappedFile f;
    TRY(file_map(&f, path, err));
    size_t n = strlen(path);
    bool zip = f.size > 1 && f.data[0] == 'P' && f.data[1] == 'K', named = n > 5 && !strcmp(path + n - 5, ".onnx");
    bool onnx = !zip && (named || onnx_looks_like(f.data, f.size < 4096 ? f.size : 4096));
    bool ok = onnx ? check_onnx_file(r, path, &f, err) : check_archive(r, path, &f, err);
    file_unmap(&f);
    return ok || within(err, "%s", path);
}

/* ------------------------------------------------------------------ the report */

static void put_report(const Run *r, const char *path, bool readable, Buf *out)
{
    jw_report(out);
    jw_put(out, "'file': %s, 'format': %s", path, r->format);
    jw_bool(out, "readable", readable);
    jw_open(out, "targets", '[');
    for (unsigned bit = 1; bit <= r->c.targets; bit <<= 1)
        if (r->c.targets & bit) jw_text(out, NULL, target_name(bit));
    jw_close(out, "]");
    jw_bool(out, "security", r->c.security);
    jw_bool(out, "full", r->c.full);
    jw_put(out, "'nodes': %d, 'weights': %d, 'errors': %d, 'warnings': %d, 'notes': %d", r->nodes, r->weights,
           r->c.count[SEVERITY_ERROR], r->c.count[SEVERITY_WARNING], r->c.count[SEVERITY_NOTE]);
    check_json(&r->c, "findings", out);
    jw_close(out, "}");
}

bool model_check(const char *path, const CheckOptions *o, Buf *report, CheckCounts *counts, Err *err)
{
    Run r = {.c = {.targets = o->targets, .security = o->security, .full = o->full}, .format = "unknown"};
    TRY(check_begin(&r.c, err));
    bool ok = check_file(&r, path, err);
    if (!ok) check_add(&r.c, Q(100), "file", "%s", err->msg);
    put_report(&r, path, ok, report);
    *counts = (CheckCounts){r.c.count[SEVERITY_ERROR], r.c.count[SEVERITY_WARNING], r.c.count[SEVERITY_NOTE]};
    if (ok && (r.c.failed || report->failed)) ok = oom(err);
    map_free(&r.told);
    check_end(&r.c);
    return ok;
}
