/* Resampling and pooling, portable; compiled once per ISA level. Contract in kernel/image.h. */
#include "kernel/image.h"
#include "kernel/variant.h"
#include "kernel/gen/sdpa_vec.h"

#define T float
#define ACC float
#define NAME(x) x##_f32
#include "kernel/gen/image_tmpl.h"

enum { WIDE = 4 };

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

#define TYPE DT_F32
#define LOAD(v) (v)
#define STORE(v) (v)
#include "kernel/gen/pool_tmpl.h"
#undef T
#undef NAME
#undef TYPE
#undef LOAD
#undef STORE
#define T uint16_t
#define NAME(x) x##_bf16
#define TYPE DT_BF16
#define LOAD(v) bf16_to_f32(v)
#define STORE(v) f32_to_bf16(v)
#include "kernel/gen/pool_tmpl.h"

void KERNEL(image_fill)(ImageKernels *k);

void KERNEL(image_fill)(ImageKernels *k)
{
    k->resample_f32 = resample_f32;
    k->largest_f32 = largest_f32;
    k->largest_bf16 = largest_bf16;
    k->mean_f32 = mean_f32;
    k->mean_bf16 = mean_bf16;
}
