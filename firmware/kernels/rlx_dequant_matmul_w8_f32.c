/* rlx_dequant_matmul_w8_f32: float32 matrix product with int8 weights that have a scale a block.
 *
 * x [rows][in_c], y [rows][out_c]; x and y are aligned to 4 and must not overlap. weights: for each group of 4 columns
 * [in_c][4]. No scratch.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdint.h>

#define RLX_POSITION_BYTES 4

static inline void codes_of(const int8_t *position, float *codes)
{
    for (int32_t j = 0; j < 4; j++) {
        codes[j] = (float)position[j];
    }
}

#include "rlx_dequant_matmul.h"

void rlx_dequant_matmul_w8_f32(const rlx_dequant_matmul_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    multiply(p, x, y, y0, y1);
}
