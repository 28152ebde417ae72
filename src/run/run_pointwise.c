/* Pointwise ops: any strides, broadcasting, dtypes; rows of values go to the kernels.
 *
 * A tensor op is walked as rows: dims that are laid out alike in all operands are merged, the last one is the row. An
 * operand row that already is contiguous and of the type that is computed in is used in place; any other is loaded into
 * a buffer on the stack. Short rows go several at once.
 */
#include "run/pointwise.h"
#include <math.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/kernel.h"
#include "run/run_table.h"

enum { CHUNK = 512, SHORT = 128, MAX_IN = 3, PARALLEL = 1 << 15 };

/* What a row is computed in. */
typedef enum Kind { K_F32, K_F64, K_I64 } Kind;

static Kind kind_of(DType t)
{
    if (t == DT_F64) return K_F64;
    return dtype_is_float(t) ? K_F32 : K_I64;
}

static const size_t kind_size[] = {4, 8, 8};
static const DType kind_dtype[] = {DT_F32, DT_F64, DT_I64};

/* An operand: a tensor, or a number. */
typedef struct Operand {
    const Tensor *t;
    double f;
    int64_t i;
    Kind kind;                /* what its rows are loaded as */
    int64_t stride[MAX_RANK]; /* bytes, for the merged dims */
} Operand;

typedef bool RowFn(const void *what, void *out, const void *const *in, int64_t n);

typedef struct Walk {
    int rank, nin;
    int64_t shape[MAX_RANK], total;
    Operand in[MAX_IN];
    Tensor *out;
    Kind out_kind; /* what the kernel writes; for truth values: bytes as they are */
    bool out_truth;
    RowFn *row; /* NULL: the operand, in the result's dtype */
    const void *what;
} Walk;

/* ------------------------------------------------------------------ walking */

static int64_t broadcast_stride(const Tensor *t, int dim, int rank)
{
    int d = dim - (rank - t->rank);
    return d < 0 || t->shape[d] == 1 ? 0 : t->stride[d] * (int64_t)dtype_size(t->dtype);
}

/* The result's dims but those of 1, whose strides have no meaning, in the order of its memory layout: a permutation of
 * a contiguous tensor. How many they are. */
