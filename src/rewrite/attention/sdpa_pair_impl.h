/* What the two halves of sdpa_pair share: sdpa_pair_find.c finds, sdpa_pair.c builds and fires. */
#ifndef QKV_REWRITE_ATTENTION_SDPA_PAIR_IMPL_H
#define QKV_REWRITE_ATTENTION_SDPA_PAIR_IMPL_H
#include "rewrite/attention/makers.h"
#include "rewrite/attention/sdpa_pair.h"

enum { MAX_VIEWS = 16, MAX_INNER = 16 };
enum { GRAD_QUERY, GRAD_KEY, GRAD_VALUE, GRAD_MASK }; /* results of sdpa_backward */

/* Who reads what: a list of nodes for each value. */
typedef struct Reader {
    Node *node;
    int next; /* 1 + index */
} Reader;

typedef struct Readers {
    int *first, nvalues, n; /* first: 1 + index, by value id */
    Reader *reader;
    Node *node; /* being listed */
    bool ok;
} Readers;

/* A product that is one of the gradients: from = factor * (that gradient, transposed or not,
 * seen through these views). */
typedef struct Root {
    Value *from;
    int which;
    bool transposed;
    double factor;
    Value *product; /* before the views */
    Expr *over;     /* what it sums: rows of queries, or keys */
    int nviews;
    const Node *view[MAX_VIEWS];
    const Node *sum;      /* of the heads of a group, where it follows; NULL */
    int summed;           /* views before it */
    double summed_factor; /* of what it sums */
    Value *unsummed;
} Root;

typedef struct Pair {
    Rewrite *rw;
    const Readers *readers;
    Value *p, *base; /* as dS reads the probabilities; before views */
    Value *ds, *dp;
    Node *inner[MAX_INNER]; /* what computes dS from P and dP */
    int ninner, depth;
    Arg form, grad_form; /* of base: qkv.scores */
    Root root[MAX_FORK];
    int nroots;
    Value *dout;       /* what comes back, as the gradient of the values reads it; NULL */
    bool masked_again; /* dS is set to 0 where the mask hides keys */
} Pair;

bool find_readers(Rewrite *rw, Readers *r);
void free_readers(Readers *r);
/* All readers of P and dS are products that are gradients, or make the gradient of a mask: p->root. False says why. */
bool find_pair(Pair *p, Value *form);

/* The same value, or the same ops on the same values: what was made while forms were derived need not be what the graph
 * has. */
bool alike(const Value *a, const Value *b, int depth);
/* v with its views folded: a permute that undoes another is nothing, and so on. */
Value *folded(Rewrite *rw, Value *v, int depth);

static inline void swap_last(int rank, Expr **dim)
{
    Expr *e = dim[rank - 1];
    dim[rank - 1] = dim[rank - 2];
    dim[rank - 2] = e;
}
#endif
