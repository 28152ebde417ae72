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
 * ways. Layers are kept in the order of loss for a millisecond (the knapsack's greedy choice), as few as hold the
 * limit in a run with all the others quantized. Of weights alone, the cost of keeping is the weight's size: where few
 * rows are multiplied, a product takes as long as its weight takes to be read.
 */
#ifndef QKV_PROGRAM_BUDGET_H
#define QKV_PROGRAM_BUDGET_H
#include "quantize/place.h"
#include "run/session.h"

typedef struct BudgetLimit {
    bool kl;     /* mean divergence (nats) of the softmax of the results' rows; else cosine */
    double loss; /* at most: that, or 1 - cosine, of the worst output */
} BudgetLimit;

/* "cosine>=0.999" or "kl<=0.01". */
bool budget_read(const char *text, BudgetLimit *out, Err *err);
/* A loss as what was asked for: a cosine or a divergence. */
double budget_shown(const BudgetLimit *l, double loss);

typedef struct BudgetSite {
    bool tried;                        /* it can be quantized */
    double loss, float_ms, integer_ms; /* of it alone */
    bool kept;
} BudgetSite;

typedef struct Budget {
    const Graph *floats;
    Placement *p; /* placed, its points have scales, not applied */
    BudgetLimit limit;
    int threads;
    bool (*run)(void *user, Session *s, int64_t batch, Err *err);
    bool (*done)(void *user, int64_t done, int64_t total, Err *err); /* trials */
    void *user;
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
/* E_UNSUPPORTED: no layer can be quantized within the limit; the message has the best there is. */
bool budget_choose(Budget *b, Err *err);
void budget_free(Budget *b);
#endif
