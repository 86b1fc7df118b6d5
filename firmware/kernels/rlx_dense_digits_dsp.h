/* rlx_dense_digits_dsp.h: the matrix product for DSP with weights of 4 or 2 bits (rlx_digits_dsp.h), 8 output channels at
 * a time, for a row of x as it lies in memory.
 *
 * Of each 4 values of k a word of x gives 2 steps, (k0, k2) and (k1, k3) as int16. The last 1 to 4 values are copied to a
 * word of their own, zeros behind them, so that nothing is read behind x. 33 instructions (37 with 2 bits) for 32
 * products.
 * RLX_DENSE_ONE_SCALE, which a kernel's file defines: 1 if all channels have one scale, which is not in the stream.
 * The generator proves: weights without zero point; and what rlx_digits_dsp.h says.
 * Reads a row of x until all of the row of y is written: a row of x and the same row of y must not overlap.
 *
 * Registers: r0 to r3 A0 to A3 of the first 4 channels, r4 to r7 of the others, r8, r9 x, r10, r11 weights, r12 x's
 * address, lr stream. Later r8 = m, r9 = K, r10 = e, r11 for a sum, r12 out. All instructions of a group of 4 values are 32
 * bits wide, so that the loop can be entered at any of its groups: `skip` is what the first pass jumps back from the
 * loop's end.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_DIGITS_DSP_H
#define RLX_DENSE_DIGITS_DSP_H

#include "rlx_digits_dsp.h"
#include "rlx_kernels.h"

#define RLX_DENSE_UNROLL 4
enum {
    RLX_DENSE_CHANNELS = 2 * RLX_DIGIT_CHANNELS,
    RLX_DENSE_VALUES = 4,
    RLX_DENSE_CODE = (3 + 2 * (RLX_DIGITS_LOADS + 14)) * 4,
    RLX_DENSE_SCALE_WORDS = RLX_DENSE_ONE_SCALE ? 0 : RLX_DENSE_CHANNELS * 3 / 2,
};

/* The assembly loads it in this order. */
typedef struct {
    const int8_t *x, *x_end; /* all groups of 4 values but the last */
    int32_t skip;            /* bytes of code */
    int8_t last[RLX_DENSE_VALUES];
    const int32_t *stream_end, *stream;
    int8_t *out;
    int32_t sum;    /* of x, times RLX_DIGIT_OFFSET */
    int32_t two_zp; /* with one scale K, and then m and e */
#if RLX_DENSE_ONE_SCALE
    int32_t m, e;
#endif
} rlx_dense_product_t;

#if RLX_DSP

#define RLX_DENSE_FOUR(x, w, a0, a1, a2, a3) \
    "smlad " a3 ", " x ", " w ", " a3 "\n\t" RLX_DIGITS_CLEAR_3(w) \
    "smlad " a2 ", " x ", " w ", " a2 "\n\t" RLX_DIGITS_CLEAR_2(w) \
    "smlad " a1 ", " x ", " w ", " a1 "\n\t" RLX_DIGITS_CLEAR_1(w) \
    "smlad " a0 ", " x ", " w ", " a0 "\n\t"

#define RLX_DENSE_QUAD(a0, a1, a2, a3) \
    RLX_DIGITS_LOAD("r10", "r11") \
    RLX_DIGITS_FIRST("r10", "r11") RLX_DENSE_FOUR("r9", "r10", a0, a1, a2, a3) \
    RLX_DIGITS_SECOND("r11") RLX_DENSE_FOUR("r8", "r11", a0, a1, a2, a3)

#define RLX_DENSE_GROUP \
    "sxtb16 r9, r8\n\tsxtb16 r8, r8, ror #8\n\t" \
    RLX_DENSE_QUAD("r0", "r1", "r2", "r3") RLX_DENSE_QUAD("r4", "r5", "r6", "r7")

/* r8: what is to be taken off. */
#define RLX_DENSE_PART(a0, a1, a2, a3) \
    "sub " a3 ", " a3 ", " a2 "\n\tsub " a2 ", " a2 ", " a1 "\n\tsub " a1 ", " a1 ", " a0 "\n\t" \
    "mov " a0 ", " a0 ", " RLX_DIGITS_TWICE_0 "\n\trsb " a1 ", r8, " a1 ", " RLX_DIGITS_TWICE_1 "\n\t" \
    "rsb " a2 ", r8, " a2 ", " RLX_DIGITS_TWICE_2 "\n\trsb " a3 ", r8, " a3 ", " RLX_DIGITS_TWICE_3 "\n\t"

