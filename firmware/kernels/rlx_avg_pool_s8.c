/* rlx_avg_pool_s8: mean over windows, by integer division, rounded half away from zero or half up.
 *
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. A window of at most 2^22 positions. 4 channels at a
 * time. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_lanes.h"
#include "rlx_pool.h"
#include "rlx_requant.h"
#include "rlx_window.h"

/* Adds to sums[0 .. n) the window's sums of channels c to c + n; n <= RLX_LANES. */
static inline void add_window(
    const rlx_pool_t *p, rlx_view_t x, const rlx_window_t *win, int32_t c, int32_t n, int32_t *sums)
{
    int32_t pixels = win->kx1 - win->kx0;
    int32_t rows = pixels > 0 ? win->ky1 - win->ky0 : 0;
    if (pixels == p->in_w && x.ring == 0 && x.pitch == p->in_w * p->channels) {
        pixels *= rows; /* whole rows follow each other */
        rows = rows > 0;
    }
    for (int32_t i = 0; i < rows; i++) {
        const int8_t *px = rlx_row(x, win->y0 + i) + win->x0 * p->channels + c;
        if (n == RLX_LANES) {
            rlx_lanes_add(sums, px, p->channels, pixels);
        } else {
#pragma GCC unroll 1
            for (int32_t j = 0; j < n; j++) {
                for (int32_t k = 0; k < pixels; k++) {
                    sums[j] += px[k * p->channels + j];
                }
            }
        }
    }
}

void rlx_avg_pool_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++) {
            const rlx_window_t win = rlx_pool_window(p, oy, ox);
            const int32_t inside = (win.ky1 - win.ky0) * (win.kx1 - win.kx0);
            const int32_t count = p->count_pad != 0 ? p->k_h * p->k_w : inside;
            const int32_t padding = (count - inside) * p->x_zp;
            for (int32_t c = 0; c < p->channels; c += RLX_LANES) {
                const int32_t n = p->channels - c < RLX_LANES ? p->channels - c : RLX_LANES;
                int32_t sums[RLX_LANES] = {padding, padding, padding, padding};
                add_window(p, x, &win, c, n, sums);
#pragma GCC unroll 1 /* for size */
                for (int32_t i = 0; i < n; i++) {
                    *out++ = (int8_t)rlx_bound(rlx_rounded_mean(sums[i], count, p->half_up), p->low, p->high);
                }
            }
        }
    }
}
