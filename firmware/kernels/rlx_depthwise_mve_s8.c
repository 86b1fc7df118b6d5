/* rlx_depthwise_mve_s8: int8 depthwise convolution on MVE (Cortex-M55, M85). See rlx_depthwise_strips_mve.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_WEIGHT_BITS 8
#include "rlx_depthwise_strips_mve.h"

void rlx_depthwise_mve_s8(
    const rlx_depthwise_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    task_t t = {.p = p, .x = x, .y = y, .strip = scratch};
    run_task(&t, y0, y1);
}
