# eager.pt2: one attention, its softmax, a norm and an activation, all written out. left.pt2: a second attention that only looks like one.
$ qkv rewrite eager.pt2
rule             gives                                      at           nodes
softmax_by_hand  aten.softmax.int                           div_1            5
attention        aten.scaled_dot_product_attention.default  matmul_1         8
silu_by_hand     aten.silu.default                          mul              2
fold_views       aten.reshape.default                       unsqueeze_1      2
pack_qkv         aten.slice.Tensor                          linear           3
matmul_1: a row without an allowed key gives 0; the source gives NaN there
1 attention fused, 0 left; 17 nodes, were 28
$ qkv rewrite eager.pt2 --prove -o fused.pt2
rule             gives                                      at           nodes  runs  largest difference
softmax_by_hand  aten.softmax.int                           div_1            5     8         none: exact
attention        aten.scaled_dot_product_attention.default  matmul_1         8    12         none: exact
silu_by_hand     aten.silu.default                          mul              2     8         none: exact
fold_views       aten.reshape.default                       unsqueeze_1      2     8         none: exact
pack_qkv         aten.slice.Tensor                          linear           3     8         none: exact
5 of 5 equal on random exact payloads
matmul_1: a row without an allowed key gives 0; the source gives NaN there
1 attention fused, 0 left; 17 nodes, were 28
$ make st in.safetensors x:f32:2x3x8:1,0.5,-1,2,0,-0.25,3,-2,0.125,1,1,-1 mask:bool:2x3:1,1,0,1; qkv verify fused.pt2 eager.pt2 -i in.safetensors | tail -1
the output agrees
$ qkv rewrite fused.pt2
1 attention fused, 0 left; 17 nodes, were 17
$ qkv rewrite eager.pt2 --json --prove
{
  "schema": 1,
  "attentions_fused": 1,
  "attentions_left": 0,
  "nodes_before": 28,
  "nodes_after": 17,
  "proven": true,
  "ms": N,
  "firings": [
    {"rule": "softmax_by_hand", "phase": "recompose", "result": "div_1", "op": "aten.softmax.int", "nodes": ["div_1", "sum_1", "exp", "sub", "amax"], "module": null, "note": null, "sense": "equal on random exact payloads", "why_floats": null, "max_abs": 0, "max_rel_peak": 0, "max_abs_masked_rows": 0, "runs": 8, "not_proven": null},
    {"rule": "attention", "phase": "recompose", "result": "matmul_1", "op": "aten.scaled_dot_product_attention.default", "nodes": ["matmul_1", "div_1", "masked_fill", "bitwise_not", "div", "matmul", "transpose_3", "transpose_1"], "module": null, "note": "a row without an allowed key gives 0; the source gives NaN there", "sense": "equal on random exact payloads", "why_floats": null, "max_abs": 0, "max_rel_peak": 0, "max_abs_masked_rows": null, "runs": 12, "not_proven": null},
    {"rule": "silu_by_hand", "phase": "recompose", "result": "mul", "op": "aten.silu.default", "nodes": ["mul", "sigmoid"], "module": null, "note": null, "sense": "equal on random exact payloads", "why_floats": null, "max_abs": 0, "max_rel_peak": 0, "max_abs_masked_rows": 0, "runs": 8, "not_proven": null},
    {"rule": "fold_views", "phase": "fuse", "result": "unsqueeze_1", "op": "aten.reshape.default", "nodes": ["unsqueeze_1", "unsqueeze"], "module": null, "note": null, "sense": "equal on random exact payloads", "why_floats": null, "max_abs": 0, "max_rel_peak": 0, "max_abs_masked_rows": 0, "runs": 8, "not_proven": null},
    {"rule": "pack_qkv", "phase": "fuse", "result": "linear", "op": "aten.slice.Tensor", "nodes": ["linear", "linear_1", "linear_2"], "module": null, "note": null, "sense": "equal on random exact payloads", "why_floats": null, "max_abs": 0, "max_rel_peak": 0, "max_abs_masked_rows": 0, "runs": 8, "not_proven": null}
  ],
  "left": [],
  "refused": [],
  "model": "eager.pt2",
  "output": null,
  "certificate": null,
  "error": null
}
$ qkv rewrite eager.pt2 --require-fused -q > /dev/null
# A row of the mask that allows no key: NaN before, 0 after; or the attention stays.
$ make st none.safetensors x:f32:1x3x8:1,0.5,-1,2,0 mask:bool:1x3:0; qkv verify fused.pt2 eager.pt2 -i none.safetensors
output    result   value          max abs  max rel  of peak     cosine  at                got  expected  differ
output_0  DIFFERS  f32 (1, 3, 8)        0        0        0  1.0000000  (0, 0, 0)  0.74559015       nan      24

