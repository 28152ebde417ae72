/* The gamma function's logarithm and its derivative in ONNX's words, by Stirling's series (Abramowitz and Stegun
 * 6.1.41, 6.3.18) eight or more from 0, where its next term is below 1e-11: smaller arguments are shifted there by
 * lgamma(x) = lgamma(x + 1) - log(x), and those below the reflection point are mirrored. The error function's relatives
 * are Cephes' quotients of polynomials, as PyTorch's. */
#include <math.h>
#include "onnx/write/write_impl.h"

enum { SHIFT = 8 };
static const double pi = 3.14159265358979323846;


/* c0 + c1 t + c2 t^2 + ... */
static Ref series(Onnx *o, Ref t, int n, const double *c)
{
    Ref sum = like(o, t, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) sum = bin(o, "Add", bin(o, "Mul", sum, t), like(o, t, c[i]));
    return sum;
}

/* x, or x + 8 where it is less than 8 */
static Ref shifted(Onnx *o, Ref x, Ref small) { return where(o, small, bin(o, "Add", x, like(o, x, SHIFT)), x); }

static Ref lgamma_above(Onnx *o, Ref x)
{
    static const double c[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680};
    Ref small = below(o, x, SHIFT), y = shifted(o, x, small), log = un(o, "Log", y), inverse = un(o, "Reciprocal", y);
    Ref product = x;
    for (int i = 1; i < SHIFT; i++) product = bin(o, "Mul", product, bin(o, "Add", x, like(o, x, i)));
    Ref tail = bin(o, "Mul", inverse, series(o, bin(o, "Mul", inverse, inverse), 4, c));
    Ref sum = bin(o, "Sub", bin(o, "Mul", bin(o, "Sub", y, like(o, y, 0.5)), log), y);
    sum = bin(o, "Add", sum, bin(o, "Add", tail, like(o, y, 0.5 * log1p(2 * pi - 1))));
    return where(o, small, bin(o, "Sub", sum, un(o, "Log", product)), sum);
}

/* sum of 1 / (x + i) for i = 0 .. 7 where x is less than 8 is taken off the series at x + 8 */
static Ref digamma_above(Onnx *o, Ref x)
{
    static const double c[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240};
    Ref small = below(o, x, SHIFT), y = shifted(o, x, small), inverse = un(o, "Reciprocal", y);
    Ref steps = un(o, "Reciprocal", x), square = bin(o, "Mul", inverse, inverse);
    for (int i = 1; i < SHIFT; i++) steps = bin(o, "Add", steps, un(o, "Reciprocal", bin(o, "Add", x, like(o, x, i))));
    Ref sum = bin(o, "Sub", un(o, "Log", y), bin(o, "Mul", inverse, like(o, y, 0.5)));
    sum = bin(o, "Sub", sum, bin(o, "Mul", square, series(o, square, 4, c)));
    return where(o, small, bin(o, "Sub", sum, steps), sum);
}

/* pi (x - round(x)): the tangent of pi x, and its sine but for the sign, without the error of a large argument */
static Ref part_of_turn(Onnx *o, Ref x) { return bin(o, "Mul", bin(o, "Sub", x, un(o, "Round", x)), like(o, x, pi)); }

/* below 1/2: log(pi / |sin(pi x)|) - lgamma(1 - x); at its roots, 1 and 2, what rounding leaves of terms of 8 is taken
 * away */
void out_lgamma(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = widened(o, arg_ref(o, n, 0)), low = below(o, x, 0.5);
    Ref y = lgamma_above(o, where(o, low, bin(o, "Sub", like(o, x, 1), x), x));
    Ref sine = un(o, "Abs", un(o, "Sin", part_of_turn(o, x)));
    Ref mirrored = bin(o, "Sub", bin(o, "Sub", like(o, x, log(pi)), un(o, "Log", sine)), y);
    y = where(o, low, mirrored, y);
    Ref nought = like(o, x, 0),
        from_roots = bin(o, "Mul", bin(o, "Sub", x, like(o, x, 1)), bin(o, "Sub", x, like(o, x, 2)));
    y = where(o, NODE(o, "Equal", DT_BOOL, from_roots, nought), nought, y);
    Ref endless = NODE(o, "Equal", DT_BOOL, un(o, "Abs", x), like(o, x, INFINITY));
    give(o, n, 0, cast(o, where(o, endless, like(o, x, INFINITY), y), n->out[0]->dtype));
}

