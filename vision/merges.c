/* Joining pairs. Contract in merges.h. */
#include "vision/merges.h"
#include <string.h>
#include "base/mem.h"

typedef struct Candidate {
    int rank, at; /* at: the left one of the pair */
} Candidate;

bool merges_room(Merges *m, size_t count, Err *err)
{
    size_t slots = 1024;
    while (slots < 2 * count) slots *= 2;
    m->slots = mem_zeroed(slots, sizeof *m->slots);
    m->mask = slots - 1;
    return m->slots || oom(err);
}

void merges_free(Merges *m)
{
    mem_free(m->slots);
    *m = (Merges){0};
}

Merge *merges_slot(const Merges *m, int left, int right)
{
    uint64_t pair = merges_pair(left, right);
    size_t at = (size_t)(pair * 0x9E3779B97F4A7C15u >> 32) & m->mask;
    while (m->slots[at].pair && m->slots[at].pair != pair) at = (at + 1) & m->mask;
    return &m->slots[at];
}

void join_free(Join *j)
{
    mem_free(j->next);
    mem_free(j->before);
    mem_free(j->heap);
    *j = (Join){0};
}

static bool room(Join *j, size_t n, Err *err)
{
    if (n <= j->size) return true;
    join_free(j);
    j->next = mem_alloc(n * sizeof *j->next);
    j->before = mem_alloc(n * sizeof *j->before);
    j->heap = mem_alloc(3 * n * sizeof *j->heap); /* n at first, and 2 for each of at most n joins */
    j->size = n;
    if (j->next && j->before && j->heap) return true;
    join_free(j);
    return oom(err);
}

static bool earlier(Candidate a, Candidate b) { return a.rank != b.rank ? a.rank < b.rank : a.at < b.at; }

static void push(Candidate *heap, size_t *n, Candidate c)
{
    size_t at = (*n)++;
    for (; at && earlier(c, heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = c;
}

static Candidate pop(Candidate *heap, size_t *n)
{
    Candidate top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (size_t k; (k = 2 * at + 1) < *n; at = k) {
        if (k + 1 < *n && earlier(heap[k + 1], heap[k])) k++;
        if (!earlier(heap[k], last)) break;
        heap[at] = heap[k];
    }
    heap[at] = last;
    return top;
}

/* The pair of symbol `at` and the one after it, if it is a merge. */
static void offer(const Merges *m, const int *symbol, const Join *j, int at, int n, size_t *count)
{
    if (at < 0 || j->next[at] >= n) return;
    const Merge *found = merges_slot(m, symbol[at], symbol[j->next[at]]);
    if (found->pair) push(j->heap, count, (Candidate){found->rank, at});
}

bool merges_join(const Merges *m, int *symbol, size_t *n, Join *j, Err *err)
{
    int size = (int)*n;
    size_t count = 0, left = 0;
    TRY(room(j, *n, err));
    for (int i = 0; i < size; i++) {
        j->next[i] = i + 1;
        j->before[i] = i - 1;
    }
    for (int i = 0; i < size; i++) offer(m, symbol, j, i, size, &count);
    while (count) {
        Candidate c = pop(j->heap, &count);
        int from = c.at, to = j->next[from];
        if (symbol[from] < 0 || to >= size) continue;
        const Merge *found = merges_slot(m, symbol[from], symbol[to]);
        if (!found->pair || found->rank != c.rank) continue; /* one of the two was joined meanwhile */
        symbol[from] = found->id;
        symbol[to] = -1;
        j->next[from] = j->next[to];
        if (j->next[to] < size) j->before[j->next[to]] = from;
        offer(m, symbol, j, j->before[from], size, &count);
        offer(m, symbol, j, from, size, &count);
    }
    for (int i = 0; i < size; i++)
        if (symbol[i] >= 0) symbol[left++] = symbol[i];
    *n = left;
    return true;
}
