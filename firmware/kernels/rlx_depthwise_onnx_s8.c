/* rlx_depthwise_onnx_s8: rlx_depthwise_s8 under the rounding rule `onnx`, float32 steps in integer arithmetic.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_float.h"

/* A function of its own, so that it is in flash once. */
static int32_t rescale(int32_t x, int32_t multiplier, int32_t shift)
{
    return rlx_rescale_float(x, multiplier, shift);
}

#define RLX_RESCALE rescale
#include "rlx_depthwise.h"

void rlx_depthwise_onnx_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            const rlx_window_t win = rlx_conv_window(p, oy, ox);
            depthwise_pixel(p, x, &win, out);
        }
    }
}
