/* Portable bits: the golden op cases and the small models give the same bits on every ISA level of this machine, with
 * one thread and two, and with a C library that takes none of the CPU's extensions. TAP: one line a setting.
 *
 *     run_portable tests/ops tests/models/small               runs itself once for each setting, and compares
 *     run_portable --digests 2 tests/ops tests/models/small   prints a line a case: "conv2d/plain 8d1f..." (2 threads)
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cpu.h"
#include "base/map.h"
#include "golden.h"
#include "models/folder.h"
#include "qkv.h"
#include "run/session.h"
#include "tap.h"

enum { MAX_VARIANTS = 8, LINE = 512 };

/* ------------------------------------------------------------------ digests */

/* A NaN is a NaN: its sign and payload are not promised. */
static uint64_t add(uint64_t h, const Tensor *x)
{
    for (int d = 0; d < x->rank; d++) h = (h ^ (uint64_t)x->shape[d]) * 1099511628211u;
    for (int64_t i = 0, n = tensor_numel(x); i < n; i++) {
        uint64_t bits = (uint64_t)tensor_get_i64(x, i);
        if (dtype_is_float(x->dtype)) {
            double v = tensor_get(x, i);
            memcpy(&bits, &v, sizeof bits);
            if (v != v) bits = 0x7ff8;
        }
        h = (h ^ bits ^ bits >> 32) * 1099511628211u;
    }
    return h;
}

static uint64_t add_real(uint64_t h, const Tensor *x)
{
    Tensor real = tensor_as_real(x);
    return add(h, &real);
}

static void digest_case(const GoldenCase *c, int threads)
{
    Err err = {0};
    Graph *g = golden_graph(c, CONSTANT, &err);
    Session *s = g ? session_create(g, NULL, threads, 0, &err) : NULL;
    uint64_t h = 0;
    bool ok = s != NULL;
    for (int i = 0; ok && i < c->nin; i++) ok = session_set_input(s, i, c->in[i], &err);
    ok = ok && session_run(s, &err);
    for (int k = 0; ok && k < g->noutput; k++) h = add_real(h, session_output(s, k));
    printf("%s/%s %016llx\n", c->op->name, ok ? c->name : err.msg, (unsigned long long)h);
    session_free(s);
    graph_free(g);
}

static void on_case(void *threads, const GoldenCase *c) { digest_case(c, *(int *)threads); }

static Tensor tensor_given(const qkv_tensor *t)
{
    Tensor x = tensor_of((DType)t->dtype, t->rank, t->shape, t->data);
    if (t->strides) memcpy(x.stride, t->strides, (size_t)t->rank * sizeof *x.stride);
    return x;
}

static uint64_t digest_run(qkv_session *s, const qkv_model *m, const qkv_tensors *in)
{
    uint64_t h = 0;
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const char *name = qkv_model_input_name(m, i);
        const qkv_tensor *t = qkv_tensors_find(in, name);
        if (!t || qkv_session_set_input(s, name, t, NULL) != QKV_OK) return 0;
    }
    if (qkv_session_run(s, NULL) != QKV_OK) return 0;
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor t;
        if (qkv_session_output(s, i, &t, NULL) != QKV_OK) return 0;
        Tensor x = tensor_given(&t);
        h = add_real(h, &x);
    }
    return h;
}

static void digest_model(const char *folder, const char *name, void *threads)
{
    char path[1024];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        qkv_load_options o = {.struct_size = sizeof o, .compute = bf16 ? QKV_BF16 : QKV_NONE};
        qkv_session_options so = {.struct_size = sizeof so, .threads = *(int *)threads, .portable_bits = 1};
        snprintf(path, sizeof path, "%s/%s.pt2", folder, name);
        qkv_model *m = qkv_model_load(path, &o, NULL);
        qkv_session *s = m ? qkv_session_create(m, &so, NULL) : NULL;
        for (int v = 0; s && v < MAX_VARIANTS; v++) {
            snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", folder, name, v);
            qkv_tensors *in = qkv_tensors_open(path, NULL);
            if (in)
                printf("%s.v%d%s %016llx\n", name, v, bf16 ? " in bfloat16" : "",
                       (unsigned long long)digest_run(s, m, in));
            qkv_tensors_free(in);
        }
        qkv_session_free(s);
        qkv_model_free(m);
    }
}

static int digests(int threads, const char *ops, const char *models)
{
    Err err = {0};
    cpu_portable(true);
    for (int i = 0; i < golden_family_count; i++)
        if (!golden_each(ops, golden_families[i], NULL, 0, on_case, &threads, &err)) {
            printf("%s\n", err.msg);
            return 1;
        }
    cpu_portable(false); /* as the option says from here on */
    return !each_model(models, digest_model, &threads);
}

/* ------------------------------------------------------------------ settings */

typedef struct Lines {
    char *text;
    size_t len;
} Lines;

/* What this program prints where `level` is forced and the C library sees a CPU without `hidden` extensions. */
static Lines print_with(const char *self, const char *level, const char *hidden, int threads, char **folder)
{
    char command[4096];
    Lines all = {0};
    int n = snprintf(command, sizeof command,
                     "QKV_CPU=%s GLIBC_TUNABLES=glibc.cpu.hwcaps=%s '%s' --digests %d '%s' '%s'", level, hidden, self,
                     threads, folder[0], folder[1]);
    FILE *p = n < (int)sizeof command ? popen(command, "r") : NULL;
    FILE *to = open_memstream(&all.text, &all.len);
    for (int c; p && (c = getc(p)) != EOF;) putc(c, to);
    fclose(to);
    if (p && pclose(p)) all.len = 0;
    return all;
}

/* The first line in which they differ; how many do. */
static int differ(const Lines *a, const Lines *b, char *first)
{
    const char *x = a->text, *y = b->text;
    int n = 0;
    while (*x && *y) {
        size_t i = strcspn(x, "\n"), k = strcspn(y, "\n");
        if ((i != k || memcmp(x, y, i)) && !n++) snprintf(first, LINE, ": %.*s", (int)(i < 400 ? i : 400), x);
        x += i + (x[i] != 0), y += k + (y[k] != 0);
    }
    return n + (*x || *y);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "--digests")) return digests(atoi(argv[2]), argv[3], argv[4]);
    if (argc != 3) return fprintf(stderr, "usage: run_portable tests/ops tests/models/small\n"), 2;
    static const char hidden[] = "-AVX2,-FMA,-FMA4,-AVX512F,-AVX,-ERMS,-BMI2,-SSE4_1";
    Lines want = print_with(argv[0], "", "", 1, argv + 1);
    int lines = 0;
    for (size_t i = 0; i < want.len; i++) lines += want.text[i] == '\n';
    tap_ok(lines > 1000, "%d cases on %s", lines, cpu_level_name(cpu_best()));
    for (int l = CPU_REF; l <= (int)cpu_best(); l++) {
        if (!cpu_has((CpuLevel)l)) continue;
        bool bare = l == CPU_GEN;
        char first[LINE] = "";
        Lines got = print_with(argv[0], cpu_level_name((CpuLevel)l), bare ? hidden : "", 1 + l % 2, argv + 1);
        int n = differ(&want, &got, first);
        tap_ok(got.len && !n, "%s, %d threads%s: %d others%s", cpu_level_name((CpuLevel)l), 1 + l % 2,
               bare ? ", the C library without extensions" : "", n, first);
        free(got.text);
    }
    free(want.text);
    return tap_done();
}
