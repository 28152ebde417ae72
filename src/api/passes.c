/* The passes that graphs go through, and graphs after any of them. */
#include "api/api_impl.h"
#include "base/buf.h"
#include "base/file.h"
#include "picture/picture.h"
#include "pt2/read/read.h"
#include "program/passes.h"
#include "program/prepare.h"

const char *qkv_pass_name(int i, int *in_sessions)
{
    bool ordinary = false;
    const char *name = i >= 0 ? pass_listed(i, &ordinary) : NULL;
    if (in_sessions) *in_sessions = ordinary;
    return name;
}

int qkv_op_known(const char *target) { return target && pt2_knows(target); }

char *qkv_model_graph_text_after(const qkv_model *m, const char *passes, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    Prepared r;
    if (!GIVEN(m) || !program_prepare_named(&m->program, passes, &r, &e)) return api_null(&e, err);
    graph_print(r.graph ? r.graph : m->program.graph, &b);
    prepared_free(&r);
    if (!b.failed && !mem_ran_out()) return b.data ? b.data : mem_strdup(""); /* a graph of nothing */
    buf_free(&b);
    oom(&e);
    return api_null(&e, err);
}

/* ------------------------------------------------------------------ parts and pictures */

static bool view(const qkv_model *m, const qkv_graph_options *o, Buf *out, Err *err)
{
    bool (*const draw[])(const Graph *, const PictureOptions *, Buf *, Err *) = {picture_text, picture_dot,
                                                                                 picture_svg};
    const PictureOptions part = {o->module, o->op, o->around, o->hops};
    bool whole = !o->module && !o->op && !o->around && o->format == QKV_GRAPH_TEXT;
    Prepared r = {0};
    if (o->hops < 0) return fail(err, E_USAGE, "hops %d: expected 0 or more", o->hops);
    if (o->as_run && o->passes) return fail(err, E_USAGE, "as_run stands for all passes of a session: give no passes");
    TRY(api_known(qkv_graph_format_name(o->format), "qkv_graph_format", (int)o->format, err));
    if (o->as_run || o->passes) TRY(program_prepare_named(&m->program, o->passes, &r, err));
    Graph *own = r.graph ? r.graph : graph_copy(m->program.graph, err); /* printing makes expressions */
    bool ok = own != NULL;
    if (ok && whole) graph_print(own, out);
    else if (ok) ok = draw[o->format](own, &part, out, err);
    if (own != r.graph) graph_free(own);
    prepared_free(&r);
    return api_whole(ok && (!out->failed || oom(err)), err);
}

static bool view_given(const qkv_model *m, const qkv_graph_options *options, Buf *out, Err *err)
{
    qkv_graph_options o = {0};
    return VERSIONED_TAKE(qkv_graph_options, hops, &o, options, err) && view(m, &o, out, err);
}

char *qkv_model_graph_view(const qkv_model *m, const qkv_graph_options *options, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    if (GIVEN(m) && view_given(m, options, &b, &e)) return b.data ? b.data : mem_strdup("");
    buf_free(&b);
    return api_null(&e, err);
}

qkv_status qkv_model_save_graph(const qkv_model *m, const char *path, const qkv_graph_options *options, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    bool ok = GIVEN(m) && GIVEN(path) && view_given(m, options, &b, &e);
    OutFile *f = ok ? outfile_open(path, &e) : NULL;
    ok = f && outfile_write(f, b.data ? b.data : "", b.len, &e);
    if (f && !ok) outfile_abort(f);
    ok = ok && outfile_commit(f, &e);
    buf_free(&b);
    return ok ? QKV_OK : api_give(&e, err);
}
