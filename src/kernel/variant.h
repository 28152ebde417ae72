/* KERNEL(name): the name of this compilation's variant; QKV_VARIANT comes from src/kernel/meson.build. */
#ifndef QKV_KERNEL_VARIANT_H
#define QKV_KERNEL_VARIANT_H
#define KERNEL_PASTE2(a, b) a##_##b
#define KERNEL_PASTE(a, b) KERNEL_PASTE2(a, b)
#define KERNEL(name) KERNEL_PASTE(name, QKV_VARIANT)
#endif
