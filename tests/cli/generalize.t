# Static exports at two sizes become one model; what cannot be solved is listed.
$ qkv generalize static_a.pt2 static_b.pt2 -o dyn.pt2
size  axes         in the files
x_0   x.0, mask.0  2, 3          taken for one size: equal in every file
x_1   x.1, mask.1  3, 5          taken for one size: equal in every file

Solved
node             argument                                    in the files  is   fits as well
view and 3 more  shape[0]                                    2, 3          x_0
view and 2 more  shape[1]                                    3, 5          x_1
add              constant 'lifted_tensor_0': size of axis 0  3, 5          x_1
add              constant 'lifted_tensor_0': size of axis 1  3, 5          x_1
view_1           shape[3]                                    3, 5          x_1

Checked
against           sizes  result  of peak
static_a.pt2      2, 3   ok            0
static_b.pt2      3, 5   ok            0
sizes of no file  4, 7   runs          -
$ qkv inspect dyn.pt2 --json | python3 -c "import json, sys; print(json.load(sys.stdin)['inputs'])"
[{'name': 'x', 'dtype': 'f32', 'shape': ['x_0', 'x_1', 4]}, {'name': 'mask', 'dtype': 'bool', 'shape': ['x_0', 'x_1']}]
$ qkv verify dyn.pt2 static_c.pt2 -D x_0=4 -D x_1=8
output    result  value          max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (4, 8, 4)        0        0        0  1.0000000  -     -         -       0

the output agrees
! qkv: random x: f32 (4, 8, 4), seed 0
! qkv: random mask: bool (4, 8), seed 0
$ qkv generalize static_a.pt2 static_b.pt2 --check static_c.pt2 -D batch=x.0,mask.0 -D length=x.1 --apart -q | tail -7

Checked
against           sizes    result  of peak
static_a.pt2      2, 3, 3  ok            0
static_b.pt2      3, 5, 5  ok            0
static_c.pt2      4, 8, 8  ok            0
sizes of no file  4, 7, 7  runs          -
$ qkv generalize static_a.pt2 static_b.pt2 static_c.pt2 --json | python3 -c "import json, sys; r = json.load(sys.stdin); print(r['schema'], r['solved'], r['sizes'][1]['values'], len(r['checks']))"
1 True [3, 5, 8] 4
$ qkv generalize static_a.pt2 static_other.pt2 -o no.pt2
size  axes         in the files
x_0   x.0, mask.0  2, 3          taken for one size: equal in every file
x_1   x.1, mask.1  3, 5          taken for one size: equal in every file

Solved
node             argument                                    in the files  is   fits as well
view and 3 more  shape[0]                                    2, 3          x_0
view and 2 more  shape[1]                                    3, 5          x_1
add              constant 'lifted_tensor_0': size of axis 0  3, 5          x_1
add              constant 'lifted_tensor_0': size of axis 1  3, 5          x_1
view_1           shape[3]                                    3, 5          x_1

Not solved
node    argument               in the files    because
linear  constant 'value.bias'  f32[4], f32[4]  same shape, different values: element 0 is 1 in static_a.pt2 and 2 in static_other.pt2; the files hold different weights
! qkv: error: 1 difference is not solved, the first at node 'linear' (aten.linear.default), constant 'value.bias': same shape, different values: element 0 is 1 in static_a.pt2 and 2 in static_other.pt2; the files hold different weights
? 1
$ ls no.pt2
! ls: cannot access 'no.pt2': No such file or directory
? 2
$ qkv generalize static_a.pt2 static_loop.pt2
Notes
structure differs: static_a.pt2 has node 'view' (aten.reshape.default) where static_loop.pt2 has node 'relu' (aten.relu.default): a Python branch on a size went two ways (export at sizes on one side of it), or these are different models
! qkv: error: structure differs: static_a.pt2 has node 'view' (aten.reshape.default) where static_loop.pt2 has node 'relu' (aten.relu.default): a Python branch on a size went two ways (export at sizes on one side of it), or these are different models
? 1
# What no size explains: every place is listed, nothing is written.
$ qkv generalize static_table_a.pt2 static_table_b.pt2 -o no.pt2
size  axes  in the files
x_0   x.0   2, 4
x_1   x.1   3, 5

Solved
node  argument                                    in the files  is   fits as well
mul   constant 'lifted_tensor_0': size of axis 0  3, 5          x_1

