/* Gradients against finite differences in float64: every row of the op table that has one.
 *
 * A case is a graph whose last value is y; the loss is the sum of y times numbers between 0 and 1, so that every
 * element of y counts differently. Rows with formulas need no case: their graph is made from the schema.
 */
#include <math.h>
#include "grad/grad.h"
#include "plan/fuse.h"
#include "run/session.h"
#include "unit_graph.h"

typedef struct Case {
    const char *op; /* whose gradient it tests */
    double lo, hi;  /* of inputs */
    const char *text;
} Case;

#define X "input %x: f64[2, 3]\n"
#define X3 "input %x: f64[2, 3, 4]\n"
#define PICTURE "input %x: f64[2, 4, 5, 6]\n"
#define I3 "weight %w: i64[3] = constant \"i64[3]\"\n%i: i64[3] = aten.remainder.Tensor(%w, 2)\n" /* 1 0 1 */
#define BESIDE X "weight %w: f64[6] = constant \"f64[6]\"\n%a: f64[2, 3] = aten.reshape.default(%w, [2, 3])\n"
#define ROIS                                                                                                           \
    "weight %w: f64[10] = constant \"f64[10]\"\n%r: f64[10] = aten.remainder.Tensor(%w, 7)\n"                          \
    "%s: f64[2, 5] = aten.reshape.default(%r, [2, 5])\n"                                                               \
    "%b: f64[2, 1] = aten.slice.Tensor(%s, 1, 0, 1, 1)\n%i: f64[2, 1] = aten.remainder.Tensor(%b, 2)\n"                \
    "%p: f64[2, 4] = aten.slice.Tensor(%s, 1, 1, 5, 1)\n"                                                              \
    "%rois: f64[2, 5] = aten.cat.default([%i, %p], 1)\n"
/* A matrix that has an inverse, and one that is symmetric and positive: x + 3, a a^T */
#define REGULAR                                                                                                        \
    "input %x: f64[2, 3, 3]\n%e: f64[3, 3] = aten.eye.m(3, 3, dtype=f64)\n%t: f64[3, 3] = aten.mul.Tensor(%e, 3)\n"    \
    "%a: f64[2, 3, 3] = aten.add.Tensor(%x, %t)\n"
#define SYMMETRIC                                                                                                      \
    REGULAR "%at: f64[2, 3, 3] = aten.permute.default(%a, [0, 2, 1])\n%s: f64[2, 3, 3] = aten.matmul.default(%a, %at)\n"
#define QKV "input %q: f64[2, 4, 3, 2]\ninput %k: f64[2, 4, 5, 2]\ninput %v: f64[2, 4, 5, 3]\n"

/* Three steps of two sequences, G gates of a state of two */
#define RECURRENT(G) "input %x: f64[3, 2, " #G "]\ninput %w: f64[" #G ", 2]\ninput %h: f64[2, 2]\n"

/* beyond the range of i8 everywhere: a constant; what is within it: test_straight_through */
#define SATURATED                                                                                                      \
    X "%s: f32[] = aten.full.default([], 0.001, dtype=f32)\n"                                                          \
      "%q: i8[2, 3] = qkv.quantize_linear.default(%x, %s, none, i8)\n"                                                 \
      "%d: f64[2, 3] = qkv.dequantize_linear.default(%q, %s, none, dtype=f64)\n"                                       \
      "%y: f64[2, 3] = aten.mul.Tensor(%d, %x)\n"

