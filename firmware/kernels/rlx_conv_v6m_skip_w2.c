/* rlx_conv_v6m_skip_w2: convolution with weights -1, 0 and 1 for Armv6-M, eight positions at a time, two in an
 * addition: rlx_octets.h says what it computes and what scratch is, rlx_octets_skip_v6m.h the stream.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_octets_skip_v6m.h"

void rlx_conv_v6m_skip_w2(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_octets_run(p, x, y, scratch, y0, y1, 0);
}
