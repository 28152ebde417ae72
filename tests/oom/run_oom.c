/* Memory that runs out: each scenario is repeated with its n-th allocation refused, for n = 1, 2, ..., once and from
 * then on. It must give QKV_LIMIT and say that memory ran out, or the same result as always; leave nothing allocated
 * and no file; and what it was made of must work afterwards. TAP.
 *
 *     run_oom tests/models/small tests/cli/models FOLDER [SCENARIO]
 *
 * QKV_OOM_ALL=N: every n from N on, not some dozens spread over them.
 */
#include "oom.h"
#include <dirent.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/api_impl.h"
#include "base/mem.h"
#include "ir/text.h"
#include "plan/fuse.h"
#include "qkv_train.h"
#include "run/session.h"
#include "tap.h"

enum { POINTS = 40 };

/* ------------------------------------------------------------------ the allocator */

static atomic_long live, asked, refuse_at; /* refuse_at 0: nothing is refused */
static bool for_ever;

static bool refused(void)
{
    long k = atomic_fetch_add(&asked, 1) + 1, at = atomic_load(&refuse_at);
    return at && (k == at || (for_ever && k > at));
}

static void *take(void *user, size_t alignment, size_t n)
{
    (void)user;
    if (refused()) return NULL;
    void *p = aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
    if (p) atomic_fetch_add(&live, 1);
    return p;
}

static void *grow(void *user, void *p, size_t n)
{
    (void)user;
    return refused() ? NULL : realloc(p, n);
}

static void release(void *user, void *p)
{
    (void)user;
    atomic_fetch_sub(&live, 1);
    free(p);
}

/* ------------------------------------------------------------------ scenarios */

void path_to(char *to, const char *folder, const char *name) { snprintf(to, 600, "%s/%s", folder, name); }

qkv_status say(World *w, char *text)
{
    for (char *ms = text; ms && (ms = strstr(ms, "\"ms\": ")); ms++) {
        const char *rest = ms + 6 + strcspn(ms + 6, ",}");
        memmove(ms + 6, rest, strlen(rest) + 1);
    }
    w->got = text ? strdup(text) : NULL;
    qkv_free(text);
    return text ? QKV_OK : QKV_LIMIT;
}

qkv_status say_file(World *w)
{
    FILE *f = fopen(w->out, "rb");
    unsigned long long sum = 14695981039346656037u, n = 0;
    char line[64];
    for (int c; f && (c = getc(f)) != EOF; n++) sum = (sum ^ (unsigned)c) * 1099511628211u;
    if (f) fclose(f);
    snprintf(line, sizeof line, "%llu bytes, %llx", n, sum);
    w->got = strdup(line);
    return QKV_OK;
}

void say_sum(World *w, const void *bytes, size_t n)
{
    unsigned long long sum = 14695981039346656037u;
    char line[64];
    for (size_t k = 0; k < n; k++) sum = (sum ^ ((const unsigned char *)bytes)[k]) * 1099511628211u;
    snprintf(line, sizeof line, "%llx", sum);
    w->got = strdup(line);
}

void say_outputs(World *w, qkv_session *s, const qkv_model *m)
{
    unsigned long long sum = 14695981039346656037u;
    char line[64];
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_tensor t;
        if (qkv_session_output(s, i, &t, NULL) != QKV_OK) continue;
        size_t n = qkv_dtype_size(t.dtype);
        for (int k = 0; k < t.rank; k++) n *= (size_t)t.shape[k];
        for (size_t k = 0; k < n; k++) sum = (sum ^ ((const unsigned char *)t.data)[k]) * 1099511628211u;
    }
    snprintf(line, sizeof line, "%llx", sum);
    w->got = strdup(line);
}

static qkv_status load(World *w, const char *path, qkv_error *e)
{
    qkv_model *m = qkv_model_load(path, NULL, e);
    char *text = m ? qkv_model_describe(m, e) : NULL;
    qkv_status s = text ? say(w, text) : e->code;
    qkv_model_free(m);
    return s;
}