1 of 1 output differs
? 1
$ qkv rewrite eager.pt2 --exact-masked-rows
rule             gives                 at           nodes
softmax_by_hand  aten.softmax.int      div_1            5
silu_by_hand     aten.silu.default     mul              2
fold_views       aten.reshape.default  unsqueeze_1      2
fold_views       aten.permute.default  transpose_3      3
left: softmax 'div_1'
  recognised: softmax of queries 'transpose' times keys 'view_1' times 0.5, mask 'unsqueeze_1'
  stopped at 'matmul_1', rule 'attention': rows without an allowed key would give 0 instead of NaN (exact_masked_rows)
  to change: without exact_masked_rows such rows give 0, as PyTorch's scaled_dot_product_attention does
0 attentions fused, 1 left; 21 nodes, were 28
$ qkv rewrite eager.pt2 --exact-masked-rows --require-fused -q > /dev/null
! qkv: error: 1 attention is left as softmax(QK)V; qkv rewrite --why-not says why
? 1
# What is left, and why.
$ qkv rewrite left.pt2
rule             gives                                      at           nodes
softmax_by_hand  aten.softmax.int                           div_1            5
attention        aten.scaled_dot_product_attention.default  matmul_1         7
silu_by_hand     aten.silu.default                          mul              2
fold_views       aten.reshape.default                       unsqueeze_1      2
fold_views       aten.permute.default                       transpose_8      3
matmul_1: a row without an allowed key gives 0; the source gives NaN there
left: softmax 'softmax'
  recognised: queries 'transpose_5' times keys 'view_4' times 0.5
  stopped at 'masked_fill_1', rule 'scores_masked_fill': masked scores become -50, which keeps them in the softmax; only -inf or a number of at most -10000 masks
  to change: mask with -inf or torch.finfo(dtype).min
1 attention fused, 1 left; 35 nodes, were 47
$ qkv rewrite left.pt2 --why-not
left: softmax 'softmax'
  recognised: queries 'transpose_5' times keys 'view_4' times 0.5
  stopped at 'masked_fill_1', rule 'scores_masked_fill': masked scores become -50, which keeps them in the softmax; only -inf or a number of at most -10000 masks
  to change: mask with -inf or torch.finfo(dtype).min
1 attention fused, 1 left; 35 nodes, were 47
$ qkv rewrite left.pt2 --why-not --json
{
  "schema": 1,
  "attentions_fused": 1,
  "attentions_left": 1,
  "nodes_before": 47,
  "nodes_after": 35,
  "proven": false,
  "ms": N,
  "firings": [
    {"rule": "softmax_by_hand", "phase": "recompose", "result": "div_1", "op": "aten.softmax.int", "nodes": ["div_1", "sum_1", "exp", "sub", "amax"], "module": null, "note": null},
    {"rule": "attention", "phase": "recompose", "result": "matmul_1", "op": "aten.scaled_dot_product_attention.default", "nodes": ["matmul_1", "div_1", "masked_fill", "div", "matmul", "transpose_3", "transpose_1"], "module": null, "note": "a row without an allowed key gives 0; the source gives NaN there"},
    {"rule": "silu_by_hand", "phase": "recompose", "result": "mul", "op": "aten.silu.default", "nodes": ["mul", "sigmoid"], "module": null, "note": null},
    {"rule": "fold_views", "phase": "fuse", "result": "unsqueeze_1", "op": "aten.reshape.default", "nodes": ["unsqueeze_1", "unsqueeze"], "module": null, "note": null},
    {"rule": "fold_views", "phase": "fuse", "result": "transpose_8", "op": "aten.permute.default", "nodes": ["transpose_8", "transpose_6", "view_4"], "module": null, "note": null}
  ],
  "left": [
    {"node": "softmax", "module": null, "at": "masked_fill_1", "rule": "scores_masked_fill", "matched": "queries 'transpose_5' times keys 'view_4' times 0.5", "reason": "masked scores become -50, which keeps them in the softmax; only -inf or a number of at most -10000 masks", "advice": "mask with -inf or torch.finfo(dtype).min"}
  ],
  "refused": [],
  "model": "left.pt2",
  "output": null,
  "certificate": null,
  "error": null
}
$ qkv rewrite left.pt2 --require-fused -q -o left_fused.pt2 > /dev/null
! qkv: error: 1 attention is left as softmax(QK)V; qkv rewrite --why-not says why
? 1
$ qkv verify left_fused.pt2 left.pt2 -i in.safetensors | tail -1
the output agrees
$ qkv rewrite words.pt2 --why-not
0 attentions fused, 0 left; 11 nodes, were 11
# Phases.
$ qkv rewrite eager.pt2 --phases convert
left: softmax 'exp'
  stopped at 'matmul': the rules that recognise attention (phase recompose) did not see it
