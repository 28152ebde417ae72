/* Resampling and pooling, portable; compiled once per ISA level. Contract in kernel/image.h. */
#include "kernel/image.h"
#include "kernel/variant.h"
#include "kernel/gen/sdpa_vec.h"

#define T float
#define NAME(x) x##_f32

enum { WIDE = 4 };

enum { MOST_TAPS = 16 };

/* One line of the result, of taps that are lines of neighbours. */
INLINE void resample_line(float *out, const float *in, int64_t inner, int64_t taps, const int64_t *at,
                          const double *weight)
{
    int64_t i = 0;
    for (; i + LANES <= inner; i += LANES) {
        Vec s = {0};
        for (int64_t k = 0; k < taps; k++) s += vec_set((float)weight[k]) * vec_at(in + at[k] * inner + i);
        vec_put(out + i, s);
    }
    for (; i < inner; i++) {
        float s = 0;
        for (int64_t k = 0; k < taps; k++) s += (float)weight[k] * in[at[k] * inner + i];
        out[i] = s;
    }
}

/* Results [j, j + LANES) of the last axis, for all rows. */
INLINE void resample_row(float *out, const float *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t taps,
                         const int64_t *at, const double *weight, int64_t j)
{
    float w[MOST_TAPS][LANES], x[LANES];
    int64_t from[MOST_TAPS][LANES];
    for (int64_t k = 0; k < taps; k++)
        for (int i = 0; i < LANES; i++) {
            w[k][i] = (float)weight[(j + i) * taps + k];
            from[k][i] = at[(j + i) * taps + k];
        }
    for (int64_t o = 0; o < outer; o++, in += n_in) {
        Vec s = {0};
        for (int64_t k = 0; k < taps; k++) {
            for (int i = 0; i < LANES; i++) x[i] = in[from[k][i]];
            s += vec_at(w[k]) * vec_at(x);
        }
        vec_put(out + o * n_out + j, s);
    }
}

static void resample_f32(float *out, const float *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t inner,
                         int64_t taps, const int64_t *at, const double *weight, int threads)
{
    int64_t blocks = inner == 1 && taps <= MOST_TAPS ? n_out / LANES : 0, first = blocks * LANES, rest = n_out - first;
#pragma omp parallel for num_threads(threads) if (outer * n_out > 1 << 14)
    for (int64_t b = 0; b < blocks; b++) resample_row(out, in, outer, n_in, n_out, taps, at, weight, b * LANES);
#pragma omp parallel for num_threads(threads) if (outer * rest * inner > 1 << 14)
    for (int64_t r = 0; r < outer * rest; r++) {
        int64_t o = r / rest, j = first + r % rest;
        resample_line(out + (o * n_out + j) * inner, in + o * n_in * inner, inner, taps, at + j * taps,
                      weight + j * taps);
    }
}

/* b where it is larger or NaN, else a. */
INLINE Vec vec_larger(Vec a, Vec b)
{
#if defined(__AVX512F__)
    __m512 more = _mm512_max_ps((__m512)b, (__m512)a);
    return (Vec)_mm512_mask_mov_ps(more, _mm512_cmp_ps_mask((__m512)b, (__m512)b, _CMP_UNORD_Q), (__m512)b);
#else
    IVec wins = (b > a) | (b != b);
    return (Vec)(((IVec)b & wins) | ((IVec)a & ~wins));
#endif
}

/* x, which was loaded as it is stored. */
INLINE void vec_put_back(DType t, void *p, Vec x)
{
    if (t == DT_F32) *(Vec *)p = x;
    else *(HVec *)p = __builtin_convertvector((UVec)x >> 16, HVec);
}

INLINE float wide_of(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

#define TYPE DT_F32
#define LOAD(v) (v)
#define LOAD_WIDE(v) (v)
#define STORE(v) (v)
#include "kernel/gen/pool_tmpl.h"
#undef T
#undef NAME
#undef TYPE
#undef LOAD
#undef LOAD_WIDE
#undef STORE
#define T uint16_t
#define NAME(x) x##_bf16
#define TYPE DT_BF16
#define LOAD(v) bf16_to_f32(v)
#define LOAD_WIDE(v) wide_of(v)
#define STORE(v) f32_to_bf16(v)
#include "kernel/gen/pool_tmpl.h"

#define LARGEST(name, type)                                                                                            \
    static void name(type *restrict out, const type *in, const int64_t *tap, int64_t taps, int64_t n)                  \
    {                                                                                                                  \
        memcpy(out, in + tap[0], (size_t)n);                                                                           \
        for (int64_t k = 1; k < taps; k++) {                                                                           \
            const type *restrict x = in + tap[k];                                                                      \
            for (int64_t i = 0; i < n; i++) out[i] = x[i] > out[i] ? x[i] : out[i];                                    \
        }                                                                                                              \
    }
LARGEST(largest_i8, int8_t)
LARGEST(largest_u8, uint8_t)
#undef LARGEST

void KERNEL(image_fill)(ImageKernels *k);

void KERNEL(image_fill)(ImageKernels *k)
{
    k->resample_f32 = resample_f32;
    k->largest_f32 = largest_f32;
    k->largest_bf16 = largest_bf16;
    k->largest_i8 = largest_i8;
    k->largest_u8 = largest_u8;
    k->mean_f32 = mean_f32;
    k->mean_bf16 = mean_bf16;
}
