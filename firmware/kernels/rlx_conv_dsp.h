/* rlx_conv_dsp.h: convolution by 4 positions at a time: their windows are widened to int16 in scratch (rlx_widen_dsp.h),
 * then multiplied (rlx_gemm_dsp.h; weights of 4 and 2 bits: rlx_gemm_digits_dsp.h).
 *
 * Positions go along the output rows and on from the end of a row to the next one; where rows follow each other in
 * memory, a 1x1 convolution takes them as one row. A window that reaches out of the image (or that a ring of rows cuts
 * in two) is copied first, with x_zp for what lies outside. The last tile repeats the last position.
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][out_c]. One group, no dilation; any kernel size, stride and padding.
 * The generator proves: weights without zero point; |accumulator| < 2^30, every partial sum included; right shifts of
 * 1 to 31 with K and K + h in int32; and what RLX_GEMM_WEIGHTS asks for (rlx_gemm_dsp.h). Of weights of 4 and 2 bits it
 * proves what rlx_digits_dsp.h says.
 * Scratch: 16 * steps bytes, and, with padding or k_h > 1, four windows (k_h * k_w * in_c bytes, rounded up to words);
 * steps = 2 * k_h * (k_w * in_c / 4) + (k_h * (k_w * in_c % 4) + 1) / 2, made even for weights of 4 and 2 bits.
 * Reads the windows of 4 positions before it writes their outputs; positions go in the order of memory. x and y must
 * not overlap but as that order allows.
 *
 * A kernel's file defines RLX_GEMM_WEIGHTS or RLX_DIGIT_BITS, includes this and calls rlx_conv_dsp.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_CONV_DSP_H
#define RLX_CONV_DSP_H

#if defined(RLX_DIGIT_BITS)
#include "rlx_gemm_digits_dsp.h"
#else
#include "rlx_gemm_dsp.h"
#endif
#include "rlx_kernels.h"
#include "rlx_widen_dsp.h"

/* What does not change from tile to tile. */
typedef struct {
    const rlx_conv_dsp_t *p;
    rlx_view_t x, y;
    int32_t in_w, out_w;
    int32_t inside_first, inside_end; /* output columns whose windows lie inside the image */
    int32_t run, next_row, step;      /* bytes: a kernel row; from its end to the next one; to the next window */
    int8_t *copies;                   /* scratch: the windows of 4 positions */
    int32_t copy_bytes;               /* of one window, rounded up to whole words */
} rlx_conv_plan_t;

/* Where the next position is: a column of an output row. `in`: the first row of that row's windows, when all of their
 * rows are in the image and follow each other in memory, or NULL. */
typedef struct {
    int32_t oy, ox;
    int8_t *out;
    const int8_t *in;
} rlx_conv_at_t;

static inline int32_t rlx_conv_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static __attribute__((noinline)) rlx_conv_at_t rlx_conv_row(const rlx_conv_plan_t *c, int32_t oy)
{
    const int32_t k_h = c->p->k_h;
    const int32_t iy = oy * c->p->stride_h - c->p->pad_top;
    const bool inside = iy >= 0 && iy + k_h <= c->p->in_h && (c->x.ring == 0 || iy % c->x.ring + k_h <= c->x.ring);
    return (rlx_conv_at_t){oy, 0, rlx_row(c->y, oy), inside ? rlx_row(c->x, iy) : NULL};
}

static inline void rlx_conv_move(const rlx_conv_plan_t *c, rlx_conv_at_t *at, int32_t positions)
{
    at->ox += positions;
    if (at->ox == c->out_w) {
        *at = rlx_conv_row(c, at->oy + 1);
    }
}

/* n bytes, by words; neither end need be aligned. */
static inline void rlx_conv_copy(int8_t *to, const int8_t *from, int32_t n)
{
    for (; n >= 4; n -= 4, to += 4, from += 4) {
        __builtin_memcpy(to, from, 4);
    }
    for (; n > 0; n--) {
        *to++ = *from++;
    }
}

/* Copies the window of the position at (oy, ox). */
static __attribute__((noinline)) void rlx_conv_copy_window(
    const rlx_conv_plan_t *c, int8_t *copy, int32_t oy, int32_t ox)
{
    const rlx_conv_dsp_t *p = c->p;
    const int32_t iy = oy * p->stride_h - p->pad_top;
    const int32_t ix = ox * p->stride_w - p->pad_left;
    const int32_t left = ix < 0 ? -ix * p->in_c : 0; /* bytes [left, right) of a kernel row are inside */
    const int32_t right = rlx_conv_min(c->run, (c->in_w - ix) * p->in_c);
    const uint32_t zeros = (uint32_t)(uint8_t)p->x_zp * 0x01010101u;
    for (int32_t i = 0; i < c->copy_bytes; i += 4) {
        __builtin_memcpy(copy + i, &zeros, 4);
    }
    const int32_t end = rlx_conv_min(p->k_h, p->in_h - iy);
    for (int32_t ky = iy < 0 ? -iy : 0; ky < end; ky++) {
        rlx_conv_copy(copy + ky * c->run + left, rlx_row(c->x, iy + ky) + ix * p->in_c + left, right - left);
    }
}

