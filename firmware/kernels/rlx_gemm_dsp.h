/* rlx_gemm_dsp.h: all output channels of 4 positions, the inner loops of the convolutions for DSP.
 *
 * Positions x channels are computed in tiles of 4 x 2. A step multiplies 2 values of k: SMLAD adds two int16 products.
 *
 * x      activations as int16, [steps][4 positions][2], aligned to 4
 * stream a run of int32 words per channel pair (c, d), in the order in which they are read:
 *            biases, weights step by step as below, then
 *            of c: m, K, e + 256 * (d's output address - c's);  of d: m, K, e + 256 * (next pair's address - d's)
 *        A channel may come twice (to fill the last pair): it is computed and written again.
 * out    output of position 0, first channel; the positions lie offsets[] bytes from it, offsets[0] = 0. Positions may
 *        coincide when their activations are equal.
 * Proved by the generator: rlx_dsp.h's conditions, every partial sum included, and what RLX_GEMM_WEIGHTS adds to them.
 *
 * RLX_GEMM_WEIGHTS, which a kernel's file defines, says what a step of the stream is:
 *     RLX_GEMM_S8      int8 (c k0, d k0, c k1, d k1); 13 instructions for 16 products.
 *     RLX_GEMM_S16     int16 2 * weight (c k0, c k1, d k0, d k1); 11 instructions. The biases are doubled too, so that the
 *                      accumulators are what SMMLAR wants.
 *     RLX_GEMM_JOINED  int16 (256 * d k0 + c k0, 256 * d k1 + c k1); 12 instructions. The low bytes are c's weights; the
 *                      word as it is gives D = 256 * d's accumulator + c's. The biases are c's, and 256 * d's + c's. All
 *                      of that holds modulo 2^32: with |d's accumulator| < 2^23 (proved), (D - c's) >> 8 is d's, and
 *                      as its low 8 bits are 0, >> 7 is twice d's. (SMLAD sets the flag Q on the way.)
 *
 * Registers: r0 to r7 accumulators (r0, r2, r4, r6: channel c of positions 0 to 3; r1, r3, r5, r7: d), r8, r9 weights
 * of c, d, r10, r11 activations of positions 0 and 1, then of 2 and 3, r12 x, lr stream, which runs on into the
 * scales. Later r8, r9, r10 = m, K, e, r11 = t, r12 out. All instructions of a step
 * are 32 bits wide, so that the loop can be entered at any of its steps: `skip` is what the first pass jumps back from
 * the loop's end.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_GEMM_DSP_H
#define RLX_GEMM_DSP_H

#include "rlx_dsp.h"
#include "rlx_widen_dsp.h"

#ifndef RLX_GEMM_UNROLL
#define RLX_GEMM_UNROLL 8
#endif

#define RLX_GEMM_S8 1
#define RLX_GEMM_S16 2
#define RLX_GEMM_JOINED 3

#if RLX_GEMM_WEIGHTS == RLX_GEMM_S8
enum { RLX_GEMM_STEP_WORDS = 1, RLX_GEMM_STEP_CODE = 13 * 4 };
#elif RLX_GEMM_WEIGHTS == RLX_GEMM_S16
enum { RLX_GEMM_STEP_WORDS = 2, RLX_GEMM_STEP_CODE = 11 * 4 };
#else
enum { RLX_GEMM_STEP_WORDS = 1, RLX_GEMM_STEP_CODE = 12 * 4 };
#endif
enum { RLX_GEMM_PAIR_WORDS = 8, RLX_GEMM_TOGETHER = 1 };

/* The assembly loads it in this order. */
typedef struct {
    const int16_t *x, *x_end;
    int32_t skip; /* bytes of code */
    int8_t *out;
    int32_t offsets[RLX_STEP_POSITIONS];
    const int32_t *stream_end, *stream;
} rlx_gemm_t;

static inline int32_t rlx_gemm_stream_words(int32_t steps, int32_t out_c)
{
    return (out_c + 1) / 2 * (RLX_GEMM_PAIR_WORDS + steps * RLX_GEMM_STEP_WORDS);
}

