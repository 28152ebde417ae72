/* Convolutions as products: how the rows of a are laid out. Used by gemm_packed.c.
 *
 * The padded picture is laid out as planes, one for each phase (row and column modulo the stride) that a tap wants:
 * cell (i, j) of plane (u, v) has the channels of pixel (i stride + u - padding, j stride + v - padding), zeros
 * outside. Cells are numbered along rows of `pitch`. The cell that a tap wants for output (i, j), position i pitch + j,
 * is a constant distance after that position: a row of the product is a row of cells, and every tap is the same rows,
 * shifted. Nothing is unfolded. Positions with j >= wout are computed and dropped. Rows follow each other so closely
 * that the padding after one is the padding in front of the next:
 *
 *     3 x 3, stride 1, padding 1, a picture of 4 x 4: pitch 5         . . . . .  . a b c d  . e f g h  . i j k l  ...
 *
 * Planes are made for a superblock of positions at a time (the strip), so that they come from L2.
 * Patches have one cell for each output instead, with all that the window sees, in the weight's order: where the stride
 * is as large as the window (the first layer of a vision transformer), or a tap's few channels would be mostly padding.
 * The latter are stacked where that is little more to multiply: a tap is all that one column of the window sees, and
 * a cell the columns of a step (the first layer of a ResNet: 21 elements in 32, seven taps, two columns in a cell).
 */
#include <string.h>
#include "kernel/gemm_impl.h"

enum {
    STRIP = 512 << 10,
    FEWEST = 512,
    APART = 2048,
    LINE = 64,
    PIECE = 16,
    TOGETHER = 32,
    LINES = 64,
    SOME = 256
};
/* STRIP, FEWEST: bytes of a strip that is wanted; positions it has at least. PIECE: bytes of a patch that are copied at
 * once, of TOGETHER patches, which L1 holds, before the next; channels that are turned at once. LINES: elements of a
 * stack at most, SOME columns of which are made at once. */

/* Columns of plane v that are in the picture: [first, end). */
static int64_t first_in(int64_t padding, int64_t v, int64_t stride)
{
    return padding > v ? ceil_div(padding - v, stride) : 0;
}
static int64_t end_in(int64_t size, int64_t padding, int64_t v, int64_t stride)
{
    return most(0, ceil_div(size + padding - v, stride));
}

static bool pointwise(const ConvRows *r) { return r->taps == 1 && r->sh == 1 && r->sw == 1 && !r->ph && !r->pw; }

/* The narrowest rows: a cell past the pitch is the next row's, and must be zero in both places. */
static int64_t pitch_of(const ConvRows *r, const int64_t *dilation)
{
    int64_t pitch = r->wout;
    for (int64_t k = 0; k < r->kw; k++) {
        int64_t at = k * dilation[1], v = at % r->sw,
                reach = r->wout + at / r->sw; /* cells [at / sw, reach) are wanted */
        int64_t first = first_in(r->pw, v, r->sw), end = end_in(r->W, r->pw, v, r->sw);
        pitch = most(pitch, reach - first);     /* they end before the next row's first pixel */
        pitch = most(pitch, least(end, reach)); /* and a row's last pixel is its own */
    }
    return pitch;
}

static int plane_of(ConvRows *r, int64_t u, int64_t v)
{
    for (int i = 0; i < r->planes; i++)
        if (r->plane[i][0] == u && r->plane[i][1] == v) return i;
    r->plane[r->planes][0] = u;
    r->plane[r->planes][1] = v;
    return r->planes++;
}

