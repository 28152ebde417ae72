/* qkv: PyTorch attention models, out of Python.
 *
 * Two nouns. A qkv_model is a file that was read and understood: immutable, shared by any number of threads. A qkv_session runs one
 * model: it owns memory and threads, and belongs to one thread at a time.
 *
 *     qkv_error e;
 *     qkv_model *m = qkv_model_load("vit.pt2", NULL, &e);
 *     if (!m) { fprintf(stderr, "%s\n", e.message); return e.code; }
 *     qkv_session *s = qkv_session_create(m, NULL, &e);
 *     int64_t shape[] = {1, 3, 224, 224};
 *     qkv_tensor x = {.dtype = QKV_F32, .rank = 4, .shape = shape, .data = pixels}, y;
 *     if (qkv_session_set_input(s, "pixel_values", &x, &e) == QKV_OK &&
 *         qkv_session_run(s, &e) == QKV_OK &&
 *         qkv_session_output(s, 0, &y, &e) == QKV_OK)
 *         use(y.data);                       valid until the next run or qkv_session_free
 *     qkv_session_free(s);
 *     qkv_model_free(m);
 *
 * Conventions. Sizes are in elements, strides too. Every `qkv_error *` may be NULL. On failure nothing is changed and nothing is
 * leaked; a NULL return means failure. Strings are UTF-8; those returned as `const char *` live as long as the object they came from,
 * those returned as `char *` are freed with qkv_free. The library never prints, never exits, opens no file but those named.
 */
#ifndef QKV_H
#define QKV_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define QKV_API
#else
#define QKV_API __attribute__((visibility("default")))
#endif

#define QKV_VERSION_MAJOR 0
#define QKV_VERSION_MINOR 1
#define QKV_VERSION_PATCH 0

/* ---------------------------------------------------------------- status and errors */

/* The values are the exit codes of the command, too. */
typedef enum qkv_status {
    QKV_OK = 0,
    QKV_MISMATCH = 1,    /* numbers differ; a check found something */
    QKV_USAGE = 2,       /* wrong name, dtype, rank, size, range */
    QKV_UNREADABLE = 3,  /* a file that is damaged, missing or not what it should be */
    QKV_UNSUPPORTED = 4, /* legal, but not built */
    QKV_LIMIT = 5        /* out of memory or over a limit */
} qkv_status;

typedef struct qkv_error {
    qkv_status code;
    char message[1024]; /* one sentence, outermost place first */
} qkv_error;

QKV_API const char *qkv_version(void); /* "0.1.0" */
QKV_API const char *qkv_cpu(void);     /* the rung in use: "avx512bf16", ... (QKV_CPU forces a lower one) */
QKV_API void qkv_free(void *p);        /* for char * results */

/* Where the library's memory comes from, for the whole process: the C library when none is set. alloc: at least `bytes`, aligned to `alignment` (a power of
 * two from 16), NULL when there is none; grow: as realloc, of what alloc gave for an alignment of 16; release: p is never NULL. They are called from
 * any thread. Large memory then comes from there, too, and not in pages from the system. What libpng, libjpeg, oneDNN, OpenMP and the C library take for
 * themselves does not. A refusal ends the call with QKV_LIMIT and "out of memory"; models and sessions stay as they were. (Inside oneDNN and OpenMP, the system's
 * refusal may end the process.) */
