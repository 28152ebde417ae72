/* Differential fuzzing of every row of the op table: random programs of calls (calls.h), run step by step on the
 * reference, and the same values on every ISA level of this machine, with one thread and two, optimised, rewritten
 * with proof, saved, packed, through ONNX and back. Each at three sizes. TAP: one line a level.
 *
 *     run_calls tests/ops FOLDER [--runs N] [--seed N] [--keep] [--print] [WORD...]
 *
 *     FOLDER    where files may be written
 *     --print   every program, before it runs
 *     --keep    seed-N.pt2, .onnx, .v0.in.safetensors, .v0.out.safetensors of every program stay, to be run elsewhere
 *     WORD      of rows whose name contains one alone
 *
 * A result may differ where rounding in the middle of a program changes it as much: that is found out by running the
 * reference again on inputs that differ in their last bits. Results of a single call may not.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cpu.h"
#include "base/splitmix.h"
#include "calls.h"
#include "pt2/write/write.h"
#include "run/session.h"
#include "tap.h"
#include "tensor/tolerance.h"
#include "ways.h"

/* Past findings, whose seeds are from 0 on. */
#define TEN "%x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, "
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
static const char *const before[] = {
    "u8[1,1,1] u8[2,1,2]: aten.tensordot.default(%x0, %x1, [0, 1], [2, 0])",
    "f32[n8,4] f32[4]: aten.select_scatter.default(%x0, %x1, 0, 1)",
    "f32[n3,2]: aten.cat.default([" HUNDRED HUNDRED HUNDRED "%x0])",
    "f32[n4,n3,7,7] f32[n4,n5]: torchvision._roi_align_backward.default(%x0, %x1, 0.25, 7, 7, 2, 3, 8, 9, 1, false)",
    "f32[8,3,5]: aten._upsample_nearest_exact1d.default(%x0, [9], 1.7)",
    "f32[2,0]: aten.replication_pad1d.default(%x0, [1, -1])",
    "f32[2,3]: aten.norm.ScalarOpt_dtype(%x0, 2, dtype=bool)",
    "f32[n2,n3,n2]: aten.upsample_linear1d.vec(%x0, none, false, [-0.25])",
};
enum { FOUND = sizeof before / sizeof *before };

enum { OUTPUTS = 64, WHY = 1200, LIMIT = 64 << 20 };

typedef struct Options {
    const char *golden, *folder;
    int runs;
    uint64_t seed;
    bool keep, print;
} Options;

/* What the processes tell the parent. */
static struct {
    uint64_t seed;
    const char *way;
    int made, found, compared;
} * shared;

/* ------------------------------------------------------------------ inputs and answers */

typedef struct Inputs {
    Tensor t[CALL_INPUTS];
    int n;
} Inputs;

static void inputs_free(Inputs *in)
{
    for (int i = 0; i < in->n; i++) free(in->t[i].data);
    in->n = 0;
}

/* Quarters, among which are equal ones and zeros; or numbers of a normal distribution. */
static double made_up(uint64_t *state, bool exact)
{
    if (!exact) return splitmix_normal(state);
    return (double)(splitmix_next(state) % 17) / 4 - 2;
}

static double close_to(double x, double eps, uint64_t *state)
{
    return x * (1 + eps * (2 * splitmix_uniform(state) - 1));
}

/* nearby > 0: the floats differ by that share. */
static bool inputs_make(Inputs *in, const Program *p, int variant, uint64_t seed, double nearby, uint64_t nearby_seed)
{
    *in = (Inputs){0};
    for (; in->n < p->ninput; in->n++) {
        const ProgramInput *x = &p->input[in->n];
        int64_t shape[MAX_RANK], n = 1;
        for (int a = 0; a < x->rank; a++) {
            shape[a] = x->symbolic[a] ? program_size(p, x->shape[a], variant) : x->shape[a];
            n *= shape[a];
        }
        if (n > 1 << 16) return false;
        Tensor *t = &in->t[in->n];
        *t = tensor_of(x->dtype, x->rank, shape, NULL);
        t->data = calloc(tensor_bytes(t) + 64, 1);
        if (!t->data) abort();
        bool of_case = x->values && variant == 0 && seed % 2;
        for (int a = 0; a < x->rank; a++) of_case &= x->values && x->values->shape[a] == shape[a];
        if (of_case) tensor_copy(t, x->values);
        Tensor real = tensor_as_real(t);
        for (int64_t i = 0; i < tensor_numel(&real); i++) {
            void *e = (char *)real.data + (size_t)i * dtype_size(real.dtype);
            if (dtype_is_float(real.dtype)) {
                double v = of_case ? load_f64(real.dtype, e) : made_up(&seed, seed % 5 < 2);
                store_f64(real.dtype, e, nearby > 0 ? close_to(v, nearby, &nearby_seed) : v);
            } else if (!of_case) {
                store_i64(real.dtype, e, (int64_t)(splitmix_next(&seed) % (x->dtype == DT_BOOL ? 2 : 4)));
            }
        }
    }
    return true;
}

