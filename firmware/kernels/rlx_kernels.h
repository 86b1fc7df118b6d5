/* rlx_kernels.h: every kernel, with its parameters: the portable ones here, those of an instruction set in headers of
 * their own.
 *
 * All kernels compute the output rows [y0, y1) and touch no other row. Tensors are int8, channels last; a view says
 * where a row lies (rlx.h). Parameter structs are constant data made by the generator: pointers first, then int32
 * fields only, so that test firmware can build them from a list of numbers.
 *
 * Real values: real = (q - zero_point) * scale. `low` and `high` bound the output in quantized units.
 * multipliers and shifts: value * multiplier / 2^31 * 2^shift, rounded as rlx_requant.h says; 2^30 <= multiplier < 2^31,
 * or 0. With per_channel = 0 entry 0 serves all channels.
 * Kernels called _onnx_ compute in float32 steps by integer arithmetic (rlx_float.h): value * multiplier / 2^31 * 2^shift
 * is then a float32 product, and a scale is given by its IEEE 754 bits.
 *
 * Input and output may share memory only where the kernel's comment says so.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_KERNELS_H
#define RLX_KERNELS_H

#include "rlx.h"
#include "rlx_kernels_dsp.h"
#include "rlx_kernels_mve.h"
#include "rlx_kernels_packed.h"
#include "rlx_kernels_v6m.h"
#include "rlx_kernels_v7m.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Convolution, also grouped and dilated. Padded positions count as the real value 0.
 * bias: with the input's zero point folded in, bias[c] - x_zp * (sum over the taps of w - w_zp). */
typedef struct {
    const int8_t *weights;      /* [out_c][k_h][k_w][in_c / groups] */
    const int32_t *bias;        /* [out_c] */
    const int32_t *multipliers; /* [out_c] or [1] */
    const int8_t *shifts;       /* [out_c] or [1] */
    int32_t in_h, in_w, in_c, out_w, out_c, k_h, k_w;
    int32_t stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, groups;
    int32_t x_zp, w_zp, out_zp, low, high, per_channel;
} rlx_conv_t;
void rlx_conv_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Depthwise convolution: output channel c reads input channel c / (out_c / in_c). weights: [k_h][k_w][out_c]. */
void rlx_depthwise_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* The same with weights of 4 and 2 bits: rlx_conv_w4_s8.c, rlx_depthwise_w4_s8.c. */
void rlx_conv_w4_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_conv_w2_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_depthwise_w4_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_depthwise_w2_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

