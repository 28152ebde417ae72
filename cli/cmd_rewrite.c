/* qkv rewrite MODEL -o OUT.pt2: attention in any spelling becomes one op; says what fired, what was proven, and what is left and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

static int phases_of(const Options *o, unsigned *phases)
{
    static const char *const names[] = {"recompose", "convert", "fuse"};
    *phases = 0;
    for (const char *s = o->phases; s && *s;) {
        size_t n = strcspn(s, ",");
        int k = 0;
        while (k < 3 && (strlen(names[k]) != n || strncmp(s, names[k], n))) k++;
        if (k == 3)
            return problem(QKV_USAGE, "option '--phases': found '%.*s', expected some of recompose,convert,fuse",
                           (int)n, s);
        *phases |= 1u << k;
        s += n + (s[n] == ',');
    }
    return 0;
}

static void on_progress(void *user, int done, int total)
{
    Progress *p = user;
    if (p->total != total) progress_start(p, "rewriting", total);
    progress_at(p, done);
}

static int64_t integer_of(const json_t *v, const char *key) { return json_integer_value(json_object_get(v, key)); }

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
        else table_cell(t, "%.3g", json_number_value(json_object_get(f, "max_abs")));
    }
    table_print(t);
    json_array_foreach(list, i, f)
    {
        if (*text_at(f, "note")) printf("%s: %s\n", text_at(f, "result"), text_at(f, "note"));
    }
}

static void print_left(const json_t *report)
{
    size_t i;
    json_t *l;
    json_array_foreach(json_object_get(report, "left"), i, l)
    {
        printf("left: softmax '%s'\n", text_at(l, "node"));
        if (*text_at(l, "matched")) printf("  recognised: %s\n", text_at(l, "matched"));
        printf("  stopped at '%s'", text_at(l, "at"));
        if (*text_at(l, "rule")) printf(", rule '%s'", text_at(l, "rule"));
        printf(": %s\n", text_at(l, "reason"));
        if (*text_at(l, "advice")) printf("  to change: %s\n", text_at(l, "advice"));
    }
}

static void print_report(const Options *o, const json_t *report)
{
    if (!o->why_not) print_firings(report, json_is_true(json_object_get(report, "proven")));
    print_left(report);
    printf("%d attention%s fused, %d left; %d nodes, were %d\n", (int)integer_of(report, "attentions_fused"),
           integer_of(report, "attentions_fused") == 1 ? "" : "s", (int)integer_of(report, "attentions_left"),
           (int)integer_of(report, "nodes_after"), (int)integer_of(report, "nodes_before"));
}

int cmd_rewrite(const Options *o)
{
    qkv_error e;
    Progress progress = {0};
    char *text = NULL;
    qkv_rewrite_options options = {.struct_size = sizeof options,
                                   .rule_files = o->rules.item,
                                   .rule_file_count = o->rules.n,
                                   .no_builtin_rules = o->no_builtin,
                                   .prove = o->prove,
                                   .seeds = (int)o->seeds,
                                   .counterexample = o->counterexample ? o->counterexample
                                                                       : "counterexample.safetensors",
                                   .exact_masked_rows = o->exact_masked_rows,
                                   .skip_padding = o->skip_padding,
                                   .progress = on_progress,
                                   .progress_user = &progress};
    int code = phases_of(o, &options.phases);
    if (!code && !o->lift_sdpa && (o->device || o->cudnn))
        code = problem(QKV_USAGE, "options '--device' and '--cudnn' go with --lift-sdpa");
    if (!code) code = cudnn_of(o, &options.cudnn);
    if (o->lift_sdpa) options.lift_sdpa = o->device ? o->device : "cpu";
    if (code) return code;
    qkv_model *m;
    Options plain = *o;
    plain.skip_padding = false; /* comes with the rewriting here */
    if ((code = model_load(&plain, o->arg[0], false, false, &m))) return code;
    qkv_status status = qkv_model_rewrite(m, &options, &text, &e);
    progress_end(&progress);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (status != QKV_OK) {
        code = problem_of(&e);
        if (status == QKV_MISMATCH) note("the tensors are in %s; the model was not written", options.counterexample);
    } else if (o->output && qkv_model_save(m, o->output, &e) != QKV_OK) {
        code = problem_of(&e);
    }
    if (report && o->json) {
        json_object_set_new(report, "model", json_text(o->arg[0]));
        json_object_set_new(report, "output", code ? json_null() : json_text(o->output));
        json_object_set_new(report, "error", status == QKV_OK ? json_null() : json_text(e.message));
        json_print(json_incref(report));
    } else if (report && !code) {
        print_report(o, report);
        print_skipped(report);
    }
    int64_t left = report ? integer_of(report, "attentions_left") : 0;
    if (!code && o->require_fused && left)
        code = problem(QKV_MISMATCH, "%d attention%s left as softmax(QK)V; qkv rewrite --why-not says why", (int)left,
                       left == 1 ? " is" : "s are");
    json_decref(report);
    qkv_free(text);
    qkv_model_free(m);
    return code;
}
