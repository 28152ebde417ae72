/* Intel's intrinsics that src/kernel/x86 uses for attention and products, in C with gcc's vectors: AVX-512, AVX512_BF16
 * and AMX on any machine.
 *
 *     cc -I tests/kernel/emulated -D__AVX512F__ -DQKV_VARIANT=emulated_amx -c src/kernel/x86/sdpa_amx.c
 *
 * They compute what the manual says (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2), rounded
 * to nearest: bf16 that are subnormal are 0 to the instructions of AVX512_BF16 and AMX, aligned loads and stores want
 * alignment, tiles want a configuration. Not for speed.
 */
#ifndef QKV_TESTS_EMULATED_IMMINTRIN_H
#define QKV_TESTS_EMULATED_IMMINTRIN_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef short __m512bh __attribute__((vector_size(64), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef short __m256bh __attribute__((vector_size(32), may_alias));
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;
typedef uint32_t emu_words __attribute__((vector_size(64), may_alias));
typedef uint16_t emu_halves __attribute__((vector_size(64), may_alias));
typedef uint16_t emu_half __attribute__((vector_size(32), may_alias));

#define EMU static inline __attribute__((always_inline, unused))

EMU void emu_need(int fine, const char *what)
{
    if (fine) return;
    fprintf(stderr, "emulated: %s\n", what);
    abort();
}

EMU float emu_wide(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    if (!(x & 0x7f80)) bits &= 0x80000000u;
    memcpy(&f, &bits, 4);
    return f;
}

