/* Is this softmax an attention: softmax(product of queries and keys) times values? Asked of a graph without rules.
 *
 *     AttentionFinder f;
 *     AttentionParts a;
 *     if (!attention_finder(&f, graph, err)) ...
 *     for (n of graph) if (attention_begins(&f, n, &a) && a.values) ...
 *     attention_finder_free(&f);
 *
 * Between the products may stand views, casts, factors, masks, softcaps and what else scores and probabilities pass
 * through; the product with values may be transposed (v^T p^T). Whether it can be one op, and with which scale and
 * mask, only rules say (src/rewrite/attention).
 */
#ifndef QKV_FACTS_ATTENTION_H
#define QKV_FACTS_ATTENTION_H
#include "ir/graph.h"

enum { ATTENTION_PATH = 64 };

typedef struct AttentionFinder {
    const Graph *g;
    unsigned char *seen;  /* by value id: looked at on the way back */
    unsigned char *after; /* the same: made of the probabilities asked about last */
    unsigned char *fixed; /* the same: a weight, or computed without any input */
} AttentionFinder;

typedef struct AttentionParts {
    const Node *path[ATTENTION_PATH]; /* from the operand of the softmax back to the product of queries and keys */
    int n;
    const Node *scores; /* that product: the end of the path */
    const Node *values; /* the product that the probabilities reach; NULL when they reach none */
} AttentionParts;

bool attention_finder(AttentionFinder *f, const Graph *g, Err *err);
void attention_finder_free(AttentionFinder *f);

/* Is n a softmax, or the exponential of one that is written out, of a product of queries and keys? One with a weight is
 * rather a layer's. Fills in the parts around it. */
bool attention_begins(AttentionFinder *f, const Node *n, AttentionParts *a);
/* Is an operand of n made of the probabilities that were asked about last? */
bool attention_reaches(const AttentionFinder *f, const Node *n);
#endif
