/* qkv rewrite MODEL -o OUT.pt2: attention in any spelling becomes one op; says what fired, what was proven, and what
 * is left and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct RewriteOptions {
    Common common;
    ModelOptions model;
    DeviceOptions device;
    const char *output, *counterexample, *phases, *prove, *certify;
    List rules;
    int64_t seeds;
    bool lift_sdpa, why_not, require_fused, exact_masked_rows, no_builtin;
} RewriteOptions;

static void on_progress(void *user, int done, int total)
{
    Progress *p = user;
    if (p->total != total) progress_start(p, "rewriting", total);
    progress_at(p, done);
}

static int64_t integer_of(const json_t *v, const char *key) { return json_integer_value(json_object_get(v, key)); }

static bool exact(const json_t *firing) { return !strcmp(text_at(firing, "sense"), "equal on random exact payloads"); }

/* How many replacements were proven in which sense, and why not exactly. */
static void print_senses(const json_t *list)
{
    size_t i, nexact = 0, n = json_array_size(list);
    json_t *f;
    json_array_foreach(list, i, f) nexact += exact(f);
    printf("%zu of %zu equal on random exact payloads\n", nexact, n);
    json_array_foreach(list, i, f)
    {
        if (*text_at(f, "why_floats"))
            show("%s at %s: %s (%s)\n", text_at(f, "rule"), text_at(f, "result"), text_at(f, "sense"),
                 text_at(f, "why_floats"));
    }
}

static void print_firings(const json_t *report, bool proven)
{
    size_t i;
    json_t *f, *list = json_object_get(report, "firings");
    if (!json_array_size(list)) return;
    Table *t = table_new(proven ? "lllrrr" : "lllr");
    table_cell(t, "rule");
    table_cell(t, "gives");
    table_cell(t, "at");
    table_cell(t, "nodes");
    if (proven) {
        table_cell(t, "runs");
        table_cell(t, "largest difference");
    }
    json_array_foreach(list, i, f)
    {
        const char *op = text_at(f, "op");
        table_cell(t, "%s", text_at(f, "rule"));
        table_cell(t, "%s", op);
        table_cell(t, "%s", text_at(f, "result"));
        table_cell(t, "%zu", json_array_size(json_object_get(f, "nodes")));
        if (!proven) continue;
        table_cell(t, "%d", (int)integer_of(f, "runs"));
        if (json_is_string(json_object_get(f, "not_proven"))) table_cell(t, "not proven: %s", text_at(f, "not_proven"));
        else if (exact(f)) table_cell(t, "none: exact");
        else table_cell(t, "%.3g", json_number_value(json_object_get(f, "max_abs")));
    }
    table_print(t);
    if (proven) print_senses(list);
    json_array_foreach(list, i, f)
    {
        if (*text_at(f, "note")) show("%s: %s\n", text_at(f, "result"), text_at(f, "note"));
    }
}

static void print_left(const json_t *report)
{
    size_t i;
    json_t *l;
    json_array_foreach(json_object_get(report, "left"), i, l)
    {
        const char *in = text_at(l, "module");
        show("left: softmax '%s'%s%s\n", text_at(l, "node"), *in ? " in " : "", in);
        if (*text_at(l, "matched")) show("  recognised: %s\n", text_at(l, "matched"));
        show("  stopped at '%s'", text_at(l, "at"));
        if (*text_at(l, "rule")) show(", rule '%s'", text_at(l, "rule"));
        show(": %s\n", text_at(l, "reason"));
        if (*text_at(l, "advice")) show("  to change: %s\n", text_at(l, "advice"));
    }
}

/* Where rules that are not built in did not fire. */
static void print_refused(const json_t *report)
{
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(report, "refused"), i, r)
    {
        const char *in = text_at(r, "module");
        show("refused: rule '%s' at '%s'%s%s: %s\n", text_at(r, "rule"), text_at(r, "node"), *in ? " in " : "", in,
             text_at(r, "reason"));
    }
}

