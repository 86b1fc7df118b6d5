/* rlx_dense_onnx_s8: rlx_dense_s8 under the rounding rule `onnx`, float32 steps in integer arithmetic.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_float.h"

/* A function of its own, so that it is in flash once. */
static int32_t rescale(int32_t x, int32_t multiplier, int32_t shift)
{
    return rlx_rescale_float(x, multiplier, shift);
}

#define RLX_RESCALE rescale
#include "rlx_dense.h"

void rlx_dense_onnx_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        int32_t c = 0;
        for (; c + RLX_DOT_CHANNELS <= p->out_c; c += RLX_DOT_CHANNELS) {
            columns(p, in, c, RLX_DOT_CHANNELS, out);
        }
        for (; c < p->out_c; c++) {
            columns(p, in, c, 1, out);
        }
    }
}
