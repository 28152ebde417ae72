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

int main(void)
{
    for (int i = 0; i < 64; i++) ones[i] = 1;
    random_sizes();
    many(100);
    return tap_done();
}