static void print_report(const RewriteOptions *o, const json_t *report)
{
    if (o->why_not) print_refused(report);
    else print_firings(report, json_is_true(json_object_get(report, "proven")));
    print_left(report);
    printf("%d attention%s fused, %d left; %d nodes, were %d\n", (int)integer_of(report, "attentions_fused"),
           integer_of(report, "attentions_fused") == 1 ? "" : "s", (int)integer_of(report, "attentions_left"),
           (int)integer_of(report, "nodes_after"), (int)integer_of(report, "nodes_before"));
}

/* --prove, --prove=exact, --prove=float */
static int prove_of(const char *how, int *out)
{
    *out = !how ? 0 : !strcmp(how, "float") ? 2 : 1;
    if (!how || !*how || !strcmp(how, "exact") || !strcmp(how, "float")) return 0;
    return problem(QKV_USAGE, "option '--prove': found '%s', expected exact or float", how);
}

static int cmd_rewrite(const void *options)
{
    const RewriteOptions *o = options;
    qkv_error e;
    Progress progress = {0};
    char *text = NULL;
    json_t *claims = NULL;
    qkv_rewrite_options call = {.struct_size = sizeof call,
                                .rule_files = o->rules.item,
                                .rule_file_count = o->rules.n,
                                .no_builtin_rules = o->no_builtin,
                                .seeds = (int)o->seeds,
                                .counterexample = o->counterexample,
                                .exact_masked_rows = o->exact_masked_rows,
                                .skip_padding = o->model.skip_padding,
                                .unrounded = o->certify != NULL,
                                .progress = on_progress,
                                .progress_user = &progress};
    int code = CHOICES("--phases", o->phases, phase, &call.phases);
    if (!code) code = prove_of(o->prove, &call.prove);
    if (!code && !o->lift_sdpa && (o->device.device || o->device.cudnn))
        code = problem(QKV_USAGE, "options '--device' and '--cudnn' go with --lift-sdpa");
    if (!code) code = cudnn_of(o->device.cudnn, &call.cudnn);
    if (o->lift_sdpa) call.lift_sdpa = o->device.device ? o->device.device : "cpu";
    if (!code && o->certify && !o->output) code = problem(QKV_USAGE, "--certify needs -o FILE.pt2");
    if (code) return code;
    qkv_model *m;
    ModelOptions plain = o->model;
    plain.skip_padding = false; /* comes with the rewriting here */
    if ((code = model_load(&plain, o->common.arg[0], false, false, &m))) return code;
    qkv_model *made = qkv_model_rewrite(m, &call, &text, &e);
    progress_end(&progress);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (!made) {
        code = problem_of(&e);
        if (e.code == QKV_MISMATCH) note("the tensors are in %s; the model was not written", call.counterexample);
    } else if (o->certify) {
        claims = save_certified(o->output, o->certify, made, m, text, &code);
    } else if (o->output && qkv_model_save(made, o->output, &e) != QKV_OK) {
        code = problem_of(&e);
    }
    if (report && o->common.json) {
        json_object_set_new(report, "model", json_text(o->common.arg[0]));
        json_object_set_new(report, "output", code ? json_null() : json_text(o->output));
        json_object_set_new(report, "certificate", certificate_summary(claims));
        json_object_set_new(report, "error", made ? json_null() : json_text(e.message));
        json_print(json_incref(report));
    } else if (report && !code) {
        print_report(o, report);
        print_skipped(report);
        if (claims) certificate_print(o->certify, claims);
    }
    int64_t left = report ? integer_of(report, "attentions_left") : 0;
    if (!code && o->require_fused && left)
        code = problem(QKV_MISMATCH, "%d attention%s left as softmax(QK)V; qkv rewrite --why-not says why", (int)left,
                       left == 1 ? " is" : "s are");
    json_decref(report);
    json_decref(claims);
    qkv_free(text);
    qkv_model_free(made);
    qkv_model_free(m);
    return code;
}

