/* Casts, creation, triangles and random numbers as ONNX ops.
 *
 *     aten.arange.start_step(0, s0, 2)   ->  Mul(Range(0, count, 1), 2)        count: the size of the result
 */
#include <math.h>
#include <string.h>
#include "onnx/write/write_impl.h"

static bool is_float8(DType t) { return dtype_is_float(t) && dtype_bits(t) == 8 && t != DT_F8E8M0; }

void out_to_copy(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    DType t = n->out[0]->dtype;
    if (dtype_is_complex(t) != dtype_is_complex(x.t))
        refuse(o, "ONNX has no element type %s", dtype_name(dtype_is_complex(t) ? t : x.t));
    else if (t == DT_BOOL && dtype_is_float(x.t))
        give(o, n, 0, negated(o, NODE(o, "Equal", DT_BOOL, x, like(o, x, 0)))); /* NaN is true */
    else if (dtype_is_float(x.t) && (t == DT_I8 || t == DT_U8 || t == DT_I16))
        give(o, n, 0, cast(o, cast(o, x, DT_I32), t)); /* wraps */
    else if (is_float8(t) && t != DT_F8E4M3 &&
             o->opt.opset >= 19) { /* too large is infinite or NaN, as PyTorch has it */
        attr_int(o, "to", dtype_to_onnx(t));
        attr_int(o, "saturate", 0);
        give(o, n, 0, NODE(o, "Cast", t, x));
    } else give(o, n, 0, cast(o, x, t));
}

enum { HAS_TYPE = 21, HAS_PRECISION = 23 };

typedef struct Quantizing { /* of a quantizer or its inverse */
    const Value *x, *scale;
    DType t; /* few bits */
    int64_t axis, block;
    bool zero, typed, precise; /* a zero point; none, and another type than ONNX takes it for; a type of the quotient */
} Quantizing;

static Quantizing quantizing(const Node *n)
{
    const bool back = n->op->id == OP_dequantize_linear;
    const Arg *axis = &n->arg[back ? 3 : 4];
    Quantizing q = {.x = arg_v(n, 0), .scale = arg_v(n, 1), .zero = given(n, 2), .block = axis[1].e->i};
    q.t = back ? q.x->dtype : n->out[0]->dtype;
    q.axis = axis->e->i < 0 ? axis->e->i + q.x->rank : axis->e->i;
    q.typed = !back && !q.zero && q.t != DT_U8;
    q.precise = !back && given(n, 7);
    if (q.t == DT_I32) q.t = DT_I8; /* a bias */
    return q;
}

/* Opset 13: to 8 bits of float32; 19: float8, float16; 21: 16 and 4 bits, blocks; 23: float4; 25: 2 bits */
static int quantized_since(const Quantizing *q)
{
    int bits = dtype_bits(q->t), since = ONNX_OPSET_MIN;
    if (q->scale->dtype != DT_F32 || (dtype_is_float(q->t) && bits == 8)) since = 19;
    if (q->block || bits == 16 || bits == 4) since = HAS_BLOCKS;
    if (q->t == DT_F4E2M1) since = 23;
    if (bits == 2) since = 25;
    return since;
}

/* A scale for each row of an activation? */
static bool of_rows(const Quantizing *q)
{
    return q->block && q->x->kind != V_WEIGHT && q->scale->rank == q->x->rank &&
           ex_equals_int(q->scale->dim[q->axis], 1) && q->scale->dtype == DT_F32;
}

/* Is that written as other ops at any opset? OpenVINO reads blocks of values whose sizes are known alone, and ONNX
 * Runtime fuses those with a zero point to a product that it then refuses to run. */
static bool rows_spelled_out(OnnxProfile p, const Quantizing *q)
{
    return of_rows(q) && (p == ONNX_FOR_OPENVINO || (p == ONNX_FOR_ORT && q->zero));
}

int quantizer_since(OnnxProfile p, const Node *n)
{
    const Quantizing q = quantizing(n);
    int since = quantized_since(&q);
    if (rows_spelled_out(p, &q)) return ONNX_OPSET_MIN;
    if (q.typed && since < HAS_TYPE) since = HAS_TYPE;
    return q.precise && since < HAS_PRECISION ? HAS_PRECISION : since;
}

static bool spells_rows(const Onnx *o, const Quantizing *q)
{
    return rows_spelled_out(o->opt.profile, q) || (o->opt.opset < HAS_BLOCKS && of_rows(q));
}