static int memory_order(const Tensor *t, int *order)
{
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] == 1) continue;
        int k = n++;
        for (; k > 0 && t->stride[order[k - 1]] < t->stride[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    return n;
}

/* Merges neighbouring dims that every operand steps through alike; drops dims of size 1. Elements are counted as the
 * result is laid out. */
static void merge_dims(Walk *w)
{
    int n = 0, order[MAX_RANK], dims = memory_order(w->out, order);
    for (int i = 0; i < dims; i++) {
        int d = order[i];
        bool join = n > 0;
        for (int k = 0; k < w->nin && join; k++)
            if (w->in[k].t)
                join = w->in[k].stride[n - 1] == broadcast_stride(w->in[k].t, d, w->out->rank) * w->out->shape[d];
        if (!join) n++;
        w->shape[n - 1] = join ? w->shape[n - 1] * w->out->shape[d] : w->out->shape[d];
        for (int k = 0; k < w->nin; k++)
            if (w->in[k].t) w->in[k].stride[n - 1] = broadcast_stride(w->in[k].t, d, w->out->rank);
    }
    if (n == 0) {
        w->shape[n++] = 1;
        for (int k = 0; k < w->nin; k++) w->in[k].stride[0] = 0;
    }
    w->rank = n;
}

static bool load(Kind k, void *out, DType t, const void *in, int64_t stride, int64_t n)
{
    const PointwiseKernels *p = &kernels()->pointwise;
    return k == K_F32   ? p->load_f32(out, t, in, stride, n)
           : k == K_F64 ? p->load_f64(out, t, in, stride, n)
                        : p->load_i64(out, t, in, stride, n);
}

static bool store(Kind k, DType t, void *out, const void *in, int64_t n)
{
    const PointwiseKernels *p = &kernels()->pointwise;
    return k == K_F32   ? p->store_f32(t, out, in, n)
           : k == K_F64 ? p->store_f64(t, out, in, n)
                        : p->store_i64(t, out, in, n);
}

static void splat(Kind k, void *buffer, double f, int64_t i, int64_t n)
{
    if (k == K_F32)
        for (int64_t j = 0; j < n; j++) ((float *)buffer)[j] = (float)f;
    else if (k == K_F64)
        for (int64_t j = 0; j < n; j++) ((double *)buffer)[j] = f;
    else
        for (int64_t j = 0; j < n; j++) ((int64_t *)buffer)[j] = i;
}

/* How many short rows, one below the other from row `at` of the last dim but one, are computed as one. */
static int64_t rows_at_once(const Walk *w, int64_t at, int64_t left)
{
    int64_t inner = w->shape[w->rank - 1], m = w->shape[w->rank - 2] - at, most = CHUNK / inner, whole = left / inner;
    m = m < most ? m : most;
    return m < whole ? m : whole > 1 ? whole : 1;
}

/* m rows of n elements each of an operand, from p on: where they follow each other already, or copied to buffer. NULL:
 * no kernel. */
static const void *operand_rows(const Walk *w, const Operand *o, const char *p, int64_t m, int64_t n,
                                unsigned char *buffer)
{
    int64_t step = o->stride[w->rank - 1], below = m > 1 ? o->stride[w->rank - 2] : 0,
            size = (int64_t)kind_size[o->kind];
    bool plain = o->t->dtype == kind_dtype[o->kind] && step == size;
    if (plain && (m == 1 || below == n * size)) return p;
    for (int64_t r = 0; r < m; r++, p += below, buffer += n * size) {
        if (plain) memcpy(buffer, p, (size_t)(n * size));
        else if (!load(o->kind, buffer, o->t->dtype, p, step, n)) return NULL;
    }
    return buffer - m * n * size;
}

/* Elements [from, to) of the output, in its order. */
static bool walk_range(const Walk *w, int64_t from, int64_t to)
{
    _Alignas(64) unsigned char buffer[MAX_IN + 1][CHUNK * 8];
    int64_t inner = w->shape[w->rank - 1];
    size_t out_size = dtype_size(w->out->dtype);
    bool direct_out = w->out_truth || w->out->dtype == kind_dtype[w->out_kind];
    for (int k = 0; k < w->nin; k++)
        if (!w->in[k].t) splat(w->in[k].kind, buffer[k], w->in[k].f, w->in[k].i, CHUNK);
    while (from < to) {
        int64_t rest = from / inner, at = from % inner, n = inner - at < to - from ? inner - at : to - from;
        if (n > CHUNK) n = CHUNK;
        const void *in[MAX_IN];
        int64_t coord[MAX_RANK];
        for (int d = w->rank - 2; d >= 0; d--) {
            coord[d] = rest % w->shape[d];
            rest /= w->shape[d];
        }
        int64_t m = inner < SHORT && w->rank > 1 && at == 0 ? rows_at_once(w, coord[w->rank - 2], to - from) : 1;
        for (int k = 0; k < w->nin; k++) {
            const Operand *o = &w->in[k];
            in[k] = buffer[k];
            if (!o->t) continue;
            int64_t offset = at * o->stride[w->rank - 1];
            for (int d = 0; d < w->rank - 1; d++) offset += coord[d] * o->stride[d];
            if (!(in[k] = operand_rows(w, o, (const char *)o->t->data + offset, m, n, buffer[k]))) return false;
        }
        n *= m;
        char *out = (char *)w->out->data + (size_t)from * out_size;
        const void *made = in[0];
        if (w->row) {
            void *row = direct_out ? (void *)out : buffer[MAX_IN];
            if (!w->row(w->what, row, in, n)) return false;
            made = row;
        }
        if (made != out && !store(w->out_kind, w->out->dtype, out, made, n)) return false;
        from += n;
    }
    return true;
}

static bool walk(Walk *w, int threads)
{
    merge_dims(w);
    w->total = tensor_numel(w->out);
    if (w->total == 0) return true;
    int64_t parts = w->total < PARALLEL ? 1 : threads;
    bool ok = true;
#pragma omp parallel for num_threads(threads) if (parts > 1) reduction(&& : ok) schedule(static, 1)
    for (int64_t i = 0; i < parts; i++) {
        int64_t each = (w->total / parts + 63) / 64 * 64, from = i * each, to = i + 1 == parts ? w->total : from + each;
        if (to > w->total) to = w->total;
        if (from < to) ok = walk_range(w, from, to) && ok;
    }
    return ok;
}

/* ------------------------------------------------------------------ operations */

typedef struct What {
    PointwiseOp op;
    Kind kind;
    double p[3];
} What;

static bool unary_row(const void *what, void *out, const void *const *in, int64_t n)
{
    const What *x = what;
    const PointwiseKernels *k = &kernels()->pointwise;
    return x->kind == K_F32   ? k->unary_f32(x->op, out, in[0], n, x->p)
           : x->kind == K_F64 ? k->unary_f64(x->op, out, in[0], n, x->p)
                              : k->unary_i64(x->op, out, in[0], n, x->p);
}

static bool binary_row(const void *what, void *out, const void *const *in, int64_t n)
{
    const What *x = what;
    const PointwiseKernels *k = &kernels()->pointwise;
    return x->kind == K_F32   ? k->binary_f32(x->op, out, in[0], in[1], n)
           : x->kind == K_F64 ? k->binary_f64(x->op, out, in[0], in[1], n)
                              : k->binary_i64(x->op, out, in[0], in[1], n);
}

static bool compare_row(const void *what, void *out, const void *const *in, int64_t n)
{
    const What *x = what;
    const PointwiseKernels *k = &kernels()->pointwise;
    return x->kind == K_F32   ? k->compare_f32(x->op, out, in[0], in[1], n)
           : x->kind == K_F64 ? k->compare_f64(x->op, out, in[0], in[1], n)
                              : k->compare_i64(x->op, out, in[0], in[1], n);
}

static bool test_row(const void *what, void *out, const void *const *in, int64_t n)
{
    const What *x = what;
    const PointwiseKernels *k = &kernels()->pointwise;
    return x->kind == K_F32   ? k->test_f32(x->op, out, in[0], n)
           : x->kind == K_F64 ? k->test_f64(x->op, out, in[0], n)
                              : k->test_i64(x->op, out, in[0], n);
}

/* Of numbers from 0 to 1; NaN is none of them. */
static bool shares_row(const void *what, void *out, const void *const *in, int64_t n)
{
    const What *x = what;
    bool valid = true;
    for (int k = 0; k < 2 && valid; k++) {
        const float *f = in[k];
        const double *d = in[k];
        if (x->kind == K_F32)
            for (int64_t i = 0; i < n; i++) valid &= (f[i] >= 0) & (f[i] <= 1);
        else
            for (int64_t i = 0; i < n; i++) valid &= (d[i] >= 0) & (d[i] <= 1);
    }
    return valid && binary_row(what, out, in, n);
}

/* in[0] was loaded as int64 truth values */
static bool where_row(const void *what, void *out, const void *const *in, int64_t n)
{
    const What *x = what;
    const PointwiseKernels *k = &kernels()->pointwise;
    uint8_t c[CHUNK];
    const int64_t *truth = in[0];
    for (int64_t i = 0; i < n; i++) c[i] = truth[i] != 0;
    if (x->kind == K_F32) k->where_f32(out, c, in[1], in[2], n);
    else if (x->kind == K_F64) k->where_f64(out, c, in[1], in[2], n);
    else k->where_i64(out, c, in[1], in[2], n);
    return true;
}

static Operand operand(const CallArg *a, Kind kind)
{
    Operand o = {.kind = kind};
    if (a->kind == ARG_VALUE) o.t = a->t;
    else {
        o.f = scalar_f64(a->s);
        o.i = a->s.kind == SC_FLOAT ? load_i64(DT_F64, &a->s.f) : a->s.i;
    }
    return o;
}

static bool no_kernel(Call *c, Err *err)
{
    return call_fail(c, E_UNSUPPORTED, err, "no kernel for %s", dtype_name(call_out(c, 0)->dtype));
}

static bool run_unary_op(Call *c, PointwiseOp op, const double *p, Err *err)
{
    Kind k = kind_of(call_out(c, 0)->dtype);
    What what = {op, k, {0}};
    if (p) memcpy(what.p, p, sizeof what.p);
    Walk w = {.nin = 1,
              .in = {operand(&c->arg[0], k)},
              .out = call_out(c, 0),
              .out_kind = k,
              .row = unary_row,
              .what = &what};
    return walk(&w, c->env->threads) || no_kernel(c, err);
}

/* Integer division and remainder refuse a divisor of 0, as PyTorch does (ZeroDivisionError). */
static bool check_divisor(Call *c, PointwiseOp op, Kind k, const CallArg *b, Err *err)
{
    if (k != K_I64 || (op != PW_div_floor && op != PW_div_trunc && op != PW_remainder && op != PW_fmod)) return true;
    int64_t n = b->kind == ARG_VALUE ? tensor_numel(b->t) : 1;
    if (tensor_numel(call_out(c, 0)) == 0) return true;
    for (int64_t i = 0; i < n; i++)
        if ((b->kind == ARG_VALUE ? tensor_get_i64(b->t, i) : scalar_i64(b->s)) == 0)
            return call_fail(c, E_USAGE, err, "integer division by zero");
    return true;
}

static bool run_binary_op(Call *c, PointwiseOp op, int a, int b, Err *err)
{
    Kind k = kind_of(call_out(c, 0)->dtype);
    What what = {op, k, {0}};
    TRY(check_divisor(c, op, k, &c->arg[b], err));
    Walk w = {.nin = 2,
              .in = {operand(&c->arg[a], k), operand(&c->arg[b], k)},
              .out = call_out(c, 0),
              .out_kind = k,
              .row = binary_row,
              .what = &what};
    if (c->arg[a].kind == ARG_EXPR && k == K_F32) { /* ATen makes a number on the left a tensor of the result's dtype;
                                                       on the right it stays as it is */
        unsigned char rounded[8];
        store_f64(call_out(c, 0)->dtype, rounded, w.in[0].f);
        w.in[0].f = load_f64(call_out(c, 0)->dtype, rounded);
    }
    return walk(&w, c->env->threads) || no_kernel(c, err);
}

/* Truth values: computed in the operands' common type, not the result's. */
static Kind operand_kind(const Call *c, int n)
{
    Kind k = K_I64;
    for (int i = 0; i < n; i++) {
        const CallArg *a = &c->arg[i];
        bool is_float = a->kind == ARG_VALUE ? dtype_is_float(a->t->dtype) : a->s.kind == SC_FLOAT;
        if (a->kind == ARG_VALUE && a->t->dtype == DT_F64) return K_F64;
        if (is_float && k == K_I64) k = K_F32;
    }
    return k;
}

static bool run_truth(Call *c, PointwiseOp op, int nin, Err *err)
{
    Kind k = operand_kind(c, nin);
    What what = {op, k, {0}};
    Walk w = {.nin = nin,
              .in = {operand(&c->arg[0], k)},
              .out = call_out(c, 0),
              .out_truth = true,
              .row = nin == 1 ? test_row : compare_row,
              .what = &what};
    if (nin == 2) w.in[1] = operand(&c->arg[1], k);
    return walk(&w, c->env->threads) || no_kernel(c, err);
}

/* ------------------------------------------------------------------ copies */

/* A transposition among the last dims goes in tiles; the rest row by row. */
static bool copy_tiles(Tensor *out, const Tensor *in, int threads)
{
    Walk w = {.nin = 1, .in = {{.t = in}}, .out = out};
    size_t size = dtype_size(in->dtype);
    merge_dims(&w);
    int64_t cols = w.shape[w.rank - 1], rows = w.rank > 1 ? w.shape[w.rank - 2] : 1, outer = 1;
    for (int d = 0; d < w.rank - 2; d++) outer *= w.shape[d];
    int64_t cs = w.in[0].stride[w.rank - 1] / (int64_t)size,
            rs = w.rank > 1 ? w.in[0].stride[w.rank - 2] / (int64_t)size : 0;
    bool ok = true, flat = outer == 1 && threads > 1; /* one large matrix: split its rows */
    int64_t parts = flat ? (rows + 63) / 64 : outer, each = flat ? 64 : rows;
#pragma omp parallel for num_threads(threads) if (rows * cols * outer >= PARALLEL) reduction(&& : ok)
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = flat ? i * each : 0, n = rows - first < each ? rows - first : each, at = flat ? 0 : i,
                offset = 0;
        for (int d = w.rank - 3; d >= 0; d--) {
            offset += at % w.shape[d] * w.in[0].stride[d];
            at /= w.shape[d];
        }
        char *to = (char *)out->data + (size_t)((flat ? 0 : i) * rows * cols + first * cols) * size;
        ok = kernels()->pointwise.copy_2d(to, (const char *)in->data + offset + first * rs * (int64_t)size, n, cols, rs,
                                          cs, size) &&
             ok;
    }
    return ok;
}

