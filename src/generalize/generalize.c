/* From static graphs to one with symbolic sizes: repeated building until nothing new is settled. Contract in
 * generalize.h.
 *
 *     build: numbers that two expressions fit stay open
 *     what inference requires settles open numbers           -> build again
 *     what nothing settles takes its likeliest candidate      -> build again
 *     an equality that does not follow: pads and other choices before it are reconsidered, sizes become multiples ->
 *         build again
 */
#include "generalize/generalize.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "generalize/common.h"

enum { MAX_BUILDS = 2000, MAX_TRIALS = 48 };

/* ------------------------------------------------------------------ input files */

static bool check_static(const Graph *g, const char *name, Err *err)
{
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++)
            if (!ex_is_int(g->input[i]->dim[d]))
                return fail(err, E_USAGE,
                            "%s: input '%s': axis %d is variable already; generalize takes static exports (without "
                            "dynamic_shapes)",
                            name, g->input[i]->name, d);
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->value && symbol_out_of_data(s))
            return fail(err, E_UNSUPPORTED,
                        "%s: node '%s' gives a data-dependent size; such models are not generalized", name,
                        s->value->name);
    }
    return true;
}

/* Constants of reshapes and windows: what a size is divided by is usually among them. */
static void see_constants(Gen *gen)
{
    for (int f = 0; f < gen->al.nfiles; f++)
        for (const Node *n = gen->al.file[f]->first; n; n = n->next) {
            if (!(n->op->flags & OPF_SIZE_ARGS)) continue;
            for (int i = 0; i < n->op->schema->nparams; i++)
                for (int k = 0; n->arg[i].kind == ARG_EXPRS && k < n->arg[i].n; k++) {
                    const Expr *e = n->arg[i].es[k];
                    if (e->kind == EX_INT && e->i > 1 && e->i < (int64_t)sizeof gen->seen)
                        gen->seen[e->i] |= (unsigned char)(1 << f);
                }
        }
    for (size_t i = 0; i < sizeof gen->seen; i++)
        gen->seen[i] = gen->seen[i] == (1 << gen->al.nfiles) - 1; /* of every file */
}

/* ------------------------------------------------------------------ settling */

typedef struct Cost {
    int failed;   /* 1: a step cannot be built */
    int residual; /* equalities that do not follow */
    int unsolved;
} Cost;

static Cost cost_until(const Build *b, int step)
{
    Cost c = {b->failed_step >= 0 && b->failed_step <= step, 0, 0};
    for (int i = 0; i < b->nresidual; i++) c.residual += b->residual[i].step <= step;
    for (int i = 0; i < b->nunknown; i++) c.unsolved += b->unknown[i].h->unsolved && b->unknown[i].h->step <= step;
    return c;
}

static bool better(Cost x, Cost y)
{
    if (x.failed != y.failed) return x.failed < y.failed;
    if (x.unsolved != y.unsolved) return x.unsolved < y.unsolved;
    return x.residual < y.residual;
}

/* Open numbers that nothing settled take their likeliest candidate: the surest one, and all with the same question. */
static int decide(const Build *b)
{
    const Hole *surest = NULL;
    int n = 0;
    for (int i = 0; i < b->nunknown; i++) { /* what was opened to see what follows for it comes last */
        const Hole *h = b->unknown[i].h;
        if (h->unsolved || h->forced || h->state == HOLE_DECIDED) continue;
        bool surer = surest && (h->state == HOLE_OPEN) == (surest->state == HOLE_OPEN) ? h->rank < surest->rank
                                                                                       : h->state != HOLE_OPEN;
        if (!surest || surer) surest = h;
    }
    for (int i = 0; surest && i < b->nunknown; i++) {
        Hole *h = b->unknown[i].h;
        bool same = !h->unsolved && !h->forced && h->state != HOLE_DECIDED;
        same = same && h->rank == surest->rank && h->ncand == surest->ncand && h->arg == surest->arg;
        for (int f = 0; same && f < b->nfiles; f++) same = scalar_f64(h->v[f]) == scalar_f64(surest->v[f]);
        if (!same) continue;
        h->state = HOLE_DECIDED;
        n++;
    }
    return n;
}

/* Builds until equations and decisions settle no more. b is the last build.
 * A trial ends as soon as it is no better than `now`. */
static bool settle(Gen *gen, int last_step, const Cost *now, Build *b, Err *err)
{
    TRY(build_graph(b, gen, last_step, err));
    while (gen->builds < MAX_BUILDS) {
        Cost c = cost_until(b, last_step);
        if (!b->solved && now && (c.failed || c.residual >= now->residual)) break;
        if (!b->solved && !decide(b)) break;
        build_free(b);
        TRY(build_graph(b, gen, last_step, err));
    }
    return true;
}

