/* rlx_depthwise_packed_v6m.h: the inner loops of rlx_depthwise_v6m_w4.c and _w2.c, in assembly and in C.
 *
 * All products of a pair of outputs are one group (rlx_v6m.h), whose sum begins with the bias of both. The generator
 * proves that the accumulators lie in [-2^15, 2^15), whatever the inputs are: then the lower half is the first one,
 * with its sign, and what is left of the sum is the second one, times 2^16.
 *
 * Stream, per output channel (int32 words):
 *     bias     of both outputs: b + (b << 16)
 *     weights  [k_w / 3][k_h][3], or [k_h / 3][k_w][3] if upright, of RLX_BITS bits, the first one in the lowest bits,
 *              padded to whole words
 *     four words  rescale (rlx_v6m_scale_t)
 * The table in scratch is that of rlx_depthwise_v6m_s8.c: two words of bias, weights as words, rescale.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_PACKED_V6M_H
#define RLX_DEPTHWISE_PACKED_V6M_H

#include "rlx_rows_v6m.h"

static RLX_V6M_NOINLINE const int32_t *load_channel(const int32_t *next, rows_t *r, int32_t *table, int32_t taps)
{
    r->mode = taps == STEP * STEP && r->column_bytes == 4 * STEP * STEP ? 1 : 0;
    table[0] = table[1] = *next++;
    table += 2;
    for (int32_t left = taps; left > 0; next++) {
        const uint32_t word = (uint32_t)*next;
        for (int32_t at = 32 - RLX_BITS; at >= 0 && left > 0; at -= RLX_BITS, left--) {
            *table++ = (int32_t)(word << at) >> (32 - RLX_BITS);
        }
    }
    for (int32_t i = 0; i < 4; i++) {
        *table++ = *next++;
    }
    return next;
}

#if RLX_V6M_ASM

/* Registers: r0 r1 r2 weights, then products, r3 r4 r5 activations, r6 next word of the table, r7 next activations; r9
 * line_rest, r10 sum, r11 the second accumulator, r12 the pair's first output, lr return.
 * Stack: a copy of rows_t, whose `mode` becomes an address. */
#define BEGIN                                                                                                         \
    "    ldr r6, [sp, #4]\n"                                                                                          \
    "    ldmia r6!, {r0, r1}\n"                                                                                       \
    "    mov r10, r0\n"
#define END                                                                                                           \
    "    ldr r0, [sp, #32]\n"                                                                                         \
    "    adds r7, r7, r0\n"                                                                                           \
    "    bx lr\n"
/* three products */
#define ROW                                                                                                           \
    "    ldmia r6!, {r0, r1, r2}\n"                                                                                   \
    "    ldmia r7!, {r3, r4, r5}\n"                                                                                   \
    "    muls r0, r3, r0\n"                                                                                           \
    "    muls r1, r4, r1\n"                                                                                           \
    "    muls r2, r5, r2\n"                                                                                           \
    "    add r10, r0\n"                                                                                               \
    "    add r10, r1\n"                                                                                               \
    "    add r10, r2\n"
/* the first accumulator in r0, the second one in r11 */
#define SPLIT                                                                                                         \
    "    mov r1, r10\n"                                                                                               \
    "    sxth r0, r1\n"                                                                                               \
    "    subs r1, r1, r0\n"                                                                                           \
    "    asrs r1, r1, #16\n"                                                                                          \
    "    mov r11, r1\n"

RLX_V6M_NAKED static void run_rows(RLX_V6M_UNUSED const rows_t *rows)
{
    __asm__ volatile(".syntax unified\n"
                     ROWS_ENTER
                     "    ldr r0, [sp, #28]\n"
                     "    mov r9, r0\n"
                     "    ldr r1, [sp, #40]\n"
                     "    adr r0, 20f\n"
                     "    cmp r1, #0\n"
                     "    beq 1f\n"
                     "    adr r0, 21f\n"
                     "1:  adds r0, r0, #1\n" /* Thumb code */
                     "    str r0, [sp, #40]\n"
                     ROWS_RUN(SPLIT, SPLIT)
                     "20:\n" /* mode 0: columns of three taps, in each its kernel rows */
                     BEGIN
                     "8:  ldr r0, [sp, #56]\n"
                     "    adds r0, r0, r6\n"
                     "    str r0, [sp, #52]\n"
                     "9:\n" ROW
                     "    add r7, r9\n"
                     "    ldr r0, [sp, #52]\n"
                     "    cmp r6, r0\n"
                     "    bne 9b\n"
                     "    ldr r0, [sp, #60]\n"
                     "    adds r7, r7, r0\n"
                     "    ldr r0, [sp, #64]\n"
                     "    cmp r6, r0\n"
                     "    bne 8b\n" END
                     "    .balign 4\n"
                     "21:\n" /* mode 1: 3x3 */
                     BEGIN ROW
                     "    add r7, r9\n" ROW
                     "    add r7, r9\n" ROW END);
}

#else /* the same in C */

/* The sum of one pair; `next` is where its words begin, and then where the next pair's do. */
static uint32_t sum_pair(const rows_t *r, const int32_t **next)
{
    const int32_t *weights = r->table + 2;
    const int32_t line = r->line_rest / 4 + STEP;
    const int32_t rows = r->column_bytes / (4 * STEP);
    uint32_t sum = (uint32_t)r->table[0];
    while (weights != r->weights_end) {
        for (int32_t y = 0; y < rows; y++, weights += STEP) {
            for (int32_t i = 0; i < STEP; i++) {
                sum += (uint32_t)weights[i] * (uint32_t)(*next)[y * line + i];
            }
        }
        *next += rows * line + r->to_column / 4;
    }
    /* to_next counts from where the assembly of a 3x3 kernel ends: at the end of the last row's words */
    *next += r->to_next / 4 - (r->mode == 0 ? 0 : line - STEP + r->to_column / 4);
    return sum;
}

static void run_rows(const rows_t *r)
{
    const rlx_v6m_scale_t *scale = (const rlx_v6m_scale_t *)(const void *)r->weights_end;
    for (int32_t y = 0; y < r->rows; y++) {
        const int32_t *next = r->plane + y * (r->plane_step / 4);
        int8_t *out = r->out + y * r->out_pitch;
        for (int32_t at = 0; at < r->row_bytes; at += 2 * r->out_step) {
            const uint32_t sum = sum_pair(r, &next);
            const int32_t first = (int16_t)(sum & 0xFFFFu);
            if (at != 0 || r->odd == 0) {
                out[at] = rlx_v6m_rescale(first, scale);
            }
            out[at + r->out_step] = rlx_v6m_rescale((int32_t)(sum - (uint32_t)first) >> 16, scale);
        }
    }
}

#endif

#endif
