# Placement, reasons and messages. Numbers and runtimes: tests/python/test_quantize.py.
$ qkv quantize affine.pt2 -o q.onnx
! qkv: error: nothing to quantize: linear: it sums 4 products, cpu takes 8 and more
? 4
$ qkv quantize sdpa.pt2
! qkv: error: quantize needs -o FILE
? 2
$ qkv quantize sdpa.pt2 --target cuda -o q.onnx
! qkv: error: no target is called 'cuda'; there are cpu, tensorrt-10, tensorrt-10-fp8, tensorrt-8, openvino
? 2
$ qkv quantize sdpa.pt2 --calibration best -o q.onnx
! qkv: error: option '--calibration': found 'best', expected minmax, average, percentile, entropy or mse
? 2
# Options that contradict each other, or would do nothing
$ qkv quantize sdpa.pt2 --percentile 99 -o q.onnx
! qkv: error: --percentile goes with --calibration percentile
? 2
$ qkv quantize sdpa.pt2 --dynamic --calibration mse -o q.onnx
! qkv: error: --calibration, --calibration-cache and --percentile are about ranges, and --dynamic has none: leave them out
? 2
$ qkv quantize sdpa.pt2 --weights-only int4 --asymmetric -o q.onnx
! qkv: error: --asymmetric and --massive are about what layers read, which --weights-only leaves in floats: give --dynamic, too, or leave them out
? 2
$ qkv quantize sdpa.pt2 --budget 'kl<=1' --metric-calls 5 -o q.onnx
! qkv: error: --metric-calls is how often --budget 'metric>=X' asks --metric: give both, too
? 2
$ qkv quantize sdpa.pt2 --target tensorrt-10-fp8 --opset 18 -o q.onnx
! qkv: error: option '--opset': found 18, and float8 is quantized from opset 19 on
? 2
$ qkv quantize sdpa.pt2 --target tensorrt-8 --dynamic -o q.onnx
! qkv: error: target tensorrt-8 takes scales that are constants: leave out dynamic, and give data to calibrate with
? 2
$ qkv quantize sdpa.pt2 -o none/q.onnx
! qkv: error: cannot write 'none/q.onnx': No such file or directory
? 3
$ qkv quantize sdpa.pt2 --plot none/l.svg --budget 'kl<=1' -o q.onnx
! qkv: error: cannot write 'none/l.svg': No such file or directory
? 3
$ qkv quantize sdpa.pt2 --plot l.svg -o q.onnx
! qkv: error: --plot draws what --budget measures: give it, too
? 2
$ qkv quantize sdpa.pt2 --plot l.png --budget 'kl<=1' -o q.onnx
! qkv: error: option '--plot': found 'l.png', expected a file that ends in .svg
? 2
$ qkv quantize sdpa.pt2 --target tensorrt-10 -o q.onnx
! qkv: error: nothing to quantize: scaled_dot_product_attention__5: head sizes 24 and 24, tensorrt-10 fuses equal ones of 16, 32 and 64
? 4
$ qkv quantize sdpa.pt2 --target openvino --explain -o q.onnx
opset 18, target openvino: 78 nodes, 25 weights and constants, 4 attentions (0 as one op)
node                             kind       quantized  why not
scaled_dot_product_attention__5  attention  yes
scaled_dot_product_attention_1   attention  yes
scaled_dot_product_attention_2   attention  yes
scaled_dot_product_attention_3   attention  yes
value  dtype      scale  zero   least  largest
x      i8     0.0229528     0    -2.9    2.915
add    i8     0.0459056     0  -5.755     5.83
add_1  i8     0.0918112     0  -11.51    11.66
add_2  i8      0.183622     0  -23.02    23.32
4 quantized, 0 left in floats, 0 weights of 8 bits (target openvino, minmax)
output_0: cosine 0.999833 against the floats, largest difference 4.33; the same arg-max in 60 of 60 rows, 100.00 % (holds 99 % and 99.9 %)
! qkv: warning: the ranges come from random inputs and say little of a trained model: give real ones with --calibrate
$ qkv quantize q.onnx -o r.onnx
! qkv: error: q.onnx: the model is quantized already: node 'x__26' is qkv.quantize_linear.default; give the one of floats
? 4
$ qkv quantize words.pt2 --dynamic --explain -o q.pt2
! qkv: error: nothing to quantize: the model has no linear layers
? 4
# What came with the model goes along: it takes and gives the same.
$ cp sdpa.pt2 with.pt2; python3 -c "import zipfile; z = zipfile.ZipFile('with.pt2', 'a'); z.writestr(z.namelist()[0].split('/')[0] + '/extra/note.json', '{}')"; qkv quantize with.pt2 --target openvino -q -o q.pt2 >log 2>&1; python3 -c "import zipfile; print([n.split('/', 1)[1] for n in zipfile.ZipFile('q.pt2').namelist() if '/extra/' in n])"
['extra/note.json']
# A packed file, as qkv pack makes it of the .pt2
$ qkv quantize sdpa.pt2 --target openvino -o q.qkv 2>log; qkv quantize sdpa.pt2 --target openvino -q -o q.pt2 >>log 2>&1; qkv pack q.pt2 -o p.qkv -q >>log; qkv verify q.qkv p.qkv --seed 1 2>>log | tail -1
5 weights (17 bytes), 0 of them packed for CPU (0 bytes)
4 quantized, 0 left in floats, 0 weights of 8 bits (target openvino, minmax)
output_0: cosine 0.999833 against the floats, largest difference 4.33; the same arg-max in 60 of 60 rows, 100.00 % (holds 99 % and 99.9 %)
the output agrees
$ qkv quantize sdpa.pt2 -o q.bin
! qkv: error: option '-o': found 'q.bin', expected a file that ends in .onnx, .pt2 or .qkv
? 2
$ qkv quantize sdpa.pt2 --target openvino --trainable -o q.qkv
! qkv: error: --trainable makes a model to be trained, which a packed one cannot be: expected -o FILE.pt2 or FILE.onnx
? 2
# What calibration has seen, kept
$ for n in a b; do qkv quantize sdpa.pt2 --target openvino --calibration-cache seen.safetensors -q -o $n.onnx >log 2>&1; done; cmp a.onnx b.onnx && echo the same
the same
$ qkv quantize sdpa.pt2 --target openvino --seed 1 --calibration-cache seen.safetensors -o c.onnx
! qkv: error: calibration cache: seen.safetensors: it holds the ranges of another model or other data, or of another way to find them: remove it, or name another file
? 2
$ qkv quantize sdpa.pt2 --target openvino --calibration-cache seen.txt -o c.onnx
! qkv: error: calibration cache: 'seen.txt': the name must end in .safetensors, .npz or .npy
? 2
# A folder of images
$ mkdir photos; make png photos/a.png 8x8 255,0/0,255; make png photos/b.PNG 16x16 10; echo no >photos/notes.txt; qkv quantize quadrant.pt2 --calibrate photos --mean 0.5 --std 0.5 --explain -o q.onnx
! qkv: error: nothing to quantize: the model has no linear layers and no attention
? 4
$ qkv quantize words.pt2 --calibrate photos -o q.onnx
! qkv: error: photos is a folder of images, for a model with one input (batch, channels, height, width); found 3 inputs, 'input_ids' of rank 2: give a .npz or .safetensors file
? 2
$ qkv quantize rgb.pt2 --calibrate . -o q.onnx
! qkv: error: '.' holds no .png, .jpg or .jpeg
? 2
$ qkv quantize quadrant.pt2 --calibrate photos/b.PNG --mean 0.5 -o q.onnx
! qkv: error: --mean, --std, --scale and -D are for images; 'photos/b.PNG' is not a folder of them
? 2
