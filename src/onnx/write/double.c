/* Functions that ONNX Runtime computes of float32 but not of float64, in words that it has of both.
 *
 *     Atan(x)  ->  y = Cast(Atan(Cast(x))), y + (x cos y - sin y) / (cos y + x sin y)
 */
#include <math.h>
#include <string.h>
#include "onnx/write/write_impl.h"

static Ref times(Onnx *o, Ref x, double c) { return bin(o, "Mul", x, like(o, x, c)); }
static Ref plus(Onnx *o, Ref x, double c) { return bin(o, "Add", x, like(o, x, c)); }
static Ref size(Onnx *o, Ref x) { return un(o, "Abs", x); }
static Ref signed_as(Onnx *o, Ref x, Ref y) { return where(o, below(o, x, 0), un(o, "Neg", y), y); }

static Ref tangent(Onnx *o, Ref x) { return bin(o, "Div", un(o, "Sin", x), un(o, "Cos", x)); }

/* The float32 result y is off by atan((x - tan y) / (1 + x tan y)), which is below 1e-7 and so its own tangent. An
 * infinite x is as good as 1e300. */
static Ref arctangent(Onnx *o, Ref x)
{
    x = where(o, below(o, size(o, x), 1e300), x, times(o, un(o, "Sign", x), 1e300));
    Ref y = cast(o, NODE(o, "Atan", DT_F32, cast(o, x, DT_F32)), DT_F64), s = un(o, "Sin", y), c = un(o, "Cos", y);
    Ref above = bin(o, "Sub", bin(o, "Mul", x, c), s), under = bin(o, "Add", c, bin(o, "Mul", x, s));
    return bin(o, "Add", y, bin(o, "Div", above, under));
}

/* atan(x / sqrt((1 - x) (1 + x))) */
static Ref arcsine(Onnx *o, Ref x)
{
    Ref rest = bin(o, "Mul", bin(o, "Sub", like(o, x, 1), x), plus(o, x, 1));
    return arctangent(o, bin(o, "Div", x, un(o, "Sqrt", rest)));
}

/* 2 atan(sqrt((1 - x) / (1 + x))) */
static Ref arccosine(Onnx *o, Ref x)
{
    Ref share = bin(o, "Div", bin(o, "Sub", like(o, x, 1), x), plus(o, x, 1));
    return times(o, arctangent(o, un(o, "Sqrt", share)), 2);
}

/* (e^|x| + e^-|x| or less it) / 2 from e^(|x| / 2), which is finite where the result is */
static Ref exponentials(Onnx *o, Ref x, const char *op)
{
    Ref root = un(o, "Exp", times(o, size(o, x), 0.5)), half = times(o, root, 0.5);
    return bin(o, op, bin(o, "Mul", half, root), bin(o, "Div", like(o, x, 0.5), bin(o, "Mul", root, root)));
}

static Ref hyperbolic_cosine(Onnx *o, Ref x) { return exponentials(o, x, "Add"); }

/* below 1: (m + m / (m + 1)) / 2 with m = expm1(|x|) */
static Ref hyperbolic_sine(Onnx *o, Ref x)
{
    Ref up = size(o, x), m = expm1_of(o, up), near = bin(o, "Add", m, bin(o, "Div", m, plus(o, m, 1)));
    return signed_as(o, x, where(o, below(o, up, 1), times(o, near, 0.5), exponentials(o, x, "Sub")));
}

/* log1p(t), or log(x) + log(2) for an x so large that a square might not be finite and 1 is nothing beside it */
static Ref inverse_of(Onnx *o, Ref x, Ref t)
{
    return where(o, below(o, x, 1e10), log1p_of(o, t), plus(o, un(o, "Log", x), log(2)));
}

/* t = |x| + x^2 / (1 + sqrt(1 + x^2)) */
static Ref inverse_hyperbolic_sine(Onnx *o, Ref x)
{
    Ref up = size(o, x), square = bin(o, "Mul", x, x), under = plus(o, un(o, "Sqrt", plus(o, square, 1)), 1);
    return signed_as(o, x, inverse_of(o, up, bin(o, "Add", up, bin(o, "Div", square, under))));
}

/* t = d + sqrt(d) sqrt(d + 2), d = x - 1 */
static Ref inverse_hyperbolic_cosine(Onnx *o, Ref x)
{
    Ref d = plus(o, x, -1), roots = bin(o, "Mul", un(o, "Sqrt", d), un(o, "Sqrt", plus(o, d, 2)));
    return inverse_of(o, x, bin(o, "Add", d, roots));
}

/* log1p(2 |x| / (1 - |x|)) / 2 */
static Ref inverse_hyperbolic_tangent(Onnx *o, Ref x)
{
    Ref up = size(o, x), t = bin(o, "Div", times(o, up, 2), bin(o, "Sub", like(o, x, 1), up));
    return signed_as(o, x, times(o, log1p_of(o, t), 0.5));
}

Ref in_double(Onnx *o, const char *op, Ref x)
{
    static const struct {
        const char *op;
        Ref (*form)(Onnx *o, Ref x);
    } forms[] = {{"Tan", tangent},
                 {"Asin", arcsine},
                 {"Acos", arccosine},
                 {"Atan", arctangent},
                 {"Sinh", hyperbolic_sine},
                 {"Cosh", hyperbolic_cosine},
                 {"Asinh", inverse_hyperbolic_sine},
                 {"Acosh", inverse_hyperbolic_cosine},
                 {"Atanh", inverse_hyperbolic_tangent},
                 {"Erf", erf_of}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(forms[i].op, op)) return forms[i].form(o, x);
    return (Ref){"", DT_NONE};
}
