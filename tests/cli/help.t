# What a user sees first; and that the man pages say what help says.
$ qkv
qkv 0.1.0: runs PyTorch attention models (torch.export's .pt2) without Python

usage: qkv COMMAND ... | qkv --version

Commands
  inspect     Say what a model file holds
  run         Run a model and write its outputs
  verify      Compare a model's outputs with expected ones or with another model's
  bench       Measure how long one run takes
  embed       Embed sentences and print how similar they are
  classify    Say what is in pictures
  segment     Find every instance of a text in a picture
  rewrite     Turn every spelling of attention into one op, and prove it
  graph       Print the graph as text
  generalize  Make one model with variable sizes from static exports at several sizes
  check       Look for errors and traps in a model file, without running it
  convert     Write a model in another format: ONNX, or .pt2
  extract     Cut a part of a model into its own file, or write its weights
  joint       Write a model with the gradients of its loss: forward and backward in one graph
  train       Train the parameters of a joint graph, without Python
  pack        Write a model as this machine runs it, in a file that opens at once
  backends    Say which kernel PyTorch takes for each attention, and why
  help        Print help

Environment
  QKV_NUM_THREADS   Threads when --threads is not given; before OMP_NUM_THREADS.
  QKV_CPU           Use lower CPU features than the machine has: ref, gen, avx2, avx512, avx512bf16, CPU.
  NO_COLOR          When set and not empty: no colours.

Exit codes
    0  success
    1  numbers differ; a check found errors; a picture of many could not be read
    2  usage: a wrong option, or an input of a wrong name, dtype, rank or size
    3  a file that is missing, damaged or not what it should be
    4  a model that uses what qkv has not built yet
    5  out of memory, or over --memory-limit
   70  an internal error
  130  interrupted (SIGINT); 143: ended (SIGTERM)

Results go to standard output, messages to standard error. 'qkv help COMMAND' says more.
? 2
$ qkv --version
qkv 0.1.0 (CPU)
$ qkv help
qkv 0.1.0: runs PyTorch attention models (torch.export's .pt2) without Python

usage: qkv COMMAND ... | qkv --version

Commands
  inspect     Say what a model file holds
  run         Run a model and write its outputs
  verify      Compare a model's outputs with expected ones or with another model's
  bench       Measure how long one run takes
  embed       Embed sentences and print how similar they are
  classify    Say what is in pictures
  segment     Find every instance of a text in a picture
  rewrite     Turn every spelling of attention into one op, and prove it
  graph       Print the graph as text
  generalize  Make one model with variable sizes from static exports at several sizes
  check       Look for errors and traps in a model file, without running it
  convert     Write a model in another format: ONNX, or .pt2
  extract     Cut a part of a model into its own file, or write its weights
  joint       Write a model with the gradients of its loss: forward and backward in one graph
  train       Train the parameters of a joint graph, without Python
  pack        Write a model as this machine runs it, in a file that opens at once
  backends    Say which kernel PyTorch takes for each attention, and why
  help        Print help

Environment
  QKV_NUM_THREADS   Threads when --threads is not given; before OMP_NUM_THREADS.
  QKV_CPU           Use lower CPU features than the machine has: ref, gen, avx2, avx512, avx512bf16, CPU.
  NO_COLOR          When set and not empty: no colours.

Exit codes
    0  success
    1  numbers differ; a check found errors; a picture of many could not be read
    2  usage: a wrong option, or an input of a wrong name, dtype, rank or size
    3  a file that is missing, damaged or not what it should be
    4  a model that uses what qkv has not built yet
    5  out of memory, or over --memory-limit
   70  an internal error
  130  interrupted (SIGINT); 143: ended (SIGTERM)

Results go to standard output, messages to standard error. 'qkv help COMMAND' says more.
$ qkv help run
usage: qkv run MODEL [options]

Runs the model once, prints a summary of each output and, with -o, writes them as output_0,
output_1, ... in flattened order.

Inputs come from a file (-i), from pictures (--image), or are random: floats close to normally
distributed, integers that are valid indices, masks that keep the first element of each row.

Options
  -i, --inputs FILE
      Inputs from a .safetensors, .npz or .npy file, keyed by the model's input names or by position
      (0, 1, ...).
  -D, --dim NAME=N
      A size of random inputs. NAME is a symbol of the model (s0), an axis (input_ids.1), or what it
      is usually called: batch, seq, height, width. Sizes that are not given are the smallest that
      the model allows.
  --shape NAME:SHAPE
      All sizes of one random input: x:1x3x224x224, x:[1,3,224,224] or x:1,3,224,224.
  --seed N
      Seed of random inputs (default 1) and, as torch.manual_seed, of dropout and other random ops
      (default 0).
  --image [NAME=]FILE
      A PNG or JPEG as the input NAME; the name may be left out when the model has one input.
      Several pictures for one input make a batch.
  --mean LIST
      Mean of the picture's channels: one number or one a channel, 0.48,0.46,0.41 (default 0).
  --std LIST
      Standard deviation of the picture's channels (default 1).
  --scale X
      White is X before mean and std apply (default 1).
  --fix NAME=VALUE
      An input of an ONNX model that becomes a constant when the model is read, so that shapes and
      axes may depend on it: numbers (3 or 0,2) or a tensor file.
  -o, --output FILE
      Write the results to a .safetensors or .npz file, whole or not at all.
  --trace FILE.json
      Write when every step began and how long it took, in the Trace Event Format, which
      https://ui.perfetto.dev opens.
  --dtype f32|bf16
      bf16: matrix products, convolutions and attention of bfloat16 numbers, summed in float32;
      outputs keep their dtypes. f32 (default): as the file says.
  --skip-padding
      Where a key padding mask marks tokens, run the network on the real ones only: real positions
      of outputs stay, padded ones are 0. Says what it found, and where it stops.
  --threads N
      Threads (default: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs that this process may
      use).
  --no-optimize
      Run the nodes of the file as they are; otherwise attention, norms and activations in any
      spelling are first made one op, as qkv rewrite --exact-masked-rows does.
  --passes LIST
      Passes that the graph goes through, of import,detach,rewrite,padding,precision,fold,fuse; all
      others are left out. Sessions run import, detach, rewrite, precision and fuse.
  --memory-limit SIZE
      Most bytes of activations and scratch; suffixes K, M, G. A run that needs more ends with exit
      code 5.
  --json
      Print one JSON object, whose "schema" counts its versions.
  -v, --verbose
      Say more on standard error.
  -q, --quiet
      Say nothing on standard error but errors.
  -h, --help
      Print the help of the command.

Examples
  qkv run bert.pt2 -i in.safetensors -o out.safetensors
      inputs by name or position
  qkv run vit.pt2 --image cat.png --mean 0.5 --std 0.5 -o out.npz
      a picture
  qkv run bert.pt2 -D batch=2 -D seq=128 --seed 1
      random inputs of a chosen size

Exit codes
    0  success
    1  numbers differ; a check found errors; a picture of many could not be read
    2  usage: a wrong option, or an input of a wrong name, dtype, rank or size
    3  a file that is missing, damaged or not what it should be
    4  a model that uses what qkv has not built yet
    5  out of memory, or over --memory-limit
   70  an internal error
  130  interrupted (SIGINT); 143: ended (SIGTERM)
$ qkv verify --help | head -4
usage: qkv verify MODEL [OTHER] [options]

Prints for each output the largest absolute and relative difference, the largest difference as a
share of the largest expected value, the cosine, and where and what the largest difference is. The
$ for c in '' inspect run verify bench embed classify segment rewrite graph generalize check convert extract joint train pack backends help; do qkv help $c --man | cmp - $MAN/qkv${c:+-$c}.1 || echo "make new man pages: tests/cli/man.sh"; done
$ qkv help | grep -c .
35