/* A transposition among the last dims with a conversion: tile by tile in the operand's order, then row by row. */
static bool convert_tiles(const Walk *w, int threads)
{
    enum { TILE = 64 };
    const Operand *o = &w->in[0];
    DType from = o->t->dtype, to = w->out->dtype;
    int64_t in_size = (int64_t)dtype_size(from), out_size = (int64_t)dtype_size(to), cols = w->shape[w->rank - 1],
            rows = w->shape[w->rank - 2], cs = o->stride[w->rank - 1], rs = o->stride[w->rank - 2],
            bands = (rows + TILE - 1) / TILE, parts = w->total / (rows * cols) * bands;
    bool ok = true;
#pragma omp parallel for num_threads(threads) if (w->total >= PARALLEL) reduction(&& : ok)
    for (int64_t i = 0; i < parts; i++) {
        _Alignas(64) unsigned char turned[TILE * TILE * 8], row[TILE * 8];
        int64_t first = i % bands * TILE, n = rows - first < TILE ? rows - first : TILE, at = i / bands,
                offset = first * rs;
        char *out = (char *)w->out->data + (i / bands * rows + first) * cols * out_size;
        for (int d = w->rank - 3; d >= 0; d--) {
            offset += at % w->shape[d] * o->stride[d];
            at /= w->shape[d];
        }
        for (int64_t c = 0, m; c < cols; c += m) {
            m = cols - c < TILE ? cols - c : TILE;
            ok = kernels()->pointwise.copy_2d(turned, (const char *)o->t->data + offset + c * cs, n, m, rs / in_size,
                                              cs / in_size, (size_t)in_size) &&
                 ok;
            for (int64_t r = 0; r < n; r++)
                ok = load(o->kind, row, from, turned + r * m * in_size, in_size, m) &&
                     store(o->kind, to, out + (r * cols + c) * out_size, row, m) && ok;
        }
    }
    return ok;
}

