/* What cmd_train.c and train_plot.c share. */
#ifndef QKV_CLI_TRAIN_H
#define QKV_CLI_TRAIN_H
#include "cli.h"

typedef struct Curve {
    int64_t epoch, step;
    double loss[2], accuracy; /* of training, of validation; NaN: none */
} Curve;

/* An SVG, whole or not at all; an exit code. */
int plot_write(const char *path, const Curve *steps, int nsteps, const Curve *epochs, int nepochs);
#endif
