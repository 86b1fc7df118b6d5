/* rlx_dense_dsp_s8: int8 matrix product for Cortex-M4, M7 and M33 (DSP extension), a scale per output channel.
 *
 * x [rows][in_c], y [rows][out_c]. rlx_dense_dsp.h has the packed stream, the registers and the loop.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DENSE_JOINED 0
#define RLX_DENSE_ONE_SCALE 0
#include "rlx_dense_dsp.h"

void rlx_dense_dsp_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    rlx_dense_dsp(p, x, y, y0, y1);
}
