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

typedef struct TrainOptions {
    Common common;
    ModelOptions model;
    const char *data, *val, *optimizer, *betas, *schedule, *logits, *label_input, *checkpoint, *resume, *save, *into,
        *plot, *log;
    double lr, eps, weight_decay, momentum, dampening, clip_norm, gamma, lr_end; /* below 0: not given */
    int64_t epochs, every, warmup_steps, step_size, batch_size, seed;
    bool nesterov, drop_last, in_order;
} TrainOptions;

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
    const TrainOptions *o;
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
    if (e->epoch_end && !e->replayed && !r->o->common.json) print_epoch(r, e);
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

static int options_of(const TrainOptions *o, qkv_train_options *t)
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
    qkv_optimizer optimizer = QKV_OPTIMIZER_ADAMW;
    int code = CHOICE("--optimizer", o->optimizer, optimizer, &optimizer);
    if (code) return code;
    if (qkv_train_defaults(t, optimizer, &e)) return problem_of(&e);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].given >= 0) *numbers[i].to = numbers[i].given;
    t->nesterov = o->nesterov;
    t->warmup = o->warmup_steps;
    t->step_size = o->step_size;
    t->seed = (uint64_t)o->seed;
    code = CHOICE("--schedule", o->schedule, schedule, &t->schedule);
    return !code && o->betas ? parse_betas(o->betas, t) : code;
}

/* What can be said before anything is read. */
static int check_options(const TrainOptions *o)
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

/* ------------------------------------------------------------------ the run and its results */

