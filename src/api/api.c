/* The public interface over the library: models, sessions, files. Contracts in include/qkv.h. */
#include "api/api_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/version.h"
#include "facts/rounding.h"
#include "program/describe.h"
#include "program/pack.h"
#include "program/passes.h"
#include "program/equal.h"
#include "program/prepare.h"
#include "run/session.h"
#include "shape/solve.h"
#include "tensor/tolerance.h"
#include "verify/compare.h"

_Static_assert((int)QKV_F32 == (int)DT_F32 && (int)QKV_BOOL == (int)DT_BOOL && (int)QKV_F4E2M1 == (int)DT_F4E2M1,
               "dtype codes agree");
_Static_assert((int)QKV_MAX_RANK == (int)MAX_RANK, "ranks agree");

/* ------------------------------------------------------------------ errors */

/* Hands an internal error out. */
static qkv_status give(const Err *from, qkv_error *to)
{
    qkv_status s = (qkv_status)err_exit_code(from->code);
    if (to) {
        to->code = s;
        snprintf(to->message, sizeof to->message, "%s", from->msg);
    }
    return s;
}

void *api_null(const Err *from, qkv_error *to)
{
    give(from, to);
    return NULL;
}

void *api_no_memory(qkv_error *to)
{
    Err e;
    oom(&e);
    return api_null(&e, to);
}

qkv_status api_give(const Err *from, qkv_error *to) { return give(from, to); }

const char *qkv_version(void) { return QKV_VERSION; }
const char *qkv_cpu(void) { return cpu_level_name(cpu_level()); }
void qkv_free(void *p) { mem_free(p); }

qkv_status qkv_set_allocator(const qkv_allocator *allocator, qkv_error *err)
{
    qkv_allocator a = {0};
    Err e = api_begin();
    if (!VERSIONED_TAKE(qkv_allocator, user, &a, allocator, &e)) return give(&e, err);
    if (!a.alloc || !a.grow || !a.release)
        fail(&e, E_USAGE, "an allocator has three functions: alloc, grow and release");
    else if (!mem_set(&(MemHooks){a.alloc, a.grow, a.release, a.user}))
        fail(&e, E_USAGE, "an allocator is set before anything else is called");
    return e.code == E_OK ? QKV_OK : give(&e, err);
}

void qkv_get_allocator(qkv_allocator *out)
{
    if (!out) return;
    MemHooks h = mem_hooks();
    qkv_allocator all = {out->struct_size, h.alloc, h.grow, h.release, h.user};
    memcpy(out, &all, out->struct_size < sizeof all ? out->struct_size : sizeof all);
}

qkv_status qkv_set_files(const qkv_files *files, qkv_error *err)
{
    qkv_files f = {0};
    Err e = api_begin();
    if (!VERSIONED_TAKE(qkv_files, user, &f, files, &e)) return give(&e, err);
    if (!f.open || !f.rename || !f.remove)
        fail(&e, E_USAGE, "files are made by three functions: open, rename and remove");
    else file_hook(&(FileHooks){f.open, f.rename, f.remove, f.user});
    return e.code == E_OK ? QKV_OK : give(&e, err);
}

qkv_status qkv_onnx_data_files(const char *path, qkv_data_file_callback *each, void *user, qkv_error *err)
{
    Err e = api_begin();
    if (!each) fail(&e, E_USAGE, "%s: each is NULL", __func__);
    if (!each || !GIVEN(path)) return give(&e, err);
    return onnx_data_files(path, each, user, &e) || within(&e, "%s", path) ? QKV_OK : give(&e, err);
}

void qkv_interrupted(void) { outfile_abort_all(); }

/* ------------------------------------------------------------------ tensors */

const char *qkv_dtype_name(qkv_dtype t) { return (int)t >= 0 && (int)t < DT_COUNT ? dtype_name((DType)t) : "none"; }
qkv_dtype qkv_dtype_from_name(const char *name) { return name ? (qkv_dtype)dtype_from_name(name) : QKV_NONE; }
size_t qkv_dtype_size(qkv_dtype t) { return (int)t >= 0 && (int)t < DT_COUNT ? dtype_size((DType)t) : 0; }

