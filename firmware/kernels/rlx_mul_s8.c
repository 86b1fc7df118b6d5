/* rlx_mul_s8: product of two tensors, rescaled to the output's scale.
 *
 * Rows of width * channels elements; a stride of 0 broadcasts. y may be an operand that is not broadcast.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"

void rlx_mul_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *pa = rlx_row(a, row);
        const int8_t *pb = rlx_row(b, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t w = 0; w < p->width; w++) {
            for (int32_t c = 0; c < p->channels; c++) {
                const int32_t qa = pa[w * p->a_stride_w + c * p->a_stride_c] - p->a_zp;
                const int32_t qb = pb[w * p->b_stride_w + c * p->b_stride_c] - p->b_zp;
                const int32_t product = rlx_rescale(qa * qb, p->out_multiplier, p->out_shift);
                *out++ = (int8_t)rlx_bound(product + p->out_zp, p->low, p->high);
            }
        }
    }
}
