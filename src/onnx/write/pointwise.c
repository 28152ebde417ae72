/* Pointwise rows in ONNX's words. What ONNX lacks is written out; half types are then worked on in float32, as
 * PyTorch's kernels do.
 *
 *     aten.silu(x)   ->  Mul(x, Sigmoid(x))
 */
#include <math.h>
#include <string.h>
#include "onnx/write/write_impl.h"

Ref widened(Onnx *o, Ref x) { return x.t == DT_F16 || x.t == DT_BF16 ? cast(o, x, DT_F32) : x; }
static Ref in_wide(Onnx *o, const Node *n, int i) { return widened(o, arg_ref(o, n, i)); }

static Ref add(Onnx *o, Ref a, Ref b) { return bin(o, "Add", a, b); }
static Ref sub(Onnx *o, Ref a, Ref b) { return bin(o, "Sub", a, b); }
static Ref mul(Onnx *o, Ref a, Ref b) { return bin(o, "Mul", a, b); }
static Ref quotient(Onnx *o, Ref a, Ref b) { return bin(o, "Div", a, b); }
static Ref scaled(Onnx *o, Ref a, double f) { return f == 1 ? a : mul(o, a, like(o, a, f)); }
static Ref compare(Onnx *o, const char *op, Ref a, Ref b) { return NODE(o, op, DT_BOOL, a, b); }
static Ref is(Onnx *o, Ref a, double v) { return compare(o, "Equal", a, like(o, a, v)); }
static Ref less(Onnx *o, Ref a, double v) { return compare(o, "Less", a, like(o, a, v)); }
static Ref both(Onnx *o, Ref a, Ref b) { return compare(o, "And", a, b); }
Ref is_nan(Onnx *o, Ref x) { return dtype_is_float(x.t) ? NODE(o, "IsNaN", DT_BOOL, x) : compare(o, "Less", x, x); }
static Ref truth(Onnx *o, Ref x) { return x.t == DT_BOOL ? x : negated(o, is(o, x, 0)); }

/* ------------------------------------------------------------------ one operand */

void out_unary(Onnx *o, const Node *n, const char *op) { give(o, n, 0, un(o, op, arg_ref(o, n, 0))); }

void out_abs(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    bool folded = o->opt.profile == ONNX_FOR_OPENVINO &&
                  dtype_is_int(x.t); /* its constant folding goes wrong on Abs of integers */
    give(o, n, 0, folded ? bin(o, "Max", x, un(o, "Neg", x)) : un(o, "Abs", x));
}

/* NaN has the sign 0. */
void out_sign(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    if (!dtype_is_float(x.t)) give(o, n, 0, un(o, "Sign", x));
    else give(o, n, 0, sub(o, cast(o, compare(o, "Greater", x, like(o, x, 0)), x.t), cast(o, less(o, x, 0), x.t)));
}

void out_square(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    give(o, n, 0, mul(o, x, x));
}

Ref truncated(Onnx *o, Ref x) { return where(o, less(o, x, 0), un(o, "Ceil", x), un(o, "Floor", x)); }

/* 2 tanh(x/2) / (1 - tanh(x/2)) keeps its digits near 0 */
Ref expm1_of(Onnx *o, Ref x)
{
    Ref t = un(o, "Tanh", scaled(o, x, 0.5)), near = quotient(o, scaled(o, t, 2), sub(o, like(o, x, 1), t));
    return where(o, less(o, un(o, "Abs", x), 1), near, sub(o, un(o, "Exp", x), like(o, x, 1)));
}

/* log(u) x / (u - 1) with u = 1 + x, as rounded */
Ref log1p_of(Onnx *o, Ref x)
{
    Ref u = add(o, x, like(o, x, 1)), d = sub(o, u, like(o, x, 1)), log = un(o, "Log", u);
    Ref near = where(o, is(o, d, 0), x, quotient(o, mul(o, log, x), d));
    return where(o, less(o, un(o, "Abs", x), 0.5), near, log);
}

