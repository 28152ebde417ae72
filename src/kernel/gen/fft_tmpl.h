/* Fourier transforms for one type T; names end in NAME(). Included by gen/fft.c.
 *
 * A group of lanes lines is held as real parts and imaginary parts apart, element j of lane i at [j * lanes + i]. An
 * inverse transform is a forward one with real and imaginary parts exchanged.
 */

typedef struct NAME(Split) {
    T *re, *im;
} NAME(Split);
#define Split NAME(Split)

/* A stage takes s-element columns x[j + m r] (r < radix) to y[radix j + k] (k < radix): a transform of length radix,
 * then the roots w[j][k]. s: product of lanes and the radices so far; m: length of what remains. */
static void NAME(stage2)(int64_t s, int64_t m, Split x, Split y, const T *w)
{
    for (int64_t j = 0; j < m; j++, w += 2) {
        const T *restrict ar = x.re + j * s, *restrict ai = x.im + j * s, *restrict br = ar + m * s,
                          *restrict bi = ai + m * s;
        T *restrict yr = y.re + 2 * j * s, *restrict yi = y.im + 2 * j * s, c = w[0], d = w[1];
        for (int64_t q = 0; q < s; q++) {
            T er = ar[q] - br[q], ei = ai[q] - bi[q];
            yr[q] = ar[q] + br[q];
            yi[q] = ai[q] + bi[q];
            yr[q + s] = er * c - ei * d;
            yi[q + s] = er * d + ei * c;
        }
    }
}

static void NAME(stage3)(int64_t s, int64_t m, Split x, Split y, const T *w)
{
    const T half = (T)0.5, root = (T)0.86602540378443864676;
    for (int64_t j = 0; j < m; j++, w += 4) {
        const T *restrict ar = x.re + j * s, *restrict ai = x.im + j * s;
        T *restrict yr = y.re + 3 * j * s, *restrict yi = y.im + 3 * j * s;
        int64_t b = m * s, c = 2 * m * s;
        for (int64_t q = 0; q < s; q++) {
            T tr = ar[q + b] + ar[q + c], ti = ai[q + b] + ai[q + c];
            T dr = root * (ai[q + b] - ai[q + c]), di = root * (ar[q + c] - ar[q + b]);
            T mr = ar[q] - half * tr, mi = ai[q] - half * ti;
            T fr = mr + dr, fi = mi + di, gr = mr - dr, gi = mi - di;
            yr[q] = ar[q] + tr;
            yi[q] = ai[q] + ti;
            yr[q + s] = fr * w[0] - fi * w[1];
            yi[q + s] = fr * w[1] + fi * w[0];
            yr[q + 2 * s] = gr * w[2] - gi * w[3];
            yi[q + 2 * s] = gr * w[3] + gi * w[2];
        }
    }
}

static void NAME(stage4)(int64_t s, int64_t m, Split x, Split y, const T *w)
{
    for (int64_t j = 0; j < m; j++, w += 6) {
        const T *restrict ar = x.re + j * s, *restrict ai = x.im + j * s;
        T *restrict yr = y.re + 4 * j * s, *restrict yi = y.im + 4 * j * s;
        int64_t b = m * s, c = 2 * m * s, d = 3 * m * s;
        for (int64_t q = 0; q < s; q++) {
            T pr = ar[q] + ar[q + c], pi = ai[q] + ai[q + c], mr = ar[q] - ar[q + c], mi = ai[q] - ai[q + c];
            T tr = ar[q + b] + ar[q + d], ti = ai[q + b] + ai[q + d];
            T ur = ai[q + b] - ai[q + d], ui = ar[q + d] - ar[q + b]; /* -i (b - d) */
            T er = mr + ur, ei = mi + ui, fr = pr - tr, fi = pi - ti, gr = mr - ur, gi = mi - ui;
            yr[q] = pr + tr;
            yi[q] = pi + ti;
            yr[q + s] = er * w[0] - ei * w[1];
            yi[q + s] = er * w[1] + ei * w[0];
            yr[q + 2 * s] = fr * w[2] - fi * w[3];
            yi[q + 2 * s] = fr * w[3] + fi * w[2];
            yr[q + 3 * s] = gr * w[4] - gi * w[5];
            yi[q + 3 * s] = gr * w[5] + gi * w[4];
        }
    }
}