/* false: the opset does not have it, and the node is refused */
static bool has_quantizer(Onnx *o, const Quantizing *q)
{
    const int since = quantized_since(q);
    if (o->opt.opset < since)
        refuse(o, "%s with a scale of %s%s is quantized from opset %d on", dtype_name(q->t),
               dtype_name(q->scale->dtype), q->block ? " a block" : "", since);
    else if (q->precise && o->opt.opset < HAS_PRECISION)
        refuse(o, "the precision of the quotient is given from opset %d on", HAS_PRECISION);
    else if (q->typed && o->opt.opset < HAS_TYPE)
        refuse(o, "%s without a zero point is quantized from opset %d on", dtype_name(q->t), HAS_TYPE);
    else return true;
    return false;
}

static Ref rows_quantized(Onnx *o, Ref x, Ref scale, Ref zero, DType t)
{
    Ref y = NODE(o, "Round", DT_F32, NODE(o, "Div", DT_F32, cast(o, x, DT_F32), scale));
    if (*zero.name) y = NODE(o, "Add", DT_F32, y, cast(o, zero, DT_F32));
    return cast(o, NODE(o, "Clip", DT_F32, y, number(o, DT_F32, dtype_lowest(t)), number(o, DT_F32, dtype_highest(t))),
                t);
}

static Ref rows_dequantized(Onnx *o, Ref x, Ref scale, Ref zero)
{
    Ref y = cast(o, x, DT_F32);
    if (*zero.name) y = NODE(o, "Sub", DT_F32, y, cast(o, zero, DT_F32));
    return NODE(o, "Mul", DT_F32, y, scale);
}

void out_quantize_linear(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    DType t = n->out[0]->dtype;
    const Quantizing q = quantizing(n);
    Ref x = arg_ref(o, n, 0), scale = arg_ref(o, n, 1), zero = arg_ref(o, n, 2);
    if (spells_rows(o, &q)) {
        give(o, n, 0, rows_quantized(o, x, scale, zero, t));
        return;
    }
    if (!has_quantizer(o, &q)) return;
    attr_int(o, "axis", n->arg[4].e->i);
    if (q.block) attr_int(o, "block_size", q.block);
    if (!arg_b(n, 6)) attr_int(o, "saturate", 0);
    if (q.typed) attr_int(o, "output_dtype", dtype_to_onnx(t));
    if (q.precise) attr_int(o, "precision", dtype_to_onnx(n->arg[7].dtype));
    give(o, n, 0, NODE(o, "QuantizeLinear", t, x, scale, zero));
}

void out_dequantize_linear(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    DType t = n->out[0]->dtype;
    if (inside_nbits(o, n) || out_rows_of_blocks(o, n)) return;
    const Quantizing q = quantizing(n);
    Ref x = arg_ref(o, n, 0), scale = arg_ref(o, n, 1), zero = arg_ref(o, n, 2);
    if (spells_rows(o, &q)) {
        give(o, n, 0, cast(o, rows_dequantized(o, x, scale, zero), t));
        return;
    }
    if (!has_quantizer(o, &q)) return;
    attr_int(o, "axis", n->arg[3].e->i);
    if (q.block) attr_int(o, "block_size", q.block);
    give(o, n, 0, cast(o, NODE(o, "DequantizeLinear", scale.t, x, scale, zero), t)); /* runtimes lack output_dtype */
}

static Ref filled(Onnx *o, Ref value, const Value *v)
{
    return v->rank ? NODE(o, "Expand", value.t, value, shape_of(o, v->rank, v->dim)) : value;
}

void out_full(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    Expr *x = arg_e(n, 1);
    if (dtype_is_complex(v->dtype)) refuse(o, "ONNX has no element type %s", dtype_name(v->dtype));
    else if (x && !ex_is_const(x) && v->rank == 1 && ex_equals_int(v->dim[0], 1))
        give(o, n, 0, cast(o, size_of(o, x), v->dtype));
    else give(o, n, 0, filled(o, operand(o, n, 1, v->dtype), v));
}

/* start + i * step, in double or in int64 as PyTorch does, then in the dtype that is asked for. */
void out_arange(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    const Expr *start = arg_e(n, 0), *step = arg_e(n, 2);
    DType t = dtype_is_float(v->dtype) ? DT_F64 : DT_I64;
    Expr *end = arg_e(n, 1);
    bool plain = t == DT_I64 && end && !end->is_float && start && ex_equals_int(start, 0) && step &&
                 ex_equals_int(step, 1);
    Ref i = cast(o, positions(o, size_of(o, plain ? end : v->dim[0])), t);
    if (step && !(ex_is_const(step) && ex_equals_int(step, 1))) i = NODE(o, "Mul", t, i, operand(o, n, 2, t));
    if (start && !(ex_is_const(start) && ex_equals_int(start, 0))) i = NODE(o, "Add", t, i, operand(o, n, 0, t));
    give(o, n, 0, cast(o, i, v->dtype));
}

