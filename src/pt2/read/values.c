/* What a node takes and gives, by its names in the file. Contract in values.h. */
#include "pt2/read/values.h"
#include <math.h>
#include <string.h>
#include "lower/lower.h"

/* ------------------------------------------------------------------ arguments */

Slot *scope_want(Import *im, Scope *s, const char *name)
{
    Slot *slot = scope_find(s, name);
    if (!slot) fail(im->err, E_FORMAT, "'%s' is used but not defined before", name);
    return slot;
}

static bool tensor_named(Import *im, Scope *s, const json_t *v, Ref **ref, Value **out)
{
    const char *name;
    TRY(json_want_string(v, "name", &name, im->err));
    Slot *slot = scope_want(im, s, name);
    TRY(slot);
    if (slot->kind == SLOT_OTHER)
        return fail(im->err, E_UNSUPPORTED,
                    "'%s' is a result that is not computed here, as random state and debug results are not", name);
    if (slot->kind != SLOT_TENSOR) return fail(im->err, E_FORMAT, "'%s' is not a tensor", name);
    *ref = slot->ref;
    return (*out = ref_value(im->g, slot->ref, im->err)) != NULL;
}

/* {"as_name": "sym_size_int"} or {"as_int": 3}. */
static bool number_named(Import *im, Scope *s, const json_t *v, Expr **out)
{
    const char *tag;
    json_t *inner;
    TRY(json_want_union(v, &tag, &inner, im->err));
    if (strcmp(tag, "as_name")) return read_sym(im, v, out);
    if (!json_is_string(inner)) return fail(im->err, E_FORMAT, "found %s, expected a name", json_kind(inner));
    Slot *slot = scope_want(im, s, json_string_value(inner));
    TRY(slot);
    if (slot->kind != SLOT_NUMBER) return fail(im->err, E_FORMAT, "'%s' is not a number", json_string_value(inner));
    *out = slot->e;
    return true;
}

bool read_number(Import *im, const json_t *v, Expr **out)
{
    ExprPool *p = im->g->ex;
    if (json_is_integer(v)) *out = ex_int(p, json_integer_value(v));
    else if (json_is_real(v)) *out = ex_float(p, json_number_value(v));
    else if (json_is_boolean(v)) *out = ex_bool(p, json_is_true(v));
    else if (json_is_string(v)) { /* torch writes the odd floats as strings */ const char *t = json_string_value(v);
        if (!strcmp(t, "Infinity")) *out = ex_float(p, INFINITY);
        else if (!strcmp(t, "-Infinity")) *out = ex_float(p, -INFINITY);
        else if (!strcmp(t, "NaN")) *out = ex_float(p, NAN);
        else return fail(im->err, E_FORMAT, "found string '%.40s', expected a number", t);
    } else return fail(im->err, E_FORMAT, "found %s, expected a number", json_kind(v));
    return *out || oom(im->err);
}

static bool number_list(Import *im, Scope *s, const json_t *list, bool symbolic, bool to_float, Arg *out)
{
    if (!json_is_array(list)) return fail(im->err, E_FORMAT, "found %s, expected an array", json_kind(list));
    size_t n = json_array_size(list);
    *out = (Arg){.kind = ARG_EXPRS, .n = (int)n, .es = arena_array(im->g->arena, Expr *, n + 1)};
    if (!out->es) return oom(im->err);
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        TRY(symbolic ? number_named(im, s, v, &out->es[i]) : read_number(im, v, &out->es[i]));
        if (to_float && out->es[i]->kind == EX_INT) out->es[i] = ex_float(im->g->ex, (double)out->es[i]->i);
    }
    return true;
}

static bool tensor_list(Import *im, Scope *s, const json_t *list, Arg *out)
{
    if (!json_is_array(list)) return fail(im->err, E_FORMAT, "found %s, expected an array", json_kind(list));
    size_t n = json_array_size(list);
    *out = (Arg){.kind = ARG_VALUES, .n = (int)n, .vs = arena_array(im->g->arena, Value *, n + 1)};
    if (!out->vs) return oom(im->err);
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        const json_t *inner = json_object_get(v, "as_tensor");
        Ref *ref;
        if (json_object_get(v, "as_none")) continue;
        TRY(tensor_named(im, s, inner ? inner : v, &ref, &out->vs[i]));
    }
    return true;
}

