/* Plans: offsets in one arena, fusion, views at no cost, constants, limits. Random graphs are in test_plan_random.c. */
#include <time.h>
#include "unit_graph.h"
#include "plan/fuse.h"
#include "plan/memory.h"
#include "plan/plan.h"

/* ------------------------------------------------------------------ memory */

static size_t rounded(size_t n) { return (n + 63) / 64 * 64; }

static void check_blocks(const Block *b, const size_t *size, int n, int nsteps, size_t total, size_t bound)
{
    size_t end = 0, most = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        if (!size[i]) continue;
        assert_int_equal(b[i].offset % 64, 0);
        if (b[i].offset + rounded(size[i]) > end) end = b[i].offset + rounded(size[i]);
        sum += rounded(size[i]);
        for (int k = 0; k < i; k++) {
            if (!size[k] || b[i].last < b[k].first || b[k].last < b[i].first) continue;
            if (b[i].offset < b[k].offset + size[k] && b[k].offset < b[i].offset + size[i])
                STOP("blocks %d and %d overlap", k, i);
        }
    }
    for (int s = 0; s < nsteps; s++) {
        size_t alive = 0;
        for (int i = 0; i < n; i++)
            if (b[i].first <= s && s <= b[i].last) alive += rounded(size[i]);
        if (alive > most) most = alive;
    }
    assert_int_equal(total, end);
    assert_int_equal(bound, most);
    assert_true(bound <= total && total <= sum);
}

static void test_memory(void **state)
{
    (void)state;
    enum { N = 60 };
    uint64_t r = 1;
    Err err = {0};
    double worst = 1;
    for (int round = 0; round < 2000; round++) {
        Block b[N], again[N];
        size_t size[N], total, bound, total2, bound2;
        int n = (int)(unit_random(&r) % N), nsteps = 1 + (int)(unit_random(&r) % 30);
        for (int i = 0; i < n; i++) {
            int first = (int)(unit_random(&r) % (uint32_t)nsteps),
                last = first + (int)(unit_random(&r) % (uint32_t)(nsteps - first));
            if (unit_random(&r) % 2 && last > first + 2) last = first + 2;
            size[i] = unit_random(&r) % 8 ? unit_random(&r) % (1u << unit_random(&r) % 20) : 0;
            b[i] = again[i] = (Block){.size = size[i], .first = first, .last = last, .offset = 77};
        }
        OK(memory_plan(b, n, nsteps, &total, &bound, &err));
        check_blocks(b, size, n, nsteps, total, bound);
        if (bound && (double)total / (double)bound > worst) worst = (double)total / (double)bound;
        OK(memory_plan(again, n, nsteps, &total2, &bound2, &err));
        for (int i = 0; i < n; i++) assert_true(!size[i] || again[i].offset == b[i].offset);
    }
    if (worst >= 1.25) STOP("%g times the bound", worst); /* of blocks without any order */
    Block chain[20];                                      /* each alive with its neighbour only: two slots are enough */
    size_t size[20], total, bound;
    for (int i = 0; i < 20; i++) chain[i] = (Block){.size = size[i] = 1000, .first = i, .last = i + 1};
    OK(memory_plan(chain, 20, 21, &total, &bound, &err));
    check_blocks(chain, size, 20, 21, total, bound);
    assert_int_equal(total, 2 * 1024);
    OK(memory_plan(NULL, 0, 0, &total, &bound, &err));
    assert_true(total == 0 && bound == 0);
}

/* Blocks of networks as they are: how near the bound is. Sizes in units of one activation (a batch of tokens). */
typedef struct Net {
    Block b[400];
    int n, step;
} Net;

static int born(Net *s, size_t size) /* written by the step that comes next */
{
    s->b[s->n] = (Block){.size = size, .first = s->step, .last = s->step};
    return s->n++;
}

static void used(Net *s, int block) { s->b[block].last = s->step; }

static double ratio(Net *s)
{
    Err err = {0};
    size_t total, bound;
    OK(memory_plan(s->b, s->n, s->step + 1, &total, &bound, &err));
    return (double)total / (double)bound;
}

/* Norm, three projections, attention with its scratch, projection and sum, norm, two products of an MLP. */
static void transformer(Net *s, int layers, size_t tokens)
{
    int x = born(s, tokens);
    s->step++;
    for (int i = 0; i < layers; i++) {
        int norm = born(s, tokens), q, k, v, a, y;
        used(s, x);
        s->step++;
        q = born(s, tokens), used(s, norm), s->step++;
        k = born(s, tokens), used(s, norm), s->step++;
        v = born(s, tokens), used(s, norm), s->step++;
        a = born(s, tokens), born(s, tokens / 3), used(s, q), used(s, k), used(s, v), s->step++;
        y = born(s, tokens), used(s, a), used(s, x), s->step++;
        norm = born(s, tokens), used(s, y), s->step++;
        a = born(s, 4 * tokens), used(s, norm), s->step++;
        x = born(s, tokens), used(s, a), used(s, y), s->step++;
    }
}

