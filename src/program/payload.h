/* What an input may hold, by what a graph does with it: for payloads that tell two models apart.
 *
 *     integer_use(g, mask)     INTEGER_TRUTH: mask == 0, mask.bool(), 1 - mask, mask * 1e9
 *     integer_use(g, mask)     INTEGER_AMOUNT: mask.sum(1), x * mask
 *     integer_use(g, i)        0: anything else, i // 4, i % 3
 */
#ifndef QKV_PROGRAM_PAYLOAD_H
#define QKV_PROGRAM_PAYLOAD_H
#include "ir/graph.h"
#include "tensor/tensor.h"

typedef enum IntegerUse {
    INTEGER_TRUTH = 1,  /* read as true or false, so that hardly two spellings agree on more than 0 and 1 */
    INTEGER_AMOUNT = 2, /* counted or weighed, so that negative ones make little sense */
} IntegerUse;

/* Of all uses of an integer input, through views and casts: the sum of what holds. */
IntegerUse integer_use(const Graph *g, const Value *input);
/* Numbers that an integer input is compared with, such as the token of padding: at most n of them, how many. */
int integers_compared(const Graph *g, const Value *input, int64_t *number, int n);
/* One of `number`, at random, in about a quarter of the places, but not at the start of a row. */
void plant_integers(const Tensor *t, const int64_t *number, int n, uint64_t seed);
/* From -20 to 20, or with `least` 0 from 0 to 20 and above 0 at the start of each row, as unsigned ones always are. */
void draw_integers(const Tensor *t, int least, uint64_t seed);
/* The largest number from 2 to 10 that floats meet elsewhere than in arithmetic (clamp, gt, hardswish); 0: none. */
double farthest_bound(const Graph *g);
#endif
