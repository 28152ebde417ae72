/* Tiles of integer products in portable C, what is done with their sums, and softmax in integers; compiled once per ISA
 * level. Contract in kernel/integer.h.
 */
#include <math.h>
#include "kernel/gemm_integer.h"
#include "kernel/gen/madd.h"
#include "kernel/gen/product_impl.h"
#include "kernel/gen/rounding.h"
#include "kernel/kernel.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { MR = 8, NV = 3 };
#elif defined(__AVX2__)
enum { MR = 6, NV = 2 };
#else
enum { MR = 4, NV = 3 };
#endif
enum { NR = WIDE * NV, MR_MOST = MR < 9 ? 9 : MR }; /* MR_MOST: rows of any level's tile that ends here */

static int64_t pairs(int64_t K) { return (K + 1) / 2; }

static size_t round_64(size_t n) { return (n + 63) / 64 * 64; }

static size_t a_bytes(int64_t K)
{
    return round_64(MR * sizeof(int32_t) + (size_t)pairs(K) * MR * 2 * sizeof(int16_t));
}

static size_t panel_bytes(int64_t K) { return (size_t)pairs(K) * NR * 2; }

static size_t b_bytes(int64_t K, int64_t N) { return round_64((size_t)((N + NR - 1) / NR) * panel_bytes(K)); }

enum { LINE_OF = 256 };

/* n elements (even) of a row, with their zero point off, as int16; beyond `there` zeros. Their sum. */
static int32_t line_of(int16_t *restrict to, const IntegerIn *a, int zero, const uint8_t *x, int n, int there)
{
    int32_t sum = 0;
    if (a->cs == 1 && a->t == DT_I8)
        for (int k = 0; k < there; k++) to[k] = (int16_t)((int8_t)x[k] - zero);
    else if (a->cs == 1)
        for (int k = 0; k < there; k++) to[k] = (int16_t)(x[k] - zero);
    else
        for (int k = 0; k < there; k++) to[k] = (int16_t)((a->t == DT_I8 ? (int8_t)x[k * a->cs] : x[k * a->cs]) - zero);
    for (int k = there; k < n; k++) to[k] = 0;
    for (int k = 0; k < there; k++) sum += to[k];
    return sum;
}

/* A tile of `rows` rows has pairs of so many; the rows that are not there are not packed. */
static void pack_a(void *to, const IntegerIn *a, int64_t row, int rows, int64_t K)
{
    int32_t *sum = to;
    int16_t line[LINE_OF];
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = (const uint8_t *)a->data + (row + r) * a->rs;
        int16_t *p = (int16_t *)(sum + MR) + 2 * r;
        const int zero = integer_zero_of(a, row + r);
        sum[r] = 0;
        for (int64_t k = 0; k < K; k += LINE_OF) {
            int there = K - k < LINE_OF ? (int)(K - k) : LINE_OF, n = there + there % 2;
            sum[r] += line_of(line, a, zero, x + k * a->cs, n, there);
            for (int i = 0; i < n; i += 2, p += 2 * rows) memcpy(p, line + i, 2 * sizeof *line);
        }
    }
}

/* Columns side by side (values of attention) are read row by row, others (a linear's weight) column by column. */
static void pack_panel(int8_t *p, const IntegerIn *b, int64_t col, int cols, int64_t K)
{
    const unsigned flip = b->t == DT_U8 ? 0x80 : 0; /* 128 off, in two's complement */
    const uint8_t *x = (const uint8_t *)b->data + col * b->cs;
    if (cols < NR || K % 2) memset(p, 0, panel_bytes(K));
    if (b->cs == 1) {
        for (int64_t k = 0; k < K; k++, x += b->rs)
            for (int j = 0; j < cols; j++) p[k / 2 * 2 * NR + 2 * j + k % 2] = (int8_t)(uint8_t)(x[j] ^ flip);
        return;
    }
    for (int j = 0; j < cols; j++, x += b->cs) {
        int8_t *to = p + 2 * j;
        for (int64_t k = 0; k + 1 < K; k += 2, to += 2 * NR) {
            to[0] = (int8_t)(uint8_t)(x[k * b->rs] ^ flip);
            to[1] = (int8_t)(uint8_t)(x[(k + 1) * b->rs] ^ flip);
        }
        if (K % 2) *to = (int8_t)(uint8_t)(x[(K - 1) * b->rs] ^ flip);
    }
}

