/* ONNX's ops that carry a state from call to call: CausalConvWithState and LinearAttention (opset 27). Contract in
 * onnx_impl.h.
 *
 *     CausalConvWithState(x, w, bias, past)    ->  cat(past, x), a convolution of each channel; the last elements are
 *                                                  the next state
 *     LinearAttention(q, k, v, past, decay)    ->  a Scan over the steps: S = S exp(decay) + k v; out = scale q S
 */
#include <string.h>
#include "onnx/read/read_impl.h"

static Expr *num(OnnxOp *o, int64_t n) { return ex_int(o->ex, n); }

/* x (B, C, L), w (C, 1, k), past (B, C, k - 1) */
bool onnx_causal_conv(OnnxOp *o)
{
    Value *x, *w, *bias, *past;
    const char *activation;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_optional(o, 2, &bias) && op_optional(o, 3, &past) &&
        op_attr_string(o, "activation", "none", &activation));
    if (x->rank != 3 || w->rank != 3) return op_fail(o, 0, "ranks %d and %d, expected 3", x->rank, w->rank);
    if (!ex_is_int(w->dim[0]) || !ex_is_int(w->dim[2]) || w->dim[2]->i < 1)
        return op_fail(o, 1, "its sizes are not constant");
    int64_t k = w->dim[2]->i, zero = 0, one = 1;
    bool silu = !strcmp(activation, "silu") || !strcmp(activation, "swish");
    if (!silu && strcmp(activation, "none"))
        return fail(o->im->err, E_FORMAT, "attribute 'activation' is '%.40s'", activation);
    Value *all = past ? AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){past, x}), arg_int(o->g, 2))
                      : AS(&o->L, constant_pad_nd, v(x), arg_ints(o->g, 2, (int64_t[]){k - 1, 0}), arg_float(o->g, 0));
    TRY(all);
    Arg ones = arg_ints(o->g, 1, &one), zeros = arg_ints(o->g, 1, &zero);
    Value *y = AS(&o->L, convolution, v(all), v(w), bias ? v(bias) : arg_none(), ones, zeros, ones,
                  arg_bool(o->g, false), zeros, arg_int(o->g, w->dim[0]->i));
    if (silu) y = AS(&o->L, silu, v(y));
    TRY(op_return(o, 0, y));
    if (!op_wants(o, 1)) return true;
    return op_return(o, 1,
                     AS(&o->L, slice_Tensor, v(all), arg_int(o->g, 2),
                        arg_expr(ex_sub(o->ex, all->dim[2], num(o, k - 1))), arg_expr(all->dim[2]), arg_int(o->g, 1)));
}

/* ------------------------------------------------------------------ linear attention */

enum { MAX_NODES = 8, MAX_INS = 8 };

/* The step as ONNX nodes, for onnx_scan: names are those of the inputs below. */
typedef struct Step {
    OnnxNode node[MAX_NODES];
    const char *in[MAX_NODES][2], *out[MAX_NODES];
    OnnxValueInfo input[MAX_INS], output[2];
    OnnxGraph body;
    Cell *cell[MAX_INS];
} Step;

static void say(Step *s, const char *op, const char *out, const char *a, const char *b)
{
    int k = s->body.nnode++;
    s->in[k][0] = a;
    s->in[k][1] = b;
    s->out[k] = out;
    s->node[k] = (OnnxNode){.name = out,
                            .op = op,
                            .domain = "",
                            .overload = "",
                            .input = s->in[k],
                            .ninput = 2,
                            .output = &s->out[k],
                            .noutput = 1};
}

static bool give(OnnxOp *o, Step *s, const char *name, Value *x)
{
    if (!x) return false;
    s->input[s->body.ninput].name = name;
    return (s->cell[s->body.ninput++] = cell_of_value(o->im, name, x)) != NULL;
}

/* (B, T, n) in float32 as (T, B, dims of a step ...) */
static Value *steps(OnnxOp *o, Value *x, int n, Expr *const *tail)
{
    Expr *dim[MAX_RANK] = {x->dim[0], x->dim[1]};
    int perm[MAX_RANK];
    for (int i = 0; i < n; i++) dim[2 + i] = tail[i];
    for (int i = 0; i < n + 2; i++) perm[i] = i == 0 ? 1 : i == 1 ? 0 : i;
    Value *y = lower_reshape(&o->L, lower_cast(&o->L, x, DT_F32), n + 2, dim);
    return y ? lower_permute(&o->L, y, perm) : NULL;
}

/* query (B, T, Hq dk), key (B, T, H dk), value (B, T, H dv), state (B, H, dk, dv), decay (B, T, H or H dk), beta (B,
 * T, H or 1) */
