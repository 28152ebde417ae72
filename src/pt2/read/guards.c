/* guards_code: Python conditions over input sizes, beside the graph.
 *
 *     "L['mask'].size()[1] == (L['x'].size()[1] // 14) * 3"
 *
 * Equalities, bounds and divisibility become requirements. Conditions with != come from stride analysis during tracing
 * (0/1 specialisation of contiguity); the graph computes the same for the sizes they exclude, so they are read and not
 * enforced. Conditions on strides or storage offsets are not read: a tensor given to qkv may have any.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "pt2/read/read_impl.h"

typedef struct GuardAtom {
    Import *im;
} GuardAtom;

/* L['d']['k'].size()[0]: the input d_k, its size 0. Names of nested inputs are their path joined with '_'. */
static Expr *size_atom(void *user, const char *text, size_t *used)
{
    GuardAtom *a = user;
    char name[512];
    size_t n = 0;
    const char *s = text;
    if (*s != 'L' || s[1] != '[') return NULL;
    for (s++; *s == '['; s++) {
        s++;
        char quote = *s == '\'' || *s == '"' ? *s++ : 0;
        if (n && n + 1 < sizeof name) name[n++] = '_';
        while (*s && (quote ? *s != quote : *s != ']') && n + 1 < sizeof name) name[n++] = *s++;
        if (quote && *s++ != quote) return NULL;
        if (*s != ']') return NULL;
    }
    name[n] = 0;
    const char *size = ".size()[";
    Value *v = graph_find_value(a->im->g, name);
    if (!v || v->kind != V_INPUT || strncmp(s, size, strlen(size))) return NULL;
    const char *end;
    long axis = parse_int(s + strlen(size), &end);
    if (*end != ']' || axis < 0 || axis >= v->rank) return NULL;
    *used = (size_t)(end + 1 - text);
    return v->dim[axis];
}

static bool excludes(const Expr *e)
{
    if (e->kind == EX_NE || e->kind == EX_NOT) return true;
    for (int i = 0; i < e->nargs; i++)
        if (e->is_bool && excludes(e->args[i])) return true;
    return false;
}

/* Read before the nodes, so that their sizes are worked out with what the guards say, and required last, after what
 * the nodes themselves require. */
bool import_guards(Import *im, const json_t *guards)
{
    size_t i, n = json_array_size(guards);
    json_t *guard;
    im->guard = arena_array(im->g->arena, Require, n + 1);
    if (!im->guard) return oom(im->err);
    json_array_foreach(guards, i, guard)
    {
        const char *text = json_string_value(guard);
        if (!text) return fail(im->err, E_FORMAT, "guards_code: entry %zu is not a string", i);
        GuardAtom atom = {im};
        Err unread;
        int symbols = expr_symbol_count(im->g->ex);
        Expr *e = ex_parse(im->g->ex, text, size_atom, &atom, &unread);
        im->pt2->nguards++;
        if (!e || !e->is_bool || excludes(e) || expr_symbol_count(im->g->ex) != symbols) {
            im->pt2->nguards_ignored++;
            for (int k = symbols; k < expr_symbol_count(im->g->ex); k++)
                expr_symbol(im->g->ex, k)->source = SYM_GONE; /* made of words it did not know */
            continue;
        }
        im->guard[im->nguard++] = (Require){e, text};
    }
    TRY(graph_unify_sizes(im->g, im->guard, &im->nguard, im->err) || within(im->err, "guards_code"));
    for (int k = 0; k < im->nguard; k++) expr_assume(im->g->ex, im->guard[k].cond);
    return true;
}

bool require_guards(Import *im)
{
    for (int i = 0; i < im->nguard; i++)
        TRY(graph_require(im->g, im->guard[i].cond, im->err, "guard %.200s", im->guard[i].where));
    return true;
}
