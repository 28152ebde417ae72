/* Compiling rules. Grammar in rule.h. */
#include "rewrite/rule.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/map.h"
#include "base/number.h"
#include "base/vec.h"
#include "rewrite/family.h"
#include "rewrite/sexpr.h"

typedef struct Compiler {
    RuleSet *set;
    Rule *rule;
    Err *err;
    int parts;    /* of the rule's patterns so far: matching goes as deep */
    Pat *run;     /* where ~ leads; NULL: it stands in no run */
    int links;    /* how many ~ there were */
    bool collect; /* variables of grafts are the graft's own */
} Compiler;

/* ------------------------------------------------------------------ names of ops */

enum { SLOTS = 4096 };
_Static_assert(OP_COUNT < SLOTS / 2, "the table of names is sparse");
static struct {
    const char *base; /* n bytes of the op's name */
    size_t n;
    const Op *op;
} short_names[SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The slot of this base name, or where it would be. */
static size_t slot_of(const char *base, size_t n)
{
    size_t k = hash_bytes(base, n) % SLOTS;
    while (short_names[k].op && (short_names[k].n != n || memcmp(short_names[k].base, base, n))) k = (k + 1) % SLOTS;
    return k;
}

/* "matmul" for aten.matmul.default, "add" for aten.add.Tensor: the first plain row of that base name. */
static void load_names(void)
{
    for (int i = OP_NONE + 1; i < OP_COUNT; i++) {
        const Op *op = op_get((OpId)i);
        size_t n;
        const char *base = op_base(op, &n);
        size_t k = slot_of(base, n);
        if (!op->plain || short_names[k].op) continue;
        short_names[k].base = base;
        short_names[k].n = n;
        short_names[k].op = op;
    }
}

const Op *rule_op(const char *name)
{
    pthread_once(&once, load_names);
    const Op *op = op_find(name);
    char full[128];
    if (!op && snprintf(full, sizeof full, "aten.%s", name) < (int)sizeof full) op = op_find(full);
    if (op && op->plain) return op;
    return short_names[slot_of(name, strlen(name))].op;
}

/* ------------------------------------------------------------------ helpers */

static bool refuse(Compiler *c, const Sexpr *s, const char *fmt, ...) QKV_PRINTF(3, 4);
static bool refuse(Compiler *c, const Sexpr *s, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->rule && c->rule->name) return fail(c->err, E_FORMAT, "line %d: rule '%s': %s", s->line, c->rule->name, text);
    return fail(c->err, E_FORMAT, "line %d: %s", s->line, text);
}

static void *room(Compiler *c, size_t count, size_t size)
{
    void *p = arena_alloc(c->set->arena, count ? count : 1, size);
    if (!p) oom(c->err);
    return p;
}

/* The slot of ?name; makes one when `make`. -1 with an error. */
static int variable(Compiler *c, const Sexpr *s, bool make)
{
    Rule *r = c->rule;
    for (int i = 0; i < r->nvars; i++)
        if (!strcmp(r->var[i], s->text)) return i;
    if (!make && !c->collect) {
        refuse(c, s, "%s is not captured by the pattern", s->text);
        return -1;
    }
    if (r->nvars == MAX_VARS) {
        refuse(c, s, "more than %d captures", MAX_VARS);
        return -1;
    }
    r->var[r->nvars] = s->text;
    return r->nvars++;
}

static bool is_variable(const Sexpr *s) { return s->kind == SX_SYMBOL && s->text[0] == '?' && s->text[1]; }

/* ------------------------------------------------------------------ patterns */

static Pat *pattern(Compiler *c, const Sexpr *s);

static Pat *new_pat(Compiler *c, enum PatKind kind, int nsub)
{
    Pat *p = room(c, 1, sizeof *p);
    if (!p) return NULL;
    p->kind = kind;
    p->n = nsub;
    if (nsub && !(p->sub = room(c, (size_t)nsub, sizeof *p->sub))) return NULL;
    return p;
}

static Pat *sub_patterns(Compiler *c, const Sexpr *s, enum PatKind kind, int from)
{
    Pat *p = new_pat(c, kind, s->n - from);
    for (int i = from; p && i < s->n; i++)
        if (!(p->sub[i - from] = pattern(c, s->item[i]))) return NULL;
    return p;
}

static bool takes_default(const Param *p) { return p->optional || p->def || p->type == PT_IGNORED; }

