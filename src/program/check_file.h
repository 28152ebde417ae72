/* qkv check: one file read, its records checked, imported and checked again; for qkv_check. */
#ifndef QKV_PROGRAM_CHECK_FILE_H
#define QKV_PROGRAM_CHECK_FILE_H
#include "base/buf.h"
#include "base/err.h"

typedef struct CheckOptions {
    unsigned targets; /* bits of Target (verify/check.h) */
    bool security, full;
} CheckOptions;

typedef struct CheckCounts {
    int errors, warnings, notes;
} CheckCounts;

/* report: JSON, see qkv_check in qkv_tools.h; filled also when the file cannot be read (false). */
bool model_check(const char *path, const CheckOptions *o, Buf *report, CheckCounts *counts, Err *err);
#endif
