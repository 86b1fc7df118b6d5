/* rlx_kernels_mve.h: the kernels for MVE: Cortex-M55, M85. See rlx_kernels.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_KERNELS_MVE_H
#define RLX_KERNELS_MVE_H

#include "rlx.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* stream: as rlx_gemm_mve.h says. blocks: a window's bytes by 16, rounded up. columns: that all windows of a row span, or
 * 0 for 1x1 kernels without padding. rows_at_once: output rows laid out together, 1 or 2. spread_pixels: how many pixels
 * of few channels one instruction moves to their columns, where the places of 16 bytes lie within 256; or 0.
 * scratch: as rlx_conv_mve.h says. */
typedef struct {
    const int32_t *stream;
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w, stride_h, stride_w, pad_top, pad_left;
    int32_t x_zp, out_zp, low, high, blocks, columns, rows_at_once, spread_pixels;
} rlx_conv_mve_t;
void rlx_conv_mve_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_relu_mve_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with weights of 4 and of 2 bits (rlx_weights_mve.h). */
void rlx_conv_mve_w4_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_relu_mve_w4_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_mve_w2_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_conv_relu_mve_w2_s8(const rlx_conv_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* stream: as rlx_depthwise_strips_mve.h says. along_y: strips run along y. pairs: two lines at once. rows_at_once:
 * output rows of a band; along x 1, or 2 with `pairs`. out_c is in_c. scratch: buffer_bytes + 16 bytes. */
typedef struct {
    const int32_t *stream;
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w, stride_h, stride_w, pad_top, pad_left;
    int32_t x_zp, out_zp, along_y, pairs, rows_at_once, buffer_bytes;
} rlx_depthwise_mve_t;
void rlx_depthwise_mve_s8(
    const rlx_depthwise_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with packed weights of 4 and of 2 bits. */
void rlx_depthwise_mve_w4_s8(
    const rlx_depthwise_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_depthwise_mve_w2_s8(
    const rlx_depthwise_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* stream: as rlx_dense_mve.h says. blocks: in_c by 16, rounded up. scratch: 16 * blocks bytes, none where in_c is a
 * multiple of 16. */
typedef struct {
    const int32_t *stream;
    int32_t in_c, out_c, out_zp, low, high, blocks;
} rlx_dense_mve_t;
void rlx_dense_mve_s8(const rlx_dense_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
/* The same with weights of 4 and of 2 bits (rlx_weights_mve.h). */
void rlx_dense_mve_w4_s8(const rlx_dense_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);
void rlx_dense_mve_w2_s8(const rlx_dense_mve_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

/* As rlx_add_mve_s8.c says. width: elements of a row. y may be a or b. */
typedef struct {
    int32_t width, factor_b, offset_b, multiplier_b, shift_b, factor, offset, multiplier, shift, out_zp, low, high;
} rlx_add_mve_t;
void rlx_add_mve_s8(const rlx_add_mve_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);

#if defined(__cplusplus)
}
#endif
#endif
