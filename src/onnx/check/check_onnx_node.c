/* One ONNX node against its op's schema, or against the local function that it calls: does the op exist in this
 * opset, how many inputs and outputs, which attributes of which kind, and values that the specification limits. */
#include <math.h>
#include <string.h>
#include "onnx/check/check_onnx_impl.h"

int64_t records_version(const OnnxOpset *o, int n, const char *domain)
{
    int64_t v = -1;
    for (int i = 0; i < n; i++)
        if (!strcmp(o[i].domain, domain)) v = o[i].version;
    return v;
}

const char *records_function_key(Records *r, const char *domain, const char *name, const char *overload)
{
    const char *key = arena_printf(r->c->arena, "%s:%s:%s", domain, name, overload);
    r->c->failed |= !key;
    return key ? key : "";
}

const OnnxFunction *records_function(Records *r, const OnnxNode *n)
{
    return r->functions.count ? map_get(&r->functions, records_function_key(r, n->domain, n->op, n->overload)) : NULL;
}

static char kind_letter(OnnxAttrType t)
{
    static const char letters[] = {0, 'f', 'i', 's', 't', 'g', 'F', 'I', 'S', 'T', 'G', 'p', 'P', 'y', 'Y'};
    return (size_t)t < sizeof letters ? letters[t] : 0;
}

static const char *letter_name(char k)
{
    switch (k) {
    case 'f': return "a float";
    case 'i': return "an integer";
    case 's': return "a string";
    case 't': return "a tensor";
    case 'g': return "a graph";
    case 'F': return "floats";
    case 'I': return "integers";
    case 'S': return "strings";
    default: return "something else";
    }
}

void records_attr_names(Records *r, const Scope *s, const OnnxNode *n, const char *place)
{
    for (int i = 0; i < n->nattr; i++) {
        const OnnxAttr *a = &n->attr[i];
        if (!*a->name) check_add(r->c, Q(112), place, "attribute %d has no name", i);
        for (int k = 0; k < i && i < 64; k++)
            if (!strcmp(n->attr[k].name, a->name)) {
                check_add(r->c, Q(106), place, "attribute '%.100s' is given twice", a->name);
                break;
            }
        if (!*a->ref) continue;
        bool known = false;
        for (int k = 0; s->function && k < s->function->nattr; k++) known |= !strcmp(s->function->attr[k], a->ref);
        for (int k = 0; s->function && k < s->function->nattr_default; k++)
            known |= !strcmp(s->function->attr_default[k].name, a->ref);
        if (!known)
            check_add(r->c, Q(114), place, "attribute '%.100s' refers to '%.100s', which %s", a->name, a->ref,
                      s->function ? "the function does not have" : "only a function could have");
    }
}

static void check_schema_attrs(Records *r, const OnnxNode *n, const OnnxSchema *schema, const char *place)
{
    bool required;
    for (int i = 0; i < n->nattr; i++) {
        const OnnxAttr *a = &n->attr[i];
        char want = onnx_schema_attr(schema, a->name, &required), have = kind_letter(a->type);
        bool any = false;
        if (!want) any = onnx_schema_attr(schema, "*", &required) != 0;
        if (!want && !any && strncmp(a->name, "__", 2))
            check_add(r->c, Q(104), place, "%s of version %d has no attribute '%.100s'", n->op, schema->since, a->name);
        else if (want && have != want && !*a->ref)
            check_add(r->c, Q(105), place, "attribute '%.100s' is %s, %s wants %s", a->name, letter_name(have), n->op,
                      letter_name(want));
    }
    char name[64], kind;
    for (int i = 0; onnx_schema_attr_at(schema, i, name, &kind, &required); i++)
        if (required && !onnx_attr(n, name)) check_add(r->c, Q(103), place, "%s needs the attribute '%s'", n->op, name);
}

static void check_arity(Records *r, const OnnxNode *n, const OnnxSchema *schema, const char *place)
{
    if (n->ninput < schema->min_in || n->ninput > schema->max_in)
        check_add(r->c, Q(107), place, "%d inputs; %s takes %s%d", n->ninput, n->op,
                  n->ninput < schema->min_in ? "at least " : "at most ",
                  n->ninput < schema->min_in ? schema->min_in : schema->max_in);
    if (n->noutput < schema->min_out || n->noutput > schema->max_out)
        check_add(r->c, Q(107), place, "%d outputs; %s gives %s%d", n->noutput, n->op,
                  n->noutput < schema->min_out ? "at least " : "at most ",
                  n->noutput < schema->min_out ? schema->min_out : schema->max_out);
    OnnxParam p;
    for (int i = 0; i < n->ninput; i++)
        if (!*n->input[i] && onnx_param(schema->in, i, &p) && p.option == ' ')
            check_add(r->c, Q(103), place, "input %d is left out, and %s needs it", i, n->op);
    for (int i = 0; i < n->noutput; i++)
        if (!*n->output[i] && onnx_param(schema->out, i, &p) && p.option == ' ')
            check_add(r->c, Q(103), place, "output %d is left out, and %s always gives it", i, n->op);
}

