/* rlx_dense_dsp_one_scale_s8: rlx_dense_dsp_joined_s8 with one scale for all channels, which is not in the stream.
 *
 * x [rows][in_c], y [rows][out_c], out_c >= 4. rlx_dense_dsp.h has the packed stream, the registers and the loop.
 * Where out_c is no multiple of 4, the stream's last 4 channels are the last 4 of y: some are computed and written again.
 *
 * The generator proves, beside what rlx_dense_dsp.h says: |accumulator| < 2^23, and 256 * d's weight + c's weight fits in
 * int16 for every pair.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DENSE_JOINED 1
#define RLX_DENSE_ONE_SCALE 1
#include "rlx_dense_dsp.h"

void rlx_dense_dsp_one_scale_s8(
    const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const int32_t quad_words = rlx_dense_quad_words(p->in_c);
    const int32_t *const whole_end = p->stream + p->out_c / RLX_DENSE_CHANNELS * quad_words;
    rlx_dense_product_t g = {.m = p->multiplier, .k = p->offset, .e = p->shift};
    for (int32_t row = y0; row < y1; row++) {
        int8_t *out = rlx_row(y, row);
        rlx_dense_row(&g, rlx_row(x, row), p->in_c);
        g.stream = p->stream;
        g.stream_end = whole_end;
        g.out = out;
        rlx_dense_multiply(&g);
        if (p->out_c % RLX_DENSE_CHANNELS != 0) {
            g.stream = whole_end;
            g.stream_end = whole_end + quad_words;
            g.out = out + p->out_c - RLX_DENSE_CHANNELS;
            rlx_dense_multiply(&g);
        }
        if (p->low > -128 || p->high < 127) {
            rlx_dsp_clamp(out, p->out_c, p->low, p->high);
        }
    }
}