/* A pyramid whose levels are kept for the way back up. */
static void pyramid(Net *s, int levels, size_t size)
{
    int kept[16], x = born(s, size);
    s->step++;
    for (int i = 0; i < levels; i++, size /= 2) {
        int wide = born(s, 2 * size);
        used(s, x), s->step++;
        kept[i] = born(s, size), used(s, wide), s->step++;
        x = born(s, size / 2), used(s, kept[i]), s->step++;
    }
    while (levels-- > 0) {
        size *= 2;
        int up = born(s, size), both;
        used(s, x), s->step++;
        both = born(s, 2 * size), used(s, up), used(s, kept[levels]), s->step++;
        x = born(s, size), used(s, both), s->step++;
    }
}

static void test_memory_near_bound(void **state)
{
    (void)state;
    static const size_t tokens[] = {64, 6400, 151296, 1000003};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int depth = 1; depth < 14; depth++) {
            Net net = {0};
            transformer(&net, depth, tokens[i]);
            assert_true(ratio(&net) <= 1.1);
            net = (Net){0};
            pyramid(&net, depth, tokens[i] << depth);
            assert_true(ratio(&net) <= 1.1);
        }
}

/* Tens of thousands of blocks cost what those alive together cost, not the square of all;
 * they are placed as few are. */
static void test_memory_many(void **state)
{
    enum { MANY = 300000, SOME = 3000 };
    static Block chain[MANY + 1], b[SOME];
    static size_t size[SOME];
    Err err = {0};
    size_t total, bound;
    uint64_t r = 3;
    (void)state;
    for (int i = 0; i < MANY; i++) chain[i] = (Block){.size = 1000, .first = i, .last = i + 1};
    chain[MANY] = (Block){.size = 2000, .first = 0, .last = MANY};
    clock_t begin = clock();
    OK(memory_plan(chain, MANY + 1, MANY + 1, &total, &bound, &err));
    double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_true(total == 4 * 1024 && bound == total);
    if (took > 5) STOP("%d blocks take %g s", MANY, took);
    for (int i = 0; i < SOME; i++) { /* a few that live long among many that do not */
        int first = (int)(unit_random(&r) % SOME), long_one = unit_random(&r) % 16 == 0;
        int last = first + (int)(unit_random(&r) % (long_one ? SOME : 20));
        b[i] = (Block){.size = size[i] = unit_random(&r) % 5000, .first = first, .last = last < SOME ? last : SOME - 1};
    }
    OK(memory_plan(b, SOME, SOME, &total, &bound, &err));
    check_blocks(b, size, SOME, SOME, total, bound);
}

static int lower(const void *x, const void *y)
{
    const Block *const *a = x, *const *b = y;
    return (*a)->offset < (*b)->offset ? -1 : (*a)->offset > (*b)->offset;
}

/* At forty of n steps no two blocks overlap. */
static void check_some(const Block *b, int n, size_t total, size_t bound)
{
    const Block **alive = test_malloc((size_t)n * sizeof *alive);
    for (int s = 0; s < n; s += n / 40) {
        int count = 0;
        for (int i = 0; i < n; i++)
            if (b[i].first <= s && s <= b[i].last) alive[count++] = &b[i];
        qsort(alive, (size_t)count, sizeof *alive, lower);
        for (int i = 0; i < count; i++) {
            size_t end = alive[i]->offset + rounded(alive[i]->size);
            if (end > (i + 1 < count ? alive[i + 1]->offset : total)) STOP("step %d: blocks overlap", s);
        }
    }
    test_free(alive);
    assert_true(bound <= total);
}

/* Nearly all live until the end, or die in another order than they were born in: more than are looked at in pairs, so
 * that four times as many may take six times as long, and not sixteen. */
