/* rlx_dense_v7m_w4: matrix product with weights of 4 bits for Armv7-M, two output channels in a multiplication:
 * rlx_dense_packed.h says what the stream and scratch are, rlx_dense_packed_v7m.h how.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_BITS 4
#include "rlx_dense_packed_v7m.h"

void rlx_dense_v7m_w4(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_dense_run(p, x, y, scratch, y0, y1);
}
