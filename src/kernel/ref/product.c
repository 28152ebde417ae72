/* The reference ISA level has no packed products: tests compare with sums in double. */
#include "kernel/kernel.h"

void product_fill_ref(ProductKernels *k);
void product_fill_ref(ProductKernels *k) { *k = (ProductKernels){0}; }
