/* rlx_depthwise_v6m_s8: int8 depthwise convolution for Armv6-M: one channel at a time, two positions per multiply.
 *
 * Any kernel, stride, padding and channel multiplier; no dilation, weights without a zero point.
 *
 * Channel after channel, each in bands of output rows. The rows of the input that a band needs are copied to scratch,
 * of the one channel, padded, as lines of words a[x] + a[x + stride_w] * 2^16 (rlx_v6m.h): the same tap of two neighboring
 * outputs. Lines that the band before has in common with it are moved to its first ones, so that each is copied once.
 * A pair of outputs takes the words of its kernel rows, three at a time; k_w is rounded up to a multiple of three by
 * zero weights. Of an odd number of columns the first one is computed as the second of a pair. With stride_w = 1 pairs
 * share words, two apart; otherwise each pair has its own.
 * With `upright`, for images that are higher than wide, read rows for columns and columns for rows in all of this.
 *
 * Stream, per output channel (int32 words):
 *     mode     0: any kernel; products are summed in groups of two and one of each three
 *              1: 3x3, in groups of 2, 2, 2, 2, 1
 *              2: 3x3, in groups of three, a kernel row each
 *     lo, hi   the first values of lo and hi
 *     weights  bytes [k_w / 3][k_h][3], or [k_h / 3][k_w][3] if upright, padded to whole words
 *     four words  rescale (rlx_v6m_scale_t)
 *
 * The generator proves: in each group of each channel the sum over one position lies in [-2^15, 2^15); |acc| < 2^24;
 * the rescale is exact.
 *
 * Scratch: the table of one channel: lo, hi, weights as words, rescale; then the lines of a band; then, for
 * stride_w > 1, the values of a line as bytes. y may overlap x as far as order() of cgen/variants/depthwise_v6m.py
 * says.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_depthwise_v6m.h"

#include "rlx_channels_v6m.h"

/* A channel of the stream into the table; returns the next one. */
static RLX_V6M_NOINLINE const int32_t *load_channel(const int32_t *next, rows_t *r, int32_t *table, int32_t taps)
{
    const int32_t words = (taps + 3) >> 2;
    r->mode = next[0];
    table[0] = next[1];
    table[1] = next[2];
    widen(table + 2, next + 3, words);
    next += 3 + words;
    for (int32_t i = 0; i < 4; i++) {
        table[2 + taps + i] = *next++;
    }
    return next;
}

RLX_V6M_NOINLINE void rlx_depthwise_v6m_s8(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    run_depthwise(p, x, y, scratch, y0, y1);
}
