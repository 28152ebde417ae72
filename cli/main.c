/* The command qkv: the table of commands, signals, and exit codes (0 ok, 1 mismatch, 2 usage, 3 unreadable, 4 unsupported, 5 limit,
 * 70 internal, 130 and 143 interrupted).
 *
 *     qkv inspect vit.pt2
 *     qkv run vit.pt2 -i in.npz -o out.npz
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli.h"

const Command commands[COMMANDS] = {
    [C_INSPECT] =
        {"inspect", "MODEL", "Say what a model file holds",
         "Prints inputs, outputs, variable sizes with their ranges, number and bytes of the weights, where the attentions are, the ops by count, "
         "and the conditions that sizes must meet. Nothing in the file is executed.",
         "qkv inspect vit.pt2\tfor people\n"
         "qkv inspect vit.pt2 --json | jq .inputs\tfor programs",
         1, 1, cmd_inspect},
    [C_RUN] =
        {"run", "MODEL", "Run a model and write its outputs",
         "Runs the model once, prints a summary of each output and, with -o, writes them as output_0, output_1, ... in flattened order.\n\n"
         "Inputs come from a file (-i), from pictures (--image), or are random: floats close to normally distributed, integers that are valid indices, "
         "masks that keep the first element of each row.",
         "qkv run bert.pt2 -i in.safetensors -o out.safetensors\tinputs by name or position\n"
         "qkv run vit.pt2 --image cat.png --mean 0.5 --std 0.5 -o out.npz\ta picture\n"
         "qkv run bert.pt2 -D batch=2 -D seq=128 --seed 1\trandom inputs of a chosen size",
         1, 1, cmd_run},
    [C_VERIFY] =
        {"verify", "MODEL [OTHER]", "Compare a model's outputs with expected ones or with another model's",
         "Prints for each output the largest absolute and relative difference, the largest difference as a share of the largest expected value, the "
         "cosine, and where and what the largest difference is. The exit code is 1 when an output differs.\n\n"
         "An element differs when |got - expected| > atol + rtol * |expected|, or when only one of the two is NaN or the same infinity. OTHER is a second "
         "model file that gets the same inputs; its outputs are the expected ones. With --dtype bf16 only MODEL runs in bfloat16.\n\n"
         "With --per-node every node of the file is run by itself and compared with TRACE, which the Python package writes; the first node that "
         "differs is reported, and how many agreed before it. With --bisect the passes that qkv makes over a graph are added one by one, and the "
         "first after which an output differs is named.",
         "qkv verify vit.pt2 -i in.safetensors -e out.safetensors\tagainst PyTorch's outputs\n"
         "qkv verify vit.pt2 vit.pt2 --dtype bf16 --atol 0.05\twhat bfloat16 costs\n"
         "qkv verify vit.pt2 -i in.safetensors --per-node trace.safetensors\twhere it goes wrong\n"
         "qkv verify vit.pt2 -i in.safetensors -e out.safetensors --bisect\twhich pass goes wrong",
         1, 2, cmd_verify},
    [C_BENCH] =
        {"bench", "MODEL", "Measure how long one run takes",
         "Warms up, then times single runs: minimum, median, 95th percentile and mean in milliseconds; load time, the first run's time, and the largest "
         "resident memory of the process. Inputs are chosen as for qkv run.",
         "qkv bench vit.pt2 --threads 1 --iterations 50\tone thread\n"
         "qkv bench bert.pt2 -D batch=8 -D seq=128 --dtype bf16 --json\tfor programs\n"
         "qkv bench vit.pt2 --per-op\twhere the time goes",
         1, 1, cmd_bench},
    [C_EMBED] =
        {"embed", "MODEL --vocab FILE SENTENCE...", "Embed sentences and print how similar they are",
         "Splits the sentences into WordPiece tokens, runs the model on a padded batch with its attention mask, averages each sentence's tokens, scales "
         "to length 1 and prints the cosine of every pair. The model's inputs are input_ids, and where it has them attention_mask, token_type_ids and "
         "position_ids; its first output (batch, tokens, E) is pooled, or (batch, E) taken as it is.",
         "qkv embed minilm.pt2 --vocab vocab.txt \"A cat sits.\" \"A kitten rests.\" \"Rain falls.\"\ta similarity matrix\n"
         "qkv embed minilm.pt2 --vocab vocab.txt -o e.npz \"A cat sits.\"\tthe embedding itself",
         2, -1, cmd_embed},
    [C_CLASSIFY] =
        {"classify", "MODEL PICTURE...", "Say what is in pictures",
         "Reads PNG or JPEG pictures at the size and with the channels of the model's input, runs the model, and prints the most likely class, its "
         "probability (softmax of the first output) and the milliseconds of the run.",
         "qkv classify digits.pt2 --labels digits.txt 7.png 3.png\tone line a picture\n"
         "qkv classify vit.pt2 --mean 0.5 --std 0.5 --top 5 cat.jpg\tthe five most likely classes",
         2, -1, cmd_classify},
    [C_SEGMENT] =
        {"segment", "MODEL --image FILE --text TEXT", "Find every instance of a text in a picture",
         "Runs a grounding model that python -m qkv.recipes.sam3 has written (SAM 3) on a picture and on all texts at once, prints text, score, box and number of pixels of "
         "every instance, and writes masks, an overlay and COCO's JSON where asked. --json prints the same JSON.\n\n"
         "Texts are split by CLIP's tokenizer, pictures resized and normalised, and boxes and masks brought back to the picture's size as by the model's own processor: "
         "\"meta\" (facebookresearch/sam3) or \"hf\" (transformers). Tokenizer and processor lie in the model file; --tokenizer and --processor give them for one "
         "without.",
         "qkv segment sam3.pt2 --image street.jpg --text \"red car\" --text person -o overlay.png\ttwo phrases\n"
         "qkv segment sam3.pt2 --image street.jpg --text person --masks masks --coco street.json\tmasks as files\n"
         "qkv segment sam3.pt2 --images photos --text person --out found\ta folder; again to resume\n"
         "qkv segment sam3.pt2 --image map.png --text house --tile 1008\ta large picture",
         1, 1, cmd_segment},
    [C_REWRITE] =
        {"rewrite", "MODEL", "Turn every spelling of attention into one op, and prove it",
         "Finds the attentions of the model, however they are written, and replaces each by scaled_dot_product_attention with its mask, scale, softcap and grouped "
         "heads; other compounds (softmax by hand, normalisations, activations) become their op, too. Prints what fired, and for every softmax(QK)V that "
         "stays as it is the node where recognition stopped and why.\n\n"
         "With --prove each replacement is first evaluated against what it replaces, on random tensors, for several sizes and seeds, with rows of the mask that "
         "allow no key among them; one that differs ends the command with exit code 1 and its tensors in a file.",
         "qkv rewrite bert.pt2 -o fused.pt2 --prove\tread, rewrite, prove, write\n"
         "qkv rewrite bert.pt2 --why-not\twhat is left, and why\n"
         "qkv rewrite vit.pt2 --lift-sdpa --device cuda-sm90 --prove -o fast.pt2\tattention for PyTorch's kernels on an H100\n"
         "qkv rewrite bert.pt2 --require-fused -q\tin a build: exit code 1 when an attention is left",
         1, 1, cmd_rewrite},
    [C_GRAPH] =
        {"graph", "MODEL", "Print the graph as text",
         "Prints the graph as it is after import: pure ops in order, every value with dtype and sizes, and the conditions on sizes. With --after, "
         "--passes or --as-run it goes through passes first.",
         "qkv graph vit.pt2 | less\tall nodes\n"
         "qkv graph vit.pt2 --after rewrite\twhat the rules make of it\n"
         "qkv graph vit.pt2 --as-run --dtype bf16\twhat a session runs",
         1, 1, cmd_graph},
    [C_GENERALIZE] =
        {"generalize", "MODEL MODEL...", "Make one model with variable sizes from static exports at several sizes",
         "Compares torch.export files of one model, exported without dynamic_shapes at two or more sizes. Input sizes that differ become variable; every number "
         "and every constant tensor that differs is solved as an expression of them, by shape inference first. The result runs at the sizes of every "
         "file, where it must give the same numbers, and at sizes of none. What cannot be solved is listed by node, and the exit code is 1.\n\n"
         "Choose sizes of 2 or more that have nothing in common: 2x44x52 and 3x60x70 rather than 1x224x224 and 2x448x448, where a height cannot be told from "
         "a width, nor half of one from a quarter of the other. A third file settles what two leave open; the column \"fits as well\" says where that is.",
         "qkv generalize a.pt2 b.pt2 -o dyn.pt2\tbatch and length, whatever differs\n"
         "qkv generalize a.pt2 b.pt2 --check c.pt2 -D batch=x.0,mask.0\tnames; a third export to check against\n"
         "qkv generalize a.pt2 b.pt2 c.pt2 --json\tall three are used to solve",
         2, -1, cmd_generalize},
    [C_CHECK] =
        {"check", "MODEL", "Look for errors and traps in a model file, without running it",
         "Checks a .pt2 or ONNX file independently of what loads it: schema, names, order, types and sizes by symbolic inference, weights (NaN, infinities, copies, unused), "
         "constants that were probably meant to vary, masks whose rows become NaN in some runtime. Every finding has an id, a severity, a place and a remedy, and all are "
         "listed.\n\n"
         "The exit code is 0 without errors, 1 with errors (--strict: or warnings), 3 when the file cannot be read at all.",
         "qkv check bert.pt2\tall findings\n"
         "qkv check bert.onnx --target ort,openvino --strict -q\tin a build\n"
         "qkv check stranger.pt2 --security --full\tbefore a file from elsewhere is used\n"
         "qkv check --explain Q501\twhat a finding means",
         0, 1, cmd_check},
    [C_CONVERT] =
        {"convert", "MODEL -o FILE", "Write a model in another format: ONNX, or .pt2",
         "Writes ONNX when FILE ends in .onnx, else a .pt2 that torch.export.load reads. A tensor file (.safetensors, .npz, .npy) becomes another one. Inputs keep their names, outputs are output_0, output_1, ..., weights have "
         "their names in the state dict, variable sizes stay variable.\n\n"
         "The profile says for whom an ONNX file is: ort (ONNX Runtime), openvino, tensorrt, or spec (the standard: from opset 23 on with the op Attention). Ops that "
         "ONNX cannot say are listed, all of them, and the exit code is 4. With tensorrt, what keeps TensorRT from fusing an attention is a warning; "
         "--strict makes it exit code 1.",
         "qkv convert bert.pt2 -o bert.onnx\tfor ONNX Runtime\n"
         "qkv convert vit.pt2 -o vit.onnx --profile tensorrt --strict --rewrite\tattention in the form that TensorRT fuses\n"
         "qkv convert bert.pt2 -o bert.onnx --profile spec --opset 23\twith the op Attention",
         1, 1, cmd_convert},
    [C_EXTRACT] =
        {"extract", "MODEL -o FILE", "Cut a part of a model into its own file, or write its weights",
         "Writes what lies between the values of --from and those of --to: they are the part's inputs and outputs and keep their names; sizes stay variable, and "
         "weights, buffers and conditions on sizes come along as far as they matter. The file is a .pt2, or ONNX when its name ends in .onnx. A result that needs an "
         "input which --from does not give is an error that names it.\n\n"
         "With --weights, the model's parameters and buffers are written as a tensor file, named as in its state dict.",
         "qkv extract bert.pt2 --to layer_norm_4 -o begin.pt2\tfrom the inputs on\n"
         "qkv extract bert.pt2 --from layer_norm_4,mask --to layer_norm_6 -o block.onnx\tone block, as ONNX\n"
         "qkv extract bert.pt2 --weights -o bert.safetensors\tthe state dict",
         1, 1, cmd_extract},
    [C_JOINT] =
        {"joint", "MODEL --loss OUTPUT -o FILE",
         "Write a model with the gradients of its loss: forward and backward in one graph",
         "Differentiates the graph from the output that --loss names, one number, back to every parameter that asks for a gradient, and writes both as one model: the "
         "model's outputs, then grad.NAME for each parameter in the order of the state dict, then for inputs. The file is a .pt2 whose signature says which gradient "
         "belongs to which parameter, and torch.export.load reads it; or ONNX when its name ends in .onnx. qkv run computes loss and gradients.\n\n"
         "Only what lies between the loss and a wanted gradient is differentiated. An op without a gradient is an error (exit code 4) that names it and its path to "
         "the loss.",
         "qkv joint classifier.pt2 --loss output_0 -o joint.pt2\tgradients of all parameters\n"
         "qkv joint classifier.pt2 --loss output_0 --grad x -o joint.pt2\tof the input x, too\n"
         "qkv run joint.pt2 -i batch.npz -o step.npz\tloss and gradients",
         1, 1, cmd_joint},
    [C_TRAIN] =
        {"train", "JOINT --data FILE", "Train the parameters of a joint graph, without Python",
         "Runs a joint graph (qkv joint) on batches of the data, and after each an optimizer on the parameters that have gradients. Optimizers, schedules, clipping and the order "
         "of examples are PyTorch's: the same seed gives the same batches. Frozen parameters stay, buffers that the model writes go on from step to step.\n\n"
         "A checkpoint holds all that the rest of the run depends on, so that --resume gives the bits of a run that was never stopped. Ctrl-C ends the step, writes the checkpoint "
         "and gives exit code 130. A loss or gradient that is NaN or infinite ends the run with exit code 1 and names the step and the node that made the first such number; the "
         "checkpoint is of the moment before.",
         "qkv train joint.pt2 --data train.npz --epochs 10 --save tuned.safetensors\tAdamW, batches of 32\n"
         "qkv train joint.pt2 --data train.npz --val test.npz --logits output_1 --labels target --save tuned.pt2\twith the accuracy\n"
         "qkv train joint.pt2 --data train.npz --epochs 10 --checkpoint run.safetensors --resume run.safetensors\tgoes on",
         1, 1, cmd_train},
    [C_PACK] =
        {"pack", "MODEL -o FILE.qkv", "Write a model as this machine runs it, in a file that opens at once",
         "Writes the model after the rules (as --no-optimize leaves them out), with everything computed that depends on weights alone, and with weights as this CPU's matrix "
         "products take them. The file is mapped, not read: run, bench, verify, embed, classify and the library open it like any model, and no run packs "
         "anything. It is for this kind of CPU; where packed weights do not fit, opening it is refused with exit code 4, and the model must be packed again there.\n\n"
         "The model runs once, with random inputs of the smallest sizes.",
         "qkv pack bert.pt2 -o bert.qkv\tfor this machine\n"
         "qkv pack bert.pt2 -o bert.qkv --dtype bf16\tweights and products in bfloat16\n"
         "qkv run bert.qkv -D batch=2\tlike any model",
         1, 1, cmd_pack},
    [C_BACKENDS] =
        {"backends", "MODEL", "Say which kernel PyTorch takes for each attention, and why",
         "Lists every scaled_dot_product_attention as the file has it: its module, sizes and mask, and which kernel PyTorch 2.13 takes for it on a device: flash, efficient, "
         "cudnn, or math, which computes and keeps all scores. Where sizes that vary decide, the kernel is a list of cases. Below stands which rule keeps an attention "
         "from a better kernel, and what to change; qkv rewrite --lift-sdpa does it where the numbers stay.\n\n"
         "The table for the CPU is tested against PyTorch's own choice, those for CUDA are read from its source (docs/BACKENDS.md).",
         "qkv backends vit.pt2\ton the CPU, for all sizes\n"
         "qkv backends vit.pt2 --device cuda-sm90 -D batch=8\ton an H100\n"
         "qkv backends gpt.pt2 --train --json\twith gradients, for programs",
         1, 1, cmd_backends},
    [C_HELP] = {"help", "[COMMAND]", "Print help", "Prints the help of a command, or the list of commands.",
                "qkv help run\tthe help of qkv run\nqkv help run --man | man -l -\tas a man page", 0, 1, cmd_help},
};

int command_find(const char *name)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (!strcmp(name, names[i])) return i;
    }
    const char *close = nearest(name, names, COMMANDS);
    if (close) problem(QKV_USAGE, "no command is called '%s'; did you mean '%s'?", name, close);
    else problem(QKV_USAGE, "no command is called '%s'; 'qkv help' lists them", name);
    return -1;
}

/* ------------------------------------------------------------------ signals */

