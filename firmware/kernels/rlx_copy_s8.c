/* rlx_copy_s8: copy the first `bytes` bytes of each row; joins tensors, one call each. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"

void rlx_copy_s8(const rlx_copy_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->bytes; i++) {
            out[i] = in[i];
        }
    }
}
