/* An optimizer: its state beside the parameters, and one step over all of them.
 *
 *     Optimizer *o = optimizer_create(&options, parameters, n, threads, err);      parameters are borrowed,
 *                                                                                  contiguous f32 or f64, changed in
 *                                                                                  place
 *     double norm = optimizer_norm(o, gradients);                                 of all gradients together; the same
 *                                                                                 for any number of threads
 *     optimizer_step(o, gradients, norm, lr);                                     clips by that norm, as
 *                                                                                 torch.nn.utils.clip_grad_norm_
 *
 * A step is one parallel loop over pieces of all parameters. Formulas: kernel/optim.h.
 */
#ifndef QKV_TRAIN_OPTIMIZER_H
#define QKV_TRAIN_OPTIMIZER_H
#include "tensor/tensor.h"

typedef enum OptimizerKind { OPTIMIZER_ADAMW, OPTIMIZER_ADAM, OPTIMIZER_SGD } OptimizerKind;

typedef struct OptimizerOptions {
    OptimizerKind kind;
    double beta1, beta2, eps;   /* adam, adamw */
    double weight_decay;        /* adamw: decoupled; adam, sgd: added to the gradient */
    double momentum, dampening; /* sgd */
    bool nesterov;
    double clip_norm; /* gradients are scaled so that their norm is at most this; 0: never */
} OptimizerOptions;

typedef struct Optimizer Optimizer;
bool optimizer_check(const OptimizerOptions *o, Err *err); /* E_USAGE: a number out of its range, named */
Optimizer *optimizer_create(const OptimizerOptions *options, const Tensor *parameter, int n, int threads, Err *err);
void optimizer_free(Optimizer *o); /* NULL is fine */
/* gradient[i]: contiguous, of parameter i's dtype and sizes. */
double optimizer_norm(Optimizer *o, const Tensor *gradient);
void optimizer_step(Optimizer *o, const Tensor *gradient, double norm, double lr);
int64_t optimizer_steps(const Optimizer *o);
void optimizer_set_steps(Optimizer *o, int64_t steps);
/* State k (0 or 1) of parameter i, the optimizer's, for files; NULL where there is none.
 * "exp_avg", "exp_avg_sq" or "momentum_buffer", as PyTorch calls them. */
Tensor *optimizer_state(Optimizer *o, int i, int k, const char **name);
#endif
