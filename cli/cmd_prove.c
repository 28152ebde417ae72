/* qkv prove A B: do two files compute the same, and in which sense; a value that differs, or why it cannot be told.
 *
 *     qkv prove model.pt2 model.onnx
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

#define COUNTEREXAMPLE "counterexample.npz"

typedef struct ProveOptions {
    Common common;
    ModelOptions model;
    List dim;
    const char *counterexample;
    int64_t sizes, seeds;
    bool floats;
} ProveOptions;

static void print_sizes(const json_t *list)
{
    size_t i;
    json_t *choice, *size;
    const char *name;
    json_array_foreach(list, i, choice)
    {
        printf("%s", i ? "; " : "sizes: ");
        const char *between = "";
        json_object_foreach(choice, name, size)
        {
            printf("%s%s=%lld", between, name, (long long)json_integer_value(size));
            between = " ";
        }
        if (!*between) printf("fixed");
    }
    if (json_array_size(list)) puts("");
}

/* The place as axes are counted in the file's own terms stays with the tensors: here it is a row-major index. */
static void print_report(const json_t *report)
{
    print_sizes(json_object_get(report, "sizes"));
    if (!strcmp(text_at(report, "result"), "equal")) {
        if (*text_at(report, "why_floats")) printf("not on exact payloads: %s\n", text_at(report, "why_floats"));
        printf("%s (%lld runs)\n", text_at(report, "sense"),
               (long long)json_integer_value(json_object_get(report, "runs")));
        if (*text_at(report, "why_not_all_sizes"))
            show("not for all sizes: %s\n", text_at(report, "why_not_all_sizes"));
        const json_t *a;
        size_t i;
        json_array_foreach(json_object_get(report, "assuming"), i, a) show("assuming: %s\n", json_string_value(a));
    }
    if (*text_at(report, "counterexample")) show("the tensors are in %s\n", text_at(report, "counterexample"));
}

static int cmd_prove(const void *options)
{
    const ProveOptions *o = options;
    qkv_error e;
    qkv_model *m[2] = {NULL, NULL};
    Sizes dims = {0};
    char *text = NULL;
    int code = sizes_of_dims(&o->dim, &dims);
    for (int i = 0; !code && i < 2; i++) code = model_load(&o->model, o->common.arg[i], false, false, &m[i]);
    if (!code) {
        qkv_prove_options call = {.struct_size = sizeof call,
                                  .dim_names = (const char *const *)dims.name,
                                  .dims = dims.value,
                                  .n_dims = dims.n,
                                  .sizes = (int)o->sizes,
                                  .seeds = (int)o->seeds,
                                  .floats = o->floats,
                                  .counterexample = o->counterexample ? o->counterexample : COUNTEREXAMPLE};
        if (qkv_model_prove(m[0], m[1], &call, &text, &e)) code = problem_of(&e);
    }
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (report && o->common.json) {
        json_object_set_new(report, "models", json_pack("[s, s]", o->common.arg[0], o->common.arg[1]));
        json_print(json_incref(report));
    } else if (report) {
        print_report(report);
    }
    json_decref(report);
    qkv_free(text);
    qkv_model_free(m[0]);
    qkv_model_free(m[1]);
    sizes_free(&dims);
    return code;
}

#define AT(field) offsetof(ProveOptions, field)
static const Option own[] = {
    {"dim", MANY, AT(dim), .letter = 'D', .arg = "NAME=N",
     .help = "Keep a size of the first model. " DIM_NAME " Others are varied within their ranges."},
    {"sizes", INTEGER, AT(sizes), .arg = "N", .min = 1, .max = 1000,
     .help = "How many choices of sizes to try (default 4)."},
    {"seeds", INTEGER, AT(seeds), .arg = "N", .min = 1, .max = 1000, .help = "Payloads at each of them (default 2)."},
    {"float", FLAG, AT(floats), .help = "Compare random floats within a tolerance only."},
    {"counterexample", TEXT, AT(counterexample), .arg = "FILE", .writes = true, .otherwise = COUNTEREXAMPLE,
     .help = "Where inputs and outputs that differ are written, .npz or .safetensors (default " COUNTEREXAMPLE ")."},
    {0},
};

const Command command_prove = {
    .name = "prove",
    .args = "MODEL MODEL",
    .summary = "Find out whether two files compute the same, and in which sense",
    .text =
        "Takes two models, .pt2 or .onnx in any mix: a file and its rewritten form, its ONNX, its decomposition. Pairs "
        "their inputs by name, or by position where names differ, and their outputs by position; weights are compared "
        "as what they are, numbers. Both are evaluated at several sizes, first on random payloads of an exact algebra, "
        "in which equal functions give equal elements and others do not. Where an op or a rounded constant is not "
        "covered, the reason is printed and random floats are compared within a tolerance.\n\n"
        "What is equal there is certified for all sizes, as qkv rewrite --certify does, where lemmas cover it; what "
        "the claims take for granted is printed as \"assuming: ...\".\n\n"
        "Exit code 0: no difference was found, and a line says in which sense: equal over the reals for all sizes in "
        "range, equal on random exact payloads, or equal within a tolerance on random floats. 1: they differ; the "
        "first value that does is printed, and the tensors are in a file. 4: it cannot be told, and why. "
        "docs/PROOF.md says what each is worth.",
    .examples = "qkv prove model.pt2 fused.pt2\tdid rewriting change anything\n"
                "qkv prove model.pt2 model.onnx -D batch=2 --sizes 8\tat eight choices of the other sizes\n"
                "qkv prove a.pt2 b.pt2 --json\tpairs of inputs, sizes, the first difference",
    .min_args = 2,
    .max_args = 2,
    .size = sizeof(ProveOptions),
    .options = {{own}, {load_options, AT(model)}, {json_option}, {common_options}},
    .run = cmd_prove,
};
