/* Two hours in one process, as a service has them: threads that load, run at changing sizes, rewrite, write, fail and
 * break off, while memory, descriptors and threads are watched. The same bits each time; at the end nothing has grown.
 *
 *     soak tests/models/small --minutes 120 [--seed 1]            make soak MINUTES=120
 *
 * The process is measured when all workers rest, first after a tenth of the time (caches and the allocator's arenas are
 * full by then), then nine times more: resident memory may be 1 % above the first measurement at any later one (2 MB
 * where all of it takes less than ten minutes, in which the allocator does not settle).
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/splitmix.h"
#include "folder.h"
#include "qkv.h"
#include "qkv_tools.h"
#include "tap.h"

enum { MAX_MODELS = 64, MAX_VARIANTS = 8, WORKERS = 4, MEASUREMENTS = 11, ENOUGH = 500, SETTLED = 5, SHORT = 10 };
enum { MOST_THREADS = 1 + 2 * WORKERS }; /* main, the workers, and one more for each one's team of two */

typedef struct Case {
    char name[64], path[512];
    qkv_model *m;
    int variants;
    qkv_tensors *in[MAX_VARIANTS];
    uint64_t want[MAX_VARIANTS]; /* the hash of all outputs; of the first run */
} Case;

static Case cases[MAX_MODELS];
static int case_count;
static char scratch[64];
static atomic_bool rest, over;
static atomic_int resting;
static atomic_long turns, wrong;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ------------------------------------------------------------------ one turn */

static bool give(qkv_session *s, const Case *c, int variant)
{
    for (int i = 0; i < qkv_model_input_count(c->m); i++) {
        const char *name = qkv_model_input_name(c->m, i);
        const qkv_tensor *t = qkv_tensors_find(c->in[variant], name);
        if (!t || qkv_session_set_input(s, name, t, NULL)) return false;
    }
    return true;
}

/* FNV-1a over the elements from an axis on, in row-major order. */
static uint64_t hash_part(uint64_t h, const qkv_tensor *t, int axis, const char *at)
{
    int64_t step = (int64_t)qkv_dtype_size(t->dtype);
    if (axis == t->rank) {
        for (int64_t k = 0; k < step; k++) h = (h ^ (uint8_t)at[k]) * UINT64_C(0x100000001b3);
        return h;
    }
    for (int d = axis + 1; !t->strides && d < t->rank; d++) step *= t->shape[d];
    if (t->strides) step *= t->strides[axis];
    for (int64_t i = 0; i < t->shape[axis]; i++) h = hash_part(h, t, axis + 1, at + i * step);
    return h ^ (uint64_t)t->shape[axis];
}

static uint64_t hash_outputs(qkv_session *s, const qkv_model *m)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor t;
        if (qkv_session_output(s, i, &t, NULL)) return 0;
        h = hash_part(h ^ (uint64_t)t.dtype, &t, 0, t.data);
    }
    return h;
}

static qkv_session *session(const qkv_model *m, uint64_t *seed)
{
    qkv_session_options so = {.struct_size = sizeof so, .threads = 1 + (int)(splitmix_next(seed) % 2)};
    return qkv_session_create(m, &so, NULL);
}

/* All sizes in one session, in any order. */
static bool run_sizes(const Case *c, uint64_t *seed)
{
    qkv_session *s = session(c->m, seed);
    bool ok = s != NULL;
    for (int k = 0; ok && k < 2 * c->variants; k++) {
        int v = (int)(splitmix_next(seed) % (unsigned)c->variants);
        qkv_session_reset(s);
        ok = give(s, c, v) && !qkv_session_run(s, NULL) && hash_outputs(s, c->m) == c->want[v];
    }
    qkv_session_free(s);
    return ok;
}

static int break_off(void *user, const char *node, const char *op, const qkv_tensor *out, int n)
{
    (void)node, (void)op, (void)out, (void)n;
    return --*(int *)user < 0;
}

/* A run that its caller ends after a few nodes; the next one in the same session is whole. */
static bool run_cancelled(const Case *c, uint64_t *seed)
{
    int left = (int)(splitmix_next(seed) % 4);
    qkv_session *s = session(c->m, seed);
    bool ok = s && give(s, c, 0);
    if (ok) qkv_session_on_node(s, break_off, &left);
    if (ok) qkv_session_run(s, NULL);
    if (ok) qkv_session_on_node(s, NULL, NULL);
    if (ok) qkv_session_reset(s);
    ok = ok && !qkv_session_run(s, NULL) && hash_outputs(s, c->m) == c->want[0];
    qkv_session_free(s);
    return ok;
}

