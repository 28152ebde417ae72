/* What shares memory in PyTorch: results that are views of operands, and as_strided. Contract in values.h. */
#include <string.h>
#include "facts/strides.h"
#include "facts/views.h"
#include "pt2/read/values.h"

/* ------------------------------------------------------------------ strides of the file */

/* False: the file has none, or none that are understood. */
static bool strides_in_file(Import *im, const json_t *meta, int rank, Expr **stride)
{
    json_t *strides = json_object_get(meta, "strides");
    Err ignored;
    Import probe = *im;
    probe.err = &ignored;
    if (json_array_size(strides) != (size_t)rank) return false;
    for (int i = 0; i < rank; i++) TRY(read_sym(&probe, json_array_get(strides, (size_t)i), &stride[i]));
    return true;
}

static bool contiguous_meta(Import *im, const json_t *meta, const Value *v)
{
    Expr *want = ex_int(im->g->ex, 1), *have[MAX_RANK];
    if (!strides_in_file(im, meta, v->rank, have)) return true;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (have[i] != want && !ex_equals_int(v->dim[i], 1)) return false;
        want = ex_mul(im->g->ex, want, v->dim[i]);
    }
    return true;
}

/* ------------------------------------------------------------------ as_strided */

/* The axes of v from the outermost in memory to the innermost, as the file's strides say. It fails for gaps. */
static bool order_in_memory(Import *im, const json_t *meta, const Value *v, int *order)
{
    json_t *strides = json_object_get(meta, "strides");
    Expr *want = ex_int(im->g->ex, 1), *have;
    uint32_t taken = 0;
    for (int at = v->rank - 1; at >= 0; at--) {
        int found = -1;
        for (int i = v->rank - 1; i >= 0 && found < 0; i--) {
            if (taken >> i & 1) continue;
            TRY(read_sym(im, json_array_get(strides, (size_t)i), &have));
            if (have == want || ex_equals_int(v->dim[i], 1)) found = i;
        }
        if (found < 0)
            return fail(im->err, E_UNSUPPORTED, "as_strided of '%s', whose elements have gaps in memory", v->name);
        order[at] = found;
        taken |= 1u << found;
        want = ex_mul(im->g->ex, want, v->dim[found]);
    }
    return true;
}

static bool offset_in_storage(Import *im, const Ref *r, Expr **offset)
{
    json_t *said = json_object_get(r->meta, "storage_offset");
    *offset = ex_int(im->g->ex, 0);
    return !said || read_sym(im, said, offset);
}

bool in_storage(Import *im, NodeCall *c)
{
    Ref *view = c->self, *base = view;
    if (!view || c->arg[0].kind != ARG_VALUE) return true;
    while (base->parent && base->parent->value->dtype == view->value->dtype) base = base->parent;
    bool turned = !contiguous_meta(im, base->meta, base->value);
    if (base == view && !turned) return true;
    Expr *offset = c->arg[3].e, *start;
    if (c->arg[3].kind == ARG_NONE) TRY(offset_in_storage(im, view, &offset));
    TRY(offset_in_storage(im, base, &start));
    c->arg[3] = arg_expr(ex_sub(im->g->ex, offset, start));
    Value *memory = ref_value(im->g, base, im->err);
    if (!memory) return false;
    if (turned) {
        int order[MAX_RANK];
        TRY(order_in_memory(im, base->meta, memory, order));
        Lower L = {.g = im->g, .ex = im->g->ex, .op = c->op, .arg = c->arg, .err = im->err};
        Arg *arg = arena_array(im->g->arena, Arg, 2);
        int64_t dims[MAX_RANK];
        for (int i = 0; i < memory->rank; i++) dims[i] = order[i];
        if (!arg) return oom(im->err);
        arg[1] = arg_ints(im->g, memory->rank, dims);
        if (!(memory = lower_permute(&L, memory, order))) return false;
        base = ref_view(im->g, base, op_get(OP_permute), arg, 0, memory, NULL);
        if (!base) return oom(im->err);
    }
    c->self = base;
    c->arg[0] = arg_value(memory);
    return true;
}

/* ------------------------------------------------------------------ results that share memory */

/* Does a reshape, contiguous or to give `in` itself, or a view of it? Where one of the last two copies, it copies into
 * other strides. */
static bool shares(Import *im, const NodeCall *c, const json_t *from, const Value *in, const json_t *to,
                   const Value *out)
{
    Expr *old[MAX_RANK], *now[MAX_RANK];
    int copy = op_param(c->op, "copy"), format = op_param(c->op, "memory_format");
    if (copy >= 0 && c->arg[copy].kind == ARG_EXPR && c->arg[copy].e->i) return false;
    if (c->op->id == OP_ravel) return contiguous_meta(im, from, in); /* contiguous, and a view of that */
    if (!strides_in_file(im, from, in->rank, old)) return true;
    if (format < 0) return reshaped_strides(im->g->ex, in, old, out, now);
    return !strides_in_file(im, to, out->rank, now) || !memcmp(old, now, (size_t)in->rank * sizeof *old);
}

/* The operand whose memory results may share, by the schema; its number in *at. NULL: none. A result of a list shares
 * that of its own one; a single result, that of the only one. */
static Ref *below(Scope *s, const NodeCall *c, int which, int *at)
{
    const Schema *schema = c->op->schema;
    const char *returns = strstr(c->op->schema_text, "->");
    while (returns && strstr(returns + 1, "->")) returns = strstr(returns + 1, "->");
    for (*at = 0; *at < schema->nparams && !schema->params[*at].aliased;) ++*at;
    if (*at == schema->nparams || schema->params[*at].written || !returns || !strstr(returns, "(a")) return NULL;
    if (*at == 0 && c->self) return c->self;
    const json_t *list = json_object_get(json_object_get(json_array_get(c->inputs, (size_t)*at), "arg"), "as_tensors");
    const char *name = json_string_value(json_object_get(json_array_get(list, (size_t)which), "name"));
    Slot *slot = name && json_array_size(list) == (size_t)c->nnames ? scope_find(s, name) : NULL;
    return slot && slot->kind == SLOT_TENSOR ? slot->ref : NULL;
}

/* v, by the views of x, which is r's value, that make it, as views of r. */
static Ref *view_by_views(Import *im, Ref *r, const Value *x, const Value *v, const json_t *meta)
{
    const Node *n = v->def;
    if (v == x) return r;
    r = view_by_views(im, r, x, n->arg[0].v, NULL);
    return r ? ref_view(im->g, r, n->op, n->arg, 0, n->out[0], meta) : NULL;
}

Ref *ref_of_result(Import *im, Scope *s, const NodeCall *c, Value *v, int which, const json_t *meta)
{
    int at;
    Ref *from = below(s, c, which, &at);
    bool listed = from && from != c->self;
    Value *in = listed ? c->arg[at].vs[which] : from ? c->arg[0].v : NULL;
    const Value *x = in ? lower_shown(im->g, in, im->err) : NULL, *y = x ? lower_shown(im->g, v, im->err) : NULL;
    bool shared = y && is_view_of(y, x);
    if (shared && listed && in == from->value && x == in) return view_by_views(im, from, in, v, meta);
    if (shared && c->op->flags & OPF_MAY_COPY) shared = shares(im, c, from->meta, in, meta, v);
    Ref *r = shared && !listed ? ref_view(im->g, from, c->op, c->arg, which, v, meta) : ref_root(im->g, v, meta);
    if (r) r->nnames = c->nnames;
    return r;
}