/* max(x, 0) + log1p(exp(-|x|)) */
static Ref softplus_of_double(Onnx *o, Ref x)
{
    return add(o, bin(o, "Max", x, like(o, x, 0)), log1p_of(o, un(o, "Exp", un(o, "Neg", un(o, "Abs", x)))));
}

Ref softplus_of(Onnx *o, Ref x) { return x.t == DT_F64 ? softplus_of_double(o, x) : un(o, "Softplus", x); }

static Ref sigmoid_by_six(Onnx *o, Ref x)
{
    Ref y = bin(o, "Min", bin(o, "Max", add(o, x, like(o, x, 3)), like(o, x, 0)), like(o, x, 6));
    return quotient(o, y, like(o, x, 6));
}

static Ref sign_bit(Onnx *o, Ref x)
{
    if (!dtype_is_float(x.t)) return less(o, x, 0);
    return where(o, is(o, x, 0), less(o, un(o, "Reciprocal", x), 0), less(o, x, 0));
}

static Ref normal_cdf(Onnx *o, Ref x)
{
    return scaled(o, add(o, un(o, "Erf", scaled(o, x, 0.70710678118654752440)), like(o, x, 1)), 0.5);
}

void out_expm1(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0);
    give(o, n, 0, expm1_of(o, x));
}

/* c[0] x^(n-1) + ... + c[n-1] */
static Ref polynomial(Onnx *o, Ref x, int n, const double *c)
{
    Ref y = like(o, x, c[0]);
    for (int i = 1; i < n; i++) y = add(o, mul(o, y, x), like(o, x, c[i]));
    return y;
}

#define POLYNOMIAL(o, x, c) polynomial((o), (x), (int)(sizeof(c) / sizeof *(c)), (c))

/* M. Giles, Approximating the erfinv function: x times a polynomial of w = -log(1 - x^2), of its root further out. */
static Ref erfinv_f32(Onnx *o, Ref w)
{
    static const double near[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                  -0.00125372503, -0.00417768164, 0.246640727,    1.50140941},
                        far[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                 -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
    Ref root = un(o, "Sqrt", w);
    return where(o, less(o, w, 5), POLYNOMIAL(o, sub(o, w, like(o, w, 2.5)), near),
                 POLYNOMIAL(o, sub(o, root, like(o, w, 3)), far));
}

static Ref erfinv_f64(Onnx *o, Ref w)
{
    static const double near[] = {
        -3.6444120640178196996e-21, -1.685059138182016589e-19,  1.2858480715256400167e-18,  1.115787767802518096e-17,
        -1.333171662854620906e-16,  2.0972767875968561637e-17,  6.6376381343583238325e-15,  -4.0545662729752068639e-14,
        -8.1519341976054721522e-14, 2.6335093153082322977e-12,  -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
        -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352,   -0.00074070253416626697512,
        -0.0060336708714301490533,  0.24015818242558961693,     1.6536545626831027356};
    static const double far[] = {
        2.2137376921775787049e-09, 9.0756561938885390979e-08,  -2.7517406297064545428e-07, 1.8239629214389227755e-08,
        1.5027403968909827627e-06, -4.013867526981545969e-06,  2.9234449089955446044e-06,  1.2475304481671778723e-05,
        -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05,  -0.0003550375203628474796,
        0.00095328937973738049703, -0.0016882755560235047313,  0.0024914420961078508066,   -0.0037512085075692412107,
        0.005370914553590063617,   1.0052589676941592334,      3.0838856104922207635};
    static const double farther[] = {
        -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
        7.6157012080783393804e-09,  -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
        2.2900482228026654717e-07,  -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
        7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
        4.8499064014085844221};
    Ref root = un(o, "Sqrt", w), y = where(o, less(o, w, 16), POLYNOMIAL(o, sub(o, root, like(o, w, 3.25)), far),
                                           POLYNOMIAL(o, sub(o, root, like(o, w, 5)), farther));
    return where(o, less(o, w, 6.25), POLYNOMIAL(o, sub(o, w, like(o, w, 3.125)), near), y);
}

void out_erfinv(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0), one = like(o, x, 1);
    Ref w = un(o, "Neg", un(o, "Log", mul(o, sub(o, one, x), add(o, one, x))));
    Ref y = x.t == DT_F64 ? erfinv_f64(o, w) : erfinv_f32(o, w);
    give(o, n, 0, mul(o, x, where(o, is(o, un(o, "Abs", x), 1), like(o, x, INFINITY), y)));
}

