/* Sessions that train, and weights put into models. */
#include <string.h>
#include "api/api_impl.h"
#include "ir/copy.h"
#include "base/mem.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "train/fit.h"

typedef struct Training {
    Trainer *trainer;
    qkv_model *forward; /* without gradients, on the session's parameters; made when first wanted */
    Session *evaluator;
    int threads;
    size_t memory_limit;
} Training;

/* ------------------------------------------------------------------ options */

static bool known_optimizer(qkv_optimizer o, Err *err)
{
    return api_known(qkv_optimizer_name(o), "qkv_optimizer", (int)o, err);
}

qkv_status qkv_train_defaults(qkv_train_options *o, qkv_optimizer optimizer, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(o) || !VERSIONED_WANTED(qkv_train_options, seed, o, &e) || !known_optimizer(optimizer, &e))
        return api_give(&e, err);
    qkv_train_options all = {.optimizer = optimizer,
                             .lr = 1e-3,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .eps = 1e-8,
                             .weight_decay = optimizer == QKV_OPTIMIZER_ADAMW ? 1e-2 : 0,
                             .gamma = 0.1};
    versioned_give(o, &all, sizeof all);
    return QKV_OK;
}

static bool options_of(const qkv_train_options *q, TrainOptions *out, Err *err)
{
    qkv_train_options o = {.struct_size = sizeof o};
    qkv_train_defaults(&o, QKV_OPTIMIZER_ADAMW, NULL);
    TRY(VERSIONED_TAKE(qkv_train_options, seed, &o, q, err));
    TRY(known_optimizer(o.optimizer, err) &&
        api_known(qkv_schedule_name(o.schedule), "qkv_schedule", (int)o.schedule, err));
    *out = (TrainOptions){
        .optimizer = {.kind = (OptimizerKind)o.optimizer,
                      .beta1 = o.beta1,
                      .beta2 = o.beta2,
                      .eps = o.eps,
                      .weight_decay = o.weight_decay,
                      .momentum = o.momentum,
                      .dampening = o.dampening,
                      .nesterov = o.nesterov != 0,
                      .clip_norm = o.clip_norm},
        .schedule = {(ScheduleKind)o.schedule, o.lr, o.lr_end, o.gamma, o.warmup, o.steps, o.step_size},
        .seed = o.seed};
    return true;
}

bool api_training_create(qkv_session *s, const qkv_train_options *o, int threads, size_t memory_limit, Err *err)
{
    TrainOptions options;
    TRY(options_of(o, &options, err));
    Training *t = mem_zeroed(1, sizeof *t);
    if (!t) return oom(err);
    *t = (Training){.threads = threads, .memory_limit = memory_limit};
    s->training = t;
    t->trainer = trainer_create(s->session, &options, err);
    return t->trainer != NULL;
}

void api_training_free(qkv_session *s)
{
    Training *t = s->training;
    if (!t) return;
    session_free(t->evaluator);
    qkv_model_free(t->forward);
    trainer_free(t->trainer);
    mem_free(t);
}

static Training *training_of(const qkv_session *s, Err *err)
{
    if (!s->training) fail(err, E_USAGE, "this session only runs: give qkv_session_options.train when it is made");
    return s->training;
}

/* ------------------------------------------------------------------ steps and weights */

qkv_status qkv_session_step(qkv_session *s, qkv_step *out, qkv_error *err)
{
    Err e = api_begin();
    TrainStep step;
    if (out && !VERSIONED_WANTED(qkv_step, grad_norm, out, &e)) return api_give(&e, err);
    if (!api_enter(s, &e)) return api_give(&e, err);
    const Training *t = training_of(s, &e);
    bool ok = t && trainer_step(t->trainer, &step, &e);
    if (ok && out) {
        qkv_step all = {.step = step.step, .loss = step.loss, .lr = step.lr, .grad_norm = step.norm};
        versioned_give(out, &all, sizeof all);
    }
    return api_done(s, ok, &e, err);
}

static const Value *weight_called(const Graph *g, const char *name, Err *err)
{
    for (int i = 0; i < g->nweight; i++)
        if (!strcmp(g->weight[i]->fqn ? g->weight[i]->fqn : g->weight[i]->name, name)) return g->weight[i];
    fail(err, E_USAGE, "the model has no weight '%s'", name);
    return NULL;
}

