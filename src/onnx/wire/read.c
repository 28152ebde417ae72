/* Reading ONNX files: the messages of onnx.proto as the records of onnx.h. Tensors are in onnx_tensor.c.
 *
 *     graph: node[3] 'add': attribute[0] 'axis': byte 177: field 3 is bytes with a length, expected a varint
 *
 * Each message is read twice: once to count how often each field occurs, then into arrays of that size. The arena's
 * limit bounds what a file may ask for: a message of 2 bytes becomes a record of a hundred.
 */
#include <stdio.h>
#include <string.h>
#include "onnx/wire/onnx_impl.h"
#include "base/mem.h"
#include "base/pages.h"

enum {
    MEMORY_TIMES = 4,
    MEMORY_FREE = 48 << 20, /* most memory for records and unpacked weights: 4 times the file and 48 MiB */
    GRAPH_TIMES = 3,
    GRAPH_FREE = 40 << 20, /* most memory for records and the graph made of them, without weights */
    NODE_BYTES = 700,      /* of these a node or an initializer, which may be 24 bytes in the file */
    RESULT_BYTES = 600     /* an input or output of the graph */
};
enum { SHOWN_DEPTH = 4 }; /* of graphs, in messages */

/* ------------------------------------------------------------------ pieces */

bool onnx_no_memory(const OnnxReader *r, Err *err)
{
    return fail(err, E_LIMIT,
                "out of memory: its records need more than the %zu bytes that they have so far, or than a file of its "
                "size may ask for",
                arena_used(r->kept) + (r->passing == r->kept ? 0 : arena_used(r->passing)));
}

/* A graph is made beside the records: what it will take is refused before it is made. */
static bool plan(OnnxReader *r, uint64_t nodes, uint64_t results, Err *err)
{
    r->planned += nodes * NODE_BYTES + results * RESULT_BYTES;
    return r->planned <= r->most ||
           fail(err, E_LIMIT,
                "its nodes, initializers, inputs and outputs take more than %llu MiB as a graph; at most %llu MiB are "
                "allowed for a file of this size",
                (unsigned long long)(r->planned >> 20), (unsigned long long)(r->most >> 20));
}

bool onnx_once(uint32_t times, uint32_t number, Err *err)
{
    return times <= 1 || fail(err, E_FORMAT, "field %u, a message that may occur once, occurs %u times", number, times);
}

/* Puts where it is before the message: "node[3] 'add': ". Deep inside the message itself matters more. */
static bool inside(const OnnxReader *r, Err *err, const char *what, int index, const char *name)
{
    char number[16] = "";
    if (r->depth > SHOWN_DEPTH) return false;
    if (index >= 0) snprintf(number, sizeof number, "[%d]", index);
    return name && *name ? within(err, "%s%s '%s'", what, number, name) : within(err, "%s%s", what, number);
}

/* Well-formed UTF-8 without NUL: no overlong forms, no surrogates, nothing above U+10FFFF. */
static bool is_text(const uint8_t *s, uint64_t n)
{
    for (uint64_t i = 0; i < n;) {
        uint8_t c = s[i++];
        int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
        if (more < 0 || c == 0 || (uint64_t)more > n - i) return false;
        uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        for (int k = 0; k < more; k++, low = 0x80, high = 0xbf, i++)
            if (s[i] < low || s[i] > high) return false;
    }
    return true;
}

bool onnx_text(OnnxReader *r, const PbField *f, const char **out, Err *err)
{
    TRY(pb_want_bytes(f, err));
    *out = "";
    if (!f->size) return true;
    if (!is_text(f->bytes, f->size))
        return fail(err, E_FORMAT, "byte %llu: field %u is not a string: a NUL byte or invalid UTF-8",
                    (unsigned long long)pb_offset(f), f->number);
    const char *text = arena_strndup(r->a, (const char *)f->bytes, f->size);
    if (!text) return onnx_no_memory(r, err); /* *out stays a text for who says where this was */
    *out = text;
    return true;
}

static bool domain(OnnxReader *r, const PbField *f, const char **out, Err *err)
{
    TRY(onnx_text(r, f, out, err));
    if (!strcmp(*out, "ai.onnx")) *out = "";
    return true;
}