static const Case cases[] = {
    {"quantize_linear", 1, 2, SATURATED},
    {"dequantize_linear", 1, 2, SATURATED},
    /* special functions, by their second operand */
    {"special_zeta", 0.5, 3, "input %x: f64[2, 3]\n%y: f64[2, 3] = aten.special_zeta.default(2.5, %x)\n"},
    {"igamma", 0.5, 3,
     "input %x: f64[2, 3]\n%a: f64[3] = aten.full.default([3], 1.5, dtype=f64)\n"
     "%y: f64[2, 3] = aten.igamma.default(%a, %x)\n"},
    {"igammac", 0.5, 3,
     "input %x: f64[2, 3]\n%a: f64[3] = aten.full.default([3], 1.5, dtype=f64)\n"
     "%y: f64[2, 3] = aten.igammac.default(%a, %x)\n"},
    /* views */
    {"reshape", -1, 1,
     "symbol s in [1, 8]\ninput %x: f64[s, 4]\n%y: f64[2*s, 2] = aten.reshape.default(%x, [2*s, 2])\n"},
    {"permute", -1, 1, X3 "%y: f64[4, 2, 3] = aten.permute.default(%x, [2, 0, -2])\n"},
    {"expand", -1, 1,
     "symbol s in [1, 8]\ninput %x: f64[s, 1]\n%y: f64[2, s, 3] = aten.expand.default(%x, [2, s, 3])\n"},
    {"select_int", -1, 1, X3 "%y: f64[2, 4] = aten.select.int(%x, 1, 2)\n"},
    {"slice_Tensor", -1, 1, X3 "%y: f64[2, 2, 4] = aten.slice.Tensor(%x, 1, 1, 3, 1)\n"},
    {"slice_Tensor", -1, 1, X3 "%y: f64[2, 3, 2] = aten.slice.Tensor(%x, 2, 1, 4, 2)\n"},
    {"slice_Tensor", -1, 1, /* parts that tile an axis, one of them used twice */
     "symbol s in [2, 8]\ninput %x: f64[2, s]\n%a: f64[2, 1] = aten.slice.Tensor(%x, 1, 0, 1, 1)\n"
     "%b: f64[2, s - 1] = aten.slice.Tensor(%x, 1, 1, s, 1)\n"
     "%c: f64[2, s - 1] = aten.sin.default(%b)\n%d: f64[2, s - 1] = aten.mul.Tensor(%c, %a)\n"
     "%y: f64[2, s - 1] = aten.add.Tensor(%d, %b)\n"},
    {"slice_Tensor", -1, 1, /* parts that overlap */
     X "%a: f64[2, 2] = aten.slice.Tensor(%x, 1, 0, 2, 1)\n%b: f64[2, 2] = aten.slice.Tensor(%x, 1, 1, 3, 1)\n"
       "%y: f64[2, 2] = aten.mul.Tensor(%a, %b)\n"},
    {"diagonal", -1, 1, X3 "%y: f64[3, 2] = aten.diagonal.default(%x, 1, 0, 2)\n"},
    {"unfold", -1, 1, "input %x: f64[2, 7]\n%y: f64[2, 3, 3] = aten.unfold.default(%x, 1, 3, 2)\n"},
    {"unfold", -1, 1, "input %x: f64[5, 2]\n%y: f64[2, 2, 3] = aten.unfold.default(%x, 0, 3, 2)\n"},
    {"cat", -1, 1,
     X
     "input %z: f64[2, 2]\n%a: f64[2, 8] = aten.cat.default([%x, %z, %x], 1)\n%y: f64[2, 8] = aten.sin.default(%a)\n"},
    {"flip", -1, 1, X3 "%y: f64[2, 3, 4] = aten.flip.default(%x, [0, 2])\n"},
    {"tril", -1, 1, X "%y: f64[2, 3] = aten.tril.default(%x, 1)\n"},
    {"triu", -1, 1, X "%y: f64[2, 3] = aten.triu.default(%x, 1)\n"},
    {"constant_pad_nd", -1, 1, X "%y: f64[3, 4] = aten.constant_pad_nd.default(%x, [2, -1, 1, 0], 0.5)\n"},
    {"reflection_pad1d", -1, 1, X "%y: f64[2, 7] = aten.reflection_pad1d.default(%x, [2, 2])\n"},
    {"replication_pad1d", -1, 1, X "%y: f64[2, 6] = aten.replication_pad1d.default(%x, [1, 2])\n"},
    {"rrelu_with_noise_functional", -1, 1, /* drawn between two equal numbers */
     X "%y: f64[2, 3], %n: f64[2, 3] = aten.rrelu_with_noise_functional.default(%x, %x, 0.25, 0.25, true)\n"},
    {"lstm_layer", -1, 1,
     RECURRENT(8) "input %c: f64[2, 2]\n"
                  "%y: f64[3, 2, 2], %e: f64[2, 2] = qkv.lstm_layer.default(%x, %w, none, %h, %c, none, true)\n"},
    {"rnn_layer", -1, 1, RECURRENT(6) "%y: f64[3, 2, 2] = qkv.rnn_layer.default(%x, %w, none, %h, \"gru\", false)\n"},
    {"rnn_layer", -1, 1, RECURRENT(2) "%y: f64[3, 2, 2] = qkv.rnn_layer.default(%x, %w, none, %h, \"tanh\", true)\n"},
    /* indexing */
    {"embedding", -1, 1, "input %x: f64[4, 3]\n" I3 "%y: f64[3, 3] = aten.embedding.default(%x, %i)\n"},
    {"gather", -1, 1,
     X "weight %w: i64[2, 4] = constant \"i64[2, 4]\"\n%i: i64[2, 4] = aten.remainder.Tensor(%w, 3)\n"
       "%y: f64[2, 4] = aten.gather.default(%x, 1, %i)\n"},
    {"index_select", -1, 1, X3 I3 "%y: f64[2, 3, 4] = aten.index_select.default(%x, 1, %i)\n"},
    {"index_Tensor", -1, 1, X3 I3 "%y: f64[2, 3, 4] = aten.index.Tensor(%x, [none, %i])\n"},
    {"index_Tensor", -1, 1, X3 I3 "%y: f64[3, 3] = aten.index.Tensor(%x, [%i, none, %i])\n"},
    {"index_put", -1, 1,
     X3 "input %z: f64[3, 4]\n" I3 "%y: f64[2, 3, 4] = aten.index_put.default(%x, [none, %i], %z, true)\n"},
    {"index_put", -1, 1,
     X3 "input %z: f64[4]\nweight %i: i64[1] = constant \"i64[1]\"\n"
        "%y: f64[2, 3, 4] = aten.index_put.default(%x, [none, %i], %z)\n"},
    {"scatter_src", -1, 1,
     X "input %z: f64[1, 3]\nweight %i: i64[1, 1] = constant \"i64[1, 1]\"\n"
       "%j: i64[1, 3] = aten.expand.default(%i, [1, 3])\n"
       "%y: f64[2, 3] = aten.scatter.src(%x, 0, %j, %z)\n"},
    {"scatter_add", -1, 1,
     X "input %z: f64[2, 3]\nweight %w: i64[2, 3] = constant \"i64[2, 3]\"\n"
       "%i: i64[2, 3] = aten.remainder.Tensor(%w, 2)\n"
       "%y: f64[2, 3] = aten.scatter_add.default(%x, 1, %i, %z)\n"},
#define INDEXED                                                                                                        \
    X "input %z: f64[2, 3]\nweight %w: i64[2, 3] = constant \"i64[2, 3]\"\n"                                           \
      "%i: i64[2, 3] = aten.remainder.Tensor(%w, 2)\n"
    {"scatter_reduce_two", -1, 1,
     INDEXED "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"sum\", include_self=false)\n"},
    {"scatter_reduce_two", -1, 1, INDEXED "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"mean\")\n"},
#define IN_LARGER                                                                                                      \
    "symbol s in [2, 8]\n" X "input %z: f64[s, 4]\nweight %w: i64[2, 3] = constant \"i64[2, 3]\"\n"                  \
    "%i: i64[2, 3] = aten.remainder.Tensor(%w, 2)\n"
    {"scatter_src", -1, 1,
     "symbol s in [1, 8]\n" X "input %z: f64[s, 5]\nweight %i: i64[1, 1] = constant \"i64[1, 1]\"\n"
     "%j: i64[1, 3] = aten.expand.default(%i, [1, 3])\n%y: f64[2, 3] = aten.scatter.src(%x, 0, %j, %z)\n"},
    {"scatter_add", -1, 1, IN_LARGER "%y: f64[2, 3] = aten.scatter_add.default(%x, 1, %i, %z)\n"},
    {"scatter_reduce_two", -1, 1, IN_LARGER "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"mean\")\n"},
    {"scatter_reduce_two", -1, 1, IN_LARGER "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"amax\")\n"},
    {"scatter_reduce_two", -1, 1, IN_LARGER "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"prod\")\n"},
    {"scatter_reduce_two", -1, 1,
     INDEXED "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"mean\", include_self=false)\n"},
    {"scatter_reduce_two", -1, 1, INDEXED "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"amax\")\n"},
    {"scatter_reduce_two", -1, 1,
     INDEXED "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"amin\", include_self=false)\n"},
    {"as_strided", -1, 1, /* windows that overlap */
     "input %x: f64[3, 5]\n%y: f64[4, 3] = aten.as_strided.default(%x, [4, 3], [2, 3], 1)\n"},
    {"as_strided_scatter", -1, 1,
     "input %x: f64[3, 5]\ninput %z: f64[2, 3]\n"
     "%y: f64[3, 5] = aten.as_strided_scatter.default(%x, %z, [2, 3], [6, 1], 1)\n"},
    {"slice_scatter", -1, 1, X "input %z: f64[2, 2]\n%y: f64[2, 3] = aten.slice_scatter.default(%x, %z, 1, 0, 2, 1)\n"},
    {"select_scatter", -1, 1, X "input %z: f64[3]\n%y: f64[2, 3] = aten.select_scatter.default(%x, %z, 0, 1)\n"},
    {"diagonal_scatter", -1, 1, X "input %z: f64[2]\n%y: f64[2, 3] = aten.diagonal_scatter.default(%x, %z, 1)\n"},
    /* pointwise rows that are not formulas */
    {"gelu_backward", -2, 2, BESIDE "%y: f64[2, 3] = aten.gelu_backward.default(%x, %a)\n"},
    {"gelu_backward", -2, 2, BESIDE "%y: f64[2, 3] = aten.gelu_backward.default(%x, %a, approximate=\"tanh\")\n"},
    {"gelu", -2, 2, X "%y: f64[2, 3] = aten.gelu.default(%x)\n"},
    {"gelu", -2, 2, X "%y: f64[2, 3] = aten.gelu.default(%x, approximate=\"tanh\")\n"},
    {"clamp", -1, 1, X "%y: f64[2, 3] = aten.clamp.default(%x, -0.3, 0.4)\n"},
    {"clamp", -1, 1, X "%y: f64[2, 3] = aten.clamp.default(%x, none, 0.1)\n"},
    {"to_copy", -1, 1,
     X "%z: f64[2, 3] = aten.sin.default(%x)\n%y: f64[2, 3] = aten._to_copy.default(%z, dtype=f64)\n"},
    {"pow_Tensor_Tensor", 0.3, 1.5, X "input %z: f64[3]\n%y: f64[2, 3] = aten.pow.Tensor_Tensor(%x, %z)\n"},
    {"pow_Tensor_Tensor", -1, 1, X "%y: f64[2, 3] = aten.pow.Tensor_Tensor(%x, 3)\n"},
    {"pow_Tensor_Tensor", -1, 1, X "%y: f64[2, 3] = aten.pow.Tensor_Tensor(2.5, %x)\n"},
    {"prelu", -1, 1, X3 "input %z: f64[3]\n%y: f64[2, 3, 4] = aten.prelu.default(%x, %z)\n"},
    {"where_self", -1, 1,
     X "input %z: f64[3]\n%c: bool[2, 3] = aten.gt.Tensor(%x, 0.1)\n%y: f64[2, 3] = aten.where.self(%c, %x, %z)\n"},
    {"threshold", -1, 1, X "%y: f64[2, 3] = aten.threshold.default(%x, 0.1, 20.0)\n"},
    {"mul_Tensor", -1, 1, X "%y: f64[2, 3] = aten.mul.Tensor(%x, %x)\n"},
    {"sub_Tensor", -1, 1, X "%y: f64[2, 3] = aten.sub.Tensor(1, %x)\n"},
    {"div_Tensor", 0.5, 1, X "%y: f64[2, 3] = aten.div.Tensor(2, %x)\n"},
    /* reductions */
    {"sum_dim_IntList", -1, 1, X3 "%y: f64[3] = aten.sum.dim_IntList(%x, [0, 2])\n"},
    {"mean_dim", -1, 1, "symbol s in [1, 8]\ninput %x: f64[s, 3]\n%y: f64[] = aten.mean.dim(%x, none)\n"},
    {"mean_dim", -1, 1, X3 "%y: f64[2, 1, 4] = aten.mean.dim(%x, [1], true)\n"},
    {"prod_dim_int", -1, 1, X3 "%y: f64[2, 4] = aten.prod.dim_int(%x, 1)\n"},
    {"amax", -1, 1, X3 "%y: f64[3] = aten.amax.default(%x, [0, 2])\n"},
    {"amin", -1, 1, X3 "%y: f64[2, 1, 4] = aten.amin.default(%x, [1], true)\n"},
    {"max_dim", -1, 1, X3 "%y: f64[2, 4], %i: i64[2, 4] = aten.max.dim(%x, 1)\n"},
    {"min_dim", -1, 1, X3 "%y: f64[2, 3, 1], %i: i64[2, 3, 1] = aten.min.dim(%x, -1, true)\n"},
    {"median_dim", -1, 1, X3 "%y: f64[2, 3], %i: i64[2, 3] = aten.median.dim(%x, 2)\n"},
    {"nanmedian_dim", -1, 1, X3 "%y: f64[2, 3], %i: i64[2, 3] = aten.nanmedian.dim(%x, 2)\n"},
    {"mode", -1, 1, X3 "%y: f64[2, 3], %i: i64[2, 3] = aten.mode.default(%x, 2)\n"},
    {"kthvalue", -1, 1, X3 "%y: f64[2, 3], %i: i64[2, 3] = aten.kthvalue.default(%x, 2, 2)\n"},
    {"median", -1, 1, X "%y: f64[] = aten.median.default(%x)\n"},
    {"nanmedian", -1, 1, X "%y: f64[] = aten.nanmedian.default(%x)\n"},
    {"sort", -1, 1, X3 "%y: f64[2, 3, 4], %i: i64[2, 3, 4] = qkv.sort.default(%x, 2, true)\n"},
    {"topk", -1, 1, X3 "%y: f64[2, 3, 2], %i: i64[2, 3, 2] = aten.topk.default(%x, 2, 2)\n"},
    {"cummax", -1, 1, X3 "%y: f64[2, 3, 4], %i: i64[2, 3, 4] = aten.cummax.default(%x, 2)\n"},
    {"cummin", -1, 1, X3 "%y: f64[2, 3, 4], %i: i64[2, 3, 4] = aten.cummin.default(%x, 1)\n"},
    {"logsumexp", -1, 1, X3 "%y: f64[2, 4] = aten.logsumexp.default(%x, [1])\n"},
    {"var_correction", -1, 1, X3 "%y: f64[2] = aten.var.correction(%x, [1, 2], correction=1)\n"},
    {"var_correction", -1, 1, X3 "%y: f64[2, 1, 4] = aten.var.correction(%x, [1], correction=0, keepdim=true)\n"},
    {"std_correction", -1, 1, X3 "%y: f64[2] = aten.std.correction(%x, [1, 2], correction=1)\n"},
    {"std_correction", -1, 1, X3 "%y: f64[2, 1, 4] = aten.std.correction(%x, [1], correction=0, keepdim=true)\n"},
    {"linalg_vector_norm", -1, 1, X3 "%y: f64[2, 4] = aten.linalg_vector_norm.default(%x, 2, [1])\n"},
    {"linalg_vector_norm", -1, 1, X3 "%y: f64[2, 4] = aten.linalg_vector_norm.default(%x, 3, [1])\n"},
    {"linalg_vector_norm", -1, 1, X3 "%y: f64[2, 4] = aten.linalg_vector_norm.default(%x, 1, [1])\n"},
    {"linalg_vector_norm", -1, 1, X3 "%y: f64[2, 1, 4] = aten.linalg_vector_norm.default(%x, inf, [1], true)\n"},
    {"cumsum", -1, 1, X3 "%y: f64[2, 3, 4] = aten.cumsum.default(%x, 1)\n"},
    {"cumprod", -1, 1, X3 "%y: f64[2, 3, 4] = aten.cumprod.default(%x, 1)\n"},
    {"cumprod", 0, 0,
     X3 "%r: f64[4] = aten.arange.start_step(-1, 3, dtype=f64)\n%w: f64[2, 3, 4] = aten.add.Tensor(%x, %r)\n"
        "%y: f64[2, 3, 4] = aten.cumprod.default(%w, -1)\n"}, /* -1 0 1 2 */
    {"logcumsumexp", -9, 9, X3 "%y: f64[2, 3, 4] = aten.logcumsumexp.default(%x, 1)\n"},
    {"cdist", -1, 1, X3 "input %z: f64[2, 5, 4]\n%y: f64[2, 3, 5] = aten.cdist.default(%x, %z)\n"},
    {"cdist", -1, 1, X3 "input %z: f64[5, 4]\n%y: f64[2, 3, 5] = aten.cdist.default(%x, %z, 3.)\n"},
    {"cdist", -1, 1, X3 "input %z: f64[5, 4]\n%y: f64[2, 3, 5] = aten.cdist.default(%x, %z, 1.)\n"},
    {"cdist", -1, 1, X3 "input %z: f64[5, 4]\n%y: f64[2, 3, 5] = aten.cdist.default(%x, %z, inf)\n"},
    {"softmax_int", -1, 1, X3 "%y: f64[2, 3, 4] = aten.softmax.int(%x, 1)\n"},
    {"safe_softmax", -1, 1, X3 "%y: f64[2, 3, 4] = aten._safe_softmax.default(%x, -1)\n"},
    {"log_softmax_int", -1, 1, X3 "%y: f64[2, 3, 4] = aten.log_softmax.int(%x, -1)\n"},
    {"norm_backward", -1, 1,
     BESIDE "%v: f64[3] = aten.select.int(%a, 0, 1)\n"
            "%y: f64[2, 3], %dw: f64[3], %db: f64[3] = "
            "qkv.norm_backward.default(%x, %a, [3], %v, 1e-05, false)\n"},
    {"norm_backward", -1, 1,
     BESIDE "%v: f64[3] = aten.select.int(%a, 0, 1)\n"
            "%dx: f64[2, 3], %dw: f64[3], %db: f64[3] = qkv.norm_backward.default(%x, %a, [3], %v, 1e-05, true)\n"
            "%p: f64[3] = aten.mul.Tensor(%dw, %db)\n%y: f64[2, 3] = aten.add.Tensor(%dx, %p)\n"},
    {"layer_norm", -1, 1,
     X3 "input %w: f64[3, 4]\ninput %b: f64[3, 4]\n"
        "%y: f64[2, 3, 4] = aten.layer_norm.default(%x, [3, 4], %w, %b, 1e-05)\n"},
    {"layer_norm", -1, 1,
     "symbol s in [1, 8]\ninput %x: f64[s, 4]\n%y: f64[s, 4] = aten.layer_norm.default(%x, [4])\n"},
    {"rms_norm", -1, 1, X3 "input %w: f64[4]\n%y: f64[2, 3, 4] = aten.rms_norm.default(%x, [4], %w)\n"},
    {"group_norm", -1, 1,
     "input %x: f64[2, 4, 3]\ninput %w: f64[4]\ninput %b: f64[4]\n"
     "%y: f64[2, 4, 3] = aten.group_norm.default(%x, 2, %w, %b)\n"},
    {"batch_norm", -1, 1,
     "input %x: f64[2, 4, 3]\ninput %w: f64[4]\ninput %b: f64[4]\nweight %m: f64[4] = buffer \"f64[4]\"\n"
     "weight %s: f64[4] = buffer \"f64[4]\"\n"
     "%y: f64[2, 4, 3] = aten.batch_norm.default(%x, %w, %b, %m, %s, false, 0.1, 1e-05, true)\n"},
    /* products */
    {"linear", -1, 1, X3 "input %w: f64[5, 4]\ninput %b: f64[5]\n%y: f64[2, 3, 5] = aten.linear.default(%x, %w, %b)\n"},
    {"linear", -1, 1, "input %x: f64[4]\ninput %w: f64[5, 4]\n%y: f64[5] = aten.linear.default(%x, %w)\n"},
    {"matmul", -1, 1, X3 "input %w: f64[4, 2]\n%y: f64[2, 3, 2] = aten.matmul.default(%x, %w)\n"},
    /* solving and factors */
    {"fft_complex", -1, 1,
     "symbol s in [1, 8]\ninput %x: f64[s, 3, 2]\n%y: f64[s, 3, 2] = qkv.fft_complex.default(%x, [0, 1], 1, true)\n"},
    {"fft_real", -1, 1,
     "symbol s in [2, 8]\ninput %x: f64[s, 4]\n%y: f64[s, 3, 2] = qkv.fft_real.default(%x, [0, 1], 2, true)\n"},
    {"fft_real", -1, 1,
     "symbol s in [1, 8]\ninput %x: f64[2, s]\n%y: f64[2, s//2 + 1, 2] = qkv.fft_real.default(%x, [1], 0, true)\n"},
    {"fft_real", -1, 1, "input %x: f64[2, 5]\n%y: f64[2, 5, 2] = qkv.fft_real.default(%x, [0, 1], 0, false)\n"},
    {"fft_to_real", -1, 1, "input %x: f64[3, 3, 2]\n%y: f64[3, 4] = qkv.fft_to_real.default(%x, [0, 1], 2, 4)\n"},
    {"fft_to_real", -1, 1, "input %x: f64[3, 3, 2]\n%y: f64[5, 3] = qkv.fft_to_real.default(%x, [0], 1, 5)\n"},
    {"view_dtype", -1, 1,
     "input %x: f64[3, 2]\n%c: c128[3, 1] = aten.view.dtype(%x, c128)\n%d: f64[3, 2] = aten.view.dtype(%c, f64)\n"
     "%y: f64[3, 2] = aten.mul.Tensor(%d, %x)\n"},
    {"linalg_solve_ex", -1, 1,
     REGULAR "input %b: f64[2, 3, 2]\n%y: f64[2, 3, 2], %i: i32[2] = aten.linalg_solve_ex.default(%a, %b)\n"},
    {"linalg_solve_triangular", -1, 1,
     REGULAR "input %b: f64[2, 3, 2]\n%y: f64[2, 3, 2] = aten.linalg_solve_triangular.default(%a, %b, upper=true)\n"},
    {"linalg_solve_triangular", -1, 1,
     REGULAR "input %b: f64[2, 3, 2]\n"
             "%y: f64[2, 3, 2] = aten.linalg_solve_triangular.default(%a, %b, upper=false, unitriangular=true)\n"},
    {"linalg_slogdet", -1, 1, REGULAR "%s: f64[2], %y: f64[2] = aten.linalg_slogdet.default(%a)\n"},
    {"linalg_cholesky_ex", -1, 1, SYMMETRIC "%y: f64[2, 3, 3], %i: i32[2] = aten.linalg_cholesky_ex.default(%s)\n"},
    {"linalg_cholesky_ex", -1, 1,
     SYMMETRIC "%y: f64[2, 3, 3], %i: i32[2] = aten.linalg_cholesky_ex.default(%s, upper=true)\n"},
    {"linalg_lu_factor_ex", -1, 1,
     REGULAR "%y: f64[2, 3, 3], %p: i32[2, 3], %i: i32[2] = aten.linalg_lu_factor_ex.default(%a)\n"},
    {"linalg_lu_factor_ex", -1, 1,
     X3 "%y: f64[2, 3, 4], %p: i32[2, 3], %i: i32[2] = aten.linalg_lu_factor_ex.default(%x)\n"},
    {"linalg_lu_factor_ex", -1, 1,
     "input %x: f64[4, 3]\n%y: f64[4, 3], %p: i32[3], %i: i32[] = aten.linalg_lu_factor_ex.default(%x)\n"},
#define UNPACKED                                                                                                       \
    "input %x: f64[3, 4]\nweight %w: i32[3] = constant \"i32[3]\"\n"                                                   \
    "%p: i32[3] = aten.clamp.default(%w, 3, 3)\n"
    {"lu_unpack", -1, 1, UNPACKED "%q: f64[3, 3], %y: f64[3, 3], %u: f64[3, 4] = aten.lu_unpack.default(%x, %p)\n"},
    {"lu_unpack", -1, 1, UNPACKED "%q: f64[3, 3], %l: f64[3, 3], %y: f64[3, 4] = aten.lu_unpack.default(%x, %p)\n"},
    {"linalg_svd", -1, 1,
     X3 "%y: f64[2, 3, 3], %s: f64[2, 3], %v: f64[2, 3, 4] = aten.linalg_svd.default(%x, false)\n"},
    {"linalg_svd", -1, 1,
     X3 "%u: f64[2, 3, 3], %s: f64[2, 3], %y: f64[2, 3, 4] = aten.linalg_svd.default(%x, false)\n"},
    {"linalg_svd", -1, 1,
     "input %x: f64[4, 3]\n%y: f64[4, 3], %s: f64[3], %v: f64[3, 3] = aten.linalg_svd.default(%x, false)\n"},
    {"scatter_reduce_two", -1, 1,
     X "input %z: f64[2, 3]\nweight %w: i64[2, 3] = constant \"i64[2, 3]\"\n"
       "%i: i64[2, 3] = aten.remainder.Tensor(%w, 2)\n"
       "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"prod\")\n"},
    {"scatter_reduce_two", -1, 1,
     X "input %z: f64[2, 3]\nweight %w: i64[2, 3] = constant \"i64[2, 3]\"\n"
       "%i: i64[2, 3] = aten.remainder.Tensor(%w, 2)\n"
       "%y: f64[2, 3] = aten.scatter_reduce.two(%x, 1, %i, %z, \"prod\", include_self=false)\n"},
    {"replication_pad1d", -1, 1, X3 "%y: f64[2, 3, 4] = aten.replication_pad1d.default(%x, [-1, 1, 2, -2])\n"},
    {"reflection_pad1d", -1, 1, X3 "%y: f64[2, 5, 5] = aten.reflection_pad1d.default(%x, [2, -1, 0, 2])\n"},
    {"linalg_qr", -1, 1,
     "input %x: f64[4, 3]\n%q: f64[4, 3], %r: f64[3, 3] = aten.linalg_qr.default(%x)\n"
     "%y: f64[4, 3] = aten.matmul.default(%q, %r)\n"},
    {"linalg_qr", -1, 1, "input %x: f64[4, 3]\n%y: f64[4, 3], %r: f64[3, 3] = aten.linalg_qr.default(%x)\n"},
    {"linalg_qr", -1, 1, "input %x: f64[2, 3, 3]\n%q: f64[2, 3, 3], %y: f64[2, 3, 3] = aten.linalg_qr.default(%x)\n"},
    {"linalg_eigh", -1, 1, SYMMETRIC "%y: f64[2, 3], %v: f64[2, 3, 3] = aten.linalg_eigh.default(%s)\n"},
    {"linalg_eigh", -1, 1,
     SYMMETRIC "%w: f64[2, 3], %v: f64[2, 3, 3] = aten.linalg_eigh.default(%s)\n"
               "%u: f64[2, 1, 3] = aten.reshape.default(%w, [2, 1, 3])\n%y: f64[2, 3, 3] = aten.mul.Tensor(%v, %u)\n"},
    {"linalg_svdvals", -1, 1, "input %x: f64[2, 3, 4]\n%y: f64[2, 3] = aten.linalg_svdvals.default(%x)\n"},
    {"matrix_exp", -1, 1, "input %x: f64[2, 3, 3]\n%y: f64[2, 3, 3] = aten.matrix_exp.default(%x)\n"},
    {"matmul", -1, 1, X3 "input %w: f64[3, 1, 4, 2]\n%y: f64[3, 2, 3, 2] = aten.matmul.default(%x, %w)\n"},
    {"grouped_mm", -1, 1, /* groups of 0, 1 and 2 rows; one row after them */
     "input %x: f64[4, 3]\ninput %w: f64[3, 3, 2]\n%a: i64[3] = aten.arange.start_step(0, 3)\n"
     "%b: i64[3] = aten.mul.Tensor(%a, %a)\n"
     "%d: i64[3] = aten.clamp.default(%b, none, 3)\n%e: i32[3] = aten._to_copy.default(%d, dtype=i32)\n"
     "%y: f64[4, 2] = aten._grouped_mm.default(%x, %w, %e)\n"},
    {"convolution", -1, 1,
     PICTURE "input %w: f64[3, 4, 3, 2]\ninput %b: f64[3]\n"
             "%y: f64[2, 3, 3, 4] = aten.convolution.default(%x, %w, %b, [2, 2], [1, 1], [1, 1], false, [0, 0], 1)\n"},
    {"convolution", -1, 1,
     PICTURE
     "input %w: f64[6, 2, 2, 2]\n"
     "%y: f64[2, 6, 3, 4] = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [2, 2], false, [0, 0], 2)\n"},
    {"convolution", -1, 1,
     "symbol s in [3, 8]\ninput %x: f64[1, 2, s]\ninput %w: f64[3, 2, 3]\n"
     "%y: f64[1, 3, s] = aten.convolution.default(%x, %w, none, [1], [1], [1], false, [0], 1)\n"},
    {"convolution", -1, 1,
     PICTURE "input %w: f64[4, 3, 2, 2]\ninput %b: f64[6]\n"
             "%y: f64[2, 6, 10, 12] = aten.convolution.default(%x, %w, %b, [2, 2], [0, 0], [1, 1], true, [0, 0], 2)\n"},
    {"convolution", -1, 1, /* an output padding beyond the stride: windows that no element of x has */
     PICTURE "input %w: f64[4, 3, 2, 2]\n"
             "%y: f64[2, 3, 14, 11] = "
             "aten.convolution.default(%x, %w, none, [2, 1], [1, 0], [4, 3], true, [3, 2], 1)\n"},
    /* attention: mask with gradient, grouped heads, causal, softcap, bounds, a mask whose rows allow no key */
    {"scaled_dot_product_attention", -1, 1,
     QKV "%y: f64[2, 4, 3, 3] = aten.scaled_dot_product_attention.default(%q, %k, %v)\n"},
    {"scaled_dot_product_attention", -1, 1,
     QKV "input %m: f64[4, 1, 5]\n"
         "%y: f64[2, 4, 3, 3] = aten.scaled_dot_product_attention.default(%q, %k, %v, %m, scale=0.3)\n"},
    {"scaled_dot_product_attention", -1, 1,
     "symbol s in [3, 8]\ninput %q: f64[1, 4, s, 2]\ninput %k: f64[1, 2, s, 2]\ninput %v: f64[1, 2, s, 2]\n"
     "%y: f64[1, 4, s, 2] = aten.scaled_dot_product_attention.default(%q, %k, %v, is_causal=true, enable_gqa=true)\n"},
    {"scaled_dot_product_attention", -1, 1,
     QKV
     "%y: f64[2, 4, 3, 3] = aten.scaled_dot_product_attention.default(%q, %k, %v, softcap=2.0, lower=-1, upper=1)\n"},
    {"sdpa_lse", -1, 1,
     QKV "input %m: f64[4, 1, 5]\n"
         "%y: f64[2, 4, 3, 3], %l: f64[2, 4, 3] = qkv.sdpa_lse.default(%q, %k, %v, %m, softcap=2.0, upper=1)\n"},
    {"scaled_dot_product_attention", -1, 1,
     QKV "%a: i64[5] = aten.arange.start_step(0, 5)\n%b: i64[3] = aten.arange.start_step(0, 3)\n"
         "%c: i64[3, 1] = aten.reshape.default(%b, [3, 1])\n"
         "%m: bool[3, 5] = aten.lt.Tensor(%a, %c)\n"
         "%y: f64[2, 4, 3, 3] = aten.scaled_dot_product_attention.default(%q, %k, %v, %m)\n"},
    /* pictures */
    {"upsample", -1, 1, PICTURE "%y: f64[2, 4, 7, 9] = qkv.upsample.default(%x, [7, 9], \"linear\")\n"},
    {"upsample", -1, 1, PICTURE "%y: f64[2, 4, 10, 3] = qkv.upsample.default(%x, [10, 3], \"cubic\", true)\n"},
    {"upsample", -1, 1, PICTURE "%y: f64[2, 4, 10, 12] = qkv.upsample.default(%x, [10, 12], \"nearest\")\n"},
    {"grid_sampler", -1.2, 1.2,
     "input %x: f64[2, 2, 4, 5]\ninput %z: f64[2, 3, 2, 2]\n"
     "%y: f64[2, 2, 3, 2] = aten.grid_sampler.default(%x, %z, 0, 0, false)\n"},
    {"grid_sampler", -1.2, 1.2,
     "input %x: f64[2, 2, 4, 5]\ninput %z: f64[2, 3, 2, 2]\n"
     "%y: f64[2, 2, 3, 2] = aten.grid_sampler.default(%x, %z, 0, 1, true)\n"},
    {"grid_sampler", -1.2, 1.2,
     "input %x: f64[2, 2, 4, 5]\ninput %z: f64[2, 3, 2, 2]\n"
     "%y: f64[2, 2, 3, 2] = aten.grid_sampler.default(%x, %z, 1, 0, false)\n"},
    {"grid_sampler", -1.2, 1.2,
     "input %x: f64[2, 2, 4, 5]\ninput %z: f64[2, 3, 2, 2]\n"
     "%y: f64[2, 2, 3, 2] = aten.grid_sampler.default(%x, %z, 1, 1, true)\n"},
    {"torchvision_roi_pool", -1, 1,
     PICTURE ROIS "%y: f64[2, 4, 2, 3], %at: i32[2, 4, 2, 3] = torchvision.roi_pool.default(%x, %rois, 0.75, 2, 3)\n"},
    {"torchvision_roi_align", -1, 1,
     PICTURE ROIS "%y: f64[2, 4, 2, 3] = torchvision.roi_align.default(%x, %rois, 0.75, 2, 3, 2, false)\n"},
    {"torchvision_roi_align", -1, 1,
     "symbol s in [2, 9]\ninput %x: f64[2, 3, s, 5]\n" ROIS
     "%y: f64[2, 3, 3, 2] = torchvision.roi_align.default(%x, %rois, 1.5, 3, 2, -1, true)\n"},
    {"torchvision_roi_align_backward", -1, 1,
     "input %x: f64[2, 4, 2, 3]\n" ROIS
     "%y: f64[2, 4, 5, 6] = torchvision._roi_align_backward.default(%x, %rois, 0.75, 2, 3, 2, 4, 5, 6, 2, false)\n"},
#define SAMPLED                                                                                                        \
    "symbol s in [2, 9]\ninput %x: f64[2, 3, s, 5]\ninput %z: f64[2, 3, 2, 2]\n"                                       \
    "%y: f64[2, 3, 3, 2] = aten.grid_sampler.default"
    {"grid_sampler", -2.9, 2.9, SAMPLED "(%x, %z, 0, 2, false)\n"},
    {"grid_sampler", -2.9, 2.9, SAMPLED "(%x, %z, 0, 2, true)\n"},
    {"grid_sampler", -2.9, 2.9, SAMPLED "(%x, %z, 1, 2, false)\n"},
    {"grid_sampler", -1.4, 1.4, SAMPLED "(%x, %z, 2, 0, false)\n"},
    {"grid_sampler", -1.4, 1.4, SAMPLED "(%x, %z, 2, 1, true)\n"},
    {"grid_sampler", -2.9, 2.9, SAMPLED "(%x, %z, 2, 2, false)\n"},
    {"grid_sampler", -2.9, 2.9, SAMPLED "(%x, %z, 2, 2, true)\n"},
#define VOLUME                                                                                                         \
    "symbol s in [2, 9]\ninput %x: f64[2, 2, 3, s, 5]\ninput %z: f64[2, 2, 1, 2, 3]\n"                                 \
    "%y: f64[2, 2, 2, 1, 2] = aten.grid_sampler.default"
    {"grid_sampler", -1.2, 1.2, VOLUME "(%x, %z, 0, 0, false)\n"},
    {"grid_sampler", -1.4, 1.4, VOLUME "(%x, %z, 2, 0, true)\n"},
    {"grid_sampler", -2.9, 2.9, VOLUME "(%x, %z, 2, 2, false)\n"},
    {"grid_sampler", -1.2, 1.2, VOLUME "(%x, %z, 0, 1, true)\n"},
    {"grid_sampler", -2.9, 2.9, VOLUME "(%x, %z, 0, 2, false)\n"},
    {"grid_sampler", -1.2, 1.2, VOLUME "(%x, %z, 1, 0, true)\n"},
    {"max_pool2d_with_indices", -1, 1,
     PICTURE
     "%y: f64[2, 4, 3, 3], %i: i64[2, 4, 3, 3] = aten.max_pool2d_with_indices.default(%x, [3, 3], [2, 2], [1, 1])\n"},
    {"max_pool3d_with_indices", -1, 1,
     "input %x: f64[2, 3, 4, 4]\n"
     "%y: f64[2, 1, 2, 2], %i: i64[2, 1, 2, 2] = aten.max_pool3d_with_indices.default(%x, [2, 2, 2])\n"},
    {"adaptive_max_pool2d", -1, 1,
     PICTURE "%y: f64[2, 4, 2, 4], %i: i64[2, 4, 2, 4] = aten.adaptive_max_pool2d.default(%x, [2, 4])\n"},
    {"adaptive_max_pool3d", -1, 1,
     "input %x: f64[2, 3, 4, 4]\n"
     "%y: f64[2, 2, 2, 3], %i: i64[2, 2, 2, 3] = aten.adaptive_max_pool3d.default(%x, [2, 2, 3])\n"},
    {"avg_pool2d", -1, 1, PICTURE "%y: f64[2, 4, 3, 3] = aten.avg_pool2d.default(%x, [3, 3], [2, 2], [1, 1])\n"},
    {"avg_pool2d", -1, 1,
     PICTURE "%y: f64[2, 4, 3, 3] = aten.avg_pool2d.default(%x, [3, 3], [2, 2], [1, 1], false, false)\n"},
    {"avg_pool2d", -1, 1, PICTURE "%y: f64[2, 4, 3, 4] = aten.avg_pool2d.default(%x, [3, 2], [2, 2], [1, 1], true)\n"},
    {"avg_pool2d", -1, 1,
     PICTURE "%y: f64[2, 4, 2, 3] = aten.avg_pool2d.default(%x, [3, 2], [3, 2], [0, 0], true, false)\n"},
    {"avg_pool2d", -1, 1,
     PICTURE "%y: f64[2, 4, 2, 3] = aten.avg_pool2d.default(%x, [3, 2], [3, 2], [0, 0], true, false, 5)\n"},
    {"avg_pool3d", -1, 1,
     "input %x: f64[2, 3, 4, 5]\n"
     "%y: f64[2, 2, 2, 3] = aten.avg_pool3d.default(%x, [2, 3, 3], [2, 2, 2], [1, 1, 1], false, false)\n"},
    {"col2im", -1, 1,
     "input %x: f64[2, 8, 4]\n%y: f64[2, 2, 4, 5] = aten.col2im.default(%x, [4, 5], [2, 2], [2, 1], [1, 0], [2, 2])\n"},
    {"affine_grid_generator", -1, 1,
     "input %x: f64[2, 2, 3]\n%y: f64[2, 3, 4, 2] = aten.affine_grid_generator.default(%x, [2, 1, 3, 4], false)\n"},
    {"affine_grid_generator", -1, 1,
     "input %x: f64[2, 3, 4]\n"
     "%y: f64[2, 3, 2, 4, 3] = aten.affine_grid_generator.default(%x, [2, 1, 3, 2, 4], true)\n"},
    {"_adaptive_avg_pool2d", -1, 1, PICTURE "%y: f64[2, 4, 2, 4] = aten._adaptive_avg_pool2d.default(%x, [2, 4])\n"},
    {"_adaptive_avg_pool3d", -1, 1,
     "input %x: f64[2, 3, 4, 5]\n%y: f64[2, 2, 2, 3] = aten._adaptive_avg_pool3d.default(%x, [2, 2, 3])\n"},

    /* loops and branches: a recurrence over slices, with a factor that all turns share; the same until a condition
     * fails; and values that one half alone reads */
    {"loop", -1, 1,
     "input %x: f64[3, 2]\ninput %h: f64[2]\ninput %w: f64[2]\n"
     "%last: f64[2], %all: f64[3, 2] = qkv.loop.default(none, [%h], [%w], {\n"
     "  input %turn: i64[]\n  input %go: bool[]\n  input %a: f64[2]\n  input %b: f64[2]\n  input %v: f64[2]\n"
     "  %p: f64[2] = aten.mul.Tensor(%a, %v)\n  %q: f64[2] = aten.add.Tensor(%p, %b)\n"
     "  %m: f64[2] = aten.mul.Tensor(%q, %turn)\n"
     "  output more = %go\n  output a = %q\n  output m = %m\n"
     "}, limit=3, sure=true, sequences=[%x])\n"
     "%y: f64[3, 2] = aten.mul.Tensor(%last, %all)\n"},
    {"loop", 0.5, 1,
     "input %x: f64[2]\ninput %w: f64[2]\n%go: bool[] = aten.full.default([], true, dtype=bool)\n"
     "%y: f64[2] = qkv.loop.default(%go, [%x], [%w], {\n"
     "  input %turn: i64[]\n  input %more: bool[]\n  input %a: f64[2]\n  input %v: f64[2]\n"
     "  %p: f64[2] = aten.mul.Tensor(%a, %v)\n  %s: f64[] = aten.sum.dim_IntList(%p)\n"
     "  %again: bool[] = aten.gt.Tensor(%s, 0.2)\n"
     "  output more = %again\n  output a = %p\n"
     "}, limit=4)\n"},
    {"branch", 0.1, 1,
     "input %x: f64[2]\ninput %z: f64[2]\n%s: f64[] = aten.sum.dim_IntList(%x)\n%c: bool[] = aten.gt.Tensor(%s, 0)\n"
     "%y: f64[2] = qkv.branch.default(%c, [%x, %z], {\n"
     "  input %a: f64[2]\n  %m: f64[2] = aten.mul.Tensor(%a, %a)\n  output o = %m\n}, {\n"
     "  input %b: f64[2]\n  %m: f64[2] = aten.mul.Tensor(%b, 3)\n  output o = %m\n})\n"},
};
enum { CASES = sizeof cases / sizeof *cases };

