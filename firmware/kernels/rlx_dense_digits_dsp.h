/* rlx_dense_digits_dsp.h: the matrix product for DSP with weights of 4 or 2 bits (rlx_digits_dsp.h), 8 output channels at
 * a time, for a row of x as it lies in memory.
 *
 * Of each 4 values of k a word of x gives 2 steps, (k0, k2) and (k1, k3) as int16. The last 1 to 4 values are copied to a
 * word of their own, zeros behind them, so that nothing is read behind x.
 * The first channels of y are those that are no whole 8: 1 to 8 of them, in the last places of their group. Where they are
 * 4 or fewer, the group has 4 places, and weights of 4 bits whatever the others have. Places without a channel have zeros.
 *
 * The stream, int32 words:
 *     two_zp = 2 * out_zp + 1, unless there is one scale for all channels
 *     per group:
 *         what its registers begin with
 *         per 4 values of k, of each number (k0, k2), (k1, k3) as int16:
 *             with 4 bits one number per 4 places, rlx_digits_dsp.h: A0 to A3
 *             with 2 bits one for all 8 places: 256 times the number that rlx_digits_dsp.h says of the first 4, and that of
 *                 the others, whose first digit has no sign either. A0 to A3 are sums of products with the first one. The
 *                 number itself with its digits cleared one by one gives A7 to A4; A4 is 256 * A3 too large
 *         unless there is one scale: an int32 multiplier of each channel; a byte of each of 8 places, e
 *
 * 4 values of x take 33 instructions (34 with 2 bits) for 8 places; for 4 places 20, of which 2 sum up x for all groups;
 * where only the last 2 of these have channels, 12. Before a first group of 8 places a loop sums up x: 3 instructions.
 * RLX_DENSE_ONE_SCALE, which a kernel's file defines: 1 if all channels have one scale, which is not in the stream.
 * The generator proves: weights without zero point; and what rlx_digits_dsp.h says.
 * Reads a row of x until all of the row of y is written: a row of x and the same row of y must not overlap.
 *
 * Registers: r0 to r7 sums of the 8 places, r8, r9 x, r10, r11 weights, r12 x's address, lr stream. Later r8 = m, r9 = K (or
 * two_zp), r10 = e, r11 for a sum, r12 out. Of 4 places: r4 to r7 their sums, r0 the sum of x, r1 ones, r2 where to stop, r3
 * the end of the last values. All instructions of a group of 4 values and of an output are 32 bits wide, so that they can
 * be entered at any of them: `skip` is what the first pass of 8 places jumps back from the loop's end, `absent` what the
 * outputs of the first group jump over.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_DIGITS_DSP_H
#define RLX_DENSE_DIGITS_DSP_H

#include "rlx_digits_dsp.h"
#include "rlx_kernels.h"

#define RLX_DENSE_UNROLL 4
enum {
    RLX_DENSE_PLACES = 8,
    RLX_DENSE_FEW = 4,
    RLX_DENSE_VALUES = 4,
    RLX_DENSE_CODE = RLX_DIGIT_BITS == 4 ? 33 * 4 : 34 * 4,
    RLX_DENSE_OUTPUT_CODE = RLX_DENSE_ONE_SCALE ? 6 * 4 : 9 * 4,
};

/* The assembly loads it in this order. */
typedef struct {
    const int8_t *x, *x_end; /* all groups of 4 values but the last */
    uint32_t last;           /* 4 values */
    int32_t skip;            /* bytes of code */
    int8_t *out_end;
    int32_t absent; /* bytes of code */
    int8_t *out;
#if RLX_DENSE_ONE_SCALE
    int32_t k, m, e;
#endif
    const int32_t *stream;
} rlx_dense_product_t;

#if RLX_DSP

/* Of a step; digits of 4 bits. */
#define RLX_DENSE_TWO(x, w, a2, a3) \
    "smlad " a3 ", " x ", " w ", " a3 "\n\tbic " w ", " w ", #0x000f000f\n\tsmlad " a2 ", " x ", " w ", " a2 "\n\t"
#define RLX_DENSE_FOUR(x, w, a0, a1, a2, a3) \
    RLX_DENSE_TWO(x, w, a2, a3) \
    "and " w ", " w ", #0xff00ff00\n\tsmlad " a1 ", " x ", " w ", " a1 "\n\t" \
    "and " w ", " w ", #0xf000f000\n\tsmlad " a0 ", " x ", " w ", " a0 "\n\t"