bool onnx_pair(OnnxReader *r, const PbField *field, OnnxPair *out, Err *err)
{
    *out = (OnnxPair){"", ""};
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    for (PbField f; pb_next(&m, &f, err);)
        if (f.number == 1) TRY(onnx_text(r, &f, &out->key, err));
        else if (f.number == 2) TRY(onnx_text(r, &f, &out->value, err));
    return !m.bad;
}

/* ------------------------------------------------------------------ types */

static bool dimension(OnnxReader *r, const PbField *field, OnnxDim *d, Err *err)
{
    TRY(pb_want_bytes(field, err));
    *d = (OnnxDim){.param = ""};
    Pb m = pb_sub(field);
    for (PbField f; pb_next(&m, &f, err);)
        if (f.number == 1) { /* the last of the two wins */
            TRY(pb_int(&f, &d->value, err));
            d->known = true;
            d->param = "";
        } else if (f.number == 2) {
            TRY(onnx_text(r, &f, &d->param, err));
            d->known = false;
            d->value = 0;
        }
    return !m.bad;
}

static bool shape(OnnxReader *r, const PbField *field, OnnxTypeProto *t, Err *err)
{
    TRY(pb_want_bytes(field, err));
    if (t->has_shape) return onnx_once(2, field->number, err);
    t->has_shape = true;
    uint32_t times[2];
    Pb m = pb_sub(field);
    TRY(pb_tally(m, times, 2, err));
    if (times[1] > MAX_RANK) return fail(err, E_UNSUPPORTED, "a shape of more than %d sizes", MAX_RANK);
    TRY(ROOM(r, &t->dim, &t->rank, times[1], err));
    for (PbField f; pb_next(&m, &f, err);) {
        if (f.number != 1) continue;
        if (!dimension(r, &f, &t->dim[t->rank], err)) return within(err, "size %d", t->rank);
        t->rank++;
    }
    return !m.bad;
}

static bool type(OnnxReader *r, const PbField *field, OnnxTypeProto *t, Err *err);

static bool inner_type(OnnxReader *r, const PbField *f, OnnxTypeProto *t, Err *err)
{
    if (t->inner) return onnx_once(2, f->number, err);
    OnnxTypeProto *inner = arena_new(r->a, OnnxTypeProto);
    if (!inner) return onnx_no_memory(r, err);
    if (r->depth >= ONNX_MAX_DEPTH) return fail(err, E_LIMIT, "types more than %d deep", ONNX_MAX_DEPTH);
    t->inner = inner;
    r->depth++;
    bool ok = type(r, f, inner, err);
    r->depth--;
    return ok;
}

static bool type(OnnxReader *r, const PbField *field, OnnxTypeProto *t, Err *err)
{
    static const OnnxKind kinds[10] = {[1] = ONNX_TENSOR, [4] = ONNX_SEQUENCE, [5] = ONNX_MAP,
                                       [7] = ONNX_OPAQUE, [8] = ONNX_SPARSE,   [9] = ONNX_OPTIONAL};
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    for (PbField f; pb_next(&m, &f, err);) {
        OnnxKind kind = f.number < 10 ? kinds[f.number] : ONNX_KIND_NONE;
        if (kind == ONNX_KIND_NONE) continue;
        if (t->kind != ONNX_KIND_NONE)
            return fail(err, E_FORMAT, "byte %llu: a second type for one value", (unsigned long long)pb_offset(&f));
        TRY(pb_want_bytes(&f, err));
        t->kind = kind;
        Pb sub = pb_sub(&f);
        for (PbField g; pb_next(&sub, &g, err);) {
            bool tensor = kind == ONNX_TENSOR || kind == ONNX_SPARSE,
                 holder = kind == ONNX_SEQUENCE || kind == ONNX_OPTIONAL;
            if (tensor && g.number == 1) TRY(pb_int32(&g, &t->elem, err));
            else if (tensor && g.number == 2) TRY(shape(r, &g, t, err));
            else if (holder && g.number == 1) TRY(inner_type(r, &g, t, err));
        }
        if (sub.bad) return false;
    }
    return !m.bad;
}

