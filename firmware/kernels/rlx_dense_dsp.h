/* rlx_dense_dsp.h: the matrix product for DSP, 4 output channels at a time.
 *
 * A row of x is widened to int16 first: of each 4 values (k0, k2), (k1, k3), zeros after the last one.
 * stream: a run of int32 words per 4 channels, in the order in which they are read:
 *     4 biases
 *     per 4 values of k: a word of int8 weights (k0, k1, k2, k3) for each of the 4 channels
 *     unless RLX_DENSE_ONE_SCALE: 4 times m, K, e + 256 * (next channel's output address - this one's); rlx_dsp.h
 *
 * Registers: r0 to r3 accumulators, r4 to r7 weights, r8, r9 x, r10, r11 widened weights, r12 x's address, lr stream.
 * Later r8, r9, r10 = m, K, e, r11 = t, r12 out. All instructions of a group of 4 values are 32 bits wide, so that the
 * loop can be entered at any of its groups: `skip` is what the first pass jumps back from the loop's end.
 *
 * A kernel's file defines RLX_DENSE_ONE_SCALE (0 or 1) and RLX_DENSE_UNROLL (a power of two) and includes this.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_DSP_H
#define RLX_DENSE_DSP_H

#include "rlx_dsp.h"
#include "rlx_kernels.h"

enum { RLX_DENSE_CHANNELS = 4, RLX_DENSE_VALUES = 4, RLX_DENSE_CODE = 18 * 4 };

/* The assembly loads it in this order. */
typedef struct {
    const int16_t *x, *x_end;
    int32_t skip; /* bytes of code */
    const int32_t *stream_end, *stream;
    int8_t *out;
#if RLX_DENSE_ONE_SCALE
    int32_t m, k, e;
#endif
} rlx_dense_product_t;

#if RLX_DSP

#define RLX_DENSE_ROUND(acc) \
    "lsl " acc ", " acc ", #1\n\tadd r11, r9, " acc ", asr #31\n\tsmmlar " acc ", " acc ", r8, r11\n\t" \
    "asr " acc ", " acc ", r10\n\tssat " acc ", #8, " acc "\n\t"
#if RLX_DENSE_ONE_SCALE
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r9}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r4, r6-r9}\n" /* sp: x, x_end, entry, stream_end, out, m, K, e */
#define RLX_DENSE_DROP "add sp, sp, #32\n\t"
#define RLX_DENSE_SCALE "ldrd r8, r9, [sp, #20]\n\tldr r10, [sp, #28]\n\t"
#define RLX_DENSE_REQUANTIZE(acc) RLX_DENSE_ROUND(acc) "strb " acc ", [r12], #1\n\t"
#else
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r6}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r4, r6}\n" /* sp: x, x_end, entry, stream_end, out */
#define RLX_DENSE_DROP "add sp, sp, #20\n\t"
#define RLX_DENSE_SCALE
#define RLX_DENSE_REQUANTIZE(acc) \
    "ldm lr!, {r8, r9, r10}\n\t" RLX_DENSE_ROUND(acc) "strb " acc ", [r12]\n\tadd r12, r12, r10, asr #8\n\t"
#endif
#define RLX_DENSE_TWO_CHANNELS(acc0, acc1, w0, w1) \
    "sxtb16 r10, " w0 "\n\tsxtb16 " w0 ", " w0 ", ror #8\n\tsxtb16 r11, " w1 "\n\tsxtb16 " w1 ", " w1 ", ror #8\n\t" \
    "smlad " acc0 ", r10, r8, " acc0 "\n\tsmlad " acc1 ", r11, r8, " acc1 "\n\t" \
    "smlad " acc0 ", " w0 ", r9, " acc0 "\n\tsmlad " acc1 ", " w1 ", r9, " acc1 "\n\t"

static RLX_NAKED void rlx_dense_multiply(const rlx_dense_product_t *g __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        RLX_DENSE_ARGUMENTS
        "adr.w r10, 3f\n\t"
        "sub r10, r10, r3\n\t"
        "orr r3, r10, #1\n\t" /* where the first pass enters, as a Thumb address */
        "mov lr, r5\n\t"
        RLX_DENSE_LOCALS
        "1:\n\t"
        "ldm lr!, {r0-r3}\n\t"
        "ldr r12, [sp]\n\t"
        "ldr pc, [sp, #8]\n"
        "2:\n\t"
        ".rept " RLX_DSP_TEXT(RLX_DENSE_UNROLL) "\n\t"
        "ldm.w lr!, {r4-r7}\n\t"
        "ldrd r8, r9, [r12], #8\n\t"
        RLX_DENSE_TWO_CHANNELS("r0", "r1", "r4", "r5")
        RLX_DENSE_TWO_CHANNELS("r2", "r3", "r6", "r7")
        ".endr\n"
        "3:\n\t"
        "ldr r4, [sp, #4]\n\t"
        "cmp r12, r4\n\t"
        "bne.w 2b\n\t"
        "ldr r12, [sp, #16]\n\t"
        RLX_DENSE_SCALE
        RLX_DENSE_REQUANTIZE("r0")
        RLX_DENSE_REQUANTIZE("r1")
        RLX_DENSE_REQUANTIZE("r2")
        RLX_DENSE_REQUANTIZE("r3")
        "str r12, [sp, #16]\n\t"
        "ldr r4, [sp, #12]\n\t"
        "cmp lr, r4\n\t"
        "bne.w 1b\n\t"
        RLX_DENSE_DROP
        "pop {r4-r11, pc}\n\t");
}

#else

static void rlx_dense_multiply(const rlx_dense_product_t *g)
{
    const int32_t groups = (int32_t)(g->x_end - g->x) / RLX_DENSE_VALUES;
    int8_t *out = g->out;
    for (const int32_t *bias = g->stream; bias != g->stream_end;) {
        const int32_t *next = bias + RLX_DENSE_CHANNELS + groups * RLX_DENSE_CHANNELS;
        for (int32_t channel = 0; channel < RLX_DENSE_CHANNELS; channel++) {
            int32_t acc = bias[channel];
            for (int32_t i = 0; i < groups; i++) {
                const int16_t *x = g->x + i * RLX_DENSE_VALUES;
                const uint32_t w = (uint32_t)bias[RLX_DENSE_CHANNELS + i * RLX_DENSE_CHANNELS + channel];
                acc += x[0] * (int8_t)(w & 0xFFu) + x[1] * (int8_t)(w >> 16 & 0xFFu);
                acc += x[2] * (int8_t)(w >> 8 & 0xFFu) + x[3] * (int8_t)(w >> 24);
            }
#if RLX_DENSE_ONE_SCALE
            *out++ = rlx_dsp_requantize(acc, g->m, g->k, g->e);
#else
            *out = rlx_dsp_requantize(acc, next[0], next[1], next[2]);
            out += next[2] >> 8;
            next += 3;
#endif
        }
        bias = next;
    }
}

#endif

static void rlx_dense_widen(int16_t *d, const int8_t *x, int32_t n)
{
    for (; n >= RLX_DENSE_VALUES; n -= RLX_DENSE_VALUES, x += RLX_DENSE_VALUES, d += RLX_DENSE_VALUES) {
        rlx_dsp_widen(d, 2, x);
    }
    if (n > 0) {
        d[0] = x[0];
        d[1] = n > 2 ? x[2] : 0;
        d[2] = n > 1 ? x[1] : 0;
        d[3] = 0;
    }
}

#endif