bool api_tensor(const qkv_tensor *q, Tensor *t, Err *err)
{
    if (!q || (int)q->dtype <= 0 || (int)q->dtype >= DT_COUNT)
        return fail(err, E_USAGE, "a tensor without a known dtype");
    if (q->rank < 0 || q->rank > MAX_RANK) return fail(err, E_USAGE, "rank %d: allowed is 0 to %d", q->rank, MAX_RANK);
    if (q->rank && !q->shape) return fail(err, E_USAGE, "a tensor of rank %d whose shape is NULL", q->rank);
    *t = (Tensor){.dtype = (DType)q->dtype, .rank = q->rank, .data = q->data};
    for (int i = 0; i < q->rank; i++) t->shape[i] = q->shape[i];
    size_t bytes;
    TRY(shape_bytes(t->dtype, t->rank, t->shape, &bytes, err));
    if (q->strides)
        for (int i = 0; i < q->rank; i++) t->stride[i] = q->strides[i];
    else strides_contiguous(t->rank, t->shape, t->stride);
    if (bytes && !q->data) return fail(err, E_USAGE, "a tensor of %zu bytes without data", bytes);
    return true;
}

void api_tensor_out(const Tensor *t, Shown *shown, qkv_tensor *q)
{
    memcpy(shown->shape, t->shape, sizeof shown->shape);
    memcpy(shown->stride, t->stride, sizeof shown->stride);
    *q = (qkv_tensor){(qkv_dtype)t->dtype, t->rank, shown->shape, shown->stride, t->data};
}

/* ------------------------------------------------------------------ models */

static bool input_texts(qkv_model *m)
{
    const Graph *g = m->program.graph;
    m->input_dim = mem_zeroed((size_t)g->ninput + 1, sizeof *m->input_dim);
    for (int i = 0; m->input_dim && i < g->ninput; i++) {
        if (!(m->input_dim[i] = mem_zeroed(MAX_RANK + 1, sizeof **m->input_dim))) return false;
        for (int k = 0; k < g->input[i]->rank; k++) {
            Buf b = {0};
            ex_print(g->ex, g->input[i]->dim[k], &b);
            m->input_dim[i][k] = b.data;
            if (b.failed) return false;
        }
    }
    return m->input_dim != NULL;
}

static bool fixed_inputs(const qkv_load_options *o, OpenOptions *open, Err *err)
{
    if (!o->n_fixed) return true;
    Tensor *t = mem_zeroed((size_t)o->n_fixed, sizeof *t);
    if (!t) return oom(err);
    open->fixed = (Fixed){o->fixed_names, t, o->n_fixed};
    for (int i = 0; i < o->n_fixed; i++)
        TRY(api_tensor(&o->fixed[i], &t[i], err) || within(err, "input '%s'", o->fixed_names[i]));
    return true;
}

qkv_model *qkv_model_load(const char *path, const qkv_load_options *options, qkv_error *err)
{
    qkv_load_options o = {0};
    Err e = api_begin();
    if (!GIVEN(path) || !VERSIONED_TAKE(qkv_load_options, skip_padding, &o, options, &e) ||
        !GIVEN_TEXTS(o.fixed_names, o.n_fixed) || !GIVEN_LIST(o.fixed, o.n_fixed))
        return api_null(&e, err);
    if (o.compute != QKV_NONE && o.compute != QKV_F32 && o.compute != QKV_BF16) {
        fail(&e, E_USAGE, "compute dtype '%s': allowed are f32 and bf16", qkv_dtype_name(o.compute));
        return api_null(&e, err);
    }
    qkv_model *m = mem_zeroed(1, sizeof *m);
    if (!m || !(m->path = mem_strdup(path))) {
        mem_free(m);
        return api_no_memory(err);
    }
    OpenOptions open = {
        .compute = o.compute == QKV_BF16 ? DT_BF16 : DT_NONE,
        .no_fuse = o.no_fuse != 0,
        .copy = o.no_mmap != 0,
        .skip_padding = o.skip_padding != 0,
    };
    m->cached.folder = o.cache;
    bool ok = fixed_inputs(&o, &open, &e) && (o.cache ? program_open_kept(&m->program, path, &open, &m->cached, &e)
                                                      : program_open(&m->program, path, &open, &e));
    m->cached.folder = NULL; /* the caller's */
    mem_free((void *)(uintptr_t)open.fixed.value);
    ok = ok && (input_texts(m) || oom(&e));
    if (api_whole(ok, &e)) return m;
    qkv_model_free(m);
    return api_null(&e, err);
}