static void pack_b(void *to, const IntegerIn *b, int64_t K, int64_t N)
{
    int8_t *p = to;
    for (int64_t col = 0; col < N; col += NR, p += panel_bytes(K))
        pack_panel(p, b, col, N - col < NR ? (int)(N - col) : NR, K);
}

INLINE void multiply(int32_t *acc, const int16_t *a, const int8_t *b, int rows, int64_t n)
{
    Sums s[MR][NV];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) s[r][v] = no_sums();
    for (int64_t k = 0; k < n; k++, a += 2 * rows, b += 2 * NR) {
        Pairs y[NV];
        __builtin_prefetch(b + 1024, 0, 3);
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) y[v] = pairs_of(b + 2 * WIDE * v);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            Pairs x = both(a + 2 * r);
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++) s[r][v] = madd(s[r][v], x, y[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) keep(acc + r * NR + v * WIDE, s[r][v]);
}

static void tile(const IntegerTile *t)
{
    const int32_t *sum = t->a;
    int32_t *acc = t->acc;
    const int16_t *x = (const int16_t *)(sum + MR);
    const int8_t *y = (const int8_t *)t->b + (size_t)t->panel * panel_bytes(t->K);
    int64_t n = pairs(t->K);
    switch (t->rows) { /* the compiler keeps sums of a known height in registers */
    case 1: multiply(acc, x, y, 1, n); break;
    case 2: multiply(acc, x, y, 2, n); break;
    case 3: multiply(acc, x, y, 3, n); break;
    case 4: multiply(acc, x, y, 4, n); break;
#if !defined(__AVX2__)
    default: break;
#else
    case 5: multiply(acc, x, y, 5, n); break;
    case 6: multiply(acc, x, y, 6, n); break;
#if defined(__AVX512F__)
    case 7: multiply(acc, x, y, 7, n); break;
    case 8: multiply(acc, x, y, 8, n); break;
#endif
    default: break;
#endif
    }
    if (!t->zero_b) return;
    for (int r = 0; r < t->rows; r++)
        for (int j = 0; j < NR; j++) acc[r * NR + j] -= t->zero_b * sum[r];
}

/* ------------------------------------------------------------------ the epilogue */

/* Is the result counted in steps of its rounding from the first? What is multiplied with the sums, the bias and a
 * residual in few bits then are multiplied with the step's inverse, once a column instead of once an element. */
INLINE bool in_steps(const IntegerMatmul *m)
{
    const ProductOut *o = &m->out;
    return m->q && m->rounding.by_inverse && !m->step_a && (o->act == GEMM_NONE || o->act == GEMM_RELU) &&
           (!o->bias || o->bias_type == DT_F32) &&
           (!o->residual || (!o->times && dtype_bits(o->residual_type) == 8));
}

/* Sums as floats, or as steps of which `steps` are one. */
INLINE void scaled(const IntegerMatmul *m, float *restrict y, const int32_t *restrict acc, int64_t row, int64_t col,
                   int rows, int cols, float steps)
{
    float per[NR] = {0};
    if (m->step_b && cols == NR) memcpy(per, m->scale_b + col, sizeof per);
    else
        for (int j = 0; j < cols; j++) per[j] = m->scale_b[m->step_b ? col + j : 0];
    for (int r = 0; r < rows; r++, y += NR, acc += NR) {
        const float by = m->scale_a[(row + r) * m->step_a];
        for (int j = 0; j < NR; j++) y[j] = (float)acc[j] * (by * per[j] * steps);
    }
}