bool run_copy_tensor(Tensor *out, const Tensor *in, int threads)
{
    if (tensor_numel(out) == 0) return true;
    if (out->dtype == in->dtype) return copy_tiles(out, in, threads);
    Kind k = dtype_is_float(in->dtype) ? (in->dtype == DT_F64 ? K_F64 : K_F32) : K_I64;
    if (k == K_I64 && out->dtype == DT_F64) k = K_F64;
    Walk w = {.nin = 1, .in = {{.t = in, .kind = k}}, .out = out, .out_kind = k, .total = tensor_numel(out)};
    merge_dims(&w);
    const int64_t *stride = w.in[0].stride;
    bool turned = w.rank > 1 && stride[w.rank - 2] > 0 && stride[w.rank - 1] > stride[w.rank - 2] &&
                  dtype_size(in->dtype) <= 8;
    return turned ? convert_tiles(&w, threads) : walk(&w, threads);
}

bool run_to_copy(Call *c, Err *err)
{
    (void)err;
    if (!run_copy_tensor(call_out(c, 0), call_in(c, 0), c->env->threads))
        tensor_copy(call_out(c, 0), call_in(c, 0)); /* float8 and its like */
    return true;
}

/* ------------------------------------------------------------------ the run functions */

/* The kernel of a row: the first of its words. */
static PointwiseOp kernel_of(const Call *c)
{
    static const PointwiseOp first[OP_COUNT][4] = {
#define UNARY(name, e) PW_##name,
#define FLOAT_UNARY(name, e) PW_##name,
#define INT_UNARY(name, e) PW_##name,
#define BINARY(name, e) PW_##name,
#define FLOAT_BINARY(name, e) PW_##name,
#define INT_BINARY(name, e) PW_##name,
#define COMPARE(name, e) PW_##name,
#define TEST(name, e) PW_##name,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__ PW_NONE},
#include "op/ops.def"
    };
    return first[c->node->op->id][0];
}

