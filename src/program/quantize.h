/* Quantizing a program: rules, placement, calibration, the new graph, and how far its results are from the floats'. */
#ifndef QKV_PROGRAM_QUANTIZE_H
#define QKV_PROGRAM_QUANTIZE_H
#include "base/buf.h"
#include "program/budget.h"
#include "program/program.h"
#include "quantize/place.h"

typedef struct QuantizeRequest {
    QuantizeOptions place;
    Calibration how;
    double percentile;         /* of CALIBRATE_PERCENTILE */
    const Tensor *tensor;      /* per input of the graph, rows along axis 0 (train/data.h); NULL: random numbers */
    int64_t batch;             /* rows a run; 0: the model's, or 32 */
    const BudgetLimit *budget; /* how near to stay to the floats; NULL: layers are not measured */
    BudgetMetric *metric;      /* the caller's own figure of a candidate; NULL: none */
    void *metric_user;
    int calls;      /* of it, at most */
    double massive; /* layers whose input has elements so many times its median are left (massive.h) */
    double smooth;  /* alpha of SmoothQuant (quantize/smooth.h); 0: none */
    bool correct;   /* biases, by what rounding the weights does to the means over the data */
    uint64_t seed;  /* of random numbers */
    int threads;
    const char *cache; /* the file that keeps what calibration has seen (seen.h); NULL: none */
    bool (*progress)(void *user, int64_t done, int64_t total); /* after every batch; false stops */
    void *progress_user;
} QuantizeRequest;

/* A new graph with quantizers; `from` is only read, its weights are shared. report: JSON, see qkv_model_quantize in
 * qkv_tools.h. Errors: E_USAGE (data that do not fit, or are not finite), E_UNSUPPORTED (nothing to quantize). */
Graph *program_quantize(const Program *from, const QuantizeRequest *r, Buf *report, Err *err);
#endif
