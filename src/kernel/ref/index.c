/* Reference index kernels: the same loops, nothing is computed. */
#include "kernel/index.h"
#include "kernel/gen/index_tmpl.h"

void index_fill_ref(IndexKernels *k);

void index_fill_ref(IndexKernels *k) { *k = (IndexKernels){map_all, gather_rows}; }