/* Results, contiguous, of their own. */
typedef struct Answers {
    Tensor t[OUTPUTS];
    int n; /* -1: the run was refused */
} Answers;

static void answers_free(Answers *a)
{
    for (int k = 0; k < a->n; k++) free(a->t[k].data);
    a->n = 0;
}

static void answers_add(Answers *a, const Tensor *t)
{
    Tensor *copy = &a->t[a->n++];
    *copy = tensor_of(t->dtype, t->rank, t->shape, malloc(tensor_bytes(t) + 1));
    if (!copy->data) abort();
    tensor_copy(copy, t);
}

/* One step a node, in this process' kernels. */
static Answers run_graph(const Graph *g, const Inputs *in, Err *err)
{
    Answers a = {.n = -1};
    Session *s = session_create(g, NULL, 1, LIMIT, err);
    bool ok = s != NULL;
    for (int i = 0; ok && i < in->n; i++) ok = session_set_input(s, i, &in->t[i], err);
    if (ok && session_run(s, err)) {
        a.n = 0;
        for (int k = 0; k < g->noutput && k < OUTPUTS; k++) answers_add(&a, session_output(s, k));
    }
    session_free(s);
    return a;
}

static void put(FILE *f, const void *p, size_t n)
{
    if (fwrite(p, 1, n, f) != n) abort();
}

static void get(FILE *f, void *p, size_t n)
{
    if (fread(p, 1, n, f) != n) abort();
}

static void answers_write(const Answers *a, FILE *f)
{
    put(f, &a->n, sizeof a->n);
    for (int k = 0; k < a->n; k++) {
        put(f, &a->t[k], sizeof a->t[k]);
        put(f, a->t[k].data, tensor_bytes(&a->t[k]));
    }
}

static Answers answers_read(FILE *f)
{
    Answers a;
    get(f, &a.n, sizeof a.n);
    for (int k = 0; k < a.n; k++) {
        get(f, &a.t[k], sizeof a.t[k]);
        a.t[k].data = malloc(tensor_bytes(&a.t[k]) + 1);
        if (!a.t[k].data) abort();
        get(f, a.t[k].data, tensor_bytes(&a.t[k]));
    }
    return a;
}

/* ------------------------------------------------------------------ comparing */

typedef struct Case {
    uint64_t seed;
    const Program *p;
    const Graph *g;
    Inputs in;
    Answers want, near[2]; /* near: of inputs that differ in their last bits, made when needed */
    int variant;
    bool has_near, onnx;
} Case;

static double rounding(DType t)
{
    return t == DT_BF16                    ? 0x1p-8
           : t == DT_F16 || t == DT_C32  ? 0x1p-11
           : t == DT_F64 || t == DT_C128 ? 0x1p-52
                                         : 0x1p-23;
}

/* Of what is computed anywhere in the graph: half of a unit in the last place. */
static double coarsest(const Graph *g)
{
    double most = 0x1p-52;
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++)
            if (dtype_is_float(n->out[k]->dtype)) most = fmax(most, rounding(n->out[k]->dtype));
    return most;
}

static double apart(const Tensor *x, const Tensor *y)
{
    Tensor a = tensor_as_real(x), b = tensor_as_real(y);
    return difference(&a, &b);
}

static double allowed(const Case *c, DType t)
{
    double one = tolerance_of(TOLERANCE_OP, t);
    return c->p->ncall > 1 ? 4 * one : one;
}

