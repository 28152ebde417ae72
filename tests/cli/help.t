# What a user sees first; and that the man pages say what help says.
$ qkv
qkv 0.1.0: runs PyTorch attention models (torch.export's .pt2) without Python

usage: qkv [--sandbox[=FILE,...]] COMMAND ... | qkv --version

Look at a model
  inspect     Show what a model file contains
  graph       Print the graph as text, or draw it
  check       Look for errors and traps in a model file, without running it
  backends    Show which kernel PyTorch picks for each attention, and why
  report      Write a page that shows a model, its rewriting, time and memory
  compare     Write a page that shows two models side by side

Run a model
  run         Run a model and write its outputs
  bench       Measure how long one run takes
  verify      Compare a model's outputs with expected ones or with another model's
  prove       Find out whether two files compute the same, and in which sense

Change a model
  rewrite     Turn every spelling of attention into one op, and prove it
  convert     Write a model in another format: ONNX, or .pt2
  extract     Cut a part of a model into its own file, or write its weights
  generalize  Make one model with variable sizes from static exports at several sizes
  joint       Write a model with the gradients of its loss: forward and backward in one graph
  quantize    Write a model whose linear layers and attentions multiply integers of 8 bits
  pack        Write a model as this machine runs it, in a file that opens at once

Train a model
  train       Train the parameters of a joint graph, without Python

Text and vision
  generate    Write text with a causal language model
  embed       Embed sentences and print how similar they are
  classify    Classify images
  segment     Find every instance of a text in an image

Serve models
  serve       Serve models over HTTP, without computing padding

Help
  help        Print help

Options
  --sandbox
      Run the command so that it opens only files that its command line names, for an ONNX model
      those that it names for its data, and FILE, ...; no network, no other program (Linux: Landlock
      and seccomp). qkv check --security does so by itself.

Environment
  QKV_NUM_THREADS   Number of threads when --threads is not given; overrides OMP_NUM_THREADS.
  QKV_CPU           Limit the CPU features that are used: ref, gen, avx2, avxvnni, avx512, avx512vnni, avx512bf16, CPU.
  NO_COLOR          Disables colours when set and not empty.

Exit codes
    0  success
    1  mismatch: outputs differ, a check found errors, or one of several images could not be read
    2  usage error: a wrong option, or an input with a wrong name, dtype, rank or size
    3  unreadable: a file is missing, damaged or of the wrong kind
    4  unsupported: the model uses something that qkv does not implement
    5  out of memory, or --memory-limit exceeded
   70  internal error
  130  interrupted (SIGINT); 143: terminated (SIGTERM)

Results go to standard output, messages to standard error. 'qkv help COMMAND' says more.
? 2
$ qkv --version
qkv 0.1.0 (CPU)
$ qkv help
qkv 0.1.0: runs PyTorch attention models (torch.export's .pt2) without Python

usage: qkv [--sandbox[=FILE,...]] COMMAND ... | qkv --version

Look at a model
  inspect     Show what a model file contains
  graph       Print the graph as text, or draw it
  check       Look for errors and traps in a model file, without running it
  backends    Show which kernel PyTorch picks for each attention, and why
  report      Write a page that shows a model, its rewriting, time and memory
  compare     Write a page that shows two models side by side

Run a model
  run         Run a model and write its outputs
  bench       Measure how long one run takes
  verify      Compare a model's outputs with expected ones or with another model's
  prove       Find out whether two files compute the same, and in which sense

Change a model
  rewrite     Turn every spelling of attention into one op, and prove it
  convert     Write a model in another format: ONNX, or .pt2
  extract     Cut a part of a model into its own file, or write its weights
  generalize  Make one model with variable sizes from static exports at several sizes
  joint       Write a model with the gradients of its loss: forward and backward in one graph
  quantize    Write a model whose linear layers and attentions multiply integers of 8 bits
  pack        Write a model as this machine runs it, in a file that opens at once

Train a model
  train       Train the parameters of a joint graph, without Python

Text and vision
  generate    Write text with a causal language model
  embed       Embed sentences and print how similar they are
  classify    Classify images
  segment     Find every instance of a text in an image

Serve models
  serve       Serve models over HTTP, without computing padding

Help
  help        Print help

Options
  --sandbox
      Run the command so that it opens only files that its command line names, for an ONNX model
      those that it names for its data, and FILE, ...; no network, no other program (Linux: Landlock
      and seccomp). qkv check --security does so by itself.

Environment
  QKV_NUM_THREADS   Number of threads when --threads is not given; overrides OMP_NUM_THREADS.
  QKV_CPU           Limit the CPU features that are used: ref, gen, avx2, avxvnni, avx512, avx512vnni, avx512bf16, CPU.
  NO_COLOR          Disables colours when set and not empty.

Exit codes
    0  success
    1  mismatch: outputs differ, a check found errors, or one of several images could not be read
    2  usage error: a wrong option, or an input with a wrong name, dtype, rank or size
    3  unreadable: a file is missing, damaged or of the wrong kind
    4  unsupported: the model uses something that qkv does not implement
    5  out of memory, or --memory-limit exceeded
   70  internal error
  130  interrupted (SIGINT); 143: terminated (SIGTERM)

Results go to standard output, messages to standard error. 'qkv help COMMAND' says more.
$ qkv help run
usage: qkv run MODEL [options]

Runs the model once, prints a summary of each output and, with -o, writes the outputs as output_0,
output_1, ... in flattened order.

Inputs come from a file (-i), from images (--image), or are random: roughly normally distributed
floats, integers that are valid indices, and masks that keep the first element of each row.

Options
  -i, --inputs FILE
      Read inputs from a .safetensors, .npz or .npy file, keyed by the model's input names or by
      position (0, 1, ...).
  -D, --dim NAME=N
      Set a size of the random inputs. NAME is a symbol of the model (s0), an axis (input_ids.1), or
      batch, seq, height or width. A size that is not given is the smallest one that the model
      allows.
  --shape NAME:SHAPE
      Set all sizes of one random input: x:1x3x224x224, x:[1,3,224,224] or x:1,3,224,224.
  --seed N
      Seed of the random inputs and, like torch.manual_seed, of dropout and other random ops
      (default 0).
  --image [NAME=]FILE
      Read a PNG or JPEG image into the input NAME, which may be omitted when the model has one
      input. Several images for one input form a batch.
  --mean LIST
      Mean of the image's channels: one number, or one per channel as in 0.48,0.46,0.41 (default 0).
  --std LIST
      Standard deviation of the image's channels (default 1).
  --scale X
      Value of a white pixel before the mean is subtracted and the result divided by std (default
      1).
  -o, --output FILE
      Write the outputs to a .safetensors or .npz file. The file is written completely or not at
      all.
  --fix NAME=VALUE|FILE
      Make an input of an ONNX model a constant while the model is read, so that shapes and axes may
      depend on it. VALUE is a number (3), a list (0,2) or a tensor file.
  --name-dim SIZE=NAME
      Call a size of the model (s43, as qkv inspect lists them) NAME in everything that is printed
      and written. May be given many times. Files of qkv.export have the names of their Dims.
  --dtype f32|bf16
      bf16: compute matrix products, convolutions and attention in bfloat16, with sums in float32;
      outputs keep their dtypes. f32 (default): compute as the file says.
  --skip-padding
      Where a key padding mask marks tokens, run the network on the real tokens only: the outputs
      stay the same at real positions and are 0 at padded ones. Prints where this applies and where
      it ends.
  --threads N
      Number of threads (default: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process
      may use).
  --no-optimize
      Run the nodes of the file as they are. By default attention, norms and activations, however
      they are spelled, are first turned into single ops, as qkv rewrite --exact-masked-rows does.
  --no-mmap
      Read the model into memory instead of mapping it: for a file that another process may write in
      place.
  --portable-bits
      Compute the same bits on every x86 CPU. By default they are the same for any number of
      threads, place in a batch and run, on CPUs of one level (QKV_CPU). bfloat16 without the CPU's
      own products is what it costs most.
  --cache[=DIR]
      Keep the model packed for this CPU in a folder (default $XDG_CACHE_HOME/qkv/packed), and map
      it from there from the second time on: it opens at once, and processes share one copy of its
      weights. -v says whether it was there, or why it was written again.
  --passes LIST
      Run only these passes over the graph, of import, detach, pair, rewrite, padding, constants,
      integers, precision, fold, fuse. By default import, detach, pair, rewrite, integers,
      precision, fuse run.
  --trace FILE.json
      Write a timeline of the steps, with start and duration of each, in the Trace Event Format,
      which https://ui.perfetto.dev opens.
  --json
      Print one JSON object; "schema" is the version of its layout.
  --memory-limit SIZE
      Upper limit for the memory of a run: activations, scratch space, random inputs; suffixes K, M,
      G. The rest of the command may take 64M beside it and 4 times the files that it names. What
      needs more ends with exit code 5.
  -v, --verbose
      Print more to standard error.
  -q, --quiet
      Print nothing but errors to standard error.
  -h, --help
      Print the help of the command.

Examples
  qkv run bert.pt2 -i in.safetensors -o out.safetensors
      inputs by name or position
  qkv run vit.pt2 --image cat.png --mean 0.5 --std 0.5 -o out.npz
      an image
  qkv run bert.pt2 -D batch=2 -D seq=128 --seed 1
      random inputs of a given size

Exit codes
    0  success
    1  mismatch: outputs differ, a check found errors, or one of several images could not be read
    2  usage error: a wrong option, or an input with a wrong name, dtype, rank or size
    3  unreadable: a file is missing, damaged or of the wrong kind
    4  unsupported: the model uses something that qkv does not implement
    5  out of memory, or --memory-limit exceeded
   70  internal error
  130  interrupted (SIGINT); 143: terminated (SIGTERM)
$ qkv verify --help | head -4
usage: qkv verify MODEL [OTHER] [options]

Prints for each output the largest absolute and relative difference, the largest difference as a
fraction of the largest expected value, the cosine, and where the largest difference is. The exit
$ for c in '' inspect run verify prove bench generate embed classify segment rewrite graph generalize check convert extract joint train quantize pack backends report compare serve help; do qkv help $c --man | cmp - $MAN/qkv${c:+-$c}.1 || echo "make new man pages: tests/cli/man.sh"; done
$ qkv help | grep -c .
52