EMU uint16_t emu_narrow(float x)
{
    uint32_t b;
    memcpy(&b, &x, 4);
    if (x != x) return (uint16_t)(b >> 16 | 0x40);
    if (!(b & 0x7f800000)) return (uint16_t)(b >> 16 & 0x8000);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

/* ------------------------------------------------------------------ memory */

#define EMU_LOAD(name, T, from, align)                                                                                 \
    EMU T name(const void *p)                                                                                          \
    {                                                                                                                  \
        T x;                                                                                                           \
        emu_need((uintptr_t)p % (align) == 0, #name " of what is not aligned");                                        \
        memcpy(&x, p, sizeof x);                                                                                       \
        return x;                                                                                                      \
    }
#define EMU_STORE(name, T, align)                                                                                      \
    EMU void name(void *p, T x)                                                                                        \
    {                                                                                                                  \
        emu_need((uintptr_t)p % (align) == 0, #name " of what is not aligned");                                        \
        memcpy(p, &x, sizeof x);                                                                                       \
    }
EMU_LOAD(_mm512_load_ps, __m512, float, 64)
EMU_LOAD(_mm512_loadu_ps, __m512, float, 1)
EMU_LOAD(_mm512_load_si512, __m512i, void, 64)
EMU_LOAD(_mm512_loadu_si512, __m512i, void, 1)
EMU_LOAD(_mm256_loadu_si256, __m256i, void, 1)
EMU_STORE(_mm512_store_ps, __m512, 64)
EMU_STORE(_mm512_storeu_ps, __m512, 1)
EMU_STORE(_mm512_store_si512, __m512i, 64)
EMU_STORE(_mm512_storeu_si512, __m512i, 1)
EMU_STORE(_mm256_store_si256, __m256i, 32)
EMU_STORE(_mm256_storeu_si256, __m256i, 1)

EMU __m512i _mm512_maskz_loadu_epi16(__mmask32 k, const void *p)
{
    emu_halves x = {0};
    for (int i = 0; i < 32; i++)
        if (k >> i & 1) memcpy((char *)&x + i * 2, (const char *)p + i * 2, 2);
    return (__m512i)x;
}

EMU __m256i _mm256_maskz_loadu_epi16(__mmask16 k, const void *p)
{
    __m256i x = {0};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy((char *)&x + i * 2, (const char *)p + i * 2, 2);
    return x;
}

EMU __m512 _mm512_maskz_loadu_ps(__mmask16 k, const void *p)
{
    __m512 x = {0};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy((char *)&x + i * 4, (const char *)p + i * 4, 4);
    return x;
}

EMU void _mm512_mask_storeu_ps(void *p, __mmask16 k, __m512 x)
{
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy((char *)p + i * 4, (char *)&x + i * 4, 4);
}

EMU void _mm256_mask_storeu_epi16(void *p, __mmask16 k, __m256i x)
{
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy((char *)p + i * 2, (char *)&x + i * 2, 2);
}

/* ------------------------------------------------------------------ numbers */

EMU __m512 _mm512_setzero_ps(void) { return (__m512){0}; }
EMU __m512i _mm512_setzero_si512(void) { return (__m512i){0}; }
EMU __m512 _mm512_set1_ps(float x) { return x + (__m512){0}; }
EMU __m512i _mm512_set1_epi16(int16_t x) { return (__m512i)((uint16_t)x + (emu_halves){0}); }
EMU __m512i _mm512_set1_epi32(int32_t x) { return (__m512i)((uint32_t)x + (emu_words){0}); }
EMU __m512 _mm512_castsi512_ps(__m512i x) { return (__m512)x; }
EMU __m512i _mm512_castps_si512(__m512 x) { return (__m512i)x; }
EMU __m512 _mm512_add_ps(__m512 a, __m512 b) { return a + b; }
EMU __m512 _mm512_sub_ps(__m512 a, __m512 b) { return a - b; }
EMU __m512 _mm512_mul_ps(__m512 a, __m512 b) { return a * b; }
EMU __m512i _mm512_add_epi16(__m512i a, __m512i b) { return (__m512i)((emu_halves)a + (emu_halves)b); }
EMU __m512i _mm512_sub_epi32(__m512i a, __m512i b) { return (__m512i)((emu_words)a - (emu_words)b); }
EMU __m512i _mm512_and_epi32(__m512i a, __m512i b) { return a & b; }
EMU __m512i _mm512_or_epi32(__m512i a, __m512i b) { return a | b; }
EMU __m512i _mm512_slli_epi32(__m512i a, unsigned n) { return (__m512i)((emu_words)a << n); }
EMU __m512i _mm512_srli_epi32(__m512i a, unsigned n) { return (__m512i)((emu_words)a >> n); }

EMU __m512i _mm512_max_epu32(__m512i a, __m512i b)
{
    emu_words x = (emu_words)a, y = (emu_words)b;
    for (int i = 0; i < 16; i++) y[i] = x[i] > y[i] ? x[i] : y[i];
    return (__m512i)y;
}

EMU __mmask16 _mm512_cmpeq_epi32_mask(__m512i a, __m512i b)
{
    __mmask16 k = 0;
    for (int i = 0; i < 16; i++) k = (__mmask16)(k | (((emu_words)a)[i] == ((emu_words)b)[i]) << i);
    return k;
}

EMU __mmask16 _mm512_cmplt_epu32_mask(__m512i a, __m512i b)
{
    __mmask16 k = 0;
    for (int i = 0; i < 16; i++) k = (__mmask16)(k | (((emu_words)a)[i] < ((emu_words)b)[i]) << i);
    return k;
}

EMU __m512i _mm512_mask_and_epi32(__m512i otherwise, __mmask16 k, __m512i a, __m512i b)
{
    emu_words x = (emu_words)otherwise, y = (emu_words)(a & b);
    for (int i = 0; i < 16; i++) x[i] = k >> i & 1 ? y[i] : x[i];
    return (__m512i)x;
}

EMU __m512 _mm512_maskz_mov_ps(__mmask16 k, __m512 x)
{
    for (int i = 0; i < 16; i++) x[i] = k >> i & 1 ? x[i] : 0;
    return x;
}

EMU __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) /* rounded in double, too: 2^-29 of a last place */
{
    for (int i = 0; i < 16; i++) c[i] = (float)((double)a[i] * (double)b[i] + (double)c[i]);
    return c;
}

EMU __m512 _mm512_fmsub_ps(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, -c); }

EMU __m512 _mm512_max_ps(__m512 a, __m512 b) /* b where one is NaN */
{
    for (int i = 0; i < 16; i++) b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}

EMU float _mm512_reduce_add_ps(__m512 x)
{
    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; i++) x[i] += x[i + n];
    return x[0];
}

