/* Tables that all claims about one graph use one after the other: to make them for each takes as long as to walk the
 * graph.
 *
 *     Room *r = room_of(claim, err);                  the claim's, or one of its own
 *     mark(&r->seen, v, 1);
 *     if (marked(&r->seen, v)) ...
 *     room_end(claim, r);
 */
#ifndef QKV_REWRITE_PROVE_ROOM_H
#define QKV_REWRITE_PROVE_ROOM_H
#include <stdint.h>
#include "rewrite/rewrite.h"

enum { MAX_BINDINGS = 4 };

/* Numbers from 1 to 255 by value id, which are forgotten all at once. */
typedef struct Marks {
    uint32_t *at, turn;
} Marks;

typedef struct Ancestor {
    double place;
    Node *node;
} Ancestor;

typedef struct Room {
    ClaimRoom head;
    size_t n;       /* values that there is room for */
    Marks before;   /* what is replaced depends on it */
    Marks left_out; /* it does not count as a common input all the same */
    Marks seen;     /* visited */
    Marks drawn;    /* who draws it: 1 + family */
    Value **map;    /* for whom makes a graph; all NULL in between */
    Ancestor *heap; /* of what is replaced, the last one first, whose operands have not been marked yet */
    int nheap;
    const Value **left; /* whom left_out marks */
    int nleft;
    double *place; /* of a claim that does not know them: nodes by the id of their first result; values */
    bool *varies;
    Binding sizes[2 * MAX_BINDINGS];
    enum { SIZES_UNKNOWN, SIZES_FIT, SIZES_NONE } fit[2 * MAX_BINDINGS];
    int nsymbols, nrequire; /* of the graph when they were chosen */
} Room;

unsigned marked(const Marks *m, const Value *v); /* 0: it is not */
void mark(Marks *m, const Value *v, unsigned what);
void forget(Marks *m, size_t n); /* n: of the room */

/* With room for the values that the claim's graph has now, nothing marked. NULL on error. */
Room *room_of(const Claim *c, Err *err);
void room_end(const Claim *c, Room *r);

/* The sizes of prove_sizes(g, k), chosen once; NULL without an error: there are none. */
const Binding *room_sizes(Room *r, const Graph *g, int k, Err *err);

/* Is a node's result v a common input: computed from an input of the graph, and what is replaced from v? Ancestors are
 * looked for as far up the graph as v is. *ok: false when out of memory. */
bool room_common(Room *r, const Claim *c, const Value *v, bool *ok);
/* v does not count as a common input from now on. False when out of memory. */
bool room_leave_out(Room *r, const Value *v);
void room_take_back(Room *r, int n); /* but for the first n that were left out, they count again */
#endif
