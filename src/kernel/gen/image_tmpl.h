/* Resampling for one type; T, ACC and NAME(x) are set by the includer. */
static void NAME(resample)(T *out, const T *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t inner, int64_t taps,
                           const int64_t *at, const double *weight, int threads)
{
#pragma omp parallel for num_threads(threads) if (outer * n_out * inner > 1 << 14)
    for (int64_t r = 0; r < outer * n_out; r++) {
        int64_t j = r % n_out;
        const T *plane = in + r / n_out * n_in * inner;
        T *to = out + r * inner;
        for (int64_t i = 0; i < inner; i++) {
            ACC s = 0;
            for (int64_t k = 0; k < taps; k++)
                s += (ACC)weight[j * taps + k] * (ACC)plane[at[j * taps + k] * inner + i];
            to[i] = (T)s;
        }
    }
}