typedef struct qkv_allocator {
    size_t struct_size; /* sizeof(qkv_allocator) */
    void *(*alloc)(void *user, size_t alignment, size_t bytes);
    void *(*grow)(void *user, void *p, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} qkv_allocator;
/* Copied; before anything else is called: QKV_USAGE after the library has taken memory. */
QKV_API qkv_status qkv_set_allocator(const qkv_allocator *a, qkv_error *err);
/* Removes temporary files of writes that are under way; async-signal-safe, for a program's handler of SIGINT or SIGTERM. */
QKV_API void qkv_interrupted(void);

/* ---------------------------------------------------------------- tensors */

typedef enum qkv_dtype {
    QKV_NONE,
    QKV_F32,
    QKV_F64,
    QKV_F16,
    QKV_BF16,
    QKV_I64,
    QKV_I32,
    QKV_I16,
    QKV_I8,
    QKV_U8,
    QKV_BOOL,
    QKV_U16,
    QKV_U32,
    QKV_U64,
    QKV_C32,
    QKV_C64,
    QKV_C128,
    QKV_F8E4M3,
    QKV_F8E5M2,
    QKV_F8E4M3FNUZ,
    QKV_F8E5M2FNUZ,
    QKV_F8E8M0,
    QKV_I4,
    QKV_U4,
    QKV_I2,
    QKV_U2,
    QKV_F4E2M1 /* ONNX's; one element a byte, f4e2m1 as its 4-bit code */
} qkv_dtype;

QKV_API const char *qkv_dtype_name(qkv_dtype t);         /* "f32" */
QKV_API qkv_dtype qkv_dtype_from_name(const char *name); /* "f32", "float32", "F32"; QKV_NONE if unknown */
QKV_API size_t qkv_dtype_size(qkv_dtype t);              /* bytes */

enum { QKV_MAX_RANK = 16 };

/* A view of memory that somebody else owns. strides NULL = contiguous. */
typedef struct qkv_tensor {
    qkv_dtype dtype;
    int rank;
    const int64_t *shape;
    const int64_t *strides;
    void *data;
} qkv_tensor;

/* ---------------------------------------------------------------- models */

typedef struct qkv_model qkv_model;

typedef struct qkv_load_options {
    size_t struct_size; /* sizeof(qkv_load_options) */
    qkv_dtype
        compute; /* QKV_NONE: as the file says; QKV_BF16: in runs, matmul, linear, conv and attention of bf16 numbers,
                          * summed in float32; outputs keep their dtypes. With no_fuse: autocast's rules, node by node (.pt2 only) */
    int no_fuse; /* 1: keep every node of the file as one step (for per-node comparison) */
    /* Inputs of an ONNX model that become constants, so that shapes, axes and counts may depend on them: n_fixed names and tensors, copied. */
    const char *const *fixed_names;
    const qkv_tensor *fixed;
    int n_fixed;
    int skip_padding; /* 1: rewritten as qkv_model_rewrite does with skip_padding; as it is where no padding can be skipped */
} qkv_load_options;

/* Reads a .pt2 or an ONNX model. options may be NULL. */
QKV_API qkv_model *qkv_model_load(const char *path, const qkv_load_options *options, qkv_error *err);
QKV_API void qkv_model_free(qkv_model *m); /* sessions must be freed first; NULL is fine */

QKV_API int qkv_model_input_count(const qkv_model *m);
QKV_API const char *qkv_model_input_name(const qkv_model *m, int i); /* NULL out of range */
QKV_API qkv_dtype qkv_model_input_dtype(const qkv_model *m, int i);
QKV_API int qkv_model_input_rank(const qkv_model *m, int i);
/* A size as text: "3", a symbol "s0", derived "14*s1". NULL out of range. */
QKV_API const char *qkv_model_input_dim(const qkv_model *m, int i, int axis);
QKV_API int qkv_model_output_count(const qkv_model *m);
QKV_API const char *qkv_model_output_name(const qkv_model *m, int i); /* "output_0" */
QKV_API int qkv_model_symbol_count(const qkv_model *m);
/* Name and inclusive range of a size symbol; INT64_MAX = unbounded. */
QKV_API const char *qkv_model_symbol(const qkv_model *m, int i, int64_t *min, int64_t *max);
/* What a run leaves to the next of its session, as a sum: buffers that it writes (caches, counters), the place in the
 * sequence of random numbers. 0: runs know nothing of each other. */
typedef enum qkv_state { QKV_WRITES_BUFFERS = 1, QKV_DRAWS_RANDOM = 2 } qkv_state;
QKV_API unsigned qkv_model_state(const qkv_model *m);
/* Everything that `qkv inspect --json` prints, as one JSON object. Keys: file, format, torch, producer, opset, schema, inputs [{name, dtype, shape}],
 * scalar_inputs, outputs [{name, value, dtype, shape}], symbols [{name, min, max, bound_by}], parameters, parameter_bytes, buffers,
 * constants, nodes, ops {name: count}, attentions [{node, op, query, key, value, mask, scale, causal}], requirements [..],
 * ignored_entries [..]. qkv_free it. */
QKV_API char *qkv_model_describe(const qkv_model *m, qkv_error *err);
/* The graph as text, after import; qkv_free it. */
QKV_API char *qkv_model_graph_text(const qkv_model *m, qkv_error *err);
/* Pass i of those that a graph goes through before it runs, in order ("import", "detach", "rewrite" ...); NULL after the last. *in_sessions (may be
 * NULL): 1 for those that sessions run unasked. */
QKV_API const char *qkv_pass_name(int i, int *in_sessions);
/* The graph as text after passes, "detach,rewrite": those alone, in their own order. NULL: as a session runs it. qkv_free it. */
QKV_API char *qkv_model_graph_text_after(const qkv_model *m, const char *passes, qkv_error *err);
/* Writes the model as a .pt2 that torch.export.load and qkv_model_load read, whole or not at all: the same inputs, outputs, weights, sizes
 * and numbers, every op spelled in ATen; extra files of its own file go along. */
QKV_API qkv_status qkv_model_save(const qkv_model *m, const char *path, qkv_error *err);

typedef struct qkv_pack_info {
    size_t struct_size;
    int weights; /* tensors in the file */
    int packed;  /* those that it also holds as this CPU's matrix products take them */
    uint64_t weight_bytes, packed_bytes;
    const char *cpu;   /* the rung that it was packed at */
    char message[256]; /* why nothing is packed; "" otherwise */
} qkv_pack_info;
/* Writes the model as a session would run it, whole or not at all: a file (.qkv) that qkv_model_load opens by mapping alone, rules applied, constants
 * computed, weights packed for this CPU. Where its packed weights do not fit, loading gives QKV_UNSUPPORTED and says what they are for. Runs the
 * model once, with random inputs. info may be NULL; set its struct_size. docs/PACK.md is the format. */
QKV_API qkv_status qkv_model_pack(const qkv_model *m, const char *path, qkv_pack_info *info, qkv_error *err);

/* For whom an ONNX file is: the standard, or a runtime (docs/ONNX.md says what each needs). */
typedef enum qkv_onnx_profile { QKV_ONNX_ORT, QKV_ONNX_SPEC, QKV_ONNX_OPENVINO, QKV_ONNX_TENSORRT } qkv_onnx_profile;

typedef struct qkv_onnx_options {
    size_t struct_size; /* sizeof(qkv_onnx_options) */
    int opset;          /* 17 to 25; 0 = 18 */
    qkv_onnx_profile profile;
    int external_data; /* 0: weights in a file of their own when the model would grow above 2 GiB; 1: always; -1: never */
} qkv_onnx_options;

/* Writes the model as ONNX, whole or not at all: inputs keep their names, outputs are output_0, output_1, ..., weights have their names in
 * the state dict, variable sizes their symbols. options may be NULL. *report (may be NULL; qkv_free it; set also when ops are missing): one JSON
 * object with opset, profile, nodes, weights, attentions {op, decomposed}, missing [{node, op, reason}], warnings [{node, op, rule, reason}]
 * (what keeps the profile's runtime from its fast path), notes [..], dropped [..] (conditions on sizes, which ONNX cannot hold).
 * QKV_UNSUPPORTED names every node that cannot be written. The same model and options give the same bytes. */
QKV_API qkv_status qkv_model_save_onnx(const qkv_model *m, const char *path, const qkv_onnx_options *options,
                                       char **report, qkv_error *err);

/* ---------------------------------------------------------------- rewriting */

typedef struct qkv_rewrite_options {
    size_t struct_size; /* sizeof(qkv_rewrite_options) */
    const char *const
        *rule_files; /* further rules (docs/RULES.md); one with the name of a built-in rule takes its place */
    int rule_file_count;
    int no_builtin_rules; /* 1: those files only */
    unsigned phases;      /* QKV_RECOMPOSE | QKV_CONVERT | QKV_FUSE; 0 = all */
    int prove;            /* 1: evaluate every replacement on random tensors, at several sizes, before it is made */
    int seeds;            /* per proof and size, 0 = 3 */
    const char *counterexample; /* a failed proof writes its tensors here (.safetensors, .npz); NULL: nowhere */
    int exact_masked_rows; /* 1: an attention whose rows without an allowed key would not keep the source's answer stays as it is */
    void (*progress)(void *user, int done, int total);
    void *progress_user;
    int skip_padding; /* 1: afterwards, where a key padding mask marks tokens, the network runs on real tokens only */
    const char *
        lift_sdpa; /* a device as in qkv_sdpa_choice: afterwards, attention takes the form for which PyTorch has a better kernel there; NULL: no */
    int cudnn;     /* with lift_sdpa */
} qkv_rewrite_options;
enum { QKV_RECOMPOSE = 1, QKV_CONVERT = 2, QKV_FUSE = 4 };

/* Rewrites the model's graph: attention in any spelling becomes scaled_dot_product_attention, other compounds their op. options may be
 * NULL. No session of m may exist. *report (may be NULL; qkv_free it; set also when a proof fails): one JSON object with attentions_fused (ops
 * in the result), attentions_left (softmax(QK)V still spelled out), nodes_before, nodes_after, proven, ms, firings [{rule, phase, result, op,
 * nodes, note, max_abs, max_rel_peak, max_abs_masked_rows, runs, not_proven}] and left [{node, at, rule, matched, reason, advice}].
 * With skip_padding real positions of outputs are as before, padded ones are 0 (docs/SKIP_PADDING.md); the report has skip_padding {nothing (why
 * there is no mask, or null), masks [{mask, applied, why, attentions, nodes, stops [{node, op, value, why}], max_abs, max_rel_peak, runs,
 * not_proven}]}. QKV_MISMATCH when a proof fails: the model is then as it was before that firing. */
QKV_API qkv_status qkv_model_rewrite(qkv_model *m, const qkv_rewrite_options *options, char **report, qkv_error *err);

/* ---------------------------------------------------------------- which kernel PyTorch takes for an attention */

/* PyTorch's numbers (torch.nn.attention.SDPBackend). */
typedef enum qkv_sdpa_backend { QKV_SDPA_MATH, QKV_SDPA_FLASH, QKV_SDPA_EFFICIENT, QKV_SDPA_CUDNN } qkv_sdpa_backend;

typedef struct qkv_sdpa_call {
    size_t struct_size;           /* sizeof(qkv_sdpa_call) */
    qkv_tensor query, key, value; /* data is not read and may be NULL; strides NULL = contiguous */
    const qkv_tensor *mask;       /* NULL: none */
    int mask_requires_grad;
    int requires_grad; /* query, key or value ask for a gradient, and gradients are on */
    int is_causal, enable_gqa;
    double dropout_p;
    int64_t offset[3]; /* of query, key and value into their storages, in elements */
} qkv_sdpa_call;

/* The backend that PyTorch 2.13 picks for a call of scaled_dot_product_attention on a device: "cpu" (NULL), "cuda-sm80", "cuda-sm90", ... cudnn: its
 * version as 92000 for 9.20.0, 0 = that. *report (may be NULL; qkv_free it): one JSON object with backend and refused [{backend, rule, what, change,
 * source}], all that keeps the call from a better one, in PyTorch's order. docs/BACKENDS.md is the table of rules. */
QKV_API qkv_status qkv_sdpa_choice(const qkv_sdpa_call *call, const char *device, int cudnn, qkv_sdpa_backend *out,
                                   char **report, qkv_error *err);

typedef struct qkv_backends_options {
    size_t struct_size;
    const char *device; /* as above */
    int cudnn;
    int train; /* 1: gradients are on, and every parameter that is not frozen asks for one */
    const char *const *
        dim_names; /* n_dims sizes that are known, by symbol, axis (x.1), or batch, seq, height, width; others stay symbols */
    const int64_t *dims;
    int n_dims;
} qkv_backends_options;

/* The same for every attention of a model as its file has it (one that was rewritten: as qkv_model_save would write it), as one JSON object; qkv_free it.
 * Keys: device, cudnn (null on the CPU), train, attentions [{node, path, op, query, key, value, mask [sizes, or null], dtype, causal, gqa, dropout, fixed
 * (the backend that the op names, or null), choice [{backend, when (a condition on sizes; null: otherwise), rule}], refused [{backend, rule, what, change,
 * source, when (what would have to hold, or null: no size helps)}]}]. options may be NULL. Not while another thread uses m. */
QKV_API char *qkv_model_backends(const qkv_model *m, const qkv_backends_options *options, qkv_error *err);

/* ---------------------------------------------------------------- static exports made dynamic */

typedef struct qkv_generalize_options {
    size_t struct_size;
    const char *const *dims; /* n_dims texts "batch=x.0,mask.0": a name for axes that are one size */
    int n_dims;
    const char *const *dynamic; /* n_dynamic texts "x.0": axes that must come out variable */
    int n_dynamic;
    int apart;                     /* 1: axes that are equal in every file are not taken for one size */
    const qkv_model *const *check; /* n_check more static exports: the result must give their numbers */
    int n_check;
} qkv_generalize_options;

/* Static exports of one model at different sizes, as one model with variable sizes: every number and every constant tensor that differs
 * between them is solved as an expression of the input sizes. The result was run at the sizes of every given model, with the same
 * random inputs and the same numbers, and at sizes of none. NULL with QKV_MISMATCH when something cannot be solved or checked. It
 * borrows the weights of `models`, which must outlive it. *report, unless report is NULL: a JSON object, also when the result is NULL
 * with QKV_MISMATCH; qkv_free it. Keys: solved, files, sizes [{name, expr, axes, values, tied}], numbers [{node, op, argument, values,
 * expr, also, places}] (also: other expressions that fit every file), unsolved [{node, op, argument, values, why}], notes [..],
 * checks [{against, sizes, agrees, max_abs_over_peak, problem}]. */
QKV_API qkv_model *qkv_model_generalize(const qkv_model *const *models, int n, const qkv_generalize_options *options,
                                        char **report, qkv_error *err);

/* ---------------------------------------------------------------- gradients */

typedef struct qkv_joint_options {
    size_t struct_size; /* sizeof(qkv_joint_options) */
    const char *loss;   /* the output that is differentiated, one number; NULL: the only output */
    const char *
        decompose; /* NULL or "none": attention stays one op, and the backward pass computes its probabilities anew; "math": products and a
                                 * softmax, whose result the backward pass reads; "core": that, and all else in ATen's core ops, too */
    const char *const *
        inputs; /* n_inputs names of inputs whose gradients are wanted too, beside those that asked for one when the model was exported; */
    int n_inputs;    /* "*": all of floats */
    int inputs_only; /* 1: no gradients of parameters */
    const char *
        recompute; /* NULL or "none": what the backward pass reads of the forward pass is kept until then; "cheap": it computes norms, activations, softmax
                                 * and their kin anew where what they follow from is kept anyway; "blocks": all between few cuts, as torch.utils.checkpoint */
    const char *const *
        dim_names; /* n_dims sizes for which recompute weighs and the report tells, as those of qkv_backends_options; others are the file's */
    const int64_t *dims; /* examples */
    int n_dims;
} qkv_joint_options;

/* The model and the gradients of its loss as one model: the model's outputs, then the gradient "grad.NAME" of every parameter that asks for one and
 * reaches the loss, in the order of the state dict, then those of inputs. It runs, and is written as .pt2 or ONNX, like any model; docs/JOINT.md. It borrows
 * the weights of m, which must outlive it. NULL with QKV_USAGE for a loss that is not one number or is not there, integer parameters, and nothing
 * to differentiate; with QKV_UNSUPPORTED for an op without a gradient: the message names it and its path to the loss. options may be NULL. *report (may
 * be NULL; qkv_free it): one JSON object with loss, nodes_before, nodes_after, gradients [{output, parameter or input, dtype, shape}], without [parameters
 * that do not reach the loss]; with recompute also recompute {how, sizes, without, with}, each of the two {memory (bytes of results alive at once), flops, bytes} of
 * a run at those sizes, or null where they come out of data. */
QKV_API qkv_model *qkv_model_joint(const qkv_model *m, const qkv_joint_options *options, char **report, qkv_error *err);

/* ---------------------------------------------------------------- checking */

typedef struct qkv_check_options {
    size_t struct_size;  /* sizeof(qkv_check_options) */
    const char *targets; /* NULL, or some of "qkv,ort,openvino,tensorrt": also what these would refuse */
    int security;        /* 1: also the container itself, pickles and code in it */
    int full;            /* 1: also the checksums of weights */
    int strict;          /* 1: warnings count as errors in the status */
} qkv_check_options;

/* Checks a model file without running it: schema, types, sizes, names, weights, masks. options may be NULL. QKV_OK: no errors;
 * QKV_MISMATCH: errors (with strict: or warnings); QKV_UNREADABLE: the file cannot be read at all. *report (may be NULL; qkv_free it; set in
 * all three cases): one JSON object with file, format, readable, targets, nodes, weights, errors, warnings, notes (counts) and findings
 * [{id, severity, place, message, remedy}], worst first. docs/CHECK.md lists the ids. */
QKV_API qkv_status qkv_check(const char *path, const qkv_check_options *options, char **report, qkv_error *err);
/* Title, severity, meaning and remedy of a finding by its id ("Q304"), one a line; NULL for an unknown one. */
QKV_API const char *qkv_check_explain(const char *id);
QKV_API const char *qkv_check_id(int i); /* "Q100", ...; NULL after the last */

/* ---------------------------------------------------------------- parts of a model */

/* What lies between the values named by `from` (n_from 0: the inputs that are needed) and those named by `to` (n_to 0: the outputs) as a model of
 * its own: they are its inputs and outputs and keep their names, sizes and ranges; weights, buffers and conditions on sizes come along as far as
 * they matter. Names are those of qkv_model_graph_text; an input's or output's own name will do, and names of ONNX files. NULL with QKV_USAGE for
 * a name that there is not and for an input that a result needs but `from` does not give. It borrows the weights of m, which must outlive it. */
QKV_API qkv_model *qkv_model_extract(const qkv_model *m, const char *const *from, int n_from, const char *const *to,
                                     int n_to, qkv_error *err);

typedef enum qkv_weight_kind { QKV_PARAMETER, QKV_BUFFER, QKV_CONSTANT } qkv_weight_kind;
/* Weight i of the model: its name in the state dict (of the file's initializer), NULL out of range. out, kind and persistent (is a buffer part of
 * the state dict?) may be NULL; out points into m. */
QKV_API int qkv_model_weight_count(const qkv_model *m);
QKV_API const char *qkv_model_weight(const qkv_model *m, int i, qkv_tensor *out, qkv_weight_kind *kind,
                                     int *persistent);
/* Gives the weights of these names other numbers, copied: same dtypes and sizes, all or none. No session of m may exist. QKV_USAGE: a name that the model does not have. */
QKV_API qkv_status qkv_model_set_weights(qkv_model *m, const char *const *names, const qkv_tensor *tensors, int n,
                                         qkv_error *err);

/* ---------------------------------------------------------------- sessions */

typedef struct qkv_session qkv_session;

/* Training: numbers are PyTorch's (torch.optim, torch.optim.lr_scheduler), by the same names. qkv_train_defaults sets all of them. */
typedef struct qkv_train_options {
    size_t struct_size;    /* sizeof(qkv_train_options) */
    const char *optimizer; /* "adamw", "adam" or "sgd" */
    double lr;
    double beta1, beta2, eps;   /* adamw, adam */
    double weight_decay;        /* adamw: decoupled; adam, sgd: added to the gradient */
    double momentum, dampening; /* sgd */
    int nesterov;
    double clip_norm; /* torch.nn.utils.clip_grad_norm_; 0: none */
    const char *
        schedule; /* "constant"; "linear": LinearLR down to lr_end; "cosine": CosineAnnealingLR down to lr_end; "step": StepLR, times gamma every step_size steps */
    int64_t warmup; /* steps before that in which the rate grows: LinearLR(start_factor=1/warmup, total_iters=warmup) */
    int64_t steps;  /* over which "linear" and "cosine" fall, warm-up included; 0: all those of qkv_session_fit */
    int64_t step_size;
    double gamma, lr_end;
    uint64_t seed; /* of the order of data, and as torch.manual_seed of dropout and other random ops */
} qkv_train_options;
/* PyTorch's defaults for an optimizer (NULL: adamw), a constant rate, no clipping, seed 0; set o->struct_size first. QKV_USAGE: an unknown name. */
QKV_API qkv_status qkv_train_defaults(qkv_train_options *o, const char *optimizer, qkv_error *err);

typedef struct qkv_session_options {
    size_t struct_size;  /* sizeof(qkv_session_options) */
    int threads;         /* 0: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may use */
    size_t memory_limit; /* most bytes of activations and scratch, 0 = no limit: QKV_LIMIT names what was needed */
    int no_optimize; /* 1: runs the nodes of the file. 0: a copy of the graph, made by the model's first session and shared by all, in which
                         * qkv_model_rewrite's rules have recognised attention, norms and activations; the model itself stays as it is */
    const qkv_train_options *
        train; /* NULL: runs only. Else the model is a joint graph (qkv_model_joint, qkv joint), and its parameters, a copy of the
                         * session's own, change with every qkv_session_step; copied */
    const char *passes; /* NULL: as no_optimize says. Else names of passes, "detach,rewrite" (qkv_pass_name): the graph goes through
                         * those alone */
} qkv_session_options;

QKV_API qkv_session *qkv_session_create(const qkv_model *m, const qkv_session_options *options, qkv_error *err);
QKV_API void qkv_session_free(qkv_session *s); /* NULL is fine */

/* Any number of threads may run sessions of one model at once, each its own. A session is for one thread at a time: a
 * call during another thread's call on the same session does nothing and is QKV_USAGE; where it has no status to say so
 * (reset, seed, free ...) the call that it met is. Callbacks may call on. Each session packs weights for itself, from the
 * second run on; those of a .qkv (qkv_model_pack) are packed in the file, which all share. */

/* Inputs are borrowed: their memory must stay until qkv_session_run returns. `name` is the model's input name, or its position
 * "0", "1", ... Wrong name, dtype or rank is told here; sizes are checked together by qkv_session_run. */
QKV_API qkv_status qkv_session_set_input(qkv_session *s, const char *name, const qkv_tensor *t, qkv_error *err);
QKV_API qkv_status qkv_session_run(qkv_session *s, qkv_error *err);
/* No input is set any more, but for kept ones that a run has copied. */
QKV_API void qkv_session_clear_inputs(qkv_session *s);
/* From now on input `name` stays as it is from when it is set until it is set anew, and what depends on kept inputs and weights alone is computed once:
 * a picture's features for all texts asked of it, whatever the sizes of other inputs. The next run copies the input; later runs need its memory no
 * more, and give the numbers of a run without keeping, bit for bit. It must be set again when it was set before. Random ops are always drawn anew;
 * with a node callback all nodes run. What is kept lies in memory of its own (qkv_stats.kept_bytes). */
QKV_API qkv_status qkv_session_keep(qkv_session *s, const char *name, qkv_error *err);
/* Valid until the next run. Output i in flattened order of the tensors that the module returned. shape and strides belong to the session. */
QKV_API qkv_status qkv_session_output(qkv_session *s, int i, qkv_tensor *out, qkv_error *err);

/* Memory for outputs: f is called by every run, once sizes are known, for each output i with its dtype and contiguous shape, and gives memory of that
 * size, aligned to 64 bytes (NULL ends the run). The output is written there as it is computed, or copied where it is a part or a view of something
 * else, and is valid as long as that memory is, which must be until the run has ended. f NULL: in the session's memory again. */
typedef void *qkv_output_memory(void *user, int i, const qkv_tensor *like);
QKV_API void qkv_session_output_memory(qkv_session *s, qkv_output_memory *f, void *user);

/* Random inputs for given sizes: names[k] = values[k], a name being a symbol ("s0"), an axis ("input_ids.1") or what such an axis is
 * usually called (batch, seq, height, width); the others take their smallest value that satisfies the file),
 * owned by the session and set as its inputs. Integers are drawn so that they are valid indices; masks (bool) keep the first element
 * of each row. Same seed, same bytes. */
QKV_API qkv_status qkv_session_random_inputs(qkv_session *s, const char *const *names, const int64_t *values, int n,
                                             uint64_t seed, qkv_error *err);
QKV_API qkv_status qkv_session_input(qkv_session *s, int i, qkv_tensor *out,
                                     qkv_error *err); /* what is set now; QKV_USAGE if nothing */

/* Buffers that the model writes (caches, counters) belong to the session: back to the file's values. */
QKV_API void qkv_session_reset(qkv_session *s);
/* Random ops (dropout of a model in training mode, rand, ...) draw what PyTorch's CPU draws after torch.manual_seed(seed); runs go on
 * where the last one stopped. A new session is seeded with 0. */
QKV_API void qkv_session_seed(qkv_session *s, uint64_t seed);

/* ---------------------------------------------------------------- sessions that train */

typedef struct qkv_step {
    size_t struct_size; /* sizeof(qkv_step) */
    int64_t step;       /* from 1 */
    double loss, lr;    /* the loss of the parameters before the step; the rate that it took */
    double grad_norm;   /* of all gradients together, before clipping */
} qkv_step;

/* One run with the inputs that are set, and one step of the optimizer. Outputs are as after qkv_session_run. Buffers that the model writes go on from step to
 * step, frozen parameters stay. A step is whole or has not happened: QKV_MISMATCH for a loss or gradient that is NaN or infinite names the node that made
 * the first such number, and parameters, buffers, optimizer and generator are as before. out may be NULL. */
QKV_API qkv_status qkv_session_step(qkv_session *s, qkv_step *out, qkv_error *err);
/* A parameter, buffer or constant of the model by its name in the state dict, as it is in this session: borrowed, and changed by every step. QKV_USAGE: unknown. */
QKV_API qkv_status qkv_session_weight(const qkv_session *s, const char *name, qkv_tensor *out, qkv_error *err);
/* Writes a parameter that trains or a buffer that runs write; same dtype and sizes. The optimizer's state stays. */
QKV_API qkv_status qkv_session_set_weight(qkv_session *s, const char *name, const qkv_tensor *t, qkv_error *err);
/* A checkpoint, one .safetensors, whole or not at all: parameters, written buffers, the optimizer's state, steps and generator. A session that loads it goes on with
 * the bits of one that was never stopped. QKV_USAGE: of another model or optimizer; nothing has changed then. */
QKV_API qkv_status qkv_session_save(qkv_session *s, const char *path, qkv_error *err);
QKV_API qkv_status qkv_session_load(qkv_session *s, const char *path, qkv_error *err);
/* The model without gradients, with the weights as they are now in this session, copied: to run, qkv_model_save, qkv_model_save_onnx, or read by qkv_model_weight.
 * It borrows what did not train from the session's model, which must outlive it. */
QKV_API qkv_model *qkv_session_trained(const qkv_session *s, qkv_error *err);

typedef struct qkv_fit_event {
    size_t struct_size;
    int epoch_end;                 /* 0: after a step; 1: after an epoch and its validation */
    int replayed;                  /* 1: read from the checkpoint that this run goes on from */
    int64_t epoch, step;           /* from 1 */
    int64_t steps;                 /* of the whole run */
    double loss;                   /* of the step; of an epoch: averaged over its rows */
    double lr, grad_norm;          /* of the step */
    double val_loss, val_accuracy; /* of the epoch; NaN: none */
} qkv_fit_event;
typedef int qkv_fit_callback(void *user, const qkv_fit_event *e); /* non-zero: stop here */

typedef struct qkv_fit_options {
    size_t struct_size; /* sizeof(qkv_fit_options) */
    const char *const *
        names; /* n inputs of the model, all of them; tensors with one example a row, borrowed until the call returns. One of other length has its input's */
    const qkv_tensor *tensors; /* sizes and is the same in every step */
    int n;
    const char *const *
        val_names; /* the same for validation after every epoch: the model's forward part runs on it, as exported (with dropout, if that is in the file), and */
    const qkv_tensor *val_tensors; /* writes no buffers; n_val 0: none */
    int n_val;
    int64_t epochs, batch; /* batch 0: what the model fixes, else 32 */
    int drop_last;         /* 1: the rows that are left behind the last whole batch of an epoch are not used in it */
    int in_order; /* 1: rows in their order; 0: epoch e takes them in the order of the e-th torch.randperm(rows, generator=g), g = torch.Generator().manual_seed(seed) */
    const char *
        checkpoint; /* NULL: none; written after every epoch, when the callback stops the run, and before a step that is not finite */
    int64_t checkpoint_every; /* also every so many steps; 0: not */
    const char *
        resume; /* a checkpoint to go on from, to the bits of a run that was never stopped; its steps are told again, as replayed */
    const char *logits,
        *labels;            /* an output (.., classes) and an input (..) for the accuracy of validation; NULL: none */
    qkv_fit_callback *tell; /* after every step and epoch; may be NULL */
    void *user;
} qkv_fit_options;

/* Trains for some epochs. *stopped (may be NULL): the callback ended it. QKV_USAGE: data whose names, dtypes or sizes do not fit, or a checkpoint of other data or settings;
 * QKV_MISMATCH as qkv_session_step. */
QKV_API qkv_status qkv_session_fit(qkv_session *s, const qkv_fit_options *options, int *stopped, qkv_error *err);

/* ---------------------------------------------------------------- what a session did */

typedef struct qkv_stats {
    size_t struct_size;
    double plan_ms;          /* planning of the last new size binding */
    size_t activation_bytes; /* arena of the current plan */
    size_t constant_bytes;   /* results computed once per size */
    size_t packed_bytes; /* weights in the layout of the matrix kernels; products keep them so from their second use on */
    size_t scratch_bytes; /* beyond it, for scratch of a step that does not fit where no result is alive */
    int steps;            /* kernels run per inference */
    int plans;            /* size bindings planned so far */
    int threads;          /* in use */
    size_t kept_bytes;    /* results of kept inputs (qkv_session_keep) */
} qkv_stats;
QKV_API void qkv_session_stats(const qkv_session *s, qkv_stats *out);

/* Time per step of the runs since profiling was switched on. JSON array; qkv_free it. A step: {node, op, shape (of its results), calls, total_ms,
 * min_ms (its shortest call), operands, arithmetic ("bf16" where it multiplies 16-bit numbers, else "f32"), flops, bytes} of one call: operations
 * from the sizes (a causal attention counts half), bytes that must be read and written at least. What a run does beside its steps: the same
 * without the last four, node "" and op "(inputs)", "(sizes)", "(plan)", "(buffers)" or "(profile)". All total_ms add up to the runs. */
QKV_API void qkv_session_profile(qkv_session *s, int on);
QKV_API char *qkv_session_profile_json(const qkv_session *s, qkv_error *err);

/* Every step of every run from now on, with start and duration, until there is no room for more; 0 events: stop, and forget. The file is JSON in
 * the Trace Event Format, written whole or not at all, which https://ui.perfetto.dev opens: runs, and in them steps with node, op, operands,
 * result, dtype, flops, bytes, GFLOP/s and GB/s. */
QKV_API qkv_status qkv_session_trace(qkv_session *s, int64_t events, qkv_error *err);
QKV_API qkv_status qkv_session_trace_write(const qkv_session *s, const char *path, qkv_error *err);

typedef struct qkv_peak {
    size_t struct_size; /* sizeof(qkv_peak) */
    int threads;
    double f32_gflops, bf16_gflops; /* multiply-adds on registers, two operations each, of all threads together */
    double read_gbs;                /* reading 64 MiB a thread */
    const char *f32_by, *bf16_by; /* "AVX-512", "AMX tiles"; bf16's is f32's where the CPU has no instruction for it */
} qkv_peak;
/* What this machine does at best just now, on the instructions that qkv_cpu names: the best of short loops, 60 ms in all. 0 threads: the CPUs that this process may use. */
QKV_API qkv_status qkv_measure_peak(int threads, qkv_peak *out, qkv_error *err);

/* Called after every node with its outputs (valid only during the call); node is the name in the file. Return non-zero to stop the run.
 * Load with no_fuse to see every node. NULL switches it off. */
typedef int qkv_node_callback(void *user, const char *node, const char *op, const qkv_tensor *outputs, int n);
QKV_API void qkv_session_on_node(qkv_session *s, qkv_node_callback *f, void *user);

/* Called before every step of every run: the module of the model that it belongs to, by the names of its weights ("vision_encoder" of
 * "model.vision_encoder.layers.3.fc1.weight": what follows that which all names begin with; "" where names say nothing), and the share of the run's
 * work that is done, from 0 to 1; 0 while what kept inputs give is computed. f must be quick. NULL switches it off. */
typedef void qkv_progress_callback(void *user, const char *module, double done);
QKV_API void qkv_session_on_progress(qkv_session *s, qkv_progress_callback *f, void *user);

/* ---------------------------------------------------------------- comparing */

typedef struct qkv_difference {
    double max_abs, max_rel;    /* over finite pairs; rel = |a-b| / |b| where b is not 0 */
    double max_abs_over_peak;   /* max_abs / largest |b| */
    double cosine;              /* of the flattened finite values; 1 when both are zero */
    int64_t index;              /* row-major element of max_abs, -1 when nothing differs */
    double a, b;                /* the values there */
    int64_t nonfinite_mismatch; /* elements where NaN / +inf / -inf do not agree */
    int64_t failed;             /* elements with |a-b| > atol + rtol * |b|, nonfinite mismatches included */
} qkv_difference;
/* a against the expected b. QKV_USAGE when the shapes differ (dtypes may differ); QKV_MISMATCH when d->failed > 0. */
QKV_API qkv_status qkv_compare(const qkv_tensor *a, const qkv_tensor *b, double atol, double rtol, qkv_difference *d,
                               qkv_error *err);

/* ---------------------------------------------------------------- tensors and pictures in files */

typedef struct qkv_tensors qkv_tensors; /* .safetensors, .npz, .npy */
QKV_API qkv_tensors *qkv_tensors_open(const char *path, qkv_error *err);
QKV_API void qkv_tensors_free(qkv_tensors *t);
QKV_API int qkv_tensors_count(const qkv_tensors *t);
QKV_API const char *qkv_tensors_name(const qkv_tensors *t, int i);
QKV_API const qkv_tensor *qkv_tensors_at(const qkv_tensors *t, int i);
QKV_API const qkv_tensor *qkv_tensors_find(const qkv_tensors *t, const char *name); /* NULL when absent */
QKV_API const char *qkv_tensors_metadata(const qkv_tensors *t,
                                         const char *key); /* safetensors' __metadata__; NULL when absent */
/* A file of these bytes, whole or not at all: a temporary file beside it, fsync, rename. */
QKV_API qkv_status qkv_file_write(const char *path, const void *bytes, size_t n, qkv_error *err);
/* Format by the ending of path; written whole or not at all. */
QKV_API qkv_status qkv_tensors_write(const char *path, const char *const *names, const qkv_tensor *tensors, int n,
                                     qkv_error *err);

/* A PNG or JPEG (upright as its EXIF says) as float32 (channels, height, width): converted to 1 or 3 channels, resized with an antialiased triangle filter,
 * x/255, then (x - mean[c]) / std[c]; mean and std may be NULL (0 and 1). out has channels*height*width floats. */
QKV_API qkv_status qkv_image_read(const char *path, int channels, int height, int width, const float *mean,
                                  const float *std, float *out, qkv_error *err);

/* ---------------------------------------------------------------- text */

typedef struct qkv_tokenizer qkv_tokenizer;
/* BERT's WordPiece from a vocab.txt (one token a line). lowercase: also strips accents, as BertTokenizer with do_lower_case. */
QKV_API qkv_tokenizer *qkv_tokenizer_wordpiece(const char *vocab_path, int lowercase, qkv_error *err);
/* CLIP's byte-level BPE from its merges as text (bpe_simple_vocab_16e6.txt, merges.txt: one pair a line). hf 0: cleans texts as OpenAI's tokenizer
 * and SAM 3's do (entities, quotes, ligatures, widths) and pads with 0; 1: as transformers' CLIPTokenizer (NFC) and pads with <end>. */
QKV_API qkv_tokenizer *qkv_tokenizer_clip(const char *merges_path, int hf, qkv_error *err);
QKV_API void qkv_tokenizer_free(qkv_tokenizer *t);
/* WordPiece: [CLS] text [SEP], at most `capacity` ids (the text is cut, [SEP] stays); the number written, or -1 on error. CLIP: <start> text <end> and
 * padding, always `capacity` ids; the number that the whole text needs, so that more than `capacity` means it was cut and 2 that it has no tokens. */
QKV_API int qkv_tokenizer_encode(const qkv_tokenizer *t, const char *text, int64_t *ids, int capacity, qkv_error *err);

/* ---------------------------------------------------------------- instances of a text in a picture */

typedef struct qkv_picture qkv_picture; /* 8-bit RGB */
/* A PNG or JPEG; alpha is left out, 16 bits are reduced to 8, gray becomes RGB, a JPEG is turned upright as its EXIF says. */
QKV_API qkv_picture *qkv_picture_read(const char *path, qkv_error *err);
/* A copy of pixels (height, width, channels) of 1 (gray) or 3 channels, row by row. */
QKV_API qkv_picture *qkv_picture_create(const uint8_t *pixels, int height, int width, int channels, qkv_error *err);
QKV_API void qkv_picture_free(qkv_picture *p);
QKV_API int qkv_picture_width(const qkv_picture *p);
QKV_API int qkv_picture_height(const qkv_picture *p);
QKV_API const uint8_t *qkv_picture_rgb(const qkv_picture *p); /* (height, width, 3) */
QKV_API qkv_status qkv_picture_write(const qkv_picture *p, const char *path,
                                     qkv_error *err); /* a PNG, whole or not at all */
/* out (3, height, width): resized in 8 bits, bilinear with antialias, as torchvision does on uint8 tensors; then (x / 255 - mean[c]) / std[c]. */
QKV_API qkv_status qkv_picture_input(const qkv_picture *p, int height, int width, const float *mean, const float *std,
                                     float *out, qkv_error *err);

typedef struct qkv_segment_options {
    size_t struct_size;    /* sizeof(qkv_segment_options) */
    const char *tokenizer; /* CLIP's merges as text; NULL: the file's own, its extra file "qkv/tokenizer.bpe" */
    const char *
        processor; /* JSON {"contract": "meta" | "hf", "image": {"height", "width", "mean", "std"}, "text": {"length"}, "score_threshold", "mask_threshold",
                             * "box_format", "mask_resize"}, all but contract optional (docs/SAM3.md); NULL: the file's own, its extra file "qkv/processor.json" */
    double threshold; /* keep scores above; 0: the processor's */
    int tile,
        overlap; /* pictures with a side above `tile` pixels are cut into tiles of that side, which overlap by so many pixels; 0: never */
    void (*progress)(
        void *user, int done,
        int total); /* at first and after every run of the model: how many of the call's pictures or tiles are done */
    void *progress_user;
    int batch; /* pictures or tiles that the model sees at once, within what it takes; 0: as many as need at most 1 GiB of activations, up to 16 */
} qkv_segment_options;

/* A grounding model as qkv.recipes.sam3 exports it: pictures (B, 3, H, W) and token ids (P, context) in; logits, boxes, masks and presence out. Uses m
 * and s, which must outlive it; one thread at a time. The session keeps the ids (qkv_session_keep): texts are encoded once for all pictures. */
typedef struct qkv_segmenter qkv_segmenter;
QKV_API qkv_segmenter *qkv_segmenter_create(const qkv_model *m, qkv_session *s, const qkv_segment_options *options,
                                            qkv_error *err);
QKV_API void qkv_segmenter_free(qkv_segmenter *g);
QKV_API double qkv_segmenter_threshold(const qkv_segmenter *g);
QKV_API int qkv_segmenter_context(const qkv_segmenter *g); /* ids of a prompt */
/* What to look for from now on. tokens (may be NULL) gets of every text how many ids it needs; above the context it was cut. */
QKV_API qkv_status qkv_segmenter_prompts(qkv_segmenter *g, const char *const *texts, int n, int *tokens,
                                         qkv_error *err);

typedef struct qkv_instance {
    int prompt;         /* which text */
    double score;       /* sigmoid(logit) * sigmoid(presence) */
    double box[4];      /* x0, y0, x1, y1 in the picture's pixels, not clipped */
    int64_t area;       /* pixels of the mask */
    const char *counts; /* the mask: COCO's compressed run lengths, as pycocotools */
} qkv_instance;
typedef struct qkv_instances qkv_instances;
/* Every instance of every prompt, in order of prompts, then of scores. */
QKV_API qkv_instances *qkv_segmenter_run(qkv_segmenter *g, const qkv_picture *p, qkv_error *err);
/* The same of n pictures, whose parts go through the model in batches; found[i] is of p[i], all are NULL on failure. */
QKV_API qkv_status qkv_segmenter_run_many(qkv_segmenter *g, const qkv_picture *const *p, int n, qkv_instances **found,
                                          qkv_error *err);
/* How many pictures or tiles go through the model at once as things are; where the options leave it open, 1 until a first run has shown what one needs. */
QKV_API int qkv_segmenter_batch(const qkv_segmenter *g);
QKV_API void qkv_instances_free(qkv_instances *i);
QKV_API int qkv_instances_count(const qkv_instances *i);
QKV_API const qkv_instance *qkv_instances_at(const qkv_instances *i, int k);
QKV_API void qkv_instances_mask(const qkv_instances *i, int k,
                                uint8_t *out); /* (height, width) of the picture, 0 or 1 */
/* A PNG of mask k, 0 and 255. */
QKV_API qkv_status qkv_instances_write_mask(const qkv_instances *i, int k, const char *path, qkv_error *err);
/* The picture with masks, boxes and scores in a colour per prompt, and a legend below. */
QKV_API qkv_picture *qkv_instances_overlay(const qkv_instances *i, const qkv_picture *p, const char *const *texts,
                                           int n, qkv_error *err);

#ifdef __cplusplus
}
#endif
#endif
