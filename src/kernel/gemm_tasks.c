/* Runs products that gemm_packed.c has planned: packing, tasks of tiles by panels, threads.
 *
 *     packed_run(g, &buffers, scratch, &err)       superblock by superblock: its rows are packed, then its tasks run
 */
#include "base/pages.h"
#include "kernel/gemm_packed.h"
#include "team/team.h"

/* FEW_BYTES: of rows that one thread packs. PIECE: lines that are fetched together. */
enum { FEW_BYTES = 32 << 10, MOST_ROWS = 32, PIECE = 4 };

/* One product of the batch, with its buffers. */
typedef struct Job {
    const Packed *g;
    ProductIn a;
    Weight b;
    ProductOut out;
    char *packed_a, *packed_b; /* packed_a: a superblock's packed rows, or the strip, or, of rows in place, a tile */
    const char *weight;        /* panels [first, end) of b */
    int64_t first, end;
    char *panels; /* b is packed as tasks need it: all its panels, if they are kept, else room for few_panels of each
                     thread */
    bool keep;
    int64_t row; /* first of the superblock */
    Rows rows;
    bool straight;          /* whole vectors of columns go from registers into c */
    bool ordered;           /* tile after tile meets all panels, and its rows of a, c and the residual are contiguous */
    int64_t blocks, groups; /* tasks: blocks of tiles by groups of panels */
} Job;

/* Rows of a matrix whose rows are `step` elements apart, from (row, col) on. */
static ProductRows rows_from(const void *matrix, DType t, int64_t step, int64_t row, int64_t col, int64_t rows)
{
    int64_t size = (int64_t)dtype_size(t);
    return (ProductRows){(const char *)matrix + (row * step + col) * size, step * size, rows};
}

/* Bytes of an element of c or of the residual. */
static int64_t widest(const ProductOut *o)
{
    return (int64_t)most((int64_t)dtype_size(o->c_type), o->residual ? (int64_t)dtype_size(o->residual_type) : 0);
}

static bool other_residual(const ProductOut *o) { return o->residual && o->residual != o->c; }

/* Rows of c and of the residual that finish will touch, which are far away. */
static void coming(const ProductOut *o, int64_t row, int64_t col, int rows, int cols, ProductTile *x)
{
    x->soon_lines = (int)ceil_div(cols * widest(o), ALIGN);
    x->soon[0] = rows_from(o->c, o->c_type, o->c_step, row, col, rows);
    if (other_residual(o))
        x->soon[1] = rows_from(o->residual, o->residual_type, o->residual_step, row, col, rows);
}

/* Part p of `parts` of a contiguous matrix's rows, `step` bytes each, from `row` on. */
static ProductRows pieces_of(const void *matrix, int64_t step, int64_t row, int64_t rows, int64_t p, int64_t parts)
{
    int64_t n = ceil_div(rows * step, PIECE * ALIGN), first = n * p / parts;
    return (ProductRows){(const char *)matrix + row * step + first * PIECE * ALIGN, PIECE * ALIGN,
                         n * (p + 1) / parts - first};
}

/* What the tile that follows will read and write, rows from `row` on, panel p's share of it. Line after line, because
 * processors fetch ahead, too, and see no order in rows of one panel each. */
static void coming_lines(const Job *j, int64_t row, int64_t rows, int64_t p, ProductTile *x)
{
    const ProductOut *o = &j->out;
    int64_t panels = j->g->panels, n = most(least(rows, j->row + j->rows.rows - row), 0);
    x->soon_lines = PIECE;
    x->soon[0] = pieces_of(o->c, o->c_step * (int64_t)dtype_size(o->c_type), row, n, p, panels);
    if (other_residual(o))
        x->soon[1] = pieces_of(o->residual, o->residual_step * (int64_t)dtype_size(o->residual_type), row, n, p,
                               panels);
    if (j->g->direct && j->g->K <= j->g->N) /* else it is read in order already, and little is written */
        x->soon[2] = pieces_of(j->a.data, j->g->row_step, row, n, p, panels);
}

