/* The same bits in any company, for each small model (tests/models/small): with 1, 2 and 3 threads; on threads of the
 * caller's; with other sessions beside it in other threads; and, for float32 models with a batch, a row alone and in
 * its batch. One session in two threads at once is an error. TAP.
 *
 *     run_company tests/models/small
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "folder.h"
#include "tap.h"

enum { MAX_VARIANTS = 8, MAX_INPUTS = 16, MAX_OUTPUTS = 32, SESSIONS = 16, TURNS = 6 };

typedef struct Copy {
    void *data;
    size_t bytes;
    qkv_dtype dtype;
    int rank;
    int64_t shape[QKV_MAX_RANK];
} Copy;

static void copy_output(qkv_session *s, int i, Copy *c)
{
    qkv_tensor t;
    int64_t index[QKV_MAX_RANK] = {0}, n = 1, plain[QKV_MAX_RANK];
    *c = (Copy){0};
    if (qkv_session_output(s, i, &t, NULL) != QKV_OK) return;
    c->dtype = t.dtype;
    c->rank = t.rank;
    for (int d = t.rank - 1; d >= 0; d--) {
        c->shape[d] = t.shape[d];
        plain[d] = n;
        n *= t.shape[d];
    }
    size_t size = qkv_dtype_size(t.dtype);
    c->bytes = (size_t)n * size;
    c->data = malloc(c->bytes + 1);
    for (int64_t k = 0; c->data && k < n; k++) {
        int64_t at = 0;
        for (int d = 0; d < t.rank; d++) at += index[d] * (t.strides ? t.strides[d] : plain[d]);
        memcpy((char *)c->data + (size_t)k * size, (const char *)t.data + at * (int64_t)size, size);
        for (int d = t.rank - 1; d >= 0 && ++index[d] == t.shape[d]; d--) index[d] = 0;
    }
}

static bool same(const Copy *a, const Copy *b)
{
    return a->data && b->data && a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->shape, b->shape, sizeof a->shape) && !memcmp(a->data, b->data, a->bytes);
}

/* All outputs of one run; a fresh session's buffers. */
static bool run(qkv_session *s, const qkv_model *m, const qkv_tensor *const *in, Copy *out)
{
    qkv_error e;
    qkv_session_reset(s);
    for (int i = 0; i < qkv_model_input_count(m); i++)
        if (!in[i] || qkv_session_set_input(s, qkv_model_input_name(m, i), in[i], &e) != QKV_OK) return false;
    if (qkv_session_run(s, &e) != QKV_OK) return false;
    for (int i = 0; i < qkv_model_output_count(m); i++) copy_output(s, i, &out[i]);
    return true;
}

static void forget(Copy *c, int n)
{
    for (int i = 0; i < n; i++) free(c[i].data);
}

typedef struct Case {
    const char *name;
    const qkv_model *m;
    int variants;
    const qkv_tensor *in[MAX_VARIANTS][MAX_INPUTS];
    Copy want[MAX_VARIANTS][MAX_OUTPUTS];
    int bad; /* of a thread */
} Case;

static qkv_session *session(const qkv_model *m, int threads)
{
    qkv_session_options so = {.struct_size = sizeof so, .threads = threads};
    return qkv_session_create(m, &so, NULL);
}

static int differ(const Case *c, qkv_session *s, int variant)
{
    Copy got[MAX_OUTPUTS] = {0};
    int n = qkv_model_output_count(c->m), bad = !s || !run(s, c->m, c->in[variant], got);
    for (int i = 0; !bad && i < n; i++) bad = !same(&got[i], &c->want[variant][i]);
    forget(got, n);
    return bad;
}

static void any_threads(const Case *c)
{
    for (int threads = 1; threads <= 3; threads++) {
        qkv_session *s = session(c->m, threads);
        int bad = 0;
        for (int k = 0; k < 2 * c->variants; k++) bad += differ(c, s, k % c->variants);
        tap_ok(!bad, "%s: the same bits with %d threads", c->name, threads);
        qkv_session_free(s);
    }
}

/* An executor with threads of its own for each call: one has the odd tasks, from the last to the first; the caller's
 * thread has the others. */
typedef struct Batch {
    void (*task)(void *data, int i);
    void *data;
    int n;
} Batch;

static void *odd_tasks(void *batch)
{
    const Batch *b = batch;
    for (int i = b->n - 1; i >= 0; i--)
        if (i % 2) b->task(b->data, i);
    return NULL;
}

static void execute(void *calls, int n, void (*task)(void *data, int i), void *data)
{
    Batch b = {task, data, n};
    pthread_t t;
    bool other = pthread_create(&t, NULL, odd_tasks, &b) == 0;
    if (!other) odd_tasks(&b);
    for (int i = 0; i < n; i += 2) task(data, i);
    if (other) pthread_join(t, NULL);
    ++*(int *)calls;
}

