/* What the names of an ONNX graph stand for: tensors, constants that may be sizes, lists. Contract in onnx_impl.h.
 *
 * A constant stays a Cell until somebody wants its tensor, so that shapes and axes leave no weights behind. Elements of
 * a Cell that are known as expressions (a shape that was put together) become a tensor only where an op wants one.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/number.h"
#include "facts/views.h"
#include "onnx/read/read_impl.h"
#include "shape/shape.h"

const char *plain_name(OnnxImport *im, const char *name)
{
    char *s = arena_strdup(im->scratch, *name ? name : "value");
    for (char *c = s; c && *c; c++)
        if (!is_alnum(*c)) *c = '_';
    while (s && *s == '_' && s[1]) s++; /* "/encoder/Add" -> "encoder_Add" */
    return s && is_digit(*s) ? arena_printf(im->scratch, "v%s", s) : s;
}

static Cell *new_cell(OnnxImport *im, const char *name)
{
    Cell *c = arena_new(im->scratch, Cell);
    if (!c) {
        oom(im->err);
        return NULL;
    }
    c->name = name;
    c->n = -1;
    return c;
}

Cell *cell_of_value(OnnxImport *im, const char *name, Value *v)
{
    Cell *c = new_cell(im, name);
    if (!c) return NULL;
    c->v = v;
    c->dtype = v->dtype;
    c->rank = v->rank;
    return c;
}

Cell *cell_of_tensor(OnnxImport *im, const char *name, const OnnxTensor *t, bool parameter)
{
    Cell *c = new_cell(im, name);
    if (!c) return NULL;
    c->data = &t->t;
    c->parameter = parameter;
    c->dtype = t->t.dtype;
    c->rank = t->t.rank;
    c->dim = t->t.shape;
    if (t->type == ONNX_STRING) {
        c->string = t->string;
        c->nstring = t->nstring;
    }
    return c;
}

Cell *cell_of_sizes(OnnxImport *im, const char *name, DType t, int rank, const int64_t *dim, int n, Expr *const *e)
{
    Cell *c = new_cell(im, name);
    if (!c) return NULL;
    int64_t *d = arena_array(im->g->arena, int64_t, rank + 1);
    c->e = arena_array(im->g->arena, Expr *, n + 1);
    if (!d || !c->e) {
        oom(im->err);
        return NULL;
    }
    for (int i = 0; i < rank; i++) d[i] = dim[i];
    for (int i = 0; i < n; i++) {
        c->e[i] = e[i];
        if (e[i]) continue;
        fail(im->err, E_LIMIT, "a size expression is too large");
        return NULL;
    }
    c->dim = d;
    c->rank = rank;
    c->dtype = t;
    c->n = n;
    return c;
}

Cell *cell_of_list(OnnxImport *im, const char *name, int n, Cell *const *list)
{
    Cell *c = new_cell(im, name);
    if (!c) return NULL;
    c->is_list = true;
    c->nlist = n;
    c->list = arena_array(im->scratch, Cell *, n + 1);
    if (!c->list) {
        oom(im->err);
        return NULL;
    }
    for (int i = 0; i < n; i++) c->list[i] = list[i];
    return c;
}

DType cell_dtype(const Cell *c) { return c->v ? c->v->dtype : c->dtype; }
int cell_rank(const Cell *c) { return c->v ? c->v->rank : c->rank; }

/* ------------------------------------------------------------------ elements */

static Expr *element(OnnxImport *im, const Tensor *t, int64_t i)
{
    if (dtype_is_float(t->dtype)) return ex_float(im->g->ex, tensor_get(t, i));
    if (t->dtype == DT_BOOL) return ex_bool(im->g->ex, tensor_get_i64(t, i) != 0);
    return ex_int(im->g->ex, tensor_get_i64(t, i));
}

bool cell_known(OnnxImport *im, Cell *c)
{
    if (c->n >= 0) return true;
    const Tensor *t = c->data                                                        ? c->data
                      : c->v && c->v->kind == V_WEIGHT && !graph_writes(im->g, c->v) ? c->v->data
                                                                                     : NULL;
    if (!t || t->dtype == DT_NONE || dtype_is_complex(t->dtype)) return false;
    int64_t n = tensor_numel(t);
    if (n > CELL_MAX) return false;
    c->e = arena_array(im->g->arena, Expr *, n + 1);
    if (!c->e) return false;
    for (int64_t i = 0; i < n; i++) TRY(c->e[i] = element(im, t, i));
    c->dtype = t->dtype;
    c->rank = t->rank;
    c->dim = t->shape;
    c->n = (int)n;
    return true;
}

