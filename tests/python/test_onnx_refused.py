"""Nodes that no reader takes, one a line, and what must be said of them: when loading, and by qkv check.

    "Gemm (float[2, 3] a, float[3] b)"      the op, its attributes, its inputs; "= {...}" makes one a constant
"""
import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import qkv  # noqa: E402

INPUT = re.compile(r"(?:(\w+(?:\[[^]]*\])?) )?(\w*)(?: = (\{[^}]*\}))?(?:, |$)")


def model(call, opset):
    """Of a node as text: a graph that takes what it names."""
    head, inputs = re.fullmatch(r"(.*?) ?\(([^()]*)\)", call, re.S).groups()
    outputs = re.match(r"([\w, ]+) = ", head)
    head, outputs = (head[outputs.end():], outputs[1]) if outputs else (head, "y")
    found = [m for m in INPUT.finditer(inputs + ", ") if m[0]] if inputs else []
    given = ", ".join(f"{m[1]} {m[2]}" for m in found if m[1] and not m[3])
    known = ", ".join(f"{m[1]} {m[2]} = {m[3]}" for m in found if m[3])
    names = ", ".join(m[2] for m in found)
    wanted = ", ".join(f"float {o.strip()}" for o in outputs.split(",") if o.strip())
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>\n'
                                   f"g ({given}) => ({wanted}) <{known}> {{ {outputs} = {head}({names}) }}")


def save(call, tmp_path):
    opset = re.match(r"(\d+): ", call)
    path = tmp_path / "m.onnx"
    path.write_bytes(model(call[opset.end():] if opset else call, int(opset[1]) if opset else 23).SerializeToString())
    return path


def rows(text):
    """[(call, message)] of lines "call -> message"."""
    return [tuple(line.rsplit(" -> ", 1)) for line in text.strip().splitlines()]