void out_log1p(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0);
    give(o, n, 0, log1p_of(o, x));
}

void out_trunc(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0);
    give(o, n, 0, truncated(o, x));
}

void out_log_sigmoid(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0);
    give(o, n, 0, un(o, "Neg", softplus_of_double(o, un(o, "Neg", x))));
}

void out_hardswish(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0);
    give(o, n, 0, x.t == DT_F64 || o->opt.opset < 14 ? mul(o, x, sigmoid_by_six(o, x)) : un(o, "HardSwish", x));
}

void out_gelu(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    bool tanh_form = !strcmp(arg_s(n, 1, "none"), "tanh");
    if (o->opt.opset >= 20 && x.t != DT_F64) {
        if (tanh_form) attr_str(o, "approximate", "tanh");
        give(o, n, 0, un(o, "Gelu", x));
        return;
    }
    x = widened(o, x); /* in the forms that ONNX Runtime fuses */
    if (!tanh_form) {
        Ref y = un(o, "Erf", quotient(o, x, like(o, x, 1.41421356237309504880)));
        give(o, n, 0, scaled(o, mul(o, x, add(o, y, like(o, x, 1))), 0.5));
        return;
    }
    bool scalar = !arg_v(n, 0)->rank; /* whose fused op takes no scalar */
    if (scalar) x = flat(o, x);
    Ref cube = bin(o, "Pow", x, like(o, x, 3)),
        inner = scaled(o, add(o, x, scaled(o, cube, 0.044715)), 0.79788456080286535588);
    Ref y = mul(o, scaled(o, x, 0.5), add(o, un(o, "Tanh", inner), like(o, x, 1)));
    give(o, n, 0, scalar ? squeeze(o, y, 0) : y);
}

void out_round_decimals(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0);
    int64_t d = arg_i(o, n, 1, 0);
    Ref ten = like(o, x, pow(10, fabs((double)d)));
    Ref y = un(o, "Round", d < 0 ? quotient(o, x, ten) : mul(o, x, ten));
    give(o, n, 0, d < 0 ? mul(o, y, ten) : quotient(o, y, ten));
}

/* Those whose numbers a run computes, which attributes do not hold. */
static Ref shaped_by_data(Onnx *o, const Node *n, const char *text, Ref x)
{
    Ref p[4] = {none()};
    for (int i = 1; i < n->op->schema->nparams; i++) p[i] = operand(o, n, i, x.t);
    if (!strcmp(text, "softplus")) {
        Ref z = mul(o, x, p[1]);
        return where(o, compare(o, "Greater", z, p[2]), x, quotient(o, softplus_of(o, z), p[1]));
    }
    Ref above = compare(o, "Greater", x, like(o, x, 0));
    if (!strcmp(text, "leaky_relu")) return where(o, above, x, mul(o, x, p[1]));
    if (!strcmp(text, "elu"))
        return where(o, above, mul(o, x, p[2]), mul(o, mul(o, expm1_of(o, mul(o, x, p[3])), p[1]), p[2]));
    if (!strcmp(text, "hardshrink"))
        return where(o, compare(o, "LessOrEqual", un(o, "Abs", x), p[1]), like(o, x, 0), x);
    Ref up = compare(o, "Greater", x, p[1]), down = compare(o, "Less", x, un(o, "Neg", p[1]));
    return where(o, up, sub(o, x, p[1]), where(o, down, add(o, x, p[1]), mul(o, x, like(o, x, 0))));
}

