/* The command qkv: what its files share. It can do nothing that a user of include/qkv.h cannot.
 *
 *     main.c              the groups of commands, signals, exit codes
 *     sandbox.c           --sandbox: the files of the command line, and nothing else
 *     broker.c            a process beside the sandbox that makes outputs
 *     memory.c            --memory-limit: what a command takes in all
 *     cmd_NAME.c          a command: its help, its options, and what it does
 *     options.c           parsing, "did you mean"; options_shared.c: options of several commands
 *     help.c              help and man pages, both from the tables of commands and options
 *     inputs.c, load.c    -i, -D, --shape, --image, --fix -> a session and its inputs
 *     term.c, output.c    tables, colours, progress, messages; JSON, numbers, shapes
 *
 * A function that can fail returns an exit code and has told the user why:
 * `int code = model_open(...); if (code) return code;`
 */
#ifndef QKV_CLI_H
#define QKV_CLI_H
#include <jansson.h>
#include <stdbool.h>
#include "options.h"
#include "qkv.h"
#include "qkv_tools.h"
#include "qkv_train.h"
#include "qkv_vision.h"

enum { EXIT_INTERNAL = 70, JSON_SCHEMA = 1 };

/* ------------------------------------------------------------------ commands and options */

typedef struct Command {
    const char *name, *args, *summary; /* "run", "MODEL", "Run a model and write its outputs" */
    const char *text;                  /* paragraphs, separated by an empty line */
    const char *examples;              /* lines "command\tcomment" */
    int min_args, max_args;            /* max_args -1: any number */
    size_t size;                       /* of its struct of options, which begins with a Common */
    const void *defaults;              /* such a struct; NULL: all 0 */
    OptionGroup options[13];           /* ends with {0}, so at most 12 */
    int (*run)(const void *options);
    bool (*wants_sandbox)(const void *options); /* without being asked; NULL: never */
    bool many_runs;                             /* --memory-limit is each one's */
} Command;

typedef struct CommandGroup {
    const char *title;
    const Command *command[8]; /* ends with NULL */
} CommandGroup;
extern const CommandGroup command_groups[];    /* ends with {0}; in the order of the help */
const Command *command_find(const char *name); /* NULL: tells the user, with the nearest name */

extern const Command command_inspect, command_graph, command_check, command_backends, command_report, command_compare,
    command_run, command_bench, command_verify, command_prove, command_rewrite, command_convert, command_extract,
    command_generalize, command_joint, command_pack, command_quantize, command_train, command_generate, command_embed,
    command_classify, command_segment, command_serve, command_help;
void print_help(const Command *command); /* NULL: the overview */

/* Parses what follows the command; 0, or the exit code after a message. *out is there to be freed in any case. */
int options_parse(const Command *command, int argc, char **argv, Common **out);
void options_free(const Command *command, Common *o);
const Option *option_shown(const Command *command, int i); /* the i-th of the help; NULL after the last */
/* Every path that the command line names: arguments, and options whose value is a file or folder. WRITTEN: a file,
 * whole or not at all; IN_PLACE: a file that grows; FOLDER: its files are written; KEPT: and read. */
typedef enum PathUse { PATH_READ, PATH_WRITTEN, PATH_IN_PLACE, PATH_FOLDER, PATH_KEPT } PathUse;
typedef void PathFn(void *user, const char *path, PathUse use);
void options_each_path(const Command *command, const Common *o, PathFn *f, void *user);
/* 0, or the exit code after a message: two outputs are one file. */
int options_outputs_differ(const Command *command, const Common *o);

/* From here on the process opens only files that the command line names and those of `more` (separated by commas; NULL:
 * none), no socket, no other program (sandbox.c). asked: QKV_UNSUPPORTED where the system cannot do all of this; else
 * what it can do is done. */
int sandbox_enter(const Command *command, const Common *o, const char *more, bool asked);
int broker_start(const Command *command, const Common *o); /* 0, or the exit code after a message */
const qkv_files *broker_files(void);                       /* how it is asked */
void broker_end(void);                                     /* for handlers of signals, too; nothing without a broker */

/* --memory-limit: from here on the library gets no more than it and what reading takes (memory.c). 0, or the exit code
 * after a message. memory_limit(): what was given, for sessions; 0: none. memory_refused(): whether more was asked for,
 * and the sentence that says so. */
int memory_enter(const Command *command, const Common *o);
size_t memory_limit(void);
bool memory_refused(char *text, size_t size);

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
int sizes_of_dims(const List *dim, Sizes *s); /* adds NAME=N, each; 0, or the exit code after a message */
void sizes_free(Sizes *s);
/* The name in names[0 .. n) that is closest to `given`, NULL when none is close. */
const char *nearest(const char *given, const char *const *names, int n);

