/* Graft functions of the rotary rules (rules/rotary.rules): Su et al. 2021, arXiv 2104.09864. */
#ifndef QKV_REWRITE_ATTENTION_ROTARY_H
#define QKV_REWRITE_ATTENTION_ROTARY_H
#include "rewrite/build.h"

/* x, cos, sin, start and end of the second half (end: none when nothing says so), true when cos and sin have a
 * number for each pair */
GraftFn make_rotary_halves;
/* x, cos, sin; for the first and the second of each pair the sizes of a reshape that shows pairs or the end of a
 * slice of step 2; as above */
GraftFn make_rotary_pairs;
/* a value, another of the same elements in the same order: the first with the second's sizes */
GraftFn make_reshaped;
#endif
