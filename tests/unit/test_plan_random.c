/* Random graphs run with owners instead of numbers: whoever reads memory must find there what its operand's node
 * wrote, so two live buffers never overlap, nothing is written over its own operand, and results stay whole. */
#include "unit_graph.h"
#include "plan/fuse.h"
#include "plan/plan.h"

typedef struct Named {
    char name[16];
    int rank, d[4];
    bool constant; /* of weights alone */
} Named;

typedef struct Maker {
    Buf text;
    Named v[64];
    int n;
    uint64_t r;
} Maker;

static uint32_t dice(Maker *m, uint32_t n) { return unit_random(&m->r) % n; }

static void dims(Buf *b, int rank, const int *d)
{
    for (int i = 0; i < rank; i++) buf_printf(b, "%s%d", i ? ", " : "", d[i]);
}

static Named *declare(Maker *m, int rank, const int *d, bool constant)
{
    Named *v = &m->v[m->n];
    *v = (Named){.rank = rank, .constant = constant};
    snprintf(v->name, sizeof v->name, "v%d", m->n++);
    for (int i = 0; i < rank; i++) v->d[i] = d[i];
    buf_printf(&m->text, "%%%s: f32[", v->name);
    dims(&m->text, rank, d);
    buf_puts(&m->text, "] = ");
    return v;
}

static const Named *partner(Maker *m, const Named *x) /* of the same shape; x itself when there is no other */
{
    for (int tries = 0; tries < 20; tries++) {
        const Named *y = &m->v[dice(m, (uint32_t)m->n)];
        if (y->rank == x->rank && !memcmp(y->d, x->d, sizeof x->d)) return y;
    }
    return x;
}

/* One node on some earlier value x. */
static void add_node(Maker *m)
{
    const Named x = m->v[m->n - 1 - (int)dice(m, (uint32_t)(m->n < 6 ? m->n : 6))], y = *partner(m, &x);
    bool both = x.constant && y.constant;
    int d[4];
    memcpy(d, x.d, sizeof d);
    Buf *t = &m->text;
    switch (dice(m, 12)) {
    case 0:
    case 1:
        declare(m, x.rank, d, x.constant);
        buf_printf(t, "aten.%s.default(%%%s)\n", (const char *[]){"relu", "gelu", "silu", "exp"}[dice(m, 4)], x.name);
        return;
    case 2:
    case 3:
        declare(m, x.rank, d, both);
        buf_printf(t, "aten.add.Tensor(%%%s, %%%s)\n", x.name, y.name);
        return;
    case 4:
    case 5:
    case 6:
        if (x.rank != 2 || d[1] != 4) return;
        declare(m, 2, d, x.constant);
        buf_printf(t, "aten.linear.default(%%%s, %%w)\n", x.name);
        return;
    case 7:
        if (x.rank != 2) return;
        declare(m, 2, (int[]){d[1], d[0]}, x.constant);
        buf_printf(t, "aten.permute.default(%%%s, [1, 0])\n", x.name);
        return;
    case 8:
        if (x.rank != 2) return;
        declare(m, 3, (int[]){1, d[1], d[0]}, x.constant);
        buf_printf(t, "aten.reshape.default(%%%s, [1, %d, %d])\n", x.name, d[1], d[0]);
        return;
    case 9:
        if (x.rank != 3) return;
        declare(m, 2, d + 1, x.constant);
        buf_printf(t, "aten.select.int(%%%s, 0, %d)\n", x.name, d[0] - 1);
        return;
    case 10:
        if (x.rank == 0 || d[0] > 20) return;
        d[0] *= 2;
        declare(m, x.rank, d, both);
        buf_printf(t, "aten.cat.default([%%%s, %%%s])\n", x.name, y.name);
        return;
    default:
        if (x.rank == 0 || d[0] < 4) return;
        d[0] = d[0] / 2;
        declare(m, x.rank, d, x.constant);
        buf_printf(t, "aten.slice.Tensor(%%%s, 0, %d, %d)\n", x.name, d[0] / 2, d[0] / 2 + d[0]);
        return;
    }
}

static Graph *random_graph(uint64_t seed)
{
    Maker m = {.r = seed};
    buf_puts(&m.text,
             "input %v0: f32[4, 4]\ninput %v1: f32[8, 4]\n"
             "weight %v2: f32[4, 4] = parameter \"f32[4, 4]\"\nweight %w: f32[4, 4] = parameter \"f32[4, 4]\"\n");
    for (; m.n < 3; m.n++)
        m.v[m.n] = (Named){
            .name = {'v', (char)('0' + m.n)}, .rank = 2, .d = {m.n == 1 ? 8 : 4, 4}, .constant = m.n == 2};
    int want = 4 + (int)dice(&m, 40);
    for (int tries = 0; m.n < want && tries < 500; tries++) add_node(&m);
    for (int i = 0, k = 1 + (int)dice(&m, 3); i < k; i++)
        buf_printf(&m.text, "output o%d = %%v%d\n", i, m.n - 1 - (int)dice(&m, (uint32_t)m.n / 2));
    Graph *g = unit_graph(m.text.data);
    buf_free(&m.text);
    return g;
}

