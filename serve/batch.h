/* Requests that share a run: their inputs one below the other, and each one's part of the outputs.
 *
 *     if (!item_measure(m, &item, err)) ...                    sizes that the model does not take
 *     if (items_fit(m, &first, &item)) list[n++] = &item;
 *     batch_run(m, session, list, n, take, user, err);         take(user, item, its outputs)
 */
#ifndef QKV_SERVE_BATCH_H
#define QKV_SERVE_BATCH_H
#include "serve/model.h"

/* One request, or one text of it. */
typedef struct Item {
    struct Call *call;
    int index;            /* in its call */
    Tensor *in;           /* contiguous; one for each input of the model */
    int64_t rows, tokens; /* its batch; sizes of the axis of tokens, where requests may differ in them, else 0 */
    int64_t real;         /* of all rows: tokens that the mask marks; where there is no mask, rows */
    struct Item *next;
} Item;

/* Is every input there as the model takes it? Fills in rows, tokens and real. */
bool item_measure(const Model *m, Item *item, Err *err);
bool items_fit(const Model *m, const Item *first, const Item *other);

typedef struct BatchSize {      /* of a run */
    int64_t rows, real, padded; /* tokens: real ones, and with the padding to the longest */
} BatchSize;
BatchSize batch_size(Item *const *item, int n);

/* out: one view for each output of the model, of the item's rows and tokens; valid during the call. */
typedef bool BatchTake(void *user, Item *item, const Tensor *out, Err *err);
bool batch_run(const Model *m, qkv_session *s, Item *const *item, int n, BatchTake *take, void *user, Err *err);
#endif
