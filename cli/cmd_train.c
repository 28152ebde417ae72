/* qkv train JOINT --data FILE: trains the parameters of a joint graph.
 *
 *     qkv train joint.pt2 --data train.npz --optimizer adamw --lr 1e-3 --epochs 10 --save tuned.pt2
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "train.h"

enum { INTERRUPTED = 130 };

static volatile sig_atomic_t asked_to_stop;

/* The step that runs is finished and a checkpoint written; asked again, the program ends as others do. */
static void on_interrupt(int number)
{
    if (asked_to_stop) {
        qkv_interrupted();
        _exit(128 + number);
    }
    asked_to_stop = number;
}

typedef struct Run {
    const Options *o;
    qkv_model *model;
    qkv_session *session;
    FILE *log;
    Progress progress;
    char stage[96];
    Curve *step, *epoch;
    int nsteps, nepochs;
    double start;
} Run;

/* ------------------------------------------------------------------ what is told */

static void put(Curve **list, int *n, const qkv_fit_event *e)
{
    if ((*n & (*n - 1)) == 0) *list = must(realloc(*list, (size_t)(*n ? 2 * *n : 1) * sizeof **list));
    (*list)[(*n)++] = (Curve){e->epoch, e->step, {e->loss, e->epoch_end ? e->val_loss : NAN}, e->val_accuracy};
}

static json_t *json_known(double v) { return isnan(v) ? json_null() : json_number(v); }

static json_t *json_epoch(const Curve *c)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "epoch", (json_int_t)c->epoch, "step", (json_int_t)c->step, "loss",
                     json_number(c->loss[0]), "val_loss", json_known(c->loss[1]), "val_accuracy",
                     json_known(c->accuracy));
}

static void log_line(Run *r, const qkv_fit_event *e)
{
    json_t *line = e->epoch_end ? json_epoch(&r->epoch[r->nepochs - 1])
                                : json_pack("{s:I, s:I, s:o, s:o, s:o}", "epoch", (json_int_t)e->epoch, "step",
                                            (json_int_t)e->step, "loss", json_number(e->loss), "lr", json_number(e->lr),
                                            "grad_norm", json_number(e->grad_norm));
    json_dumpf(line, r->log, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', r->log);
    if (!e->replayed) fflush(r->log);
    json_decref(line);
}

static void print_epoch(Run *r, const qkv_fit_event *e)
{
    progress_hide(&r->progress);
    printf("epoch %lld: loss %.6g", (long long)e->epoch, e->loss);
    if (!isnan(e->val_loss)) printf(", validation %.6g", e->val_loss);
    if (!isnan(e->val_accuracy)) printf(", accuracy %.4f", e->val_accuracy);
    printf("\n");
    fflush(stdout);
}

static int on_event(void *user, const qkv_fit_event *e)
{
    Run *r = user;
    put(e->epoch_end ? &r->epoch : &r->step, e->epoch_end ? &r->nepochs : &r->nsteps, e);
    if (r->log) log_line(r, e);
    if (e->epoch_end && !e->replayed && !r->o->json) print_epoch(r, e);
    snprintf(r->stage, sizeof r->stage, "epoch %lld, loss %.4g", (long long)e->epoch, e->loss);
    r->progress.stage = r->stage;
    if (!r->progress.total) progress_start(&r->progress, "train", e->steps);
    progress_at(&r->progress, (double)e->step);
    return asked_to_stop;
}

/* ------------------------------------------------------------------ options */

static int parse_betas(const char *text, qkv_train_options *t)
{
    char *end;
    t->beta1 = strtod(text, &end);
    if (end != text && *end == ',') {
        const char *second = end + 1;
        t->beta2 = strtod(second, &end);
        if (end != second && !*end) return 0;
    }
    return problem(QKV_USAGE, "option '--betas': found '%s', expected two numbers such as 0.9,0.999", text);
}

static int options_of(const Options *o, qkv_train_options *t)
{
    qkv_error e;
    const struct {
        double given, *to;
    } numbers[] = {{o->lr, &t->lr},
                   {o->eps, &t->eps},
                   {o->weight_decay, &t->weight_decay},
                   {o->momentum, &t->momentum},
                   {o->dampening, &t->dampening},
                   {o->clip_norm, &t->clip_norm},
                   {o->gamma, &t->gamma},
                   {o->lr_end, &t->lr_end}};
    if (qkv_train_defaults(t, o->optimizer, &e)) return problem_of(&e);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].given >= 0) *numbers[i].to = numbers[i].given;
    t->nesterov = o->nesterov;
    t->schedule = o->schedule;
    t->warmup = o->lr_warmup;
    t->step_size = o->step_size;
    t->seed = o->seeded ? (uint64_t)o->seed : 0;
    return o->betas ? parse_betas(o->betas, t) : 0;
}