Not solved
node  argument                    in the files    because
mul   constant 'lifted_tensor_0'  f32[3], f32[5]  no pattern was found: neither an affine index, runs, nor a part of the larger one
add   other                       137, 911        387*x_1 - 1024 fits, but two free constants fit any two values: give a third file
! qkv: error: 2 differences are not solved, the first at node 'mul' (aten.mul.Tensor), constant 'lifted_tensor_0': no pattern was found: neither an affine index, runs, nor a part of the larger one
? 1
$ qkv generalize static_table_a.pt2 static_table_b.pt2 --json | python3 -c "import json, sys; r = json.load(sys.stdin); print(r['solved'], [(u['node'], u['values']) for u in r['unsolved']])"
False [('mul', ['f32[3]', 'f32[5]']), ('add', ['137', '911'])]
! qkv: error: 2 differences are not solved, the first at node 'mul' (aten.mul.Tensor), constant 'lifted_tensor_0': no pattern was found: neither an affine index, runs, nor a part of the larger one
$ qkv generalize static_a.pt2 static_table_b.pt2
Notes
structure differs: static_a.pt2 has 2 inputs, static_table_b.pt2 has 1
! qkv: error: structure differs: static_a.pt2 has 2 inputs, static_table_b.pt2 has 1
? 1
$ ls no.pt2
! ls: cannot access 'no.pt2': No such file or directory
? 2
# Another model, or other weights, among the files to check against.
$ qkv generalize static_a.pt2 static_b.pt2 --verify words.pt2 | tail -2
words.pt2         -      its inputs and outputs are not those of the other files        -
sizes of no file  4, 7   runs                                                           -
! qkv: error: checked against words.pt2: its inputs and outputs are not those of the other files
$ qkv generalize static_a.pt2 static_b.pt2 --verify dyn.pt2 | tail -2
dyn.pt2           -      its sizes are variable; expected a static export        -
sizes of no file  4, 7   runs                                                    -
! qkv: error: checked against dyn.pt2: its sizes are variable; expected a static export
$ qkv generalize static_a.pt2 static_b.pt2 --verify static_table_a.pt2 | tail -5
against             sizes  result                                                   of peak
static_a.pt2        2, 3   ok                                                             0
static_b.pt2        3, 5   ok                                                             0
static_table_a.pt2  -      its inputs and outputs are not those of the other files        -
sizes of no file    4, 7   runs                                                           -
! qkv: error: checked against static_table_a.pt2: its inputs and outputs are not those of the other files
$ qkv generalize static_a.pt2 static_b.pt2 --verify static_other.pt2 -o no.pt2 | tail -6
Checked
against           sizes  result                                                                      of peak
static_a.pt2      2, 3   ok                                                                                0
static_b.pt2      3, 5   ok                                                                                0
static_other.pt2  3, 5   output_0 differs: 15 elements, the largest difference is 0.265 of its peak        -
sizes of no file  4, 7   runs                                                                              -
! qkv: error: checked against static_other.pt2: output_0 differs: 15 elements, the largest difference is 0.265 of its peak
$ qkv generalize static_a.pt2
! qkv: error: an argument is missing: qkv generalize MODEL MODEL...; 'qkv help generalize' says more
? 2
$ qkv generalize static_a.pt2 static_a.pt2
! qkv: error: every input has the same sizes in all files: nothing to generalize
? 2
$ qkv generalize static_a.pt2 dyn.pt2
! qkv: error: dyn.pt2: input 'x': axis 0 is variable already; generalize takes static exports (without dynamic_shapes)
? 2
$ qkv generalize static_a.pt2 affine.pt2
! qkv: error: affine.pt2: input 'x': axis 0 is variable already; generalize takes static exports (without dynamic_shapes)
? 2
$ qkv generalize static_a.pt2 static_b.pt2 -D batch=x.9
! qkv: error: option 'dim': 'x.9' is not an axis; write INPUT.AXIS, the inputs are x (rank 3), mask (rank 2)
? 2
$ qkv generalize static_a.pt2 static_b.pt2 --dynamic x.2
! qkv: error: option 'dynamic': x.2 is 4 in every file; add a file in which it differs
? 2
$ qkv generalize static_a.pt2 static_b.pt2 --verfy static_c.pt2
! qkv: error: qkv generalize has no option '--verfy'; did you mean '--verify'?
? 2
$ qkv generalize static_a.pt2 nothing.pt2
! qkv: error: cannot open 'nothing.pt2': No such file or directory
? 3
