/* Graphs as text: printing, and parsing the same text back. One line a statement:
 *
 *     symbol s0 in [1, 8]
 *     symbol u0 = item %grid_0                    symbol n1 = size %nonzero 0
 *     input %x: f32[s0, 3]
 *     weight %p_w: f32[4, 3] = parameter "fc.weight"
 *     %linear: f32[s0, 4] = aten.linear.default(%x, %p_w) in layers.0.fc
 *     %values: f32[2], %indices: i64[2] = aten.topk.default(%y, 2)
 *     require s0 < 9 "guard"
 *     mutate %b_cache = %add
 *     output output_0 = %linear
 *
 * A graph as an argument (qkv.loop) stands between braces, its lines indented. Names of inputs and outputs that are
 * more than letters, digits,
 * '_' and '.' are strings: input %x_1: f32[3] = "x:1".
 *
 * Declared types of results are checked against shape inference, not trusted.
 */
#include "ir/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"

/* ------------------------------------------------------------------ printing */

/* A name: as it is where that is one word, else as a string. */
static void print_word(const char *s, Buf *out)
{
    bool word = *s != 0;
    for (const char *c = s; *c; c++) word = word && (is_alnum(*c) || *c == '_' || *c == '.');
    if (word) buf_puts(out, s);
    else buf_quoted(out, s);
}

static void print_expr(const Graph *g, const Expr *e, Buf *out)
{
    if (e->kind == EX_BOOL) buf_puts(out, e->i ? "true" : "false");
    else if (ex_is_const(e) || e->kind == EX_SYM) ex_print(g->ex, e, out);
    else {
        buf_puts(out, "(");
        ex_print(g->ex, e, out);
        buf_puts(out, ")");
    }
}

/* Indented, so that its lines are not taken for those of the graph around it. */
static void print_body(const Graph *g, Buf *out)
{
    Buf b = {0};
    graph_print(g, &b);
    buf_puts(out, "{\n");
    for (const char *s = b.data; s && *s;) {
        size_t n = strcspn(s, "\n");
        buf_puts(out, "  ");
        buf_add(out, s, n + 1);
        s += n + 1;
    }
    buf_puts(out, "}");
    out->failed |= b.failed;
    buf_free(&b);
}

static void print_arg(const Graph *g, const Arg *a, Buf *out)
{
    switch (a->kind) {
    case ARG_NONE: buf_puts(out, "none"); break;
    case ARG_VALUE: buf_printf(out, "%%%s", a->v->name); break;
    case ARG_EXPR: print_expr(g, a->e, out); break;
    case ARG_STR: buf_quoted(out, a->s); break;
    case ARG_DTYPE: buf_puts(out, dtype_name(a->dtype)); break;
    case ARG_GRAPH: print_body(a->g, out); break;
    case ARG_VALUES:
    case ARG_EXPRS:
        buf_puts(out, "[");
        for (int i = 0; i < a->n; i++) {
            if (i) buf_puts(out, ", ");
            if (a->kind == ARG_EXPRS) print_expr(g, a->es[i], out);
            else if (a->vs[i]) buf_printf(out, "%%%s", a->vs[i]->name);
            else buf_puts(out, "none");
        }
        buf_puts(out, "]");
        break;
    }
}

static void print_type(const Graph *g, const Value *v, Buf *out)
{
    buf_printf(out, "%%%s: %s[", v->name, dtype_name(v->dtype));
    for (int i = 0; i < v->rank; i++) {
        if (i) buf_puts(out, ", ");
        ex_print(g->ex, v->dim[i], out);
    }
    buf_puts(out, "]");
}

static bool is_default(Graph *scratch, const Param *p, const Arg *a)
{
    if (a->kind == ARG_NONE) return p->optional || p->type == PT_IGNORED || (p->def && !strcmp(p->def, "None"));
    if (!p->def) return false;
    Arg d;
    Err ignored;
    if (a->kind == ARG_VALUES) return !a->n && !strcmp(p->def, "[]");
    if (!text_parse_default(scratch, p, &d, &ignored) || d.kind != a->kind) return false;
    switch (a->kind) {
    case ARG_EXPR: return a->e == d.e;
    case ARG_STR: return !strcmp(a->s, d.s);
    case ARG_DTYPE: return a->dtype == d.dtype;
    case ARG_EXPRS:
        if (a->n != d.n) return false;
        for (int i = 0; i < a->n; i++)
            if (a->es[i] != d.es[i]) return false;
        return true;
    default: return false;
    }
}

