/* Text tests of rewriting: a graph, what it becomes, and the rules that did it. TAP.
 *
 *     run_rules tests/rules             every case of every .txt there; then every built-in rule must have fired in
 *                                       one and refused in one
 *     run_rules tests/rules softmax     only cases with this word in their name
 *     run_rules --bless tests/rules     writes what came out into the files
 *     run_rules --with m.rules [--floats] tests/rules WORD...
 *                                       for tools/mutants.py: rules beside the built-in ones or in their place, proven
 *                                       on exact payloads or on floats; a line for each case says what came of it
 *     run_rules --with m.rules --certify tests/rules WORD...
 *                                       the same, not proven but certified for all sizes (program/certify.h)
 *
 * A case:
 *
 *     === name
 *     --- rules                  only these rules; `--- rules added`: after the built-in ones; neither: the built-in
 *                                ones
 *     (rule r (neg (neg ?x)) ?x)
 *     --- options exact-masked-rows recompose convert fuse unproven skip-padding
 *     --- graph                  as in docs/IR.md; result types, "aten." and overloads may be left out, and a
 *                                weight's values follow "="
 *     input %x: f32[s0, 4]
 *     weight %w: f32[4] = 1 2 3 4
 *     %e = exp(%x)
 *     output o = %e
 *     --- not softmax_by_hand    rules that meet their root's op here and must not fire
 *     --- after                  nodes, requirements and outputs of the result; left out when nothing changed
 *     --- fired                  firings in order, rules that gave equal forms, softmaxes that are left; with
 *                                skip-padding what it says
 *     --- error                  instead of both: what rules_parse or rewrite_graph say
 *
 * Names that the engine makes up read %new1, %new2 ... Every firing is proven by evaluation, unless the case says
 * `unproven`, and everything is done twice with the same result.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/number.h"
#include "ir/copy.h"
#include "ir/text.h"
#include "padding/skip_padding.h"
#include "program/certify.h"
#include "rewrite/families/all.h"
#include "run/session.h"
#include "tap.h"

enum { MAX_SECTIONS = 8, MAX_WEIGHTS = 32, MAX_CASES = 400 };

typedef struct Section {
    char *head, *arg, *text; /* "rules", "added", lines */
} Section;

typedef struct Case {
    char *name;
    int nsections;
    Section section[MAX_SECTIONS];
} Case;

typedef struct File {
    char *top; /* what stands above the first case */
    int n;
    Case item[MAX_CASES];
} File;

static bool bless, floats, certify;
static const char *with; /* the text of more rules */

static void stop(const char *what, const char *where)
{
    printf("Bail out! %s: %s\n", where, what);
    exit(1);
}

static char *copy(const char *s, size_t n)
{
    char *p = strndup(s, n);
    if (!p) stop("out of memory", "run_rules");
    return p;
}

/* ------------------------------------------------------------------ files of cases */

/* Appends a line to a text that was made by copy(). */
static void append(char **text, const char *line, size_t n)
{
    Buf b = {0};
    buf_puts(&b, *text);
    buf_add(&b, line, n);
    buf_puts(&b, "\n");
    free(*text);
    *text = b.data;
}

static void trim(char *s)
{
    size_t n = strlen(s);
    while (n > 1 && s[n - 1] == '\n' && s[n - 2] == '\n') s[--n] = 0;
    if (n == 1 && s[0] == '\n') s[0] = 0;
}

static File *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    File *file = calloc(1, sizeof *file);
    if (!f || !file) stop("cannot be read", path);
    file->top = copy("", 0);
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, f) > 0) {
        size_t n = strcspn(line, "\n");
        if (!strncmp(line, "=== ", 4)) {
            if (file->n == MAX_CASES) stop("too many cases", path);
            file->item[file->n++].name = copy(line + 4, n - 4);
        } else if (!strncmp(line, "--- ", 4)) {
            Case *c = file->n ? &file->item[file->n - 1] : NULL;
            if (!c || c->nsections == MAX_SECTIONS) stop("a section out of place", path);
            size_t head = strcspn(line + 4, " \n");
            const char *arg = line + 4 + head + (line[4 + head] == ' ');
            c->section[c->nsections++] = (Section){copy(line + 4, head), copy(arg, strcspn(arg, "\n")), copy("", 0)};
        } else if (!file->n) {
            append(&file->top, line, n);
        } else {
            Case *c = &file->item[file->n - 1];
            if (c->nsections) append(&c->section[c->nsections - 1].text, line, n);
            else if (n) stop("a line between a case's name and its first section", path);
        }
    }
    for (int i = 0; i < file->n; i++)
        for (int k = 0; k < file->item[i].nsections; k++) trim(file->item[i].section[k].text);
    free(line);
    fclose(f);
    return file;
}

