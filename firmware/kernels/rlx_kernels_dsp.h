/* rlx_kernels_dsp.h: the kernels for DSP: Cortex-M4, M7, M33. See rlx_kernels.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_KERNELS_DSP_H
#define RLX_KERNELS_DSP_H

#include "rlx.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Convolution of one group without dilation, weights packed by the generator: rlx_conv_dsp.h, rlx_gemm_dsp.h.
 * scratch: aligned to 16; its size stands in rlx_conv_dsp.h. */
typedef struct {
    const int32_t *stream;
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, low, high;
    int32_t steps;     /* of the packed weights, 2 values of k each */
    int32_t pointwise; /* 1: 1x1, stride 1 and no padding, so that rows may be taken together */
} rlx_conv_dsp_t;
void rlx_conv_dsp_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with the weights of two channels joined in an int16, and with int16 weights. */
void rlx_conv_dsp_joined_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_dsp_w16_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with weights of 4 and 2 bits, packed: rlx_digits_dsp.h. */
void rlx_conv_dsp_w4_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_dsp_w2_s8(const rlx_conv_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* Matrix product, weights packed by the generator: rlx_dense_dsp.h. */
typedef struct {
    const int32_t *stream;
    int32_t in_c, out_c, low, high;
} rlx_dense_dsp_t;
void rlx_dense_dsp_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
/* The same with the weights of two channels joined in an int16. */
void rlx_dense_dsp_joined_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
/* The same with weights of 4 and 2 bits, packed: rlx_digits_dsp.h. */
void rlx_dense_dsp_w4_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dense_dsp_w2_s8(const rlx_dense_dsp_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* The latter with one scale; rlx_dense_dsp_one_scale_s8.c. offset, shift: K and e of rlx_dsp.h. */
typedef struct {
    const int32_t *stream;
    int32_t in_c, out_c, low, high, multiplier, offset, shift;
} rlx_dense_dsp_one_scale_t;
void rlx_dense_dsp_one_scale_s8(
    const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dense_dsp_one_scale_w4_s8(
    const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dense_dsp_one_scale_w2_s8(
    const rlx_dense_dsp_one_scale_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Depthwise convolution of at most 3x3 taps, of as many channels out as in, without dilation. along_y: lines of the
 * planes in scratch run along y, else along x; tile_h rows x tile_w columns of outputs are computed from the planes at
 * once: of a tile along the lines, of a band across them. stream: rlx_depthwise_dsp.h.
 * scratch: aligned to 16; its size stands in the kernel's file. */
typedef struct {
    const int8_t *stream;
    int32_t in_h, in_w, channels, out_w, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, out_zp, low, high;
    int32_t tile_h, tile_w, along_y;
} rlx_depthwise_dsp_t;
void rlx_depthwise_dsp_s8(
    const rlx_depthwise_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with weights of 4 and 2 bits, packed. */
void rlx_depthwise_dsp_w4_s8(
    const rlx_depthwise_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_depthwise_dsp_w2_s8(
    const rlx_depthwise_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

#if defined(__cplusplus)
}
#endif
#endif
