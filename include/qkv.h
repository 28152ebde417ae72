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
/* The allocator in use, for a library that is built on this one; its functions are NULL where none was set. It stays from then on. */
QKV_API void qkv_get_allocator(qkv_allocator *out);
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
/* Writes the model as a .pt2 that torch.export.load and qkv_model_load read, whole or not at all: the same inputs, outputs, weights, sizes
 * and numbers, every op spelled in ATen; extra files of its own file go along. Not while another thread uses m. */
QKV_API qkv_status qkv_model_save(const qkv_model *m, const char *path, qkv_error *err);

/* ---------------------------------------------------------------- sessions */

typedef struct qkv_session qkv_session;

typedef struct qkv_session_options {
    size_t struct_size;  /* sizeof(qkv_session_options) */
    int threads;         /* 0: QKV_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may use */
    size_t memory_limit; /* most bytes of activations and scratch, 0 = no limit: QKV_LIMIT names what was needed */
    int no_optimize; /* 1: runs the nodes of the file. 0: a copy of the graph, made by the model's first session and shared by all, in which
                         * qkv_model_rewrite's rules have recognised attention, norms and activations; the model itself stays as it is */
    const struct qkv_train_options *
        train; /* NULL: runs only. Else the model is a joint graph (qkv_model_joint, qkv joint), and its parameters, a copy of the
                         * session's own, change with every qkv_session_step; copied */
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

QKV_API qkv_status qkv_session_input(qkv_session *s, int i, qkv_tensor *out,
                                     qkv_error *err); /* what is set now; QKV_USAGE if nothing */

/* Buffers that the model writes (caches, counters) belong to the session: back to the file's values. */
QKV_API void qkv_session_reset(qkv_session *s);
/* Random ops (dropout of a model in training mode, rand, ...) draw what PyTorch's CPU draws after torch.manual_seed(seed); runs go on
 * where the last one stopped. A new session is seeded with 0. */
QKV_API void qkv_session_seed(qkv_session *s, uint64_t seed);

/* ---------------------------------------------------------------- tensors in files */

typedef struct qkv_tensors qkv_tensors; /* .safetensors, .npz, .npy */
QKV_API qkv_tensors *qkv_tensors_open(const char *path, qkv_error *err);
QKV_API void qkv_tensors_free(qkv_tensors *t);
QKV_API int qkv_tensors_count(const qkv_tensors *t);
QKV_API const char *qkv_tensors_name(const qkv_tensors *t, int i);
QKV_API const qkv_tensor *qkv_tensors_at(const qkv_tensors *t, int i);
QKV_API const qkv_tensor *qkv_tensors_find(const qkv_tensors *t, const char *name); /* NULL when absent */
QKV_API const char *qkv_tensors_metadata(const qkv_tensors *t,
                                         const char *key); /* safetensors' __metadata__; NULL when absent */
/* Format by the ending of path; written whole or not at all. */
QKV_API qkv_status qkv_tensors_write(const char *path, const char *const *names, const qkv_tensor *tensors, int n,
                                     qkv_error *err);

#ifdef __cplusplus
}
#endif
#endif