static const struct {
    const char *id, *name, *run, *formula;
    bool view;
} rows[OP_COUNT] = {
#define VIEW(f) .view = true,
#define RUN(f) .run = #f,
#define FORMULA(text) .formula = text,
#define OP(id_, name_, schema, ...) [OP_##id_] = {__VA_ARGS__.id = #id_, .name = name_},
#include "op/ops.def"
};

/* ------------------------------------------------------------------ one case */

typedef struct Numbers {
    int n;
    int64_t count[8];
    double *x[8];
    Tensor t[8];
} Numbers;

static void fill(const Graph *g, double lo, double hi, Numbers *in)
{
    uint64_t seed = 5;
    in->n = g->ninput;
    for (int i = 0; i < g->ninput; i++) {
        int64_t shape[MAX_RANK], n = 1;
        const Value *v = g->input[i];
        for (int k = 0; k < v->rank; k++) n *= shape[k] = ex_is_int(v->dim[k]) ? v->dim[k]->i : 4;
        in->count[i] = n;
        in->x[i] = malloc((size_t)n * sizeof(double));
        for (int64_t k = 0; k < n; k++) in->x[i][k] = lo + (hi - lo) * (double)(unit_random(&seed) % 100000) / 100000;
        in->t[i] = tensor_of(DT_F64, v->rank, shape, in->x[i]);
    }
}

