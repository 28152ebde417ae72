/* The knapsack: of things that each have a cost and a worth, the set of most worth for every cost that pays.
 *
 *     Knapsack k;
 *     knapsack_solve(&k, cost, worth, n, err);
 *     for (i < k.npoints) k.point[i].cost, k.point[i].worth        both rise; the first point is the empty set
 *     knapsack_set(&k, i, taken);                                  taken[n]: its set
 *     knapsack_free(&k);
 *
 * Exact, by dynamic programming over total costs: time and bits are n times their sum. Of sets that are equal the one
 * of earlier things is taken, so that the answer depends on the numbers alone.
 */
#ifndef QKV_PROGRAM_KNAPSACK_H
#define QKV_PROGRAM_KNAPSACK_H
#include <stdint.h>
#include "base/err.h"

typedef struct KnapsackPoint {
    int64_t cost;
    double worth;
} KnapsackPoint;

typedef struct Knapsack {
    KnapsackPoint *point;
    int64_t npoints, total; /* total: of all costs */
    uint8_t *took;          /* bits by thing and cost */
    int64_t *cost;
    int n;
} Knapsack;

/* Costs are at least 1, worths at least 0 and finite. */
bool knapsack_solve(Knapsack *k, const int64_t *cost, const double *worth, int n, Err *err);
void knapsack_set(const Knapsack *k, int64_t point, bool *taken);
void knapsack_free(Knapsack *k);
#endif
