/* rlx_conv_dsp_joined_s8: rlx_conv_dsp_s8 with the weights of two channels joined in an int16: 12 instead of 13
 * instructions for 16 products, in as much flash.
 *
 * rlx_gemm_dsp.h (RLX_GEMM_JOINED) has the stream, the registers and why it is exact. The generator proves, beside what
 * rlx_conv_dsp.h says: |accumulator| < 2^23, and 256 * d's weight + c's weight fits in int16 for every pair.
 * rlx_conv_dsp.h: layout, scratch, the order of reads and writes.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_GEMM_WEIGHTS RLX_GEMM_JOINED
#include "rlx_conv_dsp.h"

void rlx_conv_dsp_joined_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_dsp(p, x, y, scratch, y0, y1);
}