static double loss_of(Session *s, const Numbers *in, int output)
{
    Err err = {0};
    for (int i = 0; i < in->n; i++)
        if (!session_set_input(s, i, &in->t[i], &err)) STOP("%s", err.msg);
    if (!session_run(s, &err)) STOP("%s", err.msg);
    return tensor_get(session_output(s, output), 0);
}

/* %y becomes a loss: the sum of its elements times numbers between 0 and 1. */
static void add_loss(Graph *g)
{
    Err err = {0};
    Value *y = graph_find_value(g, "y");
    assert_non_null(y);
    Node *w = graph_add(g, OP_seeded_uniform, 2, (Arg[]){arg_exprs(g, y->rank, y->dim), arg_int(g, 3)}, "w", &err);
    Node *wy = w ? graph_add(g, OP_mul_Tensor, 2, (Arg[]){arg_value(y), arg_value(w->out[0])}, "wy", &err) : NULL;
    Node *sum = wy ? graph_add(g, OP_sum_dim_IntList, 1, (Arg[]){arg_value(wy->out[0])}, "loss", &err) : NULL;
    if (!sum || !graph_add_output(g, "output_0", sum->out[0], &err)) STOP("%s", err.msg);
}

/* written_out: attention's gradient as products, as files have it. */
static void check_case(const Case *c, Decompose decompose, bool written_out)
{
    Err err = {0};
    Numbers in = {0};
    Fusion fusion;
    const char *all = "*";
    Graph *g = unit_graph(c->text);
    add_loss(g);
    if (!graph_joint(g, &(JointOptions){.loss = "output_0", .decompose = decompose, .inputs = &all, .ninputs = 1},
                     &err))
        STOP("%s\n%s", c->text, err.msg);
    if (written_out) OK(attention_written_out(g, &err));
    for (const Node *n = g->first; n; n = n->next)
        assert_true(!written_out || (n->op->id != OP_sdpa_lse && n->op->id != OP_sdpa_backward));
    OK(graph_check(g, &err));
    assert_int_equal(g->noutput, 1 + g->ninput);
    fill(g, c->lo, c->hi, &in);
    OK(fuse_graph(g, &fusion, &err));
    Session *s = session_create(g, &fusion, 1, 0, &err);
    assert_non_null(s);
    loss_of(s, &in, 0);
    double *grad[8], largest = 0;
    for (int i = 0; i < in.n; i++) {
        const Tensor *t = session_output(s, 1 + i);
        assert_int_equal(tensor_numel(t), in.count[i]);
        grad[i] = malloc((size_t)in.count[i] * sizeof(double));
        for (int64_t k = 0; k < in.count[i]; k++) {
            grad[i][k] = tensor_get(t, k);
            largest = fmax(largest, fabs(grad[i][k]));
        }
    }
    for (int i = 0; i < in.n; i++)
        for (int64_t k = 0; k < in.count[i]; k++) {
            double x = in.x[i][k], h = 1e-6;
            in.x[i][k] = x + h;
            double up = loss_of(s, &in, 0);
            in.x[i][k] = x - h;
            double want = (up - loss_of(s, &in, 0)) / (2 * h);
            in.x[i][k] = x;
            if (!(fabs(grad[i][k] - want) <= 2e-7 * fmax(largest, 1)))
                STOP("%s\ninput '%s', element %lld: gradient %.12g, by differences %.12g", c->text, g->input[i]->name,
                     (long long)k, grad[i][k], want);
        }
    for (int i = 0; i < in.n; i++) {
        free(grad[i]);
        free(in.x[i]);
    }
    session_free(s);
    fusion_free(&fusion);
    graph_free(g);
}