static void write_file(const char *path, const File *file)
{
    FILE *f = fopen(path, "w");
    if (!f) stop("cannot be written", path);
    fputs(file->top, f);
    for (int i = 0; i < file->n; i++) {
        const Case *c = &file->item[i];
        fprintf(f, "%s=== %s\n", i ? "\n" : "", c->name);
        for (int k = 0; k < c->nsections; k++) {
            const Section *s = &c->section[k];
            fprintf(f, "--- %s%s%s\n%s", s->head, *s->arg ? " " : "", s->arg, s->text);
        }
    }
    fclose(f);
}

static void free_file(File *file)
{
    for (int i = 0; i < file->n; i++) {
        for (int k = 0; k < file->item[i].nsections; k++) {
            free(file->item[i].section[k].head);
            free(file->item[i].section[k].arg);
            free(file->item[i].section[k].text);
        }
        free(file->item[i].name);
    }
    free(file->top);
    free(file);
}

static const Section *section(const Case *c, const char *head)
{
    for (int i = 0; i < c->nsections; i++)
        if (!strcmp(c->section[i].head, head)) return &c->section[i];
    return NULL;
}

static const char *section_text(const Case *c, const char *head)
{
    const Section *s = section(c, head);
    return s ? s->text : "";
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; (s = strstr(s, word)); s += n)
        if ((s == list || s[-1] == ' ') && (!s[n] || s[n] == ' ')) return true;
    return false;
}

/* ------------------------------------------------------------------ graphs of cases */

typedef struct Weights {
    int n;
    char *name[MAX_WEIGHTS];
    Tensor t[MAX_WEIGHTS];
} Weights;

static const Tensor *find_weight(void *user, const char *fqn)
{
    const Weights *w = user;
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->name[i], fqn)) return &w->t[i];
    return NULL;
}

static void free_weights(Weights *w)
{
    for (int i = 0; i < w->n; i++) {
        free(w->name[i]);
        free(w->t[i].data);
    }
    w->n = 0;
}

/* "weight %w: f32[2, 2] = 1 2": the numbers are repeated; without any 0.5, 1, 1.5, 2, 0.5 ...
 * Adds the statement as graph_parse reads it. */
static bool read_weight(Weights *w, const char *line, Buf *out, Err *err)
{
    char name[64], dtype[16];
    int64_t shape[MAX_RANK], n = 1;
    int at = 0, rank = 0;
    if (sscanf(line, "weight %%%63[^:]: %15[a-z0-9][%n", name, dtype, &at) != 2 || !at || w->n == MAX_WEIGHTS)
        return fail(err, E_FORMAT, "%s", line);
    const char *s = line + at;
    while (*s && *s != ']') {
        if (rank == MAX_RANK) return fail(err, E_FORMAT, "%s", line);
        shape[rank] = parse_int(s, &s);
        n *= shape[rank++];
        s += strspn(s, ", ");
    }
    buf_printf(out, "%.*s] = parameter \"%s\"\n", (int)(s - line), line, name);
    double number[64];
    int count = 0;
    s += strspn(s, "]= ");
    for (const char *end; *s && count < 64; s = end + strspn(end, " ")) {
        number[count++] = parse_double(s, &end);
        if (end == s) return fail(err, E_FORMAT, "%s", line);
    }
    Tensor *t = &w->t[w->n];
    *t = tensor_of(dtype_from_name(dtype), rank, shape, NULL);
    t->data = calloc(1, tensor_bytes(t) + 64);
    w->name[w->n++] = copy(name, strlen(name));
    if (!t->data) return fail(err, E_LIMIT, "out of memory");
    for (int64_t i = 0; i < n; i++)
        store_f64(t->dtype, (char *)t->data + (size_t)i * dtype_size(t->dtype),
                  count ? number[i % count] : 0.5 * (double)(i % 4 + 1));
    return true;
}

