/* The reference ISA level has no packed products of integers: run functions and tests have loops. */
#include "kernel/kernel.h"

void integer_fill_ref(IntegerKernels *k);
void integer_fill_ref(IntegerKernels *k) { *k = (IntegerKernels){0}; }
