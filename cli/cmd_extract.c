/* qkv extract MODEL: a part of a model as a model of its own, or its weights as a tensor file.
 *
 *     qkv extract bert.pt2 --from add_3,mask --to layer_norm_5 -o block.pt2
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

static void tell(const qkv_model *m)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) note("input %s", qkv_model_input_name(m, i));
    for (int i = 0; i < qkv_model_output_count(m); i++) note("output %s", qkv_model_output_name(m, i));
}

static int cut(const Options *o, const qkv_model *m)
{
    qkv_error e;
    Words from, to;
    words_of(&o->from, &from);
    words_of(&o->to, &to);
    qkv_model *part = qkv_model_extract(m, from.name, from.n, to.name, to.n, &e);
    int code = part ? model_write(o, part) : problem_of(&e);
    if (!code) tell(part);
    qkv_model_free(part);
    words_free(&from);
    words_free(&to);
    return code;
}

int cmd_extract(const Options *o)
{
    qkv_model *m = NULL;
    if (!o->output) return problem(QKV_USAGE, "extract needs -o FILE");
    if (o->weights && !is_tensor_file(o->output))
        return problem(QKV_USAGE, "option '-o': found '%s', expected a file that ends in .safetensors, .npz or .npy",
                       o->output);
    if (o->weights && (o->from.n || o->to.n))
        return problem(QKV_USAGE, "--weights are those of the whole model: no --from and no --to");
    if (!o->weights && !o->from.n && !o->to.n) return problem(QKV_USAGE, "extract needs --from or --to, or --weights");
    if (!o->weights) {
        int code = model_can_write(o);
        if (code) return code;
    }
    int code = model_load(o, o->arg[0], false, false, &m);
    if (!code) code = o->weights ? write_weights(o, m) : cut(o, m);
    qkv_model_free(m);
    return code;
}