static void mark_inputs(Graph *g)
{
    for (int k = 0; k < g->ninput; k++)
        for (int d = 0; d < g->input[k]->rank; d++)
            for (int i = 0; i < expr_symbol_count(g->ex); i++) {
                Symbol *s = expr_symbol(g->ex, i);
                if (s->source != SYM_FREE || !ex_mentions(g->input[k]->dim[d], s->expr)) continue;
                s->source = SYM_INPUT;
                s->value = g->input[k];
                s->dim = d;
                if (s->lo < 1) expr_set_range(g->ex, i, 1, s->hi);
            }
}

/* "%v, %i = topk(%x, 2)": the same with the op's full name and the results' types, from the graph so far. */
static bool read_node(const char *so_far, Weights *w, const char *line, Buf *out, Err *err)
{
    Graph *g = graph_parse(so_far, find_weight, w, err);
    if (!g) return false;
    const char *call = strstr(line, " = ") + 3;
    char name[128], full[2048];
    Arg *args;
    const Op *op;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(call, "("), call);
    op = rule_op(name);
    snprintf(full, sizeof full, "%s%s", op ? op->name : name, call + strlen(name));
    bool ok = text_parse_call(g, full, &op, &args, err);
    const Node *n = ok ? graph_add(g, op->id, op->schema->nparams, args, "?", err) : NULL;
    for (int k = 0; n && k < n->nout; k++) {
        size_t len = strcspn(line, ",: ");
        buf_printf(out, "%s%.*s: %s[", k ? ", " : "", (int)len, line, dtype_name(n->out[k]->dtype));
        for (int i = 0; i < n->out[k]->rank; i++) {
            buf_puts(out, i ? ", " : "");
            ex_print(g->ex, n->out[k]->dim[i], out);
        }
        buf_puts(out, "]");
        line += len + strspn(line + len, ", ");
    }
    if (n) buf_printf(out, " = %s\n", full);
    graph_free(g);
    return n || within(err, "%s", call);
}

static Graph *read_graph(const char *text, Weights *w, Err *err)
{
    Buf b = {0};
    bool ok = true;
    for (const char *s = text; ok && *s; s += strcspn(s, "\n") + 1) {
        char *line = copy(s, strcspn(s, "\n"));
        if (!strncmp(line, "weight ", 7)) ok = read_weight(w, line, &b, err);
        else if (line[0] == '%' && !memchr(line, ':', strcspn(line, "=")))
            ok = read_node(b.data ? b.data : "", w, line, &b, err);
        else if (line[0] != '#') buf_printf(&b, "%s\n", line);
        free(line);
    }
    Graph *g = ok ? graph_parse(b.data ? b.data : "", find_weight, w, err) : NULL;
    if (g) mark_inputs(g);
    buf_free(&b);
    return g;
}

/* Statements that rewriting may change, names that it made up in the order of nodes. NULL with an error. */
static char *text_of(Graph *g, const Map *known, Err *err)
{
    int made = 0;
    char name[32];
    for (Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++) {
            if (map_has(known, n->out[k]->name)) continue;
            snprintf(name, sizeof name, "new%d", ++made);
            TRY_NULL(graph_rename(g, n->out[k], arena_strdup(g->arena, name), err));
        }
    Buf b = {0}, out = {0};
    graph_print(g, &b);
    for (const char *s = b.data ? b.data : ""; *s; s += strcspn(s, "\n") + 1)
        if (strncmp(s, "symbol ", 7) && strncmp(s, "input ", 6) && strncmp(s, "weight ", 7))
            buf_printf(&out, "%.*s\n", (int)strcspn(s, "\n"), s);
    buf_free(&b);
    return out.data ? out.data : copy("", 0);
}

static void know_names(const Graph *g, Map *known)
{
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++)
            map_put(known, copy(n->out[k]->name, strlen(n->out[k]->name)), (void *)(uintptr_t)1);
}

static void forget_names(Map *known)
{
    for (size_t i = 0; i < known->count; i++) free((char *)(uintptr_t)known->entries[i].key);
    map_free(known);
}

/* ------------------------------------------------------------------ running */

static void release(void *user)
{
    Session **s = user;
    session_free(*s);
    *s = NULL;
}

static bool eval(void *user, const Graph *g, const Tensor *const *in, const Tensor **out, Err *err)
{
    Session **s = user;
    release(user);
    TRY(*s = session_create(g, NULL, 1, 0, err));
    for (int i = 0; i < g->ninput; i++) TRY(session_set_input(*s, i, in[i], err));
    TRY(session_run(*s, err));
    for (int i = 0; i < g->noutput; i++) out[i] = session_output(*s, i);
    return true;
}

