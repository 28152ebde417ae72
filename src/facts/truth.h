/* What the truth of a mask says of its operands, by De Morgan: conditions that hold together exactly where it does.
 *
 *     and(a, not(b)), wanted true        a true, not(b) true
 *     or(a, b), wanted false             a false, b false
 *     or(a, b), wanted true              none: either may hold
 */
#ifndef QKV_FACTS_TRUTH_H
#define QKV_FACTS_TRUTH_H
#include "ir/graph.h"

typedef struct Truth {
    Value *v;
    bool wanted; /* (v != 0) == wanted */
} Truth;

/* part[0 .. count): (v != 0) == wanted where all of them hold and only there. 0: v is not made that way. */
int truth_parts(const Value *v, bool wanted, Truth part[2]);
/* Does the mask v let a key through only where `all` does? Both are broadcast alike; where(c, x, y) is the mask x, and
 * y where c hides a key. False: it does not show. */
bool truth_within(const Value *v, const Value *all);
#endif