static int any_executor(const Case *c)
{
    int calls = 0, bad = 0;
    qkv_executor x = {sizeof x, execute, &calls};
    qkv_session_options so = {.struct_size = sizeof so, .threads = 3, .executor = &x};
    qkv_session *s = qkv_session_create(c->m, &so, NULL);
    x = (qkv_executor){0}; /* the session has a copy */
    for (int k = 0; k < 2 * c->variants; k++) bad += differ(c, s, k % c->variants);
    tap_ok(!bad, "%s: the same bits on threads of the caller's", c->name);
    qkv_session_free(s);
    return calls;
}

static void refused_executors(const qkv_model *m)
{
    qkv_executor none = {.struct_size = sizeof none}, old = {.struct_size = 1, .run = execute};
    qkv_session_options so = {.struct_size = sizeof so, .executor = &none};
    qkv_error e = {0};
    bool refused = !qkv_session_create(m, &so, &e) && e.code == QKV_USAGE && strstr(e.message, "run is NULL");
    so.executor = &old;
    refused = refused && !qkv_session_create(m, &so, &e) && e.code == QKV_USAGE && strstr(e.message, "struct_size");
    tap_ok(refused, "an executor without a function or without its size is refused");
}

static void *in_a_thread(void *user)
{
    Case *c = user;
    qkv_session *s = session(c->m, 1);
    for (int k = 0; k < TURNS; k++) c->bad += differ(c, s, k % c->variants);
    qkv_session_free(s);
    return NULL;
}

static void side_by_side(const Case *c)
{
    pthread_t thread[SESSIONS];
    Case mine[SESSIONS];
    int bad = 0, n = 0;
    for (; n < SESSIONS; n++) {
        mine[n] = *c;
        if (pthread_create(&thread[n], NULL, in_a_thread, &mine[n])) break;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        bad += mine[i].bad;
    }
    tap_ok(n == SESSIONS && !bad, "%s: the same bits in %d sessions side by side", c->name, SESSIONS);
}

/* A second thread that comes while the first is in a run. */
typedef struct Meeting {
    const Case *c;
    qkv_session *s;
    bool silent;   /* it calls what has no status */
    int met, told; /* calls of the second thread; those that were QKV_USAGE, with a sentence */
    bool mine;     /* the first may call on from inside */
} Meeting;

static void *second_thread(void *user)
{
    Meeting *m = user;
    qkv_error e[3] = {{0}};
    qkv_tensor t;
    if (m->silent) {
        qkv_session_reset(m->s);
        return NULL;
    }
    qkv_session_run(m->s, &e[0]);
    qkv_session_output(m->s, 0, &t, &e[1]);
    qkv_session_set_input(m->s, "0", m->c->in[0][0], &e[2]);
    for (int i = 0; i < 3; i++, m->met++)
        m->told += e[i].code == QKV_USAGE &&
                   strstr(e[i].message, "another thread is in a call on this session") != NULL;
    return NULL;
}

static int at_a_node(void *user, const char *node, const char *op, const qkv_tensor *out, int n)
{
    (void)node, (void)op, (void)out, (void)n;
    Meeting *m = user;
    pthread_t thread;
    qkv_tensor t;
    if (m->mine) return 0;
    m->mine = qkv_session_input(m->s, 0, &t, NULL) == QKV_OK;
    if (!pthread_create(&thread, NULL, second_thread, m)) pthread_join(thread, NULL);
    return 0;
}

static void two_threads(const Case *c)
{
    Meeting m = {.c = c, .s = session(c->m, 1)};
    qkv_error e = {0};
    if (!m.s || !qkv_model_input_count(c->m)) {
        qkv_session_free(m.s);
        return;
    }
    qkv_session_on_node(m.s, at_a_node, &m);
    for (int i = 0; i < qkv_model_input_count(c->m); i++)
        qkv_session_set_input(m.s, qkv_model_input_name(c->m, i), c->in[0][i], NULL);
    bool ran = qkv_session_run(m.s, &e) == QKV_OK;
    tap_ok(ran && m.mine && m.met == 3 && m.told == 3,
           "%s: a second thread in one session is told so, the first goes on %s", c->name, e.message);
    m.mine = false;
    m.silent = true;
    bool disturbed = qkv_session_run(m.s, &e) == QKV_USAGE && strstr(e.message, "another thread");
    qkv_session_on_node(m.s, NULL, NULL);
    tap_ok(disturbed && !differ(c, m.s, 0), "%s: a reset by a second thread is the run's error and does nothing",
           c->name);
    qkv_session_free(m.s);
}

