/* Options: what parsing, help and the man pages know of them, and those that several commands share.
 *
 * A command has a struct of its own, whose first member is Common, and a list of groups of rows that say where in it
 * each option goes:
 *
 *     typedef struct PackOptions { Common common; ModelOptions model; const char *output; } PackOptions;
 *     static const Option own[] = {
 *         {"output", TEXT, offsetof(PackOptions, output), .letter = 'o', .arg = "FILE.qkv", .help = "..."},
 *         {0},
 *     };
 *     .options = {{own}, {dtype_option, offsetof(PackOptions, model)}, {common_options}}
 */
#ifndef QKV_CLI_OPTIONS_H
#define QKV_CLI_OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum OptionKind { FLAG, COUNT, TEXT, TEXT_OR_NONE, MANY, INTEGER, BYTES, REAL, REAL_OR_ZERO } OptionKind;

typedef struct List { /* MANY: an option that may be given many times */
    const char **item;
    int n;
} List;

typedef struct Option { /* a list of them ends with one without a name */
    const char *name;
    OptionKind kind;  /* what lies at `at`: bool, int, const char *, the same ("" for --name without =), List, int64_t,
                        * int64_t, double, double */
    size_t at;        /* from the start of the group's struct */
    char letter;      /* 0: none */
    const char *arg;  /* "N"; NULL for FLAG and COUNT */
    int64_t min, max; /* of INTEGER and BYTES */
    const char *help; /* NULL: an older spelling, which is understood but not shown */
    const char *(*more)(void); /* NULL, or what follows help, where the library knows it */
    bool writes;               /* to the file or folder; else one that `arg` calls FILE, DIR or MODEL is read */
    bool reads;                /* a file that it writes, what is there already */
    bool keeps;                /* writes into the folder, and reads what it wrote */
    bool in_place;             /* writes, and the file is seen while it grows */
    const char *otherwise;     /* TEXT: the file that may be written where the option is not given */
} Option;

typedef struct OptionGroup {
    const Option *option;
    size_t at; /* of the group's struct in the command's */
} OptionGroup;

/* ------------------------------------------------------------------ shared groups */

typedef struct Common {
    const char **arg; /* what is not an option */
    int narg, verbose;
    int64_t memory_limit; /* 0: not given */
    bool json, quiet, help;
} Common;
extern const Option common_options[], json_option[];

typedef struct ModelOptions { /* how a model is read and run */
    List fix, name_dim;
    const char *dtype, *passes, *cache;
    int64_t threads;
    bool skip_padding, no_optimize, no_mmap, portable_bits;
} ModelOptions;
extern const Option load_options[], skip_padding_option[], dtype_option[], run_options[], passes_option[],
    cache_option[];

typedef struct ImageNorm {
    const char *mean, *std;
    double scale; /* 0: not given */
} ImageNorm;
extern const Option norm_options[];

typedef struct InputOptions { /* what a session's inputs are */
    const char *file;
    List dim, shape, image;
    int64_t seed; /* below 0: not given */
    ImageNorm norm;
} InputOptions;
extern const Option input_options[];
#define DIM_NAME "NAME is a symbol of the model (s0), an axis (input_ids.1), or batch, seq, height or width."

extern const Option trace_option[]; /* a const char * */

typedef struct WriteOptions { /* where a model goes, and which ONNX */
    const char *output, *target, *certify;
    int64_t opset;
    bool external, strict;
} WriteOptions;
extern const Option onnx_options[];

typedef struct DeviceOptions {
    const char *device, *cudnn;
} DeviceOptions;
extern const Option device_options[];
#endif