static qkv_status load_pt2(World *w, qkv_error *e) { return load(w, w->pt2, e); }
static qkv_status load_control(World *w, qkv_error *e) { return load(w, w->control, e); }
static qkv_status load_duals(World *w, qkv_error *e) { return load(w, w->duals, e); }
static qkv_status load_onnx(World *w, qkv_error *e) { return load(w, w->onnx, e); }
static qkv_status load_qkv(World *w, qkv_error *e) { return load(w, w->qkv, e); }

static qkv_status text(World *w, qkv_error *e)
{
    char *t = qkv_model_graph_text(w->model, e);
    return t ? say(w, t) : e->code;
}

/* A model's first session: the graph is copied and rewritten. */
static qkv_status first_run(World *w, qkv_error *e)
{
    qkv_model *m = qkv_model_load(w->pt2, NULL, e);
    qkv_session *s = m ? qkv_session_create(m, &(qkv_session_options){sizeof(qkv_session_options), .threads = 1}, e)
                       : NULL;
    qkv_status r = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, e) : e->code;
    if (r == QKV_OK) r = qkv_session_run(s, e);
    if (r == QKV_OK) say_outputs(w, s, m);
    qkv_session_free(s);
    qkv_model_free(m);
    return r;
}

static qkv_status new_session(World *w, qkv_error *e)
{
    qkv_session *s = qkv_session_create(w->model, &(qkv_session_options){sizeof(qkv_session_options), .threads = 1}, e);
    qkv_status r = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, e) : e->code;
    for (int i = 0; i < 2 && r == QKV_OK; i++) r = qkv_session_run(s, e); /* the second packs weights */
    if (r == QKV_OK) say_outputs(w, s, w->model);
    qkv_session_free(s);
    return r;
}

static qkv_status rewrite(World *w, qkv_error *e)
{
    qkv_model *m = qkv_model_load(w->pt2, NULL, e);
    char *report = NULL;
    qkv_rewrite_options o = {sizeof o, .prove = 1, .seeds = 1};
    qkv_model *made = m ? qkv_model_rewrite(m, &o, &report, e) : NULL;
    qkv_status r = made ? say(w, report) : e->code;
    if (!made) qkv_free(report);
    qkv_model_free(m); /* before what was made from it */
    qkv_model_free(made);
    return r;
}

static qkv_status certify(World *w, qkv_error *e)
{
    qkv_model *made = qkv_model_rewrite(w->model, NULL, NULL, e);
    char *text = NULL;
    qkv_status r = made ? qkv_model_save_certified(made, w->model, NULL, w->out, &text, e) : e->code;
    if (r == QKV_OK) r = qkv_certificate_check(w->model, w->model, text, NULL, e);
    if (r == QKV_MISMATCH) r = say(w, text); /* it is not about the model itself */
    else qkv_free(text), unlink(w->out);     /* which is whole where the check alone had no memory */
    qkv_model_free(made);
    return r;
}

/* Pairs of loops and branches are proved as graphs are. */
static qkv_status certify_bodies(World *w, qkv_error *e)
{
    qkv_model *m = qkv_model_load(w->control, NULL, e), *made = m ? qkv_model_rewrite(m, NULL, NULL, e) : NULL;
    char *text = NULL;
    qkv_status r = made ? qkv_model_save_certified(made, m, NULL, w->out, &text, e) : e->code;
    if (r == QKV_OK) r = say(w, text);
    qkv_model_free(made);
    qkv_model_free(m);
    return r;
}