static void test_cases(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        bool attention = !strcmp(cases[i].op, "scaled_dot_product_attention") || !strcmp(cases[i].op, "sdpa_lse");
        check_case(&cases[i], DECOMPOSE_NONE, false);
        if (attention) check_case(&cases[i], DECOMPOSE_MATH, false);
        if (attention) check_case(&cases[i], DECOMPOSE_NONE, true);
    }
}

/* ------------------------------------------------------------------ formulas */

/* Where the default range, -0.95 to 0.95, is no good. */
static void range_of(const char *id, double *lo, double *hi)
{
    static const struct {
        const char *id;
        double lo, hi;
    } special[] = {{"acosh", 1.2, 3},        {"log", 0.2, 2},
                   {"log2", 0.2, 2},         {"log10", 0.2, 2},
                   {"sqrt", 0.2, 2},         {"rsqrt", 0.2, 2},
                   {"lgamma", 0.5, 3},       {"special_entr", 0.2, 2},
                   {"reciprocal", 0.3, 2},   {"hardsigmoid", -4, 4},
                   {"hardswish", -4, 4},     {"div_Tensor", 0.3, 2},
                   {"xlogy_Tensor", 0.2, 2}, {"special_xlog1py", 0.2, 2},
                   {"hypot", 0.2, 2},        {"remainder_Tensor", 0.3, 2},
                   {"fmod_Tensor", 0.3, 2},  {"special_ndtri", 0.1, 0.9},
                   {"digamma", 0.5, 3},      {"special_i1e", 0.3, 3},
                   {"modulus", 0.2, 2},      {"binary_cross_entropy", 0.2, 0.8},
                   {"logit", 0.05, 0.95}};
    *lo = -0.95;
    *hi = 0.95;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (!strcmp(special[i].id, id)) {
            *lo = special[i].lo;
            *hi = special[i].hi;
        }
}

