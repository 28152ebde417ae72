/* POST /v1/segment as bytes: a picture and texts as multipart/form-data in, what was found as COCO's JSON out.
 *
 *     Segmenting *r = segment_read(content_type, body, size, err);        r->model: which one is asked; NULL: any
 *     if (segment_bind(r, "sam3", model, err)) ... engine_submit(e, 0, &r->call, ...) ...
 *     segment_write(r, &out, err);
 *     segment_free(r);
 *
 * The picture stays in the body, which must outlive r. It is decoded where the model runs: one picture for each worker.
 */
#ifndef QKV_SERVE_SEGMENT_H
#define QKV_SERVE_SEGMENT_H
#include "base/arena.h"
#include "base/buf.h"
#include "serve/engine.h"

enum {
    MOST_NAMED = 64,         /* texts of a request */
    MOST_NAMED_BYTES = 1024, /* of one */
    MOST_PIXELS = 1 << 25    /* of a picture: 100 MB of RGB */
};

typedef struct Segmenting {
    Arena *arena;
    Call call; /* with its one item; model, timeout and done are the caller's to set */
    Item item;
    const char *model, *name, *file; /* asked for; of the model that runs; of the picture */
    const void *picture;
    size_t size;
    const char *text[MOST_NAMED];
    int n;
    double threshold; /* 0: the model's */
    Buf answer;
} Segmenting;

Segmenting *segment_read(const char *content_type, const void *body, size_t size, Err *err);
bool segment_bind(Segmenting *r, const char *name, const Model *m, Err *err);
bool segment_write(Segmenting *r, Buf *out, Err *err);
void segment_free(Segmenting *r); /* NULL is fine */
#endif
