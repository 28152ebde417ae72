/* JSON out of an archive: what reading it takes is bounded by the archive's size.
 *
 *     json_t *top = zip_json(z, bytes, size, "models/model.json", err);       bytes and size as zip_data gave them
 */
#ifndef QKV_FORMAT_ZIP_JSON_H
#define QKV_FORMAT_ZIP_JSON_H
#include "format/json.h"
#include "format/zip.h"

/* Deflate makes 20 MB of JSON out of 60 KB. E_LIMIT where its text and values would take more than 4 times the
 * archive and 64 MiB; JSON that is stored, as torch stores it, stays below. The pages of a stored entry go back to
 * the system: read bytes no more. */
json_t *zip_json(const Zip *z, const void *bytes, uint64_t size, const char *what, Err *err);
#endif
