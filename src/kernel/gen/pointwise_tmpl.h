/* One type's pointwise kernels; included per type by pointwise.c with T, NAME(x) and the F_ macros set. */

#ifdef FLOAT_OPS
/* Derivatives of x Phi(x) and of its form by tanh. A sum has one product at most:
 * of two the compiler would fuse one in vectors, the other in what is left. */
INLINE T NAME(gelu_slope)(T x)
{
    return (T)0.5 + (T)0.5 * F_ERF(x * (T)0.70710678118654752440) +
           x * F_EXP((T)-0.5 * x * x) * (T)0.39894228040143267794;
}

INLINE T NAME(gelu_tanh_slope)(T x)
{
    T t = F_TANH((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x));
    return (T)0.5 + (T)0.5 * t + x * (1 - t * t) * ((T)0.39894228040143267794 + (T)0.053516112204450186 * x * x);
}
#endif

static bool NAME(unary)(PointwiseOp op, T *out, const T *in, int64_t n, const double *p)
{
    switch (op) {
#define UNARY(name, e)                                                                                                 \
    case PW_##name:                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T x = in[i];                                                                                               \
            out[i] = (T)(e);                                                                                           \
        }                                                                                                              \
        return true;
#ifdef FLOAT_OPS
#define FLOAT_UNARY(name, e) UNARY(name, e)
#else
#define INT_UNARY(name, e) UNARY(name, e)
#endif
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
    default: (void)p; return false;
    }
}

static bool NAME(binary)(PointwiseOp op, T *out, const T *x, const T *y, int64_t n)
{
    switch (op) {
#define BINARY(name, e)                                                                                                \
    case PW_##name:                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T a = x[i], b = y[i];                                                                                      \
            out[i] = (T)(e);                                                                                           \
        }                                                                                                              \
        return true;
#ifdef FLOAT_OPS
#define FLOAT_BINARY(name, e) BINARY(name, e)
#else
#define INT_BINARY(name, e) BINARY(name, e)
#endif
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
    default: return false;
    }
}

static bool NAME(compare)(PointwiseOp op, uint8_t *out, const T *x, const T *y, int64_t n)
{
    switch (op) {
#define COMPARE(name, e)                                                                                               \
    case PW_##name:                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T a = x[i], b = y[i];                                                                                      \
            out[i] = (e) ? 1 : 0;                                                                                      \
        }                                                                                                              \
        return true;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
    default: return false;
    }
}

static bool NAME(test)(PointwiseOp op, uint8_t *out, const T *in, int64_t n)
{
    switch (op) {
#define TEST(name, e)                                                                                                  \
    case PW_##name:                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T x = in[i];                                                                                               \
            out[i] = (e) ? 1 : 0;                                                                                      \
        }                                                                                                              \
        return true;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
    default: return false;
    }
}

static void NAME(where)(T *out, const uint8_t *c, const T *a, const T *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = c[i] ? a[i] : b[i];
}

/* The loops differ by the element type that is read, not by what is done. */
#define LOAD(NAME_, E, conv)                                                                                           \
    case DT_##NAME_:                                                                                                   \
        if (stride == (int64_t)sizeof(E))                                                                              \
            for (int64_t i = 0; i < n; i++) out[i] = (T)conv(((const E *)in)[i]);                                      \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) out[i] = (T)conv(*(const E *)((const char *)in + i * stride));             \
        return true;

static bool NAME(load_row)(T *out, DType t, const void *in, int64_t stride, int64_t n)
{
    if (stride == 0 && n > 1) { /* one element, converted once */
        if (!NAME(load_row)(out, t, in, 0, 1)) return false;
        for (int64_t i = 1; i < n; i++) out[i] = out[0];
        return true;
    }
    switch (t) {
        LOAD(F32, float, FROM_FLOAT)
        LOAD(F64, double, FROM_FLOAT)
        LOAD(F16, uint16_t, FROM_F16)
        LOAD(BF16, uint16_t, FROM_BF16)
        LOAD(I64, int64_t, )
        LOAD(I32, int32_t, )
        LOAD(I16, int16_t, )
        LOAD(I8, int8_t, )
        LOAD(U8, uint8_t, )
        LOAD(U16, uint16_t, )
        LOAD(U32, uint32_t, )
        LOAD(U64, uint64_t, )
        LOAD(BOOL, uint8_t, (T)0 !=)
    default: return false;
    }
}
#undef LOAD

#define STORE(NAME_, E, conv)                                                                                          \
    case DT_##NAME_:                                                                                                   \
        for (int64_t i = 0; i < n; i++) ((E *)out)[i] = (E)conv(in[i]);                                                \
        return true;

static bool NAME(store_row)(DType t, void *out, const T *in, int64_t n)
{
    switch (t) {
        STORE(F32, float, )
        STORE(F64, double, )
        STORE(F16, uint16_t, TO_F16)
        STORE(BF16, uint16_t, TO_BF16)
        STORE(I64, int64_t, TO_INT)
        STORE(I32, int32_t, TO_I32)
        STORE(I16, int16_t, TO_I32)
        STORE(I8, int8_t, TO_I32)
        STORE(U8, uint8_t, TO_I32)
        STORE(U16, uint16_t, TO_INT)
        STORE(U32, uint32_t, TO_INT)
        STORE(U64, uint64_t, TO_U64)
        STORE(BOOL, uint8_t, (T)0 !=)
    default: return false;
    }
}
#undef STORE
