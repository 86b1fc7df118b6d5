/* rlx_conv_mve_s8: int8 convolution on MVE (Cortex-M55, M85), any bounds. See rlx_conv_mve.h and rlx_gemm_mve.h.
 *
 * Proved by the generator: weights without a zero point, no groups, no dilation; every accumulator and partial sum fits
 * in int32; right shifts are 1 to 31. x and y must not overlap but as the planner finds from the kernel's order.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 8
#define RLX_GEMM_RELU 0
#include "rlx_conv_mve.h"

void rlx_conv_mve_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_mve(p, &x, &y, scratch, y0, y1);
}