static bool value_info(OnnxReader *r, const PbField *field, OnnxValueInfo *v, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    v->name = "";
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    TRY(pb_tally(m, times, ONNX_FIELDS, err) && onnx_once(times[2], 2, err) &&
        ROOM(r, &v->metadata, &v->nmetadata, times[4], err));
    for (PbField f; pb_next(&m, &f, err);) switch (f.number) {
        case 1: TRY(onnx_text(r, &f, &v->name, err)); break;
        case 2: TRY(type(r, &f, &v->type, err)); break;
        case 4: TRY(onnx_pair(r, &f, &v->metadata[v->nmetadata++], err)); break;
        default: break;
        }
    return true;
}

/* ------------------------------------------------------------------ attributes */

static bool graph(OnnxReader *r, const PbField *field, OnnxGraph *g, Err *err);

/* The field that a type's value is in. */
static const uint8_t attr_field[] = {[ONNX_ATTR_FLOAT] = 2,          [ONNX_ATTR_INT] = 3,
                                     [ONNX_ATTR_STRING] = 4,         [ONNX_ATTR_TENSOR] = 5,
                                     [ONNX_ATTR_GRAPH] = 6,          [ONNX_ATTR_FLOATS] = 7,
                                     [ONNX_ATTR_INTS] = 8,           [ONNX_ATTR_STRINGS] = 9,
                                     [ONNX_ATTR_TENSORS] = 10,       [ONNX_ATTR_GRAPHS] = 11,
                                     [ONNX_ATTR_SPARSE_TENSOR] = 22, [ONNX_ATTR_SPARSE_TENSORS] = 23,
                                     [ONNX_ATTR_TYPE_PROTO] = 14,    [ONNX_ATTR_TYPE_PROTOS] = 15};
enum { ATTR_TYPES = sizeof attr_field };

/* What kind it is, by what it says and by what it has; one kind of value only. */
static bool attr_type(OnnxAttr *a, const uint32_t *times, int said, Err *err)
{
    int found = 0;
    if (said < 0 || said >= ATTR_TYPES) return fail(err, E_FORMAT, "type %d is not known", said);
    for (int t = 1; t < ATTR_TYPES; t++) {
        if (!times[attr_field[t]]) continue;
        if (found)
            return fail(err, E_FORMAT, "values of two types, in fields %d and %d", attr_field[found], attr_field[t]);
        found = t;
    }
    if (said && found && said != found)
        return fail(err, E_FORMAT, "type %d, but a value in field %d, which is type %d", said, attr_field[found],
                    found);
    a->type = (OnnxAttrType)(said ? said : found);
    bool message = a->type == ONNX_ATTR_TENSOR || a->type == ONNX_ATTR_GRAPH || a->type == ONNX_ATTR_SPARSE_TENSOR ||
                   a->type == ONNX_ATTR_TYPE_PROTO;
    if (message) TRY(onnx_once(times[attr_field[a->type]], attr_field[a->type], err));
    if (message && !found && !*a->ref) return fail(err, E_FORMAT, "no value");
    return true;
}

static bool attr_head(OnnxReader *r, Pb m, OnnxAttr *a, const uint32_t *times, Err *err)
{
    uint64_t n = 0, more;
    int said = 0;
    for (PbField f; pb_next(&m, &f, err);) switch (f.number) {
        case 1: TRY(onnx_text(r, &f, &a->name, err)); break;
        case 21: TRY(onnx_text(r, &f, &a->ref, err)); break;
        case 20: TRY(pb_int32(&f, &said, err)); break;
        case 7:
        case 8:
            TRY(pb_count(&f, f.number == 7 ? PB_FIXED32 : PB_VARINT, &more, err));
            n += more;
            break;
        default: break;
        }
    TRY(attr_type(a, times, said, err));
    if (n > INT32_MAX) return fail(err, E_LIMIT, "more than 2^31 values");
    uint32_t k = times[attr_field[a->type]];
    void *room = NULL;
    switch (a->type) {
    case ONNX_ATTR_FLOATS:
        k = (uint32_t)n;
        room = a->floats = arena_array(r->a, float, n);
        break;
    case ONNX_ATTR_INTS:
        k = (uint32_t)n;
        room = a->ints = arena_array(r->a, int64_t, n);
        break;
    case ONNX_ATTR_STRINGS: room = a->strings = arena_array(r->a, const char *, k); break;
    case ONNX_ATTR_TENSOR:
    case ONNX_ATTR_TENSORS: room = a->t = arena_array(r->kept, OnnxTensor, k); break;
    case ONNX_ATTR_GRAPH:
    case ONNX_ATTR_GRAPHS: room = a->g = arena_array(r->a, OnnxGraph, k); break;
    case ONNX_ATTR_SPARSE_TENSOR:
    case ONNX_ATTR_SPARSE_TENSORS: room = a->sparse = arena_array(r->kept, OnnxSparse, k); break;
    case ONNX_ATTR_TYPE_PROTO:
    case ONNX_ATTR_TYPE_PROTOS: room = a->tp = arena_array(r->a, OnnxTypeProto, k); break;
    default: return true;
    }
    return room || onnx_no_memory(r, err);
}

