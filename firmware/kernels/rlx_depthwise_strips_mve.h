/* rlx_depthwise_strips_mve.h: depthwise convolution on MVE (Cortex-M55, M85), kernels of up to 4x4 taps.
 *
 * Channels are taken up to 16 at a time (all at once when there are no more). A strip, the input of one or two lines of
 * outputs of these channels, is laid out in scratch memory, padding included, as
 *
 *     [position along the strip][channel][4 lanes across]
 *
 * so that a patch of 4 positions x 4 lanes of a channel is four words: one gathering load. Strips run along x, their
 * lanes being input rows, or (p->along_y) along y, their lanes being columns, which suits narrow images.
 * - Pairs (stride 1, kernels up to 3x3): one patch gives 2 x 2 outputs, by one VMLADAV with the weights in the patch's
 *   top left corner, and three more with weights moved by a position, by a lane, and by both.
 * - Lines (any stride; the last line where their number is odd): a patch an output, four outputs at a time.
 * Outputs go out by a scattering store of four bytes; the last ones, where less than 2 or 4 positions are left, under a
 * predicate.
 *
 * The stream, channel after channel: int32 bias, multiplier, -shift; weights[4 positions][4 lanes] of RLX_WEIGHT_BITS
 * bits, the first in the lowest ones, zeros where the kernel is smaller. They are widened once a strip and channel.
 *
 * Rescaling is exact as in rlx_gemm_mve.h: VQRDMLAH adds the sign of acc to the rounded high product, VRSHL rounds
 * half up.
 *
 * Proved by the generator: weights without a zero point, no dilation, as many outputs as inputs; accumulators fit in
 * int32; right shifts are 1 to 31, or 0 where the zero point is -128, which hides that a negative h then becomes h - 1;
 * bounds are -128 and 127; every rescaled sum plus the zero point fits in int16 (so that one narrowing instruction
 * saturates it right).
 * scratch: p->buffer_bytes and 16 bytes that hold x_zp.
 * Each output line or pair is written after its input of these channels was copied, the next channels' input being read
 * after that. x and y must not overlap but as the planner finds from the kernel's order.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_STRIPS_MVE_H
#define RLX_DEPTHWISE_STRIPS_MVE_H

#include "rlx_depthwise_mve.h"
#include "rlx_kernels.h"

/* What the strips of a call share. `zeros`: 16 bytes of x_zp. */
typedef struct {
    const rlx_depthwise_mve_t *p;
    rlx_view_t x, y;
    int8_t *strip;
    const int8_t *zeros;
    int32_t channel, channels; /* the channels at work */
    int32_t lanes;             /* that the outputs at work read */
    int32_t position;          /* bytes of a position of the strip */
} task_t;

/* Positions [first, end) of a strip along x: neighbors in memory when all channels are taken at once. */
static void weave_pixels(const task_t *t, weave_t *w, int32_t first, int32_t count)
{
    const bool joined = t->channels == t->p->in_c;
    const int32_t bytes = joined ? count * t->channels : t->channels;
    w->to = t->strip + first * t->position;
    w->to_step = joined ? LANES * RLX_MVE_BYTES : t->position;
    w->count = joined ? bytes / RLX_MVE_BYTES : count;
    w->bytes = joined ? RLX_MVE_BYTES : t->channels;
    for (int32_t k = 0; k < LANES; k++) {
        w->steps[k] = w->from[k] == t->zeros ? 0 : joined ? RLX_MVE_BYTES : t->p->in_c;
    }
    weave(w);
    if (joined && bytes % RLX_MVE_BYTES != 0) {
        const int32_t whole = w->count;
        for (int32_t k = 0; k < LANES; k++) {
            w->from[k] += whole * w->steps[k];
        }
        w->to += whole * w->to_step;
        w->bytes = bytes % RLX_MVE_BYTES;
        w->count = 1;
        weave(w);
    }
}

static void load_along_x(const task_t *t, int32_t row, int32_t positions)
{
    const rlx_depthwise_mve_t *p = t->p;
    const int32_t left = p->pad_left < positions ? p->pad_left : positions;
    const int32_t inside = positions - left < p->in_w ? positions - left : p->in_w;
    const int32_t right = positions - left - inside;
    weave_t w;
    for (int32_t k = 0; k < LANES; k++) {
        const bool in_image = row + k >= 0 && row + k < p->in_h && k < t->lanes;
        w.from[k] = in_image ? rlx_row(t->x, row + k) + t->channel : t->zeros;
    }
    rlx_mve_fill(t->strip, p->x_zp, left * t->position);
    weave_pixels(t, &w, left, inside);
    rlx_mve_fill(t->strip + (left + inside) * t->position, p->x_zp, right * t->position);
}

