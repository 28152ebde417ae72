/* The options that several commands share. */
#include <stdio.h>
#include "options.h"
#include "qkv_tools.h"

#define AT(field) offsetof(Common, field)
const Option common_options[] = {
    {"memory-limit", BYTES, AT(memory_limit), .arg = "SIZE", .min = 1, .max = INT64_MAX,
     .help = "Upper limit for the memory of a run: activations, scratch space, random inputs; suffixes K, M, G. The "
             "rest of the command may take 64M beside it and 4 times the files that it names. What needs more ends "
             "with exit code 5."},
    {"verbose", COUNT, AT(verbose), .letter = 'v', .help = "Print more to standard error."},
    {"quiet", FLAG, AT(quiet), .letter = 'q', .help = "Print nothing but errors to standard error."},
    {"help", FLAG, AT(help), .letter = 'h', .help = "Print the help of the command."},
    {0},
};
const Option json_option[] = {
    {"json", FLAG, AT(json), .help = "Print one JSON object; \"schema\" is the version of its layout."},
    {0},
};
#undef AT

#define AT(field) offsetof(ModelOptions, field)
const Option load_options[] = {
    {"fix", MANY, AT(fix), .arg = "NAME=VALUE|FILE",
     .help = "Make an input of an ONNX model a constant while the model is read, so that shapes and axes may depend on "
             "it. VALUE is a number (3), a list (0,2) or a tensor file."},
    {"name-dim", MANY, AT(name_dim), .arg = "SIZE=NAME",
     .help = "Call a size of the model (s43, as qkv inspect lists them) NAME in everything that is printed and "
             "written. May be given many times. Files of qkv.export have the names of their Dims."},
    {0},
};
const Option skip_padding_option[] = {
    {"skip-padding", FLAG, AT(skip_padding),
     .help = "Where a key padding mask marks tokens, run the network on the real tokens only: the outputs stay the "
             "same at real positions and are 0 at padded ones. Prints where this applies and where it ends."},
    {0},
};
const Option dtype_option[] = {
    {"dtype", TEXT, AT(dtype), .arg = "f32|bf16",
     .help = "bf16: compute matrix products, convolutions and attention in bfloat16, with sums in float32; outputs "
             "keep their dtypes. f32 (default): compute as the file says."},
    {0},
};
const Option run_options[] = {
    {"threads", INTEGER, AT(threads), .arg = "N", .min = 1, .max = 4096,
     .help = "Number of threads (default: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may use)."},
    {"no-optimize", FLAG, AT(no_optimize),
     .help = "Run the nodes of the file as they are. By default attention, norms and activations, however they are "
             "spelled, are first turned into single ops, as qkv rewrite --exact-masked-rows does."},
    {"no-mmap", FLAG, AT(no_mmap),
     .help = "Read the model into memory instead of mapping it: for a file that another process may write in place."},
    {"portable-bits", FLAG, AT(portable_bits),
     .help =
         "Compute the same bits on every x86 CPU. By default they are the same for any number of threads, place in a "
         "batch and run, on CPUs of one level (QKV_CPU). bfloat16 without the CPU's own products is what it costs "
         "most."},
    {0},
};
/* "import, detach, ... By default import, ... run." */
static const char *all_passes(void)
{
    static char text[400];
    const char *name;
    int ordinary;
    size_t at = 0;
    for (int i = 0; (name = qkv_pass_name(i, NULL)); i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", name);
    at += (size_t)snprintf(text + at, sizeof text - at, ". By default");
    for (int i = 0, n = 0; (name = qkv_pass_name(i, &ordinary)); i++)
        if (ordinary) at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", n++ ? ", " : " ", name);
    snprintf(text + at, sizeof text - at, " run.");
    return text;
}

const Option cache_option[] = {
    {"cache", TEXT_OR_NONE, AT(cache), .arg = "DIR", .keeps = true,
     .help =
         "Keep the model packed for this CPU in a folder (default $XDG_CACHE_HOME/qkv/packed), and map it from there "
         "from the second time on: it opens at once, and processes share one copy of its weights. -v says whether "
         "it was there, or why it was written again."},
    {0},
};
const Option passes_option[] = {
    {"passes", TEXT, AT(passes), .arg = "LIST", .help = "Run only these passes over the graph, of", .more = all_passes},
    {0},
};
#undef AT

#define AT(field) offsetof(InputOptions, field)
const Option input_options[] = {
    {"inputs", TEXT, AT(file), .letter = 'i', .arg = "FILE",
     .help = "Read inputs from a .safetensors, .npz or .npy file, keyed by the model's input names or by position "
             "(0, 1, ...)."},
    {"dim", MANY, AT(dim), .letter = 'D', .arg = "NAME=N",
     .help = "Set a size of the random inputs. " DIM_NAME " A size that is not given is the smallest one that the "
             "model allows."},
    {"shape", MANY, AT(shape), .arg = "NAME:SHAPE",
     .help = "Set all sizes of one random input: x:1x3x224x224, x:[1,3,224,224] or x:1,3,224,224."},
    {"seed", INTEGER, AT(seed), .arg = "N", .max = INT64_MAX,
     .help = "Seed of the random inputs and, like torch.manual_seed, of dropout and other random ops (default 0)."},
    {"image", MANY, AT(image), .arg = "[NAME=]FILE",
     .help = "Read a PNG or JPEG image into the input NAME, which may be omitted when the model has one input. Several "
             "images for one input form a batch."},
    {0},
};
#undef AT

#define AT(field) offsetof(ImageNorm, field)
const Option norm_options[] = {
    {"mean", TEXT, AT(mean), .arg = "LIST",
     .help = "Mean of the image's channels: one number, or one per channel as in 0.48,0.46,0.41 (default 0)."},
    {"std", TEXT, AT(std), .arg = "LIST", .help = "Standard deviation of the image's channels (default 1)."},
    {"scale", REAL, AT(scale), .arg = "X",
     .help = "Value of a white pixel before the mean is subtracted and the result divided by std (default 1)."},
    {0},
};
#undef AT

const Option trace_option[] = {
    {"trace", TEXT, 0, .arg = "FILE.json", .writes = true,
     .help = "Write a timeline of the steps, with start and duration of each, in the Trace Event Format, which "
             "https://ui.perfetto.dev opens."},
    {0},
};

#define AT(field) offsetof(WriteOptions, field)
const Option onnx_options[] = {
    {"opset", INTEGER, AT(opset), .arg = "N", .min = 13, .max = 25,
     .help = "ONNX opset, 13 to 25 (default: the first from 18 on that has what the model needs). Below 17, for "
             "TensorRT 8 and old runtimes, nodes that need a newer one are listed."},
    {"target", TEXT, AT(target), .arg = "NAME",
     .help = "Runtime that the ONNX file is for: ort (default), openvino or tensorrt; or spec, the standard itself."},
    {"profile", TEXT, AT(target), .arg = "NAME"},
    {"external-data", FLAG, AT(external),
     .help = "Write the weights to FILE.data, next to the model. By default this is done above 2 GiB only."},
    {0},
};
#undef AT

#define AT(field) offsetof(DeviceOptions, field)
const Option device_options[] = {
    {"device", TEXT, AT(device), .arg = "NAME",
     .help = "cpu (default), or cuda-smNN for a compute capability: cuda-sm80, cuda-sm90, cuda-sm120, ..."},
    {"cudnn", TEXT, AT(cudnn), .arg = "VERSION",
     .help = "Version of cuDNN that PyTorch uses on the device (default 9.20.0)."},
    {0},
};
#undef AT