/* sp: x, x_end, entry, last, stream_end, out, sum, two_zp, and with one scale m, e. */
#if RLX_DENSE_ONE_SCALE
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r11}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r5, r7-r11}\n\t"
#define RLX_DENSE_DROP "add sp, sp, #40\n\t"
#define RLX_DENSE_SCALES "ldrd r9, r8, [sp, #28]\n\tldr r10, [sp, #36]\n\t"
#define RLX_DENSE_OUTPUT(acc, e) RLX_DIGITS_REQUANTIZE(acc) "strb " acc ", [r12], #1\n\t"
#define RLX_DENSE_SCALES_END
#else
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r9}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r5, r7-r9}\n\t"
#define RLX_DENSE_DROP "add sp, sp, #32\n\t"
#define RLX_DENSE_SCALES
#define RLX_DENSE_OUTPUT(acc, e) \
    "ldr r8, [lr], #4\n\tldrh r10, [lr, #" e "]\n\tldr r9, [sp, #28]\n\tlsl r9, r9, r10\n\t" \
    RLX_DIGITS_REQUANTIZE(acc) "strb " acc ", [r12]\n\tadd r12, r12, r10, lsr #8\n\t"
#define RLX_DENSE_SCALES_END "add lr, lr, #16\n\t"
#endif

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
        "ldm lr!, {r0-r7}\n\t"
        "ldr r12, [sp]\n\t"
        "ldr pc, [sp, #8]\n"
        "2:\n\t"
        ".rept " RLX_DSP_TEXT(RLX_DENSE_UNROLL) "\n\t"
        "ldr r8, [r12], #4\n\t"
        RLX_DENSE_GROUP
        ".endr\n"
        "3:\n\t"
        "ldr r11, [sp, #4]\n\t"
        "cmp r12, r11\n\t"
        "bne.w 2b\n\t"
        "ldr r8, [sp, #12]\n\t"
        RLX_DENSE_GROUP
        "ldrd r12, r8, [sp, #20]\n\t"
        RLX_DENSE_PART("r0", "r1", "r2", "r3")
        RLX_DENSE_PART("r4", "r5", "r6", "r7")
        RLX_DENSE_SCALES
        RLX_DENSE_OUTPUT("r0", "28") RLX_DENSE_OUTPUT("r1", "26")
        RLX_DENSE_OUTPUT("r2", "24") RLX_DENSE_OUTPUT("r3", "22")
        RLX_DENSE_OUTPUT("r4", "20") RLX_DENSE_OUTPUT("r5", "18")
        RLX_DENSE_OUTPUT("r6", "16") RLX_DENSE_OUTPUT("r7", "14")
        RLX_DENSE_SCALES_END
        "str r12, [sp, #20]\n\t"
        "ldr r11, [sp, #16]\n\t"
        "cmp lr, r11\n\t"
        "bne.w 1b\n\t"
        RLX_DENSE_DROP
        "pop {r4-r11, pc}\n\t");
}

#else

/* A0 to A3 of the first 4 channels and of the others, modulo 2^32. */
static void rlx_dense_add(uint32_t a[RLX_DENSE_CHANNELS], const int32_t *word, const int8_t *x)
{
    for (int32_t c = 0; c < RLX_DENSE_CHANNELS; c++) {
        const int32_t *own = word + c / RLX_DIGIT_CHANNELS * RLX_DIGIT_WORDS;
        for (int32_t i = 0; i < RLX_DENSE_VALUES; i++) {
            const int32_t number = rlx_digits_number(own, i % 2, i / 2);
            a[c] += (uint32_t)(x[i] * rlx_digits_from(number, c % RLX_DIGIT_CHANNELS));
        }
    }
}

