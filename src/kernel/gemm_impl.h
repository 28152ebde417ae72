/* The ways of gemm.c, for tests and measurements that compare them. */
#ifndef QKV_KERNEL_GEMM_IMPL_H
#define QKV_KERNEL_GEMM_IMPL_H
#include "kernel/gemm.h"
#include "kernel/kernel.h"
#include "kernel/meeting.h"

/* Whether lines of `rows` rows, `step` bytes apart, that are read side by side leave room for others in an L1 of 64
 * sets of 8: few share a set. */
static inline bool rows_spread(int64_t step, int rows)
{
    enum { LINE_BYTES = 64, SETS = 64, MOST = 3 };
    int in[SETS] = {0};
    for (int r = 0; step > 0 && r < rows; r++)
        if (++in[r * step / LINE_BYTES % SETS] > MOST) return false;
    return step > 0;
}
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Own products. The layout of kernel k for weights; see kernel/product.h. */
typedef struct Packed Packed;
typedef struct PackedWeights PackedWeights;
PackedWeights *packed_weights_create(Err *err);
void packed_weights_free(PackedWeights *p);
size_t packed_weights_bytes(const PackedWeights *p);
/* NULL without an error: the ISA level has no kernel for it. */
Packed *packed_matmul(PackedWeights *p, const Kernels *k, const GemmMatmul *d, Err *err);
void packed_free(Packed *g);
size_t packed_scratch(const Packed *g);
bool packed_run(const Packed *g, const GemmBuffers *m, void *scratch, Err *err);
const ProductKernel *packed_kernel(const Kernels *k, const Tensor *b, bool rounded);
size_t packed_bytes(const ProductKernel *k, int64_t K, int64_t N);
void packed_pack(const ProductKernel *k, void *to, const Tensor *b, bool rounded, int threads);
void packed_mapped(PackedWeights *p, const void *file, size_t size);
bool packed_give(PackedWeights *p, const ProductKernel *k, const Tensor *b, bool rounded, const void *packed, Err *err);
/* Every weight once; bytes: packed for packed_kernel(k, b, rounded), whatever it is packed for here. */
void packed_each(const PackedWeights *p, const Kernels *k,
                 void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user);

/* b of windows (gemm.h), gemm_windows.c: where its rows, K from position `first` on, and its columns are, as elements
 * after its first. */
typedef struct Windows {
    int64_t K, N, *row, *col; /* col + N: how many columns from one on follow each other */
} Windows;
Windows *windows_of(const Tensor *windows, int along, int64_t first, int64_t K, Err *err);
void windows_free(Windows *w);
/* Rows [k, k + n), columns [col, col + cols) as rows `step` elements apart, elements of `size` bytes (2 or 4). */
void windows_take(const Windows *w, void *to, int64_t step, const void *from, size_t size, int64_t k, int64_t n,
                  int64_t col, int64_t cols);

/* A convolution's own: rows of cells, and the shifts that are its taps (gemm_conv.c). */
enum { MAX_TAPS = 81 };
typedef struct ConvRows {
    int64_t H, W, C, kh, kw, sh, sw, ph, pw, hout,
        wout;        /* of the picture, the window, its steps, the padding in front, the output */
    int64_t step[3]; /* of a picture's rows, columns, channels, in elements */
    const ConvKernels *kernels;
    void (*cells_of)(void *to, const ProductIn *a, int64_t rows, int64_t K, int64_t step); /* product.h's cell_a */
    DType from, to;  /* of pictures and of cells */
    bool plain;      /* pixels are rows as they are: no strip is needed */
    bool patches, stacked;
    int64_t K, taps; /* elements of a tap; taps */
    int64_t cell, line, pitch, positions, reach, super,
        cells; /* bytes of a cell and of a tap's line; rows of a picture's product; what a tap looks ahead; rows and
                  cells of a strip */
    int planes;
    int64_t plane[MAX_TAPS][2], jump[MAX_TAPS]; /* jump: of a tap, in bytes */
    int where[MAX_TAPS];
} ConvRows;
/* False: not made for it. */
bool conv_rows(ConvRows *r, const GemmConv *d, const Kernels *kernels, const ProductKernel *k);
/* The share of thread `self` in the strip for positions [first, first + rows) of picture x. */
void conv_rows_fill(const ConvRows *r, void *strip, const void *x, int64_t first, int64_t rows, int self, int threads);
/* The kernel that products of a convolution's rows of cells would take; NULL: there is none. */
const ProductKernel *packed_conv_kernel(const Kernels *k, const GemmConv *d);
/* Outputs channels-last, any picture, one group, not transposed, one or two spatial axes;
 * NULL without an error: another one. */
Packed *packed_conv(PackedWeights *p, const Kernels *k, const GemmConv *d, Err *err);
/* Whether windows of a transposed convolution lie side by side: then each place of the window (row by row) is a product
 * of its own, which packed_place makes. Pictures and outputs channels-last, one or two spatial axes. */
