# A part of a model becomes a file of its own; its weights become a tensor file; tensor files become one another.
$ qkv extract eager.pt2 --from x,div_1 --to add -o part.pt2
! qkv: input x
! qkv: input div_1
! qkv: output add
$ qkv graph part.pt2
symbol s31 in [1, 64]
symbol s27 in [2, 16]
input %x: f32[s31, s27, 8]
input %div_1: f32[s31, 2, s27, s27]
weight %p_v_weight: f32[8, 8] = parameter "v.weight"
weight %p_v_bias: f32[8] = parameter "v.bias"
weight %p_out_weight: f32[8, 8] = parameter "out.weight"
weight %p_out_bias: f32[8] = parameter "out.bias"
%linear_2: f32[s31, s27, 8] = aten.linear.default(%x, %p_v_weight, %p_v_bias)
%view_2: f32[s31, s27, 2, 4] = aten.reshape.default(%linear_2, [s31, s27, 2, 4])
%transpose_2: f32[s31, 2, s27, 4] = aten.permute.default(%view_2, [0, 2, 1, 3])
%matmul_1: f32[s31, 2, s27, 4] = aten.matmul.default(%div_1, %transpose_2)
%transpose_4: f32[s31, s27, 2, 4] = aten.permute.default(%matmul_1, [0, 2, 1, 3])
%reshape: f32[s31, s27, 8] = aten.reshape.default(%transpose_4, [s31, s27, 8])
%linear_3: f32[s31, s27, 8] = aten.linear.default(%reshape, %p_out_weight, %p_out_bias)
%add: f32[s31, s27, 8] = aten.add.Tensor(%x, %linear_3)
output output_0 = %add
$ qkv extract affine.pt2 --from x --to linear -o a.pt2 -q; qkv extract affine.pt2 --from linear --to mul -o b.onnx -q; qkv graph b.onnx
opset 18, target ort: 2 nodes, 1 weights and constants, 0 attentions (0 as one op)
symbol s77 in [1, 64]
input %linear: f32[s77, 3]
weight %const_f32_2: f32[] = buffer "const.f32.2"
%relu: f32[s77, 3] = aten.relu.default(%linear)
%mul: f32[s77, 3] = aten.mul.Tensor(%relu, %const_f32_2)
output mul = %mul
$ qkv run affine.pt2 -D batch=2 --seed 1 -o whole.npz -q | tail -1
output_0  f32    (2, 3)    0  4.62396  1.45683           0
$ qkv extract affine.pt2 --to relu -o relu.pt2 -q; qkv run relu.pt2 -D batch=2 --seed 1 -q | tail -1
output_0  f32    (2, 3)    0  2.31198  0.728415           0
$ qkv extract affine.pt2 --from linaer --to mul -o no.pt2
! qkv: error: there is no value 'linaer'; near it: 'linear'
? 2
$ qkv extract affine.pt2 --from relu --to linear -o no.pt2
! qkv: error: the results need the input 'x' (through 'linear'), which is not among the given ones
? 2
$ qkv extract affine.pt2 --from relu -o no.txt
! qkv: error: option '-o': found 'no.txt', expected a file that ends in .onnx or .pt2
? 2
$ qkv extract affine.pt2 -o no.pt2
! qkv: error: extract needs --from or --to, or --weights
? 2
$ qkv extract affine.pt2 --from relu
! qkv: error: extract needs -o FILE
? 2
$ qkv extract affine.pt2 --weights --from relu -o no.npz
! qkv: error: --weights writes those of the whole model and does not go with --from or --to
? 2
$ qkv extract affine.pt2 --weights -o no.pt2
! qkv: error: option '-o': found 'no.pt2', expected a file that ends in .safetensors, .npz or .npy
? 2
$ ls no.*
! ls: cannot access 'no.*': No such file or directory
? 2
$ qkv extract affine.pt2 --weights -o w.safetensors
! qkv: w.safetensors: 2 tensors, 60 bytes
$ python3 -c "d = open('w.safetensors', 'rb').read(); n = int.from_bytes(d[:8], 'little'); print(d[8:8 + n].decode().strip())"
{"layer.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},"layer.bias":{"dtype":"F32","shape":[3],"data_offsets":[48,60]}}
$ qkv convert w.safetensors -o w.npz; qkv convert w.npz -o again.safetensors -q; cmp w.safetensors again.safetensors
! qkv: w.npz: 2 tensors, 60 bytes
$ python3 -c "import zipfile; print(*zipfile.ZipFile('w.npz').namelist())"
layer.weight.npy layer.bias.npy
$ qkv convert w.npz -o one.npy
! qkv: error: 'one.npy': a .npy holds one tensor, not 2; use .npz or .safetensors
? 2
$ qkv convert affine.pt2 -o w.npz
! qkv: error: 'affine.pt2' is not a tensor file; for the weights of a model, use qkv extract affine.pt2 --weights -o w.npz
? 2
$ qkv convert w.npz -o w.onnx
! qkv: error: w.npz: no entry 'archive_format': this ZIP is not a torch.export archive
? 3
$ qkv extract static_a.pt2 --weights -o s.npz; qkv extract static_a.pt2 --weights --all -o s.npz
! qkv: s.npz: 2 tensors, 80 bytes
! qkv: left out: constants and buffers that are not in the state dict (1); --all writes them as well
! qkv: s.npz: 3 tensors, 116 bytes
