/* Sizes that are read from data: found by as few plans as can be, and from the numbers that the run then draws. TAP. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
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

int main(void)
{
    for (int i = 0; i < 64; i++) ones[i] = 1;
    random_sizes();
    many(100);
    chain(20);
    chain(60);
    memory_of_parts();
    return tap_done();
}