typedef struct Outcome {
    bool changed;
    char *after, *fired, *error; /* error: "" when there was none */
    char *open;                  /* why it is not certified; "": it is */
} Outcome;

static void free_outcome(Outcome *o)
{
    free(o->after);
    free(o->open);
    free(o->fired);
    free(o->error);
    *o = (Outcome){0};
}

typedef struct Coverage { /* by built-in rule */
    int fired, refused;
} Coverage;

static const char *or_new(const Map *known, const char *name) { return map_has(known, name) ? name : "a new node"; }

static char *log_text(const RewriteLog *log, const RuleSet *rules, const Map *known)
{
    Buf b = {0};
    bool any = false;
    for (int i = 0; i < log->nfirings; i++) {
        const Firing *f = &log->firing[i];
        buf_printf(&b, "%s at %s\n", f->rule, or_new(known, f->result));
        if (f->note) buf_printf(&b, "  %s\n", f->note);
        if (f->proof.skipped) buf_printf(&b, "  not proven: %s\n", f->proof.why);
        if (f->proof.sense == SENSE_FLOATS) buf_printf(&b, "  on floats: %s\n", f->proof.why_floats);
    }
    for (int i = 0; i < rules->n; i++) {
        if (!rules->rule[i]->derive || !log->uses[i]) continue;
        buf_printf(&b, "%s %s", any ? "" : "derived:", rules->rule[i]->name);
        any = true;
    }
    if (any) buf_puts(&b, "\n");
    for (int i = 0; i < log->nleft; i++)
        buf_printf(&b, "left: %s, stopped at %s\n", or_new(known, log->left[i].node), or_new(known, log->left[i].at));
    return b.data ? b.data : copy("", 0);
}

static unsigned phases_of(const char *options)
{
    unsigned bits = 0;
    for (int p = 0; p < PHASES; p++)
        if (has_word(options, phase_name((Phase)p))) bits |= 1u << p;
    return bits;
}

static bool meets(const bool *op, const Pat *p)
{
    if (p->kind == P_OP) return op[p->op->id];
    for (int i = 0; i < p->n; i++)
        if (meets(op, p->sub[i])) return true;
    return false;
}

/* The rules of `--- not`: none was used, all were met. Says what is wrong. */
static void check_not(const Case *c, const RuleSet *rules, const RewriteLog *log, const bool *op, Coverage *cover,
                      Buf *why)
{
    const Section *s = section(c, "not");
    for (const char *at = s ? s->arg : ""; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        int n = (int)strcspn(at, " "), i = 0;
        while (i < rules->n && (strncmp(rules->rule[i]->name, at, (size_t)n) || rules->rule[i]->name[n])) i++;
        if (i == rules->n) buf_printf(why, "no rule is called %.*s; ", n, at);
        else if (log->uses[i]) buf_printf(why, "%.*s must not fire; ", n, at);
        else if (!meets(op, rules->rule[i]->root[0])) buf_printf(why, "%.*s never met its root's op; ", n, at);
        else if (cover) cover[i].refused++;
    }
}

/* Skips padding, too, and adds what its log says to `fired`. */
static bool skip(Graph *g, const Prover *prover, Outcome *out, Err *err, Buf *why)
{
    SkipLog log = {0};
    Buf b = {0};
    bool ok = skip_padding(g, prover, &log, err);
    if (out->fired) buf_puts(&b, out->fired);
    if (log.nothing) buf_printf(&b, "nothing to skip: %s\n", log.nothing);
    for (int i = 0; i < log.nmasks; i++) {
        const SkipMask *m = &log.mask[i];
        if (!m->applied) buf_printf(&b, "%s stays dense: %s\n", m->mask, m->why);
        else buf_printf(&b, "%s: %d attentions, %d nodes\n", m->mask, m->attentions, m->nodes);
        for (int k = 0; m->applied && k < m->nstops; k++)
            buf_printf(&b, "  %s for %s (%s)\n", m->stop[k].value, m->stop[k].node, m->stop[k].why);
        if (prover && m->applied && m->proof.skipped) buf_printf(why, "not proven: %s; ", m->proof.why);
    }
    free(out->fired);
    out->fired = ok ? b.data ? b.data : copy("", 0) : NULL;
    if (!ok) buf_free(&b);
    skip_log_free(&log);
    return ok;
}