static bool has_case(const char *id)
{
    for (int i = 0; i < CASES; i++)
        if (!strcmp(cases[i].op, id)) return true;
    return false;
}

static void test_formulas(void **state)
{
    (void)state;
    for (int id = 1; id < OP_COUNT; id++) {
        const char *kind;
        char text[400];
        if (!gradient_known((OpId)id, &kind) || (strcmp(kind, "formula") && strcmp(kind, "follows"))) continue;
        const Schema *s = op_get((OpId)id)->schema;
        int tensors = 0;
        for (int i = 0; i < s->nparams; i++) tensors += s->params[i].type == PT_TENSOR;
        if (!strcmp(rows[id].id, "threshold")) continue; /* its numbers have no defaults: it has a case */
        snprintf(text, sizeof text, "input %%x: f64[2, 3]\n%s%%y: f64[2, 3] = %s(%s)\n",
                 tensors == 1 ? "" : "input %z: f64[3]\n", rows[id].name, tensors == 1 ? "%x" : "%x, %z");
        Case c = {.text = text};
        range_of(rows[id].id, &c.lo, &c.hi);
        check_case(&c, DECOMPOSE_NONE, false);
    }
}

/* The loss of a pointwise row's result, with its core form in its place or not. */
static double loss_in(const char *text, double lo, double hi, Decompose decompose, OpId op)
{
    Err err = {0};
    Numbers in = {0};
    Fusion fusion;
    const char *all = "*";
    Graph *g = unit_graph(text);
    add_loss(g);
    JointOptions o = {.loss = "output_0", .decompose = decompose, .inputs = &all, .ninputs = 1};
    if (!graph_joint(g, &o, &err)) STOP("%s\n%s", text, err.msg);
    for (const Node *n = g->first; n; n = n->next)
        if (decompose == DECOMPOSE_CORE && n->op->id == op) STOP("%s\nis there after its core form was written", text);
    fill(g, lo, hi, &in);
    OK(fuse_graph(g, &fusion, &err));
    Session *s = session_create(g, &fusion, 1, 0, &err);
    assert_non_null(s);
    double loss = loss_of(s, &in, 0);
    for (int i = 0; i < in.n; i++) free(in.x[i]);
    session_free(s);
    fusion_free(&fusion);
    graph_free(g);
    return loss;
}

