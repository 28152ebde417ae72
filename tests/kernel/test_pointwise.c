/* Pointwise operations: values that PyTorch gives, every rung against the reference in double, places in a row,
 * rows in place. Conversions are in test_convert.c. */
#include "kernel_test.h"

typedef enum Shape { UNARY_OP, BINARY_OP, COMPARE_OP, TEST_OP } Shape;

/* The table of operations once more: their names, shapes and types. */
static const struct {
    const char *name;
    PointwiseOp op;
    Shape shape;
    bool on_float, on_int;
    const char *kernel;
} ops[] = {
#define UNARY(name, e) {#name, PW_##name, UNARY_OP, true, true, #e},
#define FLOAT_UNARY(name, e) {#name, PW_##name, UNARY_OP, true, false, #e},
#define INT_UNARY(name, e) {#name, PW_##name, UNARY_OP, false, true, #e},
#define BINARY(name, e) {#name, PW_##name, BINARY_OP, true, true, #e},
#define FLOAT_BINARY(name, e) {#name, PW_##name, BINARY_OP, true, false, #e},
#define INT_BINARY(name, e) {#name, PW_##name, BINARY_OP, false, true, #e},
#define COMPARE(name, e) {#name, PW_##name, COMPARE_OP, true, true, #e},
#define TEST(name, e) {#name, PW_##name, TEST_OP, true, true, #e},
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
};
/* Values are held without sanitizers; under them it is what is read and written. */
#if defined(SANITIZED)
enum { OPS = sizeof ops / sizeof *ops, SAMPLES = 1 << 11, EACH = 4099 << 5 };
#else
enum { OPS = sizeof ops / sizeof *ops, SAMPLES = 1 << 14, EACH = 4099 };
#endif

/* Is its kernel the row's formula, of kernels that are tested here? Then its golden cases are its known values. */
static bool of_formula(int i) { return !strncmp(ops[i].kernel, "FORMULA_", 8); }

/* Parameters that float holds exactly: a bound rounded to float is not what is tested here. */
static const double *parameters(PointwiseOp op)
{
    static const double clamp[] = {-1.5, 2, 0}, threshold[] = {0.5, -3, 0}, scaled[] = {100, 0, 0},
                        softplus[] = {0.5, 20, 0}, leaky[] = {0.375, 0, 0}, elu[] = {1.5, 1.25, 0.75},
                        shrink[] = {0.5, 0, 0}, finite[] = {7, 8, -9}, none[] = {0, 0, 0};
    switch (op) {
    case PW_clamp: return clamp;
    case PW_threshold: return threshold;
    case PW_round_scaled: return scaled;
    case PW_softplus: return softplus;
    case PW_leaky_relu: return leaky;
    case PW_elu: return elu;
    case PW_hardshrink:
    case PW_softshrink: return shrink;
    case PW_nan_to_num: return finite;
    default: return none;
    }
}

/* ------------------------------------------------------------------ which operations there are */

static void test_table(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l)) {
        const PointwiseKernels *k = &kernels_at(l)->pointwise;
        for (PointwiseOp op = PW_NONE; op <= PW_COUNT; op++) {
            bool has[2][4] = {{false}};
            for (int i = 0; i < OPS; i++) {
                has[0][ops[i].shape] |= ops[i].op == op && ops[i].on_float;
                has[1][ops[i].shape] |= ops[i].op == op && ops[i].on_int;
            }
            float f = 1;
            double d = 1;
            int64_t n = 1;
            uint8_t y;
            const double *p = parameters(op);
            assert_int_equal(k->unary_f32(op, &f, &f, 1, p), has[0][UNARY_OP]);
            assert_int_equal(k->unary_f64(op, &d, &d, 1, p), has[0][UNARY_OP]);
            assert_int_equal(k->unary_i64(op, &n, &n, 1, p), has[1][UNARY_OP]);
            assert_int_equal(k->binary_f32(op, &f, &f, &f, 1), has[0][BINARY_OP]);
            assert_int_equal(k->binary_f64(op, &d, &d, &d, 1), has[0][BINARY_OP]);
            assert_int_equal(k->binary_i64(op, &n, &n, &n, 1), has[1][BINARY_OP]);
            assert_int_equal(k->compare_f32(op, &y, &f, &f, 1), has[0][COMPARE_OP]);
            assert_int_equal(k->compare_f64(op, &y, &d, &d, 1), has[0][COMPARE_OP]);
            assert_int_equal(k->compare_i64(op, &y, &n, &n, 1), has[1][COMPARE_OP]);
            assert_int_equal(k->test_f32(op, &y, &f, 1), has[0][TEST_OP]);
            assert_int_equal(k->test_f64(op, &y, &d, 1), has[0][TEST_OP]);
            assert_int_equal(k->test_i64(op, &y, &n, 1), has[1][TEST_OP]);
        }
    }
}

/* ------------------------------------------------------------------ the formulas */

