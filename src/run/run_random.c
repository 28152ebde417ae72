/* Random numbers, as ATen's CPU kernels draw them (aten/src/ATen/core/DistributionsHelper.h,
 * native/cpu/DistributionTemplates.h): after the same seed the same values, so that a model exported in training mode
 * can be compared with PyTorch. */
#include <math.h>
#include "base/elementary.h"
#include "run/rng.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ MT19937 */

void rng_seed(Rng *r, uint64_t seed)
{
    r->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < 624; i++) r->state[i] = 1812433253u * (r->state[i - 1] ^ (r->state[i - 1] >> 30)) + i;
    r->next = 624;
}

uint32_t rng_u32(Rng *r)
{
    if (r->next == 624) {
        for (int i = 0; i < 624; i++) {
            uint32_t y = (r->state[i] & 0x80000000u) | (r->state[(i + 1) % 624] & 0x7fffffffu);
            r->state[i] = r->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->next = 0;
    }
    uint32_t y = r->state[r->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t rng_u64(Rng *r)
{
    uint64_t high = rng_u32(r);
    return high << 32 | rng_u32(r);
}

double rng_double(Rng *r) { return (double)(rng_u64(r) & ((1ull << 53) - 1)) * 0x1p-53; }

/* ------------------------------------------------------------------ ops */

/* 24 random bits, also for half types, which round them afterwards. */
static double uniform(Rng *r, DType t)
{
    return t == DT_F64 ? rng_double(r) : (double)(rng_u32(r) & 0xffffff) * 0x1p-24;
}

static void *element(const Tensor *t, int64_t i) { return (char *)t->data + (size_t)i * dtype_size(t->dtype); }

/* What a half type rounds up to 1 is 0, as in PyTorch. */
bool run_rand(Call *c, Err *err)
{
    (void)err;
    Tensor *out = call_out(c, 0);
    int64_t n = tensor_numel(out);
    for (int64_t i = 0; i < n; i++) {
        store_f64(out->dtype, element(out, i), uniform(c->env->rng, out->dtype));
        if (load_f64(out->dtype, element(out, i)) == 1) store_f64(out->dtype, element(out, i), 0);
    }
    return true;
}

/* (self, from, to): u (to - from) + from, rounded once, in float for half types, which round it afterwards; what is
 * rounded up to `to` is `from`. self gives shape and dtype. */
bool run_uniform(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    bool wide = out->dtype == DT_F64;
    double from = call_f64(c, 1), to = call_f64(c, 2), end;
    int64_t n = tensor_numel(out);
    if (!(from <= to)) return call_fail(c, E_USAGE, err, "numbers from %g to %g, which is less", from, to);
    float low = (float)from, width = (float)to - (float)from;
    store_f64(out->dtype, &end, to);
    end = load_f64(out->dtype, &end);
    for (int64_t i = 0; i < n; i++) {
        double u = uniform(c->env->rng, out->dtype);
        store_f64(out->dtype, element(out, i), wide ? fma(u, to - from, from) : (double)fmaf((float)u, width, low));
        if (load_f64(out->dtype, element(out, i)) == end) store_f64(out->dtype, element(out, i), from);
    }
    return true;
}

/* Box and Muller (1958): eight pairs from sixteen uniforms in u. */
static void normal_pairs(double *u)
{
    for (int k = 0; k < 8; k++) {
        double radius = sqrt(-2 * real_log(1 - u[k])), angle = 6.283185307179586476925286766559 * u[k + 8];
        u[k] = radius * real_cos(angle);
        u[k + 8] = radius * real_sin(angle);
    }
}

/* Sixteen at a time, the last sixteen drawn again where they do not divide (half types have not drawn the rest
 * before); below sixteen one pair after the other in double. */
bool run_randn(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t n = tensor_numel(out);
    Rng *r = c->env->rng;
    double *u = call_scratch(c, (size_t)n * sizeof *u, err);
    TRY(u);
    if (n < 16)
        for (int64_t i = 0; i < n; i += 2) {
            double angle = 6.283185307179586476925286766559 * rng_double(r),
                   radius = sqrt(-2 * real_log1p(-rng_double(r)));
            u[i] = radius * real_cos(angle);
            if (i + 1 < n) u[i + 1] = radius * real_sin(angle);
        }
    else {
        int64_t whole = n / 16 * 16, drawn = dtype_size(out->dtype) == 2 ? whole : n;
        for (int64_t i = 0; i < drawn; i++) u[i] = uniform(r, out->dtype);
        for (int64_t i = 0; i + 16 <= n; i += 16) normal_pairs(u + i);
        if (n > whole) {
            for (int64_t i = n - 16; i < n; i++) u[i] = uniform(r, out->dtype);
            normal_pairs(u + n - 16);
        }
    }
    for (int64_t i = 0; i < n; i++) store_f64(out->dtype, element(out, i), u[i]);
    return true;
}

/* (low, high, size, dtype): 64 bits a draw where the range needs more than 32. */
bool run_randint(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t low = call_i64(c, 0), high = call_i64(c, 1), n = tensor_numel(out);
    if (low >= high)
        return call_fail(c, E_USAGE, err, "low %lld is not below high %lld", (long long)low, (long long)high);
    uint64_t range = (uint64_t)high - (uint64_t)low;
    for (int64_t i = 0; i < n; i++) {
        uint64_t draw = range >= 1u << 28 ? rng_u64(c->env->rng) : rng_u32(c->env->rng);
        int64_t v = (int64_t)((uint64_t)low + draw % range);
        if (dtype_is_float(out->dtype)) store_f64(out->dtype, element(out, i), (double)v);
        else store_i64(out->dtype, element(out, i), v);
    }
    return true;
}

/* Fisher and Yates: place i and one of those from it on exchanged, n - 1 times */
bool run_randperm(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t n = tensor_numel(out), *at = call_scratch(c, (size_t)(n + 1) * sizeof *at, err);
    TRY(at);
    for (int64_t i = 0; i < n; i++) at[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t k = i + (int64_t)(rng_u32(c->env->rng) % (uint64_t)(n - i)), x = at[i];
        at[i] = at[k];
        at[k] = x;
    }
    for (int64_t i = 0; i < n; i++) {
        if (dtype_is_float(out->dtype)) store_f64(out->dtype, element(out, i), (double)at[i]);
        else store_i64(out->dtype, element(out, i), at[i]);
    }
    return true;
}

/* (self, p): one where a uniform double is below p; self gives shape and dtype. */
bool run_bernoulli(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    double p = call_f64(c, 1);
    int64_t n = tensor_numel(out);
    if (!(p >= 0 && p <= 1)) return call_fail(c, E_USAGE, err, "a probability of %g, expected 0 to 1", p);
    for (int64_t i = 0; i < n; i++) {
        double v = rng_double(c->env->rng) < p;
        if (dtype_is_float(out->dtype)) store_f64(out->dtype, element(out, i), v);
        else store_i64(out->dtype, element(out, i), (int64_t)v);
    }
    return true;
}

/* ------------------------------------------------------------------ counts */

/* Both kinds of counts are drawn by transformed rejection (Hoermann 1993: PTRS of Poisson's distribution, BTRS of a
 * binomial one) where their mean is 10 or more: a uniform number u around 0 is stretched to where the counts are,
 * floor((2 a / (0.5 - |u|) + b) u + middle). */
typedef struct Stretch {
    double a, b, middle;
} Stretch;

static double stretched(const Stretch *s, double u, double edge)
{
    return floor((2 * s->a / edge + s->b) * u + s->middle);
}

/* As a CPU makes it an int64: what does not fit is the lowest. */
static double as_i64(double k) { return k >= -0x1p63 && k < 0x1p63 ? k : -0x1p63; }

static double poisson_large(Rng *r, double rate)
{
    double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b, log_rate = real_log(rate),
           log_alpha = real_log(1.1239 + 1.1328 / (b - 3.4)), below = 0.9277 - 3.6224 / (b - 2);
    const Stretch s = {a, b, rate + 0.43};
    for (;;) {
        double u = rng_double(r) - 0.5, v = rng_double(r), edge = 0.5 - fabs(u), k = as_i64(stretched(&s, u, edge));
        if (edge >= 0.07 && v <= below) return k;
        if (k < 0 || (edge < 0.013 && v > edge)) continue;
        if (real_log(v) + log_alpha - real_log(a / (edge * edge) + b) <= -rate + k * log_rate - real_lgamma(k + 1))
            return k;
    }
}

/* How many uniform numbers can be multiplied before the product is no more than exp(-rate) */
static double poisson_small(Rng *r, double rate)
{
    double least = real_exp(-rate), product = 1;
    for (double k = 0;; k++)
        if (!((product *= rng_double(r)) > least)) return k;
}

/* (rates) */
bool run_poisson(Call *c, Err *err)
{
    const Tensor *rate = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    Tensor *out = call_out(c, 0);
    TRY(rate);
    int64_t n = tensor_numel(out);
    for (int64_t i = 0; i < n; i++) {
        double x = load_f64(rate->dtype, element(rate, i)), k = 0;
        if (!(x >= 0)) return call_fail(c, E_USAGE, err, "a rate of %g, expected 0 or more", x);
        if (x > 0) k = x >= 10 ? poisson_large(c->env->rng, x) : poisson_small(c->env->rng, x);
        store_f64(out->dtype, element(out, i), dtype_size(out->dtype) == 2 ? (double)(float)k : k);
    }
    return true;
}

/* What is left of Stirling's formula: log k! - (log sqrt(2 pi) + (k + 1/2) log(k + 1) - (k + 1)) */
static double stirling_rest(double k)
{
    static const double small[] = {0.0810614667953272,  0.0413406959554092,  0.0276779256849983, 0.02079067210376509,
                                   0.0166446911898211,  0.0138761288230707,  0.0118967099458917, 0.0104112652619720,
                                   0.00925546218271273, 0.00833056343336287};
    if (k >= 0 && k < 10) return small[(int)k];
    double square = (k + 1) * (k + 1);
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

/* PyTorch computes with n and p in their dtype and with all else in double: x as f32 has it, or as it is */
static double in_dtype(DType t, double x) { return t == DT_F32 ? (double)(float)x : x; }

static double binomial_large(Rng *r, DType t, double n, double p)
{
    double mean = in_dtype(t, n * p), q = in_dtype(t, 1 - p), more = in_dtype(t, n + 1);
    double deviation = in_dtype(t, sqrt(in_dtype(t, mean * q))), odds = in_dtype(t, p / q),
           middle = floor(in_dtype(t, more * p));
    double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p, below = 0.92 - 4.2 / b,
           alpha = (2.83 + 5.1 / b) * deviation;
    const Stretch s = {a, b, mean + 0.5};
    for (;;) {
        double u = rng_double(r) - 0.5, v = rng_double(r), edge = 0.5 - fabs(u),
               k = in_dtype(t, stretched(&s, u, edge));
        if (k < 0 || k > n) continue;
        if (edge >= 0.07 && v <= below) return k;
        double rest = in_dtype(t, n - k), next = in_dtype(t, rest + 1), beyond = n - middle + 1;
        double bound = (middle + 0.5) * real_log((middle + 1) / (odds * beyond)) + more * real_log(beyond / next) +
                       (k + 0.5) * real_log(odds * next / in_dtype(t, k + 1)) + stirling_rest(middle) +
                       stirling_rest(n - middle) - stirling_rest(k) - stirling_rest(rest);
        if (real_log(v * alpha / (a / (edge * edge) + b)) <= bound) return k;
    }
}

/* How many geometric numbers fit into n */
static double binomial_small(Rng *r, DType t, double n, double p)
{
    double slope = in_dtype(t, real_log1p(-p)), sum = 0;
    for (double k = 0;; k = in_dtype(t, k + 1))
        if ((sum += ceil(real_log(rng_double(r)) / slope)) > n) return k;
}

static double binomial(Rng *r, DType t, double n, double p)
{
    if (n <= 0 || p <= 0) return 0;
    if (p >= 1) return n;
    if (isnan(p)) return p;
    bool rare = p <= 0.5;
    double each = rare ? p : in_dtype(t, 1 - p),
           k = in_dtype(t, n * each) >= 10 ? binomial_large(r, t, n, each) : binomial_small(r, t, n, each);
    return rare ? k : n - k;
}

/* The element that element i of out meets, broadcast */
static double met(const Tensor *x, const Tensor *out, int64_t i)
{
    int64_t at = 0;
    for (int d = out->rank - 1, k = x->rank - 1; k >= 0; i /= out->shape[d], d--, k--)
        if (x->shape[k] > 1) at += i % out->shape[d] * x->stride[k];
    return load_f64(x->dtype, element(x, at));
}

/* (counts, probabilities) */
bool run_binomial(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t elements = tensor_numel(out);
    for (int64_t i = 0; i < elements; i++) {
        double n = met(call_in(c, 0), out, i), p = met(call_in(c, 1), out, i);
        if (isnan(n)) return call_fail(c, E_USAGE, err, "a count that is NaN");
        store_f64(out->dtype, element(out, i), binomial(c->env->rng, out->dtype, n, p));
    }
    return true;
}

/* ------------------------------------------------------------------ with a generator of its own, or an operand */

/* (size, seed): 53 bits of two draws, as NumPy makes a double of them */
bool run_seeded_uniform(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t n = tensor_numel(out);
    Rng *r = call_scratch(c, sizeof *r, err);
    TRY(r);
    rng_seed(r, (uint64_t)call_i64(c, 1));
    for (int64_t i = 0; i < n; i++) {
        uint32_t high = rng_u32(r) >> 5, low = rng_u32(r) >> 6;
        ((double *)out->data)[i] = ((double)high * 67108864.0 + (double)low) / 9007199254740992.0;
    }
    return true;
}

/* Above 0 the slope is 1 and nothing is drawn. */
bool run_rrelu(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    Tensor *y = call_out(c, 0), *noise = call_out(c, 1);
    TRY(x);
    double low = call_f64(c, 2), high = call_f64(c, 3);
    int64_t n = tensor_numel(x);
    for (int64_t i = 0; i < n; i++) {
        double value = load_f64(x->dtype, element(x, i)), slope = 1;
        if (value <= 0) slope = rng_double(c->env->rng) * (high - low) + low;
        store_f64(noise->dtype, element(noise, i), slope);
        store_f64(y->dtype, element(y, i), value * load_f64(noise->dtype, element(noise, i)));
    }
    return true;
}