static bool attr_value(OnnxReader *r, const PbField *f, OnnxAttr *a, uint64_t *n, Err *err)
{
    switch (f->number) {
    case 2: return pb_float(f, &a->f, err);
    case 3: return pb_int(f, &a->i, err);
    case 4:
        TRY(pb_want_bytes(f, err));
        a->slen = f->size;
        a->s = arena_strndup(r->a, (const char *)f->bytes, f->size);
        return a->s || onnx_no_memory(r, err);
    case 5:
    case 10: return pb_want_bytes(f, err) && onnx_tensor(r, pb_sub(f), &a->t[(*n)++], err);
    case 6:
    case 11: return graph(r, f, &a->g[(*n)++], err);
    case 7: return pb_numbers(f, PB_FIXED32, 4, a->floats, n, err);
    case 8: return pb_numbers(f, PB_VARINT, 8, a->ints, n, err);
    case 9: return onnx_text(r, f, &a->strings[(*n)++], err);
    case 14:
    case 15: return type(r, f, &a->tp[(*n)++], err);
    case 22:
    case 23: return pb_want_bytes(f, err) && onnx_sparse(r, pb_sub(f), &a->sparse[(*n)++], err);
    default: return true;
    }
}

static bool attribute(OnnxReader *r, const PbField *field, OnnxAttr *a, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    uint64_t n = 0;
    *a = (OnnxAttr){.name = "", .ref = "", .s = ""};
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    bool ok = pb_tally(m, times, ONNX_FIELDS, err) && attr_head(r, m, a, times, err);
    for (PbField f; ok && pb_next(&m, &f, err);) ok = attr_value(r, &f, a, &n, err);
    a->n = (int)n;
    return ok || inside(r, err, "attribute", -1, a->name);
}

const OnnxAttr *onnx_attr(const OnnxNode *n, const char *name)
{
    for (int i = 0; i < n->nattr; i++)
        if (!strcmp(n->attr[i].name, name)) return &n->attr[i];
    return NULL;
}

/* ------------------------------------------------------------------ graphs */

static bool node(OnnxReader *r, const PbField *field, OnnxNode *n, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    n->name = n->op = n->domain = n->overload = "";
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    TRY(pb_tally(m, times, ONNX_FIELDS, err) && ROOM(r, &n->input, &n->ninput, times[1], err) &&
        ROOM(r, &n->output, &n->noutput, times[2], err) && ROOM(r, &n->attr, &n->nattr, times[5], err) &&
        ROOM(r, &n->metadata, &n->nmetadata, times[9], err));
    for (PbField f; pb_next(&m, &f, err);) switch (f.number) {
        case 1: TRY(onnx_text(r, &f, &n->input[n->ninput++], err)); break;
        case 2: TRY(onnx_text(r, &f, &n->output[n->noutput++], err)); break;
        case 3: TRY(onnx_text(r, &f, &n->name, err)); break;
        case 4: TRY(onnx_text(r, &f, &n->op, err)); break;
        case 5: TRY(attribute(r, &f, &n->attr[n->nattr++], err)); break;
        case 7: TRY(domain(r, &f, &n->domain, err)); break;
        case 8: TRY(onnx_text(r, &f, &n->overload, err)); break;
        case 9: TRY(onnx_pair(r, &f, &n->metadata[n->nmetadata++], err)); break;
        default: break;
        }
    return true;
}

