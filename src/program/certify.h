/* Certificates of what was rewritten (docs/PROOF.md): finds claims that certify/ accepts, and writes them down.
 *
 *     Buf cert = {0};
 *     certify_graphs(source, result, false, log, n, &found, &cert, err)      JSON that qkv-certify replays
 */
#ifndef QKV_PROGRAM_CERTIFY_H
#define QKV_PROGRAM_CERTIFY_H
#include "base/buf.h"
#include "certify/term.h"
#include "ir/graph.h"

typedef struct RuleAt { /* a firing: the rule, and the value that it replaced */
    const char *rule, *result;
} RuleAt;

typedef struct Certified {
    bool whole;     /* the claims make the results equal */
    int claims;     /* that hold */
    char why[1024]; /* not whole: what is not shown */
    const char *assuming[LAWS + 1]; /* what the claims take for granted; NULL after the last */
} Certified;

/* single: one of the files says its numbers in float32, as ONNX does (certify/certify.h).
 * The claims that hold, as JSON, whole or not; false only where something else fails. firings may be NULL. */
bool certify_graphs(const Graph *source, const Graph *result, bool single, const RuleAt *firings, int n,
                    Certified *found, Buf *out, Err *err);
/* What the checker says of a certificate: JSON with holds, why, claims, assuming. False with E_MISMATCH: it does not
 * hold; otherwise it cannot be read. */
bool certify_replay(const Graph *source, const Graph *result, bool single, const void *certificate, size_t size,
                    Buf *report, Err *err);
#endif
