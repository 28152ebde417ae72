/* ZIP, as torch writes it (ZIP64, stored entries, data descriptors) and as Python's zipfile writes it (deflate too).
 * The directory is read with minizip; every offset and size is checked again here. Nothing is ever extracted to disk.
 *
 *     Zip *z = zip_open(bytes, size, err);     bytes are borrowed and must outlive z
 *     const ZipEntry *e = zip_find(z, "model/models/model.json");
 *     const void *p; uint64_t n;
 *     zip_data(z, e, true, &p, &n, err);        stored: a pointer into the mapping; deflated: inflated once, owned by z
 *     zip_close(z);
 */
#ifndef QKV_FORMAT_ZIP_H
#define QKV_FORMAT_ZIP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef struct ZipEntry {
    const char *name;
    uint64_t offset;      /* of the first data byte in the file */
    uint64_t packed_size; /* bytes in the file */
    uint64_t size;        /* bytes after inflating */
    uint32_t crc;
    int method; /* 0 stored, 8 deflate */
    bool encrypted;
} ZipEntry;

typedef struct Zip Zip;
Zip *zip_open(const void *bytes, uint64_t size,
              Err *err); /* E_FORMAT with the byte offset or entry at fault; E_LIMIT */
/* The same, but names may differ in case alone, as the arrays of a .npz do ("w", "W"). */
Zip *zip_open_cased(const void *bytes, uint64_t size, Err *err);
void zip_close(Zip *z);
const void *zip_bytes(const Zip *z, uint64_t *size); /* the archive as it was given */
size_t zip_count(const Zip *z);
const ZipEntry *zip_entry(const Zip *z, size_t i); /* in directory order */
const ZipEntry *zip_find(const Zip *z, const char *name);
/* The entry's bytes. check_crc reads them all; leave it off for gigabytes of weights. The first reading of a deflated
 * entry changes z: one thread at a time. */
bool zip_data(Zip *z, const ZipEntry *e, bool check_crc, const void **bytes, uint64_t *size, Err *err);

/* Writing: stored entries, data aligned to 64 bytes, ZIP64 where needed; same input, same bytes. */
struct OutFile;
typedef struct ZipWriter ZipWriter;
ZipWriter *zip_writer(struct OutFile *out, Err *err);
bool zip_add(ZipWriter *w, const char *name, const void *bytes, uint64_t size, Err *err);
typedef struct ZipPart {
    const void *bytes;
    uint64_t size;
} ZipPart;
bool zip_add_parts(ZipWriter *w, const char *name, const ZipPart *parts, int n, Err *err); /* one entry of them all */
bool zip_finish(ZipWriter *w,
                Err *err); /* writes the directory; frees w, also on failure; the caller commits the file */
#endif