static void test_memory_crowd(void **state)
{
    enum { N = 16000 };
    static Block b[4 * N];
    Err err = {0};
    size_t total, bound;
    uint64_t r = 7;
    double took[4];
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        int n = kind == 3 ? 4 * N : N;
        for (int i = 0; i < n; i++) {
            int last = kind % 3 == 0 ? n - 1 : kind == 1 ? n - 1 - i / 4 : i + (int)(unit_random(&r) % (uint64_t)n);
            b[i] = (Block){.size = 1 + unit_random(&r) % 5000, .first = i, .last = last < n ? last : n - 1};
            if (b[i].last < i) b[i].last = i;
        }
        clock_t begin = clock();
        OK(memory_plan(b, n, n, &total, &bound, &err));
        took[kind] = (double)(clock() - begin) / CLOCKS_PER_SEC;
        check_some(b, n, total, bound);
        double ratio = (double)total / (double)bound;
        if (ratio > 1.1) STOP("kind %d: %g times the bound", kind, ratio);
    }
    if (took[3] > 6 * took[0]) STOP("%d blocks take %g s, a quarter of them %g", 4 * N, took[3], took[0]);
}

static void test_memory_refused(void **state)
{
    (void)state;
    Err err = {0};
    for (int n = 1; n < 9; n++) { /* together beyond the address space, wherever the sum wraps */
        Block b[9];
        size_t total, bound;
        for (int i = 0; i < n; i++) b[i] = (Block){.size = SIZE_MAX / 4 + 1, .first = 0, .last = 3};
        bool fits = n < 4;
        if (fits) OK(memory_plan(b, n, 4, &total, &bound, &err));
        else REFUSED(memory_plan(b, n, 4, &total, &bound, &err), E_LIMIT);
        for (int i = 0; i < n; i++)
            b[i] = (Block){.size = SIZE_MAX / 4 + 1, .first = i, .last = 8}; /* born one after the other */
        if (fits) OK(memory_plan(b, n, 9, &total, &bound, &err));
        else REFUSED(memory_plan(b, n, 9, &total, &bound, &err), E_LIMIT);
    }
    Block b = {.size = SIZE_MAX - 3, .first = 0, .last = 0};
    size_t total, bound;
    REFUSED(memory_plan(&b, 1, 1, &total, &bound, &err), E_LIMIT);
}

/* ------------------------------------------------------------------ fusion */

/* "l: gelu + x -> a": the producer, its activation, its residual, an activation after that,
 * and what its step writes. */
static void expect_fused(const char *nodes, const char *want)
{
    static const char *const acts[] = {"", " relu", " gelu", " gelu_tanh", " silu", " quick_gelu"};
    Err err = {0};
    Fusion f;
    Buf text = {0}, have = {0};
    buf_puts(&text, "input %x: f32[2, 4]\n"
                    "input %y: f32[2, 4]\n"
                    "input %q: f32[5, 2, 4]\n"
                    "input %one: f32[1, 4]\n"
                    "input %im: f32[1, 4, 3, 3]\n"
                    "input %im8: i8[1, 4, 3, 3]\n"
                    "weight %s1: f32[] = buffer \"f32[]\"\n"
                    "weight %k8: i8[4, 4] = buffer \"i8[4, 4]\"\n"
                    "weight %w: f32[4, 4] = parameter \"f32[4, 4]\"\n"
                    "weight %k: f32[4, 4, 1, 1] = parameter \"f32[4, 4, 1, 1]\"\n"
                    "weight %b: f32[5, 4, 4] = parameter \"f32[5, 4, 4]\"\n");
    buf_puts(&text, nodes);
    Graph *g = unit_graph(text.data);
    OK(fuse_graph(g, &f, &err));
    int absorbed = 0;
    for (const Node *n = g->first; n; n = n->next) {
        const FusedNode *p = &f.node[n->out[0]->id];
        absorbed += p->absorbed;
        if (p->rounds_weight) buf_printf(&have, "%s%s rounds", have.len ? "; " : "", n->name);
        if (p->transparent) buf_printf(&have, "%s%s is %s", have.len ? "; " : "", n->name, n->arg[0].v->name);
        if (!p->result) continue;
        buf_printf(&have, "%s%s:%s%s%s%s%s -> %s", have.len ? "; " : "", n->name, p->act_last ? "" : acts[p->act],
                   !p->residual ? ""
                   : p->times   ? " * "
                                : " + ",
                   p->residual ? p->residual->name : "", p->act_last ? "," : "", p->act_last ? acts[p->act] : "",
                   p->result->name);
        assert_ptr_equal(f.node[p->result->id].producer, n);
    }
    if (strcmp(have.len ? have.data : "", want))
        STOP("%s\n%s, expected %s", nodes, have.len ? have.data : "nothing", want);
    if (!*want) assert_int_equal(absorbed, 0);
    fusion_free(&f);
    graph_free(g);
    buf_free(&text);
    buf_free(&have);
}

