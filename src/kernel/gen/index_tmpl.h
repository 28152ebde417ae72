/* Index kernels; included by the reference and, per ISA level, by gen/index.c. */
#include <string.h>

static void put_row(char *out, const char *in, int64_t n, const int64_t *map, int64_t stride, const void *fill,
                    size_t size)
{
    for (int64_t i = 0; i < n;) {
        int64_t k = i + 1;
        if (map[i] < 0) {
            memcpy(out + (size_t)i * size, fill, size);
            i++;
            continue;
        }
        while (stride == 1 && k < n && map[k] == map[k - 1] + 1) k++; /* a run is one contiguous piece */
        memcpy(out + (size_t)i * size, in + map[i] * stride * (int64_t)size, (size_t)(k - i) * size);
        i = k;
    }
}

static void fill_row(char *out, int64_t n, const void *fill, size_t size)
{
    for (int64_t i = 0; i < n; i++) memcpy(out + (size_t)i * size, fill, size);
}

static void map_all(void *out, const void *in, int rank, const int64_t *n, const int64_t *stride,
                    const int64_t *const *map, const void *fill, size_t size, int threads)
{
    int64_t rows = 1, inner = rank ? n[rank - 1] : 1;
    static const int64_t zero = 0;
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
        if (outside) fill_row(to, inner, fill, size);
        else
            put_row(to, (const char *)in + offset * (int64_t)size, inner, rank ? map[rank - 1] : &zero,
                    rank ? stride[rank - 1] : 1, fill, size);
    }
}

static void gather_rows(void *out, const void *rows, const int64_t *index, int64_t n, size_t bytes, int threads)
{
#pragma omp parallel for num_threads(threads) if (n * (int64_t)bytes > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)out + (size_t)i * bytes, (const char *)rows + (size_t)index[i] * bytes, bytes);
}
