/* rlx_dense_dsp.h: the matrix product for DSP, 4 output channels at a time, for a row of x as it lies in memory.
 *
 * Of each 4 values of k a word of x gives (k0, k2) and (k1, k3) as int16. The last 1 to 4 values are copied to a word of
 * their own, zeros behind them, so that nothing is read behind x.
 * stream: a run of int32 words per 4 channels (c, d, e, f), in the order in which they are read:
 *     4 biases
 *     per 4 values of k 4 words, as RLX_DENSE_JOINED says, which a kernel's file defines:
 *         0  int8 (k0, k1, k2, k3) of each of the 4 channels; 20 instructions for 16 products.
 *         1  int16 256 * d's weight + c's: (k0, k2), (k1, k3), and the same of f and e; 16 instructions. The biases are
 *            c's, 256 * d's + c's, e's, 256 * f's + e's. rlx_gemm_dsp.h says why that is exact.
 *     unless RLX_DENSE_ONE_SCALE: 4 times m, K, e + 256 * (next channel's output address - this one's); rlx_dsp.h
 * The generator proves: weights without zero point; |accumulator| < 2^30, every partial sum included; right shifts of
 * 1 to 31 with K and K + h in int32.
 * Reads a row of x until all of the row of y is written: a row of x and the same row of y must not overlap.
 *
 * Registers: r0 to r3 accumulators, r4 to r7 weights, r8, r9 x, r10 weights of (k0, k2), r11 x's end, r12 x's address,
 * lr stream. Later r8, r9, r10 = m, K, e, r11 = t, r12 out. All instructions of a group of 4 values are 32 bits wide, so
 * that the loop can be entered at any of its groups: `skip` is what the first pass jumps back from the loop's end.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_DSP_H
#define RLX_DENSE_DSP_H

#include "rlx_dsp.h"
#include "rlx_kernels.h"

#define RLX_DENSE_UNROLL 8
enum { RLX_DENSE_CHANNELS = 4, RLX_DENSE_VALUES = 4, RLX_DENSE_CODE = (RLX_DENSE_JOINED ? 16 : 20) * 4 };

/* The assembly loads it in this order. */
typedef struct {
    const int8_t *x, *x_end; /* all groups of 4 values but the last */
    int32_t skip;            /* bytes of code */
    int8_t last[RLX_DENSE_VALUES];
    const int32_t *stream_end, *stream;
    int8_t *out;
#if RLX_DENSE_ONE_SCALE
    int32_t m, k, e;
#endif
} rlx_dense_product_t;

#if RLX_DSP

#if RLX_DENSE_JOINED
#define RLX_DENSE_PAIR(c, d, w, x) \
    "smlad " d ", " w ", " x ", " d "\n\tsxtb16 " w ", " w "\n\tsmlad " c ", " w ", " x ", " c "\n\t"
#define RLX_DENSE_PRODUCTS \
    RLX_DENSE_PAIR("r0", "r1", "r4", "r9") RLX_DENSE_PAIR("r0", "r1", "r5", "r8") \
    RLX_DENSE_PAIR("r2", "r3", "r6", "r9") RLX_DENSE_PAIR("r2", "r3", "r7", "r8")
#define RLX_DENSE_PART "sub r1, r1, r0\n\tsub r3, r3, r2\n\t"
#define RLX_DENSE_TWICE_SECOND(acc) "asr " acc ", " acc ", #7\n\t"
#else
#define RLX_DENSE_CHANNEL(acc, w) \
    "sxtb16 r10, " w "\n\tsxtb16 " w ", " w ", ror #8\n\t" \
    "smlad " acc ", r10, r9, " acc "\n\tsmlad " acc ", " w ", r8, " acc "\n\t"
#define RLX_DENSE_PRODUCTS \
    RLX_DENSE_CHANNEL("r0", "r4") RLX_DENSE_CHANNEL("r1", "r5") \
    RLX_DENSE_CHANNEL("r2", "r6") RLX_DENSE_CHANNEL("r3", "r7")