bool read_arg(Import *im, Scope *s, const json_t *v, Arg *out, Ref **ref)
{
    const char *tag;
    json_t *inner;
    *out = arg_none();
    *ref = NULL;
    TRY(json_want_union(v, &tag, &inner, im->err));
    if (!strcmp(tag, "as_tensor")) {
        out->kind = ARG_VALUE;
        return tensor_named(im, s, inner, ref, &out->v);
    }
    if (!strcmp(tag, "as_optional_tensor")) return read_arg(im, s, inner, out, ref);
    if (!strcmp(tag, "as_tensors") || !strcmp(tag, "as_optional_tensors")) return tensor_list(im, s, inner, out);
    if (!strcmp(tag, "as_int") || !strcmp(tag, "as_float") || !strcmp(tag, "as_bool")) {
        out->kind = ARG_EXPR;
        TRY(read_number(im, inner, &out->e));
        if (tag[3] == 'f' && out->e->kind == EX_INT) out->e = ex_float(im->g->ex, (double)out->e->i);
        return true;
    }
    if (!strcmp(tag, "as_complex")) {
        const json_t *re = json_object_get(inner, "real"), *im_part = json_object_get(inner, "imag");
        if (!json_is_number(re) || !json_is_number(im_part))
            return fail(im->err, E_FORMAT, "a complex number without a number as its real or imaginary part");
        out->kind = ARG_VALUE;
        out->v = lower_complex_number(im->g, json_number_value(re), json_number_value(im_part), im->err);
        return out->v != NULL;
    }
    if (!strcmp(tag, "as_sym_int") || !strcmp(tag, "as_sym_float") || !strcmp(tag, "as_sym_bool")) {
        out->kind = ARG_EXPR;
        return number_named(im, s, inner, &out->e);
    }
    if (!strcmp(tag, "as_ints") || !strcmp(tag, "as_bools")) return number_list(im, s, inner, false, false, out);
    if (!strcmp(tag, "as_floats")) return number_list(im, s, inner, false, true, out);
    if (!strcmp(tag, "as_sym_ints") || !strcmp(tag, "as_sym_bools") || !strcmp(tag, "as_sym_floats"))
        return number_list(im, s, inner, true, false, out);
    if (!strcmp(tag, "as_string")) {
        if (!json_is_string(inner)) return fail(im->err, E_FORMAT, "found %s, expected a string", json_kind(inner));
        *out = arg_str(im->g, json_string_value(inner));
        return true;
    }
    if (!strcmp(tag, "as_scalar_type")) {
        *out = arg_dtype(dtype_from_pt2(json_integer_value(inner)));
        return out->kind == ARG_DTYPE ||
               fail(im->err, E_UNSUPPORTED, "dtype code %lld is not known", (long long)json_integer_value(inner));
    }
    if (!strcmp(tag, "as_none") || !strcmp(tag, "as_device") || !strcmp(tag, "as_layout") ||
        !strcmp(tag, "as_memory_format"))
        return true;
    return fail(im->err, E_UNSUPPORTED, "an argument of kind '%s'", tag);
}

/* ------------------------------------------------------------------ results */

int result_names(const json_t *outputs, const char **names, int cap)
{
    size_t i, k;
    json_t *out, *item;
    int n = 0;
    json_array_foreach(outputs, i, out)
    {
        const json_t *list = json_object_get(out, "as_tensors");
        const char *name = json_string_value(json_object_get(json_object_get(out, "as_tensor"), "name"));
        if (n < cap && (name || json_object_get(out, "as_none") || json_object_get(out, "as_optional_tensor")))
            names[n++] = name;
        json_array_foreach(list, k, item)
        {
            if (n < cap) names[n++] = json_string_value(json_object_get(item, "name"));
        }
    }
    return n;
}

const char *number_in(const json_t *out)
{
    static const char *const tags[] = {"as_sym_int", "as_sym_bool", "as_sym_float"};
    for (int i = 0; i < 3; i++) {
        const char *name = json_string_value(json_object_get(json_object_get(out, tags[i]), "as_name"));
        if (name) return name;
    }
    return NULL;
}

const char *number_name(const json_t *outputs) { return number_in(json_array_get(outputs, 0)); }

bool declared_number(Import *im, Scope *s, const char *name, Expr **out)
{
    const json_t *v = json_object_get(s->sym_int_values, name);
    if (!v) v = json_object_get(s->sym_bool_values, name);
    if (!v) v = json_object_get(s->sym_float_values, name);
    *out = NULL;
    return !v || read_sym(im, v, out) || within(im->err, "value of '%s'", name);
}

/* What the file declares for a result must not contradict what the op gives. */
static bool check_result(Import *im, Scope *s, const NodeCall *c, const char *name, const Value *v, const json_t **meta)
{
    DType t;
    int rank;
    Expr *dim[MAX_RANK];
    *meta = json_object_get(s->tensor_values, name);
    if (!*meta) return fail(im->err, E_FORMAT, "'%s' is not in tensor_values", name);
    TRY(read_meta(im, *meta, &t, &rank, dim) || within(im->err, "tensor_values: '%s'", name));
    if (im->watch) {
        im->watch->declared(im->watch->user, im->g, name, v, t, rank, dim);
        return true;
    }
    if (t != v->dtype && im->compute == DT_NONE && !c->other_dtype)
        return fail(im->err, E_FORMAT, "'%s' is declared as %s, but the op gives %s", name, dtype_name(t),
                    dtype_name(v->dtype));
    if (c->op->flags & OPF_MISDECLARED && rank == v->rank + 1 && ex_equals_int(dim[1], 1)) im->misdeclared = true;
    if (im->misdeclared) return true;
    if (rank != v->rank)
        return fail(im->err, E_FORMAT, "'%s' is declared with rank %d, but the op gives rank %d", name, rank, v->rank);
    for (int i = 0; i < rank; i++)
        if (dim[i] != v->dim[i] && ex_is_int(dim[i]) && ex_is_int(v->dim[i]))
            return fail(im->err, E_FORMAT, "'%s': size %d is declared as %lld, but the op gives %lld", name, i,
                        (long long)dim[i]->i, (long long)v->dim[i]->i);
    return true;
}

bool name_result(Import *im, Value *v, const char *name, int first_new_id)
{
    Value *other = graph_find_value(im->g, name);
    if (v->id < first_new_id || (other && other->id < first_new_id)) return true;
    return graph_rename(im->g, v, name, im->err);
}

bool take_result(Import *im, Scope *s, const NodeCall *c, const char *name, Value *v, int which)
{
    const json_t *meta;
    TRY(name_result(im, v, name, c->mark));
    TRY(check_result(im, s, c, name, v, &meta));
    Ref *r = ref_of_result(im, s, c, v, which, meta);
    return r ? scope_put(im, s, name, (Slot){.kind = SLOT_TENSOR, .ref = r}) : oom(im->err);
}
