/* Runs that another thread ends: how soon, that nothing of them is seen, and that the next one is whole. TAP. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/buf.h"
#include "base/splitmix.h"
#include "ir/graph.h"
#include "run/session.h"
#include "tap.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SIZE 160
#define SIDE 32
#define TURNS 20000
enum { DELAY_MS = 2, ROUNDS = 3 };
#else
#define SIZE 768
#define SIDE 64
#define TURNS 400000
enum { DELAY_MS = 3, ROUNDS = 5 };
#endif
#define TEXT(x) #x
#define DIGITS(x) TEXT(x)
#define SOON 0.5 /* seconds of this process, whatever others compute; a few milliseconds */

static float *values;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const Tensor *weight(void *user, const char *fqn)
{
    static Tensor matrix, kernel;
    (void)user;
    matrix = tensor_of(DT_F32, 2, (int64_t[]){SIZE, SIZE}, values);
    kernel = tensor_of(DT_F32, 4, (int64_t[]){64, 64, 3, 3}, values);
    return *fqn == 'k' ? &kernel : &matrix;
}

typedef struct Kind {
    const char *name, *graph;
    int rank;
    int64_t shape[4];
    bool slow; /* far slower than the delays */
} Kind;

static const Kind kinds[] = {
    {"a product", "input %x: f32[n, n]\n%y: f32[n, n] = aten.matmul.default(%x, %x)\n", 2, {SIZE, SIZE}, false},
    {"a layer",
     "input %x: f32[n, " DIGITS(SIZE) "]\nweight %w: f32[" DIGITS(SIZE) ", " DIGITS(SIZE) "] = parameter \"w\"\n"
     "%y: f32[n, " DIGITS(SIZE) "] = aten.matmul.default(%x, %w)\n",
     2,
     {2 * SIZE, SIZE},
     false},
    {"a convolution",
     "input %x: f32[n, 64, " DIGITS(SIDE) ", " DIGITS(SIDE) "]\nweight %k: f32[64, 64, 3, 3] = parameter \"k\"\n"
     "%y: f32[n, 64, " DIGITS(SIDE) ", " DIGITS(SIDE) "] = "
     "aten.convolution.default(%x, %k, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)\n",
     4,
     {4, 64, SIDE, SIDE},
     false},
    {"an attention",
     "input %x: f32[n, 8, l, 64]\n%y: f32[n, 8, l, 64] = "
     "aten.scaled_dot_product_attention.default(%x, %x, %x)\n",
     4,
     {1, 8, SIZE, 64},
     false},
    {"a loop that computes nothing",
     "input %x: f32[n]\n%y: f32[n] = qkv.loop.default(none, [%x], [], {\n"
     "  input %turn: i64[]\n  input %go: bool[]\n  input %a: f32[n]\n"
     "  output more = %go\n  output a = %a\n}, limit=" DIGITS(TURNS) ", sure=true)\n",
     1,
     {8},
     true},
    {"a chain of sizes of data", NULL, 2, {SIZE / 4, SIZE / 4}, false},
};

/* Products of matrices, each as large as the one before says: more than sessions plan by themselves. */
static void add_chain(Buf *text)
{
    enum { LENGTH = 40 };
    for (int i = 0; i < LENGTH; i++) buf_printf(text, "symbol u%d = item %%n%d in [0, 4096]\n", i, i);
    buf_puts(text, "input %m0: f32[n, n]\n%p0: f32[n, n] = aten.matmul.default(%m0, %m0)\n");
    for (int i = 0; i < LENGTH; i++) {
        char length[16] = "n";
        if (i) snprintf(length, sizeof length, "u%d", i - 1);
        buf_printf(text, "%%a%d: f32[%s] = aten.select.int(%%p%d, 0, 0)\n", i, length, i);
        buf_printf(text, "%%b%d: f32[] = aten.select.int(%%a%d, 0, 0)\n", i, i);
        buf_printf(text, "%%c%d: f32[] = aten.mul.Tensor(%%b%d, 0.0)\n", i, i);
        buf_printf(text, "%%d%d: i64[] = aten._to_copy.default(%%c%d, dtype=i64)\n", i, i);
        buf_printf(text, "%%n%d: i64[] = aten.add.Tensor(%%d%d, " DIGITS(SIZE) ")\n", i, i);
        buf_printf(text, "%%m%d: f32[u%d, 64] = aten.full.default([(u%d), 64], 0.5, dtype=f32)\n", i + 1, i, i);
        buf_printf(text, "%%t%d: f32[64, u%d] = aten.permute.default(%%m%d, [1, 0])\n", i + 1, i, i + 1);
        buf_printf(text, "%%p%d: f32[u%d, u%d] = aten.matmul.default(%%m%d, %%t%d)\n", i + 1, i, i, i + 1, i + 1);
    }
    buf_printf(text, "%%y: f32[u%d] = aten.select.int(%%p%d, 0, 0)\n", LENGTH - 1, LENGTH);
}