#define RLX_DENSE_PART
#define RLX_DENSE_TWICE_SECOND(acc) RLX_DENSE_TWICE(acc)
#endif
#define RLX_DENSE_TWICE(acc) "lsl " acc ", " acc ", #1\n\t"
#define RLX_DENSE_GROUP "ldm lr!, {r4-r7}\n\tsxtb16 r9, r8\n\tsxtb16 r8, r8, ror #8\n\t" RLX_DENSE_PRODUCTS

/* sp: x, x_end, entry, last, stream_end, out, and with one scale m, K, e */
#if RLX_DENSE_ONE_SCALE
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r10}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r5, r7-r10}\n\t"
#define RLX_DENSE_DROP "add sp, sp, #36\n\t"
#define RLX_DENSE_SCALES "ldr r12, [sp, #20]\n\tldrd r8, r9, [sp, #24]\n\tldr r10, [sp, #32]\n\t"
#define RLX_DENSE_SCALE
#define RLX_DENSE_STORE(acc) "strb " acc ", [r12], #1\n\t"
#else
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r7}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r5, r7}\n\t"
#define RLX_DENSE_DROP "add sp, sp, #24\n\t"
#define RLX_DENSE_SCALES "ldr r12, [sp, #20]\n\t"
#define RLX_DENSE_SCALE "ldm lr!, {r8, r9, r10}\n\t"
#define RLX_DENSE_STORE(acc) "strb " acc ", [r12]\n\tadd r12, r12, r10, asr #8\n\t"
#endif
#define RLX_DENSE_REQUANTIZE(acc) RLX_DSP_REQUANTIZE(acc) RLX_DENSE_STORE(acc)

static RLX_NAKED void rlx_dense_multiply(const rlx_dense_product_t *g __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        RLX_DENSE_ARGUMENTS
        "adr.w r0, 3f\n\t"
        "sub r0, r0, r3\n\t"
        "orr r3, r0, #1\n\t" /* where the first pass enters, as a Thumb address */
        "mov lr, r6\n\t"
        RLX_DENSE_LOCALS
        "1:\n\t"
        "ldm lr!, {r0-r3}\n\t"
        "ldrd r12, r11, [sp]\n\t"
        "ldr pc, [sp, #8]\n"
        "2:\n\t"
        ".rept " RLX_DSP_TEXT(RLX_DENSE_UNROLL) "\n\t"
        "ldr r8, [r12], #4\n\t"
        RLX_DENSE_GROUP
        ".endr\n"
        "3:\n\t"
        "cmp r12, r11\n\t"
        "bne.w 2b\n\t"
        "ldr r8, [sp, #12]\n\t"
        RLX_DENSE_GROUP
        RLX_DENSE_PART
        RLX_DENSE_SCALES
        RLX_DENSE_SCALE RLX_DENSE_TWICE("r0") RLX_DENSE_REQUANTIZE("r0")
        RLX_DENSE_SCALE RLX_DENSE_TWICE_SECOND("r1") RLX_DENSE_REQUANTIZE("r1")
        RLX_DENSE_SCALE RLX_DENSE_TWICE("r2") RLX_DENSE_REQUANTIZE("r2")
        RLX_DENSE_SCALE RLX_DENSE_TWICE_SECOND("r3") RLX_DENSE_REQUANTIZE("r3")
        "str r12, [sp, #20]\n\t"
        "ldr r11, [sp, #16]\n\t"
        "cmp lr, r11\n\t"
        "bne.w 1b\n\t"
        RLX_DENSE_DROP
        "pop {r4-r11, pc}\n\t");
}

#else

