/* ZIP archives: every entry of what opens is read twice. */
#include <string.h>
#include "format/zip.h"
#include "fuzz.h"

static const char *const tokens[] = {"PK\3\4",           "PK\1\2", "PK\5\6", "PK\6\6", "PK\6\7",
                                     "\xff\xff\xff\xff", "../",    "\\",     "A",      NULL};

static void seeds(FuzzAdd *add)
{
    uint8_t out[1024], text[200] = "stored or deflated, over and over and over and over and over";
    ArchiveEntry e[] = {{(char[]){"a/b.txt"}, text, sizeof text, false},
                        {(char[]){"c"}, text, 60, true},
                        {(char[]){"empty"}, text, 0, false}};
    for (size_t n = 0; n <= 3; n++) add(out, archive_write(e, n, out, sizeof out));
}

static size_t inside(const char *name, uint8_t *data, size_t size, size_t max)
{
    (void)name;
    return LLVMFuzzerMutate(data, size, max);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    return fuzz_random(4) ? LLVMFuzzerMutate(data, size, max) : archive_mutate(data, size, max, inside);
}

static void read_all(Zip *z, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < zip_count(z); i++) {
        const ZipEntry *e = zip_entry(z, i);
        const void *bytes, *again;
        uint64_t n, crc = 0;
        Err err = {0};
        fuzz_check(zip_find(z, e->name) == e, "an entry is found by its name");
        fuzz_check(e->offset <= size && e->packed_size <= size - e->offset, "an entry lies in the file");
        if (!zip_data(z, e, i % 2, &bytes, &n, &err)) {
            fuzz_said(&err);
            continue;
        }
        fuzz_check(e->method || bytes == data + e->offset, "a stored entry is not copied");
        for (uint64_t k = 0; k < n; k++) crc += ((const uint8_t *)bytes)[k];
        fuzz_check(zip_data(z, e, false, &again, &n, &err) && again == bytes && crc <= 255 * n,
                   "reading again gives the same bytes");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Zip *(*const open[])(const void *, uint64_t, Err *) = {zip_open, zip_open_cased};
    for (int i = 0; i < 2; i++) {
        Err err = {0};
        Zip *z = open[i](data, size, &err);
        if (z) read_all(z, data, size);
        else fuzz_said(&err);
        zip_close(z);
    }
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "zip", .tokens = tokens, .seeds = seeds, .ending = ".pt2", .memory_ratio = 1024};