/* Positions of a picture: those past the end of a row are none of c's. */
static void rows_of_positions(const ConvRows *v, int64_t position, int rows, int64_t *at)
{
    int64_t i = position / v->pitch, w = position % v->pitch;
    for (int r = 0; r < rows; r++) {
        at[r] = w < v->wout ? i * v->wout + w : -1;
        if (++w == v->pitch) w = 0, i++;
    }
}

static void rows_of_lines(const Packed *g, int64_t first, int rows, int64_t *at)
{
    int64_t i = first / g->line, j = first % g->line;
    for (int r = 0; r < rows; r++) {
        at[r] = i * g->line_step + j;
        if (++j == g->line) j = 0, i++;
    }
}

/* Those that c has follow each other: how many they are, and the first. */
static int rows_in_c(const int64_t *at, int rows, int64_t *first)
{
    int n = 0;
    for (int r = 0; r < rows; r++) {
        if (at[r] < 0) continue;
        if (!n++) *first = at[r];
    }
    return n;
}

static const char *panel_at(const Job *j, int64_t p) { return j->weight + panel_of(j->g) * (size_t)(p - j->first); }

/* What the panels after [p0, p1) will be packed from, where its bytes are side by side: a sliver's share of panel p's
 * successor. NULL: nowhere. */
static const char *source_ahead(const Job *j, int64_t p, int64_t few, int64_t at)
{
    const Packed *g = j->g;
    if (!j->panels || j->b.rs != 1 || j->b.cs != g->K) return NULL;
    return (const char *)j->b.from +
           ((least(p + few, g->panels - 1)) * g->K + at) * g->k->nr * (int64_t)dtype_size(j->b.dtype);
}

/* Rows of a that are read where they are, except at the end of a, after which there is no memory: a tile that is not a
 * whole number of units is packed. */
static bool lies(const Job *j, int64_t tile)
{
    return j->g->direct && (j->g->conv || j->g->lined || tile_at(&j->rows, tile + 1) <= j->rows.rows);
}

static const char *rows_at(const Job *j, int64_t row)
{
    return j->g->conv || j->g->lined ? j->packed_a + row * j->g->row_step
                                     : (const char *)j->a.data + (j->row + row) * j->g->row_step;
}

/* Where direct rows are the rule, there is room for one packed tile. */
static char *packed_at(const Job *j, int64_t tile, int64_t at)
{
    int64_t row = tile_at(&j->rows, tile), high = tile_at(&j->rows, tile + 1) - row;
    return j->packed_a + ((j->g->direct ? 0 : row * j->g->deep) + high * at) * product_size_a(j->g->k);
}

/* A tile of a: its first row in the superblock, its rows (whole units), where it begins, bytes between two elements of
 * K, as far as they are worth fetching. */
typedef struct Place {
    int64_t row;
    const char *a;
    int64_t step;
    int rows;
    bool lies;
} Place;

static Place place_of(const Job *j, int64_t tile)
{
    const Packed *g = j->g;
    int64_t row = tile_at(&j->rows, tile), rows = tile_at(&j->rows, tile + 1) - row, size = product_size_a(g->k);
    if (!lies(j, tile)) return (Place){row, packed_at(j, tile, 0), rows * size, (int)rows, false};
    return (Place){row, rows_at(j, row), g->conv ? 0 : size, (int)rows, true};
}

/* The tile that waits for its finish, and the one that is computed meanwhile. */
typedef struct Pair {
    ProductDone tile[2];
    int64_t at[2][MOST_ROWS];
    int turn;
    const ProductDone *waits;
} Pair;

/* Whether sums are results but for a bias, a residual and a ReLU, of dtypes that tiles take. */
static bool straight(const Packed *g, const ProductOut *o)
{
    bool tiles = g->k->straight && (!g->k->widen || g->widens);
    bool floats = o->c_type == DT_F32 && (!o->bias || o->bias_type == DT_F32) &&
                  (!o->residual || o->residual_type == DT_F32);
    bool plain = (o->act == GEMM_NONE || o->act == GEMM_RELU) && !(o->residual && o->times);
    return tiles && plain && (floats || g->k->halves);
}

