/* Runs the small committed models with outputs in memory of the caller's: the values are those of a run without, bit
 * for bit, and nothing beside it is written. TAP.
 *
 *     run_outputs tests/models/small
 *
 * Every size twice, in new memory each time; once with the first input kept; then in the session's own memory again.
 */
#include <stdlib.h>
#include <string.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "folder.h"
#include "tap.h"

enum { MAX_VARIANTS = 8, MAX_OUTPUTS = 64, GUARD = 64 };

typedef struct Given {
    unsigned char *memory[MAX_OUTPUTS];
    size_t size[MAX_OUTPUTS];
    int asked, refuse; /* refuse: 1: no memory; 2: not aligned */
} Given;

static void *give(void *user, int i, const qkv_tensor *like)
{
    Given *g = user;
    size_t n = qkv_dtype_size(like->dtype);
    for (int a = 0; a < like->rank; a++) n *= (size_t)like->shape[a];
    g->asked++;
    if (g->refuse == 1) return NULL;
    free(g->memory[i]);
    g->size[i] = n;
    g->memory[i] = aligned_alloc(64, (n + 127) / 64 * 64 + GUARD);
    if (!g->memory[i]) abort();
    memset(g->memory[i], 0xa5, n + GUARD);
    return g->memory[i] + (g->refuse == 2 ? 4 : 0);
}

static bool run(const qkv_model *m, qkv_session *s, const qkv_tensors *in, qkv_error *e)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const char *name = qkv_model_input_name(m, i);
        if (qkv_session_set_input(s, name, qkv_tensors_find(in, name), e) != QKV_OK) return false;
    }
    qkv_session_reset(s);
    qkv_session_seed(s, 5);
    return qkv_session_run(s, e) == QKV_OK;
}

/* What is wrong, or NULL. */
static const char *wrong(const qkv_model *m, qkv_session *s, qkv_session *own, const Given *g)
{
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor x, y;
        qkv_difference d;
        if (qkv_session_output(s, i, &x, NULL) != QKV_OK || qkv_session_output(own, i, &y, NULL) != QKV_OK)
            return "no output";
        if (x.dtype != y.dtype || qkv_compare(&x, &y, 0, 0, &d, NULL) != QKV_OK) return "other values";
        if (g && x.data != g->memory[i]) return "another address";
        for (int k = 0; g && k < GUARD; k++)
            if (g->memory[i][g->size[i] + (size_t)k] != 0xa5) return "written after the memory's end";
        if (!g && d.failed) return "other values in its own memory";
    }
    return NULL;
}

typedef struct Sum {
    int smaller, models; /* plans whose arena has become smaller */
} Sum;

static void run_named(const char *folder, const char *name, void *user)
{
    char path[1024];
    Sum *sum = user;
    qkv_error e = {0};
    qkv_stats a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    snprintf(path, sizeof path, "%s/%s.pt2", folder, name);
    qkv_model *m = qkv_model_load(path, NULL, &e);
    qkv_session_options so = {.struct_size = sizeof so, .threads = 1};
    qkv_session *s = m ? qkv_session_create(m, &so, &e) : NULL, *own = m ? qkv_session_create(m, &so, &e) : NULL;
    const char *what = s && own && qkv_model_output_count(m) <= MAX_OUTPUTS ? NULL : "no session";
    Given g = {0};
    for (int turn = 0; !what && turn < 4; turn++) {
        if (turn == 0) qkv_session_output_memory(s, give, &g);
        if (turn == 2 && qkv_model_input_count(m) && qkv_session_keep(s, qkv_model_input_name(m, 0), &e) != QKV_OK)
            what = "qkv_session_keep";
        if (turn == 3) qkv_session_output_memory(s, NULL, NULL);
        for (int v = 0; !what && v < MAX_VARIANTS; v++) {
            snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", folder, name, v);
            qkv_tensors *in = qkv_tensors_open(path, NULL);
            if (!in) break;
            g.asked = 0;
            if (!run(m, s, in, &e) || !run(m, own, in, &e)) what = "a run";
            else
                what = g.asked == (turn < 3 ? qkv_model_output_count(m) : 0) ? wrong(m, s, own, turn < 3 ? &g : NULL)
                                                                             : "not asked for every output once";
            if (qkv_session_stats(s, &a, &e) || qkv_session_stats(own, &b, &e)) what = "qkv_session_stats";
            if (turn < 2 && a.activation_bytes + a.scratch_bytes > b.activation_bytes + b.scratch_bytes)
                what = "a larger arena";
            if (turn == 0) sum->smaller += a.activation_bytes < b.activation_bytes;
            for (int refuse = 1; !what && turn == 1 && refuse <= 2; refuse++) {
                g.refuse = refuse;
                if (run(m, s, in, &e) || e.code != (refuse == 1 ? QKV_LIMIT : QKV_USAGE)) what = "ran without memory";
                g.refuse = 0;
            }
            qkv_tensors_free(in);
        }
    }
    sum->models++;
    tap_ok(!what, "%s%s%s %s", name, what ? ": " : "", what ? what : "", what ? e.message : "");
    for (int i = 0; i < MAX_OUTPUTS; i++) free(g.memory[i]);
    qkv_session_free(s);
    qkv_session_free(own);
    qkv_model_free(m);
}

int main(int argc, char **argv)
{
    Sum sum = {0};
    if (!each_model(argc == 2 ? argv[1] : NULL, run_named, &sum)) {
        fprintf(stderr, "usage: run_outputs FOLDER\n");
        return 2;
    }
    tap_ok(sum.smaller > sum.models, "%d plans of %d models with a smaller arena", sum.smaller, sum.models);
    return tap_done();
}