/* Where the arguments of (op ...) go: calls put(user, parameter index, expression) for each. *rest: `...` was there. */
static bool place_arguments(Compiler *c, const Sexpr *s, const Op *op,
                            bool (*put)(void *user, int i, const Sexpr *value), void *user, bool *rest)
{
    int next = 0;
    *rest = false;
    for (int i = 1; i < s->n; i++) {
        const Sexpr *a = s->item[i];
        if (sexpr_is(a, "...")) {
            *rest = true;
            continue;
        }
        if (a->kind == SX_SYMBOL && a->text[0] == ':') {
            int k = op_param(op, a->text + 1);
            if (k < 0) return refuse(c, a, "%s has no parameter '%s': %s", op->name, a->text + 1, op->schema_text);
            if (i + 1 == s->n) return refuse(c, a, "%s without a value", a->text);
            TRY(put(user, k, s->item[++i]));
            continue;
        }
        if (next >= op->schema->nparams || op->schema->params[next].kwonly)
            return refuse(c, a, "%s takes %d arguments by position: %s", op->name, next, op->schema_text);
        TRY(put(user, next++, a));
    }
    return true;
}

typedef struct PutPat {
    Compiler *c;
    Pat *p;
} PutPat;

static bool put_pattern(void *user, int i, const Sexpr *value)
{
    PutPat *u = user;
    if (u->p->param[i])
        return refuse(u->c, value, "parameter '%s' of %s twice", u->p->op->schema->params[i].name, u->p->op->name);
    return (u->p->param[i] = pattern(u->c, value)) != NULL;
}

static Pat *op_pattern(Compiler *c, const Sexpr *s)
{
    const Op *op = rule_op(s->item[0]->text);
    if (!op) {
        refuse(c, s, "no op of the plain form is called '%s' (docs/IR.md says how ops are written)", s->item[0]->text);
        return NULL;
    }
    Pat *p = new_pat(c, P_OP, 0), *wild = new_pat(c, P_WILD, 0);
    if (!p || !wild || !(p->param = room(c, (size_t)op->schema->nparams, sizeof *p->param))) return NULL;
    p->op = op;
    PutPat u = {c, p};
    bool rest;
    if (!place_arguments(c, s, op, put_pattern, &u, &rest)) return NULL;
    for (int i = 0; i < op->schema->nparams; i++) {
        const Param *q = &op->schema->params[i];
        if (p->param[i]) continue;
        if (rest || q->type == PT_IGNORED) p->param[i] = wild;
        else if (!takes_default(q)) {
            refuse(c, s, "parameter '%s' of %s has no default: match it, or write :%s _", q->name, op->name, q->name);
            return NULL;
        }
    }
    return p;
}

/* A pattern of one node, however it is wrapped. */
static bool is_step(const Pat *p, const Pat *run)
{
    if (p == run || (p->kind != P_OP && p->kind != P_NAMED && p->kind != P_SHARED && p->kind != P_ANY)) return false;
    for (int i = 0; p->kind != P_OP && i < p->n; i++)
        if (!is_step(p->sub[i], run)) return false;
    return true;
}

/* (* STEP ... P), (+ STEP ... P): alternatives of which the steps lead back to themselves, where they say ~. */
static Pat *run_pattern(Compiler *c, const Sexpr *s)
{
    const char *head = s->item[0]->text;
    int steps = s->n - 2;
    Pat *outer = c->run, *more = steps < 1 ? NULL : new_pat(c, P_ANY, steps + 1);
    if (steps < 1) refuse(c, s, "expected (%s step ... pattern)", head);
    if (!more) return NULL;
    c->run = more;
    for (int i = 0; i < steps; i++) {
        int before = c->links;
        if (!(more->sub[i] = pattern(c, s->item[i + 1]))) return NULL;
        if (c->links == before || !is_step(more->sub[i], more)) {
            refuse(c, s->item[i + 1], "a step of (%s ...) is (op ...) with a ~ where the run goes on", head);
            return NULL;
        }
    }
    c->run = outer;
    if (!(more->sub[steps] = pattern(c, s->item[s->n - 1]))) return NULL;
    if (head[0] == '*') return more;
    Pat *first = new_pat(c, P_ANY, steps);
    for (int i = 0; first && i < steps; i++) first->sub[i] = more->sub[i];
    return first;
}

static Pat *run_goes_on(Compiler *c, const Sexpr *s)
{
    if (!c->run) refuse(c, s, "'~' stands in a step of (* step ... pattern) or (+ step ... pattern)");
    c->links++;
    return c->run;
}