static void run_case(const Case *c, bool prove, Coverage *cover, Outcome *out, Buf *why)
{
    const Section *own = section(c, "rules"), *options = section(c, "options");
    RuleSet *rules = rules_create(families_all);
    Weights weights = {0};
    Err err = {0};
    Map known = {0};
    Session *session = NULL;
    Prover prover = {.claim = prove_claim,
                     .eval = eval,
                     .release = release,
                     .user = &session,
                     .seeds = 2,
                     .families = families_all,
                     .floats = floats};
    RewriteOptions o = {.rules = rules, .prove = prove ? prover.claim : NULL, .prove_user = &prover};
    if (options) {
        o.exact = has_word(options->arg, "exact-masked-rows");
        o.phases = phases_of(options->arg);
        if (has_word(options->arg, "unproven")) o.prove = NULL;
    }
    RewriteLog log = {0};
    Graph *g = NULL;
    bool builtin = !own || !strcmp(own->arg, "added"), op[OP_COUNT] = {false};
    bool ok = rules && (!builtin || rules_builtin(rules, &err)) && (!own || rules_parse(rules, own->text, &err)) &&
              (!with || rules_parse(rules, with, &err));
    if (ok && !(g = read_graph(section_text(c, "graph"), &weights, &err)))
        buf_printf(why, "the graph cannot be read: %s; ", err.msg);
    if (g) {
        for (const Node *n = g->first; n; n = n->next) op[n->op->id] = true;
        know_names(g, &known);
        char *source = text_of(g, &known, &err);
        graph_drop_detach(g);
        Graph *before = certify ? graph_copy(g, &err) : NULL;
        ok = rewrite_graph(g, &o, &log, &err);
        if (before && ok) {
            Certified found;
            Buf claims = {0};
            bool said = certify_graphs(before, g, false, NULL, 0, &found, &claims, &err);
            const char *why_open = said ? found.why : err.msg;
            out->open = copy(why_open, strlen(why_open));
            buf_free(&claims);
        }
        graph_free(before);
        if (ok) check_not(c, rules, &log, op, own ? NULL : cover, why);
        for (int i = 0; ok && cover && !own && i < rules->n; i++) cover[i].fired += log.uses[i] > 0;
        out->fired = ok ? log_text(&log, rules, &known) : NULL;
        if (ok && options && has_word(options->arg, "skip-padding"))
            ok = skip(g, o.prove ? &prover : NULL, out, &err, why);
        out->after = text_of(g, &known, &err);
        out->changed = ok && out->after && strcmp(source, out->after);
        free(source);
        rewrite_log_free(&log);
    }
    out->error = copy(ok ? "" : err.msg, sizeof err.msg);
    release(&session);
    forget_names(&known);
    graph_free(g);
    free_weights(&weights);
    rules_free(rules);
}

/* ------------------------------------------------------------------ comparing and writing */

static void set_section(Case *c, const char *head, const char *text)
{
    int i = 0;
    while (i < c->nsections && strcmp(c->section[i].head, head)) i++;
    if (i < c->nsections) {
        free(c->section[i].head);
        free(c->section[i].arg);
        free(c->section[i].text);
        memmove(&c->section[i], &c->section[i + 1], (size_t)(c->nsections - i - 1) * sizeof *c->section);
        c->nsections--;
    }
    if (!text || !*text) return;
    if (c->nsections == MAX_SECTIONS) stop("too many sections", c->name);
    c->section[c->nsections++] = (Section){copy(head, strlen(head)), copy("", 0), copy(text, strlen(text))};
}

static void compare(const char *what, const char *got, const char *want, Buf *why)
{
    if (!strcmp(got, want)) return;
    size_t i = 0, line = 0;
    for (; got[i] == want[i]; i++)
        if (got[i] == '\n') line = i + 1;
    buf_printf(why, "%s: found '%.*s', expected '%.*s'; ", what, (int)strcspn(got + line, "\n"), got + line,
               (int)strcspn(want + line, "\n"), want + line);
}

static const char *or_empty(const char *s) { return s ? s : ""; }

