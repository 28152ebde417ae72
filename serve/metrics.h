/* What a server counts, and how Prometheus reads it (text format 0.0.4).
 *
 *     metrics_request(&m, "minilm", ENDPOINT_INFER, 200, seconds);
 *     metrics_text(&m, &buf);          qkv_requests_total{model="minilm",endpoint="infer",code="200"} 1
 */
#ifndef QKV_SERVE_METRICS_H
#define QKV_SERVE_METRICS_H
#include <pthread.h>
#include <stdint.h>
#include "base/buf.h"

typedef enum Endpoint { ENDPOINT_INFER, ENDPOINT_EMBEDDINGS, ENDPOINT_SEGMENT, ENDPOINT_OTHER, ENDPOINTS } Endpoint;

enum { MOST_BUCKETS = 16 };
typedef struct Histogram {
    const double *bound; /* ends with 0 */
    uint64_t count[MOST_BUCKETS + 1], n;
    double sum;
} Histogram;

enum { CODES = 24 }; /* of answers that a server gives; a table in metrics.c */
typedef struct ModelMetrics {
    const char *name; /* the caller's; "" is what belongs to no model */
    uint64_t answered[ENDPOINTS][CODES];
    uint64_t real, padded; /* tokens that ran, and how many the padding to each run's longest would have made of them */
    uint64_t pictures, had; /* that were looked at, and whose features were kept */
    uint64_t refused, cancelled, expired, failed, loads, failed_loads;
    Histogram request, queue, compute, rows, tokens;
} ModelMetrics;

typedef struct Metrics {
    pthread_mutex_t lock;
    ModelMetrics *model; /* n of the server's models, and one for what belongs to none */
    int n;
} Metrics;

bool metrics_open(Metrics *m, const char *const *name, int n, Err *err);
void metrics_close(Metrics *m);
/* model: its index; -1: none. All may be called from any thread. */
void metrics_request(Metrics *m, int model, Endpoint e, int code, double seconds);
void metrics_batch(Metrics *m, int model, int64_t rows, int64_t real, int64_t padded, double seconds);
void metrics_pictures(Metrics *m, int model, int64_t looked, int64_t had);
void metrics_waited(Metrics *m, int model, double seconds);
typedef enum Event { EVENT_REFUSED, EVENT_CANCELLED, EVENT_EXPIRED, EVENT_FAILED, EVENT_LOAD, EVENT_FAILED_LOAD } Event;
void metrics_event(Metrics *m, int model, Event what);
void metrics_text(Metrics *m, Buf *out);
/* A line with a value of now: gauge(out, "qkv_queue_length", "model", "minilm", 3) */
void metrics_gauge(Buf *out, const char *name, const char *label, const char *value, double v);
#endif
