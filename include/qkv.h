/* qkv: runs PyTorch attention models without Python.
 *
 * A qkv_model is a file that was read and understood. No function changes it, so any number of threads may share it;
 * what rewrites it or replaces its weights returns a new one. A qkv_session runs one model, for one thread at a time.
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
 * Conventions. Sizes and strides are in elements. Every `qkv_error *`, `char **report` and `options` may be NULL; any
 * other pointer that is NULL is QKV_USAGE unless its function allows it, and 0 or NULL from functions without an error.
 * A struct that begins with struct_size must have it set to its sizeof: QKV_USAGE otherwise (docs/ABI.md). A call that
 * fails changes nothing and leaks nothing; a NULL return means failure. Strings are UTF-8; those returned as
 * `const char *` live as long as the object they came from, those returned as `char *` are freed with qkv_free. Reports
 * are JSON objects whose first key, "schema", is the version of their keys; docs/schema has JSON Schemas. The library
 * never prints, never exits, and opens no files but those it is asked for.
 *
 * The rest: qkv_tools.h (describe, convert, rewrite, check, profile), qkv_train.h, qkv_vision.h (a library of its own).
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
    QKV_MISMATCH = 1,    /* values differ; a check found something */
    QKV_USAGE = 2,       /* wrong name, dtype, rank, size, range */
    QKV_UNREADABLE = 3,  /* a file that is damaged, missing or of another kind */
    QKV_UNSUPPORTED = 4, /* legal, but not implemented */
    QKV_LIMIT = 5        /* out of memory or over a limit */
} qkv_status;

typedef struct qkv_error {
    qkv_status code;
    char message[1024]; /* one sentence, outermost place first */
} qkv_error;

/* "ok", "mismatch", ... Like all names of choices below: NULL for a value that there is not. */
QKV_API const char *qkv_status_name(qkv_status s);
QKV_API const char *qkv_version(void); /* "0.1.0" */
QKV_API const char *qkv_cpu(void);     /* the ISA level in use: "avx512bf16", ... (QKV_CPU forces a lower one) */
QKV_API void qkv_free(void *p);        /* for char * results */

/* Where the library's memory comes from, for the whole process; from the C library when none is set. alloc returns at
 * least `bytes` bytes aligned to `alignment` (a power of two, at least 16), or NULL; grow works as realloc on what
 * alloc returned for an alignment of 16; release never gets NULL. They may be called from any thread. What libpng,
 * libjpeg, oneDNN, OpenMP and the C library allocate for themselves does not go through it; there a refusal may end the
 * process. Elsewhere it ends the call with QKV_LIMIT and "out of memory"; models and sessions stay as they were. */
typedef struct qkv_allocator {
    size_t struct_size; /* sizeof(qkv_allocator) */
    void *(*alloc)(void *user, size_t alignment, size_t bytes);
    void *(*grow)(void *user, void *p, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} qkv_allocator;
/* Copies *a. Call it before anything else: once the library has allocated memory it returns QKV_USAGE. */
QKV_API qkv_status qkv_set_allocator(const qkv_allocator *a, qkv_error *err);
/* The allocator in use, for a library built on this one; its functions are NULL when none was set. From then on it
 * cannot be replaced. Set out->struct_size first. */
QKV_API void qkv_get_allocator(qkv_allocator *out);
/* Removes the temporary files of unfinished writes. Async-signal-safe: for a handler of SIGINT or SIGTERM. */
QKV_API void qkv_interrupted(void);

/* ---------------------------------------------------------------- tensors */

/* ONNX's small types take one byte per element, f4e2m1 as its 4-bit code. */
/* clang-format off */
typedef enum qkv_dtype {
    QKV_NONE, QKV_F32, QKV_F64, QKV_F16, QKV_BF16, QKV_I64, QKV_I32, QKV_I16, QKV_I8, QKV_U8, QKV_BOOL,
    QKV_U16, QKV_U32, QKV_U64, QKV_C32, QKV_C64, QKV_C128,
    QKV_F8E4M3, QKV_F8E5M2, QKV_F8E4M3FNUZ, QKV_F8E5M2FNUZ, QKV_F8E8M0, QKV_I4, QKV_U4, QKV_I2, QKV_U2, QKV_F4E2M1
} qkv_dtype;
/* clang-format on */

QKV_API const char *qkv_dtype_name(qkv_dtype t);         /* "f32" */
QKV_API qkv_dtype qkv_dtype_from_name(const char *name); /* "f32", "float32", "F32"; QKV_NONE if unknown */
QKV_API size_t qkv_dtype_size(qkv_dtype t);              /* bytes */

enum { QKV_MAX_RANK = 16 };

/* A view of memory owned by someone else. strides NULL: contiguous. */
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
    /* QKV_NONE: as the file says. QKV_BF16: matmul, linear, conv and attention multiply bf16 values and sum in float32;
     * outputs keep their dtypes. With no_fuse: autocast's rules, node by node (.pt2 only). */
    qkv_dtype compute;
    int no_fuse; /* 1: run every node of the file as one step, to compare node by node */
    /* Inputs of an ONNX model that become constants, so that shapes, axes and counts may depend on them: n_fixed names
     * and tensors, copied. */
    const char *const *fixed_names;
    const qkv_tensor *fixed;
    int n_fixed;
    /* 1: rewrite as qkv_model_rewrite does with skip_padding; no change where no padding can be skipped. */
    int skip_padding;
    /* 1: read the file into memory. By default it stays mapped while the model is loaded: if another process cuts it
     * short meanwhile (replacing it is fine), this one gets SIGBUS. */
    int no_mmap;
    /* NULL, or a folder ("": $XDG_CACHE_HOME/qkv/packed) that keeps models packed for this CPU: what is not there yet
     * is written as by qkv_model_pack, and all processes that load it so share one mapping of it. The model is then as
     * one of a .qkv; qkv_model_cached says what became of it. Loading does not fail where the folder fails. */
    const char *cache;
} qkv_load_options;

