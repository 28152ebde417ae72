/* qkv beyond loading and running: describing, converting, rewriting, checking and profiling models.
 *
 *     qkv_model *r = qkv_model_rewrite(m, NULL, &report, &e);      attention in any spelling becomes one op
 *     qkv_model_save_onnx(r, "vit.onnx", NULL, NULL, &e);
 */
#ifndef QKV_TOOLS_H
#define QKV_TOOLS_H
#include "qkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- what a model is */

/* What `qkv inspect --json` prints, as one JSON object; qkv_free it. Keys: file, format, torch, producer, opset,
 * schema, inputs [{name, dtype, shape}], scalar_inputs, outputs [{name, label (if the module gives one), value, dtype,
 * shape}], symbols [{name, min, max, bound_by}], parameters, parameter_bytes, buffers, constants, nodes, ops {name:
 * count}, attentions [{node, op, query, key, value, mask, scale, causal}], modules [{path, type (its class; null:
 * unknown), parameters, nodes, attentions}] (of each module that a node or weight is in, with what is in it; parents
 * first; "" is the model; nodes and attentions are null where no node says), requirements [..], ignored_entries [..].
 */
QKV_API char *qkv_model_describe(const qkv_model *m, qkv_error *err);
/* What the module that was exported calls output i: "logits", "hidden_states.0" (dicts, dataclasses, ModelOutputs); its
 * name where it has none. Names and labels both find an output, in all functions that take one. */
QKV_API const char *qkv_model_output_label(const qkv_model *m, int i);
/* The model with sizes that have other names, in everything that is said about it and written of it: sizes[i] (a name
 * of qkv_model_symbol) is called names[i]. The old names still find them. NULL with QKV_USAGE for a size that the model
 * does not have, one that is given twice, and a name that is another size's or not letters, digits and '_'. A .pt2 that
 * qkv.export wrote has the names of its Dims. */
QKV_API qkv_model *qkv_model_with_size_names(const qkv_model *m, const char *const *sizes, const char *const *names,
                                             int n, qkv_error *err);
/* The module that a node of the graph belongs to, by the node's name: "encoder.layers.0.attn", "" for the model itself;
 * NULL where the file does not say, or there is no such node. */
QKV_API const char *qkv_model_node_module(const qkv_model *m, const char *node);
/* The graph as text, as it was after import; qkv_free it. */
QKV_API char *qkv_model_graph_text(const qkv_model *m, qkv_error *err);
/* The name of pass i of those that a graph goes through before it runs, in order ("import", "detach", "rewrite", ...);
 * NULL after the last. *in_sessions (may be NULL) becomes 1 for passes that sessions run by default, otherwise 0. */
QKV_API const char *qkv_pass_name(int i, int *in_sessions);
/* 1: nodes of a .pt2 may have this target ("aten.add.Tensor", "_operator.mul"); a file with any other is refused. What
 * a compiler asks before it hands over a part of a graph. */
QKV_API int qkv_op_known(const char *target);
/* The graph as text after only these passes ("detach,rewrite"), which run in their own order; NULL: as a session runs
 * it. qkv_free it. */
QKV_API char *qkv_model_graph_text_after(const qkv_model *m, const char *passes, qkv_error *err);

/* Lines as in qkv_model_graph_text; a file for graphviz; a picture with a layout of our own. */
typedef enum qkv_graph_format { QKV_GRAPH_TEXT, QKV_GRAPH_DOT, QKV_GRAPH_SVG } qkv_graph_format;
QKV_API const char *qkv_graph_format_name(qkv_graph_format f);                   /* "text" */
QKV_API int qkv_graph_format_from_name(const char *name, qkv_graph_format *out); /* 0: no format has this name */

typedef struct qkv_graph_options {
    size_t struct_size; /* sizeof(qkv_graph_options) */
    qkv_graph_format format;
    const char *passes; /* "detach,rewrite": the graph goes through them first; NULL: as it was after import */
    int as_run;         /* 1: the graph that sessions run */
    /* Nodes that meet all of these (each may be NULL) are shown: those of a module and the modules in it; of an op,
     * "linear", "aten.linear" or the whole name; a node and those at most `hops` edges away from it. */
    const char *module, *op, *around;
    int hops;
} qkv_graph_options;
/* The nodes of the graph that options choose; qkv_free it. Pictures show as well what these read and what reads them,
 * and no weights. options NULL: the whole graph as text. QKV_USAGE where a condition fits no node; QKV_LIMIT for an SVG
 * of more than 4000 nodes, which a browser would hardly show. */
QKV_API char *qkv_model_graph_view(const qkv_model *m, const qkv_graph_options *options, qkv_error *err);
/* The same into a file, completely or not at all. */
QKV_API qkv_status qkv_model_save_graph(const qkv_model *m, const char *path, const qkv_graph_options *options,
                                        qkv_error *err);
/* The graph after passes, as qkv_model_graph_text_after, as one JSON object for programs that draw or compare graphs;
 * qkv_free it. Keys: inputs [{name, dtype, shape}], weights [{name, path (its name in the state dict), kind, dtype,
 * shape}], outputs [{name, label, value}], lines [..] (of Python's source) and nodes, in order [{name, op, module (its
 * path, null where the file does not say), line (index in lines, or null), inputs {argument: value, or [values]},
 * attributes {argument: ..}, results [{name, dtype, shape}]}]. */
QKV_API char *qkv_model_graph_json(const qkv_model *m, const char *passes, qkv_error *err);

/* A copy of an extra file of the model's own file, by its name (extra_files of torch.export.save), followed by a 0
 * byte; qkv_free it. QKV_USAGE when there is none. */
QKV_API void *qkv_model_extra_file(const qkv_model *m, const char *name, size_t *size, qkv_error *err);
/* The embedding table in which the ids of input i are looked up: its name and how many rows it has; NULL and 0 when
 * there is none. */
QKV_API qkv_status qkv_model_input_table(const qkv_model *m, int i, const char **name, int64_t *rows, qkv_error *err);

/* ---------------------------------------------------------------- weights */

typedef enum qkv_weight_kind { QKV_PARAMETER, QKV_BUFFER, QKV_CONSTANT } qkv_weight_kind;
QKV_API const char *qkv_weight_kind_name(qkv_weight_kind k); /* "parameter" */
/* The name of weight i in the state dict (or of the ONNX initializer), NULL out of range. out, kind and persistent (1:
 * the buffer is part of the state dict) may be NULL; out points into m. */
