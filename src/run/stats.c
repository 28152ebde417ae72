/* Looking into a session: memory, times of steps, who is told of them. Contract in session.h. */
#include "run/gemm_cache.h"
#include "run/module_names.h"
#include "run/session_impl.h"

void session_stats(const Session *s, SessionStats *out)
{
    *out = (SessionStats){.plan_ms = s->plan_ms,
                          .plans = s->plans_made,
                          .packed_bytes = gemm_cache_bytes(&s->env),
                          .threads = s->env.threads};
    for (int i = 0; i < s->ncached; i++)
        for (int k = 0; s->cached[i].stage == KEPT && k < s->cached[i].plan->nconst; k++)
            if (s->cached[i].plan->const_data[k]) out->kept_bytes += s->cached[i].plan->const_size[k];
    const Plan *p = s->current;
    if (!p) return;
    out->arena_bytes = p->arena_bytes;
    out->bound_bytes = p->bound_bytes;
    for (int i = 0; i < p->nsteps; i++) {
        const Step *t = &p->step[i];
        if (t->top + t->scratch > p->arena_bytes + out->scratch_bytes)
            out->scratch_bytes = t->top + t->scratch - p->arena_bytes;
        if (t->alive + t->scratch > out->bound_bytes) out->bound_bytes = t->alive + t->scratch;
    }
    for (int i = 0; i < p->nconst; i++)
        if (p->const_data[i]) out->constant_bytes += p->const_size[i];
    for (int i = 0; i < p->nsteps; i++) out->steps += !p->step[i].constant;
}

const Plan *session_last_plan(const Session *s) { return s->current; }

void session_profile(Session *s, bool on)
{
    profile_sums(&s->profile, on);
}

Profile *session_profile_of(Session *s) { return &s->profile; }

void session_each_step(const Session *s, void (*f)(void *user, const StepInfo *step), void *user)
{
    for (int i = 0; i < s->profile.ninfo; i++)
        if (s->profile.info[i].calls) f(user, &s->profile.info[i]);
}

void session_on_node(Session *s, NodeFn *f, void *user)
{
    if ((s->on_node == NULL) != (f == NULL))
        session_forget_plans(s); /* they differ: without fusion, and with all constants kept */
    s->on_node = f;
    s->on_node_user = user;
}

void session_on_progress(Session *s, ProgressFn *f, void *user)
{
    if (f && !s->module) s->module = modules_of(s->g);
    s->on_progress = f;
    s->on_progress_user = user;
}
