/* Optimizers for elements of type T, computed in ACC. Contract in kernel/optim.h. */
static void NAME(adam)(T *restrict w, T *restrict m, T *restrict v, const T *restrict g, int64_t n, const OptimStep *s)
{
    ACC scale = (ACC)s->scale, keep = (ACC)(1 - s->lr * s->decay), coupled = (ACC)s->decay, b1 = (ACC)(1 - s->beta1),
        b2 = (ACC)s->beta2, c2 = (ACC)(1 - s->beta2);
    ACC size = (ACC)(s->lr / s->correction1), root = (ACC)(1 / s->correction2), eps = (ACC)s->eps;
    if (s->decoupled) coupled = 0;
    else keep = 1;
    for (int64_t i = 0; i < n; i++) {
        ACC x = w[i], d = g[i] * scale + coupled * x, m1 = m[i], v1 = v[i];
        m1 += b1 * (d - m1);
        v1 = b2 * v1 + c2 * d * d;
        m[i] = (T)m1;
        v[i] = (T)v1;
        w[i] = (T)(keep * x - size * m1 / (SQRT(v1) * root + eps));
    }
}

static void NAME(sgd)(T *restrict w, T *restrict m, const T *restrict g, int64_t n, const OptimStep *s)
{
    ACC scale = (ACC)s->scale, decay = (ACC)s->decay, lr = (ACC)s->lr, old = (ACC)(s->first ? 0 : s->momentum),
        fresh = (ACC)(s->first ? 1 : 1 - s->dampening);
    ACC ahead = (ACC)(s->nesterov ? s->momentum : 1), own = s->nesterov ? 1 : 0; /* d = own g + ahead m */
    if (!m) {
        for (int64_t i = 0; i < n; i++) w[i] = (T)(w[i] - lr * (g[i] * scale + decay * w[i]));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        ACC d = g[i] * scale + decay * w[i], m1 = old * m[i] + fresh * d;
        m[i] = (T)m1;
        w[i] = (T)(w[i] - lr * (own * d + ahead * m1));
    }
}

/* Sixteen sums side by side, added in order. */
static double NAME(squares)(const T *g, int64_t n)
{
    enum { LANES = 16 };
    double sum[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sum[k] += (double)g[i + k] * (double)g[i + k];
    for (; i < n; i++) sum[i % LANES] += (double)g[i] * (double)g[i];
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all;
}