QKV_API int qkv_model_weight_count(const qkv_model *m);
QKV_API const char *qkv_model_weight(const qkv_model *m, int i, qkv_tensor *out, qkv_weight_kind *kind,
                                     int *persistent);
/* The model with other values of the named weights; it shares the rest with m. Dtypes and sizes must be the same,
 * values are copied. NULL with QKV_USAGE for a name that the model does not have. */
QKV_API qkv_model *qkv_model_with_weights(const qkv_model *m, const char *const *names, const qkv_tensor *tensors,
                                          int n, qkv_error *err);

/* The model in another float type, for files: the model's weights and what computes with them. QKV_F16, QKV_BF16:
 * matrix products, convolutions, attention and embedding tables; norms, softmax outside of attention, sums and
 * activations stay float32, and so do inputs and outputs. QKV_F32: everything that is f16 or bf16, inputs and outputs
 * too. *report (may be NULL; qkv_free it): a JSON object with dtype, weight_bytes_before, weight_bytes, converted and
 * stays_f32 [{op, nodes}]. NULL with QKV_USAGE for a weight that f16 cannot hold, with QKV_UNSUPPORTED for a packed
 * model and one with loops or branches. */
QKV_API qkv_model *qkv_model_with_dtype(const qkv_model *m, qkv_dtype dtype, char **report, qkv_error *err);

/* ---------------------------------------------------------------- other files */

typedef struct qkv_pack_info {
    size_t struct_size;
    int weights; /* tensors in the file */
    int packed;  /* those that it also holds packed for this CPU's matrix products */
    uint64_t weight_bytes, packed_bytes;
    const char *cpu;   /* the ISA level it was packed for */
    char message[256]; /* why nothing is packed; "" otherwise */
} qkv_pack_info;
/* Writes the model as a session would run it, completely or not at all: a .qkv file, which qkv_model_load only maps,
 * with rules applied, constants computed and weights packed for this CPU. On a CPU that cannot use them, loading
 * returns QKV_UNSUPPORTED and says what they were packed for. Runs the model once, with random inputs. info may be
 * NULL; set its struct_size. docs/PACK.md describes the format. */
QKV_API qkv_status qkv_model_pack(const qkv_model *m, const char *path, qkv_pack_info *info, qkv_error *err);

/* 1: the model was loaded with a cache and is mapped from a file of it; 0: it is not. *note (may be NULL): a sentence
 * on what became of the cache: the file's path and whether it was there, or why it was not used; NULL without one. */
QKV_API int qkv_model_cached(const qkv_model *m, const char **note);

/* What an ONNX file is for: the standard alone, or a runtime (docs/ONNX.md says what each needs). */
typedef enum qkv_onnx_profile { QKV_ONNX_ORT, QKV_ONNX_SPEC, QKV_ONNX_OPENVINO, QKV_ONNX_TENSORRT } qkv_onnx_profile;

QKV_API const char *qkv_onnx_profile_name(qkv_onnx_profile p);                   /* "ort" */
QKV_API int qkv_onnx_profile_from_name(const char *name, qkv_onnx_profile *out); /* 0: no profile has this name */

typedef struct qkv_onnx_options {
    size_t struct_size; /* sizeof(qkv_onnx_options) */
    int opset;          /* 13 to 25; 0: the first from 18 on that has what the model needs */
    /* weights in a file of their own: 0: when the model would exceed 2 GiB, 1: always, -1: never */
    qkv_onnx_profile profile;
    int external_data;
    /* NULL, or the model that the file is to compute: constants are not folded, and the file's metadata has a
     * certificate qkv_certificate.json, as qkv_model_save_certified writes it; *certificate (may be NULL; qkv_free it):
     * the same */
    const struct qkv_model *source;
    char **certificate;
} qkv_onnx_options;

/* Writes the model as ONNX, completely or not at all: inputs keep their names, outputs are output_0, output_1, ...,
 * weights have their names in the state dict, variable sizes their symbols. options may be NULL. *report (may be NULL;
 * qkv_free it; set also when ops are missing): one JSON object with opset, profile, nodes, weights, attentions {op,
 * decomposed}, missing [{node, op, reason}], warnings [{node, op, rule, reason}] (what keeps the profile's runtime from
 * its fast path), notes [..], dropped [..] (conditions on sizes, which ONNX cannot hold), and for TensorRT tensorrt
 * {strongly_typed (half precision or float8), integers (it has quantizers to them), profiles [{input, min, opt, max}]
 * (of inputs with sizes that vary; opt: the example's), missing [..] (sizes without an upper bound, for which there
 * are none)}.
 * QKV_UNSUPPORTED names every node that cannot be written. The same model and options give the same bytes. */
QKV_API qkv_status qkv_model_save_onnx(const qkv_model *m, const char *path, const qkv_onnx_options *options,
                                       char **report, qkv_error *err);

/* ---------------------------------------------------------------- arguments of ops */

/* An argument of a node, as functions of your own get it: those of ops, guards and graft functions (below). */
typedef enum qkv_op_arg_kind { QKV_OP_NONE, QKV_OP_TENSORS, QKV_OP_NUMBERS, QKV_OP_TEXT } qkv_op_arg_kind;
typedef struct qkv_op_arg {
    qkv_op_arg_kind kind; /* a bool is a number, 0 or 1; a dtype is a text */
    int n;                /* tensors or numbers: 1, but for lists */
    /* A kernel gets contiguous tensors, which it must not write. All others get dtype and rank, and dims[i][axis], the
     * size of tensor i as text: "3", "s0", "14*s1"; shape and data are NULL. */
    const qkv_tensor *tensors;
    const char *const *const *dims;
    /* Numbers as integers and as floats. But for kernels they are NULL where a number follows from sizes; sizes[i] is
     * its text. */
    const int64_t *ints;
    const double *floats;
    const char *const *sizes;
    const char *text;
} qkv_op_arg;

/* ---------------------------------------------------------------- rewriting */

/* What a rule's function is called for: arguments of it, which are parts of what the rule matched. It is valid during
 * the call alone, and so is all that is read from it, which is read-only. */
typedef struct qkv_match qkv_match;

