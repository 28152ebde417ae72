/* The container of packed models (.qkv), docs/PACK.md: a header, a JSON text, the graph's text, and blobs of bytes that
 * are used where they are.
 *
 *     PackFile f;
 *     if (!packfile_read(&f, map.data, map.size, err)) ...     f.json, f.text: NUL-terminated in the file; blob at
 *                                                              f.data + offset
 *
 *     PackBlob blobs[2] = {{x, nx}, {y, ny}};
 *     packfile_place(blobs, 2, err);                            blobs[i].offset: what the JSON says
 *     packfile_write("m.qkv", json, text, blobs, 2, err);       whole or not at all
 */
#ifndef QKV_FORMAT_PACKFILE_H
#define QKV_FORMAT_PACKFILE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum { PACKFILE_VERSION = 1, PACKFILE_ALIGN = 64 };

typedef struct PackFile {
    const char *json, *text;
    uint64_t json_size, text_size; /* without the NUL */
    const unsigned char *data;
    uint64_t data_size, named; /* named: where the last blob that was asked for ends */
} PackFile;

typedef struct PackBlob {
    const void *data;
    uint64_t size;
    uint64_t offset; /* from the begin of the data; a multiple of PACKFILE_ALIGN */
} PackBlob;

bool packfile_is(const unsigned char *bytes, uint64_t size); /* by its first bytes */
/* Points into bytes. Another version, or the other byte order: E_UNSUPPORTED; anything that does not fit: E_FORMAT. */
bool packfile_read(PackFile *f, const unsigned char *bytes, uint64_t size, Err *err);
/* A range of the data, checked. */
bool packfile_blob(PackFile *f, int64_t offset, int64_t size, const unsigned char **out, Err *err);
/* After all blobs: do they reach to the end of the data? */
bool packfile_all_named(const PackFile *f, Err *err);
bool packfile_place(PackBlob *blob, int n, Err *err);
bool packfile_write(const char *path, const char *json, const char *text, const PackBlob *blob, int n, Err *err);
#endif
