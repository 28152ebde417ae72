/* Tensors of ONNX files: dtypes, raw, typed and external data, sparse tensors. Contract in onnx.h.
 *
 *     dims 2, 3; data_type FLOAT; raw_data: 24 bytes            borrowed from the file when they are aligned there
 *     dims 3; data_type INT4; int32_data: 0x21, 0x03            two elements a byte, low bits first: 1, 2, 3
 */
#include <string.h>
#include "base/pages.h"
#include "base/mem.h"
#include "base/vec.h"
#include "onnx/wire/onnx_impl.h"

/* Which repeated field holds the elements where raw_data does not. */
enum {
    FLOAT_DATA = 4,
    INT32_DATA = 5,
    STRING_DATA = 6,
    INT64_DATA = 7,
    RAW_DATA = 9,
    DOUBLE_DATA = 10,
    UINT64_DATA = 11,
    DATA_FIELDS = 12
};

static const struct {
    const char *name;
    DType dtype;
    int field, bits;
} types[ONNX_TYPE_COUNT] = {
    [ONNX_UNDEFINED] = {"UNDEFINED", DT_NONE, 0, 0},
    [ONNX_FLOAT] = {"FLOAT", DT_F32, FLOAT_DATA, 8},
    [ONNX_UINT8] = {"UINT8", DT_U8, INT32_DATA, 8},
    [ONNX_INT8] = {"INT8", DT_I8, INT32_DATA, 8},
    [ONNX_UINT16] = {"UINT16", DT_U16, INT32_DATA, 8},
    [ONNX_INT16] = {"INT16", DT_I16, INT32_DATA, 8},
    [ONNX_INT32] = {"INT32", DT_I32, INT32_DATA, 8},
    [ONNX_INT64] = {"INT64", DT_I64, INT64_DATA, 8},
    [ONNX_STRING] = {"STRING", DT_NONE, STRING_DATA, 8},
    [ONNX_BOOL] = {"BOOL", DT_BOOL, INT32_DATA, 8},
    [ONNX_FLOAT16] = {"FLOAT16", DT_F16, INT32_DATA, 8},
    [ONNX_DOUBLE] = {"DOUBLE", DT_F64, DOUBLE_DATA, 8},
    [ONNX_UINT32] = {"UINT32", DT_U32, UINT64_DATA, 8},
    [ONNX_UINT64] = {"UINT64", DT_U64, UINT64_DATA, 8},
    [ONNX_COMPLEX64] = {"COMPLEX64", DT_C64, FLOAT_DATA, 8},
    [ONNX_COMPLEX128] = {"COMPLEX128", DT_C128, DOUBLE_DATA, 8},
    [ONNX_BFLOAT16] = {"BFLOAT16", DT_BF16, INT32_DATA, 8},
    [ONNX_FLOAT8E4M3FN] = {"FLOAT8E4M3FN", DT_F8E4M3, INT32_DATA, 8},
    [ONNX_FLOAT8E4M3FNUZ] = {"FLOAT8E4M3FNUZ", DT_F8E4M3FNUZ, INT32_DATA, 8},
    [ONNX_FLOAT8E5M2] = {"FLOAT8E5M2", DT_F8E5M2, INT32_DATA, 8},
    [ONNX_FLOAT8E5M2FNUZ] = {"FLOAT8E5M2FNUZ", DT_F8E5M2FNUZ, INT32_DATA, 8},
    [ONNX_UINT4] = {"UINT4", DT_U4, INT32_DATA, 4},
    [ONNX_INT4] = {"INT4", DT_I4, INT32_DATA, 4},
    [ONNX_FLOAT4E2M1] = {"FLOAT4E2M1", DT_F4E2M1, INT32_DATA, 4},
    [ONNX_FLOAT8E8M0] = {"FLOAT8E8M0", DT_F8E8M0, INT32_DATA, 8},
    [ONNX_UINT2] = {"UINT2", DT_U2, INT32_DATA, 2},
    [ONNX_INT2] = {"INT2", DT_I2, INT32_DATA, 2},
};

static bool known(int type) { return type >= 0 && type < ONNX_TYPE_COUNT; }
DType dtype_from_onnx(int type) { return known(type) ? types[type].dtype : DT_NONE; }
const char *onnx_type_name(int type) { return known(type) ? types[type].name : "?"; }
int onnx_bits(int type) { return known(type) ? types[type].bits : 8; }

