/* What an input may hold, by what a graph does with it: for payloads that tell two models apart, or a rule's two sides.
 *
 *     IntegerDraw d = integer_draw(&g, &mask, 1)      mask == 0, mask.bool(), 1 - mask, mask * 1e9: 0 and 1 alone, as
 *                                                     hardly two spellings agree on more
 *                                                     mask.sum(1), x * mask: from 0 to 20, amounts
 *                                                     anything else, mask // 4, mask % 3: from -20 to 20
 */
#ifndef QKV_REWRITE_PAYLOAD_H
#define QKV_REWRITE_PAYLOAD_H
#include "ir/graph.h"
#include "tensor/tensor.h"

/* What is drawn for the integers of an input, beside 0 and 1. */
typedef struct IntegerDraw {
    bool truths; /* those alone */
    int least;   /* 0: from 0 to 20, above 0 at the start of each row, as unsigned ones always are; -1: from -20 on */
    int numbers; /* and what the input is compared with, such as the token of padding, and where integers of 8 or 16
                  * bits wrap around, in about a quarter of the places, but not at the start of a row */
    int64_t number[16];
} IntegerDraw;
/* For n graphs, of whose inputs each is to hold the same; an input may be NULL. */
IntegerDraw integer_draw(const Graph *const *g, const Value *const *input, int n);
/* Do the graphs run on what their inputs hold? */
typedef bool RunsFn(void *user, Err *err);
/* Draws into t, an input on whose integers the graphs run, and puts them back where `runs` refuses what was drawn.
 * False: memory ran out. */
bool tell_more(const Tensor *t, const IntegerDraw *d, uint64_t seed, RunsFn *runs, void *user, Err *err);
/* Integers that are 0 or 1, all of them. */
bool holds_truths(const Tensor *t);
/* The largest number from 2 to 10 that floats meet elsewhere than in arithmetic (clamp, gt, hardswish); 0: none. */
double farthest_bound(const Graph *g);
#endif