static inline int32_t rlx_gemm_skip(int32_t steps)
{
    return ((steps - 1) % RLX_GEMM_UNROLL + 1) * RLX_GEMM_STEP_CODE;
}

#if RLX_DSP

#if RLX_GEMM_WEIGHTS == RLX_GEMM_S8
#define RLX_GEMM_LOAD "ldr r8, [lr], #4\n\tldrd r10, r11, [r12], #16\n\tsxtb16 r9, r8, ror #8\n\tsxtb16 r8, r8\n\t"
#define RLX_GEMM_PART
#define RLX_GEMM_TWICE_C(acc) "lsl " acc ", " acc ", #1\n\t"
#define RLX_GEMM_TWICE_D(acc) RLX_GEMM_TWICE_C(acc)
#elif RLX_GEMM_WEIGHTS == RLX_GEMM_S16
#define RLX_GEMM_LOAD "ldrd r8, r9, [lr], #8\n\tldrd r10, r11, [r12], #16\n\t"
#define RLX_GEMM_PART
#define RLX_GEMM_TWICE_C(acc)
#define RLX_GEMM_TWICE_D(acc)
#else
#define RLX_GEMM_LOAD "ldr r9, [lr], #4\n\tldrd r10, r11, [r12], #16\n\tsxtb16 r8, r9\n\t"
#define RLX_GEMM_PART "sub r1, r1, r0\n\tsub r3, r3, r2\n\tsub r5, r5, r4\n\tsub r7, r7, r6\n\t"
#define RLX_GEMM_TWICE_C(acc) "lsl " acc ", " acc ", #1\n\t"
#define RLX_GEMM_TWICE_D(acc) "asr " acc ", " acc ", #7\n\t"
#endif

#define RLX_GEMM_REQUANTIZE(acc, address) RLX_DSP_REQUANTIZE(acc) "strb " acc ", " address "\n\t"
#define RLX_GEMM_REQUANTIZE_C(acc, address) RLX_GEMM_TWICE_C(acc) RLX_GEMM_REQUANTIZE(acc, address)
#define RLX_GEMM_REQUANTIZE_D(acc, address) RLX_GEMM_TWICE_D(acc) RLX_GEMM_REQUANTIZE(acc, address)

static RLX_NAKED void rlx_gemm_tile(const rlx_gemm_t *g __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldm r0, {r1-r10}\n\t"
        "adr.w r11, 3f\n\t"
        "sub r11, r11, r3\n\t"
        "orr r3, r11, #1\n\t" /* where the first pass enters, as a Thumb address */
        "push {r1-r9}\n\t"    /* sp: x, x_end, entry, out, offsets[4], stream_end */
        "mov lr, r10\n"
        "1:\n\t"
        "ldrd r0, r1, [lr], #8\n\t"
        "ldr r12, [sp]\n\t"
        "mov r2, r0\n\tmov r4, r0\n\tmov r6, r0\n\t"
        "mov r3, r1\n\tmov r5, r1\n\tmov r7, r1\n\t"
        "ldr pc, [sp, #8]\n"
        "2:\n\t"
        ".rept " RLX_DSP_TEXT(RLX_GEMM_UNROLL) "\n\t" RLX_GEMM_LOAD
        "smlad r0, r10, r8, r0\n\t"
        "smlad r1, r10, r9, r1\n\t"
        "smlad r2, r11, r8, r2\n\t"
        "smlad r3, r11, r9, r3\n\t"
        "ldrd r10, r11, [r12, #-8]\n\t"
        "smlad r4, r10, r8, r4\n\t"
        "smlad r5, r10, r9, r5\n\t"
        "smlad r6, r11, r8, r6\n\t"
        "smlad r7, r11, r9, r7\n\t"
        ".endr\n"
        "3:\n\t"
        "ldr r11, [sp, #4]\n\t"
        "cmp r12, r11\n\t"
        "bne.w 2b\n\t"
        RLX_GEMM_PART
        "ldm lr!, {r8, r9, r10}\n\t"
        "ldr r12, [sp, #12]\n\t"
        RLX_GEMM_REQUANTIZE_C("r0", "[r12]")
        "ldr r0, [sp, #20]\n\t"
        RLX_GEMM_REQUANTIZE_C("r2", "[r12, r0]")
        "ldr r2, [sp, #24]\n\t"
        RLX_GEMM_REQUANTIZE_C("r4", "[r12, r2]")
        "ldr r4, [sp, #28]\n\t"
        RLX_GEMM_REQUANTIZE_C("r6", "[r12, r4]")
        "add r12, r12, r10, asr #8\n\t"
        "ldm lr!, {r8, r9, r10}\n\t"
        RLX_GEMM_REQUANTIZE_D("r1", "[r12]")
        RLX_GEMM_REQUANTIZE_D("r3", "[r12, r0]")
        RLX_GEMM_REQUANTIZE_D("r5", "[r12, r2]")
        RLX_GEMM_REQUANTIZE_D("r7", "[r12, r4]")
        "add r12, r12, r10, asr #8\n\t"
        "str r12, [sp, #12]\n\t"
        "ldr r11, [sp, #32]\n\t"
        "cmp lr, r11\n\t"
        "bne.w 1b\n\t"
        "add sp, sp, #36\n\t"
        "pop {r4-r11, pc}\n\t");
}

