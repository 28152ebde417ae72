/* What claims about one graph share. Contract in prove_room.h. */
#include "rewrite/prove_room.h"
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "rewrite/prove.h"

/* ------------------------------------------------------------------ marks */

enum { MARK_BITS = 8 };

unsigned marked(const Marks *m, const Value *v)
{
    uint32_t x = m->at[v->id];
    return x >> MARK_BITS == m->turn ? x & ((1u << MARK_BITS) - 1) : 0;
}

void mark(Marks *m, const Value *v, unsigned what) { m->at[v->id] = m->turn << MARK_BITS | what; }

void forget(Marks *m, size_t n)
{
    if (++m->turn < 1u << (32 - MARK_BITS)) return;
    memset(m->at, 0, n * sizeof *m->at);
    m->turn = 1;
}

/* ------------------------------------------------------------------ the room */

/* The list with room for n elements; those from `had` on are zeroed. */
static bool more(void *list, size_t had, size_t n, size_t size)
{
    char *old, *grown;
    memcpy(&old, list, sizeof old);
    if (!(grown = mem_grow(old, n * size))) return false;
    memset(grown + had * size, 0, (n - had) * size);
    memcpy(list, &grown, sizeof grown);
    return true;
}

static void release(ClaimRoom *room)
{
    Room *r = (Room *)room;
    mem_free(r->before.at);
    mem_free(r->left_out.at);
    mem_free(r->seen.at);
    mem_free(r->drawn.at);
    for (int i = 0; i < 2 * MAX_BINDINGS; i++) binding_free(&r->sizes[i]);
    mem_free(r->map);
    mem_free(r->heap);
    mem_free(r->left);
    mem_free(r->place);
    mem_free(r->varies);
    mem_free(r);
}

static bool grow(Room *r, size_t n)
{
    Marks *const all[] = {&r->before, &r->left_out, &r->seen, &r->drawn};
    for (int i = 0; i < 4; i++)
        if (!more(&all[i]->at, r->n, n, sizeof *all[i]->at)) return false;
    if (!more(&r->map, r->n, n, sizeof *r->map) || !more(&r->place, r->n, n, sizeof *r->place) ||
        !more(&r->varies, r->n, n, sizeof *r->varies))
        return false;
    r->n = n;
    return true;
}

static void operand_varies(void *user, Value **slot)
{
    const Room *r = ((void **)user)[0];
    bool *any = ((void **)user)[1];
    *any |= r->varies[(*slot)->id];
}

/* Places of nodes, and which values depend on an input. */
static void walk(Room *r, const Graph *g)
{
    double k = 0;
    for (int i = 0; i < g->ninput; i++) r->varies[g->input[i]->id] = true;
    for (Node *n = g->first; n; n = n->next) {
        bool any = false;
        node_each_operand(n, operand_varies, (void *[]){r, &any});
        for (int i = 0; i < n->nout; i++) r->varies[n->out[i]->id] = any;
        if (n->nout) r->place[n->out[0]->id] = ++k;
    }
}

static double place_of(const Room *r, const Claim *c, const Node *n)
{
    return c->place ? c->place(c->user, n->out[0]) : r->place[n->out[0]->id];
}

static bool begin(Room *r, const Claim *c);

Room *room_of(const Claim *c, Err *err)
{
    Room *r = c->room ? (Room *)*c->room : NULL;
    if (!r && !(r = mem_zeroed(1, sizeof *r))) return oom(err), NULL;
    r->head.release = release;
    if (c->room) *c->room = &r->head;
    if (begin(r, c)) return r;
    room_end(c, r);
    return oom(err), NULL;
}

void room_end(const Claim *c, Room *r)
{
    if (r && !c->room) release(&r->head);
}

const Binding *room_sizes(Room *r, const Graph *g, int k, Err *err)
{
    Binding *b = &r->sizes[k];
    if (r->nsymbols != expr_symbol_count(g->ex) || r->nrequire != g->nrequire) memset(r->fit, 0, sizeof r->fit);
    r->nsymbols = expr_symbol_count(g->ex);
    r->nrequire = g->nrequire;
    if (r->fit[k] == SIZES_UNKNOWN) {
        binding_free(b);
        if (!binding_init(b, g->ex, err)) return NULL;
        r->fit[k] = prove_sizes(g, k, NULL, NULL, 0, b) ? SIZES_FIT : SIZES_NONE;
    }
    return r->fit[k] == SIZES_FIT && binding_extend(b, g->ex, err) ? b : NULL;
}

/* ------------------------------------------------------------------ ancestors, the last of the graph first */

static bool push(Room *r, const Claim *c, Node *n)
{
    Ancestor *grown = vec_grow(r->heap, r->nheap, sizeof *grown), x = {place_of(r, c, n), n};
    if (!grown) return false;
    r->heap = grown;
    int i = r->nheap++;
    for (; i && r->heap[(i - 1) / 2].place < x.place; i = (i - 1) / 2) r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = x;
    return true;
}

static Node *pop(Room *r)
{
    Node *n = r->heap[0].node;
    Ancestor x = r->heap[--r->nheap];
    int i = 0;
    for (int k = 1; k < r->nheap; k = 2 * i + 1) {
        if (k + 1 < r->nheap && r->heap[k + 1].place > r->heap[k].place) k++;
        if (r->heap[k].place <= x.place) break;
        r->heap[i] = r->heap[k];
        i = k;
    }
    r->heap[i] = x;
    return n;
}

typedef struct Climb {
    Room *r;
    const Claim *c;
    bool ok;
} Climb;

static void mark_operand(void *user, Value **slot)
{
    Climb *up = user;
    Room *r = up->r;
    const Value *v = *slot;
    bool met = false;
    for (int k = 0; v->def && k < v->def->nout; k++) met |= marked(&r->before, v->def->out[k]) != 0;
    if (v->def && !met && !push(r, up->c, v->def)) up->ok = false;
    mark(&r->before, v, 1);
}

bool room_common(Room *r, const Claim *c, const Value *v, bool *ok)
{
    if (marked(&r->left_out, v) || !(c->varies ? c->varies(c->user, v) : r->varies[v->id])) return false;
    double place = place_of(r, c, v->def);
    Climb up = {r, c, true};
    while (!marked(&r->before, v) && r->nheap && r->heap[0].place > place)
        node_each_operand(pop(r), mark_operand, &up);
    if (!up.ok) *ok = false;
    return marked(&r->before, v) != 0;
}

bool room_leave_out(Room *r, const Value *v)
{
    const Value **grown = vec_grow(r->left, r->nleft, sizeof *grown);
    if (!grown) return false;
    r->left = grown;
    r->left[r->nleft++] = v;
    mark(&r->left_out, v, 1);
    return true;
}

void room_take_back(Room *r, int n)
{
    while (r->nleft > n) mark(&r->left_out, r->left[--r->nleft], 0);
}

static bool begin(Room *r, const Claim *c)
{
    size_t need = (size_t)c->g->next_id + 1;
    if (need > r->n && !grow(r, need + need / 2)) return false;
    Marks *const all[] = {&r->before, &r->left_out, &r->seen, &r->drawn};
    for (int i = 0; i < 4; i++) forget(all[i], r->n);
    r->nheap = r->nleft = 0;
    if (!c->place) walk(r, c->g);
    for (int i = 0; i < c->n; i++) {
        bool once = c->from[i]->def != NULL;
        for (int k = 0; k < i; k++) once = once && c->from[k]->def != c->from[i]->def;
        if ((once && !push(r, c, c->from[i]->def)) || !room_leave_out(r, c->from[i])) return false;
    }
    return true;
}