qkv_model *qkv_model_load_memory(const void *bytes, size_t size, const qkv_load_options *options, qkv_error *err)
{
    static const char name[] = "(memory)";
    Err e = api_begin();
    if (!GIVEN(bytes)) return api_null(&e, err);
    file_give(name, bytes, size);
    qkv_model *m = qkv_model_load(name, options, err);
    file_give(NULL, NULL, 0);
    return m;
}

static bool finish(qkv_model *m, const char *name, Err *err)
{
    m->path = mem_strdup(name);
    return (m->path && input_texts(m) && !mem_ran_out()) || oom(err);
}

qkv_model *api_model_of(Graph *g, const char *name, const qkv_model *like, Err *err)
{
    qkv_model *m = mem_zeroed(1, sizeof *m);
    if (!m) graph_free(g);
    bool ok = m ? program_of_graph(&m->program, g, &like->program, err) : oom(err);
    if (ok && !like->program.no_fuse) m->program.compute = like->program.compute; /* else the graph has its casts */
    if (ok && finish(m, name, err)) return m;
    qkv_model_free(m);
    return NULL;
}

qkv_model *api_model_copy(const qkv_model *m, Err *err)
{
    qkv_model *copy = mem_zeroed(1, sizeof *copy);
    bool ok = copy ? program_copy(&copy->program, &m->program, err) : oom(err);
    if (ok && finish(copy, m->path, err)) return copy;
    qkv_model_free(copy);
    return NULL;
}

static void free_texts(qkv_model *m)
{
    int n = m->program.graph ? m->program.graph->ninput : 0;
    for (int i = 0; m->input_dim && i < n; i++) {
        for (int k = 0; m->input_dim[i] && k < MAX_RANK; k++) mem_free(m->input_dim[i][k]);
        mem_free(m->input_dim[i]);
    }
    mem_free(m->input_dim);
    m->input_dim = NULL;
}

bool api_input_texts(qkv_model *m, Err *err)
{
    free_texts(m);
    return input_texts(m) || oom(err);
}

void qkv_model_free(qkv_model *m)
{
    if (!m) return;
    free_texts(m);
    program_close(&m->program);
    cached_free(&m->cached);
    mem_free(m->path);
    mem_free(m);
}

int qkv_model_cached(const qkv_model *m, const char **note)
{
    if (note) *note = m ? m->cached.note.data : NULL;
    return m && m->cached.used;
}

