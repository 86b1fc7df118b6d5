/* rlx_lookup_s8: a function of each element, by a table of its 256 results. y may be x.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"

void rlx_lookup_s8(const rlx_lookup_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->width; i++) {
            out[i] = p->table[in[i] + 128];
        }
    }
}