/* Who wrote each byte: a value's id; -1 nothing. */
typedef struct Region {
    unsigned char *start;
    size_t size;
    int *owner;
} Region;

typedef struct World {
    const Graph *g;
    const Plan *p;
    Region region[80]; /* arena, constants, inputs */
    int n;
    int *root; /* by value id: whose bytes these are; itself unless a view */
} World;

static Region *add_region(World *w, unsigned char *start, size_t size, int owner)
{
    Region *r = &w->region[w->n++];
    *r = (Region){start, size, malloc((size + 1) * sizeof(int))};
    for (size_t i = 0; i < size; i++) r->owner[i] = owner;
    return r;
}

/* Every byte of the tensor: writes the owner, or expects it. */
static void each_byte(World *w, const Tensor *t, int owner, bool write, const char *who)
{
    int64_t index[MAX_RANK] = {0}, numel = tensor_numel(t);
    for (int64_t k = 0; k < numel; k++) {
        const unsigned char *at = t->data;
        for (int i = 0; i < t->rank; i++) at += index[i] * t->stride[i] * (int64_t)dtype_size(t->dtype);
        Region *r = w->region;
        while (r < w->region + w->n && !(at >= r->start && at + dtype_size(t->dtype) <= r->start + r->size)) r++;
        if (r == w->region + w->n) STOP("%s: outside of all memory", who);
        for (size_t i = 0; i < dtype_size(t->dtype); i++) {
            int *o = &r->owner[at - r->start + (ptrdiff_t)i];
            if (write) *o = owner;
            else if (*o != owner) STOP("%s: expected the bytes of value %d, found those of %d", who, owner, *o);
        }
        for (int i = t->rank - 1; i >= 0 && ++index[i] == t->shape[i]; i--) index[i] = 0;
    }
}

static void read_operand(World *w, const Value *v, const Tensor *t, const char *who)
{
    if (!t) STOP("%s: operand '%s' has no tensor", who, v->name);
    if (v->kind == V_WEIGHT || w->p->place[v->id].home == HOME_GIVEN) return;
    each_byte(w, t, w->root[v->id], false, who);
}

/* A step writes over all of the arena that it may take for scratch. */
static void take_scratch(World *w, const Step *s)
{
    Region *arena = w->region;
    size_t end = s->room < arena->size - s->top ? s->top + s->room : arena->size;
    for (size_t i = s->top; i < end; i++) arena->owner[i] = -3;
}

static void run_step(World *w, const Step *s)
{
    const Node *n = s->call.node;
    take_scratch(w, s);
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_VALUE) read_operand(w, a->v, s->call.arg[i].t, n->name);
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++)
            read_operand(w, a->vs[k], s->call.arg[i].ts[k], n->name);
    }
    const Value *result = s->node == n ? n->out[0] : s->node->out[0];
    if (s->call.epilogue.residual) {
        const Arg *a = s->node->arg;
        bool first = w->p->value[a[0].v->id] == s->call.epilogue.residual;
        read_operand(w, first ? a[0].v : a[1].v, s->call.epilogue.residual, n->name);
    }
    for (int k = 0; k < s->call.nout; k++) each_byte(w, s->call.out[k], k ? n->out[k]->id : result->id, true, n->name);
    for (int i = 0; i < n->op->schema->nparams; i++) { /* and the operands are still whole: no result lies on one */
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_VALUE) read_operand(w, a->v, s->call.arg[i].t, n->name);
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++)
            read_operand(w, a->vs[k], s->call.arg[i].ts[k], n->name);
    }
}

static size_t arena_with_scratch(const Plan *p)
{
    size_t n = p->arena_bytes;
    for (int i = 0; i < p->nsteps; i++)
        if (!p->step[i].constant && p->step[i].top + p->step[i].scratch > n) n = p->step[i].top + p->step[i].scratch;
    return n;
}

/* As the session does it: constants once, those not kept are freed; then the other steps, twice;
 * and twice again where the scratch of every step is known. */