/* PyTorch 2.13's answers in float64, so that the reference is not only compared with itself. */
static const struct {
    PointwiseOp op;
    double a, b, want;
} known[] = {
    {PW_neg, 0.7, 0, -0.7},
    {PW_abs, -0.7, 0, 0.7},
    {PW_abs, -0.0, 0, 0.0},
    {PW_sign, -0.7, 0, -1},
    {PW_relu, -0.7, 0, 0},
    {PW_relu, 0.7, 0, 0.7},
    {PW_relu, NAN, 0, NAN},
    {PW_square, -1.5, 0, 2.25},
    {PW_clamp, -9, 0, -1.5},
    {PW_clamp, 9, 0, 2},
    {PW_clamp, 0.7, 0, 0.7},
    {PW_clamp, NAN, 0, NAN},
    {PW_identity, 0.7, 0, 0.7},
    {PW_threshold, 0.5, 0, -3},
    {PW_threshold, 0.7, 0, 0.7},
    {PW_mish, 0.7, 0, 0.56114837764385184},
    {PW_mish, -1.5, 0, -0.29809974216680674},
    {PW_silu, 0.7, 0, 0.46773144051771626},
    {PW_gelu, 0.7, 0, 0.53062544344384888},
    {PW_gelu_tanh, 0.7, 0, 0.53057013470511671},
    {PW_gelu_tanh, -1.5, 0, -0.10042842301976707},
    {PW_softplus, 0.7, 0, 1.7667643108375539},
    {PW_softplus, 41, 0, 41},
    {PW_log_sigmoid, -0.7, 0, -1.1031860488854579},
    {PW_log_sigmoid, 0.7, 0, -0.40318604888545789},
    {PW_hardsigmoid, 0.7, 0, 0.6166666666666667},
    {PW_hardsigmoid, -3.5, 0, 0},
    {PW_hardsigmoid, 3.5, 0, 1},
    {PW_hardswish, -0.7, 0, -0.26833333333333331},
    {PW_leaky_relu, -0.7, 0, -0.26249999999999996},
    {PW_elu, -0.7, 0, -0.76583369181222172},
    {PW_elu, 0.7, 0, 0.875},
    {PW_hardshrink, 0.25, 0, 0},
    {PW_hardshrink, 0.75, 0, 0.75},
    {PW_softshrink, -0.7, 0, -0.19999999999999996},
    {PW_softshrink, 0.25, 0, 0},
    {PW_erfinv, 0.7, 0, 0.73286907795921674},
    {PW_erfinv, 0.9, 0, 1.1630871536766743},
    {PW_erfinv, 1, 0, INFINITY},
    {PW_erfinv, 1.5, 0, NAN},
    {PW_sigmoid, 0.7, 0, 0.66818777216816616},
    {PW_exp, 0.7, 0, 2.0137527074704766},
    {PW_exp2, 0.7, 0, 1.6245047927124709},
    {PW_expm1, 0.7, 0, 1.0137527074704764},
    {PW_log, 0.7, 0, -0.35667494393873245},
    {PW_log2, 0.7, 0, -0.51457317282975834},
    {PW_log10, 0.7, 0, -0.15490195998574319},
    {PW_log1p, 0.7, 0, 0.53062825106217038},
    {PW_sqrt, 0.7, 0, 0.83666002653407556},
    {PW_rsqrt, 0.7, 0, 1.1952286093343936},
    {PW_sin, 0.7, 0, 0.64421768723769102},
    {PW_cos, 0.7, 0, 0.7648421872844885},
    {PW_tan, 0.7, 0, 0.84228838046307941},
    {PW_asin, 0.7, 0, 0.77539749661075297},
    {PW_acos, 0.7, 0, 0.79539883018414359},
    {PW_atan, 0.7, 0, 0.61072596438920856},
    {PW_sinh, 0.7, 0, 0.75858370183953339},
    {PW_cosh, 0.7, 0, 1.255169005630943},
    {PW_tanh, 0.7, 0, 0.6043677771171635},
    {PW_asinh, 0.7, 0, 0.65266656608235574},
    {PW_acosh, 1.7, 0, 1.1232309825872959},
    {PW_atanh, 0.7, 0, 0.86730052769405308},
    {PW_erf, 0.7, 0, 0.67780119383741844},
    {PW_erfc, 0.7, 0, 0.32219880616258156},
    {PW_floor, -0.7, 0, -1},
    {PW_ceil, 0.7, 0, 1},
    {PW_round, 2.5, 0, 2},
    {PW_round, -3.5, 0, -4},
    {PW_round_scaled, 0.777, 0, 0.78},
    {PW_trunc, -1.7, 0, -1},
    {PW_frac, -1.75, 0, -0.75},
    {PW_reciprocal, 0.7, 0, 1.4285714285714286},
    {PW_nan_to_num, NAN, 0, 7},
    {PW_nan_to_num, INFINITY, 0, 8},
    {PW_nan_to_num, -INFINITY, 0, -9},
    {PW_nan_to_num, 0.7, 0, 0.7},
    {PW_add, 0.7, 1.9, 2.6},
    {PW_sub, 0.5, 1.75, -1.25},
    {PW_mul, 0.5, -1.75, -0.875},
    {PW_div, 0.5, -2, -0.25},
    {PW_maximum, 0.7, NAN, NAN},
    {PW_maximum, 0.7, 1.9, 1.9},
    {PW_minimum, NAN, 1.9, NAN},
    {PW_minimum, 0.7, 1.9, 0.7},
    {PW_fmax, NAN, 1.9, 1.9},
    {PW_fmax, 0.7, -1, 0.7},
    {PW_fmin, 0.7, NAN, 0.7},
    {PW_fmin, 0.7, -1, -1},
    {PW_pow, 0.7, 1.9, 0.50779249285605388},
    {PW_div_floor, -7.5, 2, -4},
    {PW_div_floor, 7.5, -2, -4},
    {PW_div_floor, 1, 0, INFINITY},
    {PW_div_trunc, -7.5, 2, -3},
    {PW_remainder, -7.5, 2, 0.5},
    {PW_remainder, 7.5, -2, -0.5},
    {PW_fmod, -7.5, 2, -1.5},
    {PW_heaviside, 0, 1.9, 1.9},
    {PW_heaviside, -0.7, 1.9, 0},
    {PW_heaviside, 0.7, 1.9, 1},
    {PW_atan2, 0.7, 1.9, 0.35299038782691045},
    {PW_hypot, 0.7, 1.9, 2.0248456731316584},
    {PW_modulus, 0.7, 1.9, 2.0248456731316584},
    {PW_copysign, 0.7, -1.9, -0.7},
    {PW_logaddexp, 0.7, 1.9, 2.1632824673380311},
    {PW_logaddexp, INFINITY, INFINITY, INFINITY},
    {PW_xlogy, 0.7, 1.9, 0.44929772032067627},
    {PW_xlogy, 0, 0, 0},
    {PW_xlogy, 0, NAN, NAN},
    {PW_prelu, -0.5, 0.25, -0.125},
    {PW_prelu, 0.5, 0.25, 0.5},
    {PW_lgamma, 0.7, 0, 0.26086724653166654},
    {PW_lgamma, -1.3, 0, 1.2024757863901114},
    {PW_digamma, 0.7, 0, -1.2200235536979347},
    {PW_digamma, -1.3, 0, 2.8825405488661673},
    {PW_digamma, -1, 0, NAN},
    {PW_digamma, 0, 0, -INFINITY},
    {PW_i0, 0.7, 0, 1.1263030183068092},
    {PW_special_i1, 0.7, 0, 0.37187967777700853},
    {PW_special_i1, -9.5, 0, -1658.4530777821344},
    {PW_i0, -9.5, 0, 1753.480990527323},
    {PW_bessel_j0, 0.7, 0, 0.8812008886074053},
    {PW_bessel_j1, 0.7, 0, 0.32899574154005893},
    {PW_bessel_y0, 0.7, 0, -0.19066492933739512},
    {PW_bessel_y1, 0.7, 0, -1.1032498719076334},
    {PW_spherical_j0, 0.7, 0, 0.92031098176813009},
    {PW_bessel_k0, 0.7, 0, 0.6605198599151016},
    {PW_bessel_k0e, 0.7, 0, 1.3301236562420557},
    {PW_bessel_k0, 9.5, 0, 3.0057884957934335e-5},
    {PW_bessel_k0e, 9.5, 0, 0.40156513211540536},
    {PW_bessel_k0, 0.001, 0, 7.0236888005623813},
    {PW_bessel_k0e, 0.001, 0, 7.0307160023782515},
    {PW_bessel_k0, 300.0, 0, 3.7236948548891433e-132},
    {PW_bessel_k0e, 300.0, 0, 0.072330031739607302},
    {PW_special_i0e, 0.7, 0, 0.55930552650706833},
    {PW_special_i0e, -9.5, 0, 0.13125126081426789},
    {PW_special_i0e, 45.0, 0, 0.059638115011731949},
    {PW_bessel_k1, 0.7, 0, 1.050283535312918},
    {PW_bessel_k1e, 0.7, 0, 2.1150113128480525},
    {PW_bessel_k1, 9.5, 0, 3.1602034110426746e-5},
    {PW_bessel_k1e, 9.5, 0, 0.42219454297695785},
    {PW_bessel_k1, 0.001, 0, 999.99623815608555},
    {PW_bessel_k1e, 0.001, 0, 1000.9967345590684},
    {PW_bessel_k1, 300.0, 0, 3.7298958583323727e-132},
    {PW_bessel_k1e, 300.0, 0, 0.072450481667258409},
    {PW_special_i1e, 0.7, 0, 0.18466998276274732},
    {PW_special_i1e, -9.5, 0, -0.12413824765488179},
    {PW_special_i1e, 45.0, 0, 0.058971703136200643},
    {PW_airy_ai, 0.7, 0, 0.18916240039815008},
    {PW_airy_ai, 3.5, 0, 0.002584098786989635},
    {PW_airy_ai, -2.5, 0, -0.11232506769296609},
    {PW_airy_ai, -20.0, 0, -0.17640612707798469},
    {PW_erfcx, 0.7, 0, 0.52593033734944096},
    {PW_erfcx, -1.5, 0, 18.653886256262734},
    {PW_erfcx, 30.0, 0, 0.018795888861416751},
    {PW_log_ndtr, 0.7, 0, -0.27702394227713126},
    {PW_log_ndtr, -0.9, 0, -1.6924928065613382},
    {PW_log_ndtr, -15.0, 0, -116.1313848457117},
    {PW_ndtri, 0.7, 0, 0.52440051270804066},
    {PW_ndtri, 1e-06, 0, -4.753424308822899},
    {PW_ndtri, 0.25, 0, -0.67448975019608174},
    {PW_zeta, 2.5, 1.9, 0.37574114428101849},
    {PW_zeta, 3.0, 0.25, 64.66386996876846},
    {PW_zeta, 7.0, -2.5, 0.00019216403826393778},
    {PW_igamma, 0.7, 1.9, 0.9147712607016225},
    {PW_igammac, 0.7, 1.9, 0.085228739298377502},
    {PW_igamma, 9.5, 4.0, 0.01332911780559748},
    {PW_igammac, 9.5, 4.0, 0.98667088219440252},
    {PW_igamma, 200.0, 210.0, 0.76396967450115385},
    {PW_igammac, 200.0, 210.0, 0.23603032549884615},
    {PW_chebyshev_t, 0.7, 5.0, -0.67087999999999977},
    {PW_shifted_chebyshev_t, 0.7, 5.0, 0.88384000000000023},
    {PW_chebyshev_t, 0.7, 12.0, -0.99280767795199991},
    {PW_shifted_chebyshev_t, 0.7, 12.0, 0.22389896396799887},
    {PW_chebyshev_u, 0.7, 5.0, -1.3977599999999999},
    {PW_shifted_chebyshev_u, 0.7, 5.0, 0.67968000000000047},
    {PW_chebyshev_u, 0.7, 12.0, -1.1101568983040006},
    {PW_shifted_chebyshev_u, 0.7, 12.0, 0.64925467033599887},
    {PW_chebyshev_v, 0.7, 5.0, -0.35935999999999965},
    {PW_shifted_chebyshev_v, 0.7, 5.0, 1.19008},
    {PW_chebyshev_v, 0.7, 12.0, -0.9425151549439996},
    {PW_shifted_chebyshev_v, 0.7, 12.0, -0.41413459558400137},
    {PW_chebyshev_w, 0.7, 5.0, -2.4361600000000001},
    {PW_shifted_chebyshev_w, 0.7, 5.0, 0.16928000000000096},
    {PW_chebyshev_w, 0.7, 12.0, -1.2777986416640016},
    {PW_shifted_chebyshev_w, 0.7, 12.0, 1.7126439362559991},
    {PW_hermite_h, 0.7, 5.0, 34.498240000000003},
    {PW_hermite_he, 0.7, 5.0, 7.2380699999999999},
    {PW_laguerre_l, 0.7, 5.0, -0.57304641666666666},
    {PW_legendre_p, 0.7, 5.0, -0.36519874999999993},
    {PW_sinc, 0, 0, 1},
    {PW_sinc, 0.5, 0, 0.63661977236758138},
    {PW_entr, 0.7, 0, 0.24967246075711269},
    {PW_entr, 0, 0, 0},
    {PW_entr, -1, 0, -INFINITY},
    {PW_ndtr, 0.7, 0, 0.75803634777692697},
    {PW_logaddexp2, 0.7, 1.9, 2.4213274681763663},
    {PW_xlog1py, 0.7, 1.9, 0.74529751589469972},
    {PW_xlog1py, 0, INFINITY, 0},
    {PW_silu_backward, 0.7, 1.9, 0.75945381276426971},
    {PW_gelu_backward, 0.7, 1.9, 0.76716744177911866},
    {PW_gelu_tanh_backward, 0.7, 1.9, 0.76774726566985607},
    {PW_silu_backward, 0.7, 0.4, 0.48635437088634453},
    {PW_gelu_backward, 0.7, 0.4, 0.56191085841215749},
    {PW_gelu_tanh_backward, 0.7, 0.4, 0.5618611840943929},
    {PW_nextafter, 1, 2, 1 + 0x1p-52},
    {PW_nextafter_f16, 1, 2, 1 + 0x1p-10},
    {PW_nextafter_f16, 0, -1, -0x1p-24},
    {PW_nextafter_bf16, -1, 2, -1 + 0x1p-8},
    {PW_nextafter_bf16, 0, 1, 0x1p-133},
};