typedef struct qkv_match_view {
    size_t struct_size; /* sizeof(qkv_match_view) */
    qkv_op_arg arg;
    /* The number that a number or a tensor is known to be, as text: "0.125", "2*s0"; NULL: none is known. */
    const char *number;
    /* Of a tensor; NULL for other things: its name in the graph, the op that computes it ("aten.mul.Tensor"; NULL for
     * an input or a weight) with the names of that op's parameters, and how often it is read. */
    const char *name, *op;
    const char *const *parameters;
    int n_parameters;
    int result; /* which of the op's results it is */
    int uses;
    const int64_t *low, *high; /* the range of each of its sizes; INT64_MAX: unbounded */
    const char *weight;        /* its name in the state dict; NULL: it is none */
    const qkv_tensor *data;    /* the elements of a weight that no run changes; NULL: they are not known */
} qkv_match_view;

/* Fills *out (set its struct_size) with what is found at a path: "0" is the function's first argument, "0/self" the
 * argument `self` of the node that computes it, "0/tensors/1" the second of a list. QKV_USAGE: nothing is there. */
QKV_API qkv_status qkv_match_look(qkv_match *m, const char *path, qkv_match_view *out, qkv_error *err);
/* In a graft function: makes what the rule puts in place. graft: as in a .rules file, its variables paths:
 * "(linear ?0 ?1/weight none)". QKV_MISMATCH: it cannot be built, and why; QKV_UNREADABLE: not a graft. */
QKV_API qkv_status qkv_match_build(qkv_match *m, const char *graft, qkv_error *err);

/* QKV_OK: a guard holds, a graft was built. Otherwise the rule does not fire here, and err->message, which the report
 * shows, says why; rewriting goes on. */
typedef qkv_status qkv_rule_call(void *user, qkv_match *m, qkv_error *err);
typedef struct qkv_rule_function {
    const char *name;     /* "long_enough": letters, digits, '_' */
    qkv_rule_call *guard; /* what (long_enough ?q ?k) asks, with any number of arguments up to 8; NULL: nothing */
    qkv_rule_call *graft; /* what (@long_enough ?q ?k) builds; NULL: nothing */
    void *user;           /* handed to both */
} qkv_rule_function;

/* Sums of phases choose which rules are tried. */
typedef enum qkv_phase { QKV_RECOMPOSE = 1, QKV_CONVERT = 2, QKV_FUSE = 4 } qkv_phase;
QKV_API const char *qkv_phase_name(qkv_phase p);                   /* "recompose" */
QKV_API int qkv_phase_from_name(const char *name, qkv_phase *out); /* 0: no phase has this name */

typedef struct qkv_rewrite_options {
    size_t struct_size;            /* sizeof(qkv_rewrite_options) */
    const char *const *rule_files; /* more rules (docs/RULES.md); one with the name of a built-in rule replaces it */
    int rule_file_count;
    int no_builtin_rules; /* 1: use only those files */
    unsigned phases;      /* a sum of qkv_phase; 0 = all */
    /* 1: before each replacement, evaluate both sides at several sizes: on random payloads of an exact algebra, or,
     * where that says nothing, on random floats (docs/PROOF.md); 2: on random floats only */
    int prove;
    int seeds;                  /* per proof and size, 0 = 3 */
    const char *counterexample; /* where a failed proof writes its tensors (.safetensors, .npz); NULL: nowhere */
    /* 1: leave an attention as it is if its rows without an allowed key would change their result */
    int exact_masked_rows;
    void (*progress)(void *user, int done, int total);
    void *progress_user;
    int skip_padding; /* 1: then, where a key padding mask marks tokens, run the network on real tokens only */
    /* NULL, or a device as in qkv_sdpa_choice: then give attention the form that has a better PyTorch kernel there */
    const char *lift_sdpa;
    int cudnn;     /* with lift_sdpa */
    int unrounded; /* 1: a weight that a rule computes from others stays the ops that compute it, for certificates */
    /* More rules, as texts, after those of rule_files; and functions that rules may name, in addition to the library's
     * own. A function is called during qkv_model_rewrite alone, by its thread. */
    const char *const *rule_texts;
    int rule_text_count;
    int n_functions;
    const qkv_rule_function *functions;
} qkv_rewrite_options;

/* The model with a rewritten graph: attention in any spelling becomes scaled_dot_product_attention, other compounds
 * become their op. It shares weights and file with m, which stays as it is. options may be NULL. NULL with QKV_MISMATCH
 * when a proof fails. *report (may be NULL; qkv_free it; set also when a proof fails): one JSON object with
 * attentions_fused (ops in the result), attentions_left (softmax(QK)V still spelled out), nodes_before, nodes_after,
 * proven, ms, firings [{rule, phase, result, op, nodes, module, note, sense (what the proof says), why_floats (why it
 * is on floats), max_abs, max_rel_peak, max_abs_masked_rows, runs, not_proven}], left [{node, module, at, rule,
 * matched, reason, advice}] and refused [{rule, node, module, reason}], where a rule that is not built in met its
 * pattern and did not fire. With skip_padding, outputs at real positions are as before and at padded positions 0
 * (docs/SKIP_PADDING.md); the report has skip_padding {nothing (why there is no mask, or null), masks [{mask, applied,
 * why, attentions, nodes, stops [{node, op, value, why}], sense, why_floats, max_abs, max_rel_peak, runs,
 * not_proven}]}. */
QKV_API qkv_model *qkv_model_rewrite(const qkv_model *m, const qkv_rewrite_options *options, char **report,
                                     qkv_error *err);

/* Writes m as qkv_model_save does, but folds no constants, with a certificate as its extra file
 * qkv_certificate.json: claims that what the file computes is what `source` computes, over the reals and for all sizes
 * in range, which the program qkv-certify replays on the two files (docs/PROOF.md). rewriting: the report of the
 * qkv_model_rewrite that made m from source, for the rules' names; NULL: none. *certificate (may be NULL; qkv_free
 * it): the same JSON: whole (do the claims cover all results), why (what is not shown; null), weights and claims. */
QKV_API qkv_status qkv_model_save_certified(const qkv_model *m, const qkv_model *source, const char *rewriting,
                                            const char *path, char **certificate, qkv_error *err);

/* Replays a certificate of qkv_model_save_certified: that `result` computes what `source` does. certificate: its JSON;
 * NULL: the extra file of result's own file. QKV_OK: it holds; QKV_MISMATCH: it does not, and where it breaks.
 * *report (may be NULL; qkv_free it; set in both cases): one JSON object with holds, sense, why, claims, assuming. */
