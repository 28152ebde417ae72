/* Nodes, names and constants of an ONNX file in the making.
 *
 *     NODE(o, "Add", DT_BF16, x, y)     where the profile's runtime has no Add of bf16: Cast, Cast, Add, Cast
 *
 * A constant is made once for a content and is called after it: const.i64.1_-1.
 */
#include <math.h>
#include <string.h>
#include "base/number.h"
#include "base/vec.h"
#include "onnx/write/write_impl.h"
#include "base/mem.h"

/* ------------------------------------------------------------------ what cannot be */

void refuse(Onnx *o, const char *fmt, ...)
{
    if (o->refused || o->broken) return;
    va_list ap;
    va_start(ap, fmt);
    char why[sizeof o->why]; /* an argument may be o->why itself */
    text_vprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    memcpy(o->why, why, sizeof why);
    o->refused = true;
}

void out_of_memory(Onnx *o)
{
    if (!o->broken) oom(o->err);
    o->broken = true;
}

/* ------------------------------------------------------------------ names */

const char *fresh(Onnx *o, const char *base)
{
    int *count = map_get(&o->taken, base);
    char *name = count ? NULL : arena_strdup(o->a, base);
    for (int k = count ? *count : 0; count; k++) {
        name = arena_printf(o->a, "%s_%d", base, k);
        *count = k + 1;
        if (!name || !map_has(&o->taken, name)) break;
    }
    int *first = arena_new(o->a, int);
    if (!name || !first || !map_put(&o->taken, name, first)) {
        out_of_memory(o);
        return "";
    }
    *first = 1;
    return name;
}

Ref none(void) { return (Ref){"", DT_NONE}; }

/* ------------------------------------------------------------------ attributes */

enum { MOST_ATTRS = 16 };

static OnnxAttr *attr(Onnx *o, const char *name, OnnxAttrType type)
{
    static OnnxAttr spare;
    if (!o->attr) o->attr = arena_array(o->a, OnnxAttr, MOST_ATTRS);
    if (!o->attr || o->nattr == MOST_ATTRS) {
        out_of_memory(o);
        return &spare;
    }
    OnnxAttr *a = &o->attr[o->nattr++];
    *a = (OnnxAttr){.name = name, .type = type, .ref = "", .s = ""};
    return a;
}

void attr_int(Onnx *o, const char *name, int64_t v) { attr(o, name, ONNX_ATTR_INT)->i = v; }
void attr_float(Onnx *o, const char *name, double v) { attr(o, name, ONNX_ATTR_FLOAT)->f = (float)v; }

void attr_str(Onnx *o, const char *name, const char *v)
{
    OnnxAttr *a = attr(o, name, ONNX_ATTR_STRING);
    a->s = v;
    a->slen = strlen(v);
}

void attr_strs(Onnx *o, const char *name, int n, const char *const *v)
{
    const char **copy = arena_array(o->a, const char *, n + 1);
    if (!copy) {
        out_of_memory(o);
        return;
    }
    for (int i = 0; i < n; i++) copy[i] = v[i];
    OnnxAttr *a = attr(o, name, ONNX_ATTR_STRINGS);
    a->strings = copy;
    a->n = n;
}

void attr_ints(Onnx *o, const char *name, int n, const int64_t *v)
{
    int64_t *copy = arena_array(o->a, int64_t, n + 1);
    if (!copy) {
        out_of_memory(o);
        return;
    }
    for (int i = 0; i < n; i++) copy[i] = v[i];
    OnnxAttr *a = attr(o, name, ONNX_ATTR_INTS);
    a->ints = copy;
    a->n = n;
}

void attr_tensor(Onnx *o, const char *name, DType t, double v)
{
    OnnxTensor *x = arena_new(o->a, OnnxTensor);
    void *data = arena_alloc(o->a, 1, 16);
    if (!x || !data) {
        out_of_memory(o);
        return;
    }
    store_f64(t, data, v);
    *x = (OnnxTensor){.name = "", .type = dtype_to_onnx(t), .t = tensor_of(t, 1, (int64_t[]){1}, data), .location = ""};
    attr(o, name, ONNX_ATTR_TENSOR)->t = x;
}