EMU float _mm512_reduce_max_ps(__m512 x)
{
    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; i++) x[i] = x[i] > x[i + n] ? x[i] : x[i + n];
    return x[0];
}

enum { _CMP_NLT_UQ = 5, _CMP_ORD_Q = 7 };
EMU __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int how)
{
    __mmask16 k = 0;
    emu_need(how == _CMP_NLT_UQ || how == _CMP_ORD_Q, "a comparison that is not there");
    for (int i = 0; i < 16; i++) {
        int yes = how == _CMP_ORD_Q ? a[i] == a[i] && b[i] == b[i] : !(a[i] < b[i]);
        k = (__mmask16)(k | yes << i);
    }
    return k;
}

/* What is left of x above the next integer below (how = 1). */
EMU __m512 _mm512_reduce_ps(__m512 x, int how)
{
    emu_need(how == 1, "a reduction that is not there");
    for (int i = 0; i < 16; i++) x[i] = isinf(x[i]) ? 0 : x[i] - floorf(x[i]);
    return x;
}

EMU __m512 _mm512_maskz_scalef_ps(__mmask16 k, __m512 a, __m512 b)
{
    for (int i = 0; i < 16; i++)
        a[i] = !(k >> i & 1)  ? 0
               : b[i] != b[i] ? b[i]
               : isinf(b[i])  ? (b[i] > 0 ? a[i] * INFINITY : 0)
                              : ldexpf(a[i], (int)floorf(b[i]));
    return a;
}

/* ------------------------------------------------------------------ halves */

EMU __m512 _mm512_cvtph_ps(__m256i x)
{
    __m512 y;
    for (int i = 0; i < 16; i++) {
        uint16_t h = ((emu_half)x)[i];
        int exponent = h >> 10 & 31, fraction = h & 1023;
        float f = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                 : ldexpf((float)fraction, -24);
        y[i] = h >> 15 ? -f : f;
    }
    return y;
}

EMU __m512i _mm512_cvtepu16_epi32(__m256i x)
{
    emu_words y;
    for (int i = 0; i < 16; i++) y[i] = ((emu_half)x)[i];
    return (__m512i)y;
}

EMU __m256i _mm512_cvtepi32_epi16(__m512i x)
{
    emu_half y;
    for (int i = 0; i < 16; i++) y[i] = (uint16_t)((emu_words)x)[i];
    return (__m256i)y;
}

EMU __m512i _mm512_permutexvar_epi16(__m512i at, __m512i x)
{
    emu_halves y;
    for (int i = 0; i < 32; i++) y[i] = ((emu_halves)x)[((emu_halves)at)[i] & 31];
    return (__m512i)y;
}

EMU __m512i _mm512_permutex2var_epi16(__m512i a, __m512i at, __m512i b)
{
    emu_halves y;
    for (int i = 0; i < 32; i++) y[i] = ((emu_halves)(((emu_halves)at)[i] & 32 ? b : a))[((emu_halves)at)[i] & 31];
    return (__m512i)y;
}

EMU __m256i _mm512_castsi512_si256(__m512i x)
{
    __m256i y;
    memcpy(&y, &x, sizeof y);
    return y;
}

EMU __m256i _mm512_extracti64x4_epi64(__m512i x, int upper)
{
    __m256i y;
    memcpy(&y, (const char *)&x + (upper ? 32 : 0), sizeof y);
    return y;
}

EMU __m256bh _mm512_cvtneps_pbh(__m512 x)
{
    emu_half y;
    for (int i = 0; i < 16; i++) y[i] = emu_narrow(x[i]);
    return (__m256bh)y;
}

EMU __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low)
{
    emu_halves y;
    for (int i = 0; i < 16; i++) {
        y[i] = emu_narrow(low[i]);
        y[i + 16] = emu_narrow(high[i]);
    }
    return (__m512bh)y;
}

