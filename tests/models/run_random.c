/* Differential fuzzing: random graphs of real ops, and the same values every way that qkv has to run them. The plain
 * graph, one step a node, is what counts; beside it: through a .pt2, optimised, on two threads, rewritten with proof,
 * rewritten and saved, packed, through ONNX and back. Multiplied in bf16, which a difference of large values may leave
 * nothing of, dtypes, sizes and what is finite must be the same. The gradients of a loss are run in three ways,
 * too; tests/unit/test_grad.c holds them to finite differences. TAP.
 *
 *     run_random FOLDER [--runs N] [--seed N] [--print]       FOLDER: where files may be written; the same seed, the
 *                                                             same graphs; --print: the graph of each
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/splitmix.h"
#include "ir/graph.h"
#include "ir/text.h"
#include "lower/lower.h"
#include "pt2/write/write.h"
#include "run/session.h"
#include "tap.h"
#include "ways.h"

enum { WIDTH = 8, LONGEST = 12, MOST_VALUES = 96, SIZES = 5, CALL = 512 };
#define NEAR 1e-3 /* of the largest value: a few dozen ops, each with its rounding */

typedef struct Making {
    Graph *g;
    Value *v[MOST_VALUES];
    int n;
    Expr *batch, *length;
    uint64_t state;
} Making;

static int below(Making *m, int n) { return (int)(splitmix_next(&m->state) % (unsigned)n); }

/* ------------------------------------------------------------------ weights */

static Tensor *weight_tensor(uint64_t *state, int rank, const int64_t *shape)
{
    static struct Kept {
        struct Kept *next;
        Tensor t;
    } * all;
    struct Kept *k = calloc(1, sizeof *k);
    if (!k) abort();
    k->t = tensor_of(DT_F32, rank, shape, NULL);
    float *p = k->t.data = aligned_alloc(64, (tensor_bytes(&k->t) + 63) / 64 * 64);
    if (!p) abort();
    for (int64_t i = 0; i < tensor_numel(&k->t); i++) p[i] = (float)(splitmix_normal(state) * 0.4);
    k->next = all;
    all = k; /* reachable until the end: graphs borrow it */
    return &k->t;
}

static void add_weight(Making *m, const char *name, int rank, const int64_t *shape)
{
    Value *v = graph_add_weight(m->g, name, name, weight_tensor(&m->state, rank, shape));
    if (!v) abort();
}

static void add_input(Making *m, const char *name, DType t, int rank, Expr *const *dim)
{
    Value *v = graph_add_input(m->g, name, t, rank, dim);
    if (!v) abort();
    m->v[m->n++] = v;
}

static Expr *size_symbol(Making *m, const char *name, int64_t most)
{
    Expr *e = ex_symbol(m->g->ex, name);
    if (!e) abort();
    expr_set_range(m->g->ex, (int)e->i, 1, most);
    expr_symbol(m->g->ex, (int)e->i)->source = SYM_INPUT;
    return e;
}

static void begin(Making *m, uint64_t seed)
{
    *m = (Making){.g = graph_create(), .state = seed * 0x9e3779b97f4a7c15u + 1};
    if (!m->g) abort();
    Expr *w = ex_int(m->g->ex, WIDTH);
    m->batch = size_symbol(m, "B", 8);
    m->length = size_symbol(m, "N", LONGEST);
    add_input(m, "x", DT_F32, 3, (Expr *[]){m->batch, m->length, w});
    add_input(m, "y", DT_F32, 3, (Expr *[]){m->batch, m->length, w});
    add_input(m, "i", DT_I64, 2, (Expr *[]){m->batch, m->length});
    add_input(m, "keep", DT_BOOL, 2, (Expr *[]){m->batch, m->length});
    add_weight(m, "w", 2, (int64_t[]){WIDTH, WIDTH});
    add_weight(m, "wide", 2, (int64_t[]){2 * WIDTH, WIDTH});
    add_weight(m, "narrow", 2, (int64_t[]){WIDTH, 2 * WIDTH});
    add_weight(m, "bias", 1, (int64_t[]){WIDTH});
    add_weight(m, "table", 2, (int64_t[]){LONGEST, WIDTH});
    add_weight(m, "kernel", 3, (int64_t[]){WIDTH, WIDTH, 3});
}

/* ------------------------------------------------------------------ calls */

