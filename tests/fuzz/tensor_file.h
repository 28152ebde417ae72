/* What the targets of tensor files do with an input: open it, look at every element. */
#ifndef QKV_TESTS_TENSOR_FILE_H
#define QKV_TESTS_TENSOR_FILE_H
#include <string.h>
#include "format/tensors.h"
#include "fuzz.h"

static inline void read_tensor_file(const uint8_t *data, size_t size)
{
    Err err = {0};
    fuzz_set_file(data, size);
    TensorFile *f = tensorfile_open(FUZZ_PATH, &err);
    if (!f) {
        fuzz_said(&err);
        return;
    }
    for (size_t i = 0; i < tensorfile_count(f); i++) {
        const Tensor *t = tensorfile_at(f, i);
        char text[256];
        volatile double last;
        fuzz_check(tensorfile_find(f, tensorfile_name(f, i)) != NULL, "a tensor is found by its name");
        fuzz_check(strlen(tensor_describe(t, text, sizeof text)) < sizeof text, "a tensor is described");
        fuzz_check(tensor_bytes(t) <= size * 1024, "a tensor is no larger than its file can hold");
        for (int64_t k = 0; k < tensor_numel(t); k++) last = tensor_get(t, k);
        (void)last;
    }
    (void)tensorfile_metadata(f, "format");
    tensorfile_close(f);
}
#endif