QKV_API qkv_status qkv_certificate_check(const qkv_model *source, const qkv_model *result, const char *certificate,
                                         char **report, qkv_error *err);

typedef struct qkv_prove_options {
    size_t struct_size; /* sizeof(qkv_prove_options) */
    /* n_dims sizes of the first model that stay as they are, by symbol, axis (x.1), or batch, seq, height, width;
     * others are varied within their ranges */
    const char *const *dim_names;
    const int64_t *dims;
    int n_dims;
    int sizes;                  /* how many choices of sizes, 0 = 4 */
    int seeds;                  /* payloads at each, 0 = 2 */
    int floats;                 /* 1: on random floats only */
    const char *counterexample; /* where tensors that differ are written (.npz, .safetensors); NULL: nowhere */
} qkv_prove_options;

/* Do two models compute the same? Inputs are paired by name, or by position where names differ, outputs by position;
 * weights are their numbers. QKV_OK: equal on all that was tried, and the report's `sense` says what that is worth
 * (docs/PROOF.md): "equal on random exact payloads", "equal within a tolerance on random floats". QKV_MISMATCH: they
 * differ. QKV_UNSUPPORTED: it cannot be told, and why. options may be NULL. *report (may be NULL; qkv_free it; set in
 * all three cases): one JSON object with result ("equal", "different", "unknown"), sense, why, why_floats (why exact
 * payloads say nothing), inputs [{first, second}], sizes [{symbol: size}] (where they differ: the last), runs,
 * difference {output, on, shapes, index (row-major, of the first that differs), first, second, count, of, max_abs,
 * max_rel_peak} or null, counterexample. */
QKV_API qkv_status qkv_model_prove(const qkv_model *first, const qkv_model *second, const qkv_prove_options *options,
                                   char **report, qkv_error *err);

/* ---------------------------------------------------------------- which kernel PyTorch uses for an attention */

/* The values are PyTorch's (torch.nn.attention.SDPBackend). */
typedef enum qkv_sdpa_backend { QKV_SDPA_MATH, QKV_SDPA_FLASH, QKV_SDPA_EFFICIENT, QKV_SDPA_CUDNN } qkv_sdpa_backend;
QKV_API const char *qkv_sdpa_backend_name(qkv_sdpa_backend b); /* "math" */

typedef struct qkv_sdpa_call {
    size_t struct_size;           /* sizeof(qkv_sdpa_call) */
    qkv_tensor query, key, value; /* data is not read and may be NULL; strides NULL = contiguous */
    const qkv_tensor *mask;       /* NULL: none */
    int mask_requires_grad;
    int requires_grad; /* query, key or value require a gradient, and gradients are enabled */
    int is_causal, enable_gqa;
    double dropout_p;
    int64_t offset[3]; /* of query, key and value into their storages, in elements */
} qkv_sdpa_call;

/* The backend that PyTorch 2.13 picks for a call of scaled_dot_product_attention on a device: "cpu" (NULL),
 * "cuda-sm80", "cuda-sm90", ... cudnn: its version as 92000 for 9.20.0, 0 = that. *report (may be NULL; qkv_free it):
 * one JSON object with backend and refused [{backend, rule, what, change, source}], everything that keeps the call from
 * a better one, in PyTorch's order. docs/BACKENDS.md lists the rules. */
QKV_API qkv_status qkv_sdpa_choice(const qkv_sdpa_call *call, const char *device, int cudnn, qkv_sdpa_backend *out,
                                   char **report, qkv_error *err);

typedef struct qkv_backends_options {
    size_t struct_size;
    const char *device; /* as above */
    int cudnn;
    int train; /* 1: gradients are enabled, and every parameter that is not frozen requires one */
    /* n_dims known sizes, by symbol, axis (x.1), or batch, seq, height, width; others stay symbols */
    const char *const *dim_names;
    const int64_t *dims;
    int n_dims;
} qkv_backends_options;

/* The same for every attention of a model as its file has it (one that was rewritten: as qkv_model_save would write
 * it), as one JSON object; qkv_free it. Keys: device, cudnn (null on the CPU), train, attentions [{node, path, op,
 * query, key, value, mask [sizes, or null], dtype, causal, gqa, dropout, fixed (the backend that the op names, or
 * null), choice [{backend, when (a condition on sizes; null: otherwise), rule}], refused [{backend, rule, what, change,
 * source, when (what would have to hold, or null: no size helps)}]}]. options may be NULL. */
QKV_API char *qkv_model_backends(const qkv_model *m, const qkv_backends_options *options, qkv_error *err);

/* ---------------------------------------------------------------- static exports made dynamic */

typedef struct qkv_generalize_options {
    /* n_dims texts "batch=x.0,mask.0": axes that share one size, and its name */
    size_t struct_size;
    const char *const *dims;
    int n_dims;
    const char *const *dynamic; /* n_dynamic texts "x.0": axes that must become variable */
    int n_dynamic;
    int apart;                     /* 1: axes that are equal in every file are still different sizes */
    const qkv_model *const *check; /* n_check more static exports, whose results the new model must reproduce */
    int n_check;
} qkv_generalize_options;

/* Makes one model with variable sizes from static exports at different sizes: every value and every constant tensor
 * that differs between them is solved as an expression of the input sizes. The new model has been run at the sizes of
 * every given model, on the same random inputs and with the same results, and at other sizes. NULL with QKV_MISMATCH
 * when something cannot be solved or checked. It borrows the weights of `models`, which must outlive it. *report,
 * unless report is NULL: a JSON object, also when the result is NULL with QKV_MISMATCH; qkv_free it. Keys: solved,
 * files, sizes [{name, expr, axes, values, tied}], numbers [{node, op, argument, values, expr, also, places}] (also:
 * other expressions that fit every file), unsolved [{node, op, argument, values, why}], notes [..], checks [{against,
 * sizes, agrees, max_abs_over_peak, problem}]. */
QKV_API qkv_model *qkv_model_generalize(const qkv_model *const *models, int n, const qkv_generalize_options *options,
                                        char **report, qkv_error *err);

/* ---------------------------------------------------------------- gradients */

typedef enum qkv_decompose {
    QKV_DECOMPOSE_NONE, /* attention stays one op, and the backward pass recomputes its probabilities */
    QKV_DECOMPOSE_CORE, /* as math, and everything else in ATen's core ops */
    QKV_DECOMPOSE_MATH  /* products and a softmax, whose result the backward pass reads */
} qkv_decompose;
QKV_API const char *qkv_decompose_name(qkv_decompose d); /* "none" */
QKV_API int qkv_decompose_from_name(const char *name, qkv_decompose *out);