/* Lowers one call; NULL: it is not valid. Several results: one of them. */
static Value *call(Making *m, const char *text)
{
    Err err = {0};
    const Op *op;
    Arg *args;
    char name[16];
    snprintf(name, sizeof name, "v%d", m->n);
    if (m->n == MOST_VALUES || !text_parse_call(m->g, text, &op, &args, &err)) return NULL;
    Lower L = {.g = m->g, .ex = m->g->ex, .op = op, .arg = args, .name = name, .err = &err};
    if (!lower_op(&L)) return NULL;
    Value *v = L.result.kind == ARG_VALUE    ? L.result.v
               : L.result.kind == ARG_VALUES ? L.result.vs[below(m, L.result.n)]
                                             : NULL;
    if (v) m->v[m->n++] = v;
    return v;
}

static bool fits(const Value *v, char kind)
{
    return kind == 'I' ? v->dtype == DT_I64 : kind == 'T' ? v->dtype == DT_BOOL : v->dtype == DT_F32 && v->rank > 0;
}

static Value *pick(Making *m, char kind)
{
    for (int tries = 0; tries < 20; tries++) {
        int recent = below(m, 2) ? m->n : 5 < m->n ? 5 : m->n;
        Value *v = m->v[m->n - 1 - below(m, recent)];
        if (fits(v, kind)) return v;
    }
    return m->v[kind == 'I' ? 2 : kind == 'T' ? 3 : 0];
}

/* A size list of v with two neighbours joined, or one of 8 or 16 cut. */
static void reshaped(Making *m, const Value *v, Buf *out)
{
    int at = v->rank > 1 ? below(m, v->rank - 1) : 0;
    bool join = v->rank > 1 && below(m, 2);
    buf_puts(out, "[");
    for (int i = 0; i < v->rank; i++) {
        if (i) buf_puts(out, ", ");
        bool cut = !join && ex_is_int(v->dim[i]) && v->dim[i]->i % WIDTH == 0;
        if (cut) buf_printf(out, "%lld, 4", (long long)v->dim[i]->i / 4);
        else {
            buf_puts(out, "(");
            ex_print(m->g->ex, join && i == at ? ex_mul(m->g->ex, v->dim[i], v->dim[i + 1]) : v->dim[i], out);
            buf_puts(out, ")");
        }
        i += join && i == at;
    }
    buf_puts(out, "]");
}

/* A call of a template: F, I and T become values, G a value with the dtype and rank of the last F, d an axis of it, s
 * its sizes reshaped, n a small integer, r a number, p a permutation; all else stays. */
static Value *from_template(Making *m, const char *t)
{
    Buf b = {0};
    Value *last = m->v[0];
    for (; *t; t++) {
        switch (*t) {
        case 'F':
        case 'I':
        case 'T':
            last = pick(m, *t);
            buf_printf(&b, "%%%s", last->name);
            break;
        case 'G': {
            Value *v = pick(m, 'F');
            for (int k = 0; k < 20 && v->rank != last->rank; k++) v = pick(m, 'F');
            buf_printf(&b, "%%%s", v->rank == last->rank ? v->name : last->name);
            break;
        }
        case '#': buf_printf(&b, "%d", last->rank ? below(m, 2 * last->rank) - last->rank : 0); break;
        case '$': buf_printf(&b, "%d", below(m, 4)); break;
        case '~': buf_printf(&b, "%.3g", splitmix_uniform(&m->state) * 4 - 2); break;
        case '@': reshaped(m, last, &b); break;
        case '^': {
            int perm[MAX_RANK];
            for (int i = 0; i < last->rank; i++) perm[i] = i;
            for (int i = last->rank - 1; i > 0; i--) {
                int k = below(m, i + 1), swap = perm[i];
                perm[i] = perm[k];
                perm[k] = swap;
            }
            for (int i = 0; i < last->rank; i++) buf_printf(&b, "%s%d", i ? ", " : "[", perm[i]);
            buf_puts(&b, last->rank ? "]" : "[]");
            break;
        }
        default: buf_add(&b, t, 1);
        }
    }
    Value *v = b.failed ? NULL : call(m, b.data);
    buf_free(&b);
    return v;
}

