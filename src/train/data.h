/* Training data: tensors with one row an example, and batches of them as a session's inputs.
 *
 *     Data *d = data_create(graph, tensors, batch, err);       tensors[i] for graph->input[i], borrowed
 *     data_batch(d, session, rows, n, err);                    those rows become the session's inputs, until the next
 *                                                              batch
 *
 * Rows are counted along axis 0. A tensor of other length must have its input's sizes as they are: it is the same in
 * every batch. An input whose axis 0 is fixed gives the batch; the default elsewhere is 32, or the nearest that the
 * range of axis 0 allows.
 */
#ifndef QKV_TRAIN_DATA_H
#define QKV_TRAIN_DATA_H
#include "run/rng.h"
#include "run/session.h"

typedef struct Data Data;
Data *data_create(const Graph *g, const Tensor *tensor, int64_t batch, Err *err);
void data_free(Data *d); /* NULL is fine */
int64_t data_rows(const Data *d);
int64_t data_batch_size(const Data *d);
bool data_fixed(const Data *d); /* the model takes batches of that size only */
bool data_batch(Data *d, Session *s, const int64_t *row, int64_t n, Err *err);
/* out[0 .. n) becomes what torch.randperm(n, generator=g) gives for n below 2^32 / 20
 * (aten/src/ATen/native/TensorFactories.cpp). */
void data_permutation(Rng *g, int64_t n, int64_t *out);
enum { DATA_MOST_ROWS = 214748363 };
#endif
