/* Which dtypes an op takes, as onnx_types.def lists them: elsewhere nodes_of casts to a wider dtype and back. */
#include <string.h>
#include "onnx/write/write_impl.h"

enum {
    F32 = 1 << DT_F32,
    F64 = 1 << DT_F64,
    F16 = 1 << DT_F16,
    BF16 = 1 << DT_BF16,
    I64 = 1 << DT_I64,
    I32 = 1 << DT_I32,
    I16 = 1 << DT_I16,
    I8 = 1 << DT_I8,
    U8 = 1 << DT_U8,
    BOOL = 1 << DT_BOOL,
    U16 = 1 << DT_U16,
    U32 = 1 << DT_U32,
    U64 = 1 << DT_U64
};

static const TypeRule rules[] = {
#define TYPES(op, inputs, output, to22, from23, ort) {#op, inputs, output, to22, from23, ort},
#include "onnx/write/types.def"
#undef TYPES
};

const TypeRule *type_rule(const char *op)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].op, op)) return &rules[i];
    return NULL;
}

bool type_taken(const Onnx *o, const TypeRule *r, DType t)
{
    uint32_t mask = o->opt.opset >= 23 ? r->at23 : r->at22;
    if (for_ort(o)) mask &= r->ort;
    return mask >> t & 1 && opset_takes(o, r, t);
}

/* Every number of t is one of the wider dtype, and back. */
DType type_wider(const Onnx *o, const TypeRule *r, DType t)
{
    static const struct {
        DType t, wider[4];
    } ladder[] = {
        {DT_BOOL, {DT_U8, DT_I32, DT_I64, DT_F32}},
        {DT_U8, {DT_I32, DT_I64, DT_F32}},
        {DT_I8, {DT_I32, DT_I64, DT_F32}},
        {DT_I16, {DT_I32, DT_I64, DT_F32}},
        {DT_U16, {DT_I32, DT_I64, DT_F32}},
        {DT_I32, {DT_I64, DT_F64}},
        {DT_U32, {DT_I64, DT_F64}},
        {DT_U64, {DT_I64}},
        {DT_I64, {DT_F64}},
        {DT_F16, {DT_F32}},
        {DT_BF16, {DT_F32}},
    };
    for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++)
        for (int k = 0; ladder[i].t == t && k < 4 && ladder[i].wider[k]; k++)
            if (type_taken(o, r, ladder[i].wider[k])) return ladder[i].wider[k];
    return DT_NONE;
}
