/* What was found, in words: sizes, values, steps that only some files have, requirements. Contract in
 * generalize_impl.h. */
#include <string.h>
#include "base/vec.h"
#include "generalize/common.h"

bool report_note(Generalized *r, const char *text, Err *err)
{
    const char **all = vec_room(r->arena, r->note, r->nnote, sizeof *all);
    if (!all || !text) return oom(err);
    all[r->nnote++] = text;
    r->note = all;
    return true;
}

static bool report_sizes(Gen *gen, Build *b, Generalized *r, Err *err)
{
    r->size = arena_array(r->arena, GenSize, gen->nsize + 1);
    if (!r->size) return oom(err);
    for (int i = 0; i < gen->nsize; i++) {
        const Size *z = &gen->size[i];
        Buf axes = {0};
        for (int k = 0; k < z->naxes; k++)
            buf_printf(&axes, "%s%s", k ? ", " : "", axis_text(gen, z->at[k].input, z->at[k].axis));
        r->size[r->nsize++] = (GenSize){.name = z->relation ? z->name : z->symbol,
                                        .expr = expr_text(b, size_expr(b, z)),
                                        .axes = axes.data ? arena_strdup(r->arena, axes.data) : NULL,
                                        .tied = z->tied,
                                        .related = z->relation != NULL,
                                        .factor = z->factor,
                                        .lo = 1,
                                        .hi = INT64_MAX};
        const Symbol *s = z->relation ? NULL : expr_find_symbol(b->ex, z->symbol);
        if (s) {
            r->size[r->nsize - 1].lo = s->lo * z->factor;
            if (s->hi != INT64_MAX) r->size[r->nsize - 1].hi = s->hi * z->factor;
        }
        memcpy(r->size[r->nsize - 1].value, z->v, sizeof z->v);
        buf_free(&axes);
    }
    return true;
}

static const char *number_text(Generalized *r, Scalar v)
{
    if (v.kind == SC_FLOAT) return arena_printf(r->arena, "%.9g", v.f);
    if (v.kind == SC_BOOL) return v.i ? "true" : "false";
    return arena_printf(r->arena, "%lld", (long long)v.i);
}

static bool text_same(const char *x, const char *y) { return x && y ? !strcmp(x, y) : x == y; }

static bool add_number(Generalized *r, const GenSolved *n, Err *err)
{
    for (int i = 0; i < r->nnumber; i++) {
        GenSolved *o = &r->number[i];
        bool same = text_same(o->op, n->op) && text_same(o->argument, n->argument) && text_same(o->expr, n->expr) &&
                    text_same(o->also, n->also) && (n->expr || text_same(o->node, n->node));
        for (int f = 0; same && f < r->nfiles; f++) same = text_same(o->value[f], n->value[f]);
        if (!same) continue;
        o->places++;
        return true;
    }
    GenSolved *all = arena_array(r->arena, GenSolved, r->nnumber + 1);
    if (!all) return oom(err);
    int at = n->expr ? r->nnumber - r->nunsolved : r->nnumber;
    for (int i = 0; i <= r->nnumber; i++) all[i] = i == at ? *n : r->number[i - (i > at)];
    r->number = all;
    r->nnumber++;
    r->nunsolved += !n->expr;
    return true;
}

static bool report_numbers(Gen *gen, const Build *b, Generalized *r, Err *err)
{
    for (size_t i = 0; i < gen->holes.count; i++) {
        const Hole *h = gen->holes.entries[i].value;
        if (h->build != b->number) continue; /* a question that no longer comes up */
        if (h->constant && !h->text) continue;
        if (!h->text && !h->unsolved && !h->ncand) continue; /* of a tensor that was solved another way */
        const Step *s = h->step < gen->al.nstep ? &gen->al.step[h->step] : NULL; /* NULL: a result of the model */
        const Node *base = s ? s->node[s->base] : NULL;
        GenSolved n = {.node = base ? arena_strdup(r->arena, base->name) : "output",
                       .op = base ? base->op->name : "",
                       .expr = h->text,
                       .also = h->also,
                       .argument = h->what,
                       .places = 1};
        if (!n.argument) {
            const char *param = base->op->schema->params[h->arg].name;
            n.argument = base->arg[h->arg].kind == ARG_EXPRS ? arena_printf(r->arena, "%s[%d]", param, h->elem) : param;
        }
        n.tensor = h->what != NULL;
        for (int f = 0; f < r->nfiles; f++) n.value[f] = h->shown[f] ? h->shown[f] : number_text(r, h->v[f]);
        if (!n.expr) n.why = h->why ? h->why : "no small expression of the sizes fits";
        TRY(add_number(r, &n, err));
    }
    return true;
}

static bool report_steps(Gen *gen, Generalized *r, Err *err)
{
    for (int i = 0; i < gen->al.nstep; i++) {
        const Step *s = &gen->al.step[i];
        for (int f = 0; f < gen->al.nfiles; f++)
            if (!s->node[f])
                TRY(report_note(
                    r,
                    arena_printf(r->arena,
                                 "node '%s' (%s) of %s is not in %s: taken for one that changes nothing at its sizes",
                                 s->node[s->base]->name, s->node[s->base]->op->name, gen->al.file_name[s->base],
                                 gen->al.file_name[f]),
                    err));
    }
    return true;
}