/* A tile's part of a residual in few bits, as floats. */
INLINE void residual_of(const IntegerMatmul *m, float *restrict to, int64_t row, int64_t col, int rows, int cols,
                        float steps)
{
    const uint8_t *from = (const uint8_t *)m->out.residual + row * m->out.residual_step + col;
    const int zero = m->residual_zero;
    const float by = m->residual_scale * steps;
    for (int r = 0; r < rows; r++, from += m->out.residual_step, to += NR)
        if (m->out.residual_type == DT_I8)
            for (int j = 0; j < cols; j++) to[j] = (float)((int8_t)from[j] - zero) * by;
        else
            for (int j = 0; j < cols; j++) to[j] = (float)(from[j] - zero) * by;
}

/* The epilogue as it is seen from the tile's first element; `line` (step NR) is where floats go that become integers,
 * `more` holds a residual that was in few bits. */
static ProductOut tile_alone(const IntegerMatmul *m, float *line, const float *more, int64_t row, int64_t col)
{
    ProductOut here = m->out;
    const size_t size = here.bias ? dtype_size(here.bias_type) : 0;
    if (here.bias) here.bias = (const char *)here.bias + (size_t)col * size;
    if (more) {
        here.residual = more;
        here.residual_type = DT_F32;
        here.residual_step = NR;
    } else if (here.residual)
        here.residual = (const char *)here.residual +
                        (size_t)(row * here.residual_step + col) * dtype_size(here.residual_type);
    if (m->q) {
        here.c = line;
        here.c_type = DT_F32;
        here.c_step = NR;
    } else here.c = (char *)here.c + (size_t)(row * here.c_step + col) * dtype_size(here.c_type);
    return here;
}

static void finish_any(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols)
{
    float y[MR_MOST * NR], line[MR_MOST * NR + LINE], more[MR_MOST * NR], bias[NR];
    const bool few = m->out.residual && dtype_bits(m->out.residual_type) == 8, counted = in_steps(m);
    const float steps = counted ? (float)(1.0 / (double)m->rounding.scale) : 1;
    ProductOut out = tile_alone(m, line, few ? more : NULL, row, col);
    Rounding rounding = m->rounding;
    if (few) residual_of(m, more, row, col, rows, cols, steps);
    if (m->q && cols < NR) memset(line, 0, sizeof line);
    if (counted) rounding.scale = 1;
    if (counted && out.bias) {
        for (int j = 0; j < cols; j++) bias[j] = ((const float *)out.bias)[j] * steps;
        out.bias = bias;
    }
    scaled(m, y, acc, row, col, rows, cols, steps);
    finish_cols(&out, y, 0, 0, rows, NR, cols);
    if (!m->q) return;
    /* all rows at once, in whole vectors of bytes: what is left over would be rounded one by one */
    int8_t bytes[MR_MOST * NR + LINE];
    const int n = rows * NR, whole = (n + LINE - 1) / LINE * LINE;
    memset(line + n, 0, (size_t)(whole - n) * sizeof *line);
    if (m->q_type == DT_I8) round_i8(bytes, line, whole, &rounding);
    else round_u8((uint8_t *)bytes, line, whole, &rounding);
    for (int r = 0; r < rows; r++) memcpy((char *)m->q + (row + r) * m->q_step + col, bytes + r * NR, (size_t)cols);
}

#if defined(__AVX512F__)
/* The same where a row stays in registers: relu, gelu (where there is no residual) or none, floats or few bits. Small
 * sums (few channels) take no longer than such an epilogue. */
typedef struct Columns { /* of a panel */
    __m512 per[NV], bias[NV];
    __mmask16 there[NV];
} Columns;

INLINE Columns columns_of(const IntegerMatmul *m, int64_t col, int cols)
{
    Columns c;
    const uint64_t there = (UINT64_C(1) << cols) - 1;
    const float *per = m->scale_b + (m->step_b ? col : 0), *bias = (const float *)m->out.bias + (m->out.bias ? col : 0);
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) { /* unrolled, as the rest: columns stay in registers */
        c.there[v] = (__mmask16)(there >> v * WIDE);
        c.per[v] = m->step_b ? _mm512_maskz_loadu_ps(c.there[v], per + v * WIDE) : _mm512_set1_ps(*per);
        c.bias[v] = bias ? _mm512_maskz_loadu_ps(c.there[v], bias + v * WIDE)
                         : _mm512_set1_ps(-0.0f); /* x + -0 is x, for -0 too */
    }
    return c;
}