/* Reads a .pt2 or an ONNX model. options may be NULL. */
QKV_API qkv_model *qkv_model_load(const char *path, const qkv_load_options *options, qkv_error *err);
/* The same from the bytes of a file, which are copied. Weights that an ONNX model has in other files are refused. */
QKV_API qkv_model *qkv_model_load_memory(const void *bytes, size_t n, const qkv_load_options *o, qkv_error *err);
/* Its sessions must be freed first. Models that were made from it share its file and weights, which stay as long as the
 * last of them. NULL is fine. */
QKV_API void qkv_model_free(qkv_model *m);

QKV_API int qkv_model_input_count(const qkv_model *m);
QKV_API const char *qkv_model_input_name(const qkv_model *m, int i); /* NULL out of range */
QKV_API qkv_dtype qkv_model_input_dtype(const qkv_model *m, int i);
QKV_API int qkv_model_input_rank(const qkv_model *m, int i);
/* A size as text: "3", a symbol "s0", or an expression "14*s1". NULL out of range. */
QKV_API const char *qkv_model_input_dim(const qkv_model *m, int i, int axis);
QKV_API int qkv_model_output_count(const qkv_model *m);
QKV_API const char *qkv_model_output_name(const qkv_model *m, int i); /* "output_0" */
QKV_API int qkv_model_symbol_count(const qkv_model *m);
/* Name and inclusive range of a size symbol; INT64_MAX = unbounded. */
QKV_API const char *qkv_model_symbol(const qkv_model *m, int i, int64_t *min, int64_t *max);
/* What a run leaves for the next one of its session, as a sum of these: buffers that it writes (caches, counters), the
 * position in the sequence of random values. 0: runs are independent. */
typedef enum qkv_state { QKV_WRITES_BUFFERS = 1, QKV_DRAWS_RANDOM = 2 } qkv_state;
QKV_API unsigned qkv_model_state(const qkv_model *m);
/* Writes a .pt2 that torch.export.load and qkv_model_load read, completely or not at all: the same inputs, outputs,
 * weights, sizes and values, every op spelled in ATen; extra files of the model's own file are kept. */
QKV_API qkv_status qkv_model_save(const qkv_model *m, const char *path, qkv_error *err);

/* ---------------------------------------------------------------- sessions */

typedef struct qkv_session qkv_session;

typedef struct qkv_session_options {
    size_t struct_size;  /* sizeof(qkv_session_options) */
    int threads;         /* 0: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may use */
    size_t memory_limit; /* bytes of activations, constants, scratch and inputs that the session makes or copies; 0: no
                            limit */
    /* 1: run the nodes of the file. 0: run a copy of the graph, made by the model's first session and shared by all, in
     * which qkv_model_rewrite's rules have recognised attention, norms and activations; the model itself does not
     * change. */
    int no_optimize;
    /* NULL: the session only runs. Otherwise (see qkv_train.h) the model is a joint graph, and its parameters, a copy
     * owned by the session, change with every qkv_session_step. Copied. */
    const struct qkv_train_options *train;
    const char *passes; /* NULL: as no_optimize says; else only these are run: "detach,rewrite" (qkv_pass_name) */
    const struct qkv_executor *executor; /* NULL: the pool's threads; else the caller's (see qkv_tools.h). Copied. */
    int portable_bits; /* 1: the same bits on every x86 CPU; 0: on those of one level (docs/DETERMINISM.md) */
} qkv_session_options;

