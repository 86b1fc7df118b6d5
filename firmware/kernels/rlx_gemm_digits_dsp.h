/* rlx_gemm_digits_dsp.h: all output channels of 4 positions with weights of 4 or 2 bits (rlx_digits_dsp.h), in the place
 * of rlx_gemm_dsp.h.
 *
 * Positions x channels are computed in tiles of 2 x 4. Two steps, each of 2 values of k, take 25 instructions (27 with 2
 * bits) for 32 products.
 *
 * x      activations as int16, [steps][4 positions][2], aligned to 4. The number of steps is even; there the weights are
 *        0, and x may be anything that its sum counts, too.
 * out    output of position 0, first channel; the positions lie offsets[] bytes from it, offsets[0] = 0. Positions may
 *        coincide when their activations are equal.
 *
 * Registers: r0 to r7 A0 to A3 (r0, r2, r4, r6: the first position's; r1, r3, r5, r7: the second one's), r8, r9 weights,
 * r10, r11 activations, r12 x, lr stream, which runs on into the scales. Later r8 = m, r9 = K, r10 = e, r11 for a sum, r12
 * out. All instructions of a step are 32 bits wide, so that the loop can be entered at any two steps: `skip` is what the
 * first pass jumps back from the loop's end.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_GEMM_DIGITS_DSP_H
#define RLX_GEMM_DIGITS_DSP_H

#include "rlx_digits_dsp.h"
#include "rlx_widen_dsp.h"

#define RLX_GEMM_UNROLL 4 /* times 2 steps */

enum {
    RLX_GEMM_TOGETHER = 2, /* steps */
    RLX_GEMM_STEPS_CODE = (RLX_DIGITS_LOADS + RLX_GEMM_TOGETHER * 12) * 4,
    RLX_GEMM_QUAD_WORDS = RLX_DIGIT_CHANNELS + 6, /* beside the weights */
};

typedef struct {
    const int16_t *x, *x_end;
    int32_t skip; /* bytes of code */
    int8_t *out;
    int32_t offsets[RLX_STEP_POSITIONS];
    const int32_t *stream_end, *stream;
} rlx_gemm_t;

/* 2 of the positions. The assembly loads it in this order. */
typedef struct {
    const int16_t *x, *x_end;
    int32_t skip;
    int8_t *out;
    int32_t offset;
    int32_t sums[2]; /* of all x, times RLX_DIGIT_OFFSET */
    int32_t two_zp;
    const int32_t *stream_end, *stream;
} rlx_gemm_half_t;

static inline int32_t rlx_gemm_stream_words(int32_t steps, int32_t out_c)
{
    const int32_t quads = (out_c + RLX_DIGIT_CHANNELS - 1) / RLX_DIGIT_CHANNELS;
    return 1 + quads * (RLX_GEMM_QUAD_WORDS + steps / 2 * RLX_DIGIT_WORDS);
}

static inline int32_t rlx_gemm_skip(int32_t steps)
{
    return ((steps / RLX_GEMM_TOGETHER - 1) % RLX_GEMM_UNROLL + 1) * RLX_GEMM_STEPS_CODE;
}

#if RLX_DSP

#define RLX_GEMM_STEP(w) \
    "ldrd r10, r11, [r12], #16\n\t" \
    "smlad r6, r10, " w ", r6\n\tsmlad r7, r11, " w ", r7\n\t" RLX_DIGITS_CLEAR_3(w) \
    "smlad r4, r10, " w ", r4\n\tsmlad r5, r11, " w ", r5\n\t" RLX_DIGITS_CLEAR_2(w) \
    "smlad r2, r10, " w ", r2\n\tsmlad r3, r11, " w ", r3\n\t" RLX_DIGITS_CLEAR_1(w) \
    "smlad r0, r10, " w ", r0\n\tsmlad r1, r11, " w ", r1\n\t"