static qkv_status read_rules(World *w, qkv_error *e)
{
    qkv_model *m = qkv_model_load(w->pt2, NULL, e);
    const char *files[] = {w->rules};
    qkv_rewrite_options o = {sizeof o, .rule_files = files, .rule_file_count = 1, .no_builtin_rules = 1};
    char *report = NULL;
    qkv_model *made = m ? qkv_model_rewrite(m, &o, &report, e) : NULL;
    qkv_status r = made ? say(w, report) : e->code;
    if (!made) qkv_free(report);
    qkv_model_free(made);
    qkv_model_free(m);
    return r;
}

static qkv_status save_pt2(World *w, qkv_error *e)
{
    qkv_status r = qkv_model_save(w->model, w->out, e);
    return r == QKV_OK ? say_file(w) : r;
}

static qkv_status save_onnx(World *w, qkv_error *e)
{
    char *report = NULL;
    qkv_status r = qkv_model_save_onnx(w->model, w->out, NULL, &report, e);
    if (r == QKV_OK) r = say(w, report);
    else qkv_free(report);
    return r;
}

/* Functions of float64, which ONNX Runtime lacks and which are written out. */
static qkv_status save_double(World *w, qkv_error *e)
{
    Err err = {0};
    mem_begin();
    Graph *g = graph_parse("input %x: f64[2, 4]\n%a: f64[2, 4] = aten.erf.default(%x)\n"
                           "%b: f64[2, 4] = aten.atan.default(%a)\n%c: f64[2, 4] = aten.tan.default(%b)\n"
                           "output y = %c\n",
                           NULL, NULL, &err);
    qkv_model *m = g ? api_model_of(g, "double", w->model, &err) : NULL;
    char *report = NULL;
    qkv_onnx_options o = {.struct_size = sizeof o, .profile = QKV_ONNX_ORT};
    qkv_status r = m ? qkv_model_save_onnx(m, w->out, &o, &report, e) : api_give(&err, e);
    if (r == QKV_OK) r = say(w, report);
    else qkv_free(report);
    qkv_model_free(m);
    return r;
}

static qkv_status pack(World *w, qkv_error *e)
{
    qkv_status r = qkv_model_pack(w->model, w->out, NULL, e);
    return r == QKV_OK ? say_file(w) : r;
}

/* One training step. */
static qkv_status train(World *w, qkv_error *e)
{
    qkv_train_options o = {.struct_size = sizeof o};
    qkv_status r = qkv_train_defaults(&o, QKV_OPTIMIZER_ADAMW, e);
    qkv_model *m = r == QKV_OK ? qkv_model_joint(w->trains, NULL, NULL, e) : NULL;
    qkv_session *s = m ? qkv_session_create(
                             m, &(qkv_session_options){sizeof(qkv_session_options), .threads = 1, .train = &o}, e)
                       : NULL;
    r = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, e) : e->code;
    if (r == QKV_OK) r = qkv_session_step(s, NULL, e);
    if (r == QKV_OK) say_outputs(w, s, m);
    if (r == QKV_OK) r = qkv_session_save(s, w->out, e);
    qkv_session_free(s);
    qkv_model_free(m);
    return r;
}

static qkv_status joint(World *w, qkv_error *e)
{
    char *report = NULL;
    qkv_model *m = qkv_model_joint(w->trains, NULL, &report, e);
    qkv_status r = m ? say(w, report) : e->code;
    if (!m) qkv_free(report);
    qkv_model_free(m);
    return r;
}

static qkv_status extract(World *w, qkv_error *e)
{
    qkv_model *m = qkv_model_extract(w->model, NULL, 0, NULL, 0, e);
    char *t = m ? qkv_model_graph_text(m, e) : NULL;
    qkv_status r = t ? say(w, t) : e->code;
    qkv_model_free(m);
    return r;
}

static qkv_status check(World *w, const char *path, qkv_error *e)
{
    char *report = NULL;
    qkv_status r = qkv_check(path, &(qkv_check_options){sizeof(qkv_check_options), .security = 1, .full = 1}, &report,
                             e);
    if (r == QKV_OK) r = say(w, report);
    else qkv_free(report);
    return r;
}

