/* Named tensors in a file: .safetensors, .npz and .npy, read by mapping, written whole or not at all.
 *
 *     TensorFile *f = tensorfile_open("in.safetensors", err);
 *     const Tensor *t = tensorfile_find(f, "x");      borrowed from the mapping (inflated and unaligned ones are
 *                                                     owned by f)
 *     tensorfile_close(f);
 *
 *     tensorfile_write("out.npz", names, tensors, n, err);    format by the file's ending; strided tensors are made
 *                                                             contiguous
 *
 * A .npy holds one tensor named by the file's stem. Fortran order becomes strides. Big-endian, object and structured
 * dtypes are refused by name (E_UNSUPPORTED); pickled .npy never read. bf16 in .npz: read from and written as a void-2
 * ("|V2") array, the way ml_dtypes does. Every length is checked against the file (overlaps, gaps, bytes left over,
 * shape * size != length). Types of 4 and 2 bits, which neither format has, are written as the next wider type: i8, u8,
 * f32 for f4e2m1. Names to write: unique, UTF-8 in .safetensors, usable as a path inside an archive in .npz (E_USAGE).
 */
#ifndef QKV_FORMAT_TENSORS_H
#define QKV_FORMAT_TENSORS_H
#include "tensor/tensor.h"

typedef struct TensorFile TensorFile;
TensorFile *tensorfile_open(const char *path, Err *err); /* format by content, not by name */
void tensorfile_close(TensorFile *f);
size_t tensorfile_count(const TensorFile *f);
const char *tensorfile_name(const TensorFile *f, size_t i);
const Tensor *tensorfile_at(const TensorFile *f, size_t i);
const Tensor *tensorfile_find(const TensorFile *f, const char *name); /* NULL when absent */
/* A string from the safetensors __metadata__; NULL when absent. */
const char *tensorfile_metadata(const TensorFile *f, const char *key);
bool tensorfile_write(const char *path, const char *const *names, const Tensor *tensors, size_t n, Err *err);
#endif
