/* Options: one table says what exists, which commands take it, and what help and the man pages print.
 *
 *     qkv run m.pt2 -D batch=2 -Dseq=128 --seed=1 -o out.npz -- ...        options and other words in any order; -- ends options
 */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef enum Kind { FLAG, COUNT, TEXT, MANY, INTEGER, BYTES, REAL, ZERO_ON /* a real number from 0 on */ } Kind;

enum {
    IN = 1 << C_INSPECT,
    RU = 1 << C_RUN,
    VE = 1 << C_VERIFY,
    BE = 1 << C_BENCH,
    EM = 1 << C_EMBED,
    CL = 1 << C_CLASSIFY,
    SE = 1 << C_SEGMENT,
    RW = 1 << C_REWRITE,
    GR = 1 << C_GRAPH,
    GE = 1 << C_GENERALIZE,
    CH = 1 << C_CHECK,
    CO = 1 << C_CONVERT,
    EX = 1 << C_EXTRACT,
    JO = 1 << C_JOINT,
    TR = 1 << C_TRAIN,
    PA = 1 << C_PACK,
    BA = 1 << C_BACKENDS,
    HE = 1 << C_HELP,
    INPUTS = RU | VE | BE,
    RUNS = RU | VE | BE | EM | CL | SE,
    ALL = IN | RUNS | RW | GR | GE | BA | CH | CO | EX | JO | TR | PA | HE
};