bool packed_places(const GemmConv *d);
Packed *packed_place(PackedWeights *p, const Kernels *k, const GemmConv *d, int64_t place, Err *err);

/* A packed weight's plain bytes, if they are the mapped file's, are not looked at any more. */
void packed_let_go(const PackedWeights *p, const void *from, size_t bytes);

/* Columns that a tile's time counts by: where there are two widths, the second is of four vectors. */
static inline int conv_vector(const ConvKernel *k) { return k->width[1] ? k->width[1] / 4 : k->width[0] / 2; }

/* The panel width that costs least: a panel takes as long as its vectors, one that has a single vector a third more. */
static inline int conv_width(const ConvKernel *k, int64_t N)
{
    int best = 0;
    int64_t least_cost = INT64_MAX;
    for (int i = 0; i < CONV_WIDTHS; i++) {
        if (!k->width[i]) continue;
        int vector = conv_vector(k);
        int64_t whole = N / k->width[i], vectors = ceil_div(N % k->width[i], vector),
                cost = 12 * (whole * (k->width[i] / vector) + vectors) + 4 * (vectors == 1);
        if (cost < least_cost) best = i, least_cost = cost;
    }
    return best;
}

/* Convolutions by tiles of kernel/conv.h (gemm_taps.c): outputs channels-last, weights contiguous; any picture. NULL
 * without an error: the ISA level has no kernel, or there are too many groups. Packed weights are the pool's. */
typedef struct Taps Taps;
typedef struct TapWeights TapWeights;
TapWeights *tap_weights_create(Err *err);
void tap_weights_free(TapWeights *p);
size_t tap_weights_bytes(const TapWeights *p);
Taps *tap_conv(TapWeights *pool, PackedWeights *packed, const Kernels *kernels, const GemmConv *d, Err *err);
void tap_conv_free(Taps *g);
size_t tap_conv_scratch(const Taps *g);
bool tap_conv_run(Taps *g, const GemmBuffers *m, void *scratch, Err *err);

/* Depthwise convolutions (gemm_depthwise.c): as many groups as channels in and out, outputs channels-last. NULL without
 * an error: another one. Of integers: x i8 or u8 and channels-last, w i8; what `ending` says is done with the sums, its
 * a.zero is x's (kernel/gemm_integer.h). */
struct IntegerMatmul;
typedef struct Depthwise Depthwise;
Depthwise *depthwise_conv(const Kernels *kernels, const GemmConv *d, Err *err);
void depthwise_free(Depthwise *g);
size_t depthwise_scratch(const Depthwise *g);
bool depthwise_run(const Depthwise *g, const GemmBuffers *m, const struct IntegerMatmul *ending, void *scratch,
                   Err *err);

/* Products of one row whose batch is innermost, channel by channel (gemm_channels.c): a (G, 1, K), b windows. NULL
 * without an error: another one. */
typedef struct Channels Channels;
Channels *channels_matmul(const Kernels *kernels, const GemmMatmul *d, Err *err);
void channels_free(Channels *g);
size_t channels_scratch(const Channels *g);
bool channels_run(const Channels *g, const GemmBuffers *m, void *scratch, Err *err);

/* The gradient of weights (gemm_gradient.c): products of float32 with windows, both operands read where they lie: rows
 * of a side by side, the channels that end the windows, too, and c small enough to stay near. NULL without an error:
 * another one. */
typedef struct Gradient Gradient;
Gradient *gradient_matmul(const Kernels *kernels, const GemmMatmul *d, Err *err);
void gradient_free(Gradient *g);
void gradient_run(const Gradient *g, const GemmBuffers *m);

/* Convolutions by loops: any of them. */
typedef struct Direct Direct;
Direct *direct_conv(const GemmConv *d, Err *err);
void direct_free(Direct *g);
size_t direct_scratch(const Direct *g);
bool direct_run(const Direct *g, const GemmBuffers *m, void *scratch, Err *err);

/* oneDNN, in builds that have it (QKV_ONEDNN): all dtypes equal (the bias may be f32), c and residual contiguous. */
typedef struct OneDnn OneDnn;
typedef struct OneDnnPool OneDnnPool;
OneDnnPool *onednn_pool_create(Err *err);
void onednn_pool_free(OneDnnPool *p);
size_t onednn_pool_bytes(const OneDnnPool *p);
OneDnn *onednn_matmul(OneDnnPool *p, const GemmMatmul *d, Err *err);
OneDnn *onednn_conv(OneDnnPool *p, const GemmConv *d, Err *err);
void onednn_free(OneDnn *g);
size_t onednn_scratch(const OneDnn *g);
bool onednn_run(OneDnn *g, const GemmBuffers *m, void *scratch, Err *err);
#endif
