/* rlx_v6m.h: what the Armv6-M kernels share: fields of 16 bits, the exact rescale, pieces of assembly.
 *
 * Armv6-M has 16-bit Thumb instructions on r0 to r7 (r8 to r12 and lr only move, add and compare), a 32-bit multiply
 * that keeps the low word, and no unaligned loads.
 *
 * Two positions per multiply. word = a0 + (a1 << 16), a sum and not a bit field, so w * word = w * a0 + (w * a1 << 16).
 * Over a group of products whose sum over a0 lies in [-2^15, 2^15), that sum f, with f + 2^15, splits exactly:
 *     (f + 2^15) >> 16 is the group's sum over a1, and goes to `hi`;
 *     f + 2^15 as a whole goes to `lo`, modulo 2^32, so that at the end the sum over a0 is lo - (hi << 16).
 * The 2^15 of all groups and the bias of both positions are in the first value of `lo`; that of `hi` is the bias.
 * Two products of weights of at least -127 always make a group; how many more the generator proves from the weights.
 *
 * Rescale (rule tflm) without a 64-bit product, in one of two ways; the generator chooses for each channel.
 * Short, 12 instructions: |acc| < 2^19, 0 <= m0 < 2^12, 0 <= m1,
 *     t = ((acc * m0) >> 12) + acc * m1 - (acc < 0 ? 2^10 - 1 : 0) + k, the result is t >> s.
 * m1 * 2^12 + m0 is the multiplier / 2^9, nearly: t is 2^10 times what the rule shifts by e = s - 10, and what is taken
 * off negative ones makes their ties round down. That is not exact in general. But t >> s and the rule are both monotone
 * in acc, so they agree everywhere if each of the 255 steps between codes lies at the same acc in both, and the
 * generator has looked for an m and a k for which that is so.
 * Long, 22 instructions: any channel with |acc| < 2^24. With acc = ah * 2^16 + al, 0 <= al < 2^16, and
 * m = mh * 2^16 + ml:
 *     h = (acc * m + 2^30) >> 31 = 2 ah mh + ((ah ml + al mh + (al ml >> 16) + 2^14) >> 15),
 * as what is left out of the inner sum is a fraction below one that no carry can come from. al * mh < 2^31 and
 * |ah ml| < 2^24, so the inner sum less 2^30 fits an int32; taking 2^30 off costs 2^15 after the shift, which `k` gives
 * back. The result is (h - (acc < 0) + (zp << e) + 2^(e - 1)) >> e: ties away from zero, as h < 0 implies acc < 0,
 * and h = 0 gives zp with and without the 1. k = (zp << e) + 2^(e - 1) + 2^15; e >= 1.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_V6M_H
#define RLX_V6M_H

#include <stdint.h>

#if (defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)) && defined(__GNUC__)
#define RLX_V6M_ASM 1
/* Functions that are assembly altogether: their arguments are where the AAPCS says. */
#if defined(__clang__)
#define RLX_V6M_NAKED __attribute__((naked, noinline))
#else
#define RLX_V6M_NAKED __attribute__((naked, noipa))
#endif
#define RLX_V6M_UNUSED __attribute__((unused))
#else
#define RLX_V6M_ASM 0
#endif

/* What a function of assembly begins and ends with to use r4 to r11. */
#define RLX_V6M_SAVE                                                                                                  \
    "    push {r4-r7, lr}\n"                                                                                          \
    "    mov r4, r8\n"                                                                                                \
    "    mov r5, r9\n"                                                                                                \
    "    mov r6, r10\n"                                                                                               \
    "    mov r7, r11\n"                                                                                               \
    "    push {r4-r7}\n"
#define RLX_V6M_RETURN                                                                                                \
    "    pop {r4-r7}\n"                                                                                               \
    "    mov r8, r4\n"                                                                                                \
    "    mov r9, r5\n"                                                                                                \
    "    mov r10, r6\n"                                                                                               \
    "    mov r11, r7\n"                                                                                               \
    "    pop {r4-r7, pc}\n"

#define RLX_V6M_SHORT 256 /* in `shift`, beside the shift: the short way */

#if defined(__GNUC__)
#define RLX_V6M_NOINLINE __attribute__((noinline, cold))
#else
#define RLX_V6M_NOINLINE
#endif

