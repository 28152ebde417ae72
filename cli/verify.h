/* What cmd_verify.c (outputs) and verify_nodes.c (every node) share: tolerances and the comparison of two tensors. */
#ifndef QKV_CLI_VERIFY_H
#define QKV_CLI_VERIFY_H
#include "cli.h"

typedef struct VerifyOptions {
    Common common;
    ModelOptions model;
    InputOptions inputs;
    const char *expected, *nodes; /* nodes: --per-node */
    List atol, rtol;
    bool bisect, all;
} VerifyOptions;

typedef struct Compared {
    const char *name;
    qkv_tensor got, expected;
    qkv_difference d;
    double atol, rtol;
    bool differs, same_shape;
    void *owned; /* the expected values, when they are a copy */
} Compared;

int check_tolerances(const VerifyOptions *o,
                     const qkv_model *m); /* --atol and --rtol are well formed and name outputs */
/* By output of m, and of other where there is one: the larger qkv_model_output_tolerances; to be freed. */
int output_tolerances(const qkv_model *m, const qkv_model *other, double **share);
/* d at the tolerance that the user gave for this name, or slack times the default of the dtype, of which least is
 * allowed in any case. */
int compare(const VerifyOptions *o, const char *name, const char *label, const qkv_tensor *got,
            const qkv_tensor *expected, double slack, double least, Compared *out);
json_t *compared_json(const Compared *c);
int verify_nodes(const VerifyOptions *o, Loaded *m, bool *differs,
                 json_t **json); /* runs m; json is NULL without --json */
#endif
