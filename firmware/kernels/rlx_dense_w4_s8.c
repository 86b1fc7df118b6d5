/* rlx_dense_w4_s8: int8 matrix product with weights of 4 bits, portable.
 *
 * x [rows][in_c], weights of in_c taps as rlx_dot_packed.h says, y [rows][out_c], out_c >= 4. p->w_zp is not read. The
 * input's zero point is in the bias already. No scratch. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_requant.h"

#define RLX_WEIGHT_BITS 4
#define RLX_RESCALE rlx_rescale
#include "rlx_dense.h"

void rlx_dense_w4_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const int32_t last = p->out_c - RLX_DOT_CHANNELS;
    for (int32_t row = y0; row < y1; row++) {
        for (int32_t c = 0; c < p->out_c; c += RLX_DOT_CHANNELS) {
            columns(p, rlx_row(x, row), c < last ? c : last, RLX_DOT_CHANNELS, rlx_row(y, row));
        }
    }
}
