/* rlx_conv_relu_mve_s8: as rlx_conv_mve_s8, quicker, where the lowest code of the output is its zero point.
 *
 * That is so when a ReLU is part of the layer. Right shifts may be 0 to 31. See rlx_gemm_mve.h for why.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 8
#define RLX_GEMM_RELU 1
#include "rlx_conv_mve.h"

void rlx_conv_relu_mve_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_mve(p, &x, &y, scratch, y0, y1);
}
