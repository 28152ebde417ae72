/* The gamma function's logarithm and its derivative in ONNX's words, by Stirling's series (Abramowitz and Stegun
 * 6.1.41, 6.3.18) eight or more from 0, where its next term is below 1e-11: smaller arguments are shifted there by
 * lgamma(x) = lgamma(x + 1) - log(x), and those below the reflection point are mirrored. */
#include <math.h>
#include "onnx/write/write_impl.h"

enum { SHIFT = 8 };
static const double pi = 3.14159265358979323846;

static Ref two(Onnx *o, const char *op, Ref a, Ref b) { return NODE(o, op, a.t, a, b); }
static Ref one(Onnx *o, const char *op, Ref a) { return NODE(o, op, a.t, a); }
static Ref below(Onnx *o, Ref x, double limit) { return NODE(o, "Less", DT_BOOL, x, like(o, x, limit)); }

/* c0 + c1 t + c2 t^2 + ... */
static Ref series(Onnx *o, Ref t, int n, const double *c)
{
    Ref sum = like(o, t, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) sum = two(o, "Add", two(o, "Mul", sum, t), like(o, t, c[i]));
    return sum;
}

/* x, or x + 8 where it is less than 8 */
static Ref shifted(Onnx *o, Ref x, Ref small) { return where(o, small, two(o, "Add", x, like(o, x, SHIFT)), x); }

static Ref lgamma_above(Onnx *o, Ref x)
{
    static const double c[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680};
    Ref small = below(o, x, SHIFT), y = shifted(o, x, small), log = one(o, "Log", y), inverse = one(o, "Reciprocal", y);
    Ref product = x;
    for (int i = 1; i < SHIFT; i++) product = two(o, "Mul", product, two(o, "Add", x, like(o, x, i)));
    Ref tail = two(o, "Mul", inverse, series(o, two(o, "Mul", inverse, inverse), 4, c));
    Ref sum = two(o, "Sub", two(o, "Mul", two(o, "Sub", y, like(o, y, 0.5)), log), y);
    sum = two(o, "Add", sum, two(o, "Add", tail, like(o, y, 0.5 * log1p(2 * pi - 1))));
    return where(o, small, two(o, "Sub", sum, one(o, "Log", product)), sum);
}

/* sum of 1 / (x + i) for i = 0 .. 7 where x is less than 8 is taken off the series at x + 8 */
static Ref digamma_above(Onnx *o, Ref x)
{
    static const double c[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240};
    Ref small = below(o, x, SHIFT), y = shifted(o, x, small), inverse = one(o, "Reciprocal", y);
    Ref steps = one(o, "Reciprocal", x), square = two(o, "Mul", inverse, inverse);
    for (int i = 1; i < SHIFT; i++) steps = two(o, "Add", steps, one(o, "Reciprocal", two(o, "Add", x, like(o, x, i))));
    Ref sum = two(o, "Sub", one(o, "Log", y), two(o, "Mul", inverse, like(o, y, 0.5)));
    sum = two(o, "Sub", sum, two(o, "Mul", square, series(o, square, 4, c)));
    return where(o, small, two(o, "Sub", sum, steps), sum);
}

/* pi (x - round(x)): the tangent of pi x, and its sine but for the sign, without the error of a large argument */
static Ref part_of_turn(Onnx *o, Ref x) { return two(o, "Mul", two(o, "Sub", x, one(o, "Round", x)), like(o, x, pi)); }

/* below 1/2: log(pi / |sin(pi x)|) - lgamma(1 - x); at its roots, 1 and 2, what rounding leaves of terms of 8 is taken
 * away */
void out_lgamma(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = widened(o, arg_ref(o, n, 0)), low = below(o, x, 0.5);
    Ref y = lgamma_above(o, where(o, low, two(o, "Sub", like(o, x, 1), x), x));
    Ref sine = one(o, "Abs", one(o, "Sin", part_of_turn(o, x)));
    Ref mirrored = two(o, "Sub", two(o, "Sub", like(o, x, log(pi)), one(o, "Log", sine)), y);
    y = where(o, low, mirrored, y);
    Ref nought = like(o, x, 0),
        from_roots = two(o, "Mul", two(o, "Sub", x, like(o, x, 1)), two(o, "Sub", x, like(o, x, 2)));
    y = where(o, NODE(o, "Equal", DT_BOOL, from_roots, nought), nought, y);
    Ref endless = NODE(o, "Equal", DT_BOOL, one(o, "Abs", x), like(o, x, INFINITY));
    give(o, n, 0, cast(o, where(o, endless, like(o, x, INFINITY), y), n->out[0]->dtype));
}

/* below 0: digamma(1 - x) - pi / tan(pi x); it has no value at whole numbers */
void out_digamma(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = widened(o, arg_ref(o, n, 0)), low = below(o, x, 0);
    Ref y = digamma_above(o, where(o, low, two(o, "Sub", like(o, x, 1), x), x)), turn = part_of_turn(o, x);
    Ref cotangent = two(o, "Div", one(o, "Cos", turn), one(o, "Sin", turn));
    Ref mirrored = two(o, "Sub", y, two(o, "Mul", like(o, x, pi), cotangent));
    Ref whole = NODE(o, "Equal", DT_BOOL, x, one(o, "Floor", x));
    mirrored = where(o, whole, like(o, x, NAN), mirrored);
    give(o, n, 0, cast(o, where(o, low, mirrored, y), n->out[0]->dtype));
}