/* What the session trains of v, which may be another name of it; v where it trains none. */
static const Value *trained_name(const qkv_session *s, const Value *v)
{
    const Graph *g = s->model->program.graph;
    for (int i = 0; i < g->nweight; i++)
        if (graph_same_parameter(g, g->weight[i], v) && session_weight(s->session, g->weight[i]->name))
            return g->weight[i];
    return v;
}

qkv_status qkv_session_weight(const qkv_session *s, const char *name, qkv_tensor *out, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(name) || !GIVEN(out) || !api_enter(s, &e)) return api_give(&e, err);
    const Value *v = weight_called(s->model->program.graph, name, &e);
    const Tensor *now = v ? session_weight(s->session, trained_name(s, v)->name) : NULL, *t = now || !v ? now : v->data;
    if (t) *out = (qkv_tensor){(qkv_dtype)t->dtype, t->rank, t->shape, t->stride, t->data};
    return api_done(s, t != NULL, &e, err);
}

static bool same_form(const Tensor *x, const Tensor *like, const char *name, Err *err)
{
    char found[128], wanted[128];
    bool same = x->dtype == like->dtype && x->rank == like->rank;
    for (int i = 0; same && i < x->rank; i++) same = x->shape[i] == like->shape[i];
    return same || fail(err, E_USAGE, "weight '%s' is %s, expected %s", name, tensor_describe(x, found, sizeof found),
                        tensor_describe(like, wanted, sizeof wanted));
}

qkv_status qkv_session_set_weight(qkv_session *s, const char *name, const qkv_tensor *t, qkv_error *err)
{
    Err e = api_begin();
    Tensor x;
    if (!GIVEN(name) || !GIVEN(t) || !api_enter(s, &e)) return api_give(&e, err);
    const Value *v = weight_called(s->model->program.graph, name, &e);
    Tensor *now = v ? session_weight(s->session, trained_name(s, v)->name) : NULL;
    bool ok = v && (now || fail(&e, E_USAGE, "weight '%s' does not change in this session", name)) &&
              api_tensor(t, &x, &e) && same_form(&x, now, name, &e);
    if (ok) tensor_copy(now, &x);
    return api_done(s, ok, &e, err);
}

/* A graph's weight gets numbers of its own. */
static bool give_numbers(Graph *g, Value *v, const Tensor *x, Err *err)
{
    Tensor *t = arena_new(g->arena, Tensor);
    void *data = arena_alloc(g->arena, tensor_bytes(x) + 64, 1);
    if (!t || !data) return oom(err);
    *t = tensor_of(x->dtype, x->rank, x->shape, (void *)(((uintptr_t)data + 63) / 64 * 64));
    tensor_copy(t, x);
    v->data = t;
    return true;
}

static bool set_weight(qkv_model *m, const char *name, const qkv_tensor *q, Err *err)
{
    Tensor x;
    Graph *g = m->program.graph;
    const Value *v = weight_called(g, name, err);
    TRY(v && (api_tensor(q, &x, err) || within(err, "weight '%s'", name)) && same_form(&x, v->data, name, err));
    const void *tied = v->data->data;
    for (int i = 0; i < g->nweight; i++) /* other names of the same memory follow */
        if (g->weight[i] == v ||
            (tied && g->weight[i]->data->data == tied && same_form(&x, g->weight[i]->data, name, &(Err){0})))
            TRY(give_numbers(g, g->weight[i], &x, err));
    return true;
}

qkv_model *qkv_model_with_weights(const qkv_model *m, const char *const *names, const qkv_tensor *tensors, int n,
                                  qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN_TEXTS(names, n) || !GIVEN_LIST(tensors, n)) return api_null(&e, err);
    if (m->program.source->prepared) {
        fail(&e, E_UNSUPPORTED, "a packed model's weights cannot be changed: take the model that was packed");
        return api_null(&e, err);
    }
    qkv_model *made = api_model_copy(m, &e);
    bool ok = made != NULL;
    for (int i = 0; ok && i < n; i++) ok = set_weight(made, names[i], &tensors[i], &e);
    if (api_whole(ok, &e)) return made;
    qkv_model_free(made);
    return api_null(&e, err);
}

