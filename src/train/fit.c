/* Epochs. Contract in fit.h. */
#include "train/fit.h"
#include <limits.h>
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"

enum { WORDS = 624, STEP_COLUMNS = 5, EPOCH_COLUMNS = 5, SETTINGS = 5 };

/* Rows of values that grow: what was, for plots and logs of runs that go on. */
typedef struct Rows {
    double *data;
    int64_t n;
    int columns;
} Rows;

typedef struct Fit {
    Trainer *trainer;
    const FitOptions *o;
    int64_t rows, batch, batches;
    int64_t *order;          /* of this epoch */
    Rng generator;           /* before this epoch's order was drawn */
    int64_t epoch, position; /* epochs done, batches of this one done */
    double sum, counted;     /* of this epoch: loss times rows, rows */
    Rows steps, epochs;      /* epoch, step, loss, lr, norm; epoch, step, loss, val_loss, val_accuracy */
    bool stopped;
} Fit;

static bool put_row(Rows *r, const double *x)
{
    double *grown = r->n < INT_MAX ? vec_grow(r->data, (int)r->n, (size_t)r->columns * sizeof *grown) : NULL;
    if (!grown) return false;
    r->data = grown;
    memcpy(r->data + r->n++ * r->columns, x, (size_t)r->columns * sizeof *x);
    return true;
}

/* ------------------------------------------------------------------ checkpoints */

static void settings(const Fit *f, int64_t out[SETTINGS])
{
    const int64_t now[SETTINGS] = {f->rows, f->batch, f->o->drop_last, f->o->in_order, (int64_t)f->o->seed};
    memcpy(out, now, sizeof now);
}

static bool save(Fit *f, Err *err)
{
    int64_t generator[WORDS + 1], set[SETTINGS];
    double progress[] = {(double)f->epoch, (double)f->position, f->sum, f->counted};
    if (!f->o->checkpoint) return true;
    for (int i = 0; i < WORDS; i++) generator[i] = f->generator.state[i];
    generator[WORDS] = f->generator.next;
    settings(f, set);
    Extra extra[] = {{"fit.order", tensor_of(DT_I64, 1, (int64_t[]){WORDS + 1}, generator)},
                     {"fit.settings", tensor_of(DT_I64, 1, (int64_t[]){SETTINGS}, set)},
                     {"fit.progress", tensor_of(DT_F64, 1, (int64_t[]){4}, progress)},
                     {"fit.steps", tensor_of(DT_F64, 2, (int64_t[]){f->steps.n, STEP_COLUMNS}, f->steps.data)},
                     {"fit.epochs", tensor_of(DT_F64, 2, (int64_t[]){f->epochs.n, EPOCH_COLUMNS}, f->epochs.data)}};
    return trainer_save(f->trainer, f->o->checkpoint, extra, sizeof extra / sizeof *extra, err) ||
           within(err, "the checkpoint");
}

static bool want(const char *name, const Tensor *x, DType t, int rank, int64_t last, Err *err)
{
    return (x->dtype == t && x->rank == rank && x->shape[rank - 1] == last) ||
           fail(err, E_FORMAT, "'%s' is not what qkv train writes", name);
}

static bool take_rows(Rows *r, const char *name, const Tensor *x, Err *err)
{
    TRY(want(name, x, DT_F64, 2, r->columns, err));
    r->n = 0;
    for (int64_t i = 0; i < x->shape[0]; i++)
        if (!put_row(r, (const double *)x->data + i * r->columns)) return oom(err);
    return true;
}

static bool take_settings(const Fit *f, const Tensor *x, Err *err)
{
    static const char *const name[SETTINGS] = {"rows of data", "the batch", "leaving out the last batch",
                                               "taking rows in their order", "the seed"};
    int64_t now[SETTINGS];
    TRY(want("fit.settings", x, DT_I64, 1, SETTINGS, err));
    settings(f, now);
    for (int i = 0; i < SETTINGS; i++) {
        int64_t then = ((const int64_t *)x->data)[i];
        if (then != now[i])
            return fail(
                err, E_USAGE,
                "it was made where %s was %lld, found %lld: it goes on only from the same data in the same order",
                name[i], (long long)then, (long long)now[i]);
    }
    return true;
}

static bool take_progress(Fit *f, const Tensor *x, Err *err)
{
    TRY(want("fit.progress", x, DT_F64, 1, 4, err));
    const double *p = x->data;
    if (!(p[0] >= 0 && p[0] < 1e15 && p[1] >= 0 && p[1] <= (double)f->batches))
        return fail(err, E_FORMAT, "'fit.progress' is not what qkv train writes");
    f->epoch = (int64_t)p[0];
    f->position = (int64_t)p[1];
    f->sum = p[2];
    f->counted = p[3];
    return true;
}

