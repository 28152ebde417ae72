#include "tensor/dtype.h"
#include "base/number.h"

static const struct {
    const char *name, *st;
    size_t size;
    int code;
    char kind;
    double lowest, highest, epsilon;
} info[DT_COUNT] = {
    [DT_NONE] = {"none", "none", 0, 0, 'N', 0, 0, 0},
#define DTYPE(NAME, text, bytes, code, st, kind, ...) [DT_##NAME] = {text, st, bytes, code, #kind[0], __VA_ARGS__},
#include "tensor/dtype.def"
#undef DTYPE
};

const char *dtype_name(DType t) { return info[t].name; }
const char *dtype_safetensors(DType t) { return info[t].st; }
size_t dtype_size(DType t) { return info[t].size; }
int dtype_pt2(DType t) { return info[t].code; }
bool dtype_is_float(DType t) { return info[t].kind == 'F'; }
bool dtype_is_int(DType t) { return info[t].kind == 'I' || info[t].kind == 'U'; }
double dtype_lowest(DType t) { return info[t].lowest; }
double dtype_highest(DType t) { return info[t].highest; }
double dtype_epsilon(DType t) { return info[t].epsilon; }
bool dtype_is_complex(DType t) { return info[t].kind == 'C'; }
int dtype_bits(DType t)
{
    return t == DT_I4 || t == DT_U4 || t == DT_F4E2M1 ? 4 : t == DT_I2 || t == DT_U2 ? 2 : (int)info[t].size * 8;
}

DType dtype_from_name(const char *s)
{
    static const struct {
        const char *name;
        DType t;
    } torch_names[] = {
        {"float32", DT_F32}, {"float", DT_F32},     {"float64", DT_F64}, {"double", DT_F64},    {"float16", DT_F16},
        {"half", DT_F16},    {"bfloat16", DT_BF16}, {"int64", DT_I64},   {"long", DT_I64},      {"int32", DT_I32},
        {"int", DT_I32},     {"int16", DT_I16},     {"short", DT_I16},   {"int8", DT_I8},       {"uint8", DT_U8},
        {"uint16", DT_U16},  {"uint32", DT_U32},    {"uint64", DT_U64},  {"complex64", DT_C64}, {"complex128", DT_C128},
    };
    if (!strncmp(s, "torch.", 6)) s += 6;
    for (int t = DT_NONE + 1; t < DT_COUNT; t++)
        if (!strcmp(s, info[t].name) || (info[t].st && !strcmp(s, info[t].st))) return (DType)t;
    for (size_t i = 0; i < sizeof torch_names / sizeof *torch_names; i++)
        if (same_word(s, torch_names[i].name)) return torch_names[i].t;
    return DT_NONE;
}

DType dtype_from_pt2(int64_t code)
{
    for (int t = DT_NONE + 1; t < DT_COUNT; t++)
        if (info[t].code == code && code >= 0) return (DType)t;
    return DT_NONE;
}

/* c10/core/ScalarType.cpp: promoteTypes. Signed and unsigned 8-bit meet in i16; a float beats any integer;
 * f16 with bf16 is f32; complex takes the width of the wider side. */
DType dtype_promote(DType a, DType b)
{
    if (a == b) return a;
    if (a == DT_NONE || b == DT_NONE || dtype_bits(a) < 8 || dtype_bits(b) < 8) return DT_NONE;
    if (dtype_is_complex(a) || dtype_is_complex(b)) {
        bool wide = a == DT_C128 || b == DT_C128 || a == DT_F64 || b == DT_F64;
        bool half = (a == DT_C32 || a == DT_F16 || !(dtype_is_complex(a) || dtype_is_float(a))) &&
                    (b == DT_C32 || b == DT_F16 || !(dtype_is_complex(b) || dtype_is_float(b)));
        return wide ? DT_C128 : half ? DT_C32 : DT_C64;
    }
    if (dtype_is_float(a) && dtype_is_float(b)) {
        if (dtype_size(a) == 1 || dtype_size(b) == 1)
            return dtype_size(a) == dtype_size(b) ? DT_NONE : dtype_size(a) == 1 ? b : a;
        return a == DT_F64 || b == DT_F64 ? DT_F64 : DT_F32;
    }
    if (dtype_is_float(a)) return a;
    if (dtype_is_float(b)) return b;
    if (a == DT_BOOL) return b;
    if (b == DT_BOOL) return a;
    bool ua = info[a].kind == 'U', ub = info[b].kind == 'U';
    if (ua == ub) return dtype_size(a) > dtype_size(b) ? a : b;
    DType s = ua ? b : a, u = ua ? a : b;
    if (u != DT_U8) return DT_NONE;
    return dtype_size(s) > 1 ? s : DT_I16;
}
