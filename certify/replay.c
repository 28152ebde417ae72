/* The claims of a certificate about two graphs, replayed. Contract in certify.h. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include "base/jsonw.h"
#include "certify/certify.h"
#include "ir/bodies.h"

/* ------------------------------------------------------------------ claims */

/* The forms of a and b are made; without cases first, which few claims need and which make forms larger. */
static bool make_forms(Checker *c, const Value *a, const Value *b, const bool *leaf, bool cases, Term **form, Err *err)
{
    const Value *of[] = {a, b};
    Expr *idx[MAX_RANK];
    if (!terms_open(&c->t)) return oom(err);
    c->t.cases = cases;
    form[0] = form[1] = NULL;
    c->leaf = leaf;
    c->memo = NULL;
    c->nmemo = c->depth = c->work = 0;
    c->claim++;
    memset(c->cut, 0, (size_t)c->nclasses);
    for (int i = 0; i < a->rank; i++)
        if (!(idx[i] = ix_var(&c->t.x, "o", i, checker_expr(c, SOURCE, a->dim[i])))) return oom(err);
    for (int s = 0; s < 2 && (s == 0 || form[0]); s++) {
        buf_free(&c->side[s].steps);
        c->side[s].steps = (Buf){0};
        c->side[s].computes = NULL;
        c->side[s].ncomputes = 0;
        form[s] = element(c, s, of[s], idx);
    }
    return true;
}

/* Are two forms the same in the places of each remainder of an axis, as pairs that are turned are? */
static bool same_in_places(Checker *c, const Value *a, Term *const *form)
{
    for (int i = 0; form[1] && form[0] != form[1] && i < a->rank; i++) {
        Expr *size = checker_expr(c, SOURCE, a->dim[i]), *own = ix_var(&c->t.x, "o", i, size);
        if (own && term_same_apart(&c->t, form[0], form[1], own, size)) return true;
    }
    return false;
}

bool checker_claim(Checker *c, const Value *a, const Value *b, const bool *leaf, Err *err)
{
    Term *form[2];
    if (!checker_same_sizes(c, a, b))
        return fail(err, E_MISMATCH, "'%s' and '%s' differ in dtype or sizes", a->name, b->name);
    c->same_bits = false;
    TRY(make_forms(c, a, b, leaf, false, form, err));
    c->same_bits = form[1] && form[0] == form[1] && checker_same_bits(c, form[0]);
    if (!c->t.nrows && same_in_places(c, a, form)) return true;
    if ((form[1] && form[0] != form[1]) || c->t.stuck) TRY(make_forms(c, a, b, leaf, true, form, err));
    /* a rule may rest on what weights hold, on a number's digits, on rows that see a key */
    bool *const more[] = {&c->numbers, &c->triangles, &c->narrow, &c->t.rows};
    for (int k = 0; k < 4 && form[1] && form[0] != form[1]; k++) {
        *more[k] = true;
        bool made = make_forms(c, a, b, leaf, false, form, err);
        *more[k] = false;
        TRY(made);
    }
    if (!form[1]) return fail(err, E_MISMATCH, "%s", c->t.why[0] ? c->t.why : "a step has no lemma");
    if (form[0] != form[1])
        return fail(err, E_MISMATCH, "'%s' and '%s' have different forms", a->name, b->name);
    return term_rows_divide(&c->t, form[0]) ||
           fail(err, E_MISMATCH, "'%s': a row is tested for being all 0, and no softmax divides there", a->name);
}

void checker_put_claim(const Checker *c, Buf *out)
{
    jw_open(out, "from", '[');
    for (int k = 0; k < c->nclasses; k++)
        if (c->cut[k] && c->of_class[k]->def) jw_text(out, NULL, c->of_class[k]->name);
    jw_close(out, "]");
    jw_open(out, "laws", '[');
    for (int l = 0; l < LAWS; l++)
        if (c->t.used & 1u << l) jw_text(out, NULL, law_name((Law)l));
    jw_close(out, "]");
    jw_list(out, "left", '[', &c->side[SOURCE].steps);
    jw_list(out, "right", '[', &c->side[RESULT].steps);
}