/* Within 4 last places of double: libm's and PyTorch's errors are at most 2 each in these functions. */
/* Series, integrals and recurrences in double; but for j and y, which are the C library's. */
static bool is_special(PointwiseOp op)
{
    static const PointwiseOp all[] = {PW_spherical_j0,
                                      PW_bessel_k0,
                                      PW_bessel_k0e,
                                      PW_bessel_k1,
                                      PW_bessel_k1e,
                                      PW_special_i0e,
                                      PW_special_i1e,
                                      PW_airy_ai,
                                      PW_erfcx,
                                      PW_log_ndtr,
                                      PW_ndtri,
                                      PW_zeta,
                                      PW_igamma,
                                      PW_igammac,
                                      PW_chebyshev_t,
                                      PW_chebyshev_u,
                                      PW_chebyshev_v,
                                      PW_chebyshev_w,
                                      PW_shifted_chebyshev_t,
                                      PW_shifted_chebyshev_u,
                                      PW_shifted_chebyshev_v,
                                      PW_shifted_chebyshev_w,
                                      PW_hermite_h,
                                      PW_hermite_he,
                                      PW_laguerre_l,
                                      PW_legendre_p};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == op) return true;
    return false;
}

/* How far a contracted product and sum may take double from the reference;
 * every other operation gives the same bits on every rung. */