/* below 0: digamma(1 - x) - pi / tan(pi x); it has no value at whole numbers */
void out_digamma(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = widened(o, arg_ref(o, n, 0)), low = below(o, x, 0);
    Ref y = digamma_above(o, where(o, low, bin(o, "Sub", like(o, x, 1), x), x)), turn = part_of_turn(o, x);
    Ref cotangent = bin(o, "Div", un(o, "Cos", turn), un(o, "Sin", turn));
    Ref mirrored = bin(o, "Sub", y, bin(o, "Mul", like(o, x, pi), cotangent));
    Ref whole = NODE(o, "Equal", DT_BOOL, x, un(o, "Floor", x));
    mirrored = where(o, whole, like(o, x, NAN), mirrored);
    give(o, n, 0, cast(o, where(o, low, mirrored, y), n->out[0]->dtype));
}

/* ------------------------------------------------------------------ the error function's relatives (Cephes) */

#define SERIES(o, x, c) series((o), (x), (int)(sizeof(c) / sizeof *(c)), (c))
#define RATIO(o, x, above, below) bin((o), "Div", SERIES(o, x, above), SERIES(o, x, below))

/* erf(x) for |x| < 1 */
static Ref erf_near(Onnx *o, Ref x)
{
    static const double t[] = {55592.30130103949, 7003.325141128051, 2232.005345946843, 90.02601972038427,
        9.604973739870516};
    static const double u[] = {49267.39426086359, 22629.000061389095, 4594.323829709801, 521.357949780152679795,
        33.56171416475031, 1.0};
    Ref square = bin(o, "Mul", x, x);
    return bin(o, "Mul", x, RATIO(o, square, t, u));
}

/* exp(x^2) erfc(x): by erf near 0, quotients of polynomials further up, and mirrored: 2 exp(x^2) less erfcx(-x) */
static Ref erfcx_of(Onnx *o, Ref x)
{
    static const double p[] = {557.5353353693994, 1027.5518868951572, 934.5285271719576, 526.4451949954773,
        196.5208329560771, 48.63719709856814, 7.463210564422699, 0.5641895648310689,
        2.461969814735305e-10};
    static const double q[] = {557.5353408177277, 1656.6630919416134, 2246.3376081871097, 1823.9091668790973,
        975.7085017432055, 354.9377788878199, 86.70721408859897, 13.228195115474499, 1.0};
    static const double r[] = {2.9788666537210022, 7.4097426995044895, 6.160210979930536, 5.019050422511805,
        1.275366707599781, 0.5641895835477551};
    static const double s[] = {3.369076451000815, 9.608968090632859, 17.08144507475659, 12.048953980809666,
        9.396035249380015, 2.2605286322011726, 1.0};
    Ref up = un(o, "Abs", x), near = below(o, up, 1), grown = un(o, "Exp", bin(o, "Mul", x, x));
    Ref small = bin(o, "Mul", grown, bin(o, "Sub", like(o, x, 1), erf_near(o, up)));
    Ref middle = bin(o, "Min", up, like(o, x, 8)), high = bin(o, "Min", up, like(o, x, 1e4));
    Ref far = where(o, below(o, up, 1e4), RATIO(o, high, r, s), bin(o, "Div", like(o, x, 1 / sqrt(pi)), up));
    Ref y = where(o, near, small, where(o, below(o, up, 8), RATIO(o, middle, p, q), far));
    return where(o, below(o, x, 0), bin(o, "Sub", bin(o, "Mul", like(o, x, 2), grown), y), y);
}

/* from 1 on 1 - exp(-x^2) erfcx(x) */
Ref erf_of(Onnx *o, Ref x)
{
    Ref up = un(o, "Abs", x), fall = un(o, "Exp", un(o, "Neg", bin(o, "Mul", x, x)));
    Ref far = bin(o, "Sub", like(o, x, 1), bin(o, "Mul", fall, erfcx_of(o, up)));
    return where(o, below(o, up, 1), erf_near(o, x), where(o, below(o, x, 0), un(o, "Neg", far), far));
}

void out_erfcx(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    give(o, n, 0, cast(o, erfcx_of(o, widened(o, arg_ref(o, n, 0))), n->out[0]->dtype));
}

