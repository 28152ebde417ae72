/* What the graft functions of the attention rules share: a scores form (makers.h) taken apart. */
#ifndef QKV_REWRITE_ATTENTION_SCORES_H
#define QKV_REWRITE_ATTENTION_SCORES_H
#include "rewrite/attention/makers.h"

typedef struct Scores {
    Value *q, *k, *mask;
    Arg scale, softcap;
    bool normalized;
    int masked_rows;
    DType dtype;
    double fill;    /* what masked scores are, if a finite number; 0: none was put in */
    const Value *v; /* the value that has this form */
} Scores;

/* The scores form of a value; false when it has none. */
bool scores_of(Rewrite *rw, const Arg *a, Scores *s);
/* Back into a value. */
bool scores_give(Rewrite *rw, const Scores *s, Arg *out);
bool scores_capped(const Scores *s);                      /* has it a softcap? */
bool scores_seen(Rewrite *rw, Value *v);                  /* is v, in one of its forms, scores under a few views? */
bool scores_before_softmax(Rewrite *rw, const Scores *s); /* else refuses */
Value *scores_number(Rewrite *rw, double x, DType t);     /* a tensor of rank 0 */
bool attention_give(Rewrite *rw, Value *p, Value *v, Arg *out); /* probabilities p times v as an attention */
#endif