void attr_graph(Onnx *o, const char *name, OnnxGraph *g)
{
    OnnxAttr *a = attr(o, name, ONNX_ATTR_GRAPH);
    a->g = g;
    a->n = 1;
}

/* ------------------------------------------------------------------ nodes */

static OnnxNode *new_node(Onnx *o)
{
    static OnnxNode spare;
    OnnxNode *all = vec_room(o->a, o->node, o->nnode, sizeof *all);
    bool *lent = vec_room(o->a, o->lent, o->nnode, sizeof *lent);
    if (!all || !lent) {
        out_of_memory(o);
        return &spare;
    }
    o->node = all;
    o->lent = lent;
    return &o->node[o->nnode++];
}

static void raw_node(Onnx *o, const char *domain, const char *op, int nout, const DType *t, Ref *out, int n,
                     const Ref *in)
{
    const char **inputs = arena_array(o->a, const char *, n + 1), **outputs = arena_array(o->a, const char *, nout + 1);
    for (int k = 0; k < nout; k++) out[k] = (Ref){"", t[k]};
    if (!inputs || !outputs) {
        out_of_memory(o);
        return;
    }
    while (n && !*in[n - 1].name) n--;
    if (!*domain) check_opset(o, op, n, in); /* others have versions of their own */
    for (int i = 0; i < n; i++) inputs[i] = in[i].name;
    for (int k = 0; k < nout; k++) {
        char *base = t[k] == DT_NONE ? NULL : arena_printf(o->a, "%s_%s", o->scope, op);
        if (!base && t[k] != DT_NONE) out_of_memory(o);
        outputs[k] = out[k].name = base ? fresh(o, base) : "";
    }
    OnnxNode *node = new_node(o);
    *node = (OnnxNode){.name = outputs[0],
                       .op = op,
                       .domain = domain,
                       .overload = "",
                       .input = inputs,
                       .output = outputs,
                       .ninput = n,
                       .noutput = nout,
                       .attr = o->attr,
                       .nattr = o->nattr};
    o->attr = NULL;
    o->nattr = 0;
}

/* One of ONNX Runtime's own ops. */
Ref contrib_node(Onnx *o, const char *op, DType out, int n, const Ref *in)
{
    Ref y;
    raw_node(o, "com.microsoft", op, 1, &out, &y, n, in);
    return y;
}

int dtype_since(OnnxProfile p, DType t)
{
    switch (t) {
    case DT_F8E4M3:
    case DT_F8E5M2:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2FNUZ: return 19;
    case DT_I4:
    case DT_U4: return 21;
    case DT_F4E2M1: return p == ONNX_FOR_ORT ? 24 : 23;
    case DT_F8E8M0: return 24;
    case DT_I2:
    case DT_U2: return 25;
    default: return 0;
    }
}

Ref cast(Onnx *o, Ref x, DType t)
{
    if (x.t == t || x.t == DT_NONE) return x;
    if (!*x.name) return (Ref){"", t}; /* it could not be made: who casts to take another way still takes it */
    int to = dtype_to_onnx(t);
    if (to == ONNX_UNDEFINED || dtype_to_onnx(x.t) == ONNX_UNDEFINED)
        refuse(o, "ONNX has no tensors of %s", dtype_name(to == ONNX_UNDEFINED ? t : x.t));
    const int given = dtype_since(o->opt.profile, x.t), asked = dtype_since(o->opt.profile, t),
              from = asked > given ? asked : given;
    if (o->opt.opset < from)
        refuse(o, "%s casts %s from opset %d on", for_ort(o) ? "ONNX Runtime" : "ONNX",
               dtype_name(asked == from ? t : x.t), from);
    OnnxAttr *kept = o->attr; /* of the node that needs the cast */
    int nkept = o->nattr;
    o->attr = NULL;
    o->nattr = 0;
    attr_int(o, "to", to);
    Ref y;
    raw_node(o, "", "Cast", 1, &t, &y, 1, &x);
    o->attr = kept;
    o->nattr = nkept;
    return y;
}