typedef struct More { /* a residual */
    DType t;
    int zero; /* of integers */
    __m512 by;
} More;

INLINE __m512 more_at(const char *from, const More *m, __mmask16 there)
{
    if (m->t == DT_F32) return _mm512_maskz_loadu_ps(there, from);
    const __m128i few = there == 0xffff ? _mm_loadu_si128((const void *)from) : _mm_maskz_loadu_epi8(there, from);
    __m512i wide = m->t == DT_I8 ? _mm512_cvtepi8_epi32(few) : _mm512_cvtepu8_epi32(few);
    if (m->zero) wide = _mm512_sub_epi32(wide, _mm512_set1_epi32(m->zero));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(wide), m->by);
}

INLINE __m512 relu(__m512 x) { return _mm512_max_ps(_mm512_setzero_ps(), x); } /* NaN and -0 stay */

INLINE __m512 gelu(__m512 x)
{
    float t[WIDE] __attribute__((aligned(LINE)));
    _mm512_store_ps(t, x);
    for (int i = 0; i < WIDE; i++) t[i] = gelu_of(t[i]);
    return _mm512_load_ps(t);
}

INLINE void finish_short(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols,
                         bool q, bool residual, bool curve, bool whole)
{
    const ProductOut o = m->out; /* stores of bytes may be anywhere for all that the compiler knows */
    Columns c = columns_of(m, col, cols);
    const Steps steps = steps_of(&m->rounding);
    const More of = {o.residual_type, m->residual_zero, _mm512_set1_ps(m->residual_scale)};
    const bool first = o.act && !(residual && o.act_last), last = o.act && residual && o.act_last;
    const int64_t size = residual ? (int64_t)dtype_size(o.residual_type) : 0, step_more = o.residual_step * size,
                  step = q ? m->q_step : o.c_step * 4, step_a = m->step_a;
    const float *scale = m->scale_a + row * step_a;
    const char *more = (const char *)o.residual + (residual ? row * step_more + col * size : 0);
    char *to = q ? (char *)m->q + row * step + col : (char *)o.c + row * step + col * 4;
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++)
        if (!step_a) c.per[v] = _mm512_mul_ps(_mm512_set1_ps(*scale), c.per[v]);
    for (int i = 0; i < rows; i++, acc += NR, scale += step_a, more += step_more, to += step) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            const __mmask16 there = whole ? 0xffff : c.there[v];
            if (!there) break;
            __m512 x = _mm512_cvtepi32_ps(_mm512_loadu_si512(acc + v * WIDE));
            const __m512 by = step_a ? _mm512_mul_ps(_mm512_set1_ps(*scale), c.per[v]) : c.per[v];
            x = _mm512_add_ps(_mm512_mul_ps(x, by), c.bias[v]);
            if (curve) x = gelu(x);
            else if (first) x = relu(x);
            if (residual) x = _mm512_add_ps(x, more_at(more + v * WIDE * size, &of, there));
            if (last) x = relu(x);
            if (!q && whole) _mm512_storeu_ps(to + v * WIDE * 4, x);
            else if (!q) _mm512_mask_storeu_ps(to + v * WIDE * 4, there, x);
            else if (there == 0xffff) _mm_storeu_si128((void *)(to + v * WIDE), few_of(x, &steps));
            else _mm_mask_storeu_epi8(to + v * WIDE, there, few_of(x, &steps));
        }
    }
}

