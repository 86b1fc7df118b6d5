/* rlx_add_s8, rlx_sub_s8: both operands are shifted left, rescaled to a common scale, summed, rescaled to the output's.
 *
 * Rows of width * channels elements; a stride of 0 broadcasts. y may be an operand that is not broadcast.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"

/* sign: 1 adds, -1 subtracts */
static inline void add_rows(
    const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1, int32_t sign)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *pa = rlx_row(a, row);
        const int8_t *pb = rlx_row(b, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t w = 0; w < p->width; w++) {
            for (int32_t c = 0; c < p->channels; c++) {
                const int32_t qa = pa[w * p->a_stride_w + c * p->a_stride_c] - p->a_zp;
                const int32_t qb = pb[w * p->b_stride_w + c * p->b_stride_c] - p->b_zp;
                const int32_t sa = rlx_rescale(rlx_shift_left(qa, p->left_shift), p->a_multiplier, p->a_shift);
                const int32_t sb = rlx_rescale(rlx_shift_left(qb, p->left_shift), p->b_multiplier, p->b_shift);
                const int32_t sum = rlx_rescale(sa + sign * sb, p->out_multiplier, p->out_shift);
                *out++ = (int8_t)rlx_bound(sum + p->out_zp, p->low, p->high);
            }
        }
    }
}

void rlx_add_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    add_rows(p, a, b, y, y0, y1, 1);
}

void rlx_sub_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    add_rows(p, a, b, y, y0, y1, -1);
}