static bool take_order(Fit *f, const Tensor *x, Err *err)
{
    TRY(want("fit.order", x, DT_I64, 1, WORDS + 1, err));
    const int64_t *p = x->data;
    if (p[WORDS] < 0 || p[WORDS] > WORDS) return fail(err, E_FORMAT, "'fit.order' is not the state of a generator");
    for (int i = 0; i < WORDS; i++) f->generator.state[i] = (uint32_t)p[i];
    f->generator.next = (int)p[WORDS];
    return true;
}

static bool take(void *user, const char *name, const Tensor *x, Err *err)
{
    Fit *f = user;
    if (!strcmp(name, "fit.settings")) return take_settings(f, x, err);
    if (!strcmp(name, "fit.progress")) return take_progress(f, x, err);
    if (!strcmp(name, "fit.order")) return take_order(f, x, err);
    if (!strcmp(name, "fit.steps")) return take_rows(&f->steps, name, x, err);
    if (!strcmp(name, "fit.epochs")) return take_rows(&f->epochs, name, x, err);
    return fail(err, E_USAGE, "'%s' is not part of this model and optimizer", name);
}

/* ------------------------------------------------------------------ telling */

static void tell(Fit *f, const FitEvent *e)
{
    if (f->o->tell && !f->o->tell(f->o->user, e) && !e->replayed) f->stopped = true;
}

static FitEvent event_of(const Fit *f, const double *x, bool end)
{
    return (FitEvent){.epoch_end = end,
                      .epoch = (int64_t)x[0],
                      .step = (int64_t)x[1],
                      .steps = f->o->epochs * f->batches,
                      .loss = x[2],
                      .lr = end ? NAN : x[3],
                      .norm = end ? NAN : x[4],
                      .val_loss = end ? x[3] : NAN,
                      .val_accuracy = end ? x[4] : NAN};
}

static void replay(Fit *f)
{
    int64_t k = 0;
    for (int64_t i = 0; i <= f->steps.n; i++) {
        for (; k < f->epochs.n &&
               (i == f->steps.n || f->epochs.data[k * EPOCH_COLUMNS + 1] < f->steps.data[i * STEP_COLUMNS + 1]);
             k++) {
            FitEvent e = event_of(f, f->epochs.data + k * EPOCH_COLUMNS, true);
            e.replayed = true;
            tell(f, &e);
        }
        if (i == f->steps.n) break;
        FitEvent e = event_of(f, f->steps.data + i * STEP_COLUMNS, false);
        e.replayed = true;
        tell(f, &e);
    }
}

/* ------------------------------------------------------------------ validation */

/* Labels below 0 (cross_entropy's ignore_index) are not counted. */
static bool count_right(const Tensor *logits, const Tensor *labels, int64_t *right, int64_t *all, Err *err)
{
    int64_t n = tensor_numel(labels), classes = logits->rank ? logits->shape[logits->rank - 1] : 0;
    if (logits->rank != labels->rank + 1 || tensor_numel(logits) != n * classes)
        return fail(err, E_USAGE, "the accuracy: logits have rank %d and labels %d; expected (.., classes) and (..)",
                    logits->rank, labels->rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t label = tensor_get_i64(labels, i), best = 0;
        double top = -INFINITY;
        for (int64_t k = 0; k < classes; k++) {
            double x = tensor_get(logits, i * classes + k);
            if (x > top) {
                top = x;
                best = k;
            }
        }
        *all += label >= 0;
        *right += label >= 0 && best == label;
    }
    return true;
}

static bool validate(Fit *f, double *loss, double *accuracy, Err *err)
{
    const FitOptions *o = f->o;
    int64_t rows = data_rows(o->val), batch = data_batch_size(o->val), right = 0, all = 0,
            *row = mem_alloc((size_t)rows * sizeof *row);
    double sum = 0;
    bool ok = row || oom(err);
    for (int64_t i = 0; ok && i < rows; i++) row[i] = i;
    session_seed(o->evaluator, o->seed); /* every time the same dropout, if there is any */
    for (int64_t at = 0; ok && at < rows; at += batch) {
        int64_t n = rows - at < batch ? rows - at : batch;
        ok = data_batch(o->val, o->evaluator, row + at, n, err) && session_run(o->evaluator, err);
        if (!ok) break;
        sum += tensor_get(session_output(o->evaluator, o->val_loss), 0) * (double)n;
        if (o->logits >= 0)
            ok = count_right(session_output(o->evaluator, o->logits), session_input(o->evaluator, o->labels), &right,
                             &all, err);
    }
    mem_free(row);
    *loss = sum / (double)rows;
    *accuracy = o->logits >= 0 && all ? (double)right / (double)all : NAN;
    return ok || within(err, "validation");
}

