/* rlx_softmax_onnx_s8: softmax of each row, by a table of powers and one division an element.
 *
 * The rounding rule `onnx`: powers[d] / (sum * out_scale) to the nearest integer, ties to even. The output's scale is
 * mantissa / 2^shift. At most 4095 elements a row keep the sum within 63 bits. y may be x.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"

static int32_t largest(const int8_t *row, int32_t width)
{
    int32_t found = row[0];
    for (int32_t i = 1; i < width; i++) {
        found = row[i] > found ? row[i] : found;
    }
    return found;
}

static int32_t divide_even(uint64_t dividend, uint64_t divisor)
{
    const uint64_t quotient = dividend / divisor;
    const uint64_t twice = 2u * (dividend % divisor);
    const int up = twice > divisor || (twice == divisor && (quotient & 1u) != 0u);
    return (int32_t)quotient + up;
}

void rlx_softmax_onnx_s8(const rlx_softmax_onnx_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        const int32_t top = largest(in, p->width);
        uint64_t sum = 0u;
        for (int32_t i = 0; i < p->width; i++) {
            sum += (uint32_t)p->powers[top - in[i]];
        }
        const uint64_t divisor = sum * (uint32_t)p->mantissa;
        for (int32_t i = 0; i < p->width; i++) {
            const uint64_t dividend = (uint64_t)(uint32_t)p->powers[top - in[i]] << p->shift;
            out[i] = (int8_t)rlx_bound(divide_even(dividend, divisor) + p->out_zp, -128, 127);
        }
    }
}