#define AT(field) offsetof(RewriteOptions, field)
static const Option own[] = {
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE.pt2", .writes = true,
     .help = "Write the rewritten model. The file is written completely or not at all."},
    {"prove", TEXT_OR_NONE, AT(prove), .arg = "exact|float",
     .help = "Evaluate every replacement against what it replaces before making it: on random payloads of an exact "
             "algebra and, where that says nothing, on random floats within a tolerance (exact, the default), or on "
             "floats only (float)."},
    {"certify", TEXT, AT(certify), .arg = "FILE.json", .writes = true,
     .help = "Write a certificate that the file of --output computes the same for all sizes in range, over the reals: "
             "steps that the program qkv-certify replays. It is in that file, too."},
    {"seeds", INTEGER, AT(seeds), .arg = "N", .min = 1, .max = 1000,
     .help = "Number of random inputs per proof and size (default 3)."},
    {"counterexample", TEXT, AT(counterexample), .arg = "FILE", .writes = true,
     .otherwise = "counterexample.safetensors",
     .help = "Where a failed proof writes its tensors (default counterexample.safetensors)."},
    {"why-not", FLAG, AT(why_not),
     .help = "Print only the attentions that were not recognised: the furthest partial match, what stopped it, and "
             "what "
             "to change."},
    {"require-fused", FLAG, AT(require_fused), .help = "Fail (exit code 1) if an attention was not recognised."},
    {"exact-masked-rows", FLAG, AT(exact_masked_rows),
     .help = "Do not replace an attention if that would change its result in rows where the mask allows no key: NaN "
             "would become 0, or an average of the values a different one."},
    {"rules", MANY, AT(rules), .arg = "FILE",
     .help = "Read more rules; one with the name of a built-in rule replaces it. May be given many times."},
    {"no-builtin-rules", FLAG, AT(no_builtin), .help = "Use the rules of --rules only."},
    {"phases", TEXT, AT(phases), .arg = "LIST", .help = "Run some of recompose,convert,fuse only (default: all)."},
    {"lift-sdpa", FLAG, AT(lift_sdpa),
     .help = "Afterwards, give every attention the form for which PyTorch has a better kernel on --device (see qkv "
             "backends): 4 axes, masks of 4 axes, padded head sizes with the scale unchanged, contiguous operands."},
    {0},
};

const Command command_rewrite = {
    .name = "rewrite",
    .args = "MODEL",
    .summary = "Turn every spelling of attention into one op, and prove it",
    .text =
        "Finds the attentions of the model, however they are written, and replaces each by "
        "scaled_dot_product_attention with its mask, scale, softcap and grouped heads. Other compounds (decomposed "
        "softmax, normalisations, activations) become single ops as well. Prints the rules that were applied and, for "
        "every softmax(QK)V that was not recognised, the node where recognition stopped and why.\n\n"
        "With --prove, each replacement is first evaluated against what it replaces, on random tensors, for several "
        "sizes and seeds, including mask rows that allow no key. One that differs ends the command with exit code 1 "
        "and its tensors in a file. docs/PROOF.md says what a proof is worth.",
    .examples =
        "qkv rewrite bert.pt2 -o fused.pt2 --prove\tread, rewrite, prove, write\n"
        "qkv rewrite bert.pt2 --why-not\twhat was not recognised, and why\n"
        "qkv rewrite vit.pt2 --lift-sdpa --device cuda-sm90 --prove -o fast.pt2\tattention for PyTorch's kernels "
        "on an H100\n"
        "qkv rewrite bert.pt2 --require-fused -q\tin a build: fails if an attention was not recognised",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(RewriteOptions),
    .defaults = &(const RewriteOptions){.counterexample = "counterexample.safetensors"},
    .options = {{own},
                {device_options, AT(device)},
                {skip_padding_option, AT(model)},
                {load_options, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_rewrite,
};
