/* More scenarios of run_oom.c: entry points around loading, running and writing. */
#include "oom.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "unit/bpe_cases.h"

static const qkv_session_options one_thread = {.struct_size = sizeof one_thread, .threads = 1};

/* ------------------------------------------------------------------ what is said of a model */

static qkv_status graph_view(World *w, qkv_error *e, qkv_graph_format format)
{
    qkv_graph_options o = {.struct_size = sizeof o, .format = format, .passes = "detach", .op = "linear"};
    char *text = qkv_model_graph_view(w->model, &o, e);
    return text ? say(w, text) : e->code;
}

static qkv_status graph_dot(World *w, qkv_error *e) { return graph_view(w, e, QKV_GRAPH_DOT); }
static qkv_status graph_svg(World *w, qkv_error *e) { return graph_view(w, e, QKV_GRAPH_SVG); }

static qkv_status graph_file(World *w, qkv_error *e)
{
    qkv_status r = qkv_model_save_graph(w->model, w->out, NULL, e);
    return r == QKV_OK ? say_file(w) : r;
}

static qkv_status graph_json(World *w, qkv_error *e)
{
    char *text = qkv_model_graph_json(w->model, NULL, e);
    return text ? say(w, text) : e->code;
}

static qkv_status extra_file(World *w, qkv_error *e)
{
    size_t n;
    char *bytes = qkv_model_extra_file(w->ground, "qkv/processor.json", &n, e);
    return bytes ? say(w, bytes) : e->code;
}

/* ------------------------------------------------------------------ models that are made of others */

static qkv_status told(World *w, qkv_model *m, char *report, qkv_error *e)
{
    qkv_status r = m ? say(w, report) : e->code;
    if (!m) qkv_free(report);
    qkv_model_free(m);
    return r;
}

static qkv_status with_names(World *w, qkv_error *e)
{
    const char *from = qkv_model_symbol(w->model, 0, NULL, NULL), *to = "batch_of_its_own";
    qkv_model *m = qkv_model_with_size_names(w->model, &from, &to, 1, e);
    return told(w, m, m ? qkv_model_describe(m, e) : NULL, e);
}

static qkv_status with_weights(World *w, qkv_error *e)
{
    qkv_tensor t;
    const char *name = qkv_model_weight(w->model, 0, &t, NULL, NULL);
    qkv_model *m = qkv_model_with_weights(w->model, &name, &t, 1, e);
    return told(w, m, m ? qkv_model_graph_text(m, e) : NULL, e);
}

static qkv_status with_dtype(World *w, qkv_error *e)
{
    char *report = NULL;
    qkv_model *m = qkv_model_with_dtype(w->model, QKV_BF16, &report, e);
    return told(w, m, report, e);
}

static qkv_status quantize(World *w, qkv_error *e)
{
    char *report = NULL;
    qkv_quantize_options o = {
        .struct_size = sizeof o, .weight_bits = 4, .group = 8, .weight_method = "gptq", .threads = 1};
    qkv_model *m = qkv_model_quantize(w->model, &o, &report, e);
    return told(w, m, report, e);
}

static qkv_status quantize_all(World *w, qkv_error *e)
{
    char *report = NULL;
    qkv_quantize_options o = {.struct_size = sizeof o,
                              .calibration = QKV_CALIBRATION_ENTROPY,
                              .smooth = 0.5,
                              .correct = 1,
                              .batch = 2,
                              .threads = 1};
    qkv_model *m = qkv_model_quantize(w->model, &o, &report, e);
    return told(w, m, report, e);
}

static qkv_status generalize(World *w, qkv_error *e)
{
    char path[600], *report = NULL;
    const qkv_model *all[2] = {NULL};
    static const char *const names[] = {"static_a.pt2", "static_b.pt2"};
    for (int i = 0; i < 2; i++) {
        path_to(path, w->cli, names[i]);
        all[i] = qkv_model_load(path, NULL, e);
        if (!all[i]) break;
    }
    qkv_model *m = all[1] ? qkv_model_generalize(all, 2, NULL, &report, e) : NULL;
    qkv_status r = told(w, m, report, e);
    for (int i = 0; i < 2; i++) qkv_model_free((qkv_model *)all[i]);
    return r;
}