/* What the backward pass recomputes instead of reading kept results of the forward pass. */
typedef enum qkv_recompute {
    QKV_RECOMPUTE_NONE,
    QKV_RECOMPUTE_CHEAP, /* norms, activations, softmax and the like where their inputs are kept anyway */
    QKV_RECOMPUTE_BLOCKS /* everything between a few cuts, as torch.utils.checkpoint */
} qkv_recompute;
QKV_API const char *qkv_recompute_name(qkv_recompute r); /* "none" */
QKV_API int qkv_recompute_from_name(const char *name, qkv_recompute *out);

typedef struct qkv_joint_options {
    size_t struct_size; /* sizeof(qkv_joint_options) */
    const char *loss;   /* the output to differentiate, a single value; NULL: the only output */
    qkv_decompose decompose;
    /* n_inputs names of inputs whose gradients are wanted, besides those that required one when the model was exported;
     * "*": all floating-point inputs */
    const char *const *inputs;
    int n_inputs;
    int inputs_only; /* 1: no gradients of parameters */
    qkv_recompute recompute;
    /* n_dims sizes that recompute and the report assume, as in qkv_backends_options; other sizes are those of the
     * file's examples */
    const char *const *dim_names;
    const int64_t *dims;
    int n_dims;
    /* NULL, or a device as in qkv_sdpa_choice, for whose kernels a .pt2 names the ops of attention and its gradient;
     * the choice may depend on dims, which the model then requires */
    const char *device;
    int cudnn; /* of the device */
} qkv_joint_options;

/* The model and the gradients of its loss as one model: the model's outputs, then the gradient "grad.NAME" of every
 * parameter that requires one and reaches the loss, in the order of the state dict, then those of inputs. It runs, and
 * is written as .pt2 or ONNX, like any model; docs/JOINT.md. It shares the weights of m. NULL with QKV_USAGE for a loss
 * that is missing or not a single value, for integer parameters, and when there is nothing to differentiate; with
 * QKV_UNSUPPORTED for an op without a gradient: the message names it and its path to the loss. options may be NULL.
 * *report (may be NULL; qkv_free it): one JSON object with loss, nodes_before, nodes_after, gradients [{output,
 * parameter or input, dtype, shape}], without [parameters that do not reach the loss]; with recompute also recompute
 * {how, sizes, without, with}, each of the two {memory (bytes of results alive at once), flops, bytes} of a run at
 * those sizes, or null where they depend on data; with device also device and attentions [{node, backend, assumes (a
 * condition on sizes, or null), better, rule, what (the best kernel that was refused, and why; or null)}]. */
QKV_API qkv_model *qkv_model_joint(const qkv_model *m, const qkv_joint_options *options, char **report, qkv_error *err);

/* ---------------------------------------------------------------- integers of 8 bits */

/* How ranges become scales. */
typedef enum qkv_calibration {
    QKV_CALIBRATION_MINMAX,
    QKV_CALIBRATION_AVERAGE,    /* of the batches, moving by a hundredth, as PyTorch's observer */
    QKV_CALIBRATION_PERCENTILE, /* what so many of 100 absolute values stay below */
    QKV_CALIBRATION_ENTROPY,    /* the least divergence from the histogram, as TensorRT */
    QKV_CALIBRATION_MSE         /* the least squared error over the histogram */
} qkv_calibration;
QKV_API const char *qkv_calibration_name(qkv_calibration c); /* "minmax" */
QKV_API int qkv_calibration_from_name(const char *name, qkv_calibration *out);

typedef struct qkv_quantize_options {
    size_t struct_size; /* sizeof(qkv_quantize_options) */
    const char *target; /* whose kernels decide where quantizers go: qkv_quantize_target; NULL: "cpu" */
    qkv_calibration calibration;
    double percentile; /* of that calibration; 0: 99.99 */
    int asymmetric;    /* 1: activations are u8 with a zero point; 0: i8 */
    int dynamic;       /* 1: linear layers alone, by a scale a token that every run finds; no calibration */
    /* n_data tensors by the names of inputs, one example a row (axis 0); those of other length are the same for all.
     * 0: random numbers, whose ranges say little of a trained model */
    const char *const *names;
    const qkv_tensor *data;
    int n_data;
    int64_t batch;           /* rows a run; 0: what the model fixes, else 32 or the nearest that it allows */
    const char *const *skip; /* n_skip names of nodes, weights or ops (aten.convolution.default) to leave in
                              * floats, with * and ? */
    int n_skip;
    int threads; /* 0: all; results do not depend on it */
    uint64_t seed;
    /* After every batch, of so many of a look at the data (smooth and correct have their own, a budget counts its
     * trials); not 0 stops, with QKV_USAGE. NULL: none */
    int (*progress)(void *user, long long done, long long total);
    void *progress_user;
    double smooth; /* SmoothQuant's alpha: what is far larger in a few channels of norms moves into the weights that
                    * read them, before anything is rounded; 0: not; at most 1 */
    int correct;   /* 1: biases take up what rounding weights does to the means of results over the data */
    const char *budget; /* "cosine>=0.999", "kl<=0.01": the layers stay in floats (with weight_bits 4: in 8 bits) that
                         * cost least time (size) of those with which that holds over two batches; "metric>=0.98",
                         * "metric>=99%" (of the floats' figure), "metric<=12": with which that holds; NULL: none */
    int weight_bits;    /* 4, 8: the weights of linear layers alone, by a scale for `group` elements of a row; what
                         * layers read stays in floats, or, dynamic, is rounded by a scale a token. 0: both, 8 bits */
    int group;          /* 8 to 32768, halved until it divides a row; longer than a row: a scale a row. 0: 32 */
    const char *weight_method; /* "rtn" (to the nearest; NULL), "gptq", "awq", "awq+gptq": these look at the data */
    int trainable; /* 1: weights stay floats, each with its quantizer, through which gradients go straight: for
                    * qkv_model_joint and a training session; with neither dynamic, smooth, correct nor weight_method.
                    * A model that was trained so is quantized without further options: its scales are kept */
    /* Finds a figure of a model, such as its accuracy on labelled data: of the floats, of what is made, and, with a
     * budget by it, of candidates. m is the library's, and lives until metric returns. Not 0 stops, with QKV_USAGE.
     * NULL: none */
    int (*metric)(void *user, const qkv_model *m, double *figure);
    void *metric_user;
    double massive;   /* what reads values with elements so many times their median stays in floats: one scale, or one a
                     * token, would round the others to 0; dynamic: of the data, where there are any. 0: 1000 */
    int metric_calls; /* at most, for a budget by it: after that QKV_LIMIT, or the best that held; 0: 20 */
    /* A file that keeps what calibration has seen, written every two seconds and at the end: a call that was stopped,
     * or whose process ended, goes on with the batch after the last that is in it, and one with the same model, data
     * and calibration need not run them again. QKV_USAGE: it is another model's. NULL: none */
    const char *calibration_cache;
} qkv_quantize_options;

