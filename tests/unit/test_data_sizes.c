/* Sizes that are read from data: found by as few plans as can be, and from the numbers that the run then draws. TAP. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/mem.h"
#include "ir/graph.h"
#include "run/session.h"
#include "tap.h"

static float ones[64];

static Session *session_of(const char *text, Graph **g, Err *err)
{
    *g = graph_parse(text, NULL, NULL, err);
    Session *s = *g ? session_create(*g, NULL, 1, 0, err) : NULL;
    Tensor x = tensor_of(DT_F32, 1, (int64_t[]){50}, ones);
    if (s && session_set_input(s, 0, &x, err)) return s;
    session_free(s);
    return NULL;
}

static int64_t above(const Tensor *t)
{
    int64_t n = 0;
    for (int64_t i = 0; i < tensor_numel(t); i++) n += tensor_get(t, i) > 0.5;
    return n;
}

/* The second and third draw begin where the one before ended, and the second has as many numbers as the first gave. */
static void random_sizes(void)
{
    static const char text[] = "symbol u0 = size %i 0 in [0, 50]\nsymbol u1 = size %j 0 in [0, 50]\n"
                               "symbol u2 = size %k 0 in [0, 50]\ninput %x: f32[50]\n"
                               "%a: f32[50] = aten.rand.default([50], dtype=f32)\n"
                               "%ga: bool[50] = aten.gt.Tensor(%a, 0.5)\n%i: i64[u0, 1] = aten.nonzero.default(%ga)\n"
                               "%b: f32[u0] = aten.rand.default([(u0)], dtype=f32)\n"
                               "%gb: bool[u0] = aten.gt.Tensor(%b, 0.5)\n%j: i64[u1, 1] = aten.nonzero.default(%gb)\n"
                               "%c: f32[50] = aten.rand.default([50], dtype=f32)\n"
                               "%gc: bool[50] = aten.gt.Tensor(%c, 0.5)\n%k: i64[u2, 1] = aten.nonzero.default(%gc)\n"
                               "output i = %i\noutput j = %j\noutput k = %k\n"
                               "output a = %a\noutput b = %b\noutput c = %c\n";
    Err err = {0};
    Graph *g;
    Session *s = session_of(text, &g, &err);
    bool ok = s != NULL;
    for (uint64_t seed = 0; ok && seed < 20; seed++) {
        session_seed(s, seed);
        ok = session_run(s, &err);
        for (int k = 0; ok && k < 3; k++) ok = session_output(s, k)->shape[0] == above(session_output(s, 3 + k));
    }
    tap_ok(ok, "as many are found as random numbers are above a half %s", err.msg);
    session_free(s);
    graph_free(g);
}

static void many(int n)
{
    Buf b = {0};
    Err err = {0};
    Graph *g;
    SessionStats stats = {0};
    for (int i = 0; i < n; i++) buf_printf(&b, "symbol u%d = item %%n%d in [0, 50]\n", i, i);
    buf_puts(&b, "input %x: f32[50]\n");
    for (int i = 0; i < n; i++)
        buf_printf(&b,
                   "%%m%d: f32[] = aten.select.int(%%x, 0, %d)\n"
                   "%%n%d: i64[] = aten._to_copy.default(%%m%d, dtype=i64)\n"
                   "%%s%d: f32[u%d] = aten.full.default([(u%d)], 1.0, dtype=f32)\n",
                   i, i % 50, i, i, i, i, i);
    for (int i = 0; i < n; i++) buf_printf(&b, "output s%d = %%s%d\n", i, i);
    Session *s = b.failed ? NULL : session_of(b.data, &g, &err);
    bool ok = s && session_run(s, &err) && session_run(s, &err);
    if (ok) session_stats(s, &stats);
    tap_ok(ok && stats.plans == 2, "%d sizes that do not need each other: %d plans of two runs %s", n, stats.plans,
           err.msg);
    session_free(s);
    graph_free(g);
    buf_free(&b);
}

/* Sizes each of which is read from numbers of the size before: how many of 20 more random ones than that are above a
 * half. So many are parts of one plan, whose numbers the whole graph then draws again. */