static bool has_numbers(const Node *n)
{
    bool all = true;
    for (int i = 1; i < n->op->schema->nparams; i++) all = all && ex_is_const(n->arg[i].e);
    return all;
}

/* Rows with numbers beside the operand. */
void out_shaped(Onnx *o, const Node *n, const char *text)
{
    Ref x = in_wide(o, n, 0), y = none();
    if (!has_numbers(n)) {
        give(o, n, 0, shaped_by_data(o, n, text, x));
        return;
    }
    double a = arg_f(o, n, 1, 0), b = n->op->schema->nparams > 2 ? arg_f(o, n, 2, 0) : 0,
           c = n->op->schema->nparams > 3 ? arg_f(o, n, 3, 0) : 0;
    if (!strcmp(text, "softplus")) {
        Ref z = scaled(o, x, a), s = softplus_of(o, z);
        y = where(o, compare(o, "Greater", z, like(o, z, b)), x, a == 1 ? s : quotient(o, s, like(o, s, a)));
    } else if (!strcmp(text, "leaky_relu")) {
        if (x.t != DT_F64) attr_float(o, "alpha", a);
        y = x.t == DT_F64 ? where(o, compare(o, "Greater", x, like(o, x, 0)), x, scaled(o, x, a))
                          : un(o, "LeakyRelu", x);
    } else if (!strcmp(text, "elu")) {
        if (b == 1 && c == 1 && x.t != DT_F64) {
            attr_float(o, "alpha", a);
            y = un(o, "Elu", x);
        } else {
            y = where(o, compare(o, "Greater", x, like(o, x, 0)), scaled(o, x, b),
                      scaled(o, expm1_of(o, scaled(o, x, c)), a * b));
        }
    } else if (!strcmp(text, "hardshrink")) {
        y = where(o,
                  both(o, compare(o, "GreaterOrEqual", x, like(o, x, -a)), compare(o, "LessOrEqual", x, like(o, x, a))),
                  like(o, x, 0), x);
    } else if (!strcmp(text, "softshrink")) {
        Ref up = compare(o, "Greater", x, like(o, x, a)), down = less(o, x, -a);
        y = where(o, up, sub(o, x, like(o, x, a)), where(o, down, add(o, x, like(o, x, a)), mul(o, x, like(o, x, 0))));
    }
    give(o, n, 0, y);
}

void out_threshold(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    give(o, n, 0, where(o, compare(o, "LessOrEqual", x, operand(o, n, 1, x.t)), operand(o, n, 2, x.t), x));
}

void out_nan_to_num(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    if (!dtype_is_float(x.t)) {
        give(o, n, 0, x);
        return;
    }
    Ref y = where(o, is_nan(o, x), like(o, x, arg_f(o, n, 1, 0)), x);
    y = where(o, is(o, x, INFINITY), like(o, x, arg_f(o, n, 2, dtype_highest(x.t))), y);
    give(o, n, 0, where(o, is(o, x, -INFINITY), like(o, x, arg_f(o, n, 3, dtype_lowest(x.t))), y));
}

/* ------------------------------------------------------------------ truth of one */

void out_truth(Onnx *o, const Node *n, const char *text)
{
    Ref x = arg_ref(o, n, 0), y = none();
    bool real = dtype_is_float(x.t);
    if (!strcmp(text, "not")) y = x.t == DT_BOOL ? negated(o, x) : is(o, x, 0);
    else if (!strcmp(text, "signbit")) y = x.t == DT_BOOL ? both(o, x, negated(o, x)) : sign_bit(o, x);
    else if (!strcmp(text, "isfinite")) y = real ? less(o, un(o, "Abs", x), INFINITY) : compare(o, "Equal", x, x);
    else if (!real) y = negated(o, compare(o, "Equal", x, x));
    else if (!strcmp(text, "isnan")) y = is_nan(o, x);
    else if (!strcmp(text, "isinf")) y = is(o, un(o, "Abs", x), INFINITY);
    else y = is(o, x, !strcmp(text, "isneginf") ? -INFINITY : INFINITY);
    give(o, n, 0, y);
}

