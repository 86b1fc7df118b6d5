/* rlx_conv_dsp_s8: int8 convolution for Cortex-M4, M7 and M33 (DSP extension).
 *
 * Weights are int8 (rlx_gemm_dsp.h: RLX_GEMM_S8, with the stream, the registers and the tile of 4 positions x 2
 * channels). rlx_conv_dsp.h: layout, what the generator proves, scratch, the order of reads and writes.
 * rlx_widen_dsp.h: how windows lie in scratch. rlx_dsp.h: why the requantization is exact.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_GEMM_WEIGHTS RLX_GEMM_S8
#include "rlx_conv_dsp.h"

void rlx_conv_dsp_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_dsp(p, x, y, scratch, y0, y1);
}
