# Inputs from files: by name, by position, as numpy.savez names them.
$ make st x.safetensors x:f32:2x4:1,2,3,4,-1,-2,-3,-4
$ qkv run affine.pt2 -i x.safetensors -o y.safetensors
output    dtype  shape   min  max     mean  not finite
output_0  f32    (2, 3)    0   48  14.8333           0
$ qkv run affine.pt2 -i x.safetensors -o y.npz --json
{
  "schema": 1,
  "model": "affine.pt2",
  "written": "y.npz",
  "run_ms": N,
  "outputs": [
    {"name": "output_0", "dtype": "f32", "shape": [2, 3], "min": 0.0, "max": 48.0, "mean": 14.83333333, "nonfinite": 0}
  ]
}
$ qkv verify affine.pt2 -i x.safetensors -e y.npz
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (2, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
$ make st p.safetensors 0:f32:2x4:1,2,3,4,-1,-2,-3,-4; qkv verify affine.pt2 -i p.safetensors -e y.safetensors -q
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (2, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
$ make st p.safetensors arr_0:f32:2x4:1,2,3,4,-1,-2,-3,-4; qkv verify affine.pt2 -i p.safetensors -e y.safetensors -q
output    result  value       max abs  max rel  of peak     cosine  at  got  expected  differ
output_0  ok      f32 (2, 3)        0        0        0  1.0000000  -     -         -       0

the output agrees
$ make st ab.safetensors a:i64:2x3:1,2,3,4,5,6 b:f32:2x3:0.5,inf,nan,4,-inf,7; qkv run two.pt2 -i ab.safetensors -o y2.npz
output    dtype  shape   min  max      mean  not finite
output_0  f32    (2, 3)  1.5   13       7.5           3
output_1  bool   (2, 3)    0    1  0.333333           0
# Of complex numbers the modulus.
$ make st z.safetensors x:f32:2x4:1.5,2,3,4,0,inf,-2,0; qkv run complex.pt2 -i z.safetensors
output    dtype  shape   min  max     mean  not finite
output_0  c64    (2, 2)    4   10  6.33333           1
# The outputs feed another run: output_0 of two.pt2 is no input of affine.pt2.
$ qkv run affine.pt2 -i y.npz
! qkv: error: y.npz: no input is called 'output_0'; this model has x
? 2
# numpy's files: a .npy, an .npz with compression.
$ make npy n.npy 1x4 1,2,3,4; qkv run affine.pt2 -i n.npy
output    dtype  shape   min  max     mean  not finite
output_0  f32    (1, 3)   10   48  29.6667           0
$ python3 -c "import zipfile; zipfile.ZipFile('n.npz', 'w', zipfile.ZIP_DEFLATED).write('n.npy', 'x.npy')"; qkv run affine.pt2 -i n.npz
output    dtype  shape   min  max     mean  not finite
output_0  f32    (1, 3)   10   48  29.6667           0
# Wrong inputs: the input, the axis, the value, what is allowed.
$ make st w.safetensors x:i64:2x4:1; qkv run affine.pt2 -i w.safetensors
! qkv: error: w.safetensors: input 'x': dtype is i64, expected f32
? 2
$ make st w.safetensors x:f32:4:1; qkv run affine.pt2 -i w.safetensors
! qkv: error: w.safetensors: input 'x': rank is 1, expected 2
? 2
$ make st w.safetensors x:f32:2x5:1; qkv run affine.pt2 -i w.safetensors
! qkv: error: input 'x': axis 1 is 5, expected 4 (fixed when the model was exported)
? 2
$ make st w.safetensors x:f32:65x4:1; qkv run affine.pt2 -i w.safetensors
! qkv: error: input 'x': axis 0 is 65, allowed is s77 from 1 to 64
? 2
$ make st w.safetensors y:f32:2x4:1; qkv run affine.pt2 -i w.safetensors
! qkv: error: w.safetensors: no input is called 'y'; this model has x
? 2
$ make st w.safetensors a:i64:2x3:1; qkv run two.pt2 -i w.safetensors
! qkv: error: input 'b' is not given
? 2
$ make st w.safetensors a:i64:2x3:1 b:f32:3x3:1; qkv run two.pt2 -i w.safetensors
! qkv: error: input 'b': axis 0 is 3, expected s52 = 2 from the other sizes
? 2
# Random inputs.
$ qkv run words.pt2 -D batch=2 -D seq=4
output    dtype  shape      min  max      mean  not finite
output_0  f32    (2, 4, 8)    0    4    0.3125           0
output_1  f32    (2, 8)       0    3  0.359375           0
! qkv: random input_ids: i64 (2, 4), seed 0
! qkv: random attention_mask: i64 (2, 4), seed 0
! qkv: random token_type_ids: i64 (2, 4), seed 0
$ qkv run words.pt2 -D s18=2 -D input_ids.1=4 --seed 0 -q -o a.npz; qkv run words.pt2 --shape input_ids:2x4 -q -o b.npz; cmp a.npz b.npz
output    dtype  shape      min  max      mean  not finite
output_0  f32    (2, 4, 8)    0    4    0.3125           0
output_1  f32    (2, 8)       0    3  0.359375           0
output    dtype  shape      min  max      mean  not finite
output_0  f32    (2, 4, 8)    0    4    0.3125           0
output_1  f32    (2, 8)       0    3  0.359375           0
$ qkv run words.pt2 --shape input_ids:[2,4] --seed 2 -q
output    dtype  shape      min      max      mean  not finite
output_0  f32    (2, 4, 8)    0        4      0.25           0
output_1  f32    (2, 8)       0  1.33333  0.270833           0
$ qkv run words.pt2 --shape 2,4
! qkv: error: option '--shape': '2,4' does not name an input, and the model has 3
? 2
$ qkv run words.pt2 --shape input_isd:2,4
! qkv: error: no input is called 'input_isd'; did you mean 'input_ids'?
? 2
$ qkv run words.pt2 --shape input_ids:2,4,1
! qkv: error: option '--shape': input 'input_ids' has rank 2, found 3 sizes in 'input_ids:2,4,1'
? 2
$ qkv run words.pt2 --shape input_ids:2,q
! qkv: error: option '--shape': found 'input_ids:2,q', expected a shape such as x:1x3x224x224
? 2
$ qkv run words.pt2 --shape input_ids:2x4 --shape attention_mask:3x4
! qkv: error: attention_mask.0 = 3: s18 is 2 already
? 2
$ qkv run affine.pt2 --shape 3x5
! qkv: error: input 'x': axis 1 is 5, expected 4 (fixed when the model was exported)
? 2
$ qkv run words.pt2 -D batch
! qkv: error: option '-D': found 'batch', expected NAME=N such as batch=2
? 2
$ qkv run words.pt2 -D batch=65
! qkv: error: batch = 65: allowed is s18 from 1 to 64
? 2
$ qkv run words.pt2 -D heads=2
! qkv: error: no size is called 'heads'; this model has s18 (input_ids.0), s41 (input_ids.1)
? 2
$ qkv run affine.pt2 -i x.safetensors -D batch=2
! qkv: error: -i reads the inputs, -D and --shape make random ones: use one or the other
? 2
# The same bits on every level, the reference too.
$ for l in ref gen avx2 avx512 amx; do QKV_CPU=$l qkv run words.pt2 -q -D batch=3 -D seq=9 --dtype bf16 --portable-bits -o $l.npz; done >all.txt; for l in ref gen avx2 avx512; do cmp $l.npz amx.npz && echo same; done
same
same
same
same
$ qkv run words.pt2 -q -D batch=64 -D seq=16 --memory-limit 32K
! qkv: error: these sizes need 71680 bytes of activations beside the inputs, the limit is 32768
? 5
$ qkv run words.pt2 -q -D batch=64 -D seq=16 --memory-limit 8K
! qkv: error: input 'attention_mask': 8192 bytes beside 8192 of other inputs, the limit is 8192
? 5
# Pictures: white is 1, colours become gray or stay, pictures for one input make a batch.
$ make png red.png 6x4 ff0000; make png gray.png 6x4 51; qkv run rgb.pt2 --image red.png
output    dtype  shape         min  max      mean  not finite
output_0  f32    (1, 3, 4, 6)    0    1  0.333333           0
$ qkv run rgb.pt2 --image picture=gray.png --mean 0.2,0.1,0 --std 0.5 --scale 2
output    dtype  shape         min  max  mean  not finite
output_0  f32    (1, 3, 4, 6)  0.4  0.8   0.6           0
$ qkv run rgb.pt2 --image pictrue=gray.png
! qkv: error: no input is called 'pictrue'; did you mean 'picture'?
? 2
$ qkv run rgb.pt2 --image gray.png --image red.png
! qkv: error: input 'picture' is (1, 3, 4, 6), but 2 images were given
? 2
$ qkv run rgb.pt2 --image gray.png --mean 1,2
! qkv: error: option '--mean': found '1,2', expected one number or 3, separated by commas
? 2
$ qkv run rgb.pt2 --image gray.png --std 0
! qkv: error: option '--std': 0, expected values above 0
? 2
$ qkv run quadrant.pt2 --image red.png --image gray.png --image red.png
output    dtype  shape   min      max    mean  not finite
output_0  f32    (3, 4)    2  2.98039  2.6536           0
$ qkv run affine.pt2 --image red.png
! qkv: error: input 'x' is f32 of rank 2; an image is f32 of rank 4 (batch, channels, height, width) or 3
? 2
$ qkv run two.pt2 --image red.png
! qkv: error: option '--image': the model has 2 inputs; say which: --image NAME=red.png
? 2
# More to read.
$ qkv run affine.pt2 -v -i x.safetensors --threads 2
output    dtype  shape   min  max     mean  not finite
output_0  f32    (2, 3)    0   48  14.8333           0
! qkv: affine.pt2: loaded in N ms, cpu CPU
! qkv: ran in N ms
