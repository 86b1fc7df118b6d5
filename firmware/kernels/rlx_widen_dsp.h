/* rlx_widen_dsp.h: the windows of 4 positions as int16, in the order in which rlx_gemm_dsp.h multiplies.
 *
 * A kernel row is a run of k_w * in_c bytes in memory. Of each kernel row come whole words of 4 bytes, a word giving the
 * two steps (k0, k2), (k1, k3); then the bytes left over of all kernel rows, in order, two a step. Where their number is
 * odd the last value is never written (its weights are 0).
 * A step holds [4 positions][2] int16, so that the positions' values lie 4 bytes apart and the next step 16.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_WIDEN_DSP_H
#define RLX_WIDEN_DSP_H

#include "rlx_dsp.h"

enum { RLX_STEP_POSITIONS = 4, RLX_STEP_VALUES = 8 };

/* The assembly loads it in this order. */
typedef struct {
    const int8_t *x[RLX_STEP_POSITIONS]; /* first byte of each position's window */
    int16_t *words_to, *rest_to; /* aligned to 16: the steps of whole words; those of the bytes left over */
    int32_t rows;                /* of the kernel */
    int32_t words;               /* whole words of a kernel row */
    int32_t next_row[RLX_STEP_POSITIONS]; /* bytes from a kernel row's end to the next one's first byte */
    int32_t rest;                         /* bytes of a kernel row that are left over */
} rlx_widen_t;

/* 4 windows.
 * Registers: r0 to r3 x, r4, r5 words_to, rest_to, r6 rows, r7 words, r8 to r11 values, r12 counts, lr &next_row. */
#if RLX_DSP
static RLX_NAKED void rlx_widen_tile(const rlx_widen_t *g __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "mov lr, r0\n\t"
        "ldm lr!, {r0-r7}\n"
        "1:\n\t"
        "movs r12, r7\n\t"
        "beq 3f\n"
        "2:\n\t"
        "ldr r8, [r2], #4\n\t"
        "ldr r9, [r3], #4\n\t"
        "sxtb16 r10, r8\n\t"
        "sxtb16 r11, r9\n\t"
        "sxtb16 r8, r8, ror #8\n\t"
        "sxtb16 r9, r9, ror #8\n\t"
        "strd r10, r11, [r4, #8]\n\t"
        "strd r8, r9, [r4, #24]\n\t"
        "ldr r8, [r0], #4\n\t"
        "ldr r9, [r1], #4\n\t"
        "sxtb16 r10, r8\n\t"
        "sxtb16 r11, r9\n\t"
        "sxtb16 r8, r8, ror #8\n\t"
        "sxtb16 r9, r9, ror #8\n\t"
        "strd r8, r9, [r4, #16]\n\t"
        "strd r10, r11, [r4], #32\n\t"
        "subs r12, r12, #1\n\t"
        "bne 2b\n"
        "3:\n\t"
        "ldr r12, [lr, #16]\n\t"
        "cmp r12, #0\n\t"
        "beq 5f\n"
        "4:\n\t"
        "ldrsb r8, [r0], #1\n\t"
        "ldrsb r9, [r1], #1\n\t"
        "ldrsb r10, [r2], #1\n\t"
        "ldrsb r11, [r3], #1\n\t"
        "strh r8, [r5]\n\t"
        "strh r9, [r5, #4]\n\t"
        "strh r10, [r5, #8]\n\t"
        "strh r11, [r5, #12]\n\t"
        "tst r5, #2\n\t"
        "ite eq\n\t"
        "addeq r5, r5, #2\n\t"
        "addne r5, r5, #14\n\t"
        "subs r12, r12, #1\n\t"
        "bne 4b\n"
        "5:\n\t"
        "ldm lr, {r8-r11}\n\t"
        "add r0, r0, r8\n\t"
        "add r1, r1, r9\n\t"
        "add r2, r2, r10\n\t"
        "add r3, r3, r11\n\t"
        "subs r6, r6, #1\n\t"
        "bne 1b\n\t"
        "pop {r4-r11, pc}\n\t");
}
#else
static void rlx_widen_tile(const rlx_widen_t *g)
{
    for (int32_t p = 0; p < RLX_STEP_POSITIONS; p++) {
        const int8_t *x = g->x[p];
        int16_t *d = g->words_to + 2 * p;
        int16_t *rest = g->rest_to + 2 * p;
        int32_t written = 0;
        for (int32_t row = 0; row < g->rows; row++, x += g->next_row[p]) {
            for (int32_t i = 0; i < g->words; i++, x += 4, d += 2 * RLX_STEP_VALUES) {
                rlx_dsp_widen(d, RLX_STEP_VALUES, x);
            }
            for (int32_t i = 0; i < g->rest; i++, x++, written++) {
                rest[written / 2 * RLX_STEP_VALUES + written % 2] = *x;
            }
        }
    }
}
#endif

#endif