bool conv_rows(ConvRows *r, const GemmConv *d, const Kernels *kernels, const ProductKernel *k)
{
    static const int64_t none[2] = {0, 0}, one[2] = {1, 1};
    if (d->groups != 1 || d->transposed || d->spatial > 2 || !k || !tensor_channels_last(d->y)) return false;
    const Tensor *x = d->x, *w = d->w, *y = d->y;
    bool flat = d->spatial == 1; /* a picture of one row */
    const int64_t *stride = flat ? one : d->stride, *dilation = flat ? one : d->dilation,
                  *padding = flat ? none : d->padding;
    int64_t steps[2] = {flat ? 1 : stride[0], flat ? d->stride[0] : stride[1]},
            dilated[2] = {dilation[0], flat ? d->dilation[0] : dilation[1]};
    int last = x->rank - 1;
    *r = (ConvRows){.H = flat ? 1 : x->shape[2],
                    .W = x->shape[last],
                    .C = x->shape[1],
                    .kh = flat ? 1 : w->shape[2],
                    .kw = w->shape[last],
                    .sh = steps[0],
                    .sw = steps[1],
                    .ph = padding[0],
                    .pw = flat ? d->padding[0] : padding[1],
                    .hout = flat ? 1 : y->shape[2],
                    .wout = y->shape[last],
                    .from = x->dtype};
    r->kernels = &kernels->conv;
    r->cells_of = k->cell_a;
    r->to = product_size_a(k) == 2 ? DT_BF16 : DT_F32;
    r->step[0] = flat ? 0 : x->stride[2];
    r->step[1] = x->stride[last];
    r->step[2] = x->stride[1];
    bool last_axis = tensor_channels_last(x);
    bool apart = r->kh == r->sh && r->kw == r->sw && !r->ph && !r->pw, few = 2 * r->C < k->chunk && r->step[1] == 1;
    bool dense = dilated[0] == 1 && dilated[1] == 1, patches = dense && apart && (!last_axis || r->C < k->chunk);
    int64_t high = r->C * r->kh, stack = ceil_div(high, k->chunk) * k->chunk;
    few &= dense && !patches && r->kw > 1;
    r->stacked = few && r->from == r->to && high <= LINES && stack <= 2 * high &&
                 2 * stack * r->kw <= 3 * ceil_div(high * r->kw, k->chunk) * k->chunk;
    patches |= few && !r->stacked;
    r->patches = patches;
    r->K = patches ? high * r->kw : r->stacked ? high : r->C;
    r->taps = patches ? 1 : r->stacked ? r->kw : r->kh * r->kw;
    int64_t padded = ceil_div(r->K, k->chunk) * k->chunk;
    if (r->taps > MAX_TAPS || (r->from == DT_F32 && r->to == DT_BF16)) return false;
    if (r->cells_of && (patches || r->stacked || !last_axis || r->from != DT_F32)) return false;
    if (!r->K || padded > 2 * r->K) return false; /* mostly zeros: the first layer of a pyramid */
    for (int i = 0; i < 3; i++)                   /* axes of size 1 may have any stride */
        if ((int64_t[]){r->H, r->W, r->C}[i] == 1) r->step[i] = i == 2 ? 1 : r->C;
    r->plain = !patches && last_axis && pointwise(r);
    r->line = padded * (int64_t)product_size_a(k);
    r->cell = r->stacked ? r->sw * r->line : r->line;
    if (r->cell % APART == 0)
        r->cell += LINE; /* else the rows of a tile would all fall into the same few lines of L1 */
    r->pitch = patches || r->plain ? r->wout
               : r->stacked        ? r->wout - 1 + ceil_div(r->kw, r->sw)
                                   : pitch_of(r, dilated);
    if (patches || r->stacked) r->planes = 1;
    for (int64_t i = 0; r->stacked && i < r->taps; i++) {
        r->jump[i] = i / r->sw * r->cell + i % r->sw * r->line;
        r->reach = i / r->sw;
    }
    for (int64_t i = 0; !patches && !r->stacked && i < r->taps; i++) {
        int64_t at[2] = {i / r->kw * dilated[0], i % r->kw * dilated[1]},
                cells = at[0] / r->sh * r->pitch + at[1] / r->sw;
        r->where[i] = plane_of(r, at[0] % r->sh, at[1] % r->sw);
        r->jump[i] = cells * r->cell;
        r->reach = most(r->reach, cells);
    }
    int64_t positions = r->hout * r->pitch, unit = k->mr;
    r->super = least(most(FEWEST, STRIP / (r->cell * r->planes)), positions);
    r->super = ceil_div(r->super, unit) * unit;
    r->cells = r->super + r->reach + unit; /* whole units are read */
    for (int64_t i = 0; i < r->taps; i++) r->jump[i] += r->where[i] * r->cells * r->cell;
    r->positions = positions;
    return true;
}

/* ------------------------------------------------------------------ filling a strip */

/* n elements of x, `step` apart, to the strip's type. */
static void take(const ConvRows *r, char *to, const char *x, int64_t at, int64_t step, int64_t n)
{
    if (r->from == r->to && step == 1) memcpy(to, x + at * (int64_t)dtype_size(r->from), (size_t)n * dtype_size(r->to));
    else if (r->from == DT_F32)
        for (int64_t i = 0; i < n; i++) ((float *)(void *)to)[i] = ((const float *)(const void *)x)[at + i * step];
    else if (r->to == DT_BF16)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)to)[i] = ((const uint16_t *)(const void *)x)[at + i * step];
    else
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = bf16_to_f32(((const uint16_t *)(const void *)x)[at + i * step]);
}

