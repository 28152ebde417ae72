/* Random programs of calls. Contract in calls.h. */
#include "calls.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/splitmix.h"
#include "ir/text.h"
#include "lower/lower.h"
#include "../ops/golden.h"

enum { TRIES = 60, MOST_ELEMENTS = 4096, VALUES = 128, MOST_RANK = 6 };

/* ------------------------------------------------------------------ golden cases */

static void keep(void *user, const GoldenCase *c)
{
    Golden *g = user;
    if (c->nin > CALL_INPUTS) return;
    Known *k = calloc(1, sizeof *k);
    if (!k) abort();
    *k = (Known){.next = g->of[c->op->id],
                 .call = strdup(c->call),
                 .fixed = c->fixed ? strdup(c->fixed) : NULL,
                 .constant = c->only_constant || c->fixed,
                 .nin = c->nin};
    for (int i = 0; i < c->nin; i++) {
        size_t bytes = tensor_bytes(c->in[i]);
        k->values[i] = *c->in[i];
        k->values[i].data = malloc(bytes + 1);
        if (!k->values[i].data) abort();
        memcpy(k->values[i].data, c->in[i]->data, bytes);
        k->dtype[i] = c->in[i]->dtype;
        k->rank[i] = c->in[i]->rank;
        memcpy(k->shape[i], c->in[i]->shape, sizeof k->shape[i]);
    }
    for (int i = 0; i < c->nin; i++) g->takes[c->op->id] |= (uint64_t)1 << c->in[i]->dtype;
    g->of[c->op->id] = k;
    g->n[c->op->id]++;
}

/* A row of a file, and a function of its arguments alone, whatever they are: what attention kept for its gradient is
 * not (logsumexp). */
static bool made_of_tensors(const Op *op)
{
    if (op->flags & (OPF_EFFECT | OPF_RANDOM | OPF_INTERNAL | OPF_OWN | OPF_INPLACE)) return false;
    if (!strncmp(op->name, "qkv.", 4) || op_param(op, "logsumexp") >= 0) return false;
    for (int i = 0; i < op->schema->nparams; i++)
        if (op->schema->params[i].type == PT_GRAPH || op->schema->params[i].written) return false;
    return op->schema->nreturns > 0;
}

bool golden_read(Golden *g, const char *folder, char **words, int nwords)
{
    Err err = {0};
    *g = (Golden){0};
    for (int i = 0; i < golden_family_count; i++)
        if (!golden_each(folder, golden_families[i], words, nwords, keep, g, &err))
            return fprintf(stderr, "%s\n", err.msg), false;
    for (OpId id = OP_NONE + 1; id < OP_COUNT; id++) {
        bool wanted = !nwords;
        for (int i = 0; i < nwords; i++) wanted |= strstr(op_get(id)->name, words[i]) != NULL;
        if (wanted && made_of_tensors(op_get(id))) g->row[g->rows++] = id;
    }
    return g->rows > 0;
}

void golden_free(Golden *g)
{
    for (int id = 0; id < OP_COUNT; id++)
        for (Known *k = g->of[id], *next; k; k = next) {
            next = k->next;
            for (int i = 0; i < k->nin; i++) free(k->values[i].data);
            free(k->call);
            free(k->fixed);
            free(k);
        }
}

/* ------------------------------------------------------------------ the graph of a program */

typedef struct Made {
    Value *v[VALUES];
    int n;
} Made;

static Expr *axis(Graph *g, const Program *p, const ProgramInput *in, int a)
{
    char name[32];
    if (!in->symbolic[a]) return ex_int(g->ex, in->shape[a]);
    snprintf(name, sizeof name, "n%lld", (long long)in->shape[a]);
    Expr *e = ex_symbol(g->ex, name);
    if (!e) abort();
    expr_set_range(g->ex, (int)e->i, p->least, 4096);
    expr_symbol(g->ex, (int)e->i)->source = SYM_INPUT;
    return e;
}

static void add_result(Made *made, Value *v)
{
    if (v && made->n < VALUES) made->v[made->n++] = v;
}

static bool add_call(Graph *g, const char *text, int k, Made *made, bool output, Err *err)
{
    const Op *op;
    Arg *args;
    char name[32];
    snprintf(name, sizeof name, "y%d", k);
    TRY(text_parse_call(g, text, &op, &args, err));
    Lower L = {.g = g, .ex = g->ex, .op = op, .arg = args, .name = name, .err = err};
    TRY(lower_op(&L));
    bool list = L.result.kind == ARG_VALUES;
    int n = list ? L.result.n : L.result.kind == ARG_VALUE;
    if (!n) return fail(err, E_UNSUPPORTED, "no tensor is the result");
    for (int i = 0; i < n; i++) {
        Value *v = list ? L.result.vs[i] : L.result.v;
        add_result(made, v);
        snprintf(name, sizeof name, "output_%d", g->noutput);
        if (v && output) TRY(graph_add_output(g, name, v, err));
    }
    return true;
}