/* The model with attention recognised, and its linear layers and attentions between quantizers, where the target
 * multiplies integers: weights a channel each, activations one scale each, biases and norms in floats. It runs, in
 * integers, and is written as ONNX (QuantizeLinear, DequantizeLinear) or .pt2 (quantized_decomposed), like any model;
 * docs/QUANTIZE.md. It shares the other weights of m. NULL with QKV_USAGE for data that do not fit or are not finite,
 * with QKV_UNSUPPORTED for a model that has quantizers already, or where nothing can be quantized. options may be NULL.
 * *report (may be NULL; qkv_free it): one JSON object with target, calibration ("trained": the model was trained
 * with quantizers, which are kept), data ("given" or "random"), batches, weight_bits, opset (the first of ONNX that
 * has these quantizers), group (of weights alone), quantized, left, weights (counts), sites [{node, kind, weight,
 * why_not (null: it is quantized), with a budget loss (of what is limited), kl, sqnr_db, float_ms, integer_ms (medians
 * over layers of its shape), rank (from 1: first the layers that are kept), of weights alone bits}], with a budget
 * {metric, limit, all, reached, kept}, with a metric {floats, quantized, calls}, points [{value, dtype, scale,
 * zero_point, low, high}], outputs [{output, cosine, max_abs, rows (of the last axis), same_argmax (rows whose largest
 * element is in the same place)}] against the floats over 8 batches. */
QKV_API qkv_model *qkv_model_quantize(const qkv_model *m, const qkv_quantize_options *options, char **report,
                                      qkv_error *err);
QKV_API const char *qkv_quantize_target(int i); /* "cpu", ...; NULL after the last */

/* ---------------------------------------------------------------- checking */

/* What is to run a model: a sum of these. */
typedef enum qkv_target {
    QKV_TARGET_QKV = 1,
    QKV_TARGET_ORT = 2,
    QKV_TARGET_OPENVINO = 4,
    QKV_TARGET_TENSORRT = 8
} qkv_target;
QKV_API const char *qkv_target_name(qkv_target t); /* "qkv" */
QKV_API int qkv_target_from_name(const char *name, qkv_target *out);

typedef struct qkv_check_options {
    size_t struct_size; /* sizeof(qkv_check_options) */
    unsigned targets;   /* a sum of qkv_target: also report what these would refuse */
    int security;       /* 1: also check the container itself, and pickles and code in it */
    int full;           /* 1: also check the checksums of weights */
    int strict;         /* 1: warnings count as errors in the status */
} qkv_check_options;

/* Checks a model file without running it: schema, types, sizes, names, weights, masks. options may be NULL. QKV_OK: no
 * errors; QKV_MISMATCH: errors (with strict: or warnings); QKV_UNREADABLE: the file cannot be read at all. *report (may
 * be NULL; qkv_free it; set in all three cases): one JSON object with file, format, readable, targets, nodes, weights,
 * errors, warnings, notes (counts) and findings [{id, severity, place, message, remedy}], worst first. docs/CHECK.md
 * lists the ids. */
QKV_API qkv_status qkv_check(const char *path, const qkv_check_options *options, char **report, qkv_error *err);
/* Title, severity, meaning and remedy of a finding by its id ("Q304"), one a line; NULL for an unknown one. */
QKV_API const char *qkv_check_explain(const char *id);
QKV_API const char *qkv_check_id(int i); /* "Q100", ...; NULL after the last */

/* ---------------------------------------------------------------- parts of a model */

/* Makes a model of what lies between the values named by `from` (n_from 0: the inputs that are needed) and those named
 * by `to` (n_to 0: the outputs). These become its inputs and outputs and keep their names, sizes and ranges; the
 * weights, buffers and conditions on sizes that matter are included. Names are those of qkv_model_graph_text, of inputs
 * and outputs, or of the ONNX file. NULL with QKV_USAGE for an unknown name, and for an input that a result needs but
 * `from` does not name. It shares the weights of m. */
QKV_API qkv_model *qkv_model_extract(const qkv_model *m, const char *const *from, int n_from, const char *const *to,
                                     int n_to, qkv_error *err);

/* ---------------------------------------------------------------- outputs that become inputs */

/* Keys and values of a decoder, states: after every run `input` is what `output` was in it, without a copy. The first
 * run takes what was set; what is set later is the next run's. output NULL: `input` is not fed any more. Where the
 * model appends to the input (a cat of it and new values), it grows in place, and begins with size 0 on that axis if it
 * was not set. Outputs that are fed stay in the session's memory (qkv_session_output_memory is not asked for them) and
 * may have strides. Dtypes, ranks and fixed sizes that differ are QKV_USAGE here, other sizes in the run. After a
 * failed run the input is as before. Its memory counts for memory_limit. */
QKV_API qkv_status qkv_session_feed(qkv_session *s, const char *input, const char *output, qkv_error *err);

/* ---------------------------------------------------------------- what a session did */

typedef struct qkv_stats {
    size_t struct_size;
    double plan_ms;          /* planning of the last new size binding */
    size_t activation_bytes; /* arena of the current plan */
    size_t constant_bytes;   /* results computed once for each size */
    /* weights in the layout of the matrix kernels; packed when a product is used for the second time */
    size_t packed_bytes;
    size_t scratch_bytes; /* scratch of steps that does not fit into free parts of the arena */
    int steps;            /* kernels run per inference */
    int plans;            /* size bindings planned until now */
    int threads;          /* in use */
    size_t kept_bytes;    /* results of kept inputs (qkv_session_keep) */
} qkv_stats;
QKV_API qkv_status qkv_session_stats(const qkv_session *s, qkv_stats *out, qkv_error *err); /* set out->struct_size */