/* ------------------------------------------------------------------ terminal */

typedef enum Color { PLAIN, BOLD, RED, GREEN } Color;
void term_init(int verbose, bool quiet);
/* The character at s where a terminal would obey it, hide it or write others in another order: control characters,
 * U+202E and the like; or the byte that is not UTF-8. 0: another one. *length: its bytes. */
unsigned hidden_character(const char *s, int *length);
/* As printf, for what may hold names of a model: their hidden characters are written out. */
__attribute__((format(printf, 1, 2))) void show(const char *fmt, ...);
/* As printf, for what a model says: on a terminal its control characters but tabs and line ends are written out. */
__attribute__((format(printf, 1, 2))) void show_speech(const char *fmt, ...);
const char *color_on(Color c); /* for stdout; "" when it is not a terminal or NO_COLOR is set */
const char *color_off(Color c);

__attribute__((format(printf, 2, 3))) int problem(int code, const char *fmt, ...); /* "qkv: error: ..."; returns code */
int problem_of(const qkv_error *e);                                                /* the same from the library */
void problems_are_of(const char *path); /* the model's file, which those of a node name; after two of them none does */
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
    const char *what, *stage; /* stage: what is being done of it, shown after it; NULL: nothing */
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
int utf8_bytes(const unsigned char *s);                     /* bytes of the character at s; 0: not UTF-8 */
void utf8_clean(char *s);                                   /* those bytes, in place */
json_t *json_shape(const qkv_tensor *t);
json_t *json_index(const qkv_tensor *t, int64_t flat); /* of a row-major element */
void json_print(json_t *v);                            /* to stdout, and drops the reference */
/* A report's text (report.c) */
void report_print(const char *text);                                       /* to stdout, laid out as json_print does */
json_t *report_head(const char *text);                                     /* all members but lists */
size_t report_list(const char *text, const char *key, const char **first); /* how many elements it has */
const char *report_list_end(const char *first);                            /* its bracket */
json_t *report_next(const char **at);                                      /* an element, and goes on to the next one */
const char *report_skip(const char **at);                                  /* the same, as text */
/* A member of an object as text; "" where it has none. */
const char *report_member(const char *object, const char *key, size_t *length);
char *shape_text(const qkv_tensor *t, char *buf, size_t size);             /* "(2, 3)" */
char *index_text(const qkv_tensor *t, int64_t flat, char *buf, size_t size);
char *count_text(int64_t n, char *buf, size_t size);    /* "22 713 216" */
char *bytes_text(double bytes, char *buf, size_t size); /* "86.6 MiB" */
int64_t tensor_count(const qkv_tensor *t);
/* Leaves one of elements that lie in the same place, as of an expanded tensor; shape: room for QKV_MAX_RANK. How often
 * each was there. */
int64_t tensor_once(qkv_tensor *t, int64_t shape[]);
/* The row-major element as a double, of a complex one the modulus; NaN for dtypes without numbers. */
double tensor_number(const qkv_tensor *t, int64_t flat);
bool tensor_put(const qkv_tensor *t, int64_t flat, int64_t v); /* contiguous t; false for a dtype that cannot hold it */

/* ------------------------------------------------------------------ models and their inputs */

typedef struct Loaded {
    qkv_model *model;
    qkv_session *session;
    double load_ms; /* model and session */
} Loaded;
int model_load(const ModelOptions *o, const char *path, bool bf16, bool no_fuse, qkv_model **out); /* with --fix */
void print_skipped(const json_t *report); /* of a rewrite: what skip_padding did, as notes */
void session_options(const ModelOptions *o, qkv_session_options *to);
int model_open(const ModelOptions *o, const char *path, bool bf16, bool no_fuse, Loaded *out);
void model_close(Loaded *m);
/* The passes of --passes, or of sessions by default, up to `last`, as a list; false: `last` is not one of them. */
bool passes_upto(const ModelOptions *o, const char *last, char *list, size_t size);
/* --trace: from now on, with room for so many runs; and written. Nothing without a path. */
int trace_start(const char *path, Loaded *m, int64_t runs);
int trace_finish(const char *path, Loaded *m);
/* The value of a choice by its name, and a sum of such values by "a,b"; text NULL leaves *out. Usage, with the names
 * that there are: CHOICE("--schedule", o->schedule, schedule, &t->schedule) */
#define CHOICE(option, text, choice, out)                                                                              \
    (!(text) || qkv_##choice##_from_name((text), (out))                                                                \
         ? 0                                                                                                           \
         : bad_choice((option), (text), NAMES_OF(choice, 0, 1, 2, 3, 4)))
