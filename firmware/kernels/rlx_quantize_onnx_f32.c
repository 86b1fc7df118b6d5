/* rlx_quantize_onnx_f32: rows of float32 to int8, q = round(x / scale) + zero_point, ties to even.
 *
 * Rows of x are read byte by byte in little-endian order, so they need no alignment. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_float.h"
#include "rlx_kernels.h"
#include "rlx_requant.h"

static uint32_t load_u32(const int8_t *bytes)
{
    const uint8_t *b = (const uint8_t *)bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

void rlx_quantize_onnx_f32(const rlx_quantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < p->width; i++) {
            const int32_t q = rlx_float_steps(load_u32(in + 4 * i), (uint32_t)p->scale_bits) + p->zero_point;
            out[i] = (int8_t)rlx_bound(q, p->low, p->high);
        }
    }
}
