/* rlx_max_pool_s8: maximum over windows; padding never wins.
 *
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. Every window holds a pixel. 4 channels at a time. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_lanes.h"
#include "rlx_requant.h"
#include "rlx_window.h"

/* Raises max[0 .. n) to the window's maxima of channels c to c + n, n <= RLX_LANES. */
static inline void raise(const rlx_pool_t *p, rlx_view_t x, const rlx_window_t *win, int32_t c, int32_t n, int8_t *max)
{
    const int32_t pixels = win->kx1 - win->kx0;
    for (int32_t i = 0; i < win->ky1 - win->ky0; i++) {
        const int8_t *px = rlx_row(x, win->y0 + i) + win->x0 * p->channels + c;
        if (n == RLX_LANES) {
            rlx_lanes_max(max, px, p->channels, pixels);
        } else {
#pragma GCC unroll 1
            for (int32_t j = 0; j < n; j++) {
                for (int32_t k = 0; k < pixels; k++) {
                    const int8_t value = px[k * p->channels + j];
                    max[j] = value > max[j] ? value : max[j];
                }
            }
        }
    }
}

void rlx_max_pool_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++) {
            const rlx_window_t win = rlx_pool_window(p, oy, ox);
            for (int32_t c = 0; c < p->channels; c += RLX_LANES) {
                const int32_t n = p->channels - c < RLX_LANES ? p->channels - c : RLX_LANES;
                int8_t max[RLX_LANES] = {-128, -128, -128, -128};
                raise(p, x, &win, c, n, max);
#pragma GCC unroll 1 /* for size */
                for (int32_t i = 0; i < n; i++) {
                    *out++ = (int8_t)rlx_bound(max[i], p->low, p->high);
                }
            }
        }
    }
}
