/* rlx_pool_sum_s8: the sums of a mean over whole images, one input row at a time, so that the image need never exist.
 *
 * a [in_h][in_w][channels], y [in_h][channels] of int32: row y is the sum of all positions in the rows 0 to y of a. The
 * sums of the row before are read from b, which may be y: a ring of one row then holds the sum so far. b and y are
 * aligned to 4; their rows are never both behind and ahead of each other in the same memory: element c of y's row is
 * written right after element c of b's is read.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"

void rlx_pool_sum_s8(const rlx_pool_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(a, row);
        const int32_t *before = row > 0 ? (const int32_t *)(const void *)rlx_row(b, row - 1) : NULL;
        int32_t *out = (int32_t *)(void *)rlx_row(y, row);
        for (int32_t c = 0; c < p->channels; c++) {
            int32_t sum = row > 0 ? before[c] : 0;
            for (int32_t x = 0; x < p->in_w; x++) {
                sum += in[x * p->channels + c];
            }
            out[c] = sum;
        }
    }
}
