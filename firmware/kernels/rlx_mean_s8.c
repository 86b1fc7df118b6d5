/* rlx_mean_s8: mean over one or two groups of axes; 1 / count is part of the multiplier.
 *
 * x [row][reduce_0][keep_1][reduce_1][keep_2], y [row][keep_1][keep_2]. reduce_0 * reduce_1 <= 2^23.
 * 4 neighbors of keep_2 at a time. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_mean.h"
#include "rlx_requant.h"

void rlx_mean_s8(const rlx_mean_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->keep_1; i++, in += p->reduce_1 * p->keep_2) {
            for (int32_t c = 0; c < p->keep_2; c += RLX_LANES) {
                const int32_t n = p->keep_2 - c < RLX_LANES ? p->keep_2 - c : RLX_LANES;
                int32_t sums[RLX_LANES];
                sums_of(p, in + c, n, sums);
#pragma GCC unroll 1 /* for size */
                for (int32_t k = 0; k < n; k++) {
                    const int32_t mean = rlx_rescale(sums[k], p->multiplier, p->shift);
                    *out++ = (int8_t)rlx_bound(mean + p->out_zp, -128, 127);
                }
            }
        }
    }
}
