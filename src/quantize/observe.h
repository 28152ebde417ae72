/* The range of a value over batches of data, and the scale that it is quantized by.
 *
 *     Observer o;
 *     observer_begin(&o, CALIBRATE_PERCENTILE);
 *     observe_range(&o, x, n) ...                          every batch
 *     observe_histogram(&o, x, n, err) ...                 every batch again, where observer_histogram(&o)
 *     Scale s = observer_scale(&o, 99.99, false);
 *
 * Numbers alone: batches come in the caller's order, so that the same data give the same scales.
 */
#ifndef QKV_QUANTIZE_OBSERVE_H
#define QKV_QUANTIZE_OBSERVE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "tensor/dtype.h"

typedef enum Calibration {
    CALIBRATE_MINMAX,     /* the least and the largest element seen */
    CALIBRATE_AVERAGE,    /* of each batch, moving by a hundredth (torch's MovingAverageMinMaxObserver) */
    CALIBRATE_PERCENTILE, /* what so many of 100 absolute values stay below */
    CALIBRATE_ENTROPY,    /* the least Kullback-Leibler divergence from the histogram (TensorRT's, Migacz 2017) */
    CALIBRATE_MSE,        /* the least squared error over the histogram */
    CALIBRATIONS
} Calibration;

const char *calibration_name(Calibration c); /* "minmax", ... */

enum { OBSERVER_BINS = 2048 };

typedef struct Observer {
    Calibration how;
    int64_t batches, count;
    double low, high;
    double *bin; /* of absolute values, [0, largest); NULL before observe_histogram */
} Observer;

typedef struct Scale {
    double scale;
    int zero;
    DType t;
} Scale;

void observer_begin(Observer *o, Calibration how);
void observer_free(Observer *o);
/* Does the way need a second look at the data? */
bool observer_histogram(const Observer *o);
/* Index of the first element that is NaN or infinite, else -1. */
int64_t observe_range(Observer *o, const float *x, int64_t n);
bool observe_histogram(Observer *o, const float *x, int64_t n, Err *err);
/* i8 or f8e4m3fn with zero point 0, or u8 of the range from the least to the largest element. 1 where all are 0. */
Scale observer_scale(const Observer *o, double percentile, DType t);
#endif