static double contracted(PointwiseOp op, double x, double y)
{
    switch (op) {
    case PW_gelu_tanh:
        return ldexp(fmin(fabs(x), 8), -51); /* x + c x^3, then tanh's 2 ulp for each, 1 + tanh, times x / 2 */
    case PW_silu_backward:
    case PW_gelu_backward:
    case PW_gelu_tanh_backward: return ldexp(fabs(x), -48);      /* 17 times sigmoid's or tanh's last places */
    case PW_erfinv: return ldexp(1 + exp(fmin(y * y, 40)), -50); /* erf's last place, through 1 / erf' */
    case PW_logaddexp2: return ldexp(1 + fabs(y), -52);          /* the sum's last place */
    case PW_digamma:
        return ldexp(1 + fabs(x) + fabs(y), -48); /* ten terms and a series; tan(pi x) sees |x| last places */
    case PW_i0:
    case PW_special_i1: return ldexp(fabs(y), -46); /* x^2 / 4 to the powers that matter, 50 of them */
    default: return is_special(op) ? ldexp(1 + fabs(y), -40) : 0;
    }
}

static void test_known(void **state)
{
    (void)state;
    bool seen[PW_COUNT] = {false};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double y = 77;
        const double *p = parameters(known[i].op);
        const PointwiseKernels *k = &kernels_at(CPU_REF)->pointwise;
        assert_true(k->unary_f64(known[i].op, &y, &known[i].a, 1, p) ||
                    k->binary_f64(known[i].op, &y, &known[i].a, &known[i].b, 1));
        if (!(ulps_f64(y, known[i].want) <= 4) &&
            !(is_special(known[i].op) && fabs(y - known[i].want) <= 2e-14 * fabs(known[i].want)))
            STOP("row %d, operation %d: %.17g, expected %.17g", (int)i, (int)known[i].op, y, known[i].want);
        seen[known[i].op] = true;
    }
    for (int i = 0; i < OPS; i++)
        if (ops[i].on_float && ops[i].shape <= BINARY_OP && !seen[ops[i].op] && !of_formula(i))
            STOP("%s has no known value", ops[i].name);
}

