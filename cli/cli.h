/* The command qkv: what its files share. It can do nothing that a user of include/qkv.h cannot.
 *
 *     main.c       the table of commands, signals, exit codes          cmd_NAME.c   int cmd_NAME(const Options *): one command a file
 *     options.c    the table of options, parsing, "did you mean"       inputs.c     -i, -D, --shape, --image -> inputs of a session
 *     help.c       help and man pages, both from those two tables      term.c       tables, colours, progress, messages
 *     output.c     JSON, numbers, shapes, written tensors
 *
 * A function that can fail returns an exit code and has told the user why: `int code = model_open(...); if (code) return code;`
 */
#ifndef QKV_CLI_H
#define QKV_CLI_H
#include <jansson.h>
#include <stdbool.h>
#include "qkv.h"

enum { EXIT_INTERNAL = 70, JSON_SCHEMA = 1 };

/* ------------------------------------------------------------------ commands and options */

typedef struct List { /* an option that may be given many times */
    const char **item;
    int n;
} List;

typedef struct Options {
    const char **arg; /* what is not an option */
    int narg;
    const char *inputs, *output, *expected, *trace, *dtype, *mean, *std, *vocab, *labels, *pool, *tokenizer, *processor,
        *masks, *coco, *images, *out;
    List text, from, to, grad, fix, keep, dim, shape, image, atol, rtol, rules, dynamic, check;
    const char *loss, *decompose, *recompute, *trace_to, *phases, *counterexample, *targets, *explain, *profile,
        *device, *cudnn, *passes, *after;
    int64_t seed, threads, memory_limit, iterations, warmup, max_tokens, top, tile, overlap, batch;
    double scale, threshold;
    bool inputs_only, weights, all, seeded, json, per_op, cased, man, quiet, help, prove, why_not, require_fused,
        exact_masked_rows, no_builtin, apart, security, full, strict, external, rewrite, no_optimize, skip_padding,
        train, lift_sdpa, as_run, bisect;
    int64_t seeds, opset;
    const char *data, *val, *optimizer, *betas, *schedule, *logits, *label_input, *checkpoint, *resume, *save, *into,
        *plot, *log, *weight_file; /* of qkv train; numbers below 0: not given */
    double lr, eps, weight_decay, momentum, dampening, clip_norm, gamma, lr_end;
    int64_t epochs, every, lr_warmup, step_size;
    bool nesterov, drop_last, in_order;
    int verbose;
} Options;

typedef enum CommandId {
    C_INSPECT,
    C_RUN,
    C_VERIFY,
    C_BENCH,
    C_EMBED,
    C_CLASSIFY,
    C_SEGMENT,
    C_REWRITE,
    C_GRAPH,
    C_GENERALIZE,
    C_CHECK,
    C_CONVERT,
    C_EXTRACT,
    C_JOINT,
    C_TRAIN,
    C_PACK,
    C_BACKENDS,
    C_HELP,
    COMMANDS
} CommandId;

typedef struct Command {
    const char *name, *args, *summary; /* "run", "MODEL", "Run a model and write its outputs" */
    const char *text;                  /* paragraphs, separated by an empty line */
    const char *examples;              /* lines "command\tcomment" */
    int min_args, max_args;            /* max_args -1: any number */
    int (*run)(const Options *o);
} Command;
extern const Command commands[COMMANDS];
int command_find(const char *name); /* -1: tells the user, with the nearest name */

/* Parses what follows the command; 0, or the exit code after a message. */
int options_parse(CommandId command, int argc, char **argv, Options *o);
void options_free(Options *o);
typedef struct Words { /* a list option's words, cut at commas */
    char *text;
    const char **name;
    int n;
} Words;
void words_of(const List *l, Words *out);
void words_free(Words *n);

typedef struct Sizes { /* -D, --shape: names of sizes, or of an input and its axis, and what they are */
    char **name;
    int64_t *value;
    int n;
} Sizes;
int sizes_of_dims(const Options *o,
                  Sizes *s); /* adds -D NAME=N, as often as it is given; 0, or the exit code after a message */
void sizes_free(Sizes *s);
/* The name in names[0 .. n) that is closest to `given`, NULL when none is close. */
const char *nearest(const char *given, const char *const *names, int n);

typedef struct OptionText {
    const char *name, *arg, *help; /* "threads", "N" or NULL for a flag */
    char letter;                   /* 0 when it has none */
} OptionText;
bool option_text(CommandId command, int i, OptionText *out); /* the i-th option of a command; false after the last */

int cmd_inspect(const Options *o);
int cmd_run(const Options *o);
int cmd_verify(const Options *o);
int cmd_bench(const Options *o);
int cmd_embed(const Options *o);
int cmd_classify(const Options *o);
int cmd_segment(const Options *o);
int cmd_rewrite(const Options *o);
int cmd_graph(const Options *o);
int cmd_generalize(const Options *o);
int cmd_check(const Options *o);
int cmd_convert(const Options *o);
int cmd_extract(const Options *o);
int cmd_joint(const Options *o);
int cmd_train(const Options *o);
int cmd_pack(const Options *o);
int cmd_backends(const Options *o);
int cmd_help(const Options *o);
void print_help(int command); /* -1: the overview */

/* ------------------------------------------------------------------ terminal */