/* What a trial changes, and how to take it back: all holes and sizes as they were. */
typedef struct Saved {
    Hole *hole;
    size_t n;
    Size *size;
} Saved;

static bool save(Gen *gen, Saved *s, Err *err)
{
    s->n = gen->holes.count;
    s->hole = mem_alloc((s->n + 1) * sizeof *s->hole);
    s->size = mem_alloc(((size_t)gen->nsize + 1) * sizeof *s->size);
    if (!s->hole || !s->size) return oom(err);
    for (size_t i = 0; i < s->n; i++) s->hole[i] = *(Hole *)gen->holes.entries[i].value;
    if (gen->nsize) memcpy(s->size, gen->size, (size_t)gen->nsize * sizeof *s->size);
    return true;
}

static void restore(Gen *gen, Saved *s)
{
    for (size_t i = 0; i < gen->holes.count; i++) {
        Hole *h = gen->holes.entries[i].value;
        if (i < s->n) *h = s->hole[i];
        else *h = (Hole){.step = h->step, .arg = h->arg, .elem = h->elem};
    }
    if (gen->nsize) memcpy(gen->size, s->size, (size_t)gen->nsize * sizeof *s->size);
}

static void saved_free(Saved *s)
{
    mem_free(s->hole);
    mem_free(s->size);
}

/* Tries what was changed at step `from` since `before`: kept when it is better up to last_step; else taken back. What
 * was settled after it is asked again. */
static bool trial(Gen *gen, int from, int last_step, Cost now, Saved *before, bool *kept, Err *err)
{
    Build t;
    for (size_t i = 0; i < gen->holes.count; i++) {
        Hole *h = gen->holes.entries[i].value;
        if (h->step < from) continue;
        h->forced = NULL;
        if (h->state == HOLE_DECIDED && !h->pick) h->state = HOLE_AUTO;
    }
    bool ok = settle(gen, last_step, &now, &t, err);
    *kept = ok && better(cost_until(&t, last_step), now);
    build_free(&t);
    if (!*kept) restore(gen, before);
    return ok;
}

/* ------------------------------------------------------------------ equalities that do not follow */

/* One way to make equality r of build b follow; *kept: it did, and the rest became no worse. */
typedef bool Remedy(Gen *gen, const Build *b, const Residual *r, Cost now, bool *kept, Err *err);

/* in[i]: step i is this step, or one that it depends on. */
static void mark_cone(const Gen *gen, int step, bool *in)
{
    const Aligned *a = &gen->al;
    int *maker = mem_alloc(((size_t)a->nvalue + 1) * sizeof *maker);
    memset(in, 0, (size_t)a->nstep * sizeof *in);
    if (!maker) return;
    for (int i = 0; i < a->nvalue; i++) maker[i] = -1;
    for (int i = 0; i < a->nstep; i++)
        for (int k = 0; k < a->step[i].node[a->step[i].base]->nout; k++) maker[a->step[i].out + k] = i;
    in[step] = true;
    for (int i = step; i >= 0; i--)
        for (int k = 0; in[i] && k < a->step[i].noperand; k++)
            if (maker[a->step[i].operand[k]] >= 0) in[maker[a->step[i].operand[k]]] = true;
    mem_free(maker);
}

/* Of one pad the end before the beginning: that is where models fill up. */
static int latest_first(const void *x, const void *y)
{
    const Hole *a = *(Hole *const *)x, *b = *(Hole *const *)y;
    if (a->step != b->step) return b->step - a->step;
    return a->elem % 2 != b->elem % 2 ? b->elem % 2 - a->elem % 2 : a->elem - b->elem;
}

/* Holes of steps before this one that it depends on, the nearest first. */
static Hole **holes_before(Gen *gen, int step, int *n)
{
    bool *in = mem_zeroed((size_t)gen->al.nstep + 1, sizeof *in);
    Hole **list = mem_alloc((gen->holes.count + 1) * sizeof *list);
    *n = 0;
    if (in && list) {
        mark_cone(gen, step, in);
        for (size_t i = 0; i < gen->holes.count; i++) {
            Hole *h = gen->holes.entries[i].value;
            if (h->step <= step && in[h->step]) list[(*n)++] = h;
        }
        qsort(list, (size_t)*n, sizeof *list, latest_first);
    }
    mem_free(in);
    return list;
}

static bool is_pad(const Gen *gen, const Hole *h)
{
    const Step *s = &gen->al.step[h->step];
    return s->node[s->base]->op->id == OP_constant_pad_nd && h->arg == 1;
}