/* What can be said before anything is read. */
static int check_options(const Options *o)
{
    if (!o->data) return problem(QKV_USAGE, "train needs --data FILE");
    if (o->save && !is_tensor_file(o->save) && !ends_in(o->save, ".pt2"))
        return problem(QKV_USAGE,
                       "option '--save': found '%s', expected a file that ends in .safetensors, .npz or .pt2", o->save);
    if (o->into && (!o->save || !ends_in(o->save, ".pt2")))
        return problem(QKV_USAGE, "--into MODEL goes with --save FILE.pt2");
    if (o->checkpoint && !ends_in(o->checkpoint, ".safetensors"))
        return problem(QKV_USAGE, "option '--checkpoint': found '%s', expected a file that ends in .safetensors",
                       o->checkpoint);
    if (o->every && !o->checkpoint) return problem(QKV_USAGE, "--every N goes with --checkpoint FILE");
    if (o->plot && !ends_in(o->plot, ".svg"))
        return problem(QKV_USAGE, "option '--plot': found '%s', expected a file that ends in .svg", o->plot);
    return 0;
}

/* ------------------------------------------------------------------ data */

typedef struct Data {
    qkv_tensors *file;
    const char **name;
    qkv_tensor *tensor;
    int n;
} Data;

static int data_open(const char *path, Data *d)
{
    qkv_error e;
    d->file = qkv_tensors_open(path, &e);
    if (!d->file) return problem_of(&e);
    d->n = qkv_tensors_count(d->file);
    d->name = must(calloc((size_t)d->n + 1, sizeof *d->name));
    d->tensor = must(calloc((size_t)d->n + 1, sizeof *d->tensor));
    for (int i = 0; i < d->n; i++) {
        d->name[i] = position_of(path, qkv_tensors_name(d->file, i));
        d->tensor[i] = *qkv_tensors_at(d->file, i);
    }
    return 0;
}

static void data_close(Data *d)
{
    qkv_tensors_free(d->file);
    free(d->name);
    free(d->tensor);
}

/* ------------------------------------------------------------------ the run and its results */

static int save_trained(const Run *r)
{
    const Options *o = r->o;
    qkv_error e;
    qkv_model *trained = qkv_session_trained(r->session, &e), *into = NULL;
    int code = trained ? 0 : problem_of(&e), n = 0;
    if (!code && is_tensor_file(o->save)) {
        Options as = *o;
        as.output = o->save;
        code = write_weights(&as, trained);
    } else if (!code && o->into) {
        int all = qkv_model_weight_count(trained);
        const char **name = must(calloc((size_t)all + 1, sizeof *name));
        qkv_tensor *tensor = must(calloc((size_t)all + 1, sizeof *tensor));
        qkv_weight_kind kind;
        for (int i = 0; i < all; i++) {
            int persistent;
            name[n] = qkv_model_weight(trained, i, &tensor[n], &kind, &persistent);
            n += kind == QKV_PARAMETER || (kind == QKV_BUFFER && persistent);
        }
        code = model_load(o, o->into, false, false, &into);
        if (!code && (qkv_model_set_weights(into, name, tensor, n, &e) || qkv_model_save(into, o->save, &e)))
            code = problem(e.code, "%s: %s", o->into, e.message);
        free(name);
        free(tensor);
    } else if (!code && qkv_model_save(trained, o->save, &e)) {
        code = problem_of(&e);
    }
    qkv_model_free(into);
    qkv_model_free(trained);
    return code;
}

