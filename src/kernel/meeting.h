/* Which taps of a window meet a picture, one axis at a time: loops over these alone take no time for the padding.
 *
 *     meeting(out, stride, k * dilation - padding, in)       the outputs that tap k gives something of the picture
 */
#ifndef QKV_KERNEL_MEETING_H
#define QKV_KERNEL_MEETING_H
#include <stdbool.h>
#include <stdint.h>

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* [first, end); empty where end <= first. */
typedef struct Meeting {
    int64_t first, end;
} Meeting;

/* Those i of [0, n) for which i * step + shift is in [0, size). */
static inline Meeting meeting(int64_t n, int64_t step, int64_t shift, int64_t size)
{
    int64_t end = size > shift ? ceil_div(size - shift, step) : 0;
    return (Meeting){shift < 0 ? ceil_div(-shift, step) : 0, end < n ? end : n};
}

/* The taps through which an output `at` sees a picture of `in` pixels; transposed: those among which are the taps
 * through which pixels reach it. */
static inline Meeting taps_meeting(int64_t at, int64_t in, int64_t taps, int64_t stride, int64_t padding,
                                   int64_t dilation, bool transposed)
{
    int64_t reach = (in - 1) * stride;
    if (transposed) return meeting(taps, dilation, reach - (at + padding), reach + 1);
    return meeting(taps, dilation, at * stride - padding, in);
}
#endif