static int columns(const Packed *g, int64_t panel) { return product_columns(g->k, g->N, panel); }

/* Whether so many columns go from registers into c. */
static bool vectors(const Job *j, int cols) { return j->straight && cols % j->g->k->straight == 0; }

/* Tiles from t on, up to `end`, that one call takes, by panel p, elements of K from `at` on: as many rows each, laid
 * out alike, and nothing to be done with their sums, which go into c or wait for the rest of K. */
static int64_t alike(const Job *j, const Place *t, const Place *end, int64_t p, int64_t at)
{
    const Packed *g = j->g;
    bool waits = at + g->kc < g->deep, into = vectors(j, columns(g, p)) && !g->conv && !g->line;
    int64_t n = 1;
    if (!g->k->straight || (g->k->widen && !g->widens) || (!waits && !into)) return 1;
    while (t + n < end && t[n].rows == t->rows && t[n].lies == t->lies) n++;
    return n;
}

/* The tiles at t by panel p, x->count of them, elements of K from `at` on. What to fetch meanwhile is set in x, and
 * where b's sliver is, unless it is taken as it is packed. */
static void multiply(const Job *j, Pair *pair, ProductTile *x, const Place *t, int64_t p, int64_t at)
{
    const Packed *g = j->g;
    const ProductKernel *k = g->k;
    ProductDone *d = &pair->tile[pair->turn];
    bool last = at + g->kc >= g->deep, fetches = k->fetches && (!k->widen || g->widens);
    if (!g->widens) x->b = panel_at(j, p) + at * k->nr * k->size;
    x->n = least(g->kc, g->deep - at);
    x->rows = t->rows;
    x->cols = columns(g, p);
    x->add = at > 0;
    x->step = 0;
    x->into = NULL;
    for (int i = 0; i < PRODUCT_SOON; i++) x->soon[i].n = 0;
    if (t->lies) {
        x->a = t->a;
        x->step = g->row_step;
        x->apart = t->rows * g->row_step;
        x->run = g->run;
        x->from = at;
        x->jump = g->jump;
    } else {
        x->n = least(x->n, g->K - at);
        x->a = t->a + at * t->step;
        x->apart = g->deep * t->step;
    }
    if (last) {
        int64_t row = j->row + t->row, col = product_column(k, g->N, p), *map = NULL;
        int rows = (int)least(t->rows, j->rows.rows - t->row), kept = rows;
        if (g->conv) rows_of_positions(g->conv, row, rows, map = pair->at[pair->turn]);
        else if (g->line) rows_of_lines(g, row, rows, map = pair->at[pair->turn]);
        *d = (ProductDone){&j->out, x->acc, map, row, col, rows, x->cols};
        if (map) kept = rows_in_c(map, rows, &row);
        if (kept == t->rows && vectors(j, x->cols) && (!map || map[rows - 1] == row + rows - 1))
            x->into = &j->out, x->row = row, x->col = col;
        rows = kept;
        if (j->ordered) coming_lines(j, row + rows, t->rows, p, x);
        else coming(&j->out, row, col, rows, x->cols, x);
    }
    for (int i = 0; i < PRODUCT_SOON && !fetches; i++)
        for (int64_t r = 0; r < x->soon[i].n; r++)
            for (int64_t b = 0; b < x->cols * 4; b += ALIGN)
                __builtin_prefetch(x->soon[i].at + r * x->soon[i].step + b, 1, 3);
    x->soon_far = j->ordered;
    x->done = pair->waits;
    k->widen && !g->widens ? k->narrow(x) : k->tile(x);
    pair->waits = last && k->overlaps ? d : NULL;
    if (last && k->overlaps) pair->turn = !pair->turn;
    if (last && !k->overlaps && !x->into) k->finish(d);
}