/* A row's formula in other ops and the one of its kernel mean the same. */
static void test_meaning(void **state)
{
    (void)state;
    int tested = 0;
    for (int id = 1; id < OP_COUNT; id++) {
        const Op *op = op_get((OpId)id);
        const char *kind;
        char text[400];
        double lo, hi;
        if (!rows[id].formula || op->flags & OPF_ATEN_CORE) continue;
        if (!gradient_known((OpId)id, &kind) || (strcmp(kind, "formula") && strcmp(kind, "follows"))) continue;
        const char *numbers = strcmp(rows[id].id, "threshold") ? "" : ", 0.5, 2";
        bool two = op->schema->nparams > 1 && op->schema->params[1].type == PT_TENSOR;
        snprintf(text, sizeof text, "input %%x: f64[6, 7]\n%s%%y: f64[6, 7] = %s(%%x%s%s)\n",
                 two ? "input %z: f64[7]\n" : "", rows[id].name, two ? ", %z" : "", numbers);
        range_of(rows[id].id, &lo, &hi);
        if (lo < 0) lo = -4, hi = 4;
        double want = loss_in(text, lo, hi, DECOMPOSE_NONE, op->id),
               found = loss_in(text, lo, hi, DECOMPOSE_CORE, op->id);
        if (!(fabs(found - want) <= 1e-12 * fmax(fabs(want), 1)))
            STOP("%s: '%s' gives %.17g, its kernel %.17g", op->name, rows[id].formula, found, want);
        tested++;
    }
    assert_true(tested > 15);
}

