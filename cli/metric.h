/* --metric COMMAND (metric.c). */
#ifndef QKV_CLI_METRIC_H
#define QKV_CLI_METRIC_H
#include "cli.h"

typedef struct Metric {
    const char *command;
    const WriteOptions *write; /* how candidates are written */
    Progress *progress;        /* hidden meanwhile */
    int code;                  /* not 0: what failed, which the user has been told */
} Metric;
int metric_ask(void *user, const qkv_model *m, double *figure); /* qkv_quantize_options.metric; user: a Metric */
void metric_clear(void); /* what a call that a signal ends would leave */
#endif
