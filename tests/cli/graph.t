# The graph after import, after a pass, and as it runs.
$ qkv graph spelled.onnx | grep -c softmax
1
$ qkv graph spelled.onnx --as-run | grep -c scaled_dot_product_attention
0
? 1
$ qkv graph spelled.onnx --after detach | grep -c softmax
1
$ qkv graph spelled.onnx --as-run --dtype bf16 | grep -c bf16
7
$ qkv graph spelled.onnx --passes precision --dtype bf16 | grep -c scaled_dot_product_attention
0
? 1
$ qkv graph spelled.onnx --after nope
! qkv: error: no pass is called 'nope'; there are import, detach, pair, rewrite, padding, constants, integers, precision, fold, fuse
? 2
$ qkv graph spelled.onnx --passes rewrite --after fuse
! qkv: error: option '--after': 'fuse' is not one of --passes rewrite
? 2
$ qkv graph spelled.onnx --as-run --after rewrite
! qkv: error: --as-run stands for all passes of a session: give no --after or --passes with it
? 2
$ make st x.safetensors x:f32:2x4:1,2,3,4,-1,-2,-3,-4; make st y.safetensors output_0:f32:2x3:10,31,48,0; qkv verify affine.pt2 -i x.safetensors -e y.safetensors --bisect
after      result  of peak
import     ok            0
detach     ok            0
pair       ok            0
rewrite    ok            0
integers   ok            0
precision  ok            0
fuse       ok            0

the outputs agree after every pass
$ make st wrong.safetensors output_0:f32:2x3:10,31,47.5,0; qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors --bisect
after      result   of peak
import     DIFFERS   0.0105
detach     DIFFERS   0.0105
pair       DIFFERS   0.0105
rewrite    DIFFERS   0.0105
integers   DIFFERS   0.0105
precision  DIFFERS   0.0105
fuse       DIFFERS   0.0105

outputs differ from pass 'import' on
? 1
$ qkv verify spelled.onnx spelled.onnx -q --dtype bf16 --atol 0 --bisect --json | grep first
  "first_pass_that_differs": "precision",