Lower lower_for(OnnxImport *im, const char *name)
{
    return (Lower){.g = im->g, .ex = im->g->ex, .op = op_get(OP_reshape), .name = name, .err = im->err};
}

static Value *add_constant(OnnxImport *im, Cell *c, const Tensor *data)
{
    const char *fqn = arena_strdup(im->g->arena, *c->name ? c->name : "constant");
    Value *v = fqn ? graph_add_weight(im->g, plain_name(im, fqn), fqn, data) : NULL;
    if (!v) {
        oom(im->err);
        return NULL;
    }
    v->weight = c->parameter ? W_PARAMETER : c->data ? W_BUFFER : W_CONSTANT;
    v->persistent = c->data != NULL;
    return v;
}

/* The weight as the model had it, and what the file has as a view of it. */
static Value *transposed_constant(OnnxImport *im, Cell *c)
{
    Tensor *t = arena_new(im->g->arena, Tensor);
    if (!t) {
        oom(im->err);
        return NULL;
    }
    *t = *c->data;
    for (int i = 0; i < 2; i++) {
        t->shape[i] = c->data->shape[1 - i];
        t->stride[i] = c->data->stride[1 - i];
    }
    Value *v = add_constant(im, c, t);
    Lower L = lower_for(im, v ? arena_printf(im->g->arena, "%s_transposed", v->name) : c->name);
    return v && L.name ? lower_permute(&L, v, (int[]){1, 0}) : NULL;
}

bool cell_constant(const Cell *c)
{
    for (int i = 0; i < c->n; i++)
        if (!ex_is_const(c->e[i])) return false;
    return c->n >= 0;
}

static Value *constant_elements(OnnxImport *im, Cell *c)
{
    Tensor *t = arena_new(im->g->arena, Tensor);
    void *bytes = arena_alloc(im->g->arena, (size_t)c->n + 1, dtype_size(c->dtype));
    if (!t || !bytes) {
        oom(im->err);
        return NULL;
    }
    *t = tensor_of(c->dtype, c->rank, c->dim, bytes);
    for (int i = 0; i < c->n; i++) {
        char *at = (char *)bytes + (size_t)i * dtype_size(c->dtype);
        if (c->e[i]->kind == EX_FLOAT) store_f64(c->dtype, at, c->e[i]->f);
        else store_i64(c->dtype, at, c->e[i]->i);
    }
    return add_constant(im, c, t);
}

/* Elements that depend on sizes: one full each, joined. */
static Value *computed_elements(OnnxImport *im, Cell *c)
{
    Graph *g = im->g;
    Lower L = lower_for(im, plain_name(im, c->name));
    int64_t one = 1;
    Value **part = arena_array(g->arena, Value *, c->n + 1);
    if (!part) {
        oom(im->err);
        return NULL;
    }
    for (int i = 0; i < c->n; i++) {
        TRY_NULL(part[i] = AS(&L, full, arg_ints(g, 1, &one), arg_expr(c->e[i]), arg_dtype(c->dtype)));
    }
    Value *v = c->n == 1 ? part[0] : AS(&L, cat, arg_values(g, c->n, part), arg_int(g, 0));
    return v ? AS(&L, reshape, arg_value(v), arg_ints(g, c->rank, c->dim)) : NULL;
}

Value *cell_value(OnnxImport *im, Cell *c)
{
    if (c->v) return c->v;
    if (c->is_list) fail(im->err, E_UNSUPPORTED, "'%s' is a sequence, expected a tensor", c->name);
    else if (c->string || (c->data && c->data->dtype == DT_NONE))
        fail(im->err, E_UNSUPPORTED, "'%s' is a tensor of strings", c->name);
    else if (c->data) c->v = c->transposed ? transposed_constant(im, c) : add_constant(im, c, c->data);
    else c->v = cell_constant(c) ? constant_elements(im, c) : computed_elements(im, c);
    return c->v;
}

