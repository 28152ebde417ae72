/* Peak of products of bf16 and bytes: AVX-512's dot products of pairs and fours, and AMX tiles. Contract in
 * kernel/peak.h. */
#include "kernel/peak.h"
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw,avx512bf16"))) static double dots(int64_t rounds, float *sink)
{
    __m512bh half = (__m512bh)_mm512_set1_epi16(0x3f00);
    __m512 a[16], s = _mm512_setzero_ps();
    for (int i = 0; i < 16; i++) a[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) a[i] = _mm512_dpbf16_ps(a[i], half, half);
    for (int i = 0; i < 16; i++) s = _mm512_add_ps(s, a[i]);
    *sink = _mm512_reduce_add_ps(s);
    return 16.0 * 32 * 2 * (double)rounds;
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) static double fours(int64_t rounds, float *sink)
{
    __m512i a[16], ones = _mm512_set1_epi32(0x01010101), s = _mm512_setzero_si512();
    for (int i = 0; i < 16; i++) a[i] = _mm512_set1_epi32(i);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) a[i] = _mm512_dpbusd_epi32(a[i], ones, ones);
    for (int i = 0; i < 16; i++) s = _mm512_add_epi32(s, a[i]);
    *sink = (float)_mm512_reduce_add_epi32(s);
    return 16.0 * 64 * 2 * (double)rounds;
}

/* Two by two tiles of 16 x 16 sums, each product 16 x 16 x 32. */
__attribute__((target("amx-tile,amx-bf16"))) static double tiles(int64_t rounds, float *sink)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    uint16_t ones[512] __attribute__((aligned(64)));
    float out[256] __attribute__((aligned(64)));
    for (int i = 0; i < 512; i++) ones[i] = 0x3f80;
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
    }
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    *sink = 0;
    _tile_stored(0, out, 64);
    *sink += out[0];
    _tile_stored(1, out, 64);
    *sink += out[0];
    _tile_stored(2, out, 64);
    *sink += out[0];
    _tile_stored(3, out, 64);
    *sink += out[0];
    _tile_release();
    return 4.0 * 16 * 16 * 32 * 2 * (double)rounds;
}

void peak_fill_avx512vnni(PeakKernels *k);
void peak_fill_avx512vnni(PeakKernels *k) { k->i8 = fours; }

void peak_fill_avx512bf16(PeakKernels *k);
void peak_fill_avx512bf16(PeakKernels *k)
{
    k->bf16 = dots;
    k->bf16_by = "AVX-512-BF16";
}

void peak_fill_amx(PeakKernels *k);
void peak_fill_amx(PeakKernels *k)
{
    k->bf16 = tiles;
    k->bf16_by = "AMX tiles";
}