/* m lies at lr, e behind all multipliers; once position 0's output is stored, r0 is the distance to position 1's. */
#define RLX_GEMM_CHANNEL(acc_0, acc_1, e, offset) \
    "ldr r8, [lr], #4\n\t" \
    "ldrh r10, [lr, #" e "]\n\t" \
    "ldr r9, [sp, #28]\n\t" \
    "lsl r9, r9, r10\n\t" \
    RLX_DIGITS_REQUANTIZE(acc_0) "strb " acc_0 ", [r12]\n\t" offset \
    RLX_DIGITS_REQUANTIZE(acc_1) "strb " acc_1 ", [r12, r0]\n\t" \
    "add r12, r12, r10, lsr #8\n\t"

static RLX_NAKED void rlx_gemm_half(const rlx_gemm_half_t *g __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldm r0, {r1-r10}\n\t"
        "adr.w r11, 3f\n\t"
        "sub r11, r11, r3\n\t"
        "orr r3, r11, #1\n\t" /* where the first pass enters, as a Thumb address */
        "push {r1-r9}\n\t"    /* sp: x, x_end, entry, out, offset, sums[2], two_zp, stream_end */
        "mov lr, r10\n"
        "1:\n\t"
        "ldm lr!, {r0, r2, r4, r6}\n\t"
        "ldr r12, [sp]\n\t"
        "mov r1, r0\n\tmov r3, r2\n\tmov r5, r4\n\tmov r7, r6\n\t"
        "ldr pc, [sp, #8]\n"
        "2:\n\t"
        ".rept " RLX_DSP_TEXT(RLX_GEMM_UNROLL) "\n\t"
        RLX_DIGITS_LOAD("r8", "r9")
        RLX_DIGITS_FIRST("r8", "r9") RLX_GEMM_STEP("r8")
        RLX_DIGITS_SECOND("r9") RLX_GEMM_STEP("r9")
        ".endr\n"
        "3:\n\t"
        "ldr r11, [sp, #4]\n\t"
        "cmp r12, r11\n\t"
        "bne.w 2b\n\t"
        "sub r6, r6, r4\n\tsub r7, r7, r5\n\t"
        "sub r4, r4, r2\n\tsub r5, r5, r3\n\t"
        "sub r2, r2, r0\n\tsub r3, r3, r1\n\t"
        "ldrd r8, r9, [sp, #20]\n\t"
        "mov r0, r0, " RLX_DIGITS_TWICE_0 "\n\tmov r1, r1, " RLX_DIGITS_TWICE_0 "\n\t"
        "rsb r2, r8, r2, " RLX_DIGITS_TWICE_1 "\n\trsb r3, r9, r3, " RLX_DIGITS_TWICE_1 "\n\t"
        "rsb r4, r8, r4, " RLX_DIGITS_TWICE_2 "\n\trsb r5, r9, r5, " RLX_DIGITS_TWICE_2 "\n\t"
        "rsb r6, r8, r6, " RLX_DIGITS_TWICE_3 "\n\trsb r7, r9, r7, " RLX_DIGITS_TWICE_3 "\n\t"
        "ldr r12, [sp, #12]\n\t"
        RLX_GEMM_CHANNEL("r0", "r1", "12", "ldr r0, [sp, #16]\n\t")
        RLX_GEMM_CHANNEL("r2", "r3", "10", "")
        RLX_GEMM_CHANNEL("r4", "r5", "8", "")
        RLX_GEMM_CHANNEL("r6", "r7", "6", "")
        "add lr, lr, #8\n\t"
        "str r12, [sp, #12]\n\t"
        "ldr r11, [sp, #32]\n\t"
        "cmp lr, r11\n\t"
        "bne.w 1b\n\t"
        "add sp, sp, #36\n\t"
        "pop {r4-r11, pc}\n\t");
}

/* The sums of each position's x. steps is even.
 * Registers: r4 to r7 activations, r8 to r11 sums, r3 ones. */
static RLX_NAKED void rlx_gemm_sums(
    const int16_t *x __attribute__((unused)), const int16_t *x_end __attribute__((unused)),
    int32_t sums[RLX_STEP_POSITIONS] __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "mov r3, #0x00010001\n\t"
        "movs r8, #0\n\tmovs r9, #0\n\tmovs r10, #0\n\tmovs r11, #0\n"
        "1:\n\t"
        ".rept 2\n\t"
        "ldm r0!, {r4-r7}\n\t"
        "smlad r8, r4, r3, r8\n\t"
        "smlad r9, r5, r3, r9\n\t"
        "smlad r10, r6, r3, r10\n\t"
        "smlad r11, r7, r3, r11\n\t"
        ".endr\n\t"
        "cmp r0, r1\n\t"
        "bne 1b\n\t"
        "stm r2, {r8-r11}\n\t"
        "pop {r4-r11, pc}\n\t");
}