/* Does rounding alone take output k as far? */
static bool ill_conditioned(Case *c, int k, double d, double eps)
{
    Err err = {0};
    for (int i = 0; !c->has_near && i < 2; i++) {
        Inputs in;
        uint64_t state = c->seed + (uint64_t)i * 77 + 5;
        inputs_make(&in, c->p, c->variant, c->seed + (uint64_t)c->variant, 4 * eps, state);
        c->near[i] = run_graph(c->g, &in, &err);
        inputs_free(&in);
    }
    c->has_near = true;
    for (int i = 0; i < 2; i++) {
        if (c->near[i].n <= k) return true;
        double moved = apart(&c->near[i].t[k], &c->want.t[k]);
        if (moved < 0 || (d > 0 && moved > d / 20)) return true;
    }
    return false;
}

/* Signs of singular vectors and the order of equal elements are not promised, nor is what is found among numbers
 * that are not sorted: ONNX' ops, and the loops that stand for ops that it lacks, have their own. */
static bool unique(const Program *p)
{
    static const char *const words[] = {"svd", "eig", "qr", "bucketize", "searchsorted", "sort", "topk", "kthvalue"};
    for (int k = 0; k < p->ncall; k++)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strstr(p->call[k], words[i])) return false;
    return true;
}

static bool same(Case *c, int k, const Tensor *got, bool rounded, char *why)
{
    Tensor pairs = tensor_as_real(&c->want.t[k]); /* complex numbers of ONNX */
    const Tensor *want = dtype_is_complex(got->dtype) ? &c->want.t[k] : &pairs;
    char a[128], b[128];
    bool type = got->dtype == want->dtype && got->rank == want->rank;
    for (int i = 0; type && i < got->rank; i++) type = got->shape[i] == want->shape[i];
    if (!type) {
        snprintf(why, WHY, "variant %d, output %d is %s, expected %s", c->variant, k,
                 tensor_describe(got, a, sizeof a), tensor_describe(want, b, sizeof b));
        return false;
    }
    double d = apart(got, want), most = rounded ? 16 * rounding(DT_BF16) : allowed(c, want->dtype);
    shared->compared++;
    if (d >= 0 && d <= most) return true;
    double eps = rounded ? rounding(DT_BF16) : coarsest(c->g);
    if ((c->p->ncall > 1 || rounded || c->onnx) && ill_conditioned(c, k, d, eps)) return true;
    snprintf(why, WHY, "variant %d, output %d (%s) differs by %g", c->variant, k,
             tensor_describe(want, a, sizeof a), d);
    return false;
}

static void found(const Case *c, const char *way, const char *why)
{
    printf("# seed %llu, %s, %s: %s\n", (unsigned long long)c->seed, cpu_level_name(cpu_level()), way, why);
    program_print(c->p);
    fflush(stdout);
    shared->found++;
}

static void run_way(Case *c, qkv_session *s, const Way *w, char *why)
{
    qkv_error e = {0};
    bool ok = true;
    for (int i = 0; ok && i < c->in.n; i++) {
        Tensor pairs = tensor_as_real(&c->in.t[i]);
        const Tensor *t = c->onnx ? &pairs : &c->in.t[i];
        qkv_tensor q = {(qkv_dtype)t->dtype, t->rank, t->shape, NULL, t->data};
        char at[16];
        snprintf(at, sizeof at, "x%d", i);
        ok = qkv_session_set_input(s, at, &q, &e) == QKV_OK;
    }
    if (!ok || qkv_session_run(s, &e) != QKV_OK) {
        snprintf(why, WHY, "variant %d: %s", c->variant, e.message);
        return;
    }
    for (int k = 0; k < c->want.n && !*why; k++) {
        Tensor got = tensor_of_output(s, k);
        same(c, k, &got, w->compute != QKV_NONE, why);
    }
}

/* ------------------------------------------------------------------ one program */

static void variant_begin(Case *c, int variant)
{
    c->variant = variant;
    c->has_near = false;
    if (!inputs_make(&c->in, c->p, variant, c->seed + (uint64_t)variant, 0, 0)) inputs_free(&c->in);
}

static void variant_end(Case *c)
{
    inputs_free(&c->in);
    answers_free(&c->want);
    for (int i = 0; c->has_near && i < 2; i++) answers_free(&c->near[i]);
}

