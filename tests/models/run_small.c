/* Runs the small committed models (tests/models/small) through the public interface and compares with PyTorch's
 * outputs. TAP.
 *
 *     run_small tests/models/small
 *
 * Each model runs at all its sizes in one session, forwards and back (a new size plans again, an old one must not have
 * been spoiled), with 1 and with 2 threads, fused and with every node kept; the answers must not depend on the number
 * of threads, bit for bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "folder.h"
#include "tap.h"
#include "tensor/tolerance.h"

enum { MAX_VARIANTS = 8, MAX_OUTPUTS = 32 };

/* Largest error relative to the largest value that counts as equal. */
static double tolerance(double of_model, qkv_dtype t)
{
    return fmax(of_model, tolerance_of(TOLERANCE_TORCH, (DType)t));
}

static int compare(const char *name, int variant, const char *how, qkv_session *s, const qkv_model *m,
                   const qkv_tensors *want)
{
    int bad = 0;
    double of_model[MAX_OUTPUTS] = {0};
    if (qkv_model_output_count(m) <= MAX_OUTPUTS) qkv_model_output_tolerances(m, of_model, NULL);
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor got;
        qkv_error e = {0};
        qkv_difference d = {0};
        const qkv_tensor *w = qkv_tensors_find(want, qkv_model_output_name(m, i));
        bool same = w && qkv_session_output(s, i, &got, &e) == QKV_OK && got.dtype == w->dtype;
        double tol = same ? tolerance(i < MAX_OUTPUTS ? of_model[i] : 0, w->dtype) : 0;
        same = same && (qkv_compare(&got, w, 0, 0, &d, &e) == QKV_OK ||
                        (e.code != QKV_USAGE && d.nonfinite_mismatch == 0 && d.max_abs_over_peak <= tol));
        if (!same) bad++;
        if (!same)
            tap_ok(false, "%s v%d %s: %s: %s, difference %g at %lld (%g instead of %g)", name, variant, how,
                   qkv_model_output_name(m, i), e.message, d.max_abs, (long long)d.index, d.a, d.b);
    }
    return bad;
}

static bool set_and_run(qkv_session *s, const qkv_model *m, const qkv_tensors *in, qkv_error *e)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const qkv_tensor *t = qkv_tensors_find(in, qkv_model_input_name(m, i));
        if (!t) {
            snprintf(e->message, sizeof e->message, "no input %s in the file", qkv_model_input_name(m, i));
            return false;
        }
        if (qkv_session_set_input(s, qkv_model_input_name(m, i), t, e) != QKV_OK) return false;
    }
    return qkv_session_run(s, e) == QKV_OK;
}

/* Bytes of all outputs, for comparing runs bit for bit; FNV-1a. */
static uint64_t digest(const qkv_session *s, const qkv_model *m)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor t;
        if (qkv_session_output((qkv_session *)(uintptr_t)s, i, &t, NULL) != QKV_OK) return 0;
        size_t n = qkv_dtype_size(t.dtype);
        for (int a = 0; a < t.rank; a++) n *= (size_t)t.shape[a];
        bool contiguous = !t.strides;
        if (!contiguous) {
            contiguous = true;
            int64_t want = 1;
            for (int a = t.rank - 1; a >= 0; a--) {
                contiguous &= t.shape[a] == 1 || t.strides[a] == want;
                want *= t.shape[a];
            }
        }
        for (size_t k = 0; contiguous && k < n; k++) h = (h ^ ((const unsigned char *)t.data)[k]) * 1099511628211u;
    }
    return h;
}

static void run_model(const char *dir, const char *name)
{
    char path[1024];
    qkv_error e = {0};
    qkv_tensors *in[MAX_VARIANTS], *out[MAX_VARIANTS];
    int n = 0;
    for (; n < MAX_VARIANTS; n++) {
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", dir, name, n);
        in[n] = qkv_tensors_open(path, NULL);
        if (!in[n]) break;
        snprintf(path, sizeof path, "%s/%s.v%d.out.safetensors", dir, name, n);
        out[n] = qkv_tensors_open(path, &e);
        if (!out[n]) tap_ok(false, "%s: %s", name, e.message);
        if (!out[n]) return;
    }
    uint64_t first[MAX_VARIANTS] = {0};
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    for (int mode = 0; mode < 3; mode++) { /* 1 thread, 2 threads, every node kept */
        qkv_load_options lo = {.struct_size = sizeof lo, .no_fuse = mode == 2};
        qkv_session_options so = {.struct_size = sizeof so, .threads = mode == 1 ? 2 : 1};
        const char *how = mode == 0 ? "1 thread" : mode == 1 ? "2 threads" : "unfused";
        qkv_model *m = qkv_model_load(path, &lo, &e);
        qkv_session *s = m ? qkv_session_create(m, &so, &e) : NULL;
        if (!s) tap_ok(false, "%s %s: %s", name, how, e.message);
        int bad = !s;
        for (int k = 0; s && k < 2 * n - 1; k++) { /* 0, 1, 2, 1, 0 */
            int v = k < n ? k : 2 * n - 2 - k;
            qkv_session_reset(s);
            if (!set_and_run(s, m, in[v], &e)) {
                bad++;
                tap_ok(false, "%s v%d %s: %s", name, v, how, e.message);
                continue;
            }
            bad += compare(name, v, how, s, m, out[v]);
            uint64_t h = digest(s, m);
            if (mode < 2 && first[v] && h != first[v])
                bad += !tap_ok(false, "%s v%d %s: other bits than in the first run", name, v, how);
            if (!first[v]) first[v] = h;
        }
        if (!bad) tap_ok(true, "%s %s: %d sizes", name, how, n);
        qkv_session_free(s);
        qkv_model_free(m);
    }
    while (n-- > 0) {
        qkv_tensors_free(in[n]);
        qkv_tensors_free(out[n]);
    }
}

static void run_named(const char *folder, const char *name, void *user)
{
    (void)user;
    run_model(folder, name);
}

int main(int argc, char **argv)
{
    if (!each_model(argc == 2 ? argv[1] : NULL, run_named, NULL)) {
        fprintf(stderr, "usage: run_small FOLDER\n");
        return 2;
    }
    return tap_done();
}
