/* Element types. DT_F32 ... from dtype.def; 0 is DT_NONE. */
#ifndef QKV_TENSOR_DTYPE_H
#define QKV_TENSOR_DTYPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum DType {
    DT_NONE,
#define DTYPE(NAME, ...) DT_##NAME,
#include "tensor/dtype.def"
#undef DTYPE
    DT_COUNT
} DType;

const char *dtype_name(DType t);        /* "f32"; "none" for DT_NONE */
const char *dtype_safetensors(DType t); /* "F32"; NULL when the format has none */
size_t dtype_size(DType t);             /* bytes that an element takes in memory */
int dtype_bits(
    DType t); /* bits of information in an element: 4 or 2 for ONNX's small types, which take a byte in memory */
DType dtype_from_name(const char *s); /* accepts "f32", "float32", "F32", "torch.float32"; DT_NONE if unknown */
DType dtype_from_pt2(int64_t code);   /* DT_NONE if unknown */
int dtype_pt2(DType t);               /* -1: PyTorch has none */
bool dtype_is_float(DType t);
bool dtype_is_int(DType t); /* signed or unsigned; not bool */
bool dtype_is_complex(DType t);
double dtype_lowest(DType t);  /* the least finite value, or the next that a double has */
double dtype_highest(DType t); /* the largest */
double dtype_epsilon(DType t); /* of a float: from 1 to the next */
/* PyTorch's promotion of two dtypes of the same priority (c10::promoteTypes); DT_NONE if PyTorch has none. */
DType dtype_promote(DType a, DType b);

/* bf16 and f16 <-> f32, round to nearest even, NaN kept (c10::BFloat16, c10::Half). */
static inline float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? (uint16_t)0x7fc0u : (uint16_t)r;
}
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, em = h & 0x7fffu, u;
    float f;
    if (em >= 0x7c00u) u = sign | 0x7f800000u | ((em & 0x3ffu) << 13);
    else if (em >= 0x400u) u = sign | ((em << 13) + 0x38000000u);
    else {
        f = (float)em * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* >= 65536, and inf */
    if (a < 0x38800000u) {                                   /* subnormal in f16: let the adder round */
        float m;
        memcpy(&m, &a, 4);
        m += 0.5f;
        uint32_t v;
        memcpy(&v, &m, 4);
        return (uint16_t)(sign | (v - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}
#endif
