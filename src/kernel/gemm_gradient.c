/* The gradient of a convolution's weights where the picture and the outputs' gradients lie, channels innermost: nothing
 * is packed, and no window is copied.
 *
 *     c[o, tap, channel] = sum over positions of a[o, position] * x[position + tap, channel]
 *
 * Some positions at a time, whose rows of both stay in L2, meet all tiles of c; the next ones are fetched meanwhile. An
 * element is summed in the order of positions, by one thread: each takes a range of the tiles.
 */
#include "base/mem.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

/* POSITIONS: that a tile takes at once. C_BYTES: of c that stay near while it is added to again and again. */
enum { WHOLE = 16 }; /* channels: whole vectors at every level, so that bits do not depend on it */
enum { POSITIONS = 256, BLOCK_BYTES = 512 << 10, C_BYTES = 1280 << 10, WORTH_THREADS = 1 << 20, MAX_THREADS = 1024 };

struct Gradient {
    const ConvKernel *k;
    int width, threads;
    int64_t groups, O, C, taps, *tap; /* tap: elements after the position's first */
    int axes;
    int64_t shape[MAX_RANK], stride[MAX_RANK]; /* of positions: outermost first, evenly spaced ones are one */
    int64_t a_group, a_step, x_group, c_group, c_step;
    int64_t lines, n; /* of a block, at most */
};

void gradient_free(Gradient *g)
{
    if (g) mem_free(g->tap);
    mem_free(g);
}

/* Axes [first, end) of t without those of one element, neighbours that are evenly spaced as one. */
static void positions_of(Gradient *g, const Tensor *t, int first, int end)
{
    for (int i = first; i < end; i++) {
        int last = g->axes - 1;
        if (t->shape[i] == 1) continue;
        if (last >= 0 && g->stride[last] == t->shape[i] * t->stride[i]) {
            g->shape[last] *= t->shape[i], g->stride[last] = t->stride[i];
            continue;
        }
        g->shape[g->axes] = t->shape[i], g->stride[g->axes++] = t->stride[i];
    }
    if (!g->axes) g->shape[0] = 1, g->stride[0] = 0, g->axes = 1;
}

static int64_t lines_of(const Gradient *g) { return g->axes > 1 ? g->shape[g->axes - 2] : 1; }
static int64_t line_of(const Gradient *g) { return g->axes > 1 ? g->stride[g->axes - 2] : 0; }
static int64_t length_of(const Gradient *g) { return g->shape[g->axes - 1]; }
static int64_t step_of(const Gradient *g) { return g->stride[g->axes - 1]; }
static int64_t tiles_of(const Gradient *g) { return ceil_div(g->O, g->k->mr[g->width]); }
static int64_t panels_of(const Gradient *g) { return ceil_div(g->C, g->k->width[g->width]); }

static bool taken(const Kernels *kernels, const GemmMatmul *d, int64_t C)
{
    const ConvKernel *k = &kernels->conv.f32;
    const Tensor *w = d->windows, *a = d->a, *c = d->c;
    bool floats = a->dtype == DT_F32 && w->dtype == DT_F32 && c->dtype == DT_F32 && !d->rounded;
    bool plain = !d->first && !d->bias && !d->residual && !d->act && c->rank == 3;
    return k->gradient[0] && floats && plain && C % WHOLE == 0 && w->stride[w->rank - 1] == 1 &&
           a->stride[1] == 1 && c->stride[2] == 1 && !kernels->product.f32_tiles.layout &&
           c->shape[1] * c->shape[2] * 4 <= C_BYTES;
}

Gradient *gradient_matmul(const Kernels *kernels, const GemmMatmul *d, Err *err)
{
    const Tensor *w = d->windows, *a = d->a, *c = d->c;
    if (!w || w->rank < 3 || 1 + d->along >= w->rank) return NULL;
    int64_t C = w->shape[w->rank - 1];
    if (!taken(kernels, d, C) || tensor_numel(c) == 0 || a->shape[2] == 0) return NULL;
    Gradient *g = mem_zeroed(1, sizeof *g);
    if (!g) return oom(err), NULL;
    g->k = &kernels->conv.f32;
    g->width = conv_width(g->k, C);
    g->groups = c->shape[0], g->O = c->shape[1], g->C = C, g->taps = c->shape[2] / C;
    g->a_group = a->stride[0], g->a_step = a->stride[2], g->x_group = w->stride[0];
    g->c_group = c->stride[0], g->c_step = c->stride[1];
    positions_of(g, w, 1, 1 + d->along);
    g->tap = mem_alloc((size_t)g->taps * sizeof *g->tap);
    if (!g->tap) return gradient_free(g), oom(err), NULL;
    for (int64_t i = 0; i < g->taps; i++) {
        int64_t rest = i;
        g->tap[i] = 0;
        for (int k = w->rank - 2; k > d->along; rest /= w->shape[k--]) g->tap[i] += rest % w->shape[k] * w->stride[k];
    }
    int64_t some = most(32, least(POSITIONS, BLOCK_BYTES / (4 * (g->C + g->O))));
    g->n = ceil_div(length_of(g), ceil_div(length_of(g), some));
    g->lines = g->n < length_of(g) ? 1 : most(1, least(lines_of(g), some / g->n));
    double work = 2.0 * (double)tensor_numel(c) * (double)a->shape[2];
    g->threads = work < WORTH_THREADS ? 1 : (int)least(team_width(), MAX_THREADS);
    return g;
}