#define CHOICES(option, text, choice, out) sum_of_choices((option), (text), NAMES_OF(choice, 1, 2, 4, 8, 16), (out))
#define NAMES_OF(choice, a, b, c, d, e)                                                                                \
    ((const char *const[]){qkv_##choice##_name(a), qkv_##choice##_name(b), qkv_##choice##_name(c),                     \
                           qkv_##choice##_name(d), qkv_##choice##_name(e), NULL})
int bad_choice(const char *option, const char *found, const char *const *names);
int sum_of_choices(const char *option, const char *text, const char *const *names, unsigned *out);
/* *m becomes `by`, which was made from it; NULL: the error is printed, and *m stays. */
int replace_model(qkv_model **m, qkv_model *by, const qkv_error *e);
int cudnn_of(const char *version, int *out);       /* --cudnn, as the library counts; 0 without it */
int model_bf16(const ModelOptions *o, bool *bf16); /* --dtype */
/* The runtime of a --target: its name, or that of a version of it whose quantizers are known. */
bool profile_of_target(const char *target, qkv_onnx_profile *out);
/* Are -o, --target ... well formed, before anything is read? packs: -o may be a .qkv, too. */
int model_can_write(const WriteOptions *w, bool packs);
int folder_is_there(const char *path);      /* of a file that is to be written; 0, or the exit code after a message */
/* source: what the file is certified to compute, where that is asked for; NULL otherwise. into: the command's own
 * report, of which that of an ONNX file becomes a member with --json, so that one object is printed; NULL: none. */
int model_write(const WriteOptions *w, const Common *c, const qkv_model *m, const qkv_model *source, json_t *into);
/* cmd_pack.c: a .qkv. into: as above, of which the report becomes the member "pack". */
int model_pack(const char *output, const Common *c, const qkv_model *m, json_t *into);
/* certified.c: writes the text of a certificate, which it frees, to path. The claims, or NULL. */
json_t *certificate_write(const char *path, char *text, int *code);
json_t *certificate_summary(const json_t *claims); /* whole, why and how many, for reports */
void certificate_print(const char *path, const json_t *claims);
/* The .pt2 with its certificate inside, and that as a file. The claims, or NULL. */
json_t *save_certified(const char *path, const char *certificate, const qkv_model *made, const qkv_model *source,
                       const char *rewriting, int *code);
bool ends_in(const char *path, const char *end);
bool is_tensor_file(const char *path); /* by its ending */
int convert_tensors(const char *from, const char *to);
int write_weights(const char *path, bool all, const qkv_model *m); /* all: not only those of the state dict */
int give_weights(qkv_model **m, const char *path);                 /* those of a tensor file, by name */

typedef struct Inputs {
    qkv_tensors *file;
    void *pixels[64];
    int npixels;
} Inputs;
int inputs_set(const InputOptions *o, Loaded *m, Inputs *in); /* all inputs of the session, from what the user gave */
const char *position_of(const char *file,
                        const char *name);    /* "0" for NumPy's arr_0 and for the one array of a .npy; else the name */
int inputs_share(const Loaded *a, Loaded *b); /* b gets a's inputs, by name, else by position */
void inputs_free(Inputs *in);                 /* after the last run */

typedef struct NamedTensors { /* all tensors of a file, under the names or positions of inputs */
    qkv_tensors *file;
    const char **name;
    qkv_tensor *tensor;
    int n;
    void *pixels; /* of images, which are one tensor of this shape */
    int64_t *shape;
} NamedTensors;
int named_open(const char *path, NamedTensors *t);
/* All images of a folder as rows of the model's one input, at the size that the model or `sizes` say. */
int named_open_images(const char *folder, const ImageNorm *norm, const List *sizes, const qkv_model *m,
                      NamedTensors *t);
void named_close(NamedTensors *t); /* {0} is fine */

typedef struct Names {
    char **item;
    int n;
} Names;
int images_in(const char *folder, Names *out); /* .png, .jpg and .jpeg by name; at least one */
void names_free(Names *n);

/* The size of an axis: its number, or -1 when it is a symbol or an expression. */
int64_t input_fixed_dim(const qkv_model *m, int input, int axis);
/* Smallest and largest size of an axis that is a plain symbol or a number. */
void input_dim_range(const qkv_model *m, int input, int axis, int64_t *min, int64_t *max);
/* --mean, --std and --scale for a picture of `channels`: (x * scale - mean) / std, as the mean and std of x. */
int image_norm(const ImageNorm *o, int channels, float *mean, float *std);
#endif
