/* rlx_gemm_v7m.h: 4 positions times all output channels, two positions in one multiplication.
 *
 * x: words [steps][2]: with a_i[k] the inputs of position i, word 0 of step k is a_0 + (a_1 << 16), word 1 is
 * a_2 + (a_3 << 16). MLS takes word * w from a 32-bit accumulator, that is two products from its two fields.
 *
 * Fields. An accumulator starts at 2^15 and takes a few steps (a group: `group` = 2 or 4) before it is emptied. With
 * s_0, s_1 the two sums of products of a group it then holds 2^15 - s_0 - (s_1 << 16) modulo 2^32. The generator
 * proves -2^15 < s <= 2^15 for every group and any int8 inputs, so 2^15 - s_0 fills the lower half without a carry, the
 * upper half is -s_1, and the value is added
 *   to low, as it is: low ends as (all 2^15) - sum of s_0 - (sum of s_1 << 16),
 *   to high, as value >> 16: high ends as -(sum of s_1).
 * low starts at bias + (bias << 16) - 2^15 * groups and high at bias (the negated bias), so at the end
 * low - (high << 16) and high are the negated accumulators of both positions. Groups of 2 always keep the bound, as
 * 2 * 128 * 128 = 2^15.
 *
 * Corrections. Where a group of 4 would exceed the bound, the generator takes a part d off some of its weights and
 * appends (k, d) to the channel: such a product is added on its own.
 *
 * stream, all channels, each aligned to 4:
 *   int32 the negated bias; int8 weights [steps]; int32 -m; int32 e | corrections << 8 (rlx_v7m.h);
 *   per correction uint16 8 * k, int16 d
 * steps is a multiple of 4; those beyond the taps have weight 0, and their words of x may hold anything.
 *
 * Outputs are written in the order 3, 2, 1, 0, so positions that do not exist may lie where position 0 lies: it is
 * written last.
 *
 * Registers of the assembly: r0, r1 low and high of positions 0 and 1; r2, r3 of 2 and 3; r4, r5 fields; r6, r7, r10,
 * r11 words of x; r8 weight; r9 = 2^15; r12 reads x; lr reads the stream. On the stack: offsets of positions 1, 2, 3
 * (0, 4, 8), output (12), its end (16), begin (20) and low's start (24), where the loop begins (28), c (32), end of x
 * (36). The loop is unrolled and entered in its middle when steps is not a multiple of its length.
 * Instructions per 4 steps, that is 16 products: 18 in groups of 4, 22 in groups of 2.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_GEMM_V7M_H
#define RLX_GEMM_V7M_H

#include "rlx_v7m.h"

#define RLX_GEMM_V7M_POSITIONS 4

/* Steps of the unrolled loops; the repetitions in the assembly are a quarter of them. */
#define RLX_GEMM_V7M_UNROLL_4 32
#define RLX_GEMM_V7M_UNROLL_2 8

typedef struct {
    int32_t offsets[3];    /* from position 0's output to those of 1, 2, 3 */
    int8_t *out;           /* position 0, channel 0 */
    const int8_t *out_end; /* out + out_c */
    const int32_t *x;
    int32_t low;           /* -2^15 * groups of a channel */
    int32_t first;         /* blocks of 4 steps in the loop's first turn */
    int32_t c;             /* -(2 out_zp + 1) */
    const int32_t *x_end;
    const int32_t *stream;
    int32_t group;
} rlx_gemm_v7m_t;

/* Blocks of 4 steps that the unrolled loop computes in its first turn. */
static inline int32_t rlx_gemm_v7m_first(int32_t steps, int32_t group)
{
    const int32_t unroll = group == 4 ? RLX_GEMM_V7M_UNROLL_4 : RLX_GEMM_V7M_UNROLL_2;
    const int32_t rest = steps % unroll;
    return (rest == 0 ? unroll : rest) / 4;
}