/* A copy of what the last run computed from kept inputs (qkv_session_keep) alone, such as the features of a picture:
 * many may be held, one for each picture. QKV_USAGE where nothing depends on kept inputs alone. */
typedef struct qkv_kept qkv_kept;
QKV_API qkv_kept *qkv_session_kept(qkv_session *s, qkv_error *err);
QKV_API size_t qkv_kept_bytes(const qkv_kept *k);
/* The next run of that session takes them instead of computing them, although kept inputs were set again. These must
 * have the values that they had when k was made, which is not checked; k must stay until that run has ended. Where the
 * session has made other plans since then, the run computes them. */
QKV_API qkv_status qkv_session_use_kept(qkv_session *s, const qkv_kept *k, qkv_error *err);
QKV_API void qkv_kept_free(qkv_kept *k);

/* What the arena holds during the last run, as one JSON object; qkv_free it. Keys: arena_bytes, steps [{node, op,
 * alive_bytes (results alive while it runs), scratch_bytes, constant (true: computed once for each size)}], peak (index
 * of the step that needs most, null: there is none) and held, what is alive then, largest first [{value, op, shape,
 * bytes, from, to (steps)}]. QKV_USAGE before the first run. */
QKV_API char *qkv_session_memory_json(const qkv_session *s, qkv_error *err);

/* Time per step of the runs since profiling was switched on. One JSON object with steps [..]; qkv_free it. A step:
 * {node, op, shape (of its results), calls, total_ms, min_ms (the shortest call), operands, arithmetic ("bf16" where it
 * multiplies 16-bit values, else "f32"), flops, bytes} of one call: operations from the sizes (a causal attention
 * counts half), bytes that must be read and written at least. What a run does besides its steps has the same keys
 * without the last four, node "" and op "(inputs)", "(sizes)", "(plan)", "(buffers)" or "(profile)". All total_ms add
 * up to the time of the runs. */
QKV_API void qkv_session_profile(qkv_session *s, int on);
QKV_API char *qkv_session_profile_json(const qkv_session *s, qkv_error *err);

/* Records every step of every run from now on, with start and duration, until `events` are recorded; 0 events: stop,
 * and forget them. The file is JSON in the Trace Event Format, written completely or not at all, and opens in
 * https://ui.perfetto.dev: runs, and in them steps with node, op, operands, result, dtype, flops, bytes, GFLOP/s and
 * GB/s. */
QKV_API qkv_status qkv_session_trace(qkv_session *s, int64_t events, qkv_error *err);
QKV_API qkv_status qkv_session_trace_write(const qkv_session *s, const char *path, qkv_error *err);
/* What that file would hold, as text; qkv_free it. */
QKV_API char *qkv_session_trace_json(const qkv_session *s, qkv_error *err);

typedef struct qkv_peak {
    size_t struct_size; /* sizeof(qkv_peak) */
    /* multiply-adds on registers, two operations each, of all threads together */
    int threads;
    double f32_gflops, bf16_gflops;
    double read_gbs;              /* reading 64 MiB a thread */
    const char *f32_by, *bf16_by; /* "AVX-512", "AMX tiles"; bf16's is f32's where the CPU has no instruction for it */
    double region_us;             /* microseconds to open and close a parallel loop of those threads */
} qkv_peak;
/* The best this machine does at present with the instructions that qkv_cpu names: the best of several short loops, 60
 * ms in total. 0 threads: as many as a session has by default. */
QKV_API qkv_status qkv_measure_peak(int threads, qkv_peak *out, qkv_error *err);

/* Called after every node with its outputs (valid only during the call); node is the name in the file. Return non-zero
 * to stop the run. Load with no_fuse to see every node. NULL switches it off. */
typedef int qkv_node_callback(void *user, const char *node, const char *op, const qkv_tensor *outputs, int n);
QKV_API void qkv_session_on_node(qkv_session *s, qkv_node_callback *f, void *user);

/* Called before every step of every run: the module of the model that it belongs to, by the names of its weights
 * ("vision_encoder" of "model.vision_encoder.layers.3.fc1.weight": what follows that which all names begin with; ""
 * where names say nothing), and the share of the run's work that is done, from 0 to 1; 0 while results of kept inputs
 * are computed. f must be quick. NULL switches it off. */
typedef void qkv_progress_callback(void *user, const char *module, double done);
QKV_API void qkv_session_on_progress(qkv_session *s, qkv_progress_callback *f, void *user);

/* From any thread, and from a signal handler: 1 ends the run that is under way, within milliseconds and in the middle
 * of a product, a convolution or an attention, and every later one, with QKV_LIMIT ("the run was cancelled"); there are
 * no outputs then, and buffers are as they were. 0: it runs again. The session must not be freed meanwhile. */
QKV_API void qkv_session_cancel(qkv_session *s, int on);

/* Random inputs for given sizes: names[k] = values[k], a name being a symbol ("s0"), an axis ("input_ids.1") or its
 * usual name (batch, seq, height, width); other sizes take the smallest value that the file allows. The inputs are
 * owned by the session and set. Integers are drawn so that they are valid indices; masks (bool) keep the first element
 * of each row. The same seed gives the same bytes. */
QKV_API qkv_status qkv_session_random_inputs(qkv_session *s, const char *const *names, const int64_t *values, int n,
                                             uint64_t seed, qkv_error *err);

/* ---------------------------------------------------------------- threads */

/* A session's threads are those of a pool that all sessions of the process share: they sleep where there is nothing to
 * do, and sessions that run at the same time have no more threads together than there are CPUs, or than the widest of
 * them asked for. A program that has threads of its own gives the session those instead, and no thread of ours is made:
 *
 *     qkv_executor mine = {sizeof mine, run_on_my_pool, my_pool};
 *     qkv_session_options o = {.struct_size = sizeof o, .threads = 4, .executor = &mine};
 *
 * run is called from within calls on the session, by the thread that makes them. It must call task(data, i) once for
 * each i of [0, n), in any order, from any threads, several at a time or one after the other, and return when all those
 * calls have returned. n is at most the session's threads. Tasks never wait for each other, and results are the same
 * bits however they are run. */
