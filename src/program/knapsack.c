/* Sets of most worth. Contract in knapsack.h. */
#include "program/knapsack.h"
#include "base/mem.h"

static const double EQUAL = 1 + 1e-12; /* a sum in another order gains nothing */

static int64_t bit_of(const Knapsack *k, int thing, int64_t cost) { return thing * (k->total + 1) + cost; }

/* best[c]: the most worth of the first things for a cost of at most c. */
static void fill(Knapsack *k, double *best, const double *worth)
{
    for (int i = 0; i < k->n; i++)
        for (int64_t c = k->total; c >= k->cost[i]; c--) {
            const double with = best[c - k->cost[i]] + worth[i];
            if (!(with > best[c] * EQUAL)) continue;
            best[c] = with;
            const int64_t bit = bit_of(k, i, c);
            k->took[bit / 8] |= (uint8_t)(1 << bit % 8);
        }
}

bool knapsack_solve(Knapsack *k, const int64_t *cost, const double *worth, int n, Err *err)
{
    *k = (Knapsack){.n = n};
    for (int i = 0; i < n; i++) k->total += cost[i];
    double *best = mem_zeroed((size_t)k->total + 1, sizeof *best);
    k->cost = mem_zeroed((size_t)n + 1, sizeof *k->cost);
    k->took = mem_zeroed((size_t)bit_of(k, n, 0) / 8 + 1, 1);
    k->point = mem_zeroed((size_t)k->total + 1, sizeof *k->point);
    const bool ok = (best && k->cost && k->took && k->point) || oom(err);
    for (int i = 0; ok && i < n; i++) k->cost[i] = cost[i];
    if (ok) fill(k, best, worth);
    for (int64_t c = 0; ok && c <= k->total; c++)
        if (!c || best[c] > k->point[k->npoints - 1].worth * EQUAL)
            k->point[k->npoints++] = (KnapsackPoint){c, best[c]};
    mem_free(best);
    if (!ok) knapsack_free(k);
    return ok;
}

void knapsack_set(const Knapsack *k, int64_t point, bool *taken)
{
    int64_t left = k->point[point].cost;
    for (int i = k->n - 1; i >= 0; i--) {
        const int64_t bit = bit_of(k, i, left);
        taken[i] = k->took[bit / 8] >> bit % 8 & 1;
        if (taken[i]) left -= k->cost[i];
    }
}

void knapsack_free(Knapsack *k)
{
    mem_free(k->point);
    mem_free(k->took);
    mem_free(k->cost);
    *k = (Knapsack){0};
}
