# Files that are missing or damaged: exit 3; what is written is written whole or not at all.
$ qkv inspect missing.pt2
! qkv: error: cannot open 'missing.pt2': No such file or directory
? 3
$ qkv inspect vocab.txt
! qkv: error: vocab.txt: no end record: the file is not a ZIP archive, or it is cut off
? 3
$ qkv graph .
! qkv: error: cannot read '.': it is a folder
? 3
$ make cut affine.pt2 3000; qkv inspect affine.pt2
! qkv: error: affine.pt2: no end record: the file is not a ZIP archive, or it is cut off
? 3
$ qkv run affine2.pt2 -i missing.npz
! qkv: error: cannot open 'missing.npz': No such file or directory
? 3
$ make st x.safetensors x:f32:2x4:1; make cut x.safetensors 60; qkv run affine2.pt2 -i x.safetensors
! qkv: error: x.safetensors: neither .safetensors, .npz nor .npy: a header of 72 bytes in a file of 60
? 3
$ qkv run affine2.pt2 -q -o /nowhere/out.npz
! qkv: error: cannot write '/nowhere/out.npz': No such file or directory
? 3
$ qkv run affine2.pt2 -q -o out.txt
! qkv: error: 'out.txt': the name must end in .safetensors, .npz or .npy
? 2
$ qkv run affine2.pt2 --image vocab.txt
! qkv: error: input 'x' is f32 of rank 2; an image is f32 of rank 4 (batch, channels, height, width) or 3
? 2
$ qkv run rgb.pt2 --image vocab.txt
! qkv: error: vocab.txt: found neither PNG nor JPEG; convert the picture to one of them
? 3
$ qkv embed words.pt2 --vocab missing.txt "a cat"
! qkv: error: cannot open 'missing.txt': No such file or directory
? 3
$ qkv classify quadrant.pt2 --labels missing.txt x.png
! qkv: error: missing.txt: No such file or directory
? 3
# A name that is not UTF-8.
$ cp affine2.pt2 $'\xff.pt2'; qkv inspect $'\xff.pt2' --json | head -4; qkv run -q --json $'\xff.pt2' | head -4; rm $'\xff.pt2'
{
  "schema": 1,
  "file": "�.pt2",
  "format": "pt2",
{
  "schema": 1,
  "model": "?.pt2",
  "written": null,
# A full disk is not success; a closed pipe is quiet.
$ qkv inspect words.pt2 > /dev/full
! qkv: error: standard output cannot be written: No space left on device
? 3
$ qkv graph words.pt2 | true
$ ls
affine.pt2
affine2.pt2
baked.onnx
bare.pt2
complex.pt2
eager.pt2
ground.pt2
left.pt2
make.py
make_onnx.py
padded.onnx
quadrant.pt2
quadrants.txt
rgb.pt2
sdpa.pt2
spelled.onnx
static_a.pt2
static_b.pt2
static_c.pt2
static_loop.pt2
static_other.pt2
static_table_a.pt2
static_table_b.pt2
train.pt2
turns.pt2
two.pt2
vocab.txt
words.pt2
wrong.onnx
x.safetensors
