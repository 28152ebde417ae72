/* Where quantizers go, and putting them there.
 *
 *     Placement p;
 *     quantize_place(graph, &options, &p, err);            after recognition and fusion
 *     for (i < p.npoints) p.point[i].scale = ...           by calibration (observe.h)
 *     quantize_apply(&p, err);                             graph has quantize_linear and dequantize_linear
 *     placement_free(&p);
 *
 * A site is a product: a linear layer, a convolution, an attention, or the sum with a residual. A point is a value that
 * sites read quantized. Quantizers stand as early as they can, where the value is computed, in front of reshapes and
 * permutes; inverses as late as they can, at the products; the views between move integers
 * (docs/internals/quantize.md).
 */
#ifndef QKV_QUANTIZE_PLACE_H
#define QKV_QUANTIZE_PLACE_H
#include "ir/graph.h"
#include "quantize/observe.h"
#include "quantize/weights.h"

enum { TARGET_HEADS = 4 };

/* What a runtime multiplies as integers; 0: any, or none. */
typedef struct QuantizeTarget {
    const char *name, *newest;   /* newest: the runtime's name, which stands for its newest version, this one; NULL */
    bool constant_scales;        /* not those that a run finds */
    bool float8;                 /* values and weights are f8e4m3fn, not integers */
    bool attention;              /* multiplies attention as integers, or as float8 */
    bool probabilities;          /* probabilities, values and the result of attention, too */
    bool masks;                  /* attention with a mask or bounds */
    bool scale_first;            /* the scale of scores is multiplied with queries in front of their quantizer */
    bool residuals;              /* what is added to the result of a product */
    bool pictures;               /* what is added to the result of a convolution, where a convolution reads it as
                                    integers, too, or makes it */
    int64_t sequence;            /* the longest attention */
    int64_t heads[TARGET_HEADS]; /* head sizes */
    int64_t head_least, head_most;
    int64_t inner, outer; /* least K and N of a product with a weight */
    int64_t deepest;      /* most K */
    int64_t channels;     /* least channels of a convolution; 0: none is quantized */
    int64_t results;      /* least results of a convolution */
    int64_t window;       /* least elements that a window of a convolution sees; not of a depthwise one */
    bool ungrouped;       /* convolutions of one group, or of one for each channel and result, alone */
} QuantizeTarget;

const QuantizeTarget *quantize_target(const char *name);       /* NULL: there is none */
const char *quantize_target_listed(int i);                     /* NULL after the last */
DType quantize_type(const QuantizeTarget *t, bool asymmetric); /* of activations */

typedef struct QuantizeOptions {
    const QuantizeTarget *target;
    bool asymmetric, dynamic; /* dynamic: a scale a token, found in each run, for linear layers alone */
    bool trainable;           /* weights stay floats, each with its quantizer: gradients go straight through (grad/) */
    const char *const *skip;  /* names of nodes, of their weights or ops, with * and ? */
    int nskip;
    int weight_bits; /* 4, 8: weights alone, with a scale a block of `group`; what layers read is in floats, or,
                            dynamic, rounded by a scale a token. 0: activations and weights, 8 bits */
    int64_t group;
    WeightMethod method; /* gptq: sites have an input with a gram */
} QuantizeOptions;

typedef enum SiteKind { SITE_LINEAR, SITE_CONVOLUTION, SITE_ATTENTION, SITE_RESIDUAL } SiteKind;

typedef struct Site {
    SiteKind kind;
    Node *node;
    const char *name;             /* of its result */
    const char *weight;           /* its name in the state dict; NULL */
    int point[3];                 /* of operands 0, 1, 2; -1: none */
    double factor;                /* scale_first: what queries are multiplied with; 0: nothing */
    const struct Channels *input; /* of a linear layer whose data are looked at: what it reads; NULL */
    bool correct;                 /* its bias */
    bool eight;                   /* of weights alone in 4 bits: this one in 8 */
    const char *why;              /* NULL: it is quantized; else why it is not */
} Site;

typedef struct Point {
    Value *value;
    double factor;       /* of queries: the quantizer sees the value times it; 1 */
    bool used;           /* by a site that is quantized */
    bool seen;           /* data were observed, scale is set */
    const char *massive; /* what is massive in it (massive.h): its sites are left; NULL */
    Scale scale;
    double low, high; /* for the report */
} Point;

typedef struct Placement {
    Graph *g;
    QuantizeOptions options;
    Arena *arena;
    Site *site;
    Point *point;
    int nsites, npoints;
    int weights; /* that became integers */
} Placement;

/* The weight that the product n reads, through a transposition too: what the rules make of MatMul and Add, as ONNX
 * files have their layers, is linear(x, permute(w), bias). NULL: it reads none. as: its elements in the order in which
 * n reads them. */
const Value *quantize_weight(const Graph *g, const Node *n, Tensor *as);
/* Errors: E_UNSUPPORTED: the model has quantizers already, loops or branches, or nothing that can be quantized. */
bool quantize_place(Graph *g, const QuantizeOptions *o, Placement *p, Err *err);
/* Is there a site that is quantized? Else E_UNSUPPORTED, with the reason of one. */
bool quantize_any(const Placement *p, Err *err);
/* The bits of the weight of a site, of weights alone. */
int site_bits(const Placement *p, const Site *s);
/* Sites with a point that was not seen, or is massive, are left, with the reason; quantize_apply does so, too. */
void leave_unfit(Placement *p);
bool quantize_apply(Placement *p, Err *err);
/* A buffer of zeros, the graph's own, of that name or one like it; NULL: there was no memory for a name. */
Value *quantize_buffer(Graph *g, const char *name, DType t, int rank, const int64_t *shape, Err *err);
void placement_free(Placement *p);
#endif
