/* rlx_requant.h: the rounding rule `tflm` in 32- and 64-bit integers. Twin of rlx_edge/reference/fixedpoint.py.
 *
 * Right shifts of negative numbers are arithmetic, as gcc and clang define them.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_REQUANT_H
#define RLX_REQUANT_H

#include <stdint.h>

/* (x * multiplier + 2^30) >> 31, ties towards +infinity, from 32-bit products: for cores without a long multiply.
 * multiplier must not be INT32_MIN.
 *
 * With x = xh * 2^16 + xl and multiplier = mh * 2^16 + ml, 0 <= xl, ml < 2^16, the product is
 * xh mh 2^32 + (xh ml + xl mh) 2^16 + xl ml. `upper` and `lower` sum it from below with their carries, each in int32:
 * |xh| and |mh| are at most 2^15, so no sum exceeds 2^15 * (2^16 - 1) + 2^16 - 1. The product is then
 * (xh mh + (upper >> 16)) 2^32 + lower 2^16 and 16 bits that cannot change the rounding, which looks at bit 30 only. */
static inline int32_t rlx_high_mul_by_halves(int32_t x, int32_t multiplier)
{
    const int32_t xh = x >> 16;
    const int32_t mh = multiplier >> 16;
    const uint32_t xl = (uint32_t)x & 0xFFFFu;
    const uint32_t ml = (uint32_t)multiplier & 0xFFFFu;
    const int32_t upper = xh * (int32_t)ml + (int32_t)(xl * ml >> 16);
    const int32_t lower = (int32_t)xl * mh + (upper & 0xFFFF);
    return (int32_t)(2u * (uint32_t)(xh * mh + (upper >> 16))) + (((lower >> 14) + 1) >> 1);
}

/* The same. multiplier must not be INT32_MIN. */
static inline int32_t rlx_high_mul(int32_t x, int32_t multiplier)
{
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
    return rlx_high_mul_by_halves(x, multiplier);
#else
    return (int32_t)(((int64_t)x * multiplier + (INT64_C(1) << 30)) >> 31);
#endif
}

/* x / 2^bits to nearest, ties away from zero; 0 <= bits <= 31. */
static inline int32_t rlx_shift_right(int32_t x, int32_t bits)
{
    const int32_t mask = (int32_t)((UINT32_C(1) << bits) - 1u);
    const int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
    return (x >> bits) + ((x & mask) > threshold ? 1 : 0);
}

/* x * 2^bits in two's complement; the generator proves that nothing is lost. */
static inline int32_t rlx_shift_left(int32_t x, int32_t bits)
{
    return (int32_t)((uint32_t)x << bits);
}

/* x * multiplier / 2^31 * 2^shift; -31 <= shift <= 30. */
static inline int32_t rlx_rescale(int32_t x, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    return rlx_shift_right(rlx_high_mul(rlx_shift_left(x, left), multiplier), left - shift);
}

static inline int32_t rlx_bound(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

#endif