READ = rows("""
Reshape (float[2] x, int64[17] s = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2}) -> rank 17: at most 16 is supported
Reshape (float[2] x, int64[2] s = {2, 0}) -> element 1 is 0 (the input's size), but the input has rank 1
Flatten<axis = 3> (float[2, 3] x) -> axis 3 is out of range for rank 2
Transpose<perm = [0]> (float[2, 3] x) -> attribute 'perm' has 1 elements for rank 2
Transpose<perm = [1, 1]> (float[2, 3] x) -> attribute 'perm' is not a permutation: element 1 is 1
Unsqueeze (float[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] x, int64[1] a = {0}) -> rank 17: at most 16 is supported
Expand (float[2] x, int64[17] s = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2}) -> rank 17: at most 16 is supported
Concat (float[2] x) -> attribute 'axis' is missing
Concat<axis = 0> (float[2] x, int64[2] z) -> i64, but input 0 is f32
Concat<axis = 0> (float[2] x, float[2, 1] z) -> rank 2, but input 0 has rank 1
a, b = Split<num_outputs = 3> (float[6] x) -> num_outputs is 3, but 2 outputs are named
a, b = Split (float[6] x, int64[1] n = {6}) -> 1 sizes for 2 outputs
a, b = Split (float x) -> a number, expected a tensor to split
Slice (float[6] x, int64[2] a = {0, 0}, int64[1] b = {1}) -> 2 starts, 1 ends
Slice (float[6] x, int64[1] a = {0}, int64[1] b = {1}, int64[1] c = {0}, int64[1] d = {0}) -> step
Tile (float[6] x, int64[2] n = {1, 1}) -> 2 elements for rank 1
Range (int64[2] a, int64 b, int64 c) -> expected one value
Trilu (float[3, 3] x, int64[2] k = {0, 1}) -> 2 elements, expected one value
HannWindow (int64[2] n = {3, 4}) -> 2 elements, expected one size
ConvInteger (uint8[1, c, 8, 8] x, uint8[2, c, 3, 3] w) -> declared f32, but the nodes compute i32
QLinearConv (uint8[1,2,8] x, float16 a, uint8 b, uint8[2,2,3] w, float16 c, uint8 d, float16 e, uint8 f) -> compute u8
Relu (float[2] x, float[2] z) -> 2 inputs; Relu of version 14 takes at most 1
y, z = Relu (float[2] x) -> 2 outputs; Relu of version 14 gives at most 1
Relu<alpha = 0.5> (float[2] x) -> Relu of version 14 has no attribute 'alpha'
17: ReduceMax (float[2, 3] x, int64[1] a = {1}) -> 2 inputs; ReduceMax of version 13 takes at most 1
com.microsoft.Gelu<approximate = "tanh"> (float[2] x) -> Gelu of version 1 has no attribute 'approximate'
CenterCropPad (float[3, 3] x, int64[1] n = {3}) -> 1 sizes for 2 axes
ConstantOfShape<value = float[2] {1.0, 2.0}> (int64[1] n = {3}) \
-> attribute 'value' must be a tensor of one element
Constant<value_string = "a"> () -> a constant
CumSum (float[3] x, int64[2] a = {0, 0}) -> 2 elements, expected one axis
Gather (float x, int64[1] i) -> a number, expected a tensor
Gather (float[3] x, float[1] i) -> f32, expected int32 or int64
Gather (float[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] x, int64[1,1] i) -> rank 17: at most 16 is supported
GatherElements (float[3] x, int64[1, 1] i) -> rank 2, but input 0 has rank 1
GatherND (float[3] x, int64[2, n] i) -> the last axis of the indices must be constant
GatherND (float[3] x, int64[2, 2] i) -> 2 indices into rank 1
GatherND<batch_dims = 3> (float[3, 3] x, int64[3, 1] i) -> batch_dims 3 for ranks 2 and 2
ScatterND<reduction = "no"> (float[3] x, int64[1, 1] i, float[1] u) -> attribute 'reduction' is 'no'
ScatterElements<axis = 0> (float[3] x, int64[1, 1] i, float[1] u) -> ranks 1, 2 and 1, expected the same
TensorScatter (float[2, 3, 4] p, float[3, 4] u) -> rank 2 for a cache of rank 3
OneHot (int64[2] i, int64[2] n = {1, 2}, float[2] v) -> 2 elements, expected one value
OneHot (int64[2] i, int64 n = {3}, float[2, 1] v) -> rank 2, expected a vector of two values
y, i = TopK (float[3] x, int64[2] k = {1, 1}) -> 2 elements, expected one value
y, i = TopK (float[3] x, int64[1] k = {-1}) -> a length of at least 0: can never hold
MelWeightMatrix (int64 m = {-1}, int64 d = {16}, int64 s = {8000}, float a = {0.0}, float b = {4000.0}) \
-> a count of at least 0: can never hold
MelWeightMatrix (int64 m = {8}, int64 d = {16}, int64 s = {0}, float a = {0.0}, float b = {4000.0}) \
-> a sample rate above 0: can never hold
Compress (float[3] x, int64[3] c) -> i64 of rank 1, expected a vector of bools
EyeLike (float[3] x) -> rank 1, expected a matrix
ReverseSequence (float[3, 3] x, int64[3, 1] n) -> rank 2, expected a vector
InstanceNormalization (float[3, 3] x, float[3] w, float[3] b) -> rank 2, expected at least 3
GroupNormalization<num_groups = 1> (float[3] x, float[3] w, float[3] b) -> rank 1, expected at least 2
GroupNormalization<num_groups = 0> (float[3, 3] x, float[3] w, float[3] b) \
-> 0 groups, scale and bias of ranks 1 and 1
BatchNormalization (float[3, 3] x, float[3, 1] a, float[3] b, float[3] c, float[3] d) \
-> rank 2, expected a vector of
BatchNormalization (float[3] x, float[3] a, float[3] b, float[3] c, float[3] d) -> rank 1, expected at least 2
LpNormalization<p = 3> (float[3] x) -> attribute 'p' is 3, expected 1 or 2
LRN<size = 0> (float[1, 2, 3] x) -> size 0 over an input of rank 3
6: Add<axis = 0, broadcast = 1> (float[2, 3] x, float[2] z) \
-> broadcasting along attribute 'axis', as opsets before 7
Mul (float[2] x, int64[2] z) -> i64, but input 0 is f32
Max (float[2] x, int64[2] z) -> i64, but input 0 is f32
Cast (float[2] x) -> attribute 'to' is missing
CastLike (float[2] x) -> left out
Where (float[2] c, float[2] x, float[2] z) -> f32, expected bool
Where (bool[2] c, float[2] x, int64[2] z) -> i64, but input 1 is f32
Gelu<approximate = "no"> (float[2] x) -> attribute 'approximate' is 'no', expected 'none' or 'tanh'
BitShift<direction = "UP"> (uint8[2] x, uint8[2] z) -> attribute 'direction' is 'UP', expected LEFT or RIGHT
BitCast (float[2] x) -> attribute 'to' is missing
BitCast<to = 11> (float[2] x) -> from f32 to f64
GridSample<mode = "odd"> (float[1, 1, 2, 2] x, float[1, 2, 2, 2] g) -> mode 'odd'
GridSample (float[1, 1, 2] x, float[1, 2, 1] g) -> an input of rank 3
AffineGrid (float[1, 2, 3] t, int64[3] n = {1, 1, 2}) -> 3 sizes, expected 4 or 5
RoiAlign (float[1, 1, 4, 4] x, float[4] r, int64[1] i) -> ranks 1 and 1, expected regions (n, 4)
NonMaxSuppression (float[5, 4] b, float[1, 1, 5] s) -> ranks 2 and 3, expected 3
NonMaxSuppression (float[1, 5, 4] b, float[n, 1, 5] s) -> the number of images or classes varies
NonMaxSuppression (float[1, 5, 4] b, float[1, 999999, 5] s) -> 1 images of 999999 classes
NonMaxSuppression (float[1, 5, 4] b, float[1, 1, 5] s, int64[1] n, float[1] o) -> input 3 'o' is computed
MaxUnpool (float[1, 1, 2] x, int64[1, 1, 2] i) -> rank 3 and no kernel_shape
MaxUnpool<kernel_shape = [2]> (float[1, 1, 2] x, int64[1, 1, 2] i, int64[2] n = {1, 4}) -> 2 sizes for rank 3
LSTM<hidden_size = 2> (float[3, 1] x, float[1, 8, 1] w, float[1, 8, 2] r) -> ranks 2, 3 and 3 of X, W and R
GRU<hidden_size = 2, activations = ["Elu", "Tanh"]> (float[3, 1, 1] x, float[1, 6, 1] w, float[1, 6, 2] r) \
-> 'Elu'
GRU<hidden_size = 2> (float[n, 1, 1] x, float[1, 6, 1] w, float[1, 6, 2] r) -> need a fixed number of steps
a, b, c = RNN<hidden_size = 2> (float[3, 1, 1] x, float[1, 2, 1] w, float[1, 2, 2] r) \
-> 3 outputs; RNN of version 22 gives at most 2
LSTM<hidden_size = 2, input_forget = 1> (float[3, 1, 1] x, float[1, 8, 1] w, float[1, 8, 2] r) -> input_forget
RNN<hidden_size = 2, direction = "up"> (float[3, 1, 1] x, float[1, 2, 1] w, float[1, 2, 2] r) \
-> 'direction' is 'up'
RNN<activations = 3> (float[3, 1, 1] x, float[1, 2, 1] w, float[1, 2, 2] r) \
-> 'activations' is not a list of strings
SequenceAt (float[2] s, int64 i = {0}) -> is not a sequence
SequenceLength (float[2] s) -> is not a sequence
SplitToSequence (float x) -> a number, expected a tensor to split
SplitToSequence (float[n] x) -> axis 0 varies, and with it the number of parts
SplitToSequence (float[3] x, int64 n = {0}) -> parts of 0 elements
SplitToSequence (float[3] x, int64[2] n = {2, 2}) -> part 1 has 2 elements, 1 are left
SplitToSequence (float[3] x, int64[2] n = {1, 1}) -> sizes that make 2 of 3
SplitToSequence (float[99999] x) -> 99999 parts
OptionalGetElement () -> holds nothing
Conv<auto_pad = "NO"> (float[1, 1, 3] x, float[1, 1, 2] w) -> attribute 'auto_pad' is 'NO'
Conv (float[1, 1] x, float[1, 1] w) -> an input of rank 2; convolutions of 1 to 3 axes are supported
Conv (float[1, 1, 3] x, float[1, 1, 2, 2] w) -> rank 4, but input 0 has rank 3
Conv (float[1, 1, 3] x, float[1, 1, k] w) -> axis 2 of the kernel is not constant
Conv (float[1, 1, 3] x, float[1, 1, 9999999999] w) \
-> axis 2 of the kernel has 9999999999 elements, expected at most
Conv<kernel_shape = [3]> (float[1, 1, 3] x, float[1, 1, 2] w) \
-> 'kernel_shape' says 3 for axis 2, the weight has 2
MaxPool<kernel_shape = [2]> (float[1, 1] x) -> an input of rank 2; pools of 1 to 3 axes are supported
MaxPool (float[1, 1, 3] x) -> attribute 'kernel_shape' is missing
GlobalAveragePool (float[1, 1] x) -> rank 2, expected at least 3
Pad (float[3] x, int64[3] p = {1, 1, 1}) -> 3 amounts for 1 axes
Pad<mode = "odd"> (float[3] x, int64[2] p = {1, 1}) -> attribute 'mode' is 'odd'
DepthToSpace<blocksize = 2> (float[4, 2, 2] x) -> rank 3 with blocks of 2, expected rank 4
Resize (float[1, 1, 2, 2] x, , float[4] s) -> input 2 's' is computed; give its value when loading
7: Upsample (float[1, 1, 2, 2] x) -> attribute 'scales' is missing
Resize (float[1, 1, 2, 2] x, , float[3] s = {1.0, 1.0, 2.0}) -> 3 sizes or scales for 4 axes
Resize<keep_aspect_ratio_policy = "not_larger"> (float[1, 1, n, 2] x, , , int64[4] s = {1, 1, 3, 3}) \
-> sizes that vary
Resize<coordinate_transformation_mode = "tf_crop_and_resize"> (float[3] x, float[1] r = {0.0}, \
float[1] s = {2.0}) \
-> 1 val
Resize<coordinate_transformation_mode = "odd"> (float[1, 1, 3, 2] x, , , int64[4] s = {1, 1, 4, 3}) \
-> mode 'odd'
Resize<nearest_mode = "odd"> (float[1, 1, 3, 2] x, , , int64[4] s = {1, 1, 4, 3}) \
-> attribute 'nearest_mode' is 'odd'
Resize<mode = "odd"> (float[1, 1, 3, 2] x, , , int64[4] s = {1, 1, 4, 3}) -> attribute 'mode' is 'odd'
24: Cast<to = 24, round_mode = "odd"> (float[2] x) -> attribute 'round_mode' is 'odd'
QuantizeLinear<precision = 6> (float[2] x, float s = {1.0}) \
-> attribute 'precision' is i32, expected a float type
QuantizeLinear<output_dtype = 3> (float[2] x, float s, uint8 z) -> u8, but attribute 'output_dtype' says i8
QuantizeLinear<output_dtype = 7> (float[2] x, float s) -> quantizing to i64
DequantizeLinear (float[2] x, float s) -> dequantizing f32
QLinearMatMul (uint8[2,2] a, float b, uint8 c, uint8[2,2] d, float e, uint8 f, float g, float h) \
-> a result of
com.microsoft.QLinearSoftmax<opset = 12, axis = 0> (uint8[2,3] x, float s, uint8 z, float a, uint8 b) \
-> a softmax over several axes, as opsets before 13 have it
com.microsoft.QLinearConcat<axis = 0> (float s, uint8 z, uint8[2] a) \
-> 3 inputs, expected a scale, a zero point
com.microsoft.QGemm (uint8[2] a, float b, uint8 c, uint8[2,2] d, float e, uint8 f) -> ranks 1 and 2, expected
DFT (float[2] x) -> rank 1, expected 2 or more
DFT (float[2, n] x) -> whether the signal is complex is not known from its last size
DFT (float[4, 1] x, , int64[2] a = {0, 0}) -> 2 axes, expected one
DFT (float[4, 3, 1] x, int64[2] n = {4, 4}) -> 2 sizes, expected one
STFT (float[1, 8, 1] x, int64 s = {0}) -> expected one number from 1 on
STFT (float[8, 1] x, int64 s = {2}) -> rank 2, expected 3
STFT (float[1, 8, 1] x, int64 s = {2}) -> the length of a frame is neither given nor the window's
STFT (float[1, 8, 2] x, int64 s = {2}, , int64 n = {4}) -> one side of a complex signal
MatMul (float a, float[2] b) -> a number, expected a tensor
Gemm (float[2] a, float[2, 2] b) -> rank 1, expected a matrix
Einsum (float[2] a) -> attribute 'equation' is missing
NegativeLogLikelihoodLoss (float[2] x, int64[2] t) -> rank 1 for scores of rank 1
27: CausalConvWithState (float[1, 2] x, float[2, 1, 3] w) -> ranks 2 and 3, expected 3
27: CausalConvWithState (float[1, 2, 4] x, float[n, 1, 3] w) -> its sizes are not constant
27: CausalConvWithState<activation = "odd"> (float[1, 2, 4] x, float[2, 1, 3] w) \
-> attribute 'activation' is 'odd'
27: LinearAttention<update_rule = "odd", q_num_heads = 1, kv_num_heads = 1> (float[1, 2, 4] a, a, a) -> 'odd'
27: LinearAttention<update_rule = "gated", q_num_heads = 1, kv_num_heads = 1> (float[1, 2, 4] a, a, a) \
-> needs decay
27: LinearAttention<update_rule = "linear", q_num_heads = 3, kv_num_heads = 2> (float[1, 2, 4] a, a, a) \
-> 3 query heads
27: LinearAttention<update_rule = "linear", q_num_heads = 1, kv_num_heads = 1> (float[2, 4] a, a, a) \
-> ranks 2, 2 and 2
Attention<q_num_heads = 0, kv_num_heads = 1> (float[1, 2, 4] a, a, a) -> 0 heads, expected 1 to
Attention (float[1, 1, 2, 4] a, float[1, 2, 4] b, b) -> rank 3, but the query has rank 4 and the value 3
Attention (float[1, 1, 2, 4] a, float16[1, 1, 2, 4] b, a) -> key in f16, query in f32 and value in f32
Attention (float[2, 4] a, a, a) -> rank 2, expected 3 or 4
Attention (float[1, 1, 2, 4] a, a, a, , float[1, 1, 2, 4] p) -> past_key and past_value belong together
Attention<qk_matmul_output_mode = 4> (float[1, 1, 2, 4] a, a, a) \
-> 'qk_matmul_output_mode' is 4, expected 0 to 3
Attention<softmax_precision = 7> (float[1, 1, 2, 4] a, a, a) \
-> attribute 'softmax_precision' is 7, expected a float type
Attention (float[1, 1, 2, 4] a, a, a, float16[2, 2] m) -> a mask in f16, queries in f32
Attention (float[1, 1, 2, 4] a, a, a, , float[1, 2, 4] p, p) -> rank 3, expected 4
24: Attention (float[1, 1, 2, 4] a, a, a, , float[1, 1, 2, 4] p, p, int64[1] n) \
-> nonpad_kv_seqlen cannot be given together
24: Attention (float[1, 1, 2, 4] a, a, a, , , , int64[1, 1] n) -> rank 2, expected 1
RotaryEmbedding (float[1, 1, 2, 4] x, float[2, 2] c, c) -> rank 2, expected 3 without position_ids
RotaryEmbedding<rotary_embedding_dim = 3> (float[1, 1, 2, 4] x, float[1, 2, 2] c, c) \
-> is 3, expected an even number
com.microsoft.Attention<num_heads = 1> (float[1, 2] x, float[2, 6] w, float[6] b) -> rank 2, expected 3
com.microsoft.Attention<num_heads = 1, do_rotary = 1> (float[1, 2, 2] x, float[2, 6] w, float[6] b) \
-> do_rotary
com.microsoft.Attention<num_heads = 1, qkv_hidden_sizes = [2]> (float[1, 2, 2] x, float[2, 6] w, float[6] b) \
-> 1 elements
com.microsoft.Attention<num_heads = 1> (float[1, 2, 2] x, float[2, 6] w, float[6] b, , float[2, 1, 1, 2] p) \
-> rank 4, exp
com.microsoft.Attention<num_heads = 1> (float[2, 2, 2] x, float[2, 6] w, float[6] b, int32[3] m) \
-> a mask of 3 elements
com.microsoft.Attention<num_heads = 1> (float[1, 2, 2] x, float[2, 6] w, float[6] b, int32[1,1,1,1,2] m) \
-> rank 5, exp
com.microsoft.Attention<num_heads = 1> (float[1, 2, 2] x, float[2, 6] w, float[6] b, , , , int32 n) \
-> past_sequence
com.microsoft.MultiHeadAttention<num_heads = 1> (float[1, 2] q) -> rank 2, expected 3 or 5
com.microsoft.MultiHeadAttention<num_heads = 1> (float[1, 2, 2] q) -> left out
com.microsoft.GroupQueryAttention<num_heads = 3, kv_num_heads = 2> (float[1, 2, 6] q, float[1, 2, 4] k, k, \
, , int32[1] n, int32 t = {2}) \
-> 3 heads of queries, 2 of keys
com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1> (float[1, 4] q, q, q, , , int32[1] n, \
int32 t = {2}) \
-> rank 2, expected 3
com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1> (float[1, 2, 4] q, float[1, 2, 2] k, , , \
, int32[1] n, int32 t = {2}) \
-> left out
com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1, do_rotary = 1> (float[1, 2, 4] q, \
float[1, 2, 2] k, k, , , int32[1] n, int32 t = {2}) \
-> left out, but do_rotary is set
com.microsoft.RotaryEmbedding (float[1, 2, 4] x, int64[1, 2] p, float[2] c, c) -> rank 1, expected 2
com.microsoft.RotaryEmbedding<is_packed_batching = 1> (float[1, 2, 4] x, int64[1, 2] p, float[2, 2] c, c) \
-> is_packed
com.microsoft.EmbedLayerNormalization (int32[2] i, , float[3, 2] w, float[3, 2] p, , float[2] g, g) \
-> rank 1, expected 2
com.microsoft.EmbedLayerNormalization (int32[1, 2] i, int32[1, 2] s, float[3, 2] w, w, , float[2] g, g) \
-> belong together
com.microsoft.FusedMatMul<transBatchA = 1> (float[2, 2, 2] a, a) -> transBatchA and transBatchB
com.microsoft.MatMulNBits<K = 4, N = 2, bits = 3, block_size = 4> (float[2, 4] a, uint8[2, 1, 2] b, \
float[2] s) \
-> 3 bits
com.microsoft.MatMulNBits<K = 4, N = 0, block_size = 4> (float[2, 4] a, uint8[2, 1, 2] b, float[2] s) \
-> K 4, N 0, block_
com.microsoft.MatMulNBits<K = 4, N = 2, block_size = 4> (float[2, 4] a, uint8[2, 1, 2] b, float[2] s, , \
int32[4] g) \
-> g_idx
25: Attention<left_window_size = -2> (float[1, 1, 2, 4] a, a, a) -> window sizes -2 and -1: expected -1 or more
Conv<strides = [1, 1]> (float[1, 1, 3] x, float[1, 1, 2] w) -> attribute 'strides' has 2 values, expected 1
Conv<dilations = [0]> (float[1, 1, 3] x, float[1, 1, 2] w) -> attribute 'dilations' has 0, expected 1 to
Transpose<perm = 3> (float[2, 3] x) -> attribute 'perm'
Gelu<approximate = 3> (float[2, 3] x) -> attribute 'approximate'
Concat<axis = 0.5> (float[2, 3] x) -> attribute 'axis'
LeakyRelu<alpha = "a"> (float[2, 3] x) -> attribute 'alpha'
Cast<to = 99> (float[2] x) -> attribute 'to'
DFT<onesided = 1> (float[2, 4, 2] x) -> one side of a complex signal, forward
Dropout<seed = "a"> (float[2] x, float r = {0.5}, bool t = {1}) -> attribute 'seed' is not a number
RandomUniform (  ) -> attribute 'shape' is missing
Multinomial<sample_size = 0> (float[1, 2] x) -> rank 2 with 0 samples, expected rows of log-probabilities
""")