static Value *callf(Making *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static Value *callf(Making *m, const char *fmt, ...)
{
    char text[CALL];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return call(m, text);
}

/* ------------------------------------------------------------------ what models have */

/* Attention as models write it: scale before or after, a mask or none, both kinds of softmax. */
static void attention(Making *m)
{
    const Value *q = pick(m, 'F'), *k = below(m, 2) ? q : pick(m, 'F'), *v = below(m, 2) ? k : pick(m, 'F');
    int where = below(m, 3), mask = below(m, 4);
    if (where == 0) q = callf(m, "aten.mul.Tensor(%%%s, 0.35)", q->name);
    const Value *turned = q ? callf(m, "aten.transpose.int(%%%s, -2, -1)", k->name) : NULL,
                *s = turned ? callf(m, "aten.matmul.default(%%%s, %%%s)", q->name, turned->name) : NULL;
    if (s && where == 1) s = callf(m, "aten.div.Tensor(%%%s, 2.83)", s->name);
    if (s && mask == 1) {
        const Value *keep = callf(m, "aten.unsqueeze.default(%%keep, 1)");
        if (keep) keep = callf(m, "aten.logical_not.default(%%%s)", keep->name);
        const Value *masked = keep ? callf(m, "aten.masked_fill.Scalar(%%%s, %%%s, -1e4)", s->name, keep->name) : NULL;
        s = masked ? masked : s;
    } else if (s && mask == 2) {
        const Value *n = callf(m, "aten.ones_like.default(%%%s)", s->name),
                    *t = n ? callf(m, "aten.tril.default(%%%s)", n->name) : NULL,
                    *z = t ? callf(m, "aten.eq.Scalar(%%%s, 0)", t->name) : NULL,
                    *masked = z ? callf(m, "aten.masked_fill.Scalar(%%%s, %%%s, -inf)", s->name, z->name) : NULL;
        s = masked ? masked : s;
    }
    const Value *p = s ? callf(m, "aten.softmax.int(%%%s, -1)", s->name) : NULL;
    if (p) callf(m, "aten.matmul.default(%%%s, %%%s)", p->name, v->name);
}

/* The parts of attention between heads: split, attend, join. */
static void heads(Making *m)
{
    const Value *x = pick(m, 'F'), *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = callf(m, "aten.linear.default(%%%s, %%w, %%bias)", x->name);
        if (part[i] && part[i]->rank == 3)
            part[i] = callf(m, "aten.unflatten.int(%%%s, -1, [%d, -1])", part[i]->name, 2);
        if (part[i]) part[i] = callf(m, "aten.transpose.int(%%%s, 1, 2)", part[i]->name);
        if (!part[i]) return;
    }
    const Value *y = callf(m, "aten.scaled_dot_product_attention.default(%%%s, %%%s, %%%s, none, 0.0, %s)",
                           part[0]->name, part[1]->name, part[2]->name, below(m, 2) ? "true" : "false");
    if (y) y = callf(m, "aten.transpose.int(%%%s, 1, 2)", y->name);
    if (y) callf(m, "aten.flatten.using_ints(%%%s, 2)", y->name);
}

static void norm(Making *m)
{
    const Value *x = pick(m, 'F'), *c = x, *mean = NULL;
    if (below(m, 2)) {
        mean = callf(m, "aten.mean.dim(%%%s, [-1], true)", x->name);
        c = mean ? callf(m, "aten.sub.Tensor(%%%s, %%%s)", x->name, mean->name) : NULL;
    }
    const Value *square = c ? callf(m, "aten.pow.Tensor_Scalar(%%%s, 2)", c->name) : NULL,
                *var = square ? callf(m, "aten.mean.dim(%%%s, [-1], true)", square->name) : NULL,
                *plus = var ? callf(m, "aten.add.Scalar(%%%s, 1e-3)", var->name) : NULL,
                *r = plus ? callf(m, "aten.rsqrt.default(%%%s)", plus->name) : NULL,
                *y = r ? callf(m, "aten.mul.Tensor(%%%s, %%%s)", c->name, r->name) : NULL;
    if (y) callf(m, "aten.mul.Tensor(%%%s, %%bias)", y->name);
}

static void gate(Making *m)
{
    const Value *x = pick(m, 'F'), *wide = callf(m, "aten.linear.default(%%%s, %%wide)", x->name),
                *act = wide ? from_template(m, below(m, 2) ? "aten.gelu.default(F)" : "aten.silu.default(F)") : NULL;
    if (act) callf(m, "aten.linear.default(%%%s, %%narrow)", act->name);
}

static void (*const blocks[])(Making *) = {attention, heads, norm, gate};

