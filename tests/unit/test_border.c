/* The public border: NULL in each pointer position of every public function is an error or nothing, never a crash;
 * sizes of structs are checked. tests/python/test_abi.py asks that every public function has its place here. */
#include "unit.h"
#include "onnx/wire/onnx.h"
#include "qkv_tools.h"
#include "qkv_train.h"
#include "qkv_vision.h"

static qkv_model *model;
static qkv_session *session;
static qkv_tensors *tensors;
static qkv_tokenizer *tokenizer;
static qkv_picture *picture;
static float numbers[6];
static int64_t shape[] = {2, 3};
static qkv_tensor x = {QKV_F32, 2, shape, NULL, numbers};

/* One node, y = relu(x). */
static const char *write_model(void)
{
    static const char *in[] = {"x"}, *out[] = {"y"};
    Err err = {0};
    OnnxDim dim[2] = {{.known = true, .value = 2}, {.known = true, .value = 3}};
    OnnxValueInfo info[2] = {
        {.name = "x", .type = {.kind = ONNX_TENSOR, .elem = ONNX_FLOAT, .has_shape = true, .rank = 2, .dim = dim}},
        {.name = "y", .type = {.kind = ONNX_TENSOR, .elem = ONNX_FLOAT, .has_shape = true, .rank = 2, .dim = dim}}};
    OnnxNode node = {.name = "n", .op = "Relu", .input = in, .ninput = 1, .output = out, .noutput = 1};
    OnnxGraph g = {
        .name = "main", .node = &node, .nnode = 1, .input = info, .ninput = 1, .output = info + 1, .noutput = 1};
    OnnxOpset opset = {.domain = "", .version = 18};
    OnnxModel m = {.ir_version = 8, .opset = &opset, .nopset = 1, .graph = &g};
    const char *path = unit_path("relu.onnx");
    OK(onnx_write(&m, path, NULL, &err));
    return path;
}