int dtype_to_onnx(DType t)
{
    for (int i = 1; t != DT_NONE && i < ONNX_TYPE_COUNT; i++)
        if (types[i].dtype == t) return i;
    return ONNX_UNDEFINED;
}

static const char *field_name(int field)
{
    return field == FLOAT_DATA    ? "float_data"
           : field == INT32_DATA  ? "int32_data"
           : field == STRING_DATA ? "string_data"
           : field == INT64_DATA  ? "int64_data"
           : field == DOUBLE_DATA ? "double_data"
           : field == UINT64_DATA ? "uint64_data"
                                  : "raw_data";
}

void onnx_pack(const uint8_t *from, uint64_t n, int bits, uint8_t *to)
{
    unsigned per = 8u / (unsigned)bits, mask = (1u << bits) - 1;
    memset(to, 0, (n + per - 1) / per);
    for (uint64_t i = 0; i < n; i++)
        to[i / per] = (uint8_t)(to[i / per] | (from[i] & mask) << i % per * (unsigned)bits);
}

void onnx_unpack(const uint8_t *from, uint64_t n, int type, uint8_t *to)
{
    unsigned bits = (unsigned)onnx_bits(type), per = 8 / bits, mask = (1u << bits) - 1,
             sign = type == ONNX_INT4 || type == ONNX_INT2 ? 1u << (bits - 1) : 0;
    for (uint64_t i = 0; i < n; i++) {
        unsigned v = (unsigned)from[i / per] >> i % per * bits & mask;
        to[i] = (uint8_t)((v ^ sign) - sign);
    }
}

/* ------------------------------------------------------------------ one tensor's fields */

typedef struct Parts {
    uint64_t elements[DATA_FIELDS]; /* numbers in each typed field */
    PbField raw;
    bool has_raw, external;
    uint32_t times[ONNX_FIELDS];
} Parts;

static PbWire wire_of(int field)
{
    return field == FLOAT_DATA ? PB_FIXED32 : field == DOUBLE_DATA ? PB_FIXED64 : PB_VARINT;
}

static bool dims(const PbField *f, int *rank, int64_t *dim, Err *err)
{
    uint64_t more, n = (uint64_t)*rank;
    TRY(pb_count(f, PB_VARINT, &more, err));
    if (more > MAX_RANK - n)
        return fail(err, E_UNSUPPORTED, "rank %llu: at most %d is supported", (unsigned long long)(n + more), MAX_RANK);
    TRY(pb_numbers(f, PB_VARINT, 8, dim, &n, err));
    *rank = (int)n;
    return true;
}

static bool first_pass(OnnxReader *r, Pb m, OnnxTensor *t, Parts *parts, Err *err)
{
    TRY(pb_tally(m, parts->times, ONNX_FIELDS, err));
    for (PbField f; pb_next(&m, &f, err);) {
        uint64_t n = 1;
        int location;
        switch (f.number) {
        case 1: TRY(dims(&f, &t->t.rank, t->t.shape, err)); break;
        case 2: TRY(pb_int32(&f, &t->type, err)); break;
        case 3: return fail(err, E_UNSUPPORTED, "a tensor in segments");
        case 8: TRY(onnx_text(r, &f, &t->name, err)); break;
        case RAW_DATA:
            TRY(pb_want_bytes(&f, err));
            parts->raw = f;
            parts->has_raw = true;
            break;
        case FLOAT_DATA:
        case INT32_DATA:
        case INT64_DATA:
        case DOUBLE_DATA:
        case UINT64_DATA:
            TRY(pb_count(&f, wire_of((int)f.number), &n, err));
            parts->elements[f.number] += n;
            break;
        case STRING_DATA:
            TRY(pb_want_bytes(&f, err));
            parts->elements[f.number]++;
            break;
        case 14:
            TRY(pb_int32(&f, &location, err));
            if (location != 0 && location != 1)
                return fail(err, E_FORMAT, "data_location is %d, expected 0 (here) or 1 (in another file)", location);
            parts->external = location == 1;
            break;
        default: break;
        }
    }
    return true;
}

