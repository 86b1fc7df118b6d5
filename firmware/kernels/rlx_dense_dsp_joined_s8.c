/* rlx_dense_dsp_joined_s8: rlx_dense_dsp_s8 with the weights of two channels joined in an int16: 16 instead of 20
 * instructions for 16 products, in as much flash.
 *
 * The generator proves, beside what rlx_dense_dsp.h says: |accumulator| < 2^23, and 256 * d's weight + c's weight fits in
 * int16 for every pair.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DENSE_JOINED 1
#define RLX_DENSE_ONE_SCALE 0
#include "rlx_dense_dsp.h"

void rlx_dense_dsp_joined_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    rlx_dense_dsp(p, x, y, y0, y1);
}
