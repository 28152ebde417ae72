/* How large the elements of a value can get, as far as constants, masks and arithmetic say.
 *
 *     (1 - m) * -10000      m of bool: at most 0        b * 5000     b an input: at most 5000
 *
 * What is not known is guessed: an input of floats is from -1 to 1 (factors that models scale by huge numbers are
 * masks).
 */
#ifndef QKV_FACTS_RANGE_H
#define QKV_FACTS_RANGE_H
#include "ir/graph.h"

/* Upper bound of the elements of v; infinite when v is too large a question. */
double largest_of(const Graph *g, Value *v);
/* Can v hold -inf? What it is computed from says so: an input, -inf among its constants, or two numbers whose sum is
 * below the least one. Yes when v is too large a question. */
bool may_be_minus_inf(const Graph *g, const Value *v);
/* Was a number put into v that is infinite or NaN, as into scores that a mask hides? *memory is made false where there
 * is not enough of it, here and below; then the answer says nothing. */
bool holds_infinity(const Graph *g, const Value *v, bool *memory);
/* Can v hold NaN or an infinity where inputs hold none and nothing overflows? Not if it is made by sums, products,
 * norms and the like (FINITE), and quotients whose divisors are known not to be 0. */
bool may_diverge(const Graph *g, const Value *v, bool *memory);
#endif