/* Bad input: no such input, no data, a wrong dtype; then a file that is cut off. */
static bool run_errors(const Case *c, uint64_t *seed)
{
    qkv_session *s = session(c->m, seed);
    qkv_error e;
    float x = 0;
    const int64_t shape[] = {1};
    qkv_tensor odd = {.data = &x, .dtype = QKV_F64, .rank = 1, .shape = (int64_t *)shape};
    bool ok = s && qkv_session_set_input(s, "no_such_input", &odd, &e) == QKV_USAGE;
    for (int i = 0; ok && i < qkv_model_input_count(c->m); i++)
        qkv_session_set_input(s, qkv_model_input_name(c->m, i), &odd, &e);
    qkv_session_free(s);
    FILE *f = fopen(c->path, "rb");
    char *bytes = malloc(1 << 20);
    size_t n = f ? fread(bytes, 1, 1 << 20, f) : 0;
    qkv_model *m = n ? qkv_model_load_memory(bytes, splitmix_next(seed) % n, NULL, &e) : NULL;
    ok = ok && !m;
    qkv_model_free(m);
    free(bytes);
    if (f) fclose(f);
    return ok;
}

/* Too little memory for some sizes: what is not refused has the same bits. */
static bool run_limited(const Case *c, uint64_t *seed)
{
    qkv_session_options so = {.struct_size = sizeof so, .threads = 1, .memory_limit = 1 + splitmix_next(seed) % 65536};
    qkv_error e = {0};
    qkv_session *s = qkv_session_create(c->m, &so, &e);
    qkv_status r = s ? QKV_OK : e.code;
    for (int i = 0; r == QKV_OK && i < qkv_model_input_count(c->m); i++) {
        const char *name = qkv_model_input_name(c->m, i);
        r = qkv_session_set_input(s, name, qkv_tensors_find(c->in[0], name), &e);
    }
    if (r == QKV_OK) r = qkv_session_run(s, &e);
    const bool ok = r == QKV_OK ? hash_outputs(s, c->m) == c->want[0] : r == QKV_LIMIT;
    qkv_session_free(s);
    return ok;
}

/* One more axis than the input has. */
static bool refuses_rank(qkv_session *s, const Case *c)
{
    const char *name = qkv_model_input_name(c->m, 0);
    qkv_tensor t = *qkv_tensors_find(c->in[0], name);
    int64_t shape[QKV_MAX_RANK + 1] = {1};
    if (t.rank >= QKV_MAX_RANK) return true;
    memcpy(shape + 1, t.shape, (size_t)t.rank * sizeof *shape);
    t.shape = shape;
    t.strides = NULL;
    t.rank++;
    return qkv_session_set_input(s, name, &t, NULL) == QKV_USAGE || qkv_session_run(s, NULL) == QKV_USAGE;
}

/* Half of the calls fail, and the session goes on. */
static bool run_between_errors(const Case *c, uint64_t *seed)
{
    qkv_session *s = session(c->m, seed);
    bool ok = s && give(s, c, 0);
    for (int k = 0; ok && k < 2 * c->variants; k++) {
        int v = (int)(splitmix_next(seed) % (unsigned)c->variants);
        if (qkv_model_input_count(c->m) && splitmix_next(seed) % 2) ok = refuses_rank(s, c);
        else {
            qkv_session_cancel(s, 1);
            ok = qkv_session_run(s, NULL) == QKV_LIMIT;
            qkv_session_cancel(s, 0);
        }
        qkv_session_reset(s);
        ok = ok && give(s, c, v) && !qkv_session_run(s, NULL) && hash_outputs(s, c->m) == c->want[v];
    }
    qkv_session_free(s);
    return ok;
}

/* Loaded again, rewritten with proof, written as ONNX, read back. */
static bool make_again(const Case *c, uint64_t *seed)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%llx.onnx", scratch, (unsigned long long)splitmix_next(seed));
    qkv_rewrite_options ro = {.struct_size = sizeof ro, .prove = 1, .seeds = 1};
    qkv_model *m = qkv_model_load(c->path, NULL, NULL);
    qkv_model *made = m ? qkv_model_rewrite(m, &ro, NULL, NULL) : NULL;
    if (made && !qkv_model_save_onnx(made, path, NULL, NULL, NULL)) qkv_model_free(qkv_model_load(path, NULL, NULL));
    unlink(path);
    qkv_model_free(made);
    qkv_model_free(m);
    return m && made;
}

static void take_rest(void)
{
    pthread_mutex_lock(&lock);
    resting++;
    pthread_cond_broadcast(&changed);
    while (rest) pthread_cond_wait(&changed, &lock);
    resting--;
    pthread_mutex_unlock(&lock);
}

