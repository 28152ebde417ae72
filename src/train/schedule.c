/* Learning rates. Contract in schedule.h. */
#include "train/schedule.h"
#include <math.h>
#include "base/elementary.h"

bool schedule_falls(const Schedule *s) { return s->kind == SCHEDULE_LINEAR || s->kind == SCHEDULE_COSINE; }

bool schedule_check(const Schedule *s, Err *err)
{
    if (!(s->lr > 0 && isfinite(s->lr)))
        return fail(err, E_USAGE, "the learning rate is %g, expected a number above 0", s->lr);
    if (!(s->end >= 0 && isfinite(s->end)))
        return fail(err, E_USAGE, "the last learning rate is %g, expected a number of at least 0", s->end);
    if (s->warmup < 0)
        return fail(err, E_USAGE, "%lld steps of warm-up, expected a number of at least 0", (long long)s->warmup);
    if (schedule_falls(s) && s->steps <= s->warmup)
        return fail(err, E_USAGE,
                    "the learning rate falls over %lld steps, %lld of them warm-up: nothing is left to fall over",
                    (long long)s->steps, (long long)s->warmup);
    if (s->kind != SCHEDULE_STEP) return true;
    if (s->step_size < 1)
        return fail(err, E_USAGE, "a learning rate that falls every %lld steps, expected a number of at least 1",
                    (long long)s->step_size);
    return (s->gamma > 0 && isfinite(s->gamma)) ||
           fail(err, E_USAGE, "gamma is %g, expected a number above 0", s->gamma);
}

double schedule_lr(const Schedule *s, int64_t step)
{
    double warm = (double)s->warmup, t = (double)(step - s->warmup), all = (double)(s->steps - s->warmup);
    if (step < s->warmup) return s->lr * (1 / warm + (1 - 1 / warm) * (double)step / warm);
    switch (s->kind) {
    case SCHEDULE_LINEAR: return s->lr + (s->end - s->lr) * fmin(t, all) / all;
    case SCHEDULE_COSINE: return s->end + (s->lr - s->end) * (1 + real_cos(real_acos(-1) * fmin(t, all) / all)) / 2;
    case SCHEDULE_STEP: return s->lr * real_pow(s->gamma, floor(t / (double)s->step_size));
    default: return s->lr;
    }
}