/* Tile t by panels [p0, p1), which are read side by side. */
static void few_rows(const Job *j, int64_t t, int64_t p0, int64_t p1, float *sums)
{
    const Packed *g = j->g;
    const ProductKernel *k = g->k;
    Place at = place_of(j, t);
    int rows = (int)least(at.rows, j->rows.rows - at.row);
    ProductTile x = {.acc = sums, .a = at.a, .n = g->K, .step = at.lies ? g->row_step : 0, .rows = at.rows};
    for (int64_t p = p0, n; p < p1; p += n) {
        n = least(product_beside(at.rows), p1 - p);
        x.b = panel_at(j, p);
        k->beside(&x, (int)n, (int64_t)panel_of(g));
        for (int64_t i = 0; i < n; i++)
            k->finish(&(ProductDone){&j->out, sums + i * at.rows * k->nr, NULL, j->row + at.row,
                                     product_column(k, g->N, p + i), rows, columns(g, p + i)});
    }
}

/* A tile of few rows that takes all of K at once. */
static bool is_few(const Job *j, int64_t t0, int64_t t1)
{
    const Packed *g = j->g;
    bool plain = t1 - t0 == 1 && g->kc >= g->deep && !g->conv && !g->line;
    return plain && tile_at(&j->rows, t1) - tile_at(&j->rows, t0) <= g->k->few;
}

/* Tiles [t0, t1) by panels [p0, p1). */
static void task(const Job *j, int64_t t0, int64_t t1, int64_t p0, int64_t p1, float *sums)
{
    if (is_few(j, t0, t1)) {
        few_rows(j, t0, p0, p1, sums);
        return;
    }
    const Packed *g = j->g;
    const ProductKernel *k = g->k;
    int64_t tile_size = k->mr * k->nr;
    float *wide = g->widens ? sums + g->wide : NULL;
    Pair pair = {.turn = 0};
    Place place[MOST_TILES];
    ProductTile x = {.b = wide}; /* once: to clear it for each tile takes a twentieth of a short one */
    for (int64_t t = t0; t < t1; t++) place[t - t0] = place_of(j, t);
    x.once = g->once;
    x.count = 1;
    for (int64_t t = t0; g->rows_first && t < t1; t++)
        for (int64_t p = p0; p < p1; p++) {
            x.acc = sums + pair.turn * tile_size;
            multiply(j, &pair, &x, &place[t - t0], p, 0);
        }
    for (int64_t at = 0; !g->rows_first && at < g->deep; at += g->kc) {
        bool last = at + g->kc >= g->deep, source = source_ahead(j, p0, 0, 0) != NULL;
        int64_t size = source ? (int64_t)dtype_size(j->b.dtype) : k->size;
        int each = (int)ceil_div(g->kc * k->nr * size / ALIGN, t1 - t0);
        for (int64_t p = p0; p < p1; p++) {
            const char *next = p + 1 < p1 ? panel_at(j, p + 1) + at * k->nr * k->size
                               : last     ? panel_at(j, least(p1, j->end - 1))
                                          : panel_at(j, p0) + (at + g->kc) * k->nr * k->size;
            const char *ahead = source ? source_ahead(j, p, p1 - p0, at) : next;
            if (wide) k->widen(wide, panel_at(j, p) + at * k->nr * k->size, least(g->kc, g->deep - at));
            float *acc = sums + (p - p0) * (t1 - t0) * tile_size;
            for (int64_t t = 0; t < t1 - t0; t += x.count, acc += x.count * tile_size) {
                x.count = (int)alike(j, &place[t], place + (t1 - t0), p, at);
                const Place *soon = t + x.count < t1 - t0 ? &place[t + x.count] : place;
                x.acc = g->kc < g->deep ? acc : sums + pair.turn * tile_size;
                x.lines = each;
                x.ahead = ahead + t * each * ALIGN;
                x.next_a = soon->a + (soon > place || p + 1 < p1 || last ? at : at + g->kc) * soon->step;
                multiply(j, &pair, &x, &place[t], p, at);
            }
        }
    }
    if (pair.waits) k->finish(pair.waits);
}