/* Numbers that follow the operand are the kernel's parameters. */
bool run_unary(Call *c, Err *err)
{
    double p[3] = {0};
    for (int i = 1; i < c->node->op->schema->nparams; i++) p[i - 1] = call_f64(c, i);
    return run_unary_op(c, kernel_of(c), p, err);
}

/* alpha other than 1 was lowered to a product. */
bool run_binary(Call *c, Err *err) { return run_binary_op(c, kernel_of(c), 0, 1, err); }

bool run_bce(Call *c, Err *err)
{
    Kind k = kind_of(call_out(c, 0)->dtype);
    What what = {kernel_of(c), k, {0}};
    Walk w = {.nin = 2,
              .in = {operand(&c->arg[0], k), operand(&c->arg[1], k)},
              .out = call_out(c, 0),
              .out_kind = k,
              .row = shares_row,
              .what = &what};
    if (k == K_I64) return no_kernel(c, err);
    return walk(&w, c->env->threads) ||
           call_fail(c, E_USAGE, err, "an element of the input or of the target is not between 0 and 1");
}

bool run_compare(Call *c, Err *err) { return run_truth(c, kernel_of(c), 2, err); }
bool run_test(Call *c, Err *err) { return run_truth(c, kernel_of(c), 1, err); }

bool run_div_mode(Call *c, Err *err)
{
    const char *mode = c->arg[2].kind == ARG_STR ? c->arg[2].str : "";
    return run_binary_op(c,
                         !strcmp(mode, "floor")   ? PW_div_floor
                         : !strcmp(mode, "trunc") ? PW_div_trunc
                                                  : PW_div,
                         0, 1, err);
}

