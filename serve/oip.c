/* Answers of the Open Inference Protocol. Contract in oip.h. */
#include "serve/oip.h"
#include <math.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/number.h"

static const struct {
    const char *name;
    DType dtype;
} datatypes[] = {{"BOOL", DT_BOOL}, {"UINT8", DT_U8},  {"UINT16", DT_U16}, {"UINT32", DT_U32}, {"UINT64", DT_U64},
                 {"INT8", DT_I8},   {"INT16", DT_I16}, {"INT32", DT_I32},  {"INT64", DT_I64},  {"FP16", DT_F16},
                 {"BF16", DT_BF16}, {"FP32", DT_F32},  {"FP64", DT_F64}};
enum { DATATYPES = sizeof datatypes / sizeof *datatypes };

const char *oip_datatype(DType t)
{
    for (int i = 0; i < DATATYPES; i++)
        if (datatypes[i].dtype == t) return datatypes[i].name;
    return NULL;
}

DType oip_dtype(const char *datatype)
{
    for (int i = 0; i < DATATYPES; i++)
        if (!strcmp(datatypes[i].name, datatype)) return datatypes[i].dtype;
    return DT_NONE;
}

/* ------------------------------------------------------------------ an answer */

bool infer_take(void *infer, Item *item, const Tensor *out, Err *err)
{
    Infer *r = infer;
    (void)item;
    for (int k = 0; k < r->n; k++) {
        const Tensor *from = &out[r->order[k]];
        Tensor *to = &r->result[r->order[k]];
        void *data = arena_alloc(r->arena, tensor_bytes(from) + 1, 1);
        if (!data) return oom(err);
        *to = tensor_of(from->dtype, from->rank, from->shape, data);
        tensor_copy(to, from);
    }
    return true;
}

/* JSON has no NaN and no infinities: null. */
static void put_element(const Tensor *t, int64_t i, Buf *out)
{
    char text[DOUBLE_TEXT];
    const char *p = (const char *)t->data + i * (int64_t)dtype_size(t->dtype);
    if (t->dtype == DT_BOOL) {
        buf_puts(out, load_i64(t->dtype, p) ? "true" : "false");
        return;
    }
    if (!dtype_is_float(t->dtype)) {
        uint64_t u;
        memcpy(&u, p, t->dtype == DT_U64 ? sizeof u : 0);
        if (t->dtype == DT_U64) buf_printf(out, "%llu", (unsigned long long)u);
        else buf_printf(out, "%lld", (long long)load_i64(t->dtype, p));
        return;
    }
    double v = load_f64(t->dtype, p);
    if (!isfinite(v)) text_printf(text, sizeof text, "null");
    else if (t->dtype == DT_F32) text_printf(text, sizeof text, "%.9g", v);
    else print_double(text, v);
    buf_puts(out, text);
}

static void put_output(const Tensor *t, const char *name, bool binary, Buf *out)
{
    jw_put(out, "{'name': %s, 'datatype': %s", name, oip_datatype(t->dtype));
    jw_ints(out, "shape", t->shape, t->rank);
    if (binary) {
        jw_put(out, "'parameters': {'binary_data_size': %lld}}", (long long)tensor_bytes(t));
        return;
    }
    jw_open(out, "data", '[');
    for (int64_t i = 0, n = tensor_numel(t); i < n; i++) {
        if (i) buf_add(out, ", ", 2);
        put_element(t, i, out);
    }
    jw_close(out, "]}");
}

bool infer_write(const Infer *r, const char *model, Buf *out, size_t *json, Err *err)
{
    bool any = false;
    jw_put(out, "{'model_name': %s, 'model_version': '1'", model);
    if (r->id) jw_text(out, "id", r->id);
    jw_open(out, "outputs", '[');
    for (int k = 0; k < r->n; k++) {
        int i = r->order[k];
        jw_key(out, NULL);
        put_output(&r->result[i], r->call.model->out[i].name, r->binary[i], out);
        any |= r->binary[i];
    }
    jw_close(out, "]}");
    *json = any ? out->len : 0;
    for (int k = 0; k < r->n; k++)
        if (r->binary[r->order[k]]) buf_add(out, r->result[r->order[k]].data, tensor_bytes(&r->result[r->order[k]]));
    return !out->failed || oom(err);
}

/* ------------------------------------------------------------------ descriptions */

void oip_server(Buf *out)
{
    jw_put(out, "{'name': 'qkv', 'version': %s, 'extensions': ['binary_tensor_data', 'model_repository']}",
           qkv_version());
}

static void put_ports(const Port *p, int n, const char *key, Buf *out)
{
    jw_open(out, key, '[');
    for (int i = 0; i < n; i++) {
        const char *datatype = oip_datatype(p[i].dtype);
        jw_put(out, "{'name': %s, 'datatype': %s", p[i].name, datatype ? datatype : dtype_name(p[i].dtype));
        jw_ints(out, "shape", p[i].dim, p[i].rank);
        jw_close(out, "}");
    }
    jw_close(out, "]");
}

void oip_model(const Model *m, const char *name, Buf *out)
{
    jw_put(out, "{'name': %s, 'versions': ['1'], 'platform': 'qkv'", name);
    put_ports(m->in, m->nin, "inputs", out);
    put_ports(m->out, m->nout, "outputs", out);
    jw_put(out, "'parameters': {'batches': %s, 'why': %s",
           m->ragged     ? "without padding"
           : m->together ? "equal sizes"
                         : "none",
           m->ragged ? "" : m->why);
    jw_close(out, "}}");
}