@pytest.mark.parametrize("call, message", READ)
def test_read(call, message, tmp_path):
    with pytest.raises(qkv.Error, match=re.escape(message)):
        qkv.Model(save(call, tmp_path))


CHECK = rows("""
MatMul (float a, float[2] b) -> a product with a scalar: both inputs need an axis
MatMul (float[2, 3] a, float[2, 3] b) -> the inner sizes are 3 and 2
Gemm (float[2] a, float[2, 2] b) -> ranks 1 and 2; Gemm takes matrices
Gemm (float[2, 3] a, float[2, 2] b) -> the inner sizes are 3 and 2
Conv (float[1, 1] x, float[1, 1] w) -> an input of 2 axes and weights of 2
MaxPool<kernel_shape = [2]> (float[1, 1] x) -> an input of 2 axes; at least 3 are needed
Conv<strides = [1, 1]> (float[1, 1, 3] x, float[1, 1, 2] w) -> do not fit 1 axes
Conv<group = 2> (float[1, 3, 3] x, float[2, 1, 2] w) -> 3 channels for weights of 1 in 2 groups
Conv<strides = [0]> (float[1, 1, 3] x, float[1, 1, 2] w) -> stride 0 and dilation 1
Conv (float[1, 1, 3] x, float[1, 1, 5] w) -> the kernel reaches over 5 elements, the input has 3
GridSample (float[1, 1, 3, 3] x, float[1, 3, 2] g) -> an input of 4 axes and a grid of 3
a, b = BatchNormalization (float[2, 3] x, float[3] a1, float[3] b1, float[3] c1, float[3] d1) -> 2 outputs
BatchNormalization (float[2, 3] x, float[4] a, float[3] b, float[3] c, float[3] d) \
-> input 1 is not a list of one value
Resize (float[2] x, , float[1] s = {2.0}, int64[1] n = {4}) -> both scales and sizes are given
Resize (float[2] x) -> neither scales nor sizes are given
Resize (float[2] x, , float[1, 1] s) -> scales have 2 axes
Resize (float[2] x, , , int64[2] s) -> 2 sizes for 1 axes
LSTM<hidden_size = 2> (float[3, 1] x, float[1, 8, 1] w, float[1, 8, 2] r) -> input 0 has 2 axes, 3 are needed
LSTM<hidden_size = 2> (float[3, 1, 1] x, float[2, 8, 1] w, float[2, 8, 2] r) \
-> weights of 2 directions, the node has 1
Einsum<equation = "ab->a"> (float[2] x) -> the equation gives input 0 more than its 1 axes
Einsum<equation = "a->a"> (float[2, 2] x) -> the equation gives input 0 1 axes, it has 2
Einsum<equation = "aa->a"> (float[2, 3] x) -> 'a' is 2 and 3
Einsum<equation = "a,a->a"> (float[2] x) -> the equation has more terms than there are inputs
Einsum<equation = "a->a"> (float[2] x, float[2] z) -> 2 inputs for 1 terms
Einsum<equation = "a -> b"> (float[2] x) -> the equation's result has 'b', which no input has
NegativeLogLikelihoodLoss (float[2] x, int64[2] t) -> scores of 1 axes, at least 2 are needed
NegativeLogLikelihoodLoss (float[2, 3] x, int64[2, 3] t) -> targets of 2 axes for scores of 2
NegativeLogLikelihoodLoss (float[2, 3, 4] x, int64[2, 5] t) -> axis 1 of the targets is 5, of the scores 4
Attention (float[1, 1, 2, 4] a, float[1, 2, 4] b, b) -> Q, K and V have 4, 3 and 3 axes
Attention (float[1, 2, 4] a, a, a) -> with 3 axes, q_num_heads and kv_num_heads must be above 0: 0 and 0
Attention (float[1, 3, 2, 4] a, float[1, 2, 2, 4] b, b) -> 3 query heads do not divide among 2
Attention (float[1, 1, 2, 4] a, float[1, 1, 2, 3] b, b) -> queries have head size 4, keys 3
Attention<q_num_heads = 3, kv_num_heads = 3> (float[1, 2, 4] a, a, a) \
-> 4 channels do not divide among 3 heads
y, p = Attention (float[1, 1, 2, 4] a, a, a, , float[1, 1, 2, 4] q, q) \
-> present_key and present_value are given
Attention (float[1, 1, 2, 4] a, a, a, , float[1, 1, 2, 4] p) -> past_key and past_value are given together
Attention (float[1, 1, 2, 4] a, a, a, , float[1, 2, 4] p, p) -> past_key has 3 axes, 4 are needed
y, i = TopK (float[3] x, int64[1] k = {4}) -> the largest 4 of 3
RoiAlign (float[1, 1, 4, 4] x, float[4] r, int64[1] i) -> input 1 has 1 axes, 2 are needed
Transpose<perm = [0]> (float[2, 3] x) -> perm has 1 entries for 2 axes
Transpose<perm = [0, 0]> (float[2, 3] x) -> perm[1] is 0: not a permutation of 2 axes
Concat<axis = 0> (float[2] x, float[2, 2] z) -> input 1 has 2 axes, the first has 1
Concat<axis = 0> (float[2, 3] x, float[2, 2] z) -> axis 1 is 2 in input 1 and 3 before
Reshape (float[6] x, int64[2] s = {-1, -1}) -> two sizes are -1
Reshape (float[6] x, int64[1] s = {-2}) -> size 0 is -2
Reshape (float[6] x, int64[2] s = {6, 0}) -> size 1 is copied from an axis that the input does not have
Reshape (float[6] x, int64[2] s = {4, -1}) -> 6 elements do not divide into rows of 4
Reshape (float[6] x, int64[1] s = {4}) -> 6 elements cannot become 4
Unsqueeze (float[6] x, int64[2] a = {0, 0}) -> axis 0 is listed twice
Squeeze (float[6] x, int64[1] a = {0}) -> axis 0 has size 6, which cannot be squeezed
Gather (float[3] x, int64[1] i = {3}) -> index 3 of an axis of size 3
Slice (float[3] x, int64[1] a = {0}, int64[1] b = {1}, int64[1] c = {0}, int64[1] d = {0}) \
-> step 0 along axis 0
a, b = Split (float[6] x, int64[1] n = {6}) -> 1 sizes for 2 outputs
a, b = Split (float[6] x, int64[2] n = {2, 3}) -> the parts have 5 elements, axis 0 has 6
a, b = Split<num_outputs = 3> (float[6] x) -> num_outputs is 3 for 2 outputs
Constant<value_int = 1, value_float = 2.0> () -> a Constant with 2 values
DepthToSpace<blocksize = 2> (float[4, 2, 2] x) -> 3 axes and a block of 2
Flatten<axis = 3> (float[2, 3] x) -> axis 3 of 2 axes
ConstantOfShape (int64[1] n = {-3}) -> size 0 is -3
Tile (float[6] x, int64[2] n = {1, 1}) -> 2 values for 1 axes
Tile (float[2, 3] x, int64[2] n = {2, 1}) -> 'y' is declared with 0 axes, the op gives 2
Pad (float[n, 3] x, int64[4] p = {0, 1, 0, 1}) -> 'y' is declared with 0 axes, the op gives 2
ReduceSum<noop_with_empty_axes = 1> (float[2, 3] x) -> 'y' is declared with 0 axes, the op gives 2
LSTM (float[3, 1, 1] x, float[1, 8, 1] w, float[1, 8, 2] r) -> 'y' is declared with 0 axes, the op gives 4
Conv<dilations = [4611686018427387904]> (float[1, 1, 3] x, float[1, 1, 3] w) -> 'y' is declared with 0 axes
Cast<to = 0.5> (float[2] x) -> attribute 'to' is a float, Cast wants an integer
Softmax<axis = "a"> (float[2] x) -> attribute 'axis' is a string, Softmax wants an integer
Einsum<equation = 1> (float[2] x) -> attribute 'equation' is an integer, Einsum wants a string
Constant<value = 1> () -> attribute 'value' is an integer, Constant wants a tensor
Loop<body = 1> (int64 n, bool c) -> attribute 'body' is an integer, Loop wants a graph
, i = TopK (float[3] x, int64[1] k = {2}) -> output 0 is left out, and TopK always gives it
""")