static Graph *build(const Program *p, Made *made, Err *err)
{
    Graph *g = graph_create();
    if (!g) abort();
    made->n = 0;
    for (int i = 0; i < p->ninput; i++) {
        const ProgramInput *in = &p->input[i];
        Expr *dim[MAX_RANK];
        char name[32];
        for (int a = 0; a < in->rank; a++) dim[a] = axis(g, p, in, a);
        snprintf(name, sizeof name, "x%d", i);
        Value *v = graph_add_input(g, name, in->dtype, in->rank, dim);
        if (!v) abort();
        add_result(made, v);
    }
    bool ok = true;
    for (int k = 0; ok && k < p->ncall; k++)
        ok = add_call(g, p->call[k], k, made, k + 1 == p->ncall || p->outputs >> k & 1, err);
    if (ok && graph_check(g, err)) return g;
    graph_free(g);
    return NULL;
}

Graph *program_graph(const Program *p, Err *err)
{
    Made made;
    Graph *g = build(p, &made, err);
    if (g) graph_dce(g);
    return g;
}

int64_t program_size(const Program *p, int64_t k, int variant)
{
    int64_t size = variant == 0 ? k : variant == 1 ? 2 * k + 1 : k % 2 ? k - 1 : 1;
    return size < p->least ? p->least : size;
}

bool program_parse(Program *p, const char *text)
{
    *p = (Program){.least = 1};
    while (*text && *text != ':') {
        ProgramInput *in = &p->input[p->ninput++];
        char name[16];
        size_t n = strcspn(text, "[");
        if (n >= sizeof name || p->ninput == CALL_INPUTS) return false;
        snprintf(name, sizeof name, "%.*s", (int)n, text);
        in->dtype = dtype_from_name(name);
        for (text += n + 1; *text && *text != ']'; text += *text == ',') {
            char *end;
            in->symbolic[in->rank] = *text == 'n';
            in->shape[in->rank++] = strtoll(text + (*text == 'n'), &end, 10);
            if (end == text || in->rank == MAX_RANK) return false;
            text = end;
        }
        text += strspn(text, "] ");
        if (in->dtype == DT_NONE) return false;
    }
    if (*text != ':') return false;
    p->call[p->ncall++] = strdup(text + strspn(text, ": "));
    return true;
}

void program_free(Program *p)
{
    for (int k = 0; k < p->ncall; k++) free(p->call[k]);
}

void program_print(const Program *p)
{
    for (int i = 0; i < p->ninput; i++) {
        const ProgramInput *in = &p->input[i];
        printf("#   %%x%d: %s[", i, dtype_name(in->dtype));
        for (int a = 0; a < in->rank; a++)
            printf("%s%s%lld", a ? ", " : "", in->symbolic[a] ? "n" : "", (long long)in->shape[a]);
        printf("]%s\n", in->values ? " of its case" : "");
    }
    for (int k = 0; k < p->ncall; k++) printf("#   y%d%s = %s\n", k, p->outputs >> k & 1 ? "!" : "", p->call[k]);
    fflush(stdout);
}

/* ------------------------------------------------------------------ choices */

typedef struct Making {
    Program *p;
    Graph *g;     /* of the calls so far */
    Made made;    /* its values */
    Buf text;     /* the call */
    Value *first; /* its first tensor, if that is a value of the graph */
    ProgramInput like; /* its type, with -1 for sizes that are not those of a symbol or a number */
    bool has_first;
} Making;

static int below(Making *m, int n) { return (int)(splitmix_next(&m->p->state) % (unsigned)n); }

static void put_value(Making *m, const Value *v) { buf_printf(&m->text, "%%%s", v->name); }

static bool put_input(Making *m, const ProgramInput *in)
{
    int64_t n = 1;
    Program *p = m->p;
    for (int a = 0; a < in->rank; a++) n *= in->shape[a];
    if (p->ninput == CALL_INPUTS || n > MOST_ELEMENTS || n < 0) return false;
    p->input[p->ninput] = *in;
    buf_printf(&m->text, "%%x%d", p->ninput++);
    return true;
}