/* A block of positions: of a group, from position `at` on. */
typedef struct Block {
    const float *a, *x, *next_a, *next_x;
    float *c;
    int64_t lines, n;
    bool add;
} Block;

/* Tiles [from, to) by the block's positions. The next block's a and x are fetched by a half of them each. */
static void block_run(const Gradient *g, const Block *b, int64_t from, int64_t to)
{
    int64_t tiles = tiles_of(g), panels = panels_of(g), width = g->k->width[g->width], half = most(1, (to - from) / 2),
            steps = half * b->lines * b->n, a_pace = b->lines * b->n * g->a_step * 4 / steps + 1,
            x_pace = (b->lines > 1 ? b->lines * line_of(g) : b->n * step_of(g)) * 4 / steps + 1;
    for (int64_t u = from; u < to; u++) {
        int64_t tile = u % tiles, panel = u / tiles % panels, tap = u / tiles / panels, row = g->O * tile / tiles,
                col = panel * width, done = (u - from) % half * b->lines * b->n;
        bool first = u - from < half;
        g->k->gradient[g->width](&(GradientTile){.a = b->a + row,
                                                 .x = b->x + g->tap[tap] + col,
                                                 .c = b->c + row * g->c_step + tap * g->C + col,
                                                 .lines = b->lines,
                                                 .n = b->n,
                                                 .a_line = length_of(g) * g->a_step,
                                                 .a_step = g->a_step,
                                                 .x_line = line_of(g),
                                                 .x_step = step_of(g),
                                                 .c_step = g->c_step,
                                                 .add = b->add,
                                                 .rows = (int)(g->O * (tile + 1) / tiles - row),
                                                 .cols = (int)least(width, g->C - col),
                                                 .ahead = first ? (const char *)b->next_x + done * x_pace
                                                                : (const char *)b->next_a + done * a_pace,
                                                 .pace = first ? x_pace : a_pace});
    }
}

/* Where the positions of outer number i begin in x. */
static int64_t outer_at(const Gradient *g, int64_t i)
{
    int64_t at = 0;
    for (int k = g->axes - 3; k >= 0; i /= g->shape[k--]) at += i % g->shape[k] * g->stride[k];
    return at;
}

/* Tiles [from, to) of a group. */
static void group_run(const Gradient *g, const float *a, const float *x, float *c, int64_t from, int64_t to)
{
    int64_t outer = 1, lines = lines_of(g), n = length_of(g);
    for (int k = 0; k + 2 < g->axes; k++) outer *= g->shape[k];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t l = 0, high; l < lines; l += high) {
            high = least(g->lines, lines - l);
            for (int64_t i = 0, wide; i < n; i += wide) {
                wide = least(g->n, n - i);
                Block b = {.a = a + ((o * lines + l) * n + i) * g->a_step,
                           .x = x + outer_at(g, o) + l * line_of(g) + i * step_of(g),
                           .c = c,
                           .lines = high,
                           .n = wide,
                           .add = o || l || i};
                b.next_a = b.a + high * wide * g->a_step;
                b.next_x = b.x + (i + wide < n ? wide * step_of(g) : high * line_of(g));
                block_run(g, &b, from, to);
            }
        }
}

void gradient_run(const Gradient *g, const GemmBuffers *m)
{
    int threads = (int)least(g->threads, team_width());
    int64_t units = g->taps * panels_of(g) * tiles_of(g);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int i = 0; i < threads; i++)
        for (int64_t group = 0; group < g->groups; group++)
            group_run(g, (const float *)m->a + group * g->a_group, (const float *)m->b + group * g->x_group,
                      (float *)m->c + group * g->c_group, units * i / threads, units * (i + 1) / threads);
}
