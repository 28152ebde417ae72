/* Tensor files: which format, opening, writing. Contract in tensors.h. */
#include "format/tensors.h"
#include <string.h>
#include "base/mem.h"
#include "format/tensors_impl.h"

bool tensorfile_room(TensorFile *f, size_t n, Err *err)
{
    f->name = arena_array(f->arena, const char *, n + 1);
    f->tensor = arena_array(f->arena, Tensor, n + 1);
    return (f->name && f->tensor) || oom(err);
}

bool tensorfile_place(TensorFile *f, Tensor *t, const void *data, size_t bytes, Err *err)
{
    t->data = (void *)(uintptr_t)data;
    if ((uintptr_t)data % dtype_size(t->dtype) == 0) return true;
    t->data = arena_alloc(f->arena, bytes, 1); /* 16-aligned, as much as any dtype needs */
    if (!t->data) return oom(err);
    if (bytes) memcpy(t->data, data, bytes);
    return true;
}

/* "dir/x.npy" -> "x" */
static const char *stem(Arena *a, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    return arena_strndup(a, base, dot && dot > base ? (size_t)(dot - base) : strlen(base));
}

static bool read_any(TensorFile *f, const char *path, Err *err)
{
    const unsigned char *p = f->file.data;
    uint64_t n = f->file.size;
    if (n >= 4 && !memcmp(p, "PK\3\4", 4)) return npz_read(f, err);
    if (n >= 22 && !memcmp(p, "PK\5\6", 4)) return npz_read(f, err);
    if (n >= 6 && !memcmp(p, "\x93NUMPY", 6))
        return tensorfile_room(f, 1, err) && npy_read(f, p, n, stem(f->arena, path), err);
    return safetensors_read(f, err);
}

TensorFile *tensorfile_open(const char *path, Err *err)
{
    TensorFile *f = mem_zeroed(1, sizeof *f);
    if (!f || !(f->arena = arena_create(0))) {
        mem_free(f);
        oom(err);
        return NULL;
    }
    if (file_map(&f->file, path, err)) {
        if (read_any(f, path, err)) return f;
        within(err, "%s", path);
    }
    tensorfile_close(f);
    return NULL;
}

void tensorfile_close(TensorFile *f)
{
    if (!f) return;
    zip_close(f->zip);
    json_free(f->header);
    file_unmap(&f->file);
    arena_destroy(f->arena);
    mem_free(f);
}

size_t tensorfile_count(const TensorFile *f) { return f->n; }
const char *tensorfile_name(const TensorFile *f, size_t i) { return f->name[i]; }
const Tensor *tensorfile_at(const TensorFile *f, size_t i) { return &f->tensor[i]; }

const Tensor *tensorfile_find(const TensorFile *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->name[i], name)) return &f->tensor[i];
    return NULL;
}

const char *tensorfile_metadata(const TensorFile *f, const char *key)
{
    return json_string_value(json_object_get(f->metadata, key));
}

/* ------------------------------------------------------------------ writing */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool write_npy(OutFile *o, const Tensor *t, Err *err)
{
    Buf b = {0};
    bool ok = npy_append(&b, t, err) && outfile_write(o, b.data, b.len, err);
    buf_free(&b);
    return ok;
}

static DType written_as(DType t)
{
    return dtype_bits(t) >= 8 ? t : t == DT_F4E2M1 ? DT_F32 : t == DT_I4 || t == DT_I2 ? DT_I8 : DT_U8;
}

bool tensorfile_write(const char *path, const char *const *names, const Tensor *tensors, size_t n, Err *err)
{
    bool npz = ends_with(path, ".npz"), npy = ends_with(path, ".npy"), st = ends_with(path, ".safetensors");
    if (!npz && !npy && !st) return fail(err, E_USAGE, "'%s': the name must end in .safetensors, .npz or .npy", path);
    if (npy && n != 1)
        return fail(err, E_USAGE, "'%s': a .npy holds one tensor, not %zu; use .npz or .safetensors", path, n);
    Tensor *flat = mem_zeroed(n + 1, sizeof *flat);
    bool ok = flat || oom(err);
    for (size_t i = 0; ok && i < n; i++) {
        flat[i] = tensors[i];
        DType as = written_as(tensors[i].dtype);
        if (tensor_contiguous(&tensors[i]) && as == tensors[i].dtype) continue;
        flat[i] = tensor_of(as, tensors[i].rank, tensors[i].shape,
                            mem_alloc((size_t)tensor_numel(&tensors[i]) * dtype_size(as) + 1));
        if (!flat[i].data)
            ok = oom(err) || within(err, "'%s': tensor '%s' is written out with all %lld elements", path, names[i],
                                    (long long)tensor_numel(&tensors[i]));
        else tensor_copy(&flat[i], &tensors[i]);
    }
    OutFile *o = ok ? outfile_open(path, err) : NULL;
    ok = o && (npz   ? npz_write(o, names, flat, n, err)
               : npy ? write_npy(o, &flat[0], err)
                     : safetensors_write(o, names, flat, n, err));
    if (ok) ok = outfile_commit(o, err);
    else outfile_abort(o);
    for (size_t i = 0; flat && i < n; i++)
        if (flat[i].data != tensors[i].data) mem_free(flat[i].data);
    mem_free(flat);
    return ok;
}