static void print_result(const Run *r, bool stopped)
{
    const Options *o = r->o;
    if (!o->json) return;
    json_t *epochs = json_array();
    for (int i = 0; i < r->nepochs; i++) json_array_append_new(epochs, json_epoch(&r->epoch[i]));
    json_print(json_pack("{s:i, s:o, s:I, s:o, s:b, s:o, s:o, s:o}", "schema", JSON_SCHEMA, "model",
                         json_text(o->arg[0]), "steps", (json_int_t)(r->nsteps ? r->step[r->nsteps - 1].step : 0),
                         "epochs", epochs, "stopped", stopped, "checkpoint", json_text(o->checkpoint), "saved",
                         stopped ? json_null() : json_text(o->save), "train_ms", json_number(now_ms() - r->start)));
}

static int fit(Run *r, const Data *data, const Data *val)
{
    const Options *o = r->o;
    qkv_error e;
    int stopped = 0;
    qkv_fit_options f = {.struct_size = sizeof f,
                         .names = data->name,
                         .tensors = data->tensor,
                         .n = data->n,
                         .val_names = val->name,
                         .val_tensors = val->tensor,
                         .n_val = val->n,
                         .epochs = o->epochs,
                         .batch = o->batch,
                         .drop_last = o->drop_last,
                         .in_order = o->in_order,
                         .checkpoint = o->checkpoint,
                         .checkpoint_every = o->every,
                         .resume = o->resume,
                         .logits = o->logits,
                         .labels = o->label_input,
                         .tell = on_event,
                         .user = r};
    r->start = now_ms();
    qkv_status status = qkv_session_fit(r->session, &f, &stopped, &e);
    progress_end(&r->progress);
    int code = status ? problem_of(&e) : 0;
    if (o->plot && r->nsteps) {
        int plotted = plot_write(o->plot, r->step, r->nsteps, r->epoch, r->nepochs);
        if (!code) code = plotted;
    }
    if (code) return code;
    if (!stopped && o->save && (code = save_trained(r))) return code;
    print_result(r, stopped);
    if (!stopped) return 0;
    long long at = r->nsteps ? (long long)r->step[r->nsteps - 1].step : 0;
    if (o->checkpoint) note("interrupted after step %lld; --resume %s goes on", at, o->checkpoint);
    else warning("interrupted after step %lld; without --checkpoint FILE nothing is left of it", at);
    return INTERRUPTED;
}

static int train(Run *r)
{
    const Options *o = r->o;
    qkv_error e;
    Data data = {0}, val = {0};
    qkv_train_options options = {.struct_size = sizeof options};
    qkv_session_options session = {.struct_size = sizeof session,
                                   .threads = (int)o->threads,
                                   .memory_limit = (size_t)o->memory_limit,
                                   .no_optimize = o->no_optimize,
                                   .train = &options};
    int code = options_of(o, &options);
    if (!code) code = model_load(o, o->arg[0], false, false, &r->model);
    if (code) return code;
    r->session = qkv_session_create(r->model, &session, &e);
    code = r->session ? data_open(o->data, &data) : problem(e.code, "%s: %s", o->arg[0], e.message);
    if (!code && o->val) code = data_open(o->val, &val);
    if (!code && o->log && !(r->log = fopen(o->log, "w")))
        code = problem(QKV_UNREADABLE, "%s cannot be written", o->log);
    if (!code) {
        struct sigaction act = {.sa_handler = on_interrupt}, old[2];
        sigaction(SIGINT, &act, &old[0]);
        sigaction(SIGTERM, &act, &old[1]);
        code = fit(r, &data, &val);
        sigaction(SIGINT, &old[0], NULL);
        sigaction(SIGTERM, &old[1], NULL);
    }
    bool lost = r->log && (ferror(r->log) | fclose(r->log)) != 0;
    if (lost && !code) code = problem(QKV_UNREADABLE, "%s cannot be written", o->log);
    data_close(&data);
    data_close(&val);
    return code;
}

int cmd_train(const Options *o)
{
    Run r = {.o = o};
    int code = check_options(o);
    if (!code) code = train(&r);
    qkv_session_free(r.session);
    qkv_model_free(r.model);
    free(r.step);
    free(r.epoch);
    return code;
}
