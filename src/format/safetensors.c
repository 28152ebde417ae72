/* .safetensors: u64 header length, a JSON object {name: {dtype, shape, data_offsets}}, then the bytes.
 * https://github.com/huggingface/safetensors#format */
#include <stdlib.h>
#include <string.h>
#include "format/tensors_impl.h"

enum { MAX_HEADER = 100000000 };

static bool read_tensor(const json_t *info, Tensor *t, int64_t span[2], Err *err)
{
    const char *dtype;
    json_t *shape, *offsets;
    TRY(json_want_string(info, "dtype", &dtype, err));
    TRY(json_want_array(info, "shape", &shape, err));
    TRY(json_want_array(info, "data_offsets", &offsets, err));
    *t = (Tensor){.dtype = dtype_from_name(dtype), .rank = (int)json_array_size(shape)};
    if (t->dtype == DT_NONE) return fail(err, E_UNSUPPORTED, "dtype '%.20s' is not known", dtype);
    if (json_array_size(shape) > MAX_RANK) return fail(err, E_UNSUPPORTED, "rank %zu: at most %d is supported", json_array_size(shape), MAX_RANK);
    for (int i = 0; i < t->rank; i++) {
        const json_t *v = json_array_get(shape, (size_t)i);
        if (!json_is_integer(v)) return fail(err, E_FORMAT, "size %d is %s, expected an integer", i, json_kind(v));
        t->shape[i] = json_integer_value(v);
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(offsets, i);
        if (!json_is_integer(v) || json_array_size(offsets) != 2) return fail(err, E_FORMAT, "data_offsets must be two integers");
        span[i] = json_integer_value(v);
    }
    strides_contiguous(t->rank, t->shape, t->stride);
    return true;
}

typedef struct Span {
    int64_t begin, end;
    const char *name;
} Span;

static int by_begin(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : x->end < y->end ? -1 : x->end > y->end;
}

static bool read_header(TensorFile *f, const json_t *header, const unsigned char *data, uint64_t size, Span *spans, Err *err)
{
    const char *name;
    json_t *info;
    json_object_foreach((json_t *)(uintptr_t)header, name, info) {
        if (!strcmp(name, "__metadata__")) {
            f->metadata = json_incref(info);
            continue;
        }
        Tensor *t = &f->tensor[f->n];
        int64_t span[2];
        size_t bytes;
        if (!read_tensor(info, t, span, err) || !shape_bytes(t->dtype, t->rank, t->shape, &bytes, err)) return within(err, "tensor '%s'", name);
        if (span[0] < 0 || span[1] < span[0] || (uint64_t)span[1] > size)
            return fail(err, E_FORMAT, "tensor '%s': bytes %lld to %lld are outside the file's %llu", name, (long long)span[0], (long long)span[1],
                        (unsigned long long)size);
        if ((uint64_t)(span[1] - span[0]) != bytes)
            return fail(err, E_FORMAT, "tensor '%s': %lld bytes, but its shape and dtype need %zu", name, (long long)(span[1] - span[0]), bytes);
        t->data = (void *)(uintptr_t)(data + span[0]);
        f->name[f->n] = arena_strdup(f->arena, name);
        if (!f->name[f->n]) return fail(err, E_LIMIT, "out of memory");
        spans[f->n] = (Span){span[0], span[1], f->name[f->n]};
        f->n++;
    }
    qsort(spans, f->n, sizeof *spans, by_begin);
    for (size_t i = 1; i < f->n; i++)
        if (spans[i].begin < spans[i - 1].end) return fail(err, E_FORMAT, "tensors '%s' and '%s' overlap", spans[i - 1].name, spans[i].name);
    return true;
}

bool safetensors_read(TensorFile *f, Err *err)
{
    uint64_t n;
    if (f->file.size < 8) return fail(err, E_FORMAT, "%llu bytes: neither .safetensors, .npz nor .npy", (unsigned long long)f->file.size);
    memcpy(&n, f->file.data, 8);
    if (n > f->file.size - 8 || n > MAX_HEADER)
        return fail(err, E_FORMAT, "neither .safetensors, .npz nor .npy: a header of %llu bytes in a file of %llu", (unsigned long long)n,
                    (unsigned long long)f->file.size);
    json_t *header = json_read(f->file.data + 8, n, "header", err);
    if (!header) return false;
    Span *spans = calloc(json_object_size(header) + 1, sizeof *spans);
    bool ok = json_is_object(header) || fail(err, E_FORMAT, "the header is %s, expected an object", json_kind(header));
    if (ok && !spans) ok = fail(err, E_LIMIT, "out of memory");
    ok = ok && tensorfile_room(f, json_object_size(header), err) && read_header(f, header, f->file.data + 8 + n, f->file.size - 8 - n, spans, err);
    free(spans);
    json_decref(header);
    return ok;
}

bool safetensors_write(OutFile *o, const char *const *names, const Tensor *tensors, size_t n, Err *err)
{
    Buf h = {0};
    uint64_t at = 0, length;
    buf_puts(&h, "{");
    for (size_t i = 0; i < n; i++) {
        buf_puts(&h, i ? "," : "");
        json_put_string(&h, names[i]);
        buf_printf(&h, ":{\"dtype\":\"%s\",\"shape\":[", dtype_safetensors(tensors[i].dtype));
        for (int k = 0; k < tensors[i].rank; k++) buf_printf(&h, "%s%lld", k ? "," : "", (long long)tensors[i].shape[k]);
        uint64_t end = at + tensor_bytes(&tensors[i]);
        buf_printf(&h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    buf_puts(&h, "}");
    while (!h.failed && h.len % 8) buf_puts(&h, " ");
    length = h.len;
    bool ok = (!h.failed || fail(err, E_LIMIT, "out of memory")) && outfile_write(o, &length, 8, err) && outfile_write(o, h.data, h.len, err);
    for (size_t i = 0; ok && i < n; i++) ok = outfile_write(o, tensors[i].data, tensor_bytes(&tensors[i]), err);
    buf_free(&h);
    return ok;
}