bool checker_constant(Checker *c, const Value *weight, const Value *v, Err *err)
{
    enum { MOST = 1 << 17, AT_ONCE = 1 << 9 }; /* elements; terms are let go after so many */
    Expr *idx[MAX_RANK];
    const Tensor *w = weight->data;
    bool ok = w && tensor_numel(w) <= MOST && v->def && checker_same_sizes(c, v, weight) &&
              !graph_writes(c->side[RESULT].g, weight);
    c->leaf = arena_array(c->arena, bool, c->nclasses + 1);
    if (!c->leaf) return oom(err);
    unsigned laws = 0;
    c->same_bits = false;
    c->numbers = true;
    for (int64_t i = 0; ok && i < tensor_numel(w); i++) {
        int64_t rest = i;
        if (i % AT_ONCE == 0) {
            laws |= i ? c->t.used : 0;
            if (!terms_open(&c->t)) return oom(err);
            c->memo = NULL;
            c->nmemo = c->depth = 0;
        }
        for (int d = w->rank - 1; d >= 0; rest /= w->shape[d], d--) idx[d] = ex_int(c->t.x.p, rest % w->shape[d]);
        c->work = 0;
        const Term *e = element(c, SOURCE, v, idx);
        const Expr *whole = dtype_is_float(w->dtype) ? NULL : term_integer(&c->t, e);
        double is = e ? term_value(&c->t, e) : NAN;
        if (c->t.single && w->dtype != DT_F64 && is != tensor_get(w, i)) is = (double)(float)is;
        ok = whole ? ex_equals_int(whole, tensor_get_i64(w, i)) : is == tensor_get(w, i);
        if (ok || !c->t.single || !dtype_is_float(w->dtype)) continue;
        ok = fabs(is - tensor_get(w, i)) <= 0x1p-20 * fabs(is); /* each op that was folded has rounded */
        laws |= 1u << LAW_FOLDED;
    }
    c->numbers = false;
    if (!ok) return fail(err, E_MISMATCH, "weight '%s' is not '%s', number by number", weight->name, v->name);
    checker_equal(c, v, weight);
    c->laws |= laws | c->t.used;
    return true;
}

static const Symbol *source_symbol(const Checker *c, int i)
{
    const Expr *is = c->size[i];
    bool paired = is && is->kind == EX_SYM;
    const Symbol *s = paired ? expr_symbol(c->t.x.p, (int)is->i) : expr_symbol(c->side[RESULT].g->ex, i);
    return checker_source_size(c, s->name);
}

/* The range of a size of the source; where it is read from what is computed twice, as each reading says. */
static void source_range(const Checker *c, const Symbol *s, int64_t *lo, int64_t *hi)
{
    const Side *a = &c->side[SOURCE];
    *lo = s->lo, *hi = s->hi;
    for (int k = 0; checker_from_data(s) && k < expr_symbol_count(a->g->ex); k++) {
        const Symbol *of = expr_symbol(a->g->ex, k);
        bool same = checker_from_data(of) && of->source == s->source && of->dim == s->dim &&
                    a->class[of->value->id] == a->class[s->value->id];
        if (same && of->lo > *lo) *lo = of->lo;
        if (same && of->hi < *hi) *hi = of->hi;
    }
}

/* Does a bound hold where the source's own conditions do? Of u1 + u2 == u0 and 0 <= u2 follows u1 <= u0. */
static bool follows(Checker *c, const Expr *bound)
{
    const Graph *a = c->side[SOURCE].g;
    ExprPool *p = c->t.x.p;
    bool of_ints = bound->kind == EX_LE && !bound->args[0]->is_float && !bound->args[1]->is_float;
    Expr *gap = of_ints ? ex_sub(p, bound->args[1], bound->args[0]) : NULL;
    for (int k = 0; gap && k < a->nrequire; k++) {
        const Expr *is = checker_expr(c, SOURCE, a->require[k].cond);
        bool ints = is && is->kind == EX_EQ && !is->args[0]->is_float && !is->args[1]->is_float;
        Expr *zero = ints ? ex_sub(p, is->args[0], is->args[1]) : NULL;
        for (int minus = 0; zero && minus < 2; minus++) {
            int64_t lo, hi;
            Expr *same = minus ? ex_sub(p, gap, zero) : ex_add(p, gap, zero);
            if (same) ex_range(p, same, &lo, &hi);
            if (same && lo >= 0) return true;
        }
    }
    return false;
}

/* The indices of a node that looks up; NULL: it does not. */
static const Arg *indices_of(const Node *n)
{
    int one = op_param(n->op, "index"), k = one < 0 ? op_param(n->op, "indices") : one;
    return k >= 0 && (n->arg[k].kind == ARG_VALUE || n->arg[k].kind == ARG_VALUES) ? &n->arg[k] : NULL;
}

/* The next index from *i on, which moves beyond it; NULL: there are no more. */
static const Value *next_index(const Arg *a, int *i)
{
    int n = a->kind == ARG_VALUE ? 1 : a->n;
    const Value *v = NULL;
    for (; !v && *i < n; ++*i) v = a->kind == ARG_VALUE ? a->v : a->vs[*i];
    return v;
}

