/* Checkpoints. Contract in trainer.h.
 *
 * Tensors: "weight.NAME" of every parameter and written buffer, "exp_avg.NAME" ... of the optimizer, "generator" (i64:
 * MT19937's 624 words and the next one's place), "steps" (i64), and the caller's.
 */
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"
#include "format/tensors.h"
#include "train/trainer_impl.h"

enum { WORDS = 624 };

typedef struct Entry {
    const char *name;
    Tensor tensor;
} Entry;

/* What a trainer is made of, by name. */
typedef struct Entries {
    Arena *arena;
    Entry *item;
    int n;
    int64_t generator[WORDS + 1], steps;
} Entries;

static bool add(Entries *e, const char *kind, const char *name, const Tensor *t)
{
    e->item[e->n] = (Entry){arena_printf(e->arena, "%s%s", kind, name), *t};
    return e->item[e->n++].name != NULL;
}

static const char *name_of(const Value *v) { return v->fqn ? v->fqn : v->name; }

static bool list(Trainer *t, Entries *e)
{
    const Graph *g = session_graph(t->session);
    const char *kind;
    e->arena = arena_create(0);
    e->item = mem_zeroed((size_t)(g->nweight + 2 * t->n + 2), sizeof *e->item);
    bool ok = e->arena && e->item;
    for (int i = 0; ok && i < g->nweight; i++) {
        const Tensor *w = session_weight(t->session, g->weight[i]->name);
        if (w) ok = add(e, "weight.", name_of(g->weight[i]), w);
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; ok && i < t->n; i++) {
            const Tensor *s = optimizer_state(t->optimizer, i, k, &kind);
            if (s) ok = add(e, arena_printf(e->arena, "%s.", kind), name_of(t->value[i]), s);
        }
    Tensor generator = tensor_of(DT_I64, 1, (int64_t[]){WORDS + 1}, e->generator),
           steps = tensor_of(DT_I64, 0, NULL, &e->steps);
    return ok && add(e, "generator", "", &generator) && add(e, "steps", "", &steps);
}

static void entries_free(Entries *e)
{
    mem_free(e->item);
    if (e->arena) arena_destroy(e->arena);
}

bool trainer_save(Trainer *t, const char *path, const Extra *extra, int nextra, Err *err)
{
    Entries e = {0};
    const Rng *r = session_generator(t->session);
    bool ok = list(t, &e) || oom(err);
    const char **name = mem_zeroed((size_t)(e.n + nextra + 1), sizeof *name);
    Tensor *tensor = mem_zeroed((size_t)(e.n + nextra + 1), sizeof *tensor);
    if (ok && (!name || !tensor)) ok = oom(err);
    for (int i = 0; i < WORDS; i++) e.generator[i] = r->state[i];
    e.generator[WORDS] = r->next;
    e.steps = trainer_steps(t);
    for (int i = 0; ok && i < e.n + nextra; i++) {
        name[i] = i < e.n ? e.item[i].name : extra[i - e.n].name;
        tensor[i] = i < e.n ? e.item[i].tensor : extra[i - e.n].tensor;
    }
    ok = ok && tensorfile_write(path, name, tensor, (size_t)(e.n + nextra), err);
    mem_free(name);
    mem_free(tensor);
    entries_free(&e);
    return ok;
}

static bool fits(const Entry *e, const Tensor *x, Err *err)
{
    char mine[128], found[128];
    if (!x)
        return fail(err, E_USAGE, "it has no '%s': it is the checkpoint of another model or another optimizer",
                    e->name);
    bool same = x->dtype == e->tensor.dtype && x->rank == e->tensor.rank;
    for (int i = 0; same && i < x->rank; i++) same = x->shape[i] == e->tensor.shape[i];
    return same || fail(err, E_USAGE, "'%s' is %s, expected %s: it is the checkpoint of another model", e->name,
                        tensor_describe(x, found, sizeof found), tensor_describe(&e->tensor, mine, sizeof mine));
}

static bool generator_of(const Entries *e, Rng *out, Err *err)
{
    for (int i = 0; i <= WORDS; i++)
        if (e->generator[i] < 0 || e->generator[i] > (i < WORDS ? UINT32_MAX : WORDS))
            return fail(err, E_FORMAT, "'generator' is not the state of a generator");
    for (int i = 0; i < WORDS; i++) out->state[i] = (uint32_t)e->generator[i];
    out->next = (int)e->generator[WORDS];
    return (e->steps >= 0 && e->steps <= 1LL << 53) || fail(err, E_FORMAT, "'steps' is %lld", (long long)e->steps);
}

static bool load(Trainer *t, const TensorFile *f, Entries *e, TakeExtra *take, void *user, Err *err)
{
    Rng r;
    for (int i = 0; i < e->n; i++) TRY(fits(&e->item[i], tensorfile_find(f, e->item[i].name), err));
    for (int i = e->n - 2; i < e->n; i++) tensor_copy(&e->item[i].tensor, tensorfile_find(f, e->item[i].name));
    TRY(generator_of(e, &r, err));
    for (size_t k = 0; take && k < tensorfile_count(f); k++) {
        bool own = false;
        for (int i = 0; i < e->n && !own; i++) own = !strcmp(e->item[i].name, tensorfile_name(f, k));
        if (!own) TRY(take(user, tensorfile_name(f, k), tensorfile_at(f, k), err));
    }
    for (int i = 0; i < e->n - 2; i++) tensor_copy(&e->item[i].tensor, tensorfile_find(f, e->item[i].name));
    *session_generator(t->session) = r;
    optimizer_set_steps(t->optimizer, e->steps);
    return true;
}

bool trainer_load(Trainer *t, const char *path, TakeExtra *take, void *user, Err *err)
{
    Entries e = {0};
    TensorFile *f = tensorfile_open(path, err);
    TRY(f);
    bool ok = (list(t, &e) || oom(err)) && load(t, f, &e, take, user, err);
    entries_free(&e);
    tensorfile_close(f);
    return ok || within(err, "%s", path);
}
