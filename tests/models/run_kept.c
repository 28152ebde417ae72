/* Runs the small committed models with some of their inputs kept from run to run: the values are those of a run without
 * keeping, bit for bit. TAP.
 *
 *     run_kept tests/models/small
 *
 * Every input alone, and all but the last. At each size: a first run; a run in which the kept inputs are not given, and
 * their memory is spoiled; a run with other values for the other inputs.
 */
#include <stdlib.h>
#include <string.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "folder.h"
#include "tap.h"

enum { MAX_VARIANTS = 8, MAX_INPUTS = 32 };

/* Copies of a variant's inputs; the other one has their elements in reverse order,
 * so that indices and masks stay valid. */
typedef struct Feed {
    qkv_tensor t[MAX_INPUTS];
    int n;
} Feed;

static size_t count(const qkv_tensor *t)
{
    size_t n = 1;
    for (int a = 0; a < t->rank; a++) n *= (size_t)t->shape[a];
    return n;
}

static void feed_make(const qkv_model *m, const qkv_tensors *in, int reversed, Feed *f)
{
    f->n = qkv_model_input_count(m);
    for (int i = 0; i < f->n; i++) {
        f->t[i] = *qkv_tensors_find(in, qkv_model_input_name(m, i));
        size_t n = count(&f->t[i]), size = qkv_dtype_size(f->t[i].dtype);
        char *copy = malloc(n * size + 1);
        if (!copy) abort();
        for (size_t k = 0; k < n; k++)
            memcpy(copy + k * size, (const char *)f->t[i].data + (reversed ? n - 1 - k : k) * size, size);
        f->t[i].data = copy;
    }
}

static void feed_free(Feed *f)
{
    for (int i = 0; i < f->n; i++) free(f->t[i].data);
}

static bool run(qkv_session *s, const Feed *f, unsigned without, qkv_error *e)
{
    for (int i = 0; i < f->n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (!(without >> i & 1) && qkv_session_set_input(s, name, &f->t[i], e) != QKV_OK) return false;
    }
    qkv_session_reset(s);
    qkv_session_seed(s, 5);
    return qkv_session_run(s, e) == QKV_OK;
}

static bool same(const qkv_model *m, qkv_session *a, qkv_session *b)
{
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor x, y;
        qkv_error e;
        qkv_difference d;
        if (qkv_session_output(a, i, &x, &e) != QKV_OK || qkv_session_output(b, i, &y, &e) != QKV_OK) return false;
        if (x.dtype != y.dtype || qkv_compare(&x, &y, 0, 0, &d, &e) != QKV_OK || d.failed || d.nonfinite_mismatch)
            return false;
    }
    return true;
}

/* Inputs of `kept` (bits) are kept in s; full gets them each time. What differed first, or NULL. */
static const char *differs(const qkv_model *m, qkv_session *s, qkv_session *full, const qkv_tensors *in, unsigned kept,
                           int *fewer, qkv_error *e)
{
    const char *what = NULL;
    Feed first, again, other, mixed;
    qkv_stats a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    feed_make(m, in, 0, &first);
    feed_make(m, in, 0, &again); /* for `full`: an output may be an input's memory */
    feed_make(m, in, 1, &other);
    mixed = other;
    for (int i = 0; i < first.n; i++)
        if (kept >> i & 1) mixed.t[i] = first.t[i];
    e->message[0] = 0;
    if (!run(full, &first, 0, e) || !run(s, &first, 0, e) || !same(m, s, full)) what = "the first run";
    if (qkv_session_stats(s, &a, e) || qkv_session_stats(full, &b, e)) what = "qkv_session_stats";
    *fewer += b.steps - a.steps;
    if (b.kept_bytes) what = "memory where nothing is kept";
    bool taken = !what && run(full, &mixed, 0, e); /* other values may be ones that the model refuses */
    if (taken && (!run(s, &mixed, kept, e) || !same(m, s, full))) what = "other values for the others";
    if (!what && !run(full, &again, 0, e)) what = "a full run";
    for (int i = 0; i < first.n; i++)
        if (kept >> i & 1) memset(first.t[i].data, 0x3c, count(&first.t[i]) * qkv_dtype_size(first.t[i].dtype));
    if (!what && (!run(s, &first, kept, e) || !same(m, s, full))) what = "a run without the kept inputs";
    feed_free(&first);
    feed_free(&again);
    feed_free(&other);
    return what;
}

static void run_named(const char *folder, const char *name, void *user)
{
    char path[1024];
    qkv_error e = {0};
    qkv_tensors *in[MAX_VARIANTS];
    int n = 0, *fewer = user;
    for (; n < MAX_VARIANTS; n++) {
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", folder, name, n);
        if (!(in[n] = qkv_tensors_open(path, NULL))) break;
    }
    snprintf(path, sizeof path, "%s/%s.pt2", folder, name);
    qkv_model *m = qkv_model_load(path, NULL, &e);
    int inputs = m ? qkv_model_input_count(m) : 0;
    if (!m || inputs > MAX_INPUTS - 1) tap_ok(false, "%s: %s", name, e.message);
    for (int k = 0; m && k <= inputs; k++) {
        unsigned kept = k < inputs ? 1u << k : (1u << (inputs - 1)) - 1;
        if (k == inputs && inputs < 3) break; /* the same as one of them */
        qkv_session_options so = {.struct_size = sizeof so, .threads = 1};
        qkv_session *s = qkv_session_create(m, &so, &e), *full = qkv_session_create(m, &so, &e);
        const char *what = s && full ? NULL : "no session";
        for (int i = 0; !what && i < inputs; i++)
            if (kept >> i & 1 && qkv_session_keep(s, qkv_model_input_name(m, i), &e) != QKV_OK)
                what = "qkv_session_keep";
        for (int v = 0; !what && v < 2 * n - 1; v++)
            what = differs(m, s, full, in[v < n ? v : 2 * n - 2 - v], kept, fewer, &e);
        tap_ok(!what, "%s, inputs %#x kept%s%s%s", name, kept, what ? ": " : "", what ? what : "",
               what ? e.message : "");
        qkv_session_free(s);
        qkv_session_free(full);
    }
    qkv_model_free(m);
    while (n-- > 0) qkv_tensors_free(in[n]);
}

int main(int argc, char **argv)
{
    int fewer = 0;
    if (!each_model(argc == 2 ? argv[1] : NULL, run_named, &fewer)) {
        fprintf(stderr, "usage: run_kept FOLDER\n");
        return 2;
    }
    tap_ok(fewer > 100, "%d steps fewer", fewer);
    return tap_done();
}
