/* .safetensors: u64 header length, a JSON object {name: {dtype, shape, data_offsets}}, then the bytes.
 * https://github.com/huggingface/safetensors#format */
#include <stdlib.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/tensors_impl.h"

enum { MAX_HEADER = 100000000, FREE_BYTES = 32 << 20 };

static DType dtype_of(const char *name)
{
    for (int t = DT_NONE + 1; t < DT_COUNT; t++)
        if (dtype_safetensors((DType)t) && !strcmp(dtype_safetensors((DType)t), name)) return (DType)t;
    return DT_NONE;
}

static bool read_tensor(const json_t *info, Tensor *t, int64_t span[2], Err *err)
{
    const char *dtype;
    json_t *shape, *offsets;
    TRY(json_want_string(info, "dtype", &dtype, err));
    TRY(json_want_array(info, "shape", &shape, err));
    TRY(json_want_array(info, "data_offsets", &offsets, err));
    if (json_array_size(shape) > MAX_RANK)
        return fail(err, E_UNSUPPORTED, "rank %zu: at most %d is supported", json_array_size(shape), MAX_RANK);
    *t = (Tensor){.dtype = dtype_of(dtype), .rank = (int)json_array_size(shape)};
    if (t->dtype == DT_NONE) return fail(err, E_UNSUPPORTED, "dtype '%.20s' is not known", dtype);
    for (int i = 0; i < t->rank; i++) {
        const json_t *v = json_array_get(shape, (size_t)i);
        if (!json_is_integer(v)) return fail(err, E_FORMAT, "size %d is %s, expected an integer", i, json_kind(v));
        t->shape[i] = json_integer_value(v);
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(offsets, i);
        if (!json_is_integer(v) || json_array_size(offsets) != 2)
            return fail(err, E_FORMAT, "data_offsets must be two integers");
        span[i] = json_integer_value(v);
    }
    return true;
}

typedef struct Span {
    int64_t begin, end;
    const char *name;
} Span;

/* Tensors without elements take more memory than file: with as many as that, it is out of proportion. */
static bool few_enough(size_t n, uint64_t size, Err *err)
{
    const uint64_t each = sizeof(Tensor) + sizeof(Span) + 32; /* with a name */
    return n <= (size + FREE_BYTES) / each ||
           fail(err, E_LIMIT, "%zu tensors in a file of %llu bytes: at most %llu are read", n,
                (unsigned long long)size, (unsigned long long)((size + FREE_BYTES) / each));
}

static int by_begin(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : x->end < y->end ? -1 : x->end > y->end;
}

static bool check_metadata(const json_t *metadata, Err *err)
{
    const char *key;
    json_t *v;
    if (!json_is_object(metadata))
        return fail(err, E_FORMAT, "__metadata__: found %s, expected an object of strings", json_kind(metadata));
    json_object_foreach((json_t *)(uintptr_t)metadata, key, v) if (!json_is_string(v)) return fail(
        err, E_FORMAT, "__metadata__: '%s' is %s, expected a string", key, json_kind(v));
    return true;
}

/* As the reference implementation wants it: the tensors fill the bytes after the header, in some order,
 * without overlaps or gaps. */
static bool check_cover(Span *spans, size_t n, uint64_t size, Err *err)
{
    int64_t at = 0;
    qsort(spans, n, sizeof *spans, by_begin);
    for (size_t i = 0; i < n; at = spans[i++].end) {
        if (spans[i].begin < at)
            return fail(err, E_FORMAT, "tensors '%s' and '%s' overlap", spans[i - 1].name, spans[i].name);
        if (spans[i].begin > at)
            return fail(
                err, E_FORMAT,
                "tensor '%s' begins at byte %lld of the data, %lld was expected: bytes that belong to no tensor",
                spans[i].name, (long long)spans[i].begin, (long long)at);
    }
    if ((uint64_t)at != size)
        return fail(err, E_FORMAT, "the tensors end at byte %lld of the data, the file has %llu", (long long)at,
                    (unsigned long long)size);
    return true;
}

static bool read_header(TensorFile *f, const json_t *header, const unsigned char *data, uint64_t size, Span *spans,
                        Err *err)
{
    const char *name;
    json_t *info;
    json_object_foreach((json_t *)(uintptr_t)header, name, info)
    {
        if (!strcmp(name, "__metadata__")) {
            TRY(check_metadata(info, err));
            f->metadata = info;
            continue;
        }
        Tensor *t = &f->tensor[f->n];
        int64_t span[2];
        size_t bytes;
        if (!read_tensor(info, t, span, err) || !shape_bytes(t->dtype, t->rank, t->shape, &bytes, err))
            return within(err, "tensor '%s'", name);
        if (span[0] < 0 || span[1] < span[0] || (uint64_t)span[1] > size)
            return fail(err, E_FORMAT, "tensor '%s': bytes %lld to %lld are outside the file's %llu", name,
                        (long long)span[0], (long long)span[1], (unsigned long long)size);
        if ((uint64_t)(span[1] - span[0]) != bytes)
            return fail(err, E_FORMAT, "tensor '%s': %lld bytes, but its shape and dtype need %zu", name,
                        (long long)(span[1] - span[0]), bytes);
        strides_contiguous(t->rank, t->shape, t->stride);
        TRY(tensorfile_place(f, t, data + span[0], bytes, err));
        f->name[f->n] = arena_strdup(f->arena, name);
        if (!f->name[f->n]) return oom(err);
        spans[f->n] = (Span){span[0], span[1], f->name[f->n]};
        f->n++;
    }
    return check_cover(spans, f->n, size, err);
}