/* The same of results that are counted in steps; nv: vectors of a row, of which the last may be a part. */
INLINE void finish_vectors(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols,
                           bool residual, bool plain, int nv)
{
    const ProductOut o = m->out;
    const Rounding r = m->rounding; /* stores of bytes may be anywhere */
    const __m512 steps = _mm512_set1_ps((float)(1.0 / (double)r.scale));
    const Steps s = {steps, _mm512_set1_ps((float)(r.low - r.zero)), _mm512_set1_ps((float)(r.high - r.zero)),
                     _mm512_set1_epi32(r.zero), _mm512_set1_epi32(r.none), true, plain};
    const More of = {o.residual_type, m->residual_zero, _mm512_mul_ps(_mm512_set1_ps(m->residual_scale), steps)};
    const bool first = o.act && !(residual && o.act_last), last = o.act && residual && o.act_last;
    const bool whole = cols == nv * WIDE;
    const char *more = (const char *)o.residual + (residual ? row * o.residual_step + col : 0);
    const int64_t step = m->q_step;
    char *to = (char *)m->q + row * step + col;
    Columns c = columns_of(m, col, cols);
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
        c.per[v] = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(*m->scale_a), c.per[v]), steps);
        c.bias[v] = _mm512_mul_ps(c.bias[v], steps);
    }
    for (int i = 0; i < rows; i++, acc += NR, more += o.residual_step, to += step) {
        __m512i word[NV];
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            __m512 x = _mm512_cvtepi32_ps(_mm512_loadu_si512(acc + v * WIDE));
            x = _mm512_add_ps(_mm512_mul_ps(x, c.per[v]), c.bias[v]);
            if (first) x = relu(x);
            if (residual) x = _mm512_add_ps(x, more_at(more + v * WIDE, &of, c.there[v]));
            if (last) x = relu(x);
            word[v] = clamped(x, &s, plain);
        }
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            const __m128i few = plain ? _mm512_cvtsepi32_epi8(word[v]) : _mm512_cvtepi32_epi8(word[v]);
            if (whole) _mm_storeu_si128((void *)(to + v * WIDE), few);
            else _mm_mask_storeu_epi8(to + v * WIDE, c.there[v], few);
        }
    }
}

INLINE void finish_steps(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols,
                         bool residual, bool plain)
{
    if (cols <= WIDE) finish_vectors(m, acc, row, col, rows, cols, residual, plain, 1);
    else finish_vectors(m, acc, row, col, rows, cols, residual, plain, NV);
}

INLINE void finish_some(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols,
                        bool q, bool residual, bool curve)
{
    if (cols == NR) finish_short(m, acc, row, col, rows, cols, q, residual, curve, true);
    else finish_short(m, acc, row, col, rows, cols, q, residual, curve, false);
}

static bool is_short(const IntegerMatmul *m)
{
    const ProductOut *o = &m->out;
    return (o->act == GEMM_NONE || o->act == GEMM_RELU || (o->act == GEMM_GELU_ERF && !o->residual)) &&
           (m->q || o->c_type == DT_F32) && (!o->bias || o->bias_type == DT_F32) &&
           (!o->residual || (!o->times && (o->residual_type == DT_F32 || dtype_bits(o->residual_type) == 8)));
}
#endif

static void finish(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols)
{
#if defined(__AVX512F__)
    const bool residual = m->out.residual, curve = m->out.act == GEMM_GELU_ERF,
               plain = m->rounding.low == INT8_MIN && m->rounding.high == INT8_MAX && !m->rounding.zero;
    if (in_steps(m)) {
        if (residual && plain) finish_steps(m, acc, row, col, rows, cols, true, true);
        else if (residual) finish_steps(m, acc, row, col, rows, cols, true, false);
        else if (plain) finish_steps(m, acc, row, col, rows, cols, false, true);
        else finish_steps(m, acc, row, col, rows, cols, false, false);
        return;
    }
    if (is_short(m)) {
        if (m->q && curve) finish_some(m, acc, row, col, rows, cols, true, false, true);
        else if (curve) finish_some(m, acc, row, col, rows, cols, false, false, true);
        else if (m->q && residual) finish_some(m, acc, row, col, rows, cols, true, true, false);
        else if (m->q) finish_some(m, acc, row, col, rows, cols, true, false, false);
        else if (residual) finish_some(m, acc, row, col, rows, cols, false, true, false);
        else finish_some(m, acc, row, col, rows, cols, false, false, false);
        return;
    }
#endif
    finish_any(m, acc, row, col, rows, cols);
}

/* ------------------------------------------------------------------ attention's probabilities */