/* Rows of n elements side by side, as columns of n lines that are `apart` bytes apart. */
static void turn(const ConvRows *r, char *to, int64_t apart, const void *const *from, int rows, int64_t n)
{
    int64_t size = (int64_t)dtype_size(r->to);
    (size == 2 ? r->kernels->columns_2 : r->kernels->columns_4)(to, apart / size, from, rows, n);
}

/* n pixels of a row, `step` elements apart, as cells. */
static void pixels(const ConvRows *r, char *to, const char *x, int64_t at, int64_t step, int64_t n)
{
    int64_t size = (int64_t)dtype_size(r->to), bytes = r->C * size;
    if (bytes == r->cell && step == r->C) {
        take(r, to, x, at, 1, n * r->C);
        return;
    }
    if (r->cells_of) {
        ProductIn in = {.data = x + at * size, .dtype = DT_F32, .rs = step, .cs = 1};
        r->cells_of(to, &in, n, r->C, r->cell);
        return;
    }
    bool turned = r->step[2] != 1 && step == 1 && r->from == r->to;
    for (int64_t c = 0; turned && c < r->C; c += TOGETHER) {
        const void *from[TOGETHER];
        int some = (int)least(TOGETHER, r->C - c);
        for (int i = 0; i < some; i++) from[i] = x + (at + (c + i) * r->step[2]) * size;
        turn(r, to + c * size, r->cell, from, some, n);
    }
    for (int64_t i = 0; i < n; i++, to += r->cell, at += step) {
        if (!turned) take(r, to, x, at, r->step[2], r->C);
        memset(to + bytes, 0, (size_t)(r->cell - bytes));
    }
}

/* What one window sees of a row of the picture from column `left` on: zeros outside. */
static void line_seen(const ConvRows *r, char *to, const char *x, int64_t at, int64_t left)
{
    int64_t size = (int64_t)dtype_size(r->to), in = least(r->kw, most(0, -left)),
            out = most(in, least(r->kw, r->W - left));
    memset(to, 0, (size_t)(in * size));
    take(r, to + in * size, x, at + (left + in) * r->step[1], r->step[1], out - in);
    memset(to + out * size, 0, (size_t)((r->kw - out) * size));
}

/* What the window of the output in row i, column j sees. */
static void patch(const ConvRows *r, char *to, const char *x, int64_t i, int64_t j)
{
    char *end = to + r->cell;
    int64_t top = i * r->sh - r->ph, left = j * r->sw - r->pw, bytes = r->kw * (int64_t)dtype_size(r->to);
    for (int64_t c = 0; c < r->C; c++)
        for (int64_t y = top; y < top + r->kh; y++, to += bytes)
            if (y < 0 || y >= r->H) memset(to, 0, (size_t)bytes);
            else line_seen(r, to, x, c * r->step[2] + y * r->step[0], left);
    memset(to, 0, (size_t)(end - to));
}

/* The same of outputs [j, end) of row i, by pieces: what is too much of a line is written over by the next line, and
 * must not reach the next patch. */
static void whole_patches(const ConvRows *r, char *to, const char *x, int64_t i, int64_t j, int64_t end)
{
    static const char zeros[PIECE] = {0};
    int64_t top = i * r->sh - r->ph, size = (int64_t)dtype_size(r->to), bytes = r->kw * size;
    char *line = to;
    for (int64_t c = 0; c < r->C; c++)
        for (int64_t y = top; y < top + r->kh; y++, line += bytes)
            for (int64_t part = 0; part < bytes; part += PIECE) {
                bool in = y >= 0 && y < r->H;
                const char *from = in ? x + (c * r->step[2] + y * r->step[0] + j * r->sw - r->pw) * size + part : zeros;
                int64_t step = in ? r->sw * size : 0;
                char *at = line + part;
                size_t room = (size_t)(to + r->cell - at);
                if (room < PIECE)
                    for (int64_t k = j; k < end; k++, at += r->cell, from += step) memcpy(at, from, room);
                else
                    for (int64_t k = j; k < end; k++, at += r->cell, from += step) memcpy(at, from, PIECE);
            }
    for (int64_t k = j; k < end; k++, line += r->cell) memset(line, 0, (size_t)(r->cell - r->K * size));
}

/* Cells [begin, end) of a strip of patches, the strip's first being position `first`. Outputs [in, out) of a row see
 * nothing to the picture's left and right, even by whole pieces. */