/* Does a node of the source have the same indices, in their order? */
static bool same_indices(const Checker *c, const Arg *source, const Arg *result)
{
    for (int i = 0, k = 0;;) {
        const Value *a = next_index(source, &i), *b = next_index(result, &k);
        if (!a || !b) return a == b;
        if (checker_class(c, SOURCE, a) != checker_class(c, RESULT, b)) return false;
    }
}

/* An element of what a node gives, at a place of its own. */
static bool some_element(Checker *c, int side, const Value *v)
{
    Expr *idx[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        if (!(idx[i] = ix_var(&c->t.x, side == SOURCE ? "m" : "o", i, checker_expr(c, side, v->dim[i])))) return false;
    return element(c, side, v, idx);
}

/* May a node look up what the source does not, perhaps where nothing reads it? Not what is a value of the source, not
 * where the indices are all inside, and not where the source looks up the same. */
static bool looks_beyond(Checker *c, const Node *n)
{
    const Arg *looks = indices_of(n), *own;
    const Value *v = looks ? n->out[0] : NULL;
    if (!looks || checker_class(c, RESULT, v) >= 0) return false;
    if (!element_is_known(v) || !terms_open(&c->t)) return true;
    c->leaf = c->shared;
    c->memo = NULL;
    c->nmemo = c->depth = c->work = 0;
    for (const Node *m = c->side[SOURCE].g->first; m; m = m->next) {
        if (!(own = indices_of(m)) || !element_is_known(m->out[0]) || !same_indices(c, own, looks)) continue;
        bool *leaf = &c->shared[checker_class(c, SOURCE, m->out[0])], was = *leaf;
        *leaf = false;
        some_element(c, SOURCE, m->out[0]);
        *leaf = was;
        c->depth = 0;
    }
    return !some_element(c, RESULT, v);
}

/* Sizes, conditions on them, results: what the source takes is not refused, and what it gives is given. */
bool checker_finish(Checker *c, Err *err)
{
    const Graph *a = c->side[SOURCE].g, *b = c->side[RESULT].g;
    for (int i = 0; i < expr_symbol_count(b->ex); i++) {
        const Symbol *s = expr_symbol(b->ex, i), *of = source_symbol(c, i);
        int64_t lo, hi;
        if (s->source == SYM_GONE || s->source == SYM_FREE) continue; /* without a value, nothing is computed with it */
        if (c->size[i] && !checker_from_data(s)) {
            ex_range(c->t.x.p, c->size[i], &lo, &hi);
            if (lo < s->lo || hi > s->hi) return fail(err, E_MISMATCH, "size '%s' has a narrower range", s->name);
            continue;
        }
        if (of) source_range(c, of, &lo, &hi);
        if (!of || of->source != s->source || s->lo > lo || s->hi < hi)
            return fail(err, E_MISMATCH, "size '%s' is not the source's, or has a narrower range", s->name);
        bool same = !checker_from_data(s) ||
                    (checker_class(c, RESULT, s->value) == checker_class(c, SOURCE, of->value) && s->dim == of->dim);
        if (!same) return fail(err, E_MISMATCH, "size '%s' is not provably the source's", s->name);
    }
    for (int i = 0; i < b->nrequire; i++) {
        const Expr *e = checker_expr(c, RESULT, b->require[i].cond);
        bool known = e && e->kind == EX_BOOL && e->i;
        for (int k = 0; e && !known && k < a->nrequire; k++) known = e == checker_expr(c, SOURCE, a->require[k].cond);
        if (!known && !(e && follows(c, e)))
            return fail(err, E_MISMATCH, "a condition on sizes that the source lacks: %s", b->require[i].where);
    }
    bool as_many = c->side[SOURCE].ndraws == c->side[RESULT].ndraws;
    for (const Node *n = b->first; n; n = n->next) {
        bool same = as_many && checker_known(c, n);
        bool draws = n->op->flags & OPF_RANDOM || (n->nout && c->side[RESULT].drawn[n->out[0]->id]);
        if (n->op->flags & OPF_EFFECT || (draws && !same))
            return fail(err, E_MISMATCH, "'%s': %s has an effect beside its result", n->name, n->op->name);
        if (body_at(n, 0) && !checker_known(c, n))
            return fail(err, E_MISMATCH, "'%s': %s is not shown to be the source's", n->name, n->op->name);
        if (looks_beyond(c, n))
            return fail(err, E_MISMATCH, "'%s': %s may have an error that the source has not", n->name, n->op->name);
    }
    if ((a->noutput != b->noutput && !c->inside) || graph_mutations(a) != graph_mutations(b) ||
        a->nscalar_output != b->nscalar_output)
        return fail(err, E_MISMATCH, "the numbers of results differ");
    for (int i = 0; i < b->noutput; i++) {
        const Value *of = a->output[c->inside ? c->inside->output[i] : i].value;
        if (checker_class(c, RESULT, b->output[i].value) != checker_class(c, SOURCE, of))
            return fail(err, E_MISMATCH, "output '%s' is not shown to be the source's", output_label(&b->output[i]));
    }
    for (int i = 0; i < graph_mutations(a); i++) {
        const Mutation *x = graph_mutation(a, i), *y = graph_mutation(b, i);
        if (checker_class(c, SOURCE, x->target) != checker_class(c, RESULT, y->target) ||
            checker_class(c, SOURCE, x->value) != checker_class(c, RESULT, y->value))
            return fail(err, E_MISMATCH, "what is written to '%s' is not shown to be the source's", y->target->name);
    }
    return true;
}

/* ------------------------------------------------------------------ the certificate */

static const Value *value_named(const Checker *c, int side, const char *name, Err *err)
{
    const Value *v = graph_find_value(c->side[side].g, name);
    if (!v) fail(err, E_MISMATCH, "the %s has no value '%s'", side ? "result" : "source", name);
    return v;
}

static bool read_cut(Checker *c, const json_t *list, bool *leaf, Err *err)
{
    size_t i;
    json_t *j;
    json_array_foreach(list, i, j)
    {
        const Value *v = json_is_string(j) ? value_named(c, SOURCE, json_string_value(j), err) : NULL;
        if (!v) return err->msg[0] ? false : fail(err, E_MISMATCH, "the cut has something other than names");
        leaf[checker_class(c, SOURCE, v)] = true;
    }
    return true;
}

/* Does the claim say what it takes, and nothing else? */
static bool says_so(const Checker *c, const json_t *said, Err *err)
{
    static const char *const part[] = {"from", "laws", "left", "right"};
    Buf own = {0}, says = {0};
    checker_put_claim(c, &own);
    for (int k = 0; k < 4; k++)
        if (json_object_get(said, part[k])) json_put(&says, part[k], json_object_get(said, part[k]));
    bool ok = !own.failed && !says.failed && says.data;
    size_t at = 0;
    while (ok && own.data[at] && own.data[at] == says.data[at]) at++;
    bool same = ok && own.data[at] == says.data[at];
    while (ok && at && own.data[at] != '[') at--; /* the step, the list */
    if (!same && ok) fail(err, E_MISMATCH, "it takes %.60s, the certificate says %.60s", own.data + at, says.data + at);
    else if (!same) fail(err, E_MISMATCH, "the claim names no steps");
    buf_free(&own);
    buf_free(&says);
    return same;
}

static bool replay_pieces(Checker *c, const json_t *list, Err *err)
{
    size_t i;
    json_t *j;
    json_array_foreach(list, i, j)
    {
        const char *weight, *of;
        int64_t from, count;
        TRY(json_want_string(j, "weight", &weight, err) && json_want_int(j, "from", &from, err) &&
            json_want_int(j, "count", &count, err));
        bool zeros = json_is_null(json_object_get(j, "of"));
        TRY(zeros || json_want_string(j, "of", &of, err));
        const Value *w = value_named(c, RESULT, weight, err), *v = w && !zeros ? value_named(c, SOURCE, of, err) : NULL;
        TRY(w && (v || zeros));
        TRY(v && v->def ? checker_constant(c, w, v, err) : checker_piece(c, w, from, count, v, err));
    }
    return true;
}

const char *checker_assumes(const Checker *c, int i)
{
    for (Law l = 0; l < LAWS; l++)
        if (law_is_assumed(l) && c->laws & 1u << l && i-- == 0) return law_says(l);
    return NULL;
}

static bool replay_graph(Checker *c, const json_t *said, Err *err);

/* What the certificate says that a loop carries. */
static bool read_carried(Checker *c, const json_t *list, Twins *r, Err *err)
{
    size_t i;
    json_t *j;
    int n = 0, most = r->b->op->id == OP_loop ? r->b->arg[1].n : 0;
    if (!list) return true;
    int *carried = arena_array(c->arena, int, most + 1);
    if (!carried) return oom(err);
    json_array_foreach(list, i, j)
    {
        int64_t k = json_is_integer(j) ? json_integer_value(j) : -2;
        if (n == most || k < -1 || k >= INT_MAX) return fail(err, E_MISMATCH, "'carried' is not what the loop carries");
        carried[n++] = (int)k;
    }
    r->carried = carried;
    return n == most || fail(err, E_MISMATCH, "'carried' is not what the loop carries");
}

/* A loop or branch: its bodies, each of which is a graph with claims of its own. */
static bool replay_runs(Checker *c, const json_t *j, const Value *a, const Value *b, Err *err)
{
    Twins r = {a->def, b->def, NULL};
    json_t *bodies, *part;
    size_t i;
    int n = 0;
    if (!a->def || !b->def) return fail(err, E_MISMATCH, "'%s' is not a loop or branch", b->name);
    TRY(json_want_array(j, "bodies", &bodies, err) && read_carried(c, json_object_get(j, "carried"), &r, err));
    TRY(checker_same_operands(c, &r, err));
    bool claimed = checker_rests(c, &r);
    json_array_foreach(bodies, i, part) claimed |= json_array_size(json_object_get(part, "claims")) > 0 ||
                                                   json_array_size(json_object_get(part, "weights")) > 0;
    json_array_foreach(bodies, i, part)
    {
        Checker body;
        if (!body_at(r.b, n)) return fail(err, E_MISMATCH, "more bodies than '%s' has", b->name);
        bool ok = checker_enter(&body, c, &r, n, claimed, err) && replay_graph(&body, part, err);
        checker_leave(c, &body);
        if (!ok) return within(err, "body %d", n);
        n++;
    }
    if (body_at(r.b, n)) return fail(err, E_MISMATCH, "fewer bodies than '%s' has", b->name);
    checker_ran(c, &r, claimed);
    return true;
}

static bool replay_claim(Checker *c, const json_t *j, const Value *b, Err *err)
{
    const char *source;
    bool *leaf = arena_array(c->arena, bool, c->nclasses + 1);
    TRY((leaf || oom(err)) && read_cut(c, json_object_get(j, "from"), leaf, err));
    const Value *a = json_want_string(j, "source", &source, err) ? value_named(c, SOURCE, source, err) : NULL;
    c->nclaims++;
    if (a && json_object_get(j, "bodies")) return replay_runs(c, j, a, b, err);
    TRY(a && checker_claim(c, a, b, leaf, err) && says_so(c, j, err));
    checker_equal(c, a, b);
    c->laws |= c->t.used;
    return true;
}

/* The claims about a file, or about a body. */
static bool replay_graph(Checker *c, const json_t *said, Err *err)
{
    json_t *claims, *pieces = NULL;
    TRY(json_want_array(said, "claims", &claims, err));
    TRY(!json_object_get(said, "weights") || json_want_array(said, "weights", &pieces, err));
    const json_t *j = json_array_get(claims, 0);
    size_t left = json_array_size(claims);
    bool ok = replay_pieces(c, pieces, err);
    for (const Node *n = c->side[RESULT].g->first; ok && n; n = n->next) {
        if (checker_congruent(c, n)) continue;
        for (int k = 0; ok && k < n->nout && left; k++) {
            const char *about = json_string_value(json_object_get(j, "result"));
            if (!about || strcmp(about, n->out[k]->name)) continue;
            ok = replay_claim(c, j, n->out[k], err) || within(err, "claim '%s'", about);
            if (--left) j = json_next(j);
        }
    }
    const Value *a, *b;
    for (int i = 0; ok && left && checker_given(c, i, &a, &b); i++) { /* of what the source has under another name */
        const char *about = json_string_value(json_object_get(j, "result"));
        if (!about || strcmp(about, b->name) || checker_class(c, SOURCE, a) == checker_class(c, RESULT, b)) continue;
        ok = replay_claim(c, j, b, err) || within(err, "claim '%s'", about);
        if (--left) j = json_next(j);
    }
    if (ok && left) ok = fail(err, E_MISMATCH, "a claim is made twice, out of order, or of what needs none");
    return ok && checker_finish(c, err);
}

bool checker_replay(Checker *c, const json_t *cert, Err *err)
{
    static const char ours[] = "qkv certificate 2", any[] = "qkv certificate ";
    const char *format;
    TRY(json_want_string(cert, "format", &format, err));
    if (strncmp(format, any, sizeof any - 1))
        return fail(err, E_FORMAT, "found format '%.40s', expected '%s': it is not a certificate", format, ours);
    if (strcmp(format, ours))
        return fail(err, E_UNSUPPORTED,
                    "found format '%.40s', expected '%s': have this qkv write it again (--certify), or replay it with "
                    "the qkv-certify of the qkv that wrote it",
                    format, ours);
    return replay_graph(c, cert, err);
}
