/* Writing ONNX files from the records of onnx.h. Fields go out in the order of their numbers, as protobuf writes them,
 * so that the same records give the same bytes and onnx.load(file).SerializeToString() gives the file.
 *
 *     graph.initializer[0]: dims 768, 768; raw_data: 2359296 bytes, straight from where the tensor is
 *     with external data:   dims 768, 768; external_data: location model.onnx.data, offset 4096, length 2359296
 */
#include <stdio.h>
#include <string.h>
#include "onnx/wire/onnx_impl.h"
#include "base/mem.h"
#include "format/json.h"

enum {
    SMALLEST_OUTSIDE = 1024,
    LARGE = 1 << 16,
    PAGE = 4096,
    LINE = 64, /* large tensors begin at a page, so that readers can map them */
    ROWS = 64  /* of a view that are copied together */
};
static const uint64_t MOST_INSIDE = INT32_MAX; /* protobuf's own limit */

typedef struct Writer {
    PbWriter w;
    const char *location; /* NULL: all data inside */
    uint64_t outside;     /* bytes of the data file so far */
    OutFile *data;        /* NULL while counting */
    bool refused;
    Err *err; /* of what cannot be written */
} Writer;

static void refuse(Writer *w, ErrCode code, const char *what, const char *name)
{
    if (!w->refused) fail(w->err, code, "'%s': %s", name, what);
    w->refused = true;
}

static void text(Writer *w, uint32_t number, const char *s)
{
    if (s && *s) pb_put_string(&w->w, number, s);
}

static void texts(Writer *w, uint32_t number, const char *const *s, int n)
{
    for (int i = 0; i < n; i++) pb_put_string(&w->w, number, s[i]);
}

static void pair(Writer *w, uint32_t number, const char *key, const char *value)
{
    PbMark m = pb_begin(&w->w, number);
    pb_put_string(&w->w, 1, key);
    pb_put_string(&w->w, 2, value);
    pb_end(&w->w, m);
}

static void pairs(Writer *w, uint32_t number, const OnnxPair *p, int n)
{
    for (int i = 0; i < n; i++) pair(w, number, p[i].key, p[i].value);
}

/* ------------------------------------------------------------------ tensors */

static uint64_t file_bytes(const OnnxTensor *t)
{
    return ((uint64_t)tensor_bytes(&t->t) * (uint64_t)onnx_bits(t->type) + 7) / 8;
}

static bool put_bytes(int bits, const uint8_t *from, uint64_t n, PbSink *sink, void *user, Err *err)
{
    uint8_t packed[PAGE];
    if (bits == 8) return n == 0 || sink(user, from, n, err);
    for (uint64_t i = 0, step; i < n; i += step) {
        step = n - i < PAGE ? n - i : PAGE; /* a multiple of what a byte holds, but for the last */
        onnx_pack(from + i, step, bits, packed);
        TRY(sink(user, packed, (step * (uint64_t)bits + 7) / 8, err));
    }
    return true;
}

/* The elements as a file holds them, to sink: of a view some rows at a time, which end at a byte. */
static bool put_elements(const OnnxTensor *t, PbSink *sink, void *user, Err *err)
{
    int bits = onnx_bits(t->type);
    if (tensor_contiguous(&t->t)) return put_bytes(bits, t->t.data, tensor_bytes(&t->t), sink, user, err);
    Tensor rows = t->t;
    rows.shape[0] = ROWS;
    uint8_t *copy = mem_alloc(tensor_bytes(&rows));
    bool ok = copy || oom(err);
    for (int64_t at = 0; ok && at < t->t.shape[0]; at += ROWS) {
        const int64_t left = t->t.shape[0] - at;
        rows.shape[0] = left < ROWS ? left : ROWS;
        rows.data = (char *)t->t.data + at * rows.stride[0] * (int64_t)dtype_size(rows.dtype);
        Tensor dense = tensor_of(rows.dtype, rows.rank, rows.shape, copy);
        tensor_copy(&dense, &rows);
        ok = put_bytes(bits, copy, tensor_bytes(&dense), sink, user, err);
    }
    mem_free(copy);
    return ok;
}