/* ------------------------------------------------------------------ two operands */

static void operands(Onnx *o, const Node *n, DType t, Ref *a, Ref *b)
{
    *a = operand(o, n, 0, t);
    *b = operand(o, n, 1, t);
}

/* a (op) b in the result's dtype. */
void out_binary(Onnx *o, const Node *n, const char *op)
{
    Ref a, b;
    int alpha = op_param(n->op, "alpha");
    operands(o, n, n->out[0]->dtype, &a, &b);
    if (alpha >= 0 && arg_f(o, n, alpha, 1) != 1) b = mul(o, b, operand(o, n, alpha, b.t));
    give(o, n, 0, bin(o, op, a, b));
}

static DType compared_in(const Node *n)
{
    for (int i = 0; i < 2; i++)
        if (n->arg[i].kind == ARG_VALUE) return n->arg[i].v->dtype;
    return n->arg[0].e->is_float || n->arg[1].e->is_float ? DT_F32 : DT_I64;
}

void out_compare(Onnx *o, const Node *n, const char *op)
{
    Ref a, b;
    operands(o, n, compared_in(n), &a, &b);
    give(o, n, 0, strcmp(op, "NotEqual") ? compare(o, op, a, b) : negated(o, compare(o, "Equal", a, b)));
}

void out_logical(Onnx *o, const Node *n, const char *op)
{
    Ref a, b;
    operands(o, n, compared_in(n), &a, &b);
    give(o, n, 0, compare(o, op, truth(o, a), truth(o, b)));
}

/* The sign of a. Integers as they are: runtimes work out fmod of them in floats. */
static Ref float_mod(Onnx *o, Ref a, Ref b)
{
    if (!dtype_is_float(a.t)) return sub(o, a, mul(o, b, quotient(o, a, b)));
    attr_int(o, "fmod", 1);
    return bin(o, "Mod", a, b);
}

static Ref signs_differ(Onnx *o, Ref a, Ref b) { return compare(o, "Xor", less(o, a, 0), less(o, b, 0)); }

/* Python's %: the sign of b. */
static Ref remainder_of(Onnx *o, Ref a, Ref b)
{
    if (!dtype_is_float(a.t)) return bin(o, "Mod", a, b);
    Ref m = float_mod(o, a, b);
    return where(o, both(o, negated(o, is(o, m, 0)), signs_differ(o, m, b)), add(o, m, b), m);
}

/* c10::div_floor_floating */
static Ref floor_quotient(Onnx *o, Ref a, Ref b)
{
    if (!dtype_is_float(a.t)) return quotient(o, sub(o, a, bin(o, "Mod", a, b)), b);
    Ref m = float_mod(o, a, b), q = quotient(o, sub(o, a, m), b), plain = quotient(o, a, b);
    q = where(o, both(o, negated(o, is(o, m, 0)), signs_differ(o, m, b)), sub(o, q, like(o, q, 1)), q);
    Ref low = un(o, "Floor", q);
    low = where(o, compare(o, "Greater", sub(o, q, low), like(o, q, 0.5)), add(o, low, like(o, q, 1)), low);
    low = where(o, is(o, q, 0), scaled(o, plain, 0), low);
    return where(o, is(o, b, 0), plain, low);
}

void out_div_mode(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref a, b;
    DType t = n->out[0]->dtype;
    const char *mode = arg_s(n, 2, "");
    operands(o, n, t, &a, &b); /* numbers are rounded to the dtype first */
    a = widened(o, a);
    b = widened(o, b);
    if (!strcmp(mode, "floor")) give(o, n, 0, floor_quotient(o, a, b));
    else if (!strcmp(mode, "trunc") && dtype_is_float(t)) give(o, n, 0, truncated(o, quotient(o, a, b)));
    else give(o, n, 0, quotient(o, a, b));
}

