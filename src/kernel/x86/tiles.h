/* AMX's tile registers: permission for them was asked for in base/cpu.c. */
#ifndef QKV_KERNEL_X86_TILES_H
#define QKV_KERNEL_X86_TILES_H
#include <immintrin.h>
#include <stdint.h>

/* Rows of 64 bytes: `rows` of them in tiles 0 to 3, 16 in tiles 4 to 7. */
static inline void tiles_configure(int rows)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } all = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        all.bytes[i] = 64;
        all.rows[i] = (uint8_t)(i < 4 ? rows : 16);
    }
    __asm__ volatile("" : : "r"(&all) : "memory"); /* gcc 12's intrinsic says that it reads 8 bytes */
    _tile_loadconfig(&all);
}
#endif
