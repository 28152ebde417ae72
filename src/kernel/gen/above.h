/* Included where V is a vector of W floats. */

/* x, or the floor where x is below it; NaN stays. */
INLINE V above(V low, V x)
{
#if defined(__AVX512F__)
    return (V)_mm512_max_ps((__m512)low, (__m512)x);
#elif defined(__AVX2__)
    return (V)_mm256_max_ps((__m256)low, (__m256)x);
#else
    typedef int32_t Ints __attribute__((vector_size(W * 4)));
    Ints below = x < low;
    return (V)(((Ints)low & below) | ((Ints)x & ~below));
#endif
}
