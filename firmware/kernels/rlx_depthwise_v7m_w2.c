/* rlx_depthwise_v7m_w2: depthwise convolution with weights of 2 bits for Armv7-M, 6 neighbors of a row at a time, by
 * the loops of rlx_depthwise_v7m_s8: rlx_depthwise_v7m.h says what the stream and scratch are.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_BITS 2
#include "rlx_depthwise_v7m.h"

void rlx_depthwise_v7m_w2(
    const rlx_depthwise_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    run_bands(p, x, y, scratch, y0, y1);
}