static void print_node(Graph *g, const Node *n, Buf *out)
{
    for (int k = 0; k < n->nout; k++) {
        if (k) buf_puts(out, ", ");
        print_type(g, n->out[k], out);
    }
    buf_printf(out, "%s%s(", n->nout ? " = " : "", n->op->name);
    bool first = true, named = false;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Param *p = &n->op->schema->params[i];
        if (is_default(g, p, &n->arg[i])) {
            named = true;
            continue;
        }
        if (!first) buf_puts(out, ", ");
        first = false;
        if (named || p->kwonly) buf_printf(out, "%s=", p->name);
        print_arg(g, &n->arg[i], out);
    }
    buf_puts(out, ")");
    if (n->module) {
        buf_puts(out, " in ");
        print_word(n->module->path, out);
    }
    buf_puts(out, "\n");
}

void graph_print_node(const Graph *g, const Node *n, Buf *out) { print_node((Graph *)(uintptr_t)g, n, out); }

/* Printing interns default values in g's arena: the graph means the same before and after. */
void graph_print(const Graph *cg, Buf *out)
{
    Graph *g = (Graph *)(uintptr_t)cg;
    static const char *const kinds[] = {"parameter", "buffer", "constant"};
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->source == SYM_GONE) continue;
        buf_printf(out, "symbol %s", s->name);
        if (s->source == SYM_ITEM) buf_printf(out, " = item %%%s", s->value->name);
        if (s->source == SYM_SIZE) buf_printf(out, " = size %%%s %d", s->value->name, s->dim);
        buf_puts(out, " in [");
        if (s->lo == INT64_MIN) buf_puts(out, "-inf, ");
        else buf_printf(out, "%lld, ", (long long)s->lo);
        if (s->hi == INT64_MAX) buf_puts(out, "inf]\n");
        else buf_printf(out, "%lld]\n", (long long)s->hi);
    }
    for (int i = 0; i < g->ninput; i++) {
        buf_puts(out, "input ");
        print_type(g, g->input[i], out);
        if (g->input[i]->label) {
            buf_puts(out, " = ");
            buf_quoted(out, g->input[i]->label);
        }
        buf_puts(out, "\n");
    }
    for (int i = 0; i < g->nweight; i++) {
        buf_puts(out, "weight ");
        print_type(g, g->weight[i], out);
        buf_printf(out, " = %s ", kinds[g->weight[i]->weight]);
        buf_quoted(out, g->weight[i]->fqn ? g->weight[i]->fqn : "");
        buf_puts(out, "\n");
    }
    for (const Node *n = g->first; n; n = n->next) print_node(g, n, out);
    for (int i = 0; i < g->nrequire; i++) {
        buf_puts(out, "require ");
        ex_print(g->ex, g->require[i].cond, out);
        buf_puts(out, " ");
        buf_quoted(out, g->require[i].where);
        buf_puts(out, "\n");
    }
    for (int i = 0; i < graph_mutations(g); i++) {
        const Mutation *m = graph_mutation(g, i);
        buf_printf(out, "mutate %%%s = %%%s\n", m->target->name, m->value->name);
    }
    for (int i = 0; i < g->noutput; i++) {
        const Output *o = &g->output[i];
        buf_puts(out, "output ");
        print_word(o->name, out);
        buf_printf(out, " = %%%s%s%s", o->value->name, o->number ? " number" : "", o->loss ? " loss" : "");
        if (o->gradient_of) buf_printf(out, " gradient of %%%s", o->gradient_of->name);
        buf_puts(out, "\n");
    }
    if (mem_ran_out()) out->failed = true; /* an expression that could not be built for printing */
}

/* ------------------------------------------------------------------ parsing */

