/* .npy and .npz: what opens has every byte of every array in the file. */
#include <stdio.h>
#include <string.h>
#include "fuzz.h"
#include "tensor_file.h"

static const char *const tokens[] = {"\x93NUMPY\1", "\x93NUMPY\2", "'descr'", "'fortran_order'",
                                     "'shape'",     "True",        "False",   "'<f4'",
                                     "'|V2'",       "'>f4'",       "'|O'",    "(",
                                     ")",           ",",           "{",       "}",
                                     "3L",          "(2,)",        "[",       "'",
                                     "()",          NULL};

static size_t make_npy(uint8_t *out, int version, const char *header, size_t bytes)
{
    size_t n = strlen(header), start = version == 1 ? 10 : 12;
    memset(out, 0, start);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[8] = (uint8_t)n;
    memcpy(out + start, header, n);
    memset(out + start + n, 1, bytes);
    return start + n + bytes;
}

static void seeds(FuzzAdd *add)
{
    uint8_t a[256], b[256], zip[1024];
    size_t na = make_npy(a, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
    size_t nb = make_npy(b, 2, "{'descr': '<i8', 'fortran_order': True, 'shape': (3, 0), }\n", 0);
    add(a, na);
    add(b, nb);
    ArchiveEntry e[] = {
        {(char[]){"a.npy"}, a, na, false}, {(char[]){"A.npy"}, b, nb, true}, {(char[]){"note.txt"}, a, 9, false}};
    add(zip, archive_write(e, 3, zip, sizeof zip));
    add(b, make_npy(b, 3, "{\"shape\": (), 'fortran_order': False, 'descr': '|b1'}", 1));
    add(b, make_npy(b, 1, "{'descr': '|V2', 'fortran_order': True, 'shape': (2, 1, 3)}", 12));
}

/* The header changes, its length follows. */
static size_t inside(const char *name, uint8_t *data, size_t size, size_t max)
{
    uint8_t header[8 << 10];
    size_t start = size > 6 && data[6] > 1 ? 12 : 10, n = size > 10 ? (size_t)(data[8] | data[9] << 8) : 0, made;
    (void)name;
    if (size < start || n > size - start || n > sizeof header / 2 || fuzz_random(4) == 0)
        return LLVMFuzzerMutate(data, size, max);
    memcpy(header, data + start, n);
    made = LLVMFuzzerMutate(header, n, sizeof header);
    if (size - n + made > max) return size;
    memmove(data + start + made, data + start + n, size - start - n);
    memcpy(data + start, header, made);
    data[8] = (uint8_t)made;
    data[9] = (uint8_t)(made >> 8);
    return size - n + made;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    return size > 2 && data[0] == 'P' ? archive_mutate(data, size, max, inside) : inside("", data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_tensor_file(data, size);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "npy", .tokens = tokens, .seeds = seeds, .memory_ratio = 1024};