#define LINEAR "%l: f32[2, 4] = aten.linear.default(%x, %w)\n"
#define CONV "%l: f32[1, 4, 3, 3] = aten.convolution.default(%im, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
#define CONV8                                                                                                          \
    "%l: f32[1, 4, 3, 3] = qkv.convolution_integer.default(%im8, %s1, none, %k8, %s1, none, [1, 1], [1, 1], "          \
    "[0, 0], [1, 1])\n%r: f32[1, 4, 3, 3] = qkv.dequantize_linear.default(%im8, %s1)\n"                                \
    "%a: f32[1, 4, 3, 3] = aten.add.Tensor(%l, %r)\n%g: f32[1, 4, 3, 3] = aten.relu.default(%a)\n"
#define ROUND8 "%z: i8[1, 4, 3, 3] = qkv.quantize_linear.default(%g, %s1, none, i8)\n"
#define GELU "%g: f32[2, 4] = aten.gelu.default(%l)\n"

static void test_fuse(void **state)
{
    (void)state;
    expect_fused(LINEAR "output o = %l\n", "");
    expect_fused(LINEAR GELU "output o = %g\n", "l: gelu -> g");
    expect_fused(LINEAR "%g: f32[2, 4] = aten.gelu.default(%l, approximate=\"tanh\")\noutput o = %g\n",
                 "l: gelu_tanh -> g");
    expect_fused(LINEAR "%g: f32[2, 4] = aten.relu.default(%l)\noutput o = %g\n", "l: relu -> g");
    expect_fused(LINEAR "%g: f32[2, 4] = aten.silu.default(%l)\noutput o = %g\n", "l: silu -> g");
    expect_fused(LINEAR "%g: f32[2, 4] = aten.tanh.default(%l)\noutput o = %g\n", "");
    expect_fused(LINEAR "%a: f32[2, 4] = aten.add.Tensor(%l, %y)\noutput o = %a\n", "l: + y -> a");
    expect_fused(LINEAR "%a: f32[2, 4] = aten.add.Tensor(%x, %l)\noutput o = %a\n", "l: + x -> a");
    expect_fused(LINEAR GELU "%a: f32[2, 4] = aten.add.Tensor(%y, %g)\noutput o = %a\n", "l: gelu + y -> a");
    expect_fused(LINEAR GELU "%h: f32[2, 4] = aten.relu.default(%g)\noutput o = %h\n", "l: gelu -> g");
    expect_fused(LINEAR
                 "%a: f32[2, 4] = aten.add.Tensor(%l, %y)\n%g: f32[2, 4] = aten.gelu.default(%a)\noutput o = %g\n",
                 "l: + y -> a");
    /* somebody else needs the value in between */
    expect_fused(LINEAR GELU "output o = %g\noutput p = %l\n", "");
    expect_fused(LINEAR GELU "%h: f32[2, 4] = aten.relu.default(%l)\noutput o = %g\noutput p = %h\n", "");
    expect_fused(LINEAR GELU "%a: f32[2, 4] = aten.add.Tensor(%g, %y)\noutput o = %g\noutput p = %a\n", "l: gelu -> g");
    expect_fused(LINEAR GELU "mutate %x = %l\noutput o = %g\n", "");
    expect_fused("symbol u0 = item %l in [0, 9]\n" LINEAR GELU "output o = %g\n", "");
    expect_fused(LINEAR "%a: f32[2, 4] = aten.add.Tensor(%l, %l)\noutput o = %a\n", "");
    /* not a residual */
    expect_fused(LINEAR "%a: f32[2, 4] = aten.add.Tensor(%l, %one)\noutput o = %a\n", "");
    expect_fused(LINEAR "%a: f32[2, 4] = aten.add.Tensor(%l, 2)\noutput o = %a\n", "");
    expect_fused(LINEAR "%a: f32[5, 2, 4] = aten.add.Tensor(%l, %q)\noutput o = %a\n", "");
    expect_fused(LINEAR "%a: f32[2, 4] = aten.mul.Tensor(%l, %y)\noutput o = %a\n", "l: * y -> a");
    expect_fused(LINEAR "%a: f32[2, 4] = aten.mul.Tensor(%l, %one)\noutput o = %a\n", "");
    expect_fused(LINEAR "%s: f32[2, 4] = aten.silu.default(%l)\n%m: f32[2, 4] = aten.linear.default(%x, %w)\n"
                        "%a: f32[2, 4] = aten.mul.Tensor(%s, %m)\noutput o = %a\n",
                 "l: silu * m -> a");
#define QUICK(factor)                                                                                                  \
    "%z: f32[2, 4] = aten.mul.Tensor(%l, " factor                                                                      \
    ")\n%s: f32[2, 4] = aten.sigmoid.default(%z)\n%a: f32[2, 4] = aten.mul.Tensor(%l, %s)\n"
    expect_fused(LINEAR QUICK("1.702") "output o = %a\n", "l: quick_gelu -> a");
    expect_fused(LINEAR QUICK("1.5") "output o = %a\n", "");
    expect_fused(LINEAR QUICK("1.702") "output o = %a\noutput p = %s\n", "");
    /* two products, one sum: taken once, by the later place in the graph */
    expect_fused(
        LINEAR "%m: f32[2, 4] = aten.linear.default(%y, %w)\n%a: f32[2, 4] = aten.add.Tensor(%l, %m)\noutput o = %a\n",
        "l: + m -> a");
    /* products and convolutions */
    /* casts within an epilogue, and of a result that is used by nothing else */
#define HALF                                                                                                           \
    "%h: bf16[2, 4] = aten._to_copy.default(%x, dtype=bf16)\n"                                                         \
    "%v: bf16[4, 4] = aten._to_copy.default(%w, dtype=bf16)\n%l: bf16[2, 4] = aten.linear.default(%h, %v)\n"
#define WIDE "%u: f32[2, 4] = aten._to_copy.default(%l, dtype=f32)\n"
    expect_fused(HALF WIDE "%a: f32[2, 4] = aten.add.Tensor(%u, %y)\noutput o = %a\n", "v rounds; l: + y -> a");
    expect_fused(HALF WIDE
                 "%g: f32[2, 4] = aten.gelu.default(%u)\n%c: bf16[2, 4] = aten._to_copy.default(%g, dtype=bf16)\n"
                 "output o = %c\n",
                 "v rounds; l: gelu -> c");
    expect_fused(HALF WIDE "%g: f32[2, 4] = aten.gelu.default(%u)\noutput o = %g\noutput p = %l\n", "v rounds; u is l");
    expect_fused(HALF WIDE "%g: f32[4, 4] = aten.cat.default([%u, %u])\noutput o = %l\noutput p = %u\n", "v rounds");
    expect_fused(HALF WIDE "%m: bf16[2, 4] = aten.linear.default(%l, %v)\noutput o = %m\noutput p = %u\n", "v rounds");
    expect_fused(HALF "%m: bf16[4, 4] = aten.linear.default(%v, %v)\noutput o = %m\noutput p = %l\n", "");
    expect_fused(
        "%n: f32[2, 4] = aten.layer_norm.default(%x, [4])\n%c: bf16[2, 4] = aten._to_copy.default(%n, dtype=bf16)\n"
        "output o = %c\n",
        "n: -> c");
    expect_fused(
        "%n: f32[2, 4] = aten.layer_norm.default(%x, [4])\n%c: bf16[2, 4] = aten._to_copy.default(%n, dtype=bf16)\n"
        "output o = %c\noutput p = %n\n",
        "");
    expect_fused(
        "%n: f32[2, 4] = aten.layer_norm.default(%x, [4])\n%c: f64[2, 4] = aten._to_copy.default(%n, dtype=f64)\n"
        "output o = %c\n",
        "");
    expect_fused("%l: f32[2, 4] = aten.matmul.default(%x, %w)\n" GELU
                 "%a: f32[2, 4] = aten.add.Tensor(%g, %y)\noutput o = %a\n",
                 "l: gelu + y -> a");
    expect_fused(
        "%l: f32[5, 2, 4] = aten.matmul.default(%q, %b)\n%g: f32[5, 2, 4] = aten.gelu.default(%l)\noutput o = %g\n",
        "");
    expect_fused(
        CONV
        "%g: f32[1, 4, 3, 3] = aten.relu.default(%l)\n%a: f32[1, 4, 3, 3] = aten.add.Tensor(%g, %im)\noutput o = %a\n",
        "l: relu -> g");
    expect_fused(
        CONV
        "%a: f32[1, 4, 3, 3] = aten.add.Tensor(%im, %l)\n%g: f32[1, 4, 3, 3] = aten.relu.default(%a)\noutput o = %g\n",
        "l: + im, relu -> g");
    /* integers take a residual as integers, where nothing else wants it as floats */
    expect_fused(CONV8 ROUND8 "output o = %z\n", "l: + im8, relu -> z");
    expect_fused(CONV8 ROUND8 "output o = %z\noutput p = %g\n", "l: + im8, relu -> g");
    expect_fused(CONV8 ROUND8 "output o = %z\noutput p = %r\n", "l: + r, relu -> z");
    expect_fused(CONV "%a: f32[1, 4, 3, 3] = aten.add.Tensor(%im, %l)\n%g: f32[1, 4, 3, 3] = aten.relu.default(%a)\n"
                      "output o = %g\noutput p = %a\n",
                 "l: + im -> a");
    expect_fused(
        "%l: f32[1, 4, 3, 3] = aten.convolution.default(%im, %k, none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)\n"
        "%a: f32[1, 4, 3, 3] = aten.add.Tensor(%im, %l)\noutput o = %a\n",
        "");
}