static void chain(int n)
{
    Buf b = {0};
    Err err = {0};
    Graph *g = NULL;
    SessionStats stats = {0};
    for (int i = 0; i < n; i++) buf_printf(&b, "symbol u%d = size %%i%d 0 in [0, 1000]\n", i, i);
    buf_puts(&b, "input %x: f32[50]\n");
    for (int i = 0; i < n; i++) {
        char size[32] = "(50)";
        if (i) snprintf(size, sizeof size, "(u%d + 20)", i - 1);
        buf_printf(&b,
                   "%%r%d: f32[%s] = aten.rand.default([%s], dtype=f32)\n"
                   "%%g%d: bool[%s] = aten.gt.Tensor(%%r%d, 0.5)\n%%i%d: i64[u%d, 1] = aten.nonzero.default(%%g%d)\n",
                   i, size, size, i, size, i, i, i, i);
    }
    for (int i = 0; i < n; i++) buf_printf(&b, "output i%d = %%i%d\noutput r%d = %%r%d\n", i, i, i, i);
    Session *s = b.failed ? NULL : session_of(b.data, &g, &err);
    bool ok = s != NULL;
    for (uint64_t seed = 0; ok && seed < 5; seed++) {
        session_seed(s, seed);
        ok = session_run(s, &err);
        for (int k = 0; ok && k < n; k++) {
            const Tensor *found = session_output(s, 2 * k), *drawn = session_output(s, 2 * k + 1);
            int64_t size = k ? session_output(s, 2 * k - 2)->shape[0] + 20 : 50;
            ok = found->shape[0] == above(drawn) && drawn->shape[0] == size;
        }
    }
    if (ok) session_stats(s, &stats);
    tap_ok(ok && stats.plans == (n > 32 ? 5 : 5 * n + 1), "a chain of %d random sizes: %d plans of five runs %s", n,
           stats.plans, err.msg);
    session_free(s);
    graph_free(g);
    buf_free(&b);
}

/* What a part of the plan reads for the last time is freed after it. */
static void memory_of_parts(void)
{
    enum { LENGTH = 60 };
    Buf b = {0};
    Err err = {0};
    for (int i = 0; i < LENGTH; i++) buf_printf(&b, "symbol u%d = item %%n%d in [0, 1000]\n", i, i);
    buf_puts(&b, "input %x: f32[50]\n");
    for (int i = 0; i < LENGTH; i++) {
        char size[32] = "1";
        if (i) snprintf(size, sizeof size, "u%d", i - 1);
        buf_printf(&b,
                   "%%m%d: f32[%s, 100000] = aten.rand.default([%s, 100000], dtype=f32)\n"
                   "%%v%d: f32[%s, 9] = aten.slice.Tensor(%%m%d, 1, 0, 9)\n"
                   "%%w%d: f32[9] = aten.select.int(%%v%d, 0, 0)\n"
                   "%%s%d: f32[] = aten.select.int(%%w%d, 0, 3)\n%%c%d: f32[] = aten.ceil.default(%%s%d)\n"
                   "%%n%d: i64[] = aten._to_copy.default(%%c%d, dtype=i64)\n",
                   i, size, size, i, size, i, i, i, i, i, i, i, i, i);
    }
    buf_printf(&b, "output n = %%n%d\n", LENGTH - 1);
    Graph *g = b.failed ? NULL : graph_parse(b.data, NULL, NULL, &err);
    Session *s = g ? session_create(g, NULL, 1, 600000, &err) : NULL;
    Tensor x = tensor_of(DT_F32, 1, (int64_t[]){50}, ones);
    bool ok = s && session_set_input(s, 0, &x, &err) && session_run(s, &err);
    tap_ok(ok && tensor_get_i64(session_output(s, 0), 0) == 1, "a chain of %d results of 400 KB runs in 600 KB %s",
           LENGTH, err.msg);
    session_free(s);
    graph_free(g);
    buf_free(&b);
}

typedef struct Calls {
    int steps, most;
} Calls;

static void count_calls(void *user, const StepInfo *step)
{
    Calls *c = user;
    c->steps++;
    if (step->calls > c->most) c->most = (int)step->calls;
}

/* Products one after the other, each of which is read by a size and by an activation; and views of an input. */
static char *products(int n)
{
    Buf b = {0};
    for (int i = 0; i < n; i++) buf_printf(&b, "symbol u%d = item %%n%d in [0, 50]\n", i, i);
    buf_puts(&b, "input %x: f32[50]\ninput %w: f32[4, 4]\n%v: f32[4] = aten.slice.Tensor(%x, 0, 3, 7)\n"
                 "%l: f32[4] = aten.reshape.default(%v, [4])\n%a0: f32[1, 4] = aten.reshape.default(%l, [1, 4])\n");
    for (int i = 0; i < n; i++)
        buf_printf(&b,
                   "%%p%d: f32[1, 4] = aten.linear.default(%%a%d, %%w)\n"
                   "%%g%d: f32[1, 4] = aten.gelu.default(%%p%d)\n%%m%d: f32[] = aten.amax.default(%%p%d)\n"
                   "%%n%d: i64[] = aten._to_copy.default(%%m%d, dtype=i64)\n"
                   "%%s%d: f32[u%d] = aten.full.default([(u%d)], 0.01, dtype=f32)\n"
                   "%%t%d: f32[] = aten.sum.dim_IntList(%%s%d, [0])\n%%a%d: f32[1, 4] = aten.add.Tensor(%%a%d, %%t%d)\n"
                   "output g%d = %%g%d\n",
                   i, i, i, i, i, i, i, i, i, i, i, i, i, i + 1, i, i, i, i);
    buf_printf(&b, "%%r: f32[1, 4] = aten.add.Tensor(%%g%d, %%v)\noutput r = %%r\noutput v = %%v\n", n - 1);
    return b.failed ? NULL : b.data;
}