/* A symbol whose value is defined further down. */
typedef struct Later {
    struct Later *next;
    int symbol;
    const char *value;
} Later;

typedef struct Reader {
    Graph *g;
    Later *later;
    Require *inferred; /* what nodes required before the text's own list, which gives the order */
    int ninferred;
    Require *guard; /* guards, read before the first node; where: the line's begin */
    int nguard;
    const char *text, *at;
    int line;
    WeightFn *weights;
    MakeFn *make; /* NULL: nodes are added as they stand */
    void *user;
    int depth;     /* of graphs in arguments */
    int made_from; /* id of the first value that the current line made */
    Map unnamed;   /* names of values that lowering made and the text does not know: they give way */
    Err *err;
} Reader;

static Graph *parse_graph(const char *text, WeightFn *weights, MakeFn *make, void *user, int depth, Err *err);

static bool bad(Reader *r, const char *what)
{
    return fail(r->err, E_FORMAT, "line %d: near '%.30s': %s", r->line, r->at, what);
}

static void blanks(Reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r') r->at++;
}

static bool token(Reader *r, const char *t)
{
    blanks(r);
    size_t n = strlen(t);
    if (strncmp(r->at, t, n)) return false;
    if (is_alnum(t[n - 1]) && (is_alnum(r->at[n]) || r->at[n] == '_' || r->at[n] == '.')) return false;
    r->at += n;
    return true;
}

static bool need(Reader *r, const char *t)
{
    if (token(r, t)) return true;
    char what[64];
    snprintf(what, sizeof what, "expected '%s'", t);
    return bad(r, what);
}

static bool word(Reader *r, char *out, size_t cap)
{
    blanks(r);
    size_t n = 0;
    while (is_alnum(r->at[n]) || strchr("_.", r->at[n]) ? r->at[n] != 0 : false) n++;
    if (n == 0 || n >= cap) return bad(r, "expected a name");
    memcpy(out, r->at, n);
    out[n] = 0;
    r->at += n;
    return true;
}

static bool string(Reader *r, char **out)
{
    blanks(r);
    char quote = *r->at;
    if (quote != '"' && quote != '\'') return bad(r, "expected a string");
    Buf b = {0};
    for (r->at++; *r->at && *r->at != quote && *r->at != '\n'; r->at++) {
        char c = *r->at;
        if (c == '\\' && r->at[1]) c = *++r->at == 'n' ? '\n' : *r->at;
        buf_add(&b, &c, 1);
    }
    bool ok = *r->at == quote && !b.failed;
    *out = ok ? arena_strndup(r->g->arena, b.len ? b.data : "", b.len) : NULL;
    buf_free(&b);
    if (!*out) return bad(r, "string does not end");
    r->at++;
    return true;
}

/* An expression up to a ',', ')' or ']' outside parentheses. */
static bool expression(Reader *r, Expr **out)
{
    blanks(r);
    int depth = 0;
    size_t n = 0;
    for (; r->at[n] && r->at[n] != '\n'; n++) {
        char c = r->at[n];
        if (!depth && (c == ',' || c == ')' || c == ']' || c == '"')) break;
        depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    }
    while (n && r->at[n - 1] == ' ') n--;
    char *s = mem_strndup(r->at, n);
    if (!s) return oom(r->err);
    *out = n ? ex_parse(r->g->ex, s, NULL, NULL, r->err) : NULL;
    mem_free(s);
    if (!n) return bad(r, "expected an argument");
    if (!*out) return within(r->err, "line %d", r->line);
    r->at += n;
    return true;
}

static bool value_ref(Reader *r, Value **out)
{
    char name[512];
    TRY(word(r, name, sizeof name));
    *out = graph_find_value(r->g, name);
    if (!*out) return fail(r->err, E_FORMAT, "line %d: value '%%%s' is not defined", r->line, name);
    return true;
}

enum { MAX_BODIES = 32 };