/* ------------------------------------------------------------------ float against double */

/* How far a float kernel may be from the reference in double, unrounded: ulps of the result, plus more + per_x *
 * min(|x|, 128). What is not listed is one correctly rounded operation, or none: the same bits as the reference
 * rounded to float (rounding a sum, product, quotient or root of floats to double first does not change what it
 * rounds to). Kernels that are formulas of others and not listed are compared with PyTorch alone (tests/ops). */
static const struct Tolerance {
    PointwiseOp op;
    double ulps, more, per_x;
} tolerances[] = {
    /* src/kernel/gen/vmath.h says so */
    {PW_exp, 0.58, 0x1.9p-150, 0},
    {PW_tanh, 2, 0, 0},
    {PW_erf, 1.5, 0, 0},
    /* libm; "Errors in Math Functions" of glibc's manual is at most 2, 3 for erfc, on the CPUs that it lists;
     * half an ulp is ours */
    {PW_exp2, 2.5, 0, 0},
    {PW_expm1, 2.5, 0, 0},
    {PW_log, 2.5, 0, 0},
    {PW_log2, 2.5, 0, 0},
    {PW_log10, 2.5, 0, 0},
    {PW_log1p, 2.5, 0, 0},
    {PW_sin, 2.5, 0, 0},
    {PW_cos, 2.5, 0, 0},
    {PW_tan, 2.5, 0, 0},
    {PW_asin, 2.5, 0, 0},
    {PW_acos, 2.5, 0, 0},
    {PW_atan, 2.5, 0, 0},
    {PW_sinh, 2.5, 0, 0},
    {PW_cosh, 2.5, 0, 0},
    {PW_asinh, 2.5, 0, 0},
    {PW_acosh, 2.5, 0, 0},
    {PW_atanh, 2.5, 0, 0},
    {PW_erfc, 3.5, 0, 0},
    {PW_pow, 2.5, 0, 0},
    {PW_atan2, 2.5, 0, 0},
    {PW_hypot, 2.5, 0, 0},
    {PW_modulus, 2.5, 0, 0},
    /* computed in double and rounded, but two Newton steps through a contracted polynomial */
    {PW_erfinv, 0.51, 0, 0},
    /* formulas of one operation that rounds */
    {PW_frac, 0.5, 0, 0},
    {PW_threshold, 0.5, 0, 0},
    {PW_hardshrink, 0.5, 0, 0},
    {PW_softshrink, 0.5, 0, 0},
    /* root and quotient rounded: 2^-24 each, and an ulp is at least 2^-24 of its number */
    {PW_rsqrt, 2, 0, 0},
    /* sum, quotient, product rounded */
    {PW_hardsigmoid, 2, 0, 0},
    {PW_hardswish, 3, 0, 0},
    /* exp is off by 2^-23 of itself, sum and quotient round;
     * exp(-x) overflows where the result is below 2^-126 (times x) */
    {PW_sigmoid, 4, 0x1p-126, 0},
    {PW_silu, 4, 0, 0x1p-126},
    /* 1 + erf and 1 + tanh keep absolute errors: erf's 1.5 and the argument's rounding 2^-24, the sum's 2^-24;
     * times x / 2 */
    {PW_gelu, 2, 0, 0x1p-23},
    {PW_gelu_tanh, 3, 0, 0x1p-22},
    /* exp 2^-23, log1p 2^-22, tanh 2^-22, products; where exp is denormal its step counts, times x */
    {PW_mish, 10, 0, 0x1p-149},
    /* exp, log1p and quotient; a denormal step of exp is two of the result (1 / 0.5) */
    {PW_softplus, 6, 0x1p-148, 0},
    {PW_log_sigmoid, 6, 0, 0},
    /* the argument's rounding, expm1 and two products */
    {PW_elu, 5.5, 0, 0},
    /* 1 - x and the quotient round: 2^-23 of the logarithm's argument is 2^-23 of the logarithm, absolute */
    /* the two terms may cancel: exp and log1p of at most 1, the rounded difference, the sum */
    {PW_logaddexp, 1, 0x1p-22, 0},
    {PW_logaddexp2, 1, 0x1p-22, 0},
    /* logarithm and product */
    {PW_xlogy, 4, 0, 0},
    {PW_xlog1py, 4, 0, 0},
    {PW_entr, 4, 0, 0},
    /* computed in double on every rung, contracted or not; digamma's terms cancel near its roots */
    {PW_i0, 0.51, 0, 0},
    {PW_special_i1, 0.51, 0, 0},
    {PW_digamma, 0.51, 0x1p-46, 0},
    {PW_bessel_j0, 0.51, 0x1p-40, 0},
    {PW_bessel_j1, 0.51, 0x1p-40, 0},
    {PW_bessel_y0, 0.51, 0x1p-40, 0},
    {PW_bessel_y1, 0.51, 0x1p-40, 0},
    {PW_spherical_j0, 0.51, 0x1p-40, 0},
    {PW_bessel_k0, 0.51, 0x1p-40, 0},
    {PW_bessel_k0e, 0.51, 0x1p-40, 0},
    {PW_bessel_k1, 0.51, 0x1p-40, 0},
    {PW_bessel_k1e, 0.51, 0x1p-40, 0},
    {PW_special_i0e, 0.51, 0x1p-40, 0},
    {PW_special_i1e, 0.51, 0x1p-40, 0},
    {PW_airy_ai, 0.51, 0x1p-40, 0},
    {PW_erfcx, 0.51, 0x1p-40, 0},
    {PW_log_ndtr, 0.51, 0x1p-40, 0},
    {PW_ndtri, 0.51, 0x1p-40, 0},
    {PW_zeta, 0.51, 0x1p-40, 0},
    {PW_igamma, 0.51, 0x1p-40, 0},
    {PW_igammac, 0.51, 0x1p-40, 0},
    {PW_chebyshev_t, 0.51, 0x1p-40, 0},
    {PW_chebyshev_u, 0.51, 0x1p-40, 0},
    {PW_chebyshev_v, 0.51, 0x1p-40, 0},
    {PW_chebyshev_w, 0.51, 0x1p-40, 0},
    {PW_shifted_chebyshev_t, 0.51, 0x1p-40, 0},
    {PW_shifted_chebyshev_u, 0.51, 0x1p-40, 0},
    {PW_shifted_chebyshev_v, 0.51, 0x1p-40, 0},
    {PW_shifted_chebyshev_w, 0.51, 0x1p-40, 0},
    {PW_hermite_h, 0.51, 0x1p-40, 0},
    {PW_hermite_he, 0.51, 0x1p-40, 0},
    {PW_laguerre_l, 0.51, 0x1p-40, 0},
    {PW_legendre_p, 0.51, 0x1p-40, 0},
    /* glibc's lgammaf near the roots below 0 */
    {PW_lgamma, 7.5, 0, 0},
    /* pi, and pi x, round: 2^-23 |pi x| of the sine's argument, over |pi x| */
    {PW_sinc, 3, 0x1p-23, 0},
    /* erfc's 3; the argument's two roundings count 2 t^2 times (allowed_ulps) */
    {PW_ndtr, 4, 0, 0},
    /* slopes are sums that cancel near their roots: see close_f32 */
    {PW_silu_backward, 4, 0, 0},
    {PW_gelu_backward, 4, 0, 0},
    {PW_gelu_tanh_backward, 4, 0, 0},
    /* a - mod and the quotient round as ATen's do; whole numbers below 2^22 come out exact all the same */
    {PW_div_floor, 2, 0, 0},
};