static Pat *pattern(Compiler *c, const Sexpr *s)
{
    Pat *p;
    if (++c->parts > MAX_PATTERN) {
        refuse(c, s, "patterns of more than %d parts", MAX_PATTERN);
        return NULL;
    }
    switch (s->kind) {
    case SX_NUMBER:
        if ((p = new_pat(c, P_NUMBER, 0))) p->number = s->number;
        return p;
    case SX_TEXT:
        if ((p = new_pat(c, P_TEXT, 0))) p->text = s->text;
        return p;
    case SX_BRACKET: return sub_patterns(c, s, P_LIST, 0);
    case SX_SYMBOL:
        if (is_variable(s)) {
            int slot = variable(c, s, true);
            if (slot < 0 || !(p = new_pat(c, P_CAPTURE, 0))) return NULL;
            p->slot = slot;
            return p;
        }
        if (sexpr_is(s, "_")) return new_pat(c, P_WILD, 0);
        if (sexpr_is(s, "~")) return run_goes_on(c, s);
        if (sexpr_is(s, "none")) return new_pat(c, P_NONE, 0);
        if (sexpr_is(s, "true") || sexpr_is(s, "false")) {
            if ((p = new_pat(c, P_BOOL, 0))) p->number = sexpr_is(s, "true");
            return p;
        }
        if (dtype_from_name(s->text) != DT_NONE) {
            if ((p = new_pat(c, P_DTYPE, 0))) p->dtype = dtype_from_name(s->text);
            return p;
        }
        refuse(c, s, "'%s' is not a pattern: captures begin with '?', ops stand in (...)", s->text);
        return NULL;
    default: break;
    }
    if (!s->n || s->item[0]->kind != SX_SYMBOL) {
        refuse(c, s, "expected (op ...)");
        return NULL;
    }
    if (sexpr_is(s->item[0], "=")) {
        if (s->n != 3 || !is_variable(s->item[1])) {
            refuse(c, s, "expected (= ?name pattern)");
            return NULL;
        }
        int slot = variable(c, s->item[1], true);
        if (slot < 0 || !(p = sub_patterns(c, s, P_NAMED, 2))) return NULL;
        p->slot = slot;
        return p;
    }
    if (sexpr_is(s->item[0], "*") || sexpr_is(s->item[0], "+")) return run_pattern(c, s);
    if (sexpr_is(s->item[0], "any")) {
        if (s->n < 2) {
            refuse(c, s, "expected (any pattern ...)");
            return NULL;
        }
        return sub_patterns(c, s, P_ANY, 1);
    }
    if (sexpr_is(s->item[0], "shared") || sexpr_is(s->item[0], "opt")) {
        bool opt = sexpr_is(s->item[0], "opt");
        if (s->n != 2 || !(p = sub_patterns(c, s, opt ? P_OPT : P_SHARED, 1))) {
            if (s->n != 2) refuse(c, s, "expected (%s pattern)", s->item[0]->text);
            return NULL;
        }
        if (opt && (p->sub[0]->kind != P_OP || !p->sub[0]->op->schema->nparams || !p->sub[0]->param[0])) {
            refuse(c, s, "expected (opt (op pattern ...))");
            return NULL;
        }
        return p;
    }
    if (sexpr_is(s->item[0], "out")) {
        if (s->n != 3 || s->item[1]->kind != SX_NUMBER || !(s->item[1]->number >= 0 && s->item[1]->number < MAX_OUTS) ||
            s->item[2]->kind != SX_LIST) {
            refuse(c, s, "expected (out K (op ...))");
            return NULL;
        }
        p = pattern(c, s->item[2]);
        if (p && p->kind == P_OP) p->out = (int)s->item[1]->number;
        return p;
    }
    return op_pattern(c, s);
}

/* ------------------------------------------------------------------ grafts */

static Graft *graft(Compiler *c, const Sexpr *s);

static Graft *new_graft(Compiler *c, enum GraftKind kind, const Sexpr *list, int from)
{
    Graft *g = room(c, 1, sizeof *g);
    if (!g) return NULL;
    g->kind = kind;
    g->n = list ? list->n - from : 0;
    if (g->n && !(g->sub = room(c, (size_t)g->n, sizeof *g->sub))) return NULL;
    for (int i = 0; i < g->n; i++)
        if (!(g->sub[i] = graft(c, list->item[i + from]))) return NULL;
    return g;
}