#else

/* Both factors of a channel (0 or 1 of the pair) in a step. */
static inline void rlx_gemm_factors(const int32_t *word, int32_t channel, int32_t w[2])
{
#if RLX_GEMM_WEIGHTS == RLX_GEMM_S16
    const int32_t whole = 1;
    const uint32_t bytes = (uint32_t)word[channel];
#else
    const int32_t whole = RLX_GEMM_WEIGHTS == RLX_GEMM_JOINED && channel == 1;
    const uint32_t bytes = whole ? (uint32_t)word[0] : (uint32_t)word[0] >> (8 * channel);
#endif
    w[0] = whole ? (int16_t)(bytes & 0xFFFFu) : (int8_t)(bytes & 0xFFu);
    w[1] = whole ? (int16_t)(bytes >> 16) : (int8_t)(bytes >> 16 & 0xFFu);
}

/* What comes to be in a channel's register, modulo 2^32. */
static inline uint32_t rlx_gemm_sum(const rlx_gemm_t *g, const int32_t *pair, int32_t channel, int32_t position)
{
    uint32_t acc = (uint32_t)pair[channel];
    const int32_t *word = pair + 2;
    for (const int16_t *x = g->x + 2 * position; x < g->x_end; x += RLX_STEP_VALUES, word += RLX_GEMM_STEP_WORDS) {
        int32_t w[2];
        rlx_gemm_factors(word, channel, w);
        acc += (uint32_t)(x[0] * w[0]) + (uint32_t)(x[1] * w[1]);
    }
    return acc;
}

static int32_t rlx_gemm_accumulator(const rlx_gemm_t *g, const int32_t *pair, int32_t channel, int32_t position)
{
    const uint32_t sum = rlx_gemm_sum(g, pair, channel, position);
#if RLX_GEMM_WEIGHTS == RLX_GEMM_JOINED
    return channel == 0 ? (int32_t)sum : (int32_t)(sum - rlx_gemm_sum(g, pair, 0, position)) >> 8;
#else
    return (int32_t)sum >> (RLX_GEMM_WEIGHTS == RLX_GEMM_S16 ? 1 : 0);
#endif
}

static void rlx_gemm_tile(const rlx_gemm_t *g)
{
    const int32_t steps = (int32_t)((g->x_end - g->x) / RLX_STEP_VALUES);
    int8_t *out = g->out;
    for (const int32_t *pair = g->stream; pair != g->stream_end;) {
        const int32_t *scales = pair + 2 + steps * RLX_GEMM_STEP_WORDS;
        for (int32_t channel = 0; channel < 2; channel++, scales += 3) {
            for (int32_t i = 0; i < RLX_STEP_POSITIONS; i++) {
                const int32_t acc = rlx_gemm_accumulator(g, pair, channel, i);
                out[g->offsets[i]] = rlx_dsp_requantize(acc, scales[0], scales[1], scales[2]);
            }
            out += scales[2] >> 8;
        }
        pair = scales;
    }
}

#endif
#endif
