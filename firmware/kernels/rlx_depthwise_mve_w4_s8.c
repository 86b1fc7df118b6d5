/* rlx_depthwise_mve_w4_s8: as rlx_depthwise_mve_s8, with packed 4-bit weights, -8 to 7.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 4
#include "rlx_depthwise_strips_mve.h"

void rlx_depthwise_mve_w4_s8(
    const rlx_depthwise_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    task_t t = {.p = p, .x = x, .y = y, .strip = scratch};
    run_task(&t, y0, y1);
}
