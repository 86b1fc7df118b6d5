/* rlx_pad_s8: an image with margins of one value around rows, columns and channels.
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][out_c]. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"

void rlx_pad_s8(const rlx_pad_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        int8_t *out = rlx_row(y, row);
        const int32_t iy = row - p->top;
        const bool row_inside = iy >= 0 && iy < p->in_h;
        const int8_t *in = row_inside ? rlx_row(x, iy) : NULL;
        for (int32_t ox = 0; ox < p->out_w; ox++) {
            const int32_t ix = ox - p->left;
            const bool inside = row_inside && ix >= 0 && ix < p->in_w;
            for (int32_t c = 0; c < p->out_c; c++) {
                const int32_t ic = c - p->front;
                const bool copied = inside && ic >= 0 && ic < p->in_c;
                *out++ = copied ? in[ix * p->in_c + ic] : (int8_t)p->value;
            }
        }
    }
}
