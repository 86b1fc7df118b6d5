/* rlx_conv_mve.h: convolution on MVE, as products of windows that are runs of bytes.
 *
 * 1x1 kernels without padding take the pixels of x as windows, where they lie. For other kernels the rows that an
 * output row needs are laid out in scratch memory with their columns in turn, [column][k_h][in_c], padding included:
 * then every window is one run of k_w * k_h * in_c bytes, and neighbors overlap. The weights come in that order.
 *
 * scratch: 1x1: two windows, for the last pixels of x, whose 16-byte blocks would reach beyond x's rows.
 *          others: (15 + columns * k_h * in_c) rounded up to 16, times p->rows_at_once.
 * An output row is written after all rows that it needs were copied; a pair of 1x1 pixels is read again for each group
 * of four channels.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_CONV_MVE_H
#define RLX_CONV_MVE_H

#include "rlx_gemm_mve.h"
#include "rlx_kernels.h"

static inline int32_t rlx_smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int32_t rlx_larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* `count` 1x1 windows from `from` on, of which x has `bytes` bytes. */
static void pixels(
    const rlx_conv_mve_t *p, rlx_gemm_t *g, const int8_t *from, int32_t bytes, int8_t *to, int32_t count, int8_t *spare)
{
    const int32_t step = p->stride_w * p->in_c;
    const int32_t window = g->blocks * RLX_MVE_BYTES;
    int32_t whole = bytes < window ? 0 : (bytes - window) / step + 1;
    whole = whole >= count ? count : whole & ~1;
    rlx_gemm_windows(g, from, step, to, whole);
    for (int32_t i = whole; i < count; i += 2) {
        const int32_t n = rlx_smaller(2, count - i);
        for (int32_t j = 0; j < n; j++) {
            rlx_mve_copy(spare + j * window, from + (i + j) * step, p->in_c);
        }
        rlx_gemm_windows(g, spare, window, to + i * p->out_c, n);
    }
}

static void pointwise(
    const rlx_conv_mve_t *p, rlx_gemm_t *g, const rlx_view_t *x, const rlx_view_t *y, int8_t *scratch, int32_t y0,
    int32_t y1)
{
    const int32_t row_bytes = p->in_w * p->in_c;
    const bool joined = p->stride_h == 1 && p->stride_w == 1 && x->ring == 0 && y->ring == 0 && x->pitch == row_bytes
                        && y->pitch == p->out_w * p->out_c;
    const int32_t rows = joined ? y1 - y0 : 1;
    for (int32_t oy = y0; oy < y1; oy += rows) {
        pixels(p, g, rlx_row(*x, oy * p->stride_h), rows * row_bytes, rlx_row(*y, oy), rows * p->out_w, scratch);
    }
}

/* Where the 16 bytes go that one instruction moves, of pixels of few channels. */
static inline void find_places(const rlx_conv_mve_t *p, uint8_t *places)
{
    int32_t at = 0;
    for (int32_t i = 0; i < RLX_MVE_BYTES; at += p->k_h * p->in_c) {
        for (int32_t c = 0; c < p->in_c && i < RLX_MVE_BYTES; c++) {
            places[i++] = (uint8_t)(at + c);
        }
    }
}

/* `count` pixels of a row of x, to their places in the columns. */
static inline void spread_row(
    const rlx_conv_mve_t *p, const uint8_t *places, int8_t *to, const int8_t *from, int32_t count)
{
    const int32_t column = p->k_h * p->in_c;
    if (p->spread_pixels != 0) {
        rlx_mve_scatter(
            to, p->spread_pixels * column, from, p->spread_pixels * p->in_c, count * p->in_c, places);
        return;
    }
    for (int32_t c = 0; c < p->in_c; c += RLX_MVE_BYTES) {
        const int32_t bytes = rlx_smaller(RLX_MVE_BYTES, p->in_c - c);
        rlx_mve_copy_pieces(to + c, column, from + c, p->in_c, bytes, count);
    }
}

/* The rows that output row oy needs. The columns outside the image hold x_zp already; so do rows above it, as their
 * places were never written. */
static void load_rows(const rlx_conv_mve_t *p, const uint8_t *places, const rlx_view_t *x, int8_t *columns, int32_t oy)
{
    const int32_t inside = rlx_larger(0, rlx_smaller(p->in_w, p->columns - p->pad_left));
    const int32_t column = p->k_h * p->in_c;
    int8_t *to = columns + p->pad_left * column;
    int32_t row = oy * p->stride_h - p->pad_top;
    for (int32_t ky = 0; ky < p->k_h; ky++, row++, to += p->in_c) {
        if (row >= p->in_h) {
            for (int32_t i = 0; i < inside; i++) {
                rlx_mve_fill(to + i * column, p->x_zp, p->in_c);
            }
        } else if (row >= 0) {
            spread_row(p, places, to, rlx_row(*x, row), inside);
        }
    }
}

/* Pairs the windows of two output rows, which leaves none over when a row has an odd number of them. */
static void row_pair(
    const rlx_conv_mve_t *p, rlx_gemm_t *g, const int8_t *columns, int32_t buffer, int8_t *first, int8_t *second)
{
    const bool swapped = (uintptr_t)second < (uintptr_t)first; /* in a ring of rows */
    const ptrdiff_t distance = swapped ? first - second : second - first;
    const int32_t step = p->stride_w * p->k_h * p->in_c;
    if (distance > RLX_GEMM_MAX_SPREAD) {
        rlx_gemm_windows(g, columns, step, first, p->out_w);
        rlx_gemm_windows(g, columns + buffer, step, second, p->out_w);
        return;
    }
    g->x0 = swapped ? columns + buffer : columns;
    g->x1 = swapped ? columns : columns + buffer;
    g->x_step = step;
    g->out = swapped ? second : first;
    g->out_step = p->out_c;
    g->spread = (int32_t)distance;
    rlx_gemm_run(g, p->out_w);
}

static void windows(
    const rlx_conv_mve_t *p, rlx_gemm_t *g, const rlx_view_t *x, const rlx_view_t *y, int8_t *columns, int32_t y0,
    int32_t y1)
{
    const int32_t column = p->k_h * p->in_c;
    const int32_t buffer = (p->columns * column + 2 * RLX_MVE_BYTES - 2) / RLX_MVE_BYTES * RLX_MVE_BYTES;
    uint8_t places[RLX_MVE_BYTES];
    find_places(p, places);
    rlx_mve_fill(columns, p->x_zp, p->rows_at_once * buffer);
    for (int32_t oy = y0; oy < y1; oy += p->rows_at_once) {
        load_rows(p, places, x, columns, oy);
        if (p->rows_at_once == 2 && oy + 1 < y1) {
            load_rows(p, places, x, columns + buffer, oy + 1);
            row_pair(p, g, columns, buffer, rlx_row(*y, oy), rlx_row(*y, oy + 1));
        } else {
            rlx_gemm_windows(g, columns, p->stride_w * column, rlx_row(*y, oy), p->out_w);
        }
    }
}

static inline void rlx_conv_mve(
    const rlx_conv_mve_t *p, const rlx_view_t *x, const rlx_view_t *y, void *scratch, int32_t y0, int32_t y1)
{
    rlx_gemm_t g = rlx_gemm_begin((const int8_t *)p->stream, p->blocks, p->out_c, p->out_zp, p->low, p->high);
    if (p->columns == 0) {
        pointwise(p, &g, x, y, scratch, y0, y1);
    } else {
        windows(p, &g, x, y, scratch, y0, y1);
    }
}

#endif