/* Between constants and not long: the elements that PyTorch has, of integers too. */
static bool linspace_elements(Onnx *o, const Node *n, int64_t steps)
{
    const Expr *start = arg_e(n, 0), *end = arg_e(n, 1);
    DType t = n->out[0]->dtype;
    if (!start || !end || !ex_is_const(start) || !ex_is_const(end) || steps < 0 || steps > 1 << 16) return false;
    void *elements = arena_alloc(o->a, (size_t)steps + 1, dtype_size(t));
    if (!elements) {
        out_of_memory(o);
        return true;
    }
    linspace_into(t, elements, ex_number(start), ex_number(end), steps);
    Tensor line = tensor_of(t, 1, &steps, elements);
    give(o, n, 0, tensor_const(o, &line, "linspace"));
    return true;
}

/* From both ends to the middle, as PyTorch does. */
void out_linspace(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    int64_t steps = arg_i(o, n, 2, 0);
    if (linspace_elements(o, n, steps)) return;
    if (!dtype_is_float(v->dtype) && steps != 1) refuse(o, "of integers");
    if (!dtype_is_float(v->dtype) || steps == 1) {
        give(o, n, 0, filled(o, operand(o, n, 0, v->dtype), v));
        return;
    }
    DType t = DT_F64, narrow = v->dtype == DT_F32 ? DT_F32 : t;
    Ref i = cast(o, positions(o, INTS(o, steps)), t), a = operand(o, n, 0, narrow), b = operand(o, n, 1, narrow);
    Ref step = NODE(o, "Div", narrow, NODE(o, "Sub", narrow, b, a), number(o, narrow, (double)(steps - 1)));
    step = cast(o, step, t);
    Ref up = NODE(o, "Add", t, cast(o, a, t), NODE(o, "Mul", t, step, i));
    Ref back = NODE(o, "Sub", t, number(o, t, (double)(steps - 1)), i);
    Ref down = NODE(o, "Sub", t, cast(o, b, t), NODE(o, "Mul", t, step, back));
    give(o, n, 0,
         cast(o, where(o, NODE(o, "Less", DT_BOOL, i, number(o, t, (double)(steps / 2))), up, down), v->dtype));
}

void out_eye(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    Ref i = unsqueeze(o, positions(o, size_of(o, v->dim[0])), 1),
        j = unsqueeze(o, positions(o, size_of(o, v->dim[1])), 0);
    give(o, n, 0, cast(o, NODE(o, "Equal", DT_BOOL, i, j), v->dtype));
}

