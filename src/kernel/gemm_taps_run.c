/* Runs convolutions by taps that gemm_taps.c has planned: strips are filled, blocks of outputs go to threads.
 *
 *     tap_conv_run(g, &buffers, scratch, &err)     part by part, or all parts together, panel by panel
 */
#include <string.h>
#include "kernel/gemm_taps.h"
#include "team/team.h"

/* ------------------------------------------------------------------ filling a strip */

/* What is filled: outputs [row, row + rows) x [col, col + cols) along axes 1 and 2, at `depth` along axis 0. */
typedef struct Block {
    const Taps *g;
    const Part *p;
    const char *x;
    char *y, *strip;
    const char *b, *bias; /* b: from panel `first` on */
    int64_t panel, first; /* bytes of a panel */
    int64_t depth, row, rows, col, cols;
} Block;

static const char *pixel(const Block *b, int64_t at) { return b->x + at * (int64_t)dtype_size(b->g->type); }

/* n elements, `step` apart, to the kernel's type. */
static void take(const Block *b, char *to, int64_t at, int64_t step, int64_t n)
{
    const char *x = pixel(b, at);
    bool half = b->g->type == DT_BF16;
    if (b->g->k->size == 2)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)(void *)to)[i] = ((const uint16_t *)(const void *)x)[i * step];
    else if (half)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = bf16_to_f32(((const uint16_t *)(const void *)x)[i * step]);
    else
        for (int64_t i = 0; i < n; i++) ((float *)(void *)to)[i] = ((const float *)(const void *)x)[i * step];
}

static bool same_type(const Taps *g) { return g->type == (g->k->size == 2 ? DT_BF16 : DT_F32); }

/* n cells from `to` on, of C channels of a row's pixels from element `at` on. */
static void pixels(const Block *b, char *to, int64_t at, int64_t n)
{
    const Taps *g = b->g;
    int64_t step = g->xs[2], cell = b->p->cell, bytes = g->C * g->k->size;
    if ((g->xc == 1 || g->C == 1) && same_type(g)) {
        if (bytes == cell && step == g->C) memcpy(to, pixel(b, at), (size_t)(n * bytes));
        else
            for (int64_t j = 0; j < n; j++, to += cell, at += step) {
                memcpy(to, pixel(b, at), (size_t)bytes);
                if (g->C % g->k->per_word) memset(to + bytes, 0, (size_t)g->k->size);
            }
        return;
    }
    if (g->xc == 1 && g->k->size == 4) {
        int64_t together = bytes == cell ? n : 1;
        for (int64_t j = 0; j < n; j += together, to += cell, at += step)
            g->all->widen((float *)(void *)to, pixel(b, at), g->type, step, together, g->C);
        return;
    }
    if (g->xc == 1 || step != 1 || !same_type(g)) {
        for (int64_t j = 0; j < n; j++, to += cell, at += step) {
            take(b, to, at, g->xc, g->C);
            if (g->C % g->k->per_word) memset(to + bytes, 0, (size_t)g->k->size);
        }
        return;
    }
    for (int64_t c = 0; c < g->C; c += LINES) {
        const void *from[LINES];
        int some = (int)least(LINES, g->C - c);
        for (int i = 0; i < some; i++) from[i] = pixel(b, at + (c + i) * g->xc);
        if (g->k->size == 2) g->all->columns_2(to + c * 2, cell / 2, from, some, n);
        else g->all->columns_4(to + c * 4, cell / 4, from, some, n);
    }
}

/* Lines of a column of windows side by side, which are turned; those beside the picture are zeros. */
static void turn_columns(const Block *b, char *to, int64_t first, int64_t top, int lines, int64_t n)
{
    enum { MOST = 256 };
    static const char zeros[MOST * sizeof(float)] = {0};
    const Taps *g = b->g;
    const Axis *a = &b->p->a[1];
    int64_t size = g->k->size, cell = b->p->cell;
    const void *from[FEW_CHANNELS * MOST_ROWS];
    for (int64_t at = 0; at < n; at += MOST) {
        for (int e = 0; e < lines; e++) {
            int64_t y = top + e % a->taps * a->gap;
            bool in = y >= 0 && y < a->in;
            from[e] = in ? pixel(b, first + e / a->taps * g->xc + y * g->xs[1] + at) : zeros;
        }
        (size == 2 ? g->all->columns_2 : g->all->columns_4)(to + at * cell, cell / size, from, lines,
                                                            least(MOST, n - at));
    }
}