/* A graph between braces. */
static bool body(Reader *r, Arg *out)
{
    int open = 0, lines = 0;
    const char *begin = r->at + 1, *end = r->at;
    for (bool quoted = false; *end; end++) {
        lines += *end == '\n';
        if (*end == '"') quoted = !quoted;
        else if (quoted && *end == '\\' && end[1]) end++;
        else if (!quoted && *end == '{') open++;
        else if (!quoted && *end == '}' && --open == 0) break;
    }
    if (!*end) return bad(r, "no '}' closes it");
    if (r->depth >= MAX_BODIES)
        return fail(r->err, E_LIMIT, "line %d: graphs nested deeper than %d", r->line, MAX_BODIES);
    char *text = arena_strndup(r->g->arena, begin, (size_t)(end - begin));
    if (!text) return oom(r->err);
    Graph *g = parse_graph(text, r->weights, r->make, r->user, r->depth + 1, r->err);
    if (!g) return within(r->err, "line %d: body", r->line);
    *out = arg_graph(r->g, g);
    r->at = end + 1;
    r->line += lines;
    return out->kind == ARG_GRAPH || oom(r->err);
}

static bool argument(Reader *r, bool dtype, Arg *out);

static bool list(Reader *r, Arg *out)
{
    enum { MOST = 1 << 16 };
    *out = (Arg){.kind = ARG_EXPRS, .es = arena_array(r->g->arena, Expr *, 1)};
    if (!out->es) return oom(r->err);
    void *all = NULL;
    for (; !token(r, "]"); out->n++) {
        Arg item;
        if (out->n && !need(r, ",")) return false;
        if (out->n == MOST) return bad(r, "list of more than 65536 elements");
        if (token(r, "[")) return bad(r, "a list in a list");
        TRY(argument(r, false, &item));
        bool tensor = item.kind == ARG_VALUE || item.kind == ARG_NONE;
        if (!out->n && tensor) out->kind = ARG_VALUES;
        if (out->kind == ARG_VALUES ? !tensor : item.kind != ARG_EXPR) return bad(r, "mixed list");
        if (!(all = vec_room(r->g->arena, all, out->n, sizeof(void *)))) return oom(r->err);
        if (tensor) (out->vs = all)[out->n] = item.kind == ARG_VALUE ? item.v : NULL;
        else (out->es = all)[out->n] = item.e;
    }
    return true;
}

/* dtype: the parameter is one; elsewhere u2 and i4 are symbols. */
static bool argument(Reader *r, bool dtype, Arg *out)
{
    *out = arg_none();
    if (token(r, "%")) {
        out->kind = ARG_VALUE;
        return value_ref(r, &out->v);
    }
    if (token(r, "[")) return list(r, out);
    blanks(r);
    if (*r->at == '"' || *r->at == '\'') {
        char *s;
        TRY(string(r, &s));
        *out = (Arg){.kind = ARG_STR, .s = s};
        return true;
    }
    if (token(r, "none") || token(r, "None")) return true;
    static const struct {
        const char *t;
        double v;
    } odd[] = {{"inf", INFINITY}, {"-inf", -INFINITY}, {"nan", NAN}};
    for (size_t i = 0; i < 3; i++)
        if (token(r, odd[i].t)) {
            *out = arg_float(r->g, odd[i].v);
            return true;
        }
    if (*r->at == '{') return body(r, out);
    const char *back = r->at;
    char name[64];
    if (dtype && is_alpha(*r->at) && word(r, name, sizeof name)) {
        DType t = dtype_from_name(name);
        if (t != DT_NONE) {
            *out = arg_dtype(t);
            return true;
        }
    }
    r->at = back;
    out->kind = ARG_EXPR;
    return expression(r, &out->e);
}