static int set_up(void **state)
{
    (void)state;
    qkv_error e = {0};
    const char *name = "x";
    uint8_t pixel[3] = {0};
    FILE *f = fopen(unit_path("vocab.txt"), "w");
    if (!f || fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", f) < 0 || fclose(f)) return 1;
    model = qkv_model_load(write_model(), NULL, &e);
    session = model ? qkv_session_create(model, NULL, &e) : NULL;
    if (!session || qkv_tensors_write(unit_path("x.npz"), &name, &x, 1, &e)) STOP("%s", e.message);
    tensors = qkv_tensors_open(unit_path("x.npz"), &e);
    tokenizer = qkv_tokenizer_wordpiece(unit_path("vocab.txt"), 0, &e);
    picture = qkv_picture_create(pixel, 1, 1, 3, &e);
    if (!tensors || !tokenizer || !picture) STOP("%s", e.message);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    qkv_picture_free(picture);
    qkv_tokenizer_free(tokenizer);
    qkv_tensors_free(tensors);
    qkv_session_free(session);
    qkv_model_free(model);
    return 0;
}

/* ------------------------------------------------------------------ NULL */

/* An argument that is NULL in call number k of its function, counted from 0. */
#define N(k, p) (at == (k) ? NULL : (p))
#define P(name) unit_path(name)
#define NAMES(...) ((const char *const[]){__VA_ARGS__})
#define DIMS ((int64_t[]){1})

typedef struct Row {
    const char *name;
    int pointers;                          /* that must not be NULL */
    bool (*refuses)(int at, qkv_error *e); /* the call with number `at` of them NULL */
} Row;

/* Functions of a status; those of an object, which is NULL then; those without an error, which give nothing. */
#define STATUS(name, call)                                                                                             \
    static bool null_##name(int at, qkv_error *e) { return (call) == QKV_USAGE; }
#define OBJECT(name, call)                                                                                             \
    static bool null_##name(int at, qkv_error *e) { return !(call) && (!e || e->code == QKV_USAGE); }
#define NOTHING(name, call)                                                                                            \
    static bool null_##name(int at, qkv_error *e)                                                                      \
    {                                                                                                                  \
        if (e) e->code = QKV_USAGE, strcpy(e->message, #name ": without an error of its own");                         \
        (void)at;                                                                                                      \
        return !(call);                                                                                                \
    }
#define VOID(name, call) NOTHING(name, ((call), 0))

static qkv_tensor out;
static qkv_difference difference;
static int64_t ids[8];
static float pixels[3];
static uint8_t bytes[3];
static qkv_instances *found[1];
static qkv_allocator allocator = {.struct_size = sizeof allocator};
static size_t size;
static int64_t table_rows;
static const char *table;
static qkv_stats stats = {.struct_size = sizeof stats};
static double shares[64];
static qkv_peak peak = {.struct_size = sizeof peak};
static qkv_fit_options fit = {.struct_size = sizeof fit};
static qkv_train_options train = {.struct_size = sizeof train};

NOTHING(dtype_from_name, qkv_dtype_from_name(N(0, "f32")))
STATUS(set_allocator, qkv_set_allocator(N(0, &(qkv_allocator){.struct_size = sizeof(qkv_allocator)}), e))
STATUS(set_files, qkv_set_files(N(0, &(qkv_files){.struct_size = sizeof(qkv_files)}), e))
VOID(get_allocator, qkv_get_allocator(N(0, &allocator)))
OBJECT(model_load, qkv_model_load(N(0, P("relu.onnx")), NULL, e))
OBJECT(load_memory, qkv_model_load_memory(N(0, bytes), sizeof bytes, NULL, e))
OBJECT(load_names, qkv_model_load(P("relu.onnx"),
                                  &(qkv_load_options){.struct_size = sizeof(qkv_load_options),
                                                      .fixed_names = N(0, NAMES(N(1, "x"))),
                                                      .fixed = N(2, &x),
                                                      .n_fixed = 1},
                                  e))
VOID(model_free, qkv_model_free(N(0, model)))
NOTHING(input_count, qkv_model_input_count(N(0, model)))
NOTHING(input_name, qkv_model_input_name(N(0, model), 0))
NOTHING(input_dtype, qkv_model_input_dtype(N(0, model), 0))
NOTHING(input_rank, qkv_model_input_rank(N(0, model), 0) + 1)
NOTHING(input_dim, qkv_model_input_dim(N(0, model), 0, 0))
NOTHING(output_count, qkv_model_output_count(N(0, model)))
NOTHING(output_name, qkv_model_output_name(N(0, model), 0))
NOTHING(output_label, qkv_model_output_label(N(0, model), 0))
NOTHING(symbol_count, qkv_model_symbol_count(N(0, model)))
NOTHING(symbol, qkv_model_symbol(N(0, model), 0, NULL, NULL))
NOTHING(model_state, qkv_model_state(N(0, model)))
NOTHING(model_cached, qkv_model_cached(N(0, model), NULL))
OBJECT(describe, qkv_model_describe(N(0, model), e))
OBJECT(graph_text, qkv_model_graph_text(N(0, model), e))
OBJECT(graph_text_after, qkv_model_graph_text_after(N(0, model), NULL, e))
OBJECT(extra_file, qkv_model_extra_file(N(0, model), N(1, "a"), N(2, &size), e))
STATUS(input_table, qkv_model_input_table(N(0, model), 0, N(1, &table), N(2, &table_rows), e))
STATUS(model_save, qkv_model_save(N(0, model), N(1, P("o.pt2")), e))
STATUS(output_tolerances, qkv_model_output_tolerances(N(0, model), N(1, shares), e))
STATUS(model_pack, qkv_model_pack(N(0, model), N(1, P("o.qkv")), NULL, e))
STATUS(save_onnx, qkv_model_save_onnx(N(0, model), N(1, P("o.onnx")), NULL, NULL, e))
OBJECT(rewrite, qkv_model_rewrite(N(0, model), NULL, NULL, e))
OBJECT(rewrite_files, qkv_model_rewrite(model,
                                        &(qkv_rewrite_options){.struct_size = sizeof(qkv_rewrite_options),
                                                               .rule_files = N(0, NAMES(N(1, "rules"))),
                                                               .rule_file_count = 1},
                                        NULL, e))
STATUS(sdpa_choice, qkv_sdpa_choice(N(0, &(qkv_sdpa_call){.struct_size = 0}), NULL, 0, NULL, NULL, e))
OBJECT(backends, qkv_model_backends(N(0, model), NULL, e))
OBJECT(backends_dims, qkv_model_backends(model,
                                         &(qkv_backends_options){.struct_size = sizeof(qkv_backends_options),
                                                                 .dim_names = N(0, NAMES(N(1, "batch"))),
                                                                 .dims = N(2, DIMS),
                                                                 .n_dims = 1},
                                         e))
OBJECT(quantize, qkv_model_quantize(N(0, model), NULL, NULL, e))
OBJECT(quantize_data, qkv_model_quantize(model,
                                         &(qkv_quantize_options){.struct_size = sizeof(qkv_quantize_options),
                                                                 .names = N(0, NAMES(N(1, "x"))),
                                                                 .data = N(2, &x),
                                                                 .n_data = 1},
                                         NULL, e))
OBJECT(quantize_skip,
       qkv_model_quantize(model,
                          &(qkv_quantize_options){
                              .struct_size = sizeof(qkv_quantize_options), .skip = N(0, NAMES(N(1, "x"))), .n_skip = 1},
                          NULL, e))
STATUS(prove, qkv_model_prove(N(0, model), N(1, model), NULL, NULL, e))
STATUS(save_certified, qkv_model_save_certified(N(0, model), N(1, model), NULL, N(2, P("o.pt2")), NULL, e))
STATUS(certificate_check, qkv_certificate_check(N(0, model), N(1, model), "{}", NULL, e))
STATUS(prove_dims, qkv_model_prove(model, model,
                                   &(qkv_prove_options){.struct_size = sizeof(qkv_prove_options),
                                                        .dim_names = N(0, NAMES(N(1, "batch"))),
                                                        .dims = N(2, DIMS),
                                                        .n_dims = 1},
                                   NULL, e))
OBJECT(generalize, qkv_model_generalize(N(0, ((const qkv_model *const[]){model, N(1, model)})), 2, NULL, NULL, e))
OBJECT(joint, qkv_model_joint(N(0, model), NULL, NULL, e))
OBJECT(graph_json, qkv_model_graph_json(N(0, model), NULL, e))
STATUS(check, qkv_check(N(0, P("relu.onnx")), NULL, NULL, e))
NOTHING(check_explain, qkv_check_explain(N(0, "Q100")))
OBJECT(extract, qkv_model_extract(N(0, model), N(1, NAMES(N(2, "x"))), 1, N(3, NAMES(N(4, "y"))), 1, e))
NOTHING(weight_count, qkv_model_weight_count(N(0, model)))
NOTHING(model_weight, qkv_model_weight(N(0, model), 0, NULL, NULL, NULL))
OBJECT(with_weights, qkv_model_with_weights(N(0, model), N(1, NAMES(N(2, "w"))), N(3, &x), 1, e))
OBJECT(with_size_names, qkv_model_with_size_names(N(0, model), N(1, NAMES(N(2, "s0"))), N(3, NAMES(N(4, "b"))), 1, e))
NOTHING(node_module, qkv_model_node_module(N(0, model), N(1, "y")))
OBJECT(with_dtype, qkv_model_with_dtype(N(0, model), QKV_F16, NULL, e))
OBJECT(graph_view, qkv_model_graph_view(N(0, model), NULL, e))
STATUS(save_graph, qkv_model_save_graph(N(0, model), N(1, P("relu.dot")), NULL, e))
STATUS(train_defaults, qkv_train_defaults(N(0, &train), QKV_OPTIMIZER_ADAMW, e))
OBJECT(session_create, qkv_session_create(N(0, model), NULL, e))
VOID(session_free, qkv_session_free(N(0, session)))
STATUS(set_input, qkv_session_set_input(N(0, session), N(1, "x"), N(2, &x), e))
STATUS(set_shape, qkv_session_set_input(session, "x", &(qkv_tensor){QKV_F32, 2, N(0, shape), NULL, N(1, numbers)}, e))
STATUS(run, qkv_session_run(N(0, session), e))
VOID(clear_inputs, qkv_session_clear_inputs(N(0, session)))
STATUS(keep, qkv_session_keep(N(0, session), N(1, "x"), e))
OBJECT(session_kept, qkv_session_kept(N(0, session), e))
STATUS(use_kept, qkv_session_use_kept(N(0, session), N(1, NULL), e))
NOTHING(kept_bytes, qkv_kept_bytes(N(0, NULL)) != 0)
VOID(kept_free, qkv_kept_free(N(0, NULL)))
STATUS(feed, qkv_session_feed(N(0, session), N(1, "x"), NULL, e))
STATUS(output, qkv_session_output(N(0, session), 0, N(1, &out), e))
VOID(output_memory, qkv_session_output_memory(N(0, session), NULL, NULL))
STATUS(random_inputs, qkv_session_random_inputs(N(0, session), N(1, NAMES(N(2, "batch"))), N(3, DIMS), 1, 0, e))
STATUS(output_by_name, qkv_session_output_by_name(N(0, session), N(1, "y"), N(2, &out), e))
NOTHING(profile_from_name, qkv_onnx_profile_from_name(N(0, "ort"), NULL))
NOTHING(optimizer_from_name, qkv_optimizer_from_name(N(0, "sgd"), NULL))
NOTHING(schedule_from_name, qkv_schedule_from_name(N(0, "step"), NULL))
NOTHING(graph_format_from_name, qkv_graph_format_from_name(N(0, "svg"), NULL))
NOTHING(decompose_from_name, qkv_decompose_from_name(N(0, "math"), NULL))
NOTHING(recompute_from_name, qkv_recompute_from_name(N(0, "cheap"), NULL))
NOTHING(calibration_from_name, qkv_calibration_from_name(N(0, "mse"), NULL))
NOTHING(phase_from_name, qkv_phase_from_name(N(0, "fuse"), NULL))
NOTHING(target_from_name, qkv_target_from_name(N(0, "ort"), NULL))
STATUS(input, qkv_session_input(N(0, session), 0, N(1, &out), e))
VOID(reset, qkv_session_reset(N(0, session)))
VOID(cancel, qkv_session_cancel(N(0, session), 0))
VOID(seed, qkv_session_seed(N(0, session), 0))
STATUS(step, qkv_session_step(N(0, session), NULL, e))
STATUS(weight, qkv_session_weight(N(0, session), N(1, "w"), N(2, &out), e))
STATUS(set_weight, qkv_session_set_weight(N(0, session), N(1, "w"), N(2, &x), e))
STATUS(session_save, qkv_session_save(N(0, session), N(1, P("c.safetensors")), e))
STATUS(session_load, qkv_session_load(N(0, session), N(1, P("c.safetensors")), e))
OBJECT(trained, qkv_session_trained(N(0, session), e))
STATUS(session_fit, qkv_session_fit(N(0, session), N(1, &fit), NULL, e))
STATUS(session_stats, qkv_session_stats(N(0, session), N(1, &stats), e))
VOID(profile, qkv_session_profile(N(0, session), 0))
OBJECT(profile_json, qkv_session_profile_json(N(0, session), e))
OBJECT(memory_json, qkv_session_memory_json(N(0, session), e))
STATUS(trace, qkv_session_trace(N(0, session), 8, e))
STATUS(trace_write, qkv_session_trace_write(N(0, session), N(1, P("t.json")), e))
static void on_data_file(void *user, const char *name) { (void)user, (void)name; }
STATUS(onnx_data_files, qkv_onnx_data_files(N(0, P("relu.onnx")), N(1, on_data_file), NULL, e))
OBJECT(trace_json, qkv_session_trace_json(N(0, session), e))
STATUS(measure_peak, qkv_measure_peak(1, N(0, &peak), e))
VOID(on_node, qkv_session_on_node(N(0, session), NULL, NULL))
VOID(on_progress, qkv_session_on_progress(N(0, session), NULL, NULL))
STATUS(compare, qkv_compare(N(0, &x), N(1, &x), 0, 0, N(2, &difference), e))
OBJECT(tensors_open, qkv_tensors_open(N(0, P("x.npz")), e))
VOID(tensors_free, qkv_tensors_free(N(0, tensors)))
NOTHING(tensors_count, qkv_tensors_count(N(0, tensors)))
NOTHING(tensors_name, qkv_tensors_name(N(0, tensors), 0))
NOTHING(tensors_at, qkv_tensors_at(N(0, tensors), 0))
NOTHING(tensors_find, qkv_tensors_find(N(0, tensors), N(1, "x")))
NOTHING(tensors_metadata, qkv_tensors_metadata(N(0, tensors), N(1, "key")))
STATUS(file_write, qkv_file_write(N(0, P("f")), N(1, "a"), 1, e))
OBJECT(file_open, qkv_file_open(N(0, P("no/f")), e))
STATUS(file_add, qkv_file_add(N(0, NULL), N(1, "a"), 1, e))
STATUS(file_finish, qkv_file_finish(N(0, NULL), e))
VOID(file_free, qkv_file_free(N(0, NULL)))
STATUS(tensors_write, qkv_tensors_write(N(0, P("o.npz")), N(1, NAMES(N(2, "x"))), N(3, &x), 1, e))
STATUS(image_read, qkv_image_read(N(0, P("i.png")), 3, 1, 1, NULL, NULL, N(1, pixels), e))
OBJECT(wordpiece, qkv_tokenizer_wordpiece(N(0, P("vocab.txt")), 0, e))
OBJECT(clip, qkv_tokenizer_clip(N(0, P("vocab.txt")), 0, e))
OBJECT(tokenizer_json, qkv_tokenizer_json(N(0, P("vocab.txt")), e))
NOTHING(tokenizer_size, qkv_tokenizer_size(N(0, tokenizer)))
NOTHING(tokenizer_bytes, qkv_tokenizer_bytes(N(0, tokenizer), 0, N(1, &(size_t){0})))
NOTHING(tokenizer_special, qkv_tokenizer_is_special(N(0, tokenizer), 0))
NOTHING(tokenizer_find, qkv_tokenizer_find(N(0, tokenizer), N(1, "a")) + 1)
OBJECT(sample, qkv_sample(N(0, ((float[]){1, 2})), 2, NULL, NULL, e) + 1)
VOID(tokenizer_free, qkv_tokenizer_free(N(0, tokenizer)))
OBJECT(encode, qkv_tokenizer_encode(N(0, tokenizer), N(1, "a"), N(2, ids), 8, e) + 1)
OBJECT(picture_read, qkv_picture_read(N(0, P("i.png")), e))
OBJECT(picture_read_memory, qkv_picture_read_memory(N(0, bytes), 1, 0, e))
OBJECT(picture_create, qkv_picture_create(N(0, bytes), 1, 1, 3, e))
VOID(picture_free, qkv_picture_free(N(0, picture)))
NOTHING(picture_width, qkv_picture_width(N(0, picture)))
NOTHING(picture_height, qkv_picture_height(N(0, picture)))
NOTHING(picture_rgb, qkv_picture_rgb(N(0, picture)))
STATUS(picture_write, qkv_picture_write(N(0, picture), N(1, P("i.png")), e))
STATUS(picture_input, qkv_picture_input(N(0, picture), 1, 1, N(1, pixels), N(2, pixels), N(3, pixels), e))
OBJECT(segmenter_create, qkv_segmenter_create(N(0, model), N(1, session), NULL, e))
VOID(segmenter_free, qkv_segmenter_free(N(0, NULL)))
NOTHING(segmenter_threshold, qkv_segmenter_threshold(N(0, NULL)) != 0)
NOTHING(segmenter_context, qkv_segmenter_context(N(0, NULL)))
NOTHING(segmenter_batch, qkv_segmenter_batch(N(0, NULL)))
VOID(features, qkv_segmenter_features(N(0, NULL), N(1, DIMS), N(2, DIMS)))
STATUS(set_threshold, qkv_segmenter_set_threshold(N(0, NULL), 0, e))
STATUS(prompts, qkv_segmenter_prompts(N(0, NULL), NAMES("cat"), 1, NULL, e))
OBJECT(segmenter_run, qkv_segmenter_run(N(0, NULL), picture, e))
STATUS(run_many, qkv_segmenter_run_many(N(0, NULL), (const qkv_picture *const[]){picture}, 1, found, e))
VOID(instances_free, qkv_instances_free(N(0, NULL)))
NOTHING(instances_count, qkv_instances_count(N(0, NULL)))
NOTHING(instances_at, qkv_instances_at(N(0, NULL), 0))
VOID(instances_mask, qkv_instances_mask(N(0, NULL), 0, bytes))
STATUS(write_mask, qkv_instances_write_mask(N(0, NULL), 0, P("m.png"), e))
OBJECT(overlay, qkv_instances_overlay(N(0, NULL), picture, NAMES("cat"), 1, e))

#define ROW(name, pointers)                                                                                            \
    {                                                                                                                  \
#name, pointers, null_##name                                                                                   \
    }
static const Row rows[] = {
    ROW(dtype_from_name, 1),
    ROW(set_allocator, 1),
    ROW(set_files, 1),
    ROW(get_allocator, 1),
    ROW(model_load, 1),
    ROW(load_memory, 1),
    ROW(load_names, 3),
    ROW(model_free, 1),
    ROW(input_count, 1),
    ROW(input_name, 1),
    ROW(input_dtype, 1),
    ROW(input_rank, 1),
    ROW(input_dim, 1),
    ROW(output_count, 1),
    ROW(output_name, 1),
    ROW(output_label, 1),
    ROW(symbol_count, 1),
    ROW(symbol, 1),
    ROW(model_state, 1),
    ROW(model_cached, 1),
    ROW(describe, 1),
    ROW(graph_text, 1),
    ROW(graph_text_after, 1),
    ROW(graph_json, 1),
    ROW(extra_file, 3),
    ROW(input_table, 3),
    ROW(model_save, 2),
    ROW(output_tolerances, 2),
    ROW(model_pack, 2),
    ROW(save_onnx, 2),
    ROW(rewrite, 1),
    ROW(rewrite_files, 2),
    ROW(sdpa_choice, 1),
    ROW(backends, 1),
    ROW(backends_dims, 3),
    ROW(quantize, 1),
    ROW(quantize_data, 3),
    ROW(quantize_skip, 2),
    ROW(prove, 2),
    ROW(save_certified, 3),
    ROW(certificate_check, 2),
    ROW(prove_dims, 3),
    ROW(generalize, 2),
    ROW(joint, 1),
    ROW(check, 1),
    ROW(check_explain, 1),
    ROW(extract, 5),
    ROW(weight_count, 1),
    ROW(model_weight, 1),
    ROW(with_weights, 4),
    ROW(with_size_names, 5),
    ROW(node_module, 2),
    ROW(with_dtype, 1),
    ROW(graph_view, 1),
    ROW(save_graph, 2),
    ROW(train_defaults, 1),
    ROW(session_create, 1),
    ROW(session_free, 1),
    ROW(set_input, 3),
    ROW(set_shape, 2),
    ROW(run, 1),
    ROW(clear_inputs, 1),
    ROW(keep, 2),
    ROW(session_kept, 1),
    ROW(use_kept, 2),
    ROW(kept_bytes, 1),
    ROW(kept_free, 1),
    ROW(feed, 2),
    ROW(output, 2),
    ROW(output_memory, 1),
    ROW(random_inputs, 4),
    ROW(input, 2),
    ROW(output_by_name, 3),
    ROW(profile_from_name, 1),
    ROW(optimizer_from_name, 1),
    ROW(schedule_from_name, 1),
    ROW(graph_format_from_name, 1),
    ROW(decompose_from_name, 1),
    ROW(recompute_from_name, 1),
    ROW(calibration_from_name, 1),
    ROW(phase_from_name, 1),
    ROW(target_from_name, 1),
    ROW(reset, 1),
    ROW(cancel, 1),
    ROW(seed, 1),
    ROW(step, 1),
    ROW(weight, 3),
    ROW(set_weight, 3),
    ROW(session_save, 2),
    ROW(session_load, 2),
    ROW(trained, 1),
    ROW(session_fit, 2),
    ROW(session_stats, 2),
    ROW(profile, 1),
    ROW(profile_json, 1),
    ROW(memory_json, 1),
    ROW(trace, 1),
    ROW(trace_write, 2),
    ROW(onnx_data_files, 2),
    ROW(trace_json, 1),
    ROW(measure_peak, 1),
    ROW(on_node, 1),
    ROW(on_progress, 1),
    ROW(compare, 3),
    ROW(tensors_open, 1),
    ROW(tensors_free, 1),
    ROW(tensors_count, 1),
    ROW(tensors_name, 1),
    ROW(tensors_at, 1),
    ROW(tensors_find, 2),
    ROW(tensors_metadata, 2),
    ROW(file_write, 2),
    ROW(file_open, 1),
    ROW(file_add, 1),
    ROW(file_finish, 1),
    ROW(file_free, 1),
    ROW(tensors_write, 4),
    ROW(image_read, 2),
    ROW(wordpiece, 1),
    ROW(clip, 1),
    ROW(tokenizer_json, 1),
    ROW(tokenizer_size, 1),
    ROW(tokenizer_bytes, 2),
    ROW(tokenizer_special, 1),
    ROW(tokenizer_find, 2),
    ROW(sample, 1),
    ROW(tokenizer_free, 1),
    ROW(encode, 3),
    ROW(picture_read, 1),
    ROW(picture_read_memory, 1),
    ROW(picture_create, 1),
    ROW(picture_free, 1),
    ROW(picture_width, 1),
    ROW(picture_height, 1),
    ROW(picture_rgb, 1),
    ROW(picture_write, 2),
    ROW(picture_input, 2),
    ROW(segmenter_create, 2),
    ROW(segmenter_free, 1),
    ROW(segmenter_threshold, 1),
    ROW(segmenter_context, 1),
    ROW(segmenter_batch, 1),
    ROW(features, 3),
    ROW(set_threshold, 1),
    ROW(prompts, 1),
    ROW(segmenter_run, 1),
    ROW(run_many, 1),
    ROW(instances_free, 1),
    ROW(instances_count, 1),
    ROW(instances_at, 1),
    ROW(instances_mask, 1),
    ROW(write_mask, 1),
    ROW(overlay, 1),
};

static void test_null(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int at = 0; at < rows[i].pointers; at++) {
            qkv_error e = {0};
            if (!rows[i].refuses(at, &e)) STOP("%s, pointer %d: not refused: %s", rows[i].name, at, e.message);
            if (e.code != QKV_USAGE || strlen(e.message) < 8) STOP("%s, pointer %d: '%s'", rows[i].name, at, e.message);
            if (!rows[i].refuses(at, NULL)) STOP("%s, pointer %d, and no error: not refused", rows[i].name, at);
        }
}

/* A NULL error is fine, of calls that go well, too. */
static void test_no_error(void **state)
{
    (void)state;
    assert_int_equal(qkv_session_set_input(session, "x", &x, NULL), QKV_OK);
    assert_int_equal(qkv_session_run(session, NULL), QKV_OK);
    assert_int_equal(qkv_session_output(session, 0, &out, NULL), QKV_OK);
    assert_int_equal(qkv_session_output(session, 1, &out, NULL), QKV_USAGE);
}

/* ------------------------------------------------------------------ memory */

static void test_load_memory(void **state)
{
    (void)state;
    static unsigned char file[4096];
    qkv_error e = {0};
    FILE *f = fopen(P("relu.onnx"), "rb");
    size_t n = f ? fread(file, 1, sizeof file, f) : 0;
    assert_true(f && !fclose(f) && n > 0 && n < sizeof file);
    qkv_model *m = qkv_model_load_memory(file, n, NULL, &e);
    memset(file, 0xff, sizeof file); /* it has a copy */
    qkv_session *s = m ? qkv_session_create(m, NULL, &e) : NULL;
    numbers[0] = 3;
    assert_true(s && !qkv_session_set_input(s, "x", &x, &e) && !qkv_session_run(s, &e));
    assert_int_equal(qkv_session_output(s, 0, &out, &e), QKV_OK);
    assert_true(((const float *)out.data)[0] == 3);
    qkv_session_free(s);
    qkv_model_free(m);
    for (size_t k = 0; k <= sizeof file; k += sizeof file) {
        assert_null(qkv_model_load_memory(file, k, NULL, &e));
        assert_int_equal(e.code, QKV_UNREADABLE);
        assert_true(strstr(e.message, "(memory)") != NULL);
    }
    assert_null(qkv_model_load("(memory)", NULL, &e)); /* what was given is forgotten */
    assert_int_equal(e.code, QKV_UNREADABLE);
}

/* ------------------------------------------------------------------ names */

static void test_output_by_name(void **state)
{
    (void)state;
    qkv_error e = {0};
    numbers[4] = 2;
    const char *name = qkv_model_output_name(model, 0);
    assert_int_equal(qkv_session_set_input(session, "x", &x, &e), QKV_OK);
    assert_int_equal(qkv_session_run(session, &e), QKV_OK);
    for (int i = 0; i < 2; i++) {
        out = (qkv_tensor){0};
        assert_int_equal(qkv_session_output_by_name(session, i ? "0" : name, &out, &e), QKV_OK);
        assert_true(out.rank == 2 && ((const float *)out.data)[4] == 2);
    }
    assert_int_equal(qkv_session_output_by_name(session, "logits", &out, &e), QKV_USAGE);
    assert_true(strstr(e.message, "'logits'") && strstr(e.message, name));
}

/* The names of a choice, in order, and back. */
#define CHOICE(choice, names, first, next)                                                                             \
    do {                                                                                                               \
        char all[64] = "";                                                                                             \
        qkv_##choice back;                                                                                             \
        for (int i = (first); qkv_##choice##_name((qkv_##choice)i); i = (next)) {                                      \
            strcat(strcat(all, qkv_##choice##_name((qkv_##choice)i)), " ");                                            \
            assert_true(qkv_##choice##_from_name(qkv_##choice##_name((qkv_##choice)i), &back) && (int)back == i);      \
        }                                                                                                              \
        assert_string_equal(all, names);                                                                               \
        assert_false(qkv_##choice##_from_name("other", NULL));                                                         \
        assert_null(qkv_##choice##_name((qkv_##choice) - 1));                                                          \
    } while (0)

/* ------------------------------------------------------------------ ops of one's own */

static qkv_status same_shape(void *user, int n_args, const qkv_op_arg *args, int n_results, qkv_op_result *results,
                             qkv_error *err)
{
    (void)user, (void)n_args, (void)n_results, (void)err;
    results->dtype = args->tensors->dtype;
    results->rank = args->tensors->rank;
    for (int i = 0; i < results->rank; i++) snprintf(results->dim[i], QKV_OP_DIM, "%s", args->dims[0][i]);
    return QKV_OK;
}

static qkv_status scaled(void *user, int n_args, const qkv_op_arg *args, int n_results, const qkv_tensor *results,
                         int threads, qkv_error *err)
{
    (void)n_args, (void)n_results, (void)threads, (void)err;
    const float *in = args[0].tensors->data;
    int64_t n = 1;
    for (int i = 0; i < results->rank; i++) n *= results->shape[i];
    for (int64_t i = 0; i < n; i++) ((float *)results->data)[i] = in[i] * (float)*args[1].floats + *(float *)user;
    return QKV_OK;
}

static void test_ops_of_ones_own(void **state)
{
    (void)state;
    static float one = 1;
    qkv_error e;
    const char *schema = "(Tensor x, float by=3.0) -> Tensor";
    qkv_op op = {sizeof op, "border::scaled", schema, same_shape, scaled, NULL, &one}, bad;
    assert_int_equal(qkv_register_op(NULL, &e), QKV_USAGE);
    bad = op, bad.struct_size = 0;
    assert_int_equal(qkv_register_op(&bad, &e), QKV_USAGE);
    bad = op, bad.kernel = NULL;
    assert_int_equal(qkv_register_op(&bad, &e), QKV_USAGE);
    assert_non_null(strstr(e.message, "expected a shape function and a kernel"));
    bad = op, bad.schema = "(Tensor x) -> int";
    assert_int_equal(qkv_register_op(&bad, &e), QKV_USAGE);
    assert_false(qkv_op_known("border.scaled.default"));
    assert_int_equal(qkv_register_op(&op, &e), QKV_OK);
    assert_true(qkv_op_known("border.scaled.default") && qkv_op_known("torch.ops.border.scaled.default"));
    assert_int_equal(qkv_register_op(&op, &e), QKV_USAGE);
    assert_non_null(strstr(e.message, "already"));
    char name[32];
    for (int i = 1; i < 32; i++) { /* as many as there are rows, and one more */
        snprintf(name, sizeof name, "border::op_%d", i);
        bad = op, bad.name = name;
        assert_int_equal(qkv_register_op(&bad, &e), QKV_OK);
    }
    bad = op, bad.name = "border::more";
    assert_int_equal(qkv_register_op(&bad, &e), QKV_LIMIT);
}

/* ------------------------------------------------------------------ functions of rules */

typedef struct Rules {
    const char *graft;
    int guards, grafts;
} Rules;

static qkv_status relu_guard(void *user, qkv_match *m, qkv_error *err)
{
    Rules *r = user;
    qkv_match_view v = {.struct_size = sizeof v}, none = {0};
    r->guards++;
    assert_int_equal(qkv_match_look(NULL, "0", &v, err), QKV_USAGE);
    assert_int_equal(qkv_match_look(m, NULL, &v, err), QKV_USAGE);
    assert_int_equal(qkv_match_look(m, "0", NULL, err), QKV_USAGE);
    assert_int_equal(qkv_match_look(m, "0", &none, err), QKV_USAGE);
    static const char *const bad[] = {"", "2", "-1", "99999999999", "1/self", "0/self/0", "0/frob"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(qkv_match_look(m, bad[i], &v, err), QKV_USAGE);
    assert_int_equal(qkv_match_build(m, "?0", err), QKV_USAGE); /* a guard builds nothing */
    assert_int_equal(qkv_match_look(m, "0", &v, err), QKV_OK);
    assert_string_equal(v.op, "aten.relu.default");
    assert_int_equal(v.n_parameters, 1);
    assert_string_equal(v.parameters[0], "self");
    assert_int_equal(v.uses, 1);
    assert_null(v.weight);
    assert_int_equal(qkv_match_look(m, "0/self", &v, err), QKV_OK);
    assert_string_equal(v.name, "x");
    assert_null(v.op);
    assert_int_equal(v.arg.kind, QKV_OP_TENSORS);
    assert_int_equal(v.arg.tensors->dtype, QKV_F32);
    assert_string_equal(v.arg.dims[0][1], "3");
    assert_true(v.low[1] == 3 && v.high[1] == 3);
    return QKV_OK;
}

static qkv_status relu_graft(void *user, qkv_match *m, qkv_error *err)
{
    Rules *r = user;
    r->grafts++;
    assert_int_equal(qkv_match_build(NULL, "?0", err), QKV_USAGE);
    assert_int_equal(qkv_match_build(m, NULL, err), QKV_USAGE);
    return r->graft ? qkv_match_build(m, r->graft, err) : QKV_OK;
}

/* What the report says of a rule that turns relu(x) into what `graft` is. */
static void rewritten(const char *graft, const char *said)
{
    Rules r = {.graft = graft};
    qkv_rule_function f = {"mine", relu_guard, relu_graft, &r};
    const char *rule = "(reorder my_relu (= ?y (relu ?x)) (@mine ?y ?x) (mine ?y ?x))";
    qkv_rewrite_options o = {.struct_size = sizeof o,
                             .rule_texts = &rule,
                             .rule_text_count = 1,
                             .n_functions = 1,
                             .functions = &f,
                             .no_builtin_rules = 1,
                             .prove = 1};
    char *report = NULL;
    qkv_error e;
    qkv_model *made = qkv_model_rewrite(model, &o, &report, &e);
    if (!made) STOP("%s", e.message);
    assert_true(r.guards > 0 && r.grafts > 0);
    if (!strstr(report, said)) STOP("%s\nexpected: %s", report, said);
    qkv_free(report);
    qkv_model_free(made);
}

static void test_functions_of_rules(void **state)
{
    (void)state;
    qkv_error e;
    rewritten("(clamp ?1 0)", "aten.clamp.default");
    rewritten("(clamp ?0/self 0)", "equal on random exact payloads");
    rewritten("(clamp ?1 0", "the list that opens here is never closed");
    rewritten("?1 ?0", "expected one graft, found 2");
    rewritten("(clamp ?0/frob 0)", "has no parameter 'frob'");
    rewritten("(cat [?0 ?1])", "the result would have sizes");
    rewritten(NULL, "mine: it built nothing");
    qkv_rule_function f = {"no-name", relu_guard, NULL, NULL};
    qkv_rewrite_options o = {.struct_size = sizeof o, .n_functions = 1, .functions = &f};
    assert_null(qkv_model_rewrite(model, &o, NULL, &e));
    assert_non_null(strstr(e.message, "functions[0]: expected a name"));
    o.functions = NULL;
    assert_null(qkv_model_rewrite(model, &o, NULL, &e));
    assert_int_equal(e.code, QKV_USAGE);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(qkv_status_name(QKV_UNSUPPORTED), "unsupported");
    assert_null(qkv_status_name((qkv_status)6));
    assert_string_equal(qkv_sdpa_backend_name(QKV_SDPA_CUDNN), "cudnn");
    assert_null(qkv_sdpa_backend_name((qkv_sdpa_backend)4));
    assert_string_equal(qkv_weight_kind_name(QKV_BUFFER), "buffer");
    assert_null(qkv_weight_kind_name((qkv_weight_kind)-1));
    CHOICE(onnx_profile, "ort spec openvino tensorrt ", 0, i + 1);
    CHOICE(graph_format, "text dot svg ", 0, i + 1);
    CHOICE(optimizer, "adamw adam sgd ", 0, i + 1);
    CHOICE(schedule, "constant linear cosine step ", 0, i + 1);
    CHOICE(decompose, "none core math ", 0, i + 1);
    CHOICE(recompute, "none cheap blocks ", 0, i + 1);
    CHOICE(calibration, "minmax average percentile entropy mse ", 0, i + 1);
    CHOICE(phase, "recompose convert fuse ", 1, 2 * i);
    CHOICE(target, "qkv ort openvino tensorrt ", 1, 2 * i);
    int by_default = -1;
    assert_string_equal(qkv_pass_name(0, NULL), "import");
    assert_true(qkv_pass_name(0, &by_default) && by_default == 1);
    assert_true(qkv_op_known("aten.add.Tensor") && qkv_op_known("_operator.mul") && qkv_op_known("aten.relu_.default"));
    assert_false(qkv_op_known("my.op.default") || qkv_op_known(NULL) || qkv_op_known(""));
    assert_null(qkv_pass_name(-1, NULL));
    assert_null(qkv_pass_name(1000, &by_default));
    assert_int_equal(by_default, 0);
}

/* ------------------------------------------------------------------ sizes of structs */

typedef struct Larger { /* as a later library's header has it */
    qkv_session_options o;
    int64_t field;
} Larger;

static qkv_status create_with(const void *options)
{
    qkv_error e = {0};
    qkv_session *s = qkv_session_create(model, options, &e);
    qkv_session_free(s);
    assert_true(s || (strstr(e.message, "qkv_session_options") && strlen(e.message) > 40));
    return s ? QKV_OK : e.code;
}

static void test_option_sizes(void **state)
{
    (void)state;
    const size_t first = offsetof(qkv_session_options, executor);
    for (size_t n = 0; n < first; n++)
        assert_int_equal(create_with(&(qkv_session_options){.struct_size = n, .threads = 1}), QKV_USAGE);
    assert_int_equal(create_with(&(qkv_session_options){.struct_size = first, .threads = 1}), QKV_OK);
    assert_int_equal(create_with(&(qkv_session_options){.struct_size = (size_t)1 << 40}), QKV_USAGE);
    Larger later = {.o.struct_size = sizeof later, .o.threads = 1};
    assert_int_equal(create_with(&later), QKV_OK);
    later.field = 1;
    assert_int_equal(create_with(&later), QKV_USAGE);
}

static bool no_size_is_refused(qkv_status s, const qkv_error *e)
{
    return s == QKV_USAGE && strstr(e->message, "size");
}

#define NO_SIZE(type, call)                                                                                            \
    do {                                                                                                               \
        type empty = {0};                                                                                              \
        qkv_error e = {0};                                                                                             \
        if (!no_size_is_refused((call), &e)) STOP(#type " without a size: %s", e.message);                             \
    } while (0)
#define MADE(call) ((call) ? QKV_OK : e.code)

/* A size that was forgotten, of every struct that has one. */
static void test_no_size(void **state)
{
    (void)state;
    NO_SIZE(qkv_allocator, qkv_set_allocator(&empty, &e));
    NO_SIZE(qkv_files, qkv_set_files(&empty, &e));
    NO_SIZE(qkv_load_options, MADE(qkv_model_load(P("relu.onnx"), &empty, &e)));
    NO_SIZE(qkv_pack_info, qkv_model_pack(model, P("o.qkv"), &empty, &e));
    NO_SIZE(qkv_onnx_options, qkv_model_save_onnx(model, P("o.onnx"), &empty, NULL, &e));
    NO_SIZE(qkv_rewrite_options, MADE(qkv_model_rewrite(model, &empty, NULL, &e)));
    NO_SIZE(qkv_sdpa_call, qkv_sdpa_choice(&empty, NULL, 0, NULL, NULL, &e));
    NO_SIZE(qkv_backends_options, MADE(qkv_model_backends(model, &empty, &e)));
    NO_SIZE(qkv_quantize_options, MADE(qkv_model_quantize(model, &empty, NULL, &e)));
    NO_SIZE(qkv_prove_options, qkv_model_prove(model, model, &empty, NULL, &e));
    NO_SIZE(qkv_generalize_options, MADE(qkv_model_generalize(NULL, 0, &empty, NULL, &e)));
    NO_SIZE(qkv_joint_options, MADE(qkv_model_joint(model, &empty, NULL, &e)));
    NO_SIZE(qkv_check_options, qkv_check(P("relu.onnx"), &empty, NULL, &e));
    NO_SIZE(qkv_train_options, qkv_train_defaults(&empty, QKV_OPTIMIZER_ADAMW, &e));
    NO_SIZE(qkv_session_options, MADE(qkv_session_create(model, &empty, &e)));
    NO_SIZE(qkv_train_options,
            MADE(qkv_session_create(
                model, &(qkv_session_options){.struct_size = sizeof(qkv_session_options), .train = &empty}, &e)));
    NO_SIZE(qkv_step, qkv_session_step(session, &empty, &e));
    NO_SIZE(qkv_fit_options, qkv_session_fit(session, &empty, NULL, &e));
    NO_SIZE(qkv_stats, qkv_session_stats(session, &empty, &e));
    NO_SIZE(qkv_peak, qkv_measure_peak(1, &empty, &e));
    NO_SIZE(qkv_segment_options, MADE(qkv_segmenter_create(model, session, &empty, &e)));
}

/* What a later library's caller has room for, and this one does not know, is 0 afterwards. */
static void test_result_sizes(void **state)
{
    (void)state;
    struct {
        qkv_stats stats;
        int64_t later;
    } q = {.stats = {.struct_size = sizeof q, .plans = -1}, .later = -1};
    assert_int_equal(qkv_session_stats(session, &q.stats, NULL), QKV_OK);
    assert_true(q.stats.plans >= 0 && q.stats.threads > 0);
    assert_int_equal(q.stats.struct_size, sizeof q);
    assert_int_equal(q.later, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_null),         cmocka_unit_test(test_no_error),
                                       cmocka_unit_test(test_option_sizes), cmocka_unit_test(test_no_size),
                                       cmocka_unit_test(test_result_sizes), cmocka_unit_test(test_output_by_name),
                                       cmocka_unit_test(test_load_memory),  cmocka_unit_test(test_ops_of_ones_own),
                                       cmocka_unit_test(test_functions_of_rules),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
