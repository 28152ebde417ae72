/* Trainer: a session whose graph has gradients among its outputs, and an optimizer that changes its parameters between
 * runs, in place.
 *
 *     Trainer *t = trainer_create(session, &options, err);
 *     session_set_input(session, 0, &x, err) ...
 *     trainer_step(t, &step, err);               one run, then one step of the optimizer: step.loss is of the
 *                                                parameters before it
 *
 * A step is whole or has not happened: a loss or gradient that is NaN or infinite is E_MISMATCH with the node that made
 * the first such number, and leaves parameters, buffers, optimizer and generator as they were. Buffers that the forward
 * pass writes go on from step to step.
 */
#ifndef QKV_TRAIN_TRAINER_H
#define QKV_TRAIN_TRAINER_H
#include "run/rng.h"
#include "run/session.h"
#include "train/optimizer.h"
#include "train/schedule.h"

typedef struct TrainOptions {
    OptimizerOptions optimizer;
    Schedule schedule;
    uint64_t seed; /* of random ops, as torch.manual_seed */
} TrainOptions;

typedef struct TrainStep {
    int64_t step;          /* from 1 */
    double loss, lr, norm; /* norm: of all gradients, before clipping */
} TrainStep;

typedef struct Trainer Trainer;
/* The session is borrowed. E_USAGE: no gradients or no loss among its graph's outputs, values out of range;
 * E_UNSUPPORTED: parameters that are neither f32 nor f64. */
Trainer *trainer_create(Session *s, const TrainOptions *options, Err *err);
void trainer_free(Trainer *t);
bool trainer_step(Trainer *t, TrainStep *out, Err *err);
Session *trainer_session(const Trainer *t);
int64_t trainer_steps(const Trainer *t); /* done so far */
double trainer_lr(const Trainer *t);     /* of the next step */
uint64_t trainer_seed(const Trainer *t);
/* How many steps the schedule falls over, if the options left it open. */
bool trainer_plan(Trainer *t, int64_t steps, Err *err);

/* More that goes into a checkpoint, and comes back from it: tensors of the caller's. */
typedef struct Extra {
    const char *name;
    Tensor tensor;
} Extra;
/* All that a run to come depends on: parameters, written buffers, the optimizer's state and steps, the generator.
 * One .safetensors, whole or not at all. */
bool trainer_save(Trainer *t, const char *path, const Extra *extra, int nextra, Err *err);
/* A file that does not fit is refused before anything is changed: E_FORMAT, or E_USAGE where it is of another model
 * or optimizer. take (may be NULL) sees the other tensors of the file before that, and may refuse them. */
typedef bool TakeExtra(void *user, const char *name, const Tensor *x, Err *err);
bool trainer_load(Trainer *t, const char *path, TakeExtra *take, void *user, Err *err);

/* blame.c: runs once more, node by node, with the generator as it was before;
 * sets the error to the first node that made a number that is not finite. */
bool train_blame(Session *s, const Rng *before, const char *what, int64_t step, Err *err);
#endif