/* atan(|y| / |x|), mirrored for a negative x, then with the sign of y */
static Ref atan2_of(Onnx *o, Ref y, Ref x)
{
    Ref a = un(o, "Abs", y), b = un(o, "Abs", x), huge = both(o, is(o, a, INFINITY), is(o, b, INFINITY)),
        origin = both(o, is(o, a, 0), is(o, b, 0));
    Ref r = un(o, "Atan", where(o, huge, like(o, a, 1), quotient(o, a, b)));
    r = where(o, origin, like(o, r, 0), r);
    r = where(o, sign_bit(o, x), sub(o, like(o, r, 3.14159265358979323846), r), r);
    return where(o, sign_bit(o, y), un(o, "Neg", r), r);
}

static Ref hypot_of(Onnx *o, Ref a, Ref b)
{
    Ref x = un(o, "Abs", a), y = un(o, "Abs", b), big = bin(o, "Max", x, y), small = bin(o, "Min", x, y),
        q = quotient(o, small, big);
    Ref r = mul(o, big, un(o, "Sqrt", add(o, mul(o, q, q), like(o, q, 1))));
    Ref at_inf = compare(o, "Or", is(o, x, INFINITY), is(o, y, INFINITY));
    return where(o, at_inf, like(o, r, INFINITY), where(o, is(o, big, 0), big, r));
}

static Ref log_sum(Onnx *o, Ref a, Ref b, double base)
{
    Ref d = un(o, "Neg", un(o, "Abs", sub(o, a, b))), e = base == 1 ? un(o, "Exp", d) : bin(o, "Pow", like(o, d, 2), d);
    Ref tail = quotient(o, log1p_of(o, e), like(o, e, base));
    Ref same = both(o, compare(o, "Equal", a, b), is(o, un(o, "Abs", a), INFINITY));
    return where(o, same, a, add(o, bin(o, "Max", a, b), tail));
}

/* The extreme of two that is not NaN. */
static Ref not_nan(Onnx *o, const char *op, Ref a, Ref b)
{
    Ref y = bin(o, op, a, b);
    return dtype_is_float(a.t) ? where(o, is_nan(o, a), b, where(o, is_nan(o, b), a, y)) : y;
}

/* Of x Phi(x), or of its form by tanh. */
static Ref gelu_slope(Onnx *o, Ref x, bool tanh_form)
{
    Ref one = like(o, x, 1), square = mul(o, x, x);
    if (!tanh_form)
        return add(o, normal_cdf(o, x),
                   scaled(o, mul(o, x, un(o, "Exp", scaled(o, square, -0.5))), 0.39894228040143267794));
    Ref t = un(o, "Tanh", scaled(o, add(o, x, scaled(o, mul(o, square, x), 0.044715)), 0.79788456080286535588));
    Ref slope = add(o, scaled(o, square, 0.053516112204450186), like(o, x, 0.39894228040143267794));
    return add(o, scaled(o, add(o, t, one), 0.5), mul(o, mul(o, x, sub(o, one, mul(o, t, t))), slope));
}

void out_written2(Onnx *o, const Node *n, const char *text)
{
    Ref a, b, y = none();
    DType t = n->out[0]->dtype;
    operands(o, n, t, &a, &b); /* numbers are rounded to the dtype first */
    a = widened(o, a);
    b = widened(o, b);
    if (!strcmp(text, "remainder")) y = remainder_of(o, a, b);
    else if (!strcmp(text, "fmod")) y = float_mod(o, a, b);
    else if (!strcmp(text, "gelu_backward")) y = mul(o, a, gelu_slope(o, b, !strcmp(arg_s(n, 2, "none"), "tanh")));
    else if (!strcmp(text, "atan2")) y = atan2_of(o, a, b);
    else if (!strcmp(text, "hypot")) y = hypot_of(o, a, b);
    else if (!strcmp(text, "fmax")) y = not_nan(o, "Max", a, b);
    else if (!strcmp(text, "fmin")) y = not_nan(o, "Min", a, b);
    else if (!strcmp(text, "copysign")) y = where(o, sign_bit(o, b), un(o, "Neg", un(o, "Abs", a)), un(o, "Abs", a));
    else if (!strcmp(text, "logaddexp")) y = log_sum(o, a, b, 1);
    else if (!strcmp(text, "logaddexp2")) y = log_sum(o, a, b, 0.69314718055994530942);
    else if (!strcmp(text, "heaviside"))
        y = where(o, is(o, a, 0), b, cast(o, compare(o, "Greater", a, like(o, a, 0)), a.t));
    else refuse(o, "no spelling '%s'", text);
    give(o, n, 0, y);
}