static bool to_message(void *user, const void *bytes, size_t n, Err *err)
{
    (void)err;
    pb_raw(user, bytes, n);
    return true;
}

static bool to_file(void *user, const void *bytes, size_t n, Err *err) { return outfile_write(user, bytes, n, err); }

static void outside(Writer *w, const OnnxTensor *t, uint64_t n)
{
    static const uint8_t zeros[PAGE];
    char offset[24], length[24];
    uint64_t align = n >= LARGE ? PAGE : LINE, begin = (w->outside + align - 1) / align * align;
    snprintf(offset, sizeof offset, "%llu", (unsigned long long)begin);
    snprintf(length, sizeof length, "%llu", (unsigned long long)n);
    pair(w, 13, "location", w->location);
    pair(w, 13, "offset", offset);
    pair(w, 13, "length", length);
    pb_put_int(&w->w, 14, 1);
    if (w->data && !w->refused &&
        !(to_file(w->data, zeros, begin - w->outside, w->err) && put_elements(t, to_file, w->data, w->err)))
        w->refused = true;
    w->outside = begin + n;
}

static void tensor(Writer *w, uint32_t number, const OnnxTensor *t, bool may_leave)
{
    PbMark m = pb_begin(&w->w, number);
    uint64_t n = t->type == ONNX_STRING ? 0 : file_bytes(t);
    bool leaves = may_leave && w->location && n >= SMALLEST_OUTSIDE;
    if (t->type != ONNX_STRING && dtype_from_onnx(t->type) != t->t.dtype)
        refuse(w, E_UNSUPPORTED, "a tensor whose ONNX type and dtype differ", t->name);
    for (int i = 0; i < t->t.rank; i++) pb_put_int(&w->w, 1, t->t.shape[i]);
    pb_put_int(&w->w, 2, t->type);
    if (t->type == ONNX_STRING) texts(w, 6, t->string, t->nstring);
    text(w, 8, t->name);
    if (t->type != ONNX_STRING && !leaves) {
        pb_put_head(&w->w, 9, n);
        if (!w->w.writing) w->w.total += n;
        else if (!w->refused && !put_elements(t, to_message, &w->w, w->err)) w->refused = true;
    }
    if (leaves) outside(w, t, n);
    pairs(w, 16, t->metadata, t->nmetadata);
    pb_end(&w->w, m);
}

static void sparse(Writer *w, uint32_t number, const OnnxSparse *s)
{
    PbMark m = pb_begin(&w->w, number);
    tensor(w, 1, &s->values, false);
    tensor(w, 2, &s->indices, false);
    for (int i = 0; i < s->rank; i++) pb_put_int(&w->w, 3, s->dim[i]);
    pb_end(&w->w, m);
}

/* ------------------------------------------------------------------ types */

static void shape(Writer *w, const OnnxTypeProto *t)
{
    PbMark m = pb_begin(&w->w, 2);
    for (int i = 0; i < t->rank; i++) {
        PbMark d = pb_begin(&w->w, 1);
        if (t->dim[i].known) pb_put_int(&w->w, 1, t->dim[i].value);
        else text(w, 2, t->dim[i].param);
        pb_end(&w->w, d);
    }
    pb_end(&w->w, m);
}

static void type(Writer *w, uint32_t number, const OnnxTypeProto *t)
{
    static const uint8_t fields[] = {[ONNX_TENSOR] = 1, [ONNX_SEQUENCE] = 4, [ONNX_OPTIONAL] = 9, [ONNX_SPARSE] = 8};
    if (t->kind == ONNX_MAP || t->kind == ONNX_OPAQUE) {
        refuse(w, E_UNSUPPORTED, "maps and opaque types are not written", t->kind == ONNX_MAP ? "map" : "opaque");
        return;
    }
    PbMark m = pb_begin(&w->w, number);
    if (t->kind != ONNX_KIND_NONE) {
        PbMark k = pb_begin(&w->w, fields[t->kind]);
        if (t->kind == ONNX_TENSOR || t->kind == ONNX_SPARSE) {
            pb_put_int(&w->w, 1, t->elem);
            if (t->has_shape) shape(w, t);
        } else if (t->inner) {
            type(w, 1, t->inner);
        }
        pb_end(&w->w, k);
    }
    pb_end(&w->w, m);
}