/* Lines that other threads have written come slowly: all of a piece at once, not as packing comes to them. */
static void ask_for_rows(const ProductIn *a, int64_t row, int rows, int64_t n)
{
    int64_t size = (int64_t)dtype_size(a->dtype);
    for (int r = 0; r < rows; r++)
        for (int64_t at = 0; at < n * size; at += ALIGN)
            __builtin_prefetch((const char *)a->data + (row + r) * a->rs * size + at, 0, 2);
}

/* Elements of K from `at` on, n of them: whole chunks, but at the end. */
static void pack_rows(const Job *j, int64_t tile, int64_t at, int64_t n)
{
    const Packed *g = j->g;
    int64_t row = tile_at(&j->rows, tile), end = tile_at(&j->rows, tile + 1);
    ProductIn a = j->a;
    if (!g->lined && lies(j, tile)) return;
    a.data = (const char *)a.data + at * a.cs * (int64_t)dtype_size(a.dtype);
    if (n < g->K && a.cs == 1) ask_for_rows(&a, j->row + row, (int)(least(end, j->rows.rows) - row), n);
    if (g->lined)
        g->k->line_a(j->packed_a + row * g->row_step + at * product_size_a(g->k), &a, j->row + row, (int)(end - row), n,
                     g->row_step);
    else g->k->pack_a(packed_at(j, tile, at), &a, j->row + row, (int)(least(end, j->rows.rows) - row), n);
}

/* How a superblock is cut into blocks of tiles by groups of panels. A tile by a panel costs two units; each tile and
 * each panel of a task, which come from other threads' caches, cost one; the thread that has most decides. Tasks that
 * pack panels as they come to them have panels of their own. */
static void cut(Job *j, int threads, bool packs_panels)
{
    enum { TRIES = 4 };
    const Packed *g = j->g;
    int64_t tiles = j->rows.tiles, fewest = g->rows_first ? 1 : ceil_div(g->panels, task_panels(g)), best = INT64_MAX;
    j->groups = g->rows_first ? 1 : least(round_up(fewest, threads), g->panels);
    j->blocks = most(ceil_div(tiles, task_tiles(g)), least(ceil_div(threads, j->groups), tiles));
    if (threads == 1 || packs_panels || g->rows_first) return;
    for (int64_t blocks = ceil_div(tiles, task_tiles(g)); blocks <= least(tiles, 2 * threads); blocks++)
        for (int64_t i = 0, each = ceil_div(fewest * blocks, threads); i < TRIES; i++) {
            int64_t groups = least(most(ceil_div((each + i) * threads, blocks), fewest), g->panels);
            int64_t high = ceil_div(tiles, blocks), wide = ceil_div(g->panels, groups),
                    cost = ceil_div(groups * blocks, threads) * (2 * high * wide + high + wide);
            if (cost >= best) continue;
            best = cost, j->groups = groups, j->blocks = blocks;
        }
}

/* Tasks [i, last), their panels packed here, once for all their blocks of tiles. */
static void pack_and_multiply(Job *j, int64_t i, int64_t last, float *sums)
{
    const Packed *g = j->g;
    int64_t few = few_panels(g);
    while (i < last) {
        int64_t x = i / j->blocks, y0 = i % j->blocks, y1 = least(j->blocks, y0 + last - i),
                end = g->panels * (x + 1) / j->groups;
        for (int64_t p0 = g->panels * x / j->groups, p1; p0 < end; p0 = p1) {
            p1 = least(p0 + few, end);
            if (!j->keep) j->first = p0, j->end = p1;
            for (int64_t p = p0; p < p1; p++)
                packed_weight_panel(&j->b, j->panels + panel_of(g) * (size_t)(p - j->first), p);
            for (int64_t y = y0; y < y1 && !team_stopped(); y++) /* kept panels are packed all the same */
                task(j, j->rows.tiles * y / j->blocks, j->rows.tiles * (y + 1) / j->blocks, p0, p1, sums);
        }
        i += y1 - y0;
    }
}

/* Tiles [t0, t1) of an a whose rows are side by side, some elements of K of all tiles before the next: a line of a has
 * rows of two tiles or three. */