static void *work(void *user)
{
    static bool (*const act[])(const Case *, uint64_t *) = {
        run_sizes,     run_sizes,  run_sizes,   run_sizes,          run_sizes,
        run_cancelled, run_errors, run_limited, run_between_errors, make_again};
    uint64_t seed = *(const uint64_t *)user;
    while (!over) {
        const Case *c = &cases[splitmix_next(&seed) % (unsigned)case_count];
        unsigned which = (unsigned)(splitmix_next(&seed) % (sizeof act / sizeof *act));
        if (!act[which](c, &seed) && !wrong++) printf("# %s: action %u went wrong\n", c->name, which);
        turns++;
        if (rest) take_rest();
    }
    return NULL;
}

/* ------------------------------------------------------------------ measuring */

typedef struct Measured {
    long resident; /* bytes */
    int files, threads;
} Measured;

static int entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static Measured measure(void)
{
    Measured m = {0};
    long size;
    pthread_mutex_lock(&lock);
    rest = true;
    while (resting < WORKERS) pthread_cond_wait(&changed, &lock);
    malloc_trim(0);
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &size, &m.resident) == 2) m.resident *= sysconf(_SC_PAGESIZE);
    if (f) fclose(f);
    m.files = entries("/proc/self/fd");
    m.threads = entries("/proc/self/task");
    rest = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return m;
}

static void load_case(const char *folder, const char *name, void *user)
{
    Case *c = &cases[case_count];
    qkv_session *s;
    (void)user;
    if (case_count == MAX_MODELS) return;
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->path, sizeof c->path, "%s/%s.pt2", folder, name);
    if (!(c->m = qkv_model_load(c->path, NULL, NULL))) return;
    s = qkv_session_create(c->m, NULL, NULL);
    for (c->variants = 0; s && c->variants < MAX_VARIANTS; c->variants++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", folder, name, c->variants);
        if (!(c->in[c->variants] = qkv_tensors_open(path, NULL))) break;
        qkv_session_reset(s);
        if (!give(s, c, c->variants) || qkv_session_run(s, NULL)) break;
        c->want[c->variants] = hash_outputs(s, c->m);
    }
    qkv_session_free(s);
    if (c->variants) case_count++;
}

static void forget_cases(void)
{
    for (int i = 0; i < case_count; i++) {
        for (int v = 0; v < MAX_VARIANTS; v++) qkv_tensors_free(cases[i].in[v]);
        qkv_model_free(cases[i].m);
    }
}

static void soak(double minutes, uint64_t seed)
{
    pthread_t thread[WORKERS];
    uint64_t seeds[WORKERS];
    Measured first = {0}, settled = {0}, m;
    long most = 0;
    bool steady = true;
    for (int i = 0; i < WORKERS; i++) {
        seeds[i] = seed + (uint64_t)i;
        pthread_create(&thread[i], NULL, work, &seeds[i]);
    }
    for (int i = 1; i < MEASUREMENTS; i++) {
        struct timespec t = {.tv_sec = (time_t)(minutes * 6)};
        t.tv_nsec = (long)((minutes * 6 - (double)t.tv_sec) * 1e9);
        nanosleep(&t, NULL);
        while (turns < ENOUGH) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        m = measure();
        if (i == 1) first = m;
        if (m.resident > most) most = m.resident;
        if (i == SETTLED) settled = m;
        steady &= m.threads <= MOST_THREADS && (i < SETTLED || m.files == settled.files);
        printf("# %.1f minutes: %ld turns, %.2f MB resident, %d descriptors, %d threads\n", minutes * i / 10, turns,
               (double)m.resident / 1e6, m.files, m.threads);
        fflush(stdout);
    }
    over = true;
    for (int i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
    tap_ok(!wrong, "%ld turns, %ld of them wrong", turns, wrong);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which keep what is freed, and who wrote where */
    long allowed = minutes < SHORT ? 2000000 : first.resident / 100;
    tap_ok(most <= first.resident + allowed, "memory: %.2f MB at most, %.2f MB at first", (double)most / 1e6,
           (double)first.resident / 1e6);
#endif
    tap_ok(steady, "descriptors stay as many as they were in the middle, threads at most %d", MOST_THREADS);
}

int main(int argc, char **argv)
{
    double minutes = 120;
    uint64_t seed = 1;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--minutes")) minutes = atof(argv[i + 1]);
        if (!strcmp(argv[i], "--seed")) seed = strtoull(argv[i + 1], NULL, 10);
    }
    snprintf(scratch, sizeof scratch, "/tmp/qkv-soak-XXXXXX");
    mallopt(M_ARENA_MAX, 1);
    if (!each_model(argv[1], load_case, NULL) || !case_count || !mkdtemp(scratch)) {
        fprintf(stderr, "soak FOLDER_OF_MODELS [--minutes N] [--seed N]\n");
        return 2;
    }
    soak(minutes, seed);
    rmdir(scratch);
    forget_cases();
    return tap_done();
}