static qkv_status check_pt2(World *w, qkv_error *e) { return check(w, w->pt2, e); }
static qkv_status check_onnx(World *w, qkv_error *e) { return check(w, w->onnx, e); }

static qkv_status backends(World *w, qkv_error *e)
{
    char *report = qkv_model_backends(w->model,
                                      &(qkv_backends_options){sizeof(qkv_backends_options), .device = "cuda-sm90"}, e);
    return report ? say(w, report) : e->code;
}

static qkv_status prove(World *w, qkv_error *e)
{
    char *report = NULL;
    qkv_prove_options o = {.struct_size = sizeof o, .sizes = 1, .seeds = 1};
    qkv_status r = qkv_model_prove(w->model, w->model, &o, &report, e);
    if (r != QKV_OK) qkv_free(report);
    return r == QKV_OK ? say(w, report) : r;
}

static qkv_status tensors(World *w, qkv_error *e)
{
    float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t shape[] = {2, 3};
    const char *name = "x";
    qkv_tensor t = {QKV_F32, 2, shape, NULL, x};
    qkv_status r = qkv_tensors_write(w->out, &name, &t, 1, e);
    qkv_tensors *all = r == QKV_OK ? qkv_tensors_open(w->out, e) : NULL;
    if (r == QKV_OK && !all) r = e->code;
    if (all) w->got = strdup(qkv_tensors_find(all, "x") ? "x" : "nothing");
    else unlink(w->out);
    qkv_tensors_free(all);
    return r;
}

/* Sizes, as they are read and as they print: folded, divided, bounded. */
static qkv_status sizes(World *w, qkv_error *e)
{
    static const char *const text[] = {
        "s0 % 4 == 0",    "s0 // (s0 // 4)",        "(s0 // 4) * 4 + s0 % 4",          "s0 ** 3 // s0 % s0",
        "s1 % 4 == 0",    "8*s0 // (s0 // 4)",      "12*s0 // (s0//4 * (s1//4) * s2)", "(s0*s1 + s0) // (s0*s1*s2)",
        "s1 <= s0",       "Max(0, s0 - s1)",        "Min(s0, s0 // 2 + s0 % 2) % 8",   "(6*s0 + 6*s1) // (4*s2)",
        "(s1 + 3) // s1", "s0 - s0 // 2 - s0 // 4", "(s0 + 7) * (s1 + 2) // (s0 + 7)", "s0 * s1 % (s0 * s1)"};
    Arena *a = arena_create(0);
    ExprPool *p = a ? expr_pool(a) : NULL;
    Buf out = {0};
    Err err = {0};
    mem_begin();
    bool ok = p && ex_symbol(p, "s0") && ex_symbol(p, "s1") && ex_symbol(p, "s2");
    if (!ok) oom(&err);
    for (int i = 0; ok && i < 3; i++) expr_set_range(p, i, 2, 1000);
    for (int i = 0; ok && i < (int)(sizeof text / sizeof *text); i++) {
        const Expr *x = ex_parse(p, text[i], NULL, NULL, &err);
        if (i % 4 == 0) expr_assume(p, x);
        if ((ok = x != NULL)) ex_print(p, x, &out);
    }
    ok = ok && (!(mem_ran_out() || out.failed) || oom(&err));
    if (ok) w->got = strdup(out.data);
    buf_free(&out);
    expr_pool_free(p);
    arena_destroy(a);
    return ok ? QKV_OK : api_give(&err, e);
}