static double attr_number(const OnnxNode *n, const char *name, double otherwise)
{
    const OnnxAttr *a = onnx_attr(n, name);
    return a && !*a->ref ? a->type == ONNX_ATTR_INT ? (double)a->i : (double)a->f : otherwise;
}

/* Values of attributes that the specification limits, of the ops around attention. */
static void check_values(Records *r, const OnnxNode *n, const char *place)
{
    static const char *const above_zero[] = {"num_heads", "q_num_heads", "kv_num_heads"};
    for (int i = 0; i < 3; i++) {
        double v = attr_number(n, above_zero[i], 1);
        if (!(v >= (strcmp(n->op, "RotaryEmbedding") ? 1 : 0)) || v > 1 << 20)
            check_add(r->c, Q(120), place, "%s is %g", above_zero[i], v);
    }
    if (strcmp(n->op, "Attention") || *n->domain) return;
    double scale = attr_number(n, "scale", 1), cap = attr_number(n, "softcap", 0),
           mode = attr_number(n, "qk_matmul_output_mode", 0), precision = attr_number(n, "softmax_precision", 1);
    if (!isfinite(scale)) check_add(r->c, Q(120), place, "scale is %g", scale);
    if (!(cap >= 0) || !isfinite(cap)) check_add(r->c, Q(120), place, "softcap is %g", cap);
    if (mode < 0 || mode > 3) check_add(r->c, Q(120), place, "qk_matmul_output_mode is %g", mode);
    if (precision != ONNX_FLOAT && precision != ONNX_FLOAT16 && precision != ONNX_DOUBLE && precision != ONNX_BFLOAT16)
        check_add(r->c, Q(120), place, "softmax_precision is %g", precision);
}

/* NULL when there is no schema; the reason was reported. */
const OnnxSchema *records_op(Records *r, const Scope *s, const OnnxNode *n, const char *place, int64_t *opset)
{
    static const char *const old[] = {"ATen",
                                      "Affine",
                                      "ConstantFill",
                                      "Crop",
                                      "DynamicSlice",
                                      "GRUUnit",
                                      "GivenTensorFill",
                                      "ImageScaler",
                                      "ParametricSoftplus",
                                      "Scale",
                                      "ScaledTanh"};
    int later;
    *opset = records_version(s->opset, s->nopset, n->domain);
    if (*opset < 0) {
        check_add(r->c, Q(121), place, "opset_import has no version for domain '%.100s'",
                  *n->domain ? n->domain : "ai.onnx");
        return NULL;
    }
    const OnnxSchema *schema = onnx_schema(&r->schemas, n->domain, n->op, *opset, &later);
    bool standard = !*n->domain || !strcmp(n->domain, "ai.onnx.ml") || !strcmp(n->domain, "ai.onnx.training");
    for (size_t i = 0; !*n->domain && i < sizeof old / sizeof *old; i++)
        if (!strcmp(n->op, old[i])) standard = false;
    if (schema && schema->deprecated) {
        check_add(r->c, Q(124), place, "%s is deprecated since opset %d, the file imports %lld", n->op, schema->since,
                  (long long)*opset);
        return NULL;
    }
    if (!schema && later && standard)
        check_add(r->c, Q(125), place, "%s exists since opset %d, the file imports %lld", n->op, later,
                  (long long)*opset);
    else if (!schema && standard)
        check_add(r->c, Q(101), place, "'%.100s' is not an op of %s", n->op, *n->domain ? n->domain : "ai.onnx");
    else if (!schema) check_add(r->c, Q(102), place, "%.100s::%.100s is in no table here", n->domain, n->op);
    return schema;
}

void records_call(Records *r, const OnnxNode *n, const OnnxFunction *f, const char *place)
{
    if (n->ninput > f->ninput || n->noutput > f->noutput)
        check_add(r->c, Q(107), place, "%d inputs and %d outputs; function '%.100s' has %d and %d", n->ninput,
                  n->noutput, f->name, f->ninput, f->noutput);
    for (int i = 0; i < n->nattr; i++) {
        bool known = false;
        for (int k = 0; k < f->nattr; k++) known |= !strcmp(f->attr[k], n->attr[i].name);
        for (int k = 0; k < f->nattr_default; k++) known |= !strcmp(f->attr_default[k].name, n->attr[i].name);
        if (!known)
            check_add(r->c, Q(104), place, "function '%.100s' has no attribute '%.100s'", f->name, n->attr[i].name);
    }
    for (int k = 0; k < f->nattr; k++)
        if (!onnx_attr(n, f->attr[k]))
            check_add(r->c, Q(103), place, "function '%.100s' needs the attribute '%.100s'", f->name, f->attr[k]);
}

void records_schema(Records *r, const OnnxNode *n, const OnnxSchema *schema, const char *place)
{
    check_arity(r, n, schema, place);
    check_schema_attrs(r, n, schema, place);
    check_values(r, n, place);
}