/* ------------------------------------------------------------------ what op functions read */

static const char *input_name(const OnnxOp *o, int i) { return i < o->node->ninput ? o->node->input[i] : ""; }

bool op_fail(OnnxOp *o, int i, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return fail(o->im->err, E_FORMAT, "input %d '%.100s': %s", i, input_name(o, i), what);
}

bool op_unsupported(OnnxOp *o, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return fail(o->im->err, E_UNSUPPORTED, "%s", what);
}

int op_ninputs(const OnnxOp *o)
{
    int n = o->node->ninput;
    while (n && !o->in[n - 1]) n--;
    return n;
}

bool op_has(const OnnxOp *o, int i) { return i < o->node->ninput && o->in[i]; }
bool op_wants(const OnnxOp *o, int i) { return i < o->node->noutput && *o->node->output[i]; }

bool op_optional(OnnxOp *o, int i, Value **out)
{
    *out = NULL;
    if (!op_has(o, i)) return true;
    *out = cell_value(o->im, o->in[i]);
    return *out || within(o->im->err, "input %d", i);
}

bool op_tensor(OnnxOp *o, int i, Value **out)
{
    TRY(op_optional(o, i, out));
    return *out || fail(o->im->err, E_FORMAT, "input %d is left out, %s needs it", i, o->node->op);
}

const Cell *op_known(OnnxOp *o, int i) { return op_has(o, i) && cell_known(o->im, o->in[i]) ? o->in[i] : NULL; }

static bool one_element(const Value *v)
{
    for (int i = 0; i < v->rank; i++)
        if (!ex_equals_int(v->dim[i], 1)) return false;
    return true;
}

static bool of_one_element(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_reshape && one_element(n->arg[0].v);
}

/* The number that v is another shape of: what is read twice is one size. */
static Value *source_number(const Value *v) { return value_below(v, of_one_element, NULL); }

enum { ID_TEXT = 16 };

static Expr *read_before(const OnnxOp *o, const Value *v)
{
    char id[ID_TEXT];
    snprintf(id, sizeof id, "%d", v->id);
    return map_get(&o->im->items, id);
}

static bool note_item(OnnxOp *o, const Value *v, Expr *e)
{
    char *id = arena_alloc(o->g->arena, ID_TEXT, 1);
    if (!id) return false;
    snprintf(id, ID_TEXT, "%d", v->id);
    return map_put(&o->im->items, id, e);
}

Value *op_item(OnnxOp *o, Value *v, int at, Expr **e)
{
    if (one_element(v)) v = source_number(v);
    if ((*e = read_before(o, v)) && one_element(v)) return v;
    if (v->rank && !one_element(v))
        TRY_NULL(v = AS(&o->L, select_int, arg_value(v), arg_int(o->g, 0), arg_int(o->g, at)));
    Arg arg[] = {arg_value(v)};
    Lower L = o->L;
    L.op = op_get(OP_item);
    L.arg = arg;
    if (!lower_op(&L)) return NULL;
    *e = L.result.e;
    if (note_item(o, v, *e)) return v;
    oom(o->im->err);
    return NULL;
}

bool op_sizes(OnnxOp *o, int i, int *n, Expr ***e)
{
    const Cell *c = op_known(o, i);
    if (c) {
        *n = c->n;
        *e = c->e;
        return true;
    }
    Value *v;
    TRY(op_tensor(o, i, &v));
    if (v->rank > 1 || (v->rank && (!ex_is_int(v->dim[0]) || v->dim[0]->i > CELL_MAX)))
        return fail(o->im->err, E_UNSUPPORTED,
                    "input %d '%s' is computed and its length is not fixed, expected a vector of known length; "
                    "give its value when loading",
                    i, input_name(o, i));
    Cell *known = o->in[i];
    int len = v->rank ? (int)v->dim[0]->i : 1;
    Expr **items = arena_array(o->g->arena, Expr *, len + 1);
    if (!items) return oom(o->im->err);
    for (int k = 0; k < len; k++)
        if (!op_item(o, v, k, &items[k])) return within(o->im->err, "input %d '%s'", i, input_name(o, i));
    int64_t *dim = arena_array(o->g->arena, int64_t, 1);
    if (!dim) return oom(o->im->err);
    dim[0] = len;
    known->dim = dim;
    known->rank = v->rank;
    known->n = len;
    known->e = items;
    *n = len;
    *e = items;
    return true;
}

