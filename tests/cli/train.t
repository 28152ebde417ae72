# Training a joint graph: numbers by hand, a checkpoint, what is refused.
$ qkv joint train.pt2 --loss output_0 -o joint.pt2 -q >joint.txt; make st d.safetensors x:f32:5x4:1,0,-1,2,0.5 target:f32:5x3:0,1,2,3
$ qkv train joint.pt2 --data d.safetensors --optimizer sgd --lr 0.01 --batch-size 2 --epochs 3 --in-order --checkpoint c.safetensors --save w.safetensors
epoch 1: loss 16.677
epoch 2: loss 13.6721
epoch 3: loss 11.2345
! qkv: w.safetensors: 3 tensors, 68 bytes
$ qkv train joint.pt2 --data d.safetensors --optimizer sgd --lr 0.01 --batch 2 --epochs 4 --in-order --resume c.safetensors --val d.safetensors --plot l.svg --log l.jsonl
epoch 4: loss 9.25504, validation 7.94815
$ cat l.jsonl | tail -4; grep -c polyline l.svg
{"epoch":4,"step":10,"loss":11.1512823,"lr":0.01,"grad_norm":12.0709135}
{"epoch":4,"step":11,"loss":8.13354397,"lr":0.01,"grad_norm":6.58626635}
{"epoch":4,"step":12,"loss":7.70554113,"lr":0.01,"grad_norm":6.41063346}
{"epoch":4,"step":12,"loss":9.25503874,"val_loss":7.94814644,"val_accuracy":null}
3
$ qkv train joint.pt2 --data d.safetensors --json -q | grep -v train_ms
{
  "schema": 1,
  "model": "joint.pt2",
  "steps": 1,
  "epochs": [
    {"epoch": 1, "step": 1, "loss": 17.33333397, "val_loss": null, "val_accuracy": null}
  ],
  "stopped": false,
  "checkpoint": null,
  "saved": null,
}
$ qkv train train.pt2 --data d.safetensors
! qkv: error: train.pt2: the model has no gradients: make its joint graph first, with qkv joint
? 2
$ qkv train joint.pt2
! qkv: error: train needs --data FILE
? 2
$ qkv train joint.pt2 --data d.safetensors --save out.txt
! qkv: error: option '--save': found 'out.txt', expected a file that ends in .safetensors, .npz or .pt2
? 2
$ qkv train joint.pt2 --data d.safetensors --into train.pt2
! qkv: error: --into MODEL goes with --save FILE.pt2
? 2
$ qkv train joint.pt2 --data d.safetensors --checkpoint c.npz
! qkv: error: option '--checkpoint': found 'c.npz', expected a file that ends in .safetensors
? 2
$ qkv train joint.pt2 --data d.safetensors --every 2
! qkv: error: --every N goes with --checkpoint FILE
? 2
$ qkv train joint.pt2 --data d.safetensors --betas 0.9
! qkv: error: option '--betas': found '0.9', expected two numbers such as 0.9,0.999
? 2
$ qkv train joint.pt2 --data d.safetensors --betas 0.9,1
! qkv: error: joint.pt2: beta2 is 1, expected a number of at least 0 and below 1
? 2
$ qkv train joint.pt2 --data d.safetensors --resume d.safetensors
! qkv: error: d.safetensors: it has no 'weight.layer.weight': it is the checkpoint of another model or another optimizer
? 2
$ qkv train joint.pt2 --data d.safetensors --momentum -1
! qkv: error: option '--momentum': found '-1', expected a number of at least 0
? 2
$ qkv train joint.pt2 --data d.safetensors --plot l.png
! qkv: error: option '--plot': found 'l.png', expected a file that ends in .svg
? 2
$ qkv convert train.pt2 --weights-from w.safetensors -o again.pt2; qkv extract again.pt2 --weights -o again.safetensors; cmp again.safetensors w.safetensors
! qkv: again.safetensors: 3 tensors, 68 bytes
$ qkv convert train.pt2 --weights d.safetensors -o no.pt2
! qkv: error: d.safetensors: the model has no weight 'x'
? 2
