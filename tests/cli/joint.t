# A model and the gradients of its loss: one file, which runs like any other.
$ qkv joint train.pt2 --loss output_0 -o joint.pt2
loss output_0: 2 gradients, 17 nodes (the model has 6)
! qkv: parameter 'unused' does not reach the loss: it has no gradient
$ qkv graph joint.pt2
symbol s48 in [1, 64]
input %x: f32[s48, 4]
input %target: f32[s48, 3]
weight %p_unused: f32[2] = parameter "unused"
weight %p_layer_weight: f32[3, 4] = parameter "layer.weight"
weight %p_layer_bias: f32[3] = parameter "layer.bias"
%linear: f32[s48, 3] = aten.linear.default(%x, %p_layer_weight, %p_layer_bias)
%relu: f32[s48, 3] = aten.relu.default(%linear)
%mul: f32[s48, 3] = aten.mul.Tensor(%relu, 2)
%sub: f32[s48, 3] = aten.sub.Tensor(%mul, %target)
%square: f32[s48, 3] = aten.square.default(%sub)
%mean: f32[] = aten.mean.dim(%square)
%full: f32[] = aten.full.default([], 1.0, dtype=f32)
%mean_grad: f32[] = aten.div.Tensor(%full, (3*s48))
%mean_grad__13: f32[s48, 3] = aten.expand.default(%mean_grad, [s48, 3])
%square_grad: f32[s48, 3] = aten.mul.Tensor(%sub, 2.0)
%square_grad__15: f32[s48, 3] = aten.mul.Tensor(%mean_grad__13, %square_grad)
%mul_grad: f32[s48, 3] = aten.mul.Tensor(%square_grad__15, 2)
%relu_grad: bool[s48, 3] = aten.le.Tensor(%relu, 0.0)
%relu_grad__18: f32[s48, 3] = aten.where.self(%relu_grad, 0.0, %mul_grad)
%linear_grad: f32[s48, 4] = aten.matmul.default(%relu_grad__18, %p_layer_weight)
%linear_grad__20: f32[3, s48] = aten.permute.default(%relu_grad__18, [1, 0])
%linear_grad__21: f32[3, 4] = aten.matmul.default(%linear_grad__20, %x)
output output_0 = %mean loss
output output_1 = %mul
output grad.layer.weight = %linear_grad__21 gradient of %p_layer_weight
output grad.x = %linear_grad gradient of %x
$ make st in.safetensors x:f32:2x4:1,0,-1,2,0.5 target:f32:2x3:0,1,2,3; qkv run joint.pt2 -i in.safetensors -q
output             dtype  shape        min      max     mean  not finite
output_0           f32    ()       21.9583  21.9583  21.9583           0
output_1           f32    (2, 3)       1.5        8     5.75           0
grad.layer.weight  f32    (3, 4)  -3.16667  10.8333      2.5           0
grad.x             f32    (2, 4)         9  20.1667  13.6458           0
$ qkv pack joint.pt2 -o joint.qkv -q >packed.txt; qkv run joint.qkv -i in.safetensors -q | tail -1; qkv rewrite joint.pt2 -o again.pt2 -q; qkv graph again.pt2 | tail -3
grad.x             f32    (2, 4)         9  20.1667  13.6458           0
0 attentions fused, 0 left; 17 nodes, were 17
output output_1 = %mul
output grad.layer.weight = %linear_grad__21 gradient of %p_layer_weight
output grad.x = %linear_grad gradient of %x
$ qkv joint train.pt2 --loss output_0 --inputs-only --grad target -o joint.onnx; qkv run joint.onnx -i in.safetensors -q
opset 18, target ort: 20 nodes, 8 weights and constants, 0 attentions (0 as one op)
loss output_0: 2 gradients, 16 nodes (the model has 6)
output       dtype  shape        min      max     mean  not finite
output_0     f32    ()       21.9583  21.9583  21.9583           0
output_1     f32    (2, 3)       1.5        8     5.75           0
grad.x       f32    (2, 4)         9  20.1667  13.6458           0
grad.target  f32    (2, 3)  -2.33333      0.5    -1.25           0
$ qkv joint joint.pt2 --loss output_0 -o no.pt2
! qkv: error: the model has gradients already: output 'output_0'
? 2
$ qkv joint train.pt2 --loss output_0 --grad nobody -o no.pt2
! qkv: error: the model has no input 'nobody'
? 2
$ qkv joint train.pt2 --loss output_1 -o no.pt2
! qkv: error: output 'output_1' is not a loss: its shape is (s48, 3), expected a scalar; let the model end with a mean or a sum
? 2
$ qkv joint train.pt2 --loss output_9 -o no.pt2
! qkv: error: the model has no output 'output_9' to take as the loss; it has output_0, output_1
? 2
$ qkv joint train.pt2 -o no.pt2
! qkv: error: which output is the loss? The model has output_0, output_1
? 2
$ qkv joint affine.pt2 -o no.pt2
! qkv: error: output 'output_0' is not a loss: its shape is (s77, 3), expected a scalar; let the model end with a mean or a sum
? 2
$ qkv joint train.pt2 --loss output_0
! qkv: error: joint needs -o FILE
? 2
$ qkv joint train.pt2 --loss output_0 -o no.txt
! qkv: error: option '-o': found 'no.txt', expected a file that ends in .onnx or .pt2
? 2
$ qkv joint train.pt2 --loss output_0 --decompose all -o no.pt2
! qkv: error: option '--decompose': found 'all', expected none, core or math
? 2
$ qkv joint train.pt2 --loss output_0 --json -q -o joint.pt2 | head -12
{
  "schema": 1,
  "loss": "output_0",
  "nodes_before": 6,
  "nodes_after": 17,
  "gradients": [
    {"output": "grad.layer.weight", "parameter": "layer.weight", "dtype": "f32", "shape": [3, 4]},
    {"output": "grad.x", "input": "x", "dtype": "f32", "shape": ["s48", 4]}
  ],
  "without": ["unused"],
  "model": "train.pt2",
  "output": "joint.pt2"
$ qkv joint train.pt2 --loss output_0 --json -q -o joint.onnx | grep -e '^{' -e '"onnx"' -e '"nodes_after"'
{
  "nodes_after": 17,
  "onnx": {
$ ls no.*
! ls: cannot access 'no.*': No such file or directory
? 2
