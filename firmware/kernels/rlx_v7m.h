/* rlx_v7m.h: what the kernels for Armv7-M without the DSP extension (Cortex-M3) share.
 *
 * Requantization. Sums are kept negated, n = -acc, because that turns the sign that rounding needs into a carry flag
 * that is free. A channel has m, stored as -m, and e = its right shift - 1; the layer has c = -(2 out_zp + 1). With
 * k = c << e = -((out_zp << (e + 1)) + 2^e), per output
 *     lsls n, n, #1             2n, and C = 1 exactly when n < 0, that is acc > 0: |acc| < 2^30 is proved
 *     smull low, v, n, -m       v * 2^32 + low = 2n * -m = 2 acc * m
 *     sbc  v, v, k              v - k - 1 + C
 *     add  v, v, low, lsr #31   with h = (acc * m + 2^30) >> 31:  v = h + (out_zp << (e + 1)) + 2^e - [acc <= 0]
 *     asr  v, v, e
 *     ssat v, #8, v, asr #1     v >> (e + 1), saturated
 * This is exactly rlx_rescale (rlx_requant.h), the output's zero point and the bounds [-128, 127]:
 *   A right shift by s = e + 1 >= 1 with ties away from zero is (h + 2^(s-1) - [h < 0]) >> s.
 *   As m >= 0, acc > 0 implies h >= 0, and h < 0 implies acc < 0. So [acc <= 0] differs from [h < 0] only where h = 0,
 *   and there (2^(s-1) - 1) >> s and 2^(s-1) >> s are both 0.
 * The generator proves 1 <= s <= 31, 0 <= m, |acc| < 2^30, and that v fits in int32 (variants/proofs.py, offsets).
 *
 * Large scales, 1/2 and more, for kernels of weights of few bits. Where e has RLX_V7M_LARGE, the channel shifts to the
 * left by j = 6 - (e & 255), 0 to 6, and |acc| < 2^23:
 *     v = (n << 8) * -m >> 32 = floor(acc * m / 2^24), the result is (v - k) >> ((e & 255) + 1), saturated, k as above.
 * With f = 7 - j that is (v + (out_zp << f) + 2^(f-1)) >> f = out_zp + floor(acc * 2^j * m / 2^31 + 1/2), as it must be.
 *
 * The assembly runs where RLX_V7M is 1. Everywhere else a twin in C reads the same bytes in the same order.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_V7M_H
#define RLX_V7M_H

#include <stdint.h>

#if defined(__GNUC__) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
#define RLX_V7M 1
#else
#define RLX_V7M 0
#endif

/* A function whose body is one block of assembly. Its arguments must arrive as the calling convention says, however
 * little the compiler sees of their use. */
#if defined(__clang__)
#define RLX_V7M_NAKED __attribute__((naked, noinline))
#else
#define RLX_V7M_NAKED __attribute__((naked, noinline, noclone, noipa))
#endif

/* Code that is not worth copies of itself. */
#define RLX_V7M_SMALL __attribute__((noinline))
#if defined(__clang__)
#define RLX_V7M_ROLLED
#else
#define RLX_V7M_ROLLED _Pragma("GCC unroll 1")
#endif

/* Assembly: the negated sum in register n becomes the output at [at]; m holds -m, k holds c << e; low is lost. */
#define RLX_V7M_REQUANTIZE(n, m, e, k, low, at) \
    "lsls " n ", " n ", #1\n\t" \
    "smull " low ", " n ", " n ", " m "\n\t" \
    "sbc.w " n ", " n ", " k "\n\t" \
    "add.w " n ", " n ", " low ", lsr #31\n\t" \
    "asr.w " n ", " n ", " e "\n\t" \
    "ssat " n ", #8, " n ", asr #1\n\t" \
    "strb " n ", " at "\n\t"

/* The same where the scale is large. */
#define RLX_V7M_REQUANTIZE_LARGE(n, m, e, k, low, at) \
    "lsl.w " n ", " n ", #8\n\t" \
    "smull " low ", " n ", " n ", " m "\n\t" \
    "sub.w " n ", " n ", " k "\n\t" \
    "asr.w " n ", " n ", " e "\n\t" \
    "ssat " n ", #8, " n ", asr #1\n\t" \
    "strb " n ", " at "\n\t"

/* The same in C. */
static inline int8_t rlx_v7m_requantize(int32_t negated, int32_t minus_m, int32_t e, int32_t c)
{
    const int64_t product = (int64_t)negated * minus_m; /* acc * m */
    const int32_t high = (int32_t)((product + (INT64_C(1) << 30)) >> 31);
    const int32_t k = (int32_t)((uint32_t)c << e);
    const int32_t v = (high - k - (negated < 0 ? 0 : 1)) >> e >> 1;
    return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}

#define RLX_V7M_LARGE 256

/* The same with e as it stands in a stream of a kernel that knows large scales. */
static inline int8_t rlx_v7m_requantize_any(int32_t negated, int32_t minus_m, int32_t e, int32_t c)
{
    if ((e & RLX_V7M_LARGE) == 0) {
        return rlx_v7m_requantize(negated, minus_m, e, c);
    }
    const int32_t shift = e & (RLX_V7M_LARGE - 1);
    const int32_t high = (int32_t)((int64_t)(negated * 256) * minus_m >> 32);
    const int32_t v = (high - (int32_t)((uint32_t)c << shift)) >> shift >> 1;
    return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}

/* Bounds narrower than [-128, 127]: a second pass over n outputs that are already saturated. */
static inline void rlx_v7m_clamp(int8_t *out, int32_t n, int32_t low, int32_t high)
{
    RLX_V7M_ROLLED
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int8_t)(out[i] < low ? low : out[i] > high ? high : out[i]);
    }
}

#endif