bool onnx_linear_attention(OnnxOp *o)
{
    Value *q, *k, *x, *past, *decay, *beta;
    int64_t heads, queries;
    double scale;
    const char *rule;
    TRY(op_tensor(o, 0, &q) && op_tensor(o, 1, &k) && op_tensor(o, 2, &x) && op_optional(o, 3, &past) &&
        op_optional(o, 4, &decay) && op_optional(o, 5, &beta) && op_attr_int(o, "kv_num_heads", 0, &heads) &&
        op_attr_int(o, "q_num_heads", 0, &queries) && op_attr_float(o, "scale", 0, &scale) &&
        op_attr_string(o, "update_rule", "gated_delta", &rule));
    bool gated = !strcmp(rule, "gated") || !strcmp(rule, "gated_delta"),
         delta = !strcmp(rule, "delta") || !strcmp(rule, "gated_delta");
    if (!gated && !delta && strcmp(rule, "linear"))
        return fail(o->im->err, E_FORMAT, "attribute 'update_rule' is '%.40s'", rule);
    if (gated != (decay != NULL) || delta != (beta != NULL))
        return fail(o->im->err, E_FORMAT, "update_rule '%s' %s decay and %s beta", rule, gated ? "needs" : "takes no",
                    delta ? "needs" : "takes no");
    if (heads < 1 || queries < 1 || queries % heads)
        return fail(o->im->err, E_FORMAT, "%lld query heads for %lld heads of keys", (long long)queries,
                    (long long)heads);
    if (q->rank != 3 || k->rank != 3 || x->rank != 3)
        return op_fail(o, 0, "ranks %d, %d and %d, expected 3", q->rank, k->rank, x->rank);
    Expr *one = num(o, 1), *H = num(o, heads), *group = num(o, queries / heads), *dk = ex_floordiv(o->ex, k->dim[2], H),
         *dv = ex_floordiv(o->ex, x->dim[2], H);
    Value *factor = scale != 0 ? op_number(o, DT_F32, scale)
                               : AS(&o->L, rsqrt,
                                    v(AS(&o->L, full, arg_ints(o->g, 0, NULL), arg_expr(dk), arg_dtype(DT_F32))));
    DType state_type = past ? past->dtype : q->dtype;
    Step *s = arena_new(o->g->arena, Step);
    if (!s) return oom(o->im->err);
    s->body = (OnnxGraph){
        .name = "step", .doc = "", .node = s->node, .input = s->input, .output = s->output, .noutput = 2};
    Value *start = past ? lower_cast(&o->L, past, DT_F32)
                        : AS(&o->L, full, arg_exprs(o->g, 4, (Expr *[]){q->dim[0], H, dk, dv}), arg_float(o->g, 0),
                             arg_dtype(DT_F32));
    TRY(give(o, s, "state", start) && give(o, s, "query", steps(o, q, 3, (Expr *[]){H, group, dk})) &&
        give(o, s, "column", steps(o, k, 3, (Expr *[]){H, dk, one})) &&
        give(o, s, "value", steps(o, x, 3, (Expr *[]){H, one, dv})));
    const char *state = "state", *write = "value";
    if (gated) {
        bool per_head = decay->rank == 3 && decay->dim[2] == H;
        if (decay->rank != 3) return op_fail(o, 4, "rank %d, expected 3", decay->rank);
        Value *by = steps(o, decay, 3, (Expr *[]){H, per_head ? one : dk, one});
        TRY(by && give(o, s, "decay", AS(&o->L, exp, v(by))));
        say(s, "Mul", "decayed", state, "decay");
        state = "decayed";
    }
    if (delta) {
        if (beta->rank != 3) return op_fail(o, 5, "rank %d, expected 3", beta->rank);
        TRY(give(o, s, "row", steps(o, k, 3, (Expr *[]){H, one, dk})) &&
            give(o, s, "beta", steps(o, beta, 3, (Expr *[]){beta->dim[2], one, one})));
        say(s, "MatMul", "known", "row", state);
        say(s, "Sub", "news", "value", "known");
        say(s, "Mul", "written", "beta", "news");
        write = "written";
    }
    say(s, "Mul", "added", "column", write);
    say(s, "Add", "next", state, "added");
    say(s, "MatMul", "read", "query", "next");
    s->output[0].name = "next";
    s->output[1].name = "read";
    OnnxAttr attr[] = {{.name = "body", .ref = "", .type = ONNX_ATTR_GRAPH, .g = &s->body, .n = 1},
                       {.name = "num_scan_inputs", .ref = "", .type = ONNX_ATTR_INT, .i = s->body.ninput - 1}};
    const char *names[MAX_INS], *outs[] = {"next", "read"};
    for (int i = 0; i < s->body.ninput; i++) names[i] = s->input[i].name;
    OnnxNode scan = {.name = o->node->name,
                     .op = "Scan",
                     .domain = "",
                     .overload = "",
                     .input = names,
                     .ninput = s->body.ninput,
                     .output = outs,
                     .noutput = 2,
                     .attr = attr,
                     .nattr = 2};
    OnnxOp inner = *o;
    Cell *results[2] = {NULL, NULL};
    inner.node = &scan;
    inner.in = s->cell;
    inner.out = results;
    TRY(onnx_scan(&inner));
    Value *last = cell_value(o->im, results[0]), *read = cell_value(o->im, results[1]);
    TRY(last && read);
    read = lower_permute(&o->L, AS(&o->L, mul_Tensor, v(read), v(factor)), (int[]){1, 0, 2, 3, 4});
    read = read ? lower_reshape(&o->L, read, 3, (Expr *[]){q->dim[0], q->dim[1], ex_mul(o->ex, num(o, queries), dv)})
                : NULL;
    TRY(op_return(o, 0, read ? lower_cast(&o->L, read, q->dtype) : NULL));
    return !op_wants(o, 1) || op_return(o, 1, lower_cast(&o->L, last, state_type));
}