bool op_const_ints(OnnxOp *o, int i, int *n, const int64_t **v)
{
    const Cell *c = op_known(o, i);
    if (!c) {
        if (!op_has(o, i)) return fail(o->im->err, E_FORMAT, "input %d is left out, %s needs it", i, o->node->op);
        return op_unsupported(
            o, "input %d '%s' decides what the graph looks like, but it is computed; give its value when loading", i,
            input_name(o, i));
    }
    int64_t *out = arena_array(o->g->arena, int64_t, c->n + 1);
    if (!out) return oom(o->im->err);
    for (int k = 0; k < c->n; k++) {
        if (!ex_is_const(c->e[k]) || c->e[k]->is_float)
            return op_unsupported(o, "input %d '%s' must be constant integers, but element %d depends on sizes", i,
                                  input_name(o, i), k);
        out[k] = c->e[k]->i;
    }
    *n = c->n;
    *v = out;
    return true;
}

/* ------------------------------------------------------------------ attributes */

static const OnnxAttr *attr_of(const OnnxNode *n, const OnnxFrame *f, const char *name)
{
    const OnnxAttr *a = onnx_attr(n, name);
    while (a && *a->ref && f) {
        const OnnxAttr *given = onnx_attr(f->call, a->ref);
        const OnnxFrame *outer = f->caller->frame;
        if (!given) {
            for (int i = 0; i < f->function->nattr_default; i++)
                if (!strcmp(f->function->attr_default[i].name, a->ref)) return &f->function->attr_default[i];
            return NULL;
        }
        a = given;
        f = outer;
    }
    return a && *a->ref ? NULL : a;
}

const OnnxAttr *op_attr(const OnnxOp *o, const char *name) { return attr_of(o->node, o->scope->frame, name); }

static const char *attr_type_name(OnnxAttrType t)
{
    static const char *const names[] = {"nothing", "a float",         "an integer",     "a string", "a tensor",
                                        "a graph", "floats",          "integers",       "strings",  "tensors",
                                        "graphs",  "a sparse tensor", "sparse tensors", "a type",   "types"};
    return (unsigned)t < sizeof names / sizeof *names ? names[t] : "an unknown kind";
}

static bool wrong_attr(OnnxOp *o, const OnnxAttr *a, OnnxAttrType want)
{
    return fail(o->im->err, E_FORMAT, "attribute '%s' is %s, expected %s", a->name, attr_type_name(a->type),
                attr_type_name(want));
}

bool op_attr_int(OnnxOp *o, const char *name, int64_t otherwise, int64_t *out)
{
    const OnnxAttr *a = op_attr(o, name);
    *out = a ? a->i : otherwise;
    return !a || a->type == ONNX_ATTR_INT || wrong_attr(o, a, ONNX_ATTR_INT);
}

bool op_attr_float(OnnxOp *o, const char *name, double otherwise, double *out)
{
    const OnnxAttr *a = op_attr(o, name);
    *out = a ? (double)a->f : otherwise;
    return !a || a->type == ONNX_ATTR_FLOAT || wrong_attr(o, a, ONNX_ATTR_FLOAT);
}

bool op_attr_ints(OnnxOp *o, const char *name, const int64_t **v, int *n)
{
    const OnnxAttr *a = op_attr(o, name);
    static const int64_t none[1];
    *v = a ? a->n ? a->ints : none : NULL;
    *n = a ? a->n : 0;
    return !a || a->type == ONNX_ATTR_INTS || (a->n == 0 && a->type == ONNX_ATTR_UNDEFINED) ||
           wrong_attr(o, a, ONNX_ATTR_INTS);
}

bool op_attr_sizes(OnnxOp *o, const char *name, int n, int64_t otherwise, int64_t least, int64_t *out)
{
    const int64_t *given;
    int count;
    TRY(op_attr_ints(o, name, &given, &count));
    if (given && count != n)
        return fail(o->im->err, E_FORMAT, "attribute '%s' has %d values, expected %d", name, count, n);
    for (int i = 0; i < n; i++) {
        out[i] = given ? given[i] : otherwise;
        if (out[i] < least || out[i] > MAX_WINDOW)
            return fail(o->im->err, E_FORMAT, "attribute '%s' has %lld, expected %lld to %d", name, (long long)out[i],
                        (long long)least, MAX_WINDOW);
    }
    return true;
}

