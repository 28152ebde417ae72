/* Fourier transforms, portable; compiled once per ISA level. Contract in kernel/fft.h. */
#include "kernel/fft.h"
#include <string.h>
#include "kernel/variant.h"
#include "team/team.h"

/* A sum is rounded the same way in every lane, in the rest of a loop as in its vectors, on every ISA level. */
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define T float
#define NAME(x) x##_f32
#include "kernel/gen/fft_tmpl.h"
#undef T
#undef NAME

#define T double
#define NAME(x) x##_f64
#include "kernel/gen/fft_tmpl.h"

void KERNEL(fft_fill)(FftKernels *k);

void KERNEL(fft_fill)(FftKernels *k) { *k = (FftKernels){lines_f32, lines_f64, spectrum_f32, spectrum_f64}; }