static bool call(Reader *r, const Op **op, Arg **args)
{
    char name[256];
    TRY(word(r, name, sizeof name));
    *op = op_find(name);
    if (!*op) return fail(r->err, E_UNSUPPORTED, "line %d: op '%s' is not in the table", r->line, name);
    const Schema *s = (*op)->schema;
    Arg given[64] = {{0}};
    TRY(need(r, "("));
    for (int k = 0; !token(r, ")"); k++) {
        if (k && !need(r, ",")) return false;
        int at = k;
        blanks(r);
        const char *back = r->at;
        if (is_alpha(*back) || *back == '_') {
            TRY(word(r, name, sizeof name));
            if (*r->at == '=' && r->at[1] != '=') {
                at = op_param(*op, name);
                if (at < 0)
                    return fail(r->err, E_FORMAT, "line %d: %s has no argument '%s'", r->line, (*op)->name, name);
                r->at++;
            } else {
                r->at = back;
            }
        }
        if (at >= s->nparams)
            return fail(r->err, E_FORMAT, "line %d: %s takes %d arguments", r->line, (*op)->name, s->nparams);
        TRY(argument(r, s->params[at].type == PT_DTYPE, &given[at]));
    }
    *args = arena_array(r->g->arena, Arg, s->nparams + 1);
    if (!*args) return oom(r->err);
    return op_fit_args(r->g, *op, s->nparams, given, *args, r->err);
}

bool text_parse_call(Graph *g, const char *text, const Op **op, Arg **args, Err *err)
{
    Reader r = {.g = g, .text = text, .at = text, .line = 1, .err = err};
    TRY(call(&r, op, args));
    blanks(&r);
    return !*r.at || bad(&r, "unexpected text");
}

bool text_parse_default(Graph *g, const Param *p, Arg *out, Err *err)
{
    Reader r = {.g = g, .text = p->def, .at = p->def, .line = 1, .err = err};
    TRY(argument(&r, p->type == PT_DTYPE, out));
    if (p->type == PT_DTYPE && out->kind == ARG_EXPR && ex_equals_int(out->e, 4))
        *out = arg_dtype(DT_I64); /* at::kLong; no schema has another */
    if (p->type == PT_BOOL && out->kind == ARG_EXPR && out->e->kind == EX_INT) out->e = ex_bool(g->ex, out->e->i != 0);
    return arg_built(out) || oom(err);
}

static bool type(Reader *r, char *name, size_t cap, DType *t, int *rank, Expr **dim)
{
    char text[32];
    TRY(need(r, "%"));
    TRY(word(r, name, cap));
    const Value *other = graph_find_value(r->g, name);
    if (other && !strcmp(other->name, name) && !map_has(&r->unnamed, name))
        return fail(r->err, E_FORMAT, "line %d: value '%%%s' is defined twice", r->line, name);
    TRY(need(r, ":"));
    TRY(word(r, text, sizeof text));
    *t = dtype_from_name(text);
    if (*t == DT_NONE) return bad(r, "unknown dtype");
    TRY(need(r, "["));
    for (*rank = 0; !token(r, "]"); ++*rank) {
        if (*rank && !need(r, ",")) return false;
        if (*rank == MAX_RANK) return bad(r, "rank too large");
        TRY(expression(r, &dim[*rank]));
        if (dim[*rank]->is_float) return bad(r, "a size is an integer");
    }
    return true;
}

static bool symbol(Reader *r)
{
    char name[256], from[512] = "";
    int dim = 0;
    TRY(word(r, name, sizeof name));
    if (token(r, "=")) { /* the value comes later: finish_symbols ties it */
        bool item = token(r, "item");
        if (!item) TRY(need(r, "size"));
        TRY(need(r, "%"));
        TRY(word(r, from, sizeof from));
        if (!item) dim = (int)parse_int(r->at, &r->at);
        Expr *e = ex_symbol(r->g->ex, name);
        if (!e) return oom(r->err);
        Symbol *s = expr_symbol(r->g->ex, (int)e->i);
        s->source = item ? SYM_ITEM : SYM_SIZE;
        s->dim = dim;
        Later *l = arena_new(r->g->arena, Later);
        if (!l) return oom(r->err);
        *l = (Later){.next = r->later, .symbol = (int)e->i, .value = arena_strdup(r->g->arena, from)};
        r->later = l;
    }
    Expr *e = ex_symbol(r->g->ex, name);
    if (!e) return oom(r->err);
    TRY(need(r, "in"));
    TRY(need(r, "["));
    int64_t lo = INT64_MIN, hi = INT64_MAX;
    if (!token(r, "-inf")) lo = parse_int(r->at, &r->at);
    TRY(need(r, ","));
    if (!token(r, "inf")) hi = parse_int(r->at, &r->at);
    TRY(need(r, "]"));
    expr_set_range(r->g->ex, (int)e->i, lo, hi);
    return true;
}