typedef struct Option {
    OptionText text;
    int commands;
    Kind kind;
    size_t at; /* where in Options */
    int64_t min, max;
} Option;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {{"inputs", "FILE",
      "Inputs from a .safetensors, .npz or .npy file, keyed by the model's input names or by position (0, 1, ...).",
      'i'},
     INPUTS,
     TEXT,
     AT(inputs),
     0,
     0},
    {{"dim", "NAME=N",
      "A size of random inputs. NAME is a symbol of the model (s0), an axis (input_ids.1), or what it is usually called: batch, seq, "
      "height, width. Sizes that are not given are the smallest that the model allows.",
      'D'},
     INPUTS,
     MANY,
     AT(dim),
     0,
     0},
    {{"shape", "NAME:SHAPE", "All sizes of one random input: x:1x3x224x224, x:[1,3,224,224] or x:1,3,224,224.", 0},
     INPUTS,
     MANY,
     AT(shape),
     0,
     0},
    {{"seed", "N",
      "Seed of random inputs (default 1) and, as torch.manual_seed, of dropout and other random ops (default 0).", 0},
     INPUTS,
     INTEGER,
     AT(seed),
     0,
     INT64_MAX},
    {{"image", "[NAME=]FILE",
      "A PNG or JPEG as the input NAME; the name may be left out when the model has one input. Several pictures for one input make a batch.",
      0},
     INPUTS,
     MANY,
     AT(image),
     0,
     0},
    {{"mean", "LIST", "Mean of the picture's channels: one number or one a channel, 0.48,0.46,0.41 (default 0).", 0},
     INPUTS | CL,
     TEXT,
     AT(mean),
     0,
     0},
    {{"std", "LIST", "Standard deviation of the picture's channels (default 1).", 0}, INPUTS | CL, TEXT, AT(std), 0, 0},
    {{"scale", "X", "White is X before mean and std apply (default 1).", 0}, INPUTS | CL, REAL, AT(scale), 0, 0},
    {{"fix", "NAME=VALUE",
      "An input of an ONNX model that becomes a constant when the model is read, so that shapes and axes may depend on it: numbers (3 or 0,2) "
      "or a tensor file.",
      0},
     IN | RUNS | RW | GR | CO | EX | JO | PA | BA,
     MANY,
     AT(fix),
     0,
     0},
    {{"device", "NAME", "cpu (default), or cuda-smNN for a compute capability: cuda-sm80, cuda-sm90, cuda-sm120 ...",
      0},
     BA | RW,
     TEXT,
     AT(device),
     0,
     0},
    {{"cudnn", "VERSION", "The cuDNN that PyTorch runs with on the device (default 9.20.0).", 0},
     BA | RW,
     TEXT,
     AT(cudnn),
     0,
     0},
    {{"dim", "NAME=N",
      "A size that is known; NAME is a symbol of the model (s0), an axis (input_ids.1), or batch, seq, height, width. Others stay symbols.",
      'D'},
     BA,
     MANY,
     AT(dim),
     0,
     0},
    {{"train", NULL,
      "Gradients are on, and every parameter that is not frozen asks for one; otherwise as under torch.no_grad().", 0},
     BA,
     FLAG,
     AT(train),
     0,
     0},
    {{"output", "FILE", "Write the results to a .safetensors or .npz file, whole or not at all.", 'o'},
     RU | EM,
     TEXT,
     AT(output),
     0,
     0},
    {{"output", "FILE.pt2", "Write the rewritten model, whole or not at all.", 'o'}, RW, TEXT, AT(output), 0, 0},
    {{"from", "LIST",
      "Values that become the inputs, A,B,C, by their names in qkv graph; those of the model that are needed when it is left out. May be given many "
      "times.",
      0},
     EX,
     MANY,
     AT(from),
     0,
     0},
    {{"to", "LIST", "Values that become the outputs; those of the model when it is left out.", 0},
     EX,
     MANY,
     AT(to),
     0,
     0},
    {{"weights", NULL, "Instead of a part, write the weights of the model, named as in its state dict.", 0},
     EX,
     FLAG,
     AT(weights),
     0,
     0},
    {{"all", NULL, "With --weights: also constants, and buffers that are in no state dict.", 0}, EX, FLAG, AT(all), 0, 0},
    {{"output", "FILE",
      "Where to: FILE.pt2 or FILE.onnx; with --weights FILE.safetensors or FILE.npz. Written whole or not at all.",
      'o'},
     EX,
     TEXT,
     AT(output),
     0,
     0},
    {{"output", "FILE",
      "Where to: FILE.onnx or FILE.pt2; of a tensor file FILE.safetensors, FILE.npz or FILE.npy. Written whole or not at all.",
      'o'},
     CO,
     TEXT,
     AT(output),
     0,
     0},
    {{"loss", "OUTPUT", "The output that is differentiated, one number (default: the only output).", 0},
     JO,
     TEXT,
     AT(loss),
     0,
     0},
    {{"grad", "LIST",
      "Also the gradients of these inputs, A,B,C; '*' means all of floats. Those that asked for one when the model was exported have it in any case. May be "
      "given many times.",
      0},
     JO,
     MANY,
     AT(grad),
     0,
     0},
    {{"inputs-only", NULL, "No gradients of parameters.", 0}, JO, FLAG, AT(inputs_only), 0, 0},
    {{"decompose", "HOW",
      "none (default): attention stays one op, and its backward pass computes the probabilities anew. math: it becomes products and a softmax, whose "
      "result the backward pass reads: more memory, less time. core: that, and every other op in core ops of ATen; what has no such form is an error.",
      0},
     JO,
     TEXT,
     AT(decompose),
     0,
     0},
    {{"recompute", "HOW",
      "What the backward pass computes again instead of keeping it; the numbers are the same. none (default): nothing. cheap: norms, activations, softmax and "
      "their kin that follow from what is kept anyway. blocks: all between few cuts, as torch.utils.checkpoint. Prints memory and work with and without.",
      0},
     JO,
     TEXT,
     AT(recompute),
     0,
     0},
    {{"dim", "NAME=N",
      "A size at which --recompute weighs and tells memory; NAME is a symbol of the model (s0), an axis (x.1), or batch, seq, height, width. Others are the file's "
      "examples.",
      'D'},
     JO,
     MANY,
     AT(dim),
     0,
     0},
    {{"output", "FILE", "Where to: FILE.pt2 or FILE.onnx. Written whole or not at all.", 'o'},
     JO,
     TEXT,
     AT(output),
     0,
     0},
    {{"data", "FILE",
      "Examples, a .safetensors or .npz file with the model's inputs by name or position, one example a row.", 0},
     TR,
     TEXT,
     AT(data),
     0,
     0},
    {{"val", "FILE",
      "The same for validation after every epoch. The model's forward part runs on it as it was exported.", 0},
     TR,
     TEXT,
     AT(val),
     0,
     0},
    {{"logits", "OUTPUT",
      "With --labels: the output (.., classes) whose largest element is the prediction, for the accuracy of validation.",
      0},
     TR,
     TEXT,
     AT(logits),
     0,
     0},
    {{"labels", "INPUT", "The input of integers (..) that says what is right; those below 0 are not counted.", 0},
     TR,
     TEXT,
     AT(label_input),
     0,
     0},
    {{"optimizer", "NAME", "adamw (default), adam or sgd, with PyTorch's defaults.", 0}, TR, TEXT, AT(optimizer), 0, 0},
    {{"lr", "X", "Learning rate (default 0.001).", 0}, TR, REAL, AT(lr), 0, 0},
    {{"betas", "A,B", "Of adamw and adam (default 0.9,0.999).", 0}, TR, TEXT, AT(betas), 0, 0},
    {{"eps", "X", "Of adamw and adam (default 1e-8).", 0}, TR, ZERO_ON, AT(eps), 0, 0},
    {{"weight-decay", "X", "adamw: decoupled (default 0.01); adam and sgd: added to the gradient (default 0).", 0},
     TR,
     ZERO_ON,
     AT(weight_decay),
     0,
     0},
    {{"momentum", "X", "Of sgd (default 0).", 0}, TR, ZERO_ON, AT(momentum), 0, 0},
    {{"dampening", "X", "Of sgd's momentum (default 0).", 0}, TR, ZERO_ON, AT(dampening), 0, 0},
    {{"nesterov", NULL, "Nesterov's momentum.", 0}, TR, FLAG, AT(nesterov), 0, 0},
    {{"clip-norm", "X", "Scale gradients so that the norm of all together is at most X.", 0},
     TR,
     ZERO_ON,
     AT(clip_norm),
     0,
     0},
    {{"schedule", "NAME",
      "How the learning rate goes on: constant (default); linear or cosine, down to --lr-end over all steps; step: times --gamma every --step-size steps.",
      0},
     TR,
     TEXT,
     AT(schedule),
     0,
     0},
    {{"warmup", "N", "Steps at first in which the learning rate grows from 1/N of it.", 0},
     TR,
     INTEGER,
     AT(lr_warmup),
     0,
     1000000000},
    {{"lr-end", "X", "Of linear and cosine (default 0).", 0}, TR, ZERO_ON, AT(lr_end), 0, 0},
    {{"step-size", "N", "Of step: steps.", 0}, TR, INTEGER, AT(step_size), 1, INT64_MAX},
    {{"gamma", "X", "Of step (default 0.1).", 0}, TR, REAL, AT(gamma), 0, 0},
    {{"epochs", "N", "How often all examples are seen (default 1).", 0}, TR, INTEGER, AT(epochs), 1, 1000000000},
    {{"batch", "N", "Examples a step (default: what the model fixes, else 32).", 0},
     TR,
     INTEGER,
     AT(batch),
     1,
     1000000000},
    {{"drop-last", NULL, "Leave out the examples behind the last whole batch of an epoch.", 0},
     TR,
     FLAG,
     AT(drop_last),
     0,
     0},
    {{"in-order", NULL,
      "Take examples in their order; otherwise shuffled anew every epoch, as torch.randperm does with a generator of this seed.",
      0},
     TR,
     FLAG,
     AT(in_order),
     0,
     0},
    {{"seed", "N", "Seed of the order, and as torch.manual_seed of dropout and other random ops (default 0).", 0},
     TR,
     INTEGER,
     AT(seed),
     0,
     INT64_MAX},
    {{"save", "FILE",
      "Where the result goes: .safetensors or .npz, weights named as in the state dict; .pt2, the model without gradients.",
      0},
     TR,
     TEXT,
     AT(save),
     0,
     0},
    {{"into", "MODEL",
      "With --save FILE.pt2: the weights go into this model, by name: the one that qkv joint was given, or its export in eval mode.",
      0},
     TR,
     TEXT,
     AT(into),
     0,
     0},
    {{"checkpoint", "FILE",
      "A .safetensors, written after every epoch and when interrupted, from which --resume goes on to the same bits.",
      0},
     TR,
     TEXT,
     AT(checkpoint),
     0,
     0},
    {{"every", "N", "Write the checkpoint every N steps, too.", 0}, TR, INTEGER, AT(every), 1, INT64_MAX},
    {{"resume", "FILE", "Go on from a checkpoint; give the other options as they were.", 0}, TR, TEXT, AT(resume), 0, 0},
    {{"plot", "FILE.svg", "Draw the losses.", 0}, TR, TEXT, AT(plot), 0, 0},
    {{"log", "FILE.jsonl", "Write one JSON object a step and an epoch, as they end.", 0}, TR, TEXT, AT(log), 0, 0},
    {{"output", "FILE.qkv", "Where to. Written whole or not at all.", 'o'}, PA, TEXT, AT(output), 0, 0},
    {{"opset", "N", "ONNX operators of this version, 17 to 25 (default 18).", 0},
     CO | EX | JO,
     INTEGER,
     AT(opset),
     17,
     25},
    {{"profile", "NAME", "For whom: ort (default), spec, openvino or tensorrt.", 0},
     CO | EX | JO,
     TEXT,
     AT(profile),
     0,
     0},
    {{"external-data", NULL, "Weights in a file of their own beside the model, FILE.data; otherwise only above 2 GiB.",
      0},
     CO | EX | JO,
     FLAG,
     AT(external),
     0,
     0},
    {{"weights", "FILE",
      "Give the model the weights of a tensor file, by their names in the state dict, such as qkv train saves.", 0},
     CO,
     TEXT,
     AT(weight_file),
     0,
     0},
    {{"rewrite", NULL, "First turn every spelling of attention and of norms into one op, as qkv rewrite does.", 0},
     CO,
     FLAG,
     AT(rewrite),
     0,
     0},
    {{"strict", NULL,
      "A warning about the profile's runtime is an error (exit code 1); the file is written all the same.", 0},
     CO,
     FLAG,
     AT(strict),
     0,
     0},
    {{"lift-sdpa", NULL,
      "Afterwards, give every attention the form for which PyTorch has a better kernel on --device (see qkv backends): 4 axes, masks of 4 axes, head sizes padded "
      "with the scale kept, operands contiguous.",
      0},
     RW,
     FLAG,
     AT(lift_sdpa),
     0,
     0},
    {{"prove", NULL, "Evaluate every replacement against what it replaces before it is made.", 0},
     RW,
     FLAG,
     AT(prove),
     0,
     0},
    {{"seeds", "N", "Random inputs per proof and size (default 3).", 0}, RW, INTEGER, AT(seeds), 1, 1000},
    {{"counterexample", "FILE", "Where a failed proof writes its tensors (default counterexample.safetensors).", 0},
     RW,
     TEXT,
     AT(counterexample),
     0,
     0},
    {{"why-not", NULL, "Print only what is left: the furthest partial match, what stopped it, and what to change.", 0},
     RW,
     FLAG,
     AT(why_not),
     0,
     0},
    {{"require-fused", NULL, "An attention that is left is an error (exit code 1).", 0},
     RW,
     FLAG,
     AT(require_fused),
     0,
     0},
    {{"exact-masked-rows", NULL,
      "Leave an attention whose rows without an allowed key would not keep the model's answer: its NaN would become 0, or its average of "
      "the values another one.",
      0},
     RW,
     FLAG,
     AT(exact_masked_rows),
     0,
     0},
    {{"rules", "FILE", "Further rules; one with the name of a built-in rule takes its place. May be given many times.",
      0},
     RW,
     MANY,
     AT(rules),
     0,
     0},
    {{"no-builtin-rules", NULL, "Only the rules of --rules.", 0}, RW, FLAG, AT(no_builtin), 0, 0},
    {{"phases", "LIST", "Some of recompose,convert,fuse (default: all).", 0}, RW, TEXT, AT(phases), 0, 0},
    {{"output", "FILE",
      "Write the model with variable sizes, a .pt2 that torch.export.load reads, whole or not at all.", 'o'},
     GE,
     TEXT,
     AT(output),
     0,
     0},
    {{"dim", "NAME=AXES",
      "A name for one size, and the axes that have it: batch=x.0,mask.0. An input that is a number is an axis by its name.",
      'D'},
     GE,
     MANY,
     AT(dim),
     0,
     0},
    {{"apart", NULL,
      "Do not take axes for one size because they are equal in every file; only what the graph requires is tied.", 0},
     GE,
     FLAG,
     AT(apart),
     0,
     0},
    {{"dynamic", "AXIS",
      "This axis (x.0) must come out variable; without the option an axis that is equal in every file stays fixed.", 0},
     GE,
     MANY,
     AT(dynamic),
     0,
     0},
    {{"check", "FILE", "One more static export, which the result must agree with at its sizes.", 0},
     GE,
     MANY,
     AT(check),
     0,
     0},
    {{"expected", "FILE", "Expected outputs, a .safetensors or .npz file with output_0, output_1, ... (or 0, 1, ...).",
      'e'},
     VE,
     TEXT,
     AT(expected),
     0,
     0},
    {{"atol", "[OUTPUT:]X",
      "Absolute tolerance, for all outputs or for one. Default: a share of the largest expected value, by dtype: "
      "f32 2e-5, f64 1e-12, f16 4e-3, bf16 3e-2, others 0.",
      0},
     VE,
     MANY,
     AT(atol),
     0,
     0},
    {{"rtol", "[OUTPUT:]X", "Tolerance relative to each expected value, added to --atol (default 0).", 0},
     VE,
     MANY,
     AT(rtol),
     0,
     0},
    {{"per-node", "TRACE",
      "Compare every node with TRACE, a .safetensors file of values by node name, and report the first that differs. "
      "The default tolerance of a node is ten times that of an output.",
      0},
     VE,
     TEXT,
     AT(trace),
     0,
     0},
    {{"vocab", "FILE", "BERT's vocab.txt, one token a line.", 0}, EM, TEXT, AT(vocab), 0, 0},
    {{"cased", NULL, "Keep case and accents.", 0}, EM, FLAG, AT(cased), 0, 0},
    {{"pool", "HOW", "mean: over the tokens of the sentence (default); cls: the first token.", 0},
     EM,
     TEXT,
     AT(pool),
     0,
     0},
    {{"max-tokens", "N", "Cut sentences to N tokens (default: what the model allows, at most 512).", 0},
     EM,
     INTEGER,
     AT(max_tokens),
     2,
     1 << 20},
    {{"labels", "FILE", "Names of the classes, one a line.", 0}, CL, TEXT, AT(labels), 0, 0},
    {{"top", "N", "Print the N most likely classes (default 1).", 0}, CL, INTEGER, AT(top), 1, 1000},
    {{"image", "FILE", "The picture, PNG or JPEG.", 0}, SE, MANY, AT(image), 0, 0},
    {{"images", "DIR",
      "All PNG and JPEG pictures of a folder, with --out. Goes on after one that cannot be read, lists those in the end and gives exit code 1; pictures "
      "that an earlier run with the same model, texts and settings has done are not done again.",
      0},
     SE,
     TEXT,
     AT(images),
     0,
     0},
    {{"text", "TEXT", "What to look for; may be given many times.", 0}, SE, MANY, AT(text), 0, 0},
    {{"output", "FILE.png", "Write the picture with masks, boxes, scores and a legend.", 'o'},
     SE,
     TEXT,
     AT(output),
     0,
     0},
    {{"out", "DIR", "Where the results of --images go: NAME.overlay.png and NAME.json per picture, coco.json of all.",
      0},
     SE,
     TEXT,
     AT(out),
     0,
     0},
    {{"masks", "DIR", "Write every instance's mask as a PNG, PICTURE-NUMBER-TEXT.png.", 0}, SE, TEXT, AT(masks), 0, 0},
    {{"coco", "FILE.json", "Write instances in COCO's format, masks as compressed run lengths.", 0},
     SE,
     TEXT,
     AT(coco),
     0,
     0},
    {{"threshold", "X", "Keep instances that score above X (default: the model's processor's).", 0},
     SE,
     REAL,
     AT(threshold),
     0,
     0},
    {{"tile", "N",
      "Cut pictures that are larger into tiles of N x N pixels, which the model sees one by one; instances in several are joined.",
      0},
     SE,
     INTEGER,
     AT(tile),
     16,
     1 << 14},
    {{"overlap", "N", "Pixels that neighbouring tiles share at least (default: a fifth of the tile).", 0},
     SE,
     INTEGER,
     AT(overlap),
     1,
     1 << 13},
    {{"batch", "N",
      "Pictures of a folder, or tiles, that the model sees at once (default: as many as need at most 1 GiB of activations, up to 16; what the model fixes, "
      "where it does).",
      0},
     SE,
     INTEGER,
     AT(batch),
     1,
     1024},
    {{"tokenizer", "FILE", "CLIP's merges as text, when the model file does not hold them.", 0},
     SE,
     TEXT,
     AT(tokenizer),
     0,
     0},
    {{"processor", "FILE",
      "The processor as JSON, when the model file does not hold it; at least {\"contract\": \"meta\"} or \"hf\".", 0},
     SE,
     TEXT,
     AT(processor),
     0,
     0},
    {{"iterations", "N", "Timed runs (default 20).", 0}, BE, INTEGER, AT(iterations), 1, 10000000},
    {{"warmup", "N", "Runs before timing starts (default 3); the first one plans, the second packs weights.", 0},
     BE,
     INTEGER,
     AT(warmup),
     1,
     10000000},
    {{"keep", "INPUT",
      "Time runs in which this input stays as it was, so that what depends on it alone is not computed again: a second text for the same picture. May be "
      "given many times.",
      0},
     BE,
     MANY,
     AT(keep),
     0,
     0},
    {{"per-op", NULL,
      "Also print where the time of these runs goes, op by op, and what else a run does; with -v node by node. With GFLOP/s and GB/s from the sizes "
      "and their shares of what this machine does just now: multiply-adds on registers, and reading memory, timed before and after.",
      0},
     BE,
     FLAG,
     AT(per_op),
     0,
     0},
    {{"trace", "FILE.json",
      "Write when every step began and how long it took, in the Trace Event Format, which https://ui.perfetto.dev opens.",
      0},
     RU | BE,
     TEXT,
     AT(trace_to),
     0,
     0},
    {{"dtype", "f32|bf16",
      "bf16: matrix products, convolutions and attention of bfloat16 numbers, summed in float32; outputs keep their dtypes. f32 (default): as the file says.",
      0},
     RUNS | PA | GR,
     TEXT,
     AT(dtype),
     0,
     0},
    {{"skip-padding", NULL,
      "Where a key padding mask marks tokens, run the network on the real ones only: real positions of outputs stay, padded ones are 0. Says what "
      "it found, and where it stops.",
      0},
     RUNS | RW | GR | PA,
     FLAG,
     AT(skip_padding),
     0,
     0},
    {{"threads", "N",
      "Threads (default: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs that this process may use).", 0},
     RUNS | TR,
     INTEGER,
     AT(threads),
     1,
     4096},
    {{"no-optimize", NULL,
      "Run the nodes of the file as they are; otherwise attention, norms and activations in any spelling are first made one op, as qkv rewrite "
      "--exact-masked-rows does.",
      0},
     RUNS | TR,
     FLAG,
     AT(no_optimize),
     0,
     0},
    {{"passes", "LIST",
      "Passes that the graph goes through, of import,detach,rewrite,padding,precision,fold,fuse; all others are left out. Sessions run import, "
      "detach, rewrite, precision and fuse.",
      0},
     RUNS | GR,
     TEXT,
     AT(passes),
     0,
     0},
    {{"after", "PASS", "Print the graph as it is after PASS of those of --passes and all that come before it.", 0},
     GR,
     TEXT,
     AT(after),
     0,
     0},
    {{"as-run", NULL, "Print the graph that a session runs: after all of them.", 0}, GR, FLAG, AT(as_run), 0, 0},
    {{"bisect", NULL,
      "Run the model with more and more passes, from the file's nodes on, and name the first pass after which an output differs.",
      0},
     VE,
     FLAG,
     AT(bisect),
     0,
     0},
    {{"memory-limit", "SIZE",
      "Most bytes of activations and scratch; suffixes K, M, G. A run that needs more ends with exit code 5.", 0},
     RUNS | TR,
     BYTES,
     AT(memory_limit),
     1,
     INT64_MAX},
    {{"target", "LIST", "Also what some of qkv,ort,openvino,tensorrt do not have or refuse.", 0},
     CH,
     TEXT,
     AT(targets),
     0,
     0},
    {{"security", NULL,
      "Also the container itself: pickles and what they would import, code, names that leave the folder, entries that are there twice, overlap, or "
      "are bombs.",
      0},
     CH,
     FLAG,
     AT(security),
     0,
     0},
    {{"full", NULL, "Also the checksums of the weights.", 0}, CH, FLAG, AT(full), 0, 0},
    {{"strict", NULL, "Exit code 1 for warnings, too.", 0}, CH, FLAG, AT(strict), 0, 0},
    {{"explain", "ID",
      "Say what a finding means and what to do, such as Q501; 'all' lists every one. No model is read.", 0},
     CH,
     TEXT,
     AT(explain),
     0,
     0},
    {{"json", NULL, "Print one JSON object, whose \"schema\" counts its versions.", 0},
     IN | RUNS | RW | GE | CH | CO | JO | TR | PA | BA,
     FLAG,
     AT(json),
     0,
     0},
    {{"man", NULL, "Print the man page's source.", 0}, HE, FLAG, AT(man), 0, 0},
    {{"verbose", NULL, "Say more on standard error.", 'v'}, ALL, COUNT, AT(verbose), 0, 0},
    {{"quiet", NULL, "Say nothing on standard error but errors.", 'q'}, ALL, FLAG, AT(quiet), 0, 0},
    {{"help", NULL, "Print the help of the command.", 'h'}, ALL, FLAG, AT(help), 0, 0},
};
#undef AT
enum { NOPTIONS = sizeof table / sizeof *table };

