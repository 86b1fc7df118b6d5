/* rlx_dense_s8: int8 matrix product with int32 accumulators, portable.
 *
 * x [rows][in_c], weights [out_c][in_c], y [rows][out_c]. The input's zero point is in the bias already. No scratch.
 * x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_requant.h"

#define RLX_RESCALE rlx_rescale
#include "rlx_dense.h"

void rlx_dense_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        int32_t c = 0;
        for (; c + RLX_DOT_CHANNELS <= p->out_c; c += RLX_DOT_CHANNELS) {
            columns(p, in, c, RLX_DOT_CHANNELS, out);
        }
        for (; c < p->out_c; c++) {
            columns(p, in, c, 1, out);
        }
    }
}
