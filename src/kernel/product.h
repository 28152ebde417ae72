/* The inner kernels of matrix products: packing, one tile, its epilogue. src/kernel/gemm_packed.c puts products
 * together of them.
 *
 * c (M, N) = a (M, K) b (K, N). Rows of a are cut into tiles of at most `mr` rows, columns of b into panels of `nr`
 * columns, K into chunks of `chunk` elements:
 *     a packed: tile after tile, R * chunk elements to a chunk of a tile of R rows (R rounded up to `unit`), in the
 *               ISA level's order
 *     b packed: panel after panel, chunk * nr elements to a chunk, in the ISA level's order; columns and K padded with
 *               zeros. A panel has nr columns; the last one fewer, the one before it, too, where `evens` says so
 * `tile` multiplies one tile by one panel over n elements of K (whole chunks, but at the end of K) into mr x nr floats;
 * `finish` takes the floats through the epilogue into c. The order of the sums over K is the same for every row, tile
 * height and column.
 */
#ifndef QKV_KERNEL_PRODUCT_H
#define QKV_KERNEL_PRODUCT_H
#include "tensor/tensor.h"

/* act(acc + bias) + residual, or, `times`, act(acc + bias) * residual, or, `act_last`, act(acc + bias + residual).
 * Rows of c and residual are contiguous, their steps in elements; dtypes f32 or bf16, each its own. */
typedef struct ProductOut {
    void *c;
    const void *bias, *residual; /* NULL for none */
    DType c_type, bias_type, residual_type;
    int64_t c_step, residual_step;
    bool times, act_last;
    int act; /* GemmAct */
} ProductOut;

/* One operand as it is laid out in memory: element (i, j) at data + i * rs + j * cs. Rows and columns of the product's
 * own a (M, K) or b (K, N). `rounded`: f32 elements are rounded to bf16 first. */
typedef struct ProductIn {
    const void *data;
    DType dtype; /* f32 or bf16 */
    int64_t rs, cs;
    bool rounded;
} ProductIn;

/* A tile whose sums are complete: rows x cols of acc (step nr) go to c from (row, col) on, or, with `at`,
 * row r to row at[r] of c (-1: nowhere). */
typedef struct ProductDone {
    const ProductOut *out;
    const float *acc;
    const int64_t *at;
    int64_t row, col;
    int rows, cols;
} ProductDone;

enum { PRODUCT_FEW = 4, PRODUCT_SOON = 3 };

/* The operand that comes from L2 with each tile, and would push the other one out of L1. */
typedef enum ProductOnce { PRODUCT_NEITHER, PRODUCT_A, PRODUCT_B } ProductOnce;

/* Rows of memory: n of them, `step` bytes apart. */
typedef struct ProductRows {
    const char *at;
    int64_t step, n;
} ProductRows;

/* One call of a tile: acc (rows, nr) = [acc +] a b. a is packed, or (step > 0) its rows are where they are: row r of
 * the tile `step` bytes after row r - 1, K in runs of `run` elements (whole chunks) of which run i begins jump[i] bytes
 * after the row; the call takes n elements from `from` on. Whole units of rows are read. */
typedef struct ProductTile {
    float *acc;
    const void *a, *b;
    int64_t n; /* elements of K */
    int64_t step, run, from;
    const int64_t *jump;
    const ProductOut *into; /* NULL: sums go to acc. Else, cols of them, into its c from (row, col) on, with bias, ReLU
                               and residual, if there are any: all f32, or, where the kernel takes `halves`, bf16. Only
                               where the kernel is `straight` for so many columns */
    int64_t row, col;
    int count; /* tiles of as many rows, one after the other: `apart` bytes of a, mr x nr sums of acc from one to the
                  next. More than one only where the kernel is `straight` */
    int64_t apart;
    const ProductDone *done; /* another tile, to be finished meanwhile; NULL: none. Only where the kernel `overlaps` */
    int rows, cols;          /* columns from `cols` on need not be computed */
    bool add;
    ProductOnce once;
    int lines; /* cache lines to fetch from `ahead` on, each tile so many: the sliver of b that follows */
    const char *ahead;
    const void *next_a; /* the tile that follows the last one, about as large */
    ProductRows soon[PRODUCT_SOON]; /* what `finish` will touch, where the kernel `fetches`: of c, of the residual, or,
                                       `soon_far`, of the next tile's c, residual and a. Tile i of `count` begins
                                       i * n rows further */
    int soon_lines;                 /* of each row */
    bool soon_far;
} ProductTile;