static void NAME(stage5)(int64_t s, int64_t m, Split x, Split y, const T *w)
{
    const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410, s1 = (T)0.95105651629515357212,
            s2 = (T)0.58778525229247312917;
    for (int64_t j = 0; j < m; j++, w += 8) {
        const T *restrict ar = x.re + j * s, *restrict ai = x.im + j * s;
        T *restrict yr = y.re + 5 * j * s, *restrict yi = y.im + 5 * j * s;
        int64_t b = m * s;
        for (int64_t q = 0; q < s; q++) {
            T pr = ar[q + b] + ar[q + 4 * b], pi = ai[q + b] + ai[q + 4 * b];
            T qr = ar[q + 2 * b] + ar[q + 3 * b], qi = ai[q + 2 * b] + ai[q + 3 * b];
            T ur = ai[q + b] - ai[q + 4 * b], ui = ar[q + 4 * b] - ar[q + b]; /* -i (b - e) */
            T vr = ai[q + 2 * b] - ai[q + 3 * b], vi = ar[q + 3 * b] - ar[q + 2 * b];
            T er = ar[q] + c1 * pr + c2 * qr, ei = ai[q] + c1 * pi + c2 * qi;
            T fr = ar[q] + c2 * pr + c1 * qr, fi = ai[q] + c2 * pi + c1 * qi;
            T gr = s1 * ur + s2 * vr, gi = s1 * ui + s2 * vi, hr = s2 * ur - s1 * vr, hi = s2 * ui - s1 * vi;
            yr[q] = ar[q] + pr + qr;
            yi[q] = ai[q] + pi + qi;
            T kr = er + gr, ki = ei + gi, lr = fr + hr, li = fi + hi;
            yr[q + s] = kr * w[0] - ki * w[1];
            yi[q + s] = kr * w[1] + ki * w[0];
            yr[q + 2 * s] = lr * w[2] - li * w[3];
            yi[q + 2 * s] = lr * w[3] + li * w[2];
            lr = fr - hr, li = fi - hi, kr = er - gr, ki = ei - gi;
            yr[q + 3 * s] = lr * w[4] - li * w[5];
            yi[q + 3 * s] = lr * w[5] + li * w[4];
            yr[q + 4 * s] = kr * w[6] - ki * w[7];
            yi[q + 4 * s] = kr * w[7] + ki * w[6];
        }
    }
}

/* y += x (c + i d) */
static void NAME(add_turned)(int64_t s, const T *restrict xr, const T *restrict xi, T c, T d, T *restrict yr,
                             T *restrict yi)
{
    for (int64_t q = 0; q < s; q++) {
        yr[q] += xr[q] * c - xi[q] * d;
        yi[q] += xr[q] * d + xi[q] * c;
    }
}

static void NAME(turn)(int64_t s, T c, T d, T *restrict yr, T *restrict yi)
{
    for (int64_t q = 0; q < s; q++) {
        T r = yr[q] * c - yi[q] * d;
        yi[q] = yr[q] * d + yi[q] * c;
        yr[q] = r;
    }
}

/* Of any radix r; its roots come after those of the stage. */
static void NAME(stage)(int r, int64_t s, int64_t m, Split x, Split y, const T *w)
{
    const T *small = w + 2 * (r - 1) * m;
    for (int64_t j = 0; j < m; j++)
        for (int k = 0; k < r; k++) {
            T *yr = y.re + (r * j + k) * s, *yi = y.im + (r * j + k) * s;
            memcpy(yr, x.re + j * s, (size_t)s * sizeof(T));
            memcpy(yi, x.im + j * s, (size_t)s * sizeof(T));
            for (int i = 1; i < r; i++) {
                const T *root = small + 2 * (i * k % r);
                NAME(add_turned)(s, x.re + (j + m * i) * s, x.im + (j + m * i) * s, root[0], root[1], yr, yi);
            }
            const T *root = w + 2 * ((r - 1) * j + k - 1);
            if (k) NAME(turn)(s, root[0], root[1], yr, yi);
        }
}

/* All stages, forward; the result is in x or in y. */
static Split NAME(stages)(const FftPlan *p, Split x, Split y, int64_t lanes)
{
    int64_t s = lanes, l = p->m;
    const T *w = p->root;
    for (int i = 0; i < p->nfactor; i++) {
        int r = p->factor[i];
        int64_t m = l / r;
        if (r == 2) NAME(stage2)(s, m, x, y, w);
        else if (r == 3) NAME(stage3)(s, m, x, y, w);
        else if (r == 4) NAME(stage4)(s, m, x, y, w);
        else if (r == 5) NAME(stage5)(s, m, x, y, w);
        else NAME(stage)(r, s, m, x, y, w);
        w += 2 * ((r - 1) * m + (r > FFT_WRITTEN_OUT ? r : 0));
        s *= r;
        l = m;
        Split t = x;
        x = y;
        y = t;
    }
    return x;
}

static Split NAME(exchanged)(Split x) { return (Split){x.im, x.re}; }

/* x[k] *= w[k] */
static void NAME(times)(int64_t n, int64_t lanes, Split x, const T *w)
{
    for (int64_t k = 0; k < n; k++) NAME(turn)(lanes, w[2 * k], w[2 * k + 1], x.re + k * lanes, x.im + k * lanes);
}

