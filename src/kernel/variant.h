/* KERNEL(name): the name of this compilation's variant; QKV_VARIANT comes from src/kernel/meson.build. */
#ifndef QKV_KERNEL_VARIANT_H
#define QKV_KERNEL_VARIANT_H
#define KERNEL_PASTE2(a, b) a##_##b
#define KERNEL_PASTE(a, b) KERNEL_PASTE2(a, b)
#define KERNEL(name) KERNEL_PASTE(name, QKV_VARIANT)

/* Helpers that are part of the loop that calls them. Sanitizers take seven times as long for one large function as for
 * many small ones. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INLINE static inline __attribute__((unused))
#else
#define INLINE static inline __attribute__((always_inline, unused))
#endif
#endif