0 attentions fused, 1 left; 28 nodes, were 28
$ qkv rewrite eager.pt2 --phases recompose,convert
rule             gives                                      at        nodes
softmax_by_hand  aten.softmax.int                           div_1         5
attention        aten.scaled_dot_product_attention.default  matmul_1      8
silu_by_hand     aten.silu.default                          mul           2
matmul_1: a row without an allowed key gives 0; the source gives NaN there
1 attention fused, 0 left; 17 nodes, were 28
$ qkv rewrite eager.pt2 --phases early
! qkv: error: option '--phases': found 'early', expected recompose, convert or fuse
? 2
# Rules of one's own, after the built-in ones or alone.
$ printf '; swish, as a model of ours has it\n(rule our_swish (mul ?x (sigmoid ?x)) (silu ?x))\n' > ours.rules; qkv rewrite eager.pt2 --rules ours.rules --no-builtin-rules --prove
rule       gives              at   nodes  runs  largest difference
our_swish  aten.silu.default  mul      2     8         none: exact
1 of 1 equal on random exact payloads
left: softmax 'exp'
  stopped at 'matmul': the product was not recognised (aten.matmul.default)
0 attentions fused, 1 left; 27 nodes, were 28
$ qkv rewrite eager.pt2 --no-builtin-rules
left: softmax 'exp'
  stopped at 'matmul': the product was not recognised (aten.matmul.default)
0 attentions fused, 1 left; 28 nodes, were 28
$ printf '(rule silu_by_hand (neg (neg ?x)) ?x)\n' > none.rules; qkv rewrite eager.pt2 --rules ours.rules --rules none.rules | grep swish
our_swish        aten.silu.default                          mul              2
$ printf '(rule wrong (mul ?x (sigmoid ?x)) (gelu ?x))\n' > wrong.rules; qkv rewrite eager.pt2 --rules wrong.rules --no-builtin-rules --prove -o wrong.pt2
! qkv: error: rule 'wrong' at 'mul': the replacement of 'mul' differs on exact payloads, in 16 of 16 elements, by 0.193002 (0.0694679 of the largest value)
! qkv: the tensors are in counterexample.safetensors; the model was not written
? 1
$ ls counterexample.safetensors wrong.pt2
counterexample.safetensors
! ls: cannot access 'wrong.pt2': No such file or directory
? 2
$ qkv rewrite eager.pt2 --rules wrong.rules --no-builtin-rules --prove --counterexample c.safetensors --seeds 1 --json; ls c.safetensors
{
  "schema": 1,
  "attentions_fused": 0,
  "attentions_left": 0,
  "nodes_before": 28,
  "nodes_after": 28,
  "proven": true,
  "ms": N,
  "firings": [],
  "left": [],
  "refused": [],
  "model": "eager.pt2",
  "output": null,
  "certificate": null,
  "error": "rule 'wrong' at 'mul': the replacement of 'mul' differs on exact payloads, in 16 of 16 elements, by 0.193002 (0.0694679 of the largest value)"
}
c.safetensors
! qkv: error: rule 'wrong' at 'mul': the replacement of 'mul' differs on exact payloads, in 16 of 16 elements, by 0.193002 (0.0694679 of the largest value)
! qkv: the tensors are in c.safetensors; the model was not written
$ qkv rewrite eager.pt2 --rules wrong.rules --no-builtin-rules
rule   gives              at   nodes
wrong  aten.gelu.default  mul      2
left: softmax 'exp'
  stopped at 'matmul': the product was not recognised (aten.matmul.default)
