/* rlx_dense_mve_s8: int8 matrix product on MVE (Cortex-M55, M85). See rlx_dense_mve.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 8
#include "rlx_dense_mve.h"

void rlx_dense_mve_s8(const rlx_dense_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_dense_mve(p, &x, &y, scratch, y0, y1);
}
