/* Outputs that become inputs of the next run, without a copy: the keys and values of a decoder, the state of a
 * recurrent model.
 *
 *     session_feed(s, 1, 2, err);          input 1 is, from the second run on, what output 2 of the run before was
 *     session_set_input(s, 1, &empty, err);            what it is in the first run
 *     session_run(s, err);                 reads `empty`
 *     session_run(s, err);                 reads what that run left
 *
 * Where the output is a cat of the input and something else, the input grows in place: its memory, the session's, has
 * room along the axis, the cat's result lies in it (plan.c gives both the same address and strides), and run_cat
 * finds its first operand there already, so that a run writes what is new and nothing else. What the input was is not
 * overwritten, whoever reads it and whenever; a run that fails leaves it as it was. When the room is used up the input
 * moves to memory of twice its size, and plans, which know the strides, are made again.
 *
 * Any other output is written into one of two blocks in turn (HOME_INPUT, as into the caller's memory), or copied there
 * where it is a view or a part of something else.
 */
#include <string.h>
#include "base/mem.h"
#include "run/session_impl.h"

enum { LEAST_ROOM = 64 }; /* along the axis of an input that grows */

/* ------------------------------------------------------------------ what is fed from what */

static bool feeding_make(Session *s, Err *err)
{
    Feeding *f = s->feeding = mem_zeroed(1, sizeof *f);
    if (!f) return oom(err);
    f->input = mem_zeroed((size_t)s->g->ninput + 1, sizeof *f->input);
    f->output = mem_zeroed((size_t)s->g->noutput + 1, sizeof *f->output);
    f->grown = mem_zeroed((size_t)s->g->ninput + 1, sizeof *f->grown);
    return (f->input && f->output && f->grown) || oom(err);
}

void feeding_free(Session *s)
{
    Feeding *f = s->feeding;
    if (!f) return;
    for (int i = 0; f->input && i < s->g->ninput; i++) mem_free(f->input[i].memory.data);
    for (int i = 0; f->output && i < s->g->noutput; i++)
        for (int k = 0; k < 2; k++) mem_free(f->output[i].side[k].data);
    mem_free(f->input);
    mem_free(f->output);
    mem_free(f->grown);
    mem_free(f);
    s->feeding = NULL;
}

size_t feeding_bytes(const Session *s)
{
    size_t n = 0;
    for (int i = 0; s->feeding && i < s->g->ninput; i++) n += s->feeding->input[i].memory.size;
    for (int i = 0; s->feeding && i < s->g->noutput; i++)
        n += s->feeding->output[i].side[0].size + s->feeding->output[i].side[1].size;
    return n;
}

/* The axis along which `v` is a cat of input `from` and others after it, whose sizes do not come from data; -1: it is
 * not. */
static int growing_axis(const Graph *g, const Value *from, const Value *v)
{
    const Node *n = v->def;
    if (!n || n->op->id != OP_cat || n->arg[0].kind != ARG_VALUES || v->dtype != from->dtype) return -1;
    for (int i = 0; i < n->arg[0].n; i++)
        if ((n->arg[0].vs[i] == from) != (i == 0)) return -1;
    if (n->arg[1].kind != ARG_EXPR || n->arg[1].e->kind != EX_INT) return -1;
    int axis = (int)(n->arg[1].e->i < 0 ? n->arg[1].e->i + v->rank : n->arg[1].e->i);
    for (int i = 0; i < v->rank; i++)
        if (ex_data_dependent(g->ex, v->dim[i])) return -1;
    return axis >= 0 && axis < v->rank ? axis : -1;
}

static bool fits(const Value *in, const Output *out, Err *err)
{
    const Value *v = out->value;
    if (in->dtype != v->dtype)
        return fail(err, E_USAGE, "input '%s' is %s and output '%s' is %s", in->name, dtype_name(in->dtype), out->name,
                    dtype_name(v->dtype));
    if (in->rank != v->rank)
        return fail(err, E_USAGE, "input '%s' has rank %d and output '%s' has rank %d", in->name, in->rank, out->name,
                    v->rank);
    for (int i = 0; i < in->rank; i++)
        if (ex_is_int(in->dim[i]) && ex_is_int(v->dim[i]) && in->dim[i] != v->dim[i])
            return fail(err, E_USAGE, "axis %d of input '%s' is %lld and that of output '%s' is %lld", i, in->name,
                        (long long)in->dim[i]->i, out->name, (long long)v->dim[i]->i);
    return true;
}

/* Which inputs grow in place, and which outputs have blocks of their own: an output that several inputs are fed from
 * has. */
static void sort_feeds(Session *s)
{
    Feeding *f = s->feeding;
    for (int i = 0; i < s->g->noutput; i++) f->output[i].readers = f->output[i].in_place = 0;
    for (int i = 0; i < s->g->ninput; i++)
        if (f->input[i].from) f->output[f->input[i].from - 1].readers++;
    for (int i = 0; i < s->g->ninput; i++) {
        int64_t room = f->grown[i].room;
        FedOutput *o = f->input[i].from ? &f->output[f->input[i].from - 1] : NULL;
        const Value *v = o ? s->g->output[f->input[i].from - 1].value : NULL;
        int axis = o && o->readers == 1 ? growing_axis(s->g, s->g->input[i], v) : -1;
        f->grown[i] = axis < 0 ? (Grown){0} : (Grown){v, axis, room};
        if (axis >= 0) o->in_place = true;
    }
}

static void let_go(Session *s, int i)
{
    Feed *f = &s->feeding->input[i];
    if (f->held) s->input_set[i] = false;
    f->held = false;
}