/* What the node works in instead of t; DT_NONE: as it is. */
static DType works_in(Onnx *o, const char *op, const TypeRule *r, DType t)
{
    if (t == DT_NONE || type_taken(o, r, t)) return DT_NONE;
    if (dtype_is_complex(t)) return DT_NONE; /* pairs of reals: only views see them */
    DType wide = type_wider(o, r, t);
    if (wide == DT_NONE)
        refuse(o, "%s has no %s of %s", for_ort(o) && (r->at22 >> t & 1) ? "ONNX Runtime" : "ONNX", op, dtype_name(t));
    return wide;
}

void nodes_of(Onnx *o, const char *op, int nout, const DType *t, Ref *out, int n, const Ref *in)
{
    const TypeRule *r = type_rule(op);
    Ref as[64];
    DType wide = DT_NONE, *outs = arena_array(o->a, DType, nout + 1);
    if (!outs) {
        out_of_memory(o);
        for (int k = 0; k < nout; k++) out[k] = none();
        return;
    }
    if (r && n == 1 && nout == 1 && in[0].t == DT_F64 && !type_taken(o, r, DT_F64) && *in[0].name) {
        out[0] = in_double(o, op, in[0]);
        if (out[0].t != DT_NONE) return;
    }
    for (int k = 0; k < nout; k++) outs[k] = t[k];
    for (int i = 0; r && i < n && wide == DT_NONE; i++)
        if (r->inputs >> (i < 31 ? i : 31) & 1 && *in[i].name) wide = works_in(o, op, r, in[i].t);
    if (wide == DT_NONE || n > 64) {
        raw_node(o, "", op, nout, outs, out, n, in);
        return;
    }
    for (int i = 0; i < n; i++) as[i] = r->inputs >> (i < 31 ? i : 31) & 1 ? cast(o, in[i], wide) : in[i];
    DType wanted = t[0];
    if (r->output) outs[0] = wide;
    raw_node(o, "", op, nout, outs, out, n, as);
    if (r->output) out[0] = cast(o, out[0], wanted);
}

Ref node_of(Onnx *o, const char *op, DType out, int n, const Ref *in)
{
    Ref y;
    nodes_of(o, op, 1, &out, &y, n, in);
    return y;
}

/* Was this result made for the node that is written now, and for it alone? */
static bool made_here(const Onnx *o, const char *name)
{
    for (int i = o->scope_from; i < o->nnode; i++)
        for (int k = 0; !o->lent[i] && k < o->node[i].noutput; k++)
            if (o->node[i].output[k] == name) return true;
    return false;
}

static void rename_result(Onnx *o, const char *from, const char *to)
{
    for (int i = o->scope_from; i < o->nnode; i++) {
        OnnxNode *n = &o->node[i];
        if (n->name == from) n->name = to;
        for (int k = 0; k < n->noutput; k++)
            if (n->output[k] == from) n->output[k] = to;
        for (int k = 0; k < n->ninput; k++)
            if (n->input[k] == from) n->input[k] = to;
    }
}

void lend_nodes(Onnx *o, int from)
{
    for (int i = from; i < o->nnode && !o->broken; i++) o->lent[i] = true;
}

static bool named_already(const Onnx *o, const Node *n, const char *name)
{
    for (int k = 0; k < n->nout; k++)
        if (o->written[n->out[k]->id] && o->value[n->out[k]->id].name == name) return true;
    return false;
}

void give(Onnx *o, const Node *n, int k, Ref x)
{
    if (o->refused || o->broken || k >= n->nout) return;
    Value *v = n->out[k];
    if (x.t != v->dtype) {
        if (dtype_is_complex(v->dtype)) x.t = v->dtype; /* pairs */
        else x = cast(o, x, v->dtype);
    }
    const char *wanted = o->wish[v->id] ? o->wish[v->id] : v->name;
    if (!named_already(o, n, x.name) && made_here(o, x.name)) {
        const char *name = o->wish[v->id] ? wanted : fresh(o, wanted);
        rename_result(o, x.name, name);
        x.name = name;
    }
    o->value[v->id] = x;
    o->written[v->id] = true;
}

/* ------------------------------------------------------------------ constants */

static OnnxTensor *new_init(Onnx *o)
{
    static OnnxTensor spare;
    OnnxTensor *all = vec_room(o->a, o->init, o->ninit, sizeof *all);
    if (!all) {
        out_of_memory(o);
        return &spare;
    }
    o->init = all;
    return &o->init[o->ninit++];
}

