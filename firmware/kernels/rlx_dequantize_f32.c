/* rlx_dequantize_f32: rows of int8 to float32, x = (q - zero_point) * scale, rounded once.
 *
 * Rows of y are written byte by byte in little-endian order, so they need no alignment. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_real.h"

static void store_u32(int8_t *bytes, uint32_t value)
{
    uint8_t *b = (uint8_t *)bytes;
    for (int32_t i = 0; i < 4; i++, value >>= 8) {
        b[i] = (uint8_t)(value & 0xFFu);
    }
}

void rlx_dequantize_f32(const rlx_quantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->width; i++) {
            store_u32(out + 4 * i, rlx_multiply_f32(in[i] - p->zero_point, (uint32_t)p->scale_bits));
        }
    }
}