/* ------------------------------------------------------------------ plans */

/* Views take no step and no memory; sizes come from the binding; the limit holds. */
static void test_plan(void **state)
{
    (void)state;
    Err err = {0};
    Binding b;
    UnitGiven s;
    Graph *g = unit_graph("input %x: f32[s0, 3, 4]\n"
                          "%p: f32[4, s0, 3] = aten.permute.default(%x, [2, 0, 1])\n"
                          "%t: f32[s0, 3] = aten.select.int(%p, 0, 2)\n"
                          "%e: f32[5, s0, 3] = aten.expand.default(%t, [5, s0, 3])\n"
                          "%r: f32[12*s0] = aten.reshape.default(%x, [(12*s0)])\n"
                          "%v: f32[12*s0 - 2] = aten.slice.Tensor(%r, start=2, end=(12*s0))\n"
                          "output a = %e\noutput b = %v\n");
    make_given(g, true, &s);
    OK(binding_init(&b, g->ex, &err));
    PlanInput in = {.graph = g, .given = s.given, .stable = s.stable};
    REFUSED(plan_build(&in, &b, &err), E_USAGE); /* s0 is not known */
    binding_set(&b, 0, 7);
    Plan *p = plan_build(&in, &b, &err);
    OK(p);
    assert_true(p->nsteps == 0 && p->arena_bytes == 0 && p->nconst == 0 && p->nnodes == 5);
    const Tensor *e = p->value[g->output[0].value->id], *v = p->value[g->output[1].value->id];
    assert_true(e->rank == 3 && e->shape[1] == 7 && e->stride[0] == 0 && e->stride[1] == 12 && e->stride[2] == 4);
    float x[84];
    plan_place(p, NULL, (void *[]){x});
    assert_true(e->data == x + 2 && v->data == x + 2 && v->shape[0] == 82);
    plan_free(p);
    binding_set(&b, 0, -7);
    REFUSED(plan_build(&in, &b, &err), E_USAGE);
    free_given(g, &s);
    binding_free(&b);
    graph_free(g);

    g = unit_graph("input %x: f32[s0]\n%a: f32[s0] = aten.exp.default(%x)\n%b: f32[s0] = aten.exp.default(%a)\n"
                   "%c: f32[s0] = aten.exp.default(%b)\noutput o = %c\n");
    make_given(g, true, &s);
    OK(binding_init(&b, g->ex, &err));
    binding_set(&b, 0, 1000);
    in = (PlanInput){.graph = g, .given = s.given, .stable = s.stable};
    p = plan_build(&in, &b, &err);
    OK(p);
    assert_true(p->arena_bytes == 2 * 4032 && p->bound_bytes == p->arena_bytes); /* c lies where a was */
    plan_free(p);
    in.memory_limit = 2 * 4032;
    p = plan_build(&in, &b, &err);
    OK(p);
    plan_free(p);
    in.memory_limit--;
    REFUSED(plan_build(&in, &b, &err), E_LIMIT);
    binding_set(&b, 0, INT64_MAX / 2);
    in.memory_limit = 0;
    assert_null(plan_build(&in, &b, &err));
    free_given(g, &s);
    binding_free(&b);
    graph_free(g);
}

