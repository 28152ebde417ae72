/* Fuzzing. Each fuzz_NAME.c is one target in libFuzzer's form: LLVMFuzzerTestOneInput, and LLVMFuzzerCustomMutator
 * where bytes changed at random would not get past a checksum. driver.c is their main, for compilers without libFuzzer.
 *
 *     fuzz_zip FILE|FOLDER...                             runs each file once
 *     fuzz_zip --seconds 60 --seed 7 FILE|FOLDER...       and then what mutations make of them; the same seed, the
 *                                                         same inputs
 */
#ifndef QKV_TESTS_FUZZ_H
#define QKV_TESTS_FUZZ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef void FuzzAdd(const void *bytes, size_t size);

typedef struct FuzzTarget {
    const char *name;
    const char *const *tokens;                      /* what mutations write into inputs; ends with NULL */
    void (*seeds)(FuzzAdd *add);                    /* inputs made in memory */
    const char *ending;                             /* of the files in a folder that are inputs, ".pt2"; NULL: none */
    void (*expand)(const char *path, FuzzAdd *add); /* makes many inputs of such a file; NULL: the file is one */
    size_t memory_ratio; /* most bytes allocated at a time: 64 MiB and so many times the input */
} FuzzTarget;
extern const FuzzTarget fuzz_target;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* For targets. What must hold of every input: says what did not, and aborts. */
void fuzz_check(bool holds, const char *what);
void fuzz_said(const Err *err); /* a refusal has a code and a message */
/* The file that readers get when they map FUZZ_PATH. They may map no other, but FUZZ_DATA beside it: the same bytes. */
#define FUZZ_DATA "w.bin"
#define FUZZ_PATH "input"
void fuzz_set_file(const uint8_t *data, size_t size);
uint8_t *fuzz_take_file(const char *path); /* the same of a file that was written, which is removed; the caller frees */

/* Mutations, in place; the new size, at most max. Random numbers below n (0 for n = 0) follow from the
 * driver's seed. */
size_t fuzz_random(size_t n);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max); /* bytes, tokens, numbers, pieces of other inputs */
size_t json_mutate(uint8_t *data, size_t size, size_t max);      /* values of a JSON text; its bytes when it is none */
size_t protobuf_mutate(uint8_t *data, size_t size, size_t max);  /* fields of a protobuf message, at any depth */
typedef size_t EntryMutator(const char *name, uint8_t *data, size_t size, size_t max);
size_t archive_mutate(uint8_t *data, size_t size, size_t max,
                      EntryMutator *inside); /* entries of a ZIP, checksums put right */
/* A ZIP of entries, as mutations write it; 0 when it does not fit. */
typedef struct ArchiveEntry {
    char *name;
    uint8_t *data;
    size_t size;
    bool deflate;
} ArchiveEntry;
size_t archive_write(const ArchiveEntry *e, size_t n, uint8_t *out, size_t max);

/* Between driver.c and mutate.c. */
void mutate_seed(uint64_t seed);
const uint8_t *driver_other(size_t *size); /* some input of the corpus */
#endif