static void test_every_row(void **state)
{
    (void)state;
    for (int id = 1; id < OP_COUNT; id++) {
        const char *kind;
        bool known = gradient_known((OpId)id, &kind), runs = rows[id].run != NULL;
        if (runs && !known) STOP("%s has no GRAD in its row", rows[id].name);
        if (!runs && known && !rows[id].view && !(op_get((OpId)id)->flags & OPF_INTERNAL))
            STOP("%s has a GRAD in its row, but is never run", rows[id].name);
        /* what a registered op has is tested where one is registered: tests/python/test_own_ops.py */
        if (known && !strcmp(kind, "code") && !has_case(rows[id].id) && !(op_get((OpId)id)->flags & OPF_OWN))
            STOP("%s has a gradient and no case here", rows[id].name);
    }
}

/* The gradient of the sum of squares of what 2 x 4 numbers come back as. */
static void straight_through(const char *quantizer, const float *x, const float *want)
{
    Err err = {0};
    char text[800];
    const char *all = "*";
    snprintf(text, sizeof text,
             "input %%x: f32[2, 4]\n%s%%m: f32[2, 4] = aten.mul.Tensor(%%y, %%y)\n"
             "%%l: f32[] = aten.sum.dim_IntList(%%m)\noutput output_0 = %%l\n",
             quantizer);
    Graph *g = unit_graph(text);
    if (!graph_joint(g, &(JointOptions){.inputs = &all, .ninputs = 1}, &err)) STOP("%s\n%s", text, err.msg);
    Session *s = session_create(g, NULL, 1, 0, &err);
    assert_non_null(s);
    Tensor in = tensor_of(DT_F32, 2, (int64_t[]){2, 4}, (void *)(uintptr_t)x);
    OK(session_set_input(s, 0, &in, &err) && session_run(s, &err));
    for (int i = 0; i < 8; i++)
        if (tensor_get(session_output(s, 1), i) != (double)want[i])
            STOP("%s\nelement %d: %g, expected %g", text, i, tensor_get(session_output(s, 1), i), (double)want[i]);
    session_free(s);
    graph_free(g);
}

/* Where the value is in range before the clamp, 2 y; else 0. Views of integers pass it on; scales of blocks. */
static void test_straight_through(void **state)
{
    (void)state;
    straight_through("%s: f32[] = aten.full.default([], 0.5, dtype=f32)\n"
                     "%q: i8[2, 4] = qkv.quantize_linear.default(%x, %s, none, i8)\n"
                     "%c: i8[2, 4] = aten.clamp.default(%q, -8, 7)\n"
                     "%p: i8[4, 2] = aten.permute.default(%c, [1, 0])\n"
                     "%d: f32[4, 2] = qkv.dequantize_linear.default(%p, %s, none)\n"
                     "%y: f32[2, 4] = aten.permute.default(%d, [1, 0])\n",
                     (float[]){-5, -4.3f, -4, 0.1f, 0.26f, 3.4f, 3.6f, 100}, (float[]){0, 0, -8, 0, 1, 7, 7, 0});
    straight_through("%s: f32[2, 2] = aten.full.default([2, 2], 0.5, dtype=f32)\n"
                     "%z: u8[2, 2] = aten.full.default([2, 2], 3, dtype=u8)\n"
                     "%q: u8[2, 4] = qkv.quantize_linear.default(%x, %s, %z, u8, 1, 2)\n"
                     "%y: f32[2, 4] = qkv.dequantize_linear.default(%q, %s, %z, 1, 2)\n",
                     (float[]){-2, -1.4f, 0, 1, 126, 126.2f, 127, 5}, (float[]){0, -3, 0, 2, 252, 252, 0, 10});
}

/* ------------------------------------------------------------------ the graph */

static void expect_error(const char *text, const JointOptions *o, ErrCode code, const char *message)
{
    Err err = {0};
    Graph *g = unit_graph(text);
    assert_false(graph_joint(g, o, &err));
    assert_int_equal(err.code, code);
    if (strcmp(err.msg, message)) STOP("found    %s\nexpected %s", err.msg, message);
    graph_free(g);
}

#define WEIGHT "weight %p: f64[2, 3] = parameter \"f64[2, 3]\"\n"

static void test_errors(void **state)
{
    (void)state;
    JointOptions o = {.loss = "output_0"};
    const char *none = "nobody", *ids = "i";
    expect_error(X WEIGHT "%y: f64[2, 3] = aten.mul.Tensor(%x, %p)\noutput output_0 = %y\n", &o, E_USAGE,
                 "output 'output_0' is not a loss: its shape is (2, 3), expected a scalar; "
                 "let the model end with a mean or a sum");
    expect_error(X WEIGHT "%y: i64[] = aten.argmax.default(%p)\noutput output_0 = %y\n", &o, E_USAGE,
                 "output 'output_0' is not a loss: it is i64, expected a float");
    expect_error(X WEIGHT "%y: f64[] = aten.sum.dim_IntList(%x, none)\noutput output_0 = %y\n", &o, E_USAGE,
                 "the loss 'output_0' does not depend on any parameter that requires a gradient");
    expect_error(X "%y: f64[] = aten.sum.dim_IntList(%x, none)\noutput output_0 = %y\n",
                 &(JointOptions){.loss = "loss"}, E_USAGE,
                 "the model has no output 'loss' to take as the loss; it has output_0");
    expect_error(X "weight %p: i64[2, 3] = parameter \"i64[2, 3]\"\n%z: f64[2, 3] = aten.mul.Tensor(%x, %p)\n"
                   "%y: f64[] = aten.sum.dim_IntList(%z, none)\noutput output_0 = %y\n",
                 &o, E_USAGE,
                 "parameter 'i64[2, 3]' is i64: only floats have gradients; export it with requires_grad_(False), or "
                 "as a buffer");
    expect_error(WEIGHT "input %i: i64[2]\n%y: f64[] = aten.sum.dim_IntList(%p, none)\noutput output_0 = %y\n",
                 &(JointOptions){.loss = "output_0", .inputs = &ids, .ninputs = 1}, E_USAGE,
                 "input 'i' is i64: only floats have gradients");
    expect_error(X WEIGHT "%y: f64[] = aten.sum.dim_IntList(%p, none)\noutput output_0 = %y\n",
                 &(JointOptions){.loss = "output_0", .inputs = &none, .ninputs = 1}, E_USAGE,
                 "the model has no input 'nobody'");
    expect_error(WEIGHT "%h: f64[4] = aten.histc.default(%p, 4)\n%e: f64[4] = aten.exp.default(%h)\n"
                        "%y: f64[] = aten.sum.dim_IntList(%e, none)\noutput output_0 = %y\n",
                 &o, E_UNSUPPORTED,
                 "node 'h' (aten.histc.default) has no gradient: PyTorch has no derivative of a histogram; its path to "
                 "the loss is h -> e -> y -> the loss");
}

/* Only what lies between is differentiated; the rest of the graph stays;
 * three slices of one projection give one cat. */
static void test_no_more_than_needed(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph(
        WEIGHT X
        "%dead: f64[4] = aten.histc.default(%p, 4)\n"
        "%z: f64[2, 3] = aten.mul.Tensor(%x, %p)\n"
        "%a: f64[2, 1] = aten.slice.Tensor(%z, 1, 0, 1, 1)\n%b: f64[2, 2] = aten.slice.Tensor(%z, 1, 1, 3, 1)\n"
        "%c: f64[2, 2] = aten.mul.Tensor(%a, %b)\n"
        "%y: f64[] = aten.sum.dim_IntList(%c, none)\n"
        "output output_0 = %y\noutput output_1 = %dead\n");
    OK(graph_joint(g, &(JointOptions){.loss = "output_0"}, &err));
    char *text = unit_text(g);
    assert_null(strstr(text, "pad"));
    assert_non_null(strstr(text, "aten.cat.default"));
    assert_non_null(strstr(text, "output output_0 = %y loss\n"));
    assert_non_null(strstr(text, "output \"grad.f64[2, 3]\" = %z_grad"));
    assert_non_null(strstr(text, " gradient of %p\n"));
    assert_null(strstr(text, "x_grad"));
    Graph *again = unit_graph(text);
    char *twice = unit_text(again);
    assert_string_equal(text, twice);
    free(text);
    free(twice);
    graph_free(again);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_straight_through),
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_more_than_needed),
    };
    return cmocka_run_group_tests_name("grad", tests, NULL, NULL);
}
