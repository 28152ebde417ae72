/* The elementary functions of the kernels on every kind of float: built so that a cast of what has no integer (NaN, too
 * large) traps. -0, denormal and largest numbers, infinities, NaN, and all exponents with both signs. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "kernel/gen/vmath.h"

static volatile float sink;

int main(void)
{
    static float (*const all[])(float) = {vm_exp,     vm_exp_down, vm_tanh, vm_erf,
                                          vm_sigmoid, vm_silu,     vm_gelu, vm_gelu_tanh};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++)
        for (uint32_t top = 0; top < 1 << 12; top++) {
            float x;
            uint32_t bits = top << 20 | (top & 1);
            memcpy(&x, &bits, sizeof x);
            sink = all[f](x);
        }
    bool ok = isnan(vm_exp(NAN)) && isnan(vm_exp(-NAN)) && vm_exp(-INFINITY) == 0 && vm_exp(INFINITY) == INFINITY &&
              vm_exp(0) == 1;
    printf("1..1\n%sok 1 - no cast without an integer\n", ok ? "" : "not ");
    return !ok;
}