/* below 0 log(erfcx(-x / sqrt(2)) / 2) - x^2 / 2, else the logarithm of 1 less what is above x */
void out_log_ndtr(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = widened(o, arg_ref(o, n, 0)), t = bin(o, "Mul", x, like(o, x, sqrt(0.5))), half = like(o, x, 0.5);
    Ref share = bin(o, "Mul", erfcx_of(o, un(o, "Abs", t)), half);
    Ref low = bin(o, "Sub", un(o, "Log", share), bin(o, "Mul", t, t));
    Ref tail = bin(o, "Mul", un(o, "Exp", un(o, "Neg", bin(o, "Mul", t, t))), share);
    Ref y = where(o, below(o, x, 0), low, log1p_of(o, un(o, "Neg", tail)));
    give(o, n, 0, cast(o, y, n->out[0]->dtype));
}

/* p between exp(-2) and 1 - exp(-2) by y = p - 1/2 and y^2; else by z = sqrt(-2 log) of it or of 1 - p */
void out_ndtri(Onnx *o, const Node *n, const char *text)
{
    static const double p0[] = {-1.2391658386738125, 13.931260938727968, -56.67628574690703, 98.00107541859997,
        -59.96335010141079};
    static const double q0[] = {-1.1833162112133, 15.90562251262117, -82.03722561683334, 200.26021238006066,
        -225.46268785411937, 86.36024213908905, 4.676279128988815, 1.9544885833814176, 1.0};
    static const double p1[] = {-0.0008574567851546854, -0.03504246268278482, -0.1402560791713545, 2.1866330685079025,
        14.684956192885803, 44.08050738932008, 57.16281922464213, 31.525109459989388,
        4.0554489230596245};
    static const double q1[] = {-0.0009332594808954574, -0.03808064076915783, -0.14218292285478779, 2.504649462083094,
        15.04253856929075, 41.3172038254672, 45.39076351288792, 15.779988325646675, 1.0};
    static const double p2[] = {6.239745391849833e-09, 2.6580697468673755e-06, 0.00030158155350823543,
        0.012371663481782003, 0.20148538954917908, 1.3330346081580755, 3.9388102529247444,
        6.915228890689842, 3.2377489177694603};
    static const double q2[] = {6.790194080099813e-09, 2.8924786474538068e-06, 0.00032801446468212774,
        0.013420400608854318, 0.21623699359449663, 1.3770209948908132, 3.6798356385616087,
        6.02427039364742, 1.0};
    (void)text;
    Ref p = widened(o, arg_ref(o, n, 0)), rest = bin(o, "Sub", like(o, p, 1), p), nought = like(o, p, 0);
    Ref upper = NODE(o, "Less", DT_BOOL, like(o, p, 1 - exp(-2)), p), tail = where(o, upper, rest, p);
    Ref y = bin(o, "Sub", p, like(o, p, 0.5)), square = bin(o, "Mul", y, y);
    Ref middle = bin(o, "Mul", square, RATIO(o, square, p0, q0));
    middle = bin(o, "Mul", like(o, p, sqrt(2 * pi)), bin(o, "Add", y, bin(o, "Mul", y, middle)));
    Ref z = un(o, "Sqrt", bin(o, "Mul", like(o, p, -2), un(o, "Log", tail))), turned = un(o, "Reciprocal", z);
    Ref outer = bin(o, "Sub", z, bin(o, "Mul", un(o, "Log", z), turned));
    Ref ratio = where(o, below(o, z, 8), RATIO(o, turned, p1, q1), RATIO(o, turned, p2, q2));
    outer = bin(o, "Sub", bin(o, "Mul", turned, ratio), outer);
    outer = where(o, upper, un(o, "Neg", outer), outer);
    Ref lower = NODE(o, "Less", DT_BOOL, like(o, p, exp(-2)), p);
    y = where(o, upper, outer, where(o, lower, middle, outer));
    y = where(o, NODE(o, "Equal", DT_BOOL, p, nought), like(o, p, -INFINITY), y);
    y = where(o, NODE(o, "Equal", DT_BOOL, rest, nought), like(o, p, INFINITY), y);
    give(o, n, 0, cast(o, y, n->out[0]->dtype));
}