#define RLX_DENSE_QUAD(a0, a1, a2, a3) \
    "ldrd r10, r11, [lr], #8\n\t" \
    RLX_DENSE_FOUR("r9", "r10", a0, a1, a2, a3) RLX_DENSE_FOUR("r8", "r11", a0, a1, a2, a3)
#define RLX_DENSE_X "sxtb16 r9, r8\n\tsxtb16 r8, r8, ror #8\n\t"
#define RLX_DENSE_SUM_UP "smlad r0, r8, r1, r0\n\tsmlad r0, r9, r1, r0\n\t"

/* 4 values of x, of 8 places, of 4, and of the last 2 of these. */
#if RLX_DIGIT_BITS == 4
#define RLX_DENSE_GROUP RLX_DENSE_X RLX_DENSE_QUAD("r0", "r1", "r2", "r3") RLX_DENSE_QUAD("r4", "r5", "r6", "r7")
#else
#define RLX_DENSE_DIGITS(x, w, a0, a1, a2, a3) \
    "smlad " a3 ", " x ", " w ", " a3 "\n\t" RLX_DIGITS_CLEAR_3(w) "smlad " a2 ", " x ", " w ", " a2 "\n\t" \
    RLX_DIGITS_CLEAR_2(w) "smlad " a1 ", " x ", " w ", " a1 "\n\t" \
    RLX_DIGITS_CLEAR_1(w) "smlad " a0 ", " x ", " w ", " a0 "\n\t"
#define RLX_DENSE_STEP(x, w) \
    RLX_DENSE_DIGITS(x, w, "r4", "r5", "r6", "r7") "sxtb16 " w ", " w ", ror #8\n\t" \
    RLX_DENSE_DIGITS(x, w, "r0", "r1", "r2", "r3")
#define RLX_DENSE_GROUP RLX_DENSE_X "ldrd r10, r11, [lr], #8\n\t" RLX_DENSE_STEP("r9", "r10") RLX_DENSE_STEP("r8", "r11")
#endif
#define RLX_DENSE_GROUP_OF_4 RLX_DENSE_X RLX_DENSE_SUM_UP RLX_DENSE_QUAD("r4", "r5", "r6", "r7")
#define RLX_DENSE_GROUP_OF_2 \
    RLX_DENSE_X RLX_DENSE_SUM_UP "ldrd r10, r11, [lr], #8\n\t" \
    RLX_DENSE_TWO("r9", "r10", "r6", "r7") RLX_DENSE_TWO("r8", "r11", "r6", "r7")

/* Differences of 4 sums, and of these twice the accumulators. r8: what is to be taken off. */
#define RLX_DENSE_APART(a0, a1, a2, a3) \
    "sub " a3 ", " a3 ", " a2 "\n\tsub " a2 ", " a2 ", " a1 "\n\tsub " a1 ", " a1 ", " a0 "\n\t"
#define RLX_DENSE_LESS(a0, a1, a2, a3, twice_0, twice_1, twice_2) \
    "rsb " a1 ", r8, " a1 ", asr #" twice_1 "\n\trsb " a2 ", r8, " a2 ", asr #" twice_2 "\n\t" \
    "rsb " a3 ", r8, " a3 ", lsl #1\n\t"
#define RLX_DENSE_PART_OF_4(a0, a1, a2, a3) \
    RLX_DENSE_APART(a0, a1, a2, a3) "asr " a0 ", " a0 ", #11\n\t" RLX_DENSE_LESS(a0, a1, a2, a3, "11", "7", "3")
#if RLX_DIGIT_BITS == 4
#define RLX_DENSE_PART RLX_DENSE_PART_OF_4("r0", "r1", "r2", "r3") RLX_DENSE_PART_OF_4("r4", "r5", "r6", "r7")
#else
#define RLX_DENSE_PART \
    RLX_DENSE_APART("r4", "r5", "r6", "r7") "sub r4, r4, r3, lsl #8\n\trsb r4, r8, r4, asr #5\n\t" \
    RLX_DENSE_LESS("r4", "r5", "r6", "r7", "5", "3", "1") \
    RLX_DENSE_APART("r0", "r1", "r2", "r3") "asr r0, r0, #5\n\t" RLX_DENSE_LESS("r0", "r1", "r2", "r3", "5", "3", "1")
#endif

