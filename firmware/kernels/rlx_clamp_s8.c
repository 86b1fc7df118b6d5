/* rlx_clamp_s8: rows of int8 bounded to [low, high]. y may be x.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"

void rlx_clamp_s8(const rlx_requantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->width; i++) {
            out[i] = (int8_t)rlx_bound(in[i], p->low, p->high);
        }
    }
}
