/* rlx_dense_mve_w4_s8: as rlx_dense_mve_s8, with 4-bit weights joined in bytes (rlx_weights_mve.h).
 *
 * Proved by the generator besides: weights are -7 to 7; accumulators are below 2^26 in magnitude. Shifts may be 0.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 4
#include "rlx_dense_mve.h"

void rlx_dense_mve_w4_s8(const rlx_dense_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_dense_mve(p, &x, &y, scratch, y0, y1);
}
