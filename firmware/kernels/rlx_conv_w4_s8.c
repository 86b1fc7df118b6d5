/* rlx_conv_w4_s8: int8 convolution with weights of 4 bits, portable.
 *
 * x [in_h][in_w][in_c], weights of [k_h][k_w][in_c] taps as rlx_dot_packed.h says, y [out_h][out_w][out_c]. One group, 4
 * output channels or more; any stride, dilation and padding. p->groups must be 1, p->w_zp is not read. The input's zero
 * point is in the bias already; padded positions count as x_zp. No scratch. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_requant.h"

#define RLX_WEIGHT_BITS 4
#define RLX_RESCALE rlx_rescale
#include "rlx_conv.h"

void rlx_conv_w4_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            const rlx_window_t win = rlx_conv_window(p, oy, ox);
            conv_pixel(p, x, &win, out);
        }
    }
}