0 attentions fused, 1 left; 27 nodes, were 28
# What is wrong with a file of rules.
$ printf '(phase fuse)\n(rule a (neg ?x) ?y)\n' > bad.rules; qkv rewrite eager.pt2 --rules bad.rules
! qkv: error: bad.rules: line 2: rule 'a': ?y is not captured by the pattern
? 3
$ printf '(rule a (neg ?x)\n ?x' > bad.rules; qkv rewrite eager.pt2 --rules bad.rules
! qkv: error: bad.rules: line 1: the list that opens here is never closed
? 3
$ printf '(rule a (neg ?x) ?x)\0(rule b' > bad.rules; qkv rewrite eager.pt2 --rules bad.rules
! qkv: error: bad.rules: a text of rules has no NUL bytes
? 3
$ qkv rewrite eager.pt2 --rules missing.rules
! qkv: error: cannot open 'missing.rules': No such file or directory
? 3
$ printf '(derive grow (add ?x ?y) (add (add ?x (neg ?y)) (add (abs ?x) ?y)))\n' > grow.rules; qkv rewrite eager.pt2 --rules grow.rules
! qkv: error: rule 'grow': 4545 nodes were made for a graph of 28; do derive rules go on without end?
? 5
# Usage.
$ qkv rewrite
! qkv: error: an argument is missing: qkv rewrite MODEL; 'qkv help rewrite' says more
? 2
$ qkv rewrite missing.pt2
! qkv: error: cannot open 'missing.pt2': No such file or directory
? 3
$ qkv rewrite eager.pt2 --seeds 0
! qkv: error: option '--seeds': found '0', expected an integer from 1 to 1000
? 2
$ qkv rewrite eager.pt2 --seeds many
! qkv: error: option '--seeds': found 'many', expected an integer from 1 to 1000
? 2
$ qkv rewrite eager.pt2 left.pt2
! qkv: error: 'left.pt2' is one argument too many: qkv rewrite MODEL
? 2
$ qkv rewrite eager.pt2 --rules
! qkv: error: option '--rules' needs a value: FILE
? 2
$ qkv rewrite eager.pt2 -o missing/fused.pt2 -q > /dev/null
! qkv: error: cannot write 'missing/fused.pt2': No such file or directory
? 3
# padding that cannot be skipped: one sentence, and the model runs as it is
$ qkv rewrite left.pt2 --skip-padding | tail -1
1 attention fused, 1 left; 35 nodes, were 47
! qkv: skip-padding: mask 'mask': 'matmul_2' (aten.matmul.default) reads padded positions; it runs dense
$ qkv run left.pt2 --skip-padding -q
output    dtype  shape            min      max      mean  not finite
output_0  f32    (1, 2, 8)  -0.278111  1.81379  0.429373           0
$ qkv embed words.pt2 --vocab vocab.txt --skip-padding cat dog
        1       2  sentence
1  1.0000  0.6667  cat
2  0.6667  1.0000  dog
! qkv: skip-padding: no padding to skip: there is no attention; the model runs dense
$ qkv rewrite left.pt2 --skip-padding --json | python3 -c "import json, sys; print(json.load(sys.stdin)['skip_padding']['masks'][0])"
{'mask': 'mask', 'applied': False, 'why': "'matmul_2' (aten.matmul.default) reads padded positions", 'attentions': 0, 'nodes': 0, 'stops': []}
# sdpa.pt2: attention of 3 axes; of heads of 12; with a mask of 3 axes; of queries whose last axis is turned
$ qkv rewrite sdpa.pt2 --lift-sdpa --prove -o lifted.pt2
rule        gives                                      at                              nodes  runs  largest difference
fold_views  aten.permute.default                       transpose_5                         3     8         none: exact
lift_rank   aten.scaled_dot_product_attention.default  scaled_dot_product_attention        1     8         none: exact
lift_sdpa   aten.scaled_dot_product_attention.default  scaled_dot_product_attention_2      1    12         none: exact
3 of 3 equal on random exact payloads
scaled_dot_product_attention: 3 axes became (batch, heads, length, size)
scaled_dot_product_attention_2: the mask has 4 axes
4 attentions fused, 0 left; 23 nodes, were 25
$ qkv backends lifted.pt2
attention                        module    query                 mask              kernel
scaled_dot_product_attention__5  layers.0  f32(1, s77, s27, 24)  causal            flash
scaled_dot_product_attention_1   layers.1  f32(s77, 2, s27, 12)  -                 flash
scaled_dot_product_attention_2   layers.2  f32(s77, 2, s27, 12)  (1, 2, s27, s27)  flash
scaled_dot_product_attention_3   layers.3  f32(s77, 2, s27, 12)  -                 flash
$ make st sdpa.safetensors x:f32:1x2x24:1,0.5,-1,2,0,-0.25,3,-2,0.125,1,1,-1,1,0.5,-1,2,0,-0.25,3,-2,0.125,1,1,-1,2,0.5,-1,2,0,-0.25,3,-2,0.125,1,1,-1,1,0.5,-1,2,1,-0.25,3,-2,0.125,1,1,-2 pair:f32:2x2x2:1,0,0,1,-1,0,0.5,2; qkv verify lifted.pt2 sdpa.pt2 -i sdpa.safetensors | tail -1
the output agrees
$ qkv rewrite sdpa.pt2 --device cuda-sm90
! qkv: error: options '--device' and '--cudnn' go with --lift-sdpa
? 2
$ qkv rewrite sdpa.pt2 --lift-sdpa --device gpu
! qkv: error: device 'gpu': expected cpu or cuda-smNN with a compute capability of at least 50, as cuda-sm80 or cuda-sm90
? 2