#if RLX_V7M
/* One step into fields that hold `from`: words in r\a, r\b. */
#define RLX_STEP(a, b, from4, from5) \
    "ldrsb r8, [lr], #1\n\t" \
    "mls r4, " a ", r8, " from4 "\n\t" \
    "mls r5, " b ", r8, " from5 "\n\t"
#define RLX_EMPTY \
    "add.w r0, r0, r4\n\t" \
    "add.w r1, r1, r4, asr #16\n\t" \
    "add.w r2, r2, r5\n\t" \
    "add.w r3, r3, r5, asr #16\n\t"
#define RLX_TWO_STEPS(from4, from5) \
    "ldm.w r12!, {r6, r7, r10, r11}\n\t" \
    RLX_STEP("r6", "r7", from4, from5) \
    RLX_STEP("r10", "r11", "r4", "r5")

RLX_V7M_NAKED static void rlx_gemm_v7m(__attribute__((unused)) const rlx_gemm_v7m_t *g)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldm r0, {r1-r12}\n\t"
        "mov lr, r11\n\t"
        "cmp r12, #4\n\t"
        "bne 1f\n\t"
        "adr.w r0, 40f\n\t"
        "adr.w r11, 4f\n\t"
        "sub.w r11, r0, r11\n\t"
        "lsr.w r11, r11, #3\n\t" /* bytes of one of the 8 blocks of 4 steps */
        "b 2f\n"
        "1:\n\t"
        "adr.w r0, 20f\n\t"
        "adr.w r11, 8f\n\t"
        "sub.w r11, r0, r11\n\t"
        "lsr.w r11, r11, #1\n"
        "2:\n\t"
        "mls r8, r8, r11, r0\n\t"
        "orr.w r8, r8, #1\n\t"
        "push {r1-r10}\n\t"
        "mov.w r9, #0x8000\n"
        "3:\n\t" /* a channel */
        "ldr r1, [lr], #4\n\t"
        "ldrd r12, r0, [sp, #20]\n\t"
        "add.w r0, r0, r1\n\t"
        "add.w r0, r0, r1, lsl #16\n\t"
        "mov r2, r0\n\t"
        "mov r3, r1\n\t"
        "ldr.w pc, [sp, #28]\n\t"
        ".balign 4\n"
        "4:\n\t"
        ".rept 8\n\t"
        RLX_TWO_STEPS("r9", "r9")
        RLX_TWO_STEPS("r4", "r5")
        RLX_EMPTY
        ".endr\n"
        "40:\n\t"
        "ldr r6, [sp, #36]\n\t"
        "cmp r12, r6\n\t"
        "bne.w 4b\n\t"
        "b.w 5f\n\t"
        ".balign 4\n"
        "8:\n\t"
        ".rept 2\n\t"
        RLX_TWO_STEPS("r9", "r9")
        RLX_EMPTY
        RLX_TWO_STEPS("r9", "r9")
        RLX_EMPTY
        ".endr\n"
        "20:\n\t"
        "ldr r6, [sp, #36]\n\t"
        "cmp r12, r6\n\t"
        "bne.w 8b\n"
        "5:\n\t" /* a full sum */
        "ldrd r4, r5, [lr], #8\n\t"
        "lsrs r12, r5, #8\n\t"
        "bne 7f\n"
        "6:\n\t"
        "sub.w r0, r0, r1, lsl #16\n\t"
        "sub.w r2, r2, r3, lsl #16\n\t"
        "ldm sp, {r8, r10, r11, r12}\n\t"
        "ldr r6, [sp, #32]\n\t"
        "lsl.w r6, r6, r5\n\t"
        RLX_V7M_REQUANTIZE("r3", "r4", "r5", "r6", "r7", "[r12, r11]")
        RLX_V7M_REQUANTIZE("r2", "r4", "r5", "r6", "r7", "[r12, r10]")
        RLX_V7M_REQUANTIZE("r1", "r4", "r5", "r6", "r7", "[r12, r8]")
        RLX_V7M_REQUANTIZE("r0", "r4", "r5", "r6", "r7", "[r12], #1")
        "ldr r7, [sp, #16]\n\t"
        "str r12, [sp, #12]\n\t"
        "cmp r12, r7\n\t"
        "bne 3b\n\t"
        "add sp, #40\n\t"
        "pop {r4-r11, pc}\n"
        "7:\n\t" /* a correction: word * d, a product in each field; r12 counts */
        "ldrh r10, [lr], #2\n\t"
        "ldr r6, [sp, #20]\n\t"
        "add r10, r6\n\t"
        "ldrd r6, r7, [r10]\n\t"
        "ldrsh r11, [lr], #2\n\t"
        "mul r6, r6, r11\n\t"
        "mul r7, r7, r11\n\t"
        "sub.w r0, r0, r6\n\t"
        "add r6, r9\n\t"
        "sub.w r1, r1, r6, asr #16\n\t"
        "sub.w r2, r2, r7\n\t"
        "add r7, r9\n\t"
        "sub.w r3, r3, r7, asr #16\n\t"
        "subs.w r12, r12, #1\n\t"
        "bne 7b\n\t"
        "b 6b\n\t");
}