/* n cells of columns of windows: those of row `top` of the windows, pixels from column `left` on. */
static void columns(const Block *b, char *to, int64_t plane, int64_t top, int64_t left, int64_t n)
{
    const Taps *g = b->g;
    const Axis *a = &b->p->a[1];
    int64_t size = g->k->size, cell = b->p->cell, lines = g->C * a->taps, first = plane + left * g->xs[2];
    if (g->xs[2] == 1 && same_type(g) && lines <= FEW_CHANNELS * MOST_ROWS) {
        turn_columns(b, to, first, top, (int)lines, n);
        return;
    }
    for (int64_t j = 0; j < n; j++, to += cell, first += g->xs[2]) {
        for (int64_t e = 0; e < lines; e++) {
            int64_t y = top + e % a->taps * a->gap;
            if (y >= 0 && y < a->in) take(b, to + e * size, first + e / a->taps * g->xc + y * g->xs[1], 1, 1);
            else memset(to + e * size, 0, (size_t)size);
        }
        if (lines % g->k->per_word) memset(to + lines * size, 0, (size_t)size);
    }
}

/* n bytes, which are known to be few and at least 4: moves instead of a call. */
static inline void move(char *to, const char *from, int64_t n)
{
    if (n < 16) {
        for (int64_t i = 0; i + 2 <= n; i += 2) memcpy(to + i, from + i, 2);
        return;
    }
    for (int64_t i = 0; i + 16 <= n; i += 16) memcpy(to + i, from + i, 16);
    memcpy(to + n - 16, from + n - 16, 16);
}

/* n runs of `bytes`, `apart` bytes from each other, to cells. */
static void runs(char *to, int64_t cell, const char *from, int64_t apart, int64_t bytes, int64_t n)
{
    if (bytes == 16)
        for (int64_t j = 0; j < n; j++) memcpy(to + j * cell, from + j * apart, 16);
    else if (bytes == 8)
        for (int64_t j = 0; j < n; j++) memcpy(to + j * cell, from + j * apart, 8);
    else
        for (int64_t j = 0; j < n; j++) move(to + j * cell, from + j * apart, bytes);
}

/* A row of cells that are windows: C x taps of axis 1 runs of those of axis 2. */
static void windows(const Block *b, char *to, int64_t plane, int64_t top)
{
    const Taps *g = b->g;
    const Axis *a = &b->p->a[1], *c = &b->p->a[2];
    int64_t size = g->k->size, bytes = c->taps * size, cell = b->p->cell, left = b->col * c->step + c->low, j = 0;
    bool whole = same_type(g) && left >= 0 && left + (b->cols - 1) * c->step + c->taps <= c->in;
    for (int64_t line = 0; line < g->C * a->taps; line++, to += bytes) {
        int64_t y = top + line % a->taps * a->gap, at = plane + line / a->taps * g->xc + y * g->xs[1];
        bool in = y >= 0 && y < a->in;
        if (in && whole) {
            runs(to, cell, pixel(b, at + left), c->step * size, bytes, b->cols);
            continue;
        }
        for (j = 0; j < b->cols; j++) {
            int64_t from = left + j * c->step, first = most(0, -from), end = least(c->taps, c->in - from);
            memset(to + j * cell, 0, (size_t)bytes);
            if (in && first < end) take(b, to + j * cell + first * size, at + from + first, 1, end - first);
        }
    }
    for (j = 0; j < b->cols && b->p->K % g->k->per_word; j++) memset(to + j * cell, 0, (size_t)size);
}