/* What depends on weights alone is a step that runs once, also through views;
 * its consumer knows that the bytes stay. */
static void test_constant(void **state)
{
    (void)state;
    Err err = {0};
    Binding b;
    UnitGiven s;
    Graph *g = unit_graph("input %x: f32[2, 4]\nweight %w: f32[4, 4] = parameter \"f32[4, 4]\"\n"
                          "%t: f32[4, 4] = aten.permute.default(%w, [1, 0])\n"
                          "%e: f32[4, 4] = aten.exp.default(%t)\n"
                          "%p: f32[4, 4] = aten.permute.default(%e, [1, 0])\n"
                          "%n: f32[4, 4] = aten.exp.default(%p)\n"
                          "%l: f32[2, 4] = aten.linear.default(%x, %n)\n"
                          "%m: f32[2, 4] = aten.linear.default(%l, %t)\noutput o = %m\n");
    make_given(g, false, &s);
    OK(binding_init(&b, g->ex, &err));
    Plan *p = plan_build(&(PlanInput){.graph = g, .given = s.given, .stable = s.stable}, &b, &err);
    OK(p);
    assert_true(p->nsteps == 4 && p->nconst == 2 && p->const_size[0] == 64 && !p->const_kept[0] && p->const_kept[1]);
    assert_true(p->step[0].constant && p->step[1].constant && !p->step[2].constant && !p->step[3].constant);
    assert_true(p->step[3].call.arg[1].constant && !p->step[3].call.arg[0].constant);
    assert_true(p->place[graph_find_value(g, "t")->id].home == HOME_GIVEN);
    assert_true(p->value[graph_find_value(g, "t")->id]->data == g->weight[0]->data->data);
    plan_free(p);
    free_given(g, &s);
    binding_free(&b);
    graph_free(g);
}