/* low, high: m0 and m1, or ml and mh */
typedef struct {
    int32_t k, low, high, shift;
} rlx_v6m_scale_t;

/* What the assembly below computes. Sums wrap as the core's do, though the generator proves that none does but the
 * last one of the long way. */
static inline int8_t rlx_v6m_rescale(int32_t acc, const rlx_v6m_scale_t *s)
{
    uint32_t sum;
    if (s->shift >= RLX_V6M_SHORT) {
        sum = (uint32_t)((acc * s->low) >> 12) + (uint32_t)(acc * s->high) - ((uint32_t)acc >> 22) + (uint32_t)s->k;
    } else {
        const int32_t ah = acc >> 16;
        const uint32_t al = (uint32_t)acc & 0xFFFFu;
        const uint32_t low = (al * (uint32_t)s->low >> 16) + (uint32_t)((1 << 14) - (1 << 30));
        const int32_t inner = (int32_t)(low + al * (uint32_t)s->high + (uint32_t)(ah * s->low));
        sum = (uint32_t)((inner >> 15) + (ah >> 31) + 2 * ah * s->high) + (uint32_t)s->k;
    }
    const int32_t q = (int32_t)sum >> (s->shift & (RLX_V6M_SHORT - 1));
    return (int8_t)(q < -128 ? -128 : q > 127 ? 127 : q);
}

/* Splits a group's sum of packed products, 2^15 included. */
static inline void rlx_v6m_flush(uint32_t f, uint32_t *lo, int32_t *hi)
{
    *lo += f;
    *hi += (int32_t)f >> 16;
}

/* The int8 in r0 of the sum in r2; `shift` is the register of the shift. */
#define RLX_V6M_SATURATE(shift)                                                                                       \
    "    asrs r2, " shift "\n"                                                                                        \
    "    sxtb r0, r2\n"                                                                                               \
    "    cmp r0, r2\n"                                                                                                \
    "    beq 99f\n"                                                                                                   \
    "    asrs r2, r2, #31\n"                                                                                          \
    "    movs r0, #127\n"                                                                                             \
    "    eors r0, r2\n"                                                                                               \
    "99:\n"

/* The int8 in r0 of the accumulator in r0. r3 = m0 or ml, r4 = m1 or mh, lr = k, and for the long way
 * r6 = 2^14 - 2^30 = RLX_V6M_INNER; uses r1, r2. */
#define RLX_V6M_RESCALE_SHORT(shift)                                                                                  \
    "    lsrs r1, r0, #22\n"                                                                                          \
    "    movs r2, r0\n"                                                                                               \
    "    muls r2, r3, r2\n"                                                                                           \
    "    asrs r2, r2, #12\n"                                                                                          \
    "    muls r0, r4, r0\n"                                                                                           \
    "    adds r2, r2, r0\n"                                                                                           \
    "    subs r2, r2, r1\n"                                                                                           \
    "    add r2, lr\n" RLX_V6M_SATURATE(shift)
#define RLX_V6M_RESCALE_LONG(shift)                                                                                   \
    "    asrs r1, r0, #16\n" /* ah */                                                                                 \
    "    uxth r0, r0\n"      /* al */                                                                                 \
    "    movs r2, r0\n"                                                                                               \
    "    muls r2, r3, r2\n"                                                                                           \
    "    lsrs r2, r2, #16\n"                                                                                          \
    "    adds r2, r2, r6\n"                                                                                           \
    "    muls r0, r4, r0\n"                                                                                           \
    "    adds r2, r2, r0\n"                                                                                           \
    "    movs r0, r1\n"                                                                                               \
    "    muls r0, r3, r0\n"                                                                                           \
    "    adds r2, r2, r0\n"                                                                                           \
    "    asrs r2, r2, #15\n"                                                                                          \
    "    asrs r0, r1, #31\n"                                                                                          \
    "    adds r2, r2, r0\n"                                                                                           \
    "    muls r1, r4, r1\n"                                                                                           \
    "    lsls r1, r1, #1\n"                                                                                           \
    "    adds r2, r2, r1\n"                                                                                           \
    "    add r2, lr\n" RLX_V6M_SATURATE(shift)
#define RLX_V6M_INNER "0xC0004000"

#endif
