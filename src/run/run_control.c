/* Running loops and branches: a session of its own for each graph that they run. The ops: src/op/control.def.
 *
 * These are the only steps that allocate while running: what a turn carries may grow. Without memory for its results a
 * step only counts: it runs all the same, and says how large they become (src/run/session.c, find_symbol).
 */
#include <string.h>
#include "run/run_table.h"
#include "base/mem.h"
#include "plan/fuse.h"
#include "run/session.h"
#include "team/team.h"

typedef struct Kept { /* a tensor that outlives the turn that made it */
    Tensor t;
    size_t size;
} Kept;

typedef struct Loop {
    Session *session[2]; /* of the body; of yes and no */
    Fusion fusion[2];
    Kept *kept[2]; /* what turns carry, by turns even and odd */
    int n;
} Loop;

static void loop_free(void *p)
{
    Loop *l = p;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; l->kept[i] && k < l->n; k++) mem_free(l->kept[i][k].t.data);
        mem_free(l->kept[i]);
        session_free(l->session[i]);
        fusion_free(&l->fusion[i]);
    }
    mem_free(l);
}

static Loop *state_of(Call *c, int n, Err *err)
{
    if (c->state) return c->state;
    Loop *l = mem_zeroed(1, sizeof *l);
    if (l) {
        l->n = n;
        l->kept[0] = mem_zeroed((size_t)n + 1, sizeof *l->kept[0]);
        l->kept[1] = mem_zeroed((size_t)n + 1, sizeof *l->kept[1]);
        c->state = l;
        c->state_free = loop_free;
    }
    if (l && l->kept[0] && l->kept[1]) return l;
    oom(err);
    return NULL;
}

static Session *body_session(Call *c, Loop *l, int which, const Graph *body, Err *err)
{
    if (l->session[which]) return l->session[which];
    if (!l->fusion[which].node && !fuse_graph(body, &l->fusion[which], err)) return NULL;
    return l->session[which] = session_create_body(c->env, body, &l->fusion[which], err);
}

static bool keep(Kept *k, const Tensor *t, Err *err)
{
    size_t need = tensor_bytes(t);
    if (need > k->size) {
        mem_free(k->t.data);
        k->size = 0;
        k->t.data = mem_alloc(need);
        if (!k->t.data) return fail(err, E_LIMIT, "out of memory: %zu bytes that a loop carries", need);
        k->size = need;
    }
    k->t = tensor_of(t->dtype, t->rank, t->shape, k->t.data);
    tensor_copy(&k->t, t);
    return true;
}

/* The count comes first: sizes are asked for before there is memory. */
static bool counting(const Call *c)
{
    for (int k = 0; k < c->nout; k++)
        if (c->out[k]->data) return false;
    return c->nout > 0;
}

