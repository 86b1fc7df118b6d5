/* rlx_kernels_v7m.h: the kernels for Armv7-M: Cortex-M3. See rlx_kernels.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_KERNELS_V7M_H
#define RLX_KERNELS_V7M_H

#include "rlx.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Convolution, 4 positions at a time. One group, no dilation. group: steps that two 16-bit fields can hold, 2 or 4.
 * pointwise: 1 for a 1x1 kernel, stride 1 and no padding. scratch: see the kernel. */
typedef struct {
    const int32_t *stream; /* bias, weights and scales of each channel: rlx_gemm_v7m.h */
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, out_zp, low, high, group, pointwise;
} rlx_conv_v7m_t;
void rlx_conv_v7m_s8(
    const rlx_conv_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* Depthwise convolution, 6 neighbors at a time, an output channel per input channel; bands of band_h rows and band_w
 * columns of y go through scratch: see the kernel. */
typedef struct {
    const int32_t *stream; /* bias, weights and scales of each channel: see the kernel */
    int32_t in_h, in_w, in_c, out_w, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, out_zp, low, high, band_h, band_w;
} rlx_depthwise_v7m_t;
void rlx_depthwise_v7m_s8(
    const rlx_depthwise_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with weights of 4 and 2 bits, packed. */
void rlx_depthwise_v7m_w4(
    const rlx_depthwise_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_depthwise_v7m_w2(
    const rlx_depthwise_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* Matrix product, 8 output channels at a time. */
typedef struct {
    const int32_t *stream; /* biases, weights and scales of groups of channels: see the kernel */
    int32_t in_c, out_c, out_zp, low, high;
} rlx_dense_v7m_t;
void rlx_dense_v7m_s8(const rlx_dense_v7m_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

#if defined(__cplusplus)
}
#endif
#endif
