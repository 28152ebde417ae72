/* Models written to files: .pt2, .qkv, ONNX. Contracts in include/qkv.h and qkv_tools.h. */
#include <stdio.h>
#include "api/api_impl.h"
#include "api/certified.h"
#include "certify/certify.h"
#include "grad/grad.h"
#include "ir/copy.h"
#include "onnx/write/write.h"
#include "program/pack.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "pt2/write/write.h"
#include "quantize/four_bits.h"

/* A copy, as writers make expressions of their own, with its constants folded. */
static Graph *for_writing(const qkv_model *m, Err *err)
{
    Prepared r;
    if (!program_prepare(&m->program, PASSES_WRITE, &r, err)) return within(err, "%s", m->path), NULL;
    return r.graph ? r.graph : graph_copy(m->program.graph, err);
}

qkv_status qkv_model_save(const qkv_model *m, const char *path, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN(path)) return api_give(&e, err);
    Extras x = {0};
    Graph *own = for_writing(m, &e);
    bool ok = own && (extras_open(&x, m->program.source, &e) || within(&e, "%s", m->path));
    certified_drop(&x);
    ok = ok && pt2_save(own, x.file, x.n, path, &e);
    extras_close(&x);
    graph_free(own);
    return ok ? QKV_OK : api_give(&e, err);
}

qkv_status qkv_model_pack(const qkv_model *m, const char *path, qkv_pack_info *info, qkv_error *err)
{
    Err e = api_begin();
    PackInfo i;
    if (!GIVEN(m) || !GIVEN(path)) return api_give(&e, err);
    if (info && !VERSIONED_WANTED(qkv_pack_info, message, info, &e)) return api_give(&e, err);
    if (!program_pack(&m->program, m->path, path, NULL, &i, &e)) return api_give(&e, err);
    if (!info) return QKV_OK;
    qkv_pack_info all = {.weights = i.weights,
                         .packed = i.packed,
                         .weight_bytes = i.weight_bytes,
                         .packed_bytes = i.packed_bytes,
                         .cpu = i.cpu};
    snprintf(all.message, sizeof all.message, "%s", i.message);
    versioned_give(info, &all, sizeof all);
    return QKV_OK;
}

/* A copy for ONNX, which has neither a gradient of attention nor factors of matrices: products and loops stand in
 * their places. It has tensors of 4 bits, which a .pt2 has not. fold: as for_writing; what is certified stays as it
 * is. */
static Graph *spelled_out(const qkv_model *m, bool fold, Err *err)
{
    Graph *own = fold ? for_writing(m, err) : graph_copy(m->program.graph, err);
    if (!own || ((!fold || weights_in_four_bits(own, err)) && attention_written_out(own, err) &&
                 written_as_loops(own, err)))
        return own;
    graph_free(own);
    return NULL;
}

typedef struct OnnxSaving {
    const Graph *graph;
    OnnxOptions to;
    Buf text;
} OnnxSaving;

static bool write_onnx(void *user, const char *path, const Buf *certificate, Err *err)
{
    OnnxSaving *s = user;
    buf_free(&s->text);
    s->text = (Buf){0};
    s->to.certificate = certificate ? certificate->data : NULL;
    return onnx_save(s->graph, path, &s->to, &s->text, err);
}

qkv_status qkv_model_save_onnx(const qkv_model *m, const char *path, const qkv_onnx_options *options, char **report,
                               qkv_error *err)
{
    qkv_onnx_options o = {0};
    Err e = api_begin();
    Buf cert = {0};
    if (report) *report = NULL;
    if (!GIVEN(m) || !GIVEN(path) || !VERSIONED_TAKE(qkv_onnx_options, external_data, &o, options, &e))
        return api_give(&e, err);
    if (o.certificate) *o.certificate = NULL;
    const OnnxProfile *profile = api_onnx_profile(o.profile);
    if (!api_known(qkv_onnx_profile_name(o.profile), "qkv_onnx_profile", (int)o.profile, &e)) return api_give(&e, err);
    OnnxSaving s = {.graph = spelled_out(m, !o.source, &e),
                    .to = {.opset = o.opset,
                           .profile = *profile,
                           .torch_version = m->program.source->torch_version,
                           .certificate_name = CERTIFICATE_NAME,
                           .external = o.external_data}};
    bool ok = s.graph && (o.source ? certified_write(o.source, NULL, path, true, write_onnx, &s, &cert, &e)
                                   : write_onnx(&s, path, NULL, &e));
    graph_free((Graph *)(uintptr_t)s.graph);
    if (ok && s.text.failed) ok = oom(&e);
    if (report && !s.text.failed) *report = s.text.data;
    else buf_free(&s.text);
    if (ok && o.certificate) *o.certificate = cert.data;
    else buf_free(&cert);
    return ok ? QKV_OK : api_give(&e, err);
}