static ProgramInput type_of(const Graph *g, const Value *v)
{
    ProgramInput in = {.dtype = v->dtype, .rank = v->rank};
    for (int a = 0; a < v->rank; a++) {
        const Expr *e = v->dim[a];
        const Symbol *s = e->kind == EX_SYM ? expr_symbol(g->ex, (int)e->i) : NULL;
        in.symbolic[a] = s && s->source == SYM_INPUT;
        in.shape[a] = in.symbolic[a] ? strtoll(s->name + 1, NULL, 10) : e->kind == EX_INT ? e->i : -1;
    }
    return in;
}

static const DType floats[] = {DT_F32, DT_F32, DT_F32, DT_F64, DT_F16, DT_BF16};
static const DType others[] = {DT_I64, DT_I64, DT_I32, DT_BOOL, DT_U8, DT_I8, DT_I16, DT_C64};

static ProgramInput random_type(Making *m)
{
    static const int64_t sizes[] = {8, 8, 4, 3, 2, 1, 5, 0};
    ProgramInput in = {.dtype = below(m, 3) ? floats[below(m, 6)] : others[below(m, 8)], .rank = below(m, 5)};
    for (int a = 0; a < in.rank; a++) {
        int k = below(m, 8);
        in.shape[a] = sizes[k == 7 && below(m, 4) ? 0 : k];
        in.symbolic[a] = m->p->dynamic && in.shape[a] > 1;
    }
    return in;
}

/* A tensor that goes with the first: its type, a type that is broadcast to it, an index or a mask of it, a matrix or a
 * vector that is multiplied with it. */
static ProgramInput related(Making *m, const char *name)
{
    ProgramInput in = m->like;
    int rank = in.rank, k = below(m, 8);
    if (strstr(name, "ind")) in.dtype = DT_I64;
    else if (strstr(name, "mask") || strstr(name, "cond")) in.dtype = DT_BOOL;
    else if (k == 7) in.dtype = others[below(m, 8)];
    if (k == 1 && rank > 1) { /* without leading axes */
        int drop = below(m, rank);
        for (int a = drop; a < rank; a++) in.shape[a - drop] = in.shape[a], in.symbolic[a - drop] = in.symbolic[a];
        in.rank = rank - drop;
    } else if (k == 2 && rank) { /* broadcast */
        int a = below(m, rank);
        in.shape[a] = 1;
        in.symbolic[a] = false;
    } else if (k == 3 && rank > 1) { /* a product */
        int64_t s = in.shape[rank - 1];
        bool b = in.symbolic[rank - 1];
        in.shape[rank - 1] = in.shape[rank - 2], in.symbolic[rank - 1] = in.symbolic[rank - 2];
        in.shape[rank - 2] = s, in.symbolic[rank - 2] = b;
    } else if (k == 4 && rank) { /* a vector along an axis */
        int a = below(m, rank);
        in.shape[0] = in.shape[a], in.symbolic[0] = in.symbolic[a];
        in.rank = 1;
    } else if (k == 5 && rank) { /* a layer's weight */
        in.shape[1] = in.shape[rank - 1], in.symbolic[1] = in.symbolic[rank - 1];
        in.shape[0] = 4, in.symbolic[0] = false;
        in.rank = 2;
    }
    return in;
}

static Value *pick(Making *m, DType t, int rank)
{
    for (int tries = 0; tries < 20 && m->made.n; tries++) {
        Value *v = m->made.v[m->made.n - 1 - below(m, below(m, 2) && m->made.n > 3 ? 3 : m->made.n)];
        if ((t == DT_NONE || v->dtype == t) && (rank < 0 || v->rank == rank)) return v;
    }
    return NULL;
}

static bool put_first(Making *m)
{
    Value *v = m->p->ncall && below(m, 8) ? pick(m, DT_NONE, -1) : NULL;
    m->has_first = true;
    m->first = v;
    m->like = v ? type_of(m->g, v) : random_type(m);
    if (!v) return put_input(m, &m->like);
    put_value(m, v);
    return true;
}

static bool put_tensor(Making *m, const char *name)
{
    if (!m->has_first) return put_first(m);
    Value *v = below(m, 3) ? NULL : pick(m, m->like.dtype, m->like.rank);
    ProgramInput in = related(m, name);
    for (int a = 0; !v && a < in.rank; a++)
        if (in.shape[a] < 0) v = m->first;
    if (!v) return put_input(m, &in);
    put_value(m, v);
    return true;
}

static bool put_tensors(Making *m, const Param *p)
{
    int n = 1 + below(m, 3);
    for (int i = 0; i < n; i++) {
        buf_puts(&m->text, i ? ", " : "[");
        if (p->holes && below(m, 3) == 0) buf_puts(&m->text, "none");
        else if (i && m->first && below(m, 2)) put_value(m, m->first);
        else if (!put_tensor(m, p->holes ? "indices" : p->name)) return false;
    }
    buf_puts(&m->text, "]");
    return true;
}

