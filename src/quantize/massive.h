/* Massive activations (Sun et al. 2024): a few elements, thousands of times the median, in a few channels or tokens.
 *
 *     Massive *m = massive_create(err);
 *     massive_observe(m, x, rows, K, err);                      every batch
 *     why = massive_found(m, 1000, arena);                      NULL: none
 *     massive_free(m);
 *
 * One scale holds them and rounds all the others to 0, and so does one scale a token in the tokens that have them: what
 * the model says is then decided by rounding. The median is of the elements that are not 0, to a quarter of an octave.
 */
#ifndef QKV_QUANTIZE_MASSIVE_H
#define QKV_QUANTIZE_MASSIVE_H
#include <stdint.h>
#include "base/arena.h"
#include "base/err.h"

enum { MASSIVE_BINS = 1024 }; /* of a float's bits without its sign: the exponent and two more */

typedef struct Massive {
    int64_t all[MASSIVE_BINS], rows[MASSIVE_BINS]; /* elements; rows by their largest */
    int64_t K;
    uint32_t *most; /* of every channel, its largest element's bits; K are seen so far */
} Massive;

Massive *massive_create(Err *err);
void massive_free(Massive *m); /* NULL is fine */
/* (rows, K); another K where a size follows from the data. */
bool massive_observe(Massive *m, const float *x, int64_t rows, int64_t K, Err *err);
/* A sentence that names the channels and counts the tokens above `times` the median; NULL: there are none. */
const char *massive_found(const Massive *m, double times, Arena *a, Err *err);
#endif
