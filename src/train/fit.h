/* Epochs: batches in a shuffled order, validation, checkpoints that a later run goes on from to the same bits.
 *
 * The order of epoch e is the e-th torch.randperm(rows, generator=g), g = torch.Generator().manual_seed(seed); the last
 * batch may be smaller. Losses of an epoch are averaged over rows.
 */
#ifndef QKV_TRAIN_FIT_H
#define QKV_TRAIN_FIT_H
#include "train/data.h"
#include "train/trainer.h"

typedef struct FitEvent {
    bool epoch_end;                /* after an epoch, and its validation; else after a step */
    bool replayed;                 /* read from the checkpoint */
    int64_t epoch, step;           /* from 1 */
    int64_t steps;                 /* of the whole run */
    double loss;                   /* of the step; of the epoch: averaged over its rows */
    double lr, norm;               /* of the step */
    double val_loss, val_accuracy; /* of the epoch; NaN: there is none */
} FitEvent;

typedef bool FitTell(void *user, const FitEvent *e); /* false: stop here, with a checkpoint */

typedef struct FitOptions {
    int64_t epochs;
    uint64_t seed;
    bool drop_last, in_order;
    const char *checkpoint; /* NULL: none; written at the end of every epoch, when stopped, and every so many steps: */
    int64_t every;          /* 0: not in between */
    const char *resume;     /* NULL: from the beginning */
    Data *data, *val;       /* val: may be NULL */
    Session *evaluator;     /* of val: the outputs without gradients, beside the trainer's session */
    int val_loss;           /* its output that is the loss */
    int logits, labels;     /* its output (.., classes) and its input (..) for the accuracy; -1: none */
    FitTell *tell;
    void *user;
} FitOptions;

/* *stopped: tell asked for it. An error leaves the last checkpoint as it is. */
bool fit(Trainer *t, const FitOptions *o, bool *stopped, Err *err);
#endif
