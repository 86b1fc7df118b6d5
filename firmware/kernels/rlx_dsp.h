/* rlx_dsp.h: what the kernels for the DSP extension (Cortex-M4, M7, M33) share.
 *
 * Requantization. A channel has (m, K, e) with K = (out_zp << e) + 2^(e-1), and its accumulator acc becomes
 *     t = K + (acc >> 31);  v = t + ((acc * m + 2^30) >> 31);  v >> e, saturated to int8
 * in five or six instructions: t by ADD with a shifted operand, v by SMMLAR of 2 acc, then ASR and SSAT. This is exactly
 * rlx_rescale (rlx_requant.h), the output's zero point and the bounds [-128, 127]:
 *   SMMLAR gives (t * 2^32 + 2 acc * m + 2^31) >> 32 = t + h with h = (acc * m + 2^30) >> 31, the rounded high product.
 *   A right shift by e >= 1 with ties away from zero is (h + 2^(e-1) - [h < 0]) >> e.
 *   v = (out_zp << e) + h + 2^(e-1) - [acc < 0], so v >> e = out_zp + ((h + 2^(e-1) - [acc < 0]) >> e).
 *   As m >= 0, h < 0 implies acc < 0, and acc >= 0 implies h >= 0. What is left is acc < 0 with h = 0, and there both
 *   (2^(e-1) - 1) >> e and 2^(e-1) >> e are 0.
 * The generator proves 1 <= e <= 31, 0 <= m, |acc| < 2^30 (so that 2 acc fits), and that t and v fit in int32.
 *
 * The assembly runs where RLX_DSP is 1. Everywhere else a twin in C reads the same bytes in the same order.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DSP_H
#define RLX_DSP_H

#include <stdint.h>

#if defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_UNALIGNED) \
    && !defined(__ARM_BIG_ENDIAN)
#define RLX_DSP 1
#else
#define RLX_DSP 0
#endif

/* A function whose body is one block of assembly. Its arguments must arrive as the calling convention says, however
 * little the compiler sees of their use. ADR counts from a multiple of 4, so the function must begin at one: compilers
 * put functions at any even address where they optimize for size. */
#if defined(__clang__)
#define RLX_NAKED __attribute__((naked, noinline, aligned(4)))
#else
#define RLX_NAKED __attribute__((naked, noinline, noclone, noipa, aligned(4)))
#endif

/* A macro's value as text, for assembly. */
#define RLX_DSP_QUOTED(x) #x
#define RLX_DSP_TEXT(x) RLX_DSP_QUOTED(x)

/* The requantization as above, for assembly: of twice the accumulator, with r8, r9, r10 = m, K, e and r11 for t. */
#define RLX_DSP_REQUANTIZE(acc) \
    "add r11, r9, " acc ", asr #31\n\tsmmlar " acc ", " acc ", r8, r11\n\t" \
    "asr " acc ", " acc ", r10\n\tssat " acc ", #8, " acc "\n\t"

/* The requantization as above; e is the low byte of e_word. */
static inline int8_t rlx_dsp_requantize(int32_t acc, int32_t m, int32_t k, int32_t e_word)
{
    const int32_t high = (int32_t)(((int64_t)acc * m + (INT64_C(1) << 30)) >> 31);
    const int32_t v = (k + (acc >> 31) + high) >> (e_word & 0xFF);
    return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}

/* The requantization of rlx_digits_dsp.h, for right shifts by 0, too; e is the low byte of e_word. */
static inline int8_t rlx_dsp_requantize_doubled(int32_t acc, int32_t m, int32_t k, int32_t e_word)
{
    const int32_t high = (int32_t)(((int64_t)acc * m + (INT64_C(1) << 30)) >> 31);
    const int32_t v = (k + (acc >> 31) + 2 * high) >> (e_word & 0xFF) >> 1;
    return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}

/* Bounds narrower than [-128, 127]: a second pass over n outputs that are already saturated. */
static __attribute__((noinline, unused)) void rlx_dsp_clamp(int8_t *out, int32_t n, int32_t low, int32_t high)
{
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int8_t)(out[i] < low ? low : out[i] > high ? high : out[i]);
    }
}

/* As int16: d[0], d[1] = x[0], x[2] and d[gap], d[gap + 1] = x[1], x[3]. d is aligned to 4, x need not be. */
static inline void rlx_dsp_widen(int16_t *d, int32_t gap, const int8_t *x)
{
#if RLX_DSP
    int32_t word, even;
    __asm__("ldr %0, [%2]\n\tsxtb16 %1, %0\n\tsxtb16 %0, %0, ror #8"
            : "=&r"(word), "=r"(even)
            : "r"(x), "m"(*(const int8_t(*)[4])x));
    __builtin_memcpy(__builtin_assume_aligned(d, 4), &even, 4);
    __builtin_memcpy(__builtin_assume_aligned(d + gap, 4), &word, 4);
#else
    d[0] = x[0];
    d[1] = x[2];
    d[gap] = x[1];
    d[gap + 1] = x[3];
#endif
}

#endif
