/* rlx_dense_s8: int8 matrix product with int32 accumulators, portable.
 *
 * x [rows][in_c], weights [out_c][in_c], y [rows][out_c]. The input's zero point is in the bias already. No scratch.
 * x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_dot.h"
#include "rlx_kernels.h"
#include "rlx_requant.h"

void rlx_dense_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        const int8_t *w = p->weights;
        for (int32_t c = 0; c < p->out_c; c++, w += p->in_c) {
            const int32_t acc = p->bias[c] + rlx_dot_s8(in, w, p->in_c, p->w_zp);
            const int32_t i = c * p->per_channel;
            const int32_t q = rlx_rescale(acc, p->multipliers[i], p->shifts[i]) + p->out_zp;
            out[c] = (int8_t)rlx_bound(q, p->low, p->high);
        }
    }
}