bool run_nextafter(Call *c, Err *err)
{
    DType t = call_out(c, 0)->dtype;
    return run_binary_op(c,
                         t == DT_F16    ? PW_nextafter_f16
                         : t == DT_BF16 ? PW_nextafter_bf16
                                        : PW_nextafter,
                         0, 1, err);
}

bool run_gelu_backward(Call *c, Err *err)
{
    return run_binary_op(c, !strcmp(c->arg[2].str, "tanh") ? PW_gelu_tanh_backward : PW_gelu_backward, 0, 1, err);
}
bool run_gelu(Call *c, Err *err)
{
    return run_unary_op(c, !strcmp(c->arg[1].str, "tanh") ? PW_gelu_tanh : PW_gelu, NULL, err);
}

bool run_clamp(Call *c, Err *err)
{
    double p[3] = {call_f64_or(c, 1, -INFINITY), call_f64_or(c, 2, INFINITY), 0};
    DType t = call_out(c, 0)->dtype;
    if (!dtype_is_float(
            t)) { /* infinities are not integers; bounds wrap to the dtype as ATen's do (-1 is 255 for u8) */
        for (int i = 0; i < 2; i++) {
            int64_t wrapped = 0;
            if (isinf(p[i])) p[i] = p[i] < 0 ? -0x1p63 : 0x1p63;
            else {
                store_i64(t, &wrapped, (int64_t)p[i]);
                p[i] = (double)load_i64(t, &wrapped);
            }
        }
    }
    return run_unary_op(c, PW_clamp, p, err);
}

