$ make png a.png 8x8 255,255,255,255,0/255,255,255,255,0/255,255,255,255,0/255,255,255,255,0/0; make png b.png 16x16 10
$ qkv classify quadrant.pt2 --labels quadrants.txt a.png b.png
image  label     probability     time
a.png  top left      100.0 % N ms
b.png  top left       25.0 % N ms
$ qkv classify quadrant.pt2 a.png --top 2
image  label  probability     time
a.png  0          100.0 % N ms
       1            0.0 %
$ qkv classify quadrant.pt2 a.png --json --labels quadrants.txt
{
  "schema": 1,
  "model": "quadrant.pt2",
  "pictures": [
    {"file": "a.png", "ms": N, "classes": [{"class": 0, "label": "top left", "probability": 0.9998638188}]}
  ]
}
$ qkv classify quadrant.pt2 a.png --scale 0.1 --mean 0.5 --std 2
image  label  probability     time
a.png  0           35.5 % N ms
$ qkv classify quadrant.pt2 a.png missing.png
! qkv: error: cannot open 'missing.png': No such file or directory
? 3
$ qkv classify quadrant.pt2 a.png --labels vocab.txt
! qkv: error: vocab.txt: 16 labels for 4 classes
? 2
$ qkv classify rgb.pt2 a.png
! qkv: error: output_0 is (1, 3, 4, 6), expected (batch, classes)
? 2
$ qkv classify two.pt2 a.png
! qkv: error: qkv classify needs a model with one f32 input: (batch, channels, height, width) or (channels, height, width)
? 2
