/* rlx_dense_v6m_s8: int8 matrix product for Armv6-M: two output channels per multiply.
 *
 * Weights without a zero point. Each row of x is computed by itself.
 *
 * A word of weights holds two channels c and c + 1 for two inputs k and k + 1, plus 128, as bytes (c, k), (c, k + 1),
 * (c + 1, k), (c + 1, k + 1). Masked with 0x00FF00FF, as it is or shifted by a byte, it gives (w0 + 128) + (w1 + 128) *
 * 2^16, which times a is the pair of products (rlx_v6m.h) plus 128 * (1 + 2^16) * a. What is too much is taken off for
 * four inputs at once, with the 2^15 of the group in it, by a word that is the same for all channels:
 *     2^15 - 128 * (1 + 2^16) * (a0 + a1 + a2 + a3).
 * All of that is modulo 2^32; what counts is that the group's true sums fit.
 *
 * Up to GROUP channels are computed together; of the inputs, CHUNK at a time are in scratch, five words for each four
 * (a block): a0, a1, the word above, a2, a3.
 *
 * Stream (int32 words), for each group of channels:
 *     lo, hi       the first values of lo and hi, for each pair of channels
 *     for each chunk of inputs, for each pair of channels: runs, then 0. A run: 20 * the number of blocks, at least one;
 *                  then two words of weights a block. A run after the first one begins with the last one's last block
 *                  again: where a sum of four products does not fit, two of the weights are in each.
 *     four words   rescale (rlx_v6m_scale_t), for each channel
 * A last channel without a partner has one that is not stored.
 *
 * The generator proves: in each group of products of each channel the sum lies in [-2^15, 2^15); |acc| < 2^24; the
 * rescale is exact.
 *
 * Scratch: a chunk's blocks, then lo and hi of a group. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_v6m.h"

enum { GROUP = 64, CHUNK = 128, TAPS = 4, BLOCK = 5 };

#if RLX_V6M_ASM

/* 22 instructions for 8 products. r0 sums, r1 r2 weights, r3 r4 activations, r5 next activations, r6 next word of the
 * stream, r7 the mask; r8 lo, r9 hi, r10 end of the run, r11 the pair's place in sums, r12 end of sums; [sp] blocks. */
#define MULTIPLY_BLOCK                                                                                                \
    "    ldmia r6!, {r1, r2}\n"                                                                                       \
    "    ldmia r5!, {r3, r4}\n"                                                                                       \
    "    movs r0, r1\n"                                                                                               \
    "    ands r0, r7\n"                                                                                               \
    "    muls r0, r3, r0\n"                                                                                           \
    "    lsrs r1, r1, #8\n"                                                                                           \
    "    ands r1, r7\n"                                                                                               \
    "    muls r1, r4, r1\n"                                                                                           \
    "    adds r0, r0, r1\n"                                                                                           \
    "    ldmia r5!, {r1, r3, r4}\n"                                                                                   \
    "    adds r0, r0, r1\n"                                                                                           \
    "    movs r1, r2\n"                                                                                               \
    "    ands r1, r7\n"                                                                                               \
    "    muls r1, r3, r1\n"                                                                                           \
    "    adds r0, r0, r1\n"                                                                                           \
    "    lsrs r2, r2, #8\n"                                                                                           \
    "    ands r2, r7\n"                                                                                               \
    "    muls r2, r4, r2\n"                                                                                           \
    "    adds r0, r0, r2\n"                                                                                           \
    "    add r8, r0\n"                                                                                                \
    "    asrs r0, r0, #16\n"                                                                                          \
    "    add r9, r0\n"

/* Adds a chunk's products to the pairs in [sums, end); returns the next word of the stream. */
RLX_V6M_NAKED static const int32_t *accumulate(RLX_V6M_UNUSED const int32_t *blocks, RLX_V6M_UNUSED const int32_t *next,
                                               RLX_V6M_UNUSED int32_t *sums, RLX_V6M_UNUSED int32_t *end)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_V6M_SAVE
                     "    adds r0, r0, #20\n"
                     "    push {r0}\n"
                     "    movs r6, r1\n"
                     "    mov r11, r2\n"
                     "    mov r12, r3\n"
                     "    ldr r7, 6f\n"
                     "1:\n" /* a pair of channels */
                     "    mov r0, r11\n"
                     "    ldmia r0!, {r1, r2}\n"
                     "    mov r8, r1\n"
                     "    mov r9, r2\n"
                     "    ldr r5, [sp]\n"
                     "2:\n" /* a run, two blocks at a time; an odd number starts with the second one */
                     "    ldmia r6!, {r0}\n"
                     "    cmp r0, #0\n"
                     "    beq 5f\n"
                     "    subs r5, r5, #20\n"
                     "    adds r1, r0, r5\n"
                     "    mov r10, r1\n"
                     "    lsls r0, r0, #30\n" /* carry: bit 2, one of the number */
                     "    bcs 4f\n"
                     "3:\n" MULTIPLY_BLOCK
                     "4:\n" MULTIPLY_BLOCK
                     "    cmp r5, r10\n"
                     "    bne 3b\n"
                     "    b 2b\n"
                     "5:\n"
                     "    mov r0, r11\n"
                     "    mov r1, r8\n"
                     "    mov r2, r9\n"
                     "    stmia r0!, {r1, r2}\n"
                     "    mov r11, r0\n"
                     "    cmp r0, r12\n"
                     "    bne 1b\n"
                     "    movs r0, r6\n"
                     "    add sp, #4\n"
                     RLX_V6M_RETURN
                     "    .balign 4\n"
                     "6:  .word 0x00FF00FF\n");
}

