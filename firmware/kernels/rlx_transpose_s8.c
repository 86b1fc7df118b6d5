/* rlx_transpose_s8: elements of a tensor in another order, of up to four axes: transposed, sliced, turned around, repeated.
 *
 * y [row][d1][d2][d3]; element (row, i, j, k) is x.base[row*stride_0 + i*stride_1 + j*stride_2 + k*stride_3].
 * Strides may be 0 or negative. x must be dense (no ring). A row of y must not lie on what it is read from.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"

void rlx_transpose_s8(const rlx_transpose_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->d1; i++) {
            for (int32_t j = 0; j < p->d2; j++) {
                const int8_t *in = x.base + row * p->stride_0 + i * p->stride_1 + j * p->stride_2;
                for (int32_t k = 0; k < p->d3; k++) {
                    *out++ = in[k * p->stride_3];
                }
            }
        }
    }
}
