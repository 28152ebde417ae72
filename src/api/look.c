/* Graphs and memory as JSON, for who draws them: qkv_model_graph_json, qkv_session_memory_json. */
#include <stdlib.h>
#include "api/api_impl.h"
#include "base/jsonw.h"
#include "plan/memory.h"
#include "program/graph_report.h"
#include "program/prepare.h"
#include "run/session.h"

char *qkv_model_graph_json(const qkv_model *m, const char *passes, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    Prepared r;
    if (!GIVEN(m) || !program_prepare_named(&m->program, passes, &r, &e)) return api_null(&e, err);
    bool ok = api_whole(graph_report(m->program.source, r.graph ? r.graph : m->program.graph, &b, &e), &e);
    prepared_free(&r);
    if (ok) return b.data;
    buf_free(&b);
    return api_null(&e, err);
}

/* ------------------------------------------------------------------ memory */

static const Step *peak_step(const Plan *p)
{
    const Step *most = NULL;
    for (const Step *s = p->step; s < p->step + p->nsteps; s++)
        if (!s->constant && (!most || s->alive + s->scratch > most->alive + most->scratch)) most = s;
    return most;
}

static void put_steps(const Plan *p, Buf *b)
{
    jw_open(b, "steps", '[');
    for (const Step *s = p->step; s < p->step + p->nsteps; s++) {
        jw_put(b, "{'node': %s, 'op': %s, 'alive_bytes': %llu, 'scratch_bytes': %llu", s->node->name, s->node->op->name,
               (unsigned long long)s->alive, (unsigned long long)s->scratch);
        jw_bool(b, "constant", s->constant);
        jw_close(b, "}");
    }
    jw_close(b, "]");
}

typedef struct Held {
    const Block *block;
    const Value *value;
} Held;

static int larger(const void *a, const void *b)
{
    size_t x = ((const Held *)a)->block->size, y = ((const Held *)b)->block->size;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The value that fills each block from its beginning: the one that was computed into it, not a view. */
static void name_blocks(const Plan *p, const Graph *g, Held *held)
{
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++) {
            const Place at = p->place[n->out[k]->id];
            if (at.home == HOME_ARENA && !held[at.index].value && !at.offset) held[at.index].value = n->out[k];
        }
}

static bool put_held(const Plan *p, const Graph *g, int step, Buf *b, Err *err)
{
    Held *held = mem_zeroed((size_t)p->nblock + 1, sizeof *held);
    if (!held) return oom(err);
    for (int i = 0; i < p->nblock; i++) held[i].block = &p->block[i];
    name_blocks(p, g, held);
    qsort(held, (size_t)p->nblock, sizeof *held, larger);
    jw_open(b, "held", '[');
    for (int i = 0; i < p->nblock; i++) {
        const Block *k = held[i].block;
        const Value *v = held[i].value;
        if (!k->size || k->first > step || k->last < step) continue;
        jw_open(b, NULL, '{');
        jw_text(b, "value", v ? v->name : NULL);
        jw_text(b, "op", v ? v->def->op->name : NULL);
        const Tensor *t = v ? p->value[v->id] : NULL;
        jw_ints(b, "shape", t ? t->shape : NULL, t ? t->rank : 0);
        jw_put(b, "'bytes': %llu, 'from': %d, 'to': %d}", (unsigned long long)k->size, k->first, k->last);
    }
    jw_close(b, "]");
    mem_free(held);
    return true;
}

char *qkv_session_memory_json(const qkv_session *s, qkv_error *err)
{
    Err e = api_begin();
    if (!api_enter(s, &e)) return api_null(&e, err);
    const Plan *p = session_last_plan(s->session);
    Buf b = {0};
    bool ok = p || fail(&e, E_USAGE, "the session has not run yet: its memory is planned by the first run");
    if (ok) {
        const Step *peak = peak_step(p);
        jw_report(&b);
        jw_put(&b, "'arena_bytes': %llu", (unsigned long long)p->arena_bytes);
        put_steps(p, &b);
        if (peak) jw_int(&b, "peak", peak - p->step);
        else jw_text(&b, "peak", NULL);
        ok = put_held(p, session_graph(s->session), peak ? (int)(peak - p->step) : -1, &b, &e);
        jw_close(&b, "}");
    }
    if (ok && b.failed) ok = oom(&e);
    if (api_done(s, ok, &e, err) == QKV_OK) return b.data;
    buf_free(&b);
    return NULL;
}