static void rlx_dense_multiply(const rlx_dense_product_t *g)
{
    int8_t *out = g->out;
    for (const int32_t *word = g->stream; word != g->stream_end;) {
        uint32_t a[RLX_DENSE_CHANNELS];
        for (int32_t c = 0; c < RLX_DENSE_CHANNELS; c++) {
            a[c] = (uint32_t)*word++;
        }
        for (const int8_t *x = g->x; x != g->x_end; x += RLX_DENSE_VALUES, word += 2 * RLX_DIGIT_WORDS) {
            rlx_dense_add(a, word, x);
        }
        rlx_dense_add(a, word, g->last);
        word += 2 * RLX_DIGIT_WORDS;
        for (int32_t c = 0; c < RLX_DENSE_CHANNELS; c++) {
            const uint32_t *four = a + c / RLX_DIGIT_CHANNELS * RLX_DIGIT_CHANNELS;
            const int32_t acc = rlx_digits_accumulator(four, c % RLX_DIGIT_CHANNELS, g->sum / RLX_DIGIT_OFFSET);
#if RLX_DENSE_ONE_SCALE
            *out++ = rlx_dsp_requantize_doubled(acc, g->m, g->two_zp, g->e);
#else
            const int32_t e_word = rlx_digits_e_word(word, RLX_DENSE_CHANNELS, c);
            *out = rlx_dsp_requantize_doubled(acc, word[c], rlx_digits_offset(g->two_zp, e_word), e_word);
            out += e_word >> 8;
#endif
        }
        word += RLX_DENSE_SCALE_WORDS;
    }
}

#endif

/* sum and x + 128 for each of 4 values. */
static inline int32_t rlx_dense_add_four(int32_t sum, const int8_t *x)
{
#if RLX_DSP
    int32_t word;
    __asm__("ldr %0, [%2]\n\teor %0, %0, #0x80808080\n\tusada8 %1, %0, %3, %1"
            : "=&r"(word), "+r"(sum)
            : "r"(x), "r"(0), "m"(*(const int8_t(*)[4])x));
    return sum;
#else
    return sum + 4 * 128 + x[0] + x[1] + x[2] + x[3];
#endif
}

/* The groups of a row of n values, and their sum. */
static void rlx_dense_row(rlx_dense_product_t *g, const int8_t *x, int32_t n)
{
    const int32_t groups = (n - 1) / RLX_DENSE_VALUES; /* but the last */
    g->x = x;
    g->x_end = x + groups * RLX_DENSE_VALUES;
    g->skip = groups == 0 ? 0 : ((groups - 1) % RLX_DENSE_UNROLL + 1) * RLX_DENSE_CODE;
    int32_t sum = -4 * 128 * (groups + 1);
    for (; x != g->x_end; x += RLX_DENSE_VALUES) {
        sum = rlx_dense_add_four(sum, x);
    }
    for (int32_t i = 0; i < RLX_DENSE_VALUES; i++) {
        g->last[i] = groups * RLX_DENSE_VALUES + i < n ? x[i] : 0;
    }
    g->sum = rlx_dense_add_four(sum, g->last) * RLX_DIGIT_OFFSET;
}

/* int32 words of the stream for 8 channels. */
static inline int32_t rlx_dense_octet_words(int32_t n)
{
    const int32_t groups = (n + RLX_DENSE_VALUES - 1) / RLX_DENSE_VALUES;
    return RLX_DENSE_CHANNELS + groups * 2 * RLX_DIGIT_WORDS + RLX_DENSE_SCALE_WORDS;
}

#if RLX_DENSE_ONE_SCALE
static void rlx_dense_rows(const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
#else
static void rlx_dense_rows(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
#endif
{
    const int32_t octet_words = rlx_dense_octet_words(p->in_c);
    rlx_dense_product_t g;
#if RLX_DENSE_ONE_SCALE
    const int32_t *const first = p->stream;
    const int32_t *const whole_end = first + p->out_c / RLX_DENSE_CHANNELS * octet_words;
    const bool more = p->out_c % RLX_DENSE_CHANNELS != 0;
    g.two_zp = p->offset;
    g.m = p->multiplier;
    g.e = p->shift;
#else
    const int32_t *const first = p->stream + 1;
    const int32_t *const whole_end =
        first + (p->out_c + RLX_DENSE_CHANNELS - 1) / RLX_DENSE_CHANNELS * octet_words;
    const bool more = false;
    g.two_zp = p->stream[0];
#endif
    for (int32_t row = y0; row < y1; row++) {
        int8_t *out = rlx_row(y, row);
        rlx_dense_row(&g, rlx_row(x, row), p->in_c);
        g.out = out;
        g.stream = first;
        g.stream_end = whole_end;
        rlx_dense_multiply(&g);
        if (more) {
            g.stream = whole_end;
            g.stream_end = whole_end + octet_words;
            g.out = out + p->out_c - RLX_DENSE_CHANNELS;
            rlx_dense_multiply(&g);
        }
        if (p->low > -128 || p->high < 127) {
            rlx_dsp_clamp(out, p->out_c, p->low, p->high);
        }
    }
}

#endif
