/* Rewriting a program: rules, proofs and the report, for qkv_model_rewrite. */
#ifndef QKV_PROGRAM_PREPARE_H
#define QKV_PROGRAM_PREPARE_H
#include "base/buf.h"
#include "program/program.h"
#include "rewrite/family.h"
#include "rewrite/prove.h"

typedef struct OptimiseOptions {
    const char *const *rule_file; /* further rules; a rule of a built-in name replaces that one */
    int nrule_files;
    const char *const *rule_text; /* the same, as texts */
    int nrule_texts;
    const Family *own; /* what these rules may name in addition to the library's families; NULL: nothing */
    bool no_builtin;   /* only those files */
    unsigned phases;   /* bits of Phase, 0 = all */
    ProveFn *prove; /* prove_claim, or NULL: no proofs. By pointer, so that a program which only runs has no prover. */
    bool prove_floats;          /* on random floats only, not on exact payloads */
    int seeds;                  /* per proof and binding, 0 = 3 */
    const char *counterexample; /* where a failed proof writes its tensors (.safetensors or .npz); NULL: nowhere */
    bool exact_masked_rows;
    bool unrounded;    /* folded weights stay the ops that compute them */
    bool skip_padding; /* real tokens only, where a key padding mask marks them (padding/skip_padding.h) */
    const char *lift;  /* NULL, or the device for whose kernels attention is lifted (backends/lift_sdpa.h) */
    int cudnn;
    void (*progress)(void *user, int done, int total);
    void *progress_user;
} OptimiseOptions;

/* Changes p, of which there are no sessions yet. report: JSON, see qkv_model_rewrite in qkv_tools.h; filled also
 * when a proof failed. */
bool program_rewrite(Program *p, const OptimiseOptions *o, Buf *report, Err *err);

/* A program's graph as far as a list of passes (program/passes.h) takes it. */
typedef struct Prepared {
    struct Prepared *next;
    unsigned list;
    bool portable; /* constants were computed for sessions with portable bits */
    Graph *graph;  /* NULL: the program's own, which no pass of the list changes */
    Fusion fusion;
    bool fused;             /* fusion is there */
    struct Session *folder; /* owns what fold computed */
} Prepared;

/* The program itself stays as it is. Passes that do not apply (other dtypes where none was asked for, rules for a
 * packed model) are left out. Errors: E_UNSUPPORTED (bf16 or training for a packed graph, or one with loops and
 * branches), E_LIMIT. */
bool program_prepare(const Program *p, unsigned list, Prepared *out, Err *err);
/* The same, but the rules also fire where rows without an allowed key then give other values, as in a rewriting. */
bool program_prepare_waiving(const Program *p, unsigned list, Prepared *out, Err *err);
/* names: "rewrite,padding", as passes_named() (program/passes.h) takes them. */
bool program_prepare_named(const Program *p, const char *names, Prepared *out, Err *err);
void prepared_free(Prepared *r);
/* What sessions run: the same, made at the first call and kept. PASSES_RUN: with the rules fired as far as every
 * value stays the source's, rows without an allowed key included; with PASS_TRAIN weights whose gradients are
 * outputs are not constants (Value.changes). fusion: NULL where the list has none. A graph for threads that are
 * cpu_is_portable() is one of its own. Thread-safe. */
bool program_for_runs(const Program *p, unsigned list, const Graph **g, const Fusion **fusion, Err *err);
void program_forget_runs(Program *p);
#endif