qkv_model *qkv_model_rewrite(const qkv_model *m, const qkv_rewrite_options *options, char **report, qkv_error *err)
{
    qkv_rewrite_options q = {0};
    Err e = api_begin();
    if (report) *report = NULL;
    if (!GIVEN(m) || !VERSIONED_TAKE(qkv_rewrite_options, cudnn, &q, options, &e) ||
        !GIVEN_TEXTS(q.rule_files, q.rule_file_count) || !GIVEN_TEXTS(q.rule_texts, q.rule_text_count) ||
        !GIVEN_LIST(q.functions, q.n_functions))
        return api_null(&e, err);
    Family own = {0};
    OptimiseOptions o = {.rule_file = q.rule_files,
                         .nrule_files = q.rule_file_count,
                         .rule_text = q.rule_texts,
                         .nrule_texts = q.rule_text_count,
                         .own = &own,
                         .no_builtin = q.no_builtin_rules != 0,
                         .phases = q.phases,
                         .prove = q.prove ? prove_claim : NULL,
                         .prove_floats = q.prove == 2,
                         .seeds = q.seeds,
                         .counterexample = q.counterexample,
                         .exact_masked_rows = q.exact_masked_rows != 0,
                         .skip_padding = q.skip_padding != 0,
                         .unrounded = q.unrounded != 0,
                         .lift = q.lift_sdpa,
                         .cudnn = q.cudnn,
                         .progress = q.progress,
                         .progress_user = q.progress_user};
    Buf b = {0};
    qkv_model *made = api_rule_functions(q.functions, q.n_functions, &own, &e) ? api_model_copy(m, &e) : NULL;
    bool ok = api_whole(made && program_rewrite(&made->program, &o, &b, &e), &e);
    if (report) *report = b.failed ? NULL : b.data;
    if (!report || b.failed) buf_free(&b);
    api_rule_functions_free(&own);
    if (ok) return made;
    qkv_model_free(made);
    return api_null(&e, err);
}

qkv_status qkv_model_prove(const qkv_model *first, const qkv_model *second, const qkv_prove_options *options,
                           char **report, qkv_error *err)
{
    qkv_prove_options q = {0};
    Err e = api_begin();
    if (report) *report = NULL;
    if (!GIVEN(first) || !GIVEN(second) || !VERSIONED_TAKE(qkv_prove_options, counterexample, &q, options, &e) ||
        !GIVEN_TEXTS(q.dim_names, q.n_dims) || !GIVEN_LIST(q.dims, q.n_dims))
        return api_give(&e, err);
    EqualOptions o = {q.dim_names, q.dims, q.n_dims, q.sizes, q.seeds, q.floats != 0, q.counterexample};
    Buf b = {0};
    bool ok = api_whole(program_equal(&first->program, &second->program, &o, &b, &e), &e);
    if (report) *report = b.failed ? NULL : b.data;
    if (!report || b.failed) buf_free(&b);
    if (ok) e = (Err){0};
    return api_give(&e, err);
}

static const Graph *graph_of(const qkv_model *m) { return m->program.graph; }

static bool draws(const Graph *g)
{
    for (const Node *n = g->first; n; n = n->next) {
        if (n->op->flags & OPF_RANDOM) return true;
        for (int i = 0; i < n->op->schema->nparams; i++)
            if (n->arg[i].kind == ARG_GRAPH && draws(n->arg[i].g)) return true;
    }
    return false;
}

unsigned qkv_model_state(const qkv_model *m)
{
    if (!m) return 0;
    return (graph_of(m)->nmutation ? QKV_WRITES_BUFFERS : 0u) | (draws(graph_of(m)) ? QKV_DRAWS_RANDOM : 0u);
}

int qkv_model_input_count(const qkv_model *m) { return m ? graph_of(m)->ninput : 0; }
int qkv_model_output_count(const qkv_model *m) { return m ? graph_of(m)->noutput : 0; }

static const Value *input_at(const qkv_model *m, int i)
{
    return m && i >= 0 && i < graph_of(m)->ninput ? graph_of(m)->input[i] : NULL;
}

const char *qkv_model_input_name(const qkv_model *m, int i)
{
    return input_at(m, i) ? value_label(input_at(m, i)) : NULL;
}
qkv_dtype qkv_model_input_dtype(const qkv_model *m, int i)
{
    return input_at(m, i) ? (qkv_dtype)input_at(m, i)->dtype : QKV_NONE;
}
int qkv_model_input_rank(const qkv_model *m, int i) { return input_at(m, i) ? input_at(m, i)->rank : -1; }

const char *qkv_model_input_dim(const qkv_model *m, int i, int axis)
{
    const Value *v = input_at(m, i);
    return v && axis >= 0 && axis < v->rank ? m->input_dim[i][axis] : NULL;
}