/* What 4 values of k add to a channel's register: modulo 2^32. */
static inline uint32_t rlx_dense_products(const int32_t *word, int32_t channel, const int8_t *x)
{
#if RLX_DENSE_JOINED
    word += channel / 2 * 2; /* (k0, k2), (k1, k3) of the pair */
    uint32_t sum = 0;
    for (int32_t i = 0; i < RLX_DENSE_VALUES; i++) {
        const uint32_t joined = (uint32_t)word[i % 2] >> (16 * (i / 2));
        sum += (uint32_t)(x[i] * (channel % 2 == 0 ? (int8_t)(joined & 0xFFu) : (int16_t)(joined & 0xFFFFu)));
    }
    return sum;
#else
    uint32_t sum = 0;
    for (int32_t i = 0; i < RLX_DENSE_VALUES; i++) {
        sum += (uint32_t)(x[i] * (int8_t)((uint32_t)word[channel] >> (8 * i) & 0xFFu));
    }
    return sum;
#endif
}

static uint32_t rlx_dense_sum(const rlx_dense_product_t *g, const int32_t *bias, int32_t channel)
{
    const int32_t *word = bias + RLX_DENSE_CHANNELS;
    uint32_t sum = (uint32_t)bias[channel];
    for (const int8_t *x = g->x; x != g->x_end; x += RLX_DENSE_VALUES, word += RLX_DENSE_CHANNELS) {
        sum += rlx_dense_products(word, channel, x);
    }
    return sum + rlx_dense_products(word, channel, g->last);
}

static void rlx_dense_multiply(const rlx_dense_product_t *g)
{
    const int32_t groups = (int32_t)(g->x_end - g->x) / RLX_DENSE_VALUES + 1;
    int8_t *out = g->out;
    for (const int32_t *bias = g->stream; bias != g->stream_end;) {
        const int32_t *next = bias + RLX_DENSE_CHANNELS * (1 + groups);
        for (int32_t channel = 0; channel < RLX_DENSE_CHANNELS; channel++) {
            const uint32_t sum = rlx_dense_sum(g, bias, channel);
            int32_t acc = (int32_t)sum;
            if (RLX_DENSE_JOINED && channel % 2 == 1) {
                acc = (int32_t)(sum - rlx_dense_sum(g, bias, channel - 1)) >> 8;
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

/* The groups of a row of n values. */
static inline void rlx_dense_row(rlx_dense_product_t *g, const int8_t *x, int32_t n)
{
    const int32_t groups = (n - 1) / RLX_DENSE_VALUES; /* but the last */
    g->x = x;
    g->x_end = x + groups * RLX_DENSE_VALUES;
    g->skip = groups == 0 ? 0 : ((groups - 1) % RLX_DENSE_UNROLL + 1) * RLX_DENSE_CODE;
    for (int32_t i = 0; i < RLX_DENSE_VALUES; i++) {
        g->last[i] = groups * RLX_DENSE_VALUES + i < n ? g->x_end[i] : 0;
    }
}

/* int32 words of the stream for 4 channels without their scales. */
static inline int32_t rlx_dense_quad_words(int32_t n)
{
    return RLX_DENSE_CHANNELS * (1 + (n + RLX_DENSE_VALUES - 1) / RLX_DENSE_VALUES);
}

#if !RLX_DENSE_ONE_SCALE
/* The last channel is repeated to fill the last 4: it is computed and written again. */
static void rlx_dense_dsp(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const int32_t quads = (p->out_c + RLX_DENSE_CHANNELS - 1) / RLX_DENSE_CHANNELS;
    const int32_t quad_words = rlx_dense_quad_words(p->in_c) + RLX_DENSE_CHANNELS * 3;
    rlx_dense_product_t g = {.stream = p->stream, .stream_end = p->stream + quads * quad_words};
    for (int32_t row = y0; row < y1; row++) {
        g.out = rlx_row(y, row);
        rlx_dense_row(&g, rlx_row(x, row), p->in_c);
        rlx_dense_multiply(&g);
        if (p->low > -128 || p->high < 127) {
            rlx_dsp_clamp(g.out, p->out_c, p->low, p->high);
        }
    }
}
#endif

#endif
