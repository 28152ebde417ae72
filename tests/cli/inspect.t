$ qkv inspect affine.pt2
affine.pt2: torch 2.13.0+cpu, schema 8.20, 3 nodes
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

entries of the file that are ignored (1)
data/sample_inputs/model.pt (a pickle, never opened)
$ qkv inspect words.pt2 --json
{
  "schema": 1,
  "file": "words.pt2",
  "format": "pt2",
  "torch": "2.13.0+cpu",
  "schema_version": "8.20",
  "producer": "",
  "opset": 0,
  "inputs": [
    {"name": "input_ids", "dtype": "i64", "shape": ["s18", "s41"]},
    {"name": "attention_mask", "dtype": "i64", "shape": ["s18", "s41"]},
    {"name": "token_type_ids", "dtype": "i64", "shape": ["s18", "s41"]}
  ],
  "scalar_inputs": [],
  "outputs": [
    {"name": "output_0", "value": "mul", "dtype": "f32", "shape": ["s18", "s41", 8]},
    {"name": "output_1", "value": "div", "dtype": "f32", "shape": ["s18", 8]}
  ],
  "symbols": [
    {"name": "s18", "min": 1, "max": 64, "bound_by": "input_ids.0"},
    {"name": "s41", "min": 2, "max": 16, "bound_by": "input_ids.1"}
  ],
  "parameters": 128,
  "parameter_bytes": 512,
  "parameter_tensors": 1,
  "buffers": 0,
  "buffer_bytes": 0,
  "buffer_tensors": 0,
  "constants": 0,
  "constant_bytes": 0,
  "constant_tensors": 0,
  "nodes": 11,
  "ops": {
    "aten.reshape.default": 2,
    "aten.mul.Tensor": 2,
    "aten._to_copy.default": 2,
    "aten.sum.dim_IntList": 2,
    "aten.add.Tensor": 1,
    "aten.div.Tensor": 1,
    "aten.embedding.default": 1
  },
  "attentions": [],
  "modules": [
    {"path": "", "type": null, "parameters": 128, "nodes": null, "attentions": null},
    {"path": "table", "type": null, "parameters": 128, "nodes": null, "attentions": null}
  ],
  "requirements": [],
  "guards": 4,
  "guards_ignored": 0,
  "written_buffers": [],
  "ignored_entries": ["data/sample_inputs/model.pt (a pickle, never opened)"],
  "metadata": {}
}
$ qkv inspect two.pt2
two.pt2: torch 2.13.0+cpu, schema 8.20, 4 nodes

inputs (2)
name  dtype  shape
a     i64    (s52, 3)
b     f32    (s52, 3)

sizes (1)
symbol  min  max  from
s52       1   64  a.0

outputs (2)
name      dtype  shape     value
output_0  f32    (s52, 3)  add
output_1  bool   (s52, 3)  gt

attentions: none

ops (3)
nodes  op
    2  aten._to_copy.default
    1  aten.add.Tensor
    1  aten.gt.Tensor

entries of the file that are ignored (1)
data/sample_inputs/model.pt (a pickle, never opened)
$ qkv graph two.pt2
symbol s52 in [1, 64]
input %a: i64[s52, 3]
input %b: f32[s52, 3]
%add__3: f32[s52, 3] = aten._to_copy.default(%a, dtype=f32)
%add: f32[s52, 3] = aten.add.Tensor(%add__3, %b)
%gt__5: f32[s52, 3] = aten._to_copy.default(%a, dtype=f32)
%gt: bool[s52, 3] = aten.gt.Tensor(%gt__5, %b)
output output_0 = %add
output output_1 = %gt
$ printf '\010\010\072\075\012\021\012\006\170\033\133\062\112\012\022\001\171\042\004\122\145\154\165\022\001\147\132\024\012\006\170\033\133\062\112\012\022\012\012\010\010\001\022\004\012\002\010\004\142\017\012\001\171\022\012\012\010\010\001\022\004\012\002\010\004\102\004\012\000\020\021' > names.onnx && qkv inspect names.onnx | grep f32 | head -1
x\x1b[2J\n  f32    (4,)
$ qkv graph names.onnx | head -1; cp names.onnx "$(printf 'n\033.onnx')"; qkv inspect n*$(printf '\033').onnx | head -1; qkv bench names.onnx -q | grep 'f32 (4'
input %x__2J_: f32[4] = "x\x1b[2J\n"
n\x1b.onnx: ONNX opset 17, 1 nodes
 f32 (4,)
$ printf '\010\010\072\075\012\021\012\006\170\342\200\256\302\233\022\001\171\042\004\122\145\154\165\022\001\147\132\024\012\006\170\342\200\256\302\233\022\012\012\010\010\001\022\004\012\002\010\004\142\017\012\001\171\022\012\012\010\010\001\022\004\012\002\010\004\102\004\012\000\020\021' > bidi.onnx; qkv graph bidi.onnx | head -1; qkv inspect bidi.onnx --json | grep -o '"x[^"]*"' | head -1; qkv graph names.onnx -o names.dot; grep -c "$(printf '\033')" names.dot
input %x_____: f32[4] = "x\u202e\x9b"
"x\u202e\u009b"
0
? 1
$ qkv graph bidi.onnx -o bidi.svg; qkv graph bidi.onnx -o bidi.dot; grep -o 'x[\]*u202e[\]*x9b' bidi.svg bidi.dot; cat bidi.svg bidi.dot | LC_ALL=C grep -c "$(printf '\342')"
bidi.svg:x\u202e\x9b
bidi.dot:x\\u202e\\x9b
0
? 1
$ cp bidi.onnx "$(printf 'tag\363\240\201\201\341\240\216.onnx')"; qkv inspect tag*.onnx | head -1
tag\U000e0041\u180e.onnx: ONNX opset 17, 1 nodes
$ qkv inspect "$(printf 'gone\033[2J.pt2')"
! qkv: error: cannot open 'gone\x1b[2J.pt2': No such file or directory
? 3