static bool same_sizes(const Tensor *a, const Tensor *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

/* Slice `turn` of a stacked result, or of a sequence. */
static Tensor slot_of(const Tensor *out, int64_t turn)
{
    Tensor slot = *out;
    slot.rank--;
    memmove(slot.shape, slot.shape + 1, (size_t)slot.rank * sizeof *slot.shape);
    memmove(slot.stride, slot.stride + 1, (size_t)slot.rank * sizeof *slot.stride);
    if (slot.data) slot.data = (char *)slot.data + turn * out->stride[0] * (int64_t)dtype_size(out->dtype);
    return slot;
}

static bool scan(Call *c, int k, const Tensor *t, int64_t turn, bool count, Err *err)
{
    Tensor *out = c->out[k];
    if (count && turn == 0) memcpy(out->shape + 1, t->shape, (size_t)t->rank * sizeof *t->shape);
    Tensor slot = slot_of(out, turn);
    if (!same_sizes(&slot, t)) {
        char have[200], want[200];
        return fail(err, E_USAGE, "result %d is %s in this iteration, but was %s before", k,
                    tensor_describe(t, have, sizeof have), tensor_describe(&slot, want, sizeof want));
    }
    if (count || !tensor_numel(t)) return true;
    if (turn >= out->shape[0]) return fail(err, E_USAGE, "more than %lld iterations", (long long)out->shape[0]);
    tensor_copy(&slot, t);
    return true;
}

static bool take_turn(Call *c, Loop *l, Session *s, int64_t turn, Tensor *const *carried, bool *go, Err *err)
{
    const CallArg *captured = &c->arg[2], *sequences = &c->arg[6];
    int nc = c->arg[1].n, ns = nc + sequences->n;
    Tensor at = tensor_of(DT_I64, 0, NULL, &turn), yes = tensor_of(DT_BOOL, 0, NULL, go);
    TRY(session_set_input(s, 0, &at, err) && session_set_input(s, 1, &yes, err));
    for (int i = 0; i < nc; i++)
        TRY(session_set_input(s, 2 + i, turn ? &l->kept[(turn - 1) & 1][i].t : carried[i], err));
    for (int i = 0; i < sequences->n; i++) {
        Tensor slice = slot_of(sequences->ts[i], turn);
        TRY(session_set_input(s, 2 + nc + i, &slice, err));
    }
    for (int i = 0; i < captured->n; i++) TRY(session_set_input(s, 2 + ns + i, captured->ts[i], err));
    TRY(session_run(s, err));
    for (int i = 0; i < nc; i++) TRY(keep(&l->kept[turn & 1][i], session_output(s, 1 + i), err));
    return true;
}

bool run_loop(Call *c, Err *err)
{
    const Graph *body = c->node->arg[3].g;
    int nc = c->arg[1].n;
    bool count = counting(c), sure = call_bool(c, 5),
         go = call_given(c, 0) ? tensor_get_i64(call_in(c, 0), 0) != 0 : true;
    int64_t limit = call_i64_or(c, 4, INT64_MAX), turn = 0;
    Loop *l = state_of(c, nc, err);
    Session *s = l ? body_session(c, l, 0, body, err) : NULL;
    TRY(s);
    for (; go && turn < limit; turn++) {
        if (turn == LOOP_MAX_TURNS)
            return call_fail(c, E_LIMIT, err, "the loop has not ended after %d iterations", LOOP_MAX_TURNS);
        if (c->env->turns && --*c->env->turns < 0)
            return call_fail(c, E_LIMIT, err,
                             "the loops take more turns than is allowed where a model is only looked at");
        if (team_stopped()) return false;
        bool now = true;
        if (!take_turn(c, l, s, turn, c->arg[1].ts, &now, err)) return within(err, "turn %lld", (long long)turn);
        if (!sure) go = tensor_get_i64(session_output(s, 0), 0) != 0;
        for (int k = nc; k < c->nout; k++)
            if (!scan(c, k, session_output(s, 1 + k), turn, count, err))
                return within(err, "turn %lld", (long long)turn);
    }
    for (int k = nc; count && k < c->nout; k++) c->out[k]->shape[0] = turn;
    for (int k = 0; k < nc; k++) {
        const Tensor *last = turn ? &l->kept[(turn - 1) & 1][k].t : c->arg[1].ts[k];
        if (count) memcpy(c->out[k]->shape, last->shape, (size_t)last->rank * sizeof *last->shape);
        else if (!same_sizes(c->out[k], last))
            return call_fail(c, E_USAGE, err, "carried value %d changes its sizes", k);
        else if (tensor_numel(last)) tensor_copy(c->out[k], last);
    }
    return true;
}

bool run_branch(Call *c, Err *err)
{
    bool count = counting(c), yes = tensor_get_i64(call_in(c, 0), 0) != 0;
    const Graph *body = c->node->arg[yes ? 2 : 3].g;
    int first = yes ? 0 : c->node->arg[2].g->ninput;
    Loop *l = state_of(c, 0, err);
    Session *s = l ? body_session(c, l, !yes, body, err) : NULL;
    TRY(s);
    for (int i = 0; i < body->ninput; i++) TRY(session_set_input(s, i, c->arg[1].ts[first + i], err));
    TRY(session_run(s, err));
    for (int k = 0; k < c->nout; k++) {
        const Tensor *t = session_output(s, k);
        if (count) memcpy(c->out[k]->shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        else if (!same_sizes(c->out[k], t))
            return call_fail(c, E_USAGE, err, "result %d has another size than before", k);
        else if (tensor_numel(t)) tensor_copy(c->out[k], t);
    }
    return true;
}