static const char *const templates[] = {
    "aten.add.Tensor(F, G)",
    "aten.sub.Tensor(F, G)",
    "aten.mul.Tensor(F, G)",
    "aten.mul.Scalar(F, ~)",
    "aten.add.Scalar(F, ~)",
    "aten.rsub.Scalar(F, ~)",
    "aten.tanh.default(F)",
    "aten.sigmoid.default(F)",
    "aten.gelu.default(F)",
    "aten.gelu.default(F, approximate=\"tanh\")",
    "aten.silu.default(F)",
    "aten.relu.default(F)",
    "aten.clamp.default(F, -1.5, 1.5)",
    "aten.abs.default(F)",
    "aten.neg.default(F)",
    "aten.sin.default(F)",
    "aten.maximum.default(F, G)",
    "aten.softmax.int(F, #)",
    "aten.log_softmax.int(F, #)",
    "aten.logsumexp.default(F, [#], true)",
    "aten.layer_norm.default(F, [8], %bias, none, 0.1)",
    "aten.rms_norm.default(F, [8], %bias, 1e-5)",
    "aten.sum.dim_IntList(F, [#], true)",
    "aten.mean.dim(F, [#], false)",
    "aten.amax.default(F, [#], true)",
    "aten.var.dim(F, [#], false, true)",
    "aten.cumsum.default(F, #)",
    "aten.transpose.int(F, #, #)",
    "aten.permute.default(F, ^)",
    "aten.unsqueeze.default(F, #)",
    "aten.squeeze.dim(F, #)",
    "aten.select.int(F, #, 0)",
    "aten.select.int(F, #, -1)",
    "aten.slice.Tensor(F, #, 1)",
    "aten.slice.Tensor(F, #, 0, $)",
    "aten.slice.Tensor(F, #, 0, -1, 2)",
    "aten.chunk.default(F, 2, #)",
    "aten.cat.default([F, G], #)",
    "aten.stack.default([F, G], #)",
    "aten.flip.default(F, [#])",
    "aten.roll.default(F, [1], [#])",
    "aten.repeat_interleave.self_int(F, 2, #)",
    "aten.constant_pad_nd.default(F, [1, 0], 0.5)",
    "aten.constant_pad_nd.default(F, [0, 0, 1, 1], 0.0)",
    "aten.tril.default(F)",
    "aten.triu.default(F, 1)",
    "aten.reshape.default(F, @)",
    "aten.reshape.default(F, @)",
    "aten.matmul.default(F, G)",
    "aten.bmm.default(F, G)",
    "aten.linear.default(F, %w)",
    "aten.linear.default(F, %wide)",
    "aten.linear.default(F, %w, %bias)",
    "aten.matmul.default(F, %narrow)",
    "aten.einsum.default(\"bnc,bmc->bnm\", [F, G])",
    "aten.conv1d.default(F, %kernel, %bias, [1], [1])",
    "aten.embedding.default(%table, I)",
    "aten.gather.default(F, 1, I)",
    "aten.index_select.default(%table, 0, I)",
    "aten.where.self(T, F, G)",
    "aten.masked_fill.Scalar(F, T, ~)",
    "aten.logical_not.default(T)",
    "aten.logical_and.default(T, T)",
    "aten.unsqueeze.default(T, #)",
    "aten.unsqueeze.default(T, -1)",
    "aten.ge.Scalar(I, 3)",
    "aten.le.Tensor(I, I)",
    "aten.add.Scalar(I, 1)",
    "aten.remainder.Scalar(I, 5)",
    "aten.expand_as.default(F, G)",
    "aten.avg_pool1d.default(F, [2])",
    "aten.movedim.int(F, #, #)",
    "aten.scaled_dot_product_attention.default(F, G, G)",
    "aten.glu.default(F, #)",
    "aten.std.dim(F, [#], false, true)",
    "aten.prod.dim_int(F, #)",
    "aten.group_norm.default(F, 2, none, none, 0.1)",
    "aten.pixel_shuffle.default(F, 2)",
    "aten.tensor_split.sections(F, 2, #)",
    "aten.diff.default(F)",
};

/* Sums and products of what is large already stay small. */
static void tame(Making *m)
{
    const Value *v = m->v[m->n - 1];
    if (v->dtype == DT_F32 && below(m, 3) == 0) callf(m, "aten.tanh.default(%%%s)", v->name);
}

