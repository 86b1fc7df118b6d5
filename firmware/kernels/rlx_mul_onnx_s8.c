/* rlx_mul_onnx_s8: product of the real values, in float32, requantized.
 *
 * The rounding rule `onnx`, in integer arithmetic. Rows as in rlx_mul_s8. y may be an operand that is not broadcast.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_float.h"
#include "rlx_kernels.h"
#include "rlx_requant.h"

void rlx_mul_onnx_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    const rlx_float_t a_scale = rlx_float_of_bits((uint32_t)p->a_multiplier);
    const rlx_float_t b_scale = rlx_float_of_bits((uint32_t)p->b_multiplier);
    const rlx_float_t out_scale = rlx_float_of_bits((uint32_t)p->out_multiplier);
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *pa = rlx_row(a, row);
        const int8_t *pb = rlx_row(b, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t w = 0; w < p->width; w++) {
            for (int32_t c = 0; c < p->channels; c++) {
                const int32_t qa = pa[w * p->a_stride_w + c * p->a_stride_c] - p->a_zp;
                const int32_t qb = pb[w * p->b_stride_w + c * p->b_stride_c] - p->b_zp;
                const rlx_float_t real_a = rlx_scale_float(qa, a_scale);
                const rlx_float_t product = rlx_multiply_floats(real_a, rlx_scale_float(qb, b_scale));
                const int32_t q = rlx_round_float(rlx_divide_floats(product, out_scale)) + p->out_zp;
                *out++ = (int8_t)rlx_bound(q, p->low, p->high);
            }
        }
    }
}
