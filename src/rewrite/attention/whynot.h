/* Attentions that are still spelled out, and how far recognition came. */
#ifndef QKV_REWRITE_ATTENTION_WHYNOT_H
#define QKV_REWRITE_ATTENTION_WHYNOT_H
#include "rewrite/rewrite.h"

/* Adds them to log->left, while the forms of the phase are there. */
bool attention_leftovers(Rewrite *rw, RewriteLog *log, Err *err);
/* log->left becomes what is spelled out in g, the result: what later phases fused leaves it, and what no rule looked
 * at joins it. */
bool attention_left(const Graph *g, RewriteLog *log, Err *err);
#endif