static bool make(Making *m, uint64_t seed)
{
    Err err = {0};
    begin(m, seed);
    int calls = 4 + below(m, 12);
    for (int i = 0; i < calls; i++) {
        if (below(m, 5) == 0) blocks[below(m, (int)(sizeof blocks / sizeof *blocks))](m);
        else
            for (int tries = 0; tries < 20; tries++)
                if (from_template(m, templates[below(m, (int)(sizeof templates / sizeof *templates))])) break;
        tame(m);
    }
    int outputs = 1 + below(m, 2);
    for (int k = 0; k < outputs; k++) {
        char name[24];
        snprintf(name, sizeof name, "output_%d", k);
        Value *last = m->v[m->n - 1];
        if (!graph_add_output(m->g, name, !k && fits(last, 'F') ? last : pick(m, 'F'), &err)) abort();
    }
    const Value *square = callf(m, "aten.square.default(%%%s)", m->g->output[0].value->name),
                *loss = square ? callf(m, "aten.mean.default(%%%s)", square->name) : NULL;
    if (!loss || !graph_add_output(m->g, "loss", m->v[m->n - 1], &err)) return false;
    graph_dce(m->g);
    return graph_check(m->g, &err);
}

/* ------------------------------------------------------------------ runs */

typedef struct Inputs {
    Tensor t[4];
    double room[4][8 * LONGEST * WIDTH];
} Inputs;

static void fill(Inputs *in, const Graph *g, int size, uint64_t seed)
{
    static const int64_t sizes[SIZES][2] = {{2, 7}, {1, LONGEST}, {3, 1}, {2, 8}, {8, 8}};
    int64_t shape[3] = {sizes[size][0], sizes[size][1], WIDTH};
    for (int i = 0; i < 4; i++) {
        in->t[i] = tensor_of(g->input[i]->dtype, g->input[i]->rank, shape, in->room[i]);
        for (int64_t k = 0; k < tensor_numel(&in->t[i]); k++) {
            void *p = (char *)in->room[i] + (size_t)k * dtype_size(in->t[i].dtype);
            if (i < 2) store_f64(DT_F32, p, splitmix_normal(&seed));
            else store_i64(in->t[i].dtype, p, (int64_t)(splitmix_next(&seed) % (i == 3 ? 2 : (unsigned)shape[1])));
        }
    }
}

typedef struct Case {
    uint64_t seed;
    const Graph *g;
    Session *plain;
    Inputs in;
} Case;

/* False: these sizes are not allowed. */
static bool run_plain(Case *c, int size)
{
    Err err = {0};
    fill(&c->in, c->g, size, c->seed + (uint64_t)size);
    bool ok = true;
    for (int i = 0; ok && i < 4; i++) ok = session_set_input(c->plain, i, &c->in.t[i], &err);
    return ok && session_run(c->plain, &err);
}

/* False: why says what did not work. */
static bool run(Case *c, qkv_session *s, int size, char *why, size_t room)
{
    qkv_error e = {0};
    for (int i = 0; i < 4; i++) {
        const Tensor *t = &c->in.t[i];
        qkv_tensor q = {(qkv_dtype)t->dtype, t->rank, t->shape, NULL, t->data};
        char at[8];
        snprintf(at, sizeof at, "%d", i);
        if (qkv_session_set_input(s, at, &q, &e) != QKV_OK) {
            snprintf(why, room, "input %d: %s", i, e.message);
            return false;
        }
    }
    if (qkv_session_run(s, &e) == QKV_OK) return true;
    snprintf(why, room, "size %d: %s", size, e.message);
    return false;
}

static void compare(Case *c, const Way *w, qkv_session *s, int size, char *why, size_t room)
{
    if (!run(c, s, size, why, room)) return;
    for (int k = 0; k < c->g->noutput; k++) {
        Tensor got = tensor_of_output(s, k);
        double d = difference(&got, session_output(c->plain, k));
        if (d < 0 || (w->compute == QKV_NONE && d > NEAR)) {
            snprintf(why, room, "size %d, output %d differs by %g", size, k, d);
            return;
        }
    }
}

static void one_way(Case *c, const Way *w, const char *folder, const char *source)
{
    qkv_error e = {0};
    char why[1200] = "";
    qkv_session_options o = {.struct_size = sizeof o, .threads = w->threads, .no_optimize = w->plain};
    qkv_model *m = open_way(w, folder, source, &e);
    qkv_session *s = m ? qkv_session_create(m, &o, &e) : NULL;
    if (!s && e.code != QKV_UNSUPPORTED) snprintf(why, sizeof why, "%s", e.message);
    for (int size = 0; s && size < SIZES && !*why; size++)
        if (run_plain(c, size)) compare(c, w, s, size, why, sizeof why);
    if (*why) tap_ok(false, "seed %llu, %s: %s", (unsigned long long)c->seed, w->name, why);
    qkv_session_free(s);
    qkv_model_free(m);
}

/* ------------------------------------------------------------------ gradients */