static bool names_axis(const char *name) { return strstr(name, "dim") || strstr(name, "axis") || strstr(name, "axes"); }

static int number(Making *m, const Param *p)
{
    int rank = m->has_first ? m->like.rank : 2;
    if (p->choices) {
        int n = 0;
        while (p->choices[n]) n++;
        return below(m, n);
    }
    if (names_axis(p->name)) return rank ? below(m, 2 * rank) - rank : -below(m, 2);
    return below(m, 8) ? 1 + below(m, 4) : below(m, 5) - 2;
}

/* Axes without repetition, small numbers, or the sizes of the first tensor in another order. */
static void put_numbers(Making *m, const Param *p)
{
    int rank = m->has_first ? m->like.rank : 2, perm[MAX_RANK], n = p->fixed_len ? p->fixed_len : below(m, rank + 1);
    bool axes = names_axis(p->name) && (!p->fixed_len || p->fixed_len <= rank), sizes = strstr(p->name, "siz") != NULL;
    if (strstr(p->name, "dims") && below(m, 2)) n = rank;
    if (sizes && below(m, 2)) n = rank;
    for (int i = 0; i < rank; i++) perm[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int k = below(m, i + 1), swap = perm[i];
        perm[i] = perm[k], perm[k] = swap;
    }
    buf_puts(&m->text, "[");
    for (int i = 0; i < n; i++) {
        if (i) buf_puts(&m->text, ", ");
        if (axes && i < rank) buf_printf(&m->text, "%d", perm[i] - (below(m, 3) ? 0 : rank));
        else if (sizes && i < rank && m->like.symbolic[perm[i]])
            buf_printf(&m->text, "(n%lld)", (long long)m->like.shape[perm[i]]);
        else if (sizes && i < rank && m->like.shape[perm[i]] >= 0)
            buf_printf(&m->text, "%lld", (long long)m->like.shape[perm[i]]);
        else if (sizes && below(m, 3) == 0) buf_puts(&m->text, "-1");
        else buf_printf(&m->text, "%d", below(m, 8) ? 1 + below(m, 3) : below(m, 5) - 2);
    }
    buf_puts(&m->text, "]");
}

static void put_number(Making *m, bool whole)
{
    static const char *const real[] = {"0.5", "1.0", "-1.5", "2.0", "0.0", "0.1", "1e-3", "3.0", "-0.25"};
    if (whole) buf_printf(&m->text, "%d", below(m, 6) - 2);
    else buf_puts(&m->text, real[below(m, 9)]);
}

static bool put_argument(Making *m, const Param *p)
{
    static const DType types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_I64, DT_I32, DT_BOOL, DT_U8};
    int n = 0;
    if (p->optional && below(m, 2)) {
        buf_puts(&m->text, "none");
        return true;
    }
    switch (p->type) {
    case PT_TENSOR: return put_tensor(m, p->name);
    case PT_TENSORS: return put_tensors(m, p);
    case PT_INT: buf_printf(&m->text, "%d", number(m, p)); return true;
    case PT_INTS: put_numbers(m, p); return true;
    case PT_FLOAT: put_number(m, false); return true;
    case PT_SCALAR: put_number(m, below(m, 2)); return true;
    case PT_BOOL: buf_puts(&m->text, below(m, 2) ? "true" : "false"); return true;
    case PT_DTYPE: buf_puts(&m->text, dtype_name(types[below(m, 8)])); return true;
    case PT_STR:
        while (p->choices && p->choices[n]) n++;
        if (n) buf_printf(&m->text, "\"%s\"", p->choices[below(m, n)]);
        return n > 0;
    case PT_FLOATS:
    case PT_SCALARS:
    case PT_BOOLS:
        n = p->fixed_len ? p->fixed_len : 1 + below(m, 3);
        for (int i = 0; i < n; i++) {
            buf_puts(&m->text, i ? ", " : "[");
            if (p->type == PT_BOOLS) buf_puts(&m->text, below(m, 2) ? "true" : "false");
            else put_number(m, false);
        }
        buf_puts(&m->text, "]");
        return true;
    default: return false;
    }
}

