/* .npy and .npz. A .npy is "\x93NUMPY", version, header length, a Python dict literal {'descr', 'fortran_order',
 * 'shape'}, then the bytes (numpy/lib/format.py). A .npz is a ZIP of them. Pickled object arrays are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "format/tensors_impl.h"

enum { MAX_HEADER = 1 << 16 };

static const struct {
    const char *descr;
    DType t;
} dtypes[] = {{"f4", DT_F32}, {"f8", DT_F64},  {"f2", DT_F16},  {"i8", DT_I64}, {"i4", DT_I32},
              {"i2", DT_I16}, {"i1", DT_I8},   {"u8", DT_U64},  {"u4", DT_U32}, {"u2", DT_U16},
              {"u1", DT_U8},  {"b1", DT_BOOL}, {"V2", DT_BF16}, {"c8", DT_C64}, {"c16", DT_C128}};

/* ------------------------------------------------------------------ the header:
 * a Python dict literal, read strictly */

static void space(const char **p)
{
    while (**p == ' ' || **p == '\n' || **p == '\t') ++*p;
}

static bool literal(const char **p, const char *text)
{
    size_t n = strlen(text);
    space(p);
    if (strncmp(*p, text, n)) return false;
    *p += n;
    return true;
}

/* A quoted string without escapes; false when there is none. */
static bool quoted(const char **p, char *out, size_t cap)
{
    space(p);
    char quote = **p;
    if (quote != '\'' && quote != '"') return false;
    size_t n = strcspn(*p + 1, quote == '"' ? "\"\\" : "'\\");
    if ((*p)[1 + n] != quote || n >= cap) return false;
    memcpy(out, *p + 1, n);
    out[n] = 0;
    *p += n + 2;
    return true;
}

static bool read_descr(const char **p, DType *t, Err *err)
{
    char s[64];
    space(p);
    if (**p == '[' || **p == '(') return fail(err, E_UNSUPPORTED, "a structured dtype; save one array a field");
    if (!quoted(p, s, sizeof s)) return fail(err, E_FORMAT, ".npy header: 'descr' is not a string");
    bool order = s[0] && strchr("<>|=", s[0]);
    const char *kind = s + order;
    if (s[0] == '>') return fail(err, E_UNSUPPORTED, "big-endian data; save it as little-endian");
    if (kind[0] == 'O') return fail(err, E_UNSUPPORTED, "Python objects (a pickle), which are never read");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(kind, dtypes[i].descr)) {
            *t = dtypes[i].t;
            return true;
        }
    return fail(err, E_UNSUPPORTED, "dtype '%.20s' is not known", s);
}

/* "()", "(3,)", "(3, 4)" */
static bool read_shape(const char **p, Tensor *t, Err *err)
{
    if (!literal(p, "(")) return fail(err, E_FORMAT, ".npy header: 'shape' is not a tuple");
    t->rank = 0;
    for (bool comma = true; !literal(p, ")"); comma = literal(p, ",")) {
        if (!comma || !is_digit(**p)) return fail(err, E_FORMAT, ".npy header: size %d is not a number", t->rank);
        if (t->rank == MAX_RANK) return fail(err, E_UNSUPPORTED, "rank above %d", MAX_RANK);
        const char *end;
        t->shape[t->rank++] = parse_int(*p, &end); /* too large ones become the largest and fail as sizes */
        *p = *end == 'L' ? end + 1 : end;
        space(p);
        if (t->rank == 1 && **p == ')') return fail(err, E_FORMAT, ".npy header: 'shape' is not a tuple");
    }
    return true;
}

static bool read_dict(const char *p, Tensor *t, bool *fortran, Err *err)
{
    bool descr = false, order = false, shape = false, ok = literal(&p, "{");
    char key[16];
    while (ok && !literal(&p, "}")) {
        bool *seen = !quoted(&p, key, sizeof key)    ? NULL
                     : !strcmp(key, "descr")         ? &descr
                     : !strcmp(key, "fortran_order") ? &order
                     : !strcmp(key, "shape")         ? &shape
                                                     : NULL;
        ok = seen && !*seen && literal(&p, ":");
        if (!ok) break;
        *seen = true;
        if (seen == &descr) TRY(read_descr(&p, &t->dtype, err));
        else if (seen == &shape) TRY(read_shape(&p, t, err));
        else ok = (*fortran = literal(&p, "True")) || literal(&p, "False");
        space(&p);
        ok = ok && (literal(&p, ",") || *p == '}');
    }
    space(&p);
    if (ok && !*p && descr && order && shape) return true;
    return fail(err, E_FORMAT, ".npy header: expected {'descr': ..., 'fortran_order': True or False, 'shape': (...)}");
}

/* ------------------------------------------------------------------ reading */