static bool kept_tensors(const char *path, const char *prefix, const Tensor *t, int n)
{
    const char *name[OUTPUTS];
    char room[OUTPUTS][16];
    qkv_tensor q[OUTPUTS];
    qkv_error e;
    for (int i = 0; i < n; i++) {
        snprintf(room[i], sizeof room[i], "%s%d", prefix, i);
        name[i] = room[i];
        q[i] = (qkv_tensor){(qkv_dtype)t[i].dtype, t[i].rank, t[i].shape, NULL, t[i].data};
    }
    return qkv_tensors_write(path, name, q, n, &e) == QKV_OK;
}

static void keep_files(const Case *c, const char *folder, const char *source)
{
    char path[1024];
    qkv_error e;
    qkv_model *m = qkv_model_load(source, NULL, &e);
    snprintf(path, sizeof path, "%s/seed-%llu.onnx", folder, (unsigned long long)c->seed);
    if (m && c->variant == 0) qkv_model_save_onnx(m, path, NULL, NULL, &e);
    qkv_model_free(m);
    for (int out = 0; out < 2; out++) {
        snprintf(path, sizeof path, "%s/seed-%llu.v%d.%s.safetensors", folder, (unsigned long long)c->seed, c->variant,
                 out ? "out" : "in");
        kept_tensors(path, out ? "" : "x", out ? c->want.t : c->in.t, out ? c->want.n : c->in.n);
    }
}

/* The reference, run step by step; nothing but its answers. */
static void refer(const Options *o, Case *c, FILE *answers)
{
    bool any = false;
    for (int v = 0; v < VARIANTS; v++) {
        Err err = {0};
        variant_begin(c, v);
        c->want = (Answers){.n = -1};
        if (c->in.n == c->p->ninput) c->want = run_graph(c->g, &c->in, &err);
        any |= c->want.n > 0;
        answers_write(&c->want, answers);
        variant_end(c);
    }
    (void)o;
    shared->made += any;
}

/* Step by step on this level, against the reference's answers. */
static void step_by_step(Case *c)
{
    Err err = {0};
    char why[WHY] = "";
    Answers a = run_graph(c->g, &c->in, &err);
    if (a.n != c->want.n) snprintf(why, WHY, "variant %d: %s", c->variant, a.n < 0 ? err.msg : "the reference refused");
    for (int k = 0; k < a.n && !*why; k++) same(c, k, &a.t[k], false, why);
    if (*why) found(c, "plain", why);
    answers_free(&a);
}

/* `all`: every way there is; else what kernels compute otherwise: optimised, on two threads. */
static void compare_level(const Options *o, Case *c, FILE *answers, bool all)
{
    char source[1024];
    Err err = {0};
    qkv_error e = {0};
    qkv_model *m[WAYS] = {NULL};
    qkv_session *s[WAYS] = {NULL};
    bool failed[WAYS] = {false};
    char refused[WAYS][WHY] = {{0}};
    snprintf(source, sizeof source, "%s/%s", o->folder, "calls.pt2");
    if (o->keep && all)
        snprintf(source, sizeof source, "%s/seed-%llu.pt2", o->folder, (unsigned long long)c->seed);
    bool saved = pt2_save(c->g, NULL, 0, source, &err);
    if (!saved && err.code != E_UNSUPPORTED) found(c, "saved", err.msg);
    qkv_model *read = saved ? qkv_model_load(source, NULL, &e) : NULL;
    char unread[WHY] = "";
    bool ran = false;
    if (saved && !read) snprintf(unread, WHY, "%s", e.message);
    for (int w = 0; read && w < WAYS; w++) {
        if (!all && w != 2) continue;
        shared->way = ways[w].name;
        qkv_session_options so = {.struct_size = sizeof so, .threads = ways[w].threads, .no_optimize = ways[w].plain};
        e.code = QKV_OK;
        m[w] = open_way(&ways[w], o->folder, source, &e);
        s[w] = m[w] ? qkv_session_create(m[w], &so, &e) : NULL;
        if (!s[w] && e.code != QKV_UNSUPPORTED && e.code != QKV_LIMIT)
            snprintf(refused[w], sizeof refused[w], "%s", e.message);
    }
    for (int v = 0; v < VARIANTS; v++) {
        variant_begin(c, v);
        c->want = answers_read(answers);
        c->onnx = false;
        ran |= c->want.n > 0;
        if (c->in.n == c->p->ninput) step_by_step(c);
        for (int w = 0; c->want.n > 0 && w < WAYS; w++) {
            char why[WHY] = "";
            c->onnx = ways[w].ending && strstr(ways[w].ending, "onnx");
            if (failed[w] || (!s[w] && !*refused[w]) || (c->onnx && !unique(c->p))) continue;
            shared->way = ways[w].name;
            if (s[w]) run_way(c, s[w], &ways[w], why);
            else memcpy(why, refused[w], sizeof why);
            if (*why) found(c, ways[w].name, why);
            failed[w] = *why;
        }
        if (read && c->want.n > 0 && o->keep && all) keep_files(c, o->folder, source);
        variant_end(c);
    }
    /* Calls whose sizes contradict each other make a graph that runs at none; what reads it may find that out. */
    if (*unread && ran) found(c, "read again", unread);
    qkv_model_free(read);
    for (int w = 0; w < WAYS; w++) {
        qkv_session_free(s[w]);
        qkv_model_free(m[w]);
    }
}