static void value_info(Writer *w, uint32_t number, const OnnxValueInfo *v)
{
    PbMark m = pb_begin(&w->w, number);
    text(w, 1, v->name);
    if (v->type.kind != ONNX_KIND_NONE) type(w, 2, &v->type);
    pairs(w, 4, v->metadata, v->nmetadata);
    pb_end(&w->w, m);
}

/* ------------------------------------------------------------------ nodes and graphs */

static void graph(Writer *w, uint32_t number, const OnnxGraph *g);

static void attribute(Writer *w, uint32_t number, const OnnxAttr *a)
{
    PbMark m = pb_begin(&w->w, number);
    bool has = !a->ref || !*a->ref;
    text(w, 1, a->name);
    if (has && a->type == ONNX_ATTR_FLOAT) pb_put_float(&w->w, 2, a->f);
    if (has && a->type == ONNX_ATTR_INT) pb_put_int(&w->w, 3, a->i);
    if (has && a->type == ONNX_ATTR_STRING) pb_put_bytes(&w->w, 4, a->s, a->slen);
    for (int i = 0; i < a->n; i++) switch (a->type) {
        case ONNX_ATTR_TENSOR: tensor(w, 5, &a->t[i], false); break;
        case ONNX_ATTR_GRAPH: graph(w, 6, &a->g[i]); break;
        case ONNX_ATTR_FLOATS: pb_put_float(&w->w, 7, a->floats[i]); break;
        case ONNX_ATTR_INTS: pb_put_int(&w->w, 8, a->ints[i]); break;
        case ONNX_ATTR_STRINGS: pb_put_string(&w->w, 9, a->strings[i]); break;
        case ONNX_ATTR_TENSORS: tensor(w, 10, &a->t[i], false); break;
        case ONNX_ATTR_GRAPHS: graph(w, 11, &a->g[i]); break;
        case ONNX_ATTR_TYPE_PROTO: type(w, 14, &a->tp[i]); break;
        case ONNX_ATTR_TYPE_PROTOS: type(w, 15, &a->tp[i]); break;
        default: break;
        }
    pb_put_int(&w->w, 20, a->type);
    text(w, 21, a->ref);
    for (int i = 0; i < a->n && (a->type == ONNX_ATTR_SPARSE_TENSOR || a->type == ONNX_ATTR_SPARSE_TENSORS); i++)
        sparse(w, a->type == ONNX_ATTR_SPARSE_TENSOR ? 22 : 23, &a->sparse[i]);
    pb_end(&w->w, m);
}

static void node(Writer *w, uint32_t number, const OnnxNode *n)
{
    PbMark m = pb_begin(&w->w, number);
    texts(w, 1, n->input, n->ninput);
    texts(w, 2, n->output, n->noutput);
    text(w, 3, n->name);
    text(w, 4, n->op);
    for (int i = 0; i < n->nattr; i++) attribute(w, 5, &n->attr[i]);
    text(w, 7, n->domain);
    text(w, 8, n->overload);
    pairs(w, 9, n->metadata, n->nmetadata);
    pb_end(&w->w, m);
}

static void graph(Writer *w, uint32_t number, const OnnxGraph *g)
{
    PbMark m = pb_begin(&w->w, number);
    for (int i = 0; i < g->nnode; i++) node(w, 1, &g->node[i]);
    text(w, 2, g->name);
    for (int i = 0; i < g->ninit; i++) tensor(w, 5, &g->init[i], true);
    text(w, 10, g->doc);
    for (int i = 0; i < g->ninput; i++) value_info(w, 11, &g->input[i]);
    for (int i = 0; i < g->noutput; i++) value_info(w, 12, &g->output[i]);
    for (int i = 0; i < g->ninfo; i++) value_info(w, 13, &g->info[i]);
    for (int i = 0; i < g->nsparse; i++) sparse(w, 15, &g->sparse[i]);
    pairs(w, 16, g->metadata, g->nmetadata);
    pb_end(&w->w, m);
}

static void opset(Writer *w, uint32_t number, const OnnxOpset *o)
{
    PbMark m = pb_begin(&w->w, number);
    text(w, 1, o->domain);
    pb_put_int(&w->w, 2, o->version);
    pb_end(&w->w, m);
}