static bool see_all(void *user, const Node *n, Tensor *const *out)
{
    (void)n;
    (void)out;
    return ++*(int *)user > 0;
}

/* What parts computed is not computed again, is the same as where all is, and is what the plan of the rest is given at
 * another run. */
static void given_parts(int n)
{
    Err err = {0};
    float w[16], x[50];
    for (int i = 0; i < 16; i++) w[i] = i % 5 ? 0.125f : 1;
    for (int i = 0; i < 50; i++) x[i] = (float)(i % 7) * 0.5f;
    char *text = products(n);
    Graph *g = text ? graph_parse(text, NULL, NULL, &err) : NULL;
    Fusion f = {0};
    bool ok = g && fuse_graph(g, &f, &err);
    Session *s[2] = {NULL, NULL};
    int seen = 0;
    Calls calls = {0};
    Tensor in[2] = {tensor_of(DT_F32, 1, (int64_t[]){50}, x), tensor_of(DT_F32, 2, (int64_t[]){4, 4}, w)};
    for (int k = 0; ok && k < 2; k++) {
        s[k] = session_create(g, &f, 1, 0, &err);
        ok = s[k] && session_set_input(s[k], 0, &in[0], &err) && session_set_input(s[k], 1, &in[1], &err);
    }
    if (ok) session_on_node(s[1], see_all, &seen);
    if (ok) session_profile(s[0], true);
    for (int run = 0; ok && run < 3; run++) {
        x[4] = run == 1 ? 5 : 2; /* the third as the first */
        ok = session_run(s[0], &err) && session_run(s[1], &err);
        for (int i = 0; ok && i < g->noutput; i++) {
            const Tensor *a = session_output(s[0], i), *b = session_output(s[1], i);
            for (int64_t k = 0; ok && k < tensor_numel(b); k++)
                ok = fabs(tensor_get(a, k) - tensor_get(b, k)) < 1e-5 * (1 + fabs(tensor_get(b, k)));
            if (!ok) fail(&err, E_MISMATCH, "run %d: output %d", run, i);
        }
    }
    if (ok) session_each_step(s[0], count_calls, &calls);
    tap_ok(ok && calls.most == 3 && seen > 3 * g->nnodes / 2,
           "a chain of %d products: %d steps, each of them once a run (%d) %s", n, calls.steps, calls.most, err.msg);
    session_free(s[0]);
    session_free(s[1]);
    fusion_free(&f);
    graph_free(g);
    mem_free(text);
}

/* What a later stage computes relies on what a size must be that an earlier one found: 4,096 numbers are not one. */
static void required(int stages)
{
    Buf b = {0};
    Err err = {0};
    Graph *g = NULL;
    for (int i = 0; i < stages; i++) buf_printf(&b, "symbol u%d = item %%n%d in [0, 4096]\n", i, i);
    buf_puts(&b, "input %x: f32[50]\n%s: f32[] = aten.select.int(%x, 0, 0)\n"
                 "%m: f32[] = aten.mul.Tensor(%s, 4096.0)\n%n0: i64[] = aten._to_copy.default(%m, dtype=i64)\n"
                 "%wide: f32[u0] = aten.expand.default(%s, [u0])\n"
                 "%one: f32[1] = aten.reshape.default(%wide, [1])\n"
                 "%n1: i64[1] = aten._to_copy.default(%one, dtype=i64)\n");
    for (int i = 2; i < stages; i++)
        buf_printf(&b,
                   "%%o%d: i64[u%d] = aten.full.default([u%d], 1, dtype=i64)\n"
                   "%%n%d: i64[] = aten.sum.dim_IntList(%%o%d, [0])\n",
                   i, i - 1, i - 1, i, i);
    buf_printf(&b, "%%y: f32[u%d] = aten.full.default([u%d], 1.0, dtype=f32)\n", stages - 1, stages - 1);
    buf_puts(&b, "require u0 == 1 \"reshape\"\noutput y = %y\n");
    Session *s = b.failed ? NULL : session_of(b.data, &g, &err);
    bool ran = s && session_run(s, &err);
    tap_ok(s && !ran && strstr(err.msg, "reshape: expected u0 == 1 (with u0 = 4096)"),
           "%d stages: a size that is not allowed is not computed with: %s", stages, err.msg);
    session_free(s);
    graph_free(g);
    buf_free(&b);
}

int main(void)
{
    for (int i = 0; i < 64; i++) ones[i] = 1;
    random_sizes();
    many(100);
    chain(20);
    chain(60);
    memory_of_parts();
    given_parts(40);
    required(2);
    required(40);
    return tap_done();
}
