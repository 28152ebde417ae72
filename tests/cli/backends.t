# sdpa.pt2: attention of 3 axes; of heads of 12; with a mask of 3 axes; of queries whose last axis is turned
$ qkv backends sdpa.pt2
attention                       module    query                 mask           kernel
scaled_dot_product_attention    layers.0  f32(s77, s27, 24)     causal         math
scaled_dot_product_attention_1  layers.1  f32(s77, 2, s27, 12)  -              flash
scaled_dot_product_attention_2  layers.2  f32(s77, 2, s27, 12)  (2, s27, s27)  math
scaled_dot_product_attention_3  layers.3  f32(s77, 2, s27, 12)  -              math
scaled_dot_product_attention:
  flash asks: query, key and value have 4 axes (rank)
    to change: unsqueeze them to (batch, heads, length, size): qkv rewrite --lift-sdpa
scaled_dot_product_attention_2:
  flash asks: the mask has 2 or 4 axes, each of 1 or of (batch, heads, queries, keys) (mask_shape)
    to change: unsqueeze or reshape the mask: qkv rewrite --lift-sdpa
scaled_dot_product_attention_3:
  flash asks: the last axis of query, key and value has stride 1 (last_stride)
    to change: make them contiguous() after a transpose of the last axis: qkv rewrite --lift-sdpa
$ qkv backends sdpa.pt2 --device cuda-sm90 -D x.1=5
attention                       module    query               mask       kernel
scaled_dot_product_attention    layers.0  f32(s77, 5, 24)     causal     math
scaled_dot_product_attention_1  layers.1  f32(s77, 2, 5, 12)  -          efficient
scaled_dot_product_attention_2  layers.2  f32(s77, 2, 5, 12)  (2, 5, 5)  efficient
scaled_dot_product_attention_3  layers.3  f32(s77, 2, 5, 12)  -          math
scaled_dot_product_attention:
  cudnn, flash, efficient ask: query, key and value have 4 axes (rank)
    to change: unsqueeze them to (batch, heads, length, size): qkv rewrite --lift-sdpa
  cudnn, flash ask: query, key and value have one dtype, which the kernel has (dtype)
    to change: cast them to one dtype that the kernel has, or use autocast
scaled_dot_product_attention_1:
  cudnn, flash ask: query, key and value have one dtype, which the kernel has (dtype)
    to change: cast them to one dtype that the kernel has, or use autocast
  cudnn asks: head sizes are multiples of the kernel's vectors (head_multiple)
    to change: pad the head size with zeros, scale kept, and cut the result: qkv rewrite --lift-sdpa
scaled_dot_product_attention_2:
  cudnn, flash ask: query, key and value have one dtype, which the kernel has (dtype)
    to change: cast them to one dtype that the kernel has, or use autocast
  cudnn asks: the mask has 2 or 4 axes, each of 1 or of (batch, heads, queries, keys) (mask_shape)
    to change: unsqueeze or reshape the mask: qkv rewrite --lift-sdpa
  cudnn asks: head sizes are multiples of the kernel's vectors (head_multiple)
    to change: pad the head size with zeros, scale kept, and cut the result: qkv rewrite --lift-sdpa
  flash asks: there is no mask (no_mask)
    to change: leave the mask out; a causal one is is_causal=True, which qkv rewrite finds
scaled_dot_product_attention_3:
  cudnn, flash ask: query, key and value have one dtype, which the kernel has (dtype)
    to change: cast them to one dtype that the kernel has, or use autocast
  cudnn, flash, efficient ask: the last axis of query, key and value has stride 1 (last_stride)
    to change: make them contiguous() after a transpose of the last axis: qkv rewrite --lift-sdpa
  cudnn asks: head sizes are multiples of the kernel's vectors (head_multiple)
    to change: pad the head size with zeros, scale kept, and cut the result: qkv rewrite --lift-sdpa
$ qkv backends sdpa.pt2 --device cuda-sm90 --cudnn 9.20 -D x.0=2 --json | head -5
{
  "schema": 1,
  "device": "cuda-sm90",
  "pytorch": "2.13",
  "cudnn": "9.20.0",
$ qkv backends affine.pt2
no scaled_dot_product_attention; qkv rewrite finds attention that is spelled out
$ qkv backends sdpa.pt2 --device gpu
! qkv: error: device 'gpu': expected cpu or cuda-smNN with a compute capability of at least 50, as cuda-sm80 or cuda-sm90
? 2
$ qkv backends sdpa.pt2 --cudnn 7
! qkv: error: option '--cudnn': found '7', expected a version of 8 or later, such as 9.20.0
? 2
$ qkv backends sdpa.pt2 -D x.1
! qkv: error: option '-D': found 'x.1', expected NAME=N such as batch=2
? 2
$ qkv backends sdpa.pt2 -D nothing=3
! qkv: error: no size is called 'nothing'; this model has s77 (x.0), s27 (x.1)
? 2
$ qkv backends sdpa.pt2 -D x.1=99
! qkv: error: x.1 = 99: allowed is s27 from 2 to 16
? 2
