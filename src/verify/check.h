/* Findings: what qkv check has to say about a model, and the checks that make them.
 *
 *     Check c = {.security = true};
 *     check_begin(&c, err);
 *     check_add(&c, Q(304), check_place(&c, "weight '%s'", name), "%lld of %lld values are NaN", bad, all);
 *     check_json(&c, NULL, &buf);
 *     check_end(&c);
 *
 * A finding has a number (Q304) whose severity, meaning and remedy stand in findings.def, a place, and one sentence.
 * Checks go on after a finding; the caller reads c.count[ERROR] at the end.
 */
#ifndef QKV_VERIFY_CHECK_H
#define QKV_VERIFY_CHECK_H
#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "tensor/tensor.h"

typedef enum Severity { SEVERITY_NOTE, SEVERITY_WARNING, SEVERITY_ERROR } Severity;
enum { MAX_FINDINGS = 10000 };

typedef enum FindingId {
#define FINDING(number, severity, title, text, remedy) FINDING_##number = number,
#include "verify/findings.def"
#undef FINDING
} FindingId;
#define Q(number) FINDING_##number

typedef struct FindingText {
    FindingId id;
    Severity severity;
    const char *title, *text, *remedy;
} FindingText;
const FindingText *finding_text(int number); /* NULL when there is none */
const char *finding_name(int i);             /* "Q304"; NULL after the last */
const char *finding_explained(
    const char *name);                /* title, severity, meaning and remedy in lines; NULL when there is none */
const FindingText *finding_at(int i); /* the i-th of the table; NULL after the last */
const char *severity_name(Severity s);

typedef struct Finding {
    const FindingText *what;
    const char *place, *text;
} Finding;

enum Target { TARGET_QKV = 1, TARGET_ORT = 2, TARGET_OPENVINO = 4, TARGET_TENSORRT = 8, TARGETS = 15 };
const char *target_name(unsigned bit); /* NULL when unknown */

typedef struct Check {
    unsigned targets; /* bits of Target */
    bool security, full;
    Arena *arena;
    Finding *finding;
    int n, dropped, count[3]; /* count: by severity */
    Map wrong;                /* places that have an error, or were not checked */
    bool failed;              /* out of memory */
} Check;

bool check_begin(Check *c, Err *err);
void check_end(Check *c);
void check_add(Check *c, FindingId id, const char *place, /* copied */ const char *fmt, ...) QKV_PRINTF(4, 5);
const char *check_place(Check *c, const char *fmt, ...) QKV_PRINTF(2, 3); /* text that lives as long as the findings */
bool check_is_wrong(const Check *c, const char *place);                   /* is it one of those? */
/* The findings as a JSON array: [{"id": "Q304", "severity", "place", "message", "remedy"}];
 * worst first, otherwise in order of finding. */
void check_json(const Check *c, const char *key, Buf *out);

/* ------------------------------------------------------------------ the checks, one file each */

/* check_zip.c: the container as bytes, without the reader that the rest uses; entries that hold pickles and code. */
void check_zip(Check *c, const unsigned char *bytes, uint64_t size);
/* check_pickle.c: what a pickle would import. bytes: the opcodes themselves. */
void check_pickle(Check *c, const char *place, const unsigned char *bytes, uint64_t size);

/* check_weights.c: NaN, infinities, copies. Tensors that share their first byte and sizes are tied, not copies. */
typedef struct NamedTensor {
    const char *name;
    const Tensor *t;
    bool chosen; /* only what `where` chooses from: a NaN throughout is meant */
} NamedTensor;
void check_weights(Check *c, const NamedTensor *t, int n);
#endif
