# ONNX out, without any runtime but qkv's own: what is written is read again, gives the same numbers, and is written as the same bytes.
$ qkv convert affine.pt2 -o a.onnx && qkv convert affine.pt2 -o b.onnx -q && cmp a.onnx b.onnx
opset 18, target ort: 3 nodes, 3 weights and constants, 0 attentions (0 as one op)
opset 18, target ort: 3 nodes, 3 weights and constants, 0 attentions (0 as one op)
$ qkv convert eager.pt2 -o e.onnx --opset 23 --target spec --rewrite
opset 23, target spec: 20 nodes, 13 weights and constants, 1 attention (1 as one op)
$ make st in.safetensors x:f32:2x3x8:1,0.5,-1,2,0,-0.25,3,-2,0.125,1,1,-1 mask:bool:2x3:1,1,0,1; qkv verify e.onnx eager.pt2 -i in.safetensors | tail -1
the output agrees
# --profile is an older spelling of --target.
$ qkv convert eager.pt2 -o o.onnx --profile openvino --rewrite && qkv verify o.onnx eager.pt2 -i in.safetensors | tail -1
opset 18, target openvino: 30 nodes, 18 weights and constants, 1 attention (0 as one op)
the output agrees
$ qkv convert e.onnx -o e2.onnx --opset 23 --target spec -q && qkv convert e2.onnx -o e3.onnx --opset 23 --target spec -q && cmp e2.onnx e3.onnx
opset 23, target spec: 20 nodes, 13 weights and constants, 1 attention (1 as one op)
opset 23, target spec: 20 nodes, 13 weights and constants, 1 attention (1 as one op)
# TensorRT: each rule with its node; --strict makes it exit code 1
$ qkv convert eager.pt2 -o t.onnx --target tensorrt --rewrite
trtexec --onnx=t.onnx --minShapes=x:1x2x8,mask:1x2 --optShapes=x:2x3x8,mask:2x3 --maxShapes=x:64x16x8,mask:64x16
opset 18, target tensorrt: 30 nodes, 17 weights and constants, 1 attention (0 as one op)
! qkv: warning: node 'matmul_1': queries, keys and values are f32: TensorRT fuses attention of f16, bf16 or quantized int8
! qkv: warning: node 'matmul_1': the head size is 4: TensorRT fuses 16 to 256, in steps of 8
$ qkv convert eager.pt2 -o t.onnx --target tensorrt --rewrite --strict -q; qkv convert eager.pt2 -o t.onnx --target tensorrt --rewrite --json -q | grep '"rule"'
trtexec --onnx=t.onnx --minShapes=x:1x2x8,mask:1x2 --optShapes=x:2x3x8,mask:2x3 --maxShapes=x:64x16x8,mask:64x16
opset 18, target tensorrt: 30 nodes, 17 weights and constants, 1 attention (0 as one op)
    {"node": "matmul_1", "op": "aten.scaled_dot_product_attention.default", "rule": "dtype", "reason": "queries, keys and values are f32: TensorRT fuses attention of f16, bf16 or quantized int8"},
    {"node": "matmul_1", "op": "aten.scaled_dot_product_attention.default", "rule": "head-size", "reason": "the head size is 4: TensorRT fuses 16 to 256, in steps of 8"}
! qkv: error: 2 warnings with --strict
# what cannot be
$ qkv convert affine.pt2
! qkv: error: convert needs -o FILE.onnx or -o FILE.pt2
? 2
$ qkv convert affine.pt2 -o a.onnx --target tensorrtt
! qkv: error: option '--target': found 'tensorrtt', expected ort, spec, openvino or tensorrt; did you mean 'tensorrt'?
? 2
$ qkv convert affine.pt2 -o a.onnx --opset 26
! qkv: error: option '--opset': found '26', expected an integer from 13 to 25
? 2
# The model names its data file, and names in ONNX are UTF-8.
$ qkv convert two.pt2 -q --external-data -o "$(printf 'd\377.onnx')" 2>&1 | grep -ao 'the model names.*'; ls | grep -ac '^d'
the model names its data file, and names in ONNX are UTF-8: choose one that is
0
? 1