/* a times the slope of an activation: sigmoid and tanh are within 2^-22, and 1 minus one of them is multiplied by x,
 * at most 17 where it is not 0. */
static bool is_slope(PointwiseOp op)
{
    return op == PW_silu_backward || op == PW_gelu_backward || op == PW_gelu_tanh_backward;
}

static const struct Tolerance *tolerance_of(PointwiseOp op)
{
    for (size_t i = 0; i < sizeof tolerances / sizeof *tolerances; i++)
        if (tolerances[i].op == op) return &tolerances[i];
    return NULL;
}

/* What the float kernel must do where double takes another way; false where the reference is right. */
static bool float_only(PointwiseOp op, float a, float b, double *want)
{
    switch (op) {
    case PW_round_scaled:
        *want = (double)(nearbyintf(a * 100) / 100);
        return true; /* the product rounds to float, then to a whole number */
    case PW_div_trunc: *want = (double)truncf(a / b); return true; /* so does the quotient */
    case PW_hermite_h:
    case PW_hermite_he: *want = NAN; return b >= 129 && b < 9e15f && a == a; /* of float, ATen has those up to 128 */
    case PW_nextafter: *want = (double)nextafterf(a, b); return true;
    case PW_sinc: *want = NAN; return fabsf(a) > 0x1.fffffep127f / 3.1415927f;    /* pi x overflows */
    case PW_gelu_tanh_backward: *want = NAN; return isinf(0.0535161122f * b * b); /* 0 times the square, in ATen too */
    case PW_hardswish:                                                            /* x * 6 overflows, in ATen too */
        *want = copysign(INFINITY, (double)a);
        return a > 0x1.fffffep127f / 6;
    default: return false;
    }
}