static qkv_status of_memory(World *w, qkv_error *e)
{
    FILE *f = fopen(w->pt2, "rb");
    static char bytes[1 << 17];
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    qkv_model *m = qkv_model_load_memory(bytes, n, NULL, e);
    return told(w, m, m ? qkv_model_describe(m, e) : NULL, e);
}

/* A cache never fails a load: where it cannot be used the model comes from its file. */
static qkv_status cached(World *w, qkv_error *e)
{
    qkv_load_options o = {.struct_size = sizeof o, .cache = w->cache};
    qkv_model *m = qkv_model_load(w->pt2, &o, e);
    if (m) w->got = strdup(qkv_model_input_name(m, 0));
    qkv_status r = m ? QKV_OK : e->code;
    qkv_model_free(m);
    return r;
}

static qkv_status onnx_outside(World *w, qkv_error *e)
{
    qkv_onnx_options o = {.struct_size = sizeof o, .opset = 23, .external_data = 1};
    char data[700], *report = NULL;
    qkv_status r = qkv_model_save_onnx(w->model, w->out, &o, &report, e);
    snprintf(data, sizeof data, "%s.data", w->out);
    if (r == QKV_OK) unlink(data);
    if (r == QKV_OK) return say(w, report);
    qkv_free(report);
    return r;
}

/* ------------------------------------------------------------------ rules with functions */

static qkv_status looks(void *user, qkv_match *m, qkv_error *e)
{
    qkv_match_view v = {.struct_size = sizeof v};
    return qkv_match_look(m, user ? "0/self" : "0", &v, e);
}

static qkv_status builds(void *user, qkv_match *m, qkv_error *e)
{
    (void)user;
    return qkv_match_build(m, "(relu ?0)", e);
}

static qkv_status patterns(World *w, qkv_error *e)
{
    const qkv_rule_function f = {"mine", looks, builds, NULL};
    const char *rule = "(reorder my_linear (= ?y (linear ?x ?w ?b)) (@mine ?y) (mine ?y))";
    qkv_rewrite_options o = {.struct_size = sizeof o,
                             .rule_texts = &rule,
                             .rule_text_count = 1,
                             .n_functions = 1,
                             .functions = &f,
                             .no_builtin_rules = 1};
    char *report = NULL;
    qkv_model *m = qkv_model_rewrite(w->model, &o, &report, e);
    return told(w, m, report, e);
}

/* ------------------------------------------------------------------ sessions */

static void in_order(void *user, int n, void (*task)(void *data, int i), void *data)
{
    (void)user;
    for (int i = 0; i < n; i++) task(data, i);
}

static qkv_status executed(World *w, qkv_error *e)
{
    const qkv_executor mine = {sizeof mine, in_order, NULL};
    qkv_session *s = qkv_session_create(
        w->model, &(qkv_session_options){.struct_size = sizeof(qkv_session_options), .threads = 3, .executor = &mine},
        e);
    qkv_status r = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, e) : e->code;
    if (r == QKV_OK) r = qkv_session_run(s, e);
    if (r == QKV_OK) say_outputs(w, s, w->model);
    qkv_session_free(s);
    return r;
}

/* Profile, trace, memory, and results of kept inputs. */
static qkv_status watched(World *w, qkv_error *e)
{
    qkv_session *s = qkv_session_create(w->model, &one_thread, e);
    qkv_kept *kept = NULL;
    qkv_status r = s ? qkv_session_keep(s, "0", e) : e->code;
    if (r == QKV_OK) r = qkv_session_random_inputs(s, NULL, NULL, 0, 1, e);
    if (r == QKV_OK) r = qkv_session_trace(s, 1000, e);
    if (r == QKV_OK) qkv_session_profile(s, 1);
    for (int i = 0; i < 2 && r == QKV_OK; i++) r = qkv_session_run(s, e);
    if (r == QKV_OK && !(kept = qkv_session_kept(s, e))) r = e->code;
    if (r == QKV_OK) r = qkv_session_use_kept(s, kept, e);
    if (r == QKV_OK) r = qkv_session_run(s, e);
    if (r == QKV_OK) r = qkv_session_trace_write(s, w->out, e);
    char *trace = r == QKV_OK ? qkv_session_trace_json(s, e) : NULL,
         *profile = trace ? qkv_session_profile_json(s, e) : NULL,
         *memory = profile ? qkv_session_memory_json(s, e) : NULL;
    qkv_free(trace);
    qkv_free(profile); /* times differ */
    if (r == QKV_OK) r = memory ? say(w, memory) : e->code;
    if (r != QKV_OK) unlink(w->out); /* of a trace that was written before */
    qkv_kept_free(kept);
    qkv_session_free(s);
    return r;
}