static void fill(const Block *b)
{
    const Part *p = b->p;
    const Axis *d = &p->a[0], *r = &p->a[1], *c = &p->a[2];
    int64_t left = b->col * c->step + lowest(c), n = (b->cols - 1) * c->step + span(c),
            zeros = least(n, most(0, -left)), data = most(0, least(n, c->in - left) - zeros);
    int64_t rows = p->cells == PIXELS ? (b->rows - 1) * r->step + span(r) : b->rows;
    for (int64_t t = 0; t < d->taps; t++) {
        int64_t z = b->depth * d->step + d->low + t * d->gap, plane = z * b->g->xs[0];
        for (int64_t i = 0; i < rows; i++) {
            char *to = b->strip + (t * p->slab + i * p->pitch) * p->cell;
            int64_t y = p->cells == PIXELS ? b->row * r->step + lowest(r) + i : (b->row + i) * r->step + r->low;
            bool out = z < 0 || z >= d->in || (p->cells == PIXELS && (y < 0 || y >= r->in));
            if (out || (p->cells != WINDOWS && !data)) {
                memset(to, 0, (size_t)((p->cells == WINDOWS ? b->cols : n) * p->cell));
                continue;
            }
            if (p->cells == WINDOWS) {
                windows(b, to, plane, y);
                continue;
            }
            memset(to, 0, (size_t)(zeros * p->cell));
            if (p->cells == PIXELS)
                pixels(b, to + zeros * p->cell, plane + y * b->g->xs[1] + (left + zeros) * b->g->xs[2], data);
            else columns(b, to + zeros * p->cell, plane, y, left + zeros, data);
            memset(to + (zeros + data) * p->cell, 0, (size_t)((n - zeros - data) * p->cell));
        }
    }
}

/* ------------------------------------------------------------------ running */

/* The tiles of a block's outputs, region after region. */
typedef struct Walk {
    const Region *next, *end;
    int64_t row, col, cols; /* of the block's part of the region */
    int64_t tiles, low, higher, i, first;
} Walk;

static Walk walk_of(const Part *p) { return (Walk){.next = p->region, .end = p->region + p->regions}; }

/* Where the rows of the walk's tile begin, and their results. */
static void rows_of(const Block *b, const Walk *w, ConvTile *t)
{
    const Taps *g = b->g;
    const Part *p = b->p;
    int64_t i = w->row + w->first / w->cols, j = w->first % w->cols, size = g->k->size,
            out = (int64_t)dtype_size(g->type), row, col, at[2];
    const Axis *r = &p->a[1], *c = &p->a[2];
    const char *from;
    if (p->cells == IN_PLACE) {
        from = b->x +
               (b->depth * p->a[0].step * g->xs[0] + b->row * r->step * g->xs[1] + b->col * c->step * g->xs[2]) * size;
        row = r->step * g->xs[1] * size, col = c->step * g->xs[2] * size;
    } else {
        from = b->strip;
        row = (p->cells == PIXELS ? r->step : 1) * p->pitch * p->cell;
        col = (p->cells == WINDOWS ? 1 : c->step) * p->cell;
    }
    from += w->col * col;
    char *to = b->y + ((p->a[0].first + b->depth * p->a[0].every) * g->ys[0] +
                       (r->first + b->row * r->every) * g->ys[1] +
                       (c->first + (b->col + w->col) * c->every) * g->ys[2]) *
                          out;
    at[0] = r->every * g->ys[1] * out, at[1] = c->every * g->ys[2] * out;
    for (int k = 0; k < t->rows; k++) {
        t->row[k] = from + i * row + j * col;
        t->c[k] = to + i * at[0] + j * at[1];
        if (++j == w->cols) j = 0, i++;
    }
}

/* The next region that the block has outputs of. */
static bool next_region(const Block *b, Walk *w, ConvTile *t)
{
    const Part *p = b->p;
    for (; w->next < w->end; w->next++) {
        const Region *r = w->next;
        int64_t row = most(r->row, b->row), rows = least(r->row + r->rows, b->row + b->rows) - row,
                col = most(r->col, b->col), cols = least(r->col + r->cols, b->col + b->cols) - col;
        if (rows <= 0 || cols <= 0) continue;
        w->next++;
        w->row = row - b->row, w->col = col - b->col, w->cols = cols;
        w->tiles = ceil_div(rows * cols, b->g->k->mr[p->w.width]);
        w->low = rows * cols / w->tiles, w->higher = rows * cols % w->tiles;
        w->i = w->first = 0;
        t->jump = r->jump, t->at = r->at, t->taps = r->taps, t->words = r->words;
        return true;
    }
    return false;
}

/* The next tile of at most mr outputs, those of a region of about the same height. */
static bool next_tile(const Block *b, Walk *w, ConvTile *t)
{
    if (w->i == w->tiles && !next_region(b, w, t)) return false;
    t->rows = (int)(w->low + (w->i < w->higher));
    rows_of(b, w, t);
    w->i++, w->first += t->rows;
    return true;
}