/* ------------------------------------------------------------------ the loop */

static bool one_step(Fit *f, Err *err)
{
    int64_t at = f->position * f->batch, n = f->rows - at < f->batch ? f->rows - at : f->batch;
    TrainStep step;
    TRY(data_batch(f->o->data, trainer_session(f->trainer), f->order + at, n, err) &&
        trainer_step(f->trainer, &step, err));
    f->position++;
    f->sum += step.loss * (double)n;
    f->counted += (double)n;
    double row[STEP_COLUMNS] = {(double)(f->epoch + 1), (double)step.step, step.loss, step.lr, step.norm};
    if (!put_row(&f->steps, row)) return oom(err);
    FitEvent e = event_of(f, row, false);
    tell(f, &e);
    return f->stopped || !f->o->every || step.step % f->o->every || save(f, err);
}

static bool end_epoch(Fit *f, Err *err)
{
    double row[EPOCH_COLUMNS] = {(double)(f->epoch + 1), (double)trainer_steps(f->trainer), f->sum / f->counted, NAN,
                                 NAN};
    if (f->o->val) TRY(validate(f, &row[3], &row[4], err));
    if (!put_row(&f->epochs, row)) return oom(err);
    f->epoch++;
    f->position = 0;
    f->sum = f->counted = 0;
    FitEvent e = event_of(f, row, true);
    tell(f, &e);
    return true;
}

static bool run(Fit *f, Err *err)
{
    while (f->epoch < f->o->epochs && !f->stopped) {
        Rng next = f->generator;
        if (!f->o->in_order) data_permutation(&next, f->rows, f->order);
        while (f->position < f->batches && !f->stopped) TRY(one_step(f, err));
        if (f->position < f->batches || f->stopped) break;
        f->generator = next;
        TRY(end_epoch(f, err) && save(f, err));
    }
    return !f->stopped || save(f, err);
}

static bool begin(Fit *f, Err *err)
{
    const FitOptions *o = f->o;
    f->rows = data_rows(o->data);
    f->batch = data_batch_size(o->data);
    f->batches = o->drop_last ? f->rows / f->batch : (f->rows + f->batch - 1) / f->batch;
    int64_t steps;
    if (data_fixed(o->data) && !o->drop_last && f->rows % f->batch)
        return fail(err, E_USAGE,
                    "%lld rows are not a multiple of the batch of %lld that the model takes: "
                    "leave out the last batch, or export the model with a batch that varies",
                    (long long)f->rows, (long long)f->batch);
    if (f->batches < 1)
        return fail(err, E_USAGE, "%lld rows do not fill a batch of %lld", (long long)f->rows, (long long)f->batch);
    if (o->val && data_fixed(o->val) && data_rows(o->val) % data_batch_size(o->val))
        return fail(err, E_USAGE, "validation: %lld rows are not a multiple of the batch of %lld that the model takes",
                    (long long)data_rows(o->val), (long long)data_batch_size(o->val));
    if (o->epochs < 1 || __builtin_mul_overflow(o->epochs, f->batches, &steps))
        return fail(err, E_USAGE, "%lld epochs, expected a number of at least 1", (long long)o->epochs);
    TRY(trainer_plan(f->trainer, steps, err));
    f->order = mem_alloc((size_t)f->rows * sizeof *f->order);
    if (!f->order) return oom(err);
    for (int64_t i = 0; i < f->rows; i++) f->order[i] = i;
    rng_seed(&f->generator, o->seed);
    if (!o->resume) return true;
    TRY(trainer_load(f->trainer, o->resume, take, f, err));
    replay(f);
    return true;
}

bool fit(Trainer *t, const FitOptions *o, bool *stopped, Err *err)
{
    Fit f = {.trainer = t, .o = o, .steps.columns = STEP_COLUMNS, .epochs.columns = EPOCH_COLUMNS};
    bool ready = begin(&f, err), ok = ready && run(&f, err);
    if (ready && !ok && err->code == E_MISMATCH) save(&f, &(Err){0}); /* as before the step that was not finite */
    *stopped = f.stopped;
    mem_free(f.order);
    mem_free(f.steps.data);
    mem_free(f.epochs.data);
    return ok;
}