/* The complex transform of half pairs, forward; the result is in x or in y. */
static Split NAME(transform)(const FftPlan *p, Split x, Split y, int64_t lanes)
{
    if (!p->chirped) return NAME(stages)(p, x, y, lanes);
    size_t rest = (size_t)((p->m - p->half) * lanes) * sizeof(T);
    NAME(times)(p->half, lanes, x, p->chirp);
    memset(x.re + p->half * lanes, 0, rest);
    memset(x.im + p->half * lanes, 0, rest);
    Split z = NAME(stages)(p, x, y, lanes);
    NAME(times)(p->m, lanes, z, p->spectrum);
    z = NAME(exchanged)(NAME(stages)(p, NAME(exchanged)(z), NAME(exchanged)(z.re == x.re ? y : x), lanes));
    NAME(times)(p->half, lanes, z, p->chirp);
    return z;
}

static void NAME(spectrum)(const FftPlan *p, T *room)
{
    Split x = {room, room + p->m}, y = {room + 2 * p->m, room + 3 * p->m};
    const T *chirp = p->chirp;
    T *out = p->spectrum;
    memset(room, 0, (size_t)p->m * 2 * sizeof *room);
    for (int64_t k = 0; k < p->half; k++) {
        int64_t other = k ? p->m - k : 0;
        x.re[k] = x.re[other] = chirp[2 * k] / (T)p->m;
        x.im[k] = x.im[other] = -chirp[2 * k + 1] / (T)p->m;
    }
    x = NAME(stages)(p, x, y, 1);
    for (int64_t k = 0; k < p->m; k++) {
        out[2 * k] = x.re[k];
        out[2 * k + 1] = x.im[k];
    }
}

/* ------------------------------------------------------------------ lines */

/* n elements of each lane, `step` apart */
static void NAME(gather)(const T *in, const int64_t *at, int64_t n, int64_t step, int64_t lanes, T *restrict to)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < lanes; i++) to[j * lanes + i] = in[at[i] + j * step];
}

static void NAME(scatter)(T *out, const int64_t *at, int64_t n, int64_t step, int64_t lanes, const T *restrict from,
                          T scale)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < lanes; i++) out[at[i] + j * step] = from[j * lanes + i] * scale;
}

/* Bins 0 to n / 2 of a real line of even length, from the transform z of its even elements (real parts) and odd ones:
 * bin k is E + w O, where E = (z[k] + conj z[half - k]) / 2, O = (z[k] - conj z[half - k]) / 2 i. */
static void NAME(split)(const FftPlan *p, Split z, Split y, int64_t lanes)
{
    const T *w = p->split, half = (T)0.5;
    for (int64_t k = 0; k <= p->half; k++) {
        int64_t a = k % p->half * lanes, b = (p->half - k) % p->half * lanes;
        T c = w[2 * k], d = w[2 * k + 1];
        for (int64_t i = 0; i < lanes; i++) {
            T er = half * (z.re[a + i] + z.re[b + i]), ei = half * (z.im[a + i] - z.im[b + i]);
            T or = half * (z.im[a + i] + z.im[b + i]), oi = half * (z.re[b + i] - z.re[a + i]);
            y.re[k * lanes + i] = er + (or *c - oi * d);
            y.im[k * lanes + i] = ei + (or *d + oi * c);
        }
    }
}

/* The way back, for an inverse transform without its factor: z[k] = E + i O / w, E = x[k] + conj x[half - k],
 * O = x[k] - conj x[half - k]. */
static void NAME(joined)(const FftPlan *p, Split x, Split z, int64_t lanes)
{
    const T *w = p->split;
    for (int64_t k = 0; k < p->half; k++) {
        int64_t a = k * lanes, b = (p->half - k) * lanes;
        T c = w[2 * k], d = -w[2 * k + 1];
        for (int64_t i = 0; i < lanes; i++) {
            T er = x.re[a + i] + x.re[b + i], ei = x.im[a + i] - x.im[b + i];
            T or = x.re[a + i] - x.re[b + i], oi = x.im[a + i] + x.im[b + i];
            z.re[a + i] = er - (or *d + oi * c);
            z.im[a + i] = ei + (or *c - oi * d);
        }
    }
}

typedef struct NAME(Group) {
    int64_t lanes, in[FFT_LANES], out[FFT_LANES];
    Split x, y;
} NAME(Group);
#define Group NAME(Group)

