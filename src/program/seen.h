/* What calibration has seen of its points so far, in a file: a run that was stopped goes on there, and one with the
 * same model, data and way to find ranges need not look again.
 *
 *     Seen s = {observer, massive, npoints, key, total};
 *     seen_load(&s, path, err);               s.done batches were seen; 0 where there is no file
 *     ... a batch, s.done++ ...
 *     seen_save(&s, path, err);               whole or not at all
 *
 * Tensors: "key" (u8), "done" (i64), "count" (i64, points x 2: batches, elements), "range" (f64, points x 2), "bins"
 * (f64, points x OBSERVER_BINS, or 0 x OBSERVER_BINS where none were filled), "all" and "rows" (i64, points x
 * MASSIVE_BINS), "channels" (i64, points) and "most" (u32, channels of all points).
 */
#ifndef QKV_PROGRAM_SEEN_H
#define QKV_PROGRAM_SEEN_H
#include "base/digest.h"
#include "quantize/massive.h"
#include "quantize/observe.h"

typedef struct Seen {
    Observer *observer; /* by point, begun */
    Massive **massive;
    int n;
    char key[DIGEST_TEXT]; /* of all that the file's contents follow from */
    int64_t total, done;   /* batches, those of a second look, too */
} Seen;

/* Errors: E_USAGE: the file has another key; E_FORMAT: it is not what seen_save writes. */
bool seen_load(Seen *s, const char *path, Err *err);
bool seen_save(const Seen *s, const char *path, Err *err);
#endif