bool run_round_decimals(Call *c, Err *err)
{
    double p[3] = {real_pow(10, call_f64(c, 1)), 0, 0};
    return run_unary_op(c, PW_round_scaled, p, err);
}

bool run_nan_to_num(Call *c, Err *err)
{
    DType t = call_out(c, 0)->dtype;
    double p[3] = {call_f64_or(c, 1, 0), call_f64_or(c, 2, dtype_highest(t)), call_f64_or(c, 3, dtype_lowest(t))};
    return run_unary_op(c, dtype_is_float(t) ? PW_nan_to_num : PW_identity, p, err);
}

bool run_bitwise_not(Call *c, Err *err)
{
    if (call_out(c, 0)->dtype == DT_BOOL) return run_truth(c, PW_logical_not, 1, err);
    return run_unary_op(c, PW_bitwise_not, NULL, err);
}

bool run_where(Call *c, Err *err)
{
    Kind k = kind_of(call_out(c, 0)->dtype);
    What what = {PW_identity, k, {0}};
    Walk w = {.nin = 3,
              .in = {operand(&c->arg[0], K_I64), operand(&c->arg[1], k), operand(&c->arg[2], k)},
              .out = call_out(c, 0),
              .out_kind = k,
              .row = where_row,
              .what = &what};
    return walk(&w, c->env->threads) || no_kernel(c, err);
}

bool run_prelu(Call *c, Err *err)
{
    /* weight (C) is along dim 1 of x (N, C, ...); one weight serves all */
    Tensor *x = call_in(c, 0), weight = *call_in(c, 1);
    int64_t n = tensor_numel(&weight), stride = weight.rank ? weight.stride[weight.rank - 1] : 0;
    weight.rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        weight.shape[i] = i == (x->rank > 1 ? 1 : 0) && n > 1 ? n : 1;
        weight.stride[i] = stride;
    }
    CallArg w1 = c->arg[1];
    c->arg[1].t = &weight;
    bool ok = run_binary_op(c, PW_prelu, 0, 1, err);
    c->arg[1] = w1;
    return ok;
}

/* ------------------------------------------------------------------ creation */

bool run_full(Call *c, Err *err)
{
    Kind k = kind_of(call_out(c, 0)->dtype);
    Walk w = {.nin = 1, .in = {operand(&c->arg[1], k)}, .out = call_out(c, 0), .out_kind = k};
    return walk(&w, c->env->threads) || no_kernel(c, err);
}

/* base + i * step as ATen counts: half types in float, others in double */
static double counted(DType t, double base, double step, int64_t i)
{
    return dtype_size(t) == 2 ? (double)((float)base + (float)step * (float)i) : base + step * (double)i;
}

/* start + i * step. Integers in whole numbers: PyTorch cuts start and step before it counts. Floats as ATen's
 * vectors of 32 bytes hold them: each vector counts from its first element, which is rounded; the elements after the
 * last pair of vectors count from the start. */