enum { PART = 16 }; /* partial sums of a row: on every level as many, for the same bits */
typedef float Part __attribute__((vector_size(PART * 4), aligned(4), may_alias));

static void scores(float *restrict s, int64_t wide, const int32_t *restrict acc, int rows, float by)
{
    for (int r = 0; r < rows; r++, s += wide, acc += NR)
        for (int j = 0; j < NR; j++) s[j] = (float)acc[j] * by;
}

/* 2^z for z <= 0: relative error 3e-6, far below a step of 8 bits; next to nothing below 2^-125. 2^0 is 1. */
static inline float exp2_down(float z)
{
    float c = z < -125.0f ? -125.0f : z, shifted = c + 12582912.0f;
    float r = c - (shifted - 12582912.0f), p = fmaf(9.582852945e-3f, r, 5.590642616e-2f);
    p = fmaf(p, r, 2.402409911e-1f);
    p = fmaf(p, r, 6.931241751e-1f);
    p = fmaf(p, r, 1.0f);
    return p * vm_power_of_two(shifted);
}

/* p = round(s by) + zero for s >= 0, whose bits are ordered as they are. */
#define TO_BITS(name, T)                                                                                               \
    static OUTLINE void name(T *restrict p, const float *restrict s, int64_t n, float by, int zero, int high)          \
    {                                                                                                                  \
        const int32_t most = vm_int((float)(high - zero));                                                             \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            int32_t bits = vm_int(s[j] * by);                                                                          \
            p[j] = (T)((int)rintf(vm_bits(bits < most ? bits : most)) + zero);                                         \
        }                                                                                                              \
    }
TO_BITS(to_i8, int8_t)
TO_BITS(to_u8, uint8_t)
#undef TO_BITS

/* Halves are added to each other. */
static inline float total(Part x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float part[PART];
    memcpy(part, &x, sizeof part);
    for (int n = PART / 2; n; n /= 2)
        for (int l = 0; l < n; l++) part[l] += part[l + n];
    return part[0];
#endif
}

static void softmax(const IntegerSoftmax *x)
{
    const int64_t n = (x->n + PART - 1) / PART * PART, whole = (n + LINE - 1) / LINE * LINE;
    const Rounding *r = &x->rounding;
    float *s = x->s, top = -INFINITY;
    Part part = {0};
    if (x->mask)
        for (int64_t j = 0; j < x->n; j++) s[j] += x->mask[j];
    for (int64_t j = x->n; j < n; j++) s[j] = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t j = 0; j < n; j++) top = s[j] > top ? s[j] : top;
    for (int64_t j = 0; j < n; j += PART) {
        for (int l = 0; l < PART; l++) s[j + l] = exp2_down((s[j + l] - top) * 1.44269504f);
        part += *(const Part *)(s + j);
    }
    const float sum = total(part);
    const bool none = top == -INFINITY;
    if (!x->p)
        for (int64_t j = 0; j < n; j++) s[j] = none ? 0 : s[j] * (1 / sum);
    else if (none || sum != sum) memset(x->p, r->zero, (size_t)x->n);
    else {
        float by = 1 / (sum * r->scale);
        for (int64_t j = n; j < whole; j++)
            s[j] = 0; /* whole vectors of bytes: a rest as scalars takes as long as all */
        if (r->low < 0) to_i8(x->p, s, whole, by, r->zero, r->high);
        else to_u8(x->p, s, whole, by, r->zero, r->high);
    }
}

void KERNEL(integer_fill)(IntegerKernels *k);
void KERNEL(integer_fill)(IntegerKernels *k)
{
    *k = (IntegerKernels){.mr = MR,
                          .nr = NR,
                          .a_bytes = a_bytes,
                          .b_bytes = b_bytes,
                          .pack_a = pack_a,
                          .pack_b = pack_b,
                          .tile = tile,
                          .finish = finish,
                          .row_i8 = row_i8,
                          .row_u8 = row_u8,
                          .round_i8 = round_i8,
                          .round_u8 = round_u8,
                          .scores = scores,
                          .softmax = softmax};
}
