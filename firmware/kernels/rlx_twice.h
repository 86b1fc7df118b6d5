/* rlx_twice.h: the rounding rule `tflm` for values that are at hand doubled, in few instructions on any core.
 *
 * With K = (zero_point << e) + 2^(e - 1) and e >= 1,
 *     rlx_twice_rescale(2 v, m, K) >> e  =  rlx_rescale(v, m, -e) + zero_point                  (rlx_requant.h)
 * for 0 <= m < 2^31 and |v| < 2^30, where K - 1 + h to K + h fit in int32 for h = (v * m + 2^30) >> 31. Why: see rlx_dsp.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_TWICE_H
#define RLX_TWICE_H

#include <stdint.h>

/* The upper word of x * m + 2^31, and `plus`: SMMLAR. */
static inline int32_t rlx_high_word(int32_t x, int32_t m, int32_t plus)
{
#if defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FEATURE_DSP)
    int32_t sum;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(sum) : "r"(x), "r"(m), "r"(plus));
    return sum;
#elif defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
    /* No 64-bit product there: four of halves. What lies below the middle's 2^0 is a fraction that no carry comes from. */
    const uint32_t x_low = (uint32_t)x & 0xFFFFu;
    const uint32_t m_low = (uint32_t)m & 0xFFFFu;
    const int32_t x_high = x >> 16;
    const int32_t middle = x_high * (int32_t)m_low + (int32_t)(x_low * m_low >> 16);
    const uint32_t rest = x_low * ((uint32_t)m >> 16) + ((uint32_t)middle & 0xFFFFu) + 0x8000u;
    return x_high * (m >> 16) + (middle >> 16) + (int32_t)(rest >> 16) + plus;
#else
    return (int32_t)(((int64_t)x * m + (INT64_C(1) << 31)) >> 32) + plus;
#endif
}

static inline int32_t rlx_twice_rescale(int32_t twice, int32_t m, int32_t k)
{
    return rlx_high_word(twice, m, k + (twice >> 31));
}

/* As int8, at the bounds where it does not fit. */
static inline int8_t rlx_saturate_s8(int32_t x)
{
#if defined(__GNUC__) && defined(__thumb2__)
    __asm__("ssat %0, #8, %0" : "+r"(x) : : "cc");
    return (int8_t)x;
#else
    return (int8_t)(x < -128 ? -128 : x > 127 ? 127 : x);
#endif
}

/* Bounds narrower than int8's, on n values that are int8 already. */
static inline void rlx_bound_s8(int8_t *out, int32_t n, int32_t low, int32_t high)
{
    if (low > -128 || high < 127) {
        for (int32_t i = 0; i < n; i++) {
            out[i] = (int8_t)(out[i] < low ? low : out[i] > high ? high : out[i]);
        }
    }
}

#endif