static void test_case(const char *file, Case *c, Coverage *cover)
{
    Outcome first = {0}, proven = {0};
    Buf why = {0};
    char *error = NULL;
    run_case(c, false, NULL, &first, &why);
    if (!why.len) run_case(c, true, cover, &proven, &why);
    if (!why.len) {
        Buf e = {0};
        if (*proven.error) buf_printf(&e, "%s\n", proven.error);
        error = e.data ? e.data : copy("", 0);
        if (!*proven.error && strcmp(first.after, proven.after)) buf_puts(&why, "two runs give two results; ");
    }
    if (!why.len && bless) {
        set_section(c, "after", !*proven.error && proven.changed ? proven.after : NULL);
        set_section(c, "fired", *proven.error ? NULL : proven.fired);
        set_section(c, "error", error);
    } else if (!why.len) {
        compare("error", error, section_text(c, "error"), &why);
        compare("fired", *proven.error ? "" : or_empty(proven.fired), section_text(c, "fired"), &why);
        compare("after", !*proven.error && proven.changed ? proven.after : "", section_text(c, "after"), &why);
    }
    if (why.len) why.data[why.len - 2] = 0;
    tap_ok(!why.len, "%s: %s%s%s", file, c->name, why.len ? ": " : "", why.len ? why.data : "");
    buf_free(&why);
    free(error);
    free_outcome(&first);
    free_outcome(&proven);
}

/* What a case comes to with the rules of --with: an error, or whether the result is as before and what fired. */
static void try_case(const char *file, Case *c)
{
    Outcome o = {0};
    Buf why = {0};
    run_case(c, !certify, NULL, &o, &why);
    bool same = o.after && !strcmp(o.after, or_empty(section_text(c, "after")));
    printf("case %s: %s\n", file, c->name);
    if (certify) printf("%s%s\n", o.open && !*o.open ? "certified" : "open: ", or_empty(o.open));
    if (o.error && *o.error) printf("error %s\n", o.error);
    else printf("%s\n%s", same ? "same" : "other", or_empty(o.fired));
    buf_free(&why);
    free_outcome(&o);
}

static char *read_text(const char *path)
{
    Buf b = {0};
    char room[4096];
    FILE *f = fopen(path, "r");
    if (!f) stop("cannot be read", path);
    for (size_t n; (n = fread(room, 1, sizeof room, f)) > 0;) buf_add(&b, room, n);
    fclose(f);
    return b.data ? b.data : copy("", 0);
}

static bool chosen(const char *name, char **words, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(name, words[i])) return true;
    return n == 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(int argc, char **argv)
{
    int at = 1;
    if (at < argc && !strcmp(argv[at], "--bless")) bless = ++at;
    if (at + 1 < argc && !strcmp(argv[at], "--with")) with = read_text(argv[at + 1]), at += 2;
    if (at < argc && !strcmp(argv[at], "--floats")) floats = ++at;
    if (at < argc && !strcmp(argv[at], "--certify")) certify = ++at;
    if (at >= argc) {
        fprintf(stderr, "usage: run_rules [--bless | --with RULES [--floats | --certify]] FOLDER [WORD...]\n");
        return 2;
    }
    const char *folder = argv[at];
    char **words = argv + at + 1, *list[64], path[1024];
    int nwords = argc - at - 1, n = 0;
    Err err = {0};
    RuleSet *builtin = rules_create(families_all);
    if (!builtin || !rules_builtin(builtin, &err)) stop(err.msg, "built-in rules");
    Coverage *cover = calloc((size_t)builtin->n + 1, sizeof *cover);
    DIR *dir = opendir(folder);
    if (!dir || !cover) stop("cannot be read", folder);
    for (const struct dirent *e; n < 64 && (e = readdir(dir));)
        if (strlen(e->d_name) > 4 && !strcmp(e->d_name + strlen(e->d_name) - 4, ".txt"))
            list[n++] = copy(e->d_name, strlen(e->d_name));
    closedir(dir);
    qsort(list, (size_t)n, sizeof *list, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, list[i]);
        File *file = read_file(path);
        for (int k = 0; k < file->n; k++)
            if (chosen(file->item[k].name, words, nwords)) {
                if (with) try_case(list[i], &file->item[k]);
                else test_case(list[i], &file->item[k], cover);
            }
        if (bless) write_file(path, file);
        free_file(file);
        free(list[i]);
    }
    for (int i = 0; !nwords && i < builtin->n; i++) {
        const char *name = builtin->rule[i]->name;
        bool both = cover[i].fired && cover[i].refused;
        tap_ok(both, "rule %s: %s", name,
               both             ? "fires and refuses"
               : cover[i].fired ? "no case says that it must not fire (--- not)"
                                : "fires in no case");
    }
    free(cover);
    rules_free(builtin);
    return with ? 0 : tap_done();
}
