/* rlx_dense_dsp_s8: int8 matrix product for Cortex-M4, M7 and M33 (DSP extension), a scale per output channel.
 *
 * x [rows][in_c], y [rows][out_c]. rlx_dense_dsp.h has the packed stream, the registers and the loop.
 * The last channel is repeated to fill the last 4: it is computed and written again.
 *
 * The generator proves: weights without zero point; |accumulator| < 2^30, every partial sum included; right shifts of
 * 1 to 31 with K and K + h in int32.
 * Scratch: 2 bytes for each value of x's row, whose number is rounded up to a multiple of 4.
 * Reads a row of x before it writes the row of y. x and y may overlap where that allows it.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DENSE_ONE_SCALE 0
#define RLX_DENSE_UNROLL 8
#include "rlx_dense_dsp.h"

void rlx_dense_dsp_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    const int32_t groups = (p->in_c + RLX_DENSE_VALUES - 1) / RLX_DENSE_VALUES;
    const int32_t quads = (p->out_c + RLX_DENSE_CHANNELS - 1) / RLX_DENSE_CHANNELS;
    int16_t *wide = (int16_t *)scratch;
    rlx_dense_product_t g = {.x = wide,
                   .x_end = wide + groups * RLX_DENSE_VALUES,
                   .skip = ((groups - 1) % RLX_DENSE_UNROLL + 1) * RLX_DENSE_CODE,
                   .stream = p->stream,
                   .stream_end = p->stream + quads * RLX_DENSE_CHANNELS * (1 + groups + 3)};
    for (int32_t row = y0; row < y1; row++) {
        g.out = rlx_row(y, row);
        rlx_dense_widen(wide, rlx_row(x, row), p->in_c);
        rlx_dense_multiply(&g);
        if (p->low > -128 || p->high < 127) {
            rlx_dsp_clamp(g.out, p->out_c, p->low, p->high);
        }
    }
}