Ref tensor_const(Onnx *o, const Tensor *t, const char *base)
{
    int type = dtype_to_onnx(t->dtype);
    if (type == ONNX_UNDEFINED && !dtype_is_complex(t->dtype)) {
        refuse(o, "ONNX has no tensors of %s", dtype_name(t->dtype));
        return (Ref){"", t->dtype};
    }
    Tensor whole = tensor_as_real(t);
    if (tensor_contiguous(&whole)) strides_contiguous(whole.rank, whole.shape, whole.stride);
    const char *name = fresh(o, base);
    *new_init(o) = (OnnxTensor){.name = name, .type = dtype_to_onnx(whole.dtype), .t = whole, .location = ""};
    return (Ref){name, t->dtype};
}

static Ref small_const(Onnx *o, DType t, int rank, int n, const void *data, const char *text)
{
    char *key = arena_printf(o->a, "const.%s.%d.%s", dtype_name(t), rank, text);
    const char *known = key ? map_get(&o->constants, key) : NULL;
    bool apart = o->opt.profile == ONNX_FOR_OPENVINO && !rank; /* its fusions trip over a scalar that two of them use */
    if (known && !apart) return (Ref){known, t};
    void *copy = arena_alloc(o->a, (size_t)n + 1, dtype_size(t));
    char *base = arena_printf(o->a, strlen(text) < 40 ? "%s.%s.%s" : "%s.%s", rank ? "list" : "const", dtype_name(t),
                              text);
    if (!key || !copy || !base) {
        out_of_memory(o);
        return (Ref){"", t};
    }
    if (n) memcpy(copy, data, (size_t)n * dtype_size(t));
    Tensor x = tensor_of(t, rank, (int64_t[]){n}, copy);
    Ref r = tensor_const(o, &x, base);
    if (!map_put(&o->constants, key, (void *)(uintptr_t)r.name)) out_of_memory(o);
    return r;
}

static void number_text(DType t, double v, char *text, size_t n)
{
    text_printf(text, n, t == DT_F64 || isnan(v) ? "%.17g" : "%.9g", v);
}

/* A constant of a file that was read is made as one of ours, so that writing it again gives the same names. */
Ref constant_like(Onnx *o, const Tensor *t)
{
    Ref r = none();
    int64_t n = tensor_numel(t);
    if (t->rank == 1 && t->dtype == DT_I64 && n <= 64) {
        int64_t v[64];
        for (int64_t i = 0; i < n; i++) v[i] = tensor_get_i64(t, i);
        r = ints(o, (int)n, v);
    } else if (t->rank == 0 && t->dtype == DT_I64) {
        r = integer(o, tensor_get_i64(t, 0));
    } else if (t->rank == 0) {
        r = number(o, t->dtype, dtype_is_float(t->dtype) ? tensor_get(t, 0) : (double)tensor_get_i64(t, 0));
    }
    return r;
}

Ref number(Onnx *o, DType t, double v)
{
    char text[48];
    unsigned char data[16] = {0};
    if (dtype_is_float(t)) {
        store_f64(t, data, v);
        number_text(t, load_f64(t, data), text, sizeof text);
    } else {
        /* a bound may be infinite */
        const int64_t i = !(v > -0x1p63) ? INT64_MIN : v < 0x1p63 ? (int64_t)v : INT64_MAX;
        store_i64(t, data, t == DT_BOOL ? v != 0 : i);
        snprintf(text, sizeof text, "%lld", (long long)i);
    }
    return small_const(o, t, 0, 1, data, text);
}

Ref integer(Onnx *o, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    return small_const(o, DT_I64, 0, 1, &v, text);
}

Ref ints(Onnx *o, int n, const int64_t *v)
{
    Buf text = {0};
    for (int i = 0; i < n; i++) buf_printf(&text, "%s%lld", i ? "_" : "", (long long)v[i]);
    Ref r = small_const(o, DT_I64, 1, n, v, text.data ? text.data : "");
    if (text.failed) out_of_memory(o);
    buf_free(&text);
    return r;
}

Ref like(Onnx *o, Ref x, double v) { return number(o, x.t, v); }