static bool close_f32(PointwiseOp op, float y, double want, double x)
{
    const struct Tolerance *t = tolerance_of(op);
    if (is_slope(op) && isinf(x)) return !isfinite(y);    /* times a slope that may be 0 in float */
    if (is_slope(op) && y == 0 && want == 0) return true; /* which may be of either sign */
    double last = ulps_f32(y, want), ulps = t->ulps + (op == PW_ndtr && fabs(x) < 20 ? 2 * x * x : 0);
    if (isnan(y) || isnan(want) || (y == 0 && want == 0) || (op == PW_div_floor && fabs(want) < 0x1p22))
        return same_f32(y, (float)want);
    return last <= ulps || fabs((double)y - want) <= t->more + t->per_x * fmin(fabs(x), 128) +
                                                         (is_slope(op) ? fabs(x) * 17 * 0x1p-22 : 0) +
                                                         ulps * ldexp(fabs(want), -23);
}

static void check_f32(int i, CpuLevel l, float y, double want, float a, float b)
{
    double own;
    bool ok;
    /* the reference takes nextafter and sinc from float: they depend on its grid, and on its pi */
    if (ops[i].op == PW_nextafter || ((l != CPU_REF || ops[i].op == PW_sinc) && float_only(ops[i].op, a, b, &own)))
        ok = float_only(ops[i].op, a, b, &own) && same_f32(y, (float)own);
    else if ((l == CPU_REF && ops[i].op != PW_sinc) || !tolerance_of(ops[i].op)) ok = same_f32(y, (float)want);
    else ok = close_f32(ops[i].op, y, want, a);
    if (!ok)
        STOP("%s on %s at %a, %a (%g, %g): %a, expected %a (%g ulp)", ops[i].name, cpu_level_name(l), (double)a,
             (double)b, (double)a, (double)b, (double)y, want, ulps_f32(y, want));
}