typedef struct PutGraft {
    Compiler *c;
    Graft *g;
} PutGraft;

static bool put_graft(void *user, int i, const Sexpr *value)
{
    PutGraft *u = user;
    if (u->g->param[i])
        return refuse(u->c, value, "parameter '%s' of %s twice", u->g->op->schema->params[i].name, u->g->op->name);
    return (u->g->param[i] = graft(u->c, value)) != NULL;
}

/* Are there least to most arguments in (name ...)? */
static bool takes(Compiler *c, const Sexpr *s, const char *mark, const char *name, int least, int most)
{
    if (s->n - 1 >= least && s->n - 1 <= most) return true;
    if (least == most)
        return refuse(c, s, "%s%s takes %d argument%s, found %d", mark, name, most, most == 1 ? "" : "s", s->n - 1);
    return refuse(c, s, "%s%s takes %d to %d arguments, found %d", mark, name, least, most, s->n - 1);
}

static int least(const Maker *m)
{
    int n = (int)strlen(m->takes);
    while (n && m->takes[n - 1] >= 'A' && m->takes[n - 1] <= 'Z') n--;
    return n;
}

static const Maker *find_maker(const Family *const *families, const char *name)
{
    for (const Family *const *f = families; *f; f++)
        for (const Maker *m = (*f)->makers; m && m->name; m++)
            if (!strcmp(m->name, name)) return m;
    return NULL;
}

/* (size ?x axis), (size "2*s0") */
static Graft *size_graft(Compiler *c, const Sexpr *s)
{
    bool text = s->n == 2 && s->item[1]->kind == SX_TEXT;
    if (!text && (s->n != 3 || !is_variable(s->item[1]) || s->item[2]->kind != SX_NUMBER || !s->item[2]->integral)) {
        refuse(c, s, "expected (size ?x axis) or (size \"expression\")");
        return NULL;
    }
    Graft *g = new_graft(c, G_SIZE, text ? NULL : s, text ? 0 : 1);
    if (g && text) g->text = s->item[1]->text;
    return g;
}

static Graft *list_graft(Compiler *c, const Sexpr *s)
{
    if (!s->n || s->item[0]->kind != SX_SYMBOL) {
        refuse(c, s, "expected (op ...)");
        return NULL;
    }
    const char *head = s->item[0]->text;
    if (head[0] == '@') {
        const Maker *m = find_maker(c->set->families, head + 1);
        if (!m) refuse(c, s, "no graft function is called '%s'", head + 1);
        else if (!takes(c, s, "@", m->name, least(m), (int)strlen(m->takes))) m = NULL;
        Graft *g = m ? new_graft(c, G_CALL, s, 1) : NULL;
        if (g) g->maker = m;
        return g;
    }
    if (!strcmp(head, "or")) {
        if (s->n != 3 || !is_variable(s->item[1])) {
            refuse(c, s, "expected (or ?x graft)");
            return NULL;
        }
        return new_graft(c, G_OR, s, 1);
    }
    if (!strcmp(head, "+") || !strcmp(head, "-") || !strcmp(head, "*") || !strcmp(head, "/") || !strcmp(head, "sqrt")) {
        if (s->n != (head[0] == 's' ? 2 : 3)) {
            refuse(c, s, "wrong number of arguments of %s", head);
            return NULL;
        }
        Graft *g = new_graft(c, G_MATH, s, 1);
        if (g) g->text = head;
        return g;
    }
    if (!strcmp(head, "size")) return size_graft(c, s);
    if (!strcmp(head, "again")) {
        if (s->n != 4 || !is_variable(s->item[1]) || !is_variable(s->item[2])) {
            refuse(c, s, "expected (again ?y ?x graft)");
            return NULL;
        }
        return new_graft(c, G_AGAIN, s, 1);
    }
    const Op *op = rule_op(head);
    if (!op) {
        refuse(c, s, "no op of the plain form is called '%s' (docs/IR.md says how ops are written)", head);
        return NULL;
    }
    Graft *g = new_graft(c, G_OP, NULL, 0);
    bool rest;
    if (!g || !(g->param = room(c, (size_t)op->schema->nparams, sizeof *g->param))) return NULL;
    g->op = op;
    PutGraft u = {c, g};
    if (!place_arguments(c, s, op, put_graft, &u, &rest)) return NULL;
    if (rest) {
        refuse(c, s, "'...' stands in patterns only: parameters that a graft does not mention have their defaults");
        return NULL;
    }
    for (int i = 0; i < op->schema->nparams; i++)
        if (!g->param[i] && !takes_default(&op->schema->params[i])) {
            refuse(c, s, "parameter '%s' of %s is missing", op->schema->params[i].name, op->name);
            return NULL;
        }
    return g;
}