static bool node_at(OnnxReader *r, const PbField *f, OnnxNode *nodes, int *n, Err *err)
{
    OnnxNode *at = &nodes[(*n)++];
    Arena *around = r->a;
    r->a = r->passing;
    bool ok = node(r, f, at, err);
    r->a = around;
    if (ok) return true;
    return inside(r, err, "node", *n - 1, at->name && *at->name ? at->name : at->op);
}

static bool info_at(OnnxReader *r, const PbField *f, OnnxValueInfo *infos, int *n, const char *what, Err *err)
{
    OnnxValueInfo *at = &infos[(*n)++];
    Arena *around = r->a;
    r->a = f->number == 13 ? r->passing : around; /* a graph's value_info; a function's are few */
    bool ok = value_info(r, f, at, err);
    r->a = around;
    return ok || inside(r, err, what, *n - 1, at->name);
}

static bool graph_field(OnnxReader *r, const PbField *f, OnnxGraph *g, Err *err)
{
    if (arena_used(r->kept) + arena_used(r->passing) > r->records) return onnx_no_memory(r, err);
    switch (f->number) {
    case 1: return node_at(r, f, g->node, &g->nnode, err);
    case 2: return onnx_text(r, f, &g->name, err);
    case 5:
        g->ninit++;
        return (pb_want_bytes(f, err) && onnx_tensor(r, pb_sub(f), &g->init[g->ninit - 1], err)) ||
               inside(r, err, "initializer", g->ninit - 1, NULL);
    case 10: return onnx_text(r, f, &g->doc, err);
    case 11: return info_at(r, f, g->input, &g->ninput, "input", err);
    case 12: return info_at(r, f, g->output, &g->noutput, "output", err);
    case 13: return info_at(r, f, g->info, &g->ninfo, "value_info", err);
    case 14: return g->has_quantization = true;
    case 15:
        g->nsparse++;
        return (pb_want_bytes(f, err) && onnx_sparse(r, pb_sub(f), &g->sparse[g->nsparse - 1], err)) ||
               inside(r, err, "sparse_initializer", g->nsparse - 1, NULL);
    case 16: return onnx_pair(r, f, &g->metadata[g->nmetadata++], err);
    default: return true;
    }
}

static bool graph(OnnxReader *r, const PbField *field, OnnxGraph *g, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    g->name = g->doc = "";
    TRY(pb_want_bytes(field, err));
    if (r->depth > ONNX_MAX_DEPTH)
        return fail(err, E_LIMIT, "byte %llu: graphs more than %d deep", (unsigned long long)pb_offset(field),
                    ONNX_MAX_DEPTH);
    Pb m = pb_sub(field);
    TRY(pb_tally(m, times, ONNX_FIELDS, err) &&
        plan(r, (uint64_t)times[1] + times[5], (uint64_t)times[11] + times[12], err) &&
        ROOM_IN(r->passing, r, &g->node, &g->nnode, times[1], err) &&
        ROOM_IN(r->kept, r, &g->init, &g->ninit, times[5], err) &&
        ROOM(r, &g->input, &g->ninput, times[11], err) && ROOM(r, &g->output, &g->noutput, times[12], err) &&
        ROOM_IN(r->passing, r, &g->info, &g->ninfo, times[13], err) &&
        ROOM_IN(r->kept, r, &g->sparse, &g->nsparse, times[15], err) &&
        ROOM(r, &g->metadata, &g->nmetadata, times[16], err));
    bool ok = true;
    r->depth++;
    for (PbField f; ok && pb_next(&m, &f, err);) ok = graph_field(r, &f, g, err);
    r->depth--;
    return ok || inside(r, err, "graph", -1, r->depth ? g->name : NULL);
}

/* ------------------------------------------------------------------ models */

static bool opset(OnnxReader *r, const PbField *field, OnnxOpset *o, Err *err)
{
    o->domain = "";
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    for (PbField f; pb_next(&m, &f, err);)
        if (f.number == 1) TRY(domain(r, &f, &o->domain, err));
        else if (f.number == 2) TRY(pb_int(&f, &o->version, err));
    return !m.bad;
}