static bool weight(Reader *r)
{
    char name[512], *fqn;
    DType t;
    int rank, kind;
    Expr *dim[MAX_RANK];
    TRY(type(r, name, sizeof name, &t, &rank, dim));
    TRY(need(r, "="));
    if (token(r, "parameter")) kind = W_PARAMETER;
    else if (token(r, "buffer")) kind = W_BUFFER;
    else if (token(r, "constant")) kind = W_CONSTANT;
    else return bad(r, "expected parameter, buffer or constant");
    TRY(string(r, &fqn));
    const Tensor *data = r->weights ? r->weights(r->user, fqn) : NULL;
    if (!data) return fail(r->err, E_FORMAT, "line %d: weight '%s': no data given", r->line, fqn);
    bool same = data->dtype == t && data->rank == rank;
    for (int i = 0; same && i < rank; i++) same = ex_equals_int(dim[i], data->shape[i]);
    if (!same) return fail(r->err, E_FORMAT, "line %d: weight '%s': data of another dtype or shape", r->line, fqn);
    Value *v = graph_add_weight(r->g, name, fqn, data);
    if (!v) return oom(r->err);
    v->weight = (unsigned char)kind;
    return true;
}

/* The text's name for a data-dependent size. Any other one that is declared differently than inferred must be the same
 * when it runs: the file's writer may have seen that two expressions are equal where we do not. */
static bool named_size(Reader *r, Expr **have, Expr *declared)
{
    ExprPool *p = r->g->ex;
    Symbol *fresh = (*have)->kind == EX_SYM ? expr_symbol(r->g->ex, (int)(*have)->i) : NULL;
    bool mine = fresh && (fresh->source == SYM_SIZE || fresh->source == SYM_GONE) && fresh->value &&
                fresh->value->id >= r->made_from;
    if (!mine || declared->kind != EX_SYM) {
        Expr *same = ex_make(p, EX_EQ, declared, *have, NULL);
        bool open = same && !ex_is_const(same) && !(declared->symbols & ~(*have)->symbols);
        if (open) return graph_require(r->g, same, r->err, "line %d: the declared size of a result", r->line);
        Buf says = {0}, gives = {0};
        ex_print(p, declared, &says);
        ex_print(p, *have, &gives);
        fail(r->err, E_FORMAT, "line %d: the declared size %.200s of a result is not what the op gives, %.200s",
             r->line, says.data ? says.data : "", gives.data ? gives.data : "");
        buf_free(&says);
        buf_free(&gives);
        return false;
    }
    fresh->source = SYM_GONE;
    *have = declared;
    return true;
}

/* "in layers.0.fc" after a node: the module of all that the line makes. */
static bool in_module(Reader *r)
{
    char name[512], *path = name;
    if (!token(r, "in")) return true;
    blanks(r);
    TRY(*r->at == '"' ? string(r, &path) : word(r, name, sizeof name));
    r->g->module = graph_module(r->g, path, NULL);
    return r->g->module || oom(r->err);
}

static bool make_node(Reader *r, const Op *op, const Arg *args, const char *name, Value **out, int *nout)
{
    if (r->make) return r->make(r->g, op, args, name, out, nout, r->err) || within(r->err, "line %d", r->line);
    Node *made = graph_add(r->g, op->id, op->schema->nparams, args, name, r->err);
    for (*nout = 0; made && *nout < made->nout && *nout < 64; ++*nout) out[*nout] = made->out[*nout];
    return made != NULL;
}

static bool note_unnamed(Reader *r, Value *const *got, int ngot)
{
    for (const Node *n = r->g->last; r->make && n && n->nout && n->out[0]->id >= r->made_from; n = n->prev)
        for (int k = 0; k < n->nout; k++) {
            bool known = false;
            for (int i = 0; i < ngot; i++) known |= got[i] == n->out[k];
            if (!known && !map_put(&r->unnamed, n->out[k]->name, n->out[k])) return oom(r->err);
        }
    return true;
}

