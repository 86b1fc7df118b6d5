/* rlx_dequant_matmul.h: a float32 matrix product with weights of a scale a block, four output columns at a time.
 *
 * A kernel includes it once RLX_POSITION_BYTES is what the four codes of a position take, and
 *     static inline void codes_of(const int8_t *position, float *codes)
 * reads them. The order of steps is the one that rlx_edge/reference/dequant.py names; columns beyond out_c are computed,
 * from zeros, but not stored.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEQUANT_MATMUL_H
#define RLX_DEQUANT_MATMUL_H

#include "rlx_f32.h"
#include "rlx_kernels.h"

enum { RLX_F32_COLUMNS = 4 };

/* sums[j] += x[k] * the code of column j at k, for n positions in order */
static inline void add_products(float *sums, const rlx_f32_t *x, const int8_t *weights, int32_t n)
{
    for (int32_t k = 0; k < n; k++, weights += RLX_POSITION_BYTES) {
        const float value = x[k];
        float codes[RLX_F32_COLUMNS];
        codes_of(weights, codes);
        for (int32_t j = 0; j < RLX_F32_COLUMNS; j++) {
            float product = value * codes[j];
            RLX_F32_STEP(product);
            sums[j] += product;
            RLX_F32_STEP(sums[j]);
        }
    }
}

/* sums[j] -= zero point j * the sum of n values */
static inline void subtract_zero_points(float *sums, const rlx_f32_t *x, int32_t n, const int32_t *zero_points)
{
    float plain = 0.0f;
    for (int32_t k = 0; k < n; k++) {
        plain += x[k];
        RLX_F32_STEP(plain);
    }
    for (int32_t j = 0; j < RLX_F32_COLUMNS; j++) {
        float part = rlx_f32_of_bits(zero_points[j]) * plain;
        RLX_F32_STEP(part);
        sums[j] -= part;
        RLX_F32_STEP(sums[j]);
    }
}

/* The four columns of group g. */
static inline void columns(const rlx_dequant_matmul_t *p, const rlx_f32_t *x, int32_t g, float *totals)
{
    const int8_t *weights = p->weights + g * p->in_c * RLX_POSITION_BYTES;
    for (int32_t b = 0, k = 0; k < p->in_c; b++, k += p->block) {
        const int32_t n = p->in_c - k < p->block ? p->in_c - k : p->block;
        const int32_t place = (g * p->blocks + b) * RLX_F32_COLUMNS;
        float sums[RLX_F32_COLUMNS] = {0.0f};
        add_products(sums, x + k, weights + k * RLX_POSITION_BYTES, n);
        if (p->has_zero_points != 0) {
            subtract_zero_points(sums, x + k, n, p->zero_points + place);
        }
        for (int32_t j = 0; j < RLX_F32_COLUMNS; j++) {
            float scaled = rlx_f32_of_bits(p->scales[place + j]) * sums[j];
            RLX_F32_STEP(scaled);
            totals[j] += scaled;
            RLX_F32_STEP(totals[j]);
        }
    }
}

static inline void multiply(const rlx_dequant_matmul_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const uint32_t mode = rlx_f32_begin();
    for (int32_t row = y0; row < y1; row++) {
        const rlx_f32_t *in = (const rlx_f32_t *)(const void *)rlx_row(x, row);
        int32_t *out = (int32_t *)(void *)rlx_row(y, row);
        for (int32_t c = 0; c < p->out_c; c += RLX_F32_COLUMNS) {
            float totals[RLX_F32_COLUMNS] = {0.0f};
            columns(p, in, c / RLX_F32_COLUMNS, totals);
            for (int32_t j = 0; j < RLX_F32_COLUMNS && c + j < p->out_c; j++) {
                if (p->has_bias != 0) {
                    totals[j] += rlx_f32_of_bits(p->bias[c + j]);
                    RLX_F32_STEP(totals[j]);
                }
                out[c + j] = rlx_f32_bounded(totals[j], p->low, p->high);
            }
        }
    }
    rlx_f32_end(mode);
}

#endif