static bool function_field(OnnxReader *r, const PbField *f, OnnxFunction *n, Err *err)
{
    switch (f->number) {
    case 1: return onnx_text(r, f, &n->name, err);
    case 4: return onnx_text(r, f, &n->input[n->ninput++], err);
    case 5: return onnx_text(r, f, &n->output[n->noutput++], err);
    case 6: return onnx_text(r, f, &n->attr[n->nattr++], err);
    case 7: return node_at(r, f, n->node, &n->nnode, err);
    case 9: return opset(r, f, &n->opset[n->nopset++], err);
    case 10: return domain(r, f, &n->domain, err);
    case 11: return attribute(r, f, &n->attr_default[n->nattr_default++], err);
    case 12: return info_at(r, f, n->info, &n->ninfo, "value_info", err);
    case 13: return onnx_text(r, f, &n->overload, err);
    default: return true;
    }
}

static bool function(OnnxReader *r, const PbField *field, OnnxFunction *n, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    n->name = n->domain = n->overload = "";
    TRY(pb_want_bytes(field, err));
    Pb m = pb_sub(field);
    TRY(pb_tally(m, times, ONNX_FIELDS, err) && ROOM(r, &n->input, &n->ninput, times[4], err) &&
        ROOM(r, &n->output, &n->noutput, times[5], err) && ROOM(r, &n->attr, &n->nattr, times[6], err) &&
        plan(r, times[7], 0, err) && ROOM_IN(r->passing, r, &n->node, &n->nnode, times[7], err) &&
        ROOM(r, &n->opset, &n->nopset, times[9], err) && ROOM(r, &n->attr_default, &n->nattr_default, times[11], err) &&
        ROOM(r, &n->info, &n->ninfo, times[12], err));
    for (PbField f; pb_next(&m, &f, err);)
        if (!function_field(r, &f, n, err)) return inside(r, err, "function", -1, n->name);
    return true;
}

static bool model_field(OnnxReader *r, const PbField *f, OnnxModel *m, Err *err)
{
    switch (f->number) {
    case 1: return pb_int(f, &m->ir_version, err);
    case 2: return onnx_text(r, f, &m->producer, err);
    case 3: return onnx_text(r, f, &m->producer_version, err);
    case 4: return onnx_text(r, f, &m->domain, err);
    case 5: return pb_int(f, &m->model_version, err);
    case 6: return onnx_text(r, f, &m->doc, err);
    case 7: return graph(r, f, m->graph, err);
    case 8: return opset(r, f, &m->opset[m->nopset++], err);
    case 14: return onnx_pair(r, f, &m->metadata[m->nmetadata++], err);
    case 20: return m->has_training = true;
    case 25: return function(r, f, &m->function[m->nfunction++], err);
    default: return true;
    }
}

static bool model(OnnxReader *r, Pb bytes, OnnxModel *m, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    m->producer = m->producer_version = m->domain = m->doc = "";
    if (bytes.p == bytes.end) return fail(err, E_FORMAT, "an empty file");
    TRY(pb_tally(bytes, times, ONNX_FIELDS, err) && onnx_once(times[7], 7, err));
    if (!times[7]) return fail(err, E_FORMAT, "no graph: not an ONNX model, or cut off");
    TRY(ROOM(r, &m->opset, &m->nopset, times[8], err) && ROOM(r, &m->metadata, &m->nmetadata, times[14], err) &&
        ROOM(r, &m->function, &m->nfunction, times[25], err));
    if (!(m->graph = arena_new(r->a, OnnxGraph))) return onnx_no_memory(r, err);
    for (PbField f; pb_next(&bytes, &f, err);) TRY(model_field(r, &f, m, err));
    return true;
}

/* ------------------------------------------------------------------ files */