const char *qkv_model_output_name(const qkv_model *m, int i)
{
    return m && i >= 0 && i < graph_of(m)->noutput ? graph_of(m)->output[i].name : NULL;
}

const char *qkv_model_output_label(const qkv_model *m, int i)
{
    return m && i >= 0 && i < graph_of(m)->noutput ? output_label(&graph_of(m)->output[i]) : NULL;
}

/* Only symbols that inputs bind are shown. */
static const Symbol *shown_symbol(const qkv_model *m, int i)
{
    const ExprPool *p = graph_of(m)->ex;
    for (int k = 0; k < expr_symbol_count(p); k++)
        if (expr_symbol(p, k)->source == SYM_INPUT && i-- == 0) return expr_symbol(p, k);
    return NULL;
}

int qkv_model_symbol_count(const qkv_model *m)
{
    int n = 0;
    while (m && shown_symbol(m, n)) n++;
    return n;
}

const char *qkv_model_symbol(const qkv_model *m, int i, int64_t *min, int64_t *max)
{
    const Symbol *s = m && i >= 0 ? shown_symbol(m, i) : NULL;
    if (!s) return NULL;
    if (min) *min = s->lo == INT64_MIN ? 0 : s->lo;
    if (max) *max = s->hi;
    return s->name;
}

char *qkv_model_describe(const qkv_model *m, qkv_error *err)
{
    Buf b = {0};
    Err e = api_begin();
    if (!GIVEN(m)) return api_null(&e, err);
    describe_model(m->path, m->program.source, &b);
    if (!b.failed && !mem_ran_out()) return b.data;
    buf_free(&b);
    return api_no_memory(err);
}

char *qkv_model_graph_text(const qkv_model *m, qkv_error *err)
{
    Buf b = {0};
    Err e = api_begin();
    if (!GIVEN(m)) return api_null(&e, err);
    graph_print(graph_of(m), &b);
    char *text = b.failed ? NULL : b.data ? b.data : mem_strdup(""); /* a graph of nothing */
    if (text) return text;
    buf_free(&b);
    return api_no_memory(err);
}

/* ------------------------------------------------------------------ sessions */

static bool take_executor(qkv_session *s, const qkv_executor *from, Err *err)
{
    qkv_executor x = {0};
    TRY(VERSIONED_TAKE(qkv_executor, user, &x, from, err));
    if (!x.run) return fail(err, E_USAGE, "qkv_executor: run is NULL, expected a function that runs tasks");
    s->executor = (TeamExecutor){x.run, x.user};
    return true;
}

qkv_session *qkv_session_create(const qkv_model *m, const qkv_session_options *options, qkv_error *err)
{
    qkv_session_options o = {0};
    Err e = api_begin();
    if (!GIVEN(m) || !VERSIONED_TAKE(qkv_session_options, passes, &o, options, &e)) return api_null(&e, err);
    qkv_session *s = mem_zeroed(1, sizeof *s);
    if (!s) return api_no_memory(err);
    s->model = m;
    s->output = mem_zeroed((size_t)graph_of(m)->noutput + 1, sizeof *s->output);
    s->input = mem_zeroed((size_t)graph_of(m)->ninput + 1, sizeof *s->input);
    const Graph *g;
    const Fusion *fusion;
    unsigned list = o.no_optimize ? PASSES_PLAIN_RUN : PASSES_RUN;
    bool ok = s->output && s->input && (!o.passes || passes_named(o.passes, &list, &e));
    int threads = o.threads > 0 ? o.threads : team_default();
    ok = ok && (!o.executor || take_executor(s, o.executor, &e));
    TeamStay before = team_enter(threads, s->executor.run ? &s->executor : NULL);
    bool portable = cpu_portable(o.portable_bits != 0);
    if (o.train) list |= PASS_BIT(PASS_TRAIN);
    ok = ok && program_for_runs(&m->program, list, &g, &fusion, &e);
    s->session = ok ? session_create(g, fusion, threads, o.memory_limit, &e) : NULL;
    ok = s->session && program_give_packed(&m->program, s->session, &e);
    ok = ok && (!o.train || api_training_create(s, o.train, threads, o.memory_limit, &e));
    cpu_portable(portable);
    team_leave(before);
    if (ok) return s;
    if (e.code == E_OK) oom(&e);
    qkv_session_free(s);
    return api_null(&e, err);
}

