/* Which kernel PyTorch 2.13 takes for a scaled_dot_product_attention, and the rule that decides.
 *
 *     SdpaDevice d;
 *     SdpaChoice c;
 *     sdpa_device("cuda-sm90", 0, &d, err) && sdpa_choose(&d, &call, arena, ex, &c, err);
 *     c.when[0].backend, c.when[0].condition ...      "cuDNN where s0 != 1, otherwise flash"
 *
 * Sizes and strides are expressions, so that one set of rules serves numbers and symbols: where a rule depends on a
 * symbol the choice is a list of cases, of which the first that holds counts. The rules are those of PyTorch's
 * sdp_utils (sdpa_rules.def says which), in its order, with its context flags as they are by default.
 */
#ifndef QKV_BACKENDS_SDPA_CHOICE_H
#define QKV_BACKENDS_SDPA_CHOICE_H
#include "ir/graph.h"

typedef enum SdpaBackend {
    SDPA_MATH,
    SDPA_FLASH,
    SDPA_EFFICIENT,
    SDPA_CUDNN,
    SDPA_BACKENDS
} SdpaBackend; /* PyTorch's numbers */

typedef enum SdpaRule {
#define RULE(id, what, change, source) SDPA_RULE_##id,
#include "backends/sdpa_rules.def"
#undef RULE
    SDPA_RULES
} SdpaRule;

typedef struct SdpaRuleText {
    const char *name, *what, *change, *source;
} SdpaRuleText;
const SdpaRuleText *sdpa_rule(SdpaRule r);
const char *sdpa_backend_name(SdpaBackend b); /* "flash" */

typedef struct SdpaDevice {
    bool cuda;
    int major, minor; /* compute capability */
    int cudnn;        /* as cuDNN counts: 92000 for 9.20.0 */
} SdpaDevice;
enum { SDPA_CUDNN_DEFAULT = 92000 }; /* of the CUDA 13 wheels around torch 2.13 */
/* "cpu", "cuda-sm80", "cuda-sm90", "cuda-sm120" ...; cudnn 0: the default. E_USAGE names what there is. */
bool sdpa_device(const char *name, int cudnn, SdpaDevice *out, Err *err);

typedef struct SdpaTensor {
    DType dtype;
    int rank;
    Expr **dim, **stride;
    Expr *offset; /* into its storage, in elements; NULL: none */
} SdpaTensor;

typedef struct SdpaCall {
    SdpaTensor q, k, v, mask;
    bool has_mask;
    bool mask_grad; /* the mask asks for a gradient */
    bool training;  /* query, key or value do, and gradients are on */
    bool causal, gqa;
    double dropout;
} SdpaCall;

/* A call whose node has bounds on the distance of key and query (NULL: none), as a file has it: is_causal, or a
 * mask. dim, stride: room for MAX_RANK. */
bool sdpa_bounds(ExprPool *p, const Expr *lower, const Expr *upper, Expr **dim, Expr **stride, SdpaCall *c);

typedef struct SdpaRefusal {
    SdpaBackend backend; /* a better one */
    SdpaRule rule;
    Expr *condition; /* what would have to hold; a constant false when no size helps */
} SdpaRefusal;

typedef struct SdpaWhen {
    SdpaBackend backend;
    Expr *condition; /* NULL: otherwise */
    SdpaRule rule;   /* of the first of the conditions; SDPA_RULES when there is none */
} SdpaWhen;

typedef struct SdpaChoice {
    int nwhen;
    SdpaWhen when[SDPA_BACKENDS]; /* in order; the last without condition */
    int nrefusals;
    /* of backends before the one that is chosen otherwise, in the order in which PyTorch asks */
    SdpaRefusal refusal[(int)SDPA_BACKENDS * (int)SDPA_RULES];
} SdpaChoice;

bool sdpa_choose(const SdpaDevice *d, const SdpaCall *call, ExprPool *p, SdpaChoice *out, Err *err);
/* Backends in the order in which the device is asked, up to math; how many. */
int sdpa_order(const SdpaDevice *d, SdpaBackend *order);
/* Elements of which head sizes must be multiples for the memory-efficient kernel. */
int sdpa_alignment(const SdpaDevice *d, DType t);

/* 1: holds for all sizes in range; 0: for none; -1: it depends. */
int expr_truth(const ExprPool *p, const Expr *condition);
/* "s0 >= 2 and s0 != 5": comparisons of one symbol are solved for it. */
void sdpa_print_condition(ExprPool *p, const Expr *condition, Buf *out);
#endif
