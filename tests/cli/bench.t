# Times become N.
$ qkv bench affine.pt2 -D batch=4 --iterations 5 --threads 1 | grep -v '^ *5 '
affine.pt2, f32, 1 thread, CPU
  x f32 (4, 4)

runs  min ms  median ms  p95 ms  mean ms

loaded in N ms, first run N ms (plan N ms), 2 steps
peak memory N
! qkv: random x: f32 (4, 4), seed 0
# Without sizes, the smallest ones are named; not when they are given.
$ qkv bench words.pt2 --iterations 1 2>&1 >/dev/null | tail -1
qkv: no sizes were given, so these are the smallest that the model allows: input_ids.0=1, input_ids.1=2; -D NAME=N sets larger ones
$ qkv bench words.pt2 --iterations 1 -D batch=2 -D seq=4 2>&1 >/dev/null | grep -c smallest
0
? 1
# Steps, and what a run does beside them; all of it is the time of the same runs.
$ qkv bench affine.pt2 --iterations 5 -q --per-op | sed -n '/^op/,/^$/p' | awk '{print $1, $2}' | sort -r
op nodes
aten.mul.Tensor 1
aten.linear.default 1
all 6
(sizes) 1
(plan) 1
(inputs) 1
(buffers) 1
$ qkv bench affine.pt2 --iterations 5 -q --per-op | sed -n '/^accounted/,$p' | sed 's/[0-9.]\+/N/g; s/(.*//'
accounted for N % of the wall time of these runs
peak of N thread: fN N GFLOP/s
$ qkv bench affine.pt2 --iterations 5 -q --per-op -v | sed -n '/^node/,$p' | awk '/aten/ {print $1, $2, $3, $4}'
relu aten.linear.default f32[1, 3]
mul aten.mul.Tensor f32[1, 3]
$ qkv bench affine.pt2 --iterations 50 -q --json --per-op | python3 -c "import json, sys; print(*json.load(sys.stdin))"
schema model min_ms median_ms p95_ms mean_ms load_ms first_ms plan_ms peak_rss_mb activation_mb packed_mb constant_mb scratch_mb steps threads dtype cpu version iterations warmup inputs ops all modules accounted peak
$ qkv bench affine.pt2 --iterations 50 -q --json --per-op -v >b.json; python3 -c "import json; j = json.load(open('b.json')); print(0 < j['accounted'] <= 1, abs(sum(o['ms'] for o in j['ops']) / j['mean_ms'] - j['accounted']) < 1e-9, sorted((o['op'], o['nodes'], o['flops'], o['bytes']) for o in j['ops'] if o['op'][0] == 'a'), sorted({n['op'] for n in j['per_node']}), j['peak']['threads'], *j['peak']['before'])"
True True [('aten.linear.default', 1, 27.0, 88.0), ('aten.mul.Tensor', 1, 3.0, 24.0)] ['(buffers)', '(inputs)', '(plan)', '(sizes)', 'aten.linear.default', 'aten.mul.Tensor'] 1 f32_gflops bf16_gflops read_gbs f32_by bf16_by
# A trace of the timed runs, and of a single one with its planning.
$ qkv bench affine.pt2 --iterations 5 -q --trace t.json >/dev/null && trace t.json 5
5 runs; aten.linear.default aten.mul.Tensor run session
$ qkv run affine.pt2 -q --trace t.json >/dev/null && trace t.json 1
1 runs; aten.linear.default aten.mul.Tensor run session
$ qkv run affine.pt2 -q --trace no/t.json >/dev/null
! qkv: error: cannot write 'no/t.json': No such file or directory
? 3
$ qkv bench affine.pt2 -q --iterations 7 --json | python3 -c "import json, sys; j = json.load(sys.stdin); print(j['iterations'], j['threads'], j['dtype'], j['inputs'], 0 < j['min_ms'] <= j['median_ms'] <= j['p95_ms'], 1 < j['peak_rss_mb'] < 1000)"
7 1 f32 [{'name': 'x', 'dtype': 'f32', 'shape': [1, 4]}] True True
$ qkv bench affine.pt2 -q --iterations 2 --dtype bf16 --threads 2 --json | grep -E 'dtype": "bf|threads'
  "threads": 2,
  "dtype": "bf16",
# Signals end it with the codes of a shell.
$ timeout --preserve-status -s INT 0.5 qkv bench affine.pt2 -q --iterations 10000000
? 130
$ timeout --preserve-status -s TERM 0.5 qkv bench affine.pt2 -q --iterations 10000000
? 143
# What is written out runs as one op (but an attention whose rows of NaN would become 0), unless the nodes of the file are asked for.
$ qkv bench eager.pt2 --iterations 2 -q --per-op | grep -oE 'aten[.](softmax|exp|silu|sigmoid|scaled_dot_product_attention)' | sort
aten.silu
aten.softmax
$ qkv bench eager.pt2 --iterations 2 -q --per-op --no-optimize | grep -oE 'aten[.](softmax|exp|silu|sigmoid|scaled_dot_product_attention)' | sort
aten.exp
aten.sigmoid
# An input that stays: what depends on it alone is not computed in the timed runs.
$ qkv bench two.pt2 -q --iterations 2 --threads 1 --keep 0 | grep -oE 'kept from run to run'
kept from run to run
$ qkv bench two.pt2 -q --keep y
! qkv: error: no input is called 'y'; this model has a, b
? 2
# Layers with more threads than there are, simulated.
$ qkv bench words.pt2 --iterations 1 -q --threads 1 -D batch=8 -D seq=16 --predict | awk '/^layer|^all/ {print $1, $2, $3, NF}'
layer steps loops 13
all 9 0 11
# Beside it what the timed runs took, and how far the simulation of as many threads as they had is from that.
$ qkv bench words.pt2 --iterations 1 -q --threads 3 -D batch=8 -D seq=16 --predict | awk '/^layer/ {print $6, $9, $10, $11, $12} /^all/ {mine = $9; print ($6 > 0)} /^3 threads: simulated/ {print ($4 == mine), $6, ($7 > 0), $NF}'
measured 1 2 3 8
1
1 measured 1 %
$ qkv bench words.pt2 --iterations 1 -q --json --predict
! qkv: error: --predict prints a table: leave out --json
? 2