static void run_plan(const Graph *g, Plan *p, const unsigned char *wanted, int *nviews, int *nsteps)
{
    World w = {.g = g, .p = p, .root = malloc((size_t)(g->next_id + 1) * sizeof(int))};
    void *input[2];
    for (int i = 0; i < g->next_id; i++) w.root[i] = i;
    for (int i = 0; i < p->nnodes; i++) { /* in order: a view of a view has its root by then */
        const Node *n = p->node[i].node;
        if (p->node[i].step >= 0) continue;
        ++*nviews;
        w.root[n->out[0]->id] = w.root[n->arg[0].v->id];
        Place a = p->place[n->arg[0].v->id], b = p->place[n->out[0]->id];
        assert_true(a.home == b.home && a.index == b.index);
    }
    *nsteps += p->nsteps;
    size_t before, room = p->arena_bytes + 4096;
    unsigned char *arena = aligned_alloc(64, room + 64 - room % 64);
    add_region(&w, arena, room, -1);
    for (int i = 0; i < g->ninput; i++) {
        size_t bytes = (i ? 8u : 4u) * 4 * 4;
        input[i] = malloc(bytes);
        add_region(&w, input[i], bytes, g->input[i]->id);
    }
    for (int i = 0; i < p->nconst; i++)
        add_region(&w, p->const_data[i] = malloc(p->const_size[i] + 1), p->const_size[i], -1);
    plan_place(p, arena, input);
    for (int i = 0; i < p->nsteps; i++)
        if (p->step[i].constant) run_step(&w, &p->step[i]);
    for (int i = 0; i < p->nconst; i++) /* freed: nothing may read them again */
        for (size_t k = 0; !p->const_kept[i] && k < p->const_size[i]; k++) w.region[1 + g->ninput + i].owner[k] = -2;
    for (int again = 0; again < 4; again++) {
        Err err = {0};
        uint64_t r = (uint64_t)p->nsteps * 31 + (uint64_t)again;
        for (int i = 0; again == 2 && i < p->nsteps; i++)
            p->step[i].scratch = unit_random(&r) % 3 ? unit_random(&r) % 1024 : 0;
        before = arena_with_scratch(p);
        OK(plan_settle(p, &err));
        assert_true(arena_with_scratch(p) <= before && before <= room);
        plan_place(p, arena, input);
        for (int i = 0; i < p->nsteps; i++)
            if (!p->step[i].constant) run_step(&w, &p->step[i]);
        for (int i = 0; i < g->next_id; i++) { /* results stay whole to the end */
            bool result = wanted && wanted[i];
            for (int k = 0; !wanted && k < g->noutput; k++) result |= g->output[k].value->id == i;
            if (!result || !p->value[i] || p->place[i].home == HOME_GIVEN) continue;
            each_byte(&w, p->value[i], w.root[i], false, "result");
        }
    }
    assert_true(p->bound_bytes <= p->arena_bytes);
    for (int i = 0; i < w.n; i++) free(w.region[i].owner);
    for (int i = 0; i < g->ninput; i++) free(input[i]);
    free(arena);
    free(w.root);
}

static void test_random(void **state)
{
    (void)state;
    int views = 0, steps = 0, fused_steps = 0, none = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        Err err = {0};
        Graph *g = random_graph(seed * 7919);
        Fusion f;
        Binding b;
        OK(fuse_graph(g, &f, &err));
        OK(binding_init(&b, g->ex, &err));
        unsigned char *wanted = calloc((size_t)g->next_id + 1, 1);
        uint64_t r = seed;
        for (int i = 0; i < g->next_id; i++) wanted[i] = unit_random(&r) % 4 == 0;
        for (int mode = 0; mode < 6;
             mode++) { /* as the file is; fused; some values only: each without and with constants given */
            UnitGiven s;
            make_given(g, mode >= 3, &s);
            PlanInput in = {.graph = g,
                            .fusion = mode % 3 == 1 ? &f : NULL,
                            .wanted = mode % 3 == 2 ? wanted : NULL,
                            .given = s.given,
                            .stable = s.stable};
            Plan *p = plan_build(&in, &b, &err);
            OK(p);
            run_plan(g, p, in.wanted, &views, mode % 3 == 1 ? &fused_steps : mode % 3 == 0 ? &steps : &none);
            plan_free(p);
            free_given(g, &s);
        }
        free(wanted);
        binding_free(&b);
        fusion_free(&f);
        graph_free(g);
    }
    if (views < 9000 || steps < 9000 || fused_steps >= steps * 97 / 100)
        STOP("%d views, %d steps, %d when fused: too few to mean much", views, steps, fused_steps);
}

/* A product of weights is a constant of the session; the sum with an activation then uses that constant,
 * and not what made it. */
static void test_folded_product(void **state)
{
    (void)state;
    static const char *const between[] = {"", "%g: f32[4, 4] = aten.gelu.default(%l)\n"};
    for (int k = 0; k < 2; k++) {
        Err err = {0};
        char text[512];
        int views = 0, steps = 0;
        Fusion f;
        Binding b;
        UnitGiven s;
        snprintf(text, sizeof text,
                 "input %%x: f32[4, 4]\nweight %%w: f32[4, 4] = parameter \"f32[4, 4]\"\n"
                 "%%r: f32[4, 4] = aten.relu.default(%%w)\n"
                 "%%l: f32[4, 4] = aten.linear.default(%%r, %%w)\n%s%%a: f32[4, 4] = aten.add.Tensor(%%%s, %%x)\n"
                 "output o = %%a\n",
                 between[k], k ? "g" : "l");
        Graph *g = unit_graph(text);
        OK(fuse_graph(g, &f, &err));
        OK(binding_init(&b, g->ex, &err));
        make_given(g, true, &s);
        PlanInput in = {.graph = g, .fusion = &f, .given = s.given, .stable = s.stable};
        Plan *p = plan_build(&in, &b, &err);
        OK(p);
        run_plan(g, p, NULL, &views, &steps);
        assert_int_equal(p->nsteps, 1);
        assert_int_equal(p->step[0].call.node->op->id, OP_add_Tensor);
        plan_free(p);
        free_given(g, &s);
        binding_free(&b);
        fusion_free(&f);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded_product),
        cmocka_unit_test(test_random),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
