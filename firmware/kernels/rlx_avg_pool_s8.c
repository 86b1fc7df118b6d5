/* rlx_avg_pool_s8: mean over windows, by integer division, rounded half away from zero or half up.
 *
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. A window of at most 2^22 positions. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

static int32_t window_sum(const rlx_pool_t *p, rlx_view_t x, const rlx_window_t *win, int32_t c)
{
    int32_t sum = 0;
    for (int32_t ky = win->ky0; ky < win->ky1; ky++) {
        const int8_t *px = rlx_row(x, win->y0 + ky - win->ky0) + win->x0 * p->channels + c;
        for (int32_t kx = win->kx0; kx < win->kx1; kx++, px += p->channels) {
            sum += *px;
        }
    }
    return sum;
}

static int32_t rounded_mean(int32_t sum, int32_t count, int32_t half_up)
{
    if (half_up != 0) {
        return (sum + 128 * count + count / 2) / count - 128; /* of q + 128, never negative */
    }
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}

void rlx_avg_pool_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++) {
            const rlx_window_t win = rlx_pool_window(p, oy, ox);
            const int32_t inside = (win.ky1 - win.ky0) * (win.kx1 - win.kx0);
            const int32_t count = p->count_pad != 0 ? p->k_h * p->k_w : inside;
            for (int32_t c = 0; c < p->channels; c++) {
                const int32_t sum = window_sum(p, x, &win, c) + (count - inside) * p->x_zp;
                *out++ = (int8_t)rlx_bound(rounded_mean(sum, count, p->half_up), p->low, p->high);
            }
        }
    }
}
