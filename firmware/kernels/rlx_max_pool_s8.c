/* rlx_max_pool_s8: maximum over windows; padding never wins.
 *
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. Every window holds a pixel. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

static int32_t window_max(const rlx_pool_t *p, rlx_view_t x, const rlx_window_t *win, int32_t c)
{
    int32_t max = -128;
    for (int32_t ky = win->ky0; ky < win->ky1; ky++) {
        const int8_t *px = rlx_row(x, win->y0 + ky - win->ky0) + win->x0 * p->channels + c;
        for (int32_t kx = win->kx0; kx < win->kx1; kx++, px += p->channels) {
            max = *px > max ? *px : max;
        }
    }
    return max;
}

void rlx_max_pool_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++) {
            const rlx_window_t win = rlx_pool_window(p, oy, ox);
            for (int32_t c = 0; c < p->channels; c++) {
                *out++ = (int8_t)rlx_bound(window_max(p, x, &win, c), p->low, p->high);
            }
        }
    }
}