static int no_news(void *user, const qkv_fit_event *event)
{
    (void)user;
    return event->epoch > 2;
}

/* Two epochs with a checkpoint, the model that came out, and the checkpoint again. */
static qkv_status fit(World *w, qkv_error *e)
{
    static float x[16] = {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, 0.5f, 0.25f, 2.5f, 1.5f};
    static const int64_t shape[] = {4, 4};
    const char *name = "x";
    const qkv_tensor rows = {QKV_F32, 2, shape, NULL, x};
    qkv_train_options o = {.struct_size = sizeof o};
    qkv_status r = qkv_train_defaults(&o, QKV_OPTIMIZER_SGD, e);
    qkv_model *m = r == QKV_OK ? qkv_model_joint(w->trains, NULL, NULL, e) : NULL, *trained = NULL;
    qkv_session *s = m ? qkv_session_create(
                             m, &(qkv_session_options){sizeof(qkv_session_options), .threads = 1, .train = &o}, e)
                       : NULL;
    const qkv_fit_options fit = {.struct_size = sizeof fit,
                                 .names = &name,
                                 .tensors = &rows,
                                 .n = 1,
                                 .epochs = 2,
                                 .batch = 2,
                                 .checkpoint = w->out,
                                 .tell = no_news};
    r = s ? qkv_session_fit(s, &fit, NULL, e) : e->code;
    if (r == QKV_OK) r = qkv_session_load(s, w->out, e);
    if (r == QKV_OK && !(trained = qkv_session_trained(s, e))) r = e->code;
    qkv_tensor t;
    if (r == QKV_OK && qkv_model_weight(trained, 0, &t, NULL, NULL)) say_sum(w, t.data, 12 * sizeof(float));
    if (r != QKV_OK) unlink(w->out); /* of an epoch that was complete */
    qkv_model_free(trained);
    qkv_session_free(s);
    qkv_model_free(m);
    return r;
}

/* ------------------------------------------------------------------ pictures and texts */

static qkv_status encoded(World *w, qkv_tokenizer *t, qkv_error *e)
{
    int64_t ids[64] = {0};
    int n = t ? qkv_tokenizer_encode(t, "a cat sat on the Mat, and a dog barked", ids, 64, e) : -1;
    if (n >= 0) say_sum(w, ids, sizeof ids);
    qkv_tokenizer_free(t);
    return n >= 0 ? QKV_OK : e->code;
}

static qkv_status words(World *w, qkv_error *e) { return encoded(w, qkv_tokenizer_wordpiece(w->words, 1, e), e); }
static qkv_status merges_clip(World *w, qkv_error *e) { return encoded(w, qkv_tokenizer_clip(w->merges, 0, e), e); }
static qkv_status tokens(World *w, qkv_error *e) { return encoded(w, qkv_tokenizer_json(w->tokens, e), e); }

static qkv_status sampled(World *w, qkv_error *e)
{
    const float logits[] = {1, 5, 2, 4, 3};
    uint64_t state = 7;
    const qkv_sample_options o = {.struct_size = sizeof o, .temperature = 0.7, .top_k = 4, .top_p = 0.9};
    int64_t id = qkv_sample(logits, 5, &o, &state, e);
    if (id >= 0) say_sum(w, &id, sizeof id);
    return id >= 0 ? QKV_OK : e->code;
}

