/* rlx_avg_pool_mve_s8: as rlx_avg_pool_s8, on MVE (Cortex-M55, M85), sums of four channels at a time.
 *
 * Exact for any window of at most 2^22 positions: the same sums, the same division. x and y must not overlap but as the
 * planner finds from the kernel's order: a window is read again for each four channels.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_mve.h"
#include "rlx_pool.h"
#include "rlx_requant.h"
#include "rlx_window.h"

enum { CHANNELS = 4 };

/* sums[i] += the sum of `count` bytes, `step` apart from x + i on, for i < channels. */
static inline void add_column(int32_t *sums, const int8_t *x, int32_t step, int32_t count, int32_t channels)
{
#if RLX_MVE
    __asm volatile("vldrw.u32 q0, [%1]\n\t"
                   "vctp.32 %4\n\t"
                   "wls lr, %3, 2f\n"
                   "1:\n\t"
                   "vpst\n\t"
                   "vldrbt.s32 q1, [%0]\n\t"
                   "add %0, %0, %2\n\t"
                   "vadd.i32 q0, q0, q1\n\t"
                   "le lr, 1b\n"
                   "2:\n\t"
                   "vstrw.32 q0, [%1]"
                   : "+r"(x)
                   : "r"(sums), "r"(step), "r"(count), "r"(channels)
                   : "q0", "q1", RLX_PREDICATE, "lr", "cc", "memory");
#else
    for (; count > 0; count--, x += step) {
        for (int32_t i = 0; i < channels; i++) {
            sums[i] += x[i];
        }
    }
#endif
}

/* Channels [c, c + channels) of an output pixel. */
static inline void pool_channels(
    const rlx_pool_t *p, rlx_view_t x, const rlx_window_t *win, int32_t c, int32_t channels, int8_t *out)
{
    int32_t sums[CHANNELS] = {0};
    for (int32_t ky = win->ky0; ky < win->ky1; ky++) {
        const int8_t *row = rlx_row(x, win->y0 + ky - win->ky0) + win->x0 * p->channels + c;
        add_column(sums, row, p->channels, win->kx1 - win->kx0, channels);
    }
    const int32_t inside = (win->ky1 - win->ky0) * (win->kx1 - win->kx0);
    const int32_t count = p->count_pad != 0 ? p->k_h * p->k_w : inside;
    const int32_t outside = (count - inside) * p->x_zp;
    for (int32_t i = 0; i < channels; i++) {
        out[c + i] = (int8_t)rlx_bound(rlx_rounded_mean(sums[i] + outside, count, p->half_up), p->low, p->high);
    }
}

void rlx_avg_pool_mve_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->channels) {
            const rlx_window_t win = rlx_pool_window(p, oy, ox);
            for (int32_t c = 0; c < p->channels; c += CHANNELS) {
                const int32_t left = p->channels - c;
                pool_channels(p, x, &win, c, left < CHANNELS ? left : CHANNELS, out);
            }
        }
    }
}