static bool node(Reader *r)
{
    struct {
        char name[512];
        DType t;
        int rank;
        Expr *dim[MAX_RANK];
    } *out = mem_zeroed(64, sizeof *out);
    int n = 0;
    bool ok = out || oom(r->err);
    for (bool more = r->at[0] == '%'; ok && more; more = token(r, ",")) {
        ok = n < 64 && type(r, out[n].name, sizeof out->name, &out[n].t, &out[n].rank, out[n].dim);
        n++;
    }
    const Op *op = NULL;
    Arg *args = NULL;
    r->g->module = NULL;
    ok = ok && (!n || need(r, "=")) && call(r, &op, &args) && in_module(r);
    Value *got[64];
    int ngot = 0;
    r->made_from = r->g->next_id;
    ok = ok && make_node(r, op, args, n ? out[0].name : NULL, got, &ngot);
    if (ok && ngot != n) ok = bad(r, "wrong number of results");
    for (int k = 0; ok && k < n; k++)
        for (int i = 0; ok && i < k; i++)
            if (!strcmp(out[i].name, out[k].name))
                ok = fail(r->err, E_FORMAT, "line %d: two values are called '%s'", r->line, out[k].name);
    for (int k = 0; ok && k < n; k++) {
        Value *v = got[k];
        if (!strcmp(v->name, out[k].name)) continue;
        char *name = arena_strdup(r->g->arena, out[k].name);
        if (v->id >= r->made_from) ok = name && graph_rename(r->g, v, name, r->err);
        else ok = name && map_put(&r->g->names, name, v); /* another name of what was there before */
    }
    for (int k = 0; ok && k < n; k++) {
        Value *v = got[k];
        if (v->dtype != out[k].t || v->rank != out[k].rank)
            ok = bad(r, "declared type of a result is not what the op gives");
        for (int i = 0; ok && i < v->rank; i++)
            if (v->dim[i] != out[k].dim[i]) ok = named_size(r, &v->dim[i], out[k].dim[i]);
    }
    ok = ok && note_unnamed(r, got, ngot);
    r->g->module = NULL;
    mem_free(out);
    return ok;
}

/* Guards stand below the nodes, whose sizes are worked out with what they say: as in a file that is imported. */
static bool assume_guards(Reader *r)
{
    Reader ahead = *r;
    Err ignored;
    int n = 1;
    for (const char *s = r->at; (s = strstr(s, "\nrequire ")); s++) n++;
    r->guard = arena_array(r->g->arena, Require, n);
    if (!r->guard) return oom(r->err);
    ahead.err = &ignored;
    for (const char *s = r->at; (s = strstr(s, "\nrequire ")); s++) {
        Expr *e;
        char *where;
        ahead.at = s + strlen("\nrequire");
        const char *begin = ahead.at;
        if (expression(&ahead, &e) && string(&ahead, &where) && !strncmp(where, "guard ", 6))
            r->guard[r->nguard++] = (Require){e, begin};
    }
    TRY(!r->nguard || (graph_bind_sizes(r->g, r->err) && graph_unify_sizes(r->g, r->guard, &r->nguard, r->err)));
    for (int i = 0; i < r->nguard; i++) expr_assume(r->g->ex, r->guard[i].cond);
    return true;
}