EMU __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b)
{
    emu_halves x = (emu_halves)a, y = (emu_halves)b;
    for (int i = 0; i < 16; i++) {
        sum[i] += emu_wide(x[2 * i + 1]) * emu_wide(y[2 * i + 1]);
        sum[i] += emu_wide(x[2 * i]) * emu_wide(y[2 * i]);
    }
    return sum;
}

/* ------------------------------------------------------------------ tiles */

typedef struct EmuTile {
    int rows, bytes;
    char row[16][64];
} EmuTile;
static _Thread_local EmuTile emu_tile[8];

EMU EmuTile *emu_tile_at(int t)
{
    emu_need(t >= 0 && t < 8 && emu_tile[t].rows, "a tile that is not configured");
    return &emu_tile[t];
}

EMU void _tile_loadconfig(const void *p)
{
    const uint8_t *c = p;
    emu_need(c[0] == 1 && c[1] == 0, "not palette 1");
    for (int t = 0; t < 8; t++) {
        uint16_t bytes;
        memcpy(&bytes, c + 16 + 2 * t, 2);
        emu_need(bytes <= 64 && c[48 + t] <= 16, "a tile of more than 16 rows of 64 bytes");
        memset(&emu_tile[t], 0, sizeof emu_tile[t]);
        emu_tile[t].bytes = bytes;
        emu_tile[t].rows = c[48 + t];
    }
}

EMU void _tile_release(void) { memset(emu_tile, 0, sizeof emu_tile); }
EMU void _tile_zero(int t) { memset(emu_tile_at(t)->row, 0, sizeof emu_tile->row); }

EMU void _tile_loadd(int t, const void *p, int64_t step)
{
    EmuTile *x = emu_tile_at(t);
    for (int r = 0; r < x->rows; r++) memcpy(x->row[r], (const char *)p + r * step, (size_t)x->bytes);
}

EMU void _tile_stream_loadd(int t, const void *p, int64_t step) { _tile_loadd(t, p, step); }

EMU void _tile_stored(int t, void *p, int64_t step)
{
    EmuTile *x = emu_tile_at(t);
    for (int r = 0; r < x->rows; r++) memcpy((char *)p + r * step, x->row[r], (size_t)x->bytes);
}

/* c (16, 16) += a (16, 32) b (32, 16), b as 16 rows of pairs. */
static inline void _tile_dpbf16ps(int to, int left, int right)
{
    EmuTile *c = emu_tile_at(to), *a = emu_tile_at(left), *b = emu_tile_at(right);
    emu_need(a->bytes / 4 == b->rows && c->rows == a->rows && c->bytes == b->bytes, "tiles whose sizes do not fit");
    for (int m = 0; m < c->rows; m++) {
        __m512 sum;
        memcpy(&sum, c->row[m], 64);
        for (int k = 0; k < b->rows; k++) {
            int32_t pair;
            __m512bh line;
            memcpy(&pair, a->row[m] + 4 * k, 4);
            memcpy(&line, b->row[k], 64);
            sum = _mm512_dpbf16_ps(sum, line, (__m512bh)_mm512_set1_epi32(pair));
        }
        memcpy(c->row[m], &sum, 64);
    }
}

/* c (16, 16) += a (16, 64) b (64, 16), b as 16 rows of fours: signed by unsigned bytes. */
EMU void _tile_dpbsud(int to, int left, int right)
{
    EmuTile *c = emu_tile_at(to), *a = emu_tile_at(left), *b = emu_tile_at(right);
    emu_need(a->bytes / 4 == b->rows && c->rows == a->rows && c->bytes == b->bytes, "tiles whose sizes do not fit");
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->bytes / 4; n++) {
            int32_t sum;
            memcpy(&sum, c->row[m] + 4 * n, 4);
            for (int k = 0; k < a->bytes; k++)
                sum += (int8_t)a->row[m][k] * (uint8_t)b->row[k / 4][4 * n + k % 4];
            memcpy(c->row[m] + 4 * n, &sum, 4);
        }
}
#endif
