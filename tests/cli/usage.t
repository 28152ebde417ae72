# Wrong words on the command line: exit 2, one sentence, the nearest name.
$ qkv insect affine.pt2
! qkv: error: no command is called 'insect'; did you mean 'inspect'?
? 2
$ qkv xyzzy
! qkv: error: no command is called 'xyzzy'; 'qkv help' lists them
? 2
$ qkv help benhc
! qkv: error: no command is called 'benhc'; did you mean 'bench'?
? 2
$ qkv --json run
! qkv: error: qkv takes a command first: 'qkv help' lists them
? 2
$ qkv run
! qkv: error: an argument is missing: qkv run MODEL; 'qkv help run' says more
? 2
$ qkv run affine.pt2 two.pt2
! qkv: error: 'two.pt2' is one argument too many: qkv run MODEL
? 2
$ qkv run affine.pt2 --thread 2
! qkv: error: qkv run has no option '--thread'; did you mean '--threads'?
? 2
$ qkv run affine.pt2 --dytpe bf16
! qkv: error: qkv run has no option '--dytpe'; did you mean '--dtype'?
? 2
$ qkv run affine.pt2 --zzzzzz
! qkv: error: qkv run has no option '--zzzzzz'; 'qkv help run' lists them
? 2
$ qkv run affine.pt2 -x
! qkv: error: qkv run has no option '-x'; 'qkv help run' lists them
? 2
$ qkv run affine.pt2 --threads
! qkv: error: option '--threads' needs a value: N
? 2
$ qkv run affine.pt2 -i
! qkv: error: option '-i' needs a value: FILE
? 2
$ qkv run affine.pt2 --threads=0
! qkv: error: option '--threads': found '0', expected an integer from 1 to 4096
? 2
$ qkv run affine.pt2 --threads two
! qkv: error: option '--threads': found 'two', expected an integer from 1 to 4096
? 2
$ qkv run affine.pt2 --json=yes
! qkv: error: option '--json' takes no value
? 2
$ qkv run affine.pt2 --dtype f8
! qkv: error: option '--dtype': found 'f8', expected f32 or bf16
? 2
$ qkv run affine.pt2 --seed=-1
! qkv: error: option '--seed': found '-1', expected an integer, at least 0
? 2
$ qkv run affine.pt2 --memory-limit 12Q
! qkv: error: option '--memory-limit': found '12Q', expected a number of bytes such as 64M
? 2
$ qkv bench affine.pt2 --iterations 0
! qkv: error: option '--iterations': found '0', expected an integer from 1 to 10000000
? 2
$ qkv verify affine.pt2
! qkv: error: nothing to compare with: give OTHER, -e EXPECTED or --per-node FILE
? 2
$ qkv verify affine.pt2 -e x.safetensors
! qkv: error: -i FILE is missing: the inputs that the expected values belong to
? 2
$ qkv verify affine.pt2 affine2.pt2 -e x.safetensors
! qkv: error: compare with OTHER or with -e EXPECTED, not with both
? 2
$ qkv embed words.pt2 "a cat"
! qkv: error: --vocab FILE is missing: the vocab.txt of the model's tokenizer
? 2
$ qkv embed words.pt2 --vocab vocab.txt --pool max "a cat"
! qkv: error: option '--pool': found 'max', expected mean or cls
? 2
# Options after --, joined letters, values glued to letters.
$ qkv run -qDbatch=2 -- affine.pt2
output    dtype  shape        min      max    mean  not finite
output_0  f32    (2, 3)  0.872087  13.9875  5.3961           0
# Older spellings of options are understood, but help does not show them.
$ for o in check:profile convert:profile extract:profile joint:profile convert:weights generalize:dim generalize:check train:labels train:warmup train:batch segment:batch segment:out; do qkv ${o%:*} --${o#*:}; qkv help ${o%:*} | grep -- "--${o#*:} "; done
! qkv: error: option '--profile' needs a value: LIST
! qkv: error: option '--profile' needs a value: NAME
! qkv: error: option '--profile' needs a value: NAME
! qkv: error: option '--profile' needs a value: NAME
! qkv: error: option '--weights' needs a value: FILE
! qkv: error: option '--dim' needs a value: NAME=AXES
! qkv: error: option '--check' needs a value: FILE
! qkv: error: option '--labels' needs a value: INPUT
! qkv: error: option '--warmup' needs a value: N
! qkv: error: option '--batch' needs a value: N
! qkv: error: option '--batch' needs a value: N
! qkv: error: option '--out' needs a value: DIR
? 1
$ qkv backends padded.onnx --train --json | grep -c attentions; qkv help backends | grep -c -- '--train'
1
0
? 1
$ qkv --sandboxed run affine.pt2
! qkv: error: qkv takes a command first: 'qkv help' lists them
? 2
$ qkv --sandbox=a.npz,b.npz runn affine.pt2
! qkv: error: no command is called 'runn'; did you mean 'run'?
? 2
# Two outputs of one name
$ qkv rewrite affine.pt2 -o r.pt2 --certify r.pt2
! qkv: error: 'r.pt2' is named for two outputs, of which one would be lost
? 2
$ qkv rewrite affine.pt2 -o r.pt2 -q >log; ln -s r.pt2 c.json; qkv rewrite affine.pt2 -o r.pt2 --certify c.json; qkv inspect r.pt2 >log && echo whole
whole
! qkv: error: 'c.json' is named for two outputs, of which one would be lost