/* ------------------------------------------------------------------ the model without gradients */

/* evaluates: on the session's weights, and without writing buffers. */
static Graph *forward_graph(const Graph *joint, bool evaluates, Err *err)
{
    Graph *g = graph_copy(joint, err);
    TRY_NULL(g);
    int n = 0;
    for (int i = 0; i < g->noutput; i++) {
        Output o = g->output[i];
        if (evaluates && o.gradient_of && !graph_repeats_gradient(joint, i)) o.gradient_of->changes = true;
        if (o.gradient_of) continue;
        o.loss = false;
        g->output[n++] = o;
    }
    g->noutput = n;
    g->out_spec = NULL; /* of the joint graph's results */
    for (int i = 0; evaluates && i < g->nmutation; i++) g->mutation[i].target->changes = true;
    if (evaluates) g->nmutation = 0;
    graph_dce(g);
    return g;
}

static bool make_evaluator(const qkv_session *s, Training *t, Err *err)
{
    const Graph *g;
    const Fusion *fusion;
    if (t->evaluator) return true;
    Graph *forward = t->forward ? NULL : forward_graph(s->model->program.graph, true, err);
    TRY(t->forward || (forward && (t->forward = api_model_of(forward, s->model->path, s->model, err))));
    TRY(program_for_runs(&t->forward->program, PASSES_RUN | PASS_BIT(PASS_TRAIN), &g, &fusion, err));
    t->evaluator = session_create_beside(s->session, g, fusion, t->threads, t->memory_limit, err);
    return t->evaluator != NULL;
}

qkv_model *qkv_session_trained(const qkv_session *s, qkv_error *err)
{
    Err e = api_begin();
    if (!api_enter(s, &e)) return api_null(&e, err);
    Graph *g = training_of(s, &e) ? forward_graph(s->model->program.graph, false, &e) : NULL;
    bool ok = g != NULL;
    for (int i = 0; ok && i < g->nweight; i++) {
        const Tensor *now = session_weight(s->session, g->weight[i]->name);
        if (now) ok = give_numbers(g, g->weight[i], now, &e);
    }
    for (int i = 0; ok && i < g->nweight; i++) { /* names of one parameter stay names of one */
        const Value *trained = trained_name(s, s->model->program.graph->weight[i]);
        g->weight[i]->data = graph_find_value(g, trained->name)->data;
    }
    qkv_model *m = ok ? api_model_of(g, s->model->path, s->model, &e) : NULL;
    if (!ok && g) graph_free(g);
    if (api_done(s, m != NULL, &e, err) == QKV_OK) return m;
    qkv_model_free(m);
    return NULL;
}

qkv_status qkv_session_save(qkv_session *s, const char *path, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(path)) return api_give(&e, err);
    if (!api_enter(s, &e)) return api_give(&e, err);
    const Training *t = training_of(s, &e);
    return api_done(s, t && trainer_save(t->trainer, path, NULL, 0, &e), &e, err);
}

/* What qkv_session_fit writes beside it is its own. */
static bool ignore(void *user, const char *name, const Tensor *x, Err *err)
{
    (void)user;
    (void)x;
    return !strncmp(name, "fit.", 4) || fail(err, E_USAGE, "'%s' is nothing of this model and optimizer", name);
}

qkv_status qkv_session_load(qkv_session *s, const char *path, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(path)) return api_give(&e, err);
    if (!api_enter(s, &e)) return api_give(&e, err);
    const Training *t = training_of(s, &e);
    return api_done(s, t && trainer_load(t->trainer, path, ignore, NULL, &e), &e, err);
}

/* ------------------------------------------------------------------ epochs */

static Data *data_of(const Graph *g, const char *const *names, const qkv_tensor *tensors, int n, int64_t batch,
                     Err *err)
{
    Tensor *all = mem_zeroed((size_t)g->ninput + 1, sizeof *all);
    bool ok = all || oom(err);
    for (int i = 0; ok && i < n; i++) {
        int at = api_find_input(g, names[i]);
        ok = at >= 0 ? api_tensor(&tensors[i], &all[at], err) || within(err, "the data '%s'", names[i])
                     : api_unknown_input(g, names[i], err);
    }
    Data *d = ok ? data_create(g, all, batch, err) : NULL;
    mem_free(all);
    return d;
}

