/* .npy and .npz. A .npy is "\x93NUMPY", version, header length, a Python dict literal {'descr', 'fortran_order', 'shape'}, then the bytes
 * (numpy/lib/format.py). A .npz is a ZIP of them. Pickled object arrays are refused. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/tensors_impl.h"

static const struct {
    const char *descr;
    DType t;
} dtypes[] = {{"f4", DT_F32}, {"f8", DT_F64}, {"f2", DT_F16}, {"i8", DT_I64}, {"i4", DT_I32}, {"i2", DT_I16}, {"i1", DT_I8},
              {"u8", DT_U64}, {"u4", DT_U32}, {"u2", DT_U16}, {"u1", DT_U8},  {"b1", DT_BOOL}, {"V2", DT_BF16}, {"c8", DT_C64}, {"c16", DT_C128}};

/* The value of 'key' in the header's dict; NULL when absent. */
static const char *dict_value(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *p = strstr(header, quoted);
    if (!p) return NULL;
    p += strlen(quoted);
    while (*p == ' ' || *p == ':') p++;
    return p;
}

static bool read_descr(const char *p, DType *t, Err *err)
{
    if (!p) return fail(err, E_FORMAT, ".npy header without 'descr'");
    if (*p != '\'') return fail(err, E_UNSUPPORTED, "a structured dtype");
    p++;
    if (*p == '>') return fail(err, E_UNSUPPORTED, "big-endian data; save it as little-endian");
    if (*p == '<' || *p == '|' || *p == '=') p++;
    size_t n = strcspn(p, "'");
    if (n && p[0] == 'O') return fail(err, E_UNSUPPORTED, "Python objects (a pickle), which are never read");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strlen(dtypes[i].descr) == n && !strncmp(p, dtypes[i].descr, n)) {
            *t = dtypes[i].t;
            return true;
        }
    return fail(err, E_UNSUPPORTED, "dtype '%.*s' is not known", (int)(n < 20 ? n : 20), p);
}

static bool read_shape(const char *p, Tensor *t, Err *err)
{
    if (!p || *p++ != '(') return fail(err, E_FORMAT, ".npy header without 'shape'");
    for (t->rank = 0;; t->rank++) {
        while (*p == ' ' || *p == ',') p++;
        if (*p == ')') return true;
        if (!isdigit((unsigned char)*p)) return fail(err, E_FORMAT, ".npy header: a size that is no number");
        if (t->rank == MAX_RANK) return fail(err, E_UNSUPPORTED, "rank above %d", MAX_RANK);
        char *end;
        long long v = strtoll(p, &end, 10);
        t->shape[t->rank] = v;
        p = *end == 'L' ? end + 1 : end;
    }
}

bool npy_read(TensorFile *f, const void *bytes, uint64_t size, const char *name, Err *err)
{
    const unsigned char *p = bytes;
    uint64_t length, start;
    if (!name) return fail(err, E_LIMIT, "out of memory");
    if (size < 10 || memcmp(p, "\x93NUMPY", 6)) return fail(err, E_FORMAT, "'%s' is not a .npy", name);
    if (p[6] == 1) {
        length = (uint64_t)p[8] | (uint64_t)p[9] << 8;
        start = 10;
    } else if ((p[6] == 2 || p[6] == 3) && size >= 12) {
        length = (uint64_t)p[8] | (uint64_t)p[9] << 8 | (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24;
        start = 12;
    } else return fail(err, E_UNSUPPORTED, "'%s': .npy version %d", name, p[6]);
    if (!in_range_u64(start, length, size)) return fail(err, E_FORMAT, "'%s': a header of %llu bytes in %llu", name, (unsigned long long)length,
                                                        (unsigned long long)size);
    char *header = arena_strndup(f->arena, (const char *)p + start, length);
    Tensor *t = &f->tensor[f->n];
    size_t need;
    if (!header) return fail(err, E_LIMIT, "out of memory");
    *t = (Tensor){0};
    if (!read_descr(dict_value(header, "descr"), &t->dtype, err) || !read_shape(dict_value(header, "shape"), t, err) ||
        !shape_bytes(t->dtype, t->rank, t->shape, &need, err))
        return within(err, "'%s'", name);
    if (size - start - length != need)
        return fail(err, E_FORMAT, "'%s': %llu bytes of data, its shape and dtype need %zu", name, (unsigned long long)(size - start - length), need);
    strides_contiguous(t->rank, t->shape, t->stride);
    const char *fortran = dict_value(header, "fortran_order");
    if (fortran && !strncmp(fortran, "True", 4))
        for (int i = 0; i < t->rank; i++) t->stride[i] = i ? t->stride[i - 1] * t->shape[i - 1] : 1;
    t->data = (void *)(uintptr_t)(p + start + length);
    f->name[f->n++] = name;
    return true;
}

bool npz_read(TensorFile *f, Err *err)
{
    f->zip = zip_open(f->file.data, f->file.size, err);
    TRY(f->zip);
    TRY(tensorfile_room(f, zip_count(f->zip), err));
    for (size_t i = 0; i < zip_count(f->zip); i++) {
        const ZipEntry *e = zip_entry(f->zip, i);
        size_t n = strlen(e->name);
        const void *bytes;
        uint64_t size;
        if (n < 5 || strcmp(e->name + n - 4, ".npy")) continue;
        TRY(zip_data(f->zip, e, false, &bytes, &size, err));
        TRY(npy_read(f, bytes, size, arena_strndup(f->arena, e->name, n - 4), err));
    }
    return true;
}

bool npy_append(Buf *out, const Tensor *t, Err *err)
{
    Buf h = {0};
    const char *descr = NULL;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].t == t->dtype) descr = dtypes[i].descr;
    if (!descr) return fail(err, E_UNSUPPORTED, "dtype %s has no .npy form; write .safetensors", dtype_name(t->dtype));
    bool bytes = dtype_size(t->dtype) == 1 || descr[0] == 'V';
    buf_printf(&h, "{'descr': '%s%s', 'fortran_order': False, 'shape': (", bytes ? "|" : "<", descr);
    for (int i = 0; i < t->rank; i++) buf_printf(&h, "%lld%s", (long long)t->shape[i], t->rank == 1 ? "," : i + 1 < t->rank ? ", " : "");
    buf_puts(&h, "), }");
    while (!h.failed && (10 + h.len + 1) % 64) buf_puts(&h, " ");
    buf_puts(&h, "\n");
    unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)h.len, (unsigned char)(h.len >> 8)};
    buf_add(out, head, sizeof head);
    buf_add(out, h.data, h.len);
    buf_add(out, t->data, tensor_bytes(t));
    bool ok = !h.failed && !out->failed;
    buf_free(&h);
    return ok || fail(err, E_LIMIT, "out of memory");
}

bool npz_write(OutFile *o, const char *const *names, const Tensor *tensors, size_t n, Err *err)
{
    ZipWriter *w = zip_writer(o, err);
    TRY(w);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        Buf b = {0}, name = {0};
        buf_printf(&name, "%s.npy", names[i]);
        ok = npy_append(&b, &tensors[i], err) && (!name.failed || fail(err, E_LIMIT, "out of memory")) && zip_add(w, name.data, b.data, b.len, err);
        buf_free(&b);
        buf_free(&name);
    }
    Err ignored;
    return zip_finish(w, ok ? err : &ignored) && ok;
}