static qkv_status pictures(World *w, qkv_error *e)
{
    static float out[3 * 8 * 8];
    static const float mean[3] = {0.5f, 0.5f, 0.5f}, std[3] = {1, 1, 1};
    qkv_picture *p = qkv_picture_read(w->picture, e);
    qkv_status r = p ? qkv_picture_input(p, 8, 8, mean, std, out, e) : e->code;
    if (r == QKV_OK) r = qkv_image_read(w->picture, 3, 8, 8, NULL, NULL, out, e);
    if (r == QKV_OK) r = qkv_picture_write(p, w->out, e);
    qkv_picture_free(p);
    if (r == QKV_OK) say_sum(w, out, sizeof out);
    return r;
}

static qkv_status segments(World *w, qkv_error *e)
{
    const char *text = "red";
    qkv_session *s = qkv_session_create(w->ground, &one_thread, e);
    qkv_segment_options o = {.struct_size = sizeof o, .features = 1 << 20};
    qkv_segmenter *g = s ? qkv_segmenter_create(w->ground, s, &o, e) : NULL;
    qkv_picture *p = g ? qkv_picture_read(w->picture, e) : NULL, *over = NULL;
    qkv_instances *found = NULL;
    qkv_status r = p ? qkv_segmenter_prompts(g, &text, 1, NULL, e) : e->code;
    if (r == QKV_OK && !(found = qkv_segmenter_run(g, p, e))) r = e->code;
    if (r == QKV_OK && !(over = qkv_instances_overlay(found, p, &text, 1, e))) r = e->code;
    if (r == QKV_OK) say_sum(w, qkv_picture_rgb(over), 64);
    qkv_picture_free(over);
    qkv_instances_free(found);
    qkv_picture_free(p);
    qkv_segmenter_free(g);
    qkv_session_free(s);
    return r;
}

const Scenario more[] = {
    {"a part of the graph as DOT", graph_dot},
    {"a part of the graph as SVG", graph_svg},
    {"the graph in a file", graph_file},
    {"the graph as JSON", graph_json},
    {"an extra file", extra_file},
    {"other names of sizes", with_names},
    {"other weights", with_weights},
    {"bf16", with_dtype},
    {"4 bits by GPTQ", quantize},
    {"8 bits", quantize_all},
    {"generalize", generalize},
    {"load from memory", of_memory},
    {"load with a cache", cached},
    {"save an .onnx and its data", onnx_outside},
    {"functions of rules", patterns},
    {"threads of one's own", executed},
    {"kept results, profile, trace", watched},
    {"fit", fit},
    {"WordPiece", words},
    {"CLIP's merges", merges_clip},
    {"a tokenizer.json", tokens},
    {"sample", sampled},
    {"pictures", pictures},
    {"segment", segments},
    {NULL, NULL},
};

/* ------------------------------------------------------------------ files that they read */

static bool put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;
    return f && fclose(f) == 0 && ok;
}

bool more_open(World *w)
{
    qkv_error e;
    char path[600];
    static uint8_t pixels[40 * 30 * 3];
    for (size_t i = 0; i < sizeof pixels; i += 3) pixels[i + (i / 3 % 40 < 20 ? 0 : 2)] = 255; /* red, then blue */
    path_to(w->words, w->cli, "vocab.txt");
    path_to(w->merges, w->folder, "merges.txt");
    path_to(w->tokens, w->folder, "tokenizer.json");
    path_to(w->picture, w->folder, "picture.png");
    path_to(w->cache, w->folder, "cache");
    path_to(path, w->cli, "ground.pt2");
    w->ground = qkv_model_load(path, NULL, &e);
    qkv_picture *p = qkv_picture_create(pixels, 30, 40, 3, &e);
    bool ok = w->ground && p && qkv_picture_write(p, w->picture, &e) == QKV_OK;
    qkv_picture_free(p);
    return ok && put(w->merges, merges) &&
           put(w->tokens, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"t\": 1, \"at\": 2, \"c\": 3, "
                          "\"cat\": 4}, \"merges\": [\"a t\", \"c at\"]}, \"added_tokens\": [{\"id\": 5, \"content\": "
                          "\"dog\", \"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                          "\"add_prefix_space\": false, \"use_regex\": true}}");
}
