/* Steps of training. Contract in trainer.h. */
#include "train/trainer.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "team/team.h"
#include "train/trainer_impl.h"

static const char *name_of(const Value *v) { return v->fqn ? v->fqn : v->name; }

static bool find_parameters(Trainer *t, Err *err)
{
    const Graph *g = session_graph(t->session);
    t->loss = -1;
    t->value = mem_zeroed((size_t)g->noutput + 1, sizeof *t->value);
    t->output = mem_zeroed((size_t)g->noutput + 1, sizeof *t->output);
    t->parameter = mem_zeroed((size_t)g->noutput + 1, sizeof *t->parameter);
    t->gradient = mem_zeroed((size_t)g->noutput + 1, sizeof *t->gradient);
    t->flat = mem_zeroed((size_t)g->noutput + 1, sizeof *t->flat);
    if (!t->value || !t->output || !t->parameter || !t->gradient || !t->flat) return oom(err);
    for (int i = 0; i < g->noutput; i++) {
        const Value *v = g->output[i].gradient_of;
        if (g->output[i].loss) t->loss = i;
        if (!v || v->kind != V_WEIGHT || graph_repeats_gradient(g, i)) continue;
        const Tensor *w = session_weight(t->session, v->name);
        if (v->dtype != DT_F32 && v->dtype != DT_F64)
            return fail(err, E_UNSUPPORTED,
                        "parameter '%s' is %s: training takes f32 and f64; freeze it (requires_grad_(False)) before "
                        "export, or export the model in float32",
                        name_of(v), dtype_name(v->dtype));
        if (!w)
            return fail(err, E_USAGE, "parameter '%s' does not change in this session: it was not made to train",
                        name_of(v));
        t->value[t->n] = v;
        t->output[t->n] = i;
        t->parameter[t->n++] = *w;
    }
    if (!t->n) return fail(err, E_USAGE, "the model has no gradients: make its joint graph first, with qkv joint");
    return t->loss >= 0 ||
           fail(err, E_USAGE,
                "the model does not say which output is the loss: make its joint graph again with qkv joint");
}

Trainer *trainer_create(Session *s, const TrainOptions *options, Err *err)
{
    Trainer *t = mem_zeroed(1, sizeof *t);
    if (!t) {
        oom(err);
        return NULL;
    }
    t->session = s;
    t->is = *options;
    bool ok = find_parameters(t, err) &&
              ((schedule_falls(&t->is.schedule) && !t->is.schedule.steps) || schedule_check(&t->is.schedule, err));
    if (ok && (t->optimizer = optimizer_create(&t->is.optimizer, t->parameter, t->n, session_threads(s), err))) {
        session_seed(s, t->is.seed);
        session_hold(s, true);
        return t;
    }
    trainer_free(t);
    return NULL;
}

void trainer_free(Trainer *t)
{
    if (!t) return;
    optimizer_free(t->optimizer);
    for (int i = 0; t->flat && i < t->n; i++) mem_free(t->flat[i]);
    mem_free(t->flat);
    mem_free(t->gradient);
    mem_free(t->parameter);
    mem_free(t->output);
    mem_free(t->value);
    mem_free(t);
}

Session *trainer_session(const Trainer *t) { return t->session; }
int64_t trainer_steps(const Trainer *t) { return optimizer_steps(t->optimizer); }
double trainer_lr(const Trainer *t) { return schedule_lr(&t->is.schedule, trainer_steps(t)); }
uint64_t trainer_seed(const Trainer *t) { return t->is.seed; }

bool trainer_plan(Trainer *t, int64_t steps, Err *err)
{
    Schedule s = t->is.schedule;
    if (!s.steps) s.steps = steps;
    TRY(schedule_check(&s, err));
    t->is.schedule = s;
    return true;
}

/* Gradients as the run left them; one that is a view (of an expanded number, most likely) is copied. */
static bool take_gradients(Trainer *t, Err *err)
{
    for (int i = 0; i < t->n; i++) {
        const Tensor *g = session_output(t->session, t->output[i]);
        t->gradient[i] = *g;
        if (tensor_contiguous(g)) continue;
        if (!t->flat[i] && !(t->flat[i] = mem_alloc(tensor_bytes(g) + 1))) return oom(err);
        t->gradient[i] = tensor_of(g->dtype, g->rank, g->shape, t->flat[i]);
        tensor_copy(&t->gradient[i], g);
    }
    return true;
}

static bool step(Trainer *t, TrainStep *out, Err *err)
{
    Rng before = *session_generator(t->session);
    TRY(session_run(t->session, err) && take_gradients(t, err));
    *out = (TrainStep){.step = trainer_steps(t) + 1,
                       .loss = tensor_get(session_output(t->session, t->loss), 0),
                       .lr = trainer_lr(t),
                       .norm = optimizer_norm(t->optimizer, t->gradient)};
    if (!isfinite(out->loss) || !isfinite(out->norm))
        return train_blame(t->session, &before, isfinite(out->loss) ? "the gradient" : "the loss", out->step, err);
    TRY(session_commit(t->session, err));
    optimizer_step(t->optimizer, t->gradient, out->norm, out->lr);
    return true;
}

bool trainer_step(Trainer *t, TrainStep *out, Err *err)
{
    SessionStay before = session_enter(t->session);
    bool ok = step(t, out, err);
    session_leave(before);
    return ok;
}
