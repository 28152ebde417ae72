$ make st x.safetensors x:f32:2x4:1,2,3,4,-1,-2,-3,-4; make st y.safetensors output_0:f32:2x3:10,31,48,0
$ qkv verify affine.pt2 -i x.safetensors -e y.safetensors
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (2, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
$ make st wrong.safetensors output_0:f32:2x3:10,31,47.5,0,0,nan; qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors
output    result   value       max abs  max rel  of peak     cosine  at      got  expected  differ
output_0  DIFFERS  f32 (2, 3)      0.5   0.0105   0.0105  0.9999881  (1, 2)    0       nan       2

1 of 1 output differs
? 1
$ make st wrong.safetensors output_0:f32:2x3:10,31.25,47.5,0; qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --json
{
  "schema": 1,
  "model": "affine.pt2",
  "against": "wrong.safetensors",
  "agrees": false,
  "outputs": [
    {"name": "output_0", "agrees": false, "dtype": "f32", "shape": [2, 3], "expected_dtype": "f32", "expected_shape": [2, 3], "max_abs": 0.5, "max_rel": 0.01052631579, "max_abs_over_peak": 0.01052631579, "cosine": 0.9999648899, "failed": 2, "nonfinite_mismatch": 0, "atol": 0.00095, "rtol": 0.0, "index": [0, 2], "got": 48.0, "expected": 47.5}
  ]
}
? 1
$ qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --atol 0.4
output    result   value       max abs  max rel  of peak     cosine  at      got  expected  differ
output_0  DIFFERS  f32 (2, 3)      0.5   0.0105   0.0105  0.9999649  (0, 2)   48      47.5       1

1 of 1 output differs
? 1
$ qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --atol 0.5
output    result  value       max abs  max rel  of peak     cosine  at      got  expected  differ
output_0  ok      f32 (2, 3)      0.5   0.0105   0.0105  0.9999649  (0, 2)   48      47.5       0

the output agrees
$ qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --atol 0 --rtol output_0:0.02 -q
output    result  value       max abs  max rel  of peak     cosine  at      got  expected  differ
output_0  ok      f32 (2, 3)      0.5   0.0105   0.0105  0.9999649  (0, 2)   48      47.5       0

the output agrees
$ qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --atol output_1:1
! qkv: error: option '--atol': the model has no output 'output_1'
? 2
$ qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --rtol many
! qkv: error: option '--rtol': found 'many', expected X or OUTPUT:X
? 2
$ make st shape.safetensors 0:f32:3x2:1; qkv verify affine.pt2 -i x.safetensors -e shape.safetensors
output    result   value       max abs  max rel  of peak  cosine  at  got  expected  differ
output_0  DIFFERS  f32 (2, 3)        -        -        -       -  -     -    (3, 2)   shape

1 of 1 output differs
? 1
$ make st names.safetensors y:f32:2x3:1; qkv verify affine.pt2 -i x.safetensors -e names.safetensors
! qkv: error: names.safetensors: 'y' is not an output; the model has output_0
? 2
$ make st ab.safetensors a:i64:1x3:1,2,3 b:f32:1x3:0.5,3,1; make st s.safetensors output_0:f32:1x3:1.5,5,4; qkv verify two.pt2 -i ab.safetensors -e s.safetensors
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (1, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
! qkv: warning: s.safetensors has no 'output_1': not compared
$ make st s.safetensors output_0:f32:1x3:1.5,5,4 output_1:i64:1x3:1,0,1; qkv verify two.pt2 -i ab.safetensors -e s.safetensors
output    result  value        max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (1, 3)         0        0        0  1.0000000  -     -         -       0
output_1  ok      bool (1, 3)        0        0        0  1.0000000  -     -         -       0

all outputs agree
! qkv: warning: output_1 is bool, expected i64; their values are compared
$ qkv run affine.pt2 -i x.safetensors -o y.npy -q > /dev/null; qkv verify affine.pt2 -i x.safetensors -e y.npy
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (2, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
# Two models.
$ qkv verify affine.pt2 affine.pt2 -D batch=3
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (3, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
! qkv: random x: f32 (3, 4), seed 0
$ qkv verify affine2.pt2 affine.pt2 -i x.safetensors
output    result   value       max abs  max rel  of peak     cosine  at       got  expected  differ
output_0  DIFFERS  f32 (2, 3)      0.5   0.0161   0.0104  0.9999737  (0, 1)  31.5        31       1

1 of 1 output differs
? 1
$ qkv verify affine2.pt2 two.pt2 -i x.safetensors
! qkv: error: number of outputs: affine2.pt2 has 1, two.pt2 has 2
? 1
$ qkv verify affine.pt2 missing.pt2
! qkv: error: cannot open 'missing.pt2': No such file or directory
? 3
# Node by node.
$ make st trace.safetensors linear:f32:2x3:5,15.5,24,-5,-14.5,-26 relu:f32:2x3:5,15.5,24,0 mul:f32:2x3:10,31,48,0
$ qkv verify affine.pt2 -i x.safetensors --per-node trace.safetensors
all 3 compared nodes agree (3 ran, 3 in the trace)
$ qkv verify affine2.pt2 -i x.safetensors --per-node trace.safetensors
node 'linear' (aten.linear.default) is the first that differs
  at (0, 1): 15.75, expected 15.5
  max abs 0.25, max rel 0.0172, of peak 0.00962, cosine 0.9999644; 2 of 6 elements differ
  0 nodes before it agree
? 1
$ make st trace.safetensors linear:f32:2x3:5,15.5,24,-5,-14.5,-26 relu:f32:2x3:5,15.5,24,0 mul:f32:2x3:10,31,49,0
$ qkv verify affine.pt2 -i x.safetensors --per-node trace.safetensors -e y.safetensors
node 'mul' (aten.mul.Tensor) is the first that differs
  at (0, 2): 48, expected 49
  max abs 1, max rel 0.0204, of peak 0.0204, cosine 0.9999545; 1 of 6 elements differ
  2 nodes before it agree

output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (2, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
? 1
$ qkv verify affine.pt2 -i x.safetensors --per-node trace.safetensors --json
{
  "schema": 1,
  "model": "affine.pt2",
  "against": null,
  "agrees": false,
  "outputs": [],
  "nodes": {
    "differs": true,
    "agreed": 2,
    "in_trace": 3,
    "node": "mul",
    "op": "aten.mul.Tensor",
    "difference": {"name": "mul", "agrees": false, "dtype": "f32", "shape": [2, 3], "expected_dtype": "f32", "expected_shape": [2, 3], "max_abs": 1.0, "max_rel": 0.02040816327, "max_abs_over_peak": 0.02040816327, "cosine": 0.999954461, "failed": 1, "nonfinite_mismatch": 0, "atol": 0.0098, "rtol": 0.0, "index": [0, 2], "got": 48.0, "expected": 49.0}
  }
}
? 1
$ qkv verify affine.pt2 -i x.safetensors --per-node y.safetensors
! qkv: error: y.safetensors: none of its 1 tensors has the name of a node of the model
? 2
$ make st qkv.safetensors q:f32:1x2x1x8:1 k:f32:1x2x1x8:1 v:f32:1x2x1x8:3 mask:bool:1x1x1x1:1; make st third.safetensors output_0:f32:1x2x1x8:3; qkv verify spelled.onnx -i qkv.safetensors -e third.safetensors | tail -1
the output agrees
