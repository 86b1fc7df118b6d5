/* rlx_depthwise_run_v7m.h: tiles of 6 neighbors, one below the other, for up to 4 channels: assembly for 3x3, and C.
 *
 * A channel's table, aligned to 4: int32 the negated bias; weights [k_h][k_w]; e; int32 -m (rlx_v7m.h). Weights of int8
 * are read where the generator put them: weights and e are int8, with zeros up to a multiple of 4. Those of RLX_BITS < 8
 * are unpacked before: weights and e are int32, and e may say that the scale is large.
 *
 * Registers of the assembly: r0 to r5 negated sums of 6 positions; r6, r7, r8 weights of a kernel row; r9 input; r10
 * reads scratch; r11 its pitch; r12 output; lr reads the table. Then r6 = -m, r7 = e, r8 = c << e, r9 is lost, r10
 * steps between positions in y, r11 = r12 + r10. On the stack: see run_t. 54 products take 3 x 29 instructions with
 * stride 1, 3 x 34 with stride 2, and 3 x 2 fewer with weights of int32.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_RUN_V7M_H
#define RLX_DEPTHWISE_RUN_V7M_H

#include "rlx_kernels.h"
#include "rlx_v7m.h"

#define POSITIONS 6
#define BLOCK 4 /* channels */

#if RLX_BITS == 8
typedef int8_t weight_t;
#else
typedef int32_t weight_t;
#endif

/* Words of a channel's table. */
static inline int32_t table_words(int32_t taps)
{
    return taps * (int32_t)sizeof(weight_t) / 4 + 3;
}

/* `rows` tiles of up to POSITIONS neighbors, one below the other, for `channels` channels. */
typedef struct {
    const int8_t *in;      /* scratch, where the first tile's windows begin */
    int32_t pitch;         /* of a row of scratch */
    int32_t c;             /* -(2 out_zp + 1) */
    int32_t step;          /* from a position's output to the next one's */
    const int8_t *out_end; /* of the first tile's first position: out + channels */
    const int32_t *table;
    int32_t next_in;       /* to the next tile, after the last channel */
    int32_t next_out;
    int32_t rows;
    int32_t y_pitch;
    int32_t positions;     /* that are written, 1 to POSITIONS */
    int8_t *out;
    int32_t stride;
} run_t;

#if RLX_V7M
/* Input at byte `at` of the row, and the positions that it serves. */
#define IN(at) "ldrsb.w r9, [r10, #" #at "]\n\t"
#define AT(position, weight) "mls r" #position ", r9, " weight ", r" #position "\n\t"
#define A(position) AT(position, "r6")
#define B(position) AT(position, "r7")
#define C(position) AT(position, "r8")
#if RLX_BITS == 8
#define WEIGHTS "ldrsb r6, [lr], #1\n\tldrsb r7, [lr], #1\n\tldrsb r8, [lr], #1\n\t"
#define SCALE "ldrsb r7, [lr], #3\n\tldr r6, [lr], #4\n\t"
#else
#define WEIGHTS "ldm.w lr!, {r6, r7, r8}\n\t"
#define SCALE "ldrd r7, r6, [lr], #8\n\t"
#endif
#define ROW_1 \
    WEIGHTS IN(0) A(0) IN(4) B(0) A(1) IN(8) C(0) B(1) A(2) IN(12) C(1) B(2) A(3) IN(16) C(2) B(3) A(4) \
    IN(20) C(3) B(4) A(5) IN(24) C(4) B(5) IN(28) C(5)
#define ROW_2 \
    WEIGHTS IN(0) A(0) IN(4) B(0) IN(8) C(0) A(1) IN(12) B(1) IN(16) C(1) A(2) IN(20) B(2) IN(24) C(2) A(3) \
    IN(28) B(3) IN(32) C(3) A(4) IN(36) B(4) IN(40) C(4) A(5) IN(44) B(5) IN(48) C(5)
#define NEXT_ROW "add r10, r11\n\t"
#define OUT(position, at) RLX_V7M_REQUANTIZE("r" #position, "r6", "r7", "r8", "r9", at)
#define LARGE(position, at) RLX_V7M_REQUANTIZE_LARGE("r" #position, "r6", "r7", "r8", "r9", at)
/* The outputs of a channel, the last position first; `from` and the label after it say how long one's code is. */
#define OUTPUTS(one, from, next) \
    ".balign 4\n" \
    from ":\n\t" \
    one(5, "[r11, r10, lsl #2]") \
    next ":\n\t" \
    one(4, "[r12, r10, lsl #2]") \
    one(3, "[r11, r10, lsl #1]") \
    one(2, "[r12, r10, lsl #1]") \
    one(1, "[r12, r10]") \
    one(0, "[r12], #1")