/* Finds the window and the output of the next position, the i-th of the tile. */
static __attribute__((noinline)) void rlx_conv_find(
    const rlx_conv_plan_t *c, rlx_conv_at_t *at, int32_t i, rlx_widen_t *w, rlx_gemm_t *g)
{
    const rlx_conv_dsp_t *p = c->p;
    g->offsets[i] = (int32_t)(at->out + at->ox * p->out_c - g->out);
    if (at->in != NULL && at->ox >= c->inside_first && at->ox < c->inside_end) {
        w->x[i] = at->in + (at->ox * p->stride_w - p->pad_left) * p->in_c;
        w->next_row[i] = c->next_row;
    } else {
        int8_t *copy = c->copies + i * c->copy_bytes;
        rlx_conv_copy_window(c, copy, at->oy, at->ox);
        w->x[i] = copy;
        w->next_row[i] = 0;
    }
    rlx_conv_move(c, at, 1);
}

/* Finds the windows of the next 4 positions, or of the last `left` of all and then the last one again, and says where
 * their outputs lie. */
static inline void rlx_conv_gather(
    const rlx_conv_plan_t *c, rlx_conv_at_t *at, int32_t left, rlx_widen_t *w, rlx_gemm_t *g)
{
    const rlx_conv_dsp_t *p = c->p;
    g->out = at->out + at->ox * p->out_c;
    if (at->in != NULL && at->ox >= c->inside_first && at->ox + RLX_STEP_POSITIONS <= c->inside_end) {
        const int8_t *x = at->in + (at->ox * p->stride_w - p->pad_left) * p->in_c;
        for (int32_t i = 0; i < RLX_STEP_POSITIONS; i++, x += c->step) {
            w->x[i] = x;
            w->next_row[i] = c->next_row;
            g->offsets[i] = i * p->out_c;
        }
        rlx_conv_move(c, at, RLX_STEP_POSITIONS);
        return;
    }
    int32_t i = 0;
    for (; i < RLX_STEP_POSITIONS && i < left; i++) {
        rlx_conv_find(c, at, i, w, g);
    }
    for (; i < RLX_STEP_POSITIONS; i++) {
        w->x[i] = w->x[i - 1];
        w->next_row[i] = w->next_row[i - 1];
        g->offsets[i] = g->offsets[i - 1];
    }
}

static inline rlx_conv_plan_t rlx_conv_plan(
    const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, int16_t *scratch, int32_t rows)
{
    rlx_conv_plan_t c = {.p = p, .x = x, .y = y, .in_w = p->in_w, .out_w = p->out_w, .run = p->k_w * p->in_c};
    c.next_row = x.pitch - c.run;
    c.step = p->stride_w * p->in_c;
    c.copies = (int8_t *)(scratch + p->steps * RLX_STEP_VALUES);
    c.copy_bytes = (p->k_h * c.run + 3) / 4 * 4;
    const bool dense = x.ring == 0 && y.ring == 0 && x.pitch == p->in_w * p->in_c && y.pitch == p->out_w * p->out_c;
    if (dense && p->pointwise != 0) {
        c.in_w *= rows;
        c.out_w *= rows;
    }
    const int32_t room = c.in_w + p->pad_left - p->k_w;
    c.inside_first = (p->pad_left + p->stride_w - 1) / p->stride_w;
    c.inside_end = room < 0 ? 0 : rlx_conv_min(c.out_w, room / p->stride_w + 1);
    return c;
}

static void rlx_conv_dsp(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    int16_t *wide = (int16_t *)scratch;
    const rlx_conv_plan_t c = rlx_conv_plan(p, x, y, wide, y1 - y0);
    rlx_gemm_t g = {.x = wide,
                    .x_end = wide + p->steps * RLX_STEP_VALUES,
                    .skip = rlx_gemm_skip(p->steps),
                    .stream = p->stream,
                    .stream_end = p->stream + rlx_gemm_stream_words(p->steps, p->out_c)};
    rlx_widen_t w = {.words_to = wide,
                     .rest_to = wide + 2 * (c.run / 4) * p->k_h * RLX_STEP_VALUES,
                     .rows = p->k_h,
                     .words = c.run / 4,
                     .rest = c.run % 4};
    for (int16_t *last = wide + (p->steps - RLX_GEMM_TOGETHER) * RLX_STEP_VALUES; last < g.x_end; last++) {
        *last = 0; /* some of that may never be written */
    }
    rlx_conv_at_t at = rlx_conv_row(&c, y0);
    for (int32_t left = (y1 - y0) * p->out_w; left > 0; left -= RLX_STEP_POSITIONS) {
        rlx_conv_gather(&c, &at, left, &w, &g);
        rlx_widen_tile(&w);
        rlx_gemm_tile(&g);
        if (p->low > -128 || p->high < 127) {
            for (int32_t i = 0; i < RLX_STEP_POSITIONS; i++) {
                rlx_dsp_clamp(g.out + g.offsets[i], p->out_c, p->low, p->high);
            }
        }
    }
}

#endif
