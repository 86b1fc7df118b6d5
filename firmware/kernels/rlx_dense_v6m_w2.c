/* rlx_dense_v6m_w2: matrix product with weights of 2 bits for Armv6-M, two output channels in a multiplication:
 * rlx_dense_packed.h says what the stream and scratch are, rlx_dense_packed_v6m.h how.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_BITS 2
#include "rlx_dense_packed_v6m.h"

void rlx_dense_v6m_w2(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_dense_run(p, x, y, scratch, y0, y1);
}