static void pack_beside(const Job *j, int64_t t0, int64_t t1)
{
    enum { SOME = 16 };
    const Packed *g = j->g;
    int64_t each = round_up(SOME, g->k->chunk);
    ProductIn a = j->a;
    for (int64_t at = 0; at < g->K; at += each) {
        for (int64_t t = t0; t < t1; t++) {
            int64_t row = tile_at(&j->rows, t), end = tile_at(&j->rows, t + 1);
            g->k->pack_a(packed_at(j, t, at), &a, j->row + row, (int)(least(end, j->rows.rows) - row),
                         least(each, g->K - at));
        }
        a.data = (const char *)a.data + each * a.cs * (int64_t)dtype_size(a.dtype);
    }
}

/* Share `self` of `shares` of what is packed before a superblock is multiplied: b before the first, rows of a, in
 * pieces of K where tiles are few. */
static void pack_share(const Job *j, int self, int shares)
{
    enum { SHORTEST = 128 };
    const Packed *g = j->g;
    if (j->weight == j->packed_b && !j->row)
        for (int64_t p = g->panels * self / shares; p < g->panels * (self + 1) / shares; p++)
            packed_weight_panel(&j->b, j->packed_b + panel_of(g) * (size_t)p, p);
    if (g->conv) {
        conv_rows_fill(g->conv, j->packed_a, j->a.data, j->row, j->rows.rows, self, shares);
        return;
    }
    int64_t tiles = j->rows.tiles;
    if (!g->direct && j->a.rs == 1 && j->a.cs > 1) {
        pack_beside(j, tiles * self / shares, tiles * (self + 1) / shares);
        return;
    }
    int64_t pieces = shares == 1 || tiles >= 4 * shares ? 1 : ceil_div(4 * shares, tiles),
            each = round_up(most(ceil_div(g->K, pieces), SHORTEST), g->k->chunk);
    pieces = ceil_div(g->K, each);
    for (int64_t i = tiles * pieces * self / shares; i < tiles * pieces * (self + 1) / shares; i++)
        pack_rows(j, i / pieces, i % pieces * each, least(each, g->K - i % pieces * each));
}

/* Whether that is much: more than a few rows, or the last rows of an a that is read where it is. */
static bool packs(const Job *j)
{
    if ((j->weight == j->packed_b && !j->row) || j->g->conv) return true;
    return (j->g->lined || !j->g->direct) && j->rows.rows * j->g->deep * product_size_a(j->g->k) > FEW_BYTES;
}

static void pack_superblock(const Job *j, int threads)
{
    if (!packs(j)) threads = 1;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int i = 0; i < threads; i++) pack_share(j, i, threads);
}

/* Task i of the superblock: a block of a stays in L2 while b passes. */
static void numbered_task(const Job *j, int64_t i, float *sums)
{
    int64_t x = i % j->groups, y = i / j->groups, groups = j->groups, blocks = j->blocks;
    task(j, j->rows.tiles * y / blocks, j->rows.tiles * (y + 1) / blocks, j->g->panels * x / groups,
         j->g->panels * (x + 1) / groups, sums);
}

static void multiply_superblock(const Job *j, int threads, char *own, size_t each)
{
    const ProductKernel *k = j->g->k;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *sums = (float *)(void *)(own + each * (size_t)team_part());
        if (k->begin) k->begin();
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t i = 0; i < j->groups * j->blocks; i++) numbered_task(j, i, sums);
        if (k->end) k->end();
    }
}

/* Share i of the superblock's tasks, whose panels are packed on the way. */
static void pack_and_multiply_share(Job j, int i, int shares, float *sums)
{
    int64_t n = j.groups * j.blocks;
    if (!j.keep) j.weight = j.panels += panels_of(j.g) * (size_t)i;
    if (j.g->k->begin) j.g->k->begin();
    pack_and_multiply(&j, n * i / shares, n * (i + 1) / shares, sums);
    if (j.g->k->end) j.g->k->end();
}

