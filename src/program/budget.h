/* Layers kept in floats, or, where weights alone get 4 bits, in 8 bits, so that a quantized model stays as near to the
 * floats as was asked.
 *
 *     BudgetLimit limit;
 *     budget_read("cosine>=0.999", &limit, err);
 *     Budget b = {.floats = graph, .p = &placement, .limit = limit, .run = f, .user = x, .batches = n};
 *     budget_choose(&b, err);                   p->site[i].why of the layers that are kept; b.site has figures
 *     budget_free(&b);
 *
 * Every layer is quantized alone, and what that costs in the results is measured; so is the time of its product both
 * ways. For every time that may be given up a knapsack (knapsack.h) has the set of layers whose losses sum to the most;
 * the cheapest of these sets that holds the limit in a run with all the others quantized is kept, found by bisection.
 * Losses add up only about, so the dearest layers of it are then quantized one by one, if the limit holds. Times are
 * medians over layers of one shape; what they save counts in steps of a quarter of an octave, as a hundredth of the
 * largest at least, and as that where it is less than a fifth of the layer's own time: layers that a clock cannot tell
 * apart are told apart by their loss, which is the same in every call. Of weights
 * alone, the cost of keeping is the weight's size: where few rows are multiplied, a product takes as long as its weight
 * takes to be read. The caller's own figure may take minutes: losses are what layers take from the cosine, and it is
 * asked for at the bisection's steps alone.
 */
#ifndef QKV_PROGRAM_BUDGET_H
#define QKV_PROGRAM_BUDGET_H
#include "quantize/place.h"
#include "run/session.h"

typedef enum BudgetWay {
    BUDGET_COSINE,
    BUDGET_KL,  /* mean divergence (nats) of the softmax of the results' rows */
    BUDGET_OWN, /* a figure that the caller finds, such as the accuracy on labelled data */
} BudgetWay;

typedef struct BudgetLimit {
    BudgetWay way;
    double loss;  /* at most: 1 - cosine or the divergence of the worst output; of an own figure itself, where less is
                   * better, else its negative */
    bool falling; /* own: less is better */
    bool share;   /* own: loss is a share of the floats' figure */
} BudgetLimit;

/* "cosine>=0.999", "kl<=0.01", "metric>=0.98", "metric>=99%" (of the floats' figure), "metric<=12". */
bool budget_read(const char *text, BudgetLimit *out, Err *err);
/* A loss as what was asked for: a cosine, a divergence or a figure. */
double budget_shown(const BudgetLimit *l, double loss);
const char *budget_name(const BudgetLimit *l); /* "cosine", "kl", "metric" */

/* How far quantized results are from the floats', of the worst output each. */
typedef struct Losses {
    double cosine; /* 1 - cosine */
    double kl;
    double noise; /* energy of the error to that of the result */
} Losses;

typedef struct BudgetSite {
    bool tried; /* it can be quantized */
    Losses losses;
    double float_ms, integer_ms; /* of its product: the medians of those of its shape */
    int64_t cost;                /* of keeping it, for the knapsack */
    int rank;                    /* of those tried, from 1: first those that are kept, then by loss for the cost */
} BudgetSite;

/* The figure of a candidate, which it frees. */
typedef bool BudgetMetric(void *user, Graph *candidate, double *figure, Err *err);

typedef struct Budget {
    const Graph *floats;
    Placement *p; /* placed, its points have scales, not applied */
    BudgetLimit limit;
    int threads;
    bool (*run)(void *user, Session *s, int64_t batch, Err *err);
    bool (*done)(void *user, int64_t done, int64_t total, Err *err); /* trials */
    void *user;
    BudgetMetric *metric; /* of BUDGET_OWN, at most `calls` times */
    void *metric_user;
    int calls, called;
    double own_floats; /* the floats' figure */
    int64_t batches;
    BudgetSite *site;    /* by site of p */
    double all, reached; /* loss with every layer quantized, and with those that are not kept */
    int kept;
    double *want; /* results of the floats */
    int64_t nwant, room;
    int64_t trials, total;
} Budget;

/* Are layers kept in 8 bits? */
bool budget_keeps_eight(const Budget *b);
/* E_UNSUPPORTED: no layer can be quantized within the limit; the message has the best there is. E_LIMIT: the metric was
 * asked for `calls` times, and no candidate held it. */
bool budget_choose(Budget *b, Err *err);
/* The figure of g, a graph that is copied. */
bool budget_figure(Budget *b, const Graph *g, double *figure, Err *err);
void budget_free(Budget *b);
#endif
