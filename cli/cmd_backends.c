/* qkv backends MODEL: which kernel PyTorch takes for every attention, the rule that decides, and what to change.
 *
 *     qkv backends vit.pt2 --device cuda-sm90 -D batch=8
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct BackendsOptions {
    Common common;
    ModelOptions model;
    DeviceOptions device;
    List dim;
    bool requires_grad;
} BackendsOptions;

/* "9.20.0" as cuDNN counts: 92000 */
int cudnn_of(const char *version, int *out)
{
    int major = 0, minor = 0, patch = 0, used = 0;
    *out = 0;
    if (!version) return 0;
    int n = sscanf(version, "%d.%d%n.%d%n", &major, &minor, &used, &patch, &used);
    if (n < 2 || version[used] || major < 8 || major > 99 || minor < 0 || minor > 99 || patch < 0 || patch > 99)
        return problem(QKV_USAGE, "option '--cudnn': found '%s', expected a version of 8 or later, such as 9.20.0",
                       version);
    *out = major * 10000 + minor * 100 + patch;
    return 0;
}

static char *sizes_text(const json_t *sizes, const char *prefix, char *buf, size_t room)
{
    size_t i, used = (size_t)snprintf(buf, room, "%s(", prefix);
    json_t *v;
    if (!json_is_array(sizes)) return strcpy(buf, "-");
    json_array_foreach(sizes, i, v)
    {
        if (used >= room) break;
        if (json_is_integer(v))
            used += (size_t)snprintf(buf + used, room - used, "%s%lld", i ? ", " : "",
                                     (long long)json_integer_value(v));
        else used += (size_t)snprintf(buf + used, room - used, "%s%s", i ? ", " : "", json_string_value(v));
    }
    if (used < room) snprintf(buf + used, room - used, ")");
    return buf;
}

/* "cudnn where s1 != 1, otherwise flash" */
static char *choice_text(const json_t *a, char *buf, size_t room)
{
    size_t i, used = 0;
    json_t *c;
    buf[0] = '\0';
    if (*text_at(a, "fixed")) snprintf(buf, room, "%s (by its op)", text_at(a, "fixed"));
    json_array_foreach(json_object_get(a, "choice"), i, c)
    {
        if (used >= room) break;
        const char *when = text_at(c, "when");
        used += (size_t)snprintf(buf + used, room - used, "%s%s%s%s", i ? *when ? ", else " : ", otherwise " : "",
                                 text_at(c, "backend"), *when ? " where " : "", when);
    }
    return buf;
}

static bool same_refusals(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "refused"), json_object_get(b, "refused"));
}

static bool same_rule(const json_t *a, const json_t *b)
{
    return !strcmp(text_at(a, "rule"), text_at(b, "rule")) && !strcmp(text_at(a, "when"), text_at(b, "when"));
}

/* Rules that rewriting can satisfy. */
static bool lifts(const char *rule)
{
    static const char *const rules[] = {"rank", "batch", "mask_shape", "head_same", "head_multiple", "last_stride"};
    size_t i = 0;
    while (i < sizeof rules / sizeof *rules && strcmp(rule, rules[i])) i++;
    return i < sizeof rules / sizeof *rules;
}

/* A rule once, with all kernels that ask for it. */
static void print_rule(const json_t *list, size_t at, const json_t *why)
{
    size_t i;
    json_t *other;
    int n = 0;
    for (size_t k = 0; k < at; k++)
        if (same_rule(json_array_get(list, k), why)) return;
    json_array_foreach(list, i, other)
    {
        if (same_rule(other, why)) show("%s%s", n++ ? ", " : "  ", text_at(other, "backend"));
    }
    show(" %s: %s", n > 1 ? "ask" : "asks", text_at(why, "what"));
    if (*text_at(why, "when")) show("; so where %s", text_at(why, "when"));
    show(" (%s)\n    to change: %s%s\n", text_at(why, "rule"), text_at(why, "change"),
         lifts(text_at(why, "rule")) ? ": qkv rewrite --lift-sdpa" : "");
}