static void compare_gradients(Case *c, qkv_session *plain, qkv_session *s, int outputs, int size, char *why,
                              size_t room)
{
    if (!run(c, plain, size, why, room) || !run(c, s, size, why, room)) return;
    for (int k = 0; k < outputs; k++) {
        Tensor want = tensor_of_output(plain, k), got = tensor_of_output(s, k);
        double d = difference(&got, &want);
        if (d >= 0 && d <= NEAR) continue;
        snprintf(why, room, "size %d, gradient or output %d differs by %g", size, k, d);
        return;
    }
}

/* The joint graph step by step, optimised, and rewritten. */
static void gradients(Case *c, const char *source)
{
    static const char *const name[] = {"gradients, optimised", "gradients, rewritten"};
    char why[1200] = "";
    const char *all[] = {"*"};
    qkv_error e = {0};
    qkv_joint_options o = {.struct_size = sizeof o, .loss = "loss", .inputs = all, .n_inputs = 1};
    qkv_rewrite_options r = {.struct_size = sizeof r, .prove = 1, .exact_masked_rows = 1};
    qkv_session_options so[2] = {{.struct_size = sizeof *so, .threads = 1, .no_optimize = 1},
                                 {.struct_size = sizeof *so, .threads = 1}};
    qkv_model *m = qkv_model_load(source, NULL, &e), *j = m ? qkv_model_joint(m, &o, NULL, &e) : NULL,
              *rewritten = j ? qkv_model_rewrite(j, &r, NULL, &e) : NULL;
    qkv_session *s[3] = {j ? qkv_session_create(j, &so[0], &e) : NULL, j ? qkv_session_create(j, &so[1], &e) : NULL,
                         rewritten ? qkv_session_create(rewritten, &so[0], &e) : NULL};
    if (j ? !s[0] || !s[1] || !s[2] : e.code != QKV_UNSUPPORTED && e.code != QKV_USAGE)
        snprintf(why, sizeof why, "%s", e.message);
    int way = 0;
    for (; j && !*why && way < 2; way++)
        for (int size = 0; size < SIZES && !*why; size++)
            if (run_plain(c, size))
                compare_gradients(c, s[0], s[1 + way], qkv_model_output_count(j), size, why, sizeof why);
    if (*why) tap_ok(false, "seed %llu, %s: %s", (unsigned long long)c->seed, name[way ? way - 1 : 0], why);
    for (int i = 0; i < 3; i++) qkv_session_free(s[i]);
    qkv_model_free(rewritten);
    qkv_model_free(j);
    qkv_model_free(m);
}

/* Does a graph come of the seed? */
static bool one_seed(uint64_t seed, const char *folder, bool print)
{
    Making m;
    Err err = {0};
    char source[1024];
    snprintf(source, sizeof source, "%s/random.pt2", folder);
    Case c = {.seed = seed};
    bool made = make(&m, seed);
    c.g = m.g;
    if (print) {
        Buf b = {0};
        graph_print(m.g, &b);
        printf("%s\n", b.data);
        buf_free(&b);
    }
    c.plain = made ? session_create(m.g, NULL, 1, 0, &err) : NULL;
    bool runs = false;
    for (int size = 0; c.plain && size < SIZES; size++) runs |= run_plain(&c, size);
    bool ok = runs && pt2_save(m.g, NULL, 0, source, &err);
    if (runs && !ok && err.code != E_UNSUPPORTED) tap_ok(false, "seed %llu: %s", (unsigned long long)seed, err.msg);
    for (int i = 0; ok && i < WAYS; i++) one_way(&c, &ways[i], folder, source);
    if (ok) gradients(&c, source);
    session_free(c.plain);
    graph_free(m.g);
    return ok;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"runs", 1, NULL, 'r'}, {"seed", 1, NULL, 's'}, {"print", 0, NULL, 'p'}, {0}};
    int runs = 100, made = 0;
    uint64_t seed = 1;
    bool print = false;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'r') runs = atoi(optarg);
        else if (o == 's') seed = strtoull(optarg, NULL, 10);
        else if (o == 'p') print = true;
        else return 2;
    }
    if (optind != argc - 1) {
        fprintf(stderr, "usage: run_random FOLDER [--runs N] [--seed N] [--print]\n");
        return 2;
    }
    for (int i = 0; i < runs; i++) made += one_seed(seed + (uint64_t)i, argv[optind], print);
    tap_ok(made > runs / 2, "%d graphs of %d seeds, from %llu on", made, runs, (unsigned long long)seed);
    return tap_done();
}