/* Is axis 0 of every input the same variable size, and all of it float32 or no float? */
static bool has_batch(const qkv_model *m)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const char *d = qkv_model_input_rank(m, i) ? qkv_model_input_dim(m, i, 0) : "0",
                   *first = qkv_model_input_rank(m, 0) ? qkv_model_input_dim(m, 0, 0) : "0";
        qkv_dtype t = qkv_model_input_dtype(m, i);
        if (strcmp(d, first) || (d[0] >= '0' && d[0] <= '9') || t == QKV_BF16 || t == QKV_F16 || t == QKV_F64)
            return false;
    }
    return qkv_model_input_count(m) > 0;
}

/* Every row alone against the same row in its batch. False: this model takes no batch of one,
 * or an output has no rows. */
static bool rows_alone(const Case *c, qkv_session *s, int variant, int *bad, int *compared)
{
    int n = qkv_model_output_count(c->m);
    int64_t B = c->in[variant][0]->shape[0];
    for (int i = 0; i < n; i++)
        if (c->want[variant][i].rank < 1 || c->want[variant][i].shape[0] != B || c->want[variant][i].dtype != QKV_F32)
            return false;
    for (int64_t row = 0; row < B; row++) {
        qkv_tensor part[MAX_INPUTS];
        const qkv_tensor *in[MAX_INPUTS];
        int64_t shape[MAX_INPUTS][QKV_MAX_RANK];
        Copy got[MAX_OUTPUTS] = {0};
        for (int i = 0; i < qkv_model_input_count(c->m); i++) {
            part[i] = *c->in[variant][i];
            memcpy(shape[i], part[i].shape, (size_t)part[i].rank * sizeof **shape);
            shape[i][0] = 1;
            size_t bytes = qkv_dtype_size(part[i].dtype);
            for (int d = 1; d < part[i].rank; d++) bytes *= (size_t)shape[i][d];
            part[i].shape = shape[i];
            part[i].data = (char *)part[i].data + (size_t)row * bytes;
            in[i] = &part[i];
        }
        if (!run(s, c->m, in, got)) {
            forget(got, n);
            return false;
        }
        for (int i = 0; i < n; i++) {
            size_t bytes = c->want[variant][i].bytes / (size_t)B;
            *bad += got[i].bytes != bytes ||
                    memcmp(got[i].data, (const char *)c->want[variant][i].data + (size_t)row * bytes, bytes);
            ++*compared;
        }
        forget(got, n);
    }
    return true;
}

static void batch_rows(const Case *c)
{
    if (!has_batch(c->m)) return;
    qkv_session *s = session(c->m, 1);
    int bad = 0, compared = 0;
    for (int v = 0; s && v < c->variants; v++)
        if (!rows_alone(c, s, v, &bad, &compared)) break;
    if (compared) tap_ok(!bad, "%s: the same bits alone and in a batch, %d rows", c->name, compared);
    qkv_session_free(s);
}

static void run_model(const char *dir, const char *name, int *calls)
{
    char path[1024];
    qkv_error e = {0};
    qkv_tensors *in[MAX_VARIANTS];
    Case c = {.name = name};
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    qkv_model *m = qkv_model_load(path, NULL, &e);
    qkv_session *s = m ? session(m, 1) : NULL;
    bool ok = s && qkv_model_input_count(m) <= MAX_INPUTS && qkv_model_output_count(m) <= MAX_OUTPUTS;
    c.m = m;
    for (; ok && c.variants < MAX_VARIANTS; c.variants++) {
        int v = c.variants;
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", dir, name, v);
        if (!(in[v] = qkv_tensors_open(path, NULL))) break;
        for (int i = 0; i < qkv_model_input_count(m); i++)
            c.in[v][i] = qkv_tensors_find(in[v], qkv_model_input_name(m, i));
        ok = run(s, m, c.in[v], c.want[v]);
    }
    if (!tap_ok(ok && c.variants, "%s: runs at %d sizes %s", name, c.variants, e.message)) c.variants = 0;
    if (c.variants) {
        any_threads(&c);
        if (!*calls) refused_executors(m);
        *calls += any_executor(&c);
        side_by_side(&c);
        two_threads(&c);
        batch_rows(&c);
    }
    for (int v = 0; v < c.variants; v++) {
        forget(c.want[v], qkv_model_output_count(m));
        qkv_tensors_free(in[v]);
    }
    qkv_session_free(s);
    qkv_model_free(m);
}

static void run_named(const char *folder, const char *name, void *user) { run_model(folder, name, user); }

int main(int argc, char **argv)
{
    int calls = 0; /* of the executor */
    if (!each_model(argc == 2 ? argv[1] : NULL, run_named, &calls)) {
        fprintf(stderr, "usage: run_company FOLDER\n");
        return 2;
    }
    tap_ok(calls > 0, "the caller's executor was called, %d times", calls);
    return tap_done();
}