static float sample_a[SAMPLES], sample_b[SAMPLES], got[SAMPLES];
static double wide_a[SAMPLES], wide_b[SAMPLES], exact[SAMPLES], got_wide[SAMPLES];

/* Awkward pairs, all magnitudes, and the range where functions bend. */
static void make_samples(int round, uint64_t *state)
{
    for (int i = 0; i < SAMPLES; i++) {
        uint32_t bits = unit_random(state) << 1 ^ unit_random(state),
                 more = unit_random(state) << 1 ^ unit_random(state);
        memcpy(&sample_a[i], &bits, 4);
        memcpy(&sample_b[i], &more, 4);
        if (round % 4 == 1) sample_a[i] = 105 * random_unit(state), sample_b[i] = 105 * random_unit(state);
        if (round % 4 == 2) sample_a[i] = 5 * random_unit(state), sample_b[i] = 5 * random_unit(state);
        if (round % 4 == 3) sample_b[i] = sample_a[i] * (1 + random_unit(state) / 64);
        if (round == 0 && i < AWKWARD * AWKWARD) sample_a[i] = awkward[i / AWKWARD], sample_b[i] = awkward[i % AWKWARD];
        wide_a[i] = sample_a[i];
        wide_b[i] = sample_b[i];
    }
}

static void check_op_f32(int i)
{
    if (of_formula(i) && !tolerance_of(ops[i].op)) return;
    const PointwiseKernels *ref = &kernels_at(CPU_REF)->pointwise;
    const double *p = parameters(ops[i].op);
    bool unary = ops[i].shape == UNARY_OP;
    if (unary) ref->unary_f64(ops[i].op, exact, wide_a, SAMPLES, p);
    else ref->binary_f64(ops[i].op, exact, wide_a, wide_b, SAMPLES);
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l)) {
        const PointwiseKernels *k = &kernels_at(l)->pointwise;
        if (unary) k->unary_f32(ops[i].op, got, sample_a, SAMPLES, p);
        else k->binary_f32(ops[i].op, got, sample_a, sample_b, SAMPLES);
        for (int s = 0; s < SAMPLES; s++) check_f32(i, l, got[s], exact[s], sample_a[s], sample_b[s]);
    }
}

static void test_float(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int round = 0; round < 8; round++) {
        make_samples(round, &seed);
        for (int i = 0; i < OPS; i++)
            if (ops[i].on_float && ops[i].shape <= BINARY_OP) check_op_f32(i);
    }
}

/* exp, tanh and erf are ours: every 4099th float (EACH). */
static void test_vmath(void **state)
{
    (void)state;
    uint32_t bits = 0;
    for (int round = 0; round < (int)(0xffffffffu / EACH / SAMPLES); round++) {
        for (int s = 0; s < SAMPLES; s++, bits += EACH) {
            memcpy(&sample_a[s], &bits, 4);
            wide_a[s] = sample_a[s];
        }
        for (int i = 0; i < OPS; i++)
            if (ops[i].on_float && (ops[i].op == PW_exp || ops[i].op == PW_tanh || ops[i].op == PW_erf))
                check_op_f32(i);
    }
}

static void check_op_f64(int i)
{
    const PointwiseKernels *ref = &kernels_at(CPU_REF)->pointwise;
    const double *p = parameters(ops[i].op);
    bool unary = ops[i].shape == UNARY_OP;
    if (unary) ref->unary_f64(ops[i].op, exact, wide_a, SAMPLES, p);
    else ref->binary_f64(ops[i].op, exact, wide_a, wide_b, SAMPLES);
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung_of(pointwise, l)) {
        const PointwiseKernels *k = &kernels_at(l)->pointwise;
        if (unary) k->unary_f64(ops[i].op, got_wide, wide_a, SAMPLES, p);
        else k->binary_f64(ops[i].op, got_wide, wide_a, wide_b, SAMPLES);
        for (int s = 0; s < SAMPLES; s++)
            if (!same_f64(got_wide[s], exact[s]) &&
                !(fabs(got_wide[s] - exact[s]) <= contracted(ops[i].op, wide_a[s], exact[s])))
                STOP("%s f64 on %s at %a, %a: %a, expected %a", ops[i].name, cpu_level_name(l), wide_a[s], wide_b[s],
                     got_wide[s], exact[s]);
    }
}

static void test_double(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int round = 0; round < 4; round++) {
        make_samples(round, &seed);
        for (int i = 0; i < OPS; i++)
            if (ops[i].on_float && ops[i].shape <= BINARY_OP) check_op_f64(i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_known),  cmocka_unit_test(test_float),
        cmocka_unit_test(test_vmath), cmocka_unit_test(test_double),
    };
    return cmocka_run_group_tests_name("pointwise", tests, NULL, NULL);
}