/* Numbers each of which is read from a tensor as long as the one before says: parts of one plan. */
static qkv_status chain(World *w, qkv_error *e)
{
    enum { LENGTH = 34 };
    Buf text = {0};
    Err err = {0};
    mem_begin();
    for (int i = 0; i < LENGTH; i++) buf_printf(&text, "symbol u%d = item %%n%d in [0, 9]\n", i, i);
    buf_puts(&text, "input %x: i64[2]\n");
    for (int i = 0; i < LENGTH; i++) {
        if (i) buf_printf(&text, "%%m%d: i64[u%d] = aten.full.default([(u%d)], 3, dtype=i64)\n", i, i - 1, i - 1);
        buf_printf(&text, "%%s%d: i64[%s%.*d] = aten.neg.default(%%%s%.*d)\n", i, i ? "u" : "2", i > 0, i ? i - 1 : 0,
                   i ? "m" : "x", i > 0, i);
        buf_printf(&text, "%%t%d: i64[] = aten.select.int(%%s%d, 0, 0)\n%%n%d: i64[] = aten.neg.default(%%t%d)\n", i, i,
                   i, i);
    }
    buf_printf(&text, "output y = %%n%d\n", LENGTH - 1);
    Graph *g = text.failed ? NULL : graph_parse(text.data, NULL, NULL, &err);
    Session *s = g ? session_create(g, NULL, 1, 0, &err) : NULL;
    Tensor x = tensor_of(DT_I64, 1, (int64_t[]){2}, (int64_t[]){3, 4});
    bool ok = s && session_set_input(s, 0, &x, &err) && session_run(s, &err);
    if (ok) say_sum(w, session_output(s, 0)->data, sizeof(int64_t));
    if (!ok && err.code == E_OK) oom(&err);
    session_free(s);
    graph_free(g);
    buf_free(&text);
    return ok ? QKV_OK : api_give(&err, e);
}

static const Tensor *halves_of_one(void *user, const char *fqn)
{
    static uint16_t data[64];
    static Tensor t;
    (void)user;
    (void)fqn;
    for (int i = 0; i < 64; i++) data[i] = 0x3f80;
    t = tensor_of(DT_BF16, 2, (const int64_t[]){8, 8}, data);
    return &t;
}

/* A product of 1 + 2^-9 less 1: 0 where it is rounded to bf16 first, as where it is counted, and 2^-9 in the fused
 * plan. The session then runs again, each node once (stages_once). */
static qkv_status counted_again(World *w, qkv_error *e)
{
    static const char text[] =
        "symbol u0 = size %i 0 in [0, 32]\ninput %x: bf16[4, 8]\ninput %r: bf16[4, 8]\n"
        "weight %w: bf16[8, 8] = parameter \"w\"\n%p: bf16[4, 8] = aten.linear.default(%x, %w, none)\n"
        "%h: bf16[4, 8] = aten.add.Tensor(%p, %r)\n%g: bool[4, 8] = aten.gt.Tensor(%h, 0)\n"
        "%i: i64[u0, 2] = aten.nonzero.default(%g)\n%j: i64[u0, 2] = aten.neg.default(%i)\n"
        "output h = %h\noutput j = %j\n";
    uint16_t x[32], r[32];
    for (int i = 0; i < 32; i++) {
        x[i] = i % 8 == 0 ? 0x3f80 : i % 8 == 1 ? 0x3b00 : 0; /* 1, 2^-9 */
        r[i] = 0xbf80;
    }
    Err err = {0};
    Fusion fusion = {0};
    mem_begin();
    Graph *g = graph_parse(text, halves_of_one, NULL, &err);
    Session *s = g && fuse_graph(g, &fusion, &err) ? session_create(g, &fusion, 1, 0, &err) : NULL;
    Tensor in[2];
    for (int i = 0; i < 2; i++) in[i] = tensor_of(DT_BF16, 2, (const int64_t[]){4, 8}, i ? r : x);
    bool ok = s && session_set_input(s, 0, &in[0], &err) && session_set_input(s, 1, &in[1], &err) &&
              session_run(s, &err);
    if (ok) say_sum(w, session_output(s, 0)->data, tensor_bytes(session_output(s, 0)));
    if (!ok && err.code == E_OK) oom(&err);
    session_free(s);
    fusion_free(&fusion);
    graph_free(g);
    return ok ? QKV_OK : api_give(&err, e);
}