/* The constant list of places in a triangle: rows, then columns. */
void out_tri_indices(Onnx *o, const Node *n, const char *text)
{
    int64_t rows = arg_i(o, n, 0, 0), cols = arg_i(o, n, 1, 0), offset = arg_i(o, n, 2, 0), count = 0;
    bool upper = !strcmp(text, "upper");
    if (o->refused || rows * cols > 1 << 24) {
        refuse(o, "a list of more than 2^24 places");
        return;
    }
    int64_t *place = arena_array(o->a, int64_t, 2 * rows * cols + 1);
    for (int pass = 0; place && pass < 2; pass++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                if (upper ? j - i >= offset : j - i <= offset) place[count++] = pass ? j : i;
    if (!place) {
        out_of_memory(o);
        return;
    }
    Tensor t = tensor_of(DT_I64, 2, (int64_t[]){2, count / 2}, place);
    give(o, n, 0, cast(o, tensor_const(o, &t, "places"), n->out[0]->dtype));
}

/* Which elements of a matrix are on the diagonal k or on the one side of it: bool (rows, columns). */
static Ref on_side(Onnx *o, const Value *v, Ref k, bool upper)
{
    Ref row = unsqueeze(o, positions(o, size_of(o, v->dim[v->rank - 2])), 1),
        column = unsqueeze(o, positions(o, size_of(o, v->dim[v->rank - 1])), 0);
    return NODE(o, upper ? "GreaterOrEqual" : "LessOrEqual", DT_BOOL, NODE(o, "Sub", DT_I64, column, row), k);
}

void out_triangle(Onnx *o, const Node *n, const char *text)
{
    Ref x = arg_ref(o, n, 0), k = operand(o, n, 1, DT_I64);
    bool upper = !strcmp(text, "upper");
    if (o->opt.opset < 14) { /* without Trilu */
        give(o, n, 0, where(o, on_side(o, n->out[0], k, upper), x, like(o, x, 0)));
        return;
    }
    attr_int(o, "upper", upper);
    give(o, n, 0, NODE(o, "Trilu", x.t, x, k));
}

/* ------------------------------------------------------------------ random numbers */

/* r, where what was rounded up to `end`, which is never drawn, is `start` */
static Ref below_end(Onnx *o, Ref r, double end, double start)
{
    DType t = r.t == DT_F64 ? DT_F64 : DT_F32; /* a dtype that Equal takes at every opset */
    Ref over = NODE(o, "Equal", DT_BOOL, cast(o, r, t), cast(o, number(o, r.t, end), t));
    return where(o, over, number(o, r.t, start), r);
}

/* Of the right kind; not PyTorch's. */
void out_random(Onnx *o, const Node *n, const char *text)
{
    const Value *v = n->out[0];
    if (for_ort(o) && o->opt.opset >= 22) {
        refuse(o, "ONNX Runtime has random numbers up to opset 21");
        return;
    }
    onnx_note(o, "'%s' (%s): random numbers are the runtime's, not PyTorch's", n->name, n->op->name);
    Ref base = v->rank ? NODE(o, "Expand", DT_F32, number(o, DT_F32, 0), shape_of(o, v->rank, v->dim))
                       : number(o, DT_F32, 0);
    attr_int(o, "dtype", ONNX_FLOAT);
    Ref r = NODE(o, !strcmp(text, "normal") ? "RandomNormalLike" : "RandomUniformLike", DT_F32, base);
    if (!strcmp(text, "integers")) {
        int64_t lo = arg_i(o, n, 0, 0), hi = arg_i(o, n, 1, 1);
        r = NODE(o, "Mul", DT_F32, r, number(o, DT_F32, (double)(hi - lo)));
        r = cast(o, NODE(o, "Floor", DT_F32, r), DT_I64);
        r = NODE(o, "Min", DT_I64, NODE(o, "Add", DT_I64, r, integer(o, lo)), integer(o, hi - 1));
    } else if (!strcmp(text, "between")) {
        double from = arg_f(o, n, 1, 0), to = arg_f(o, n, 2, 1);
        DType t = v->dtype == DT_F64 ? DT_F64 : DT_F32;
        r = NODE(o, "Mul", t, cast(o, r, t), number(o, t, to - from));
        r = below_end(o, cast(o, NODE(o, "Add", t, r, number(o, t, from)), v->dtype), to, from);
    } else if (!strcmp(text, "uniform") && dtype_size(v->dtype) < 4) {
        r = below_end(o, cast(o, r, v->dtype), 1, 0);
    } else if (!strcmp(text, "bernoulli")) {
        r = cast(o, NODE(o, "Less", DT_BOOL, r, number(o, DT_F32, arg_f(o, n, 1, 0.5))), v->dtype);
    } else if (!strcmp(text, "permutation")) { /* the order of as many numbers */
        Ref order[2];
        nodes_of(o, "TopK", 2, (DType[]){DT_F32, DT_I64}, order, 2, (Ref[]){r, size_of(o, v->dim[0])});
        r = order[1];
    }
    give(o, n, 0, cast(o, r, v->dtype));
}

/* x * where(x > 0, 1, u * (upper - lower) + lower) */
void out_rrelu(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    if (for_ort(o) && o->opt.opset >= 22) {
        refuse(o, "ONNX Runtime has random numbers up to opset 21");
        return;
    }
    onnx_note(o, "'%s' (%s): random numbers are the runtime's, not PyTorch's", n->name, n->op->name);
    DType t = n->out[0]->dtype;
    double low = arg_f(o, n, 2, 0.125), high = arg_f(o, n, 3, 1.0 / 3);
    Ref x = ref(o, n->arg[0].v);
    attr_int(o, "dtype", ONNX_FLOAT);
    Ref u = cast(o, NODE(o, "RandomUniformLike", DT_F32, x), t);
    u = NODE(o, "Add", t, NODE(o, "Mul", t, u, number(o, t, high - low)), number(o, t, low));
    u = NODE(o, "Where", t, NODE(o, "Greater", DT_BOOL, x, number(o, t, 0)), number(o, t, 1), u);
    Ref y = NODE(o, "Mul", t, x, u);
    give(o, n, 0, y);
    give(o, n, 1, u);
}
