/* rlx_kernels_v6m.h: the kernels for Armv6-M: Cortex-M0, M0+. See rlx_kernels.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_KERNELS_V6M_H
#define RLX_KERNELS_V6M_H

#include "rlx.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* stream: as rlx_conv_v6m_s8.c says. blocks: a window's taps by four, rounded up. scratch: 32 * blocks + 5 * k_w * in_c
 * bytes. */
typedef struct {
    const int32_t *stream;
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w, stride_h, stride_w, pad_top, pad_left;
    int32_t blocks, x_zp, low, high;
} rlx_conv_v6m_t;
void rlx_conv_v6m_s8(
    const rlx_conv_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* stream, scratch: as rlx_depthwise_v6m_s8.c says. multiplier: output channels of an input channel. band: output rows
 * (columns, if upright) that are computed together. upright: 1 for pairs of rows, 0 for pairs of columns. */
typedef struct {
    const int32_t *stream;
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w, stride_h, stride_w, pad_top, pad_left;
    int32_t multiplier, band, upright, x_zp, low, high;
} rlx_depthwise_v6m_t;
void rlx_depthwise_v6m_s8(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with weights of 4 and 2 bits; stream: as rlx_depthwise_packed_v6m.h says. */
void rlx_depthwise_v6m_w4(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_depthwise_v6m_w2(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* stream, scratch: as rlx_dense_v6m_s8.c says. */
typedef struct {
    const int32_t *stream;
    int32_t in_c, out_c, low, high;
} rlx_dense_v6m_t;
void rlx_dense_v6m_s8(
    const rlx_dense_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

#if defined(__cplusplus)
}
#endif
#endif