/* Stores the channel whose accumulator is in r0; r5 etc. as RLX_V6M_RESCALE_ says. r9 the output, r12 its end. */
#define STORE(acc)                                                                                                    \
    "    ldmia r7!, {r0, r3, r4, r5}\n"                                                                               \
    "    mov lr, r0\n"                                                                                                \
    "    mov r0, " acc "\n"                                                                                           \
    "    cmp r5, #255\n"                                                                                              \
    "    bls 7f\n" RLX_V6M_RESCALE_SHORT("r5")                                                                        \
    "    b 8f\n"                                                                                                      \
    "7:\n" RLX_V6M_RESCALE_LONG("r5")                                                                                 \
    "8:  mov r1, r9\n"                                                                                                \
    "    strb r0, [r1]\n"                                                                                             \
    "    adds r1, r1, #1\n"                                                                                           \
    "    mov r9, r1\n"                                                                                                \
    "    cmp r1, r12\n"

/* Rescales and stores outputs [out, end); returns the next word of the stream. */
RLX_V6M_NAKED static const int32_t *finish(RLX_V6M_UNUSED const int32_t *sums, RLX_V6M_UNUSED const int32_t *next,
                                           RLX_V6M_UNUSED int8_t *out, RLX_V6M_UNUSED int8_t *end)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_V6M_SAVE
                     "    mov r8, r0\n"
                     "    movs r7, r1\n"
                     "    mov r9, r2\n"
                     "    mov r12, r3\n"
                     "    ldr r6, 3f\n"
                     "1:\n"
                     "    mov r0, r8\n"
                     "    ldmia r0!, {r1, r2}\n"
                     "    mov r8, r0\n"
                     "    mov r10, r2\n"
                     "    lsls r2, r2, #16\n"
                     "    subs r1, r1, r2\n"
                     "    mov r11, r1\n" STORE("r11")
                     "    beq 2f\n" STORE("r10")
                     "    bne 1b\n"
                     "2:\n"
                     "    movs r0, r7\n"
                     RLX_V6M_RETURN
                     "    .balign 4\n"
                     "3:  .word " RLX_V6M_INNER "\n");
}

#else /* the same in C */

/* Both channels' weights of input k of two, plus 128, in 16 bits each. */
static uint32_t weights(int32_t word, int32_t k)
{
    return (uint32_t)word >> 8 * k & 0x00FF00FFu;
}

static const int32_t *accumulate(const int32_t *blocks, const int32_t *next, int32_t *sums, int32_t *end)
{
    for (; sums != end; sums += 2) {
        uint32_t lo = (uint32_t)sums[0];
        const int32_t *a = blocks + BLOCK;
        for (int32_t run = *next++; run != 0; run = *next++) {
            a -= BLOCK;
            for (const int32_t *stop = a + run / 4; a != stop; a += BLOCK, next += 2) {
                const uint32_t first = (uint32_t)a[0] * weights(next[0], 0) + (uint32_t)a[1] * weights(next[0], 1);
                const uint32_t second = (uint32_t)a[3] * weights(next[1], 0) + (uint32_t)a[4] * weights(next[1], 1);
                rlx_v6m_flush(first + (uint32_t)a[2] + second, &lo, &sums[1]);
            }
        }
        sums[0] = (int32_t)lo;
    }
    return next;
}

static const int32_t *finish(const int32_t *sums, const int32_t *next, int8_t *out, int8_t *end)
{
    for (int32_t i = 0; out + i != end; i++, next += 4) {
        const rlx_v6m_scale_t scale = {next[0], next[1], next[2], next[3]};
        const int32_t hi = sums[i | 1];
        const int32_t acc = (i & 1) != 0 ? hi : (int32_t)((uint32_t)sums[i] - ((uint32_t)hi << 16));
        out[i] = rlx_v6m_rescale(acc, &scale);
    }
    return next;
}

#endif

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Blocks of n inputs, the last one filled up with 0. */
static RLX_V6M_NOINLINE void expand(int32_t *block, const int8_t *x, int32_t n)
{
    for (; n > 0; n -= TAPS, x += TAPS, block += BLOCK) {
        block[0] = x[0];
        block[1] = n > 1 ? x[1] : 0;
        block[3] = n > 2 ? x[2] : 0;
        block[4] = n > 3 ? x[3] : 0;
        const uint32_t sum = (uint32_t)(block[0] + block[1] + block[3] + block[4]);
        block[2] = (int32_t)((1u << 15) - sum * 0x00800080u);
    }
}

/* Output channels [0, count) of a row; returns where the next group's stream begins. */
static const int32_t *group_of_row(
    const rlx_dense_v6m_t *p, const int32_t *next, const int8_t *x, int8_t *out, int32_t count, int32_t *scratch)
{
    int32_t *sums = scratch + (smaller(p->in_c, CHUNK) + TAPS - 1) / TAPS * BLOCK;
    int32_t *end = sums + (count + 1) / 2 * 2;
    for (int32_t *to = sums; to != end; to++) {
        *to = *next++;
    }
    for (int32_t k = 0; k < p->in_c; k += CHUNK) {
        expand(scratch, x + k, smaller(p->in_c - k, CHUNK));
        next = accumulate(scratch, next, sums, end);
    }
    next = finish(sums, next, out, out + count);
    if (p->low > -128 || p->high < 127) {
        for (int32_t c = 0; c < count; c++) {
            out[c] = (int8_t)(out[c] < p->low ? p->low : out[c] > p->high ? p->high : out[c]);
        }
    }
    return next;
}

void rlx_dense_v6m_s8(
    const rlx_dense_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int32_t *next = p->stream;
        int8_t *out = rlx_row(y, row);
        for (int32_t c = 0; c < p->out_c; c += GROUP) {
            next = group_of_row(p, next, rlx_row(x, row), out + c, smaller(p->out_c - c, GROUP), (int32_t *)scratch);
        }
    }
}
