/* rlx_depthwise_s8: int8 depthwise convolution with int32 accumulators, portable.
 *
 * x [in_h][in_w][in_c], weights [k_h][k_w][out_c], y [out_h][out_w][out_c]; out_c is a multiple of in_c, and output
 * channel c reads input channel c / (out_c / in_c). p->groups is not read. The input's zero point is in the bias
 * already; padded positions count as x_zp. Four channels at a time share the walk over the taps. No scratch. x and y
 * must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

static inline void finish(const rlx_conv_t *p, int32_t acc, int32_t c, int8_t *out)
{
    const int32_t i = c * p->per_channel;
    const int32_t q = rlx_rescale(acc, p->multipliers[i], p->shifts[i]) + p->out_zp;
    out[c] = (int8_t)rlx_bound(q, p->low, p->high);
}

/* Output channels [c, c + n), n <= 4, of which channel c + i reads input channel in_c + i. */
static inline void channels(
    const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int32_t in_c, int32_t c, int32_t n, int8_t *out)
{
    int32_t acc[4] = {0, 0, 0, 0};
    const int8_t *w = p->weights + c;
    for (int32_t ky = 0; ky < p->k_h; ky++) {
        const bool row_inside = ky >= win->ky0 && ky < win->ky1;
        const int32_t iy = row_inside ? win->y0 + (ky - win->ky0) * p->dilation_h : 0;
        const int8_t *px = rlx_row(x, iy) + win->x0 * p->in_c + in_c;
        for (int32_t kx = 0; kx < p->k_w; kx++, w += p->out_c) {
            if (row_inside && kx >= win->kx0 && kx < win->kx1) {
                for (int32_t i = 0; i < n; i++) {
                    acc[i] += px[i] * (w[i] - p->w_zp);
                }
                px += p->dilation_w * p->in_c;
            } else {
                for (int32_t i = 0; i < n; i++) {
                    acc[i] += p->x_zp * (w[i] - p->w_zp);
                }
            }
        }
    }
    for (int32_t i = 0; i < n; i++) {
        finish(p, p->bias[c + i] + acc[i], c + i, out);
    }
}

static void depthwise_pixel(const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int8_t *out)
{
    const int32_t multiplier = p->out_c / p->in_c;
    int32_t c = 0;
    if (multiplier == 1) {
        for (; c + 4 <= p->out_c; c += 4) {
            channels(p, x, win, c, c, 4, out);
        }
    }
    for (; c < p->out_c; c++) {
        channels(p, x, win, c / multiplier, c, 1, out);
    }
}

void rlx_depthwise_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            const rlx_window_t win = rlx_conv_window(p, oy, ox);
            depthwise_pixel(p, x, &win, out);
        }
    }
}