/* Attention writes heads side by side, so that the way to rows of the output projection is a view;
 * a result that leaves the graph is contiguous. */
static void test_attention_layout(void **state)
{
    (void)state;
    Err err = {0};
    for (int leaves = 0; leaves < 2; leaves++) {
        Binding b;
        UnitGiven s;
        Fusion f;
        Buf text = {0};
        buf_printf(&text,
                   "input %%x: f32[2, 3, 5, 4]\n"
                   "%%a: f32[2, 3, 5, 4] = aten.scaled_dot_product_attention.default(%%x, %%x, %%x)\n"
                   "%%p: f32[2, 5, 3, 4] = aten.permute.default(%%a, [0, 2, 1, 3])\n"
                   "%%r: f32[2, 5, 12] = aten.reshape.default(%%p, [2, 5, 12])\n"
                   "%%n: f32[2, 5, 12] = aten.neg.default(%%r)\noutput o = %%n\n%s",
                   leaves ? "output p = %a\n" : "");
        Graph *g = unit_graph(text.data);
        OK(fuse_graph(g, &f, &err));
        make_given(g, false, &s);
        OK(binding_init(&b, g->ex, &err));
        Plan *p = plan_build(&(PlanInput){.graph = g, .fusion = &f, .given = s.given, .stable = s.stable}, &b, &err);
        OK(p);
        const Tensor *a = p->value[graph_find_value(g, "a")->id];
        assert_int_equal(p->nsteps, leaves ? 3 : 2);
        assert_true(leaves ? tensor_contiguous(a)
                           : a->stride[0] == 60 && a->stride[1] == 4 && a->stride[2] == 12 && a->stride[3] == 1);
        plan_free(p);
        free_given(g, &s);
        binding_free(&b);
        fusion_free(&f);
        graph_free(g);
        buf_free(&text);
    }
}

/* %N = N, of the graph's values */
static const Tensor *named(const Plan *p, const Graph *g, const char *name)
{
    return p->value[graph_find_value(g, name)->id];
}

static bool lies_last(const Tensor *t) { return tensor_channels_last(t) && !tensor_contiguous(t); }

/* Convolutions write channels-last, what follows pixel by pixel keeps that, tokens are a view of it;
 * what leaves is contiguous. A residual that nothing needs any more gives its place to the sum. */
