/* Findings as SARIF 2.1.0, which code scanning reads. */
#ifndef QKV_CLI_SARIF_H
#define QKV_CLI_SARIF_H
#include "cli.h"

json_t *sarif_of(const json_t *report); /* of qkv_check */
#endif