typedef struct ProductKernel {
    const char *layout;            /* of packed b; NULL: this ISA level has no such kernel */
    int mr, unit, nr, chunk, size; /* size: bytes of a packed element, of b where a kernel widens */
    int64_t kc, nc,
        mc; /* blocking: elements of K a tile call takes at most (whole chunks), columns and rows a task takes */
    /* rows [row, row + rows) of a, all K, to `to` */
    void (*pack_a)(void *to, const ProductIn *a, int64_t row, int rows, int64_t K);
    /* NULL: no other way. Else the same rows as rows of floats, `step` bytes apart, for a whose rows are contiguous. */
    void (*line_a)(void *to, const ProductIn *a, int64_t row, int rows, int64_t K, int64_t step);
    /* NULL, or, of a kernel that packs a float's parts, rows of f32 as cells of a convolution, `step` bytes apart,
     * which `tile` reads where they are. */
    void (*cell_a)(void *to, const ProductIn *a, int64_t rows, int64_t K, int64_t step);
    /* a panel of b to `to`: columns [col, col + cols) */
    void (*pack_b)(void *to, const ProductIn *b, int64_t col, int cols, int64_t K);
    void (*tile)(const ProductTile *t);
    int few; /* rows that `beside` takes at most; 0: no `beside` here */
    /* A tile of product_beside(rows) panels or fewer, `apart` bytes from one to the next, all of K: sums of
     * each panel, `rows` of them, after those of the panel before. It fetches nothing of the next tile, and puts
     * nothing into c. */
    void (*beside)(const ProductTile *t, int panels, int64_t apart);
    /* NULL: `tile` takes b as it is packed. Else a is packed as f32 and b is not: `tile` takes slivers of b, n elements
     * of K, that `widen` has made f32 (in room for n + 1); `narrow` takes b as it is, for PRODUCT_FEW packed rows. */
    void (*widen)(float *to, const void *b, int64_t n);
    void (*narrow)(const ProductTile *t);
    /* before the first and after the last tile on a thread; NULL: nothing to do */
    void (*begin)(void);
    void (*end)(void);
    void (*finish)(const ProductDone *d);
    bool overlaps; /* `tile` finishes another one while it multiplies */
    bool fetches;  /* `tile` fetches the rows of `soon` as it goes: all at once they would wait for each other */
    /* `tile` takes whole lines of a at once, so that rows of any step may stay where they are. The others read them
     * word by word: lines that are a power of two apart would push each other out of L1. */
    bool in_place;
    int straight;  /* `tile` may put sums into c, a multiple of so many columns; 0: it does not */
    bool halves;   /* then c, bias and residual may be bf16 */
    bool plain;    /* panels are rows of `nr` floats, one for each element of K */
    int evens; /* a last panel that would have so many columns at most takes as many of the one before it. 0: it does
                   not */
} ProductKernel;

/* The first column of panel p of b (K, N); of p = ceil(N / nr), N. */
static inline int64_t product_column(const ProductKernel *k, int64_t N, int64_t p)
{
    int64_t col = p * k->nr, left = N - col;
    if (left <= 0) return N;
    return p && left <= k->evens ? col - k->evens : col;
}
static inline int product_columns(const ProductKernel *k, int64_t N, int64_t p)
{
    return (int)(product_column(k, N, p + 1) - product_column(k, N, p));
}

/* Panels that a tile of few rows, which waits for memory, reads side by side: processors fetch ahead a little of each
 * stream that they see, so that four of them come in half the time of one after the other. More would not. */
static inline int product_beside(int rows) { return rows == 1 ? 4 : rows == 2 ? 3 : 2; }

/* Bytes of a packed element of a. */
static inline int product_size_a(const ProductKernel *k) { return k->widen ? 4 : k->size; }

typedef struct ProductKernels {
    ProductKernel f32, bf16; /* a and b packed as f32, as bf16 (or b alone: `widen`); accumulation in f32 */
    ProductKernel
        f32_tiles; /* f32 too, for products much larger than packing both operands. No layout: not at this ISA level */
} ProductKernels;
#endif
