/* The Open Inference Protocol, version 2, as bytes: requests and answers of v2/models/NAME/infer with tensors as JSON
 * or as binary data after it, and the descriptions of server and model.
 *
 *     Infer *r = infer_read(model, body, size, header, err);     header: its bytes of JSON, or INFER_JSON
 *     ... engine_submit(e, 0, &r->call, ...) ...                 whose take is infer_take
 *     infer_write(r, "minilm", &out, &json, err);                json: its bytes before binary data; 0: no such data
 *     infer_free(r);
 *
 * https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
 */
#ifndef QKV_SERVE_OIP_H
#define QKV_SERVE_OIP_H
#include <stdint.h>
#include "base/arena.h"
#include "base/buf.h"
#include "serve/engine.h"

#define INFER_JSON SIZE_MAX

typedef struct Infer {
    Arena *arena;
    Call call; /* with its one item; model, timeout and done are the caller's to set */
    Item item;
    const char *id;           /* NULL: none was given */
    int order[MOST_PORTS], n; /* outputs that are wanted */
    bool binary[MOST_PORTS];  /* how, by output */
    Tensor result[MOST_PORTS];
    double timeout; /* seconds; 0: not given */
} Infer;

/* Everything is copied from body. E_USAGE and E_FORMAT say what is wrong with the request; nothing is left to free
 * then. */
Infer *infer_read(const Model *m, const void *body, size_t size, size_t header, Err *err);
bool infer_take(void *infer, Item *item, const Tensor *out, Err *err);
bool infer_write(const Infer *r, const char *model, Buf *out, size_t *json, Err *err);
void infer_free(Infer *r); /* NULL is fine */

void oip_server(Buf *out);                                  /* GET v2 */
void oip_model(const Model *m, const char *name, Buf *out); /* GET v2/models/NAME */
bool dtype_holds(DType t, int64_t v);                       /* an integer dtype: is v one of its values? */
/* The JSON of a request; what is wrong with it, its depth too, is the sender's (E_FORMAT). kept: json_read_keeping's
 * key; NULL: none. */
struct JsonValue *request_json(const void *bytes, size_t size, const char *kept, Err *err);
/* A zeroed record of a request in an arena of its own, in which the record lies too; begins to count memory. */
void *request_new(size_t size, Arena **own, Err *err);
const char *oip_datatype(DType t);     /* "FP32"; NULL: the protocol has none */
DType oip_dtype(const char *datatype); /* DT_NONE */
#endif
