/* rlx_float.h: float32 arithmetic in integers, for the rounding rule `onnx`.
 *
 * Every step gives the nearest float32, ties to even, as IEEE 754 hardware does; so results depend neither on compiler
 * flags nor on an FPU. Numbers stay within 2^-126 and 2^127 (the generator checks the scales), or are 0.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_FLOAT_H
#define RLX_FLOAT_H

#include "rlx_real.h"

/* mantissa * 2^exponent, |mantissa| < 2^24 */
typedef struct {
    int32_t mantissa, exponent;
} rlx_float_t;

static inline int32_t rlx_bit_length(uint32_t x)
{
    int32_t bits = 0;
    for (int32_t step = 16; step > 0; step >>= 1) {
        if ((x >> step) != 0u) {
            x >>= step;
            bits += step;
        }
    }
    return bits + (int32_t)x;
}

/* value * 2^exponent to the nearest float32; |value| < 2^55. `sticky`: |value| has a further fraction. */
static inline rlx_float_t rlx_nearest_float(int64_t value, int32_t exponent, int sticky)
{
    uint64_t magnitude = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
    int32_t surplus = rlx_bit_length((uint32_t)(magnitude >> 24)); /* bits beyond the 24 that are kept */
    if (surplus > 0) {
        magnitude = rlx_round_even(magnitude, surplus, sticky);
        if (magnitude == (UINT64_C(1) << 24)) {
            magnitude >>= 1;
            surplus += 1;
        }
    }
    const rlx_float_t nearest = {value < 0 ? -(int32_t)magnitude : (int32_t)magnitude, exponent + surplus};
    return nearest;
}

/* A positive, finite float32 from its bits. */
static inline rlx_float_t rlx_float_of_bits(uint32_t bits)
{
    const rlx_real_t real = rlx_real(bits);
    const rlx_float_t number = {(int32_t)real.mantissa, real.exponent};
    return number;
}

/* The same number with 2^23 <= |mantissa|, if it is not 0. */
static inline rlx_float_t rlx_normal_float(rlx_float_t x)
{
    while (x.mantissa != 0 && x.mantissa < (1 << 23) && x.mantissa > -(1 << 23)) {
        x.mantissa *= 2;
        x.exponent -= 1;
    }
    return x;
}

/* (float)q * x */
static inline rlx_float_t rlx_scale_float(int32_t q, rlx_float_t x)
{
    return rlx_nearest_float((int64_t)q * x.mantissa, x.exponent, 0);
}

static inline rlx_float_t rlx_multiply_floats(rlx_float_t a, rlx_float_t b)
{
    return rlx_nearest_float((int64_t)a.mantissa * b.mantissa, a.exponent + b.exponent, 0);
}

static inline rlx_float_t rlx_add_floats(rlx_float_t a, rlx_float_t b)
{
    if (a.mantissa == 0 || b.mantissa == 0) {
        return a.mantissa == 0 ? b : a;
    }
    a = rlx_normal_float(a);
    b = rlx_normal_float(b);
    const rlx_float_t high = a.exponent >= b.exponent ? a : b;
    const rlx_float_t low = a.exponent >= b.exponent ? b : a;
    const int32_t apart = high.exponent - low.exponent;
    if (apart > 28) {
        return high; /* low is less than a sixteenth of high's last bit */
    }
    return rlx_nearest_float(high.mantissa * (INT64_C(1) << apart) + low.mantissa, low.exponent, 0);
}

/* a / b; b is positive. */
static inline rlx_float_t rlx_divide_floats(rlx_float_t a, rlx_float_t b)
{
    a = rlx_normal_float(a);
    b = rlx_normal_float(b);
    const uint64_t dividend = (uint64_t)(a.mantissa < 0 ? -a.mantissa : a.mantissa) << 26;
    const uint64_t divisor = (uint64_t)b.mantissa;
    /* 26 or 27 bits, of which 24 are kept, unless a is 0. */
    const int64_t quotient = (int64_t)(dividend / divisor);
    const int sticky = dividend % divisor != 0u;
    return rlx_nearest_float(a.mantissa < 0 ? -quotient : quotient, a.exponent - b.exponent - 26, sticky);
}

/* The nearest integer, ties to even; beyond +-65536 it may be any number beyond. */
static inline int32_t rlx_round_float(rlx_float_t x)
{
    const int32_t magnitude = x.mantissa < 0 ? -x.mantissa : x.mantissa;
    int32_t nearest = 0;
    if (x.exponent > 6) {
        nearest = magnitude == 0 ? 0 : 65536; /* a multiple of 128 that is not 0, and so is 128 or more */
    } else if (x.exponent >= 0) {
        nearest = magnitude << x.exponent;
    } else if (x.exponent >= -25) {
        nearest = (int32_t)rlx_round_even((uint64_t)magnitude, -x.exponent, 0);
    }
    return x.mantissa < 0 ? -nearest : nearest;
}

/* round((float)x * real) with real = multiplier / 2^31 * 2^shift, a float32. Twin of fixedpoint.py's scale_float32. */
static inline int32_t rlx_rescale_float(int32_t x, int32_t multiplier, int32_t shift)
{
    const rlx_float_t real = {multiplier >> 7, shift - 24};
    return rlx_round_float(rlx_multiply_floats(rlx_nearest_float(x, 0, 0), real));
}

/* The nearest integer to x / scale, ties to even, both given as the bits of float32 numbers. NaN gives 0; infinity is
 * like any number beyond all codes. */
static inline int32_t rlx_float_steps(uint32_t x_bits, uint32_t scale_bits)
{
    const uint32_t magnitude = x_bits & 0x7FFFFFFFu;
    int32_t steps = 65536;
    if (magnitude > 0x7F800000u) {
        return 0;
    }
    if (magnitude < 0x7F800000u) {
        steps = rlx_round_float(rlx_divide_floats(rlx_float_of_bits(magnitude), rlx_float_of_bits(scale_bits)));
    }
    return (x_bits >> 31) != 0u ? -steps : steps;
}

#endif
