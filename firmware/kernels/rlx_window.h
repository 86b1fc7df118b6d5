/* rlx_window.h: which taps of a window lie inside the image.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_WINDOW_H
#define RLX_WINDOW_H

#include "rlx_kernels.h"

/* Taps [ky0, ky1) x [kx0, kx1) are inside; tap (ky0, kx0) reads the pixel (y0, x0). */
typedef struct {
    int32_t ky0, ky1, kx0, kx1, y0, x0;
} rlx_window_t;

/* Clips taps [0, taps) at start, start + dilation, ... to [0, size); an empty range comes back as [first, first). */
static inline void rlx_clip_taps(int32_t start, int32_t dilation, int32_t taps, int32_t size, int32_t *first, int32_t *end)
{
    int32_t low = 0;
    int32_t high = taps;
    while (low < high && start + low * dilation < 0) {
        low++;
    }
    while (high > low && start + (high - 1) * dilation >= size) {
        high--;
    }
    *first = low;
    *end = high;
}

static inline rlx_window_t rlx_conv_window(const rlx_conv_t *p, int32_t oy, int32_t ox)
{
    const int32_t y = oy * p->stride_h - p->pad_top;
    const int32_t x = ox * p->stride_w - p->pad_left;
    rlx_window_t win;
    rlx_clip_taps(y, p->dilation_h, p->k_h, p->in_h, &win.ky0, &win.ky1);
    rlx_clip_taps(x, p->dilation_w, p->k_w, p->in_w, &win.kx0, &win.kx1);
    win.y0 = y + win.ky0 * p->dilation_h;
    win.x0 = x + win.kx0 * p->dilation_w;
    return win;
}

static inline rlx_window_t rlx_pool_window(const rlx_pool_t *p, int32_t oy, int32_t ox)
{
    const int32_t y = oy * p->stride_h - p->pad_top;
    const int32_t x = ox * p->stride_w - p->pad_left;
    rlx_window_t win;
    rlx_clip_taps(y, 1, p->k_h, p->in_h, &win.ky0, &win.ky1);
    rlx_clip_taps(x, 1, p->k_w, p->in_w, &win.kx0, &win.kx1);
    win.y0 = y + win.ky0;
    win.x0 = x + win.kx0;
    return win;
}

#endif
