/* rlx_depthwise_s8: int8 depthwise convolution with int32 accumulators, portable.
 *
 * x [in_h][in_w][in_c], weights [k_h][k_w][out_c], y [out_h][out_w][out_c]; out_c is a multiple of in_c, and output
 * channel c reads input channel c / (out_c / in_c). p->groups is not read. No scratch. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

static int32_t accumulate(const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int32_t in_c, int32_t c)
{
    int32_t acc = p->bias[c];
    for (int32_t ky = win->ky0; ky < win->ky1; ky++) {
        const int8_t *px = rlx_row(x, win->y0 + (ky - win->ky0) * p->dilation_h) + win->x0 * p->in_c + in_c;
        const int8_t *pw = p->weights + (ky * p->k_w + win->kx0) * p->out_c + c;
        for (int32_t kx = win->kx0; kx < win->kx1; kx++) {
            acc += (*px - p->x_zp) * (*pw - p->w_zp);
            px += p->dilation_w * p->in_c;
            pw += p->out_c;
        }
    }
    return acc;
}

static void depthwise_pixel(const rlx_conv_t *p, rlx_view_t x, rlx_window_t win, int8_t *out)
{
    const int32_t multiplier = p->out_c / p->in_c;
    for (int32_t in_c = 0, c = 0; in_c < p->in_c; in_c++) {
        for (int32_t m = 0; m < multiplier; m++, c++) {
            const int32_t i = c * p->per_channel;
            const int32_t acc = accumulate(p, x, &win, in_c, c);
            const int32_t q = rlx_rescale(acc, p->multipliers[i], p->shifts[i]) + p->out_zp;
            out[c] = (int8_t)rlx_bound(q, p->low, p->high);
        }
    }
}

void rlx_depthwise_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            depthwise_pixel(p, x, rlx_conv_window(p, oy, ox), out);
        }
    }
}
