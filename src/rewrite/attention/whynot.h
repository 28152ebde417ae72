/* Attentions that are still spelled out, and how far recognition came. */
#ifndef QKV_REWRITE_ATTENTION_WHYNOT_H
#define QKV_REWRITE_ATTENTION_WHYNOT_H
#include "rewrite/rewrite.h"

/* Adds them to log->left, while the forms of the phase are there. */
bool attention_leftovers(Rewrite *rw, RewriteLog *log, Err *err);
#endif
