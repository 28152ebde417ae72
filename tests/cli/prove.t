# A model and what rewriting and converting make of it.
$ qkv rewrite eager.pt2 -o fused.pt2 > /dev/null; qkv prove eager.pt2 fused.pt2
sizes: s31=7 s27=4; s31=6 s27=13; s31=5 s27=2; s31=4 s27=11
equal over the reals for all sizes in range (8 runs)
assuming: exp(x + m) = t exp(x), where m is 0 where t is 1 and minus infinity where t is 0
$ qkv convert eager.pt2 -o eager.onnx > /dev/null; qkv prove eager.pt2 eager.onnx --sizes 2 --seeds 1
sizes: s31=7 s27=4; s31=6 s27=13
equal over the reals for all sizes in range (2 runs)
assuming: numbers that are the same in float32 are the same number, the simplest of them
$ qkv prove eager.pt2 fused.pt2 -D batch=2 --float --sizes 2
sizes: s31=2 s27=4; s31=2 s27=13
equal within a tolerance on random floats (4 runs)
$ qkv prove eager.pt2 fused.pt2 --json --sizes 1
{
  "schema": 1,
  "result": "equal",
  "sense": "equal over the reals for all sizes in range",
  "why": null,
  "why_floats": null,
  "inputs": [
    {"first": "x", "second": "x"},
    {"first": "mask", "second": "mask"}
  ],
  "sizes": [
    {"s31": 7, "s27": 4}
  ],
  "runs": 2,
  "claims": N,
  "why_not_all_sizes": null,
  "assuming": ["exp(x + m) = t exp(x), where m is 0 where t is 1 and minus infinity where t is 0"],
  "difference": null,
  "counterexample": null,
  "models": ["eager.pt2", "fused.pt2"]
}
# A number of one weight is another one; one more attention.
$ qkv prove affine.pt2 affine2.pt2; ls *.npz
sizes: s77=1
the tensors are in counterexample.npz
counterexample.npz
! qkv: error: output 'output_0' differs on exact payloads in 1 of 3 elements, by 0.5 (0.108133 of the largest value); the first at 1: 4.11702 and 4.61702
$ qkv prove eager.pt2 left.pt2 --counterexample c.safetensors --sizes 1 --json | grep -v '"inputs"'
{
  "schema": 1,
  "result": "different",
  "sense": null,
  "why": "output 'output_0' differs on exact payloads in 224 of 224 elements, by 2.10483 (0.86008 of the largest value); the first at 0: 0.649555 and 2.02211",
  "why_floats": null,
    {"first": "x", "second": "x"},
    {"first": "mask", "second": "mask"}
  ],
  "sizes": [
    {"s31": 7, "s27": 4}
  ],
  "runs": 0,
  "claims": N,
  "why_not_all_sizes": null,
  "assuming": [],
  "difference": {
    "output": "output_0",
    "on": "exact payloads",
    "shapes": null,
    "index": 0,
    "first": 0.6495552042,
    "second": 2.022107739,
    "count": 224,
    "of": 224,
    "max_abs": 2.104830651,
    "max_rel_peak": 0.8600800032
  },
  "counterexample": "c.safetensors",
  "models": ["eager.pt2", "left.pt2"]
}
! qkv: error: output 'output_0' differs on exact payloads in 224 of 224 elements, by 2.10483 (0.86008 of the largest value); the first at 0: 0.649555 and 2.02211
# What cannot be told, and what is asked wrongly.
$ qkv prove eager.pt2 static_a.pt2
! qkv: error: no sizes could be compared: the sizes of the second model: input 'x': axis 0 is 4, expected 2 (fixed when the model was exported)
? 4
$ qkv prove eager.pt2 sdpa.pt2
! qkv: error: input 'mask' is bool of rank 2, 'pair' of the second model f32 of rank 3
? 4
$ qkv prove eager.pt2
! qkv: error: an argument is missing: qkv prove MODEL MODEL; 'qkv help prove' says more
? 2
$ qkv rewrite eager.pt2 --prove=bits
! qkv: error: option '--prove': found 'bits', expected exact or float
? 2
