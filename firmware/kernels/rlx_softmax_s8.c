/* rlx_softmax_s8: fixed-point softmax of each row. Twin of rlx_edge/reference/fixedsoftmax.py.
 *
 * Numbers are int32 with k integer bits ("Fk"): raw / 2^(31 - k). Each exponential is computed twice, so that no
 * scratch is needed. y may be x.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"

#define EXP_MINUS_EIGHTH 1895147668   /* F0 */
#define ONE_THIRD 715827883           /* F0 */
#define TWO_48_OVER_17 1515870810     /* F2 */
#define TWO_MINUS_32_OVER_17 (-1010580540)
#define F2_ONE (INT32_C(1) << 29)
#define SUM_INTEGER_BITS 12

static int32_t saturating_left(int32_t x, int32_t bits)
{
    const int64_t wide = (int64_t)x * (INT64_C(1) << bits);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

/* exp(a) in F0 for a <= 0 in F5: a series around -1/8 for the last quarter, then one factor per higher bit. */
static int32_t exp_of_negative(int32_t a)
{
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = INT32_C(1) << 24;
    if (a == 0) {
        return INT32_MAX;
    }
    const int32_t rest = (a & (quarter - 1)) - quarter;
    const int32_t x = saturating_left(rest, 5) + (INT32_C(1) << 28);
    const int32_t x2 = rlx_high_mul(x, x);
    const int32_t x3 = rlx_high_mul(x2, x);
    const int32_t x4 = rlx_high_mul(x2, x2);
    const int32_t series = rlx_shift_right(rlx_high_mul(rlx_shift_right(x4, 2) + x3, ONE_THIRD) + x2, 1);
    int32_t result = EXP_MINUS_EIGHTH + rlx_high_mul(EXP_MINUS_EIGHTH, x + series);
    const int32_t remainder = rest - a;
#pragma GCC unroll 1 /* small rather than quick: softmax is a small part of any model */
    for (int32_t i = 0; i < 7; i++) {
        if ((remainder & (quarter << i)) != 0) {
            result = rlx_high_mul(result, factors[i]);
        }
    }
    return result;
}

/* 1 / (1 + a) in F0 for a in [0, 1) in F0: three Newton steps on the half denominator. */
static int32_t reciprocal_of_one_plus(int32_t a)
{
    const int32_t half_denominator = (int32_t)(((int64_t)a + INT32_MAX + 1) >> 1);
    int32_t x = TWO_48_OVER_17 + rlx_high_mul(half_denominator, TWO_MINUS_32_OVER_17);
#pragma GCC unroll 1
    for (int32_t i = 0; i < 3; i++) {
        const int32_t error = F2_ONE - rlx_high_mul(half_denominator, x);
        x += saturating_left(rlx_high_mul(x, error), 2);
    }
    return saturating_left(x, 1);
}

static int32_t exp_of_difference(const rlx_softmax_t *p, int32_t difference)
{
    return exp_of_negative(rlx_high_mul(rlx_shift_left(difference, p->left_shift), p->multiplier));
}

static int32_t leading_zeros(uint32_t x)
{
    int32_t count = 0;
    for (; (x & 0x80000000u) == 0u; x <<= 1) {
        count++;
    }
    return count;
}

static void softmax_row(const rlx_softmax_t *p, const int8_t *x, int8_t *y)
{
    int32_t max = -128;
    for (int32_t i = 0; i < p->width; i++) {
        max = x[i] > max ? x[i] : max;
    }
    int32_t sum = 0; /* F12 */
    for (int32_t i = 0; i < p->width; i++) {
        if (x[i] - max >= p->diff_min) {
            sum += rlx_shift_right(exp_of_difference(p, x[i] - max), SUM_INTEGER_BITS);
        }
    }
    const int32_t headroom = leading_zeros((uint32_t)sum);
    const int32_t fraction = (int32_t)(((uint32_t)sum << headroom) - 0x80000000u);
    const int32_t reciprocal = reciprocal_of_one_plus(fraction);
    const int32_t bits = SUM_INTEGER_BITS - headroom + 31 - 8;
    for (int32_t i = 0; i < p->width; i++) {
        int32_t q = -128;
        if (x[i] - max >= p->diff_min) {
            const int32_t product = rlx_high_mul(reciprocal, exp_of_difference(p, x[i] - max));
            q += bits > 31 ? 0 : rlx_shift_right(product, bits);
        }
        y[i] = (int8_t)rlx_bound(q, -128, 127);
    }
}

void rlx_softmax_s8(const rlx_softmax_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        softmax_row(p, rlx_row(x, row), rlx_row(y, row));
    }
}