static void one_seed(const Options *o, const Golden *golden, uint64_t seed, FILE *answers, bool reference, bool all)
{
    Program p;
    Err err = {0};
    shared->seed = seed;
    shared->way = "plain";
    bool made = seed < FOUND ? program_parse(&p, before[seed]) : program_make(&p, golden, seed);
    if (o->print) program_print(&p);
    Case c = {.seed = seed, .p = &p, .g = made ? program_graph(&p, &err) : NULL};
    if (c.g && reference) refer(o, &c, answers);
    else if (c.g) compare_level(o, &c, answers, all);
    graph_free((Graph *)(uintptr_t)c.g);
    program_free(&p);
}

/* ------------------------------------------------------------------ levels */

static void child(const Options *o, const Golden *golden, CpuLevel level, bool all)
{
    char path[1024];
    bool reference = level == CPU_REF && !all;
    setenv("QKV_CPU", cpu_level_name(level), 1);
    snprintf(path, sizeof path, "%s/answers", o->folder);
    FILE *f = fopen(path, reference ? "wb" : "rb");
    if (!f) exit(2);
    for (int i = 0; i < FOUND; i++) one_seed(o, golden, (uint64_t)i, f, reference, all);
    for (int i = 0; i < o->runs; i++) one_seed(o, golden, o->seed + (uint64_t)i, f, reference, all);
    exit(fclose(f) ? 2 : 0);
}

static void run_level(const Options *o, const Golden *golden, CpuLevel level, bool all)
{
    shared->found = shared->compared = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) child(o, golden, level, all);
    int status = 0;
    bool fine = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (fine) tap_ok(!shared->found, "%s: %d programs of %d seeds from %llu, %d results compared, %d differ",
                     cpu_level_name(level), shared->made, o->runs, (unsigned long long)o->seed, shared->compared,
                     shared->found);
    else tap_ok(false, "%s: seed %llu, %s: ended with %d", cpu_level_name(level), (unsigned long long)shared->seed,
                shared->way, status);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"runs", 1, NULL, 'r'}, {"seed", 1, NULL, 's'}, {"keep", 0, NULL, 'k'}, {"print", 0, NULL, 'p'}, {0}};
    Options o = {.runs = 100, .seed = FOUND};
    Golden golden;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'r') o.runs = atoi(optarg);
        else if (c == 's') o.seed = strtoull(optarg, NULL, 10);
        else if (c == 'k') o.keep = true;
        else if (c == 'p') o.print = true;
        else return 2;
    }
    if (argc - optind < 2) {
        fprintf(stderr, "usage: run_calls tests/ops FOLDER [--runs N] [--seed N] [--keep] [--print] [WORD...]\n");
        return 2;
    }
    o.golden = argv[optind];
    o.folder = argv[optind + 1];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !golden_read(&golden, o.golden, argv + optind + 2, argc - optind - 2)) return 2;
    run_level(&o, &golden, CPU_REF, false);
    for (int l = CPU_GEN; l <= (int)cpu_best(); l++)
        if (cpu_has((CpuLevel)l)) run_level(&o, &golden, (CpuLevel)l, l == (int)cpu_best());
    golden_free(&golden);
    return tap_done();
}
