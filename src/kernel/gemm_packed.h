/* What the parts of our own products share: weights (gemm_weights.c), plans (gemm_packed.c), tasks (gemm_tasks.c). */
#ifndef QKV_KERNEL_GEMM_PACKED_H
#define QKV_KERNEL_GEMM_PACKED_H
#include "base/lookup.h"
#include "kernel/gemm_impl.h"

/* FEW: bytes of panels that are packed together on the way; they, and what the next are made of, stay in L2. */
enum { ALIGN = 64, FEW = 300 << 10, MOST_TILES = 32 };

static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static inline size_t space(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* ------------------------------------------------------------------ weights */

/* b as a product takes it: one matrix (K, N) for each tap of a convolution, `apart` elements apart;
 * packed, they follow each other along K. */
typedef struct Weight {
    const void *from;
    const ProductKernel *kernel;
    DType dtype;
    bool rounded, owned;
    int64_t K, N, rs, cs, taps, apart;
    const Windows *windows; /* NULL: at strides */
    const void *data;       /* NULL: not packed so far */
    bool used;              /* by a product that packed it as it went */
    size_t bytes;
} Weight;

struct PackedWeights {
    Weight *w;
    int n;
    Lookup by_place; /* by all that says which weight it is, but for what it is packed for */
    size_t bytes; /* of those that are owned */
    void *panels; /* of first uses; given back when a weight is packed for keeps */
    size_t panels_size;
    const char *file; /* what weights are mapped from */
    size_t file_size;
};

static inline int64_t padded_k(const ProductKernel *k, int64_t K) { return round_up(K, k->chunk); }

Weight packed_weight_of(const ProductKernel *k, const Tensor *b, bool rounded);
void packed_weight_panel(const Weight *w, void *to, int64_t panel);
void packed_weight_all(const Weight *w, void *to, int threads);
/* Bytes from its first element to its last. */
size_t packed_weight_plain(const Weight *w);
/* Its number in the pool, whatever data it has; -1: not there. */
int packed_weight_find(const PackedWeights *p, const Weight *x);
/* Its number; -1 when out of memory. data: packed already, and the caller's; NULL: not packed so far. */
int packed_weight_add(PackedWeights *p, const Weight *x, const void *data, Err *err);
/* Memory for a weight that is packed for keeps; for n bytes of panels that are packed on the way. */
bool packed_weight_keep(PackedWeights *p, Weight *w, Err *err);
bool packed_weight_room(PackedWeights *p, size_t n, Err *err);

/* ------------------------------------------------------------------ a product with its sizes */

struct Packed {
    const ProductKernel *k;
    int64_t M, N, K, batch; /* K of a tap; a product that is not a convolution has one */
    int64_t run, deep;      /* packed: of a tap, of all; whole chunks */
    int dims;               /* batch dims, and the steps of a, b, c, residual in them, in bytes */
    int64_t shape[MAX_RANK], step[MAX_RANK][4];
    ProductIn a;
    Weight b;
    ProductOut out;
    PackedWeights *pool;
    int weight;           /* in the pool: b is constant; else -1 */
    const ConvRows *conv; /* owned; a's rows are made in a strip. NULL: they are in a */
    Windows *windows;     /* owned; NULL: b has strides */
    bool passing;         /* b is not constant, and large: panels are packed as tasks need them */
    bool lined;           /* a's rows are copied, made floats, `row_step` apart */
    bool direct;          /* tiles read rows: a's where they are, or those copies */
    bool rows_first;      /* a tile, which fits into L1, meets all panels before the next */
    ProductOnce once;     /* what tiles do not keep in L1 */
    int64_t row_step;     /* of rows that tiles read: bytes between them */
    const int64_t *jump;
    int threads;
    bool across;               /* threads take whole products of the batch; else they share each */
    int64_t panels, kc, super; /* super: rows of a superblock */
    int64_t line, line_step;   /* line > 0: rows of c come in lines of so many, so many of its rows apart */
    size_t c_at, b_at; /* bytes of c and the residual before the first; of a b that is not kept */
    size_t a_bytes, b_bytes, sums_bytes;
    bool widens;  /* slivers of b are made floats */
    int64_t wide; /* where, among the floats of sums */
};

/* Tiles of some rows: heights differ by one unit at most. */
typedef struct Rows {
    int64_t rows, units, tiles, low, higher; /* low: units of a tile; the first `higher` tiles have one more */
    int unit;
} Rows;

static inline Rows rows_of(const ProductKernel *k, int64_t rows)
{
    int64_t units = ceil_div(rows, k->unit), tiles = ceil_div(units, k->mr / k->unit);
    return (Rows){rows, units, tiles, tiles ? units / tiles : 0, tiles ? units % tiles : 0, k->unit};
}

static inline int64_t tile_at(const Rows *r, int64_t i) { return (i * r->low + least(i, r->higher)) * r->unit; }

/* Sums of a task wait for the rest of K: its most tiles and panels. */
static inline int64_t task_tiles(const Packed *g) { return most(1, g->k->mc / g->k->mr); }
static inline int64_t task_panels(const Packed *g) { return most(1, g->k->nc / g->k->nr); }

static inline size_t panel_of(const Packed *g) { return (size_t)(g->deep * g->k->nr * g->k->size); }
static inline int64_t few_panels(const Packed *g) { return most(1, FEW / (int64_t)panel_of(g)); }
static inline size_t panels_of(const Packed *g) { return space(panel_of(g) * (size_t)few_panels(g)); }
#endif