bool op_attr_string(OnnxOp *o, const char *name, const char *otherwise, const char **out)
{
    const OnnxAttr *a = op_attr(o, name);
    *out = a ? a->s : otherwise;
    return !a || a->type == ONNX_ATTR_STRING || wrong_attr(o, a, ONNX_ATTR_STRING);
}

bool op_attr_dtype(OnnxOp *o, const char *name, DType otherwise, DType *out)
{
    const OnnxAttr *a = op_attr(o, name);
    *out = otherwise;
    if (!a) return true;
    if (a->type != ONNX_ATTR_INT) return wrong_attr(o, a, ONNX_ATTR_INT);
    *out = dtype_from_onnx(a->i >= 0 && a->i < ONNX_TYPE_COUNT ? (int)a->i : 0);
    return *out != DT_NONE || op_unsupported(o, "attribute '%s' asks for dtype %s", name,
                                             onnx_type_name(a->i >= 0 && a->i < ONNX_TYPE_COUNT ? (int)a->i : -1));
}

bool op_axis(OnnxOp *o, const char *what, int64_t axis, int rank, int *out)
{
    int n = rank ? rank : 1;
    if (axis < -n || axis >= n)
        return fail(o->im->err, E_FORMAT, "%s %lld is out of range for rank %d (allowed %d to %d)", what,
                    (long long)axis, rank, -n, n - 1);
    *out = (int)(axis < 0 ? axis + n : axis);
    return true;
}

bool op_axes(OnnxOp *o, int64_t moved, int i, int rank, int *n, int *axis)
{
    const int64_t *v = NULL;
    bool seen[MAX_RANK] = {false};
    *n = -1;
    if (o->opset >= moved) {
        if (!op_has(o, i)) return true;
        TRY(op_const_ints(o, i, n, &v));
    } else {
        TRY(op_attr_ints(o, "axes", &v, n));
        if (!v) *n = -1;
    }
    if (*n > MAX_RANK) return fail(o->im->err, E_FORMAT, "axes: %d of them, at most %d are possible", *n, MAX_RANK);
    for (int k = 0; k < *n; k++) {
        TRY(op_axis(o, "axis", v[k], rank, &axis[k]));
        if (seen[axis[k]]) return fail(o->im->err, E_FORMAT, "axis %d is given twice", axis[k]);
        seen[axis[k]] = true;
    }
    return true;
}

bool op_new_axes(OnnxOp *o, int rank, int *n, int *axis)
{
    const int64_t *v;
    if (o->opset >= 13) TRY(op_const_ints(o, 1, n, &v));
    else TRY(op_attr_ints(o, "axes", &v, n));
    if (*n > MAX_RANK - rank)
        return fail(o->im->err, E_UNSUPPORTED, "rank %d: at most %d is supported", rank + *n, MAX_RANK);
    return op_axes(o, 13, 1, rank + *n, n, axis);
}

/* ------------------------------------------------------------------ results */

bool op_return_cell(OnnxOp *o, int k, Cell *c)
{
    if (!c) return o->im->err->code == E_OK ? oom(o->im->err) : false;
    if (k < o->node->noutput) o->out[k] = c;
    return true;
}

bool op_return(OnnxOp *o, int k, Value *v)
{
    if (!v) return o->im->err->code == E_OK ? fail(o->im->err, E_FORMAT, "output %d has no value", k) : false;
    return op_return_cell(o, k, cell_of_value(o->im, k < o->node->noutput ? o->node->output[k] : "", v));
}

bool op_return_sizes(OnnxOp *o, int k, DType t, int rank, const int64_t *dim, int n, Expr *const *e)
{
    return op_return_cell(o, k,
                          cell_of_sizes(o->im, k < o->node->noutput ? o->node->output[k] : "", t, rank, dim, n, e));
}

Value *op_number(OnnxOp *o, DType t, double v)
{
    return AS(&o->L, full, arg_ints(o->g, 0, NULL), dtype_is_float(t) ? arg_float(o->g, v) : arg_int(o->g, (int64_t)v),
              arg_dtype(t));
}