/* Pads that are the same in every file, or fit several multiples: one that fills up to what is wanted. */
static bool reconsider_pads(Gen *gen, const Build *b, const Residual *r, Cost now, bool *kept, Err *err)
{
    (void)b;
    int n, tried = 0;
    Saved before;
    Hole **hole = holes_before(gen, r->step, &n);
    if (!hole) return oom(err);
    bool ok = save(gen, &before, err);
    *kept = false;
    for (int i = 0; ok && !*kept && i < n && tried < MAX_TRIALS; i++) {
        if (!is_pad(gen, hole[i]) || hole[i]->state == HOLE_OPEN) continue;
        for (int pick = hole[i]->pick + 1; ok && !*kept && pick < 6 && tried < MAX_TRIALS; pick++) {
            hole[i]->pick = pick;
            hole[i]->state = HOLE_DECIDED;
            ok = trial(gen, hole[i]->step, r->step, now, &before, kept, err);
            tried++;
        }
    }
    saved_free(&before);
    mem_free(hole);
    return ok;
}

/* The coefficient of symbol s in a sum; 0 when it is not there by itself,
 * or `product` is not set and it is in a product. */
int64_t coefficient(const Expr *e, const Expr *s, bool product)
{
    if (e == s) return 1;
    int64_t c = 0;
    if (e->kind == EX_MUL && (product || e->nargs == 2)) {
        bool factor = false;
        for (int i = 0; i < e->nargs; i++) factor |= e->args[i] == s;
        if (factor) return e->args[0]->kind == EX_INT ? e->args[0]->i : product;
    }
    for (int i = 0; e->kind == EX_ADD && i < e->nargs && !c; i++) c = coefficient(e->args[i], s, product);
    return c;
}

enum { LARGEST_FACTOR = 1 << 16 };

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t m = a / common_divisor(a, b) * b;
    return m < LARGEST_FACTOR ? m : LARGEST_FACTOR;
}

/* What symbol s must be a multiple of for the quotients in e to come out even: 4 in ((s + 1)//2 + 1)//2. */
static int64_t wanted_factor(const Expr *e, const Expr *s)
{
    int64_t all = 1;
    if (!ex_mentions(e, s)) return 1;
    for (int i = 0; i < e->nargs; i++) all = common_multiple(all, wanted_factor(e->args[i], s));
    if ((e->kind != EX_FLOORDIV && e->kind != EX_MOD) || e->args[1]->kind != EX_INT || e->args[1]->i < 2 ||
        e->args[1]->i > LARGEST_FACTOR)
        return all;
    int64_t c = coefficient(e->args[0], s, true), k = e->args[1]->i;
    int64_t product = all * (c ? k / common_divisor(k, c) : k);
    return product < LARGEST_FACTOR ? product : LARGEST_FACTOR;
}

static bool multiply_size(Gen *gen, Size *z, int64_t factor)
{
    int64_t all = z->factor * factor;
    for (int f = 0; f < gen->al.nfiles; f++)
        if (z->v[f] % all) return false;
    z->factor = all;
    z->symbol = arena_printf(gen->arena, "_%s", z->name);
    return z->symbol != NULL;
}

/* Sizes that occur in quotients become multiples: H//14 of H = 14*h. */
static bool make_multiples(Gen *gen, const Build *b, const Residual *r, Cost now, bool *kept, Err *err)
{
    Saved before;
    bool any = false, ok = save(gen, &before, err);
    *kept = false;
    for (int i = 0; ok && i < gen->nsize; i++) {
        Size *z = &gen->size[i];
        const Symbol *s = z->relation ? NULL : expr_find_symbol(b->ex, z->symbol);
        int64_t factor = s ? wanted_factor(r->cond, s->expr) : 1;
        if (factor > 1 && factor < LARGEST_FACTOR) any |= multiply_size(gen, z, factor);
    }
    if (ok && any) ok = trial(gen, 0, r->step, now, &before, kept, err);
    else if (ok) restore(gen, &before);
    saved_free(&before);
    return ok;
}

/* What is the same in every file may be a product of sizes, hardly a difference, unless it is a pad. */
static bool far_fetched(const Gen *gen, const Hole *h)
{
    return h->constant && h->forced && !is_pad(gen, h) && (strstr(h->forced, " - ") || strstr(h->forced, "(-"));
}

/* Numbers before this step: what would the equality make of them? Those that differ first,
 * then those that are the same in every file. */