/* What a file is that does not hold tensors, as far as its first bytes tell. */
static const char *kind_of(const unsigned char *p, uint64_t size)
{
    static const struct {
        const char *bytes, *kind;
    } known[] = {{"\x89PNG", "a PNG image"},
                 {"\xff\xd8\xff", "a JPEG image"},
                 {"\x1f\x8b", "a gzip archive"},
                 {"\x89HDF", "an HDF5 file"},
                 {"\x80\x02", "a pickle"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!memcmp(p, known[i].bytes, strlen(known[i].bytes))) return known[i].kind;
    if (p[0] == 8 && p[2] == 0x12) return "an ONNX model"; /* ir_version, producer_name */
    bool text = true;
    for (uint64_t i = 0; i < size && i < 256 && text; i++) text = p[i] >= ' ' || (p[i] >= '\t' && p[i] <= '\r');
    return text ? "a text" : "something else";
}

bool safetensors_read(TensorFile *f, Err *err)
{
    uint64_t n;
    if (f->file.size < 8)
        return fail(err, E_FORMAT, "%llu bytes: neither .safetensors, .npz nor .npy", (unsigned long long)f->file.size);
    memcpy(&n, f->file.data, 8);
    const bool cut = n > f->file.size - 8 || n > MAX_HEADER;
    if (cut && (f->file.size == 8 || f->file.data[8] != '{'))
        return fail(err, E_FORMAT, "it is %s, expected a file of tensors: .safetensors, .npz or .npy",
                    kind_of(f->file.data, f->file.size));
    if (cut)
        return fail(err, E_FORMAT, "neither .safetensors, .npz nor .npy: a header of %llu bytes in a file of %llu",
                    (unsigned long long)n, (unsigned long long)f->file.size);
    json_t *header = json_read(f->file.data + 8, n, "header", err);
    if (!header) return false;
    bool ok = json_is_object(header) || fail(err, E_FORMAT, "the header is %s, expected an object", json_kind(header));
    ok = ok && few_enough(json_object_size(header), f->file.size, err);
    Span *spans = ok ? mem_zeroed(json_object_size(header) + 1, sizeof *spans) : NULL;
    if (ok && !spans) ok = oom(err);
    ok = ok && tensorfile_room(f, json_object_size(header), err) &&
         read_header(f, header, f->file.data + 8 + n, f->file.size - 8 - n, spans, err);
    mem_free(spans);
    if (f->metadata) f->header = header;
    else json_free(header);
    return ok;
}

/* Wide elements first, so that every tensor is aligned; the header keeps the caller's order. */
static const size_t widths[] = {16, 8, 4, 2, 1};
enum { WIDTHS = sizeof widths / sizeof *widths };

static bool check_names(const char *const *names, size_t n, Err *err)
{
    Map seen = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        if (!json_is_utf8(names[i]) || !strcmp(names[i], "__metadata__"))
            ok = fail(err, E_USAGE, "'%s' cannot name a tensor in a .safetensors", names[i]);
        else if (map_has(&seen, names[i])) ok = fail(err, E_USAGE, "two tensors named '%s'", names[i]);
        else if (!map_put(&seen, names[i], (void *)(uintptr_t)names[i])) ok = oom(err);
    }
    map_free(&seen);
    return ok;
}

static void put_header(Buf *h, const char *const *names, const Tensor *tensors, const uint64_t *begin, size_t n)
{
    jw_open(h, NULL, '{');
    for (size_t i = 0; i < n; i++) {
        const Tensor *t = &tensors[i];
        jw_open(h, names[i], '{');
        jw_text(h, "dtype", dtype_safetensors(t->dtype));
        jw_ints(h, "shape", t->shape, t->rank);
        jw_open(h, "data_offsets", '[');
        jw_int(h, NULL, (int64_t)begin[i]);
        jw_int(h, NULL, (int64_t)(begin[i] + tensor_bytes(t)));
        jw_close(h, "]}");
    }
    jw_close(h, "}");
    jw_compact(h);
    while (!h->failed && h->len % 8) buf_puts(h, " ");
}

bool safetensors_write(OutFile *o, const char *const *names, const Tensor *tensors, size_t n, Err *err)
{
    Buf h = {0};
    TRY(check_names(names, n, err));
    uint64_t at = 0, length, *begin = mem_zeroed(n + 1, sizeof *begin);
    if (!begin) return oom(err);
    for (int w = 0; w < WIDTHS; w++)
        for (size_t i = 0; i < n; i++) {
            if (dtype_size(tensors[i].dtype) != widths[w]) continue;
            begin[i] = at;
            at += tensor_bytes(&tensors[i]);
        }
    put_header(&h, names, tensors, begin, n);
    mem_free(begin);
    length = h.len;
    bool ok = (!h.failed || oom(err)) && outfile_write(o, &length, 8, err) && outfile_write(o, h.data, h.len, err);
    for (int w = 0; w < WIDTHS; w++)
        for (size_t i = 0; ok && i < n; i++)
            if (dtype_size(tensors[i].dtype) == widths[w])
                ok = outfile_write(o, tensors[i].data, tensor_bytes(&tensors[i]), err);
    buf_free(&h);
    return ok;
}
