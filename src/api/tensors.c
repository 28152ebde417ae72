/* Tensors in files, and files that are written whole or not at all. Contracts in include/qkv.h. */
#include <string.h>
#include "api/api_impl.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/tensors.h"

struct qkv_tensors {
    TensorFile *file;
    qkv_tensor *tensor;
    Shown *shown;
    int n;
};

qkv_tensors *qkv_tensors_open(const char *path, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(path)) return api_null(&e, err);
    qkv_tensors *t = mem_zeroed(1, sizeof *t);
    if (!t) return api_no_memory(err);
    t->file = tensorfile_open(path, &e);
    if (!t->file) {
        mem_free(t);
        return api_null(&e, err);
    }
    t->n = (int)tensorfile_count(t->file);
    t->tensor = mem_zeroed((size_t)t->n + 1, sizeof *t->tensor);
    t->shown = mem_zeroed((size_t)t->n + 1, sizeof *t->shown);
    if (!t->tensor || !t->shown) {
        qkv_tensors_free(t);
        return api_no_memory(err);
    }
    for (int i = 0; i < t->n; i++) api_tensor_out(tensorfile_at(t->file, (size_t)i), &t->shown[i], &t->tensor[i]);
    return t;
}

void qkv_tensors_free(qkv_tensors *t)
{
    if (!t) return;
    tensorfile_close(t->file);
    mem_free(t->tensor);
    mem_free(t->shown);
    mem_free(t);
}

int qkv_tensors_count(const qkv_tensors *t) { return t ? t->n : 0; }
const char *qkv_tensors_name(const qkv_tensors *t, int i)
{
    return t && i >= 0 && i < t->n ? tensorfile_name(t->file, (size_t)i) : NULL;
}
const qkv_tensor *qkv_tensors_at(const qkv_tensors *t, int i) { return t && i >= 0 && i < t->n ? &t->tensor[i] : NULL; }

const qkv_tensor *qkv_tensors_find(const qkv_tensors *t, const char *name)
{
    for (int i = 0; t && name && i < t->n; i++)
        if (!strcmp(tensorfile_name(t->file, (size_t)i), name)) return &t->tensor[i];
    return NULL;
}

const char *qkv_tensors_metadata(const qkv_tensors *t, const char *key)
{
    return t && key ? tensorfile_metadata(t->file, key) : NULL;
}

qkv_status qkv_file_write(const char *path, const void *bytes, size_t n, qkv_error *err)
{
    Err e = api_begin();
    bool given = GIVEN(path) && (!n || GIVEN(bytes));
    return given && outfile_all(path, bytes, n, &e) ? QKV_OK : api_give(&e, err);
}

/* A qkv_file is an OutFile. */
static OutFile *out_of(qkv_file *f) { return (OutFile *)(void *)f; }

qkv_file *qkv_file_open(const char *path, qkv_error *err)
{
    Err e = api_begin();
    OutFile *o = GIVEN(path) ? outfile_open(path, &e) : NULL;
    return o ? (qkv_file *)(void *)o : api_null(&e, err);
}

qkv_status qkv_file_add(qkv_file *f, const void *bytes, size_t n, qkv_error *err)
{
    Err e = api_begin();
    bool given = GIVEN(f) && (!n || GIVEN(bytes));
    return given && outfile_write(out_of(f), bytes, n, &e) ? QKV_OK : api_give(&e, err);
}

qkv_status qkv_file_finish(qkv_file *f, qkv_error *err)
{
    Err e = api_begin();
    return GIVEN(f) && outfile_commit(out_of(f), &e) ? QKV_OK : api_give(&e, err);
}

void qkv_file_free(qkv_file *f) { outfile_abort(out_of(f)); }

qkv_status qkv_tensors_write(const char *path, const char *const *names, const qkv_tensor *tensors, int n,
                             qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(path) || !GIVEN_TEXTS(names, n) || !GIVEN_LIST(tensors, n)) return api_give(&e, err);
    Tensor *all = mem_zeroed((size_t)n + 1, sizeof *all);
    bool ok = all || oom(&e);
    for (int i = 0; ok && i < n; i++) ok = api_tensor(&tensors[i], &all[i], &e) || within(&e, "'%s'", names[i]);
    ok = ok && tensorfile_write(path, names, all, (size_t)n, &e);
    mem_free(all);
    return ok ? QKV_OK : api_give(&e, err);
}
