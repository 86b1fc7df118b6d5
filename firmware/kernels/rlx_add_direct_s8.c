/* rlx_add_direct_s8: sum or difference of two tensors of the same shape, one operand rescaled by a product.
 *
 * The operand of the larger scale is rescaled to the common scale by a power of two, so a product with `factor` does it;
 * b, the other one, is shifted to the left by LEFT_SHIFT and rescaled with rounding (rlx_twice.h):
 *     h = rlx_twice_rescale(2 * (b << LEFT_SHIFT) + b_offset, b_multiplier, 2^(b_shift - 1)) >> b_shift
 *     2 * (rescaled sum) = a * factor + offset + 2 * h                 (factor < 0 subtracts a)
 * That is rescaled to the output's scale. Proved by the generator, over all values of a and b: |sum| < 2^30, |b's
 * operand| < 2^30, the conditions of rlx_twice.h, and that a's rescaling is linear. y may be a or b.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_twice.h"

enum { LEFT_SHIFT = 20 };

static inline int8_t element(const rlx_add_direct_t *p, int32_t half, int32_t a, int32_t b)
{
    const int32_t h = rlx_twice_rescale(b * (2 << LEFT_SHIFT) + p->b_offset, p->b_multiplier, half) >> p->b_shift;
    const int32_t twice = a * p->factor + p->offset + 2 * h;
    return rlx_saturate_s8(rlx_twice_rescale(twice, p->multiplier, p->k) >> p->shift);
}

void rlx_add_direct_s8(const rlx_add_direct_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    const rlx_add_direct_t local = *p; /* int8_t may alias *p, but not this */
    const int32_t half = INT32_C(1) << (local.b_shift - 1);
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *pa = rlx_row(a, row);
        const int8_t *pb = rlx_row(b, row);
        int8_t *out = rlx_row(y, row);
        for (int32_t i = 0; i < local.width; i++) {
            out[i] = element(&local, half, pa[i], pb[i]);
        }
        rlx_bound_s8(out, local.width, local.low, local.high);
    }
}