static int output_called(const Graph *g, const char *name)
{
    for (int i = 0; i < g->noutput; i++)
        if (!strcmp(g->output[i].name, name)) return i;
    return -1;
}

/* The loss among the forward part's outputs: as the joint graph calls it. */
static int loss_of(const qkv_session *s, const Graph *forward)
{
    const Graph *joint = s->model->program.graph;
    for (int i = 0; i < joint->noutput; i++)
        if (joint->output[i].loss) return output_called(forward, joint->output[i].name);
    return -1;
}

static bool find_accuracy(const qkv_fit_options *o, FitOptions *f, Err *err)
{
    if (!o->logits != !o->labels) return fail(err, E_USAGE, "the accuracy needs both, logits and labels");
    if (!o->logits) return true;
    const Graph *g = session_graph(f->evaluator);
    f->logits = output_called(g, o->logits);
    f->labels = api_find_input(g, o->labels);
    if (f->logits < 0) return fail(err, E_USAGE, "the model has no output '%s' to take as logits", o->logits);
    if (f->labels < 0) return api_unknown_input(g, o->labels, err);
    return !dtype_is_float(g->input[f->labels]->dtype) || fail(err, E_USAGE, "input '%s' is %s: labels are integers",
                                                               o->labels, dtype_name(g->input[f->labels]->dtype));
}

typedef struct Teller {
    qkv_fit_callback *f;
    void *user;
} Teller;

static bool tell(void *user, const FitEvent *e)
{
    const Teller *t = user;
    qkv_fit_event q = {sizeof q, e->epoch_end, e->replayed, e->epoch,    e->step,        e->steps,
                       e->loss,  e->lr,        e->norm,     e->val_loss, e->val_accuracy};
    return t->f(t->user, &q) == 0;
}

qkv_status qkv_session_fit(qkv_session *s, const qkv_fit_options *options, int *stopped, qkv_error *err)
{
    Err e = api_begin();
    qkv_fit_options o = {0};
    if (!GIVEN(options) || !VERSIONED_TAKE(qkv_fit_options, user, &o, options, &e) || !GIVEN_TEXTS(o.names, o.n) ||
        !GIVEN_LIST(o.tensors, o.n) || !GIVEN_TEXTS(o.val_names, o.n_val) || !GIVEN_LIST(o.val_tensors, o.n_val))
        return api_give(&e, err);
    if (!api_enter(s, &e)) return api_give(&e, err);
    Training *t = training_of(s, &e);
    Teller teller = {o.tell, o.user};
    FitOptions f = {.epochs = o.epochs,
                    .drop_last = o.drop_last != 0,
                    .in_order = o.in_order != 0,
                    .checkpoint = o.checkpoint,
                    .every = o.checkpoint_every,
                    .resume = o.resume,
                    .logits = -1,
                    .labels = -1,
                    .tell = o.tell ? tell : NULL,
                    .user = &teller};
    bool end = false, ok = t && (o.batch >= 0 ||
                                 fail(&e, E_USAGE, "a batch of %lld, expected a number from 1 on", (long long)o.batch));
    ok = ok && (f.data = data_of(session_graph(s->session), o.names, o.tensors, o.n, o.batch, &e));
    if (ok && o.n_val) {
        ok = make_evaluator(s, t, &e) &&
             ((f.val = data_of(session_graph(t->evaluator), o.val_names, o.val_tensors, o.n_val, o.batch, &e)) ||
              within(&e, "validation"));
        f.evaluator = t->evaluator;
        if (ok) f.val_loss = loss_of(s, session_graph(t->evaluator));
        ok = ok && find_accuracy(&o, &f, &e);
    }
    if (ok) {
        f.seed = trainer_seed(t->trainer);
        ok = fit(t->trainer, &f, &end, &e);
    }
    data_free(f.data);
    data_free(f.val);
    if (stopped) *stopped = end;
    return api_done(s, ok, &e, err);
}