static const Scenario scenarios[] = {
    {"a chain of sizes of data", chain},
    {"counted again", counted_again},
    {"sizes", sizes},
    {"load a .pt2", load_pt2},
    {"load branches and loops", load_control},
    {"load forward derivatives", load_duals},
    {"load an .onnx", load_onnx},
    {"load a .qkv", load_qkv},
    {"the graph as text", text},
    {"a first session", first_run},
    {"a session", new_session},
    {"rewrite and prove", rewrite},
    {"rules of a file", read_rules},
    {"certify", certify},
    {"certify bodies", certify_bodies},
    {"save a .pt2", save_pt2},
    {"save an .onnx", save_onnx},
    {"save float64 as .onnx", save_double},
    {"pack", pack},
    {"joint", joint},
    {"a training step", train},
    {"extract", extract},
    {"check a .pt2", check_pt2},
    {"check an .onnx", check_onnx},
    {"backends", backends},
    {"prove", prove},
    {"tensors", tensors},
};

static const Tensor *weight(void *user, const char *fqn)
{
    static float data[12] = {0.1f, -0.2f, 0.3f, 0.4f, 0.5f, -0.6f, 0.7f, 0.8f, -0.9f, 1.0f, 0.2f, 0.1f};
    static Tensor t;
    (void)user;
    (void)fqn;
    t = tensor_of(DT_F32, 2, (const int64_t[]){3, 4}, data);
    return &t;
}

static qkv_model *small_regression(const qkv_model *like)
{
    Err err = {0};
    Graph *g = graph_parse("input %x: f32[2, 4]\nweight %w: f32[3, 4] = parameter \"w\"\n"
                           "%y: f32[2, 3] = aten.linear.default(%x, %w, none)\n%t: f32[2, 3] = aten.tanh.default(%y)\n"
                           "%l: f32[] = aten.mean.dim(%t, none)\noutput output_0 = %l\n",
                           weight, NULL, &err);
    qkv_model *m = g ? api_model_of(g, "regression", like, &err) : NULL;
    if (!m) printf("# %s\n", err.msg);
    return m;
}

/* ------------------------------------------------------------------ the sweep */

static int files_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static qkv_status once(World *w, const Scenario *c, long at, bool forever, qkv_error *e)
{
    *e = (qkv_error){0};
    free(w->got);
    w->got = NULL;
    for_ever = forever;
    atomic_store(&asked, 0);
    atomic_store(&refuse_at, at);
    qkv_status s = c->run(w, e);
    atomic_store(&refuse_at, 0);
    return s;
}

/* What is wrong at this point; NULL: nothing. */
static const char *judge(World *w, const Scenario *c, long at, bool forever, long before, int files, qkv_error *e)
{
    static char why[1400];
    qkv_status s = once(w, c, at, forever, e);
    bool same = w->got && !strcmp(w->got, w->expected), left = files_in(w->folder) != files;
    if (s == QKV_OK) unlink(w->out);
    if (s == QKV_OK && !same)
        snprintf(why, sizeof why, "success, but another result: %.400s", w->got ? w->got : "none");
    else if (s != QKV_OK && s != QKV_LIMIT) snprintf(why, sizeof why, "status %d: %s", (int)s, e->message);
    else if (s == QKV_LIMIT && !strstr(e->message, "out of memory"))
        snprintf(why, sizeof why, "it does not say that memory ran out: '%s'", e->message);
    else if (s != QKV_OK && left) snprintf(why, sizeof why, "a file is left");
    else if (atomic_load(&live) > before)
        snprintf(why, sizeof why, "%ld allocations are left", atomic_load(&live) - before);
    else return NULL;
    return why;
}

