/* rlx_depthwise_dsp_w2_s8: rlx_depthwise_dsp_s8 with weights of 2 bits, which are unpacked once for all lines of a
 * plane.
 *
 * rlx_depthwise_bands_dsp.h: layout, scratch, what the generator proves, the order of reads and writes.
 * rlx_depthwise_dsp.h: the stream and the inner loop.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RLX_DEPTHWISE_BITS 2
#include "rlx_depthwise_bands_dsp.h"

COLD void rlx_depthwise_dsp_w2_s8(
    const rlx_depthwise_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    work_t w;
    w.p = p;
    w.x = x;
    for (int32_t end; y0 < y1; y0 = end) {
        end = y0 + straight(&y, y0, y1 - y0);
        run_rows(&w, scratch, y, y0, end);
    }
}