/* Half-written files go; then the code that a shell gives a program that the signal killed. */
static void on_end(int signal)
{
    qkv_interrupted();
    _exit(128 + signal);
}

static void on_bug(int signal)
{
    static const char text[] = "qkv: internal error; please report it with the command and the model\n";
    (void)signal;
    qkv_interrupted();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_INTERNAL);
    _exit(EXIT_INTERNAL);
}

/* A mapped file that shrinks while it is read ends in SIGBUS. */
static void on_shrunk_file(int signal)
{
    static const char text[] = "qkv: error: a file changed while it was being read\n";
    (void)signal;
    qkv_interrupted();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(QKV_UNREADABLE);
    _exit(QKV_UNREADABLE);
}

static void handle(int number, void (*f)(int))
{
    struct sigaction a = {.sa_handler = f};
    sigemptyset(&a.sa_mask);
    sigaction(number, &a, NULL);
}

static void set_signals(void)
{
    handle(SIGINT, on_end);
    handle(SIGTERM, on_end);
    handle(SIGHUP, on_end);
    handle(SIGPIPE, SIG_DFL); /* `qkv ... | head` ends quietly */
    handle(SIGABRT, on_bug);
    handle(SIGBUS, on_shrunk_file);
#if !defined(__SANITIZE_ADDRESS__)
    handle(SIGSEGV, on_bug);
#endif
}

/* ------------------------------------------------------------------ main */

static int run(int argc, char **argv)
{
    Options o;
    const char *name = argc > 1 ? argv[1] : "";
    term_init(0, false);
    if (!*name) {
        print_help(-1);
        return QKV_USAGE;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("qkv %s (%s)\n", qkv_version(), qkv_cpu());
        return 0;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (*name == '-') return problem(QKV_USAGE, "qkv takes a command first: 'qkv help' lists them");
    int command = command_find(name);
    if (command < 0) return QKV_USAGE;
    int code = options_parse((CommandId)command, argc - 2, argv + 2, &o);
    if (!code) {
        term_init(o.verbose, o.quiet);
        if (o.help) print_help(command);
        else code = commands[command].run(&o);
    }
    options_free(&o);
    return code;
}

int main(int argc, char **argv)
{
    set_signals();
    int code = run(argc, argv);
    bool lost = ferror(stdout) != 0; /* a full disk must not look like success */
    if ((fflush(stdout) || lost) && !code)
        code = problem(QKV_UNREADABLE, "standard output cannot be written: %s", strerror(errno));
    return code;
}