static int save_trained(const Run *r)
{
    const TrainOptions *o = r->o;
    qkv_error e;
    qkv_model *trained = qkv_session_trained(r->session, &e), *into = NULL;
    int code = trained ? 0 : problem_of(&e), n = 0;
    if (!code && is_tensor_file(o->save)) {
        code = write_weights(o->save, false, trained);
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
        code = model_load(&o->model, o->into, false, false, &into);
        qkv_model *made = code ? NULL : qkv_model_with_weights(into, name, tensor, n, &e);
        if (!code && (!made || qkv_model_save(made, o->save, &e)))
            code = problem((int)e.code, "%s: %s", o->into, e.message);
        qkv_model_free(made);
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
    const TrainOptions *o = r->o;
    if (!o->common.json) return;
    json_t *epochs = json_array();
    for (int i = 0; i < r->nepochs; i++) json_array_append_new(epochs, json_epoch(&r->epoch[i]));
    json_print(json_pack("{s:i, s:o, s:I, s:o, s:b, s:o, s:o, s:o}", "schema", JSON_SCHEMA, "model",
                         json_text(o->common.arg[0]), "steps",
                         (json_int_t)(r->nsteps ? r->step[r->nsteps - 1].step : 0), "epochs", epochs, "stopped",
                         stopped, "checkpoint", json_text(o->checkpoint), "saved",
                         stopped ? json_null() : json_text(o->save), "train_ms", json_number(now_ms() - r->start)));
}

static int fit(Run *r, const NamedTensors *data, const NamedTensors *val)
{
    const TrainOptions *o = r->o;
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
                         .batch = o->batch_size,
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
    else warning("interrupted after step %lld; without --checkpoint FILE nothing of it is saved", at);
    return INTERRUPTED;
}

static int train(Run *r)
{
    const TrainOptions *o = r->o;
    qkv_error e;
    NamedTensors data = {0}, val = {0};
    qkv_train_options options = {.struct_size = sizeof options};
    qkv_session_options session = {.struct_size = sizeof session,
                                   .threads = (int)o->model.threads,
                                   .memory_limit = memory_limit(),
                                   .no_optimize = o->model.no_optimize,
                                   .train = &options,
                                   .portable_bits = o->model.portable_bits};
    int code = options_of(o, &options);
    if (!code) code = model_load(&o->model, o->common.arg[0], false, false, &r->model);
    if (code) return code;
    r->session = qkv_session_create(r->model, &session, &e);
    code = r->session ? named_open(o->data, &data) : problem((int)e.code, "%s: %s", o->common.arg[0], e.message);
    if (!code && o->val) code = named_open(o->val, &val);
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
    named_close(&data);
    named_close(&val);
    return code;
}

static int cmd_train(const void *options)
{
    const TrainOptions *o = options;
    Run r = {.o = o};
    int code = check_options(o);
    if (!code) code = train(&r);
    qkv_session_free(r.session);
    qkv_model_free(r.model);
    free(r.step);
    free(r.epoch);
    return code;
}

#define AT(field) offsetof(TrainOptions, field)
static const Option own[] = {
    {"data", TEXT, AT(data), .arg = "FILE",
     .help = "Examples: a .safetensors or .npz file with the model's inputs by name or position, one example per row."},
    {"val", TEXT, AT(val), .arg = "FILE",
     .help = "Examples for validation after every epoch, by the model's forward part as it was exported."},
    {"logits", TEXT, AT(logits), .arg = "OUTPUT",
     .help = "With --label-input: the output (.., classes) whose largest element is the prediction, for the validation "
             "accuracy."},
    {"label-input", TEXT, AT(label_input), .arg = "INPUT",
     .help = "The input (..) with the correct classes as integers; negative ones are ignored."},
    {"labels", TEXT, AT(label_input), .arg = "INPUT"},
    {"optimizer", TEXT, AT(optimizer), .arg = "NAME", .help = "adamw (default), adam or sgd, with PyTorch's defaults."},
    {"lr", REAL, AT(lr), .arg = "X", .help = "Learning rate (default 0.001)."},
    {"betas", TEXT, AT(betas), .arg = "A,B", .help = "Betas of adamw and adam (default 0.9,0.999)."},
    {"eps", REAL_OR_ZERO, AT(eps), .arg = "X", .help = "Epsilon of adamw and adam (default 1e-8)."},
    {"weight-decay", REAL_OR_ZERO, AT(weight_decay), .arg = "X",
     .help = "adamw: decoupled weight decay (default 0.01); adam and sgd: added to the gradient (default 0)."},
    {"momentum", REAL_OR_ZERO, AT(momentum), .arg = "X", .help = "Momentum of sgd (default 0)."},
    {"dampening", REAL_OR_ZERO, AT(dampening), .arg = "X", .help = "Dampening of sgd's momentum (default 0)."},
    {"nesterov", FLAG, AT(nesterov), .help = "Use Nesterov momentum in sgd."},
    {"clip-norm", REAL_OR_ZERO, AT(clip_norm), .arg = "X",
     .help = "Scale the gradients so that their total norm is at most X."},
    {"schedule", TEXT, AT(schedule), .arg = "NAME",
     .help = "Learning rate schedule: constant (default); linear or cosine, decaying to --lr-end over all steps; step, "
             "which multiplies by --gamma every --step-size steps."},
    {"warmup-steps", INTEGER, AT(warmup_steps), .arg = "N", .max = 1000000000,
     .help = "Number of steps in which the learning rate grows linearly from 1/N of its value."},
    {"warmup", INTEGER, AT(warmup_steps), .arg = "N", .max = 1000000000},
    {"lr-end", REAL_OR_ZERO, AT(lr_end), .arg = "X", .help = "Final learning rate of linear and cosine (default 0)."},
    {"step-size", INTEGER, AT(step_size), .arg = "N", .min = 1, .max = INT64_MAX,
     .help = "Number of steps after which the schedule step reduces the learning rate."},
    {"gamma", REAL, AT(gamma), .arg = "X", .help = "Factor of the schedule step (default 0.1)."},
    {"epochs", INTEGER, AT(epochs), .arg = "N", .min = 1, .max = 1000000000,
     .help = "Number of passes over the examples (default 1)."},
    {"batch-size", INTEGER, AT(batch_size), .arg = "N", .min = 1, .max = 1000000000,
     .help = "Number of examples per step (default: the model's own where that is fixed, else 32)."},
    {"batch", INTEGER, AT(batch_size), .arg = "N", .min = 1, .max = 1000000000},
    {"drop-last", FLAG, AT(drop_last), .help = "Drop the last batch of an epoch if it is incomplete."},
    {"in-order", FLAG, AT(in_order),
     .help = "Keep the order of the examples. By default they are shuffled in every epoch, as torch.randperm does with "
             "a generator of this seed."},
    {"seed", INTEGER, AT(seed), .arg = "N", .max = INT64_MAX,
     .help = "Seed of the order and, like torch.manual_seed, of dropout and other random ops (default 0)."},
    {"save", TEXT, AT(save), .arg = "FILE", .writes = true,
     .help = "Write the result: .safetensors or .npz for the weights, named as in the state dict; .pt2 for the model "
             "without gradients."},
    {"into", TEXT, AT(into), .arg = "MODEL",
     .help = "With --save FILE.pt2: put the weights, by name, into this model: the one that qkv joint was given, or "
             "its "
             "export in eval mode."},
    {"checkpoint", TEXT, AT(checkpoint), .arg = "FILE", .writes = true,
     .help = "A .safetensors file, written after every epoch and on interruption, from which --resume continues "
             "bit-identically."},
    {"every", INTEGER, AT(every), .arg = "N", .min = 1, .max = INT64_MAX,
     .help = "Also write the checkpoint every N steps."},
    {"resume", TEXT, AT(resume), .arg = "FILE",
     .help = "Continue from a checkpoint; give the other options as before."},
    {"plot", TEXT, AT(plot), .arg = "FILE.svg", .writes = true, .help = "Plot the losses."},
    {"log", TEXT, AT(log), .arg = "FILE.jsonl", .writes = true, .in_place = true,
     .help = "Write one JSON object per step and per epoch, as they end."},
    {0},
};

const Command command_train = {
    .name = "train",
    .args = "JOINT --data FILE",
    .summary = "Train the parameters of a joint graph, without Python",
    .text =
        "Runs a joint graph (qkv joint) on batches of the data and, after each batch, an optimizer on the parameters "
        "that have gradients. Optimizers, schedules, clipping and the order of examples are those of PyTorch: the same "
        "seed gives the same batches. Frozen parameters do not change; buffers that the model writes are carried from "
        "step to step.\n\n"
        "A checkpoint contains everything that the rest of the run depends on: with --resume, the result is "
        "bit-identical to that of a run that was never stopped. Ctrl-C finishes the step, writes the checkpoint and "
        "exits with code 130. A loss or gradient that is NaN or infinite ends the run with exit code 1; the message "
        "names the step and the node that produced the first such value, and the checkpoint is the one before it.",
    .examples = "qkv train joint.pt2 --data train.npz --epochs 10 --save tuned.safetensors\tAdamW, batches of 32\n"
                "qkv train joint.pt2 --data train.npz --val test.npz --logits output_1 --label-input target --save "
                "tuned.pt2\twith the accuracy\n"
                "qkv train joint.pt2 --data train.npz --epochs 10 --checkpoint run.safetensors --resume "
                "run.safetensors\tcontinues a run",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(TrainOptions),
    .defaults = &(const TrainOptions){.epochs = 1,
                                      .lr = -1,
                                      .eps = -1,
                                      .weight_decay = -1,
                                      .momentum = -1,
                                      .dampening = -1,
                                      .clip_norm = -1,
                                      .gamma = -1,
                                      .lr_end = -1},
    .options = {{own}, {run_options, AT(model)}, {json_option}, {common_options}},
    .run = cmd_train,
};