/* What keeps attentions from a better kernel, once for all that have the same. */
static void print_refusals(const json_t *list)
{
    size_t i, k, r;
    json_t *a, *other, *why;
    json_array_foreach(list, i, a)
    {
        size_t before = 0;
        int alike = 0;
        while (before < i && !same_refusals(json_array_get(list, before), a)) before++;
        if (before < i || !json_array_size(json_object_get(a, "refused"))) continue;
        json_array_foreach(list, k, other) alike += same_refusals(other, a);
        show("%s", text_at(a, "node"));
        if (alike > 1) printf(" and %d more", alike - 1);
        printf(":\n");
        json_array_foreach(json_object_get(a, "refused"), r, why) print_rule(json_object_get(a, "refused"), r, why);
    }
}

static void print_report(const json_t *report)
{
    char sizes[256], mask[256], choice[1024];
    size_t i;
    json_t *a, *list = json_object_get(report, "attentions");
    if (!json_array_size(list)) {
        printf("no scaled_dot_product_attention; qkv rewrite finds attention that is spelled out\n");
        return;
    }
    Table *t = table_new("lllll");
    table_cell(t, "attention");
    table_cell(t, "module");
    table_cell(t, "query");
    table_cell(t, "mask");
    table_cell(t, "kernel");
    json_array_foreach(list, i, a)
    {
        table_cell(t, "%s", text_at(a, "node"));
        table_cell(t, "%s", *text_at(a, "path") ? text_at(a, "path") : "-");
        table_cell(t, "%s", sizes_text(json_object_get(a, "query"), text_at(a, "dtype"), sizes, sizeof sizes));
        table_cell(t, "%s",
                   json_is_true(json_object_get(a, "causal"))
                       ? "causal"
                       : sizes_text(json_object_get(a, "mask"), "", mask, sizeof mask));
        table_cell(t, "%s", choice_text(a, choice, sizeof choice));
    }
    table_print(t);
    print_refusals(list);
}

static int cmd_backends(const void *options)
{
    const BackendsOptions *o = options;
    qkv_error e;
    qkv_model *m = NULL;
    Sizes dims = {0};
    qkv_backends_options call = {.struct_size = sizeof call, .device = o->device.device, .train = o->requires_grad};
    int code = cudnn_of(o->device.cudnn, &call.cudnn);
    if (!code) code = sizes_of_dims(&o->dim, &dims);
    call.dim_names = (const char *const *)dims.name;
    call.dims = dims.value;
    call.n_dims = dims.n;
    if (!code) code = model_load(&o->model, o->common.arg[0], false, false, &m);
    char *text = code ? NULL : qkv_model_backends(m, &call, &e);
    if (!code && !text) code = problem_of(&e);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (report && o->common.json) {
        json_object_set_new(report, "model", json_text(o->common.arg[0]));
        json_print(json_incref(report));
    } else if (report) {
        print_report(report);
    }
    json_decref(report);
    qkv_free(text);
    qkv_model_free(m);
    sizes_free(&dims);
    return code;
}

#define AT(field) offsetof(BackendsOptions, field)
static const Option own[] = {
    {"dim", MANY, AT(dim), .letter = 'D', .arg = "NAME=N",
     .help = "Set a size. " DIM_NAME " Other sizes stay symbolic."},
    {"requires-grad", FLAG, AT(requires_grad),
     .help =
         "Assume that every parameter that is not frozen requires a gradient; by default, as under torch.no_grad()."},
    {"train", FLAG, AT(requires_grad), .help = NULL},
    {0},
};

const Command command_backends = {
    .name = "backends",
    .args = "MODEL",
    .summary = "Show which kernel PyTorch picks for each attention, and why",
    .text =
        "Lists every scaled_dot_product_attention as it is in the file: its module, sizes and mask, and which kernel "
        "PyTorch 2.13 picks for it on a device: flash, efficient, cudnn, or math, which computes and keeps all "
        "scores. Where the choice depends on variable sizes, the kernel is a list of cases. Below the table is the "
        "rule that keeps an attention from a better kernel, and what to change; qkv rewrite --lift-sdpa makes the "
        "change where results stay the same.\n\n"
        "The table for the CPU is tested against PyTorch's own choice; those for CUDA follow its source "
        "(docs/BACKENDS.md).",
    .examples = "qkv backends vit.pt2\ton the CPU, for all sizes\n"
                "qkv backends vit.pt2 --device cuda-sm90 -D batch=8\ton an H100\n"
                "qkv backends gpt.pt2 --requires-grad --json\twith gradients, for programs",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(BackendsOptions),
    .options = {{device_options, AT(device)}, {own}, {load_options, AT(model)}, {json_option}, {common_options}},
    .run = cmd_backends,
};