/* sp: x, x_end, last, entry, output entry, out_end, out, sum, two_zp, and with one scale m, e. */
#if RLX_DENSE_ONE_SCALE
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r4, r6-r8, r10-r12, lr}\n\t"
#define RLX_DENSE_LOCALS "push {r1-r6, r8-r12}\n\t"
#define RLX_DENSE_DROP "add sp, sp, #44\n\t"
#define RLX_DENSE_SCALES "ldrd r9, r8, [sp, #32]\n\tldr r10, [sp, #40]\n\t"
#define RLX_DENSE_OUTPUT(acc, step, e) RLX_DIGITS_REQUANTIZE_BY(acc, "r9") "strb " acc ", [r12], #1\n\t"
#define RLX_DENSE_2_PLACES "144"
#define RLX_DENSE_4_PLACES "96"
#else
#define RLX_DENSE_ARGUMENTS "ldm r0, {r1-r4, r6-r8, lr}\n\tldr r10, [lr], #4\n\t"
#define RLX_DENSE_LOCALS "push {r1-r6, r8-r10}\n\t"
#define RLX_DENSE_DROP "add sp, sp, #36\n\t"
#define RLX_DENSE_SCALES "ldr r9, [sp, #32]\n\t"
#define RLX_DENSE_OUTPUT(acc, step, e) \
    "ldr r8, [lr], #" step "\n\tldrb r10, [lr, #" e "]\n\tlsl r11, r9, r10\n\t" \
    RLX_DIGITS_REQUANTIZE_BY(acc, "r11") "strb " acc ", [r12], #1\n\t"
#define RLX_DENSE_2_PLACES "216"
#define RLX_DENSE_4_PLACES "144"
#endif

/* The end of a loop over x, whose passes begin at 6: their last group of 4 values, and after all of x the last values. */
#define RLX_DENSE_UNTIL_END(group) \
    "7:\n\t" \
    "ldr r8, [r12], #4\n\t" group \
    "8:\n\t" \
    "cmp r12, r2\n\t" \
    "bne.w 6b\n\t" \
    "cmp r12, r3\n\t" \
    "beq.w 9f\n\t" \
    "mov r2, r3\n\t" \
    "sub r12, r3, #4\n\t" \
    "b.w 7b\n" \
    "9:\n\t"

/* Over x, two groups at a time. r8 = x_end - x. */
#define RLX_DENSE_BY_TWO(group) \
    "tst r8, #4\n\t" \
    "bne.w 7f\n\t" \
    "b.w 8f\n" \
    "6:\n\t" \
    "ldr r8, [r12], #4\n\t" group \
    RLX_DENSE_UNTIL_END(group)

/* The sum of x in r9, four groups at a time, of x + 128. r0 = 0. */
#define RLX_DENSE_ADD "eor r8, r8, #0x80808080\n\tusada8 r9, r8, r0, r9\n\t"
#define RLX_DENSE_SUM \
    "sub r9, r0, #512\n\t" \
    "sub r9, r9, r8, lsl #7\n\t" \
    "and r8, r8, #12\n\t" \
    "add r8, r8, r8, lsl #1\n\t" \
    "adr.w r1, 8f + 1\n\t" \
    "sub r1, r1, r8\n\t" \
    "bx r1\n" \
    "6:\n\t" \
    ".rept 3\n\t" \
    "ldr r8, [r12], #4\n\t" RLX_DENSE_ADD \
    ".endr\n" \
    RLX_DENSE_UNTIL_END(RLX_DENSE_ADD)

