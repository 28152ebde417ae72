/* Do two programs compute the same? Inputs are paired, both are run at several sizes on the same random payloads of an
 * exact algebra (prove/exact.h), and, where that says nothing, on the same random floats within a tolerance.
 *
 *     EqualOptions o = {.choices = 4, .seeds = 2};
 *     Buf report = {0};
 *     program_equal(a, b, &o, &report, err)
 */
#ifndef QKV_PROGRAM_EQUAL_H
#define QKV_PROGRAM_EQUAL_H
#include "base/buf.h"
#include "program/program.h"

typedef struct EqualOptions {
    const char *const *dim_name; /* sizes of a's that stay as they are (choose_sizes) */
    const int64_t *dim;
    int ndims;
    int choices, seeds;         /* sizes to try, and payloads at each; 0: 4 and 2 */
    bool floats;                /* floats only */
    const char *counterexample; /* where tensors that differ are written (.npz, .safetensors); NULL: nowhere */
} EqualOptions;

/* report: JSON, see qkv_model_prove in qkv_tools.h; filled whatever comes out. False: E_MISMATCH, they differ;
 * E_UNSUPPORTED: it cannot be told, and why. */
bool program_equal(const Program *a, const Program *b, const EqualOptions *o, Buf *report, Err *err);
#endif