static bool reopen(Gen *gen, const Build *b, const Residual *r, Cost now, bool *kept, Err *err)
{
    (void)b;
    int n, tried = 0;
    Saved before;
    Hole **hole = holes_before(gen, r->step, &n);
    if (!hole) return oom(err);
    bool ok = save(gen, &before, err);
    *kept = false;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; ok && !*kept && i < n && tried < MAX_TRIALS * (pass + 1); i++) {
            Hole *h = hole[i];
            bool sizes = h->arg == 1 || h->arg < 0; /* equal numbers elsewhere: strides, axes */
            if (h->state == HOLE_OPEN || h->forced || h->constant != (pass == 1) || (h->constant && !sizes)) continue;
            h->state = HOLE_OPEN;
            h->pick = 0;
            ok = trial(gen, h->step, r->step, now, &before, kept, err);
            if (*kept && far_fetched(gen, h)) {
                *kept = false;
                restore(gen, &before);
            }
            tried++;
        }
    saved_free(&before);
    mem_free(hole);
    return ok;
}

/* The equality makes one input size an expression of others: a mask's H*W. */
static bool relate(Gen *gen, const Build *b, const Residual *r, Cost now, bool *kept, Err *err)
{
    Saved before;
    bool ok = save(gen, &before, err);
    *kept = false;
    for (int i = gen->nsize - 1; ok && i >= 0 && !*kept; i--) {
        Size *z = &gen->size[i];
        const Symbol *s = z->relation || z->factor != 1 ? NULL : expr_find_symbol(b->ex, z->symbol);
        Expr *e = s && ex_mentions(r->cond, s->expr) ? equation_for(b, r->cond, s->expr) : NULL;
        for (int k = 0; e && k < gen->nsize; k++) /* another size may be a multiple of it by then */
            if (gen->size[k].relation && strstr(gen->size[k].relation, z->symbol)) e = NULL;
        if (!e || ex_is_const(e)) continue;
        z->relation = expr_text(b, e);
        ok = z->relation ? trial(gen, 0, r->step, now, &before, kept, err) : oom(err);
    }
    saved_free(&before);
    return ok;
}

/* Repeats until every equality follows or nothing helps against those that do not. */
static bool solve_all(Gen *gen, Build *b, Err *err)
{
    static Remedy *const remedy[] = {reconsider_pads, make_multiples, reopen, relate};
    int all = gen->al.nstep, given_up = 0;
    TRY(settle(gen, all, NULL, b, err));
    while (given_up < b->nresidual && gen->builds < MAX_BUILDS) {
        Residual r = b->residual[given_up];
        Cost now = cost_until(b, r.step);
        bool kept = false;
        for (size_t k = 0; !kept && k < sizeof remedy / sizeof *remedy; k++)
            TRY(remedy[k](gen, b, &r, now, &kept, err));
        if (!kept) {
            given_up++;
            continue;
        }
        build_free(b);
        TRY(settle(gen, all, NULL, b, err));
    }
    return true;
}

/* ------------------------------------------------------------------ all */

static bool run(Gen *gen, const GeneralizeOptions *o, Generalized *r, Err *err)
{
    TRY(align_graphs(&gen->al, err));
    if (gen->al.differs) return report_note(r, gen->al.differs, err);
    TRY(find_sizes(gen, o, err));
    if (!gen->nsize) return fail(err, E_USAGE, "every input has the same sizes in all files: nothing to generalize");
    if (gen->nsize > GEN_SIZES)
        return fail(err, E_UNSUPPORTED, "found %d variable sizes, expected at most %d; name those that are one size",
                    gen->nsize, GEN_SIZES);
    see_constants(gen);
    Build b;
    bool ok = solve_all(gen, &b, err) && report_all(gen, &b, r, err);
    if (ok && r->solved) {
        graph_dce(b.g);
        ok = graph_check(b.g, err);
        r->graph = b.g;
        b.g = NULL;
    }
    build_free(&b);
    return ok;
}

bool generalize(const Graph *const *file, const char *const *name, int nfiles, const GeneralizeOptions *o,
                Generalized *out, Err *err)
{
    *out = (Generalized){.nfiles = nfiles};
    if (nfiles < 2 || nfiles > GEN_FILES)
        return fail(err, E_USAGE, "found %d files, expected 2 to %d", nfiles, GEN_FILES);
    for (int f = 0; f < nfiles; f++) TRY(check_static(file[f], name[f], err));
    out->arena = arena_create(0);
    if (!out->arena) return oom(err);
    Gen gen = {.arena = out->arena, .al = {.arena = out->arena, .nfiles = nfiles, .file = file, .file_name = name}};
    bool ok = run(&gen, o, out, err);
    align_free(&gen.al);
    map_free(&gen.holes);
    if (!ok) generalized_free(out);
    return ok;
}

void generalized_free(Generalized *r)
{
    graph_free(r->graph);
    arena_destroy(r->arena);
    *r = (Generalized){0};
}