void qkv_session_free(qkv_session *s)
{
    if (!s || !api_enter_silent(s)) return;
    api_training_free(s);
    session_free(s->session);
    mem_free(s->output);
    mem_free(s->input);
    mem_free(s);
}

/* Of n things: "0", "1", ...; -1: no position. */
static int position_of(const char *text, int n)
{
    const char *end;
    long k = parse_int(text, &end);
    return *text && !*end && k >= 0 && k < n ? (int)k : -1;
}

int api_find_input(const Graph *g, const char *name)
{
    for (int i = 0; i < g->ninput; i++)
        if (!strcmp(value_label(g->input[i]), name) || !strcmp(g->input[i]->name, name)) return i;
    return position_of(name, g->ninput);
}

static int find_output(const Graph *g, const char *name)
{
    int i = graph_find_output(g, name);
    return i < 0 ? position_of(name, g->noutput) : i;
}

static int find_scalar(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nscalar_input; i++)
        if (!strcmp(g->scalar_input[i].name, name)) return i;
    return -1;
}

/* A number for an input that the file fixed, or for a dynamic integer. */
static bool set_scalar(qkv_session *s, int i, const Tensor *t, Err *err)
{
    const ScalarInput *in = &session_graph(s->session)->scalar_input[i];
    if (tensor_numel(t) != 1) return fail(err, E_USAGE, "input '%s': expected one number", in->name);
    if (in->value.kind != ARG_EXPR)
        return fail(err, E_USAGE, "input '%s' was fixed when the model was exported and is not a number; leave it out",
                    in->name);
    const Expr *e = in->value.e;
    double v = tensor_get(t, 0);
    if (e->kind == EX_SYM) {
        session_set_scalar(s->session, i, tensor_get_i64(t, 0));
        return true;
    }
    double fixed = ex_number(e);
    return v == fixed || fail(err, E_USAGE, "input '%s' is %g, but it was fixed to %g when the model was exported",
                              in->name, v, fixed);
}

bool api_unknown_input(const Graph *g, const char *name, Err *err)
{
    Buf b = {0};
    for (int i = 0; i < g->ninput; i++) buf_printf(&b, "%s%s", i ? ", " : "", value_label(g->input[i]));
    fail(err, E_USAGE, "no input is called '%s'; this model has %s", name, b.len ? b.data : "no inputs");
    buf_free(&b);
    return false;
}

qkv_status qkv_session_set_input(qkv_session *s, const char *name, const qkv_tensor *t, qkv_error *err)
{
    Err e = api_begin();
    Tensor in;
    if (!GIVEN(name) || !GIVEN(t) || !api_enter(s, &e)) return give(&e, err);
    const Graph *g = session_graph(s->session);
    int i = api_find_input(g, name), k = i < 0 ? find_scalar(g, name) : -1;
    bool ok = i >= 0 || k >= 0 ? api_tensor(t, &in, &e) || within(&e, "input '%s'", name)
                               : api_unknown_input(g, name, &e);
    ok = ok && (i >= 0 ? session_set_input(s->session, i, &in, &e) : set_scalar(s, k, &in, &e));
    return api_done(s, ok, &e, err);
}

qkv_status qkv_session_keep(qkv_session *s, const char *name, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(name) || !api_enter(s, &e)) return give(&e, err);
    const Graph *g = session_graph(s->session);
    int i = api_find_input(g, name);
    return api_done(s, (i >= 0 || api_unknown_input(g, name, &e)) && session_keep(s->session, i, &e), &e, err);
}

