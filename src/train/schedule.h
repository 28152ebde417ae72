/* The learning rate of each step: torch.optim.lr_scheduler's formulas, with scheduler.step() after every step of the
 * optimizer.
 *
 *     constant  lr
 *     linear    LinearLR(start_factor=1, end_factor=end/lr, total_iters=steps)
 *     cosine    CosineAnnealingLR(T_max=steps, eta_min=end), and `end` from there on
 *     step      StepLR(step_size, gamma)
 *
 * with warm-up: SequentialLR([LinearLR(start_factor=1/warmup, total_iters=warmup), that], milestones=[warmup]); `steps`
 * then counts the steps after it.
 */
#ifndef QKV_TRAIN_SCHEDULE_H
#define QKV_TRAIN_SCHEDULE_H
#include <stdint.h>
#include "base/err.h"

typedef enum ScheduleKind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_STEP } ScheduleKind;

typedef struct Schedule {
    ScheduleKind kind;
    double lr, end, gamma;
    int64_t warmup, steps, step_size; /* steps: with the warm-up */
} Schedule;

bool schedule_falls(const Schedule *s);              /* over its steps, whose number it must know */
bool schedule_check(const Schedule *s, Err *err);    /* E_USAGE */
double schedule_lr(const Schedule *s, int64_t step); /* step: from 0 */
#endif
