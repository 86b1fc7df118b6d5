/* rlx_conv_dsp_w16_s8: rlx_conv_dsp_s8 with weights that are int16 in flash already: 11 instead of 13 instructions for 16
 * products, for twice the flash.
 *
 * The stream holds 2 * weight and 2 * bias (rlx_gemm_dsp.h, RLX_GEMM_S16). rlx_conv_dsp.h: layout, the conditions that
 * the generator proves, scratch, the order of reads and writes.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_GEMM_WEIGHTS RLX_GEMM_S16
#define RLX_GEMM_UNROLL 16
#include "rlx_conv_dsp.h"

void rlx_conv_dsp_w16_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_dsp(p, x, y, scratch, y0, y1);
}
