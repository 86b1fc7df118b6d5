/* rlx_pool_mean_s8: the mean over a whole image, from the sums that rlx_pool_sum_s8 made.
 *
 * x [in_h][channels] of int32, aligned to 4, of which only the last row is read; y [1][1][channels]. Rounded as
 * rlx_avg_pool_s8 does. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_pool.h"
#include "rlx_requant.h"

void rlx_pool_mean_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const int32_t *sums = (const int32_t *)(const void *)rlx_row(x, p->in_h - 1);
    for (int32_t row = y0; row < y1; row++) {
        int8_t *out = rlx_row(y, row);
        for (int32_t c = 0; c < p->channels; c++) {
            out[c] = (int8_t)rlx_bound(rlx_rounded_mean(sums[c], p->in_h * p->in_w, p->half_up), p->low, p->high);
        }
    }
}
