/* SmoothQuant (Xiao et al. 2023): what is far larger in a few channels of a norm's result moves into the weights.
 *
 *     n = layer_norm(x, w, b), linear(n, W), ...   ->   m = layer_norm(x, w / s, b / s), linear(m, W * s), ...
 *
 *     Smoothing s;
 *     smooth_find(graph, &s, err);
 *     channels_observe(&s.group[i].seen, x, rows, err)          data of s.group[i].seen.value
 *     smooth_apply(&s, 0.5, err);
 *     smooth_free(&s);
 *
 * s of a channel is most^alpha / (largest weight)^(1 - alpha). The norm stays for its other readers. Exact but for
 * rounding.
 */
#ifndef QKV_QUANTIZE_SMOOTH_H
#define QKV_QUANTIZE_SMOOTH_H
#include "ir/graph.h"

/* The channels (last axis, K) of a value over data. */
typedef struct Channels {
    Value *value;
    int64_t K, rows;
    float *most; /* largest absolute values */
    double *sum;
    struct Massive *massive; /* NULL, or the caller's: watched, too (massive.h) */
    double *gram;            /* NULL, or (K, K): sums of products of two channels, the second not before the first */
} Channels;

/* Memory from the arena; NULL most: out of it. */
Channels channels_of(Arena *a, Value *v, int64_t K);
bool channels_gram(Arena *a, Channels *c, Err *err); /* so that products are summed, too */
bool channels_observe(Channels *c, const float *x, int64_t rows, Err *err);

typedef struct SmoothGroup {
    Channels seen; /* of the norm's result */
    Node **linear; /* the layers that read it */
    int nlinear;
} SmoothGroup;

typedef struct Smoothing {
    Graph *g;
    Arena *arena;
    SmoothGroup *group;
    int ngroups;
} Smoothing;

bool smooth_find(Graph *g, Smoothing *s, Err *err);
bool smooth_apply(Smoothing *s, double alpha, Err *err);
/* AWQ (Lin et al. 2023): each group by the factors rms(channel)^alpha whose alpha loses least once its weights are
 * rounded to `bits` in blocks of `group`. Groups have a gram. */
bool smooth_search(Smoothing *s, int bits, int64_t group, Err *err);
void smooth_free(Smoothing *s);
#endif