static void function(Writer *w, uint32_t number, const OnnxFunction *f)
{
    PbMark m = pb_begin(&w->w, number);
    text(w, 1, f->name);
    texts(w, 4, f->input, f->ninput);
    texts(w, 5, f->output, f->noutput);
    texts(w, 6, f->attr, f->nattr);
    for (int i = 0; i < f->nnode; i++) node(w, 7, &f->node[i]);
    for (int i = 0; i < f->nopset; i++) opset(w, 9, &f->opset[i]);
    text(w, 10, f->domain);
    for (int i = 0; i < f->nattr_default; i++) attribute(w, 11, &f->attr_default[i]);
    for (int i = 0; i < f->ninfo; i++) value_info(w, 12, &f->info[i]);
    text(w, 13, f->overload);
    pb_end(&w->w, m);
}

static void model(Writer *w, const OnnxModel *m)
{
    pb_put_int(&w->w, 1, m->ir_version);
    text(w, 2, m->producer);
    text(w, 3, m->producer_version);
    text(w, 4, m->domain);
    if (m->model_version) pb_put_int(&w->w, 5, m->model_version);
    text(w, 6, m->doc);
    if (m->graph) graph(w, 7, m->graph);
    for (int i = 0; i < m->nopset; i++) opset(w, 8, &m->opset[i]);
    pairs(w, 14, m->metadata, m->nmetadata);
    for (int i = 0; i < m->nfunction; i++) function(w, 25, &m->function[i]);
}

/* ------------------------------------------------------------------ files */

/* The lengths, with data inside (location NULL) or outside. */
static bool count(Writer *w, const OnnxModel *m, const char *location, Err *err)
{
    *w = (Writer){.location = location, .err = err};
    model(w, m);
    if (!w->refused && !w->w.failed) return true;
    pb_drop(&w->w);
    return w->refused ? false : oom(err);
}

/* Data first: a model file that exists finds its data. */
static bool write_both(Writer *w, const OnnxModel *m, const char *path, const char *data_path, Err *err)
{
    OutFile *o = outfile_open(path, err), *data = o && w->outside ? outfile_open(data_path, err) : NULL;
    bool ok = o && (data || !w->outside);
    w->data = data;
    w->outside = 0;
    pb_write_to(&w->w, to_file, o, err);
    if (ok) model(w, m);
    else w->w.failed = true;
    ok = pb_finish(&w->w) && ok && !w->refused;
    if (ok && data) {
        ok = outfile_commit(data, err);
        data = NULL;
    }
    if (ok) return outfile_commit(o, err);
    outfile_abort(data);
    outfile_abort(o);
    return false;
}

bool onnx_write(const OnnxModel *m, const char *path, const OnnxWriteOptions *options, Err *err)
{
    int external = options ? options->external : 0;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(path) + sizeof ".data";
    char *data_path = mem_alloc(n);
    Writer *w = mem_alloc(sizeof *w);
    bool ok = (data_path && w) || oom(err), beside = external == 1;
    if (ok) {
        snprintf(data_path, n, "%s.data", path);
        ok = count(w, m, beside ? data_path + (base - path) : NULL, err);
    }
    if (ok && w->w.total > MOST_INSIDE && external == 0) {
        beside = true;
        pb_drop(&w->w);
        ok = count(w, m, data_path + (base - path), err);
    }
    if (ok && beside && !json_is_utf8(base)) {
        pb_drop(&w->w);
        ok = fail(err, E_USAGE, "the model names its data file, and names in ONNX are UTF-8: choose one that is");
    }
    if (ok && w->w.total > MOST_INSIDE) {
        pb_drop(&w->w);
        ok = fail(err, E_LIMIT, "%llu bytes, and an ONNX file holds at most 2 GiB%s", (unsigned long long)w->w.total,
                  external < 0 ? "; allow a file for its data beside it"
                               : "; what is outside its initializers is too much");
    }
    ok = ok && write_both(w, m, path, data_path, err);
    mem_free(w);
    mem_free(data_path);
    return ok || within(err, "%s", path);
}
