/* OpenAI's /v1/embeddings and /v1/models as bytes.
 *
 *     Embeddings *r = embeddings_read(body, size, err);          r->model: which one is asked
 *     if (embeddings_bind(r, model, err)) ... engine_submit(e, 0, &r->call, ...) ...
 *     embeddings_write(r, &out, err);
 *     embeddings_free(r);
 */
#ifndef QKV_SERVE_OPENAI_H
#define QKV_SERVE_OPENAI_H
#include "base/arena.h"
#include "base/buf.h"
#include "serve/engine.h"

enum { MOST_TEXTS = 2048 }; /* of a request */

typedef struct Embeddings {
    Arena *arena;
    Call call; /* an item for each text; model, timeout and done are the caller's to set */
    const char *model;
    struct JsonValue *root; /* the request */
    bool base64;
    int64_t dimensions; /* 0: all */
    int *length;        /* tokens of each text */
    float **row;        /* its embedding */
    int64_t width, tokens;
} Embeddings;

Embeddings *embeddings_read(const void *body, size_t size, Err *err); /* NULL: E_USAGE, E_FORMAT, or no memory */
bool embeddings_bind(Embeddings *r, const Model *m, Err *err);        /* texts become tokens */
bool embeddings_write(const Embeddings *r, Buf *out, Err *err);
void embeddings_free(Embeddings *r); /* NULL is fine */

void openai_model(const char *name, int64_t created, Buf *out);
void base64_put(Buf *out, const void *bytes, size_t n);
#endif
