/* rlx_kernels_packed.h: the kernels for weights of 4 and 2 bits on Armv6-M and Armv7-M; rlx_kernels_v6m.h and
 * rlx_kernels_v7m.h have those that take the parameters of int8 ones. See rlx_kernels.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_KERNELS_PACKED_H
#define RLX_KERNELS_PACKED_H

#include "rlx.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Convolution, 8 positions at a time. One group, no dilation. framed: 1 where a window leaves the image. pointwise: 1
 * for a 1x1 kernel, stride 1 and no padding. turns: of a run; first: taps of the first run; inits: words of scratch that
 * the core wants. stream: as rlx_octets_multiply_v6m.h, rlx_octets_multiply_v7m.h and rlx_octets_skip.h say. scratch: as
 * rlx_octets.h says. */
typedef struct {
    const int32_t *stream;
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, out_zp, low, high, framed, pointwise;
    int32_t turns, first, inits;
} rlx_conv_octets_t;
void rlx_conv_v6m_w4(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_v6m_w2(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_v6m_skip_w2(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_v7m_w4(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_v7m_w2(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_v7m_skip_w2(
    const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* Matrix product. chunk: inputs whose products are summed in 16 bits; first: those of the first chunk. stream, scratch:
 * as rlx_dense_packed.h says. */
typedef struct {
    const int32_t *stream;
    int32_t in_c, out_c, out_zp, low, high, chunk, first;
} rlx_dense_packed_t;
void rlx_dense_v6m_w4(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_dense_v6m_w2(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_dense_v7m_w4(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_dense_v7m_w2(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

#if defined(__cplusplus)
}
#endif
#endif