typedef struct Canceller {
    Session *s;
    double after, at;
} Canceller;

static void *cancel(void *user)
{
    Canceller *c = user;
    struct timespec t = {0, (long)(c->after * 1e9)};
    nanosleep(&t, NULL);
    c->at = seconds();
    session_cancel(c->s, true);
    return NULL;
}

/* Runs the graph, ends it at several moments, and runs it again. */
static void one(const Kind *k, const char *text, int threads)
{
    Err err = {0};
    Graph *g = graph_parse(text, weight, NULL, &err);
    Session *s = g ? session_create(g, NULL, threads, 0, &err) : NULL;
    Tensor x = tensor_of(DT_F32, k->rank, k->shape, values);
    if (!s || !session_set_input(s, 0, &x, &err)) {
        tap_ok(false, "%s: %s", k->name, err.msg);
        return;
    }
    size_t bytes = 0;
    void *want = NULL;
    double latest = 0;
    int ended = 0;
    bool right = true, same = true;
    for (int round = 0; right && round < ROUNDS; round++) {
        pthread_t other;
        Canceller c = {.s = s, .after = 1e-3 * DELAY_MS * round};
        session_cancel(s, false);
        right = pthread_create(&other, NULL, cancel, &c) == 0;
        err = (Err){0};
        bool whole = session_run(s, &err);
        double end = seconds();
        pthread_join(other, NULL);
        right = right && (whole || (err.code == E_LIMIT && strstr(err.msg, "cancelled") && !session_output(s, 0)));
        if (!whole && end - c.at > latest) latest = end - c.at;
        ended += !whole;
        session_cancel(s, false);
        right = right && session_run(s, &err);
        const Tensor *y = right ? session_output(s, 0) : NULL;
        if (y && !want) want = memcpy(malloc(bytes = tensor_bytes(y)), y->data, tensor_bytes(y));
        same = same && y && !memcmp(want, y->data, bytes);
    }
    bool fine = right && same && latest < SOON && (ended || !k->slow);
    tap_ok(fine, "%s, %d threads: %d of %d runs ended, %.1f ms after it was asked%s%s", k->name, threads, ended, ROUNDS,
           1e3 * latest, right ? "" : ": ", right ? "" : err.msg);
    free(want);
    session_free(s);
    graph_free(g);
}

int main(void)
{
    size_t n = (size_t)4 * 64 * SIDE * SIDE;
    uint64_t state = 1;
    values = malloc(n * sizeof *values);
    if (!values) return 2;
    for (size_t i = 0; i < n; i++) values[i] = (float)splitmix_normal(&state);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int threads = 1; threads <= 2; threads++) {
            Buf text = {0};
            buf_puts(&text, "symbol n in [1, 4096]\nsymbol l in [1, 4096]\n");
            if (kinds[i].graph) buf_puts(&text, kinds[i].graph);
            else add_chain(&text);
            buf_puts(&text, "output y = %y\n");
            if (text.failed) return 2;
            one(&kinds[i], text.data, threads);
            buf_free(&text);
        }
    free(values);
    return tap_done();
}
