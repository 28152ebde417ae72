# A packed model runs like its source, says what it is, and is packed again from itself.
$ qkv pack eager.pt2 -o e.qkv | cut -d, -f1
8 weights (1.1 KiB)
$ make st in.safetensors x:f32:2x3x8:1,0.5,-1,2,0,-0.25,3,-2,0.125,1,1,-1 mask:bool:2x3:1,1,0,1; qkv verify e.qkv eager.pt2 -i in.safetensors | tail -1
the output agrees
$ qkv pack e.qkv -o again.qkv -q >/dev/null && qkv pack eager.pt2 -o other.qkv >/dev/null && cmp e.qkv other.qkv && cmp e.qkv again.qkv
$ qkv pack affine.pt2 -o a.qkv --json | grep weight
  "weights": 2,
  "weight_bytes": 60,
$ qkv inspect a.qkv
a.qkv: torch 2.13.0+cpu, schema 8.20, 3 nodes
parameters: 15 in 2 tensors, 60 bytes

inputs (1)
name  dtype  shape
x     f32    (s77, 4)

sizes (1)
symbol  min  max  from
s77       1   64  x.0

outputs (1)
name      dtype  shape     value
output_0  f32    (s77, 3)  mul

attentions: none

modules (1)
module   class  nodes  parameters  attentions
(model)             -          15           -
  layer             -          15           -

ops (3)
nodes  op
    1  aten.relu.default
    1  aten.mul.Tensor
    1  aten.linear.default
$ qkv pack padded.onnx -o p.qkv | cut -d, -f1
0 weights (0 bytes)
$ qkv verify p.qkv padded.onnx | tail -1
the output agrees
! qkv: random q: f32 (1, 2, 1, 8), seed 0
! qkv: random k: f32 (1, 2, 1, 8), seed 0
! qkv: random v: f32 (1, 2, 1, 8), seed 0
! qkv: random mask: bool (1, 1, 1, 1), seed 0
# what cannot be
$ qkv pack affine.pt2
! qkv: error: pack needs -o FILE.qkv
? 2
$ qkv pack affine.pt2 -o a.pt2
! qkv: error: pack needs -o FILE.qkv
? 2
$ qkv run a.qkv --dtype bf16
! qkv: error: a.qkv: another compute dtype is chosen when a model is packed
? 4
$ printf 'x' >> a.qkv; qkv run a.qkv 2>&1 | sed 's/[0-9][0-9]*/N/g'
qkv: error: a.qkv: the file has N bytes, its header says N
$ head -c 100 e.qkv > cut.qkv; qkv run cut.qkv
! qkv: error: cut.qkv: the file has 100 bytes, a header has 128
? 3
$ QKV_CPU=gen qkv pack eager.pt2 -o g.qkv -q > g.txt; QKV_CPU=ref qkv run g.qkv 2>&1 | sed 's/layout [^)]*/layout L/g'
qkv: error: g.qkv: its weights are packed for CPU (layout L), this CPU runs CPU (layout L): run 'qkv pack' on the model's source here
$ qkv pack e.qkv -o nowhere/e.qkv
! qkv: error: cannot write 'nowhere/e.qkv': No such file or directory
? 3
