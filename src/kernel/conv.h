/* The inner kernels of convolutions: packing of weights, one tile of outputs, of the weights' gradient, depthwise rows,
 * columns made of lines, a row's share in the gradient of depthwise weights. src/kernel/gemm_taps.c, gemm_gradient.c,
 * gemm_depthwise.c and gemm_channels.c put convolutions and their gradients together of them.
 *
 * A tile is at most mr[w] outputs by a panel of width[w] output channels. Of each output it is told where its row of
 * the picture begins, and of each tap how far after that its channels are; nothing is unfolded. Weights are packed
 * panel after panel, in each tap after tap, in each tap [words of K][width], a word being a float or two bf16. The
 * sums over taps and K have one order for every tile height and panel.
 */
#ifndef QKV_KERNEL_CONV_H
#define QKV_KERNEL_CONV_H
#include "kernel/product.h"

enum { CONV_ROWS = 16, CONV_WIDTHS = 2, CONV_TAPS = 16 };

/* c[r] (cols) = act(sum over taps, words of row[r] + jump[tap] times b + at[tap], + bias [+ c[r]]) */
typedef struct ConvTile {
    const void *row[CONV_ROWS];
    void *c[CONV_ROWS];
    const void *b, *bias; /* bias: of the panel's first column; may be NULL */
    const int64_t *jump, *at; /* by tap: bytes after row[r]; floats of b before its weights */
    int64_t taps, words;      /* words of each tap */
    DType c_type, bias_type;
    bool sum; /* c is added to before the activation */
    int act;  /* GemmAct */
    int rows, cols;
    const char *ahead; /* to be fetched meanwhile: `pace` bytes each word */
    int64_t pace, c_ahead; /* and what is so many bytes after c */
} ConvTile;

/* c (rows, cols) = [c +] sum over lines of n positions of a (rows side by side) times x (cols side by side, whole
 * vectors); steps in elements, from line to line and from position to position. */
typedef struct GradientTile {
    const float *a, *x;
    float *c;
    int64_t lines, n, a_line, a_step, x_line, x_step, c_step;
    bool add;
    int rows, cols;
    const char *ahead; /* to be fetched meanwhile: `pace` bytes each position */
    int64_t pace;
} GradientTile;

typedef struct ConvKernel {
    int mr[CONV_WIDTHS], width[CONV_WIDTHS]; /* width 0: no such kernel */
    int size, per_word;                      /* bytes of a packed element; elements of a word */
    /* columns [col, col + cols) of b (K, N), all K, as [words][width]; what is missing is zero */
    void (*pack)(void *to, const ProductIn *b, int64_t K, int64_t col, int cols, int width);
    /* NULL, or the same for taps of f32 that lie within a line of words: tap t of element (k, j) is at[t] < CONV_TAPS
     * elements after it, and goes `apart` bytes after tap t - 1 */
    void (*pack_taps)(void *to, int64_t apart, const ProductIn *b, const int *at, int taps, int64_t K, int64_t col,
                      int cols, int width);
    void (*tile[CONV_WIDTHS])(const ConvTile *t);
    void (*gradient[CONV_WIDTHS])(const GradientTile *t); /* of as many rows and columns; NULL: no such kernel */
} ConvKernel;

/* A row of outputs of a depthwise convolution, channels innermost: output i, channel c is
 * act(sum over k < taps of x[tap[k] + i * step + c] * w[k * w_step + c], + bias[c] [+ y]), y i * y_step + c elements of
 * `type` after y: f32, bf16, or, of whole numbers without an ending, i32. Sums in the order of taps. line: taps come in
 * groups of so many that are `step` apart; or 0.
 * Then all cells before cell `first` of a row, and from `end` on, are zeros, which need not be multiplied: cells are
 * `step` apart, counted from the first that the first output's group begins at. */
typedef struct DepthwiseRun {
    const float *x, *w, *bias; /* bias may be NULL */
    void *y;
    const int64_t *tap;
    int64_t taps, n, step, w_step, y_step, channels;
    DType type;
    bool sum;
    int act, line;
    int64_t first, end;
} DepthwiseRun;

/* What a row of outputs gives to the gradient of taps side by side, channels innermost: sum[m * channels + c] += sum
 * over i < n of a[i * a_step + c] * x[i * x_step + m * tap_step + c] for m < line, in the order of i. a and x are of
 * `type`, steps in elements. */
typedef struct CorrelateRun {
    float *sum;
    const void *a, *x;
    int64_t n, a_step, x_step, tap_step, line, channels;
    DType type;
} CorrelateRun;

typedef struct ConvKernels {
    ConvKernel f32, bf16; /* cells packed as f32, as bf16 */
    void (*depthwise)(const DepthwiseRun *r);
    void (*correlate)(const CorrelateRun *r);
    /* to[j * C + c] = x[j * step + c] for j < n, c < C; x f32 or bf16 */
    void (*widen)(float *to, const void *x, DType t, int64_t step, int64_t n, int64_t C);
    /* the same of x - zero, x i8 or u8 */
    void (*whole)(float *to, const void *x, DType t, int zero, int64_t step, int64_t n, int64_t C);
    /* to[j * step + e] = from[e][j] for e < rows, j < n; elements of 4 or of 2 bytes, an odd number of the latter with
     * a zero after them */
    void (*columns_4)(void *to, int64_t step, const void *const *from, int rows, int64_t n);
    void (*columns_2)(void *to, int64_t step, const void *const *from, int rows, int64_t n);
} ConvKernels;
#endif