static void fill_patches(const ConvRows *r, char *strip, const char *x, int64_t first, int64_t begin, int64_t end)
{
    int64_t size = (int64_t)dtype_size(r->to), wide = ceil_div(r->kw * size, PIECE) * PIECE / size,
            in = ceil_div(r->pw, r->sw), out = (r->W + r->pw - wide) / r->sw + 1;
    bool whole = r->from == r->to && r->step[1] == 1 && r->W + r->pw >= wide;
    for (int64_t at = begin, n; at < end && first + at < r->positions; at += n) {
        int64_t i = (first + at) / r->wout, j = (first + at) % r->wout, left = least(end - at, r->wout - j);
        bool pieces = whole && j >= in && j < out;
        n = pieces ? least(least(left, out - j), TOGETHER) : 1;
        if (pieces) whole_patches(r, strip + at * r->cell, x, i, j, j + n);
        else patch(r, strip + at * r->cell, x, i, j);
    }
}

/* n columns of pixels from column `left` on, all of them in the picture, as those of row i of outputs see them. */
static void stack(const ConvRows *r, char *to, const char *x, int64_t i, int64_t left, int64_t n)
{
    static const char zeros[SOME * sizeof(float)] = {0};
    int64_t size = (int64_t)dtype_size(r->to), high = r->C * r->kh, top = i * r->sh - r->ph;
    const void *from[LINES];
    for (int64_t at = 0, some; at < n; at += some, to += some * r->line) {
        some = least(n - at, SOME);
        for (int64_t e = 0; e < r->line / size; e++) {
            int64_t y = top + e % r->kh;
            bool in = e < high && y >= 0 && y < r->H;
            from[e] = in ? x + (e / r->kh * r->step[2] + y * r->step[0] + left + at) * size : zeros;
        }
        turn(r, to, r->line, from, (int)(r->line / size), some);
    }
}

/* Cells [begin, end) of a strip of stacks. */
static void fill_stacks(const ConvRows *r, char *strip, const char *x, int64_t first, int64_t begin, int64_t end)
{
    for (int64_t at = begin, n; at < end; at += n) {
        int64_t i = (first + at) / r->pitch, j = (first + at) % r->pitch, left = j * r->sw - r->pw;
        n = least(end - at, r->pitch - j);
        int64_t wide = n * r->sw, zeros = i < r->hout ? least(wide, most(0, -left)) : wide,
                data = most(0, least(wide, r->W - left) - zeros), rest = wide - zeros - data;
        char *to = strip + at * r->cell;
        memset(to, 0, (size_t)(zeros * r->line));
        if (data) stack(r, to + zeros * r->line, x, i, left + zeros, data);
        memset(to + (zeros + data) * r->line, 0, (size_t)(rest * r->line));
    }
}

/* Cells [begin, end) of plane p, the strip's first being position `first`. */
static void fill_plane(const ConvRows *r, char *strip, const char *x, int p, int64_t first, int64_t begin, int64_t end)
{
    int64_t u = r->plane[p][0], v = r->plane[p][1], in = first_in(r->pw, v, r->sw),
            out = least(r->pitch, end_in(r->W, r->pw, v, r->sw));
    for (int64_t at = begin; at < end;) {
        int64_t q = first + at, i = q / r->pitch, j = q % r->pitch, n = least(end - at, r->pitch - j),
                y = i * r->sh + u - r->ph;
        char *to = strip + (p * r->cells + at) * r->cell;
        int64_t zeros = y < 0 || y >= r->H || in >= out ? n : least(n, most(0, in - j)),
                data = zeros == n ? 0 : most(0, least(n, out - j) - zeros);
        memset(to, 0, (size_t)(zeros * r->cell));
        if (data)
            pixels(r, to + zeros * r->cell, x, y * r->step[0] + ((j + zeros) * r->sw + v - r->pw) * r->step[1],
                   r->sw * r->step[1], data);
        memset(to + (zeros + data) * r->cell, 0, (size_t)((n - zeros - data) * r->cell));
        at += n;
    }
}

void conv_rows_fill(const ConvRows *r, void *strip, const void *x, int64_t first, int64_t rows, int self, int threads)
{
    int64_t cells = r->patches ? rows : rows + r->reach, begin = cells * self / threads,
            end = cells * (self + 1) / threads;
    for (int p = 0; !r->patches && !r->stacked && p < r->planes; p++) fill_plane(r, strip, x, p, first, begin, end);
    int64_t after = (r->cells - r->super - r->reach) * r->cell; /* NaN there would be summed again */
    for (int p = 0; r->cells_of && self == threads - 1 && p < r->planes; p++)
        memset((char *)strip + (p * r->cells + cells) * r->cell, 0, (size_t)after);
    if (r->stacked) fill_stacks(r, strip, x, first, begin, end);
    if (r->patches) fill_patches(r, strip, x, first, begin, end);
}