bool session_feed(Session *s, int i, int from, Err *err)
{
    const Graph *g = s->g;
    if (i < 0 || i >= g->ninput) return fail(err, E_USAGE, "the model has no input %d", i);
    if (from >= g->noutput) return fail(err, E_USAGE, "the model has no output %d", from);
    if (s->keep && s->keep->input[i])
        return fail(err, E_USAGE, "input '%s' is kept; it cannot be fed from an output as well", g->input[i]->name);
    TRY(from < 0 || fits(g->input[i], &g->output[from], err));
    if (!s->feeding && !feeding_make(s, err)) {
        feeding_free(s);
        return false;
    }
    let_go(s, i);
    s->feeding->input[i].from = from < 0 ? 0 : from + 1;
    sort_feeds(s);
    session_sort_outputs(s);
    session_forget_plans(s);
    return true;
}

void feeding_let_go(Session *s)
{
    for (int i = 0; s->feeding && i < s->g->ninput; i++) let_go(s, i);
}

bool feeding_holds(const Session *s, int i) { return s->feeding && s->feeding->input[i].held; }

void feeding_was_set(Session *s, int i)
{
    if (s->feeding) s->feeding->input[i].held = false;
}

bool feeding_grows(const Session *s, int i) { return s->feeding && s->feeding->grown[i].result; }

const Grown *feeding_grown(const Session *s) { return s->feeding ? s->feeding->grown : NULL; }

bool feeding_output(const Session *s, int o) { return s->feeding && s->feeding->output[o].readers; }

/* ------------------------------------------------------------------ inputs that grow */

/* The size that a symbol of input i has in inputs that were set by the caller; -1: none has it. */
static int64_t size_elsewhere(const Session *s, const Expr *e)
{
    for (int k = 0; k < s->g->ninput; k++)
        for (int d = 0; s->input_set[k] && !feeding_holds(s, k) && d < s->g->input[k]->rank; d++)
            if (s->g->input[k]->dim[d] == e) return s->input[k].shape[d];
    return -1;
}

bool feeding_start_empty(Session *s, int i)
{
    if (!feeding_grows(s, i)) return false;
    const Value *v = s->g->input[i];
    int64_t shape[MAX_RANK];
    for (int d = 0; d < v->rank; d++) {
        bool grows = d == s->feeding->grown[i].axis;
        shape[d] = grows ? 0 : ex_is_int(v->dim[d]) ? v->dim[d]->i : size_elsewhere(s, v->dim[d]);
        if (shape[d] < 0) return false;
    }
    s->input[i] = tensor_of(v->dtype, v->rank, shape, NULL);
    return s->input_set[i] = true;
}

/* Input i, as it is, in memory with `room` sizes along its axis. */
static bool move(Session *s, int i, int64_t room, Err *err)
{
    Feed *f = &s->feeding->input[i];
    Grown *g = &s->feeding->grown[i];
    Tensor whole = s->input[i], t = s->input[i];
    size_t bytes, others = session_held(s) - f->memory.size;
    whole.shape[g->axis] = room;
    TRY(shape_bytes(t.dtype, t.rank, whole.shape, &bytes, err));
    if (s->env.memory_limit && (others > s->env.memory_limit || bytes > s->env.memory_limit - others))
        return fail(err, E_LIMIT, "%zu bytes beside %zu of other inputs, the limit is %zu", bytes, others,
                    s->env.memory_limit);
    t.data = session_block(bytes);
    if (!t.data) return oom(err);
    strides_with_room(&t, g->axis, room);
    if (tensor_numel(&t)) tensor_copy(&t, &s->input[i]);
    mem_free(f->memory.data);
    f->memory = (Room){t.data, bytes};
    f->held = true;
    s->input[i] = t;
    if (g->room != room) session_forget_sizes(s);
    g->room = room;
    return true;
}

bool feeding_reserve(Session *s, Err *err)
{
    for (int i = 0; s->feeding && i < s->g->ninput; i++) {
        const Grown *g = &s->feeding->grown[i];
        int64_t need;
        if (!g->result) continue;
        TRY(ex_eval_i64(s->g->ex, g->result->dim[g->axis], &s->binding, &need, err));
        if (s->feeding->input[i].held && need <= g->room) continue;
        int64_t twice = need < LEAST_ROOM / 2 ? LEAST_ROOM : need > INT64_MAX / 2 ? need : 2 * need;
        Err unused = {0};
        bool ok = move(s, i, need <= g->room ? g->room : twice, &unused) || move(s, i, need, err);
        TRY(ok || within(err, "input '%s'", s->g->input[i]->name));
    }
    return true;
}

/* ------------------------------------------------------------------ from run to run */

bool feeding_apart(const Session *s, int o) { return feeding_output(s, o) && !s->feeding->output[o].in_place; }

void *feeding_memory(Session *s, int o, size_t bytes)
{
    FedOutput *f = &s->feeding->output[o];
    Room *r = &f->side[f->turn];
    size_t others = session_held(s) - r->size, limit = s->env.memory_limit;
    if (limit && (others > limit || bytes > limit - others)) return NULL;
    return session_room(r, bytes);
}

void feeding_pass(Session *s)
{
    for (int i = 0; s->feeding && i < s->g->ninput; i++) {
        Feed *f = &s->feeding->input[i];
        if (!f->from) continue;
        s->input[i] = *session_output(s, f->from - 1);
        s->input_set[i] = f->held = true;
    }
    for (int i = 0; s->feeding && i < s->g->noutput; i++) s->feeding->output[i].turn ^= 1;
}
