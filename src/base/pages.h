/* Large memory straight from the kernel: zeroed, nothing of it is used before it is touched, and in huge pages where
 * the system gives them to those who ask (a matrix of megabytes costs one miss of the TLB in 2 MiB instead of one in 4
 * KiB).
 *
 *     Pages p = {0};
 *     if (!pages_take(&p, bytes, 1 << 26)) ...     p.data holds p.size bytes: those asked for, and as much slack as
 *                                                  there is room for
 *     pages_free(&p);
 */
#ifndef QKV_BASE_PAGES_H
#define QKV_BASE_PAGES_H
#include <stdbool.h>
#include <stddef.h>

typedef struct Pages {
    unsigned char *data; /* aligned to 64 bytes at least */
    size_t size, mapped; /* mapped: 0 where it came from the allocator */
    void *from;
} Pages;

/* n bytes of an empty p's own, zeroed, straight from the kernel; false where there are none to have, under
 * AddressSanitizer, which sees more with the allocator's, and where the program has set an allocator of its own. */
bool pages_map(Pages *p, size_t n);
/* At least n bytes, n + slack where addresses can be had; what p held is freed first.
 * False when out of memory; p is empty then. */
bool pages_take(Pages *p, size_t n, size_t slack);
void pages_free(Pages *p);
/* Asks for huge pages after [data, data + n), which is in memory of our own (also: of a private mapping of a file). */
void pages_huge(void *data, size_t n);
/* [data, data + n), of a mapped file most likely, will be read at once:
 * its pages are entered into the page table in one call instead of by a fault for every few of them. */
void pages_soon(const void *data, size_t n);
/* [data, data + n), of what file_map gave, will not be read for long: its memory goes back to the system.
 * Nothing is lost, it is read from the file again; a copy of a file stays. */
void pages_done(const void *data, size_t n);
#endif
