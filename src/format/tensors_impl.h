/* What the tensor file readers share: a file is a list of named views. */
#ifndef QKV_FORMAT_TENSORS_IMPL_H
#define QKV_FORMAT_TENSORS_IMPL_H
#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/json.h"
#include "format/tensors.h"
#include "format/zip.h"

struct TensorFile {
    MappedFile file;
    Arena *arena;
    Zip *zip;               /* .npz */
    json_t *header;         /* of safetensors, kept where metadata is in it */
    const json_t *metadata; /* safetensors' __metadata__ */
    const char **name;
    Tensor *tensor;
    size_t n;
};

bool tensorfile_room(TensorFile *f, size_t n, Err *err);
/* Points t to its bytes: in place, or in a copy owned by f when they are not aligned to the element's size. */
bool tensorfile_place(TensorFile *f, Tensor *t, const void *data, size_t bytes, Err *err);
/* Reads f->file as what its first bytes say it is. */
bool safetensors_read(TensorFile *f, Err *err);
bool npy_read(TensorFile *f, const void *bytes, uint64_t size, const char *name, Err *err);
bool npz_read(TensorFile *f, Err *err);
bool safetensors_write(OutFile *o, const char *const *names, const Tensor *tensors, size_t n, Err *err);
bool npz_write(OutFile *o, const char *const *names, const Tensor *tensors, size_t n, Err *err);
/* Header and data of one .npy; t is contiguous. */
bool npy_append(Buf *out, const Tensor *t, Err *err);
#endif
