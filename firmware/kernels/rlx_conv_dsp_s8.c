/* rlx_conv_dsp_s8: int8 convolution for Cortex-M4, M7 and M33 (DSP extension).
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][out_c]. One group, no dilation; any kernel size, stride and padding. x may be
 * a ring of rows. rlx_gemm_dsp.h has the packed stream, the registers and the tile of 4 positions x 2 channels,
 * rlx_widen_dsp.h how windows lie in scratch, rlx_dsp.h why the requantization is exact.
 *
 * The generator proves: weights without zero point; |accumulator| < 2^30, every partial sum included; right shifts of
 * 1 to 31 with K and K + h in int32.
 * Scratch: 16 * steps bytes, and, with padding or k_h > 1, four windows (k_h * k_w * in_c bytes, rounded up to words);
 * steps = 2 * k_h * (k_w * in_c / 4) + (k_h * (k_w * in_c % 4) + 1) / 2.
 * Reads the windows of 4 positions before it writes their outputs; positions go in the order of memory. x and y must
 * not overlap but as that order allows (cgen/order.py: window_order with 1 pixel at a time is stricter).
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_GEMM_WEIGHTS RLX_GEMM_S8
#include "rlx_conv_dsp.h"

void rlx_conv_dsp_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_dsp(p, x, y, scratch, y0, y1);
}