/* The one field that holds elements: 0 for none, as tensors without any have. */
static bool data_field(const OnnxTensor *t, const Parts *p, int *field, Err *err)
{
    *field = 0;
    for (int i = 0; i < DATA_FIELDS; i++) {
        if (!p->elements[i]) continue;
        if (*field) return fail(err, E_FORMAT, "%s and %s both have elements", field_name(*field), field_name(i));
        *field = i;
    }
    if (p->has_raw && *field && p->raw.size)
        return fail(err, E_FORMAT, "%s and raw_data both have elements", field_name(*field));
    if (p->external && (*field || (p->has_raw && p->raw.size)))
        return fail(err, E_FORMAT, "elements both here and in another file");
    if (p->has_raw && t->type == ONNX_STRING && p->raw.size)
        return fail(err, E_FORMAT, "strings in raw_data, expected string_data");
    if (*field && *field != types[t->type].field)
        return fail(err, E_FORMAT, "elements in %s; those of %s belong into raw_data or %s", field_name(*field),
                    onnx_type_name(t->type), field_name(types[t->type].field));
    return true;
}

/* ------------------------------------------------------------------ elements */

static bool wrong_size(const OnnxTensor *t, const char *where, uint64_t have, uint64_t need, const char *unit, Err *err)
{
    char shape[512];
    Tensor as = t->t;
    tensor_describe(&as, shape, sizeof shape);
    return fail(err, E_FORMAT, "%s holds %llu %s, %s%s needs %llu", where, (unsigned long long)have, unit,
                t->t.dtype == DT_NONE ? "strings " : "", t->t.dtype == DT_NONE ? strchr(shape, '[') : shape,
                (unsigned long long)need);
}

/* t's elements from bytes that hold them as a file does: low bytes first, small ones packed.
 * Borrowed where they can be used as they are. */
static bool place(OnnxReader *r, OnnxTensor *t, const uint8_t *bytes, Err *err)
{
    size_t n = tensor_bytes(&t->t), size = dtype_size(t->t.dtype);
    int bits = onnx_bits(t->type);
    bool as_is = bits == 8 && (uintptr_t)bytes % size == 0;
    for (size_t i = 0; as_is && t->type == ONNX_BOOL && i < n; i++) as_is = bytes[i] <= 1;
    if (as_is) {
        t->t.data = (void *)(uintptr_t)bytes;
        return true;
    }
    uint8_t *copy = arena_alloc(r->a, n, 1);
    if (!copy) return onnx_no_memory(r, err);
    t->t.data = copy;
    if (bits < 8) onnx_unpack(bytes, n, t->type, copy);
    else if (n) {
        pages_soon(bytes, n);
        memcpy(copy, bytes, n);
    }
    for (size_t i = 0; t->type == ONNX_BOOL && i < n; i++) copy[i] = copy[i] != 0;
    return true;
}

static bool typed_elements(OnnxReader *r, Pb m, OnnxTensor *t, int field, Err *err)
{
    size_t n = tensor_bytes(&t->t), width = dtype_size(t->t.dtype);
    int bits = onnx_bits(t->type);
    bool pairs = dtype_is_complex(t->t.dtype);
    size_t numbers = bits < 8 ? (n * (size_t)bits + 7) / 8 : n / width * (pairs ? 2 : 1);
    uint8_t *out = arena_alloc(r->a, n, 1), *packed = bits < 8 ? arena_alloc(r->a, numbers, 1) : out;
    uint64_t done = 0;
    if (!out || !packed) return onnx_no_memory(r, err);
    for (PbField f; pb_next(&m, &f, err);)
        if (f.number == (uint32_t)field)
            TRY(pb_numbers(&f, wire_of(field), (int)(pairs ? width / 2 : width), packed, &done, err));
    if (bits < 8) onnx_unpack(packed, n, t->type, out);
    for (size_t i = 0; t->type == ONNX_BOOL && i < n; i++) out[i] = out[i] != 0;
    t->t.data = out;
    return true;
}

static bool strings(OnnxReader *r, Pb m, OnnxTensor *t, uint64_t have, Err *err)
{
    size_t need;
    TRY(shape_bytes(DT_U8, t->t.rank, t->t.shape, &need, err));
    if (have != need) return wrong_size(t, "string_data", have, need, "elements", err);
    if (need > INT32_MAX) return fail(err, E_LIMIT, "more than 2^31 strings");
    TRY(ROOM(r, &t->string, &t->nstring, need, err));
    for (PbField f; pb_next(&m, &f, err);)
        if (f.number == STRING_DATA) TRY(onnx_text(r, &f, &t->string[t->nstring++], err));
    return true;
}

/* ------------------------------------------------------------------ data in another file */

