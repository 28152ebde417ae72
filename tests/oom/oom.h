/* What the scenarios of run_oom.c and more.c share. */
#ifndef QKV_TESTS_OOM_H
#define QKV_TESTS_OOM_H
#include <stdbool.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "qkv_train.h"
#include "qkv_vision.h"

typedef struct World {
    const char *small, *cli; /* folders of models */
    char folder[512];
    char pt2[600], control[600], duals[600], onnx[600], qkv[600]; /* models in files */
    char rules[600];                                  /* a rule with a long name */
    char words[600], merges[600], tokens[600];        /* a vocab.txt, CLIP's merges, a tokenizer.json */
    char picture[600];                                /* a PNG */
    char out[600], cache[600];                        /* written by a scenario, gone after it; a folder */
    qkv_model *model, *trains, *ground;
    char *expected, *got; /* what a scenario says of its result; from the C library */
} World;

/* Status and e->message of what it was about; w->got says what came of it. */
typedef qkv_status Run(World *w, qkv_error *e);
typedef struct Scenario {
    const char *name;
    Run *run;
} Scenario;
extern const Scenario more[]; /* ends with a name of NULL */
bool more_open(World *w);

void path_to(char *to, const char *folder, const char *name);
/* Takes text; a report's milliseconds, which are not part of the result, are cut out. */
qkv_status say(World *w, char *text);
qkv_status say_file(World *w); /* w->out */
void say_sum(World *w, const void *bytes, size_t n);
void say_outputs(World *w, qkv_session *s, const qkv_model *m);
#endif