#else

static void rlx_gemm_sums(const int16_t *x, const int16_t *x_end, int32_t sums[RLX_STEP_POSITIONS])
{
    for (int32_t p = 0; p < RLX_STEP_POSITIONS; p++) {
        sums[p] = 0;
        for (const int16_t *v = x + 2 * p; v < x_end; v += RLX_STEP_VALUES) {
            sums[p] += v[0] + v[1];
        }
    }
}

/* A0 to A3 of a position, modulo 2^32. */
static void rlx_gemm_add(const rlx_gemm_half_t *g, const int32_t *quad, int32_t position, uint32_t a[RLX_DIGIT_CHANNELS])
{
    for (int32_t c = 0; c < RLX_DIGIT_CHANNELS; c++) {
        const int32_t *word = quad + RLX_DIGIT_CHANNELS;
        a[c] = (uint32_t)quad[c];
        for (const int16_t *x = g->x + 2 * position; x < g->x_end; word += RLX_DIGIT_WORDS) {
            for (int32_t step = 0; step < RLX_GEMM_TOGETHER; step++, x += RLX_STEP_VALUES) {
                a[c] += (uint32_t)(x[0] * rlx_digits_from(rlx_digits_number(word, step, 0), c));
                a[c] += (uint32_t)(x[1] * rlx_digits_from(rlx_digits_number(word, step, 1), c));
            }
        }
    }
}

static void rlx_gemm_half(const rlx_gemm_half_t *g)
{
    const int32_t steps = (int32_t)((g->x_end - g->x) / RLX_STEP_VALUES);
    int8_t *out = g->out;
    for (const int32_t *quad = g->stream; quad != g->stream_end;) {
        const int32_t *scales = quad + RLX_DIGIT_CHANNELS + steps / 2 * RLX_DIGIT_WORDS;
        uint32_t a[2][RLX_DIGIT_CHANNELS];
        rlx_gemm_add(g, quad, 0, a[0]);
        rlx_gemm_add(g, quad, 1, a[1]);
        for (int32_t c = 0; c < RLX_DIGIT_CHANNELS; c++) {
            const int32_t e_word = rlx_digits_e_word(scales, RLX_DIGIT_CHANNELS, c);
            const int32_t k = rlx_digits_offset(g->two_zp, e_word);
            for (int32_t i = 0; i < 2; i++) {
                const int32_t acc = rlx_digits_accumulator(a[i], c, g->sums[i] / RLX_DIGIT_OFFSET);
                out[i * g->offset] = rlx_dsp_requantize_doubled(acc, scales[c], k, e_word);
            }
            out += e_word >> 8;
        }
        quad = scales + 6;
    }
}

#endif

/* Positions 2 and 3 are left out where they are position 1 again. */
static __attribute__((noinline)) void rlx_gemm_tile(const rlx_gemm_t *g)
{
    int32_t sums[RLX_STEP_POSITIONS];
    rlx_gemm_sums(g->x, g->x_end, sums);
    rlx_gemm_half_t half;
    half.skip = g->skip;
    half.two_zp = g->stream[0];
    half.stream_end = g->stream_end;
    half.stream = g->stream + 1;
    for (int32_t i = 0; i < RLX_STEP_POSITIONS; i += 2) {
        half.x = g->x + 2 * i;
        half.x_end = g->x_end + 2 * i;
        half.out = g->out + g->offsets[i];
        half.offset = g->offsets[i + 1] - g->offsets[i];
        half.sums[0] = sums[i] * RLX_DIGIT_OFFSET;
        half.sums[1] = sums[i + 1] * RLX_DIGIT_OFFSET;
        rlx_gemm_half(&half);
        if (g->offsets[2] == g->offsets[1]) {
            break;
        }
    }
}

#endif
