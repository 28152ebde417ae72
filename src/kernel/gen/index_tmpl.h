/* Index kernels; included by the reference and, per ISA level, by gen/index.c. */
#include <string.h>

/* A run of neighbours is one piece. */
static void put_runs(char *out, const char *in, int64_t n, const int64_t *map, const void *fill, size_t size)
{
    for (int64_t i = 0; i < n;) {
        int64_t k = i + 1;
        if (map[i] < 0) {
            memcpy(out + (size_t)i * size, fill, size);
            i++;
            continue;
        }
        while (k < n && map[k] == map[k - 1] + 1) k++;
        memcpy(out + (size_t)i * size, in + map[i] * (int64_t)size, (size_t)(k - i) * size);
        i = k;
    }
}

/* Copies of a size that is known are one load and one store. */
__attribute__((always_inline)) static inline void put_each(char *out, const char *in, int64_t n, const int64_t *map,
                                                           int64_t stride, const char *fill, int64_t size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * size, map[i] < 0 ? fill : in + map[i] * stride * size, (size_t)size);
}

static void put_row(char *out, const char *in, int64_t n, const int64_t *map, int64_t stride, const void *fill,
                    size_t size)
{
    switch (size) {
    case 1: put_each(out, in, n, map, stride, fill, 1); break;
    case 2: put_each(out, in, n, map, stride, fill, 2); break;
    case 4: put_each(out, in, n, map, stride, fill, 4); break;
    case 8: put_each(out, in, n, map, stride, fill, 8); break;
    default: put_each(out, in, n, map, stride, fill, (int64_t)size);
    }
}

/* Whether a map is of few runs of neighbours. */
static bool has_runs(const int64_t *map, int64_t n)
{
    enum { LENGTH = 4 };
    int64_t runs = 1;
    for (int64_t i = 1; i < n; i++) runs += map[i] != map[i - 1] + 1;
    return runs * LENGTH <= n;
}

static void fill_row(char *out, int64_t n, const void *fill, size_t size)
{
    for (int64_t i = 0; i < n; i++) memcpy(out + (size_t)i * size, fill, size);
}

static void map_all(void *out, const void *in, int rank, const int64_t *n, const int64_t *stride,
                    const int64_t *const *map, const void *fill, size_t size, int threads)
{
    static const int64_t zero = 0;
    const int64_t *last = rank ? map[rank - 1] : &zero;
    int64_t rows = 1, inner = rank ? n[rank - 1] : 1, step = rank ? stride[rank - 1] : 1;
    bool runs = step == 1 && has_runs(last, inner);
    for (int d = 0; d < rank - 1; d++) rows *= n[d];
#pragma omp parallel for num_threads(threads) if (rows * inner > 1 << 15)
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r, offset = 0;
        bool outside = false;
        for (int d = rank - 2; d >= 0; d--) {
            int64_t k = map[d][at % n[d]];
            at /= n[d];
            outside |= k < 0;
            offset += k * stride[d];
        }
        char *to = (char *)out + (size_t)(r * inner) * size;
        const char *from = (const char *)in + offset * (int64_t)size;
        if (outside) fill_row(to, inner, fill, size);
        else if (runs) put_runs(to, from, inner, last, fill, size);
        else put_row(to, from, inner, last, step, fill, size);
    }
}

static void gather_rows(void *out, const void *rows, const int64_t *index, int64_t n, size_t bytes, int threads)
{
#pragma omp parallel for num_threads(threads) if (n * (int64_t)bytes > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)out + (size_t)i * bytes, (const char *)rows + (size_t)index[i] * bytes, bytes);
}
