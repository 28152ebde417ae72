/* A trainer's memory, for trainer.c and checkpoint.c. */
#ifndef QKV_TRAIN_TRAINER_IMPL_H
#define QKV_TRAIN_TRAINER_IMPL_H
#include "train/trainer.h"

struct Trainer {
    Session *session;
    TrainOptions is;
    Optimizer *optimizer;
    int n, loss;         /* parameters; which output is the loss */
    const Value **value; /* per parameter */
    int *output;         /* its gradient */
    Tensor *parameter;   /* the session's memory */
    Tensor *gradient;    /* of this step */
    void **flat;         /* memory for a gradient that came as a view; NULL until one did */
};
#endif
