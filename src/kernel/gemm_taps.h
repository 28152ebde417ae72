/* What planning (gemm_taps.c, gemm_regions.c) and running (gemm_taps_run.c) convolutions by taps share. */
#ifndef QKV_KERNEL_GEMM_TAPS_H
#define QKV_KERNEL_GEMM_TAPS_H
#include "base/lookup.h"
#include "kernel/gemm_axes.h"

/* B_WHOLE: bytes of weights that stay in L2. */
enum { ALIGN = 64, FEW_CHANNELS = 8, MOST_PARTS = 256, MOST_ROWS = 16, LINES = 64, B_WHOLE = 384 << 10 };

typedef enum Cells { IN_PLACE, PIXELS, COLUMNS, WINDOWS } Cells;

/* Weights of a part, packed. */
typedef struct TapWeight {
    const void *from;
    const ConvKernel *kernel;
    DType dtype;
    int width; /* of kernel->width */
    int64_t K, N, rs, cs, n[AXES], apart[AXES];
    int64_t fold, fold_apart; /* columns of a place, from place to place; fold 0: all columns are cs apart */
    char *data;               /* NULL: not packed so far, or not constant */
} TapWeight;

/* Outputs [row, row + rows) x [col, col + cols) of a part, along axes 1 and 2, whose windows see the same taps. */
typedef struct Region {
    int64_t row, rows, col, cols;
    int64_t taps, words;      /* words of each tap */
    const int64_t *jump, *at; /* by tap: bytes after an output's own place, floats of a panel before its weights */
} Region;

/* Axes along which outputs that see other taps are regions of their own. */
typedef struct Split {
    bool rows, cols;
} Split;

typedef struct Part {
    Axis a[AXES];
    Cells cells;
    Split split;
    int64_t K, words;          /* of a tap of the weights */
    int64_t cell, pitch, slab; /* bytes; cells of a row, of a slab (axis 0) of the strip */
    int64_t rows, cols;        /* outputs of a block at most, along axes 1 and 2 */
    int64_t row_cuts, col_cuts; /* blocks along them */
    int64_t x_at, y_at;        /* elements: the group's first channels */
    Region *region;
    int64_t *jumps; /* of all regions */
    int regions;
    size_t strip;              /* bytes */
    TapWeight w;               /* not constant: `from` is its offset in the weights */
    int weight;                /* constant: its number in the pool, else -1 */
    bool passing;              /* not constant, and used by one block: panels are packed as it comes to them */
} Part;

struct TapWeights {
    TapWeight *w;
    int n;
    Lookup by_place;
    size_t bytes;
};

struct Taps {
    TapWeights *pool;
    PackedWeights *packed; /* which knows the file that weights are mapped from */
    const ConvKernel *k;
    const ConvKernels *all;
    int64_t batch, C, O, outputs;               /* C, O of a group; outputs: what all images have */
    int64_t xs[AXES], xc, xn, ys[AXES], yc, yn; /* elements */
    int64_t fold, fold_apart; /* of weights */
    DType type, bias_type;
    bool sum, constant;
    int act, threads;
    Part *part;
    int parts;
    size_t strip, changing; /* bytes: the largest strip; packed weights that are not constant, or a panel of them */
    size_t panel, strips;   /* bytes: the largest panel of those that are packed on the way; a thread's strips */
    bool together;          /* all parts are passing: they take turns, panel by panel, and each has a strip */
};

static inline int64_t panels_of(const TapWeight *w) { return ceil_div(w->N, w->kernel->width[w->width]); }
static inline int64_t taps_of(const TapWeight *w) { return w->n[0] * w->n[1] * w->n[2]; }
static inline int64_t words_of(const TapWeight *w) { return ceil_div(w->K, w->kernel->per_word); }
static inline int64_t tap_bytes(const TapWeight *w) { return words_of(w) * w->kernel->width[w->width] * 4; }
static inline int64_t panel_bytes(const TapWeight *w) { return taps_of(w) * tap_bytes(w); }

/* To `to`, where the panel is to be. */
void tap_pack_panel(const TapWeight *w, const void *from, char *to, int64_t panel);
/* Packed once, at the first run. */
bool tap_keep(Taps *g, TapWeight *w, Err *err);
/* The split into regions that takes the fewest cycles, of cells that are pixels, in place or not. */
Split tap_split(const Part *p);
/* Whether no region's windows leave the picture. */
bool tap_regions_within(const Part *p);
/* Makes the part's regions. */
bool tap_regions(const Taps *g, Part *p, Err *err);
/* The unit that share `self` of `shares` begins with. */
int64_t tap_share_at(const Taps *g, const Part *p, int64_t self, int64_t shares);

/* Where cut i of n things begins. */
static inline int64_t cut_at(int64_t n, int64_t i, int64_t cuts) { return n * i / cuts; }
static inline size_t space(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }
static inline size_t strips(const Taps *g) { return g->strips * (size_t)g->threads; }
/* The bias of every column, where places are columns. */
static inline size_t bias_bytes(const Taps *g) { return g->fold ? (size_t)g->O * dtype_size(g->bias_type) : 0; }
#endif