static bool read_file(OnnxFile *f, const void *bytes, uint64_t size, const char *folder, bool names_only, Err *err)
{
    const uint64_t few = size < SIZE_MAX / 8 ? size : SIZE_MAX / 8;
    const size_t records = MEMORY_TIMES * few + MEMORY_FREE;
    if (!(f->arena = arena_create(records)) || !(f->passing = arena_create(records))) return oom(err);
    OnnxReader r = {.a = f->arena,
                    .kept = f->arena,
                    .passing = f->passing,
                    .file = f,
                    .folder = folder,
                    .names_only = names_only,
                    .records = records};
    r.most = GRAPH_TIMES * few + GRAPH_FREE;
    bool ok = model(&r, pb_of(bytes, size), &f->model, err);
    f->most = r.most / 4 * 3; /* the rest is that of the records */
    map_free(&r.opened);
    return ok;
}

OnnxFile *onnx_open_bytes(const void *bytes, uint64_t size, const char *folder, Err *err)
{
    OnnxFile *f = mem_zeroed(1, sizeof *f);
    if (!f) {
        oom(err);
        return NULL;
    }
    if (read_file(f, bytes, size, folder, false, err)) return f;
    onnx_close(f);
    return NULL;
}

OnnxFile *onnx_open(const char *path, Err *err)
{
    MappedFile file;
    const char *slash = strrchr(path, '/');
    if (!file_map(&file, path, err)) return NULL;
    char *folder = mem_strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    OnnxFile *f = folder ? onnx_open_bytes(file.data, file.size, folder, err) : NULL;
    if (!folder) oom(err);
    if (f) pages_done(file.data, file.size);
    if (f) f->file = file;
    else file_unmap(&file);
    mem_free(folder);
    return f;
}

bool onnx_data_files(const char *path, void (*each)(void *user, const char *name), void *user, Err *err)
{
    OnnxFile *f = mem_zeroed(1, sizeof *f);
    if (!f) return oom(err);
    bool ok = file_map(&f->file, path, err) && read_file(f, f->file.data, f->file.size, NULL, true, err);
    for (int i = 0; i < f->nexternal; i++) each(user, f->external_name[i]);
    onnx_close(f);
    return ok;
}

void onnx_close(OnnxFile *f)
{
    if (!f) return;
    for (int i = 0; i < f->nexternal; i++) file_unmap(&f->external[i]);
    mem_free(f->external);
    mem_free(f->external_name);
    file_unmap(&f->file);
    arena_destroy(f->arena);
    arena_destroy(f->passing);
    mem_free(f);
}

void onnx_forget_nodes(OnnxFile *f)
{
    OnnxGraph *g = f->model.graph;
    arena_destroy(f->passing);
    f->passing = NULL;
    g->node = NULL;
    g->info = NULL;
    g->nnode = g->ninfo = 0;
    for (int i = 0; i < f->model.nfunction; i++) {
        f->model.function[i].node = NULL;
        f->model.function[i].nnode = 0;
    }
}

/* The fields of ModelProto with their wire types, as far as the given bytes go; at least one. */
bool onnx_looks_like(const void *bytes, uint64_t size)
{
    static const char wires[27] = {[1] = 'v', [2] = 's', [3] = 's',  [4] = 's',  [5] = 'v',  [6] = 's',
                                   [7] = 's', [8] = 's', [14] = 's', [20] = 's', [25] = 's', [26] = 's'};
    const uint8_t *p = bytes, *end = size ? p + size : p;
    Err ignored;
    int fields = 0;
    while (p < end) {
        Pb m = pb_of(p, (uint64_t)(end - p));
        PbField f = {0};
        bool whole = pb_next(&m, &f, &ignored),
             last = !whole && f.number && f.wire == PB_BYTES; /* its bytes go on after those that are given */
        char wire = f.number < sizeof wires ? wires[f.number] : 0;
        if (!whole && !f.number) return fields && (end[-1] & 0x80) && end - p < 5; /* cut in a tag */
        last = last || (!whole && end - p < 12);                                   /* cut in a number */
        if (!wire && fields && whole)
            wire = f.wire == PB_VARINT ? 'v' : f.wire == PB_BYTES ? 's' : '?'; /* of a later version */
        if ((!whole && !last) || wire != (f.wire == PB_VARINT ? 'v' : f.wire == PB_BYTES ? 's' : '?')) return false;
        fields++;
        if (last) break;
        p = m.p;
    }
    return fields > 0;
}
