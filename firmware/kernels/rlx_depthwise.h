/* rlx_depthwise.h: a pixel of a depthwise convolution.
 *
 * A kernel includes it once RLX_RESCALE(x, multiplier, shift) is its rounding rule.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_H
#define RLX_DEPTHWISE_H

#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

static inline void finish(const rlx_conv_t *p, int32_t acc, int32_t c, int8_t *out)
{
    const int32_t i = c * p->per_channel;
    const int32_t q = RLX_RESCALE(acc, p->multipliers[i], p->shifts[i]) + p->out_zp;
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

#endif
