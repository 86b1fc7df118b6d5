/* rlx_gemm_dsp.h: all output channels of 4 positions, the inner loops of the convolutions for DSP.
 *
 * Positions x channels are computed in tiles of 4 x 2. A step multiplies 2 values of k: SMLAD adds two int16 products.
 *
 * x      activations as int16, [steps][4 positions][2], aligned to 4
 * stream a run of int32 words per channel pair (c, d), in the order in which they are read:
 *            bias of c, bias of d
 *            per step: int8 weights (c k0, d k0, c k1, d k1); with RLX_GEMM_W16 int16 2 * weight (c k0, c k1, d k0, d k1)
 *            of c: m, K, e + 256 * (d's output address - c's);  of d: m, K, e + 256 * (next pair's address - d's)
 *        With RLX_GEMM_W16 the bias is doubled too, so that the accumulator holds what SMMLAR wants.
 *        A channel may come twice (to fill the last pair): it is computed and written again.
 * out    output of position 0, first channel; the positions lie offsets[] bytes from it, offsets[0] = 0. Positions may
 *        coincide when their activations are equal.
 * Proved by the generator: rlx_dsp.h's conditions; no partial sum of (doubled) products overflows.
 *
 * Registers: r0 to r7 accumulators (r0, r2, r4, r6: channel c of positions 0 to 3; r1, r3, r5, r7: d), r8, r9 weights,
 * r10, r11 activations, r12 x, lr stream. Later r8, r9, r10 = m, K, e, r11 = t, r12 out. All instructions of a step
 * are 32 bits wide, so that the loop can be entered at any of its steps: `skip` is what the first pass jumps back from
 * the loop's end.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_GEMM_DSP_H
#define RLX_GEMM_DSP_H

#include "rlx_dsp.h"
#include "rlx_widen_dsp.h"

#if defined(RLX_GEMM_W16)
enum { RLX_GEMM_STEP_WORDS = 2, RLX_GEMM_STEP_CODE = 11 * 4, RLX_GEMM_DOUBLED = 1 };
#else
enum { RLX_GEMM_STEP_WORDS = 1, RLX_GEMM_STEP_CODE = 13 * 4, RLX_GEMM_DOUBLED = 0 };
#endif
#define RLX_GEMM_UNROLL 8
enum { RLX_GEMM_PAIR_WORDS = 8 };

/* The assembly loads it in this order. */
typedef struct {
    const int16_t *x, *x_end;
    int32_t skip; /* bytes of code */
    int8_t *out;
    int32_t offsets[RLX_STEP_POSITIONS];
    const int32_t *stream_end, *stream;
} rlx_gemm_t;

static inline int32_t rlx_gemm_skip(int32_t steps)
{
    return ((steps - 1) % RLX_GEMM_UNROLL + 1) * RLX_GEMM_STEP_CODE;
}

#if RLX_DSP

#if defined(RLX_GEMM_W16)
#define RLX_GEMM_WEIGHTS "ldrd r8, r9, [lr], #8\n\tldrd r10, r11, [r12], #16\n\t"
#define RLX_GEMM_DOUBLE(acc)
#else
#define RLX_GEMM_WEIGHTS \
    "ldr r8, [lr], #4\n\tldrd r10, r11, [r12], #16\n\tsxtb16 r9, r8, ror #8\n\tsxtb16 r8, r8\n\t"
#define RLX_GEMM_DOUBLE(acc) "lsl " acc ", " acc ", #1\n\t"
#endif

#define RLX_GEMM_REQUANTIZE(acc, address) \
    RLX_GEMM_DOUBLE(acc) \
    "add r11, r9, " acc ", asr #31\n\tsmmlar " acc ", " acc ", r8, r11\n\tasr " acc ", " acc ", r10\n\t" \
    "ssat " acc ", #8, " acc "\n\tstrb " acc ", " address "\n\t"

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
        ".rept " RLX_DSP_TEXT(RLX_GEMM_UNROLL) "\n\t" RLX_GEMM_WEIGHTS
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
        "ldm lr!, {r8, r9, r10}\n\t"
        "ldr r12, [sp, #12]\n\t"
        RLX_GEMM_REQUANTIZE("r0", "[r12]")
        "ldr r0, [sp, #20]\n\t"
        RLX_GEMM_REQUANTIZE("r2", "[r12, r0]")
        "ldr r2, [sp, #24]\n\t"
        RLX_GEMM_REQUANTIZE("r4", "[r12, r2]")
        "ldr r4, [sp, #28]\n\t"
        RLX_GEMM_REQUANTIZE("r6", "[r12, r4]")
        "add r12, r12, r10, asr #8\n\t"
        "ldm lr!, {r8, r9, r10}\n\t"
        RLX_GEMM_REQUANTIZE("r1", "[r12]")
        RLX_GEMM_REQUANTIZE("r3", "[r12, r0]")
        RLX_GEMM_REQUANTIZE("r5", "[r12, r2]")
        RLX_GEMM_REQUANTIZE("r7", "[r12, r4]")
        "add r12, r12, r10, asr #8\n\t"
        "str r12, [sp, #12]\n\t"
        "ldr r11, [sp, #32]\n\t"
        "cmp lr, r11\n\t"
        "bne.w 1b\n\t"
        "add sp, sp, #36\n\t"
        "pop {r4-r11, pc}\n\t");
}

#else

/* Both weights of a channel in a step: channel 0 or 1 of the pair. */
static inline void rlx_gemm_weights(const int32_t *word, int32_t channel, int32_t w[2])
{
#if defined(RLX_GEMM_W16)
    w[0] = (int16_t)((uint32_t)word[channel] & 0xFFFFu);
    w[1] = (int16_t)((uint32_t)word[channel] >> 16);
#else
    const uint32_t bytes = (uint32_t)word[0] >> (8 * channel);
    w[0] = (int8_t)(bytes & 0xFFu);
    w[1] = (int8_t)(bytes >> 16 & 0xFFu);
#endif
}

static void rlx_gemm_tile(const rlx_gemm_t *g)
{
    const int32_t steps = (int32_t)((g->x_end - g->x) / RLX_STEP_VALUES);
    int8_t *out = g->out;
    for (const int32_t *pair = g->stream; pair != g->stream_end;) {
        const int32_t *weights = pair + 2;
        const int32_t *scales = weights + steps * RLX_GEMM_STEP_WORDS;
        for (int32_t channel = 0; channel < 2; channel++, scales += 3) {
            for (int32_t i = 0; i < RLX_STEP_POSITIONS; i++) {
                int32_t acc = pair[channel];
                for (int32_t s = 0; s < steps; s++) {
                    const int16_t *x = g->x + s * RLX_STEP_VALUES + 2 * i;
                    int32_t w[2];
                    rlx_gemm_weights(weights + s * RLX_GEMM_STEP_WORDS, channel, w);
                    acc += x[0] * w[0] + x[1] * w[1];
                }
                out[g->offsets[i]] = rlx_dsp_requantize(acc >> RLX_GEMM_DOUBLED, scales[0], scales[1], scales[2]);
            }
            out += scales[2] >> 8;
        }
        pair = scales;
    }
}

#endif
#endif