static Graft *graft(Compiler *c, const Sexpr *s)
{
    Graft *g;
    switch (s->kind) {
    case SX_NUMBER:
        if ((g = new_graft(c, G_NUMBER, NULL, 0))) g->number = s->number, g->integral = s->integral;
        return g;
    case SX_TEXT:
        if ((g = new_graft(c, G_TEXT, NULL, 0))) g->text = s->text;
        return g;
    case SX_BRACKET: return new_graft(c, G_LIST, s, 0);
    case SX_SYMBOL:
        if (is_variable(s)) {
            int slot = variable(c, s, false);
            if (slot < 0 || !(g = new_graft(c, G_CAPTURE, NULL, 0))) return NULL;
            g->slot = slot;
            return g;
        }
        if (sexpr_is(s, "none")) return new_graft(c, G_NONE, NULL, 0);
        if (sexpr_is(s, "true") || sexpr_is(s, "false")) {
            if ((g = new_graft(c, G_BOOL, NULL, 0))) g->number = sexpr_is(s, "true");
            return g;
        }
        if (dtype_from_name(s->text) != DT_NONE) {
            if ((g = new_graft(c, G_DTYPE, NULL, 0))) g->dtype = dtype_from_name(s->text);
            return g;
        }
        refuse(c, s, "'%s' is not a graft: captures begin with '?', ops stand in (...)", s->text);
        return NULL;
    default: return list_graft(c, s);
    }
}

/* ------------------------------------------------------------------ rules */

static const Guard *named(const Guard *g, const char *name)
{
    while (g && g->name && strcmp(g->name, name)) g++;
    return g && g->name ? g : NULL;
}

static const Guard *find_guard(const Family *const *families, const char *name)
{
    const Guard *g = named(engine_guards, name);
    for (const Family *const *f = families; *f && !g; f++) g = named((*f)->guards, name);
    return g;
}

static bool guards(Compiler *c, const Sexpr *s, int from)
{
    Rule *r = c->rule;
    r->nwhere = s->n - from;
    TRY(r->where = room(c, (size_t)r->nwhere, sizeof *r->where));
    for (int i = 0; i < r->nwhere; i++) {
        const Sexpr *w = s->item[from + i];
        if (w->kind != SX_LIST || !w->n || w->item[0]->kind != SX_SYMBOL)
            return refuse(c, w, "expected a guard (name ...)");
        const Guard *g = find_guard(c->set->families, w->item[0]->text);
        if (!g) return refuse(c, w, "no guard is called '%s'", w->item[0]->text);
        TRY(takes(c, w, "guard ", g->name, g->min_args, g->max_args));
        r->where[i] = (Where){g, w->n - 1, room(c, (size_t)w->n, sizeof(Graft *))};
        TRY(r->where[i].arg);
        for (int k = 1; k < w->n; k++) TRY(r->where[i].arg[k - 1] = graft(c, w->item[k]));
    }
    return true;
}

static bool add_rule(RuleSet *s, Rule *r, Err *err)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->rule[i]->name, r->name)) {
            r->index = i;
            s->rule[i] = r;
            return true;
        }
    if (s->n == MAX_RULES) return fail(err, E_LIMIT, "more than %d rules", MAX_RULES);
    Rule **grown = vec_room(s->arena, s->rule, s->n, sizeof *grown);
    if (!grown) return oom(err);
    s->rule = grown;
    r->index = s->n;
    s->rule[s->n++] = r;
    return true;
}

/* Which result of its op a root is; -1 when alternatives disagree, -2 when it is not an op. */
static int result_of(const Pat *p)
{
    if (p->kind == P_OP) return p->out;
    if (p->kind != P_NAMED && p->kind != P_SHARED && p->kind != P_ANY) return -2;
    int out = result_of(p->sub[0]);
    for (int i = 1; i < p->n; i++)
        if (result_of(p->sub[i]) != out) return -1;
    return out;
}

