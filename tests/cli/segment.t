# ground.pt2 finds what is red, green or blue, in the left and in the right half of what it sees.
$ make png a.png 40x30 ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,ff0000,0000ff; qkv segment ground.pt2 --image a.png --text red --text "a BLUE thing"
text          score    x0   y0    x1    y1  pixels
red           0.980   0.0  0.0  20.0  30.0     450
a BLUE thing  0.980   0.0  0.0  20.0  30.0     150
a BLUE thing  0.980  20.0  0.0  40.0  30.0     570
$ qkv segment ground.pt2 --image a.png --text blue --json
{
  "schema": 1,
  "info": {
    "model": "ground.pt2",
    "threshold": 0.5,
    "tile": 0
  },
  "categories": [
    {"id": 1, "name": "blue"}
  ],
  "images": [
    {"id": 1, "file_name": "a.png", "width": 40, "height": 30}
  ],
  "annotations": [
    {"id": 1, "image_id": 1, "category_id": 1, "score": 0.9795856476, "bbox": [0.0, 0.0, 20.0, 30.0], "area": 150, "iscrowd": 0, "segmentation": {"size": [30, 40], "counts": "T=f4fc0"}},
    {"id": 2, "image_id": 1, "category_id": 1, "score": 0.9795856476, "bbox": [20.0, 0.0, 20.0, 30.0], "area": 570, "iscrowd": 0, "segmentation": {"size": [30, 40], "counts": "fc0ja0"}}
  ]
}
$ qkv segment ground.pt2 --image a.png --text red --text blue -o over.png --masks masks --coco a.json -q; ls masks; head -c 60 a.json; qkv segment ground.pt2 --image over.png --text red -q | head -2
text  score    x0   y0    x1    y1  pixels
red   0.980   0.0  0.0  20.0  30.0     450
blue  0.980   0.0  0.0  20.0  30.0     150
blue  0.980  20.0  0.0  40.0  30.0     570
a.png-001-red.png
a.png-002-blue.png
a.png-003-blue.png
{"schema":1,"info":{"model":"ground.pt2","threshold":0.5,"titext  score    x0   y0    x1    y1  pixels
red   0.971   0.0  0.0  20.0  54.0     559
$ qkv segment ground.pt2 --image a.png --text thing
text  score  x0  y0  x1  y1  pixels
! qkv: no instance scores above 0.5
$ qkv segment ground.pt2 --image a.png --text red --threshold 0.99
text  score  x0  y0  x1  y1  pixels
! qkv: no instance scores above 0.99
$ qkv segment ground.pt2 --image a.png --text "red and a very long story about it"
text                                score   x0   y0    x1    y1  pixels
red and a very long story about it  0.980  0.0  0.0  20.0  30.0     450
! qkv: warning: text 1 is 27 tokens long; the model reads 16, the rest is cut off
# hf: other padding, other boxes, another threshold
$ echo '{"contract": "hf", "image": {"height": 32, "width": 32}, "text": {"length": 16}}' >hf.json; printf '#version: 0.2\nr e\nre d</w>\ng re\ngre e\ngree n</w>\nb l\nbl u\nblu e</w>\n' >merges.txt
$ qkv segment bare.pt2 --image a.png --text red --processor hf.json --tokenizer merges.txt
text  score    x0    y0    x1    y1  pixels
red   0.980  10.0  15.0  20.0  30.0     450
# what the file holds goes along into every other
$ qkv pack ground.pt2 -o g.qkv -q >log; qkv rewrite ground.pt2 -o r.pt2 -q >log; qkv convert g.qkv -o c.pt2 -q >log; for f in g.qkv r.pt2 c.pt2; do qkv segment $f --image a.png --text red | tail -1; done
red   0.980   0.0  0.0  20.0  30.0     450
red   0.980   0.0  0.0  20.0  30.0     450
red   0.980   0.0  0.0  20.0  30.0     450
$ qkv inspect g.qkv | grep extra; qkv inspect c.pt2 | grep extra
extra/qkv/tokenizer.bpe (extra file)
extra/qkv/processor.json (extra file)
extra/qkv/tokenizer.bpe (extra file)
extra/qkv/processor.json (extra file)
# tiles: what lies in several is joined
$ qkv segment ground.pt2 --image a.png --text red --tile 24 --overlap 8
text  score    x0   y0    x1    y1  pixels
red   0.980   0.0  0.0  12.0  30.0     360
red   0.980  12.0  0.0  24.0  30.0      60
$ make png tall.png 20x64 ff0000; qkv segment ground.pt2 --image tall.png --text red --tile 16
text  score   x0   y0    x1    y1  pixels
red   0.980  0.0  0.0  12.0  64.0     768
red   0.980  8.0  0.0  20.0  64.0     768
# a folder
$ mkdir in; cp a.png in/1.png; make png in/2.PNG 8x8 00ff00; echo broken >in/3.jpg; cp a.png in/4.png; make cut in/4.png 60; qkv segment ground.pt2 --images in --text red --text green --out out
image  instances
1.png          1
2.PNG          2
3.jpg             not readable
4.png             not readable
! qkv: warning: in/3.jpg: found neither PNG nor JPEG; convert the picture to one of them
! qkv: warning: in/4.png: PNG: the file is cut off
! qkv: error: 2 of 4 images could not be read:
!   in/3.jpg
!   in/4.png
? 1
$ ls out; qkv segment ground.pt2 --images in --text red --text green --output-dir out -q
1.png.json
1.png.overlay.png
2.PNG.json
2.PNG.overlay.png
coco.json
image  instances
1.png          1  from before
2.PNG          2  from before
3.jpg             not readable
4.png             not readable
! qkv: error: 2 of 4 images could not be read:
!   in/3.jpg
!   in/4.png
? 1
$ rm in/3.jpg in/4.png out/1.png.json; qkv segment ground.pt2 --images in --text red --text green --out out --masks out/masks; ls out/masks
image  instances
1.png          1
2.PNG          2  from before
1.png-001-red.png
$ qkv segment ground.pt2 --images in --text red --out out
image  instances
1.png          1
2.PNG          0
# pictures and tiles in batches of any size: the same numbers
$ mkdir many; for c in ff0000 00ff00 0000ff ff00ff 804020; do make png many/$c.png 20x16 $c,000000; done; echo no >many/ffff.jpg; for b in 1 2 5 1024; do qkv segment ground.pt2 --images many --text red --text blue --batch $b --out batch$b -q >batch$b.txt 2>&1; cmp batch$b/coco.json batch1/coco.json; cmp batch$b.txt batch1.txt; done; cat batch2.txt
image       instances
0000ff.png          1
00ff00.png          0
804020.png          1
ff0000.png          1
ff00ff.png          2
ffff.jpg               not readable
qkv: error: 1 of 6 images could not be read:
  many/ffff.jpg
$ for b in 1 2 3 4; do qkv segment ground.pt2 --image a.png --text red --text blue --tile 16 --overlap 4 --batch-size $b --json >tiles$b.json; cmp tiles$b.json tiles1.json; done; grep -c image_id tiles1.json
5
# a batch that was chosen is made smaller where memory is limited, one that was asked for is not
$ mkdir more; for i in $(seq 18); do cp many/ff00ff.png more/$i.png; done; for l in 100K 1G; do qkv segment ground.pt2 --images more --text red --text blue --memory-limit $l --out more$l | grep -c png; done; cmp more100K/coco.json more1G/coco.json; qkv segment ground.pt2 --images more --text red --text blue --memory-limit 100K --batch 16 --out sixteen 2>/dev/null || echo $?
18
18
5
# a picture of one pixel
$ make png one.png 1x1 ff0000; qkv segment ground.pt2 --image one.png --text red --tile 16
text  score   x0   y0   x1   y1  pixels
red   0.980  0.0  0.0  0.5  1.0       0
red   0.980  0.5  0.0  1.0  1.0       0
# what is missing or wrong
$ qkv segment bare.pt2 --image a.png --text red
! qkv: error: bare.pt2: holds no 'qkv/processor.json', which qkv.recipes.sam3 puts into a .pt2; give the processor as a file of its own
! qkv: this is --processor FILE
? 2
$ qkv segment bare.pt2 --image a.png --text red --processor hf.json
! qkv: error: bare.pt2: holds no 'qkv/tokenizer.bpe', which qkv.recipes.sam3 puts into a .pt2; give the tokenizer as a file of its own
! qkv: this is --tokenizer FILE
? 2
$ qkv segment ground.pt2 --image a.png
! qkv: error: --text TEXT is missing: what to look for
? 2
$ qkv segment ground.pt2 --text red
! qkv: error: --image FILE is missing, or --images DIR
? 2
$ qkv segment ground.pt2 --image a.png --text red --text " "
! qkv: error: text 2 has no tokens: it names nothing to look for
? 2
$ qkv segment ground.pt2 --image a.png --text "$(printf '\t\n.')" --text ""
! qkv: error: text 2 has no tokens: it names nothing to look for
? 2
$ qkv run ground.pt2 -D batch=0
! qkv: error: batch = 0: allowed is s60 at least 1
? 2
$ qkv run ground.pt2 --shape token_ids:0x16
! qkv: error: token_ids.0 = 0: allowed is s69 at least 1
? 2
$ qkv segment words.pt2 --image a.png --text red
! qkv: error: input 'attention_mask': a grounding model takes one picture (B, 3, H, W) of f32 and token ids (P, context) of i64, and box prompts
? 2
$ qkv segment ground.pt2 --image a.png --image one.png --text red
! qkv: error: --image was given 2 times; --images DIR takes a folder of images
? 2
$ qkv segment ground.pt2 --image a.png --images in --text red
! qkv: error: --image is for one image, --images for a folder: use one of them
? 2
$ qkv segment ground.pt2 --images in --text red
! qkv: error: --images needs --output-dir DIR, the folder for the results
? 2
$ qkv segment ground.pt2 --images out/masks/none --text red --out out
! qkv: error: cannot open the folder 'out/masks/none': No such file or directory
? 3
$ qkv segment ground.pt2 --image a.png --text red --threshold 1
! qkv: error: option '--threshold': found '1', expected a number below 1
? 2
$ qkv segment ground.pt2 --images many --text red --batch 0 --out out
! qkv: error: option '--batch': found '0', expected an integer from 1 to 1024
? 2
$ qkv segment ground.pt2 --image a.png --text red --overlap 3
! qkv: error: --overlap needs --tile
? 2
$ qkv segment ground.pt2 --image a.png --text red --tile 20 --overlap 11
! qkv: error: tiles of 20 pixels with an overlap of 11: expected at least 16, and an overlap of at most half
? 2
$ qkv segment quadrant.pt2 --image a.png --text red --processor hf.json --tokenizer merges.txt
! qkv: error: input 'image': a grounding model takes one picture (B, 3, H, W) of f32 and token ids (P, context) of i64, and box prompts
? 2
$ qkv segment affine.pt2 --image a.png --text red --processor hf.json --tokenizer merges.txt
! qkv: error: input 'x': a grounding model takes one picture (B, 3, H, W) of f32 and token ids (P, context) of i64, and box prompts
? 2
$ echo '{"contract": "other"}' >p.json; qkv segment ground.pt2 --image a.png --text red --processor p.json
! qkv: error: p.json: 'contract': found 'other', expected 'meta' or 'hf'
? 3
$ echo '{"contract": "meta", "image": {"height": 64}}' >p.json; qkv segment ground.pt2 --image a.png --text red --processor p.json
! qkv: error: input 'patch_batch': axis 2 is 32, the processor's image height is 64
? 2
$ echo '{"contract": "meta", "image": {"std": [1, 0, 1]}}' >p.json; qkv segment ground.pt2 --image a.png --text red --processor p.json
! qkv: error: p.json: 'std': expected three numbers from 1e-06 to 1e6
? 3
$ echo 'red' >bad.txt; qkv segment ground.pt2 --image a.png --text red --tokenizer bad.txt
! qkv: error: bad.txt: line 1 is not a merge: expected two tokens and a space between them
? 3
$ (cat merges.txt; echo 'r x') >more.txt; qkv segment ground.pt2 --image a.png --text red --tokenizer more.txt
! qkv: error: more.txt: its last id, <end>, is 522, the model's table of embeddings 'colour.weight' has 522 rows; give the tokenizer that the model was made with, one of 8 merges
? 2
$ head -5 merges.txt >less.txt; echo '{"contract": "meta", "image": {"height": 32, "width": 32}, "text": {"length": 16, "vocabulary": 522}}' >p.json; qkv segment ground.pt2 --image a.png --text red --processor p.json --tokenizer less.txt
! qkv: error: less.txt: it has 518 ids, the processor says 522; give the tokenizer that the model was made with, one of 8 merges
? 2
$ qkv segment ground.pt2 --image merges.txt --text red
! qkv: error: merges.txt: found neither PNG nor JPEG; convert the picture to one of them
? 3
