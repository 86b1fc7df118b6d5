/* rlx_conv.h: a pixel of a convolution.
 *
 * A kernel includes it once RLX_RESCALE(x, multiplier, shift) is its rounding rule, and RLX_WEIGHT_BITS is 4 or 2 where
 * weights are packed (rlx_dot_packed.h): then there is one group, and 4 output channels or more.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_CONV_H
#define RLX_CONV_H

#if defined(RLX_WEIGHT_BITS)
#include "rlx_dot_packed.h"
#else
#include "rlx_dot.h"
#endif
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

/* What all output channels of a pixel share. A kernel row has `before` taps left of the image, `runs` runs of `run`
 * inside it, and `after` right of it (in taps); runs lie `x_step` bytes apart in x. */
typedef struct {
    int32_t run, runs, x_step, before, after, row_taps, channel_taps;
    int32_t start, row_step, wrap; /* first row's offset in x, bytes to the next row, where the ring ends */
} taps_t;

static taps_t pixel_taps(const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win)
{
    const int32_t group_in = p->in_c / p->groups;
    const int32_t inside = win->kx1 - win->kx0;
    /* Without dilation and groups, the taps of a row are neighbors in memory: one long run. */
    const bool joined = p->dilation_w == 1 && p->groups == 1;
    const taps_t taps = {
        .run = joined ? inside * group_in : group_in,
        .runs = joined ? 1 : inside,
        .x_step = p->dilation_w * p->in_c,
        .before = win->kx0 * group_in,
        .after = (p->k_w - win->kx1) * group_in,
        .row_taps = p->k_w * group_in,
        .channel_taps = p->k_h * p->k_w * group_in,
        .start = (int32_t)(rlx_row(x, win->y0) - x.base) + win->x0 * p->in_c,
        .row_step = p->dilation_h * x.pitch,
        .wrap = x.ring != 0 ? x.ring * x.pitch : INT32_MAX,
    };
    return taps;
}

/* One kernel row inside the image, for `n` output channels; taps left and right of the image count as x_zp. */
static inline void kernel_row(
    const rlx_conv_t *p, const taps_t *t, int32_t *acc, int32_t n, const int8_t *x, const int8_t *w)
{
    const int8_t *inside = w + t->before * RLX_TAP_BYTES;
    for (int32_t r = 0; r < t->runs; r++, x += t->x_step, inside += t->run * RLX_TAP_BYTES) {
        rlx_dot_s8(acc, n, x, inside, t->channel_taps, t->run, p->w_zp);
    }
    if (t->before + t->after != 0) {
        const int8_t *right = w + t->row_taps * RLX_TAP_BYTES - t->after * RLX_TAP_BYTES;
        rlx_fill_s8(acc, n, p->x_zp, w, t->channel_taps, t->before, p->w_zp);
        rlx_fill_s8(acc, n, p->x_zp, right, t->channel_taps, t->after, p->w_zp);
    }
}

/* Output channels [c, c + n) of a pixel; their group's input channels begin at x. n is 1 or RLX_DOT_CHANNELS. */
static inline void channels(const rlx_conv_t *p, const rlx_window_t *win, const taps_t *t, const int8_t *x, int32_t c,
                            int32_t n, int8_t *out)
{
    int32_t acc[RLX_DOT_CHANNELS] = {0};
    const int8_t *w = rlx_dot_weights(p->weights, c, t->channel_taps);
    const int32_t above = win->ky0 * t->row_taps;
    rlx_fill_s8(acc, n, p->x_zp, w, t->channel_taps, above, p->w_zp);
    w += above * RLX_TAP_BYTES;
    int32_t at = t->start;
    for (int32_t ky = win->ky0; ky < win->ky1; ky++, w += t->row_taps * RLX_TAP_BYTES) {
        kernel_row(p, t, acc, n, x + at, w);
        at += t->row_step;
        at -= at >= t->wrap ? t->wrap : 0;
    }
    rlx_fill_s8(acc, n, p->x_zp, w, t->channel_taps, (p->k_h - win->ky1) * t->row_taps, p->w_zp);
    for (int32_t j = 0; j < n; j++) {
        const int32_t i = (c + j) * p->per_channel;
        const int32_t q = RLX_RESCALE(acc[j] + p->bias[c + j], p->multipliers[i], p->shifts[i]) + p->out_zp;
        out[c + j] = (int8_t)rlx_bound(q, p->low, p->high);
    }
}

#if defined(RLX_WEIGHT_BITS)
static void conv_pixel(const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int8_t *out)
{
    const taps_t taps = pixel_taps(p, x, win);
    const int32_t last = p->out_c - RLX_DOT_CHANNELS;
    for (int32_t c = 0; c < p->out_c; c += RLX_DOT_CHANNELS) {
        channels(p, win, &taps, x.base, c < last ? c : last, RLX_DOT_CHANNELS, out);
    }
}
#else
static void conv_pixel(const rlx_conv_t *p, rlx_view_t x, const rlx_window_t *win, int8_t *out)
{
    const taps_t taps = pixel_taps(p, x, win);
    const int32_t group_out = p->out_c / p->groups;
    int32_t c = 0;
    for (const int8_t *group = x.base; c < p->out_c; group += p->in_c / p->groups) {
        const int32_t end = c + group_out;
        for (; c + RLX_DOT_CHANNELS <= end; c += RLX_DOT_CHANNELS) {
            channels(p, win, &taps, group, c, RLX_DOT_CHANNELS, out);
        }
        for (; c < end; c++) {
            channels(p, win, &taps, group, c, 1, out);
        }
    }
}
#endif

#endif