static void NAME(complex_lines)(const Fft *f, const Group *g)
{
    const T *in = f->in;
    T *out = f->out, scale = (T)f->scale;
    int64_t n = f->plan->n;
    NAME(gather)(in, g->in, n, f->in_step, g->lanes, g->x.re);
    NAME(gather)(in + f->in_imag, g->in, n, f->in_step, g->lanes, g->x.im);
    Split z = f->inverse
                  ? NAME(exchanged)(NAME(transform)(f->plan, NAME(exchanged)(g->x), NAME(exchanged)(g->y), g->lanes))
                  : NAME(transform)(f->plan, g->x, g->y, g->lanes);
    NAME(scatter)(out, g->out, n, f->out_step, g->lanes, z.re, scale);
    NAME(scatter)(out + f->out_imag, g->out, n, f->out_step, g->lanes, z.im, scale);
}

static void NAME(to_complex_lines)(const Fft *f, const Group *g)
{
    const FftPlan *p = f->plan;
    const T *in = f->in;
    T *out = f->out, scale = (T)f->scale;
    int64_t n = p->n, step = f->in_step;
    NAME(gather)(in, g->in, p->half, p->halved ? 2 * step : step, g->lanes, g->x.re);
    if (p->halved) NAME(gather)(in + step, g->in, p->half, 2 * step, g->lanes, g->x.im);
    else memset(g->x.im, 0, (size_t)(n * g->lanes) * sizeof(T));
    Split z = NAME(transform)(p, g->x, g->y, g->lanes);
    if (p->halved) {
        Split y = z.re == g->x.re ? g->y : g->x;
        NAME(split)(p, z, y, g->lanes);
        z = y;
    }
    NAME(scatter)(out, g->out, n / 2 + 1, f->out_step, g->lanes, z.re, scale);
    NAME(scatter)(out + f->out_imag, g->out, n / 2 + 1, f->out_step, g->lanes, z.im, scale);
    if (!f->whole) return;
    out += n * f->out_step; /* bin n - k is the conjugate of bin k */
    NAME(scatter)(out - f->out_step, g->out, (n - 1) / 2, -f->out_step, g->lanes, z.re + g->lanes, scale);
    NAME(scatter)
    (out - f->out_step + f->out_imag, g->out, (n - 1) / 2, -f->out_step, g->lanes, z.im + g->lanes, -scale);
}

/* The imaginary parts of bin 0 and, of even n, bin n / 2 count as 0. */
static void NAME(to_real_lines)(const Fft *f, const Group *g)
{
    const FftPlan *p = f->plan;
    const T *in = f->in;
    T *out = f->out, scale = (T)f->scale;
    int64_t n = p->n, h = n / 2, L = g->lanes, step = f->out_step;
    Split x = g->x, z = g->y;
    NAME(gather)(in, g->in, h + 1, f->in_step, L, x.re);
    NAME(gather)(in + f->in_imag, g->in, h + 1, f->in_step, L, x.im);
    memset(x.im, 0, (size_t)L * sizeof(T));
    if (p->halved) {
        memset(x.im + h * L, 0, (size_t)L * sizeof(T));
        NAME(joined)(p, x, z, L);
        z = NAME(exchanged)(NAME(transform)(p, NAME(exchanged)(z), NAME(exchanged)(x), L));
        NAME(scatter)(out, g->out, h, 2 * step, L, z.re, scale);
        NAME(scatter)(out + step, g->out, h, 2 * step, L, z.im, scale);
        return;
    }
    for (int64_t k = 1; k <= h; k++)
        for (int64_t i = 0; i < L; i++) {
            x.re[(n - k) * L + i] = x.re[k * L + i];
            x.im[(n - k) * L + i] = -x.im[k * L + i];
        }
    z = NAME(exchanged)(NAME(transform)(p, NAME(exchanged)(x), NAME(exchanged)(z), L));
    NAME(scatter)(out, g->out, n, step, L, z.re, scale);
}

/* Lines from `first` on, in the room of one thread. */
static void NAME(group)(const Fft *f, int64_t first, int64_t lanes, T *room)
{
    int64_t part = (f->plan->m + 1) * lanes;
    Group g = {lanes, {0}, {0}, {room, room + part}, {room + 2 * part, room + 3 * part}};
    for (int64_t i = 0; i < lanes; i++) fft_line_at(f, first + i, &g.in[i], &g.out[i]);
    if (f->kind == FFT_COMPLEX) NAME(complex_lines)(f, &g);
    else if (f->kind == FFT_TO_COMPLEX) NAME(to_complex_lines)(f, &g);
    else NAME(to_real_lines)(f, &g);
}

static void NAME(lines)(const Fft *f, int threads)
{
    int64_t lanes = fft_lanes(f), lines = fft_line_count(f), groups = (lines + lanes - 1) / lanes;
    size_t each = (size_t)(4 * (f->plan->m + 1) * lanes);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && groups > 1)
    for (int64_t i = 0; i < groups; i++) {
        T *room = (T *)f->work + each * (size_t)team_part();
        int64_t first = i * lanes;
        NAME(group)(f, first, lines - first < lanes ? lines - first : lanes, room);
    }
}
#undef Split
#undef Group