/* An output by name, label or position; -1 after a message that lists them. */
static int named_output(const Graph *g, const char *name, Err *err)
{
    int i = find_output(g, name);
    if (i >= 0) return i;
    Buf b = {0};
    for (int k = 0; k < g->noutput; k++) buf_printf(&b, "%s%s", k ? ", " : "", output_label(&g->output[k]));
    fail(err, E_USAGE, "no output is called '%s'; this model has %s", name, b.len ? b.data : "no outputs");
    buf_free(&b);
    return -1;
}

qkv_status qkv_session_feed(qkv_session *s, const char *input, const char *output, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(input) || !api_enter(s, &e)) return give(&e, err);
    const Graph *g = session_graph(s->session);
    int i = api_find_input(g, input), from = i >= 0 && output ? named_output(g, output, &e) : -1;
    bool ok = (i >= 0 || api_unknown_input(g, input, &e)) && (from >= 0 || !output);
    return api_done(s, ok && session_feed(s->session, i, from, &e), &e, err);
}

void qkv_session_clear_inputs(qkv_session *s)
{
    if (!api_enter_silent(s)) return;
    session_clear_inputs(s->session);
    api_leave(s);
}

qkv_status qkv_session_run(qkv_session *s, qkv_error *err)
{
    Err e = api_begin();
    return api_enter(s, &e) ? api_done(s, session_run(s->session, &e), &e, err) : give(&e, err);
}

void qkv_session_cancel(qkv_session *s, int on)
{
    if (s) session_cancel(s->session, on != 0);
}

qkv_status qkv_session_output(qkv_session *s, int i, qkv_tensor *out, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(out) || !api_enter(s, &e)) return give(&e, err);
    const Tensor *t = session_output(s->session, i);
    if (t) api_tensor_out(t, &s->output[i], out);
    else
        fail(&e, E_USAGE, "output %d: %s", i,
             i >= 0 && i < session_graph(s->session)->noutput ? "nothing has run yet" : "the model has no such output");
    return api_done(s, t != NULL, &e, err);
}

qkv_status qkv_session_output_by_name(qkv_session *s, const char *name, qkv_tensor *out, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(name) || !api_enter(s, &e)) return give(&e, err);
    const Graph *g = session_graph(s->session);
    int i = named_output(g, name, &e);
    if (i < 0) return api_done(s, false, &e, err);
    api_leave(s);
    return qkv_session_output(s, i, out, err);
}

static void *ask_memory(void *user, int i, const Tensor *t)
{
    qkv_session *s = user;
    qkv_tensor like;
    Shown memory;
    api_tensor_out(t, &memory, &like);
    return s->memory(s->memory_user, i, &like);
}

void qkv_session_output_memory(qkv_session *s, qkv_output_memory *f, void *user)
{
    if (!api_enter_silent(s)) return;
    s->memory = f;
    s->memory_user = user;
    session_output_memory(s->session, f ? ask_memory : NULL, s);
    api_leave(s);
}

qkv_status qkv_session_random_inputs(qkv_session *s, const char *const *names, const int64_t *values, int n,
                                     uint64_t seed, qkv_error *err)
{
    Err e = api_begin();
    Binding b;
    if (!GIVEN_TEXTS(names, n) || !GIVEN_LIST(values, n) || !api_enter(s, &e)) return give(&e, err);
    bool ok = binding_init(&b, session_graph(s->session)->ex, &e);
    ok = ok && choose_sizes(session_graph(s->session), names, values, n, &b, &e) &&
         session_random_inputs(s->session, &b, seed, &e);
    binding_free(&b);
    return api_done(s, ok, &e, err);
}

qkv_status qkv_session_input(qkv_session *s, int i, qkv_tensor *out, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(out) || !api_enter(s, &e)) return give(&e, err);
    const Tensor *t = session_input(s->session, i);
    if (t) api_tensor_out(t, &s->input[i], out);
    else fail(&e, E_USAGE, "input %d is not set", i);
    return api_done(s, t != NULL, &e, err);
}