typedef enum Color { PLAIN, BOLD, RED, GREEN } Color;
void term_init(int verbose, bool quiet);
const char *color_on(Color c); /* for stdout; "" when it is no terminal or NO_COLOR is set */
const char *color_off(Color c);

__attribute__((format(printf, 2, 3))) int problem(int code, const char *fmt, ...); /* "qkv: error: ..."; returns code */
int problem_of(const qkv_error *e);                                                /* the same from the library */
__attribute__((format(printf, 1, 2))) void warning(const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void note(const char *fmt, ...);   /* not with -q */
__attribute__((format(printf, 1, 2))) void detail(const char *fmt, ...); /* with -v */

/* A table is filled cell by cell, row by row; the first row is the heading. align: one letter a column, l or r. */
typedef struct Table Table;
Table *table_new(const char *align);
__attribute__((format(printf, 2, 3))) void table_cell(Table *t, const char *fmt, ...);
void table_color(Table *t, Color c); /* of the cell added last */
void table_print(Table *t);          /* and frees it */
void table_free(Table *t);

/* A bar on stderr, only when that is a terminal; with the time left after two seconds. */
typedef struct Progress {
    const char *what, *stage; /* stage: what is being done of it, shown behind; NULL: nothing */
    int64_t total;            /* 1: shown in percent */
    double start, shown;
    bool on, drawn;
} Progress;
void progress_start(Progress *p, const char *what, int64_t total);
void progress_at(Progress *p, double done);
void progress_hide(Progress *p); /* until the next progress_at: something else is printed */
void progress_end(Progress *p);

double now_ms(void);
void *must(void *p); /* exits with QKV_LIMIT when p is NULL */

/* ------------------------------------------------------------------ output */

json_t *json_number(double v);    /* NaN and infinities as strings */
json_t *json_text(const char *s); /* null for NULL; file names need not be UTF-8, JSON must: other bytes become '?' */
const char *text_at(const json_t *object, const char *key); /* "" where there is no text */
void utf8_clean(char *s);                                   /* those bytes, in place */
json_t *json_shape(const qkv_tensor *t);
json_t *json_index(const qkv_tensor *t, int64_t flat);         /* of a row-major element */
void json_print(json_t *v);                                    /* to stdout, and drops the reference */
char *shape_text(const qkv_tensor *t, char *buf, size_t size); /* "(2, 3)" */
char *index_text(const qkv_tensor *t, int64_t flat, char *buf, size_t size);
char *count_text(int64_t n, char *buf, size_t size);    /* "22 713 216" */
char *bytes_text(double bytes, char *buf, size_t size); /* "86.6 MiB" */
int64_t tensor_count(const qkv_tensor *t);
double tensor_number(const qkv_tensor *t,
                     int64_t flat); /* row-major element as a double; NaN for dtypes without numbers */
bool tensor_put(const qkv_tensor *t, int64_t flat, int64_t v); /* contiguous t; false for a dtype that cannot hold it */

/* ------------------------------------------------------------------ models and their inputs */

typedef struct Loaded {
    qkv_model *model;
    qkv_session *session;
    double load_ms; /* model and session */
} Loaded;
int model_load(const Options *o, const char *path, bool bf16, bool no_fuse, qkv_model **out); /* with --fix */
void print_skipped(const json_t *report); /* of a rewrite: what skip_padding did, as notes */
int model_open(const Options *o, const char *path, bool bf16, bool no_fuse, Loaded *out);
void model_close(Loaded *m);
/* --trace: from now on, with room for so many runs; and written. Nothing without the option. */
/* The passes of --passes, or else of sessions, up to `last`, as a list; false: `last` is none of them. */
bool passes_upto(const Options *o, const char *last, char *list, size_t size);
int trace_start(const Options *o, Loaded *m, int64_t runs);
int trace_finish(const Options *o, Loaded *m);
int cudnn_of(const Options *o, int *out);     /* --cudnn, as the library counts; 0 without it */
int model_bf16(const Options *o, bool *bf16); /* --dtype */
int model_can_write(const Options *o);        /* the words that say where a model goes: -o, --profile ... */
int model_write(const Options *o, const qkv_model *m);
bool ends_in(const char *path, const char *end);
bool is_tensor_file(const char *path); /* by its ending */
int convert_tensors(const Options *o);
int write_weights(const Options *o, const qkv_model *m);
int give_weights(qkv_model *m, const char *path); /* those of a tensor file, by name */

typedef struct Inputs {
    qkv_tensors *file;
    void *pixels[64];
    int npixels;
} Inputs;
int inputs_set(const Options *o, Loaded *m, Inputs *in); /* all inputs of the session, from what the user gave */
const char *position_of(const char *file,
                        const char *name); /* "0" for NumPy's arr_0 and for the one array of a .npy; else the name */
void inputs_free(Inputs *in);              /* after the last run */
/* The size of an axis: its number, or -1 when it is a symbol or an expression. */
int64_t input_fixed_dim(const qkv_model *m, int input, int axis);
/* Smallest and largest size of an axis that is a plain symbol or a number. */
void input_dim_range(const qkv_model *m, int input, int axis, int64_t *min, int64_t *max);
/* --mean, --std and --scale for a picture of `channels`: (x * scale - mean) / std, as the mean and std of x. */
int picture_norm(const Options *o, int channels, float *mean, float *std);
#endif