static RLX_NAKED void rlx_dense_multiply(const rlx_dense_product_t *g __attribute__((unused)))
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        RLX_DENSE_ARGUMENTS
        "adr.w r0, 3f + 1\n\t" /* where the first pass enters, as a Thumb address */
        "sub r4, r0, r4\n\t"
        "adr.w r5, 5f + 1\n\t"
        "add r5, r5, r7\n\t"
        RLX_DENSE_LOCALS
        "add r3, sp, #12\n\t"
        "mov r12, r1\n\t"
        "sub r8, r2, r1\n\t"
        "movs r0, #0\n\t"
        "cmp r7, #" RLX_DENSE_4_PLACES "\n\t"
        "bge.w 11f\n\t"
        RLX_DENSE_SUM
        "lsl r9, r9, #" RLX_DSP_TEXT(RLX_DIGIT_BITS) "\n\t"
        "str r9, [sp, #28]\n"
        "1:\n\t"
        "ldm lr!, {r0-r7}\n\t"
        "ldr r12, [sp]\n\t"
        "ldr pc, [sp, #12]\n"
        "2:\n\t"
        ".rept " RLX_DSP_TEXT(RLX_DENSE_UNROLL) "\n\t"
        "ldr r8, [r12], #4\n\t"
        RLX_DENSE_GROUP
        ".endr\n"
        "3:\n\t"
        "ldr r11, [sp, #4]\n\t"
        "cmp r12, r11\n\t"
        "bne.w 2b\n\t"
        "ldr r8, [sp, #8]\n\t"
        RLX_DENSE_GROUP
        "ldr r8, [sp, #28]\n\t"
        RLX_DENSE_PART
        "4:\n\t"
        "ldr r12, [sp, #24]\n\t"
        RLX_DENSE_SCALES
        "ldr pc, [sp, #16]\n"
        "5:\n\t"
        RLX_DENSE_OUTPUT("r0", "4", "28") RLX_DENSE_OUTPUT("r1", "4", "25")
        RLX_DENSE_OUTPUT("r2", "4", "22") RLX_DENSE_OUTPUT("r3", "4", "19")
        RLX_DENSE_OUTPUT("r4", "4", "16") RLX_DENSE_OUTPUT("r5", "4", "13")
        RLX_DENSE_OUTPUT("r6", "4", "10") RLX_DENSE_OUTPUT("r7", "12", "-1")
        "str r12, [sp, #24]\n\t"
        "ldr r11, [sp, #20]\n\t"
        "cmp r12, r11\n\t"
        "bne.n 10f\n\t"
        RLX_DENSE_DROP
        "pop {r4-r11, pc}\n"
        "10:\n\t" /* the next 8 channels */
        "adr.w r0, 5b + 1\n\t"
        "str r0, [sp, #16]\n\t"
        "b.w 1b\n"
        "11:\n\t" /* 4 places */
        "cmp r7, #" RLX_DENSE_2_PLACES "\n\t"
        "mov.w r1, #0x00010001\n\t"
        "ldm lr!, {r4-r7}\n\t"
        "bge.w 13f\n\t"
        RLX_DENSE_BY_TWO(RLX_DENSE_GROUP_OF_4)
        "12:\n\t"
        "lsl r8, r0, #" RLX_DSP_TEXT(RLX_DIGIT_BITS) "\n\t"
        "str r8, [sp, #28]\n\t"
        "lsl r8, r0, #4\n\t"
        RLX_DENSE_PART_OF_4("r4", "r5", "r6", "r7")
        "b.w 4b\n"
        "13:\n\t" /* the last 2 of 4 places */
        RLX_DENSE_BY_TWO(RLX_DENSE_GROUP_OF_2)
        "b.w 12b\n\t");
}

#else
/* What value i of 4 is multiplied by for a place's sum. few: of 4 places, with digits of 4 bits. */
static int32_t rlx_dense_weight(const int32_t *word, int32_t place, int32_t i, bool few)
{
    const int32_t bits = few ? 4 : RLX_DIGIT_BITS;
    word += bits == 4 && !few ? place / RLX_DENSE_FEW * 2 : 0;
    const int32_t number = (int16_t)((uint32_t)word[i % 2] >> 16 * (i / 2) & 0xFFFFu);
    const int32_t own = bits == 2 && place < RLX_DENSE_FEW ? number >> 8 : number;
    return (int32_t)((uint32_t)own & ~0u << bits * (RLX_DIGIT_CHANNELS - 1 - place % RLX_DIGIT_CHANNELS));
}

/* An accumulator from the sums of all places. */
static int32_t rlx_dense_accumulator(const uint32_t *sums, int32_t place, bool few, int32_t sum_of_x)
{
    const int32_t bits = few ? 4 : RLX_DIGIT_BITS;
    const int32_t shift = bits * (RLX_DIGIT_CHANNELS - 1 - place % RLX_DIGIT_CHANNELS);
    if (place % RLX_DIGIT_CHANNELS == 0 && (bits == 4 || place == 0)) {
        return (int32_t)sums[place] >> shift;
    }
    const uint32_t before = place % RLX_DIGIT_CHANNELS == 0 ? sums[place - 1] << 8 : sums[place - 1];
    return ((int32_t)(sums[place] - before) >> shift) - (1 << (bits - 1)) * sum_of_x;
}

