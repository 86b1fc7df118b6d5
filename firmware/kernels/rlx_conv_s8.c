/* rlx_conv_s8: int8 convolution with int32 accumulators, the portable kernel that defines the meaning.
 *
 * x [in_h][in_w][in_c], weights [out_c][k_h][k_w][in_c / groups], y [out_h][out_w][out_c]. Any stride, dilation,
 * padding, number of groups and zero point. The input's zero point is in the bias already, so that x is used as it is
 * and padded positions count as x_zp. No scratch. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_requant.h"

#define RLX_RESCALE rlx_rescale
#include "rlx_conv.h"

void rlx_conv_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            const rlx_window_t win = rlx_conv_window(p, oy, ox);
            conv_pixel(p, x, &win, out);
        }
    }
}