static bool by_schema(Making *m, const Op *op)
{
    bool named = false;
    int written = 0;
    buf_printf(&m->text, "%s(", op->name);
    for (int i = 0; i < op->schema->nparams; i++) {
        const Param *p = &op->schema->params[i];
        bool free_ = p->def || p->optional, skip = free_ && (p->type == PT_IGNORED || below(m, p->kwonly ? 4 : 3) == 0);
        named |= skip || p->kwonly;
        if (skip) continue;
        if (written++) buf_puts(&m->text, ", ");
        if (named) buf_printf(&m->text, "%s=", p->name);
        if (!put_argument(m, p)) return false;
    }
    buf_puts(&m->text, ")");
    return true;
}

/* A golden case: its tensors, or values of the same dtype and rank. */
static bool by_case(Making *m, const Golden *g, const Op *op)
{
    const Known *k = g->of[op->id];
    for (int skip = below(m, g->n[op->id]); skip > 0; skip--) k = k->next;
    bool dynamic = m->p->dynamic && !k->constant;
    char name[CALL_INPUTS][64] = {{0}};
    for (int i = 0; i < k->nin; i++) {
        Value *v = m->p->ncall && below(m, 2) ? pick(m, k->dtype[i], k->rank[i]) : NULL;
        ProgramInput in = {.dtype = k->dtype[i], .rank = k->rank[i], .values = &k->values[i]};
        memcpy(in.shape, k->shape[i], sizeof in.shape);
        for (int a = 0; a < in.rank; a++) in.symbolic[a] = dynamic && in.shape[a] > 1;
        m->text.len = 0;
        if (v) put_value(m, v);
        else if (!put_input(m, &in)) return false;
        snprintf(name[i], sizeof name[i], "%s", m->text.data);
    }
    m->text.len = 0;
    for (const char *c = k->call; *c; c++) {
        if (*c != '%') {
            buf_add(&m->text, c, 1);
            continue;
        }
        char *end;
        long i = strtol(c + 1, &end, 10);
        if (i < 0 || i >= k->nin) return false;
        buf_puts(&m->text, name[i]);
        c = end - 1;
    }
    return true;
}

/* Composites of random rows are written so. */
static bool draws(const Graph *g)
{
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->flags & OPF_RANDOM) return true;
    return false;
}

/* Golden cases have every dtype that PyTorch takes: what it refuses need not come back from a file. */
static bool takes_dtypes(Making *m, const Golden *g, const Op *op)
{
    for (const char *c = m->text.data; (c = strchr(c, '%'));) {
        char name[128];
        size_t n = strcspn(++c, ",)] ");
        snprintf(name, sizeof name, "%.*s", (int)n, c);
        const Value *v = m->g ? graph_find_value(m->g, name) : NULL;
        bool input = name[0] == 'x' && name[1] >= '0' && name[1] <= '9';
        DType t = v ? v->dtype : input ? m->p->input[strtol(name + 1, NULL, 10)].dtype : DT_NONE;
        if (!(g->takes[op->id] >> t & 1)) return false;
    }
    return true;
}

/* One more call of the program, if lowering takes it. */
static bool add(Making *m, const Golden *g, const Op *op, bool cases)
{
    Program *p = m->p;
    Err err = {0};
    Made made;
    int inputs = p->ninput;
    m->text.len = 0;
    m->first = NULL;
    m->has_first = false;
    bool ok = (cases ? by_case(m, g, op) : by_schema(m, op)) && !m->text.failed;
    ok = ok && takes_dtypes(m, g, op);
    if (ok) {
        p->call[p->ncall] = strdup(m->text.data);
        p->ncall++;
        Graph *graph = build(p, &made, &err);
        bool fine = graph && !draws(graph);
        graph_free(graph);
        if (fine) return true;
        free(p->call[--p->ncall]);
    }
    p->ninput = inputs;
    return false;
}

bool program_make(Program *p, const Golden *g, uint64_t seed)
{
    *p = (Program){.state = seed * 0x9e3779b97f4a7c15u + 1};
    Making m = {.p = p};
    int calls = below(&m, 2) ? 1 : 2 + below(&m, CALLS - 1);
    p->outputs = (unsigned)below(&m, 1 << CALLS);
    p->least = 1 + below(&m, 2);
    p->dynamic = below(&m, 3) > 0;
    for (int k = 0; k < calls; k++) {
        Err err = {0};
        m.g = p->ncall ? build(p, &m.made, &err) : NULL;
        bool added = false;
        for (int tries = 0; tries < TRIES && !added; tries++) {
            const Op *op = op_get(g->row[below(&m, g->rows)]);
            bool cases = g->n[op->id] && below(&m, 2);
            for (int again = 0; again < (cases ? 2 : 12) && !added; again++) added = add(&m, g, op, cases);
        }
        graph_free(m.g);
    }
    buf_free(&m.text);
    return p->ncall > 0;
}