/* (rule NAME PATTERN GRAFT GUARD ...) */
static bool one_rule(Compiler *c, const Sexpr *s, const char *phase)
{
    bool derive = sexpr_heads(s, "derive");
    c->rule = NULL;
    c->parts = 0;
    c->run = NULL;
    if (s->n < 4 || s->item[1]->kind != SX_SYMBOL)
        return refuse(c, s, "expected (%s NAME PATTERN GRAFT GUARD ...)", s->item[0]->text);
    Rule *r = c->rule = room(c, 1, sizeof *r);
    TRY(r);
    r->name = s->item[1]->text;
    r->phase = phase;
    r->derive = derive;
    r->reorders = sexpr_heads(s, "reorder");
    const Sexpr *p = s->item[2], *g = s->item[3];
    bool fork = sexpr_heads(p, "fork");
    r->nroots = fork ? p->n - 1 : 1;
    if (r->nroots < 1 || r->nroots > MAX_FORK) return refuse(c, p, "(fork ...) takes 1 to %d patterns", MAX_FORK);
    if (fork && derive) return refuse(c, p, "a derive rule has one root");
    if (fork && (!sexpr_heads(g, "fork") || g->n != p->n))
        return refuse(c, g, "expected (fork ...) with %d grafts", r->nroots);
    for (int i = 0; i < r->nroots; i++) {
        TRY(r->root[i] = pattern(c, fork ? p->item[i + 1] : p));
        r->out[i] = result_of(r->root[i]);
        if (r->out[i] == -2) return refuse(c, p, "the root of a pattern is an op");
        if (r->out[i] < 0) return refuse(c, p, "the alternatives of a root are different results of their ops");
    }
    for (int i = 0; i < r->nroots; i++) TRY(r->graft[i] = graft(c, fork ? g->item[i + 1] : g));
    return guards(c, s, 4) && add_rule(c->set, r, c->err);
}

bool rules_parse(RuleSet *s, const char *text, Err *err)
{
    Compiler c = {.set = s, .err = err};
    const Sexpr *all = sexpr_parse(s->arena, text, err);
    const char *phase = "recompose";
    TRY(all);
    for (int i = 0; i < all->n; i++) {
        const Sexpr *e = all->item[i];
        c.rule = NULL;
        if (sexpr_heads(e, "phase")) {
            if (e->n != 2 || e->item[1]->kind != SX_SYMBOL) return refuse(&c, e, "expected (phase NAME)");
            phase = e->item[1]->text;
            if (strcmp(phase, "recompose") && strcmp(phase, "convert") && strcmp(phase, "fuse"))
                return refuse(&c, e, "phase '%s': expected recompose, convert or fuse", phase);
        } else if (sexpr_heads(e, "rule") || sexpr_heads(e, "derive") || sexpr_heads(e, "reorder")) {
            TRY(one_rule(&c, e, phase));
        } else {
            return refuse(&c, e, "expected (rule ...), (derive ...), (reorder ...) or (phase ...)");
        }
    }
    return true;
}

Graft *graft_parse(Arena *arena, const Family *const *families, const char *text, const char *var[MAX_VARS], int *nvars,
                   Err *err)
{
    RuleSet set = {.arena = arena, .families = families};
    Rule own = {0};
    Compiler c = {.set = &set, .rule = &own, .err = err, .collect = true};
    const Sexpr *all = sexpr_parse(arena, text, err);
    if (all && all->n != 1) fail(err, E_FORMAT, "expected one graft, found %d", all->n);
    Graft *g = all && all->n == 1 ? graft(&c, all->item[0]) : NULL;
    for (int i = 0; i < own.nvars; i++) var[i] = own.var[i];
    *nvars = own.nvars;
    return g;
}

bool rules_builtin(RuleSet *s, Err *err)
{
    for (const Family *const *f = s->families; *f; f++)
        for (int i = 0; (*f)->rules && (*f)->rules[i]; i++)
            if (!rules_parse(s, (*f)->rules[i], err))
                return within(err, "built-in rules of %s, file %d", (*f)->name, i);
    for (int i = 0; i < s->n; i++) s->rule[i]->builtin = true;
    return true;
}

void rules_remove(RuleSet *s, const char *name)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->rule[i]->name, name)) s->rule[n++] = s->rule[i];
    s->n = n;
}

RuleSet *rules_create(const Family *const *families)
{
    Arena *a = arena_create(0);
    RuleSet *s = a ? arena_new(a, RuleSet) : NULL;
    if (s) *s = (RuleSet){.arena = a, .families = families};
    else arena_destroy(a);
    return s;
}

void rules_free(RuleSet *s)
{
    if (s) arena_destroy(s->arena);
}
