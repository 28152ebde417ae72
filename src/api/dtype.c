/* A model in another float type. Contract in include/qkv_tools.h. */
#include "api/api_impl.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "precision/precision.h"

/* Which ops give float32, which the narrow type: nodes by op, in the order of the op table. */
static void put_ops(const Graph *g, const char *key, DType t, Buf *out)
{
    int count[OP_COUNT] = {0};
    for (const Node *n = g->first; n; n = n->next)
        if (n->nout && n->out[0]->dtype == t && !(n->op->flags & OPF_VIEW) && n->op->id != OP_to_copy)
            count[n->op->id]++;
    jw_open(out, key, '[');
    for (int i = 0; i < OP_COUNT; i++)
        if (count[i]) jw_put(out, "{'op': %s, 'nodes': %d}", op_get((OpId)i)->name, count[i]);
    jw_close(out, "]");
}

/* -1: no memory. */
static int64_t bytes_of(const Graph *g)
{
    bool *tied = mem_zeroed((size_t)g->nweight + 1, sizeof *tied);
    bool ok = tied && graph_tied_weights(g, tied);
    int64_t bytes = ok ? 0 : -1;
    for (int i = 0; ok && i < g->nweight; i++)
        if (!tied[i]) bytes += (int64_t)tensor_bytes(g->weight[i]->data);
    mem_free(tied);
    return bytes;
}

static bool put_report(const Graph *before, const Graph *g, DType t, Buf *out, Err *err)
{
    int64_t was = bytes_of(before), is = bytes_of(g);
    if (was < 0 || is < 0) return oom(err);
    jw_report(out);
    jw_put(out, "'dtype': %s, 'weight_bytes_before': %lld, 'weight_bytes': %lld", dtype_name(t), (long long)was,
           (long long)is);
    put_ops(g, "converted", t, out);
    if (t == DT_F32) jw_put(out, "'stays_f32': []");
    else put_ops(g, "stays_f32", DT_F32, out);
    jw_close(out, "}");
    return !out->failed || oom(err);
}

qkv_model *qkv_model_with_dtype(const qkv_model *m, qkv_dtype dtype, char **report, qkv_error *err)
{
    Err e = api_begin();
    Buf text = {0};
    DType t = dtype == QKV_F16 ? DT_F16 : dtype == QKV_BF16 ? DT_BF16 : DT_F32;
    if (report) *report = NULL;
    if (!GIVEN(m)) return api_null(&e, err);
    if (t == DT_F32 && dtype != QKV_F32) {
        fail(&e, E_USAGE, "dtype %s: expected f16, bf16 or f32",
             qkv_dtype_name(dtype) ? qkv_dtype_name(dtype) : "of that value");
        return api_null(&e, err);
    }
    if (m->program.source->prepared) {
        fail(&e, E_UNSUPPORTED, "a packed model's dtypes cannot be changed: take the model that was packed");
        return api_null(&e, err);
    }
    qkv_model *made = api_model_copy(m, &e);
    bool ok = made && convert_precision(made->program.graph, t, &e);
    if (ok && made->program.source) made->program.source->nattention = 0; /* what the file had is gone */
    ok = ok && put_report(m->program.graph, made->program.graph, t, &text, &e);
    ok = api_whole(ok, &e);
    if (ok && report) *report = text.data;
    else buf_free(&text);
    if (ok) return made;
    qkv_model_free(made);
    return api_null(&e, err);
}