bool run_arange(Call *c, Err *err)
{
    (void)err;
    Tensor *out = call_out(c, 0);
    int64_t n = tensor_numel(out);
    Scalar start = c->arg[0].s, step = c->arg[2].s;
    DType t = out->dtype;
    bool ints = !dtype_is_float(t);
    int64_t first = ints ? scalar_i64(start) : 0, by = ints ? scalar_i64(step) : 0;
    size_t size = dtype_size(t);
    int64_t lanes = 32 / (int64_t)size, whole = n / (2 * lanes) * (2 * lanes);
    double base = ints ? 0 : scalar_f64(start), begin = base;
    for (int64_t i = 0; i < n; i++) {
        void *p = (char *)out->data + (size_t)i * size;
        if (ints) {
            store_i64(t, p, (int64_t)((uint64_t)first + (uint64_t)i * (uint64_t)by));
            continue;
        }
        if (i < whole && i % lanes == 0) base = round_to(t, counted(t, begin, scalar_f64(step), i));
        store_f64(t, p, i < whole ? counted(t, base, scalar_f64(step), i % lanes)
                                  : counted(t, begin, scalar_f64(step), i));
    }
    return true;
}

bool run_linspace(Call *c, Err *err)
{
    (void)err;
    Tensor *out = call_out(c, 0);
    linspace_into(out->dtype, out->data, call_f64(c, 0), call_f64(c, 1), tensor_numel(out));
    return true;
}

bool run_eye(Call *c, Err *err)
{
    (void)err;
    Tensor *out = call_out(c, 0);
    memset(out->data, 0, tensor_bytes(out));
    for (int64_t i = 0; i < out->shape[0] && i < out->shape[1]; i++)
        store_i64(out->dtype, (char *)out->data + (size_t)(i * out->shape[1] + i) * dtype_size(out->dtype), 1);
    return true;
}

/* Row and column numbers of a triangle, row by row. */
static bool triangle_indices(Call *c, bool upper)
{
    Tensor *out = call_out(c, 0);
    int64_t rows = call_i64(c, 0), cols = call_i64(c, 1), offset = call_i64(c, 2), n = out->shape[1], at = 0;
    size_t size = dtype_size(out->dtype);
    for (int64_t r = 0; r < rows && at < n; r++) {
        int64_t from = upper ? r + offset : 0, to = upper ? cols : r + offset + 1;
        for (int64_t i = from < 0 ? 0 : from; i < (to < cols ? to : cols) && at < n; i++, at++) {
            store_i64(out->dtype, (char *)out->data + (size_t)at * size, r);
            store_i64(out->dtype, (char *)out->data + (size_t)(n + at) * size, i);
        }
    }
    return true;
}

bool run_triu_indices(Call *c, Err *err) { return (void)err, triangle_indices(c, true); }
bool run_tril_indices(Call *c, Err *err) { return (void)err, triangle_indices(c, false); }

static bool triangle(Call *c, bool upper, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t k = call_i64(c, 1), rows = out->shape[out->rank - 2], cols = out->shape[out->rank - 1],
            all = tensor_numel(out);
    size_t size = dtype_size(out->dtype);
    TRY(run_copy_tensor(out, call_in(c, 0), c->env->threads) || no_kernel(c, err));
    if (all == 0) return true;
    k = k < -rows ? -rows : k > cols ? cols : k; /* further away it makes no difference */
    for (int64_t r = 0; r < all / cols; r++) {
        int64_t edge = r % rows + k + (upper ? 0 : 1), from = upper ? 0 : edge,
                to = upper ? edge : cols; /* zero [from, to) */
        if (from < 0) from = 0;
        if (to > cols) to = cols;
        if (from < to) memset((char *)out->data + (size_t)(r * cols + from) * size, 0, (size_t)(to - from) * size);
    }
    return true;
}

bool run_triu(Call *c, Err *err) { return triangle(c, true, err); }
bool run_tril(Call *c, Err *err) { return triangle(c, false, err); }
