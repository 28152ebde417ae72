/* Errors: the caller owns a fixed struct, failing allocates nothing.
 *
 *     if (n > limit) return fail(err, E_LIMIT, "rank %d: at most %d is supported", n, limit);
 *     if (!read_node(..., err)) return within(err, "node '%s'", name);
 *
 * The message reads outermost first: "model.pt2: node 'sdpa_3': argument 'attn_mask': ...".
 * Every function that can fail takes `Err *err` last and returns bool (false) or a pointer (NULL).
 */
#ifndef QKV_BASE_ERR_H
#define QKV_BASE_ERR_H
#include <stdbool.h>
#include <stddef.h>

/* What went wrong, as far as a caller acts on it. */
typedef enum ErrCode {
    E_OK = 0,
    E_MISMATCH,    /* values differ, findings                 exit 1 */
    E_USAGE,       /* wrong name, dtype, rank, size of inputs  exit 2 */
    E_FORMAT,      /* a file that cannot be read or is wrong   exit 3 */
    E_IO,          /* the system refused a file                exit 3 */
    E_UNSUPPORTED, /* legal, but not built                     exit 4 */
    E_LIMIT,       /* a resource limit, out of memory          exit 5 */
} ErrCode;
int err_exit_code(ErrCode code);

typedef struct Err {
    ErrCode code;
    char msg[1024]; /* UTF-8, NUL-terminated, cut at the end when too long */
} Err;

#if defined(__GNUC__)
#define QKV_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define QKV_PRINTF(f, a)
#endif

/* Sets the message; returns false, so that `return fail(...)` works. */
bool fail(Err *err, ErrCode code, const char *fmt, ...) QKV_PRINTF(3, 4);
/* There is no memory; returns false. What fails after a refusal of memory (mem.h) is reported so, too, whatever fail
 * was called with. */
bool oom(Err *err);
/* Puts "<fmt>: " before the message; returns false. */
bool within(Err *err, const char *fmt, ...) QKV_PRINTF(2, 3);

#define TRY(x)                                                                                                         \
    do {                                                                                                               \
        if (!(x)) return false;                                                                                        \
    } while (0)
#define TRY_NULL(x)                                                                                                    \
    do {                                                                                                               \
        if (!(x)) return NULL;                                                                                         \
    } while (0)
#endif