static bool statement(Reader *r)
{
    Graph *g = r->g;
    char name[512];
    if (token(r, "symbol")) return symbol(r);
    if (token(r, "weight")) return weight(r);
    if (token(r, "input")) {
        DType t;
        int rank;
        Expr *dim[MAX_RANK];
        TRY(type(r, name, sizeof name, &t, &rank, dim));
        Value *v = graph_add_input(g, name, t, rank, dim);
        char *label = NULL;
        if (!v) return oom(r->err);
        if (token(r, "=")) TRY(string(r, &label));
        v->label = label;
        return true;
    }
    if (token(r, "require")) {
        Expr *e;
        char *where;
        if (!r->inferred) {
            r->inferred = arena_array(g->arena, Require, g->nrequire + 1);
            if (!r->inferred) return oom(r->err);
            for (r->ninferred = 0; r->ninferred < g->nrequire; r->ninferred++)
                r->inferred[r->ninferred] = g->require[r->ninferred];
            g->nrequire = 0;
        }
        const char *begin = r->at;
        TRY(expression(r, &e));
        TRY(string(r, &where));
        for (int i = 0; i < r->nguard; i++)
            if (r->guard[i].where == begin) e = r->guard[i].cond;
        return graph_require(g, e, r->err, "%s", where);
    }
    bool mutate = token(r, "mutate");
    if (mutate || token(r, "output")) {
        Value *target = NULL, *v;
        char *output = NULL;
        if (mutate) {
            TRY(need(r, "%"));
            TRY(value_ref(r, &target));
        } else {
            blanks(r);
            output = name;
            TRY(*r->at == '"' ? string(r, &output) : word(r, name, sizeof name));
        }
        TRY(need(r, "="));
        TRY(need(r, "%"));
        TRY(value_ref(r, &v));
        if (mutate) return graph_add_mutation(g, target, v, r->err);
        TRY(graph_add_output(g, output, v, r->err));
        Output *o = &g->output[g->noutput - 1];
        o->number = token(r, "number");
        o->loss = token(r, "loss");
        if (!token(r, "gradient")) return true;
        return need(r, "of") && need(r, "%") && value_ref(r, &o->gradient_of);
    }
    if (!r->guard) TRY(assume_guards(r));
    return node(r);
}

static bool finish_symbols(Reader *r)
{
    for (const Later *l = r->later; l; l = l->next) {
        Symbol *s = expr_symbol(r->g->ex, l->symbol);
        s->value = l->value ? graph_find_value(r->g, l->value) : NULL;
        if (!s->value)
            return fail(r->err, E_FORMAT, "symbol '%s': value '%%%s' is not defined", s->name,
                        l->value ? l->value : "");
        bool one = r->make && s->source == SYM_ITEM;
        for (int i = 0; one && i < s->value->rank; i++) one = ex_equals_int(s->value->dim[i], 1);
        if (r->make && s->source == SYM_ITEM && !one)
            return fail(r->err, E_FORMAT, "symbol '%s': '%%%s' is not one number", s->name, l->value);
        if (s->source == SYM_SIZE && (s->dim < 0 || s->dim >= s->value->rank))
            return fail(r->err, E_FORMAT, "symbol '%s': '%%%s' has %d axes, not axis %d", s->name, l->value,
                        s->value->rank, s->dim);
        if (s->source == SYM_SIZE && s->value->kind != V_NODE)
            return fail(r->err, E_FORMAT, "symbol '%s': '%%%s' is not the result of a node", s->name, l->value);
    }
    return true;
}

static Graph *parse_graph(const char *text, WeightFn *weights, MakeFn *make, void *user, int depth, Err *err)
{
    Graph *g = graph_create();
    if (!g) {
        oom(err);
        return NULL;
    }
    Reader r = {
        .g = g, .text = text, .at = text, .weights = weights, .make = make, .user = user, .depth = depth, .err = err};
    bool ok = true;
    while (ok && *r.at) {
        r.line++;
        blanks(&r);
        if (*r.at && *r.at != '\n' && *r.at != '#') ok = statement(&r);
        blanks(&r);
        if (*r.at == '#')
            while (*r.at && *r.at != '\n') r.at++;
        if (ok && *r.at == '\n') r.at++;
        else if (ok && *r.at) ok = bad(&r, "unexpected text");
    }
    map_free(&r.unnamed);
    for (int i = 0; ok && i < r.ninferred; i++)
        ok = graph_require(g, r.inferred[i].cond, err, "%s", r.inferred[i].where);
    if (ok && finish_symbols(&r) && graph_check(g, err)) return g;
    graph_free(g);
    return NULL;
}

Graph *graph_parse(const char *text, WeightFn *weights, void *user, Err *err)
{
    return parse_graph(text, weights, NULL, user, 0, err);
}

Graph *graph_parse_checked(const char *text, WeightFn *weights, void *user, MakeFn *make, Err *err)
{
    return parse_graph(text, weights, make, user, 0, err);
}