#undef RLX_STEP
#undef RLX_EMPTY
#undef RLX_TWO_STEPS

#else
typedef struct {
    uint32_t low, high; /* modulo 2^32 */
} rlx_gemm_v7m_sums_t;

static inline void rlx_gemm_v7m_empty(rlx_gemm_v7m_sums_t *s, uint32_t fields)
{
    s->low += fields;
    s->high += (uint32_t)((int32_t)fields >> 16);
}

static inline void rlx_gemm_v7m_correct(rlx_gemm_v7m_sums_t *s, int32_t word, int32_t d)
{
    const uint32_t product = (uint32_t)word * (uint32_t)d;
    s->low -= product;
    s->high -= (uint32_t)((int32_t)(product + 0x8000u) >> 16);
}

static const int32_t *rlx_gemm_v7m_channel(const rlx_gemm_v7m_t *g, const int32_t *stream, int8_t *out)
{
    const int32_t steps = (int32_t)(g->x_end - g->x) / 2;
    const int8_t *w = (const int8_t *)(stream + 1);
    const int32_t *tail = stream + 1 + steps / 4;
    const uint32_t bias = (uint32_t)stream[0];
    rlx_gemm_v7m_sums_t s[2];
    for (int32_t pair = 0; pair < 2; pair++) {
        s[pair].low = (uint32_t)g->low + bias + (bias << 16);
        s[pair].high = bias;
        for (int32_t k = 0; k < steps; k += g->group) {
            uint32_t fields = 0x8000u;
            for (int32_t i = k; i < k + g->group; i++) {
                fields -= (uint32_t)g->x[2 * i + pair] * (uint32_t)(int32_t)w[i];
            }
            rlx_gemm_v7m_empty(&s[pair], fields);
        }
        for (int32_t i = 0; i < tail[1] >> 8; i++) {
            const int32_t correction = tail[2 + i];
            rlx_gemm_v7m_correct(&s[pair], g->x[(correction & 0xFFFF) / 4 + pair], correction >> 16);
        }
        s[pair].low -= s[pair].high << 16;
    }
    const int32_t minus_m = tail[0];
    const int32_t e = tail[1] & 0xFF;
    out[g->offsets[2]] = rlx_v7m_requantize((int32_t)s[1].high, minus_m, e, g->c);
    out[g->offsets[1]] = rlx_v7m_requantize((int32_t)s[1].low, minus_m, e, g->c);
    out[g->offsets[0]] = rlx_v7m_requantize((int32_t)s[0].high, minus_m, e, g->c);
    out[0] = rlx_v7m_requantize((int32_t)s[0].low, minus_m, e, g->c);
    return tail + 2 + (tail[1] >> 8);
}

static void rlx_gemm_v7m(const rlx_gemm_v7m_t *g)
{
    const int32_t *stream = g->stream;
    for (int8_t *out = g->out; out != g->out_end; out++) {
        stream = rlx_gemm_v7m_channel(g, stream, out);
    }
}
#endif

#endif