@pytest.mark.parametrize("call, message", CHECK)
def test_check(call, message, tmp_path):
    report = qkv.check(save(call, tmp_path))
    assert not report and message in str(report), str(report)


FUNCTIONS = [  # call, attributes, inputs, outputs; what qkv check says, and the reader
    ("y = own.f<s = 1>(x, x)", "s", "a", "c", "2 inputs and 1 outputs; function 'f' has 1 and 1",
     "function 'f' takes 1 inputs, 2 are given"),
    ("y, z = own.f<s = 1>(x)", "s", "a", "c", "1 inputs and 2 outputs; function 'f' has 1 and 1",
     "function 'f' gives 1 results, 2 are named"),
    ("y = own.f<s = 1, t = 1>(x)", "s", "a", "c", "function 'f' has no attribute 't'", ""),
    ("y = own.f<t = 1>(x)", "s: int = 1", "a", "c", "function 'f' has no attribute 't'", ""),
    ("y = own.f<s = 1>(x)", "s, s", "a", "c", "two attributes 's'", ""),
    ("y = own.f<s = 1>(x)", "s", "a, a", "c", "two inputs 'a'", ""),
    ("y = own.f<s = 1>(x)", "s", "a", "c, c", "two outputs 'c'", ""),
]


@pytest.mark.parametrize("call, attributes, inputs, outputs, check, read", FUNCTIONS)
def test_functions(call, attributes, inputs, outputs, check, read, tmp_path):
    m = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23, "own": 1]>\n'
                                f"g (float[2] x) => (float[2] y) {{ {call} }}\n"
                                f'<domain: "own", opset_import: ["": 23]>\n'
                                f"f <{attributes}> ({inputs}) => ({outputs}) {{ c = Relu(a) }}")
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    report = qkv.check(path)
    assert not report and check in str(report), str(report)
    if read:
        with pytest.raises(qkv.Error, match=re.escape(read)):
            qkv.Model(path)


