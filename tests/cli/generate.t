# What qkv generate refuses; the text it writes is held against transformers by tests/python/test_generate.py.
$ qkv generate words.pt2
! qkv: error: --prompt TEXT is missing
? 2
$ qkv generate words.pt2 --prompt a
! qkv: error: cannot open 'tokenizer.json': No such file or directory; name it with --tokenizer FILE
? 3
$ qkv generate words.pt2 --prompt a --tokenizer no.json
! qkv: error: cannot open 'no.json': No such file or directory
? 3
$ echo '{"model":{"type":"Unigram","vocab":[]}}' > unigram.json; qkv generate words.pt2 --prompt a --tokenizer unigram.json
! qkv: error: unigram.json: a tokenizer of kind Unigram; supported is a byte-level BPE (GPT-2, Llama 3, Qwen)
? 4
$ echo 'not json' > bad.json; qkv generate words.pt2 --prompt a --tokenizer bad.json
! qkv: error: bad.json: line 1, column 1 (byte 0): '[' or '{' expected
? 3
$ qkv generate words.pt2 --prompt a --tokenizer words.pt2
! qkv: error: words.pt2: line 1, column 1 (byte 0): '[' or '{' expected
? 3
$ echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"}}' > tokenizer.json
$ qkv generate words.pt2 --prompt ""
! qkv: error: the prompt has no tokens: a model needs one to begin with
? 2
$ qkv generate words.pt2 --prompt a --eos x
! qkv: error: option '--eos': the tokenizer has no token 'x'
? 2
$ qkv generate words.pt2 --prompt a --top-k -1
! qkv: error: option '--top-k': found '-1', expected an integer from 0 to 16777216
? 2
$ qkv generate words.pt2 --prompt a --top-p 0
! qkv: error: option '--top-p': found '0', expected a number above 0
? 2
$ qkv generate words.pt2 --prompt a --temperature -1
! qkv: error: option '--temperature': found '-1', expected a number of at least 0
? 2
$ qkv generate words.pt2 --prompt a --max-tokens 0
! qkv: error: option '--max-tokens': found '0', expected an integer from 1 to 16777216
? 2
$ qkv generate words.pt2 --prompt a --feed x=y
! qkv: error: option '--feed': no input is called 'x'
? 2
$ qkv generate words.pt2 --prompt a --feed x
! qkv: error: option '--feed': found 'x', expected INPUT=OUTPUT
? 2
# models of other kinds
$ qkv generate words.pt2 --prompt a
! qkv: error: input 'token_type_ids' is i64 and output 'output_1' is f32; --feed token_type_ids=OUTPUT names another output
? 2
$ qkv generate affine.pt2 --prompt a
! qkv: error: input 'x' is f32, expected ids (i64 or i32): is it a causal language model?
? 2
$ qkv generate unigram.json --prompt a
! qkv: error: unigram.json: no end record: the file is not a ZIP archive, or it is cut off
? 3