/* Holds for all sizes from 1 to some hundred: nothing that a user can run into. */
static bool always_holds(Build *b, const Expr *cond)
{
    enum { ALONE = 400, TWO = 30 };
    int symbol[3], n = 0;
    for (int i = 0; i < expr_symbol_count(b->ex) && n < 3; i++)
        if (ex_mentions(cond, expr_symbol(b->ex, i)->expr)) symbol[n++] = i;
    if (!n || n > 2) return false;
    int most = n == 1 ? ALONE : TWO;
    bool holds = true;
    int64_t keep[2] = {b->bind[0].value[symbol[0]], n > 1 ? b->bind[0].value[symbol[1]] : 0};
    for (int x = 1; holds && x <= most; x++)
        for (int y = 1; holds && y <= (n > 1 ? most : 1); y++) {
            Scalar v;
            Err ignored;
            binding_set(&b->bind[0], symbol[0], x);
            if (n > 1) binding_set(&b->bind[0], symbol[1], y);
            holds = ex_eval(b->ex, cond, &b->bind[0], &v, &ignored) && scalar_f64(v) != 0;
        }
    for (int i = 0; i < n; i++) binding_set(&b->bind[0], symbol[i], keep[i]);
    return holds;
}

/* A pad that depends on whether a size is even looks constant when every file has even sizes. */
static bool report_parity(Gen *gen, Generalized *r, Err *err)
{
    bool pads = false;
    for (int i = 0; i < gen->al.nstep; i++)
        pads |= gen->al.step[i].node[gen->al.step[i].base]->op->id == OP_constant_pad_nd;
    for (int i = 0; pads && i < gen->nsize; i++) {
        const Size *z = &gen->size[i];
        bool alike = z->factor % 2 != 0 && !z->relation;
        for (int f = 1; f < r->nfiles; f++) alike = alike && z->v[f] % 2 == z->v[0] % 2;
        if (alike && z->naxes && z->at[0].input >= 0 && z->at[0].axis > 0)
            TRY(report_note(
                r,
                arena_printf(r->arena,
                             "%s is %s in every file: a pad that depends on that cannot be told from a constant one",
                             axis_text(gen, z->at[0].input, z->at[0].axis), z->v[0] % 2 ? "odd" : "even"),
                err));
    }
    return true;
}

static bool report_requirements(Build *b, Generalized *r, Err *err)
{
    for (int i = 0; i < b->g->nrequire; i++) {
        const Require *q = &b->g->require[i];
        if (always_holds(b, q->cond)) continue;
        TRY(report_note(r, arena_printf(r->arena, "requires %s (%s)", expr_text(b, q->cond), q->where), err));
    }
    return true;
}

/* a*s + c >= 0 as a bound of s. */
static bool bound_of(Build *b, const Expr *cond, const Expr *s, int64_t *lo, int64_t *hi)
{
    if (cond->kind != EX_LE || cond->args[0]->is_float || cond->args[1]->is_float) return false;
    Expr *d = ex_sub(b->ex, cond->args[1], cond->args[0]);
    int64_t a = d ? coefficient(d, s, false) : 0;
    Expr *rest = a ? ex_sub(b->ex, d, ex_mul(b->ex, ex_int(b->ex, a), (Expr *)(uintptr_t)s)) : NULL;
    if (!rest || !ex_is_int(rest)) return false;
    if (a > 0 && -floor_div_i64(rest->i, a) > *lo) *lo = -floor_div_i64(rest->i, a);
    if (a < 0 && floor_div_i64(rest->i, -a) < *hi) *hi = floor_div_i64(rest->i, -a);
    return true;
}

/* Requirements of the form H >= 14, S <= 512 become ranges of the symbols. */
static void set_ranges(Gen *gen, Build *b)
{
    for (int i = 0; i < gen->nsize; i++) {
        const Symbol *s = gen->size[i].relation ? NULL : expr_find_symbol(b->ex, gen->size[i].symbol);
        int64_t lo = 1, hi = INT64_MAX;
        if (!s) continue;
        for (int k = 0; k < b->g->nrequire; k++)
            if (bound_of(b, b->g->require[k].cond, s->expr, &lo, &hi))
                b->g->require[k--] = b->g->require[--b->g->nrequire];
        expr_set_range(b->ex, (int)s->expr->i, lo, hi);
    }
}

bool report_all(Gen *gen, Build *b, Generalized *r, Err *err)
{
    set_ranges(gen, b);
    TRY(report_sizes(gen, b, r, err) && report_numbers(gen, b, r, err) && report_steps(gen, r, err) &&
        report_parity(gen, r, err));
    if (b->failed_step >= 0) {
        const Step *s = &gen->al.step[b->failed_step];
        GenSolved n = {.node = arena_strdup(r->arena, s->node[s->base]->name),
                       .op = s->node[s->base]->op->name,
                       .argument = "",
                       .places = 1,
                       .why = arena_strdup(r->arena, b->failure.msg)};
        TRY(add_number(r, &n, err));
    } else TRY(report_requirements(b, r, err));
    r->solved = b->failed_step < 0 && !r->nunsolved && !b->nunknown;
    return true;
}
