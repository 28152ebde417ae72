/* qkv pack MODEL -o FILE.qkv: the model as sessions run it, in a file that opens by mapping alone.
 *
 *     qkv pack bert.pt2 -o bert.qkv --dtype bf16
 */
#include <stdio.h>
#include <string.h>
#include "cli.h"

static int pack(const Options *o, const qkv_model *m)
{
    qkv_error e;
    qkv_pack_info info = {.struct_size = sizeof info};
    char a[32], b[32];
    if (qkv_model_pack(m, o->output, &info, &e) != QKV_OK) return problem_of(&e);
    if (info.message[0])
        warning("no weights are packed, they will be when it runs: the model refused random inputs: %s", info.message);
    if (o->json) {
        json_print(json_pack("{s:i, s:o, s:o, s:s, s:i, s:I, s:i, s:I}", "schema", JSON_SCHEMA, "model",
                             json_text(o->arg[0]), "output", json_text(o->output), "cpu", info.cpu, "weights",
                             info.weights, "weight_bytes", (json_int_t)info.weight_bytes, "packed", info.packed,
                             "packed_bytes", (json_int_t)info.packed_bytes));
        return 0;
    }
    printf("%d weights (%s), %d of them packed for %s (%s)\n", info.weights,
           bytes_text((double)info.weight_bytes, a, sizeof a), info.packed, info.cpu,
           bytes_text((double)info.packed_bytes, b, sizeof b));
    return 0;
}

int cmd_pack(const Options *o)
{
    qkv_model *m = NULL;
    bool bf16;
    size_t n = o->output ? strlen(o->output) : 0;
    if (n < 5 || strcmp(o->output + n - 4, ".qkv")) return problem(QKV_USAGE, "pack needs -o FILE.qkv");
    int code = model_bf16(o, &bf16);
    if (!code) code = model_load(o, o->arg[0], bf16, false, &m);
    if (!code) code = pack(o, m);
    qkv_model_free(m);
    return code;
}