static void test_layout(void **state)
{
    (void)state;
    Err err = {0};
    Binding b;
    UnitGiven s;
    Fusion f;
    Graph *g = unit_graph(
        "input %x: f32[2, 4, 8, 8]\n"
        "weight %k: f32[4, 4, 1, 1] = parameter \"f32[4, 4, 1, 1]\"\n"
        "%c: f32[2, 4, 8, 8] = aten.convolution.default(%x, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
        "%m: f32[2, 4, 4, 4], %i: i64[2, 4, 4, 4] = aten.max_pool2d_with_indices.default(%c, [2, 2], [2, 2])\n"
        "%t: f32[2, 4, 4, 4] = aten.tanh.default(%m)\n"
        "%d: f32[2, 4, 4, 4] = aten.convolution.default(%t, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
        "%a: f32[2, 4, 4, 4] = aten.add.Tensor(%t, %d)\n"
        "%r: f32[2, 4, 4, 4] = aten.relu.default(%a)\n"
        "%e: f32[2, 4, 4, 4] = aten.convolution.default(%r, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
        "%h: f32[2, 4, 4, 4] = aten.convolution.default(%m, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
        "%u: f32[2, 4, 4, 4] = aten.add.Tensor(%h, %e)\n"
        "%v: f32[2, 4, 16] = aten.reshape.default(%u, [2, 4, 16])\n"
        "%w: f32[2, 16, 4] = aten.permute.default(%v, [0, 2, 1])\n"
        "%z: f32[2, 16, 4] = aten.exp.default(%w)\n"
        "%o: f32[2, 4, 4, 4] = aten.convolution.default(%r, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
        "output z = %z\noutput o = %o\n");
    make_given(g, true, &s);
    OK(binding_init(&b, g->ex, &err));
    OK(fuse_graph(g, &f, &err));
    PlanInput in = {.graph = g, .fusion = &f, .given = s.given, .stable = s.stable};
    Plan *p = plan_build(&in, &b, &err);
    OK(p);
    assert_true(lies_last(named(p, g, "c")) && lies_last(named(p, g, "m")) && lies_last(named(p, g, "t")) &&
                lies_last(named(p, g, "r")) && lies_last(named(p, g, "u")));
    assert_true(tensor_contiguous(named(p, g, "w")) && tensor_contiguous(named(p, g, "o")));
    assert_int_equal(p->place[graph_find_value(g, "i")->id].home, HOME_NONE);
    Place t = p->place[graph_find_value(g, "t")->id], r = p->place[graph_find_value(g, "r")->id],
          h = p->place[graph_find_value(g, "h")->id], u = p->place[graph_find_value(g, "u")->id];
    assert_true(t.index != r.index); /* the convolution reads t */
    assert_true(u.index == h.index && u.home == HOME_ARENA);
    plan_free(p);
    in.fusion = NULL; /* node by node: nothing is laid out again */
    p = plan_build(&in, &b, &err);
    OK(p);
    assert_true(tensor_contiguous(named(p, g, "c")) && p->place[graph_find_value(g, "i")->id].home == HOME_ARENA);
    plan_free(p);
    fusion_free(&f);
    free_given(g, &s);
    binding_free(&b);
    graph_free(g);
}

/* Windows that only a product reads are not copied, unless they leave the graph or nothing is fused. */
static void test_windows(void **state)
{
    (void)state;
    Err err = {0};
    for (int way = 0; way < 3; way++) {
        Binding b;
        UnitGiven s;
        Fusion f;
        Buf text = {0};
        buf_printf(&text,
                   "input %%x: f32[2, 4, 5, 6]\ninput %%g: f32[1, 3, 60]\n"
                   "%%p: f32[2, 4, 7, 8] = aten.constant_pad_nd.default(%%x, [1, 1, 1, 1], 0.)\n"
                   "%%u: f32[2, 4, 5, 8, 3] = aten.unfold.default(%%p, 2, 3, 1)\n"
                   "%%v: f32[2, 4, 5, 6, 3, 3] = aten.unfold.default(%%u, 3, 3, 1)\n"
                   "%%q: f32[2, 1, 4, 5, 6, 3, 3] = aten.reshape.default(%%v, [2, 1, 4, 5, 6, 3, 3])\n"
                   "%%t: f32[1, 2, 5, 6, 3, 3, 4] = aten.permute.default(%%q, [1, 0, 3, 4, 5, 6, 2])\n"
                   "%%w: f32[1, 60, 36] = aten.reshape.default(%%t, [1, 60, 36])\n"
                   "%%m: f32[1, 3, 36] = aten.matmul.default(%%g, %%w)\n"
                   "%%e: f32[1, 3, 36] = aten.neg.default(%%m)\noutput e = %%e\n%s",
                   way == 1 ? "output w = %w\n" : "");
        Graph *g = unit_graph(text.data);
        OK(fuse_graph(g, &f, &err));
        make_given(g, false, &s);
        OK(binding_init(&b, g->ex, &err));
        PlanInput in = {.graph = g, .fusion = way == 2 ? NULL : &f, .given = s.given, .stable = s.stable};
        Plan *p = plan_build(&in, &b, &err);
        OK(p);
        assert_int_equal(p->nsteps, way ? 4 : 3);
        const Call *product = &p->step[p->nsteps - 2].call;
        assert_ptr_equal(product->windows, way ? NULL : named(p, g, "t"));
        if (!way) assert_int_equal(product->along, 3);
        plan_free(p);
        free_given(g, &s);
        binding_free(&b);
        fusion_free(&f);
        graph_free(g);
        buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_near_bound),
        cmocka_unit_test(test_memory_many),
        cmocka_unit_test(test_memory_crowd),
        cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_attention_layout),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