/* A product by `threads` threads; own: sums of each thread. */
static void product(Job j, int threads, char *own, size_t each)
{
    const Packed *g = j.g;
    for (; j.row < g->M; j.row += g->super) {
        j.rows = rows_of(g->k, least(g->super, g->M - j.row));
        cut(&j, threads, j.panels);
        pack_superblock(&j, threads);
        if (!j.panels) multiply_superblock(&j, threads, own, each);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int i = 0; i < (j.panels ? threads : 0); i++)
            pack_and_multiply_share(j, i, threads, (float *)(void *)(own + each * (size_t)i));
    }
}

static Job job_of(const Packed *g, const GemmBuffers *m, int64_t item, char *shared)
{
    const Weight *w = g->weight >= 0 ? &g->pool->w[g->weight] : NULL;
    Job j = {.g = g,
             .a = g->a,
             .b = g->b,
             .out = g->out,
             .packed_a = shared,
             .packed_b = shared + space(g->a_bytes),
             .end = g->panels};
    int64_t at[4] = {0};
    for (int i = g->dims - 1; i >= 0; i--) {
        for (int k = 0; k < 4; k++) at[k] += item % g->shape[i] * g->step[i][k];
        item /= g->shape[i];
    }
    j.weight = w ? w->data : g->passing ? NULL : j.packed_b;
    if (g->passing) j.panels = j.packed_b;
    j.a.data = (const char *)m->a + at[0];
    j.b.from = w ? w->from : (const char *)m->b + at[1] + g->b_at;
    j.out.c = (char *)m->c + at[2] + g->c_at;
    j.out.bias = m->bias;
    j.out.residual = m->residual ? (const char *)m->residual + at[3] + g->c_at : NULL;
    j.straight = straight(g, &j.out);
    bool whole = j.out.c_step == g->N && (!j.out.residual || j.out.residual_step == g->N);
    j.ordered = g->rows_first && !g->conv && !g->line && whole && g->a.rs == g->K;
    return j;
}

/* Where a constant b is packed on the way, and whether it is kept there;
 * *to is NULL where it is packed already, or packed here. */
static bool prepare_weight(const Packed *g, int threads, char **to, bool *keeps, Err *err)
{
    Weight *w = g->weight >= 0 ? &g->pool->w[g->weight] : NULL;
    bool way = g->M <= g->super && g->batch == 1, first = w && !w->used;
    *to = NULL;
    if (!w || w->data) return true;
    w->used = true;
    *keeps = !way || !first;
    pages_soon(w->from, packed_weight_plain(w));
    TRY(*keeps ? packed_weight_keep(g->pool, w, err)
               : packed_weight_room(g->pool, panels_of(g) * (size_t)threads, err));
    Job j = {.g = g, .rows = rows_of(g->k, g->M)};
    cut(&j, threads, true);
    if (!*keeps) *to = g->pool->panels;
    else if (way && (threads == 1 || j.blocks == 1))
        *to = (char *)(uintptr_t)w->data; /* else two threads would write one panel */
    else packed_weight_all(w, (void *)(uintptr_t)w->data, team_width());
    return true;
}

bool packed_run(const Packed *g, const GemmBuffers *m, void *scratch, Err *err)
{
    size_t shared = space(g->a_bytes) + space(g->b_bytes), sums = space(g->sums_bytes);
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN),
         *own = base + (g->across ? shared * (size_t)g->threads : shared);
    int threads = (int)least(g->threads, team_width());
    char *panels;
    bool keeps = false;
    TRY(prepare_weight(g, threads, &panels, &keeps, err));
    if (g->across) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t i = 0; i < g->batch; i++) {
            size_t self = (size_t)team_part();
            product(job_of(g, m, i, base + shared * self), 1, own + sums * self, sums);
        }
    }
    for (int64_t i = 0; i < g->batch && !g->across; i++) {
        Job j = job_of(g, m, i, base);
        if (panels) j.panels = panels;
        j.keep = keeps;
        product(j, threads, own, sums);
    }
    if (keeps) packed_let_go(g->pool, g->pool->w[g->weight].from, packed_weight_plain(&g->pool->w[g->weight]));
    return true;
}