void qkv_session_seed(qkv_session *s, uint64_t seed)
{
    if (!api_enter_silent(s)) return;
    session_seed(s->session, seed);
    api_leave(s);
}

void qkv_session_reset(qkv_session *s)
{
    if (!api_enter_silent(s)) return;
    session_reset(s->session);
    api_leave(s);
}

qkv_status qkv_session_stats(const qkv_session *s, qkv_stats *out, qkv_error *err)
{
    Err e = api_begin();
    SessionStats st = {0};
    if (!GIVEN(out) || !VERSIONED_WANTED(qkv_stats, kept_bytes, out, &e) || !api_enter(s, &e)) return give(&e, err);
    session_stats(s->session, &st);
    qkv_stats all = {.plan_ms = st.plan_ms,
                     .activation_bytes = st.arena_bytes,
                     .constant_bytes = st.constant_bytes,
                     .packed_bytes = st.packed_bytes,
                     .scratch_bytes = st.scratch_bytes,
                     .steps = st.steps,
                     .plans = st.plans,
                     .threads = st.threads,
                     .kept_bytes = st.kept_bytes};
    versioned_give(out, &all, sizeof all);
    return api_done(s, true, &e, err);
}

Session *api_session(const qkv_session *s) { return s->session; }

static bool tell_node(void *user, const Node *n, Tensor *const *out)
{
    qkv_session *s = user;
    qkv_tensor shown[64];
    Shown memory[64];
    int m = 0;
    for (int k = 0; k < n->nout && k < 64; k++)
        if (out[k]) {
            api_tensor_out(out[k], &memory[m], &shown[m]);
            m++;
        }
    return s->on_node(s->on_node_user, n->name, n->op->name, shown, m) == 0;
}

void qkv_session_on_node(qkv_session *s, qkv_node_callback *f, void *user)
{
    if (!api_enter_silent(s)) return;
    s->on_node = f;
    s->on_node_user = user;
    session_on_node(s->session, f ? tell_node : NULL, s);
    api_leave(s);
}

void qkv_session_on_progress(qkv_session *s, qkv_progress_callback *f, void *user)
{
    if (!api_enter_silent(s)) return;
    session_on_progress(s->session, f, user);
    api_leave(s);
}

/* ------------------------------------------------------------------ comparing */

double qkv_tolerance(qkv_dtype t)
{
    return (int)t >= 0 && (int)t < DT_COUNT ? tolerance_of(TOLERANCE_MODEL, (DType)t) : 0;
}

qkv_status qkv_model_output_tolerances(const qkv_model *m, double *share, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN(share)) return api_give(&e, err);
    const Graph *g = graph_of(m);
    DType *to = mem_zeroed((size_t)g->next_id + 1, sizeof *to);
    bool ok = to ? rounded_to(g, to, &e) : oom(&e);
    for (int i = 0; ok && i < g->noutput; i++) {
        const Value *v = g->output[i].value;
        bool inexact = v && (dtype_is_float(v->dtype) || dtype_is_complex(v->dtype));
        share[i] = inexact ? tolerance_of(TOLERANCE_MODEL, to[v->id]) : 0;
    }
    mem_free(to);
    return ok ? QKV_OK : api_give(&e, err);
}

qkv_status qkv_compare(const qkv_tensor *a, const qkv_tensor *b, double atol, double rtol, qkv_difference *d,
                       qkv_error *err)
{
    Err e = api_begin();
    Tensor x, y;
    Difference r;
    if (!GIVEN(d) || !api_tensor(a, &x, &e) || !api_tensor(b, &y, &e) || !compare_tensors(&x, &y, atol, rtol, &r, &e))
        return give(&e, err);
    *d = (qkv_difference){r.max_abs, r.max_rel, r.max_abs_over_peak, r.cosine, r.index,
                          r.a,       r.b,       r.nonfinite,         r.failed};
    if (!r.failed) return QKV_OK;
    fail(&e, E_MISMATCH, "%lld elements differ beyond the tolerance", (long long)r.failed);
    return give(&e, err);
}
