/* rlx_depthwise.h: a pixel of a depthwise convolution.
 *
 * A kernel includes it once RLX_RESCALE(x, multiplier, shift) is its rounding rule, and RLX_WEIGHT_BITS is 4 or 2 where
 * weights are packed: [k_h * k_w][channels / 4, rounded up] as rlx_dot_packed.h says. Then out_c is in_c, 4 or more.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_H
#define RLX_DEPTHWISE_H

#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"
#if defined(RLX_WEIGHT_BITS)
#include "rlx_dot_packed.h"
#endif

static inline void finish(const rlx_conv_t *p, int32_t acc, int32_t c, int8_t *out)
{
    const int32_t i = c * p->per_channel;
    const int32_t q = RLX_RESCALE(acc, p->multipliers[i], p->shifts[i]) + p->out_zp;
    out[c] = (int8_t)rlx_bound(q, p->low, p->high);
}

/* Where the first tap's weights of channels from c on lie; bytes to the next tap's; a tap's weights; channel i's. */
#if defined(RLX_WEIGHT_BITS)
#define TAPS_OF(p, c) rlx_dot_weights((p)->weights, c, 1)
#define TAP_STEP(p) (((p)->out_c + RLX_DOT_CHANNELS - 1) / RLX_DOT_CHANNELS * RLX_TAP_BYTES)
#define TAP_LOAD(w) \
    int32_t unpacked[RLX_DOT_CHANNELS]; \
    rlx_unpack(w, unpacked)
#define TAP_WEIGHT(p, w, i) unpacked[i]
#else
#define TAPS_OF(p, c) ((p)->weights + (c))
#define TAP_STEP(p) (p)->out_c
#define TAP_LOAD(w) (void)(w)
#define TAP_WEIGHT(p, w, i) ((w)[i] - (p)->w_zp)
#endif

/* Output channels [c, c + n), n <= 4, of which channel c + i reads input channel in_c + i. */
static inline void channels(
    const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int32_t in_c, int32_t c, int32_t n, int8_t *out)
{
    int32_t acc[4] = {0, 0, 0, 0};
    const int8_t *w = TAPS_OF(p, c);
    for (int32_t ky = 0; ky < p->k_h; ky++) {
        const bool row_inside = ky >= win->ky0 && ky < win->ky1;
        const int32_t iy = row_inside ? win->y0 + (ky - win->ky0) * p->dilation_h : 0;
        const int8_t *px = rlx_row(x, iy) + win->x0 * p->in_c + in_c;
        for (int32_t kx = 0; kx < p->k_w; kx++, w += TAP_STEP(p)) {
            TAP_LOAD(w);
            if (row_inside && kx >= win->kx0 && kx < win->kx1) {
                for (int32_t i = 0; i < n; i++) {
                    acc[i] += px[i] * TAP_WEIGHT(p, w, i);
                }
                px += p->dilation_w * p->in_c;
            } else {
                for (int32_t i = 0; i < n; i++) {
                    acc[i] += p->x_zp * TAP_WEIGHT(p, w, i);
                }
            }
        }
    }
    for (int32_t i = 0; i < n; i++) {
        finish(p, p->bias[c + i] + acc[i], c + i, out);
    }
}

#if defined(RLX_WEIGHT_BITS)
static void depthwise_pixel(const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int8_t *out)
{
    const int32_t last = p->out_c - RLX_DOT_CHANNELS;
    for (int32_t i = 0; i < p->out_c; i += RLX_DOT_CHANNELS) {
        const int32_t c = i < last ? i : last;
        channels(p, x, win, c, c, RLX_DOT_CHANNELS, out);
    }
}
#else
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

#endif