bool option_text(CommandId command, int i, OptionText *out)
{
    for (int k = 0; k < NOPTIONS; k++) {
        if (!(table[k].commands & 1 << command) || i--) continue;
        *out = table[k].text;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ nearest name */

static int min2(int a, int b) { return a < b ? a : b; }

/* Edits between two words; swapping neighbours is one. */
static int distance(const char *a, const char *b)
{
    enum { N = 40 };
    int d[N + 1][N + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > N || m > N) return N;
    for (int i = 0; i <= n; i++)
        for (int k = 0; k <= m; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = min2(min2(d[i - 1][k], d[i][k - 1]) + 1, d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = min2(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[n][m];
}

const char *nearest(const char *given, const char *const *names, int n)
{
    const char *best = NULL;
    int best_distance = 1 + (int)strlen(given) / 3;
    for (int i = 0; i < n; i++) {
        bool begins = strlen(given) >= 2 && !strncmp(given, names[i], strlen(given));
        int d = begins ? 1 : distance(given, names[i]);
        if (d > best_distance || (best && d == best_distance)) continue;
        best = names[i];
        best_distance = d;
    }
    return best;
}

/* ------------------------------------------------------------------ parsing */

static int bad_value(const Option *op, const char *value, const char *expected)
{
    return problem(QKV_USAGE, "option '--%s': found '%s', expected %s", op->text.name, value, expected);
}

static int parse_integer(const Option *op, const char *value, int64_t *out)
{
    char *end, expected[96];
    errno = 0;
    long long v = strtoll(value, &end, 10);
    int shift = 0;
    if (op->kind == BYTES && *end && end != value && !end[1]) {
        static const char suffix[] = "KMG";
        const char *s = strchr(suffix, *end & ~0x20);
        shift = s ? 10 * (1 + (int)(s - suffix)) : 0;
        end += shift > 0;
    }
    if (end != value && !*end && !errno && v >= op->min && v <= op->max >> shift) {
        *out = v << shift;
        return 0;
    }
    if (op->kind == BYTES) return bad_value(op, value, "a number of bytes such as 64M");
    if (op->max == INT64_MAX) snprintf(expected, sizeof expected, "an integer, at least %lld", (long long)op->min);
    else snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)op->min, (long long)op->max);
    return bad_value(op, value, expected);
}

static int take(Options *o, const Option *op, const char *value)
{
    void *at = (char *)o + op->at;
    switch (op->kind) {
    case FLAG: *(bool *)at = true; return 0;
    case COUNT: ++*(int *)at; return 0;
    case TEXT: *(const char **)at = value; return 0;
    case MANY: {
        List *l = at;
        l->item = must(realloc(l->item, ((size_t)l->n + 1) * sizeof *l->item));
        l->item[l->n++] = value;
        return 0;
    }
    case REAL:
    case ZERO_ON: {
        char *end;
        double v = strtod(value, &end);
        if (end == value || *end || !isfinite(v) || v < 0 || (v == 0 && op->kind == REAL))
            return bad_value(op, value, op->kind == REAL ? "a number above 0" : "a number from 0 on");
        *(double *)at = v;
        return 0;
    }
    case INTEGER:
    case BYTES: break;
    }
    if (at == (void *)&o->seed) o->seeded = true;
    return parse_integer(op, value, at);
}

static int unknown_option(CommandId command, const char *given)
{
    const char *names[NOPTIONS];
    int n = 0;
    for (int k = 0; k < NOPTIONS; k++)
        if (table[k].commands & 1 << command) names[n++] = table[k].text.name;
    const char *close = nearest(given, names, n);
    if (close)
        return problem(QKV_USAGE, "qkv %s has no option '--%s'; did you mean '--%s'?", commands[command].name, given,
                       close);
    return problem(QKV_USAGE, "qkv %s has no option '--%s'; 'qkv help %s' lists them", commands[command].name, given,
                   commands[command].name);
}

/* "--name", "--name=value", "--name value". */
static int long_option(CommandId command, char **argv, int argc, int *i, Options *o)
{
    const char *name = argv[*i] + 2, *eq = strchr(name, '=');
    size_t n = eq ? (size_t)(eq - name) : strlen(name);
    for (int k = 0; k < NOPTIONS; k++) {
        const Option *op = &table[k];
        if (!(op->commands & 1 << command) || strlen(op->text.name) != n || strncmp(op->text.name, name, n)) continue;
        if (!op->text.arg && eq) return problem(QKV_USAGE, "option '--%s' takes no value", op->text.name);
        if (op->text.arg && !eq && *i + 1 >= argc)
            return problem(QKV_USAGE, "option '--%s' needs a value: %s", op->text.name, op->text.arg);
        return take(o, op, !op->text.arg ? NULL : eq ? eq + 1 : argv[++*i]);
    }
    char given[64];
    snprintf(given, sizeof given, "%.*s", (int)n, name);
    return unknown_option(command, given);
}

/* "-x", "-xy" for flags, "-xvalue", "-x value". */
static int short_options(CommandId command, char **argv, int argc, int *i, Options *o)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const Option *op = NULL;
        for (int k = 0; k < NOPTIONS && !op; k++)
            if (table[k].text.letter == *p && table[k].commands & 1 << command) op = &table[k];
        if (!op)
            return problem(QKV_USAGE, "qkv %s has no option '-%c'; 'qkv help %s' lists them", commands[command].name,
                           *p, commands[command].name);
        if (!op->text.arg) {
            take(o, op, NULL);
            continue;
        }
        if (!p[1] && *i + 1 >= argc) return problem(QKV_USAGE, "option '-%c' needs a value: %s", *p, op->text.arg);
        return take(o, op, p[1] ? p + 1 : argv[++*i]);
    }
    return 0;
}

int options_parse(CommandId command, int argc, char **argv, Options *o)
{
    const Command *c = &commands[command];
    *o = (Options){.seed = 1,
                   .iterations = 20,
                   .warmup = 3,
                   .top = 1,
                   .scale = 1,
                   .epochs = 1,
                   .lr = -1,
                   .eps = -1,
                   .weight_decay = -1,
                   .momentum = -1,
                   .dampening = -1,
                   .clip_norm = -1,
                   .gamma = -1,
                   .lr_end = -1};
    o->arg = must(calloc((size_t)argc + 1, sizeof *o->arg));
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        int code = 0;
        if (!ended && !strcmp(argv[i], "--")) ended = true;
        else if (!ended && !strncmp(argv[i], "--", 2)) code = long_option(command, argv, argc, &i, o);
        else if (!ended && argv[i][0] == '-' && argv[i][1]) code = short_options(command, argv, argc, &i, o);
        else o->arg[o->narg++] = argv[i];
        if (code) return code;
    }
    if (o->help) return 0;
    if (o->narg < c->min_args)
        return problem(QKV_USAGE, "an argument is missing: qkv %s %s; 'qkv help %s' says more", c->name, c->args,
                       c->name);
    if (c->max_args >= 0 && o->narg > c->max_args)
        return problem(QKV_USAGE, "'%s' is one argument too many: qkv %s %s", o->arg[c->max_args], c->name, c->args);
    return 0;
}

void options_free(Options *o)
{
    List *lists[] = {&o->text,  &o->from,  &o->to,   &o->grad, &o->fix,   &o->keep,    &o->dim,
                     &o->shape, &o->image, &o->atol, &o->rtol, &o->rules, &o->dynamic, &o->check};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->item);
    free(o->arg);
}

void words_of(const List *l, Words *out)
{
    size_t bytes = 1, words = 1;
    *out = (Words){0};
    for (int i = 0; i < l->n; i++) {
        bytes += strlen(l->item[i]) + 1;
        for (const char *s = l->item[i]; s; s = strchr(s + 1, ',')) words++;
    }
    out->text = must(calloc(bytes, 1));
    out->name = must(calloc(words, sizeof *out->name));
    char *at = out->text;
    for (int i = 0; i < l->n; i++) {
        strcpy(at, l->item[i]);
        char *rest = at, *word;
        at += strlen(at) + 1;
        while ((word = strsep(&rest, ",")))
            if (*word) out->name[out->n++] = word;
    }
}

void words_free(Words *n)
{
    free(n->text);
    free(n->name);
}

bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n > k && !strcmp(path + n - k, end);
}
