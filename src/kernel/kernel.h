/* Kernels: arithmetic only. Pointers, strides, sizes; no graph, no allocation.
 *
 * A family has a struct of typed function pointers (kernel/<family>.h), a plain reference (kernel/ref/<family>.c,
 * double accumulators, the truth for tests) and fast portable C (kernel/gen/<family>.c) that is compiled once per ISA
 * level. table.c fills one Kernels per ISA level: reference first, then each better ISA level overwrites slots.
 *
 *     const Kernels *k = kernels();                 for this machine, or the ISA level that QKV_CPU forces; portable
 *                                                   ones where cpu_is_portable()
 *     k->reduce.softmax_f32(out, in, rows, n, threads);
 *     const Kernels *r = kernels_at(CPU_REF);       for tests; falls back to the best ISA level the machine has below
 *
 * In kernel/gen files KERNEL(f) is f_gen, f_avx2 or f_avx512, and each ends with
 *     void KERNEL(reduce_fill)(ReduceKernels *k) { k->softmax_f32 = softmax_f32; ... }
 */
#ifndef QKV_KERNEL_KERNEL_H
#define QKV_KERNEL_KERNEL_H
#include "base/cpu.h"
#include "tensor/tensor.h"

#include "kernel/blocks.h"
#include "kernel/conv.h"
#include "kernel/fft.h"
#include "kernel/image.h"
#include "kernel/index.h"
#include "kernel/integer.h"
#include "kernel/linalg.h"
#include "kernel/optim.h"
#include "kernel/peak.h"
#include "kernel/pointwise.h"
#include "kernel/product.h"
#include "kernel/reduce.h"
#include "kernel/sdpa.h"

/* FAMILY(name, Struct) */
#define KERNEL_FAMILIES(FAMILY)                                                                                        \
    FAMILY(pointwise, PointwiseKernels)                                                                                \
    FAMILY(reduce, ReduceKernels)                                                                                      \
    FAMILY(index, IndexKernels)                                                                                        \
    FAMILY(image, ImageKernels)                                                                                        \
    FAMILY(integer, IntegerKernels)                                                                                    \
    FAMILY(blocks, BlockKernels)                                                                                       \
    FAMILY(linalg, LinalgKernels)                                                                                      \
    FAMILY(fft, FftKernels)                                                                                            \
    FAMILY(optim, OptimKernels)                                                                                        \
    FAMILY(peak, PeakKernels)                                                                                          \
    FAMILY(product, ProductKernels)                                                                                    \
    FAMILY(conv, ConvKernels)                                                                                    \
    FAMILY(sdpa, SdpaKernels)

typedef struct Kernels {
#define FAMILY(name, T) T name;
    KERNEL_FAMILIES(FAMILY)
#undef FAMILY
} Kernels;

const Kernels *kernels(void);
const Kernels *kernels_at(CpuLevel level);
const Kernels *kernels_portable_at(CpuLevel level); /* the same bits for every level */
#endif