typedef struct qkv_executor {
    size_t struct_size; /* sizeof(qkv_executor) */
    void (*run)(void *user, int n, void (*task)(void *data, int i), void *data);
    void *user; /* given to run; must stay valid until the session is freed */
} qkv_executor;

/* ---------------------------------------------------------------- comparing */

typedef struct qkv_difference {
    double max_abs, max_rel;    /* over finite pairs; rel = |a-b| / |b| where b is not 0 */
    double max_abs_over_peak;   /* max_abs / largest |b| */
    double cosine;              /* of the flattened finite values; 1 when both are zero */
    int64_t index;              /* row-major element of max_abs, -1 when nothing differs */
    double a, b;                /* the values there */
    int64_t nonfinite_mismatch; /* elements where NaN / +inf / -inf differ */
    int64_t failed;             /* elements with |a-b| > atol + rtol * |b|, nonfinite mismatches included */
} qkv_difference;
/* a against the expected b. QKV_USAGE when the shapes differ (dtypes may differ); QKV_MISMATCH when d->failed > 0;
 * QKV_LIMIT when both repeat their elements (a stride of 0) and look like more than 2^31 of them. */
QKV_API qkv_status qkv_compare(const qkv_tensor *a, const qkv_tensor *b, double atol, double rtol, qkv_difference *d,
                               qkv_error *err);
/* What qkv verify takes for equal, as a share of the largest expected value: 2e-5 for QKV_F32; 0 but for floats. */
QKV_API double qkv_tolerance(qkv_dtype t);
/* The same of each output, share[qkv_model_output_count]: of its dtype or, where the model rounds to narrower floats on
 * the way (an autocast region in bf16, then float32), of theirs. */
QKV_API qkv_status qkv_model_output_tolerances(const qkv_model *m, double *share, qkv_error *err);

/* ---------------------------------------------------------------- ops of one's own */

enum { QKV_OP_DIM = 256 };
/* What a shape function fills: sizes as text, made of those that it got: "(s0) + 1", "2*(14*s1)", "Max(s0, s1)". */
typedef struct qkv_op_result {
    qkv_dtype dtype;
    int rank;
    char dim[QKV_MAX_RANK][QKV_OP_DIM];
} qkv_op_result;

/* Both return QKV_OK, or a status with a sentence in err->message, which the caller of the library gets with the node's
 * name. What they are given is valid during the call alone. */
typedef qkv_status qkv_op_shape(void *user, int n_args, const qkv_op_arg *args, int n_results, qkv_op_result *results,
                                qkv_error *err);
/* Writes all elements of the results: contiguous memory of the sizes that the shape function gave. threads: as many as
 * it may use. */
typedef qkv_status qkv_op_kernel(void *user, int n_args, const qkv_op_arg *args, int n_results,
                                 const qkv_tensor *results, int threads, qkv_error *err);

typedef struct qkv_op {
    size_t struct_size; /* sizeof(qkv_op) */
    const char *name;   /* "my::twice"; overloads as "my::twice.out"; of an ONNX domain, "com.my::twice" */
    const char *schema; /* as PyTorch writes it: "(Tensor x, float by=2.0) -> Tensor" */
    qkv_op_shape *shape;
    qkv_op_kernel *kernel;
    /* NULL, or the name of a registered op that computes the gradient: it takes the gradient of each result, then all
     * arguments of this op, and returns the gradient of each tensor parameter, in their order. */
    const char *gradient;
    void *user; /* handed to both functions */
} qkv_op;
/* From now on models that contain the op load and run: my::twice is the target my.twice.default of a .pt2, and the op
 * "twice" of the domain "my" in ONNX, whose inputs are the schema's tensors and whose attributes the other parameters,
 * by name. An op is a function: equal arguments give equal results, and what depends on weights alone is computed once.
 *
 * Ownership: strings are copied; the functions and what `user` points to must stay valid as long as the process, since
 * an op stays registered. Threads: any thread may register; shape functions and kernels are called by every thread that
 * loads or runs a model, at once where several do. They may not call functions of the session that runs them.
 *
 * QKV_USAGE: a name that is taken or none, a schema that is none; QKV_LIMIT: the 33rd op. */
QKV_API qkv_status qkv_register_op(const qkv_op *op, qkv_error *err);

/* ---------------------------------------------------------------- files */

/* Writes a file of these bytes, completely or not at all: temporary file in the same folder, fsync, rename. */
QKV_API qkv_status qkv_file_write(const char *path, const void *bytes, size_t n, qkv_error *err);
/* The same in pieces: they go to the temporary file, which gets its name when it is finished. A qkv_file is used by one
 * thread at a time. */
typedef struct qkv_file qkv_file;
QKV_API qkv_file *qkv_file_open(const char *path, qkv_error *err); /* NULL on error */
QKV_API qkv_status qkv_file_add(qkv_file *f, const void *bytes, size_t n, qkv_error *err);
QKV_API qkv_status qkv_file_finish(qkv_file *f, qkv_error *err); /* frees f, also after an error */
QKV_API void qkv_file_free(qkv_file *f);                         /* instead: nothing is written. NULL does nothing. */
/* How the library makes the files that it writes, for the whole process, for programs that may not open them
 * themselves: below a sandbox, a process outside can. Each returns -1 with errno set when it fails. What is written
 * appears whole or not at all: it goes to a new file beside its target, which then gets the target's name. They may be
 * called from any thread. Temporary files that a signal leaves are theirs to remove. */
typedef struct qkv_files {
    size_t struct_size; /* sizeof(qkv_files) */
    /* A descriptor of a new file to be written; or (writes 0) of one that it made and that is to be read, where opening
     * it was refused (EACCES). */
    int (*open)(void *user, const char *path, int writes);
    int (*rename)(void *user, const char *from, const char *to); /* replaces what is there */
    int (*remove)(void *user, const char *path);
    void *user;
} qkv_files;
QKV_API qkv_status qkv_set_files(const qkv_files *f, qkv_error *err); /* copies *f; before anything is written */
/* Calls each with the name of every file in which an ONNX model says that its data is, once for each, and opens none of
 * them: what must be there to be read, besides the model. Names are as the model has them, and so can be anything;
 * loading refuses those outside of its folder. After an error, those that were found before it. */
typedef void qkv_data_file_callback(void *user, const char *name);
QKV_API qkv_status qkv_onnx_data_files(const char *path, qkv_data_file_callback *each, void *user, qkv_error *err);

#ifdef __cplusplus
}
#endif
#endif
