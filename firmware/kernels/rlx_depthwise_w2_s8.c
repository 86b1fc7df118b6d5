/* rlx_depthwise_w2_s8: int8 depthwise convolution with weights of 2 bits, portable.
 *
 * x [in_h][in_w][in_c], weights as rlx_depthwise.h says, y [out_h][out_w][in_c]. 4 channels or more. p->groups and p->w_zp
 * are not read. The input's zero point is in the bias already; padded positions count as x_zp. No scratch. x and y must
 * not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_requant.h"

#define RLX_WEIGHT_BITS 2
#define RLX_RESCALE rlx_rescale
#include "rlx_depthwise.h"

void rlx_depthwise_w2_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            const rlx_window_t win = rlx_conv_window(p, oy, ox);
            depthwise_pixel(p, x, &win, out);
        }
    }
}
