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
eager.pt2: 28 nodes, 8 weights: 0 errors, 0 warnings, 0 notes
$ qkv check eager.pt2 -q
eager.pt2: 28 nodes, 8 weights: 0 errors, 0 warnings, 0 notes
$ qkv check eager.pt2 --strict -q
eager.pt2: 28 nodes, 8 weights: 0 errors, 0 warnings, 0 notes
$ qkv check static_a.pt2 --target ort,tensorrt
severity  id    place           finding
note      Q404  model           every size of the inputs is a number
note      Q502  node 'softmax'  the mask from input 'mask' fills in a large finite number before the softmax

static_a.pt2: 15 nodes, 3 weights: 0 errors, 0 warnings, 2 notes
! qkv: 'qkv check --explain Q404' says more
$ qkv check left.pt2 --target tensorrt -q
left.pt2: 47 nodes, 8 weights: 0 errors, 0 warnings, 0 notes
$ qkv check --explain Q501
Q501  warning: a row of the mask that allows nothing becomes NaN

The mask comes from an input and adds or fills in -inf before a softmax: a row without an allowed key is 0/0. PyTorch, ONNX Runtime, OpenVINO and TensorRT give NaN there, which later layers spread.

To do: Make sure that each row allows a key, or use scaled_dot_product_attention, which gives 0: qkv rewrite.
$ qkv check --explain q999
! qkv: error: no finding is called 'q999'; 'qkv check --explain all' lists them
? 2
$ qkv check --explain all | head -5
Q100  error: the file cannot be read
Q101  error: no such op
Q102  warning: an op of another's making
Q103  error: a required argument or attribute is missing
Q104  error: an unknown argument or attribute
$ qkv check affine.pt2 --target nowhere
! qkv: error: no target is called 'nowhere'; there are qkv, ort, openvino and tensorrt
? 2
$ qkv check
! qkv: error: an argument is missing: qkv check MODEL; 'qkv help check' says more
? 2
$ qkv check missing.pt2
! qkv: error: cannot open 'missing.pt2': No such file or directory
? 3
$ make cut affine.pt2 500; qkv check affine.pt2 --security
! qkv: error: affine.pt2: no end record: the file is no ZIP archive, or it is cut off
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
    {"id": "Q100", "severity": "error", "place": "file", "message": "affine.pt2: no end record: the file is no ZIP archive, or it is cut off", "remedy": "Copy or export the file again."}
  ]
}
! qkv: error: affine.pt2: no end record: the file is no ZIP archive, or it is cut off
? 3
$ qkv check vocab.txt
! qkv: error: vocab.txt: no end record: the file is no ZIP archive, or it is cut off
? 3
