/* A body of multipart/form-data (RFC 7578) taken apart, where it lies.
 *
 *     MultiPart part[MOST];
 *     if (multipart_read("multipart/form-data; boundary=x", body, size, arena, part, MOST, &n, err)) ...
 *     part[0].name, part[0].data, part[0].size
 */
#ifndef QKV_SERVE_MULTIPART_H
#define QKV_SERVE_MULTIPART_H
#include "base/arena.h"
#include "base/err.h"

typedef struct MultiPart {
    const char *name, *file; /* file: NULL where none is said */
    const char *data;        /* in the body */
    size_t size;
} MultiPart;

/* content_type NULL: none was given. E_USAGE and E_FORMAT say what is wrong with the request. */
bool multipart_read(const char *content_type, const char *body, size_t size, Arena *a, MultiPart *part, int most,
                    int *n, Err *err);
#endif
