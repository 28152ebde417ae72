# qkv check: findings, their explanation, exit codes.
$ qkv check affine.pt2
affine.pt2: 3 nodes, 2 weights: 0 errors, 0 warnings, 0 notes
$ qkv check affine.pt2 --json
{
  "schema": 1,
  "file": "affine.pt2",
  "format": "pt2",
  "readable": true,
  "targets": [],
  "security": false,
  "full": false,
  "nodes": 3,
  "weights": 2,
  "errors": 0,
  "warnings": 0,
  "notes": 0,
  "findings": []
}
$ qkv check affine.pt2 --security --full --strict
affine.pt2: 3 nodes, 2 weights: 0 errors, 0 warnings, 0 notes
$ qkv check eager.pt2
severity  id    place       finding
warning   Q501  node 'exp'  the mask from input 'mask' fills in -inf before the softmax

eager.pt2: 28 nodes, 8 weights: 0 errors, 1 warning, 0 notes
! qkv: 'qkv check --explain Q501' says more
$ qkv check eager.pt2 -q
severity  id    place       finding
warning   Q501  node 'exp'  the mask from input 'mask' fills in -inf before the softmax

eager.pt2: 28 nodes, 8 weights: 0 errors, 1 warning, 0 notes
$ qkv check eager.pt2 --strict -q
severity  id    place       finding
warning   Q501  node 'exp'  the mask from input 'mask' fills in -inf before the softmax

eager.pt2: 28 nodes, 8 weights: 0 errors, 1 warning, 0 notes
? 1
$ qkv check static_a.pt2 --target ort,tensorrt
severity  id    place           finding
note      Q404  model           every size of the inputs is fixed
note      Q502  node 'softmax'  the mask from input 'mask' fills in a large finite number before the softmax

static_a.pt2: 15 nodes, 3 weights: 0 errors, 0 warnings, 2 notes
! qkv: 'qkv check --explain Q404' says more
$ qkv check left.pt2 --target tensorrt -q
severity  id    place       finding
warning   Q501  node 'exp'  the mask from input 'mask' fills in -inf before the softmax

left.pt2: 47 nodes, 8 weights: 0 errors, 1 warning, 0 notes
$ qkv check padded.onnx --target ort
severity  id    place                      finding
error     Q603  node 'attend' (Attention)  attn_mask has one row for all queries
note      Q503  node 'y'                   its mask comes from input 'mask'

padded.onnx: 1 node, 0 weights: 1 error, 0 warnings, 1 note
! qkv: 'qkv check --explain Q603' says more
? 1
$ qkv check spelled.onnx --strict
severity  id    place     finding
warning   Q501  node 'p'  the mask from input 'mask' fills in -inf before the softmax

spelled.onnx: 5 nodes, 1 weight: 0 errors, 1 warning, 0 notes
! qkv: 'qkv check --explain Q501' says more
? 1
$ qkv check wrong.onnx -q
severity  id    place                   finding
error     Q204  node 'first' (MatMul)   the inner sizes are 4 and 3
error     Q108  node 'second' (Add)     it uses 'nowhere', which is not defined
error     Q104  node 'third' (Softmax)  Softmax of version 13 has no attribute 'axes'
error     Q201  node 'fourth' (Relu)    'y' is declared DOUBLE, the op gives FLOAT

wrong.onnx: 4 nodes, 1 weight: 4 errors, 0 warnings, 3 notes
? 1
$ qkv check wrong.onnx --json | head -20
{
  "schema": 1,
  "file": "wrong.onnx",
  "format": "onnx",
  "readable": true,
  "targets": [],
  "security": false,
  "full": false,
  "nodes": 4,
  "weights": 1,
  "errors": 4,
  "warnings": 0,
  "notes": 3,
  "findings": [
    {"id": "Q204", "severity": "error", "place": "node 'first' (MatMul)", "message": "the inner sizes are 4 and 3", "remedy": "Correct the node named."},
    {"id": "Q108", "severity": "error", "place": "node 'second' (Add)", "message": "it uses 'nowhere', which is not defined", "remedy": "Correct the name, or add what computes it."},
    {"id": "Q104", "severity": "error", "place": "node 'third' (Softmax)", "message": "Softmax of version 13 has no attribute 'axes'", "remedy": "Remove it, or import an opset that has it."},
    {"id": "Q201", "severity": "error", "place": "node 'fourth' (Relu)", "message": "'y' is declared DOUBLE, the op gives FLOAT", "remedy": "Correct the declaration; exporting again does."},
    {"id": "Q115", "severity": "note", "place": "node 'first' (MatMul)", "message": "its results are not used", "remedy": "Remove it: qkv rewrite -o, or the exporter's clean-up."},
    {"id": "Q115", "severity": "note", "place": "node 'second' (Add)", "message": "its results are not used", "remedy": "Remove it: qkv rewrite -o, or the exporter's clean-up."},
$ qkv check baked.onnx
severity  id    place     finding
warning   Q402  node 'y'  (batch, seq, 16) becomes (2, batch*seq//2, 4, 4): axis 0 is 2 where the input has the variable size batch

baked.onnx: 1 node, 1 weight: 0 errors, 1 warning, 0 notes
! qkv: 'qkv check --explain Q402' says more
$ make cut wrong.onnx 100; qkv check wrong.onnx
! qkv: error: wrong.onnx: byte 3: field 7 declares 227 bytes, 95 are left
? 3
$ qkv check --explain Q501
Q501  warning: a row of the mask that allows nothing becomes NaN

The mask comes from an input and adds or fills in -inf before a softmax: a row without an allowed key is 0/0. PyTorch and ONNX Runtime give NaN there, which later layers spread.

To do: Make sure that each row allows a key, or use scaled_dot_product_attention, which gives 0: qkv rewrite.
$ qkv check --explain q999
! qkv: error: no finding is called 'q999'; 'qkv check --explain all' lists them
? 2
$ qkv check --explain all | head -5
Q100  error: the file cannot be read
Q101  error: no such op
Q102  warning: an op of an unknown domain
Q103  error: a required argument or attribute is missing
Q104  error: an unknown argument or attribute
$ qkv check affine.pt2 --target nowhere
! qkv: error: option '--target': found 'nowhere', expected qkv, ort, openvino or tensorrt
? 2
$ qkv check
! qkv: error: an argument is missing: qkv check MODEL; 'qkv help check' says more
? 2
$ qkv check missing.pt2
! qkv: error: cannot open 'missing.pt2': No such file or directory
? 3
$ make cut affine.pt2 500; qkv check affine.pt2 --security
! qkv: error: affine.pt2: no end record: the file is not a ZIP archive, or it is cut off
? 3
$ qkv check affine.pt2 --json
{
  "schema": 1,
  "file": "affine.pt2",
  "format": "pt2",
  "readable": false,
  "targets": [],
  "security": false,
  "full": false,
  "nodes": 0,
  "weights": 0,
  "errors": 1,
  "warnings": 0,
  "notes": 0,
  "findings": [
    {"id": "Q100", "severity": "error", "place": "file", "message": "affine.pt2: no end record: the file is not a ZIP archive, or it is cut off", "remedy": "Copy or export the file again."}
  ]
}
! qkv: error: affine.pt2: no end record: the file is not a ZIP archive, or it is cut off
? 3
$ qkv check vocab.txt
! qkv: error: vocab.txt: no end record: the file is not a ZIP archive, or it is cut off
? 3