/* The channels in the places [first, 8); returns the stream behind their weights. */
static const int32_t *rlx_dense_group(
    const rlx_dense_product_t *g, const int32_t *word, int32_t first, int32_t acc[RLX_DENSE_PLACES])
{
    const bool few = first >= RLX_DENSE_PLACES - RLX_DENSE_FEW;
    uint32_t sums[RLX_DENSE_PLACES];
    int32_t sum_of_x = 0;
    for (int32_t place = few ? RLX_DENSE_FEW : 0; place < RLX_DENSE_PLACES; place++) {
        sums[place] = (uint32_t)*word++;
    }
    for (const int8_t *x = g->x;; x += RLX_DENSE_VALUES, word += few || RLX_DIGIT_BITS == 2 ? 2 : 4) {
        for (int32_t i = 0; i < RLX_DENSE_VALUES; i++) {
            const int32_t value = x != g->x_end ? x[i] : (int8_t)(g->last >> 8 * i & 0xFFu);
            sum_of_x += value;
            for (int32_t place = few ? RLX_DENSE_FEW : 0; place < RLX_DENSE_PLACES; place++) {
                sums[place] += (uint32_t)(value * rlx_dense_weight(word, place, i, few));
            }
        }
        if (x == g->x_end) {
            break;
        }
    }
    for (int32_t place = first; place < RLX_DENSE_PLACES; place++) {
        acc[place] = rlx_dense_accumulator(sums, place, few, sum_of_x);
    }
    return word + (few || RLX_DIGIT_BITS == 2 ? 2 : 4);
}

static void rlx_dense_multiply(const rlx_dense_product_t *g)
{
    const int32_t *word = g->stream;
#if !RLX_DENSE_ONE_SCALE
    const int32_t two_zp = *word++;
#endif
    int32_t first = g->absent / RLX_DENSE_OUTPUT_CODE, acc[RLX_DENSE_PLACES];
    for (int8_t *out = g->out; out != g->out_end; first = 0) {
        word = rlx_dense_group(g, word, first, acc);
#if RLX_DENSE_ONE_SCALE
        for (int32_t place = first; place < RLX_DENSE_PLACES; place++) {
            *out++ = rlx_dsp_requantize_doubled(acc[place], g->m, g->k, g->e);
        }
#else
        const int32_t *e_words = word + RLX_DENSE_PLACES - first;
        for (int32_t place = first; place < RLX_DENSE_PLACES; place++) {
            const int32_t e = (int32_t)((uint32_t)e_words[place / 4] >> 8 * (place % 4) & 0xFFu);
            *out++ = rlx_dsp_requantize_doubled(acc[place], *word++, rlx_digits_offset(two_zp, e), e);
        }
        word += RLX_DENSE_PLACES / 4;
#endif
    }
}
#endif

/* The last 1 to 4 of the n values of a row. */
static inline uint32_t rlx_dense_last(const int8_t *x, int32_t n)
{
    uint32_t word = 0;
    if (n >= RLX_DENSE_VALUES) {
        __builtin_memcpy(&word, x + n - RLX_DENSE_VALUES, sizeof word);
        return word >> 8 * (-n & (RLX_DENSE_VALUES - 1));
    }
    for (int32_t i = n - 1; i >= 0; i--) {
        word = word << 8 | (uint8_t)x[i];
    }
    return word;
}

#if RLX_DENSE_ONE_SCALE
static void rlx_dense_rows(const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
#else
static void rlx_dense_rows(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
#endif
{
    const uint32_t groups = ((uint32_t)p->in_c - 1) / RLX_DENSE_VALUES; /* but the last */
    rlx_dense_product_t g;
    g.skip = (int32_t)(groups % RLX_DENSE_UNROLL) * RLX_DENSE_CODE;
    g.absent = (-p->out_c & (RLX_DENSE_PLACES - 1)) * RLX_DENSE_OUTPUT_CODE;
    g.stream = p->stream;
#if RLX_DENSE_ONE_SCALE
    g.k = p->offset;
    g.m = p->multiplier;
    g.e = p->shift;
#endif
    for (int32_t row = y0; row < y1; row++) {
        g.x = rlx_row(x, row);
        g.x_end = g.x + groups * RLX_DENSE_VALUES;
        g.last = rlx_dense_last(g.x, p->in_c);
        g.out = rlx_row(y, row);
        g.out_end = g.out + p->out_c;
        rlx_dense_multiply(&g);
        if (p->low > -128 || p->high < 127) {
            rlx_dsp_clamp(g.out, p->out_c, p->low, p->high);
        }
    }
}

#endif
