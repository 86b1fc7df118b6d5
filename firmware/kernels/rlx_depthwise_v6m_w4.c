/* rlx_depthwise_v6m_w4: depthwise convolution with weights of 4 bits for Armv6-M: one channel at a time, two positions per
 * multiply.
 *
 * As rlx_depthwise_v6m_s8.c says, but for the stream and the sums: rlx_depthwise_packed_v6m.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_BITS 4
#include "rlx_depthwise_packed_v6m.h"

#include "rlx_channels_v6m.h"

RLX_V6M_NOINLINE void rlx_depthwise_v6m_w4(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    run_depthwise(p, x, y, scratch, y0, y1);
}