static void sweep(World *w, const Scenario *c)
{
    const char *from = getenv("QKV_OOM_ALL");
    qkv_error e;
    qkv_status s = once(w, c, 0, false, &e);
    unlink(w->out);
    if (!tap_ok(s == QKV_OK, "%s: with memory%s%s", c->name, s ? ": " : "", e.message)) return;
    free(w->expected);
    w->expected = strdup(w->got);
    long before = atomic_load(&live);
    once(w, c, 0, false, &e);
    unlink(w->out);
    long n = atomic_load(&asked), bad = 0, step = from ? 1 : n / POINTS + 1, first = from ? strtol(from, NULL, 10) : 1;
    tap_ok(atomic_load(&live) == before, "%s: nothing is left allocated", c->name);
    int files = files_in(w->folder);
    for (long at = first > 1 ? first : 1; at <= n; at += step)
        for (int forever = 0; forever < 2; forever++) {
            const char *why = judge(w, c, at, forever, before, files, &e);
            if (why && bad++ < 5)
                printf("# %s: allocation %ld of %ld refused %s: %s\n", c->name, at, n, forever ? "for ever" : "once",
                       why);
            before = atomic_load(&live);
        }
    s = once(w, c, 0, false, &e);
    unlink(w->out);
    tap_ok(!bad, "%s: %ld allocations, every %ld. refused: %ld wrong", c->name, n, step, bad);
    if (!tap_ok(s == QKV_OK && !strcmp(w->got, w->expected), "%s: the same afterwards", c->name))
        printf("# %s\n# %s\n", w->expected, w->got ? w->got : e.message);
}

/* A rule that never fires, with a name so long that the arena takes memory for it alone. */
static bool write_rules(const char *path)
{
    enum { LONG = 1 << 17 };
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f, "(rule long_%0*d (gelu (gelu ?x)) (gelu ?x :approximate \"tanh\"))\n", LONG, 0);
    return fclose(f) == 0;
}

int main(int argc, char **argv)
{
    static World w;
    qkv_error e;
    qkv_allocator a = {sizeof a, take, grow, release, NULL};
    if (argc < 4) return 2;
    w.small = argv[1];
    w.cli = argv[2];
    snprintf(w.folder, sizeof w.folder, "%s", argv[3]);
    tap_ok(qkv_set_allocator(&a, &e) == QKV_OK, "an allocator is set");
    path_to(w.pt2, w.small, "mha_self.pt2");
    path_to(w.control, w.small, "control_nested.pt2");
    path_to(w.duals, w.small, "forward_derivatives.pt2");
    path_to(w.onnx, w.folder, "m.onnx");
    path_to(w.qkv, w.folder, "m.qkv");
    path_to(w.rules, w.folder, "m.rules");
    path_to(w.out, w.folder, "out.safetensors");
    w.model = qkv_model_load(w.pt2, NULL, &e);
    bool ok = w.model && qkv_model_save_onnx(w.model, w.onnx, NULL, NULL, &e) == QKV_OK &&
              qkv_model_pack(w.model, w.qkv, NULL, &e) == QKV_OK && write_rules(w.rules) && more_open(&w);
    if (!tap_ok(ok, "the models are made")) return tap_done();
    tap_ok(qkv_set_allocator(&a, &e) == QKV_USAGE, "and not again");
    w.trains = small_regression(w.model);
    tap_ok(w.trains != NULL, "a model to train");
    for (size_t k = 0; k < sizeof scenarios / sizeof *scenarios; k++)
        if (argc < 5 || strstr(scenarios[k].name, argv[4])) sweep(&w, &scenarios[k]);
    for (const Scenario *c = more; c->name; c++)
        if (argc < 5 || strstr(c->name, argv[4])) sweep(&w, c);
    qkv_model_free(w.ground);
    qkv_model_free(w.trains);
    qkv_model_free(w.model);
    free(w.expected);
    free(w.got);
    tap_ok(atomic_load(&live) == 0, "all memory is back: %ld left", atomic_load(&live));
    return tap_done();
}
