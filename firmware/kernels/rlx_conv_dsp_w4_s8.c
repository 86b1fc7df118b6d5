/* rlx_conv_dsp_w4_s8: rlx_conv_dsp_s8 with weights of 4 bits, which are unpacked in registers.
 *
 * rlx_digits_dsp.h has the stream, why it is exact, and what the generator proves beside what rlx_conv_dsp.h says.
 * rlx_gemm_digits_dsp.h: the registers and the tile of 2 positions x 4 channels. rlx_conv_dsp.h: layout, scratch, the
 * order of reads and writes.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DIGIT_BITS 4
#include "rlx_conv_dsp.h"

void rlx_conv_dsp_w4_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_conv_dsp(p, x, y, scratch, y0, y1);
}
