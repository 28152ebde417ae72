# qkv report and qkv compare: what they write and say; the pages themselves are looked at by tests/python.
$ qkv report sdpa.pt2 -o r.html -q; grep -c '<title>qkv</title>' r.html; grep -c '"kind":"report"' r.html
1
1
$ qkv report sdpa.pt2 -o r.csv -q; head -1 r.csv
file,node,op,result,operands,calls,total_ms,min_ms,flops,bytes
$ qkv report sdpa.pt2
! qkv: error: where to write is missing: -o FILE.html
? 2
$ qkv report sdpa.pt2 -o r.pdf
! qkv: error: option '--output': found 'r.pdf', expected a name that ends in .html, .json or .csv
? 2
$ qkv report sdpa.pt2 -o r.html --no-run --train-log no.jsonl
! qkv: error: no.jsonl: cannot be opened
? 3
$ qkv compare sdpa.pt2 sdpa.pt2 -o d.html -q
all 25 pairs of nodes agree
all outputs agree
$ qkv compare affine.pt2 affine2.pt2 -o d.html --no-run -q; grep -c '"kind":"compare"' d.html
1
$ qkv compare affine.pt2 affine2.pt2 -o d.html -q
of 3 pairs of nodes, 'linear' and 'linear' are the first that differ
1 of 1 output differs
? 1
$ qkv compare affine.pt2 two.pt2 -o d.json -q
! qkv: error: input 'a': dtype is f32, expected i64
? 2
