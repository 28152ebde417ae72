/* Files with certificates: written, read again, compared with the source, and written with what was found. */
#include <string.h>
#include "api/api_impl.h"
#include "api/certified.h"
#include "base/file.h"
#include "base/mem.h"
#include "certify/certify.h"
#include "format/json.h"
#include "format/zip.h"
#include "onnx/read/read.h"
#include "program/certify.h"
#include "pt2/read/read.h"
#include "pt2/write/write.h"

static const Graph *graph_of(const qkv_model *m) { return m->program.graph; }

/* The firings of a report of qkv_model_rewrite; *list is the caller's, its texts the report's. */
static bool firings_of(const json_t *report, RuleAt **list, int *n, Err *err)
{
    const json_t *all = json_object_get(report, "firings");
    size_t i;
    json_t *f;
    *n = 0;
    if (!(*list = mem_zeroed(json_array_size(all) + 1, sizeof **list))) return oom(err);
    json_array_foreach(all, i, f)
    {
        RuleAt at = {json_string_value(json_object_get(f, "rule")), json_string_value(json_object_get(f, "result"))};
        if (at.rule && at.result) (*list)[(*n)++] = at;
    }
    return true;
}

/* What the file at path is to the source, as JSON. */
static bool certify_file(const qkv_model *source, const char *path, bool onnx, const char *rewriting, Buf *out,
                         Err *err)
{
    RuleAt *list = NULL;
    int n = 0;
    Certified found;
    json_t *report = rewriting ? json_read(rewriting, strlen(rewriting), "report", err) : NULL;
    bool ok = (report || !rewriting) && firings_of(report, &list, &n, err);
    Source *written = !ok ? NULL : onnx ? onnx_import(path, NULL, err) : pt2_open(path, DT_NONE, err);
    ok = written && certify_graphs(graph_of(source), written->graph, onnx || source->program.source->opset, list, n,
                                   &found, out, err);
    source_close(written);
    mem_free(list);
    json_free(report);
    return ok && (!(mem_ran_out() || out->failed) || oom(err)); /* before anything has its final name */
}

bool certified_write(const qkv_model *source, const char *rewriting, const char *path, bool onnx, CertifiedFn *write,
                     void *user, Buf *certificate, Err *err)
{
    Interim beside;
    bool ok = interim_begin(&beside, path, err) && write(user, beside.name, NULL, err) &&
              certify_file(source, beside.name, onnx, rewriting, certificate, err) &&
              write(user, path, certificate, err);
    interim_end(&beside);
    return ok;
}

typedef struct Pt2File {
    Graph *graph;       /* until the file without its certificate is written */
    Extras extras;      /* of the model's own file, but for its certificate */
    const char *beside; /* the file without its certificate */
} Pt2File;

/* The parts of the file that was read again, and its certificate. */
static bool copy_certified(Zip *from, const Buf *certificate, OutFile *out, Err *err)
{
    ZipWriter *to = zip_writer(out, err);
    bool ok = to != NULL;
    for (size_t i = 0; ok && i < zip_count(from); i++) {
        const void *bytes;
        uint64_t size;
        const ZipEntry *e = zip_entry(from, i);
        ok = zip_data(from, e, false, &bytes, &size, err) && zip_add(to, e->name, bytes, size, err);
    }
    ok = ok && zip_add(to, "model/extra/" CERTIFICATE_NAME, certificate->data, certificate->len, err);
    Err ignored = {0};
    return to && zip_finish(to, ok ? err : &ignored) && ok;
}

static bool write_pt2(void *user, const char *path, const Buf *certificate, Err *err)
{
    Pt2File *f = user;
    MappedFile written;
    if (!certificate) {
        bool saved = pt2_save(f->graph, f->extras.file, f->extras.n, path, err);
        graph_free(f->graph);
        f->graph = NULL;
        f->beside = path;
        return saved;
    }
    TRY(file_map(&written, f->beside, err));
    Zip *from = zip_open(written.data, written.size, err);
    OutFile *out = from ? outfile_open(path, err) : NULL;
    bool ok = out && copy_certified(from, certificate, out, err);
    if (!ok) outfile_abort(out);
    ok = ok && outfile_commit(out, err);
    zip_close(from);
    file_unmap(&written);
    return ok;
}

void certified_drop(Extras *x)
{
    int n = 0;
    for (int i = 0; i < x->n; i++)
        if (strcmp(x->file[i].name, CERTIFICATE_NAME)) x->file[n++] = x->file[i];
    x->n = n;
}

static bool save_certified(const qkv_model *m, const qkv_model *source, const char *rewriting, const char *path,
                           Buf *cert, Err *err)
{
    Pt2File f = {.graph = graph_copy(graph_of(m), err)}; /* constants that are folded are rounded, too */
    bool ok = f.graph && (extras_open(&f.extras, m->program.source, err) || within(err, "%s", m->path));
    certified_drop(&f.extras);
    ok = ok && certified_write(source, rewriting, path, false, write_pt2, &f, cert, err);
    extras_close(&f.extras);
    graph_free(f.graph);
    return ok;
}

qkv_status qkv_model_save_certified(const qkv_model *m, const qkv_model *source, const char *rewriting,
                                    const char *path, char **certificate, qkv_error *err)
{
    Err e = api_begin();
    if (certificate) *certificate = NULL;
    if (!GIVEN(m) || !GIVEN(source) || !GIVEN(path)) return api_give(&e, err);
    Buf cert = {0};
    bool ok = api_whole(save_certified(m, source, rewriting, path, &cert, &e), &e);
    if (ok && certificate) *certificate = cert.data;
    else buf_free(&cert);
    return ok ? QKV_OK : api_give(&e, err);
}

qkv_status qkv_certificate_check(const qkv_model *source, const qkv_model *result, const char *certificate,
                                 char **report, qkv_error *err)
{
    Err e = api_begin();
    Extras x = {0};
    Buf b = {0};
    if (report) *report = NULL;
    if (!GIVEN(source) || !GIVEN(result)) return api_give(&e, err);
    bool ok = certificate || extras_open(&x, result->program.source, &e) || within(&e, "%s", result->path);
    NamedBytes cert = {CERTIFICATE_NAME, certificate, certificate ? strlen(certificate) : 0};
    for (int i = 0; i < x.n; i++)
        if (!strcmp(x.file[i].name, CERTIFICATE_NAME)) cert = x.file[i];
    if (ok && !cert.bytes) ok = fail(&e, E_FORMAT, "%s: holds no '" CERTIFICATE_NAME "'", result->path);
    bool single = source->program.source->opset || result->program.source->opset;
    ok = ok && certify_replay(graph_of(source), graph_of(result), single, cert.bytes, (size_t)cert.size, &b, &e);
    ok = api_whole(ok, &e);
    extras_close(&x);
    if (report) *report = b.failed ? NULL : b.data;
    if (!report || b.failed) buf_free(&b);
    return ok ? QKV_OK : api_give(&e, err);
}
