/* qkv pack MODEL -o FILE.qkv: the model as sessions run it, in a file that opens by mapping alone.
 *
 *     qkv pack bert.pt2 -o bert.qkv --dtype bf16
 */
#include <stdio.h>
#include <string.h>
#include "cli.h"

typedef struct PackOptions {
    Common common;
    ModelOptions model;
    const char *output;
} PackOptions;

int model_pack(const char *output, const Common *c, const qkv_model *m, json_t *into)
{
    qkv_error e;
    qkv_pack_info info = {.struct_size = sizeof info};
    char a[32], b[32];
    if (qkv_model_pack(m, output, &info, &e) != QKV_OK) return problem_of(&e);
    if (info.message[0])
        warning("no weights were packed; they will be when the model runs. It refused random inputs: %s", info.message);
    if (c->json) {
        json_t *report = json_pack("{s:i, s:o, s:o, s:s, s:i, s:I, s:i, s:I}", "schema", JSON_SCHEMA, "model",
                                   json_text(c->arg[0]), "output", json_text(output), "cpu", info.cpu, "weights",
                                   info.weights, "weight_bytes", (json_int_t)info.weight_bytes, "packed", info.packed,
                                   "packed_bytes", (json_int_t)info.packed_bytes);
        if (into) json_object_set_new(into, "pack", report);
        else json_print(report);
        return 0;
    }
    printf("%d weights (%s), %d of them packed for %s (%s)\n", info.weights,
           bytes_text((double)info.weight_bytes, a, sizeof a), info.packed, info.cpu,
           bytes_text((double)info.packed_bytes, b, sizeof b));
    return 0;
}

static int cmd_pack(const void *options)
{
    const PackOptions *o = options;
    qkv_model *m = NULL;
    bool bf16;
    size_t n = o->output ? strlen(o->output) : 0;
    if (n < 5 || strcmp(o->output + n - 4, ".qkv")) return problem(QKV_USAGE, "pack needs -o FILE.qkv");
    int code = model_bf16(&o->model, &bf16);
    if (!code) code = model_load(&o->model, o->common.arg[0], bf16, false, &m);
    if (!code) code = model_pack(o->output, &o->common, m, NULL);
    qkv_model_free(m);
    return code;
}

#define AT(field) offsetof(PackOptions, field)
static const Option own[] = {
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE.qkv", .writes = true,
     .help = "Output file. It is written completely or not at all."},
    {0},
};

const Command command_pack = {
    .name = "pack",
    .args = "MODEL -o FILE.qkv",
    .summary = "Write a model as this machine runs it, in a file that opens at once",
    .text =
        "Writes the model after rewriting, with everything computed that depends on weights alone, and with the "
        "weights in the layout that this CPU's matrix products use. The file is mapped, not read: run, bench, verify, "
        "embed, classify and the library open it like any model, and no run packs anything. It is for this kind of "
        "CPU; where the packed weights do not fit, opening it fails with exit code 4, and the model must be packed "
        "again there.\n\n"
        "The model is run once, with random inputs of the smallest sizes.",
    .examples = "qkv pack bert.pt2 -o bert.qkv\tfor this machine\n"
                "qkv pack bert.pt2 -o bert.qkv --dtype bf16\tweights and products in bfloat16\n"
                "qkv run bert.qkv -D batch=2\tlike any model",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(PackOptions),
    .options = {{own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_pack,
};
