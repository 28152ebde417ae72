/* Index kernels, portable; compiled once per ISA level. Contract in kernel/index.h. */
#include "kernel/index.h"
#include "kernel/variant.h"
#include "kernel/gen/index_tmpl.h"

void KERNEL(index_fill)(IndexKernels *k);

void KERNEL(index_fill)(IndexKernels *k) { *k = (IndexKernels){map_all, gather_rows}; }
