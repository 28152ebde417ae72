$ qkv embed words.pt2 --vocab vocab.txt "A cat sits." "The dog sits!" "rain falls" "A KITTEN"
        1       2       3       4  sentence
1  1.0000  0.5031  0.3780  0.6682  A cat sits.
2  0.5031  1.0000  0.3381  0.3586  The dog sits!
3  0.3780  0.3381  1.0000  0.2020  rain falls
4  0.6682  0.3586  0.2020  1.0000  A KITTEN
$ qkv embed words.pt2 --vocab vocab.txt --pool cls cat dog
        1       2  sentence
1  1.0000  1.0000  cat
2  1.0000  1.0000  dog
$ qkv embed words.pt2 --vocab vocab.txt --cased Cat cat
        1       2  sentence
1  1.0000  0.6667  Cat
2  0.6667  1.0000  cat
$ qkv embed words.pt2 --vocab vocab.txt "a cat" -o e.safetensors --json | grep -v run_ms
{
  "schema": 1,
  "model": "words.pt2",
  "width": 8,
  "sentences": ["a cat"],
  "tokens": [4],
  "similarity": [
    [0.9999999672]
  ],
  "embeddings": [
    [0.0, 0.7559289336, 0.3779644668, 0.3779644668, 0.3779644668, 0.0, 0.0, 0.0]
  ]
}
$ qkv embed words.pt2 --vocab vocab.txt --max-tokens 4 "a cat sits" "a cat falls" -v
        1       2  sentence
1  1.0000  1.0000  a cat sits
2  1.0000  1.0000  a cat falls
! qkv: words.pt2: loaded in N ms, cpu CPU
! qkv: sentence 1 is truncated to 4 tokens
! qkv: sentence 2 is truncated to 4 tokens
! qkv: 2 sentences in N ms
$ qkv embed affine.pt2 --vocab vocab.txt "a cat"
! qkv: error: input 'x': expected input_ids, attention_mask, token_type_ids or position_ids
? 2
$ qkv embed words.pt2 --vocab vocab.txt $(for i in $(seq 70); do echo cat; done) | tail -1 | awk '{print $1, $2, $71, $72}'
70 1.0000 1.0000 cat