void out_prelu(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = in_wide(o, n, 0), w = in_wide(o, n, 1);
    int rank = arg_v(n, 0)->rank;
    int64_t shape[MAX_RANK] = {-1};
    for (int i = 1; i < rank - 1; i++) shape[i] = 1;
    if (rank != 1 && rank != 2) w = NODE(o, "Reshape", w.t, w, ints(o, rank ? rank - 1 : 0, shape));
    if (x.t != DT_F64) give(o, n, 0, bin(o, "PRelu", x, w));
    else give(o, n, 0, where(o, compare(o, "Greater", x, like(o, x, 0)), x, mul(o, w, x)));
}

/* ------------------------------------------------------------------ bits */

void out_bitwise_not(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    if (x.t == DT_BOOL) give(o, n, 0, negated(o, x));
    else if (o->opt.opset >= 18) give(o, n, 0, un(o, "BitwiseNot", x));
    else give(o, n, 0, sub(o, like(o, x, x.t == DT_U8 ? 255 : -1), x));
}

void out_bitwise(Onnx *o, const Node *n, const char *op)
{
    Ref a, b;
    char *bits = arena_printf(o->a, "Bitwise%s", op);
    operands(o, n, n->out[0]->dtype, &a, &b);
    if (a.t == DT_BOOL) give(o, n, 0, compare(o, op, a, b));
    else if (o->opt.opset >= 18 && bits) give(o, n, 0, bin(o, bits, a, b));
    else refuse(o, "ONNX has bitwise ops of integers from opset 18 on");
}

/* x 2^n and floor(x / 2^n), in int64 */
void out_shift(Onnx *o, const Node *n, const char *text)
{
    Ref a, b;
    operands(o, n, DT_I64, &a, &b);
    if (!strcmp(text, "right"))
        b = where(o, less(o, b, 0), integer(o, 62),
                  bin(o, "Min", b, integer(o, 62))); /* of any more, and of fewer than 0, the sign is left */
    Ref by = bin(o, "Pow", integer(o, 2), b);
    if (!strcmp(text, "left")) give(o, n, 0, mul(o, a, by));
    else give(o, n, 0, quotient(o, sub(o, a, bin(o, "Mod", a, by)), by));
}

/* ------------------------------------------------------------------ choosing */

void out_where(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref cond = truth(o, operand(o, n, 0, DT_BOOL));
    DType t = n->out[0]->dtype;
    give(o, n, 0, where(o, cond, operand(o, n, 1, t), operand(o, n, 2, t)));
}

void out_clamp(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    DType t = n->out[0]->dtype;
    Ref x = operand(o, n, 0, t), lo = operand(o, n, 1, t), hi = operand(o, n, 2, t);
    const Expr *a = arg_e(n, 1), *b = arg_e(n, 2);
    bool ordered = a && b && ex_is_const(a) && ex_is_const(b) && ex_number(a) <= ex_number(b);
    if (ordered && dtype_is_float(t)) {
        give(o, n, 0, NODE(o, "Clip", t, x, lo, hi));
        return;
    }
    if (*lo.name) x = bin(o, "Max", x, lo);
    if (*hi.name) x = bin(o, "Min", x, hi);
    give(o, n, 0, x);
}