/* Where the header is; false when the file is too short for it. */
static bool find_header(const unsigned char *p, uint64_t size, uint64_t *start, uint64_t *length, Err *err)
{
    if (size < 10 || memcmp(p, "\x93NUMPY", 6)) return fail(err, E_FORMAT, "not a .npy, or cut off");
    bool wide = p[6] == 2 || p[6] == 3;
    if ((p[6] != 1 && !wide) || p[7])
        return fail(err, E_UNSUPPORTED, ".npy version %d.%d; 1.0, 2.0 and 3.0 are read", p[6], p[7]);
    *start = wide ? 12 : 10;
    if (size < *start) return fail(err, E_FORMAT, "not a .npy, or cut off");
    *length = (uint64_t)p[8] | (uint64_t)p[9] << 8;
    if (wide) *length |= (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24;
    if (!in_range_u64(*start, *length, size))
        return fail(err, E_FORMAT, "a header of %llu bytes in a file of %llu", (unsigned long long)*length,
                    (unsigned long long)size);
    if (*length > MAX_HEADER)
        return fail(err, E_LIMIT, "a header of %llu bytes, at most %d are read", (unsigned long long)*length,
                    MAX_HEADER);
    return true;
}

static bool read_array(TensorFile *f, Tensor *t, const unsigned char *p, uint64_t size, Err *err)
{
    uint64_t start = 0, length = 0;
    size_t need;
    bool fortran = false;
    TRY(find_header(p, size, &start, &length, err));
    char *header = arena_strndup(f->arena, (const char *)p + start, length);
    if (!header) return oom(err);
    if (strlen(header) != length) return fail(err, E_FORMAT, ".npy header: a NUL byte");
    *t = (Tensor){0};
    TRY(read_dict(header, t, &fortran, err) && shape_bytes(t->dtype, t->rank, t->shape, &need, err));
    uint64_t have = size - start - length;
    if (have != need)
        return fail(err, E_FORMAT, "%llu bytes of data, its shape and dtype need %zu", (unsigned long long)have, need);
    strides_contiguous(t->rank, t->shape, t->stride);
    int64_t n = 1;
    for (int i = 0; fortran && i < t->rank; i++) {
        t->stride[i] = n;
        n *= t->shape[i] > 1 ? t->shape[i] : 1;
    }
    return tensorfile_place(f, t, p + start + length, need, err);
}

bool npy_read(TensorFile *f, const void *bytes, uint64_t size, const char *name, Err *err)
{
    if (!name) return oom(err);
    if (!read_array(f, &f->tensor[f->n], bytes, size, err)) return within(err, "array '%s'", name);
    f->name[f->n++] = name;
    return true;
}

bool npz_read(TensorFile *f, Err *err)
{
    f->zip = zip_open_cased(f->file.data, f->file.size, err);
    TRY(f->zip);
    TRY(tensorfile_room(f, zip_count(f->zip), err));
    for (size_t i = 0; i < zip_count(f->zip); i++) {
        const ZipEntry *e = zip_entry(f->zip, i);
        size_t n = strlen(e->name);
        const void *bytes;
        uint64_t size;
        if (n < 5 || strcmp(e->name + n - 4, ".npy")) continue;
        TRY(zip_data(f->zip, e, true, &bytes, &size, err));
        TRY(npy_read(f, bytes, size, arena_strndup(f->arena, e->name, n - 4), err));
    }
    return true;
}

/* ------------------------------------------------------------------ writing */

bool npy_append(Buf *out, const Tensor *t, Err *err)
{
    Buf h = {0};
    const char *descr = NULL;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].t == t->dtype) descr = dtypes[i].descr;
    if (!descr) return fail(err, E_UNSUPPORTED, "dtype %s has no .npy form; write .safetensors", dtype_name(t->dtype));
    bool bytes = dtype_size(t->dtype) == 1 || descr[0] == 'V';
    buf_printf(&h, "{'descr': '%s%s', 'fortran_order': False, 'shape': (", bytes ? "|" : "<", descr);
    for (int i = 0; i < t->rank; i++)
        buf_printf(&h, "%lld%s", (long long)t->shape[i], t->rank == 1 ? "," : i + 1 < t->rank ? ", " : "");
    buf_puts(&h, "), }");
    while (!h.failed && (10 + h.len + 1) % 64) buf_puts(&h, " ");
    buf_puts(&h, "\n");
    unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)h.len, (unsigned char)(h.len >> 8)};
    buf_add(out, head, sizeof head);
    buf_add(out, h.data, h.len);
    buf_add(out, t->data, tensor_bytes(t));
    bool ok = !h.failed && !out->failed;
    buf_free(&h);
    return ok || oom(err);
}

bool npz_write(OutFile *o, const char *const *names, const Tensor *tensors, size_t n, Err *err)
{
    ZipWriter *w = zip_writer(o, err);
    TRY(w);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        Buf b = {0}, name = {0};
        buf_printf(&name, "%s.npy", names[i]);
        ok = npy_append(&b, &tensors[i], err) && (!name.failed || oom(err)) &&
             zip_add(w, name.data, b.data, b.len, err);
        buf_free(&b);
        buf_free(&name);
    }
    Err ignored;
    return zip_finish(w, ok ? err : &ignored) && ok;
}
