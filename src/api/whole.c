/* What a program that is linked with libqkv.a leaves out unless it calls it, and libqkv.so and the command have:
 * forward derivatives of files, by the gradients of all ops. No part of the archive, whose constructors every program
 * takes.
 */
#include "grad/grad.h"
#include "program/program.h"

__attribute__((constructor)) static void whole(void) { program_tangents = graph_tangents; }