void rlx_conv_onnx_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_depthwise_onnx_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Matrix product: each row of x [in_c] gives a row of y [out_c]. bias: folded as a convolution's. */
typedef struct {
    const int8_t *weights;      /* [out_c][in_c] */
    const int32_t *bias;        /* [out_c] */
    const int32_t *multipliers; /* [out_c] or [1] */
    const int8_t *shifts;       /* [out_c] or [1] */
    int32_t in_c, out_c, w_zp, out_zp, low, high, per_channel;
} rlx_dense_t;
void rlx_dense_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
/* The same with weights of 4 and 2 bits: rlx_dense_w4_s8.c. */
void rlx_dense_w4_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dense_w2_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dense_onnx_s8(const rlx_dense_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* The same in float32, with weights of 8 or 4 bits in blocks along in_c that have a scale and a zero point each. Their
 * float32 numbers, and those of the bias, are given as bits; low and high as ordered integers (rlx_f32.h). */
typedef struct {
    const int8_t *weights;      /* [groups][in_c][4], or 2 bytes instead of 4; a group of 4 columns, the last filled up */
    const int32_t *scales;      /* [groups][blocks][4] */
    const int32_t *zero_points; /* [groups][blocks][4] or, without any, [1] */
    const int32_t *bias;        /* [out_c] or, without one, [1] */
    int32_t in_c, out_c, block, blocks, has_zero_points, has_bias, low, high;
} rlx_dequant_matmul_t;
void rlx_dequant_matmul_w8_f32(const rlx_dequant_matmul_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dequant_matmul_w4_f32(const rlx_dequant_matmul_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Pooling. Windows are clipped to the image; count_pad = 1 makes a mean count clipped positions, as real zeros. A mean
 * is rounded half away from zero, or with half_up = 1 towards +infinity, as the mean of uint8 values (q + 128) is. */
typedef struct {
    int32_t in_h, in_w, channels, out_w, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, count_pad, low, high, half_up;
} rlx_pool_t;
void rlx_avg_pool_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_max_pool_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
/* The mean with MVE: Cortex-M55, M85. */
void rlx_avg_pool_mve_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* A mean over a whole image in two parts, so that rows can come one by one. Sums: rows of `channels` int32, row y of
 * them the sum over the rows 0 to y of a; b holds the sums of the row before, and may be y. The mean reads the last. */
void rlx_pool_sum_s8(const rlx_pool_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_pool_mean_s8(const rlx_pool_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* The mean of the real values, requantized from x_scale to out_scale. Padding as above. */
typedef struct {
    int32_t in_h, in_w, channels, out_w, k_h, k_w;
    int32_t stride_h, stride_w, pad_top, pad_left, x_zp, count_pad, low, high;
    int32_t x_scale, out_scale, out_zp;
} rlx_pool_onnx_t;
void rlx_avg_pool_onnx_s8(const rlx_pool_onnx_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Elementwise add, subtract and multiply of rows of width * channels elements. A stride of 0 broadcasts; so does a
 * view's pitch of 0. y may be the same memory as an operand that is not broadcast. */
typedef struct {
    int32_t width, channels, a_stride_w, a_stride_c, b_stride_w, b_stride_c;
    int32_t a_zp, b_zp, out_zp, low, high;
    int32_t left_shift, a_multiplier, a_shift, b_multiplier, b_shift, out_multiplier, out_shift;
} rlx_binary_t;
void rlx_add_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_sub_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
/* Uses out_multiplier and out_shift only. */
void rlx_mul_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
/* a_multiplier, b_multiplier and out_multiplier are the scales' bits; no shifts. */
void rlx_add_onnx_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_sub_onnx_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_mul_onnx_s8(const rlx_binary_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);

/* The same sums and differences of two tensors of the same shape, with the generator's constants: the operand a is the
 * one of the larger scale, whichever that is. y may be the memory of either. */
typedef struct {
    const int32_t *table; /* [256] */
    int32_t width, factor, multiplier, k, shift, low, high;
} rlx_add_table_t;
void rlx_add_table_s8(const rlx_add_table_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);
typedef struct {
    int32_t width, factor, offset, b_offset, b_multiplier, b_shift, multiplier, k, shift, low, high;
} rlx_add_direct_t;
void rlx_add_direct_s8(const rlx_add_direct_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1);

/* Mean over two groups of axes: x is [row][reduce_0][keep_1][reduce_1][keep_2], y is [row][keep_1][keep_2]. */
typedef struct {
    int32_t reduce_0, keep_1, reduce_1, keep_2, x_zp, out_zp, multiplier, shift;
} rlx_mean_t;
void rlx_mean_s8(const rlx_mean_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_mean_onnx_s8(const rlx_mean_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Softmax of each row of `width` elements, at most 4095; the output has scale 1/256 and zero point -128.
 * y may be x. */
typedef struct {
    int32_t width, multiplier, left_shift, diff_min;
} rlx_softmax_t;
void rlx_softmax_s8(const rlx_softmax_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Softmax by a table: powers[d] for a difference of d to the row's maximum; the output's scale is mantissa / 2^shift.
 * y may be x. */
typedef struct {
    const int32_t *powers; /* [256] */
    int32_t width, mantissa, shift, out_zp;
} rlx_softmax_onnx_t;
void rlx_softmax_onnx_s8(const rlx_softmax_onnx_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Pad an image with `value`: output row y is input row y - top, and likewise for columns and channels. */
typedef struct {
    int32_t in_h, in_w, in_c, out_w, out_c, top, left, front, value;
} rlx_pad_t;
void rlx_pad_s8(const rlx_pad_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Reorder axes: y [row][d1][d2][d3]; stride_i is the step in x's memory for output axis i. x's view is only its base. */
typedef struct {
    int32_t d1, d2, d3, stride_0, stride_1, stride_2, stride_3;
} rlx_transpose_t;
void rlx_transpose_s8(const rlx_transpose_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* Copy `bytes` of each row. */
typedef struct {
    int32_t bytes;
} rlx_copy_t;
void rlx_copy_s8(const rlx_copy_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* From one scale and zero point to another (multiplier, shift), then bounds. y may be x. */
typedef struct {
    int32_t width, x_zp, out_zp, multiplier, shift, low, high;
} rlx_requantize_t;
void rlx_requantize_s8(const rlx_requantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
/* Bounds only. y may be x. */
void rlx_clamp_s8(const rlx_requantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* A function of each element: table[q + 128] is the result for the code q. y may be x. */
typedef struct {
    const int8_t *table; /* [256] */
    int32_t width;
} rlx_lookup_t;
void rlx_lookup_s8(const rlx_lookup_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

/* float32 rows to int8 and back, in integer arithmetic (rlx_real.h). scale_bits: the scale's IEEE 754 bits. */
typedef struct {
    int32_t width, scale_bits, zero_point, low, high;
} rlx_quantize_t;
void rlx_quantize_f32(const rlx_quantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
/* The same with ties to even. */
void rlx_quantize_onnx_f32(const rlx_quantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dequantize_f32(const rlx_quantize_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);

#if defined(__cplusplus)
}
#endif
#endif
