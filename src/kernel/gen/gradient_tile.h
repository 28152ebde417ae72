/* Tiles of the gradient of a convolution's weights: up to MR (of four vectors MR4) output channels by NV vectors of
 * channels, read where they lie. Included after conv_tile.h. Contract in kernel/conv.h.
 */
INLINE void gradient_tile(const GradientTile *t, int rows, int nv)
{
    V s[MR][MOST_V];
    const char *ahead = t->ahead;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            s[r][v] = (V){0};
            if (t->add) s[r][v] = *(const VU *)(t->c + r * t->c_step + v * W);
        }
    for (int64_t l = 0; l < t->lines; l++) {
        const float *a = t->a + l * t->a_line, *x = t->x + l * t->x_line;
        for (int64_t i = 0; i < t->n; i++, a += t->a_step, x += t->x_step, ahead += t->pace) {
            V y[MOST_V];
            __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++) y[v] = *(const VU *)(x + v * W);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                float one = a[r];
#pragma GCC unroll 4
                for (int v = 0; v < nv; v++) s[r][v] = MULTIPLY(s[r][v], one, y[v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) *(VU *)(t->c + r * t->c_step + v * W) = s[r][v];
}

INLINE void gradient_of(const GradientTile *t, int rows)
{
    if (NV > 2 && t->cols > 2 * W) gradient_tile(t, rows, NV);
    else if (NV > 1 && t->cols > W) gradient_tile(t, rows, 2);
    else gradient_tile(t, rows, 1);
}

INLINE void wide_gradient_of(const GradientTile *t, int rows)
{
    if (t->cols > 3 * W) gradient_tile(t, rows, 4);
    else if (t->cols > 2 * W) gradient_tile(t, rows, 3);
    else if (t->cols > W) gradient_tile(t, rows, 2);
    else gradient_tile(t, rows, 1);
}

/* clang-format off */
ANY_HEIGHT(HEIGHTS, gradient, GradientTile)
#if MR4
ANY_HEIGHT(WIDE_HEIGHTS, wide_gradient, GradientTile)
#endif
/* clang-format on */
