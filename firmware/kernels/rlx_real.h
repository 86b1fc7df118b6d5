/* rlx_real.h: float32 to int8 and back by integer arithmetic on the IEEE 754 bits.
 *
 * The result is what a correctly rounded float32 division or product gives, under any compiler flag (-Ofast turns
 * divisions into products with a reciprocal and flushes small numbers to zero), and needs no FPU.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_REAL_H
#define RLX_REAL_H

#include <stdint.h>

/* A positive finite float32 as mantissa * 2^exponent with 2^23 <= mantissa < 2^24. */
typedef struct {
    uint32_t mantissa; /* 0 for the number 0 */
    int32_t exponent;
} rlx_real_t;

static inline rlx_real_t rlx_real(uint32_t bits)
{
    const int32_t biased = (int32_t)((bits >> 23) & 0xFFu);
    rlx_real_t real = {bits & 0x7FFFFFu, (biased != 0 ? biased : 1) - 150};
    if (biased != 0) {
        real.mantissa |= 0x800000u;
    }
    while (real.mantissa != 0u && real.mantissa < 0x800000u) {
        real.mantissa <<= 1;
        real.exponent -= 1;
    }
    return real;
}

/* value / 2^bits to nearest, ties to even, where `sticky` says that the value has a further fraction. */
static inline uint64_t rlx_round_even(uint64_t value, int32_t bits, int sticky)
{
    const uint64_t half = UINT64_C(1) << (bits - 1);
    const uint64_t rest = value & (2u * half - 1u);
    const uint64_t quotient = value >> bits;
    const int up = rest > half || (rest == half && (sticky || (quotient & 1u) != 0u));
    return quotient + (up ? 1u : 0u);
}

/* round(x / scale) to nearest, ties away from zero, where the quotient was rounded to float32 first; beyond +-65536 the
 * result is +-65536, for NaN it is 0. `scale` must be positive and finite. */
static inline int32_t rlx_divide_f32(uint32_t x_bits, uint32_t scale_bits)
{
    const int negative = (x_bits >> 31) != 0u;
    const uint32_t magnitude = x_bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
        return 0;
    }
    const int32_t huge = negative ? -65536 : 65536;
    if (magnitude == 0x7F800000u) {
        return huge;
    }
    const rlx_real_t x = rlx_real(magnitude);
    const rlx_real_t scale = rlx_real(scale_bits);
    /* The quotient of the mantissas lies between 2^25 and 2^27: 26 or 27 bits, of which float32 keeps 24. */
    const uint64_t dividend = (uint64_t)x.mantissa << 26;
    const uint64_t quotient = dividend / scale.mantissa;
    const int sticky = dividend % scale.mantissa != 0u;
    const int32_t surplus = quotient >= (UINT64_C(1) << 26) ? 3 : 2;
    const uint64_t rounded = rlx_round_even(quotient, surplus, sticky);
    const int32_t exponent = x.exponent - scale.exponent - 26 + surplus; /* |x / scale| = rounded * 2^exponent */
    if (exponent > -8) {
        return x.mantissa == 0u ? 0 : huge;
    }
    if (exponent < -25) {
        return 0; /* below one half */
    }
    const int32_t nearest = (int32_t)((rounded + (UINT64_C(1) << (-exponent - 1))) >> -exponent);
    return negative ? -nearest : nearest;
}

/* The bits of (float)difference * scale, rounded once; |difference| < 2^16. */
static inline uint32_t rlx_multiply_f32(int32_t difference, uint32_t scale_bits)
{
    const uint32_t sign = difference < 0 ? 0x80000000u : 0u;
    const uint32_t magnitude = difference < 0 ? 0u - (uint32_t)difference : (uint32_t)difference;
    const rlx_real_t scale = rlx_real(scale_bits);
    uint64_t product = (uint64_t)scale.mantissa * magnitude;
    if (product == 0u) {
        return sign;
    }
    int32_t exponent = scale.exponent;
    int32_t surplus = 0; /* bits beyond the 24 that are kept, or beyond the smallest exponent */
    while ((product >> surplus) >= (UINT64_C(1) << 24) || exponent + surplus < -149) {
        surplus += 1;
    }
    if (surplus > 0) {
        product = surplus > 48 ? 0u : rlx_round_even(product, surplus, 0);
        exponent += surplus;
        if (product == (UINT64_C(1) << 24)) {
            product >>= 1;
            exponent += 1;
        }
    }
    if (product < (UINT64_C(1) << 23)) {
        return sign | (uint32_t)product; /* a number below the normal range */
    }
    if (exponent + 150 >= 255) {
        return sign | 0x7F800000u;
    }
    return sign | ((uint32_t)(exponent + 150) << 23) | ((uint32_t)product & 0x7FFFFFu);
}

#endif
