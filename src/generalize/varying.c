/* Which input sizes vary, which axes are one size, and what the user calls them. Contract in generalize_impl.h. */
#include <stdlib.h>
#include <string.h>
#include "base/vec.h"
#include "base/number.h"
#include "generalize/common.h"

const char *axis_text(Gen *gen, int input, int axis)
{
    const Graph *g = gen->al.file[0];
    if (input < 0) return arena_strdup(gen->arena, g->scalar_input[axis].name);
    return arena_printf(gen->arena, "%s.%d", g->input[input]->name, axis);
}

static bool add_axis(Gen *gen, Size *z, int input, int axis, Err *err)
{
    void *grown = vec_room(gen->arena, z->at, z->naxes, sizeof *z->at);
    if (!grown) return oom(err);
    z->at = grown;
    z->at[z->naxes].input = input;
    z->at[z->naxes++].axis = axis;
    return true;
}

static bool has_axis(const Size *z, int input, int axis)
{
    for (int k = 0; k < z->naxes; k++)
        if (z->at[k].input == input && z->at[k].axis == axis) return true;
    return false;
}

static Size *new_size(Gen *gen, const char *name, const int64_t *v, Err *err)
{
    Size *grown = arena_array(gen->arena, Size, gen->nsize + 1);
    if (!grown || !name) {
        oom(err);
        return NULL;
    }
    if (gen->nsize) memcpy(grown, gen->size, (size_t)gen->nsize * sizeof *grown);
    gen->size = grown;
    Size *z = &grown[gen->nsize++];
    *z = (Size){.name = name, .symbol = name, .factor = 1};
    memcpy(z->v, v, sizeof z->v);
    return z;
}

static bool axis_values(const Gen *gen, int input, int axis, int64_t *v)
{
    bool differ = false;
    memset(v, 0, GEN_FILES * sizeof *v);
    for (int f = 0; f < gen->al.nfiles; f++) {
        const Graph *g = gen->al.file[f];
        v[f] = input >= 0 ? g->input[input]->dim[axis]->i : g->scalar_input[axis].value.e->i;
        differ |= v[f] != v[0];
    }
    return differ;
}

/* "input.axis", or the name of a scalar input. */
static bool find_axis(const Gen *gen, const char *text, size_t n, const char *option, int *input, int *axis, Err *err)
{
    const Graph *g = gen->al.file[0];
    for (int i = 0; i < g->nscalar_input; i++)
        if (strlen(g->scalar_input[i].name) == n && !strncmp(g->scalar_input[i].name, text, n)) {
            *input = -1;
            *axis = i;
            return true;
        }
    for (int i = 0; i < g->ninput; i++) {
        size_t m = strlen(g->input[i]->name);
        if (n < m + 2 || strncmp(g->input[i]->name, text, m) || text[m] != '.') continue;
        const char *end;
        long d = parse_int(text + m + 1, &end);
        if (end != text + n || d < -g->input[i]->rank || d >= g->input[i]->rank) continue;
        *input = i;
        *axis = (int)(d < 0 ? d + g->input[i]->rank : d);
        return true;
    }
    Buf b = {0};
    for (int i = 0; i < g->ninput; i++)
        buf_printf(&b, "%s%s (rank %d)", i ? ", " : "", g->input[i]->name, g->input[i]->rank);
    fail(err, E_USAGE, "option '%s': '%.*s' is not an axis; write INPUT.AXIS, the inputs are %.600s", option, (int)n,
         text, b.data ? b.data : "none");
    buf_free(&b);
    return false;
}

/* "batch=x.0,mask.0" */
static bool named_size(Gen *gen, const char *text, Err *err)
{
    const char *eq = strchr(text, '=');
    bool ok = eq && eq > text && !is_digit(*text);
    for (const char *p = text; ok && p < eq; p++) ok = is_alnum(*p) || *p == '_';
    if (!ok) return fail(err, E_USAGE, "option 'dim': found '%s', expected NAME=INPUT.AXIS[,INPUT.AXIS...]", text);
    char *name = arena_strndup(gen->arena, text, (size_t)(eq - text));
    Size *z = NULL;
    for (const char *p = eq + 1; *p || p == eq + 1;) {
        size_t n = strcspn(p, ",");
        int input, axis;
        int64_t v[GEN_FILES];
        TRY(find_axis(gen, p, n, "dim", &input, &axis, err));
        for (int i = 0; i < gen->nsize; i++)
            if (has_axis(&gen->size[i], input, axis))
                return fail(err, E_USAGE, "option 'dim': %.*s belongs to '%s' already", (int)n, p, gen->size[i].name);
        if (!axis_values(gen, input, axis, v))
            return fail(err, E_USAGE, "option 'dim': %.*s is %lld in every file; give files in which it differs",
                        (int)n, p, (long long)v[0]);
        if (!z) TRY(z = new_size(gen, name, v, err));
        if (memcmp(z->v, v, sizeof v))
            return fail(err, E_USAGE, "option 'dim': '%s' ties %.*s to %s, but their sizes differ: %lld and %lld", name,
                        (int)n, p, axis_text(gen, z->at[0].input, z->at[0].axis), (long long)v[0], (long long)z->v[0]);
        TRY(add_axis(gen, z, input, axis, err));
        z->named = true;
        p += n + (p[n] == ',');
    }
    return true;
}

static char *plain_name(Gen *gen, int input, int axis)
{
    const Graph *g = gen->al.file[0];
    char *s = input < 0 ? arena_strdup(gen->arena, g->scalar_input[axis].name)
                        : arena_printf(gen->arena, "%s_%d", g->input[input]->name, axis);
    for (char *p = s; p && *p; p++)
        if (!is_alnum(*p) && *p != '_') *p = '_';
    return s;
}

static bool free_size(Gen *gen, int input, int axis, bool apart, Err *err)
{
    int64_t v[GEN_FILES];
    if (!axis_values(gen, input, axis, v)) return true;
    for (int i = 0; i < gen->nsize; i++)
        if (has_axis(&gen->size[i], input, axis)) return true;
    for (int i = 0; !apart && i < gen->nsize; i++)
        if (!memcmp(gen->size[i].v, v, sizeof v)) {
            gen->size[i].tied = true;
            return add_axis(gen, &gen->size[i], input, axis, err);
        }
    Size *z = new_size(gen, plain_name(gen, input, axis), v, err);
    return z && add_axis(gen, z, input, axis, err);
}

bool find_sizes(Gen *gen, const GeneralizeOptions *o, Err *err)
{
    const Graph *g = gen->al.file[0];
    for (int i = 0; o && i < o->ndim; i++) TRY(named_size(gen, o->dim[i], err));
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++) TRY(free_size(gen, i, d, o && o->apart, err));
    for (int i = 0; i < g->nscalar_input; i++) {
        bool number = true;
        for (int f = 0; f < gen->al.nfiles; f++) {
            const Arg *a = &gen->al.file[f]->scalar_input[i].value;
            number = number && a->kind == ARG_EXPR && a->e->kind == EX_INT;
        }
        if (number) TRY(free_size(gen, -1, i, o && o->apart, err));
    }
    for (int i = 0; o && i < o->ndynamic; i++) {
        int input, axis;
        int64_t v[GEN_FILES];
        TRY(find_axis(gen, o->dynamic[i], strlen(o->dynamic[i]), "dynamic", &input, &axis, err));
        if (!axis_values(gen, input, axis, v))
            return fail(err, E_USAGE, "option 'dynamic': %s is %lld in every file; add a file in which it differs",
                        o->dynamic[i], (long long)v[0]);
    }
    return true;
}
