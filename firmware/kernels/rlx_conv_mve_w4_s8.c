/* rlx_conv_mve_w4_s8: as rlx_conv_mve_s8, with 4-bit weights joined in bytes (rlx_weights_mve.h).
 *
 * Proved by the generator besides: weights are -7 to 7; accumulators are below 2^26 in magnitude. Shifts may be 0.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 4
#define RLX_GEMM_RELU 0
#include "rlx_conv_mve.h"

void rlx_conv_mve_w4_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_mve(p, &x, &y, scratch, y0, y1);
}
