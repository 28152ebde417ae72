/* Optimizers. Contract in optimizer.h. */
#include "train/optimizer.h"
#include <math.h>
#include "base/elementary.h"
#include "base/mem.h"
#include "kernel/kernel.h"

enum { PIECE = 8192, STATES = 2 }; /* elements that one thread takes at a time */

typedef struct Piece {
    int parameter;
    int64_t at, n;
} Piece;

struct Optimizer {
    OptimizerOptions is;
    const Tensor *parameter;
    Tensor *state[STATES];
    Piece *piece;
    double *squares; /* per piece */
    int64_t npieces, steps;
    int n, threads;
};

bool optimizer_check(const OptimizerOptions *o, Err *err)
{
    const struct {
        const char *name;
        double v;
        bool below_one;
    } all[] = {{"beta1", o->beta1, true},
               {"beta2", o->beta2, true},
               {"eps", o->eps, false},
               {"weight decay", o->weight_decay, false},
               {"momentum", o->momentum, false},
               {"dampening", o->dampening, false},
               {"the largest norm", o->clip_norm, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(all[i].v >= 0 && isfinite(all[i].v) && (!all[i].below_one || all[i].v < 1)))
            return fail(err, E_USAGE, "%s is %g, expected a number of at least 0%s", all[i].name, all[i].v,
                        all[i].below_one ? " and below 1" : "");
    return !o->nesterov || (o->momentum > 0 && o->dampening == 0) ||
           fail(err, E_USAGE, "nesterov needs a momentum above 0 and no dampening");
}

static int states_of(const OptimizerOptions *o) { return o->kind != OPTIMIZER_SGD ? 2 : o->momentum > 0 ? 1 : 0; }

static bool make_states(Optimizer *o)
{
    for (int k = 0; k < states_of(&o->is); k++) {
        if (!(o->state[k] = mem_zeroed((size_t)o->n + 1, sizeof *o->state[k]))) return false;
        for (int i = 0; i < o->n; i++) {
            const Tensor *p = &o->parameter[i];
            o->state[k][i] = tensor_of(p->dtype, p->rank, p->shape,
                                       mem_zeroed((size_t)tensor_numel(p) + 1, dtype_size(p->dtype)));
            if (!o->state[k][i].data) return false;
        }
    }
    return true;
}

static bool make_pieces(Optimizer *o)
{
    for (int i = 0; i < o->n; i++) o->npieces += (tensor_numel(&o->parameter[i]) + PIECE - 1) / PIECE;
    o->piece = mem_zeroed((size_t)o->npieces + 1, sizeof *o->piece);
    o->squares = mem_zeroed((size_t)o->npieces + 1, sizeof *o->squares);
    if (!o->piece || !o->squares) return false;
    int64_t k = 0;
    for (int i = 0; i < o->n; i++)
        for (int64_t at = 0, all = tensor_numel(&o->parameter[i]); at < all; at += PIECE)
            o->piece[k++] = (Piece){i, at, all - at < PIECE ? all - at : PIECE};
    return true;
}

Optimizer *optimizer_create(const OptimizerOptions *options, const Tensor *parameter, int n, int threads, Err *err)
{
    TRY_NULL(optimizer_check(options, err));
    Optimizer *o = mem_zeroed(1, sizeof *o);
    if (o) {
        *o = (Optimizer){.is = *options, .parameter = parameter, .n = n, .threads = threads};
        if (make_states(o) && make_pieces(o)) return o;
    }
    optimizer_free(o);
    fail(err, E_LIMIT, "out of memory for the optimizer's state");
    return NULL;
}

void optimizer_free(Optimizer *o)
{
    if (!o) return;
    for (int k = 0; k < STATES; k++) {
        for (int i = 0; o->state[k] && i < o->n; i++) mem_free(o->state[k][i].data);
        mem_free(o->state[k]);
    }
    mem_free(o->piece);
    mem_free(o->squares);
    mem_free(o);
}

static void *from(const Tensor *t, int64_t at) { return (char *)t->data + (size_t)at * dtype_size(t->dtype); }

double optimizer_norm(Optimizer *o, const Tensor *gradient)
{
    const OptimKernels *k = &kernels()->optim;
    double all = 0;
#pragma omp parallel for num_threads(o->threads) if (o->npieces > 1) schedule(static)
    for (int64_t i = 0; i < o->npieces; i++) {
        const Piece *p = &o->piece[i];
        const Tensor *g = &gradient[p->parameter];
        o->squares[i] = g->dtype == DT_F64 ? k->squares_f64(from(g, p->at), p->n)
                                           : k->squares_f32(from(g, p->at), p->n);
    }
    for (int64_t i = 0; i < o->npieces; i++) all += o->squares[i];
    return sqrt(all);
}

static void step_piece(const Optimizer *o, const Piece *p, const Tensor *g, const OptimStep *s)
{
    const OptimKernels *k = &kernels()->optim;
    const Tensor *w = &o->parameter[p->parameter], *m = o->state[0] ? &o->state[0][p->parameter] : NULL,
                 *v = o->state[1] ? &o->state[1][p->parameter] : NULL;
    void *first = m ? from(m, p->at) : NULL;
    bool wide = w->dtype == DT_F64;
    if (v && wide) k->adam_f64(from(w, p->at), first, from(v, p->at), from(g, p->at), p->n, s);
    else if (v) k->adam_f32(from(w, p->at), first, from(v, p->at), from(g, p->at), p->n, s);
    else if (wide) k->sgd_f64(from(w, p->at), first, from(g, p->at), p->n, s);
    else k->sgd_f32(from(w, p->at), first, from(g, p->at), p->n, s);
}

void optimizer_step(Optimizer *o, const Tensor *gradient, double norm, double lr)
{
    const OptimizerOptions *is = &o->is;
    double t = (double)(o->steps + 1), clip = is->clip_norm > 0 ? is->clip_norm / (norm + 1e-6) : 1;
    OptimStep s = {.lr = lr,
                   .decay = is->weight_decay,
                   .scale = clip < 1 ? clip : 1,
                   .beta1 = is->beta1,
                   .beta2 = is->beta2,
                   .eps = is->eps,
                   .correction1 = 1 - real_pow(is->beta1, t),
                   .correction2 = sqrt(1 - real_pow(is->beta2, t)),
                   .decoupled = is->kind == OPTIMIZER_ADAMW,
                   .momentum = is->momentum,
                   .dampening = is->dampening,
                   .first = o->steps == 0,
                   .nesterov = is->nesterov};
#pragma omp parallel for num_threads(o->threads) if (o->npieces > 1) schedule(static)
    for (int64_t i = 0; i < o->npieces; i++) step_piece(o, &o->piece[i], &gradient[o->piece[i].parameter], &s);
    o->steps++;
}

int64_t optimizer_steps(const Optimizer *o) { return o->steps; }
void optimizer_set_steps(Optimizer *o, int64_t steps) { o->steps = steps; }

Tensor *optimizer_state(Optimizer *o, int i, int k, const char **name)
{
    static const char *const adam[] = {"exp_avg", "exp_avg_sq"};
    if (k >= states_of(&o->is)) return NULL;
    *name = o->is.kind == OPTIMIZER_SGD ? "momentum_buffer" : adam[k];
    return &o->state[k][i];
}