def pools(op, attributes, path):
    nodes = "\n".join(f"x{i + 1} = {op}<kernel_shape = [3], strides = [2], {attributes}>(x{i})" for i in range(120))
    text = (f'<ir_version: 9, opset_import: ["": 18]>\ng (float[1, 1, n] x0) => (float[1, 1, m] x120) {{ {nodes} }}')
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


@pytest.mark.parametrize("op", ["MaxPool", "LpPool", "AveragePool"])
def test_sizes_that_grow_with_each_node(op, tmp_path):
    """Windows over windows of a size that varies: at some depth its expression is too large to be built."""
    with pytest.raises(qkv.Error, match="a size expression is too large"):
        qkv.Model(pools(op, "ceil_mode = 1", tmp_path / "m.onnx"))


def test_sizes_of_quotients_of_quotients_do_not_grow(tmp_path):
    model = qkv.Model(pools("MaxPool", 'auto_pad = "SAME_UPPER"', tmp_path / "m.onnx"))
    for n in (1, 5, 300):
        assert model.run(np.ones((1, 1, n), np.float32))["x120"].shape == (1, 1, 1)


BODIES = [  # a graph of the main domain as text, and what is said of it
    ("g (float[4] x, bool c) => (float[4] y) { y = If (c) <then_branch = t () => (float[4] z) { q = Neg (x) }, "
     "else_branch = e () => (float[4] z) { z = Neg (x) }> }", "the body never computes its result 'z'"),
    ("g (float[4] x, bool c) => (float[4] y) { s = SequenceConstruct (x, x) y = If (c) <then_branch = t () => "
     "(float[4] z) { i = Constant <value_int = 0> () z = SequenceAt (s, i) }, else_branch = e () => (float[4] z) "
     "{ z = Neg (x) }> }", "a body uses 's', a sequence or a tensor of strings"),
    ("g (float[4] x, int64 m, bool c) => (float[4] y) { y = Loop (m, c, x) <body = b (int64 i, bool d) => "
     "(bool e, float[4] z) { e = Identity (d) z = Neg (x) }> }", "the body takes 2 inputs, expected 3"),
    ("g (float[4] x, int64 m, bool c) => (float[4] y) { y = Loop (m, c, x) <body = b (int64 i, bool d, float[4] a) => "
     "(bool e) { e = Identity (d) }> }", "the body gives 1 results for 1 carried values"),
    ("g (float[4] x, int64 m, bool c) => (float[4] y) { y, z, w = Loop (m, c, x) <body = b (int64 i, bool d, "
     "float[4] a) => (bool e, float[4] z) { e = Identity (d) z = Neg (a) }> }",
     "3 results are named, the loop gives 1"),
    ("g (float[4] x, int64 m, bool c) => (float[4] y) { y = Loop (m, c, x) }",
     "attribute 'body' is missing or not a graph"),
    ("g (float[4] x, int64 m, bool c) => (float[4] y) { y = Loop (m, c, x) <body = b (int64 i, bool d, float[4] a) "
     "=> (float[4] e, float[4] z) { e = Abs (a) z = Neg (a) }> }", "the body's condition is f32, expected bool"),
    ("g (float[4] x, int64 m, bool c, int64[1] s) => (float[4] y) <int64[1] one = {1}> { w = Loop (m, c, x) <body = b "
     "(int64 i, bool d, float[4] a) => (bool[1] e, float[4] z) { e = Reshape (d, one) z = Neg (a) }> "
     "y = Unsqueeze (w, s) }", "input 1 's' decides what the graph looks like, but it is computed"),
    ("g (float[4] x) => (float[4] y) { y = Scan <num_scan_inputs = 1, scan_input_axes = [0, 0], "
     "body = b (float a) => (float z) { z = Neg (a) }> (x) }",
     "attribute 'scan_input_axes' has 2 elements, expected 1"),
    ("g (float[4] x, int64[2] m, bool c) => (float[4] y) { y = Loop (m, c, x) <body = b (int64 i, bool d, float[4] a) "
     "=> (bool e, float[4] z) { e = Identity (d) z = Neg (a) }> }", "2 elements, expected one trip count"),
    ("g (float[4] x, int64 m, bool c) => (float[4] y) { y = Loop (m, c, x) <body = b (int64 i, bool d, float[4] a) "
     "=> (bool e, float[4] z) { f = Not (d) z = Neg (a) }> }", "the body never computes its result 'e'"),
    ("g (float x) => (float[4] y) { y = Scan <num_scan_inputs = 1, "
     "body = b (float a) => (float z) { z = Neg (a) }> (x) }",
     "a number, expected a sequence"),
    ("g (float[4] x) => (float[4] y) { s = SequenceConstruct (x, x) y = Relu (s) }",
     "is a sequence, expected a tensor"),
    ("g (float[4] x) => (float[2] y) <string[2] s = {\"a\", \"b\"}> { y = Relu (s) }", "'s' is a tensor of strings"),
    ("g (float[2] x, int64[1] a) => (float[1, 2] y) { y = Unsqueeze (x, a) }",
     "input 1 'a' decides what the graph looks like, but it is computed"),
    ("g (float[n] x) => (float[1] y) { s = Shape (x) y = Unsqueeze (x, s) }",
     "input 1 's' must be constant integers, but element 0 depends on sizes"),
    ("g (float[2] x, int64[n] s) => (float[2] y) { y = Reshape (x, s) }",
     "input 1 's' is computed and its length is not fixed"),
    ("g (float[2, n] x, float[3, 4] a, float[5, 4] b) => (float[2, 4] y) { s = MatMul (x, a) t = MatMul (x, b) "
     "y = Add (s, t) }", "a size that is 5 here is 3 elsewhere"),
]


@pytest.mark.parametrize("text, message", BODIES)
def test_bodies(text, message, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text).SerializeToString())
    with pytest.raises(qkv.Error, match=re.escape(message)):
        qkv.Model(path)