/* To register `to`: where the outputs begin, of which the last r11 positions are left out. */
#define ENTRY(to, from, next) \
    "adr.w " to ", " from "f\n\t" \
    "adr.w r2, " next "f\n\t" \
    "sub r2, r2, " to "\n\t" \
    "mla " to ", r11, r2, " to "\n\t" \
    "orr.w " to ", " to ", #1\n\t"

RLX_V7M_NAKED static void run_3x3(__attribute__((unused)) const run_t *run)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldm r0!, {r1-r11}\n\t"
        "push {r1-r11}\n\t"
        "mov lr, r6\n\t"
        "ldr r12, [r0]\n\t"
        "ldr r0, [r0, #4]\n\t"
        "rsb r11, r11, #6\n\t" /* positions to leave out: the last ones, whose code comes first */
        ENTRY("r1", "5", "6")
        "str r1, [sp, #40]\n\t"
        "cmp r0, #1\n\t"
        "ite eq\n\t"
        "adreq.w r1, 2f\n\t"
        "adrne.w r1, 3f\n\t"
        "orr.w r1, r1, #1\n\t"
#if RLX_BITS < 8
        ENTRY("r0", "8", "9")
#endif
        "push {r0, r1}\n" /* what was at [sp, #n] is at [sp, #n + 8] */
        "1:\n\t" /* a channel */
        "ldrd r10, r11, [sp, #8]\n\t"
        "ldr r0, [lr], #4\n\t"
        "add.w r1, r10, #1\n\t"
        "str r1, [sp, #8]\n\t"
        "mov r1, r0\n\t"
        "mov r2, r0\n\t"
        "mov r3, r0\n\t"
        "mov r4, r0\n\t"
        "mov r5, r0\n\t"
        "ldr.w pc, [sp, #4]\n\t"
        ".balign 4\n"
        "2:\n\t"
        ROW_1 NEXT_ROW ROW_1 NEXT_ROW ROW_1
        "b.w 4f\n\t"
        ".balign 4\n"
        "3:\n\t"
        ROW_2 NEXT_ROW ROW_2 NEXT_ROW ROW_2
        "4:\n\t"
        SCALE
        "ldrd r8, r10, [sp, #16]\n\t"
        "lsl.w r8, r8, r7\n\t"
        "add.w r11, r12, r10\n\t"
#if RLX_BITS < 8
        "cmp r7, #255\n\t"
        "bhi.w 7f\n\t"
#endif
        "ldr.w pc, [sp, #48]\n\t"
        OUTPUTS(OUT, "5", "6")
        "10:\n\t"
        "ldr r6, [sp, #24]\n\t"
        "cmp r12, r6\n\t"
        "bne 1b\n\t"
        "ldrd r1, r2, [sp, #32]\n\t" /* to the next tile */
        "ldr r0, [sp, #8]\n\t"
        "add r0, r1\n\t"
        "str r0, [sp, #8]\n\t"
        "add r12, r2\n\t"
        "ldrd r3, r4, [sp, #40]\n\t"
        "add r6, r4\n\t"
        "str r6, [sp, #24]\n\t"
        "ldr.w lr, [sp, #28]\n\t"
        "subs r3, #1\n\t"
        "str r3, [sp, #40]\n\t"
        "bne 1b\n\t"
        "add sp, #52\n\t"
        "pop {r4-r11, pc}\n\t"
#if RLX_BITS < 8
        "7:\n\t"
        "ldr.w pc, [sp]\n\t"
        OUTPUTS(LARGE, "8", "9")
        "b.w 10b\n\t"
#endif
    );
}
#endif

#if RLX_BITS == 8
#define REQUANTIZE rlx_v7m_requantize
#else
#define REQUANTIZE rlx_v7m_requantize_any
#endif

/* The same for any kernel. */
RLX_V7M_SMALL static void run_any(const rlx_depthwise_v7m_t *p, const run_t *run, int32_t channels)
{
    const int8_t *in = run->in;
    int8_t *out = run->out;
    for (int32_t row = 0; row < run->rows; row++) {
        const int32_t *table = run->table;
        for (int32_t c = 0; c < channels; c++, in++, out++) {
            const int32_t bias = *table;
            const int32_t taps = p->k_h * p->k_w;
            const weight_t *weights = (const void *)(table + 1);
            table += table_words(taps);
            RLX_V7M_ROLLED
            for (int32_t i = 0; i < run->positions; i++) {
                const int8_t *line = in + i * run->stride * BLOCK;
                const weight_t *weight = weights;
                int32_t sum = bias;
                RLX_V7M_ROLLED
                for (int32_t ky = 0; ky < p->k_h; ky++, line += run->pitch) {
                    RLX_V7M_ROLLED
                    for (int32_t kx = 0; kx < p->k_w; kx++) {
                        sum -= line[kx * BLOCK] * *weight++;
                    }
                }
                out[i * run->step] = REQUANTIZE(sum, table[-1], weights[taps], run->c);
            }
        }
        in += run->next_in;
        out += run->next_out;
    }
}

#endif
