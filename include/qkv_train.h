/* qkv: sessions that train a joint graph (qkv_model_joint of qkv_tools.h, or the command qkv joint). */
#ifndef QKV_TRAIN_H
#define QKV_TRAIN_H
#include "qkv.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qkv_optimizer { QKV_OPTIMIZER_ADAMW, QKV_OPTIMIZER_ADAM, QKV_OPTIMIZER_SGD } qkv_optimizer;
QKV_API const char *qkv_optimizer_name(qkv_optimizer o);                   /* "adamw" */
QKV_API int qkv_optimizer_from_name(const char *name, qkv_optimizer *out); /* 0: no optimizer has this name */

typedef enum qkv_schedule {
    QKV_SCHEDULE_CONSTANT,
    QKV_SCHEDULE_LINEAR, /* LinearLR down to lr_end */
    QKV_SCHEDULE_COSINE, /* CosineAnnealingLR down to lr_end */
    QKV_SCHEDULE_STEP    /* StepLR, times gamma every step_size steps */
} qkv_schedule;
QKV_API const char *qkv_schedule_name(qkv_schedule s); /* "constant" */
QKV_API int qkv_schedule_from_name(const char *name, qkv_schedule *out);

/* Results are those of PyTorch's torch.optim and torch.optim.lr_scheduler; options have the same names.
 * qkv_train_defaults sets all of them. */
typedef struct qkv_train_options {
    size_t struct_size; /* sizeof(qkv_train_options) */
    qkv_optimizer optimizer;
    double lr;
    double beta1, beta2, eps;   /* adamw, adam */
    double weight_decay;        /* adamw: decoupled; adam, sgd: added to the gradient */
    double momentum, dampening; /* sgd */
    int nesterov;
    double clip_norm; /* torch.nn.utils.clip_grad_norm_; 0: none */
    qkv_schedule schedule;
    int64_t warmup; /* warm-up steps, in which the rate grows: LinearLR(start_factor=1/warmup, total_iters=warmup) */
    int64_t steps;  /* over which linear and cosine fall, including warm-up; 0: all those of qkv_session_fit */
    int64_t step_size;
    /* of the order of data; for dropout and other random ops, as torch.manual_seed */
    double gamma, lr_end;
    uint64_t seed;
} qkv_train_options;
/* PyTorch's defaults for an optimizer, a constant rate, no clipping, seed 0; set o->struct_size first. */
QKV_API qkv_status qkv_train_defaults(qkv_train_options *o, qkv_optimizer optimizer, qkv_error *err);

typedef struct qkv_step {
    size_t struct_size; /* sizeof(qkv_step) */
    int64_t step;       /* from 1 */
    double loss, lr;    /* the loss of the parameters before the step; the rate that it took */
    double grad_norm;   /* of all gradients together, before clipping */
} qkv_step;

/* One run with the inputs that are set, and one step of the optimizer. Outputs are as after qkv_session_run. Buffers
 * that the model writes carry over from step to step; frozen parameters do not change. A step happens completely or not
 * at all: QKV_MISMATCH for a loss or gradient that is NaN or infinite names the node that produced the first such
 * value, and parameters, buffers, optimizer and generator are as before. out may be NULL. */
QKV_API qkv_status qkv_session_step(qkv_session *s, qkv_step *out, qkv_error *err);
/* A parameter, buffer or constant of the model by its name in the state dict, as it is in this session: borrowed, and
 * changed by every step. QKV_USAGE when there is none. */
QKV_API qkv_status qkv_session_weight(const qkv_session *s, const char *name, qkv_tensor *out, qkv_error *err);
/* Sets a parameter that trains or a buffer that runs write; the dtype and sizes must be the same. The optimizer's state
 * does not change. */
QKV_API qkv_status qkv_session_set_weight(qkv_session *s, const char *name, const qkv_tensor *t, qkv_error *err);
/* Writes a checkpoint, one .safetensors, completely or not at all: parameters, written buffers, the optimizer's state,
 * steps and generator. A session that loads it continues bit for bit as one that was never stopped. QKV_USAGE for a
 * checkpoint of another model or optimizer; nothing has changed then. */
QKV_API qkv_status qkv_session_save(qkv_session *s, const char *path, qkv_error *err);
QKV_API qkv_status qkv_session_load(qkv_session *s, const char *path, qkv_error *err);
/* The model without gradients, with a copy of the weights as they are now in this session: to run it, save it, or read
 * it by qkv_model_weight. What did not train it shares with the session's model. */
QKV_API qkv_model *qkv_session_trained(const qkv_session *s, qkv_error *err);

typedef struct qkv_fit_event {
    size_t struct_size;
    int epoch_end;                 /* 0: after a step; 1: after an epoch and its validation */
    int replayed;                  /* 1: read from the checkpoint from which this run continues */
    int64_t epoch, step;           /* from 1 */
    int64_t steps;                 /* of the whole run */
    double loss;                   /* of the step; of an epoch: averaged over its rows */
    double lr, grad_norm;          /* of the step */
    double val_loss, val_accuracy; /* of the epoch; NaN: none */
} qkv_fit_event;
typedef int qkv_fit_callback(void *user, const qkv_fit_event *e); /* non-zero: stop here */

typedef struct qkv_fit_options {
    size_t struct_size; /* sizeof(qkv_fit_options) */
    /* n inputs of the model, all of them; tensors with one example per row, borrowed until the call returns. A tensor
     * of another length must have its input's sizes and is the same in every step */
    const char *const *names;
    const qkv_tensor *tensors;
    int n;
    /* the same for validation after every epoch: the model's forward part runs on it as exported (with dropout, if that
     * is in the file) and writes no buffers; n_val 0: no validation */
    const char *const *val_names;
    const qkv_tensor *val_tensors;
    int n_val;
    int64_t epochs, batch; /* batch 0: what the model fixes, else 32 or the nearest that it allows */
    int drop_last;         /* 1: rows left over after the last full batch of an epoch are not used in it */
    /* 1: rows in their order; 0: epoch e uses the order of the e-th torch.randperm(rows, generator=g), g =
     * torch.Generator().manual_seed(seed) */
    int in_order;
    /* NULL: none; written after every epoch, when the callback stops the run, and before a step that is not finite */
    const char *checkpoint;
    int64_t checkpoint_every; /* also after this many steps; 0: only after epochs */
    /* a checkpoint to continue from, bit for bit as a run that was never stopped; its steps are reported again, as
     * replayed */
    const char *resume;
    /* an output (.., classes) and an input (..) for the accuracy of validation; NULL: none */
    const char *logits, *labels;
    qkv_fit_callback *tell; /* after every step and epoch; may be NULL */
    void *user;
} qkv_fit_options;

/* Trains for `epochs` epochs. *stopped (may be NULL): 1 if the callback ended it. QKV_USAGE for data whose names,
 * dtypes or sizes do not fit, and for a checkpoint of other data or settings; QKV_MISMATCH as qkv_session_step. */
QKV_API qkv_status qkv_session_fit(qkv_session *s, const qkv_fit_options *options, int *stopped, qkv_error *err);

#ifdef __cplusplus
}
#endif
#endif