static bool decimal(const OnnxPair *p, uint64_t *v, Err *err)
{
    *v = 0;
    for (const char *s = p->value; *s; s++)
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(*v, 10u, v) ||
            __builtin_add_overflow(*v, (unsigned)(*s - '0'), v))
            return fail(err, E_FORMAT, "external data: %s is '%.40s', expected a number below 2^64", p->key, p->value);
    return *p->value || fail(err, E_FORMAT, "external data: %s is empty, expected a number", p->key);
}

static bool open_data(OnnxReader *r, const char *location, const MappedFile **out, Err *err)
{
    OnnxFile *f = r->file;
    uintptr_t at = (uintptr_t)map_get(&r->opened, location);
    if (!at) {
        int n = f->nexternal;
        MappedFile *files = vec_grow(f->external, n, sizeof *files);
        if (files) f->external = files;
        const char **names = vec_grow(f->external_name, n, sizeof *names);
        if (names) f->external_name = names;
        if (!files || !names) return oom(err);
        f->external[n] = (MappedFile){0};
        if (!r->names_only && !file_map_inside(&f->external[n], r->folder, location, err))
            return within(err, "external data");
        f->external_name[n] = location;
        f->nexternal++;
        at = (uintptr_t)n + 1;
        uint64_t more;
        if (__builtin_mul_overflow(f->external[n].size, 4u, &more)) more = SIZE_MAX / 2;
        arena_allow(r->kept, more);
        if (!add_size(r->records, more, &r->records)) r->records = SIZE_MAX;
        if (!map_put(&r->opened, location, (void *)at)) return oom(err);
    }
    *out = &f->external[at - 1];
    return true;
}

static bool external_elements(OnnxReader *r, Pb m, OnnxTensor *t, uint64_t need, Err *err)
{
    const MappedFile *file = NULL;
    bool has_length = false;
    t->external = true;
    t->location = "";
    for (PbField f; pb_next(&m, &f, err);) {
        OnnxPair p;
        if (f.number != 13) continue;
        TRY(onnx_pair(r, &f, &p, err));
        if (!strcmp(p.key, "location")) t->location = p.value;
        else if (!strcmp(p.key, "offset")) TRY(decimal(&p, &t->offset, err));
        else if (!strcmp(p.key, "length")) TRY((has_length = true) && decimal(&p, &t->length, err));
        else if (strcmp(p.key, "checksum"))
            return fail(err, E_FORMAT,
                        "external data: the key '%.40s' is not known (location, offset, length, checksum)", p.key);
    }
    if (t->type == ONNX_STRING) return fail(err, E_FORMAT, "strings in external data, expected string_data");
    if (!*t->location) return fail(err, E_FORMAT, "external data without a location");
    if (has_length && t->length != need) return wrong_size(t, "external data", t->length, need, "bytes", err);
    t->length = need;
    if (!r->file || !(r->folder || r->names_only))
        return fail(err, E_FORMAT, "external data in '%s', and there is no folder: the model came as bytes",
                    t->location);
    TRY(open_data(r, t->location, &file, err));
    if (r->names_only) return true;
    if (!in_range_u64(t->offset, need, file->size))
        return fail(err, E_FORMAT, "external data: bytes %llu to %llu + %llu are outside '%s', which has %llu",
                    (unsigned long long)t->offset, (unsigned long long)t->offset, (unsigned long long)need, t->location,
                    (unsigned long long)file->size);
    return place(r, t, need ? file->data + t->offset : (const uint8_t *)"", err);
}

/* ------------------------------------------------------------------ tensors */

static bool metadata(OnnxReader *r, Pb m, OnnxTensor *t, uint32_t n, Err *err)
{
    TRY(ROOM(r, &t->metadata, &t->nmetadata, n, err));
    for (PbField f; n && pb_next(&m, &f, err);)
        if (f.number == 16) TRY(onnx_pair(r, &f, &t->metadata[t->nmetadata++], err));
    return true;
}