QKV_API qkv_session *qkv_session_create(const qkv_model *m, const qkv_session_options *options, qkv_error *err);
QKV_API void qkv_session_free(qkv_session *s); /* NULL is fine */

/* Any number of threads may run sessions of one model at once, each its own. A session is for one thread at a time: a
 * call during another thread's call on it does nothing and returns QKV_USAGE; if it has no status to return (reset,
 * seed, free ...), the call that was under way returns it. Callbacks may call functions of their own session. Each
 * session packs weights for itself, from its second run on; those of a .qkv are packed in the file and shared. */

/* Inputs are borrowed: their memory must stay valid until qkv_session_run returns. `name` is the model's input name, or
 * its position "0", "1", ... A wrong name, dtype or rank is reported here; sizes are checked together by
 * qkv_session_run. */
QKV_API qkv_status qkv_session_set_input(qkv_session *s, const char *name, const qkv_tensor *t, qkv_error *err);
QKV_API qkv_status qkv_session_run(qkv_session *s, qkv_error *err);
QKV_API void qkv_session_clear_inputs(qkv_session *s); /* all but fed ones, and kept ones that a run copied */
/* From now on input `name` keeps its value until it is set again, and whatever depends only on kept inputs and weights
 * is computed once: a picture's features for every text asked of it, whatever the sizes of other inputs. The next run
 * copies the input, so later runs no longer need its memory; their results are those of a run without keeping, bit for
 * bit. An input that was already set must be set again. Random ops are drawn in every run; with a node callback all
 * nodes run. Kept results have memory of their own (qkv_stats.kept_bytes). */
QKV_API qkv_status qkv_session_keep(qkv_session *s, const char *name, qkv_error *err);
/* Output i, in the flattened order of the tensors that the module returned. Valid until the next run; shape and strides
 * belong to the session. */
QKV_API qkv_status qkv_session_output(qkv_session *s, int i, qkv_tensor *out, qkv_error *err);
/* The same by the output's name or label, or by its position "0", "1", ... as inputs are named. */
QKV_API qkv_status qkv_session_output_by_name(qkv_session *s, const char *name, qkv_tensor *out, qkv_error *err);

/* Memory for outputs: every run calls f, once sizes are known, for each output i with its dtype and contiguous shape; f
 * returns memory of that size, aligned to 64 bytes, which must stay valid until the run has ended (NULL ends the run).
 * The output is computed there, or copied there where it is a part or a view of something else. f NULL: back to the
 * session's memory. */
typedef void *qkv_output_memory(void *user, int i, const qkv_tensor *like);
QKV_API void qkv_session_output_memory(qkv_session *s, qkv_output_memory *f, void *user);

/* The input that is set now; QKV_USAGE if none is. */
QKV_API qkv_status qkv_session_input(qkv_session *s, int i, qkv_tensor *out, qkv_error *err);

/* The session's buffers that the model writes (caches, counters) get the file's values back, fed inputs are unset. */
QKV_API void qkv_session_reset(qkv_session *s);
/* Random ops (dropout of a model in training mode, rand, ...) draw what PyTorch's CPU draws after
 * torch.manual_seed(seed); each run continues where the last one stopped. A new session is seeded with 0. */
QKV_API void qkv_session_seed(qkv_session *s, uint64_t seed);

/* ---------------------------------------------------------------- tensors in files */

typedef struct qkv_tensors qkv_tensors; /* .safetensors, .npz, .npy */
QKV_API qkv_tensors *qkv_tensors_open(const char *path, qkv_error *err);
QKV_API void qkv_tensors_free(qkv_tensors *t);
QKV_API int qkv_tensors_count(const qkv_tensors *t);
QKV_API const char *qkv_tensors_name(const qkv_tensors *t, int i);
QKV_API const qkv_tensor *qkv_tensors_at(const qkv_tensors *t, int i);
QKV_API const qkv_tensor *qkv_tensors_find(const qkv_tensors *t, const char *name); /* NULL when absent */
QKV_API const char *qkv_tensors_metadata(const qkv_tensors *t, const char *key);    /* of safetensors' __metadata__ */
/* The ending of path chooses the format; the file is written completely or not at all. */
QKV_API qkv_status qkv_tensors_write(const char *path, const char *const *names, const qkv_tensor *tensors, int n,
                                     qkv_error *err);

#ifdef __cplusplus
}
#endif
#endif
