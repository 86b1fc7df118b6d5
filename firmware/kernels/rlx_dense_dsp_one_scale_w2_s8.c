/* rlx_dense_dsp_one_scale_w2_s8: rlx_dense_dsp_w2_s8 with one scale for all channels, which is not in the stream.
 *
 * x [rows][in_c], y [rows][out_c]. rlx_dense_digits_dsp.h has the stream, the registers and the loops.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DIGIT_BITS 2
#define RLX_DENSE_ONE_SCALE 1
#include "rlx_dense_digits_dsp.h"

void rlx_dense_dsp_one_scale_w2_s8(
    const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    rlx_dense_rows(p, x, y, y0, y1);
}