/* A tile of a block's outputs by panel q. What to fetch meanwhile is set in t. */
static void tile_run(const Block *b, ConvTile *t, int64_t q)
{
    const Taps *g = b->g;
    const TapWeight *w = &b->p->w;
    int width = g->k->width[w->width];
    t->b = b->b + (q - b->first) * b->panel;
    t->cols = (int)least(width, g->O - q * width);
    if (b->bias) t->bias = b->bias + q * width * (int64_t)dtype_size(g->bias_type);
    g->k->tile[w->width](t);
}

/* Words of all taps that the tiles of a block take from a panel. */
static int64_t words_of_tiles(const Block *b)
{
    int64_t words = 0;
    ConvTile t;
    for (Walk w = walk_of(b->p); next_region(b, &w, &t);) words += w.tiles * t.taps * t.words;
    return words;
}

static void columns_on(ConvTile *t, int64_t bytes)
{
    for (int r = 0; r < t->rows; r++) t->c[r] = (char *)t->c[r] + bytes;
}

/* Panels [p0, p1) of a block: a tile meets all panels before the next where they stay in L2, else a panel all tiles. */
static void block_run(const Block *b, int64_t p0, int64_t p1)
{
    const Taps *g = b->g;
    const Part *p = b->p;
    int64_t width = g->k->width[p->w.width] * (int64_t)dtype_size(g->type);
    ConvTile t;
    t.bias = NULL, t.bias_type = g->bias_type, t.c_type = g->type;
    t.sum = g->sum, t.act = g->act, t.c_ahead = 0;
    if (b->panel * (p1 - p0) <= B_WHOLE) {
        for (Walk w = walk_of(p); next_tile(b, &w, &t);) {
            columns_on(&t, p0 * width);
            t.c_ahead = t.rows > 1 && t.c[1] > t.c[0] ? t.rows * ((char *)t.c[1] - (char *)t.c[0]) : 0;
            t.ahead = (const char *)t.row[t.rows - 1] + (p->cells == IN_PLACE ? p->words * 4 : 0);
            t.pace = p->cells == IN_PLACE ? t.rows * 4 : 0; /* the next tile's rows, whose pixels follow */
            for (int64_t q = p0; q < p1; q++, columns_on(&t, width), t.pace = 0) tile_run(b, &t, q);
        }
        return;
    }
    int64_t words = most(1, words_of_tiles(b)), line = g->xc == 1 ? p->a[1].step * g->xs[1] : 0;
    for (int64_t q = p0; q < p1; q++) { /* tiles fetch the next panel, then the picture's rows after the block's */
        bool more = q + 1 < p1;
        t.ahead = more ? b->b + (q + 1 - b->first) * b->panel : pixel(b, (b->row + b->rows) * line);
        t.pace = ceil_div(more ? b->panel : b->rows * line * (int64_t)dtype_size(g->type), words);
        for (Walk w = walk_of(p); next_tile(b, &w, &t); t.ahead += t.pace * t.taps * t.words) {
            columns_on(&t, q * width);
            tile_run(b, &t, q);
        }
    }
}

/* Panels [p0, p1) of a block, packed to `room` one after the other. */
static void pack_and_run(Block *b, const void *from, char *room, int64_t p0, int64_t p1)
{
    for (int64_t q = p0; q < p1 && !team_stopped(); q++) {
        tap_pack_panel(&b->p->w, from, room, q);
        b->b = room, b->first = q;
        block_run(b, q, q + 1);
    }
}

/* A part's weights: packed, or (NULL) what they are packed from on the way, and where the thread's panels go. */
typedef struct Packing {
    const char *packed, *from;
    char *panels;
} Packing;

/* Block number `at` of a part. */
static Block block_at(const Taps *g, const Part *p, const GemmBuffers *m, int64_t at, char *strip)
{
    int64_t out = (int64_t)dtype_size(g->type), c = at % p->col_cuts, r = at / p->col_cuts % p->row_cuts,
            rest = at / p->col_cuts / p->row_cuts, image = rest / p->a[0].out;
    Block b = {.g = g, .p = p, .strip = strip, .panel = panel_bytes(&p->w), .depth = rest % p->a[0].out};
    if (m->bias) b.bias = (const char *)m->bias + p->y_at / g->yc * (int64_t)dtype_size(g->bias_type);
    b.x = (const char *)m->a + (image * g->xn + p->x_at) * out;
    b.y = (char *)m->c + (image * g->yn + p->y_at) * out;
    b.row = cut_at(p->a[1].out, r, p->row_cuts), b.rows = cut_at(p->a[1].out, r + 1, p->row_cuts) - b.row;
    b.col = cut_at(p->a[2].out, c, p->col_cuts), b.cols = cut_at(p->a[2].out, c + 1, p->col_cuts) - b.col;
    return b;
}