static bool elements(OnnxReader *r, Pb m, OnnxTensor *t, const Parts *p, Err *err)
{
    int field;
    size_t bytes;
    if (!known(t->type)) return fail(err, E_UNSUPPORTED, "data_type %d is not known", t->type);
    if (t->type == ONNX_UNDEFINED) return fail(err, E_FORMAT, "data_type is missing or UNDEFINED");
    TRY(data_field(t, p, &field, err));
    if (t->type == ONNX_STRING && !p->external) return strings(r, m, t, p->elements[STRING_DATA], err);
    t->t.dtype = types[t->type].dtype;
    TRY(shape_bytes(t->type == ONNX_STRING ? DT_U8 : t->t.dtype, t->t.rank, t->t.shape, &bytes, err));
    strides_contiguous(t->t.rank, t->t.shape, t->t.stride);
    uint64_t bits = (uint64_t)onnx_bits(t->type), need = (bytes * bits + 7) / 8;
    if (p->external) return external_elements(r, m, t, need, err);
    if (field) {
        uint64_t numbers = bits < 8 ? need : bytes / dtype_size(t->t.dtype) * (dtype_is_complex(t->t.dtype) ? 2 : 1);
        if (p->elements[field] != numbers)
            return wrong_size(t, field_name(field), p->elements[field], numbers, "values", err);
        return typed_elements(r, m, t, field, err);
    }
    if (p->raw.size != need)
        return wrong_size(t, p->has_raw ? "raw_data" : "the tensor", p->raw.size, need, "bytes", err);
    return place(r, t, need ? p->raw.bytes : (const uint8_t *)"", err);
}

bool onnx_tensor(OnnxReader *r, Pb m, OnnxTensor *t, Err *err)
{
    Parts p = {0};
    *t = (OnnxTensor){.name = "", .location = ""};
    Arena *around = r->a;
    r->a = r->kept;
    bool ok = first_pass(r, m, t, &p, err) && elements(r, m, t, &p, err) && metadata(r, m, t, p.times[16], err);
    r->a = around;
    return ok || (*t->name ? within(err, "tensor '%s'", t->name) : false);
}

bool onnx_read_tensor(Arena *a, const void *bytes, uint64_t size, OnnxTensor *out, Err *err)
{
    OnnxReader r = {.a = a, .kept = a, .passing = a};
    return onnx_tensor(&r, pb_of(bytes, size), out, err);
}

/* ------------------------------------------------------------------ sparse tensors */

/* indices: (n) into the flattened tensor or (n, rank), ascending. */
static bool check_indices(const OnnxSparse *s, Err *err)
{
    const Tensor *v = &s->values.t, *x = &s->indices.t;
    int64_t n = v->rank ? v->shape[0] : 0, before = -1, last = 1;
    bool flat = x->rank == 1;
    if (v->rank != 1 || s->indices.type != ONNX_INT64 || x->rank < 1 || x->rank > 2 || x->shape[0] != n ||
        (!flat && x->shape[1] != s->rank))
        return fail(err, E_FORMAT, "a sparse tensor of rank %d needs n values and n or n x %d indices of INT64",
                    s->rank, s->rank);
    for (int k = 0; k < s->rank; k++) last *= s->dim[k];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int64_t k = 0; k < (flat ? 1 : s->rank); k++) {
            int64_t index = tensor_get_i64(x, flat ? i : i * s->rank + k), size = flat ? last : s->dim[k];
            if (index < 0 || index >= size)
                return fail(err, E_FORMAT, "index %lld of a sparse tensor is %lld, its size %lld", (long long)i,
                            (long long)index, (long long)size);
            at = flat ? index : at * size + index;
        }
        if (at <= before)
            return fail(err, E_FORMAT, "index %lld of a sparse tensor does not come after the one before it",
                        (long long)i);
        before = at;
    }
    return true;
}

bool onnx_sparse(OnnxReader *r, Pb m, OnnxSparse *s, Err *err)
{
    uint32_t times[ONNX_FIELDS];
    size_t bytes;
    Pb again = m;
    TRY(pb_tally(m, times, ONNX_FIELDS, err) && onnx_once(times[1], 1, err) && onnx_once(times[2], 2, err));
    if (!times[1] || !times[2])
        return fail(err, E_FORMAT, "a sparse tensor without %s", times[1] ? "indices" : "values");
    for (PbField f; pb_next(&again, &f, err);) switch (f.number) {
        case 1:
            TRY((pb_want_bytes(&f, err) && onnx_tensor(r, pb_sub(&f), &s->values, err)) || within(err, "values"));
            break;
        case 2:
            TRY((pb_want_bytes(&f, err) && onnx_tensor(r, pb_sub(&f), &s->indices, err)) || within(err, "indices"));
            break;
        case 3: TRY(dims(&f, &s->rank, s->dim, err)); break;
        default: break;
        }
    TRY(shape_bytes(s->values.t.dtype == DT_NONE ? DT_U8 : s->values.t.dtype, s->rank, s->dim, &bytes, err));
    return (r->names_only && s->indices.external) || check_indices(s, err);
}