/* Position i of the strip is row `row` + i, lane k is column `column` + k. */
static void load_along_y(const task_t *t, int32_t row, int32_t column, int32_t positions)
{
    const rlx_depthwise_mve_t *p = t->p;
    weave_t w = {.to_step = t->position, .bytes = t->channels};
    const int32_t first = rlx_bound(-row, 0, positions);
    const int32_t end = rlx_bound(p->in_h - row, first, positions);
    rlx_mve_fill(t->strip, p->x_zp, first * t->position);
    for (int32_t i = first; i < end; i += w.count) {
        const int8_t *pixels = rlx_row(t->x, row + i) + t->channel;
        /* Rows of a ring are taken one at a time: the next may lie before. */
        w.count = t->x.ring != 0 ? 1 : end - i;
        w.to = t->strip + i * t->position;
        for (int32_t k = 0; k < LANES; k++) {
            const bool in_image = column + k >= 0 && column + k < p->in_w && k < t->lanes;
            w.from[k] = in_image ? pixels + (column + k) * p->in_c : t->zeros;
            w.steps[k] = in_image ? t->x.pitch : 0;
        }
        weave(&w);
    }
    rlx_mve_fill(t->strip + end * t->position, p->x_zp, (positions - end) * t->position);
}

/* The outputs of a strip: `count` of them along it, one or two lines. */
static void run_strip(const task_t *t, int8_t *out, int32_t count, int32_t along, int32_t across, bool pair)
{
    const rlx_depthwise_mve_t *p = t->p;
    const int32_t size = pair ? 2 : 4;
    const int32_t left = count % size;
    const int32_t stride = p->along_y ? p->stride_h : p->stride_w;
    const lines_t lines = {
        .x = t->strip,
        .out = out + t->channel,
        .blocks = count / size,
        .channels = t->channels,
        .tail = pair ? (left != 0 ? 0x0F0Fu : 0u) : (UINT32_C(1) << (4 * left)) - 1u,
        .stream = (const int8_t *)p->stream + t->channel * STREAM_BYTES,
        .x_step = size * stride * t->position,
        .out_step = size * along,
        .zero_point = p->out_zp,
        .position = t->position,
        .x_stride = stride * t->position,
        .along = along,
        .across = across,
    };
    if (pair) {
        run_pairs(&lines);
    } else {
        run_lines(&lines);
    }
}

/* Output rows [oy, end), one or two of them, in strips along x. */
static void rows_along_x(task_t *t, int32_t oy, int32_t end)
{
    const rlx_depthwise_mve_t *p = t->p;
    int8_t *out = rlx_row(t->y, oy);
    const bool pair = end - oy == 2;
    const int32_t across = pair ? (int32_t)(rlx_row(t->y, oy + 1) - out) : 0;
    t->lanes = p->k_h + (pair ? 1 : 0);
    load_along_x(t, oy * p->stride_h - p->pad_top, (p->out_w - 1) * p->stride_w + p->k_w);
    run_strip(t, out, p->out_w, p->in_c, across, pair);
}

/* Output rows [oy, end), in strips along y of one or two columns. y is no ring, or one row is computed at a time. */
static void rows_along_y(task_t *t, int32_t oy, int32_t end)
{
    const rlx_depthwise_mve_t *p = t->p;
    const int32_t row = oy * p->stride_h - p->pad_top;
    const int32_t positions = (end - oy - 1) * p->stride_h + p->k_h;
    for (int32_t ox = 0; ox < p->out_w;) {
        const bool pair = p->pairs != 0 && ox + 1 < p->out_w;
        t->lanes = p->k_w + (pair ? 1 : 0);
        load_along_y(t, row, ox * p->stride_w - p->pad_left, positions);
        run_strip(t, rlx_row(t->y, oy) + ox * p->in_c, end - oy, t->y.pitch, p->in_c, pair);
        ox += pair ? 2 : 1;
    }
}

static void run_task(task_t *t, int32_t y0, int32_t y1)
{
    const rlx_depthwise_mve_t *p = t->p;
    const int32_t rows = p->along_y && t->y.ring != 0 ? 1 : p->rows_at_once;
    t->zeros = t->strip + p->buffer_bytes;
    rlx_mve_fill(t->strip + p->buffer_bytes, p->x_zp, RLX_MVE_BYTES);
    for (int32_t oy = y0; oy < y1; oy += rows) {
        const int32_t end = oy + rows < y1 ? oy + rows : y1;
        for (t->channel = 0; t->channel < p->in_c; t->channel += t->channels) {
            const int32_t left = p->in_c - t->channel;
            t->channels = left < RLX_MVE_BYTES ? left : RLX_MVE_BYTES;
            t->position = LANES * (p->in_c < RLX_MVE_BYTES ? p->in_c : RLX_MVE_BYTES);
            if (p->along_y) {
                rows_along_y(t, oy, end);
            } else {
                rows_along_x(t, oy, end);
            }
        }
    }
}

#endif