/* What thread `self` of `threads` does of a part: units, one after the other, of a panel of a block each. */
static void share(const Taps *g, const Part *p, const GemmBuffers *m, const Packing *w, char *strip, int self,
                  int threads)
{
    int64_t held = -1, panels = panels_of(&p->w), end = tap_share_at(g, p, self + 1, threads);
    for (int64_t i = tap_share_at(g, p, self, threads), n; i < end && !team_stopped(); i += n) {
        int64_t at = i / panels, p0 = i % panels;
        n = least(panels - p0, end - i);
        Block b = block_at(g, p, m, at, strip);
        b.b = w->packed;
        if (p->cells != IN_PLACE && at != held) fill(&b);
        held = at;
        if (w->packed) block_run(&b, p0, p0 + n);
        else pack_and_run(&b, w->from, w->panels + space(g->panel) * (size_t)self, p0, p0 + n);
    }
}

static void run_part(const Taps *g, const Part *p, const GemmBuffers *m, char *base, int threads)
{
    const char *from = p->weight >= 0 ? NULL : (const char *)m->b + (uintptr_t)p->w.from;
    char *strips_at = base + space(g->changing);
    int64_t panels = panels_of(&p->w);
    Packing w = {.packed = p->weight >= 0 ? g->pool->w[p->weight].data : p->passing ? NULL : base,
                 .from = from,
                 .panels = strips_at + strips(g) + space(bias_bytes(g))};
    if (from && w.packed) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t i = 0; i < panels; i++) tap_pack_panel(&p->w, from, base + i * panel_bytes(&p->w), i);
    }
    if (threads == 1) {
        share(g, p, m, &w, strips_at, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    share(g, p, m, &w, strips_at + g->strips * (size_t)team_part(), team_part(), team_parts());
}

/* What thread `self` of `threads` does of parts that take turns: a panel of each, which come from the same lines of the
 * weights, before the next. */
static void share_together(const Taps *g, const GemmBuffers *m, char *strip, char *panel, int self, int threads)
{
    bool filled[MOST_PARTS] = {false};
    int64_t n = g->parts * panels_of(&g->part[0].w);
    for (int64_t i = n * self / threads; i < n * (self + 1) / threads; i++) {
        int number = (int)(i % g->parts);
        const Part *p = &g->part[number];
        Block b = block_at(g, p, m, 0, strip);
        for (int k = 0; k < number; k++) b.strip += space(g->part[k].strip);
        if (p->cells != IN_PLACE && !filled[number]) fill(&b);
        filled[number] = true;
        pack_and_run(&b, (const char *)m->b + (uintptr_t)p->w.from, panel, i / g->parts, i / g->parts + 1);
    }
}

static void run_together(const Taps *g, const GemmBuffers *m, char *base, int threads)
{
    char *strips_at = base + space(g->changing), *panels = strips_at + strips(g) + space(bias_bytes(g));
#pragma omp parallel num_threads(threads) if (threads > 1)
    share_together(g, m, strips_at + g->strips * (size_t)team_part(), panels + space(g->panel) * (size_t)team_part(),
                   team_part(), team_parts());
}

bool tap_conv_run(Taps *g, const GemmBuffers *m, void *scratch, Err *err)
{
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN);
    int threads = (int)least(g->threads, team_width());
    GemmBuffers folded = *m;
    if (m->bias && g->fold) {
        size_t n = (size_t)g->fold * dtype_size(g->bias_type);
        char *to = base + space(g->changing) + strips(g);
        folded.bias = to;
        for (size_t at = 0; at < bias_bytes(g); at += n) memcpy(to + at, m->bias, n);
        m = &folded;
    }
    for (int i = 0; i < g->parts; i++)
        if (g->part[i].weight >= 0) TRY(tap_keep(g, &g->pool->w[g->part[i].weight], err));
    if (g->together) run_together(g, m, base, threads);
    for (int i = 0; i < g->parts && !g->together; i++) run_part(g, &g->part[i], m, base, threads);
    return true;
}
